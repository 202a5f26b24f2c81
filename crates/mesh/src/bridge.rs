//! Bridge ports: interfaces whose stations take part in the mesh.
//!
//! Of all ports on one Ethernet segment one forwards, so that no frame comes back by another one. Ports
//! say hello to each other: the one that forwards goes on; when it falls silent, the lowest one that has
//! listened long enough takes over. Stations are learnt from the sources of frames at a port that
//! forwards; the others hear of them in its hellos.

use crate::identity::NodeId;
use core::time::Duration;
use gatewright_packet::LinkAddress;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A bridge port of a node.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BridgePort(pub u16);

/// Verdict on a frame that has arrived at a bridge port.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PortVerdict {
    /// It goes nowhere: the port does not forward, both stations are on its segment, the frame has come
    /// back, or its destination was not found a moment ago.
    Drop,
    /// It is for this node's host.
    Host,
    /// It is for a station at another port.
    Port(BridgePort),
    /// It is for another node or a station behind one.
    Mesh,
    /// It is for all.
    All,
}

/// Bridge ports of a node at the most.
pub const BRIDGE_PORTS_MAX: usize = 16;

/// Stations of a node at the most, and those of one port.
const STATIONS_MAX: usize = 1_024;
const PORT_STATIONS_MAX: usize = STATIONS_MAX / 2;

/// A station that has been silent this long is forgotten (IEEE 802.1Q, ageing time).
const STATION_LIFE: Duration = Duration::from_mins(5);

/// One that only the forwarding port's hellos tell of, this long after the last of these.
const LISTED_LIFE: Duration = Duration::from_secs(30);

/// A station that another node has announced is not learnt here for this long: its last frames here may
/// come later than the announcement.
const MOVED_HOLD: Duration = Duration::from_secs(1);

/// A destination that was not found is not searched again for frames of ports for this long.
const UNKNOWN_HOLD: Duration = Duration::from_secs(2);
const UNKNOWN_MAX: usize = 256;

/// Interval of hellos, and how many are missed when a port counts as gone. Both give the bound of a
/// takeover: a second.
const HELLO_INTERVAL: Duration = Duration::from_millis(300);
const HELLOS_MISSED: u32 = 3;

/// The longest interval of another port that is believed.
const INTERVAL_MAX: Duration = Duration::from_secs(3);

/// Hellos out of turn keep this distance.
const HELLO_GAP: Duration = Duration::from_millis(10);

/// Other ports on one segment at the most.
const RIVALS_MAX: usize = 32;

/// Between announcements of stations.
const ANNOUNCE_GAP: Duration = Duration::from_millis(100);

/// Destinations of frames that a port got in vain, in one of its hellos at the most; how long after a hello
/// one that it has not listed is listed; and between two frames that tell a switch of one address.
const STRAYS_MAX: usize = 64;
const STRAY_GAP: Duration = Duration::from_millis(100);
const TELL_GAP: Duration = Duration::from_secs(1);

/// Interval of the sweep over stations.
const SWEEP: Duration = Duration::from_secs(5);

/// Frames that are remembered to know one that comes back, and for how long.
const PASSED_MAX: usize = 256;
const PASSED_LIFE: Duration = Duration::from_secs(1);

/// A port among those of its segment: the lowest takes over.
type PortKey = (NodeId, BridgePort);

/// Another port on the same segment.
#[derive(Clone, Copy, Debug)]
struct Rival {
    address: LinkAddress,
    deadline: Duration,
    ready: bool,
    forwards: bool,
}

/// What a hello says.
#[derive(Clone, Debug)]
pub(crate) struct HeardHello {
    pub(crate) key: (NodeId, BridgePort),
    pub(crate) interval: Duration,
    pub(crate) ready: bool,
    pub(crate) forwards: bool,
    pub(crate) stations: Vec<NodeId>,
}

#[derive(Clone, Debug)]
struct PortState {
    address: LinkAddress,
    /// When it has listened long enough, and says so. It forwards an interval later: of two that are
    /// ready at the same time, each has heard the other then.
    ready_at: Duration,
    forwards: bool,
    hello_at: Duration,
    said_at: Duration,
    decided_at: Duration,
    rivals: BTreeMap<PortKey, Rival>,
    /// The last station that a hello has listed.
    listed: NodeId,
    /// Destinations of frames that arrived since the last hello while the port did not forward, and those
    /// that this hello has listed.
    strays: BTreeSet<NodeId>,
    listed_strays: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, Debug)]
struct Station {
    port: BridgePort,
    expires_at: Duration,
}

/// A frame that has passed a port.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at: Duration,
    digest: u64,
    port: BridgePort,
    arrived: bool,
}

/// What learning a station has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Learnt {
    /// Nothing.
    Known,
    /// It is new here.
    New,
    /// It is at another port of this node now.
    OtherPort,
    /// There is no room for it, or it has just moved away.
    Refused,
}

/// The bridge ports of a node with their stations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bridge {
    ports: BTreeMap<BridgePort, PortState>,
    stations: BTreeMap<NodeId, Station>,
    /// Stations that another node has announced, until when they are not learnt here.
    moved: BTreeMap<NodeId, Duration>,
    /// Destinations that were not found, until when they are not searched.
    unknown: BTreeMap<NodeId, Duration>,
    /// Nodes and stations elsewhere, until when they are remembered.
    remote: BTreeMap<NodeId, Duration>,
    /// Addresses of which the switch at a port was told when another port got frames for them.
    told: BTreeMap<(BridgePort, NodeId), Duration>,
    /// Stations to announce, and when that was done last.
    news: BTreeSet<NodeId>,
    announced_at: Option<Duration>,
    passed: VecDeque<Passed>,
    sweep_at: Option<Duration>,
    pub(crate) counters: BridgeCounters,
}

/// Counters of a bridge.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BridgeCounters {
    /// Frames of stations that were dropped: their port does not forward.
    pub standby: u64,
    /// Frames that came back by another port or node, and were dropped.
    pub looped: u64,
    /// Frames that were dropped: their destination was not found a moment ago.
    pub unknown: u64,
    /// Stations learnt.
    pub learnt: u64,
    /// Stations that were not learnt: no room.
    pub full: u64,
    /// Stations that other nodes have announced while they were known here.
    pub moved: u64,
    /// Stations forgotten, as they were silent.
    pub aged: u64,
    /// Ports that began to forward.
    pub takeovers: u64,
}

/// FNV-1a, 64 bits: equal frames have the same digest.
fn digest(frame: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    frame.iter().fold(OFFSET, |hash, &octet| (hash ^ u64::from(octet)).wrapping_mul(PRIME))
}

impl PortState {
    fn alive(&self, now: Duration) -> impl Iterator<Item = (&PortKey, &Rival)> {
        self.rivals.iter().filter(move |(_, rival)| rival.deadline > now)
    }

    /// Decides whether the port `own` forwards; returns whether that has changed.
    fn decide(&mut self, now: Duration, own: PortKey) -> bool {
        let forwards = if self.forwards {
            // Two segments have become one: the lower port stays.
            !self.alive(now).any(|(key, rival)| rival.forwards && *key < own)
        } else {
            let waits =
                |(key, rival): (&PortKey, &Rival)| rival.forwards || (rival.ready && *key < own);
            self.forwards_from() <= now && !self.alive(now).any(waits)
        };
        self.decided_at = now;
        core::mem::replace(&mut self.forwards, forwards) != forwards
    }

    fn forwards_from(&self) -> Duration {
        self.ready_at + HELLO_INTERVAL
    }

    /// When the next hello is due: as soon as the port is ready, and each interval.
    fn says_at(&self) -> Duration {
        if self.said_at < self.ready_at { self.hello_at.min(self.ready_at) } else { self.hello_at }
    }

    fn poll_timeout(&self) -> Duration {
        if self.forwards {
            return self.says_at();
        }
        let deadlines = self.rivals.values().map(|rival| rival.deadline);
        // What was over at the last decision changes nothing any more.
        let pending = deadlines.chain([self.forwards_from()]).filter(|&at| at > self.decided_at);
        pending.fold(self.says_at(), Ord::min)
    }
}

impl Bridge {
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        let ports = self.ports.values().map(PortState::poll_timeout);
        let news = (!self.news.is_empty()).then(|| self.announce_at());
        ports.chain(news).chain(self.sweep_at).min()
    }

    /// Adds a port; `false` if there are too many.
    pub(crate) fn port_up(
        &mut self,
        now: Duration,
        port: BridgePort,
        address: LinkAddress,
    ) -> bool {
        if self.ports.len() >= BRIDGE_PORTS_MAX && !self.ports.contains_key(&port) {
            return false;
        }
        let state = PortState {
            address,
            ready_at: now + HELLO_INTERVAL * HELLOS_MISSED,
            forwards: false,
            hello_at: now,
            said_at: now,
            decided_at: now,
            rivals: BTreeMap::new(),
            listed: NodeId(0),
            strays: BTreeSet::new(),
            listed_strays: BTreeSet::new(),
        };
        self.ports.insert(port, state);
        true
    }

    /// Removes a port; returns whether it forwarded.
    pub(crate) fn port_down(&mut self, port: BridgePort) -> bool {
        self.ports.remove(&port).is_some_and(|state| state.forwards)
    }

    pub(crate) fn forwards(&self, port: BridgePort) -> bool {
        self.ports.get(&port).is_some_and(|state| state.forwards)
    }

    /// Link-layer address of a port, if it is there.
    pub(crate) fn address(&self, port: BridgePort) -> Option<LinkAddress> {
        self.ports.get(&port).map(|state| state.address)
    }

    /// The ports that forward.
    pub(crate) fn forwarding(&self) -> Vec<BridgePort> {
        let all = self.ports.iter().filter(|(_, state)| state.forwards);
        all.map(|(&port, _)| port).collect()
    }

    /// The port at which a station is, if it forwards.
    pub(crate) fn port_of(&self, station: NodeId) -> Option<BridgePort> {
        let port = self.stations.get(&station)?.port;
        self.forwards(port).then_some(port)
    }

    /// Stations with their ports, whether these forward or not.
    pub(crate) fn stations(&self) -> impl Iterator<Item = (NodeId, BridgePort)> {
        self.stations.iter().map(|(&station, known)| (station, known.port))
    }

    pub(crate) fn stations_of(&self, port: BridgePort) -> Vec<NodeId> {
        self.stations().filter(|(_, at)| *at == port).map(|(station, _)| station).collect()
    }

    /// Whether a frame of this source at this port is from another port's node, or this port's own.
    fn is_of_a_port(&self, now: Duration, port: BridgePort, source: NodeId) -> bool {
        let Some(state) = self.ports.get(&port) else { return false };
        let rivals = state.rivals.values().filter(|rival| rival.deadline > now);
        let rivals = rivals.map(|rival| rival.address);
        let own = self.ports.values().map(|state| state.address);
        rivals.chain(own).any(|address| NodeId::of_address(address) == Some(source))
    }

    /// Whether an address is that of one of this node's ports.
    pub(crate) fn is_own_port(&self, address: NodeId) -> bool {
        self.ports.values().any(|state| NodeId::of_address(state.address) == Some(address))
    }

    /// Whether a frame that arrives at a port is new there, and not one that this node has sent on it.
    pub(crate) fn arrives(
        &mut self,
        now: Duration,
        port: BridgePort,
        source: NodeId,
        frame: &[u8],
    ) -> bool {
        let digest = digest(frame);
        if self.is_of_a_port(now, port, source) || self.has_passed(now, digest, port, false) {
            self.counters.looped += 1;
            return false;
        }
        self.remember(Passed { at: now, digest, port, arrived: true });
        true
    }

    /// Whether a frame may be sent on a port: it did not come from there.
    pub(crate) fn leaves(&mut self, now: Duration, port: BridgePort, frame: &[u8]) -> bool {
        let digest = digest(frame);
        if self.has_passed(now, digest, port, true) {
            self.counters.looped += 1;
            return false;
        }
        self.remember(Passed { at: now, digest, port, arrived: false });
        true
    }

    fn has_passed(&self, now: Duration, digest: u64, port: BridgePort, arrived: bool) -> bool {
        self.passed.iter().any(|passed| {
            passed.digest == digest
                && passed.port == port
                && passed.arrived == arrived
                && now.saturating_sub(passed.at) < PASSED_LIFE
        })
    }

    fn remember(&mut self, passed: Passed) {
        if self.passed.len() >= PASSED_MAX {
            self.passed.pop_front();
        }
        self.passed.push_back(passed);
    }

    /// Learns that a station is at a port that forwards.
    pub(crate) fn learn(&mut self, now: Duration, station: NodeId, port: BridgePort) -> Learnt {
        let expires_at = now + STATION_LIFE;
        if let Some(known) = self.stations.get_mut(&station) {
            known.expires_at = expires_at;
            let before = core::mem::replace(&mut known.port, port);
            if before == port {
                return Learnt::Known;
            }
            // Where another node forwards, others know it behind that one.
            if self.forwards(before) {
                return Learnt::OtherPort;
            }
            self.news.insert(station);
            return Learnt::New;
        }
        if self.moved.get(&station).is_some_and(|&until| until > now) {
            return Learnt::Refused;
        }
        if !self.has_room(port) {
            self.counters.full += 1;
            return Learnt::Refused;
        }
        self.moved.remove(&station);
        self.remote.remove(&station);
        self.stations.insert(station, Station { port, expires_at });
        self.counters.learnt += 1;
        self.sweep_at = self.sweep_at.or(Some(now + SWEEP));
        self.news.insert(station);
        Learnt::New
    }

    fn has_room(&self, port: BridgePort) -> bool {
        self.stations.len() < STATIONS_MAX
            && self.stations.values().filter(|known| known.port == port).count() < PORT_STATIONS_MAX
    }

    /// Remembers a node or a station elsewhere, of which switches at the ports may have to be told.
    pub(crate) fn hear_remote(&mut self, now: Duration, address: NodeId) {
        if self.ports.is_empty() {
            return;
        }
        if self.remote.len() < STATIONS_MAX || self.remote.contains_key(&address) {
            self.remote.insert(address, now + STATION_LIFE);
            self.sweep_at = self.sweep_at.or(Some(now + SWEEP));
        }
    }

    /// Nodes and stations elsewhere.
    pub(crate) fn remote(&self) -> Vec<NodeId> {
        self.remote.keys().copied().collect()
    }

    /// A port that does not forward got a frame: a switch has its destination at the wrong port, or none at
    /// all. The next hello lists it, so that the port that forwards tells the switch.
    pub(crate) fn stray(
        &mut self,
        now: Duration,
        port: BridgePort,
        (source, destination): (NodeId, NodeId),
    ) {
        let is_here = self.stations.get(&destination).is_some_and(|known| known.port == port);
        let is_of_ports = [source, destination].iter().any(|&it| self.is_of_a_port(now, port, it));
        if is_here || is_of_ports || !destination.is_station_address() {
            return;
        }
        let Some(state) = self.ports.get_mut(&port) else { return };
        if state.strays.len() >= STRAYS_MAX || !state.strays.insert(destination) {
            return;
        }
        if !state.listed_strays.contains(&destination) {
            state.hello_at = state.hello_at.min(now.max(state.said_at + STRAY_GAP));
        }
    }

    /// Whether the switch at a port may be told now of an address that is not there.
    pub(crate) fn may_tell(&mut self, now: Duration, port: BridgePort, address: NodeId) -> bool {
        let is_fresh = |at: Duration| now.saturating_sub(at) < TELL_GAP;
        if self.told.len() >= STATIONS_MAX {
            self.told.retain(|_, at| is_fresh(*at));
        }
        let key = (port, address);
        if self.told.len() >= STATIONS_MAX || self.told.get(&key).is_some_and(|&at| is_fresh(at)) {
            return false;
        }
        self.told.insert(key, now);
        true
    }

    /// Packets to a station show that it is in use.
    pub(crate) fn refresh(&mut self, now: Duration, station: NodeId) {
        if let Some(known) = self.stations.get_mut(&station) {
            known.expires_at = now + STATION_LIFE;
        }
    }

    /// Forgets a station that another node has announced; returns the port by which this node has served
    /// it.
    pub(crate) fn moved_away(
        &mut self,
        now: Duration,
        station: NodeId,
        to: NodeId,
    ) -> Option<BridgePort> {
        self.unknown.remove(&station);
        let Some(&Station { port: at, .. }) = self.stations.get(&station) else {
            self.hear_remote(now, station);
            return None;
        };
        let port = self.ports.get(&at)?;
        let forwards = port.forwards;
        // The node that forwards on the segment of a port that stands by.
        let serves = |node: NodeId, it: &Rival| it.forwards && it.deadline > now && node == to;
        if !forwards && port.rivals.iter().any(|(&(node, _), it)| serves(node, it)) {
            return None;
        }
        self.forget(station);
        self.hear_remote(now, station);
        if forwards {
            self.counters.moved += 1;
            if self.moved.len() < STATIONS_MAX {
                self.moved.insert(station, now + MOVED_HOLD);
            }
        }
        forwards.then_some(at)
    }

    pub(crate) fn forget(&mut self, station: NodeId) {
        self.stations.remove(&station);
        self.news.remove(&station);
    }

    /// A destination was not found.
    pub(crate) fn not_found(&mut self, now: Duration, destination: NodeId) {
        if self.ports.is_empty() {
            return;
        }
        if self.unknown.len() >= UNKNOWN_MAX {
            self.unknown.retain(|_, until| *until > now);
        }
        if self.unknown.len() < UNKNOWN_MAX {
            self.unknown.insert(destination, now + UNKNOWN_HOLD);
        }
    }

    pub(crate) fn is_unknown(&self, now: Duration, destination: NodeId) -> bool {
        self.unknown.get(&destination).is_some_and(|&until| until > now)
    }

    /// Learns from a hello; returns whether the port begins or ceases to forward.
    pub(crate) fn hear(
        &mut self,
        now: Duration,
        (own, port): (NodeId, BridgePort),
        from: LinkAddress,
        hello: &HeardHello,
    ) -> bool {
        let Some(state) = self.ports.get_mut(&port) else { return false };
        // One that comes back is new.
        state.rivals.retain(|_, rival| rival.deadline > now);
        if state.rivals.len() >= RIVALS_MAX && !state.rivals.contains_key(&hello.key) {
            self.counters.full += 1;
            return false;
        }
        let deadline = now + hello.interval.min(INTERVAL_MAX) * HELLOS_MISSED;
        let HeardHello { ready, forwards, .. } = *hello;
        let known =
            state.rivals.insert(hello.key, Rival { address: from, deadline, ready, forwards });
        let changed = state.decide(now, (own, port));
        // A port that is new, or forwards beside this one, hears at once how it stands here.
        let conflict = state.forwards && forwards;
        if (known.is_none() || conflict || changed) && now >= state.said_at + HELLO_GAP {
            state.hello_at = now;
        }
        if changed {
            self.counters.takeovers += u64::from(self.forwards(port));
        }
        if hello.forwards && !self.forwards(port) {
            self.learn_listed(now, port, &hello.stations);
        }
        changed
    }

    /// Stations that the forwarding port of a segment lists.
    fn learn_listed(&mut self, now: Duration, port: BridgePort, stations: &[NodeId]) {
        for &station in stations {
            if self.port_of(station).is_some() {
                continue;
            }
            let is_known = self.stations.contains_key(&station);
            if !is_known && !self.has_room(port) {
                self.counters.full += 1;
                return;
            }
            self.sweep_at = self.sweep_at.or(Some(now + SWEEP));
            // The node that forwards may have announced it before.
            self.remote.remove(&station);
            self.stations.insert(station, Station { port, expires_at: now + LISTED_LIFE });
        }
    }

    /// Decides at all ports; those that begin or cease to forward.
    pub(crate) fn decide(&mut self, now: Duration, own: NodeId) -> Vec<(BridgePort, bool)> {
        let mut changed = Vec::new();
        for (&port, state) in &mut self.ports {
            if state.decide(now, (own, port)) {
                state.hello_at = now;
                changed.push((port, state.forwards));
            }
        }
        let takeovers = changed.iter().filter(|(_, forwards)| *forwards).count();
        self.counters.takeovers += u64::try_from(takeovers).unwrap_or(0);
        changed
    }

    /// A port forwards now: all its stations are to be announced.
    pub(crate) fn announce_all(&mut self, port: BridgePort) {
        let stations = self.stations_of(port);
        self.news.extend(stations);
    }

    fn announce_at(&self) -> Duration {
        self.announced_at.map_or(Duration::ZERO, |at| at + ANNOUNCE_GAP)
    }

    /// Stations to announce now, at most so many.
    pub(crate) fn announcement(&mut self, now: Duration, most: usize) -> Vec<NodeId> {
        if self.news.is_empty() || self.announce_at() > now {
            return Vec::new();
        }
        self.announced_at = Some(now);
        let mut stations = Vec::new();
        while stations.len() < most
            && let Some(station) = self.news.pop_first()
        {
            // It may be gone, or its port stand by.
            if self.port_of(station).is_some() {
                stations.push(station);
            }
        }
        stations
    }

    /// The hellos that are due: port, whether it is ready, whether it forwards, and some of its stations,
    /// another part each time; of a port that does not forward, destinations of frames that it got.
    pub(crate) fn hellos(
        &mut self,
        now: Duration,
        most: usize,
    ) -> Vec<(BridgePort, (bool, bool), Vec<NodeId>)> {
        let due: Vec<BridgePort> = self
            .ports
            .iter()
            .filter(|(_, state)| state.says_at() <= now)
            .map(|(&at, _)| at)
            .collect();
        let mut hellos = Vec::new();
        for port in due {
            let (listed, forwards) = self
                .ports
                .get(&port)
                .map_or((NodeId(0), false), |state| (state.listed, state.forwards));
            let mut stations = if forwards { self.list(port, listed, most) } else { Vec::new() };
            let Some(state) = self.ports.get_mut(&port) else { continue };
            state.listed_strays = core::mem::take(&mut state.strays);
            if !forwards {
                stations.extend(state.listed_strays.iter().take(most));
            }
            state.listed = stations.last().copied().unwrap_or_default();
            state.said_at = now;
            state.hello_at = now + HELLO_INTERVAL;
            hellos.push((port, (state.ready_at <= now, forwards), stations));
        }
        hellos
    }

    /// Stations of a port after one, around.
    fn list(&self, port: BridgePort, after: NodeId, most: usize) -> Vec<NodeId> {
        let stations = self.stations_of(port);
        let begin = stations.partition_point(|&station| station <= after);
        stations.iter().cycle().skip(begin).take(most.min(stations.len())).copied().collect()
    }

    pub(crate) fn hello_interval() -> Duration {
        HELLO_INTERVAL
    }

    /// Forgets what is old; the stations that were forgotten at ports that forward.
    pub(crate) fn sweep(&mut self, now: Duration) -> Vec<NodeId> {
        if self.sweep_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let old: Vec<NodeId> = (self.stations.iter())
            .filter(|(_, known)| known.expires_at <= now)
            .map(|(&station, _)| station)
            .collect();
        let served =
            old.iter().copied().filter(|&station| self.port_of(station).is_some()).collect();
        for station in old {
            self.counters.aged += 1;
            self.forget(station);
        }
        self.moved.retain(|_, until| *until > now);
        self.unknown.retain(|_, until| *until > now);
        self.remote.retain(|_, until| *until > now);
        let is_empty = self.stations.is_empty() && self.remote.is_empty();
        self.sweep_at = (!is_empty).then_some(now + SWEEP);
        served
    }
}
