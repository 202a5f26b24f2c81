//! Numbers in bits, and what fits in them.

/// A number in bits: `u12`, `little i16`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits {
    pub(crate) width: u8,
    pub(crate) signed: bool,
    pub(crate) little: bool,
}

impl Bits {
    /// The least and the greatest number.
    pub(crate) fn bounds(self) -> (i64, i64) {
        // Of 64 bits, the sign takes one; an unsigned number has at most 63.
        let high = i64::MAX >> (63 - (self.width - u8::from(self.signed)).min(63));
        if self.signed { (-high - 1, high) } else { (0, high) }
    }

    /// A number as the bits that it has on the wire.
    pub(crate) fn bits_of(self, number: i64) -> u64 {
        number.cast_unsigned() & u64::MAX >> (64 - self.width.min(64))
    }
}
