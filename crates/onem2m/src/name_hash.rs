//! Hashes of the names of instances, keyed so that no originator can choose names that collide.
//!
//! They are stored with records, so the function must not change: SipHash-2-4.

#![expect(
    deprecated,
    reason = "the standard library's DefaultHasher may become another function; this one has a name"
)]

use core::hash::{BuildHasher, Hasher, SipHasher};
use std::collections::hash_map::RandomState;

/// Key of the hashes of names. It is drawn once for a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NameKey([u64; 2]);

impl NameKey {
    /// The key of these two numbers.
    pub const fn new(numbers: [u64; 2]) -> Self {
        Self(numbers)
    }

    /// Its two numbers.
    pub const fn numbers(self) -> [u64; 2] {
        self.0
    }

    /// A new key.
    pub fn random() -> Self {
        let random = RandomState::new();
        Self([0, 1].map(|number: u8| random.hash_one(number)))
    }

    /// Hash of a name, never 0.
    pub(crate) fn hash(self, name: &str) -> u32 {
        u32::try_from(self.hash_octets(name.as_bytes()) >> 32).unwrap_or(u32::MAX).max(1)
    }

    fn hash_octets(self, octets: &[u8]) -> u64 {
        let mut hasher = SipHasher::new_with_keys(self.0[0], self.0[1]);
        hasher.write(octets);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Aumasson and Bernstein, *SipHash: a fast short-input PRF*, appendix A: key 00
    /// to 0f, input 00 to 0e.
    #[test]
    fn it_is_siphash_2_4() {
        let key = NameKey([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(key.hash_octets(&input), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn keys_differ() {
        assert_ne!(NameKey::random(), NameKey::random());
    }
}
