//! Posts attached to the handlers of a program: they see messages as the handlers of the packet
//! graph see packets.
//!
//! A [`Post`] stands at one handler or several, on one side. On the side [`Direction::Receive`] it sees
//! the requests that start the handler, before the handler does. On [`Direction::Transmit`] it sees the
//! handler's answers, after the handler. Posts stand in the order of attachment. Those after a post
//! that refuses a request do not see it.

use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use gatewright_lang::ir::{
    Convert, Fold, Handler, HandlerId, HandlerKind, Message, MessageId, ParseOp, Program, RoleId,
    SlotId, SlotType,
};
use std::sync::Arc;

/// An observer or filter attached to handlers of a program.
#[derive(Clone, Debug)]
pub struct Post {
    /// Unique id, for detaching it and for identifying what it captured.
    pub id: u32,
    /// The handlers: `role.name`, one of a handler's names, or `*` for all.
    pub handler: String,
    /// Which of their messages it sees.
    pub way: Direction,
    /// Its action on them.
    pub does: Does,
    /// Its counters; machines that run the same program share them.
    pub counted: Arc<PostCounters>,
}

/// Direction of messages, seen from the requesting peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Direction {
    /// Requests.
    #[default]
    Receive,
    /// Answers.
    Transmit,
}

/// Action of a post on a message.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Does {
    /// Counts it.
    Count,
    /// Emits a copy of it as [`Output::Captured`](super::Output::Captured).
    Capture,
    /// Refuses it if it matches. Only for requests.
    Drop(Matching),
    /// Refuses it if it comes too early. Only for requests.
    RateLimit(Arc<RequestRate>),
}

/// Which requests match: those that agree with every given condition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Matching {
    /// Network of the peer: an address and the length of its prefix in bits.
    pub source: Option<(IpAddr, u8)>,
    /// Fields of the view that must be present and have this value.
    pub fields: Vec<(String, String)>,
}

/// Counters of a post.
#[derive(Debug, Default)]
pub struct PostCounters {
    /// Messages seen, without those refused by other posts.
    pub messages: AtomicU64,
    /// Their octets, as they were on the wire.
    pub octets: AtomicU64,
    /// Requests refused here.
    pub refused: AtomicU64,
    /// Pieces of messages that could not be written in time.
    pub missed: AtomicU64,
}

impl PostCounters {
    pub(crate) fn saw(&self, messages: u64, octets: usize) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.octets.fetch_add(u64::try_from(octets).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// A rate that several machines share: requests per second, and a burst after a pause.
#[derive(Debug)]
pub struct RequestRate {
    /// Nanoseconds per request.
    each: u64,
    /// Nanoseconds that may be saved up.
    saved_max: u64,
    /// When the allowance would be full again, in nanoseconds of the machines' clock.
    whole_at: AtomicU64,
}

const NANOSECONDS: u64 = 1_000_000_000;

impl RequestRate {
    /// `per_second` requests, `burst` of them at once; less than one of either is one.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let each = NANOSECONDS / u64::from(per_second.max(1));
        let saved_max = each.saturating_mul(u64::from(burst.max(1)));
        Self { each, saved_max, whole_at: AtomicU64::new(0) }
    }

    /// Whether a request may pass at `now`; if so, takes its share.
    pub(crate) fn take(&self, now: Duration) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let taken = |whole_at: u64| {
            let after = whole_at.max(now).saturating_add(self.each);
            (after - now <= self.saved_max).then_some(after)
        };
        self.whole_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

/// A piece of a message that passed a capture.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Captured {
    /// Id of the post that captured it.
    pub post: u32,
    /// The role whose socket carried it.
    pub role: RoleId,
    /// The connection that carried it; `None` for a datagram.
    pub conn: Option<super::ConnId>,
    /// The peer that sent or receives the message.
    pub peer: Option<SocketAddr>,
    /// Direction of the message.
    pub way: Direction,
    /// Whether a message begins here.
    pub first: bool,
    /// The octets.
    pub octets: Vec<u8>,
    /// Octets after these that were not kept, because their message's head is too long.
    pub missing: u64,
}

/// Why a post cannot be attached: the caller's fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The program has no such handler that takes messages.
    #[error("{program} has no handler {handler}: {}", .known.join(", "))]
    NoHandler {
        /// The program.
        program: String,
        /// The name that was requested.
        handler: String,
        /// The handlers that it has.
        known: Vec<String>,
    },
    /// Answers are complete already: they can only be counted and captured.
    #[error("requests can be refused, not answers")]
    Answers,
    /// The handler's message has no such field.
    #[error("the requests of {handler} have no field {field}: {}", .known.join(", "))]
    NoField {
        /// The handler.
        handler: String,
        /// The field that was requested.
        field: String,
        /// The fields that exist.
        known: Vec<String>,
    },
    /// The field is a number, and the value is not.
    #[error("field {field} is a number, and {value} is none")]
    NotANumber {
        /// The field.
        field: String,
        /// The value.
        value: String,
    },
}

impl Post {
    /// Checks whether the post fits a program.
    ///
    /// # Errors
    ///
    /// [`PostError`]
    pub fn check(&self, program: &Program) -> Result<(), PostError> {
        self.places(program).map(drop)
    }

    /// The handlers at which it stands, with its action there.
    pub(crate) fn places(&self, program: &Program) -> Result<Vec<(HandlerId, Posted)>, PostError> {
        let refuses = matches!(self.does, Does::Drop(_) | Does::RateLimit(_));
        if refuses && self.way == Direction::Transmit {
            return Err(PostError::Answers);
        }
        let taking = program.handlers.iter().enumerate().filter_map(|(index, handler)| {
            let HandlerKind::Request { view, .. } = handler.kind else { return None };
            Some((HandlerId::new(index), handler, view))
        });
        let meant = taking.clone().filter(|(_, handler, _)| is_meant(&self.handler, handler));
        let mut places = Vec::new();
        for (id, handler, view) in meant {
            let acts = self.acts(program, handler, view)?;
            places.push((id, Posted { id: self.id, acts, counted: Arc::clone(&self.counted) }));
        }
        if places.is_empty() {
            let mut known: Vec<_> = taking.map(|(_, handler, _)| handler.name.clone()).collect();
            known.dedup();
            let (program, handler) = (program.name.clone(), self.handler.clone());
            return Err(PostError::NoHandler { program, handler, known });
        }
        Ok(places)
    }

    fn acts(
        &self,
        program: &Program,
        handler: &Handler,
        view: MessageId,
    ) -> Result<Acts, PostError> {
        Ok(match &self.does {
            Does::Count => Acts::Count,
            Does::Capture => Acts::Capture,
            Does::RateLimit(pace) => Acts::RateLimit(Arc::clone(pace)),
            Does::Drop(matching) => {
                let message = program.message(view);
                let fields = matching.fields.iter();
                let fields = fields.map(|field| plain(message, handler, field));
                Acts::Drop {
                    source: matching.source,
                    message: view,
                    fields: fields.collect::<Result<_, _>>()?,
                }
            }
        })
    }
}

/// Whether a name selects a handler: `role.a+b` is selected by its full name, `a+b`, `a` or
/// `role.a`.
fn is_meant(name: &str, handler: &Handler) -> bool {
    let (role, own) = handler.name.split_once('.').unwrap_or(("", &handler.name));
    let of_role = name.strip_prefix(role).and_then(|rest| rest.strip_prefix('.'));
    let one_of = |name: &str| name == own || own.split('+').any(|one| one == name);
    name == "*" || name == handler.name || one_of(name) || of_role.is_some_and(one_of)
}

/// The slot of a field with the value that it must have.
fn plain(
    message: Option<&Message>,
    handler: &Handler,
    (field, value): &(String, String),
) -> Result<(SlotId, Plain), PostError> {
    let slots = message.map(|message| message.slots.as_slice()).unwrap_or_default();
    let fields = slots.iter().enumerate().filter(|(_, slot)| {
        !slot.scratch && matches!(slot.ty, SlotType::Int { .. } | SlotType::Octets { .. })
    });
    let Some((index, slot)) = fields.clone().find(|(_, slot)| slot.name == *field) else {
        let known = fields.map(|(_, slot)| slot.name.clone()).collect();
        let (handler, field) = (handler.name.clone(), field.clone());
        return Err(PostError::NoField { handler, field, known });
    };
    let plain =
        match slot.ty {
            SlotType::Int { .. } => Plain::Int(value.parse().map_err(|_| {
                PostError::NotANumber { field: field.clone(), value: value.clone() }
            })?),
            _ => Plain::Octets(as_read(message, SlotId::new(index), value)),
        };
    Ok((SlotId::new(index), plain))
}

/// A value as the message would hold it in this slot. Where the protocol ignores case, the given
/// value may use either case.
fn as_read(message: Option<&Message>, slot: SlotId, value: &str) -> Vec<u8> {
    let steps = message.map(|message| message.parser.as_slice()).unwrap_or_default();
    // What is copied here at a repetition's end was folded where it was read.
    let copied = steps.iter().find_map(|step| match step.op {
        ParseOp::Copy { from, into } if into == slot => Some(from),
        _ => None,
    });
    let slot = copied.unwrap_or(slot);
    let fold = steps.iter().find_map(|step| match &step.op {
        ParseOp::Until { into: Some(into), fold, .. }
        | ParseOp::Run { into: Some(into), fold, .. }
        | ParseOp::Take { into: Some(into), fold, .. }
            if *into == slot =>
        {
            Some(*fold)
        }
        ParseOp::Lookup { entries, .. } => {
            entries.iter().find(|entry| entry.into == slot).map(|entry| match entry.convert {
                Convert::Lower => Fold::Lower,
                Convert::Upper => Fold::Upper,
                _ => Fold::Keep,
            })
        }
        _ => None,
    });
    match fold {
        Some(Fold::Lower) => value.to_ascii_lowercase().into_bytes(),
        Some(Fold::Upper) => value.to_ascii_uppercase().into_bytes(),
        Some(Fold::Keep) | None => value.to_owned().into_bytes(),
    }
}

/// A post at one handler.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) id: u32,
    pub(crate) acts: Acts,
    pub(crate) counted: Arc<PostCounters>,
}

/// The action of a post at one handler.
#[derive(Clone, Debug)]
pub(crate) enum Acts {
    Count,
    Capture,
    Drop { source: Option<(IpAddr, u8)>, message: MessageId, fields: Vec<(SlotId, Plain)> },
    RateLimit(Arc<RequestRate>),
}

/// The value of a field.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Plain {
    Int(i64),
    Octets(Vec<u8>),
}

/// Whether an address is in a network; an IPv4 address may be given as an IPv4-mapped IPv6 address.
pub(crate) fn is_within(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    match (address.to_canonical(), network.to_canonical()) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differ = u32::from(address) ^ u32::from(network);
            differ.leading_zeros() >= u32::from(length)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differ = u128::from(address) ^ u128::from(network);
            differ.leading_zeros() >= u32::from(length)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let pace = RequestRate::new(10, 3);
        let passed = |ms| (0..100).filter(|_| pace.take(Duration::from_millis(ms))).count();
        let at = [1_000, 1_099, 1_100, 1_350, 9_000];
        assert_eq!(at.map(passed), [3, 0, 1, 2, 3]);
    }

    #[test]
    fn networks_hold_their_addresses() {
        let of = |address: &str, network: &str, length| {
            is_within(address.parse().unwrap(), (network.parse().unwrap(), length))
        };
        assert!(of("192.0.2.77", "192.0.2.64", 26) && !of("192.0.2.128", "192.0.2.64", 26));
        assert!(of("::ffff:192.0.2.1", "192.0.2.1", 32) && of("10.9.8.7", "0.0.0.0", 0));
        assert!(of("2001:db8::1", "2001:db8::", 32) && !of("2001:db9::1", "2001:db8::", 32));
        assert!(!of("2001:db8::1", "0.0.0.0", 0));
    }
}
