//! Known truth in, known truth out: planted spikes, known models, known tails.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_lab::analysis::{
    DelaySummary, EmpiricalCdf, HAMPEL_SIGMA, LoadPoint, QueueModel, Verdict, bootstrap_fit,
    choose_model, coefficient_of_variation, difference, fit_tail, hampel_spikes, jitter,
    least_squares, median_interval, periodicity, quantile, quantile_interval, ratio_interval,
    share_interval, sorted, theil_sen,
};
use gatewright_sim::Random;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

/// A uniform number from 0 up to 1.
fn uniform(random: &mut Random) -> f64 {
    f64::from(u32::try_from(random.bits() >> 32).unwrap()) / f64::from(u32::MAX)
}

/// A standard normal number (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let (one, other) = (1.0 - uniform(random) * 0.999_999, uniform(random));
    (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
}

fn is_near(value: f64, expected: f64, share: f64) -> bool {
    (value / expected - 1.0).abs() <= share
}

#[test]
fn quantiles_are_those_of_the_hand_calculation() {
    // numpy.quantile([1, 2, 3, 4], [0, .25, .5, .75, 1]) has 1, 1.75, 2.5, 3.25, 4.
    let values = [4.0, 1.0, 3.0, 2.0];
    let sorted = sorted(&values);
    let expected = [(0.0, 1.0), (0.25, 1.75), (0.5, 2.5), (0.75, 3.25), (1.0, 4.0)];
    for (part, expected) in expected {
        assert_eq!(quantile(&sorted, part), Some(expected), "{part}");
    }
    assert_eq!(quantile(&[], 0.5), None);
    assert_eq!(DelaySummary::of(&[f64::NAN]), None, "what is no number is no sample");
    let summary = DelaySummary::of(&values).unwrap();
    assert_eq!((summary.count, summary.mean, summary.min, summary.max), (4, 2.5, 1.0, 4.0));
    // Squares of the distances are 2.25, 0.25, 0.25, 2.25: 5/3.
    assert!(is_near(summary.deviation, (5.0_f64 / 3.0).sqrt(), 1e-12));
}

#[test]
fn jitter_is_the_difference_of_neighbours() {
    // From one repetition to the next there is none.
    let jitter = jitter(&[vec![5.0, 7.0, 6.0], vec![99.0, 99.0]]).unwrap();
    assert_eq!((jitter.count, jitter.mean, jitter.min, jitter.max), (3, 1.0, 0.0, 2.0));
    assert_eq!(gatewright_lab::analysis::jitter(&[[1.0], [2.0]]), None);
}

#[test]
fn a_distribution_is_bounded_and_ends_at_one() {
    let values: Vec<f64> = (0..10_000).map(f64::from).collect();
    let cdf = EmpiricalCdf::of(&values).unwrap();
    assert!(cdf.points.len() <= 202, "{}", cdf.points.len());
    assert_eq!(*cdf.points.last().unwrap(), (9999.0, 1.0));
    // sqrt(ln(2 / 0.05) / (2 · 10000)).
    assert!(is_near(cdf.band, 0.013_581, 1e-4), "{}", cdf.band);
    assert_eq!(EmpiricalCdf::of(&[]), None);
}

/// Breaks each two seconds, in repetitions that begin anywhere between two.
#[test]
fn the_period_of_a_coffee_break_is_found() {
    let mut random = Random::new(3);
    let mut repetition = |breaks: u32| -> Vec<f64> {
        let phase = 2.0 * uniform(&mut random);
        (0..breaks).map(|at| phase + f64::from(at) * 2.0 + 0.1 * uniform(&mut random)).collect()
    };
    for repetitions in [vec![repetition(30)], (0..3).map(|_| repetition(10)).collect()] {
        let span = 2.0 * f64::from(u32::try_from(repetitions[0].len()).unwrap());
        let found = periodicity(&repetitions, span).unwrap();
        assert!(is_near(found.period, 2.0, 0.05), "{found:?}");
    }
    assert_eq!(periodicity(&[[1.0, 2.0]], 60.0), None, "two events have no period");
}

/// Of series without a period at most one in a hundred is given one.
#[test]
fn chance_is_seldom_a_period() {
    let mut random = Random::new(4);
    for (repetitions, events) in [(1, 30), (3, 10), (5, 3), (3, 40)] {
        let mut series = || -> Vec<Vec<f64>> {
            (0..repetitions)
                .map(|_| (0..events).map(|_| 20.0 * uniform(&mut random)).collect())
                .collect()
        };
        let found = (0..500).filter(|_| periodicity(&series(), 20.0).is_some()).count();
        assert!(found <= 12, "{repetitions} repetitions of {events} events: {found} of 500");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_model_that_made_the_data_is_chosen(
        processor_shared in any::<bool>(), a in 0.000_2..0.000_5_f64, c in 1e-7..6e-7_f64,
    ) {
        let truth = QueueModel::ALL[usize::from(processor_shared)];
        let mut points = Vec::new();
        for octets in [100.0, 400.0, 800.0, 1200.0] {
            for rate in [50.0, 200.0, 400.0, 700.0] {
                let service = a + c * octets;
                let mut point = LoadPoint {
                    octets, rate, sojourn: 0.0, service_variation: 0.2, arrival_variation: 1.0,
                };
                point.sojourn = truth.sojourn(service, &point).unwrap();
                points.push(point);
            }
        }
        let choice = choose_model(&points).unwrap();
        prop_assert_eq!(choice.chosen, truth);
        prop_assert!(choice.error_pct < 0.01, "{choice:?}");
        prop_assert!(choice.loser_error_pct > choice.error_pct);
        prop_assert!(is_near(choice.service.intercept, a, 0.001), "{choice:?}");
        prop_assert!(is_near(choice.service.slope, c, 0.001), "{choice:?}");
    }
}

/// Seeds of the tests below. They are the same in each run: an interval of 95 % misses the truth
/// in one case of twenty, so a new seed each time would fail now and then.
const SEEDS: std::ops::Range<u64> = 0..20;

#[test]
fn planted_spikes_are_found_and_little_else() {
    for seed in SEEDS {
        let mut random = Random::new(seed);
        let mut values: Vec<f64> = (0..1000).map(|_| 100.0 + normal(&mut random)).collect();
        let draw = |_| usize::try_from(random.below(1000)).unwrap();
        let places: std::collections::BTreeSet<usize> = (0..15).map(draw).collect();
        for &place in &places {
            values[place] += 40.0;
        }
        let found = hampel_spikes(&values, 50, HAMPEL_SIGMA);
        for place in &places {
            assert!(found.contains(place), "seed {seed}: the spike at {place} is missing");
        }
        // One normal value in 740 exceeds 3 σ upwards; the window's σ is itself estimated.
        assert!(found.len() <= places.len() + 15, "seed {seed}: {} found", found.len());
    }
}

#[test]
fn a_known_line_is_inside_its_intervals() {
    let mut inside = 0;
    for seed in SEEDS {
        let mut random = Random::new(seed);
        let (a, c) = (10.0 + 900.0 * uniform(&mut random), 0.01 + uniform(&mut random));
        let points: Vec<(f64, f64)> = (0..280_u32)
            .map(|at| {
                let octets = f64::from(100 + at % 14 * 100);
                (octets, a + c * octets + 5.0 * normal(&mut random))
            })
            .collect();
        let fit = least_squares(&points).unwrap();
        assert!((fit.intercept - a).abs() < 3.0, "{fit:?}");
        assert!((fit.slope - c).abs() < 0.004, "{fit:?}");
        let intervals = bootstrap_fit(&points, 0.95, 300, &mut random).unwrap();
        inside += usize::from(intervals.intercept.contains(a));
        inside += usize::from(intervals.slope.contains(c));
        // A tenth of wild values moves the line of least squares, not that of Theil and Sen.
        let mut wild = points;
        wild.iter_mut().step_by(10).for_each(|point| point.1 += 10_000.0);
        let robust = theil_sen(&wild, &mut random).unwrap();
        assert!((robust.slope - c).abs() < 0.02, "{robust:?}");
    }
    // 38 of 40 are expected.
    assert!((34..=40).contains(&inside), "{inside} of 40");
}

#[test]
fn a_known_tail_comes_out() {
    for seed in SEEDS {
        let mut random = Random::new(seed);
        let scale = 5.0 + 500.0 * uniform(&mut random);
        let mut draw = || 10.0 - scale * (1.0 - uniform(&mut random) * 0.999_999).ln();
        let values: Vec<f64> = (0..4000).map(|_| draw()).collect();
        let tail = fit_tail(&values).unwrap();
        // The quantile 0.99 of an exponential distribution is its scale times ln 100.
        assert!(is_near(tail.quantile(0.99), 10.0 + scale * 100.0_f64.ln(), 0.12), "{tail:?}");
        assert!(is_near(tail.quantile(0.999), 10.0 + scale * 1000.0_f64.ln(), 0.35));
    }
    assert_eq!(fit_tail(&[1.0; 50]), None, "equal values have no tail");
}

#[test]
fn the_interval_of_the_median_has_it() {
    let mut inside = 0;
    for seed in SEEDS {
        let mut random = Random::new(seed);
        let values: Vec<f64> = (0..200).map(|_| 50.0 + normal(&mut random)).collect();
        let interval = median_interval(&values, 0.95, 200, &mut random).unwrap();
        inside += usize::from(interval.contains(50.0));
        assert!(interval.high - interval.low < 0.8, "{interval:?}");
    }
    // 19 of 20 are expected.
    assert!(inside >= 16, "{inside} of 20");
}

/// Whether a truth is in as many of `all` intervals of 95 % as it should be, less and more four standard
/// deviations of that count.
fn covers(inside: u32, all: u32) -> bool {
    let expected = 0.95 * f64::from(all);
    (f64::from(inside) - expected).abs() <= 4.0 * (expected * 0.05).sqrt()
}

/// Order statistics take the next ranks outwards, so intervals of few values are a little too wide: at 99 %
/// of 400 values up to 98 %.
#[test]
fn intervals_of_percentiles_have_them_whatever_the_distribution() {
    const INTERVALS: u32 = 400;
    // The last one is that of Pareto with the shape 1, which has not even a mean.
    let quantiles: [fn(f64) -> f64; 3] =
        [|share| share, |share| -(1.0 - share).ln(), |share| 1.0 / (1.0 - share)];
    for (name, quantile_of) in ["uniform", "exponential", "Pareto"].into_iter().zip(quantiles) {
        for (part, count) in [(0.95, 100), (0.95, 2000), (0.99, 400), (0.99, 4000)] {
            let mut random = Random::new(1);
            let mut inside = 0;
            for _interval in 0..INTERVALS {
                let mut draw = || quantile_of(uniform(&mut random) * 0.999_999_9);
                let values = sorted(&(0..count).map(|_| draw()).collect::<Vec<_>>());
                let interval = quantile_interval(&values, part, 0.95).unwrap();
                inside += u32::from(interval.contains(quantile_of(part)));
            }
            let least = covers(inside, INTERVALS) || 20 * inside > 19 * INTERVALS;
            assert!(
                least && 100 * inside <= 99 * INTERVALS,
                "{name} {part} of {count}: {inside} of {INTERVALS}"
            );
        }
    }
}

/// The 40th and the 61st of 100 values for the median, by tables of the binomial distribution; and as many
/// values as it takes for the largest to be above a percentile with 97.5 %: ln 0.025 / ln p.
#[test]
fn an_interval_of_a_percentile_has_both_ends_or_there_is_none() {
    let values: Vec<f64> = (1..=100).map(f64::from).collect();
    let median = quantile_interval(&values, 0.5, 0.95).unwrap();
    assert_eq!((median.low, median.high), (40.0, 61.0));
    for (part, fewest) in [(0.95, 72), (0.99, 368)] {
        let values: Vec<f64> = (0..fewest).map(f64::from).collect();
        assert_eq!(quantile_interval(&values[1..], part, 0.95), None, "{part}");
        let interval = quantile_interval(&values, part, 0.95).unwrap();
        assert_eq!(Some(&interval.high), values.last(), "{part}");
    }
    assert_eq!(quantile_interval(&[], 0.5, 0.95), None);
    let summary = DelaySummary::of(&values).unwrap();
    let p95 = summary.p95_interval.unwrap();
    assert!(p95.low < summary.p95 && summary.p95 < p95.high, "{p95:?}");
    assert_eq!(summary.p99_interval, None, "100 values");
}

#[test]
fn intervals_of_losses_have_them() {
    const INTERVALS: u32 = 1000;
    for (share, count) in [(0.005, 2000), (0.05, 400), (0.5, 100)] {
        let mut random = Random::new(1);
        let mut inside = 0;
        for _interval in 0..INTERVALS {
            let lost = (0..count).filter(|_| uniform(&mut random) < share).count();
            inside += u32::from(share_interval(lost, count).unwrap().contains(share));
        }
        // The number of losses has steps, so the share of intervals is not 95 % exactly.
        assert!((920..=980).contains(&inside), "{share} of {count}: {inside} of {INTERVALS}");
    }
    // Nothing lost: z² / (n + z²).
    let none = share_interval(0, 100).unwrap();
    assert!(none.low == 0.0 && is_near(none.high, 0.036_995, 1e-4), "{none:?}");
    assert_eq!(share_interval(0, 0), None);
}

/// Node and link delays that a third cause makes longer together, each depending on the one before.
#[test]
fn intervals_of_a_ratio_have_it() {
    const INTERVALS: u32 = 200;
    let mut random = Random::new(1);
    let mut inside = 0;
    for _interval in 0..INTERVALS {
        let mut state = 0.0;
        let mut pair = || {
            state = 0.3 * state + normal(&mut random);
            let shared = 0.1 * state;
            let node = 30.0 * (shared + 0.1 * normal(&mut random)).exp();
            (node, 100.0 * (shared + 0.1 * normal(&mut random)).exp())
        };
        let pairs: Vec<(f64, f64)> = (0..400).map(|_| pair()).collect();
        // Medians of both logarithms are those of 30 and of 100.
        let interval = ratio_interval(&pairs, 0.95, 200, &mut Random::new(2)).unwrap();
        inside += u32::from(interval.contains(0.3));
        assert!(interval.high - interval.low < 0.03, "{interval:?}");
    }
    assert!(covers(inside, INTERVALS), "{inside} of {INTERVALS}");
    assert_eq!(ratio_interval(&[(1.0, 0.0)], 0.95, 10, &mut Random::new(1)), None);
}

#[test]
fn only_what_is_beyond_noise_is_a_difference() {
    for seed in SEEDS {
        let mut random = Random::new(seed);
        let mut run =
            |mean: f64| -> Vec<f64> { (0..7).map(|_| mean + normal(&mut random)).collect() };
        let (first, same, slower) = (run(100.0), run(100.0), run(130.0));
        let judge = |one: &[f64], other: &[f64], level| {
            difference(one, other, level, 0.02).unwrap().verdict
        };
        assert_eq!(judge(&first, &slower, 0.99), Verdict::Slower);
        assert_eq!(judge(&slower, &first, 0.99), Verdict::Faster);
        assert_eq!(judge(&first, &same, 0.9999), Verdict::Noise);
    }
}

/// Runs of the same node, with as many conditions as an experiment has and few repetitions: in at most one
/// pair of twenty any condition is found to differ.
#[test]
fn equal_runs_are_seldom_different() {
    let mut random = Random::new(9);
    for (conditions, repeats) in [(1, 3), (18, 3), (18, 5), (66, 3), (66, 5)] {
        let level = 1.0 - 0.05 / f64::from(conditions);
        let mut run =
            || (0..repeats).map(|_| (0.03 * normal(&mut random)).exp()).collect::<Vec<_>>();
        let mut is_different =
            || difference(&run(), &run(), level, 0.02).unwrap().verdict != Verdict::Noise;
        let pairs = 400;
        let found = (0..pairs).filter(|_| (0..conditions).any(|_| is_different())).count();
        // 20 are meant; 35 and more come by chance in one of a thousand.
        assert!(found < 35, "{conditions} conditions, {repeats} repetitions: {found} of {pairs}");
    }
}

/// Repetitions of which one took a hundred times as long, as on a busy machine.
#[test]
fn a_relative_difference_and_its_interval_are_above_minus_100_percent() {
    let (one, other) = ([2573.7, 1872.6, 413_233.7], [224_221.2, 3992.9, 5023.9]);
    for (first, second) in [(one, other), (other, one)] {
        let found = difference(&first, &second, 0.999, 0.02).unwrap();
        let interval = found.interval.unwrap();
        assert!(interval.low > -1.0 && interval.contains(found.relative), "{found:?}");
        // The cube roots of the products.
        let [shown_first, shown_second] = found.delays;
        assert!(is_near(shown_first, first.iter().product::<f64>().cbrt(), 1e-9), "{found:?}");
        assert!(is_near(shown_second, second.iter().product::<f64>().cbrt(), 1e-9), "{found:?}");
        assert!(is_near(1.0 + found.relative, shown_second / shown_first, 1e-9), "{found:?}");
    }
    assert_eq!(difference(&[1.0, 0.0, 1.0], &one, 0.95, 0.02), None);
}

#[test]
fn two_repetitions_are_not_judged() {
    let judged = difference(&[1.0, 1.0], &[9.0, 9.0], 0.95, 0.02).unwrap();
    assert_eq!((judged.verdict, judged.interval), (Verdict::Unknown, None));
    assert_eq!(coefficient_of_variation(&[1.0]), None);
}

#[test]
fn an_overloaded_node_has_no_sojourn_time() {
    let point = LoadPoint {
        octets: 100.0,
        rate: 100.0,
        sojourn: 0.0,
        service_variation: 0.0,
        arrival_variation: 1.0,
    };
    for model in QueueModel::ALL {
        assert_eq!(model.sojourn(0.01, &point), None, "ρ is 1");
    }
    // M/D/1 at ρ = 1/2: S (1 + ρ / (2 (1 − ρ))) = 1.5 S; shared, S / (1 − ρ) = 2 S.
    let [fifo, shared] = QueueModel::ALL.map(|model| model.sojourn(0.005, &point).unwrap());
    assert!(is_near(fifo, 0.0075, 1e-12) && is_near(shared, 0.01, 1e-12), "{fifo} {shared}");
}
