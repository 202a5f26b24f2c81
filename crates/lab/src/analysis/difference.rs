//! Two runs compared: what is beyond noise.

use super::quantile::ConfidenceInterval;
use super::sample::deviation;
use super::student::student_t;
use super::{mean, real};
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
    /// Interval of it, not below -1; none if a run has too few repetitions.
    pub interval: Option<ConfidenceInterval>,
    /// What follows.
    pub verdict: Verdict,
}

/// Repetitions of each run below which nothing is judged.
const REPEATS_MIN: usize = 3;
/// Beyond this no ratio of delays is told apart: e to it is a number still.
const LOGARITHM_MAX: f64 = 700.0;

/// Compares the repetitions' delays of two runs at `level`, which the caller has corrected for the
/// number of comparisons. A difference below `least` (0.02) is none, however certain.
///
/// The interval is Welch's, of the difference of both mean logarithms, with its degrees of freedom
/// rounded down. A bootstrap of three to five values cannot reach such levels. `None` if a run has no
/// repetition, or a delay that is not above zero.
pub fn difference(
    first: &[f64],
    second: &[f64],
    level: f64,
    least: f64,
) -> Option<DelayDifference> {
    let (first, second) = (logarithms(first)?, logarithms(second)?);
    let (one, other) = (mean(&first)?, mean(&second)?);
    let delays = [one.exp(), other.exp()];
    let ratio = other - one;
    let relative = ratio.exp_m1();
    if first.len().min(second.len()) < REPEATS_MIN {
        let (interval, verdict) = (None, Verdict::Unknown);
        return Some(DelayDifference { delays, relative, interval, verdict });
    }
    let half = half_width(&first, &second, level);
    let end = |at: f64| at.clamp(-LOGARITHM_MAX, LOGARITHM_MAX).exp_m1();
    let interval = ConfidenceInterval { low: end(ratio - half), high: end(ratio + half) };
    let verdict = match interval {
        _ if relative.abs() < least || interval.contains(0.0) => Verdict::Noise,
        _ if relative < 0.0 => Verdict::Faster,
        _ => Verdict::Slower,
    };
    Some(DelayDifference { delays, relative, interval: Some(interval), verdict })
}

/// Half of Welch's interval of the difference of two means.
fn half_width(first: &[f64], second: &[f64], level: f64) -> f64 {
    let square = |values: &[f64]| {
        let deviation = deviation(values).unwrap_or_default();
        deviation * deviation / real(values.len())
    };
    let (one, other) = (square(first), square(second));
    let both = one + other;
    if both <= 0.0 {
        return 0.0;
    }
    let part = |of: f64, values: &[f64]| of * of / real(values.len() - 1);
    let freedom = both * both / (part(one, first) + part(other, second));
    both.sqrt() * student_t(level, whole(freedom))
}

/// Degrees of freedom rounded down, at least 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and at most the number of repetitions"
)]
fn whole(freedom: f64) -> usize {
    (freedom.max(1.0) + 1e-9) as usize
}

/// Natural logarithms; `None` unless all values are finite and above zero.
fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| (*value > 0.0 && value.is_finite()).then(|| value.ln())).collect()
}
