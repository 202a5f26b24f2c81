//! Random numbers determined by a seed.

use std::{fmt, time::Duration};

/// A probability in parts of a million.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Every time.
    pub const ALWAYS: Self = Self(MILLION);

    /// A probability in parts per million; more than a million is certainty.
    pub const fn per_million(times: u32) -> Self {
        Self(if times > MILLION { MILLION } else { times })
    }

    /// A probability in percent; more than a hundred is certainty.
    pub const fn percent(times: u32) -> Self {
        Self::per_million(times.saturating_mul(MILLION / 100))
    }

    /// How many times in a million.
    pub const fn in_a_million(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in a million", self.0)
    }
}

const MILLION: u32 = 1_000_000;

/// A seeded source of numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
///
/// Good enough to impair frames, of no use for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if `limit` is 0.
    ///
    /// By multiplication (Lemire 2019) without rejection: the bias is below `limit` in 2⁶⁴.
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.bits()) * u128::from(limit);
        u64::try_from(product >> 64).unwrap_or_default()
    }

    /// Whether it happens this time. Probabilities of never and always draw no number.
    pub fn happens(&mut self, chance: Chance) -> bool {
        match chance {
            Chance::NEVER => false,
            Chance::ALWAYS => true,
            Chance(times) => self.below(u64::from(MILLION)) < u64::from(times),
        }
    }

    /// A time from zero up to, and without, `limit`; zero draws nothing.
    pub fn time_below(&mut self, limit: Duration) -> Duration {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        if nanos == 0 { Duration::ZERO } else { Duration::from_nanos(self.below(nanos)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as printed by Vigna's C reference implementation
    /// (<https://prng.di.unimi.it/splitmix64.c>).
    #[test]
    fn the_sequence_is_splitmix64() {
        const EXPECTED: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        let mut random = Random::new(1_234_567);
        assert_eq!([(); 5].map(|()| random.bits()), EXPECTED);
    }

    #[test]
    fn a_chance_is_met_about_as_often_as_it_says() {
        let mut random = Random::new(1);
        let times = (0..100_000).filter(|_| random.happens(Chance::percent(10))).count();
        assert!((9_500..10_500).contains(&times), "{times}");
        assert!((0..100).all(|_| random.happens(Chance::ALWAYS)));
        assert!((0..100).all(|_| !random.happens(Chance::NEVER)));
        assert_eq!(random.below(0), 0);
        assert_eq!(random.time_below(Duration::ZERO), Duration::ZERO);
    }
}
