//! The way back: a user's command through the mapping and a manager to a device, and the result.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::agent::{self, Agent, PmSegment};
use gatewright_health::code::{ConfigId, Handle, SystemId, attribute};
use gatewright_health::configuration::Library;
use gatewright_health::data::ErrorCode;
use gatewright_health::manager::{Input, Manager, ManagerSettings, Output, RequestId};
use gatewright_health::operation::{Operation, OperationFailure, OperationResult};
use gatewright_health::specialisation::SCALE;
use gatewright_health::time::AbsoluteTime;
use gatewright_interwork::command::{
    Courier, WAITING_FOR_ONE_MAX, operation, result, result_request,
};
use gatewright_interwork::{Device, Mapping};
use gatewright_onem2m::{Status, Timestamp};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_micros(1_795_266_000_000_000);
const DEVICE: SystemId = SystemId(*b"SCALE001");

/// Serial number DE124567, as a scale in the field tells it.
const PRODUCTION: [u8; 18] =
    [0, 1, 0, 14, 0, 1, 0, 0, 0, 8, b'D', b'E', b'1', b'2', b'4', b'5', b'6', b'7'];

/// Asks a scale with a store for `content`, and tells what comes back and what it did.
fn ask(content: &Value) -> (Status, Value, Vec<agent::Output>) {
    let mapping = Mapping::default();
    let operation = match operation(&mapping, content, NOW) {
        Ok(operation) => operation,
        Err(error) => return (error.status(), json!(error.to_string()), Vec::new()),
    };
    let mut library = Library::standard();
    let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
    let mut agent = Agent::new(agent::AgentSettings {
        system_id: DEVICE,
        configurations: vec![(SCALE.config, SCALE.octets().unwrap())],
        attributes: vec![
            (attribute::MODEL, b"\0\x0aFreescale \0\x0cMedical CFV1".to_vec()),
            (attribute::PRODUCTION, PRODUCTION.to_vec()),
            (attribute::BATTERY, vec![0, 80]),
            (attribute::SPECIALISATIONS, vec![0, 1, 0, 4, 0x10, 0x0F, 0, 1]),
        ],
        segments: vec![PmSegment {
            store: Handle(256),
            instance: 16,
            attributes: vec![(attribute::SEGMENT_USAGE, vec![0, 0, 0, 25])],
            entry_len: 0,
            entries: Vec::new(),
        }],
        scanners: vec![Handle(30)],
        clock: None,
    });
    let now = Duration::ZERO;
    manager.handle(now, Input::Connected, &mut library);
    agent.handle(now, agent::Input::Connected);
    agent.handle(now, agent::Input::Associate);
    let mut pending = Some(operation);
    let mut told = Vec::new();
    let mut answer = None;
    for _ in 0..10 {
        while let Some(output) = agent.poll_output() {
            match output {
                agent::Output::Send(octets) => {
                    manager.handle(now, Input::Apdu(&octets), &mut library);
                }
                other => told.push(other),
            }
        }
        while let Some(output) = manager.poll_output() {
            match output {
                Output::Send(octets) => agent.handle(now, agent::Input::Apdu(&octets)),
                Output::Configured { .. } => {
                    let operation = pending.take().unwrap();
                    manager.handle(now, Input::Ask(RequestId(1), operation), &mut library);
                }
                Output::Answer(_, outcome) => answer = Some(outcome),
                _ => {}
            }
        }
    }
    let (status, content) = result(&mapping, &answer.unwrap());
    told.retain(|output| *output != agent::Output::Operating);
    (status, serde_json::from_str(&content).unwrap(), told)
}

#[test]
fn a_device_is_read() {
    let (status, content, _) = ask(&json!({"command": "read"}));
    assert_eq!(status, Status::Ok);
    assert_eq!(
        content,
        json!({"status": 2000, "handle": 0, "attributes": {
            "systemId": "5343414c45303031",
            "configuration": 1500,
            "model": "Freescale Medical CFV1",
            "production": {"serialNumber": "DE124567"},
            "battery": 80,
            "specialisations": [4111],
        }})
    );
    let (_, content, _) = ask(&json!("battery"));
    assert_eq!(content["attributes"], json!({"battery": 80}));
}

#[test]
fn a_clock_is_set() {
    let cases = [
        (json!({"command": "set-clock"}), [2026_u16, 13]),
        (json!({"command": "set-clock", "time": "2027-11-21T14:00:00"}), [2027, 14]),
    ];
    for (content, [year, hour]) in cases {
        let (status, content, told) = ask(&content);
        assert_eq!((status, content), (Status::Ok, json!({"status": 2000, "handle": 0})));
        let hour = u8::try_from(hour).unwrap();
        let time = AbsoluteTime::new(year, [11, 21, hour, 0, 0, 0]).unwrap();
        assert_eq!(told, [agent::Output::ClockSet(time)]);
    }
}

#[test]
fn stores_and_scanners_are_handled() {
    let (_, content, _) = ask(&json!({"command": "describe-store", "handle": 256}));
    assert_eq!(content["segments"], json!([{"segment": 16, "entries": 25}]));
    let (_, content, _) =
        ask(&json!({"command": "transfer-segment", "handle": 256, "segment": 16}));
    assert_eq!((&content["segment"], &content["result"]), (&json!(16), &json!(0)));
    let (status, _, told) =
        ask(&json!({"command": "clear-store", "handle": 256, "segments": [16]}));
    assert_eq!((status, &told[..]), (Status::Ok, &[agent::Output::Cleared(Handle(256))][..]));
    let (_, content, told) =
        ask(&json!({"command": "enable-scanner", "handle": 30, "enabled": true}));
    assert_eq!(content["attributes"], json!({"operationalState": 1}));
    assert_eq!(told, [agent::Output::ScannerSet(Handle(30), true)]);
}

#[test]
fn what_is_wrong_is_told() {
    let cases = [
        (json!({"command": "dance"}), Status::NotImplemented, "no command \"dance\""),
        (
            json!(7),
            Status::BadRequest,
            "a command is an object with the member \"command\", or its name alone",
        ),
        (json!("clear-store"), Status::InsufficientArguments, "argument \"handle\" is missing"),
        (
            json!({"command": "clear-store", "handle": 65_536}),
            Status::InvalidArguments,
            "argument \"handle\" is not a whole number up to 65535",
        ),
        (
            json!({"command": "set-clock", "time": "now"}),
            Status::InvalidArguments,
            "argument \"time\" is not a time like 2026-11-21T13:00:00",
        ),
        (
            json!({"command": "enable-scanner", "handle": 1, "enabled": 1}),
            Status::InvalidArguments,
            "argument \"enabled\" is not true or false",
        ),
    ];
    for (content, status, text) in cases {
        assert_eq!(ask(&content).0, status, "{content}");
        assert_eq!(ask(&content).1, json!(text));
    }
    let (status, content, _) = ask(&json!({"command": "clear-store", "handle": 9}));
    assert_eq!(status, Status::OperationDeniedByRemoteEntity);
    assert_eq!(content["error"], "the device answered error 1");
}

#[test]
fn a_device_that_is_away_is_not_reachable() {
    let away = Err(OperationFailure::Away);
    let (status, content) = result(&Mapping::default(), &away);
    assert_eq!(status, Status::TargetNotReachable);
    assert_eq!(content, r#"{"status":5103,"error":"the device is away"}"#);
    let failed = Err(OperationFailure::Failed(ErrorCode::NOT_ALLOWED));
    assert_eq!(result(&Mapping::default(), &failed).0, Status::OperationDeniedByRemoteEntity);
}

/// A request waits as long as its originator allows, and no longer.
#[test]
fn requests_wait_for_a_device() {
    let second = Duration::from_secs;
    let mut courier = Courier::new();
    let post = |courier: &mut Courier, now, number, until| {
        courier.post(now, DEVICE, RequestId(number), Operation::read_device(), until)
    };
    assert_eq!(post(&mut courier, second(0), 1, None), Err(OperationFailure::Away));
    assert_eq!(post(&mut courier, second(9), 1, Some(second(9))), Err(OperationFailure::Away));
    assert_eq!(post(&mut courier, second(0), 2, Some(second(10))), Ok(()));
    assert_eq!(post(&mut courier, second(0), 3, Some(second(20))), Ok(()));
    assert_eq!(courier.poll_timeout(), Some(second(10)));
    assert_eq!(courier.expired(second(10)), [RequestId(2)]);
    assert_eq!(courier.collect(SystemId([9; 8])), []);
    assert_eq!(courier.collect(DEVICE), [(RequestId(3), Operation::read_device())]);
    assert_eq!(courier.poll_timeout(), None);
    for number in 0..WAITING_FOR_ONE_MAX as u64 {
        assert_eq!(post(&mut courier, second(0), number, Some(second(1))), Ok(()));
    }
    let full = Err(OperationFailure::Busy(WAITING_FOR_ONE_MAX));
    assert_eq!(post(&mut courier, second(0), 99, Some(second(1))), full);
    assert_eq!(courier.full(), 1);
}

#[test]
fn a_result_stands_under_the_commands_name() {
    let mapping = Mapping::default();
    let configuration = SCALE.configuration().unwrap();
    assert_eq!(configuration.id(), ConfigId(1500));
    let device = Device::new(&mapping, "cse-mn", DEVICE, 1, &configuration);
    let answer = OperationResult::Attributes {
        handle: Handle(0),
        values: vec![(attribute::UNIT, vec![1, 2])],
    };
    let (_, content) = result(&mapping, &Ok(answer));
    let request = result_request(&device, "cin-17", &content);
    assert_eq!(request.to, "cse-mn/phd-5343414c45303031/results");
    let content: Value = serde_json::from_str(request.content.as_ref().unwrap()).unwrap();
    assert_eq!(
        content,
        json!({"m2m:cin": {"rn": "cin-17", "cnf": "application/json:0",
        "con": {"status": 2000, "handle": 0, "attributes": {"0996": "0102"}}}})
    );
}
