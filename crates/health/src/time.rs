//! The clocks of a device: calendar time in BCD, running counters, base time with offset.

use crate::mder::{Malformed, Reader};
use core::fmt;

/// Ticks of a device's running counter in a second: relative time counts 1/8 ms
/// (ISO/IEEE 11073-20601, RelativeTime).
pub const RELATIVE_TICKS_PER_SECOND: u32 = 8_000;

/// Event time of an agent that has no running counter.
pub const NO_RELATIVE_TIME: u32 = 0xFFFF_FFFF;

/// Calendar time as devices send it: eight octets of two decimal digits each: century, year,
/// month, day, hour, minute, second, hundredth.
///
/// There is no time zone: it is the time on the device's display. Octets that are no decimal
/// digits are kept, and shown by [`Debug`](fmt::Debug) only.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AbsoluteTime(pub [u8; 8]);

impl AbsoluteTime {
    /// Makes BCD of a date and a time; `None` if a part does not exist.
    pub fn new(year: u16, [month, day, hour, minute, second, hundredth]: [u8; 6]) -> Option<Self> {
        let century = u8::try_from(year / 100).ok()?;
        let parts =
            [century, u8::try_from(year % 100).ok()?, month, day, hour, minute, second, hundredth];
        let time = Self(parts.map(|part| ((part / 10 % 10) << 4) | (part % 10)));
        time.parts().filter(|found| *found == parts).map(|_| time)
    }

    /// Century, year, month, day, hour, minute, second, hundredth; `None` if that is no date.
    pub fn parts(self) -> Option<[u8; 8]> {
        if self.0.iter().any(|bcd| bcd >> 4 > 9 || bcd & 0x0F > 9) {
            return None;
        }
        let parts = self.0.map(|bcd| (bcd >> 4) * 10 + (bcd & 0x0F));
        let [_, _, month, day, hour, minute, second, _] = parts;
        let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
        (is_date && hour < 24 && minute < 60 && second <= 60).then_some(parts)
    }

    /// The time as text, `2009-06-12T12:10:00.00`; `None` if the octets are no date.
    pub fn iso(self) -> Option<IsoTime> {
        self.parts().map(IsoTime)
    }
}

/// Shows a calendar time as ISO 8601, without zone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IsoTime([u8; 8]);

impl fmt::Display for IsoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [century, year, month, day, hour, minute, second, hundredth] = self.0;
        write!(f, "{century:02}{year:02}-{month:02}-{day:02}T")?;
        write!(f, "{hour:02}:{minute:02}:{second:02}.{hundredth:02}")
    }
}

/// Seconds since a base with an offset from UTC (20601:2014, BaseOffsetTime; *unverified*).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct BaseOffsetTime {
    /// Seconds since the base, 1900-01-01.
    pub seconds: u32,
    /// Fraction of a second, in 1/65536.
    pub fraction: u16,
    /// Minutes that local time is ahead of the base.
    pub offset_minutes: i16,
}

impl BaseOffsetTime {
    /// Takes the eight octets.
    ///
    /// # Errors
    ///
    /// [`Malformed::Truncated`] if fewer are left.
    pub fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            seconds: reader.u32()?,
            fraction: reader.u16()?,
            offset_minutes: reader.u16()?.cast_signed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_from_the_field() {
        let time = AbsoluteTime([0x20, 0x09, 0x06, 0x12, 0x12, 0x10, 0x00, 0x00]);
        assert_eq!(time.iso().unwrap().to_string(), "2009-06-12T12:10:00.00");
        assert_eq!(AbsoluteTime::new(2009, [6, 12, 12, 10, 0, 0]), Some(time));
    }

    #[test]
    fn what_is_no_date_has_no_text() {
        assert_eq!(AbsoluteTime([0x20, 0x0A, 1, 1, 0, 0, 0, 0]).iso(), None, "A is no digit");
        assert_eq!(AbsoluteTime([0; 8]).iso(), None, "month 0");
        assert_eq!(AbsoluteTime::new(2026, [13, 1, 0, 0, 0, 0]), None);
        assert_eq!(AbsoluteTime::new(2026, [1, 1, 0, 0, 0, 100]), None);
    }
}
