//! Plans that drivers carry out: those of unconfirmed reports of one object, whose values they can
//! write.

use super::content::ContentPiece;
use super::{CoapPlan, IDENTITY_MAX, MEASURED_AT, OPTION_EXTENDED, PAYLOAD_MARKER};
use crate::plan::CodePlace;
use gatewright_onem2m::Serialisation;
use gatewright_tables::{
    DRIVER_COMPARED_MAX, DRIVER_PIECE_OCTETS_MAX, DRIVER_REPORT_MAX, DriverPiece, DriverPieceKind,
    DriverPlan,
};

impl CoapPlan {
    /// This plan in the form that a driver carries out.
    ///
    /// `None` if the worker has such reports: a driver makes one request of one report, and answers
    /// none; it knows no names of codes, and writes no numbers of double precision.
    pub fn driver_plan(&self) -> Option<DriverPlan> {
        let [request] = self.requests.as_slice() else { return None };
        let [before, behind] = &request.name;
        let name = before.len() + behind.len();
        let has_names = name >= OPTION_EXTENDED && name + IDENTITY_MAX <= DRIVER_PIECE_OCTETS_MAX;
        let fits = (MEASURED_AT + 1..=DRIVER_REPORT_MAX).contains(&self.length);
        // A digest of all that a timed report has measured names it.
        let has_digest = self.times.is_empty() || self.length <= DRIVER_COMPARED_MAX;
        let has_one_time = self.times.len() <= 1;
        if self.is_confirmed() || !fits || !has_names || !has_digest || !has_one_time {
            return None;
        }
        let is_cbor = self.serialisation == Serialisation::Cbor;
        let mut writer = DriverPlanWriter { is_cbor, ..DriverPlanWriter::default() };
        writer.text(&request.options);
        writer.piece(DriverPieceKind::Option, 0, name)?;
        writer.name(before, behind)?;
        writer.text(&[PAYLOAD_MARKER]);
        for piece in &request.content {
            writer.content(piece, [before, behind])?;
        }
        writer.flush()?;
        let mut plan = DriverPlan {
            is_cbor,
            epoch: self.epoch,
            time_at: u16::try_from(self.times.first().copied().unwrap_or_default()).ok()?,
            length: u16::try_from(self.length).ok()?,
            expected: vec![0; self.length.min(DRIVER_COMPARED_MAX)],
            fixed: vec![0; self.length.min(DRIVER_COMPARED_MAX)],
            text: writer.texts,
            pieces: writer.pieces,
        };
        for (at, octets) in &self.fixed {
            let range = *at..at.checked_add(octets.len())?;
            plan.expected.get_mut(range.clone())?.copy_from_slice(octets);
            plan.fixed.get_mut(range)?.fill(u8::MAX);
        }
        plan.is_within_bounds().then_some(plan)
    }
}

/// Writes the pieces of a driver's plan.
#[derive(Default)]
struct DriverPlanWriter {
    is_cbor: bool,
    texts: Vec<u8>,
    pieces: Vec<DriverPiece>,
    /// Octets that are not a piece yet.
    pending: Vec<u8>,
}

impl DriverPlanWriter {
    fn text(&mut self, octets: &[u8]) {
        self.pending.extend_from_slice(octets);
    }

    /// Makes pieces of pending octets.
    fn flush(&mut self) -> Option<()> {
        let pending = core::mem::take(&mut self.pending);
        for part in pending.chunks(DRIVER_PIECE_OCTETS_MAX) {
            let at = u16::try_from(self.texts.len()).ok()?;
            let length = u16::try_from(part.len()).ok()?;
            self.texts.extend_from_slice(part);
            let kind = DriverPieceKind::Text;
            self.pieces.push(DriverPiece { kind, at, length, is_text: false });
        }
        Some(())
    }

    fn piece(&mut self, kind: DriverPieceKind, at: usize, length: usize) -> Option<()> {
        self.flush()?;
        let (at, length) = (u16::try_from(at).ok()?, u16::try_from(length).ok()?);
        self.pieces.push(DriverPiece { kind, at, length, is_text: false });
        Some(())
    }

    /// Appends a piece that is a text by itself.
    fn text_piece(&mut self, kind: DriverPieceKind, at: usize, length: usize) -> Option<()> {
        self.piece(kind, at, length)?;
        self.pieces.last_mut()?.is_text = true;
        Some(())
    }

    /// Appends a name without what a text has around it.
    fn name(&mut self, before: &[u8], behind: &[u8]) -> Option<()> {
        self.text(before);
        self.piece(DriverPieceKind::Identity, 0, 0)?;
        self.text(behind);
        Some(())
    }

    fn content(&mut self, piece: &ContentPiece, [before, behind]: [&Vec<u8>; 2]) -> Option<()> {
        match piece {
            ContentPiece::Octets(octets) => {
                self.text(octets);
                Some(())
            }
            ContentPiece::Name if self.is_cbor => {
                self.piece(DriverPieceKind::Head, 0, before.len() + behind.len())?;
                self.name(before, behind)
            }
            ContentPiece::Name => {
                self.text(b"\"");
                self.name(before, behind)?;
                self.text(b"\"");
                Some(())
            }
            ContentPiece::Report => self.piece(DriverPieceKind::Report, 0, 0),
            ContentPiece::Identity => self.piece(DriverPieceKind::Identity, 0, 0),
            ContentPiece::Received => self.text_piece(DriverPieceKind::Received, 0, 0),
            ContentPiece::Sfloat(at) => self.text_piece(DriverPieceKind::Sfloat, *at, 0),
            ContentPiece::Float(at) => self.text_piece(DriverPieceKind::Float, *at, 0),
            ContentPiece::AbsoluteTime(at) => self.text_piece(DriverPieceKind::Time, *at, 0),
            ContentPiece::Code(CodePlace { at, partition }) => {
                self.text_piece(DriverPieceKind::Code, *at, usize::from(*partition))
            }
            ContentPiece::Bits(count, at) => {
                self.text_piece(DriverPieceKind::Bits, *at, count.octets())
            }
            ContentPiece::Period(at) if !self.is_cbor => self.piece(DriverPieceKind::Float, *at, 0),
            ContentPiece::Meaning(_) | ContentPiece::Period(_) => None,
        }
    }
}
