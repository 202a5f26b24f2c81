//! Messages of neighbour discovery, received and sent.

use crate::{
    Advertise, At, Interface, Out, Reason, icmpv6::send_with_hops, ipv6::solicited_node,
    link_layer::BAD_STATION,
};
use gatewright_packet::{LinkAddress, LinkIndex, NextHop, Packet};
use gatewright_wire::{
    Writer,
    icmpv6::{Icmpv6, Icmpv6Type},
    ipv6::Ipv6,
    ndp::{
        NdpOption, NdpOptions, NeighborAdvertisementFields, NeighborSolicitationFields,
        PrefixInformation, PrefixInformationFields, RedirectFields, RouterAdvertisementFields,
        RouterSolicitationFields,
    },
};
use std::net::{IpAddr, Ipv6Addr};

/// Everyone on the link (RFC 4291 §2.7.1).
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Every router on the link (RFC 4291 §2.7.1).
pub(super) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// "The IP Hop Limit field has a value of 255, i.e., the packet could not possibly have been
/// forwarded by a router" (RFC 4861 §6.1.1).
const HOPS: u8 = 255;

/// Maximum octets of a message with its options: a router advertisement with some prefixes.
const MESSAGE_MAX: usize = 512;

/// Maximum prefixes of one advertisement: those that fit beside MTU and address.
const PREFIXES_MAX: usize = 12;

/// How long advertised prefixes are valid and preferred (RFC 4861 §6.2.1), in seconds.
const VALID_FOR: u32 = 2_592_000;
const PREFERRED_FOR: u32 = 604_800;

/// The message breaks a rule of RFC 4861 §6.1, §7.1 or §8.1: it came over a router, or is
/// truncated.
pub(super) const INVALID: Reason = Reason("invalid-message");

/// The message gives our own link-layer address as another station's.
const OWN_STATION: Reason = Reason("own-station");

/// No packet was free for a message.
const NO_PACKET: Reason = Reason("no-packet");

/// There is no address to send from.
const NO_SOURCE: Reason = Reason("no-source");

/// A received message that obeys the rules common to all (RFC 4861 §6.1, §7.1, §8.1).
#[derive(Debug)]
pub(super) struct Heard<'p> {
    pub(super) kind: Icmpv6Type,
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) octets: &'p [u8],
}

impl<'p> Heard<'p> {
    pub(super) fn of(packet: &'p Packet, at: At) -> Option<Self> {
        let At::Icmpv6Type(kind) = at else { return None };
        let (ip, _) = Ipv6::split(packet.network_octets()).ok()?;
        let (icmp, _) = Icmpv6::split(packet.octets()).ok()?;
        if ip.hop_limit() != HOPS || icmp.code() != 0 || icmp.kind().0 != kind {
            return None;
        }
        let (source, destination) = (ip.source_address(), ip.destination_address());
        Some(Self { kind: icmp.kind(), source, destination, octets: packet.octets() })
    }
}

/// The source (or else the target) link-layer address among the options of a message; `own` is ours
/// on its link. A link without addresses ignores such options.
///
/// An address of another width is refused (RFC 4861 §4.6.1 leaves its form to each link layer), and
/// so is one that no neighbour has: a group's, one of zeros, or our own. Packets would go to all
/// stations of the link or to ourselves (as RFC 1812 §3.3.2 says of ARP). Linux refuses the former.
pub(super) fn link_address(
    options: &[u8],
    source: bool,
    own: LinkAddress,
) -> Result<Option<LinkAddress>, Reason> {
    let mut found = None;
    for option in NdpOptions::new(options) {
        let data = match option.map_err(|_| INVALID)? {
            NdpOption::SourceLinkLayerAddress(data) if source => data,
            NdpOption::TargetLinkLayerAddress(data) if !source => data,
            _ => continue,
        };
        if own.is_none() {
            continue;
        }
        let address = of_option(data, own.width()).ok_or(INVALID)?;
        if !address.is_unicast() {
            return Err(BAD_STATION);
        }
        if address == own {
            return Err(OWN_STATION);
        }
        found = Some(address);
    }
    Ok(found)
}

/// The link-layer address in the data of an option, on a link with addresses of `width` octets.
fn of_option(data: &[u8], width: usize) -> Option<LinkAddress> {
    const ETHERNET: usize = 6;
    const SHORT: usize = 2;
    const EXTENDED: usize = 8;
    // Octets of options of length 1 and 2 behind kind and length.
    const LENGTH_1: usize = 6;
    const LENGTH_2: usize = 14;
    let address = match (width, data.len()) {
        (ETHERNET, LENGTH_1) => data,
        // RFC 4944 §8: the length tells short and extended addresses of one link apart; zeros fill
        // the option up.
        (SHORT | EXTENDED, LENGTH_1) => data.get(..SHORT)?,
        (SHORT | EXTENDED, LENGTH_2) => data.get(..EXTENDED)?,
        _ => return None,
    };
    LinkAddress::new(address)
}

/// The option that tells the sender's address, if the link has addresses.
fn source_option(address: &LinkAddress) -> Option<NdpOption<'_>> {
    (!address.is_none()).then(|| NdpOption::SourceLinkLayerAddress(address.octets()))
}

/// The option that tells the target's address, if the link has addresses.
fn target_option(address: &LinkAddress) -> Option<NdpOption<'_>> {
    (!address.is_none()).then(|| NdpOption::TargetLinkLayerAddress(address.octets()))
}

/// A message of `head` and `options`; `None` and a count if there is no packet for it.
fn compose<'o>(
    head: &[u8],
    options: impl IntoIterator<Item = NdpOption<'o>>,
    out: &mut Out<'_>,
) -> Option<Packet> {
    let mut octets = [0; MESSAGE_MAX];
    let mut writer = Writer::new(&mut octets);
    let mut whole = writer.put(head).is_ok();
    for option in options {
        whole &= option.emit(&mut writer).is_ok();
    }
    let packet = out.frames().packet_of(writer.written()).filter(|_| whole);
    if packet.is_none() {
        out.count(NO_PACKET);
    }
    packet
}

/// A neighbour solicitation for `target`, to its group or to the station `to` (RFC 4861 §7.2.2).
/// Our own station is told if `source` is not being checked (RFC 4429 §3.2).
pub(super) fn solicit(
    link: LinkIndex,
    target: Ipv6Addr,
    to: Option<LinkAddress>,
    (source, is_checked): (Ipv6Addr, bool),
    out: &mut Out<'_>,
) {
    let Some(own) = out.host().interface(link).map(|interface| interface.link_address) else {
        return;
    };
    let head = NeighborSolicitationFields {
        kind: Icmpv6Type::NEIGHBOR_SOLICITATION,
        code: 0,
        checksum: 0,
        target_address: target,
    };
    let options = source_option(&own).filter(|_| is_checked);
    let Some(mut packet) = compose(&head.emit(), options, out) else { return };
    let destination = if to.is_some() { target } else { solicited_node(target) };
    if let Some(to) = to {
        packet.meta_mut().next_hop = NextHop::Station(to);
    }
    send_with_hops(packet, source, destination, Some(link), HOPS, out);
}

/// Asks whether anyone else has `target`, before it is used (RFC 4862 §5.4.2).
pub(super) fn probe(interface: &Interface, target: Ipv6Addr, out: &mut Out<'_>) {
    let head = NeighborSolicitationFields {
        kind: Icmpv6Type::NEIGHBOR_SOLICITATION,
        code: 0,
        checksum: 0,
        target_address: target,
    };
    let Some(packet) = compose(&head.emit(), [], out) else { return };
    let (source, destination) = (Ipv6Addr::UNSPECIFIED, solicited_node(target));
    send_with_hops(packet, source, destination, Some(interface.link), HOPS, out);
}

/// Advertises to `to` the station of `target`: an answer if `solicited`, which replaces the known
/// address if it `overrides` (RFC 4861 §7.2.4).
pub(super) fn advertise(
    interface: &Interface,
    target: Ipv6Addr,
    to: Ipv6Addr,
    (solicited, overrides): (bool, bool),
    out: &mut Out<'_>,
) {
    let head = NeighborAdvertisementFields {
        kind: Icmpv6Type::NEIGHBOR_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        router: interface.forwarding,
        solicited,
        override_flag: overrides,
        target_address: target,
    };
    let options = target_option(&interface.link_address);
    let Some(packet) = compose(&head.emit(), options, out) else { return };
    send_with_hops(packet, target, to, Some(interface.link), HOPS, out);
}

/// Redirects the host `to`: it reaches `destination` better by `target`, whose link-layer address
/// is included if known. `about` is the packet that showed it (RFC 4861 §8.2).
pub(super) fn redirect(
    interface: &Interface,
    (target, station): (Ipv6Addr, Option<LinkAddress>),
    (to, destination): (Ipv6Addr, Ipv6Addr),
    about: &Packet,
    out: &mut Out<'_>,
) {
    let Some(source) = interface.link_local() else { return out.count(NO_SOURCE) };
    let head = RedirectFields {
        kind: Icmpv6Type::REDIRECT,
        code: 0,
        checksum: 0,
        target_address: target,
        destination_address: destination,
    };
    // Options have multiples of eight octets, and there is no padding in a packet.
    let whole = about.octets().get(..about.len() & !7).unwrap_or_default();
    let station = station.as_ref().and_then(target_option);
    let options = station.into_iter().chain([NdpOption::RedirectedHeader(whole)]);
    let Some(mut packet) = compose(&head.emit(), options, out) else { return };
    packet.meta_mut().mark = about.meta().mark;
    send_with_hops(packet, source, to, Some(interface.link), HOPS, out);
}

/// Asks routers to advertise themselves (RFC 4861 §6.3.7), from `source` if there is one that is not
/// being checked.
pub(super) fn solicit_routers(interface: &Interface, source: Option<Ipv6Addr>, out: &mut Out<'_>) {
    let head =
        RouterSolicitationFields { kind: Icmpv6Type::ROUTER_SOLICITATION, code: 0, checksum: 0 };
    // §4.1: no link-layer address from an unspecified source.
    let option = source_option(&interface.link_address).filter(|_| source.is_some());
    let Some(packet) = compose(&head.emit(), option, out) else { return };
    let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
    send_with_hops(packet, source, ALL_ROUTERS, Some(interface.link), HOPS, out);
}

/// Advertises this host as a router, with the subnets of its addresses (RFC 4861 §6.2.3).
pub(super) fn advertise_router(
    interface: &Interface,
    advertise: &Advertise,
    to: Ipv6Addr,
    out: &mut Out<'_>,
) {
    let Some(source) = interface.link_local() else { return out.count(NO_SOURCE) };
    let head = RouterAdvertisementFields {
        kind: Icmpv6Type::ROUTER_ADVERTISEMENT,
        code: 0,
        checksum: 0,
        cur_hop_limit: advertise.hop_limit,
        managed: false,
        other_config: false,
        home_agent: false,
        preference: 0,
        // A router's lifetime has 16 bits; the longest allowed is 9000 s (RFC 4861 §6.2.1).
        router_lifetime: u16::try_from(advertise.lifetime.as_secs()).unwrap_or(u16::MAX),
        reachable_time: 0,
        retrans_timer: 0,
    };
    let subnets = interface.usable().filter_map(|address| match address.ip {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => Some((ip, address.prefix_len)),
        _ => None,
    });
    let prefixes: Vec<_> = subnets
        .take(PREFIXES_MAX)
        .map(|(ip, prefix_length)| {
            let hosts = u128::MAX.checked_shr(prefix_length.into()).unwrap_or(0);
            let prefix = Ipv6Addr::from_bits(ip.to_bits() & !hosts);
            PrefixInformationFields {
                prefix_length,
                on_link: true,
                autonomous: prefix_length == 64,
                valid_lifetime: VALID_FOR,
                preferred_lifetime: PREFERRED_FOR,
                prefix,
            }
            .emit()
        })
        .collect();
    let mtu = advertise.mtu.then_some(NdpOption::Mtu(interface.mtu));
    let options = (prefixes.iter())
        .map(|octets| NdpOption::PrefixInformation(PrefixInformation::of(octets)))
        .chain(mtu)
        .chain(source_option(&interface.link_address));
    let Some(packet) = compose(&head.emit(), options, out) else { return };
    send_with_hops(packet, source, to, Some(interface.link), HOPS, out);
}
