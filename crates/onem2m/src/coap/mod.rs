//! CoAP for oneM2M: the message layer (RFC 7252, blocks RFC 7959, observe RFC 7641) as one pure
//! machine, and how primitives are written in it (TS-0008).
//!
//! An [`Endpoint`] is what stands behind one UDP socket, both as server and as client. Datagrams
//! and what the application wants go in by [`Endpoint::handle`]; datagrams to send, whole requests
//! that peers ask and whole answers that they give come out by [`Endpoint::poll_output`].
//! Retransmission, acknowledgements, recognition of duplicates, cutting into blocks and putting
//! together again are its own affair. Randomness is an argument: the secret of [`Endpoint::new`].
//!
//! | module | holds |
//! |---|---|
//! | `endpoint` | datagrams in, by type and code; timers; what is on its way |
//! | `asking` | our requests and their answers |
//! | `serving` | peers' requests and our answers, observers |
//! | `blocks` | what is put together, and what is fetched block by block |
//! | `pace` | how fast messages may follow each other |
//! | `repeats` | message identifiers seen, and what was replied |
//! | [`primitive`] | requests and responses of oneM2M as CoAP messages |

mod asking;
mod blocks;
mod endpoint;
mod pace;
pub mod primitive;
mod repeats;
mod serving;
#[cfg(test)]
mod tests;

pub use endpoint::Endpoint;

use core::time::Duration;
use gatewright_wire::coap::{Block, Builder, Code, Message as Datagram, MessageType, OptionNumber};
use std::net::SocketAddr;

/// How long the first wait for an acknowledgement is at least (RFC 7252 §4.8).
pub const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// That wait is drawn between once and this many halves of [`ACK_TIMEOUT`] (RFC 7252 §4.8: 1.5).
const ACK_RANDOM_HALVES: u32 = 3;
/// How often a confirmable message is sent again (RFC 7252 §4.8).
pub const MAX_RETRANSMIT: u32 = 4;
/// Interactions with one peer at the same time (RFC 7252 §4.8).
pub const NSTART: usize = 1;
/// How long a confirmable message's identifier means that message (RFC 7252 §4.8.2).
pub const EXCHANGE_LIFETIME: Duration = Duration::from_secs(247);
/// How long a non-confirmable message's identifier means that message (RFC 7252 §4.8.2).
pub const NON_LIFETIME: Duration = Duration::from_secs(145);
/// A request that takes longer is acknowledged first and answered separately: half of the time
/// after which the peer sends it again.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Octets of a block that is sent: with header and options one datagram without fragments
/// (RFC 7252 §4.6).
pub const BLOCK_SIZE: usize = 1_024;

/// What one endpoint may hold. Of each, what comes beyond is refused or dropped and counted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Octets of one body, put together of its blocks.
    pub body_octets: usize,
    /// Own requests that are not answered.
    pub requests: usize,
    /// Requests of peers that are not answered.
    pub asked: usize,
    /// Of one peer.
    pub asked_per_peer: usize,
    /// Peers that are remembered.
    pub peers: usize,
    /// Message identifiers that are remembered to recognise duplicates.
    pub repeats: usize,
    /// Octets of the replies kept for duplicates.
    pub repeats_octets: usize,
    /// Bodies that peers are sending block by block.
    pub uploads: usize,
    /// Octets of them.
    pub uploads_octets: usize,
    /// Bodies kept for peers that fetch them block by block.
    pub downloads: usize,
    /// Octets of them.
    pub downloads_octets: usize,
    /// Peers that observe.
    pub observers: usize,
    /// How long an unfinished body is kept after its last block: no shorter than a peer may take to
    /// learn that the block has come and to have the next one come, each by its last retransmission.
    pub blocks_age: Duration,
    /// How long an answer is waited for once the request is acknowledged.
    pub answer_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_octets: 1024 * 1024,
            requests: 4_096,
            asked: 4_096,
            asked_per_peer: 256,
            peers: 16_384,
            repeats: 65_536,
            repeats_octets: 8 * 1024 * 1024,
            uploads: 256,
            uploads_octets: 16 * 1024 * 1024,
            downloads: 256,
            downloads_octets: 16 * 1024 * 1024,
            observers: 4_096,
            blocks_age: EXCHANGE_LIFETIME,
            answer_within: Duration::from_mins(1),
        }
    }
}

/// Names a request of ours, chosen by the caller; its answer comes out with the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// Names a request of a peer, chosen by the endpoint; the answer goes in with the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AskId(pub u64);

/// A whole request or response: what is said, without how it travels.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Message {
    /// Method or response code.
    pub code: Code,
    /// Options, repeated ones in their order. Those of blocks are the endpoint's.
    pub options: Vec<(OptionNumber, Vec<u8>)>,
    /// The whole body.
    pub payload: Vec<u8>,
}

/// Octets that an option of text holds (RFC 7252 §5.10, TS-0008 table 6.2.2.4.0-1).
pub(super) const OPTION_OCTETS_MAX: usize = 255;

impl Message {
    /// A message without options and body.
    pub const fn new(code: Code) -> Self {
        Self { code, options: Vec::new(), payload: Vec::new() }
    }

    /// Appends an option.
    pub fn put(&mut self, number: OptionNumber, value: impl Into<Vec<u8>>) {
        self.options.push((number, value.into()));
    }

    /// Appends an option that holds a number, in as few octets as it needs (RFC 7252 §3.2).
    pub fn put_uint(&mut self, number: OptionNumber, value: u64) {
        let octets = value.to_be_bytes();
        let zeros = octets.iter().take_while(|&&octet| octet == 0).count();
        self.put(number, octets.get(zeros..).unwrap_or_default());
    }

    /// The values of a repeatable option.
    pub fn values(&self, number: OptionNumber) -> impl Iterator<Item = &[u8]> {
        self.options.iter().filter(move |(it, _)| *it == number).map(|(_, value)| value.as_slice())
    }

    /// The value of the first option of this number.
    pub fn value(&self, number: OptionNumber) -> Option<&[u8]> {
        self.values(number).next()
    }

    /// The first option of this number as a text; `None` if it is absent or not UTF-8.
    pub fn text(&self, number: OptionNumber) -> Option<&str> {
        core::str::from_utf8(self.value(number)?).ok()
    }

    /// The first option of this number as a number; `None` if it is absent or too long.
    pub fn uint(&self, number: OptionNumber) -> Option<u64> {
        let value = self.value(number)?;
        let number = value.iter().fold(0_u64, |number, &octet| number << 8 | u64::from(octet));
        (value.len() <= 8).then_some(number)
    }

    fn block(&self, number: OptionNumber) -> Option<Block> {
        Block::read(self.value(number)?)
    }

    fn read(datagram: &Datagram<'_>) -> Self {
        Self {
            code: datagram.code(),
            options: datagram.options().map(|it| (it.number, it.value.to_vec())).collect(),
            payload: datagram.payload().to_vec(),
        }
    }

    /// Writes a datagram of this code and these options with `payload`; `None` if it is larger
    /// than any datagram.
    fn write(
        &self,
        head: Head<'_>,
        more: &[(OptionNumber, u32)],
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let mut options: Vec<(OptionNumber, &[u8])> =
            self.options.iter().map(|(number, value)| (*number, value.as_slice())).collect();
        let more: Vec<(OptionNumber, [u8; 4])> =
            more.iter().map(|(number, value)| (*number, value.to_be_bytes())).collect();
        for (number, octets) in &more {
            let zeros = octets.iter().take_while(|&&octet| octet == 0).count();
            options.push((*number, octets.get(zeros..).unwrap_or_default()));
        }
        options.sort_by_key(|(number, _)| number.0);
        let values: usize = options.iter().map(|(_, value)| value.len() + OPTION_HEAD_MAX).sum();
        let mut octets = vec![0; HEAD_MAX + values + payload.len()];
        let mut builder =
            Builder::new(&mut octets, head.message_type, self.code, head.id, head.token).ok()?;
        for (number, value) in options {
            builder.option(number, value).ok()?;
        }
        let length = builder.payload(payload).ok()?.len();
        octets.truncate(length);
        (length <= DATAGRAM_MAX).then_some(octets)
    }
}

/// Octets before the options: header, token, payload marker.
const HEAD_MAX: usize = 4 + 8 + 1;
/// Octets of an option before its value, at most.
const OPTION_HEAD_MAX: usize = 5;
/// Octets of the largest UDP datagram over IPv4.
const DATAGRAM_MAX: usize = 65_507;

/// How a message travels.
#[derive(Clone, Copy, Debug)]
struct Head<'a> {
    message_type: MessageType,
    id: u16,
    token: &'a [u8],
}

/// A message of nothing but its header: an acknowledgement or a reset.
fn empty(message_type: MessageType, id: u16) -> Vec<u8> {
    let head = Head { message_type, id, token: &[] };
    Message::new(Code::EMPTY).write(head, &[], &[]).unwrap_or_default()
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A datagram came.
    Datagram {
        /// Who sent it.
        from: SocketAddr,
        /// All of it.
        octets: &'a [u8],
    },
    /// A request of ours is to be sent, and sent again until it is acknowledged.
    Request {
        /// Comes out with the answer.
        id: RequestId,
        /// Where to.
        to: SocketAddr,
        /// What to ask.
        message: Message,
    },
    /// Nobody waits for the answer to this request any more.
    Cancel(RequestId),
    /// The answer to a peer's request.
    Respond {
        /// Of the request.
        id: AskId,
        /// The answer.
        message: Message,
    },
    /// What a peer observes has changed. What was told before and not acknowledged yet is
    /// replaced (RFC 7641 §4.5.2).
    Notify {
        /// Of the request that began it.
        id: AskId,
        /// The resource as it is now; with an error code, the last that is told.
        message: Message,
    },
    /// Nothing but time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send this datagram.
    Send {
        /// Where to.
        to: SocketAddr,
        /// All of it.
        octets: Vec<u8>,
    },
    /// A peer asks; answer with [`Input::Respond`].
    Asked {
        /// Goes back in with the answer.
        id: AskId,
        /// Who.
        from: SocketAddr,
        /// The request, its body whole.
        message: Message,
        /// Whether it wants to be told of changes: granted by an answer of class 2 that carries
        /// the option *observe*, whatever its value.
        observes: bool,
    },
    /// A request of ours was answered, or will not be.
    Answered {
        /// Of the request.
        id: RequestId,
        /// The answer, its body whole.
        answer: Result<Message, Failure>,
    },
    /// A peer does not observe any more; nothing is to be told it.
    Unobserved(AskId),
}

/// Why a request was not answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The peer did not acknowledge, however often it was asked.
    #[error("not acknowledged after {} transmissions", MAX_RETRANSMIT + 1)]
    Unacknowledged,
    /// The peer acknowledged and then said nothing.
    #[error("acknowledged, and not answered")]
    Unanswered,
    /// The peer could not make sense of the request.
    #[error("reset by the peer")]
    Reset,
    /// The answer is larger than what is taken.
    #[error("answer larger than the {0} octets that are taken")]
    TooLarge(usize),
    /// The blocks of the answer do not fit each other, or it changed while it was fetched.
    #[error("the blocks of the answer do not fit each other")]
    Blocks,
    /// Too many requests are not answered: ours to wait.
    #[error("too many requests are unanswered")]
    Full,
    /// The options fit no datagram: misuse.
    #[error("the options fit no datagram")]
    Options,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// What an endpoint did and refused, since it was made.
        #[derive(Clone, Debug, Default, Eq, PartialEq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Counters {
            /// Every counter with its name, for a metrics page.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!("coap_", stringify!($name)), self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Datagrams that came.
    received,
    /// Datagrams sent, each transmission counted.
    sent,
    /// Of those, sent again because no acknowledgement came.
    retransmitted,
    /// Datagrams that are no messages, or messages that mean nothing here.
    malformed,
    /// Messages recognised as duplicates.
    duplicates,
    /// Replies forgotten before their time because too many were kept.
    repeats_full,
    /// Requests of peers handed on.
    asked,
    /// Requests of peers refused because too many were not answered.
    asked_full,
    /// Requests refused because of an option that must be understood and is not.
    bad_options,
    /// Answers to nothing that was asked.
    stray_answers,
    /// Confirmable messages never acknowledged.
    unacknowledged,
    /// Times that requests had to wait lest message identifiers come again too soon.
    paced,
    /// Own requests refused because too many were not answered.
    requests_full,
    /// Peers forgotten before their time because there were too many.
    peers_full,
    /// Bodies in blocks refused because they are too large.
    bodies_too_large,
    /// Unfinished bodies of peers dropped because there were too many.
    uploads_full,
    /// Kept bodies dropped because there were too many.
    downloads_full,
    /// Observations refused because there were too many.
    observers_full,
    /// Notifications sent.
    notifications,
}
