//! Plan of a device's reports in the form that a driver carries out.

use crate::driver_reports::{halves, octet_words};
use crate::records::LATEST_OCTETS_MAX;

/// Octets of a report that a driver sends on at the most.
pub const DRIVER_REPORT_MAX: usize = 1_400;
/// Octets of a report that a driver compares: the first ones.
pub const DRIVER_COMPARED_MAX: usize = LATEST_OCTETS_MAX;
/// Octets of a plan's texts at the most.
pub const DRIVER_TEXT_MAX: usize = 1024;
/// Pieces of a request at the most.
pub const DRIVER_PIECES_MAX: usize = 24;
/// Octets that one piece writes at the most.
pub const DRIVER_PIECE_OCTETS_MAX: usize = 255;
/// Powers of ten up to which a driver writes the digits of a FLOAT.
pub const DRIVER_EXPONENT_MAX: usize = 8;

/// How reports of one layout become requests, one each (`struct report_device`).
///
/// `interwork` compiles it; here it is only carried.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DriverPlan {
    /// Whether texts and numbers have the heads of CBOR, not the form of JSON.
    pub is_cbor: bool,
    /// The epoch in names of reports without a time.
    pub epoch: u64,
    /// Where a report has its calendar time; 0 for none.
    pub time_at: u16,
    /// Octets of a report.
    pub length: u16,
    /// A report of this layout, at most [`DRIVER_COMPARED_MAX`] octets of it; those behind are free.
    pub expected: Vec<u8>,
    /// For each of its octets: all ones where a report must equal it, 0 in a gap.
    pub fixed: Vec<u8>,
    /// Texts, at most [`DRIVER_TEXT_MAX`] octets.
    pub text: Vec<u8>,
    /// The parts of the request behind its CoAP header, at most [`DRIVER_PIECES_MAX`].
    pub pieces: Vec<DriverPiece>,
}

/// A part of a request (`struct piece`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriverPiece {
    /// What it is.
    pub kind: DriverPieceKind,
    /// Where it is in the report, or in the plan's texts.
    pub at: u16,
    /// Its octets, or a code's partition.
    pub length: u16,
    /// Whether it is a text by itself, with its head in CBOR or its quotes in JSON.
    pub is_text: bool,
}

/// What a part of a request is (`enum piece_kind`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u16)]
pub enum DriverPieceKind {
    /// No piece: the request ends.
    #[default]
    End,
    /// Octets of the plan's texts.
    Text,
    /// The report's identity.
    Identity,
    /// The report's number.
    Report,
    /// The head of a CBOR text of `length` octets and the identity.
    Head,
    /// The head of the option with a name of `length` octets and the identity.
    Option,
    /// The time of arrival.
    Received,
    /// The digits of an SFLOAT.
    Sfloat,
    /// The digits of a FLOAT.
    Float,
    /// A calendar time.
    Time,
    /// A code.
    Code,
    /// `length` octets of flags.
    Bits,
}

impl DriverPlan {
    /// Whether all its parts have room: a piece of a text is in the texts.
    pub fn is_within_bounds(&self) -> bool {
        usize::from(self.length) <= DRIVER_REPORT_MAX
            && self.expected.len() <= DRIVER_COMPARED_MAX
            && self.fixed.len() == self.expected.len()
            && self.text.len() <= DRIVER_TEXT_MAX
            && self.pieces.len() <= DRIVER_PIECES_MAX
            && self.pieces.iter().all(|piece| {
                piece.kind != DriverPieceKind::Text || {
                    usize::from(piece.at) + usize::from(piece.length) <= self.text.len()
                }
            })
    }

    /// The words of its pieces, with an end behind them if there is room for more; their number is even.
    fn piece_words(&self) -> usize {
        (self.pieces.len() + 1).next_multiple_of(2).min(DRIVER_PIECES_MAX)
    }

    /// Octets before its texts.
    fn text_at(&self) -> usize {
        4 * self.piece_words() + 2 * self.expected.len().next_multiple_of(8)
    }

    /// The plan as it lies in a device's record, packed from its epoch on.
    pub(crate) fn words(&self) -> impl Iterator<Item = u32> {
        let pair = |low: usize, high: usize| {
            let [low, high] = [low, high].map(|half| u16::try_from(half).unwrap_or_default());
            u32::from(low) | u32::from(high) << 16
        };
        let masks_at = 4 * self.piece_words();
        let head =
            [pair(self.length.into(), self.is_cbor.into()), pair(self.time_at.into(), masks_at)];
        let ends = std::iter::repeat(0);
        let pieces = self.pieces.iter().map(|piece| piece.word(self.text_at())).chain(ends);
        let pieces = pieces.take(self.piece_words());
        let masks = self.expected.chunks(8).zip(self.fixed.chunks(8));
        let masks = masks
            .flat_map(|(expected, fixed)| octet_words(expected, 2).chain(octet_words(fixed, 2)));
        let text = octet_words(&self.text, self.text.len().div_ceil(4));
        halves(self.epoch).into_iter().chain(head).chain(pieces).chain(masks).chain(text)
    }
}

impl DriverPiece {
    /// The piece as a word; the plan's texts begin at `text_at`.
    fn word(self, text_at: usize) -> u32 {
        let base = if self.kind == DriverPieceKind::Text { text_at } else { 0 };
        let at = u32::from(self.at) + u32::try_from(base).unwrap_or_default();
        self.kind as u32
            | u32::from(self.is_text) << 4
            | (at & AT_MAX) << 5
            | u32::from(self.length) << 16
    }
}

/// The greatest place that a piece's word holds (`PIECE_AT`).
const AT_MAX: u32 = 2047;

/// Octets of a plan's head: its epoch, lengths and places.
pub(crate) const PLAN_HEAD_OCTETS: usize = 16;

/// Octets of the longest plan behind its head.
pub(crate) const PLAN_OCTETS: usize =
    4 * DRIVER_PIECES_MAX + 2 * DRIVER_COMPARED_MAX + DRIVER_TEXT_MAX;

// Both a text's place and one in a report.
const _: () = assert!(PLAN_OCTETS <= AT_MAX as usize);
const _: () = assert!(DRIVER_REPORT_MAX <= AT_MAX as usize);
const _: () = assert!(DRIVER_PIECES_MAX.is_multiple_of(2));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

    use super::*;

    #[test]
    fn parts_of_a_plan_lie_side_by_side() {
        let (kind, is_text) = (DriverPieceKind::Text, false);
        let plan = DriverPlan {
            is_cbor: true,
            epoch: 5,
            time_at: 7,
            length: 12,
            expected: (1..=12).collect(),
            fixed: vec![0xff; 12],
            text: vec![9; 6],
            pieces: vec![
                DriverPiece { kind, at: 2, length: 4, is_text },
                DriverPiece { kind: DriverPieceKind::Code, at: 3, length: 0xf000, is_text: true },
            ],
        };
        assert!(plan.is_within_bounds());
        let words: Vec<_> = plan.words().collect();
        // Two pieces, an end and one more for the number to be even; two times eight octets of masks.
        let (masks_at, text_at) = (16, 16 + 32);
        assert_eq!(words[..4], [5, 0, 0x0001_000c, 7 | masks_at << 16]);
        assert_eq!(
            words[4..8],
            [1 | (text_at + 2) << 5 | 4 << 16, 0xf000_0000 | 3 << 5 | 1 << 4 | 0xa, 0, 0]
        );
        let masks = [0x0403_0201, 0x0807_0605, u32::MAX, u32::MAX, 0x0c0b_0a09, 0, u32::MAX, 0];
        assert_eq!(words[8..16], masks);
        assert_eq!(words[16..], [0x0909_0909, 0x0909]);
    }

    #[test]
    fn the_longest_plan_has_its_room_and_no_more() {
        let piece = DriverPiece { kind: DriverPieceKind::Sfloat, ..DriverPiece::default() };
        let longest = DriverPlan {
            expected: vec![1; DRIVER_COMPARED_MAX],
            fixed: vec![1; DRIVER_COMPARED_MAX],
            text: vec![1; DRIVER_TEXT_MAX],
            pieces: vec![piece; DRIVER_PIECES_MAX],
            ..DriverPlan::default()
        };
        assert!(longest.is_within_bounds());
        assert_eq!(4 * longest.words().count(), PLAN_HEAD_OCTETS + PLAN_OCTETS);
        let text =
            DriverPiece { kind: DriverPieceKind::Text, at: 1_000, length: 25, is_text: false };
        let beyond = DriverPlan { pieces: vec![text], ..longest };
        assert!(!beyond.is_within_bounds());
    }
}
