//! The machine that reads one message.

use crate::checksum::Running;
use crate::flat::{Layouts, Op, Reader, Stop, length};
use crate::stream::{StreamError, StreamReader, StreamWriter};
use crate::view::View;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{MessageId, SlotId};
use std::sync::Arc;

/// Loop counters of a message, as `ir` bounds them.
pub(crate) const COUNTERS: usize = 8;

/// A message cannot be read at all: the fault of whoever asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The id is of another program.
    #[error("the program has no such message")]
    NoMessage,
    /// A template of plain text is only written.
    #[error("a template of plain text has no parser")]
    NoParser,
}

/// What a peer sent is not the message that was expected: the peer's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("malformed at octet {at}: {reason}")]
pub struct Malformed {
    /// What is wrong.
    pub reason: Reason,
    /// How many octets of the message came before the item that failed.
    pub at: u64,
    /// The item of the layout.
    pub span: Span,
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The sender ended before the message did.
    #[error("the message is cut")]
    Cut,
    /// A line, counted block or datagram ends within an item.
    #[error("an item goes beyond the end of what holds it")]
    Beyond,
    /// Other octets than the layout's constant ones, or none of a set.
    #[error("unexpected octets")]
    Unexpected,
    /// A field, line, block or list is longer than its bound.
    #[error("longer than {max}")]
    TooLong {
        /// The bound, in octets, elements or turns.
        max: u32,
    },
    /// A run or number of digits is shorter than its bound.
    #[error("shorter than {min}")]
    TooShort {
        /// The bound, in octets.
        min: u32,
    },
    /// A value is outside its slot's bounds.
    #[error("a value out of bounds")]
    Bounds,
    /// A mandatory field is not there.
    #[error("a mandatory field is missing")]
    Missing,
    /// A second value for a field that takes one.
    #[error("a field is given twice")]
    Twice,
    /// Octets that are no number.
    #[error("not a number")]
    NoNumber,
    /// A check over octets is wrong.
    #[error("a wrong check")]
    Check,
    /// Octets that no item reads.
    #[error("octets are left over")]
    LeftOver,
    /// No framing of a stream, or no way of the layout, is for this message.
    #[error("no case of the layout holds")]
    NoCase,
    /// The body's framing is wrong.
    #[error("{0}")]
    Stream(#[from] StreamError),
}

/// How far a parser came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// How many octets of the input it used. The others are given again with those that follow.
    pub consumed: usize,
    /// Whether the message is complete; the next one begins behind the octets used.
    pub complete: bool,
}

/// How far a parser reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until<'u> {
    /// To the end of the message.
    End,
    /// To where one of its slots is settled: the message has begun.
    Begun,
    /// To where all of these are.
    Settled(&'u [SlotId]),
}

/// Reads messages of one layout, one after the other, each in whatever pieces it arrives.
///
/// The octets that are not used yet stay with the caller, who gives them again, with more behind
/// them. What it waits for is bounded: by [`Message::window_max`] outside a stream, and by 8,210
/// octets within one (a chunk's size with its extensions). What is longer is malformed. A datagram
/// is read when it is whole.
///
/// [`Message::window_max`]: gatewright_lang::ir::Message::window_max
#[derive(Clone, Debug)]
pub struct Parser {
    layouts: Arc<Layouts>,
    message: MessageId,
    state: State,
    outcome: Option<Result<(), Malformed>>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The op to go on with.
    pub(crate) step: usize,
    /// Octets used since the message began.
    pub(crate) at: u64,
    /// The innermost region.
    pub(crate) region: Region,
    /// Those around it, from the whole message on.
    pub(crate) outer: Vec<Region>,
    /// The check over the octets since it began.
    pub(crate) check: Option<Running>,
    pub(crate) counts: [u32; COUNTERS],
    pub(crate) view: View,
    pub(crate) stream: Option<StreamReader>,
}

/// A part of the message that has an end of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The position of its end; `None` while it is not known, and for a stream.
    pub(crate) end: Option<u64>,
    /// How many octets a line's end takes, which stands behind the region.
    pub(crate) tail: u8,
}

impl Region {
    const WHOLE: Self = Self { end: None, tail: 0 };
}

impl Parser {
    /// A parser before the first octet of a message.
    ///
    /// # Errors
    ///
    /// The program has no such message, or the message is only written.
    pub fn new(layouts: Arc<Layouts>, message: MessageId) -> Result<Self, Unreadable> {
        let layout = layouts.program().message(message).ok_or(Unreadable::NoMessage)?;
        if layout.parser.is_empty() {
            return Err(Unreadable::NoParser);
        }
        let state = State {
            step: 0,
            at: 0,
            region: Region::WHOLE,
            outer: Vec::new(),
            check: None,
            counts: [0; COUNTERS],
            view: View::of(layout),
            stream: None,
        };
        Ok(Self { layouts, message, state, outcome: None })
    }

    /// Begins again with the next message, whatever became of the last one. The view is used again,
    /// too: who reads many messages allocates nothing any more once one has been the largest.
    pub fn restart(&mut self) {
        let state = &mut self.state;
        (state.step, state.at, state.region) = (0, 0, Region::WHOLE);
        state.outer.clear();
        state.view.reset();
        (state.check, state.stream) = (None, None);
        state.counts = [0; COUNTERS];
        self.outcome = None;
    }

    /// Whose messages it reads.
    pub(crate) const fn message(&self) -> MessageId {
        self.message
    }

    /// What was read so far.
    pub const fn view(&self) -> &View {
        &self.state.view
    }

    /// The view, at the message's end.
    pub fn into_view(self) -> View {
        self.state.view
    }

    /// Reads on. `input` begins with what was not used last time; `last` says that nothing will
    /// follow it: the datagram is whole, or the connection ended. The octets of the message's
    /// stream are appended to `stream`, never more than `input` has.
    ///
    /// Once the message is complete nothing more is used; once it is malformed it stays so.
    ///
    /// # Errors
    ///
    /// The message is malformed. Slots that were settled before stay as they are.
    pub fn read(
        &mut self,
        input: &[u8],
        last: bool,
        stream: &mut Vec<u8>,
    ) -> Result<Progress, Malformed> {
        self.advance(input, last, Until::End, Some(stream))
    }

    /// Reads on as [`read`](Self::read) does, but no further than `until`, and without a `stream` no
    /// further than to where it begins. So whoever waits for a slot goes on at the same place,
    /// however the octets were cut.
    pub(crate) fn advance(
        &mut self,
        input: &[u8],
        last: bool,
        until: Until<'_>,
        stream: Option<&mut Vec<u8>>,
    ) -> Result<Progress, Malformed> {
        match self.outcome {
            Some(Ok(())) => return Ok(Progress { consumed: 0, complete: true }),
            Some(Err(malformed)) => return Err(malformed),
            None => {}
        }
        let Self { layouts, message, state, outcome } = self;
        let program = layouts.program();
        let (Some(layout), Some(code)) = (program.message(*message), layouts.code(message.index()))
        else {
            // `new` lets no other id in.
            return Err(Malformed { reason: Reason::NoCase, at: 0, span: Span::default() });
        };
        if code.datagram {
            if !last {
                return Ok(Progress { consumed: 0, complete: false });
            }
            let end = Some(state.at.saturating_add(length(input.len())));
            state.outer.first_mut().unwrap_or(&mut state.region).end = end;
        }
        state.view.expect(input.len().min(EXPECTED_MAX));
        let mut reader = Reader::new((program, layout, code), state, (input, last), until, stream);
        let stopped = reader.run();
        let step = reader.step();
        let consumed = reader.stop();
        match stopped {
            Ok(Stop::Accept) => {
                state.view.settle_set(&code.all);
                *outcome = Some(Ok(()));
                Ok(Progress { consumed, complete: true })
            }
            Ok(Stop::There | Stop::Wait) => Ok(Progress { consumed, complete: false }),
            Err(reason) => {
                let span = code.spans.get(step).copied().unwrap_or(layout.span);
                let malformed = Malformed { reason, at: state.at, span };
                *outcome = Some(Err(malformed));
                Err(malformed)
            }
        }
    }

    /// Whether everything up to `until` is read.
    pub(crate) fn has_reached(&self, until: Until<'_>) -> bool {
        let view = &self.state.view;
        match until {
            Until::End => false,
            Until::Begun => {
                let code = self.layouts.code(self.message.index());
                code.is_some_and(|code| view.settled().meets(&code.open))
            }
            Until::Settled(slots) => slots.iter().all(|slot| view.is_settled(*slot)),
        }
    }

    /// Whether the message's stream has begun and is not at its end.
    pub(crate) const fn in_stream(&self) -> bool {
        self.state.stream.is_some()
    }

    /// Whether the message's stream may go to `writer`'s message as it comes, framed as it is; from
    /// then on its reader gives it out so.
    pub(crate) fn passes_verbatim(&mut self, writer: &StreamWriter) -> bool {
        self.state.stream.as_mut().is_some_and(|stream| stream.passes_verbatim(writer))
    }

    /// Whether what comes next is within a line, or would be the beginning of one.
    pub(crate) fn is_in_a_line(&self) -> bool {
        let code = self.layouts.code(self.message.index());
        let ops = code.and_then(|code| code.ops.get(self.state.step..)).unwrap_or_default();
        let op = ops.iter().find(|op| !op.is_attempt());
        let enters = op.is_some_and(|op| matches!(op, Op::EnterLine { .. }));
        enters || !self.state.outer.is_empty()
    }
}

/// Octets for which a view makes room before its first field: most messages need no more.
const EXPECTED_MAX: usize = 512;
