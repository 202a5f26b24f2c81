//! A token bucket: a burst, and a rate per second.

use crate::paths::subnet_of;
use gatewright_packet::LinkIndex;
use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A token bucket: lets at most `burst` things pass at once and `per_second` in the long run.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Nanoseconds to refill one token.
    refill: u64,
    /// Nanoseconds to refill the whole bucket.
    depth: u64,
    /// When the bucket would be full if nothing more were taken, on the caller's clock.
    full_at: u64,
}

impl Bucket {
    /// A full bucket; `per_second` of zero lets only the first `burst` pass.
    pub const fn new(per_second: u32, burst: u32) -> Self {
        let refill = match per_second {
            0 => u64::MAX / 2,
            rate => 1_000_000_000 / rate as u64,
        };
        Self { refill, depth: refill.saturating_mul(burst as u64), full_at: 0 }
    }

    /// Whether one more may pass at `now`; takes a token if so.
    pub fn take(&mut self, now: Duration) -> bool {
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let full_at = self.full_at.max(now_ns).saturating_add(self.refill);
        if full_at - now_ns > self.depth {
            return false;
        }
        self.full_at = full_at;
        true
    }

    /// Puts a token back that was taken.
    pub fn give_back(&mut self) {
        self.full_at = self.full_at.saturating_sub(self.refill);
    }
}

/// Limits ICMP errors (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)), for each receiving link and for each
/// destination subnet. A sender that provokes errors so uses up nobody else's.
#[derive(Debug)]
pub(crate) struct ErrorLimit {
    /// One bucket for each link, in order.
    links: Vec<Bucket>,
    /// One bucket for all subnets with the same hash.
    subnets: Vec<Bucket>,
    key: u64,
}

/// Errors about packets of one link: per second, and in a burst.
const OF_LINK: (u32, u32) = (1000, 500);

/// Errors to one subnet: per second, and in a burst.
const OF_SUBNET: (u32, u32) = (100, 50);

/// Number of subnet buckets, as a power of 2.
const SUBNETS_BITS: u32 = 10;

/// Maximum links with their own bucket; the others share one.
const LINKS_MAX: usize = 256;

impl ErrorLimit {
    /// Full buckets; `random` keeps outsiders from choosing subnets that share one.
    pub(crate) fn new(random: u64) -> Self {
        Self { links: Vec::new(), subnets: Vec::new(), key: random | 1 }
    }

    /// Whether an error about a packet received on `link` may be sent to its source `to` at `now`.
    pub(crate) fn take(&mut self, link: LinkIndex, to: IpAddr, now: Duration) -> bool {
        let full = |(rate, burst)| Bucket::new(rate, burst);
        if self.subnets.is_empty() {
            self.subnets = vec![full(OF_SUBNET); 1 << SUBNETS_BITS];
        }
        let link = link.index().min(LINKS_MAX);
        if self.links.len() <= link {
            self.links.resize(link + 1, full(OF_LINK));
        }
        let (_, subnet) = subnet_of(to);
        let hash = subnet.wrapping_mul(self.key) >> (u64::BITS - SUBNETS_BITS);
        let of_subnet = usize::try_from(hash).ok().and_then(|hash| self.subnets.get_mut(hash));
        of_subnet.is_none_or(|subnet| subnet.take(now))
            && self.links.get_mut(link).is_none_or(|link| link.take(now))
    }
}

/// A bucket shared by several workers, without a lock.
#[derive(Debug)]
pub(crate) struct SharedBucket {
    /// The bucket of one worker; its shared time is left at the initial value.
    shape: Bucket,
    full_at: AtomicU64,
}

impl SharedBucket {
    /// As [`Bucket::new`].
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        Self { shape: Bucket::new(per_second, burst), full_at: AtomicU64::new(0) }
    }

    /// The number of `wanted` that may pass at `now`; takes a token for each.
    pub(crate) fn take(&self, wanted: usize, now: Duration) -> usize {
        let mut passed = 0;
        let taken = |full_at| {
            let mut bucket = Bucket { full_at, ..self.shape };
            passed = (0..wanted).take_while(|_| bucket.take(now)).count();
            (passed > 0).then_some(bucket.full_at)
        };
        // Nothing else is told by the number: no order with other memory is needed. If none may
        // pass nothing is to be stored, which is no failure.
        let _none = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_workers_take_from_one_bucket_is_its_burst() {
        let bucket = SharedBucket::new(10, 1000);
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..100).map(|_| bucket.take(7, Duration::ZERO)).sum::<usize>();
            let workers = [(); 4].map(|()| scope.spawn(take));
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(taken, 1000);
        assert_eq!(bucket.take(9, Duration::from_millis(300)), 3);
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::new(10, 3);
        let at = Duration::from_millis;
        let passed = |bucket: &mut Bucket, ms| (0..100).filter(|_| bucket.take(at(ms))).count();
        assert_eq!(passed(&mut bucket, 0), 3);
        assert_eq!(passed(&mut bucket, 99), 0);
        assert_eq!(passed(&mut bucket, 100), 1);
        assert_eq!(passed(&mut bucket, 400), 3, "never more than the burst");
        assert_eq!(passed(&mut bucket, 100_000), 3);
    }
}
