//! The Internet control message protocol (RFC 792, RFC 1122 §3.2.2, RFC 1812 §4.3).

mod discovery;

use crate::{
    At, Event, IcmpError, Interface, Layer, Out, Reason, Route, RouterPreference, View,
    bucket::{Rates, SenderLimit},
    icmp_counters::{IcmpFate, IcmpType},
    ipv4::{PATH_MTU_MIN, options},
    link_layer::NO_HEADROOM,
};
use discovery::Discovery;
use gatewright_packet::{Arrival, Batch, Checksum as State, LinkIndex, NextHop, Packet};
use gatewright_wire::{
    EtherType, IpProtocol, checksum,
    icmpv4::{
        FragmentationNeeded, Icmpv4, Icmpv4Fields, Icmpv4Mut, Icmpv4Type, Redirect, RouterAddress,
        RouterAdvertisement, exceeded, unreachable,
    },
    ipv4::{Ipv4, Ipv4Fields},
};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// Fewer octets than a message has.
const TRUNCATED: Reason = Reason("truncated");

/// The message's checksum is wrong.
const BAD_CHECKSUM: Reason = Reason("bad-checksum");

/// An echo request to everyone or to a group (RFC 1122 §3.2.2.6 lets us be silent).
const BROADCAST_ECHO: Reason = Reason("broadcast-echo");

/// A message without a receiver here.
const UNHANDLED: Reason = Reason("unhandled");

/// An error message that matches nothing we sent, or whose sender is not permitted to send it.
const UNTRUSTED: Reason = Reason("untrusted");

/// No error is sent about errors, broadcasts, later fragments and packets without a single source
/// (RFC 1812 §4.3.2.7).
const NO_ERROR_ABOUT: Reason = Reason("no-error-about");

/// More errors than the rate allows (RFC 1812 §4.3.2.8).
const RATE_LIMITED: Reason = Reason("rate-limited");

/// Code of a redirect for one host (RFC 792).
const REDIRECT_HOST: u8 = 1;

/// Octets of the original datagram in an error, so that the whole fits 576 (RFC 1812 §4.3.2.3).
const ORIGINAL_LEN_MAX: usize = 576 - Ipv4::LEN - Icmpv4::LEN;

/// Precedence of errors: internetwork control (RFC 1812 §4.3.2.5).
const ERROR_TYPE_OF_SERVICE: u8 = 0xc0;

/// ICMP on all links of a host.
///
/// Receives `ip:icmp`: answers echo requests of any size, learns path MTUs, reports
/// [`Event::Redirect`] and [`Event::Router`]. Advertises this host as a router where the link is
/// set to, and solicits routers where a host configures itself (RFC 1256). Receives
/// `error:ipv4:CAUSE`: packets, header in front, whose source is to be informed; the MTU or the
/// octet at fault is their `parameter`. Pushes *destination unreachable* to `dispatch:3`, and
/// messages to IPv4 by `local:ipv4`. Drops `truncated`, `bad-checksum`, `broadcast-echo`,
/// `unhandled`, `untrusted`, `no-error-about`, `rate-limited`.
#[derive(Debug)]
pub struct Icmpv4Layer {
    errors: SenderLimit,
    redirects: SenderLimit,
    discovery: Discovery,
}

impl Icmpv4Layer {
    /// ICMP on all links; `random` spreads the messages of routers and hosts that start together.
    pub fn new(random: u64) -> Self {
        Self {
            discovery: Discovery::new(random),
            errors: SenderLimit::new(Rates::ERRORS, !random),
            redirects: SenderLimit::new(Rates::REDIRECTS, !random),
        }
    }
}

impl Layer for Icmpv4Layer {
    fn name(&self) -> &'static str {
        "icmpv4"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        let at = out.at();
        for mut packet in batch.drain() {
            let handled = match at {
                At::Error(_, error) => self.report(error, &mut packet, out).map(|()| Heard::Answer),
                _ => self.hear(&mut packet, out),
            };
            match handled {
                Ok(Heard::Answer) => send(packet, out),
                Ok(Heard::ForOthers) => {
                    let at = At::Icmpv4Type(Icmpv4Type::DESTINATION_UNREACHABLE.0);
                    if let Err(packet) = out.push(at, packet) {
                        out.drop(UNHANDLED, packet);
                    }
                }
                Ok(_) => {}
                Err(reason) => out.drop(reason, packet),
            }
        }
    }

    fn handle_host(&mut self, out: &mut Out<'_>) {
        self.discovery.look_at_host(out);
    }

    fn handle_end(&mut self, out: &mut Out<'_>) {
        self.discovery.end(out);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.discovery.poll_timeout()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        self.discovery.handle_timeout(out);
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        // Messages of applications, an IPv4 header in front.
        for packet in batch.drain() {
            send(packet, out);
        }
    }
}

/// Passes a message, an IPv4 header in front, to IPv4.
fn send(packet: Packet, out: &mut Out<'_>) {
    let ihl = packet.octets().first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let message = packet.octets().get(ihl..).unwrap_or_default();
    if let Ok((fixed, _)) = Icmpv4::split(message) {
        out.count_icmp(IcmpFate::Sent, IcmpType::V4(fixed.kind(), fixed.code()));
    }
    out.push_or_drop(At::Local(EtherType::IPV4), packet);
}

impl Icmpv4Layer {
    /// Handles a message for us.
    fn hear(&mut self, packet: &mut Packet, out: &mut Out<'_>) -> Result<Heard, Reason> {
        let heard = hear(packet, out)?;
        let ingress = packet.meta().ingress;
        match heard {
            Heard::Asked if self.discovery.asked(ingress, out.now()) => Ok(Heard::Done),
            Heard::Asked => Err(UNHANDLED),
            Heard::Told => {
                self.discovery.answered(ingress);
                Ok(Heard::Done)
            }
            heard => Ok(heard),
        }
    }

    /// Makes an error message about a packet.
    fn report(
        &mut self,
        error: IcmpError,
        packet: &mut Packet,
        out: &Out<'_>,
    ) -> Result<(), Reason> {
        let (source, destination) = may_be_reported(packet, out.host())?;
        // A host that ignores redirects takes no errors from the others of its subnet.
        let is_redirect = error == IcmpError::Redirect;
        let limit = if is_redirect { &mut self.redirects } else { &mut self.errors };
        let parameter = match (error, packet.meta().next_hop) {
            (IcmpError::Redirect, NextHop::Neighbour(IpAddr::V4(gateway))) => gateway.to_bits(),
            _ => packet.meta().parameter,
        };
        let message = error_fields(error, parameter);
        if !limit.take(packet.meta().ingress, source.into(), out.now()) {
            let kind = IcmpType::V4(message.kind, message.code);
            out.count_icmp(IcmpFate::RateLimited, kind);
            return Err(RATE_LIMITED);
        }
        let to_us = out.host().route4(destination) == Route::Local;
        packet.truncate(ORIGINAL_LEN_MAX);
        packet.prepend(&message.emit()).map_err(|_| NO_HEADROOM)?;
        sign(packet.octets_mut());
        let fields = Ipv4Fields {
            type_of_service: ERROR_TYPE_OF_SERVICE,
            ..Ipv4Fields::new(
                IpProtocol::ICMPV4,
                if to_us { destination } else { Ipv4Addr::UNSPECIFIED },
                source,
                0,
            )
        };
        packet.prepend(&fields.emit()).map_err(|_| NO_HEADROOM)?;
        forget_the_way(packet);
        Ok(())
    }
}

/// Type, code and the word after the checksum for an error.
fn error_fields(error: IcmpError, parameter: u32) -> Icmpv4Fields {
    let [a, b, c, d] = parameter.to_be_bytes();
    let (kind, code, rest_of_header) = match error {
        IcmpError::NetworkUnreachable => {
            (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::NETWORK, [0; 4])
        }
        IcmpError::HostUnreachable => {
            (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::HOST, [0; 4])
        }
        IcmpError::ProtocolUnreachable => {
            (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::PROTOCOL, [0; 4])
        }
        IcmpError::PortUnreachable => {
            (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::PORT, [0; 4])
        }
        // RFC 1191 §4: the next hop's MTU in the low half; no link's is larger than 16 bits.
        IcmpError::TooBig => {
            let mtu = if [a, b] == [0; 2] { [0, 0, c, d] } else { [0, 0, 0xff, 0xff] };
            (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED, mtu)
        }
        IcmpError::Prohibited => {
            (Icmpv4Type::DESTINATION_UNREACHABLE, unreachable::PROHIBITED, [0; 4])
        }
        IcmpError::HopLimit => (Icmpv4Type::TIME_EXCEEDED, exceeded::IN_TRANSIT, [0; 4]),
        IcmpError::Reassembly => (Icmpv4Type::TIME_EXCEEDED, exceeded::REASSEMBLY, [0; 4]),
        // Only IPv6 knows the last of these.
        IcmpError::BadHeader | IcmpError::BadOption | IcmpError::IncompleteChain => {
            (Icmpv4Type::PARAMETER_PROBLEM, 0, [d, 0, 0, 0])
        }
        // RFC 1812 §4.3.3.2: routers redirect hosts, never networks.
        IcmpError::Redirect => (Icmpv4Type::REDIRECT, REDIRECT_HOST, [a, b, c, d]),
    };
    Icmpv4Fields { kind, code, checksum: 0, rest_of_header }
}

/// Source and destination of a packet about which an error may be sent (RFC 1812 §4.3.2.7).
fn may_be_reported(packet: &Packet, host: &View) -> Result<(Ipv4Addr, Ipv4Addr), Reason> {
    let (header, rest) = Ipv4::split(packet.octets()).map_err(|_| TRUNCATED)?;
    let (source, destination) = (header.source_address(), header.destination_address());
    let group = |ip: Ipv4Addr| {
        ip.is_multicast() || ip.is_broadcast() || matches!(host.route4(ip), Route::Broadcast(_))
    };
    let nobody = source.is_loopback() || matches!(source.octets(), [0, ..]);
    let payload = rest.get(header.header_len().saturating_sub(Ipv4::LEN)..).unwrap_or_default();
    let about_error = header.protocol() == IpProtocol::ICMPV4
        && payload.first().is_none_or(|&kind| Icmpv4Type(kind).is_error());
    let refused = packet.meta().arrival != Arrival::Unicast
        || header.fragment_offset() != 0
        || nobody
        || about_error
        || group(source)
        || group(destination);
    if refused { Err(NO_ERROR_ABOUT) } else { Ok((source, destination)) }
}

/// The result of a message for us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Heard {
    /// The answer to it.
    Answer,
    /// It is about a packet of an upper layer.
    ForOthers,
    /// A router solicitation.
    Asked,
    /// A router advertisement.
    Told,
    /// Nothing more.
    Done,
}

/// Handles a message for us.
fn hear(packet: &mut Packet, out: &mut Out<'_>) -> Result<Heard, Reason> {
    packet.restore_network();
    let octets = packet.octets();
    let (header, _) = Ipv4::split(octets).map_err(|_| TRUNCATED)?;
    let (source, destination) = (header.source_address(), header.destination_address());
    let (header_len, type_of_service) = (header.header_len(), header.type_of_service());
    let message = octets.get(header_len..).unwrap_or_default();
    let (fixed, _) = Icmpv4::split(message).map_err(|_| TRUNCATED)?;
    if checksum::of(message) != 0 {
        return Err(BAD_CHECKSUM);
    }
    out.count_icmp(IcmpFate::Received, IcmpType::V4(fixed.kind(), fixed.code()));
    let ingress = packet.meta().ingress;
    match fixed.kind() {
        Icmpv4Type::ECHO_REQUEST => {
            let to_us = out.host().route4(destination) == Route::Local;
            if !to_us || packet.meta().arrival != Arrival::Unicast {
                return Err(BROADCAST_ECHO);
            }
            let recorded = options::of_answer(octets, header_len, destination);
            let ihl = u8::try_from((Ipv4::LEN + recorded.as_slice().len()) / 4).unwrap_or_default();
            let fields = Ipv4Fields {
                type_of_service,
                ihl,
                ..Ipv4Fields::new(IpProtocol::ICMPV4, destination, source, 0)
            };
            packet.strip(header_len);
            answer_echo(packet.octets_mut());
            packet.prepend(recorded.as_slice()).map_err(|_| NO_HEADROOM)?;
            packet.prepend(&fields.emit()).map_err(|_| NO_HEADROOM)?;
            forget_the_way(packet);
            Ok(Heard::Answer)
        }
        Icmpv4Type::DESTINATION_UNREACHABLE
            if fixed.code() == unreachable::FRAGMENTATION_NEEDED =>
        {
            learn_path(message, out).ok_or(UNTRUSTED)?;
            Ok(Heard::Done)
        }
        Icmpv4Type::DESTINATION_UNREACHABLE => {
            packet.mark_network();
            packet.strip(header_len);
            Ok(Heard::ForOthers)
        }
        Icmpv4Type::REDIRECT => {
            let event = redirect(message, source, ingress, out.host()).ok_or(UNTRUSTED)?;
            out.report(event);
            Ok(Heard::Done)
        }
        Icmpv4Type::ROUTER_SOLICITATION if message.len() >= Icmpv4::LEN => Ok(Heard::Asked),
        Icmpv4Type::ROUTER_ADVERTISEMENT => {
            routers(message, ingress, out).ok_or(UNTRUSTED)?;
            Ok(Heard::Told)
        }
        _ => Err(UNHANDLED),
    }
}

/// Turns a request into its reply: only the type changes, and the checksum with it (RFC 1624).
fn answer_echo(message: &mut [u8]) {
    let Some(fixed) = message.first_chunk_mut() else { return };
    let mut fixed = Icmpv4Mut::of(fixed);
    let view = fixed.view();
    let word = |kind: Icmpv4Type, code| u16::from_be_bytes([kind.0, code]);
    let old = word(view.kind(), view.code());
    let sum = checksum::update(view.checksum(), old, word(Icmpv4Type::ECHO_REPLY, 0));
    fixed.set_kind(Icmpv4Type::ECHO_REPLY);
    fixed.set_code(0);
    fixed.set_checksum(sum);
}

/// Computes the checksum of a message whose field is zero.
fn sign(message: &mut [u8]) {
    let sum = checksum::of(message);
    if let Some(fixed) = message.first_chunk_mut() {
        Icmpv4Mut::of(fixed).set_checksum(sum);
    }
}

/// Turns a received packet into one to be sent.
fn forget_the_way(packet: &mut Packet) {
    let meta = packet.meta_mut();
    meta.egress = LinkIndex::NONE;
    meta.next_hop = NextHop::Unknown;
    meta.checksum = State::Complete;
    meta.parameter = 0;
}

/// Learns the path MTU that a router reports for a packet of this host (RFC 1191); `None` if it has
/// sent no such packet.
fn learn_path(message: &[u8], out: &mut Out<'_>) -> Option<()> {
    let (needed, quoted) = FragmentationNeeded::split(message).ok()?;
    let (original, _) = Ipv4::split(quoted).ok()?;
    let told = match usize::from(needed.next_hop_mtu()) {
        // A router older than RFC 1191: the next size below what we sent (its §7.1).
        0 => PLATEAUS.into_iter().find(|&mtu| mtu < usize::from(original.total_length()))?,
        mtu => mtu,
    };
    let (mtu, now) = (u32::try_from(told.max(PATH_MTU_MIN)).ok()?, out.now());
    let destination = out.paths().too_big(quoted, mtu, now)?;
    out.learn_path(destination, mtu);
    Some(())
}

/// Common MTUs, largest first (RFC 1191 §7.1), down to the least accepted one.
const PLATEAUS: [usize; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, PATH_MTU_MIN];

/// A better first hop, reported by our router (RFC 1122 §3.2.2.2).
fn redirect(message: &[u8], from: Ipv4Addr, link: LinkIndex, host: &View) -> Option<Event> {
    let (redirect, original) = Redirect::split(message).ok()?;
    let (original, _) = Ipv4::split(original).ok()?;
    let (destination, gateway) = (original.destination_address(), redirect.gateway());
    let interface = host.interface(link).filter(|interface| !interface.forwarding)?;
    let by_sender = matches!(
        host.route4(destination),
        Route::Via { link: by, gateway } if by == link && gateway == IpAddr::V4(from)
    );
    let on_link = interface.addresses.iter().any(|address| address.covers(gateway.into()));
    (by_sender && on_link && host.route4(gateway) != Route::Local).then(|| Event::Redirect {
        link,
        destination: destination.into(),
        gateway: gateway.into(),
    })
}

/// Reports the routers of an advertisement (RFC 1256 §5), on a host that configures itself.
fn routers(message: &[u8], link: LinkIndex, out: &mut Out<'_>) -> Option<()> {
    let (advertisement, rest) = RouterAdvertisement::split(message).ok()?;
    let (list, _) = advertisement.router_addresses(rest).ok()?;
    let entry_len = usize::from(advertisement.addr_entry_size()) * 4;
    let listens = |interface: &&Interface| interface.autoconfigure && !interface.forwarding;
    let interface = out.host().interface(link).filter(listens)?;
    if entry_len < RouterAddress::LEN || advertisement.num_addrs() == 0 {
        return None;
    }
    let lifetime = Duration::from_secs(advertisement.lifetime().into());
    let neighbours: Vec<Ipv4Addr> = (list.chunks_exact(entry_len))
        .filter_map(|entry| RouterAddress::split(entry).ok())
        .filter(|(entry, _)| entry.preference_level() != NEVER_DEFAULT)
        .map(|(entry, _)| entry.router_address())
        .filter(|&ip| interface.addresses.iter().any(|address| address.covers(ip.into())))
        .collect();
    for address in neighbours {
        let (address, preference) = (address.into(), RouterPreference::default());
        out.report(Event::Router { link, address, lifetime, preference });
    }
    Some(())
}

/// The preference of a router that is not to be a default router (RFC 1256 §3).
const NEVER_DEFAULT: u32 = 0x8000_0000;

/// The causes of requested errors, by network layer.
pub(crate) fn error_positions(family: EtherType) -> impl Iterator<Item = At> {
    IcmpError::ALL.into_iter().map(move |error| At::Error(family, error))
}
