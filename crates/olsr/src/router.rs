//! [`OlsrRouter`]: the machine over sockets and the kernel's routes.

use crate::interface::RouterInterface;
use crate::kernel::{RouteSocket, WrittenRoute};
use gatewright_mesh::olsr::message::OlsrNetwork;
use gatewright_mesh::olsr::{
    OlsrCounters, OlsrInput, OlsrNode, OlsrOutput, OlsrRoute, OlsrSettings,
};
use gatewright_packet::LinkIndex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Between two looks at the state of the interfaces.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Between two comparisons of the kernel's routes with those of the protocol.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

/// The abstract socket (unix(7)) that the router of a network namespace holds.
const ONE_ROUTER: &[u8] = b"gatewright-olsr";

/// Packets taken from one interface before the others have their turn.
const PACKETS_AT_ONCE: usize = 64;

/// Octets of a packet at the most: those of a UDP datagram.
const PACKET_MAX: usize = 65_535;

/// Settings of a router on this machine.
#[derive(Clone, Debug)]
pub struct OlsrSetup {
    /// Names of the interfaces; the address of the first one is the main address.
    pub interfaces: Vec<String>,
    /// Networks that this node is a gateway to.
    pub networks: Vec<OlsrNetwork>,
    /// Readiness to forward for others, 0 (never) to 7 (always).
    pub willingness: u8,
    /// Between two HELLOs.
    pub hello_interval: Duration,
    /// Between two TCs, MIDs and HNAs.
    pub topology_interval: Duration,
    /// Whether a link must prove itself before it is used (RFC 3626 §14).
    pub hysteresis: bool,
    /// Seed of the jitter and of the first sequence numbers.
    pub seed: u64,
}

impl OlsrSetup {
    /// The standard's proposed values (RFC 3626 §18) on these interfaces.
    pub fn new(interfaces: Vec<String>, seed: u64) -> Self {
        let OlsrSettings { hello_interval, topology_interval, willingness, .. } =
            OlsrSettings::new(Ipv4Addr::UNSPECIFIED, seed);
        Self {
            interfaces,
            networks: Vec::new(),
            willingness,
            hello_interval,
            topology_interval,
            hysteresis: false,
            seed,
        }
    }
}

/// Why a router cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OlsrRouterError {
    /// Misuse: no interface, or more than a router has.
    #[error("{0} interfaces; a router has 1 to 64")]
    Count(usize),
    /// An interface cannot be opened.
    #[error("interface {name}: {source}")]
    Interface {
        /// The interface.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// An interface has no IPv4 address, which is its name in OLSR.
    #[error("interface {0} has no IPv4 address: give it one first (`ip address add`)")]
    NoAddress(String),
    /// A router runs already: the routes of two would be mixed up.
    #[error("a router of OLSR runs in this network namespace already: give it all interfaces")]
    Second,
    /// The kernel's routes cannot be read or written.
    #[error("routes of the kernel: {0} (writing them needs CAP_NET_ADMIN)")]
    Routes(io::Error),
    /// The sockets cannot be waited for.
    #[error("waiting for packets: {0}")]
    Wait(io::Error),
}

/// A router of OLSR on this machine. Its routes are removed when it is dropped.
#[derive(Debug)]
pub struct OlsrRouter {
    node: OlsrNode,
    interfaces: Vec<RouterInterface>,
    routes: RouteSocket,
    start: Instant,
    look_at: Duration,
    compare_at: Duration,
    restored: u64,
    /// Held as long as this router runs: its name is there once in a network namespace.
    _only: UnixDatagram,
    buffer: Vec<u8>,
    refused: BTreeMap<OlsrNetwork, i32>,
    send_failed: u64,
    left_over: usize,
}

impl OlsrRouter {
    /// Opens sockets and routes in the network namespace of the calling thread, which must be the
    /// one that calls [`Self::step`], too.
    ///
    /// # Errors
    ///
    /// [`OlsrRouterError`] names the interface, or says what is missing.
    pub fn open(setup: &OlsrSetup) -> Result<Self, OlsrRouterError> {
        if !(1..=64).contains(&setup.interfaces.len()) {
            return Err(OlsrRouterError::Count(setup.interfaces.len()));
        }
        let open = |name: &String| match RouterInterface::open(name) {
            Ok(Some(interface)) => Ok(interface),
            Ok(None) => Err(OlsrRouterError::NoAddress(name.clone())),
            Err(source) => Err(OlsrRouterError::Interface { name: name.clone(), source }),
        };
        let interfaces = setup.interfaces.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let main = interfaces.first().map_or(Ipv4Addr::UNSPECIFIED, |first| first.address);
        let only = only_router()?;
        let mut routes = RouteSocket::open().map_err(OlsrRouterError::Routes)?;
        let left_over = routes.remove_all().map_err(OlsrRouterError::Routes)?;
        let node = OlsrNode::new(OlsrSettings {
            hello_interval: setup.hello_interval,
            topology_interval: setup.topology_interval,
            willingness: setup.willingness,
            hysteresis: setup.hysteresis,
            networks: setup.networks.clone(),
            ..OlsrSettings::new(main, setup.seed)
        });
        let mut router = Self {
            node,
            interfaces,
            routes,
            start: Instant::now(),
            look_at: LOOK_EVERY,
            compare_at: COMPARE_EVERY,
            restored: 0,
            _only: only,
            buffer: vec![0; PACKET_MAX],
            refused: BTreeMap::new(),
            send_failed: 0,
            left_over,
        };
        for at in 0..router.interfaces.len() {
            router.tell_state(Duration::ZERO, at);
        }
        Ok(router)
    }

    /// The main address.
    pub const fn main_address(&self) -> Ipv4Addr {
        self.node.main_address()
    }

    /// Symmetric neighbours, by their main addresses.
    pub fn neighbours(&self) -> Vec<Ipv4Addr> {
        self.node.neighbours(self.start.elapsed())
    }

    /// The multipoint relays that this node has chosen.
    pub fn relays(&self) -> Vec<Ipv4Addr> {
        self.node.relays().collect()
    }

    /// The routing table, with the names of interfaces.
    pub fn routes(&self) -> impl Iterator<Item = (OlsrNetwork, OlsrRoute, &str)> {
        self.node.routes().iter().map(|(to, route)| {
            let interface = self.interfaces.get(usize::from(route.link.0));
            (*to, *route, interface.map_or("", |its| its.name.as_str()))
        })
    }

    /// Counters of the protocol since the start.
    pub const fn counters(&self) -> OlsrCounters {
        self.node.counters()
    }

    /// Packets that the system refused to send.
    pub const fn send_failed(&self) -> u64 {
        self.send_failed
    }

    /// Routes that the kernel refuses at present, with its error numbers.
    pub const fn refused(&self) -> &BTreeMap<OlsrNetwork, i32> {
        &self.refused
    }

    /// Routes that an earlier router had left and that were removed at the start.
    pub const fn left_over(&self) -> usize {
        self.left_over
    }

    /// Routes that somebody else had removed from the kernel, and that were set again.
    pub const fn restored(&self) -> u64 {
        self.restored
    }

    /// Waits for packets and timers for `longest` at the most, and processes what there is.
    ///
    /// # Errors
    ///
    /// [`OlsrRouterError::Wait`] if the system does not let it wait.
    pub fn step(&mut self, longest: Duration) -> Result<(), OlsrRouterError> {
        let now = self.start.elapsed();
        let due = self.node.poll_timeout().unwrap_or(self.look_at).min(self.look_at);
        let wait = due.saturating_sub(now).min(longest);
        // A whole millisecond more than is left, so that it does not wake up early and spin.
        let wait = PollTimeout::try_from(wait + Duration::from_micros(999));
        let mut sockets: Vec<PollFd<'_>> = (self.interfaces.iter())
            .map(|its| PollFd::new(its.socket.as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut sockets, wait.unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(OlsrRouterError::Wait(error.into())),
        }
        let ready: Vec<bool> = sockets.iter().map(|socket| socket.any().unwrap_or(true)).collect();
        for (at, _) in ready.into_iter().enumerate().filter(|(_, ready)| *ready) {
            self.receive(at);
        }
        let now = self.start.elapsed();
        if self.look_at <= now {
            self.look_at = now + LOOK_EVERY;
            self.look(now);
        }
        if self.compare_at <= now {
            self.compare_at = now + COMPARE_EVERY;
            self.compare();
        }
        self.node.handle(now, OlsrInput::Tick);
        self.carry_out();
        Ok(())
    }

    fn receive(&mut self, at: usize) {
        let link = link(at);
        for _ in 0..PACKETS_AT_ONCE {
            let Some(interface) = self.interfaces.get(at) else { return };
            // An error is that of an earlier packet, or says that there is none.
            let Ok((len, from)) = interface.socket.recv_from(&mut self.buffer) else { return };
            let IpAddr::V4(from) = from.ip() else { continue };
            let octets = self.buffer.get(..len).unwrap_or_default();
            let now = self.start.elapsed();
            self.node.handle(now, OlsrInput::Received { link, from, octets });
            self.carry_out();
        }
    }

    /// Takes over changes in the state of interfaces.
    fn look(&mut self, now: Duration) {
        for at in 0..self.interfaces.len() {
            let Some(interface) = self.interfaces.get_mut(at) else { continue };
            let up = interface.is_up();
            if up != interface.up {
                interface.up = up;
                self.tell_state(now, at);
            }
        }
    }

    /// Sets routes again that somebody has removed from the kernel. If it cannot be read now, it is
    /// at the next comparison.
    fn compare(&mut self) {
        let Ok(present) = self.routes.destinations() else { return };
        let is_gone = |to: &OlsrNetwork| {
            !present.contains(&(to.address, to.len)) && !self.refused.contains_key(to)
        };
        let gone = self.node.routes().iter().filter(|(to, _)| is_gone(to));
        let gone: Vec<_> = gone.map(|(to, route)| (*to, *route)).collect();
        for (to, route) in gone {
            self.restored += 1;
            self.set(to, route);
        }
    }

    fn tell_state(&mut self, now: Duration, at: usize) {
        let Some(interface) = self.interfaces.get(at) else { return };
        let (link, address) = (link(at), interface.address);
        let input = if interface.up {
            OlsrInput::InterfaceUp { link, address }
        } else {
            OlsrInput::InterfaceDown { link }
        };
        self.node.handle(now, input);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.node.poll_output() {
            match output {
                OlsrOutput::Send { link, octets } => {
                    let interface = self.interfaces.get(usize::from(link.0));
                    if interface.is_some_and(|its| its.broadcast(&octets).is_err()) {
                        self.send_failed += 1;
                    }
                }
                OlsrOutput::RouteSet(to, route) => self.set(to, route),
                OlsrOutput::RouteGone(to) => {
                    // Its end with its interface is the kernel's own doing, and no error.
                    let removed = self.routes.remove(to.address, to.len);
                    self.note(to, removed);
                }
            }
        }
    }

    fn set(&mut self, to: OlsrNetwork, route: OlsrRoute) {
        let Some(interface) = self.interfaces.get(usize::from(route.link.0)) else { return };
        let neighbour = to == OlsrNetwork::host(route.next_hop);
        let written = WrittenRoute {
            to: to.address,
            len: to.len,
            gateway: (!neighbour).then_some(route.next_hop),
            interface: interface.index,
        };
        let set = self.routes.set(&written);
        self.note(to, set);
    }

    fn note(&mut self, to: OlsrNetwork, result: io::Result<()>) {
        match result {
            Ok(()) => {
                self.refused.remove(&to);
            }
            Err(error) => {
                self.refused.insert(to, error.raw_os_error().unwrap_or(0));
            }
        }
    }
}

impl Drop for OlsrRouter {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next start.
        let _left = self.routes.remove_all();
    }
}

/// What says that this is the only router of the network namespace.
fn only_router() -> Result<UnixDatagram, OlsrRouterError> {
    let bound = SocketAddr::from_abstract_name(ONE_ROUTER);
    bound.and_then(|name| UnixDatagram::bind_addr(&name)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => OlsrRouterError::Second,
        _ => OlsrRouterError::Wait(error),
    })
}

fn link(at: usize) -> LinkIndex {
    LinkIndex(u16::try_from(at).unwrap_or(u16::MAX))
}
