//! A token bucket: a burst, and a rate per second.

use crate::paths::subnet_of;
use gatewright_packet::LinkIndex;
use gatewright_tables::SharedWords;
use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A token bucket: lets at most `burst` items pass at once and `per_second` in the long run.
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
            // The whole bucket takes some 146 years.
            0 => u64::MAX / 2 / if burst == 0 { 1 } else { burst as u64 },
            rate => 1_000_000_000 / rate as u64,
        };
        Self { refill, depth: refill.saturating_mul(burst as u64), full_at: 0 }
    }

    /// Nanoseconds to refill one token, and the whole bucket.
    pub const fn times(&self) -> [u64; 2] {
        [self.refill, self.depth]
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

/// Limits messages that received packets provoke, for each receiving link and for each share of the
/// senders. A sender that provokes many so uses up nobody else's.
#[derive(Debug)]
pub(crate) struct SenderLimit {
    rates: Rates,
    /// One bucket for each link, in order.
    links: Vec<Bucket>,
    /// One bucket for all shares with the same hash.
    shares: Vec<Bucket>,
    key: u64,
}

/// The rates of a [`SenderLimit`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Messages about packets of one link: per second, and in a burst.
    pub(crate) of_link: (u32, u32),
    /// Messages to one share of the senders: per second, and in a burst.
    pub(crate) of_share: (u32, u32),
    /// The senders that have one share together.
    pub(crate) share: LimitScope,
}

/// The senders that have one share of a [`SenderLimit`] together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LimitScope {
    /// All hosts of a subnet: anywhere, a sender may have any address of its subnet.
    Subnet,
    /// One host: all senders are neighbours, and so of one subnet.
    Host,
}

impl Rates {
    /// ICMP errors (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
    pub(crate) const ERRORS: Self =
        Self { of_link: (1000, 500), of_share: (100, 50), share: LimitScope::Subnet };

    /// Redirects (RFC 1812 §4.3.2.8, RFC 4861 §8.2). A host that ignores them would otherwise be
    /// sent one for each of its packets.
    pub(crate) const REDIRECTS: Self =
        Self { of_link: (100, 50), of_share: (1, 5), share: LimitScope::Host };

    /// Echo replies: enough for `ping -f`, not for a reflector.
    pub(crate) const ECHOES: Self =
        Self { of_link: (100_000, 10_000), of_share: (50_000, 5_000), share: LimitScope::Subnet };
}

/// Number of buckets for shares, as a power of 2.
const SHARES_BITS: u32 = 10;

/// Maximum links with their own bucket; the others share one.
const LINKS_MAX: usize = 256;

impl SenderLimit {
    /// Full buckets; `random` keeps outsiders from choosing senders that share one.
    pub(crate) fn new(rates: Rates, random: u64) -> Self {
        Self { rates, links: Vec::new(), shares: Vec::new(), key: random | 1 }
    }

    /// Whether a message about a packet received on `link` may be sent to its source `to` at `now`.
    pub(crate) fn take(&mut self, link: LinkIndex, to: IpAddr, now: Duration) -> bool {
        let full = |(rate, burst)| Bucket::new(rate, burst);
        if self.shares.is_empty() {
            self.shares = vec![full(self.rates.of_share); 1 << SHARES_BITS];
        }
        let link = link.index().min(LINKS_MAX);
        if self.links.len() <= link {
            self.links.resize(link + 1, full(self.rates.of_link));
        }
        let hash = self.share_of(to).wrapping_mul(self.key) >> (u64::BITS - SHARES_BITS);
        let share = usize::try_from(hash).ok().and_then(|hash| self.shares.get_mut(hash));
        share.is_none_or(|share| share.take(now))
            && self.links.get_mut(link).is_none_or(|link| link.take(now))
    }

    fn share_of(&self, to: IpAddr) -> u64 {
        match (self.rates.share, to) {
            (LimitScope::Subnet, _) => subnet_of(to).1,
            (LimitScope::Host, IpAddr::V4(ip)) => ip.to_bits().into(),
            (LimitScope::Host, IpAddr::V6(ip)) => {
                let (prefix, host) =
                    (ip.to_bits() >> u64::BITS, ip.to_bits() & u128::from(u64::MAX));
                let half = |bits: u128| u64::try_from(bits).unwrap_or_default();
                half(prefix).wrapping_mul(self.key) ^ half(host)
            }
        }
    }
}

/// A bucket shared by several workers, and perhaps by programs in drivers, without a lock.
#[derive(Debug)]
pub(crate) struct SharedBucket {
    /// The bucket of one worker; its shared time is left at the initial value.
    shape: Bucket,
    time: FullAt,
}

/// The time at which a shared bucket would be full.
#[derive(Debug)]
enum FullAt {
    /// On the workers' clock.
    Own(AtomicU64),
    WithDrivers(DriverBucket),
}

/// The time of a bucket that the graph shares with programs in drivers, in their memory.
#[derive(Clone, Debug)]
pub struct DriverBucket {
    /// The memory.
    pub words: SharedWords,
    /// The place of the time in it.
    pub at: usize,
    /// The drivers' clock. The workers' shows when a batch came: by that, what drivers have taken since
    /// would be taken in the future.
    pub now: fn() -> Duration,
}

impl SharedBucket {
    /// As [`Bucket::new`].
    pub(crate) const fn new(per_second: u32, burst: u32) -> Self {
        let time = FullAt::Own(AtomicU64::new(0));
        Self { shape: Bucket::new(per_second, burst), time }
    }

    /// The same, with what drivers have taken already.
    pub(crate) const fn with_drivers(per_second: u32, burst: u32, of: DriverBucket) -> Self {
        Self { shape: Bucket::new(per_second, burst), time: FullAt::WithDrivers(of) }
    }

    /// The number of `wanted` that may pass at `now`; takes a token for each.
    pub(crate) fn take(&self, wanted: usize, now: Duration) -> usize {
        let (full_at, now) = match &self.time {
            FullAt::Own(full_at) => (full_at, now),
            FullAt::WithDrivers(DriverBucket { words, at, now }) => {
                // Its maker has chosen a place in the memory.
                let Some(full_at) = words.number(*at) else { return 0 };
                (full_at, now())
            }
        };
        let mut passed = 0;
        let taken = |full_at| {
            let mut bucket = Bucket { full_at, ..self.shape };
            passed = (0..wanted).take_while(|_| bucket.take(now)).count();
            (passed > 0).then_some(bucket.full_at)
        };
        // Nothing else is told by the number: no order with other memory is needed. If none may
        // pass nothing is to be stored, which is no failure.
        let _none = full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
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
    fn drivers_and_the_graph_take_from_one_bucket() {
        const AT: usize = 2;
        let (words, now) = (SharedWords::private(4), || Duration::from_secs(50));
        let of = DriverBucket { words: words.clone(), at: AT, now };
        let bucket = SharedBucket::with_drivers(10, 3, of);
        assert_eq!(bucket.take(1, Duration::ZERO), 1);
        let full_at = words.number(AT).unwrap();
        assert_eq!(full_at.load(Ordering::Relaxed), 50_100_000_000, "on the drivers' clock");
        // A driver takes one.
        full_at.fetch_add(100_000_000, Ordering::Relaxed);
        assert_eq!(bucket.take(9, Duration::ZERO), 1);
        // Time passes.
        full_at.fetch_sub(200_000_000, Ordering::Relaxed);
        assert_eq!(bucket.take(9, Duration::ZERO), 2);
    }

    #[test]
    fn without_a_rate_a_burst_passes_once() {
        for burst in [1, 3, 1000] {
            let mut bucket = Bucket::new(0, burst);
            let passed = (0..2000).filter(|_| bucket.take(Duration::from_secs(9))).count();
            assert_eq!(passed, usize::try_from(burst).unwrap());
            assert!(!bucket.take(Duration::from_hours(24)));
        }
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
