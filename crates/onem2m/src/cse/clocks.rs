//! Clocks of a step: effects of a wall-clock step on expiry, and their correction once the clock is
//! trusted again.

use super::Cse;
use crate::clock::{Change, ClockDoubt, Moment, Now, Span};
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::time::Timestamp;
use crate::tree::{RowChange, Slot};
use core::time::Duration;

/// Number of shifts from which on unused ones are removed.
const SHIFTS: usize = 64;

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
                it.resource_type.expires()
                    && (within(it.created) || (within(it.modified) && is_due))
            })
            .map(|(slot, _)| slot)
            .collect();
        let number = self.ledger.number();
        let below = self.ledger.peek_seq();
        let mut shifted = self.tree.postpone_paged(|it| within(it.created), behind);
        self.counters.expiries_postponed += shifted;
        for slot in wrong {
            let Some(resource) = self.tree.get(slot) else { continue };
            let (seq, resource_type, before) =
                (resource.seq, resource.resource_type, resource.to_record());
            self.counters.expiries_postponed += 1;
            self.tree.set_expiry(slot, resource.expires.plus(behind));
            self.tree.change(slot, Resource::write_expiry);
            if resource_type == ResourceType::ContentInstance {
                shifted += 1;
                continue;
            }
            let Some(resource) = self.tree.get_mut(slot) else { continue };
            resource.stored_by = number;
            let body = resource.to_record();
            self.ledger.write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
        }
        if shifted > 0 {
            if self.clock.shifts().len() >= SHIFTS {
                self.forget_shifts();
            }
            self.clock.shift(span, below, behind);
        }
    }

    /// Removes records of deleted instances.
    pub(super) fn forget_shifts(&mut self) {
        if self.clock.shifts().is_empty() {
            return;
        }
        let tree = &self.tree;
        self.clock.keep_shifts(|shift| {
            let is_resident = |(_, it): (Slot, &Resource)| {
                it.resource_type == ResourceType::ContentInstance
                    && shift.covers(it.seq, it.created)
            };
            tree.iter().any(is_resident) || tree.has_paged(|it| shift.covers(it.seq, it.created))
        });
    }

    /// Postpones the expiry of a contentInstance that was restored, as far as its row does not say
    /// it.
    pub(super) fn postpone_restored(&mut self, seq: u64) {
        let Some(slot) = self.tree.by_seq(seq) else { return };
        let Some(instance) = self.tree.get(slot) else { return };
        let expires = self.postponed(seq, instance.created, instance.expires);
        if expires != instance.expires {
            self.tree.set_expiry(slot, expires);
            self.tree.change(slot, Resource::write_expiry);
        }
    }

    /// Expiry of a stored contentInstance whose row says `expires`.
    pub(super) fn postponed(&self, seq: u64, created: Timestamp, expires: Timestamp) -> Timestamp {
        let shifts = self.clock.shifts().iter().filter(|it| it.covers(seq, created));
        shifts.fold(expires, |time, shift| time.plus(shift.behind()))
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
