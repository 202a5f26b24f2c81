//! The constrained application protocol (RFC 7252; observe RFC 7641, blocks RFC 7959).
//!
//! [`Message::parse`] checks a whole datagram once; afterwards its options are read without errors.
//! [`Builder`] writes a message, option by option in ascending order.

mod builder;
mod message;
mod numbers;

pub use builder::{BuildError, Builder};
pub use message::{CoapError, CoapOption, CoapOptions, Message};
pub use numbers::{Code, ContentFormat, MessageType, OptionNumber};

use crate::header;
use core::time::Duration;

header! {
    /// The fixed part of a message (RFC 7252 §3).
    Coap = r"
     0                   1                   2                   3
     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |Ver| T |  TKL  |      Code     |          Message ID           |
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Token (if any, TKL bytes) ...
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |   Options (if any) ...
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    |1 1 1 1 1 1 1 1|    Payload (if any) ...
    +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
    " where ver as version = 1, t as message_type: MessageType, tkl as token_length, code: Code,
        token_if_any_tkl_bytes as token: [token_length], options_if_any as options: rest,
        pattern as marker: rest, payload_if_any as payload: rest
}

/// Octets of the longest token (RFC 7252 §3: "Lengths 9-15 are reserved").
pub const TOKEN_LEN_MAX: usize = 8;

/// The octet between options and payload.
pub const PAYLOAD_MARKER: u8 = 0xff;

/// The block of a representation that a message carries or requests (RFC 7959 §2.2).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Block {
    number: u32,
    more: bool,
    size_exponent: u8,
}

impl Block {
    /// The largest block number: 20 bits.
    pub const NUMBER_MAX: u32 = 0xf_ffff;

    /// Size exponent of the smallest blocks: 2^4 octets.
    const SIZE_SHIFT: u8 = 4;

    /// Size exponent that is reserved (RFC 7959 §2.2).
    const SIZE_RESERVED: u8 = 7;

    /// Block `number` of blocks of `size` octets each, which is 16, 32, … or 1024; `None` if the
    /// number or the size cannot be encoded.
    pub const fn new(number: u32, more: bool, size: usize) -> Option<Self> {
        if number > Self::NUMBER_MAX {
            return None;
        }
        let size_exponent = match size {
            16 => 0,
            32 => 1,
            64 => 2,
            128 => 3,
            256 => 4,
            512 => 5,
            1024 => 6,
            _ => return None,
        };
        Some(Self { number, more, size_exponent })
    }

    /// Reads an option's value; `None` if it is too long or its size is reserved.
    pub fn read(value: &[u8]) -> Option<Self> {
        if value.len() > 3 {
            return None;
        }
        let word = value.iter().fold(0, |word, &octet| word << 8 | u32::from(octet));
        let [.., low] = word.to_be_bytes();
        let size_exponent = low & 0x07;
        let (number, more) = (word >> 4, low & 0x08 != 0);
        (size_exponent != Self::SIZE_RESERVED).then_some(Self { number, more, size_exponent })
    }

    /// The number that [`Builder::uint`] writes as the option's value.
    pub const fn value(self) -> u32 {
        self.number << 4 | (self.more as u32) << 3 | self.size_exponent as u32
    }

    /// The number of the block, from zero.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Whether more blocks follow.
    pub const fn more(self) -> bool {
        self.more
    }

    /// Octets of each block but the last.
    pub const fn size(self) -> usize {
        1 << (self.size_exponent + Self::SIZE_SHIFT)
    }

    /// Octets of the representation before this block.
    pub const fn offset(self) -> usize {
        self.number as usize * self.size()
    }
}

/// The value of *observe* in a request that asks for notifications (RFC 7641 §2).
pub const OBSERVE_REGISTER: u32 = 0;

/// The value of *observe* in a request that ends the notifications.
pub const OBSERVE_DEREGISTER: u32 = 1;

/// After this time, a notification is newer whatever its number (RFC 7641 §3.4).
const OBSERVE_AGE_MAX: Duration = Duration::from_secs(128);

/// Whether a notification numbered `new` is newer than the one numbered `old` that came `elapsed`
/// before it: the network may have put them out of order (RFC 7641 §3.4).
pub fn is_newer_notification(old: u32, new: u32, elapsed: Duration) -> bool {
    /// Half of the numbers, which have 24 bits.
    const HALF: u32 = 1 << 23;
    (old < new && new - old < HALF) || (old > new && old - new > HALF) || elapsed > OBSERVE_AGE_MAX
}
