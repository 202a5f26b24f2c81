//! Two runs compared: what is beyond noise.

use crate::analysis::{DelayDifference, Verdict, difference, real};
use crate::result::LabRun;
use gatewright_config::RelayKind;
use gatewright_sim::Random;
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
    /// Level of each interval, so that all together hold with 95 %.
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
    /// Median node delay in each run, in microseconds.
    pub medians_us: [f64; 2],
    /// How they differ.
    pub difference: DelayDifference,
}

/// Differences below this share are none.
const LEAST: f64 = 0.02;

/// Compares the node delays of two runs.
pub fn compare(first: &LabRun, second: &LabRun) -> LabComparison {
    let pairs: Vec<_> = first
        .conditions
        .iter()
        .filter_map(|one| {
            let other = second.condition(one.relay, one.octets, one.rate, one.load_pct)?;
            Some((one, other))
        })
        .collect();
    // Bonferroni: with many comparisons, each must be surer.
    let level = 1.0 - 0.05 / real(pairs.len().max(1));
    let mut random = Random::new(first.experiment.seed);
    let compared = pairs.iter().filter_map(|(one, other)| {
        let difference = difference(&one.medians, &other.medians, level, LEAST, &mut random)?;
        Some(ComparedCondition {
            relay: one.relay,
            octets: one.octets,
            rate: one.rate,
            load_pct: one.load_pct,
            medians_us: [one.node?.p50, other.node?.p50],
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
