//! The audit log: who asked for what, each entry chained to the one before by its hash, so that
//! none can be changed, left out or put in between without the rest showing it.

use crate::database::StoreError;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use sha2::{Digest, Sha256};
use std::path::Path;

/// One entry. It names resources and never contains their values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// What happened, as one line of text.
    pub text: String,
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

/// Follows the chain of the database at `path` from its first entry; may be done while a CSE
/// writes to it.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn verify(path: &Path) -> Result<Verified, StoreError> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    let mut statement =
        connection.prepare("SELECT number, at, entry, chain FROM audit ORDER BY number")?;
    let mut rows = statement.query([])?;
    let mut verified = Verified { entries: 0, head: [0; 32], broken_at: None };
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
        expected += 1;
    }
    Ok(verified)
}
