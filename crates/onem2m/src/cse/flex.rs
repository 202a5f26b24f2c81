//! Instances other than contentInstances: of flexContainers, which record their earlier states
//! (TS-0001 §9.6.35), and of time series (§9.6.36).

use super::create::check_creation_result;
use super::instance::content_octets;
use super::notify::NotificationEventType;
use super::{Cse, Done, Refusal};
use crate::primitive::Request;
use crate::resource::{Resource, wrap};
use crate::resource_type::ResourceType;
use crate::schema;
use crate::status::Status;
use crate::time::Timestamp;
use crate::tree::Slot;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer<'text> {
    #[serde(rename = "m2m:tsi", borrow)]
    instance: BTreeMap<String, &'text RawValue>,
}

/// The attributes of a flexContainer that its definition names, and their size in octets.
pub(super) fn custom_attributes(attributes: &Map<String, Value>) -> (Map<String, Value>, u64) {
    let custom: Map<String, Value> = attributes
        .iter()
        .filter(|(name, _)| !schema::is_core(ResourceType::FlexContainer, name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let octets = custom.values().map(|value| content_octets(&value.to_string())).sum();
    (custom, octets)
}

impl Cse {
    /// Records the present state of a flexContainer, if it keeps its history.
    pub(super) fn keep_history(&mut self, slot: Slot) {
        let Some(flex) =
            self.tree.get(slot).filter(|it| it.resource_type == ResourceType::FlexContainer)
        else {
            return;
        };
        if !flex.keeps_history() {
            return;
        }
        let (mut object, size) = custom_attributes(&flex.attributes);
        let (tag, state, parent_id) = (flex.tag.clone(), flex.state, Arc::clone(&flex.id));
        let Ok(expires) = self.instance_expiry(slot, None) else {
            return;
        };
        let seq = self.ledger.next_seq();
        let id = format!("{}{seq:x}", ResourceType::FlexContainerInstance.prefix());
        object.insert("cs".into(), json!(size));
        object.insert("st".into(), json!(state));
        self.put_instance(
            ResourceType::FlexContainerInstance,
            tag,
            slot,
            object,
            Instance { seq, id: id.clone(), name: id.into(), parent_id, expires, state, size },
        );
    }

    /// Creates a timeSeriesInstance: like a contentInstance, but named by its time of generation.
    pub(super) fn create_time_series_instance(
        &mut self,
        request: &Request,
        parent: Slot,
    ) -> Result<Done, Refusal> {
        check_creation_result(request)?;
        let text = request.content.as_deref().ok_or_else(|| Refusal::bad("there is no content"))?;
        let Outer { instance: raw } = serde_json::from_str(text)
            .map_err(|error| Refusal::bad(format!("no timeSeriesInstance: {error}")))?;
        let mut object = Map::new();
        for (name, value) in &raw {
            let value = serde_json::from_str(value.get())
                .map_err(|error| Refusal::bad(format!("attribute {name}: {error}")))?;
            object.insert(name.clone(), value);
        }
        schema::check_create(ResourceType::TimeSeriesInstance, &object, &self.config.limits)?;
        schema::retain_announceable(ResourceType::TimeSeriesInstance, &mut object);
        self.check_announcing(ResourceType::TimeSeriesInstance, &object)?;
        let generated = object.get("dgt").and_then(Value::as_str).and_then(Timestamp::parse);
        if self.has_instance_of(parent, generated) {
            return Err(Refusal::new(Status::Conflict, "there is an instance of this time"));
        }
        let size = raw.get("con").map_or(0, |content| content_octets(content.get()));
        self.check_fits(parent, size)?;
        let wanted = object.remove("rn");
        let name = self.name_below(
            parent,
            wanted.as_ref().and_then(Value::as_str),
            ResourceType::TimeSeriesInstance,
        )?;
        self.check_room(parent, None)?;
        let wanted = object.remove("et");
        let expires = self.instance_expiry(parent, wanted.as_ref().and_then(Value::as_str))?;
        let parent_id = Arc::clone(&self.resource(parent)?.id);
        let seq = self.ledger.next_seq();
        object.insert("cs".into(), json!(size));
        let id = format!("{}{seq:x}", ResourceType::TimeSeriesInstance.prefix());
        self.place_announcements(&mut object, parent, ResourceType::TimeSeriesInstance, &id);
        let tag = Cow::Borrowed(ResourceType::TimeSeriesInstance.tag());
        self.put_instance(
            ResourceType::TimeSeriesInstance,
            tag,
            parent,
            object,
            Instance { seq, id, name, parent_id, expires, state: 0, size },
        );
        self.announce_instance(seq);
        if let Some(generated) = generated {
            self.point_arrived(parent, generated);
        }
        self.instance_response(request, parent, seq)
    }

    fn has_instance_of(&self, parent: Slot, generated: Option<Timestamp>) -> bool {
        let family = self.tree.get(parent).and_then(|series| series.family.as_ref());
        let times = family.map(|family| &family.generated);
        generated.zip(times).is_some_and(|(time, times)| times.contains(&time))
    }

    fn put_instance(
        &mut self,
        resource_type: ResourceType,
        tag: Cow<'static, str>,
        parent: Slot,
        mut object: Map<String, Value>,
        instance: Instance,
    ) {
        let now = self.now.to_string();
        for (name, value) in [
            ("ri", json!(instance.id)),
            ("rn", json!(&*instance.name)),
            ("pi", json!(&*instance.parent_id)),
            ("ty", json!(resource_type.number())),
            ("ct", json!(now)),
            ("lt", json!(now)),
            ("et", json!(instance.expires.to_string())),
        ] {
            object.insert(name.to_owned(), value);
        }
        let representation: Arc<str> = wrap(&tag, Value::Object(object)).into();
        self.add_instance(Resource {
            seq: instance.seq,
            resource_type,
            tag,
            id: instance.id.into(),
            name: instance.name,
            parent: Some(parent),
            parent_id: instance.parent_id,
            created: self.now,
            modified: self.now,
            expires: instance.expires,
            state: instance.state,
            owner: "".into(),
            sponsor: None,
            made_by: None,
            attributes: Map::new(),
            representation: Some(representation),
            size: instance.size,
            is_plain: false,
            family: None,
            stored_by: self.ledger.number(),
        });
    }

    /// Sets the size of a flexContainer's own attributes.
    pub(super) fn measure_flex(attributes: &mut Map<String, Value>) {
        let (_, octets) = custom_attributes(attributes);
        attributes.insert("cs".into(), json!(octets));
    }

    /// Notifies and announces a creation.
    pub(super) fn announce_creation(&mut self, parent: Slot, slot: Slot) {
        self.tell(parent, NotificationEventType::ChildCreated, slot, &[]);
        self.keep_history(slot);
    }
}

/// Data of an instance without its content.
struct Instance {
    seq: u64,
    id: String,
    name: Arc<str>,
    parent_id: Arc<str>,
    expires: Timestamp,
    state: u64,
    size: u64,
}
