//! Parser of one message.

use crate::flat::state::{COUNTERS, ParserState, Region, Until};
use crate::flat::{Layouts, Op, Reader, Stop, length, straight};
use crate::malformed::MalformedReason;
use crate::stream::StreamWriter;
use crate::view::View;
use gatewright_diagnostic::Span;
use gatewright_lang::ir::{MessageId, TooLong};
use std::sync::Arc;

/// A message has no parser: the caller's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The id is of another program.
    #[error("the program has no such message")]
    NoMessage,
    /// A plain-text template can only be written.
    #[error("a template of plain text has no parser")]
    NoParser,
}

/// The octets of a peer are not the expected message: the peer's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("malformed at octet {at}: {reason}")]
pub struct Malformed {
    /// The reason.
    pub reason: MalformedReason,
    /// Octets of the message before the item that failed.
    pub at: u64,
    /// The item that is too long, if that is the reason and a protocol may answer it so.
    pub too_long: Option<TooLong>,
    /// The item of the layout.
    pub span: Span,
}

/// Progress of a parser.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Octets of the input that were used. The caller gives the others again, followed by new ones.
    pub consumed: usize,
    /// Whether the message is complete; the next one begins after the octets used.
    pub complete: bool,
}

/// Reads messages of one layout, one after the other, each in any number of pieces.
///
/// Unused octets stay with the caller, who gives them again, followed by more. Their number is
/// bounded: by [`Message::window_max`] outside a stream, and by 8,210 octets within one (a chunk's
/// size with its extensions). Longer input is malformed. A datagram is read when it is whole.
///
/// [`Message::window_max`]: gatewright_lang::ir::Message::window_max
#[derive(Clone, Debug)]
pub struct Parser {
    layouts: Arc<Layouts>,
    message: MessageId,
    state: ParserState,
    outcome: Option<Result<(), Malformed>>,
}

impl Parser {
    /// A parser before the first octet of a message.
    ///
    /// # Errors
    ///
    /// The program has no such message, or the message can only be written.
    pub fn new(layouts: Arc<Layouts>, message: MessageId) -> Result<Self, Unreadable> {
        let layout = layouts.program().message(message).ok_or(Unreadable::NoMessage)?;
        if layout.parser.is_empty() {
            return Err(Unreadable::NoParser);
        }
        let state = ParserState {
            step: 0,
            begun: false,
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

    /// Begins with the next message, whatever the result of the last one. The view is reused: a
    /// caller that reads many messages allocates nothing more once the largest has been read.
    pub fn restart(&mut self) {
        let state = &mut self.state;
        (state.step, state.at, state.region) = (0, 0, Region::WHOLE);
        state.outer.clear();
        state.view.reset();
        (state.check, state.stream, state.begun) = (None, None, false);
        state.counts = [0; COUNTERS];
        self.outcome = None;
    }

    /// The message that it reads.
    pub(crate) const fn message(&self) -> MessageId {
        self.message
    }

    /// The fields read so far.
    pub const fn view(&self) -> &View {
        &self.state.view
    }

    /// The view at the message's end.
    pub fn into_view(self) -> View {
        self.state.view
    }

    /// Reads on. `input` begins with the octets not used last time. `last` says that nothing
    /// follows: the datagram is whole, or the connection ended. Octets of the message's stream are
    /// appended to `stream`, never more than `input` has.
    ///
    /// After a complete message nothing more is used; a malformed message stays malformed.
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

    /// Reads on as [`read`](Self::read) does, but only to `until`; without a `stream`, only to
    /// where the stream begins. So a user that waits for a slot resumes at the same octet, however
    /// the octets were cut.
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
            let (reason, span) = (MalformedReason::NoCase, Span::default());
            return Err(Malformed { reason, at: 0, too_long: None, span });
        };
        if code.datagram {
            if !last {
                return Ok(Progress { consumed: 0, complete: false });
            }
            let end = Some(state.at.saturating_add(length(input.len())));
            state.outer.first_mut().unwrap_or(&mut state.region).end = end;
        }
        let begun = core::mem::replace(&mut state.begun, true);
        if let Some(straight) = code.straight.as_ref().filter(|_| !begun)
            && let Some(consumed) =
                straight::read((straight, code, layout), &mut state.view, (input, last))
        {
            state.at = length(consumed);
            *outcome = Some(Ok(()));
            return Ok(Progress { consumed, complete: true });
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
                let too_long = match reason {
                    MalformedReason::TooLong { .. } => code.too_long.get(step).copied().flatten(),
                    MalformedReason::TooLarge => Some(TooLong::Content),
                    _ => None,
                };
                let malformed = Malformed { reason, at: state.at, too_long, span };
                *outcome = Some(Err(malformed));
                Err(malformed)
            }
        }
    }

    /// The item of the message that was too long.
    pub(crate) fn too_long(&self) -> Option<TooLong> {
        self.outcome?.err()?.too_long
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

    /// Whether the message's stream may go to `writer`'s message unchanged, because its framing
    /// fits. From then on its reader delivers it framed.
    pub(crate) fn passes_verbatim(&mut self, writer: &StreamWriter) -> bool {
        self.state.stream.as_mut().is_some_and(|stream| stream.passes_verbatim(writer))
    }

    /// Whether the next octets are within a line, or would begin one.
    pub(crate) fn is_in_a_line(&self) -> bool {
        let code = self.layouts.code(self.message.index());
        let ops = code.and_then(|code| code.ops.get(self.state.step..)).unwrap_or_default();
        let op = ops.iter().find(|op| !op.is_attempt());
        let enters = op.is_some_and(|op| matches!(op, Op::EnterLine { .. }));
        enters || !self.state.outer.is_empty()
    }
}

/// Octets for which a view reserves memory before its first field: most messages need no more.
const EXPECTED_MAX: usize = 512;
