//! Tables whose keys are texts.
//!
//! Peers choose some of these texts, so the hash is keyed with numbers that each process draws: 128-bit
//! products are folded, as in wyhash. A text of thirty octets takes a fifth of the instructions of the
//! standard library's SipHash, and a message passes some thirty look-ups.

use core::hash::{BuildHasher, Hasher};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::sync::LazyLock;

/// A table by texts.
pub(crate) type TextMap<K, V> = HashMap<K, V, TextHashState>;

/// The key of this process.
static KEY: LazyLock<[u64; 2]> = LazyLock::new(|| {
    let random = RandomState::new();
    // An even key would let the lowest bit of a text pass without effect.
    [0, 1].map(|number: u8| random.hash_one(number) | 1)
});

/// Makes hashers with the key of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextHashState;

impl BuildHasher for TextHashState {
    type Hasher = TextHasher;

    fn build_hasher(&self) -> TextHasher {
        let [state, key] = *KEY;
        TextHasher { state, key }
    }
}

/// The hash of a text so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextHasher {
    state: u64,
    key: u64,
}

impl TextHasher {
    fn mix(&mut self, first: u64, second: u64) {
        self.state = folded_product(self.state ^ first, self.key ^ second);
    }
}

impl Hasher for TextHasher {
    fn write(&mut self, octets: &[u8]) {
        let (words, rest) = octets.as_chunks::<8>();
        let (pairs, single) = words.as_chunks::<2>();
        for [first, second] in pairs {
            self.mix(u64::from_le_bytes(*first), u64::from_le_bytes(*second));
        }
        // The length tells a text from one that goes on with zeros.
        let length = u64::try_from(octets.len()).unwrap_or(u64::MAX);
        let rest = rest.iter().fold(length, |word, octet| word << 8 | u64::from(*octet));
        self.mix(single.first().map_or(0, |word| u64::from_le_bytes(*word)), rest);
    }

    fn write_u8(&mut self, octet: u8) {
        // The mark at the end of each text, whose length is in the hash already.
        self.state ^= u64::from(octet);
    }

    fn finish(&self) -> u64 {
        folded_product(self.state, self.key)
    }
}

/// Both halves of the product as one.
fn folded_product(one: u64, other: u64) -> u64 {
    let (low, high) = one.carrying_mul(other, 0);
    low ^ high
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Neither length, place nor a single bit of a text is without effect.
    #[test]
    fn texts_that_differ_have_other_hashes() {
        let mut texts = HashSet::new();
        for length in 0..70 {
            texts.insert("a".repeat(length));
            texts.insert("\0".repeat(length));
            for at in 0..length {
                for other in ['b', 'c', '\u{1}'] {
                    let mut text = "a".repeat(length);
                    text.replace_range(at..=at, &other.to_string());
                    texts.insert(text);
                }
            }
        }
        let hashes: HashSet<u64> = texts.iter().map(|it| TextHashState.hash_one(it)).collect();
        assert_eq!(hashes.len(), texts.len());
        // A table takes its places from the lowest bits, and its marks from the highest.
        for shift in [0, 57] {
            let of = |hash: &u64| hash >> shift & 0x7f;
            let parts: HashSet<u64> = hashes.iter().map(of).collect();
            assert_eq!(parts.len(), 128);
        }
    }

    #[test]
    fn equal_texts_have_equal_hashes() {
        let text: std::sync::Arc<str> = "device/Cphd-0254455354000001".into();
        assert_eq!(TextHashState.hash_one(&text), TextHashState.hash_one(&*text));
        assert_eq!(TextHashState.hash_one("ab"), TextHashState.hash_one(String::from("ab")));
    }
}
