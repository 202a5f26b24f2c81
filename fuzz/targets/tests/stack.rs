//! The seeds of the stack's targets, and what they reach.
#![allow(clippy::expect_used, clippy::print_stderr, reason = "a test may fail loudly")]

use fuzz_targets::stack::{Reached, gateway_reaches, seeds::seeds};
use fuzz_targets::{discovery, leases, reassembly};
use std::{fs, path::Path};

/// Every layer takes packets of the seeds and finds them right, and every reason to drop one that
/// frames alone can bring about is met.
#[test]
fn the_seeds_reach_each_layer_and_each_reason_to_drop() {
    let mut reached = Reached::default();
    for (_, octets) in seeds() {
        reached.add(gateway_reaches(&octets));
    }
    for layer in reached.taken.keys() {
        eprintln!("{layer}: {} accepted", reached.accepted(layer));
    }
    for ((layer, reason), count) in &reached.dropped {
        eprintln!("{layer}: {count} {reason}");
    }
    for layer in LAYERS {
        assert!(reached.accepted(layer) > 0, "{layer} accepted nothing");
    }
    let missed: Vec<_> = REASONS
        .iter()
        .flat_map(|&(layer, reasons)| reasons.iter().map(move |&reason| (layer, reason)))
        .filter(|drop| !reached.dropped.contains_key(drop))
        .collect();
    assert_eq!(missed, [], "not reached");
}

/// The layers of the graph.
const LAYERS: [&str; 13] = [
    "ethernet",
    "vlan",
    "arp",
    "ipv4",
    "ipv6",
    "icmpv4",
    "icmpv6",
    "ndp",
    "igmp",
    "mld",
    "udp",
    "udp-sockets",
    "dhcp",
];

/// The reasons to drop that frames alone bring about, by layer.
const REASONS: [(&str, &[&str]); 13] = [
    ("ethernet", &["truncated", "other-station", "not-ethernet-ii"]),
    ("vlan", &["unknown-vlan"]),
    ("arp", &["bad-arp", "bad-station", "own-arp", "conflict"]),
    (
        "ipv4",
        &[
            "truncated",
            "bad-version",
            "bad-length",
            "bad-checksum",
            "martian",
            "link-broadcast",
            "directed-broadcast",
            "not-joined",
            "not-forwarding",
            "source-route",
            "fragment-overlap",
            "fragment-repeated",
            "fragment-beyond-end",
            "bad-fragment",
            "fragment-congestion",
            "reassembly-timeout",
        ],
    ),
    (
        "ipv6",
        &[
            "truncated",
            "bad-version",
            "bad-source",
            "bad-destination",
            "not-member",
            "not-forwarding",
            "beyond-scope",
            "link-broadcast",
            "option-discard",
            "long-chain",
            "nested-fragment",
            "fragmented-discovery",
            "no-next-header",
            "fragment-overlap",
            "fragment-repeated",
            "reassembly-timeout",
        ],
    ),
    ("icmpv4", &["bad-checksum", "unhandled", "untrusted", "no-error-about", "rate-limited"]),
    (
        "icmpv6",
        &["bad-checksum", "unknown-type", "error-not-sent", "error-rate-limited", "untrusted"],
    ),
    (
        "ndp",
        &[
            "invalid-message",
            "bad-station",
            "own-station",
            "not-ours",
            "not-configured",
            "conflict",
        ],
    ),
    ("igmp", &["truncated", "invalid-message", "unhandled"]),
    ("mld", &["truncated", "invalid-message", "unhandled"]),
    ("udp", &["bad-checksum", "bad-length"]),
    ("udp-sockets", &["no-socket"]),
    ("dhcp", &["no-client", "truncated", "unexpected", "bad-option"]),
];

/// The fuzzer begins with these seeds: the files are as they are built. `UPDATE_EXPECTED=1` writes them.
#[test]
fn the_corpus_has_the_seeds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/gateway");
    for (name, octets) in seeds() {
        let file = corpus.join(name);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&file, &octets).expect("the corpus can be written");
        }
        assert_eq!(fs::read(&file).ok(), Some(octets), "{name} has changed: UPDATE_EXPECTED=1");
    }
}

/// Events that nobody chose, for each machine: some seconds of them.
#[test]
fn machines_survive_events_that_nobody_chose() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..20 {
        let octets: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_be_bytes()[3]
        })
        .take(60 + round * 30)
        .collect();
        for machine in [reassembly, discovery, leases] {
            machine(&octets);
        }
    }
}
