//! Audit log: requests, originators and results, each entry chained to the one before by its hash,
//! so that none can be changed, removed or inserted without breaking the chain.
//!
//! An entry is the JSON object that [`gatewright_onem2m::audit`] makes, or in a log of its own
//! ([`AuditLog`](crate::AuditLog)) one of the same form. Older databases have lines,
//! `Retrieve cse-in/c by Ca: 2000`; both are chained alike, so a log may begin with lines and
//! continue with objects.
//!
//! The log is limited to its share of the file. Beyond, its oldest entries are dropped in one
//! transaction with an entry that carries the hash of the last of them. The chain begins with that
//! entry. Dropped entries of operations that a log keeps are stored again behind it, with their number
//! and time (`kept`), so that a flood of others does not push them out.

use crate::error::StoreError;
use crate::opening::open_shared;
use crate::sqlite::used_pages;
use core::fmt::Write;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;

/// `end` of a request that is still in progress; otherwise it is the response status code.
const WAITS: &str = "waits";
/// `op` of an entry about dropped entries: the number and the hash of the last of them, which the
/// next entry continues.
const DROPPED: &str = "Dropped";
/// `op` of an entry about entries that were lost with the transactions before it; `lost` says how many.
const LOST: &str = "Lost";
/// Fraction of the entries dropped at once, so that dropping is rare.
const DROPPED_PART: i64 = 64;
/// Fraction of the octets of dropped entries that are stored again, at most: dropping makes room.
const KEPT_PART: usize = 2;
/// Entries written at most before the log's size is checked: they are some hundred octets each, and
/// 10 KiB at the worst.
const ENTRIES_UNSEEN: i64 = 64;

/// Results of requests, counted over the entries of a log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcomes {
    /// Successful, or accepted.
    pub allowed: u64,
    /// Refused because of the originator.
    pub denied: u64,
    /// Refused or failed for another reason.
    pub failed: u64,
    /// In progress, waiting for other entities; their results are in later entries.
    pub waiting: u64,
    /// Refused requests that were only counted.
    pub counted: u64,
    /// Entries without a request, or of earlier versions without a result.
    pub untold: u64,
}

impl Outcomes {
    /// Statuses that concern the originator: no privilege of a subscriber, originator, receiver or
    /// host of a subscription, an originator that is not registered or not authorised by its
    /// certificate, a missing security association, an application that is not admitted (TS-0004
    /// §6.6.3); and of changes over HTTP, a token or a role that is missing (RFC 9110 §15.5).
    const DENIALS: [u64; 9] = [401, 403, 4101, 4103, 4106, 4107, 4126, 5105, 5205];

    fn count(&mut self, entry: &StoredEntry) {
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
            (_, Some(200..=299 | 1_000..=2_999)) => &mut self.allowed,
            (_, Some(status)) if Self::DENIALS.contains(&status) => &mut self.denied,
            (_, Some(_)) => &mut self.failed,
            (Some(_), None) if entry.fields.is_some() => &mut self.failed,
            _ => &mut self.untold,
        };
        *counter += 1;
    }
}

/// An entry of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredEntry {
    /// Its number, from 1.
    pub number: u64,
    /// Microseconds since 1970.
    pub at_micros: u64,
    /// Its text, as it is chained.
    pub text: String,
    /// Its JSON object; `None` for the lines of earlier versions.
    pub fields: Option<Value>,
    /// Its hash, over its own content and the previous hash.
    pub hash: [u8; 32],
}

impl StoredEntry {
    /// Reads `number, at, entry, chain`.
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let text: String = row.get(2)?;
        let fields = serde_json::from_str(&text).ok().filter(Value::is_object);
        let (number, at_micros) = (unsigned(row.get(0)?), unsigned(row.get(1)?));
        Ok(Self { number, at_micros, text, fields, hash: row.get(3)? })
    }

    /// A text member of the object.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.fields.as_ref()?.get(name)?.as_str()
    }

    /// Its text as it is stored again once it is dropped: with number and time, unless they are there from
    /// an earlier time.
    fn kept_text(&self) -> String {
        let Self { number, at_micros, text, fields, .. } = self;
        let is_kept = fields.as_ref().is_some_and(|fields| fields.get("kept").is_some());
        match text.strip_prefix('{').filter(|_| !is_kept) {
            Some(members) => {
                format!("{{\"kept\":{{\"number\":{number},\"at_micros\":{at_micros}}},{members}")
            }
            None => text.clone(),
        }
    }

    /// A numeric member of the object.
    pub fn number_of(&self, name: &str) -> Option<u64> {
        self.fields.as_ref()?.get(name)?.as_u64()
    }
}

/// Summary of a verified audit log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verified {
    /// Entries in the chain.
    pub entries: u64,
    /// Entries before them that were dropped to make room.
    pub dropped: u64,
    /// Entries that could not be stored, as entries say that were.
    pub lost: u64,
    /// The hash before the first entry: of the last dropped entry, or zeroes.
    pub start: [u8; 32],
    /// The hash of the last entry: stored outside the database, it also shows a truncated end.
    pub head: [u8; 32],
    /// The first entry that does not follow from the one before; the log is not trustworthy from
    /// there on.
    pub broken_at: Option<u64>,
    /// Results of its requests.
    pub outcomes: Outcomes,
}

/// The end of the chain, and the log's size.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    number: i64,
    head: [u8; 32],
    /// Pages of the file that the log uses.
    pub(crate) pages: i64,
    /// Entries dropped since the database was opened.
    pub(crate) dropped: u64,
}

impl Chain {
    /// Appends an entry to the chain.
    fn add(&mut self, transaction: &Transaction<'_>, at: i64, text: &str) -> rusqlite::Result<()> {
        self.number += 1;
        self.head = link(&self.head, self.number, at, text);
        transaction
            .prepare_cached("INSERT INTO audit (number, at, entry, chain) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![self.number, at, text, self.head])?;
        Ok(())
    }

    /// Drops the oldest entries if the log uses more than it may, and records that in an entry.
    /// `others` are the file's other pages.
    fn keep_to(
        &mut self,
        transaction: &Transaction<'_>,
        limits: AuditLimits<'_>,
        others: i64,
        at: i64,
    ) -> rusqlite::Result<()> {
        let (mut last_dropped, mut kept) = (None, Vec::new());
        self.pages = used_pages(transaction)? - others;
        while self.pages > limits.pages_max
            && let Some(dropped) = self.drop_oldest(transaction, limits.kept, &mut kept)?
        {
            last_dropped = Some(dropped);
            self.pages = used_pages(transaction)? - others;
        }
        let Some((through, hash)) = last_dropped else { return Ok(()) };
        let hash = hexadecimal(&hash);
        let text = format!("{{\"op\":\"{DROPPED}\",\"through\":{through},\"hash\":\"{hash}\"}}");
        self.add(transaction, at, &text)?;
        kept.iter().try_for_each(|text| self.add(transaction, at, text))?;
        self.pages = used_pages(transaction)? - others;
        Ok(())
    }

    /// Drops the oldest part of the entries, but never the last one, and adds to `kept` those of the
    /// `operations`. Returns number and hash of the last dropped entry; `None` if there is none to
    /// drop.
    fn drop_oldest(
        &mut self,
        transaction: &Transaction<'_>,
        operations: &[&str],
        kept: &mut Vec<String>,
    ) -> rusqlite::Result<Option<(i64, [u8; 32])>> {
        let first: i64 = transaction
            .prepare_cached("SELECT min(number) FROM audit")?
            .query_row([], |row| row.get(0))?;
        if first >= self.number {
            return Ok(None);
        }
        let through = first.saturating_add(self.number.saturating_sub(first) / DROPPED_PART);
        let last_of_them = transaction
            .prepare_cached(
                "SELECT number, chain FROM audit WHERE number <= ?1 ORDER BY number DESC LIMIT 1",
            )?
            .query_row([through], |row| Ok((row.get(0)?, row.get(1)?)))?;
        kept.extend(to_keep(transaction, through, operations)?);
        let dropped = transaction
            .prepare_cached("DELETE FROM audit WHERE number <= ?1")?
            .execute([through])?;
        self.dropped += u64::try_from(dropped).unwrap_or_default();
        Ok(Some(last_of_them))
    }
}

/// What bounds a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditLimits<'a> {
    /// Pages of the file that it uses at most.
    pub(crate) pages_max: i64,
    /// Operations whose entries are stored again once they are dropped.
    pub(crate) kept: &'a [&'a str],
}

/// The texts of entries of these operations up to `through`, in order: the newest, if all are more than
/// their part.
fn to_keep(
    transaction: &Transaction<'_>,
    through: i64,
    operations: &[&str],
) -> rusqlite::Result<Vec<String>> {
    if operations.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = transaction.prepare_cached(
        "SELECT number, at, entry, chain FROM audit WHERE number <= ?1 ORDER BY number DESC",
    )?;
    // A damaged one is dropped.
    let entries: Vec<StoredEntry> =
        statement.query_map([through], StoredEntry::read)?.filter_map(Result::ok).collect();
    let mut left = entries.iter().map(|entry| entry.text.len()).sum::<usize>() / KEPT_PART;
    let mut kept = Vec::new();
    for entry in &entries {
        if !entry.text_of("op").is_some_and(|operation| operations.contains(&operation)) {
            continue;
        }
        let text = entry.kept_text();
        let Some(rest) = left.checked_sub(text.len()) else { break };
        left = rest;
        kept.push(text);
    }
    kept.reverse();
    Ok(kept)
}

/// The entry about so many lost ones.
pub(crate) fn about_lost(lost: u64) -> String {
    format!("{{\"op\":\"{LOST}\",\"lost\":{lost}}}")
}

fn hexadecimal(hash: &[u8; 32]) -> String {
    hash.iter().fold(String::new(), |mut text, octet| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
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
    let last = "SELECT number, chain FROM audit ORDER BY number DESC LIMIT 1";
    let last = connection.query_row(last, [], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (number, head) = last.unwrap_or((0, [0; 32]));
    // Of all pages together, this column is how many there are (SQLite, "The DBSTAT Virtual Table").
    let pages = "SELECT pageno FROM dbstat WHERE name = 'audit' AND aggregate = TRUE";
    let pages = connection.query_row(pages, [], |row| row.get(0))?;
    Ok(Chain { number, head, pages, dropped: 0 })
}

/// Appends these entries, each a time in microseconds since 1970 and a text, and drops the oldest
/// entries if the log then uses more than it may.
pub(crate) fn append(
    transaction: &Transaction<'_>,
    chain: &Chain,
    entries: impl Iterator<Item = (u64, String)>,
    limits: AuditLimits<'_>,
) -> rusqlite::Result<Chain> {
    let mut chain = chain.clone();
    let others = used_pages(transaction)? - chain.pages;
    let mut last = None;
    for (at_micros, text) in entries {
        let at = i64::try_from(at_micros).unwrap_or(i64::MAX);
        chain.add(transaction, at, &text)?;
        last = Some(at);
        if chain.number % ENTRIES_UNSEEN == 0 {
            chain.keep_to(transaction, limits, others, at)?;
        }
    }
    if let Some(at) = last {
        chain.keep_to(transaction, limits, others, at)?;
    }
    Ok(chain)
}

/// Returns up to `most` of the last entries of the database at `path`, newest last. A CSE may be
/// writing to it. [`verify`] checks whether the chain holds.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn last_entries(path: &Path, most: u32) -> Result<Vec<StoredEntry>, StoreError> {
    let (_lock, connection) = open_shared(path)?;
    let mut statement = connection
        .prepare("SELECT number, at, entry, chain FROM audit ORDER BY number DESC LIMIT ?1")?;
    let told = statement.query_map([most], StoredEntry::read)?;
    let mut entries = told.collect::<Result<Vec<StoredEntry>, _>>()?;
    entries.reverse();
    Ok(entries)
}

/// Verifies the chain of the database at `path` from its first entry. A CSE may be writing to it.
/// Without one, the database may be on read-only storage. Only if the CSE was killed, and its
/// write-ahead log is still to be moved into the file, SQLite keeps an index of that log beside it.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn verify(path: &Path) -> Result<Verified, StoreError> {
    verify_telling(path, |_| {})
}

/// Verifies the chain as [`verify`] does, and passes every valid entry to `sink`.
///
/// # Errors
///
/// [`StoreError::Database`] if it cannot be read.
pub fn verify_telling(
    path: &Path,
    mut sink: impl FnMut(StoredEntry),
) -> Result<Verified, StoreError> {
    let (_lock, mut connection) = open_shared(path)?;
    // Of one moment, whatever is written meanwhile.
    let snapshot = connection.transaction()?;
    let (dropped, start) = dropped(&snapshot)?;
    let mut statement =
        snapshot.prepare("SELECT number, at, entry, chain FROM audit ORDER BY number")?;
    let mut rows = statement.query([])?;
    let outcomes = Outcomes::default();
    let mut verified =
        Verified { entries: 0, dropped, lost: 0, start, head: start, broken_at: None, outcomes };
    let mut expected = dropped;
    while let Some(row) = rows.next()? {
        expected += 1;
        // What is no text has been damaged, too.
        let Ok(told) = StoredEntry::read(row) else {
            verified.broken_at = Some(unsigned(row.get(0)?));
            return Ok(verified);
        };
        let hash = link(&verified.head, row.get(0)?, row.get(1)?, &told.text);
        if told.number != expected || hash != told.hash {
            verified.broken_at = Some(told.number);
            return Ok(verified);
        }
        verified.entries += 1;
        verified.head = hash;
        verified.outcomes.count(&told);
        let is_about_lost = told.text_of("op") == Some(LOST);
        let lost = told.number_of("lost").filter(|_| is_about_lost);
        verified.lost = verified.lost.saturating_add(lost.unwrap_or_default());
        sink(told);
    }
    Ok(verified)
}

/// Number and hash of the last dropped entry, if the log has an entry about it: that entry is in
/// the chain that begins with them.
fn dropped(connection: &Connection) -> Result<(u64, [u8; 32]), StoreError> {
    let first: Option<i64> =
        connection.query_row("SELECT min(number) FROM audit", [], |row| row.get(0))?;
    let none = (0, [0; 32]);
    let Some(first) = first.filter(|first| *first > 1) else { return Ok(none) };
    let said = format!("{{\"op\":\"{DROPPED}\",\"through\":{},%", first - 1);
    let mut saying = connection.prepare(
        "SELECT number, at, entry, chain FROM audit WHERE entry LIKE ?1 ORDER BY number DESC",
    )?;
    let told = saying.query_map([said], StoredEntry::read)?.find_map(Result::ok);
    let hash = told.as_ref().and_then(|told| told.text_of("hash")).and_then(from_hexadecimal);
    Ok(hash.map_or(none, |hash| (unsigned(first - 1), hash)))
}

fn from_hexadecimal(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != hash.len() || !rest.is_empty() {
        return None;
    }
    for (octet, pair) in hash.iter_mut().zip(pairs) {
        *octet = u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}
