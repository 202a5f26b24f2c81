//! Maintenance of a database: inspection, online backup, restoring, and salvage of a damaged file.

use crate::audit;
use crate::blocks;
use crate::checksum::of_row;
use crate::database::{Database, DatabaseOptions};
use crate::error::StoreError;
use crate::lock::{Absent, OWNER_ONLY, lock, resolve};
use crate::opening::{Owner, check_owner, open_shared, open_stopped};
use crate::remembered;
use crate::sqlite::{SCHEMA_VERSION, beside, has_checksums, to_row_id};
use core::time::Duration;
use gatewright_onem2m::{Cse, CseConfig, CseIdentity, CseType, NoBase};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Findings of SQLite about the file's structure at most.
const STRUCTURE_MAX: usize = 100;
/// Octets of SQLite's header up to the write version.
const HEADER_OCTETS: usize = 19;
/// Version of the tables from which on they have blocks of records.
const BLOCKS_SINCE: i64 = 3;
/// Rows of a gap that are tried one by one.
const PROBED_MAX: u64 = 65_536;

/// A row that is not served.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadRow {
    /// Its number.
    pub row: u64,
    /// The error found in it.
    pub why: String,
    /// Its text, as far as it is one.
    pub body: Arc<str>,
}

/// State of a database.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inspection {
    /// Version of its tables.
    pub version: i64,
    /// Rows that were read.
    pub rows: u64,
    /// Of those, rows of an earlier version without a checksum.
    pub unchecked: u64,
    /// Resources that a start would serve.
    pub resources: u64,
    /// SQLite's findings about the file, and unreadable remembered requests.
    pub structure: Vec<String>,
    /// Rows that a start would leave out.
    pub bad: Vec<BadRow>,
    /// Ranges of row numbers in which the file cannot be read.
    pub gaps: Vec<(u64, u64)>,
    /// Why a CSE would not start with it.
    pub refused: Option<String>,
    /// The first entry of the audit log that does not follow from the one before.
    pub audit_broken_at: Option<u64>,
}

/// Whether a backup may be restored whose audit log is broken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BrokenAudit {
    /// It is refused.
    Refused,
    /// It is taken: what a salvage has written lacks the entries that could not be read.
    Taken,
}

impl Inspection {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.structure.is_empty()
            && self.bad.is_empty()
            && self.gaps.is_empty()
            && self.refused.is_none()
            && self.audit_broken_at.is_none()
    }

    /// Whether nothing is wrong but that entries of the audit log are missing or changed.
    fn is_sound_but_for_audit(&self) -> bool {
        let whole = Self { audit_broken_at: None, ..self.clone() };
        self.audit_broken_at.is_some() && whole.is_sound()
    }
}

/// Contents of the file that a salvage has written.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Salvaged {
    /// Rows in the new file.
    pub rows: u64,
    /// Rows left out.
    pub bad: Vec<BadRow>,
    /// Ranges of row numbers in which the file cannot be read.
    pub gaps: Vec<(u64, u64)>,
    /// Audit entries in the new file.
    pub entries: u64,
    /// Ranges of numbers of audit entries that cannot be read.
    pub bad_entries: Vec<(u64, u64)>,
}

/// Inspects the database at `path`: its structure, every row by the reader of a start, and the
/// audit log. A CSE may be writing to it.
///
/// # Errors
///
/// [`StoreError`] if it cannot be opened.
pub fn inspect(path: &Path) -> Result<Inspection, StoreError> {
    let (_lock, mut connection) = open_shared(path)?;
    let snapshot = connection.transaction()?;
    let mut found = Inspection {
        version: snapshot.pragma_query_value(None, "user_version", |row| row.get(0))?,
        ..Inspection::default()
    };
    if check_owner(&snapshot, path)? == Owner::Nobody {
        found.structure.push("the file is empty: a CSE would start anew with it".to_owned());
        return Ok(found);
    }
    if !is_writable(path) {
        found.structure.push(
            "octet 18 of its header, the write version, is damaged or of a later SQLite: no CSE \
             could write to it"
                .to_owned(),
        );
    }
    found.structure.extend(structure(&snapshot));
    match remembered::read(&snapshot) {
        Ok(recalled) => found.structure.extend(
            (recalled.unreadable.iter())
                .map(|number| format!("line {number} of remembered: not readable")),
        ),
        Err(error) => found.structure.push(format!("remembered: {error}")),
    }
    if found.version >= BLOCKS_SINCE {
        match blocks::compare(&snapshot) {
            Ok(wrong) => found.structure.extend(wrong.into_iter().take(STRUCTURE_MAX)),
            Err(error) => found.structure.push(format!("blocks of records: {error}")),
        }
    }
    let all = read_all(&snapshot);
    found.rows = to_count(all.rows.len());
    (found.unchecked, found.gaps) = (all.unchecked, all.gaps.clone());
    let judged = judge(&all);
    (found.resources, found.bad, found.refused) = (judged.resources, judged.bad, judged.refused);
    drop(snapshot);
    drop(connection);
    found.audit_broken_at = match audit::verify(path) {
        Ok(verified) => verified.broken_at,
        // The structure shows why.
        Err(_) => Some(0),
    };
    Ok(found)
}

/// Whether SQLite writes files of this header: octet 18 is 1, or 2 with a write-ahead log (SQLite's
/// file format §1.3.3). It opens others read-only.
fn is_writable(path: &Path) -> bool {
    let mut header = [0; HEADER_OCTETS];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    let [.., write_version] = header;
    read.is_ok() && matches!(write_version, 1 | 2)
}

/// Writes a copy of the database at `path` to `to`, which must not exist. A CSE may be writing to it:
/// the copy is of one moment. Returns the copy's inspection.
///
/// # Errors
///
/// [`StoreError`]; no incomplete copy is left.
pub fn backup(path: &Path, to: &Path) -> Result<Inspection, StoreError> {
    refuse_existing(to)?;
    let copied = open_shared(path).and_then(|(lock, connection)| {
        check_owner(&connection, path)?;
        copy_into(&connection, path, to)?;
        drop((connection, lock));
        inspect(to)
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(to);
    }
    copied
}

/// Converts a database of an earlier version, of which a copy is kept beside it.
pub(crate) fn convert(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'row'";
    let has_rows = connection.query_row(tables, [], |row| row.get::<_, i64>(0))? > 0;
    // A log that was cut may end before the tables.
    if version >= SCHEMA_VERSION || !has_rows || has_checksums(connection)? {
        return Ok(());
    }
    let copy = beside(path, &format!(".version-{version}"));
    if !copy.exists() {
        copy_into(connection, path, &copy).inspect_err(|_| {
            // Half a copy is none.
            let _ = std::fs::remove_file(&copy);
        })?;
    }
    connection.execute_batch("ALTER TABLE row ADD COLUMN sum INTEGER")?;
    Ok(())
}

/// Writes a consistent copy of an open database.
fn copy_into(connection: &Connection, path: &Path, to: &Path) -> Result<(), StoreError> {
    let name = to.to_str().ok_or_else(|| {
        file_error(to, io::Error::new(io::ErrorKind::InvalidInput, "the name is not UTF-8"))
    })?;
    // SQLite takes an empty file; one that it makes itself is everybody's to read until it is whole.
    let mut options = File::options();
    let made = options.write(true).create(true).truncate(false).mode(OWNER_ONLY).open(to);
    made.map_err(|source| file_error(to, source))?;
    connection.execute("VACUUM INTO ?1", [name])?;
    let copy = File::open(to).map_err(|source| file_error(to, source))?;
    let same = path.metadata().and_then(|source| copy.set_permissions(source.permissions()));
    same.and_then(|()| copy.sync_all()).map_err(|source| file_error(to, source))?;
    sync_folder(to)
}

/// Puts the backup at `from` in the place of the database at `path`, of which no CSE may be running.
/// The file that was there is kept beside it; returns its new name.
///
/// # Errors
///
/// [`StoreError`] if the backup is not sound; then nothing is changed.
pub fn restore(
    from: &Path,
    path: &Path,
    audit: BrokenAudit,
) -> Result<Option<PathBuf>, StoreError> {
    let found = inspect(from).map_err(|error| match error {
        StoreError::Database(source) => StoreError::Backup { path: from.to_owned(), source },
        other => other,
    })?;
    if found.is_sound_but_for_audit() {
        if audit == BrokenAudit::Refused {
            return Err(StoreError::AuditBroken(from.to_owned()));
        }
    } else if !found.is_sound() {
        return Err(StoreError::Unsound(from.to_owned()));
    }
    let path = &resolve(path)?;
    let _lock = lock(path, Absent::Leave)?;
    let (new, old) = (beside(path, ".restoring"), beside(path, ".before-restore"));
    refuse_existing(&old)?;
    let copied = std::fs::copy(from, &new).and_then(|_| File::open(&new)?.sync_all());
    copied.map_err(|source| file_error(&new, source))?;
    let is_there = path.exists();
    for end in ["", "-wal", "-shm"] {
        let (one, aside) = (beside(path, end), beside(&old, end));
        if one.exists() {
            std::fs::rename(&one, &aside).map_err(|source| file_error(&one, source))?;
        }
    }
    std::fs::rename(&new, path).map_err(|source| file_error(path, source))?;
    sync_folder(path)?;
    Ok(is_there.then_some(old))
}

/// Writes everything that can be read of the database at `path` to `to`, which must not exist. No
/// CSE may be running with it; the damaged file is not changed.
///
/// # Errors
///
/// [`StoreError`] if nothing can be read, or `to` cannot be written; then there is no new file.
pub fn salvage(path: &Path, to: &Path) -> Result<Salvaged, StoreError> {
    refuse_existing(to)?;
    let (_lock, connection) = open_stopped(path)?;
    if check_owner(&connection, path).is_err_and(|error| is_malformed(&error)) {
        // SQLite then takes the pages that a file cut short has, not those that its header counts.
        // The connection is read-only: nothing is written.
        connection.pragma_update(None, "writable_schema", "ON")?;
    }
    check_owner(&connection, path)?;
    let new = beside(to, ".salvaging");
    refuse_existing(&new)?;
    let saved = save(&connection, &new).and_then(|saved| {
        refuse_existing(to)?;
        std::fs::rename(&new, to).map_err(|source| file_error(to, source))?;
        Ok(saved)
    });
    for end in ["", "-wal", "-shm", ".lock"] {
        // What is not there need not be removed.
        let _ = std::fs::remove_file(beside(&new, end));
    }
    let saved = saved?;
    sync_folder(to)?;
    Ok(saved)
}

/// Whether SQLite refuses the file as a whole.
fn is_malformed(error: &StoreError) -> bool {
    let StoreError::Database(source) = error else { return false };
    source.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
}

/// Writes everything that can be read to a new database at `to`.
fn save(connection: &Connection, to: &Path) -> Result<Salvaged, StoreError> {
    let all = read_all(connection);
    let judged = judge(&all);
    let bad: BTreeMap<u64, &BadRow> = judged.bad.iter().map(|bad| (bad.row, bad)).collect();
    let good = all.rows.iter().filter(|(seq, _)| !bad.contains_key(seq));
    let next = good.clone().map(|(seq, _)| seq + 1).max().unwrap_or(1).max(all.next_seq);
    let (mut database, _) = Database::open(to, &DatabaseOptions::default())?;
    let transaction = database.transaction()?;
    let mut rows = 0;
    for (seq, body) in good {
        transaction
            .prepare_cached("INSERT OR REPLACE INTO row (seq, body, sum) VALUES (?1, ?2, ?3)")?
            .execute(params![to_row_id(*seq), &**body, of_row(*seq, body)])?;
        rows += 1;
    }
    transaction.execute(
        "INSERT OR REPLACE INTO mark (name, value) VALUES ('next', ?1)",
        [to_row_id(next)],
    )?;
    let (entries, bad_entries) = copy_audit(connection, &transaction)?;
    transaction.commit()?;
    drop(database);
    // The file is renamed without its log.
    if beside(to, "-wal").metadata().is_ok_and(|log| log.len() > 0) {
        return Err(file_error(
            to,
            io::Error::other("its write-ahead log cannot be moved into it"),
        ));
    }
    Ok(Salvaged { rows, bad: judged.bad, gaps: all.gaps, entries, bad_entries })
}

/// Rows of the database at `path` that a start would leave out. A CSE may be writing to it.
///
/// # Errors
///
/// [`StoreError`] if it cannot be opened.
pub fn quarantined(path: &Path) -> Result<Vec<BadRow>, StoreError> {
    let (_lock, mut connection) = open_shared(path)?;
    let snapshot = connection.transaction()?;
    check_owner(&snapshot, path)?;
    Ok(judge(&read_all(&snapshot)).bad)
}

/// Copies the audit entries that can be read: up to a damaged page from the first on, and behind it
/// from the last back. Returns how many, and the ranges of numbers of the others.
fn copy_audit(from: &Connection, to: &Connection) -> Result<(u64, Vec<(u64, u64)>), StoreError> {
    let (mut entries, mut bad) = (0, Vec::new());
    let mut first_unread = None;
    for order in ["ASC", "DESC"] {
        let all = format!("SELECT number, at, entry, chain FROM audit ORDER BY number {order}");
        let Ok(mut all) = from.prepare(&all) else { return Ok((entries, bad)) };
        let Ok(mut found) = all.query([]) else { return Ok((entries, bad)) };
        let mut last = None;
        let is_complete = loop {
            let row = match found.next() {
                Ok(Some(row)) => row,
                Ok(None) => break true,
                Err(_) => break false,
            };
            let number: i64 = row.get(0)?;
            if first_unread.is_some_and(|first| number < first) {
                break false;
            }
            last = Some(number);
            let copied = copy_entry(row, number, to)?;
            entries += u64::from(copied);
            if !copied {
                bad.push((to_number(number), to_number(number)));
            }
        };
        match first_unread {
            None if is_complete => break,
            None => first_unread = Some(last.map_or(1, |last| last.saturating_add(1))),
            // Where the log ends is not known if nothing can be read from there.
            Some(first) if last == Some(first) => {}
            Some(first) => {
                let end = last.map_or(first, |last| last.saturating_sub(1)).max(first);
                bad.push((to_number(first), to_number(end)));
            }
        }
    }
    bad.sort_unstable();
    Ok((entries, bad))
}

/// Copies an audit entry; returns whether it can be read.
fn copy_entry(row: &rusqlite::Row<'_>, number: i64, to: &Connection) -> Result<bool, StoreError> {
    let read = || -> rusqlite::Result<(i64, String, [u8; 32])> {
        Ok((row.get(1)?, row.get(2)?, row.get(3)?))
    };
    let Ok((at, entry, chain)) = read() else { return Ok(false) };
    to.prepare_cached(
        "INSERT OR IGNORE INTO audit (number, at, entry, chain) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![number, at, entry, chain])?;
    Ok(true)
}

fn to_number(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// SQLite's findings about the file.
fn structure(connection: &Connection) -> Vec<String> {
    let check = format!("PRAGMA integrity_check({STRUCTURE_MAX})");
    let found = connection.prepare(&check).and_then(|mut check| {
        let found = check.query_map([], |row| row.get::<_, String>(0))?;
        found.collect::<Result<Vec<_>, _>>()
    });
    match found {
        Ok(found) => found.into_iter().filter(|line| line != "ok").collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Everything that can be read.
#[derive(Debug, Default)]
struct All {
    rows: Vec<(u64, Arc<str>)>,
    /// Rows with a wrong checksum.
    damaged: Vec<u64>,
    unchecked: u64,
    gaps: Vec<(u64, u64)>,
    remembered: Vec<(u64, Arc<str>)>,
    next_seq: u64,
}

/// Reads all rows; behind a damaged page, it probes numbers one by one.
fn read_all(connection: &Connection) -> All {
    let next: Option<i64> = connection
        .query_row("SELECT value FROM mark WHERE name = 'next'", [], |row| row.get(0))
        .optional()
        .unwrap_or_default();
    let mut all = All {
        remembered: remembered::read(connection).unwrap_or_default().rows,
        next_seq: next.and_then(|next| u64::try_from(next).ok()).unwrap_or(1),
        ..All::default()
    };
    let has_sums = has_checksums(connection).unwrap_or(false);
    let mut from = 0;
    while let Err(last) = all.read_from(connection, from, has_sums) {
        let begin = last.map_or(from, |last| last + 1);
        let Some(begins_again) = all.probe(connection, begin, has_sums) else {
            all.gaps.push((begin, all.next_seq.max(begin)));
            break;
        };
        all.gaps.push((begin, begins_again.saturating_sub(1)));
        from = begins_again;
    }
    all.rows.sort_unstable_by_key(|(seq, _)| *seq);
    all.rows.dedup_by_key(|(seq, _)| *seq);
    all.damaged.sort_unstable();
    all
}

impl All {
    /// Reads rows from `from` on, in ascending order.
    ///
    /// # Errors
    ///
    /// The last row read before one that cannot be.
    fn read_from(
        &mut self,
        connection: &Connection,
        from: u64,
        has_sums: bool,
    ) -> Result<(), Option<u64>> {
        let sum = if has_sums { "sum" } else { "NULL" };
        let all = format!("SELECT seq, body, {sum} FROM row WHERE seq >= ?1 ORDER BY seq");
        let mut all = connection.prepare(&all).map_err(|_| None)?;
        let mut found = all.query([to_row_id(from)]).map_err(|_| None)?;
        let mut last = None;
        loop {
            match found.next() {
                Ok(Some(row)) => last = Some(self.take(row).map_err(|_| last)?),
                Ok(None) => return Ok(()),
                Err(_) => return Err(last),
            }
        }
    }

    fn take(&mut self, row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
        let seq = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
        let body: Arc<str> = String::from_utf8_lossy(row.get_ref(1)?.as_bytes()?).into();
        match row.get::<_, Option<i64>>(2)? {
            Some(sum) if sum != of_row(seq, &body) => self.damaged.push(seq),
            Some(_) => {}
            None => self.unchecked += 1,
        }
        self.rows.push((seq, body));
        Ok(seq)
    }

    /// Looks for single rows behind a damaged place; the number from which on rows can be read in
    /// order again.
    fn probe(&mut self, connection: &Connection, begin: u64, has_sums: bool) -> Option<u64> {
        let sum = if has_sums { "sum" } else { "NULL" };
        let one = format!("SELECT seq, body, {sum} FROM row WHERE seq = ?1");
        let onward = "SELECT seq FROM row WHERE seq >= ?1 ORDER BY seq LIMIT 1";
        let end = self.next_seq.max(begin).min(begin.saturating_add(PROBED_MAX));
        for seq in begin..end {
            let mut onward = connection.prepare_cached(onward).ok()?;
            let next = onward.query_row([to_row_id(seq)], |row| row.get::<_, i64>(0));
            if next.optional().is_ok_and(|next| next.is_none() || seq > begin) {
                return Some(seq);
            }
            let mut one = connection.prepare_cached(&one).ok()?;
            // One that cannot be read either is a part of the gap.
            let _ = one.query_row([to_row_id(seq)], |row| self.take(row));
        }
        None
    }
}

/// The result of reading the rows as a start does.
#[derive(Debug, Default)]
struct Judged {
    resources: u64,
    bad: Vec<BadRow>,
    refused: Option<String>,
}

/// Gives the rows to the reader of a start.
fn judge(all: &All) -> Judged {
    if all.rows.is_empty() {
        // A start would found a CSE.
        return Judged::default();
    }
    let body_of: BTreeMap<u64, &Arc<str>> =
        all.rows.iter().map(|(seq, body)| (*seq, body)).collect();
    let sum_is_wrong = |row: u64| all.damaged.binary_search(&row).is_ok();
    let bad = |row: u64, why: String| BadRow {
        row,
        why: if sum_is_wrong(row) { "its checksum is wrong".to_owned() } else { why },
        body: body_of.get(&row).map_or_else(|| "".into(), |body| Arc::clone(body)),
    };
    let rows = all.rows.iter().map(|(seq, body)| {
        (*seq, if sum_is_wrong(*seq) { Arc::from("") } else { Arc::clone(body) })
    });
    let mut rows: Vec<_> = rows.collect();
    // As at a start: behind the clocks and before all else.
    let clocks = rows.partition_point(|(seq, _)| *seq == 0);
    rows.splice(clocks..clocks, all.remembered.iter().cloned());
    // Whoever it belongs to: the start compares that with its description.
    let identity = rows.iter().find_map(|(_, body)| CseIdentity::of_row(body));
    let (id, name) = identity.map_or(("/-".to_owned(), "-".to_owned()), |it| (it.cse_id, it.name));
    let config = CseConfig::new(CseType::Middle, id, name);
    match Cse::open(config, Duration::ZERO, rows, all.next_seq) {
        Ok((cse, unreadable)) => Judged {
            resources: to_count(cse.resources()),
            bad: unreadable.into_iter().map(|it| bad(it.row, it.damage.to_string())).collect(),
            refused: None,
        },
        Err(cause) => {
            let first = match &cause {
                NoBase::Damaged(first) => vec![bad(first.row, first.damage.to_string())],
                _ => Vec::new(),
            };
            Judged { resources: 0, bad: first, refused: Some(cause.to_string()) }
        }
    }
}

fn to_count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn file_error(path: &Path, source: io::Error) -> StoreError {
    StoreError::File { path: path.to_owned(), source }
}

fn refuse_existing(path: &Path) -> Result<(), StoreError> {
    if path.symlink_metadata().is_ok() {
        return Err(StoreError::Exists(path.to_owned()));
    }
    Ok(())
}

/// Synchronises a folder, so that a new file name survives a loss of power.
fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| file_error(folder, source))
}
