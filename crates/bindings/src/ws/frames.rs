//! Frames of the message that is arriving, counted on the octets of a connection.
//!
//! The protocol's library joins the frames of a message (RFC 6455 §5.4) and returns when it is
//! complete. It bounds the message's octets, and frames without any never reach that bound.

/// Frames that a message may have, whatever its length.
const FRAMES_FREE: u64 = 64;
/// Octets of a message for which it may have one more frame.
const OCTETS_A_FRAME: u64 = 128;

/// Octets of the longest header: flags, length, extended length and mask (RFC 6455 §5.2).
const HEAD_MAX: usize = 2 + 8 + 4;
const FIN: u8 = 0x80;
const CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;

/// A message has more frames than its length explains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooManyFrames;

/// Where a connection's octets are, and the frames of the current message.
#[derive(Debug, Default)]
pub(super) struct FrameCount {
    at: FramePosition,
    frames: u64,
    octets: u64,
}

#[derive(Debug)]
enum FramePosition {
    /// In the HTTP head before the first frame: whether its first line has begun, and whether
    /// nothing is on the current line.
    Handshake { has_begun: bool, is_blank: bool },
    /// In a frame's header.
    Head { octets: [u8; HEAD_MAX], filled: usize },
    /// In a frame's payload.
    Payload { left: u64 },
}

impl Default for FramePosition {
    fn default() -> Self {
        Self::Handshake { has_begun: false, is_blank: true }
    }
}

impl FramePosition {
    const HEAD: Self = Self::Head { octets: [0; HEAD_MAX], filled: 0 };
}

impl FrameCount {
    /// Follows the next octets of the connection.
    pub(super) fn follow(&mut self, mut octets: &[u8]) -> Result<(), TooManyFrames> {
        while let Some((&octet, rest)) = octets.split_first() {
            match &mut self.at {
                FramePosition::Handshake { has_begun, is_blank } => {
                    octets = rest;
                    // A line may end without a carriage return (RFC 9112 §2.2).
                    match octet {
                        b'\n' if *has_begun && *is_blank => self.at = FramePosition::HEAD,
                        b'\n' => *is_blank = true,
                        b'\r' => {}
                        _ => (*has_begun, *is_blank) = (true, false),
                    }
                }
                FramePosition::Head { octets: head, filled } => {
                    octets = rest;
                    if let Some(place) = head.get_mut(*filled) {
                        *place = octet;
                        *filled += 1;
                    }
                    let head = head.get(..*filled).unwrap_or_default();
                    if let Some((flags, length)) = frame(head) {
                        self.begin(flags, length)?;
                    }
                }
                FramePosition::Payload { left } => {
                    let here = u64::try_from(octets.len()).unwrap_or(u64::MAX).min(*left);
                    octets = octets.get(usize::try_from(here).unwrap_or(0)..).unwrap_or_default();
                    *left -= here;
                    if *left == 0 {
                        self.at = FramePosition::HEAD;
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a frame whose header is complete. Control frames stand between those of a message
    /// and are no part of it (RFC 6455 §5.4).
    fn begin(&mut self, flags: u8, length: u64) -> Result<(), TooManyFrames> {
        self.at =
            if length == 0 { FramePosition::HEAD } else { FramePosition::Payload { left: length } };
        if flags & CONTROL != 0 {
            return Ok(());
        }
        self.frames = self.frames.saturating_add(1);
        self.octets = self.octets.saturating_add(length);
        if self.frames > FRAMES_FREE.saturating_add(self.octets / OCTETS_A_FRAME) {
            return Err(TooManyFrames);
        }
        if flags & FIN != 0 {
            (self.frames, self.octets) = (0, 0);
        }
        Ok(())
    }
}

/// The first octet and the payload's length of a header; `None` until it is complete.
fn frame(head: &[u8]) -> Option<(u8, u64)> {
    let (&[flags, second], rest) = head.split_first_chunk()?;
    let (length, rest) = match second & LENGTH {
        126 => {
            let (&length, rest) = rest.split_first_chunk()?;
            (u64::from(u16::from_be_bytes(length)), rest)
        }
        127 => {
            let (&length, rest) = rest.split_first_chunk()?;
            (u64::from_be_bytes(length), rest)
        }
        short => (u64::from(short), rest),
    };
    let mask_len = if second & MASKED == 0 { 0 } else { 4 };
    (rest.len() == mask_len).then_some((flags, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDSHAKE: &[u8] = b"\r\nGET / HTTP/1.1\r\nHost: x\n\r\n";

    /// A masked frame with these flags (RFC 6455 §5.2).
    fn masked(flags: u8, length: usize) -> Vec<u8> {
        let mut frame = vec![flags];
        match length {
            0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
            126..=0xffff => {
                frame.push(0x80 | 0x7e);
                frame.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 0x7f);
                frame.extend(u64::try_from(length).unwrap().to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.resize(frame.len() + length, b'x');
        frame
    }

    /// Follows the handshake and these frames in pieces of so many octets.
    fn follow(frames: &[Vec<u8>], piece: usize) -> Result<(), TooManyFrames> {
        let all = [HANDSHAKE, &frames.concat()].concat();
        let mut count = FrameCount::default();
        all.chunks(piece).try_for_each(|octets| count.follow(octets))
    }

    #[test]
    fn a_message_has_frames_for_its_length_and_a_few_more_in_any_pieces() {
        let many = |frame: Vec<u8>, count: usize| vec![frame; count];
        let started = |rest: Vec<Vec<u8>>| [vec![masked(0x01, 0)], rest].concat();
        let cases = [
            ("complete messages", many(masked(0x81, 3), 1_000), true),
            ("empty messages", many(masked(0x82, 0), 1_000), true),
            ("pings within a message", started(many(masked(0x89, 5), 1_000)), true),
            ("frames of some length", started(many(masked(0x00, 128), 1_000)), true),
            ("a few empty frames", started(many(masked(0x00, 0), 63)), true),
            ("one more", started(many(masked(0x00, 0), 64)), false),
            ("frames of one octet", started(many(masked(0x00, 1), 200)), false),
            (
                "after a long one",
                [many(masked(0x01, 70_000), 1), many(masked(0, 0), 700)].concat(),
                false,
            ),
            (
                "after the end of another",
                [many(masked(0x81, 70_000), 1), started(many(masked(0, 0), 64))].concat(),
                false,
            ),
        ];
        for (name, frames, expected) in cases {
            for piece in [1, 7, 8_192, usize::MAX] {
                assert_eq!(follow(&frames, piece).is_ok(), expected, "{name}, {piece} at once");
            }
        }
    }

    #[test]
    fn a_server_does_not_mask() {
        let mut count = FrameCount::default();
        count.follow(b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x01\x00").unwrap();
        assert_eq!((0..63).try_for_each(|_| count.follow(&[0, 0])), Ok(()));
        assert_eq!(count.follow(&[0, 0]), Err(TooManyFrames));
    }
}
