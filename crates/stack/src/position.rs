//! Positions in the graph.

use gatewright_wire::{EtherType, IpProtocol};
use std::{fmt, str::FromStr};

/// The direction of a packet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Side {
    /// From a link up.
    #[default]
    Receive,
    /// Down to a link.
    Transmit,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Receive => "receive",
            Self::Transmit => "transmit",
        })
    }
}

/// An ICMP error that a layer requests, named by cause; ICMPv4 and ICMPv6 each have their code.
///
/// The packet is pushed with its network header in front
/// ([`restore_network`](gatewright_packet::Packet::restore_network)).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum IcmpError {
    /// No route to the destination.
    NetworkUnreachable,
    /// The neighbour does not answer.
    HostUnreachable,
    /// No layer for the protocol; `parameter` is the octet that names it.
    ProtocolUnreachable,
    /// No socket on the port.
    PortUnreachable,
    /// Too large for the next link, whose MTU is `parameter`.
    TooBig,
    /// Forbidden by configuration.
    Prohibited,
    /// The hop limit is spent.
    HopLimit,
    /// Fragments were missing at the timeout.
    Reassembly,
    /// A malformed header; the octet at fault is `parameter`.
    BadHeader,
    /// An IPv6 option that must be understood and is not; its octet is `parameter`.
    BadOption,
    /// The first fragment of an IPv6 packet does not have all of its headers (RFC 7112 §5).
    IncompleteChain,
    /// Forwarded back over its own link: its sender can reach the next hop, which is the packet's
    /// `next_hop`, without us.
    Redirect,
}

impl IcmpError {
    /// Every cause.
    pub const ALL: [Self; 12] = [
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::ProtocolUnreachable,
        Self::PortUnreachable,
        Self::TooBig,
        Self::Prohibited,
        Self::HopLimit,
        Self::Reassembly,
        Self::BadHeader,
        Self::BadOption,
        Self::IncompleteChain,
        Self::Redirect,
    ];
}

/// A position in the graph, named by the kind of packets there.
///
/// Its text is used in configuration and on the command line: `frame`, `ether:ipv4`,
/// `ether:0x88b5`, `ip:udp`, `ip:89`, `icmp:3`, `icmpv6:135`, `udp:5683`, `tcp:80`, `label:100`,
/// `dispatch:0x41`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum At {
    /// Whole frames between a link and its link layer.
    Frame,
    /// Payloads of frames, by type.
    EtherType(EtherType),
    /// Payloads of IP packets of both families addressed to this host, by protocol.
    IpProtocol(IpProtocol),
    /// ICMP messages to this host, by type (RFC 792).
    Icmpv4Type(u8),
    /// ICMPv6 messages to this host, by type (RFC 4443 §2.1).
    Icmpv6Type(u8),
    /// Payloads of UDP datagrams, by destination port.
    UdpPort(u16),
    /// Payloads of TCP segments, by destination port.
    TcpPort(u16),
    /// 6LoWPAN payloads, by dispatch octet (RFC 4944 §5.1).
    Dispatch(u8),
    /// Payloads of MPLS packets, by label.
    Label(u32),
    /// IP packets of this host, on their way to their network layer: each has its IP header in
    /// front. It leaves by `egress` if that is set already, else by its route.
    Local(EtherType),
    /// IP packets whose next hop has no link address yet, by network layer.
    Unresolved(EtherType),
    /// Packets that request an ICMP error, by network layer and cause.
    Error(EtherType, IcmpError),
}

impl At {
    /// The position for labels without one of their own.
    pub(crate) const ANY_LABEL: Self = Self::Label(3);

    /// The texts of positions that have a name, for suggestions.
    pub fn names() -> impl Iterator<Item = String> {
        let ether = ETHER_NAMES.iter().map(|(name, _)| format!("ether:{name}"));
        let ip = IP_NAMES.iter().map(|(name, _)| format!("ip:{name}"));
        std::iter::once("frame".to_owned()).chain(ether).chain(ip)
    }

    /// The position for any value of this kind, if the kind has one: a layer that finds nothing at
    /// the exact position pushes there. Port 0 is no port (RFC 6335 §6), and label 3 is never in a
    /// packet (RFC 3032 §2.1).
    pub const fn any(self) -> Option<Self> {
        match self {
            Self::UdpPort(_) => Some(Self::UdpPort(0)),
            Self::TcpPort(_) => Some(Self::TcpPort(0)),
            Self::Label(_) => Some(Self::ANY_LABEL),
            _ => None,
        }
    }

    /// A number for lookup, unique to the position.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a constant but for one number, where it is called")]
    pub(crate) const fn key(self) -> u64 {
        let (kind, value) = match self {
            Self::Frame => (1, 0),
            Self::EtherType(EtherType(value)) => (2, value as u32),
            Self::IpProtocol(IpProtocol(value)) => (3, value as u32),
            Self::UdpPort(value) => (4, value as u32),
            Self::TcpPort(value) => (5, value as u32),
            Self::Dispatch(value) => (6, value as u32),
            Self::Icmpv4Type(value) => (12, value as u32),
            Self::Icmpv6Type(value) => (13, value as u32),
            Self::Label(value) => (7, value),
            Self::Unresolved(EtherType(value)) => (8, value as u32),
            Self::Local(EtherType(value)) => (11, value as u32),
            Self::Error(EtherType(value), error) => (9, ((error as u32) << 16) | value as u32),
        };
        (kind << 32) | value as u64
    }
}

/// EtherTypes by name, as positions are written.
const ETHER_NAMES: [(&str, EtherType); 5] = [
    ("ipv4", EtherType::IPV4),
    ("ipv6", EtherType::IPV6),
    ("arp", EtherType::ARP),
    ("vlan", EtherType::VLAN),
    ("mpls", EtherType::MPLS),
];

/// IP protocols by name, as positions are written.
const IP_NAMES: [(&str, IpProtocol); 6] = [
    ("icmp", IpProtocol::ICMPV4),
    ("igmp", IpProtocol::IGMP),
    ("tcp", IpProtocol::TCP),
    ("udp", IpProtocol::UDP),
    ("icmpv6", IpProtocol::ICMPV6),
    ("sctp", IpProtocol::SCTP),
];

/// Further IP protocols by name: IANA's keywords, in lower case and without punctuation (Assigned
/// Internet Protocol Numbers). Those that other programs use for another number or for an address
/// family (`ipip`, `ipv4`, `ipv6`) are left out.
const FURTHER_IP_NAMES: [(&str, IpProtocol); 13] = [
    ("dccp", IpProtocol(33)),
    ("rsvp", IpProtocol(46)),
    ("gre", IpProtocol(47)),
    ("esp", IpProtocol(50)),
    ("ah", IpProtocol(51)),
    ("eigrp", IpProtocol(88)),
    ("ospf", IpProtocol(89)),
    ("pim", IpProtocol(103)),
    ("ipcomp", IpProtocol(108)),
    ("vrrp", IpProtocol(112)),
    ("l2tp", IpProtocol(115)),
    ("udplite", IpProtocol::UDP_LITE),
    ("hip", IpProtocol(139)),
];

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ether = |f: &mut fmt::Formatter<'_>, ether: EtherType| match ETHER_NAMES
            .iter()
            .find(|(_, known)| *known == ether)
        {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{:#06x}", ether.0),
        };
        match *self {
            Self::Frame => f.write_str("frame"),
            Self::EtherType(value) => {
                f.write_str("ether:")?;
                ether(f, value)
            }
            Self::IpProtocol(value) => match IP_NAMES.iter().find(|(_, known)| *known == value) {
                Some((name, _)) => write!(f, "ip:{name}"),
                None => write!(f, "ip:{}", value.0),
            },
            Self::Icmpv4Type(number) => write!(f, "icmp:{number}"),
            Self::Icmpv6Type(number) => write!(f, "icmpv6:{number}"),
            Self::UdpPort(port) => write!(f, "udp:{port}"),
            Self::TcpPort(port) => write!(f, "tcp:{port}"),
            Self::Dispatch(octet) => write!(f, "dispatch:{octet:#04x}"),
            Self::Label(label) => write!(f, "label:{label}"),
            Self::Local(value) => {
                f.write_str("local:")?;
                ether(f, value)
            }
            Self::Unresolved(value) => {
                f.write_str("unresolved:")?;
                ether(f, value)
            }
            Self::Error(value, error) => {
                f.write_str("error:")?;
                ether(f, value)?;
                write!(f, ":{error:?}")
            }
        }
    }
}

/// A text that names no position.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AtError {
    /// The word before the colon is no kind of position.
    #[error(
        "a position is `frame`, `ether:TYPE`, `ip:PROTOCOL`, `icmp:TYPE`, `icmpv6:TYPE`, `udp:PORT`, `tcp:PORT`, `label:NUMBER` or `dispatch:OCTET`"
    )]
    Kind,
    /// The word after the colon is neither a known name nor a number in range.
    #[error("what follows the colon is neither a known name nor a number in range")]
    Value,
}

impl FromStr for At {
    type Err = AtError;

    fn from_str(text: &str) -> Result<Self, AtError> {
        if text == "frame" {
            return Ok(Self::Frame);
        }
        let (kind, value) = text.split_once(':').ok_or(AtError::Kind)?;
        let port = || match u16::try_from(number(value)?) {
            Ok(port @ 1..) => Ok(port),
            _ => Err(AtError::Value),
        };
        let octet = || u8::try_from(number(value)?).map_err(|_| AtError::Value);
        match kind {
            "ether" => named(&ETHER_NAMES, value, |n| u16::try_from(n).ok().map(EtherType))
                .map(Self::EtherType),
            "ip" => named(&IP_NAMES, value, ip_protocol_number).map(Self::IpProtocol),
            "icmp" => octet().map(Self::Icmpv4Type),
            "icmpv6" => octet().map(Self::Icmpv6Type),
            "udp" => port().map(Self::UdpPort),
            "tcp" => port().map(Self::TcpPort),
            "label" => match number(value)? {
                label @ ..=LABEL_MAX => Ok(Self::Label(label)),
                _ => Err(AtError::Value),
            },
            "dispatch" => octet().map(Self::Dispatch),
            _ => Err(AtError::Kind),
        }
    }
}

/// The largest MPLS label: 20 bits (RFC 3032 §2.1).
const LABEL_MAX: u32 = 0xf_ffff;

fn named<T: Copy>(
    names: &[(&str, T)],
    value: &str,
    of: impl Fn(u32) -> Option<T>,
) -> Result<T, AtError> {
    if let Some((_, known)) = names.iter().find(|(name, _)| *name == value) {
        return Ok(*known);
    }
    of(number(value)?).ok_or(AtError::Value)
}

/// A number in digits, or in hexadecimal digits behind `0x`.
fn number(text: &str) -> Result<u32, AtError> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) if hex.bytes().all(|octet| octet.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()
        }
        None if text.bytes().all(|octet| octet.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    parsed.ok_or(AtError::Value)
}

fn ip_protocol_number(number: u32) -> Option<IpProtocol> {
    u8::try_from(number).ok().map(IpProtocol)
}

/// Names of IP protocols that [`ip_protocol`] reads.
pub fn ip_protocol_names() -> impl Iterator<Item = &'static str> {
    IP_NAMES.iter().chain(&FURTHER_IP_NAMES).map(|(name, _)| *name)
}

/// An IP protocol by its name, or by its number.
///
/// # Errors
///
/// [`AtError::Value`] if it is neither.
pub fn ip_protocol(text: &str) -> Result<IpProtocol, AtError> {
    if let Some((_, known)) = FURTHER_IP_NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(*known);
    }
    named(&IP_NAMES, text, ip_protocol_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_the_names_of_their_registry() {
        let cases = [("tcp", 6), ("gre", 47), ("ospf", 89), ("udplite", 136), ("4", 4)];
        for (text, number) in cases {
            assert_eq!(ip_protocol(text), Ok(IpProtocol(number)), "{text}");
        }
        assert!(ip_protocol_names().all(|name| ip_protocol(name).is_ok()));
        for text in ["ipip", "ipv6", "GRE", "256", ""] {
            assert_eq!(ip_protocol(text), Err(AtError::Value), "{text}");
        }
    }

    #[test]
    fn a_position_reads_as_it_is_written() {
        for text in [
            "frame",
            "ether:ipv4",
            "ether:0x88b5",
            "ip:udp",
            "ip:89",
            "icmp:3",
            "icmpv6:135",
            "udp:5683",
            "tcp:80",
            "label:1048575",
            "dispatch:0x41",
        ] {
            assert_eq!(text.parse::<At>().map(|at| at.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "",
            "ether",
            "ether:",
            "ether:0x10000",
            "ip:256",
            "icmp:256",
            "icmpv6:",
            "udp:-1",
            "label:1048576",
            "port:1",
            "udp:0",
            "udp:+5",
            "ether:0x+1",
        ] {
            assert!(text.parse::<At>().is_err(), "{text}");
        }
    }
}
