//! The two clocks: one that only goes on, by which whatever takes time is measured, and the wall
//! clock, which says what time it is and may be wrong.

use crate::time::Timestamp;
use core::time::Duration;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the process around the machine says of time, at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The wall clock's time since 1970.
    pub wall: Duration,
    /// A clock that only goes on, from any beginning: the machine looks at differences only.
    pub elapsed: Duration,
}

impl From<Duration> for Now {
    /// Both clocks as one, for whoever has a clock that never leaps, such as a simulator.
    fn from(time: Duration) -> Self {
        Self { wall: time, elapsed: time }
    }
}

/// A moment of the clock that only goes on, in microseconds: it continues over restarts, and does not
/// count the time in which the CSE did not run.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than any other.
    pub(crate) const MAX: Self = Self(u64::MAX);

    pub(crate) const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    pub(crate) const fn micros(self) -> u64 {
        self.0
    }

    /// This moment and `span` more.
    pub(crate) fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// How long after `earlier` it is.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// How far the wall clock may go apart from the other one at once before that is a leap.
pub(crate) const LEAP_MICROS: u64 = 60_000_000;
/// How long a wall clock that has leapt must go on evenly before it is believed.
pub(crate) const BELIEVED_AFTER: Duration = Duration::from_hours(1);
/// How often the clocks are noted in the store, with what is stored anyway.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// Spans of wrong wall time that are remembered; beyond, the oldest two become one.
const SPANS_MAX: usize = 16;

/// How far the wall clock is ahead of the moment, in microseconds.
type Offset = i64;

/// A span of wall time in which the wall clock had an offset that may have been wrong: whatever was
/// given a time of expiry then may have been given a wrong one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    offset: Offset,
}

/// What became of the wall clock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// It has leapt and is not believed.
    Leapt,
    /// It is believed. What was stamped in these spans was stamped by a clock that was behind it by
    /// so much.
    Believed(Vec<(Span, Duration)>),
}

/// The clocks of a CSE.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The caller's clock at the start, and the moment then.
    origin: (Duration, Moment),
    wall: Timestamp,
    moment: Moment,
    /// The offset that is believed.
    believed: Offset,
    /// Since when the offset is another one.
    doubted_since: Option<Moment>,
    /// Since when the wall clock has its present offset.
    even_since: Timestamp,
    spans: Vec<Span>,
    noted: Option<Moment>,
    salt: u64,
}

impl Clock {
    /// The number of the row in which the clocks are noted; resources are numbered from 1.
    pub(crate) const ROW: u64 = 0;

    /// The clocks of a CSE that has noted none: the wall clock is believed.
    pub(crate) fn new(now: Now) -> Self {
        let (wall, moment) = (Timestamp::new(now.wall), Moment::default());
        Self {
            origin: (now.elapsed, moment),
            wall,
            moment,
            believed: offset(wall, moment),
            doubted_since: None,
            even_since: wall,
            spans: Vec::new(),
            noted: None,
            salt: wall.micros(),
        }
    }

    /// The clocks as they were noted in `row`, going on from `now`. A wall clock that does not go on
    /// from there is doubted: for how long the CSE did not run nobody knows.
    pub(crate) fn restored(now: Now, row: &str) -> Option<Self> {
        let row: Value = serde_json::from_str(row).ok()?;
        let row = row.get("_k")?;
        let uint = |name: &str| row.get(name).and_then(Value::as_u64);
        let moment = Moment(uint("moment")?);
        let before = Timestamp::from_micros(uint("wall")?);
        let believed = row.get("believed")?.as_i64()?;
        let mut spans = Vec::new();
        for span in row.get("spans").and_then(Value::as_array).into_iter().flatten() {
            let number = |at| span.get(at).and_then(Value::as_u64).map(Timestamp::from_micros);
            let offset = span.get(2).and_then(Value::as_i64)?;
            spans.push(Span { from: number(0)?, to: number(1)?, offset });
        }
        let wall = Timestamp::new(now.wall);
        let mut clock = Self {
            origin: (now.elapsed, moment),
            wall,
            moment,
            believed,
            doubted_since: None,
            even_since: wall,
            spans,
            noted: None,
            salt: uint("salt").unwrap_or(wall.micros()),
        };
        if row.get("doubted").and_then(Value::as_bool) == Some(true) {
            let from = Timestamp::from_micros(uint("even")?);
            let to = before.plus(NOTED_EVERY.saturating_mul(2));
            clock.push_span(Span { from, to, offset: offset(before, moment) });
        }
        if offset(wall, moment).abs_diff(believed) > LEAP_MICROS {
            clock.doubted_since = Some(moment);
        }
        Some(clock)
    }

    /// What requests are remembered by, of which the store has the same as long as it is there.
    pub(crate) const fn salt(&self) -> u64 {
        self.salt
    }

    /// The wall clock.
    pub(crate) const fn wall(&self) -> Timestamp {
        self.wall
    }

    /// The moment.
    pub(crate) const fn moment(&self) -> Moment {
        self.moment
    }

    /// The time by which resources expire: what the wall clock has reached, and while it is doubted
    /// what it would have reached by any offset that it has had since it was believed last.
    pub(crate) fn expiring(&self) -> Timestamp {
        if self.doubted_since.is_none() {
            return self.wall;
        }
        let least = self.spans.iter().map(|span| span.offset).chain([self.believed]).min();
        let micros = i128::from(self.moment.0) + i128::from(least.unwrap_or(self.believed));
        self.wall.min(Timestamp::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    /// Whether a clock that is believed has something to make good.
    pub(crate) const fn owes(&self) -> bool {
        !self.is_doubted() && !self.spans.is_empty()
    }

    /// Whether the wall clock is not believed.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.doubted_since.is_some()
    }

    /// By how much the wall clock is ahead of the one that is believed, in seconds.
    pub(crate) fn ahead_seconds(&self) -> i64 {
        offset(self.wall, self.moment).saturating_sub(self.believed) / 1_000_000
    }

    /// The caller's clock at a moment.
    pub(crate) fn elapsed_at(&self, moment: Moment) -> Duration {
        let (began, first) = self.origin;
        began.saturating_add(moment.since(first))
    }

    /// When something is to be done about the wall clock.
    pub(crate) fn due(&self) -> Option<Moment> {
        self.doubted_since.map(|since| since.plus(BELIEVED_AFTER))
    }

    /// Takes what the clocks say now.
    pub(crate) fn advance(&mut self, now: Now) -> Option<Change> {
        let (began, first) = self.origin;
        let moment = first.plus(now.elapsed.saturating_sub(began)).max(self.moment);
        let wall = Timestamp::new(now.wall);
        let (before, offset_before) = (self.wall, offset(self.wall, self.moment));
        let offset = offset(wall, moment);
        (self.wall, self.moment) = (wall, moment);
        if offset.abs_diff(offset_before) > LEAP_MICROS {
            self.push_span(Span { from: self.even_since, to: before, offset: offset_before });
            self.even_since = wall;
            self.noted = None;
            if offset.abs_diff(self.believed) <= LEAP_MICROS {
                return self.believe();
            }
            self.doubted_since = Some(moment);
            return Some(Change::Leapt);
        }
        match self.doubted_since {
            None => self.believed = offset,
            Some(since) if moment >= since.plus(BELIEVED_AFTER) => return self.believe(),
            Some(_) => {}
        }
        None
    }

    /// Has the wall clock believed from now on: by an operator, or whoever has asked a server of
    /// time.
    pub(crate) fn believe(&mut self) -> Option<Change> {
        self.believed = offset(self.wall, self.moment);
        let doubted = self.doubted_since.take().is_some();
        if !doubted && self.spans.is_empty() {
            return None;
        }
        self.noted = None;
        let believed = self.believed;
        let behind = core::mem::take(&mut self.spans).into_iter().filter_map(|span| {
            let by = u64::try_from(believed.saturating_sub(span.offset)).ok()?;
            (by > LEAP_MICROS).then_some((span, Duration::from_micros(by)))
        });
        Some(Change::Believed(behind.collect()))
    }

    /// The clocks as they are to be noted, if that is due.
    pub(crate) fn note(&mut self) -> Option<Arc<str>> {
        if self.noted.is_some_and(|noted| self.moment < noted.plus(NOTED_EVERY)) {
            return None;
        }
        self.noted = Some(self.moment);
        let spans =
            self.spans.iter().map(|it| json!([it.from.micros(), it.to.micros(), it.offset]));
        let noted = json!({ "_k": {
            "moment": self.moment.0,
            "wall": self.wall.micros(),
            "believed": self.believed,
            "doubted": self.is_doubted(),
            "even": self.even_since.micros(),
            "salt": self.salt,
            "spans": spans.collect::<Vec<Value>>(),
        }});
        Some(noted.to_string().into())
    }

    /// What was to be noted could not be stored: it is still to be noted.
    pub(crate) const fn note_again(&mut self) {
        self.noted = None;
    }

    fn push_span(&mut self, span: Span) {
        if self.spans.len() >= SPANS_MAX {
            let oldest = self.spans.remove(0);
            if let Some(next) = self.spans.first_mut() {
                next.from = next.from.min(oldest.from);
                next.to = next.to.max(oldest.to);
                next.offset = next.offset.min(oldest.offset);
            }
        }
        self.spans.push(span);
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// How far a wall clock is ahead of a moment. Neither is further from zero than the year 9999 and a
/// run that long.
fn offset(wall: Timestamp, moment: Moment) -> Offset {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    signed(wall.micros()).saturating_sub(signed(moment.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Duration = Duration::from_hours(24);
    const HOUR: Duration = Duration::from_hours(1);
    const YEAR_2026: Duration = Duration::from_secs(1_790_000_000);

    fn at(wall: Duration, elapsed: Duration) -> Now {
        Now { wall, elapsed }
    }

    #[test]
    fn a_leap_is_believed_when_it_has_stood_for_an_hour() {
        let mut clock = Clock::new(at(YEAR_2026, Duration::ZERO));
        let minute = Duration::from_mins(1);
        assert_eq!(clock.advance(at(YEAR_2026 + minute, minute)), None);
        let ahead = YEAR_2026 + 8 * DAY;
        assert_eq!(clock.advance(at(ahead + 2 * minute, 2 * minute)), Some(Change::Leapt));
        assert_eq!(clock.expiring(), Timestamp::new(YEAR_2026 + 2 * minute), "held back");
        assert_eq!(clock.ahead_seconds(), 8 * 86_400);
        // Set right again: nothing has happened.
        let back = clock.advance(at(YEAR_2026 + 3 * minute, 3 * minute));
        assert_eq!(back, Some(Change::Believed(Vec::new())));
        assert_eq!(clock.expiring(), Timestamp::new(YEAR_2026 + 3 * minute));
        // Set back by an hour: held back by the wall clock itself, then believed.
        let slow = YEAR_2026.checked_sub(HOUR).unwrap();
        assert_eq!(clock.advance(at(slow + 4 * minute, 4 * minute)), Some(Change::Leapt));
        assert_eq!(clock.expiring(), Timestamp::new(slow + 4 * minute));
        assert_eq!(clock.advance(at(slow + HOUR, HOUR)), None);
        let stood = HOUR + 5 * minute;
        assert!(matches!(clock.advance(at(slow + stood, stood)), Some(Change::Believed(_))));
        assert!(!clock.is_doubted());
    }

    #[test]
    fn what_was_stamped_in_1970_is_known_when_the_clock_is_set() {
        let mut clock = Clock::new(at(Duration::from_secs(30), Duration::ZERO));
        let minute = Duration::from_mins(1);
        assert_eq!(clock.advance(at(Duration::from_secs(90), minute)), None);
        assert_eq!(clock.advance(at(YEAR_2026, 2 * minute)), Some(Change::Leapt));
        let Some(Change::Believed(spans)) = clock.believe() else { panic!("it is believed") };
        let [(span, behind)] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(span.from, Timestamp::new(Duration::from_secs(30)));
        assert_eq!(span.to, Timestamp::new(Duration::from_secs(90)));
        assert_eq!(*behind + Duration::from_secs(150), YEAR_2026);
    }

    #[test]
    fn slow_drift_is_no_leap() {
        let mut clock = Clock::new(at(YEAR_2026, Duration::ZERO));
        // Half a minute an hour, for a month.
        for hours in 1..720 {
            let wall = YEAR_2026 + hours * (HOUR + Duration::from_secs(30));
            assert_eq!(clock.advance(at(wall, hours * HOUR)), None);
            assert_eq!(clock.expiring(), Timestamp::new(wall));
        }
    }

    proptest! {
        /// Whatever the wall clock does, and however often the CSE restarts: the moment grows by the
        /// time that has passed, and nothing expires before both clocks say so.
        #[test]
        fn moments_go_on_whatever_the_wall_clock_does(
            steps in proptest::collection::vec((0_u64..7_200, 0_u64..4_000_000_000, any::<bool>()), 1..40)
        ) {
            let (mut elapsed, mut passed) = (Duration::ZERO, Duration::ZERO);
            let mut clock = Clock::new(at(YEAR_2026, elapsed));
            let mut latest_believed = clock.expiring();
            for (seconds, wall, restarts) in steps {
                let span = Duration::from_secs(seconds);
                elapsed += span;
                passed += span;
                clock.advance(at(Duration::from_secs(wall), elapsed));
                prop_assert_eq!(clock.moment().since(Moment::default()), passed);
                prop_assert!(clock.expiring() <= clock.wall());
                if clock.is_doubted() {
                    prop_assert!(clock.expiring() <= latest_believed.plus(span));
                }
                latest_believed = clock.expiring();
                if restarts {
                    clock.note_again();
                    let noted = clock.note().unwrap();
                    elapsed = Duration::ZERO;
                    let now = at(Duration::from_secs(wall), elapsed);
                    let again = Clock::restored(now, &noted).unwrap();
                    prop_assert_eq!(again.moment(), clock.moment());
                    prop_assert!(again.expiring() <= clock.expiring());
                    clock = again;
                }
            }
        }
    }
}
