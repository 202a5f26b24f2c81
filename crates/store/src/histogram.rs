//! Histogram of durations and counts, by powers of two.

use core::time::Duration;

/// Number of entries: the last but one ends at 2²⁶, a minute in microseconds.
pub const HISTOGRAM_ENTRIES: usize = 28;

/// Histogram by powers of two: of durations in microseconds, or of counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Histogram {
    counts: [u64; HISTOGRAM_ENTRIES],
    sum: u64,
    largest: u64,
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    /// Adds a value several times.
    pub fn add_times(&mut self, value: u64, times: u64) {
        let entry = usize::try_from(u64::BITS - value.leading_zeros()).unwrap_or(usize::MAX);
        if let Some(count) = self.counts.get_mut(entry.min(HISTOGRAM_ENTRIES - 1)) {
            *count = count.saturating_add(times);
        }
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        self.largest = self.largest.max(value);
    }

    /// Adds another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.largest = self.largest.max(other.largest);
    }

    /// Adds a duration, in microseconds.
    pub fn add_time(&mut self, took: Duration) {
        self.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// The entries: `n` counts the values below 2ⁿ and not below 2ⁿ⁻¹; the last one also counts all
    /// larger values.
    pub const fn counts(&self) -> &[u64; HISTOGRAM_ENTRIES] {
        &self.counts
    }

    /// The sum of all values.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value.
    pub const fn largest(&self) -> u64 {
        self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_entry_of_its_power_of_two() {
        let mut histogram = Histogram::default();
        for (value, entry) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1_023, 10), (1_024, 11)] {
            let before = histogram.counts()[entry];
            histogram.add(value);
            assert_eq!(histogram.counts()[entry], before + 1, "{value}");
        }
        assert_eq!((histogram.sum(), histogram.largest()), (2_057, 1_024));
        histogram.add_time(Duration::from_hours(1));
        histogram.add_times(u64::MAX, 2);
        assert_eq!(histogram.counts()[HISTOGRAM_ENTRIES - 1], 3, "the last has no end");
        assert_eq!(histogram.sum(), u64::MAX);
    }
}
