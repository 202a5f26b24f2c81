//! Clocks of machines, compared by two-way exchange.

use crate::clock;
use serde::{Deserialize, Serialize};

/// How far a clock may drift, or be slewed, in 1: what NTP slews at the most (RFC 5905 §11.3).
const DRIFT_MAX: f64 = 500e-6;

/// Readings of both clocks at the start, of which one is taken.
const START_READINGS: u32 = 16;

/// A machine's clock beside the coordinator's at one moment.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClockComparison {
    /// Seconds since the run's beginning.
    pub second: f64,
    /// The machine's clock minus the coordinator's, in microseconds.
    pub offset_us: f64,
    /// Its error at the most: half of the shortest round trip, without the time in the agent.
    pub error_us: f64,
}

/// An exchange: by the coordinator's clock when it was asked and answered, by the machine's when it
/// received and answered; in nanoseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ClockExchange {
    pub(super) asked: u64,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) answered: u64,
}

/// Microseconds from one reading to another, which may be the earlier one.
fn micros(from: u64, to: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "differences, to a share of 2^-53")]
    let nanoseconds = to.wrapping_sub(from).cast_signed() as f64;
    nanoseconds / 1000.0
}

impl ClockComparison {
    /// By the exchange with the shortest round trip (RFC 5905 §8); `None` without one.
    pub(super) fn of(second: f64, exchanges: &[ClockExchange]) -> Option<Self> {
        let compared = exchanges.iter().map(|it| {
            let trip = micros(it.asked, it.answered) - micros(it.received, it.sent);
            let there = micros(it.asked, it.received);
            let back = micros(it.answered, it.sent);
            Self { second, offset_us: f64::midpoint(there, back), error_us: trip / 2.0 }
        });
        compared
            .filter(|it| it.error_us >= 0.0)
            .min_by(|one, other| one.error_us.total_cmp(&other.error_us))
    }

    /// By how much the clock has leapt since an `earlier` comparison, in microseconds, and to within
    /// what; `None` if errors and drift explain the difference.
    pub fn leap_since(&self, earlier: &Self) -> Option<(f64, f64)> {
        let drift = (self.second - earlier.second).abs() * 1e6 * DRIFT_MAX;
        let within = self.error_us + earlier.error_us + drift;
        let difference = self.offset_us - earlier.offset_us;
        (difference.abs() > within).then_some((difference, within))
    }
}

/// The coordinator's clock: the wall clock at the run's beginning, which the monotonic one goes on
/// from, so that no leap of its own is taken for one of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoordinatorClock {
    wall: u64,
    monotonic: u64,
}

impl CoordinatorClock {
    /// Reads both clocks so that one lies between two readings of the other, and takes the closest of
    /// several: a thread that is interrupted between the two would be off by that all through the run.
    pub(super) fn start() -> Self {
        let reading = || {
            let (before, wall, after) = (clock::now(), clock::wall(), clock::now());
            let took = after.saturating_sub(before);
            (took, Self { wall, monotonic: before + took / 2 })
        };
        let closer =
            |one: (u64, Self), other: (u64, Self)| if other.0 < one.0 { other } else { one };
        (1..START_READINGS).map(|_| reading()).fold(reading(), closer).1
    }

    /// Nanoseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.wall + (clock::now() - self.monotonic)
    }

    /// Seconds since the beginning.
    pub(super) fn second(&self) -> f64 {
        micros(self.monotonic, clock::now()) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5905 §8, by hand: offset ((T2 − T1) + (T3 − T4)) / 2, delay (T4 − T1) − (T3 − T2).
    #[test]
    fn the_shortest_exchange_is_taken() {
        let exchange = |asked: u64, received: u64, sent: u64, answered: u64| ClockExchange {
            asked: 1_000_000 + asked,
            received: 1_000_000 + received,
            sent: 1_000_000 + sent,
            answered: 1_000_000 + answered,
        };
        // A clock that is 5 µs behind; 10 µs each way, and then 10 there and 50 back.
        let all = [exchange(0, 5_000, 6_000, 61_000), exchange(100_000, 105_000, 107_000, 122_000)];
        let found = ClockComparison::of(3.0, &all).unwrap();
        assert_eq!((found.second, found.offset_us, found.error_us), (3.0, -5.0, 10.0));
        // The longer one alone is off by 20 µs, within its bound of 30.
        let long = ClockComparison::of(3.0, &all[..1]).unwrap();
        assert_eq!((long.offset_us, long.error_us), (-25.0, 30.0));
        assert_eq!(ClockComparison::of(0.0, &[]), None);
        // A machine that says it took longer than the whole exchange.
        assert_eq!(ClockComparison::of(0.0, &[exchange(0, 0, 9_000, 5_000)]), None);
    }

    #[test]
    fn what_errors_and_drift_explain_is_no_leap() {
        let at = |second, offset_us| ClockComparison { second, offset_us, error_us: 10.0 };
        assert_eq!(at(1.0, 20.0).leap_since(&at(1.0, 0.0)), None);
        assert_eq!(at(11.0, 5_019.0).leap_since(&at(1.0, 0.0)), None, "10 s at 500 ppm");
        assert_eq!(at(1.0, -21.0).leap_since(&at(1.0, 0.0)), Some((-21.0, 20.0)));
    }
}
