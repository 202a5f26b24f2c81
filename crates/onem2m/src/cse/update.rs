//! Update (TS-0001 §10.1.4): given attributes are set, those given as null are removed.

use super::access::{Originator, Right};
use super::create::{content_of, no_such_result};
use super::group::check_group;
use super::notify::NotificationEventType;
use super::scheduled::check_schedule;
use super::statistics::settle_statistics;
use super::watch::{check_time_series, settle_tolerance};
use super::{Cse, Done, Refusal, RequestContext, Target, denied, not_allowed};
use crate::primitive::Request;
use crate::resource::{some_attributes, wrap};
use crate::resource_type::ResourceType;
use crate::schema;
use crate::status::Status;
use crate::tree::Slot;
use serde_json::{Map, Value, json};

impl Cse {
    pub(super) fn update(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        target: Target<'_>,
    ) -> Result<Option<Done>, Refusal> {
        let Target::Resource(slot) = target else {
            return Err(not_allowed("a virtual resource is not updated"));
        };
        let resource_type = self.resource(slot)?.resource_type;
        if resource_type.is_instance() || resource_type == ResourceType::CseBase {
            self.demand(from, Right::Update, slot, None)?;
            return Err(not_allowed("resources of this type are not updated"));
        }
        match request.result_content {
            None | Some(0 | 1 | 9) => {}
            Some(other) => return Err(no_such_result(other)),
        }
        let (tag, mut given) = content_of(request, resource_type)?;
        if tag != self.resource(slot)?.tag {
            return Err(Refusal::bad("the content has another name than the resource"));
        }
        settle_update(resource_type, &mut given);
        if given.contains_key("acpi") {
            self.check_policy_exchange(from, slot, &given)?;
        } else {
            let names = given.keys().map(String::as_str);
            self.demand_attributes(from, Right::Update, (slot, None), names)?;
        }
        schema::check_update(resource_type, &given, &self.config.limits)?;
        Self::check_ways(asker, &given)?;
        self.check_growth(slot, &given)?;
        self.check_policies_named(resource_type, &given)?;
        self.check_announcing(resource_type, &given)?;
        if resource_type == ResourceType::AccessControlPolicy {
            self.check_policy(&given)?;
        }
        if resource_type == ResourceType::Schedule {
            check_schedule(&given, self.config.limits.list_entries)?;
        }
        if resource_type == ResourceType::TimeSeries {
            self.recheck_series(slot, &given)?;
        }
        if resource_type == ResourceType::Group {
            self.recheck_group(slot, &mut given, from)?;
        }
        if resource_type == ResourceType::Subscription
            && self.update_subscription(asker, request, from, slot, &given)?
        {
            return Ok(None);
        }
        if self.ask_consent(asker, request, slot, &given)? {
            return Ok(None);
        }
        if self.shows_again(slot, &given) && self.tells_of_deletions(slot) {
            self.demand_all_resident(slot)?;
        }
        self.apply_update(asker, request, slot, given).map(Some)
    }

    /// Whether an update has a container show its instances that hid them.
    fn shows_again(&self, slot: Slot, given: &Map<String, Value>) -> bool {
        let is_shown = given.get("disr").is_some_and(|hides| *hides != Value::Bool(true));
        is_shown && self.hides_instances(slot)
    }

    /// Performs a checked update.
    pub(super) fn apply_update(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        slot: Slot,
        mut given: Map<String, Value>,
    ) -> Result<Done, Refusal> {
        let resource_type = self.resource(slot)?.resource_type;
        let asked = given.clone();
        let announced = self.before_update(slot, &mut given)?;
        let parent = self.resource(slot)?.parent;
        let expires = given.remove("et").map(|time| self.expiry_of(Some(&time), parent));
        let expires = expires.transpose()?;
        let before = self.shown_before(request, slot)?;
        let hid = self.hides_instances(slot);
        let [combined, targets] = ["acrs", "nu"].map(|name| self.names_in(slot, name));
        let names_node =
            resource_type == ResourceType::ApplicationEntity && asked.contains_key("nl");
        let node = names_node.then(|| self.node_of(slot));
        if resource_type == ResourceType::Subscription {
            self.end_lag_of(slot);
        }
        self.change_until(slot, expires, |resource| {
            merge(&mut resource.attributes, given);
            if resource_type == ResourceType::FlexContainer {
                Self::measure_flex(&mut resource.attributes);
            }
            if resource_type == ResourceType::Subscription {
                settle_statistics(&mut resource.attributes, asked.get("nse"));
            }
        });
        if resource_type == ResourceType::Subscription {
            self.tell_taken_out(slot, combined);
            self.drop_for_removed(slot, &targets);
        }
        if hid && !self.hides_instances(slot) {
            self.take_out_instances(slot);
        }
        if asked.contains_key("acpi") {
            self.note_rights(ResourceType::AccessControlPolicy);
        }
        let changed: Vec<String> = asked.keys().cloned().collect();
        if let Some(node) = node {
            self.move_entity(slot, node.as_deref());
        }
        self.after_update(slot, &announced, &changed);
        self.tell(slot, NotificationEventType::Updated, slot, &changed);
        // An instance shows what the definition's own attributes were.
        if changed.iter().any(|name| !schema::is_core(resource_type, name)) {
            self.keep_history(slot);
        }
        self.rewatch(slot, &changed);
        if matches!(
            resource_type,
            ResourceType::Container | ResourceType::TimeSeries | ResourceType::FlexContainer
        ) {
            self.trim(slot);
        }
        let from = Originator::of(request, self.own_form(&request.from), asker);
        self.update_response(request, &from, slot, (&asked, before))
    }

    /// The resource before an update whose response contains only the changes.
    fn shown_before(
        &self,
        request: &Request,
        slot: Slot,
    ) -> Result<Option<Map<String, Value>>, Refusal> {
        if request.result_content != Some(MODIFIED_ATTRIBUTES) {
            return Ok(None);
        }
        Ok(Some(self.resource(slot)?.to_object()))
    }

    /// acpi comes alone, from one who may change the policies that stand
    /// (TS-0001 §9.6.1.3.2).
    fn check_policy_exchange(
        &self,
        from: &Originator<'_>,
        slot: Slot,
        given: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        if given.len() != 1 {
            return Err(Refusal::bad("acpi is updated alone"));
        }
        if self.may_change_policies(from, self.resource(slot)?) { Ok(()) } else { Err(denied()) }
    }

    /// The order to watch comes alone, and what is watched stays as it is (TS-0004 §7.4.38.2.3).
    fn recheck_series(&self, slot: Slot, given: &Map<String, Value>) -> Result<(), Refusal> {
        let series = self.resource(slot)?;
        let periods = ["pei", "peid", "mdt", "mdn"].iter().any(|name| given.contains_key(*name));
        if periods && (given.contains_key("mdd") || series.flag("mdd")) {
            return Err(Refusal::bad("pei, peid, mdt and mdn are changed while mdd is false"));
        }
        let mut whole = series.attributes.clone();
        merge(&mut whole, given.clone());
        check_time_series(&mut whole)
    }

    /// New members, or a new most, are checked as at creation.
    fn recheck_group(
        &self,
        slot: Slot,
        given: &mut Map<String, Value>,
        from: &Originator<'_>,
    ) -> Result<(), Refusal> {
        check_group(given)?;
        if !given.contains_key("mid") && !given.contains_key("mnm") {
            return Ok(());
        }
        let mut whole = self.resource(slot)?.attributes.clone();
        whole.extend(given.clone());
        self.prepare_group(&mut whole, from)?;
        for name in ["mid", "cnm", "mt", "mtv"] {
            if let Some(value) = whole.remove(name) {
                given.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn update_response(
        &self,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
        (asked, before): (&Map<String, Value>, Option<Map<String, Value>>),
    ) -> Result<Done, Refusal> {
        let resource = self.resource(slot)?;
        // Who may update some attributes sees those.
        let granted = self.attributes_granted(from, Right::Update, slot, None);
        let is_shown = |name: &str| granted.is_empty() || granted.contains(&name);
        match (request.result_content.unwrap_or(1), before) {
            (0, _) => Ok(Done::new(Status::Updated)),
            (_, Some(before)) => {
                let mut object = modified(&before, resource.to_object(), asked);
                object.retain(|name, _| is_shown(name));
                Ok(Done::with(Status::Updated, wrap(&resource.tag, Value::Object(object))))
            }
            _ if granted.is_empty() => Ok(Done::with(Status::Updated, resource.to_text())),
            _ => {
                let text = some_attributes(&resource.tag, &resource.attributes_text(), is_shown);
                Ok(Done::with(Status::Updated, text))
            }
        }
    }
}

/// Completes an update by its defaults: without criteria a subscription is about updates (TS-0004
/// §7.5.1.2.2), a time series with a new period gets the matching tolerance, and attributes that a
/// type never announces are left out of the announced ones.
fn settle_update(resource_type: ResourceType, given: &mut Map<String, Value>) {
    if resource_type == ResourceType::Subscription && given.get("enc").is_some_and(Value::is_null) {
        given.insert("enc".into(), json!({ "net": [1] }));
    }
    if resource_type == ResourceType::TimeSeries {
        settle_tolerance(given);
    }
    if schema::retain_announceable(resource_type, given) {
        given.insert("aa".into(), Value::Null);
    }
}

/// m2m:resultContent, modified attributes.
const MODIFIED_ATTRIBUTES: u8 = 9;

/// "only attributes that were added, modified or deleted that were not included in the request
/// Content parameter as well as any attributes which were set to values different from the values
/// specified" (TS-0001 §8.1.2); "The deleted attributes to be returned shall be set to NULL"
/// (TS-0004 §7.3.3.12).
fn modified(
    before: &Map<String, Value>,
    now: Map<String, Value>,
    asked: &Map<String, Value>,
) -> Map<String, Value> {
    let gone = before.keys().filter(|&name| !now.contains_key(name) && !asked.contains_key(name));
    let mut changed: Map<String, Value> = gone.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in now {
        let is_new = before.get(&name) != Some(&value);
        let as_asked = asked.get(&name) == Some(&value);
        // What was to be set and is not so.
        let otherwise = asked.contains_key(&name);
        if !as_asked && (is_new || otherwise) {
            changed.insert(name, value);
        }
    }
    changed
}

fn merge(attributes: &mut Map<String, Value>, given: Map<String, Value>) {
    for (name, value) in given {
        if value.is_null() {
            attributes.remove(&name);
        } else {
            attributes.insert(name, value);
        }
    }
}
