//! Relays of TCP connections over the kernel's sockets: `[tcp_proxy.NAME]`.
//!
//! Each accepted connection gets its own connection to the server. Octets from one end go to the
//! other, and so does its end. A side that has sent everything may still receive (half-close); a
//! broken connection breaks the other. One thread serves all connections of a proxy and waits for
//! none of them.

mod part;
mod pipe;
mod serve;

pub(crate) use part::TcpProxies;

use crate::balance::Balancer;
use gatewright_delay::FlowKind;
use gatewright_descriptors::Claim;
use gatewright_histogram::{Histogram, SharedHistogram};
use nix::sys::eventfd::{EfdFlags, EventFd};
use serve::ProxyServer;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Descriptors that a connection takes: the client's and the server's.
const DESCRIPTORS_EACH: u64 = 2;

/// A TCP proxy to be started.
#[derive(Clone, Debug)]
pub struct TcpProxySetup {
    /// Its listening address; `[::]` takes both families.
    pub listen: SocketAddr,
    /// The target of each connection.
    pub target: ConnectionTarget,
    /// Maximum connections at once; further ones are closed at once.
    pub connections_max: usize,
    /// Maximum time without octets in either direction.
    pub idle: Duration,
    /// Maximum time for the server to accept.
    pub connect: Duration,
}

/// The target of a proxy's connections.
#[derive(Clone, Debug)]
pub enum ConnectionTarget {
    /// One server.
    Server(SocketAddr),
    /// The relays of a balance, to which each connection is a flow of this kind.
    Balance(Arc<Balancer>, FlowKind),
}

/// Counters of a TCP proxy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TcpProxyCounters {
    /// Connections that are open now.
    pub open: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that ended normally: both sides had sent everything.
    pub ended: u64,
    /// Connections closed at once, because the maximum was open.
    pub refused: u64,
    /// Connections closed at once, because no relay of the balance can carry their flow.
    pub not_admitted: u64,
    /// Connections whose server could not be reached in time.
    pub unreachable: u64,
    /// Connections that one side broke off.
    pub broken: u64,
    /// Connections closed because nothing passed for too long.
    pub idle: u64,
    /// Octets carried to the server.
    pub octets_to_server: u64,
    /// Octets carried to clients.
    pub octets_to_clients: u64,
}

/// The counters, written by the proxy's thread.
#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    accepted: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    not_admitted: AtomicU64,
    unreachable: AtomicU64,
    broken: AtomicU64,
    idle: AtomicU64,
    octets_to_server: AtomicU64,
    octets_to_clients: AtomicU64,
    /// From reading octets to writing them, in both directions.
    times: SharedHistogram,
}

/// A running TCP proxy; dropping it closes all its connections.
#[derive(Debug)]
pub struct TcpProxy {
    setup: TcpProxySetup,
    address: SocketAddr,
    counts: Arc<Counts>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    descriptors: Claim,
}

impl TcpProxy {
    /// Listens, and relays on its own thread.
    ///
    /// # Errors
    ///
    /// The system's error: the address is in use, or does not belong to this host.
    pub fn start(setup: TcpProxySetup) -> io::Result<Self> {
        let connections = u64::try_from(setup.connections_max).unwrap_or(u64::MAX);
        let descriptors = Claim::new(connections.saturating_mul(DESCRIPTORS_EACH));
        let listener = TcpListener::bind(setup.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let stop = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let stop = Arc::new(stop);
        let server = ProxyServer::new(setup.clone(), listener, Arc::clone(&counts), &stop)?;
        let thread = std::thread::Builder::new().name("tcp-proxy".to_owned());
        let thread = thread.spawn(move || server.run())?;
        Ok(Self { setup, address, counts, stop, thread: Some(thread), descriptors })
    }

    /// Its listening address.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its counters.
    pub fn counters(&self) -> TcpProxyCounters {
        self.counts.read()
    }

    /// Sojourn times of octets, from read to written, in nanoseconds.
    pub fn times(&self) -> Histogram {
        self.counts.times.read()
    }
}

impl TcpProxyCounters {
    /// The sums of both.
    const fn and(self, other: Self) -> Self {
        Self {
            open: self.open + other.open,
            accepted: self.accepted + other.accepted,
            ended: self.ended + other.ended,
            refused: self.refused + other.refused,
            not_admitted: self.not_admitted + other.not_admitted,
            unreachable: self.unreachable + other.unreachable,
            broken: self.broken + other.broken,
            idle: self.idle + other.idle,
            octets_to_server: self.octets_to_server + other.octets_to_server,
            octets_to_clients: self.octets_to_clients + other.octets_to_clients,
        }
    }
}

impl Counts {
    fn read(&self) -> TcpProxyCounters {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TcpProxyCounters {
            open: get(&self.open),
            accepted: get(&self.accepted),
            ended: get(&self.ended),
            refused: get(&self.refused),
            not_admitted: get(&self.not_admitted),
            unreachable: get(&self.unreachable),
            broken: get(&self.broken),
            idle: get(&self.idle),
            octets_to_server: get(&self.octets_to_server),
            octets_to_clients: get(&self.octets_to_clients),
        }
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        // The counter is only full if it was told already.
        let _full = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
