//! The Internet checksum: RFC 1071, its pseudo headers, and its update in place (RFC 1624).

use crate::IpProtocol;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A one's complement sum that grows by pieces of any length (RFC 1071).
///
/// ```
/// use gatewright_wire::Checksum;
/// // The example of RFC 1071 §3, in two pieces that part a word.
/// let mut checksum = Checksum::new();
/// checksum.add(&[0x00, 0x01, 0xf2]);
/// checksum.add(&[0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
/// assert_eq!(checksum.finish(), !0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Checksum {
    /// Sum of 16-bit words, carries not yet folded in.
    sum: u64,
    /// Whether an odd number of octets was added: the next one is the low half of a word.
    odd: bool,
}

impl Checksum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// The pseudo header of IPv4 (RFC 768, RFC 9293 §3.1); `length` in octets of what follows.
    #[inline]
    pub fn pseudo_ipv4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: IpProtocol,
        length: u16,
    ) -> Self {
        let words = u64::from(source.to_bits()) + u64::from(destination.to_bits());
        Self { sum: words + u64::from(protocol.0) + u64::from(length), odd: false }
    }

    /// The pseudo header of IPv6 (RFC 8200 §8.1); `length` in octets of what follows.
    #[inline]
    pub fn pseudo_ipv6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        next_header: IpProtocol,
        length: u32,
    ) -> Self {
        let mut checksum = Self::new();
        checksum.add(&source.octets());
        checksum.add(&destination.octets());
        checksum.sum += u64::from(length) + u64::from(next_header.0);
        checksum
    }

    /// Adds `octets`, which follow those added before.
    #[inline]
    pub fn add(&mut self, octets: &[u8]) {
        // RFC 1071 §2 (B): the sum does not notice the byte order, so that words are added as the
        // machine has them and only the folded sum is turned. 2^32 words fit into 64 bits: a slice
        // this long does not exist.
        let (words, rest) = octets.as_chunks::<4>();
        let sum: u64 = words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum();
        let tail = match *rest {
            [a] => [a, 0, 0, 0],
            [a, b] => [a, b, 0, 0],
            [a, b, c] => [a, b, c, 0],
            _ => [0; 4],
        };
        let folded = u16::from_be(fold(sum + u64::from(u32::from_ne_bytes(tail))));
        let folded = if self.odd { folded.swap_bytes() } else { folded };
        // Folded each time, the sum stays far from overflow however often this is called.
        self.sum = u64::from(fold(self.sum)) + u64::from(folded);
        self.odd ^= octets.len() % 2 == 1;
    }

    /// Adds one word at an even place.
    pub fn add_word(&mut self, word: u16) {
        self.add(&word.to_be_bytes());
    }

    /// The folded sum: what a *partial* checksum field holds.
    pub const fn sum(self) -> u16 {
        fold(self.sum)
    }

    /// The checksum: the complement of the folded sum.
    pub const fn finish(self) -> u16 {
        !self.sum()
    }

    /// The checksum for UDP, where zero means that there is none: `0xffff` stands for it (RFC 768).
    pub const fn finish_udp(self) -> u16 {
        match self.finish() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether everything added, the checksum field included, is consistent.
    pub const fn is_valid(self) -> bool {
        self.sum() == 0xffff
    }
}

/// The checksum of `octets`.
#[inline]
pub fn of(octets: &[u8]) -> u16 {
    let mut checksum = Checksum::new();
    checksum.add(octets);
    checksum.finish()
}

/// The checksum after one covered word changed from `old` to `new`: `HC' = ~(~HC + ~m + m')`
/// (RFC 1624 §3, equation 3).
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// [`update`] for an address or another change of several words, at an even place.
///
/// An odd last octet counts as the high half of its word.
#[inline]
pub fn update_octets(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let (mut before, mut after) = (Checksum::new(), Checksum::new());
    before.add(old);
    after.add(new);
    update(checksum, before.sum(), after.sum())
}

/// One's complement sum of two words.
const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // A carry leaves at most 0xfffe, so that adding it in cannot carry again.
    if carry { sum + 1 } else { sum }
}

/// Adds the carries in until 16 bits are left.
const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let [.., high, low] = sum.to_be_bytes();
    u16::from_be_bytes([high, low])
}
