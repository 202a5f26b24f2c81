//! Database file: opened, read back and written in groups of batches.

use crate::audit::{self, AuditLimits, Chain};
use crate::block_builder::{BlockBuilder, Built};
use crate::blocks::{self, Blocks};
use crate::checksum::of_row;
use crate::error::StoreError;
use crate::lock::{Absent, Lock, lock, refuse_missing_folder, refuse_orphans, resolve};
use crate::maintenance::convert;
use crate::mover::{Done, Log, Mover};
use crate::opening::{Owner, check_owner, open_stopped};
use crate::presence::Presence;
use crate::reader::{ReadReport, RowReader};
use crate::remembered::{self, Remembered};
use crate::reserve::{DiskSpace, Reserve, allocate_beyond, check_room_for_new, or_no_room};
use crate::row_changes::write_rows;
use crate::size_limit;
use crate::sqlite::{
    APPLICATION_ID, SCHEMA_VERSION, has_checksums, stored_row, to_row_id, used_pages,
};
use crate::stored_rows::StoredRows;
use crate::writer::{BatchWriter, WriteReport};
use gatewright_onem2m::{Batch, RowChange};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages of write-ahead log (WAL) after which the mover moves them into the file, beside the
/// commits: 4 MiB of 4 KiB pages.
const MOVE_PAGES: i64 = 1_000;
/// Pages of WAL after which the rest that the mover has left is moved between two commits, so that
/// the WAL restarts: 32 MiB, which a busy CSE writes in some seconds.
const RESTART_PAGES: i64 = 8_000;
/// Pages of WAL after which all are moved within a commit if there is no mover: on a disk that has
/// been full, where the WAL has to be short.
const MOVE_PAGES_TIGHT: i64 = 64;
/// Lead of the recorded number of the next row: recording it in each commit would make each a third
/// longer. A killed process skips at most as many numbers.
const MARKED_AHEAD: u64 = 4_096;
/// Default limit of the audit log in octets: more than a million entries.
const AUDIT_OCTETS_MAX: u64 = 256 * 1024 * 1024;
/// Octets of a page (SQLite's default).
const PAGE_OCTETS: i64 = 4_096;
/// Pages beyond the limits of rows and audit log: ends of tables, and what is written before the
/// oldest entries are dropped.
const SPARE_PAGES: i64 = 1_024;
/// Pages that every commit writes: the ends of tables and the inner pages above them.
const COMMIT_PAGES: i64 = 4;
/// Approximate size of an audit entry in octets.
const ENTRY_OCTETS: usize = 256;
/// Octets that the log file keeps on disk after it was moved.
const JOURNAL_OCTETS_MAX: i64 = 64 * 1024 * 1024;

/// Part of the rows' limit below which their room is short, and the least of it: some large rows.
const ROWS_LOW_PART: u64 = 20;
const ROWS_LOW_OCTETS: u64 = 128 * 1024;

/// Default octets of the reserve on the disk: the log pages of some thousand deletions.
const RESERVE_OCTETS: u64 = 4 * 1024 * 1024;
/// Text of the error for rows beyond their limit.
const ROWS_FULL: &str = "the rows have reached their limit (store_mib)";
/// Text of the error for a file that cannot grow.
const NO_ROOM: &str = "the disk has no room for the database";
/// Text of the error for a change that does not delete, on a full disk.
const DISK_FULL: &str = "the disk is full: only deletions are stored";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS row (
        seq INTEGER PRIMARY KEY, body TEXT NOT NULL, sum INTEGER
    ) STRICT;
    CREATE TABLE IF NOT EXISTS mark (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS audit (
        number INTEGER PRIMARY KEY, at INTEGER NOT NULL, entry TEXT NOT NULL, chain BLOB NOT NULL
    ) STRICT;
";

/// Options of the database.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DatabaseOptions {
    /// Limit on the rows in octets, without the logs; beyond, a commit is refused as on a full
    /// disk.
    pub octets_max: Option<u64>,
    /// Limit on the audit log in octets, in addition; beyond, its oldest entries are dropped. The
    /// rows never use the log's share.
    pub audit_octets_max: u64,
    /// Batches queued for the writer.
    pub batches_max: usize,
    /// Octets kept on the disk for deletions and the audit log when it is full; 0 keeps none.
    pub reserve_octets: u64,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            octets_max: None,
            audit_octets_max: AUDIT_OCTETS_MAX,
            batches_max: 65_536,
            reserve_octets: RESERVE_OCTETS,
        }
    }
}

/// Rows of an earlier run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// Number and body, in ascending order of number.
    pub rows: Vec<(u64, Arc<str>)>,
    /// The number that the next row will have.
    pub next_seq: u64,
    /// Rows whose checksum is wrong; their bodies are empty above.
    pub damaged: Vec<u64>,
    /// Numbers of remembered transactions that cannot be read: a repetition of one of their
    /// requests is executed again. They stay in the file as long as others.
    pub remembered_damaged: Vec<u64>,
}

/// Durations of moving the WAL.
#[derive(Debug)]
pub(crate) struct Tended {
    /// Each pass beside the commits.
    pub(crate) passes: Vec<Duration>,
    /// The rest between two commits, if there was any.
    pub(crate) rest: Option<Duration>,
}

/// An open database without a writer.
#[derive(Debug)]
pub struct Database {
    pub(crate) connection: Connection,
    pub(crate) chain: Chain,
    remembered: Remembered,
    /// Rows of another writer found where this one's were to be.
    intrusions: u64,
    options: DatabaseOptions,
    /// The disk was full and the WAL could not be moved: until it can, nothing is written, so that
    /// the WAL does not use the space needed for moving it.
    is_stuck: bool,
    /// The number of the next row, and the recorded one, which is usually higher.
    next_seq: u64,
    marked: u64,
    /// Moves the WAL beside the commits; `None` in memory, and while the disk is full.
    mover: Option<Mover>,
    /// Room for deletions on a full disk; `None` in memory.
    reserve: Option<Reserve>,
    /// Whether its files are at their paths; `None` in memory.
    pub(crate) presence: Option<Presence>,
    blocks: Blocks,
    /// Makes blocks beside the commits; `None` in memory.
    builder: Option<BlockBuilder>,
    /// A block that goes with the next transaction.
    built: Option<Built>,
    /// Approximate pages of WAL that the mover was not asked to move.
    unmoved: i64,
    /// Pages that the rows took up after the last commit.
    rows_pages: i64,
    /// Entries that were lost with their transactions, until an entry says so.
    audit_lost: u64,
    /// Lock held as long as the database is open: two writers would give rows the same numbers. It
    /// is declared after the connection, to be released after it.
    lock: Option<Lock>,
}

impl Database {
    /// Opens the database at `path`, creates it if it does not exist, and reads its rows.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; another program's file is not changed.
    pub fn open(path: &Path, options: &DatabaseOptions) -> Result<(Self, Restored), StoreError> {
        let database = Self::open_file(path, options)?;
        let restored = read_back(&database.connection)?;
        Ok((database, restored))
    }

    pub(crate) fn open_file(path: &Path, options: &DatabaseOptions) -> Result<Self, StoreError> {
        Self::try_open_file(path, options).map_err(|error| or_no_room(path, error))
    }

    fn try_open_file(path: &Path, options: &DatabaseOptions) -> Result<Self, StoreError> {
        refuse_missing_folder(path)?;
        refuse_orphans(path)?;
        let path = &resolve(path)?;
        refuse_orphans(path)?;
        // Before there is any file of it.
        if path.metadata().map_or(true, |file| file.len() == 0) {
            check_room_for_new(path, options.reserve_octets)?;
        }
        Self::open_resolved(path, options).map_err(|error| size_limit::cause_of(error, path))
    }

    fn open_resolved(path: &PathBuf, options: &DatabaseOptions) -> Result<Self, StoreError> {
        let lock = lock(path, Absent::Create)?;
        let connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        let owner = check_owner(&connection, path)?;
        if connection.is_readonly("main")? {
            return Err(StoreError::ReadOnly(path.clone()));
        }
        if owner == Owner::Ours {
            convert(&connection, path)?;
        }
        Self::set_up(Some(lock), connection, options)
    }

    /// Reads the database at `path` of a stopped CSE. Nothing is written, so it may be on read-only
    /// storage. Only if the CSE was killed, and its WAL is still to be moved into the file, SQLite
    /// keeps an index of that WAL beside it (`-shm`).
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn read(path: &Path) -> Result<Restored, StoreError> {
        let (_lock, connection) = open_stopped(path)?;
        if check_owner(&connection, path)? == Owner::Nobody {
            return Ok(Restored { next_seq: 1, ..Restored::default() });
        }
        read_back(&connection)
    }

    /// Opens a database in memory: for tests and for CSEs that store nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Database`] if there is no memory for it.
    pub fn in_memory(options: &DatabaseOptions) -> Result<(Self, Restored), StoreError> {
        let database = Self::set_up(None, Connection::open_in_memory()?, options)?;
        let restored = read_back(&database.connection)?;
        Ok((database, restored))
    }

    /// Opens the database at `path` as [`Self::open`], and gives its rows one after the other, which
    /// have to be taken before it is started; with the number that the next row will have.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_reading(
        path: &Path,
        options: &DatabaseOptions,
    ) -> Result<(Self, StoredRows, u64), StoreError> {
        let database = Self::open_file(path, options)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let rows =
            Connection::open_with_flags(database.connection.path().unwrap_or_default(), flags)?;
        let next_seq = database.next_seq;
        Ok((database, StoredRows::new(rows)?, next_seq))
    }

    /// A reader of single rows, which reports on its own thread; `None` of a database in memory.
    ///
    /// # Errors
    ///
    /// If the system gives no thread, or the file cannot be opened again.
    pub fn reader(
        &self,
        report: impl FnMut(ReadReport) + Send + 'static,
    ) -> io::Result<Option<RowReader>> {
        let path = self.connection.path().filter(|path| !path.is_empty());
        path.map(|path| RowReader::start(Path::new(path), report)).transpose()
    }

    fn set_up(
        lock: Option<Lock>,
        connection: Connection,
        options: &DatabaseOptions,
    ) -> Result<Self, StoreError> {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "journal_size_limit", JOURNAL_OCTETS_MAX)?;
        for (name, value) in [("application_id", APPLICATION_ID), ("user_version", SCHEMA_VERSION)]
        {
            let found: i64 = connection.pragma_query_value(None, name, |row| row.get(0))?;
            // To write it anew would take room, and the disk may be full.
            if found != value {
                connection.pragma_update(None, name, value)?;
            }
        }
        connection.execute_batch(TABLES)?;
        remembered::set_up(&connection)?;
        blocks::set_up(&connection)?;
        if let Some(octets) = options.octets_max {
            let pages = pages_of(octets).saturating_add(pages_of(options.audit_octets_max));
            let pages = pages.saturating_add(SPARE_PAGES);
            connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
        }
        let next_seq = next_seq(&connection)?;
        let chain = audit::last(&connection)?;
        let remembered = Remembered::open(&connection)?;
        let blocks = Blocks::open(&connection)?;
        let options = options.clone();
        let rows_pages = used_pages(&connection)? - chain.pages;
        Ok(Self {
            connection,
            rows_pages,
            audit_lost: 0,
            chain,
            remembered,
            intrusions: 0,
            options,
            is_stuck: false,
            next_seq,
            marked: next_seq,
            mover: None,
            reserve: None,
            presence: None,
            blocks,
            builder: None,
            built: None,
            unmoved: 0,
            lock,
        })
    }

    /// A transaction of its connection, for maintenance.
    pub(crate) fn transaction(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction()
    }

    /// Starts the writer's thread, which calls `report` after each commit and before the next
    /// begins.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub fn start(
        mut self,
        report: impl FnMut(WriteReport) + Send + 'static,
    ) -> io::Result<BatchWriter> {
        let path = self.connection.path().filter(|path| !path.is_empty()).map(PathBuf::from);
        if let (Some(path), Some(file)) = (path, self.file()) {
            self.mover = Some(Mover::start(&path, file)?);
            let unused = unused_octets(&self.connection);
            self.reserve = Some(Reserve::new(&path, self.options.reserve_octets, unused));
            self.presence = Some(Presence::new(&path));
            self.builder = Some(BlockBuilder::start(&path, self.blocks.key())?);
        }
        let batches_max = self.options.batches_max;
        BatchWriter::start(self, batches_max, report)
    }

    /// Commits the batches as one transaction, each with its audit entries. On a full disk it frees
    /// space by moving the WAL into the file, and tries once more; then it lets its reserve go, and
    /// stores what only deletes.
    ///
    /// Another writer, which the lock does not keep out if it is none of ours, may have taken the next
    /// numbers of the audit log or of remembered requests: it goes on behind them.
    ///
    /// It fails if the database's files are not at their paths any more: what was written to a file
    /// without a name is lost with the process, and is not to be acknowledged.
    ///
    /// Returns when its rows had been written and only the disk synchronisation remained.
    pub(crate) fn commit(&mut self, batches: &[Batch]) -> Result<Instant, rusqlite::Error> {
        self.demand_files()?;
        let written = self.commit_behind_others(batches)?;
        self.demand_files()?;
        Ok(written)
    }

    fn demand_files(&mut self) -> rusqlite::Result<()> {
        match self.look_for_files() {
            Some(missing) => {
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY_DBMOVED);
                Err(rusqlite::Error::SqliteFailure(code, Some(missing.to_owned())))
            }
            None => Ok(()),
        }
    }

    /// Which of its files is not at its path any more.
    pub(crate) fn look_for_files(&mut self) -> Option<&str> {
        self.presence.as_mut()?.look()
    }

    /// Which of its files was not at its path when that was looked at last.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.presence.as_ref()?.missing()
    }

    fn commit_behind_others(&mut self, batches: &[Batch]) -> Result<Instant, rusqlite::Error> {
        let first = self.commit_with_room(batches);
        let code = first.as_ref().err().and_then(rusqlite::Error::sqlite_error_code);
        if code != Some(rusqlite::ErrorCode::ConstraintViolation) {
            return first;
        }
        let Ok(mut chain) = audit::last(&self.connection) else { return first };
        chain.dropped = self.chain.dropped;
        self.chain = chain;
        self.remembered = Remembered::open(&self.connection)?;
        self.intrusions += 1;
        self.commit_with_room(batches)
    }

    fn commit_with_room(&mut self, batches: &[Batch]) -> Result<Instant, rusqlite::Error> {
        if self.is_stuck {
            self.make_room()?;
        }
        let first = self.commit_once(batches);
        if !self.lacks_room(&first) {
            return first;
        }
        // On a full disk the log is kept short.
        self.connection.pragma_update(None, "wal_autocheckpoint", MOVE_PAGES_TIGHT)?;
        // It finishes what it is at.
        self.mover = None;
        self.is_stuck = true;
        self.make_room()?;
        if self.admitted(batches) < batches.len() {
            return first;
        }
        let second = self.commit_once(batches);
        if !self.lacks_room(&second) || !self.let_go() {
            return second;
        }
        // What the second try has left in the log.
        self.is_stuck = true;
        self.make_room()?;
        if self.admitted(batches) < batches.len() {
            return second;
        }
        self.commit_once(batches)
    }

    /// Moves the WAL into the file, which frees the WAL's room; if there is none for that, within the
    /// reserve.
    fn make_room(&mut self) -> rusqlite::Result<()> {
        let moved = self.move_log();
        if self.lacks_room(&moved) && self.let_go() {
            self.move_log()?;
        } else {
            moved?;
        }
        self.is_stuck = false;
        Ok(())
    }

    /// Frees the reserve if the disk is full; returns whether it is.
    fn let_go(&mut self) -> bool {
        let Some(reserve) = &mut self.reserve else { return false };
        let is_full = reserve.is_disk_full();
        if is_full {
            reserve.let_go();
        }
        is_full
    }

    /// Whether SQLite has found no room. For its index of the WAL it says only that a write failed.
    fn lacks_room<T>(&mut self, outcome: &rusqlite::Result<T>) -> bool {
        match outcome.as_ref().err().and_then(rusqlite::Error::sqlite_error_code) {
            Some(rusqlite::ErrorCode::DiskFull) => true,
            Some(rusqlite::ErrorCode::SystemIoFailure) => {
                self.reserve.as_mut().is_some_and(Reserve::is_disk_full)
            }
            _ => false,
        }
    }

    /// Number of the first batches that may be written: on a full disk, those that make no new row,
    /// and those that delete.
    pub(crate) fn admitted(&self, batches: &[Batch]) -> usize {
        if !self.disk_space().is_short {
            return batches.len();
        }
        let mut next_seq = self.next_seq;
        let is_refused = |batch: &Batch| {
            let is_new = |record: &RowChange| matches!(record, RowChange::Put { seq, .. } if *seq >= next_seq);
            let deletes = batch.records.iter().any(|it| matches!(it, RowChange::Delete { .. }));
            let is_refused = !deletes && batch.records.iter().any(is_new);
            next_seq = next_seq.max(batch.next_seq);
            is_refused
        };
        batches.iter().position(is_refused).unwrap_or(batches.len())
    }

    /// Why batches that are not admitted are refused.
    pub(crate) fn refusal() -> rusqlite::Error {
        full(DISK_FULL)
    }

    /// The disk's free space and the reserve, and what the rows' limit leaves.
    pub(crate) fn disk_space(&self) -> DiskSpace {
        let space = self.reserve.as_ref().map(Reserve::disk_space).unwrap_or_default();
        let used = to_octets(self.rows_pages);
        let most = self.options.octets_max;
        let rows_low = most.map_or(0, |most| (most / ROWS_LOW_PART).max(ROWS_LOW_OCTETS));
        DiskSpace { rows_free: most.map(|most| most.saturating_sub(used)), rows_low, ..space }
    }

    /// Time until [`Self::pursue_room`] is to be called; `None` without a disk.
    pub(crate) fn room_due(&self) -> Option<Duration> {
        self.reserve.as_ref().map(Reserve::due)
    }

    /// Looks at the disk if that is due. Where a full one has room again, everything is as before.
    pub(crate) fn pursue_room(&mut self) {
        let Some(reserve) = &mut self.reserve else { return };
        let was_short = reserve.disk_space().is_short;
        let unused = if was_short { unused_octets(&self.connection) } else { 0 };
        reserve.pursue(unused);
        if was_short && !reserve.disk_space().is_short && self.move_log().is_ok() {
            self.is_stuck = false;
            self.resume_mover();
        }
    }

    /// The path of the database file.
    fn file(&self) -> Option<Arc<File>> {
        self.lock.as_ref().and_then(|lock| lock.file.clone())
    }

    /// Moves the WAL beside the commits again.
    fn resume_mover(&mut self) {
        let path = self.connection.path().map(PathBuf::from);
        let (Some(path), Some(file)) = (path, self.file()) else { return };
        // Without a thread, or if SQLite refuses, the log is kept short within the commits.
        if self.connection.pragma_update(None, "wal_autocheckpoint", 0).is_ok() {
            self.mover = Mover::start(&path, file).ok();
        }
    }

    /// Rows of another writer that were found where this one's were to be.
    pub(crate) const fn intrusions(&self) -> u64 {
        self.intrusions
    }

    /// Has the next entry of the audit log say that so many before it are lost.
    pub(crate) const fn note_lost(&mut self, entries: u64) {
        self.audit_lost = self.audit_lost.saturating_add(entries);
    }

    /// Entries of the audit log that were dropped to make room.
    pub(crate) const fn audit_dropped(&self) -> u64 {
        self.chain.dropped
    }

    /// Has the WAL moved into the file when it is long; to be called when no batch waits. Returns
    /// what was done, once it is.
    pub(crate) fn tend(&mut self) -> Option<Tended> {
        let mover = self.mover.as_ref()?;
        let mut tended = None;
        if let Some(Done { log, passes }) = mover.take() {
            let mut rest = None;
            if log.pages >= RESTART_PAGES {
                let began = Instant::now();
                // What cannot be moved stays in the log; the next commit tells if the disk is full.
                let _ = Log::move_now(&self.connection);
                rest = Some(began.elapsed());
            }
            tended = Some(Tended { passes, rest });
        }
        if self.unmoved >= MOVE_PAGES && mover.ask() {
            self.unmoved = 0;
        }
        tended
    }

    fn move_log(&self) -> Result<(), rusqlite::Error> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    }

    /// Has blocks of records made anew, as a start has found them damaged.
    pub fn make_blocks_anew(&mut self, damaged: Vec<u64>) {
        self.blocks.make_anew(damaged);
    }

    /// Blocks of records written so far.
    pub(crate) const fn blocks_written(&self) -> u64 {
        self.blocks.written()
    }

    /// Whether a block of records is being made.
    pub(crate) const fn is_making_block(&self) -> bool {
        self.blocks.is_making()
    }

    /// Takes a block that was made, and asks for the next if its numbers were given out. It goes
    /// with the next transaction; if none is due, it has its own.
    pub(crate) fn pursue_blocks(&mut self, is_idle: bool) {
        let Some(builder) = &self.builder else { return };
        if self.blocks.is_making() && self.built.is_none() {
            match builder.take() {
                None => return,
                Some(Ok(built)) => self.built = Some(built),
                // A start reads the rows; it is tried again.
                Some(Err(_)) => self.blocks.give_up(),
            }
        }
        if self.built.is_some() && is_idle {
            // What has failed is tried again when rows are written.
            let _ = self.commit_once(&[]);
        }
        let may_write = !self.is_stuck && !self.disk_space().is_short && self.missing().is_none();
        if may_write
            && let Some(first) = self.blocks.next(self.next_seq)
            && !self.builder.as_ref().is_some_and(|builder| builder.ask(first))
        {
            self.blocks.give_up();
        }
    }

    /// Commits the batches, and a block that was made meanwhile, as one transaction.
    fn commit_once(&mut self, batches: &[Batch]) -> Result<Instant, rusqlite::Error> {
        // If this fails, the next try is without it.
        let built = self.built.take();
        let committed = self.commit_with(batches, built.as_ref());
        match built {
            Some(built) if committed.is_ok() => self.blocks.note_written(built.first),
            Some(_) => self.blocks.give_up(),
            None => {}
        }
        committed
    }

    fn commit_with(
        &mut self,
        batches: &[Batch],
        built: Option<&Built>,
    ) -> Result<Instant, rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        let most = self.options.octets_max.map(pages_of);
        // To count pages takes as long as to write a few rows.
        let before = most.map(|_| used_pages(&transaction)).transpose()?;
        write_rows(&transaction, batches, &mut self.blocks)?;
        if let Some(built) = built {
            self.blocks.write(&transaction, built)?;
        }
        if let Some(clock) = batches.iter().rev().find_map(|batch| batch.clock.as_deref()) {
            note_clock(&transaction, clock)?;
        }
        let remembered = self.remembered.append(&transaction, batches, self.options.octets_max)?;
        let mut rows_pages = self.rows_pages;
        if let Some((most, before)) = most.zip(before) {
            let used = used_pages(&transaction)?;
            rows_pages = used - self.chain.pages;
            if used > before && rows_pages > most {
                return Err(full(ROWS_FULL));
            }
        }
        let next_seq = batches.last().map_or(self.next_seq, |batch| batch.next_seq);
        let mut marked = self.marked;
        if next_seq > marked {
            marked = next_seq.saturating_add(MARKED_AHEAD);
            mark(&transaction, marked)?;
        }
        let limits = AuditLimits { pages_max: pages_of(self.options.audit_octets_max), kept: &[] };
        let entries = batches.iter().flat_map(|batch| &batch.entries);
        let mut entries = entries.map(|entry| (entry.at_micros, entry.to_text())).peekable();
        // With the time of the first that follows.
        let after = entries.peek().map(|(at, _)| *at).filter(|_| self.audit_lost > 0);
        let about_lost = after.map(|at| (at, audit::about_lost(self.audit_lost)));
        let entries = about_lost.into_iter().chain(entries);
        let chain = audit::append(&transaction, &self.chain, entries, limits)?;
        let lead = self.reserve.as_ref().map_or(0, |reserve| reserve.disk_space().reserve);
        if let Some(file) = self.lock.as_ref().and_then(|lock| lock.file.as_ref()) {
            allocate(&transaction, file, lead)?;
        }
        let written = Instant::now();
        transaction.commit()?;
        (self.chain, self.next_seq, self.marked) = (chain, next_seq, marked);
        self.rows_pages = rows_pages;
        if after.is_some() {
            self.audit_lost = 0;
        }
        self.remembered.apply(remembered);
        self.unmoved += pages(batches);
        Ok(written)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let was_full = self.mover.take().is_none();
        // Its connection is not to be the last.
        self.builder.take();
        if self.look_for_files().is_some() {
            // SQLite would delete the write-ahead log at that path, which may be another database's.
            let keeps_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = self.connection.set_db_config(keeps_log, true);
            return;
        }
        if self.next_seq < self.marked && !was_full {
            // Without it, numbers are left out, which is better than to ask for room.
            let _ = mark(&self.connection, self.next_seq);
        }
        // The lock outlives the connection, as it is declared after it.
        let _ = self.move_log();
    }
}

/// Allocates what the file will need when this transaction is moved into it from the WAL: otherwise
/// a full disk could take commits that cannot be moved, and the WAL would keep its room. While
/// the reserve is held, `lead` octets more have to be free: the WAL of deletions.
fn allocate(transaction: &Transaction<'_>, file: &File, lead: u64) -> rusqlite::Result<()> {
    let count = "PRAGMA page_count";
    let pages: i64 = transaction.prepare_cached(count)?.query_row([], |row| row.get(0))?;
    allocate_beyond(file, to_octets(pages), lead).map_err(|_| full(NO_ROOM))
}

/// Records the number of the next row, or a later one.
fn mark(connection: &Connection, next_seq: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO mark (name, value) VALUES ('next', ?1)")?
        .execute([to_row_id(next_seq)])?;
    Ok(())
}

pub(crate) fn pages_of(octets: u64) -> i64 {
    i64::try_from(octets).unwrap_or(i64::MAX) / PAGE_OCTETS
}

fn to_octets(pages: i64) -> u64 {
    u64::try_from(pages.saturating_mul(PAGE_OCTETS)).unwrap_or_default()
}

/// SQLite's error for a file at its size limit.
fn full(why: &str) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
    rusqlite::Error::SqliteFailure(code, Some(why.to_owned()))
}

/// Octets of the file that no row uses.
fn unused_octets(connection: &Connection) -> u64 {
    let pages = connection.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0));
    to_octets(pages.unwrap_or_default())
}

/// Approximate pages of WAL that a commit of these batches has made.
fn pages(batches: &[Batch]) -> i64 {
    let records = batches.iter().flat_map(|batch| &batch.records);
    let rows = records.map(|record| match record {
        RowChange::Put { body, .. } => body.len(),
        RowChange::Delete { .. } => 0,
    });
    let entries: usize = batches.iter().map(|batch| batch.entries.len()).sum();
    let octets = rows.sum::<usize>().saturating_add(entries.saturating_mul(ENTRY_OCTETS));
    COMMIT_PAGES + i64::try_from(octets).unwrap_or(i64::MAX) / PAGE_OCTETS
}

/// Stores the clocks in row 0: resources are numbered from 1.
fn note_clock(transaction: &Transaction<'_>, clock: &str) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO row (seq, body, sum) VALUES (0, ?1, ?2)";
    transaction.prepare_cached(put)?.execute(params![clock, of_row(0, clock)])?;
    Ok(())
}

/// The number that the next row will have.
fn next_seq(connection: &Connection) -> Result<u64, StoreError> {
    let next: Option<i64> = connection
        .query_row("SELECT value FROM mark WHERE name = 'next'", [], |row| row.get(0))
        .optional()?;
    Ok(next.and_then(|next| u64::try_from(next).ok()).unwrap_or(1))
}

fn read_back(connection: &Connection) -> Result<Restored, StoreError> {
    let sum = if has_checksums(connection)? { "sum" } else { "NULL" };
    let all = format!("SELECT seq, body, {sum} FROM row ORDER BY seq");
    let mut statement = connection.prepare(&all)?;
    let (mut rows, mut damaged) = (Vec::new(), Vec::new());
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let (seq, body) = stored_row(row)?;
        if body.is_none() {
            damaged.push(seq);
        }
        rows.push((seq, body.unwrap_or_default()));
    }
    // Behind the clocks and before all else.
    let clocks = rows.partition_point(|(seq, _)| *seq == 0);
    let recalled = remembered::read(connection)?;
    rows.splice(clocks..clocks, recalled.rows);
    let next_seq = next_seq(connection)?;
    Ok(Restored { rows, next_seq, damaged, remembered_damaged: recalled.unreadable })
}
