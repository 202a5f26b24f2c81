//! Recognises a request that came before: the same originator, identifier and content.

use super::Token;
use crate::limits::Limits;
use crate::primitive::{Operation, Request, Response};
use crate::time::Timestamp;
use core::hash::{Hash, Hasher};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};

/// Names a remembered request: a hash over who asked, its identifier and what it asked.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Key(u64, u64);

/// The window of remembered requests.
#[derive(Debug)]
pub(super) struct Repeats {
    salt: u64,
    known: HashMap<Key, Entry>,
    order: VecDeque<(Timestamp, Key)>,
}

#[derive(Debug)]
enum Entry {
    /// Not answered yet; these asked again meanwhile.
    Asked(Vec<Token>),
    Answered(Response),
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
}

impl Repeats {
    pub(super) fn new(salt: u64) -> Self {
        Self { salt, known: HashMap::new(), order: VecDeque::new() }
    }

    /// Looks a request up and remembers it, unless it is a retrieval: those repeat harmlessly.
    pub(super) fn recognise(
        &mut self,
        request: &Request,
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
        match self.known.get_mut(&key) {
            None => {
                self.known.insert(key, Entry::Asked(Vec::new()));
                self.order.push_back((now, key));
                Seen::New(Some(key))
            }
            Some(Entry::Asked(again)) => {
                if again.len() < ASKED_AGAIN_MAX {
                    again.push(token);
                }
                Seen::InProgress
            }
            Some(Entry::Answered(response)) => Seen::Answered(response.clone()),
        }
    }

    /// Remembers the answer; who else is to get it.
    pub(super) fn answered(&mut self, key: Key, response: &Response) -> Vec<Token> {
        match self.known.get_mut(&key) {
            Some(entry) => match core::mem::replace(entry, Entry::Answered(response.clone())) {
                Entry::Asked(again) => again,
                Entry::Answered(_) => Vec::new(),
            },
            None => Vec::new(),
        }
    }

    /// Forgets every answer: what was answered has been taken back.
    pub(super) fn forget_answers(&mut self) {
        self.known.retain(|_, entry| matches!(entry, Entry::Asked(_)));
        self.order.retain(|(_, key)| self.known.contains_key(key));
    }

    fn forget_old(&mut self, now: Timestamp, limits: &Limits) {
        while let Some(&(since, key)) = self.order.front() {
            let young = since.plus(limits.repeats_age) > now;
            if young && self.order.len() < limits.repeats {
                return;
            }
            self.order.pop_front();
            self.known.remove(&key);
        }
    }

    fn key(&self, request: &Request) -> Key {
        let mut hasher = DefaultHasher::new();
        self.salt.hash(&mut hasher);
        (&request.from, &request.id, request.operation, &request.to).hash(&mut hasher);
        let who = hasher.finish();
        (request.kind, request.result_content, &request.content).hash(&mut hasher);
        Key(who, hasher.finish())
    }
}
