//! Metrics of the requests of gateway programs, by handler.

use super::{Family, head, sample, written};
use gatewright_part::HandledRequests;
use std::fmt::Write;

const REQUESTS: Family = (
    "gatewright_program_requests",
    "requests",
    "Requests that a program's handler began, finished, or did not come to an end of its own with.",
);
const LATENCY: Family = (
    "gatewright_program_latency_seconds",
    "seconds",
    "From the beginning of a handler to its end.",
);

/// The families of all handlers; nothing if there is none.
pub(super) fn text(out: &mut String, handlers: &[&HandledRequests]) {
    if handlers.is_empty() {
        return;
    }
    head(out, REQUESTS, "counter");
    for of in handlers {
        for (outcome, count) in
            [("begun", of.started), ("finished", of.finished), ("failed", of.failed)]
        {
            let labels = [
                ("program", of.program.as_str()),
                ("handler", of.handler.as_str()),
                ("outcome", outcome),
            ];
            sample(out, REQUESTS.0, "_total", &written(&labels), count);
        }
    }
    head(out, LATENCY, "histogram");
    for of in handlers {
        histogram(out, of);
    }
}

/// Each power of two is a bound; the last entry has none. There is no sum, and so no count
/// (OpenMetrics 1.0, "Histogram").
fn histogram(out: &mut String, of: &HandledRequests) {
    let mut within = 0_u64;
    let mut bucket = |bound: &str, within: u64| {
        let labels =
            [("program", of.program.as_str()), ("handler", of.handler.as_str()), ("le", bound)];
        sample(out, LATENCY.0, "_bucket", &written(&labels), within);
    };
    let last = of.latency_us.len().saturating_sub(1);
    for (step, count) in (0_u32..).zip(of.latency_us.iter().take(last)) {
        within = within.saturating_add(*count);
        let mut bound = String::new();
        let us = 1_u64.checked_shl(step).unwrap_or(u64::MAX);
        // Writing to a string cannot fail.
        let _ = write!(bound, "{}.{:06}", us / 1_000_000, us % 1_000_000);
        bucket(&bound, within);
    }
    let beyond = of.latency_us.last().copied().unwrap_or_default();
    bucket("+Inf", within.saturating_add(beyond));
}
