//! Metrics of a part, each number a family of its own.

use super::{head, sample, written};
use gatewright_part::{NamedStatus, PartHistogram};

/// Writes the families of a part.
pub(super) fn text(out: &mut String, part: &NamedStatus) {
    let told = &part.told;
    let gauges = told.gauges.iter().map(|gauge| (gauge, "gauge", ""));
    let counters = told.counters.iter().map(|counter| (counter, "counter", "_total"));
    for ((name, value), kind, suffix) in gauges.chain(counters) {
        let family = format!("gatewright_{}_{name}", part.name);
        let help = format!("{}: {}.", part.name, name.replace('_', " "));
        head(out, (&family, "", &help), kind);
        sample(out, &family, suffix, "", value);
    }
    for histogram in &told.histograms {
        histogram_text(out, part.name, histogram);
    }
}

/// Each power of two is a bound, in seconds where the values are microseconds.
fn histogram_text(out: &mut String, part: &str, of: &PartHistogram) {
    let (name, is_time) = match of.name.strip_suffix("_us") {
        Some(name) => (name, true),
        None => (of.name, false),
    };
    let unit = if is_time { "seconds" } else { "" };
    let family = format!("gatewright_{part}_{name}{}", if is_time { "_seconds" } else { "" });
    let help = format!("{part}: {}.", name.replace('_', " "));
    head(out, (&family, unit, &help), "histogram");
    let value = |value: u64| {
        if is_time {
            format!("{}.{:06}", value / 1_000_000, value % 1_000_000)
        } else {
            format!("{value}.0")
        }
    };
    let mut within = 0_u64;
    let last = of.counts.len().saturating_sub(1);
    for (step, count) in (0_u32..).zip(of.counts.iter().take(last)) {
        within = within.saturating_add(*count);
        let bound = value(1_u64.checked_shl(step).unwrap_or(u64::MAX));
        sample(out, &family, "_bucket", &written(&[("le", &bound)]), within);
    }
    let all = within.saturating_add(of.counts.last().copied().unwrap_or_default());
    sample(out, &family, "_bucket", &written(&[("le", "+Inf")]), all);
    sample(out, &family, "_count", "", all);
    sample(out, &family, "_sum", "", value(of.sum));
}
