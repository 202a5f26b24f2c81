//! The service time of a relay that runs, as a factor on the described one, from the times to its
//! answers.
//!
//! A time to an answer has three shares: the path there and back, the wait in the relay, and its
//! service. The path's is given, or a round trip that was measured, or the least that an answer took
//! beyond the described service. The wait follows from the rate of the answers (Pollaczek and
//! Khinchine). What is left is the service.

use crate::node::NodeModel;
use std::time::Duration;

/// Answers that one measurement needs at least.
pub const FACTOR_SAMPLES_MIN: u32 = 32;

/// The largest factor; its inverse is the smallest.
pub const FACTOR_MAX: f64 = 8.0;

/// A measurement lasts at least this long.
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// A measurement that has too few answers after this long is dropped.
const WINDOW_MAX: Duration = Duration::from_secs(30);

/// The weight of one measurement, in the logarithm of the factor.
const WEIGHT: f64 = 0.25;

/// A drift begins where the factor or its inverse is beyond this.
const APART: f64 = 1.5;

/// A time beyond the path's is at most so many described service times: a datagram that was lost, or a
/// program that answers when it likes, must not decide alone.
const SERVICES_MAX: f64 = 4.0 * FACTOR_MAX;

/// It ends where both are within this.
const TOGETHER: f64 = 1.25;

/// The shortest round trip is that of the last one or two spans of this length, so that a path that
/// has become longer is not taken for a slow relay for ever.
const ROUND_TRIP_SPAN: Duration = Duration::from_mins(10);

/// A change that [`ServiceFactor::look`] found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FactorChange {
    /// The factor has another value.
    Moved,
    /// Described and measured service have begun to differ.
    Drifts,
    /// They are together again.
    Steady,
}

/// The factor by which a relay's service takes longer than described. Times are those of one clock.
///
/// It is 1 until there are [`FACTOR_SAMPLES_MIN`] answers, moves by a quarter of the way with each
/// measurement, and stays within [`FACTOR_MAX`] and its inverse. Without answers it goes back to 1,
/// half of the way in 30 s: else a relay called slow would get no flows that show that it is not.
#[derive(Clone, Copy, Debug)]
pub struct ServiceFactor {
    described: NodeModel,
    /// The path's share where it is given.
    path: Option<f64>,
    /// The shortest measured round trips of this span and of the one before it.
    round_trips: [Option<f64>; 2],
    span_began: Duration,
    /// The least that an answer took beyond the described service.
    quickest: Option<f64>,
    window: FactorWindow,
    factor: f64,
    samples: u64,
    drifts: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct FactorWindow {
    began: Duration,
    count: u32,
    seconds: f64,
    octets: f64,
}

impl ServiceFactor {
    /// A relay of which nothing is measured yet; `path` is the round trip to it where it is known.
    pub fn new(described: NodeModel, path: Option<Duration>) -> Self {
        Self {
            described,
            path: path.map(|path| path.as_secs_f64()),
            round_trips: [None; 2],
            span_began: Duration::ZERO,
            quickest: None,
            window: FactorWindow::default(),
            factor: 1.0,
            samples: 0,
            drifts: false,
        }
    }

    /// The factor.
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    /// The factor in thousandths.
    pub fn permille(&self) -> u64 {
        Duration::try_from_secs_f64(self.factor)
            .map_or(0, |seconds| u64::try_from(seconds.as_millis()).unwrap_or(u64::MAX))
    }

    /// Answers since the start.
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// Whether described and measured service differ.
    pub const fn drifts(&self) -> bool {
        self.drifts
    }

    /// The round trip that is taken as the path's share; `None` before the first answer.
    pub fn path(&self) -> Option<Duration> {
        let share = self.path_share()?;
        Duration::try_from_secs_f64(share).ok()
    }

    /// Records a round trip in which the relay itself did nothing, as a TCP handshake's.
    pub fn round_trip(&mut self, now: Duration, time: Duration) {
        if now.saturating_sub(self.span_began) >= ROUND_TRIP_SPAN {
            self.span_began = now;
            self.round_trips = [None, self.round_trips[0]];
        }
        let time = time.as_secs_f64();
        self.round_trips[0] = Some(self.round_trips[0].map_or(time, |least| least.min(time)));
    }

    /// Records an answer that came so long after a request of so many octets.
    pub fn answered(&mut self, now: Duration, time: Duration, octets: u32) {
        let (time, octets) = (time.as_secs_f64(), f64::from(octets));
        if self.window.count == 0 {
            self.window.began = now.max(self.window.began);
        }
        self.window.count = self.window.count.saturating_add(1);
        let service = self.described.service_time(octets);
        let beyond = (time - service).max(0.0);
        self.quickest = Some(self.quickest.map_or(beyond, |least| least.min(beyond)));
        let path = self.path_share().unwrap_or_default();
        self.window.seconds += time.min(service.mul_add(SERVICES_MAX, path));
        self.window.octets += octets;
        self.samples += 1;
    }

    /// Ends the measurement if it is due, and returns what that has changed.
    pub fn look(&mut self, now: Duration) -> Option<FactorChange> {
        let lasted = now.saturating_sub(self.window.began);
        let moved = if lasted >= WINDOW_MIN && self.window.count >= FACTOR_SAMPLES_MIN {
            let measured = self.measured(lasted)?;
            self.factor.powf(1.0 - WEIGHT) * measured.powf(WEIGHT)
        } else if lasted >= WINDOW_MAX {
            self.factor.sqrt()
        } else {
            return None;
        };
        self.window = FactorWindow { began: now, ..FactorWindow::default() };
        let is_same = (moved / self.factor - 1.0).abs() < f64::EPSILON;
        self.factor = moved;
        let apart = moved.max(moved.recip());
        let drifts = if self.drifts { apart > TOGETHER } else { apart > APART };
        match (std::mem::replace(&mut self.drifts, drifts), drifts) {
            (false, true) => Some(FactorChange::Drifts),
            (true, false) => Some(FactorChange::Steady),
            _ => (!is_same).then_some(FactorChange::Moved),
        }
    }

    /// The measured factor of a window that has lasted so long.
    fn measured(&self, lasted: Duration) -> Option<f64> {
        let count = f64::from(self.window.count);
        let service = self.described.service_time(self.window.octets / count);
        let sojourn = self.window.seconds / count - self.path_share()?;
        let rate = count / lasted.as_secs_f64();
        let factor = service_of(sojourn.max(0.0), rate, self.described.variation)
            / service.max(f64::MIN_POSITIVE);
        Some(factor.clamp(FACTOR_MAX.recip(), FACTOR_MAX))
    }

    fn path_share(&self) -> Option<f64> {
        let measured = self.round_trips.into_iter().flatten().reduce(f64::min);
        self.path.or(measured).or(self.quickest)
    }
}

/// The service time x of a queue first in, first out with this mean sojourn time T: the solution of
/// T = x + λx²(1 + v) / 2(1 − λx).
fn service_of(sojourn: f64, rate: f64, variation: f64) -> f64 {
    let square = rate * (variation - 1.0);
    let linear = 2.0 * rate.mul_add(sojourn, 1.0);
    let root = linear.mul_add(linear, 8.0 * sojourn * square).max(0.0).sqrt();
    4.0 * sojourn / (linear + root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::LinearFit;
    use crate::node::{FlowKind, NodeLoad};
    use crate::queue::QueueModel;
    use proptest::prelude::*;

    fn described(fixed_ms: f64, variation: f64) -> NodeModel {
        let service = LinearFit { intercept: fixed_ms / 1e3, slope: 0.0, r_squared: 1.0, count: 0 };
        let queue = QueueModel::FirstInFirstOut;
        NodeModel { queue, service, setup: None, variation, spread: 1.0 }
    }

    /// Answers at a constant rate for so many seconds, each after so many milliseconds.
    fn feed(
        factor: &mut ServiceFactor,
        (from, seconds): (u64, u64),
        rate: u64,
        time_ms: f64,
    ) -> Vec<FactorChange> {
        let mut changes = Vec::new();
        for at in 0..seconds * rate {
            let now = Duration::from_micros(from * 1_000_000 + at * 1_000_000 / rate);
            factor.answered(now, Duration::from_secs_f64(time_ms / 1e3), 100);
            changes.extend(factor.look(now));
        }
        changes
    }

    proptest! {
        /// What the model predicts as the sojourn of a slower relay is read back as that relay.
        #[test]
        fn a_predicted_sojourn_gives_its_service_back(
            times in 0.2..7.0_f64, variation in 0.0..4.0_f64, load in 0.0..0.95_f64,
        ) {
            let model = described(times, variation);
            let rate = load / (times / 1e3);
            let kind = FlowKind { rate, octets: 100.0, bound_us: 1e9, quantile: 0.95 };
            let load = NodeLoad::default().with(&model, &kind, 1.0);
            let sojourn = model.mean(100.0, &load).unwrap();
            let service = service_of(sojourn, rate, variation);
            prop_assert!((service * 1e3 / times - 1.0).abs() < 1e-6, "{service} {times}");
        }

        /// Whatever is measured, the factor is a number within its bounds.
        #[test]
        fn no_answers_lead_out_of_the_bounds(
            answers in prop::collection::vec((0_u64..100_000, 0_u64..u64::MAX, any::<u32>()), 0..300),
            path in prop::option::of(0_u64..u64::MAX),
        ) {
            let mut factor =
                ServiceFactor::new(described(0.0, 1.0), path.map(Duration::from_nanos));
            let mut now = Duration::ZERO;
            for (pause_ms, time, octets) in answers {
                now += Duration::from_millis(pause_ms);
                factor.answered(now, Duration::from_nanos(time), octets);
                factor.look(now);
                let bounds = FACTOR_MAX.recip() - 1e-9..=FACTOR_MAX + 1e-9;
                prop_assert!(bounds.contains(&factor.factor()), "{}", factor.factor());
            }
        }
    }

    #[test]
    fn too_few_answers_change_nothing() {
        let mut factor = ServiceFactor::new(described(1.0, 1.0), None);
        factor.round_trip(Duration::ZERO, Duration::from_millis(2));
        assert!(feed(&mut factor, (0, 31), 1, 50.0).is_empty());
        assert!((factor.factor() - 1.0).abs() < 1e-9 && !factor.drifts());
        assert_eq!(factor.samples(), 31);
    }

    /// The round trip is 2 ms, and the relay takes 4 ms where 1 ms is described.
    #[test]
    fn a_slow_relay_is_found_by_measurement_after_measurement_and_forgotten_without_answers() {
        let mut factor = ServiceFactor::new(described(1.0, 1.0), None);
        factor.round_trip(Duration::ZERO, Duration::from_millis(2));
        // 1 + T·λ with M/M/1: a sojourn of T has a service of T / (1 + λT).
        let sojourn = 4.0 / (1.0 - 0.04 * 4.0);
        let changes = feed(&mut factor, (0, 30), 40, 2.0 + sojourn);
        assert_eq!(changes.iter().filter(|its| **its == FactorChange::Drifts).count(), 1);
        assert!((factor.factor() - 4.0).abs() < 0.1 && factor.drifts(), "{}", factor.factor());
        assert_eq!(factor.path(), Some(Duration::from_millis(2)));
        let quiet = (0..8).filter_map(|half| factor.look(Duration::from_secs(60 + half * 30)));
        let quiet: Vec<_> = quiet.collect();
        assert!(quiet.contains(&FactorChange::Steady), "{quiet:?}");
        assert!((factor.factor() - 1.0).abs() < 0.05, "{}", factor.factor());
    }

    /// Without a round trip, the least time beyond the described service is the path's.
    #[test]
    fn the_quickest_answer_stands_for_the_path_where_no_round_trip_is_known() {
        let mut factor = ServiceFactor::new(described(1.0, 0.0), None);
        feed(&mut factor, (0, 10), 40, 6.0);
        assert!((factor.factor() - 1.0).abs() < 0.05, "{}", factor.factor());
        assert_eq!(factor.path().map(|path| path.as_millis()), Some(5));
        feed(&mut factor, (10, 30), 40, 8.0);
        assert!(factor.factor() > 2.5, "{}", factor.factor());
        // A given path decides before both.
        let given = Some(Duration::from_millis(1));
        let mut factor = ServiceFactor::new(described(1.0, 0.0), given);
        factor.round_trip(Duration::ZERO, Duration::from_millis(5));
        feed(&mut factor, (0, 30), 40, 6.0);
        assert!(factor.factor() > 4.0, "{}", factor.factor());
    }

    #[test]
    fn a_path_that_has_become_longer_is_believed_after_a_while() {
        let mut factor = ServiceFactor::new(described(1.0, 0.0), None);
        let minutes = |minutes| Duration::from_mins(minutes);
        factor.round_trip(minutes(0), Duration::from_millis(2));
        factor.round_trip(minutes(11), Duration::from_millis(9));
        assert_eq!(factor.path(), Some(Duration::from_millis(2)));
        factor.round_trip(minutes(22), Duration::from_millis(9));
        assert_eq!(factor.path(), Some(Duration::from_millis(9)));
    }
}
