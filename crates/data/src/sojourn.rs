//! Sojourn times of packets, in the one histogram format of every relay.
//!
//! A packet is stamped when its link receives it and read when it leaves. The histogram is
//! log-linear: each power of two of nanoseconds is cut into 16 equal buckets. A value is so known
//! to 1/16 (6 %) over the whole range, in 8 KiB, without a lock.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Buckets of each power of two, as a number of bits.
const SUB_BITS: u32 = 4;

/// Buckets in all: values below 16 ns have one each, the other 60 powers of two 16 each.
const BUCKETS: usize = (u64::BITS - SUB_BITS + 1) as usize * (1 << SUB_BITS);

/// Sojourn times with one writer and any number of readers, who see those of all parts.
pub struct Sojourn {
    own: Box<[AtomicU64]>,
    /// The next worker's part.
    next: OnceLock<Arc<Self>>,
}

impl Default for Sojourn {
    fn default() -> Self {
        let own = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Self { own, next: OnceLock::new() }
    }
}

impl fmt::Debug for Sojourn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sojourn({} packets)", self.packets())
    }
}

impl Sojourn {
    /// Records `packets` that stayed `nanoseconds`; only the one writer may call it.
    pub fn record(&self, nanoseconds: u64, packets: u64) {
        if let Some(bucket) = self.own.get(bucket_of(nanoseconds)) {
            let now = bucket.load(Ordering::Relaxed);
            bucket.store(now.wrapping_add(packets), Ordering::Relaxed);
        }
    }

    /// A part for another writer, whose packets are counted here too.
    #[must_use]
    pub fn part(&self) -> Arc<Self> {
        let (part, mut last) = (Arc::new(Self::default()), self);
        while last.next.set(Arc::clone(&part)).is_err() {
            last = last.next.get().map_or(last, |next| next);
        }
        part
    }

    /// Packets of each bucket.
    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0_u64; BUCKETS];
        let mut next = Some(self);
        while let Some(part) = next {
            for (count, bucket) in counts.iter_mut().zip(&part.own) {
                *count = count.wrapping_add(bucket.load(Ordering::Relaxed));
            }
            next = part.next.get().map(Arc::as_ref);
        }
        counts
    }

    /// Packets recorded.
    pub fn packets(&self) -> u64 {
        self.counts().iter().sum()
    }

    /// The time within which `share` (0 to 1) of the packets left; `None` without packets.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let counts = self.counts();
        let all: u64 = counts.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "a share of a count needs no 64 bits")]
        let wanted = share.clamp(0.0, 1.0) * all as f64;
        let mut seen = 0;
        for (bucket, count) in counts.into_iter().enumerate().filter(|&(_, count)| count > 0) {
            seen += count;
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            if seen as f64 >= wanted {
                return Some(Duration::from_nanos(bucket_end(bucket)));
            }
        }
        None
    }

    /// The buckets that are not empty: the largest value of each in nanoseconds, and its packets.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts()
            .into_iter()
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (bucket_end(bucket), count))
    }
}

/// The bucket of a value.
fn bucket_of(value: u64) -> usize {
    let power = u64::BITS - value.leading_zeros();
    let bucket = match power.checked_sub(SUB_BITS + 1) {
        None => value,
        // The leading one selects the power, the four bits behind it the bucket.
        Some(shift) => (u64::from(shift) << SUB_BITS) + (value >> shift),
    };
    usize::try_from(bucket).unwrap_or(BUCKETS)
}

/// The largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let sub = 1 << SUB_BITS;
    match (bucket >> SUB_BITS).checked_sub(1) {
        None | Some(0) => bucket,
        Some(shift) => {
            let first = (sub + (bucket & (sub - 1))) << shift;
            first + ((1 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_ends_within_a_sixteenth() {
        let powers = (0..64).flat_map(|power| {
            let value = 1_u64 << power;
            [value - 1, value, value + value / 3, value + (value - 1)]
        });
        for value in powers.chain([u64::MAX]) {
            let end = bucket_end(bucket_of(value));
            assert!(end >= value && end - value <= value / 16, "{value} in a bucket to {end}");
        }
    }

    #[test]
    fn buckets_follow_one_another() {
        let mut last = 0;
        for bucket in 1..BUCKETS {
            let end = bucket_end(bucket);
            assert_eq!(bucket_of(last + 1), bucket);
            assert!(end > last);
            last = end;
        }
        assert_eq!(last, u64::MAX);
    }

    #[test]
    fn quantiles_of_a_known_crowd() {
        let sojourn = Sojourn::default();
        assert_eq!(sojourn.quantile(0.5), None);
        sojourn.record(10, 80);
        sojourn.part().record(1000, 10);
        sojourn.part().record(10, 10);
        assert_eq!(sojourn.packets(), 100);
        assert_eq!(sojourn.quantile(0.5), Some(Duration::from_nanos(10)));
        assert_eq!(sojourn.quantile(0.9), Some(Duration::from_nanos(10)));
        let p99 = sojourn.quantile(0.99).unwrap();
        assert!(p99 >= Duration::from_micros(1) && p99 < Duration::from_nanos(1064));
    }
}
