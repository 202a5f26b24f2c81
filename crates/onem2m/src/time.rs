//! Points in time in oneM2M's form (TS-0004 §6.3.3): `YYYYMMDDThhmmss,ffffff`, UTC.

use core::fmt;
use core::time::Duration;

/// A point in time, in microseconds since 1970-01-01T00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(u64);

const MICROS_PER_SECOND: u64 = 1_000_000;
const SECONDS_PER_DAY: u64 = 86_400;
/// The last microsecond of the year 9999, the last that four digits can write.
const MICROS_MAX: u64 = 253_402_300_799 * MICROS_PER_SECOND + 999_999;

impl Timestamp {
    /// The latest time that can be written.
    pub const MAX: Self = Self(MICROS_MAX);

    /// The point `since_epoch` after 1970; later than the year 9999 becomes [`Self::MAX`].
    pub fn new(since_epoch: Duration) -> Self {
        Self(u64::try_from(since_epoch.as_micros()).unwrap_or(MICROS_MAX).min(MICROS_MAX))
    }

    /// The point `micros` microseconds after 1970.
    pub const fn from_micros(micros: u64) -> Self {
        Self(if micros < MICROS_MAX { micros } else { MICROS_MAX })
    }

    /// Microseconds since 1970.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The same point as a duration since 1970.
    pub const fn since_epoch(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// This point and `span` more.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::from_micros(
            self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
        )
    }

    /// Reads an absolute oneM2M time: `YYYYMMDDThhmmss`, with `,` or `.` and up to six digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.find([',', '.']) {
            Some(at) => (text.get(..at)?, text.get(at + 1..)?),
            None => (text, ""),
        };
        let digits = whole.as_bytes();
        if digits.len() != 15 || digits.get(8) != Some(&b'T') {
            return None;
        }
        let field = |from: usize, to: usize| -> Option<u64> {
            let part = whole.get(from..to)?;
            if part.bytes().all(|octet| octet.is_ascii_digit()) { part.parse().ok() } else { None }
        };
        let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
        let (hour, minute, second) = (field(9, 11)?, field(11, 13)?, field(13, 15)?);
        let month_is_real = (1..=12).contains(&month);
        if year < 1970 || !month_is_real || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        if day == 0 || day > days_in_month(year, month) {
            return None;
        }
        let days = days_before(year, month, day);
        let seconds = days * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second;
        Some(Self(seconds * MICROS_PER_SECOND + parse_fraction(fraction)?))
    }
}

fn parse_fraction(digits: &str) -> Option<u64> {
    if digits.len() > 6 || !digits.bytes().all(|octet| octet.is_ascii_digit()) {
        return None;
    }
    let mut micros: u64 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    for _ in digits.len()..6 {
        micros *= 10;
    }
    Some(micros)
}

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

const fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date, by the civil-calendar arithmetic of eras of 400 years.
const fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let year_of_era = year % 400;
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date that lies `days` after 1970-01-01; the inverse of [`days_before`].
const fn date_after(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

/// A point in time, written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digits([u8; 22]);

impl Digits {
    pub(crate) fn text(&self) -> &str {
        // Digits, a T and a comma: always text.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl Timestamp {
    /// Its second, minute, hour, day of the month, month, day of the week (0 is Sunday) and year.
    pub(crate) fn civil(self) -> [u16; 7] {
        /// 1970 began on a Thursday.
        const FIRST: u64 = 4;
        let seconds = self.0 / MICROS_PER_SECOND;
        let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
        let (year, month, day) = date_after(days);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        // None is larger than a year of four digits.
        [second % 60, minute, hour, day, month, (days + FIRST) % 7, year]
            .map(|number| u16::try_from(number).unwrap_or(u16::MAX))
    }

    /// As it is written, to be written more than once.
    pub(crate) fn digits(self) -> Digits {
        let (seconds, micros) = (self.0 / MICROS_PER_SECOND, self.0 % MICROS_PER_SECOND);
        let (year, month, day) = date_after(seconds / SECONDS_PER_DAY);
        let second = seconds % SECONDS_PER_DAY;
        // By hand: every create writes two of these, and the formatting machinery costs more
        // than the rest of the representation.
        let mut text = *b"00000000T000000,000000";
        write_digits(&mut text, 4, year);
        write_digits(&mut text, 6, month);
        write_digits(&mut text, 8, day);
        write_digits(&mut text, 11, second / 3_600);
        write_digits(&mut text, 13, second / 60 % 60);
        write_digits(&mut text, 15, second % 60);
        write_digits(&mut text, 22, micros);
        Digits(text)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.digits().text())
    }
}

/// Writes `value` in decimal so that it ends before `end`, over the zeros that stand there.
fn write_digits(text: &mut [u8; 22], end: usize, mut value: u64) {
    for place in text.iter_mut().take(end).rev() {
        if value == 0 {
            return;
        }
        *place = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
    }
}

/// Reads a duration: milliseconds as a number, or ISO 8601 `PnDTnHnMnS` (TS-0004 §6.3.3).
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(millis) = text.parse::<u64>() {
        return Some(Duration::from_millis(millis));
    }
    let rest = text.strip_prefix('P')?;
    let (date, time) = rest.split_once('T').unwrap_or((rest, ""));
    let mut seconds = 0.0_f64;
    for (part, units) in [
        (date, [('Y', 31_536_000.0), ('W', 604_800.0), ('D', 86_400.0)].as_slice()),
        (time, [('H', 3_600.0), ('M', 60.0), ('S', 1.0)].as_slice()),
    ] {
        let mut rest = part;
        while !rest.is_empty() {
            let at = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let unit = rest.get(at..)?.chars().next()?;
            let (_, worth) = units.iter().find(|(name, _)| *name == unit)?;
            seconds += rest.get(..at)?.parse::<f64>().ok()? * worth;
            rest = rest.get(at + 1..)?;
        }
    }
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Seconds since 1970 as `date -u -d @N +%Y%m%dT%H%M%S` prints them.
    #[test]
    fn writes_what_date_writes() {
        let cases = [
            (0, "19700101T000000,000000"),
            (951_782_400, "20000229T000000,000000"),
            (1_700_000_000, "20231114T221320,000000"),
            (4_102_444_799, "20991231T235959,000000"),
            (253_402_300_799, "99991231T235959,000000"),
        ];
        for (seconds, text) in cases {
            let time = Timestamp::from_micros(seconds * 1_000_000);
            assert_eq!(time.to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(time));
        }
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "20230230T000000",
            "20231301T000000",
            "2023111T221320",
            "20231114 221320",
            "20231114T226020",
            "20231114T221320,1234567",
            "19691231T235959",
            "２0231114T22132",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
        assert_eq!(
            Timestamp::parse("20231114T221320.5"),
            Some(Timestamp::from_micros(1_700_000_000_500_000))
        );
    }

    #[test]
    fn durations_by_number_and_by_iso() {
        assert_eq!(parse_duration("1500"), Some(Duration::from_millis(1_500)));
        assert_eq!(parse_duration("PT1M30.5S"), Some(Duration::from_millis(90_500)));
        assert_eq!(parse_duration("P1DT2H"), Some(Duration::from_hours(26)));
        for text in ["P1X", "1D", "PT", "PTS", "P-1D"] {
            assert!(parse_duration(text).is_none_or(|span| span.is_zero()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(micros in 0..=MICROS_MAX) {
            let time = Timestamp::from_micros(micros);
            prop_assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,30}") {
            let _ = Timestamp::parse(&text);
            let _ = parse_duration(&text);
        }
    }
}
