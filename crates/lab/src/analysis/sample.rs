//! Summaries of one sample of delays.

use super::quantile::{ConfidenceInterval, quantile, quantile_interval, sorted};
use super::student::student_t;
use super::{index_at, real};
use gatewright_sim::Random;
use serde::{Deserialize, Serialize};

/// Summary of a sample of delays, in the unit of its values.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DelaySummary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation (n − 1).
    pub deviation: f64,
    /// Smallest value.
    pub min: f64,
    /// Quantile 0.05.
    pub p5: f64,
    /// Quantile 0.25.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// Quantile 0.75.
    pub p75: f64,
    /// Quantile 0.95.
    pub p95: f64,
    /// Quantile 0.99.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
    /// Interval of 95 % of the quantile 0.95, by order statistics; none below 72 values, and in results
    /// of earlier versions.
    #[serde(default)]
    pub p95_interval: Option<ConfidenceInterval>,
    /// The same of the quantile 0.99; none below 368 values.
    #[serde(default)]
    pub p99_interval: Option<ConfidenceInterval>,
}

/// Level of the intervals of a summary.
const LEVEL: f64 = 0.95;

impl DelaySummary {
    /// The summary of `values`; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let at = |part| quantile(&sorted, part);
        Some(Self {
            count: sorted.len(),
            mean: mean(&sorted)?,
            deviation: deviation(&sorted).unwrap_or(0.0),
            min,
            p5: at(0.05)?,
            p25: at(0.25)?,
            p50: at(0.5)?,
            p75: at(0.75)?,
            p95: at(0.95)?,
            p99: at(0.99)?,
            max,
            p95_interval: quantile_interval(&sorted, 0.95, LEVEL),
            p99_interval: quantile_interval(&sorted, 0.99, LEVEL),
        })
    }

    /// Squared coefficient of variation.
    pub fn variation_squared(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.deviation / self.mean).powi(2) }
    }
}

/// Jitter: absolute differences of the delays of successive packets (RFC 3393 §1).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct DelayJitter {
    /// Number of differences.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// The jitter of repetitions' delays in the order of sending; `None` if none has two. From one repetition
/// to the next there is no step.
pub fn jitter<D: AsRef<[f64]>>(repetitions: &[D]) -> Option<DelayJitter> {
    let pairs = repetitions.iter().flat_map(|delays| delays.as_ref().array_windows());
    let steps: Vec<f64> = pairs.map(|[before, after]| (after - before).abs()).collect();
    let summary = DelaySummary::of(&steps)?;
    let DelaySummary { count, mean, min, max, .. } = summary;
    Some(DelayJitter { count, mean, min, max })
}

/// Empirical distribution function with a band that contains the true one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EmpiricalCdf {
    /// Number of values behind it.
    pub count: usize,
    /// Value and the share of values that do not exceed it, in ascending order.
    pub points: Vec<(f64, f64)>,
    /// Half width of the band of 95 % (Dvoretzky, Kiefer, Wolfowitz; Massart's constant).
    pub band: f64,
}

/// Points that a stored distribution has at the most.
const POINTS_MAX: usize = 200;

impl EmpiricalCdf {
    /// The distribution of `values` with at most 200 points; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let count = sorted.len();
        let step = |at: usize| {
            let rank = index_at(real(at + 1) / real(POINTS_MAX), count);
            sorted.get(rank).map(|&value| (value, real(rank + 1) / real(count)))
        };
        let mut points: Vec<(f64, f64)> = if count <= POINTS_MAX {
            (0..count)
                .zip(&sorted)
                .map(|(at, &value)| (value, real(at + 1) / real(count)))
                .collect()
        } else {
            let first = sorted.first().map(|&value| (value, 1.0 / real(count)));
            first.into_iter().chain((0..POINTS_MAX).filter_map(step)).collect()
        };
        points.dedup();
        let band = ((2.0 / 0.05_f64).ln() / (2.0 * real(count))).sqrt();
        (count > 0).then_some(Self { count, points, band })
    }
}

/// The arithmetic mean; `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / real(values.len()))
}

/// The standard deviation (n − 1); `None` below two values.
pub(super) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / real(values.len() - 1)).sqrt())
}

/// The coefficient of variation; `None` below two values or if their mean is 0.
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean != 0.0)?;
    Some(deviation(values)? / mean.abs())
}

/// The mean of few values and its interval at `level`, by Student's t; `None` below two.
pub fn mean_interval(values: &[f64], level: f64) -> Option<(f64, ConfidenceInterval)> {
    let (mean, deviation) = (mean(values)?, deviation(values)?);
    let half = deviation / real(values.len()).sqrt() * student_t(level, values.len() - 1);
    Some((mean, ConfidenceInterval { low: mean - half, high: mean + half }))
}

/// The bootstrap interval of the median at `level` (0.95), from `resamples` resamples.
pub fn median_interval(
    values: &[f64],
    level: f64,
    resamples: usize,
    random: &mut Random,
) -> Option<ConfidenceInterval> {
    let median = |values: &[f64]| quantile(&sorted(values), 0.5);
    ConfidenceInterval::of(&block_bootstrap(values, median, resamples, random)?, level)
}

/// The bootstrap interval of the ratio of two medians at `level` (0.95). Both values of a pair are of one
/// packet and are resampled together, since they depend on each other.
pub fn ratio_interval(
    pairs: &[(f64, f64)],
    level: f64,
    resamples: usize,
    random: &mut Random,
) -> Option<ConfidenceInterval> {
    let ratio = |pairs: &[(f64, f64)]| {
        let (of, to): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let to = quantile(&sorted(&to), 0.5).filter(|to| *to > 0.0)?;
        Some(quantile(&sorted(&of), 0.5)? / to)
    };
    ConfidenceInterval::of(&block_bootstrap(pairs, ratio, resamples, random)?, level)
}

/// Estimates from resamples of `values`, in blocks of successive ones, since delays of neighbours depend on
/// each other; `None` if a resample has no estimate.
fn block_bootstrap<T: Copy>(
    values: &[T],
    estimate: impl Fn(&[T]) -> Option<f64>,
    resamples: usize,
    random: &mut Random,
) -> Option<Vec<f64>> {
    let count = values.len();
    let block = index_at(real(count).sqrt() / real(count.max(1)), count).max(1);
    let mut estimates = Vec::with_capacity(resamples);
    for _resample in 0..resamples {
        let mut resample = Vec::with_capacity(count + block);
        while resample.len() < count {
            let from = usize::try_from(random.below(u64::try_from(count).ok()?)).ok()?;
            let (before, behind) = values.split_at_checked(from)?;
            resample.extend(behind.iter().chain(before).take(block).copied());
        }
        resample.truncate(count);
        estimates.push(estimate(&resample)?);
    }
    Some(estimates)
}
