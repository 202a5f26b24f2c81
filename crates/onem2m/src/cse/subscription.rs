//! Attributes of a subscription (TS-0001 §9.6.8): its events, their notification content, and the
//! allowed combinations.

use super::access::{ALL_RIGHTS, Originator};
use super::outbox::OutboxMessage;
use super::watch::{REPORT_ON_MISSING, check_missing_data};
use super::{Cse, Refusal};
use crate::filter::Filter;
use crate::primitive::Operation;
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::time::parse_duration;
use crate::tree::Slot;
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Time that a notification is kept for a target that is away.
pub(super) const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// The monitored operations, which have no number among the events.
const OPERATION: u64 = 0;
/// m2m:notificationEventType: a retrieval from a container without instances.
const NO_INSTANCE: u64 = 5;
/// m2m:notificationEventType: an underlying network woke an AE of this node.
const TRIGGER_RECEIVED: u64 = 6;
/// m2m:notificationEventType: an update that waits for consent.
const BLOCKING_UPDATE: u64 = 7;

/// m2m:notificationContentType.
mod content {
    pub(super) const ALL_ATTRIBUTES: u64 = 1;
    pub(super) const MODIFIED_ATTRIBUTES: u64 = 2;
    pub(super) const RESOURCE_ID: u64 = 3;
    pub(super) const TRIGGER_PAYLOAD: u64 = 4;
    pub(super) const TIME_SERIES: u64 = 5;
}

impl Cse {
    /// The blocking subscription of a resource, if there is one.
    pub(super) fn blocking_subscription(&self, subscribed: Slot) -> Option<Slot> {
        let family = self.tree.get(subscribed)?.family.as_ref()?;
        let blocks = |slot: &Slot| {
            self.tree.get(*slot).is_some_and(|subscription| is_blocking(&subscription.attributes))
        };
        family.subscriptions.iter().copied().find(blocks)
    }

    /// Checks that a resource has at most one blocking subscription.
    ///
    /// # Errors
    ///
    /// 4124 if there is one already.
    pub(super) fn check_only_blocking(
        &self,
        subscribed: Slot,
        attributes: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        if !is_blocking(attributes) || self.blocking_subscription(subscribed).is_none() {
            return Ok(());
        }
        let why = "the resource has a subscription that has its updates wait";
        Err(Refusal::new(Status::BlockingSubscriptionAlreadyExists, why))
    }

    /// Checks the combination of attributes after an update of a subscription; an update cannot
    /// make it blocking (TS-0004 §7.4.8.2.3).
    pub(super) fn recheck_subscription(
        &self,
        slot: Slot,
        given: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        if is_blocking(given) {
            return Err(Refusal::bad("a subscription blocks from its creation on, or never"));
        }
        let subscription = self.resource(slot)?;
        let mut whole = subscription.attributes.clone();
        for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            whole.insert(name.clone(), value.clone());
        }
        for name in given.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name) {
            whole.remove(name);
        }
        let above = subscription.parent.and_then(|parent| self.tree.get(parent));
        let subscribed = above.map_or(ResourceType::CseBase, |above| above.resource_type);
        settle_content(&mut whole, subscribed)
    }
}

impl Cse {
    /// Ends a subscription: sends its incomplete batches, and notifies its subscriberURI and the
    /// subscriptions across resources that it belongs to (TS-0004 §7.5.1.2.4, §7.4.8.2.4).
    pub(super) fn end_subscription(&mut self, slot: Slot) {
        let subscription =
            self.tree.get(slot).filter(|it| it.resource_type == ResourceType::Subscription);
        let Some(subscription) = subscription else {
            return;
        };
        let id = Arc::clone(&subscription.id);
        let queue_of = |target: &str| -> Arc<str> { format!("{id} {target}").into() };
        let queues: Vec<Arc<str>> = subscription.texts("nu").map(queue_of).collect();
        let told = subscription.text("su").into_iter().chain(subscription.texts("acrs"));
        let told: Vec<String> = told.map(str::to_owned).collect();
        self.end_lag_of(slot);
        for queue in queues {
            self.flush(&queue);
        }
        self.tell_end(&id, told);
    }

    /// Notifies entities that a subscription is deleted, or was removed from their combination.
    fn tell_end(&mut self, id: &str, targets: impl IntoIterator<Item = String>) {
        let reference = format!("{}/{id}", self.config.cse_id);
        let content = json!({ "m2m:sgn": { "sud": true, "sur": reference } }).to_string();
        for target in targets {
            let mut request = self.own_request(Operation::Notify, target.clone());
            request.content = Some(content.as_str().into());
            let request = Arc::new(request);
            // Not among the notifications, of which several may go out as one.
            let queue = format!("{id} {target} end").into();
            let target = target.into();
            let keep = Some(KEPT_FOR);
            self.counters.notifications += 1;
            if self.post(OutboxMessage { queue, target, request, keep, batch: None }).is_err() {
                self.counters.notifications_dropped += 1;
            }
        }
    }

    /// Tells subscriptions across resources that an update of a subscription has taken it out of
    /// them.
    pub(super) fn tell_taken_out(&mut self, slot: Slot, before: Vec<String>) {
        let Some(subscription) = self.tree.get(slot) else { return };
        let is_gone = |name: &String| !subscription.texts("acrs").any(|it| it == name);
        let gone: Vec<String> = before.into_iter().filter(is_gone).collect();
        if !gone.is_empty() {
            let id = Arc::clone(&subscription.id);
            self.tell_end(&id, gone);
        }
    }

    /// The texts in a list of a resource.
    pub(super) fn names_in(&self, slot: Slot, list: &str) -> Vec<String> {
        let resource = self.tree.get(slot).into_iter();
        resource.flat_map(|it| it.texts(list)).map(str::to_owned).collect()
    }

    /// Drops the notifications that wait for targets that an update of a subscription has removed.
    pub(super) fn drop_for_removed(&mut self, slot: Slot, before: &[String]) {
        let Some(id) = self.tree.get(slot).map(|subscription| Arc::clone(&subscription.id)) else {
            return;
        };
        for target in before {
            self.drop_unaddressed(&format!("{id} {target}"));
        }
    }

    /// Drops the notifications of a queue that are not in progress, if its target is none of its
    /// subscription any more: otherwise they would be tried until they expire.
    pub(super) fn drop_unaddressed(&mut self, queue: &str) {
        // The notification that a subscription has ended goes to whom it named.
        let named = queue.split_once(' ').filter(|(_, target)| !target.contains(' '));
        let Some((id, target)) = named else { return };
        let subscription = self.tree.by_id(id).and_then(|slot| self.tree.get(slot));
        let is_removed = subscription.is_some_and(|it| {
            it.resource_type == ResourceType::Subscription
                && !it.texts("nu").any(|present| present == target)
        });
        if is_removed {
            for _ in 0..self.unsent_in(queue) {
                self.drop_oldest(queue);
            }
        }
    }

    /// Checks that a subscriberURI and subscriptions across resources may be notified. They are not
    /// verified, so each must be the subscriber, one of the verified targets, or an entity that the
    /// subscriber may notify.
    ///
    /// # Errors
    ///
    /// 4103 if one is another entity.
    pub(super) fn check_subscriber(
        &self,
        from: &Originator<'_>,
        attributes: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        let list =
            |name: &str| attributes.get(name).and_then(Value::as_array).into_iter().flatten();
        let targets: Vec<&str> = list("nu").filter_map(Value::as_str).collect();
        let told = attributes.get("su").into_iter().chain(list("acrs")).filter_map(Value::as_str);
        let others = told.filter(|told| !targets.contains(told));
        let others: Vec<String> = others.map(str::to_owned).collect();
        self.check_targets(from, &others)
    }
}

/// Event types of a subscription; updates by default.
pub(super) fn events(attributes: &Map<String, Value>) -> Vec<u64> {
    let criteria = attributes.get("enc").and_then(Value::as_object);
    let monitors = criteria.is_some_and(|it| it.contains_key("om"));
    match criteria.and_then(|it| it.get("net")).and_then(Value::as_array) {
        Some(list) => list.iter().filter_map(Value::as_u64).collect(),
        None if monitors => Vec::new(),
        None => vec![1],
    }
}

/// Whether a subscription is blocking.
pub(super) fn is_blocking(attributes: &Map<String, Value>) -> bool {
    events(attributes).contains(&BLOCKING_UPDATE)
}

/// Whether this content type is allowed for an event type (TS-0001 Table 9.6.8-4).
const fn is_told_by(event: u64, told: u64) -> bool {
    match event {
        1 => matches!(
            told,
            content::ALL_ATTRIBUTES | content::MODIFIED_ATTRIBUTES | content::RESOURCE_ID
        ),
        TRIGGER_RECEIVED => told == content::TRIGGER_PAYLOAD,
        BLOCKING_UPDATE => told == content::MODIFIED_ATTRIBUTES,
        REPORT_ON_MISSING => told == content::TIME_SERIES,
        _ => matches!(told, content::ALL_ATTRIBUTES | content::RESOURCE_ID),
    }
}

/// Default content type of an event type (the same table).
const fn usual_content(event: u64) -> u64 {
    match event {
        TRIGGER_RECEIVED => content::TRIGGER_PAYLOAD,
        BLOCKING_UPDATE => content::MODIFIED_ATTRIBUTES,
        REPORT_ON_MISSING => content::TIME_SERIES,
        _ => content::ALL_ATTRIBUTES,
    }
}

/// Checks the combination of attributes of a whole subscription, and sets its content type if that
/// is missing and equal for all events.
///
/// # Errors
///
/// 4000 if events, conditions and contents do not go together, or not with what is subscribed to;
/// or if a blocking subscription says more than it may.
pub(super) fn settle_content(
    whole: &mut Map<String, Value>,
    subscribed: ResourceType,
) -> Result<(), Refusal> {
    let events = events(whole);
    if events.contains(&NO_INSTANCE) && subscribed != ResourceType::Container {
        return Err(Refusal::bad("net 5 goes with containers"));
    }
    check_subscribed(whole, &events, subscribed)?;
    if events.contains(&BLOCKING_UPDATE) {
        check_blocking(whole, &events)?;
    }
    match whole.get("nct").and_then(Value::as_u64) {
        Some(told) if events.is_empty() && !is_told_by(OPERATION, told) => {
            Err(Refusal::bad("notifications of operations need nct 1 or 3"))
        }
        Some(told) if !events.iter().all(|&event| is_told_by(event, told)) => {
            Err(Refusal::bad("this nct does not go with each net"))
        }
        Some(_) => Ok(()),
        None => {
            let mut usual = events.iter().map(|&event| usual_content(event));
            if let Some(first) = usual.next()
                && usual.all(|other| other == first)
            {
                whole.insert("nct".into(), json!(first));
            }
            Ok(())
        }
    }
}

/// Missing data are of time series and said to be which; only children that may be there are waited
/// for (TS-0004 §7.4.8.2.1).
fn check_subscribed(
    whole: &Map<String, Value>,
    events: &[u64],
    subscribed: ResourceType,
) -> Result<(), Refusal> {
    let criteria = whole.get("enc").and_then(Value::as_object);
    let missing = criteria.is_some_and(|it| it.contains_key("md"));
    if missing && subscribed != ResourceType::TimeSeries {
        return Err(Refusal::bad("md goes with time series"));
    }
    if events.contains(&REPORT_ON_MISSING) && !missing {
        return Err(Refusal::bad("net 8 goes with md"));
    }
    let children = criteria.and_then(|it| it.get("chty")).and_then(Value::as_array);
    for child in children.into_iter().flatten() {
        let number = child.as_u64().and_then(|number| u16::try_from(number).ok());
        if !number.and_then(ResourceType::from_number).is_some_and(|child| subscribed.has(child)) {
            let whose = subscribed.number();
            return Err(Refusal::bad(format!("chty {child}: type {whose} has no such child here")));
        }
    }
    Ok(())
}

/// A blocking subscription asks one entity, of each update or of those of some attributes, and says
/// nothing else (TS-0004 §7.4.8.2.1).
fn check_blocking(whole: &Map<String, Value>, events: &[u64]) -> Result<(), Refusal> {
    if events.len() != 1 {
        return Err(Refusal::bad("net 7 goes with no other"));
    }
    let mut targets =
        whole.get("nu").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    if !matches!((targets.next(), targets.next()), (Some(one), None) if !one.contains("://")) {
        return Err(Refusal::bad("net 7 goes with one target, which is an entity's address"));
    }
    if let Some(policy) = POLICIES.iter().find(|&&name| whole.contains_key(name)) {
        return Err(Refusal::bad(format!("net 7 goes without {policy}")));
    }
    let criteria = whole.get("enc").and_then(Value::as_object);
    let other = criteria.and_then(|it| it.keys().find(|&name| name != "net" && name != "atr"));
    match other {
        Some(name) => Err(Refusal::bad(format!("net 7 goes without the condition {name}"))),
        None => Ok(()),
    }
}

/// Notification policies of a subscription.
const POLICIES: [&str; 13] =
    ["exc", "bn", "ln", "nec", "pn", "su", "nfu", "gpi", "nsp", "rl", "psn", "nse", "acrs"];

/// Whether event notification criteria say only which events they are about: most do, and need no
/// filter.
pub(super) fn is_unconditional(criteria: &Map<String, Value>) -> bool {
    let is_of_events = |name: &str, value: &Value| {
        matches!(name, "net" | "chty" | "atr" | "om") && value.is_array()
    };
    criteria.iter().all(|(name, value)| is_of_events(name, value))
}

/// The filter of the conditions in event notification criteria.
pub(super) fn conditions(criteria: &Map<String, Value>) -> Result<Filter, Refusal> {
    let mut filter = Filter::default();
    for (name, value) in criteria {
        match (name.as_str(), value) {
            // Checked where they are written.
            ("net" | "chty" | "atr" | "om", Value::Array(_)) => {}
            ("md", criterion) => check_missing_data(criterion)?,
            (
                "crb" | "cra" | "ms" | "us" | "sts" | "stb" | "exb" | "exa" | "sza" | "szb" | "fo",
                Value::String(_) | Value::Number(_),
            ) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                filter.set(name, &text)?;
            }
            _ => return Err(Refusal::bad(format!("enc has no {name}, or of another form"))),
        }
    }
    Ok(filter)
}

/// Checks the form of a subscription's attributes.
///
/// # Errors
///
/// 4000 if it is out of range or of another form; 5001 for what needs an underlying network.
pub(super) fn check_subscription(
    attributes: &Map<String, Value>,
    entries_max: usize,
) -> Result<(), Refusal> {
    if attributes.get("nu").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        return Err(Refusal::bad("nu has at least one target"));
    }
    if attributes.get("exc").and_then(Value::as_u64) == Some(0) {
        return Err(Refusal::bad("exc is at least 1"));
    }
    if attributes.get("psn").and_then(Value::as_u64) == Some(0) {
        return Err(Refusal::bad("psn is at least 1"));
    }
    if attributes.get("rl").is_some_and(|limit| !limit.is_null() && rate_limit(limit).is_none()) {
        return Err(Refusal::bad("rl has a positive mnn and a duration tww"));
    }
    match attributes.get("nct").and_then(Value::as_u64) {
        None | Some(1..=3 | content::TIME_SERIES) => {}
        Some(content::TRIGGER_PAYLOAD) => return Err(no_triggers("nct 4")),
        Some(_) => return Err(Refusal::bad("nct is from 1 to 5")),
    }
    check_batch(attributes.get("bn"), "bn")?;
    let Some(criteria) = attributes.get("enc").and_then(Value::as_object) else {
        return Ok(());
    };
    conditions(criteria)?;
    if let Some(monitors) = criteria.get("om") {
        check_monitors(monitors, entries_max)?;
        if criteria.contains_key("net") {
            return Err(Refusal::bad("enc has net or om, not both"));
        }
    }
    for event in criteria.get("net").and_then(Value::as_array).into_iter().flatten() {
        match event.as_u64() {
            Some(1..=4 | NO_INSTANCE | BLOCKING_UPDATE | REPORT_ON_MISSING) => {}
            Some(TRIGGER_RECEIVED) => return Err(no_triggers("net 6")),
            _ => return Err(Refusal::bad("a notification event type is from 1 to 8")),
        }
    }
    Ok(())
}

/// Checks a batch (m2m:batchNotify) in the attribute `name`.
pub(super) fn check_batch(batch: Option<&Value>, name: &str) -> Result<(), Refusal> {
    let Some(batch) = batch.filter(|batch| !batch.is_null()) else { return Ok(()) };
    let number = batch.get("num").is_none_or(|number| number.as_u64().is_some_and(|n| n > 0));
    let duration = batch.get("dur").is_none_or(|duration| duration_of(duration).is_some());
    let members = batch.as_object().into_iter().flatten();
    let known = members.into_iter().all(|(member, _)| matches!(member.as_str(), "num" | "dur"));
    if number && duration && known {
        return Ok(());
    }
    Err(Refusal::bad(format!("{name} has a positive num and a duration dur, and nothing else")))
}

/// Refuses triggers, which need an underlying network (3GPP) that does not reach this node.
fn no_triggers(what: &str) -> Refusal {
    let why = format!("{what} is not offered: no network brings triggers here");
    Refusal::new(Status::NotImplemented, why)
}

/// Checks operation monitors: each names operations (m2m:accessControlOperations), an originator, or
/// both.
fn check_monitors(monitors: &Value, entries_max: usize) -> Result<(), Refusal> {
    let is_monitor = |monitor: &Value| {
        let named = monitor.as_object().filter(|monitor| !monitor.is_empty());
        named.is_some_and(|monitor| {
            monitor.iter().all(|(name, value)| match name.as_str() {
                "ops" => value.as_u64().is_some_and(|bits| (1..=ALL_RIGHTS).contains(&bits)),
                "or" => value.as_str().is_some_and(|from| !from.is_empty()),
                _ => false,
            })
        })
    };
    let monitors = monitors.as_array();
    if monitors
        .is_some_and(|list| (1..=entries_max).contains(&list.len()) && list.iter().all(is_monitor))
    {
        return Ok(());
    }
    Err(Refusal::bad("om is a list of monitors: ops from 1 to 63, an originator or, or both"))
}

/// A rate limit (m2m:rateLimit): a number of notifications in a time.
pub(super) fn rate_limit(limit: &Value) -> Option<(usize, Duration)> {
    let most = usize::try_from(limit.get("mnn")?.as_u64()?).ok()?;
    let window = duration_of(limit.get("tww")?)?;
    (most > 0 && window > Duration::ZERO).then_some((most, window))
}

/// A duration as text or as a number of milliseconds.
pub(super) fn duration_of(value: &Value) -> Option<Duration> {
    match value {
        Value::String(text) => parse_duration(text),
        Value::Number(number) => number.as_u64().map(Duration::from_millis),
        _ => None,
    }
}
