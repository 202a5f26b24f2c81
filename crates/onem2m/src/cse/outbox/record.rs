//! An outbox message with its times, and the row that stores it.

use super::{Gather, OutboxMessage};
use crate::clock::Moment;
use crate::primitive::Request;
use crate::time::Timestamp;
use core::time::Duration;
use serde_json::{Value, json};
use std::sync::Arc;

/// Shortest and longest lifetime of outbox messages from a store of an earlier version.
const CONVERTED_MIN: Duration = Duration::from_hours(24);
const CONVERTED_MAX: Duration = Duration::from_hours(365 * 24);

/// A message that waits or is in progress.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(super) message: OutboxMessage,
    /// Since when it waits.
    pub(super) since: Moment,
    /// Expiry of the message.
    pub(super) until: Moment,
    /// The batch that stored it: it is sent when that is on the disk.
    pub(super) stored_by: u64,
    /// The container from whose instance it was made; such a message has no row of its own.
    pub(super) backlog: Option<u64>,
}

impl Kept {
    pub(super) fn new(message: OutboxMessage, now: Moment, stored_by: u64) -> Self {
        let until = message.keep.map_or(Moment::MAX, |keep| now.plus(keep));
        Self { message, since: now, until, stored_by, backlog: None }
    }

    /// Prefix of a message's row: messages and resources share the store, and no resource's row has
    /// it.
    const MARK: &'static str = "{\"_x\":";

    pub(super) fn to_record(&self) -> Arc<str> {
        let message = &self.message;
        let mut request = message.request.clone();
        // As text within the text: numbers must come back digit for digit.
        let content = request.content.take();
        let gather = message
            .batch
            .map(|batch| json!([batch.number, batch.duration.as_millis(), batch.latest]));
        let body = json!({
            "lane": &*message.queue,
            "target": &*message.target,
            "kept_until": (self.until != Moment::MAX).then(|| self.until.micros()),
            "keep": message.keep.map(|keep| keep.as_micros()),
            "request": request.to_value(),
            "content": content,
            "gather": gather,
        });
        format!("{}{body}}}", Self::MARK).into()
    }

    /// Parses a stored row, if it is a message's.
    pub(super) fn from_record(body: &str, moment: Moment, wall: Timestamp) -> Option<Self> {
        let body = body.strip_prefix(Self::MARK)?.strip_suffix('}')?;
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let mut request = Request::from_value(body.get("request")?).ok()?;
        request.content = text("content").map(Into::into);
        let gather = body.get("gather").and_then(Value::as_array);
        let gather = gather.and_then(|pair| {
            let number = usize::try_from(pair.first()?.as_u64()?).ok()?;
            let duration = Duration::from_millis(pair.get(1)?.as_u64()?);
            let latest = pair.get(2).and_then(Value::as_bool).unwrap_or(false);
            Some(Gather { number, duration, latest })
        });
        let micros = |name: &str| body.get(name).and_then(Value::as_u64);
        let mut keep = micros("keep").map(Duration::from_micros);
        let mut until = micros("kept_until").map_or(Moment::MAX, Moment::from_micros);
        // Earlier versions noted a time of the wall clock, which may have been wrong, or is now.
        if let Some(time) = micros("until").map(Timestamp::from_micros)
            && time < Timestamp::MAX
        {
            let left = time.since_epoch().saturating_sub(wall.since_epoch());
            keep = Some(left.clamp(CONVERTED_MIN, CONVERTED_MAX));
            until = keep.map_or(Moment::MAX, |keep| moment.plus(keep));
        }
        let (queue, target) = (text("lane")?.into(), text("target")?.into());
        let message = OutboxMessage { queue, target, request, keep, batch: gather };
        Some(Self { message, since: moment, until, stored_by: 0, backlog: None })
    }
}
