//! HMAC with SHA-256 (RFC 2104, FIPS 180-4).

use core::fmt;
use sha2::{Digest, Sha256};

/// Octets of a block of SHA-256.
const BLOCK_LEN: usize = 64;

/// Octets of a whole MAC.
pub(super) const DIGEST_LEN: usize = 32;

/// A key with the hash states after its two paddings.
#[derive(Clone)]
pub(super) struct Hmac {
    inner: Sha256,
    outer: Sha256,
}

impl fmt::Debug for Hmac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
}

impl Hmac {
    /// A key of at most a block; a longer one is cut, which no key of this crate is.
    pub(super) fn new(key: &[u8]) -> Self {
        let padded = |pad: u8| {
            let mut block = [pad; BLOCK_LEN];
            for (octet, key) in block.iter_mut().zip(key) {
                *octet ^= key;
            }
            Sha256::new().chain_update(block)
        };
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// The MAC of several parts, one after the other.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> [u8; DIGEST_LEN] {
        let mut inner = self.inner.clone();
        for part in parts {
            inner.update(part);
        }
        self.outer.clone().chain_update(inner.finalize()).finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The octets of hexadecimal digits.
    fn octets(digits: &str) -> Vec<u8> {
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(pair).collect()
    }

    /// RFC 4231 §4.2 to §4.4.
    #[test]
    fn rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (
                &[0x0b; 20],
                b"Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 20],
                &[0xdd; 50],
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            ),
        ];
        for (key, data, expected) in cases {
            assert_eq!(Hmac::new(key).mac(&[data])[..], octets(expected));
            let (left, right) = data.split_at(3);
            assert_eq!(Hmac::new(key).mac(&[left, right])[..], octets(expected));
        }
    }
}
