//! Stations behind this node: which port forwards, who is learnt, announced and found.

use super::MeshNode;
use crate::bridge::{Bridge, BridgePort, HeardHello, Learnt, PortVerdict};
use crate::edge::{MeshOutput, PathClass};
use crate::identity::{NodeId, PathId, Reason};
use crate::message::{Message, PortHello, STATIONS_LISTED_MAX, nodes, station_list};
use crate::trust::{HeardPeer, Medium};
use core::time::Duration;
use gatewright_packet::LinkAddress;
use std::collections::BTreeSet;

impl MeshNode {
    /// Counters of the bridge ports since the start.
    pub fn bridge_counters(&self) -> crate::BridgeCounters {
        self.bridge.counters
    }

    /// Stations with the ports at which they are, whether these forward or not.
    pub fn stations(&self) -> impl Iterator<Item = (NodeId, BridgePort)> {
        self.bridge.stations()
    }

    /// The port at which a station is, if it forwards.
    pub fn port_of(&self, station: NodeId) -> Option<BridgePort> {
        self.bridge.port_of(station)
    }

    /// The station behind its target to which a path leads; `None` if to the target itself.
    pub fn station_of(&self, path: PathId) -> Option<NodeId> {
        self.segments.get(&path)?.station
    }

    /// Whether a bridge port forwards.
    pub fn forwards(&self, port: BridgePort) -> bool {
        self.bridge.forwards(port)
    }

    /// Judges a frame that has arrived at a bridge port, and learns its source. `frame` are its octets;
    /// one without a destination is for a group, and the whole of it is given as
    /// [`MeshInput::Broadcast`](crate::MeshInput::Broadcast) if the verdict is [`PortVerdict::All`].
    pub fn port_frame(
        &mut self,
        now: Duration,
        port: BridgePort,
        (source, destination): (NodeId, Option<NodeId>),
        frame: &[u8],
    ) -> PortVerdict {
        if !self.bridge.forwards(port) {
            self.bridge.counters.standby += 1;
            if let Some(destination) = destination {
                self.bridge.stray(now, port, (source, destination));
            }
            return PortVerdict::Drop;
        }
        let own = self.settings.id;
        if source == own || !self.bridge.arrives(now, port, source, frame) {
            self.bridge.counters.looped += u64::from(source == own);
            return PortVerdict::Drop;
        }
        self.learn(now, source, port);
        let Some(destination) = destination else { return PortVerdict::All };
        if destination == own {
            return PortVerdict::Host;
        }
        match self.bridge.port_of(destination) {
            Some(at) if at == port => PortVerdict::Drop,
            Some(at) if self.bridge.leaves(now, at, frame) => PortVerdict::Port(at),
            Some(_) => PortVerdict::Drop,
            None if self.bridge.is_own_port(destination) => PortVerdict::Drop,
            None if self.bridge.is_unknown(now, destination) => {
                self.bridge.counters.unknown += 1;
                PortVerdict::Drop
            }
            None => PortVerdict::Mesh,
        }
    }

    /// Whether a frame for a station may be sent on its port: it has not come from there. Frames that
    /// [`MeshNode::port_frame`] and [`MeshOutput::SendPort`] name have been asked for.
    pub fn may_leave(&mut self, now: Duration, port: BridgePort, frame: &[u8]) -> bool {
        self.bridge.forwards(port) && self.bridge.leaves(now, port, frame)
    }

    fn learn(&mut self, now: Duration, station: NodeId, port: BridgePort) {
        if !self.may_be_station(station) {
            return;
        }
        match self.bridge.learn(now, station, port) {
            Learnt::Known | Learnt::Refused => {}
            // Paths that this node has to it lead to where it was.
            Learnt::New => self.forget(now, station),
            Learnt::OtherPort => {
                for path in self.served(&[station]) {
                    self.install(path);
                }
            }
        }
    }

    /// Whether an identity may be a station's: a node is found as itself, and a group is nobody.
    fn may_be_station(&self, station: NodeId) -> bool {
        let is_neighbour = self.near.all.keys().any(|at| at.node == station);
        station.is_station_address()
            && station != self.settings.id
            && !is_neighbour
            && !self.is_a_node(station)
    }

    /// The paths of others to these stations of this node.
    fn served(&self, stations: &[NodeId]) -> Vec<PathId> {
        let own = self.settings.id;
        let is = |station: Option<NodeId>| station.is_some_and(|it| stations.contains(&it));
        let paths = self.segments.iter().filter(|(path, it)| path.target == own && is(it.station));
        paths.map(|(&path, _)| path).collect()
    }

    /// Ends the paths of others to stations that are not here any more.
    fn end_served(&mut self, now: Duration, stations: &[NodeId]) {
        if stations.is_empty() {
            return;
        }
        for path in self.served(stations) {
            self.remove_path(now, path, Reason::STATION_GONE, None);
        }
    }

    pub(super) fn port_up(&mut self, now: Duration, port: BridgePort, address: LinkAddress) {
        self.port_down(now, port);
        if !self.bridge.port_up(now, port, address) {
            self.counters.table_full += 1;
        }
    }

    pub(super) fn port_down(&mut self, now: Duration, port: BridgePort) {
        let stations = self.bridge.stations_of(port);
        let forwarded = self.bridge.port_down(port);
        for &station in &stations {
            self.bridge.forget(station);
        }
        if forwarded {
            self.end_served(now, &stations);
            self.output(MeshOutput::PortState { port, forwards: false });
        }
    }

    pub(super) fn port_hello(
        &mut self,
        now: Duration,
        port: BridgePort,
        from: LinkAddress,
        octets: &[u8],
    ) {
        let Ok((sender, message)) = Message::decode(octets, self.settings.profile) else {
            self.counters.malformed += 1;
            return;
        };
        let said_at = match &message {
            Message::PortHello(hello) => Some(BridgePort(hello.port)),
            Message::Challenge(_) | Message::ChallengeReply(_) => None,
            // Messages of links: the other end has this port as a link.
            _ => return,
        };
        if sender.node == self.settings.id && said_at == Some(port) {
            // Its own hello has come back.
            self.bridge.counters.looped += 1;
            return;
        }
        let at = HeardPeer { medium: Medium::Port(port), node: sender.node };
        let is_here = self.bridge.address(port).is_some();
        if !is_here || !self.is_authentic(now, (at, from), octets, &message) {
            return;
        }
        // The others have done their work when they were authenticated.
        let Message::PortHello(hello) = message else { return };
        let heard = HeardHello {
            key: (sender.node, BridgePort(hello.port)),
            interval: Duration::from_millis(hello.interval_ms.into()),
            ready: hello.ready,
            forwards: hello.forwards,
            stations: hello
                .stations()
                .take(STATIONS_LISTED_MAX)
                .filter(|&station| self.may_be_station(station))
                .collect(),
        };
        if self.bridge.hear(now, (self.settings.id, port), from, &heard) {
            self.port_changed(now, port, self.bridge.forwards(port));
        }
        if !hello.forwards && self.bridge.forwards(port) {
            let strays = hello.stations().take(STATIONS_LISTED_MAX);
            self.draw_strays(now, port, strays);
        }
        self.tick_bridge(now);
    }

    /// A port of the same segment that does not forward got frames for these addresses. The switch is told of
    /// those that this node reaches elsewhere; others are searched, and may be listed again.
    fn draw_strays(
        &mut self,
        now: Duration,
        port: BridgePort,
        strays: impl Iterator<Item = NodeId>,
    ) {
        let mut addresses = Vec::new();
        for address in strays.filter(|address| address.is_station_address()) {
            let is_elsewhere = match self.bridge.port_of(address) {
                Some(at) => at != port,
                None => self.reaches(address),
            };
            if is_elsewhere {
                if self.bridge.may_tell(now, port, address) {
                    addresses.push(address);
                }
            } else if self.bridge.port_of(address).is_none()
                && !self.bridge.is_own_port(address)
                && !self.bridge.is_unknown(now, address)
            {
                self.want_path(now, address, PathClass::default());
            }
        }
        if !addresses.is_empty() {
            self.output(MeshOutput::Teach { port, addresses });
        }
    }

    /// Whether an address is the own one, that of a neighbour, or one to which there is a path.
    fn reaches(&self, address: NodeId) -> bool {
        let is_up = || self.near.all.iter().any(|(at, it)| at.node == address && it.up);
        let has_path = || self.destinations.get(&address).is_some_and(|it| !it.paths.is_empty());
        address == self.settings.id || is_up() || has_path()
    }

    /// Addresses that this node reaches elsewhere than on its segments, as far as it knows.
    fn reached(&self) -> Vec<NodeId> {
        let neighbours = self.near.all.keys().map(|at| at.node);
        let known = neighbours.chain(self.destinations.keys().copied());
        let known = known.filter(|&it| self.bridge.port_of(it).is_none() && self.reaches(it));
        let all: BTreeSet<NodeId> =
            self.bridge.remote().into_iter().chain([self.settings.id]).chain(known).collect();
        all.into_iter().collect()
    }

    /// A port begins or ceases to forward.
    fn port_changed(&mut self, now: Duration, port: BridgePort, forwards: bool) {
        let stations = self.bridge.stations_of(port);
        self.output(MeshOutput::PortState { port, forwards });
        if forwards {
            // Paths of this node to them lead to the node that has forwarded until now.
            for &station in &stations {
                self.forget(now, station);
            }
            self.bridge.announce_all(port);
            // Switches know them at the port that has forwarded until now.
            let addresses = self.reached();
            self.output(MeshOutput::Teach { port, addresses });
        } else {
            self.end_served(now, &stations);
        }
    }

    /// Says the hellos that are due, and announces stations. What was learnt at ports that are gone
    /// ends here too.
    pub(super) fn tick_bridge(&mut self, now: Duration) {
        for (port, forwards) in self.bridge.decide(now, self.settings.id) {
            self.port_changed(now, port, forwards);
        }
        let gone = self.bridge.sweep(now);
        self.end_served(now, &gone);
        for (port, (ready, forwards), stations) in self.bridge.hellos(now, STATIONS_LISTED_MAX) {
            let interval = Bridge::hello_interval().as_millis();
            let hello = Message::PortHello(PortHello {
                port: port.0,
                interval_ms: u16::try_from(interval).unwrap_or(u16::MAX),
                forwards,
                ready,
                stations: &station_list(&stations),
            });
            self.send_on_port(port, None, &hello);
        }
        let stations = self.bridge.announcement(now, STATIONS_LISTED_MAX);
        if !stations.is_empty() {
            self.announce(now, &station_list(&stations));
        }
    }

    /// Another node has announced stations behind it.
    pub(super) fn announced(&mut self, now: Duration, origin: NodeId, payload: &[u8]) {
        for station in nodes(payload).take(STATIONS_LISTED_MAX) {
            if let Some(port) = self.bridge.moved_away(now, station, origin) {
                self.end_served(now, &[station]);
                self.output(MeshOutput::Teach { port, addresses: vec![station] });
            }
            let elsewhere = self.paths_elsewhere(station, origin);
            if elsewhere.is_empty() {
                self.seek_announced(now, station);
            }
            // The last one that ends is searched anew at once if it was used.
            for path in elsewhere {
                self.remove_path(now, path, Reason::STATION_GONE, None);
            }
        }
    }

    /// Sends a packet for all on the ports that forward, but not where it came from.
    pub(super) fn send_on_ports(&mut self, now: Duration, from: Option<BridgePort>, packet: &[u8]) {
        for port in self.bridge.forwarding() {
            if Some(port) != from && self.bridge.leaves(now, port, packet) {
                self.output(MeshOutput::SendPort { port, packet: packet.to_vec() });
            }
        }
    }
}
