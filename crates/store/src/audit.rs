//! The audit log: who asked for what, each entry chained to the one before by its hash, so that
//! none can be changed, left out or put in between without the rest showing it.

use crate::database::{StoreError, open_stopped};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::Path;

/// One entry. It names resources and never contains their values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// What happened, as one line of text.
    pub text: String,
}

/// What stands behind the colon of a request that was taken and not yet ended; elsewhere stands its
/// response status code.
pub const WAITS: &str = "waits";

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
    /// Entries of earlier versions, which do not say.
    pub untold: u64,
}

impl Outcomes {
    /// Statuses that are about who asks: no privilege of a subscriber, originator, receiver or
    /// host of a subscription, an originator that is not registered or not whom its certificate
    /// names, a missing security association, an application that is not admitted (TS-0004 §6.6.3).
    const DENIALS: [u16; 7] = [4101, 4103, 4106, 4107, 4126, 5105, 5205];

    fn count(&mut self, entry: &str) {
        let end = entry.rsplit_once(": ").map(|(_, end)| end);
        let counter = match (end, end.and_then(|end| end.parse::<u16>().ok())) {
            (Some(WAITS), _) => &mut self.waiting,
            (_, Some(1_000..=2_999)) => &mut self.allowed,
            (_, Some(status)) if Self::DENIALS.contains(&status) => &mut self.denied,
            (_, Some(_)) => &mut self.failed,
            (_, None) => &mut self.untold,
        };
        *counter += 1;
    }
}

/// An entry as it stands in the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Told {
    /// Its number, from 1.
    pub number: u64,
    /// What it says.
    pub entry: Entry,
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
    entries: &[Entry],
) -> rusqlite::Result<Chain> {
    let mut chain = chain.clone();
    for entry in entries {
        let at = i64::try_from(entry.at_micros).unwrap_or(i64::MAX);
        chain.number += 1;
        chain.head = link(&chain.head, chain.number, at, &entry.text);
        transaction
            .prepare_cached("INSERT INTO audit (number, at, entry, chain) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![chain.number, at, entry.text, chain.head])?;
    }
    Ok(chain)
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
        verified.outcomes.count(&text);
        let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
        let entry = Entry { at_micros: unsigned(at), text };
        sink(Told { number: unsigned(number), entry });
        expected += 1;
    }
    Ok(verified)
}
