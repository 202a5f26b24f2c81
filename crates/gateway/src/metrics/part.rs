//! Metrics of a part, each number a family of its own.
//!
//! `parts.txt` has every family of the parts, a line each, in the order of their names: the name
//! without `gatewright_`, the type, and the sentence that is its help here and in the manual.

use super::{head, histogram, sample};
use gatewright_part::{NamedStatus, PartHistogram};
use std::{collections::HashMap, sync::LazyLock};

const FAMILIES: &str = include_str!("parts.txt");

/// The sentence of each family.
static SENTENCES: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let families = FAMILIES.lines().filter_map(|line| line.split_once(' '));
    families.filter_map(|(name, rest)| Some((name, rest.split_once(' ')?.1))).collect()
});

/// The help of a family; of a part that an embedder adds, its name in words.
fn help(part: &str, name: &str) -> String {
    let known = SENTENCES.get(format!("{part}_{name}").as_str());
    known.map_or_else(|| format!("{part}: {}.", name.replace('_', " ")), ToString::to_string)
}

/// Writes the families of a part.
pub(super) fn text(out: &mut String, part: &NamedStatus) {
    let told = &part.told;
    let gauges = told.gauges.iter().map(|gauge| (gauge, "gauge", ""));
    let counters = told.counters.iter().map(|counter| (counter, "counter", "_total"));
    for ((name, value), kind, suffix) in gauges.chain(counters) {
        let family = format!("gatewright_{}_{name}", part.name);
        head(out, (&family, "", &help(part.name, name)), kind);
        sample(out, &family, suffix, "", value);
    }
    for histogram in &told.histograms {
        histogram_text(out, part.name, histogram);
    }
}

/// In seconds where the values are nanoseconds.
fn histogram_text(out: &mut String, part: &str, of: &PartHistogram) {
    if let Some(time) = of.name.strip_suffix("_ns") {
        let name = format!("{time}_seconds");
        let family = format!("gatewright_{part}_{name}");
        head(out, (&family, "seconds", &help(part, &name)), "histogram");
        histogram::times(out, &family, &[], &of.values);
    } else {
        let family = format!("gatewright_{part}_{}", of.name);
        head(out, (&family, "", &help(part, of.name)), "histogram");
        histogram::sizes(out, &family, &[], &of.values);
    }
}
