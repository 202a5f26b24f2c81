//! How late the thread's timers are: quantiles of the last minute.

use std::time::Duration;

/// Length of a window; quantiles are of the last two.
const WINDOW: Duration = Duration::from_secs(30);

/// Classes of lateness: four in each power of two of microseconds, up to half an hour.
const CLASSES_MAX: usize = 128;

/// Lateness of timers in two windows.
#[derive(Debug)]
pub(crate) struct Lateness {
    windows: [[u32; CLASSES_MAX]; 2],
    began: Duration,
    highest: Duration,
}

impl Lateness {
    pub(crate) const fn new() -> Self {
        let windows = [[0; CLASSES_MAX]; 2];
        Self { windows, began: Duration::ZERO, highest: Duration::ZERO }
    }

    /// Counts a timer that was late.
    pub(crate) fn count(&mut self, now: Duration, late: Duration) {
        if now.saturating_sub(self.began) >= WINDOW {
            let [current, before] = &mut self.windows;
            *before = core::mem::replace(current, [0; CLASSES_MAX]);
            self.began = now;
        }
        self.highest = self.highest.max(late);
        let [current, _] = &mut self.windows;
        if let Some(count) = current.get_mut(class(late)) {
            *count = count.saturating_add(1);
        }
    }

    /// The most since the start.
    pub(crate) const fn highest(&self) -> Duration {
        self.highest
    }

    /// What 99.9 % of the timers did not exceed; of fewer than two thousand, all but one: a single
    /// late timer makes nobody silent, and an idle node has a hundred in a minute.
    pub(crate) fn p999(&self) -> Duration {
        let [current, before] = &self.windows;
        let both = || current.iter().zip(before).map(|(a, b)| u64::from(*a) + u64::from(*b));
        let above = (both().sum::<u64>() / 1_000).max(1);
        let mut seen = 0;
        for (class, count) in both().enumerate().collect::<Vec<_>>().into_iter().rev() {
            seen += count;
            if count > 0 && seen > above {
                return end(class);
            }
        }
        Duration::ZERO
    }
}

/// The class of a lateness: its power of two, and the two bits behind the highest.
fn class(late: Duration) -> usize {
    let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
    let Some(power) = us.checked_ilog2().filter(|&power| power >= 2) else {
        return usize::try_from(us).unwrap_or(0);
    };
    let fraction = us >> (power - 2) & 3;
    let class = u64::from(power - 1) * 4 + fraction;
    usize::try_from(class).unwrap_or(usize::MAX).min(CLASSES_MAX - 1)
}

/// The highest lateness of a class.
fn end(class: usize) -> Duration {
    let class = u32::try_from(class).unwrap_or(u32::MAX);
    if class < 4 {
        return Duration::from_micros(class.into());
    }
    let (power, fraction) = (class / 4 + 1, u64::from(class % 4));
    let width = 1_u64 << (power - 2).min(60);
    Duration::from_micros((4 + fraction) * width + width - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_class_holds_what_is_at_most_its_end() {
        for us in (0..5_000).chain([1 << 20, (1 << 20) + 1]) {
            let late = Duration::from_micros(us);
            let end = end(class(late));
            assert!(late <= end && end <= late + late / 4, "{us}: {end:?}");
        }
        assert_eq!(class(Duration::from_secs(1 << 40)), CLASSES_MAX - 1);
    }

    /// One in two thousand is above the quantile, one in five hundred is not.
    #[test]
    fn the_quantile_leaves_out_one_in_a_thousand() {
        let mut lateness = Lateness::new();
        for number in 0..2_000 {
            lateness.count(MS, if number == 7 { 90 * MS } else { MS });
        }
        assert_eq!((lateness.p999(), lateness.highest()), (Duration::from_micros(1_023), 90 * MS));
        for _ in 0..4 {
            lateness.count(MS, 90 * MS);
        }
        assert!(lateness.p999() >= 90 * MS);
    }

    #[test]
    fn what_is_a_minute_ago_is_forgotten() {
        let mut lateness = Lateness::new();
        let twice = |lateness: &mut Lateness, now: Duration, late: Duration| {
            lateness.count(now, late);
            lateness.count(now, late);
        };
        assert_eq!(lateness.p999(), Duration::ZERO);
        lateness.count(MS, 90 * MS);
        assert_eq!(lateness.p999(), Duration::ZERO, "one is left out");
        lateness.count(MS, 90 * MS);
        twice(&mut lateness, 31_000 * MS, MS);
        assert!(lateness.p999() >= 90 * MS);
        twice(&mut lateness, 62_000 * MS, MS);
        assert!(lateness.p999() < 2 * MS);
        assert_eq!(lateness.highest(), 90 * MS);
    }
}
