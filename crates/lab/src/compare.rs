//! Two runs compared: what is beyond noise.

use crate::analysis::{DelayDifference, Verdict, difference, real};
use crate::report::in_words;
use crate::result::LabRun;
use gatewright_config::{Centre, RelayKind};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Two runs, condition by condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabComparison {
    /// The machines.
    pub machines: [String; 2],
    /// In what the experiments differ, beside their conditions: delays differ by that, too.
    pub settings: Vec<DifferentSetting>,
    /// Conditions that both have.
    pub conditions: Vec<ComparedCondition>,
    /// Conditions that only one of them has, or that have no node delay.
    pub unmatched: usize,
    /// Level of each interval, so that those of all judged conditions together hold with 95 %.
    pub level: f64,
}

/// A setting of the experiment that is not the same in both runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct DifferentSetting {
    /// Its key in the experiment's file; `namespaces` and `optimised` are the runs' own.
    pub key: String,
    /// Its values, as JSON.
    pub values: [String; 2],
}

/// A condition of two runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComparedCondition {
    /// The relay.
    pub relay: RelayKind,
    /// Octets of payload.
    pub octets: u16,
    /// Packets a second.
    pub rate: u32,
    /// Share of the relay's processor that another process took, in percent.
    pub load_pct: u8,
    /// Packets sent at once.
    pub batch: u16,
    /// Whether the processors were kept from sleeping.
    pub awake: bool,
    /// Frequency of the processors in MHz; 0 is what the system chose.
    pub frequency_mhz: u32,
    /// Whether it was steady in each run; it is judged only if it was in both.
    pub steady: [bool; 2],
    /// How the repetitions' median node delays differ; delays are in microseconds.
    pub difference: DelayDifference,
}

impl ComparedCondition {
    /// What is special of the condition beside size and rate, in words; nothing where the system does
    /// what it likes.
    pub fn beside(&self) -> String {
        let Self { octets, rate, load_pct, batch, awake, frequency_mhz, .. } = *self;
        in_words(Centre { octets, rate, load_pct, batch, awake, frequency_mhz })
    }
}

/// Differences below this share are none.
const LEAST: f64 = 0.02;
/// A difference whose interval is all beyond this share is no matter of unsteady conditions alone.
const FAR: f64 = 10.0 * LEAST;

/// Compares the node delays of two runs.
pub fn compare(first: &LabRun, second: &LabRun) -> LabComparison {
    let pairs: Vec<_> = first
        .conditions
        .iter()
        .filter_map(|one| {
            let other = second.condition(one.relay, one.condition())?;
            Some((one, other))
        })
        .collect();
    // Bonferroni: with many comparisons, each must be surer.
    let judged = pairs.iter().filter(|(one, other)| one.steady && other.steady).count();
    let level = 1.0 - 0.05 / real(judged.max(1));
    let compared = pairs.iter().filter_map(|(one, other)| {
        let mut difference = difference(&one.medians, &other.medians, level, LEAST)?;
        let steady = [one.steady, other.steady];
        if difference.verdict != Verdict::Unknown && steady.contains(&false) {
            difference.verdict = Verdict::Unsteady;
        }
        Some(ComparedCondition {
            relay: one.relay,
            octets: one.octets,
            rate: one.rate,
            load_pct: one.load_pct,
            batch: one.batch,
            awake: one.awake,
            frequency_mhz: one.frequency_mhz,
            steady,
            difference,
        })
    });
    let conditions: Vec<ComparedCondition> = compared.collect();
    let all = first.conditions.len() + second.conditions.len();
    LabComparison {
        machines: [first.machine.clone(), second.machine.clone()],
        settings: different_settings(first, second),
        unmatched: all - 2 * conditions.len(),
        conditions,
        level,
    }
}

/// Keys that say which conditions there are and how often each is measured.
const OF_CONDITIONS: [&str; 10] = [
    "title",
    "relays",
    "centre",
    "vary",
    "factorial",
    "seconds",
    "repeats",
    "repeats_max",
    "steady_pct",
    "seed",
];

fn different_settings(first: &LabRun, second: &LabRun) -> Vec<DifferentSetting> {
    let [one, other] = [first, second].map(settings);
    let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let value = |of: &BTreeMap<String, Value>, key: &String| {
        of.get(key).map_or_else(|| "none".to_owned(), Value::to_string)
    };
    let both = |key: &String| [value(&one, key), value(&other, key)];
    let all = keys.into_iter().map(|key| DifferentSetting { key: key.clone(), values: both(key) });
    all.filter(|setting| setting.values[0] != setting.values[1]).collect()
}

/// What a run was made with, by key.
fn settings(run: &LabRun) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let experiment = serde_json::to_value(&run.experiment).unwrap_or_default();
    for (key, value) in experiment.as_object().into_iter().flatten() {
        if OF_CONDITIONS.contains(&key.as_str()) {
            continue;
        }
        match value {
            Value::Object(table) => {
                let inner = table.iter().map(|(name, value)| (format!("{key}.{name}"), value));
                all.extend(inner.map(|(key, value)| (key, value.clone())));
            }
            Value::Null => {}
            value => {
                all.insert(key.clone(), value.clone());
            }
        }
    }
    all.insert("namespaces".to_owned(), run.namespaces.into());
    all.insert("optimised".to_owned(), run.optimised.into());
    all
}

impl LabComparison {
    /// Conditions with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.conditions.iter().filter(|it| it.difference.verdict == verdict).count()
    }

    /// Conditions that are not judged, as they were unsteady, and whose intervals leave out by far that
    /// there is no difference.
    pub fn unsteady_but_different(&self) -> usize {
        let is_far = |it: &&ComparedCondition| {
            let interval = it.difference.interval;
            it.difference.verdict == Verdict::Unsteady
                && interval.is_some_and(|it| it.low > FAR || it.high < -FAR)
        };
        self.conditions.iter().filter(is_far).count()
    }
}
