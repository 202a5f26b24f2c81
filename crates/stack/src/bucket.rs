//! A token bucket: so many at once, so many a second.

use std::time::Duration;

/// Lets at most `burst` things pass at once and `per_second` in the long run.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Nanoseconds that one token takes to come back.
    refill: u64,
    /// Nanoseconds of refill that fill the bucket.
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
