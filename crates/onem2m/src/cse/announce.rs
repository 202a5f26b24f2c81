//! Announcements (TS-0001 §9.6.26, §10.2.18): a resource of this CSE has an announced variant at
//! another CSE, with a link to the original and some of its attributes.
//!
//! An announced resource has its original's identifier as its name. So its address is known before
//! it is created, and a second creation is a conflict that counts as success. All updates are
//! outbox messages in one queue per CSE: in order, kept over a restart, retried.

use super::access::Originator;
use super::calls::Purpose;
use super::outbox::OutboxMessage;
use super::{Cse, Refusal, RequestContext};
use crate::address::Address;
use crate::primitive::{Operation, Request};
use crate::resource::{Resource, wrap};
use crate::resource_type::ResourceType;
use crate::schema;
use crate::status::Status;
use crate::tree::Slot;
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Prefix of announcement queues; the CSE-ID follows.
const QUEUE: &str = "announce ";
/// Time that an announcement is kept for a CSE that is away.
const KEPT_FOR: Duration = Duration::from_hours(7 * 24);
/// Attempts at an announcement whose parent the other CSE lacks.
const TRIES: u32 = 3;
/// Attributes that name resources or entities: at another CSE they need the CSE-ID before them
/// (TS-0004 §7.3.3.10).
const NAMING: [&str; 10] = ["acpi", "daci", "mid", "macp", "hael", "hsl", "aei", "nl", "hcl", "li"];
/// Attributes whose rules name originators.
const PRIVILEGES: [&str; 2] = ["pv", "pvs"];

/// State of the announcements before an update.
#[derive(Debug, Default)]
pub(super) struct Announced {
    places: Vec<String>,
    attributes: Vec<String>,
}

/// Whether outbox messages of this queue are announcements.
pub(super) fn is_announcing(queue: &str) -> bool {
    queue.starts_with(QUEUE)
}

/// The CSE-ID that an entry of announceTo begins with: `/id-in` of `/id-in/-/x`.
fn cse_of(entry: &str) -> Option<&str> {
    let stem = entry.strip_prefix('/')?;
    let end = stem.find('/').map_or(entry.len(), |at| at + 1);
    entry.get(..end).filter(|cse| cse.len() > 1)
}

impl Cse {
    /// Checks the value of announceTo.
    ///
    /// # Errors
    ///
    /// 4000 if an entry names no other CSE of this provider; 5001 for bidirectional
    /// synchronisation.
    pub(super) fn check_announcing(
        &self,
        resource_type: ResourceType,
        given: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        for entry in texts(given, "at") {
            let own = cse_of(entry).is_none_or(|cse| cse == self.config.cse_id);
            if own || entry.starts_with("//") {
                return Err(Refusal::bad("at names other CSEs by their CSE-ID"));
            }
        }
        if resource_type.announced().is_none() && given.get("at").is_some_and(|at| !at.is_null()) {
            return Err(Refusal::bad("resources of this type are not announced"));
        }
        if given.get("ast").and_then(Value::as_u64).is_some_and(|sync| sync != 1) {
            return Err(Refusal::new(
                Status::NotImplemented,
                "announced resources follow their originals, not the other way (ast 1)",
            ));
        }
        Ok(())
    }

    /// Checks the originator of an announced resource: a CSE, for its own originals.
    pub(super) fn check_announced(&self, from: &str) -> Result<(), Refusal> {
        let by_admin = self.config.admin.as_deref() == Some(from);
        if by_admin || self.is_cse(from) { Ok(()) } else { Err(super::denied()) }
    }

    /// Addresses of a resource's announced variants at the CSEs of `wanted`; CSEs without a parent
    /// for it are left out.
    pub(super) fn places<'entry>(
        &self,
        parent: Slot,
        resource_type: ResourceType,
        id: &str,
        wanted: impl Iterator<Item = &'entry str>,
    ) -> Vec<String> {
        let mut places: Vec<String> = Vec::new();
        for cse in wanted.filter_map(cse_of) {
            let known = places.iter().any(|place| cse_of(place) == Some(cse));
            if let (false, Some(place)) = (known, self.place_at(cse, parent, resource_type, id)) {
                places.push(place);
            }
        }
        places
    }

    /// The address below its announced parent, or below this CSE's own announcement.
    fn place_at(
        &self,
        cse: &str,
        parent: Slot,
        resource_type: ResourceType,
        id: &str,
    ) -> Option<String> {
        let announced = resource_type.announced()?;
        let above = self.tree.get(parent)?;
        let place = above.texts("at").find(|place| cse_of(place) == Some(cse));
        if let (Some(place), Some(above)) = (place, above.resource_type.announced())
            && above != ResourceType::CseBaseAnnc
        {
            return above.takes(announced).then(|| format!("{place}/{id}"));
        }
        let base = ResourceType::CseBaseAnnc.takes(announced);
        base.then(|| format!("{}/{id}", self.base_place(cse)))
    }

    fn base_place(&self, cse: &str) -> String {
        format!("{cse}/-/{}_Annc", self.config.cse_id.trim_start_matches('/'))
    }

    /// Writes the addresses of future announcements into the attributes of a new resource.
    pub(super) fn place_announcements(
        &self,
        attributes: &mut Map<String, Value>,
        parent: Slot,
        resource_type: ResourceType,
        id: &str,
    ) {
        if !attributes.contains_key("at") {
            return;
        }
        let places = self.places(parent, resource_type, id, texts(attributes, "at"));
        if places.is_empty() {
            attributes.remove("at");
        } else {
            attributes.insert("at".into(), json!(places));
        }
    }

    /// Announces a new resource at its addresses.
    pub(super) fn announce(&mut self, slot: Slot) {
        for place in self.announced_at(slot) {
            self.announce_at(slot, &place);
        }
    }

    /// Addresses at which a resource is announced.
    fn announced_at(&self, slot: Slot) -> Vec<String> {
        let Some(resource) = self.tree.get(slot) else {
            return Vec::new();
        };
        let Some(text) = &resource.representation else {
            return resource.texts("at").map(str::to_owned).collect();
        };
        // Instances are many, few are announced, and none whose container is not.
        let above = resource.parent.and_then(|parent| self.tree.get(parent));
        if above.is_none_or(|it| !it.attributes.contains_key("at")) || !text.contains("\"at\":") {
            return Vec::new();
        }
        texts(&resource.to_object(), "at").map(str::to_owned).collect()
    }

    fn announce_at(&mut self, slot: Slot, place: &str) {
        let Some(cse) = cse_of(place).map(str::to_owned) else {
            return;
        };
        let announced = self.tree.get(slot).and_then(|resource| {
            let resource_type = resource.resource_type.announced()?;
            Some((
                resource_type,
                announced_tag(resource),
                self.announced_attributes(resource, place),
            ))
        });
        let (Some((resource_type, tag, attributes)), Some((above, _))) =
            (announced, place.rsplit_once('/'))
        else {
            return;
        };
        if resource_type != ResourceType::CseBaseAnnc {
            self.announce_base(&cse);
        }
        let content = wrap(&tag, Value::Object(attributes));
        let request = self.own_request(Operation::Create, above.to_owned());
        self.tell_announcement(&cse, request.creating(resource_type, content));
    }

    /// Announces this CSE itself, before any of its resources.
    fn announce_base(&mut self, cse: &str) {
        let Some(root) = self.tree.root() else {
            return;
        };
        let place = self.base_place(cse);
        let known = self.tree.get(root).is_some_and(|it| it.texts("at").any(|at| *at == *place));
        if known {
            return;
        }
        self.announce_at(root, &place);
        self.change(root, |base| {
            if let Value::Array(at) = base.attributes.entry("at").or_insert_with(|| json!([])) {
                at.push(json!(place));
            }
        });
    }

    /// Attributes of the announced variant: the link, the mandatory ones and the chosen ones.
    fn announced_attributes(&self, resource: &Resource, place: &str) -> Map<String, Value> {
        let object = resource.to_object();
        let wanted: Vec<&str> = texts(&object, "aa").collect();
        let mut announced = Map::new();
        let name = place.rsplit_once('/').map_or(place, |(_, name)| name);
        announced.insert("rn".into(), json!(name));
        announced.insert("lnk".into(), json!(format!("{}/{}", self.config.cse_id, resource.id)));
        for (name, value) in &object {
            let base = resource.resource_type == ResourceType::CseBase
                && matches!(&**name, "csi" | "cst" | "poa");
            if base
                || wanted.contains(&&**name)
                || schema::is_always_announced(resource.resource_type, name)
            {
                announced.insert(name.clone(), self.seen_from_elsewhere(name, value));
            }
        }
        announced
    }

    fn seen_from_elsewhere(&self, name: &str, value: &Value) -> Value {
        if PRIVILEGES.contains(&name) {
            return self.privileges_elsewhere(value);
        }
        if !NAMING.contains(&name) {
            return value.clone();
        }
        let absolute = |id: &Value| match id.as_str() {
            Some(id) if !id.starts_with('/') && !id.contains("://") => {
                json!(format!("{}/{id}", self.config.cse_id))
            }
            _ => id.clone(),
        };
        match value.as_array() {
            Some(list) => list.iter().map(absolute).collect(),
            None => absolute(value),
        }
    }

    /// Privileges with originators in a form valid at another CSE: `Ca` there would be an AE of
    /// that CSE with the same name.
    fn privileges_elsewhere(&self, set: &Value) -> Value {
        let mut set = set.clone();
        let rules = set.get_mut("acr").and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            let originators = rule.get_mut("acor").and_then(Value::as_array_mut);
            for originator in originators.into_iter().flatten() {
                let Some(name) = originator.as_str() else { continue };
                if !(name.starts_with('/') || matches!(name, "all" | "*")) {
                    *originator = json!(format!("{}/{name}", self.config.cse_id));
                }
            }
        }
        set
    }

    fn tell_announcement(&mut self, cse: &str, request: Request) {
        let message = OutboxMessage {
            queue: format!("{QUEUE}{cse}").into(),
            target: request.to.as_str().into(),
            request: request.into(),
            keep: Some(KEPT_FOR),
            batch: None,
        };
        self.counters.announcements += 1;
        if self.post(message).is_err() {
            self.counters.notifications_dropped += 1;
        }
    }

    /// State of the announcements before an update. New addresses are written into `given`.
    pub(super) fn before_update(
        &self,
        slot: Slot,
        given: &mut Map<String, Value>,
    ) -> Result<Announced, Refusal> {
        let resource = self.resource(slot)?;
        let before = Announced {
            places: resource.texts("at").map(str::to_owned).collect(),
            attributes: resource.texts("aa").map(str::to_owned).collect(),
        };
        let (true, Some(parent)) = (given.get("at").is_some_and(Value::is_array), resource.parent)
        else {
            return Ok(before);
        };
        let mut places =
            self.places(parent, resource.resource_type, &resource.id, texts(given, "at"));
        for place in &mut places {
            // What stands stays where it is, whatever became of its parent since.
            let stands = before.places.iter().find(|it| cse_of(it) == cse_of(place));
            if let Some(stands) = stands {
                place.clone_from(stands);
            }
        }
        let value = if places.is_empty() { Value::Null } else { json!(places) };
        given.insert("at".into(), value);
        Ok(before)
    }

    /// Announces the changes of an update.
    pub(super) fn after_update(&mut self, slot: Slot, before: &Announced, changed: &[String]) {
        let now = self.announced_at(slot);
        if before.places.is_empty() && now.is_empty() {
            return;
        }
        for place in before.places.iter().filter(|place| !now.contains(place)) {
            self.withdraw(place);
        }
        for place in now {
            if before.places.contains(&place) {
                self.update_announced(slot, &place, before, changed);
            } else {
                self.announce_at(slot, &place);
            }
        }
    }

    fn update_announced(
        &mut self,
        slot: Slot,
        place: &str,
        before: &Announced,
        changed: &[String],
    ) {
        let Some(resource) = self.tree.get(slot) else {
            return;
        };
        let mut all = self.announced_attributes(resource, place);
        let tag = announced_tag(resource);
        let wanted: Vec<&str> = resource.texts("aa").collect();
        let is_new = |name: &str| {
            wanted.contains(&name) && !before.attributes.iter().any(|before| before == name)
        };
        let mut update: Map<String, Value> = Map::new();
        for name in changed.iter().map(String::as_str).chain(wanted.iter().copied()) {
            let told = changed.iter().any(|changed| changed == name) || is_new(name);
            if let (true, Some(value)) = (told, all.remove(name)) {
                update.insert(name.to_owned(), value);
            }
        }
        // No longer announced, or no longer there.
        let gone = before.attributes.iter().filter(|name| {
            !wanted.contains(&name.as_str())
                || (changed.contains(name) && !resource.attributes.contains_key(*name))
        });
        let always = changed.iter().filter(|name| {
            schema::is_always_announced(resource.resource_type, name)
                && !resource.attributes.contains_key(*name)
                && *name != "et"
        });
        for name in gone.chain(always) {
            update.insert(name.clone(), Value::Null);
        }
        if update.is_empty() {
            return;
        }
        let content = wrap(&tag, Value::Object(update));
        let request = self.own_request(Operation::Update, place.to_owned()).with_content(content);
        if let Some(cse) = cse_of(place) {
            self.tell_announcement(cse, request);
        }
    }

    /// Deletes the announcements of resources that are about to be deleted, parents first.
    pub(super) fn withdraw_all(&mut self, going: &[Slot]) {
        let mut withdrawn: Vec<String> = Vec::new();
        for &slot in going {
            for place in self.announced_at(slot) {
                let with_parent = withdrawn.iter().any(|above| {
                    place.strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/'))
                });
                if !with_parent {
                    self.withdraw(&place);
                    withdrawn.push(place);
                }
            }
        }
    }

    fn withdraw(&mut self, place: &str) {
        let request = self.own_request(Operation::Delete, place.to_owned());
        if let Some(cse) = cse_of(place) {
            self.tell_announcement(cse, request);
        }
    }

    /// Repeats all announcements at a CSE that this one registered at anew and that may have lost
    /// them.
    pub(super) fn announce_again(&mut self, cse: &str) {
        let waits = !self.is_queue_empty(&format!("{QUEUE}{cse}"));
        if waits || self.tree.root().is_none_or(|root| self.announced_at(root).is_empty()) {
            return;
        }
        let all: Vec<Slot> = self.tree.iter().map(|(slot, _)| slot).collect();
        for slot in all {
            let places = self.announced_at(slot);
            for place in places.iter().filter(|place| cse_of(place) == Some(cse)) {
                self.announce_at(slot, place);
            }
        }
    }

    /// Handles a missing parent of an announcement. Returns whether the outbox message is finished.
    pub(super) fn announcement_lost(&mut self, request: &Request, failures: u32) -> bool {
        match request.operation {
            Operation::Delete => true,
            Operation::Update => {
                // Its original is what its name says: it is announced anew, as it is now.
                let id = request.to.rsplit_once('/').map(|(_, id)| id);
                if let Some(slot) = id.and_then(|id| self.tree.by_id(id)) {
                    self.announce_at(slot, &request.to);
                }
                true
            }
            _ => {
                self.announce_base_at_once(&request.to);
                let given_up = failures + 1 >= TRIES;
                if given_up {
                    self.announcement_refused(request);
                }
                given_up
            }
        }
    }

    /// Sends it outside of the queue, in which the message that needs it waits.
    fn announce_base_at_once(&mut self, to: &str) {
        let (Some(cse), Some(root)) = (cse_of(to), self.tree.root()) else {
            return;
        };
        let place = self.base_place(cse);
        let Some((above, _)) = place.rsplit_once('/') else {
            return;
        };
        let Some(base) = self.tree.get(root) else {
            return;
        };
        let attributes = Value::Object(self.announced_attributes(base, &place));
        let content = wrap(ResourceType::CseBaseAnnc.tag(), &attributes);
        let request = self.own_request(Operation::Create, above.to_owned());
        let mut request = Arc::new(request.creating(ResourceType::CseBaseAnnc, content));
        let target = request.to.clone();
        // What becomes of it shows when the message is tried again.
        if let Ok(route) = self.reach(&target, &mut request) {
            let _ = self.send(route, request, Purpose::Nothing, cse);
        }
    }

    /// Removes an announcement that was refused for good from its original.
    pub(super) fn announcement_refused(&mut self, request: &Request) {
        if request.operation != Operation::Create {
            return;
        }
        let content: Option<Map<String, Value>> =
            request.content.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let name = content.and_then(|content| {
            let (_, inner) = content.into_iter().next()?;
            Some(inner.get("rn")?.as_str()?.to_owned())
        });
        let Some(place) = name.as_ref().map(|name| format!("{}/{name}", request.to)) else {
            return;
        };
        let slot = name.and_then(|name| self.tree.by_id(&name));
        let slot = slot.filter(|&slot| {
            self.tree.get(slot).is_some_and(|it| it.texts("at").any(|at| *at == *place))
        });
        if let Some(slot) = slot {
            self.change(slot, |resource| {
                if let Some(Value::Array(at)) = resource.attributes.get_mut("at") {
                    at.retain(|entry| entry.as_str() != Some(&place));
                    if at.is_empty() {
                        resource.attributes.remove("at");
                    }
                }
            });
        }
    }

    /// Forwards a retrieval of an announced resource that asks for the original (result content 7)
    /// to the original's CSE. Returns whether it did.
    pub(super) fn retrieve_original(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<bool, Refusal> {
        let resource = self.resource(slot)?;
        if request.result_content != Some(7) || resource.resource_type.original().is_none() {
            return Ok(false);
        }
        self.demand_retrieval(from, slot)?;
        let link = self.resource(slot)?.text("lnk").unwrap_or_default().to_owned();
        let mut onward = request.clone();
        onward.result_content = None;
        match Address::parse(&link, &self.config.cse_id, &self.config.provider) {
            Address::There { cse, path } => self.forward(asker, &onward, from, (cse, path))?,
            _ => return Err(super::not_found("the original is at no other CSE")),
        }
        Ok(true)
    }
}

/// The short name of the announced variant (TS-0004 §8.2.4): `m2m:cntA`; for externally defined
/// types `cod:oximrAnnc`.
fn announced_tag(resource: &Resource) -> Cow<'static, str> {
    match resource.resource_type.announced() {
        Some(ResourceType::FlexContainerAnnc) => Cow::Owned(format!("{}Annc", resource.tag)),
        Some(resource_type) if !resource_type.tag().is_empty() => {
            Cow::Borrowed(resource_type.tag())
        }
        _ => Cow::Owned(format!("{}A", resource.tag)),
    }
}

fn texts<'map>(map: &'map Map<String, Value>, name: &str) -> impl Iterator<Item = &'map str> {
    map.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Receiver and kind of an announcement's outbox message, if it is one.
pub(super) fn announcement(queue: &Arc<str>, request: &Request) -> Option<Request> {
    is_announcing(queue).then(|| request.clone())
}
