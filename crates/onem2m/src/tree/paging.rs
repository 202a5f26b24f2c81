//! Instances that leave memory except for their records, and come back.

use super::{Slot, Tree, resident_octets};
use crate::name_hash::NameKey;
use crate::paged::{InstanceRecord, PagedInstances};
use crate::record_run::{RecordRun, RunSummary};
use crate::resource::{Family, Resource, row_octets, row_octets_of};
use core::time::Duration;
use std::sync::Arc;

impl Tree {
    /// Takes the key of the hashes of names that stored records have. No instance may be paged out
    /// yet.
    pub(crate) const fn set_name_key(&mut self, key: NameKey) {
        debug_assert!(self.paged == 0);
        self.name_key = key;
    }

    /// Adds records of a container's instances at a start, oldest first.
    pub(crate) fn restore_records(&mut self, container: Slot, records: &[InstanceRecord]) {
        let Some(holder) = self.get_mut(container) else { return };
        for record in records {
            holder.state = holder.state.max(record.state.into());
            holder.modified = holder.modified.max(record.created);
        }
        holder.family.get_or_insert_default();
        self.change_paged(container, |family| {
            family.restore(records);
        });
        let stored = records.iter().map(|record| row_octets(record.size.into())).sum();
        self.take_up_paged(container, records.len(), stored);
    }

    /// Adds a run of records as [`Self::restore_records`] does.
    pub(crate) fn restore_run(&mut self, container: Slot, run: RecordRun, summary: &RunSummary) {
        let Some(holder) = self.get_mut(container) else { return };
        holder.state = holder.state.max(summary.state.into());
        holder.modified = holder.modified.max(summary.created);
        holder.family.get_or_insert_default();
        let count = run.count();
        self.change_paged(container, |family| family.restore_run(run, summary));
        let stored = row_octets_of(count, summary.sizes, summary.odd_sizes);
        self.take_up_paged(container, count, stored);
    }

    /// Counts instances of a container that are paged out, with their octets of the store.
    fn take_up_paged(&mut self, container: Slot, count: usize, stored: usize) {
        self.paged += count;
        let account = self.account_of(container);
        self.places.take_up(&account, count);
        self.stored.take_up(&account, stored);
    }

    /// The resident instance of a container that follows the one with this number.
    pub(crate) fn resident_after(&self, container: Slot, seq: u64) -> Option<(u64, Slot)> {
        self.get(container)?.family.as_ref()?.instances.since(seq.saturating_add(1)).next()
    }

    /// Removes a contentInstance from memory except for its record. Its row must be stored, and it
    /// must have neither children nor labels. Returns whether it did.
    pub(crate) fn page_out(&mut self, slot: Slot) -> bool {
        let Some(instance) = self.get(slot) else { return false };
        let record = InstanceRecord::of(instance, self.name_key);
        let (Some(record), Some(container)) = (record, instance.parent) else { return false };
        let Some(instance) = self.slots.get_mut(slot.0).and_then(Option::take) else {
            return false;
        };
        self.by_seq.remove(instance.seq);
        if self.expires_by_itself(&instance) {
            self.expiry.remove((instance.expires, instance.seq));
        }
        self.resident_octets = self.resident_octets.saturating_sub(resident_octets(&instance));
        self.free.push(slot);
        self.change_paged(container, |family| {
            family.names.remove(&instance.name);
            family.instances.remove(instance.seq);
            family.paged.get_or_insert_default().insert(&record);
        });
        self.paged += 1;
        let before = (self.places.leave_slot(slot.0), self.stored.leave_slot(slot.0));
        let after = (1, row_octets(record.size.into()));
        // Mostly it takes up as much as before.
        if before != after {
            let account = self.account_of(container);
            self.places.give_up(&account, before.0);
            self.places.take_up(&account, after.0);
            self.stored.give_up(&account, before.1);
            self.stored.take_up(&account, after.1);
        }
        true
    }

    /// Makes an instance resident again that is paged out below `container`; its record says when it
    /// expires.
    pub(crate) fn page_in(&mut self, container: Slot, mut instance: Resource) -> Option<Slot> {
        let seq = instance.seq;
        let mut record = None;
        self.change_paged(container, |family| {
            record = family.paged.as_mut().and_then(|paged| paged.remove(seq));
        });
        let InstanceRecord { expires, size, .. } = record?;
        instance.expires = expires;
        instance.parent = Some(container);
        self.paged -= 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() - 1)
        });
        self.by_seq.insert(seq, slot);
        if self.expires_by_itself(&instance) {
            self.expiry.insert((instance.expires, seq), ());
        }
        self.resident_octets += resident_octets(&instance);
        let account = self.account_of(container);
        self.places.give_up(&account, 1);
        self.places.set(slot.0, &account, instance.places());
        self.stored.give_up(&account, row_octets(size.into()));
        self.stored.set(slot.0, &account, instance.stored_octets());
        if let Some(container) = self.get_mut(container) {
            instance.parent_id = Arc::clone(&container.id);
            if let Some(family) = &mut container.family {
                family.names.insert(Arc::clone(&instance.name), slot);
                family.instances.insert(seq, slot);
            }
        }
        *self.slots.get_mut(slot.0)? = Some(instance);
        Some(slot)
    }

    /// Takes an instance out that is paged out.
    pub(crate) fn remove_paged(&mut self, container: Slot, seq: u64) -> Option<InstanceRecord> {
        let mut record = None;
        self.change_paged(container, |family| {
            record = family.paged.as_mut().and_then(|paged| paged.remove(seq));
            let octets = record.map_or(0, |record| u64::from(record.size));
            family.octets = family.octets.saturating_sub(octets);
        });
        let record = record?;
        self.paged -= 1;
        let account = self.account_of(container);
        self.places.give_up(&account, 1);
        self.stored.give_up(&account, row_octets(record.size.into()));
        Some(record)
    }

    /// Takes a removal back.
    pub(crate) fn restore_paged(&mut self, container: Slot, record: &InstanceRecord) {
        if self.get(container).is_none() {
            return;
        }
        self.paged += 1;
        let account = self.account_of(container);
        self.places.take_up(&account, 1);
        self.stored.take_up(&account, row_octets(record.size.into()));
        if let Some(container) = self.get_mut(container) {
            container.family.get_or_insert_default();
        }
        self.change_paged(container, |family| {
            // Whether it was created in its turn is not looked at again.
            family.is_disordered = true;
            family.paged.get_or_insert_default().insert(record);
            family.octets += u64::from(record.size);
        });
    }

    /// Whether an instance that is paged out is meant.
    pub(crate) fn has_paged(&self, is_meant: impl Fn(&InstanceRecord) -> bool) -> bool {
        let mut paged = self.paged_expiry.iter().filter_map(|(.., it)| self.paged_of(*it));
        paged.any(|paged| paged.since(0).any(|record| is_meant(&record)))
    }

    /// Postpones the expiry of the paged out instances that are meant; returns their number.
    pub(crate) fn postpone_paged(
        &mut self,
        is_meant: impl Fn(&InstanceRecord) -> bool,
        by: Duration,
    ) -> u64 {
        let containers: Vec<Slot> = self.paged_expiry.iter().map(|(.., it)| *it).collect();
        let mut count = 0;
        for container in containers {
            let paged = self.paged_of(container);
            let meant: Vec<InstanceRecord> =
                paged.into_iter().flat_map(|it| it.since(0)).filter(&is_meant).collect();
            self.change_paged(container, |family| {
                let Some(paged) = &mut family.paged else { return };
                for mut record in meant {
                    paged.remove(record.seq);
                    record.expires = record.expires.plus(by);
                    paged.insert(&record);
                    count += 1;
                }
            });
        }
        count
    }

    /// Changes the paged out instances of a container.
    fn change_paged(&mut self, container: Slot, how: impl FnOnce(&mut Family)) {
        let Some(family) = self.get_mut(container).and_then(|it| it.family.as_mut()) else {
            return;
        };
        let before = family.paged.as_ref().and_then(|paged| paged.next_expiry());
        how(family);
        family.paged.take_if(|paged| paged.is_empty());
        let after = family.paged.as_ref().and_then(|paged| paged.next_expiry());
        if before != after {
            if let Some((time, seq)) = before {
                self.paged_expiry.remove(&(time, seq, container));
            }
            if let Some((time, seq)) = after {
                self.paged_expiry.insert((time, seq, container));
            }
        }
    }

    /// The instances of a container that are paged out.
    pub(crate) fn paged_of(&self, container: Slot) -> Option<&PagedInstances> {
        self.get(container)?.family.as_ref()?.paged.as_deref()
    }

    /// The container of an instance that is paged out: a walk over all containers.
    pub(crate) fn container_of_paged(&self, seq: u64) -> Option<Slot> {
        let mut containers = self.paged_expiry.iter().map(|(.., container)| *container);
        containers.find(|it| self.paged_of(*it).is_some_and(|paged| paged.get(seq).is_some()))
    }

    /// Numbers of the instances that are paged out and may have this name.
    pub(crate) fn paged_named(&self, parent: Slot, name: &str) -> Vec<u64> {
        self.paged_of(parent)
            .map_or_else(Vec::new, |paged| paged.named(name, self.name_key.hash(name)))
    }
}
