//! X25519 (RFC 7748) with the keys of Ed25519 (RFC 8032): the secret that two nodes share.
//!
//! A node has one key, for signatures. Its Montgomery form is the key of the agreement, by the map
//! between the two curves (RFC 7748 §4.1). `ring`, which signs, agrees only with keys that it draws
//! from the system and uses once; a machine of pure functions needs the same secret each time.

use curve25519_dalek::{edwards::CompressedEdwardsY, montgomery::MontgomeryPoint};
use sha2::{Digest, Sha512};

/// Octets of scalars, of coordinates and of the shared secret.
const LEN: usize = 32;

/// The scalar of an Ed25519 seed (RFC 8032 §5.1.5), not yet clamped.
pub(super) fn scalar(seed: &[u8; LEN]) -> [u8; LEN] {
    Sha512::digest(seed).first_chunk().copied().unwrap_or_default()
}

/// The Montgomery coordinate of an Ed25519 public key (RFC 7748 §4.1); `None` if it is no point of the
/// curve.
pub(super) fn coordinate(public: &[u8; LEN]) -> Option<[u8; LEN]> {
    Some(CompressedEdwardsY(*public).decompress()?.to_montgomery().0)
}

/// The secret of a scalar and a coordinate; `None` if the coordinate is one of the few that give
/// the same secret with every scalar (RFC 7748 §6.1).
pub(super) fn agree(scalar: &[u8; LEN], coordinate: &[u8; LEN]) -> Option<[u8; LEN]> {
    let secret = x25519(scalar, coordinate);
    let any = secret.iter().fold(0, |any, octet| any | octet);
    (any != 0).then_some(secret)
}

/// RFC 7748 §5.
fn x25519(scalar: &[u8; LEN], coordinate: &[u8; LEN]) -> [u8; LEN] {
    MontgomeryPoint(*coordinate).mul_clamped(*scalar).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::hex::octets_of;
    use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    /// The base point's coordinate (RFC 7748 §4.1).
    const BASE: [u8; LEN] = {
        let mut base = [0; LEN];
        base[0] = 9;
        base
    };

    fn octets(digits: &str) -> [u8; LEN] {
        octets_of(digits).unwrap()
    }

    /// RFC 7748 §5.2.
    #[test]
    fn rfc_7748_section_5_2() {
        let cases = [
            (
                "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
                "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
            ),
            (
                "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
                "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
            ),
        ];
        for (scalar, coordinate, expected) in cases {
            assert_eq!(x25519(&octets(scalar), &octets(coordinate)), octets(expected));
        }
        let (mut k, mut u) = (BASE, BASE);
        for _ in 0..1_000 {
            (k, u) = (x25519(&k, &u), k);
        }
        let after = "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51";
        assert_eq!(k, octets(after));
    }

    /// RFC 7748 §6.1: both sides have the same secret; points of small order give none.
    #[test]
    fn rfc_7748_section_6_1() {
        let a = octets("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let b = octets("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let secret = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742";
        let (public_a, public_b) = (x25519(&a, &BASE), x25519(&b, &BASE));
        let expected = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        assert_eq!(public_a, octets(expected));
        assert_eq!(agree(&a, &public_b), Some(octets(secret)));
        assert_eq!(agree(&b, &public_a), Some(octets(secret)));
        assert_eq!(agree(&a, &[0; LEN]), None);
    }

    /// `ring` agrees with us on the same secret, and its Ed25519 keys are ours by the map.
    #[test]
    fn ring_agrees() {
        let random = SystemRandom::new();
        for number in 0..20_u8 {
            let seed = [number; LEN];
            let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
            let public: [u8; LEN] = pair.public_key().as_ref().try_into().unwrap();
            let own = coordinate(&public).unwrap();
            assert_eq!(x25519(&scalar(&seed), &BASE), own);
            let theirs = EphemeralPrivateKey::generate(&X25519, &random).unwrap();
            let their_public = theirs.compute_public_key().unwrap();
            let their_public: [u8; LEN] = their_public.as_ref().try_into().unwrap();
            let ours = agree(&scalar(&seed), &their_public).unwrap();
            let own = UnparsedPublicKey::new(&X25519, own);
            let same = agree_ephemeral(theirs, &own, |secret| secret == ours);
            assert!(same.unwrap());
        }
    }
}
