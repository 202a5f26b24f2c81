//! Reports by a plan beside the general way, and plans of any octets.

use gatewright_health::manager::{RecordId, ReportRecord};
use gatewright_health::specialisation;
use gatewright_interwork::coap_plan::MESSAGE_MAX;
use gatewright_interwork::{
    CoapPlan, CoapWriter, Device, DeviceAssociation, Mapping, ReportArrival, ReportPlan,
};
use gatewright_onem2m::coap::CoapMessage;
use gatewright_onem2m::coap::primitive::read_request;
use gatewright_onem2m::{Request, Serialisation};
use gatewright_wire::coap::{Code, Message};
use std::sync::Arc;

/// The first octet chooses what the others are: a plan, or two reports of a device, of which the second
/// is converted by the plan of the first.
///
/// # Panics
///
/// If a plan writes other requests than the general way.
pub fn report_plan(octets: &[u8]) {
    let Some((choice, octets)) = octets.split_first() else { return };
    let mut writer = CoapWriter::default();
    if *choice == u8::MAX {
        let Some(plan) = CoapPlan::of(octets) else { return };
        assert_eq!(CoapPlan::of(&plan.octets()).as_ref(), Some(&plan));
        writer.convert(
            &plan,
            (ReportArrival::default(), plan.identity(octets)),
            octets,
            |message| {
                assert!(message.len() <= MESSAGE_MAX);
            },
        );
        return;
    }
    let kinds = specialisation::ALL;
    let kind = kinds.get(usize::from(*choice) % kinds.len().max(1));
    let Some(configuration) = kind.and_then(|kind| kind.configuration()) else { return };
    let (first, second) = octets.split_at(octets.len() / 2);
    let mapping = Mapping::default();
    let device =
        Device::new(&mapping, "cse", gatewright_health::code::SystemId([1; 8]), 7, &configuration);
    let plan = ReportPlan::of_report(&mapping, &device, &configuration, first, "4");
    let Some(plan) =
        plan.and_then(|plan| CoapPlan::new(&plan, &device, Serialisation::Cbor, |request| request))
    else {
        return;
    };
    let (mut planned, arrival) = (Vec::new(), ReportArrival::default());
    writer.convert(&plan, (arrival, plan.identity(second)), second, |message| {
        planned.extend(read(message));
    });
    if planned.is_empty() {
        return;
    }
    let apdu = second.to_vec();
    let is_confirmed = apdu.get(8..10) == Some(&[1, 1]);
    let record = ReportRecord { id: RecordId(1), number: 0, confirmed: is_confirmed, apdu };
    let mut association = DeviceAssociation::new(device, Arc::new(configuration));
    let mut general = Vec::new();
    let read = association.read(&mapping, &record, arrival.received, |instance| {
        general.push(instance.request());
    });
    assert!(read.is_ok(), "{read:?}");
    assert_eq!(planned.len(), general.len());
    for (one, other) in planned.iter().zip(&general) {
        assert_eq!((&one.to, &one.from, &one.id), (&other.to, &other.from, &other.id));
        assert_eq!(content(one), content(other));
    }
}

fn read(message: &[u8]) -> Option<Request> {
    let message = Message::parse(message).ok()?;
    let options = message.options().map(|it| (it.number, it.value.to_vec())).collect();
    let message = CoapMessage { code: Code::POST, options, payload: message.payload().to_vec() };
    read_request(&message).ok()
}

fn content(request: &Request) -> Option<serde_json::Value> {
    serde_json::from_str(request.content.as_deref()?).ok()
}
