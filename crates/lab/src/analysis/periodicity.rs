//! The coffee-break effect: spikes that return with a period.

use super::real;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// A period with which events return.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Periodicity {
    /// The period, in the unit of the times.
    pub period: f64,
    /// Root mean square length of the repetitions' mean phase vectors: 1 if all events of each share one
    /// phase.
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

/// The period of events in repetitions of at most `span`, each with times of its own; `None` if chance
/// explains the best one.
///
/// The events of each repetition have a phase of their own, as nobody knows what passed between. At each
/// frequency that `span` resolves, Rayleigh's statistic of each repetition adds up; without a period their
/// sum is distributed as that of as many exponential values, or narrower. The chance is corrected for the
/// number of frequencies.
pub fn periodicity<T: AsRef<[f64]>>(repetitions: &[T], span: f64) -> Option<Periodicity> {
    // One event alone has no phase.
    let all = repetitions.iter().map(AsRef::as_ref).filter(|times| times.len() > 1);
    let all: Vec<&[f64]> = all.collect();
    let count: usize = all.iter().map(|times| times.len()).sum();
    if count < EVENTS_MIN || span <= 0.0 {
        return None;
    }
    let tried = (count * 4).min(PERIODS_MAX);
    // From two periods in the span up, in steps of a quarter of what the span resolves.
    let frequencies = (8..8 + tried * 4).map(|step| real(step) / (4.0 * span));
    let power = |frequency: f64| all.iter().map(|times| rayleigh(times, frequency)).sum::<f64>();
    let powers = frequencies.map(|frequency| (frequency, power(frequency)));
    // Of a period and its fractions, which are as strong, the longest.
    let (frequency, power) =
        powers.reduce(|best, next| if next.1 > best.1 * 1.02 { next } else { best })?;
    let chance = (real(tried) * exceeded(power, all.len())).min(1.0);
    let strength = (power / real(count)).sqrt();
    (chance < CHANCE_MAX).then_some(Periodicity { period: 1.0 / frequency, strength, chance })
}

/// Rayleigh's statistic: the square of the mean phase vector's length, times the number of events.
fn rayleigh(times: &[f64], frequency: f64) -> f64 {
    let vectors = times.iter().map(|time| (TAU * frequency * time).sin_cos());
    let (sine, cosine) = vectors.fold((0.0, 0.0), |(s, c), (sine, cosine)| (s + sine, c + cosine));
    (sine * sine + cosine * cosine) / real(times.len())
}

/// The probability that the sum of so many exponential values of mean 1 exceeds `sum`.
fn exceeded(sum: f64, terms: usize) -> f64 {
    let (mut term, mut all) = ((-sum).exp(), 0.0);
    for number in 1..=terms {
        all += term;
        term *= sum / real(number);
    }
    all
}
