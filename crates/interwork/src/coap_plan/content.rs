//! Content of planned requests, in JSON or CBOR (RFC 8949), as pieces.

use super::{DIGITS_MAX, IDENTITY_MAX};
use crate::plan::{CodePlace, FlagCount, MEANING_MAX, PlanPiece};
use gatewright_onem2m::Serialisation;
use serde_json::{Number, Value};

/// A number that stands for the report's while a content is taken apart.
const ANY_NUMBER: u64 = 18_446_744_073_709_551_557;
/// Characters that begin and end what stands for a value; no content has them.
const VALUE_MARKS: [char; 2] = ['\u{F8FE}', '\u{F8FF}'];
/// Pieces of one content at the most.
pub(super) const PIECES_MAX: usize = 64;
/// Octets of a text's head at the most: quotes, or a length of two octets.
const TEXT_HEAD_MAX: usize = 3;
/// Octets of the longest text of a FLOAT: sign, seven digits and 127 zeros.
const VALUE_MAX: usize = 140;
/// Octets of a time, of arrival or of the device.
const TIME_MAX: usize = 22;

/// Octets of a code: partition and code, five digits each, and the colon between them.
const CODE_MAX: usize = 11;

/// Major types (RFC 8949 §3.1).
const CBOR_NUMBER: u8 = 0;
const CBOR_NEGATIVE: u8 = 1;
const CBOR_TEXT: u8 = 3;
const CBOR_ARRAY: u8 = 4;
const CBOR_MAP: u8 = 5;
/// Head of a number of double precision (RFC 8949 §3.3).
const CBOR_DOUBLE: u8 = 0xFB;

/// A part of a content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum ContentPiece {
    /// Octets that never change.
    Octets(Vec<u8>),
    /// The name of the reading, as text.
    Name,
    /// The number of the report.
    Report,
    /// The time of arrival, as text.
    Received,
    /// The SFLOAT at this offset, as text.
    Sfloat(usize),
    /// The FLOAT at this offset, as text.
    Float(usize),
    /// The calendar time at this offset, as text.
    AbsoluteTime(usize),
    /// The report's identity, within a text.
    Identity,
    /// The code at a place, as text.
    Code(CodePlace),
    /// The name of that code, as text.
    Meaning(CodePlace),
    /// Flags from this offset on, as text.
    Bits(FlagCount, usize),
    /// The FLOAT at this offset, as a number.
    Period(usize),
}

impl ContentPiece {
    /// Octets of the piece at the most, with a name of so many.
    pub(super) fn length_max(&self, name: usize) -> usize {
        match self {
            Self::Octets(octets) => octets.len(),
            Self::Name => TEXT_HEAD_MAX + name,
            Self::Report => DIGITS_MAX,
            Self::Identity => IDENTITY_MAX,
            Self::Received | Self::AbsoluteTime(_) => TEXT_HEAD_MAX + TIME_MAX,
            Self::Sfloat(_) | Self::Float(_) | Self::Period(_) => TEXT_HEAD_MAX + VALUE_MAX,
            Self::Code(_) => TEXT_HEAD_MAX + CODE_MAX,
            Self::Meaning(_) => TEXT_HEAD_MAX + MEANING_MAX,
            Self::Bits(count, _) => TEXT_HEAD_MAX + 2 * count.octets(),
        }
    }
}

/// The pieces of a content that a primitive's plan has as JSON, with a name that has `epoch` behind
/// its first part.
pub(super) fn pieces(
    content: &[PlanPiece],
    (name, epoch): (&[Vec<u8>; 2], &str),
    serialisation: Serialisation,
) -> Option<Vec<ContentPiece>> {
    let piece = |piece: &PlanPiece| match *piece {
        PlanPiece::Text(ref text) => ContentPiece::Octets(text.clone().into_bytes()),
        PlanPiece::Report => ContentPiece::Report,
        PlanPiece::Received => ContentPiece::Received,
        PlanPiece::Sfloat(at) => ContentPiece::Sfloat(at),
        PlanPiece::Float(at) => ContentPiece::Float(at),
        PlanPiece::AbsoluteTime(at) => ContentPiece::AbsoluteTime(at),
        PlanPiece::Code(place) => ContentPiece::Code(place),
        PlanPiece::Meaning(place) => ContentPiece::Meaning(place),
        PlanPiece::Bits(count, at) => ContentPiece::Bits(count, at),
        PlanPiece::Period(at) => ContentPiece::Period(at),
    };
    // The name is first: what it has of its association is the report's identity instead.
    let [PlanPiece::Text(before), PlanPiece::Report, rest @ ..] = content else { return None };
    let before = before.strip_suffix(epoch)?.as_bytes().to_vec();
    let begin = [ContentPiece::Octets(before), ContentPiece::Identity];
    let json: Vec<ContentPiece> = begin.into_iter().chain(rest.iter().map(piece)).collect();
    let pieces = match serialisation {
        Serialisation::Json => json,
        Serialisation::Cbor => cbor(&json, name)?,
    };
    (pieces.len() <= PIECES_MAX).then_some(pieces)
}

/// The pieces of a content in CBOR, from those in JSON.
fn cbor(json: &[ContentPiece], name: &[Vec<u8>; 2]) -> Option<Vec<ContentPiece>> {
    let (mut walk, mut text) = (Walk { name, gaps: Vec::new(), pieces: Vec::new() }, Vec::new());
    for piece in json {
        match piece {
            ContentPiece::Octets(octets) => text.extend_from_slice(octets),
            ContentPiece::Report | ContentPiece::Identity => {
                text.extend_from_slice(ANY_NUMBER.to_string().as_bytes());
            }
            gap => {
                let [begin, end] = VALUE_MARKS;
                let mark = format!("\"{begin}{}{end}\"", walk.gaps.len());
                text.extend_from_slice(mark.as_bytes());
                walk.gaps.push(gap.clone());
            }
        }
    }
    walk.value(&serde_json::from_slice(&text).ok()?)?;
    Some(walk.pieces)
}

/// Writes a content in CBOR, with pieces where it changes.
struct Walk<'plan> {
    name: &'plan [Vec<u8>; 2],
    gaps: Vec<ContentPiece>,
    pieces: Vec<ContentPiece>,
}

impl Walk<'_> {
    fn value(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::Object(members) => {
                self.open(CBOR_MAP, members.len())?;
                for (key, member) in members {
                    self.constant(&Value::from(key.as_str()))?;
                    self.value(member)?;
                }
            }
            Value::Array(elements) => {
                self.open(CBOR_ARRAY, elements.len())?;
                elements.iter().try_for_each(|element| self.value(element))?;
            }
            Value::Number(number) if number.as_u64() == Some(ANY_NUMBER) => {
                self.pieces.push(ContentPiece::Report);
            }
            Value::String(text) => match self.gap(text) {
                Some(gap) => self.pieces.push(gap),
                None => self.constant(value)?,
            },
            _ => self.constant(value)?,
        }
        Some(())
    }

    /// What a text stands for, if anything.
    fn gap(&self, text: &str) -> Option<ContentPiece> {
        let [begin, end] = VALUE_MARKS;
        if let Some(number) = text.strip_prefix(begin).and_then(|it| it.strip_suffix(end)) {
            return self.gaps.get(number.parse::<usize>().ok()?).cloned();
        }
        let [before, behind] = self.name;
        let rest = text.as_bytes().strip_prefix(before.as_slice())?;
        let number = rest.strip_suffix(behind.as_slice())?;
        (number == ANY_NUMBER.to_string().as_bytes()).then_some(ContentPiece::Name)
    }

    fn constant(&mut self, value: &Value) -> Option<()> {
        let octets = Serialisation::Cbor.write(&value.to_string()).ok()?;
        self.append(&octets);
        Some(())
    }

    /// Begins a map or an array.
    fn open(&mut self, major: u8, length: usize) -> Option<()> {
        let mut head = Vec::new();
        put_head(&mut head, major, u64::try_from(length).ok()?);
        self.append(&head);
        Some(())
    }

    fn append(&mut self, octets: &[u8]) {
        if let Some(ContentPiece::Octets(last)) = self.pieces.last_mut() {
            last.extend_from_slice(octets);
        } else {
            self.pieces.push(ContentPiece::Octets(octets.to_vec()));
        }
    }
}

/// Begins a text of `length` octets.
pub(super) fn open_text(serialisation: Serialisation, message: &mut Vec<u8>, length: usize) {
    match serialisation {
        Serialisation::Json => message.push(b'"'),
        Serialisation::Cbor => {
            put_head(message, CBOR_TEXT, u64::try_from(length).unwrap_or(u64::MAX));
        }
    }
}

/// Ends a text.
pub(super) fn close_text(serialisation: Serialisation, message: &mut Vec<u8>) {
    if serialisation == Serialisation::Json {
        message.push(b'"');
    }
}

/// Writes a number, whose digits are known.
pub(super) fn put_number(
    serialisation: Serialisation,
    message: &mut Vec<u8>,
    number: u64,
    digits: &[u8],
) {
    match serialisation {
        Serialisation::Json => message.extend_from_slice(digits),
        Serialisation::Cbor => put_head(message, CBOR_NUMBER, number),
    }
}

/// Writes a decimal number, which in CBOR is what a reader of its JSON has.
pub(super) fn put_decimal(serialisation: Serialisation, message: &mut Vec<u8>, text: &str) {
    let number: Option<Number> = match serialisation {
        Serialisation::Json => None,
        Serialisation::Cbor => serde_json::from_str(text).ok(),
    };
    let Some(number) = number else { return message.extend_from_slice(text.as_bytes()) };
    match (number.as_u64(), number.as_i64(), number.as_f64()) {
        (Some(number), ..) => put_head(message, CBOR_NUMBER, number),
        // The argument is the number's distance from -1 (RFC 8949 §3.1).
        (None, Some(number), _) => put_head(message, CBOR_NEGATIVE, (-1 - number).cast_unsigned()),
        (None, None, number) => {
            message.push(CBOR_DOUBLE);
            message.extend_from_slice(&number.unwrap_or_default().to_be_bytes());
        }
    }
}

/// Writes the head of a data item: its major type, and its argument in as few octets as it needs
/// (RFC 8949 §3).
fn put_head(message: &mut Vec<u8>, major: u8, argument: u64) {
    let octets = argument.to_be_bytes();
    let (information, width) = match argument {
        0..24 => return message.push(major << 5 | octets.last().copied().unwrap_or_default()),
        24..0x100 => (24, 1),
        0x100..0x1_0000 => (25, 2),
        0x1_0000..0x1_0000_0000 => (26, 4),
        _ => (27, 8),
    };
    message.push(major << 5 | information);
    message.extend_from_slice(octets.get(octets.len() - width..).unwrap_or_default());
}
