//! Writing a message.

use super::{CoapFields, Code, MessageType, OptionNumber, PAYLOAD_MARKER, TOKEN_LEN_MAX};
use crate::{Truncated, Writer};
use core::fmt;

/// Why a message cannot be written.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The lent octets are too few: ours to size.
    Full(Truncated),
    /// A token of more than eight octets: misuse.
    TokenLength(usize),
    /// An option after one with a larger number: misuse.
    Order {
        /// The option to write.
        number: OptionNumber,
        /// The one written before.
        last: OptionNumber,
    },
    /// A value too long for any option: misuse.
    ValueLength(usize),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(truncated) => fmt::Display::fmt(truncated, f),
            Self::TokenLength(length) => write!(f, "token of {length} octets, 8 at most"),
            Self::Order { number, last } => {
                write!(f, "option {} behind option {}", number.0, last.0)
            }
            Self::ValueLength(length) => write!(f, "option value of {length} octets"),
        }
    }
}

impl core::error::Error for BuildError {}

impl From<Truncated> for BuildError {
    fn from(truncated: Truncated) -> Self {
        Self::Full(truncated)
    }
}

/// Writes one message into lent octets.
///
/// ```
/// use gatewright_wire::coap::{Builder, Code, MessageType, OptionNumber};
///
/// let mut octets = [0; 64];
/// let mut builder =
///     Builder::new(&mut octets, MessageType::CONFIRMABLE, Code::GET, 0x7d34, &[0x20])?;
/// builder.option(OptionNumber::URI_PATH, b"temperature")?;
/// assert_eq!(builder.finish(), b"\x41\x01\x7d\x34\x20\xbbtemperature");
/// # Ok::<(), gatewright_wire::coap::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Builder<'a> {
    writer: Writer<'a>,
    last: OptionNumber,
}

impl<'a> Builder<'a> {
    /// Begins a message: header and token.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the token is too long or `octets` are too few.
    pub fn new(
        octets: &'a mut [u8],
        message_type: MessageType,
        code: Code,
        message_id: u16,
        token: &[u8],
    ) -> Result<Self, BuildError> {
        let token_length = (u8::try_from(token.len()).ok())
            .filter(|_| token.len() <= TOKEN_LEN_MAX)
            .ok_or(BuildError::TokenLength(token.len()))?;
        let mut writer = Writer::new(octets);
        writer.put(&CoapFields { message_type, token_length, code, message_id }.emit())?;
        writer.put(token)?;
        Ok(Self { writer, last: OptionNumber(0) })
    }

    /// Appends an option; numbers may repeat but not fall.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if the number is smaller than the last one, or it does not fit; then nothing
    /// is written.
    pub fn option(&mut self, number: OptionNumber, value: &[u8]) -> Result<&mut Self, BuildError> {
        let last = self.last;
        let delta = number.0.checked_sub(last.0).ok_or(BuildError::Order { number, last })?;
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let (delta, length) = (Extended::of(delta.into()), Extended::of(length));
        let (Some(delta), Some(length)) = (delta, length) else {
            return Err(BuildError::ValueLength(value.len()));
        };
        let (more_delta, more_length) = (delta.octets(), length.octets());
        let needed = 1 + more_delta.len() + more_length.len() + value.len();
        let found = self.writer.free();
        if needed > found {
            return Err(Truncated { needed, found }.into());
        }
        self.writer.put_octet(delta.nibble << 4 | length.nibble)?;
        self.writer.put(more_delta)?;
        self.writer.put(more_length)?;
        self.writer.put(value)?;
        self.last = number;
        Ok(self)
    }

    /// Appends an option that holds a number, in as few octets as it needs (RFC 7252 §3.2).
    ///
    /// # Errors
    ///
    /// As [`option`](Self::option).
    pub fn uint(&mut self, number: OptionNumber, value: u64) -> Result<&mut Self, BuildError> {
        let octets = value.to_be_bytes();
        let zeros = usize::try_from(value.leading_zeros() / 8).unwrap_or(0);
        self.option(number, octets.get(zeros..).unwrap_or_default())
    }

    /// Ends the message without a payload.
    pub fn finish(self) -> &'a [u8] {
        self.writer.finish()
    }

    /// Ends the message with `payload`; without the marker if that is empty (RFC 7252 §3).
    ///
    /// # Errors
    ///
    /// [`BuildError::Full`] if it does not fit.
    pub fn payload(mut self, payload: &[u8]) -> Result<&'a [u8], BuildError> {
        if !payload.is_empty() {
            self.writer.put_octet(PAYLOAD_MARKER)?;
            self.writer.put(payload)?;
        }
        Ok(self.writer.finish())
    }
}

/// A delta or a length as a nibble and at most two more octets.
struct Extended {
    nibble: u8,
    more: [u8; 2],
    count: usize,
}

impl Extended {
    fn of(number: u32) -> Option<Self> {
        if let Ok(nibble @ ..13) = u8::try_from(number) {
            return Some(Self { nibble, more: [0; 2], count: 0 });
        }
        if let Ok(octet) = u8::try_from(number - 13) {
            return Some(Self { nibble: 13, more: [octet, 0], count: 1 });
        }
        let more = u16::try_from(number - 269).ok()?.to_be_bytes();
        Some(Self { nibble: 14, more, count: 2 })
    }

    fn octets(&self) -> &[u8] {
        self.more.get(..self.count).unwrap_or_default()
    }
}
