//! Counters that one worker increments and any thread reads.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// A number that one worker increments and any thread may read, without a lock on either side.
///
/// If several workers count the same thing, each has its own part ([`Self::part`]).
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<Number>);

#[derive(Debug, Default)]
struct Number {
    value: AtomicU64,
    /// The next worker's part.
    next: OnceLock<Counter>,
}

impl Counter {
    /// Increments it; only its one worker may call this.
    pub fn add(&self, more: u64) {
        let value = &self.0.value;
        // One writer: a load and a store do, which cost a tenth of a locked addition.
        value.store(value.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Its value now, with the values of all its parts.
    pub fn get(&self) -> u64 {
        let (mut sum, mut next) = (0_u64, Some(self));
        while let Some(part) = next {
            sum = sum.wrapping_add(part.0.value.load(Ordering::Relaxed));
            next = part.0.next.get();
        }
        sum
    }

    /// A part for another worker, included in this counter's value.
    #[must_use]
    pub fn part(&self) -> Self {
        let (mut last, mut part) = (self, Self::default());
        loop {
            let made = part.clone();
            match last.0.next.set(part) {
                Ok(()) => return made,
                // Somebody was there before: one goes behind the last.
                Err(back) => part = back,
            }
            last = last.0.next.get().unwrap_or(last);
        }
    }
}

/// Why a packet was dropped: the name of its counter, in words joined by hyphens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reason(pub &'static str);

/// Reasons that one layer can have; more share the last counter.
const REASONS_MAX: usize = 32;

#[derive(Debug, Default)]
struct Slot {
    reason: OnceLock<&'static str>,
    count: AtomicU64,
}

/// The drops of one layer, by reason.
#[derive(Clone, Debug)]
pub struct Drops(Arc<[Slot]>);

impl Default for Drops {
    fn default() -> Self {
        Self((0..REASONS_MAX).map(|_| Slot::default()).collect())
    }
}

impl Drops {
    /// Counts `packets` under `reason`; only the layer's one worker may call this.
    pub fn add(&self, reason: Reason, packets: u64) {
        // The first free slot becomes the reason's; a layer beyond its bound shares the last one.
        let slot = self.0.iter().find(|slot| *slot.reason.get_or_init(|| reason.0) == reason.0);
        if let Some(slot) = slot.or(self.0.last()) {
            let now = slot.count.load(Ordering::Relaxed);
            slot.count.store(now.wrapping_add(packets), Ordering::Relaxed);
        }
    }

    /// Counts `packets` under `reason`, if there are any.
    pub(crate) fn add_some(&self, reason: Reason, packets: u64) {
        if packets > 0 {
            self.add(reason, packets);
        }
    }

    /// The count of `reason`.
    pub fn get(&self, reason: Reason) -> u64 {
        self.iter().find(|&(name, _)| name == reason.0).map_or(0, |(_, count)| count)
    }

    /// The reasons that have occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().filter_map(|slot| {
            slot.reason.get().map(|&reason| (reason, slot.count.load(Ordering::Relaxed)))
        })
    }

    /// All drops together.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_tells_what_all_its_parts_have_counted() {
        let whole = Counter::default();
        let parts = [whole.clone(), whole.part(), whole.part(), whole.clone().part()];
        for (part, more) in parts.iter().zip([1, 10, 100, 1000]) {
            part.add(more);
        }
        assert_eq!(whole.get(), 1111);
    }
}
