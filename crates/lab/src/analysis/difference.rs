//! Two runs compared: what is beyond noise.

use super::quantile::ConfidenceInterval;
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
    /// The repetitions of a run vary too much to judge.
    Unsteady,
}

/// Difference of a delay between two runs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct DelayDifference {
    /// Geometric mean of the repetitions' delays in each run.
    pub delays: [f64; 2],
    /// The second of these divided by the first, less 1.
    pub relative: f64,
    /// Interval of it, above -1; none if a run has too few repetitions.
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
/// The interval is a bootstrap of the difference of both mean logarithms, widened by √(n/(n−1)), as
/// few repetitions underestimate their spread. `None` if a run has no repetition, or a delay that is
/// not above zero.
pub fn difference(
    first: &[f64],
    second: &[f64],
    level: f64,
    least: f64,
    random: &mut Random,
) -> Option<DelayDifference> {
    let (first, second) = (logarithms(first)?, logarithms(second)?);
    let (one, other) = (mean(&first)?, mean(&second)?);
    let delays = [one.exp(), other.exp()];
    let ratio = other - one;
    let relative = ratio.exp_m1();
    let fewest = first.len().min(second.len());
    if fewest < REPEATS_MIN {
        return Some(DelayDifference {
            delays,
            relative,
            interval: None,
            verdict: Verdict::Unknown,
        });
    }
    let mut resampled = |values: &[f64]| {
        let bound = u64::try_from(values.len()).unwrap_or(1);
        let draw = |_| values.get(usize::try_from(random.below(bound)).ok()?).copied();
        mean(&(0..values.len()).filter_map(draw).collect::<Vec<_>>())
    };
    let wider = (real(fewest) / real(fewest - 1)).sqrt();
    let estimate = |_| {
        let estimate = resampled(&second)? - resampled(&first)?;
        Some((ratio + (estimate - ratio) * wider).exp_m1())
    };
    let estimates: Vec<f64> = (0..RESAMPLES).filter_map(estimate).collect();
    let interval = ConfidenceInterval::of(&estimates, level)?;
    let verdict = match interval {
        _ if relative.abs() < least || interval.contains(0.0) => Verdict::Noise,
        _ if relative < 0.0 => Verdict::Faster,
        _ => Verdict::Slower,
    };
    Some(DelayDifference { delays, relative, interval: Some(interval), verdict })
}

/// Natural logarithms; `None` unless all values are finite and above zero.
fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| (*value > 0.0 && value.is_finite()).then(|| value.ln())).collect()
}
