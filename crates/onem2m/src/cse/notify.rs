//! Notifications of subscriptions (TS-0001 §9.6.8, §10.2.10): their events, targets and content.

use super::access::{Originator, Right};
use super::aggregate::{MemberNotifications, MemberSubscription};
use super::calls::{Purpose, Unreachable};
use super::create::Draft;
use super::outbox::{Gather, OutboxMessage};
use super::polling::EntityRoute;
use super::statistics::Statistic;
use super::subscription::{
    KEPT_FOR, check_subscription, conditions, duration_of, is_unconditional, settle_content,
};
use super::{Cse, Done, Refusal, RequestContext, not_allowed};
use crate::primitive::{Operation, Request, Response};
use crate::resource::{PLACE_OCTETS, Resource, push_json_text, push_number, some_attributes};
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::tree::{Instance, Slot};
use core::time::Duration;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Duration of a batch that sets none (bn without dur).
const GATHERED_FOR: Duration = Duration::from_mins(1);
/// The same duration in m2m:batchNotify.
const GATHERED_FOR_TEXT: &str = "PT1M";

/// Octets of most notifications beside their representation: an allocation that need not grow.
pub(super) const EVENT_OCTETS: usize = 128;

/// Instances that are looked at for notifications of events before a subscription.
const EARLIER_MAX: usize = 4_096;

/// m2m:stdEventCats, latest: a newer notification replaces a waiting one.
const LATEST: u64 = 4;

/// Event of a resource with subscriptions (m2m:notificationEventType).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NotificationEventType {
    /// 1.
    Updated,
    /// 2.
    Deleted,
    /// 3.
    ChildCreated,
    /// 4.
    ChildDeleted,
    /// 5: a retrieval from a container without instances.
    NoInstance,
}

impl NotificationEventType {
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Updated => 1,
            Self::Deleted => 2,
            Self::ChildCreated => 3,
            Self::ChildDeleted => 4,
            Self::NoInstance => 5,
        }
    }
}

/// Verification of notification targets, with the action after all have accepted.
#[derive(Debug)]
pub(super) struct Verification {
    asker: RequestContext,
    request: Request,
    then: Then,
    asked: usize,
    refused: Option<Status>,
}

#[derive(Debug)]
enum Then {
    Create {
        parent_seq: u64,
        draft: Draft,
        given: Map<String, Value>,
    },
    Update {
        seq: u64,
        given: Map<String, Value>,
    },
    /// A subscription for the members of the group with this number, below `rest`.
    Spread {
        group: u64,
        rest: String,
        receiver: String,
    },
    /// Notifications of members for the group with this number.
    Gather {
        group: u64,
        notifications: MemberNotifications,
    },
}

/// Part of a resource that a subscriber may see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum VisiblePart {
    /// All of it: the subscriber may retrieve it.
    Whole,
    /// Its address: the subscriber may discover it.
    Address,
}

/// Verifications in progress.
pub(super) type Verifications = BTreeMap<u64, Verification>;

impl Cse {
    /// Notifies the subscribers of `subject` of an `event` of it or of its child `about`; `changed`
    /// names the attributes of an update.
    pub(super) fn tell(
        &mut self,
        subject: Slot,
        event: NotificationEventType,
        about: Slot,
        changed: &[String],
    ) {
        self.observers.touch(subject);
        let Some(family) = self.tree.get(subject).and_then(|it| it.family.as_ref()) else {
            return;
        };
        if family.subscriptions.is_empty() {
            return;
        }
        let subscriptions = family.subscriptions.clone();
        for subscription in subscriptions {
            if subscription != about
                && self.wants(subscription, event, about, changed)
                && !self.lags(subscription, event, about)
            {
                self.notify(subscription, event, about, changed);
            }
        }
    }

    pub(super) fn wants(
        &self,
        subscription: Slot,
        event: NotificationEventType,
        about: Slot,
        changed: &[String],
    ) -> bool {
        let (Some(subscription), Some(subject)) =
            (self.tree.get(subscription), self.tree.get(about))
        else {
            return false;
        };
        let Some(criteria) = subscription.attribute("enc").and_then(Value::as_object) else {
            return event == NotificationEventType::Updated;
        };
        let numbers = |name: &str| criteria.get(name).and_then(Value::as_array);
        let lists = |name: &str, number: u64| {
            numbers(name).is_none_or(|list| list.iter().any(|entry| entry.as_u64() == Some(number)))
        };
        let wanted = match numbers("net") {
            // Who monitors operations hears of them alone.
            None => event == NotificationEventType::Updated && !criteria.contains_key("om"),
            Some(_) => lists("net", event.number()),
        };
        let of_child = matches!(
            event,
            NotificationEventType::ChildCreated | NotificationEventType::ChildDeleted
        );
        let child_fits = !of_child || lists("chty", u64::from(subject.resource_type.number()));
        let attribute_fits = event != NotificationEventType::Updated
            || numbers("atr").is_none_or(|names| {
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .any(|name| changed.iter().any(|changed| changed == name))
            });
        wanted
            && child_fits
            && attribute_fits
            && self.meets_conditions(criteria, &subscription.owner, about)
    }

    /// Whether a resource meets the conditions in the criteria of `owner`'s subscription.
    pub(super) fn meets_conditions(
        &self,
        criteria: &Map<String, Value>,
        owner: &str,
        slot: Slot,
    ) -> bool {
        if is_unconditional(criteria) {
            return self.tree.get(slot).is_some();
        }
        conditions(criteria)
            .and_then(|filter| {
                self.matches(&filter, &Originator::absent(owner), slot, &mut self.steps())
            })
            .unwrap_or(false)
    }

    pub(super) fn notify(
        &mut self,
        slot: Slot,
        event: NotificationEventType,
        about: Slot,
        changed: &[String],
    ) {
        let (Some(subscription), Some(subject)) = (self.tree.get(slot), self.tree.get(about))
        else {
            return;
        };
        let Some(seen) = self.seen_by(&subscription.owner, about) else {
            self.counters.notifications_withheld += 1;
            return;
        };
        let representation: Arc<str> = match (seen, subscription.uint("nct")) {
            (VisiblePart::Address, _) | (_, Some(3)) => self.address_alone(about).into(),
            (VisiblePart::Whole, Some(2)) if event == NotificationEventType::Updated => {
                let is_changed = |name: &str| changed.iter().any(|it| it == name);
                some_attributes(&subject.tag, &subject.attributes_text(), is_changed).into()
            }
            (VisiblePart::Whole, _) => subject.to_text(),
        };
        self.send_notification(slot, event.number(), &representation);
    }

    /// Part of a resource that the subscriber may see now. The right to the subscribed resource was
    /// checked at subscription, but a child may have its own policies, and both may change.
    pub(super) fn seen_by(&self, owner: &str, about: Slot) -> Option<VisiblePart> {
        let owner = Originator::absent(owner);
        if self.allows(&owner, Right::Retrieve, about, None) {
            Some(VisiblePart::Whole)
        } else {
            self.allows(&owner, Right::Discover, about, None).then_some(VisiblePart::Address)
        }
    }

    /// A notification's content with only an address: SP-relative, since the target may be an
    /// entity of another CSE.
    pub(super) fn address_alone(&self, about: Slot) -> String {
        let address = format!("{}/{}", self.config.cse_id, self.tree.path(about));
        json!({ "m2m:uri": address }).to_string()
    }

    /// Notifies the targets of a subscription of the event `net` with its representation.
    pub(super) fn send_notification(&mut self, slot: Slot, net: u64, representation: &str) {
        let mut event = String::with_capacity(EVENT_OCTETS + representation.len());
        event.push_str("{\"net\":");
        push_number::<10>(&mut event, net);
        event.push_str(",\"rep\":");
        event.push_str(representation);
        event.push('}');
        self.send_event(slot, |_, _| Cow::Borrowed(event.as_str()));
    }

    /// Notifies each target of a subscription of an event (m2m:notificationEvent, as JSON text).
    pub(super) fn send_event<'event>(
        &mut self,
        slot: Slot,
        event: impl Fn(&Self, &str) -> Cow<'event, str>,
    ) {
        let Some(subscription) = self.tree.get(slot) else {
            return;
        };
        let latest = subscription.flag("ln");
        // "If the latestNotify attribute is set, the Originator shall assign Event Category
        // parameter of value latest" (TS-0004 §7.5.1.2.2, step 2.3).
        let category = if latest { Some(LATEST) } else { subscription.uint("nec") };
        let gather = self.gather(subscription.attribute("bn"), latest);
        // A batch is counted by what it is made of, and its latest is all that is told.
        let latest_only = (subscription.uint("pn") == Some(1) || latest) && gather.is_none();
        let id = Arc::clone(&subscription.id);
        let targets: Vec<(String, Option<String>)> = subscription
            .texts("nu")
            .map(|target| {
                let event = event(self, target);
                let is_crowded_out = self.is_crowded_out(&id, target, event.len());
                let content =
                    (!is_crowded_out).then(|| self.event_content(subscription, target, &event));
                (target.to_owned(), content)
            })
            .collect();
        let remaining = subscription.uint("exc");
        for (target, content) in targets {
            self.count_statistic(slot, &target, Statistic::Event);
            let Some(content) = content else {
                self.counters.notifications += 1;
                self.counters.notifications_dropped += 1;
                continue;
            };
            let mut request = self.own_request(Operation::Notify, target.clone());
            request.content = Some(content.into());
            request.event_category = category.and_then(|number| u32::try_from(number).ok());
            if self.is_own_group(&target) {
                let content = request.content.as_deref().unwrap_or_default();
                if self.notify_own_group(&target, content).is_err() {
                    self.counters.notifications_dropped += 1;
                }
                continue;
            }
            let queue: Arc<str> = format!("{id} {target}").into();
            let keep = Some(KEPT_FOR);
            self.counters.notifications += 1;
            let message = OutboxMessage {
                queue: Arc::clone(&queue),
                target: target.into(),
                request: request.into(),
                keep,
                batch: gather,
            };
            if self.post_notification(message).is_err() {
                self.counters.notifications_dropped += 1;
            }
            if latest_only {
                self.keep_latest(&queue);
            }
        }
        self.count_down(slot, remaining);
    }

    /// Whether a notification of this event is dropped, as nothing waits in its queue that could
    /// give way: its content need not be made.
    fn is_crowded_out(&self, subscription: &str, target: &str, octets: usize) -> bool {
        let queue = format!("{subscription} {target}");
        octets >= PLACE_OCTETS
            && self.is_queue_empty(&queue)
            && !self.lagging.is_catching_up(&queue)
            && !self.is_own_group(target)
            && !self.has_room_for(&queue, octets)
    }

    /// Queues a notification; without room it takes the places of the oldest ones of its queue.
    ///
    /// # Errors
    ///
    /// 5103 if there is no room all the same.
    pub(super) fn post_notification(&mut self, message: OutboxMessage) -> Result<(), Refusal> {
        for _ in 0..message.room().smallest() {
            if self.fits(&message) {
                break;
            }
            self.drop_oldest(&message.queue);
        }
        self.post(message)
    }

    /// Content of a subscription's notification to a target: with the subscription's creator, if
    /// that is set (TS-0001 §10.2.10.7), and the forwarding address of a group.
    pub(super) fn event_content(
        &self,
        subscription: &Resource,
        target: &str,
        event: &str,
    ) -> String {
        let mut text = String::with_capacity(EVENT_OCTETS + event.len());
        text.push_str("{\"m2m:sgn\":{\"nev\":");
        text.push_str(event);
        text.push_str(",\"sur\":");
        push_json_text(&mut text, &[&*self.config.cse_id, "/", &*subscription.id].concat());
        if let Some(creator) = subscription.text("cr") {
            text.push_str(",\"cr\":");
            push_json_text(&mut text, &self.originator_for(target, creator));
        }
        if let Some(forwarding) = subscription.text("nfu") {
            text.push_str(",\"nfu\":");
            push_json_text(&mut text, forwarding);
        }
        text.push_str("}}");
        text
    }

    /// Counts expirationCounter down; the subscription is deleted at its end.
    fn count_down(&mut self, slot: Slot, remaining: Option<u64>) {
        match remaining {
            None => {}
            Some(0 | 1) => self.take_out(slot),
            Some(more) => self.change(slot, |subscription| {
                subscription.attributes.insert("exc".into(), json!(more - 1));
            }),
        }
    }

    /// How notifications are batched (m2m:batchNotify).
    pub(super) fn gather(&self, given: Option<&Value>, latest: bool) -> Option<Gather> {
        let given = given?;
        let number = given.get("num").and_then(Value::as_u64);
        let number = number.and_then(|number| usize::try_from(number).ok());
        let limit = self.config.limits.batch;
        let duration = given.get("dur").and_then(duration_of).unwrap_or(GATHERED_FOR);
        Some(Gather { number: number.unwrap_or(limit).clamp(1, limit), duration, latest })
    }

    /// Checks a subscription and verifies its targets; it is created at once only without targets
    /// to verify.
    pub(super) fn create_subscription(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        mut draft: Draft,
    ) -> Result<Option<Done>, Refusal> {
        let (subscribed, parent) = (self.resource(draft.parent)?, draft.parent);
        let parent_seq = subscribed.seq;
        let count = subscribed.family.as_ref().map_or(0, |family| family.subscription_count());
        if count >= self.config.limits.subscriptions {
            self.counters.subscriptions_full += 1;
            return Err(Refusal::new(
                Status::InternalServerError,
                format!("{count} subscriptions are as many as one resource has here"),
            ));
        }
        if !self.allows(from, Right::Retrieve, parent, None) {
            return Err(Refusal::new(
                Status::OriginatorHasNoPrivilege,
                "who subscribes must be allowed to retrieve",
            ));
        }
        check_subscription(&draft.attributes, self.config.limits.list_entries)?;
        self.check_subscriber(from, &draft.attributes)?;
        settle_content(&mut draft.attributes, self.resource(parent)?.resource_type)?;
        self.check_only_blocking(parent, &draft.attributes)?;
        let given = draft.attributes.clone();
        let id = format!("{}{:x}", ResourceType::Subscription.prefix(), self.ledger.next_seq());
        let mut targets = self.targets_to_ask(&draft.attributes, from, &[]);
        if !targets.is_empty() {
            // "If the notificationURI is not the Originator, the Hosting CSE shall set the
            // Originator's ID as the <subscription> resource's creator attribute."
            draft.attributes.insert("cr".into(), json!(&**from));
        }
        if let Some(Value::Object(batch)) = draft.attributes.get_mut("bn") {
            batch.entry("dur").or_insert_with(|| json!(GATHERED_FOR_TEXT));
        }
        draft.id = Some(id.clone());
        if asker.depth > 0 {
            // The group that asks for it has asked the receiver.
            targets.retain(|target| !self.is_own_group(target));
        }
        if targets.is_empty() {
            return self.found_subscription(request, draft, &given).map(Some);
        }
        let then = Then::Create { parent_seq, draft, given };
        self.ask_targets(asker, request, from, &id, targets, then)?;
        Ok(None)
    }

    /// Creates a checked subscription, and notifies of what was before it, if that is wanted.
    fn found_subscription(
        &mut self,
        request: &Request,
        draft: Draft,
        given: &Map<String, Value>,
    ) -> Result<Done, Refusal> {
        let slot = self.found(draft)?;
        let response = self.creation_response(request, slot, given);
        self.tell_earlier(slot);
        response
    }

    /// Notifies of events before the subscription (TS-0001 §9.6.8, preSubscriptionNotify). Those that
    /// are retained are the creations of instances that still exist.
    pub(super) fn tell_earlier(&mut self, slot: Slot) {
        let Some(subscription) = self.tree.get(slot) else { return };
        let (Some(wanted), Some(parent)) = (subscription.uint("psn"), subscription.parent) else {
            return;
        };
        let most = self.config.limits.notifications_waiting;
        let wanted = usize::try_from(wanted).unwrap_or(most).min(most);
        let seq = subscription.seq;
        let latest = self.tree.latest_instances(parent, EARLIER_MAX);
        if self.read_for_earlier(seq, parent, &latest) {
            return;
        }
        let slots = latest.iter().filter_map(|(_, instance)| match instance {
            Instance::Resident(slot) => Some(*slot),
            Instance::PagedOut(_) => None,
        });
        let is_wanted =
            |about: &Slot| self.wants(slot, NotificationEventType::ChildCreated, *about, &[]);
        let mut earlier: Vec<Slot> = slots.filter(is_wanted).take(wanted).collect();
        while let Some(about) = earlier.pop() {
            // It may end by its counter.
            if self.tree.by_seq(seq) == Some(slot) {
                self.notify(slot, NotificationEventType::ChildCreated, about, &[]);
            }
        }
    }

    /// Checks an update of a subscription; returns whether new targets must be verified first.
    pub(super) fn update_subscription(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
        given: &Map<String, Value>,
    ) -> Result<bool, Refusal> {
        check_subscription(given, self.config.limits.list_entries)?;
        self.check_subscriber(from, given)?;
        self.recheck_subscription(slot, given)?;
        let subscription = self.resource(slot)?;
        if given.contains_key("nfu") && subscription.texts("nu").any(|it| self.is_own_group(it)) {
            return Err(Refusal::bad("nfu of a subscription through a group stays: it has agreed"));
        }
        let (seq, id) = (subscription.seq, subscription.id.to_string());
        let present: Vec<String> = subscription.texts("nu").map(str::to_owned).collect();
        let targets = self.targets_to_ask(given, from, &present);
        if targets.is_empty() {
            return Ok(false);
        }
        let then = Then::Update { seq, given: given.clone() };
        self.ask_targets(asker, request, from, &id, targets, then)?;
        Ok(true)
    }

    /// Targets to verify: all except the subscriber itself (TS-0001 §10.2.10.2).
    fn targets_to_ask(
        &self,
        attributes: &Map<String, Value>,
        from: &str,
        known: &[String],
    ) -> Vec<String> {
        let targets = attributes.get("nu").and_then(Value::as_array).into_iter().flatten();
        let others = targets.filter_map(Value::as_str).filter(|target| {
            let same = self.own_form(target) == from
                || self.resolve_local(target).is_some_and(|found| {
                    matches!(found, super::Target::Resource(slot)
                        if self.tree.get(slot).is_some_and(|entity| *entity.id == *from))
                });
            !same && !known.iter().any(|known| known == target)
        });
        others.map(str::to_owned).collect()
    }

    fn ask_targets(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &str,
        id: &str,
        targets: Vec<String>,
        then: Then,
    ) -> Result<(), Refusal> {
        let number = self.ledger.next_seq();
        let reference = format!("{}/{id}", self.config.cse_id);
        let asked = targets.len();
        for target in targets {
            let mut question = self.own_request(Operation::Notify, target.clone());
            let creator = self.originator_for(&target, from);
            let content = json!({ "m2m:sgn": { "vrq": true, "sur": reference, "cr": creator } });
            question.content = Some(content.to_string().into());
            let mut question = Arc::new(question);
            let route = self.reach(&target, &mut question);
            // What it is notified of is a command to a device: who may give one asks its AE.
            if matches!(route, Ok(EntityRoute::Device(_))) && from != self.config.cse_id {
                return Err(Refusal::new(
                    Status::SubscriptionCreatorHasNoPrivilege,
                    "a device is notified by its own gateway only",
                ));
            }
            let sent = route
                .and_then(|route| self.send(route, question, Purpose::Verification(number), from));
            sent.map_err(|refusal| {
                Refusal::new(
                    Status::SubscriptionVerificationInitiationFailed,
                    format!("a notification target cannot be asked: {}", refusal.debug),
                )
            })?;
        }
        let verification = Verification {
            asker: asker.clone(),
            request: request.clone(),
            then,
            asked,
            refused: None,
        };
        self.verifications.insert(number, verification);
        Ok(())
    }

    pub(super) fn verification_answered(
        &mut self,
        number: u64,
        answer: Result<Response, Unreachable>,
    ) {
        let Some(verification) = self.verifications.get_mut(&number) else {
            return;
        };
        match answer.map(|answer| answer.status) {
            Ok(status) if status.is_success() => {}
            Ok(Status::SubscriptionHostHasNoPrivilege) => {
                verification.refused = Some(Status::SubscriptionHostHasNoPrivilege);
            }
            _ => {
                verification
                    .refused
                    .get_or_insert(Status::SubscriptionVerificationInitiationFailed);
            }
        }
        verification.asked -= 1;
        if verification.asked > 0 {
            return;
        }
        let Some(verification) = self.verifications.remove(&number) else {
            return;
        };
        let asker = verification.asker.clone();
        if let Some(outcome) = self.conclude(verification).transpose() {
            self.answer(&asker, outcome);
        }
    }

    /// Does what waited for the verification; without a result if others are asked now.
    fn conclude(&mut self, verification: Verification) -> Result<Option<Done>, Refusal> {
        if let Some(status) = verification.refused {
            return Err(Refusal::new(status, "a notification target did not agree"));
        }
        let gone = || not_allowed("the resource is gone");
        match verification.then {
            Then::Create { parent_seq, mut draft, given } => {
                // The place may be another's by now; the number never is.
                draft.parent = self.tree.by_seq(parent_seq).ok_or_else(gone)?;
                // Another may have come meanwhile.
                self.check_only_blocking(draft.parent, &draft.attributes)?;
                self.found_subscription(&verification.request, draft, &given).map(Some)
            }
            Then::Update { seq, given } => {
                let slot = self.tree.by_seq(seq).ok_or_else(gone)?;
                self.apply_update(&verification.asker, &verification.request, slot, given).map(Some)
            }
            Then::Spread { group, rest, receiver } => {
                let slot = self.tree.by_seq(group).ok_or_else(gone)?;
                self.note_forwarding(group, &receiver);
                self.spread(&verification.asker, &verification.request, (slot, &rest))
            }
            Then::Gather { group, notifications } => {
                notifications.receivers().for_each(|it| self.note_forwarding(group, it));
                self.gather_notifications(group, notifications).map(Some)
            }
        }
    }

    /// Subscribes to every member of a group after the receiver of the aggregated notifications has
    /// agreed, unless it is the subscriber itself: the members ask the group only.
    pub(super) fn subscribe_members(
        &mut self,
        asker: &RequestContext,
        subscription: MemberSubscription,
        from: &Originator<'_>,
        (group, rest): (Slot, &str),
    ) -> Result<Option<Done>, Refusal> {
        let MemberSubscription { receiver, request } = subscription;
        let (seq, id) = {
            let group = self.resource(group)?;
            (group.seq, group.id.to_string())
        };
        let attributes = Map::from_iter([("nu".to_owned(), json!([receiver]))]);
        let targets = self.targets_to_ask(&attributes, from, &[]);
        if targets.is_empty() {
            self.note_forwarding(seq, &receiver);
            return self.spread(asker, &request, (group, rest));
        }
        let then = Then::Spread { group: seq, rest: rest.to_owned(), receiver };
        self.ask_targets(asker, &request, from, &id, targets, then)?;
        Ok(None)
    }

    /// Asks receivers of aggregated notifications that are not known yet, on behalf of the
    /// subscription's creator.
    pub(super) fn verify_forwarding(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        (creator, receivers): (&str, Vec<String>),
        (group, notifications): (u64, MemberNotifications),
    ) -> Result<(), Refusal> {
        let id = self.tree.by_seq(group).and_then(|slot| self.tree.get(slot));
        let id = id.map(|group| group.id.to_string()).unwrap_or_default();
        let then = Then::Gather { group, notifications };
        self.ask_targets(asker, request, creator, &id, receivers, then)
    }

    /// Forwards a notification for an entity of this CSE.
    pub(super) fn notify_entity(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<Option<Done>, Refusal> {
        match self.resource(slot)?.resource_type {
            ResourceType::CseBase => {
                check_notification(request)?;
                if !self.is_cse(from) {
                    self.demand(from, Right::Notify, slot, None)?;
                }
                let why = "notifications for this CSE itself are not offered";
                Err(Refusal::new(Status::NotImplemented, why))
            }
            ResourceType::ApplicationEntity => {
                // What a CSE tells was subscribed to; anybody else must be allowed to.
                if !self.is_cse(from) {
                    self.demand(from, Right::Notify, slot, None)?;
                }
                let id = self.resource(slot)?.id.to_string();
                let mut onward = request.clone();
                onward.id = self.next_request_id();
                let mut onward = Arc::new(onward);
                let route = self.reach(&id, &mut onward)?;
                self.send(route, onward, Purpose::Forward(asker.clone()), from)?;
                Ok(None)
            }
            _ => Err(not_allowed("resources of this type take no notifications")),
        }
    }
}

/// Content types of notifications to a CSE (TS-0004 Table 7.5.1.1-2, and a response to a
/// non-blocking request).
const NOTIFICATIONS: [&str; 4] = ["m2m:sgn", "m2m:agn", "m2m:seci", "m2m:rsp"];

/// Checks the content of a notification: over HTTP and CoAP a creation without its resource type
/// arrives as a notification.
///
/// # Errors
///
/// 4000 if the content is another object or is missing.
fn check_notification(request: &Request) -> Result<(), Refusal> {
    let content = request.content.as_deref().unwrap_or("null");
    let content: Option<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(content).ok();
    let is_one = content.is_some_and(|content| {
        content.len() == 1 && content.keys().all(|name| NOTIFICATIONS.contains(&name.as_str()))
    });
    if is_one {
        return Ok(());
    }
    Err(Refusal::bad(
        "without a resource type (ty) this is a notification, and its content is none",
    ))
}
