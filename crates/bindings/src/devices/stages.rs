//! Time that a device's report spends in each stage, from its octets to its answer.

use gatewright_histogram::Histogram;
use std::time::Instant;

/// Durations of stored reports by stage, in nanoseconds.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stages {
    /// From reading the octets to the CSE: decoded, converted, carried out in memory.
    pub taken: Histogram,
    /// From there until the commit was reported.
    pub stored: Histogram,
    /// From there until the answer was written.
    pub answered: Histogram,
    /// Sum of all stages.
    pub whole: Histogram,
}

impl Stages {
    /// Every stage with its name, for a metrics page.
    pub fn each(self) -> Vec<(&'static str, Histogram)> {
        vec![
            ("report_taken_ns", self.taken),
            ("report_stored_ns", self.stored),
            ("report_answered_ns", self.answered),
            ("report_ns", self.whole),
        ]
    }
}

/// Times at which one report reached each stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    pub(super) arrived: Instant,
    pub(super) taken: Instant,
    pub(super) stored: Instant,
}

impl Stages {
    /// Adds another histogram's reports.
    pub(super) fn merge(&mut self, other: &Self) {
        self.taken.merge(&other.taken);
        self.stored.merge(&other.stored);
        self.answered.merge(&other.answered);
        self.whole.merge(&other.whole);
    }

    /// Adds a report whose answer was written `now`.
    pub(super) fn add(&mut self, passage: &Passage, now: Instant) {
        let Passage { arrived, taken, stored } = *passage;
        self.taken.add(taken.saturating_duration_since(arrived));
        self.stored.add(stored.saturating_duration_since(taken));
        self.answered.add(now.saturating_duration_since(stored));
        self.whole.add(now.saturating_duration_since(arrived));
    }
}
