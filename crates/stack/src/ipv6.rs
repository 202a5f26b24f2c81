//! IPv6 (RFC 8200): delivery to this host, forwarding, and packets of this host.

mod chain;
mod transit;

use crate::{
    At, IcmpError, Layer, Out, Reason, Route, Side,
    destination::{Destinations, Ingress},
    layer::Each,
    link_layer::OTHER_STATION,
    reassembly::{Reassembly, Whole},
    redirect,
    wiring::EdgeIndex,
};
use chain::{Chain, ChainStep};
use gatewright_packet::{Arrival, Batch, LinkIndex, NextHop, Packet};
use gatewright_tables::HopIndex;
use gatewright_wire::{
    EtherType, IpProtocol,
    icmpv6::Icmpv6Type,
    ipv6::{FRAGMENT_UNIT, Fragment, FragmentFields, Ipv6, Ipv6Mut, MTU_MIN},
};
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// The packet is shorter than its header, or than its length field.
const TRUNCATED: Reason = Reason("truncated");
/// The version is not 6.
const VERSION: Reason = Reason("bad-version");
/// The source is invalid: multicast, loopback, IPv4-mapped, or one of this host's own addresses.
const SOURCE: Reason = Reason("bad-source");
/// The destination is invalid: unspecified, loopback or IPv4-mapped.
const DESTINATION: Reason = Reason("bad-destination");
/// For a group that this host has not joined.
const NOT_MEMBER: Reason = Reason("not-member");
/// For another host, and this link does not forward.
const NOT_FORWARDING: Reason = Reason("not-forwarding");
/// Link-local addresses stay on their link (RFC 4291 §2.5.6).
const SCOPE: Reason = Reason("beyond-scope");
/// The frame was sent to the link-layer address of a group: such a packet is never forwarded (RFC
/// 1812 §5.3.4 in spirit).
const LINK_BROADCAST: Reason = Reason("link-broadcast");
/// The route is a blackhole.
const BLACKHOLE: Reason = Reason("blackhole");
/// An option requires that the packet is discarded silently.
const OPTION: Reason = Reason("option-discard");
/// More extension headers than any real packet has.
const CHAIN: Reason = Reason("long-chain");
/// A fragment header after a fragment header. A sender writes each header at most once (RFC 8200
/// §4.1), and nested datagrams would be reassembled as often as they are nested.
const NESTED: Reason = Reason("nested-fragment");
/// Neighbour discovery in fragments (RFC 6980 §5: "Nodes MUST silently ignore" it).
const FRAGMENTED_DISCOVERY: Reason = Reason("fragmented-discovery");
/// Nothing follows the headers (RFC 8200 §4.7).
const EMPTY: Reason = Reason("no-next-header");
/// A packet of this host has no route.
const NO_LINK: Reason = Reason("no-link");
/// No packet was free for a fragment.
const NO_PACKET: Reason = Reason("no-packet");
/// A packet of this host is too large and cannot be fragmented.
const UNCUTTABLE: Reason = Reason("cannot-fragment");

/// The network layer of IPv6: one for all links.
///
/// Expects packets with the IPv6 header in front. Pushes payloads for this host to `ip:PROTOCOL`,
/// packets for others down to their link with `next_hop` set, and packets that need an ICMP error
/// to `error:ipv6:…`.
#[derive(Debug)]
pub struct Ipv6Layer {
    reassembly: Reassembly,
    identification: u32,
    /// The cache of forwarded destinations.
    destinations: Destinations<Ipv6Addr>,
    /// Whether another worker handles all except transit.
    transit_only: bool,
}

impl Ipv6Layer {
    /// A layer whose fragment identifications start at `identification`, which should be random
    /// (RFC 7739 §5).
    pub fn new(identification: u32) -> Self {
        let destinations = Destinations::default();
        let reassembly = Reassembly::default();
        Self { reassembly, identification, destinations, transit_only: false }
    }

    /// A layer that only forwards: everything except plain transit goes to the first worker.
    pub(crate) fn transit_only(identification: u32) -> Self {
        Self { transit_only: true, ..Self::new(identification) }
    }

    /// Handles one received packet.
    fn accept(&mut self, mut packet: Packet, out: &mut Out<'_>) {
        if self.transit_only {
            return out.hand_over(Side::Receive, packet);
        }
        packet.mark_network();
        let Ok((ip, rest)) = Ipv6::split(packet.octets()) else {
            return out.drop(TRUNCATED, packet);
        };
        if ip.version() != Ipv6::VERSION {
            return out.drop(VERSION, packet);
        }
        let len = Ipv6::LEN + usize::from(ip.payload_length());
        if rest.len() + Ipv6::LEN < len {
            return out.drop(TRUNCATED, packet);
        }
        let (source, destination) = (ip.source_address(), ip.destination_address());
        let link = packet.meta().ingress;
        let is_martian = out.host().is_martian_on(link, source) && !tells_of_a_duplicate(ip, rest);
        // Shorter frames are padded by the link.
        packet.truncate(len);
        if source.is_multicast() || is_of_no_wire(source) || is_martian {
            return out.drop(SOURCE, packet);
        }
        if packet.meta().arrival == Arrival::Other {
            return out.drop(OTHER_STATION, packet);
        }
        if destination.is_unspecified() || is_of_no_wire(destination) {
            return out.drop(DESTINATION, packet);
        }
        if destination.is_multicast() {
            if !is_member(out, link, destination) {
                return out.drop(NOT_MEMBER, packet);
            }
            return self.deliver(packet, out);
        }
        if destination.is_unicast_link_local() {
            // A tentative address receives neighbour discovery only, by its group.
            if !out.host().interface(link).is_some_and(|here| here.has(destination.into())) {
                return out.drop(SCOPE, packet);
            }
            return self.deliver(packet, out);
        }
        match out.host().way6(destination) {
            Route::Local => self.deliver(packet, out),
            route => {
                let to = out.host().for_packet(route, packet.octets());
                forward(packet, source, destination, to, out);
            }
        }
    }

    /// Walks the extension headers of a packet for this host and delivers its payload.
    fn deliver(&mut self, packet: Packet, out: &mut Out<'_>) {
        match chain::walk(packet.octets()) {
            ChainStep::Fragment(chain) => {
                let Some(whole) = self.whole(packet, chain, out) else { return };
                match chain::walk(whole.octets()) {
                    ChainStep::Fragment(_) => out.drop(NESTED, whole),
                    ChainStep::Upper(chain) if is_discovery(&whole, chain) => {
                        out.drop(FRAGMENTED_DISCOVERY, whole);
                    }
                    step => finish(whole, step, out),
                }
            }
            step => finish(packet, step, out),
        }
    }

    /// Adds a fragment; returns its packet once that is complete.
    fn whole(&mut self, packet: Packet, chain: Chain, out: &mut Out<'_>) -> Option<Packet> {
        let fragment = packet.octets().get(chain.offset..).unwrap_or_default();
        let Ok((fragment, _)) = Fragment::split(fragment) else {
            out.drop(TRUNCATED, packet);
            return None;
        };
        if fragment.fragment_start() == 0 {
            if !fragment.more_fragments() {
                return Some(without_fragment_header(packet, chain));
            }
            // RFC 8200 §4.5: "that fragment should be discarded and an ICMP Parameter Problem,
            // Code 3, message should be sent".
            if !chain::is_complete(packet.octets(), chain) {
                ask_for_error(packet, IcmpError::IncompleteChain, 0, out);
                return None;
            }
        }
        let now = out.now();
        match self.reassembly.ipv6(packet, chain.offset, chain.next_header_at, now, out) {
            Whole::Packet(mut whole) => {
                whole.mark_network();
                return Some(whole);
            }
            Whole::NotYet => {}
            Whole::Problem(packet, pointer) => {
                ask_for_error(packet, IcmpError::BadHeader, pointer, out);
            }
        }
        None
    }

    /// Sends one packet of this host: finds its link and next hop, and fragments it if needed.
    fn send(&mut self, mut packet: Packet, out: &mut Out<'_>) {
        packet.mark_network();
        let Ok((ip, _)) = Ipv6::split(packet.octets()) else { return out.drop(TRUNCATED, packet) };
        let destination = ip.destination_address();
        let preset = packet.meta().egress;
        let (link, next_hop, hop) =
            if destination.is_multicast() || destination.is_unicast_link_local() {
                // The link is part of such an address; without one, a host with one link has no choice.
                let only = || match out.host().interfaces() {
                    [only] => Some(only.link),
                    _ => None,
                };
                let link = Some(preset).filter(|&link| link != LinkIndex::NONE).or_else(only);
                let Some(link) = link else { return out.drop(NO_LINK, packet) };
                let to_self = out.host().interface(link).is_some_and(|i| i.has(destination.into()));
                if to_self {
                    packet.meta_mut().ingress = link;
                    return self.deliver(packet, out);
                }
                (link, destination, None)
            } else {
                let host = out.host();
                let (route, hop) = host.for_packet(host.way6(destination), packet.octets());
                match route {
                    Route::Local => return self.deliver(packet, out),
                    Route::Connected(link) | Route::Broadcast(link) => (link, destination, hop),
                    Route::Via { link, gateway: IpAddr::V6(gateway) } => (link, gateway, hop),
                    _ => return ask_for_error(packet, IcmpError::NetworkUnreachable, 0, out),
                }
            };
        let meta = packet.meta_mut();
        meta.egress = link;
        meta.next_hop = NextHop::Neighbour(next_hop.into());
        meta.ether_type = EtherType::IPV6.0;
        let link_mtu = out.host().interface(link).map_or(MTU_MIN_U32, |interface| interface.mtu);
        let now = out.now();
        if octets(&packet) > MTU_MIN_U32 {
            out.paths().sent(packet.octets(), now);
        }
        let mtu = out.paths().mtu(destination.into(), link_mtu, now);
        out.count_hop(hop);
        if octets(&packet) <= mtu {
            return push_down(packet, out);
        }
        self.identification = self.identification.wrapping_add(1);
        cut(&packet, mtu, self.identification, out);
    }
}

/// [`MTU_MIN`], in the type of interface MTUs.
#[expect(clippy::cast_possible_truncation, reason = "1280")]
const MTU_MIN_U32: u32 = MTU_MIN as u32;

/// Octets of a packet; more than 32 bits cannot occur.
fn octets(packet: &Packet) -> u32 {
    u32::try_from(packet.len()).unwrap_or(u32::MAX)
}

fn push_down(packet: Packet, out: &mut Out<'_>) {
    let link = packet.meta().egress;
    if let Err(packet) = out.push_down(link, packet) {
        out.drop(NO_LINK, packet);
    }
}

/// Whether this host receives `group` on `link`: all nodes, as a router all routers (RFC 4291
/// §2.8), the groups of its own addresses, and joined groups.
fn is_member(out: &mut Out<'_>, link: LinkIndex, group: Ipv6Addr) -> bool {
    const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
    if group == ALL_NODES || out.groups().has(link, group.into()) {
        return true;
    }
    out.host().interface(link).is_some_and(|interface| {
        let solicited = |ip: IpAddr| match ip {
            IpAddr::V6(ip) => solicited_node(ip) == group,
            IpAddr::V4(_) => false,
        };
        (interface.forwarding && group == ALL_ROUTERS)
            || interface.addresses.iter().any(|address| solicited(address.ip))
    })
}

/// The solicited-node group of `ip` (RFC 4291 §2.7.1).
pub(crate) fn solicited_node(ip: Ipv6Addr) -> Ipv6Addr {
    let low = ip.to_bits() & 0xff_ffff;
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low)
}

/// Whether an address is never in a packet: the loopback address, and IPv4 addresses as programs write
/// them beside those of IPv6 (RFC 6890 §2.2.3).
const fn is_of_no_wire(address: Ipv6Addr) -> bool {
    address.is_loopback() || address.to_ipv4_mapped().is_some()
}

/// Forwards a packet for another host.
fn forward(
    mut packet: Packet,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    (route, hop): (Route, Option<HopIndex>),
    out: &mut Out<'_>,
) {
    let ingress = packet.meta().ingress;
    if !out.host().interface(ingress).is_some_and(|interface| interface.forwarding) {
        return out.drop(NOT_FORWARDING, packet);
    }
    if packet.meta().arrival != Arrival::Unicast {
        return out.drop(LINK_BROADCAST, packet);
    }
    if source.is_unicast_link_local() || source.is_unspecified() {
        return out.drop(SCOPE, packet);
    }
    let (link, next_hop) = match route {
        Route::Connected(link) => (link, destination),
        Route::Via { link, gateway: IpAddr::V6(gateway) } => (link, gateway),
        Route::Blackhole => return out.drop(BLACKHOLE, packet),
        // A route has changed between the division and here: the next one is the kernel's.
        Route::Kernel if out.host().is_shared(ingress) => return out.drop(BLACKHOLE, packet),
        Route::Prohibited => return ask_for_error(packet, IcmpError::Prohibited, 0, out),
        _ => return ask_for_error(packet, IcmpError::NetworkUnreachable, 0, out),
    };
    let Some(header) = packet.octets_mut().first_chunk_mut() else {
        return out.drop(TRUNCATED, packet);
    };
    let hops = Ipv6Mut::of(header).view().hop_limit();
    // RFC 8200 §3: "decremented by 1 by each node that forwards the packet. When forwarding, the
    // packet is discarded if Hop Limit was zero when received or is decremented to zero."
    if hops <= 1 {
        return ask_for_error(packet, IcmpError::HopLimit, 0, out);
    }
    let mtu = out.host().interface(link).map_or(MTU_MIN_U32, |interface| interface.mtu);
    if octets(&packet) > mtu {
        return ask_for_error(packet, IcmpError::TooBig, mtu, out);
    }
    redirect::ask(EtherType::IPV6, &packet, source.into(), link, next_hop.into(), out);
    if let Some(header) = packet.octets_mut().first_chunk_mut() {
        Ipv6Mut::of(header).set_hop_limit(hops - 1);
    }
    let meta = packet.meta_mut();
    meta.egress = link;
    meta.next_hop = NextHop::Neighbour(next_hop.into());
    meta.ether_type = EtherType::IPV6.0;
    out.count_hop(hop);
    push_down(packet, out);
}

/// Whether a packet is a neighbour advertisement of this link. A station that has taken our address
/// may send it from there (RFC 4861 §7.2.4), and neighbour discovery needs it (RFC 4862 §5.4.4).
fn tells_of_a_duplicate(ip: Ipv6<'_>, payload: &[u8]) -> bool {
    ip.next_header() == IpProtocol::ICMPV6
        && ip.hop_limit() == u8::MAX
        && payload.first() == Some(&Icmpv6Type::NEIGHBOR_ADVERTISEMENT.0)
}

/// Handles a packet for this host by the result of its header chain.
fn finish(packet: Packet, step: ChainStep, out: &mut Out<'_>) {
    match step {
        ChainStep::Upper(chain) => hand_up(packet, chain, out),
        ChainStep::Problem { cause, pointer, quiet_for_groups } => {
            let to_group = Ipv6::split(packet.octets())
                .is_ok_and(|(ip, _)| ip.destination_address().is_multicast());
            if quiet_for_groups && to_group {
                return out.drop(OPTION, packet);
            }
            ask_for_error(packet, cause, pointer, out);
        }
        ChainStep::Fragment(_) => out.drop(NESTED, packet),
        ChainStep::Discard => out.drop(OPTION, packet),
        ChainStep::TooLong => out.drop(CHAIN, packet),
        ChainStep::Truncated => out.drop(TRUNCATED, packet),
    }
}

/// Whether a packet carries a message of neighbour discovery.
fn is_discovery(packet: &Packet, chain: Chain) -> bool {
    let kind = packet.octets().get(chain.offset).copied().map(Icmpv6Type);
    chain.next_header == IpProtocol::ICMPV6
        && kind.is_some_and(|kind| {
            (Icmpv6Type::ROUTER_SOLICITATION..=Icmpv6Type::REDIRECT).contains(&kind)
        })
}

/// Removes the fragment header from a packet that is whole: "processed as a fully reassembled
/// packet (i.e., Fragment Offset and M are zero) … any other fragments that match this packet … are
/// processed independently" (RFC 8200 §4.5, RFC 6946 §4).
fn without_fragment_header(mut packet: Packet, chain: Chain) -> Packet {
    let next_header = packet.octets().get(chain.offset).copied();
    let octets = packet.octets_mut();
    if let (Some(place), Some(next_header)) = (octets.get_mut(chain.next_header_at), next_header) {
        *place = next_header;
    }
    if let Some(headers) = octets.get_mut(..chain.offset + Fragment::LEN) {
        headers.copy_within(..chain.offset, Fragment::LEN);
    }
    packet.strip(Fragment::LEN);
    let length = u16::try_from(packet.len().saturating_sub(Ipv6::LEN)).unwrap_or(u16::MAX);
    if let Some(header) = packet.octets_mut().first_chunk_mut() {
        Ipv6Mut::of(header).set_payload_length(length);
    }
    packet.mark_network();
    packet
}

/// Strips the headers of a whole packet for this host and delivers the rest.
fn hand_up(mut packet: Packet, chain: Chain, out: &mut Out<'_>) {
    if chain.next_header == IpProtocol::NO_NEXT_HEADER {
        return out.drop(EMPTY, packet);
    }
    packet.strip(chain.offset);
    if let Err(mut packet) = out.push(At::IpProtocol(chain.next_header), packet) {
        packet.restore_network();
        let pointer = u32::try_from(chain.next_header_at).unwrap_or(0);
        ask_for_error(packet, IcmpError::ProtocolUnreachable, pointer, out);
    }
}

fn ask_for_error(mut packet: Packet, cause: IcmpError, parameter: u32, out: &mut Out<'_>) {
    packet.meta_mut().parameter = parameter;
    out.push_or_drop(At::Error(EtherType::IPV6, cause), packet);
}

/// Cuts a packet of this host into fragments of at most `mtu` octets (RFC 8200 §4.5).
///
/// Packets of this host have no extension headers, so everything after the IPv6 header is
/// fragmentable.
fn cut(packet: &Packet, mtu: u32, identification: u32, out: &mut Out<'_>) {
    let headers = Ipv6::LEN + Fragment::LEN;
    let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
    let piece = mtu.saturating_sub(headers) / FRAGMENT_UNIT * FRAGMENT_UNIT;
    let Ok((ip, payload)) = Ipv6::split(packet.octets()) else { return out.count(TRUNCATED) };
    if piece == 0 {
        return out.count(UNCUTTABLE);
    }
    let pieces = payload.chunks(piece).count();
    for (index, octets) in payload.chunks(piece).enumerate() {
        let offset = index * piece / FRAGMENT_UNIT;
        let (Ok(fragment_offset), Ok(payload_length)) =
            (u16::try_from(offset), u16::try_from(octets.len() + Fragment::LEN))
        else {
            return out.count(UNCUTTABLE);
        };
        let fragment = FragmentFields {
            next_header: ip.next_header(),
            fragment_offset,
            more_fragments: index + 1 < pieces,
            identification,
        };
        let mut fields = ip.fields();
        fields.next_header = IpProtocol::FRAGMENT;
        fields.payload_length = payload_length;
        let made = out.frames().packet_of(octets).and_then(|mut made| {
            made.prepend(&fragment.emit()).ok()?;
            made.prepend(&fields.emit()).ok()?;
            *made.meta_mut() = *packet.meta();
            Some(made)
        });
        match made {
            Some(made) => push_down(made, out),
            None => return out.count(NO_PACKET),
        }
    }
}

/// A received batch.
struct Received<'a> {
    layer: &'a mut Ipv6Layer,
    ingress: Ingress,
}

impl Each for Received<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as if it stood in the loop over the batch")]
    fn ready(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Option<EdgeIndex> {
        if !self.ingress.forwards(packet, out.host()) {
            return None;
        }
        transit::pass(packet, &mut self.layer.destinations, out)
    }

    fn other(&mut self, packet: Packet, out: &mut Out<'_>) {
        self.layer.accept(packet, out);
    }
}

impl Layer for Ipv6Layer {
    fn name(&self) -> &'static str {
        "ipv6"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        self.destinations.refresh(out.host());
        self.destinations.look_ahead(batch, out.host());
        out.push_each(batch, &mut Received { layer: self, ingress: Ingress::default() });
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            self.send(packet, out);
        }
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.reassembly.poll_timeout()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        while let Some(first) = self.reassembly.expire(out) {
            ask_for_error(first, IcmpError::Reassembly, 0, out);
        }
    }
}
