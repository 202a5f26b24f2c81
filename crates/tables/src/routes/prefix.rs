//! Addresses as bits: the two families, prefixes, and the key that the trie walks along.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

#[expect(unnameable_types, reason = "that is what seals")]
mod sealed {
    /// Keeps [`Family`](super::Family) and [`PrefixKey`](super::Key) to the two IP families.
    pub trait Sealed {}
    impl Sealed for std::net::Ipv4Addr {}
    impl Sealed for std::net::Ipv6Addr {}
    impl Sealed for u32 {}
    impl Sealed for u128 {}
}

/// An address family that a routing table can be for: [`Ipv4Addr`] or [`Ipv6Addr`].
pub trait Family: Copy + Eq + Ord + fmt::Debug + fmt::Display + FromStr + sealed::Sealed {
    /// The address as a number, first bit on the wire highest.
    type Key: PrefixKey;
    /// Bits taken by the direct table below and above [`Family::DIRECT_FEW`] routes.
    const DIRECT_BITS: [u8; 2];
    /// Routes up to which the smaller direct table serves.
    const DIRECT_FEW: usize;
    /// The address as a number.
    fn to_key(self) -> Self::Key;
    /// The number as an address.
    fn from_key(key: Self::Key) -> Self;
}

// 12 and 18 leave 24 and 30 on the edge of a node, where most IPv4 prefixes end. A table of 18
// bits takes 2 MiB, so it waits until that is at most 64 octets a route.
const DIRECT_BITS: [u8; 2] = [12, 18];
const DIRECT_FEW: usize = 32_768;

impl Family for Ipv4Addr {
    type Key = u32;
    const DIRECT_BITS: [u8; 2] = DIRECT_BITS;
    const DIRECT_FEW: usize = DIRECT_FEW;

    #[inline]
    fn to_key(self) -> u32 {
        self.to_bits()
    }

    fn from_key(key: u32) -> Self {
        Self::from_bits(key)
    }
}

impl Family for Ipv6Addr {
    type Key = u128;
    const DIRECT_BITS: [u8; 2] = DIRECT_BITS;
    const DIRECT_FEW: usize = DIRECT_FEW;

    #[inline]
    fn to_key(self) -> u128 {
        self.to_bits()
    }

    fn from_key(key: u128) -> Self {
        Self::from_bits(key)
    }
}

/// An address as a number: `u32` for IPv4, `u128` for IPv6.
pub trait PrefixKey: Copy + Eq + Ord + Default + fmt::Debug + Send + Sync + sealed::Sealed {
    /// Bits of an address.
    const BITS: u8;
    /// The `count` (1 to 31) bits that follow the first `from`; zeroes beyond the end.
    fn bits(self, from: u8, count: u8) -> u32;
    /// The number with only its first `len` bits.
    #[must_use]
    fn masked(self, len: u8) -> Self;
    /// The number of equal leading bits.
    fn common(self, other: Self) -> u8;
    /// The number with `value` in the `count` bits that follow the first `from`, which were zero.
    #[must_use]
    fn with_bits(self, from: u8, count: u8, value: u32) -> Self;
    /// As words of a record, highest first; IPv4 leaves three at zero.
    fn to_words(self) -> [u32; 4];
    /// The number in words of a record.
    fn from_words(words: [u32; 4]) -> Self;
}

impl PrefixKey for u32 {
    const BITS: u8 = 32;

    #[inline]
    fn bits(self, from: u8, count: u8) -> u32 {
        let rest = self.checked_shl(from.into()).unwrap_or(0);
        rest.checked_shr(Self::BITS - Self::from(count)).unwrap_or(0)
    }

    #[inline]
    fn masked(self, len: u8) -> Self {
        self & !Self::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    #[inline]
    fn common(self, other: Self) -> u8 {
        leading(Self::leading_zeros(self ^ other))
    }

    fn with_bits(self, from: u8, count: u8, value: u32) -> Self {
        let low = Self::BITS.saturating_sub(Self::from(from));
        match low.checked_sub(count.into()) {
            Some(shift) => self | value.checked_shl(shift).unwrap_or(0),
            // The bits reach past the end, where they are zero.
            None => self | value.checked_shr(Self::from(count) - low).unwrap_or(0),
        }
    }

    #[inline]
    fn to_words(self) -> [u32; 4] {
        [self, 0, 0, 0]
    }

    #[inline]
    fn from_words([word, ..]: [u32; 4]) -> Self {
        word
    }
}

impl PrefixKey for u128 {
    const BITS: u8 = 128;

    #[inline]
    fn bits(self, from: u8, count: u8) -> u32 {
        let rest = self.checked_shl(from.into()).unwrap_or(0);
        // Only the highest word is left to look at, so one narrow shift does the rest.
        let [highest, ..] = rest.to_words();
        highest.checked_shr(u32::BITS - u32::from(count)).unwrap_or(0)
    }

    #[inline]
    fn masked(self, len: u8) -> Self {
        self & !Self::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    #[inline]
    fn common(self, other: Self) -> u8 {
        leading(Self::leading_zeros(self ^ other))
    }

    fn with_bits(self, from: u8, count: u8, value: u32) -> Self {
        let low = Self::BITS.saturating_sub(u32::from(from));
        match low.checked_sub(count.into()) {
            Some(shift) => self | Self::from(value).checked_shl(shift).unwrap_or(0),
            None => self | Self::from(value).checked_shr(u32::from(count) - low).unwrap_or(0),
        }
    }

    #[inline]
    fn to_words(self) -> [u32; 4] {
        const LOW: u128 = u32::MAX as u128;
        [96, 64, 32, 0].map(|shift| u32::try_from((self >> shift) & LOW).unwrap_or(0))
    }

    #[inline]
    fn from_words(words: [u32; 4]) -> Self {
        words.into_iter().fold(0, |key, word| key << u32::BITS | Self::from(word))
    }
}

/// A count of leading zeroes, at most 128, in an octet.
#[inline]
fn leading(zeros: u32) -> u8 {
    u8::try_from(zeros).unwrap_or(u8::MAX)
}

/// The addresses that share their first `len` bits, as in `192.0.2.0/24`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix<A> {
    address: A,
    len: u8,
}

/// Why a text or a length is no prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// The caller asks for more bits than an address has.
    #[error("a prefix of {len} bits, but an address has {bits}")]
    TooLong {
        /// Bits asked for.
        len: u8,
        /// Bits of an address.
        bits: u8,
    },
    /// The text is not an address, a slash and a number.
    #[error("not an address, a slash and a number of bits")]
    Malformed,
}

impl<A: Family> Prefix<A> {
    /// The prefix of `address` with `len` bits; the others are cleared.
    ///
    /// # Errors
    ///
    /// [`PrefixError::TooLong`] if an address has fewer bits.
    pub fn new(address: A, len: u8) -> Result<Self, PrefixError> {
        if len > A::Key::BITS {
            return Err(PrefixError::TooLong { len, bits: A::Key::BITS });
        }
        Ok(Self { address: A::from_key(address.to_key().masked(len)), len })
    }

    /// The prefix of one address alone.
    pub fn host(address: A) -> Self {
        Self { address, len: A::Key::BITS }
    }

    /// The prefix of every address, for a default route.
    pub fn all() -> Self {
        Self { address: A::from_key(A::Key::default()), len: 0 }
    }

    /// The first address.
    pub fn address(self) -> A {
        self.address
    }

    /// The prefix length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a prefix length, not a number of elements")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether `address` begins with this prefix.
    pub fn contains(self, address: A) -> bool {
        self.address.to_key().common(address.to_key()) >= self.len
    }
}

impl<A: Family> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl<A: Family> FromStr for Prefix<A> {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').ok_or(PrefixError::Malformed)?;
        let address = address.parse().map_err(|_| PrefixError::Malformed)?;
        let len = len.parse().map_err(|_| PrefixError::Malformed)?;
        Self::new(address, len)
    }
}
