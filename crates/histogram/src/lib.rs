//! One histogram for the times and sizes of every relay, program and service.
//!
//! It is log-linear: each power of two has 16 buckets of equal width. So a value is known to 1/16
//! (6 %) over the whole range, from 1 to 2⁴². As nanoseconds, that is 73 minutes.
//!
//! Beside the buckets it has the sums that delay models are fitted from. `sum` and `squares` give
//! the mean and the second moment of a queue's service time (M/G/1); with the sums over octets,
//! least squares give `a` and `b` of a delay `a + b·octets`.
//!
//! - [`Histogram`] is the record as a value: it is merged, subtracted from a later one, asked for
//!   quantiles, and written as JSON.
//! - [`SharedHistogram`] is the same record with one writer and any number of readers, without a
//!   lock.
//!
//! The record is a fixed number of 64-bit words without pointers, in the same order in both types.
//! So it can lie in memory that processes share.

#![forbid(unsafe_code)]

mod bucket;
mod shared;
mod written;

pub use bucket::BUCKETS;
pub use shared::SharedHistogram;

use bucket::{bucket_end, bucket_of};
use std::{fmt, time::Duration};

/// A distribution of times in nanoseconds, or of sizes.
#[derive(Clone, Eq, PartialEq)]
#[repr(transparent)]
pub struct Histogram([u64; WORDS]);

/// Equal values that are recorded at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// The value of each; times in nanoseconds.
    pub value: u64,
    /// How many there are.
    pub times: u64,
    /// The octets of what took this time, the sum of all; 0 if not known.
    pub octets: u64,
    /// The sum of the squares of their octets.
    pub octet_squares: u64,
}

impl From<u64> for Sample {
    fn from(value: u64) -> Self {
        Self { value, times: 1, octets: 0, octet_squares: 0 }
    }
}

impl From<Duration> for Sample {
    fn from(time: Duration) -> Self {
        Self::from(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Sample {
    /// No values yet, each of which will be `value`; [`Self::push`] adds them.
    pub const fn new(value: u64) -> Self {
        Self { value, times: 0, octets: 0, octet_squares: 0 }
    }

    /// Adds one value of something with so many octets.
    pub const fn push(&mut self, octets: u64) {
        self.times += 1;
        self.octets = self.octets.saturating_add(octets);
        self.octet_squares = self.octet_squares.saturating_add(octets.saturating_mul(octets));
    }

    /// One value, of something with so many octets.
    #[must_use]
    pub const fn of_octets(self, octets: u64) -> Self {
        let mut one = Self::new(self.value);
        one.push(octets);
        one
    }
}

/// Sums over all values of a histogram, for a delay model. `value` is S, `octets` is b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// n.
    pub count: f64,
    /// ΣS.
    pub values: f64,
    /// ΣS².
    pub value_squares: f64,
    /// Σb.
    pub octets: f64,
    /// Σb².
    pub octet_squares: f64,
    /// ΣS·b.
    pub products: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({} values, {} in all)", self.count(), self.sum())
    }
}

impl Histogram {
    /// Adds values.
    pub fn add(&mut self, sample: impl Into<Sample>) {
        let changed = changed(|at| self.word(at), &sample.into());
        for (at, word) in changed {
            self.set(at, word);
        }
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for at in [SUM, OCTETS] {
            self.set(at, self.word(at).wrapping_add(other.word(at)));
        }
        for at in REALS {
            self.set(at, (self.real(at) + other.real(at)).to_bits());
        }
        self.set(LARGEST, self.largest().max(other.largest()));
        for (count, more) in self.counts_mut().zip(other.counts()) {
            *count = count.wrapping_add(more);
        }
    }

    /// The values that were added since it was `earlier`. If that cannot be, as the histogram has
    /// begun anew since then, all of them.
    ///
    /// The largest value is then known as exactly as its bucket.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        if self.counts().zip(earlier.counts()).any(|(now, was)| now < was) {
            return self.clone();
        }
        let mut new = Self::default();
        for at in [SUM, OCTETS] {
            new.set(at, self.word(at).wrapping_sub(earlier.word(at)));
        }
        for at in REALS {
            new.set(at, (self.real(at) - earlier.real(at)).max(0.0).to_bits());
        }
        let differences = self.counts().zip(earlier.counts()).map(|(now, was)| now - was);
        for (count, difference) in new.counts_mut().zip(differences) {
            *count = difference;
        }
        let last = new.buckets().last().map_or(0, |(end, _)| end);
        new.set(LARGEST, last.min(self.largest()));
        new
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.counts().fold(0, u64::wrapping_add)
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.counts().all(|count| count == 0)
    }

    /// The sum of all values.
    pub const fn sum(&self) -> u64 {
        self.0[SUM]
    }

    /// The largest value.
    pub const fn largest(&self) -> u64 {
        self.0[LARGEST]
    }

    /// The octets of everything whose octets are known.
    pub const fn octets(&self) -> u64 {
        self.0[OCTETS]
    }

    /// The sums that a delay model is fitted from.
    pub fn sums(&self) -> Sums {
        Sums {
            count: real(self.count()),
            values: real(self.sum()),
            value_squares: self.real(SQUARES),
            octets: real(self.octets()),
            octet_squares: self.real(OCTET_SQUARES),
            products: self.real(PRODUCTS),
        }
    }

    /// The value that `part` of `whole` values do not exceed: the median for 1 of 2. It is rounded
    /// up by 1/16 at the most. `None` without values.
    pub fn quantile(&self, part: u64, whole: u64) -> Option<u64> {
        let count = self.count();
        let wanted = (u128::from(count) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, count.max(1));
        let mut seen = 0_u64;
        let reached = self.buckets().find(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen >= wanted
        });
        reached.map(|(end, _)| end.min(self.largest()))
    }

    /// The number of values that are not above `bound`. Those in a bucket across it are not among
    /// them, so no time is reported shorter than it was.
    pub fn within(&self, bound: u64) -> u64 {
        let ended = self.buckets().take_while(|(end, _)| *end <= bound);
        ended.fold(0, |sum, (_, count)| sum.wrapping_add(count))
    }

    /// The buckets that are not empty: the largest value that each has room for, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts().enumerate().filter(|(_, count)| *count > 0);
        counts.map(|(bucket, count)| (bucket_end(bucket), count))
    }

    fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.iter().skip(FIRST_BUCKET).copied()
    }

    fn counts_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.0.iter_mut().skip(FIRST_BUCKET)
    }

    fn word(&self, at: usize) -> u64 {
        self.0.get(at).copied().unwrap_or_default()
    }

    fn real(&self, at: usize) -> f64 {
        f64::from_bits(self.word(at))
    }

    fn set(&mut self, at: usize, to: u64) {
        if let Some(word) = self.0.get_mut(at) {
            *word = to;
        }
    }
}

/// The words that a sample changes, with their new values: the bucket last.
#[inline]
fn changed(word: impl Fn(usize) -> u64, sample: &Sample) -> [(usize, u64); CHANGED] {
    let Sample { value, times, octets, octet_squares } = *sample;
    let add = |at, more: u64| (at, word(at).wrapping_add(more));
    let add_real = |at, more: f64| (at, (f64::from_bits(word(at)) + more).to_bits());
    let (size, many) = (real(value), real(times));
    [
        add(SUM, value.wrapping_mul(times)),
        add_real(SQUARES, size * size * many),
        (LARGEST, word(LARGEST).max(if times > 0 { value } else { 0 })),
        add(OCTETS, octets),
        add_real(OCTET_SQUARES, real(octet_squares)),
        add_real(PRODUCTS, size * real(octets)),
        add(FIRST_BUCKET + bucket_of(value), times),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "sums for a model need no 64 bits")]
const fn real(value: u64) -> f64 {
    value as f64
}

/// The words of the record: the sum of all values, which wraps around.
const SUM: usize = 0;
/// The sum of their squares, an `f64`: squares of nanoseconds leave 64 bits within seconds.
const SQUARES: usize = 1;
/// The largest value.
const LARGEST: usize = 2;
/// The sum of all octets, which wraps around.
const OCTETS: usize = 3;
/// The sum of their squares, an `f64`.
const OCTET_SQUARES: usize = 4;
/// The sum of the products of value and octets, an `f64`.
const PRODUCTS: usize = 5;
/// The count of the first bucket; those of the others follow. There is no other count of values, so
/// that none can differ from these.
const FIRST_BUCKET: usize = 6;
/// The number of words.
const WORDS: usize = FIRST_BUCKET + BUCKETS;

/// The words that are `f64`.
const REALS: [usize; 3] = [SQUARES, OCTET_SQUARES, PRODUCTS];

/// The number of words that a sample changes.
const CHANGED: usize = FIRST_BUCKET + 1;
