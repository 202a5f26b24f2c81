//! What an earlier run has stored, read one after the other.

use crate::blocks::{block_numbers, covered, name_key, numbers_from, read_block};
use crate::error::StoreError;
use crate::remembered;
use crate::sqlite::{has_checksums, stored_row, to_row_id};
use core::ops::Range;
use gatewright_onem2m::StoredItem;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

/// Rows that are read at a time.
const ROWS_READ: u32 = 1_024;
/// Groups of rows, or blocks, that are read before they are taken.
const READ_AHEAD: usize = 4;

/// What an earlier run has stored, one after the other: it need not all be in memory at once. It is
/// read on a thread of its own.
///
/// Begins with the clocks and the remembered requests. Then come blocks of records, each behind the
/// single rows below its end, and the rows behind the last block. Ends early if the database fails,
/// which [`Self::end`] tells.
#[derive(Debug)]
pub struct StoredRows {
    read: Receiver<Vec<StoredItem>>,
    /// What was read and not yet taken.
    group: VecDeque<StoredItem>,
    thread: JoinHandle<Result<RestoredMarks, StoreError>>,
}

/// What [`StoredRows`] told beside the rows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct RestoredMarks {
    /// Rows whose checksum is wrong; their bodies are empty.
    pub damaged: Vec<u64>,
    /// Numbers of remembered transactions that cannot be read.
    pub remembered_damaged: Vec<u64>,
    /// Damaged blocks of records, by their first numbers: their rows were read instead.
    pub blocks_damaged: Vec<u64>,
}

/// Receives groups of what is read; returns whether more is wanted.
type Give<'give> = &'give mut dyn FnMut(Vec<StoredItem>) -> bool;

/// Reads what is stored, in order.
struct RowsReader {
    connection: Connection,
    sum: &'static str,
    marks: RestoredMarks,
}

impl StoredRows {
    pub(crate) fn new(connection: Connection) -> Result<Self, StoreError> {
        let (sender, read) = sync_channel(READ_AHEAD);
        let thread = thread::Builder::new().name("store-start".to_owned());
        let thread = thread.spawn(move || {
            let mut reader = RowsReader::new(connection)?;
            reader.read_all(&mut |group| sender.send(group).is_ok())?;
            Ok(reader.marks)
        });
        let thread = thread.map_err(StoreError::Thread)?;
        Ok(Self { read, group: VecDeque::new(), thread })
    }

    /// What was damaged, when all was taken.
    ///
    /// # Errors
    ///
    /// Why not all could be read.
    pub fn end(self) -> Result<RestoredMarks, StoreError> {
        // It must not wait for room.
        drop(self.read);
        let panicked = |_| StoreError::Thread(io::Error::other("the reader has panicked"));
        self.thread.join().map_err(panicked)?
    }
}

impl Iterator for StoredRows {
    type Item = StoredItem;

    fn next(&mut self) -> Option<Self::Item> {
        while self.group.is_empty() {
            self.group = self.read.recv().ok()?.into();
        }
        self.group.pop_front()
    }
}

impl RowsReader {
    fn new(connection: Connection) -> Result<Self, StoreError> {
        let sum = if has_checksums(&connection)? { "sum" } else { "NULL" };
        Ok(Self { connection, sum, marks: RestoredMarks::default() })
    }

    fn read_all(&mut self, give: Give<'_>) -> Result<(), StoreError> {
        let recalled = remembered::read(&self.connection)?;
        self.marks.remembered_damaged = recalled.unreadable;
        let clocks = self.rows(&Rows::All(0..1))?;
        let recalled = recalled.rows.into_iter().map(StoredItem::from);
        if !give(clocks.into_iter().map(StoredItem::from).chain(recalled).collect()) {
            return Ok(());
        }
        let key = name_key(&self.connection)?;
        let mut begin = 1;
        for first in block_numbers(&self.connection)? {
            let block = read_block(&self.connection, first, key)?;
            let numbers = numbers_from(first);
            let is_wanted = if let Some(mut block) = block {
                block.divide();
                self.read_rows(Rows::Single(begin..numbers.end), give)?
                    && give(vec![StoredItem::Records(Box::new(block))])
            } else {
                self.marks.blocks_damaged.push(first);
                self.read_rows(Rows::Single(begin..numbers.start), give)?
                    && self.read_rows(Rows::All(numbers.start.max(1)..numbers.end), give)?
            };
            if !is_wanted {
                return Ok(());
            }
            begin = numbers.end;
        }
        let covered = covered(&self.connection)?.max(begin);
        let _ = self.read_rows(Rows::Single(begin..covered), give)?
            && self.read_rows(Rows::All(covered..u64::MAX), give)?;
        Ok(())
    }

    /// Reads rows in groups; returns whether more is wanted.
    fn read_rows(&mut self, mut wanted: Rows, give: Give<'_>) -> Result<bool, StoreError> {
        loop {
            let group = self.rows(&wanted)?;
            let Some((last, _)) = group.last() else { return Ok(true) };
            wanted.begin_with(last.saturating_add(1));
            if !give(group.into_iter().map(StoredItem::from).collect()) {
                return Ok(false);
            }
        }
    }

    /// The first rows of those wanted.
    fn rows(&mut self, wanted: &Rows) -> Result<Vec<(u64, std::sync::Arc<str>)>, StoreError> {
        let sum = self.sum;
        // A limit that is bound would have the statement prepared anew each time.
        let (numbers, some) = match wanted {
            Rows::All(numbers) => (
                numbers,
                format!(
                    "SELECT seq, body, {sum} FROM row WHERE seq BETWEEN ?1 AND ?2 \
                     ORDER BY seq LIMIT {ROWS_READ}"
                ),
            ),
            Rows::Single(numbers) => (
                numbers,
                format!(
                    "SELECT row.seq, body, {sum} FROM single CROSS JOIN row USING (seq) \
                     WHERE single.seq BETWEEN ?1 AND ?2 ORDER BY single.seq LIMIT {ROWS_READ}"
                ),
            ),
        };
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let mut some = self.connection.prepare_cached(&some)?;
        let bounds = [to_row_id(numbers.start), to_row_id(numbers.end.saturating_sub(1))];
        let (mut found, mut read) = (some.query(bounds)?, Vec::new());
        while let Some(row) = found.next()? {
            let (seq, body) = stored_row(row)?;
            if body.is_none() {
                self.marks.damaged.push(seq);
            }
            read.push((seq, body.unwrap_or_default()));
        }
        Ok(read)
    }
}

/// Rows to be read, by number.
enum Rows {
    All(Range<u64>),
    /// Those that no block covers.
    Single(Range<u64>),
}

impl Rows {
    const fn begin_with(&mut self, first: u64) {
        match self {
            Self::All(numbers) | Self::Single(numbers) => numbers.start = first,
        }
    }
}
