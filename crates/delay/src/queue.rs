//! Sojourn times of a node: first in, first out, or the processor shared.

use crate::linear::{LinearFit, relative_plane};
use crate::mean;
use serde::{Deserialize, Serialize};

/// How a node serves packets that wait.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueModel {
    /// One after the other: M/G/1 first in, first out (Pollaczek and Khinchine).
    FirstInFirstOut,
    /// All at the same time: M/G/1 processor sharing.
    ProcessorSharing,
}

/// The time that a packet takes longer where the node has been idle before: a processor that sleeps
/// wakes up the later the longer it slept, and caches are cold.
///
/// After a pause of g it is D·(1 − exp(−g/τ)). Times are in seconds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SetupTime {
    /// D: that after a long pause.
    pub longest: f64,
    /// τ.
    pub time_constant: f64,
}

impl SetupTime {
    /// The mean of it with so many packets a second, whose gaps have this squared coefficient of
    /// variation: 0 if they are all the same, 1 for Poisson arrivals.
    pub fn mean(&self, rate: f64, arrival_variation: f64) -> f64 {
        self.longest * Self::share(self.time_constant, rate, arrival_variation)
    }

    /// The mean of 1 − exp(−g/τ) over the gaps g.
    fn share(time_constant: f64, rate: f64, arrival_variation: f64) -> f64 {
        let packets = rate * time_constant;
        if arrival_variation < 0.5 { 1.0 - (-1.0 / packets).exp() } else { 1.0 / (1.0 + packets) }
    }
}

/// A condition with its measured sojourn time. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadPoint {
    /// Octets of a packet.
    pub octets: f64,
    /// Packets a second.
    pub rate: f64,
    /// Mean sojourn time.
    pub sojourn: f64,
    /// Squared coefficient of variation of service times.
    pub service_variation: f64,
    /// Squared coefficient of variation of the gaps between arrivals: 1 for Poisson, 0 for a fixed
    /// period.
    pub arrival_variation: f64,
}

/// A fitted model, and the one that it was preferred to.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ModelChoice {
    /// The model with the smaller error.
    pub chosen: QueueModel,
    /// Service time by size under it, in seconds.
    pub service: LinearFit,
    /// What the node takes longer after pauses, if that predicts better.
    #[serde(default)]
    pub setup: Option<SetupTime>,
    /// Its mean error in percent over conditions that were left out of the fit.
    pub error_pct: f64,
    /// The other model's error.
    pub loser_error_pct: f64,
    /// Conditions, each left out once.
    pub conditions: usize,
}

impl QueueModel {
    /// Both.
    pub const ALL: [Self; 2] = [Self::FirstInFirstOut, Self::ProcessorSharing];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::FirstInFirstOut => Self::ProcessorSharing,
            Self::ProcessorSharing => Self::FirstInFirstOut,
        }
    }

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstInFirstOut => "M/G/1 FIFO",
            Self::ProcessorSharing => "processor sharing",
        }
    }

    /// The mean sojourn time at `rate` with service times of this mean; `None` if the node cannot
    /// keep up (ρ ≥ 1).
    ///
    /// First in, first out it is E\[S\] + λE\[S²\]/(2(1−ρ)) for Poisson arrivals; for others,
    /// Kingman's approximation with the variation of their gaps.
    pub fn sojourn(self, service: f64, point: &LoadPoint) -> Option<f64> {
        let load = point.rate * service;
        if !(0.0..1.0).contains(&load) {
            return None;
        }
        Some(match self {
            Self::FirstInFirstOut => {
                let variation = f64::midpoint(point.service_variation, point.arrival_variation);
                service + load * service * variation / (1.0 - load)
            }
            Self::ProcessorSharing => service / (1.0 - load),
        })
    }

    /// The mean service time that explains the point's sojourn time.
    pub fn service(self, point: &LoadPoint) -> Option<f64> {
        const STEPS: usize = 60;
        if point.sojourn <= 0.0 || point.rate < 0.0 {
            return None;
        }
        let (mut low, mut high) = (0.0, point.sojourn);
        for _step in 0..STEPS {
            let middle = f64::midpoint(low, high);
            match self.sojourn(middle, point) {
                Some(sojourn) if sojourn < point.sojourn => low = middle,
                _ => high = middle,
            }
        }
        Some(f64::midpoint(low, high))
    }

    /// The points with the service times that explain them.
    fn explained(self, points: &[LoadPoint]) -> Vec<ExplainedPoint> {
        let explain = |point: &LoadPoint| Some((*point, self.service(point)?));
        points.iter().filter_map(explain).collect()
    }

    /// The relative error of a prediction for `left_out`.
    fn error(self, fit: &ServiceFit, left_out: &LoadPoint) -> f64 {
        let predicted = self.sojourn(fit.at(left_out).max(0.0), left_out);
        // A node that is predicted not to keep up is wrong by all of the measured time.
        predicted.map_or(1.0, |predicted| (predicted / left_out.sojourn - 1.0).abs())
    }

    /// The mean relative error over the points, each predicted from all others.
    fn mean_error(self, points: &[ExplainedPoint], form: ServiceForm) -> Option<f64> {
        let error = |at: usize| {
            let fit = ServiceFit::of(&without(points, at), form)?;
            Some(self.error(&fit, &points.get(at)?.0))
        };
        mean(&(0..points.len()).map(error).collect::<Option<Vec<_>>>()?)
    }

    /// The form of service times by which left-out points are predicted best: with a slope over the size,
    /// and with a set-up time, only where that predicts clearly better. A coefficient that is noise
    /// makes every prediction worse, most those beyond the other points.
    fn form(self, points: &[ExplainedPoint]) -> ServiceForm {
        let [sloped, flat] = [true, false].map(|by_size| {
            let form = ServiceForm { by_size, time_constant: self.time_constant(points, by_size) };
            (form, self.mean_error(points, form))
        });
        match (sloped.1, flat.1) {
            (Some(error), Some(plain)) if !is_clearly_better(error, plain) => flat.0,
            (None, Some(_)) => flat.0,
            _ => sloped.0,
        }
    }

    /// The time constant of a set-up time by which left-out points are predicted clearly better than
    /// without one.
    fn time_constant(self, points: &[ExplainedPoint], by_size: bool) -> Option<f64> {
        let mut rates: Vec<f64> = points.iter().map(|(point, _)| point.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        if rates.len() < SETUP_RATES_MIN || points.len() < SETUP_POINTS_MIN {
            return None;
        }
        let plain = self.mean_error(points, ServiceForm { by_size, time_constant: None })?;
        let tried = TIME_CONSTANTS.iter().filter_map(|&it| {
            let form = ServiceForm { by_size, time_constant: Some(it) };
            Some((self.mean_error(points, form)?, it))
        });
        let (error, best) = tried.min_by(|one, other| one.0.total_cmp(&other.0))?;
        is_clearly_better(error, plain).then_some(best)
    }

    /// Each point with its relative error, predicted from all others; what set-up time they have is
    /// chosen without the point, too. A point whose others have no fit is left out.
    fn held_out(self, points: &[ExplainedPoint]) -> Vec<(LoadPoint, f64)> {
        let error = |(at, (point, _)): (usize, &ExplainedPoint)| {
            let others = without(points, at);
            let fit = ServiceFit::of(&others, self.form(&others))?;
            Some((*point, self.error(&fit, point)))
        };
        points.iter().enumerate().filter_map(error).collect()
    }
}

/// A point with the service time that explains it.
type ExplainedPoint = (LoadPoint, f64);

/// Rates, and points, below which nothing is said about set-up times.
const SETUP_RATES_MIN: usize = 3;
const SETUP_POINTS_MIN: usize = 5;
/// Time constants that are tried, in seconds: from what is always over to what never is.
const TIME_CONSTANTS: [f64; 8] = [0.000_5, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064];
/// Share of the error without a coefficient that one with it may have at the most, and by how much it
/// must be less.
const BETTER_BY: f64 = 0.9;
const BETTER_AT_LEAST: f64 = 0.005;

/// Whether an error is less than another one by more than chance makes it.
fn is_clearly_better(error: f64, plain: f64) -> bool {
    error < plain * BETTER_BY && error + BETTER_AT_LEAST < plain
}

/// All points but one.
fn without(points: &[ExplainedPoint], left_out: usize) -> Vec<ExplainedPoint> {
    let kept = points.iter().enumerate().filter(|&(at, _)| at != left_out);
    kept.map(|(_, point)| *point).collect()
}

/// What service times depend on.
#[derive(Clone, Copy, Debug)]
struct ServiceForm {
    /// Whether on the size.
    by_size: bool,
    /// The time constant of a set-up time.
    time_constant: Option<f64>,
}

/// A service time a + c·b, and a set-up time.
#[derive(Clone, Copy, Debug)]
struct ServiceFit {
    line: LinearFit,
    setup: Option<SetupTime>,
}

impl ServiceFit {
    fn of(points: &[ExplainedPoint], form: ServiceForm) -> Option<Self> {
        let ServiceForm { by_size, time_constant } = form;
        let coordinates = |(point, service): &ExplainedPoint| {
            let share = time_constant
                .map_or(0.0, |it| SetupTime::share(it, point.rate, point.arrival_variation));
            (if by_size { point.octets } else { 0.0 }, share, *service)
        };
        let plane = relative_plane(&points.iter().map(coordinates).collect::<Vec<_>>())?;
        let [intercept, slope, longest] = plane.coefficients;
        // A node that is faster after a pause is no node with a set-up time.
        if longest < 0.0 {
            return None;
        }
        let line = LinearFit { intercept, slope, r_squared: plane.r_squared, count: points.len() };
        // Nor is one that is ready in less than no time without it: such a fit takes for set-up what
        // it cannot tell from a + c·b, and is far off at the next rate.
        let is_positive = |(point, _): &ExplainedPoint| line.at(point.octets) > 0.0;
        if time_constant.is_some() && !points.iter().all(is_positive) {
            return None;
        }
        let setup = time_constant.map(|time_constant| SetupTime { longest, time_constant });
        Some(Self { line, setup })
    }

    fn at(&self, point: &LoadPoint) -> f64 {
        let setup = self.setup.map_or(0.0, |it| it.mean(point.rate, point.arrival_variation));
        self.line.at(point.octets) + setup
    }
}

/// The error of each condition in percent, predicted by the model from all others; a condition whose
/// others have no fit is left out.
pub fn held_out_errors(model: QueueModel, points: &[LoadPoint]) -> Vec<(LoadPoint, f64)> {
    let held_out = model.held_out(&model.explained(points));
    held_out.into_iter().map(|(point, error)| (point, error * 100.0)).collect()
}

/// Chooses the model whose predictions of left-out conditions are better; `None` below three
/// conditions.
pub fn choose_model(points: &[LoadPoint]) -> Option<ModelChoice> {
    let error = |model: QueueModel| {
        let explained = model.explained(points);
        let errors: Vec<f64> = model.held_out(&explained).iter().map(|(_, error)| *error).collect();
        let error_pct = mean(&errors)? * 100.0;
        Some((model, explained, error_pct))
    };
    let [first, second] = QueueModel::ALL;
    let (one, other) = (error(first)?, error(second)?);
    let loser_error_pct = one.2.max(other.2);
    let (chosen, explained, error_pct) = if one.2 <= other.2 { one } else { other };
    let fit = ServiceFit::of(&explained, chosen.form(&explained))?;
    let conditions = points.len();
    (conditions >= 3).then_some(ModelChoice {
        chosen,
        service: fit.line,
        setup: fit.setup,
        error_pct,
        loser_error_pct,
        conditions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sojourn times of a node that is idle nearly all the time, with a set-up time of 40 µs after
    /// long pauses.
    fn points(longest: f64, arrival_variation: f64) -> Vec<LoadPoint> {
        let conditions =
            [(1000, 50), (1000, 100), (100, 200), (400, 200), (1000, 200), (1400, 200)];
        let more = [(1000, 400), (1000, 800)];
        let point = |(octets, rate): (u32, u32)| {
            let (octets, rate) = (f64::from(octets), f64::from(rate));
            let share = if arrival_variation > 0.5 {
                1.0 / (1.0 + rate * 0.008)
            } else {
                1.0 - (-1.0 / (rate * 0.008)).exp()
            };
            let service = 20e-6 + 5e-9 * octets + longest * share;
            let mut point =
                LoadPoint { octets, rate, sojourn: 0.0, service_variation: 0.1, arrival_variation };
            point.sojourn = QueueModel::FirstInFirstOut.sojourn(service, &point).unwrap();
            point
        };
        conditions.into_iter().chain(more).map(point).collect()
    }

    #[test]
    fn a_set_up_time_after_pauses_is_found() {
        for arrival_variation in [0.0, 1.0] {
            let choice = choose_model(&points(40e-6, arrival_variation)).unwrap();
            let setup = choice.setup.unwrap();
            assert!((setup.longest - 40e-6).abs() < 1e-6, "{choice:?}");
            assert!((setup.time_constant - 0.008).abs() < 1e-9, "{choice:?}");
            assert!((choice.service.intercept - 20e-6).abs() < 1e-6, "{choice:?}");
            assert!((choice.service.slope - 5e-9).abs() < 1e-10, "{choice:?}");
            assert!(choice.error_pct < 2.0, "{choice:?}");
        }
    }

    /// Kernel routing on a machine with other work, as measured: microseconds without spikes. The rates at
    /// the ends were predicted with errors of up to 56 % when a fit could have a service time below
    /// zero.
    #[test]
    fn no_fit_has_a_service_time_below_zero() {
        let measured = [
            (100, 200, 5.49),
            (1000, 200, 5.48),
            (1400, 200, 5.35),
            (400, 200, 5.28),
            (700, 200, 5.24),
            (1000, 400, 3.28),
            (1000, 800, 2.35),
            (1000, 100, 6.96),
        ];
        let point = |(octets, rate, micros): (u32, u32, f64)| LoadPoint {
            octets: octets.into(),
            rate: rate.into(),
            sojourn: micros / 1e6,
            service_variation: 0.1,
            arrival_variation: 1.0,
        };
        let points: Vec<LoadPoint> = measured.into_iter().map(point).collect();
        let choice = choose_model(&points).unwrap();
        assert!(choice.error_pct < 10.0, "{choice:?}");
        assert!(choice.setup.is_some() && choice.service.intercept > 0.0, "{choice:?}");
        assert!(choice.service.slope.abs() < f64::EPSILON, "its sizes differ by noise: {choice:?}");
    }

    /// Without the first condition, the relative weights of the others have no finite sum (each is 2¹⁰²²
    /// at the most), so there is no fit to predict it from.
    #[test]
    fn an_error_stays_with_its_condition_where_another_has_none() {
        let point = |sojourn| LoadPoint {
            octets: 0.5,
            rate: 1.0,
            sojourn,
            service_variation: 0.0,
            arrival_variation: 0.0,
        };
        let fast = point(1e-160);
        let points = [point(1.0), fast, fast, fast, fast];
        let errors = held_out_errors(QueueModel::FirstInFirstOut, &points);
        let predicted: Vec<LoadPoint> = errors.iter().map(|(point, _)| *point).collect();
        assert_eq!(predicted, [fast; 4], "{errors:?}");
        assert!(errors.iter().all(|(_, error)| *error < 1e-6), "{errors:?}");
    }

    #[test]
    fn a_node_without_one_gets_none() {
        let choice = choose_model(&points(0.0, 1.0)).unwrap();
        assert_eq!(choice.setup, None, "{choice:?}");
        assert!(choice.error_pct < 0.01 && choice.service.r_squared > 0.99, "{choice:?}");
        // One condition that another load has slowed down is the one that is predicted wrongly.
        let mut disturbed = points(0.0, 1.0);
        disturbed[3].sojourn *= 1.5;
        let errors = held_out_errors(QueueModel::FirstInFirstOut, &disturbed);
        let worst = errors.iter().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap();
        assert_eq!((errors.len(), worst.0), (8, disturbed[3]), "{errors:?}");
        assert!((25.0..40.0).contains(&worst.1), "{errors:?}");
        // Of two rates nothing is said.
        let few: Vec<LoadPoint> = points(40e-6, 1.0).into_iter().skip(2).take(5).collect();
        assert_eq!(choose_model(&few).unwrap().setup, None);
    }
}
