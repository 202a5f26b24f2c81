//! Laws of the histogram, held against sorted lists and sums in whole numbers.

use gatewright_histogram::{Histogram, Sample, SharedHistogram};
use proptest::prelude::*;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Times that a relay takes: from nothing to more than an hour, many equal.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..40, 500_u64..2_000, 0_u64..10_000_000_000, any::<u64>()]
}

fn values() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(value(), 0..200)
}

fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::default();
    for value in values {
        histogram.add(*value);
    }
    histogram
}

/// Values whose bucket has an end.
const LAST_BUCKET: u64 = (1 << 42) - (1 << 37);

proptest! {
    /// The nearest-rank quantile of the sorted list, rounded up by 1/16 at the most.
    #[test]
    fn a_quantile_is_that_of_the_sorted_list(
        mut values in values(), part in 0_u64..=1000,
    ) {
        let histogram = of(&values);
        values.sort_unstable();
        let rank = (values.len() * usize::try_from(part).unwrap()).div_ceil(1000).max(1);
        let expected = values.get(rank - 1).copied();
        let found = histogram.quantile(part, 1000);
        prop_assert_eq!(found.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (found, expected) {
            prop_assert!(found >= expected, "{} of {}", found, expected);
            let most = if expected >= LAST_BUCKET { u64::MAX } else { expected + expected / 16 };
            prop_assert!(found <= most, "{} of {}", found, expected);
        }
        prop_assert_eq!(histogram.quantile(1, 1), values.last().copied());
    }

    /// Counts, sums and bounds are those of the list.
    #[test]
    fn counts_and_sums_are_those_of_the_list(values in values(), bound in value()) {
        let histogram = of(&values);
        prop_assert_eq!(histogram.count(), values.len() as u64);
        prop_assert_eq!(histogram.is_empty(), values.is_empty());
        let sum = values.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value));
        prop_assert_eq!(histogram.sum(), sum);
        prop_assert_eq!(histogram.largest(), values.iter().copied().max().unwrap_or(0));
        let within = |bound: u64| values.iter().filter(|value| **value <= bound).count() as u64;
        let found = histogram.within(bound);
        // What is left out is in the one bucket across the bound.
        let below = (bound - bound / 16).saturating_sub(1).min(LAST_BUCKET - 1);
        prop_assert!((within(below)..=within(bound)).contains(&found), "{}", found);
        prop_assert_eq!(histogram.within(u64::MAX), histogram.count());
    }

    /// Merging two is adding all values to one; what was added since one of them is the other.
    #[test]
    fn merge_and_difference_undo_each_other(first in values(), second in values()) {
        let all = of(&[first.clone(), second.clone()].concat());
        let mut merged = of(&first);
        merged.merge(&of(&second));
        prop_assert!(same(&merged, &all));
        let since = all.since(&of(&first));
        prop_assert!(since.buckets().eq(of(&second).buckets()));
        prop_assert_eq!(since.sum(), of(&second).sum());
        let (known, exact) = (since.largest(), of(&second).largest());
        prop_assert!(known >= exact && (exact >= LAST_BUCKET || known <= exact + exact / 16));
        prop_assert!(same(&all.since(&Histogram::default()), &all));
    }

    /// What is written as JSON is read back, bucket by bucket.
    #[test]
    fn json_is_read_back(values in values()) {
        let histogram = of(&values);
        let text = serde_json::to_string(&histogram).unwrap();
        let read: Histogram = serde_json::from_str(&text).unwrap();
        prop_assert!(same(&read, &histogram));
    }

    /// The sums are enough to find a delay of a fixed time and a time for each octet.
    #[test]
    fn a_linear_delay_is_found_by_least_squares(
        fixed in 100_u32..1_000_000, per_octet in 1_u32..50,
        sizes in prop::collection::vec(20_u32..9000, 2..200),
    ) {
        prop_assume!(sizes.iter().any(|size| size.abs_diff(sizes[0]) > 50));
        let mut histogram = Histogram::default();
        for size in sizes {
            histogram.add(Sample::from(u64::from(fixed + per_octet * size)).of_octets(size.into()));
        }
        let sums = histogram.sums();
        let spread = sums.count * sums.octet_squares - sums.octets * sums.octets;
        let slope = (sums.count * sums.products - sums.values * sums.octets) / spread;
        let start = (sums.values - slope * sums.octets) / sums.count;
        let (fixed, per_octet) = (f64::from(fixed), f64::from(per_octet));
        prop_assert!((slope - per_octet).abs() < 1e-3 * per_octet, "{}", slope);
        prop_assert!((start - fixed).abs() < 1e-3 * (fixed + per_octet * 9000.0), "{}", start);
    }

    /// Several at once are as many one after the other.
    #[test]
    fn a_sample_of_many_is_many_samples(value in value(), times in 0_u64..50) {
        let (mut at_once, mut one_by_one) = (Histogram::default(), Histogram::default());
        at_once.add(Sample { times, ..Sample::from(value) });
        (0..times).for_each(|_| one_by_one.add(value));
        prop_assert!(same(&at_once, &one_by_one));
    }

    /// A shared one reads as the plain one with the same values.
    #[test]
    fn a_shared_one_has_the_same_values(values in values()) {
        let shared = SharedHistogram::default();
        for value in &values {
            shared.add(*value);
        }
        prop_assert_eq!(shared.read(), of(&values));
    }
}

/// Whether both hold the same values, apart from the rounding of real sums.
fn same(one: &Histogram, other: &Histogram) -> bool {
    let close = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(other.abs());
    one.buckets().eq(other.buckets())
        && (one.sum(), one.largest()) == (other.sum(), other.largest())
        && close(one.sums().value_squares, other.sums().value_squares)
}

/// Second moments of a known distribution: 1, 2 and 3 ms.
#[test]
fn the_sums_of_squares_leave_64_bits_without_harm() {
    let mut histogram = Histogram::default();
    for milliseconds in [1, 2, 3] {
        histogram.add(Sample { times: 1_000_000_000, ..Sample::from(milliseconds * 1_000_000) });
    }
    let sums = histogram.sums();
    let second_moment = sums.value_squares / sums.count;
    assert!((second_moment / 1e12 - 14.0 / 3.0).abs() < 1e-9, "{second_moment}");
}

/// One that has begun anew counts from zero.
#[test]
fn a_difference_to_one_that_had_more_is_the_later_one() {
    let (earlier, later) = (of(&[10, 10, 2000]), of(&[10, 30]));
    assert_eq!(later.since(&earlier), later);
}

/// A reader never finds a value in its bucket that is not yet in the sum.
#[test]
fn a_reader_sees_what_it_counts_in_the_sum() {
    let (shared, ended) = (SharedHistogram::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..20_000).for_each(|_| shared.add(1000_u64));
            ended.store(true, Ordering::Release);
        });
        let mut last = 0;
        while !ended.load(Ordering::Acquire) {
            let read = shared.read();
            assert!(read.sum() >= read.count() * 1000 && read.count() >= last);
            last = read.count();
        }
    });
    assert_eq!((shared.read().count(), shared.read().sum()), (20_000, 20_000_000));
}
