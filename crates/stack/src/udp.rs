//! UDP (RFC 768; RFC 8200 §8.1 for IPv6): the layer, and the sockets above it.

use crate::{
    At, Datagram, IcmpError, Layer, Out, PacketOctets, Reason, SendError, SocketIndex,
    application::WorkerApplication,
    ipv4::TIME_TO_LIVE,
    refused::Refused,
    socket::{Command, Delivery, Departure, SocketEnd, SocketsEnd, unspecified},
};
use gatewright_packet::{Arrival, Batch, Checksum, LinkIndex, NextHop, Packet, Pool};
use gatewright_wire::{
    EtherType, IpProtocol,
    ipv4::{Ipv4, Ipv4Fields, Ipv4Mut},
    ipv6::{Ipv6, Ipv6Fields, Ipv6Mut},
    udp::{Udp, UdpFields},
};
use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::atomic::Ordering,
    time::Duration,
};

/// The datagram is shorter than its header or its length field.
const LENGTH: Reason = Reason("bad-length");
/// The checksum is wrong.
const CHECKSUM: Reason = Reason("bad-checksum");
/// A datagram over IPv6 has no checksum, which is required there.
const NO_CHECKSUM: Reason = Reason("no-checksum");
/// The packet's network header does not precede it.
const NO_NETWORK: Reason = Reason("no-network-header");
/// No socket listens on the port.
const NO_SOCKET: Reason = Reason("no-socket");
/// The application does not read.
const SOCKET_FULL: Reason = Reason("socket-full");
/// An ICMP error about a packet other than a datagram.
const NOT_UDP: Reason = Reason("not-udp");
/// No packet was free for a datagram to send.
const NO_PACKET: Reason = Reason("no-packet");
/// A datagram to be forwarded has been through too many relays and routers.
pub(crate) const HOPS_SPENT: Reason = Reason("hops-spent");
/// No address to send from.
const NO_SOURCE: Reason = Reason("no-source");

/// Source and destination of a packet, from its network header.
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

/// The UDP layer: strips the UDP header and demultiplexes by destination port.
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

/// The ports and the length of a valid datagram.
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

/// The sockets of the stack: delivers datagrams to applications, and sends theirs.
///
/// Expects payloads from [`UdpLayer`]. Applications on the worker are called at the end of each
/// batch with datagrams for them; those on other threads get all of a batch at once. Requests *port
/// unreachable* where no socket listens. Takes *destination unreachable* by `icmp:3` and `icmpv6:1`
/// and reports it to the socket that sent the datagram. Counts `no-socket`, `socket-full`,
/// `no-packet`, `no-source`, `hops-spent`, `not-udp`.
#[derive(Debug)]
pub struct UdpSockets {
    end: SocketsEnd,
    sockets: Vec<SocketEnd>,
    applications: Vec<WorkerApplication>,
    /// The listeners, in the order of ports.
    listeners: Vec<BoundListener>,
    /// The last port looked up, with the places of its listeners: packets of a batch mostly go to
    /// one port.
    last: (u16, Range<usize>),
    /// Sockets on other threads that got datagrams in this batch.
    touched: Vec<usize>,
    memberships: Vec<(u32, IpAddr, LinkIndex)>,
}

/// A listener: an address and port with its socket.
#[derive(Clone, Copy, Debug)]
struct BoundListener {
    local: SocketAddr,
    to: Receiver,
}

impl BoundListener {
    /// Whether it takes a datagram to `ip`, or one to many.
    fn takes(&self, ip: IpAddr, to_many: bool) -> bool {
        let own = self.local.ip();
        own.is_ipv4() == ip.is_ipv4() && (own == ip || own.is_unspecified() || to_many)
    }
}

/// The receiver of its datagrams.
#[derive(Clone, Copy, Debug)]
enum Receiver {
    /// The socket at this place, read on a thread outside the worker.
    Thread(usize),
    /// A socket of the application at this place.
    Application(usize, SocketIndex),
}

/// Datagrams of one socket that are sent before the next one's turn.
const TURN_MAX: usize = 64;

impl UdpSockets {
    pub(crate) const fn new(end: SocketsEnd) -> Self {
        Self {
            end,
            sockets: Vec::new(),
            applications: Vec::new(),
            listeners: Vec::new(),
            last: (0, 0..0),
            touched: Vec::new(),
            memberships: Vec::new(),
        }
    }

    /// Executes commands of applications.
    fn obey(&mut self, out: &mut Out<'_>) {
        let (mut changed, mut executed) = (false, Vec::new());
        while let Ok((command, _)) = self.end.commands.try_recv() {
            changed = true;
            match command {
                Command::Open(socket) => self.sockets.push(*socket),
                Command::Close(id) => {
                    self.sockets.retain(|socket| socket.id != id);
                    let over = self.memberships.extract_if(.., |(socket, ..)| *socket == id);
                    over.for_each(|(_, group, link)| out.join(group, link, false));
                }
                Command::Start(id, application, (locals, _)) => {
                    self.applications.push(WorkerApplication::new(id, application, &locals));
                }
                Command::Stop(id) => self.applications.retain(|running| running.id != id),
                Command::Join(id, group, link) => {
                    self.memberships.push((id, group, link));
                    out.join(group, link, true);
                }
                Command::Leave(id, group, link) => {
                    self.memberships.retain(|&membership| membership != (id, group, link));
                    out.join(group, link, false);
                }
                Command::Executed(told) => executed.push(told),
            }
        }
        if changed {
            self.sort_listeners();
        }
        for told in executed {
            // Who does not wait any more does not miss it.
            let _unwanted = told.send(());
        }
    }

    /// Sorts all listeners by port.
    fn sort_listeners(&mut self) {
        let threads = (self.sockets.iter().enumerate()).map(|(index, socket)| BoundListener {
            local: socket.local,
            to: Receiver::Thread(index),
        });
        let applications = (self.applications.iter().enumerate()).flat_map(|(index, running)| {
            (0..).map(SocketIndex).zip(&running.sockets).map(move |(socket, own)| BoundListener {
                local: own.local,
                to: Receiver::Application(index, socket),
            })
        });
        // An application receives the datagrams of an address that it shares with a socket.
        self.listeners = applications.chain(threads).collect();
        self.listeners.sort_by_key(|listener| listener.local.port());
        self.last = (0, 0..0);
    }

    /// The places of a port's listeners.
    fn listeners_of(&mut self, port: u16) -> Range<usize> {
        if self.last.0 != port {
            let first = self.listeners.partition_point(|listener| listener.local.port() < port);
            let behind = self.listeners.partition_point(|listener| listener.local.port() <= port);
            self.last = (port, first..behind);
        }
        self.last.1.clone()
    }

    /// Sends the datagrams of applications; returns whether any are left.
    fn send(&self, out: &mut Out<'_>) -> bool {
        let mut left = false;
        for socket in &self.sockets {
            for sent in 0..=TURN_MAX {
                if sent == TURN_MAX {
                    left = true;
                    break;
                }
                let Some(Departure { to, octets, multicast }) = socket.depart() else { break };
                let chosen = multicast.and_then(|(_, link)| link);
                let link = self.link_of(socket.id, to.ip()).or(chosen);
                let own = Some(socket.local.ip()).filter(|ip| !ip.is_unspecified());
                let from = own.or_else(|| source_for(to.ip(), link, out));
                let from = from.map(|ip| SocketAddr::new(ip, socket.local.port()));
                let packet = from.and_then(|from| datagram(from, to, link, &octets, out));
                if let Some(mut packet) = packet {
                    if let Some((hops, _)) = multicast {
                        set_hops(&mut packet, hops);
                    }
                    send_down(packet, to, out);
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

    /// Delivers a datagram to its one socket, or to each member of the group.
    fn deliver(&mut self, packet: Packet, out: &mut Out<'_>) {
        let Some(ends) = Ends::of(&packet) else { return out.drop(NO_NETWORK, packet) };
        let [a, b, c, d] = packet.meta().parameter.to_be_bytes();
        let (source, port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let from = SocketAddr::new(ends.from, source);
        let to_many = ends.to.is_multicast() || packet.meta().arrival == Arrival::Broadcast;
        let listeners = self.listeners_of(port);
        if to_many {
            let mut has_listener = false;
            for index in listeners {
                let Some(&listener) = self.listeners.get(index) else { break };
                if listener.takes(ends.to, to_many) {
                    has_listener = true;
                    let copy = out.datagrams().packet_of(packet.octets());
                    let datagram = copy.map(|packet| Datagram { packet, from, to: ends.to, port });
                    let taken = datagram.is_some_and(|datagram| self.enter(listener, datagram));
                    if !taken {
                        out.count(SOCKET_FULL);
                    }
                }
            }
            if !has_listener {
                out.drop(NO_SOCKET, packet);
            }
            return;
        }
        let found = self.listeners.get(listeners).unwrap_or_default().iter();
        let Some(&listener) = found.into_iter().find(|listener| listener.takes(ends.to, to_many))
        else {
            out.count(NO_SOCKET);
            return unreachable(packet, out);
        };
        if !self.enter(listener, Datagram { packet, from, to: ends.to, port }) {
            out.count(SOCKET_FULL);
        }
    }

    /// Reports an undelivered datagram to its socket, or to the application on the worker.
    fn refuse(&mut self, packet: Packet, out: &mut Out<'_>) {
        let Some(Refused { local, peer, why }) = Refused::of(&packet) else {
            return out.drop(NOT_UDP, packet);
        };
        let ours = out.host().interfaces().iter().any(|interface| interface.has(local.ip()));
        let listeners = self.listeners_of(local.port());
        let mut listeners = self.listeners.get(listeners).unwrap_or_default().iter();
        let found = listeners.find(|listener| ours && listener.takes(local.ip(), false));
        let Some(&BoundListener { to, .. }) = found else { return out.drop(NO_SOCKET, packet) };
        let index = match to {
            Receiver::Thread(index) => index,
            Receiver::Application(index, socket) => {
                if let Some(running) = self.applications.get_mut(index) {
                    running.application.handle_unreachable(socket, peer, out.now());
                }
                return;
            }
        };
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if !self.touched.contains(&index) {
            self.touched.push(index);
        }
        if socket.deliver(Delivery { from: peer, content: Err(why) }).is_err() {
            out.count(SOCKET_FULL);
        }
    }

    /// Delivers a datagram to a listener; returns whether there was room.
    fn enter(&mut self, listener: BoundListener, datagram: Datagram) -> bool {
        match listener.to {
            Receiver::Thread(index) => {
                let Some(socket) = self.sockets.get_mut(index) else { return false };
                let Datagram { packet, from, .. } = datagram;
                if !self.touched.contains(&index) {
                    self.touched.push(index);
                }
                socket
                    .deliver(Delivery {
                        from,
                        content: Ok(PacketOctets::Chunk(packet.into_parcel())),
                    })
                    .is_ok()
            }
            Receiver::Application(index, socket) => {
                let running = self.applications.get_mut(index);
                running.is_some_and(|running| running.deliver(socket, datagram).is_ok())
            }
        }
    }

    /// Passes collected datagrams to all their receivers.
    fn hand_over(&mut self, out: &mut Out<'_>) {
        for running in self.applications.iter_mut().filter(|running| running.is_ready()) {
            running.call(out);
        }
        self.pass_on(out);
        for index in self.touched.drain(..) {
            if let Some(socket) = self.sockets.get_mut(index) {
                socket.hand_over();
            }
        }
    }

    /// Delivers what applications have passed on to the sockets at the same addresses.
    fn pass_on(&mut self, out: &mut Out<'_>) {
        for index in 0..self.applications.len() {
            let Some(running) = self.applications.get_mut(index) else { return };
            let mut passed = std::mem::take(&mut running.passed);
            for datagram in passed.drain(..) {
                self.pass_on_one(datagram, out);
            }
            // The buffer is used again.
            if let Some(running) = self.applications.get_mut(index) {
                running.passed = passed;
            }
        }
    }

    fn pass_on_one(&mut self, datagram: Datagram, out: &mut Out<'_>) {
        let listeners = self.listeners_of(datagram.port);
        let found = self.listeners.get(listeners).unwrap_or_default().iter();
        let is_meant = |listener: &&&BoundListener| {
            matches!(listener.to, Receiver::Thread(_)) && listener.takes(datagram.to, false)
        };
        match found.into_iter().find(|listener| is_meant(&listener)).copied() {
            None => out.count(NO_SOCKET),
            Some(listener) => {
                if !self.enter(listener, datagram) {
                    out.count(SOCKET_FULL);
                }
            }
        }
    }
}

/// Requests an ICMP error because no socket listens on the port.
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
        let is_error = matches!(out.at(), At::Icmpv4Type(_) | At::Icmpv6Type(_));
        for packet in batch.drain() {
            if is_error {
                self.refuse(packet, out);
            } else {
                self.deliver(packet, out);
            }
        }
        self.hand_over(out);
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}

    fn poll_timeout(&self) -> Option<Duration> {
        if self.end.work.load(Ordering::Acquire) {
            return Some(Duration::ZERO);
        }
        self.applications.iter().filter_map(|running| running.application.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        // Cleared before looking: what comes after this asks again.
        self.end.work.store(false, Ordering::Release);
        self.obey(out);
        if self.send(out) {
            self.end.work.store(true, Ordering::Release);
        }
        let now = out.now();
        for running in &mut self.applications {
            if running.application.poll_timeout().is_some_and(|at| at <= now) {
                running.call(out);
            }
        }
        self.hand_over(out);
    }
}

/// The source address for `to`, by `link` or by the link of its route; counts a missing one.
pub(crate) fn source_for(to: IpAddr, link: Option<LinkIndex>, out: &mut Out<'_>) -> Option<IpAddr> {
    let host = out.host();
    let source = match to {
        IpAddr::V4(ip) if link.is_some() => host.source4_on(link, ip).map(IpAddr::V4),
        IpAddr::V4(ip) => host.source4(ip).map(IpAddr::V4),
        IpAddr::V6(ip) => host.source6(link, ip).map(IpAddr::V6),
    };
    // Broadcast is sent before there is an address, as DHCP must (RFC 2131 §4.1).
    let limited = matches!(to, IpAddr::V4(ip) if ip.is_broadcast());
    let source = source.or_else(|| limited.then(|| unspecified(to)));
    if source.is_none() {
        out.count(NO_SOURCE);
    }
    source
}

/// Builds a datagram with its UDP and IP headers; counts a missing packet.
pub(crate) fn datagram(
    from: SocketAddr,
    to: SocketAddr,
    link: Option<LinkIndex>,
    octets: &[u8],
    out: &mut Out<'_>,
) -> Option<Packet> {
    let headers = Udp::LEN + Ipv6::LEN;
    let fits = |pool: &Pool| octets.len() + headers <= pool.packet_len_max();
    let pool = if fits(out.frames()) { out.frames() } else { out.datagrams() };
    let made = pool.packet_of(octets).and_then(|mut packet| {
        wrap(&mut packet, from, to)?;
        packet.meta_mut().egress = link.unwrap_or(LinkIndex::NONE);
        Some(packet)
    });
    if made.is_none() {
        out.count(NO_PACKET);
    }
    made
}

/// Forwards a received payload with new headers, in its own chunk.
///
/// A datagram that goes from relay to relay spends a hop at each, as RFC 8656 §15 prefers ("set the
/// outgoing Time to Live/Hop Count to one less than the incoming value"). So a datagram in a loop
/// comes to an end.
pub(crate) fn forward(
    mut packet: Packet,
    from: SocketAddr,
    to: SocketAddr,
    out: &mut Out<'_>,
) -> Result<(), SendError> {
    let Some(hops) = hops_left(&packet) else {
        out.drop(HOPS_SPENT, packet);
        return Err(SendError::HopsSpent);
    };
    let meta = packet.meta_mut();
    meta.egress = LinkIndex::NONE;
    meta.next_hop = NextHop::Unknown;
    meta.arrival = Arrival::Unicast;
    // The new checksum is computed whole: the sender's, partial or not, is gone with its header.
    meta.checksum = Checksum::Complete;
    if wrap(&mut packet, from, to).and_then(|()| set_hops(&mut packet, hops)).is_none() {
        let len = packet.len();
        out.drop(NO_PACKET, packet);
        return Err(SendError::NoPacket(len));
    }
    send_down(packet, to, out);
    Ok(())
}

/// The hops of a received datagram when it is forwarded, at most our own initial value; none if it
/// has spent them. The hop limit keeps multicast and broadcast on their link, so these begin anew.
pub(crate) fn hops_left(packet: &Packet) -> Option<u8> {
    let network = packet.network_octets();
    let (hops, to_many) = match network.first().map(|first| first >> 4) {
        Some(4) => {
            let (ip, _) = Ipv4::split(network).ok()?;
            (ip.time_to_live(), ip.destination_address().is_multicast())
        }
        Some(6) => {
            let (ip, _) = Ipv6::split(network).ok()?;
            (ip.hop_limit(), ip.destination_address().is_multicast())
        }
        _ => return Some(TIME_TO_LIVE),
    };
    if to_many || packet.meta().arrival == Arrival::Broadcast {
        return Some(TIME_TO_LIVE);
    }
    hops.checked_sub(1).filter(|&left| left > 0).map(|left| left.min(TIME_TO_LIVE))
}

/// Sets the hop limit in the IP header in front.
pub(crate) fn set_hops(packet: &mut Packet, hops: u8) -> Option<()> {
    let octets = packet.octets_mut();
    match octets.first()? >> 4 {
        4 => Ipv4Mut::of(octets.first_chunk_mut()?).set_time_to_live(hops),
        _ => Ipv6Mut::of(octets.first_chunk_mut()?).set_hop_limit(hops),
    }
    Some(())
}

/// Passes a packet with its headers to the network layer.
pub(crate) fn send_down(packet: Packet, to: SocketAddr, out: &mut Out<'_>) {
    let ether_type = if to.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    out.push_or_drop(At::Local(ether_type), packet);
}

/// Prepends the UDP and IP headers to a payload.
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
