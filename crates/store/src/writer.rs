//! Writer thread: commits all queued batches as one transaction.

use crate::database::Database;
use crate::reserve::DiskSpace;
use gatewright_histogram::Histogram;
use gatewright_onem2m::Batch;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Batches in one transaction at most: limits the duration of a commit, and so the delay of an
/// answer under load.
const GROUP_MAX: usize = 4_096;
/// Time between the starts of two transactions without urgent batches. A transaction costs a tenth
/// of a millisecond of processor time whatever its size; without a pause, thousands of reporting
/// devices would cause one for every few reports.
pub const PACE: Duration = Duration::from_millis(4);
/// Longest wait of an urgent batch for further ones: as many as the last transaction had are
/// expected, since originators that were just answered ask again. Separate transactions for the
/// first of them and for the rest are twice the work.
const GATHER: Duration = Duration::from_micros(500);
/// Interval of looking for a block that is being made while nothing is stored.
const BLOCK_LOOK: Duration = Duration::from_millis(20);
/// Time from which a transaction is slow: most take milliseconds.
const SLOW_FROM: Duration = Duration::from_secs(1);
/// Slow transactions within [`SLOW_WITHIN`] that are told: a disk stops for a moment now and then.
const SLOW_TOLD: usize = 3;
const SLOW_WITHIN: Duration = Duration::from_mins(1);
/// Time from which a transaction that runs is told.
const STUCK_FROM: Duration = Duration::from_secs(5);
/// Number of patient batches from which a transaction starts at once.
const GROUP_ENOUGH: usize = 256;

/// Result of queued batches.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WriteReport {
    /// Every batch up to this number is on disk.
    Committed(u64),
    /// The batch of this number and every later one of its epoch are refused.
    Failed {
        /// The first that is not stored.
        number: u64,
        /// The database's error.
        cause: String,
    },
    /// Whether only deletions and audit entries are stored from now on, as the disk is full.
    Short(bool),
}

/// Counters of the writer.
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
    /// Batches refused because they were made before a failure was known.
    pub stale: u64,
    /// Audit entries written.
    pub audited: u64,
    /// Audit entries lost because their transaction failed.
    pub audit_lost: u64,
    /// Audit entries dropped to make room for later ones.
    pub audit_dropped: u64,
    /// Rows of another writer that were found where this one's were to be.
    pub intrusions: u64,
    /// Blocks of records written, which a start reads in the place of rows.
    pub blocks: u64,
}

/// Durations in the writer, in nanoseconds: where a late answer has waited.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Histograms {
    /// Batches per transaction.
    pub batches: Histogram,
    /// Time that batches waited for earlier transactions.
    pub waited: Histogram,
    /// From the begin of a transaction until its rows were written into the WAL's pages.
    pub written: Histogram,
    /// From then until the WAL was on disk.
    pub synchronised: Histogram,
    /// Moving the WAL's rest between two transactions, which wait meanwhile.
    pub rests_moved: Histogram,
    /// Each pass that moves the WAL beside the transactions.
    pub passes: Histogram,
}

#[derive(Debug, Default)]
struct Queue {
    batches: Vec<Batch>,
    /// Arrival time of each.
    since: Vec<Instant>,
    closed: bool,
    /// Urgent batches in the queue, and those in the last transaction.
    hurried: usize,
    expected: usize,
    /// Condition that the thread waits for: a needless wake-up costs a system call.
    awaited: Awaited,
    counters: Counters,
    histograms: Histograms,
    disk_space: DiskSpace,
    slowness: Slowness,
    /// Which of the database's files is not at its path any more.
    missing: Option<String>,
}

/// Whether transactions take long.
#[derive(Clone, Debug, Default)]
struct Slowness {
    /// When the present transaction began.
    began: Option<Instant>,
    /// The last slow ones, at most [`SLOW_TOLD`]: when each ended, and the time that it took.
    last: VecDeque<(Instant, Duration)>,
}

impl Slowness {
    /// Notes the end of the present transaction.
    fn end(&mut self, now: Instant) {
        let took = self.began.take().map(|began| now.saturating_duration_since(began));
        if let Some(took) = took.filter(|took| *took >= SLOW_FROM) {
            self.last.push_back((now, took));
            let before = self.last.len().saturating_sub(SLOW_TOLD);
            self.last.drain(..before);
        }
    }

    /// The time that transactions take, if the disk is slow.
    fn told(&self, now: Instant) -> Option<Duration> {
        let present = self.began.map(|began| now.saturating_duration_since(began));
        let since_first = self.last.front().map(|(ended, _)| now.saturating_duration_since(*ended));
        let are_many =
            self.last.len() == SLOW_TOLD && since_first.is_some_and(|since| since < SLOW_WITHIN);
        let longest = self.last.iter().map(|(_, took)| *took).max().filter(|_| are_many);
        present.filter(|took| *took >= STUCK_FROM).max(longest)
    }
}

/// Condition that the thread waits for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Awaited {
    /// None: it is working.
    #[default]
    Nothing,
    /// Any batch.
    Anything,
    /// An urgent batch.
    Hurry,
    /// As many urgent batches as are expected.
    Rest,
}

impl Queue {
    const fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether the queued batches are to be committed without waiting for more.
    const fn is_urgent(&self) -> bool {
        let all_here = self.hurried > 0 && self.hurried >= self.expected;
        self.closed || all_here || self.batches.len() >= GROUP_ENOUGH
    }

    /// Wait for further batches, if the last transaction began at `last`.
    fn pause(&self, last: Option<Instant>) -> Duration {
        if self.is_urgent() {
            return Duration::ZERO;
        }
        let (pause, since) =
            if self.hurried > 0 { (GATHER, self.since.first().copied()) } else { (PACE, last) };
        since.map_or(Duration::ZERO, |since| pause.saturating_sub(since.elapsed()))
    }
}

/// Content of one transaction.
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
    /// A poisoned lock is safe here: the queue stays consistent between operations.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, if its condition holds.
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

    /// Waits for batches, and for further ones if the last transaction began at `last` and none is
    /// urgent; an empty group after `patience`, and `None` when the writer is closed and everything
    /// is written.
    fn take(&self, last: Option<Instant>, patience: Option<Duration>) -> Option<Group> {
        let mut queue = self.lock();
        let since = Instant::now();
        loop {
            if queue.is_empty() {
                if queue.closed {
                    return None;
                }
                let left = patience.map_or(Duration::MAX, |it| it.saturating_sub(since.elapsed()));
                if left.is_zero() {
                    return Some(Group { batches: Vec::new(), since: Vec::new() });
                }
                queue.awaited = Awaited::Anything;
                let waited = self.filled.wait_timeout(queue, left);
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
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
        queue.slowness.began = Some(Instant::now());
        Some(Group { batches, since })
    }
}

/// Passes batches to the committing thread. Dropping it waits until everything is written.
#[derive(Debug)]
pub struct BatchWriter {
    shared: Arc<Shared>,
    batches_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl BatchWriter {
    pub(crate) fn start(
        database: Database,
        batches_max: usize,
        report: impl FnMut(WriteReport) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || run(database, &theirs, report))?;
        Ok(Self { shared, batches_max, thread: Some(thread) })
    }

    /// Queues an urgent batch: it is stored right after the batches before it, or at most half a
    /// millisecond later with as many others as the last transaction had.
    ///
    /// # Errors
    ///
    /// The batch itself if the queue is full: the caller has to treat it as failed.
    pub fn push(&self, batch: Batch) -> Result<(), Batch> {
        self.queue(batch, true)
    }

    /// Queues a patient batch, stored at most [`PACE`] after the start of the last transaction:
    /// after a pause it is stored at once.
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

    /// Counters so far.
    pub fn counters(&self) -> Counters {
        self.shared.lock().counters
    }

    /// The disk's free space and the reserve, as seen at most ten seconds ago.
    pub fn disk_space(&self) -> DiskSpace {
        self.shared.lock().disk_space
    }

    /// Which of the database's files was removed, moved or replaced while it is open, as seen at
    /// most ten seconds ago: nothing is stored then.
    pub fn missing(&self) -> Option<String> {
        self.shared.lock().missing.clone()
    }

    /// The time that transactions take, if the disk is slow: the present one takes five seconds or
    /// more, or three within the last minute took a second or more. Answers wait for them.
    pub fn slow_commit(&self) -> Option<Duration> {
        self.shared.lock().slowness.told(Instant::now())
    }

    /// Durations so far.
    pub fn histograms(&self) -> Histograms {
        self.shared.lock().histograms.clone()
    }
}

impl Drop for BatchWriter {
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

fn run(mut database: Database, shared: &Shared, mut report: impl FnMut(WriteReport)) {
    let mut refused_epoch = None;
    let mut last = None;
    let mut was_short = database.disk_space().is_short;
    shared.lock().disk_space = database.disk_space();
    if was_short {
        report(WriteReport::Short(true));
    }
    loop {
        let patience = database
            .room_due()
            .map(|due| if database.is_making_block() { due.min(BLOCK_LOOK) } else { due });
        let Some(group) = shared.take(last, patience) else { return };
        let is_idle = group.batches.is_empty();
        if group.batches.is_empty() {
            // Each commit looks for them.
            database.look_for_files();
        } else {
            last = Some(Instant::now());
            store(&mut database, shared, (group, &mut refused_epoch), &mut report);
        }
        database.pursue_room();
        let disk_space = database.disk_space();
        let missing = database.missing().map(str::to_owned);
        {
            let mut queue = shared.lock();
            (queue.disk_space, queue.missing) = (disk_space, missing);
        }
        if disk_space.is_short != was_short {
            was_short = disk_space.is_short;
            report(WriteReport::Short(was_short));
        }
        // Their answers have been let out.
        if let Some(tended) = database.tend() {
            let histograms = &mut shared.lock().histograms;
            for pass in tended.passes {
                histograms.passes.add(pass);
            }
            if let Some(rest) = tended.rest {
                histograms.rests_moved.add(rest);
            }
        }
        database.pursue_blocks(is_idle);
        shared.lock().counters.blocks = database.blocks_written();
    }
}

/// Commits a group, and reports on it.
fn store(
    database: &mut Database,
    shared: &Shared,
    (group, refused_epoch): (Group, &mut Option<u64>),
    report: &mut impl FnMut(WriteReport),
) {
    let Group { mut batches, since } = group;
    let began = Instant::now();
    let handed = batches.len();
    batches.retain(|batch| refused_epoch.is_none_or(|refused| batch.epoch > refused));
    let stale = to_count(handed - batches.len());
    let refused = batches.split_off(database.admitted(&batches).min(batches.len()));
    let outcome = if batches.is_empty() { Ok(began) } else { database.commit(&batches) };
    let ended = Instant::now();
    let failure = outcome.as_ref().err().map(ToString::to_string);
    let mut queue = shared.lock();
    queue.slowness.end(ended);
    queue.counters.stale += stale;
    let lost_before = queue.counters.audit_lost;
    if !batches.is_empty() {
        count(&mut queue.counters, &batches, failure.is_some());
    }
    if !refused.is_empty() && failure.is_none() {
        count(&mut queue.counters, &refused, true);
    }
    database.note_lost(queue.counters.audit_lost - lost_before);
    queue.counters.audit_dropped = database.audit_dropped();
    queue.counters.intrusions = database.intrusions();
    queue.missing = database.missing().map(str::to_owned);
    let histograms = &mut queue.histograms;
    histograms.batches.add(to_count(handed));
    for since in since {
        histograms.waited.add(began.saturating_duration_since(since));
    }
    if let Ok(written) = outcome {
        histograms.written.add(written.saturating_duration_since(began));
        histograms.synchronised.add(ended.saturating_duration_since(written));
    }
    drop(queue);
    if let (Some(cause), Some(first), Some(last)) =
        (&failure, batches.first(), refused.last().or(batches.last()))
    {
        *refused_epoch = Some(last.epoch);
        report(WriteReport::Failed { number: first.number, cause: cause.clone() });
        return;
    }
    if let Some(last) = batches.last() {
        report(WriteReport::Committed(last.number));
    }
    if let (Some(first), Some(last)) = (refused.first(), refused.last()) {
        *refused_epoch = Some(last.epoch);
        let cause = Database::refusal().to_string();
        report(WriteReport::Failed { number: first.number, cause });
    }
}

fn count(counters: &mut Counters, batches: &[Batch], failed: bool) {
    let entries = batches.iter().map(|batch| to_count(batch.entries.len())).sum::<u64>();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_transactions_are_told_if_they_are_several_and_one_that_does_not_end() {
        let (mut slowness, begin) = (Slowness::default(), Instant::now());
        let at = |millis| begin + Duration::from_millis(millis);
        let take = |slowness: &mut Slowness, from, to| {
            slowness.began = Some(at(from));
            slowness.end(at(to));
            slowness.told(at(to))
        };
        assert_eq!(slowness.told(at(0)), None);
        slowness.began = Some(begin);
        assert_eq!(slowness.told(at(4_999)), None);
        assert_eq!(slowness.told(at(5_000)), Some(Duration::from_secs(5)));
        assert_eq!(take(&mut slowness, 0, 5_500), None, "one is none");
        assert_eq!(take(&mut slowness, 6_000, 6_999), None);
        assert_eq!(take(&mut slowness, 7_000, 8_000), None);
        assert_eq!(take(&mut slowness, 9_000, 10_200), Some(Duration::from_millis(5_500)));
        assert_eq!(take(&mut slowness, 11_000, 12_000), Some(Duration::from_millis(1_200)));
        // The first of these three ended at 8 s.
        assert_eq!(slowness.told(at(67_999)), Some(Duration::from_millis(1_200)));
        assert_eq!(slowness.told(at(68_000)), None);
    }
}
