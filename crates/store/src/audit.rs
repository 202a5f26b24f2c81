//! The audit log: who asked for what, each entry chained to the one before by its hash, so that
//! none can be changed, left out or put in between without the rest showing it.
//!
//! An entry is the JSON object that [`gatewright_onem2m::audit`] makes. Older databases have lines,
//! `Retrieve cse-in/c by Ca: 2000`: both are chained alike, so a log may begin with the one and go on
//! with the other.

use crate::database::{StoreError, open_stopped};
use gatewright_onem2m::Batch;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::Path;

/// What an entry says of a request that was taken and not yet ended; elsewhere stands its response
/// status code.
const WAITS: &str = "waits";

/// How requests ended, by the entries of a log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcomes {
    /// Done, or accepted to be done.
    pub allowed: u64,
    /// Refused because of who asked.
    pub denied: u64,
    /// Refused or failed because of something else.
    pub failed: u64,
    /// Taken when others had to be asked first; how they ended stands in entries of their own.
    pub waiting: u64,
    /// Requests that were refused and only counted.
    pub counted: u64,
    /// Entries that are not about a request, or of earlier versions that do not say.
    pub untold: u64,
}

impl Outcomes {
    /// Statuses that are about who asks: no privilege of a subscriber, originator, receiver or
    /// host of a subscription, an originator that is not registered or not whom its certificate
    /// names, a missing security association, an application that is not admitted (TS-0004 §6.6.3).
    const DENIALS: [u64; 7] = [4101, 4103, 4106, 4107, 4126, 5105, 5205];

    fn count(&mut self, entry: &Told) {
        if let Some(count) = entry.number_of("count") {
            self.counted += count;
            return;
        }
        let (end, status) = if entry.fields.is_some() {
            (entry.text_of("end"), entry.number_of("end"))
        } else {
            let end = entry.text.rsplit_once(": ").map(|(_, end)| end);
            (end, end.and_then(|end| end.parse().ok()))
        };
        let counter = match (end, status) {
            (Some(WAITS), _) => &mut self.waiting,
            (_, Some(1_000..=2_999)) => &mut self.allowed,
            (_, Some(status)) if Self::DENIALS.contains(&status) => &mut self.denied,
            (_, Some(_)) => &mut self.failed,
            (Some(_), None) if entry.fields.is_some() => &mut self.failed,
            _ => &mut self.untold,
        };
        *counter += 1;
    }
}

/// An entry as it stands in the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// Its number, from 1.
    pub number: u64,
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// What it says, as it is chained.
    pub text: String,
    /// The same as an object; nothing in the lines of earlier versions.
    pub fields: Option<Value>,
}

impl Told {
    fn new(number: i64, at: i64, text: String) -> Self {
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        let fields = serde_json::from_str(&text).ok().filter(Value::is_object);
        Self { number: unsigned(number), at_micros: unsigned(at), text, fields }
    }

    /// A member of the object that is a text.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.fields.as_ref()?.get(name)?.as_str()
    }

    /// A member of the object that is a number.
    pub fn number_of(&self, name: &str) -> Option<u64> {
        self.fields.as_ref()?.get(name)?.as_u64()
    }
}

/// What a log that holds together says of itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verified {
    /// Entries in the chain.
    pub entries: u64,
    /// The hash of the last one: kept elsewhere, it also shows whether the end was cut off.
    pub head: [u8; 32],
    /// The first entry that does not follow from the one before; the log is not to be trusted
    /// from there on.
    pub broken_at: Option<u64>,
    /// How what it tells of ended.
    pub outcomes: Outcomes,
}

/// The end of the chain.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    number: i64,
    head: [u8; 32],
}

fn link(head: &[u8; 32], number: i64, at: i64, text: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(head);
    hash.update(number.to_be_bytes());
    hash.update(at.to_be_bytes());
    hash.update(text.as_bytes());
    hash.finalize().into()
}

pub(crate) fn last(connection: &Connection) -> Result<Chain, StoreError> {
    let found = connection
        .query_row("SELECT number, chain FROM audit ORDER BY number DESC LIMIT 1", [], |row| {
            Ok(Chain { number: row.get(0)?, head: row.get(1)? })
        })
        .optional()?;
    Ok(found.unwrap_or(Chain { number: 0, head: [0; 32] }))
}

pub(crate) fn append(
    transaction: &Transaction<'_>,
    chain: &Chain,
    batches: &[Batch],
) -> rusqlite::Result<Chain> {
    let mut chain = chain.clone();
    for entry in batches.iter().flat_map(|batch| &batch.entries) {
        let at = i64::try_from(entry.at_micros).unwrap_or(i64::MAX);
        let text = entry.to_text();
        chain.number += 1;
        chain.head = link(&chain.head, chain.number, at, &text);
        transaction
            .prepare_cached("INSERT INTO audit (number, at, entry, chain) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![chain.number, at, text, chain.head])?;
    }
    Ok(chain)
}

/// The last entries of the log in the database at `path`, at most so many, newest last; may be done
/// while a CSE writes to it. Whether they hold together, [`verify`] says.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn last_entries(path: &Path, most: u32) -> Result<Vec<Told>, StoreError> {
    let (connection, _lock) = open(path)?;
    let mut statement =
        connection.prepare("SELECT number, at, entry FROM audit ORDER BY number DESC LIMIT ?1")?;
    let told =
        statement.query_map([most], |row| Ok(Told::new(row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let mut entries = told.collect::<Result<Vec<Told>, _>>()?;
    entries.reverse();
    Ok(entries)
}

/// A connection that only reads. Beside a CSE that runs it shares that one's index of the log; where
/// none does, nothing is written and no CSE starts until it is read.
fn open(path: &Path) -> Result<(Connection, Option<File>), StoreError> {
    match open_stopped(path) {
        Err(StoreError::InUse(_)) => {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Ok((Connection::open_with_flags(path, flags)?, None))
        }
        opened => opened,
    }
}

/// Follows the chain of the database at `path` from its first entry; may be done while a CSE
/// writes to it. Where none does, the database may lie where nothing can be written; only if the CSE
/// was killed, and its log is still to be moved into the file, SQLite keeps an index of that log
/// beside it.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn verify(path: &Path) -> Result<Verified, StoreError> {
    verify_telling(path, |_| {})
}

/// The same, handing every entry that is in its place to `sink`.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn verify_telling(path: &Path, mut sink: impl FnMut(Told)) -> Result<Verified, StoreError> {
    let (connection, _lock) = open(path)?;
    let mut statement =
        connection.prepare("SELECT number, at, entry, chain FROM audit ORDER BY number")?;
    let mut rows = statement.query([])?;
    let outcomes = Outcomes::default();
    let mut verified = Verified { entries: 0, head: [0; 32], broken_at: None, outcomes };
    let mut expected = 1;
    while let Some(row) = rows.next()? {
        let (number, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (text, chain): (String, [u8; 32]) = (row.get(2)?, row.get(3)?);
        if number != expected || link(&verified.head, number, at, &text) != chain {
            verified.broken_at = Some(u64::try_from(number).unwrap_or(0));
            return Ok(verified);
        }
        verified.entries += 1;
        verified.head = chain;
        let told = Told::new(number, at, text);
        verified.outcomes.count(&told);
        sink(told);
        expected += 1;
    }
    Ok(verified)
}
