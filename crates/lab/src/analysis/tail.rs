//! Extreme quantiles by a fitted tail.

use super::quantile::{quantile, sorted};
use super::{mean, real};
use serde::{Deserialize, Serialize};

/// A generalised Pareto distribution of what exceeds a threshold.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct TailFit {
    /// The threshold: the quantile [`TAIL_FROM`].
    pub threshold: f64,
    /// Share of the values above the threshold.
    pub share: f64,
    /// Scale σ.
    pub scale: f64,
    /// Shape ξ: 0 is an exponential tail, above 0 a heavier one.
    pub shape: f64,
    /// Number of values above the threshold.
    pub count: usize,
}

/// The quantile at which the tail begins.
const TAIL_FROM: f64 = 0.9;
/// Values above the threshold below which no tail is fitted.
const EXCESSES_MIN: usize = 10;
/// The heaviest shape: probability-weighted moments are of no use from 1/2 up (Hosking and Wallis).
const SHAPE_MAX: f64 = 0.5;

/// Fits the tail of `values` by probability-weighted moments (Hosking and Wallis 1987); `None` if
/// fewer than ten values exceed the threshold.
pub fn fit_tail(values: &[f64]) -> Option<TailFit> {
    let sorted = sorted(values);
    let threshold = quantile(&sorted, TAIL_FROM)?;
    let excesses: Vec<f64> =
        sorted.iter().map(|value| value - threshold).filter(|excess| *excess > 0.0).collect();
    let count = excesses.len();
    if count < EXCESSES_MIN {
        return None;
    }
    let first = mean(&excesses)?;
    let weighted = excesses.iter().enumerate().map(|(at, excess)| {
        let exceeded = (real(count - at) - 0.65) / real(count);
        exceeded * excess
    });
    let second = weighted.sum::<f64>() / real(count);
    let width = first - 2.0 * second;
    if width <= 0.0 {
        return None;
    }
    let shape = (2.0 - first / width).min(SHAPE_MAX);
    // With the shape bounded, the scale keeps the mean: σ = mean · (1 − ξ).
    let scale = first * (1.0 - shape);
    let share = real(count) / real(sorted.len());
    Some(TailFit { threshold, share, scale, shape, count })
}

impl TailFit {
    /// The quantile `part`, above the threshold.
    pub fn quantile(&self, part: f64) -> f64 {
        let ratio = (self.share / (1.0 - part).max(f64::EPSILON)).max(1.0);
        let excess = if self.shape.abs() < 1e-6 {
            self.scale * ratio.ln()
        } else {
            self.scale / self.shape * (ratio.powf(self.shape) - 1.0)
        };
        self.threshold + excess
    }
}
