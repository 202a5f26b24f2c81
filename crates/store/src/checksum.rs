//! Checksum of a stored row: CRC-32C (RFC 3720 §12.1) over its number and its body.

/// The polynomial, reflected (RFC 3720 §12.1: 0x11edc6f41).
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Octets that one step takes.
const SLICES: usize = 16;

/// Remainders of each octet at each distance from the end of a step.
const TABLES: [[u32; 256]; SLICES] = tables();

#[expect(clippy::indexing_slicing, reason = "evaluated when this is compiled")]
#[expect(clippy::cast_possible_truncation, reason = "an index below 256")]
const fn tables() -> [[u32; 256]; SLICES] {
    let mut tables = [[0; 256]; SLICES];
    let mut octet = 0;
    while octet < 256 {
        let mut remainder = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            let low = remainder & 1;
            remainder >>= 1;
            if low == 1 {
                remainder ^= POLYNOMIAL;
            }
            bit += 1;
        }
        tables[0][octet] = remainder;
        octet += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut octet = 0;
        while octet < 256 {
            let before = tables[slice - 1][octet];
            tables[slice][octet] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            octet += 1;
        }
        slice += 1;
    }
    tables
}

/// The checksum of row `seq` with this body.
pub(crate) fn of_row(seq: u64, body: &str) -> i64 {
    of_octets(seq, body.as_bytes())
}

/// The checksum of octets that belong to this number.
pub(crate) fn of_octets(number: u64, octets: &[u8]) -> i64 {
    let sum = update(update(u32::MAX, &number.to_be_bytes()), octets);
    i64::from(!sum)
}

fn update(mut sum: u32, octets: &[u8]) -> u32 {
    let (steps, rest) = octets.as_chunks::<SLICES>();
    for step in steps {
        let octets = (u128::from_le_bytes(*step) ^ u128::from(sum)).to_le_bytes();
        let found = TABLES.iter().rev().zip(octets);
        sum = found.fold(0, |sum, (table, octet)| sum ^ entry(table, octet));
    }
    for octet in rest {
        let [low, ..] = sum.to_le_bytes();
        let table = TABLES.first().map_or(0, |table| entry(table, low ^ octet));
        sum = (sum >> 8) ^ table;
    }
    sum
}

fn entry(table: &[u32; 256], octet: u8) -> u32 {
    table.get(usize::from(octet)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 §B.4, whose octets are in the order of transmission.
    #[test]
    fn the_examples_of_rfc_3720() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let read = [
            0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14,
            0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        ];
        for (octets, expected) in [
            (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&rising, [0x4e, 0x79, 0xdd, 0x46]),
            (&falling, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read, [0x56, 0x3a, 0x96, 0xd9]),
        ] {
            assert_eq!((!update(u32::MAX, octets)).to_le_bytes(), expected);
            // In any two pieces.
            for at in 0..octets.len() {
                let (first, last) = octets.split_at(at);
                let sum = !update(update(u32::MAX, first), last);
                assert_eq!(sum.to_le_bytes(), expected);
            }
        }
    }
}
