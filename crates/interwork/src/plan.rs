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
use gatewright_health::code::{
    AttributeId, DataRequestId, Handle, InvokeId, Type, attribute, event,
};
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
/// Octets of a FLOAT.
const FLOAT_OCTETS: usize = 4;
/// Octets of the longest name of a code that a plan writes.
pub(crate) const MEANING_MAX: usize = 64;
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
    /// Offset of the device's calendar time, if the observation has one.
    pub(crate) time: Option<usize>,
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
    /// A code, in quotes, from the number at this offset.
    Code(CodePlace),
    /// The name of that code, in quotes.
    Meaning(CodePlace),
    /// So many flags, in quotes, from this offset.
    Bits(FlagCount, usize),
    /// A duration, a bare number, from the FLOAT at this offset.
    Period(usize),
}

/// Where a report has a code, and the partition of the nomenclature that it is from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CodePlace {
    pub(crate) at: usize,
    pub(crate) partition: u16,
}

/// Number of flags of a value (BITS-16, BITS-32).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FlagCount {
    Sixteen,
    ThirtyTwo,
}

impl FlagCount {
    pub(crate) const fn octets(self) -> usize {
        match self {
            Self::Sixteen => 2,
            Self::ThirtyTwo => 4,
        }
    }
}

/// Gaps of one observation.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    value: Option<PlanGap>,
    time: Option<usize>,
    /// The FLOAT with the duration.
    period: Option<usize>,
    /// Octets behind the mapped ones: where they begin, and how many.
    skipped: (usize, usize),
}

/// Where a value is, and how it is encoded.
#[derive(Clone, Copy, Debug)]
enum PlanGap {
    Sfloat(usize),
    Float(usize),
    Code(CodePlace),
    Bits(FlagCount, usize),
}

impl PlanGap {
    /// Where it is, and how many octets it has.
    const fn range(self) -> (usize, usize) {
        match self {
            Self::Sfloat(at) | Self::Code(CodePlace { at, .. }) => (at, 2),
            Self::Float(at) => (at, FLOAT_OCTETS),
            Self::Bits(count, at) => (at, count.octets()),
        }
    }
}

impl ReportPlan {
    /// Compiles the plan of reports with one observation of each of `handles`, in this order;
    /// `release` is the release version indicator of the primitives.
    ///
    /// `None` if such reports have to go the general way: an object that is unknown or named twice,
    /// a value that is neither a decimal, a code nor flags, or more than the bounds of a plan.
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
            RawValues::Fixed(fixed) => Some((fixed.handle, fixed.octets.to_vec())),
            RawValues::Variable(_) | RawValues::Grouped(_) => None,
        };
        let observations: Vec<_> = scan.observations().map(fixed).collect::<Option<_>>()?;
        let (handles, samples): (Vec<_>, Vec<_>) = observations.into_iter().unzip();
        let layout = (handles.as_slice(), confirmation);
        Self::planned((mapping, device, configuration), layout, &samples, release)
    }

    /// The plan for observations like these samples, or of what is mapped.
    fn planned(
        (mapping, device, configuration): (&Mapping, &Device, &Configuration),
        (handles, confirmation): (&[Handle], Confirmation),
        samples: &[Vec<u8>],
        release: &str,
    ) -> Option<Self> {
        let is_twice = |(at, it): (usize, &Handle)| handles.iter().skip(at + 1).any(|by| by == it);
        if handles.is_empty()
            || handles.len() > OBJECTS_MAX
            || handles.iter().enumerate().any(is_twice)
        {
            return None;
        }
        let (values, gaps) = layout(configuration, handles, samples)?;
        let expected = encoded(handles, &values, confirmation)?;
        let mut fixed = vec![u8::MAX; expected.len()];
        HEAD_GAPS.into_iter().try_for_each(|gap| open(&mut fixed, gap))?;
        for Gaps { value, time, period, skipped } in &gaps {
            open(&mut fixed, *skipped)?;
            match value {
                // Instances of a code without a name have a member less.
                Some(PlanGap::Code(place)) if code(&expected, *place)?.name().is_none() => {}
                Some(gap) => open(&mut fixed, gap.range())?,
                None => return None,
            }
            time.map_or(Some(()), |at| open(&mut fixed, (at, ANY_TIME.len())))?;
            period.map_or(Some(()), |at| open(&mut fixed, (at, FLOAT_OCTETS)))?;
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
                PlanPiece::Float(at) | PlanPiece::Period(at) => float(report, at).is_some(),
                PlanPiece::AbsoluteTime(at) => time(report, at).is_some(),
                PlanPiece::Code(place) => code(report, place).is_some(),
                PlanPiece::Meaning(place) => meaning(report, place).is_some(),
                PlanPiece::Bits(count, at) => flags(report, count, at).is_some(),
                PlanPiece::Text(_) | PlanPiece::Report | PlanPiece::Received => true,
            })
    }
}

/// Octets of each observation, with the codes of a sample and any other values, and where its gaps are
/// in the report.
fn layout(
    configuration: &Configuration,
    handles: &[Handle],
    samples: &[Vec<u8>],
) -> Option<(Vec<Vec<u8>>, Vec<Gaps>)> {
    let (mut values, mut gaps) = (Vec::new(), Vec::new());
    let mut at = HEAD;
    for (nth, handle) in handles.iter().enumerate() {
        at += OBSERVATION_HEAD;
        let (mut octets, mut found) = (Vec::new(), Gaps::default());
        let (object, sample) = (configuration.object(*handle)?, samples.get(nth));
        for entry in &object.map {
            let length = usize::from(entry.length);
            let place = Place { at: at + octets.len(), partition: object.kind.partition };
            let width = place_of(entry.attribute, place, &mut found)?;
            let from = octets.len();
            match entry.attribute {
                _ if width != length => return None,
                attribute::TIMESTAMP_ABSOLUTE => octets.extend_from_slice(&ANY_TIME),
                attribute::ENUMERATION_OID if let Some(sample) = sample => {
                    octets.extend_from_slice(sample.get(from..from + length)?);
                }
                _ => octets.resize(from + length, 0),
            }
        }
        let more = sample.map_or(Some(0), |sample| sample.len().checked_sub(octets.len()))?;
        found.skipped = (at + octets.len(), more);
        octets.resize(octets.len() + more, 0);
        at += octets.len();
        values.push(octets);
        gaps.push(found);
    }
    (at <= REPORT_MAX).then_some((values, gaps))
}

/// Where an attribute is, and the partition of its object.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    partition: u16,
}

/// Notes the gap of an attribute, and returns its octets' number; `None` if a plan cannot have it.
fn place_of(id: AttributeId, Place { at, partition }: Place, found: &mut Gaps) -> Option<usize> {
    let gap = match id {
        attribute::NUMERIC_BASIC => PlanGap::Sfloat(at),
        attribute::NUMERIC_SIMPLE => PlanGap::Float(at),
        attribute::ENUMERATION_OID => PlanGap::Code(CodePlace { at, partition }),
        attribute::ENUMERATION_BITS16 => PlanGap::Bits(FlagCount::Sixteen, at),
        attribute::ENUMERATION_BITS32 => PlanGap::Bits(FlagCount::ThirtyTwo, at),
        attribute::TIMESTAMP_ABSOLUTE if found.time.is_none() => {
            found.time = Some(at);
            return Some(ANY_TIME.len());
        }
        attribute::ACTIVE_PERIOD if found.period.is_none() => {
            found.period = Some(at);
            return Some(FLOAT_OCTETS);
        }
        _ => return None,
    };
    found.value.replace(gap).is_none().then_some(gap.range().1)
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
                let gap = match source {
                    ValueSource::Value => match gaps.value? {
                        PlanGap::Sfloat(at) => PlanPiece::Sfloat(at),
                        PlanGap::Float(at) => PlanPiece::Float(at),
                        PlanGap::Code(place) => PlanPiece::Code(place),
                        PlanGap::Bits(count, at) => PlanPiece::Bits(count, at),
                    },
                    ValueSource::Meaning => match gaps.value? {
                        PlanGap::Code(place) => PlanPiece::Meaning(place),
                        _ => return None,
                    },
                    ValueSource::DeviceTime => PlanPiece::AbsoluteTime(gaps.time?),
                    ValueSource::Period => PlanPiece::Period(gaps.period?),
                    ValueSource::Received => PlanPiece::Received,
                    ValueSource::Report => PlanPiece::Report,
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
    Some(PrimitivePlan { handle, time: gaps.time, head, content: pieces })
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
        PlanPiece::Period(at) => push_decimal(text, float(report, at)?),
        PlanPiece::Code(place) => {
            text.push('"');
            push_code(text, code(report, place)?);
            text.push('"');
        }
        PlanPiece::Meaning(place) => {
            text.push('"');
            text.push_str(meaning(report, place)?);
            text.push('"');
        }
        PlanPiece::Bits(count, at) => {
            text.push('"');
            push_flags(text, count, flags(report, count, at)?);
            text.push('"');
        }
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

/// A code.
pub(crate) fn code(report: &[u8], CodePlace { at, partition }: CodePlace) -> Option<Type> {
    Some(Type::new(partition, u16::from_be_bytes(octets(report, at)?)))
}

/// The name of a code that has one, of at most [`MEANING_MAX`] octets.
pub(crate) fn meaning(report: &[u8], place: CodePlace) -> Option<&'static str> {
    code(report, place)?.name().filter(|name| name.len() <= MEANING_MAX)
}

/// Flags, the first ones highest.
pub(crate) fn flags(report: &[u8], count: FlagCount, at: usize) -> Option<u32> {
    match count {
        FlagCount::Sixteen => octets(report, at).map(u16::from_be_bytes).map(u32::from),
        FlagCount::ThirtyTwo => octets(report, at).map(u32::from_be_bytes),
    }
}

/// Appends a code as its `Display` shows it.
pub(crate) fn push_code(text: &mut String, code: Type) {
    push_number(text, code.partition.into());
    text.push(':');
    push_number(text, code.code.into());
}

/// Appends flags as hexadecimal digits, two an octet.
pub(crate) fn push_flags(text: &mut String, count: FlagCount, flags: u32) {
    const BITS_A_DIGIT: usize = 4;
    for digit in (0..count.octets() * 2).rev() {
        let value = flags >> (digit * BITS_A_DIGIT) & 0xF;
        text.push(char::from_digit(value, 16).unwrap_or('0'));
    }
}

/// A calendar time that is a date.
pub(crate) fn time(report: &[u8], at: usize) -> Option<AbsoluteTime> {
    let time = AbsoluteTime(octets(report, at)?);
    time.parts().map(|_| time)
}
