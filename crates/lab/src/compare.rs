//! Two runs compared: what is beyond noise.

use crate::analysis::{DelayDifference, Verdict, difference, real};
use crate::report::in_words;
use crate::result::LabRun;
use gatewright_config::{Centre, RelayKind};
use serde::Serialize;

/// Two runs, condition by condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabComparison {
    /// The machines.
    pub machines: [String; 2],
    /// Conditions that both have.
    pub conditions: Vec<ComparedCondition>,
    /// Conditions that only one of them has, or that have no node delay.
    pub unmatched: usize,
    /// Level of each interval, so that those of all judged conditions together hold with 95 %.
    pub level: f64,
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
        unmatched: all - 2 * conditions.len(),
        conditions,
        level,
    }
}

impl LabComparison {
    /// Conditions with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.conditions.iter().filter(|it| it.difference.verdict == verdict).count()
    }
}
