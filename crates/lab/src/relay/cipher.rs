//! AES-128 in counter mode (FIPS 197, NIST SP 800-38A §6.5): the work of a relay that encrypts.
//!
//! It is a load, and no protection of anything: keys are public, and the portable code's time
//! depends on them.

use crate::probe::IDENTITY_LEN;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

const BLOCK_LEN: usize = 16;
const ROUNDS: usize = 10;

type Block = [u8; BLOCK_LEN];

/// AES-128, by which code.
#[derive(Debug)]
pub(crate) enum Cipher {
    /// Tables, as on a processor without AES instructions.
    Portable(PortableAes),
    /// The processor's instructions.
    Hardware(Box<aes::Aes128Enc>),
}

impl Cipher {
    /// The portable code with this key.
    pub(crate) fn portable(key: Block) -> Self {
        Self::Portable(PortableAes::new(key))
    }

    /// The processor's instructions; `None` if it has none.
    pub(crate) fn hardware(key: Block) -> Option<Self> {
        has_instructions().then(|| Self::Hardware(Box::new(aes::Aes128Enc::new(&key.into()))))
    }

    fn encrypt_block(&self, block: Block) -> Block {
        match self {
            Self::Portable(aes) => aes.encrypt_block(block),
            Self::Hardware(aes) => {
                let mut block = block.into();
                aes.encrypt_block(&mut block);
                block.into()
            }
        }
    }

    /// Encrypts what follows the identity of a probe; the identity is the nonce.
    pub(crate) fn apply(&self, payload: &mut [u8]) {
        let Some((identity, rest)) = payload.split_first_chunk_mut::<IDENTITY_LEN>() else {
            return;
        };
        let mut counter = [0; BLOCK_LEN];
        for (to, from) in counter.iter_mut().zip(identity.iter()) {
            *to = *from;
        }
        self.counter_mode(counter, rest);
    }

    /// Counter mode with 32 bits of counter at the end of the block.
    fn counter_mode(&self, mut counter: Block, octets: &mut [u8]) {
        for chunk in octets.chunks_mut(BLOCK_LEN) {
            let keystream = self.encrypt_block(counter);
            for (octet, key) in chunk.iter_mut().zip(keystream) {
                *octet ^= key;
            }
            if let Some(number) = counter.last_chunk_mut::<4>() {
                *number = u32::from_be_bytes(*number).wrapping_add(1).to_be_bytes();
            }
        }
    }
}

/// Whether this processor has AES instructions.
pub(crate) fn has_instructions() -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
    return false;
}

/// AES-128 with one table of 256 octets.
#[derive(Debug)]
pub(crate) struct PortableAes {
    round_keys: [Block; ROUNDS + 1],
}

impl PortableAes {
    fn new(key: Block) -> Self {
        let mut round_keys = [key; ROUNDS + 1];
        let (mut before, mut constant) = (key, 1_u8);
        // FIPS 197 §5.2: each round's key from the one before.
        for round_key in round_keys.iter_mut().skip(1) {
            let [.., a, b, c, d] = before;
            let mut word = [substitute(b) ^ constant, substitute(c), substitute(d), substitute(a)];
            for (key, was) in round_key.chunks_mut(4).zip(before.chunks(4)) {
                for ((key, word), was) in key.iter_mut().zip(&mut word).zip(was) {
                    *word ^= was;
                    *key = *word;
                }
            }
            before = *round_key;
            constant = double(constant);
        }
        Self { round_keys }
    }

    fn encrypt_block(&self, block: Block) -> Block {
        let [first, middle @ .., last] = &self.round_keys;
        let mut state = add(block, first);
        for key in middle {
            state = add(mix_columns(shift_rows(state.map(substitute))), key);
        }
        add(shift_rows(state.map(substitute)), last)
    }
}

fn add(mut state: Block, key: &Block) -> Block {
    for (octet, key) in state.iter_mut().zip(key) {
        *octet ^= key;
    }
    state
}

/// FIPS 197 §5.1.2; the state is stored by columns.
#[expect(clippy::many_single_char_names, reason = "sixteen octets of a square")]
const fn shift_rows([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]: Block) -> Block {
    [a, f, k, p, e, j, o, d, i, n, c, h, m, b, g, l]
}

/// FIPS 197 §5.1.3.
fn mix_columns(mut state: Block) -> Block {
    let (columns, _) = state.as_chunks_mut::<4>();
    for column in columns {
        let [a, b, c, d] = *column;
        let all = a ^ b ^ c ^ d;
        *column = [
            a ^ all ^ double(a ^ b),
            b ^ all ^ double(b ^ c),
            c ^ all ^ double(c ^ d),
            d ^ all ^ double(d ^ a),
        ];
    }
    state
}

/// Multiplication by x in GF(2⁸) (FIPS 197 §4.2.1).
const fn double(octet: u8) -> u8 {
    (octet << 1) ^ ((octet >> 7) * 0x1b)
}

fn substitute(octet: u8) -> u8 {
    SUBSTITUTES.get(usize::from(octet)).copied().unwrap_or(0)
}

/// The S-box (FIPS 197 §5.1.1): the inverse in GF(2⁸), then the affine transformation.
static SUBSTITUTES: [u8; 256] = substitutes();

#[expect(clippy::indexing_slicing, reason = "an octet is below 256; computed by the compiler")]
const fn substitutes() -> [u8; 256] {
    let mut table = [0; 256];
    let (mut power, mut inverse) = (1_u8, 1_u8);
    loop {
        // 3 generates the field: each step multiplies by 3, and its inverse divides by 3.
        power ^= double(power);
        inverse ^= inverse << 1;
        inverse ^= inverse << 2;
        inverse ^= inverse << 4;
        inverse ^= (inverse >> 7) * 0x09;
        let turned = inverse
            ^ inverse.rotate_left(1)
            ^ inverse.rotate_left(2)
            ^ inverse.rotate_left(3)
            ^ inverse.rotate_left(4);
        table[power as usize] = turned ^ 0x63;
        if power == 1 {
            break;
        }
    }
    table[0] = 0x63;
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Block = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();

    fn both() -> Vec<Cipher> {
        [Some(Cipher::portable(KEY)), Cipher::hardware(KEY)].into_iter().flatten().collect()
    }

    #[test]
    fn a_block_is_that_of_fips_197_appendix_b() {
        let plain = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes();
        let expected = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_be_bytes();
        for cipher in both() {
            assert_eq!(cipher.encrypt_block(plain), expected, "{cipher:?}");
        }
    }

    #[test]
    fn counter_mode_is_that_of_sp_800_38a_f_5_1() {
        let counter = 0xf0f1_f2f3_f4f5_f6f7_f8f9_fafb_fcfd_feff_u128.to_be_bytes();
        let plain = [
            0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a_u128,
            0xae2d_8a57_1e03_ac9c_9eb7_6fac_45af_8e51,
        ];
        let expected = [
            0x874d_6191_b620_e326_1bef_6864_990d_b6ce_u128,
            0x9806_f66b_7970_fdff_8617_187b_b9ff_fdff,
        ];
        for cipher in both() {
            let mut octets = plain.map(u128::to_be_bytes).concat();
            cipher.counter_mode(counter, &mut octets);
            assert_eq!(octets, expected.map(u128::to_be_bytes).concat(), "{cipher:?}");
        }
    }

    #[test]
    fn the_identity_stays_clear_and_the_rest_comes_back() {
        for len in [0, 11, 12, 13, 40, 1472] {
            let plain: Vec<u8> = (0_u8..=255).cycle().take(len).collect();
            for cipher in both() {
                let mut octets = plain.clone();
                cipher.apply(&mut octets);
                let clear = len.min(IDENTITY_LEN);
                assert_eq!(octets[..clear], plain[..clear]);
                assert_eq!(octets == plain, len <= IDENTITY_LEN, "{len} octets");
                cipher.apply(&mut octets);
                assert_eq!(octets, plain);
            }
        }
    }
}
