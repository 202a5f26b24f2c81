//! Events from the reports of parts: a counter that grows, a state that begins or ends.

use super::EventLog;
use gatewright_part::{LogEvent, LogLevel, Part, PartStatus, Watched, When};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, mpsc},
    thread::{Builder, JoinHandle},
    time::Duration,
};

/// Time between two looks at the parts.
const LOOK: Duration = Duration::from_secs(1);

/// A thread that looks at the reports of parts until this value is dropped.
pub(crate) struct Watcher {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

impl Watcher {
    /// Watches those of `parts` that want it; no thread runs where none does.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub(crate) fn start(parts: &[Arc<dyn Part>], log: &EventLog) -> io::Result<Self> {
        let parts: Vec<_> = parts.iter().filter(|part| !part.watched().is_empty()).collect();
        if parts.is_empty() {
            return Ok(Self { end: None, thread: None });
        }
        let mut parts: Vec<_> =
            parts.into_iter().map(|part| (Arc::clone(part), LastValues::default())).collect();
        let (log, (end, ended)) = (log.clone(), mpsc::channel::<()>());
        let watch = move || {
            while ended.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                for (part, seen) in &mut parts {
                    let events = seen.look(part.name(), part.watched(), &part.tell());
                    for event in events.into_iter().chain(part.new_events()) {
                        log.log(event);
                    }
                }
            }
        };
        let thread = Some(Builder::new().name("watch".to_owned()).spawn(watch)?);
        Ok(Self { end: Some(end), thread })
    }

    /// Ends the thread.
    pub(crate) fn stop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last values of a part.
#[derive(Debug, Default)]
struct LastValues {
    counters: BTreeMap<&'static str, u64>,
    /// The texts of words; none where a word was not there.
    words: BTreeMap<&'static str, Option<String>>,
}

impl LastValues {
    /// Events from the differences between the last report and `told`.
    fn look(
        &mut self,
        part: &'static str,
        watched: &[Watched],
        told: &PartStatus,
    ) -> Vec<LogEvent> {
        watched.iter().filter_map(|one| self.look_at(part, one, told)).collect()
    }

    fn look_at(
        &mut self,
        part: &'static str,
        one: &Watched,
        told: &PartStatus,
    ) -> Option<LogEvent> {
        let &Watched { name, when, level, kind, text } = one;
        if when == When::Grows {
            let (_, now) = told.counters.iter().find(|(known, _)| *known == name)?;
            let before = self.counters.insert(name, *now).unwrap_or_default();
            let more = now.checked_sub(before).filter(|more| *more > 0)?;
            let text = format!("{text} ({more} more, {now} since the start)");
            return Some(LogEvent::new(level, part, kind, text).with("more", more).with(name, now));
        }
        let found = told.words.iter().find(|(known, _)| *known == name);
        let now = found.map(|(_, word)| word.clone());
        let before = self.words.insert(name, now.clone());
        let event = |level, text| LogEvent::new(level, part, kind, text);
        match (before.flatten(), now) {
            (None, Some(now)) if when == When::Appears => {
                Some(event(level, format!("{text}: {now}")))
            }
            (Some(_), None) if when == When::Appears => {
                // What was to be done about it is behind the semicolon.
                let state = text.split_once("; ").map_or(text, |(state, _)| state);
                Some(event(LogLevel::Info, format!("no longer so: {state}")))
            }
            (Some(before), Some(now)) if when == When::Changes && before != now => {
                Some(event(level, format!("{text}: {now}")))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCHED: [Watched; 3] = [
        Watched {
            name: "outbox_full",
            when: When::Grows,
            level: LogLevel::Warning,
            kind: "outbox-full",
            text: "readings are refused",
        },
        Watched {
            name: "clock",
            when: When::Appears,
            level: LogLevel::Warning,
            kind: "clock-doubted",
            text: "the clock; set it",
        },
        Watched {
            name: "registration",
            when: When::Changes,
            level: LogLevel::Info,
            kind: "registration",
            text: "the CSE above",
        },
    ];

    fn told(outbox_full: u64, words: &[(&'static str, &str)]) -> PartStatus {
        let words = words.iter().map(|(name, word)| (*name, (*word).to_owned())).collect();
        PartStatus { words, counters: vec![("outbox_full", outbox_full)], ..PartStatus::default() }
    }

    #[test]
    fn growth_beginnings_and_changes_are_events() {
        let mut seen = LastValues::default();
        let mut look = |told: PartStatus| -> Vec<String> {
            let events = seen.look("cse", &WATCHED, &told);
            events.into_iter().map(|event| format!("{} {}", event.level, event.text)).collect()
        };
        assert_eq!(look(told(0, &[("registration", "not yet")])), [""; 0]);
        assert_eq!(
            look(told(3, &[("registration", "registered")])),
            [
                "warning readings are refused (3 more, 3 since the start)",
                "info the CSE above: registered"
            ]
        );
        let leapt = [("registration", "registered"), ("clock", "leapt 7200 s ahead")];
        assert_eq!(look(told(3, &leapt)), ["warning the clock; set it: leapt 7200 s ahead"]);
        assert_eq!(look(told(3, &leapt)), [""; 0]);
        assert_eq!(
            look(told(3, &[("registration", "registered")])),
            ["info no longer so: the clock"]
        );
    }
}
