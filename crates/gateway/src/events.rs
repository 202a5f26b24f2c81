//! The event log: the latest events of all parts in one order, for any number of readers.
//!
//! Every event has a number. Readers ask for what follows a number: the control socket's clients,
//! the writer on standard error and that of the journal. A log waits for no reader; whoever reads
//! too slowly learns how many events were dropped meanwhile. A kind of event that comes too often is
//! logged at a limited rate, and the log says how many of it were left out.

mod journal;
mod ring;
mod watch;
mod writer;

use journal::Journal;
pub(crate) use ring::in_rfc3339;
pub use ring::{EventCount, LogEntry};
pub(crate) use watch::Watcher;
pub use writer::LogOptions;
pub(crate) use writer::LogPart;

use gatewright_part::{EventSink, LogEvent, LogLevel};
use ring::Ring;
use std::{
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

/// The event log of a gateway. A clone is the same log.
#[derive(Clone)]
pub struct EventLog(Arc<Shared>);

struct Shared {
    ring: Mutex<Ring>,
    more: Condvar,
    began: Instant,
    /// The same moment on the wall clock, and this process.
    run: String,
}

impl Default for EventLog {
    fn default() -> Self {
        let (ring, more) = (Mutex::default(), Condvar::new());
        let run = format!("{}/{}", in_rfc3339(SystemTime::now()), std::process::id());
        Self(Arc::new(Shared { ring, more, began: Instant::now(), run }))
    }
}

impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventLog").field(&self.lock().last()).finish()
    }
}

impl EventLog {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs an event, unless its kind has reached its rate limit.
    pub fn log(&self, event: LogEvent) {
        let now = (self.0.began.elapsed(), SystemTime::now());
        self.lock().log(event, now);
        self.0.more.notify_all();
    }

    /// The entrance of this log, for a part.
    pub fn sink(&self) -> EventSink {
        let log = self.clone();
        EventSink::new(move |event| log.log(event))
    }

    /// The numbers of events by kind since the start.
    pub fn counts(&self) -> Vec<EventCount> {
        self.lock().counts()
    }

    /// What tells this log from that of another run, whose numbers begin anew.
    pub fn run(&self) -> &str {
        &self.0.run
    }

    /// A reader of the events after the number `after`, or of all that are kept. No event has had a
    /// number beyond the last one: that is of another run, and the reader has read none of this one.
    pub fn reader(&self, after: Option<u64>, level: LogLevel) -> EventReader {
        let (first, last) = {
            let ring = self.lock();
            (ring.first(), ring.last())
        };
        let after = after.filter(|after| *after <= last);
        let next = after.map_or(first, |after| after.saturating_add(1));
        EventReader { log: self.clone(), next, level }
    }

    /// Ends the log: every reader gets what it has not read, and then knows.
    pub(crate) fn end(&self) {
        self.lock().end();
        self.0.more.notify_all();
    }
}

/// A reader of an event log with its own position.
#[derive(Clone, Debug)]
pub struct EventReader {
    log: EventLog,
    next: u64,
    level: LogLevel,
}

/// Events that the reader has not read before.
#[derive(Clone, Debug, Default)]
pub struct ReadEvents {
    /// The events, the oldest first.
    pub events: Vec<Arc<LogEntry>>,
    /// Number of events of all levels that were dropped before this reader read them.
    pub missed: u64,
    /// Whether the log has ended.
    pub ended: bool,
}

impl EventReader {
    /// Reads the next events, and waits at most `patience` for the first.
    pub fn read(&mut self, patience: Duration) -> ReadEvents {
        let deadline = Instant::now() + patience;
        let mut ring = self.log.lock();
        loop {
            ring.report_suppressed((self.log.0.began.elapsed(), SystemTime::now()));
            let mut read = ring.after(self.next);
            self.next = ring.last() + 1;
            read.events.retain(|entry| entry.event.level <= self.level);
            let left = deadline.saturating_duration_since(Instant::now());
            if !read.events.is_empty() || read.missed > 0 || read.ended || left.is_zero() {
                return read;
            }
            let waited = self.log.0.more.wait_timeout(ring, left.min(LOOK));
            ring = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Time after which a waiting reader looks whether suppressed events are to be reported.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn event(kind: &'static str, level: LogLevel) -> LogEvent {
        LogEvent::new(level, "links", kind, "it happened")
    }

    #[test]
    fn a_reader_waits_for_the_next_event_and_for_the_end() {
        let log = EventLog::default();
        log.log(event("first", LogLevel::Info));
        let mut reader = log.reader(None, LogLevel::Info);
        assert_eq!(reader.read(Duration::ZERO).events.len(), 1);
        let reads = thread::spawn(move || {
            let read = reader.read(Duration::from_mins(1));
            (read.events[0].sequence, reader.read(Duration::from_mins(1)).ended)
        });
        log.log(event("detail", LogLevel::Debug));
        log.log(event("second", LogLevel::Error));
        let mut late = log.reader(Some(2), LogLevel::Debug);
        assert_eq!(late.read(Duration::ZERO).events[0].event.kind, "second");
        let sequences = |after| {
            let read = log.reader(Some(after), LogLevel::Debug).read(Duration::ZERO);
            read.events.iter().map(|entry| entry.sequence).collect::<Vec<_>>()
        };
        assert_eq!(sequences(3), [0; 0], "all of this run are read");
        assert_eq!(sequences(5000), [1, 2, 3], "a number of another run");
        log.end();
        assert_eq!(reads.join().unwrap(), (3, true));
    }
}
