//! The paper's Figure 6 with cables that are cut: how long nothing arrives.

use bench::Bench;
use gatewright_lab::failover::{CableCut, FailoverBed};
use std::time::Duration;

/// Cuts of each kind.
const CUTS: usize = 20;
/// A ping each millisecond, as long as ping's own.
const PING: (u16, usize, Duration) = (7_000, 56, Duration::from_millis(1));

/// The figure of a kind of cut, and that of its single outages.
const fn keys(cut: CableCut) -> (&'static str, &'static str) {
    match cut {
        CableCut::NearDown => ("failover_near_down_ms", "failover_near_down_each_ms"),
        CableCut::FarDown => ("failover_far_down_ms", "failover_far_down_each_ms"),
        CableCut::NearSilent | CableCut::FarSilent => {
            ("failover_silent_ms", "failover_silent_each_ms")
        }
    }
}

/// Cuts a cable of the path in use again and again, in turn near and far, with and without loss of
/// the carrier.
pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let bed = FailoverBed::new().map_err(|error| error.to_string())?;
    let flow = bed.flow(PING.0, PING.1, PING.2).map_err(|error| error.to_string())?;
    let cuts = bench.options().pick(CUTS, 4);
    let mut outages: Vec<(&str, f64)> = Vec::new();
    for _ in 0..cuts {
        for cut in CableCut::ALL {
            let outcome = bed.cut(cut, &flow).map_err(|error| error.to_string())?;
            let (key, each) = keys(cut);
            bench.sample(each, "ms", outcome.outage_ms);
            outages.push((key, outcome.outage_ms));
        }
    }
    for key in ["failover_near_down_ms", "failover_far_down_ms", "failover_silent_ms"] {
        let mut of: Vec<f64> =
            outages.iter().filter(|(of, _)| *of == key).map(|(_, ms)| *ms).collect();
        of.sort_by(f64::total_cmp);
        // The 99th of a hundred; the largest of fewer.
        let p99 = of.get((of.len() * 99).div_ceil(100).saturating_sub(1));
        bench.sample(key, "ms", *p99.ok_or("no cable was cut")?);
    }
    bench.note(format!(
        "failover: Figure 6 in namespaces, a ping each ms from S to T, {cuts} cuts of each kind on \
         the path in use; from the first ping without an answer to the first with one; the 99th of \
         a hundred cuts, or the largest of fewer; each: the outages themselves"
    ));
    Ok(())
}
