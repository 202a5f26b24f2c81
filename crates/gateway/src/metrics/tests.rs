//! A page of every kind of sample, judged by a small checker of the format.

use super::*;
use crate::{
    api::{AttachedAnswer, UdpGatewayAnswer},
    balance::{BalanceStatus, BalancedRelayStatus, LiveService, RelayReachability},
    delay_models::RelayDelay,
    events::EventCount,
};
use gatewright_delay::DelayReading;
use gatewright_histogram::{Histogram, Sample};
use gatewright_link::LinkCounters;
use gatewright_packet::LinkIndex;
use gatewright_part::{
    AlarmStatus, HandledRequests, LogLevel, NamedStatus, PartHistogram, PartStatus, Sojourn,
};
use gatewright_planes::{
    HandlerNow, IcmpStatus, LayerStatus, LinkStatus, PlanesStatus, Status, WayStatus, WorkerStatus,
    named_counters,
};
use gatewright_stack::{At, AttachmentId, Place};
use gatewright_wire::EtherType;
use std::{collections::BTreeSet, time::Duration};

fn layer(layer: &'static str, link: Option<u16>, drops: &[(&str, u64)]) -> LayerStatus {
    let drops = drops.iter().map(|&(reason, count)| (reason.to_owned(), count)).collect();
    LayerStatus { layer, link, drops, measured: None }
}

fn link(name: &str) -> LinkStatus {
    let counters = LinkCounters {
        received: 7,
        received_octets: 700,
        transmit_full: 3,
        ..LinkCounters::default()
    };
    LinkStatus {
        link: u16::from(name != "lan"),
        name: name.to_owned(),
        device: "eth0".to_owned(),
        mode: "packet".to_owned(),
        why: String::new(),
        kernel: String::new(),
        up: true,
        set_down: false,
        state: "up".to_owned(),
        mtu: 1500,
        mac: None,
        addresses: Vec::new(),
        queues: Vec::new(),
        counters: named_counters(counters),
        forwarding: String::new(),
        forwards_in_driver: false,
        not_redirected: "",
        in_driver: Vec::new(),
    }
}

const TENTH: u64 = 100_000_000;

/// Values, each so many times.
fn values(of: &[(u64, u64)]) -> Histogram {
    let mut histogram = Histogram::default();
    for &(value, times) in of {
        histogram.add(Sample { times, ..Sample::from(value) });
    }
    histogram
}

fn sojourns() -> Vec<Sojourn> {
    let packets = values(&[(900, 10), (40_000, 5), (u64::MAX / 1_000_000, 2)]);
    vec![
        Sojourn { mode: "graph", times: packets, ..Sojourn::default() },
        Sojourn {
            mode: "program",
            relay: Some("courier".to_owned()),
            handler: Some("here.ask".to_owned()),
            times: values(&[(2_000_000, 7)]),
        },
    ]
}

fn attached() -> Vec<AttachedAnswer> {
    let at_packets = AttachedAnswer {
        id: 1,
        handler: "count",
        at: String::new(),
        packets: Some(9),
        octets: Some(90),
        missed: None,
        messages: None,
        refused: None,
        measured: None,
    };
    let at_messages = AttachedAnswer {
        id: 2,
        handler: "capture",
        at: "gateway:courier/ask receive".to_owned(),
        packets: None,
        octets: Some(80),
        missed: Some(0),
        messages: Some(8),
        refused: None,
        measured: None,
    };
    vec![at_packets, at_messages]
}

fn icmp(
    kind: Option<u8>,
    message: &'static str,
    [received, sent, rate_limited]: [u64; 3],
) -> IcmpStatus {
    IcmpStatus { ip_version: 4, kind, message, received, sent, rate_limited }
}

fn part_status() -> PartStatus {
    PartStatus {
        words: vec![("listens_at", "127.0.0.1:6024".to_owned())],
        gauges: vec![("associated", 3)],
        counters: vec![("reports", 8)],
        alarms: vec![
            AlarmStatus { name: "disk-short", raised: 0, subjects: Vec::new() },
            AlarmStatus { name: "device-silent", raised: 2, subjects: Vec::new() },
        ],
        histograms: vec![
            PartHistogram {
                name: "report_ns",
                values: values(&[(900, 1), (4_000, 4), (TENTH, 2)]),
            },
            PartHistogram { name: "group", values: values(&[(1, 3), (7, 1), (8, 1)]) },
        ],
        handlers: vec![HandledRequests {
            program: "courier".to_owned(),
            handler: "here.ask".to_owned(),
            started: 9,
            finished: 7,
            failed: 1,
        }],
        sojourns: Vec::new(),
    }
}

fn balance() -> BalanceStatus {
    let address = "192.0.2.1:80".parse().unwrap();
    let reachability = Some(RelayReachability { left_out: true, unreachable: 7 });
    let live = Some(LiveService { factor: 2.5, answers: 40, drifts: true });
    let (flows, load, a_us, c_ns) = (3, 0.125, 1.0, 0.0);
    let relay = BalancedRelayStatus { address, flows, load, a_us, c_ns, reachability, live };
    let refused = [("late", 2)].into();
    let name = "servers".to_owned();
    BalanceStatus { name, policy: "least-load", admitted: 5, refused, relays: vec![relay] }
}

fn delay(mode: &'static str, c_ns: Option<f64>, predicted_p99_us: Option<f64>) -> RelayDelay {
    let reading = DelayReading {
        seconds: 5.0,
        samples: 1000,
        rate: 200.0,
        a_us: 40.0,
        c_ns,
        load: 0.25,
        predicted_p99_us,
        measured_p99_us: 2000.0,
        drifts: predicted_p99_us.is_some(),
    };
    RelayDelay { mode, relay: None, handler: None, reading }
}

fn way(link: Option<u16>) -> WayStatus {
    WayStatus {
        at: "ether:ipv4".to_owned(),
        side: "receive".to_owned(),
        link,
        layer: None,
        from: None,
        to: None,
        to_device: false,
        packets: 5,
        measured: None,
    }
}

fn status() -> StatusAnswer {
    let at = At::EtherType(EtherType(0x0800));
    let attachment = Attachment { link: Some(LinkIndex(1)), ..Attachment::new(at, Place::Tap) };
    let gateway = Status {
        planes: PlanesStatus::default(),
        uptime: Duration::from_millis(61_005),
        links: vec![link("lan"), link("wa\"n\\\n")],
        layers: vec![
            layer("ipv4", None, &[("no_route", 2), ("ttl", 0)]),
            layer("arp", Some(0), &[("malformed", 1)]),
        ],
        ways: vec![way(None), way(Some(0)), way(Some(0))],
        unclaimed: vec![("no_handler".to_owned(), 4)],
        icmp: vec![
            icmp(Some(3), "fragmentation-needed", [0, 7, 2]),
            icmp(Some(3), "destination-unreachable", [1, 5, 0]),
            icmp(None, "other", [6, 0, 0]),
        ],
        handlers: vec![HandlerNow {
            id: AttachmentId(1),
            attachment,
            taken: 9,
            counted: None,
            missed: None,
            kept: None,
            balance: None,
        }],
        kernel: Some(KernelStatus { routes: 9, overruns: 2, ..KernelStatus::default() }),
        sojourn: sojourns(),
        next_hops: Vec::new(),
        handler_times: Vec::new(),
        measured_runs: None,
        workers: vec![
            WorkerStatus { worker: 0, received: 11, taken: 5, given: 6 },
            WorkerStatus { worker: 1, received: 12, taken: 6, given: 5 },
        ],
    };
    let relay =
        UdpGatewayAnswer { name: "coap".to_owned(), received: 4, sent: 3, returned: 2, lost: 1 };
    let told = part_status();
    let parts = vec![NamedStatus { name: "devices", told }];
    let events = vec![EventCount {
        part: "links",
        kind: "link-down",
        level: LogLevel::Warning,
        events: 5,
        suppressed: 2,
    }];
    let delays = vec![delay("graph", Some(1.25), None), delay("program", None, Some(900.0))];
    StatusAnswer {
        gateway,
        not_forwarding: Vec::new(),
        attached: attached(),
        udp_gateways: vec![relay],
        parts,
        delays,
        delays_left_out: 0,
        balances: vec![balance()],
        events,
        fallback: None,
        hops: Vec::new(),
    }
}

/// Checks a page against OpenMetrics 1.0; the samples by their whole names.
fn checked(page: &str) -> BTreeMap<String, f64> {
    let body = page.strip_suffix("# EOF\n").expect("ends with # EOF");
    let (mut samples, mut families) = (BTreeMap::new(), BTreeSet::new());
    let (mut name, mut kind) = ("", "");
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, family, value) =
                (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "TYPE" => {
                    assert!(families.insert(family), "{family} stands twice");
                    (name, kind) = (family, value);
                }
                "UNIT" => assert!(family == name && family.ends_with(&format!("_{value}"))),
                "HELP" => assert!(family == name && value.ends_with('.')),
                other => panic!("{other}"),
            }
            continue;
        }
        let (key, value) = line.rsplit_once(' ').expect("a sample and its value");
        let suffix = key.split('{').next().unwrap().strip_prefix(name);
        let suffix = suffix.unwrap_or_else(|| panic!("{line} has no TYPE"));
        let allowed: &[&str] = match kind {
            "gauge" => &[""],
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_count", "_sum"],
            other => panic!("{other}"),
        };
        assert!(allowed.contains(&suffix), "{line} under {kind} {name}");
        let twice = samples.insert(key.to_owned(), value.parse::<f64>().unwrap());
        assert_eq!(twice, None, "{key} stands twice");
    }
    samples
}

#[test]
fn a_page_follows_the_format_and_says_what_was_counted() {
    let samples = checked(&text(&status()));
    for (key, value) in [
        ("gatewright_uptime_seconds", 61.005),
        ("gatewright_link_up{link=\"lan\"}", 1.0),
        ("gatewright_link_mtu_bytes{link=\"lan\"}", 1500.0),
        ("gatewright_link_received_packets_total{link=\"lan\"}", 7.0),
        ("gatewright_link_received_bytes_total{link=\"wa\\\"n\\\\\\n\"}", 700.0),
        ("gatewright_link_dropped_packets_total{link=\"lan\",reason=\"transmit_full\"}", 3.0),
        ("gatewright_layer_dropped_packets_total{layer=\"ipv4\",reason=\"no_route\"}", 2.0),
        (
            "gatewright_layer_dropped_packets_total{layer=\"arp\",link=\"lan\",reason=\"malformed\"}",
            1.0,
        ),
        ("gatewright_balance_flows{balance=\"servers\",relay=\"192.0.2.1:80\"}", 3.0),
        ("gatewright_balance_load{balance=\"servers\",relay=\"192.0.2.1:80\"}", 0.125),
        ("gatewright_balance_left_out{balance=\"servers\",relay=\"192.0.2.1:80\"}", 1.0),
        ("gatewright_balance_service_factor{balance=\"servers\",relay=\"192.0.2.1:80\"}", 2.5),
        ("gatewright_balance_answers_total{balance=\"servers\",relay=\"192.0.2.1:80\"}", 40.0),
        ("gatewright_balance_drifts{balance=\"servers\",relay=\"192.0.2.1:80\"}", 1.0),
        ("gatewright_balance_unreachable_total{balance=\"servers\",relay=\"192.0.2.1:80\"}", 7.0),
        ("gatewright_balance_admitted_flows_total{balance=\"servers\"}", 5.0),
        ("gatewright_balance_refused_flows_total{balance=\"servers\",reason=\"late\"}", 2.0),
        ("gatewright_delay_fixed_seconds{mode=\"graph\"}", 40e-6),
        ("gatewright_delay_per_byte_seconds{mode=\"graph\"}", 1.25e-9),
        ("gatewright_delay_load{mode=\"program\"}", 0.25),
        ("gatewright_delay_predicted_p99_seconds{mode=\"program\"}", 900e-6),
        ("gatewright_delay_measured_p99_seconds{mode=\"program\"}", 0.002),
        ("gatewright_delay_drift{mode=\"program\"}", 1.0),
        ("gatewright_delay_drift{mode=\"graph\"}", 0.0),
        ("gatewright_unclaimed_packets_total{reason=\"no_handler\"}", 4.0),
        (
            "gatewright_icmp_sent_messages_total{ip_version=\"4\",type=\"3\",message=\"fragmentation-needed\"}",
            7.0,
        ),
        (
            "gatewright_icmp_sent_messages_total{ip_version=\"4\",type=\"3\",message=\"destination-unreachable\"}",
            5.0,
        ),
        (
            "gatewright_icmp_rate_limited_messages_total{ip_version=\"4\",type=\"3\",message=\"fragmentation-needed\"}",
            2.0,
        ),
        (
            "gatewright_icmp_received_messages_total{ip_version=\"4\",type=\"other\",message=\"other\"}",
            6.0,
        ),
        ("gatewright_worker_received_packets_total{worker=\"1\"}", 12.0),
        ("gatewright_worker_taken_packets_total{worker=\"0\"}", 5.0),
        ("gatewright_worker_given_packets_total{worker=\"0\"}", 6.0),
        ("gatewright_way_packets_total{at=\"ether:ipv4\",side=\"receive\",to=\"layer\"}", 5.0),
        // Two ways that differ in nothing that is told are one sample.
        (
            "gatewright_way_packets_total{at=\"ether:ipv4\",side=\"receive\",link=\"lan\",to=\"layer\"}",
            10.0,
        ),
        ("gatewright_udp_gateway_lost_datagrams_total{udp_gateway=\"coap\"}", 1.0),
        ("gatewright_kernel_routes", 9.0),
        ("gatewright_kernel_withdrawn", 0.0),
        ("gatewright_kernel_news_overruns_total", 2.0),
        ("gatewright_devices_associated", 3.0),
        ("gatewright_devices_reports_total", 8.0),
        ("gatewright_alarm{name=\"disk-short\"}", 0.0),
        ("gatewright_alarm{name=\"device-silent\"}", 1.0),
    ] {
        assert_eq!(samples.get(key), Some(&value), "{key} in {samples:#?}");
    }
    let counted = |key: &&String| key.starts_with("gatewright_handler_counted_bytes_total{");
    let key = samples.keys().find(counted).unwrap();
    assert!(key.contains("id=\"1\",handler=\"count\"") && key.contains("link=\"wa"), "{key}");
}

#[test]
fn a_handler_of_a_program_has_its_outcomes_and_its_sojourn() {
    let samples = checked(&text(&status()));
    let of = "program=\"courier\",handler=\"here.ask\"";
    for (outcome, count) in [("begun", 9.0), ("finished", 7.0), ("failed", 1.0)] {
        let key = format!("gatewright_program_requests_total{{{of},outcome=\"{outcome}\"}}");
        assert_eq!(samples.get(&key), Some(&count), "{key}");
    }
    let of = format!("mode=\"program\",relay=\"courier\",{}", "handler=\"here.ask\"");
    for (bound, count) in [("0.001", 0.0), ("0.0025", 7.0), ("+Inf", 7.0)] {
        let key = format!("gatewright_sojourn_seconds_bucket{{{of},le=\"{bound}\"}}");
        assert_eq!(samples.get(&key), Some(&count), "{key}");
    }
    assert_eq!(samples.get(&format!("gatewright_sojourn_seconds_sum{{{of}}}")), Some(&0.014));
}

#[test]
fn a_part_has_its_histograms_in_base_units() {
    let samples = checked(&text(&status()));
    let of = "gatewright_devices_report_seconds";
    for (key, value) in [
        (format!("{of}_bucket{{le=\"1e-06\"}}"), 1.0),
        (format!("{of}_bucket{{le=\"5e-06\"}}"), 5.0),
        (format!("{of}_bucket{{le=\"+Inf\"}}"), 7.0),
        (format!("{of}_count"), 7.0),
        (format!("{of}_sum"), 0.200_016_9),
        ("gatewright_devices_group_bucket{le=\"1.0\"}".to_owned(), 3.0),
        ("gatewright_devices_group_bucket{le=\"7.0\"}".to_owned(), 4.0),
        ("gatewright_devices_group_bucket{le=\"15.0\"}".to_owned(), 5.0),
        ("gatewright_devices_group_sum".to_owned(), 18.0),
    ] {
        assert_eq!(samples.get(&key), Some(&value), "{key}");
    }
}

#[test]
fn every_counter_of_a_link_is_told() {
    let names: Vec<_> = link("lan").counters.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, LINK.map(|(name, _)| name));
}

#[test]
fn the_histogram_is_cumulative_and_ends_in_infinity() {
    let page = text(&status());
    let samples = checked(&page);
    let buckets: Vec<(&str, f64)> = (page.lines())
        .filter_map(|line| {
            line.strip_prefix("gatewright_sojourn_seconds_bucket{mode=\"graph\",le=\"")
        })
        .map(|line| line.split_once("\"} ").unwrap())
        .map(|(bound, count)| (bound, count.parse().unwrap()))
        .collect();
    let bound = |text: &str| if text == "+Inf" { f64::INFINITY } else { text.parse().unwrap() };
    for pair in buckets.windows(2) {
        assert!(bound(pair[0].0) < bound(pair[1].0) && pair[0].1 <= pair[1].1, "{pair:?}");
    }
    assert_eq!(buckets.last(), Some(&("+Inf", 17.0)));
    assert_eq!(samples.get("gatewright_sojourn_seconds_count{mode=\"graph\"}"), Some(&17.0));
    for (bound, count) in [("1e-06", 10.0), ("2.5e-05", 10.0), ("5e-05", 15.0), ("10.0", 15.0)] {
        let key = format!("gatewright_sojourn_seconds_bucket{{mode=\"graph\",le=\"{bound}\"}}");
        assert_eq!(samples.get(&key), Some(&count), "{key}");
    }
}
