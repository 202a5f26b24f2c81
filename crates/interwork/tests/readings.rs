//! Simulated devices through a manager and the mapping into a real CSE.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::code::SystemId;
use gatewright_health::configuration::Library;
use gatewright_health::convert::observe;
use gatewright_health::manager::{self, Manager, Record, Settings};
use gatewright_health::report::Report;
use gatewright_health::simulate::{self, Device as Simulated, Plan};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_interwork::{Arrival, Device, Instances, Mapping, Outcome, outcome};
use gatewright_onem2m::{
    Config, Cse, CseType, Input, Operation, Output, Request, Response, Timestamp, Token,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

const DEVICE: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);
/// 2026-11-21T13:00:00Z.
const NOW: Duration = Timestamp::from_micros(1_795_266_000_000_000).since_epoch();

/// A CSE whose batches are stored at once.
struct Store(Cse, u64);

impl Store {
    fn new() -> Self {
        let config = Config::new(CseType::Middle, "/id-mn", "cse-mn");
        let (cse, _) = Cse::open(config, NOW, [], 1);
        Self(cse, 0)
    }

    fn ask(&mut self, request: Request) -> Response {
        self.1 += 1;
        let token = Token(self.1);
        self.0.handle(NOW, Input::Request { token, request });
        loop {
            match self.0.poll_output().unwrap() {
                Output::Store(batch) => self.0.handle(NOW, Input::Committed(batch.number)),
                Output::Respond { token: asked, response } if asked == token => return response,
                _ => {}
            }
        }
    }

    fn retrieve(&mut self, to: &str, from: &str) -> Value {
        let id = format!("get-{}", self.1);
        let response = self.ask(Request::new(Operation::Retrieve, to, from, id));
        assert!(response.status.is_success(), "{to}: {response:?}");
        serde_json::from_str(&response.content.unwrap()).unwrap()
    }
}

/// The records that a device makes in `seconds`, and its configuration.
fn records(
    kind: &'static Specialisation,
    seconds: u32,
) -> (Vec<Record>, Arc<gatewright_health::configuration::Configuration>) {
    let mut library = Library::standard();
    let mut manager = Manager::new(Settings::new(SystemId(*b"GATEWAY1")));
    let mut device = Simulated::new(Plan::new(kind, DEVICE, 7));
    let mut records = Vec::new();
    manager.handle(Duration::ZERO, manager::Input::Connected, &mut library);
    device.handle(Duration::ZERO, simulate::Input::Connected);
    for tick in 0..seconds * 10 {
        let now = Duration::from_millis(100) * tick;
        device.handle(now, simulate::Input::Tick);
        let mut quiet = false;
        while !quiet {
            quiet = true;
            while let Some(output) = device.poll_output() {
                quiet = false;
                if let simulate::Output::Send(octets) = output {
                    manager.handle(now, manager::Input::Apdu(&octets), &mut library);
                }
            }
            while let Some(output) = manager.poll_output() {
                quiet = false;
                match output {
                    manager::Output::Send(octets) => {
                        device.handle(now, simulate::Input::Apdu(&octets));
                    }
                    manager::Output::Report(record) => {
                        manager.handle(now, manager::Input::Committed(record.id), &mut library);
                        records.push(record);
                    }
                    _ => {}
                }
            }
        }
    }
    let configuration = Arc::clone(manager.configuration().unwrap());
    (records, configuration)
}

/// The requests that create the readings of `records`.
fn creations(
    mapping: &Mapping,
    device: &Device,
    configuration: &gatewright_health::configuration::Configuration,
    records: &[Record],
) -> Vec<Request> {
    let mut instances = Instances::new();
    let mut requests = Vec::new();
    for record in records {
        let Some((handle, _, Report::Scan(scan))) = record.report() else { panic!() };
        let arrival = Arrival { report: record.number, received: Timestamp::new(NOW) };
        instances.start(arrival);
        observe(configuration, handle, &scan, |observation| {
            requests.push(instances.make(mapping, device, observation).unwrap().request());
        });
    }
    requests
}

/// Every kind of device: registered, its readings created once, and once more without effect.
#[test]
fn every_reading_is_stored_once() {
    let mapping = Mapping::default();
    for kind in specialisation::ALL {
        let (records, configuration) = records(kind, 5);
        let device = Device::new(&mapping, "cse-mn", DEVICE, 3, &configuration);
        let mut store = Store::new();
        for again in [false, true] {
            for request in device.registration(&mapping) {
                let request = Request { id: format!("{}-{again}", request.id), ..request };
                let response = store.ask(request);
                assert_eq!(outcome(response.status), Outcome::Stored, "{response:?}");
            }
        }
        let requests = creations(&mapping, &device, &configuration, &records);
        let names: BTreeSet<_> = requests.iter().map(|request| request.id.clone()).collect();
        assert_eq!(names.len(), requests.len(), "every name is its reading's own");
        let before = store.0.resources();
        for request in &requests {
            let response = store.ask(request.clone());
            assert_eq!(response.status.number(), 2001, "{request:?} {response:?}");
        }
        assert_eq!(store.0.resources(), before + requests.len());
        for request in &requests {
            // Another request with the same name: a repetition that the CSE does not recognise.
            let request = Request { id: format!("{}-again", request.id), ..request.clone() };
            let response = store.ask(request);
            assert_eq!(response.status.number(), 4105, "{response:?}");
            assert_eq!(outcome(response.status), Outcome::Stored);
        }
        assert_eq!(store.0.resources(), before + requests.len(), "{}", kind.name);
    }
}

#[test]
fn an_instance_says_everything() {
    let mapping = Mapping::default();
    let (records, configuration) = records(&specialisation::THERMOMETER, 3);
    let device = Device::new(&mapping, "cse-mn", DEVICE, 3, &configuration);
    let mut store = Store::new();
    for request in device.registration(&mapping) {
        store.ask(request);
    }
    let requests = creations(&mapping, &device, &configuration, &records);
    store.ask(requests[0].clone());
    let from = device.originator();
    let latest = store.retrieve("cse-mn/phd-002209225cfe4d32/temperature/la", from);
    let instance = &latest["m2m:cin"];
    assert_eq!(instance["rn"], "002209225cfe4d32-3-1-1");
    let content = &instance["con"];
    let value = content["value"].as_str().unwrap();
    assert!(value.len() == 4 && value.starts_with("36."), "one place, as measured: {value}");
    let time = content["time"].as_str().unwrap();
    assert!(time.starts_with("2026-01-01T00:00:0"), "{time}");
    for (member, expected) in [
        ("unit", "Cel"),
        ("type", "2:19292"),
        ("name", "MDC_TEMP_BODY"),
        ("received", "20261121T130000,000000"),
    ] {
        assert_eq!(content[member], expected);
    }
    assert_eq!((&content["unitCode"], &content["report"]), (&6048.into(), &1.into()));
    let entity = store.retrieve("cse-mn/phd-002209225cfe4d32", from);
    assert_eq!(entity["m2m:ae"]["apn"], "thermometer");
    let container = store.retrieve("cse-mn/phd-002209225cfe4d32/temperature", from);
    let labels = container["m2m:cnt"]["lbl"].as_array().unwrap();
    assert!(labels.contains(&"mdc:2:19292".into()) && labels.contains(&"MDC_TEMP_BODY".into()));
}

/// Steps and distance share a code; a compound's values share a container.
#[test]
fn containers_are_told_apart() {
    let mapping = Mapping::default();
    let names = |kind: &Specialisation| {
        let configuration = kind.configuration().unwrap();
        let device = Device::new(&mapping, "cse-mn", DEVICE, 0, &configuration);
        device.places().iter().map(|place| place.name.clone()).collect::<Vec<_>>()
    };
    let activity = ["session", "distance", "activity-time", "intensity", "steps"];
    assert_eq!(names(&specialisation::ACTIVITY), activity);
    assert_eq!(names(&specialisation::BLOOD_PRESSURE), ["blood-pressure", "pulse-rate"]);
}

/// The whole primitive for direct delivery says what the request for the CSE says.
#[test]
fn a_primitive_is_the_same_request() {
    let mapping = Mapping::default();
    for kind in specialisation::ALL {
        let (records, configuration) = records(kind, 3);
        let device = Device::new(&mapping, "/id-in/cse-in", DEVICE, 3, &configuration);
        let expected = creations(&mapping, &device, &configuration, &records);
        let mut instances = Instances::new();
        let mut primitives = Vec::new();
        for record in &records {
            let Some((handle, _, Report::Scan(scan))) = record.report() else { panic!() };
            let arrival = Arrival { report: record.number, received: Timestamp::new(NOW) };
            instances.start(arrival);
            observe(&configuration, handle, &scan, |observation| {
                let text = instances.primitive(&mapping, &device, observation, "4").unwrap();
                primitives.push(Request::from_json(text.as_bytes()).unwrap());
            });
        }
        assert_eq!(primitives.len(), expected.len());
        for (primitive, request) in primitives.iter().zip(&expected) {
            let json = |request: &Request| -> Value {
                serde_json::from_str(request.content.as_ref().unwrap()).unwrap()
            };
            assert_eq!(
                (&primitive.to, &primitive.from, &primitive.id, primitive.kind),
                (&request.to, &request.from, &request.id, request.kind)
            );
            assert_eq!(json(primitive), json(request));
        }
    }
}
