//! Reports of joined IPv4 multicast groups to routers (IGMP, RFC 3376).

use crate::{
    At, Layer, Out, Reason, UNCLAIMED,
    arp::NO_FRAME,
    ipv4::ALL_SYSTEMS,
    membership::{Links, MembershipReport, Version},
};
use gatewright_packet::{Batch, LinkIndex, Packet};
use gatewright_wire::{
    EtherType, IpProtocol, checksum,
    igmp::response_time,
    igmp::{
        Igmp, IgmpFields, IgmpType, IgmpV1, IgmpV1Fields, QueryV3, RecordFields, ReportV3Fields,
    },
    ipv4::{Ipv4, Ipv4Fields, Ipv4Option},
};
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// The message is shorter than it must be.
const TRUNCATED: Reason = Reason("truncated");

/// The message's checksum is wrong.
const BAD_CHECKSUM: Reason = Reason("bad-checksum");

/// The message may come from outside the link: its time to live is not 1, or its source is not on
/// the link and it is no query without a source.
const INVALID: Reason = Reason("invalid-message");

/// A message for routers, or of an unknown kind.
const UNHANDLED: Reason = Reason("unhandled");

/// All routers of version 3 (RFC 3376 §4.2.14).
const ALL_V3_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

/// Maximum records of one report: so that it fits into 1,280 octets.
const RECORDS_MAX: usize = 150;

/// The response time of a query of version 1, which has none (RFC 2236 §4): 10 seconds.
const RESPONSE_TIME_V1: Duration = Duration::from_secs(10);

/// Router alert (RFC 2113), in all messages except those of version 1.
const ROUTER_ALERT: [u8; 4] = [Ipv4Option::ROUTER_ALERT, 4, 0, 0];

/// Type of service of messages: internetwork control (RFC 3376 §4).
const IGMP_PRECEDENCE: u8 = 0xc0;

/// IGMP as a host, on all links: version 3, and versions 1 and 2 where such a querier is heard.
///
/// Receives `ip:igmp`; sends by `local:ipv4`. Reports the joined groups of each link
/// ([`Out::groups`](crate::Out::groups)) when they change and when a router queries. Every group is
/// received from all sources, so a query about sources is answered like one about the group. Drops
/// `truncated`, `bad-checksum`, `invalid-message`, `unhandled`.
#[derive(Debug)]
pub struct IgmpLayer {
    links: Links<Ipv4Addr>,
}

impl IgmpLayer {
    /// IGMP without groups yet; `random` spreads the answers of many hosts.
    pub fn new(random: u64) -> Self {
        Self { links: Links::new(random) }
    }

    fn hear(&mut self, packet: &Packet, out: &Out<'_>) -> Result<(), Reason> {
        let (octets, now) = (packet.octets(), out.now());
        let (message, _) = Igmp::split(octets).map_err(|_| TRUNCATED)?;
        if checksum::of(octets) != 0 {
            return Err(BAD_CHECKSUM);
        }
        if !is_of_link(message.kind(), packet, out) {
            return Err(INVALID);
        }
        let (link, random) = self.links.of(packet.meta().ingress).ok_or(UNCLAIMED)?;
        match message.kind() {
            IgmpType::MEMBERSHIP_QUERY => {
                let group = message.group_address();
                let group = (!group.is_unspecified()).then_some(group);
                // RFC 3376 §7.1: "Query messages that do not match any of the above conditions (e.g., a
                // Query of length 10 octets) MUST be silently ignored."
                let (version, within) = match (octets.len(), message.max_resp_time()) {
                    (QueryV3::LEN.., code) => (Version::V3, response_time(code)),
                    (Igmp::LEN, 0) => (Version::V1, RESPONSE_TIME_V1),
                    (Igmp::LEN, tenths) => {
                        (Version::V2, Duration::from_millis(u64::from(tenths) * 100))
                    }
                    _ => return Err(TRUNCATED),
                };
                link.asked(version, group, within, now, random);
                Ok(())
            }
            IgmpType::MEMBERSHIP_REPORT_V1 | IgmpType::MEMBERSHIP_REPORT_V2 => {
                link.reported(message.group_address(), now);
                Ok(())
            }
            _ => Err(UNHANDLED),
        }
    }
}

/// Whether a message was sent on its link: with a time to live of 1 (RFC 3376 §4), which no router
/// forwards, and from an address of the link's subnets (RFC 2236 §10).
///
/// Queries may have no source: a snooping switch sends them from 0.0.0.0 where it is not to take
/// part in the election of the querier (RFC 4541 §2.1.1 (1) b: "IGMP Queries … where the source
/// address is not 0.0.0.0" are those of routers).
fn is_of_link(kind: IgmpType, packet: &Packet, out: &Out<'_>) -> bool {
    let Ok((ip, _)) = Ipv4::split(packet.network_octets()) else { return false };
    let source = ip.source_address();
    let is_proxy_query = kind == IgmpType::MEMBERSHIP_QUERY && source.is_unspecified();
    let near = out
        .host()
        .interface(packet.meta().ingress)
        .is_some_and(|interface| interface.usable().any(|address| address.covers(source.into())));
    ip.time_to_live() == 1 && (near || is_proxy_query)
}

impl Layer for IgmpLayer {
    fn name(&self) -> &'static str {
        "igmp"
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
            IpAddr::V4(group) if group != ALL_SYSTEMS => Some(group),
            _ => None,
        };
        self.links.look_at(told, out);
        self.handle_timeout(out);
    }

    fn poll_timeout(&self) -> Option<Duration> {
        self.links.poll_timeout()
    }

    fn handle_timeout(&mut self, out: &mut Out<'_>) {
        for (link, version, reports) in self.links.due(out.now()) {
            match version {
                Version::V3 => {
                    for reports in reports.chunks(RECORDS_MAX) {
                        send_v3(link, reports, out);
                    }
                }
                Version::V1 | Version::V2 => {
                    for report in reports {
                        send_old(link, version, report, out);
                    }
                }
            }
        }
    }
}

/// Sends a report of version 3 (RFC 3376 §4.2).
fn send_v3(link: LinkIndex, reports: &[(Ipv4Addr, MembershipReport)], out: &mut Out<'_>) {
    let number_of_records = u16::try_from(reports.len()).unwrap_or_default();
    let mut message = ReportV3Fields { checksum: 0, number_of_records }.emit().to_vec();
    for &(multicast_address, report) in reports {
        let record_type = report.record_type();
        let (aux_data_len, number_of_sources) = (0, 0);
        let record =
            RecordFields { record_type, aux_data_len, number_of_sources, multicast_address };
        message.extend(record.emit());
    }
    send(link, ALL_V3_ROUTERS, &mut message, out);
}

/// Sends a message of an older version (RFC 2236 §2, RFC 1112 appendix I).
fn send_old(
    link: LinkIndex,
    version: Version,
    (group_address, report): (Ipv4Addr, MembershipReport),
    out: &mut Out<'_>,
) {
    let leaves = report == MembershipReport::Leave;
    if version == Version::V1 {
        if !leaves {
            // RFC 1112, appendix I: type 2 is the report.
            let mut message = IgmpV1Fields { kind: 2, checksum: 0, group_address }.emit();
            send(link, group_address, &mut message, out);
        }
        return;
    }
    let (kind, to) = if leaves {
        (IgmpType::LEAVE_GROUP, crate::ipv4::ALL_ROUTERS)
    } else {
        (IgmpType::MEMBERSHIP_REPORT_V2, group_address)
    };
    let mut message = IgmpFields { kind, max_resp_time: 0, checksum: 0, group_address }.emit();
    send(link, to, &mut message, out);
}

fn send(link: LinkIndex, to: Ipv4Addr, message: &mut [u8], out: &mut Out<'_>) {
    let sum = checksum::of(message).to_be_bytes();
    if let Some(field) = message.get_mut(IgmpV1::CHECKSUM_AT..IgmpV1::CHECKSUM_AT + sum.len()) {
        field.copy_from_slice(&sum);
    }
    let fields = Ipv4Fields {
        ihl: 6,
        type_of_service: IGMP_PRECEDENCE,
        time_to_live: 1,
        ..Ipv4Fields::new(IpProtocol::IGMP, Ipv4Addr::UNSPECIFIED, to, 0)
    };
    let made = out.frames().packet_of(message).and_then(|mut packet| {
        packet.prepend(&ROUTER_ALERT).ok()?;
        packet.prepend(&fields.emit()).ok()?;
        packet.meta_mut().egress = link;
        Some(packet)
    });
    match made {
        Some(packet) => out.push_or_drop(At::Local(EtherType::IPV4), packet),
        None => out.count(NO_FRAME),
    }
}
