//! Makes blocks of records on its own thread and connection, beside the commits.

use crate::blocks::{is_whole, numbers_from};
use crate::sqlite::{has_checksums, to_row_id};
use core::fmt;
use gatewright_onem2m::{NameKey, RecordBlock};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

/// A block that was made, and the rows of its numbers that it does not cover.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) first: u64,
    pub(crate) block: RecordBlock,
    pub(crate) singles: Vec<u64>,
}

/// The rows of a block's numbers, as they are at one moment.
#[derive(Debug)]
pub(crate) struct BuiltBlock {
    built: Built,
    numbers: Vec<u64>,
}

impl BuiltBlock {
    /// Makes the block of the rows with the numbers from `first` on.
    pub(crate) fn read(
        connection: &Connection,
        first: u64,
        key: NameKey,
    ) -> rusqlite::Result<Self> {
        let sum = if has_checksums(connection)? { "sum" } else { "NULL" };
        let some =
            format!("SELECT seq, body, {sum} FROM row WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq");
        let mut some = connection.prepare_cached(&some)?;
        let numbers = numbers_from(first);
        let bounds = [to_row_id(numbers.start), to_row_id(numbers.end.saturating_sub(1))];
        let mut found = some.query(bounds)?;
        let (mut all, mut whole) = (Vec::new(), Vec::new());
        while let Some(row) = found.next()? {
            let seq = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            all.push(seq);
            let body = row.get_ref(1)?.as_str().ok();
            let sum: Option<i64> = row.get(2)?;
            // One that is damaged is read and reported by each start.
            let body = body.filter(|body| is_whole(seq, body, sum));
            whole.extend(body.map(|body| (seq, Arc::from(body))));
        }
        let block = RecordBlock::of_rows(first, key, whole);
        let is_single = |seq: &u64| !block.present().has(seq - first);
        let singles = all.iter().copied().filter(is_single).collect();
        Ok(Self { built: Built { first, block, singles }, numbers: all })
    }

    /// What is to be found of each row: of an instance what its record says.
    pub(crate) fn into_summaries(self) -> BTreeMap<u64, Option<String>> {
        let mut summaries: BTreeMap<_, _> = self.numbers.iter().map(|seq| (*seq, None)).collect();
        summaries.extend(self.built.block.summaries().map(|(seq, text)| (seq, Some(text))));
        summaries
    }
}

/// The thread that makes blocks. Dropping it waits for the block under way.
pub(crate) struct BlockBuilder {
    wanted: Option<SyncSender<u64>>,
    built: Receiver<rusqlite::Result<Built>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for BlockBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockBuilder").finish_non_exhaustive()
    }
}

impl BlockBuilder {
    /// Starts a builder with its own connection to the database at `path`.
    pub(crate) fn start(path: &Path, key: NameKey) -> io::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(io::Error::other)?;
        let (wanted, firsts) = sync_channel::<u64>(1);
        let (finished, built) = sync_channel(1);
        let thread = thread::Builder::new().name("store-block".to_owned()).spawn(move || {
            while let Ok(first) = firsts.recv() {
                let built = BuiltBlock::read(&connection, first, key).map(|it| it.built);
                if finished.send(built).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { wanted: Some(wanted), built, thread: Some(thread) })
    }

    /// Asks for a block; returns whether it will be made.
    pub(crate) fn ask(&self, first: u64) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.try_send(first).is_ok())
    }

    /// The block that was asked for, once it is made; the outer error if the thread has ended.
    pub(crate) fn take(&self) -> Option<rusqlite::Result<Built>> {
        match self.built.try_recv() {
            Ok(built) => Some(built),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(rusqlite::Error::QueryReturnedNoRows)),
        }
    }
}

impl Drop for BlockBuilder {
    fn drop(&mut self) {
        self.wanted.take();
        if let Some(thread) = self.thread.take() {
            // A panic on the thread has been printed; without a block, rows are read.
            let _ = thread.join();
        }
    }
}
