//! Metrics of the delay models: gauges by relay, in seconds.

use super::{Family, given, head, sample, written};
use crate::delay_models::RelayDelay;

const FIXED: Family = (
    "gatewright_delay_fixed_seconds",
    "seconds",
    "a of a relay's service time S(b) = a + c*b, by its delay model.",
);
const PER_BYTE: Family =
    ("gatewright_delay_per_byte_seconds", "seconds", "c of that service time, where sizes vary.");
const LOAD: Family = (
    "gatewright_delay_load",
    "",
    "Share of the time in which a server is busy; of programs, requests served at the same time.",
);
const PREDICTED: Family = (
    "gatewright_delay_predicted_p99_seconds",
    "seconds",
    "The 99th percentile of sojourn times that the model predicted.",
);
const MEASURED: Family = (
    "gatewright_delay_measured_p99_seconds",
    "seconds",
    "The 99th percentile of sojourn times that was measured.",
);
const DRIFT: Family =
    ("gatewright_delay_drift", "", "Whether both differ by more than a factor of two.");

/// The families of all models; nothing without one.
pub(super) fn text(out: &mut String, delays: &[RelayDelay]) {
    type Value = fn(&RelayDelay) -> Option<f64>;
    let families: [(Family, Value); 6] = [
        (FIXED, |it| Some(it.reading.a_us / 1e6)),
        (PER_BYTE, |it| it.reading.c_ns.map(|c| c / 1e9)),
        (LOAD, |it| Some(it.reading.load)),
        (PREDICTED, |it| it.reading.predicted_p99_us.map(|it| it / 1e6)),
        (MEASURED, |it| Some(it.reading.measured_p99_us / 1e6)),
        (DRIFT, |it| Some(f64::from(u8::from(it.reading.drifts)))),
    ];
    for (family, value) in families {
        let values: Vec<_> = delays.iter().filter_map(|it| Some((it, value(it)?))).collect();
        if values.is_empty() {
            continue;
        }
        head(out, family, "gauge");
        for (it, value) in values {
            let labels = given([
                Some(("mode", it.mode)),
                it.relay.as_deref().map(|relay| ("relay", relay)),
                it.handler.as_deref().map(|handler| ("handler", handler)),
            ]);
            sample(out, family.0, "", &written(&labels), format!("{value:e}"));
        }
    }
}
