//! Round trips by our STAMP sender beside irtt's, ping's and flent's, over one path each.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_config::{LinkShape, parse_experiment};
use gatewright_diagnostic::SourceId;
use gatewright_lab::{round_trips_beside_irtt, round_trips_under_load};
use gatewright_testbed::Needs;
use libtest_mimic::{Arguments, Trial};
use std::time::Duration;

const EXPERIMENT: &str = include_str!("../../../examples/lab/default.toml");

fn main() {
    let tests: [(&str, &str, fn()); 3] = [
        ("both_see_the_latency_of_the_path", "irtt", both_see_the_latency),
        ("both_see_the_queue_that_streams_fill", "ping", both_see_the_queue),
        ("flent_sees_the_queue_that_streams_fill", "flent", flent_sees_the_queue),
    ];
    let trials = tests.map(|(name, program, run)| {
        let missing = Needs::new().namespaces().linux(6, 6).program(program).missing();
        let name = missing.as_ref().map_or(name.to_owned(), |it| format!("{name} ({it})"));
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing.is_some())
    });
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.into()).exit();
}

/// Four streams each way over two links of 10 Mbit/s and 3 ms fill the queue: a round trip takes longer
/// than 12 ms, by STAMP and by ping. How far these differ is for `bench lab`.
fn both_see_the_queue() {
    let experiment = parse_experiment(SourceId::default(), EXPERIMENT).unwrap();
    let link = LinkShape { capacity_mbps: 10.0, latency_us: 3000, jitter_us: 0, loss_pct: 0.0 };
    let found = round_trips_under_load(&experiment, link).unwrap();
    assert!(found.octets.iter().all(|octets| *octets > 100_000), "{found:?}");
    for median in [found.stamp_us, found.ping_us] {
        assert!(median > 15_000.0, "{found:?}");
    }
}

/// flent's own test `ping` beside the streams. Its UDP half needs irtt.
fn flent_sees_the_queue() {
    let experiment = parse_experiment(SourceId::default(), EXPERIMENT).unwrap();
    let link = LinkShape { capacity_mbps: 10.0, latency_us: 3000, jitter_us: 0, loss_pct: 0.0 };
    let flent = round_trips_under_load(&experiment, link).unwrap().flent.unwrap();
    for median in [Some(flent.stamp_us), Some(flent.icmp_us), flent.udp_us].into_iter().flatten() {
        assert!(median > 15_000.0, "{flent:?}");
    }
    let has_irtt = Needs::new().program("irtt").missing().is_none();
    assert_eq!(flent.udp_us.is_some(), has_irtt, "{flent:?}");
}

/// Two links of 3 ms are 12 ms there and back. On a busy machine a delay line is late, for both tools
/// alike: how far they differ is for `bench lab`.
fn both_see_the_latency() {
    let experiment = parse_experiment(SourceId::default(), EXPERIMENT).unwrap();
    let medians = round_trips_beside_irtt(&experiment, Duration::from_millis(3), 2).unwrap();
    assert_eq!((medians.stamp_us.len(), medians.irtt_us.len()), (2, 2));
    // iperf3 is there or not; TCP smooths its round trips.
    assert!([0, 2].contains(&medians.iperf3_us.len()), "{medians:?}");
    assert!(medians.iperf3_us.iter().all(|&mean| mean >= 11_900.0), "{medians:?}");
    for median in medians.stamp_us.iter().chain(&medians.irtt_us) {
        assert!(*median >= 12_000.0, "{medians:?}");
    }
}
