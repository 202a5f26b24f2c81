//! Worker groups: the division of work between workers, and the rings between them.
//!
//! Each worker has a thread, a slab, a graph and its own waiting. A link's queue has one receiving
//! worker. If a link has queues for all workers, its device divides flows among them. If it has
//! fewer, the receiving worker hands frames on by flow ([`flow_of`]). One worker then has all of a
//! flow and keeps its order. A worker without a share of the link hands its outgoing packets to a
//! worker that has one. Packets that are not transit go to the first worker ([`HandedOver`]). All
//! handoffs use rings, one for each pair of workers and direction. If a ring is full, the sender
//! drops the packet and counts it as `ring-full`. Workers share nothing else but the tables.

use crate::{shares::holder, waker::Waker};
use gatewright_link::{
    DriverForwarding, Exclusive, Framing, Link, LinkCounters, LinkInfo, LinkState, Mode,
};
use gatewright_packet::{
    Batch, LinkAddress, LinkIndex, Packet, Parcel, RingReceiver, RingSender, ring,
};
use gatewright_stack::{
    At, Counter, Drops, HandedOver, NodeIndex, Reason, Side, UsedNeighbours, flow_of,
};
use gatewright_tables::{CounterName, CounterOwner, CounterSlots, CountersFull, records::Name};
use std::{cell::RefCell, mem, net::IpAddr, os::fd::BorrowedFd, rc::Rc, time::Duration};

/// Maximum packets on their way from one worker to another: 16 batches.
const RING_PLACES: usize = 1024;

/// Messages taken from one other worker before the links are polled again.
const MESSAGES_AT_ONCE: usize = 256;

/// A packet was dropped because the ring to its worker was full.
const RING_FULL: Reason = Reason("ring-full");

/// The first worker, which handles all packets that are not transit.
pub(crate) const FIRST: usize = 0;

/// The work that a packet from another worker needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Course {
    /// It was received by this link.
    Received(LinkIndex),
    /// It is to be sent by this link.
    Transmit(LinkIndex),
    /// It goes on at this layer.
    Resume(NodeIndex, At, Side),
}

/// A request from one worker to another.
#[derive(Debug)]
pub(crate) enum WorkerMessage {
    Packet(Course, Parcel),
    /// A neighbour was used although it is not fresh.
    Used(LinkIndex, IpAddr),
}

/// Items of a worker in the table of counters: packets received from its own links, packets taken
/// from other workers, and packets given to them.
pub const WORKER_ITEMS: [&str; 3] = ["received", "taken", "given"];

/// Counters of a worker in its group.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounts {
    received: Counter,
    taken: Counter,
    given: Counter,
}

impl WorkerCounts {
    /// Those of the worker `own`, in the table.
    fn new(slots: &CounterSlots, own: usize) -> Result<Self, CountersFull> {
        let counter = |item| {
            slots.named(&CounterName {
                worker: u16::try_from(own).unwrap_or(u16::MAX),
                owner: CounterOwner::Worker,
                of: Name::new("worker").unwrap_or_default(),
                link: None,
                item: Name::new(item).unwrap_or_default(),
            })
        };
        let [received, taken, given] = WORKER_ITEMS.map(counter);
        Ok(Self { received: received?.into(), taken: taken?.into(), given: given?.into() })
    }
}

/// The sending end of the ring to one other worker.
struct Outlet {
    ring: RingSender<WorkerMessage>,
    waker: Waker,
    /// Whether something was sent since that worker was last woken.
    due: bool,
}

/// The sending ends to all other workers, by number; none to itself.
struct Outlets {
    to: Vec<Option<Outlet>>,
    drops: Drops,
    given: Counter,
}

impl Outlets {
    /// Sends a message to the worker `to`, or drops it.
    fn send(&mut self, to: usize, message: WorkerMessage) {
        let is_packet = matches!(message, WorkerMessage::Packet(..));
        let Some(outlet) = self.to.get_mut(to).and_then(Option::as_mut) else { return };
        if outlet.ring.send(message).is_ok() {
            outlet.due = true;
            if is_packet {
                self.given.add(1);
            }
        } else if is_packet {
            self.drops.add(RING_FULL, 1);
        }
    }
}

/// A worker as a member of its group.
pub(crate) struct WorkerGroup {
    own: usize,
    outlets: Rc<RefCell<Outlets>>,
    inlets: Vec<RingReceiver<WorkerMessage>>,
    /// Links whose frames are handed on by flow, with the first header of their frames.
    spread: Vec<(bool, Framing)>,
    /// Neighbours that are used here and kept by the first worker.
    used: UsedNeighbours,
    counts: WorkerCounts,
    own_frames: Batch,
}

/// A worker's slot in its group, before its thread starts.
pub(crate) struct WorkerSlot {
    /// Its number.
    pub(crate) own: usize,
    ways: Vec<Option<(RingSender<WorkerMessage>, Waker)>>,
    inlets: Vec<RingReceiver<WorkerMessage>>,
    counts: WorkerCounts,
}

impl WorkerSlot {
    /// Slots for the workers that `wakers` wake, with a ring between each ordered pair. They count
    /// in `counters`.
    pub(crate) fn all(
        wakers: &[Waker],
        counters: &CounterSlots,
    ) -> Result<Vec<Self>, CountersFull> {
        let slot = |own| {
            let counts = WorkerCounts::new(counters, own)?;
            let ways = wakers.iter().map(|_| None).collect();
            Ok(Self { own, ways, inlets: Vec::new(), counts })
        };
        let mut all = (0..wakers.len()).map(slot).collect::<Result<Vec<_>, _>>()?;
        for from in 0..wakers.len() {
            for (to, waker) in wakers.iter().enumerate().filter(|(to, _)| *to != from) {
                let (sender, receiver) = ring(RING_PLACES);
                if let Some(slot) = all.get_mut(to) {
                    slot.inlets.push(receiver);
                }
                let way = all.get_mut(from).and_then(|slot| slot.ways.get_mut(to));
                if let Some(way) = way {
                    *way = Some((sender, waker.clone()));
                }
            }
        }
        Ok(all)
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.ways.len()
    }

    /// Takes the slot in a gateway of `links` links, on the worker's thread. Drops are counted in
    /// `drops`.
    pub(crate) fn take(self, links: usize, used: UsedNeighbours, drops: Drops) -> WorkerGroup {
        let outlet = |(ring, waker)| Outlet { ring, waker, due: false };
        let to = self.ways.into_iter().map(|way| way.map(outlet)).collect();
        let outlets = Outlets { to, drops, given: self.counts.given.clone() };
        WorkerGroup {
            own: self.own,
            outlets: Rc::new(RefCell::new(outlets)),
            inlets: self.inlets,
            spread: vec![(true, Framing::Ethernet); links],
            used,
            counts: self.counts,
            own_frames: Batch::default(),
        }
    }
}

impl WorkerGroup {
    /// This worker's end of a link of which other workers have all `shares`.
    pub(crate) fn away(&self, link: LinkIndex, dealt_as: LinkIndex, shares: usize) -> Away {
        let outlets = Rc::clone(&self.outlets);
        let to = holder(dealt_as, self.own, self.workers(), shares);
        Away { info: nothing(), link, to, outlets }
    }

    fn workers(&self) -> usize {
        self.outlets.borrow().to.len()
    }

    /// Hands the frames of `link` on by flow unless every worker receives from it.
    pub(crate) fn set_receivers(&mut self, link: LinkIndex, info: &LinkInfo) {
        let spread = info.receivers < self.workers();
        if let Some(place) = self.spread.get_mut(link.index()) {
            *place = (spread, info.framing);
        }
    }

    /// Leaves in `batch`, just received by `link`, only this worker's packets.
    pub(crate) fn keep_own(&mut self, link: LinkIndex, batch: &mut Batch) {
        self.counts.received.add(batch.len() as u64);
        let Some(&(true, framing)) = self.spread.get(link.index()) else { return };
        let mut outlets = self.outlets.borrow_mut();
        mem::swap(batch, &mut self.own_frames);
        for packet in self.own_frames.drain() {
            let worker = worker_of(&packet, framing, outlets.to.len());
            if worker == self.own {
                // They came in a batch of this size.
                let _fits = batch.push(packet);
            } else {
                let parcel = packet.into_parcel();
                outlets.send(worker, WorkerMessage::Packet(Course::Received(link), parcel));
            }
        }
    }

    /// Hands packets that are not transit to the first worker.
    pub(crate) fn hand_over(&mut self, handed: impl Iterator<Item = HandedOver>) {
        let mut outlets = self.outlets.borrow_mut();
        for HandedOver { to, at, side, packet } in handed {
            let course = Course::Resume(to, at, side);
            outlets.send(FIRST, WorkerMessage::Packet(course, packet.into_parcel()));
        }
        while let Some((link, address)) = self.used.pop() {
            outlets.send(FIRST, WorkerMessage::Used(link, address));
        }
    }

    /// Wakes the workers to which something was sent.
    pub(crate) fn wake_others(&mut self) {
        for outlet in self.outlets.borrow_mut().to.iter_mut().flatten() {
            if mem::take(&mut outlet.due) {
                outlet.waker.rouse();
            }
        }
    }

    /// Takes messages from other workers, some of each: messages in order, packets of the same
    /// course together.
    pub(crate) fn take_messages(&mut self, mut act: impl FnMut(Work<'_>)) -> bool {
        let (mut any, mut batch) = (false, mem::take(&mut self.own_frames));
        for inlet in &mut self.inlets {
            let mut last = None;
            for _ in 0..MESSAGES_AT_ONCE {
                let Some(message) = inlet.take() else { break };
                any = true;
                let (course, parcel) = match message {
                    WorkerMessage::Packet(course, parcel) => (course, parcel),
                    WorkerMessage::Used(link, address) => {
                        act(Work::Used(link, address));
                        continue;
                    }
                };
                self.counts.taken.add(1);
                if let Some(before) = last
                    && (before != course || batch.room() == 0)
                {
                    act(Work::Packets(before, &mut batch));
                    batch.clear();
                }
                last = Some(course);
                // There is room: a full batch has just been emptied.
                let _fits = batch.push(parcel.into_packet());
            }
            if let Some(course) = last {
                act(Work::Packets(course, &mut batch));
                batch.clear();
            }
        }
        self.own_frames = batch;
        any
    }

    /// Whether any other worker has sent something.
    pub(crate) fn has_messages(&mut self) -> bool {
        self.inlets.iter_mut().any(|inlet| !inlet.is_empty())
    }
}

/// Work for another worker.
pub(crate) enum Work<'a> {
    Packets(Course, &'a mut Batch),
    Used(LinkIndex, IpAddr),
}

/// The worker for a frame's flow; frames without an IP packet go to the first worker.
fn worker_of(packet: &Packet, framing: Framing, workers: usize) -> usize {
    let Some(flow) = flow_of(packet.octets(), framing) else { return FIRST };
    // The upper half of the product is as even as the number, and needs no division.
    usize::try_from((u64::from(flow) * workers as u64) >> 32).unwrap_or(FIRST)
}

/// A link that another worker has. It receives nothing here; packets sent by it go to that worker.
pub(crate) struct Away {
    info: LinkInfo,
    link: LinkIndex,
    to: usize,
    outlets: Rc<RefCell<Outlets>>,
}

/// Link properties where the link belongs to another worker or has no device.
pub(crate) fn nothing() -> LinkInfo {
    LinkInfo {
        name: String::new(),
        mode: Mode::NoDevice,
        why: String::new(),
        framing: Framing::Ethernet,
        link_address: LinkAddress::NONE,
        mtu: 0,
        partial_checksums: false,
        exclusive: Exclusive::Ours,
        driver: String::new(),
        kernel_index: 0,
        queues: Vec::new(),
        receivers: 1,
        driver_forwarding: DriverForwarding::NotAsked,
    }
}

impl Link for Away {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, _: Duration, _: &mut Batch) -> usize {
        0
    }

    fn transmit(&mut self, _: Duration, batch: &mut Batch) {
        let mut outlets = self.outlets.borrow_mut();
        for packet in batch.drain() {
            let parcel = packet.into_parcel();
            outlets.send(self.to, WorkerMessage::Packet(Course::Transmit(self.link), parcel));
        }
    }

    fn counted(&self) -> LinkCounters {
        LinkCounters::default()
    }

    fn state(&mut self) -> LinkState {
        LinkState::Up
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::{CHUNK_SIZE, Pool};
    use gatewright_stack::Host;
    use gatewright_tables::WakeFlags;
    use std::collections::HashMap;

    const LINK: LinkIndex = LinkIndex(0);
    const FLOWS: u16 = 97;

    /// One worker as far as its place among the others goes.
    struct Hand {
        group: WorkerGroup,
        pool: Pool,
        drops: Drops,
        /// What arrived: flows with the numbers of their frames.
        seen: Vec<(u16, u32)>,
    }

    fn hands(workers: usize, chunks: usize) -> Vec<Hand> {
        let wakers: Vec<_> =
            (0..workers).map(|_| Waker::new(WakeFlags::default()).unwrap()).collect();
        let hand = |slot: WorkerSlot| {
            let drops = Drops::default();
            let group = slot.take(1, UsedNeighbours::default(), drops.clone());
            Hand { group, pool: Pool::new(chunks, CHUNK_SIZE).unwrap(), drops, seen: Vec::new() }
        };
        let slots = Host::new(1).unwrap().counter_slots();
        WorkerSlot::all(&wakers, &slots).unwrap().into_iter().map(hand).collect()
    }

    /// A UDP datagram of a flow, numbered at its end.
    fn frame(flow: u16, number: u32) -> Vec<u8> {
        let [high, low] = flow.to_be_bytes();
        let ip = [0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 198, 51, 100, 53];
        let udp = [high, low, 0, 53, 0, 12, 0, 0];
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, &udp, &number.to_be_bytes()].concat()
    }

    fn read(packet: &Packet) -> (u16, u32) {
        let octets = packet.octets();
        let number = octets[42..46].try_into().unwrap();
        (u16::from_be_bytes([octets[34], octets[35]]), u32::from_be_bytes(number))
    }

    impl Hand {
        fn receive(&mut self, frames: impl Iterator<Item = Vec<u8>>) {
            let mut batch = Batch::default();
            for frame in frames {
                batch.push(self.pool.packet_of(&frame).unwrap()).unwrap();
            }
            self.group.keep_own(LINK, &mut batch);
            self.seen.extend(batch.iter().map(read));
        }

        fn take(&mut self) -> bool {
            let seen = &mut self.seen;
            self.group.take_messages(|work| match work {
                Work::Packets(course, batch) => {
                    assert_eq!(course, Course::Received(LINK));
                    seen.extend(batch.iter().map(read));
                }
                Work::Used(..) => panic!("no neighbour was used"),
            })
        }
    }

    /// The sequence of Knuth's MMIX.
    fn draw(state: &mut u64, below: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    /// The frames of all flows come in order, by one worker's link, while the others work or not as
    /// chance has it.
    #[test]
    fn a_flow_has_one_worker_and_keeps_its_order() {
        for seed in 0..20 {
            let (mut state, workers) = (seed, 2 + usize::try_from(seed % 4).unwrap());
            let mut hands = hands(workers, 4096);
            let mut next = vec![0_u32; usize::from(FLOWS)];
            for _ in 0..400 {
                let worker = usize::try_from(draw(&mut state, workers as u64 + 1)).unwrap();
                if let Some(hand) = hands.get_mut(worker) {
                    hand.take();
                    continue;
                }
                let frames = 1 + draw(&mut state, 16);
                let frames: Vec<_> = (0..frames)
                    .map(|_| {
                        let flow = u16::try_from(draw(&mut state, FLOWS.into())).unwrap();
                        let number = &mut next[usize::from(flow)];
                        *number += 1;
                        frame(flow, *number)
                    })
                    .collect();
                hands[FIRST].receive(frames.into_iter());
            }
            while hands.iter_mut().any(Hand::take) {}
            let mut of_flow: HashMap<u16, (usize, u32)> = HashMap::new();
            for (worker, hand) in hands.iter().enumerate() {
                for &(flow, number) in &hand.seen {
                    let (before, last) =
                        of_flow.insert(flow, (worker, number)).unwrap_or((worker, 0));
                    assert_eq!((before, last + 1), (worker, number), "seed {seed}, flow {flow}");
                }
                assert_eq!(hand.drops.total(), 0);
            }
            let all: u32 = of_flow.values().map(|(_, last)| last).sum();
            assert_eq!(all, next.iter().sum::<u32>(), "seed {seed}: all have arrived");
            assert!(hands.iter().all(|hand| !hand.seen.is_empty()), "seed {seed}");
        }
    }

    #[test]
    fn a_full_ring_drops_and_counts_and_no_chunk_is_lost() {
        const FRAMES: usize = 4 * RING_PLACES;
        let mut hands = hands(2, FRAMES);
        let frames = u32::try_from(FRAMES).unwrap();
        for number in 0..frames {
            let flow = u16::try_from(number % 256).unwrap();
            hands[FIRST].receive([frame(flow, number)].into_iter());
        }
        while hands[1].take() {}
        let dropped = hands[FIRST].drops.get(RING_FULL);
        let seen: usize = hands.iter().map(|hand| hand.seen.len()).sum();
        assert_eq!((hands[1].seen.len(), seen as u64 + dropped), (RING_PLACES, FRAMES as u64));
        assert_eq!(hands[FIRST].group.counts.given.get(), RING_PLACES as u64);
        assert_eq!(hands[FIRST].pool.available(), FRAMES, "all chunks are home");
    }
}
