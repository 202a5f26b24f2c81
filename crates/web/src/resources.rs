//! Devices and resources of the gateway's service entity, as the entity itself sees them.
//!
//! What a viewer sees are names, types and labels. Values of readings are for operators.

use crate::{answer::WebRefusal, site::Asked, tokens::AccessRole};
use gatewright_bindings::{Engine, http::http_status};
use gatewright_onem2m::{
    AccessGrant, AccessGround, Filter, Operation, Request, ResourceType, Response, Timestamp,
};
use hyper::StatusCode;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// References to the children beside the resource itself (m2m:resultContent).
const CHILD_REFERENCES: u8 = 6;

/// The children themselves, without the resource.
const CHILDREN: u8 = 8;

/// Maximum readings in one answer.
const READINGS_MAX: usize = 500;

/// Maximum levels below a resource in one answer.
const DEPTH_MAX: u32 = 3;

/// Maximum children in one answer.
const CHILDREN_MAX: usize = 1000;

/// Maximum devices in one answer.
const DEVICES_MAX: usize = 200;

/// Maximum octets of a resource's address.
const ADDRESS_MAX: usize = 512;

/// Attributes that say what a resource is and nothing of what was measured.
const NAMED: [&str; 16] = [
    "ty", "rn", "ri", "pi", "ct", "lt", "et", "lbl", "acpi", "aei", "api", "csi", "cbs", "cni",
    "mni", "mbs",
];

/// The requests that one answer needs.
pub(crate) struct ResourceReader {
    engine: Arc<Engine>,
    role: AccessRole,
    /// The caller as entries of the audit log name it.
    by: Arc<str>,
    address: Option<IpAddr>,
}

impl ResourceReader {
    /// Reads for the caller of a request.
    pub(crate) fn new(engine: Arc<Engine>, asked: &Asked<'_>) -> Self {
        let role = asked.caller.role.unwrap_or(AccessRole::Viewer);
        let by = format!("web {} {role}", asked.caller.name).into();
        Self { engine, role, by, address: asked.arrival.peer }
    }

    /// A retrieval by this CSE, whose entry in the audit log has the caller.
    fn request(&self, to: &str) -> Request {
        let mut request = Request::new(Operation::Retrieve, to, self.engine.cse_id(), "web");
        (request.sponsor, request.source) = (Some(Arc::clone(&self.by)), self.address);
        request
    }

    async fn retrieve(&self, to: &str) -> Result<Value, WebRefusal> {
        Ok(self.ask(self.request(to)).await?.0)
    }

    /// The children of a resource, without theirs and without instances, and whether the entity
    /// names only some of them.
    async fn children_of(&self, to: &str) -> Result<(Vec<ResourceReference>, bool), WebRefusal> {
        let mut filter = Filter::default();
        let kinds = ResourceType::ALL.iter().filter(|it| !it.is_instance());
        filter.resource_types = kinds.map(|it| it.number()).collect();
        filter.level = Some(1);
        let mut request = self.request(to);
        request.result_content = Some(CHILD_REFERENCES);
        request.filter = Some(Box::new(filter));
        let (found, is_partial) = self.ask(request).await?;
        Ok((references_of(&found), is_partial))
    }

    /// The content of the answer to a request, and whether it is only a part.
    async fn ask(&self, request: Request) -> Result<(Value, bool), WebRefusal> {
        let answer = self.engine.ask(request).await;
        let stopping = || {
            let why = "the service entity is stopping";
            WebRefusal::unavailable(why)
        };
        let Response { status, content, partial, .. } = answer.ok_or_else(stopping)?;
        let content = content.as_deref().unwrap_or("null");
        let content: Value = serde_json::from_str(content).unwrap_or_default();
        if status.is_success() {
            return Ok((content, partial.is_some()));
        }
        let said = content.get("m2m:dbg").and_then(Value::as_str).unwrap_or_default();
        let number = status.number();
        let why = format!("the service entity answers {number}: {said}");
        Err(WebRefusal::new(http_status(status), why))
    }

    /// The resource at `address` with its children down to `depth`; the CSEBase if none is given.
    pub(crate) async fn resource(
        &self,
        address: Option<&str>,
        depth: u32,
        originator: Option<&str>,
    ) -> Result<Value, WebRefusal> {
        let to = local(address)?;
        let granted = self.granted(to, originator)?;
        if depth > DEPTH_MAX {
            let why =
                format!("depth is at most {DEPTH_MAX}: ask for the children one after the other");
            return Err(WebRefusal::bad_request(why));
        }
        let found = self.retrieve(to).await?;
        let (mut children, mut level, mut is_cut) = (Vec::new(), vec![to.to_owned()], false);
        for _ in 0..depth {
            let mut next = Vec::new();
            for parent in level {
                let (found, is_partial) = self.children_of(&parent).await?;
                is_cut |= is_partial;
                for child in found {
                    if children.len() >= CHILDREN_MAX {
                        is_cut = true;
                        break;
                    }
                    next.push(child.address.clone());
                    children.push(child.document());
                }
            }
            level = next;
        }
        let (kind, attributes) = content_of(&found).ok_or_else(unreadable)?;
        let is_seen = |name: &str| self.role >= AccessRole::Operator || NAMED.contains(&name);
        let seen: Map<String, Value> = (attributes.iter())
            .filter(|(name, _)| is_seen(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Ok(json!({
            "at": to, "name": attributes.get("rn"), "type": short(kind), "attributes": seen,
            "children": children, "cut": is_cut, "granted": granted,
        }))
    }

    /// Whether the caller may see values, so many of them.
    fn may_read(&self, number: usize) -> Result<(), WebRefusal> {
        if self.role < AccessRole::Operator {
            let why = "values of readings need the role operator: show a token that has it";
            return Err(WebRefusal::new(StatusCode::FORBIDDEN, why));
        }
        if !(1..=READINGS_MAX).contains(&number) {
            let why = format!("latest is a number of readings, 1 to {READINGS_MAX}");
            return Err(WebRefusal::bad_request(why));
        }
        Ok(())
    }

    /// The readings of a container that were created in a span of time, the oldest first; not more
    /// than so many, and whether there are more.
    pub(crate) async fn readings_between(
        &self,
        address: Option<&str>,
        [since, until]: [Option<Timestamp>; 2],
        most: Option<usize>,
    ) -> Result<Value, WebRefusal> {
        let most = most.unwrap_or(READINGS_MAX);
        self.may_read(most)?;
        let to = local(address)?;
        self.readings_in(to).await?;
        let mut filter = Filter::default();
        filter.resource_types = vec![ResourceType::ContentInstance.number()];
        (filter.level, filter.limit) = (Some(1), Some(most + 1));
        (filter.created_after, filter.created_before) = (since, until);
        let mut instances = self.instances(to, filter).await?;
        let is_cut = instances.len() > most;
        instances.truncate(most);
        Ok(json!({ "instances": instances, "cut": is_cut }))
    }

    /// What grants the retrieval of a resource: to this page the caller's role, as it asks as the CSE
    /// itself; to an originator of requests a rule of a policy or who it is, and null if nothing does.
    fn granted(&self, to: &str, originator: Option<&str>) -> Result<Value, WebRefusal> {
        let Some(originator) = originator else {
            return Ok(json!({ "by": "role", "role": self.role, "as": self.engine.cse_id() }));
        };
        if self.role < AccessRole::Operator {
            let why = "what others may do needs the role operator: show a token that has it";
            return Err(WebRefusal::new(StatusCode::FORBIDDEN, why));
        }
        if originator.is_empty() || originator.len() > ADDRESS_MAX {
            let why = "as is an originator of requests: an AE-ID or a CSE-ID";
            return Err(WebRefusal::bad_request(why));
        }
        let granted = self.engine.retrieval_granted(to, originator);
        Ok(granted.map_or(Value::Null, |granted| document_of(&granted, originator)))
    }

    /// The last readings of a container, the oldest first.
    pub(crate) async fn readings(
        &self,
        address: Option<&str>,
        latest: usize,
    ) -> Result<Value, WebRefusal> {
        self.may_read(latest)?;
        let to = local(address)?;
        let count = self.readings_in(to).await?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut filter = Filter::default();
        filter.resource_types = vec![ResourceType::ContentInstance.number()];
        (filter.level, filter.limit) = (Some(1), Some(latest));
        // Results are numbered from 1.
        filter.offset = Some(count.saturating_sub(latest) + 1);
        Ok(json!({ "instances": self.instances(to, filter).await? }))
    }

    /// How many readings a container has.
    ///
    /// # Errors
    ///
    /// 400 if the resource is no container.
    async fn readings_in(&self, to: &str) -> Result<u64, WebRefusal> {
        let found = self.retrieve(to).await?;
        let (kind, attributes) = content_of(&found).ok_or_else(unreadable)?;
        if kind != CONTAINER.tag() {
            let why = format!(
                "readings are in containers (cnt), and this resource is of type {}: leave latest, \
                 since and until out, and its children are named",
                short(kind)
            );
            return Err(WebRefusal::bad_request(why));
        }
        Ok(attributes.get("cni").and_then(Value::as_u64).unwrap_or(0))
    }

    /// The instances of a container that match, the oldest first.
    async fn instances(&self, to: &str, filter: Filter) -> Result<Vec<Value>, WebRefusal> {
        let mut request = self.request(to);
        request.result_content = Some(CHILDREN);
        request.filter = Some(Box::new(filter));
        let (found, _) = self.ask(request).await?;
        let mut instances: Vec<Value> = (instances_of(&found).iter())
            .map(|instance| {
                let of = |name: &str| instance.get(name).cloned().unwrap_or_default();
                let created = instance.get("ct").and_then(Value::as_str).map(rfc3339);
                json!({ "name": of("rn"), "created": created, "content": of("con") })
            })
            .collect();
        instances
            .sort_by_key(|instance| instance["created"].as_str().unwrap_or_default().to_owned());
        Ok(instances)
    }

    /// The devices that have an AE here, with the names of their containers, and whether some are
    /// left out.
    pub(crate) async fn devices(&self) -> Result<(Vec<Value>, bool), WebRefusal> {
        let (entities, is_partial) = self.children_of("-").await?;
        let entities: Vec<_> = entities.iter().filter(|it| it.is(ENTITY)).collect();
        let mut devices = BTreeMap::new();
        for entity in entities.iter().take(DEVICES_MAX) {
            let own = self.retrieve(&entity.address).await?;
            let (containers, _) = self.children_of(&entity.address).await?;
            let (_, own) = content_of(&own).ok_or_else(unreadable)?;
            let labels = own.get("lbl").and_then(Value::as_array).cloned().unwrap_or_default();
            let kind = labels.iter().find_map(|it| it.as_str()?.strip_prefix(KIND_LABEL));
            let changed = own.get("lt").and_then(Value::as_str).map(rfc3339);
            let containers = containers.iter().filter(|it| it.is(CONTAINER));
            let containers: Vec<&str> = containers.map(|it| it.name.as_str()).collect();
            let now = self.engine.device_now(&entity.name);
            let heard = now.and_then(|now| now.last_heard);
            let device = json!({
                "name": entity.name, "address": entity.address, "kind": kind, "labels": labels,
                "changed": changed, "containers": containers,
                "associated": now.map(|now| now.is_associated),
                "last_heard": heard.map(|heard| rfc3339(&heard.to_string())),
            });
            devices.insert(entity.name.clone(), device);
        }
        Ok((devices.into_values().collect(), is_partial || entities.len() > DEVICES_MAX))
    }
}

/// Why an originator may retrieve a resource.
fn document_of(granted: &AccessGrant, originator: &str) -> Value {
    let by = match &granted.ground {
        AccessGround::Rule { policy, number, originators, operations } => {
            return json!({
                "by": "policy", "as": originator, "at": granted.at, "policy": policy,
                "rule": number, "originators": originators, "operations": names_of(*operations),
            });
        }
        AccessGround::ThisCse => "this-cse",
        AccessGround::Administrator => "administrator",
        AccessGround::Announcer => "announcer",
        AccessGround::Entity => "entity",
        AccessGround::Registered => "registered",
        AccessGround::Owner => "owner",
        _ => "other",
    };
    json!({ "by": by, "as": originator, "at": granted.at })
}

/// The operations of m2m:accessControlOperations (TS-0004 §6.3.4.2.29), each a bit.
fn names_of(operations: u64) -> Vec<&'static str> {
    let names = ["create", "retrieve", "update", "delete", "notify", "discover"];
    let names = (0..).zip(names).filter(|(bit, _)| operations >> bit & 1 == 1);
    names.map(|(_, name)| name).collect()
}

/// A resource in its wrapper: its type's tag, and its attributes.
fn content_of(content: &Value) -> Option<(&str, &Map<String, Value>)> {
    let (kind, attributes) = content.as_object()?.iter().next()?;
    Some((kind, attributes.as_object()?))
}

fn unreadable() -> WebRefusal {
    WebRefusal::new(StatusCode::BAD_GATEWAY, "the service entity answers with no resource")
}

/// The short name of a type, `cnt` of `m2m:cnt`.
fn short(kind: &str) -> &str {
    kind.strip_prefix("m2m:").unwrap_or(kind)
}

/// The instances in an answer with children, wherever they are nested.
fn instances_of(content: &Value) -> Vec<Value> {
    let Some(members) = content.as_object() else { return Vec::new() };
    match members.get("m2m:cin") {
        Some(Value::Array(list)) => list.clone(),
        Some(one) => vec![one.clone()],
        None => members.values().flat_map(instances_of).collect(),
    }
}

/// A time of oneM2M, `20260101T120000,123456`, in the form of RFC 3339.
fn rfc3339(time: &str) -> String {
    let of = |from, to| time.get(from..to).unwrap_or_default();
    let (year, month, day) = (of(0, 4), of(4, 6), of(6, 8));
    let (hour, minute, second) = (of(9, 11), of(11, 13), of(13, 15));
    let fraction = time.get(16..).filter(|it| !it.is_empty()).unwrap_or("0");
    format!("{year}-{month}-{day}T{hour}:{minute}:{second}.{fraction}Z")
}

/// The time of a text in the form of RFC 3339, in UTC.
pub(crate) fn time_of(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let has_form = |text: &str, between: char, lengths: &[usize]| {
        let fields = text.split(between);
        let digits = |field: &str| field.bytes().all(|it| it.is_ascii_digit());
        fields.clone().all(digits) && fields.map(str::len).eq(lengths.iter().copied())
    };
    let is_time = has_form(date, '-', &[4, 2, 2]) && has_form(time, ':', &[2, 2, 2]);
    let (date, time) = (date.replace('-', ""), time.replace(':', ""));
    is_time.then(|| Timestamp::parse(&format!("{date}T{time},{fraction}")))?
}

/// What the label of a device's AE begins with that says its kind.
const KIND_LABEL: &str = "kind:";

/// The type of a device's entity.
const ENTITY: ResourceType = ResourceType::ApplicationEntity;
/// The type of what holds a device's readings.
const CONTAINER: ResourceType = ResourceType::Container;

/// An address as this CSE reads it: structured ones are relative to it, and `-` is its base.
fn local(address: Option<&str>) -> Result<&str, WebRefusal> {
    let address = address.unwrap_or("-");
    let is_plain = !address.contains(['?', '#', '\\']) && !address.contains(char::is_control);
    if address.len() > ADDRESS_MAX || !is_plain {
        let why = "at is the address of a resource: /BASE/NAME/…";
        return Err(WebRefusal::bad_request(why));
    }
    let relative = address.strip_prefix('/').unwrap_or(address);
    Ok(if relative.is_empty() { "-" } else { relative })
}

/// A child as the CSE names it (m2m:childResourceRef).
struct ResourceReference {
    name: String,
    address: String,
    kind: Option<u64>,
}

impl ResourceReference {
    fn resource_type(&self) -> Option<ResourceType> {
        ResourceType::from_number(u16::try_from(self.kind?).ok()?)
    }

    fn is(&self, kind: ResourceType) -> bool {
        self.resource_type() == Some(kind)
    }

    fn document(&self) -> Value {
        let kind = self.resource_type().map_or("unknown", |it| short(it.tag()));
        json!({ "name": self.name, "address": self.address, "type": kind })
    }
}

fn references_of(content: &Value) -> Vec<ResourceReference> {
    let list = content.get("m2m:rrl").unwrap_or(content);
    let list = list.get("rrf").or_else(|| content.get("m2m:rrf")).unwrap_or(list);
    let read = |entry: &Value| {
        let address = entry.get("val").and_then(Value::as_str)?.to_owned();
        let name = entry.get("nm").and_then(Value::as_str);
        let name = name.or_else(|| address.rsplit('/').next()).unwrap_or_default().to_owned();
        Some(ResourceReference { name, address, kind: entry.get("typ").and_then(Value::as_u64) })
    };
    list.as_array().map(|list| list.iter().filter_map(read).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TS-0004 §6.3.3 has the form; RFC 3339 §5.6 the other.
    #[test]
    fn times_are_those_of_rfc_3339() {
        assert_eq!(rfc3339("20260131T235959,123456"), "2026-01-31T23:59:59.123456Z");
        assert_eq!(rfc3339("20260131T235959"), "2026-01-31T23:59:59.0Z");
        for (text, expected) in [
            ("2026-01-31T23:59:59Z", Some("20260131T235959")),
            ("2026-01-31T23:59:59.123456Z", Some("20260131T235959,123456")),
            ("2026-01-31T23:59:59", None),
            ("2026-1-31T23:59:59Z", None),
            ("2026-01-31 23:59:59Z", None),
            ("20260131T235959Z", None),
            ("2026-02-31T23:59:59Z", None),
            ("2026-01-31T23:59:+9Z", None),
        ] {
            assert_eq!(time_of(text), expected.and_then(Timestamp::parse), "{text}");
        }
    }

    /// TS-0004 Table 6.3.4.2.29-1.
    #[test]
    fn operations_are_named_by_their_bits() {
        assert_eq!(names_of(34), ["retrieve", "discover"]);
        assert_eq!(names_of(63).len(), 6);
        assert_eq!(names_of(0), [""; 0]);
    }

    #[test]
    fn an_address_is_of_this_entity_and_nothing_but_an_address() {
        for (given, expected) in
            [(None, "-"), (Some("-"), "-"), (Some("/"), "-"), (Some("/gw/a b"), "gw/a b")]
        {
            assert_eq!(local(given).unwrap(), expected);
        }
        for bad in ["/gw?rcn=8", "/gw#x", "/gw\n", "/gw\\x"] {
            assert!(local(Some(bad)).is_err(), "{bad:?}");
        }
    }
}
