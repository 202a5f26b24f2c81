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

    /// The calendar time in UTC, `hundredths` of a second after 1970-01-01; times after the year
    /// 9999 become its last instant.
    pub fn from_unix(hundredths: u64) -> Self {
        const LAST: AbsoluteTime = AbsoluteTime([0x99, 0x99, 0x12, 0x31, 0x23, 0x59, 0x59, 0x99]);
        let (seconds, hundredth) = (hundredths / 100, hundredths % 100);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = civil(days);
        let parts = [month, day, second / 3_600, second / 60 % 60, second % 60, hundredth];
        let parts = parts.map(|part| u8::try_from(part).unwrap_or(u8::MAX));
        u16::try_from(year).ok().and_then(|year| Self::new(year, parts)).unwrap_or(LAST)
    }

    /// Hundredths of a second after 1970-01-01, as if the calendar were UTC's; `None` if the
    /// octets are no date, or one before.
    pub fn to_unix(self) -> Option<u64> {
        let parts = self.parts()?.map(u64::from);
        let [century, year, month, day, hour, minute, second, hundredth] = parts;
        let days = days_since_1970(century * 100 + year, month, day)?;
        Some((days * 86_400 + hour * 3_600 + minute * 60 + second) * 100 + hundredth)
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

/// Year, month and day, `days` after 1970-01-01.
///
/// Counted from the first of March of year 0, so that the leap day is a year's last: eras of 400
/// years have 146,097 days, and the months from March on are 153 days every five.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

/// Days from 1970-01-01 to a date, counted as [`civil`] does; `None` before.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day.checked_sub(1)?;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    days.checked_sub(719_468)
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

    /// Dates from `date -u -d @SECONDS`.
    #[test]
    fn unix_time_has_a_date() {
        let cases = [
            (0, "1970-01-01T00:00:00.00"),
            (1_709_164_799, "2024-02-28T23:59:59.00"),
            (1_709_208_000, "2024-02-29T12:00:00.00"),
            (1_795_266_000, "2026-11-21T13:00:00.00"),
            (4_107_542_400, "2100-03-01T00:00:00.00"),
            (u64::MAX / 100, "9999-12-31T23:59:59.99"),
        ];
        for (seconds, text) in cases {
            let shown = AbsoluteTime::from_unix(seconds * 100).iso().unwrap().to_string();
            assert_eq!(shown, text, "{seconds}");
            if !text.starts_with('9') {
                let back = AbsoluteTime::from_unix(seconds * 100).to_unix();
                assert_eq!(back, Some(seconds * 100), "{text}");
            }
        }
    }

    #[test]
    fn what_is_no_date_has_no_text() {
        assert_eq!(AbsoluteTime([0x20, 0x0A, 1, 1, 0, 0, 0, 0]).iso(), None, "A is no digit");
        assert_eq!(AbsoluteTime([0; 8]).iso(), None, "month 0");
        assert_eq!(AbsoluteTime::new(2026, [13, 1, 0, 0, 0, 0]), None);
        assert_eq!(AbsoluteTime::new(2026, [1, 1, 0, 0, 0, 100]), None);
    }
}
