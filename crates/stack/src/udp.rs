//! UDP (RFC 768; RFC 8200 §8.1 for IPv6): the layer, and the sockets above it.

use crate::{
    At, IcmpError, Layer, Out, Reason,
    socket::{Command, Delivery, Departure, SocketEnd, SocketsEnd, unspecified},
};
use gatewright_packet::{Arrival, Batch, Checksum, LinkIndex, Packet, Pool};
use gatewright_wire::{
    EtherType, IpProtocol,
    ipv4::{Ipv4, Ipv4Fields},
    ipv6::{Ipv6, Ipv6Fields},
    udp::{Udp, UdpFields},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::Ordering,
    time::Duration,
};

/// The datagram is shorter than its header or than it says.
const LENGTH: Reason = Reason("bad-length");
/// The checksum is wrong.
const CHECKSUM: Reason = Reason("bad-checksum");
/// Over IPv6 there must be a checksum.
const NO_CHECKSUM: Reason = Reason("no-checksum");
/// The packet's network header is not in front of it.
const NO_NETWORK: Reason = Reason("no-network-header");
/// Nobody listens on the port.
const NO_SOCKET: Reason = Reason("no-socket");
/// The application does not read.
const SOCKET_FULL: Reason = Reason("socket-full");
/// No packet was free for a datagram to send.
const NO_PACKET: Reason = Reason("no-packet");
/// No address to send from.
const NO_SOURCE: Reason = Reason("no-source");

/// Who a packet is from and to, read from its network header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ends {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
}

impl Ends {
    /// Reads the marked network header of `packet`.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let network = packet.network_octets();
        match network.first()? >> 4 {
            4 => {
                let (ip, _) = Ipv4::split(network).ok()?;
                Some(Self { from: ip.source_address().into(), to: ip.destination_address().into() })
            }
            6 => {
                let (ip, _) = Ipv6::split(network).ok()?;
                Some(Self { from: ip.source_address().into(), to: ip.destination_address().into() })
            }
            _ => None,
        }
    }

    /// The pseudo header of a transport packet between the two.
    pub(crate) fn pseudo_header(self, protocol: IpProtocol, len: u16) -> gatewright_wire::Checksum {
        use gatewright_wire::Checksum;
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Checksum::pseudo_ipv4(from, to, protocol, len),
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Checksum::pseudo_ipv6(from, to, protocol, len.into())
            }
            // A network header has both of one family.
            _ => Checksum::new(),
        }
    }
}

/// Takes the UDP header off and demultiplexes by destination port.
///
/// Expects UDP datagrams with their network header marked. Pushes payloads to `udp:PORT`; their
/// ports stand in `parameter`, source first. Counts `bad-length`, `bad-checksum`, `no-checksum`.
#[derive(Debug, Default)]
pub struct UdpLayer;

impl Layer for UdpLayer {
    fn name(&self) -> &'static str {
        "udp"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for mut packet in batch.drain() {
            match accept(&packet) {
                Ok((source, destination, len)) => {
                    packet.truncate(len);
                    packet.strip(Udp::LEN);
                    packet.meta_mut().parameter = u32::from(source) << 16 | u32::from(destination);
                    out.push_or_drop(At::UdpPort(destination), packet);
                }
                Err(reason) => out.drop(reason, packet),
            }
        }
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}
}

/// The ports and the length of a datagram that is whole.
fn accept(packet: &Packet) -> Result<(u16, u16, usize), Reason> {
    let (udp, _) = Udp::split(packet.octets()).map_err(|_| LENGTH)?;
    let ends = Ends::of(packet).ok_or(NO_NETWORK)?;
    let len = usize::from(udp.length());
    let datagram = packet.octets().get(..len).filter(|_| len >= Udp::LEN).ok_or(LENGTH)?;
    match (udp.checksum(), ends.from) {
        // RFC 768: "An all zero transmitted checksum value means that the transmitter generated
        // no checksum"; RFC 8200 §8.1: receivers must discard such packets.
        (0, IpAddr::V4(_)) => {}
        (0, IpAddr::V6(_)) => return Err(NO_CHECKSUM),
        // The sender is on this machine and left the checksum to a device that does not exist.
        _ if packet.meta().checksum == Checksum::Partial => {}
        _ => {
            let mut sum = ends.pseudo_header(IpProtocol::UDP, udp.length());
            sum.add(datagram);
            if !sum.is_valid() {
                return Err(CHECKSUM);
            }
        }
    }
    Ok((udp.source_port(), udp.destination_port(), len))
}

/// The sockets of the stack: hands datagrams to applications, and sends theirs.
///
/// Expects payloads from [`UdpLayer`]. Asks for *port unreachable* where nobody listens. Counts
/// `no-socket`, `socket-full`, `no-packet`, `no-source`.
#[derive(Debug)]
pub struct UdpSockets {
    end: SocketsEnd,
    sockets: Vec<SocketEnd>,
    memberships: Vec<(u32, IpAddr, LinkIndex)>,
}

/// Datagrams of one socket that are sent before the next one's turn.
const TURN_MAX: usize = 64;

impl UdpSockets {
    pub(crate) const fn new(end: SocketsEnd) -> Self {
        Self { end, sockets: Vec::new(), memberships: Vec::new() }
    }

    /// Does what applications asked.
    fn obey(&mut self, out: &mut Out<'_>) {
        while let Ok(command) = self.end.commands.try_recv() {
            match command {
                Command::Open(socket) => self.sockets.push(socket),
                Command::Close(id) => {
                    self.sockets.retain(|socket| socket.id != id);
                    let over = self.memberships.extract_if(.., |(socket, ..)| *socket == id);
                    over.for_each(|(_, group, link)| out.join(group, link, false));
                }
                Command::Join(id, group, link) => {
                    self.memberships.push((id, group, link));
                    out.join(group, link, true);
                }
                Command::Leave(id, group, link) => {
                    self.memberships.retain(|&membership| membership != (id, group, link));
                    out.join(group, link, false);
                }
            }
        }
    }

    /// Sends what applications have written; whether something is left.
    fn send(&self, out: &mut Out<'_>) -> bool {
        let mut left = false;
        for socket in &self.sockets {
            for sent in 0..=TURN_MAX {
                if sent == TURN_MAX {
                    left = true;
                    break;
                }
                let Some(Departure { to, octets }) = socket.depart() else { break };
                let link = self.link_of(socket.id, to.ip());
                if let Some(packet) = datagram(socket.local, to, link, &octets, out) {
                    let ether_type = if to.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
                    out.push_or_drop(At::Local(ether_type), packet);
                }
                // The application makes a new one if this comes too late.
                let _late = socket.used.try_send(octets);
            }
        }
        left
    }

    /// The link by which a socket reaches a group.
    fn link_of(&self, id: u32, to: IpAddr) -> Option<LinkIndex> {
        let joined =
            self.memberships.iter().find(|&&(socket, group, _)| socket == id && group == to);
        joined.map(|&(.., link)| link)
    }

    /// Hands a datagram to the one socket it is for, or to each that takes part in the group.
    fn deliver(&self, packet: Packet, out: &mut Out<'_>) {
        let Some(ends) = Ends::of(&packet) else { return out.drop(NO_NETWORK, packet) };
        let [a, b, c, d] = packet.meta().parameter.to_be_bytes();
        let (source, port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let from = SocketAddr::new(ends.from, source);
        let to_many = ends.to.is_multicast() || packet.meta().arrival == Arrival::Broadcast;
        let listens = |socket: &&SocketEnd| {
            socket.local.port() == port
                && socket.local.is_ipv4() == ends.to.is_ipv4()
                && (socket.local.ip() == ends.to || socket.local.ip().is_unspecified() || to_many)
        };
        let mut listeners = self.sockets.iter().filter(listens);
        let delivery = |packet: Packet| Delivery { from, parcel: packet.into_parcel() };
        let mut refused = 0;
        if to_many {
            for socket in listeners {
                let copy = out.datagrams().packet_of(packet.octets());
                refused +=
                    u64::from(copy.is_none_or(|copy| socket.deliver(delivery(copy)).is_err()));
            }
        } else if let Some(socket) = listeners.next() {
            refused += u64::from(socket.deliver(delivery(packet)).is_err());
        } else {
            out.count(NO_SOCKET);
            return unreachable(packet, out);
        }
        for _ in 0..refused {
            out.count(SOCKET_FULL);
        }
    }
}

/// Asks for an ICMP error that nobody listens on the port.
fn unreachable(mut packet: Packet, out: &mut Out<'_>) {
    packet.restore_network();
    let version = packet.octets().first().map_or(0, |octet| octet >> 4);
    let ether_type = if version == 4 { EtherType::IPV4 } else { EtherType::IPV6 };
    out.push_or_drop(At::Error(ether_type, IcmpError::PortUnreachable), packet);
}

impl Layer for UdpSockets {
    fn name(&self) -> &'static str {
        "udp-sockets"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        self.obey(out);
        for packet in batch.drain() {
            self.deliver(packet, out);
        }
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}

    fn poll_timeout(&self) -> Option<Duration> {
        self.end.work.load(Ordering::Acquire).then_some(Duration::ZERO)
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        // Cleared before looking: what comes after this asks again.
        self.end.work.store(false, Ordering::Release);
        self.obey(out);
        if self.send(out) {
            self.end.work.store(true, Ordering::Release);
        }
    }
}

/// A datagram with its UDP and IP headers.
fn datagram(
    local: SocketAddr,
    to: SocketAddr,
    link: Option<LinkIndex>,
    octets: &[u8],
    out: &mut Out<'_>,
) -> Option<Packet> {
    let chosen = |ip: IpAddr| (!ip.is_unspecified()).then_some(ip);
    let host = out.host();
    let source = chosen(local.ip()).or_else(|| match to.ip() {
        IpAddr::V4(ip) if link.is_some() => host.source4_on(link, ip).map(IpAddr::V4),
        IpAddr::V4(ip) => host.source4(ip).map(IpAddr::V4),
        IpAddr::V6(ip) => host.source6(link, ip).map(IpAddr::V6),
    });
    // Broadcast is sent before there is an address, as DHCP must (RFC 2131 §4.1).
    let limited = matches!(to.ip(), IpAddr::V4(ip) if ip.is_broadcast());
    let Some(source) = source.or_else(|| limited.then(|| unspecified(to.ip()))) else {
        out.count(NO_SOURCE);
        return None;
    };
    let headers = Udp::LEN + Ipv6::LEN;
    let fits = |pool: &Pool| octets.len() + headers <= pool.packet_len_max();
    let pool = if fits(out.frames()) { out.frames() } else { out.datagrams() };
    let made = pool.packet_of(octets).and_then(|mut packet| {
        wrap(&mut packet, SocketAddr::new(source, local.port()), to)?;
        packet.meta_mut().egress = link.unwrap_or(LinkIndex::NONE);
        Some(packet)
    });
    if made.is_none() {
        out.count(NO_PACKET);
    }
    made
}

/// Puts the UDP and IP headers in front of a payload.
pub(crate) fn wrap(packet: &mut Packet, from: SocketAddr, to: SocketAddr) -> Option<()> {
    let length = u16::try_from(packet.len() + Udp::LEN).ok()?;
    let (source_port, destination_port) = (from.port(), to.port());
    let fields = UdpFields { source_port, destination_port, length, checksum: 0 };
    packet.prepend(&fields.emit()).ok()?;
    let ends = Ends { from: from.ip(), to: to.ip() };
    let mut sum = ends.pseudo_header(IpProtocol::UDP, length);
    sum.add(packet.octets());
    let checksum = sum.finish_udp();
    let header = packet.octets_mut().first_chunk_mut()?;
    gatewright_wire::udp::UdpMut::of(header).set_checksum(checksum);
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = u16::try_from(packet.len() + Ipv4::LEN).ok()?;
            packet.prepend(&Ipv4Fields::new(IpProtocol::UDP, from, to, total).emit()).ok()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.prepend(&Ipv6Fields::new(IpProtocol::UDP, from, to, length).emit()).ok()
        }
        _ => None,
    }
}
