//! Blocks of records: what a start reads in the place of instances.
//!
//! The rows below a number, `covered`, are divided: a block has the records of most instances with
//! 4,096 consecutive numbers, the table `single` has the numbers of all other rows. `present` has a
//! bit for each instance of a block, which is cleared in the transaction that deletes its row, or
//! writes it anew. So a start reads blocks, single rows, and rows from `covered` on, and finds what
//! it would find in the rows.
//!
//! A block is made beside the commits ([`BlockBuilder`](crate::block_builder::BlockBuilder)) and
//! written in a transaction of its own, which need not be synchronised: without it, a start reads
//! the rows. What commits have changed since it was asked for is looked up in the rows then.

use crate::block_builder::{Built, BuiltBlock};
use crate::checksum::{of_octets, of_row};
use crate::sqlite::to_row_id;
use core::ops::{Range, RangeInclusive};
use gatewright_onem2m::{NameKey, PresentInstances, RecordBlock};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS block (
        first INTEGER PRIMARY KEY, records BLOB NOT NULL, sum INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS present (
        first INTEGER PRIMARY KEY, bits BLOB NOT NULL, sum INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS single (seq INTEGER PRIMARY KEY) STRICT;
";
/// Marks with the key of the hashes of names.
const KEY_MARKS: [&str; 2] = ["name_key_0", "name_key_1"];
/// Mark with the number below which rows are covered by blocks or single.
const COVERED_MARK: &str = "covered";

/// The blocks of a database.
#[derive(Debug)]
pub(crate) struct Blocks {
    key: NameKey,
    /// All rows below are covered or single.
    covered: u64,
    /// Damaged blocks, which are made anew, by their first number.
    damaged: VecDeque<u64>,
    /// First number of the block that is being made.
    making: Option<u64>,
    /// Of its numbers, those that commits have changed since.
    changed: BTreeSet<u64>,
    /// Blocks written so far.
    written: u64,
}

/// Changes that one transaction makes to rows below the covered number.
#[derive(Debug, Default)]
pub(crate) struct CoveredChanges {
    /// Numbers of rows that have no record any more.
    gone: Vec<RangeInclusive<u64>>,
}

/// Creates the tables.
pub(crate) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)
}

/// The number below which rows are covered or single.
pub(crate) fn covered(connection: &Connection) -> rusqlite::Result<u64> {
    let covered = mark_of(connection, COVERED_MARK)?;
    Ok(covered.and_then(|it| u64::try_from(it).ok()).unwrap_or(0))
}

/// The key of the hashes of names, if one was drawn.
pub(crate) fn name_key(connection: &Connection) -> rusqlite::Result<Option<NameKey>> {
    let [first, second] = KEY_MARKS.map(|name| mark_of(connection, name));
    let number = |mark: i64| u64::from_le_bytes(mark.to_le_bytes());
    Ok(first?.zip(second?).map(|(first, second)| NameKey::new([number(first), number(second)])))
}

fn draw_key(connection: &Connection) -> rusqlite::Result<NameKey> {
    let key = NameKey::random();
    for (name, number) in KEY_MARKS.into_iter().zip(key.numbers()) {
        set_mark(connection, name, i64::from_le_bytes(number.to_le_bytes()))?;
    }
    Ok(key)
}

fn mark_of(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let one = "SELECT value FROM mark WHERE name = ?1";
    connection.prepare_cached(one)?.query_row([name], |row| row.get(0)).optional()
}

fn set_mark(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO mark (name, value) VALUES (?1, ?2)";
    connection.prepare_cached(put)?.execute(params![name, value]).map(|_| ())
}

/// Numbers of the blocks from the first on.
pub(crate) fn block_numbers(connection: &Connection) -> rusqlite::Result<Vec<u64>> {
    // One without the other is damaged.
    let all = "SELECT first FROM block UNION SELECT first FROM present ORDER BY first";
    let mut all = connection.prepare(all)?;
    let found = all.query_map([], |row| row.get::<_, i64>(0))?;
    found.map(|first| first.map(|first| u64::try_from(first).unwrap_or(0))).collect()
}

/// Reads a block; `None` if it is damaged.
pub(crate) fn read_block(
    connection: &Connection,
    first: u64,
    key: Option<NameKey>,
) -> rusqlite::Result<Option<RecordBlock>> {
    let one = "SELECT records, sum FROM block WHERE first = ?1";
    let mut one = connection.prepare_cached(one)?;
    let records = one.query_row([to_row_id(first)], |row| {
        let (octets, sum) = (row.get_ref(0)?.as_blob().ok(), row.get::<_, i64>(1)?);
        let whole = octets.filter(|octets| of_octets(first, octets) == sum);
        Ok(whole.map(<[u8]>::to_vec))
    });
    let records = unless_damaged(records)?;
    let present = unless_damaged(read_present(connection, first))?;
    let parts = records.zip(present).zip(key);
    Ok(parts.and_then(|((records, present), key)| {
        RecordBlock::from_octets(first, records, present, key)
    }))
}

/// What was found; nothing on a page that is damaged.
fn unless_damaged<T>(found: rusqlite::Result<Option<T>>) -> rusqlite::Result<Option<T>> {
    match found {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => Ok(None),
        other => other.optional().map(Option::flatten),
    }
}

fn read_present(connection: &Connection, first: u64) -> rusqlite::Result<Option<PresentInstances>> {
    let one = "SELECT bits, sum FROM present WHERE first = ?1";
    let mut one = connection.prepare_cached(one)?;
    let found = one.query_row([to_row_id(first)], |row| {
        let (bits, sum) = (row.get_ref(0)?.as_blob().ok(), row.get::<_, i64>(1)?);
        Ok(bits
            .filter(|bits| of_octets(first, bits) == sum)
            .and_then(PresentInstances::from_octets))
    });
    Ok(found.optional()?.flatten())
}

fn write_present(
    connection: &Connection,
    first: u64,
    present: &PresentInstances,
) -> rusqlite::Result<()> {
    if present.is_empty() {
        for all in ["DELETE FROM block WHERE first = ?1", "DELETE FROM present WHERE first = ?1"] {
            connection.prepare_cached(all)?.execute([to_row_id(first)])?;
        }
        return Ok(());
    }
    let put = "INSERT OR REPLACE INTO present (first, bits, sum) VALUES (?1, ?2, ?3)";
    let bits = present.as_octets();
    let values = params![to_row_id(first), bits, of_octets(first, bits)];
    connection.prepare_cached(put)?.execute(values).map(|_| ())
}

/// The numbers of the block that begins with this one.
pub(crate) const fn numbers_from(first: u64) -> Range<u64> {
    first..first.saturating_add(RecordBlock::NUMBERS)
}

/// The first number of the block that a number belongs to.
const fn first_of(seq: u64) -> u64 {
    seq - seq % RecordBlock::NUMBERS
}

impl CoveredChanges {
    /// Notes that a row was written.
    pub(crate) fn put(
        &mut self,
        blocks: &mut Blocks,
        transaction: &Transaction<'_>,
        seq: u64,
    ) -> rusqlite::Result<()> {
        blocks.note_changed(seq..=seq);
        if seq >= blocks.covered {
            return Ok(());
        }
        let put = "INSERT OR IGNORE INTO single (seq) VALUES (?1)";
        if transaction.prepare_cached(put)?.execute([to_row_id(seq)])? > 0 {
            self.gone.push(seq..=seq);
        }
        Ok(())
    }

    /// Notes that rows were deleted.
    pub(crate) fn delete(
        &mut self,
        blocks: &mut Blocks,
        transaction: &Transaction<'_>,
        rows: &RangeInclusive<u64>,
    ) -> rusqlite::Result<()> {
        blocks.note_changed(rows.clone());
        let Some(last) = blocks.covered.checked_sub(1) else { return Ok(()) };
        if *rows.start() > last {
            return Ok(());
        }
        let rows = *rows.start()..=last.min(*rows.end());
        let bounds = [to_row_id(*rows.start()), to_row_id(*rows.end())];
        let delete = "DELETE FROM single WHERE seq BETWEEN ?1 AND ?2";
        transaction.prepare_cached(delete)?.execute(bounds)?;
        self.gone.push(rows);
        Ok(())
    }

    /// Clears the bits of the rows that have no record any more.
    pub(crate) fn write(self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        let mut blocks: BTreeMap<u64, Option<PresentInstances>> = BTreeMap::new();
        for rows in self.gone {
            let mut first = first_of(*rows.start());
            while first <= *rows.end() {
                let present = match blocks.get_mut(&first) {
                    Some(present) => present,
                    None => blocks.entry(first).or_insert(read_present(transaction, first)?),
                };
                // A damaged one is made anew by the next start.
                if let Some(present) = present {
                    let numbers = numbers_from(first);
                    let from = numbers.start.max(*rows.start());
                    let to = numbers.end.min(rows.end().saturating_add(1));
                    (from..to).for_each(|seq| present.remove(seq - first));
                }
                first = first.saturating_add(RecordBlock::NUMBERS);
            }
        }
        for (first, present) in blocks {
            if let Some(present) = present {
                write_present(transaction, first, &present)?;
            }
        }
        Ok(())
    }
}

impl Blocks {
    /// The blocks of an open database.
    pub(crate) fn open(connection: &Connection) -> rusqlite::Result<Self> {
        let key = name_key(connection)?.map_or_else(|| draw_key(connection), Ok)?;
        Ok(Self {
            key,
            covered: covered(connection)?,
            damaged: VecDeque::new(),
            making: None,
            changed: BTreeSet::new(),
            written: 0,
        })
    }

    /// Key of the hashes of names.
    pub(crate) const fn key(&self) -> NameKey {
        self.key
    }

    /// Blocks written so far.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }

    /// Whether one is being made.
    pub(crate) const fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Has damaged blocks made anew.
    pub(crate) fn make_anew(&mut self, damaged: impl IntoIterator<Item = u64>) {
        self.damaged.extend(damaged);
    }

    /// The first number of the block that is to be made next, if all its numbers were given out.
    pub(crate) fn next(&mut self, next_seq: u64) -> Option<u64> {
        if self.making.is_some() {
            return None;
        }
        let is_due = numbers_from(self.covered).end <= next_seq;
        let first = self.damaged.pop_front().or_else(|| is_due.then_some(self.covered))?;
        self.making = Some(first);
        self.changed.clear();
        Some(first)
    }

    /// Ends the making of a block, whether it was written or not.
    pub(crate) fn give_up(&mut self) {
        self.making = None;
        self.changed.clear();
    }

    fn note_changed(&mut self, rows: RangeInclusive<u64>) {
        let Some(first) = self.making else { return };
        let numbers = numbers_from(first);
        let from = numbers.start.max(*rows.start());
        let to = numbers.end.min(rows.end().saturating_add(1));
        self.changed.extend(from..to);
    }

    /// Writes a block that was made, within a transaction.
    pub(crate) fn write(
        &self,
        transaction: &Transaction<'_>,
        built: &Built,
    ) -> rusqlite::Result<()> {
        let Built { first, block, singles } = built;
        let numbers = numbers_from(*first);
        let mut present = block.present().clone();
        let mut singles: BTreeSet<u64> = singles.iter().copied().collect();
        let is_there = "SELECT 1 FROM row WHERE seq = ?1";
        let mut is_there = transaction.prepare_cached(is_there)?;
        for &seq in &self.changed {
            present.remove(seq - first);
            if is_there.exists([to_row_id(seq)])? {
                singles.insert(seq);
            } else {
                singles.remove(&seq);
            }
        }
        let bounds = [to_row_id(numbers.start), to_row_id(numbers.end.saturating_sub(1))];
        let delete = "DELETE FROM single WHERE seq BETWEEN ?1 AND ?2";
        transaction.prepare_cached(delete)?.execute(bounds)?;
        let put = "INSERT INTO single (seq) VALUES (?1)";
        let mut put = transaction.prepare_cached(put)?;
        // Row 0 has the clocks and is read first of all.
        for seq in singles.into_iter().filter(|seq| *seq > 0) {
            put.execute([to_row_id(seq)])?;
        }
        let octets = block.as_octets();
        let put = "INSERT OR REPLACE INTO block (first, records, sum) VALUES (?1, ?2, ?3)";
        let values = params![to_row_id(*first), octets, of_octets(*first, octets)];
        transaction.prepare_cached(put)?.execute(values)?;
        write_present(transaction, *first, &present)?;
        set_mark(transaction, COVERED_MARK, to_row_id(self.covered.max(numbers.end)))
    }

    /// Notes that a block was written.
    pub(crate) fn note_written(&mut self, first: u64) {
        self.covered = self.covered.max(numbers_from(first).end);
        self.written += 1;
        self.give_up();
    }
}

/// What is wrong with the blocks, compared with the rows.
pub(crate) fn compare(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let covered = covered(connection)?;
    let Some(key) = name_key(connection)? else { return Ok(Vec::new()) };
    let mut wrong = Vec::new();
    let mut first = 0;
    while first < covered {
        let stored = read_block(connection, first, Some(key))?;
        let has_block = "SELECT 1 FROM block WHERE first = ?1";
        let has_block = connection.prepare_cached(has_block)?.exists([to_row_id(first)])?;
        if stored.is_none() && has_block {
            wrong.push(format!("the records from {first} on are damaged: a start reads the rows"));
        } else {
            compare_one(connection, first, stored.as_ref(), (key, &mut wrong))?;
        }
        first = numbers_from(first).end;
    }
    Ok(wrong)
}

/// Compares a block with the rows of its numbers.
fn compare_one(
    connection: &Connection,
    first: u64,
    stored: Option<&RecordBlock>,
    (key, wrong): (NameKey, &mut Vec<String>),
) -> rusqlite::Result<()> {
    let made = BuiltBlock::read(connection, first, key)?;
    let made: BTreeMap<u64, Option<String>> = made.into_summaries();
    let stored: BTreeMap<u64, String> =
        stored.into_iter().flat_map(RecordBlock::summaries).collect();
    let is_single = "SELECT 1 FROM single WHERE seq = ?1";
    let mut is_single = connection.prepare_cached(is_single)?;
    for (seq, summary) in &made {
        let (is_single, record) = (is_single.exists([to_row_id(*seq)])?, stored.get(seq));
        match record {
            Some(record) if Some(record) != summary.as_ref() => {
                wrong.push(format!("the record of row {seq} is not what the row says"));
            }
            Some(_) if is_single => wrong.push(format!("row {seq} is read twice by a start")),
            None if !is_single && *seq > 0 => {
                wrong.push(format!("row {seq} is not found by a start"));
            }
            _ => {}
        }
    }
    let without_row = stored.keys().filter(|seq| !made.contains_key(seq));
    wrong.extend(without_row.map(|seq| format!("the record of row {seq} has no row")));
    Ok(())
}

/// The checksum of a row's text, for a builder.
pub(crate) fn is_whole(seq: u64, body: &str, sum: Option<i64>) -> bool {
    sum.is_none_or(|sum| sum == of_row(seq, body))
}
