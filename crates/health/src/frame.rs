//! Framing of APDUs in a stream of octets.

use crate::apdu::{APDU_LEN_MAX, HEADER_LEN, is_choice};

/// Memory that an empty stream keeps, in octets: ordinary APDUs fit.
const KEPT: usize = 8 * 1024;

/// A stream that does not consist of APDUs: it cannot be resynchronised, so the connection must
/// end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The first two octets begin no APDU of 20601.
    #[error("no APDU begins with {choice:#06x}")]
    NotAnApdu {
        /// The value found.
        choice: u16,
    },
    /// The header announces more than this connection accepts.
    #[error("an APDU of {length} octets, more than {limit}")]
    TooLong {
        /// Octets announced, header included.
        length: usize,
        /// Octets accepted.
        limit: usize,
    },
}

/// Octets of the APDU that `octets` begins with, header included; `None` until the header is
/// complete.
///
/// # Errors
///
/// [`FrameError`] as soon as the header shows it.
pub fn length(octets: &[u8], limit: usize) -> Result<Option<usize>, FrameError> {
    if let Some((choice, _)) = octets.split_first_chunk() {
        let choice = u16::from_be_bytes(*choice);
        if !is_choice(choice) {
            return Err(FrameError::NotAnApdu { choice });
        }
    }
    let Some(([_, _, high, low], _)) = octets.split_first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let length = HEADER_LEN + usize::from(u16::from_be_bytes([*high, *low]));
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    Ok(Some(length))
}

/// Splits a stream into APDUs, however it was fragmented.
///
/// Holds at most one incomplete APDU: `limit` octets and the last piece.
#[derive(Clone, Debug)]
pub struct Framer {
    octets: Vec<u8>,
    start: usize,
    limit: usize,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new(APDU_LEN_MAX)
    }
}

impl Framer {
    /// Creates a framer for APDUs of at most `limit` octets.
    pub const fn new(limit: usize) -> Self {
        Self { octets: Vec::new(), start: 0, limit }
    }

    /// Appends received octets. Call [`next_apdu`](Self::next_apdu) until it returns `None` before
    /// the next piece, or the pieces accumulate.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.drain(..self.start);
        self.start = 0;
        self.octets.extend_from_slice(octets);
    }

    /// The next complete APDU; `None` until more has arrived.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if the stream is out of step, from then on always.
    pub fn next_apdu(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if self.pending() == 0 && self.octets.capacity() > KEPT {
            // What a long APDU took is not kept for as long as its connection stands.
            (self.octets, self.start) = (Vec::new(), 0);
        }
        let rest = self.octets.get(self.start..).unwrap_or_default();
        let Some(length) = length(rest, self.limit)? else { return Ok(None) };
        let Some(apdu) = rest.get(..length) else { return Ok(None) };
        self.start += length;
        Ok(Some(apdu))
    }

    /// Octets of the incomplete APDU.
    pub const fn pending(&self) -> usize {
        self.octets.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A release request, its answer, and an abort.
    const STREAM: [u8; 18] = [0xE4, 0, 0, 2, 0, 0, 0xE5, 0, 0, 2, 0, 0, 0xE6, 0, 0, 2, 0, 1];

    fn cut(pieces: &[&[u8]], limit: usize) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut framer = Framer::new(limit);
        let mut apdus = Vec::new();
        for piece in pieces {
            framer.push(piece);
            while let Some(apdu) = framer.next_apdu()? {
                apdus.push(apdu.to_vec());
            }
        }
        Ok(apdus)
    }

    #[test]
    fn what_a_long_apdu_took_is_given_back() {
        let mut framer = Framer::default();
        let mut long = vec![0; 40_000];
        long[..4].copy_from_slice(&[0xE7, 0, 0x9C, 0x3C]);
        framer.push(&long);
        assert_eq!(framer.next_apdu(), Ok(Some(long.as_slice())));
        assert_eq!(framer.next_apdu(), Ok(None));
        assert_eq!(framer.octets.capacity(), 0);
    }

    #[test]
    fn nonsense_is_told_before_the_header_is_whole() {
        assert_eq!(length(&[0x47], 64), Ok(None));
        assert_eq!(length(b"GE", 64), Err(FrameError::NotAnApdu { choice: 0x4745 }));
        let long = Err(FrameError::TooLong { length: 65, limit: 64 });
        assert_eq!(length(&[0xE7, 0, 0, 61], 64), long);
        assert_eq!(length(&[0xE7, 0, 0, 60], 64), Ok(Some(64)));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_apdus(cuts in proptest::collection::vec(0..=STREAM.len(), 0..6)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &STREAM[pair[0]..pair[1]]).collect();
            prop_assert_eq!(cut(&pieces, 64), cut(&[&STREAM], 64));
        }

        #[test]
        fn no_stream_panics(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = cut(&pieces, 32);
        }
    }

    #[test]
    fn three_apdus_leave_nothing() {
        assert_eq!(cut(&[&STREAM], 64).unwrap().len(), 3);
    }
}
