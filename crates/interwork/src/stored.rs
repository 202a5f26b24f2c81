//! Decoder of readings stored in a CSE: labels identify the objects, contents the observations.
//!
//! It reads what [`instance`](crate::instance) writes, so that a reading stored earlier, or at the
//! CSE above, equals that of a live report: for FHIR and other exports.

use crate::device::{ObjectContainer, label};
pub use crate::device::{kind, system_id};
use crate::json::iso;
use crate::mapping::{Mapping, ValueSource};
use gatewright_health::code::{Handle, ObjectClass, PersonId, Type, UnitCode, class};
use gatewright_health::convert::{MeasurementStatus, Observation, Timestamps, Value as Measured};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::time::{AbsoluteTime, BaseOffsetTime};
use gatewright_onem2m::Timestamp;
use serde_json::Value;

impl ObjectContainer {
    /// The object of the container `name` at `address` with these labels; `None` if it is no
    /// object's.
    pub fn stored(mapping: &Mapping, name: &str, address: &str, labels: &[&str]) -> Option<Self> {
        let kind = label(labels, "mdc:").and_then(code)?;
        let handle = Handle(label(labels, "handle:")?.parse().ok()?);
        let unit = label(labels, "unit:").and_then(|unit| unit.parse().ok()).map(UnitCode);
        // Containers of earlier versions do not tell the class: a unit is a number's.
        let told = label(labels, "class:").and_then(|class| class.parse().ok()).map(ObjectClass);
        let guessed = if unit.is_some() { class::NUMERIC } else { class::ENUMERATION };
        let class = told.unwrap_or(guessed);
        let more = labels.iter().filter_map(|label| label.strip_prefix("supplemental:"));
        let supplemental = more.filter_map(code).collect();
        Some(Self::bare(mapping, (handle, kind, class, unit), supplemental, (name, address)))
    }
}

/// Reads `2:19384`.
fn code(text: &str) -> Option<Type> {
    let (partition, code) = text.split_once(':')?;
    Some(Type::new(partition.parse().ok()?, code.parse().ok()?))
}

/// A stored reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// Name of its report and handle, equal for all values of a compound.
    pub report: String,
    /// Index of the handle's value in that report.
    pub nth: u32,
    /// When the gateway received it.
    pub received: Timestamp,
    /// The value, if it is a text.
    text: String,
    observation: Observation<'static>,
}

impl Stored {
    /// Parses the instance `name` with the content `con`; `None` if it is no reading.
    pub fn read(
        mapping: &Mapping,
        place: &ObjectContainer,
        name: &str,
        con: &Value,
    ) -> Option<Self> {
        let (report, nth) = split(name)?;
        let member = |source| {
            let field = mapping.fields.iter().find(|field| field.source == source)?;
            con.get(&field.name)
        };
        let text = |source| member(source).and_then(Value::as_str);
        let number = |source| member(source).and_then(Value::as_u64);
        let short = |source| number(source).and_then(|number| u16::try_from(number).ok());
        let word = |source| number(source).and_then(|number| u32::try_from(number).ok());
        let value = text(ValueSource::Value).unwrap_or_default();
        let octets = text(ValueSource::DeviceTimeOctets).and_then(time_octets);
        let absolute = text(ValueSource::DeviceTime).and_then(iso).or(octets);
        let base = member(ValueSource::DeviceBase).and_then(base_offset);
        let observation = Observation {
            handle: place.handle,
            component: 0,
            person: short(ValueSource::Person).map(PersonId),
            kind: text(ValueSource::Type).and_then(code).unwrap_or(place.kind),
            value: measured(place.class, value),
            unit: short(ValueSource::UnitCode).map(UnitCode),
            time: Timestamps {
                absolute,
                relative: word(ValueSource::DeviceTicks),
                high_resolution: number(ValueSource::DeviceMicros),
                base_offset: base,
            },
            active_period: member(ValueSource::Period).and_then(seconds),
            status: member(ValueSource::Status).map(status).unwrap_or_default(),
            source: short(ValueSource::BelongsTo).map(Handle),
            // What samples mean is not read back: FHIR's waveforms are left out.
            waveform: None,
        };
        let received = text(ValueSource::Received).and_then(Timestamp::parse)?;
        let is_text = observation.value == Measured::None && !value.is_empty();
        let text = if is_text { value.to_owned() } else { String::new() };
        Some(Self { report, nth, received, text, observation })
    }

    /// The observation.
    pub fn observation(&self) -> Observation<'_> {
        if self.text.is_empty() {
            return self.observation;
        }
        Observation { value: Measured::Text(self.text.as_bytes()), ..self.observation }
    }

    /// The quantity measured.
    pub const fn kind(&self) -> Type {
        self.observation.kind
    }
}

/// Groups readings of one container, in any order, by time of measurement: one, or all values of a
/// compound.
pub fn together(place: &ObjectContainer, mut readings: Vec<Stored>) -> Vec<Vec<Stored>> {
    readings.sort_by(|one, other| {
        let time = one.received.cmp(&other.received);
        time.then_with(|| one.report.cmp(&other.report)).then(one.nth.cmp(&other.nth))
    });
    let mut groups: Vec<Vec<Stored>> = Vec::new();
    for reading in readings {
        let is_part = reading.kind() != place.kind;
        let last = groups.last_mut().filter(|group| {
            let is_same = group.first().is_some_and(|first| first.report == reading.report);
            // A value that is there already is the next measurement's.
            is_part && is_same && group.iter().all(|known| known.kind() != reading.kind())
        });
        match last {
            Some(group) => group.push(reading),
            None => groups.push(vec![reading]),
        }
    }
    groups
}

/// Splits the name of a reading into that of report and handle, and the value's index.
fn split(name: &str) -> Option<(String, u32)> {
    let parts: Vec<&str> = name.split('-').collect();
    let nth = match parts.as_slice() {
        [_, _, _, _] => 0,
        [_, _, _, _, nth] => nth.parse().ok()?,
        _ => return None,
    };
    Some((parts.get(..4)?.join("-"), nth))
}

/// The value that `text` says of an object of this class; text itself is none yet.
fn measured(class: ObjectClass, text: &str) -> Measured<'static> {
    if class == class::NUMERIC {
        return special(text).map_or(Measured::None, Measured::Number);
    }
    let hex = |digits: usize| text.len() == digits && text.bytes().all(is_low_hex);
    if let Some(code) = code(text) {
        return Measured::Code(code);
    }
    if hex(4) {
        return u16::from_str_radix(text, 16).map_or(Measured::None, Measured::Bits16);
    }
    if hex(8) {
        return u32::from_str_radix(text, 16).map_or(Measured::None, Measured::Bits32);
    }
    Measured::None
}

const fn is_low_hex(octet: u8) -> bool {
    matches!(octet, b'0'..=b'9' | b'a'..=b'f')
}

/// A number as it is shown, or one of those that are none.
fn special(text: &str) -> Option<Number> {
    let special = [
        Number::NotANumber,
        Number::NotAtThisResolution,
        Number::PositiveInfinity,
        Number::NegativeInfinity,
        Number::Reserved,
    ];
    let known = special.into_iter().find(|number| number.to_string() == text);
    known.or_else(|| text.parse::<Decimal>().ok().map(Number::Finite))
}

/// Reads the sixteen digits of a calendar time that is no date.
fn time_octets(text: &str) -> Option<AbsoluteTime> {
    let fits = text.len() == 16 && text.bytes().all(is_low_hex);
    let octets = fits.then(|| u64::from_str_radix(text, 16).ok()).flatten()?;
    Some(AbsoluteTime(octets.to_be_bytes()))
}

fn base_offset(member: &Value) -> Option<BaseOffsetTime> {
    let seconds = u32::try_from(member.get("seconds")?.as_u64()?).ok()?;
    let offset_minutes = i16::try_from(member.get("offsetMinutes")?.as_i64()?).ok()?;
    Some(BaseOffsetTime { seconds, fraction: 0, offset_minutes })
}

/// Reads a number of JSON as the decimal that it says: `1.5`, `1e-7`.
fn seconds(member: &Value) -> Option<Decimal> {
    let text = member.as_number()?.to_string();
    let (digits, power) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let Decimal { mantissa, exponent } = digits.parse().ok()?;
    let exponent = exponent.checked_add(power.parse().ok()?)?;
    Some(Decimal { mantissa, exponent })
}

fn status(member: &Value) -> MeasurementStatus {
    let names = member.as_array().into_iter().flatten().filter_map(Value::as_str);
    let bit = |name| MeasurementStatus::NAMES.iter().find(|(_, known)| *known == name);
    MeasurementStatus(names.filter_map(bit).fold(0, |all, (bit, _)| all | bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_come_back() {
        for hundredths in [0, 179_526_600_042, 99] {
            let time = AbsoluteTime::from_unix(hundredths);
            assert_eq!(iso(&time.iso().unwrap().to_string()), Some(time));
        }
        assert!(iso("2026-11-21T13:00:00").is_some());
        for wrong in
            ["2026-11-21", "2026-11-21 13:00:00", "2026-13-21T13:00:00", "é026-11-21T13:00:0"]
        {
            assert_eq!(iso(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn periods_are_seconds() {
        for (text, expected) in
            [("3600", (3_600, 0)), ("0.000125", (125, -6)), ("1.5", (15, -1)), ("1e-7", (1, -7))]
        {
            let number: Value = serde_json::from_str(text).unwrap();
            let (mantissa, exponent) = expected;
            assert_eq!(seconds(&number), Some(Decimal { mantissa, exponent }), "{text}");
        }
        assert_eq!(seconds(&json!("long")), None);
    }

    #[test]
    fn names_that_are_none_are_no_readings() {
        assert_eq!(split("0022-7-51-1"), Some(("0022-7-51-1".to_owned(), 0)));
        assert_eq!(split("0022-7-51-1-2"), Some(("0022-7-51-1".to_owned(), 2)));
        for wrong in ["", "cin_1", "a-b-c-d-e", "a-b-c-d-1-2"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }
}
