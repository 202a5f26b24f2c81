//! Memory of requests: one line per transaction, dropped by age and total size.

use gatewright_onem2m::Batch;
use rusqlite::{Connection, Transaction};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a line is kept: a little longer than requests are remembered.
const KEPT: Duration = Duration::from_mins(6);
/// Octets of all lines; beyond, the oldest are dropped.
const OCTETS_MAX: usize = 16 * 1024 * 1024;

pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS remembered (number INTEGER PRIMARY KEY, line TEXT NOT NULL) STRICT;
";

/// The stored lines.
#[derive(Debug)]
pub(crate) struct Remembered {
    last: i64,
    lines: VecDeque<Line>,
    octets: usize,
}

#[derive(Clone, Copy, Debug)]
struct Line {
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
            remembered.lines.push_back(Line { number, since, octets });
        }
        Ok(remembered)
    }

    /// Writes the lines of these batches and drops old ones; returns the change to apply after the
    /// commit.
    pub(crate) fn append(
        &self,
        transaction: &Transaction<'_>,
        batches: &[Batch],
    ) -> rusqlite::Result<Option<Change>> {
        let new: Vec<&str> = batches.iter().filter_map(|it| it.remembered.as_deref()).collect();
        if new.is_empty() {
            return Ok(None);
        }
        let text = new.join("\n");
        let line = Line { number: self.last + 1, since: Instant::now(), octets: text.len() };
        transaction
            .prepare_cached("INSERT INTO remembered (number, line) VALUES (?1, ?2)")?
            .execute((line.number, text))?;
        let mut octets = self.octets.saturating_add(line.octets);
        let is_over = |first: &&Line| {
            let is_over = octets > OCTETS_MAX || first.since.elapsed() > KEPT;
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
        let is_gone = |line: &mut Line| gone.is_some_and(|gone| line.number <= gone);
        while let Some(line) = self.lines.pop_front_if(is_gone) {
            self.octets = self.octets.saturating_sub(line.octets);
        }
    }
}

/// A written line, and the last of those dropped with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    line: Line,
    gone: Option<i64>,
}

/// The lines in their order, as rows 0.
pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Vec<(u64, Arc<str>)>> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE name = 'remembered'";
    // A store of an earlier version that is only read has none.
    if connection.query_row(known, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut all = connection.prepare("SELECT line FROM remembered ORDER BY number")?;
    let texts = all.query_map([], |row| row.get::<_, String>(0))?;
    let mut rows = Vec::new();
    for text in texts {
        rows.extend(text?.lines().map(|line| (0, Arc::from(line))));
    }
    Ok(rows)
}

/// The numbers of stored texts with a line that is no JSON, or that are no text.
pub(crate) fn unreadable(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let known = "SELECT count(*) FROM sqlite_schema WHERE name = 'remembered'";
    if connection.query_row(known, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut all = connection.prepare("SELECT number, line FROM remembered ORDER BY number")?;
    let mut found = all.query([])?;
    let mut unreadable = Vec::new();
    while let Some(row) = found.next()? {
        let is_json = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        if !row.get_ref(1)?.as_str().is_ok_and(|text| text.lines().all(is_json)) {
            unreadable.push(row.get(0)?);
        }
    }
    Ok(unreadable)
}
