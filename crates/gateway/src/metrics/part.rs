//! Metrics of a part, each number a family of its own.

use super::{head, histogram, sample};
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

/// In seconds where the values are nanoseconds.
fn histogram_text(out: &mut String, part: &str, of: &PartHistogram) {
    let time = of.name.strip_suffix("_ns");
    let help = format!("{part}: {}.", time.unwrap_or(of.name).replace('_', " "));
    if let Some(name) = time {
        let family = format!("gatewright_{part}_{name}_seconds");
        head(out, (&family, "seconds", &help), "histogram");
        histogram::times(out, &family, &[], &of.values);
    } else {
        let family = format!("gatewright_{part}_{}", of.name);
        head(out, (&family, "", &help), "histogram");
        histogram::sizes(out, &family, &[], &of.values);
    }
}
