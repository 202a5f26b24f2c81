//! Request and response primitives (TS-0004 §6.4), and their JSON and CBOR forms (§8).

mod response;

pub use response::{PartialContent, Response};

use crate::filter::Filter;
pub use crate::release::Release;
use crate::resource_type::ResourceType;
use crate::serialisation::value_of_cbor;
pub use crate::serialisation::{Serialisation, cbor_from_json, json_from_cbor};
use crate::status::{Refusal, Status};
use crate::time::{Timestamp, parse_duration};
use crate::unique::check_names;
use core::net::IpAddr;
use core::time::Duration;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Operation of a request (m2m:operation).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// 1.
    Create,
    /// 2.
    Retrieve,
    /// 3.
    Update,
    /// 4.
    Delete,
    /// 5.
    Notify,
}

impl Operation {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Create => 1,
            Self::Retrieve => 2,
            Self::Update => 3,
            Self::Delete => 4,
            Self::Notify => 5,
        }
    }

    /// The operation of a number.
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Create),
            2 => Some(Self::Retrieve),
            3 => Some(Self::Update),
            4 => Some(Self::Delete),
            5 => Some(Self::Notify),
            _ => None,
        }
    }
}

/// Response type of a request (m2m:responseType).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum ResponseType {
    /// 1: accept, and store the result in a request resource.
    NonBlockingSynchronous,
    /// 2: accept, and notify the result.
    NonBlockingAsynchronous,
    /// 3: blocking, answered when done.
    #[default]
    Blocking,
    /// 4: the CSE's choice; here blocking.
    Flexible,
    /// 5: no response.
    None,
}

impl ResponseType {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::NonBlockingSynchronous => 1,
            Self::NonBlockingAsynchronous => 2,
            Self::Blocking => 3,
            Self::Flexible => 4,
            Self::None => 5,
        }
    }
}

/// A time limit: a point in time, or a span from now (m2m:absRelTimestamp).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Deadline {
    /// At this time.
    At(Timestamp),
    /// So long after the request was received.
    After(Duration),
}

impl Deadline {
    /// Reads an absolute time, milliseconds or an ISO 8601 duration.
    pub fn parse(text: &str) -> Option<Self> {
        // A long run of digits without the `T` is milliseconds; negative ones lie in the past.
        if let Some(past) = text.strip_prefix('-') {
            return past.parse::<u64>().ok().map(|_| Self::After(Duration::ZERO));
        }
        Timestamp::parse(text).map(Self::At).or_else(|| parse_duration(text).map(Self::After))
    }

    /// As it is written: a time, or milliseconds.
    pub fn text(self) -> String {
        match self {
            Self::At(time) => time.to_string(),
            Self::After(span) => span.as_millis().to_string(),
        }
    }

    /// The point in time, for a request received at `now`.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::After(span) => now.plus(span),
        }
    }
}

/// A request, parsed once on arrival.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// `op`.
    pub operation: Operation,
    /// `to`: the target, as the originator wrote it.
    pub to: String,
    /// `fr`: the originator; empty if absent.
    pub from: String,
    /// `rqi`: names the request among its originator's.
    pub id: String,
    /// `rvi`.
    pub release: Release,
    /// `ty`: the type of a resource to create.
    pub resource_type: Option<ResourceType>,
    /// `pc`: the content, as JSON text.
    pub content: Option<Box<str>>,
    /// `rcn`: the content of the response (m2m:resultContent, 0 to 12).
    pub result_content: Option<u8>,
    /// `fc`: filter criteria.
    pub filter: Option<Box<Filter>>,
    /// `rt`: the response type.
    pub response_type: ResponseType,
    /// `rtu`: notification targets of a non-blocking response.
    pub notify: Vec<String>,
    /// `rp`: how long a non-blocking result is kept.
    pub result_kept: Option<Deadline>,
    /// `rqet`: expiry of the request.
    pub request_expires: Option<Deadline>,
    /// `rset`: expiry of the result.
    pub result_expires: Option<Deadline>,
    /// `oet`: execution time.
    pub executes: Option<Deadline>,
    /// `drt`: whether discovery answers unstructured identifiers (2) and not structured (1).
    pub unstructured: bool,
    /// `atrl`: the attributes wanted of a retrieval.
    pub attributes: Vec<String>,
    /// `gid`: the group request this is part of.
    pub group_request: Option<Box<str>>,
    /// `ec`: the event category.
    pub event_category: Option<u32>,
    /// `vsi`: vendor information, carried on.
    pub vendor: Option<Box<str>>,
    /// Identity of the certificate that the request came by, if it is not its originator's own: the
    /// receiver decides whether it authorises the originator. Not a parameter: it is never written.
    pub sponsor: Option<Arc<str>>,
    /// Address that the request came from, if its binding knows one. Not a parameter either.
    pub source: Option<IpAddr>,
}

impl Request {
    /// Creates a request with only the mandatory parameters.
    pub fn new(
        operation: Operation,
        to: impl Into<String>,
        from: impl Into<String>,
        id: impl Into<String>,
    ) -> Self {
        Self {
            operation,
            to: to.into(),
            from: from.into(),
            id: id.into(),
            release: Release::default(),
            resource_type: None,
            content: None,
            result_content: None,
            filter: None,
            response_type: ResponseType::default(),
            notify: Vec::new(),
            result_kept: None,
            request_expires: None,
            result_expires: None,
            executes: None,
            unstructured: false,
            attributes: Vec::new(),
            group_request: None,
            event_category: None,
            vendor: None,
            sponsor: None,
            source: None,
        }
    }

    /// This request, to create a resource of `kind` from `content` (JSON text).
    #[must_use]
    pub fn creating(mut self, resource_type: ResourceType, content: impl Into<Box<str>>) -> Self {
        self.resource_type = Some(resource_type);
        self.content = Some(content.into());
        self
    }

    /// This request with `content` (JSON text).
    #[must_use]
    pub fn with_content(mut self, content: impl Into<Box<str>>) -> Self {
        self.content = Some(content.into());
        self
    }

    /// Sets one parameter by its short name; any other name is a filter criterion.
    ///
    /// # Errors
    ///
    /// 4000 if the value is none of its kind, 4001 for a release that is not spoken, 5001 for a
    /// resource type that is not hosted.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "op" => {
                self.operation = value
                    .parse()
                    .ok()
                    .and_then(Operation::from_number)
                    .ok_or_else(|| unreadable(name, value))?;
            }
            "to" => value.clone_into(&mut self.to),
            "fr" => value.clone_into(&mut self.from),
            "rqi" => value.clone_into(&mut self.id),
            "rvi" => self.release = Release::parse(value)?,
            "rcn" => {
                let number = value.parse().map_err(|_| unreadable(name, value))?;
                if number > RESULT_CONTENT_MAX {
                    return Err(unreadable(name, value));
                }
                self.result_content = Some(number);
            }
            "rt" => self.response_type = response_type(value)?,
            "rtu" => self.notify = value.split('&').map(str::to_owned).collect(),
            "rp" => self.result_kept = Some(deadline(name, value)?),
            "rqet" => self.request_expires = Some(deadline(name, value)?),
            "rset" => self.result_expires = Some(deadline(name, value)?),
            "oet" => self.executes = Some(deadline(name, value)?),
            "drt" => self.unstructured = unstructured(value)?,
            "atrl" => {
                self.attributes = value.split(['+', ' ', ',']).map(str::to_owned).collect();
            }
            "gid" => self.group_request = Some(value.into()),
            "ec" => {
                self.event_category = Some(value.parse().map_err(|_| unreadable(name, value))?);
            }
            "vsi" => self.vendor = Some(value.into()),
            _ => self.filter.get_or_insert_default().set(name, value)?,
        }
        Ok(())
    }

    /// Sets the resource type parameter, which only a creation has.
    ///
    /// # Errors
    ///
    /// 4000 if it is no number, 5001 if resources of this type are not hosted here.
    pub fn set_resource_type(&mut self, value: &str) -> Result<(), Refusal> {
        let number: u16 = value.parse().map_err(|_| unreadable("ty", value))?;
        self.resource_type = Some(ResourceType::from_number(number).ok_or_else(|| {
            Refusal::new(Status::NotImplemented, format!("type {number} is not hosted here"))
        })?);
        Ok(())
    }

    /// Reads a request primitive as MQTT and WebSocket carry it: a JSON object of short names.
    ///
    /// # Errors
    ///
    /// What is wrong, with the request identifier if it could be read.
    pub fn from_json(text: &[u8]) -> Result<Self, (Option<String>, Refusal)> {
        let (object, content) = fields(text, "m2m:rqp").map_err(|refusal| (None, refusal))?;
        let id = object.get("rqi").and_then(Value::as_str).map(str::to_owned);
        let unique = core::str::from_utf8(text).map_or(Ok(()), check_names);
        unique.map_err(|refusal| (id.clone(), refusal))?;
        let mut request = Self::from_object(&object).map_err(|refusal| (id.clone(), refusal))?;
        request.content = content.or(request.content);
        request.take_attribute_list().map_err(|refusal| (id, refusal))?;
        Ok(request)
    }

    /// Takes the attributes wanted out of the content: "these attributes are included in form of an
    /// attributeList object in the Content parameter" (TS-0009 §6.2.2.2).
    fn take_attribute_list(&mut self) -> Result<(), Refusal> {
        let (Operation::Retrieve, Some(content)) = (self.operation, &self.content) else {
            return Ok(());
        };
        let Ok(Value::Object(content)) = serde_json::from_str(content) else {
            return Ok(());
        };
        let Some(list) = content.get(ATTRIBUTE_LIST) else {
            return Ok(());
        };
        let names: Option<Vec<String>> = list
            .as_array()
            .and_then(|list| list.iter().map(|name| name.as_str().map(str::to_owned)).collect());
        let alone = content.len() == 1;
        self.attributes = names
            .filter(|names| alone && !names.is_empty())
            .ok_or_else(|| Refusal::bad("m2m:atrl is a list of names of attributes"))?;
        self.content = None;
        Ok(())
    }

    /// Reads a request primitive in CBOR.
    ///
    /// # Errors
    ///
    /// What is wrong, with the request identifier if it could be read.
    pub fn from_cbor(octets: &[u8]) -> Result<Self, (Option<String>, Refusal)> {
        let value = value_of_cbor(octets).map_err(|refusal| (None, refusal))?;
        let mut request = Self::from_value(&value)?;
        let id = Some(request.id.clone());
        request.take_attribute_list().map_err(|refusal| (id, refusal))?;
        Ok(request)
    }

    pub(crate) fn from_value(value: &Value) -> Result<Self, (Option<String>, Refusal)> {
        let value = value.get("m2m:rqp").unwrap_or(value);
        let id = value.get("rqi").and_then(Value::as_str).map(str::to_owned);
        let Some(object) = value.as_object() else {
            return Err((id, Refusal::bad("a primitive is an object")));
        };
        Self::from_object(object).map_err(|refusal| (id, refusal))
    }

    fn from_object(object: &Map<String, Value>) -> Result<Self, Refusal> {
        for name in ["op", "to", "rqi", "rvi"] {
            if !object.contains_key(name) {
                return Err(Refusal::bad(format!("mandatory parameter {name} is missing")));
            }
        }
        let mut request = Self::new(Operation::Retrieve, "", "", "");
        for (name, value) in object {
            match (name.as_str(), value) {
                ("pc", content) => request.content = Some(content.to_string().into()),
                ("ty", resource_type) => {
                    request.set_resource_type(&scalar("ty", resource_type)?)?;
                }
                ("fc", Value::Object(criteria)) => request.set_criteria(criteria)?,
                ("rt", Value::Object(response)) => request.set_response_type(response)?,
                ("atrl", Value::Array(names)) => {
                    request.attributes =
                        names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                }
                // Carried for other parties (originating timestamp, tokens), not acted upon.
                ("ot" | "tkns" | "tids" | "ltids" | "asi" | "rids" | "ma" | "pri", _) => {}
                (name, value) => request.set(name, &scalar(name, value)?)?,
            }
        }
        Ok(request)
    }

    fn set_response_type(&mut self, response: &Map<String, Value>) -> Result<(), Refusal> {
        if let Some(value) = response.get("rtv") {
            self.response_type = response_type(&scalar("rtv", value)?)?;
        }
        if let Some(Value::Array(targets)) = response.get("nu") {
            self.notify = targets.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        Ok(())
    }

    fn set_criteria(&mut self, criteria: &Map<String, Value>) -> Result<(), Refusal> {
        let filter = self.filter.get_or_insert_default();
        for (name, value) in criteria {
            match value {
                // A geometry is one value, also where it is not written as text.
                Value::Array(_) if name == "geom" => filter.set(name, &value.to_string())?,
                Value::Array(list) => {
                    for entry in list {
                        match entry.as_object() {
                            Some(pair) => filter.set(name, &named_pair(name, pair)?)?,
                            None => filter.set_whole(name, &scalar(name, entry)?)?,
                        }
                    }
                }
                Value::Object(pair) => filter.set(name, &named_pair(name, pair)?)?,
                value => filter.set(name, &scalar(name, value)?)?,
            }
        }
        Ok(())
    }

    /// The parameters that a URL's query carries (TS-0009 §6.2.2.2), as [`Self::set`] takes them.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let mut pairs = self.filter.as_ref().map_or_else(Vec::new, |filter| filter.pairs());
        if let Some(rcn) = self.result_content {
            pairs.push(("rcn", rcn.to_string()));
        }
        if self.unstructured {
            pairs.push(("drt", "2".to_owned()));
        }
        if !self.attributes.is_empty() {
            pairs.push(("atrl", self.attributes.join("+")));
        }
        match self.response_type {
            ResponseType::NonBlockingSynchronous => pairs.push(("rt", "1".to_owned())),
            ResponseType::NonBlockingAsynchronous => pairs.push(("rt", "2".to_owned())),
            ResponseType::None => pairs.push(("rt", "5".to_owned())),
            ResponseType::Blocking | ResponseType::Flexible => {}
        }
        pairs
    }

    /// Writes the request as JSON text, its content character for character: a decimal stays what
    /// it is.
    pub fn to_json(&self) -> String {
        let mut bare = self.clone();
        let content = bare.content.take();
        with_content(&bare.to_value(), content.as_deref())
    }

    /// Writes the request as a JSON object of short names.
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("op".into(), json!(self.operation.number()));
        object.insert("to".into(), json!(self.to));
        object.insert("rqi".into(), json!(self.id));
        object.insert("rvi".into(), json!(self.release.text()));
        if !self.from.is_empty() {
            object.insert("fr".into(), json!(self.from));
        }
        if let Some(resource_type) = self.resource_type {
            object.insert("ty".into(), json!(resource_type.number()));
        }
        if let Some(content) = &self.content {
            object.insert("pc".into(), parse_or_text(content));
        }
        if let Some(rcn) = self.result_content {
            object.insert("rcn".into(), json!(rcn));
        }
        if let Some(vendor) = &self.vendor {
            object.insert("vsi".into(), json!(vendor));
        }
        if let Some(group) = &self.group_request {
            object.insert("gid".into(), json!(group));
        }
        if self.unstructured {
            object.insert("drt".into(), json!(2));
        }
        if let Some(filter) = &self.filter {
            object.insert("fc".into(), filter.to_value());
        }
        if self.response_type != ResponseType::default() || !self.notify.is_empty() {
            let mut response = Map::new();
            response.insert("rtv".into(), json!(self.response_type.number()));
            if !self.notify.is_empty() {
                response.insert("nu".into(), json!(self.notify));
            }
            object.insert("rt".into(), Value::Object(response));
        }
        for (name, deadline) in [
            ("rp", self.result_kept),
            ("rqet", self.request_expires),
            ("rset", self.result_expires),
            ("oet", self.executes),
        ] {
            if let Some(deadline) = deadline {
                object.insert(name.into(), json!(deadline.text()));
            }
        }
        if self.operation == Operation::Retrieve && !self.attributes.is_empty() {
            object.insert("pc".into(), json!({ ATTRIBUTE_LIST: self.attributes }));
        } else if !self.attributes.is_empty() {
            object.insert("atrl".into(), json!(self.attributes));
        }
        if let Some(category) = self.event_category {
            object.insert("ec".into(), json!(category));
        }
        Value::Object(object)
    }
}

/// The parameters of a primitive, and the text of its content.
type Fields = (Map<String, Value>, Option<Box<str>>);

/// The parameters of a primitive, perhaps in a wrapper of this name, and the text of its content.
fn fields(text: &[u8], wrapper: &str) -> Result<Fields, Refusal> {
    let read = |text: &[u8]| {
        serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(text)
            .map_err(|error| Refusal::bad(format!("a primitive is an object in JSON: {error}")))
    };
    let mut raw = read(text)?;
    if let Some(wrapped) = raw.get(wrapper) {
        raw = read(wrapped.get().as_bytes())?;
    }
    let content = raw.remove("pc").map(|content| content.get().into());
    let parse = |(name, value): (String, Box<RawValue>)| {
        let value = serde_json::from_str(value.get());
        value.map(|value| (name, value)).map_err(|error| Refusal::bad(error.to_string()))
    };
    Ok((raw.into_iter().map(parse).collect::<Result<_, _>>()?, content))
}

/// An object in JSON text with `pc` at its end, as that is written.
fn with_content(object: &Value, content: Option<&str>) -> String {
    let mut text = object.to_string();
    let Some(content) = content else {
        return text;
    };
    let is_json = serde_json::from_str::<&RawValue>(content).is_ok();
    let quoted = if is_json { None } else { Some(Value::from(content).to_string()) };
    // The object is never empty: it has its identifier.
    text.pop();
    text.push_str(",\"pc\":");
    text.push_str(quoted.as_deref().unwrap_or(content));
    text.push('}');
    text
}

/// The attributes that a retrieval wants, as its content (m2m:attributeList).
const ATTRIBUTE_LIST: &str = "m2m:atrl";

/// The highest m2m:resultContent (12: permissions).
const RESULT_CONTENT_MAX: u8 = 12;

fn named_pair(name: &str, pair: &Map<String, Value>) -> Result<String, Refusal> {
    let (Some(attribute), Some(wanted)) = (pair.get("nm"), pair.get("val")) else {
        return Err(Refusal::bad(format!("{name} is an object of nm and val")));
    };
    Ok(format!("{},{}", scalar(name, attribute)?, scalar(name, wanted)?))
}

fn parse_or_text(content: &str) -> Value {
    serde_json::from_str(content).unwrap_or_else(|_| Value::String(content.to_owned()))
}

fn scalar(name: &str, value: &Value) -> Result<String, Refusal> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Err(Refusal::bad(format!("{name} is neither text nor number"))),
    }
}

fn unreadable(name: &str, value: &str) -> Refusal {
    Refusal::bad(format!("parameter {name} cannot be {value}"))
}

fn deadline(name: &str, value: &str) -> Result<Deadline, Refusal> {
    Deadline::parse(value).ok_or_else(|| unreadable(name, value))
}

fn unstructured(value: &str) -> Result<bool, Refusal> {
    match value {
        "1" => Ok(false),
        "2" => Ok(true),
        _ => Err(unreadable("drt", value)),
    }
}

fn response_type(value: &str) -> Result<ResponseType, Refusal> {
    match value {
        "1" => Ok(ResponseType::NonBlockingSynchronous),
        "2" => Ok(ResponseType::NonBlockingAsynchronous),
        "3" => Ok(ResponseType::Blocking),
        "4" => Ok(ResponseType::Flexible),
        "5" => Ok(ResponseType::None),
        _ => Err(unreadable("rt", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primitive_in_json_and_in_cbor_is_the_same() {
        let text = r#"{"op":1,"to":"cse-in/ae","fr":"Cx","rqi":"1","rvi":"4","ty":3,
            "pc":{"m2m:cnt":{"rn":"c"}},"rcn":0,"fc":{"lbl":["a","b"],"atr":[{"nm":"rn","val":"c"}]}}"#;
        let json = Request::from_json(text.as_bytes()).unwrap();
        let cbor = Request::from_cbor(&cbor_from_json(text).unwrap()).unwrap();
        assert_eq!(json, cbor);
        assert_eq!(json.resource_type, Some(ResourceType::Container));
        let filter = json.filter.unwrap();
        assert_eq!(filter.labels, ["a", "b"]);
        assert_eq!(filter.attributes, [("rn".to_owned(), "c".to_owned())]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut request = Request::new(Operation::Create, "cse-in", "CA", "17")
            .creating(ResourceType::Container, r#"{"m2m:cnt":{}}"#);
        for (name, value) in [
            ("rcn", "0"),
            ("fu", "1"),
            ("ty", "3+4"),
            ("lbl", "a+b"),
            ("rn", "c"),
            ("crb", "20300101T000000"),
            ("lim", "7"),
            ("rt", "2"),
            ("rtu", "coap://a&mqtt://b"),
            ("rp", "60000"),
            ("rqet", "20991231T235959,000000"),
            ("rset", "5000"),
            ("oet", "20991231T235958,000000"),
            ("drt", "2"),
            ("atrl", "lbl+ct"),
            ("gid", "g"),
            ("ec", "3"),
            ("vsi", "v"),
        ] {
            request.set(name, value).unwrap();
        }
        request.content = Some(r#"{"m2m:cin":{"con":96.50}}"#.into());
        let text = request.to_json();
        assert_eq!(Request::from_json(text.as_bytes()).unwrap(), request);
        let wrapped = format!(r#"{{"m2m:rqp": {text} }}"#);
        assert_eq!(Request::from_json(wrapped.as_bytes()).unwrap(), request);
        let mut response = Response::new(Status::Created, "17", Release::R3)
            .with_content(r#"{"m2m:cin":{"con":96.50}}"#);
        for offset in [Some(7), None] {
            response.partial = Some(PartialContent { offset });
            let text = response.to_json();
            assert_eq!(Response::from_json(text.as_bytes()).unwrap(), response);
        }
    }

    /// TS-0009 §6.2.2.2, TS-0004 Table 7.5.2-1: what attributes a retrieval wants is its content.
    #[test]
    fn a_list_of_attributes_is_content() {
        let text =
            r#"{"op":2,"to":"x","fr":"C","rqi":"1","rvi":"4","pc":{"m2m:atrl":["ri","lbl"]}}"#;
        let json = Request::from_json(text.as_bytes()).unwrap();
        assert_eq!(
            (&*json.attributes, &json.content),
            (&["ri".to_owned(), "lbl".to_owned()][..], &None)
        );
        let cbor = Request::from_cbor(&cbor_from_json(text).unwrap()).unwrap();
        assert_eq!(cbor, json);
        let written: Value = serde_json::from_str(&json.to_json()).unwrap();
        assert_eq!(written["pc"], json!({ "m2m:atrl": ["ri", "lbl"] }));
        assert_eq!(Request::from_json(json.to_json().as_bytes()).unwrap(), json);
        for wrong in ["[]", r#""ri""#, "[1]"] {
            let text = text.replace(r#"["ri","lbl"]"#, wrong);
            let (id, refusal) = Request::from_json(text.as_bytes()).unwrap_err();
            assert_eq!((id.as_deref(), refusal.status), (Some("1"), Status::BadRequest), "{wrong}");
        }
    }

    #[test]
    fn each_wrong_parameter_has_its_code() {
        let cases = [
            (r#"{"to":"x","rqi":"1","rvi":"4"}"#, Status::BadRequest),
            (r#"{"op":9,"to":"x","rqi":"1","rvi":"4"}"#, Status::BadRequest),
            (r#"{"op":2,"to":"x","rqi":"1","rvi":"9"}"#, Status::ReleaseVersionNotSupported),
            (r#"{"op":2,"to":"x","rqi":"1","rvi":"4","rcn":13}"#, Status::BadRequest),
            (r#"{"op":1,"to":"x","rqi":"1","rvi":"4","ty":999}"#, Status::NotImplemented),
            (r#"{"op":2,"to":"x","rqi":"1","rvi":"4","oet":"later"}"#, Status::BadRequest),
            (r#"{"op":2,"to":"x","rqi":"1","rvi":"4","xxx":"yyy"}"#, Status::BadRequest),
            (r#"{"op":2,"to":"x","rqi":"1","rvi":"4","fc":{"xxx":"yyy"}}"#, Status::BadRequest),
            ("[]", Status::BadRequest),
            ("{", Status::BadRequest),
        ];
        for (text, status) in cases {
            let (_, refusal) = Request::from_json(text.as_bytes()).unwrap_err();
            assert_eq!(refusal.status, status, "{text}");
        }
    }
}
