//! Everything that goes into the machine and comes out of it.

use super::{Call, DeviceCall, Letter, Unreachable};
use crate::audit::Entry;
use crate::primitive::{Request, Response};
use crate::tree::Record;
use core::net::IpAddr;
use std::sync::Arc;

/// Names a requester, chosen by the caller; an answer comes out with the token of its request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub u64);

/// Names a request that the CSE sends; its answer goes in with the same id.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CallId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A request came in from outside: over whatever binding, and whoever it says that it is, it
    /// is not this CSE.
    Request {
        /// Comes out with the answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// A request that the process around the machine makes itself, as an entity of its own or as
    /// this CSE, which may do everything. Nothing that was heard from anybody comes in so.
    Own {
        /// Comes out with the answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// A retrieval that is to be answered again whenever the answer is another, until
    /// [`Self::Unobserve`]; see [`Cse::is_observed`].
    Observe {
        /// Comes out with each answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// No more answers to this one.
    Unobserve(Token),
    /// A request of our own is to arrive, however long it takes; accepted (1000) once stored.
    Post {
        /// Comes out with the answer.
        token: Token,
        /// The request.
        letter: Letter,
    },
    /// A request, and a letter of our own that is to arrive if the request is done, or if what it
    /// makes is there already: one outcome, one answer. Refused before anything is done if the
    /// letter has no room.
    AskAndPost {
        /// Comes out with the answer to the request.
        token: Token,
        /// The request.
        request: Request,
        /// What is posted in the same batch.
        letter: Box<Letter>,
    },
    /// Several things at once: what they have stored is stored together or not at all.
    Together(Vec<Self>),
    /// A request that was sent has been answered, or will not be.
    Answer {
        /// Of the [`Output::Call`].
        call: CallId,
        /// The answer.
        answer: Result<Response, Unreachable>,
    },
    /// Every batch up to this number is stored.
    Committed(u64),
    /// The batch of this number, and every later one, could not be stored.
    Failed(u64),
    /// A request was refused before it came here: it is counted for the audit log.
    Refused {
        /// Who is said to have asked.
        from: String,
        /// From which address, if that is known.
        address: Option<IpAddr>,
    },
    /// Nobody waits for this answer that came out.
    Unheard(Token),
    /// The wall clock is right: an operator says so, or a server of time.
    ClockConfirmed,
    /// Nothing but time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Store this batch, then say [`Input::Committed`] or [`Input::Failed`].
    Store(Batch),
    /// Give this answer.
    Respond {
        /// Of the request.
        token: Token,
        /// The answer.
        response: Response,
    },
    /// Send this request, then say [`Input::Answer`].
    Call(Box<Call>),
    /// Ask this device, then say [`Input::Answer`].
    AskDevice(Box<DeviceCall>),
    /// The receiver of this lane does not know the place that its first letter is for, or who
    /// asks: it may have lost its memory. The letter is kept and tried again; whoever made the place
    /// may do so again.
    Lost {
        /// The lane.
        lane: Arc<str>,
    },
}

/// Records and what the audit log says of them, stored together or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// Counts the batches of one run, from 1.
    pub number: u64,
    /// Counts the failures of one run: a batch made before the machine heard of a failure has
    /// an older epoch than those after, and is not to be stored.
    pub epoch: u64,
    /// The number that the next row will have.
    pub next_seq: u64,
    /// What to store, in this order.
    pub records: Vec<Record>,
    /// What the audit log is to say, in this order.
    pub entries: Vec<Entry>,
    /// The body of row 0, in which the clocks are noted from time to time.
    pub clock: Option<Arc<str>>,
    /// A line of the memory of requests: by which those that made these records are known again,
    /// should they be repeated after a restart. It is restored as a row 0 behind the clocks.
    pub remembered: Option<Arc<str>>,
}
