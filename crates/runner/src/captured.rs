//! What captures give away.

use gatewright_translate::machine::{Captured, Way};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A piece of a message that passed a capture, with both ends of its way.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The peer's end.
    pub peer: SocketAddr,
    /// The gateway's.
    pub local: SocketAddr,
    /// Whether it went over TCP; else by one datagram.
    pub tcp: bool,
    /// Which way.
    pub way: Way,
    /// Whether a message begins here.
    pub first: bool,
    /// The octets.
    pub octets: Vec<u8>,
    /// Octets behind these that were not kept.
    pub missing: u64,
}

/// Takes what a capture gives away, on the loop's own thread: it is not to wait for anything. Says
/// whether it took the piece; one that it did not take is counted as missed.
#[derive(Clone)]
pub struct Sink(Arc<dyn Fn(Piece) -> bool + Send + Sync>);

impl Sink {
    /// One that calls `take`.
    pub fn new(take: impl Fn(Piece) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn take(&self, piece: Piece) -> bool {
        (self.0)(piece)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Piece {
    /// With `local` as far as it is known: of a socket at every address only the port is.
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
