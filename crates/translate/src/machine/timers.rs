//! Timers of a machine.

use super::slab::{ConnId, ExchangeId, SessionId, TaskId};
use core::time::Duration;
use std::collections::BTreeMap;

/// Purpose of a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    /// A handler's wait ends.
    Task(TaskId),
    /// A connection may have been silent for too long.
    Conn(ConnId),
    /// A request is repeated.
    Retransmit(ExchangeId),
    /// An exchange took too long.
    Exchange(ExchangeId),
    /// A session may have been unused for too long.
    Session(SessionId),
    /// A periodic handler starts.
    Every(usize),
    /// Answers kept for repeated requests of a role expire.
    Repeats(usize),
}

/// Position of a timer in the order of all timers.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Alarm {
    at: Duration,
    order: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BTreeMap<Alarm, Timer>,
    order: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Duration, timer: Timer) -> Alarm {
        self.order = self.order.wrapping_add(1);
        let alarm = Alarm { at, order: self.order };
        self.queue.insert(alarm, timer);
        alarm
    }

    pub(crate) fn cancel(&mut self, alarm: Option<Alarm>) {
        alarm.and_then(|alarm| self.queue.remove(&alarm));
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        self.queue.first_key_value().map(|(alarm, _)| alarm.at)
    }

    pub(crate) fn due(&mut self, now: Duration) -> Option<Timer> {
        let first = self.queue.first_entry().filter(|entry| entry.key().at <= now)?;
        Some(first.remove())
    }
}
