//! Memory of requests: one line per transaction, dropped by age and total size.

use crate::checksum::of_row;
use crate::sqlite::has_column;
use gatewright_onem2m::Batch;
use rusqlite::{Connection, Transaction};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a line is kept: a little longer than requests are remembered.
const KEPT: Duration = Duration::from_mins(6);
/// Octets of all lines; beyond, the oldest are dropped.
const OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Part of the rows' limit that they take up at most.
const ROWS_SHARE: u64 = 16;

const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS remembered (
        number INTEGER PRIMARY KEY, line TEXT NOT NULL, sum INTEGER
    ) STRICT;
";

/// The stored lines.
#[derive(Debug)]
pub(crate) struct Remembered {
    last: i64,
    lines: VecDeque<RememberedLine>,
    octets: usize,
}

#[derive(Clone, Copy, Debug)]
struct RememberedLine {
    number: i64,
    since: Instant,
    octets: usize,
}

impl Remembered {
    /// Reads the lines of an earlier run; their age counts from now.
    pub(crate) fn open(connection: &Connection) -> rusqlite::Result<Self> {
        let mut all = connection.prepare("SELECT number, length(line) FROM remembered")?;
        let since = Instant::now();
        let found = all.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
        let mut remembered = Self { last: 0, lines: VecDeque::new(), octets: 0 };
        for line in found {
            let (number, octets) = line?;
            let octets = usize::try_from(octets).unwrap_or(0);
            remembered.last = number;
            remembered.octets += octets;
            remembered.lines.push_back(RememberedLine { number, since, octets });
        }
        Ok(remembered)
    }

    /// Writes the lines of these batches and drops old ones, more of them within a small limit on the
    /// rows; returns the change to apply after the commit.
    pub(crate) fn append(
        &self,
        transaction: &Transaction<'_>,
        batches: &[Batch],
        rows_max: Option<u64>,
    ) -> rusqlite::Result<Option<Change>> {
        let share = rows_max.and_then(|most| usize::try_from(most / ROWS_SHARE).ok());
        let octets_max = OCTETS_MAX.min(share.unwrap_or(OCTETS_MAX));
        let new: Vec<&str> = batches.iter().filter_map(|it| it.remembered.as_deref()).collect();
        if new.is_empty() {
            return Ok(None);
        }
        let text = new.join("\n");
        let line =
            RememberedLine { number: self.last + 1, since: Instant::now(), octets: text.len() };
        let sum = of_row(to_number(line.number), &text);
        transaction
            .prepare_cached("INSERT INTO remembered (number, line, sum) VALUES (?1, ?2, ?3)")?
            .execute((line.number, text, sum))?;
        let mut octets = self.octets.saturating_add(line.octets);
        let is_over = |first: &&RememberedLine| {
            let is_over = octets > octets_max || first.since.elapsed() > KEPT;
            octets = octets.saturating_sub(first.octets);
            is_over
        };
        let gone = self.lines.iter().take_while(is_over).last().map(|line| line.number);
        if let Some(gone) = gone {
            transaction
                .prepare_cached("DELETE FROM remembered WHERE number <= ?1")?
                .execute([gone])?;
        }
        Ok(Some(Change { line, gone }))
    }

    /// Applies a committed change.
    pub(crate) fn apply(&mut self, change: Option<Change>) {
        let Some(Change { line, gone }) = change else { return };
        self.last = line.number;
        self.octets = self.octets.saturating_add(line.octets);
        self.lines.push_back(line);
        let is_gone = |line: &mut RememberedLine| gone.is_some_and(|gone| line.number <= gone);
        while let Some(line) = self.lines.pop_front_if(is_gone) {
            self.octets = self.octets.saturating_sub(line.octets);
        }
    }
}

/// A written line, and the last of those dropped with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    line: RememberedLine,
    gone: Option<i64>,
}

/// Requests remembered by an earlier run.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    /// The lines in their order, as rows 0.
    pub(crate) rows: Vec<(u64, Arc<str>)>,
    /// Numbers of stored texts that are not as they were written, or that are no JSON.
    pub(crate) unreadable: Vec<u64>,
}

/// Creates the table, or adds to that of an earlier version what it lacks.
pub(crate) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    if !has_column(connection, "remembered", "sum")? {
        connection.execute_batch("ALTER TABLE remembered ADD COLUMN sum INTEGER")?;
    }
    Ok(())
}

/// Reads the lines; a damaged one is left out, and named.
pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Recalled> {
    let mut recalled = Recalled::default();
    // A store of an earlier version that is only read has none.
    if !has_column(connection, "remembered", "line")? {
        return Ok(recalled);
    }
    let sum = if has_column(connection, "remembered", "sum")? { "sum" } else { "NULL" };
    let all = format!("SELECT number, line, {sum} FROM remembered ORDER BY number");
    let mut all = connection.prepare(&all)?;
    let mut found = all.query([])?;
    while let Some(row) = found.next()? {
        let number = to_number(row.get(0)?);
        let sum: Option<i64> = row.get(2)?;
        let is_whole = |text: &&str| match sum {
            Some(sum) => sum == of_row(number, text),
            None => text.lines().all(is_json),
        };
        match row.get_ref(1)?.as_str().ok().filter(is_whole) {
            Some(text) => recalled.rows.extend(text.lines().map(|line| (0, Arc::from(line)))),
            None => recalled.unreadable.push(number),
        }
    }
    Ok(recalled)
}

fn is_json(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok()
}

/// Lines are numbered from 1.
fn to_number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
