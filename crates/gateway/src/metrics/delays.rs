//! Metrics of the delay models: gauges by relay, in seconds.

use super::{Family, Page, given};
use crate::delay_models::RelayDelay;

const FIXED: Family = (
    "gatewright_delay_fixed_seconds",
    "seconds",
    "a of a relay's service time S(b) = a + c*b, by its delay model.",
);
const PER_BYTE: Family = (
    "gatewright_delay_per_byte_seconds",
    "seconds",
    "c of a relay's service time S(b) = a + c*b, where sizes vary.",
);
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
const DRIFT: Family = (
    "gatewright_delay_drift",
    "",
    "Whether the predicted and the measured 99th percentile differ by more than a factor of two.",
);

/// The families of all models; nothing without one.
pub(super) fn write(page: &mut Page, delays: &[RelayDelay]) {
    for RelayDelay { mode, relay, handler, reading } in delays {
        let labels = given([
            Some(("mode", *mode)),
            relay.as_deref().map(|relay| ("relay", relay)),
            handler.as_deref().map(|handler| ("handler", handler)),
        ]);
        let gauges = [
            (FIXED, Some(reading.a_us / 1e6)),
            (PER_BYTE, reading.c_ns.map(|c| c / 1e9)),
            (LOAD, Some(reading.load)),
            (PREDICTED, reading.predicted_p99_us.map(|it| it / 1e6)),
            (MEASURED, Some(reading.measured_p99_us / 1e6)),
        ];
        for (family, value) in gauges {
            if let Some(value) = value {
                page.gauge(family, &labels, format!("{value:e}"));
            }
        }
        page.gauge(DRIFT, &labels, u8::from(reading.drifts));
    }
}
