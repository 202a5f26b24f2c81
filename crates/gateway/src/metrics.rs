//! A gateway's counters as OpenMetrics text, and the page that serves it.
//!
//! The format is OpenMetrics 1.0: families with `TYPE`, `UNIT` and `HELP`, counters that end in
//! `_total`, base units (`seconds`, `bytes`), `# EOF` at the end. Layers, ways and handlers name
//! their link as the description does; those of no particular link have no label `link`.

mod attached;
mod balances;
mod delays;
mod handled;
mod histogram;
mod part;
mod serve;

pub use serve::{MetricsServer, OPEN_METRICS};

use crate::{events::EventCount, status::StatusAnswer};
use gatewright_part::{NamedStatus, Sojourn};
use gatewright_planes::{HandlerNow, IcmpStatus, KernelStatus, LinkStatus, WorkerStatus};
use gatewright_stack::Attachment;
use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

/// A family: its name without the suffix of its samples, its unit, its help.
type Family = (&'static str, &'static str, &'static str);

const UPTIME: Family = ("gatewright_uptime_seconds", "seconds", "How long the gateway has run.");
const FALLBACK: Family = (
    "gatewright_description_fallback",
    "",
    "Whether the last good description runs, as the file's is refused.",
);
const GIVEN_UP: Family = (
    "gatewright_data_plane_given_up",
    "",
    "Whether the data plane's process has died too often and is not started again.",
);
const UP: Family = ("gatewright_link_up", "", "Whether the link is up.");
const MTU: Family =
    ("gatewright_link_mtu_bytes", "bytes", "Octets of a packet on the link at the most (MTU).");
const LAYER: Family =
    ("gatewright_layer_dropped_packets", "packets", "Packets that a layer dropped, by reason.");
const UNCLAIMED: Family =
    ("gatewright_unclaimed_packets", "packets", "Drops that are no layer's, by reason.");
/// Sums over the messages of a type are the objects of `icmpMsgStatsTable` (RFC 4293 §5).
const ICMP_RECEIVED: Family = (
    "gatewright_icmp_received_messages",
    "messages",
    "ICMP messages for this host, by IP version and type (icmpMsgStatsInPkts).",
);
const ICMP_SENT: Family = (
    "gatewright_icmp_sent_messages",
    "messages",
    "ICMP messages that this host sent, by IP version and type (icmpMsgStatsOutPkts).",
);
const ICMP_LIMITED: Family = (
    "gatewright_icmp_rate_limited_messages",
    "messages",
    "ICMP messages that the rate limit held back, by IP version and type.",
);
const WAY: Family = ("gatewright_way_packets", "packets", "Packets that went a way of the graph.");
const TAKEN: Family =
    ("gatewright_handler_taken_packets", "packets", "Packets that an attached handler took.");
const SOJOURN: Family = (
    "gatewright_sojourn_seconds",
    "seconds",
    "From received to sent: packets in the graph, octets in proxies, requests in programs.",
);

/// A link's counters by their names in [`LinkStatus`](gatewright_planes::LinkStatus).
const LINK: [(&str, Family); 18] = [
    ("received", ("gatewright_link_received_packets", "packets", "Frames that the link received.")),
    (
        "received_octets",
        ("gatewright_link_received_bytes", "bytes", "Octets that the link received."),
    ),
    ("sent", ("gatewright_link_sent_packets", "packets", "Frames handed to the link's device.")),
    ("sent_octets", ("gatewright_link_sent_bytes", "bytes", "Octets handed to the link's device.")),
    ("receive_overrun", LINK_DROPPED),
    ("receive_no_packet", LINK_DROPPED),
    ("receive_oversized", LINK_DROPPED),
    ("receive_malformed", LINK_DROPPED),
    (
        "partial_checksums",
        (
            "gatewright_link_partial_packets",
            "packets",
            "Frames that arrived with a partial checksum.",
        ),
    ),
    (
        "checksums_completed",
        ("gatewright_link_completed_packets", "packets", "Checksums that the link completed."),
    ),
    ("super_frames", ("gatewright_link_super_frames", "", "Frames cut into segments on arrival.")),
    (
        "super_frames_sent",
        ("gatewright_link_super_frames_sent", "", "Frames merged from segments when they left."),
    ),
    ("transmit_full", LINK_DROPPED),
    ("transmit_length", LINK_DROPPED),
    ("transmit_down", LINK_DROPPED),
    ("transmit_lost", LINK_DROPPED),
    (
        "fill_empty",
        (
            "gatewright_link_fill_empty",
            "",
            "How often the kernel found no chunk of ours to receive a frame into.",
        ),
    ),
    ("kernel_refused", LINK_DROPPED),
];

const LINK_DROPPED: Family =
    ("gatewright_link_dropped_packets", "packets", "Frames that a link dropped, by reason.");

const DRIVER: Family = (
    "gatewright_driver_packets",
    "packets",
    "Packets in a link's driver (XDP), by outcome: forwarded there, or why they went up.",
);
const DRIVER_BYTES: Family = (
    "gatewright_driver_bytes",
    "bytes",
    "Octets of packets in a link's driver, from the IP header on, by outcome.",
);
const NEXT_HOP: Family = (
    "gatewright_driver_next_hop_packets",
    "packets",
    "Packets that drivers forwarded, by next hop.",
);
const NEXT_HOP_BYTES: Family = (
    "gatewright_driver_next_hop_bytes",
    "bytes",
    "Octets of packets that drivers forwarded, by next hop.",
);
const GRAPH_NEXT_HOP: Family = (
    "gatewright_graph_next_hop_packets",
    "packets",
    "Packets that the graph sent for routes of several next hops, by next hop.",
);

/// The state followed from the kernel, where links are shared with it: gauges and counters.
const KERNEL_ROUTES: Family = ("gatewright_kernel_routes", "", "Routes of the kernel.");
const KERNEL_FORWARDED: Family = (
    "gatewright_kernel_forwarded_routes",
    "",
    "Destinations of the kernel's routes that are forwarded here.",
);
const KERNEL_NEIGHBOURS: Family = ("gatewright_kernel_neighbours", "", "Neighbours of the kernel.");
const KERNEL_WITHDRAWN: Family = (
    "gatewright_kernel_withdrawn",
    "",
    "Whether the kernel has more routes than there is room for, and forwards everything.",
);
const KERNEL_RENEWED: Family =
    ("gatewright_kernel_renewals", "", "How often the kernel was asked for everything.");
const KERNEL_OVERRUNS: Family =
    ("gatewright_kernel_news_overruns", "", "How often news of the kernel was lost.");

const COUNTED: Family =
    ("gatewright_handler_counted_packets", "packets", "Packets that a handler counted.");
const COUNTED_BYTES: Family =
    ("gatewright_handler_counted_bytes", "bytes", "Octets that a handler counted.");
const MISSED: Family = (
    "gatewright_handler_missed_packets",
    "packets",
    "Packets that a handler could not write or copy in time.",
);

const WORKER_RECEIVED: Family =
    ("gatewright_worker_received_packets", "packets", "Packets that a worker's links received.");
const WORKER_TAKEN: Family =
    ("gatewright_worker_taken_packets", "packets", "Packets that came from other workers.");
const WORKER_GIVEN: Family =
    ("gatewright_worker_given_packets", "packets", "Packets that went to other workers.");

const ALARM: Family = ("gatewright_alarm", "", "Whether an alarm is raised, by name.");

const EVENTS: Family = ("gatewright_events", "", "Events of the gateway's log, by kind.");
const EVENTS_SUPPRESSED: Family = (
    "gatewright_events_suppressed",
    "",
    "Events that are not in the log, as too many of their kind came at once.",
);

const UDP_RECEIVED: Family =
    ("gatewright_udp_gateway_received_datagrams", "datagrams", "Datagrams read from clients.");
const UDP_SENT: Family =
    ("gatewright_udp_gateway_sent_datagrams", "datagrams", "Datagrams sent to the server.");
const UDP_RETURNED: Family = (
    "gatewright_udp_gateway_returned_datagrams",
    "datagrams",
    "Datagrams carried back to clients.",
);
const UDP_LOST: Family =
    ("gatewright_udp_gateway_lost_datagrams", "datagrams", "Datagrams lost in the gateway.");

/// Writes the state and the counters of each link.
fn links(links: &[LinkStatus], page: &mut Page) {
    for link in links {
        let name = ("link", link.name.as_str());
        page.gauge(UP, &[name], u8::from(link.up));
        page.gauge(MTU, &[name], link.mtu);
        for &(counter, count) in &link.counters {
            match LINK.iter().find(|(known, _)| *known == counter) {
                Some((_, LINK_DROPPED)) => {
                    page.count(LINK_DROPPED, &[name, ("reason", counter)], count);
                }
                Some((_, family)) => page.count(*family, &[name], count),
                None => {}
            }
        }
    }
}

/// The label of a link by its number, if it is known.
fn label_of(link: Option<u16>, links: &[LinkStatus]) -> Option<Label<'_>> {
    let link = links.iter().find(|known| Some(known.link) == link)?;
    Some(("link", link.name.as_str()))
}

/// Writes what layers dropped, and what no layer took.
fn drops(gateway: &gatewright_planes::Status, page: &mut Page) {
    for layer in &gateway.layers {
        let link = label_of(layer.link, &gateway.links);
        for (reason, count) in &layer.drops {
            let labels = [Some(("layer", layer.layer)), link, Some(("reason", reason.as_str()))];
            page.count(LAYER, &given(labels), *count);
        }
    }
    for (reason, count) in &gateway.unclaimed {
        page.count(UNCLAIMED, &[("reason", reason)], *count);
    }
}

/// Writes how many packets went each way of the graph.
fn ways(gateway: &gatewright_planes::Status, page: &mut Page) {
    for way in &gateway.ways {
        let to = if way.to_device { "device" } else { "layer" };
        let labels = [
            Some(("at", way.at.as_str())),
            Some(("side", &way.side)),
            label_of(way.link, &gateway.links),
            Some(("to", to)),
        ];
        page.count(WAY, &given(labels), way.packets);
    }
}

/// Writes what drivers forwarded and passed up.
fn drivers(gateway: &gatewright_planes::Status, page: &mut Page) {
    for link in &gateway.links {
        for count in &link.in_driver {
            let labels = [("link", link.name.as_str()), ("outcome", count.outcome)];
            page.count(DRIVER, &labels, count.packets);
            page.count(DRIVER_BYTES, &labels, count.octets);
        }
    }
    for hop in &gateway.next_hops {
        let via = hop.via.map_or_else(|| "connected".to_owned(), |via| via.to_string());
        let labels = [("link", hop.link.as_str()), ("via", via.as_str())];
        page.count(NEXT_HOP, &labels, hop.packets);
        page.count(NEXT_HOP_BYTES, &labels, hop.octets);
        page.count(GRAPH_NEXT_HOP, &labels, hop.in_graph);
    }
}

/// The families of the gateway as a whole.
fn whole(status: &StatusAnswer, page: &mut Page) {
    let uptime = status.gateway.uptime.as_millis();
    let uptime = format!("{}.{:03}", uptime / 1000, uptime % 1000);
    page.gauge(UPTIME, &[], uptime);
    page.gauge(FALLBACK, &[], u8::from(status.fallback.is_some()));
    page.gauge(GIVEN_UP, &[], u8::from(status.gateway.planes.given_up));
}

/// Writes `status` as OpenMetrics text.
pub fn text(status: &StatusAnswer) -> String {
    let mut page = Page::default();
    let gateway = &status.gateway;
    whole(status, &mut page);
    links(&gateway.links, &mut page);
    drivers(gateway, &mut page);
    drops(gateway, &mut page);
    icmp_text(&mut page, &gateway.icmp);
    workers_text(&mut page, &gateway.workers);
    if let Some(kernel) = &gateway.kernel {
        kernel_text(&mut page, kernel);
    }
    ways(gateway, &mut page);
    handlers(&mut page, status);
    events_text(&mut page, &status.events);
    alarms_text(&mut page, &status.parts);
    delays::write(&mut page, &status.delays);
    balances::write(&mut page, &status.balances);
    for relay in &status.udp_gateways {
        let name = [("udp_gateway", relay.name.as_str())];
        page.count(UDP_RECEIVED, &name, relay.received);
        page.count(UDP_SENT, &name, relay.sent);
        page.count(UDP_RETURNED, &name, relay.returned);
        page.count(UDP_LOST, &name, relay.lost);
    }
    let mut out = String::new();
    for part in &status.parts {
        part::text(&mut out, part);
    }
    attached::text(&mut out, &status.attached);
    let handlers: Vec<_> = status.parts.iter().flat_map(|part| &part.told.handlers).collect();
    handled::text(&mut out, &handlers);
    sojourns(&mut out, &gateway.sojourn);
    out.push_str(&page.text());
    out
}

fn events_text(page: &mut Page, counts: &[EventCount]) {
    for of in counts {
        let labels = [("part", of.part), ("kind", of.kind), ("level", of.level.name())];
        page.count(EVENTS, &labels, of.events);
        page.count(EVENTS_SUPPRESSED, &labels, of.suppressed);
    }
}

fn icmp_text(page: &mut Page, rows: &[IcmpStatus]) {
    for row in rows {
        let version = row.ip_version.to_string();
        let kind = row.kind.map_or_else(|| "other".to_owned(), |kind| kind.to_string());
        let labels = [("ip_version", version.as_str()), ("type", &kind), ("message", row.message)];
        page.count(ICMP_RECEIVED, &labels, row.received);
        page.count(ICMP_SENT, &labels, row.sent);
        page.count(ICMP_LIMITED, &labels, row.rate_limited);
    }
}

fn alarms_text(page: &mut Page, parts: &[NamedStatus]) {
    for alarm in parts.iter().flat_map(|part| &part.told.alarms) {
        page.gauge(ALARM, &[("name", alarm.name)], u8::from(alarm.raised > 0));
    }
}

fn workers_text(page: &mut Page, workers: &[WorkerStatus]) {
    for one in workers {
        let number = one.worker.to_string();
        let label = [("worker", number.as_str())];
        page.count(WORKER_RECEIVED, &label, one.received);
        page.count(WORKER_TAKEN, &label, one.taken);
        page.count(WORKER_GIVEN, &label, one.given);
    }
}

fn kernel_text(page: &mut Page, kernel: &KernelStatus) {
    page.gauge(KERNEL_ROUTES, &[], kernel.routes);
    page.gauge(KERNEL_FORWARDED, &[], kernel.forwarded);
    page.gauge(KERNEL_NEIGHBOURS, &[], kernel.neighbours);
    page.gauge(KERNEL_WITHDRAWN, &[], u8::from(kernel.withdrawn));
    page.count(KERNEL_RENEWED, &[], kernel.renewed);
    page.count(KERNEL_OVERRUNS, &[], kernel.overruns);
}

fn handlers(page: &mut Page, status: &StatusAnswer) {
    let links = &status.gateway.links;
    for HandlerNow { id, attachment, taken, .. } in &status.gateway.handlers {
        let house = status.attached.iter().find(|attached| attached.id == id.0);
        let (id, at) = (id.0.to_string(), Attachment { link: None, ..*attachment }.to_string());
        let link =
            links.iter().find(|known| Some(known.link) == attachment.link.map(|link| link.0));
        let labels = given([
            Some(("id", id.as_str())),
            house.map(|house| ("handler", house.handler)),
            Some(("at", at.as_str())),
            link.map(|link| ("link", link.name.as_str())),
        ]);
        page.count(TAKEN, &labels, *taken);
        let Some(house) = house else { continue };
        for (family, count) in
            [(COUNTED, house.packets), (COUNTED_BYTES, house.octets), (MISSED, house.missed)]
        {
            if let Some(count) = count {
                page.count(family, &labels, count);
            }
        }
    }
}

/// A label's name and its unescaped value.
type Label<'a> = (&'static str, &'a str);

/// The labels that are present.
fn given<const N: usize>(labels: [Option<Label<'_>>; N]) -> Vec<Label<'_>> {
    labels.into_iter().flatten().collect()
}

/// Labels in text form, without braces; backslash, quote and line feed are escaped.
fn written(labels: &[Label<'_>]) -> String {
    let escaped =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let one = |(name, value): &Label<'_>| format!("{name}=\"{}\"", escaped(value));
    labels.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Samples by family and labels: the samples of a family are contiguous, and none appears twice.
#[derive(Debug, Default)]
struct Page {
    gauges: BTreeMap<Family, BTreeMap<String, String>>,
    counters: BTreeMap<Family, BTreeMap<String, u64>>,
}

impl Page {
    fn gauge(&mut self, family: Family, labels: &[Label<'_>], value: impl Display) {
        self.gauges.entry(family).or_default().insert(written(labels), value.to_string());
    }

    /// Two samples with the same labels are added up.
    fn count(&mut self, family: Family, labels: &[Label<'_>], count: u64) {
        let sample = self.counters.entry(family).or_default().entry(written(labels)).or_default();
        *sample = sample.wrapping_add(count);
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (family, samples) in &self.gauges {
            head(&mut out, *family, "gauge");
            for (labels, value) in samples {
                sample(&mut out, family.0, "", labels, value);
            }
        }
        for (family, samples) in &self.counters {
            head(&mut out, *family, "counter");
            for (labels, value) in samples {
                sample(&mut out, family.0, "_total", labels, value);
            }
        }
        out.push_str("# EOF\n");
        out
    }
}

// Writing to a string cannot fail.
fn head(out: &mut String, (name, unit, help): (&str, &str, &str), kind: &str) {
    let _ = writeln!(out, "# TYPE {name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
    let _ = writeln!(out, "# HELP {name} {help}");
}

fn sample(out: &mut String, name: &str, suffix: &str, labels: &str, value: impl Display) {
    let _ = match labels {
        "" => writeln!(out, "{name}{suffix} {value}"),
        labels => writeln!(out, "{name}{suffix}{{{labels}}} {value}"),
    };
}

/// Writes the sojourn times of all modes as one family.
fn sojourns(out: &mut String, of: &[Sojourn]) {
    head(out, SOJOURN, "histogram");
    for Sojourn { mode, relay, handler, times } in of {
        let labels = given([
            Some(("mode", *mode)),
            relay.as_deref().map(|relay| ("relay", relay)),
            handler.as_deref().map(|handler| ("handler", handler)),
        ]);
        histogram::times(out, SOJOURN.0, &labels, times);
    }
}

#[cfg(test)]
mod tests;
