//! A page of every kind of sample, judged by a small checker of the format.

use super::*;
use crate::{
    LayerStatus, LinkStatus, Status, Told, WayStatus,
    api::{AttachedAnswer, UdpGatewayAnswer},
    status::named,
};
use gatewright_link::LinkCounters;
use gatewright_packet::LinkIndex;
use gatewright_stack::{At, AttachmentId, Place};
use gatewright_wire::EtherType;
use std::{collections::BTreeSet, time::Duration};

fn link(name: &str) -> LinkStatus {
    let counters = LinkCounters {
        received: 7,
        received_octets: 700,
        transmit_full: 3,
        ..LinkCounters::default()
    };
    LinkStatus {
        name: name.to_owned(),
        device: "eth0".to_owned(),
        mode: "packet".to_owned(),
        why: String::new(),
        kernel: String::new(),
        up: true,
        mtu: 1500,
        mac: None,
        addresses: Vec::new(),
        counters: named(counters),
    }
}

fn status() -> StatusAnswer {
    let at = At::EtherType(EtherType(0x0800));
    let attachment = Attachment { link: Some(LinkIndex(1)), ..Attachment::new(at, Place::Tap) };
    let way = |link| WayStatus {
        at: "ether:ipv4".to_owned(),
        side: "receive".to_owned(),
        link,
        layer: None,
        to_device: false,
        packets: 5,
    };
    let gateway = Status {
        uptime: Duration::from_millis(61_005),
        links: vec![link("lan"), link("wa\"n\\\n")],
        layers: vec![
            LayerStatus { layer: "ipv4", link: None, drops: vec![("no_route", 2), ("ttl", 0)] },
            LayerStatus { layer: "arp", link: Some(0), drops: vec![("malformed", 1)] },
        ],
        ways: vec![way(None), way(Some(0)), way(Some(0))],
        unclaimed: vec![("no_handler".to_owned(), 4)],
        handlers: vec![(AttachmentId(1), attachment, 9)],
        kernel: None,
        sojourn_p50: None,
        sojourn_p99: None,
        sojourn_packets: 0,
    };
    let attached = AttachedAnswer {
        id: 1,
        handler: "count",
        at: String::new(),
        packets: Some(9),
        octets: Some(90),
        missed: None,
    };
    let relay =
        UdpGatewayAnswer { name: "coap".to_owned(), received: 4, sent: 3, returned: 2, lost: 1 };
    let told = Told {
        words: vec![("listens_at", "127.0.0.1:6024".to_owned())],
        gauges: vec![("associated", 3)],
        counters: vec![("reports", 8)],
    };
    let parts = vec![PartAnswer { name: "devices", told }];
    StatusAnswer { gateway, attached: vec![attached], udp_gateways: vec![relay], parts }
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
    let samples = checked(&text(&status(), &Sojourn::default()));
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
        ("gatewright_unclaimed_packets_total{reason=\"no_handler\"}", 4.0),
        ("gatewright_way_packets_total{at=\"ether:ipv4\",side=\"receive\",to=\"layer\"}", 5.0),
        // Two ways that differ in nothing that is told are one sample.
        (
            "gatewright_way_packets_total{at=\"ether:ipv4\",side=\"receive\",link=\"lan\",to=\"layer\"}",
            10.0,
        ),
        ("gatewright_udp_gateway_lost_datagrams_total{udp_gateway=\"coap\"}", 1.0),
        ("gatewright_devices_associated", 3.0),
        ("gatewright_devices_reports_total", 8.0),
    ] {
        assert_eq!(samples.get(key), Some(&value), "{key} in {samples:#?}");
    }
    let counted = |key: &&String| key.starts_with("gatewright_handler_counted_bytes_total{");
    let key = samples.keys().find(counted).unwrap();
    assert!(key.contains("id=\"1\",handler=\"count\"") && key.contains("link=\"wa"), "{key}");
}

#[test]
fn every_counter_of_a_link_is_told() {
    let names: Vec<_> = link("lan").counters.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, LINK.map(|(name, _)| name));
}

#[test]
fn the_histogram_is_cumulative_and_ends_in_infinity() {
    let sojourn = Sojourn::default();
    sojourn.record(900, 10);
    sojourn.record(40_000, 5);
    sojourn.record(u64::MAX / 1_000_000, 2);
    let page = text(&status(), &sojourn);
    let samples = checked(&page);
    let buckets: Vec<(&str, f64)> = (page.lines())
        .filter_map(|line| line.strip_prefix("gatewright_sojourn_seconds_bucket{le=\""))
        .map(|line| line.split_once("\"} ").unwrap())
        .map(|(bound, count)| (bound, count.parse().unwrap()))
        .collect();
    assert_eq!(buckets.len(), BOUNDS.len() + 1);
    let bound = |text: &str| if text == "+Inf" { f64::INFINITY } else { text.parse().unwrap() };
    for pair in buckets.windows(2) {
        assert!(bound(pair[0].0) < bound(pair[1].0) && pair[0].1 <= pair[1].1, "{pair:?}");
    }
    for (nanoseconds, seconds) in BOUNDS {
        assert_eq!(
            format!("{:.9}", bound(seconds)),
            format!("{:.9}", Duration::from_nanos(nanoseconds).as_secs_f64())
        );
    }
    assert_eq!(buckets.last(), Some(&("+Inf", 17.0)));
    assert_eq!(samples.get("gatewright_sojourn_seconds_count"), Some(&17.0));
    assert_eq!(samples.get("gatewright_sojourn_seconds_bucket{le=\"1e-06\"}"), Some(&10.0));
    assert_eq!(samples.get("gatewright_sojourn_seconds_bucket{le=\"2.5e-05\"}"), Some(&10.0));
    assert_eq!(samples.get("gatewright_sojourn_seconds_bucket{le=\"5e-05\"}"), Some(&15.0));
}
