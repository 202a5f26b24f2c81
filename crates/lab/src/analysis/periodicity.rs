//! The coffee-break effect: spikes that return with a period.

use super::real;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// A period with which events return.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Periodicity {
    /// The period, in the unit of the times.
    pub period: f64,
    /// Length of the mean phase vector: 1 if all events share one phase.
    pub strength: f64,
    /// Probability of such a strength at any tried period without a period.
    pub chance: f64,
}

/// Tried periods at the most.
const PERIODS_MAX: usize = 4000;
/// Events below which no period is sought.
const EVENTS_MIN: usize = 5;
/// Probability below which a period is reported.
const CHANCE_MAX: f64 = 0.01;

/// The period of `times` within `span`, by Rayleigh's test at each frequency that the span
/// resolves, corrected for their number; `None` if chance explains the best one.
pub fn periodicity(times: &[f64], span: f64) -> Option<Periodicity> {
    let first = *times.first()?;
    if times.len() < EVENTS_MIN || span <= 0.0 {
        return None;
    }
    let count = real(times.len());
    let tried = (times.len() * 4).min(PERIODS_MAX);
    // From two periods in the span up, in steps of a quarter of what the span resolves.
    let frequencies = (8..8 + tried * 4).map(|step| real(step) / (4.0 * span));
    let strength = |frequency: f64| {
        let (mut sine, mut cosine) = (0.0, 0.0);
        for time in times {
            let (s, c) = (TAU * frequency * (time - first)).sin_cos();
            (sine, cosine) = (sine + s, cosine + c);
        }
        f64::hypot(sine, cosine) / count
    };
    let strengths = frequencies.map(|frequency| (frequency, strength(frequency)));
    // Of a period and its fractions, which are as strong, the longest.
    let (frequency, strength) =
        strengths.reduce(|best, next| if next.1 > best.1 * 1.01 { next } else { best })?;
    let chance = (real(tried) * (-count * strength * strength).exp()).min(1.0);
    (chance < CHANCE_MAX).then_some(Periodicity { period: 1.0 / frequency, strength, chance })
}
