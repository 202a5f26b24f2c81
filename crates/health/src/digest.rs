//! Hash that recognises repeated reports.

/// FNV-1a, 64 bits (draft-eastlake-fnv §5): it distinguishes only the reports of one device, and a
/// device that forges a collision harms only itself.
pub fn digest(octets: &[u8]) -> u64 {
    let step = |hash: u64, octet: &u8| (hash ^ u64::from(*octet)).wrapping_mul(PRIME);
    octets.iter().fold(BASIS, step)
}

/// Initial value of the hash (`offset_basis`).
const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
/// Multiplier for each octet (`FNV_prime`).
const PRIME: u64 = 0x0000_0100_0000_01B3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The draft's own vectors (appendix C).
    #[test]
    fn vectors() {
        for (octets, expected) in [
            ("", 0xCBF2_9CE4_8422_2325),
            ("a", 0xAF63_DC4C_8601_EC8C),
            ("foobar", 0x8594_4171_F739_67E8),
        ] {
            assert_eq!(digest(octets.as_bytes()), expected, "{octets}");
        }
    }
}
