//! The Internet protocol, version 4, as host and router (RFC 791, RFC 1122 §3, RFC 1812 §4.2, §5).

mod fragment;
mod header;
pub(crate) mod options;
mod transit;

use crate::{
    At, IcmpError, Layer, Out, Reason, Route, Side, UNCLAIMED,
    arp::NO_FRAME,
    destination::{Destinations, Ingress},
    layer::Each,
    random::Random,
    reassembly::{Reassembly, Whole},
    redirect,
    wiring::EdgeIndex,
};
use gatewright_packet::{Arrival, Batch, LinkIndex, NextHop, Packet};
use gatewright_tables::HopIndex;
use gatewright_wire::{EtherType, IpProtocol, ipv4::Ipv4Mut};
use header::Header;
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// The source is not another host's address, or the destination is not one that routers forward to
/// (RFC 1812 §5.3.7).
const MARTIAN: Reason = Reason("martian");

/// The frame was sent to a group of stations, the packet to one host (RFC 1122 §3.3.6, RFC 1812
/// §5.3.4).
const LINK_BROADCAST: Reason = Reason("link-broadcast");

/// A broadcast to the subnet of another link (RFC 2644).
const DIRECTED_BROADCAST: Reason = Reason("directed-broadcast");

/// For a multicast group that we did not join.
const NOT_JOINED: Reason = Reason("not-joined");

/// For another host, and the receiving link does not forward.
const NOT_FORWARDING: Reason = Reason("not-forwarding");

/// The route is a blackhole, or the kernel has the packets of a shared link.
const BLACKHOLE: Reason = Reason("blackhole");

/// The outgoing link is down, or its device has disappeared.
const LINK_DOWN: Reason = Reason("link-down");

/// The sender set the route itself, which is refused (RFC 7126 §4.3).
const SOURCE_ROUTE: Reason = Reason("source-route");

/// We have no source address.
const NO_SOURCE: Reason = Reason("no-source");

/// An upper layer sent something that is no IPv4 packet.
const MISUSE: Reason = Reason("misuse");

/// The time to live of our packets (RFC 1122 §3.2.1.7, IANA's recommended value).
pub(crate) const TIME_TO_LIVE: u8 = 64;

/// The least path MTU that is accepted from an error: the size that a host may send anywhere (RFC
/// 1122 §3.3.3). Routers on narrower paths fragment such packets.
pub(crate) const PATH_MTU_MIN: usize = 576;

/// IPv4 on all links of a host.
///
/// Receives `ether:ipv4`; delivers packets for this host by `ip:PROTOCOL`, reassembled, with the
/// header stripped and marked ([`Packet::restore_network`]); forwards the rest by the host's one
/// router, down to the next link. Transmits packets that begin with an IPv4 header: the layer above
/// fills in protocol and destination, and optionally source, time to live, type of service, *don't
/// fragment*; `egress` names the link of broadcasts and multicasts. Requests ICMP errors at
/// `error:ipv4:CAUSE`. Drops malformed headers by cause, `martian`, `link-broadcast`,
/// `directed-broadcast`, `not-joined`, `not-forwarding`, `blackhole`, `link-down`, `source-route`,
/// `no-source`, `no-frame`, and the drops of reassembly.
#[derive(Debug)]
pub struct Ipv4Layer {
    reassembly: Reassembly,
    identifications: Identifications,
    /// The cache of forwarded destinations.
    destinations: Destinations<Ipv4Addr>,
    /// Our address in the last packet for us, and the age of `destinations` then: the packets of a
    /// socket come in runs.
    own: (Ipv4Addr, u32),
    /// Whether another worker handles all except transit.
    transit_only: bool,
}

/// Why a packet is not passed on.
#[derive(Clone, Copy)]
enum Refusal {
    Drop(Reason),
    Error(IcmpError, u32),
}

/// The way of a packet.
#[derive(Clone, Copy)]
enum Way {
    Up,
    Down(LinkIndex, NextHop),
}

impl Ipv4Layer {
    /// IPv4 without pending reassembly; `random` makes identifications unpredictable (RFC 7739 §5).
    pub fn new(random: u64) -> Self {
        let identifications = Identifications::new(random);
        let destinations = Destinations::default();
        let reassembly = Reassembly::default();
        let own = (Ipv4Addr::UNSPECIFIED, 0);
        Self { reassembly, identifications, destinations, own, transit_only: false }
    }

    /// A layer that only forwards: everything except plain transit goes to the first worker.
    pub(crate) fn transit_only(random: u64) -> Self {
        Self { transit_only: true, ..Self::new(random) }
    }
}

/// A received batch.
struct Received<'a> {
    layer: &'a mut Ipv4Layer,
    /// The address of ours that the last packet was for, if it still is.
    own: Ipv4Addr,
    ingress: Ingress,
}

impl Each for Received<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as if it stood in the loop over the batch")]
    fn ready(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Option<EdgeIndex> {
        if !self.ingress.forwards(packet, out.host()) {
            return None;
        }
        transit::pass(packet, &mut self.layer.destinations, self.own, out)
    }

    fn other(&mut self, packet: Packet, out: &mut Out<'_>) {
        self.layer.accept(packet, out);
    }
}

impl Layer for Ipv4Layer {
    fn name(&self) -> &'static str {
        "ipv4"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        self.destinations.refresh(out.host());
        self.destinations.look_ahead(batch, out.host());
        let own =
            if self.own.1 == self.destinations.age() { self.own.0 } else { Ipv4Addr::UNSPECIFIED };
        out.push_each(batch, &mut Received { layer: self, own, ingress: Ingress::default() });
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        self.destinations.refresh(out.host());
        for packet in batch.drain() {
            self.send(packet, out);
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.reassembly.poll_timeout()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        self.settle(out);
    }
}

impl Ipv4Layer {
    #[inline]
    fn own_is(&self, address: Ipv4Addr) -> bool {
        self.own == (address, self.destinations.age())
    }

    /// The route of a packet, and which next hop of a group that is.
    fn route(
        &mut self,
        destination: Ipv4Addr,
        packet: &[u8],
        out: &Out<'_>,
    ) -> (Route, Option<HopIndex>) {
        if self.own_is(destination) {
            return (Route::Local, None);
        }
        let route = out.host().way4(destination);
        if route == Route::Local {
            self.own = (destination, self.destinations.age());
        }
        out.host().for_packet(route, packet)
    }

    /// Handles any received packet.
    fn accept(&mut self, mut packet: Packet, out: &mut Out<'_>) {
        if self.transit_only {
            return out.hand_over(Side::Receive, packet);
        }
        let header = match Header::check(packet.octets()) {
            Ok(header) => header,
            Err(reason) => {
                out.drop(reason, packet);
                return;
            }
        };
        // What is behind the packet's end, its link has padded.
        packet.truncate(header.total_length);
        let (route, hop) = self.route(header.destination, packet.octets(), out);
        match received_way(&header, &packet, route, out) {
            Ok(Way::Up) => self.deliver(header, packet, out),
            Ok(Way::Down(link, next_hop)) => {
                forward(&header, packet, (link, next_hop, hop), out);
            }
            Err(refusal) => refuse(refusal, packet, out),
        }
    }

    /// Passes a packet for this host to its protocol.
    fn deliver(&mut self, mut header: Header, mut packet: Packet, out: &mut Out<'_>) {
        if header.is_fragment {
            packet = match self.reassembly.ipv4(packet, out.now(), out) {
                Whole::Packet(whole) => whole,
                Whole::NotYet | Whole::Problem(..) => return,
            };
            match Header::check(packet.octets()) {
                Ok(whole) => header = whole,
                Err(reason) => {
                    out.drop(reason, packet);
                    return;
                }
            }
        }
        if header.has_options()
            && let Err(refusal) = options::check(packet.octets(), header.header_len)
        {
            refuse(refusal, packet, out);
            return;
        }
        packet.mark_network();
        packet.strip(header.header_len);
        if let Err(mut packet) = out.push(At::IpProtocol(header.protocol), packet) {
            packet.restore_network();
            refuse(Refusal::Error(IcmpError::ProtocolUnreachable, PROTOCOL_AT), packet, out);
        }
    }

    /// Reports the packets that reassembly gave up.
    fn settle(&mut self, out: &mut Out<'_>) {
        while let Some(beginning) = self.reassembly.expire(out) {
            refuse(Refusal::Error(IcmpError::Reassembly, 0), beginning, out);
        }
    }

    /// Completes and sends a packet from an upper layer.
    fn send(&mut self, mut packet: Packet, out: &mut Out<'_>) {
        let meta = *packet.meta();
        let Some((header_len, destination)) = header::destination(packet.octets()) else {
            out.drop(MISUSE, packet);
            return;
        };
        let free = meta.egress == LinkIndex::NONE;
        let known = if free {
            self.destinations.find_or_ask(destination, packet.octets(), out.host())
        } else {
            None
        };
        let (way, mtu, hop) = if let Some((known, hop)) = known {
            let next_hop = NextHop::Neighbour(known.next_hop.into());
            (Way::Down(known.link, next_hop), u32::from(known.mtu), hop)
        } else {
            match transmit_way(destination, meta.egress, out) {
                Ok(Way::Up) => (Way::Up, 0, None),
                Ok(Way::Down(link, next_hop)) => {
                    (Way::Down(link, next_hop), mtu_of(link, out), None)
                }
                Err(refusal) => {
                    refuse(refusal, packet, out);
                    return;
                }
            }
        };
        // Asked only of a packet that names no source.
        let source = || match way {
            Way::Up => Some(destination),
            Way::Down(link, _) => out.host().source4_on(Some(link), destination),
        };
        let identification = self.identifications.next(destination);
        match header::complete(packet.octets_mut(), header_len, source, identification) {
            Ok(header) => match way {
                Way::Up => {
                    packet.meta_mut().arrival = Arrival::Unicast;
                    self.deliver(header, packet, out);
                }
                Way::Down(link, next_hop) => {
                    let now = out.now();
                    if header.total_length > PATH_MTU_MIN {
                        out.paths().sent(packet.octets(), now);
                    }
                    let mtu = out.paths().mtu(destination.into(), mtu, now);
                    push_down(&header, packet, (link, next_hop, hop), mtu, out);
                }
            },
            Err(reason) => out.drop(reason, packet),
        }
    }
}

/// The octet of the header that names the protocol.
const PROTOCOL_AT: u32 = 9;

/// Drops the packet, or requests an ICMP error about it.
fn refuse(refusal: Refusal, mut packet: Packet, out: &mut Out<'_>) {
    match refusal {
        Refusal::Drop(reason) => out.drop(reason, packet),
        Refusal::Error(error, parameter) => {
            packet.meta_mut().parameter = parameter;
            out.push_or_drop(At::Error(EtherType::IPV4, error), packet);
        }
    }
}

/// The way of a received packet.
fn received_way(
    header: &Header,
    packet: &Packet,
    route: Route,
    out: &mut Out<'_>,
) -> Result<Way, Refusal> {
    let meta = packet.meta();
    let destination = header.destination;
    let is_martian = out.host().is_martian_on(meta.ingress, header.source);
    if is_martian || !may_be_a_source(header) {
        return Err(Refusal::Drop(MARTIAN));
    }
    if meta.arrival == Arrival::Other {
        return Err(Refusal::Drop(crate::link_layer::OTHER_STATION));
    }
    if destination.is_broadcast() {
        return Ok(Way::Up);
    }
    if destination.is_multicast() {
        return if joined(destination, meta.ingress, out) {
            Ok(Way::Up)
        } else {
            Err(Refusal::Drop(NOT_JOINED))
        };
    }
    if let Route::Broadcast(link) = route {
        return if link == meta.ingress {
            Ok(Way::Up)
        } else {
            Err(Refusal::Drop(DIRECTED_BROADCAST))
        };
    }
    if meta.arrival != Arrival::Unicast {
        return Err(Refusal::Drop(LINK_BROADCAST));
    }
    if route == Route::Local {
        return Ok(Way::Up);
    }
    let forwards = out.host().interface(meta.ingress).is_some_and(|interface| interface.forwarding);
    if !forwards {
        return Err(Refusal::Drop(NOT_FORWARDING));
    }
    if is_bound_to_link(header.source) || is_bound_to_link(destination) {
        return Err(Refusal::Drop(MARTIAN));
    }
    match route {
        Route::Connected(link) => Ok(Way::Down(link, NextHop::Neighbour(destination.into()))),
        Route::Via { link, gateway } => Ok(Way::Down(link, NextHop::Neighbour(gateway))),
        Route::Blackhole => Err(Refusal::Drop(BLACKHOLE)),
        // A route has changed between the division and here: the next one is the kernel's.
        Route::Kernel if out.host().is_shared(meta.ingress) => Err(Refusal::Drop(BLACKHOLE)),
        Route::Prohibited => Err(Refusal::Error(IcmpError::Prohibited, 0)),
        Route::Kernel | Route::None | Route::Local | Route::Broadcast(_) | Route::Group(_) => {
            Err(Refusal::Error(IcmpError::NetworkUnreachable, 0))
        }
    }
}

/// Whether source and destination are valid on some link. RFC 1122 §3.2.1.3, RFC 1812 §5.3.7: a
/// source is a host's address. Only a host without an address may send from none, and only to
/// everyone; and so may a switch that sends group membership queries for others (RFC 4541 §2.1.1).
fn may_be_a_source(header: &Header) -> bool {
    let (source, destination) = (header.source, header.destination);
    let [first, ..] = source.octets();
    let [to, ..] = destination.octets();
    let is_membership = header.protocol == IpProtocol::IGMP && destination.is_multicast();
    let may_be_none = source.is_unspecified() && (destination.is_broadcast() || is_membership);
    (may_be_none || !matches!(first, 0 | 127 | 224..)) && !matches!(to, 0 | 127)
}

/// Addresses that no router forwards: of one link (RFC 3927 §7) or reserved (RFC 1812 §5.3.7).
fn is_bound_to_link(address: Ipv4Addr) -> bool {
    address.is_link_local() || address.octets().first().is_some_and(|&first| first >= 240)
}

/// Whether a group is received on a link: all hosts are in 224.0.0.1 (RFC 1112 §4).
fn joined(group: Ipv4Addr, link: LinkIndex, out: &mut Out<'_>) -> bool {
    let router = || out.host().interface(link).is_some_and(|interface| interface.forwarding);
    group == ALL_SYSTEMS
        || (group == ALL_ROUTERS && router())
        || out.groups().has(link, IpAddr::V4(group))
}

/// The group of all hosts on a link (RFC 1112 §4).
pub(crate) const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// The group of all routers on a link (RFC 1256 §2).
pub(crate) const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// Spends a hop and forwards the packet (RFC 1812 §5.2.1.2, §5.3.1).
fn forward(
    header: &Header,
    mut packet: Packet,
    to: (LinkIndex, NextHop, Option<HopIndex>),
    out: &mut Out<'_>,
) {
    let (link, next_hop, _) = to;
    if header.time_to_live <= 1 {
        refuse(Refusal::Error(IcmpError::HopLimit, 0), packet, out);
        return;
    }
    if header.has_options() {
        let address = out.host().interface(link).and_then(crate::Interface::ipv4);
        if let Err(refusal) = options::forward(packet.octets_mut(), header.header_len, address) {
            refuse(refusal, packet, out);
            return;
        }
    }
    // RFC 1812 §5.2.7.2: one that names its own routers is not told of others.
    if let (NextHop::Neighbour(next_hop), false) = (next_hop, header.has_options()) {
        redirect::ask(EtherType::IPV4, &packet, header.source.into(), link, next_hop, out);
    }
    let mtu = mtu_of(link, out);
    let whole = header.dont_fragment && exceeds(header.total_length, mtu);
    // Before the hop is spent: the source shall know the packet that it sent.
    if !whole && let Some(octets) = packet.octets_mut().first_chunk_mut() {
        Ipv4Mut::of(octets).spend_hop();
    }
    push_down(header, packet, to, mtu, out);
}

/// The MTU of a link; none if it is down or gone.
fn mtu_of(link: LinkIndex, out: &Out<'_>) -> u32 {
    let up = out.host().interface(link).filter(|interface| interface.up);
    up.map_or(0, |interface| interface.mtu)
}

fn exceeds(total_length: usize, mtu: u32) -> bool {
    usize::try_from(mtu).is_ok_and(|mtu| total_length > mtu)
}

/// Sends a complete packet by a link to a next hop, in fragments if it is larger than the MTU. It is
/// counted once by the next hop of a group.
fn push_down(
    header: &Header,
    mut packet: Packet,
    (link, next_hop, hop): (LinkIndex, NextHop, Option<HopIndex>),
    mtu: u32,
    out: &mut Out<'_>,
) {
    let meta = packet.meta_mut();
    meta.egress = link;
    meta.next_hop = next_hop;
    meta.ether_type = EtherType::IPV4.0;
    if mtu == 0 {
        out.drop(LINK_DOWN, packet);
    } else if !exceeds(header.total_length, mtu) {
        out.count_hop(hop);
        push_frame(packet, link, out);
    } else if header.dont_fragment {
        refuse(Refusal::Error(IcmpError::TooBig, mtu), packet, out);
    } else {
        let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
        out.count_hop(hop);
        fragment::send(packet, mtu, |fragment, out| push_frame(fragment, link, out), out);
    }
}

/// Pushes a packet down in a chunk that a link can send.
fn push_frame(packet: Packet, link: LinkIndex, out: &mut Out<'_>) {
    let packet = if packet.is_of(out.frames()) {
        packet
    } else {
        let Some(mut frame) = out.frames().packet_of(packet.octets()) else {
            out.drop(NO_FRAME, packet);
            return;
        };
        *frame.meta_mut() = *packet.meta();
        frame.set_received_ns(packet.received_ns());
        frame
    };
    if let Err(packet) = out.push_down(link, packet) {
        out.drop(UNCLAIMED, packet);
    }
}

/// The way of a packet of ours; `bound` is the link it is bound to, if any.
fn transmit_way(destination: Ipv4Addr, bound: LinkIndex, out: &Out<'_>) -> Result<Way, Refusal> {
    let host = out.host();
    let or_first = |link: LinkIndex| {
        let up = || host.interfaces().iter().find(|interface| interface.up);
        let found = if link == LinkIndex::NONE { up().map(|found| found.link) } else { Some(link) };
        found.ok_or(Refusal::Drop(LINK_DOWN))
    };
    if destination.is_broadcast() {
        return Ok(Way::Down(or_first(bound)?, NextHop::Broadcast));
    }
    let neighbour = NextHop::Neighbour(destination.into());
    let route = host.route4(destination);
    if destination.is_multicast() {
        let routed = match route {
            Route::Connected(link) | Route::Via { link, .. } if bound == LinkIndex::NONE => link,
            _ => bound,
        };
        return Ok(Way::Down(or_first(routed)?, neighbour));
    }
    let (link, next_hop) = match route {
        Route::Local => return Ok(Way::Up),
        Route::Broadcast(link) => (link, NextHop::Broadcast),
        Route::Connected(link) => (link, neighbour),
        Route::Via { link, gateway } => (link, NextHop::Neighbour(gateway)),
        Route::None if bound != LinkIndex::NONE => (bound, neighbour),
        Route::None | Route::Group(_) | Route::Kernel => {
            return Err(Refusal::Error(IcmpError::NetworkUnreachable, 0));
        }
        Route::Prohibited => return Err(Refusal::Error(IcmpError::Prohibited, 0)),
        Route::Blackhole => return Err(Refusal::Drop(BLACKHOLE)),
    };
    if bound != LinkIndex::NONE && bound != link {
        // Bound to a link, a destination counts as being on it.
        return Ok(Way::Down(bound, neighbour));
    }
    Ok(Way::Down(link, next_hop))
}

/// Identifications of our packets: one counter for many destinations, each from a random start. So
/// they reveal nothing about our traffic to others (RFC 7739 §5.3).
#[derive(Debug)]
struct Identifications {
    counters: [u16; COUNTERS],
    key: u64,
}

/// Counters, a power of two.
const COUNTERS: usize = 256;

impl Identifications {
    fn new(random: u64) -> Self {
        let mut random = Random::new(random);
        let counters = std::array::from_fn(|_| u16::try_from(random.draw() >> 48).unwrap_or(0));
        Self { counters, key: random.draw() | 1 }
    }

    fn next(&mut self, destination: Ipv4Addr) -> u16 {
        let hash = u64::from(destination.to_bits()).wrapping_mul(self.key) >> 56;
        let index = usize::try_from(hash).unwrap_or(0);
        let Some(counter) = self.counters.get_mut(index) else { return 0 };
        *counter = counter.wrapping_add(1);
        *counter
    }
}
