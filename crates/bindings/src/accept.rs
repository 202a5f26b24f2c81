//! Accepts TCP connections, with a limit per listener and a limit per peer address.

use crate::tasks::spawn;
use core::future::Future;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use gatewright_descriptors::is_among_last;
use gatewright_onem2m::network;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Pause after `accept` fails (for example, out of descriptors), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Octets read from a refused connection.
const READ_MAX: usize = 4_096;

/// Why a request or a handshake with the field `Origin` is refused.
pub(crate) const OF_A_PAGE: &str = "requests of web pages, with the field Origin, are not answered";

/// Response to a plain HTTP peer when the connection limit is reached (RFC 9110 §15.6.4).
pub const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// Admits connections up to a listener's limits.
#[derive(Clone, Debug)]
pub struct Admission {
    connections: Arc<Semaphore>,
    peers: Arc<Peers>,
    refused: Arc<AtomicU64>,
}

impl Admission {
    /// Admits up to `connections_max` connections at a time; `peers` limits those of one address.
    pub fn new(connections_max: usize, peers: &Arc<Peers>) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(connections_max)),
            peers: Arc::clone(peers),
            refused: Arc::default(),
        }
    }

    /// The admission of another listener; the connections of one address count for both.
    pub(crate) fn beside(&self, connections_max: usize) -> Self {
        Self::new(connections_max, &self.peers)
    }

    /// Sets the limit for one address; open connections stay.
    pub(crate) fn set_most_of_one(&self, most: usize) {
        self.peers.set(most);
    }

    /// Refused connections.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Accepts connections until `stop` is set, one task each; a connection beyond a limit is sent
    /// `refusal`.
    pub(crate) async fn run<F>(
        self,
        (listener, refusal): (TcpListener, &'static [u8]),
        mut stop: watch::Receiver<bool>,
        serve: impl Fn(TcpStream, SocketAddr) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.changed() => return,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(permit) = self.admit(&stream, peer.ip()) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                refuse(stream, refusal);
                continue;
            };
            // Answers are small and go out whole: waiting to fill a segment only delays them.
            let _ = stream.set_nodelay(true);
            let serving = serve(stream, peer);
            spawn(async move {
                serving.await;
                drop(permit);
            });
        }
    }

    /// Admits a connection of `address`, whose descriptor is `stream`; `None` beyond a limit. The last
    /// descriptors are for what serves no peer.
    pub fn admit(&self, stream: &impl AsFd, address: IpAddr) -> Option<ConnectionPermit> {
        (!is_among_last(stream)).then(|| self.permit(address)).flatten()
    }

    /// Whether only the places of others keep a connection of `address` out.
    pub fn lacks_only_a_place(&self, address: IpAddr) -> bool {
        self.connections.available_permits() == 0 && self.peers.has_room_for(address)
    }

    fn permit(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        Some(ConnectionPermit { _permit: permit, _guard: Peers::admit(&self.peers, address)? })
    }
}

/// The place of an admitted connection among the others, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
    _guard: ConnectionGuard,
}

/// Sends the refusal without waiting. What the peer has sent already is read: closing a connection
/// with unread octets resets it, and the peer might lose the refusal (RFC 9112 §9.6).
fn refuse(stream: TcpStream, refusal: &[u8]) {
    if let (false, Ok(mut stream)) = (refusal.is_empty(), stream.into_std()) {
        let _ = stream.read(&mut [0; READ_MAX]);
        let _ = stream.write_all(refusal);
    }
}

/// Open connections per address (IPv6: per /64 network), so that one peer cannot take them all.
#[derive(Debug)]
pub struct Peers {
    most: AtomicUsize,
    connections: Mutex<HashMap<IpAddr, usize>>,
}

/// Connection guard: counts one connection of an address until it is dropped.
#[derive(Debug)]
struct ConnectionGuard {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Peers {
    /// Admits up to `most` connections of one address.
    pub fn new(most: usize) -> Self {
        Self { most: AtomicUsize::new(most), connections: Mutex::default() }
    }

    fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn has_room_for(&self, address: IpAddr) -> bool {
        let count = self.lock().get(&network(address)).copied().unwrap_or(0);
        count < self.most.load(Ordering::Relaxed)
    }

    fn admit(peers: &Arc<Self>, address: IpAddr) -> Option<ConnectionGuard> {
        let address = network(address);
        let mut connections = peers.lock();
        let count = connections.get(&address).copied().unwrap_or(0);
        if count >= peers.most.load(Ordering::Relaxed) {
            return None;
        }
        connections.insert(address, count + 1);
        drop(connections);
        Some(ConnectionGuard { peers: Arc::clone(peers), address })
    }

    /// A poisoned lock is safe here: the counts stay consistent.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut connections = self.peers.lock();
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_connections_and_no_more() {
        let peers = Arc::new(Peers::new(2));
        let (admission, other_admission) = (Admission::new(9, &peers), Admission::new(9, &peers));
        let [one, same, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:1::1"].map(|it| it.parse().unwrap());
        let permits = (admission.permit(one).unwrap(), other_admission.permit(same).unwrap());
        assert!(admission.permit(one).is_none() && other_admission.permit(same).is_none());
        assert!(admission.permit(other).is_some());
        drop(permits);
        assert!(admission.permit(one).is_some());
        let narrow = Admission::new(1, &peers);
        let taken = narrow.permit(one).unwrap();
        assert!(narrow.lacks_only_a_place(other) && narrow.lacks_only_a_place(same));
        let second = admission.permit(same).unwrap();
        assert!(narrow.lacks_only_a_place(other) && !narrow.lacks_only_a_place(same));
        drop((taken, second));
        assert!(!narrow.lacks_only_a_place(other));
        peers.set(0);
        assert!(admission.permit(other).is_none());
        assert!(peers.lock().is_empty(), "who was turned away is not remembered");
    }
}
