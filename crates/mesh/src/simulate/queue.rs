//! Events in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A queue of events; those of the same time keep their order.
///
/// What the heap moves is small: the events themselves stay where they are.
#[derive(Debug)]
pub(super) struct WorldQueue<E> {
    heap: BinaryHeap<Reverse<Queued>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    order: u64,
}

/// The time of an event in nanoseconds, its number, and its place.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Queued {
    at: u64,
    order: u64,
    place: usize,
}

impl<E> Default for WorldQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), order: 0 }
    }
}

impl<E> WorldQueue<E> {
    /// Adds an event.
    pub(super) fn push(&mut self, at: Duration, event: E) {
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(empty) => *empty = Some(event),
            None => self.events.push(Some(event)),
        }
        self.order += 1;
        let at = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.heap.push(Reverse(Queued { at, order: self.order, place }));
    }

    /// Takes the first event, if it is due at `until`, with its time.
    pub(super) fn pop_until(&mut self, until: Duration) -> Option<(Duration, E)> {
        let &Reverse(Queued { at, place, .. }) = self.heap.peek()?;
        let at = Duration::from_nanos(at);
        if at > until {
            return None;
        }
        self.heap.pop();
        self.free.push(place);
        Some((at, self.events.get_mut(place)?.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_their_order() {
        let mut queue = WorldQueue::default();
        let [one, two, three] = [1, 2, 3].map(Duration::from_secs);
        for (at, event) in [(two, "b"), (one, "a"), (two, "c"), (three, "e")] {
            queue.push(at, event);
        }
        assert_eq!(queue.pop_until(two), Some((one, "a")));
        // The place of the first is taken again.
        queue.push(two, "d");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop_until(two)).collect();
        assert_eq!(rest, [(two, "b"), (two, "c"), (two, "d")]);
        assert_eq!(queue.pop_until(three), Some((three, "e")));
        assert_eq!(queue.pop_until(three), None);
    }
}
