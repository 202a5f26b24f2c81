//! Plans as CoAP requests beside the general way: the same requests, or none.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::configuration::Configuration;
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::manager::{RecordId, ReportRecord};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::{self, ACTIVITY, DISPENSER, OXIMETER};
use gatewright_interwork::mapping::ValueSource;
use gatewright_interwork::plan::Confirmation;
use gatewright_interwork::{
    CoapPlan, CoapWriter, Device, DeviceAssociation, Mapping, ReportArrival, ReportPlan,
};
use gatewright_onem2m::coap::CoapMessage;
use gatewright_onem2m::coap::primitive::read_request;
use gatewright_onem2m::{Request, Serialisation, Timestamp};
use gatewright_wire::coap::{Code, Message, MessageType};
use proptest::prelude::*;
use serde_json::Value;
use std::iter;
use std::sync::Arc;

const DEVICE: SystemId = SystemId([0, 0x22, 0x09, 0x22, 0x5C, 0xFE, 0x4D, 0x32]);
const BOTH: [Serialisation; 2] = [Serialisation::Json, Serialisation::Cbor];

fn report(handles: &[Handle], values: &[Vec<u8>]) -> Vec<u8> {
    let fixed = |(handle, octets): (&Handle, &Vec<u8>)| (*handle, octets.clone());
    let all: Vec<_> = handles.iter().zip(values).map(fixed).collect();
    let all: Vec<_> =
        all.iter().map(|(handle, octets)| FixedObservation { handle: *handle, octets }).collect();
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 7, &all).unwrap();
    let (handle, event) = (Handle::MDS, event::SCAN_FIXED);
    let message = DataMessage::EventReport(EventReport { handle, time: 99, event, info: &info });
    DataApdu { invoke_id: InvokeId(0x1234), message }.encode().unwrap()
}

fn device(configuration: &Configuration) -> Device {
    Device::new(&Mapping::default(), "cse-mn", DEVICE, 7, configuration)
}

/// A request as the CSE above receives it.
fn moved(request: Request) -> Request {
    let to = format!("/id-in/{}", request.to.replacen("cse-mn", "cse-in", 1));
    Request { to, ..request }
}

/// The general way: an association whose first report this is.
fn general(configuration: &Configuration, arrival: ReportArrival, octets: &[u8]) -> Vec<Request> {
    general_by(&Mapping::default(), configuration, arrival, octets)
}

fn general_by(
    mapping: &Mapping,
    configuration: &Configuration,
    arrival: ReportArrival,
    octets: &[u8],
) -> Vec<Request> {
    let device = Device::new(mapping, "cse-mn", DEVICE, 7, configuration);
    let mut association = DeviceAssociation::new(device, Arc::new(configuration.clone()));
    let ReportArrival { report: number, received } = arrival;
    let apdu = octets.to_vec();
    let record = ReportRecord { id: RecordId(1), number, confirmed: false, apdu };
    let mut all = Vec::new();
    let read = association.read(mapping, &record, received, |instance| {
        all.push(moved(instance.request()));
    });
    if read.is_ok() { all } else { Vec::new() }
}

fn plan(
    configuration: &Configuration,
    handles: &[Handle],
    serialisation: Serialisation,
) -> Option<CoapPlan> {
    let (mapping, device) = (Mapping::default(), device(configuration));
    let layout = (handles, Confirmation::Unconfirmed);
    let plan = ReportPlan::new(&mapping, &device, configuration, layout, "4")?;
    let plan = CoapPlan::new(&plan, &device, serialisation, moved)?;
    // Always by way of the table's octets.
    assert_eq!(CoapPlan::of(&plan.octets()), Some(plan.clone()));
    Some(plan)
}

/// The requests that a plan writes, read as a CSE reads them.
fn planned(plan: &CoapPlan, arrival: ReportArrival, octets: &[u8]) -> Option<Vec<Request>> {
    let mut all = Vec::new();
    let arrived = (arrival, plan.identity(octets));
    let done = CoapWriter::default().convert(plan, arrived, octets, |message| {
        let message = Message::parse(message).unwrap();
        assert_eq!(message.message_type(), MessageType::NON_CONFIRMABLE);
        assert_eq!((message.code(), message.token()), (Code::POST, &[0; 4][..]));
        let options = message.options().map(|it| (it.number, it.value.to_vec())).collect();
        let payload = message.payload().to_vec();
        all.push(read_request(&CoapMessage { code: Code::POST, options, payload }).unwrap());
    });
    assert!(done || all.is_empty(), "a report that goes the general way is not sent as well");
    done.then_some(all)
}

/// Content is compared as a value: CBOR says nothing of the order of members.
fn same(one: &[Request], other: &[Request]) -> bool {
    let value = |it: &Request| -> Value {
        let mut value = serde_json::from_str(it.content.as_deref().unwrap()).unwrap();
        nearest_numbers(&mut value);
        value
    };
    let bare = |it: &Request| Request { content: None, ..it.clone() };
    one.len() == other.len()
        && one.iter().zip(other).all(|(a, b)| bare(a) == bare(b) && value(a) == value(b))
}

/// Rounds numbers to fifteen digits: `serde_json` reads a decimal text of many digits as one of the
/// two numbers next to it, and CBOR has the nearest one.
fn nearest_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = format!("{:.14e}", number.as_f64().unwrap());
            *value = Value::String(rounded);
        }
        Value::Array(all) => all.iter_mut().for_each(nearest_numbers),
        Value::Object(all) => all.values_mut().for_each(nearest_numbers),
        _ => {}
    }
}

fn width(configuration: &Configuration, handle: Handle) -> usize {
    configuration.object(handle).unwrap().map.iter().map(|it| usize::from(it.length)).sum()
}

/// The layouts that have a plan.
fn layouts() -> Vec<(Configuration, Vec<Handle>)> {
    let mut all = Vec::new();
    for kind in specialisation::ALL {
        let Some(configuration) = kind.configuration() else { continue };
        let places = device(&configuration).places().to_vec();
        let mut wanted: Vec<Vec<Handle>> = places.iter().map(|it| vec![it.handle]).collect();
        wanted.push(places.iter().map(|it| it.handle).collect());
        for handles in wanted {
            if plan(&configuration, &handles, Serialisation::Json).is_some() {
                all.push((configuration.clone(), handles));
            }
        }
    }
    all
}

/// A report of several objects is identified by the first of its times that is one since 1970,
/// whether or not the readings show it.
#[test]
fn reports_are_identified_by_their_first_time_since_1970() {
    let before = [0x10, 0x26, 0x11, 0x24, 0x12, 0, 0, 0];
    let arrival = ReportArrival { report: 3, received: Timestamp::from_micros(1) };
    let configuration = DISPENSER.configuration().unwrap();
    let handles: Vec<_> = DISPENSER.metrics.iter().map(|metric| metric.handle).collect();
    let reported = |first: [u8; 8]| {
        let times = [first].into_iter().chain(iter::repeat(NOON));
        let value = |(handle, time): (&Handle, [u8; 8])| {
            let width = width(&configuration, *handle);
            [&vec![0; width - time.len()][..], &time].concat()
        };
        let values: Vec<_> = handles.iter().zip(times).map(value).collect();
        report(&handles, &values)
    };
    let mut hidden = Mapping::default();
    hidden.fields.retain(|field| field.source != ValueSource::DeviceTime);
    for (mapping, first) in [(Mapping::default(), before), (hidden.clone(), before), (hidden, NOON)]
    {
        let device = Device::new(&mapping, "cse-mn", DEVICE, 7, &configuration);
        let octets = reported(first);
        let plan = ReportPlan::of_report(&mapping, &device, &configuration, &octets, "4").unwrap();
        let plan = CoapPlan::new(&plan, &device, Serialisation::Json, moved).unwrap();
        let plan = CoapPlan::of(&plan.octets()).unwrap();
        let all = planned(&plan, arrival, &octets).unwrap();
        assert!(all[0].id.starts_with("002209225cfe4d32-1795521600"), "{}", all[0].id);
        let expected = general_by(&mapping, &configuration, arrival, &octets);
        assert!(same(&all, &expected), "{all:?} {expected:?}");
    }
}

/// Values of ISO/IEEE 11073-10404's examples: 98 % and 72 per minute.
#[test]
fn an_oximeters_report_becomes_two_requests() {
    let configuration = OXIMETER.configuration().unwrap();
    let handles = [Handle(1), Handle(10)];
    let received = Timestamp::from_micros(1_795_266_000_000_007);
    let arrival = ReportArrival { report: 41, received };
    let octets = report(&handles, &[vec![0, 98], vec![0, 72]]);
    for serialisation in BOTH {
        let plan = plan(&configuration, &handles, serialisation).unwrap();
        assert_eq!(plan.requests(), 2);
        let all = planned(&plan, arrival, &octets).unwrap();
        assert!(same(&all, &general(&configuration, arrival, &octets)), "{all:?}");
        assert_eq!(all[0].id, "002209225cfe4d32-7-41-1");
        assert!(all[0].to.starts_with("/id-in/cse-in/"), "{}", all[0].to);
        assert!(all[0].content.as_deref().unwrap().contains(r#""value":"98""#));
    }
}

#[test]
fn what_does_not_match_to_the_octet_is_not_converted() {
    let configuration = OXIMETER.configuration().unwrap();
    let plan = plan(&configuration, &[Handle(1)], Serialisation::Json).unwrap();
    let octets = report(&[Handle(1)], &[vec![0, 98]]);
    let arrival = ReportArrival::default();
    assert!(planned(&plan, arrival, &octets).is_some());
    for end in 0..octets.len() {
        assert_eq!(planned(&plan, arrival, &octets[..end]), None);
    }
    assert_eq!(planned(&plan, arrival, &[&octets[..], &[0]].concat()), None);
    // NaN, NRes, both infinities, reserved (ISO/IEEE 11073-20601, SFLOAT).
    for special in [[0x07, 0xFF], [0x08, 0], [0x07, 0xFE], [0x08, 2], [0x08, 1]] {
        let octets = report(&[Handle(1)], &[special.to_vec()]);
        assert_eq!(planned(&plan, arrival, &octets), None);
    }
}

/// Octets behind the mapped ones, as devices in the field send them: up to the paper's sizes.
#[test]
fn octets_behind_the_mapped_ones_are_skipped() {
    let configuration = OXIMETER.configuration().unwrap();
    let (mapping, device) = (Mapping::default(), device(&configuration));
    let arrival = ReportArrival { report: 3, received: Timestamp::from_micros(1) };
    for more in [0, 1, 28, 988] {
        let padded = |octet: u8| {
            let value = [&[0, 98][..], &vec![octet; more]].concat();
            report(&[Handle(1), Handle(10)], &[value, vec![0, 72]])
        };
        let like = padded(7);
        let plan = ReportPlan::of_report(&mapping, &device, &configuration, &like, "4").unwrap();
        let plan = CoapPlan::new(&plan, &device, Serialisation::Cbor, moved).unwrap();
        let octets = plan.octets();
        assert!(octets.len() < 2_000, "{}", octets.len());
        assert_eq!(CoapPlan::of(&octets).as_ref(), Some(&plan));
        let all = planned(&plan, arrival, &padded(8)).unwrap();
        assert!(same(&all, &general(&configuration, arrival, &padded(8))), "{all:?}");
        assert_eq!(planned(&plan, arrival, &like[..like.len() - 1]), None);
    }
    // Fewer octets than are mapped.
    let cut = report(&[Handle(1)], &[vec![98]]);
    assert_eq!(ReportPlan::of_report(&mapping, &device, &configuration, &cut, "4"), None);
}

/// The plan of reports like this one.
fn plan_like(
    configuration: &Configuration,
    like: &[u8],
    serialisation: Serialisation,
) -> Option<CoapPlan> {
    let (mapping, device) = (Mapping::default(), device(configuration));
    let plan = ReportPlan::of_report(&mapping, &device, configuration, like, "4")?;
    let plan = CoapPlan::new(&plan, &device, serialisation, moved)?;
    assert_eq!(CoapPlan::of(&plan.octets()), Some(plan.clone()));
    Some(plan)
}

/// Noon of a day, in the octets of a device's clock.
const NOON: [u8; 8] = [0x20, 0x26, 0x11, 0x24, 0x12, 0, 0, 0];

/// An activity (ISO/IEEE 11073-10441): its code, its duration as a FLOAT, its time.
fn activity(code: u16, period: [u8; 4]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &period, &NOON].concat()
}

#[test]
fn codes_with_their_names_and_durations_have_plans() {
    let configuration = ACTIVITY.configuration().unwrap();
    let arrival = ReportArrival { report: 3, received: Timestamp::from_micros(1) };
    let reported = |code, period| report(&[Handle(1)], &[activity(code, period)]);
    let (running, walking, unknown) = (1_011, 1_017, 5_000);
    // 1,805; 1,805.0; 0.5; -3; 7 with twenty zeros.
    let periods = [[0, 0, 7, 13], [0xFF, 0, 0x46, 0x82], [0xFF, 0, 0, 5], [0, 0xFF, 0xFF, 0xFD]];
    let periods = [&periods[..], &[[20, 0, 0, 7]]].concat();
    for serialisation in BOTH {
        let like = reported(running, [0; 4]);
        let plan = plan_like(&configuration, &like, serialisation).unwrap();
        for period in &periods {
            let octets = reported(walking, *period);
            let all = planned(&plan, arrival, &octets).unwrap();
            assert!(same(&all, &general(&configuration, arrival, &octets)), "{all:?}");
            let content = all[0].content.as_deref().unwrap();
            let named = r#""meaning":"MDC_HF_ACT_WALK""#;
            assert!(content.contains(r#""value":"129:1017""#) && content.contains(named));
        }
        // Without a name there is a member less.
        assert_eq!(planned(&plan, arrival, &reported(unknown, [0; 4])), None);
        // NaN is no duration.
        assert_eq!(planned(&plan, arrival, &reported(walking, [0, 0x7F, 0xFF, 0xFF])), None);
        let like = reported(unknown, [0; 4]);
        let plan = plan_like(&configuration, &like, serialisation).unwrap();
        let all = planned(&plan, arrival, &like).unwrap();
        assert!(same(&all, &general(&configuration, arrival, &like)), "{all:?}");
        assert_eq!(planned(&plan, arrival, &reported(unknown + 1, [0; 4])), None);
    }
}

#[test]
fn flags_have_plans() {
    let configuration = DISPENSER.configuration().unwrap();
    let arrival = ReportArrival { report: 3, received: Timestamp::from_micros(1) };
    let reported = |flags: [u8; 2]| report(&[Handle(3)], &[[&flags[..], &NOON].concat()]);
    for serialisation in BOTH {
        let plan = plan_like(&configuration, &reported([0; 2]), serialisation).unwrap();
        for flags in [[0, 0], [0x0A, 0xF0], [0xFF, 0xFF]] {
            let all = planned(&plan, arrival, &reported(flags)).unwrap();
            let expected = general(&configuration, arrival, &reported(flags));
            assert!(same(&all, &expected), "{all:?} {expected:?}");
        }
    }
}

/// The three kinds of device of the paper, all their objects in one report.
#[test]
fn the_papers_kinds_of_device_have_plans() {
    for kind in [OXIMETER, ACTIVITY, DISPENSER] {
        let configuration = kind.configuration().unwrap();
        let handles: Vec<_> = kind.metrics.iter().map(|metric| metric.handle).collect();
        let values: Vec<_> =
            handles.iter().map(|handle| vec![0; width(&configuration, *handle)]).collect();
        let like = report(&handles, &values);
        let plan = plan_like(&configuration, &like, Serialisation::Cbor).unwrap();
        assert_eq!(plan.requests(), kind.metrics.len(), "{}", kind.name);
        // The room that a plan has in the table of both planes.
        assert!(plan.octets().len() <= 2_040, "{} {}", kind.name, plan.octets().len());
    }
}

#[test]
fn plans_know_whether_devices_wait_for_answers() {
    let configuration = OXIMETER.configuration().unwrap();
    let (mapping, device) = (Mapping::default(), device(&configuration));
    for (how, is_confirmed) in [(Confirmation::Confirmed, true), (Confirmation::Unconfirmed, false)]
    {
        let layout = (&[Handle(1)][..], how);
        let plan = ReportPlan::new(&mapping, &device, &configuration, layout, "4").unwrap();
        let plan = CoapPlan::new(&plan, &device, Serialisation::Cbor, moved).unwrap();
        assert_eq!(CoapPlan::of(&plan.octets()).unwrap().is_confirmed(), is_confirmed);
    }
}

/// What a driver does by a plan, `data`'s tests compare with the worker.
#[test]
fn drivers_carry_out_plans_of_unconfirmed_reports_with_one_object() {
    let plan_of = |configuration: &Configuration, like: &[u8], serialisation| {
        plan_like(configuration, like, serialisation).unwrap().driver_plan()
    };
    let oximeter = OXIMETER.configuration().unwrap();
    let (one, two) = (vec![0, 60], vec![0, 98]);
    let pulse = report(&[Handle(10)], std::slice::from_ref(&one));
    let both = report(&[Handle(1), Handle(10)], &[two, one.clone()]);
    let long = report(&[Handle(10)], &[[one, vec![0; 1_300]].concat()]);
    for serialisation in BOTH {
        let plan = plan_of(&oximeter, &pulse, serialisation).unwrap();
        assert_eq!((plan.expected.len(), plan.time_at), (pulse.len(), 0));
        assert_eq!(plan.is_cbor, serialisation == Serialisation::Cbor);
        // Invoke-id, event time, number and value are free.
        let free: Vec<_> = (0..).zip(&plan.fixed).filter(|(_, it)| **it == 0).collect();
        let free: Vec<_> = free.into_iter().map(|(at, _)| at).collect();
        assert_eq!(free, [6, 7, 14, 15, 16, 17, 24, 25, 34, 35]);
        assert_eq!(plan_of(&oximeter, &both, serialisation), None);
        // Octets behind the mapped ones are not compared.
        let plan = plan_of(&oximeter, &long, serialisation).unwrap();
        assert_eq!((usize::from(plan.length), plan.fixed.len()), (long.len(), 192));
        assert_eq!(plan.fixed[34..], [0; 158]);
    }
    let (mapping, device) = (Mapping::default(), device(&oximeter));
    let layout = (&[Handle(10)][..], Confirmation::Confirmed);
    let confirmed = ReportPlan::new(&mapping, &device, &oximeter, layout, "4").unwrap();
    let confirmed = CoapPlan::new(&confirmed, &device, Serialisation::Cbor, moved).unwrap();
    assert_eq!(confirmed.driver_plan(), None);
    let configuration = ACTIVITY.configuration().unwrap();
    let [named, unnamed] = [1_011, 5_000].map(|code| {
        let like = report(&[Handle(1)], &[activity(code, [0; 4])]);
        BOTH.map(|serialisation| plan_of(&configuration, &like, serialisation).is_some())
    });
    assert_eq!((named, unnamed), ([false; 2], [true, false]), "a duration is a double in CBOR");
}

#[test]
fn several_kinds_of_device_have_plans() {
    assert!(layouts().len() >= 4, "{:?}", layouts().iter().map(|it| &it.1).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

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
            let value = |handle: &Handle| {
                let width = width(&configuration, *handle);
                let mut octets: Vec<u8> = random.iter().cycle().take(width).copied().collect();
                if date && width > 8 {
                    let time = [0x20, 0x26, 0x11, 0x24, 9, 0x30, 0, random[0] % 10];
                    octets[width - 8..].copy_from_slice(&time);
                }
                octets
            };
            let values: Vec<Vec<u8>> = handles.iter().map(value).collect();
            let mut octets = report(&handles, &values);
            if let Some((at, octet)) = changed {
                let at = at.index(octets.len());
                octets[at] = octet;
            }
            for serialisation in BOTH {
                let plan = plan(&configuration, &handles, serialisation).unwrap();
                if let Some(all) = planned(&plan, arrival, &octets) {
                    let expected = general(&configuration, arrival, &octets);
                    prop_assert!(same(&all, &expected), "{all:?} {expected:?}");
                }
            }
        }
    }

    /// Any codes, flags, durations and times, by the plan of any other ones.
    #[test]
    fn coded_values_are_written_as_the_general_way_writes_them(
        random in prop::collection::vec(any::<u8>(), 64),
        codes: [bool; 2],
        object in 0_usize..8,
    ) {
        let arrival = ReportArrival { report: 7, received: Timestamp::from_micros(9) };
        let kind = if object < ACTIVITY.metrics.len() { ACTIVITY } else { DISPENSER };
        let configuration = kind.configuration().unwrap();
        let metric = &kind.metrics[object % kind.metrics.len()];
        let [like, octets] = codes.map(|is_named| {
            let width = width(&configuration, metric.handle);
            let mut value: Vec<u8> = random[..width].to_vec();
            if is_named {
                value[..2].copy_from_slice(&(1_000 + u16::from(random[63] % 18)).to_be_bytes());
                value[width - 8..].copy_from_slice(&NOON);
            }
            report(&[metric.handle], &[value])
        });
        for serialisation in BOTH {
            let Some(plan) = plan_like(&configuration, &like, serialisation) else { continue };
            if let Some(all) = planned(&plan, arrival, &octets) {
                let expected = general(&configuration, arrival, &octets);
                prop_assert!(same(&all, &expected), "{all:?} {expected:?}");
            }
        }
    }

    /// Octets of corrupted memory are no plan, or one that is within its bounds.
    #[test]
    fn corrupted_octets_are_read(
        at: prop::sample::Index, octet: u8, cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let configuration = OXIMETER.configuration().unwrap();
        let handles = [Handle(1), Handle(10)];
        let mut octets = plan(&configuration, &handles, Serialisation::Cbor).unwrap().octets();
        let at = at.index(octets.len());
        octets[at] = octet;
        octets.truncate(cut.map_or(octets.len(), |cut| cut.index(octets.len())));
        if let Some(plan) = CoapPlan::of(&octets) {
            let report = report(&handles, &[vec![0, 98], vec![0, 72]]);
            let arrived = (ReportArrival::default(), plan.identity(&report));
            CoapWriter::default().convert(&plan, arrived, &report, |message| {
                assert!(message.len() <= gatewright_interwork::coap_plan::MESSAGE_MAX);
            });
        }
    }
}
