//! Workers without threads: the caller runs them, in virtual time.

use crate::{
    attachments::HandlerNow,
    captures::CaptureReaders,
    clock::{Clock, VirtualClock},
    driver_buckets::DriverBuckets,
    error::DataError,
    events::EventQueue,
    front::Front,
    port::{Port, PortAnswer, PortRequest, RequestNumber},
    setup::DataSetup,
    start::{Opened, Orders, build, event_queue, worker_wakers},
    worker::Worker,
};
use gatewright_link::KernelTables;
use gatewright_packet::Batch;
use gatewright_stack::Host;
use std::{cell::RefCell, sync::Arc, time::Duration};

/// A data plane in virtual time, on the thread of its caller.
///
/// It runs the code of the workers' threads. Each worker takes a turn after the other until none
/// has anything to do; so the same requests at the same times always give the same counters.
pub struct Simulator {
    front: Front,
    workers: RefCell<Vec<(Worker, Batch)>>,
    clock: VirtualClock,
    /// The reports of its workers, in order.
    opened: Vec<Opened>,
    /// What layers and links tell.
    events: EventQueue,
}

/// Turns of all workers at one instant. More mean that something is always due.
const TURNS_MAX: usize = 100_000;

impl Simulator {
    /// Opens the links of `setup` and prepares its workers.
    ///
    /// # Errors
    ///
    /// [`DataError`] names the link or resource that failed.
    pub fn new(setup: &DataSetup, host: &mut Host) -> Result<Self, DataError> {
        let clock = VirtualClock::default();
        let counters = host.counter_slots();
        let clocked = Clock::Virtual(clock.clone());
        let events = event_queue(setup, host)?;
        let tables = host.tables_mut().data();
        let wakers = (events.waker(), worker_wakers(setup, &tables.wakers)?);
        let no_tables = KernelTables::default();
        let buckets = DriverBuckets::from(&no_tables.forwarding);
        let mut orders = Orders::new(setup, tables, wakers, &no_tables, clocked)?;
        let (mut workers, mut hands) = (Vec::new(), Vec::new());
        let mut opened: Vec<Opened> = Vec::new();
        while let Some((order, hand)) = orders.next(opened.first()) {
            let (worker, report) = build(order)?;
            hands.push(hand.with(report.preparer()));
            workers.push((worker, Batch::default()));
            opened.push(report);
        }
        let plans = opened.iter().map(|report| report.plan.clone()).collect();
        let front = Front::new(hands, plans, counters, buckets);
        Ok(Self { front, workers: RefCell::new(workers), clock, opened, events })
    }

    /// Its clock. Whoever sets it lets the workers look at it with the next request.
    pub const fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// The reports of its workers, in order.
    pub fn opened(&self) -> &[Opened] {
        &self.opened
    }

    /// What layers and links have told.
    pub const fn events(&mut self) -> &mut EventQueue {
        &mut self.events
    }

    /// Lets the time pass until `now`, step by step from one timer to the next.
    pub fn run_until(&self, now: Duration) {
        loop {
            self.settle();
            let workers = self.workers.borrow();
            let next = workers.iter().filter_map(|(worker, _)| worker.next_timer()).min();
            drop(workers);
            match next.filter(|next| (self.clock.now()..now).contains(next)) {
                // A timer that is due now was run when the workers settled.
                Some(next) => self.clock.set(next.max(self.clock.now() + Duration::from_nanos(1))),
                None => break,
            }
        }
        self.clock.set(now);
        self.settle();
    }

    /// Runs the workers until none has anything to do at this instant.
    fn settle(&self) {
        let mut workers = self.workers.borrow_mut();
        for _ in 0..TURNS_MAX {
            let now = self.clock.now();
            let mut busy = false;
            for (worker, batch) in workers.iter_mut() {
                busy |= worker.turn(now, batch);
            }
            if !busy {
                return;
            }
        }
    }
}

impl Port for Simulator {
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        let number = self.front.submit(request)?;
        self.settle();
        Ok(number)
    }

    fn answer(&self, number: RequestNumber, _: Duration) -> Result<PortAnswer, DataError> {
        self.settle();
        self.front.answer(number, Duration::ZERO)
    }

    fn handlers(&self) -> Vec<HandlerNow> {
        self.front.handlers()
    }

    fn capture_readers(&self) -> Arc<CaptureReaders> {
        self.front.capture_readers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        link_counts::LinkCounts,
        setup::{DeviceSetup, WorkerLink},
        worker::{Command, NewDevice},
    };
    use gatewright_link::{Impairment, LinkState, MemoryConfig};
    use gatewright_packet::{CHUNK_SIZE, LinkIndex};
    use gatewright_stack::{Event, NeighbourLimits};
    use std::sync::mpsc::channel;

    const LINK: LinkIndex = LinkIndex(0);
    /// Longer than the interval at which workers look at their links.
    const LOOK: Duration = Duration::from_millis(600);

    fn segment() -> MemoryConfig {
        MemoryConfig {
            index: LINK,
            name: "link0".to_owned(),
            segment: "segment".to_owned(),
            impairment: Impairment::default(),
            seed: 1,
            mtu: 1500,
        }
    }

    fn simulator(host: &mut Host) -> Simulator {
        let device = DeviceSetup::Segment(segment());
        let setup = DataSetup {
            links: vec![WorkerLink { name: "link0".to_owned(), device, queues: None }],
            workers: 1,
            spin: Duration::ZERO,
            frames: 1024,
            chunk_size: CHUNK_SIZE,
            cores: Vec::new(),
            neighbours: NeighbourLimits::DEFAULT,
            seed: 7,
            waits: false,
        };
        Simulator::new(&setup, host).unwrap()
    }

    impl Simulator {
        /// Makes the worker let go of its device.
        fn close(&self) {
            let (answer, closing) = channel();
            self.front.hands()[0].send(Command::CloseDevice(LINK, answer)).unwrap();
            self.settle();
            drop(closing.try_recv().unwrap());
        }

        /// Gives the worker a device again.
        fn take(&self) {
            let hand = &self.front.hands()[0];
            let counts = LinkCounts::new(&hand.counters, 0, (LINK, "link0")).unwrap();
            let device = NewDevice::Segment(Box::new(segment()));
            let (answer, taken) = channel();
            hand.send(Command::TakeDevice(LINK, Box::new((device, counts)), answer)).unwrap();
            self.settle();
            taken.try_recv().unwrap().unwrap();
        }

        fn settle_opening(&self) {
            self.front.hands()[0].send(Command::Opened(LINK)).unwrap();
            self.settle();
        }

        fn pass(&self, time: Duration) {
            self.run_until(self.clock.now() + time);
        }

        fn state(&self) -> LinkState {
            let number = self.submit(PortRequest::Links).unwrap();
            match self.answer(number, Duration::ZERO).unwrap() {
                PortAnswer::Links(links) => links[0].state,
                other => panic!("{other:?}"),
            }
        }

        /// Whether the link went or came back since the last time, as told to the control side.
        fn told(&mut self) -> Vec<bool> {
            let next = || self.events.next(Duration::ZERO);
            let up = |event| match event {
                Event::Link { link: LINK, up } => Some(up),
                _ => None,
            };
            std::iter::from_fn(next).filter_map(up).collect()
        }
    }

    /// The control side would take its routes and neighbours away, and waiting packets with them.
    #[test]
    fn a_link_whose_device_is_exchanged_is_not_down() {
        let mut host = Host::new(10).unwrap();
        let mut simulator = simulator(&mut host);
        simulator.pass(LOOK);
        assert_eq!((simulator.state(), simulator.told()), (LinkState::Up, vec![]));
        simulator.close();
        simulator.pass(LOOK);
        assert_eq!((simulator.state(), simulator.told()), (LinkState::Up, vec![]));
        assert!(host.tables_mut().downs.is_up(LINK.0));
        simulator.take();
        simulator.settle_opening();
        simulator.pass(LOOK);
        assert_eq!((simulator.state(), simulator.told()), (LinkState::Up, vec![]));
    }

    #[test]
    fn a_link_that_no_device_could_be_opened_for_is_down_at_once() {
        let mut host = Host::new(10).unwrap();
        let mut simulator = simulator(&mut host);
        simulator.close();
        simulator.settle_opening();
        assert_eq!((simulator.state(), simulator.told()), (LinkState::Gone, vec![false]));
        assert!(!host.tables_mut().downs.is_up(LINK.0));
        // It comes back while it is not being exchanged.
        simulator.take();
        simulator.settle_opening();
        assert_eq!((simulator.state(), simulator.told()), (LinkState::Up, vec![true]));
    }

    /// Whoever exchanges it may have ended.
    #[test]
    fn a_link_whose_exchange_does_not_end_is_down_in_the_end() {
        let mut host = Host::new(10).unwrap();
        let mut simulator = simulator(&mut host);
        simulator.close();
        for _ in 0..20 {
            simulator.pass(LOOK);
        }
        assert_eq!((simulator.state(), simulator.told()), (LinkState::Gone, vec![false]));
    }
}
