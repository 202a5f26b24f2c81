//! The machine that reads one message.

use crate::reader::{Cursor, length};
use crate::steps::{Look, Turn};
use crate::stream::{StreamError, StreamReader};
use crate::view::View;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{Message, MessageId, ParseOp, ParseStep, Program, SlotId};
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
        max: u64,
    },
    /// A run or number of digits is shorter than its bound.
    #[error("shorter than {min}")]
    TooShort {
        /// The bound, in octets.
        min: u64,
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

/// Reads one message, in whatever pieces it arrives.
///
/// The octets that are not used yet stay with the caller, who gives them again, with more behind
/// them. What it waits for is bounded: by [`Message::window_max`] outside a stream, and by 8,210
/// octets within one (a chunk's size with its extensions). What is longer is malformed. A datagram
/// is read when it is whole.
///
/// [`Message::window_max`]: gatewright_lang::ir::Message::window_max
#[derive(Clone, Debug)]
pub struct Parser {
    pub(crate) program: Arc<Program>,
    pub(crate) message: MessageId,
    pub(crate) step: usize,
    pub(crate) cursor: Cursor,
    pub(crate) counts: [u32; COUNTERS],
    pub(crate) view: View,
    pub(crate) stream: Option<StreamReader>,
    outcome: Option<Result<(), Malformed>>,
}

impl Parser {
    /// A parser before the first octet of a message.
    ///
    /// # Errors
    ///
    /// The program has no such message, or the message is only written.
    pub fn new(program: Arc<Program>, message: MessageId) -> Result<Self, Unreadable> {
        let layout = program.message(message).ok_or(Unreadable::NoMessage)?;
        if layout.parser.is_empty() {
            return Err(Unreadable::NoParser);
        }
        let view = View::of(layout);
        Ok(Self {
            program,
            message,
            step: 0,
            cursor: Cursor::new(),
            counts: [0; COUNTERS],
            view,
            stream: None,
            outcome: None,
        })
    }

    /// What was read so far.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// The view, at the message's end.
    pub fn into_view(self) -> View {
        self.view
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
        mut stream: Option<&mut Vec<u8>>,
    ) -> Result<Progress, Malformed> {
        match self.outcome {
            Some(Ok(())) => return Ok(Progress { consumed: 0, complete: true }),
            Some(Err(malformed)) => return Err(malformed),
            None => {}
        }
        let program = Arc::clone(&self.program);
        let Some(message) = program.message(self.message) else {
            return Err(self.fail(Reason::NoCase, Span::default()));
        };
        let from = self.cursor.at;
        if message.datagram {
            if !last {
                return Ok(Progress { consumed: 0, complete: false });
            }
            let end = from.saturating_add(length(input));
            self.cursor.regions.first_mut().into_iter().for_each(|root| root.end = Some(end));
        }
        loop {
            let consumed = usize::try_from(self.cursor.at - from).unwrap_or(usize::MAX);
            if self.has_reached(message, until) {
                return Ok(Progress { consumed, complete: false });
            }
            let Some(ParseStep { op, span }) = message.parser.get(self.step) else {
                return Err(self.fail(Reason::NoCase, message.span));
            };
            let input = input.get(consumed..).unwrap_or_default();
            let look = Look { program: &program, message, input, last };
            let turn = match (op, &mut stream) {
                (ParseOp::Stream { into, select }, None) => {
                    self.announce_stream(&look, *into, select).map(|()| None)
                }
                (_, Some(stream)) => self.turn(&look, op, stream).map(Some),
                (_, None) => self.turn(&look, op, &mut Vec::new()).map(Some),
            };
            let turn = match turn {
                Ok(None) => return Ok(Progress { consumed, complete: false }),
                Ok(Some(turn)) => Ok(turn),
                Err(reason) => Err(reason),
            };
            match turn {
                Ok(Turn::Next) => self.step += 1,
                Ok(Turn::Go(step)) => self.step = step.index(),
                Ok(Turn::Wait) if last => return Err(self.fail(Reason::Cut, *span)),
                Ok(Turn::Wait) => {
                    let consumed = usize::try_from(self.cursor.at - from).unwrap_or(usize::MAX);
                    return Ok(Progress { consumed, complete: false });
                }
                Ok(Turn::Accept) => {
                    self.view.settle_all();
                    self.outcome = Some(Ok(()));
                    return Ok(Progress { consumed, complete: true });
                }
                Err(reason) => return Err(self.fail(reason, *span)),
            }
        }
    }

    /// Whether everything up to `until` is read.
    pub(crate) fn has_reached(&self, message: &Message, until: Until<'_>) -> bool {
        match until {
            Until::End => false,
            Until::Begun => message
                .slots
                .iter()
                .enumerate()
                .any(|(index, slot)| !slot.scratch && self.view.is_settled(SlotId::new(index))),
            Until::Settled(slots) => slots.iter().all(|slot| self.view.is_settled(*slot)),
        }
    }

    /// Whether the message's stream has begun and is not at its end.
    pub(crate) const fn in_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether what comes next is within a line, or would be the beginning of one.
    pub(crate) fn is_in_a_line(&self) -> bool {
        let message = self.program.message(self.message);
        let step = message.and_then(|message| message.parser.get(self.step));
        let enters = step.is_some_and(|step| matches!(step.op, ParseOp::EnterLine { .. }));
        enters || self.cursor.regions.len() > 1
    }

    fn fail(&mut self, reason: Reason, span: Span) -> Malformed {
        let malformed = Malformed { reason, at: self.cursor.at, span };
        self.outcome = Some(Err(malformed));
        malformed
    }
}
