//! Reasons why a message is malformed.

use crate::stream::StreamError;
use gatewright_lang::ir::Checksum;

/// Why a message is malformed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedReason {
    /// The sender ended before the message did.
    #[error("the message is cut")]
    Cut,
    /// A line, counted block or datagram ends within an item.
    #[error("an item goes beyond the end of what holds it")]
    Beyond,
    /// The octets differ from the layout's constant ones, or are not in a set.
    #[error("unexpected octets")]
    Unexpected,
    /// A field, line, block or list is longer than its bound.
    #[error("longer than {max}")]
    TooLong {
        /// The bound, in octets, elements or turns.
        max: u32,
    },
    /// A length in a table is larger than what it may count.
    #[error("a length above its bound")]
    TooLarge,
    /// A run or number of digits is shorter than its bound.
    #[error("shorter than {min}")]
    TooShort {
        /// The bound, in octets.
        min: u32,
    },
    /// A value is outside its slot's bounds.
    #[error("a value out of bounds")]
    Bounds,
    /// A mandatory field is missing.
    #[error("a mandatory field is missing")]
    Missing,
    /// A second value for a field that takes one.
    #[error("a field is given twice")]
    Twice,
    /// The octets are no number.
    #[error("not a number")]
    NoNumber,
    /// A check over octets fails.
    #[error(
        "the octets of its {} are {}, where {} is computed",
        check_name(*.by), of_check(*.by, *.found), of_check(*.by, *.computed)
    )]
    Check {
        /// The kind of check.
        by: Checksum,
        /// The octets in the message, the first one highest.
        found: u32,
        /// The octets that are computed over the message.
        computed: u32,
    },
    /// Octets are left over that no item reads.
    #[error("octets are left over")]
    LeftOver,
    /// No framing of a stream, or no case of the layout, fits this message.
    #[error("no case of the layout holds")]
    NoCase,
    /// The body's framing is wrong.
    #[error("{0}")]
    Stream(#[from] StreamError),
}

/// The name of a check in the language.
const fn check_name(by: Checksum) -> &'static str {
    match by {
        Checksum::Crc16Modbus => "crc16_modbus",
        Checksum::Crc16Ccitt => "crc16_ccitt",
        Checksum::Crc32 => "crc32",
        Checksum::Lrc => "lrc",
    }
}

/// The octets of a check, of which `octets` begins with the first one.
fn of_check(by: Checksum, octets: u32) -> String {
    let octets = octets.to_be_bytes();
    let octets = octets.get(..usize::from(by.octets())).unwrap_or_default();
    let digits: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    digits.join(" ")
}
