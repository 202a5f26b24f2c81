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
    /// Whether all its parts have room.
    pub fn is_within_bounds(&self) -> bool {
        usize::from(self.length) <= DRIVER_REPORT_MAX
            && self.expected.len() <= DRIVER_COMPARED_MAX
            && self.fixed.len() == self.expected.len()
            && self.text.len() <= DRIVER_TEXT_MAX
            && self.pieces.len() <= DRIVER_PIECES_MAX
    }

    /// The plan as it lies in a device's record.
    pub(crate) fn words(&self) -> impl Iterator<Item = u32> {
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let head = [pair(self.length, self.is_cbor.into()), pair(self.time_at, 0)];
        let masks = [&self.expected, &self.fixed];
        let masks = masks.into_iter().flat_map(|it| octet_words(it, DRIVER_COMPARED_MAX / 4));
        let ends = std::iter::repeat(DriverPiece::default());
        let pieces = self.pieces.iter().copied().chain(ends).take(DRIVER_PIECES_MAX);
        let pieces = pieces.flat_map(move |DriverPiece { kind, at, length, is_text }| {
            [pair(kind as u16, at), pair(length, is_text.into())]
        });
        let text = octet_words(&self.text, DRIVER_TEXT_MAX / 4);
        text.chain(halves(self.epoch)).chain(head).chain(masks).chain(pieces)
    }
}
