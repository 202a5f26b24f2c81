//! Requests to devices through the CSE.
//!
//! The gateway gives a device's AE the address `device://SYSTEM-ID`, which no other originator can
//! set, so a NOTIFY to it arrives here: its content is a command, and the device's result is the
//! response. An instance in the device's command container arrives through the gateway's own
//! subscription to that AE; its result becomes an instance in the result container.

use super::{ConnectionChannels, DevicesConfig, Shared};
use crate::engine::{Engine, wall};
use crate::tasks::spawn;
use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_health::manager::RequestId;
use gatewright_health::operation::{Operation, OperationFailure, OperationResult};
use gatewright_interwork::command::{Courier, operation, result, result_request_of};
use gatewright_interwork::device::COMMANDS;
use gatewright_onem2m::{
    DeviceCall, Operation as Verb, Request, ResourceType, Response, Status, Timestamp, Unreachable,
    device_address,
};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Every operation of an access control rule (m2m:accessControlOperations).
const ALL: u8 = 63;
/// Of these: create.
const CREATE: u8 = 1;
/// Retrieve, notify and discover.
const READ_AND_ASK: u8 = 2 + 16 + 32;
/// Name of the policy that authorises operators.
const OPERATORS: &str = "operators";
/// Name of the policy that authorises operators to create commands.
const OPERATORS_COMMANDS: &str = "operators-commands";
/// Name of the policy that authorises a device, below its AE.
const DEVICE_ITSELF: &str = "device-itself";
/// Name of the gateway's subscription to a device's command container.
const SUBSCRIPTION: &str = "gateway";
/// Sleep of the task when no request is pending.
const NOTHING_WAITS: Duration = Duration::from_hours(1);

/// Pending requests for devices.
#[derive(Debug, Default)]
pub(super) struct PendingCommands {
    open: HashMap<RequestId, PendingCommand>,
    courier: Courier,
    asked: u64,
}

/// A request for a device.
#[derive(Debug)]
struct PendingCommand {
    call: DeviceCall,
    device: SystemId,
    /// Name of the command's instance if the result becomes an instance.
    instance: Option<String>,
}

/// Content of a NOTIFY to a device's address.
#[derive(Debug, PartialEq)]
enum NotifyContent {
    /// A notification that is only acknowledged.
    Nothing,
    /// A command, with the name of its instance if it has one.
    Command(Value, Option<String>),
}

impl PendingCommands {
    /// Removes the requests that wait for a device.
    pub(super) fn collect(&mut self, device: SystemId) -> Vec<(RequestId, Operation)> {
        self.courier.collect(device)
    }
}

/// Accepts requests for devices and expires late ones until `stop` is set.
pub(super) async fn serve(
    shared: Arc<Shared>,
    mut calls: mpsc::Receiver<DeviceCall>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let due = shared.lock().desk.courier.poll_timeout();
        let due = due.map_or(NOTHING_WAITS, |due| due.saturating_sub(shared.now()));
        tokio::select! {
            Some(call) = calls.recv() => shared.take_call(call),
            () = tokio::time::sleep(due) => {
                let now = shared.now();
                let expired = shared.lock().desk.courier.expired(now);
                for request in expired {
                    shared.answered(request, &Err(OperationFailure::Away));
                }
            }
            _ = stop.changed() => return,
        }
    }
}

/// Creates the policies that authorise operators, if there are any or resources already refer to
/// them; returns the address of the one for all resources.
///
/// Operators read readings, ask devices and subscribe. What they create besides subscriptions is
/// commands: a reading of theirs would be taken for the device's.
pub(super) async fn make_policy(
    engine: &Arc<Engine>,
    config: &DevicesConfig,
    is_there: bool,
) -> Option<String> {
    let operators = config.operators.as_slice();
    let creating = |kind: ResourceType| json!({ "acor": operators, "acop": CREATE, "acod": [{ "chty": [kind.number()] }] });
    let read = json!({ "acor": operators, "acop": READ_AND_ASK });
    let read = vec![read, creating(ResourceType::Subscription)];
    let is_there = is_there || !operators.is_empty();
    if !is_there && !has_policy(engine, config).await {
        return None;
    }
    let address = put_policy(engine, config, OPERATORS, read, is_there).await?;
    let command = vec![creating(ResourceType::ContentInstance)];
    put_policy(engine, config, OPERATORS_COMMANDS, command, true).await?;
    Some(address)
}

/// Whether there is a policy of operators from an earlier run. A discovery that finds none is no
/// refused request in the counters.
async fn has_policy(engine: &Arc<Engine>, config: &DevicesConfig) -> bool {
    let id = format!("{OPERATORS}-found-{}", wall().as_micros());
    let mut request = Request::new(Verb::Retrieve, &*config.base, engine.cse_id(), id);
    let kind = ResourceType::AccessControlPolicy.number().to_string();
    for (name, value) in [("fu", "1"), ("lvl", "1"), ("ty", kind.as_str())] {
        // Known parameters with values that they take.
        let _ = request.set(name, value);
    }
    let content = engine.ask(request).await.and_then(|answer| answer.content);
    content.is_some_and(|found| found.contains(&format!("\"{}/{OPERATORS}\"", config.base)))
}

/// Creates a policy of operators with these rules if `is_made`, and gives an existing one these
/// rules; returns its address if it exists.
async fn put_policy(
    engine: &Arc<Engine>,
    config: &DevicesConfig,
    name: &str,
    rules: Vec<Value>,
    is_made: bool,
) -> Option<String> {
    let own = engine.cse_id();
    let rules = if config.operators.is_empty() { Vec::new() } else { rules };
    let pvs = own_privileges(&own);
    let address = format!("{}/{name}", config.base);
    let create = json!({ "m2m:acp": { "rn": name, "pv": { "acr": rules }, "pvs": pvs } });
    let update = json!({ "m2m:acp": { "pv": { "acr": rules } } });
    let micros = wall().as_micros();
    let request =
        |verb, to: &str, what| Request::new(verb, to, &*own, format!("{name}-{what}-{micros}"));
    let made = request(Verb::Create, &config.base, "made")
        .creating(ResourceType::AccessControlPolicy, create.to_string());
    if is_made {
        engine.ask(made).await;
    }
    // It may be there from an earlier run, with others in it.
    let changed = request(Verb::Update, &address, "changed").with_content(update.to_string());
    let answer = engine.ask(changed).await;
    answer.is_some_and(|answer| answer.status.is_success()).then_some(address)
}

/// Self-privileges that let only this CSE change a policy.
fn own_privileges(cse_id: &str) -> Value {
    json!({ "acr": [{ "acor": [cse_id], "acop": ALL }] })
}

impl Shared {
    /// Requests that make a device reachable: its AE's address, the gateway's subscription to its
    /// commands, and the policies on all its resources.
    pub(super) fn ways(&self, device: SystemId, places: &[Request]) -> Vec<Request> {
        let own = self.engine.cse_id();
        let micros = wall().as_micros();
        let entity = format!("{}/{}{device}", self.base, self.mapping.entity_prefix);
        let id = |what: &str| format!("{device}-{micros}-{what}");
        let mut ways = Vec::new();
        let reach =
            json!({ "m2m:ae": { "rr": true, "poa": [device_address(device)] } }).to_string();
        ways.push(Request::new(Verb::Update, &*entity, &*own, id("way")).with_content(reach));
        let policies = self.policies(&entity);
        if policies.is_some() {
            ways.push(self.device_itself(device, &entity));
        }
        // Policies are updated alone (TS-0001 §10.2.3.3.3).
        for (number, (policies, place)) in policies.iter().cycle().zip(places).enumerate() {
            let Some((tag, name)) = place.content.as_deref().and_then(made) else { continue };
            let mut policies = policies.to_vec();
            if name == COMMANDS {
                policies.push(format!("{}/{OPERATORS_COMMANDS}", self.base));
            }
            let to = if tag == "m2m:ae" { entity.clone() } else { format!("{entity}/{name}") };
            let content = json!({ tag: { "acpi": policies } }).to_string();
            let request = Request::new(Verb::Update, to, &*own, id(&number.to_string()));
            ways.push(request.with_content(content));
        }
        let subscription = json!({
            "m2m:sub": { "rn": SUBSCRIPTION, "nu": [entity], "nct": 1, "enc": { "net": [3] } }
        });
        ways.push(
            Request::new(Verb::Create, format!("{entity}/{COMMANDS}"), &*own, id("commands"))
                .creating(ResourceType::Subscription, subscription.to_string()),
        );
        ways
    }

    /// The request that creates the policy by which a device keeps full access to its own
    /// resources: with policies, a creator has no access of its own. It names one AE, since other
    /// AEs could choose a name that fits a pattern.
    fn device_itself(&self, device: SystemId, entity: &str) -> Request {
        let own = self.engine.cse_id();
        let originator = format!("C{}{device}", self.mapping.entity_prefix);
        let content = json!({ "m2m:acp": {
            "rn": DEVICE_ITSELF,
            "pv": { "acr": [{ "acor": [originator], "acop": ALL }] },
            "pvs": own_privileges(&own),
        } });
        let id = format!("{device}-{}-{DEVICE_ITSELF}", wall().as_micros());
        Request::new(Verb::Create, entity, &*own, id)
            .creating(ResourceType::AccessControlPolicy, content.to_string())
    }

    /// Requests that let a device in again where somebody has set policies on its resources without
    /// its own one: no request of the device could do so. Whoever is to keep a device out leaves it
    /// out of `admit`.
    pub(super) fn readmission(&self, device: SystemId, places: &[Request]) -> Vec<Request> {
        let entity = format!("{}/{}{device}", self.base, self.mapping.entity_prefix);
        let own = format!("{entity}/{DEVICE_ITSELF}");
        let (cse, micros) = (self.engine.cse_id(), wall().as_micros());
        let mut requests = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let Some((tag, name)) = place.content.as_deref().and_then(made) else { continue };
            let to = if tag == "m2m:ae" { entity.clone() } else { format!("{entity}/{name}") };
            let mut policies = self.engine.policies_of(&to);
            if policies.is_empty() || policies.contains(&own) {
                continue;
            }
            if requests.is_empty() {
                requests.push(self.device_itself(device, &entity));
            }
            policies.push(own.clone());
            let content = json!({ tag: { "acpi": policies } }).to_string();
            let id = format!("{device}-{micros}-readmitted-{number}");
            requests.push(Request::new(Verb::Update, to, &*cse, id).with_content(content));
        }
        requests
    }

    /// Policies of a device's resources if there are operators: theirs and the device's own.
    fn policies(&self, entity: &str) -> Option<[String; 2]> {
        let operators = self.lock().policy.clone()?;
        Some([operators, format!("{entity}/{DEVICE_ITSELF}")])
    }

    /// The request that sets the policies on a resource created later.
    pub(super) fn policy_on(&self, place: &Request) -> Option<Request> {
        let policies = self.policies(&place.to)?;
        let (tag, name) = place.content.as_deref().and_then(made)?;
        let content = json!({ tag: { "acpi": policies } }).to_string();
        let (to, id) = (format!("{}/{name}", place.to), format!("{}-policy", place.id));
        Some(Request::new(Verb::Update, to, self.engine.cse_id(), id).with_content(content))
    }

    /// Accepts a request for a device.
    fn take_call(&self, call: DeviceCall) {
        let Some(device) = system_id(&call.device) else {
            let unreachable = Unreachable("no such device".to_owned());
            return self.engine.answer(call.id, Err(unreachable));
        };
        let (command, instance) = match told(&call.request) {
            NotifyContent::Nothing => return self.respond(&call, Status::Ok, None),
            NotifyContent::Command(command, instance) => (command, instance),
        };
        self.count(|counters| counters.asked += 1);
        let asked = PendingCommand { call, device, instance };
        match operation(&self.mapping, &command, Timestamp::new(wall())) {
            Ok(operation) => self.ask(asked, operation),
            Err(error) => {
                let status = error.status();
                let text = json!({ "status": status.number(), "error": error.to_string() });
                self.give(asked, status, text.to_string());
            }
        }
    }

    /// Sends a request to a connected device, or keeps it until the device connects.
    fn ask(&self, asked: PendingCommand, operation: Operation) {
        let (device, now) = (asked.device, self.now());
        // An instance waits in the outbox of the service entity, which survives.
        let until = asked.call.request.request_expires.filter(|_| asked.instance.is_none());
        let until = until.map(|until| {
            let left = until.resolve(Timestamp::new(wall())).since_epoch();
            now.saturating_add(left.saturating_sub(wall()))
        });
        let mut state = self.lock();
        state.desk.asked += 1;
        let request = RequestId(state.desk.asked);
        state.desk.open.insert(request, asked);
        let line = state.roster.session(device).and_then(|id| state.lines.get(&id));
        let failure = if let Some(ConnectionChannels { asks, .. }) = line.cloned() {
            let sent = asks.try_send((request, operation));
            sent.err().map(|_| OperationFailure::Busy(super::ASKS_MAX))
        } else {
            let waits = state.desk.courier.post(now, device, request, operation, until);
            state.counters.asked_waited += u64::from(waits.is_ok());
            waits.err()
        };
        drop(state);
        if let Some(failure) = failure {
            self.answered(request, &Err(failure));
        }
    }

    /// Answers the originator with the device's result.
    pub(super) fn answered(
        &self,
        request: RequestId,
        outcome: &Result<OperationResult, OperationFailure>,
    ) {
        let Some(asked) = self.lock().desk.open.remove(&request) else { return };
        let (status, text) = result(&self.mapping, outcome);
        let is_away = status == Status::TargetNotReachable;
        self.count(|counters| counters.asked_answered += u64::from(!is_away));
        if is_away && asked.instance.is_some() {
            // The service entity keeps the notification and comes again.
            let unreachable = Unreachable("the device is away".to_owned());
            return self.engine.answer(asked.call.id, Err(unreachable));
        }
        self.give(asked, status, text);
    }

    fn give(&self, asked: PendingCommand, status: Status, text: String) {
        let PendingCommand { call, device, instance } = asked;
        let Some(name) = instance else {
            return self.respond(&call, status, Some(text));
        };
        let made = result_request_of(&self.mapping, &self.base, device, &name, &text);
        let (engine, stored) = (Arc::clone(&self.engine), self.engine.ask(made));
        let response = Response::new(Status::Ok, call.request.id.as_str(), call.request.release);
        spawn(async move {
            // Stored, or there from an earlier try: the command is done.
            let answer = match stored.await.map(|answer| answer.status) {
                Some(status) if status.is_success() || status == Status::Conflict => Ok(response),
                _ => Err(Unreachable("the result could not be stored".to_owned())),
            };
            engine.answer(call.id, answer);
        });
    }

    fn respond(&self, call: &DeviceCall, status: Status, content: Option<String>) {
        let request = &call.request;
        let mut response = Response::new(status, request.id.as_str(), request.release);
        response.content = content.map(Into::into);
        self.engine.answer(call.id, Ok(response));
    }
}

/// Parses the content of a request to a device's address.
fn told(request: &Request) -> NotifyContent {
    let content = request.content.as_deref().unwrap_or_default();
    let Ok(content) = serde_json::from_str::<Value>(content) else {
        // Said to be no command, by whoever reads commands.
        return NotifyContent::Command(Value::Null, None);
    };
    let Some(notification) = content.get("m2m:sgn") else {
        return NotifyContent::Command(content, None);
    };
    let instance = notification.pointer("/nev/rep/m2m:cin");
    let name = instance.and_then(|instance| instance.get("rn")).and_then(Value::as_str);
    match (instance.and_then(|instance| instance.get("con")), name) {
        (Some(Value::String(text)), Some(name)) => {
            // A command may be written as text, too.
            let parsed = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            NotifyContent::Command(parsed, Some(name.to_owned()))
        }
        (Some(command), Some(name)) => {
            NotifyContent::Command(command.clone(), Some(name.to_owned()))
        }
        // A question whether notifications are wanted, or that the subscription is gone.
        _ => NotifyContent::Nothing,
    }
}

/// Tag and name of the resource that a creation makes.
fn made(content: &str) -> Option<(String, String)> {
    let content: Value = serde_json::from_str(content).ok()?;
    let (tag, attributes) = content.as_object()?.iter().next()?;
    Some((tag.clone(), attributes.get("rn")?.as_str()?.to_owned()))
}

/// Parses a system-id such as `0022090000000001`.
fn system_id(digits: &str) -> Option<SystemId> {
    let is_hex = digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_hex.then(|| u64::from_str_radix(digits, 16).ok()).flatten()?;
    Some(SystemId(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_addressed_by_its_system_id() {
        let id = SystemId([0, 0x22, 9, 0, 0, 0, 0, 1]);
        assert_eq!(system_id(&id.to_string()), Some(id));
        for other in ["002209000000000", "/0022090000000001", "+022090000000001", ""] {
            assert_eq!(system_id(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_comes_bare_or_in_an_instance() {
        let told = |content: Value| {
            let request = Request::new(Verb::Notify, "x", "CAdmin", "1");
            told(&request.with_content(content.to_string()))
        };
        let command = json!({ "command": "read" });
        assert_eq!(told(command.clone()), NotifyContent::Command(command.clone(), None));
        for con in [command.clone(), json!(command.to_string())] {
            let instance = json!({ "m2m:sgn": { "nev": { "rep": { "m2m:cin":
                { "rn": "one", "con": con } } } } });
            assert_eq!(
                told(instance),
                NotifyContent::Command(command.clone(), Some("one".to_owned()))
            );
        }
        assert_eq!(told(json!({ "m2m:sgn": { "vrq": true } })), NotifyContent::Nothing);
        assert_eq!(told(json!({ "m2m:sgn": { "sud": true } })), NotifyContent::Nothing);
    }
}
