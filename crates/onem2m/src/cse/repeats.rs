//! Recognition of repeated requests: the same originator, identifier and content.

use super::{Cse, Recipient, RequestContext, Token};
use crate::address::node_of;
use crate::answer_octets::Reservation;
use crate::clock::Moment;
use crate::limits::Limits;
use crate::primitive::{Operation, Release, Request, Response};
use crate::resource::{Resource, push_json_text, push_number};
use crate::status::Status;
use core::fmt::Write;
use core::hash::{BuildHasherDefault, Hash, Hasher};
use core::net::IpAddr;
use core::time::Duration;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Key of a remembered request: a hash of originator and identifier, and one of its content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RequestKey(u64, u64);

impl Hash for RequestKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// Takes a key's first half, which is already a hash.
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

/// Digest of octets: it distinguishes only the requests of one originator under one identifier, so
/// an originator that forges a collision harms only itself.
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

type Table<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// Remembered requests.
#[derive(Debug)]
pub(super) struct Repeats {
    salt: u64,
    /// Unanswered requests. None is forgotten before its answer: their number is limited with that
    /// of waiting and outgoing requests.
    asked: Table<RequestKey, UnansweredRequest>,
    answers: Answers,
}

/// Address of a request.
#[derive(Clone, Copy, Debug)]
struct RequestSource {
    /// The address, if known.
    source: Option<IpAddr>,
    /// Whether it was allowed from this address only.
    is_bound: bool,
}

impl RequestSource {
    /// Whether the permission given here does not cover a request from `source`.
    fn is_closed_to(self, source: Option<IpAddr>) -> bool {
        self.is_bound && self.source != source
    }
}

#[derive(Debug)]
struct UnansweredRequest {
    peer: u64,
    place: RequestSource,
    /// Repetitions that wait for the answer.
    again: Vec<Token>,
    creates: bool,
}

/// Octets of a key's text beside those of the request.
const KEY_OCTETS: usize = 16;

/// Repetitions that may wait for the first one's answer.
const ASKED_AGAIN_MAX: usize = 8;

#[derive(Debug)]
pub(super) enum Recognition {
    /// A new request, with its key if it is remembered.
    New(Option<RequestKey>),
    /// With the row of the answer's content, if that is not in memory.
    Answered(Response, Option<u64>),
    /// A repetition, answered together with the first.
    InProgress,
    /// A repetition beyond the limit of waiting ones.
    TooOften,
}

impl Repeats {
    pub(super) fn new(salt: u64) -> Self {
        let (asked, answers) = (Table::default(), Answers::default());
        Self { salt, asked, answers }
    }

    /// Looks a request up and remembers it, unless it is a retrieval, whose repetition is harmless.
    ///
    /// A request allowed because of its address is new from any other address: the permission does
    /// not cover that one.
    pub(super) fn recognise(
        &mut self,
        request: &Request,
        source: Option<IpAddr>,
        token: Token,
        now: Moment,
        limits: &Limits,
    ) -> Recognition {
        // Without an identifier nothing can be recognised; without an originator the identifier
        // is nobody's (two devices may both register with request 1).
        let harmless = request.operation == Operation::Retrieve;
        if harmless || request.id.is_empty() || request.from.len() < 2 {
            return Recognition::New(None);
        }
        self.answers.forget_old(now, limits.repeats_age);
        let key = self.key(request);
        if let Some(known) = self.answers.get_mut(key) {
            let closed = known.place.is_closed_to(source);
            return if closed {
                Recognition::New(None)
            } else {
                Recognition::Answered(known.response.clone(), known.row)
            };
        }
        if let Some(asked) = self.asked.get_mut(&key) {
            if asked.place.is_closed_to(source) {
                return Recognition::New(None);
            }
            if asked.again.len() >= ASKED_AGAIN_MAX {
                return Recognition::TooOften;
            }
            asked.again.push(token);
            return Recognition::InProgress;
        }
        let creates = request.operation == Operation::Create;
        let peer = self.peer(request);
        let place = RequestSource { source, is_bound: false };
        self.asked.insert(key, UnansweredRequest { peer, place, again: Vec::new(), creates });
        Recognition::New(Some(key))
    }

    /// Records that the unanswered request was allowed because of its address.
    fn bind(&mut self, key: RequestKey) {
        if let Some(asked) = self.asked.get_mut(&key) {
            asked.place.is_bound = true;
        }
    }

    /// Remembers the answer; returns the waiting repetitions.
    ///
    /// A refusal without effect is not remembered: when the originator retries later, as an outbox
    /// does, the cause may be gone.
    pub(super) fn answered(
        &mut self,
        key: RequestKey,
        response: &Response,
        now: Moment,
        limits: &Limits,
    ) -> Vec<Token> {
        let Some(UnansweredRequest { peer, place, again, creates }) = self.asked.remove(&key)
        else {
            return Vec::new();
        };
        if !is_without_effect(response.status, creates) {
            // Memory of requests has a bound of its own.
            let response = Response { reservation: Reservation::default(), ..response.clone() };
            let (before, after, after_of_peer) = (NOWHERE, NOWHERE, NOWHERE);
            let since = now;
            let row = None;
            let known = AnsweredRequest {
                since,
                key,
                peer,
                place,
                response,
                row,
                before,
                after,
                after_of_peer,
            };
            self.answers.add(known, limits.repeats);
        }
        again
    }

    /// Forgets every answer, since the answered changes were undone.
    pub(super) fn forget_answers(&mut self) {
        self.answers = Answers::default();
    }

    /// Peer whose share a request uses: its address, whose owner can name any number of
    /// originators; without an address its originator, or a remote originator's CSE.
    fn peer(&self, request: &Request) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.salt.hash(&mut hasher);
        match request.source {
            Some(IpAddr::V6(address)) => {
                // One network's: a host has as many addresses in it as it likes.
                let [network @ .., _, _, _, _] = address.segments();
                network.hash(&mut hasher);
            }
            Some(address) => address.hash(&mut hasher),
            None => node_of(&request.from).hash(&mut hasher),
        }
        hasher.finish()
    }

    fn key(&self, request: &Request) -> RequestKey {
        let Request { operation, to, from, id, resource_type, result_content, .. } = request;
        let content = request.content.as_deref();
        // Hashed as one: each piece for itself takes as long as all of them.
        let mut text = Vec::with_capacity(KEY_OCTETS + from.len() + id.len() + to.len());
        text.extend(self.salt.to_le_bytes());
        // No UTF-8 has this octet: one piece does not go on in the next.
        for piece in [from, id, to] {
            text.extend(piece.as_bytes());
            text.push(u8::MAX);
        }
        text.push(operation.number());
        let mut hasher = DefaultHasher::new();
        hasher.write(&text);
        let who = hasher.finish();
        let resource_type = resource_type.map_or(0, |it| u64::from(it.number()));
        let result_content = result_content.map_or(u64::MAX, u64::from);
        let start = [resource_type, result_content, u64::from(content.is_some())];
        let start = start.into_iter().fold(who, |hash, word| digest(hash, &word.to_le_bytes()));
        RequestKey(who, digest(start, content.unwrap_or_default().as_bytes()))
    }
}

impl Cse {
    /// Records at the request that came from outside whether a part of it was allowed because of its
    /// address: before it is answered, and when it begins to wait.
    pub(super) fn note_place(&mut self, asker: &RequestContext) {
        if !asker.by_place.get() {
            return;
        }
        let mut whom = &asker.whom;
        while let Recipient::Member(fan, _) = whom {
            let Some(fan) = self.fans.get(fan) else { return };
            fan.asker.by_place.set(true);
            whom = &fan.asker.whom;
        }
        if let Recipient::Outside(_, Some(key)) = whom {
            self.repeats.bind(*key);
        }
    }

    /// A line that identifies this step's requests after a restart.
    pub(super) fn remembered(&mut self) -> Option<Arc<str>> {
        let mut line = core::mem::take(&mut self.scratch);
        for &key in self.ledger.remembered() {
            let Some(known) = self.repeats.answers.get_mut(key) else { continue };
            // What was made is stored as it was answered, mostly.
            let content = known.response.content.as_ref();
            let row = content.and_then(|content| self.ledger.row_of(content));
            if line.is_empty() {
                line.push_str("{\"_r\":[");
            } else {
                line.push(',');
            }
            known.write(row, &mut line);
        }
        let is_empty = line.is_empty();
        self.scratch = line;
        (!is_empty).then(|| self.written(|_, line| line.push_str("]}")))
    }

    /// Remembers the requests of a stored line; an invalid line is ignored.
    pub(super) fn recall(&mut self, line: &str) {
        let Ok(StoredLine { requests }) = serde_json::from_str(line) else { return };
        for request in &requests {
            if let Some(known) = self.known_of(request) {
                self.repeats.answers.add(known, self.config.limits.repeats);
            }
        }
    }

    fn known_of(&self, request: &StoredRequest<'_>) -> Option<AnsweredRequest> {
        let &StoredRequest { key: [first, second], since, peer, source, bound, .. } = request;
        let key = RequestKey(first, second);
        if self.repeats.answers.slot_of.contains_key(&key) {
            return None;
        }
        let status = Status::from_number(request.rsc)?;
        let release = Release::parse(&request.rvi).ok()?;
        let mut response = Response::new(status, &*request.rqi, release);
        response.location = request.at.as_deref().map(Arc::from);
        let row = request.row.and_then(|row| self.tree.get(self.tree.by_seq(row)?));
        let content = || request.pc.as_deref().map(Arc::from);
        response.content = row.map(Resource::to_text).or_else(content);
        let is_elsewhere = response.content.is_none();
        Some(AnsweredRequest {
            since: Moment::from_micros(since),
            key,
            peer,
            place: RequestSource { source, is_bound: bound },
            response,
            row: request.row.filter(|_| is_elsewhere),
            before: NOWHERE,
            after: NOWHERE,
            after_of_peer: NOWHERE,
        })
    }
}

/// Remembered answers: a list of all and one of each peer, oldest first, linked through their
/// slots.
///
/// The oldest answer of a peer is forgotten first. It leaves its slot to the next answer, so that
/// slots of one age lie together.
#[derive(Debug)]
struct Answers {
    slots: Vec<Option<AnsweredRequest>>,
    free: Vec<usize>,
    oldest: usize,
    latest: usize,
    slot_of: Table<RequestKey, usize>,
    peers: Table<u64, PeerAnswers>,
    /// Each peer, after the number of its answers.
    by_count: BTreeSet<(usize, u64)>,
}

#[derive(Debug)]
struct AnsweredRequest {
    since: Moment,
    key: RequestKey,
    peer: u64,
    place: RequestSource,
    response: Response,
    /// Of an earlier run's answer, the row of its content, if that is not in memory.
    row: Option<u64>,
    before: usize,
    after: usize,
    /// The next one of the same peer.
    after_of_peer: usize,
}

impl AnsweredRequest {
    /// Appends what is stored of it: a [`StoredRequest`] in JSON, piece by piece, which takes less
    /// time than a serialiser. `row` is that of the resource that is the answer's content.
    fn write(&self, row: Option<u64>, line: &mut String) {
        let Response { status, id, release, content, location, .. } = &self.response;
        let RequestKey(who, what) = self.key;
        let peer = self.peer;
        let bound = if self.place.is_bound { "true" } else { "false" };
        let numbers = [
            ("{\"key\":[", who),
            (",", what),
            ("],\"since\":", self.since.micros()),
            (",\"peer\":", peer),
            (",\"rsc\":", status.number().into()),
        ];
        for (name, number) in numbers {
            line.push_str(name);
            push_number::<10>(line, number);
        }
        if let Some(source) = self.place.source {
            line.push_str(",\"source\":\"");
            push_address(source, line);
            line.push('"');
        }
        line.push_str(",\"bound\":");
        line.push_str(bound);
        let stated = content.as_deref().filter(|_| row.is_none());
        let texts = [
            (",\"rqi\":", Some(&**id)),
            (",\"rvi\":", Some(release.text())),
            (",\"pc\":", stated),
            (",\"at\":", location.as_deref()),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                line.push_str(name);
                push_json_text(line, text);
            }
        }
        if let Some(row) = row {
            line.push_str(",\"row\":");
            push_number::<10>(line, row);
        }
        line.push('}');
    }
}

/// Appends an address, one of IPv4 without the formatting machinery.
fn push_address(address: IpAddr, text: &mut String) {
    let IpAddr::V4(address) = address else {
        // A string takes whatever is written to it.
        let _ = write!(text, "{address}");
        return;
    };
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        push_number::<10>(text, octet.into());
    }
}

#[derive(Debug)]
struct PeerAnswers {
    oldest: usize,
    latest: usize,
    count: usize,
}

/// No slot.
const NOWHERE: usize = usize::MAX;

impl Default for Answers {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            oldest: NOWHERE,
            latest: NOWHERE,
            slot_of: Table::default(),
            peers: Table::default(),
            by_count: BTreeSet::new(),
        }
    }
}

impl Answers {
    fn get_mut(&mut self, key: RequestKey) -> Option<&mut AnsweredRequest> {
        let slot = *self.slot_of.get(&key)?;
        self.known(slot)
    }

    fn known(&mut self, slot: usize) -> Option<&mut AnsweredRequest> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Remembers an answer. Beyond `limit`, its peer loses its oldest if it has more than an equal
    /// share, otherwise the peer with the most does: no peer loses answers within its share.
    fn add(&mut self, known: AnsweredRequest, limit: usize) {
        let peer = known.peer;
        let count = self.append(known);
        let share = limit.checked_div(self.peers.len()).unwrap_or(limit);
        if self.slot_of.len() > limit && count > share {
            // As many as before.
            self.forget_of(peer);
            return;
        }
        self.recount(peer, count.saturating_sub(1), count);
        if self.slot_of.len() > limit
            && let Some(&(count, most)) = self.by_count.last()
        {
            self.forget_of(most);
            self.recount(most, count, count.saturating_sub(1));
        }
    }

    fn forget_old(&mut self, now: Moment, age: Duration) {
        while let Some(AnsweredRequest { since, peer, .. }) = self.known(self.oldest) {
            let (since, peer) = (*since, *peer);
            if since.plus(age) > now {
                return;
            }
            let count = self.peers.get(&peer).map_or(0, |it| it.count);
            self.forget_of(peer);
            self.recount(peer, count, count.saturating_sub(1));
        }
    }

    /// Appends an answer to both lists; returns its peer's number of answers.
    fn append(&mut self, known: AnsweredRequest) -> usize {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let (key, peer, before) = (known.key, known.peer, self.latest);
        let known = AnsweredRequest { before, ..known };
        match self.slots.get_mut(slot) {
            Some(free) => *free = Some(known),
            None => self.slots.push(Some(known)),
        }
        match self.known(before) {
            Some(before) => before.after = slot,
            None => self.oldest = slot,
        }
        self.latest = slot;
        self.slot_of.insert(key, slot);
        let first = PeerAnswers { oldest: slot, latest: NOWHERE, count: 0 };
        let its = self.peers.entry(peer).or_insert(first);
        its.count += 1;
        let (count, before) = (its.count, core::mem::replace(&mut its.latest, slot));
        if let Some(before) = self.known(before) {
            before.after_of_peer = slot;
        }
        count
    }

    /// Removes a peer's oldest answer from both lists.
    fn forget_of(&mut self, peer: u64) {
        let Some(its) = self.peers.get_mut(&peer) else { return };
        let slot = its.oldest;
        let Some(known) = self.slots.get_mut(slot).and_then(Option::take) else { return };
        its.oldest = known.after_of_peer;
        its.count = its.count.saturating_sub(1);
        if its.count == 0 {
            self.peers.remove(&peer);
        }
        self.free.push(slot);
        self.slot_of.remove(&known.key);
        match self.known(known.before) {
            Some(before) => before.after = known.after,
            None => self.oldest = known.after,
        }
        match self.known(known.after) {
            Some(after) => after.before = known.before,
            None => self.latest = known.before,
        }
    }

    /// Updates a peer's number of answers.
    fn recount(&mut self, peer: u64, before: usize, now: usize) {
        self.by_count.remove(&(before, peer));
        if now > 0 {
            self.by_count.insert((now, peer));
        }
    }
}

/// Whether a request with this status had no effect and may be retried as new: it was refused as
/// such, or is a creation whose receiver was not reachable.
const fn is_without_effect(status: Status, creates: bool) -> bool {
    match status {
        Status::RequestTimeout => false,
        Status::TargetNotReachable | Status::RemoteEntityNotReachable => creates,
        status => status.number() / 1_000 == 4,
    }
}

/// The requests that a step made known, as the store keeps them.
#[derive(Deserialize)]
struct StoredLine<'text> {
    #[serde(rename = "_r", borrow)]
    requests: Vec<StoredRequest<'text>>,
}

/// One answered request, as the store keeps it and [`AnsweredRequest::write`] writes it.
#[derive(Deserialize)]
struct StoredRequest<'text> {
    key: [u64; 2],
    since: u64,
    peer: u64,
    #[serde(default)]
    source: Option<IpAddr>,
    bound: bool,
    rsc: u16,
    #[serde(borrow)]
    rqi: Cow<'text, str>,
    #[serde(borrow)]
    rvi: Cow<'text, str>,
    /// Row of the resource that is the answer's content.
    #[serde(default)]
    row: Option<u64>,
    #[serde(default, borrow)]
    pc: Option<Cow<'text, str>>,
    #[serde(default, borrow)]
    at: Option<Cow<'text, str>>,
}
