//! Subscriptions that lag behind: as there is no room for their notifications, these are made from
//! the tree when there is.
//!
//! A subscription that hears of created children alone, at one target, needs no copy of what it is
//! to be told: the children are in the tree. It lags from the first notification that finds no room
//! until it has been told of every child since. Meanwhile an event of what it subscribes to costs
//! nothing, however many targets do not answer. Instances that their container drops for newer ones
//! before it gets to them are not told; they are counted.

use super::notify::{EVENT_OCTETS, NotificationEventType};
use super::outbox::MessageRoom;
use super::statistics::Statistic;
use super::subscription::events;
use super::{Cse, Slot};
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use crate::tree::{Instance, RowChange};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Notifications of one subscription that are made from the tree at a time.
const MADE_MAX: usize = 64;
/// m2m:notificationEventType: creation of a child.
const CHILD_CREATED: u64 = 3;

/// How far a subscription that lags behind has been told.
#[derive(Debug)]
struct Lag {
    /// Its row.
    row: u64,
    /// The number of the subscription.
    subscription: u64,
    /// The number that the next child to be told has at least.
    next: u64,
    /// The stateTag with which the last child told was created.
    state: u64,
    /// The stored row.
    stored: Arc<str>,
    /// Whether its notifications are being made.
    is_catching_up: bool,
}

impl Lag {
    /// Prefix of its row.
    const MARK: &'static str = "{\"_l\":";

    fn to_record(&self) -> Arc<str> {
        let Self { subscription, next, state, .. } = self;
        let body = json!({ "subscription": subscription, "next": next, "state": state });
        format!("{}{body}}}", Self::MARK).into()
    }

    fn from_record(row: u64, stored: &Arc<str>) -> Option<Self> {
        let body = stored.strip_prefix(Self::MARK)?.strip_suffix('}')?;
        let body: Value = serde_json::from_str(body).ok()?;
        let number = |name: &str| body.get(name).and_then(Value::as_u64);
        Some(Self {
            row,
            subscription: number("subscription")?,
            next: number("next")?,
            state: number("state")?,
            stored: Arc::clone(stored),
            is_catching_up: false,
        })
    }
}

/// Every subscription that lags behind, by its queue.
#[derive(Debug, Default)]
pub(super) struct Lagging(HashMap<Arc<str>, Lag>);

impl Lagging {
    /// The stored rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        self.0.values().map(|lag| (lag.row, Arc::clone(&lag.stored)))
    }

    /// Whether notifications of this queue are being made from the tree: the first of them needs no
    /// room, or a queue that others leave none would stand still.
    pub(super) fn is_catching_up(&self, queue: &str) -> bool {
        !self.0.is_empty() && self.0.get(queue).is_some_and(|lag| lag.is_catching_up)
    }

    /// The queues.
    fn queues(&self) -> Vec<Arc<str>> {
        self.0.keys().cloned().collect()
    }
}

/// What a notification of a child takes up at most.
fn room_of_notification(child: &Resource) -> MessageRoom {
    let Some(text) = &child.representation else {
        let room = MessageRoom::of(child.stored_octets());
        return MessageRoom { places: child.places(), ..room };
    };
    MessageRoom::of(text.len() + 2 * EVENT_OCTETS)
}

impl Cse {
    /// Whether a subscription lags behind with this event, and is notified later.
    pub(super) fn lags(&mut self, slot: Slot, event: NotificationEventType, about: Slot) -> bool {
        if event != NotificationEventType::ChildCreated {
            return false;
        }
        let Some(subscription) = self.tree.get(slot) else { return false };
        let Some(queue) = queue_of(subscription) else { return false };
        // What a group gathers waits in the group's queue.
        if subscription.texts("nu").any(|target| self.is_own_group(target)) {
            return false;
        }
        let Some(child) = self.tree.get(about) else { return false };
        if self.has_places(&queue, room_of_notification(child))
            || self.lagging.is_catching_up(&queue)
        {
            return false;
        }
        let (next, state) = (child.seq, child.state.saturating_sub(1));
        let (subscription, row) = (subscription.seq, self.ledger.next_seq());
        let stored = "".into();
        let mut lag = Lag { row, subscription, next, state, stored, is_catching_up: false };
        lag.stored = lag.to_record();
        let body = Arc::clone(&lag.stored);
        self.ledger.write(RowChange::Put { seq: row, body }, RowChange::Delete { seq: row });
        self.counters.subscriptions_behind += 1;
        self.lagging.0.insert(Arc::clone(&queue), lag);
        self.tree.set_lagging(slot, true);
        self.catch_up(&queue);
        true
    }

    /// Makes notifications of a queue whose subscription lags behind, as far as there is room.
    pub(super) fn catch_up(&mut self, queue: &Arc<str>) {
        if self.lagging.0.is_empty() || self.queue_len(queue) > MADE_MAX / 2 {
            return;
        }
        let Some(lag) = self.lagging.0.get_mut(queue).filter(|lag| !lag.is_catching_up) else {
            return;
        };
        lag.is_catching_up = true;
        let (subscription, next) = (lag.subscription, lag.next);
        let slot = self.tree.by_seq(subscription);
        let parent = slot.and_then(|slot| self.tree.get(slot)?.parent);
        let (Some(slot), Some(parent)) = (slot, parent) else {
            self.end_lag(queue);
            return;
        };
        let children = self.tree.created_since(parent, next, MADE_MAX);
        let mut is_over = children.len() < MADE_MAX;
        if self.read_for_lagging(queue, parent, &children) {
            if let Some(lag) = self.lagging.0.get_mut(queue) {
                lag.is_catching_up = false;
            }
            return;
        }
        for (seq, child) in children {
            let Instance::Resident(child) = child else { continue };
            let room = self.tree.get(child).map(room_of_notification).unwrap_or_default();
            if !self.has_places(queue, room) && self.queue_len(queue) > 0 {
                is_over = false;
                break;
            }
            self.tell_behind(queue, slot, (seq, child));
            if self.tree.by_seq(subscription) != Some(slot) {
                // It has ended by its counter, and its lag with it.
                return;
            }
        }
        if is_over {
            self.end_lag(queue);
        } else if let Some(lag) = self.lagging.0.get_mut(queue) {
            lag.is_catching_up = false;
            let (seq, body) = (lag.row, lag.to_record());
            let before = core::mem::replace(&mut lag.stored, Arc::clone(&body));
            if before != body {
                let undo = RowChange::Put { seq, body: before };
                self.ledger.write(RowChange::Put { seq, body }, undo);
            }
        }
    }

    /// Notifies a subscription of a child that was created earlier, and counts those before it that
    /// were deleted.
    fn tell_behind(&mut self, queue: &Arc<str>, slot: Slot, (seq, child): (u64, Slot)) {
        let state =
            self.tree.get(child).filter(|it| it.resource_type == ResourceType::ContentInstance);
        let state = state.map(|it| it.state);
        let Some(lag) = self.lagging.0.get_mut(queue) else { return };
        lag.next = seq.saturating_add(1);
        if let Some(state) = state {
            let missed = state.saturating_sub(lag.state).saturating_sub(1);
            lag.state = state;
            self.counters.notifications_dropped += missed;
            let target = queue.split_once(' ').map_or("", |(_, target)| target);
            self.count_statistics(slot, target, Statistic::Event, missed);
        }
        if self.wants(slot, NotificationEventType::ChildCreated, child, &[]) {
            self.notify(slot, NotificationEventType::ChildCreated, child, &[]);
        }
    }

    /// Ends the lag of a queue's subscription.
    fn end_lag(&mut self, queue: &Arc<str>) {
        let Some(Lag { row: seq, stored: body, subscription, .. }) = self.lagging.0.remove(queue)
        else {
            return;
        };
        self.ledger.write(RowChange::Delete { seq }, RowChange::Put { seq, body });
        if let Some(slot) = self.tree.by_seq(subscription) {
            self.tree.set_lagging(slot, false);
        }
    }

    /// Ends the lag of a subscription that is deleted or changed: what it has not been told is
    /// dropped.
    pub(super) fn end_lag_of(&mut self, slot: Slot) {
        if self.lagging.0.is_empty() {
            return;
        }
        let Some(subscription) = self.tree.get(slot) else { return };
        let (seq, parent) = (subscription.seq, subscription.parent);
        let found = self.lagging.0.iter().find(|(_, lag)| lag.subscription == seq);
        let Some((queue, next)) = found.map(|(queue, lag)| (Arc::clone(queue), lag.next)) else {
            return;
        };
        let left =
            parent.map_or(0, |parent| self.tree.created_since(parent, next, usize::MAX).len());
        self.counters.notifications_dropped += u64::try_from(left).unwrap_or(u64::MAX);
        self.end_lag(&queue);
    }

    /// Restores a stored row; returns whether it is a lag's.
    pub(super) fn restore_lag(&mut self, row: u64, body: &Arc<str>) -> bool {
        let Some(lag) = Lag::from_record(row, body) else { return false };
        let slot = self.tree.by_seq(lag.subscription);
        let queue = slot.and_then(|slot| self.tree.get(slot)).and_then(queue_of);
        if let (Some(slot), Some(queue)) = (slot, queue) {
            self.tree.set_lagging(slot, true);
            self.lagging.0.insert(queue, lag);
        }
        true
    }

    /// Forgets the lag with this row, which could not be stored.
    pub(super) fn forget_lag(&mut self, row: u64) {
        let found = self.lagging.0.iter().find(|(_, lag)| lag.row == row);
        let Some(queue) = found.map(|(queue, _)| Arc::clone(queue)) else { return };
        let slot = self.lagging.0.remove(&queue).and_then(|lag| self.tree.by_seq(lag.subscription));
        if let Some(slot) = slot {
            self.tree.set_lagging(slot, false);
        }
    }

    /// Goes on with what lagged behind in an earlier run.
    pub(super) fn pursue_lagging(&mut self) {
        for queue in self.lagging.queues() {
            self.catch_up(&queue);
        }
    }
}

/// The queue of a subscription whose notifications can be made from the tree: it is about created
/// children only, about each of them, and has one target.
fn queue_of(subscription: &Resource) -> Option<Arc<str>> {
    let mut targets = subscription.texts("nu");
    let (target, None) = (targets.next()?, targets.next()) else { return None };
    let is_latest_only = subscription.flag("ln") || subscription.uint("pn") == Some(1);
    let is_of_children = events(&subscription.attributes) == [CHILD_CREATED];
    (is_of_children && !is_latest_only).then(|| format!("{} {target}", subscription.id).into())
}
