//! From the times of probes to the results of conditions and the models of relays.

use crate::analysis::{
    DelaySummary, EmpiricalCdf, HAMPEL_SIGMA, LoadPoint, bootstrap_fit, choose_model,
    coefficient_of_variation, fit_tail, hampel_spikes, held_out_errors, jitter, least_squares,
    mean, median_interval, periodicity, quantile, ratio_interval, real, sorted, theil_sen,
};
use crate::result::{ConditionResult, HeldOutError, RelayModel};
use gatewright_config::{Arrivals, Centre, Experiment, RelayKind};
use gatewright_sim::Random;

/// The times of one probe, in nanoseconds; none where it has not been, or was not seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbeTimes {
    pub(crate) due: Option<u64>,
    pub(crate) sent: Option<u64>,
    pub(crate) ingress: Option<u64>,
    pub(crate) taken: Option<u64>,
    pub(crate) given: Option<u64>,
    pub(crate) egress: Option<u64>,
    pub(crate) arrived: Option<u64>,
}

/// One repetition of a condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repetition {
    pub(crate) probes: Vec<ProbeTimes>,
    pub(crate) repeated: usize,
    pub(crate) steal_pct: f64,
}

/// Values on each side of a value that the Hampel filter compares it with.
const HALF_WINDOW: usize = 50;
/// Resamples of each bootstrap.
pub(crate) const RESAMPLES: usize = 400;
/// The same for results that another round will replace: their summary takes time from the run.
pub(crate) const RESAMPLES_UNFINISHED: usize = 40;
/// Probes from which a 0.99 quantile is judged: ten are above it. With a hundred it is the largest of
/// them, which another hundred do not repeat.
const P99_PROBES_MIN: usize = 1000;
/// Probes of a condition whose stamps are shown, at the most.
const STAMPS_MAX: usize = 64;
/// Points of a time series at the most, and of its spikes.
const SERIES_MAX: usize = 500;
/// Probes between two spikes from which on they are two events: fewer are one, as of a queue that fills.
const APART: usize = HALF_WINDOW;

/// Microseconds from one time to another, if both are known.
fn between(from: Option<u64>, to: Option<u64>) -> Option<f64> {
    let (from, to) = (from?, to?);
    let micros = |nanoseconds: u64| real(usize::try_from(nanoseconds).unwrap_or(0)) / 1000.0;
    Some(if to >= from { micros(to - from) } else { -micros(from - to) })
}

impl ProbeTimes {
    fn node(&self) -> Option<f64> {
        between(self.ingress, self.egress)
    }

    fn link(&self) -> Option<f64> {
        Some(between(self.sent, self.ingress)? + between(self.egress, self.arrived)?)
    }
}

impl Repetition {
    /// Node delays in the order of sending.
    pub(crate) fn nodes(&self) -> Vec<f64> {
        self.probes.iter().filter_map(ProbeTimes::node).collect()
    }

    pub(crate) fn median(&self) -> Option<f64> {
        quantile(&sorted(&self.nodes()), 0.5)
    }

    /// Payload that arrived between the first probe and the last, in megabits a second.
    fn throughput_mbps(&self, octets: u16) -> Option<f64> {
        let arrived: Vec<u64> = self.probes.iter().filter_map(|probe| probe.arrived).collect();
        let micros = between(arrived.iter().min().copied(), arrived.iter().max().copied())?;
        let bits = f64::from(octets) * 8.0 * real(arrived.len().checked_sub(1)?);
        (micros > 0.0).then(|| bits / micros)
    }

    /// The median end-to-end delay.
    pub(crate) fn median_end_to_end(&self) -> Option<f64> {
        let delays = self.probes.iter().filter_map(|probe| between(probe.sent, probe.arrived));
        quantile(&sorted(&delays.collect::<Vec<_>>()), 0.5)
    }
}

/// The result of a condition from all its repetitions.
pub(crate) fn condition_result(
    relay: RelayKind,
    condition: Centre,
    repetitions: &[Repetition],
    experiment: &Experiment,
    resamples: usize,
) -> ConditionResult {
    let probes = || repetitions.iter().flat_map(|repetition| &repetition.probes);
    let all = |delay: &dyn Fn(&ProbeTimes) -> Option<f64>| -> Vec<f64> {
        probes().filter_map(delay).collect()
    };
    let summary = |delay: &dyn Fn(&ProbeTimes) -> Option<f64>| DelaySummary::of(&all(delay));
    let nodes = all(&ProbeTimes::node);
    let pairs: Vec<(f64, f64)> = probes().filter_map(|it| Some((it.node()?, it.link()?))).collect();
    let medians: Vec<f64> = repetitions.iter().filter_map(Repetition::median).collect();
    let cv_pct = coefficient_of_variation(&medians).map(|cv| cv * 100.0);
    let mut random = Random::new(experiment.seed);
    let received = probes().filter(|probe| probe.arrived.is_some()).count();
    let series: Vec<Vec<SeriesPoint>> = repetitions.iter().map(series).collect();
    let base: Vec<f64> = series.iter().flatten().filter(|it| !it.2).map(|it| it.1).collect();
    let base_summary = DelaySummary::of(&base);
    let events: Vec<Vec<f64>> = series.iter().map(|series| events(series)).collect();
    let span = series.iter().filter_map(|it| it.last()).map(|it| it.0).fold(0.0, f64::max);
    let delays = |repetition: &Repetition| -> Vec<f64> {
        let delays = repetition.probes.iter().map(|it| between(it.sent, it.arrived));
        delays.flatten().collect()
    };
    let is_centre = condition == experiment.centre;
    ConditionResult {
        relay,
        octets: condition.octets,
        rate: condition.rate,
        load_pct: condition.load_pct,
        batch: condition.batch,
        awake: condition.awake,
        frequency_mhz: condition.frequency_mhz,
        sent: probes().count(),
        received,
        repeated: repetitions.iter().map(|repetition| repetition.repeated).sum(),
        unstamped: probes().filter(|it| it.arrived.is_some() && it.node().is_none()).count(),
        steady: cv_pct.is_some_and(|cv| cv <= experiment.steady_pct),
        cv_pct,
        medians,
        steal_pct: mean(&repetitions.iter().map(|it| it.steal_pct).collect::<Vec<_>>())
            .unwrap_or(0.0),
        node: DelaySummary::of(&nodes),
        node_median: median_interval(&nodes, 0.95, resamples, &mut random),
        node_link_interval: ratio_interval(&pairs, 0.95, resamples, &mut random),
        node_base: base_summary.map(|it| (it.mean, it.variation_squared())),
        in_queue: summary(&|it| between(it.ingress, it.taken)),
        processing: summary(&|it| between(it.taken, it.given)),
        out_queue: summary(&|it| between(it.given, it.egress)),
        link: summary(&ProbeTimes::link),
        end_to_end: summary(&|it| between(it.sent, it.arrived)),
        lateness: summary(&|it| between(it.due, it.sent)),
        jitter: jitter(&repetitions.iter().map(delays).collect::<Vec<_>>()),
        spikes: series.iter().flatten().filter(|it| it.2).count(),
        period: periodicity(&events, span),
        cdf: EmpiricalCdf::of(&nodes),
        tail: fit_tail(&nodes),
        throughput_mbps: mean(
            &repetitions
                .iter()
                .filter_map(|it| it.throughput_mbps(condition.octets))
                .collect::<Vec<_>>(),
        ),
        stamps: stamps(repetitions),
        series: if is_centre { thinned(&joined(series)) } else { Vec::new() },
    }
}

/// A sample of the probes with all their stamps, evenly over the repetitions.
fn stamps(repetitions: &[Repetition]) -> Vec<[Option<f64>; 7]> {
    let first = repetitions.iter().flat_map(|it| &it.probes).find_map(|probe| probe.due);
    let all: Vec<&ProbeTimes> = repetitions.iter().flat_map(|it| &it.probes).collect();
    let each = all.len().div_ceil(STAMPS_MAX).max(1);
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let sample = |it: &&ProbeTimes| {
        let second = between(first, it.due).map(|micros| round(micros / 1e6));
        let [sent, ingress, taken, given, egress, arrived] =
            [it.sent, it.ingress, it.taken, it.given, it.egress, it.arrived]
                .map(|time| between(it.due, time).map(round));
        [second, sent, ingress, taken, given, egress, arrived]
    };
    all.iter().step_by(each).map(sample).collect()
}

/// Second since the first probe's sending; node delay; spike.
type SeriesPoint = (f64, f64, bool);

/// The probes of a repetition that passed the node.
fn series(repetition: &Repetition) -> Vec<SeriesPoint> {
    let first = repetition.probes.iter().find_map(|probe| probe.sent);
    let spikes = hampel_spikes(&repetition.nodes(), HALF_WINDOW, HAMPEL_SIGMA);
    let passed = repetition.probes.iter().filter_map(|probe| Some((probe.sent, probe.node()?)));
    let point = |(at, (sent, node))| {
        let second = between(first, sent).unwrap_or(0.0) / 1e6;
        (second, node, spikes.binary_search(&at).is_ok())
    };
    passed.enumerate().map(point).collect()
}

/// When something made spikes: the times of those before which there was none for a while.
fn events(series: &[SeriesPoint]) -> Vec<f64> {
    let mut last = None;
    let spikes = series.iter().enumerate().filter(|(_, it)| it.2);
    let first_of_several = spikes.filter(|(at, _)| {
        let before = last.replace(*at);
        before.is_none_or(|before| at - before >= APART)
    });
    first_of_several.map(|(_, it)| it.0).collect()
}

/// The repetitions' series one behind the other, without the pauses between.
fn joined(repetitions: Vec<Vec<SeriesPoint>>) -> Vec<SeriesPoint> {
    let mut offset = 0.0;
    let behind = |series: Vec<SeriesPoint>| {
        let from = offset;
        offset += series.last().map_or(0.0, |it| it.0);
        series.into_iter().map(move |(second, node, spike)| (from + second, node, spike))
    };
    repetitions.into_iter().flat_map(behind).collect()
}

/// At most [`SERIES_MAX`] of the spikes and as many of the others, evenly over all.
fn thinned(series: &[SeriesPoint]) -> Vec<SeriesPoint> {
    // Three digits behind the point: nanoseconds of a delay, milliseconds of the time.
    let round = |value: f64| (value * 1000.0).round() / 1000.0;
    let count = |spike: bool| series.iter().filter(|it| it.2 == spike).count();
    let [others, spikes] = [false, true].map(|spike| count(spike).div_ceil(SERIES_MAX).max(1));
    let mut seen = [0; 2];
    let kept = series.iter().filter(|it| {
        let [of_others, of_spikes] = &mut seen;
        let (seen, each) = if it.2 { (of_spikes, spikes) } else { (of_others, others) };
        *seen += 1;
        (*seen - 1) % each == 0
    });
    kept.map(|&(x, y, spike)| (round(x), round(y), spike)).collect()
}

/// The model of a relay from all its conditions.
pub(crate) fn relay_model(
    relay: RelayKind,
    measured: &[(Centre, Vec<Repetition>)],
    results: &[ConditionResult],
    experiment: &Experiment,
    resamples: usize,
) -> RelayModel {
    let centre = experiment.centre;
    let mut random = Random::new(experiment.seed);
    let points: Vec<(f64, f64)> = measured
        .iter()
        .filter(|(it, _)| it.rate == centre.rate && it.is_like(&centre))
        .flat_map(|(condition, repetitions)| {
            let medians = repetitions.iter().filter_map(Repetition::median);
            medians.map(|median| (f64::from(condition.octets), median))
        })
        .collect();
    let service = least_squares(&points);
    let of_relay = || results.iter().filter(|it| it.relay == relay);
    let at_centre = of_relay().find(|it| it.condition() == centre);
    let service_variation = at_centre.and_then(|it| it.node_base).map_or(0.0, |base| base.1);
    let arrival_variation = match experiment.arrivals {
        Arrivals::Periodic => 0.0,
        Arrivals::Poisson => 1.0,
    };
    let loads: Vec<LoadPoint> = of_relay()
        .filter(|it| it.condition().is_like(&centre) && it.received > 0)
        .filter_map(|it| {
            Some(LoadPoint {
                octets: it.octets.into(),
                rate: it.rate.into(),
                sojourn: it.node_base?.0 / 1e6,
                service_variation,
                arrival_variation,
            })
        })
        .collect();
    let queue = choose_model(&loads);
    let held_out = queue.map_or_else(Vec::new, |it| held_out_errors(it.chosen, &loads));
    let held_out = held_out.into_iter().map(|(point, error_pct)| {
        let LoadPoint { octets, rate, .. } = point;
        HeldOutError { octets, rate, error_pct }
    });
    RelayModel {
        relay,
        service,
        intervals: bootstrap_fit(&points, 0.95, resamples, &mut random),
        robust: theil_sen(&points, &mut random),
        queue,
        held_out: held_out.collect(),
        service_variation,
        p99_error_pct: p99_error(measured, centre),
        p95_over_mean: at_centre.and_then(|it| it.node).map(|it| it.p95 / it.mean),
    }
}

/// The error of the 0.99 quantile of a tail fitted to every other repetition at the centre, against
/// that of the rest, in percent; `None` if either half has too few probes to tell. Halves that take
/// turns see the same drift of the machine.
fn p99_error(measured: &[(Centre, Vec<Repetition>)], centre: Centre) -> Option<f64> {
    let (_, repetitions) = measured.iter().find(|(condition, _)| *condition == centre)?;
    let half = |turn: usize| -> Vec<f64> {
        let of_turn = repetitions.iter().enumerate().filter(|(at, _)| at % 2 == turn);
        of_turn.flat_map(|(_, repetition)| repetition.nodes()).collect()
    };
    let (fitted_to, held_out) = (half(0), half(1));
    if fitted_to.len().min(held_out.len()) < P99_PROBES_MIN {
        return None;
    }
    let fitted = fit_tail(&fitted_to)?;
    let held_out = quantile(&sorted(&held_out), 0.99)?;
    (held_out > 0.0).then(|| 100.0 * (fitted.quantile(0.99) / held_out - 1.0).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred probes of 1,000 octets, one each millisecond: 8 Mbit/s by hand.
    #[test]
    fn stamps_are_a_sample_and_throughput_is_what_arrived() {
        let probe = |at: u64| ProbeTimes {
            due: Some(1_000_000 * at),
            sent: Some(1_000_000 * at + 2_500),
            egress: (at != 2).then_some(1_000_000 * at + 9_000),
            arrived: Some(1_000_000 * at + 10_000),
            ..ProbeTimes::default()
        };
        let probes: Vec<ProbeTimes> = (1..=100).map(probe).collect();
        let repetition = Repetition { probes, ..Repetition::default() };
        assert_eq!(repetition.throughput_mbps(1000), Some(8.0));
        let sample = stamps(&[repetition.clone(), repetition]);
        assert_eq!(sample.len(), 50, "every fourth of two hundred");
        assert_eq!(sample[0][..2], [Some(0.0), Some(2.5)]);
        assert_eq!(sample[1], [Some(0.004), Some(2.5), None, None, None, Some(9.0), Some(10.0)]);
        assert_eq!(Repetition::default().throughput_mbps(1000), None);
    }

    /// Of a burst of spikes the first is an event; a series shows spikes first, and has a bound.
    #[test]
    fn spikes_that_follow_each_other_are_one_event() {
        let of = |spikes: &dyn Fn(u32) -> bool, count: u32| -> Vec<SeriesPoint> {
            (0..count).map(|at| (f64::from(at), 1.0, spikes(at))).collect()
        };
        let bursts = of(&|at| at % 100 < 7, 300);
        assert_eq!(events(&bursts), [0.0, 100.0, 200.0]);
        let shown = thinned(&joined(vec![bursts.clone(), bursts.clone()]));
        assert_eq!(shown.iter().filter(|it| it.2).count(), 42);
        assert!(shown.last().unwrap().0 >= 597.0, "to the end");
        let shown = thinned(&of(&|_| true, 1_800));
        assert_eq!(shown.len(), 450, "every fourth");
    }
}
