//! Statistics of delays, without a clock and without devices.
//!
//! Every function takes values, and a seed where it draws numbers. No result is without its number
//! of samples; what is estimated has an interval.

mod difference;
mod hampel;
mod linear;
mod periodicity;
mod quantile;
mod sample;
mod student;
mod tail;

pub use difference::{DelayDifference, Verdict, difference};
pub use gatewright_delay::{
    LinearFit, LoadPoint, ModelChoice, QueueModel, choose_model, held_out_errors, least_squares,
};
pub use hampel::{HAMPEL_SIGMA, hampel_spikes};
pub use linear::{FitIntervals, bootstrap_fit, theil_sen};
pub use periodicity::{Periodicity, periodicity};
pub use quantile::{ConfidenceInterval, quantile, quantile_interval, share_interval, sorted};
pub use sample::{
    DelayJitter, DelaySummary, EmpiricalCdf, coefficient_of_variation, jitter, mean, mean_interval,
    median_interval, ratio_interval,
};
pub use student::student_t;
pub use tail::{TailFit, fit_tail};

/// The number as a real one: counts and nanoseconds here are far below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "counts and times of one run are below 2^53")]
pub(crate) const fn real(value: usize) -> f64 {
    value as f64
}

/// The index at the share `part` of `count`, rounded down and at most the last.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count is between zero and that count"
)]
pub(crate) fn index_at(part: f64, count: usize) -> usize {
    ((part.clamp(0.0, 1.0) * real(count)) as usize).min(count.saturating_sub(1))
}
