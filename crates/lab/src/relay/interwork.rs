//! Interworking as relay: reports of an oximeter (IEEE 11073) that become oneM2M requests, in the data
//! plane or by way of the control plane's store.
//!
//! A report is unconfirmed, of a fixed scan with both of the oximeter's observations, and becomes two
//! requests. Its identity as a probe stands behind the last value, where devices may have octets of
//! their own, which no plan reads; in the requests it is the number of the report and the values.

use super::Seat;
use super::sockets::is_idle;
use crate::probe::{FILLING, IDENTITY_LEN, Place, ProbeIdentity, ProbeRecords};
use gatewright_config::Centre;
use gatewright_health::agent::{Agent, AgentSettings, Ending, Input, Output as AgentOutput};
use gatewright_health::association::AssociationState;
use gatewright_health::code::{DataRequestId, Handle, InvokeId, SystemId, event};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::report::{FixedObservation, encode_scan};
use gatewright_health::specialisation::OXIMETER;
use gatewright_interwork::{CoapPlan, Device, Mapping, ReportPlan};
use gatewright_onem2m::coap::CoapMessage;
use gatewright_onem2m::coap::primitive::{option, read_request, write_response};
use gatewright_onem2m::{Release, Response, Serialisation, Status};
use gatewright_planes::{Planes, ReportForwarder, ReportForwarderSetup};
use gatewright_tables::EntityWriters;
use gatewright_tables::records::{Entity, EntityPlan, Sender};
use gatewright_wire::coap::{Builder, Code, Message, MessageType};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Octets of a report before the identity: its head, and two observations with handle, length and
/// value (ISO/IEEE 11073-20601, PRST with a fixed scan).
pub(crate) const IDENTITY_AT: u32 = 30 + 2 * (4 + 2);
/// Octets of the smallest report.
const REPORT_MIN: usize = 42 + IDENTITY_LEN;
/// Octets of the largest report that has a plan.
const REPORT_MAX: usize = gatewright_interwork::plan::REPORT_MAX;
/// The oximeter's objects (ISO/IEEE 11073-10404): oxygen saturation, pulse rate.
const SATURATION: Handle = Handle(1);
const PULSE: Handle = Handle(10);
/// Values that a pulse rate takes in turn; the saturation counts the turns.
const PULSES: u32 = 1000;
/// The first port of devices: each size of reports has a device, as a plan is for one size.
const PORTS: u16 = 40_000;
/// The epoch in the readings' names.
const EPOCH: u64 = 7;

/// Why reports of these conditions have no plan; none if they have.
pub(super) fn unavailable(conditions: &[Centre]) -> Option<String> {
    let fits = |it: &Centre| (REPORT_MIN..=REPORT_MAX).contains(&it.octets.into());
    (!conditions.iter().all(fits))
        .then(|| format!("its reports have {REPORT_MIN} to {REPORT_MAX} octets"))
}

/// The port of the device whose reports have so many octets.
pub(crate) const fn device_port(octets: u16) -> u16 {
    PORTS.wrapping_add(octets)
}

/// The values in the report of a probe: saturation and pulse rate.
fn values(sequence: u32) -> [u16; 2] {
    let small = |value: u32| u16::try_from(value).unwrap_or_default();
    [small(sequence / PULSES), small(sequence % PULSES)]
}

/// The report with this number that is the probe, of so many octets; `None` if it cannot have them.
pub(crate) fn report(identity: ProbeIdentity, number: u16, octets: usize) -> Option<Vec<u8>> {
    // An SFLOAT with the exponent 0 is the integer (ISO/IEEE 11073-20601, nomenclature of MDER).
    let [saturation, pulse] = values(identity.sequence).map(u16::to_be_bytes);
    let behind = octets.checked_sub(REPORT_MIN)?;
    let mut last = pulse.to_vec();
    last.extend(identity.payload(IDENTITY_LEN + behind));
    let observations = [
        FixedObservation { handle: SATURATION, octets: &saturation },
        FixedObservation { handle: PULSE, octets: &last },
    ];
    let info = encode_scan(DataRequestId::AGENT_INITIATED, number, &observations).ok()?;
    let (handle, event, time) = (Handle::MDS, event::SCAN_FIXED, identity.sequence);
    let message = DataMessage::EventReport(EventReport { handle, time, event, info: &info });
    DataApdu { invoke_id: InvokeId(number), message }.encode().ok()
}

/// Forwards the reports of devices at the seat, one device for each of the sizes, until dropped.
pub(super) fn forward(
    planes: &Planes,
    seat: &Seat,
    sizes: &[u16],
) -> Result<ReportForwarder, String> {
    let (writers, entities) = planes.change_host(|host| {
        let tables = host.tables_mut();
        (tables.entities.take(), tables.data_entities())
    });
    let mut writers = writers.ok_or("the AE table has another writer")?;
    for &octets in sizes {
        associate(&mut writers, seat, octets)?;
    }
    let setup = ReportForwarderSetup { listen: seat.local.into(), cse: seat.to.into() };
    let started = ReportForwarder::start(planes.sockets(), setup, &entities);
    started.map_err(|error| error.to_string())
}

/// Puts the device with reports of so many octets into the AE table, with their plan.
fn associate(writers: &mut EntityWriters, seat: &Seat, octets: u16) -> Result<(), String> {
    let configuration = OXIMETER.configuration().ok_or("the oximeter has no configuration")?;
    let system_id = SystemId(u64::from(octets).to_be_bytes());
    let mapping = Mapping::default();
    let device = Device::new(&mapping, "/id-in/cse-in", system_id, EPOCH, &configuration);
    let identity = ProbeIdentity { sequence: 0, tag: [FILLING; 8] };
    let unplanned = || format!("reports of {octets} octets have no plan");
    let like = report(identity, 0, octets.into()).ok_or_else(unplanned)?;
    let plan = ReportPlan::of_report(&mapping, &device, &configuration, &like, "4");
    let plan = plan.ok_or_else(unplanned)?;
    let plan = CoapPlan::new(&plan, &device, Serialisation::Cbor, |request| request);
    let plan = plan.ok_or_else(unplanned)?.octets();
    let serial = u32::from(octets) + 1;
    let plan = EntityPlan::new(serial, &plan).ok_or_else(unplanned)?;
    let place = writers.plans.insert(&plan).map_err(|error| error.to_string())?;
    let sender = Sender { address: seat.from.into(), port: device_port(octets) };
    let entity = Entity { system_id: system_id.0, plan: (place, serial), ..Entity::default() };
    writers.entities.set(&sender, &entity).map(drop).map_err(|error| error.to_string())
}

/// A reading in a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct RequestedReading {
    /// The number of its report, as the device counts them.
    number: u16,
    place: Place,
    value: u16,
}

/// The reading of a request to create an instance; `None` if it is no such request.
fn reading(octets: &[u8]) -> Option<RequestedReading> {
    let message = Message::parse(octets).ok()?;
    let options = message.options().map(|it| (it.number, it.value.to_vec())).collect();
    let payload = message.payload().to_vec();
    let request = read_request(&CoapMessage { code: message.code(), options, payload }).ok()?;
    // System-id, epoch, report and handle.
    let mut parts = request.id.rsplit('-');
    let handle: u16 = parts.next()?.parse().ok()?;
    let number: u64 = parts.next()?.parse().ok()?;
    let number = u16::try_from(number & u64::from(u16::MAX)).ok()?;
    let place = match Handle(handle) {
        SATURATION => Place::SaturationArrived,
        PULSE => Place::PulseArrived,
        _ => return None,
    };
    let (_, behind) = request.content.as_deref()?.split_once("\"value\":\"")?;
    let (value, _) = behind.split_once('"')?;
    Some(RequestedReading { number, place, value: value.parse().ok()? })
}

/// The answer of a CSE that has done what a confirmable request asks; none to anything else.
pub(crate) fn answer(octets: &[u8]) -> Option<Vec<u8>> {
    let message = Message::parse(octets).ok()?;
    if message.message_type() != MessageType::CONFIRMABLE || message.code() == Code::EMPTY {
        return None;
    }
    let id = message.value(option::RQI).and_then(|id| str::from_utf8(id).ok()).unwrap_or_default();
    let response = write_response(
        &Response::new(Status::Created, id, Release::default()),
        Serialisation::Json,
    );
    let mut room = [0; ANSWER_MAX];
    let (kind, code) = (MessageType::ACKNOWLEDGEMENT, response.code);
    let mut builder =
        Builder::new(&mut room, kind, code, message.message_id(), message.token()).ok()?;
    let mut options = response.options;
    options.sort_by_key(|(number, _)| number.0);
    for (number, value) in &options {
        builder.option(*number, value).ok()?;
    }
    Some(builder.finish().to_vec())
}

/// Octets of an answer.
const ANSWER_MAX: usize = 1024;

/// Associates an oximeter over `socket`, which is connected to its manager, and answers what that asks
/// until it asks nothing more.
///
/// # Errors
///
/// In words, why there is no association.
pub(crate) fn associate_oximeter(socket: &UdpSocket) -> Result<Agent, String> {
    let settings = AgentSettings {
        system_id: SystemId(*b"lab oxim"),
        configurations: vec![(OXIMETER.config, OXIMETER.octets().unwrap_or_default())],
        attributes: Vec::new(),
        segments: Vec::new(),
        scanners: Vec::new(),
        clock: None,
    };
    let mut agent = Agent::new(settings);
    let began = Instant::now();
    agent.handle(Duration::ZERO, Input::Connected);
    agent.handle(Duration::ZERO, Input::Associate);
    let mut quiet = Instant::now();
    while agent.state() != AssociationState::Operating || quiet.elapsed() < QUIET {
        if converse(&mut agent, socket, began)? {
            quiet = Instant::now();
        }
        if began.elapsed() > ASSOCIATES_WITHIN {
            return Err(format!("the oximeter is {:?}", agent.state()));
        }
    }
    Ok(agent)
}

/// Releases the association of an oximeter.
pub(crate) fn release_oximeter(agent: &mut Agent, socket: &UdpSocket) {
    let began = Instant::now();
    agent.handle(Duration::ZERO, Input::Release);
    let is_over = |agent: &Agent| agent.state() == AssociationState::Unassociated;
    while !is_over(agent) && began.elapsed() < RELEASES_WITHIN {
        // The next association does without an answer.
        if converse(agent, socket, began).is_err() {
            return;
        }
    }
}

/// Sends what the agent has to send, and gives it what arrives; returns whether anything did.
fn converse(agent: &mut Agent, socket: &UdpSocket, began: Instant) -> Result<bool, String> {
    while let Some(output) = agent.poll_output() {
        match output {
            AgentOutput::Send(octets) => {
                // What the system refuses is sent again when the agent's wait is over.
                let _sent = socket.send(&octets);
            }
            AgentOutput::Unassociated(Ending::Released) => return Ok(true),
            AgentOutput::Unassociated(ending) => {
                return Err(format!("the oximeter is not associated: {ending:?}"));
            }
            _ => {}
        }
    }
    let mut octets = [0; APDU_MAX];
    match socket.recv(&mut octets) {
        Ok(len) => {
            let apdu = octets.get(..len).unwrap_or_default();
            agent.handle(began.elapsed(), Input::Apdu(apdu));
            Ok(true)
        }
        Err(error) if is_idle(&error) => {
            agent.handle(began.elapsed(), Input::Tick);
            Ok(false)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Octets of an APDU.
const APDU_MAX: usize = 8192;
/// How long a manager asks nothing until it is taken to be content.
const QUIET: Duration = Duration::from_millis(100);
/// Time for an association, and for its release.
const ASSOCIATES_WITHIN: Duration = Duration::from_secs(10);
const RELEASES_WITHIN: Duration = Duration::from_secs(1);

/// Stamps the probe that this request is a part of; returns whether the probe has arrived with it.
pub(crate) fn stamp_request(records: &ProbeRecords, octets: &[u8], time: u64) -> bool {
    let Some(reading) = reading(octets) else { return false };
    let [saturation, pulse] = values(records.sequence(reading.number));
    let wanted = if reading.place == Place::PulseArrived { pulse } else { saturation };
    if reading.value != wanted {
        records.count_altered();
    }
    records.stamp_request(reading.number, reading.place, time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_health::apdu::Apdu;

    #[test]
    fn a_report_has_its_identity_where_the_stamps_look_for_it() {
        let identity = ProbeIdentity { sequence: 59_998, tag: *b"repeat 1" };
        for octets in [REPORT_MIN, 100, 400, REPORT_MAX] {
            let report = report(identity, 7, octets).unwrap();
            assert_eq!(report.len(), octets);
            let at = usize::try_from(IDENTITY_AT).unwrap();
            assert_eq!(ProbeIdentity::read(&report[at..]), Some(identity));
            assert!(matches!(Apdu::decode(&report), Ok(Apdu::Prst(_))));
        }
        assert_eq!(report(identity, 7, REPORT_MIN - 1), None);
    }

    /// RFC 7252 and TS-0008 by hand: what is no request of a reading is none.
    #[test]
    fn other_datagrams_are_no_readings() {
        let datagrams: [&[u8]; 4] = [b"", &[0x50, 0x02, 0, 1], &[0x50, 0x45, 0, 1], &[FILLING; 80]];
        for octets in datagrams {
            assert_eq!(reading(octets), None, "{octets:x?}");
            assert_eq!(answer(octets), None, "{octets:x?}");
        }
    }

    /// RFC 7252 §5.2.1 and TS-0008 by hand: a confirmable POST of the token 0x7a with the request
    /// identifier `ab` (option 283, a delta of 13 + 256 + 14).
    #[test]
    fn a_confirmable_request_is_answered_as_done() {
        let request = [0x41, 0x02, 0x12, 0x34, 0x7a, 0xe2, 0x00, 0x0e, b'a', b'b'];
        let octets = answer(&request).unwrap();
        let read = Message::parse(&octets).unwrap();
        assert_eq!(octets[..5], [0x61, 0x41, 0x12, 0x34, 0x7a], "{octets:x?}");
        assert_eq!(
            (read.value(option::RQI), read.uint(option::RSC)),
            (Some(&b"ab"[..]), Some(2001))
        );
        let mut unconfirmed = request;
        unconfirmed[0] = 0x51;
        assert_eq!(answer(&unconfirmed), None);
    }
}
