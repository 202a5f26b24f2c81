//! The thread that writes the log's events where the description says.

use super::{EventLog, Journal, LogEntry};
use crate::gateway::about;
use gatewright_config::{Config, Log, LogFormat, LogLevel};
use gatewright_part::{Change, LogEvent, Part, Staged, Unable};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

/// Destination and severity of events; they override the description.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogOptions {
    /// Their format.
    pub format: Option<LogFormat>,
    /// The lowest severity to write.
    pub level: Option<LogLevel>,
    /// The format if neither this nor the description names one; the journal if standard error
    /// leads there, else text, if not given.
    pub default_format: Option<LogFormat>,
}

impl LogOptions {
    fn settings(self, described: Log) -> LogSettings {
        let usual = || {
            let journal = Journal::has_stderr();
            let usual = if journal { LogFormat::Journal } else { LogFormat::Text };
            self.default_format.unwrap_or(usual)
        };
        LogSettings {
            format: self.format.or(described.format).unwrap_or_else(usual),
            level: self.level.or(described.level).unwrap_or_default(),
        }
    }

    /// The format of written events for a description.
    pub fn format_for(self, described: Log) -> LogFormat {
        self.settings(described).format
    }
}

#[derive(Clone, Copy, Debug)]
struct LogSettings {
    format: LogFormat,
    level: LogLevel,
}

/// A thread that writes events until this value is dropped. It then writes the remaining events; if
/// their reader is stuck, the thread is detached.
#[derive(Debug)]
struct LogWriter {
    log: EventLog,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    /// Writes the events of `log` on standard error or to the journal, as `settings` says.
    fn start(log: &EventLog, settings: Arc<Mutex<LogSettings>>) -> io::Result<Self> {
        let (mut reader, own) = (log.reader(Some(0), LogLevel::Debug), log.clone());
        let write = move || {
            let (mut out, mut losses) = (Out::default(), Losses::default());
            loop {
                let read = reader.read(PATIENCE);
                let LogSettings { format, level } = *lock(&settings);
                if read.missed > 0 {
                    let missed = read.missed;
                    let line = format!("{missed} events came faster than they are written");
                    let _told_below = out.write_line(format, &line);
                }
                for entry in read.events.iter().filter(|entry| entry.event.level <= level) {
                    let written = out.write(entry, format);
                    // It is written, or lost and counted, like any other.
                    if let Some(event) = losses.take(written) {
                        own.log(event);
                    }
                }
                if read.ended {
                    return;
                }
            }
        };
        let thread = Some(Builder::new().name("log".to_owned()).spawn(write)?);
        Ok(Self { log: log.clone(), thread })
    }
}

/// How long the thread waits for an event before it looks around.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long the last events may take to be written.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.log.end();
        if let Some(thread) = self.thread.take() {
            let end = Instant::now() + ENDS_WITHIN;
            while !thread.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Events lost since the last successful write: the disk is full, or the pipe has no reader.
#[derive(Debug, Default)]
struct Losses {
    count: u64,
}

impl Losses {
    /// The event that reports the first lost event, and the one that reports the end of the losses.
    fn take(&mut self, written: io::Result<()>) -> Option<LogEvent> {
        match (written, self.count) {
            (Ok(()), 0) => None,
            (Ok(()), lost) => {
                self.count = 0;
                let text = format!("events are written again; {lost} were not");
                Some(about(LogLevel::Info, "log-written", text).with("lost", lost))
            }
            (Err(error), 0) => {
                self.count = 1;
                let text = format!(
                    "events cannot be written: {error}; the gateway goes on, and `gatewright events` \
                     shows them; look at the disk that standard error is written to"
                );
                Some(about(LogLevel::Error, "log-not-written", text))
            }
            (Err(_), lost) => {
                self.count = lost.saturating_add(1);
                None
            }
        }
    }
}

/// Where events are written.
#[derive(Debug, Default)]
struct Out {
    /// Standard error. It is a file of our own, as a write that waits for a reader would keep the
    /// lock of the process's, and all others would wait, too.
    stderr: Option<File>,
    journal: Option<Journal>,
}

impl Out {
    /// Writes an entry; one that cannot be written remains in the log.
    fn write(&mut self, entry: &LogEntry, format: LogFormat) -> io::Result<()> {
        match format {
            LogFormat::Text => self.write_line(format, &entry.to_string()),
            LogFormat::Json => self.put(&serde_json::to_string(entry).unwrap_or_default()),
            LogFormat::Journal => {
                if self.journal.is_none() {
                    self.journal = Journal::new().ok();
                }
                // A journal that is away or full: standard error has the event instead.
                if self.journal.as_ref().is_none_or(|journal| journal.write(entry).is_err()) {
                    return self.write_line(LogFormat::Text, &entry.to_string());
                }
                Ok(())
            }
            LogFormat::None => Ok(()),
        }
    }

    fn write_line(&mut self, format: LogFormat, line: &str) -> io::Result<()> {
        if matches!(format, LogFormat::Text | LogFormat::Journal) {
            self.put(line)?;
        }
        Ok(())
    }

    /// Writes a line at once: lines of others come before it or after it.
    fn put(&mut self, line: &str) -> io::Result<()> {
        if self.stderr.is_none() {
            self.stderr = Some(io::stderr().as_fd().try_clone_to_owned()?.into());
        }
        let Some(stderr) = &mut self.stderr else { return Ok(()) };
        stderr.write_all(format!("{line}\n").as_bytes())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The writer as a part: a reload changes where it writes, and the numbers of events go on.
#[derive(Debug)]
pub(crate) struct LogPart {
    options: LogOptions,
    settings: Arc<Mutex<LogSettings>>,
    writer: Mutex<Option<LogWriter>>,
}

impl LogPart {
    /// Writes the events of `log`, as `options` or else `described` say.
    pub(crate) fn start(log: &EventLog, options: LogOptions, described: Log) -> io::Result<Self> {
        let settings = Arc::new(Mutex::new(options.settings(described)));
        let writer = Mutex::new(Some(LogWriter::start(log, Arc::clone(&settings))?));
        Ok(Self { options, settings, writer })
    }

    /// Sets the lowest severity that is written; the next reload sets it anew.
    pub(crate) fn set_level(&self, level: LogLevel) {
        lock(&self.settings).level = level;
    }
}

impl Part for LogPart {
    fn name(&self) -> &'static str {
        "log"
    }

    fn differences(&self, old: &Config, new: &Config) -> Vec<Change> {
        crate::difference::by_key(old, new, "log")
    }

    fn stage(&self, _: &Config, new: &Config) -> Result<Box<dyn Staged>, Unable> {
        let new = self.options.settings(new.log);
        Ok(Box::new(StagedSettings { settings: Arc::clone(&self.settings), new }))
    }

    fn stop(&self) {
        let writer = lock(&self.writer).take();
        drop(writer);
    }
}

struct StagedSettings {
    settings: Arc<Mutex<LogSettings>>,
    new: LogSettings,
}

impl Staged for StagedSettings {
    fn commit(self: Box<Self>) -> Result<Vec<Change>, Unable> {
        *lock(&self.settings) = self.new;
        Ok(Vec::new())
    }

    fn undo(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event when it begins, one when it is over, whatever the number between.
    #[test]
    fn lost_events_are_told_once_and_counted() {
        let mut losses = Losses::default();
        let full = || Err(io::ErrorKind::StorageFull.into());
        assert_eq!(losses.take(Ok(())), None);
        assert_eq!(losses.take(full()).unwrap().kind, "log-not-written");
        // That event itself is lost, too.
        assert!((0..4).all(|_| losses.take(full()).is_none()));
        let over = losses.take(Ok(())).unwrap();
        assert_eq!((over.kind, over.text.contains("; 5 were not")), ("log-written", true));
        assert_eq!(losses.take(Ok(())), None);
    }
}
