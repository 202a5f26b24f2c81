//! contentInstances: the path of readings, so it builds no tree of values.

use super::access::{Originator, Right};
use super::create::check_creation_result;
use super::ledger::Undo;
use super::notify::NotificationEventType;
use super::{Cse, Done, Refusal, not_allowed};
use crate::geometry::Geometry;
use crate::primitive::Request;
use crate::resource::{Resource, push_json_text, push_number, row_octets};
use crate::resource_type::ResourceType;
use crate::schema::{self, check_content_info, null_given};
use crate::status::Status;
use crate::stored::Readable;
use crate::time::Timestamp;
use crate::tree::{Instance, RowChange, Slot};
use core::fmt::Write;
use core::time::Duration;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer<'text> {
    #[serde(rename = "m2m:cin", borrow)]
    instance: Given<'text>,
}

/// Given attributes; values without checks here stay as they came. Null is a value: it removes an
/// attribute in an update, and nothing in a creation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given<'text> {
    #[serde(borrow, default, deserialize_with = "present")]
    rn: Option<Cow<'text, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    con: Option<&'text RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    cnf: Option<Cow<'text, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    et: Option<Cow<'text, str>>,
    #[serde(default, deserialize_with = "present")]
    lbl: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    at: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    aa: Option<Vec<String>>,
    #[serde(borrow, default, deserialize_with = "present")]
    or: Option<Cow<'text, str>>,
    #[serde(default, deserialize_with = "present")]
    conr: Option<Vec<Map<String, Value>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    dgt: Option<Cow<'text, str>>,
    #[serde(default, deserialize_with = "present")]
    loc: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    cr: Option<Value>,
    /// deletionCnt: number of retrievals after which the instance would be deleted.
    #[serde(default, deserialize_with = "present")]
    dcnt: Option<u64>,
}

impl Given<'_> {
    /// Whether it has none of the attributes that keep an instance in memory
    /// ([`RESIDENT_BY`](crate::record_block::RESIDENT_BY)).
    fn is_plain(&self) -> bool {
        self.lbl.is_none() && self.at.is_none() && self.aa.is_none() && self.loc.is_none()
    }

    /// Refuses a list with more entries than a list attribute may have.
    fn check_lists(&self, most: usize) -> Result<(), Refusal> {
        let texts = [("lbl", &self.lbl), ("at", &self.at), ("aa", &self.aa)];
        let lengths = texts.map(|(name, list)| (name, list.as_ref().map_or(0, Vec::len)));
        let references = ("conr", self.conr.as_ref().map_or(0, Vec::len));
        match lengths.into_iter().chain([references]).find(|(_, length)| *length > most) {
            Some((name, _)) => {
                Err(Refusal::bad(format!("attribute {name} has more than {most} entries")))
            }
            None => Ok(()),
        }
    }
}

/// Reads a value that is there, so that null is not taken for an absent one.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl Cse {
    pub(super) fn create_content_instance(
        &mut self,
        request: &Request,
        from: &str,
        parent: Slot,
    ) -> Result<Done, Refusal> {
        check_creation_result(request)?;
        let text = request.content.as_deref().ok_or_else(|| Refusal::bad("there is no content"))?;
        let Outer { instance: mut given } = serde_json::from_str(text)
            .map_err(|error| Refusal::bad(format!("no contentInstance: {error}")))?;
        check_content_info(given.cnf.as_deref())?;
        if given.cr.as_ref().is_some_and(|creator| !creator.is_null()) {
            return Err(Refusal::bad("attribute cr is given as null or not at all"));
        }
        if given.dcnt.is_some() {
            let why = "instances that are deleted after some retrievals (dcnt) are not offered";
            return Err(Refusal::new(Status::NotImplemented, why));
        }
        if given.dgt.as_deref().is_some_and(|time| Timestamp::parse(time).is_none()) {
            return Err(Refusal::bad("attribute dgt has the wrong form"));
        }
        if let Some(location) = &given.loc {
            Geometry::read_location(location)?;
        }
        given.check_lists(self.config.limits.list_entries)?;
        check_content(given.con)?;
        let size = given.con.map_or(0, |content| content_octets(content.get()));
        self.check_fits(parent, size)?;
        let name = self.name_below(parent, given.rn.as_deref(), ResourceType::ContentInstance)?;
        let expires = self.instance_expiry(parent, given.et.as_deref())?;
        self.check_depth(parent)?;
        let seq = self.ledger.next_seq();
        let id = self.written(|_, text| push_instance_id(text, seq));
        self.place_instance(&mut given, parent, &id)?;
        let container = self.resource(parent)?;
        let resource = Resource {
            seq,
            resource_type: ResourceType::ContentInstance,
            tag: Cow::Borrowed(ResourceType::ContentInstance.tag()),
            id,
            name,
            parent: Some(parent),
            parent_id: Arc::clone(&container.id),
            created: self.now,
            modified: self.now,
            expires,
            state: container.state + 1,
            owner: Arc::default(),
            sponsor: None,
            made_by: None,
            attributes: Map::new(),
            representation: None,
            size,
            is_plain: given.is_plain(),
            family: None,
            stored_by: self.ledger.number(),
        };
        let representation = self.written(|_, text| represent(text, &resource, &given, from));
        debug_assert!(Resource::from_record(seq, &representation).is_ok(), "{representation}");
        let resource = Resource { representation: Some(representation), ..resource };
        // Behind all that may refuse: what gives way must not go for nothing.
        if !self.make_room(parent, resource.places(), resource.stored_octets()) {
            self.check_room(parent, None)?;
        }
        self.add_instance(resource);
        self.announce_instance(seq);
        self.instance_response(request, parent, seq)
    }

    /// Addresses at which an instance will be announced: those of its container.
    fn place_instance(&self, given: &mut Given<'_>, parent: Slot, id: &str) -> Result<(), Refusal> {
        if given.at.is_none() && given.aa.is_none() {
            return Ok(());
        }
        let mut wanted = Map::new();
        wanted.extend(given.at.take().map(|at| ("at".to_owned(), json!(at))));
        given.aa = given.aa.take().map(|mut names| {
            names.retain(|name| schema::may_be_announced(ResourceType::ContentInstance, name));
            names
        });
        wanted.extend(given.aa.as_ref().map(|aa| ("aa".to_owned(), json!(aa))));
        self.check_announcing(ResourceType::ContentInstance, &wanted)?;
        self.place_announcements(&mut wanted, parent, ResourceType::ContentInstance, id);
        let places = wanted.get("at").and_then(Value::as_array);
        given.at = places
            .map(|places| places.iter().filter_map(Value::as_str).map(str::to_owned).collect());
        Ok(())
    }

    /// Announces a new instance, if it still exists and is to be announced.
    pub(super) fn announce_instance(&mut self, seq: u64) {
        if let Some(slot) = self.tree.by_seq(seq) {
            self.announce(slot);
        }
    }

    /// Adds an instance to its parent, whose state it carries, and trims the parent.
    pub(super) fn add_instance(&mut self, resource: Resource) {
        let (seq, parent, number) = (resource.seq, resource.parent, resource.stored_by);
        if resource.resource_type == ResourceType::ContentInstance {
            // A container's latest stays in memory until another instance follows it.
            let before = parent.and_then(|parent| self.tree.latest_numbered(parent));
            if let Some((before, Instance::Resident(_))) = before {
                self.note_resident(before);
            }
        }
        let body = resource.to_record();
        let holder = parent.and_then(|parent| self.tree.get(parent));
        let holder = holder.map(|holder| (holder.state, holder.modified));
        self.ledger.write(RowChange::Put { seq, body }, Undo::Instance { seq, holder });
        let slot = self.tree.insert(resource);
        let Some(parent) = parent else {
            return;
        };
        if let Some(container) = self.tree.get_mut(parent) {
            container.stored_by = number;
        }
        self.tell(parent, NotificationEventType::ChildCreated, slot, &[]);
        self.trim(parent);
    }

    /// Removes an instance that could not be stored, and restores its parent's state.
    pub(super) fn take_back_instance(&mut self, seq: u64, holder: Option<(u64, Timestamp)>) {
        let instance = self.tree.by_seq(seq).and_then(|slot| self.tree.remove(slot));
        let parent = instance.and_then(|instance| instance.parent);
        if let Some(parent) = parent.and_then(|parent| self.tree.get_mut(parent))
            && let Some((state, modified)) = holder
        {
            (parent.state, parent.modified) = (state, modified);
        }
    }

    /// Removes the oldest instances until the container is within its mni and mbs: "the Hosting CSE
    /// shall not generate notifications" of that (TS-0004 §7.4.7.2.1).
    pub(super) fn trim(&mut self, parent: Slot) {
        loop {
            let Some(container) = self.tree.get(parent) else {
                return;
            };
            let count_max = container.uint("mni").unwrap_or(self.config.limits.instances);
            let octets_max = container.uint("mbs").unwrap_or(self.config.limits.instance_octets);
            let within = container.instance_count() <= count_max
                && container.instance_octets() <= octets_max;
            let oldest = self.tree.oldest(parent);
            let (false, Some(oldest)) = (within, oldest) else {
                return;
            };
            self.counters.trimmed += 1;
            self.take_out_oldest(parent, oldest);
        }
    }

    /// Removes an instance without notifying the subscribers of its container.
    fn take_out_oldest(&mut self, parent: Slot, oldest: Instance) {
        match oldest {
            Instance::Resident(slot) => self.take_out_untold(slot),
            Instance::PagedOut(record) => {
                self.take_out_paged(parent, record.seq);
                self.keep_state(parent);
            }
        }
    }

    /// Removes the container's oldest instances for a new one of so many places, and octets of the
    /// store, while the tree, its branch or its peer's part is full: a gateway at its limit continues to
    /// accept readings. Returns whether there is room; without it, the rest may still be enough.
    fn make_room(&mut self, parent: Slot, places: usize, stored: usize) -> bool {
        if self.stores_deletions_only {
            // Nothing is created below.
            return false;
        }
        // As many of the smallest as it is large.
        let most = places.max(stored.div_ceil(row_octets(0)));
        let account = self.tree.account_below(parent, None);
        for _ in 0..most {
            if !self.is_full(&account, stored) {
                return true;
            }
            let Some(oldest) = self.tree.oldest(parent) else { return false };
            self.counters.trimmed += 1;
            self.take_out_oldest(parent, oldest);
        }
        false
    }

    /// Checks the content of a creation against the container's limits.
    pub(super) fn check_content_fits(
        &self,
        request: &Request,
        parent: Slot,
    ) -> Result<(), Refusal> {
        let text = request.content.as_deref().unwrap_or_default();
        // The text is longer than the content in it: most need not be parsed.
        let most = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if self.check_fits(parent, most).is_ok() {
            return Ok(());
        }
        let Outer { instance } = serde_json::from_str(text)
            .map_err(|error| Refusal::bad(format!("no contentInstance: {error}")))?;
        let size = instance.con.map_or(0, |content| content_octets(content.get()));
        self.check_fits(parent, size)
    }

    pub(super) fn check_fits(&self, parent: Slot, size: u64) -> Result<(), Refusal> {
        let container = self.resource(parent)?;
        let octets_max = container.uint("mbs").unwrap_or(self.config.limits.instance_octets);
        if size > octets_max {
            return Err(Refusal::new(
                Status::NotAcceptable,
                format!("{size} octets are more than the container's {octets_max}"),
            ));
        }
        if container.uint("mni") == Some(0) {
            return Err(Refusal::new(Status::NotAcceptable, "the container keeps no instances"));
        }
        Ok(())
    }

    /// Expiry of a new instance: as requested, but not after its container's mia.
    pub(super) fn instance_expiry(
        &self,
        parent: Slot,
        wanted: Option<&str>,
    ) -> Result<Timestamp, Refusal> {
        let wanted = wanted.map(|time| {
            Timestamp::parse(time).ok_or_else(|| Refusal::bad("attribute et has the wrong form"))
        });
        let above = self.resource(parent)?;
        let mut latest = self.now.plus(self.config.limits.lifetime).min(above.expires);
        if let Some(age) = above.uint("mia") {
            latest = latest.min(self.now.plus(Duration::from_secs(age)));
        }
        match wanted.transpose()? {
            Some(wanted) if wanted <= self.now => Err(Refusal::bad("et is in the past")),
            Some(wanted) => Ok(wanted.min(latest)),
            None => Ok(latest),
        }
    }

    pub(super) fn instance_response(
        &mut self,
        request: &Request,
        parent: Slot,
        seq: u64,
    ) -> Result<Done, Refusal> {
        let Some(slot) = self.tree.by_seq(seq) else {
            // It was the one to go when room was made: possible only with an mbs of 0.
            return Err(Refusal::new(Status::NotAcceptable, "the container keeps nothing"));
        };
        if request.result_content.unwrap_or(1) != 1 {
            let none = Map::new();
            return self.creation_response(request, slot, &none);
        }
        let (text, name) = (self.resource(slot)?.to_text(), Arc::clone(&self.resource(slot)?.name));
        let mut done = Done::with(Status::Created, text);
        done.location = Some(self.written(|cse, path| {
            cse.tree.push_path(parent, path);
            path.push('/');
            path.push_str(&name);
        }));
        Ok(done)
    }

    /// Refuses the retrieval of instances if the container has disableRetrieval set.
    pub(super) fn check_shown(&self, slot: Slot) -> Result<(), Refusal> {
        let resource = self.resource(slot)?;
        let hidden = resource.resource_type == ResourceType::ContentInstance
            && resource.parent.is_some_and(|parent| self.hides_instances(parent));
        if hidden {
            return Err(not_allowed("the container shows no instances"));
        }
        Ok(())
    }

    /// Whether a container hides its instances (disableRetrieval).
    pub(super) fn hides_instances(&self, slot: Slot) -> bool {
        let container =
            self.tree.get(slot).filter(|it| it.resource_type == ResourceType::Container);
        container.is_some_and(|container| container.flag("disr"))
    }

    /// Deletes the instances of a container: those created while it hid them are never shown
    /// (TS-0001 §9.6.6, disableRetrieval).
    pub(super) fn take_out_instances(&mut self, slot: Slot) {
        while let Some(oldest) = self.tree.oldest(slot) {
            match oldest {
                Instance::Resident(oldest) => self.take_out(oldest),
                Instance::PagedOut(_) => self.take_out_oldest(slot, oldest),
            }
        }
    }

    /// Checks that `from` may retrieve an instance, by its container's rights.
    pub(super) fn demand_retrieval(
        &self,
        from: &Originator<'_>,
        slot: Slot,
    ) -> Result<(), Refusal> {
        self.demand(from, Right::Retrieve, slot, None)
    }
}

/// Checks that a restart can read the content from a row: what is acknowledged must come back.
/// Everything else in the row is written here, from values that were parsed.
///
/// # Errors
///
/// 4000 if it is null, or if the reader of rows refuses it: a number beyond a double's range, half a
/// character.
fn check_content(content: Option<&RawValue>) -> Result<(), Refusal> {
    let Some(text) = content.map(RawValue::get) else { return Ok(()) };
    if text == "null" {
        return Err(null_given("con"));
    }
    // A text without escapes was parsed whole with the request.
    if text.starts_with('"') && !text.contains('\\') {
        return Ok(());
    }
    match serde_json::from_str::<Readable>(text) {
        Ok(Readable) => Ok(()),
        Err(error) => Err(Refusal::bad(format!("no content that can be kept: {error}"))),
    }
}

/// Octets of content: of the text, or of a structured value's JSON.
pub(super) fn content_octets(raw: &str) -> u64 {
    let octets = match raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(plain) if !plain.contains('\\') => plain.len(),
        Some(_) => serde_json::from_str::<String>(raw).map_or(raw.len(), |text| text.len()),
        None => raw.len(),
    };
    u64::try_from(octets).unwrap_or(u64::MAX)
}

fn push_instance_id(text: &mut String, seq: u64) {
    text.push_str(ResourceType::ContentInstance.prefix());
    push_number::<16>(text, seq);
}

/// Serialises the instance once, for every reader and for the store.
fn represent(text: &mut String, resource: &Resource, given: &Given<'_>, from: &str) {
    let content = given.con.map_or("", RawValue::get);
    text.reserve(256 + content.len());
    // Identifiers, names and times need no escaping: they were made or checked here. Piece by
    // piece: the formatting machinery costs more than all of them.
    let (created, expires) = (resource.created.digits(), resource.expires.digits());
    for piece in [
        "{\"m2m:cin\":{\"ri\":\"",
        &resource.id,
        "\",\"rn\":\"",
        &resource.name,
        "\",\"pi\":\"",
        &resource.parent_id,
        "\",\"ty\":4,\"ct\":\"",
        created.text(),
        "\",\"lt\":\"",
        created.text(),
        "\",\"et\":\"",
        expires.text(),
    ] {
        text.push_str(piece);
    }
    text.push_str("\",\"st\":");
    push_number::<10>(text, resource.state);
    text.push_str(",\"cs\":");
    push_number::<10>(text, resource.size);
    for (name, value) in [("cnf", &given.cnf), ("or", &given.or), ("dgt", &given.dgt)] {
        if let Some(value) = value {
            let _ = write!(text, ",\"{name}\":");
            push_json_text(text, value);
        }
    }
    for (name, list) in [("lbl", &given.lbl), ("at", &given.at), ("aa", &given.aa)] {
        if let Some(list) = list {
            let _ = write!(text, ",\"{name}\":{}", json!(list));
        }
    }
    if let Some(references) = &given.conr {
        let _ = write!(text, ",\"conr\":{}", json!(references));
    }
    if let Some(location) = &given.loc {
        let _ = write!(text, ",\"loc\":{location}");
    }
    if given.cr.is_some() {
        text.push_str(",\"cr\":");
        push_json_text(text, from);
    }
    if !content.is_empty() {
        text.push_str(",\"con\":");
        text.push_str(content);
    }
    text.push_str("}}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_of_content() {
        for (raw, octets) in [
            ("\"\"", 0),
            ("\"abc\"", 3),
            ("\"é\"", 2),
            (r#""a\"b""#, 3),
            (r#""\u00e9""#, 2),
            ("12.5", 4),
            (r#"{"a":1}"#, 7),
        ] {
            assert_eq!(content_octets(raw), octets, "{raw}");
        }
    }
}
