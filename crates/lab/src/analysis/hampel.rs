//! Delay spikes by the Hampel filter.

use super::{quantile, sorted};

/// The paper's threshold: deviations above 3 σ.
pub const HAMPEL_SIGMA: f64 = 3.0;
/// Standard deviations of a normal distribution in one median absolute deviation.
const SIGMA_OF_MAD: f64 = 1.482_602_218_505_602;

/// Indices of the upper outliers of `values`.
///
/// A value is one if it exceeds the median of its window, the `half_window` values on each side,
/// by more than `sigma` standard deviations, estimated from the median absolute deviation.
pub fn hampel_spikes(values: &[f64], half_window: usize, sigma: f64) -> Vec<usize> {
    let is_spike = |at: usize, value: f64| {
        let (from, to) = (at.saturating_sub(half_window), (at + half_window + 1).min(values.len()));
        let window = sorted(values.get(from..to)?);
        let median = quantile(&window, 0.5)?;
        let deviations: Vec<f64> = window.iter().map(|value| (value - median).abs()).collect();
        let mad = quantile(&sorted(&deviations), 0.5)?;
        Some(value - median > sigma * SIGMA_OF_MAD * mad)
    };
    let spikes = values.iter().enumerate();
    spikes.filter(|&(at, &value)| is_spike(at, value) == Some(true)).map(|(at, _)| at).collect()
}
