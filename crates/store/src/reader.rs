//! Reads rows on its own thread and connection, beside the commits.
//!
//! SQLite's write-ahead log gives a reader all that was committed when it begins; it waits for no
//! commit, and none waits for it.

use crate::checksum::of_row;
use crate::sqlite::{has_checksums, to_row_id};
use core::fmt;
use gatewright_onem2m::{Damage, ReadError, ReadId, ReadRow};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Statement};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Reads that wait for the thread: the CSE has one under way at a time.
const READS_MAX: usize = 4;

/// Result of a read: rows with their numbers, or why none could be read.
pub type ReadReport = (ReadId, Result<Vec<ReadRow>, ReadError>);

/// Rows to be read.
#[derive(Debug)]
struct Read {
    id: ReadId,
    rows: Vec<u64>,
}

/// Reads rows of a database that is being written. Dropping it waits for the read under way.
pub struct RowReader {
    reads: Option<SyncSender<Read>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for RowReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl RowReader {
    /// Starts a reader of the database at `path`, which reports each read on its thread.
    pub(crate) fn start(
        path: &Path,
        report: impl FnMut(ReadReport) + Send + 'static,
    ) -> io::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(io::Error::other)?;
        let (sender, reads) = sync_channel(READS_MAX);
        let thread = thread::Builder::new()
            .name("store-read".to_owned())
            .spawn(move || run(&connection, &reads, report))?;
        Ok(Self { reads: Some(sender), thread: Some(thread) })
    }

    /// Queues a read. Returns whether it has room: otherwise it is not reported.
    pub fn read(&self, id: ReadId, rows: Vec<u64>) -> bool {
        self.reads.as_ref().is_some_and(|reads| reads.try_send(Read { id, rows }).is_ok())
    }
}

impl Drop for RowReader {
    fn drop(&mut self) {
        self.reads.take();
        // The last owner may be the report itself, which runs on the thread.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !own(thread)) {
            // A panic on the thread has been printed; nothing is lost but its answers.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, reads: &Receiver<Read>, mut report: impl FnMut(ReadReport)) {
    while let Ok(Read { id, rows }) = reads.recv() {
        let found = read_rows(connection, &rows);
        report((id, found.map_err(|error| ReadError(error.to_string()))));
    }
}

/// Reads rows within one transaction.
fn read_rows(connection: &Connection, rows: &[u64]) -> rusqlite::Result<Vec<ReadRow>> {
    let transaction = connection.unchecked_transaction()?;
    let sum = if has_checksums(connection)? { "sum" } else { "NULL" };
    let one = format!("SELECT body, {sum} FROM row WHERE seq = ?1");
    let mut one = transaction.prepare_cached(&one)?;
    rows.iter().map(|&seq| Ok((seq, read_row(&mut one, seq)?))).collect()
}

fn read_row(one: &mut Statement<'_>, seq: u64) -> rusqlite::Result<Result<Arc<str>, Damage>> {
    let found = one
        .query_row([to_row_id(seq)], |row| {
            let sum: Option<i64> = row.get(1)?;
            // What is no text has been damaged, too.
            let body = row.get_ref(0)?.as_str().ok();
            let body = body.filter(|body| sum.is_none_or(|sum| sum == of_row(seq, body)));
            Ok(body.map(Arc::from).ok_or(Damage::Checksum))
        })
        .optional();
    match found {
        Ok(found) => Ok(found.unwrap_or(Err(Damage::Missing))),
        Err(error) if is_damage(&error) => Ok(Err(Damage::Checksum)),
        Err(error) => Err(error),
    }
}

/// Whether a page of the file is damaged: other rows can be read.
fn is_damage(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt)
}
