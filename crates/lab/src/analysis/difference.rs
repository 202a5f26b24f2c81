//! Two runs compared: what is beyond noise.

use super::linear::ConfidenceInterval;
use super::{mean, real};
use gatewright_sim::Random;
use serde::{Deserialize, Serialize};

/// Whether a difference is beyond noise.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The second run is faster, beyond noise.
    Faster,
    /// The second run is slower, beyond noise.
    Slower,
    /// The difference is within noise.
    Noise,
    /// There are too few repetitions to judge.
    Unknown,
}

/// Difference of a delay between two runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct DelayDifference {
    /// The second run's delay, divided by the first's, less 1.
    pub relative: f64,
    /// Interval of it; none if a run has too few repetitions.
    pub interval: Option<ConfidenceInterval>,
    /// What follows.
    pub verdict: Verdict,
}

/// Repetitions of each run below which nothing is judged.
const REPEATS_MIN: usize = 3;
const RESAMPLES: usize = 2000;

/// Compares the repetitions' delays of two runs at `level`, which the caller has corrected for the
/// number of comparisons. A difference below `least` (0.02) is none, however certain.
///
/// The interval is a bootstrap of both means, widened by √(n/(n−1)), as few repetitions
/// underestimate their spread.
pub fn difference(
    first: &[f64],
    second: &[f64],
    level: f64,
    least: f64,
    random: &mut Random,
) -> Option<DelayDifference> {
    let (one, other) = (mean(first)?, mean(second)?);
    if one <= 0.0 {
        return None;
    }
    let relative = other / one - 1.0;
    let fewest = first.len().min(second.len());
    if fewest < REPEATS_MIN {
        return Some(DelayDifference { relative, interval: None, verdict: Verdict::Unknown });
    }
    let mut resampled = |values: &[f64]| {
        let bound = u64::try_from(values.len()).unwrap_or(1);
        let draw = |_| values.get(usize::try_from(random.below(bound)).ok()?).copied();
        mean(&(0..values.len()).filter_map(draw).collect::<Vec<_>>())
    };
    let wider = (real(fewest) / real(fewest - 1)).sqrt();
    let estimate = |_| {
        let estimate = resampled(second)? / resampled(first)? - 1.0;
        Some(relative + (estimate - relative) * wider)
    };
    let estimates: Vec<f64> = (0..RESAMPLES).filter_map(estimate).collect();
    let interval = ConfidenceInterval::of(&estimates, level)?;
    let verdict = match interval {
        _ if relative.abs() < least || interval.contains(0.0) => Verdict::Noise,
        _ if relative < 0.0 => Verdict::Faster,
        _ => Verdict::Slower,
    };
    Some(DelayDifference { relative, interval: Some(interval), verdict })
}
