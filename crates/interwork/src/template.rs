//! Template of an object's instances: their constant text, built once for each association.
//!
//! In an instance's content only value, times and numbers change from report to report. A
//! [`Template`] holds the rest as text; changing values are written between its pieces without
//! formatting machinery.

use crate::instance::{ReportArrival, meaning, member};
use crate::json::Json;
use crate::mapping::{MappedMember, ValueSource};
use gatewright_health::code::{Handle, Type, UnitCode};
use gatewright_health::configuration::Object;
use gatewright_health::convert::{MeasurementStatus, Observation, Timestamps, Value};
use gatewright_health::decimal::{Decimal, Number};
use gatewright_health::time::AbsoluteTime;

/// Content of an object's instances, with gaps.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Template {
    /// The observation's quantity must equal this one.
    kind: Type,
    unit: Option<UnitCode>,
    source: Option<Handle>,
    pieces: Vec<TemplatePiece>,
}

/// A part of a template. Every member ends with a comma; the last comma is removed at the end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum TemplatePiece {
    /// Members that never change.
    Text(String),
    /// A changing member: its key with the colon, and the source of its value.
    Hole(String, ValueSource),
}

impl Template {
    /// Builds the common content of an object's instances.
    pub(crate) fn new(fields: &[MappedMember], object: &Object, kind: Type) -> Self {
        let Object { handle, unit, source, waveform, .. } = *object;
        let observation = Observation {
            handle,
            component: 0,
            person: None,
            kind,
            value: Value::None,
            unit,
            time: Timestamps::default(),
            active_period: None,
            status: MeasurementStatus::default(),
            source,
            waveform,
        };
        let mut pieces = Vec::new();
        let mut text = String::new();
        for field in fields {
            let mut written = String::new();
            if is_constant(field.source) {
                let mut json = Json::new(&mut written);
                member(
                    &mut json,
                    &field.name,
                    field.source,
                    ReportArrival::default(),
                    &observation,
                );
                if !written.is_empty() {
                    text.push_str(&written);
                    text.push(',');
                }
            } else {
                if !text.is_empty() {
                    pieces.push(TemplatePiece::Text(core::mem::take(&mut text)));
                }
                Json::new(&mut written).key(&field.name);
                pieces.push(TemplatePiece::Hole(written, field.source));
            }
        }
        pieces.push(TemplatePiece::Text(text));
        Self { kind, unit, source, pieces }
    }

    /// The parts, in order.
    pub(crate) fn pieces(&self) -> &[TemplatePiece] {
        &self.pieces
    }

    /// Whether the observation has the template's constant values.
    pub(crate) fn fits(&self, observation: &Observation<'_>) -> bool {
        self.kind == observation.kind
            && self.unit == observation.unit
            && self.source == observation.source
    }

    /// Writes the members of `observation`, without braces.
    pub(crate) fn write(
        &self,
        text: &mut String,
        received: &str,
        arrival: ReportArrival,
        observation: &Observation<'_>,
    ) {
        let start = text.len();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(members) => text.push_str(members),
                TemplatePiece::Hole(key, source) => {
                    if is_there(*source, observation) {
                        text.push_str(key);
                        fill(text, *source, received, arrival, observation);
                        text.push(',');
                    }
                }
            }
        }
        if text.len() > start {
            text.pop();
        }
    }
}

/// Whether a source is constant for all observations of an object.
const fn is_constant(source: ValueSource) -> bool {
    matches!(
        source,
        ValueSource::Unit
            | ValueSource::UnitCode
            | ValueSource::Type
            | ValueSource::Name
            | ValueSource::BelongsTo
            | ValueSource::Waveform
    )
}

/// Whether an observation has a value for this source.
pub(crate) fn is_there(source: ValueSource, observation: &Observation<'_>) -> bool {
    let time = &observation.time;
    match source {
        ValueSource::Value => observation.value != Value::None,
        ValueSource::Meaning => meaning(observation).is_some(),
        ValueSource::DeviceTime => time.absolute.is_some_and(|time| time.parts().is_some()),
        ValueSource::DeviceTimeOctets => time.absolute.is_some_and(|time| time.parts().is_none()),
        ValueSource::DeviceTicks => time.relative.is_some(),
        ValueSource::DeviceMicros => time.high_resolution.is_some(),
        ValueSource::DeviceBase => time.base_offset.is_some(),
        ValueSource::Person => observation.person.is_some(),
        ValueSource::Period => observation.active_period.is_some(),
        ValueSource::Status => observation.status.0 != 0,
        _ => true,
    }
}

/// Writes a value that is there.
fn fill(
    text: &mut String,
    source: ValueSource,
    received: &str,
    arrival: ReportArrival,
    observation: &Observation<'_>,
) {
    match (source, observation.value, observation.time.absolute) {
        (ValueSource::Value, Value::Number(Number::Finite(decimal)), _) => {
            text.push('"');
            push_decimal(text, decimal);
            text.push('"');
        }
        (ValueSource::Received, ..) => {
            text.push('"');
            text.push_str(received);
            text.push('"');
        }
        (ValueSource::Report, ..) => push_number(text, arrival.report),
        (ValueSource::DeviceTime, _, Some(time)) => push_time(text, time),
        // What is rare is written as everything else is, its name taken off.
        _ => {
            let mut written = String::new();
            let mut json = Json::new(&mut written);
            member(&mut json, "", source, arrival, observation);
            text.push_str(written.strip_prefix("\"\":").unwrap_or("null"));
        }
    }
}

/// Appends the digits of `number`.
pub(crate) fn push_number(text: &mut String, number: u64) {
    // Most numbers are short, and a letter is cheaper than a text.
    match u8::try_from(number) {
        Ok(digit @ 0..10) => push_digit(text, digit),
        Ok(digits @ 10..100) => {
            push_digit(text, digits / 10);
            push_digit(text, digits);
        }
        _ => push_digits(text, number, 1),
    }
}

/// Appends the digits of `number`, with zeros before it up to `width` of them, at most 20.
pub(crate) fn push_digits(text: &mut String, mut number: u64, width: usize) {
    /// Digits of the largest number of 64 bits.
    const DIGITS: usize = 20;
    let mut digits = [b'0'; DIGITS];
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        if number == 0 && count >= width {
            break;
        }
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        count += 1;
    }
    let written = digits.get(DIGITS - count..).unwrap_or_default();
    text.push_str(core::str::from_utf8(written).unwrap_or_default());
}

fn push_digit(text: &mut String, digit: u8) {
    text.push(char::from(b'0' + digit % 10));
}

/// Appends a decimal as its `Display` shows it.
pub(crate) fn push_decimal(text: &mut String, decimal: Decimal) {
    let Decimal { mantissa, exponent } = decimal;
    if mantissa < 0 {
        text.push('-');
    }
    let digits = u64::from(mantissa.unsigned_abs());
    if exponent >= 0 {
        push_number(text, digits);
        for _ in 0..if digits == 0 { 0 } else { exponent } {
            text.push('0');
        }
        return;
    }
    let places = exponent.unsigned_abs();
    let Some(unit) = 10_u64.checked_pow(places.into()) else {
        // More places than 64 bits have digits: nothing before the point, and zeros behind it.
        text.push_str("0.");
        for _ in DIGITS_MAX..usize::from(places) {
            text.push('0');
        }
        return push_digits(text, digits, DIGITS_MAX);
    };
    push_number(text, digits / unit);
    text.push('.');
    push_digits(text, digits % unit, places.into());
}

/// Places that one call of [`push_digits`] writes.
const DIGITS_MAX: usize = 19;

/// Appends a calendar time that is a date as ISO 8601 in quotes.
pub(crate) fn push_time(text: &mut String, time: AbsoluteTime) {
    // The octets are decimal digits already; only what stands between them is missing.
    text.push('"');
    for (octet, behind) in time.0.into_iter().zip(["", "-", "-", "T", ":", ":", ".", "\""]) {
        push_digit(text, octet >> 4);
        push_digit(text, octet & 0x0F);
        text.push_str(behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decimals_are_written_as_they_are_shown(mantissa: i32, exponent: i8) {
            let decimal = Decimal::new(mantissa, exponent);
            let mut text = String::new();
            push_decimal(&mut text, decimal);
            prop_assert_eq!(text, decimal.to_string());
        }

        #[test]
        fn times_are_written_as_they_are_shown(octets: [u8; 8]) {
            for octets in [octets, octets.map(|octet| octet % 10)] {
                let time = AbsoluteTime(octets);
                if let Some(iso) = time.iso() {
                    let mut text = String::new();
                    push_time(&mut text, time);
                    prop_assert_eq!(text, format!("\"{iso}\""));
                }
            }
        }

        #[test]
        fn numbers_are_written_as_they_are_shown(number: u64) {
            let mut text = String::new();
            push_number(&mut text, number);
            prop_assert_eq!(text, number.to_string());
        }
    }
}
