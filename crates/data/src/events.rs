//! Events of layers and links, from the workers to the control plane, by rings in the region.

use crate::{plain::Plain, waker::Waker};
use gatewright_stack::{Event, Wake};
use gatewright_tables::{MessageReceiver, MessageSender};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// A worker's end. It never waits: what does not fit is counted in the ring.
pub(crate) struct EventSender {
    ring: MessageSender,
    reader: Waker,
    octets: Vec<u8>,
}

impl EventSender {
    pub(crate) const fn new(ring: MessageSender, reader: Waker) -> Self {
        Self { ring, reader, octets: Vec::new() }
    }

    /// Sends an event; returns whether there was room.
    pub(crate) fn send(&mut self, event: &Event) -> bool {
        self.octets.clear();
        event.put(&mut self.octets);
        let sent = self.ring.send(&self.octets).is_ok();
        if sent {
            self.reader.wake();
        }
        sent
    }
}

/// The events of all workers, for the control plane, which sleeps until there is one.
pub struct EventQueue {
    rings: Vec<MessageReceiver>,
    waker: Waker,
    /// The ring that is looked at first.
    next: usize,
    octets: Vec<u8>,
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventQueue({} workers, {} lost)", self.rings.len(), self.lost())
    }
}

impl EventQueue {
    /// Reads `rings`, whose writers wake `waker`.
    pub(crate) const fn new(rings: Vec<MessageReceiver>, waker: Waker) -> Self {
        Self { rings, waker, next: 0, octets: Vec::new() }
    }

    /// Wakes whoever waits here; its stop flag ends the waiting for ever.
    pub const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Events that did not fit into a ring. Links report theirs again; the network says the others
    /// again.
    pub fn lost(&self) -> u64 {
        self.rings.iter().map(|ring| u64::from(ring.lost())).sum()
    }

    /// The next event, awaited for `patience` at the most.
    pub fn next(&mut self, patience: Duration) -> Option<Event> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.waker.flags().is_stopped() {
                return None;
            }
            self.sleep(left);
        }
    }

    /// The next event that is there, of each worker by turns.
    fn take(&mut self) -> Option<Event> {
        for _ in 0..self.rings.len() {
            let ring = self.rings.get_mut(self.next)?;
            while ring.take(&mut self.octets) {
                // Octets that are no event are another version's: there is nothing to do for them.
                if let Some(event) = Event::of(&self.octets) {
                    return Some(event);
                }
            }
            self.next = (self.next + 1) % self.rings.len();
        }
        None
    }

    fn sleep(&self, patience: Duration) {
        self.waker.sleep(patience, || self.rings.iter().any(|ring| !ring.is_empty()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::LinkIndex;
    use gatewright_stack::Host;
    use gatewright_tables::DataTables;

    const ROUTES_MAX: u32 = 100;

    /// The events of both workers, sent by another mapping of the region as another process has.
    #[test]
    fn events_of_all_workers_arrive_in_order_and_what_does_not_fit_is_counted() {
        let mut host = Host::shared(ROUTES_MAX, [1, 2]).unwrap();
        let capacities = Host::capacities(ROUTES_MAX);
        let data = DataTables::attach(host.descriptor().unwrap(), &capacities, true).unwrap();
        let tables = host.tables_mut();
        let waker = Waker::new(tables.event_reader()).unwrap();
        let mut queue = EventQueue::new(tables.events(2), waker);
        let theirs = Waker::attach(
            queue.waker().descriptor().try_clone_to_owned().unwrap(),
            data.event_reader(),
        );
        let mut workers =
            [0, 1].map(|worker| EventSender::new(data.events(worker), theirs.clone()));
        assert_eq!(queue.next(Duration::ZERO), None);
        let event = |number: u32| Event::LinkMtu { link: LinkIndex(1), mtu: number };
        let [first, second] = &mut workers;
        assert!(second.send(&event(7)));
        let sent = (0..u32::MAX).take_while(|number| first.send(&event(*number))).count();
        let all: Vec<_> = std::iter::from_fn(|| queue.next(Duration::ZERO)).collect();
        assert_eq!((all.len(), queue.lost()), (sent + 1, 1));
        let of_first: Vec<_> = all.into_iter().filter(|one| *one != event(7)).collect();
        let expected: Vec<_> = (0..).map(event).take(sent).filter(|one| *one != event(7)).collect();
        assert_eq!(of_first, expected);
        assert!(first.send(&event(8)), "there is room again");
    }

    #[test]
    fn an_event_wakes_its_reader_and_the_stop_flag_ends_the_waiting() {
        let mut host = Host::new(ROUTES_MAX).unwrap();
        let tables = host.tables_mut();
        let mut queue =
            EventQueue::new(tables.events(1), Waker::new(tables.event_reader()).unwrap());
        let waker = queue.waker().clone();
        let mut worker = EventSender::new(tables.data().events(0), waker.clone());
        let event = Event::LearntFull { link: LinkIndex(0) };
        let minute = Duration::from_mins(1);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| (queue.next(minute), queue.next(minute)));
            assert!(worker.send(&event));
            while !reading.is_finished() {
                waker.stop();
                std::thread::yield_now();
            }
            let (one, other) = reading.join().unwrap();
            assert_eq!((one, other), (Some(event), None));
        });
    }
}
