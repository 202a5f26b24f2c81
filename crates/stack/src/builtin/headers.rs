//! The headers that a filter reads in an IP packet: addresses, upper layer and ports, after any
//! other headers.

use gatewright_wire::{
    IpProtocol,
    ipv4::Ipv4,
    ipv6::{Ipv6, UpperLayer},
};
use std::net::IpAddr;

/// The fields of a packet that rules use.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Headers {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    /// The upper layer.
    pub(super) protocol: Visible<IpProtocol>,
    /// Source and destination port, if the upper layer has ports.
    pub(super) ports: Visible<Option<(u16, u16)>>,
    /// The packet of a fragment, if it is one.
    pub(super) fragment: Option<Fragment>,
}

/// A field that a packet may not show.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Visible<T> {
    /// It is here.
    Here(T),
    /// It is in the first fragment and this is a later one. Or the headers before it are truncated,
    /// too many or inconsistent, which keeps no router from forwarding the packet.
    Not,
}

/// The packet of a fragment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fragment {
    pub(super) of: FragmentedPacket,
    pub(super) is_first: bool,
}

/// The common fields of the fragments of one packet (RFC 791 §3.2, RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct FragmentedPacket {
    from: IpAddr,
    to: IpAddr,
    identification: u32,
    /// IPv4 only.
    protocol: IpProtocol,
}

impl Headers {
    /// Parses the packet at the front of `octets`; none if it is no IP packet, or its fixed header
    /// is incomplete.
    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        match octets.first()? >> 4 {
            4 => Self::read4(octets),
            6 => Self::read6(octets),
            _ => None,
        }
    }

    fn read4(octets: &[u8]) -> Option<Self> {
        let (ip, _) = Ipv4::split(octets).ok()?;
        let (from, to) = (ip.source_address().into(), ip.destination_address().into());
        let (protocol, is_first) = (ip.protocol(), ip.fragment_offset() == 0);
        let identification = ip.identification().into();
        let of = FragmentedPacket { from, to, identification, protocol };
        let fragment = ip.is_fragment().then_some(Fragment { of, is_first });
        // Behind its end, its link has padded. What this host makes has its length filled in later.
        let len = Some(usize::from(ip.total_length())).filter(|&len| len > 0);
        let octets = octets.get(..len.unwrap_or(octets.len()));
        let payload = octets.and_then(|octets| octets.get(ip.header_len()..));
        let payload = payload.filter(|_| is_first && ip.header_len() >= Ipv4::LEN);
        let ports = ports(protocol, payload);
        Some(Self { from, to, protocol: Visible::Here(protocol), ports, fragment })
    }

    fn read6(octets: &[u8]) -> Option<Self> {
        let (ip, _) = Ipv6::split(octets).ok()?;
        let (from, to) = (ip.source_address().into(), ip.destination_address().into());
        let unseen = Self { from, to, protocol: Visible::Not, ports: Visible::Not, fragment: None };
        let len = Ipv6::LEN + usize::from(ip.payload_length());
        let Some(octets) = octets.get(..len) else { return Some(unseen) };
        let Ok(upper) = UpperLayer::find(octets) else { return Some(unseen) };
        let is_first = !upper.is_later_fragment();
        // One that is whole although it has a fragment header is of nothing else (RFC 6946 §4).
        let fragment = upper.fragment.filter(|header| !is_first || header.more_fragments);
        let fragment = fragment.map(|header| {
            let (identification, protocol) = (header.identification, IpProtocol::FRAGMENT);
            Fragment { of: FragmentedPacket { from, to, identification, protocol }, is_first }
        });
        if upper.protocol.is_extension_header() {
            return Some(Self { fragment, ..unseen });
        }
        let payload = octets.get(upper.offset..).filter(|_| is_first);
        let (protocol, ports) = (Visible::Here(upper.protocol), ports(upper.protocol, payload));
        Some(Self { from, to, protocol, ports, fragment })
    }
}

/// Whether a filter finds ports in the headers of this protocol: TCP, UDP, UDP-Lite and SCTP.
pub const fn has_ports(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::UDP_LITE | IpProtocol::SCTP)
}

/// The ports of an upper layer that has any; `payload` is what it begins with, where that is here.
fn ports(protocol: IpProtocol, payload: Option<&[u8]>) -> Visible<Option<(u16, u16)>> {
    if !has_ports(protocol) {
        return Visible::Here(None);
    }
    let Some(&[a, b, c, d]) = payload.and_then(<[u8]>::first_chunk) else { return Visible::Not };
    Visible::Here(Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))))
}
