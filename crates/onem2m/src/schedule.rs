//! Recurring times (m2m:scheduleEntry, TS-0001 §9.6.9) as patterns.

use crate::time::Timestamp;

/// Octets of a pattern's text at most: room for every field to list a dozen ranges.
const TEXT_MAX: usize = 512;

/// The first and last number of each field: second, minute, hour, day of the month, month, day of
/// the week (0 is Sunday), year.
const FIELDS: [(u16, u16); 7] = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (1970, 9999)];

/// A pattern of recurring points in time, in UTC.
///
/// Seven fields, as of crontab(5) with a second before and a year behind: `*`, or a list of numbers
/// and ranges (`1,3-5`), each range and `*` with a step if there is a slash (`*/15`, `8-18/2`). A
/// point is included if all its fields are.
#[derive(Debug)]
pub(crate) struct Schedule([Vec<Stretch>; 7]);

/// Every `step`-th number of a field, from the first to the last.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: u16,
    last: u16,
    step: u16,
}

impl Schedule {
    /// Parses a pattern; `None` if it is invalid or too long.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let mut words = text.split_ascii_whitespace();
        let mut fields: [Vec<Stretch>; 7] = Default::default();
        for (field, bounds) in fields.iter_mut().zip(FIELDS) {
            let stretches = words.next()?.split(',').map(|word| Stretch::parse(word, bounds));
            *field = stretches.collect::<Option<_>>()?;
        }
        words.next().is_none().then_some(Self(fields))
    }

    /// Whether it holds at `time`.
    pub(crate) fn includes(&self, time: Timestamp) -> bool {
        let fields = self.0.iter().zip(time.civil());
        fields.into_iter().all(|(field, number)| field.iter().any(|it| it.includes(number)))
    }
}

impl Stretch {
    fn parse(word: &str, (least, most): (u16, u16)) -> Option<Self> {
        let (range, step) = match word.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (word, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            // A step needs something to go through.
            None if step.is_some() => return None,
            None => (number(range)?, number(range)?),
        };
        let step = step.unwrap_or(1);
        let fits = least <= first && first <= last && last <= most && step > 0;
        fits.then_some(Self { first, last, step })
    }

    const fn includes(self, number: u16) -> bool {
        self.first <= number
            && number <= self.last
            && (number - self.first).is_multiple_of(self.step)
    }
}

/// Reads digits alone: no sign.
fn number(text: &str) -> Option<u16> {
    text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_point_is_included_if_all_its_fields_are() {
        // A Saturday.
        let time = Timestamp::parse("20261121T224507,5").unwrap();
        for (pattern, expected) in [
            ("* * * * * * *", true),
            ("7 45 22 21 11 6 2026", true),
            ("8 45 22 21 11 6 2026", false),
            ("* * 22-23,0-5 * * * *", true),
            ("* * 0-5,23 * * * *", false),
            ("* */15 * * * * *", true),
            ("* */10 * * * * *", false),
            ("* * 8-22/2 * * * *", true),
            ("* * 9-22/2 * * * *", false),
            ("* * * */2 * * *", true),
            ("* * * * * 1-5 *", false),
            ("* * * * * 0,6 2026-2030", true),
            ("* * * * 12 * *", false),
        ] {
            let schedule = Schedule::parse(pattern).unwrap();
            assert_eq!(schedule.includes(time), expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            "* * * * * *",
            "* * * * * * * *",
            "60 * * * * * *",
            "* * * 0 * * *",
            "* * * * * 7 *",
            "5-3 * * * * * *",
            "*/0 * * * * * *",
            "3/2 * * * * * *",
            "1, * * * * * *",
            "+1 * * * * * *",
            "1--2 * * * * * *",
            "99999 * * * * * *",
        ] {
            assert!(Schedule::parse(text).is_none(), "{text}");
        }
        assert!(Schedule::parse(&format!("{}1 * * * * * *", "1,".repeat(TEXT_MAX))).is_none());
    }

    proptest! {
        /// A pattern of a point's own fields includes it, and no other second.
        #[test]
        fn its_own_fields_include_a_point(micros in 0_u64..250_000_000_000_000_000, on in 1_u64..100_000_000) {
            let time = Timestamp::from_micros(micros);
            let words: Vec<String> = time.civil().iter().map(u16::to_string).collect();
            let schedule = Schedule::parse(&words.join(" ")).unwrap();
            prop_assert!(schedule.includes(time));
            let later = time.plus(core::time::Duration::from_secs(on));
            prop_assert!(!schedule.includes(later));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9*/, -]{0,40}") {
            let _read = Schedule::parse(&text);
        }
    }
}
