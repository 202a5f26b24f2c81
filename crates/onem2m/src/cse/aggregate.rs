//! Notifications of subscriptions that were made through a group (TS-0001 §10.2.7.10, §10.2.7.11;
//! TS-0004 §7.4.14.2.3, §7.5.1.2.6): members notify the group, which sends several notifications as
//! one to the notificationForwardingURI.
//!
//! "The group-hosting CSE shall assign a new URI to the notificationURI attribute of the
//! <subscription> in the requests before forwarding it to the group members." That URI is the group's
//! fan-out point, which nobody notifies otherwise. If the subscription came through a group of
//! another CSE, that group's own URI stands behind it: so the mapping of both survives a restart.
//!
//! A member is answered when its notification is stored here, and not, as the clause has it, with
//! the subscriber's response: the subscriber may be away for longer than a member waits.

use super::access::Originator;
use super::group::NESTED_MAX;
use super::outbox::OutboxMessage;
use super::subscription::KEPT_FOR;
use super::{Cse, Done, Refusal, RequestContext, Target, denied, not_found};
use crate::address::Address;
use crate::primitive::{Operation, Request};
use crate::resource_type::ResourceType;
use crate::status::Status;
use crate::tree::Slot;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Receivers of aggregated notifications that are remembered as verified; beyond, all are verified
/// again.
const VERIFIED_MAX: usize = 1_024;
/// The prefix of the address of the group above, behind a group's fan-out point.
const ABOVE: &str = "~";
/// Name of a group's fan-out point.
const FAN_OUT_POINT: &str = "fopt";

/// Receivers that have agreed to aggregated notifications, with the group's number. A restart
/// forgets them; they are verified again with the next notification of another CSE.
#[derive(Debug, Default)]
pub(super) struct ForwardingTargets(BTreeSet<(u64, Box<str>)>);

impl ForwardingTargets {
    fn add(&mut self, group: u64, target: &str) {
        if self.0.len() >= VERIFIED_MAX {
            self.0.clear();
        }
        self.0.insert((group, target.into()));
    }

    fn contains(&self, group: u64, target: &str) -> bool {
        self.0.contains(&(group, target.into()))
    }
}

/// A subscription for the members of a group, which notify the group.
#[derive(Debug)]
pub(super) struct MemberSubscription {
    /// Receiver of the aggregated notifications.
    pub(super) receiver: String,
    /// The request as the members get it.
    pub(super) request: Request,
}

/// Notifications in a request to a group.
#[derive(Debug)]
pub(super) struct MemberNotifications {
    /// Receiver and content (`{"m2m:sgn":…}`) of each.
    each: Vec<(String, String)>,
    /// Whether it only asks whether the group takes notifications.
    is_verification: bool,
    creator: Option<String>,
}

impl MemberNotifications {
    /// The receiver.
    pub(super) fn receivers(&self) -> impl Iterator<Item = &str> {
        self.each.iter().map(|(receiver, _)| receiver.as_str())
    }
}

impl Cse {
    /// The subscription as the members of a group get it, if the group is to aggregate its
    /// notifications.
    pub(super) fn for_members(&self, request: &Request, group: Slot) -> Option<MemberSubscription> {
        if request.operation != Operation::Create
            || request.resource_type != Some(ResourceType::Subscription)
        {
            return None;
        }
        // If something is wrong with it, each member says so.
        let content = request.content.as_deref()?;
        let mut content: Map<String, Value> = serde_json::from_str(content).ok()?;
        let subscription = content.get_mut(ResourceType::Subscription.tag())?.as_object_mut()?;
        let forwarding = subscription.get("nfu")?.as_str()?.to_owned();
        let own = format!("{}/{}", self.config.cse_id, self.tree.get(group)?.id);
        let above = self.group_above(subscription.get("nu"));
        let behind = above.as_ref().map(|address| format!("/{ABOVE}{address}")).unwrap_or_default();
        subscription.insert("nu".into(), json!([format!("{own}/{FAN_OUT_POINT}{behind}")]));
        subscription.entry("gpi").or_insert_with(|| json!(own));
        let content = Value::Object(content).to_string();
        let request = Request { content: Some(content.into()), ..request.clone() };
        Some(MemberSubscription { receiver: above.unwrap_or(forwarding), request })
    }

    /// The only notification target, if it is the fan-out point of another CSE's group.
    fn group_above(&self, targets: Option<&Value>) -> Option<String> {
        let [target] = targets?.as_array()?.as_slice() else { return None };
        let target = target.as_str()?;
        let address = Address::parse(target, &self.config.cse_id, &self.config.provider);
        let Address::There { path, .. } = address else { return None };
        path.split('/').any(|name| name == FAN_OUT_POINT).then(|| target.to_owned())
    }

    /// Remembers that a receiver of aggregated notifications has agreed.
    pub(super) fn note_forwarding(&mut self, group: u64, receiver: &str) {
        self.forwarding.add(group, receiver);
    }

    /// Takes a notification of a member for a group; `rest` is what stands behind its fan-out point.
    pub(super) fn notify_group(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        (group, rest): (Slot, &str),
    ) -> Result<Option<Done>, Refusal> {
        // "Validate if the notification … has been sent from one of its own member resources"
        // (TS-0004 §7.5.1.2.6).
        if !self.hosts_member(group, from, 0) {
            return Err(denied());
        }
        let notifications = read_notifications(request.content.as_deref(), rest)?;
        if notifications.is_verification {
            return Ok(Some(Done::new(Status::Ok)));
        }
        let seq = self.resource(group)?.seq;
        let receivers = notifications.receivers();
        let unknown: BTreeSet<&str> =
            receivers.filter(|receiver| !self.forwarding.contains(seq, receiver)).collect();
        if unknown.is_empty() {
            return self.gather_notifications(seq, notifications).map(Some);
        }
        let unknown = unknown.into_iter().map(str::to_owned).collect();
        let creator = notifications.creator.clone().unwrap_or_else(|| from.to_string());
        self.verify_forwarding(asker, request, (&creator, unknown), (seq, notifications))?;
        Ok(None)
    }

    /// Whether a CSE hosts a member of the group, or of a group of this CSE that is a member.
    fn hosts_member(&self, group: Slot, cse: &str, depth: usize) -> bool {
        let Some(group) = self.tree.get(group) else { return false };
        group.texts("mid").any(|member| {
            match Address::parse(member, &self.config.cse_id, &self.config.provider) {
                Address::There { cse: host, .. } => host == cse,
                Address::Elsewhere => false,
                Address::Here(path) => match self.resolve(path) {
                    Some(Target::FanOut(inner, _)) if depth < NESTED_MAX => {
                        self.hosts_member(inner, cse, depth.saturating_add(1))
                    }
                    _ => cse == self.config.cse_id,
                },
            }
        })
    }

    /// Stores notifications, each to be sent with others of its receiver.
    pub(super) fn gather_notifications(
        &mut self,
        group: u64,
        notifications: MemberNotifications,
    ) -> Result<Done, Refusal> {
        let slot = self.tree.by_seq(group).ok_or_else(|| not_found("the group is gone"))?;
        for (receiver, content) in notifications.each {
            self.gather_notification(slot, &receiver, content)?;
        }
        Ok(Done::new(Status::Ok))
    }

    /// "The group-hosting CSE … shall use the group's notifyAggregation attribute and wait until
    /// notifyAggregation/number notifications have been received or until the
    /// notifyAggregation/duration has elapsed … If the notifyAggregation attribute is not specified
    /// … the currentNrOfMembers attribute" (TS-0004 §7.4.14.2.5).
    fn gather_notification(
        &mut self,
        slot: Slot,
        receiver: &str,
        content: String,
    ) -> Result<(), Refusal> {
        let group = self.resource(slot)?;
        let usual = json!({ "num": group.uint("cnm").unwrap_or(1).max(1) });
        let batch = self.gather(Some(group.attribute("nar").unwrap_or(&usual)), false);
        let queue = format!("{} {receiver} group", group.id).into();
        let mut request = self.own_request(Operation::Notify, receiver.to_owned());
        request.content = Some(content.into());
        let request = Arc::new(request);
        let keep = Some(KEPT_FOR);
        let message = OutboxMessage { queue, target: receiver.into(), request, keep, batch };
        self.counters.notifications += 1;
        self.post_notification(message)
    }

    /// Takes a notification of this CSE's own subscription for a group of this CSE.
    pub(super) fn notify_own_group(&mut self, target: &str, content: &str) -> Result<(), Refusal> {
        let Some(Target::FanOut(group, rest)) = self.resolve_local(target) else {
            return Err(not_found("the group is gone"));
        };
        // The receiver has agreed before the members were asked to subscribe.
        let (seq, notifications) =
            (self.resource(group)?.seq, read_notifications(Some(content), rest)?);
        self.gather_notifications(seq, notifications).map(|_| ())
    }

    /// Whether a notification target is the fan-out point of a group of this CSE.
    pub(super) fn is_own_group(&self, target: &str) -> bool {
        // Most targets need no look into the tree.
        target.contains(FAN_OUT_POINT)
            && matches!(self.resolve_local(target), Some(Target::FanOut(..)))
    }
}

/// Reads a notification or an aggregated one: "aggregatedNotification(s) are not nested" (TS-0004
/// §7.5.1.2.6).
///
/// # Errors
///
/// 4000 if it is neither, or one does not say where to it is forwarded; 4004 if the fan-out point
/// has something else behind it.
fn read_notifications(content: Option<&str>, rest: &str) -> Result<MemberNotifications, Refusal> {
    let above = rest.strip_prefix(ABOVE).unwrap_or_default();
    if above.is_empty() && !rest.is_empty() {
        return Err(not_found("no such notification target"));
    }
    let bad = || Refusal::bad("a group takes notifications with nfu (m2m:sgn, m2m:agn)");
    let whole: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(content.unwrap_or("null")).map_err(|_| bad())?;
    let several = || {
        let inner: BTreeMap<String, Vec<Box<RawValue>>> =
            serde_json::from_str(whole.get("m2m:agn")?.get()).ok()?;
        inner.into_iter().find(|(name, _)| name == "m2m:sgn").map(|(_, list)| list)
    };
    let single = whole.get("m2m:sgn").map(|one| vec![one.clone()]);
    let all = single.or_else(several).filter(|_| whole.len() == 1).ok_or_else(bad)?;
    let mut read = MemberNotifications { each: Vec::new(), is_verification: false, creator: None };
    for one in all {
        let members: Map<String, Value> = serde_json::from_str(one.get()).map_err(|_| bad())?;
        if members.get("vrq").and_then(Value::as_bool) == Some(true) {
            read.is_verification = true;
            return Ok(read);
        }
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let forwarding = text("nfu").ok_or_else(bad)?;
        let receiver = if above.is_empty() { forwarding } else { above };
        read.creator = read.creator.or_else(|| text("cr").map(str::to_owned));
        read.each.push((receiver.to_owned(), format!("{{\"m2m:sgn\":{}}}", one.get())));
    }
    Ok(read)
}
