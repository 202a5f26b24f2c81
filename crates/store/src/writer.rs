//! The thread that commits: whatever is queued goes into one transaction.

use crate::database::Database;
use crate::histogram::Histogram;
use gatewright_onem2m::Batch;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Batches in one transaction at most: bounds how long a commit takes, and with it how long an
/// answer waits when many are asked at once.
const GROUP_MAX: usize = 4_096;
/// Time between the beginnings of two transactions in which nothing is that somebody hurries for:
/// a transaction costs a tenth of a millisecond of processor time whatever is in it, and thousands
/// of devices that report would else have one for every few reports.
pub const PACE: Duration = Duration::from_millis(4);
/// How long what is hurried for waits at the most for others that are to be expected: as many as the
/// last transaction had. Whoever asks again when it is answered comes by then, and a transaction for
/// the first that comes back, and another for all behind it, are twice the work.
const GATHER: Duration = Duration::from_micros(500);
/// Batches that are not to wait any longer, however patient they are.
const GROUP_ENOUGH: usize = 256;

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
    /// Audit entries that were not written, as the database refused what they came with.
    pub audit_lost: u64,
    /// Audit entries dropped to make room for later ones.
    pub audit_dropped: u64,
}

/// How long what took: where a late answer has waited.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Histograms {
    /// Batches in a transaction.
    pub batches: Histogram,
    /// Microseconds that a batch waited for the transactions before its own.
    pub waited: Histogram,
    /// Microseconds that a transaction took until its rows were written into the log's pages.
    pub written: Histogram,
    /// Microseconds that it took from then until the log was on the disk.
    pub synchronised: Histogram,
    /// Microseconds of moving the log's rest between two transactions, which then wait.
    pub rests_moved: Histogram,
    /// Microseconds of each pass that moves the log beside the transactions.
    pub passes: Histogram,
}

#[derive(Debug, Default)]
struct Queue {
    batches: Vec<Batch>,
    /// Since when each of them waits.
    since: Vec<Instant>,
    closed: bool,
    /// How many of them somebody hurries for, and how many of the last transaction's.
    hurried: usize,
    expected: usize,
    /// What the thread waits for: to tell it needlessly takes a system call each time.
    awaited: Awaited,
    counters: Counters,
    histograms: Histograms,
}

/// What the thread waits for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Awaited {
    /// It is at work.
    #[default]
    Nothing,
    /// Anything.
    Anything,
    /// What does not wait for the pace.
    Hurry,
    /// As many as are expected.
    Rest,
}

impl Queue {
    const fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether what there is does not wait for more.
    const fn is_urgent(&self) -> bool {
        let all_here = self.hurried > 0 && self.hurried >= self.expected;
        self.closed || all_here || self.batches.len() >= GROUP_ENOUGH
    }

    /// How long what there is waits for more, if the last transaction began at `last`.
    fn pause(&self, last: Option<Instant>) -> Duration {
        if self.is_urgent() {
            return Duration::ZERO;
        }
        let (pause, since) =
            if self.hurried > 0 { (GATHER, self.since.first().copied()) } else { (PACE, last) };
        since.map_or(Duration::ZERO, |since| pause.saturating_sub(since.elapsed()))
    }
}

/// What one transaction takes.
#[derive(Debug)]
struct Group {
    batches: Vec<Batch>,
    since: Vec<Instant>,
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

    /// Has the thread look, if it waits.
    fn wake(&self, mut queue: MutexGuard<'_, Queue>) {
        let is_awaited = match queue.awaited {
            Awaited::Nothing => false,
            Awaited::Anything => true,
            Awaited::Hurry => queue.hurried > 0 || queue.is_urgent(),
            Awaited::Rest => queue.is_urgent(),
        };
        if is_awaited {
            queue.awaited = Awaited::Nothing;
        }
        drop(queue);
        if is_awaited {
            self.filled.notify_one();
        }
    }

    /// Waits for work, and for more of it if the last transaction began at `last` and nobody
    /// hurries; what there is, or nothing when the writer is closed and all is written.
    fn take(&self, last: Option<Instant>) -> Option<Group> {
        let mut queue = self.lock();
        loop {
            if queue.is_empty() {
                if queue.closed {
                    return None;
                }
                queue.awaited = Awaited::Anything;
                queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause = queue.pause(last);
            if pause.is_zero() {
                break;
            }
            queue.awaited = if queue.hurried > 0 { Awaited::Rest } else { Awaited::Hurry };
            let waited = self.filled.wait_timeout(queue, pause);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.awaited = Awaited::Nothing;
        let count = queue.batches.len().min(GROUP_MAX);
        let rest = queue.batches.split_off(count);
        let batches = core::mem::replace(&mut queue.batches, rest);
        let count = count.min(queue.since.len());
        let rest = queue.since.split_off(count);
        let since = core::mem::replace(&mut queue.since, rest);
        // What is left is more than fits: it follows at once.
        let left = queue.hurried.min(queue.batches.len());
        queue.expected = if left == 0 { queue.hurried } else { 0 };
        queue.hurried = left;
        Some(Group { batches, since })
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

    /// Queues a batch that somebody hurries for: it is stored as soon as the batches before it, or
    /// at most half a millisecond later with as many others as the last transaction had.
    ///
    /// # Errors
    ///
    /// The batch itself if too many wait: its maker is to treat it as failed.
    pub fn push(&self, batch: Batch) -> Result<(), Batch> {
        self.queue(batch, true)
    }

    /// Queues a batch that may wait a moment for others, [`PACE`] at the most behind the last
    /// transaction's beginning: after a pause it is stored at once all the same.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    pub fn push_patiently(&self, batch: Batch) -> Result<(), Batch> {
        self.queue(batch, false)
    }

    fn queue(&self, batch: Batch, hurries: bool) -> Result<(), Batch> {
        let mut queue = self.shared.lock();
        if queue.batches.len() >= self.batches_max {
            return Err(batch);
        }
        queue.batches.push(batch);
        queue.since.push(Instant::now());
        queue.hurried += usize::from(hurries);
        self.shared.wake(queue);
        Ok(())
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters
    }

    /// How long what took so far.
    pub fn histograms(&self) -> Histograms {
        self.shared.lock().histograms
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        // It waits for nothing else then.
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
    let mut last = None;
    while let Some(Group { mut batches, since }) = shared.take(last) {
        let began = Instant::now();
        last = Some(began);
        let handed = batches.len();
        batches.retain(|batch| refused_epoch.is_none_or(|refused| batch.epoch > refused));
        let stale = to_count(handed - batches.len());
        let outcome = database.commit(&batches);
        let ended = Instant::now();
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let mut queue = shared.lock();
        count(&mut queue.counters, &batches, stale, failure.is_some());
        queue.counters.audit_dropped = database.audit_dropped();
        let histograms = &mut queue.histograms;
        histograms.batches.add(to_count(handed));
        for since in since {
            histograms.waited.add_time(began.saturating_duration_since(since));
        }
        if let Ok(written) = outcome {
            histograms.written.add_time(written.saturating_duration_since(began));
            histograms.synchronised.add_time(ended.saturating_duration_since(written));
        }
        drop(queue);
        match (failure, batches.first(), batches.last()) {
            (None, _, Some(last)) => report(Report::Committed(last.number)),
            (Some(cause), Some(first), Some(last)) => {
                refused_epoch = Some(last.epoch);
                report(Report::Failed { number: first.number, cause });
            }
            _ => {}
        }
        // Their answers have been let out.
        if let Some(tended) = database.tend() {
            let histograms = &mut shared.lock().histograms;
            for pass in tended.passes {
                histograms.passes.add_time(pass);
            }
            if let Some(rest) = tended.rest {
                histograms.rests_moved.add_time(rest);
            }
        }
    }
}

fn count(counters: &mut Counters, batches: &[Batch], stale: u64, failed: bool) {
    let entries = batches.iter().map(|batch| to_count(batch.entries.len())).sum::<u64>();
    counters.stale += stale;
    if failed {
        counters.failures += 1;
        counters.audit_lost += entries;
        return;
    }
    counters.commits += 1;
    counters.batches += to_count(batches.len());
    counters.records += batches.iter().map(|batch| to_count(batch.records.len())).sum::<u64>();
    counters.audited += entries;
}

fn to_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
