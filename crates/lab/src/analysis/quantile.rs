//! Quantiles, and intervals of estimates. Those of a quantile, by order statistics, and of a share, by
//! Wilson, hold for any distribution.

use super::{index_at, real};
use serde::{Deserialize, Serialize};

/// The finite values in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The quantile `part` of ascending values, interpolated linearly (type 7 of Hyndman and Fan).
pub fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = part.clamp(0.0, 1.0) * real(last);
    let below = index_at(place / real(last.max(1)), last + 1).min(last);
    // The index was rounded from a share; it may be one off where the share is not exact.
    let below = if real(below) > place { below.saturating_sub(1) } else { below };
    let below = if real(below + 1) <= place { (below + 1).min(last) } else { below };
    let low = *sorted.get(below)?;
    let high = sorted.get(below + 1).copied().unwrap_or(low);
    Some(low + (high - low) * (place - real(below)))
}

/// Interval of an estimate.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ConfidenceInterval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl ConfidenceInterval {
    /// The percentile interval at `level` of an estimate's bootstrap distribution.
    pub fn of(estimates: &[f64], level: f64) -> Option<Self> {
        let sorted = sorted(estimates);
        let outside = (1.0 - level) / 2.0;
        let (low, high) = (quantile(&sorted, outside)?, quantile(&sorted, 1.0 - outside)?);
        Some(Self { low, high })
    }

    /// The interval of the estimate times a positive factor, as for another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { low: self.low * factor, high: self.high * factor }
    }

    /// Whether `value` lies in it.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The interval of the quantile `part` of ascending values at `level`, between two of the values: the
/// number of values below a quantile has a binomial distribution, whatever theirs is (David and
/// Nagaraja, Order Statistics, §7.1). It holds if the values are independent.
///
/// `None` if there are too few values for it to have both ends: of 95 % for the quantile 0.95 below 72,
/// for 0.99 below 368.
pub fn quantile_interval(sorted: &[f64], part: f64, level: f64) -> Option<ConfidenceInterval> {
    let outside = (1.0 - level) / 2.0;
    let (mut low, mut below) = (None, 0.0);
    for (at, share) in Binomial::of(sorted.len(), part)?.enumerate() {
        below += share;
        // One rank less than `at` values are below the quantile with this probability at the most.
        if below <= outside {
            low = Some(at);
        }
        if below >= 1.0 - outside {
            let (low, high) = (*sorted.get(low?)?, *sorted.get(at)?);
            return Some(ConfidenceInterval { low, high });
        }
    }
    None
}

/// The probabilities of 0, 1, 2 … successes in a number of trials.
struct Binomial {
    trials: usize,
    successes: usize,
    /// Natural logarithm of the next probability.
    logarithm: f64,
    /// Natural logarithm of the odds of one trial.
    odds: f64,
}

impl Binomial {
    /// `None` where the outcome is certain, or there is no trial.
    fn of(trials: usize, part: f64) -> Option<Self> {
        let is_open = trials > 0 && part > 0.0 && part < 1.0;
        let miss = (-part).ln_1p();
        is_open.then(|| Self {
            trials,
            successes: 0,
            logarithm: real(trials) * miss,
            odds: part.ln() - miss,
        })
    }
}

impl Iterator for Binomial {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let left = self.trials.checked_sub(self.successes)?;
        let probability = self.logarithm.exp();
        self.successes += 1;
        self.logarithm += (real(left) / real(self.successes)).ln() + self.odds;
        Some(probability)
    }
}

/// Standard normal quantile 0.975.
const NORMAL_975: f64 = 1.959_963_984_540_054;

/// Wilson's score interval of 95 % of a share, of which `count` of `all` are a sample; `None` without a
/// sample.
pub fn share_interval(count: usize, all: usize) -> Option<ConfidenceInterval> {
    let share = (all > 0).then(|| real(count.min(all)) / real(all))?;
    let squared = NORMAL_975 * NORMAL_975 / real(all);
    let centre = share + squared / 2.0;
    let half = (squared * (share * (1.0 - share) + squared / 4.0)).sqrt();
    let end = |it: f64| (it / (1.0 + squared)).clamp(0.0, 1.0);
    Some(ConfidenceInterval { low: end(centre - half), high: end(centre + half) })
}
