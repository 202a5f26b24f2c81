//! The test bed: sender, relays in line and receiver, in network namespaces or all on loopback.

use crate::line::DelayLine;
use crate::processor::KeptAwake;
use crate::relay::Seat;
use crate::routing::{LabelPaths, RouteFinder};
use gatewright_config::{Experiment, RelayKind};
use gatewright_testbed::{Namespace, TestInterface, TestbedError, Veth, free_port};
use gatewright_xdp::Stamper;
use gatewright_xdp::program::Hook;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// The port of relays and of the receiver.
const PORT: u16 = 9000;

/// Sender, relays and receiver.
#[derive(Debug)]
pub(crate) enum Bed {
    /// Each a host of its own.
    Hosts(Box<Hosts>),
    /// All on this machine's loopback: what can be done without privileges.
    Loopback {
        /// The relay's address, and the receiver's.
        ports: [u16; 2],
    },
}

/// Hosts in network namespaces, one cable between each and the next.
#[derive(Debug)]
pub(crate) struct Hosts {
    nodes: Vec<Namespace>,
    /// Of each cable the end towards the sender, and that towards the receiver.
    cables: Vec<[TestInterface; 2]>,
    lines: Vec<DelayLine>,
    /// Routers of OLSR, one in each host, while the kernels route.
    routers: Vec<RouteFinder>,
    /// Nodes of the mesh, while the kernels switch labels.
    paths: Option<LabelPaths>,
    /// Whether the ends take what a driver redirects to them.
    takes_redirected: bool,
}

/// Stamps at a node: where packets come in, and where they leave.
#[derive(Debug)]
pub(crate) struct NodeStamps {
    pub(crate) ingress: Stamper,
    pub(crate) egress: Stamper,
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}

impl Bed {
    /// The bed of an experiment; on loopback if `has_namespaces` is false.
    pub(crate) fn build(experiment: &Experiment, has_namespaces: bool) -> Result<Self, String> {
        if has_namespaces {
            return Hosts::build(experiment).map(|hosts| Self::Hosts(Box::new(hosts)));
        }
        Ok(Self::Loopback { ports: [free_port(), free_port()] })
    }

    /// Where the sender's packets go.
    pub(crate) fn target(&self, kind: RelayKind) -> SocketAddrV4 {
        match self {
            Self::Loopback { ports: [relay, _] } => SocketAddrV4::new(Ipv4Addr::LOCALHOST, *relay),
            Self::Hosts(_) if is_router(kind) => self.receiver(kind),
            Self::Hosts(_) => SocketAddrV4::new(address(0, 2), PORT),
        }
    }

    /// Where the receiver listens.
    pub(crate) fn receiver(&self, kind: RelayKind) -> SocketAddrV4 {
        match self {
            Self::Loopback { ports: [_, receiver] } => {
                SocketAddrV4::new(Ipv4Addr::LOCALHOST, *receiver)
            }
            Self::Hosts(hosts) if kind == RelayKind::MeshLabel => {
                SocketAddrV4::new(LabelPaths::address(hosts.nodes.len() - 1), PORT)
            }
            Self::Hosts(hosts) => SocketAddrV4::new(address(hosts.cables.len() - 1, 2), PORT),
        }
    }

    /// Does `work` where the sender is, or the receiver.
    pub(crate) fn at_end<T: Send>(
        &self,
        end: BedEnd,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, String> {
        match (self, end) {
            (Self::Loopback { .. }, _) => Ok(work()),
            (Self::Hosts(hosts), BedEnd::Sender) => hosts.host(0)?.run(work).map_err(text),
            (Self::Hosts(hosts), BedEnd::Receiver) => {
                hosts.host(hosts.nodes.len() - 1)?.run(work).map_err(text)
            }
        }
    }

    /// The seats of the relays, in line.
    pub(crate) fn seats(&self, processor: Option<usize>) -> Result<Vec<Seat>, String> {
        let hosts = match self {
            Self::Hosts(hosts) => hosts,
            Self::Loopback { ports } => {
                let [local, to] = ports.map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
                let (interfaces, addresses) = Default::default();
                let addresses: [Option<Ipv4Addr>; 2] = addresses;
                let addresses = addresses.map(|_| Ipv4Addr::LOCALHOST);
                let node = None;
                let from = Ipv4Addr::LOCALHOST;
                return Ok(vec![Seat { node, interfaces, addresses, from, local, to, processor }]);
            }
        };
        let seat = |(at, pair): (usize, &[[TestInterface; 2]])| {
            let [[_, inward], [outward, _]] = pair else { return Err("no cable".to_owned()) };
            Ok(Seat {
                node: Some(hosts.host(at + 1)?.clone()),
                interfaces: [inward, outward].map(|end| end.name().to_owned()),
                addresses: [address(at, 2), address(at + 1, 1)],
                from: address(at, 1),
                local: SocketAddrV4::new(address(at, 2), PORT),
                to: SocketAddrV4::new(address(at + 1, 2), PORT),
                processor,
            })
        };
        hosts.cables.windows(2).enumerate().map(seat).collect()
    }

    /// Has hosts do what a relay needs of them, and no more: kernels of relays route by routes that
    /// OLSR has found, or all switch labels, or the ends take what a driver redirects to them.
    pub(crate) fn prepare(&mut self, kind: RelayKind) -> Result<(), String> {
        let Self::Hosts(hosts) = self else { return Ok(()) };
        let routes = kind == RelayKind::Kernel;
        let relays = hosts.nodes.iter().skip(1).take(hosts.nodes.len().saturating_sub(2));
        for relay in relays {
            let on = if routes { "1" } else { "0" };
            relay.sysctl("net.ipv4.ip_forward", on).map_err(text)?;
        }
        hosts.routers.clear();
        hosts.paths = None;
        hosts.take_redirected(kind == RelayKind::DriverXdp)?;
        match kind {
            RelayKind::Kernel => hosts.find_routes(),
            RelayKind::MeshLabel => {
                hosts.paths = Some(LabelPaths::start(&hosts.nodes, &hosts.interfaces())?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Attaches stamps where packets come into the node and leave it: at the node itself, or at the
    /// far ends of its cables where the relay takes frames before the hooks see them.
    pub(crate) fn stamp(&self, kind: RelayKind) -> Result<Option<NodeStamps>, String> {
        let Self::Hosts(hosts) = self else { return Ok(None) };
        let far = is_ours(kind);
        let (Some([near_out, near_in]), Some([far_out, far_in])) =
            (hosts.cables.first(), hosts.cables.last())
        else {
            return Err("no cable".to_owned());
        };
        let (ingress, egress) = if far {
            ((near_out, Hook::Egress), (far_in, Hook::Ingress))
        } else {
            ((near_in, Hook::Ingress), (far_out, Hook::Egress))
        };
        let attach = |(end, hook): (&TestInterface, Hook)| {
            let index = end.index().map_err(text)?;
            let attached = end.namespace().run(|| Stamper::attach(index, hook)).map_err(text)?;
            attached.map_err(|error| error.to_string())
        };
        Ok(Some(NodeStamps { ingress: attach(ingress)?, egress: attach(egress)? }))
    }

    /// Keeps processors from sleeping, until what this gives is dropped.
    pub(crate) fn keep_awake(&self, processors: &[usize]) -> Result<KeptAwake, String> {
        let Self::Hosts(hosts) = self else {
            return Err("it needs network namespaces (root)".to_owned());
        };
        let mut each = processors.to_vec();
        each.dedup();
        KeptAwake::start(hosts.host(0)?, &each)
    }

    /// How late, at the most, a frame left a delay line.
    pub(crate) fn line_late_max(&self) -> Option<Duration> {
        let Self::Hosts(hosts) = self else { return None };
        hosts.lines.iter().map(DelayLine::late_max).max()
    }
}

/// An end of the path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BedEnd {
    Sender,
    Receiver,
}

/// Whether the sender addresses the receiver itself.
fn is_router(kind: RelayKind) -> bool {
    matches!(
        kind,
        RelayKind::Kernel
            | RelayKind::GraphPacketSocket
            | RelayKind::GraphPacketSocketHandler
            | RelayKind::GraphXdp
            | RelayKind::GraphXdpHandler
            | RelayKind::DriverXdp
            | RelayKind::MeshLabel
    )
}

/// Whether the relay is our stack or its driver's program, which take frames before the kernel's
/// hooks.
pub(crate) fn is_ours(kind: RelayKind) -> bool {
    matches!(
        kind,
        RelayKind::GraphPacketSocket
            | RelayKind::GraphPacketSocketHandler
            | RelayKind::GraphXdp
            | RelayKind::GraphXdpHandler
            | RelayKind::DriverXdp
            | RelayKind::GatewayXdp
            | RelayKind::InterworkXdp
    )
}

/// The address of an end of a cable: 1 towards the sender, 2 towards the receiver.
fn address(cable: usize, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 74, u8::try_from(cable + 1).unwrap_or(u8::MAX), end)
}

impl Hosts {
    /// Starts a router in each host, and waits until both ends have a route to each other.
    ///
    /// A host's route is more specific than the static ones that the other relays need.
    fn find_routes(&mut self) -> Result<(), String> {
        let last = self.nodes.len() - 1;
        for (host, names) in self.nodes.iter().zip(self.interfaces()) {
            let seed = u64::try_from(self.routers.len()).unwrap_or(0);
            self.routers.push(RouteFinder::start(host, names, seed));
        }
        for (end, to) in [(0, address(self.cables.len() - 1, 2)), (last, address(0, 1))] {
            let host = self.host(end)?;
            if !crate::routing::wait(host, to) {
                let why = self.routers.iter_mut().find_map(RouteFinder::error);
                return Err(format!("OLSR found no route to {to}: {}", why.unwrap_or_default()));
            }
        }
        Ok(())
    }

    /// The names of each host's interfaces.
    fn interfaces(&self) -> Vec<Vec<String>> {
        let last = self.nodes.len().saturating_sub(1);
        let of_host = |at: usize| {
            let inward = at.checked_sub(1).map(|cable| format!("i{cable}"));
            inward.into_iter().chain((at < last).then(|| format!("o{at}"))).collect()
        };
        (0..self.nodes.len()).map(of_host).collect()
    }

    /// Has the sender complete its checksums, as on a cable between machines, and the receiver take
    /// frames that a driver redirects to it, which a virtual cable does where GRO is on; or neither.
    fn take_redirected(&mut self, on: bool) -> Result<(), String> {
        if std::mem::replace(&mut self.takes_redirected, on) == on {
            return Ok(());
        }
        let (Some([first, _]), Some([_, last])) = (self.cables.first(), self.cables.last()) else {
            return Err("no cable".to_owned());
        };
        let [gro, tx] = if on { ["on", "off"] } else { ["off", "on"] };
        for (end, feature, value) in [(last, "gro", gro), (first, "gro", gro), (first, "tx", tx)] {
            let set = end.namespace().command("ethtool").args(["-K", end.name(), feature, value]);
            set.run().map_err(text)?;
        }
        Ok(())
    }

    fn host(&self, at: usize) -> Result<&Namespace, String> {
        self.nodes.get(at).ok_or_else(|| "no such host".to_owned())
    }

    fn build(experiment: &Experiment) -> Result<Self, String> {
        let count = usize::from(experiment.node.relays) + 2;
        let hosts: Result<Vec<_>, _> = (0..count).map(|_| Namespace::new().map_err(text)).collect();
        let mut bed = Self {
            nodes: hosts?,
            cables: Vec::new(),
            lines: Vec::new(),
            routers: Vec::new(),
            paths: None,
            takes_redirected: false,
        };
        for at in 0..count - 1 {
            bed.lay_cable(at, experiment)?;
        }
        for (at, host) in bed.nodes.iter().enumerate() {
            // Towards the receiver by the next host, towards the sender by the one before.
            for net in 0..count - 1 {
                let to = format!("10.74.{}.0/24", net + 1);
                if net > at {
                    host.add_route(&to, &address(at, 2).to_string()).map_err(text)?;
                } else if net + 1 < at {
                    host.add_route(&to, &address(at - 1, 1).to_string()).map_err(text)?;
                }
            }
        }
        Ok(bed)
    }

    /// Lays the cable behind host `at`, through a delay line if the links have a shape.
    fn lay_cable(&mut self, at: usize, experiment: &Experiment) -> Result<(), String> {
        let (left, right) = (self.host(at)?.clone(), self.host(at + 1)?.clone());
        let (out, inward) = (format!("o{at}"), format!("i{at}"));
        let ends = if let Some(shape) = experiment.link {
            let seed = experiment.seed.wrapping_add(u64::try_from(at).unwrap_or(0) * 2);
            let (line, ends) = DelayLine::lay((&left, &out), (&right, &inward), shape, seed)?;
            self.lines.push(line);
            ends
        } else {
            let cable = Veth::pair(&left, &out, &right, &inward).map_err(text)?;
            [cable.a, cable.b]
        };
        for (end, number) in ends.iter().zip([1, 2]) {
            end.disable_ipv6().map_err(text)?;
            end.add_address(&format!("{}/24", address(at, number))).map_err(text)?;
            end.up().map_err(text)?;
        }
        self.cables.push(ends);
        Ok(())
    }
}
