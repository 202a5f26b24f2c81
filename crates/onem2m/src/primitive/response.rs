//! A response primitive.

use super::{Release, fields, parse_or_text, with_content};
use crate::answer_octets::Reservation;
use crate::status::{Refusal, Status};
use core::time::Duration;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The content status of an answer from which results are missing (TS-0001 §8.1.3).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PartialContent {
    /// `cnot`: how many of the results the answer ends with; `ofst` asks for the rest. Without it the
    /// missing ones cannot be asked for: a filter criterion costs too much on them.
    pub offset: Option<usize>,
}

impl PartialContent {
    /// `cnst`: partial content (m2m:contentStatus).
    pub const STATUS: u8 = 1;

    /// Reads `cnst` and `cnot`. An offset alone says the same as with the status.
    pub fn read(status: Option<u64>, offset: Option<u64>) -> Option<Self> {
        let offset = offset.and_then(|offset| usize::try_from(offset).ok());
        match status {
            Some(status) if status == u64::from(Self::STATUS) => Some(Self { offset }),
            Some(_) => None,
            None => offset.map(|offset| Self { offset: Some(offset) }),
        }
    }
}

/// A response.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// `rsc`.
    pub status: Status,
    /// `rqi`: of the request answered.
    pub id: Arc<str>,
    /// `rvi`.
    pub release: Release,
    /// `pc`: the content, as JSON text.
    pub content: Option<Arc<str>>,
    /// Address of a created resource, relative to the CSE (HTTP Content-Location).
    pub location: Option<Arc<str>>,
    /// `cnst` and `cnot`, if results are missing from this answer.
    pub partial: Option<PartialContent>,
    /// Time to retry, if the request was not judged because of overload. Bindings have statuses for
    /// it (HTTP 429 and 503, CoAP 4.29 and 5.03); primitives have none, and say 5000.
    pub retry_after: Option<Duration>,
    /// With [`Self::retry_after`]: whether there is no room for the answer (HTTP 503, CoAP 5.03),
    /// and the peer has not asked too much (HTTP 429, CoAP 4.29).
    pub is_unavailable: bool,
    /// The octets that are reserved for this answer, if it is one of a CSE to a peer.
    pub reservation: Reservation,
}

impl Response {
    /// An answer without content.
    pub fn new(status: Status, id: impl Into<Arc<str>>, release: Release) -> Self {
        let id = id.into();
        Self {
            status,
            id,
            release,
            content: None,
            location: None,
            partial: None,
            retry_after: None,
            is_unavailable: false,
            reservation: Reservation::default(),
        }
    }

    /// The answer that carries a refusal, its words in `m2m:dbg`.
    pub fn refusing(refusal: &Refusal, id: impl Into<Arc<str>>, release: Release) -> Self {
        let content = json!({ "m2m:dbg": refusal.debug }).to_string();
        Self {
            content: Some(content.into()),
            retry_after: refusal.retry_after,
            is_unavailable: refusal.retry_after.is_some(),
            ..Self::new(refusal.status, id, release)
        }
    }

    /// This answer with `content` (JSON text).
    #[must_use]
    pub fn with_content(mut self, content: impl Into<Arc<str>>) -> Self {
        self.content = Some(content.into());
        self
    }

    /// Reads a response primitive from JSON text, its content character for character.
    ///
    /// # Errors
    ///
    /// As [`Self::from_value`].
    pub fn from_json(text: &[u8]) -> Result<Self, Refusal> {
        let (object, content) = fields(text, "m2m:rsp")?;
        let mut response = Self::from_value(&Value::Object(object))?;
        response.content = content.map(Arc::from).or(response.content);
        Ok(response)
    }

    /// Where an answer that was cut can be continued (`cnot`).
    pub fn cut_at(&self) -> Option<usize> {
        self.partial.and_then(|partial| partial.offset)
    }

    /// Writes the answer as JSON text, its content character for character: a decimal stays what
    /// it is.
    pub fn to_json(&self) -> String {
        let mut bare = self.clone();
        let content = bare.content.take();
        with_content(&bare.to_value(), content.as_deref())
    }

    /// Writes the answer as a JSON object of short names.
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("rsc".into(), json!(self.status.number()));
        object.insert("rqi".into(), json!(&*self.id));
        object.insert("rvi".into(), json!(self.release.text()));
        if let Some(content) = &self.content {
            object.insert("pc".into(), parse_or_text(content));
        }
        if let Some(partial) = self.partial {
            object.insert("cnst".into(), json!(PartialContent::STATUS));
            if let Some(offset) = partial.offset {
                object.insert("cnot".into(), json!(offset));
            }
        }
        Value::Object(object)
    }

    /// Reads a response primitive: a JSON object of short names.
    ///
    /// # Errors
    ///
    /// 4000 if the code or the request identifier is missing or unknown.
    pub fn from_value(value: &Value) -> Result<Self, Refusal> {
        let value = value.get("m2m:rsp").unwrap_or(value);
        let number = value.get("rsc").and_then(Value::as_u64);
        let status = number
            .and_then(|number| u16::try_from(number).ok())
            .and_then(Status::from_number)
            .ok_or_else(|| Refusal::bad("a response has a known rsc"))?;
        let id = value.get("rqi").and_then(Value::as_str);
        let id = id.ok_or_else(|| Refusal::bad("a response has an rqi"))?;
        let mut response = Self::new(status, id, Release::default());
        response.content = value.get("pc").map(|content| content.to_string().into());
        let release = value.get("rvi").and_then(Value::as_str);
        response.release = release.and_then(|it| Release::parse(it).ok()).unwrap_or_default();
        let number = |name| value.get(name).and_then(Value::as_u64);
        response.partial = PartialContent::read(number("cnst"), number("cnot"));
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_status_is_read_with_its_offset_and_without() {
        for (status, offset, read) in [
            (None, None, None),
            (Some(1), Some(7), Some(Some(7))),
            (Some(1), None, Some(None)),
            (None, Some(7), Some(Some(7))),
            (Some(2), Some(7), None),
        ] {
            let partial = PartialContent::read(status, offset);
            assert_eq!(partial.map(|partial| partial.offset), read, "{status:?} {offset:?}");
        }
    }
}
