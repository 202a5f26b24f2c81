//! Events that parts report to the gateway's event log.

use gatewright_config::LogLevel;
use serde::{Serialize, Serializer};
use std::{fmt, sync::Arc};

/// An event of a part: something that happened, as operators read it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LogEvent {
    /// Its severity.
    pub level: LogLevel,
    /// The part that reports it.
    pub part: &'static str,
    /// Its kind: words of lower-case letters with `-` between them, as `link-down`.
    pub kind: &'static str,
    /// The values in `text`, by name.
    #[serde(serialize_with = "by_name")]
    pub fields: Vec<(&'static str, String)>,
    /// What happened, in sentences: what, why, and what to do about it where something can be done.
    pub text: String,
}

impl LogEvent {
    /// An event without fields.
    pub fn new(
        level: LogLevel,
        part: &'static str,
        kind: &'static str,
        text: impl Into<String>,
    ) -> Self {
        Self { level, part, kind, fields: Vec::new(), text: text.into() }
    }

    /// The event with one more field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }
}

/// Fields as a map.
pub(crate) fn by_name<S: Serializer>(
    fields: &[(&'static str, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|(name, value)| (name, value)))
}

/// The entrance of an event log. A clone leads to the same log; the default one leads nowhere.
#[derive(Clone, Default)]
pub struct EventSink(Option<Arc<dyn Fn(LogEvent) + Send + Sync>>);

impl EventSink {
    /// Passes each event to `log`, which must not block.
    pub fn new(log: impl Fn(LogEvent) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(log)))
    }

    /// Logs an event.
    pub fn log(&self, event: LogEvent) {
        if let Some(log) = &self.0 {
            log(event);
        }
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventSink").field(&self.0.is_some()).finish()
    }
}

/// A value of a part's report whose changes are events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Watched {
    /// The name of the word or counter in the report.
    pub name: &'static str,
    /// Which change is an event.
    pub when: When,
    /// The severity.
    pub level: LogLevel,
    /// The kind of the event.
    pub kind: &'static str,
    /// The first sentence of the event's text.
    pub text: &'static str,
}

/// The change of a watched value that is an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// A counter grows.
    Grows,
    /// A word appears. Its disappearance is an event of level info.
    Appears,
    /// A word changes.
    Changes,
}
