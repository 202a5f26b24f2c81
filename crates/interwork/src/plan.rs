//! Plan of a report: how scan reports of one layout become request primitives, compiled once for
//! each association.
//!
//! Most devices send most of the time reports that differ only in their values and numbers. A
//! [`ReportPlan`] has the octets of such a report with its gaps, and the text of the primitives
//! with theirs. A report that does not match to the octet, or has a value that the plan cannot
//! write, goes the general way: [`observe`](gatewright_health::convert::observe) and
//! [`Instances::primitive`], which write the same.

use crate::device::Device;
use crate::instance::{Instances, ReportArrival};
use crate::mapping::{Mapping, ValueSource};
use crate::template::{TemplatePiece, is_there, push_decimal, push_number, push_time};
use gatewright_health::apdu::Apdu;
use gatewright_health::code::{AttributeId, DataRequestId, Handle, InvokeId, attribute, event};
use gatewright_health::configuration::Configuration;
use gatewright_health::convert::{Observation, observe};
use gatewright_health::data::{DataApdu, DataMessage, EventReport};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::report::{FixedObservation, RawObservation, RawValues, Report, encode_scan};
use gatewright_health::time::AbsoluteTime;

/// Objects in a planned report.
pub const OBJECTS_MAX: usize = 8;
/// Octets of a planned report; a longer one goes the general way.
pub const REPORT_MAX: usize = 1_400;
/// Octets of a report before its first observation (ISO/IEEE 11073-20601, PRST with a fixed scan).
const HEAD: usize = 30;
/// Octets of an observation before its values: handle and length.
const OBSERVATION_HEAD: usize = 4;
/// What changes in the head of any report: invoke-id, event time, number of the scan.
const HEAD_GAPS: [(usize, usize); 3] = [(6, 2), (14, 4), (24, 2)];
/// A calendar time that is a date, for the report that a plan is compiled from.
const ANY_TIME: [u8; 8] = [0x20, 0x09, 0x06, 0x12, 0x12, 0x10, 0, 0];

/// Kind of an event report: whether its device waits for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Confirmation {
    /// The device waits for an answer.
    Confirmed,
    /// It does not.
    Unconfirmed,
}

/// Reports of one layout, and the primitives that they become.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReportPlan {
    /// A report of this layout.
    expected: Vec<u8>,
    /// For each of its octets: all ones where a report must equal it, 0 in a gap.
    fixed: Vec<u8>,
    /// The primitive of each object.
    primitives: Vec<PrimitivePlan>,
}

/// The primitive that an observation becomes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PrimitivePlan {
    pub(crate) handle: Handle,
    /// Everything before its content.
    head: [PlanPiece; 3],
    /// Its content; a brace behind it ends the primitive.
    pub(crate) content: Vec<PlanPiece>,
}

/// A part of a primitive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum PlanPiece {
    /// Text that never changes.
    Text(String),
    /// The number of the report.
    Report,
    /// The time of arrival, in quotes.
    Received,
    /// A value, in quotes, from the SFLOAT at this offset.
    Sfloat(usize),
    /// A value, in quotes, from the FLOAT at this offset.
    Float(usize),
    /// A calendar time, in quotes, from the octets at this offset.
    AbsoluteTime(usize),
}

/// Gaps of one observation.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    value: Option<PlanGap>,
    time: Option<usize>,
    /// Octets behind the mapped ones: where they begin, and how many.
    skipped: (usize, usize),
}

/// Where a value is, and how it is encoded.
#[derive(Clone, Copy, Debug)]
enum PlanGap {
    Sfloat(usize),
    Float(usize),
}

impl ReportPlan {
    /// Compiles the plan of reports with one observation of each of `handles`, in this order;
    /// `release` is the release version indicator of the primitives.
    ///
    /// `None` if such reports have to go the general way: an object that is unknown or named twice,
    /// a value that is neither SFLOAT nor FLOAT, or more than the bounds of a plan.
    pub fn new(
        mapping: &Mapping,
        device: &Device,
        configuration: &Configuration,
        (handles, confirmation): (&[Handle], Confirmation),
        release: &str,
    ) -> Option<Self> {
        Self::planned((mapping, device, configuration), (handles, confirmation), &[], release)
    }

    /// Compiles the plan of reports of the same layout as `report`, octets behind the mapped ones
    /// included, which are skipped.
    ///
    /// `None` as for [`Self::new`], or if it is no fixed scan report.
    pub fn of_report(
        mapping: &Mapping,
        device: &Device,
        configuration: &Configuration,
        report: &[u8],
        release: &str,
    ) -> Option<Self> {
        let Ok(Apdu::Prst(data)) = Apdu::decode(report) else { return None };
        let (event, confirmation) = match data.message {
            DataMessage::EventReport(event) => (event, Confirmation::Unconfirmed),
            DataMessage::ConfirmedEventReport(event) => (event, Confirmation::Confirmed),
            _ => return None,
        };
        let Ok(Report::Scan(scan)) = event.report() else { return None };
        let fixed = |observation: RawObservation<'_>| match observation.values {
            RawValues::Fixed(fixed) => Some((fixed.handle, fixed.octets.len())),
            RawValues::Variable(_) | RawValues::Grouped(_) => None,
        };
        let observations: Vec<_> = scan.observations().map(fixed).collect::<Option<_>>()?;
        let (handles, widths): (Vec<_>, Vec<_>) = observations.into_iter().unzip();
        let layout = (handles.as_slice(), confirmation);
        Self::planned((mapping, device, configuration), layout, &widths, release)
    }

    /// The plan for observations of these widths, or of what is mapped.
    fn planned(
        (mapping, device, configuration): (&Mapping, &Device, &Configuration),
        (handles, confirmation): (&[Handle], Confirmation),
        widths: &[usize],
        release: &str,
    ) -> Option<Self> {
        let is_twice = |(at, it): (usize, &Handle)| handles.iter().skip(at + 1).any(|by| by == it);
        if handles.is_empty()
            || handles.len() > OBJECTS_MAX
            || handles.iter().enumerate().any(is_twice)
        {
            return None;
        }
        let (values, gaps) = layout(configuration, handles, widths)?;
        let expected = encoded(handles, &values, confirmation)?;
        let mut fixed = vec![u8::MAX; expected.len()];
        HEAD_GAPS.into_iter().try_for_each(|gap| open(&mut fixed, gap))?;
        for Gaps { value, time, skipped } in &gaps {
            open(&mut fixed, *skipped)?;
            match value {
                Some(PlanGap::Sfloat(at)) => open(&mut fixed, (*at, 2))?,
                Some(PlanGap::Float(at)) => open(&mut fixed, (*at, 4))?,
                None => return None,
            }
            time.map_or(Some(()), |at| open(&mut fixed, (at, ANY_TIME.len())))?;
        }
        let primitives = written(mapping, device, configuration, &expected, &gaps, release)?;
        Some(Self { expected, fixed, primitives })
    }

    /// Converts a report: passes each of its primitives, JSON with short names, to `sink`. Returns
    /// whether it did; a report that goes the general way is left as it is, and `sink` not called.
    pub fn convert(
        &self,
        instances: &mut Instances,
        arrival: ReportArrival,
        report: &[u8],
        mut sink: impl FnMut(&str),
    ) -> bool {
        if !self.matches(report) {
            return false;
        }
        instances.start(arrival);
        let (received, text) = instances.received_and_text();
        for PrimitivePlan { head, content, .. } in &self.primitives {
            text.clear();
            for piece in head.iter().chain(content) {
                // `matches` has seen that each gap has a value that can be written.
                if write(text, piece, received, arrival, report).is_none() {
                    return false;
                }
            }
            text.push('}');
            sink(text);
        }
        true
    }

    /// A report of this layout, which of its octets are fixed, and its primitives.
    pub(crate) fn parts(&self) -> (&[u8], &[u8], &[PrimitivePlan]) {
        (&self.expected, &self.fixed, &self.primitives)
    }

    /// Whether a report has this layout, and values that the plan can write.
    fn matches(&self, report: &[u8]) -> bool {
        let differs = |((octet, expected), fixed): ((&u8, &u8), &u8)| (octet ^ expected) & fixed;
        let pairs = report.iter().zip(&self.expected).zip(&self.fixed);
        report.len() == self.expected.len()
            && pairs.map(differs).fold(0, |all, one| all | one) == 0
            && self.primitives.iter().flat_map(|it| &it.content).all(|piece| match *piece {
                PlanPiece::Sfloat(at) => sfloat(report, at).is_some(),
                PlanPiece::Float(at) => float(report, at).is_some(),
                PlanPiece::AbsoluteTime(at) => time(report, at).is_some(),
                PlanPiece::Text(_) | PlanPiece::Report | PlanPiece::Received => true,
            })
    }
}

/// Octets of each observation, with any values, and where its gaps are in the report.
fn layout(
    configuration: &Configuration,
    handles: &[Handle],
    widths: &[usize],
) -> Option<(Vec<Vec<u8>>, Vec<Gaps>)> {
    let (mut values, mut gaps) = (Vec::new(), Vec::new());
    let mut at = HEAD;
    for (nth, handle) in handles.iter().enumerate() {
        at += OBSERVATION_HEAD;
        let (mut octets, mut found) = (Vec::new(), Gaps::default());
        for entry in &configuration.object(*handle)?.map {
            let place = at + octets.len();
            let any = place_of(entry.attribute, place, &mut found)?;
            if any.len() != usize::from(entry.length) {
                return None;
            }
            octets.extend_from_slice(any);
        }
        let more = widths.get(nth).map_or(Some(0), |width| width.checked_sub(octets.len()))?;
        found.skipped = (at + octets.len(), more);
        octets.resize(octets.len() + more, 0);
        at += octets.len();
        values.push(octets);
        gaps.push(found);
    }
    (at <= REPORT_MAX).then_some((values, gaps))
}

/// Notes the gap of an attribute, and returns octets for it; `None` if a plan cannot have it.
fn place_of(id: AttributeId, place: usize, found: &mut Gaps) -> Option<&'static [u8]> {
    match id {
        attribute::NUMERIC_BASIC if found.value.is_none() => {
            found.value = Some(PlanGap::Sfloat(place));
            Some(&[0; 2])
        }
        attribute::NUMERIC_SIMPLE if found.value.is_none() => {
            found.value = Some(PlanGap::Float(place));
            Some(&[0; 4])
        }
        attribute::TIMESTAMP_ABSOLUTE if found.time.is_none() => {
            found.time = Some(place);
            Some(&ANY_TIME)
        }
        _ => None,
    }
}

/// The report with these observations.
fn encoded(handles: &[Handle], values: &[Vec<u8>], confirmation: Confirmation) -> Option<Vec<u8>> {
    let fixed = |(handle, octets): (&Handle, &Vec<u8>)| (*handle, octets.clone());
    let all: Vec<(Handle, Vec<u8>)> = handles.iter().zip(values).map(fixed).collect();
    let observations: Vec<FixedObservation<'_>> =
        all.iter().map(|(handle, octets)| FixedObservation { handle: *handle, octets }).collect();
    let info = encode_scan(DataRequestId::AGENT_INITIATED, 0, &observations).ok()?;
    let report =
        EventReport { handle: Handle::MDS, time: 0, event: event::SCAN_FIXED, info: &info };
    let message = match confirmation {
        Confirmation::Confirmed => DataMessage::ConfirmedEventReport(report),
        Confirmation::Unconfirmed => DataMessage::EventReport(report),
    };
    DataApdu { invoke_id: InvokeId(0), message }.encode().ok()
}

/// Makes octets of a report free to change.
fn open(fixed: &mut [u8], (at, width): (usize, usize)) -> Option<()> {
    fixed.get_mut(at..at + width)?.fill(0);
    Some(())
}

/// The primitives of `report`, with gaps instead of what changes.
fn written(
    mapping: &Mapping,
    device: &Device,
    configuration: &Configuration,
    report: &[u8],
    gaps: &[Gaps],
    release: &str,
) -> Option<Vec<PrimitivePlan>> {
    let Ok(Apdu::Prst(data)) = Apdu::decode(report) else { return None };
    let (DataMessage::EventReport(event) | DataMessage::ConfirmedEventReport(event)) = data.message
    else {
        return None;
    };
    let Ok(Report::Scan(scan)) = event.report() else { return None };
    // A mapping without any member would leave no comma to remove.
    if mapping.fields.is_empty() {
        return None;
    }
    let mut primitives = Vec::new();
    observe(configuration, event.handle, &scan, |observation| {
        let gaps = gaps.get(primitives.len()).copied().unwrap_or_default();
        primitives.push(primitive(device, observation, gaps, release));
    });
    let all: Option<Vec<_>> = primitives.into_iter().collect();
    all.filter(|all| all.len() == gaps.len())
}

/// The primitive of an observation, as [`Instances::primitive`] writes it.
fn primitive(
    device: &Device,
    observation: &Observation<'_>,
    gaps: Gaps,
    release: &str,
) -> Option<PrimitivePlan> {
    let place = device.place(observation.handle)?;
    let template = place.templates.iter().find(|template| template.fits(observation))?;
    let (system, epoch) = device.name_head();
    let handle = observation.handle;
    let head = [
        PlanPiece::Text(format!("{}{system}{epoch}", place.primitive)),
        PlanPiece::Report,
        PlanPiece::Text(format!("-{}\",\"rvi\":\"{release}\",\"ty\":4,\"pc\":", handle.0)),
    ];
    let mut pieces = Vec::new();
    let mut text = format!("{{\"m2m:cin\":{{\"rn\":\"{system}{epoch}");
    take(&mut pieces, &mut text, PlanPiece::Report);
    text = format!("-{}\",\"cnf\":\"application/json:0\",\"con\":{{", handle.0);
    for piece in template.pieces() {
        match piece {
            TemplatePiece::Text(members) => text.push_str(members),
            TemplatePiece::Hole(_, source) if !is_there(*source, observation) => {}
            TemplatePiece::Hole(key, source) => {
                text.push_str(key);
                let gap = match (source, gaps.value, gaps.time) {
                    (ValueSource::Value, Some(PlanGap::Sfloat(at)), _) => PlanPiece::Sfloat(at),
                    (ValueSource::Value, Some(PlanGap::Float(at)), _) => PlanPiece::Float(at),
                    (ValueSource::DeviceTime, _, Some(at)) => PlanPiece::AbsoluteTime(at),
                    (ValueSource::Received, ..) => PlanPiece::Received,
                    (ValueSource::Report, ..) => PlanPiece::Report,
                    _ => return None,
                };
                take(&mut pieces, &mut text, gap);
                text.push(',');
            }
        }
    }
    // The comma behind the last member.
    if text.pop() != Some(',') {
        return None;
    }
    text.push_str("}}}");
    pieces.push(PlanPiece::Text(text));
    Some(PrimitivePlan { handle, head, content: pieces })
}

/// Appends the text so far, and a gap behind it.
fn take(pieces: &mut Vec<PlanPiece>, text: &mut String, gap: PlanPiece) {
    pieces.push(PlanPiece::Text(core::mem::take(text)));
    pieces.push(gap);
}

/// Writes a piece; `None` if its value cannot be written.
fn write(
    text: &mut String,
    piece: &PlanPiece,
    received: &str,
    arrival: ReportArrival,
    report: &[u8],
) -> Option<()> {
    match *piece {
        PlanPiece::Text(ref constant) => text.push_str(constant),
        PlanPiece::Report => push_number(text, arrival.report),
        PlanPiece::Received => {
            text.push('"');
            text.push_str(received);
            text.push('"');
        }
        PlanPiece::Sfloat(at) => push_value(text, sfloat(report, at)?),
        PlanPiece::Float(at) => push_value(text, float(report, at)?),
        PlanPiece::AbsoluteTime(at) => push_time(text, time(report, at)?),
    }
    Some(())
}

fn push_value(text: &mut String, value: Decimal) {
    text.push('"');
    push_decimal(text, value);
    text.push('"');
}

/// The octets of a gap.
fn octets<const N: usize>(report: &[u8], at: usize) -> Option<[u8; N]> {
    report.get(at..)?.first_chunk().copied()
}

pub(crate) fn sfloat(report: &[u8], at: usize) -> Option<Decimal> {
    Number::from_sfloat(octets(report, at)?).decimal()
}

pub(crate) fn float(report: &[u8], at: usize) -> Option<Decimal> {
    Number::from_float(octets(report, at)?).decimal()
}

/// A calendar time that is a date.
pub(crate) fn time(report: &[u8], at: usize) -> Option<AbsoluteTime> {
    let time = AbsoluteTime(octets(report, at)?);
    time.parts().map(|_| time)
}
