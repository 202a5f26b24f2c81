//! Taking connections in: as many as a listener may have, and as many as one address may.

use crate::quota::network;
use core::future::Future;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Pause after the system gave no connection (out of descriptors), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What is read of a connection that is turned away.
const READ_MAX: usize = 4_096;

/// What a peer of HTTP in the clear is told for which there is no room (RFC 9110 §15.6.4).
pub(crate) const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// What lets connections in.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    connections: Arc<Semaphore>,
    peers: Arc<Peers>,
    refused: Arc<AtomicU64>,
}

impl Gate {
    /// Lets in so many at the same time, of one address what `peers` says.
    pub(crate) fn new(connections_max: usize, peers: &Arc<Peers>) -> Self {
        Self {
            connections: Arc::new(Semaphore::new(connections_max)),
            peers: Arc::clone(peers),
            refused: Arc::default(),
        }
    }

    /// Another gate, of a listener beside; what one address has open counts for both.
    pub(crate) fn beside(&self, connections_max: usize) -> Self {
        Self::new(connections_max, &self.peers)
    }

    /// Another bound for one address from now on; connections that stand stay.
    pub(crate) fn set_most_of_one(&self, most: usize) {
        self.peers.set(most);
    }

    /// Connections that were not let in.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes connections until `stop` says so, each served by a task of its own; for whom there is
    /// no room is told `refusal`.
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
            let Some(seat) = self.seat(peer.ip()) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                turn_away(stream, refusal);
                continue;
            };
            // Answers are small and go out whole: waiting to fill a segment only delays them.
            let _ = stream.set_nodelay(true);
            let serving = serve(stream, peer);
            tokio::spawn(async move {
                serving.await;
                drop(seat);
            });
        }
    }

    fn seat(&self, address: IpAddr) -> Option<(OwnedSemaphorePermit, Guest)> {
        let permit = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        Some((permit, Peers::admit(&self.peers, address)?))
    }
}

/// Says why, without waiting for anything. What was asked already is read: who closes a connection with
/// octets unread resets it, and the peer might not read why (RFC 9112 §9.6).
fn turn_away(stream: TcpStream, refusal: &[u8]) {
    if let (false, Ok(mut stream)) = (refusal.is_empty(), stream.into_std()) {
        let _ = stream.read(&mut [0; READ_MAX]);
        let _ = stream.write_all(refusal);
    }
}

/// How many connections each address has, of IPv6 its network of 64 bits: one peer cannot take
/// them all.
#[derive(Debug)]
pub(crate) struct Peers {
    most: AtomicUsize,
    connections: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address, counted until it is dropped.
#[derive(Debug)]
struct Guest {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Peers {
    pub(crate) fn new(most: usize) -> Self {
        Self { most: AtomicUsize::new(most), connections: Mutex::default() }
    }

    fn set(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn admit(peers: &Arc<Self>, address: IpAddr) -> Option<Guest> {
        let address = network(address);
        let mut connections = peers.lock();
        let count = connections.get(&address).copied().unwrap_or(0);
        if count >= peers.most.load(Ordering::Relaxed) {
            return None;
        }
        connections.insert(address, count + 1);
        drop(connections);
        Some(Guest { peers: Arc::clone(peers), address })
    }

    /// A panic elsewhere leaves the counts as they were.
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
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
        let (gate, other_gate) = (Gate::new(9, &peers), Gate::new(9, &peers));
        let [one, same, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:1::1"].map(|it| it.parse().unwrap());
        let seats = (gate.seat(one).unwrap(), other_gate.seat(same).unwrap());
        assert!(gate.seat(one).is_none() && other_gate.seat(same).is_none());
        assert!(gate.seat(other).is_some());
        drop(seats);
        assert!(gate.seat(one).is_some());
        peers.set(0);
        assert!(gate.seat(other).is_none());
        assert!(peers.lock().is_empty(), "who was turned away is not remembered");
    }
}
