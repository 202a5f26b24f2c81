//! Block-wise transfers (RFC 7959): bodies that peers send, and bodies that they fetch.

use super::{CoapMessage, Counters, Limits};
use crate::prefix;
use core::time::Duration;
use gatewright_wire::coap::{Block, Code};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};

/// Key of a transfer: the peer, and a hash of code and options.
pub(super) type Key = (SocketAddr, u64);

/// One address may have this fraction of what is kept; beyond, its own oldest transfer is dropped.
const SHARE: usize = 4;

/// Bodies kept, each with the time of its last use.
#[derive(Debug)]
struct Kept<T> {
    entries: HashMap<Key, (Duration, T)>,
    octets: usize,
    shares: HashMap<IpAddr, AddressShare>,
}

/// Share of one address.
#[derive(Clone, Copy, Debug, Default)]
struct AddressShare {
    entries: usize,
    octets: usize,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), octets: 0, shares: HashMap::new() }
    }
}

fn network((peer, _): &Key) -> IpAddr {
    prefix::network(peer.ip())
}

/// Size in octets.
trait Weigh {
    fn weight(&self) -> usize;
}

impl Weigh for Vec<u8> {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for CoapMessage {
    fn weight(&self) -> usize {
        self.payload.len()
    }
}

impl<T: Weigh> Kept<T> {
    fn remove(&mut self, key: &Key) -> Option<T> {
        let (_, value) = self.entries.remove(key)?;
        self.octets -= value.weight();
        if let Entry::Occupied(mut share) = self.shares.entry(network(key)) {
            share.get_mut().entries -= 1;
            share.get_mut().octets -= value.weight();
            if share.get().entries == 0 {
                share.remove();
            }
        }
        Some(value)
    }

    fn insert(&mut self, key: Key, now: Duration, value: T) {
        self.remove(&key);
        self.octets += value.weight();
        let share = self.shares.entry(network(&key)).or_default();
        share.entries += 1;
        share.octets += value.weight();
        self.entries.insert(key, (now, value));
    }

    /// Frees space for `more` octets of a peer; returns the number of dropped transfers.
    fn make_room(
        &mut self,
        (key, more): (&Key, usize),
        now: Duration,
        age: Duration,
        most: (usize, usize),
    ) -> u64 {
        let (entries_max, octets_max) = most;
        let share = (entries_max / SHARE, octets_max / SHARE);
        let mut dropped = self.make_share((key, more), (now, age), share);
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

    /// Frees space in the address's share, at its own expense; returns the number of dropped
    /// transfers.
    fn make_share(
        &mut self,
        (key, more): (&Key, usize),
        (now, age): (Duration, Duration),
        (entries_max, octets_max): (usize, usize),
    ) -> u64 {
        let address = network(key);
        let mut dropped = 0;
        loop {
            let AddressShare { entries, octets } =
                self.shares.get(&address).copied().unwrap_or_default();
            if entries < entries_max.max(1) && octets + more <= octets_max {
                return dropped;
            }
            let own = self.entries.iter().filter(|(key, _)| network(key) == address);
            let Some((&oldest, &(at, _))) = own.min_by_key(|(_, (at, _))| *at) else {
                return dropped;
            };
            dropped += u64::from(at.saturating_add(age) > now);
            self.remove(&oldest);
        }
    }
}

/// Incomplete bodies of requests.
#[derive(Debug, Default)]
pub(super) struct Uploads(Kept<Vec<u8>>);

/// Result of a block of a request's body.
pub(super) enum Upload {
    /// The body is complete.
    Whole(Vec<u8>),
    /// The next block is expected.
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
        counters.uploads_full += self.0.make_room((&key, body.len()), now, limits.blocks_age, most);
        self.0.insert(key, now, body);
        Upload::Continue
    }
}

/// Responses that peers fetch block by block.
#[derive(Debug, Default)]
pub(super) struct Downloads(Kept<CoapMessage>);

impl Downloads {
    /// Keeps an answer.
    pub(super) fn keep(
        &mut self,
        key: Key,
        answer: CoapMessage,
        (now, limits, counters): (Duration, &Limits, &mut Counters),
    ) {
        let most = (limits.downloads, limits.downloads_octets);
        let more = (&key, answer.payload.len());
        let room = self.0.make_room(more, now, limits.blocks_age, most);
        counters.downloads_full += room;
        self.0.insert(key, now, answer);
    }

    /// Removes a response, to serve its next block.
    pub(super) fn take(&mut self, key: &Key, now: Duration, age: Duration) -> Option<CoapMessage> {
        let (at, _) = self.0.entries.get(key)?;
        let fresh = at.saturating_add(age) > now;
        self.0.remove(key).filter(|_| fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1_024;

    /// A peer's block of this number, with more to come.
    fn send(
        uploads: &mut Uploads,
        peer: (&str, u64),
        number: u32,
        counters: &mut Counters,
    ) -> bool {
        let limits = Limits { uploads: 40, uploads_octets: 64 * SIZE, ..Limits::default() };
        let (block, key) = (Block::new(number, true, SIZE).unwrap(), peer.0.parse().unwrap());
        let bounds = (Duration::from_secs(1), &limits, counters);
        matches!(uploads.take((key, peer.1), block, &[0; SIZE], bounds), Upload::Continue)
    }

    /// Many small bodies and few large ones, from one address and from its whole network.
    #[test]
    fn an_address_pushes_out_only_its_own() {
        for hostile in ["192.0.2.66:PORT", "[2001:db8::66:PORT]:5683"] {
            let (mut uploads, mut counters) = (Uploads::default(), Counters::default());
            for peer in ["192.0.2.7:5683", "[2001:db8:0:1::7]:5683"] {
                assert!(send(&mut uploads, (peer, 1), 0, &mut counters));
            }
            for port in 1..=200_u64 {
                let from = hostile.replace("PORT", &port.to_string());
                assert!(send(&mut uploads, (&from, port), 0, &mut counters));
            }
            assert_eq!((uploads.0.entries.len(), counters.uploads_full), (12, 190));
            let large = hostile.replace("PORT", "200");
            for number in 1..50 {
                assert!(send(&mut uploads, (&large, 200), number, &mut counters));
            }
            assert_eq!(uploads.0.entries.len(), 3, "the large one has pushed out its own");
            for peer in ["192.0.2.7:5683", "[2001:db8:0:1::7]:5683"] {
                assert!(send(&mut uploads, (peer, 1), 1, &mut counters), "{peer} goes on");
            }
            assert_eq!(uploads.0.shares.len(), 3);
        }
    }
}
