//! Simulated devices through a manager and the mapping into a real CSE.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_health::code::{Handle, SystemId, action, attribute};
use gatewright_health::configuration::{Configuration, Library};
use gatewright_health::convert::{MeasurementStatus, Observation, Timestamps, observe};
use gatewright_health::decimal::Number;
use gatewright_health::manager::{self, Manager, ManagerSettings, RecordId, ReportRecord};
use gatewright_health::operation::OperationResult;
use gatewright_health::report::Report;
use gatewright_health::simulate::{self, SimulatedDevice as Simulated, SimulationPlan};
use gatewright_health::specialisation::{self, Specialisation};
use gatewright_health::time::AbsoluteTime;
use gatewright_interwork::session::Unread;
use gatewright_interwork::{Device, DeviceAssociation, Instances, Mapping, ReportArrival};
use gatewright_onem2m::{
    Cse, CseConfig, CseType, Input, Operation, Output, Request, Response, Timestamp, Token,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const DEVICE: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);
/// 2026-11-21T13:00:00Z.
const NOW: Duration = Timestamp::from_micros(1_795_266_000_000_000).since_epoch();

/// A CSE whose batches are stored at once.
struct Store(Cse, u64);

impl Store {
    fn new() -> Self {
        let config = CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
        let (cse, _) = Cse::open(config, NOW, [], 1).unwrap();
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
fn records(kind: &'static Specialisation, seconds: u32) -> (Vec<ReportRecord>, Arc<Configuration>) {
    let mut library = Library::standard();
    let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
    let mut device = Simulated::new(SimulationPlan::new(kind, DEVICE, 7));
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
    configuration: &Configuration,
    records: &[ReportRecord],
) -> Vec<Request> {
    let mut instances = Instances::new();
    let mut requests = Vec::new();
    for record in records {
        let Some((handle, _, Report::Scan(scan))) = record.report() else { panic!() };
        let arrival = ReportArrival { report: record.number, received: Timestamp::new(NOW) };
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
                assert!(response.fate().is_stored(), "{response:?}");
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
            assert!(response.fate().is_stored());
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

/// A test association's readings say so, whatever the device says; a time that is no date leaves
/// its octets, and an AE's kind follows what the device says of itself.
#[test]
fn what_is_odd_is_told() {
    let mapping = Mapping::default();
    let (records, configuration) = records(&specialisation::ECG, 2);
    let device = Device::new(&mapping, "cse-mn", DEVICE, 3, &configuration);
    let received = Timestamp::new(NOW);
    let mut seen = Vec::new();
    let mut session = DeviceAssociation::new(device.clone(), Arc::clone(&configuration)).test(true);
    let sink = |instance: gatewright_interwork::instance::Instance<'_>| {
        seen.push(serde_json::from_str::<Value>(instance.content).unwrap());
    };
    session.read(&mapping, &records[0], received, sink).unwrap();
    let con = &seen[0]["m2m:cin"]["con"];
    assert_eq!(con["status"], json!(["test-data"]));
    let samples = json!({ "period": 0.01, "count": 20, "bits": 16, "significantBits": 16,
        "flags": "0000", "low": "-2", "high": "2", "lowSample": 0, "highSample": 800 });
    assert_eq!((&con["samples"], &con["unit"]), (&samples, &"mV".into()));

    let place = &device.places()[1];
    let observation = Observation {
        handle: place.handle,
        component: 0,
        person: None,
        kind: place.kind,
        value: gatewright_health::convert::Value::Number(Number::finite(72, 0)),
        unit: place.unit,
        time: Timestamps { absolute: Some(AbsoluteTime([0xFF; 8])), ..Timestamps::default() },
        active_period: None,
        status: MeasurementStatus::default(),
        source: None,
        waveform: None,
    };
    let mut instances = Instances::new();
    instances.start(ReportArrival { report: 1, received });
    let made = instances.make(&mapping, &device, &observation).unwrap();
    let content: Value = serde_json::from_str(made.content).unwrap();
    let con = &content["m2m:cin"]["con"];
    assert_eq!((con.get("time"), &con["timeOctets"]), (None, &"ffffffffffffffff".into()));

    // An extended configuration says nothing of the kind; the list of specialisations does.
    assert_eq!((device.kind(), device.is_kind_known()), ("device", false));
    let mut device = device;
    device.hear(&[(attribute::SPECIALISATIONS, vec![0, 1, 0, 4, 0x10, 0x0F, 0, 1])]);
    assert_eq!((device.kind(), device.is_kind_known()), ("scale", true));
    let change = device.follow(&["system-id:1", "kind:device", "ward-7"]).unwrap();
    let content: Value = serde_json::from_str(change.content.as_deref().unwrap()).unwrap();
    let expected = json!({ "apn": "scale", "lbl": ["system-id:1", "ward-7", "kind:scale"] });
    assert_eq!(content["m2m:ae"], expected);
    assert_eq!(device.follow(&["kind:scale"]), None);
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

/// A record of a pen's store is read once the store has described its segment; read again, it
/// gives the same names.
#[test]
fn a_stores_entries_become_readings() {
    let hex = |text: &str| -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| octet(pair).unwrap()).collect()
    };
    let configuration = hex("400A 0003 006C
        0006 0002 0004 0020 092F 0004 00823401 0A46 0002 F040 0996 0002 1560
                            0A55 0008 0001 0004 0A56 0004
        0005 0003 0003 001A 092F 0004 00823402 0A46 0002 F040 0A55 0008 0001 0004 0A66 0002
        0006 0004 0003 001A 092F 0004 0082F000 0A46 0002 F040 0A55 0008 0001 0004 0A66 0002");
    let configuration = Arc::new(Configuration::from_octets(&configuration).unwrap());
    let apdu = hex("E700 0038 0036 8001 0101 0030 0100 00590A36 0D21 0026
        0010 00000000 00000002 8000 0018
        0053030BFF00001408000000 004FC696FF00001908000000");
    let record = ReportRecord { id: RecordId(1), number: 4, confirmed: true, apdu };
    let mapping = Mapping::default();
    let device = Device::new(&mapping, "cse-mn", DEVICE, 3, &configuration);
    let mut session = DeviceAssociation::new(device, configuration);
    let read = |session: &mut DeviceAssociation| {
        let mut read = Vec::new();
        let tally = session.read(&mapping, &record, Timestamp::new(NOW), |instance| {
            read.push((instance.name.to_string(), instance.content.to_owned()));
        });
        (tally, read)
    };
    let missing = Unread::NotDescribed { store: Handle(256), segment: 16 };
    assert_eq!(read(&mut session), (Err(missing), Vec::new()));
    let info = hex("0001 0040 0010 0001 003A 0A4E 0036 4000 0003 0030
            0006 0082 3401 0002 0001 0004 0A56 0004
            0005 0082 3402 0003 0001 0004 0A66 0002
            0006 0082 F000 0004 0001 0004 0A66 0002");
    let answer =
        OperationResult::Action { handle: Handle(256), action: action::SEGMENT_INFO, info };
    assert_eq!(session.learn(&answer), 1);
    let (tally, readings) = read(&mut session);
    assert_eq!(tally.unwrap().observations, 6);
    let head = DEVICE.to_string();
    let doses: Vec<_> = readings.iter().filter(|(name, _)| name.contains("-4-2")).collect();
    assert_eq!(doses[0].0, format!("{head}-3-4-2"));
    assert_eq!(doses[1].0, format!("{head}-3-4-2-1"));
    assert!(doses[0].1.contains(r#""value":"2.0""#) && doses[1].1.contains(r#""value":"2.5""#));
    assert!(doses[0].1.contains(r#""ticks":5440267"#), "{}", doses[0].1);
    assert_eq!(read(&mut session).1, readings);
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
            let arrival = ReportArrival { report: record.number, received: Timestamp::new(NOW) };
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
                (&primitive.to, &primitive.from, &primitive.id, primitive.resource_type),
                (&request.to, &request.from, &request.id, request.resource_type)
            );
            assert_eq!(json(primitive), json(request));
        }
    }
}
