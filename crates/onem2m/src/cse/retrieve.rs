//! Retrieval (TS-0001 §10.1.3): one resource, and its children according to rcn.

use super::access::{Originator, Right};
use super::create::no_such_result;
use super::notify::NotificationEventType;
use super::search::Chosen;
use super::{Cse, Done, Refusal, RequestContext, Target, denied, not_found};
use crate::filter::Usage;
use crate::primitive::Request;
use crate::resource::{Resource, push_json_text, some_attributes, wrap};
use crate::resource_type::ResourceType;
use crate::schema;
use crate::status::Status;
use crate::tree::Slot;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// A resource of a result, with its address.
#[derive(Debug)]
struct Found {
    slot: Slot,
    address: String,
}

impl Cse {
    pub(super) fn retrieve(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        target: Target<'_>,
    ) -> Result<Option<Done>, Refusal> {
        if request.content.is_some() {
            return Err(Refusal::bad("a retrieval has no content"));
        }
        if request.filter.as_ref().and_then(|filter| filter.usage) == Some(Usage::Discovery) {
            // References are what a discovery gives (TS-0001 §8.1.2, §10.2.6).
            if let Some(rcn) = request.result_content.filter(|rcn| !matches!(rcn, 6 | 11)) {
                return Err(no_such_result(rcn));
            }
            let slot = self.settle_target(target)?;
            return self.discover(asker, request, from, slot);
        }
        if let Target::Latest(container) | Target::Oldest(container) = target {
            let is_granted =
                || !self.attributes_granted(from, Right::Retrieve, container, None).is_empty();
            if !self.allows(from, Right::Retrieve, container, None) && !is_granted() {
                return Err(denied());
            }
            // Which instance that is depends on those that are gone.
            let stored_by = self.resource(container)?.stored_by;
            self.ledger.see(stored_by);
        }
        let slot = self.settle_target(target)?;
        self.demand_shown(request, from, slot)?;
        self.check_shown(slot)?;
        let stored_by = self.resource(slot)?.stored_by;
        self.ledger.see(stored_by.max(self.rights_stored_by));
        if request.filter.is_some() {
            // Its conditions may be about other resources.
            self.ledger.see_all();
        }
        match request.result_content.unwrap_or(1) {
            1 if request.attributes.is_empty() => self.one(request, from, slot).map(Some),
            1 => self.some_attributes(request, from, slot).map(Some),
            rcn @ (4 | 5 | 6 | 8) => {
                self.ledger.see_all();
                self.search(asker, request, from, (slot, Right::Retrieve), rcn)
            }
            // Only what is announced has an original.
            7 => Err(Refusal::bad("the resource is no announced one")),
            other => Err(no_such_result(other)),
        }
    }

    /// Checks that `from` may retrieve what it asks for: the resource, or the attributes that the
    /// answer has.
    fn demand_shown(
        &self,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<(), Refusal> {
        if self.demand_retrieval(from, slot).is_ok() {
            return Ok(());
        }
        if request.result_content.is_some_and(|rcn| rcn != 1) || request.filter.is_some() {
            return Err(denied());
        }
        let asked = request.attributes.iter().map(String::as_str);
        let target = (slot, None);
        if !request.attributes.is_empty() {
            return self.demand_attributes(from, Right::Retrieve, target, asked);
        }
        let shown: Value =
            serde_json::from_str(&self.resource(slot)?.to_text()).unwrap_or_default();
        let shown = shown.as_object().and_then(|it| it.values().next()).and_then(Value::as_object);
        let names = shown.into_iter().flat_map(|it| it.keys()).map(String::as_str);
        self.demand_attributes(from, Right::Retrieve, target, names)
    }

    fn one(
        &mut self,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<Done, Refusal> {
        self.check_conditions(request, from, slot)?;
        let resource = self.resource(slot)?;
        if resource.resource_type == ResourceType::CseBase {
            let attributes = self.attributes_now(resource);
            return Ok(Done::with(Status::Ok, wrap(&resource.tag, &*attributes)));
        }
        Ok(Done::with(Status::Ok, resource.to_text()))
    }

    /// The attributes of a resource as JSON text; of the CSEBase with the time that it is here.
    fn attributes_now<'resource>(&self, resource: &'resource Resource) -> Cow<'resource, str> {
        let attributes = resource.attributes_text();
        if resource.resource_type != ResourceType::CseBase {
            return attributes;
        }
        let open = attributes.strip_suffix('}').unwrap_or(&attributes);
        Cow::Owned(format!("{open},\"ctm\":\"{}\"}}", self.now))
    }

    /// Checks a conditional retrieval: a resource that does not meet the conditions is not found.
    fn check_conditions(
        &self,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<(), Refusal> {
        let Some(filter) = &request.filter else {
            return Ok(());
        };
        if filter.has_conditions() && !self.matches(filter, from, slot, &mut self.steps())? {
            return Err(not_found("the resource does not meet the conditions"));
        }
        Ok(())
    }

    fn some_attributes(
        &mut self,
        request: &Request,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<Done, Refusal> {
        self.check_conditions(request, from, slot)?;
        let resource = self.resource(slot)?;
        let resource_type = resource.resource_type;
        let unknown =
            request.attributes.iter().find(|&name| !schema::may_have(resource_type, name));
        if let Some(name) = unknown {
            return Err(Refusal::bad(format!("resources of this type have no attribute {name}")));
        }
        let is_wanted = |name: &str| request.attributes.iter().any(|wanted| wanted == name);
        let text = some_attributes(&resource.tag, &self.attributes_now(resource), is_wanted);
        Ok(Done::with(Status::Ok, text))
    }

    /// Notifies subscribers of a container of a retrieval while it has no instance.
    pub(super) fn tell_if_empty(&mut self, asker: &RequestContext, slot: Slot) {
        let is_container =
            self.tree.get(slot).is_some_and(|it| it.resource_type == ResourceType::Container);
        if is_container && self.tree.latest(slot).is_none() && !asker.is_repeated {
            self.tell(slot, NotificationEventType::NoInstance, slot, &[]);
        }
    }

    /// The content for resources chosen below `slot`.
    pub(super) fn result_of(
        &mut self,
        request: &Request,
        from: &Originator<'_>,
        (slot, rcn): (Slot, u8),
        chosen: &Chosen,
        appended: Option<&str>,
    ) -> Result<Done, Refusal> {
        let resource = self.resource(slot)?;
        // What is nested has no address.
        let found = match (rcn, appended) {
            (4 | 8, None) => Vec::new(),
            _ => self.results(request, from, chosen, appended),
        };
        let text = match rcn {
            4 | 8 => {
                let mut text = format!("{{\"{}\":", resource.tag);
                let families = match appended {
                    None => self.families(&chosen.slots),
                    // What lies at a path below what was chosen has none of that around it.
                    Some(_) => HashMap::from([(slot, found.iter().map(|it| it.slot).collect())]),
                };
                self.nest(slot, rcn == 4, &families, &mut text);
                text.push('}');
                text
            }
            5 => {
                let references = self.references(&found);
                let attributes = self.attributes_now(resource);
                // No resource is without attributes.
                let open = attributes.strip_suffix('}').unwrap_or(&attributes);
                wrap(&resource.tag, format_args!("{open},\"ch\":{references}}}"))
            }
            6 => {
                let references = self.references(&found);
                json!({ "m2m:rrl": { "rrf": references } }).to_string()
            }
            11 => {
                let list: Vec<&str> = found.iter().map(|it| it.address.as_str()).collect();
                json!({ "m2m:uril": list }).to_string()
            }
            other => return Err(no_such_result(other)),
        };
        let mut done = Done::with(Status::Ok, text);
        done.partial = chosen.partial;
        Ok(done)
    }

    /// The chosen resources by parent, each family in the order of choice.
    fn families(&self, chosen: &[Slot]) -> HashMap<Slot, Vec<Slot>> {
        let mut families: HashMap<Slot, Vec<Slot>> = HashMap::new();
        for &slot in chosen {
            if let Some(parent) = self.tree.get(slot).and_then(|resource| resource.parent) {
                families.entry(parent).or_default().push(slot);
            }
        }
        families
    }

    /// Writes a resource with the selected ones below it, each under the name of its type in its
    /// parent's object; the attributes of the top one only if requested. A resource whose parent
    /// was not chosen is not shown. What is kept as text is written as it is: a number keeps its
    /// digits.
    fn nest(
        &self,
        slot: Slot,
        with_attributes: bool,
        families: &HashMap<Slot, Vec<Slot>>,
        text: &mut String,
    ) {
        let attributes = self.tree.get(slot).filter(|_| with_attributes);
        let attributes = attributes.map(|resource| self.attributes_now(resource));
        let open = attributes.as_deref().and_then(|it| it.strip_suffix('}')).unwrap_or("{");
        text.push_str(open);
        let mut is_first = open == "{";
        let children = families.get(&slot).map_or(&[] as &[Slot], Vec::as_slice);
        let mut by_tag: BTreeMap<&str, Vec<Slot>> = BTreeMap::new();
        for &child in children {
            if let Some(found) = self.tree.get(child) {
                by_tag.entry(&found.tag).or_default().push(child);
            }
        }
        for (tag, children) in by_tag {
            if !is_first {
                text.push(',');
            }
            is_first = false;
            push_json_text(text, tag);
            text.push_str(":[");
            for (at, child) in children.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                self.nest(child, true, families, text);
            }
            text.push(']');
        }
        text.push('}');
    }

    fn references(&self, found: &[Found]) -> Value {
        found
            .iter()
            .filter_map(|Found { slot, address }| {
                let resource = self.tree.get(*slot)?;
                Some(json!({
                    "nm": &*resource.name,
                    "typ": resource.resource_type.number(),
                    "val": address,
                }))
            })
            .collect()
    }

    /// The resources of the result: the selected ones, or those at a path below each. "If the
    /// combined relative path does not represent a valid resource, the outcome is the same as if no
    /// match was found" (TS-0004 §7.3.3.17.17).
    fn results(
        &self,
        request: &Request,
        from: &Originator<'_>,
        chosen: &Chosen,
        appended: Option<&str>,
    ) -> Vec<Found> {
        let usage = request.filter.as_ref().and_then(|filter| filter.usage);
        let right = match usage {
            Some(Usage::Discovery) => Right::Discover,
            _ => Right::Retrieve,
        };
        let one = |&slot: &Slot| {
            let address = self.address_of(slot, request);
            let Some(path) = appended.map(|path| path.trim_matches('/')) else {
                return Some(Found { slot, address });
            };
            let slot = self.settle_target(self.resolve_below(slot, path)?).ok()?;
            let is_seen = self.allows(from, right, slot, None)
                && (right == Right::Discover || self.check_shown(slot).is_ok());
            is_seen.then(|| Found { slot, address: format!("{address}/{path}") })
        };
        chosen.slots.iter().filter_map(one).collect()
    }

    fn address_of(&self, slot: Slot, request: &Request) -> String {
        let address = if request.unstructured {
            self.tree.get(slot).map(|resource| resource.id.to_string()).unwrap_or_default()
        } else {
            self.tree.path(slot)
        };
        self.address_for(&request.from, address)
    }
}
