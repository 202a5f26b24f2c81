//! State of a parser between two pieces of a message.

use crate::checksum::PartialChecksum;
use crate::stream::StreamReader;
use crate::view::View;
use gatewright_lang::ir::SlotId;

/// Number of loop counters of a message, as `ir` bounds them.
pub(crate) const COUNTERS: usize = 8;

/// How far a parser reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until<'u> {
    /// To the end of the message.
    End,
    /// Until one of its slots is settled: the message has begun.
    Begun,
    /// Until all of these slots are settled.
    Settled(&'u [SlotId]),
}

/// State of a parser.
#[derive(Clone, Debug)]
pub(crate) struct ParserState {
    /// The op to go on with.
    pub(crate) step: usize,
    /// Whether octets of it have been given.
    pub(crate) begun: bool,
    /// Octets used since the message began.
    pub(crate) at: u64,
    /// The innermost region.
    pub(crate) region: Region,
    /// The surrounding regions, from the whole message on.
    pub(crate) outer: Vec<Region>,
    /// The check over the octets since it began.
    pub(crate) check: Option<PartialChecksum>,
    pub(crate) counts: [u32; COUNTERS],
    pub(crate) view: View,
    pub(crate) stream: Option<StreamReader>,
}

/// A part of the message with its own end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The position of its end; `None` while it is not known, and for a stream.
    pub(crate) end: Option<u64>,
    /// Length of the line's end that follows the region.
    pub(crate) tail: u8,
}

impl Region {
    pub(crate) const WHOLE: Self = Self { end: None, tail: 0 };
}
