//! The thread that writes the log's events where the description says.

use super::{EventLog, Journal, LogEntry};
use gatewright_config::{Config, Log, LogFormat, LogLevel};
use gatewright_part::{Change, Part, Staged, Unable};
use std::{
    io::{self, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// Where events are written, and which, whatever the description says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogOptions {
    /// How they are written.
    pub format: Option<LogFormat>,
    /// The least severe ones.
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

    /// How events are written for a description.
    pub fn format_for(self, described: Log) -> LogFormat {
        self.settings(described).format
    }
}

#[derive(Clone, Copy, Debug)]
struct LogSettings {
    format: LogFormat,
    level: LogLevel,
}

/// A thread that writes events until this value is dropped; then all that were logged are written.
#[derive(Debug)]
struct LogWriter {
    log: EventLog,
    thread: Option<JoinHandle<()>>,
}

impl LogWriter {
    /// Writes the events of `log` on standard error or to the journal, as `settings` says.
    fn start(log: &EventLog, settings: Arc<Mutex<LogSettings>>) -> io::Result<Self> {
        let mut reader = log.reader(Some(0), LogLevel::Debug);
        let write = move || {
            let mut journal = None;
            loop {
                let read = reader.read(PATIENCE);
                let LogSettings { format, level } = *lock(&settings);
                if read.missed > 0 {
                    let missed = read.missed;
                    write_line(
                        format,
                        &format!("{missed} events came faster than they are written"),
                    );
                }
                for entry in read.events.iter().filter(|entry| entry.event.level <= level) {
                    write_entry(entry, format, &mut journal);
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

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.log.end();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Writes an entry; what cannot be written is still in the log.
fn write_entry(entry: &LogEntry, format: LogFormat, journal: &mut Option<Journal>) {
    match format {
        LogFormat::Text => write_line(format, &entry.to_string()),
        LogFormat::Json => {
            let line = serde_json::to_string(entry).unwrap_or_default();
            let _closed = writeln!(io::stderr().lock(), "{line}");
        }
        LogFormat::Journal => {
            if journal.is_none() {
                *journal = Journal::new().ok();
            }
            // A journal that is away or full: standard error has the event instead.
            if journal.as_ref().is_none_or(|journal| journal.write(entry).is_err()) {
                write_line(LogFormat::Text, &entry.to_string());
            }
        }
        LogFormat::None => {}
    }
}

fn write_line(format: LogFormat, line: &str) {
    if matches!(format, LogFormat::Text | LogFormat::Journal) {
        let _closed = writeln!(io::stderr().lock(), "{line}");
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
