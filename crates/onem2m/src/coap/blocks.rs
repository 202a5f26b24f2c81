//! Bodies that travel in blocks (RFC 7959): those that peers are sending, and those that they
//! fetch.

use super::{Counters, Limits, Message};
use core::time::Duration;
use gatewright_wire::coap::{Block, Code};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Peer, and what tells its requests apart: code and options.
pub(super) type Key = (SocketAddr, u64);

/// Bodies kept, each with the time of its last use.
#[derive(Debug)]
struct Kept<T> {
    entries: HashMap<Key, (Duration, T)>,
    octets: usize,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), octets: 0 }
    }
}

/// How many octets something holds.
trait Weigh {
    fn weight(&self) -> usize;
}

impl Weigh for Vec<u8> {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for Message {
    fn weight(&self) -> usize {
        self.payload.len()
    }
}

impl<T: Weigh> Kept<T> {
    fn remove(&mut self, key: &Key) -> Option<T> {
        let (_, value) = self.entries.remove(key)?;
        self.octets -= value.weight();
        Some(value)
    }

    fn insert(&mut self, key: Key, now: Duration, value: T) {
        self.remove(&key);
        self.octets += value.weight();
        self.entries.insert(key, (now, value));
    }

    /// Makes room for `more` octets; how many were dropped before their time.
    fn make_room(
        &mut self,
        more: usize,
        now: Duration,
        age: Duration,
        most: (usize, usize),
    ) -> u64 {
        let (entries_max, octets_max) = most;
        let mut dropped = 0;
        loop {
            let oldest = self.entries.iter().min_by_key(|(_, (at, _))| *at);
            let Some((&key, &(at, _))) = oldest else {
                return dropped;
            };
            let old = at.saturating_add(age) <= now;
            let full = self.entries.len() >= entries_max || self.octets + more > octets_max;
            if !old && !full {
                return dropped;
            }
            dropped += u64::from(!old);
            self.remove(&key);
        }
    }
}

/// Bodies of requests that are being put together.
#[derive(Debug, Default)]
pub(super) struct Uploads(Kept<Vec<u8>>);

/// What a block of a request's body makes of it.
pub(super) enum Upload {
    /// The body is whole.
    Whole(Vec<u8>),
    /// The next block is wanted.
    Continue,
    /// The block is refused.
    Refused(Code),
}

impl Uploads {
    /// Takes a block.
    pub(super) fn take(
        &mut self,
        key: Key,
        block: Block,
        payload: &[u8],
        (now, limits, counters): (Duration, &Limits, &mut Counters),
    ) -> Upload {
        if block.more() && payload.len() != block.size() {
            return Upload::Refused(Code::BAD_REQUEST);
        }
        let before = self.0.remove(&key);
        let mut body = match before {
            _ if block.number() == 0 => Vec::new(),
            Some(body) if body.len() == block.offset() => body,
            // RFC 7959 §2.9.2: a block is missing, or this one comes a second time.
            _ => return Upload::Refused(Code::REQUEST_ENTITY_INCOMPLETE),
        };
        if body.len() + payload.len() > limits.body_octets {
            counters.bodies_too_large += 1;
            return Upload::Refused(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        body.extend_from_slice(payload);
        if !block.more() {
            return Upload::Whole(body);
        }
        let most = (limits.uploads, limits.uploads_octets);
        counters.uploads_full += self.0.make_room(body.len(), now, limits.blocks_age, most);
        self.0.insert(key, now, body);
        Upload::Continue
    }
}

/// Answers that peers fetch block by block.
#[derive(Debug, Default)]
pub(super) struct Downloads(Kept<Message>);

impl Downloads {
    /// Keeps an answer.
    pub(super) fn keep(
        &mut self,
        key: Key,
        answer: Message,
        (now, limits, counters): (Duration, &Limits, &mut Counters),
    ) {
        let most = (limits.downloads, limits.downloads_octets);
        let room = self.0.make_room(answer.payload.len(), now, limits.blocks_age, most);
        counters.downloads_full += room;
        self.0.insert(key, now, answer);
    }

    /// Takes an answer out, to serve the next block of it.
    pub(super) fn take(&mut self, key: &Key, now: Duration, age: Duration) -> Option<Message> {
        let (at, _) = self.0.entries.get(key)?;
        let fresh = at.saturating_add(age) > now;
        self.0.remove(key).filter(|_| fresh)
    }
}
