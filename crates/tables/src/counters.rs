//! Counters of workers: numbers of 64 bits, each with one writer, found by name from any process.
//!
//! ```text
//! header         word 0  changes      moves when a name comes or goes
//!                     1..16           zero
//! used to        a line for each worker: one more than its highest slot that ever had a name
//! names          for each worker, for each of its slots:
//!                        version      odd while the name is written
//!                        generation   odd while the slot has a name
//!                        the words of a [`CounterName`]
//! values         for each worker, for each of its slots, two words: the number
//! ```
//!
//! The values of one worker fill cache lines of their own, so that two workers never wait for one
//! line. A slot is reused only after its name was withdrawn and its number set to zero, in this
//! order; a reader takes the number between two looks at the version of the name, and so never
//! attributes a count to another name.

use crate::memory::{Keeper, Number, Words};
use crate::pack::{Packer, Unpacker};
use crate::record::{self, Record, RecordWords};
use crate::records::Name;
use crate::routes::index;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Words of a cache line.
const LINE: usize = 16;
/// Words before a name: version and generation.
const NAME_HEADER: usize = 2;
/// Words of a name with those before it.
const NAME_WORDS: usize = NAME_HEADER + <CounterName as Record>::Words::LEN;
/// Words of a number.
const NUMBER_WORDS: usize = 2;
/// Numbers of a cache line: each worker has whole lines.
const NUMBERS_IN_LINE: u32 = 8;

/// The owner of a counter.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CounterOwner {
    /// The worker as a whole.
    Worker,
    /// A link, by its index.
    Link(u16),
    /// A layer, by its place in the graph.
    Layer(u16),
    /// The graph, where no layer is responsible.
    Graph,
    /// An edge of the graph, by its number in the plan.
    Edge(u16),
    /// An attached handler, by its id.
    Handler(u32),
    /// The ICMP messages of the host, by IP version.
    Icmp(u16),
    /// An application on the worker, by its id.
    Application(u32),
    /// A next hop of a group, by its place in the table of next hops.
    NextHop(u32),
}

/// The name of a counter.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CounterName {
    /// The worker that counts.
    pub worker: u16,
    /// The object that it belongs to.
    pub owner: CounterOwner,
    /// The owner's own name: of a layer, a link, a position.
    pub of: Name,
    /// The one link whose packets are counted, if it is one.
    pub link: Option<u16>,
    /// The counted events: a drop's reason, or a kind of packets.
    pub item: Name,
}

/// All links, in place of one.
const ALL_LINKS: u32 = u32::MAX;

impl Record for CounterName {
    const NAME: &'static str = "counter/1";
    type Words = [u32; 22];

    fn to_words(&self) -> [u32; 22] {
        let (kind, number) = match self.owner {
            CounterOwner::Worker => (0, 0),
            CounterOwner::Link(link) => (1, link.into()),
            CounterOwner::Layer(node) => (2, node.into()),
            CounterOwner::Graph => (3, 0),
            CounterOwner::Edge(edge) => (4, edge.into()),
            CounterOwner::Handler(id) => (5, id),
            CounterOwner::Icmp(version) => (6, version.into()),
            CounterOwner::Application(id) => (7, id),
            CounterOwner::NextHop(hop) => (8, hop),
        };
        let link = self.link.map_or(ALL_LINKS, u32::from);
        let packer = Packer::default().word(self.worker.into()).word(kind).word(number).word(link);
        self.item.pack(self.of.pack(packer)).finish()
    }

    fn from_words(words: [u32; 22]) -> Option<Self> {
        let mut words = Unpacker::new(words);
        let worker = words.small()?;
        let owner = match words.word()? {
            0 => (words.word()? == 0).then_some(CounterOwner::Worker)?,
            1 => CounterOwner::Link(words.small()?),
            2 => CounterOwner::Layer(words.small()?),
            3 => (words.word()? == 0).then_some(CounterOwner::Graph)?,
            4 => CounterOwner::Edge(words.small()?),
            5 => CounterOwner::Handler(words.word()?),
            6 => CounterOwner::Icmp(words.small()?),
            7 => CounterOwner::Application(words.word()?),
            8 => CounterOwner::NextHop(words.word()?),
            _ => return None,
        };
        let link = match words.word()? {
            ALL_LINKS => None,
            link => Some(u16::try_from(link).ok()?),
        };
        let (of, item) = (Name::unpack(&mut words)?, Name::unpack(&mut words)?);
        Some(Self { worker, owner, of, link, item })
    }
}

/// Every counter of a worker is taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("worker {worker} has no room for another counter: its table holds {capacity}")]
pub struct CountersFull {
    /// The worker.
    pub worker: u16,
    /// Counters that each worker has room for.
    pub capacity: u32,
}

/// The numbers of workers and of slots of each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CounterShape {
    workers: u32,
    slots: u32,
}

impl CounterShape {
    /// The slots of a worker are rounded up to whole lines.
    pub(crate) const fn new(workers: u32, slots: u32) -> Self {
        Self { workers, slots: slots.saturating_add(NUMBERS_IN_LINE - 1) & !(NUMBERS_IN_LINE - 1) }
    }

    /// Words of the whole table.
    pub(crate) fn words(self) -> Option<usize> {
        let all = index(self.workers).checked_mul(index(self.slots))?;
        // Names of whole lines of numbers fill whole lines, too.
        let numbers = all.checked_mul(NUMBER_WORDS)?;
        all.checked_mul(NAME_WORDS)?.checked_add(numbers)?.checked_add(self.names())
    }

    fn used_to(self, worker: u32) -> usize {
        LINE + index(worker.min(self.workers)) * LINE
    }

    fn names(self) -> usize {
        self.used_to(self.workers)
    }

    /// The place of a slot among those of all workers.
    fn place(self, worker: u32, slot: u32) -> Option<usize> {
        let is_there = worker < self.workers && slot < self.slots;
        is_there.then(|| index(worker) * index(self.slots) + index(slot))
    }

    fn name(self, worker: u32, slot: u32) -> Option<usize> {
        Some(self.names() + self.place(worker, slot)? * NAME_WORDS)
    }

    fn value(self, worker: u32, slot: u32) -> Option<usize> {
        let values = self.names() + index(self.workers) * index(self.slots) * NAME_WORDS;
        Some(values + self.place(worker, slot)? * NUMBER_WORDS)
    }
}

/// A counter with its value at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Counted {
    /// Its name.
    pub name: CounterName,
    /// Its value.
    pub value: u64,
}

/// A reader of counters; clones read the same.
#[derive(Clone, Debug)]
pub struct CounterTable {
    words: Words,
    shape: CounterShape,
}

impl CounterTable {
    pub(crate) fn new(words: Words, shape: CounterShape) -> Self {
        Self { words, shape }
    }

    /// A number that changes when a name is added or removed.
    pub fn changes(&self) -> u32 {
        self.words.all().first().map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Every named counter with its value, by worker; each is read when it is reached. One whose
    /// name is being written is left out.
    pub fn iter(&self) -> impl Iterator<Item = Counted> + '_ {
        (0..self.shape.workers).flat_map(move |worker| {
            (0..self.used_to(worker)).filter_map(move |slot| self.get(worker, slot))
        })
    }

    /// The sums over all workers.
    pub fn sums(&self) -> CounterSums {
        let mut sums = CounterSums::default();
        for Counted { name, value } in self.iter() {
            let of = sums.0.entry(name.owner).or_default();
            match of.iter_mut().find(|(item, _)| *item == name.item) {
                Some((_, sum)) => *sum = sum.wrapping_add(value),
                None => of.push((name.item, value)),
            }
        }
        sums
    }

    /// The sum of one item of an owner; `None` if no worker counts it.
    pub fn sum(&self, owner: CounterOwner, item: &str) -> Option<u64> {
        self.sums().get(owner, item)
    }

    /// One more than the highest slot of a worker that ever had a name.
    fn used_to(&self, worker: u32) -> u32 {
        let used_to = self.words.all().get(self.shape.used_to(worker));
        used_to.map_or(0, |word| word.load(Ordering::Acquire)).min(self.shape.slots)
    }

    fn cell(&self, worker: u32, slot: u32) -> Option<&[AtomicU32]> {
        let start = self.shape.name(worker, slot)?;
        self.words.all().get(start..start.checked_add(NAME_WORDS)?)
    }

    fn number(&self, worker: u32, slot: u32) -> Option<&AtomicU64> {
        self.words.number(self.shape.value(worker, slot)?)
    }

    fn get(&self, worker: u32, slot: u32) -> Option<Counted> {
        let number = self.number(worker, slot)?;
        let (generation, name, value) = record::read(self.cell(worker, slot)?, |words| {
            let ([generation], words) = record::copy_words(words);
            let (name, _end) = record::copy_words::<<CounterName as Record>::Words>(words);
            (generation, name, number.load(Ordering::Relaxed))
        })
        .ok()?;
        let name = CounterName::from_words(name).filter(|_| !generation.is_multiple_of(2))?;
        Some(Counted { name, value })
    }
}

/// The sums of counters over all workers, at one moment.
#[derive(Clone, Debug, Default)]
pub struct CounterSums(BTreeMap<CounterOwner, Vec<(Name, u64)>>);

impl CounterSums {
    /// The items of an owner with their sums, in the order of their slots.
    pub fn of(&self, owner: CounterOwner) -> &[(Name, u64)] {
        self.0.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// The sum of one item of an owner; `None` if no worker counts it.
    pub fn get(&self, owner: CounterOwner, item: &str) -> Option<u64> {
        let found = self.of(owner).iter().find(|(name, _)| name.as_str() == item);
        found.map(|&(_, sum)| sum)
    }
}

/// The writer of counters. It leaves those of an earlier writer as they are until it hands out
/// slots.
#[derive(Debug)]
pub struct CountersWriter {
    table: CounterTable,
    slots: Option<CounterSlots>,
}

impl CountersWriter {
    pub(crate) fn new(words: Words, shape: CounterShape) -> Self {
        Self { table: CounterTable::new(words, shape), slots: None }
    }

    /// Allocates slots. The first time, all names that an earlier writer has left are withdrawn.
    pub fn slots(&mut self) -> CounterSlots {
        let table = &self.table;
        self.slots.get_or_insert_with(|| CounterSlots::begin(table.clone())).clone()
    }
}

/// Allocates slots of counters, from any thread and without a lock; clones allocate from the same
/// table.
#[derive(Clone)]
pub struct CounterSlots(Arc<Slots>);

struct Slots {
    table: CounterTable,
    /// For each worker a bit for each slot that is taken.
    taken: Vec<Vec<AtomicU64>>,
}

impl fmt::Debug for CounterSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterSlots").field(&self.0.table.shape).finish()
    }
}

impl CounterSlots {
    /// Withdraws all names that an earlier writer has left.
    fn begin(table: CounterTable) -> Self {
        let shape = table.shape;
        let lines = |_| (0..shape.slots.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        let slots = Slots { table, taken: (0..shape.workers).map(lines).collect() };
        for worker in 0..shape.workers {
            (0..slots.table.used_to(worker)).for_each(|slot| slots.withdraw(worker, slot));
        }
        Self(Arc::new(slots))
    }

    /// A reader of the counters.
    pub fn reader(&self) -> CounterTable {
        self.0.table.clone()
    }

    /// A slot for a counter of `worker` that gets its name later.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if all are taken, or there is no such worker.
    pub fn reserve(&self, worker: u16) -> Result<CounterSlot, CountersFull> {
        let full = CountersFull { worker, capacity: self.0.table.shape.slots };
        let slot = self.0.take(worker).ok_or(full)?;
        let slot = Some((Arc::clone(&self.0), worker.into(), slot));
        Ok(CounterSlot(Number::of(Arc::new(Lease { slot, alone: AtomicU64::new(0) }))))
    }

    /// A counter with this name, zero.
    ///
    /// # Errors
    ///
    /// [`CountersFull`] if all of the worker are taken.
    pub fn named(&self, name: &CounterName) -> Result<CounterSlot, CountersFull> {
        let slot = self.reserve(name.worker)?;
        slot.publish(name);
        Ok(slot)
    }
}

impl Slots {
    /// The lowest free slot, taken.
    fn take(&self, worker: u16) -> Option<u32> {
        let lines = self.taken.get(usize::from(worker))?;
        for (line, bits) in (0_u32..).zip(lines) {
            let mut now = bits.load(Ordering::Relaxed);
            while now != u64::MAX {
                let free = now.trailing_ones();
                let slot = line.checked_mul(u64::BITS)?.checked_add(free)?;
                if slot >= self.table.shape.slots {
                    return None;
                }
                let with = now | 1 << free;
                // Acquires what its last holder did: the name is withdrawn.
                match bits.compare_exchange_weak(now, with, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(slot),
                    Err(other) => now = other,
                }
            }
        }
        None
    }

    /// Sets the slot to zero and publishes its name; only its holder may call this.
    fn publish(&self, worker: u32, slot: u32, name: &CounterName) {
        let (Some(cell), Some(number)) =
            (self.table.cell(worker, slot), self.table.number(worker, slot))
        else {
            return;
        };
        // Releases the withdrawal of the last name: who reads this zero sees that that one is gone.
        number.store(0, Ordering::Release);
        if let Some(used_to) = self.table.words.all().get(self.table.shape.used_to(worker)) {
            used_to.fetch_max(slot.saturating_add(1), Ordering::AcqRel);
        }
        let generation = generation(cell) | 1;
        record::write(cell, std::iter::once(generation).chain(name.to_words()));
        self.changed();
    }

    /// Withdraws the name of a slot, if it has one; only its last holder may call this.
    fn withdraw(&self, worker: u32, slot: u32) {
        let Some(cell) = self.table.cell(worker, slot) else { return };
        let last = generation(cell);
        if last.is_multiple_of(2) && !record::is_torn(cell) {
            return;
        }
        let even = last.next_multiple_of(2);
        let zeroes = <CounterName as Record>::Words::ZERO;
        record::write(cell, std::iter::once(even).chain(zeroes));
        self.changed();
    }

    /// Moves the number of changes; several threads name counters.
    fn changed(&self) {
        if let Some(changes) = self.table.words.all().first() {
            changes.fetch_add(1, Ordering::Release);
        }
    }

    fn give_back(&self, worker: u32, slot: u32) {
        self.withdraw(worker, slot);
        let line = self.taken.get(index(worker)).and_then(|of| of.get(index(slot / u64::BITS)));
        if let Some(bits) = line {
            bits.fetch_and(!(1 << (slot % u64::BITS)), Ordering::Release);
        }
    }
}

fn generation(cell: &[AtomicU32]) -> u32 {
    cell.get(1).map_or(0, |generation| generation.load(Ordering::Relaxed))
}

/// The holder of a slot, which gives it back at its end.
#[derive(Default)]
struct Lease {
    slot: Option<(Arc<Slots>, u32, u32)>,
    /// The number of a counter that is in no table.
    alone: AtomicU64,
}

impl Keeper for Lease {
    fn number(&self) -> &AtomicU64 {
        let slot = self.slot.as_ref();
        let number = slot.and_then(|(slots, worker, slot)| slots.table.number(*worker, *slot));
        number.unwrap_or(&self.alone)
    }
}

impl Drop for Lease {
    /// Takes no lock: a worker may be the last holder.
    fn drop(&mut self) {
        if let Some((slots, worker, slot)) = &self.slot {
            slots.give_back(*worker, *slot);
        }
    }
}

/// A counter for its one writer; clones are the same counter, whose slot is free after the last.
///
/// A thread that receives a slot from another one passes a release fence before it counts, or
/// receives it by what contains one (a channel, a new thread).
#[derive(Clone)]
pub struct CounterSlot(Number<Lease>);

impl Default for CounterSlot {
    /// A counter that is in no table.
    fn default() -> Self {
        Self(Number::of(Arc::new(Lease::default())))
    }
}

impl CounterSlot {
    /// Sets it to zero and publishes its name; until then no reader finds it.
    pub fn publish(&self, name: &CounterName) {
        if let Some((slots, worker, slot)) = &self.0.keeper().slot {
            // A slot is always one of its own worker.
            let worker_named = u16::try_from(*worker).unwrap_or(name.worker);
            slots.publish(*worker, *slot, &CounterName { worker: worker_named, ..*name });
        }
    }

    /// Increments it; only its one writer may call this.
    #[inline]
    pub fn add(&self, more: u64) {
        let value = self.0.get();
        // One writer: a load and a store do, which cost a tenth of a locked addition.
        value.store(value.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Sets it; only its one writer may call this.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.get().store(value, Ordering::Relaxed);
    }

    /// Its value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.get().load(Ordering::Relaxed)
    }
}

impl fmt::Debug for CounterSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CounterSlot").field(&self.get()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    /// The line of a counter's number.
    fn line(slot: &CounterSlot) -> usize {
        std::ptr::from_ref(slot.0.get()).addr() / 64
    }

    #[test]
    fn no_two_workers_count_on_one_line() {
        for (workers, capacity) in [(2, 1), (3, 8), (4, 9), (16, 100)] {
            let shape = CounterShape::new(workers, capacity);
            let words = Words::reserved(shape.words().unwrap()).unwrap();
            let slots = CountersWriter::new(words, shape).slots();
            let mut lines = std::collections::HashMap::new();
            let mut kept = Vec::new();
            for worker in 0..u16::try_from(workers).unwrap() {
                for _ in 0..capacity {
                    let slot = slots.reserve(worker).unwrap();
                    assert_eq!(*lines.entry(line(&slot)).or_insert(worker), worker);
                    kept.push(slot);
                }
            }
        }
    }
}
