//! Tests of the latest readings: what the table has is what the general way would have stored.

use super::*;
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::manager::{RecordId, ReportRecord};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::{OXIMETER, SCALE, Specialisation};
use gatewright_interwork::{Device, DeviceAssociation, Mapping, ReportPlan};
use gatewright_onem2m::Serialisation;
use gatewright_tables::records::{Entity, EntityPlan, EntityReports, LatestReport, Sender};
use gatewright_tables::{Capacities, TableWriter, TablesWriter};
use serde_json::Value;
use std::net::Ipv4Addr;

const SYSTEM: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);
const EPOCH: u64 = 7;
const SERIAL: u32 = 5;

/// A device with one plan in the table.
struct Planned {
    device: Device,
    mapping: Mapping,
    kind: &'static Specialisation,
    readings: LatestReadings,
    writers: EntityWriters,
    reports: TableWriter<EntityReports>,
}

/// An unconfirmed report with these octets of objects.
fn report(observations: &[(u16, &[u8])]) -> Vec<u8> {
    let all: Vec<FixedObservation<'_>> = observations
        .iter()
        .map(|(handle, octets)| FixedObservation { handle: Handle(*handle), octets })
        .collect();
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 9, &all).unwrap();
    let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
    let message = DataMessage::EventReport(EventReport { handle, time: 1, event, info: &info });
    DataApdu { invoke_id: InvokeId(3), message }.encode().unwrap()
}

impl Planned {
    fn new(kind: &'static Specialisation, like: &[u8], serialisation: Serialisation) -> Self {
        let mut tables = TablesWriter::in_memory(&Capacities::default(), [1, 2]).unwrap();
        let mut writers = tables.entities.take().unwrap();
        let data = tables.data_entities();
        let (mapping, configuration) = (Mapping::default(), kind.configuration().unwrap());
        let device = Device::new(&mapping, "cse-gw", SYSTEM, EPOCH, &configuration);
        let plan = ReportPlan::of_report(&mapping, &device, &configuration, like, "4").unwrap();
        let moved = |request: Request| {
            let to = format!("/id-in/{}", request.to.replacen("cse-gw", "cse-in", 1));
            Request { to, ..request }
        };
        let plan = CoapPlan::new(&plan, &device, serialisation, moved).unwrap();
        let plan = EntityPlan::new(SERIAL, &plan.octets()).unwrap();
        let place = writers.plans.insert(&plan).unwrap();
        let sender = Sender { address: Ipv4Addr::LOCALHOST.into(), port: 1 };
        let entity = Entity { system_id: SYSTEM.0, plan: (place, SERIAL), ..Entity::default() };
        writers.entities.set(&sender, &entity).unwrap();
        let readings = LatestReadings::new("cse-gw", "phd-", Some(data.readers.clone()));
        Self { device, mapping, kind, readings, writers, reports: data.reports() }
    }

    /// Notes a report as the data plane does.
    fn note(&mut self, report: &[u8], received: u64, is_timed: bool) {
        let latest = LatestReport::new(report, is_timed);
        let reports = EntityReports { serial: SERIAL, reports: 1, last: 21, received, latest };
        self.reports.set(0, &reports).unwrap();
    }

    fn take(&self, container: &str) -> Option<Request> {
        self.readings.take_latest(&format!("{}/{container}", self.device.address()))
    }

    /// The creations that the general way makes of a report.
    fn general(&self, report: &[u8], received: u64) -> Vec<Request> {
        let configuration = std::sync::Arc::new(self.kind.configuration().unwrap());
        let mut association = DeviceAssociation::new(self.device.clone(), configuration);
        let apdu = report.to_vec();
        let record = ReportRecord { id: RecordId(1), number: 21, confirmed: false, apdu };
        let received = Timestamp::from_micros(received);
        let mut all = Vec::new();
        association.read(&self.mapping, &record, received, |it| all.push(it.request())).unwrap();
        all
    }
}

/// Compares content by its values.
fn assert_same(one: &Request, other: &Request) {
    let value = |it: &Request| -> Value {
        serde_json::from_str(it.content.as_deref().unwrap_or_default()).unwrap()
    };
    assert_eq!(value(one), value(other));
    assert_eq!(
        Request { content: None, ..one.clone() },
        Request { content: None, ..other.clone() }
    );
}

const PULSE: (u16, &[u8]) = (10, &[0xF2, 0xDA]);
const SATURATION: (u16, &[u8]) = (1, &[0xF3, 0xCC]);

#[test]
fn a_report_in_the_table_becomes_the_readings_of_the_general_way() {
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let octets = report(&[SATURATION, PULSE]);
        let mut planned = Planned::new(&OXIMETER, &octets, serialisation);
        let places: Vec<String> =
            planned.device.places().iter().map(|place| place.name.clone()).collect();
        assert_eq!(planned.take(&places[0]), None, "nothing was sent on yet");
        planned.note(&octets, 1_795_266_000_000_007, false);
        let general = planned.general(&octets, 1_795_266_000_000_007);
        assert_eq!(general.len(), 2);
        for expected in &general {
            let container = expected.to.rsplit_once('/').unwrap().1;
            assert_same(&planned.take(container).unwrap(), expected);
            assert_eq!(planned.take(container), None, "it is given once");
        }
        planned.note(&octets, 1_795_266_000_000_008, false);
        let container = general[0].to.rsplit_once('/').unwrap().1;
        assert!(planned.take(container).is_some(), "another report");
        assert_eq!(planned.take("other"), None);
        for elsewhere in ["cse-gw", "cse-gw/a/b", "x/phd-1/b", "cse-gw/phd-0022/c", "", "/"] {
            assert_eq!(planned.readings.take_latest(elsewhere), None, "{elsewhere}");
        }
        // The plan has gone: nobody knows what the report says.
        planned.note(&octets, 1_795_266_000_000_009, false);
        planned.writers.plans.remove(0);
        assert_eq!(planned.take(container), None);
    }
}

#[test]
fn a_reading_with_the_time_of_its_device_is_named_by_it_if_the_data_plane_did() {
    let weight = [0xFF, 0x00, 0x1C, 0x84, 0x20, 0x26, 0x11, 0x28, 0x14, 0x30, 0x00, 0x00];
    let octets = report(&[(1, &weight)]);
    let mut planned = Planned::new(&SCALE, &octets, Serialisation::Cbor);
    planned.note(&octets, 1_795_266_000_000_007, true);
    let [expected] = &planned.general(&octets, 1_795_266_000_000_007)[..] else {
        panic!("a scale has one reading")
    };
    let container = expected.to.rsplit_once('/').unwrap().1;
    assert_same(&planned.take(container).unwrap(), expected);
    planned.note(&octets, 1_795_266_000_000_008, false);
    let by_number = planned.take(container).unwrap();
    assert_eq!(by_number.id, format!("{SYSTEM}-{EPOCH}-21-1"));
}

#[test]
fn the_later_one_of_both_planes_counts() {
    let octets = report(&[SATURATION, PULSE]);
    let mut planned = Planned::new(&OXIMETER, &octets, Serialisation::Cbor);
    let entity = planned.device.address().to_owned();
    let of_control = planned.general(&octets, 1_000);
    let container = of_control[0].to.rsplit_once('/').unwrap().1.to_owned();
    planned.readings.note(&entity, 1_000, &of_control);
    assert_eq!(planned.take(&container).as_ref(), Some(&of_control[0]));
    planned.note(&octets, 2_000, false);
    assert_ne!(planned.take(&container).unwrap().content, of_control[0].content);
    planned.readings.note(&entity, 3_000, &of_control);
    assert_eq!(planned.take(&container).as_ref(), Some(&of_control[0]));
    // One that the table cannot hold is later than what the control plane has sent.
    planned.note(&[0; 193], 4_000, false);
    assert_eq!(planned.take(&container), None);
    planned.readings.note(&entity, 5_000, &of_control);
    planned.readings.forget(&entity);
    assert_eq!(planned.take(&container), None);
}

#[test]
fn what_is_remembered_is_bounded() {
    let readings = LatestReadings::new("cse-gw", "phd-", None);
    let creation = |to: String| Request::new(gatewright_onem2m::Operation::Create, to, "C", "1");
    for device in 0..=DEVICES_MAX {
        readings.note(&format!("cse-gw/phd-{device}"), 1, &[creation(format!("{device}/a"))]);
    }
    assert_eq!(readings.known().sent.len(), DEVICES_MAX);
    let many: Vec<_> = (0..100).map(|number| creation(format!("0/{number}"))).collect();
    readings.note("cse-gw/phd-0", 2, &many);
    assert_eq!(readings.known().sent["cse-gw/phd-0"].len(), CONTAINERS_MAX);
    readings.forget_all();
    assert!(readings.known().sent.is_empty());
}
