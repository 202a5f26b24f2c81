//! The thread that commits: whatever is queued goes into one transaction.

use crate::audit::Entry;
use crate::database::Database;
use gatewright_onem2m::Batch;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Batches in one transaction at most: bounds how long a commit takes, and with it how long an
/// answer waits when many are asked at once.
const GROUP_MAX: usize = 4_096;
/// Audit entries that may wait; beyond, the oldest are not dropped but the newest counted lost.
const ENTRIES_MAX: usize = 65_536;

/// What became of the batches handed over.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Report {
    /// Every batch up to this number is on disk.
    Committed(u64),
    /// The batch of this number and every later one of its epoch are refused.
    Failed {
        /// The first that is not stored.
        number: u64,
        /// What the database said.
        cause: String,
    },
}

/// What the writer did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Transactions committed.
    pub commits: u64,
    /// Batches in them.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Transactions that failed.
    pub failures: u64,
    /// Batches refused because they were made before a failure was heard of.
    pub stale: u64,
    /// Audit entries written.
    pub audited: u64,
    /// Audit entries lost because too many waited or the database refused.
    pub audit_lost: u64,
}

#[derive(Debug, Default)]
struct Queue {
    batches: Vec<Batch>,
    entries: Vec<Entry>,
    closed: bool,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

impl Shared {
    /// A panic elsewhere leaves the queue as it was between two operations: usable.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work; what there is, or nothing when the writer is closed and all is written.
    fn take(&self) -> Option<(Vec<Batch>, Vec<Entry>)> {
        let mut queue = self.lock();
        while queue.batches.is_empty() && queue.entries.is_empty() {
            if queue.closed {
                return None;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let count = queue.batches.len().min(GROUP_MAX);
        let rest = queue.batches.split_off(count);
        let batches = core::mem::replace(&mut queue.batches, rest);
        let entries = core::mem::take(&mut queue.entries);
        Some((batches, entries))
    }
}

/// Hands batches to the thread that commits. Dropped, it waits until everything is written.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    batches_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(
        database: Database,
        batches_max: usize,
        report: impl FnMut(Report) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || run(database, &theirs, report))?;
        Ok(Self { shared, batches_max, thread: Some(thread) })
    }

    /// Queues a batch.
    ///
    /// # Errors
    ///
    /// The batch itself if too many wait: its maker is to treat it as failed.
    pub fn push(&self, batch: Batch) -> Result<(), Batch> {
        let mut queue = self.shared.lock();
        if queue.batches.len() >= self.batches_max {
            return Err(batch);
        }
        queue.batches.push(batch);
        drop(queue);
        self.shared.filled.notify_one();
        Ok(())
    }

    /// Queues an entry of the audit log.
    pub fn audit(&self, entry: Entry) {
        let mut queue = self.shared.lock();
        if queue.entries.len() >= ENTRIES_MAX {
            queue.counters.audit_lost += 1;
            return;
        }
        queue.entries.push(entry);
        drop(queue);
        self.shared.filled.notify_one();
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_all();
        // The last owner may be the report itself, which runs on the thread.
        let own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if let Some(thread) = self.thread.take().filter(|thread| !own(thread)) {
            // A panic on the thread has been printed; there is nothing left to save here.
            let _ = thread.join();
        }
    }
}

fn run(mut database: Database, shared: &Shared, mut report: impl FnMut(Report)) {
    let mut refused_epoch = None;
    while let Some((mut batches, entries)) = shared.take() {
        let handed = batches.len();
        batches.retain(|batch| refused_epoch.is_none_or(|refused| batch.epoch > refused));
        let stale = to_count(handed - batches.len());
        let outcome = database.commit(&batches, &entries);
        let failure = outcome.as_ref().err().map(ToString::to_string);
        count(&mut shared.lock().counters, &batches, &entries, stale, failure.is_some());
        match (failure, batches.first(), batches.last()) {
            (None, _, Some(last)) => report(Report::Committed(last.number)),
            (Some(cause), Some(first), Some(last)) => {
                refused_epoch = Some(last.epoch);
                report(Report::Failed { number: first.number, cause });
            }
            _ => {}
        }
    }
}

fn count(counters: &mut Counters, batches: &[Batch], entries: &[Entry], stale: u64, failed: bool) {
    counters.stale += stale;
    if failed {
        counters.failures += 1;
        counters.audit_lost += to_count(entries.len());
        return;
    }
    counters.commits += 1;
    counters.batches += to_count(batches.len());
    counters.records += batches.iter().map(|batch| to_count(batch.records.len())).sum::<u64>();
    counters.audited += to_count(entries.len());
}

fn to_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
