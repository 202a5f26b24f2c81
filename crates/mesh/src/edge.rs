//! What a node is given and what it gives: settings, inputs, outputs, events, counters.

use crate::bridge::BridgePort;
use crate::identity::{NodeId, PathId, Reason};
use crate::message::Profile;
use crate::relay_delay::RelayDelay;
use crate::trust::MeshTrust;
use core::time::Duration;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_wire::mpls::Label;

/// Classes of traffic: control, bounded delay, bulk, background.
pub const CLASSES: usize = 4;

/// Class of traffic: 0 control, 1 bounded delay, 2 bulk, 3 background.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PathClass(u8);

impl PathClass {
    /// Control traffic, by the cheapest path.
    pub const CONTROL: Self = Self(0);
    /// Traffic that needs a short delay, by the path with the shortest.
    pub const BOUNDED_DELAY: Self = Self(1);
    /// Bulk traffic, by the cheapest path.
    pub const BULK: Self = Self(2);
    /// Background traffic, by a path that bulk traffic does not use, if there is one.
    pub const BACKGROUND: Self = Self(3);

    /// All classes.
    pub const ALL: [Self; CLASSES] =
        [Self::CONTROL, Self::BOUNDED_DELAY, Self::BULK, Self::BACKGROUND];

    /// The class with a number; numbers without a class are bulk.
    pub const fn of(number: u8) -> Self {
        if number < 4 { Self(number) } else { Self::BULK }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// How the nodes of a mesh find routes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MeshRouting {
    /// Discovery on demand: a request is flooded.
    #[default]
    OnDemand,
    /// OLSR (RFC 3626): nodes tell each other of their links, and a request follows the route.
    Olsr,
}

/// Settings of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeshSettings {
    /// The node's identity.
    pub id: NodeId,
    /// The node's start: another number each time.
    pub epoch: u32,
    /// The profile of the mesh.
    pub profile: Profile,
    /// How routes are found.
    pub routing: MeshRouting,
    /// Seed of labels, numbers and jitter.
    pub seed: u64,
    /// Interval of I'M ALIVE.
    pub alive_interval: Duration,
    /// Intervals without a message after which a neighbour is lost.
    pub alive_missed_max: u32,
    /// Interval of LIVENESS on links that carry paths, RFC 5880's Desired Min TX Interval; longer
    /// while this node's timers are late.
    pub liveness_interval: Duration,
    /// RFC 5880's Detect Mult.
    pub liveness_multiplier: u8,
    /// Time without traffic after which the paths to a destination are removed.
    pub path_idle: Duration,
    /// Interval of searches for better paths; it doubles up to eight times this.
    pub optimise_interval: Duration,
    /// The delay model of this node until one is measured.
    pub relay_delay: RelayDelay,
    /// Whether only elected relays (E-CDS) pass on broadcasts.
    pub broadcast_relays: bool,
    /// Whether flows of bulk traffic are spread over two paths that cost the same.
    pub spreads: bool,
    /// Who may take part.
    pub trust: MeshTrust,
}

impl MeshSettings {
    /// The settings of a profile.
    pub const fn new(id: NodeId, epoch: u32, profile: Profile) -> Self {
        Self {
            id,
            epoch,
            profile,
            routing: MeshRouting::OnDemand,
            seed: id.0 ^ (epoch as u64) << 32,
            // The paper's two: I'M ALIVE each 2 s, three missed.
            alive_interval: Duration::from_secs(2),
            alive_missed_max: 3,
            liveness_interval: Duration::from_millis(50),
            liveness_multiplier: 3,
            path_idle: Duration::from_mins(1),
            optimise_interval: Duration::from_secs(10),
            relay_delay: RelayDelay::unmeasured(50),
            broadcast_relays: matches!(profile, Profile::Default),
            spreads: matches!(profile, Profile::Default),
            trust: MeshTrust::Open,
        }
    }
}

/// Properties of a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinkProperties {
    /// Cost of a hop without loss; a wired link is cheaper than a radio.
    pub cost: u16,
    /// Delay, in microseconds.
    pub delay_us: u16,
    /// Largest frame in octets; 0 if there is no limit.
    pub frame_limit: u16,
    /// This node's link-layer address on it.
    pub address: LinkAddress,
}

impl Default for LinkProperties {
    fn default() -> Self {
        Self { cost: 10, delay_us: 100, frame_limit: 1_500, address: LinkAddress::NONE }
    }
}

/// A neighbour over one link.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Adjacency {
    /// The link.
    pub link: LinkIndex,
    /// The neighbour.
    pub node: NodeId,
}

/// Next hop of a labelled packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LabelledHop {
    /// The neighbour.
    pub adjacency: Adjacency,
    /// Its link-layer address.
    pub address: LinkAddress,
    /// The label that it expects.
    pub label: Label,
}

/// What the data path does with a label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LabelAction {
    /// Replaces it and sends the packet on.
    Swap(LabelledHop),
    /// Removes it: the packet is for this node.
    Pop,
    /// Removes it: the packet is for a station at a bridge port.
    Station {
        /// The port.
        port: BridgePort,
        /// The station.
        station: NodeId,
    },
}

/// Role of a path to a destination.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PathRole {
    /// It carries the packets.
    Primary,
    /// It carries them as soon as the primary's next hop is down.
    Backup,
}

/// An echo request of this node, as its user counts them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EchoToken(pub u32);

/// Outcome of an echo request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EchoOutcome {
    /// A node of the path has answered.
    Answered {
        /// The node.
        node: NodeId,
        /// The label with which the request arrived there.
        label: Label,
        /// Links that the request has passed.
        hops: u8,
        /// Time from the request to the answer.
        rtt: Duration,
    },
    /// Nobody has answered within a second.
    Silent,
    /// No path to the destination was found.
    Unreachable,
    /// Too many requests of this node wait for their answers.
    Refused,
}

/// An input of a node.
#[derive(Clone, Copy, Debug)]
pub enum MeshInput<'a> {
    /// The time that [`MeshNode::poll_timeout`](crate::MeshNode::poll_timeout) gave has come.
    Tick,
    /// A link is there.
    LinkUp {
        /// The link.
        link: LinkIndex,
        /// Its properties.
        properties: LinkProperties,
    },
    /// A link has lost its carrier, or is gone.
    LinkDown {
        /// The link.
        link: LinkIndex,
    },
    /// A control message has arrived.
    Received {
        /// The link.
        link: LinkIndex,
        /// Link-layer address of the sender.
        from: LinkAddress,
        /// The message, from its common header on.
        octets: &'a [u8],
    },
    /// A packet has arrived with a label that no entry has.
    UnknownLabel {
        /// The link.
        link: LinkIndex,
        /// Link-layer address of the sender.
        from: LinkAddress,
        /// The label.
        label: Label,
    },
    /// The data path has no room for a label that it was to install.
    LabelRefused {
        /// The label.
        label: Label,
    },
    /// A packet for a destination without an installed path.
    Packet {
        /// The destination.
        destination: NodeId,
        /// Its class.
        class: PathClass,
        /// The packet.
        packet: &'a [u8],
    },
    /// A packet for all nodes.
    Broadcast {
        /// The bridge port whose station has sent it; none for this node's own.
        from: Option<BridgePort>,
        /// The packet.
        packet: &'a [u8],
    },
    /// A bridge port is there.
    PortUp {
        /// The port.
        port: BridgePort,
        /// Its link-layer address.
        address: LinkAddress,
    },
    /// A bridge port has lost its carrier, or is gone.
    PortDown {
        /// The port.
        port: BridgePort,
    },
    /// A control message has arrived at a bridge port, to its address or to the group.
    PortHello {
        /// The port.
        port: BridgePort,
        /// Link-layer address of the sender.
        from: LinkAddress,
        /// The message, from its common header on.
        octets: &'a [u8],
    },
    /// A message in the associated channel of a path has arrived with a label of this node: the path
    /// ends here, or the label's TTL does.
    Channel {
        /// The label.
        label: Label,
        /// Its TTL.
        ttl: u8,
        /// The message, after the associated channel header.
        octets: &'a [u8],
    },
    /// An echo request is to be sent over a path to a destination, which is searched first if there
    /// is none.
    Echo {
        /// The request as [`MeshOutput::Echoed`] will name it.
        token: EchoToken,
        /// The destination.
        destination: NodeId,
        /// The class whose path is taken.
        class: PathClass,
        /// TTL of the label: the number of links to the relay that is to answer.
        ttl: u8,
    },
    /// Packets received by a label since the last report.
    Counters {
        /// The label.
        label: Label,
        /// The packets, probes included.
        packets: u64,
        /// The octets without those of probes.
        octets: u64,
    },
    /// What was measured of the packets that this node relays.
    RelayDelay {
        /// Their delay model.
        delay: RelayDelay,
    },
    /// How late the ticks of this node have come lately: 99.9 % of them at most this.
    TimerLateness {
        /// The quantile.
        p999: Duration,
    },
    /// Octets sent to a destination over installed paths since the last report.
    Traffic {
        /// The destination.
        destination: NodeId,
        /// The octets.
        octets: u64,
    },
    /// The first connection with a destination has been opened, or the last one has ended: while there is
    /// one, its paths are kept without traffic.
    Connections {
        /// The destination.
        destination: NodeId,
        /// Whether there are any.
        any: bool,
    },
}

/// An output of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MeshOutput {
    /// Sends a control message.
    Send {
        /// The link.
        link: LinkIndex,
        /// The neighbour's address; all neighbours without one.
        to: Option<LinkAddress>,
        /// The message.
        octets: Vec<u8>,
    },
    /// Sends a packet that waited for its path.
    SendPacket {
        /// The next hop.
        hop: LabelledHop,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Sends a message in the associated channel of a path; one without octets keeps the path's
    /// labels.
    Channel {
        /// The next hop with the path's label.
        hop: LabelledHop,
        /// TTL of the label.
        ttl: u8,
        /// The message.
        octets: Vec<u8>,
    },
    /// Reports what has become of an echo request.
    Echoed {
        /// The request.
        token: EchoToken,
        /// The outcome.
        outcome: EchoOutcome,
    },
    /// Installs or replaces a label.
    InstallLabel {
        /// The label on arriving packets.
        label: Label,
        /// The action.
        action: LabelAction,
        /// The next hop while that of the action is down.
        backup: Option<LabelledHop>,
    },
    /// Removes a label.
    RemoveLabel {
        /// The label.
        label: Label,
    },
    /// Installs or replaces the path of a destination and a class in a role.
    InstallPath {
        /// The destination.
        destination: NodeId,
        /// The class.
        class: PathClass,
        /// The role.
        role: PathRole,
        /// The path.
        path: PathId,
        /// The next hop with the first label.
        hop: LabelledHop,
        /// Largest frame in octets; 0 without limit.
        frame_limit: u16,
    },
    /// Removes the path of a destination and a class in a role.
    RemovePath {
        /// The destination.
        destination: NodeId,
        /// The class.
        class: PathClass,
        /// The role.
        role: PathRole,
    },
    /// Begins or ceases to spread flows over the primary and the backup of a destination and a class.
    SpreadPath {
        /// The destination.
        destination: NodeId,
        /// The class.
        class: PathClass,
        /// Whether they are spread.
        spreads: bool,
    },
    /// Changes the state of a next hop: backups replace primaries whose next hop is down.
    LinkState {
        /// The next hop.
        adjacency: Adjacency,
        /// Whether it can be used.
        up: bool,
    },
    /// Delivers a broadcast packet to this node.
    Deliver {
        /// The node that sent it.
        origin: NodeId,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Sends a control message to the other ports of a bridge port's segment.
    SendHello {
        /// The port.
        port: BridgePort,
        /// The other port's address; all without one.
        to: Option<LinkAddress>,
        /// The message.
        octets: Vec<u8>,
    },
    /// Sends a broadcast packet on a bridge port.
    SendPort {
        /// The port.
        port: BridgePort,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Tells switches on a bridge port's segment that these nodes and stations are behind it: by a frame
    /// from the address of each.
    Teach {
        /// The port.
        port: BridgePort,
        /// The nodes and stations.
        addresses: Vec<NodeId>,
    },
    /// A bridge port begins or ceases to forward.
    PortState {
        /// The port.
        port: BridgePort,
        /// Whether it forwards.
        forwards: bool,
    },
    /// Reports an event.
    Event(MeshEvent),
}

/// An event for operators.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MeshEvent {
    /// A neighbour was heard for the first time, or again.
    NeighbourUp(Adjacency),
    /// A neighbour was lost.
    NeighbourDown(Adjacency, Reason),
    /// A path to a destination can be used.
    PathFound {
        /// The destination.
        destination: NodeId,
        /// The path.
        path: PathId,
        /// Links of the path.
        hops: u8,
    },
    /// A path to a destination was lost.
    PathLost {
        /// The destination.
        destination: NodeId,
        /// The path.
        path: PathId,
        /// The cause.
        reason: Reason,
    },
    /// Packets of relayed paths go around a link that was lost.
    LinkBypassed {
        /// The neighbour that the link led to.
        adjacency: Adjacency,
        /// The paths.
        paths: u16,
    },
    /// A link of a path to a destination was lost, and a relay leads its packets around it, for the time in
    /// which another path is found.
    PathBypassed {
        /// The destination.
        destination: NodeId,
        /// The path.
        path: PathId,
        /// The relay.
        relay: NodeId,
    },
    /// Packets to a destination take another path.
    Switched {
        /// The destination.
        destination: NodeId,
        /// The class.
        class: PathClass,
        /// The path.
        path: PathId,
    },
    /// A destination was not found; its packets are dropped.
    Unreachable {
        /// The destination.
        destination: NodeId,
        /// The packets.
        dropped: u16,
    },
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MeshCounters {
    /// Control messages sent.
    pub sent: u64,
    /// Control messages received.
    pub received: u64,
    /// Messages dropped: malformed, or of another version.
    pub malformed: u64,
    /// Messages dropped: of another profile.
    pub other_profile: u64,
    /// Messages dropped: this node's own identity, or no such link.
    pub own: u64,
    /// Messages dropped: not authenticated by a key of the mesh.
    pub forged: u64,
    /// Messages dropped: authenticated, but not new.
    pub replayed: u64,
    /// Messages dropped: their sender has yet to answer a challenge.
    pub unknown_index: u64,
    /// Challenges sent.
    pub challenges: u64,
    /// Messages dropped: a member has sent them, but not whom they name as their origin.
    pub unsigned: u64,
    /// Messages dropped: too many signatures were to be checked in a second.
    pub signatures_limited: u64,
    /// ROUTE REQUESTs relayed.
    pub requests_relayed: u64,
    /// Copies of ROUTE REQUESTs that were not relayed.
    pub requests_repeated: u64,
    /// ROUTE REQUESTs dropped: their origin sends too many.
    pub requests_limited: u64,
    /// ROUTE REQUESTs along a route that were not sent on: it led no further, or too many came in a
    /// second.
    pub requests_unrouted: u64,
    /// Packets of OLSR sent.
    pub olsr_sent: u64,
    /// Packets of OLSR dropped: this node discovers routes on demand.
    pub olsr_ignored: u64,
    /// Searches started.
    pub searches: u64,
    /// Destinations not found.
    pub unreachable: u64,
    /// Paths established, counted at both ends.
    pub paths_found: u64,
    /// Paths lost, counted at both ends.
    pub paths_lost: u64,
    /// Packets dropped: too many wait for their paths.
    pub buffer_full: u64,
    /// Packets dropped: while they waited for a path, their destination was forgotten or found at a
    /// port.
    pub waiting_dropped: u64,
    /// Paths refused, or entries evicted: a table is full.
    pub table_full: u64,
    /// Neighbours removed for others: there was no room, and they had never shown that they hear
    /// this node.
    pub neighbours_evicted: u64,
    /// Messages dropped: their sender is no neighbour, and there is no room for one.
    pub neighbours_refused: u64,
    /// Messages repeated because they were not acknowledged.
    pub repeated: u64,
    /// Messages given up.
    pub given_up: u64,
    /// LABEL UNKNOWNs sent.
    pub labels_unknown: u64,
    /// LABEL UNKNOWNs not sent: too many in a second.
    pub unknown_limited: u64,
    /// LINK BACKs sent, to origins of paths that this node has ended.
    pub links_back: u64,
    /// LINK BACKs after which this node searched, and links of its own that came back.
    pub links_back_followed: u64,
    /// LINK BACKs without a lost path of this node, or with one that has been replaced.
    pub links_back_ignored: u64,
    /// LINK BACKs not passed on: too many in a second.
    pub links_back_limited: u64,
    /// Bypasses around links of relayed paths that neighbours have given to this node.
    pub bypasses_made: u64,
    /// Bypasses that neighbours have refused, or have not answered about.
    pub bypasses_refused: u64,
    /// Bypasses that this node has given to neighbours.
    pub bypasses_given: u64,
    /// Requests for bypasses that this node has refused: the neighbour beyond is not there, the frames do
    /// not fit its link, or there is no room.
    pub bypasses_denied: u64,
    /// Paths that this node has led around a lost link.
    pub paths_bypassed: u64,
    /// Echo requests answered.
    pub echoes: u64,
    /// Echo requests not answered: too many in a second, or no way back.
    pub echoes_unanswered: u64,
    /// Broadcasts delivered.
    pub broadcasts: u64,
    /// Packets for all nodes that were not sent: too long.
    pub broadcasts_too_long: u64,
    /// Broadcasts dropped: parts were missing when others came.
    pub broadcasts_incomplete: u64,
    /// Broadcasts relayed, each part by itself.
    pub broadcasts_relayed: u64,
    /// Times that a broadcast was sent again, to neighbours whose links lose frames.
    pub broadcasts_resent: u64,
    /// Broadcasts that were not sent again: too many were to be.
    pub broadcasts_not_resent: u64,
    /// Copies of broadcasts that were dropped.
    pub broadcasts_repeated: u64,
}
