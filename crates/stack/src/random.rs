//! Random numbers from a seed that is an argument: jitter, identifications, hash keys.

use std::time::Duration;

/// A stream of numbers (SplitMix64): unpredictable without the seed if few of them are seen; not
/// for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time from `least` up to `most`, in steps of a thousandth of their difference.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let thousandths = u32::try_from(self.draw() % 1000).unwrap_or_default();
        least + most.saturating_sub(least) * thousandths / 1000
    }
}
