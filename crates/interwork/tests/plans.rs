//! Plans of reports beside the general way: the same primitives, or none.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_health::apdu::Apdu;
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::configuration::Configuration;
use gatewright_health::convert::observe;
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::report::{FixedObservation, Report, encode_scan};
use gatewright_health::specialisation::{self, OXIMETER};
use gatewright_interwork::plan::Confirmation;
use gatewright_interwork::{Device, Instances, Mapping, ReportArrival, ReportPlan};
use gatewright_onem2m::Timestamp;
use proptest::prelude::*;

const DEVICE: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);
const BOTH: [Confirmation; 2] = [Confirmation::Confirmed, Confirmation::Unconfirmed];

fn report(handles: &[Handle], values: &[Vec<u8>], how: Confirmation) -> Vec<u8> {
    let all: Vec<_> = handles
        .iter()
        .zip(values)
        .map(|(handle, octets)| FixedObservation { handle: *handle, octets })
        .collect();
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 7, &all).unwrap();
    let event =
        EventReport { handle: Handle::MDS, time: 99, event: event::SCAN_FIXED, info: &info };
    let message = match how {
        Confirmation::Confirmed => DataMessage::ConfirmedEventReport(event),
        Confirmation::Unconfirmed => DataMessage::EventReport(event),
    };
    DataApdu { invoke_id: InvokeId(0x1234), message }.encode().unwrap()
}

/// The general way.
fn general(
    device: &Device,
    configuration: &Configuration,
    arrival: ReportArrival,
    octets: &[u8],
) -> Vec<String> {
    let (mapping, mut instances, mut all) = (Mapping::default(), Instances::new(), Vec::new());
    instances.start(arrival);
    if let Ok(Apdu::Prst(data)) = Apdu::decode(octets)
        && let DataMessage::ConfirmedEventReport(event) | DataMessage::EventReport(event) =
            data.message
        && let Ok(Report::Scan(scan)) = event.report()
    {
        observe(configuration, event.handle, &scan, |observation| {
            let made = instances.primitive(&mapping, device, observation, "4");
            all.extend(made.map(str::to_owned));
        });
    }
    all
}

fn planned(plan: &ReportPlan, arrival: ReportArrival, octets: &[u8]) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let done =
        plan.convert(&mut Instances::new(), arrival, octets, |text| all.push(text.to_owned()));
    assert!(done || all.is_empty(), "a report that goes the general way is not sent as well");
    done.then_some(all)
}

fn world(configuration: &Configuration) -> Device {
    Device::new(&Mapping::default(), "/id-in/cse-in", DEVICE, 7, configuration)
}

fn plan(
    device: &Device,
    configuration: &Configuration,
    handles: &[Handle],
    how: Confirmation,
) -> Option<ReportPlan> {
    ReportPlan::new(&Mapping::default(), device, configuration, (handles, how), "4")
}

/// Octets of an object's fixed observation.
fn width(configuration: &Configuration, handle: Handle) -> usize {
    configuration.object(handle).unwrap().map.iter().map(|it| usize::from(it.length)).sum()
}

/// The layouts that have a plan: each object of each standard configuration alone, and the
/// oximeter's two together.
fn layouts() -> Vec<(Configuration, Vec<Handle>)> {
    let mut all = Vec::new();
    for kind in specialisation::ALL {
        let Some(configuration) = kind.configuration() else { continue };
        let device = world(&configuration);
        let mut wanted: Vec<Vec<Handle>> =
            device.places().iter().map(|place| vec![place.handle]).collect();
        if kind.name == OXIMETER.name {
            wanted.push(vec![Handle(1), Handle(10)]);
        }
        for handles in wanted {
            if plan(&device, &configuration, &handles, Confirmation::Confirmed).is_some() {
                all.push((configuration.clone(), handles));
            }
        }
    }
    all
}

/// Values of ISO/IEEE 11073-10404's examples: 98 % and 72 per minute.
#[test]
fn an_oximeters_report_is_converted() {
    let configuration = OXIMETER.configuration().unwrap();
    let device = world(&configuration);
    let handles = [Handle(1), Handle(10)];
    let arrival =
        ReportArrival { report: 41, received: Timestamp::from_micros(1_795_266_000_000_007) };
    for how in BOTH {
        let plan = plan(&device, &configuration, &handles, how).unwrap();
        let octets = report(&handles, &[vec![0, 98], vec![0, 72]], how);
        let all = planned(&plan, arrival, &octets).unwrap();
        assert_eq!(all, general(&device, &configuration, arrival, &octets));
        let first: serde_json::Value = serde_json::from_str(&all[0]).unwrap();
        assert_eq!(first["pc"]["m2m:cin"]["con"]["value"], "98");
        let other = if how == BOTH[0] { BOTH[1] } else { BOTH[0] };
        let octets = report(&handles, &[vec![0, 98], vec![0, 72]], other);
        assert_eq!(planned(&plan, arrival, &octets), None, "another kind of event report");
    }
}

#[test]
fn what_is_no_plan_is_refused() {
    let configuration = OXIMETER.configuration().unwrap();
    let device = world(&configuration);
    for handles in [&[][..], &[Handle(1); 2], &[Handle(77)], &[Handle(1); 9]] {
        assert_eq!(plan(&device, &configuration, handles, Confirmation::Confirmed), None);
    }
}

#[test]
fn values_that_are_no_numbers_go_the_general_way() {
    let configuration = OXIMETER.configuration().unwrap();
    let device = world(&configuration);
    let plan = plan(&device, &configuration, &[Handle(1)], Confirmation::Confirmed).unwrap();
    // NaN, NRes, both infinities, reserved (ISO/IEEE 11073-20601, SFLOAT).
    for special in [[0x07, 0xFF], [0x08, 0], [0x07, 0xFE], [0x08, 2], [0x08, 1]] {
        let octets = report(&[Handle(1)], &[special.to_vec()], Confirmation::Confirmed);
        assert_eq!(planned(&plan, ReportArrival::default(), &octets), None);
    }
}

#[test]
fn truncated_and_longer_reports_go_the_general_way() {
    let configuration = OXIMETER.configuration().unwrap();
    let device = world(&configuration);
    let plan = plan(&device, &configuration, &[Handle(1)], Confirmation::Confirmed).unwrap();
    let octets = report(&[Handle(1)], &[vec![0, 98]], Confirmation::Confirmed);
    assert!(planned(&plan, ReportArrival::default(), &octets).is_some());
    for end in 0..octets.len() {
        assert_eq!(planned(&plan, ReportArrival::default(), &octets[..end]), None);
    }
    assert_eq!(planned(&plan, ReportArrival::default(), &[&octets[..], &[0]].concat()), None);
}

#[test]
fn several_kinds_of_device_have_plans() {
    assert!(layouts().len() >= 5, "{:?}", layouts().iter().map(|it| &it.1).collect::<Vec<_>>());
}

proptest! {
    /// Any values, and then any one octet changed: the same as the general way, or nothing.
    #[test]
    fn a_plan_writes_what_the_general_way_writes(
        random in prop::collection::vec(any::<u8>(), 64),
        changed in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        number: u64,
        micros in 0_u64..4_000_000_000_000_000,
        date: bool,
    ) {
        let arrival = ReportArrival { report: number, received: Timestamp::from_micros(micros) };
        for (configuration, handles) in layouts() {
            let device = world(&configuration);
            for how in BOTH {
                let plan = plan(&device, &configuration, &handles, how).unwrap();
                let mut values = Vec::new();
                for handle in &handles {
                    let mut octets: Vec<u8> =
                        random.iter().cycle().take(width(&configuration, *handle)).copied().collect();
                    if date && octets.len() > 8 {
                        let start = octets.len() - 8;
                        octets[start..].copy_from_slice(&[0x20, 0x26, 0x11, 0x24, 9, 0x30, 0, 0]);
                    }
                    values.push(octets);
                }
                let mut octets = report(&handles, &values, how);
                if let Some((at, octet)) = changed {
                    let at = at.index(octets.len());
                    octets[at] = octet;
                }
                if let Some(all) = planned(&plan, arrival, &octets) {
                    prop_assert_eq!(all, general(&device, &configuration, arrival, &octets));
                }
            }
        }
    }
}
