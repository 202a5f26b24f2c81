//! Recognises a request that came before: the same originator, identifier and content.

use super::Token;
use crate::limits::Limits;
use crate::primitive::{Operation, Request, Response};
use crate::status::Status;
use crate::time::Timestamp;
use core::cell::Cell;
use core::hash::{BuildHasherDefault, Hash, Hasher};
use core::net::IpAddr;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};

/// Names a remembered request: a hash over who asked and its identifier, and one over what it asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Key(u64, u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// Takes a key's first half, which is a hash already.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        self.0 = digest(self.0, octets);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A digest of octets: it only has to tell apart what one originator asks under one identifier, so
/// that whoever finds two contents of one digest harms nobody but itself.
fn digest(start: u64, octets: &[u8]) -> u64 {
    // The odd number next to 2^64 / φ: each bit of it has its say in the upper half.
    const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
    let step = |hash: u64, word: u64| (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let (words, rest) = octets.as_chunks::<8>();
    let hash = words.iter().fold(start, |hash, word| step(hash, u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(1, |word: u64, octet| word << 8 | u64::from(*octet));
    let length = u64::try_from(octets.len()).unwrap_or(u64::MAX);
    step(step(hash, rest), length)
}

/// The window of remembered requests.
#[derive(Debug)]
pub(super) struct Repeats {
    salt: u64,
    /// Oldest first. They come and go in this order, so that it is the numbers only that have to be
    /// looked for all over a large table.
    window: VecDeque<Known>,
    /// The number of the first of them; each later one's is the next.
    first: usize,
    numbers: HashMap<Key, usize, BuildHasherDefault<KeyHasher>>,
    /// Whether a rule let the request under way pass because of where it comes from.
    pub(super) by_place: Cell<bool>,
}

#[derive(Debug)]
struct Known {
    since: Timestamp,
    key: Key,
    /// Where it came from, if that is known.
    source: Option<IpAddr>,
    /// Whether it was allowed from there only.
    is_bound: bool,
    entry: Entry,
}

#[derive(Debug)]
enum Entry {
    /// Not answered yet; these asked again meanwhile.
    Asked {
        again: Vec<Token>,
        creates: bool,
    },
    Answered(Response),
    /// Refused without effect: who asks again asks anew.
    Refused,
}

/// How many may ask again while the first is not answered.
const ASKED_AGAIN_MAX: usize = 8;

#[derive(Debug)]
pub(super) enum Seen {
    /// Not seen before; a key if the request is one that is remembered.
    New(Option<Key>),
    Answered(Response),
    /// The token will be answered together with the first.
    InProgress,
    /// As many as may wait for the first one's answer do so already.
    TooOften,
}

impl Repeats {
    pub(super) fn new(salt: u64) -> Self {
        Self {
            salt,
            window: VecDeque::new(),
            first: 0,
            numbers: HashMap::default(),
            by_place: Cell::new(false),
        }
    }

    /// Looks a request up and remembers it, unless it is a retrieval: those repeat harmlessly.
    ///
    /// What was allowed because it came from an address is new from any other: what allowed the
    /// first does not vouch for it.
    pub(super) fn recognise(
        &mut self,
        request: &Request,
        source: Option<IpAddr>,
        token: Token,
        now: Timestamp,
        limits: &Limits,
    ) -> Seen {
        // Without an identifier nothing can be recognised; without an originator the identifier
        // is nobody's (two devices may both register with request 1).
        let harmless = request.operation == Operation::Retrieve;
        if harmless || request.id.is_empty() || request.from.len() < 2 {
            return Seen::New(None);
        }
        self.forget_old(now, limits);
        let key = self.key(request);
        let creates = request.operation == Operation::Create;
        let asked = || Entry::Asked { again: Vec::new(), creates };
        let next = self.first.wrapping_add(self.window.len());
        let number = *self.numbers.entry(key).or_insert(next);
        let known = self.known(number);
        if known.as_ref().is_some_and(|known| known.is_bound && known.source != source) {
            return Seen::New(None);
        }
        match known.map(|known| &mut known.entry) {
            None => {
                let entry = asked();
                self.window.push_back(Known { since: now, key, source, is_bound: false, entry });
                Seen::New(Some(key))
            }
            Some(entry @ Entry::Refused) => {
                *entry = asked();
                Seen::New(Some(key))
            }
            Some(Entry::Asked { again, .. }) => {
                if again.len() >= ASKED_AGAIN_MAX {
                    return Seen::TooOften;
                }
                again.push(token);
                Seen::InProgress
            }
            Some(Entry::Answered(response)) => Seen::Answered(response.clone()),
        }
    }

    /// Notes whether it was allowed because of where it comes from; `before` is what was noted of
    /// the one that it is part of.
    pub(super) fn note_place(&mut self, key: Option<Key>, before: bool) {
        if self.by_place.get() {
            let number = key.and_then(|key| self.numbers.get(&key).copied());
            if let Some(known) = number.and_then(|number| self.known(number)) {
                known.is_bound = true;
            }
        }
        self.by_place.set(before || self.by_place.get());
    }

    /// Remembers the answer; who else is to get it.
    ///
    /// A refusal that has changed nothing is not: whoever asks again later, as an outbox does,
    /// may have mended what was missing.
    pub(super) fn answered(&mut self, key: Key, response: &Response) -> Vec<Token> {
        let number = self.numbers.get(&key).copied();
        let known = number.and_then(|number| self.known(number));
        let Some(Known { entry, .. }) = known else { return Vec::new() };
        match core::mem::replace(entry, Entry::Answered(response.clone())) {
            Entry::Asked { again, creates } => {
                if is_without_effect(response.status, creates) {
                    *entry = Entry::Refused;
                }
                again
            }
            Entry::Answered(_) | Entry::Refused => Vec::new(),
        }
    }

    /// Forgets every answer: what was answered has been taken back.
    pub(super) fn forget_answers(&mut self) {
        self.window.retain(|known| matches!(known.entry, Entry::Asked { .. }));
        self.first = 0;
        self.numbers = self.window.iter().enumerate().map(|(at, known)| (known.key, at)).collect();
    }

    fn forget_old(&mut self, now: Timestamp, limits: &Limits) {
        while let Some(oldest) = self.window.front() {
            let young = oldest.since.plus(limits.repeats_age) > now;
            if young && self.window.len() < limits.repeats {
                return;
            }
            self.numbers.remove(&oldest.key);
            self.window.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// What is remembered under this number.
    fn known(&mut self, number: usize) -> Option<&mut Known> {
        self.window.get_mut(number.wrapping_sub(self.first))
    }

    fn key(&self, request: &Request) -> Key {
        let mut hasher = DefaultHasher::new();
        self.salt.hash(&mut hasher);
        (&request.from, &request.id, request.operation, &request.to).hash(&mut hasher);
        let who = hasher.finish();
        (request.kind, request.result_content, request.content.is_some()).hash(&mut hasher);
        let content = request.content.as_deref().unwrap_or_default();
        Key(who, digest(hasher.finish(), content.as_bytes()))
    }
}

/// Whether a request that ended so has changed nothing, so that it may be tried as if it were new:
/// it was refused as such, or is a creation that found nobody.
const fn is_without_effect(status: Status, creates: bool) -> bool {
    match status {
        Status::RequestTimeout => false,
        Status::TargetNotReachable | Status::RemoteEntityNotReachable => creates,
        status => status.number() / 1_000 == 4,
    }
}
