//! Statistics of a subscription's notifications (TS-0001 §9.6.8, notificationStatsEnable and
//! notificationStatsInfo).
//!
//! For each target: events that were to be told, requests sent, and responses received. A subscriber
//! finds in them how many notifications it has missed. They are counted in memory and stored within
//! [`STORED_WITHIN`], as a row for each notification would cost as much as the notification.

use super::Cse;
use crate::clock::Moment;
use crate::resource_type::ResourceType;
use crate::tree::{RowChange, Slot};
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Longest time that a changed statistic is in memory alone.
const STORED_WITHIN: Duration = Duration::from_secs(10);

/// Counts of a target (m2m:notificationStatsInfo).
#[derive(Clone, Copy, Debug)]
pub(super) enum Statistic {
    /// Notification events, sent or not.
    Event,
    /// Requests sent.
    Request,
    /// Responses received.
    Response,
}

impl Statistic {
    const fn name(self) -> &'static str {
        match self {
            Self::Event => "noec",
            Self::Request => "rqs",
            Self::Response => "rsr",
        }
    }
}

/// Statistics that are not stored yet.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// The subscriptions, by number.
    changed: BTreeSet<u64>,
    due: Option<Moment>,
}

impl Statistics {
    /// Time at which they are to be stored.
    pub(super) const fn due(&self) -> Option<Moment> {
        self.due
    }
}

impl Cse {
    /// Counts for a target of a subscription, if that wants it.
    pub(super) fn count_statistic(&mut self, slot: Slot, target: &str, what: Statistic) {
        self.count_statistics(slot, target, what, 1);
    }

    /// Counts several for a target of a subscription, if that wants it.
    pub(super) fn count_statistics(
        &mut self,
        slot: Slot,
        target: &str,
        what: Statistic,
        number: u64,
    ) {
        let Some(subscription) = self.tree.get_mut(slot).filter(|it| is_counted(it)) else {
            return;
        };
        let list = subscription.attributes.entry("nsi").or_insert_with(|| json!([]));
        let Value::Array(list) = list else { return };
        let is_its = |entry: &Value| entry.get("tg").and_then(Value::as_str) == Some(target);
        let at = list.iter().position(is_its).unwrap_or_else(|| {
            list.push(json!({ "tg": target, "rqs": 0, "rsr": 0, "noec": 0 }));
            list.len() - 1
        });
        let entry = list.get_mut(at).and_then(Value::as_object_mut);
        if let Some(count) = entry.and_then(|entry| entry.get_mut(what.name())) {
            *count = json!(count.as_u64().unwrap_or(0).saturating_add(number));
        }
        let seq = subscription.seq;
        self.statistics.changed.insert(seq);
        self.statistics.due.get_or_insert(self.moment.plus(STORED_WITHIN));
    }

    /// Counts for a queue of notifications.
    pub(super) fn count_queue_statistic(&mut self, queue: &str, what: Statistic) {
        let Some((id, target)) = queue.split_once(' ') else { return };
        if let Some(slot) = self.tree.by_id(id) {
            self.count_statistic(slot, target, what);
        }
    }

    /// Stores statistics when they are due, or at once.
    pub(super) fn store_statistics(&mut self, at_once: bool) {
        let is_due = self.statistics.due.is_some_and(|due| due <= self.moment);
        if !(is_due || at_once) {
            return;
        }
        self.statistics.due = None;
        for seq in core::mem::take(&mut self.statistics.changed) {
            let slot = self.tree.by_seq(seq);
            let Some(subscription) = slot.and_then(|slot| self.tree.get(slot)) else { continue };
            let body = subscription.to_record();
            let before = RowChange::Put { seq, body: body.clone() };
            self.ledger.write(RowChange::Put { seq, body }, before);
        }
    }
}

fn is_counted(resource: &crate::resource::Resource) -> bool {
    resource.resource_type == ResourceType::Subscription && resource.flag("nse")
}

/// Adapts the statistics of a subscription to an update: switched on, they begin again; switched
/// off, they stay; those of removed targets are removed.
pub(super) fn settle_statistics(attributes: &mut Map<String, Value>, nse: Option<&Value>) {
    if matches!(nse, Some(Value::Null | Value::Bool(true))) {
        attributes.remove("nsi");
        return;
    }
    let targets = attributes.get("nu").cloned();
    let is_target = |entry: &Value| {
        let targets = targets.as_ref().and_then(Value::as_array);
        targets.zip(entry.get("tg")).is_some_and(|(targets, target)| targets.contains(target))
    };
    if let Some(Value::Array(list)) = attributes.get_mut("nsi") {
        list.retain(is_target);
    }
}
