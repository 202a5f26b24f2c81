//! Counters that one worker increments and any thread, or any process, reads.
//!
//! A counter of a gateway is a slot of the table of counters ([`gatewright_tables::CounterSlots`]),
//! where it is found by its name. Where a graph runs alone, in a test or in a program of its own,
//! the same counters are in the process's memory, without a name.

use gatewright_tables::{CounterName, CounterSlot, CounterSlots, CountersFull, records::Name};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// A number that one worker increments and any thread may read, without a lock on either side.
///
/// If several workers count the same thing, each has its own part ([`Self::part`]).
#[derive(Clone, Default)]
pub struct Counter {
    slot: CounterSlot,
    /// The next worker's part.
    next: Arc<OnceLock<Self>>,
}

impl From<CounterSlot> for Counter {
    fn from(slot: CounterSlot) -> Self {
        Self { slot, next: Arc::default() }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.get()).finish()
    }
}

impl Counter {
    /// Increments it; only its one worker may call this.
    #[inline]
    pub fn add(&self, more: u64) {
        self.slot.add(more);
    }

    /// Its value now, with the values of all its parts.
    pub fn get(&self) -> u64 {
        let (mut sum, mut next) = (0_u64, Some(self));
        while let Some(part) = next {
            sum = sum.wrapping_add(part.slot.get());
            next = part.next.get();
        }
        sum
    }

    /// A part for another worker, included in this counter's value.
    #[must_use]
    pub fn part(&self) -> Self {
        let (mut last, mut part) = (self, Self::default());
        loop {
            let made = part.clone();
            match last.next.set(part) {
                Ok(()) => return made,
                // Somebody was there before: one goes behind the last.
                Err(back) => part = back,
            }
            last = last.next.get().unwrap_or(last);
        }
    }
}

/// Why a packet was dropped: the name of its counter, in words joined by hyphens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reason(pub &'static str);

/// Reasons that one layer can have; more share the last counter.
const REASONS_MAX: usize = 32;

#[derive(Debug, Default)]
struct ReasonSlot {
    reason: OnceLock<&'static str>,
    count: CounterSlot,
}

/// The drops of one layer, by reason.
#[derive(Clone, Debug)]
pub struct Drops(Arc<DropSlots>);

#[derive(Debug)]
struct DropSlots {
    reasons: Box<[ReasonSlot]>,
    /// The name of each slot but for the reason, if they are in a table.
    name: Option<CounterName>,
}

impl Default for Drops {
    fn default() -> Self {
        let reasons = (0..REASONS_MAX).map(|_| ReasonSlot::default()).collect();
        Self(Arc::new(DropSlots { reasons, name: None }))
    }
}

impl Drops {
    /// Drops in a table, named as `name` says with their reasons as items.
    ///
    /// The slots are taken now, so that no drop can find the table full.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if the table has no room.
    pub fn named(slots: &CounterSlots, name: CounterName) -> Result<Self, CountersFull> {
        let slot = |_| slots.reserve(name.worker).map(|count| (OnceLock::new(), count));
        let reasons = (0..REASONS_MAX)
            .map(slot)
            .map(|taken| taken.map(|(reason, count)| ReasonSlot { reason, count }))
            .collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(DropSlots { reasons, name: Some(name) })))
    }

    /// Counts `packets` under `reason`; only the layer's one worker may call this.
    pub fn add(&self, reason: Reason, packets: u64) {
        // The first free slot becomes the reason's; a layer beyond its bound shares the last one.
        let slot = self.0.reasons.iter().find(|slot| {
            *slot.reason.get_or_init(|| self.0.begin(reason, &slot.count)) == reason.0
        });
        if let Some(slot) = slot.or(self.0.reasons.last()) {
            slot.count.add(packets);
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
        self.0
            .reasons
            .iter()
            .filter_map(|slot| slot.reason.get().map(|&reason| (reason, slot.count.get())))
    }

    /// All drops together.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }
}

impl DropSlots {
    /// Publishes the name of a slot whose reason occurs for the first time.
    #[cold]
    fn begin(&self, reason: Reason, count: &CounterSlot) -> &'static str {
        if let Some(name) = self.name {
            // Every reason is short enough.
            let item = Name::new(reason.0).unwrap_or_default();
            count.publish(&CounterName { item, ..name });
        }
        reason.0
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
