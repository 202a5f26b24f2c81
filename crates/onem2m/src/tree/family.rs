//! The children of a resource: how they come and go, and its instances in order.

use super::{Instance, Slot};
use crate::paged::InstanceRecord;
use crate::record_run::{RecordRun, RunSummary};
use crate::resource::{Family, Resource};
use crate::resource_type::ResourceType;
use std::sync::Arc;

impl Family {
    /// Adds records of instances, which were created last unless a younger one is resident.
    pub(super) fn restore(&mut self, records: &[InstanceRecord]) {
        let mut is_first = self.instances.is_empty() && self.paged.is_none();
        for record in records {
            self.note_created(record, is_first);
            self.octets += u64::from(record.size);
            is_first = false;
        }
        self.paged.get_or_insert_default().restore(records);
    }

    /// Adds a run of such records.
    pub(super) fn restore_run(&mut self, run: RecordRun, summary: &RunSummary) {
        self.note_created(&run.first(), self.instances.is_empty() && self.paged.is_none());
        self.is_disordered |= !summary.created_in_order;
        self.latest = run.last().created;
        self.octets = self.octets.saturating_add(summary.sizes);
        self.paged.get_or_insert_default().restore_run(run, summary);
    }

    /// Notes when the next instance was created, which may be the first.
    fn note_created(&mut self, record: &InstanceRecord, is_first: bool) {
        let resident = self.instances.last().map_or(0, |(seq, _)| seq);
        let is_in_turn = record.created >= self.latest && resident < record.seq;
        self.is_disordered = !is_first && (self.is_disordered || !is_in_turn);
        self.latest = record.created;
    }

    /// The instances from this number on, oldest first.
    pub(super) fn instances_since(&self, first: u64) -> impl Iterator<Item = (u64, Instance)> {
        let mut resident = self.instances.since(first).peekable();
        let mut paged = self.paged.iter().flat_map(move |paged| paged.since(first)).peekable();
        core::iter::from_fn(move || {
            let is_resident = match (resident.peek(), paged.peek()) {
                (Some((seq, _)), Some(record)) => *seq < record.seq,
                (first, _) => first.is_some(),
            };
            if is_resident {
                return resident.next().map(|(seq, slot)| (seq, Instance::Resident(slot)));
            }
            paged.next().map(|record| (record.seq, Instance::PagedOut(record)))
        })
    }

    /// The instance with the highest number.
    pub(super) fn last_instance(&self) -> Option<(u64, Instance)> {
        let resident = self.instances.last().map(|(seq, slot)| (seq, Instance::Resident(slot)));
        let paged = self.paged.as_ref().and_then(|paged| paged.last());
        let paged = paged.map(|record| (record.seq, Instance::PagedOut(record)));
        [resident, paged].into_iter().flatten().max_by_key(|(seq, _)| *seq)
    }
}

impl Resource {
    /// Adds a child.
    pub(super) fn adopt(&mut self, child: &Self, slot: Slot) {
        // The stateTag of an instance is its container's at that moment, so that the container's
        // own row need not be written for each instance.
        if child.resource_type.is_instance() && self.resource_type.has_state_tag() {
            self.state = self.state.max(child.state);
            self.modified = self.modified.max(child.created);
        }
        let family = self.family.get_or_insert_with(|| Box::new(Family::default()));
        family.names.insert(Arc::clone(&child.name), slot);
        if child.resource_type.is_instance() {
            family.is_disordered = !(family.instances.is_empty() && family.paged.is_none())
                && (family.is_disordered || child.created < family.latest);
            family.latest = child.created;
            family.instances.insert(child.seq, slot);
            family.octets += child.size;
            family.generated.extend(child.generated());
        } else {
            family.children.insert(child.seq, slot);
        }
        match child.resource_type {
            ResourceType::Subscription => family.subscriptions.push(slot),
            ResourceType::Schedule => family.schedule = Some(slot),
            _ => {}
        }
    }

    /// Removes a child.
    pub(super) fn release(&mut self, child: &Self, slot: Slot) {
        let Some(family) = self.family.as_mut() else {
            return;
        };
        family.names.remove(&child.name);
        if child.resource_type.is_instance() {
            family.instances.remove(child.seq);
            family.octets = family.octets.saturating_sub(child.size);
            if let Some(time) = child.generated() {
                family.generated.remove(&time);
            }
        } else {
            family.children.remove(&child.seq);
        }
        family.schedule = family.schedule.filter(|&schedule| schedule != slot);
        if child.resource_type == ResourceType::Subscription {
            family.subscriptions.retain(|&subscription| subscription != slot);
            family.lagging.retain(|&subscription| subscription != slot);
        }
    }
}
