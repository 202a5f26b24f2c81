//! ICMPv6 (RFC 4443): echo, errors requested by other layers, and received errors.

use crate::{
    At, IcmpError, Layer, Out, Reason,
    bucket::{Rates, SenderLimit},
    icmp_counters::{IcmpFate, IcmpType},
    udp::Ends,
};
use gatewright_packet::{Arrival, Batch, Checksum, LinkIndex, Packet};
use gatewright_wire::{
    EtherType, IpProtocol,
    icmpv6::{
        ERROR_LEN_MAX, Echo, Icmpv6, Icmpv6Mut, Icmpv6Type, PacketTooBig, ParameterProblemFields,
        exceeded, parameter, unreachable,
    },
    ipv6::{Ipv6, Ipv6Fields, MTU_MIN, UpperLayer},
};
use std::net::Ipv6Addr;

/// The message is shorter than it must be.
const TRUNCATED: Reason = Reason("truncated");
/// The checksum is wrong.
const CHECKSUM: Reason = Reason("bad-checksum");
/// The packet's network header does not precede it.
const NO_NETWORK: Reason = Reason("no-network-header");
/// A message of an unknown kind.
const UNKNOWN: Reason = Reason("unknown-type");
/// No error is sent about such a packet (RFC 4443 §2.4 (e)).
const NOT_ANSWERED: Reason = Reason("error-not-sent");
/// An error or an echo reply was not sent because of the rate limit (RFC 4443 §2.4 (f)).
const LIMITED: Reason = Reason("error-rate-limited");
/// An error that matches nothing that this host has sent.
const UNTRUSTED: Reason = Reason("untrusted");
/// An error about a packet of this host.
const ERRORS: Reason = Reason("errors-received");
/// No packet was free.
const NO_PACKET: Reason = Reason("no-packet");
/// No address to send from.
const NO_SOURCE: Reason = Reason("no-source");

/// ICMPv6 on all links: answers echo requests and sends the errors that other layers request.
///
/// Expects ICMPv6 messages with their network header marked, and by `error:ipv6:…` packets with
/// the IPv6 header in front. Pushes neighbour discovery and listener discovery to
/// `dispatch:TYPE`, and its own packets to `local:ipv6`.
#[derive(Debug)]
pub struct Icmpv6Layer {
    errors: SenderLimit,
    echoes: SenderLimit,
}

impl Icmpv6Layer {
    /// ICMPv6 on all links; `random` keeps outsiders from choosing which sources share a rate
    /// limit.
    pub fn new(random: u64) -> Self {
        Self {
            errors: SenderLimit::new(Rates::ERRORS, random),
            echoes: SenderLimit::new(Rates::ECHOES, random),
        }
    }

    /// Handles a message for this host.
    fn accept(&mut self, packet: Packet, out: &mut Out<'_>) {
        let Ok((icmp, _)) = Icmpv6::split(packet.octets()) else {
            return out.drop(TRUNCATED, packet);
        };
        let Some(ends) = Ends::of(&packet) else { return out.drop(NO_NETWORK, packet) };
        if packet.meta().checksum == Checksum::Complete && !checksum_holds(ends, packet.octets()) {
            return out.drop(CHECKSUM, packet);
        }
        out.count_icmp(IcmpFate::Received, IcmpType::V6(icmp.kind()));
        match icmp.kind() {
            Icmpv6Type::ECHO_REQUEST => self.echo(packet, ends, out),
            Icmpv6Type::PACKET_TOO_BIG => {
                let reason = if learn_path(&packet, out).is_some() { ERRORS } else { UNTRUSTED };
                out.drop(reason, packet);
            }
            kind if kind.is_error() => {
                if let Err(packet) = out.push(At::Icmpv6Type(kind.0), packet) {
                    out.drop(ERRORS, packet);
                }
            }
            kind => {
                if let Err(packet) = out.push(At::Icmpv6Type(kind.0), packet) {
                    out.drop(UNKNOWN, packet);
                }
            }
        }
    }

    /// RFC 4443 §4.2: the reply comes from the requested address, or from one of the link if that
    /// is a group; its data is the request's.
    fn echo(&mut self, mut packet: Packet, ends: Ends, out: &mut Out<'_>) {
        let (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) = (ends.from, ends.to) else {
            return out.drop(NO_NETWORK, packet);
        };
        if !self.echoes.take(packet.meta().ingress, from.into(), out.now()) {
            out.count_icmp(IcmpFate::RateLimited, IcmpType::V6(Icmpv6Type::ECHO_REPLY));
            return out.drop(LIMITED, packet);
        }
        if from.is_unspecified() || Echo::split(packet.octets()).is_err() {
            return out.drop(TRUNCATED, packet);
        }
        let link = packet.meta().ingress;
        let source =
            if to.is_multicast() { out.host().source6(Some(link), from) } else { Some(to) };
        let Some(source) = source else { return out.drop(NO_SOURCE, packet) };
        if let Some(header) = packet.octets_mut().first_chunk_mut() {
            Icmpv6Mut::of(header).set_kind(Icmpv6Type::ECHO_REPLY);
        }
        let bound = from.is_unicast_link_local();
        send(packet, source, from, bound.then_some(link), out);
    }

    /// Sends an error that a layer requests about `packet`.
    fn report(&mut self, cause: IcmpError, packet: Packet, out: &mut Out<'_>) {
        let Some((ip, to)) = answerable(cause, &packet) else {
            return out.drop(NOT_ANSWERED, packet);
        };
        let link = packet.meta().ingress;
        let head = message(cause, packet.meta().parameter);
        if !self.errors.take(link, to.into(), out.now()) {
            out.count_icmp(IcmpFate::RateLimited, IcmpType::V6(head.kind));
            return out.drop(LIMITED, packet);
        }
        let asked = ip.destination_address();
        let ours = out.host().interfaces().iter().any(|interface| interface.has(asked.into()));
        let near = Some(link).filter(|_| to.is_unicast_link_local());
        let source = if ours { Some(asked) } else { out.host().source6(near.or(Some(link)), to) };
        let Some(source) = source else { return out.drop(NO_SOURCE, packet) };
        let head = head.emit();
        // RFC 4443 §2.4 (c): "as much of the invoking packet as possible without making the error
        // message packet exceed the minimum IPv6 MTU".
        let room = ERROR_LEN_MAX - Ipv6::LEN - head.len();
        let invoking = packet.octets().get(..room).unwrap_or(packet.octets());
        let made = out.frames().packet_of(invoking).and_then(|mut made| {
            made.prepend(&head).ok()?;
            // A trace follows the error about its packet.
            made.meta_mut().mark = packet.meta().mark;
            Some(made)
        });
        match made {
            Some(made) => send(made, source, to, near, out),
            None => out.count(NO_PACKET),
        }
    }
}

/// The header of an error message, checksum zero.
fn message(cause: IcmpError, value: u32) -> ParameterProblemFields {
    let (kind, code, pointer) = match cause {
        IcmpError::NetworkUnreachable => {
            (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::NO_ROUTE, 0)
        }
        IcmpError::HostUnreachable => {
            (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::ADDRESS, 0)
        }
        IcmpError::PortUnreachable => (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::PORT, 0),
        IcmpError::Prohibited => (Icmpv6Type::DESTINATION_UNREACHABLE, unreachable::PROHIBITED, 0),
        IcmpError::TooBig => (Icmpv6Type::PACKET_TOO_BIG, 0, value),
        IcmpError::HopLimit => (Icmpv6Type::TIME_EXCEEDED, exceeded::IN_TRANSIT, 0),
        IcmpError::Reassembly => (Icmpv6Type::TIME_EXCEEDED, exceeded::REASSEMBLY, 0),
        IcmpError::ProtocolUnreachable => {
            (Icmpv6Type::PARAMETER_PROBLEM, parameter::UNRECOGNIZED_NEXT_HEADER, value)
        }
        // Neighbour discovery makes redirects; nobody asks for one here.
        IcmpError::Redirect | IcmpError::BadHeader => {
            (Icmpv6Type::PARAMETER_PROBLEM, parameter::ERRONEOUS_FIELD, value)
        }
        IcmpError::BadOption => {
            (Icmpv6Type::PARAMETER_PROBLEM, parameter::UNRECOGNIZED_OPTION, value)
        }
        IcmpError::IncompleteChain => {
            (Icmpv6Type::PARAMETER_PROBLEM, parameter::INCOMPLETE_CHAIN, 0)
        }
    };
    ParameterProblemFields { kind, code, checksum: 0, pointer }
}

/// The header and source of a packet that an error may answer (RFC 4443 §2.4 (e)).
fn answerable(cause: IcmpError, packet: &Packet) -> Option<(Ipv6<'_>, Ipv6Addr)> {
    let (ip, _) = Ipv6::split(packet.octets()).ok()?;
    let source = ip.source_address();
    // Too big and a bad option are told even to those who sent to a group.
    let told_to_groups = matches!(cause, IcmpError::TooBig | IcmpError::BadOption);
    let to_many =
        ip.destination_address().is_multicast() || packet.meta().arrival != Arrival::Unicast;
    let to_one = !source.is_unspecified() && !source.is_multicast();
    let may_be = to_one && !is_about_error(packet.octets()) && (!to_many || told_to_groups);
    may_be.then_some((ip, source))
}

/// Whether a packet is an ICMPv6 error or a redirect, or may be one: after its extension headers,
/// or in a fragment that is not the first.
fn is_about_error(octets: &[u8]) -> bool {
    // What has no end to its headers is told of that.
    let Ok(upper) = UpperLayer::find(octets) else { return false };
    if upper.is_later_fragment() {
        return upper.protocol == IpProtocol::ICMPV6 || upper.protocol.is_extension_header();
    }
    let kind = octets.get(upper.offset).copied().map(Icmpv6Type);
    let is_error = |kind: Icmpv6Type| kind.is_error() || kind == Icmpv6Type::REDIRECT;
    upper.protocol == IpProtocol::ICMPV6 && kind.is_none_or(is_error)
}

/// Learns the MTU that a *packet too big* reports for a packet of this host; `None` if it has sent
/// no such packet.
///
/// RFC 8201 §4: "If a node receives a Packet Too Big message reporting a next-hop MTU that is less
/// than the IPv6 minimum link MTU, it must discard it."
fn learn_path(packet: &Packet, out: &mut Out<'_>) -> Option<()> {
    let (too_big, invoking) = PacketTooBig::split(packet.octets()).ok()?;
    let mtu = too_big.mtu();
    if usize::try_from(mtu).is_ok_and(|mtu| mtu < MTU_MIN) {
        return None;
    }
    let now = out.now();
    let destination = out.paths().too_big(invoking, mtu, now)?;
    out.learn_path(destination, mtu);
    Some(())
}

fn checksum_holds(ends: Ends, message: &[u8]) -> bool {
    let Ok(len) = u32::try_from(message.len()) else { return false };
    let (std::net::IpAddr::V6(from), std::net::IpAddr::V6(to)) = (ends.from, ends.to) else {
        return false;
    };
    let mut sum = gatewright_wire::Checksum::pseudo_ipv6(from, to, IpProtocol::ICMPV6, len);
    sum.add(message);
    sum.is_valid()
}

/// Sends an ICMPv6 message with checksum and IPv6 header; `link` binds it to one link.
pub(crate) fn send(
    packet: Packet,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    link: Option<LinkIndex>,
    out: &mut Out<'_>,
) {
    send_with_hops(packet, source, destination, link, HOPS, out);
}

/// Hop limit of messages that may be routed.
const HOPS: u8 = 64;

/// As [`send`], with a hop limit: neighbour discovery requires 255 (RFC 4861 §6.1).
pub(crate) fn send_with_hops(
    packet: Packet,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    link: Option<LinkIndex>,
    hop_limit: u8,
    out: &mut Out<'_>,
) {
    let fields =
        Ipv6Fields { hop_limit, ..Ipv6Fields::new(IpProtocol::ICMPV6, source, destination, 0) };
    send_behind(packet, fields, &[], link, out);
}

/// As [`send`], with the IPv6 header given except its length, and the octets of extension headers
/// after it.
pub(crate) fn send_behind(
    mut packet: Packet,
    mut fields: Ipv6Fields,
    extension: &[u8],
    link: Option<LinkIndex>,
    out: &mut Out<'_>,
) {
    let (source, destination) = (fields.source_address, fields.destination_address);
    let Ok(len) = u16::try_from(packet.len()) else { return out.drop(TRUNCATED, packet) };
    if let Ok((icmp, _)) = Icmpv6::split(packet.octets()) {
        out.count_icmp(IcmpFate::Sent, IcmpType::V6(icmp.kind()));
    }
    if let Some(header) = packet.octets_mut().first_chunk_mut() {
        Icmpv6Mut::of(header).set_checksum(0);
    }
    let mut sum =
        gatewright_wire::Checksum::pseudo_ipv6(source, destination, IpProtocol::ICMPV6, len.into());
    sum.add(packet.octets());
    if let Some(header) = packet.octets_mut().first_chunk_mut() {
        Icmpv6Mut::of(header).set_checksum(sum.finish());
    }
    let Ok(len) = u16::try_from(packet.len() + extension.len()) else {
        return out.drop(TRUNCATED, packet);
    };
    fields.payload_length = len;
    if packet.prepend(extension).and_then(|()| packet.prepend(&fields.emit())).is_err() {
        return out.drop(NO_PACKET, packet);
    }
    let received_ns = packet.received_ns();
    *packet.meta_mut() = gatewright_packet::Meta {
        ingress: LinkIndex::NONE,
        egress: link.unwrap_or(LinkIndex::NONE),
        mark: packet.meta().mark,
        ..gatewright_packet::Meta::default()
    };
    packet.set_received_ns(received_ns);
    out.push_or_drop(At::Local(EtherType::IPV6), packet);
}

impl Layer for Icmpv6Layer {
    fn name(&self) -> &'static str {
        "icmpv6"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let at = out.at();
        for packet in batch.drain() {
            match at {
                At::Error(_, cause) => self.report(cause, packet, out),
                _ => self.accept(packet, out),
            }
        }
    }

    fn transmit(&mut self, _: &mut Batch, _: &mut Out<'_>) {}
}
