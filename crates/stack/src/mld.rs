//! Reports of joined IPv6 multicast groups to routers (MLD, RFC 3810).

use crate::{
    Interface, Layer, Out, Reason, UNCLAIMED,
    arp::NO_FRAME,
    icmpv6::send_behind,
    membership::{Links, MembershipReport, Version},
};
use gatewright_packet::{Batch, LinkIndex, Packet};
use gatewright_wire::{
    IpProtocol,
    icmpv6::Icmpv6Type,
    ipv6::{ExtensionOptions, Ipv6, Ipv6Fields, Ipv6Option, Ipv6Options},
    mld::{Mld, MldFields, QueryV2, RecordFields, ReportV2Fields, response_delay},
};
use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

/// The message is shorter than it must be.
const TRUNCATED: Reason = Reason("truncated");

/// The message may come from outside the link or not from a router: its hop limit is not 1, its
/// source not link-local, or it has no router alert (RFC 3810 §6.2).
const INVALID: Reason = Reason("invalid-message");

/// A message for routers.
const UNHANDLED: Reason = Reason("unhandled");

/// All nodes, a group that is never reported (RFC 3810 §6).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// All routers, the destination of leave messages in version 1 (RFC 2710 §4).
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// All routers of version 2 (RFC 3810 §5.2.14).
const ALL_V2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// The lowest scope that leaves the host: groups of scope 0 and 1 are not reported (RFC 3810 §6).
const LINK_LOCAL_SCOPE: u8 = 2;

/// Maximum records of one report: so that it fits into 1,280 octets (RFC 3810 §5.2.15).
const RECORDS_MAX: usize = 60;

/// All messages stay on their link (RFC 3810 §5).
const HOPS: u8 = 1;

/// Hop-by-hop options before ICMPv6: router alert with value 0, *contains an MLD message*
/// (RFC 2711 §2.1), filled up to 8 octets by an empty `PadN`.
const ROUTER_ALERT: [u8; 8] =
    [IpProtocol::ICMPV6.0, 0, Ipv6Option::ROUTER_ALERT, 2, 0, 0, Ipv6Option::PAD_N, 0];

/// MLD as a host, on all links: version 2, and version 1 where such a querier is heard.
///
/// Receives `dispatch:130`, `131`, `132` and `143` (ICMPv6 types); sends by `local:ipv6`. Reports
/// the joined groups of each link ([`Out::groups`](crate::Out::groups)), those of its own addresses
/// among them. It does so when they change, when a router queries, and once more as soon as there
/// is a link-local source address (RFC 3590 §4). Every group is received from all sources, so a
/// query about sources is answered like one about the group. Drops `truncated`, `invalid-message`,
/// `unhandled`.
#[derive(Debug)]
pub struct MldLayer {
    links: Links<Ipv6Addr>,
    /// Links that have a link-local source address.
    sourced: Vec<LinkIndex>,
}

impl MldLayer {
    /// MLD without groups yet; `random` spreads the answers of many hosts.
    pub const fn new(random: u64) -> Self {
        Self { links: Links::new(random), sourced: Vec::new() }
    }

    fn hear(&mut self, packet: &Packet, out: &Out<'_>) -> Result<(), Reason> {
        let (octets, now) = (packet.octets(), out.now());
        let (message, _) = Mld::split(octets).map_err(|_| TRUNCATED)?;
        let (ip, _) = Ipv6::split(packet.network_octets()).map_err(|_| TRUNCATED)?;
        let is_of_link = ip.hop_limit() == HOPS && ip.source_address().is_unicast_link_local();
        if !is_of_link || !has_router_alert(packet.network_octets()) {
            return Err(INVALID);
        }
        let (link, random) = self.links.of(packet.meta().ingress).ok_or(UNCLAIMED)?;
        let group = message.multicast_address();
        match message.kind() {
            Icmpv6Type::MULTICAST_LISTENER_QUERY => {
                let group = (!group.is_unspecified()).then_some(group);
                let code = message.maximum_response_delay();
                // RFC 3810 §8.1: the length tells the version.
                let (version, within) = match octets.len() {
                    Mld::LEN => (Version::V2, Duration::from_millis(code.into())),
                    QueryV2::LEN.. => (Version::V3, response_delay(code)),
                    _ => return Err(TRUNCATED),
                };
                link.asked(version, group, within, now, random);
                Ok(())
            }
            Icmpv6Type::MULTICAST_LISTENER_REPORT => {
                link.reported(group, now);
                Ok(())
            }
            _ => Err(UNHANDLED),
        }
    }
}

impl Layer for MldLayer {
    fn name(&self) -> &'static str {
        "mld"
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            if let Err(reason) = self.hear(&packet, out) {
                out.drop(reason, packet);
            }
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            out.drop(UNCLAIMED, packet);
        }
    }

    fn handle_host(&mut self, out: &mut Out<'_>) {
        let told = |group| match group {
            IpAddr::V6(group) if is_told(group) => Some(group),
            _ => None,
        };
        self.links.look_at(told, out);
        let sourced: Vec<LinkIndex> = (out.host().interfaces().iter())
            .filter(|interface| interface.up && link_local(interface).is_some())
            .map(|interface| interface.link)
            .collect();
        for &link in sourced.iter().filter(|link| !self.sourced.contains(link)) {
            if let Some((memberships, _)) = self.links.of(link) {
                memberships.again(out.now());
            }
        }
        self.sourced = sourced;
        self.handle_timeout(out);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.links.poll_timeout()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        for (link, version, reports) in self.links.due(out.now()) {
            if version == Version::V3 {
                for reports in reports.chunks(RECORDS_MAX) {
                    send_v2(link, reports, out);
                }
            } else {
                for report in reports {
                    send_v1(link, report, out);
                }
            }
        }
    }
}

/// Whether the hop-by-hop options of a packet contain a router alert.
fn has_router_alert(packet: &[u8]) -> bool {
    let options = Ipv6::split(packet).ok().and_then(|(ip, rest)| {
        let (header, behind) = ExtensionOptions::split(rest).ok()?;
        (ip.next_header() == IpProtocol::HOP_BY_HOP)
            .then(|| header.options(behind).ok())
            .flatten()
            .map(|(options, _)| Ipv6Options::new(options))
    });
    options.is_some_and(|mut options| {
        options.any(|option| matches!(option, Ok(Ipv6Option::RouterAlert(_))))
    })
}

/// Whether `group` is reported to routers (RFC 3810 §6).
fn is_told(group: Ipv6Addr) -> bool {
    let [_, flags_and_scope, ..] = group.octets();
    group != ALL_NODES && flags_and_scope & 0xf >= LINK_LOCAL_SCOPE
}

/// The source address of reports: link-local, and known to be ours alone.
fn link_local(interface: &Interface) -> Option<Ipv6Addr> {
    interface.usable().find_map(|address| match address.ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
        _ => None,
    })
}

/// Sends a report of version 2 (RFC 3810 §5.2).
fn send_v2(link: LinkIndex, reports: &[(Ipv6Addr, MembershipReport)], out: &mut Out<'_>) {
    let message = ReportV2Fields {
        kind: Icmpv6Type::MULTICAST_LISTENER_REPORT_V2,
        code: 0,
        checksum: 0,
        number_of_records: u16::try_from(reports.len()).unwrap_or_default(),
    };
    let mut message = message.emit().to_vec();
    for &(multicast_address, report) in reports {
        let record = RecordFields {
            record_type: report.record_type(),
            aux_data_len: 0,
            number_of_sources: 0,
            multicast_address,
        };
        message.extend(record.emit());
    }
    send(link, ALL_V2_ROUTERS, &message, out);
}

/// Sends a report or *done* of version 1 (RFC 2710 §3).
fn send_v1(
    link: LinkIndex,
    (multicast_address, report): (Ipv6Addr, MembershipReport),
    out: &mut Out<'_>,
) {
    let (kind, to) = if report == MembershipReport::Leave {
        (Icmpv6Type::MULTICAST_LISTENER_DONE, ALL_ROUTERS)
    } else {
        (Icmpv6Type::MULTICAST_LISTENER_REPORT, multicast_address)
    };
    let (code, checksum, maximum_response_delay) = (0, 0, 0);
    let message = MldFields { kind, code, checksum, maximum_response_delay, multicast_address };
    send(link, to, &message.emit(), out);
}

fn send(link: LinkIndex, to: Ipv6Addr, message: &[u8], out: &mut Out<'_>) {
    // RFC 3590 §4: from the unspecified address while there is no other.
    let source = out.host().interface(link).and_then(link_local);
    let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
    let Some(packet) = out.frames().packet_of(message) else { return out.count(NO_FRAME) };
    let fields =
        Ipv6Fields { hop_limit: HOPS, ..Ipv6Fields::new(IpProtocol::HOP_BY_HOP, source, to, 0) };
    send_behind(packet, fields, &ROUTER_ALERT, Some(link), out);
}
