//! Frames in pieces: they are larger than one of the kernel's buffers on the wire side, and one
//! packet in the slab.

use crate::LinkCounters;
use gatewright_packet::{Packet, Pool};
use std::rc::Rc;

/// Octets of a buffer: the largest that AF_XDP knows without huge pages.
pub(super) const BUFFER_SIZE: usize = 4096;

/// Maximum buffers of a frame: those of 65,535 octets.
const BUFFERS_MAX: usize = 18;

/// `XDP_PKT_CONTD` of a descriptor: the frame continues in the next.
pub(super) const GOES_ON: u32 = 1;

/// Joins the pieces of frames.
pub(super) struct Pieces {
    /// The pool of whole frames.
    frames: Rc<Pool>,
    /// The part of the current frame that has arrived.
    begun: Option<Packet>,
    /// Whether the rest of the frame is dropped; it is counted.
    is_lost: bool,
    /// Memory for the buffers of one frame on its way out.
    room: Vec<Packet>,
}

impl Pieces {
    pub(super) fn new(frames: Rc<Pool>) -> Self {
        Self { frames, begun: None, is_lost: false, room: Vec::with_capacity(BUFFERS_MAX) }
    }

    /// The place for the buffers of one frame while they are filled; empty before and after.
    pub(super) fn room(&mut self) -> &mut Vec<Packet> {
        &mut self.room
    }

    /// Adds the next piece; returns the frame if it was the last.
    pub(super) fn add(
        &mut self,
        piece: &[u8],
        goes_on: bool,
        counters: &mut LinkCounters,
    ) -> Option<Packet> {
        if !self.is_lost {
            self.append(piece, counters);
        }
        if goes_on {
            return None;
        }
        self.is_lost = false;
        self.begun.take()
    }

    /// Drops the current frame: one of its pieces cannot be read.
    pub(super) fn lose(&mut self, goes_on: bool) {
        self.begun = None;
        self.is_lost = goes_on;
    }

    fn append(&mut self, piece: &[u8], counters: &mut LinkCounters) {
        let Some(mut packet) = self.begun.take().or_else(|| self.frames.packet()) else {
            counters.receive_no_packet += 1;
            self.is_lost = true;
            return;
        };
        if packet.append(piece).is_ok() {
            self.begun = Some(packet);
        } else {
            counters.receive_oversized += 1;
            self.is_lost = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_packet::CHUNK_SIZE;

    fn pieces(chunks: usize) -> (Pieces, Rc<Pool>) {
        let pool = Rc::new(Pool::new(chunks, CHUNK_SIZE).unwrap());
        (Pieces::new(Rc::clone(&pool)), pool)
    }

    #[test]
    fn pieces_become_the_frame_that_they_were() {
        let (mut pieces, _pool) = pieces(4);
        let mut counters = LinkCounters::default();
        for cuts in [&[7, 0, 900, 100][..], &[1007], &[1; 1007]] {
            let whole: Vec<u8> = (0..1007_u32).map(|n| n.to_le_bytes()[0] ^ 0x5a).collect();
            let (mut rest, mut made) = (&whole[..], None);
            for (number, &cut) in (1..).zip(cuts) {
                let (piece, behind) = rest.split_at(cut);
                rest = behind;
                made = pieces.add(piece, number < cuts.len(), &mut counters);
                assert_eq!(made.is_some(), number == cuts.len());
            }
            assert_eq!(made.unwrap().octets(), whole);
        }
        assert_eq!(counters, LinkCounters::default());
    }

    #[test]
    fn a_frame_without_room_is_lost_as_a_whole_and_counted_once() {
        let (mut pieces, pool) = pieces(1);
        let mut counters = LinkCounters::default();
        for goes_on in [true, true, true, false] {
            assert!(pieces.add(&[1; 900], goes_on, &mut counters).is_none());
        }
        assert_eq!(counters.receive_oversized, 1);
        let held = pool.packet();
        assert!(pieces.add(&[2], true, &mut counters).is_none());
        drop(held);
        assert!(pieces.add(&[3], false, &mut counters).is_none(), "its beginning is missing");
        assert_eq!(counters.receive_no_packet, 1);
        pieces.add(&[4], true, &mut counters);
        pieces.lose(true);
        assert!(pieces.add(&[5], false, &mut counters).is_none(), "its middle is missing");
        assert_eq!(pieces.add(&[6], false, &mut counters).unwrap().octets(), [6]);
        assert_eq!(pool.available(), 1);
    }
}
