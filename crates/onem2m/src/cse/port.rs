//! Inputs and outputs of the CSE state machine.

use super::{Call, DeviceCall, OutboxMessage, ReadError, ReadId, ReadRow, Unreachable};
use crate::audit::AuditEntry;
use crate::primitive::{Request, Response};
use crate::stored::Unreadable;
use crate::tree::RowChange;
use core::net::IpAddr;
use std::sync::Arc;

/// Number of a requester, chosen by the caller; an answer has the token of its request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub u64);

/// Number of an outgoing request; its answer has the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CallId(pub u64);

/// Input to the CSE.
#[derive(Clone, Debug)]
pub enum Input {
    /// A request from outside, over any binding: whatever its originator says, it is not this CSE.
    Request {
        /// Returned with the answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// A request of the surrounding process, as one of its entities or as this CSE, which has every
    /// right. No request from a peer may come in this way.
    Own {
        /// Returned with the answer.
        token: Token,
        /// The request.
        request: Arc<Request>,
    },
    /// A retrieval that is answered again after a change, until [`Self::Unobserve`]; see
    /// [`Cse::is_observed`]. After each answer but the first, the next one waits for
    /// [`Self::ObserveNext`].
    Observe {
        /// Returned with each answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// The last answer to this retrieval has reached its observer: the next one may follow.
    ObserveNext(Token),
    /// Ends the answers to this retrieval.
    Unobserve(Token),
    /// Queue an outbox message of the process; accepted (1000) once stored.
    Post {
        /// Returned with the answer.
        token: Token,
        /// The message.
        message: OutboxMessage,
    },
    /// A request with an outbox message that is queued if the request succeeds, or if its resource
    /// exists already: one outcome, one answer. Refused before any change if the outbox has no
    /// room.
    AskAndPost {
        /// Returned with the answer to the request.
        token: Token,
        /// The request.
        request: Arc<Request>,
        /// The outbox message, stored in the same batch.
        message: Box<OutboxMessage>,
    },
    /// Several inputs whose changes are stored together or not at all.
    Together(Vec<Self>),
    /// The answer to an outgoing request, or its failure.
    Answer {
        /// The token of the [`Output::Call`].
        call: CallId,
        /// The answer.
        answer: Result<Response, Unreachable>,
    },
    /// An outgoing request was not sent, as something here refuses it: it tells nothing of its target.
    Unsent {
        /// The token of the [`Output::Call`].
        call: CallId,
        /// The reason.
        why: String,
    },
    /// Every batch up to this number is stored.
    Committed(u64),
    /// The batch of this number, and every later one, could not be stored.
    Failed(u64),
    /// Answers are late, for want of processor time: the messages of devices give way to them for a
    /// second.
    Overloaded,
    /// Whether the store has room only for deletions and audit entries: creations are refused.
    Short(bool),
    /// The rows of an [`Output::Read`], each with its number; one that is not there is
    /// [`Damage::Missing`](crate::Damage).
    Rows {
        /// The token of the output.
        read: ReadId,
        /// The rows in any order, or why none of them could be read.
        rows: Result<Vec<ReadRow>, ReadError>,
    },
    /// A request refused before it reached the CSE: it is counted for the audit log.
    Refused {
        /// The claimed originator.
        from: String,
        /// The peer's address, if known.
        address: Option<IpAddr>,
    },
    /// The receiver of this answer has disconnected.
    Unheard(Token),
    /// The wall clock is right, according to an operator or a time server.
    ClockConfirmed,
    /// Only time has passed.
    Tick,
}

/// Output of the CSE.
#[derive(Clone, Debug)]
pub enum Output {
    /// Store this batch, then say [`Input::Committed`] or [`Input::Failed`].
    Store(Batch),
    /// Send this answer.
    Respond {
        /// The token of the request.
        token: Token,
        /// The answer.
        response: Response,
    },
    /// Send this request, then say [`Input::Answer`] or [`Input::Unsent`].
    Call(Box<Call>),
    /// Send this request to a device, then say [`Input::Answer`] or [`Input::Unsent`].
    AskDevice(Box<DeviceCall>),
    /// Read these rows, which are all stored, then say [`Input::Rows`]. One read at a time is under
    /// way.
    Read {
        /// Returned with the rows.
        read: ReadId,
        /// Their numbers, in ascending order.
        rows: Vec<u64>,
    },
    /// A stored instance cannot be read and is left out of the tree; its row stays in the store.
    Unreadable(Unreadable),
    /// The receiver of this queue lacks the parent or the originator of its first message, and may
    /// have lost its data. The message is kept and retried; the parent's creator may create it
    /// again.
    Lost {
        /// The queue.
        queue: Arc<str>,
    },
}

/// Records with their audit log entries, stored together or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// Counts the batches of one run, from 1.
    pub number: u64,
    /// Number of failures in one run: a batch made before the CSE knew of a failure has an older
    /// epoch than later ones, and must not be stored.
    pub epoch: u64,
    /// The number that the next row will have.
    pub next_seq: u64,
    /// Records to store, in this order.
    pub records: Vec<RowChange>,
    /// Audit log entries, in this order.
    pub entries: Vec<AuditEntry>,
    /// The body of row 0 with the clocks, from time to time.
    pub clock: Option<Arc<str>>,
    /// A line of the memory of requests, which identifies this batch's requests if they are
    /// repeated after a restart. It is restored as a row 0 after the clocks.
    pub remembered: Option<Arc<str>>,
}
