//! Packets by the next hops of groups: what tells how a route's flows are spread.

use gatewright_tables::{
    CounterName, CounterOwner, CounterSlot, CounterSlots, CountersFull, HopIndex, records::Name,
};
use std::sync::OnceLock;

/// Next hops of groups that one worker counts by, a power of two.
const HOPS_MAX: usize = 256;

/// Places at which a next hop is looked for; one that finds none is not counted by itself.
const PLACES_MAX: usize = 8;

/// Packets that the graph sent by a next hop of a group.
pub const HOP_PACKETS: &str = "packets";

/// The counters of one graph, which its one worker increments.
#[derive(Debug)]
pub(crate) struct NextHopTraffic {
    slots: Box<[NextHopCounters]>,
    /// The worker whose counters have names in a table.
    worker: Option<u16>,
}

/// The counters of one next hop, once it is known.
#[derive(Debug, Default)]
struct NextHopCounters {
    hop: OnceLock<HopIndex>,
    /// Packets that the graph sent by a next hop of a group, for each.
    packets: CounterSlot,
}

impl Default for NextHopTraffic {
    /// Counters without a name.
    fn default() -> Self {
        Self { slots: (0..HOPS_MAX).map(|_| NextHopCounters::default()).collect(), worker: None }
    }
}

impl NextHopTraffic {
    /// Counters of `worker` in a table, taken now, so that no packet can find the table full.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if the table has no room.
    pub(crate) fn named(slots: &CounterSlots, worker: u16) -> Result<Self, CountersFull> {
        let slot = |_| {
            let packets = slots.reserve(worker)?;
            Ok(NextHopCounters { hop: OnceLock::new(), packets })
        };
        let slots = (0..HOPS_MAX).map(slot).collect::<Result<_, _>>()?;
        Ok(Self { slots, worker: Some(worker) })
    }

    /// Counts a packet by a next hop.
    pub(crate) fn add(&self, hop: HopIndex) {
        let first = usize::try_from(hop.0).unwrap_or(0);
        let places = (first..first.saturating_add(PLACES_MAX)).map(|place| place % HOPS_MAX);
        let mut slots = places.filter_map(|place| self.slots.get(place));
        let slot = slots.find(|slot| *slot.hop.get_or_init(|| self.begin(hop, slot)) == hop);
        if let Some(slot) = slot {
            slot.packets.add(1);
        }
    }

    /// Publishes the name of a counter that is used for the first time.
    #[cold]
    fn begin(&self, hop: HopIndex, slot: &NextHopCounters) -> HopIndex {
        if let Some(worker) = self.worker {
            let name = |text| Name::new(text).unwrap_or_default();
            slot.packets.publish(&CounterName {
                worker,
                owner: CounterOwner::NextHop(hop.0),
                of: name("next-hop"),
                link: None,
                item: name(HOP_PACKETS),
            });
        }
        hop
    }

    /// Packets by a next hop.
    #[cfg(test)]
    pub(crate) fn get(&self, hop: HopIndex) -> u64 {
        let its = self.slots.iter().filter(|slot| slot.hop.get() == Some(&hop));
        its.map(|slot| slot.packets.get()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_are_counted_apart_as_long_as_there_is_room() {
        let counters = NextHopTraffic::default();
        for hop in 0..1000 {
            counters.add(HopIndex(hop));
            counters.add(HopIndex(hop));
        }
        let counted = (0..1000).filter(|hop| counters.get(HopIndex(*hop)) == 2).count();
        assert_eq!(counted, HOPS_MAX);
        assert_eq!(counters.get(HopIndex(0)), 2);
    }
}
