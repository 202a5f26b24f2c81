//! Plan of a report as CoAP requests: what the data plane needs to send a device's readings to a
//! CSE without asking anybody.
//!
//! A [`CoapPlan`] is compiled from a [`ReportPlan`] once the layout of a device's reports is known.
//! It has a form of plain octets ([`CoapPlan::octets`]), for the table that both planes share. A
//! [`CoapWriter`] writes whole messages by it (RFC 7252, TS-0008), of which only type, message ID
//! and token are left to the sender.

mod content;
mod driver;
mod octets;

use crate::device::Device;
use crate::instance::{Instances, ReportArrival, ReportIdentity};
use crate::plan::{PrimitivePlan, ReportPlan};
use crate::plan::{code, flags, float, meaning, push_code, push_flags, sfloat, time};
use crate::template::{push_decimal, push_number, push_time};
use content::{ContentPiece, pieces};
use gatewright_onem2m::coap::primitive::{option, write_request};
use gatewright_onem2m::{Operation, Request, ResourceType, Serialisation};
use gatewright_wire::coap::{Builder, Code, MessageType, OptionNumber};

/// Octets of the token of a planned message.
pub const TOKEN_LEN: usize = 4;
/// Octets of a planned message before its options: header and token (RFC 7252 §3).
pub const HEADER_LEN: usize = 4 + TOKEN_LEN;
/// Octets of the largest planned message: with its headers it is one frame.
pub const MESSAGE_MAX: usize = 1_200;
/// Version 1, non-confirmable, length of the token; POST; message ID and token 0 (RFC 7252 §3).
const HEADER: [u8; HEADER_LEN] = [0x54, 0x02, 0, 0, 0, 0, 0, 0];
/// Marks the content of a message (RFC 7252 §3).
const PAYLOAD_MARKER: u8 = 0xFF;
/// Delta of the option with the request identifier to the one with the originator before it.
const IDENTIFIER_DELTA: u8 = 4;
/// Longest value of an option with one octet of extended length (RFC 7252 §3.1).
const OPTION_MAX: usize = 268;
/// Octets of an option's value from which its length has an octet of its own (RFC 7252 §3.1).
const OPTION_EXTENDED: usize = 13;
/// Octets of options before the request identifier.
const OPTIONS_MAX: usize = 640;
/// Octets of a report before its observations' list: what differs when it is repeated in another
/// association is in them ([`ReportRecord::measured`](gatewright_health::manager::ReportRecord)).
const MEASURED_AT: usize = 26;
/// Where a report says which kind of event report it is, and a confirmed one's word for it
/// (ISO/IEEE 11073-20601, roiv-cmip-confirmed-event-report).
const CHOICE_AT: usize = 8;
const CONFIRMED: [u8; 2] = [1, 1];
/// Digits of the largest number of 64 bits.
const DIGITS_MAX: usize = 20;
/// Octets of a report's identity in a name: two numbers.
const IDENTITY_MAX: usize = 2 * DIGITS_MAX + 1;

/// Reports of one layout, and the CoAP requests that they become.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CoapPlan {
    serialisation: Serialisation,
    /// Octets of a report.
    length: usize,
    /// What each report has, and where.
    fixed: Vec<(usize, Vec<u8>)>,
    /// Epoch in the names of reports without a time.
    epoch: u64,
    /// Where a report has the times of its observations, if the device reports any.
    times: Vec<usize>,
    /// The time of the report before the first planned one; 0 for none.
    last_time: u64,
    /// The request of each object.
    requests: Vec<RequestPlan>,
}

/// A request for one object's readings.
#[derive(Clone, Debug, Eq, PartialEq)]
struct RequestPlan {
    /// Options before the request identifier.
    options: Vec<u8>,
    /// The name of a reading, before and behind the report's identity.
    name: [Vec<u8>; 2],
    content: Vec<ContentPiece>,
}

impl CoapPlan {
    /// Compiles the plan of requests to a CSE; `moved` is the request as that CSE is to receive it.
    ///
    /// `None` if such reports have to go the general way, as they exceed the bounds of a plan.
    pub fn new(
        plan: &ReportPlan,
        device: &Device,
        serialisation: Serialisation,
        moved: impl Fn(Request) -> Request,
    ) -> Option<Self> {
        let (expected, fixed, primitives) = plan.parts();
        let request = |primitive| RequestPlan::new(primitive, device, serialisation, &moved);
        let requests: Vec<_> = primitives.iter().map(request).collect::<Option<_>>()?;
        let (length, fixed, epoch) = (expected.len(), runs(expected, fixed), device.epoch());
        let times = primitives.iter().filter_map(|it| it.time).collect();
        let plan = Self { serialisation, length, fixed, epoch, times, last_time: 0, requests };
        plan.is_within_bounds().then_some(plan)
    }

    /// Sets the report that has gone the general way before the first planned one.
    #[must_use]
    pub fn behind(self, report: &[u8]) -> Self {
        let last_time = self.identity(report).map_or(0, |own| own.epoch);
        Self { last_time, ..self }
    }

    /// The time of that report, if the device reports one.
    pub fn last_time(&self) -> Option<u64> {
        Some(self.last_time).filter(|time| *time > 0)
    }

    /// Whether devices wait for an answer to such reports.
    pub fn is_confirmed(&self) -> bool {
        let choice = CHOICE_AT..CHOICE_AT + CONFIRMED.len();
        self.fixed.iter().any(|(at, octets)| {
            let from = choice.start.checked_sub(*at);
            let octets = from.and_then(|from| octets.get(from..));
            octets.is_some_and(|octets| octets.starts_with(&CONFIRMED))
        })
    }

    /// Number of requests that a report becomes.
    pub const fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Whether each message fits into a frame, and each name into an option.
    fn is_within_bounds(&self) -> bool {
        let fits = |request: &RequestPlan| {
            let name = request.name.iter().map(Vec::len).sum::<usize>() + IDENTITY_MAX;
            let content = request.content.iter().map(|it| it.length_max(name));
            let length = HEADER_LEN + request.options.len() + name + content.sum::<usize>();
            name <= OPTION_MAX && length <= MESSAGE_MAX
        };
        self.requests.iter().all(fits)
    }

    /// The identity of a report by the first of its times that is one since 1970
    /// ([`DeviceAssociation::read`](crate::DeviceAssociation::read)). A report whose time is that of
    /// the one before has none.
    pub fn identity(&self, report: &[u8]) -> Option<ReportIdentity> {
        let time = self.times.iter().find_map(|at| time(report, *at)?.to_unix())?;
        Some(ReportIdentity::timed(time, report.get(MEASURED_AT..)?))
    }

    /// Whether a report has this layout, and values that the plan can write.
    fn matches(&self, report: &[u8]) -> bool {
        let is_there = |(at, octets): &(usize, Vec<u8>)| {
            report.get(*at..).is_some_and(|rest| rest.starts_with(octets))
        };
        report.len() == self.length
            && self.fixed.iter().all(is_there)
            && self.requests.iter().flat_map(|it| &it.content).all(|piece| match *piece {
                ContentPiece::Sfloat(at) => sfloat(report, at).is_some(),
                ContentPiece::Float(at) | ContentPiece::Period(at) => float(report, at).is_some(),
                ContentPiece::AbsoluteTime(at) => time(report, at).is_some(),
                ContentPiece::Meaning(place) => meaning(report, place).is_some(),
                _ => true,
            })
    }
}

impl RequestPlan {
    fn new(
        primitive: &PrimitivePlan,
        device: &Device,
        serialisation: Serialisation,
        moved: impl Fn(Request) -> Request,
    ) -> Option<Self> {
        let handle = primitive.handle;
        let (system, epoch) = device.name_head();
        let name = [system.as_bytes().to_vec(), format!("-{handle}").into_bytes()];
        let address = device.place(handle)?.address.as_str();
        // Identifier and content are behind what is taken from here.
        let request = Request::new(Operation::Create, address, device.originator(), "0")
            .creating(ResourceType::ContentInstance, "{}");
        let options = options(&moved(request), serialisation)?;
        let content = pieces(&primitive.content, (&name, epoch), serialisation)?;
        Some(Self { options, name, content })
    }

    /// Writes the option with the request identifier, which is the reading's name.
    fn put_identifier(&self, message: &mut Vec<u8>, identity: &[u8]) {
        let length = self.name_length(identity);
        if length < OPTION_EXTENDED {
            message.push(IDENTIFIER_DELTA << 4 | octet(length));
        } else {
            message.push(IDENTIFIER_DELTA << 4 | octet(OPTION_EXTENDED));
            message.push(octet(length - OPTION_EXTENDED));
        }
        self.put_name(message, identity);
    }

    fn name_length(&self, identity: &[u8]) -> usize {
        self.name.iter().map(Vec::len).sum::<usize>() + identity.len()
    }

    fn put_name(&self, message: &mut Vec<u8>, identity: &[u8]) {
        let [before, behind] = &self.name;
        message.extend_from_slice(before);
        message.extend_from_slice(identity);
        message.extend_from_slice(behind);
    }
}

/// The runs of octets that a mask has as fixed.
fn runs(expected: &[u8], fixed: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
    for (at, (octet, _)) in expected.iter().zip(fixed).enumerate().filter(|(_, (_, it))| **it > 0) {
        match runs.last_mut() {
            Some((start, run)) if *start + run.len() == at => run.push(*octet),
            _ => runs.push((at, vec![*octet])),
        }
    }
    runs
}

/// The options of a request before its identifier, which is the last one.
fn options(request: &Request, serialisation: Serialisation) -> Option<Vec<u8>> {
    let mut message = write_request("coap://0.0.0.0", request, serialisation).ok()?;
    message.options.sort_by_key(|(number, _)| number.0);
    let (last, before) = message.options.split_last()?;
    let [.., (originator, _)] = before else { return None };
    if last.0 != option::RQI || originator.0 + u16::from(IDENTIFIER_DELTA) != option::RQI.0 {
        return None;
    }
    let mut octets = vec![0; HEADER_LEN + OPTIONS_MAX];
    let token = [0; TOKEN_LEN];
    let kind = MessageType::NON_CONFIRMABLE;
    let mut builder = Builder::new(&mut octets, kind, Code::POST, 0, &token).ok()?;
    for (number, value) in before {
        builder.option(OptionNumber(number.0), value).ok()?;
    }
    let written = builder.finish();
    (written.get(..HEADER_LEN)? == HEADER).then_some(written.get(HEADER_LEN..)?.to_vec())
}

/// A length that is known to be below 256.
fn octet(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

/// Writes messages by plans; its buffers are reused.
#[derive(Debug, Default)]
pub struct CoapWriter {
    /// Writes times of arrival.
    instances: Instances,
    message: Vec<u8>,
    /// Digits of the report's number.
    number: String,
    /// The report's identity in names.
    identity: String,
}

impl CoapWriter {
    /// Converts a report: passes each of its messages, non-confirmable with message ID and token 0,
    /// to `sink`. Returns whether it did; a report that goes the general way is left as it is, and
    /// `sink` not called. A report with an `own` identity is named by it, any other one by its number.
    pub fn convert(
        &mut self,
        plan: &CoapPlan,
        (arrival, own): (ReportArrival, Option<ReportIdentity>),
        report: &[u8],
        mut sink: impl FnMut(&mut [u8]),
    ) -> bool {
        if !plan.matches(report) {
            return false;
        }
        let Self { instances, message, number, identity } = self;
        instances.start(arrival);
        number.clear();
        push_number(number, arrival.report);
        let own = own.unwrap_or(ReportIdentity { epoch: plan.epoch, report: arrival.report });
        identity.clear();
        push_number(identity, own.epoch);
        identity.push('-');
        push_number(identity, own.report);
        let (number, identity) = (number.as_bytes(), identity.as_bytes());
        let (received, text) = instances.received_and_text();
        for request in &plan.requests {
            message.clear();
            message.extend_from_slice(&HEADER);
            message.extend_from_slice(&request.options);
            request.put_identifier(message, identity);
            message.push(PAYLOAD_MARKER);
            for piece in &request.content {
                text.clear();
                match *piece {
                    ContentPiece::Octets(ref octets) => message.extend_from_slice(octets),
                    ContentPiece::Identity => message.extend_from_slice(identity),
                    ContentPiece::Report => {
                        content::put_number(plan.serialisation, message, arrival.report, number);
                    }
                    ContentPiece::Name => {
                        let length = request.name_length(identity);
                        content::open_text(plan.serialisation, message, length);
                        request.put_name(message, identity);
                        content::close_text(plan.serialisation, message);
                    }
                    ContentPiece::Received => put_text(plan, message, received),
                    ContentPiece::Period(_) => {
                        push_value(text, piece, report);
                        content::put_decimal(plan.serialisation, message, text);
                    }
                    _ => {
                        push_value(text, piece, report);
                        put_text(plan, message, text.trim_matches('"'));
                    }
                }
            }
            sink(message);
        }
        true
    }
}

/// Writes a text with what it needs around it.
fn put_text(plan: &CoapPlan, message: &mut Vec<u8>, text: &str) {
    content::open_text(plan.serialisation, message, text.len());
    message.extend_from_slice(text.as_bytes());
    content::close_text(plan.serialisation, message);
}

/// Appends the value of a gap, which the plan has found in the report.
fn push_value(text: &mut String, piece: &ContentPiece, report: &[u8]) {
    let decimal = match *piece {
        ContentPiece::Sfloat(at) => sfloat(report, at),
        ContentPiece::Float(at) | ContentPiece::Period(at) => float(report, at),
        _ => None,
    };
    if let Some(decimal) = decimal {
        return push_decimal(text, decimal);
    }
    match *piece {
        ContentPiece::AbsoluteTime(at) => {
            if let Some(time) = time(report, at) {
                push_time(text, time);
            }
        }
        ContentPiece::Code(place) => {
            if let Some(code) = code(report, place) {
                push_code(text, code);
            }
        }
        ContentPiece::Meaning(place) => text.push_str(meaning(report, place).unwrap_or_default()),
        ContentPiece::Bits(count, at) => {
            push_flags(text, count, flags(report, count, at).unwrap_or_default());
        }
        _ => {}
    }
}
