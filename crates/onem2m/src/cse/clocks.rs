//! Clocks of a step: effects of a wall-clock step on expiry, and their correction once the clock is
//! trusted again.

use super::Cse;
use crate::clock::{Change, ClockDoubt, Moment, Now, Span};
use crate::time::Timestamp;
use crate::tree::{RowChange, Slot};
use core::time::Duration;

impl Cse {
    /// Why the wall clock is in doubt, if it is: meanwhile only resources that have expired by both
    /// clocks expire.
    pub fn doubted_clock(&self) -> Option<ClockDoubt> {
        self.clock.doubt()
    }

    /// Sets the clocks of this step.
    pub(super) fn set_clocks(&mut self, now: Now) {
        let change = self.clock.advance(now);
        (self.now, self.moment) = (self.clock.wall(), self.clock.moment());
        self.follow_clock(change);
    }

    /// Trusts the wall clock.
    pub(super) fn believe_clock(&mut self) {
        let change = self.clock.believe();
        self.follow_clock(change);
    }

    fn follow_clock(&mut self, change: Option<Change>) {
        match change {
            None => {}
            Some(Change::Leapt) => self.counters.clock_leaps += 1,
            Some(Change::Believed(spans)) => {
                self.counters.clock_leaps += 1;
                for (span, behind) in spans {
                    self.postpone_expiry(span, behind);
                }
            }
        }
    }

    /// Corrects resources made while the wall clock was behind: their expiry was too early by that
    /// much.
    fn postpone_expiry(&mut self, span: Span, behind: Duration) {
        let within = |time: Timestamp| span.from <= time && time <= span.to;
        let wrong: Vec<Slot> = self
            .tree
            .iter()
            .filter(|(_, it)| {
                let is_due = it.expires <= self.now;
                it.kind.expires() && (within(it.created) || (within(it.modified) && is_due))
            })
            .map(|(slot, _)| slot)
            .collect();
        let number = self.ledger.number();
        for slot in wrong {
            let Some(resource) = self.tree.get(slot) else { continue };
            let (seq, before) = (resource.seq, resource.to_record());
            self.counters.expiries_postponed += 1;
            self.tree.set_expiry(slot, resource.expires.plus(behind));
            let Some(resource) = self.tree.get_mut(slot) else { continue };
            resource.write_expiry();
            resource.stored_by = number;
            let body = resource.to_record();
            self.ledger.write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
        }
    }

    /// Moment at which the wall clock will show `time`, if it runs evenly.
    pub(super) fn moment_of(&self, time: Timestamp) -> Moment {
        self.moment.plus(time.since_epoch().saturating_sub(self.now.since_epoch()))
    }

    /// Moment at which a resource with expiry `time` expires.
    pub(super) fn moment_of_expiry(&self, time: Timestamp) -> Moment {
        let now = self.clock.expiring().since_epoch();
        self.moment.plus(time.since_epoch().saturating_sub(now))
    }
}
