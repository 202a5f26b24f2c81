//! Messages of rtnetlink (linux/netlink.h, linux/rtnetlink.h, rtnetlink(7)) about links, addresses,
//! routes and neighbours. Numbers are in the machine's own byte order.

use gatewright_packet::LinkAddress;
use gatewright_tables::GROUP_MEMBERS_MAX;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

// Types of messages.
const DONE: u16 = 3;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
pub(super) const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DEL_ADDRESS: u16 = 21;
pub(super) const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const DEL_ROUTE: u16 = 25;
pub(super) const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const DEL_NEIGHBOUR: u16 = 29;
pub(super) const GET_NEIGHBOUR: u16 = 30;

// Flags of messages.
const REQUEST: u16 = 1;
const DUMP_INTERRUPTED: u16 = 0x10;
const REPLACE: u16 = 0x100;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

/// Octets of the header of each message.
const HEADER_LEN: usize = 16;

// Address families.
const IPV4: u8 = 2;
const IPV6: u8 = 10;

/// The content of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum KernelMessage {
    /// A link exists, or was changed.
    Link(KernelLink),
    /// A link is gone.
    LinkGone(u32),
    /// An address is on a link.
    Address(KernelAddress),
    /// An address is gone from a link.
    AddressGone(KernelAddress),
    /// A route exists; the flag tells whether it replaces one.
    Route(KernelRoute, bool),
    /// A route is gone.
    RouteGone(KernelRoute),
    /// The state of a neighbour.
    Neighbour(KernelNeighbour),
    /// The answer to a request is complete.
    Done,
    /// A request was refused, with this error number; no error is an acknowledgement.
    Refused(i32),
    /// Any other message.
    Other,
}

/// A link of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct KernelLink {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) mtu: u32,
    /// Its link-layer address, if it has one of a width in use.
    pub(super) link_address: LinkAddress,
    /// It is administratively up.
    pub(super) up: bool,
    /// It is up and its device has a carrier.
    pub(super) carries: bool,
    /// The link below and the tag, if it is a VLAN.
    pub(super) vlan: Option<KernelVlan>,
}

/// What makes a link of the kernel a VLAN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct KernelVlan {
    pub(super) below: u32,
    pub(super) id: u16,
}

/// An address of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct KernelAddress {
    pub(super) link: u32,
    pub(super) address: IpAddr,
    pub(super) prefix_len: u8,
    pub(super) flags: u32,
}

/// A set of destinations: an address with the bits that matter.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct Destination {
    pub(super) address: IpAddr,
    pub(super) len: u8,
}

/// The action of a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RouteType {
    /// Forwards.
    Unicast,
    /// Delivers here: to an address of the kernel.
    Local,
    /// Delivers here, and to everyone on the link.
    Broadcast,
    /// Answers that the destination is prohibited.
    Prohibit,
    /// Drops, answers otherwise, or continues in another table.
    Other,
}

/// A route of the kernel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct KernelRoute {
    pub(super) to: Destination,
    pub(super) table: u32,
    pub(super) priority: u32,
    pub(super) kind: RouteType,
    /// Its next hops: links and gateways.
    pub(super) hops: Vec<Hop>,
    /// It matches on more than the destination, or encapsulates: only the kernel can follow it.
    pub(super) special: bool,
}

/// A next hop: over a link, to the destination itself or to a gateway.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Hop {
    pub(super) link: u32,
    pub(super) gateway: Option<IpAddr>,
    /// Its share of the flows, beside the others of its route.
    pub(super) weight: u16,
}

/// A neighbour of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct KernelNeighbour {
    pub(super) link: u32,
    pub(super) address: IpAddr,
    pub(super) knowledge: KernelReachability,
}

/// The kernel's knowledge of a neighbour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum KernelReachability {
    /// Its link-layer address, known to be reachable.
    Fresh(LinkAddress),
    /// Its last known link-layer address.
    Stale(LinkAddress),
    /// It is being resolved.
    Asking,
    /// It is unreachable or forgotten.
    Gone,
}

/// The messages in one received datagram.
pub(super) fn messages(octets: &[u8]) -> Messages<'_> {
    Messages(octets)
}

/// Iterates over messages; each has a flag that tells whether the tables changed during the dump. A
/// truncated message ends it.
#[derive(Debug)]
pub(super) struct Messages<'a>(&'a [u8]);

impl Iterator for Messages<'_> {
    type Item = (KernelMessage, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = self.0.split_first_chunk::<HEADER_LEN>()?;
        let [l1, l2, l3, l4, k1, k2, f1, f2, ..] = *header;
        let len = usize::try_from(u32::from_ne_bytes([l1, l2, l3, l4])).ok()?;
        let body = self.0.get(HEADER_LEN..len)?;
        self.0 = self.0.get(aligned(len)..).unwrap_or_default();
        let (kind, flags) = (u16::from_ne_bytes([k1, k2]), u16::from_ne_bytes([f1, f2]));
        let message = message(kind, flags, body).unwrap_or(KernelMessage::Other);
        Some((message, flags & DUMP_INTERRUPTED != 0))
    }
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Option<KernelMessage> {
    Some(match kind {
        DONE => KernelMessage::Done,
        ERROR => KernelMessage::Refused(i32::from_ne_bytes(*body.first_chunk()?)),
        NEW_LINK => KernelMessage::Link(link(body)?),
        DEL_LINK => KernelMessage::LinkGone(link(body)?.index),
        NEW_ADDRESS => KernelMessage::Address(address(body)?),
        DEL_ADDRESS => KernelMessage::AddressGone(address(body)?),
        NEW_ROUTE => KernelMessage::Route(route(body)?, flags & REPLACE != 0),
        DEL_ROUTE => KernelMessage::RouteGone(route(body)?),
        NEW_NEIGHBOUR => KernelMessage::Neighbour(neighbour(body)?),
        DEL_NEIGHBOUR => KernelMessage::Neighbour(KernelNeighbour {
            knowledge: KernelReachability::Gone,
            ..neighbour(body)?
        }),
        _ => return None,
    })
}

const fn aligned(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Iterates over attributes: type and value. A truncated attribute ends it.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        const TYPE_MASK: u16 = 0x3fff;
        let [l1, l2, k1, k2] = *self.0.first_chunk()?;
        let len = usize::from(u16::from_ne_bytes([l1, l2]));
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(aligned(len)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k1, k2]) & TYPE_MASK, value))
    }
}

/// The value of the first attribute of a type.
fn attribute(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    Attributes(attributes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn word(octets: &[u8]) -> Option<u32> {
    octets.first_chunk().map(|octets| u32::from_ne_bytes(*octets))
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => octets.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into()),
        16 => octets.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into()),
        _ => None,
    }
}

const fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        IPV4 => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        IPV6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    }
}

/// `struct ifinfomsg` and its attributes.
fn link(body: &[u8]) -> Option<KernelLink> {
    // IFF_UP, IFF_LOWER_UP.
    const UP: u32 = 1;
    const LOWER_UP: u32 = 1 << 16;
    const ADDRESS: u16 = 1;
    const NAME: u16 = 3;
    const MTU: u16 = 4;
    const BELOW: u16 = 5;
    const INFO: u16 = 18;
    const BRIDGE: u8 = 7;
    let (fixed, attributes) = body.split_first_chunk::<16>()?;
    let [family, _, _, _, i1, i2, i3, i4, f1, f2, f3, f4, ..] = *fixed;
    if family == BRIDGE {
        return None;
    }
    let flags = u32::from_ne_bytes([f1, f2, f3, f4]);
    let mut link = KernelLink {
        index: u32::from_ne_bytes([i1, i2, i3, i4]),
        name: String::new(),
        mtu: 0,
        link_address: LinkAddress::NONE,
        up: flags & UP != 0,
        carries: flags & UP != 0 && flags & LOWER_UP != 0,
        vlan: None,
    };
    let (mut below, mut id) = (None, None);
    for (kind, value) in Attributes(attributes) {
        match kind {
            ADDRESS => link.link_address = LinkAddress::new(value).unwrap_or_default(),
            NAME => {
                let name = value.split(|&octet| octet == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            MTU => link.mtu = word(value)?,
            BELOW => below = word(value),
            INFO => id = vlan_id(value),
            _ => {}
        }
    }
    link.vlan = below.zip(id).map(|(below, id)| KernelVlan { below, id });
    Some(link)
}

/// The tag of a link's frames by what its kind tells (`IFLA_LINKINFO`), if that is a VLAN of IEEE
/// 802.1Q.
fn vlan_id(info: &[u8]) -> Option<u16> {
    const KIND: u16 = 1;
    const DATA: u16 = 2;
    const ID: u16 = 1;
    const PROTOCOL: u16 = 5;
    const ETHER_VLAN: [u8; 2] = [0x81, 0x00];
    let (kind, data) = (attribute(info, KIND)?, attribute(info, DATA)?);
    let is_ours = attribute(data, PROTOCOL).is_none_or(|protocol| protocol == ETHER_VLAN);
    let id = attribute(data, ID)?;
    let is_vlan = kind.split(|&octet| octet == 0).next() == Some(b"vlan");
    (is_vlan && is_ours).then(|| id.first_chunk().map(|id| u16::from_ne_bytes(*id)))?
}

/// `struct ifaddrmsg` and its attributes.
fn address(body: &[u8]) -> Option<KernelAddress> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    const FLAGS: u16 = 8;
    let (fixed, attributes) = body.split_first_chunk::<8>()?;
    let [_, prefix_len, flags, _, i1, i2, i3, i4] = *fixed;
    let (mut address, mut local, mut flags) = (None, None, u32::from(flags));
    for (kind, value) in Attributes(attributes) {
        match kind {
            ADDRESS => address = ip(value),
            LOCAL => local = ip(value),
            FLAGS => flags = word(value)?,
            _ => {}
        }
    }
    // On a point-to-point link the address is the other end's.
    let address = local.or(address)?;
    let link = u32::from_ne_bytes([i1, i2, i3, i4]);
    Some(KernelAddress { link, address, prefix_len, flags })
}

/// `struct rtmsg` and its attributes.
fn route(body: &[u8]) -> Option<KernelRoute> {
    const CLONED: u32 = 0x200;
    const DESTINATION: u16 = 1;
    const LINK: u16 = 4;
    const GATEWAY: u16 = 5;
    const PRIORITY: u16 = 6;
    const MULTIPATH: u16 = 9;
    const TABLE: u16 = 15;
    const VIA: u16 = 18;
    const ENCAPSULATION: u16 = 22;
    let (fixed, attributes) = body.split_first_chunk::<12>()?;
    let [family, len, source_len, tos, table, _, _, kind, f1, f2, f3, f4] = *fixed;
    if u32::from_ne_bytes([f1, f2, f3, f4]) & CLONED != 0 {
        return None;
    }
    let mut route = KernelRoute {
        to: Destination { address: unspecified(family)?, len },
        table: table.into(),
        priority: 0,
        kind: match kind {
            1 => RouteType::Unicast,
            // An anycast address is one of this host's, too.
            2 | 4 => RouteType::Local,
            3 => RouteType::Broadcast,
            8 => RouteType::Prohibit,
            _ => RouteType::Other,
        },
        hops: Vec::new(),
        special: tos != 0 || source_len != 0,
    };
    let mut hop = Hop { link: 0, gateway: None, weight: 1 };
    for (kind, value) in Attributes(attributes) {
        match kind {
            DESTINATION => route.to.address = ip(value)?,
            LINK => hop.link = word(value)?,
            GATEWAY => hop.gateway = ip(value),
            VIA => hop.gateway = value.get(2..).and_then(ip),
            PRIORITY => route.priority = word(value)?,
            TABLE => route.table = word(value)?,
            MULTIPATH => route.special |= hops(value, &mut route.hops).is_none(),
            ENCAPSULATION => route.special = true,
            _ => {}
        }
    }
    if route.hops.is_empty() {
        route.hops.push(hop);
    }
    Some(route)
}

/// Maximum next hops of one route; routes with more are left to the kernel.
const HOPS_MAX: usize = GROUP_MEMBERS_MAX;

/// Parses each `struct rtnexthop` with its attributes; `None` if one cannot be followed here.
fn hops(mut octets: &[u8], hops: &mut Vec<Hop>) -> Option<()> {
    const GATEWAY: u16 = 5;
    const VIA: u16 = 18;
    const ENCAPSULATION: u16 = 22;
    const FIXED_LEN: usize = 8;
    while let Some((&[l1, l2, _, weight, i1, i2, i3, i4], _)) =
        octets.split_first_chunk::<FIXED_LEN>()
    {
        let len = usize::from(u16::from_ne_bytes([l1, l2]));
        // `rtnh_hops` is one less.
        let weight = u16::from(weight) + 1;
        let link = u32::from_ne_bytes([i1, i2, i3, i4]);
        let mut hop = Hop { link, gateway: None, weight };
        for (kind, value) in Attributes(octets.get(FIXED_LEN..len)?) {
            match kind {
                GATEWAY => hop.gateway = ip(value),
                VIA => hop.gateway = value.get(2..).and_then(ip),
                ENCAPSULATION => return None,
                _ => {}
            }
        }
        if hops.len() >= HOPS_MAX {
            return None;
        }
        hops.push(hop);
        octets = octets.get(aligned(len)..).unwrap_or_default();
    }
    Some(())
}

/// `struct ndmsg` and its attributes.
fn neighbour(body: &[u8]) -> Option<KernelNeighbour> {
    const DESTINATION: u16 = 1;
    const LINK_ADDRESS: u16 = 2;
    // NUD_REACHABLE, NUD_NOARP, NUD_PERMANENT; NUD_STALE, NUD_DELAY, NUD_PROBE; NUD_INCOMPLETE.
    const FRESH: u16 = 0x02 | 0x40 | 0x80;
    const KNOWN: u16 = 0x04 | 0x08 | 0x10;
    const INCOMPLETE: u16 = 0x01;
    let (fixed, attributes) = body.split_first_chunk::<12>()?;
    let [family, _, _, _, i1, i2, i3, i4, s1, s2, _, _] = *fixed;
    unspecified(family)?;
    let state = u16::from_ne_bytes([s1, s2]);
    let (mut address, mut station) = (None, LinkAddress::NONE);
    for (kind, value) in Attributes(attributes) {
        match kind {
            DESTINATION => address = ip(value),
            LINK_ADDRESS => station = LinkAddress::new(value).unwrap_or_default(),
            _ => {}
        }
    }
    let is_known = !station.is_none();
    let knowledge = match state {
        _ if is_known && state & FRESH != 0 => KernelReachability::Fresh(station),
        _ if is_known && state & KNOWN != 0 => KernelReachability::Stale(station),
        _ if state & INCOMPLETE != 0 => KernelReachability::Asking,
        _ => KernelReachability::Gone,
    };
    let link = u32::from_ne_bytes([i1, i2, i3, i4]);
    Some(KernelNeighbour { link, address: address?, knowledge })
}

/// A request to dump everything of one kind (`GET_…`) and both families.
pub(super) fn dump(kind: u16) -> Vec<u8> {
    // The fixed part, all of it zero: any family, any link, any table.
    let len = match kind {
        GET_LINK => 16,
        GET_ADDRESS => 8,
        _ => 12,
    };
    request(kind, DUMP, &vec![0; len])
}

/// A request that the kernel resolves or verifies a neighbour: `NTF_USE`, as a packet for it would.
pub(super) fn use_neighbour(link: u32, address: IpAddr) -> Vec<u8> {
    const USE: u8 = 1;
    const DESTINATION: u16 = 1;
    let (family, octets) = match address {
        IpAddr::V4(ip) => (IPV4, ip.octets().to_vec()),
        IpAddr::V6(ip) => (IPV6, ip.octets().to_vec()),
    };
    let mut body = vec![family, 0, 0, 0];
    body.extend(link.to_ne_bytes());
    body.extend([0, 0, USE, 0]);
    let len = u16::try_from(4 + octets.len()).unwrap_or_default();
    body.extend(len.to_ne_bytes());
    body.extend(DESTINATION.to_ne_bytes());
    body.extend(octets);
    request(NEW_NEIGHBOUR, CREATE, &body)
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_LEN + body.len()).unwrap_or_default();
    let mut message = len.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((flags | REQUEST).to_ne_bytes());
    // Sequence number and port: there is one question at a time on a socket of its own.
    message.extend([0; 8]);
    message.extend(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `ip -4 route add 10.30.0.0/16 via 10.10.2.2 dev g1 metric 7` as a kernel told it to
    /// `RTNLGRP_IPV4_ROUTE` (Linux 6.18, x86-64, interface 3).
    const NEW_ROUTE_TOLD: &str = "44000000 18000006 8db5016b a04f0000 \
        02100000 fe030001 00000000 \
        08000f00 fe000000 08000100 0a1e0000 08000600 07000000 08000500 0a0a0202 \
        08000400 03000000";

    #[test]
    #[cfg(target_endian = "little")]
    fn a_route_as_a_kernel_told_it() {
        let digits: Vec<u8> =
            NEW_ROUTE_TOLD.bytes().filter(|octet| !octet.is_ascii_whitespace()).collect();
        let octets: Vec<u8> = (digits.chunks(2))
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let route = KernelRoute {
            to: Destination { address: "10.30.0.0".parse().unwrap(), len: 16 },
            table: 254,
            priority: 7,
            kind: RouteType::Unicast,
            hops: vec![Hop { link: 3, gateway: Some("10.10.2.2".parse().unwrap()), weight: 1 }],
            special: false,
        };
        let told: Vec<_> = messages(&octets).collect();
        assert_eq!(told, [(KernelMessage::Route(route, false), false)]);
        for len in 0..octets.len() {
            assert_eq!(messages(&octets[..len]).count(), 0, "{len} octets");
        }
    }

    /// `struct rtattr` with its padding (linux/rtnetlink.h).
    fn encoded(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len() + 4).unwrap();
        let mut all = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        all.resize(all.len().next_multiple_of(4), 0);
        all
    }

    /// linux/if_link.h: `IFLA_LINK`, and within `IFLA_LINKINFO` the kind and its data, for a VLAN its
    /// identifier and protocol. Nested attributes may be marked as such.
    #[test]
    fn a_vlan_is_told_by_the_kind_of_its_link() {
        const NESTED: u16 = 0x8000;
        let link = |kind: &[u8], protocol: [u8; 2]| {
            let flags = encoded(2, &[1, 0, 0, 0, 1, 0, 0, 0]);
            let id = encoded(1, &10_u16.to_ne_bytes());
            let data = encoded(0x2 | NESTED, &[id, flags, encoded(5, &protocol)].concat());
            let info = encoded(0x12 | NESTED, &[encoded(1, kind), data].concat());
            let fixed = [&[0, 0, 1, 0][..], &9_u32.to_ne_bytes(), &[0; 8]].concat();
            let named = [encoded(3, b"red\0"), encoded(4, &1500_u32.to_ne_bytes())].concat();
            let body = [fixed, named, encoded(5, &2_u32.to_ne_bytes()), info].concat();
            match messages(&request(NEW_LINK, 0, &body)).next() {
                Some((KernelMessage::Link(link), _)) => link,
                other => panic!("{other:?}"),
            }
        };
        let found = link(b"vlan\0", [0x81, 0x00]);
        assert_eq!((found.index, found.name.as_str(), found.mtu), (9, "red", 1500));
        assert_eq!(found.vlan, Some(KernelVlan { below: 2, id: 10 }));
        assert_eq!(link(b"vlan\0", [0x88, 0xa8]).vlan, None, "802.1ad");
        assert_eq!(link(b"macvlan\0", [0x81, 0x00]).vlan, None, "another kind");
        assert_eq!(link(b"vlanlike\0", [0x81, 0x00]).vlan, None, "another kind");
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(
            kind in 0_u16..40,
            body in prop::collection::vec(any::<u8>(), 0..200),
            front in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let _count = messages(&front).count();
            let _count = messages(&request(kind, 0, &body)).count();
        }
    }
}
