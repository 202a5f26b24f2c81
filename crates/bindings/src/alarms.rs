//! Alarms for operators: raised once when a cause begins, cleared once when it has gone for a while.
//!
//! [`Alarms`] is a pure machine: observations and the time in, changes out. `alarms/container.rs`
//! stores the changes as instances that operators read and subscribe to; `services/alarms.rs`
//! observes the causes.

pub(crate) mod container;

use core::fmt;
use core::time::Duration;
use gatewright_onem2m::Timestamp;
use gatewright_part::LogLevel;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Subjects of one alarm that are raised at the same time; further ones are counted.
pub(crate) const SUBJECTS_MAX: usize = 64;
/// Time that a cause must have gone before its alarm is cleared, if it may come and go.
const CLEAR_AFTER: Duration = Duration::from_mins(1);

/// An alarm, by its cause.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum AlarmName {
    /// A certificate of this CSE or of an authority ends soon; the subject is its file.
    CertificateEnding,
    /// The wall clock has leapt and is not trusted.
    ClockLeapt,
    /// A file of the open database was removed, moved or replaced.
    DatabaseMissing,
    /// A device has not reported for too long; the subject is its system-id.
    DeviceSilent,
    /// The disk of the database is almost full.
    DiskShort,
    /// Commits take long: whoever stores something waits for the disk.
    DiskSlow,
    /// Readings wait for the CSE above, close to their limit.
    OutboxFilling,
    /// The CSE above does not answer.
    RegistrarUnreachable,
    /// Rows of the database are not served.
    RowsUnreadable,
}

impl AlarmName {
    /// Every alarm.
    pub(crate) const ALL: [Self; 9] = [
        Self::CertificateEnding,
        Self::ClockLeapt,
        Self::DatabaseMissing,
        Self::DeviceSilent,
        Self::DiskShort,
        Self::DiskSlow,
        Self::OutboxFilling,
        Self::RegistrarUnreachable,
        Self::RowsUnreadable,
    ];

    /// Its name in resources, events and metrics.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::CertificateEnding => "certificate-ending",
            Self::ClockLeapt => "clock-leapt",
            Self::DatabaseMissing => "database-missing",
            Self::DeviceSilent => "device-silent",
            Self::DiskShort => "disk-short",
            Self::DiskSlow => "disk-slow",
            Self::OutboxFilling => "outbox-filling",
            Self::RegistrarUnreachable => "registrar-unreachable",
            Self::RowsUnreadable => "rows-unreadable",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.text() == text)
    }

    /// Time that its cause must have gone.
    const fn clear_after(self) -> Duration {
        match self {
            Self::ClockLeapt
            | Self::DiskShort
            | Self::DiskSlow
            | Self::OutboxFilling
            | Self::RegistrarUnreachable => CLEAR_AFTER,
            // Their causes do not come and go by the second.
            Self::CertificateEnding
            | Self::DatabaseMissing
            | Self::DeviceSilent
            | Self::RowsUnreadable => Duration::ZERO,
        }
    }
}

impl fmt::Display for AlarmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// An alarm's cause as observed at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Observation {
    pub(crate) name: AlarmName,
    /// Its subject, if there can be several: a device, a file.
    pub(crate) subject: String,
    pub(crate) level: LogLevel,
    /// The text for operators.
    pub(crate) detail: String,
    /// Whether it raises the alarm. If not, it only keeps a raised one: between the threshold that
    /// raises and the one that clears.
    pub(crate) is_raising: bool,
}

/// A raised alarm.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct RaisedAlarm {
    pub(crate) since: Timestamp,
    pub(crate) level: LogLevel,
    pub(crate) detail: String,
    /// Since when its cause has gone, by the monotonic clock.
    gone: Option<Duration>,
}

/// A change of an alarm.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AlarmChange {
    pub(crate) name: AlarmName,
    pub(crate) subject: String,
    /// Whether it is raised; else it is cleared.
    pub(crate) is_raised: bool,
    pub(crate) level: LogLevel,
    /// When it was raised.
    pub(crate) since: Timestamp,
    pub(crate) detail: String,
}

/// All alarms of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    raised: BTreeMap<(AlarmName, String), RaisedAlarm>,
    left_out: u64,
}

impl Alarms {
    /// Takes all observations of one moment, by the monotonic and by the wall clock; returns the
    /// changes.
    pub(crate) fn observe(
        &mut self,
        (now, wall): (Duration, Timestamp),
        observed: Vec<Observation>,
    ) -> Vec<AlarmChange> {
        for raised in self.raised.values_mut() {
            raised.gone.get_or_insert(now);
        }
        let mut changes = Vec::new();
        for observation in observed {
            changes.extend(self.take(wall, observation));
        }
        let is_over = |(name, _): &&(AlarmName, String), raised: &RaisedAlarm| {
            raised.gone.is_some_and(|gone| now.saturating_sub(gone) >= name.clear_after())
        };
        let over = self.raised.iter().filter(|(key, raised)| is_over(key, raised));
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        for key in over {
            if let Some(RaisedAlarm { since, detail, .. }) = self.raised.remove(&key) {
                let ((name, subject), level) = (key, LogLevel::Info);
                changes.push(AlarmChange { name, subject, is_raised: false, level, since, detail });
            }
        }
        changes
    }

    /// Takes an observation; it is a change if it raises the alarm, or makes it more severe.
    fn take(&mut self, wall: Timestamp, observed: Observation) -> Option<AlarmChange> {
        let Observation { name, subject, level, detail, is_raising } = observed;
        let key = (name, subject);
        let since = if let Some(raised) = self.raised.get_mut(&key) {
            raised.gone = None;
            // The most severe level is the first.
            if level >= raised.level || !is_raising {
                // Of one from before a restart only the subject was known.
                if raised.detail.is_empty() {
                    raised.detail = detail;
                }
                return None;
            }
            raised.since
        } else {
            if !is_raising {
                return None;
            }
            if self.subjects(name).count() >= SUBJECTS_MAX {
                self.left_out = self.left_out.saturating_add(1);
                return None;
            }
            wall
        };
        let raised = RaisedAlarm { since, level, detail: detail.clone(), gone: None };
        let (_, subject) = key.clone();
        self.raised.insert(key, raised);
        Some(AlarmChange { name, subject, is_raised: true, level, since, detail })
    }

    /// Subjects for which an alarm is raised.
    pub(crate) fn subjects(&self, name: AlarmName) -> impl Iterator<Item = &str> {
        let from = self.raised.range((name, String::new())..);
        from.take_while(move |((of, _), _)| *of == name).map(|((_, subject), _)| subject.as_str())
    }

    /// Raised alarms with their subjects.
    pub(crate) fn raised(&self) -> impl Iterator<Item = (AlarmName, &str, &RaisedAlarm)> {
        self.raised.iter().map(|((name, subject), raised)| (*name, subject.as_str(), raised))
    }

    /// Observations that raised no alarm because too many of its subjects have raised one.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The raised alarms as JSON, from which [`Self::restore`] continues after a restart.
    fn to_json(&self) -> Value {
        let one = |((name, subject), raised): (&(AlarmName, String), &RaisedAlarm)| {
            let mut one = json!({
                "name": name.text(),
                "since": raised.since.to_string(),
                "level": raised.level,
            });
            if let (false, Some(members)) = (subject.is_empty(), one.as_object_mut()) {
                members.insert("subject".to_owned(), json!(subject));
            }
            one
        };
        self.raised.iter().map(one).collect()
    }

    /// Continues with the alarms that were raised before a restart; unknown ones are left out.
    fn restore(&mut self, raised: &Value) {
        let all = raised.as_array().into_iter().flatten();
        for one in all.take(SUBJECTS_MAX.saturating_mul(AlarmName::ALL.len())) {
            let text = |name: &str| one.get(name).and_then(Value::as_str);
            let name = text("name").and_then(AlarmName::parse);
            let since = text("since").and_then(Timestamp::parse);
            let (Some(name), Some(since)) = (name, since) else { continue };
            let level = one.get("level").cloned().map(serde_json::from_value);
            let level = level.and_then(Result::ok).unwrap_or(LogLevel::Warning);
            let subject = text("subject").unwrap_or_default().to_owned();
            let restored = RaisedAlarm { since, level, detail: String::new(), gone: None };
            self.raised.insert((name, subject), restored);
        }
    }
}

#[cfg(test)]
mod tests;
