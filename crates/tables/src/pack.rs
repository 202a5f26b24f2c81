//! Encoding of values as words and back, in sequence, for kinds of record.

use crate::routes::PrefixKey;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Fills the words of a record in order; values that do not fit are left out, and unfilled words
/// are zero.
///
/// The number of words is part of a record's type, so a record's own round-trip test shows at once
/// if they are too few.
#[derive(Clone, Copy, Debug)]
pub struct Packer<const N: usize> {
    words: [u32; N],
    at: usize,
}

impl<const N: usize> Default for Packer<N> {
    fn default() -> Self {
        Self { words: [0; N], at: 0 }
    }
}

impl<const N: usize> Packer<N> {
    /// Adds a word.
    #[inline]
    #[must_use]
    pub fn word(mut self, word: u32) -> Self {
        if let Some(place) = self.words.get_mut(self.at) {
            *place = word;
            self.at += 1;
        }
        self
    }

    /// Adds octets, first one highest, the last word filled up with zeroes.
    #[inline]
    #[must_use]
    pub fn octets(mut self, octets: &[u8]) -> Self {
        for chunk in octets.chunks(4) {
            let mut word = [0; 4];
            for (place, octet) in word.iter_mut().zip(chunk) {
                *place = *octet;
            }
            self = self.word(u32::from_be_bytes(word));
        }
        self
    }

    /// Adds an address in five words: 0 for none, 4 or 6 for the family, then 128 bits, of which
    /// IPv4 takes the first 32.
    #[inline]
    #[must_use]
    pub fn address(self, address: Option<IpAddr>) -> Self {
        let (family, key) = match address {
            None => (0, [0; 4]),
            Some(IpAddr::V4(address)) => (4, [address.to_bits(), 0, 0, 0]),
            Some(IpAddr::V6(address)) => (6, address.to_bits().to_words()),
        };
        let [first, second, third, fourth] = key;
        self.word(family).word(first).word(second).word(third).word(fourth)
    }

    /// The words.
    #[inline]
    pub fn finish(self) -> [u32; N] {
        self.words
    }
}

/// Takes the words of a record in order; returns nothing for words that are not the requested
/// value.
#[derive(Clone, Copy, Debug)]
pub struct Unpacker<const N: usize> {
    words: [u32; N],
    at: usize,
}

impl<const N: usize> Unpacker<N> {
    /// Begins with the first word.
    pub fn new(words: [u32; N]) -> Self {
        Self { words, at: 0 }
    }

    /// The next word.
    #[inline]
    pub fn word(&mut self) -> Option<u32> {
        let word = self.words.get(self.at).copied()?;
        self.at += 1;
        Some(word)
    }

    /// The next word, if it is small enough for `T`.
    #[inline]
    pub fn small<T: TryFrom<u32>>(&mut self) -> Option<T> {
        T::try_from(self.word()?).ok()
    }

    /// The next `M` octets, from as many words as they fill.
    #[inline]
    pub fn octets<const M: usize>(&mut self) -> Option<[u8; M]> {
        let mut octets = [0; M];
        for chunk in octets.chunks_mut(4) {
            for (place, octet) in chunk.iter_mut().zip(self.word()?.to_be_bytes()) {
                *place = octet;
            }
        }
        Some(octets)
    }

    /// The next five words as [`Packer::address`] has them; nothing inside for none.
    #[inline]
    pub fn address(&mut self) -> Option<Option<IpAddr>> {
        let family = self.word()?;
        let key = [self.word()?, self.word()?, self.word()?, self.word()?];
        let [first, ..] = key;
        match family {
            0 => Some(None),
            4 => Some(Some(Ipv4Addr::from_bits(first).into())),
            6 => Some(Some(Ipv6Addr::from_bits(PrefixKey::from_words(key)).into())),
            _ => None,
        }
    }
}
