//! The counters of a worker's share of a link, in the table of counters.

use gatewright_link::LinkCounters;
use gatewright_packet::LinkIndex;
use gatewright_tables::{
    CounterName, CounterOwner, CounterSlot, CounterSlots, CountersFull, records::Name,
};

/// The counters of a share of a link, shown to readers of the table.
///
/// A link counts by itself; the worker copies what has changed ([`Self::show`]) once a millisecond
/// while it works, and before it sleeps.
#[derive(Debug, Default)]
pub(crate) struct LinkCounts {
    /// In the order of [`LinkCounters::named`].
    slots: Vec<CounterSlot>,
    shown: LinkCounters,
}

impl LinkCounts {
    /// The counters of `worker` for a link; none for a place without a link, whose name is empty.
    pub(crate) fn new(
        slots: &CounterSlots,
        worker: usize,
        (link, name): (LinkIndex, &str),
    ) -> Result<Self, CountersFull> {
        let shown = LinkCounters::default();
        if name.is_empty() {
            return Ok(Self::default());
        }
        let named = |(item, _): (&str, u64)| {
            slots.named(&CounterName {
                worker: u16::try_from(worker).unwrap_or(u16::MAX),
                owner: CounterOwner::Link(link.0),
                of: Name::new(name).unwrap_or_default(),
                link: Some(link.0),
                item: Name::new(item).unwrap_or_default(),
            })
        };
        let slots = shown.named().into_iter().map(named).collect::<Result<_, _>>()?;
        Ok(Self { slots, shown })
    }

    /// Shows these values from now on.
    pub(crate) fn show(&mut self, now: LinkCounters) {
        if now == self.shown {
            return;
        }
        for (slot, (_, value)) in self.slots.iter().zip(now.named()) {
            slot.set(value);
        }
        self.shown = now;
    }
}
