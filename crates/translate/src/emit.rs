//! Writes a message: from slots, or the holes of a template, to octets.

use crate::checksum::PartialChecksum;
use crate::stream::{StreamLengthError, StreamWriter};
use crate::view::{Held, Row, View, find, fits, size, within};
use gatewright_lang::ir::{
    Check, Emit, EmitField, ExtendCase, LocalId, MessageId, Order, Program, Select, SlotId, Source,
    StreamFraming,
};

/// Maximum octets of a count: a number of 64 bits.
const COUNT_OCTETS_MAX: usize = 8;

/// Maximum digits of a number of 63 bits, with its sign.
const DIGITS_MAX: usize = 20;

/// Why a message cannot be built: its layout could not read the values back.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unbuildable {
    /// The id is of another program.
    #[error("the program has no such message")]
    NoMessage,
    /// A slot's value does not fit its type or bounds.
    #[error("the value of slot {slot} does not have its type")]
    Slot {
        /// Its index in the message.
        slot: usize,
    },
    /// The number of octets is outside a field's bounds.
    #[error("{length} octets are not within {min} and {max}")]
    Length {
        /// The number of octets.
        length: usize,
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// The octets contain a delimiter, a line's end or another octet that the field cannot have.
    #[error("octets that the field cannot contain")]
    Octets,
    /// A number has more digits or bits than its field.
    #[error("{value} does not fit its field")]
    Number {
        /// The number.
        value: i64,
    },
    /// No framing of the stream fits these values.
    #[error("no framing of the stream applies to these values")]
    NoFraming,
    /// The octets that fill the stream do not fit its framing.
    #[error("{0}")]
    Stream(#[from] StreamLengthError),
}

/// Appends a message to `out`. If its stream is [`Value::Stream`], it returns the writer for the
/// stream's octets; octets given instead, or none, are written whole.
///
/// # Errors
///
/// The message cannot be built; `out` is unchanged.
pub fn emit(
    program: &Program,
    message: MessageId,
    view: &View,
    out: &mut Vec<u8>,
) -> Result<Option<StreamWriter>, Unbuildable> {
    let message = program.message(message).ok_or(Unbuildable::NoMessage)?;
    let mut set = view.set_slots().zip(&message.slots).enumerate();
    if let Some((slot, _)) =
        set.find(|(_, (value, about))| value.is_some_and(|value| !within(about, value)))
    {
        return Err(Unbuildable::Slot { slot });
    }
    let locals = usize::try_from(message.locals).unwrap_or_default();
    let mut writer =
        Writer { program, view, locals: vec![0; locals], element: Row::default(), stream: None };
    let before = out.len();
    let done = writer.all(&message.emit, out);
    if let Err(wrong) = done {
        out.truncate(before);
        return Err(wrong);
    }
    Ok(writer.stream)
}

struct Writer<'w> {
    program: &'w Program,
    view: &'w View,
    locals: Vec<i64>,
    element: Row<'w>,
    stream: Option<StreamWriter>,
}

impl<'w> Writer<'w> {
    fn all(&mut self, parts: &'w [Emit], out: &mut Vec<u8>) -> Result<(), Unbuildable> {
        parts.iter().try_for_each(|part| self.one(part, out))
    }

    fn one(&mut self, part: &'w Emit, out: &mut Vec<u8>) -> Result<(), Unbuildable> {
        match part {
            Emit::Literal(literal) => out.extend_from_slice(self.program.literal(*literal)),
            Emit::Octets { from, check } => {
                let octets = self.octets(from)?;
                let octets = octets.all();
                self.check(octets, check)?;
                out.extend_from_slice(octets);
            }
            Emit::Digits { from, radix, width, max } => {
                let value = self.int(from)?;
                let digits = Digits::of(value, if *radix == 16 { 16 } else { 10 });
                let text = digits.octets();
                let zeros = size(*width).saturating_sub(text.len());
                if value < 0 || !fits(text.len().saturating_add(zeros), *max) {
                    return Err(Unbuildable::Number { value });
                }
                out.resize(out.len().saturating_add(zeros), b'0');
                out.extend_from_slice(text);
            }
            Emit::Word { octets, order, fields } => {
                let word = self.word(fields)?;
                put_number(word, usize::from(*octets), *order, out);
            }
            Emit::Varint { from, octets_max } => put_varint(self.int(from)?, *octets_max, out)?,
            Emit::Extension { of, cases } => {
                let value = self.int(of)?;
                if let Some(case) = escape(value, cases)? {
                    let more = u64::try_from(value.saturating_sub(case.add)).unwrap_or_default();
                    put_number(more, usize::from(case.octets), Order::Big, out);
                }
            }
            Emit::Counted { octets, order, more, max, body } => {
                self.counted((*octets, *order, *more), *max, body, out)?;
            }
            Emit::Checked { by, body } => {
                let from = out.len();
                self.all(body, out)?;
                let mut check = PartialChecksum::new(*by);
                check.add(out.get(from..).unwrap_or_default());
                let check = check.octets();
                out.extend_from_slice(check.get(..usize::from(by.octets())).unwrap_or(&check));
            }
            Emit::Bounded { max, body } => self.bounded(*max, body, out)?,
            Emit::Let { local, value } => {
                let value = self.int(value)?;
                self.locals.get_mut(local.index()).into_iter().for_each(|local| *local = value);
            }
            Emit::IfPresent { slot, then, otherwise } => {
                let there = self.view.held(*slot).is_some();
                self.all(if there { then } else { otherwise }, out)?;
            }
            Emit::When { guard, then } => {
                if self.view.holds(self.program, guard) {
                    self.all(then, out)?;
                }
            }
            Emit::ForEach { list, body } => {
                for row in self.view.rows(*list).iter() {
                    self.element = row;
                    self.all(body, out)?;
                }
            }
            Emit::Stream { slot, select } => self.stream(*slot, select, out)?,
        }
        Ok(())
    }

    fn bounded(
        &mut self,
        max: u32,
        body: &'w [Emit],
        out: &mut Vec<u8>,
    ) -> Result<(), Unbuildable> {
        let from = out.len();
        self.all(body, out)?;
        let length = out.len().saturating_sub(from);
        if fits(length, max) { Ok(()) } else { Err(Unbuildable::Length { length, min: 0, max }) }
    }

    fn word(&self, fields: &[EmitField]) -> Result<u64, Unbuildable> {
        fields.iter().try_fold(0_u64, |word, field| {
            let value = self.int(&field.from)?;
            let mask = u64::MAX.checked_shr(64_u32.saturating_sub(u32::from(field.width)));
            let mask = mask.unwrap_or(0);
            // The bits above those of the number are all those of its sign.
            let sign = if field.signed { mask >> 1 } else { mask };
            let beyond = if value < 0 && field.signed { !value } else { value };
            let fits = beyond.cast_unsigned() & !sign == 0;
            match (value.cast_unsigned() & mask).checked_shl(u32::from(field.shift)) {
                Some(shifted) if fits => Ok(word | shifted),
                _ => Err(Unbuildable::Number { value }),
            }
        })
    }

    fn counted(
        &mut self,
        (octets, order, more): (u8, Order, u32),
        max: u32,
        body: &'w [Emit],
        out: &mut Vec<u8>,
    ) -> Result<(), Unbuildable> {
        let from = out.len();
        self.all(body, out)?;
        let length = out.len().saturating_sub(from);
        if !fits(length, max) {
            return Err(Unbuildable::Length { length, min: 0, max });
        }
        let bits = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(u64::from(more));
        let value = i64::try_from(bits).unwrap_or(i64::MAX);
        let end = out.len();
        if octets == 0 {
            put_varint(value, 4, out)?;
        } else {
            if bits.checked_shr(8 * u32::from(octets)).unwrap_or(0) > 0 {
                return Err(Unbuildable::Number { value });
            }
            put_number(bits, usize::from(octets), order, out);
        }
        // The count goes before what it counts.
        let mut count = [0; COUNT_OCTETS_MAX];
        let octets = out.len().saturating_sub(end);
        if let (Some(count), Some(written)) = (count.get_mut(..octets), out.get(end..)) {
            count.copy_from_slice(written);
        }
        if let Some(counted) = out.get_mut(from..) {
            counted.copy_within(..length, octets);
            counted.iter_mut().zip(count).take(octets).for_each(|(octet, of)| *octet = of);
        }
        Ok(())
    }

    fn stream(
        &mut self,
        slot: SlotId,
        select: &[Select],
        out: &mut Vec<u8>,
    ) -> Result<(), Unbuildable> {
        let framing = select.iter().find(|of| self.view.holds(self.program, &of.guard));
        let framing = framing.ok_or(Unbuildable::NoFraming)?.framing;
        let announced = match framing {
            StreamFraming::Counted(slot) => {
                let length = self.view.int(slot).and_then(|length| u64::try_from(length).ok());
                length.ok_or(StreamLengthError::NoLength)?
            }
            _ => 0,
        };
        let mut writer = StreamWriter::new(self.program, framing, announced);
        if matches!(self.view.held(slot), Some(Held::Stream)) {
            self.stream = Some(writer);
            return Ok(());
        }
        writer.write(self.view.octets(slot).unwrap_or_default(), out)?;
        writer.finish(out)?;
        Ok(())
    }

    fn check(&self, octets: &[u8], check: &Check) -> Result<(), Unbuildable> {
        let literal = |id| self.program.literal(id);
        let length = octets.len();
        let short = u32::try_from(length).is_ok_and(|length| length < check.min);
        if short || !fits(length, check.max) {
            return Err(Unbuildable::Length { length, min: check.min, max: check.max });
        }
        let line_end = |octet: &u8| matches!(octet, b'\r' | b'\n');
        let allowed = check.class.is_none_or(|of| octets.iter().all(|octet| of.contains(*octet)))
            && check.one_of.is_none_or(|set| octets.iter().all(|of| literal(set).contains(of)))
            && check.without.is_none_or(|of| is_found_behind(octets, literal(of)))
            && check.not_first.is_none_or(|of| octets.first().is_none_or(|o| !of.contains(*o)))
            && !(check.one_line && octets.iter().any(line_end));
        if allowed { Ok(()) } else { Err(Unbuildable::Octets) }
    }

    fn local(&self, local: LocalId) -> i64 {
        self.locals.get(local.index()).copied().unwrap_or_default()
    }

    fn int(&self, source: &Source) -> Result<i64, Unbuildable> {
        Ok(match source {
            Source::Slot(slot) => self.view.int(*slot).unwrap_or(0),
            Source::SlotOr(slot, default) => self.view.int(*slot).unwrap_or(*default),
            Source::Element(column) => match self.column(*column) {
                Some(Held::Int(value)) => value,
                _ => 0,
            },
            Source::Local(local) => self.local(*local),
            Source::Int(value) => *value,
            Source::Count(slot) => i64::try_from(self.view.rows(*slot).len()).unwrap_or(i64::MAX),
            Source::Difference(one, other) => {
                let value = self.int(one)?.saturating_sub(self.int(other)?);
                if value < 0 {
                    return Err(Unbuildable::Number { value });
                }
                value
            }
            Source::Escape { of, cases } => {
                let value = self.int(of)?;
                escape(value, cases)?.map_or(value, |case| case.value)
            }
            Source::Size(of) => i64::try_from(self.octets(of)?.all().len()).unwrap_or(i64::MAX),
            Source::Literal(_) | Source::Decimal(_) | Source::Uint(_) => 0,
        })
    }

    fn octets(&self, source: &Source) -> Result<Octets<'w>, Unbuildable> {
        Ok(match source {
            Source::Slot(slot) => Octets::There(self.view.octets(*slot).unwrap_or_default()),
            Source::Element(column) => match self.column(*column) {
                Some(Held::Octets(octets)) => Octets::There(octets),
                _ => Octets::There(&[]),
            },
            Source::Literal(literal) => Octets::There(self.program.literal(*literal)),
            Source::Decimal(of) => Octets::Digits(Digits::of(self.int(of)?, 10)),
            Source::Uint(of) => Octets::Number(self.int(of)?.to_be_bytes()),
            _ => Octets::There(&[]),
        })
    }

    fn column(&self, column: u32) -> Option<Held<'w>> {
        self.element.get(size(column))
    }
}

/// Borrowed octets to write.
enum Octets<'o> {
    There(&'o [u8]),
    Digits(Digits),
    /// A number in network order, without leading zeros.
    Number([u8; 8]),
}

impl Octets<'_> {
    fn all(&self) -> &[u8] {
        match self {
            Self::There(octets) => octets,
            Self::Digits(digits) => digits.octets(),
            Self::Number(octets) => {
                let zeros = octets.iter().take_while(|octet| **octet == 0).count();
                octets.get(zeros..).unwrap_or_default()
            }
        }
    }
}

/// A number in digits, with a minus sign if it is negative.
struct Digits {
    octets: [u8; DIGITS_MAX],
    from: usize,
}

impl Digits {
    fn of(value: i64, radix: u64) -> Self {
        let mut digits = Self { octets: [0; DIGITS_MAX], from: DIGITS_MAX };
        let mut left = value.unsigned_abs();
        loop {
            let digit = usize::try_from(left % radix).unwrap_or_default();
            digits.push(b"0123456789abcdef".get(digit).copied().unwrap_or_default());
            left /= radix;
            if left == 0 {
                break;
            }
        }
        if value < 0 {
            digits.push(b'-');
        }
        digits
    }

    fn push(&mut self, octet: u8) {
        self.from = self.from.saturating_sub(1);
        self.octets.get_mut(self.from).into_iter().for_each(|of| *of = octet);
    }

    fn octets(&self) -> &[u8] {
        self.octets.get(self.from..).unwrap_or_default()
    }
}

/// Whether a reader would find the delimiter right after these octets, and not earlier: neither
/// within them, nor begun by the last of them.
fn is_found_behind(octets: &[u8], delimiter: &[u8]) -> bool {
    let begun = |length: usize| {
        let (begin, rest) = delimiter.split_at_checked(length).unwrap_or_default();
        octets.ends_with(begin) && delimiter.starts_with(rest)
    };
    find(octets, delimiter).is_none() && !(1..delimiter.len()).any(begun)
}

/// The escape that a value needs, if any; a value above the last escape cannot be written.
fn escape(value: i64, cases: &[ExtendCase]) -> Result<Option<&ExtendCase>, Unbuildable> {
    if cases.first().is_none_or(|first| value < first.value) {
        return Ok(None);
    }
    let fits = |case: &&ExtendCase| {
        let more = u64::try_from(value.saturating_sub(case.add)).ok();
        value >= case.add
            && more.is_some_and(|more| more.checked_shr(8 * u32::from(case.octets)) == Some(0))
    };
    cases.iter().find(fits).map(Some).ok_or(Unbuildable::Number { value })
}

fn put_number(value: u64, octets: usize, order: Order, out: &mut Vec<u8>) {
    match order {
        Order::Big => {
            let all = value.to_be_bytes();
            out.extend_from_slice(all.get(all.len().saturating_sub(octets)..).unwrap_or(&all));
        }
        Order::Little => {
            let all = value.to_le_bytes();
            out.extend_from_slice(all.get(..octets).unwrap_or(&all));
        }
    }
}

fn put_varint(value: i64, octets_max: u8, out: &mut Vec<u8>) -> Result<(), Unbuildable> {
    let mut left = u64::try_from(value).map_err(|_| Unbuildable::Number { value })?;
    for _ in 0..octets_max {
        let low = u8::try_from(left & 0x7f).unwrap_or_default();
        left >>= 7;
        if left == 0 {
            out.push(low);
            return Ok(());
        }
        out.push(low | 0x80);
    }
    Err(Unbuildable::Number { value })
}
