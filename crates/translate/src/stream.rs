//! Streams: message bodies in the framings of RFC 5321 §4.5.2 and RFC 9112 §7.1.

use crate::malformed::MalformedReason;
use crate::view::find;
use gatewright_lang::ir::{Program, StreamFraming};
use memchr::memmem;

/// Maximum octets of chunk extensions and trailers of one stream, as `ir` says.
const CHUNK_EXTRA_MAX: usize = 8_192;

/// Maximum number of digits of a chunk's size: those of a 64-bit number.
const CHUNK_DIGITS_MAX: usize = 16;

/// Why a stream cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The peer's chunk has no size, or one above 64 bits.
    #[error("a chunk's size is no hexadecimal number of 64 bits")]
    ChunkSize,
    /// The peer's chunk is longer than announced.
    #[error("a chunk does not end where its size says")]
    ChunkEnd,
    /// The peer's extensions and trailers are too long.
    #[error("more than {CHUNK_EXTRA_MAX} octets of chunk extensions and trailers")]
    ChunkExtra,
}

/// Why a stream cannot be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamLengthError {
    /// More or fewer octets were written than the message announced.
    #[error("the message announced {announced} octets, not {written}")]
    Length {
        /// The length in the message's field.
        announced: u64,
        /// The length of the stream so far.
        written: u64,
    },
    /// The program gives this stream a length that is absent or negative.
    #[error("the stream's length is absent or negative")]
    NoLength,
}

/// Reads a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamReader {
    framing: StreamFraming,
    state: State,
    /// The last octet read of a line.
    before: u8,
    /// Whether lines are delivered stuffed, to be written unchanged.
    verbatim: bool,
    /// Maximum octets of the stream, and how many of them were delivered.
    max: Option<u32>,
    delivered: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// At the beginning of a line; a torn one follows a line that ended with a lone LF.
    Start { torn: bool },
    /// Within a line.
    Within,
    /// Before a chunk's size; `extra` counts octets of extensions and trailers so far.
    Size { extra: usize },
    /// Within a chunk or a counted stream, with `left` octets missing.
    PostCounters { left: u64, extra: usize },
    /// After the last chunk.
    Trailer { extra: usize },
}

/// Result of reading a piece of a stream.
pub(crate) struct Looked {
    /// Number of octets used.
    pub(crate) used: usize,
    /// Whether the stream has ended.
    pub(crate) done: bool,
}

impl StreamReader {
    /// A reader of a stream with at most `max` octets; `length` is that of a counted stream.
    pub(crate) const fn new(framing: StreamFraming, length: u64, max: Option<u32>) -> Self {
        let state = match framing {
            StreamFraming::Chunked => State::Size { extra: 0 },
            StreamFraming::Counted(_) => State::PostCounters { left: length, extra: 0 },
            _ => State::Start { torn: false },
        };
        Self { framing, state, before: 0, verbatim: false, max, delivered: 0 }
    }

    /// Whether the octets may be written unchanged, as both streams are lines of one form. From
    /// then on they are delivered that way. To be called before the first octet, and always with
    /// the same writer.
    pub(crate) fn passes_verbatim(&mut self, writer: &StreamWriter) -> bool {
        // Stuffing would count.
        let lines = self.max.is_none() && matches!(self.framing, StreamFraming::Lines { .. });
        self.verbatim = lines && self.framing == writer.framing;
        self.verbatim
    }

    /// Reads as much of `input` as it can, and passes on the stream's octets, up to their maximum.
    /// `last`: no more will follow.
    pub(crate) fn read(
        &mut self,
        program: &Program,
        input: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<Looked, MalformedReason> {
        let before = out.len();
        let looked = self.deliver(program, input, last, out);
        let Some(max) = self.max else { return Ok(looked?) };
        let room = u64::from(max).saturating_sub(self.delivered);
        let delivered = u64::try_from(out.len().saturating_sub(before)).unwrap_or(u64::MAX);
        if delivered > room {
            // What is wrong behind the maximum would not be known if the octets came singly.
            out.truncate(before.saturating_add(usize::try_from(room).unwrap_or(usize::MAX)));
            return Err(MalformedReason::TooLong { max });
        }
        self.delivered = self.delivered.saturating_add(delivered);
        Ok(looked?)
    }

    fn deliver(
        &mut self,
        program: &Program,
        input: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<Looked, StreamError> {
        match self.framing {
            StreamFraming::Nothing => Ok(Looked { used: 0, done: true }),
            StreamFraming::UntilClose => {
                out.extend_from_slice(input);
                Ok(Looked { used: input.len(), done: last })
            }
            StreamFraming::Counted(_) => Ok(self.counted(input, out)),
            StreamFraming::Lines { terminator, stuffing } => {
                let (terminator, stuffing) =
                    (program.literal(terminator), program.literal(stuffing));
                Ok(self.lines(terminator, stuffing, input, out))
            }
            StreamFraming::Chunked => self.chunks(input, out),
        }
    }

    fn counted(&mut self, input: &[u8], out: &mut Vec<u8>) -> Looked {
        let State::PostCounters { left, extra } = self.state else {
            return Looked { used: 0, done: true };
        };
        let wanted = usize::try_from(left).unwrap_or(usize::MAX);
        let taken = input.get(..wanted).unwrap_or(input);
        out.extend_from_slice(taken);
        let left = left.saturating_sub(u64::try_from(taken.len()).unwrap_or(u64::MAX));
        self.state = State::PostCounters { left, extra };
        Looked { used: taken.len(), done: left == 0 }
    }

    fn lines(
        &mut self,
        terminator: &[u8],
        stuffing: &[u8],
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Looked {
        let special = match (terminator.first(), stuffing.first()) {
            (of @ Some(_), None) => of,
            (one, other) => one.filter(|_| one == other),
        };
        let mut rest = input;
        loop {
            if let State::Start { torn } = self.state {
                // Behind a lone LF no line is the last one: who smuggles a message behind it would
                // end this one for the next server only.
                if !torn && let Some(behind) = rest.strip_prefix(terminator) {
                    if let Some(behind) = behind.strip_prefix(b"\r\n") {
                        return Looked { used: input.len() - behind.len(), done: true };
                    }
                    if b"\r\n".starts_with(behind) {
                        break;
                    }
                } else if !torn && terminator.starts_with(rest) {
                    break;
                }
                match rest.strip_prefix(stuffing) {
                    // Which lines are stuffed again only what follows tells.
                    Some(behind) if self.verbatim && behind.len() < stuffing.len() => break,
                    Some(behind) => {
                        if self.verbatim && behind.starts_with(stuffing) {
                            out.extend_from_slice(stuffing);
                        }
                        rest = behind;
                    }
                    None if stuffing.starts_with(rest) => break,
                    None => {}
                }
                self.state = State::Within;
            }
            let (lines, behind) = plain_lines(rest, special);
            out.extend_from_slice(lines);
            rest = behind;
            if lines.last() != Some(&b'\n') {
                self.before = lines.last().copied().unwrap_or(self.before);
                break;
            }
            let before = lines.iter().rev().nth(1).copied().unwrap_or(self.before);
            self.before = b'\n';
            self.state = State::Start { torn: before != b'\r' };
        }
        Looked { used: input.len() - rest.len(), done: false }
    }

    fn chunks(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Looked, StreamError> {
        let mut rest = input;
        let mut done = false;
        while !done {
            match self.state {
                State::PostCounters { left: 0, extra } => {
                    let Some((end, behind)) = rest.split_first_chunk::<2>() else {
                        let strange = rest.first().is_some_and(|octet| *octet != b'\r');
                        if strange {
                            return Err(StreamError::ChunkEnd);
                        }
                        break;
                    };
                    if end != b"\r\n" {
                        return Err(StreamError::ChunkEnd);
                    }
                    rest = behind;
                    self.state = State::Size { extra };
                }
                State::PostCounters { .. } => {
                    let looked = self.counted(rest, out);
                    rest = rest.get(looked.used..).unwrap_or_default();
                    if !looked.done {
                        break;
                    }
                }
                State::Size { extra } => {
                    let room = CHUNK_EXTRA_MAX - extra + CHUNK_DIGITS_MAX;
                    let Some((line, behind)) = line(rest, room)? else { break };
                    let (left, more) = chunk_size(line)?;
                    let extra = extra + more;
                    if extra > CHUNK_EXTRA_MAX {
                        return Err(StreamError::ChunkExtra);
                    }
                    rest = behind;
                    self.state = if left == 0 {
                        State::Trailer { extra }
                    } else {
                        State::PostCounters { left, extra }
                    };
                }
                State::Trailer { extra } => {
                    let Some((line, behind)) = line(rest, CHUNK_EXTRA_MAX - extra)? else { break };
                    rest = behind;
                    done = line.is_empty();
                    self.state = State::Trailer { extra: extra + line.len() };
                }
                State::Start { .. } | State::Within => break,
            }
        }
        Ok(Looked { used: input.len() - rest.len(), done })
    }
}

/// The rest of a line together with all following lines that do not begin with `special`, since
/// only that octet matters for most lines; and the octets after them.
fn plain_lines<'o>(octets: &'o [u8], special: Option<&u8>) -> (&'o [u8], &'o [u8]) {
    let end = match special {
        Some(special) => memmem::find(octets, &[b'\n', *special]),
        None => memchr::memchr(b'\n', octets),
    };
    let end = end.map_or(octets.len(), |at| at + 1);
    octets.split_at_checked(end).unwrap_or((octets, &[]))
}

/// A line, and the octets after it.
type LineAndRest<'l> = (&'l [u8], &'l [u8]);

/// The next line of at most `max` octets without its CRLF, and the octets after it; `None` if it is
/// incomplete.
fn line(octets: &[u8], max: usize) -> Result<Option<LineAndRest<'_>>, StreamError> {
    let window = octets.get(..max + 2).unwrap_or(octets);
    let Some(at) = find(window, b"\r\n") else {
        let full = window.len() == max + 2;
        return if full { Err(StreamError::ChunkExtra) } else { Ok(None) };
    };
    let behind = octets.get(at + 2..).unwrap_or_default();
    Ok(octets.get(..at).map(|line| (line, behind)))
}

/// A chunk's size, and the number of octets of extension after it.
fn chunk_size(line: &[u8]) -> Result<(u64, usize), StreamError> {
    let digits = line.iter().take_while(|octet| octet.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at_checked(digits).unwrap_or((line, &[]));
    let begins = extension.first().is_none_or(|octet| matches!(octet, b';' | b' ' | b'\t'));
    let size = std::str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok());
    match size {
        Some(size) if begins && digits <= CHUNK_DIGITS_MAX => Ok((size, extension.len())),
        _ => Err(StreamError::ChunkSize),
    }
}

/// Writes a stream, piece by piece.
#[derive(Clone, Debug)]
pub struct StreamWriter {
    framing: StreamFraming,
    terminator: Vec<u8>,
    stuffing: Vec<u8>,
    /// The octets of the current line, up to the length of the stuffing prefix.
    begun: Begun,
    announced: u64,
    written: u64,
}

/// State of a stream of lines.
#[derive(Clone, Debug, Default)]
struct Begun {
    /// The last two octets.
    tail: [u8; 2],
    /// The first octets of a line, until it is known whether it is stuffed.
    head: Vec<u8>,
    /// Whether that is known.
    known: bool,
}

impl StreamWriter {
    pub(crate) fn new(program: &Program, framing: StreamFraming, announced: u64) -> Self {
        let (terminator, stuffing) = match framing {
            StreamFraming::Lines { terminator, stuffing } => {
                (program.literal(terminator).to_vec(), program.literal(stuffing).to_vec())
            }
            _ => (Vec::new(), Vec::new()),
        };
        Self { framing, terminator, stuffing, begun: Begun::default(), announced, written: 0 }
    }

    /// Writes the next octets of the stream, framed.
    ///
    /// # Errors
    ///
    /// [`StreamLengthError::Length`] if there are more than the message announced; nothing is written.
    pub fn write(&mut self, octets: &[u8], out: &mut Vec<u8>) -> Result<(), StreamLengthError> {
        let written = self.written.saturating_add(u64::try_from(octets.len()).unwrap_or(u64::MAX));
        let bounded = matches!(self.framing, StreamFraming::Counted(_) | StreamFraming::Nothing);
        if bounded && written > self.announced {
            return Err(StreamLengthError::Length { announced: self.announced, written });
        }
        self.written = written;
        match self.framing {
            StreamFraming::Lines { .. } => self.lines(octets, out),
            StreamFraming::Chunked if octets.is_empty() => {}
            StreamFraming::Chunked => {
                out.extend_from_slice(format!("{:x}\r\n", octets.len()).as_bytes());
                out.extend_from_slice(octets);
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(octets),
        }
        Ok(())
    }

    /// Records octets that passed verbatim ([`StreamReader::passes_verbatim`]): whole lines by the
    /// end.
    pub(crate) fn passed(&mut self, octets: usize) {
        self.written = self.written.saturating_add(u64::try_from(octets).unwrap_or(u64::MAX));
        self.begun.tail = *b"\r\n";
    }

    fn lines(&mut self, octets: &[u8], out: &mut Vec<u8>) {
        let mut rest = octets;
        while let Some((first, behind)) = rest.split_first() {
            let (piece, behind) = if self.begun.known {
                let (lines, behind) = plain_lines(rest, self.stuffing.first());
                out.extend_from_slice(lines);
                (lines, behind)
            } else {
                self.begun.head.push(*first);
                self.head(out);
                (core::slice::from_ref(first), behind)
            };
            rest = behind;
            self.begun.tail = match piece {
                [.., before, last] => [*before, *last],
                [last] => [self.begun.tail[1], *last],
                [] => self.begun.tail,
            };
            if self.begun.tail[1] == b'\n' {
                self.flush(out);
                self.begun.known = false;
            }
        }
    }

    /// Stuffs the beginning of a line as soon as it is known whether it needs that.
    fn head(&mut self, out: &mut Vec<u8>) {
        let stuffed = self.begun.head.starts_with(&self.stuffing);
        if stuffed {
            out.extend_from_slice(&self.stuffing);
        }
        if stuffed || !self.stuffing.starts_with(&self.begun.head) {
            self.flush(out);
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.begun.head);
        self.begun.known = true;
    }

    /// Writes the stream's end.
    ///
    /// # Errors
    ///
    /// [`StreamLengthError::Length`] if there were fewer octets than the message announced.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<(), StreamLengthError> {
        match self.framing {
            StreamFraming::Lines { .. } => {
                self.flush(out);
                if self.written > 0 && self.begun.tail != *b"\r\n" {
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(&self.terminator);
                out.extend_from_slice(b"\r\n");
            }
            StreamFraming::Chunked => out.extend_from_slice(b"0\r\n\r\n"),
            StreamFraming::Counted(_) if self.written < self.announced => {
                let Self { announced, written, .. } = self;
                return Err(StreamLengthError::Length { announced, written });
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum length of the texts tested: all texts of the octets special to lines, and one other.
    const OCTETS_MAX: u32 = 7;
    const ALPHABET: [u8; 4] = *b"x.\r\n";

    fn read(pieces: &[&[u8]], verbatim: bool) -> (Vec<u8>, usize, bool) {
        let framing = StreamFraming::UntilClose;
        let state = State::Start { torn: false };
        let mut reader =
            StreamReader { framing, state, before: 0, verbatim, max: None, delivered: 0 };
        let (mut out, mut used, mut left) = (Vec::new(), 0, Vec::new());
        for piece in pieces {
            left.extend_from_slice(piece);
            let looked = reader.lines(b".", b".", &left, &mut out);
            left.drain(..looked.used);
            used += looked.used;
            if looked.done {
                return (out, used, true);
            }
        }
        (out, used, false)
    }

    fn written(pieces: &[&[u8]]) -> Vec<u8> {
        let mut writer = StreamWriter {
            framing: StreamFraming::UntilClose,
            terminator: b".".to_vec(),
            stuffing: b".".to_vec(),
            begun: Begun::default(),
            announced: 0,
            written: 0,
        };
        let mut out = Vec::new();
        for piece in pieces {
            writer.lines(piece, &mut out);
        }
        out
    }

    /// Lines that arrive together give the same result as lines read octet by octet. Lines that
    /// pass verbatim equal the result of reading and writing them.
    #[test]
    fn lines_are_the_same_together_and_octet_by_octet() {
        for length in 0..=OCTETS_MAX {
            for number in 0..4_usize.pow(length) {
                let octet = |at| ALPHABET[number >> (2 * at) & 3];
                let text: Vec<u8> = (0..length).map(octet).collect();
                let octets: Vec<&[u8]> = text.chunks(1).collect();
                let whole = read(&[&text], false);
                assert_eq!(whole, read(&octets, false), "{text:?}");
                let again = read(&[&text], true);
                assert_eq!(again, read(&octets, true), "{text:?}");
                if whole.2 {
                    let restored = (written(&[&whole.0]), whole.1, true);
                    assert_eq!(again, restored, "{text:?}");
                }
                assert_eq!(written(&[&text]), written(&octets), "{text:?}");
            }
        }
    }
}
