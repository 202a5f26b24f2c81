//! An array of records: each is identified by its place.
//!
//! ```text
//! word 0  changes      moves with every write, so that a reader with its own copy knows it is old
//!      1  used to      one more than the highest place that was ever used
//!      2..16           zero
//! then, for each place:
//!         version      odd while it is written
//!         generation   moves when the place is taken or freed: odd while it is used
//!         the record's words
//! ```

use crate::memory::Words;
use crate::record::{self, ReadError, Record, RecordWords};
use crate::routes::index;
use crate::sync::Ordering;
use std::marker::PhantomData;

/// Words before the first place: a cache line.
pub(crate) const TABLE_HEADER: usize = 16;
const CHANGES: usize = 0;
const USED_TO: usize = 1;
/// Words before a record: version and generation.
const RECORD_HEADER: usize = 2;

/// Words of a whole table.
pub(crate) fn table_words<R: Record>(capacity: u32) -> Option<usize> {
    stride::<R>().checked_mul(index(capacity))?.checked_add(TABLE_HEADER)
}

fn stride<R: Record>() -> usize {
    RECORD_HEADER + R::Words::LEN
}

/// A record with the state of its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry<R> {
    /// Unique among all records at this place, for 2³¹ of them.
    pub generation: u32,
    /// The record.
    pub record: R,
}

/// A reader of a table; clones read the same table.
#[derive(Debug)]
pub struct Table<R> {
    words: Words,
    record: PhantomData<fn() -> R>,
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Self {
        Self { words: self.words.clone(), record: PhantomData }
    }
}

impl<R: Record> Table<R> {
    /// Reads the table in `words`.
    pub(crate) fn new(words: Words) -> Self {
        Self { words, record: PhantomData }
    }

    /// The number of places.
    pub fn capacity(&self) -> u32 {
        let places = self.words.all().len().saturating_sub(TABLE_HEADER) / stride::<R>();
        u32::try_from(places).unwrap_or(u32::MAX)
    }

    /// A number that changes with every write: one load tells whether a copy is still the latest.
    ///
    /// Read it *before* the records to which it applies.
    #[inline]
    pub fn changes(&self) -> u32 {
        self.header(CHANGES)
    }

    /// The record at `place`; `None` if the place is free or beyond the table.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the writer is inside of it, or wrote something else.
    #[inline]
    pub fn get(&self, place: u32) -> Result<Option<R>, ReadError> {
        Ok(self.entry(place)?.map(|entry| entry.record))
    }

    /// As [`Self::get`], with the generation of the place.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    #[inline]
    pub fn entry(&self, place: u32) -> Result<Option<Entry<R>>, ReadError> {
        let start = TABLE_HEADER + index(place).saturating_mul(stride::<R>());
        let end = start.saturating_add(stride::<R>());
        let Some(cell) = self.words.all().get(start..end) else { return Ok(None) };
        let (generation, words) = record::read(cell, |words| {
            let ([generation], words) = record::copy_words(words);
            let (words, _end) = record::copy_words::<R::Words>(words);
            (generation, words)
        })?;
        if generation.is_multiple_of(2) {
            return Ok(None);
        }
        let record = R::from_words(words).ok_or(ReadError::Malformed { record: R::NAME })?;
        Ok(Some(Entry { generation, record }))
    }

    /// Every used place with its record, in order; each is read when it is reached.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Result<R, ReadError>)> + '_ {
        (0..self.header(USED_TO).min(self.capacity()))
            .filter_map(|place| Some((place, self.get(place).transpose()?)))
    }

    #[inline]
    fn header(&self, word: usize) -> u32 {
        self.words.all().get(word).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

/// Every place is taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the table is full: {capacity} records")]
pub struct TableFull {
    /// Places that there are.
    pub capacity: u32,
}

/// The one writer of a table.
#[derive(Debug)]
pub struct TableWriter<R> {
    reader: Table<R>,
    /// A lower bound of the free places.
    first_free: u32,
    torn: u32,
    refused: u64,
}

impl<R: Record> TableWriter<R> {
    /// Takes over the table in `words`. Its records stay, except those inside of which the last
    /// writer died, which are freed.
    pub(crate) fn new(words: Words) -> Self {
        let reader = Table::new(words);
        let mut writer = Self { reader, first_free: 0, torn: 0, refused: 0 };
        for place in 0..writer.reader.header(USED_TO).min(writer.reader.capacity()) {
            if writer.cell(place).is_some_and(record::is_torn) {
                writer.torn += 1;
                let even = writer.generation(place).next_multiple_of(2);
                writer.write(place, even, R::Words::ZERO);
            }
        }
        writer
    }

    /// A reader of this table, for any thread.
    pub fn reader(&self) -> Table<R> {
        self.reader.clone()
    }

    /// Records inside of which the last writer died, freed when this one took over.
    pub fn torn(&self) -> u32 {
        self.torn
    }

    /// Records that were refused because every place was taken.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The record at `place`.
    pub fn get(&self, place: u32) -> Option<R> {
        self.reader.get(place).ok().flatten()
    }

    /// Writes `record` at `place`; returns whether there was one, whose generation it keeps.
    ///
    /// # Errors
    ///
    /// [`TableFull`] if the place is beyond the table.
    pub fn set(&mut self, place: u32, record: &R) -> Result<bool, TableFull> {
        let capacity = self.reader.capacity();
        if place >= capacity {
            self.refused += 1;
            return Err(TableFull { capacity });
        }
        let generation = self.generation(place);
        self.write(place, generation | 1, record.to_words());
        Ok(generation % 2 == 1)
    }

    /// Puts `record` at the lowest free place; returns the place.
    ///
    /// # Errors
    ///
    /// [`TableFull`] if there is none.
    pub fn insert(&mut self, record: &R) -> Result<u32, TableFull> {
        let capacity = self.reader.capacity();
        let free =
            (self.first_free..capacity).find(|&place| self.generation(place).is_multiple_of(2));
        self.first_free = free.unwrap_or(capacity);
        self.set(self.first_free, record)?;
        Ok(self.first_free)
    }

    /// Frees `place`; returns whether it was used.
    pub fn remove(&mut self, place: u32) -> bool {
        let generation = self.generation(place);
        if generation.is_multiple_of(2) {
            return false;
        }
        self.write(place, generation.wrapping_add(1), R::Words::ZERO);
        self.first_free = self.first_free.min(place);
        true
    }

    /// Every record with its place.
    pub fn iter(&self) -> impl Iterator<Item = (u32, R)> + '_ {
        self.reader.iter().filter_map(|(place, record)| Some((place, record.ok()?)))
    }

    fn cell(&self, place: u32) -> Option<&[crate::sync::AtomicU32]> {
        let start = TABLE_HEADER + index(place).saturating_mul(stride::<R>());
        self.reader.words.all().get(start..start.saturating_add(stride::<R>()))
    }

    fn generation(&self, place: u32) -> u32 {
        let word = self.cell(place).and_then(|cell| cell.get(1));
        word.map_or(0, |generation| generation.load(Ordering::Relaxed))
    }

    fn write(&self, place: u32, generation: u32, words: R::Words) {
        let Some(cell) = self.cell(place) else { return };
        let [changes, used_to, ..] = self.reader.words.all() else { return };
        // First, so that a writer that dies next leaves no record beyond the ones to look at.
        if used_to.load(Ordering::Relaxed) <= place {
            used_to.store(place.saturating_add(1), Ordering::Release);
        }
        record::write(cell, std::iter::once(generation).chain(words.as_ref().iter().copied()));
        changes.store(changes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}
