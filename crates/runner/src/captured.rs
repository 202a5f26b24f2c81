//! Pieces of messages that captures deliver.

use gatewright_translate::machine::{Captured, Direction};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A piece of a message that passed a capture, with both addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The peer's address.
    pub peer: SocketAddr,
    /// The gateway's address.
    pub local: SocketAddr,
    /// Whether it travelled over TCP; otherwise in a datagram.
    pub tcp: bool,
    /// Direction of the message.
    pub way: Direction,
    /// Whether a message begins here.
    pub first: bool,
    /// The octets.
    pub octets: Vec<u8>,
    /// Number of octets after these that were not kept.
    pub missing: u64,
}

/// Receives captured pieces on the loop's own thread; it must not block. It returns whether it took
/// the piece; a refused piece is counted as missed.
#[derive(Clone)]
pub struct PieceSink(Arc<dyn Fn(Piece) -> bool + Send + Sync>);

impl PieceSink {
    /// A sink that calls `take`.
    pub fn new(take: impl Fn(Piece) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn take(&self, piece: Piece) -> bool {
        (self.0)(piece)
    }
}

impl fmt::Debug for PieceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Piece {
    /// Adds `local` as far as it is known: a socket bound to every address knows only its port.
    pub(crate) fn of(captured: Captured, local: Option<SocketAddr>) -> Self {
        let Captured { conn, peer, way, first, octets, missing, .. } = captured;
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut local = local.or(peer.map(|_| nobody)).unwrap_or(nobody);
        let peer = peer.unwrap_or_else(|| SocketAddr::new(local.ip(), 0));
        if local.ip().is_unspecified() || local.is_ipv4() != peer.is_ipv4() {
            local.set_ip(match (peer.ip(), peer.ip().to_canonical().is_loopback()) {
                (ip, true) => ip,
                (IpAddr::V4(_), false) => Ipv4Addr::UNSPECIFIED.into(),
                (IpAddr::V6(_), false) => Ipv6Addr::UNSPECIFIED.into(),
            });
        }
        Self { peer, local, tcp: conn.is_some(), way, first, octets, missing }
    }
}
