//! The two clocks: a monotonic one that measures durations, and the wall clock, which gives the
//! time and may be wrong.

use crate::time::Timestamp;
use core::time::Duration;
use serde_json::{Value, json};
use std::sync::Arc;

/// Readings of both clocks at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Now {
    /// The wall clock's time since 1970.
    pub wall: Duration,
    /// A monotonic clock of any origin: only differences are used.
    pub elapsed: Duration,
}

impl From<Duration> for Now {
    /// Both clocks as one, for a caller whose clock never steps, such as a simulator.
    fn from(time: Duration) -> Self {
        Self { wall: time, elapsed: time }
    }
}

/// A moment of the monotonic clock, in microseconds: it continues over restarts and excludes the
/// time in which the CSE did not run.
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

    /// Time since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Largest change of the wall clock against the monotonic one that is not a step.
pub(crate) const LEAP_MICROS: u64 = 60_000_000;
/// Time that a stepped wall clock must run evenly before it is trusted.
pub(crate) const BELIEVED_AFTER: Duration = Duration::from_hours(1);
/// Interval at which the clocks are stored together with other data.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// Interval at which the clocks are stored in a batch of their own: a CSE without changes knows
/// within this time when it ran last, and still writes only once a minute.
const NOTED_ALONE_EVERY: Duration = Duration::from_mins(1);
/// Remembered spans of wrong wall time; beyond, the oldest two are merged.
const SPANS_MAX: usize = 16;

/// Lead of the wall clock over the moment, in microseconds.
type Offset = i64;

/// A span of wall time in which the wall clock may have been wrong: times of expiry given then may
/// be wrong too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    offset: Offset,
}

/// Instances that expire later than their rows say, as the wall clock was behind when they were
/// created: their rows are not written anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shift {
    /// Creation times of the instances.
    from: Timestamp,
    to: Timestamp,
    /// They have lower numbers.
    below: u64,
    behind: Duration,
}

impl Shift {
    /// Whether an instance of this number and time of creation is one of them.
    pub(crate) fn covers(&self, seq: u64, created: Timestamp) -> bool {
        seq < self.below && self.from <= created && created <= self.to
    }

    /// How much later they expire.
    pub(crate) const fn behind(&self) -> Duration {
        self.behind
    }

    fn to_value(self) -> Value {
        json!([self.from.micros(), self.to.micros(), self.below, micros(self.behind)])
    }

    fn from_value(value: &Value) -> Option<Self> {
        let number = |at: usize| value.get(at).and_then(Value::as_u64);
        let (from, to) = (Timestamp::from_micros(number(0)?), Timestamp::from_micros(number(1)?));
        Some(Self { from, to, below: number(2)?, behind: Duration::from_micros(number(3)?) })
    }
}

/// Change of the wall clock's state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// It has stepped and is in doubt.
    Leapt,
    /// It is trusted. Times in these spans came from a clock that was behind it by this much.
    Believed(Vec<(Span, Duration)>),
}

/// Why the wall clock is in doubt; then only resources that have expired by both clocks expire.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClockDoubt {
    /// It has stepped by a number of seconds, forward or back.
    Leapt(i64),
    /// The CSE did not run for a number of seconds, by the wall clock alone.
    Stopped(i64),
}

/// The clocks of a CSE.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The caller's clock at the start, and the moment then.
    origin: (Duration, Moment),
    wall: Timestamp,
    moment: Moment,
    /// The trusted offset.
    believed: Offset,
    /// Start of the doubt.
    doubted_since: Option<Moment>,
    /// Whether the doubt is only how long the CSE did not run.
    is_restarted: bool,
    /// Start of the present offset, by the wall clock.
    even_since: Timestamp,
    spans: Vec<Span>,
    shifts: Vec<Shift>,
    noted: Option<Moment>,
    /// Time from which on the clocks are stored without other data. A failure does not change it:
    /// a store that fails is not tried at every step.
    noted_alone_from: Moment,
    salt: u64,
}

impl Clock {
    /// The number of the row that stores the clocks; resources are numbered from 1.
    pub(crate) const ROW: u64 = 0;

    /// Clocks of a CSE without stored ones: the wall clock is trusted.
    pub(crate) fn new(now: Now) -> Self {
        let (wall, moment) = (Timestamp::new(now.wall), Moment::default());
        Self {
            origin: (now.elapsed, moment),
            wall,
            moment,
            believed: offset(wall, moment),
            doubted_since: None,
            is_restarted: false,
            even_since: wall,
            spans: Vec::new(),
            shifts: Vec::new(),
            noted: None,
            noted_alone_from: moment.plus(NOTED_ALONE_EVERY),
            salt: wall.micros(),
        }
    }

    /// Restores the clocks from `row`. A wall clock that does not continue from there is in doubt,
    /// since the length of the stop is unknown.
    pub(crate) fn restored(now: Now, row: &str) -> Option<Self> {
        let row: Value = serde_json::from_str(row).ok()?;
        let row = row.get("_k")?;
        let uint = |name: &str| row.get(name).and_then(Value::as_u64);
        let moment = Moment(uint("moment")?);
        let before = Timestamp::from_micros(uint("wall")?);
        let believed = row.get("believed")?.as_i64()?;
        let mut spans = Vec::new();
        let list = |name| row.get(name).and_then(Value::as_array).into_iter().flatten();
        for span in list("spans") {
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
            is_restarted: false,
            even_since: wall,
            spans,
            shifts: list("shifts").filter_map(Shift::from_value).collect(),
            noted: None,
            noted_alone_from: moment.plus(NOTED_ALONE_EVERY),
            salt: uint("salt").unwrap_or(wall.micros()),
        };
        let was_doubted = row.get("doubted").and_then(Value::as_bool) == Some(true);
        let restarted = row.get("restarted").and_then(Value::as_bool) == Some(true);
        let was_leapt = was_doubted && !restarted;
        if was_doubted {
            let from = Timestamp::from_micros(uint("even")?);
            let to = before.plus(NOTED_EVERY.saturating_mul(2));
            clock.push_span(Span { from, to, offset: offset(before, moment) });
        }
        if offset(wall, moment).abs_diff(believed) > LEAP_MICROS {
            clock.doubted_since = Some(moment);
            // A clock that goes on where it was says how long the CSE did not run, if it is right.
            clock.is_restarted = !was_leapt && before <= wall;
        }
        Some(clock)
    }

    /// Salt of the hashes of remembered requests, stored for the lifetime of the database.
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

    /// Time for the expiry of resources: the wall clock's; while it is in doubt, the earliest by
    /// any offset since it was trusted last.
    pub(crate) fn expiring(&self) -> Timestamp {
        if self.doubted_since.is_none() {
            return self.wall;
        }
        let least = self.spans.iter().map(|span| span.offset).chain([self.believed]).min();
        let micros = i128::from(self.moment.0) + i128::from(least.unwrap_or(self.believed));
        self.wall.min(Timestamp::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    /// Whether a trusted clock has spans to correct.
    pub(crate) const fn owes(&self) -> bool {
        !self.is_doubted() && !self.spans.is_empty()
    }

    /// Whether the wall clock is in doubt.
    pub(crate) const fn is_doubted(&self) -> bool {
        self.doubted_since.is_some()
    }

    /// Why the wall clock is in doubt, if it is.
    pub(crate) fn doubt(&self) -> Option<ClockDoubt> {
        self.doubted_since?;
        let ahead = offset(self.wall, self.moment).saturating_sub(self.believed) / 1_000_000;
        Some(if self.is_restarted { ClockDoubt::Stopped(ahead) } else { ClockDoubt::Leapt(ahead) })
    }

    /// The caller's clock at a moment.
    pub(crate) fn elapsed_at(&self, moment: Moment) -> Duration {
        let (began, first) = self.origin;
        began.saturating_add(moment.since(first))
    }

    /// Next time at which the wall clock's state may change, or the clocks are to be stored.
    pub(crate) fn due(&self) -> Moment {
        let believed = self.doubted_since.map(|since| since.plus(BELIEVED_AFTER));
        believed.map_or(self.noted_alone_from, |due| due.min(self.noted_alone_from))
    }

    /// Takes new readings of both clocks.
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
            (self.doubted_since, self.is_restarted) = (Some(moment), false);
            return Some(Change::Leapt);
        }
        match self.doubted_since {
            None => self.believed = offset,
            Some(since) if moment >= since.plus(BELIEVED_AFTER) => return self.believe(),
            Some(_) => {}
        }
        None
    }

    /// Trusts the wall clock from now on: on behalf of an operator or a time server.
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

    /// The clocks' row, if it is due for storing.
    pub(crate) fn note(&mut self) -> Option<Arc<str>> {
        if self.noted.is_some_and(|noted| self.moment < noted.plus(NOTED_EVERY)) {
            return None;
        }
        self.noted = Some(self.moment);
        self.noted_alone_from = self.moment.plus(NOTED_ALONE_EVERY);
        let spans =
            self.spans.iter().map(|it| json!([it.from.micros(), it.to.micros(), it.offset]));
        let noted = json!({ "_k": {
            "moment": self.moment.0,
            "wall": self.wall.micros(),
            "believed": self.believed,
            "doubted": self.is_doubted(),
            "restarted": self.is_restarted,
            "even": self.even_since.micros(),
            "salt": self.salt,
            "spans": spans.collect::<Vec<Value>>(),
            "shifts": self.shifts.iter().map(|it| it.to_value()).collect::<Vec<Value>>(),
        }});
        Some(noted.to_string().into())
    }

    /// The clocks' row, if it is due for storing without other data.
    pub(crate) fn note_alone(&mut self) -> Option<Arc<str>> {
        if self.moment < self.noted_alone_from {
            return None;
        }
        self.noted = None;
        self.note()
    }

    /// Makes the row due at once, before the process ends.
    pub(crate) const fn note_at_end(&mut self) {
        self.noted = None;
        self.noted_alone_from = self.moment;
    }

    /// Notes that instances of a span, with lower numbers than this one, expire later than their rows
    /// say.
    pub(crate) fn shift(&mut self, span: Span, below: u64, behind: Duration) {
        self.shifts.push(Shift { from: span.from, to: span.to, below, behind });
        self.noted = None;
    }

    /// Instances that expire later than their rows say.
    pub(crate) fn shifts(&self) -> &[Shift] {
        &self.shifts
    }

    /// Forgets the shifts of which no instance is left.
    pub(crate) fn keep_shifts(&mut self, is_needed: impl Fn(&Shift) -> bool) {
        self.shifts.retain(is_needed);
    }

    /// The row could not be stored and is due again.
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

/// Lead of a wall clock over a moment. Both are bounded by the year 9999 and a run of that length.
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
        assert_eq!(clock.doubt(), Some(ClockDoubt::Leapt(8 * 86_400)));
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

    /// A restart after an hour, one with the clock set back, and one after a leap.
    #[test]
    fn a_restart_is_no_leap() {
        let minute = Duration::from_mins(1);
        let mut clock = Clock::new(at(YEAR_2026, Duration::ZERO));
        clock.advance(at(YEAR_2026 + minute, minute));
        let row = clock.note().unwrap();
        let restored = |wall| Clock::restored(at(wall, Duration::ZERO), &row).unwrap();
        assert_eq!(restored(YEAR_2026 + 2 * minute).doubt(), None);
        let mut later = restored(YEAR_2026 + minute + HOUR);
        assert_eq!(later.doubt(), Some(ClockDoubt::Stopped(3600)));
        assert_eq!(later.expiring(), Timestamp::new(YEAR_2026 + minute), "held back all the same");
        // Restarted again while it is in doubt.
        let twice = later.note().unwrap();
        let twice = Clock::restored(at(YEAR_2026 + 3 * HOUR, Duration::ZERO), &twice).unwrap();
        assert!(matches!(twice.doubt(), Some(ClockDoubt::Stopped(_))), "{twice:?}");
        let earlier = restored(YEAR_2026.checked_sub(HOUR).unwrap());
        assert!(matches!(earlier.doubt(), Some(ClockDoubt::Leapt(..0))), "{earlier:?}");
        // A leap after the restart is one.
        let leapt = later.advance(at(YEAR_2026 + DAY, minute));
        assert_eq!(leapt, Some(Change::Leapt));
        assert!(matches!(later.doubt(), Some(ClockDoubt::Leapt(_))), "{later:?}");
        later.note_again();
        let row = later.note().unwrap();
        let again = Clock::restored(at(YEAR_2026 + DAY + HOUR, Duration::ZERO), &row).unwrap();
        assert!(matches!(again.doubt(), Some(ClockDoubt::Leapt(_))), "{again:?}");
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
