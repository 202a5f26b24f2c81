//! Keys as text: hexadecimal digits.

use core::fmt;

/// The octets of so many digits exactly.
pub(super) fn octets_of<const LEN: usize>(text: &str) -> Option<[u8; LEN]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16)?.try_into().ok()).collect::<Option<_>>()?;
    let octets: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |all, digit| all << 4 | digit))
        .collect();
    if digits.len() == 2 * LEN { octets.try_into().ok() } else { None }
}

/// Writes octets as digits.
pub(super) fn write(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
}
