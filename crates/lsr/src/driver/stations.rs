//! What stations at bridge ports send, and what is sent to them.

use super::host::{OTHERS, is_ip};
use super::{Driver, FRAMES_AT_ONCE};
use crate::bridge::StationPort;
use crate::forwarding::{mac_of, node_of};
use crate::frames::{
    self, HEADER_LEN, MPLS, destination, ether_type, is_group, is_of_bridges, source,
};
use crate::report;
use gatewright_link::{OFFLOADS_LEN, without_offloads};
use gatewright_mesh::message::{ETHER_TYPE, GROUP_ADDRESS};
use gatewright_mesh::{BridgePort, MeshInput, NodeId, PortVerdict};
use gatewright_packet::LinkAddress;
use gatewright_part::LogLevel;

/// Content of a frame whose source alone matters: version 0, which no message has.
const LESSON: [u8; 4] = [0; 4];

impl Driver {
    pub(super) fn take_station_frames(&mut self, buffer: &mut [u8]) {
        for port in 0..self.bridge.len() {
            for at in 0..self.bridge.get(port).map_or(0, |port| port.receive().len()) {
                for _ in 0..FRAMES_AT_ONCE {
                    // Another one may be up.
                    let Some(known) = self.bridge.get(port).filter(|known| known.is_up) else {
                        break;
                    };
                    let (number, forwards, sockets) = (known.port, known.forwards, known.receive());
                    let Some(socket) = sockets.get(at) else { break };
                    let Ok(Some(received)) = socket.receive(buffer) else { break };
                    if at != OTHERS || !is_ip(received) {
                        self.station_frame(number, received);
                    } else if forwards {
                        self.connection_sent(received);
                    }
                }
            }
        }
    }

    /// A frame at a bridge port that no program has taken.
    fn station_frame(&mut self, port: BridgePort, received: &mut [u8]) {
        let frame = received.get(OFFLOADS_LEN..).unwrap_or_default();
        let (Some(to), Some(from), Some(kind)) =
            (destination(frame), source(frame), ether_type(frame))
        else {
            self.counters.malformed_frames += 1;
            return;
        };
        if kind == ETHER_TYPE {
            let octets = frame.get(HEADER_LEN..).unwrap_or_default();
            let own = self.station_port(port).and_then(|known| known.properties);
            // A port takes what is for others, too.
            let is_here = to == GROUP_ADDRESS || own.is_some_and(|own| own.mac == to);
            if octets.starts_with(&LESSON) || !is_here {
                return;
            }
            let from = LinkAddress::ethernet(from);
            self.input(MeshInput::PortHello { port, from, octets });
        } else if is_group(from) {
            self.counters.malformed_frames += 1;
        } else if is_group(to) {
            self.group_frame(port, node_of(from), received);
        } else if kind != MPLS {
            self.unicast_frame(port, (node_of(from), node_of(to)), received);
        }
    }

    /// A frame for all: looked at as others see it, with its checksum complete.
    fn group_frame(&mut self, port: BridgePort, from: NodeId, received: &mut [u8]) {
        let Some(packet) = without_offloads(received) else {
            self.counters.malformed_frames += 1;
            return;
        };
        if destination(packet).is_some_and(is_of_bridges) {
            return;
        }
        let verdict = self.node.port_frame(self.began.elapsed(), port, (from, None), packet);
        self.drain();
        if verdict == PortVerdict::All {
            self.input(MeshInput::Broadcast { from: Some(port), packet });
        }
    }

    fn unicast_frame(&mut self, port: BridgePort, (from, to): (NodeId, NodeId), received: &[u8]) {
        let frame = received.get(OFFLOADS_LEN..).unwrap_or_default();
        let verdict = self.node.port_frame(self.now(), port, (from, Some(to)), frame);
        self.drain();
        let is_cut = received.get(1).is_some_and(|cut| *cut != 0);
        match verdict {
            PortVerdict::Host => {
                let sent = self.host.deliver_offloaded.send(received);
                self.counters.send_refused += u64::from(sent.is_err());
            }
            PortVerdict::Port(other) => self.send_with_offloads(other, received),
            PortVerdict::Mesh if is_cut => self.counters.super_frames += 1,
            PortVerdict::Mesh => {
                self.counters.taken_up += 1;
                let class = frames::class(frame);
                self.input(MeshInput::Packet { destination: to, class, packet: received });
            }
            PortVerdict::Drop | PortVerdict::All => {}
        }
    }

    /// Sends a frame of this node's host to a station.
    pub(super) fn send_to_station(&mut self, port: BridgePort, received: &[u8]) {
        let frame = received.get(OFFLOADS_LEN..).unwrap_or_default();
        if self.node.may_leave(self.began.elapsed(), port, frame) {
            self.send_with_offloads(port, received);
        }
    }

    /// A frame for a station has arrived by its label.
    pub(super) fn deliver_station(&mut self, port: BridgePort, station: NodeId, carried: &[u8]) {
        // The label says the station; a frame to another one is malformed.
        if carried.len() < HEADER_LEN || destination(carried) != mac_of(station) {
            self.counters.malformed_frames += 1;
        } else if self.node.may_leave(self.began.elapsed(), port, carried) {
            let sent = self.station_port(port).map(|port| port.send_whole(carried));
            self.counters.send_refused += u64::from(!matches!(sent, Some(Ok(()))));
        }
    }

    /// An IP packet for a station whose label's entry came while it was on the way up; `false` if it has
    /// not left.
    pub(super) fn deliver_early(
        &mut self,
        port: BridgePort,
        station: NodeId,
        received: &[u8],
    ) -> bool {
        let known = self.station_port(port).filter(|known| known.forwards);
        let own = known.and_then(|known| known.properties).map(|found| found.mac);
        let ends = mac_of(station).zip(own);
        let popped = ends.and_then(|ends| frames::popped(ends, received));
        let sent = popped.zip(known).map(|(popped, known)| known.send_whole(&popped));
        let sent = matches!(sent, Some(Ok(())));
        self.counters.send_refused += u64::from(!sent);
        sent
    }

    fn send_with_offloads(&mut self, port: BridgePort, received: &[u8]) {
        let sent = self.station_port(port).map(|port| port.send(received));
        self.counters.send_refused += u64::from(!matches!(sent, Some(Ok(()))));
    }

    pub(super) fn send_hello(&mut self, port: BridgePort, to: Option<LinkAddress>, octets: &[u8]) {
        let Some(known) = self.station_port(port) else { return };
        let Some(properties) = known.properties else { return };
        let to = to.and_then(LinkAddress::to_ethernet).unwrap_or(GROUP_ADDRESS);
        let mut frame = frames::header(to, properties.mac, ETHER_TYPE);
        frame.extend(octets);
        let sent = known.send_whole(&frame);
        self.counters.send_refused += u64::from(sent.is_err());
    }

    /// Frames from the addresses of others, so that switches send there what is for them.
    pub(super) fn teach(&mut self, port: BridgePort, addresses: &[NodeId]) {
        for mac in addresses.iter().filter_map(|&address| mac_of(address)) {
            let mut frame = frames::header(GROUP_ADDRESS, mac, ETHER_TYPE);
            frame.extend(LESSON);
            let sent = self.station_port(port).map(|port| port.send_whole(&frame));
            self.counters.send_refused += u64::from(!matches!(sent, Some(Ok(()))));
        }
    }

    pub(super) fn station_port(&self, port: BridgePort) -> Option<&StationPort> {
        self.bridge.get(usize::from(port.0))
    }

    /// A port begins or ceases to forward.
    pub(super) fn port_state(&mut self, port: BridgePort, forwards: bool) {
        let Some(known) = self.bridge.get_mut(usize::from(port.0)) else { return };
        known.forwards = forwards;
        // What takes it down says so itself.
        if known.is_up {
            self.sink.log(report::port(known, false));
        }
    }

    /// Looks at the interfaces of all bridge ports, and tells the machine what has changed.
    pub(super) fn follow_bridge(&mut self, at_start: bool) {
        for number in 0..self.bridge.len() {
            let Some(known) = self.bridge.get_mut(number) else { return };
            if !(known.look() || at_start) {
                continue;
            }
            if known.properties.is_some()
                && let Err(error) = known.begin(&self.forwarding.switching)
            {
                let text = format!("port {} cannot be opened: {error}", known.name);
                self.sink.log(report::about(LogLevel::Error, "mesh-port-refused", text));
            }
            let (was, port) = (known.is_up, known.port);
            known.is_up = known.can_carry();
            let (is_up, properties) = (known.is_up, known.properties);
            if was {
                self.input(MeshInput::PortDown { port });
            }
            if let Some(found) = properties.filter(|_| is_up) {
                self.forwarding.set_bridge_port(port, &found);
                let address = LinkAddress::ethernet(found.mac);
                self.input(MeshInput::PortUp { port, address });
            }
            if let Some(known) = self.bridge.get(number).filter(|_| was != is_up) {
                self.sink.log(report::port(known, true));
            }
        }
    }
}
