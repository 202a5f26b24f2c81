//! The linear model S(b) = a + c·b: Theil–Sen and bootstrap, beside the least squares of `delay`.

use super::quantile::{ConfidenceInterval, quantile, sorted};
use super::{mean, real};
use gatewright_delay::{LinearFit, least_squares};
use gatewright_sim::Random;
use serde::{Deserialize, Serialize};

/// Bootstrap intervals of a fit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct FitIntervals {
    /// Of a.
    pub intercept: ConfidenceInterval,
    /// Of c.
    pub slope: ConfidenceInterval,
}

/// Pairs that [`theil_sen`] looks at; of more points, as many are drawn.
const PAIRS_MAX: usize = 200_000;

/// The line of Theil and Sen: the median of all pairs' slopes, and the median intercept. A few
/// outliers, however large, do not move it.
pub fn theil_sen(points: &[(f64, f64)], random: &mut Random) -> Option<LinearFit> {
    let slope = |one: (f64, f64), other: (f64, f64)| {
        let width = other.0 - one.0;
        (width != 0.0).then(|| (other.1 - one.1) / width)
    };
    let count = points.len();
    let slopes: Vec<f64> = if count * count.saturating_sub(1) / 2 <= PAIRS_MAX {
        let pairs = points.iter().enumerate().flat_map(|(at, &one)| {
            points.iter().skip(at + 1).filter_map(move |&other| slope(one, other))
        });
        pairs.collect()
    } else {
        let bound = u64::try_from(count).ok()?;
        let mut draw = || points.get(usize::try_from(random.below(bound)).ok()?).copied();
        (0..PAIRS_MAX).filter_map(|_| slope(draw()?, draw()?)).collect()
    };
    let slope = quantile(&sorted(&slopes), 0.5)?;
    let rests: Vec<f64> = points.iter().map(|&(x, y)| slope.mul_add(-x, y)).collect();
    let intercept = quantile(&sorted(&rests), 0.5)?;
    let fit = LinearFit { intercept, slope, r_squared: 0.0, count };
    Some(LinearFit { r_squared: explained(points, &fit)?, ..fit })
}

/// The share of the variance that a line explains; negative if it is worse than the mean.
fn explained(points: &[(f64, f64)], fit: &LinearFit) -> Option<f64> {
    let values: Vec<f64> = points.iter().map(|&(_, y)| y).collect();
    let mean = mean(&values)?;
    let all: f64 = values.iter().map(|y| (y - mean).powi(2)).sum();
    let left: f64 = points.iter().map(|&(x, y)| (y - fit.at(x)).powi(2)).sum();
    Some(if all > 0.0 { 1.0 - left / all } else { 1.0 })
}

/// Bootstrap intervals at `level` of the line of least squares: pairs are resampled, so that
/// variances that differ with the size are respected.
pub fn bootstrap_fit(
    points: &[(f64, f64)],
    level: f64,
    resamples: usize,
    random: &mut Random,
) -> Option<FitIntervals> {
    let bound = u64::try_from(points.len()).ok()?;
    let (mut intercepts, mut slopes) = (Vec::new(), Vec::new());
    for _resample in 0..resamples {
        let draw = |_| points.get(usize::try_from(random.below(bound)).ok()?).copied();
        let drawn: Vec<(f64, f64)> = (0..points.len()).filter_map(draw).collect();
        if let Some(fit) = least_squares(&drawn) {
            intercepts.push(fit.intercept);
            slopes.push(fit.slope);
        }
    }
    // Too few sizes: most resamples have only one.
    if real(slopes.len()) < 0.5 * real(resamples) {
        return None;
    }
    let interval = |estimates: &[f64]| ConfidenceInterval::of(estimates, level);
    Some(FitIntervals { intercept: interval(&intercepts)?, slope: interval(&slopes)? })
}
