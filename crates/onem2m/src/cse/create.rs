//! Creation of resources (TS-0001 §10.1.2), except instances.

use super::access::{Originator, Right, source_of};
use super::privileges::check_privileges;
use super::room::peer_of;
use super::watch::{check_time_series, settle_time_series};
use super::{Cse, Done, Refusal, RequestContext, Target, denied, not_allowed};
use crate::address::{is_ae_stem, is_name};
use crate::filter::matches_wildcard;
use crate::primitive::{Release, Request};
use crate::resource::{Resource, push_number, wrap};
use crate::resource_type::ResourceType;
use crate::schema;
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::Slot;
use core::cell::Cell;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Octets of most generated names: an allocation that need not grow.
const NAME_OCTETS: usize = 24;

/// A creation with its content parsed.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) resource_type: ResourceType,
    pub(super) tag: Cow<'static, str>,
    pub(super) parent: Slot,
    pub(super) attributes: Map<String, Value>,
    /// Overrides the identifier that the CSE would generate.
    pub(super) id: Option<String>,
    pub(super) owner: String,
    /// The CSE that registers an AE by its own certificate, if there is one.
    pub(super) sponsor: Option<Arc<str>>,
    /// The peer that makes it; none is this process.
    pub(super) made_by: Option<Arc<str>>,
}

impl Cse {
    pub(super) fn create(
        &mut self,
        asker: &RequestContext,
        request: &Request,
        from: &Originator<'_>,
        target: Target<'_>,
    ) -> Result<Option<Done>, Refusal> {
        let Target::Resource(parent) = target else {
            return Err(not_allowed("nothing is created below a virtual resource"));
        };
        let resource_type =
            request.resource_type.ok_or_else(|| Refusal::bad("no resource type to create"))?;
        self.demand_creation(from, request, resource_type, parent)?;
        let parent_type = self.resource(parent)?.resource_type;
        if !parent_type.takes(resource_type) {
            // TS-0004 §7.4.8.2.1.
            let status = match resource_type {
                ResourceType::Subscription => Status::TargetNotSubscribable,
                _ => Status::InvalidChildResourceType,
            };
            return Err(Refusal::new(
                status,
                format!("a {} takes no {}", parent_type.prefix(), resource_type.prefix()),
            ));
        }
        if resource_type == ResourceType::ContentInstance {
            return self.create_content_instance(request, from, parent).map(Some);
        }
        if resource_type == ResourceType::TimeSeriesInstance {
            return self.create_time_series_instance(request, parent).map(Some);
        }
        check_creation_result(request)?;
        let (tag, mut attributes) = content_of(request, resource_type)?;
        if !asker.is_own && parent_type == ResourceType::CseBase {
            self.check_not_reserved(request, from, resource_type, &attributes)?;
        }
        if resource_type.original().is_some() {
            // acmecse announces what its original does not have as null, the et of a CSEBase.
            attributes.retain(|_, value| !value.is_null());
        }
        schema::check_create(resource_type, &attributes, &self.config.limits)?;
        schema::retain_announceable(resource_type, &mut attributes);
        Self::check_ways(asker, &attributes)?;
        self.check_policies_named(resource_type, &attributes)?;
        let (owner, made_by) = (from.to_string(), peer_of(asker, request));
        let (id, sponsor) = (None, None);
        let mut draft =
            Draft { resource_type, tag, parent, attributes, id, owner, sponsor, made_by };
        self.prepare(&mut draft, from, request)?;
        if resource_type == ResourceType::Subscription {
            return self.create_subscription(asker, request, from, draft);
        }
        let given = draft.attributes.clone();
        let slot = self.found(draft)?;
        self.creation_response(request, slot, &given).map(Some)
    }

    /// Status with which this CSE would refuse a contentInstance that its own process creates,
    /// because of the target, the originator's privileges or the container's limits; `None` if it
    /// would not. Nothing changes, nothing is counted.
    pub fn refusal_of_instance(&self, request: &Request) -> Option<Status> {
        self.check_instance(request).err().map(|refusal| refusal.status)
    }

    fn check_instance(&self, request: &Request) -> Result<(), Refusal> {
        let resource_type = ResourceType::ContentInstance;
        let nowhere = || Refusal::new(Status::NotFound, "no such resource");
        let by_place = Cell::new(false);
        let name = self.own_form(&request.from);
        let from = Originator::at(name, source_of(request, name), &by_place);
        let target = self.resolve_local(&request.to).ok_or_else(nowhere)?;
        let Target::Resource(parent) = target else {
            return Err(not_allowed("nothing is created below a virtual resource"));
        };
        self.demand_creation(&from, request, resource_type, parent)?;
        if !self.resource(parent)?.resource_type.takes(resource_type) {
            return Err(Refusal::new(Status::InvalidChildResourceType, "it takes no instances"));
        }
        self.check_content_fits(request, parent)
    }

    /// Checks the right to create; registration needs none: an admitted entity may create its own
    /// AE or remoteCSE.
    fn demand_creation(
        &self,
        from: &Originator<'_>,
        request: &Request,
        resource_type: ResourceType,
        parent: Slot,
    ) -> Result<(), Refusal> {
        let registers =
            matches!(resource_type, ResourceType::ApplicationEntity | ResourceType::RemoteCse)
                && self.resource(parent)?.resource_type == ResourceType::CseBase;
        // What a CSE announces it may put where announcements go.
        let announces = resource_type.original().is_some()
            && self.is_cse(from)
            && self.resource(parent)?.resource_type == ResourceType::CseBase;
        if registers || announces {
            return Ok(());
        }
        if self.allows(from, Right::Create, parent, Some(resource_type)) {
            return Ok(());
        }
        // By rules for single attributes, it gives those alone.
        let (_, given) = content_of(request, resource_type).map_err(|_| denied())?;
        let names = given.keys().map(String::as_str);
        self.demand_attributes(from, Right::Create, (parent, Some(resource_type)), names)
    }

    /// Refuses what the surrounding process has reserved for itself directly below the CSEBase.
    ///
    /// A CSE that the binding has authenticated is exempt: it registers its own devices here, and
    /// `sponsored_entities` bounds their AE-IDs.
    ///
    /// # Errors
    ///
    /// 4103 for the AE-ID of a registration, 4105 for a name.
    fn check_not_reserved(
        &self,
        request: &Request,
        from: &str,
        resource_type: ResourceType,
        attributes: &Map<String, Value>,
    ) -> Result<(), Refusal> {
        if request.sponsor.is_some() {
            return Ok(());
        }
        let is_among = |patterns: &[String], text: &str| {
            patterns.iter().any(|pattern| matches_wildcard(pattern, text))
        };
        let registers = resource_type == ResourceType::ApplicationEntity;
        if registers && is_among(&self.config.reserved_entities, from) {
            let why = "the AE-ID is reserved for an entity of this CSE itself";
            return Err(Refusal::new(Status::OriginatorHasNoPrivilege, why));
        }
        let name = attributes.get("rn").and_then(Value::as_str);
        if name.is_some_and(|name| is_among(&self.config.reserved_names, name)) {
            let why = "the name is reserved for a resource of this CSE itself";
            return Err(Refusal::new(Status::Conflict, why));
        }
        Ok(())
    }

    /// Checks each type's rules beyond the form of its attributes.
    fn prepare(
        &self,
        draft: &mut Draft,
        from: &Originator<'_>,
        request: &Request,
    ) -> Result<(), Refusal> {
        if let Some(creator) = draft.attributes.remove("cr") {
            // The originator asks by null to be named as creator (TS-0001 §9.6.1.3.2).
            if !creator.is_null() || draft.resource_type == ResourceType::ApplicationEntity {
                return Err(Refusal::bad(
                    "attribute cr is given as null or not at all, to an AE never",
                ));
            }
            draft.attributes.insert("cr".into(), json!(&**from));
        }
        self.check_announcing(draft.resource_type, &draft.attributes)?;
        if draft.resource_type.original().is_some() {
            return self.check_announced(from);
        }
        match draft.resource_type {
            ResourceType::ApplicationEntity => self.prepare_entity(draft, from, request),
            ResourceType::RemoteCse => self.prepare_remote_cse(draft, from),
            ResourceType::AccessControlPolicy => self.check_policy(&draft.attributes),
            ResourceType::FlexContainer => {
                Self::measure_flex(&mut draft.attributes);
                Ok(())
            }
            ResourceType::ManagementObject => check_management(draft),
            ResourceType::TimeSeries => {
                settle_time_series(&mut draft.attributes);
                check_time_series(&mut draft.attributes)
            }
            ResourceType::PollingChannel => self.check_channel(draft.parent, from),
            ResourceType::Schedule => self.prepare_schedule(draft, self.config.limits.list_entries),
            ResourceType::Group => self.prepare_group(&mut draft.attributes, from),
            ResourceType::Container | ResourceType::Node | ResourceType::Subscription => Ok(()),
            resource_type => Err(Refusal::new(
                Status::NotImplemented,
                format!("resources of type {} are not created here", resource_type.number()),
            )),
        }
    }

    pub(super) fn check_policy(&self, attributes: &Map<String, Value>) -> Result<(), Refusal> {
        let entries_max = self.config.limits.list_entries;
        for name in ["pv", "pvs"] {
            if let Some(set) = attributes.get(name) {
                check_privileges(set, name == "pvs", entries_max)?;
            }
        }
        // Self-privileges that nobody holds would leave a policy that nobody can ever change.
        if attributes
            .get("pvs")
            .is_some_and(|set| set.get("acr").and_then(Value::as_array).is_none_or(Vec::is_empty))
        {
            return Err(Refusal::bad("pvs has at least one rule"));
        }
        Ok(())
    }

    /// Registers an AE (TS-0001 §10.2.2.2): its AE-ID, and whether it is admitted.
    fn prepare_entity(
        &self,
        draft: &mut Draft,
        from: &str,
        request: &Request,
    ) -> Result<(), Refusal> {
        check_app_id(draft.attributes.get("api").and_then(Value::as_str), request.release)?;
        let by_admin = self.config.admin.as_deref() == Some(from);
        let id = match from {
            "" | "C" => self.invent_entity_id('C'),
            "S" => self.invent_entity_id('S'),
            _ if by_admin => self.invent_entity_id('C'),
            stem => stem.to_owned(),
        };
        if id.starts_with('S') && self.config.cse_type != super::CseType::Infrastructure {
            return Err(Refusal::new(
                Status::NotImplemented,
                "AE-IDs of the service provider (S…) are given by the IN-CSE only",
            ));
        }
        let admitted = self.config.admitted_entities.iter();
        let admitted = admitted.into_iter().any(|pattern| matches_wildcard(pattern, &id));
        if !admitted || !is_ae_stem(&id) {
            return Err(Refusal::new(
                Status::AppRuleValidationFailed,
                "the originator is not among the AE-IDs admitted",
            ));
        }
        if self.tree.by_id(&id).is_some() {
            return Err(Refusal::new(
                Status::OriginatorHasAlreadyRegistered,
                "the originator is registered",
            ));
        }
        draft.attributes.insert("aei".into(), json!(id));
        draft.owner.clone_from(&id);
        draft.sponsor.clone_from(&request.sponsor);
        draft.id = Some(id);
        Ok(())
    }

    fn invent_entity_id(&self, initial: char) -> String {
        let mut seq = self.ledger.peek_seq();
        loop {
            let id = format!("{initial}ae{seq:x}");
            if self.tree.by_id(&id).is_none() {
                return id;
            }
            seq += 1;
        }
    }

    /// Puts a checked creation into the tree.
    pub(super) fn found(&mut self, mut draft: Draft) -> Result<Slot, Refusal> {
        let wanted = match draft.attributes.remove("rn") {
            Some(Value::String(name)) => Some(name),
            _ => None,
        };
        let name = self.name_below(draft.parent, wanted.as_deref(), draft.resource_type)?;
        let wanted = draft.attributes.remove("et");
        let expires = self.expiry_of(wanted.as_ref(), Some(draft.parent))?;
        // Behind what is there already: whoever makes sure that it is, as a device that comes back, needs
        // no room for it.
        self.check_room(draft.parent, draft.made_by.as_ref())?;
        let seq = self.ledger.next_seq();
        let id = match draft.id {
            Some(id) => id,
            None => format!("{}{seq:x}", draft.resource_type.prefix()),
        };
        if self.tree.by_id(&id).is_some() {
            return Err(Refusal::new(Status::Conflict, "the identifier is taken"));
        }
        let parent = draft.parent;
        self.place_announcements(&mut draft.attributes, parent, draft.resource_type, &id);
        let parent_id = Arc::clone(&self.resource(parent)?.id);
        // What lies below a peer's counts as that one's.
        let made_by = draft.made_by.filter(|_| self.tree.account_of(parent).peer.is_none());
        let slot = self.put_in(Resource {
            seq,
            resource_type: draft.resource_type,
            tag: draft.tag,
            id: id.into(),
            name,
            parent: Some(draft.parent),
            parent_id,
            created: self.now,
            modified: self.now,
            expires,
            state: 0,
            owner: draft.owner.into(),
            sponsor: draft.sponsor,
            made_by,
            attributes: draft.attributes,
            representation: None,
            size: 0,
            is_plain: false,
            family: None,
            stored_by: 0,
        });
        if draft.resource_type == ResourceType::ApplicationEntity {
            self.move_entity(slot, None);
        }
        self.announce_creation(parent, slot);
        self.announce(slot);
        Ok(slot)
    }

    /// Refuses a resource beyond the depth limit.
    pub(super) fn check_depth(&mut self, parent: Slot) -> Result<(), Refusal> {
        let deepest = self.config.limits.depth;
        if self.tree.depth(parent) >= deepest {
            self.counters.too_deep += 1;
            return Err(Refusal::new(
                Status::NotAcceptable,
                format!("{deepest} levels are as deep as resources lie here"),
            ));
        }
        Ok(())
    }

    /// The name of a new resource: the requested one if it is valid and free, or a generated one.
    pub(super) fn name_below(
        &self,
        parent: Slot,
        wanted: Option<&str>,
        resource_type: ResourceType,
    ) -> Result<Arc<str>, Refusal> {
        if let Some(name) = wanted {
            if !is_name(name) || name.len() > self.config.limits.name_octets {
                return Err(Refusal::bad("rn is no name of a resource"));
            }
            if self.child(parent, name).is_some() || self.lacks_rows() {
                return Err(Refusal::new(Status::Conflict, "the name is taken"));
            }
            return Ok(name.into());
        }
        let mut name = String::with_capacity(NAME_OCTETS);
        name.push_str(resource_type.prefix());
        name.push('_');
        push_number::<16>(&mut name, self.ledger.peek_seq());
        while self.child(parent, &name).is_some() {
            name.push('_');
        }
        if self.lacks_rows() {
            return Err(Refusal::new(Status::Conflict, "the name may be taken"));
        }
        Ok(name.into())
    }

    /// Expiry of a resource: as requested, but not after this CSE's limit nor after its parent
    /// (TS-0004 §7.3.3.3).
    pub(super) fn expiry_of(
        &self,
        wanted: Option<&Value>,
        parent: Option<Slot>,
    ) -> Result<Timestamp, Refusal> {
        let latest = self.now.plus(self.config.limits.lifetime);
        let above = parent.and_then(|parent| self.tree.get(parent));
        let latest = above.map_or(latest, |above| latest.min(above.expires));
        let Some(wanted) = wanted.and_then(Value::as_str).and_then(Timestamp::parse) else {
            return Ok(latest);
        };
        if wanted <= self.now {
            return Err(Refusal::bad("et is in the past"));
        }
        Ok(wanted.min(latest))
    }

    /// Response to a creation (TS-0004 §7.5.2): by default the whole resource.
    pub(super) fn creation_response(
        &mut self,
        request: &Request,
        slot: Slot,
        given: &Map<String, Value>,
    ) -> Result<Done, Refusal> {
        let resource = self.resource(slot)?;
        let path = self.tree.path(slot);
        let address = || self.address_for(&request.from, path.clone());
        let content: Option<Arc<str>> = match request.result_content.unwrap_or(1) {
            0 => None,
            1 => Some(resource.to_text()),
            2 => Some(json!({ "m2m:uri": address() }).to_string().into()),
            3 => {
                let (tag, attributes) = (&resource.tag, resource.attributes_text());
                let uri = json!(address());
                let body = format!("{{\"m2m:rce\":{{\"uri\":{uri},\"{tag}\":{attributes}}}}}");
                Some(body.into())
            }
            9 if resource.representation.is_some() => Some(resource.to_text()),
            9 => {
                let mut object = resource.to_object();
                object.retain(|name, value| given.get(name) != Some(value));
                Some(wrap(&resource.tag, Value::Object(object)).into())
            }
            other => return Err(no_such_result(other)),
        };
        let mut done = Done::new(Status::Created);
        done.content = content;
        done.location = Some(path.into());
        Ok(done)
    }
}

/// Checks that a management object's name matches its definition (TS-0004, m2m:mgmtDefinition).
fn check_management(draft: &Draft) -> Result<(), Refusal> {
    let names = [
        (1001, "m2m:fwr"),
        (1002, "m2m:swr"),
        (1003, "m2m:mem"),
        (1004, "m2m:ani"),
        (1005, "m2m:andi"),
        (1006, "m2m:bat"),
        (1007, "m2m:dvi"),
        (1008, "m2m:dvc"),
        (1009, "m2m:rbo"),
        (1010, "m2m:evl"),
    ];
    let definition = draft.attributes.get("mgd").and_then(Value::as_u64);
    let expected = names.iter().find(|(number, _)| Some(*number) == definition);
    match expected {
        Some((_, name)) if *name == draft.tag => Ok(()),
        Some((_, name)) => Err(Refusal::bad(format!("this mgd goes with {name}"))),
        None => Err(Refusal::new(
            Status::NotImplemented,
            "management objects are offered with mgd from 1001 to 1010",
        )),
    }
}

/// Checks the result content of a creation, before anything is created.
pub(super) fn check_creation_result(request: &Request) -> Result<(), Refusal> {
    match request.result_content {
        None | Some(0 | 1 | 2 | 3 | 9) => Ok(()),
        Some(other) => Err(no_such_result(other)),
    }
}

pub(super) fn no_such_result(number: u8) -> Refusal {
    Refusal::bad(format!("result content {number} does not go with this operation"))
}

/// The single tagged object of a request's content.
pub(super) fn content_of(
    request: &Request,
    resource_type: ResourceType,
) -> Result<(Cow<'static, str>, Map<String, Value>), Refusal> {
    let text = request.content.as_deref().ok_or_else(|| Refusal::bad("there is no content"))?;
    let outer: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| Refusal::bad(format!("content: {error}")))?;
    let mut members = outer.into_iter();
    let (Some((tag, Value::Object(attributes))), None) = (members.next(), members.next()) else {
        return Err(Refusal::bad("the content is one object under its type's name"));
    };
    let own = resource_type.tag();
    if !own.is_empty() {
        return if tag == own {
            Ok((Cow::Borrowed(own), attributes))
        } else {
            Err(Refusal::bad(format!("content of type {} is named {own}", resource_type.number())))
        };
    }
    let part = |text: &str| {
        !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_')
    };
    match tag.split_once(':') {
        Some((space, name)) if part(space) && part(name) => Ok((Cow::Owned(tag), attributes)),
        _ => Err(Refusal::bad("the content's name is NAMESPACE:NAME")),
    }
}

/// Checks an application identifier: `N` and any text, or `R` and a registered one (TS-0001
/// §7.1.11); releases up to 3 still allow a small `r`.
fn check_app_id(api: Option<&str>, release: Release) -> Result<(), Refusal> {
    let api = api.unwrap_or_default();
    let fits = match api.chars().next() {
        Some('N') => api.len() > 1,
        Some('R') => api.split('.').count() >= 3,
        Some('r') => release <= Release::R3 && api.len() > 1,
        _ => false,
    };
    if fits { Ok(()) } else { Err(Refusal::bad("api begins with N, or is a registered R…")) }
}
