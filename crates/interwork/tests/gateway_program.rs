//! The same device through the health gateway's own mapping and through a program of the gateway
//! language: what it measured must say the same at the CSE.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_health::code::SystemId;
use gatewright_health::configuration::Library;
use gatewright_health::convert::observe;
use gatewright_health::manager::{self, Manager, ManagerSettings};
use gatewright_health::report::Report;
use gatewright_health::simulate::{self, SimulatedDevice as Simulated, SimulationPlan};
use gatewright_health::specialisation;
use gatewright_interwork::{Device, Instances, Mapping, ReportArrival};
use gatewright_onem2m::Timestamp;
use gatewright_translate::machine::{ConnId, Machine, MachineConfig, Output};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

const DEVICE: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);

/// Where a reading is created, and what it says.
type Reading = (String, Value);

/// What the device says in `seconds`, and what the mapping makes of it.
fn mapped(seconds: u32) -> (Vec<Vec<u8>>, Vec<Reading>) {
    let mut library = Library::standard();
    let mut manager = Manager::new(ManagerSettings::new(SystemId(*b"GATEWAY1")));
    let mut device = Simulated::new(SimulationPlan::new(&specialisation::OXIMETER, DEVICE, 7));
    let (mut said, mut readings) = (Vec::new(), Vec::new());
    manager.handle(Duration::ZERO, manager::Input::Connected, &mut library);
    device.handle(Duration::ZERO, simulate::Input::Connected);
    for tick in 0..seconds * 10 {
        let now = Duration::from_millis(100) * tick;
        device.handle(now, simulate::Input::Tick);
        let mut moved = true;
        while moved {
            moved = false;
            while let Some(output) = device.poll_output() {
                moved = true;
                if let simulate::Output::Send(octets) = output {
                    manager.handle(now, manager::Input::Apdu(&octets), &mut library);
                    said.push(octets.clone());
                }
            }
            while let Some(output) = manager.poll_output() {
                moved = true;
                match output {
                    manager::Output::Send(octets) => {
                        device.handle(now, simulate::Input::Apdu(&octets));
                    }
                    manager::Output::Report(record) => {
                        manager.handle(now, manager::Input::Committed(record.id), &mut library);
                        readings.extend(instances(&manager, &record));
                    }
                    _ => {}
                }
            }
        }
    }
    (said, readings)
}

fn instances(manager: &Manager, record: &manager::ReportRecord) -> Vec<Reading> {
    let mapping = Mapping::default();
    let configuration = manager.configuration().unwrap();
    let device = Device::new(&mapping, "cse-gw", DEVICE, 3, configuration);
    let Some((handle, _, Report::Scan(scan))) = record.report() else { return Vec::new() };
    let mut instances = Instances::new();
    instances.start(ReportArrival { report: record.number, received: Timestamp::from_micros(0) });
    let mut readings = Vec::new();
    observe(configuration, handle, &scan, |observation| {
        let instance = instances.make(&mapping, &device, observation).unwrap();
        let mut content: Value = serde_json::from_str(instance.content).unwrap();
        let mut content = content["m2m:cin"]["con"].take();
        // When it came is another thing than what it says.
        content.as_object_mut().unwrap().remove("received");
        readings.push((format!("/{}", instance.container), content));
    });
    readings
}

/// The program's machine, the device at one side of it and a CSE that stores everything at the other.
struct Gateway {
    machine: Machine,
    device: ConnId,
    cse: Option<ConnId>,
    /// What the device was answered.
    answers: Vec<u8>,
    requests: Vec<u8>,
    readings: Vec<Reading>,
}

impl Gateway {
    fn new() -> Self {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
        let text = |name: &str| std::fs::read_to_string(examples.join(name));
        let name = "oximeter_onem2m.gate";
        let mut sources = Sources::of(name, text(name).unwrap());
        let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), |_, import| {
            Some((import.to_owned(), text(import).ok()?))
        });
        let program = Arc::new(compiled.program.unwrap());
        let mut machine =
            Machine::new(Duration::ZERO, &program, &MachineConfig::default()).unwrap();
        let role = machine.endpoints()[0].role;
        let device = machine.accepted(Duration::ZERO, role, SocketAddr::from(([127, 0, 0, 1], 9)));
        let (answers, requests, readings) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, device, cse: None, answers, requests, readings }
    }

    /// The device says something; the octets of the answer.
    fn say(&mut self, octets: &[u8]) -> Vec<u8> {
        self.machine.received(Duration::ZERO, self.device, octets);
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Connect { conn, .. } => {
                    self.cse = Some(conn);
                    self.machine.connected(Duration::ZERO, conn);
                }
                Output::Write { conn } => {
                    let octets = self.machine.unsent(conn).to_vec();
                    self.machine.sent(Duration::ZERO, conn, octets.len());
                    if conn == self.device {
                        self.answers.extend(octets);
                    } else {
                        self.requests.extend(octets);
                        self.store();
                    }
                }
                _ => {}
            }
        }
        std::mem::take(&mut self.answers)
    }

    /// The CSE takes a request that is there whole.
    fn store(&mut self) {
        let text = String::from_utf8(self.requests.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return };
        let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let mut field = |wanted: &str| fields.find(|(name, _)| *name == wanted).unwrap().1;
        let (kind, length) = (field("Content-Type"), field("Content-Length"));
        if body.len() < length.parse().unwrap() {
            return;
        }
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let mut content: Value = serde_json::from_str(body).unwrap();
        if kind == "application/json;ty=4" {
            self.readings.push((target, content["m2m:cin"]["con"].take()));
        }
        self.requests.clear();
        let stored = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nfine";
        self.machine.received(Duration::ZERO, self.cse.unwrap(), stored);
    }
}

#[test]
fn a_program_says_of_an_oximeter_what_the_mapping_says() {
    let (said, wanted) = mapped(30);
    assert!(wanted.len() >= 40, "{} readings", wanted.len());
    let mut gateway = Gateway::new();
    for apdu in &said {
        let before = gateway.readings.len();
        let answer = gateway.say(apdu);
        // What is measured is stored before it is answered.
        let report = apdu.starts_with(&[0xe7, 0]);
        assert_eq!(gateway.readings.len() > before, report);
        assert!(answer.starts_with(if report { &[0xe7, 0] } else { &[0xe3, 0] }), "{answer:x?}");
    }
    assert_eq!(gateway.readings, wanted);
}
