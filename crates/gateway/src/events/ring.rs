//! The kept events, numbered, and the limit of each kind; time is an argument.

use super::ReadEvents;
use gatewright_onem2m::Timestamp;
use gatewright_part::{LogEvent, LogLevel};
use gatewright_stack::Bucket;
use serde::{Serialize, Serializer};
use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Maximum events kept; the oldest gives way.
const ENTRIES_MAX: usize = 4096;

/// Events of one kind that are logged at once.
const BURST: u32 = 20;

/// Events of one kind that are logged in a second, in the long run.
const PER_SECOND: u32 = 1;

/// The fields of an event that an authenticated caller has caused: its name and its role. Stations of
/// a network have no role; they could take any number of names.
const BY: &str = "by";
const ROLE: &str = "role";

/// Maximum limits of one kind; further callers share one.
const LIMITS_MAX: usize = 64;

/// Maximum octets of an event's text, and of a field.
const TEXT_MAX: usize = 1024;

/// An event in the log.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LogEntry {
    /// Its sequence number: from 1, without gaps.
    pub sequence: u64,
    /// When it was logged; in RFC 3339's form in UTC where it is written.
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    /// The event.
    #[serde(flatten)]
    pub event: LogEvent,
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogEvent { level, kind, text, .. } = &self.event;
        write!(f, "{} {level:<7} {kind}: {text}", in_rfc3339(self.time))
    }
}

/// The numbers of events of one kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct EventCount {
    /// The part that reports them.
    pub part: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The severity of the last one.
    pub level: LogLevel,
    /// All events.
    pub events: u64,
    /// Of these, events left out of the log by the rate limit.
    pub suppressed: u64,
}

/// The state of a kind of events. There are as many kinds as the program names.
#[derive(Debug)]
struct EventKind {
    level: LogLevel,
    events: u64,
    suppressed: u64,
    /// The limit of each authenticated caller, and of all other events.
    limits: BTreeMap<Option<String>, EventLimit>,
}

/// The limit of a kind of events, or of one caller's.
#[derive(Debug)]
struct EventLimit {
    bucket: Bucket,
    /// Suppressed events about which the log says nothing yet.
    unreported: u64,
}

impl Default for EventLimit {
    fn default() -> Self {
        Self { bucket: Bucket::new(PER_SECOND, BURST), unreported: 0 }
    }
}

impl EventKind {
    /// The limit of an event. A caller's own keeps no other caller's events out of the log.
    fn limit_of(&mut self, event: &LogEvent) -> &mut EventLimit {
        let field = |wanted| event.fields.iter().find(|(name, _)| *name == wanted);
        let by = field(BY).filter(|_| field(ROLE).is_some()).map(|(_, by)| by.clone());
        if self.limits.len() >= LIMITS_MAX && !self.limits.contains_key(&by) {
            // Those that are told of suppressed events go on; they are few.
            self.limits.retain(|by, limit| by.is_none() || limit.unreported > 0);
        }
        let has_room = self.limits.len() < LIMITS_MAX || self.limits.contains_key(&by);
        self.limits.entry(by.filter(|_| has_room)).or_default()
    }
}

/// The kept events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring {
    entries: VecDeque<Arc<LogEntry>>,
    last: u64,
    kinds: BTreeMap<(&'static str, &'static str), EventKind>,
    unreported: u64,
    ended: bool,
}

/// A moment on the clock of the limits, and on the wall clock.
type Now = (Duration, SystemTime);

impl Ring {
    /// The number of the last event.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// The number of the oldest kept event.
    pub(super) fn first(&self) -> u64 {
        self.entries.front().map_or(self.last + 1, |entry| entry.sequence)
    }

    /// Logs an event, or counts it where its kind has come too often.
    pub(super) fn log(&mut self, event: LogEvent, now: Now) {
        self.report_suppressed(now);
        let kind = self.kinds.entry((event.part, event.kind)).or_insert_with(|| EventKind {
            level: event.level,
            events: 0,
            suppressed: 0,
            limits: BTreeMap::new(),
        });
        kind.level = event.level;
        kind.events += 1;
        let limit = kind.limit_of(&event);
        if limit.bucket.take(now.0) {
            self.push(event, now.1);
        } else {
            limit.unreported += 1;
            kind.suppressed += 1;
            self.unreported += 1;
        }
    }

    /// Logs how many events of each kind were suppressed, where the kind may be logged again.
    pub(super) fn report_suppressed(&mut self, now: Now) {
        if self.unreported == 0 {
            return;
        }
        let mut reports = Vec::new();
        for ((part, name), kind) in &mut self.kinds {
            let level = kind.level;
            for (by, limit) in kind.limits.iter_mut().filter(|(_, limit)| limit.unreported > 0) {
                if !limit.bucket.take(now.0) {
                    continue;
                }
                let count = std::mem::take(&mut limit.unreported);
                self.unreported = self.unreported.saturating_sub(count);
                let text = format!(
                    "{count} more events {name} came than are logged: {BURST} at once, then \
                     {PER_SECOND} a second"
                );
                let report = LogEvent::new(level, part, name, text).with("suppressed", count);
                reports.push(match by {
                    Some(by) => report.with(BY, by),
                    None => report,
                });
            }
        }
        for report in reports {
            self.push(report, now.1);
        }
    }

    fn push(&mut self, mut event: LogEvent, time: SystemTime) {
        let values = event.fields.iter_mut().map(|(_, value)| value);
        for text in values.chain([&mut event.text]) {
            shorten(text);
            one_line(text);
        }
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.last += 1;
        self.entries.push_back(Arc::new(LogEntry { sequence: self.last, time, event }));
    }

    /// The kept events from the number `next` on.
    pub(super) fn after(&self, next: u64) -> ReadEvents {
        let new = self.entries.iter().filter(|entry| entry.sequence >= next);
        let missed = self.first().saturating_sub(next);
        ReadEvents { events: new.cloned().collect(), missed, ended: self.ended }
    }

    /// The numbers of events by kind.
    pub(super) fn counts(&self) -> Vec<EventCount> {
        let count = |(&(part, kind), of): (&(&'static str, &'static str), &EventKind)| {
            let &EventKind { level, events, suppressed, .. } = of;
            EventCount { part, kind, level, events, suppressed }
        };
        self.kinds.iter().map(count).collect()
    }

    /// Marks that no event follows.
    pub(super) const fn end(&mut self) {
        self.ended = true;
    }
}

/// Replaces what steers a terminal, and ends of lines: they may be a peer's or a caller's, who would
/// write lines of their own.
fn one_line(text: &mut String) {
    if text.contains('\n') {
        *text = text.replace('\n', "\u{240a}");
    }
    if let Cow::Owned(plain) = gatewright_diagnostic::shown(text) {
        *text = plain;
    }
}

/// Cuts a text at [`TEXT_MAX`] octets, between two characters.
fn shorten(text: &mut String) {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        text.push('…');
    }
}

/// A time in RFC 3339's form, in UTC and milliseconds.
pub(crate) fn in_rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    // oneM2M's form of the same: `YYYYMMDDThhmmss,ffffff`.
    let text = Timestamp::new(since).to_string();
    let of = |from, to| text.get(from..to).unwrap_or_default();
    let (year, month, day) = (of(0, 4), of(4, 6), of(6, 8));
    let (hour, minute, second) = (of(9, 11), of(11, 13), of(13, 15));
    let milliseconds = since.subsec_millis();
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}.{milliseconds:03}Z")
}

fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&in_rfc3339(*time))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &'static str) -> LogEvent {
        LogEvent::new(LogLevel::Warning, "links", kind, "it happened").with("link", "lan")
    }

    fn at(ms: u64) -> Now {
        let since = Duration::from_millis(ms);
        (since, UNIX_EPOCH + since)
    }

    /// RFC 3339 §5.8: `1985-04-12T23:20:50.52Z`, which is 482196050.52 s after 1970.
    #[test]
    fn times_are_those_of_rfc_3339() {
        let time = UNIX_EPOCH + Duration::from_millis(482_196_050_520);
        assert_eq!(in_rfc3339(time), "1985-04-12T23:20:50.520Z");
        assert_eq!(in_rfc3339(UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }

    /// Words of peers and callers neither write lines of their own nor steer a terminal.
    #[test]
    fn an_event_is_one_line_without_control_characters() {
        let mut ring = Ring::default();
        let words = "a\nFORGED\u{1b}[2J\r\u{9b}\u{202e}";
        let about = LogEvent::new(LogLevel::Warning, "web", "traced", words);
        ring.log(about.with("position", words), at(0));
        let LogEvent { text, fields, .. } = &ring.entries.back().unwrap().event;
        let plain = "a\u{240a}FORGED\u{241b}[2J\u{240d}\u{fffd}\u{fffd}";
        assert_eq!((text.as_str(), fields[0].1.as_str()), (plain, plain));
    }

    /// A flood of one kind takes at most the burst and the rate, keeps no other kind out, and is
    /// counted in full.
    #[test]
    fn a_flood_is_limited_and_counted() {
        let mut ring = Ring::default();
        for number in 0..100_000 {
            ring.log(event("conflict"), at(number / 10));
        }
        ring.log(event("link-down"), at(10_000));
        let flood = || ring.entries.iter().filter(|entry| entry.event.kind == "conflict").count();
        assert!((20..=20 + 11).contains(&flood()), "{}", flood());
        assert_eq!(ring.entries.back().unwrap().event.kind, "link-down");
        for _ in 0..100 {
            ring.log(event("conflict"), at(10_000));
        }
        ring.report_suppressed(at(60_000));
        let last = ring.entries.back().unwrap();
        assert!(last.event.text.contains(" more events conflict came"), "{}", last.event.text);
        let told: u64 = (ring.entries.iter())
            .filter_map(|entry| entry.event.fields.iter().find(|(name, _)| *name == "suppressed"))
            .map(|(_, count)| count.parse::<u64>().unwrap())
            .sum();
        let counts = ring.counts();
        assert_eq!((counts[0].kind, counts[0].events), ("conflict", 100_100));
        assert_eq!(told, counts[0].suppressed, "each suppressed event is told once");
        let reports =
            ring.entries.iter().filter(|entry| entry.event.text.contains(" more events "));
        let logged = ring.entries.len() - 1 - reports.count();
        assert_eq!(logged as u64 + counts[0].suppressed, 100_100);
        assert_eq!((counts[1].kind, counts[1].suppressed), ("link-down", 0));
    }

    /// Events of one caller, however many, keep none of another out of the log. Stations without a role
    /// are no callers: a flood with names of their own is one flood.
    #[test]
    fn a_flood_of_one_caller_hides_no_event_of_another() {
        let mut ring = Ring::default();
        let by = |name: &str| event("session").with(BY, name).with(ROLE, "viewer");
        for number in 0..1000 {
            ring.log(by("eve"), at(number));
            if number % 100 == 0 {
                ring.log(by("ops"), at(number));
            }
        }
        let logged = |ring: &Ring, kind: &str, name: &str| {
            let is_it = |entry: &&Arc<LogEntry>| {
                let LogEvent { kind: its, text, fields, .. } = &entry.event;
                *its == kind && text == "it happened" && fields[1].1.starts_with(name)
            };
            ring.entries.iter().filter(is_it).count()
        };
        assert_eq!(logged(&ring, "session", "ops"), 10);
        assert!((20..=22).contains(&logged(&ring, "session", "eve")));
        for number in 0..1000_u64 {
            ring.log(event("duplicate").with(BY, number), at(2000));
            ring.log(by(&number.to_string()), at(2000));
        }
        assert_eq!(logged(&ring, "duplicate", ""), 20);
        ring.report_suppressed(at(60_000));
        assert_eq!(ring.unreported, 0, "each suppressed event is told");
        assert!(ring.kinds.values().all(|kind| kind.limits.len() <= LIMITS_MAX));
    }

    #[test]
    fn the_oldest_give_way_and_readers_learn_how_many() {
        let mut ring = Ring::default();
        let count = ENTRIES_MAX as u64 + 10;
        for number in 1..=count {
            ring.log(event("link-up"), at(number * 1000));
        }
        assert_eq!((ring.first(), ring.last()), (11, count));
        let read = ring.after(1);
        assert_eq!((read.missed, read.events.len()), (10, ENTRIES_MAX));
        let numbers = read.events.iter().map(|entry| entry.sequence);
        assert!(numbers.eq(11..=count));
        let read = ring.after(count);
        assert_eq!((read.missed, read.events.len()), (0, 1));
        assert_eq!(ring.after(count + 1).events.len(), 0);
    }

    #[test]
    fn a_long_text_is_cut() {
        let mut ring = Ring::default();
        ring.log(LogEvent::new(LogLevel::Info, "a", "b", "ä".repeat(TEXT_MAX)), at(0));
        assert_eq!(ring.entries[0].event.text.len(), TEXT_MAX + '…'.len_utf8());
    }
}
