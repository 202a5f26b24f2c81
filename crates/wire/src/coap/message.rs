//! Reading a message.

use super::{Block, Coap, Code, MessageType, OptionNumber, PAYLOAD_MARKER, TOKEN_LEN_MAX};
use crate::Truncated;
use core::fmt;

/// Why a datagram is no message (RFC 7252 §3: a *message format error*).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CoapError {
    /// It ends before its header, token or options do: malformed by the peer.
    Truncated(Truncated),
    /// An unknown version: to be ignored silently (RFC 7252 §3).
    Version(u8),
    /// A reserved length of the token: malformed by the peer.
    TokenLength(u8),
    /// An option's delta or length is the reserved value 15: malformed by the peer.
    ReservedNibble,
    /// The option numbers add up beyond 65535: malformed by the peer.
    OptionNumber(u32),
    /// A payload marker without a payload: malformed by the peer.
    NoPayload,
    /// An empty message with octets after its header: malformed by the peer.
    NotEmpty,
}

impl fmt::Display for CoapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(truncated) => fmt::Display::fmt(truncated, f),
            Self::Version(version) => write!(f, "version {version} instead of 1"),
            Self::TokenLength(length) => write!(f, "token of {length} octets, 8 at most"),
            Self::ReservedNibble => f.write_str("reserved option delta or length 15"),
            Self::OptionNumber(number) => write!(f, "option number {number} beyond 65535"),
            Self::NoPayload => f.write_str("payload marker without payload"),
            Self::NotEmpty => f.write_str("empty message that is longer than its header"),
        }
    }
}

impl core::error::Error for CoapError {}

impl From<Truncated> for CoapError {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

/// A whole message, checked: its options are read without errors.
#[derive(Clone, Copy, Debug)]
pub struct Message<'p> {
    header: Coap<'p>,
    token: &'p [u8],
    options: &'p [u8],
    payload: &'p [u8],
}

impl<'p> Message<'p> {
    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// The malformed part; [`Coap::split`] can still read the header for a reset.
    pub fn parse(datagram: &'p [u8]) -> Result<Self, CoapError> {
        let (header, rest) = Coap::split(datagram)?;
        if !header.has_constants() {
            return Err(CoapError::Version(header.version()));
        }
        if header.code() == Code::EMPTY && (header.token_length() != 0 || !rest.is_empty()) {
            return Err(CoapError::NotEmpty);
        }
        if usize::from(header.token_length()) > TOKEN_LEN_MAX {
            return Err(CoapError::TokenLength(header.token_length()));
        }
        let (token, rest) = header.token(rest)?;
        let mut options = CoapOptions::new(rest);
        while options.read()?.is_some() {}
        let behind = options.rest;
        let (options, _) = rest.split_at_checked(rest.len() - behind.len()).unwrap_or((rest, &[]));
        let payload = match behind {
            [] => &[],
            [_marker] => return Err(CoapError::NoPayload),
            [_marker, payload @ ..] => payload,
        };
        Ok(Self { header, token, options, payload })
    }

    /// The fixed part.
    pub const fn header(&self) -> Coap<'p> {
        self.header
    }

    /// The type: whether it requests an acknowledgement, or is one.
    pub const fn message_type(&self) -> MessageType {
        self.header.message_type()
    }

    /// The method or response code.
    pub const fn code(&self) -> Code {
        self.header.code()
    }

    /// The message ID, which matches acknowledgements to messages.
    pub const fn message_id(&self) -> u16 {
        self.header.message_id()
    }

    /// The token, which matches responses to requests: at most eight octets.
    pub const fn token(&self) -> &'p [u8] {
        self.token
    }

    /// The payload after the marker; empty if there is none.
    pub const fn payload(&self) -> &'p [u8] {
        self.payload
    }

    /// The options in ascending order of their numbers.
    pub const fn options(&self) -> CoapOptions<'p> {
        CoapOptions::new(self.options)
    }

    /// The values of a repeatable option, such as the segments of the path.
    pub fn values(&self, number: OptionNumber) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        (self.options().filter(move |option| option.number == number)).map(|option| option.value)
    }

    /// The value of the first option of this number.
    pub fn value(&self, number: OptionNumber) -> Option<&'p [u8]> {
        self.values(number).next()
    }

    /// The number in the first option of this number; `None` if there is none, or it is too long.
    pub fn uint(&self, number: OptionNumber) -> Option<u64> {
        CoapOption { number, value: self.value(number)? }.uint()
    }

    /// The block in option `number`, which is `BLOCK1` or `BLOCK2`.
    pub fn block(&self, number: OptionNumber) -> Option<Block> {
        Block::read(self.value(number)?)
    }
}

/// One option of a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CoapOption<'p> {
    /// Which option.
    pub number: OptionNumber,
    /// Its value: nothing, octets, a number or UTF-8, as the option is defined.
    pub value: &'p [u8],
}

impl<'p> CoapOption<'p> {
    /// The value as a number (RFC 7252 §3.2); `None` if it has more than eight octets.
    pub fn uint(self) -> Option<u64> {
        let number = self.value.iter().fold(0_u64, |number, &octet| number << 8 | u64::from(octet));
        (self.value.len() <= 8).then_some(number)
    }

    /// The value as a text; `None` if it is not UTF-8.
    pub fn text(self) -> Option<&'p str> {
        core::str::from_utf8(self.value).ok()
    }
}

/// The options of a message; ends at the payload marker, the end, or the first malformed option,
/// which a [`Message`] does not have.
#[derive(Clone, Debug)]
pub struct CoapOptions<'p> {
    rest: &'p [u8],
    number: u16,
}

impl<'p> CoapOptions<'p> {
    const fn new(rest: &'p [u8]) -> Self {
        Self { rest, number: 0 }
    }

    /// Parses one option (RFC 7252 §3.1); stays before the payload marker.
    fn read(&mut self) -> Result<Option<CoapOption<'p>>, CoapError> {
        let Some((&head, rest)) = self.rest.split_first() else { return Ok(None) };
        if head == PAYLOAD_MARKER {
            return Ok(None);
        }
        let (delta, rest) = extended(head >> 4, rest)?;
        let (length, rest) = extended(head & 0x0f, rest)?;
        let number = u32::from(self.number) + delta;
        self.number = u16::try_from(number).map_err(|_| CoapError::OptionNumber(number))?;
        let needed = usize::try_from(length).unwrap_or(usize::MAX);
        let found = rest.len();
        let (value, rest) = rest.split_at_checked(needed).ok_or(Truncated { needed, found })?;
        self.rest = rest;
        Ok(Some(CoapOption { number: OptionNumber(self.number), value }))
    }
}

impl<'p> Iterator for CoapOptions<'p> {
    type Item = CoapOption<'p>;

    fn next(&mut self) -> Option<CoapOption<'p>> {
        let read = self.read().ok().flatten();
        if read.is_none() {
            self.rest = &[];
        }
        read
    }
}

/// A delta or a length: the nibble itself, or what one or two more octets add to it.
fn extended(nibble: u8, rest: &[u8]) -> Result<(u32, &[u8]), CoapError> {
    let found = rest.len();
    match nibble {
        13 => match rest.split_first() {
            Some((&octet, rest)) => Ok((u32::from(octet) + 13, rest)),
            None => Err(Truncated { needed: 1, found }.into()),
        },
        14 => match rest.split_first_chunk() {
            Some((&octets, rest)) => Ok((u32::from(u16::from_be_bytes(octets)) + 269, rest)),
            None => Err(Truncated { needed: 2, found }.into()),
        },
        15 => Err(CoapError::ReservedNibble),
        _ => Ok((u32::from(nibble), rest)),
    }
}
