//! Operation monitors (TS-0001 §9.6.8): notifications of requests for a resource, whether
//! successful or refused.

use super::access::Right;
use super::notify::VisiblePart;
use super::{Cse, RequestContext};
use crate::filter::Usage;
use crate::primitive::{Operation, Request};
use crate::tree::Slot;
use serde_json::Value;

impl Cse {
    /// Notifies the monitors of `slot` of a request by `from`.
    pub(super) fn tell_monitors(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &str,
        slot: Slot,
    ) {
        let Some(family) = self.tree.get(slot).and_then(|it| it.family.as_ref()) else {
            return;
        };
        // What an observer is told again is no request of its own.
        if family.subscriptions.is_empty() || asker.is_repeated {
            return;
        }
        let subscriptions = family.subscriptions.clone();
        for subscription in subscriptions {
            if self.monitors(subscription, request, from, slot) {
                self.tell_attempt(subscription, request.operation, from, slot);
            }
        }
    }

    fn monitors(&self, subscription: Slot, request: &Request, from: &str, slot: Slot) -> bool {
        let Some(subscription) = self.tree.get(subscription) else {
            return false;
        };
        let criteria = subscription.attribute("enc").and_then(Value::as_object);
        let Some((criteria, monitors)) = criteria.and_then(|it| Some((it, it.get("om")?))) else {
            return false;
        };
        let bit = right_of(request).bit();
        let is_meant = |monitor: &Value| {
            let operations = monitor.get("ops").and_then(Value::as_u64);
            let originator = monitor.get("or").and_then(Value::as_str);
            operations.is_none_or(|bits| bits & bit != 0)
                && originator.is_none_or(|originator| self.own_form(originator) == from)
        };
        monitors.as_array().is_some_and(|list| list.iter().any(is_meant))
            && self.meets_conditions(criteria, &subscription.owner, slot)
    }

    fn tell_attempt(&mut self, subscription: Slot, operation: Operation, from: &str, slot: Slot) {
        let (Some(it), Some(resource)) = (self.tree.get(subscription), self.tree.get(slot)) else {
            return;
        };
        let Some(seen) = self.seen_by(&it.owner, slot) else {
            self.counters.notifications_withheld += 1;
            return;
        };
        let representation = match (it.uint("nct"), seen) {
            // m2m:notification has none of necessity, and nothing here says which it would be.
            (None, _) => String::new(),
            (Some(3), _) | (_, VisiblePart::Address) => {
                format!(",\"rep\":{}", self.address_alone(slot))
            }
            (Some(_), VisiblePart::Whole) => format!(",\"rep\":{}", resource.to_text()),
        };
        let operation = operation.number();
        self.send_event(subscription, |cse, target| {
            let originator = Value::from(cse.originator_for(target, from));
            format!("{{\"om\":{{\"op\":{operation},\"or\":{originator}}}{representation}}}").into()
        });
    }
}

/// The right that a request needs, in access control.
fn right_of(request: &Request) -> Right {
    let discovers = request.filter.as_ref().and_then(|it| it.usage) == Some(Usage::Discovery)
        || request.result_content == Some(11);
    match request.operation {
        Operation::Create => Right::Create,
        Operation::Retrieve if discovers => Right::Discover,
        Operation::Retrieve => Right::Retrieve,
        Operation::Update => Right::Update,
        Operation::Delete => Right::Delete,
        Operation::Notify => Right::Notify,
    }
}
