//! X25519 (RFC 7748) with the keys of Ed25519 (RFC 8032): the secret that two nodes share.
//!
//! A node has one key, for signatures. Its Montgomery form is the key of the agreement, by the map
//! between the two curves (RFC 7748 §4.1). `ring`, which signs, agrees only with keys that it draws
//! from the system and uses once; a machine of pure functions needs the same secret each time.
//!
//! Time and memory accesses do not depend on secrets: no branch, index or division sees one.

use sha2::{Digest, Sha512};

/// Octets of scalars, of coordinates and of the shared secret.
const LEN: usize = 32;

/// Bits of a limb: five of them hold a number below 2^255.
const LIMB_BITS: u32 = 51;
const LIMB: u64 = (1 << LIMB_BITS) - 1;
const WIDE_LIMB: u128 = (1 << LIMB_BITS) - 1;

/// 2^255 is 19 in the field, whose prime is 2^255 - 19.
const FOLD: u64 = 19;

/// 16 times the prime, limb by limb: added before a subtraction, which then is not negative.
const PRIME_16: Element = Element([(LIMB - 18) << 4, LIMB << 4, LIMB << 4, LIMB << 4, LIMB << 4]);

/// (486662 - 2) / 4 (RFC 7748 §5).
const A24: Element = Element([121_665, 0, 0, 0, 0]);

/// The prime less 2, little endian: the exponent of the inverse.
const INVERSE: [u8; LEN] = {
    let mut exponent = [0xff; LEN];
    exponent[0] = 0xeb;
    exponent[LEN - 1] = 0x7f;
    exponent
};

/// The base point's coordinate (RFC 7748 §4.1).
#[cfg(test)]
const BASE: [u8; LEN] = {
    let mut base = [0; LEN];
    base[0] = 9;
    base
};

/// The scalar of an Ed25519 seed (RFC 8032 §5.1.5), not yet clamped.
pub(super) fn scalar(seed: &[u8; LEN]) -> [u8; LEN] {
    Sha512::digest(seed).first_chunk().copied().unwrap_or_default()
}

/// The Montgomery coordinate of an Ed25519 public key: u = (1 + y) / (1 - y) (RFC 7748 §4.1).
pub(super) fn coordinate(public: &[u8; LEN]) -> [u8; LEN] {
    let y = Element::of(public);
    Element::ONE.add(y).times(Element::ONE.less(y).inverse()).octets()
}

/// The secret of a scalar and a coordinate; `None` if the coordinate is one of the few that give
/// the same secret with every scalar (RFC 7748 §6.1).
pub(super) fn agree(scalar: &[u8; LEN], coordinate: &[u8; LEN]) -> Option<[u8; LEN]> {
    let secret = x25519(scalar, coordinate);
    let any = secret.iter().fold(0, |any, octet| any | octet);
    (any != 0).then_some(secret)
}

/// RFC 7748 §5: the Montgomery ladder.
fn x25519(scalar: &[u8; LEN], coordinate: &[u8; LEN]) -> [u8; LEN] {
    let mut scalar = *scalar;
    let [first, .., last] = &mut scalar;
    *first &= 0xf8;
    *last = *last & 0x7f | 0x40;
    let u = Element::of(coordinate);
    let (mut x2, mut z2, mut x3, mut z3) = (Element::ONE, Element::ZERO, u, Element::ONE);
    let mut swapped = 0;
    for octet in scalar.iter().rev() {
        for bit in (0..u8::BITS).rev() {
            let bit = u64::from(octet >> bit & 1);
            Element::swap(swapped ^ bit, &mut x2, &mut x3);
            Element::swap(swapped ^ bit, &mut z2, &mut z3);
            swapped = bit;
            let (a, b) = (x2.add(z2), x2.less(z2));
            let (aa, bb) = (a.times(a), b.times(b));
            let e = aa.less(bb);
            let (da, cb) = (x3.less(z3).times(a), x3.add(z3).times(b));
            let (sum, difference) = (da.add(cb), da.less(cb));
            x3 = sum.times(sum);
            z3 = u.times(difference.times(difference));
            x2 = aa.times(bb);
            z2 = e.times(aa.add(A24.times(e)));
        }
    }
    Element::swap(swapped, &mut x2, &mut x3);
    Element::swap(swapped, &mut z2, &mut z3);
    x2.times(z2.inverse()).octets()
}

/// An element of the field, in limbs that may be a few bits longer than they need be.
#[derive(Clone, Copy)]
struct Element([u64; 5]);

impl Element {
    const ZERO: Self = Self([0; 5]);
    const ONE: Self = Self([1, 0, 0, 0, 0]);

    /// The element of 255 bits, little endian; the highest bit does not count (RFC 7748 §5).
    fn of(octets: &[u8; LEN]) -> Self {
        let mut words = [0; 4];
        for (word, octets) in words.iter_mut().zip(octets.as_chunks().0) {
            *word = u64::from_le_bytes(*octets);
        }
        let [a, b, c, d] = words;
        Self([
            a & LIMB,
            (a >> 51 | b << 13) & LIMB,
            (b >> 38 | c << 26) & LIMB,
            (c >> 25 | d << 39) & LIMB,
            d >> 12 & LIMB,
        ])
    }

    /// Its octets, of the one number below the prime.
    fn octets(self) -> [u8; LEN] {
        let Self(mut limbs) = self.carried().carried();
        // 1 if the number is not below the prime: then adding 19 carries out of 255 bits.
        let whole = limbs.iter().fold(FOLD, |carry, limb| (limb + carry) >> LIMB_BITS);
        let mut carry = FOLD * whole;
        for limb in &mut limbs {
            *limb += carry;
            carry = *limb >> LIMB_BITS;
            *limb &= LIMB;
        }
        let [l0, l1, l2, l3, l4] = limbs;
        let words = [l0 | l1 << 51, l1 >> 13 | l2 << 38, l2 >> 26 | l3 << 25, l3 >> 39 | l4 << 12];
        let mut octets = [0; LEN];
        for (octets, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
            *octets = word.to_le_bytes();
        }
        octets
    }

    /// The same number with limbs of 51 bits, and one bit more in the second.
    const fn carried(self) -> Self {
        let Self([l0, l1, l2, l3, l4]) = self;
        let l1 = l1 + (l0 >> LIMB_BITS);
        let l2 = l2 + (l1 >> LIMB_BITS);
        let l3 = l3 + (l2 >> LIMB_BITS);
        let l4 = l4 + (l3 >> LIMB_BITS);
        let l0 = (l0 & LIMB) + FOLD * (l4 >> LIMB_BITS);
        let l1 = (l1 & LIMB) + (l0 >> LIMB_BITS);
        Self([l0 & LIMB, l1, l2 & LIMB, l3 & LIMB, l4 & LIMB])
    }

    const fn add(self, other: Self) -> Self {
        let (Self([a0, a1, a2, a3, a4]), Self([b0, b1, b2, b3, b4])) = (self, other);
        Self([a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4]).carried()
    }

    const fn less(self, other: Self) -> Self {
        let (Self([a0, a1, a2, a3, a4]), Self([b0, b1, b2, b3, b4])) = (self, other);
        let Self([p0, p1, p2, p3, p4]) = PRIME_16;
        Self([a0 + p0 - b0, a1 + p1 - b1, a2 + p2 - b2, a3 + p3 - b3, a4 + p4 - b4]).carried()
    }

    /// The product. Limbs have at most 52 bits, so five products, of which four are taken 19 times,
    /// are far below 128.
    fn times(self, other: Self) -> Self {
        let wide = |limbs: [u64; 5]| limbs.map(u128::from);
        let ([a0, a1, a2, a3, a4], [b0, b1, b2, b3, b4]) = (wide(self.0), wide(other.0));
        let [f1, f2, f3, f4] = [b1, b2, b3, b4].map(|limb| limb * u128::from(FOLD));
        let c0 = a0 * b0 + a1 * f4 + a2 * f3 + a3 * f2 + a4 * f1;
        let c1 = a0 * b1 + a1 * b0 + a2 * f4 + a3 * f3 + a4 * f2 + (c0 >> LIMB_BITS);
        let c2 = a0 * b2 + a1 * b1 + a2 * b0 + a3 * f4 + a4 * f3 + (c1 >> LIMB_BITS);
        let c3 = a0 * b3 + a1 * b2 + a2 * b1 + a3 * b0 + a4 * f4 + (c2 >> LIMB_BITS);
        let c4 = a0 * b4 + a1 * b3 + a2 * b2 + a3 * b1 + a4 * b0 + (c3 >> LIMB_BITS);
        let c0 = (c0 & WIDE_LIMB) + (c4 >> LIMB_BITS) * u128::from(FOLD);
        let c1 = (c1 & WIDE_LIMB) + (c0 >> LIMB_BITS);
        // Each is below 2^52 plus a carry: none is cut.
        let narrow = |limb: u128| u64::try_from(limb).unwrap_or(u64::MAX);
        let [c0, c2, c3, c4] = [c0, c2, c3, c4].map(|limb| narrow(limb & WIDE_LIMB));
        Self([c0, narrow(c1), c2, c3, c4]).carried()
    }

    /// The inverse, and 0 of 0 (Fermat's little theorem). The exponent is no secret.
    fn inverse(self) -> Self {
        let mut power = Self::ONE;
        for octet in INVERSE.iter().rev() {
            for bit in (0..u8::BITS).rev() {
                power = power.times(power);
                if octet >> bit & 1 == 1 {
                    power = power.times(self);
                }
            }
        }
        power
    }

    /// Swaps two elements if `swap` is 1, not if it is 0.
    fn swap(swap: u64, one: &mut Self, other: &mut Self) {
        let mask = core::hint::black_box(0_u64.wrapping_sub(swap));
        for (one, other) in one.0.iter_mut().zip(&mut other.0) {
            let different = mask & (*one ^ *other);
            *one ^= different;
            *other ^= different;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::hex::octets_of;
    use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};

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
            let own = coordinate(&public);
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

    /// Numbers at and above the prime are the numbers below it.
    #[test]
    fn numbers_are_reduced() {
        let mut prime = INVERSE;
        for (first, expected) in [(0xed, 0), (0xee, 1), (0xff, 18), (0xec, 0xec)] {
            prime[0] = first;
            let read = Element::of(&prime).octets();
            let mut whole = [0; LEN];
            whole[0] = expected;
            assert_eq!(read, if first == 0xec { prime } else { whole });
        }
        let three = Element([3, 0, 0, 0, 0]);
        assert_eq!(three.times(three.inverse()).octets(), Element::ONE.octets());
        assert_eq!(Element::ZERO.less(Element::ONE).add(Element::ONE).octets(), [0; LEN]);
    }
}
