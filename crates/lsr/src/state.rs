//! The state of a node as one document: links, neighbours, paths and counters.

use crate::bridge::StationPort;
use crate::forwarding::{Forwarding, InstalledPath, mac_of, port_number};
use crate::port::Port;
use crate::tunnel::RunningTunnel;
use gatewright_mesh::{
    Adjacency, BridgeCounters, CLASSES, MeshCounters, MeshNode, NodeId, PathClass,
};
use gatewright_xdp::{LabelReason, PacketCount};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// The state of a node.
#[derive(Clone, Debug, Serialize)]
pub struct MeshState {
    /// The node: the link-layer address of its mesh interface.
    pub node: String,
    /// The mesh interface.
    pub interface: String,
    /// Whether an earlier process had left the interface, and this one took it over.
    pub taken_over: bool,
    /// The profile: `classic` or `default`.
    pub profile: &'static str,
    /// How routes are found: `on-demand` or `olsr`.
    pub routing: &'static str,
    /// Who may join: `open`, everybody on a link; `psk`, nodes with the mesh's key; `pki`,
    /// nodes whose own keys are admitted.
    pub trust: &'static str,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Interval of LIVENESS in microseconds: at least twice the lateness of this node's timers.
    pub liveness_interval_us: u64,
    /// Lateness in microseconds that 99.9 % of the timers of the last minute did not exceed.
    pub timer_lateness_us: u64,
    /// The links that it has joined.
    pub links: Vec<MeshLinkState>,
    /// Those of them that are tunnels to other sites.
    pub tunnels: Vec<MeshTunnelState>,
    /// The bridge ports, whose stations take part.
    pub ports: Vec<MeshPortState>,
    /// The nodes at the other ends of these links.
    pub neighbours: Vec<MeshNeighbour>,
    /// The nodes to which there are paths.
    pub destinations: Vec<MeshDestination>,
    /// Installed labels.
    pub labels: usize,
    /// Bypasses that stand around links of paths that lead through this node, each direction for itself.
    pub bypasses: usize,
    /// TCP connections of servers here: the paths to their clients are kept.
    pub tcp_connections: usize,
    /// Counters of the protocol, the thread and the label table, by name.
    pub counters: Vec<(&'static str, u64)>,
}

/// A link of a node.
#[derive(Clone, Debug, Serialize)]
pub struct MeshLinkState {
    /// Name of its interface.
    pub link: String,
    /// `up`, `down`, `cut`, `absent`, or `refused` if its program or sockets could not be opened.
    pub state: &'static str,
    /// Its link-layer address.
    pub mac: Option<String>,
    /// Its MTU.
    pub mtu: Option<usize>,
    /// Frames by outcome at the link's program, without zeros.
    pub frames: Vec<(&'static str, u64)>,
}

/// A bridge port of a node.
#[derive(Clone, Debug, Serialize)]
pub struct MeshPortState {
    /// Name of its interface.
    pub port: String,
    /// `forwards`, `stands by`, `down`, `absent`, or `refused` if its program or sockets could not be
    /// opened.
    pub state: &'static str,
    /// Its link-layer address.
    pub mac: Option<String>,
    /// Link-layer addresses of its stations.
    pub stations: Vec<String>,
    /// Frames by outcome at the port's program, without zeros.
    pub frames: Vec<(&'static str, u64)>,
}

/// A tunnel of a node.
#[derive(Clone, Debug, Serialize)]
pub struct MeshTunnelState {
    /// Name of its interface.
    pub link: String,
    /// Own address and port.
    pub local: SocketAddr,
    /// Those of the node at the other end.
    pub remote: SocketAddr,
    /// Seconds since that node was heard; none if it never was.
    pub heard_s: Option<u64>,
}

/// A neighbour over one link.
#[derive(Clone, Debug, Serialize)]
pub struct MeshNeighbour {
    /// The neighbour.
    pub node: String,
    /// The link.
    pub link: String,
    /// Whether it is heard.
    pub up: bool,
    /// Seconds since that changed.
    pub since_s: u64,
}

/// A destination with its paths.
#[derive(Clone, Debug, Serialize)]
pub struct MeshDestination {
    /// The node.
    pub node: String,
    /// Its paths: of each class a primary and perhaps a backup. Classes that use the same paths are
    /// together.
    pub paths: Vec<MeshPathState>,
}

/// A path to a destination.
#[derive(Clone, Debug, Serialize)]
pub struct MeshPathState {
    /// The classes of traffic: 0 control, 1 bounded delay, 2 bulk, 3 background.
    pub classes: Vec<u8>,
    /// `primary` or `backup`.
    pub role: &'static str,
    /// Whether it carries the packets now.
    pub carries: bool,
    /// The path's identity.
    pub path: String,
    /// The link of the first hop.
    pub link: String,
    /// The neighbour of the first hop.
    pub next: String,
    /// The label that it expects.
    pub label: u32,
    /// The relays between this node and the destination, in order.
    pub relays: Vec<String>,
    /// The node that the path leads to, if the destination is a station behind it.
    pub behind: Option<String>,
    /// Largest frame in octets; 0 without limit.
    pub frame_limit: u16,
    /// Whether a relay leads it around a lost link, until another path is found.
    pub bypassed: bool,
}

/// Answer of a node of a path to an echo request.
#[derive(Clone, Debug, Serialize)]
pub struct MeshEcho {
    /// The node.
    pub node: String,
    /// The label with which the request arrived there.
    pub label: u32,
    /// Links between this node and that one.
    pub hops: u8,
    /// Round trip time in microseconds.
    pub rtt_us: u64,
}

/// Whether a neighbour is heard, and since when.
pub(crate) type Neighbours = BTreeMap<Adjacency, (bool, Duration)>;

/// Neighbours that are shown at the most: all that are heard, and as many that were.
const NEIGHBOURS_SHOWN_MAX: usize = 1_024;

/// Notes that a neighbour is heard, or is not any more; those that were lost first are forgotten.
pub(crate) fn note(known: &mut Neighbours, adjacency: Adjacency, up: bool, now: Duration) {
    if known.len() >= NEIGHBOURS_SHOWN_MAX && !known.contains_key(&adjacency) {
        let lost = known.iter().filter(|(_, (up, _))| !up);
        let first = lost.min_by_key(|&(_, &(_, since))| since).map(|(&first, _)| first);
        let Some(first) = first else { return };
        known.remove(&first);
    }
    known.insert(adjacency, (up, now));
}

/// A link-layer address as text.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// The link-layer address that a text says; `None` if it says none.
pub(crate) fn mac_of_text(text: &str) -> Option<[u8; 6]> {
    let mut octets = text.split(':').map(|octet| match octet.len() {
        1 | 2 => u8::from_str_radix(octet, 16).ok(),
        _ => None,
    });
    let mut mac = [0; 6];
    for octet in &mut mac {
        *octet = octets.next()??;
    }
    octets.next().is_none().then_some(mac)
}

/// A node as text: the address of its mesh interface.
pub(crate) fn node_text(node: NodeId) -> String {
    mac_of(node).map_or_else(|| node.to_string(), mac_text)
}

/// A link's name.
pub(crate) fn link_name(ports: &[Port], adjacency: Adjacency) -> String {
    ports.get(adjacency.link.index()).map(|port| port.name.clone()).unwrap_or_default()
}

/// The links with their counters.
pub(crate) fn links(ports: &[Port], forwarding: &Forwarding) -> Vec<MeshLinkState> {
    let link = |port: &Port| MeshLinkState {
        link: port.name.clone(),
        state: port.word(),
        mac: port.properties.map(|found| mac_text(found.mac)),
        mtu: port.properties.map(|found| found.mtu),
        frames: frames(forwarding, port.number),
    };
    ports.iter().map(link).collect()
}

/// The bridge ports with their stations.
pub(crate) fn ports(
    ports: &[StationPort],
    node: &MeshNode,
    forwarding: &Forwarding,
) -> Vec<MeshPortState> {
    let one = |port: &StationPort| MeshPortState {
        port: port.name.clone(),
        state: port.word(),
        mac: port.properties.map(|found| mac_text(found.mac)),
        stations: (node.stations().filter(|(_, at)| *at == port.port))
            .map(|(station, _)| node_text(station))
            .collect(),
        frames: frames(forwarding, port_number(port.port)),
    };
    ports.iter().map(one).collect()
}

/// The tunnels with when their peers were heard.
pub(crate) fn tunnels(running: &[RunningTunnel]) -> Vec<MeshTunnelState> {
    let one = |running: &RunningTunnel| MeshTunnelState {
        link: running.tunnel.interface.clone(),
        local: running.tunnel.local,
        remote: running.tunnel.remote,
        heard_s: running.heard_ago().map(|ago| ago.as_secs()),
    };
    running.iter().map(one).collect()
}

/// Frames at a program by outcome, without zeros.
pub(crate) fn frames(forwarding: &Forwarding, number: u32) -> Vec<(&'static str, u64)> {
    let counts = forwarding.switching.link_counts(number).unwrap_or_default();
    let named = |(reason, count): (LabelReason, PacketCount)| (reason.name(), count.packets);
    counts.into_iter().map(named).filter(|(_, packets)| *packets > 0).collect()
}

/// The neighbours.
pub(crate) fn neighbours(known: &Neighbours, ports: &[Port], now: Duration) -> Vec<MeshNeighbour> {
    let one = |(&adjacency, &(up, since)): (&Adjacency, &(bool, Duration))| MeshNeighbour {
        node: node_text(adjacency.node),
        link: link_name(ports, adjacency),
        up,
        since_s: now.saturating_sub(since).as_secs(),
    };
    known.iter().map(one).collect()
}

/// The destinations with their paths.
pub(crate) fn destinations(
    forwarding: &Forwarding,
    node: &MeshNode,
    ports: &[Port],
) -> Vec<MeshDestination> {
    let mut all: BTreeMap<NodeId, Vec<MeshPathState>> = BTreeMap::new();
    for (&(destination, class), paths) in &forwarding.paths {
        let carrying = forwarding.all_carrying((destination, class));
        let known = all.entry(destination).or_default();
        for (role, path) in [("primary", paths.primary), ("backup", paths.backup)] {
            let Some(path) = path else { continue };
            let carries = carrying.contains(&Some(path));
            let text = path.path.to_string();
            let same = |other: &&mut MeshPathState| {
                other.path == text && other.role == role && other.carries == carries
            };
            match known.iter_mut().find(same) {
                Some(other) if other.classes.len() < CLASSES => other.classes.push(class.number()),
                _ => known.push(path_state((class, role, carries), path, (node, ports))),
            }
        }
    }
    let named = |(node, paths)| MeshDestination { node: node_text(node), paths };
    all.into_iter().map(named).collect()
}

fn path_state(
    (class, role, carries): (PathClass, &'static str, bool),
    installed: InstalledPath,
    (node, ports): (&MeshNode, &[Port]),
) -> MeshPathState {
    let InstalledPath { path, hop, frame_limit } = installed;
    let relays = node.relays(path).unwrap_or_default().iter().map(|&relay| node_text(relay));
    let mut relays: Vec<String> = relays.collect();
    // A path knows its relays from its origin's side.
    if path.origin != node.id() {
        relays.reverse();
    }
    MeshPathState {
        classes: vec![class.number()],
        role,
        carries,
        path: path.to_string(),
        link: link_name(ports, hop.adjacency),
        next: node_text(hop.adjacency.node),
        label: hop.label.0,
        relays,
        behind: (node.station_of(path).filter(|_| path.origin == node.id()))
            .map(|_| node_text(path.target)),
        frame_limit,
        bypassed: node.goes_around_a_link(path),
    }
}

/// The protocol's counters by name.
pub(crate) fn protocol_counters(of: &MeshCounters) -> Vec<(&'static str, u64)> {
    vec![
        ("sent", of.sent),
        ("received", of.received),
        ("malformed", of.malformed),
        ("other_profile", of.other_profile),
        ("own", of.own),
        ("forged", of.forged),
        ("replayed", of.replayed),
        ("unknown_index", of.unknown_index),
        ("challenges", of.challenges),
        ("unsigned", of.unsigned),
        ("signatures_limited", of.signatures_limited),
        ("requests_relayed", of.requests_relayed),
        ("requests_repeated", of.requests_repeated),
        ("requests_limited", of.requests_limited),
        ("requests_unrouted", of.requests_unrouted),
        ("olsr_sent", of.olsr_sent),
        ("olsr_ignored", of.olsr_ignored),
        ("searches", of.searches),
        ("unreachable", of.unreachable),
        ("paths_found", of.paths_found),
        ("paths_lost", of.paths_lost),
        ("buffer_full", of.buffer_full),
        ("waiting_dropped", of.waiting_dropped),
        ("table_full", of.table_full),
        ("neighbours_evicted", of.neighbours_evicted),
        ("neighbours_refused", of.neighbours_refused),
        ("repeated", of.repeated),
        ("given_up", of.given_up),
        ("labels_unknown", of.labels_unknown),
        ("links_back", of.links_back),
        ("links_back_followed", of.links_back_followed),
        ("links_back_ignored", of.links_back_ignored),
        ("links_back_limited", of.links_back_limited),
        ("unknown_limited", of.unknown_limited),
        ("bypasses_made", of.bypasses_made),
        ("bypasses_refused", of.bypasses_refused),
        ("bypasses_given", of.bypasses_given),
        ("bypasses_denied", of.bypasses_denied),
        ("paths_bypassed", of.paths_bypassed),
        ("echoes", of.echoes),
        ("echoes_unanswered", of.echoes_unanswered),
        ("broadcasts", of.broadcasts),
        ("broadcasts_too_long", of.broadcasts_too_long),
        ("broadcasts_incomplete", of.broadcasts_incomplete),
        ("broadcasts_relayed", of.broadcasts_relayed),
        ("broadcasts_resent", of.broadcasts_resent),
        ("broadcasts_not_resent", of.broadcasts_not_resent),
        ("broadcasts_repeated", of.broadcasts_repeated),
    ]
}

/// The counters of the bridge ports by name.
pub(crate) fn bridge_counters(of: &BridgeCounters) -> Vec<(&'static str, u64)> {
    vec![
        ("port_standby", of.standby),
        ("port_looped", of.looped),
        ("port_unknown", of.unknown),
        ("port_takeovers", of.takeovers),
        ("stations_learnt", of.learnt),
        ("stations_full", of.full),
        ("stations_moved", of.moved),
        ("stations_aged", of.aged),
    ]
}
