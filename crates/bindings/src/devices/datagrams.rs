//! Devices that send datagrams: each address and port is a connection from its association request
//! on. Other datagrams are dropped and counted.

use super::transport::{Datagrams, Transport};
use super::{ConnectionHandle, Shared};
use crate::datagram_socket::DatagramSocket;
use crate::listeners::Latch;
use crate::tasks::boxed;
use core::time::Duration;
use gatewright_tables::Map;
use gatewright_tables::records::{Entity, Sender};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Octets of a datagram's payload at the most (RFC 768).
const DATAGRAM_MAX: usize = 65_507;
/// Datagrams queued for one device's connection.
const WAITING_MAX: usize = 32;
/// Interval at which a closing socket is checked for remaining associations.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// First octets of an association request (ISO/IEEE 11073-20601, AARQ).
const AARQ: [u8; 2] = [0xE2, 0x00];

/// Datagram queues of the connected devices.
type Connections = HashMap<SocketAddr, mpsc::Sender<Box<[u8]>>>;

/// Removes an ended connection, unless the same device has begun another before that was noticed.
fn forget(connections: &mut Connections, peer: &SocketAddr) {
    if connections.get(peer).is_some_and(mpsc::Sender::is_closed) {
        connections.remove(peer);
    }
}

/// Receives datagrams until `stop` is set, or until the listener `leaves` and its last device has
/// disassociated.
pub(super) async fn serve(
    socket: DatagramSocket,
    (shared, connections_max): (Arc<Shared>, usize),
    (mut leaves, latch): (watch::Receiver<bool>, Arc<Latch>),
    mut stop: watch::Receiver<bool>,
) {
    let socket = Arc::new(socket);
    let entities = shared.lock().entities.reader();
    let mut connections = Connections::new();
    let mut running = JoinSet::new();
    let mut octets = vec![0; DATAGRAM_MAX];
    loop {
        let is_leaving = *leaves.borrow_and_update();
        if is_leaving && running.is_empty() && latch.close() {
            return;
        }
        let received = tokio::select! {
            received = socket.recv_from(&mut octets) => received,
            Ok(()) = leaves.changed() => continue,
            Some(ended) = running.join_next() => {
                if let Ok(peer) = ended {
                    forget(&mut connections, &peer);
                }
                continue;
            }
            () = tokio::time::sleep(LOOK_EVERY), if is_leaving => {
                // Who is not associated has nothing to wait for here.
                connections.retain(|peer, _| is_in(&entities, &sender_at(*peer)));
                continue;
            }
            _ = stop.changed() => break,
        };
        // An error is an earlier answer's: nobody was there to take it.
        let Ok((length, peer)) = received else { continue };
        let apdu = octets.get(..length).unwrap_or_default();
        let (is_associated, asks) = standing(&shared, &socket, &entities, (peer, apdu));
        if !is_associated && (!asks || is_leaving) {
            shared.count(|counters| {
                counters.strangers += u64::from(!asks);
                counters.connections_refused += u64::from(asks);
            });
            continue;
        }
        let open = connections.get(&peer).filter(|connection| !connection.is_closed());
        let connection = if let Some(open) = open {
            open.clone()
        } else {
            if !asks || connections.len() >= connections_max {
                shared.count(|counters| counters.connections_refused += u64::from(asks));
                continue;
            }
            let (sender, arrived) = mpsc::channel(WAITING_MAX);
            let datagrams = Datagrams { socket: Arc::clone(&socket), peer, arrived };
            running.spawn(boxed(converse(Arc::clone(&shared), datagrams, stop.clone())));
            connections.insert(peer, sender.clone());
            sender
        };
        if connection.try_send(apdu.into()).is_err() {
            shared.count(|counters| counters.datagrams_full += 1);
        }
    }
    drop(connections);
    while running.join_next().await.is_some() {}
}

fn sender_at(peer: SocketAddr) -> Sender {
    Sender { address: peer.ip(), port: peer.port() }
}

/// Whether the AE table has a sender: it says who is associated (the paper's rule).
fn is_in(entities: &Map<Sender, Entity>, sender: &Sender) -> bool {
    matches!(entities.get(sender), Ok(Some(_)))
}

/// Whether the sender of an APDU is associated, and whether it is to be given a connection if it is
/// not.
fn standing(
    shared: &Shared,
    socket: &DatagramSocket,
    entities: &Map<Sender, Entity>,
    (peer, apdu): (SocketAddr, &[u8]),
) -> (bool, bool) {
    let sender = sender_at(peer);
    let is_associated = is_in(entities, &sender);
    // A device that an earlier control plane knew gets a connection, by which it hears that its
    // association has ended.
    let is_left = !is_associated
        && socket.is_of_own_stack()
        && shared.lock().entities.forwarded().is_some_and(|it| it.forget_left(&sender));
    (is_associated, is_left || apdu.starts_with(&AARQ))
}

/// Serves one device until it disconnects; returns its address.
async fn converse(
    shared: Arc<Shared>,
    datagrams: Datagrams,
    stop: watch::Receiver<bool>,
) -> SocketAddr {
    let peer = datagrams.peer;
    let handle = ConnectionHandle::of_datagrams(peer);
    shared.welcome(Transport::Datagrams(datagrams), handle, None, stop).await;
    peer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_connections_end_leaves_the_new_one() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 6_024));
        let mut connections = Connections::new();
        let (old, its_end) = mpsc::channel(1);
        connections.insert(peer, old);
        drop(its_end);
        let (new, arrived) = mpsc::channel(1);
        connections.insert(peer, new);
        forget(&mut connections, &peer);
        assert!(connections.contains_key(&peer), "the new one is open");
        drop(arrived);
        forget(&mut connections, &peer);
        assert!(connections.is_empty(), "both have ended");
    }
}
