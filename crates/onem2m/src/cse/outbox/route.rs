//! The way of a container's readings to the CSE above: what a message has that is made from an
//! instance.

use super::OutboxMessage;
use crate::primitive::{Operation, Request};
use crate::release::Release;
use crate::resource::Resource;
use crate::resource_type::ResourceType;
use core::time::Duration;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Attributes that a creator gives a contentInstance.
const GIVEN: [&str; 8] = ["rn", "con", "cnf", "lbl", "or", "conr", "dgt", "loc"];

/// What all messages have that are made from the instances of one container.
#[derive(Clone, Debug)]
pub(super) struct ReadingRoute {
    pub(super) queue: Arc<str>,
    pub(super) target: Arc<str>,
    /// The container at the CSE above.
    to: String,
    from: String,
    release: Release,
    keep: Option<Duration>,
}

impl ReadingRoute {
    /// The route of a reading with this message.
    pub(super) fn of(message: &OutboxMessage) -> Self {
        let OutboxMessage { queue, target, request, keep, .. } = message;
        Self {
            queue: Arc::clone(queue),
            target: Arc::clone(target),
            to: request.to.clone(),
            from: request.from.clone(),
            release: request.release,
            keep: *keep,
        }
    }

    /// Whether a message goes this way.
    pub(super) fn is_of(&self, message: &OutboxMessage) -> bool {
        let Request { to, from, release, .. } = &*message.request;
        self.queue == message.queue
            && self.target == message.target
            && (&self.to, &self.from, self.release, self.keep) == (to, from, *release, message.keep)
    }

    /// The members of its row, with those of `more`.
    pub(super) fn to_row(&self, mark: &str, more: &[(&str, u64)]) -> Arc<str> {
        let mut body = json!({
            "queue": &*self.queue,
            "target": &*self.target,
            "to": self.to,
            "from": self.from,
            "release": self.release.text(),
            "keep": self.keep.map(|keep| keep.as_micros()),
        });
        if let Some(members) = body.as_object_mut() {
            members.extend(more.iter().map(|(name, number)| ((*name).to_owned(), json!(number))));
        }
        format!("{mark}{body}}}").into()
    }

    /// Reads a row with this mark; with its members.
    pub(super) fn from_row(stored: &str, mark: &str) -> Option<(Self, Value)> {
        let body = stored.strip_prefix(mark)?.strip_suffix('}')?;
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let route = Self {
            queue: text("queue")?.into(),
            target: text("target")?.into(),
            to: text("to")?.to_owned(),
            from: text("from")?.to_owned(),
            release: Release::parse(text("release")?).ok()?,
            keep: body.get("keep").and_then(Value::as_u64).map(Duration::from_micros),
        };
        Some((route, body))
    }

    /// The message that creates an instance at the CSE above.
    pub(super) fn message(&self, instance: &Resource) -> Option<OutboxMessage> {
        let content = creation(&instance.to_text())?;
        let id = format!("{}-{}", self.from.trim_start_matches('/'), instance.id);
        let request = Request::new(Operation::Create, &*self.to, &*self.from, id);
        let request = Request { release: self.release, ..request };
        Some(OutboxMessage {
            queue: Arc::clone(&self.queue),
            target: Arc::clone(&self.target),
            request: request.creating(ResourceType::ContentInstance, content).into(),
            keep: self.keep,
            batch: None,
        })
    }
}

/// The content that creates an instance like the one with this representation; numbers digit for
/// digit.
fn creation(text: &str) -> Option<String> {
    let tag = ResourceType::ContentInstance.tag();
    let outer: BTreeMap<&str, BTreeMap<&str, &RawValue>> = serde_json::from_str(text).ok()?;
    let mut attributes = outer.get(tag)?.clone();
    attributes.retain(|name, _| GIVEN.contains(name));
    let attributes = serde_json::to_string(&attributes).ok()?;
    Some(format!("{{\"{tag}\":{attributes}}}"))
}
