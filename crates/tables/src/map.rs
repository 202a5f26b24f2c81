//! A bounded hash table of records, read without a lock.
//!
//! Linear probing over at least twice as many slots as records. A record never moves while it is
//! there, so a reader cannot miss it; a removed one leaves a *tombstone*, and tombstones before an
//! empty slot become empty with it.
//!
//! ```text
//! word 0      changes   moves with every write
//!      1      records   how many there are
//!      2..6   seed      of the hash
//! then marks: a bit for each chunk of slots, set before anything is written in it; whole lines
//! then, for each slot:
//!             version   odd while it is written
//!             tag       0 empty, 1 tombstone, else 31 bits of the key's hash
//!             the key's words, the record's words
//! ```

use crate::memory::{Words, halves};
use crate::record::{self, ReadError, Record, RecordWords};
use crate::routes::index;
use crate::sync::{AtomicU32, Ordering};
use std::marker::PhantomData;

const MAP_HEADER: usize = 16;
const CHANGES: usize = 0;
const RECORDS: usize = 1;
const SEED: usize = 2;
/// Words before a key: version and tag.
const SLOT_HEADER: usize = 2;

/// Slots of a chunk: about a page. A walk looks at chunks with a mark only, since a look at a page
/// of shared memory allocates it.
const CHUNK: usize = 64;
/// Chunks whose marks one word has.
const MARKS: usize = 32;
/// Words of a cache line, which marks fill.
const LINE: usize = 16;

const EMPTY: u32 = 0;
const TOMBSTONE: u32 = 1;

/// Maximum slots of one search. With at most half of them taken, a run of so many has a probability
/// below 10⁻⁹; the seed keeps an attacker from choosing keys that make one.
const PROBES: usize = 128;

/// Words of a whole map, or nothing beyond 2³⁰ slots.
pub(crate) fn map_words<K: Record, R: Record>(capacity: u32) -> Option<usize> {
    let slots = index(slots(capacity)?);
    stride::<K, R>().checked_mul(slots)?.checked_add(first_slot(slots))
}

/// Words before the first of `slots` slots.
fn first_slot(slots: usize) -> usize {
    MAP_HEADER + slots.div_ceil(CHUNK * MARKS).next_multiple_of(LINE)
}

fn slots(capacity: u32) -> Option<u32> {
    capacity.checked_mul(2)?.max(2).checked_next_power_of_two()
}

fn stride<K: Record, R: Record>() -> usize {
    SLOT_HEADER + K::Words::LEN + R::Words::LEN
}

/// A reader of a map; clones read the same map.
#[derive(Debug)]
pub struct Map<K, R> {
    words: Words,
    seed: [u64; 2],
    /// One less than the number of slots, which is a power of two.
    mask: usize,
    /// Words before the first slot.
    first_slot: usize,
    kinds: PhantomData<fn() -> (K, R)>,
}

impl<K, R> Clone for Map<K, R> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), ..*self }
    }
}

impl<K: Record + PartialEq, R: Record> Map<K, R> {
    /// Reads the map of `capacity` records in `words`, whose seed is set.
    pub(crate) fn new(words: Words, capacity: u32) -> Self {
        let slots = slots(capacity).map_or(0, index);
        let half = |at: usize| {
            let word =
                |at: usize| words.all().get(at).map_or(0, |word| word.load(Ordering::Acquire));
            u64::from(word(at)) << u32::BITS | u64::from(word(at + 1))
        };
        let seed = [half(SEED), half(SEED + 2)];
        let (mask, first_slot) = (slots.saturating_sub(1), first_slot(slots));
        Self { words, seed, mask, first_slot, kinds: PhantomData }
    }

    /// A number that changes with every write.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.header(CHANGES)
    }

    /// The number of records.
    pub fn len(&self) -> u32 {
        self.header(RECORDS)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record of `key`.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the writer is inside of it, or wrote something else.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<R>, ReadError> {
        let key = key.to_words();
        let (first, tag) = self.hash(&key);
        for slot in self.probes(first) {
            let Some(cell) = self.cell(slot) else { return Ok(None) };
            match tag_of(cell) {
                EMPTY => return Ok(None),
                found if found == tag => {
                    let (now, other, record) = Self::read(cell)?;
                    if now == tag && other.as_ref() == key.as_ref() {
                        let malformed = ReadError::Malformed { record: R::NAME };
                        return R::from_words(record).ok_or(malformed).map(Some);
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Every record with its key, in no order; each is read when it is reached.
    ///
    /// Memory of chunks where there has never been a record is not touched.
    pub fn iter(&self) -> impl Iterator<Item = Result<(K, R), ReadError>> + '_ {
        self.written().filter_map(|slot| Self::entry(self.cell(slot)?))
    }

    /// The slots of chunks with a mark.
    fn written(&self) -> impl Iterator<Item = usize> + use<'_, K, R> {
        let marks = self.words.all().get(MAP_HEADER..self.first_slot).unwrap_or(&[]);
        let chunks = marks.iter().enumerate().flat_map(|(word, marks)| {
            let marks = marks.load(Ordering::Acquire);
            let is_marked = move |bit: &usize| marks >> bit & 1 == 1;
            (0..MARKS).filter(is_marked).map(move |bit| word * MARKS + bit)
        });
        let slots = self.mask + 1;
        chunks.flat_map(move |chunk| chunk * CHUNK..((chunk + 1) * CHUNK).min(slots))
    }

    /// Tag, key and record of a slot, all from one write.
    #[inline]
    fn read(cell: &[AtomicU32]) -> Result<(u32, K::Words, R::Words), ReadError> {
        record::read(cell, |words| {
            let ([tag], words) = record::copy_words(words);
            let (key, words) = record::copy_words(words);
            let (record, _end) = record::copy_words(words);
            (tag, key, record)
        })
    }

    /// Key and record of a slot, or nothing if it is free.
    fn entry(cell: &[AtomicU32]) -> Option<Result<(K, R), ReadError>> {
        if tag_of(cell) <= TOMBSTONE {
            return None;
        }
        let (tag, key, record) = match Self::read(cell) {
            Ok(read) => read,
            Err(error) => return Some(Err(error)),
        };
        let malformed = |record| ReadError::Malformed { record };
        (tag > TOMBSTONE).then(|| {
            let key = K::from_words(key).ok_or(malformed(K::NAME))?;
            Ok((key, R::from_words(record).ok_or(malformed(R::NAME))?))
        })
    }

    /// The slots for a key, in search order.
    #[inline]
    fn probes(&self, first: usize) -> impl Iterator<Item = usize> + use<K, R> {
        let mask = self.mask;
        (0..PROBES.min(mask + 1)).map(move |step| first.wrapping_add(step) & mask)
    }

    #[inline]
    fn cell(&self, slot: usize) -> Option<&[AtomicU32]> {
        let start = self.first_slot + slot.checked_mul(stride::<K, R>())?;
        self.words.all().get(start..start + stride::<K, R>())
    }

    /// The first slot for `key`, and its tag.
    #[inline]
    fn hash(&self, key: &K::Words) -> (usize, u32) {
        let [mut state, multiplier] = self.seed;
        let (pairs, last) = key.as_ref().as_chunks::<2>();
        for &[high, low] in pairs {
            state = fold(state ^ (u64::from(high) << u32::BITS | u64::from(low)), multiplier);
        }
        if let [word] = last {
            state = fold(state ^ u64::from(*word), multiplier);
        }
        let [first, tag] = halves(fold(state, MULTIPLIER));
        (index(first), tag | (TOMBSTONE + 1))
    }

    #[inline]
    fn header(&self, word: usize) -> u32 {
        self.words.all().get(word).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

/// Sets the seed of the empty map in `words`, before it has readers. Draw it at random, so that no
/// outsider knows which keys collide.
pub(crate) fn set_seed(words: &[AtomicU32], seed: [u64; 2]) {
    for (word, half) in words.iter().skip(SEED).zip(seed.into_iter().flat_map(halves)) {
        word.store(half, Ordering::Release);
    }
}

/// An odd number without a pattern: the fraction of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies and folds the upper half onto the lower, so that each bit of the state depends on
/// each of both factors.
#[inline]
fn fold(state: u64, multiplier: u64) -> u64 {
    let product = u128::from(state) * u128::from(multiplier | 1);
    let low = product & u128::from(u64::MAX);
    u64::try_from(low ^ product >> u64::BITS).unwrap_or(0)
}

#[inline]
fn tag_of(cell: &[AtomicU32]) -> u32 {
    cell.get(1).map_or(EMPTY, |tag| tag.load(Ordering::Acquire))
}

/// The map holds as many records as it was made for, or one run of slots is full.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the map is full: {records} of {capacity} records")]
pub struct MapFull {
    /// Records that there are.
    pub records: u32,
    /// Its capacity in records.
    pub capacity: u32,
}

/// The one writer of a map.
#[derive(Debug)]
pub struct MapWriter<K, R> {
    reader: Map<K, R>,
    capacity: u32,
    torn: u32,
    refused: u64,
    /// Slots that had a record when the map was taken over.
    found: Vec<usize>,
}

impl<K: Record + PartialEq, R: Record> MapWriter<K, R> {
    /// The writer of the empty map in `words`, whose seed is set.
    pub(crate) fn new(words: Words, capacity: u32) -> Self {
        Self { reader: Map::new(words, capacity), capacity, torn: 0, refused: 0, found: Vec::new() }
    }

    /// Takes over the map in `words`, whose last writer may have died anywhere.
    pub(crate) fn adopt(words: Words, capacity: u32) -> Self {
        let mut writer = Self::new(words, capacity);
        writer.mend();
        writer
    }

    /// Frees the slots inside of which the last writer died, and counts the records anew.
    fn mend(&mut self) {
        self.found.clear();
        for slot in self.reader.written() {
            let Some(cell) = self.reader.cell(slot) else { continue };
            if record::is_torn(cell) {
                // It may stand between a key and its home, so it is not simply empty.
                record::write(cell, std::iter::once(TOMBSTONE));
                self.torn += 1;
            }
            if tag_of(cell) > TOMBSTONE {
                self.found.push(slot);
            }
        }
        self.store_header(RECORDS, u32::try_from(self.found.len()).unwrap_or(u32::MAX));
    }

    /// The records that the map had when it was taken over, as they are now. They are given once.
    ///
    /// Looking for them is looking through the whole map, which the takeover has done.
    pub fn take_found(&mut self) -> Vec<(K, R)> {
        let found = std::mem::take(&mut self.found);
        let record = |slot: usize| Map::entry(self.reader.cell(slot)?)?.ok();
        found.into_iter().filter_map(record).collect()
    }

    /// A reader of this map, for any thread.
    pub fn reader(&self) -> Map<K, R> {
        self.reader.clone()
    }

    /// Records left half-written by the last writer, freed at the takeover.
    pub fn torn(&self) -> u32 {
        self.torn
    }

    /// Records that were refused because the map was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The number of records.
    pub fn len(&self) -> u32 {
        self.reader.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record of `key`.
    pub fn get(&self, key: &K) -> Option<R> {
        self.reader.get(key).ok().flatten()
    }

    /// Every record with its key, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (K, R)> + '_ {
        self.reader.iter().filter_map(Result::ok)
    }

    /// Sets the record of `key`; returns whether it had one.
    ///
    /// # Errors
    ///
    /// [`MapFull`] if the key is new and there is no slot for it; nothing has changed then.
    pub fn set(&mut self, key: &K, record: &R) -> Result<bool, MapFull> {
        let key = key.to_words();
        let (found, free) = self.find(&key);
        let full = self.len() >= self.capacity;
        let slot = match (found, free) {
            (Some(slot), _) => slot,
            (None, Some(slot)) if !full => slot,
            _ => {
                self.refused += 1;
                return Err(MapFull { records: self.len(), capacity: self.capacity });
            }
        };
        let (_, tag) = self.reader.hash(&key);
        let record = record.to_words();
        let words = key.as_ref().iter().chain(record.as_ref()).copied();
        if let Some(cell) = self.reader.cell(slot) {
            // First, so that whoever knows of the record, or of a writer that died in it, finds it.
            self.mark(slot);
            record::write(cell, std::iter::once(tag).chain(words));
        }
        self.changed(self.len() + u32::from(found.is_none()));
        Ok(found.is_some())
    }

    /// Removes `key`; returns whether it had a record.
    pub fn remove(&mut self, key: &K) -> bool {
        let (Some(slot), _) = self.find(&key.to_words()) else { return false };
        if self.tag(slot.wrapping_add(1)) == EMPTY {
            // The run ends here, so nobody looks past these slots for anything.
            let mut last = slot;
            self.clear(last, EMPTY);
            for _ in 0..self.reader.mask {
                last = last.wrapping_sub(1) & self.reader.mask;
                if self.tag(last) != TOMBSTONE {
                    break;
                }
                self.clear(last, EMPTY);
            }
        } else {
            self.clear(slot, TOMBSTONE);
        }
        self.changed(self.len().saturating_sub(1));
        true
    }

    /// The slot of `key`, and the first slot that it could take.
    fn find(&self, key: &K::Words) -> (Option<usize>, Option<usize>) {
        let (first, tag) = self.reader.hash(key);
        let mut free = None;
        for slot in self.reader.probes(first) {
            let Some(cell) = self.reader.cell(slot) else { break };
            match tag_of(cell) {
                EMPTY => return (None, free.or(Some(slot))),
                TOMBSTONE => free = free.or(Some(slot)),
                found if found == tag => match Map::<K, R>::read(cell) {
                    Ok((_, other, _)) if other.as_ref() == key.as_ref() => {
                        return (Some(slot), free);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        (None, free)
    }

    fn tag(&self, slot: usize) -> u32 {
        self.reader.cell(slot & self.reader.mask).map_or(EMPTY, tag_of)
    }

    /// Marks the chunk of `slot` as written to, for ever.
    fn mark(&self, slot: usize) {
        let chunk = slot / CHUNK;
        let word = self.reader.words.all().get(MAP_HEADER + chunk / MARKS);
        let Some(word) = word else { return };
        let (marks, bit) = (word.load(Ordering::Relaxed), 1 << (chunk % MARKS));
        if marks & bit == 0 {
            word.store(marks | bit, Ordering::Release);
        }
    }

    fn clear(&self, slot: usize, tag: u32) {
        if let Some(cell) = self.reader.cell(slot) {
            record::write(cell, std::iter::once(tag));
        }
    }

    fn changed(&self, records: u32) {
        self.store_header(RECORDS, records);
        self.store_header(CHANGES, self.reader.header(CHANGES).wrapping_add(1));
    }

    fn store_header(&self, word: usize, value: u32) {
        if let Some(word) = self.reader.words.all().get(word) {
            word.store(value, Ordering::Release);
        }
    }
}
