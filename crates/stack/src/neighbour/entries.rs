//! The entries of a neighbour cache: found by address, queued by their order of giving way, all in
//! a time that does not depend on their number.

use gatewright_packet::LinkAddress;
use std::{net::IpAddr, time::Duration};

/// The state of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Vacant,
    Incomplete,
    /// Reachable until `fresh_until`, stale from then on.
    Known,
    Delay,
    Probe,
    Permanent,
}

/// The time that never comes.
pub(super) const NEVER: Duration = Duration::MAX;

/// A neighbour.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is known of a neighbour by itself")]
pub(super) struct Entry {
    pub(super) address: IpAddr,
    pub(super) link_address: LinkAddress,
    pub(super) state: State,
    /// Until when packets are sent without a check; zero while the address is unknown.
    pub(super) fresh_until: Duration,
    /// It has answered us, so it exists.
    pub(super) confirmed: bool,
    pub(super) router: bool,
    /// The kernel resolves it, and reports when it is gone.
    pub(super) kept_elsewhere: bool,
    /// It is in the journal already.
    pub(super) noted: bool,
    pub(super) solicited: u8,
    pub(super) waiting: u8,
    /// The origin of the packet that started its resolution: a number of [`super::origins`].
    pub(super) origin: u8,
    /// When the state asks for the next step; only INCOMPLETE, DELAY and PROBE do.
    pub(super) due: Duration,
    /// The time of its earliest alarm that is set.
    pub(super) alarm: Duration,
    /// The next entry of the same bucket.
    next: u32,
    queue: Option<Queue>,
    before: u32,
    behind: u32,
}

/// Entries that may give way, the oldest first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Queue {
    /// Being resolved.
    Incomplete,
    /// Known, but never confirmed to receive our packets.
    Unconfirmed,
    /// Not used of late.
    Idle,
}

/// First and last of a queue.
#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
}

/// No entry: the end of a bucket or queue.
const NONE: u32 = u32::MAX;

/// Buckets of the smallest index, a power of two.
const BUCKETS_BITS_MIN: u32 = 6;

/// All entries of a cache.
#[derive(Debug)]
pub(super) struct Entries {
    slots: Vec<Entry>,
    vacant: Vec<u32>,
    buckets: Vec<u32>,
    bits: u32,
    queues: [Ends; 3],
    /// Odd and secret, so that no sender can fill one bucket.
    key: u64,
}

impl Entry {
    /// The address is known, and fresh until then.
    pub(super) fn known(&mut self, fresh_until: Duration) {
        self.state = State::Known;
        self.fresh_until = fresh_until;
        self.solicited = 0;
        self.due = NEVER;
    }

    /// The queue to which it belongs. An entry in use is in none, so that it never gives way.
    fn place(&self) -> Option<Queue> {
        match self.state {
            State::Vacant | State::Permanent => None,
            State::Incomplete => Some(Queue::Incomplete),
            _ if !self.confirmed => Some(Queue::Unconfirmed),
            State::Known => Some(Queue::Idle),
            State::Delay | State::Probe => None,
        }
    }
}

impl Entries {
    pub(super) fn new(key: u64) -> Self {
        let (slots, vacant, bits) = (Vec::new(), Vec::new(), BUCKETS_BITS_MIN);
        let queues = [Ends { first: NONE, last: NONE }; 3];
        Self { slots, vacant, buckets: vec![NONE; 1 << bits], bits, queues, key: key | 1 }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Places there have been so far, used or not.
    pub(super) fn places(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    pub(super) fn get(&self, index: u32) -> Option<&Entry> {
        self.slots.get(slot(index))
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Entry> {
        self.slots.get_mut(slot(index))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter(|entry| entry.state != State::Vacant)
    }

    pub(super) fn find(&self, address: IpAddr) -> Option<u32> {
        let mut index = *self.buckets.get(self.bucket(address))?;
        while let Some(entry) = self.get(index) {
            if entry.address == address {
                return Some(index);
            }
            index = entry.next;
        }
        None
    }

    /// Adds an entry for an address that has none.
    pub(super) fn insert(&mut self, address: IpAddr) -> Option<u32> {
        if self.len() >= self.buckets.len() {
            self.spread();
        }
        let bucket = self.bucket(address);
        let head = self.buckets.get_mut(bucket)?;
        let entry = Entry {
            address,
            link_address: LinkAddress::NONE,
            state: State::Incomplete,
            fresh_until: Duration::ZERO,
            confirmed: false,
            router: false,
            kept_elsewhere: false,
            noted: false,
            solicited: 0,
            waiting: 0,
            origin: 0,
            due: NEVER,
            alarm: NEVER,
            next: *head,
            queue: None,
            before: NONE,
            behind: NONE,
        };
        let index = if let Some(index) = self.vacant.pop() {
            *self.slots.get_mut(slot(index))? = entry;
            index
        } else {
            let index = u32::try_from(self.slots.len()).ok().filter(|&index| index != NONE)?;
            self.slots.push(entry);
            index
        };
        *head = index;
        self.queue(index);
        Some(index)
    }

    /// Takes an entry away.
    pub(super) fn remove(&mut self, index: u32) {
        let Some(entry) = self.get_mut(index) else { return };
        let (address, next) = (entry.address, entry.next);
        (entry.state, entry.due, entry.alarm) = (State::Vacant, NEVER, NEVER);
        self.queue(index);
        self.unlink(address, index, next);
        self.vacant.push(index);
    }

    /// Puts the entry at the end of the queue for its state.
    pub(super) fn queue(&mut self, index: u32) {
        let Some(entry) = self.get(index) else { return };
        let (place, old, before, behind) = (entry.place(), entry.queue, entry.before, entry.behind);
        if let Some(old) = old {
            if let Some(entry) = self.get_mut(before) {
                entry.behind = behind;
            } else if let Some(ends) = self.queues.get_mut(old as usize) {
                ends.first = behind;
            }
            if let Some(entry) = self.get_mut(behind) {
                entry.before = before;
            } else if let Some(ends) = self.queues.get_mut(old as usize) {
                ends.last = before;
            }
        }
        let mut last = NONE;
        if let Some(ends) = place.and_then(|place| self.queues.get_mut(place as usize)) {
            last = std::mem::replace(&mut ends.last, index);
            if last == NONE {
                ends.first = index;
            }
        }
        if let Some(entry) = self.get_mut(last) {
            entry.behind = index;
        }
        if let Some(entry) = self.get_mut(index) {
            (entry.queue, entry.before, entry.behind) = (place, last, NONE);
        }
    }

    /// The oldest of a queue.
    pub(super) fn first(&self, queue: Queue) -> Option<u32> {
        self.queues.get(queue as usize).map(|ends| ends.first).filter(|&index| index != NONE)
    }

    /// Doubles the buckets.
    fn spread(&mut self) {
        self.bits += 1;
        self.buckets.clear();
        self.buckets.resize(1 << self.bits, NONE);
        for index in 0..self.places() {
            let Some(entry) = self.get(index).filter(|entry| entry.state != State::Vacant) else {
                continue;
            };
            let bucket = self.bucket(entry.address);
            let head = self.buckets.get_mut(bucket).map(|head| std::mem::replace(head, index));
            if let Some(entry) = self.get_mut(index) {
                entry.next = head.unwrap_or(NONE);
            }
        }
    }

    fn unlink(&mut self, address: IpAddr, index: u32, next: u32) {
        let bucket = self.bucket(address);
        let Some(head) = self.buckets.get_mut(bucket) else { return };
        if *head == index {
            *head = next;
            return;
        }
        let mut before = *head;
        while let Some(entry) = self.get_mut(before) {
            if entry.next == index {
                entry.next = next;
                return;
            }
            before = entry.next;
        }
    }

    fn bucket(&self, address: IpAddr) -> usize {
        let hash = folded(address).wrapping_mul(self.key) >> (u64::BITS - self.bits);
        usize::try_from(hash).unwrap_or_default()
    }
}

/// The bits of an address, in 64.
pub(super) fn folded(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            u64::try_from((bits ^ (bits >> 64)) & u128::from(u64::MAX)).unwrap_or_default()
        }
    }
}

fn slot(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
