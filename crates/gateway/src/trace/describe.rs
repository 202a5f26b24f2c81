//! What a traced packet is, in words: a fragment, or an ICMP error with what it is about.

use super::changes::ip_at;
use gatewright_stack::{Reassembling, ReassemblyState, TraceStep};
use gatewright_wire::{
    IpProtocol,
    icmpv4::{self, Icmpv4Type},
    icmpv6::{self, Icmpv6Type},
    ipv4::Ipv4,
    ipv6::{Ipv6, UpperLayer},
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A packet in words.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Description {
    pub(super) text: String,
    /// Whether it is an ICMP error.
    pub(super) is_error: bool,
}

/// The packet of a step in words; none unless it is a fragment or an ICMP error.
pub(super) fn description(step: &TraceStep) -> Option<Description> {
    let packet = IpPacket::parse(step.octets.get(ip_at(step)?..)?)?;
    if let Some(fragment) = packet.fragment {
        return Some(Description { text: fragment.text(&packet), is_error: false });
    }
    packet.icmp_error().map(|text| Description { text, is_error: true })
}

/// The state of a fragment's datagram in words.
pub(super) fn reassembly(of: &Reassembling) -> String {
    const TIMEOUT: &str = "reassembly-timeout";
    let fragments = match of.fragments {
        1 => "1 fragment".to_owned(),
        count => format!("{count} fragments"),
    };
    let octets = match of.total {
        Some(total) if total == of.octets => format!("{total} octets"),
        Some(total) => format!("{} of {total} octets", of.octets),
        None => format!("{} octets, the last fragment has not come", of.octets),
    };
    let state = match of.state {
        ReassemblyState::Waiting => "reassembly waits for further fragments".to_owned(),
        ReassemblyState::Complete => "reassembly is complete".to_owned(),
        ReassemblyState::GivenUp(reason) if reason.0 == TIMEOUT => {
            "reassembly timed out, 60 s after the first fragment".to_owned()
        }
        ReassemblyState::GivenUp(reason) => format!("reassembly was given up: {}", reason.0),
    };
    format!("{state}; {fragments}, {octets}")
}

/// An IP packet of either version, perhaps cut short.
struct IpPacket<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: IpProtocol,
    /// The captured part of its payload.
    payload: &'a [u8],
    fragment: Option<FragmentRange>,
}

/// The part of a datagram that a fragment carries.
#[derive(Clone, Copy)]
struct FragmentRange {
    identification: u32,
    start: usize,
    len: usize,
    more: bool,
}

impl FragmentRange {
    fn text(self, packet: &IpPacket<'_>) -> String {
        let Self { identification, start, len, more } = self;
        let end = (start + len).saturating_sub(1);
        let rest = if more { "more follow" } else { "the last" };
        let IpPacket { source, destination, protocol, .. } = packet;
        format!(
            "fragment {identification:#x} of {protocol} {source} → {destination}: \
             octets {start} to {end}, {rest}"
        )
    }
}

impl<'a> IpPacket<'a> {
    fn parse(octets: &'a [u8]) -> Option<Self> {
        match octets.first()? >> 4 {
            4 => Self::ipv4(octets),
            6 => Self::ipv6(octets),
            _ => None,
        }
    }

    fn ipv4(octets: &'a [u8]) -> Option<Self> {
        let (ip, _) = Ipv4::split(octets).ok()?;
        // The network layer has yet to complete a packet of ours, whose length is zero.
        let end = match usize::from(ip.total_length()) {
            0 => octets.len(),
            stated => stated.min(octets.len()),
        };
        let payload = octets.get(usize::from(ip.ihl()) * 4..end)?;
        let fragment = ip.is_fragment().then(|| FragmentRange {
            identification: ip.identification().into(),
            start: ip.fragment_start(),
            len: payload.len(),
            more: ip.more_fragments(),
        });
        Some(Self {
            source: ip.source_address().into(),
            destination: ip.destination_address().into(),
            protocol: ip.protocol(),
            payload,
            fragment,
        })
    }

    fn ipv6(octets: &'a [u8]) -> Option<Self> {
        /// The unit of the field (RFC 8200 §4.5).
        const OFFSET_UNIT: usize = 8;
        let (ip, rest) = Ipv6::split(octets).ok()?;
        let end = (Ipv6::LEN + usize::from(ip.payload_length())).min(octets.len());
        let (source, destination) = (ip.source_address().into(), ip.destination_address().into());
        // In an error, the chain of headers may be cut short.
        let Ok(upper) = UpperLayer::find(octets) else {
            let protocol = ip.next_header();
            return Some(Self { source, destination, protocol, payload: rest, fragment: None });
        };
        let payload = octets.get(upper.offset..end).unwrap_or_default();
        // An atomic fragment is a whole packet (RFC 6946).
        let is_part = |of: &gatewright_wire::ipv6::FragmentFields| {
            of.fragment_offset != 0 || of.more_fragments
        };
        let fragment = upper.fragment.filter(is_part).map(|fragment| FragmentRange {
            identification: fragment.identification,
            start: usize::from(fragment.fragment_offset) * OFFSET_UNIT,
            len: payload.len(),
            more: fragment.more_fragments,
        });
        Some(Self { source, destination, protocol: upper.protocol, payload, fragment })
    }

    /// The ICMP error that it is, and what that is about.
    fn icmp_error(&self) -> Option<String> {
        let (&[kind, code, _, _, a, b, c, d], quoted) = self.payload.split_first_chunk()?;
        let word = [a, b, c, d];
        let said = match self.protocol {
            IpProtocol::ICMPV4 => icmpv4_error(Icmpv4Type(kind), code, word)?,
            IpProtocol::ICMPV6 if Icmpv6Type(kind) == Icmpv6Type::REDIRECT => {
                return icmpv6_redirect(quoted);
            }
            IpProtocol::ICMPV6 => icmpv6_error(Icmpv6Type(kind), code, word)?,
            _ => return None,
        };
        let about = Self::parse(quoted).map(|of| of.flow());
        let about = about.unwrap_or_else(|| "nothing that can be read".to_owned());
        Some(format!("{} {said} (type {kind}, code {code}) about {about}", self.protocol))
    }

    /// Protocol and ends of a quoted packet, with ports where they are there.
    fn flow(&self) -> String {
        let Self { source, destination, protocol, payload, fragment } = *self;
        let part = if fragment.is_some() { "a fragment of " } else { "" };
        // Only the first fragment has the beginning of the payload.
        let payload = if fragment.is_some_and(|of| of.start > 0) { &[] } else { payload };
        match (protocol, payload) {
            (IpProtocol::TCP | IpProtocol::UDP, &[from_1, from_2, to_1, to_2, ..]) => {
                let from = SocketAddr::new(source, u16::from_be_bytes([from_1, from_2]));
                let to = SocketAddr::new(destination, u16::from_be_bytes([to_1, to_2]));
                format!("{part}{protocol} {from} → {to}")
            }
            (IpProtocol::ICMPV4, &[kind, ..]) => {
                format!("{part}{protocol} {} {source} → {destination}", Icmpv4Type(kind))
            }
            (IpProtocol::ICMPV6, &[kind, ..]) => {
                format!("{part}{protocol} {} {source} → {destination}", Icmpv6Type(kind))
            }
            _ => format!("{part}{protocol} {source} → {destination}"),
        }
    }
}

/// An error of IPv4 in words (RFC 792, RFC 1191 §4); none for other messages.
fn icmpv4_error(kind: Icmpv4Type, code: u8, [a, b, c, d]: [u8; 4]) -> Option<String> {
    use icmpv4::{exceeded, unreachable};
    let text = match (kind, code) {
        (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED) => {
            return Some(format!("fragmentation needed, MTU {}", u16::from_be_bytes([c, d])));
        }
        (Icmpv4Type::REDIRECT, _) => {
            return Some(format!("redirect to {}", Ipv4Addr::new(a, b, c, d)));
        }
        (Icmpv4Type::PARAMETER_PROBLEM, _) => {
            return Some(format!("parameter problem at octet {a}"));
        }
        (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::NETWORK) => "network unreachable",
        (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::HOST) => "host unreachable",
        (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::PROTOCOL) => "protocol unreachable",
        (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::PORT) => "port unreachable",
        (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::PROHIBITED) => "prohibited",
        (Icmpv4Type::TIME_EXCEEDED, exceeded::IN_TRANSIT) => "time exceeded in transit",
        (Icmpv4Type::TIME_EXCEEDED, exceeded::REASSEMBLY) => "time exceeded in reassembly",
        _ => return kind.is_error().then(|| kind.to_string()),
    };
    Some(text.to_owned())
}

/// An error of IPv6 in words (RFC 4443 §3); none for other messages.
fn icmpv6_error(kind: Icmpv6Type, code: u8, word: [u8; 4]) -> Option<String> {
    use icmpv6::{exceeded, parameter, unreachable};
    let value = u32::from_be_bytes(word);
    let text = match (kind, code) {
        (Icmpv6Type::PACKET_TOO_BIG, _) => return Some(format!("packet too big, MTU {value}")),
        (Icmpv6Type::PARAMETER_PROBLEM, parameter::UNRECOGNIZED_NEXT_HEADER) => {
            return Some(format!("unrecognized next header at octet {value}"));
        }
        (Icmpv6Type::PARAMETER_PROBLEM, parameter::UNRECOGNIZED_OPTION) => {
            return Some(format!("unrecognized option at octet {value}"));
        }
        (Icmpv6Type::PARAMETER_PROBLEM, _) => {
            return Some(format!("parameter problem at octet {value}"));
        }
        (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::NO_ROUTE) => "no route to destination",
        (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::PROHIBITED) => "prohibited",
        (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::ADDRESS) => "address unreachable",
        (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::PORT) => "port unreachable",
        (Icmpv6Type::TIME_EXCEEDED, exceeded::IN_TRANSIT) => "time exceeded in transit",
        (Icmpv6Type::TIME_EXCEEDED, exceeded::REASSEMBLY) => "time exceeded in reassembly",
        _ => return kind.is_error().then(|| kind.to_string()),
    };
    Some(text.to_owned())
}

/// A redirect of IPv6 in words: behind its header are target and destination (RFC 4861 §4.5).
fn icmpv6_redirect(addresses: &[u8]) -> Option<String> {
    let (&target, rest) = addresses.split_first_chunk::<16>()?;
    let (&destination, _) = rest.split_first_chunk::<16>()?;
    let [target, destination] = [target, destination].map(Ipv6Addr::from_octets);
    Some(format!("ICMPv6 redirect to {target} (type 137, code 0) for {destination}"))
}

#[cfg(test)]
mod tests;
