//! The file: how it is opened, read back and written in groups.

use crate::audit::{self, Chain, Entry};
use crate::writer::{Report, Writer};
use gatewright_onem2m::{Batch, Record};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// "GWcs" in ASCII: marks the file as ours (SQLite, `PRAGMA application_id`).
const APPLICATION_ID: i64 = 0x4757_6373;
/// Of the tables below.
const SCHEMA_VERSION: i64 = 1;
/// Pages of log after which they are moved into the file: 16 MiB of 4 KiB pages, so that a
/// busy CSE does it a few times a second at most.
const CHECKPOINT_PAGES: i64 = 4_000;
/// The same on a disk that has been full.
const CHECKPOINT_PAGES_TIGHT: i64 = 64;
/// Octets that the log file keeps on disk after it was moved.
const JOURNAL_OCTETS_MAX: i64 = 64 * 1024 * 1024;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS row (seq INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS mark (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS audit (
        number INTEGER PRIMARY KEY, at INTEGER NOT NULL, entry TEXT NOT NULL, chain BLOB NOT NULL
    ) STRICT;
";

/// How the database is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Octets that the file may grow to, the log apart; what goes beyond is refused like a full
    /// disk.
    pub octets_max: Option<u64>,
    /// Batches that may wait for the writer.
    pub batches_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { octets_max: None, batches_max: 65_536 }
    }
}

/// Why the database cannot be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has it open.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The file is a database of something else.
    #[error("{} is no database of a CSE", .0.display())]
    Foreign(PathBuf),
    /// The file was written by a later version.
    #[error("{} has the tables of version {found}, and version {known} is known here", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The lock beside the file cannot be made.
    #[error("the lock {} cannot be taken", path.display())]
    Lock {
        /// The lock.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database refuses: damaged, unreadable, or the disk is full.
    #[error("the database refuses: {0}")]
    Database(#[from] rusqlite::Error),
}

/// What an earlier run stored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// Number and body, in ascending order of number.
    pub rows: Vec<(u64, Arc<str>)>,
    /// The number that the next row will have.
    pub next_seq: u64,
}

/// An open database that nobody writes yet.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    chain: Chain,
    options: Options,
    /// The disk was full and the log could not be moved: until it can, nothing is written, lest
    /// the log take the room that moving it needs.
    is_stuck: bool,
    /// Held as long as the database is: two writers would number rows alike.
    lock: Option<File>,
}

impl Database {
    /// Opens the database at `path`, made if it does not exist, and reads it back.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the file is not touched if it is not ours.
    pub fn open(path: &Path, options: &Options) -> Result<(Self, Restored), StoreError> {
        let lock = lock(path)?;
        let connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        check_owner(&connection, path)?;
        Self::set_up(connection, options, Some(lock))
    }

    /// A database that lives as long as the process: for tests and for CSEs that keep nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] if there is no memory for it.
    pub fn in_memory(options: &Options) -> Result<(Self, Restored), StoreError> {
        Self::set_up(Connection::open_in_memory()?, options, None)
    }

    fn set_up(
        connection: Connection,
        options: &Options,
        lock: Option<File>,
    ) -> Result<(Self, Restored), StoreError> {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", JOURNAL_OCTETS_MAX)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        connection.execute_batch(TABLES)?;
        if let Some(octets) = options.octets_max {
            let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = i64::try_from(octets).unwrap_or(i64::MAX) / page.max(1);
            connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        }
        let restored = read_back(&connection)?;
        let chain = audit::last(&connection)?;
        let options = options.clone();
        Ok((Self { connection, chain, options, is_stuck: false, lock }, restored))
    }

    /// Starts the thread that writes. `report` is called on it after each commit, and before
    /// the next begins.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(self, report: impl FnMut(Report) + Send + 'static) -> io::Result<Writer> {
        let batches_max = self.options.batches_max;
        Writer::start(self, batches_max, report)
    }

    /// Commits the batches and audit entries as one transaction. On a full disk it makes room by
    /// moving the log into the file, and tries once more.
    pub(crate) fn commit(
        &mut self,
        batches: &[Batch],
        entries: &[Entry],
    ) -> Result<(), rusqlite::Error> {
        if self.is_stuck {
            self.move_log()?;
            self.is_stuck = false;
        }
        let first = self.commit_once(batches, entries);
        let full = first.as_ref().err().and_then(rusqlite::Error::sqlite_error_code)
            == Some(rusqlite::ErrorCode::DiskFull);
        if !full {
            return first;
        }
        // On a disk that has been full the log is kept short from now on.
        self.connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES_TIGHT)?;
        self.is_stuck = true;
        self.move_log()?;
        self.is_stuck = false;
        self.commit_once(batches, entries)
    }

    fn move_log(&self) -> Result<(), rusqlite::Error> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }

    fn commit_once(&mut self, batches: &[Batch], entries: &[Entry]) -> Result<(), rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        write_rows(&transaction, batches)?;
        if let Some(batch) = batches.last() {
            transaction
                .prepare_cached("INSERT OR REPLACE INTO mark (name, value) VALUES ('next', ?1)")?
                .execute([to_row_id(batch.next_seq)])?;
        }
        let chain = audit::append(&transaction, &self.chain, entries)?;
        transaction.commit()?;
        self.chain = chain;
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The lock outlives the connection's last write to the log.
        let _ = self.move_log();
        drop(self.lock.take());
    }
}

fn write_rows(transaction: &Transaction<'_>, batches: &[Batch]) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO row (seq, body) VALUES (?1, ?2)";
    let mut put = transaction.prepare_cached(put)?;
    let mut delete = transaction.prepare_cached("DELETE FROM row WHERE seq = ?1")?;
    for record in batches.iter().flat_map(|batch| &batch.records) {
        match record {
            Record::Put { seq, body } => put.execute(params![to_row_id(*seq), &**body])?,
            Record::Delete { seq } => delete.execute([to_row_id(*seq)])?,
        };
    }
    Ok(())
}

/// Row numbers count what was created; 2⁶³ of them are out of reach.
fn to_row_id(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

fn read_back(connection: &Connection) -> Result<Restored, StoreError> {
    let next: Option<i64> = connection
        .query_row("SELECT value FROM mark WHERE name = 'next'", [], |row| row.get(0))
        .optional()?;
    let mut statement = connection.prepare("SELECT seq, body FROM row ORDER BY seq")?;
    let mut rows = Vec::new();
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let seq: i64 = row.get(0)?;
        let body: Arc<str> = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?.into();
        rows.push((u64::try_from(seq).unwrap_or(0), body));
    }
    Ok(Restored { rows, next_seq: next.and_then(|next| u64::try_from(next).ok()).unwrap_or(1) })
}

/// Refuses a file that belongs to another program, before anything is written to it.
fn check_owner(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (owner, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if owner == 0 && tables == 0 {
        return Ok(());
    }
    if owner != APPLICATION_ID {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    if version > SCHEMA_VERSION {
        return Err(StoreError::Newer {
            path: path.to_owned(),
            found: version,
            known: SCHEMA_VERSION,
        });
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock = PathBuf::from(name);
    let refuse = |source| StoreError::Lock { path: lock.clone(), source };
    let file =
        File::options().create(true).truncate(false).write(true).open(&lock).map_err(refuse)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(StoreError::InUse(path.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(refuse(source)),
    }
}
