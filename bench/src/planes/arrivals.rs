//! What arrives, and the longest time without an arrival.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Arrivals that one thread notes and others look at.
pub(super) struct Arrivals {
    began: Instant,
    count: AtomicU64,
    /// Nanoseconds from the beginning to the last arrival.
    last: AtomicU64,
    /// The longest gap in nanoseconds since it was last taken.
    longest: AtomicU64,
}

impl Arrivals {
    /// None so far.
    pub(super) fn begin() -> Self {
        let [count, last, longest] = [0; 3].map(AtomicU64::new);
        Self { began: Instant::now(), count, last, longest }
    }

    /// Notes that one has arrived, or that none has for a while: a gap counts before it ends.
    pub(super) fn note(&self, has_arrived: bool) {
        self.note_at(self.now(), has_arrived);
    }

    fn note_at(&self, now: u64, has_arrived: bool) {
        let gap = now.saturating_sub(self.last.load(Ordering::Relaxed));
        self.longest.fetch_max(gap, Ordering::AcqRel);
        if has_arrived {
            self.last.store(now, Ordering::Release);
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    /// How many have arrived.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The longest gap since this was asked last, with the part before of one that lasts.
    pub(super) fn take_longest(&self) -> Duration {
        Duration::from_nanos(self.longest.swap(0, Ordering::AcqRel))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The 99th of a hundred; the largest of fewer.
pub(super) fn p99(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stand_still_without_a_loss_is_told() {
        let arrivals = Arrivals::begin();
        let arrive = |ms: &[u64]| ms.iter().for_each(|ms| arrivals.note_at(ms * MS, true));
        arrive(&[1, 2, 3]);
        assert_eq!(arrivals.take_longest(), Duration::from_millis(1));
        // All come in the end, after nine seconds.
        arrivals.note_at(53 * MS, false);
        arrivals.note_at(8_953 * MS, false);
        assert_eq!(arrivals.take_longest(), Duration::from_millis(8_950));
        arrive(&[9_003, 9_004]);
        assert_eq!(arrivals.take_longest(), Duration::from_secs(9));
        assert_eq!((arrivals.count(), arrivals.take_longest()), (5, Duration::ZERO));
    }

    #[test]
    fn the_99th_of_a_hundred_is_the_largest_of_fewer() {
        let numbers = |count: u32| (1..=count).rev().map(f64::from).collect();
        assert_eq!(
            [p99(numbers(100)), p99(numbers(10)), p99(numbers(0))],
            [Some(99.0), Some(10.0), None]
        );
    }
}
