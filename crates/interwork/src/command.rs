//! Commands to devices: a user's request becomes GET, SET or ACTION, and its result the response.
//!
//! A user creates an instance in the device's container [`commands`](crate::device::COMMANDS),
//! for example `{"command":"set-clock"}` or `{"command":"clear-store","handle":256}`; the result
//! is stored, under the same name, in [`results`](crate::device::RESULTS).

use crate::device::{Device, RESULTS};
use crate::instance::Hex;
use crate::json::{Json, iso};
use crate::mapping::{AttributeType, CommandAction, Mapping};
use core::time::Duration;
use gatewright_health::apdu::Attribute;
use gatewright_health::code::{
    AttributeId, DataRequestId, Handle, SystemId, Type, action, attribute,
};
use gatewright_health::manager::RequestId;
use gatewright_health::mder::{Malformed, Reader};
use gatewright_health::operation::{DataScope, Operation, OperationFailure, OperationResult};
use gatewright_health::store::{Selection, Transfer, segments};
use gatewright_health::time::AbsoluteTime;
use gatewright_onem2m::{Request, ResourceType, Status, Timestamp};
use serde_json::Value;
use std::collections::VecDeque;

/// Why a command is not sent to the device: the user's fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The content is neither a JSON object nor a string.
    #[error("a command is an object with the member \"command\", or its name alone")]
    NoCommand,
    /// The mapping has no such command.
    #[error("no command \"{0}\"")]
    Unknown(String),
    /// An argument is missing.
    #[error("argument \"{0}\" is missing")]
    Missing(&'static str),
    /// An argument is invalid.
    #[error("argument \"{name}\" is not {expected}")]
    Wrong {
        /// The argument.
        name: &'static str,
        /// The expected value.
        expected: &'static str,
    },
}

impl CommandError {
    /// The corresponding response status code.
    pub const fn status(&self) -> Status {
        match self {
            Self::NoCommand => Status::BadRequest,
            Self::Unknown(_) => Status::NotImplemented,
            Self::Missing(_) => Status::InsufficientArguments,
            Self::Wrong { .. } => Status::InvalidArguments,
        }
    }
}

/// Parses the content (`con`, JSON) of an instance in the command container; a clock without a
/// given time is set to `now`.
///
/// # Errors
///
/// [`CommandError`] with the user's mistake.
pub fn operation(
    mapping: &Mapping,
    content: &Value,
    now: Timestamp,
) -> Result<Operation, CommandError> {
    let name = content.as_str().or_else(|| content.get("command").and_then(Value::as_str));
    let name = name.ok_or(CommandError::NoCommand)?;
    let command = mapping.commands.iter().find(|command| command.name == name);
    let command = command.ok_or_else(|| CommandError::Unknown(name.to_owned()))?;
    let arguments = Arguments(content);
    let too_many = |_| CommandError::Wrong { name: "handles", expected: "that many" };
    match &command.verb {
        CommandAction::Read(attributes) => {
            let handle = arguments.handle()?.unwrap_or(Handle::MDS);
            Ok(Operation::Get { handle, attributes: attributes.clone() })
        }
        CommandAction::SetClock => {
            let time = match arguments.0.get("time") {
                None => AbsoluteTime::from_unix(now.micros() / 10_000),
                Some(time) => time.as_str().and_then(iso).ok_or(CommandError::Wrong {
                    name: "time",
                    expected: "a time like 2026-11-21T13:00:00",
                })?,
            };
            Ok(Operation::set_clock(time))
        }
        CommandAction::RequestData => {
            let scope = match arguments.numbers("handles")? {
                Some(handles) => DataScope::Handles(handles.into_iter().map(Handle).collect()),
                None => DataScope::All,
            };
            let request = arguments.number("request")?.unwrap_or(1);
            Operation::request_data(DataRequestId(request), &scope).map_err(too_many)
        }
        CommandAction::DescribeStore => {
            Operation::describe_segments(arguments.needed("handle").map(Handle)?, &Selection::All)
                .map_err(too_many)
        }
        CommandAction::TransferSegment => {
            let store = arguments.needed("handle").map(Handle)?;
            Ok(Operation::transfer_segment(store, arguments.needed("segment")?))
        }
        CommandAction::ClearStore => {
            let store = arguments.needed("handle").map(Handle)?;
            let selection = arguments.numbers("segments")?;
            let selection = selection.map_or(Selection::All, Selection::Instances);
            Operation::clear_segments(store, &selection).map_err(too_many)
        }
        CommandAction::EnableScanner => {
            let scanner = arguments.needed("handle").map(Handle)?;
            let enabled = arguments.0.get("enabled").ok_or(CommandError::Missing("enabled"))?;
            let enabled = enabled
                .as_bool()
                .ok_or(CommandError::Wrong { name: "enabled", expected: "true or false" })?;
            Ok(Operation::enable_scanner(scanner, enabled))
        }
    }
}

/// Arguments of a command.
struct Arguments<'a>(&'a Value);

impl Arguments<'_> {
    fn number(&self, name: &'static str) -> Result<Option<u16>, CommandError> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
        number.map(Some).ok_or(CommandError::Wrong { name, expected: "a whole number up to 65535" })
    }

    fn needed(&self, name: &'static str) -> Result<u16, CommandError> {
        self.number(name)?.ok_or(CommandError::Missing(name))
    }

    fn handle(&self) -> Result<Option<Handle>, CommandError> {
        Ok(self.number("handle")?.map(Handle))
    }

    fn numbers(&self, name: &'static str) -> Result<Option<Vec<u16>>, CommandError> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let wrong = CommandError::Wrong { name, expected: "a list of whole numbers up to 65535" };
        let Some(list) = value.as_array() else { return Err(wrong) };
        let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
        list.iter().map(number).collect::<Option<Vec<_>>>().map(Some).ok_or(wrong)
    }
}

/// Result of a command: the response status code, and the result's content, JSON.
pub fn result(
    mapping: &Mapping,
    outcome: &Result<OperationResult, OperationFailure>,
) -> (Status, String) {
    let mut text = String::new();
    let mut json = Json::new(&mut text);
    let status = match outcome {
        Ok(_) => Status::Ok,
        Err(failure) => failure_status(*failure),
    };
    json.object(|json| {
        json.key("status").raw(status.number());
        match outcome {
            Ok(OperationResult::Attributes { handle, values }) => {
                json.key("handle").raw(handle);
                json.key("attributes").object(|json| {
                    for (id, value) in values {
                        shown(json, mapping, *id, value);
                    }
                });
            }
            Ok(OperationResult::Action { handle, action, info }) => {
                json.key("handle").raw(handle);
                action_result(json, mapping, action.0, info);
            }
            Err(failure) => json.text("error", &failure.to_string()),
        }
    });
    (status, text)
}

/// Status of a failure: a device that is away is *not reachable*; one that refuses is a remote
/// entity that refuses.
const fn failure_status(failure: OperationFailure) -> Status {
    match failure {
        OperationFailure::Failed(_) | OperationFailure::Rejected(_) => {
            Status::OperationDeniedByRemoteEntity
        }
        OperationFailure::TooLong => Status::BadRequest,
        _ => Status::TargetNotReachable,
    }
}

/// Writes the result of an action, as far as it reports one.
fn action_result(json: &mut Json<'_>, mapping: &Mapping, done: u16, info: &[u8]) {
    if done == action::SEGMENT_INFO.0
        && let Ok(list) = segments(info)
    {
        json.key("segments").array(|json| {
            for segment in list {
                json.object(|json| {
                    json.key("segment").raw(segment.instance);
                    for Attribute { id, value } in segment.attributes {
                        shown(json, mapping, id, value);
                    }
                });
            }
        });
        return;
    }
    if done == action::SEGMENT_TRANSFER.0
        && let Ok(Transfer { instance, result }) = Transfer::decode(info)
    {
        json.key("segment").raw(instance);
        json.key("result").raw(result);
        return;
    }
    if !info.is_empty() {
        json.key("info").shown(Hex(info));
    }
}

/// Writes a device's attributes, and separately manufacturer and versions, which their shapes leave
/// out.
pub(crate) fn told(json: &mut Json<'_>, mapping: &Mapping, attributes: &[(AttributeId, Vec<u8>)]) {
    for (id, octets) in attributes {
        shown(json, mapping, *id, octets);
        if *id == attribute::MODEL
            && let Some([manufacturer, model]) = readable_model(octets)
        {
            json.text(MANUFACTURER, &manufacturer);
            json.text(MODEL_NUMBER, &model);
        }
        let is_list = *id == attribute::SPECIALISATIONS;
        let list = is_list.then(|| Reader::new(octets).list::<Type>().ok()).flatten();
        if let Some(list) = list {
            // The list pairs codes of partition 8 with versions.
            json.key(VERSIONS).array(|json| list.iter().for_each(|known| json.raw(known.code)));
        }
    }
}

/// Member of a device's description: its manufacturer.
pub(crate) const MANUFACTURER: &str = "manufacturer";
/// Member of a device's description: its model number.
pub(crate) const MODEL_NUMBER: &str = "modelNumber";
/// Member of a device's description: the versions of its specialisations, in their order.
pub(crate) const VERSIONS: &str = "versions";

/// Writes an attribute under its name, as its shape says; in hexadecimal if it has none.
fn shown(json: &mut Json<'_>, mapping: &Mapping, id: AttributeId, octets: &[u8]) {
    let known = mapping.attributes.iter().find(|shown| shown.id == id);
    let Some(known) = known else {
        let name = format!("{:04x}", id.0);
        return json.key(&name).shown(Hex(octets));
    };
    let mut text = String::new();
    if shaped(&mut Json::new(&mut text), known.shape, octets).is_ok() {
        json.key(&known.name).raw(text);
    } else {
        json.key(&known.name).shown(Hex(octets));
    }
}

fn shaped(json: &mut Json<'_>, shape: AttributeType, octets: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(octets);
    match shape {
        AttributeType::Number16 => json.raw(reader.u16()?),
        AttributeType::Number32 => json.raw(reader.u32()?),
        AttributeType::Octets => json.shown(Hex(reader.octet_string()?)),
        AttributeType::Texts => {
            let mut texts = Vec::new();
            while !reader.is_empty() {
                texts.push(readable(reader.octet_string()?));
            }
            json.string(&texts.join(" "));
        }
        AttributeType::Time => {
            let time = AbsoluteTime(reader.array()?);
            match time.iso() {
                Some(iso) => json.shown(iso),
                None => json.shown(Hex(&time.0)),
            }
        }
        AttributeType::Specialisations => {
            let list = reader.list::<Type>()?;
            json.array(|json| list.iter().for_each(|known| json.raw(known.partition)));
        }
        AttributeType::Production => {
            let count = reader.u16()?;
            let mut entries = Reader::new(reader.octet_string()?);
            let mut read = Vec::new();
            for _ in 0..count {
                let kind = entries.u16()?;
                entries.u16()?;
                read.push((kind, readable(entries.octet_string()?)));
            }
            json.object(|json| {
                for (kind, text) in &read {
                    json.text(production(*kind), text);
                }
            });
        }
    }
    reader.finish()
}

/// An attribute as JSON in its shape; null if it is missing or has no shape.
pub(crate) fn describe(mapping: &Mapping, id: AttributeId, octets: Option<&Vec<u8>>) -> Value {
    let known = mapping.attributes.iter().find(|shown| shown.id == id);
    let (Some(known), Some(octets)) = (known, octets) else { return Value::Null };
    let mut text = String::new();
    let written = shaped(&mut Json::new(&mut text), known.shape, octets);
    written.ok().and_then(|()| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Manufacturer and model of a device.
pub(crate) fn readable_model(octets: &[u8]) -> Option<[String; 2]> {
    let mut reader = Reader::new(octets);
    let manufacturer = reader.octet_string().ok()?;
    Some([readable(manufacturer), readable(reader.octet_string().ok()?)])
}

/// A device's text without the padding zeros.
fn readable(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).trim_end_matches(['\0', ' ']).to_owned()
}

/// Name of an entry in a production specification (ProdSpecEntry).
const fn production(kind: u16) -> &'static str {
    match kind {
        1 => "serialNumber",
        2 => "partNumber",
        3 => "hardwareRevision",
        4 => "softwareRevision",
        5 => "firmwareRevision",
        6 => "protocolRevision",
        7 => "gmdn",
        _ => "unspecified",
    }
}

/// The request that stores a result of [`result`] for the user, under the name of the command's
/// instance.
pub fn result_request(device: &Device, name: &str, content: &str) -> Request {
    result_at((device.address(), device.originator()), device.system_id(), name, content)
}

/// The same request for a device of which only the system-id is known, below the CSEBase `base`.
pub fn result_request_of(
    mapping: &Mapping,
    base: &str,
    system_id: SystemId,
    name: &str,
    content: &str,
) -> Request {
    let entity = format!("{}{system_id}", mapping.entity_prefix);
    let place = (format!("{base}/{entity}"), format!("C{entity}"));
    result_at((&place.0, &place.1), system_id, name, content)
}

fn result_at(
    (address, originator): (&str, &str),
    system_id: SystemId,
    name: &str,
    content: &str,
) -> Request {
    let mut text = String::new();
    Json::new(&mut text).object(|json| {
        json.key(ResourceType::ContentInstance.tag()).object(|json| {
            json.text("rn", name);
            json.text("cnf", "application/json:0");
            json.key("con").raw(content);
        });
    });
    let to = format!("{address}/{RESULTS}");
    let id = format!("{system_id}-{name}-result");
    Request::new(gatewright_onem2m::Operation::Create, to, originator, id)
        .creating(ResourceType::ContentInstance, text)
}

/// Requests that wait for any device; more are refused.
pub const WAITING_MAX: usize = 4_096;
/// Requests that wait for one device.
pub const WAITING_FOR_ONE_MAX: usize = 16;

/// Queue of requests for devices that are away, each kept as long as its originator allows.
#[derive(Clone, Debug, Default)]
pub struct Courier {
    waiting: VecDeque<PendingCommand>,
    full: u64,
}

#[derive(Clone, Debug)]
struct PendingCommand {
    system_id: SystemId,
    request: RequestId,
    operation: Operation,
    until: Duration,
}

impl Courier {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a request for a device that is away, until `until` on the clock of `now`.
    ///
    /// # Errors
    ///
    /// [`OperationFailure::Away`] if it may not wait, [`OperationFailure::Busy`] if too many wait.
    pub fn post(
        &mut self,
        now: Duration,
        system_id: SystemId,
        request: RequestId,
        operation: Operation,
        until: Option<Duration>,
    ) -> Result<(), OperationFailure> {
        let Some(until) = until.filter(|until| *until > now) else {
            return Err(OperationFailure::Away);
        };
        let for_one = self.waiting.iter().filter(|waiting| waiting.system_id == system_id).count();
        if self.waiting.len() >= WAITING_MAX || for_one >= WAITING_FOR_ONE_MAX {
            self.full += 1;
            return Err(OperationFailure::Busy(for_one));
        }
        self.waiting.push_back(PendingCommand { system_id, request, operation, until });
        Ok(())
    }

    /// Removes the requests for a device that has connected, in their order.
    pub fn collect(&mut self, system_id: SystemId) -> Vec<(RequestId, Operation)> {
        let mut collected = Vec::new();
        self.waiting.retain_mut(|waiting| {
            let is_meant = waiting.system_id == system_id;
            if is_meant {
                collected.push((waiting.request, waiting.operation.clone()));
            }
            !is_meant
        });
        collected
    }

    /// Removes the expired requests: their answer is [`OperationFailure::Away`].
    pub fn expired(&mut self, now: Duration) -> Vec<RequestId> {
        let mut expired = Vec::new();
        self.waiting.retain(|waiting| {
            let is_over = waiting.until <= now;
            if is_over {
                expired.push(waiting.request);
            }
            !is_over
        });
        expired
    }

    /// Time of the next expiry.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Requests refused because too many waited.
    pub const fn full(&self) -> u64 {
        self.full
    }
}
