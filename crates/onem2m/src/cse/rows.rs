//! Changes of a step: resources added, changed and removed, each a row to be stored, and their
//! undoing when a batch could not be stored.

use super::ledger::{Unanswered, Undo};
use super::nonblocking::PENDING;
use super::notify::NotificationEventType;
use super::{Audit, Cse, Refusal};
use crate::fate::pause;
use crate::primitive::Response;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::{Expiring, Instance, RowChange, Slot};
use std::sync::Arc;

impl Cse {
    /// Removes expired resources.
    pub(super) fn expire(&mut self) {
        // On a disk that is full every try fails: each would keep from storing what makes room.
        if self.moment < self.unstored.0 {
            return;
        }
        while let Some((time, expiring)) = self.tree.next_expiry() {
            if time > self.clock.expiring() {
                return;
            }
            match expiring {
                Expiring::Resident(slot) => self.take_out(slot),
                // What subscribers are told has the text.
                Expiring::PagedOut { container, .. } if self.tells_of_deletions(container) => {
                    self.read_expired(container);
                    return;
                }
                Expiring::PagedOut { container, seq } => {
                    self.observers.touch(container);
                    self.take_out_paged(container, seq);
                    self.keep_state(container);
                }
            }
            self.counters.expired += 1;
        }
    }

    /// Adds a resource to the tree and stores it.
    pub(super) fn put_in(&mut self, mut resource: Resource) -> Slot {
        resource.stored_by = self.ledger.number();
        let (seq, body) = (resource.seq, resource.to_record());
        self.ledger.write(RowChange::Put { seq, body }, RowChange::Delete { seq });
        self.note_rights(resource.resource_type);
        self.tree.insert(resource)
    }

    /// Changes and stores a resource, with its lt and stateTag.
    pub(super) fn change(&mut self, slot: Slot, how: impl FnOnce(&mut Resource)) {
        self.change_until(slot, None, how);
    }

    /// Changes a resource as [`Self::change`], with its expiry.
    pub(super) fn change_until(
        &mut self,
        slot: Slot,
        expires: Option<Timestamp>,
        how: impl FnOnce(&mut Resource),
    ) {
        let (now, number) = (self.now, self.ledger.number());
        let Some(before) = self.tree.get(slot).map(Resource::to_record) else {
            return;
        };
        if let Some(expires) = expires {
            self.tree.set_expiry(slot, expires);
        }
        self.tree.change(slot, |resource| {
            how(resource);
            resource.modified = now;
            resource.state += u64::from(resource.resource_type.has_state_tag());
            resource.stored_by = number;
        });
        let Some(resource) = self.tree.get(slot) else {
            return;
        };
        let (seq, body, resource_type) =
            (resource.seq, resource.to_record(), resource.resource_type);
        self.ledger.write(RowChange::Put { seq, body }, RowChange::Put { seq, body: before });
        if matches!(resource_type, ResourceType::AccessControlPolicy | ResourceType::Group) {
            self.note_rights(resource_type);
        }
    }

    /// Records that rights depend on the batch being written, if they depend on resources of this
    /// type: a retrieval that they allow is answered when they are stored.
    pub(super) const fn note_rights(&mut self, resource_type: ResourceType) {
        if matches!(
            resource_type,
            ResourceType::AccessControlPolicy
                | ResourceType::Group
                | ResourceType::ApplicationEntity
                | ResourceType::RemoteCse
        ) {
            self.rights_stored_by = self.ledger.number();
        }
    }

    /// Removes and stores the removal of a resource with everything below it.
    pub(super) fn take_out(&mut self, slot: Slot) {
        let parent = self.tree.get(slot).and_then(|resource| resource.parent);
        if let Some(parent) = parent {
            self.tell(parent, NotificationEventType::ChildDeleted, slot, &[]);
        }
        self.take_out_untold(slot);
    }

    /// Removes a resource as [`Self::take_out`], without notifying the subscribers of its parent.
    pub(super) fn take_out_untold(&mut self, slot: Slot) {
        let parent = self.tree.get(slot).and_then(|resource| resource.parent);
        let going = self.tree.subtree(slot);
        self.withdraw_all(&going);
        for &slot in &going {
            self.tell(slot, NotificationEventType::Deleted, slot, &[]);
        }
        for &slot in &going {
            self.end_subscription(slot);
            self.part_from_node(slot);
        }
        // Children first, so that taking back puts parents first.
        for slot in going.into_iter().rev() {
            self.take_out_all_paged(slot);
            let Some(resource) = self.tree.remove(slot) else {
                continue;
            };
            let (seq, body) = (resource.seq, resource.to_record());
            self.ledger.write(RowChange::Delete { seq }, RowChange::Put { seq, body });
            self.note_rights(resource.resource_type);
            let pending = resource.uint("rs") == Some(PENDING.into());
            if resource.resource_type == ResourceType::Request && pending {
                self.call_off(seq);
            }
        }
        if let Some(parent) = parent {
            self.keep_state(parent);
            // What is left there shows that this is gone.
            let number = self.ledger.number();
            if let Some(parent) = self.tree.get_mut(parent) {
                parent.stored_by = number;
            }
        }
    }

    /// Stores the state of a container with its latest instance; without one, in its own row.
    pub(super) fn keep_state(&mut self, slot: Slot) {
        let Some(container) =
            self.tree.get(slot).filter(|it| it.resource_type == ResourceType::Container)
        else {
            return;
        };
        let state = match self.tree.latest(slot) {
            Some(Instance::Resident(latest)) => self.tree.get(latest).map_or(0, |it| it.state),
            Some(Instance::PagedOut(record)) => record.state.into(),
            None => 0,
        };
        if state < container.state {
            let (seq, body) = (container.seq, container.to_record());
            self.ledger.write(
                RowChange::Put { seq, body: Arc::clone(&body) },
                RowChange::Put { seq, body },
            );
        }
    }

    /// Undoes every batch from `number` on, since it could not be stored.
    pub(super) fn roll_back(&mut self, number: u64) {
        let lenient = self.config.audit == Audit::Lenient;
        let undone = self.ledger.fail(number, lenient);
        self.counters.rolled_back += undone.batches;
        self.repeats.forget_answers();
        self.clock.note_again();
        let wait = pause(self.unstored.1, None);
        self.unstored = (self.moment.plus(wait), self.unstored.1.saturating_add(1));
        for step in undone.steps {
            match step {
                Undo::Row(RowChange::Put { seq, body }) => {
                    if !self.postpone_again(seq, &body) {
                        // It was written by the tree that takes it back.
                        let restored = self.restore(seq, &body);
                        debug_assert!(restored.is_ok(), "{restored:?}");
                    }
                }
                Undo::Row(RowChange::Delete { seq }) => {
                    self.outbox.forget(seq);
                    self.outbox.forget_backlog(seq);
                    self.forget_lag(seq);
                    self.forget_postponed(seq);
                    if let Some(slot) = self.tree.by_seq(seq) {
                        self.tree.remove(slot);
                    }
                }
                Undo::Instance { seq, holder } => {
                    // A message made from it.
                    self.outbox.forget(seq);
                    self.take_back_instance(seq, holder);
                }
                Undo::PagedOut { holder, record } => self.take_back_paged(holder, &record),
                // It has arrived, or never will: only its row is left.
                Undo::Message { seq, kept } => {
                    self.outbox.delete_again(seq, kept, self.unstored.0);
                }
            }
        }
        self.watch_all();
        for call in undone.unsent {
            let why = "what it is a part of could not be stored".to_owned();
            self.take_unsent(call, why);
        }
        for Unanswered { token, id, release, asked } in undone.unanswered {
            self.observers.forget(token);
            let refusal = Refusal::new(
                Status::InternalServerError,
                "the request could not be stored; nothing was changed",
            );
            self.note_unstored(asked);
            // It waits for nothing: what is noted of it may find no room again.
            self.ledger.respond_now(token, Response::refusing(&refusal, id, release));
        }
    }
}
