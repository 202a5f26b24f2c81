//! Duplicate detection: recent message identifiers with their replies (RFC 7252 §4.5).

use super::{Counters, EXCHANGE_LIFETIME, Limits};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

type Key = (SocketAddr, u16);

/// Recent messages.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    seen: HashMap<Key, SeenMessage>,
    /// In order of arrival: time, and a number that distinguishes a reused identifier.
    order: VecDeque<(Duration, Key, u64)>,
    counted: u64,
    octets: usize,
}

#[derive(Debug)]
struct SeenMessage {
    until: Duration,
    number: u64,
    reply: Option<Vec<u8>>,
}

/// Whether a message is a duplicate.
pub(super) enum RefusedMessage {
    /// It is new, and now recorded.
    New,
    /// It is a duplicate; the earlier reply, if there was one.
    Repeated(Option<Vec<u8>>),
}

impl Repeats {
    /// Records a message identifier valid for `lifetime`.
    pub(super) fn note(
        &mut self,
        key: Key,
        now: Duration,
        lifetime: Duration,
        (limits, counters): (&Limits, &mut Counters),
    ) -> RefusedMessage {
        self.forget_old(now, limits, counters);
        if let Some(seen) = self.seen.get(&key).filter(|seen| seen.until > now) {
            return RefusedMessage::Repeated(seen.reply.clone());
        }
        self.counted += 1;
        let number = self.counted;
        let until = now.saturating_add(lifetime);
        if let Some(old) = self.seen.insert(key, SeenMessage { until, number, reply: None }) {
            self.octets -= old.reply.map_or(0, |reply| reply.len());
        }
        self.order.push_back((now, key, number));
        RefusedMessage::New
    }

    /// Keeps a reply for duplicates of the message.
    pub(super) fn reply(&mut self, key: Key, octets: &[u8]) {
        if let Some(seen) = self.seen.get_mut(&key) {
            self.octets -= seen.reply.as_ref().map_or(0, Vec::len);
            self.octets += octets.len();
            seen.reply = Some(octets.to_vec());
        }
    }

    fn forget_old(&mut self, now: Duration, limits: &Limits, counters: &mut Counters) {
        while let Some(&(since, key, number)) = self.order.front() {
            let old = since.saturating_add(EXCHANGE_LIFETIME) <= now;
            let full = self.order.len() >= limits.repeats || self.octets > limits.repeats_octets;
            if !old && !full {
                return;
            }
            counters.repeats_full += u64::from(!old);
            self.order.pop_front();
            if self.seen.get(&key).is_some_and(|seen| seen.number == number)
                && let Some(seen) = self.seen.remove(&key)
            {
                self.octets -= seen.reply.map_or(0, |reply| reply.len());
            }
        }
    }
}
