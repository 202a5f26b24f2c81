//! What the host sends and no program takes, and what is sent to it.

use super::{Driver, FRAMES_AT_ONCE};
use crate::connections::ConnectionChange;
use crate::forwarding::node_of;
use crate::frames::{self, HEADER_LEN, IPV4, IPV6, destination, ether_type, is_group};
use gatewright_link::{FrameSelection, FrameSocket, InterfacePair, OFFLOADS_LEN, without_offloads};
use gatewright_mesh::MeshInput;
use std::io;

/// The socket for what is not IP among those that receive from the host, or at a bridge port.
pub(super) const OTHERS: usize = 2;

/// Sockets at the two ends of the mesh interface.
#[derive(Debug)]
pub(super) struct HostSockets {
    /// What the host sends and no program takes, and ends of TCP connections, at the peer.
    pub(super) receive: [FrameSocket; 3],
    /// Ends of TCP connections among what the host receives, at the mesh interface.
    pub(super) arrivals: FrameSocket,
    /// Sends to the host, at the peer.
    pub(super) deliver: FrameSocket,
    /// The same with offload headers, for what stations leave to a device.
    pub(super) deliver_offloaded: FrameSocket,
    /// Sends as the host does, at the mesh interface: the push program takes it.
    pub(super) inject: FrameSocket,
}

impl HostSockets {
    pub(super) fn open(pair: &InterfacePair) -> io::Result<Self> {
        let at_peer = |selection| FrameSocket::open(pair.peer_index(), selection, true);
        Ok(Self {
            receive: [
                at_peer(FrameSelection::EtherType(IPV4))?,
                at_peer(FrameSelection::EtherType(IPV6))?,
                at_peer(FrameSelection::NotIpOrTcpEnds)?,
            ],
            arrivals: FrameSocket::open(pair.index(), FrameSelection::TcpEnds, false)?,
            deliver: FrameSocket::open(pair.peer_index(), FrameSelection::Nothing, false)?,
            deliver_offloaded: at_peer(FrameSelection::Nothing)?,
            inject: FrameSocket::open(pair.index(), FrameSelection::Nothing, true)?,
        })
    }
}

impl Driver {
    pub(super) fn take_host_frames(&mut self, buffer: &mut [u8]) {
        for number in 0..self.host.receive.len() {
            for _ in 0..FRAMES_AT_ONCE {
                let Some(socket) = self.host.receive.get(number) else { break };
                let Ok(Some(received)) = socket.receive(buffer) else { break };
                if number == OTHERS && is_ip(received) {
                    self.connection_sent(received);
                } else {
                    self.host_frame(received);
                }
            }
        }
        for _ in 0..FRAMES_AT_ONCE {
            let Ok(Some(frame)) = self.host.arrivals.receive(buffer) else { break };
            let change = self.connections.received(frame);
            self.connections_changed(change);
        }
    }

    /// The host or a station has sent the first or the last segment of a TCP connection.
    pub(super) fn connection_sent(&mut self, received: &[u8]) {
        let frame = received.get(OFFLOADS_LEN..).unwrap_or_default();
        let to = destination(frame).unwrap_or_default();
        // Between hosts and stations of this node nothing enters the mesh.
        if to != self.own && self.node.port_of(node_of(to)).is_none() {
            let change = self.connections.sent(self.now(), frame);
            self.connections_changed(change);
        }
    }

    fn connections_changed(&mut self, change: Option<ConnectionChange>) {
        if let Some((destination, any)) = change {
            self.input(MeshInput::Connections { destination, any });
        }
    }

    /// A frame of the host that no program has taken: to a group, not IP, or without a path.
    fn host_frame(&mut self, received: &mut [u8]) {
        let cut = received.get(1).is_some_and(|cut| *cut != 0);
        let frame = received.get(OFFLOADS_LEN..).unwrap_or_default();
        let Some(to) = destination(frame).filter(|_| frame.len() >= HEADER_LEN) else {
            self.counters.malformed_frames += 1;
            return;
        };
        if let Some(port) = self.node.port_of(node_of(to)) {
            self.send_to_station(port, received);
        } else if cut {
            self.counters.super_frames += 1;
        } else if is_group(to) {
            match without_offloads(received) {
                Some(packet) => self.input(MeshInput::Broadcast { from: None, packet }),
                None => self.counters.malformed_frames += 1,
            }
        } else if to != self.own {
            self.counters.taken_up += 1;
            let class = frames::class(frame);
            let packet: &[u8] = received;
            self.input(MeshInput::Packet { destination: node_of(to), class, packet });
        }
    }

    /// Gives a frame to the host; `false` if it has not got it.
    pub(super) fn deliver(&mut self, frame: &[u8]) -> bool {
        if frame.len() < HEADER_LEN {
            self.counters.malformed_frames += 1;
            return false;
        }
        let sent = self.host.deliver.send(frame).is_ok();
        self.counters.send_refused += u64::from(!sent);
        sent
    }
}

/// Whether a frame with its offload header is an IP packet: at the socket for others, a segment that opens or
/// ends a connection.
pub(super) fn is_ip(received: &[u8]) -> bool {
    let frame = received.get(OFFLOADS_LEN..).unwrap_or_default();
    matches!(ether_type(frame), Some(IPV4 | IPV6))
}
