//! Round trips by our STAMP sender beside irtt's, over one path.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_config::parse_experiment;
use gatewright_diagnostic::SourceId;
use gatewright_lab::round_trips_beside_irtt;
use gatewright_testbed::Needs;
use libtest_mimic::{Arguments, Trial};
use std::time::Duration;

const EXPERIMENT: &str = include_str!("../../../examples/lab/default.toml");

fn main() {
    let missing = Needs::new().namespaces().linux(6, 6).program("irtt").missing();
    let name = "both_see_the_latency_of_the_path";
    let name = missing.as_ref().map_or(name.to_owned(), |missing| format!("{name} ({missing})"));
    let run = || {
        both_see_the_latency();
        Ok(())
    };
    let trial = Trial::test(name, run).with_ignored_flag(missing.is_some());
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
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
