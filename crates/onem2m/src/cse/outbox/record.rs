//! An outbox message with its times, and the row that stores it.

use super::{Gather, OutboxMessage};
use crate::clock::Moment;
use crate::primitive::{Request, ResponseType};
use crate::resource::{push_json_text, push_number};
use crate::time::Timestamp;
use core::fmt::Write;
use core::time::Duration;
use serde_json::Value;
use std::sync::Arc;

/// Shortest and longest lifetime of outbox messages from a store of an earlier version.
const CONVERTED_MIN: Duration = Duration::from_hours(24);
const CONVERTED_MAX: Duration = Duration::from_hours(365 * 24);

/// Octets of most rows beside their content: an allocation that need not grow.
const ROW_OCTETS: usize = 512;

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
        let OutboxMessage { queue, target, request, keep, batch } = &self.message;
        // As text within the text: numbers must come back digit for digit.
        let content = request.content.as_deref();
        let mut text = String::with_capacity(ROW_OCTETS + content.map_or(0, str::len));
        text.push_str(Self::MARK);
        text.push_str("{\"lane\":");
        push_json_text(&mut text, queue);
        text.push_str(",\"target\":");
        push_json_text(&mut text, target);
        let keep = keep.map(|keep| u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
        let until = (self.until != Moment::MAX).then(|| self.until.micros());
        for (name, number) in [(",\"kept_until\":", until), (",\"keep\":", keep)] {
            if let Some(number) = number {
                text.push_str(name);
                push_number::<10>(&mut text, number);
            }
        }
        text.push_str(",\"request\":");
        push_parameters(&mut text, request);
        if let Some(content) = content {
            text.push_str(",\"content\":");
            push_json_text(&mut text, content);
        }
        if let Some(Gather { number, duration, latest }) = batch {
            // A string takes whatever is written to it.
            let _ = write!(text, ",\"gather\":[{number},{},{latest}]", duration.as_millis());
        }
        text.push_str("}}");
        text.into()
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
        let request = Arc::new(request);
        let message = OutboxMessage { queue, target, request, keep, batch: gather };
        Some(Self { message, since: moment, until, stored_by: 0, backlog: None })
    }
}

/// Appends a request without its content as a JSON object of short names: piece by piece, if it has
/// only what most messages have.
fn push_parameters(text: &mut String, request: &Request) {
    if !is_plain(request) {
        let bare = Request { content: None, ..request.clone() };
        text.push_str(&bare.to_value().to_string());
        return;
    }
    text.push_str("{\"op\":");
    push_number::<10>(text, request.operation.number().into());
    let from = Some(&*request.from).filter(|from| !from.is_empty());
    let texts = [
        (",\"to\":", Some(&*request.to)),
        (",\"rqi\":", Some(&*request.id)),
        (",\"rvi\":", Some(request.release.text())),
        (",\"fr\":", from),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            text.push_str(name);
            push_json_text(text, value);
        }
    }
    let numbers = [
        (",\"ty\":", request.resource_type.map(|it| u64::from(it.number()))),
        (",\"rcn\":", request.result_content.map(u64::from)),
        (",\"ec\":", request.event_category.map(u64::from)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            text.push_str(name);
            push_number::<10>(text, number);
        }
    }
    text.push('}');
}

/// Whether a request has no parameters but texts and numbers that say what is asked.
fn is_plain(request: &Request) -> bool {
    let times =
        [request.result_kept, request.request_expires, request.result_expires, request.executes];
    let has_answer_of_its_own =
        request.response_type != ResponseType::default() || !request.notify.is_empty();
    let is_part = request.vendor.is_some() || request.group_request.is_some();
    let selects =
        request.unstructured || request.filter.is_some() || !request.attributes.is_empty();
    times.iter().all(Option::is_none) && !(has_answer_of_its_own || is_part || selects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::Operation;
    use crate::resource_type::ResourceType;

    /// A row says what JSON's own writer says of the same request, and is read as it was written.
    #[test]
    fn a_row_is_read_as_it_was_written() {
        let to = "http://127.0.0.1:1/\"a\\\u{7f}\u{1}é";
        let plain = Request::new(Operation::Notify, to, "/id-in", "1-2")
            .with_content("{\"m2m:sgn\":{\"nev\":{\"rep\":{\"con\":1.50}}}}\n\t");
        let mut reading = Request::new(Operation::Create, "/id-mn/c", "", "3")
            .creating(ResourceType::ContentInstance, "{}");
        (reading.result_content, reading.event_category) = (Some(0), Some(4));
        let mut other = plain.clone();
        for (name, value) in [("vsi", "v"), ("rqet", "60000"), ("rtu", "http://a"), ("lbl", "x")] {
            other.set(name, value).unwrap();
        }
        let moment = Moment::from_micros(5);
        let gather = Gather { number: 3, duration: Duration::from_millis(1_500), latest: true };
        for (request, keep, batch) in [
            (plain.clone(), Some(Duration::from_micros(7)), Some(gather)),
            (plain, None, None),
            (reading, Some(Duration::from_hours(1)), None),
            (other, None, None),
        ] {
            let mut text = String::new();
            push_parameters(&mut text, &request);
            let bare = Request { content: None, ..request.clone() };
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), bare.to_value());
            let (queue, target) = ("sub1 \"x\"".into(), to.into());
            let request = Arc::new(request);
            let message = OutboxMessage { queue, target, request, keep, batch };
            let kept = Kept::new(message.clone(), moment, 9);
            let row = kept.to_record();
            let read = Kept::from_record(&row, moment, Timestamp::from_micros(0)).unwrap();
            assert_eq!((read.message, read.until), (message, kept.until));
        }
    }
}
