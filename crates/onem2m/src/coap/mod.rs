//! CoAP for oneM2M without I/O: the message layer (RFC 7252, blocks RFC 7959, observe RFC 7641),
//! and primitives as CoAP messages (TS-0008).
//!
//! An [`Endpoint`] belongs to one UDP socket, both as server and as client. Datagrams and the
//! application's messages go in by [`Endpoint::handle`]. Datagrams to send, complete requests of
//! peers and complete responses come out by [`Endpoint::poll_output`]. It retransmits,
//! acknowledges, recognises duplicates, and splits and reassembles blocks. Randomness is an
//! argument: the secret of [`Endpoint::new`].
//!
//! | module | holds |
//! |---|---|
//! | `endpoint` | datagrams in, by type and code; timers; what is on its way |
//! | `asking` | our requests and their answers |
//! | `serving` | peers' requests and our answers, notifications |
//! | `observers` | observers, and how many there may be |
//! | `blocks` | what is put together, and what is fetched block by block |
//! | `pace` | how fast messages may follow each other |
//! | `repeats` | message identifiers seen, and what was replied |
//! | [`primitive`] | requests and responses of oneM2M as CoAP messages |

mod asking;
mod blocks;
mod endpoint;
mod observers;
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

/// Shortest first wait for an acknowledgement (RFC 7252 §4.8).
pub const ACK_TIMEOUT: Duration = Duration::from_secs(2);
/// That wait is drawn between once and this many halves of [`ACK_TIMEOUT`] (RFC 7252 §4.8: 1.5).
const ACK_RANDOM_HALVES: u32 = 3;
/// Retransmissions of a confirmable message (RFC 7252 §4.8).
pub const MAX_RETRANSMIT: u32 = 4;
/// Interactions with one peer at a time (RFC 7252 §4.8).
pub const NSTART: usize = 1;
/// Validity of a confirmable message's identifier (RFC 7252 §4.8.2).
pub const EXCHANGE_LIFETIME: Duration = Duration::from_secs(247);
/// Validity of a non-confirmable message's identifier (RFC 7252 §4.8.2).
pub const NON_LIFETIME: Duration = Duration::from_secs(145);
/// Time after which a request is acknowledged first and answered separately: half of the time after
/// which the peer retransmits it.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Octets of a block that is sent: with header and options one unfragmented datagram (RFC 7252
/// §4.6).
pub const BLOCK_SIZE: usize = 1_024;

/// Limits of one endpoint. Beyond each, data are refused or dropped and counted.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// Octets of one reassembled body.
    pub body_octets: usize,
    /// Unanswered outgoing requests.
    pub requests: usize,
    /// Unanswered requests of peers.
    pub asked: usize,
    /// Of one peer.
    pub asked_per_peer: usize,
    /// Remembered peers.
    pub peers: usize,
    /// Message identifiers remembered to recognise duplicates.
    pub repeats: usize,
    /// Octets of the replies kept for duplicates.
    pub repeats_octets: usize,
    /// Incomplete bodies from peers.
    pub uploads: usize,
    /// Octets of them.
    pub uploads_octets: usize,
    /// Bodies kept for peers that fetch them block by block.
    pub downloads: usize,
    /// Octets of them.
    pub downloads_octets: usize,
    /// Observers.
    pub observers: usize,
    /// Those of one address, or of one IPv6 network of 64 bits.
    pub observers_per_peer: usize,
    /// Those that have acknowledged nothing yet: their addresses may be forged.
    pub observers_unconfirmed: usize,
    /// Time that an incomplete body is kept after its last block: long enough for the
    /// acknowledgement and the peer's next block, each by its last retransmission.
    pub blocks_age: Duration,
    /// Time limit for a response once the request is acknowledged.
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
            observers_per_peer: 64,
            observers_unconfirmed: 256,
            blocks_age: EXCHANGE_LIFETIME,
            answer_within: Duration::from_mins(1),
        }
    }
}

/// Number of an outgoing request, chosen by the caller; its response has the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// Number of a peer's request, chosen by the endpoint; the response has the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AskId(pub u64);

/// A complete request or response, independent of its transfer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CoapMessage {
    /// Method or response code.
    pub code: Code,
    /// Options, repeated ones in their order, without the block options.
    pub options: Vec<(OptionNumber, Vec<u8>)>,
    /// The complete body.
    pub payload: Vec<u8>,
}

/// Octets that an option of text holds (RFC 7252 §5.10, TS-0008 table 6.2.2.4.0-1).
pub(super) const OPTION_OCTETS_MAX: usize = 255;

impl CoapMessage {
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

/// Header of a message.
#[derive(Clone, Copy, Debug)]
struct Head<'a> {
    message_type: MessageType,
    id: u16,
    token: &'a [u8],
}

/// A message with only a header: an acknowledgement or a reset.
fn empty(message_type: MessageType, id: u16) -> Vec<u8> {
    let head = Head { message_type, id, token: &[] };
    CoapMessage::new(Code::EMPTY).write(head, &[], &[]).unwrap_or_default()
}

/// Input to an endpoint.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A datagram arrived.
    Datagram {
        /// Its sender.
        from: SocketAddr,
        /// Its octets.
        octets: &'a [u8],
    },
    /// Send a request, and retransmit it until it is acknowledged.
    Request {
        /// Returned with the response.
        id: RequestId,
        /// The receiver.
        to: SocketAddr,
        /// The request.
        message: CoapMessage,
    },
    /// The response to this request is no longer needed.
    Cancel(RequestId),
    /// The response to a peer's request.
    Respond {
        /// Of the request.
        id: AskId,
        /// The answer.
        message: CoapMessage,
    },
    /// An observed resource has changed. While the notification before is unacknowledged, it waits,
    /// and replaces one that waits already (RFC 7641 §4.5.2); [`Output::Acknowledged`] says when the
    /// next one is sent at once.
    Notify {
        /// Of the observing request.
        id: AskId,
        /// The new representation; with an error code, the last notification.
        message: CoapMessage,
    },
    /// An ICMP error says that a datagram has not arrived, because its receiver's port is closed or its
    /// host is not reached. One about a notification ends the observation.
    Undelivered {
        /// The receiver.
        to: SocketAddr,
        /// The octets of the datagram that the error quotes.
        quoted: &'a [u8],
    },
    /// Only time has passed.
    Tick,
}

/// Output of an endpoint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Output {
    /// Send this datagram.
    Send {
        /// The receiver.
        to: SocketAddr,
        /// Its octets.
        octets: Vec<u8>,
    },
    /// A peer's request; answer with [`Input::Respond`].
    Asked {
        /// To be returned with the response.
        id: AskId,
        /// The peer.
        from: SocketAddr,
        /// The complete request.
        message: CoapMessage,
        /// Whether the peer requests observation: granted by a response of class 2 with the option
        /// *observe*, whatever its value.
        observes: bool,
    },
    /// Result of an outgoing request.
    Answered {
        /// Of the request.
        id: RequestId,
        /// The complete response, or a failure.
        answer: Result<CoapMessage, Failure>,
    },
    /// An observer has acknowledged its last notification, and none waits.
    Acknowledged(AskId),
    /// A peer has stopped observing; send it no further notifications.
    Unobserved(AskId),
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The peer did not acknowledge any transmission.
    #[error("not acknowledged after {} transmissions", MAX_RETRANSMIT + 1)]
    Unacknowledged,
    /// The peer acknowledged and did not answer.
    #[error("acknowledged, and not answered")]
    Unanswered,
    /// The peer rejected the message.
    #[error("reset by the peer")]
    Reset,
    /// The response exceeds the limit.
    #[error("answer larger than {0} octets")]
    TooLarge(usize),
    /// The blocks of the response do not match, or it changed during the transfer.
    #[error("the blocks of the answer do not fit each other")]
    Blocks,
    /// Too many outgoing requests are unanswered: the caller has to wait.
    #[error("too many requests are unanswered")]
    Full,
    /// The options fit no datagram: the caller's fault.
    #[error("the options fit no datagram")]
    Options,
}

crate::counters! {
    /// Counters of an endpoint since its creation.
    #[non_exhaustive]
    pub struct Counters, "coap_";

    /// Datagrams received.
    received,
    /// Datagrams sent, each transmission counted.
    sent,
    /// Of those, retransmissions.
    retransmitted,
    /// Malformed datagrams, and messages without meaning here.
    malformed,
    /// Messages recognised as duplicates.
    duplicates,
    /// Replies dropped early because too many were kept.
    repeats_full,
    /// Requests of peers passed to the application.
    asked,
    /// Requests of peers refused because too many were unanswered.
    asked_full,
    /// Requests refused because of an unsupported critical option.
    bad_options,
    /// Responses without a request.
    stray_answers,
    /// Confirmable messages never acknowledged.
    unacknowledged,
    /// Requests delayed so that message identifiers are not reused too soon.
    paced,
    /// Outgoing requests refused because too many were unanswered.
    requests_full,
    /// Peers forgotten early because there were too many.
    peers_full,
    /// Block-wise bodies refused because they were too large.
    bodies_too_large,
    /// Incomplete bodies of peers dropped because there were too many.
    uploads_full,
    /// Kept bodies dropped because there were too many.
    downloads_full,
    /// Observations refused because there were too many.
    observers_full,
    /// Observers that had acknowledged nothing and gave their place to newer ones.
    observers_displaced,
    /// Observers removed because of an ICMP error about a notification.
    observers_unreachable,
    /// Notifications sent.
    notifications,
}
