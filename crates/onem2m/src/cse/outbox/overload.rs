//! Overload: while answers are late, the messages of devices to the CSE above give way to them.
//!
//! A message takes about as much processor time as the report that it repeats, and nobody waits for
//! it. It waits for a second at most, and nothing waits again before a message was sent: so an
//! outbox of few messages, and readings whose messages are made from the tree, go on at any load.

use super::DEVICE_QUEUE;
use super::queue::Outbox;
use crate::clock::Moment;
use crate::cse::Cse;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How long messages wait at a time.
const GIVES_WAY_FOR: Duration = Duration::from_secs(1);

/// Whether messages of devices give way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overload {
    until: Option<Moment>,
    /// Whether none was sent since they gave way last.
    owes_one: bool,
}

impl Overload {
    /// Whether the messages of this queue wait.
    pub(super) fn holds(&self, queue: &str) -> bool {
        self.until.is_some() && queue.starts_with(DEVICE_QUEUE)
    }

    /// When they go on.
    pub(super) const fn due(&self) -> Option<Moment> {
        self.until
    }

    /// Notes that a message of this queue is sent.
    pub(super) fn note_sent(&mut self, queue: &str) {
        self.owes_one &= !queue.starts_with(DEVICE_QUEUE);
    }
}

impl Outbox {
    /// Targets with queues in their lines, or with backlogs whose messages are made later.
    fn targets_in_line(&self) -> BTreeSet<Arc<str>> {
        let waiting = self.targets.iter().filter(|(_, target)| !target.line.is_empty());
        let waiting = waiting.map(|(name, _)| name);
        waiting.chain(self.backlogs.targets()).map(Arc::clone).collect()
    }
}

impl Cse {
    /// Notes that answers are late.
    pub(in crate::cse) fn take_overload(&mut self) {
        let has_messages = self.outbox.room_of(DEVICE_QUEUE).messages > 0;
        let overload = &mut self.outbox.overload;
        if has_messages && overload.until.is_none() && !overload.owes_one {
            overload.until = Some(self.moment.plus(GIVES_WAY_FOR));
            self.counters.overloads += 1;
        }
    }

    /// Sends what has given way, when its time is over.
    pub(super) fn end_overload(&mut self) {
        if self.outbox.overload.until.is_none_or(|until| until > self.moment) {
            return;
        }
        self.outbox.overload = Overload { until: None, owes_one: true };
        for target in self.outbox.targets_in_line() {
            self.run_target(&target);
        }
    }
}
