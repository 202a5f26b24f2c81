//! Conversion of a report's octets to observations, without allocation.
//!
//! A [`Configuration`] locates value, time and status; every observation goes to a sink as soon as
//! it is complete. Harmless faults (octets after the mapped ones, unconfigured handles) are skipped
//! and counted.

use crate::apdu::Attribute;
use crate::code::{AttributeId, Handle, PersonId, Type, UnitCode, attribute};
use crate::configuration::{Configuration, MapEntry, Object, Waveform};
use crate::decimal::{Decimal, Number};
use crate::mder::{Element, List, Malformed, Reader};
use crate::report::{RawObservation, RawValues, ScanReport};
use crate::time::{AbsoluteTime, BaseOffsetTime};

/// Quality of a measurement, as bits (MeasurementStatus).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct MeasurementStatus(pub u16);

impl MeasurementStatus {
    /// The standard's names of the bits, highest first.
    pub const NAMES: [(u16, &'static str); 11] = [
        (0x8000, "invalid"),
        (0x4000, "questionable"),
        (0x2000, "not-available"),
        (0x1000, "calibration-ongoing"),
        (0x0800, "test-data"),
        (0x0400, "demo-data"),
        (0x0080, "validated-data"),
        (0x0040, "early-indication"),
        (0x0020, "msmt-ongoing"),
        (0x0002, "msmt-state-in-alarm"),
        (0x0001, "msmt-state-al-inhibited"),
    ];

    /// Test data (20601, functional units): not a measurement of a person.
    pub const TEST_DATA: u16 = 0x0800;

    /// The names of the bits that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// Time of a measurement, by each clock that the device has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Timestamps {
    /// By the device's calendar clock.
    pub absolute: Option<AbsoluteTime>,
    /// By the device's relative clock, in 1/8 ms.
    pub relative: Option<u32>,
    /// By the device's high-resolution clock, in microseconds.
    pub high_resolution: Option<u64>,
    /// By base time with offset.
    pub base_offset: Option<BaseOffsetTime>,
}

/// Measured value.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Value<'a> {
    /// No value, only a duration; see [`Observation::active_period`].
    #[default]
    None,
    /// A number.
    Number(Number),
    /// A code.
    Code(Type),
    /// Flags, 16 of them.
    Bits16(u16),
    /// Flags, 32 of them.
    Bits32(u32),
    /// Text, in the device's character set.
    Text(&'a [u8]),
    /// Samples of a waveform, in the object's format.
    Samples(&'a [u8]),
}

/// One value of one object at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Observation<'a> {
    /// The object.
    pub handle: Handle,
    /// Index of a compound's value; 0 for a single one.
    pub component: u16,
    /// The person, if the report names one.
    pub person: Option<PersonId>,
    /// The quantity.
    pub kind: Type,
    /// The value.
    pub value: Value<'a>,
    /// The unit.
    pub unit: Option<UnitCode>,
    /// The time.
    pub time: Timestamps,
    /// Duration, in seconds.
    pub active_period: Option<Decimal>,
    /// Measurement status.
    pub status: MeasurementStatus,
    /// The object it belongs to.
    pub source: Option<Handle>,
    /// Waveform parameters, for samples.
    pub waveform: Option<Waveform>,
}

/// Counts of one conversion.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Observations delivered.
    pub observations: u32,
    /// Observations of unconfigured handles, skipped.
    pub unknown_handles: u32,
    /// Observations with octets after the mapped ones, which were ignored.
    pub trailing: u32,
    /// Observations with a missing or malformed part; the valid part is delivered.
    pub cut: u32,
    /// Calendar times that are no valid date; the observation is delivered with its octets.
    pub invalid_times: u32,
    /// Unexpected attributes and periods that are no number, ignored.
    pub ignored_attributes: u32,
}

impl Tally {
    /// Whether the report concerns configured objects and nothing of it could be decoded.
    pub const fn is_unreadable(&self) -> bool {
        self.cut > 0 && self.observations == 0
    }

    /// Adds the counts of another report.
    pub fn add(&mut self, other: Self) {
        self.observations += other.observations;
        self.unknown_handles += other.unknown_handles;
        self.trailing += other.trailing;
        self.cut += other.cut;
        self.invalid_times += other.invalid_times;
        self.ignored_attributes += other.ignored_attributes;
    }
}

/// Decodes the observations of `report`, sent by the object `reporter` (the device, 0, or a
/// scanner), and passes each to `sink`.
pub fn observe<'a>(
    configuration: &Configuration,
    reporter: Handle,
    report: &ScanReport<'a>,
    mut sink: impl FnMut(&Observation<'a>),
) -> Tally {
    let mut tally = Tally::default();
    for RawObservation { person, values } in report.observations() {
        match values {
            RawValues::Fixed(fixed) => match configuration.object(fixed.handle) {
                Some(object) => {
                    let mut reader = Reader::new(fixed.octets);
                    let mut draft = Draft::new(object, person);
                    let rest = match draft.take_mapped(&object.map, &mut reader) {
                        Ended::Whole => reader.rest(),
                        Ended::Early => &[],
                    };
                    deliver(&draft, rest, &mut tally, &mut sink);
                }
                None => tally.unknown_handles += 1,
            },
            RawValues::Variable(variable) => match configuration.object(variable.handle) {
                Some(object) => {
                    let mut draft = Draft::new(object, person);
                    draft.take_named(variable.attributes);
                    deliver(&draft, &[], &mut tally, &mut sink);
                }
                None => tally.unknown_handles += 1,
            },
            RawValues::Grouped(octets) => {
                let Some(scanner) = configuration.object(reporter) else {
                    tally.unknown_handles += 1;
                    continue;
                };
                observe_group(configuration, scanner, person, octets, &mut tally, &mut sink);
            }
        }
    }
    tally
}

/// Decodes one grouped observation: the octets of each object of the scanner in turn.
fn observe_group<'a>(
    configuration: &Configuration,
    scanner: &Object,
    person: Option<PersonId>,
    octets: &'a [u8],
    tally: &mut Tally,
    sink: &mut impl FnMut(&Observation<'a>),
) {
    let mut reader = Reader::new(octets);
    for group in &scanner.groups {
        let Some(object) = configuration.object(group.handle) else {
            tally.unknown_handles += 1;
            let length = group.map.iter().map(|entry| usize::from(entry.length)).sum();
            if reader.octets(length).is_err() {
                break;
            }
            continue;
        };
        let mut draft = Draft::new(object, person);
        let ended = draft.take_mapped(&group.map, &mut reader);
        deliver(&draft, &[], tally, sink);
        if ended == Ended::Early {
            return;
        }
    }
    tally.trailing += u32::from(!reader.is_empty());
}

/// Passes the complete values of a draft to the sink.
pub(crate) fn deliver<'a>(
    draft: &Draft<'a, '_>,
    rest: &[u8],
    tally: &mut Tally,
    sink: &mut impl FnMut(&Observation<'a>),
) {
    tally.cut += u32::from(draft.is_cut);
    tally.trailing += u32::from(!rest.is_empty());
    tally.ignored_attributes += draft.ignored;
    let absolute = draft.observation.time.absolute;
    tally.invalid_times += u32::from(absolute.is_some_and(|time| time.parts().is_none()));
    let Compound::None = draft.compound else {
        return deliver_compound(draft, tally, sink);
    };
    // A report that only repeats the time tells nothing.
    let observation = &draft.observation;
    if observation.value != Value::None || observation.active_period.is_some() {
        tally.observations += 1;
        sink(observation);
    }
}

/// Passes each value of a compound to the sink as an observation.
fn deliver_compound<'a>(
    draft: &Draft<'a, '_>,
    tally: &mut Tally,
    sink: &mut impl FnMut(&Observation<'a>),
) {
    let mut observation = draft.observation;
    match draft.compound {
        Compound::None => {}
        Compound::Basic(list) => {
            for (place, Sfloat(number)) in (0..).zip(list) {
                draft.part(place, number, &mut observation);
                tally.observations += 1;
                sink(&observation);
            }
        }
        Compound::Simple(list) => {
            for (place, Float(number)) in (0..).zip(list) {
                draft.part(place, number, &mut observation);
                tally.observations += 1;
                sink(&observation);
            }
        }
        Compound::Full(list) => {
            for (place, full) in (0..).zip(list) {
                draft.part(place, full.number, &mut observation);
                full.apply(&mut observation);
                tally.observations += 1;
                sink(&observation);
            }
        }
    }
}

/// An incomplete observation.
pub(crate) struct Draft<'a, 'object> {
    observation: Observation<'a>,
    compound: Compound<'a>,
    components: &'object [u16],
    /// Partition of a coded value, where it is not the measurement's own.
    partition: u16,
    ignored: u32,
    /// Whether a part was missing or malformed.
    is_cut: bool,
}

/// Position at which the octets of a map ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// At or after its last entry.
    Whole,
    /// Within it: later observations in the same octets cannot be found.
    Early,
}

/// Several values in one attribute.
enum Compound<'a> {
    None,
    Basic(List<'a, Sfloat>),
    Simple(List<'a, Float>),
    Full(List<'a, FullNumber>),
}

impl<'a, 'object> Draft<'a, 'object> {
    pub(crate) fn new(object: &'object Object, person: Option<PersonId>) -> Self {
        let observation = Observation {
            handle: object.handle,
            component: 0,
            person,
            kind: object.metric.unwrap_or(object.kind),
            value: Value::None,
            unit: object.unit,
            time: Timestamps::default(),
            active_period: None,
            status: MeasurementStatus::default(),
            source: object.source,
            waveform: object.waveform,
        };
        let components = object.components.as_slice();
        let partition = object.kind.partition;
        let compound = Compound::None;
        Self { observation, compound, components, partition, ignored: 0, is_cut: false }
    }

    /// Takes the time of an entry in a store.
    pub(crate) const fn set_time(&mut self, time: Timestamps) {
        self.observation.time = time;
    }

    /// Takes attribute after attribute, as `map` says. Where the octets end within an attribute,
    /// those before it stand.
    pub(crate) fn take_mapped(&mut self, map: &[MapEntry], reader: &mut Reader<'a>) -> Ended {
        for entry in map {
            let Ok(octets) = reader.octets(usize::from(entry.length)) else {
                self.is_cut = true;
                return Ended::Early;
            };
            self.is_cut |= self.take(entry.attribute, octets).is_err();
        }
        Ended::Whole
    }

    /// Takes attribute after attribute, each with its id and its length.
    fn take_named(&mut self, attributes: List<'a, Attribute<'a>>) {
        for attribute in attributes {
            self.is_cut |= self.take(attribute.id, attribute.value).is_err();
        }
    }

    fn take(&mut self, id: AttributeId, octets: &'a [u8]) -> Result<(), Malformed> {
        let reader = &mut Reader::new(octets);
        let observation = &mut self.observation;
        match id {
            attribute::NUMERIC_BASIC => {
                observation.value = Value::Number(Sfloat::take(reader)?.0);
            }
            attribute::NUMERIC_SIMPLE => observation.value = Value::Number(Float::take(reader)?.0),
            attribute::NUMERIC => FullNumber::take(reader)?.apply(observation),
            attribute::COMPOUND_BASIC => self.compound = Compound::Basic(reader.list()?),
            attribute::COMPOUND_SIMPLE => self.compound = Compound::Simple(reader.list()?),
            attribute::COMPOUND => self.compound = Compound::Full(reader.list()?),
            attribute::ENUMERATION_OID => {
                observation.value = Value::Code(Type::new(self.partition, reader.u16()?));
            }
            attribute::ENUMERATION => {
                let (code, status) = (reader.u16()?, MeasurementStatus(reader.u16()?));
                observation.value = enumerated(self.partition, reader)?;
                (observation.kind.code, observation.status) = (code, status);
            }
            attribute::ENUMERATION_BITS16 => observation.value = Value::Bits16(reader.u16()?),
            attribute::ENUMERATION_BITS32 => observation.value = Value::Bits32(reader.u32()?),
            attribute::ENUMERATION_TEXT => {
                observation.value = Value::Text(reader.octet_string()?);
            }
            attribute::SAMPLES => observation.value = Value::Samples(reader.octet_string()?),
            _ => return self.take_circumstance(id, reader),
        }
        Ok(())
    }

    /// Takes an attribute that is not the value.
    fn take_circumstance(
        &mut self,
        id: AttributeId,
        reader: &mut Reader<'a>,
    ) -> Result<(), Malformed> {
        let observation = &mut self.observation;
        let time = &mut observation.time;
        match id {
            attribute::TIMESTAMP_ABSOLUTE => time.absolute = Some(AbsoluteTime(reader.array()?)),
            attribute::TIMESTAMP_RELATIVE => time.relative = Some(reader.u32()?),
            attribute::TIMESTAMP_HIGH_RESOLUTION => {
                time.high_resolution = Some(reader.array().map(u64::from_be_bytes)?);
            }
            attribute::TIMESTAMP_BASE_OFFSET => {
                time.base_offset = Some(BaseOffsetTime::take(reader)?);
            }
            attribute::MEASUREMENT_STATUS => {
                observation.status = MeasurementStatus(reader.u16()?);
            }
            attribute::ACTIVE_PERIOD => {
                observation.active_period = Float::take(reader)?.0.decimal();
                self.ignored += u32::from(observation.active_period.is_none());
            }
            attribute::UNIT => observation.unit = Some(UnitCode(reader.u16()?)),
            attribute::TYPE => observation.kind = Type::take(reader)?,
            attribute::METRIC_ID => observation.kind.code = reader.u16()?,
            attribute::SOURCE_HANDLE => observation.source = Some(Handle(reader.u16()?)),
            attribute::ENUMERATION_PARTITION => {
                self.partition = reader.u16()?;
                if let Value::Code(code) = &mut observation.value {
                    code.partition = self.partition;
                }
            }
            _ => self.ignored += 1,
        }
        Ok(())
    }

    /// Turns `observation` into the value at `place` of the compound.
    fn part(&self, place: u16, number: Number, observation: &mut Observation<'a>) {
        observation.component = place;
        observation.value = Value::Number(number);
        if let Some(code) = self.components.get(usize::from(place)) {
            observation.kind.code = *code;
        }
    }
}

/// Reads one of several kinds of coded value (EnumVal; its choices from memory, *unverified*).
fn enumerated<'a>(partition: u16, reader: &mut Reader<'a>) -> Result<Value<'a>, Malformed> {
    const OBJECT_ID: u16 = 1;
    const TEXT: u16 = 2;
    const BITS: u16 = 16;
    let choice = reader.u16()?;
    let mut body = Reader::new(reader.octet_string()?);
    match choice {
        OBJECT_ID => Ok(Value::Code(Type::new(partition, body.u16()?))),
        TEXT => body.octet_string().map(Value::Text),
        BITS => body.u32().map(Value::Bits32),
        choice => Err(Malformed::UnknownChoice { choice }),
    }
}

/// An SFLOAT in a list.
struct Sfloat(Number);

impl Element<'_> for Sfloat {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.array().map(|octets| Self(Number::from_sfloat(octets)))
    }

    fn put(&self, writer: &mut crate::mder::MderWriter) {
        writer.octets(&self.0.to_sfloat().unwrap_or_default());
    }
}

/// A FLOAT in a list.
struct Float(Number);

impl Element<'_> for Float {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        reader.array().map(|octets| Self(Number::from_float(octets)))
    }

    fn put(&self, writer: &mut crate::mder::MderWriter) {
        writer.octets(&self.0.to_float().unwrap_or_default());
    }
}

/// A number with code, status and unit (NuObsValue).
struct FullNumber {
    code: u16,
    status: MeasurementStatus,
    unit: UnitCode,
    number: Number,
}

impl FullNumber {
    fn apply(&self, observation: &mut Observation<'_>) {
        observation.kind.code = self.code;
        observation.status = self.status;
        observation.unit = Some(self.unit);
        observation.value = Value::Number(self.number);
    }
}

impl Element<'_> for FullNumber {
    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            code: reader.u16()?,
            status: MeasurementStatus(reader.u16()?),
            unit: UnitCode(reader.u16()?),
            number: Float::take(reader)?.0,
        })
    }

    fn put(&self, writer: &mut crate::mder::MderWriter) {
        writer.u16(self.code);
        writer.u16(self.status.0);
        writer.u16(self.unit.0);
        Float(self.number).put(writer);
    }
}
