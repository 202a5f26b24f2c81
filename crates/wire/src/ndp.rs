//! Neighbour discovery for IPv6 (RFC 4861; DNS options RFC 8106).

use crate::{OptionError, Truncated, Writer, header, icmpv6::Icmpv6Type};

header! {
    /// Router solicitation (RFC 4861 §4.1).
    RouterSolicitation = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                            Reserved                           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Options ...
    +-+-+-+-+-+-+-+-+-+-+-+-
    " where type as kind: Icmpv6Type, checksum: checksum
}

header! {
    /// Router advertisement (RFC 4191 §2.2, which adds the preference to RFC 4861 §4.2); lifetime in
    /// seconds, times in milliseconds.
    RouterAdvertisement = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    | Cur Hop Limit |M|O|H|Prf|Resvd|       Router Lifetime         |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Reachable Time                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                          Retrans Timer                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Options ...
    +-+-+-+-+-+-+-+-+-+-+-+-
    " where type as kind: Icmpv6Type, checksum: checksum,
        m as managed, o as other_config, h as home_agent, prf as preference, resvd: reserved
}

header! {
    /// Neighbor solicitation (RFC 4861 §4.3).
    NeighborSolicitation = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Reserved                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                       Target Address                          +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Options ...
    +-+-+-+-+-+-+-+-+-+-+-+-
    " where type as kind: Icmpv6Type, checksum: checksum, target_address: Ipv6Addr
}

header! {
    /// Neighbor advertisement (RFC 4861 §4.4).
    NeighborAdvertisement = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |R|S|O|                     Reserved                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                       Target Address                          +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Options ...
    +-+-+-+-+-+-+-+-+-+-+-+-
    " where type as kind: Icmpv6Type, checksum: checksum, target_address: Ipv6Addr,
        r as router, s as solicited, o as override_flag
}

header! {
    /// Redirect (RFC 4861 §4.5).
    Redirect = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Code      |          Checksum             |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Reserved                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                       Target Address                          +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                     Destination Address                       +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Options ...
    +-+-+-+-+-+-+-+-+-+-+-+-
    " where type as kind: Icmpv6Type, checksum: checksum, target_address: Ipv6Addr,
        destination_address: Ipv6Addr
}

header! {
    /// The header common to all options (RFC 4861 §4.6); the length counts eight octets each.
    OptionHead = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |    Length     |              ...              |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    ~                              ...                              ~
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type as kind, data: rest
}

header! {
    /// Prefix information (RFC 4861 §4.6.2); lifetimes in seconds.
    PrefixInformation = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |    Length     | Prefix Length |L|A| Reserved1 |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                         Valid Lifetime                        |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                       Preferred Lifetime                      |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Reserved2                           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    +                                                               +
    |                                                               |
    +                            Prefix                             +
    |                                                               |
    +                                                               +
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type = 3, length = 4, l as on_link, a as autonomous, prefix: Ipv6Addr
}

header! {
    /// Redirected header (RFC 4861 §4.6.3).
    RedirectedHeader = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |    Length     |            Reserved           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Reserved                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    ~                       IP header + data                        ~
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type = 4
}

header! {
    /// MTU (RFC 4861 §4.6.4), in octets.
    Mtu = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |    Length     |           Reserved            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                              MTU                              |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type = 5, length = 1
}

header! {
    /// Recursive DNS servers (RFC 8106 §5.1); lifetime in seconds.
    RecursiveDns = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Length    |           Reserved            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Lifetime                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    :            Addresses of IPv6 Recursive DNS Servers            :
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type = 25, "Addresses of IPv6 Recursive DNS Servers" as addresses: rest
}

header! {
    /// DNS search list (RFC 8106 §5.2); lifetime in seconds.
    DnsSearchList = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |     Type      |     Length    |           Reserved            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                           Lifetime                            |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |                                                               |
    :                Domain Names of DNS Search List                :
    |                                                               |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where type = 31, "Domain Names of DNS Search List" as domain_names: rest
}

/// Hop limit of every message of neighbour discovery: none has passed a router (RFC 4861 §3.1).
pub const HOP_LIMIT: u8 = 255;

/// One option (RFC 4861 §4.6, RFC 8106 §5).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NdpOption<'p> {
    /// The sender's link-layer address; six octets and no padding on Ethernet.
    SourceLinkLayerAddress(&'p [u8]),
    /// The target's link-layer address.
    TargetLinkLayerAddress(&'p [u8]),
    /// A prefix of the link.
    PrefixInformation(PrefixInformation<'p>),
    /// The packet that caused a redirect, as much of it as there is.
    RedirectedHeader(&'p [u8]),
    /// The largest packet of the link, in octets.
    Mtu(u32),
    /// Resolvers, and how many seconds they may be used.
    RecursiveDns {
        /// Seconds; all ones for ever.
        lifetime: u32,
        /// One address each.
        addresses: &'p [[u8; 16]],
    },
    /// Any other option: its data behind kind and length.
    Other {
        /// Its kind.
        kind: u8,
        /// The octets after the length.
        data: &'p [u8],
    },
}

impl NdpOption<'_> {
    /// Kind of [`SourceLinkLayerAddress`](Self::SourceLinkLayerAddress).
    pub const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;
    /// Kind of [`TargetLinkLayerAddress`](Self::TargetLinkLayerAddress).
    pub const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
    /// Kind of [`PrefixInformation`](Self::PrefixInformation).
    pub const PREFIX_INFORMATION: u8 = PrefixInformation::TYPE;
    /// Kind of [`RedirectedHeader`](Self::RedirectedHeader).
    pub const REDIRECTED_HEADER: u8 = RedirectedHeader::TYPE;
    /// Kind of [`Mtu`](Self::Mtu).
    pub const MTU: u8 = Mtu::TYPE;
    /// Kind of [`RecursiveDns`](Self::RecursiveDns).
    pub const RECURSIVE_DNS: u8 = RecursiveDns::TYPE;

    /// Appends the option, filled up to eight octets.
    ///
    /// # Errors
    ///
    /// [`Truncated`] if `writer` is full, or the option has more than 2040 octets.
    pub fn emit(self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::SourceLinkLayerAddress(address) => {
                emit(Self::SOURCE_LINK_LAYER_ADDRESS, &[], address, writer)
            }
            Self::TargetLinkLayerAddress(address) => {
                emit(Self::TARGET_LINK_LAYER_ADDRESS, &[], address, writer)
            }
            Self::PrefixInformation(prefix) => writer.put(prefix.as_octets()),
            Self::RedirectedHeader(packet) => {
                emit(Self::REDIRECTED_HEADER, &[0; 6], packet, writer)
            }
            Self::Mtu(mtu) => writer.put(&MtuFields { mtu }.emit()),
            Self::RecursiveDns { lifetime, addresses } => {
                let [a, b, c, d] = lifetime.to_be_bytes();
                emit(Self::RECURSIVE_DNS, &[0, 0, a, b, c, d], addresses.as_flattened(), writer)
            }
            Self::Other { kind, data } => emit(kind, &[], data, writer),
        }
    }
}

/// Kind, length, `head`, `data` and zeros up to the next eight octets.
fn emit(kind: u8, head: &[u8], data: &[u8], writer: &mut Writer<'_>) -> Result<(), Truncated> {
    let needed = OptionHead::LEN + head.len() + data.len();
    let units = needed.div_ceil(OPTION_UNIT);
    let length = u8::try_from(units)
        .map_err(|_| Truncated { needed, found: usize::from(u8::MAX) * OPTION_UNIT })?;
    if writer.free() < units * OPTION_UNIT {
        let found = writer.free();
        return Err(Truncated { needed: units * OPTION_UNIT, found });
    }
    writer.put(&[kind, length])?;
    writer.put(head)?;
    writer.put(data)?;
    for _ in needed..units * OPTION_UNIT {
        writer.put_octet(0)?;
    }
    Ok(())
}

/// Octets that one step of an option's length counts.
const OPTION_UNIT: usize = 8;

/// The options after a message, in order; ends at the end or after the first error, for which the
/// whole message is to be dropped (RFC 4861 §4.6: "an option with length zero").
///
/// An option with an impossible length for its kind comes as [`NdpOption::Other`], which receivers
/// ignore. The options after it still count (RFC 8106 §5.3.1 has such an option discarded, not the
/// message).
#[derive(Clone, Debug)]
pub struct NdpOptions<'p> {
    rest: &'p [u8],
}

impl<'p> NdpOptions<'p> {
    /// Reads what follows the fixed part of a message.
    pub const fn new(options: &'p [u8]) -> Self {
        Self { rest: options }
    }

    fn read(&mut self) -> Result<Option<NdpOption<'p>>, OptionError> {
        let Some(&kind) = self.rest.first() else { return Ok(None) };
        let found = self.rest.len();
        let truncated = |needed| OptionError::Truncated { kind: u16::from(kind), needed, found };
        let (head, _) = OptionHead::split(self.rest).map_err(|_| truncated(OPTION_UNIT))?;
        let length = usize::from(head.length()) * OPTION_UNIT;
        if length == 0 {
            return Err(OptionError::Length { kind: u16::from(kind), length });
        }
        let (option, rest) = self.rest.split_at_checked(length).ok_or(truncated(length))?;
        self.rest = rest;
        Ok(Some(NdpOption::of(kind, option)))
    }
}

impl<'p> NdpOption<'p> {
    /// The option of this kind in `octets`, which begin with kind and length.
    fn of(kind: u8, octets: &'p [u8]) -> Self {
        let data = octets.get(OptionHead::LEN..).unwrap_or_default();
        let other = Self::Other { kind, data };
        match kind {
            Self::SOURCE_LINK_LAYER_ADDRESS => Self::SourceLinkLayerAddress(data),
            Self::TARGET_LINK_LAYER_ADDRESS => Self::TargetLinkLayerAddress(data),
            Self::PREFIX_INFORMATION => octets
                .try_into()
                .map_or(other, |octets| Self::PrefixInformation(PrefixInformation::of(octets))),
            Self::REDIRECTED_HEADER => RedirectedHeader::split(octets)
                .map_or(other, |(_, packet)| Self::RedirectedHeader(packet)),
            Self::MTU => octets.try_into().map_or(other, |octets| Self::Mtu(Mtu::of(octets).mtu())),
            Self::RECURSIVE_DNS => RecursiveDns::split(octets)
                .ok()
                .and_then(|(dns, addresses)| match addresses.as_chunks() {
                    (addresses @ [_, ..], []) => {
                        Some(Self::RecursiveDns { lifetime: dns.lifetime(), addresses })
                    }
                    _ => None,
                })
                .unwrap_or(other),
            _ => other,
        }
    }
}

impl<'p> Iterator for NdpOptions<'p> {
    type Item = Result<NdpOption<'p>, OptionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if !matches!(read, Some(Ok(_))) {
            self.rest = &[];
        }
        read
    }
}
