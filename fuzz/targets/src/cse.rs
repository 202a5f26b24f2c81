//! A CSE as a machine: any requests in either serialisation, commits that fail, entities that answer
//! or do not, and time; and whatever rows an earlier run may have left.

use core::time::Duration;
use gatewright_onem2m::audit::Audit;
use gatewright_onem2m::filter::Usage;
use gatewright_onem2m::{
    Batch, Cse, CseConfig, CseType, Filter, Input, Limits, NameKey, Operation, Output,
    PresentInstances, RecordBlock, Request, Response, RowChange, Serialisation, Status, StoredItem,
    Token, Unreachable,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// 2026-11-21T13:00:00Z.
const START: Duration = Duration::from_hours(498_685);
/// Requests of one run at most.
const STEPS_MAX: u64 = 200;
/// Outputs of one step at most: what a CSE does of itself ends.
const OUTPUTS_MAX: usize = 10_000;
/// Of a step's first octet: the request is CBOR and not JSON.
const CBOR: u8 = 1;
/// The request is one that is observed.
const OBSERVED: u8 = 2;
/// What it has stored could not be.
const FULL: u8 = 4;
/// Other entities are away.
const AWAY: u8 = 8;

/// Each step is what happens (one octet: flags, and seconds that pass in the upper half), a length
/// (two octets) and a request. At the end the CSE is opened anew from what was stored.
pub fn cse(octets: &[u8]) {
    let mut world = World::new();
    let mut rest = octets;
    for number in 0..STEPS_MAX {
        let Some((&[how, high, low], behind)) = rest.split_first_chunk() else { break };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (request, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        world.now += Duration::from_secs(u64::from(how >> 4).pow(3));
        world.how = how;
        let read = if how & CBOR == 0 { Request::from_json } else { Request::from_cbor };
        let input = match read(request) {
            Ok(request) if how & OBSERVED != 0 => {
                world.observed.insert(number);
                Input::Observe { token: Token(number), request }
            }
            Ok(request) => Input::Request { token: Token(number), request },
            Err(_) => Input::Unobserve(Token(number.saturating_sub(1))),
        };
        world.step(input);
    }
    // What is left open ends by itself, or is stored.
    world.how = AWAY;
    for _ in 0..STEPS_MAX {
        let Some(due) = world.cse.poll_timeout() else { break };
        world.now = world.now.max(due);
        world.step(Input::Tick);
    }
    world.reopen();
}

/// Rows of an earlier run, each a length (two octets) and a body: what is no row is left out.
pub fn rows(octets: &[u8]) {
    let mut found = Vec::new();
    let mut rest = octets;
    while let Some((&[high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (body, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        let number = found.len() as u64 + 1;
        found.push((number, Arc::from(&*String::from_utf8_lossy(body))));
    }
    let next = found.len() as u64 + 1;
    let mut world = World::new();
    // Rows without a CSEBase are no store of a CSE.
    let Ok((cse, _)) = Cse::open(config(), START, found, next) else { return };
    world.cse = cse;
    world.how = AWAY;
    let mut discovery = Filter::default();
    discovery.usage = Some(Usage::Discovery);
    for (number, filter) in [(1, None), (2, Some(Box::new(discovery)))] {
        let request = Request {
            filter,
            ..Request::new(Operation::Retrieve, "cse-in", "CAdmin", format!("r{number}"))
        };
        world.step(Input::Request { token: Token(number), request });
    }
    let rows: Vec<_> = world.cse.rows().collect();
    assert!(rows.len() <= world.cse.resources() + usize::try_from(next).unwrap_or(usize::MAX));
}

fn config() -> CseConfig {
    let mut limits = Limits::default();
    // So small that a run meets them.
    limits.resources = 24;
    limits.depth = 6;
    limits.list_entries = 8;
    limits.subscriptions = 4;
    limits.group_members = 8;
    limits.notifications_waiting = 4;
    limits.notifications_waiting_total = 8;
    limits.batch = 4;
    limits.results = 8;
    limits.repeats = 8;
    limits.outstanding = 8;
    limits.instances = 4;
    limits.instance_octets = 2_000;
    limits.polled = 4;
    limits.observers = 4;
    limits.blocked = 2;
    limits.deferred = 8;
    limits.deferred_octets = 4_000;
    CseConfig {
        admin: Some("CAdmin".to_owned()),
        admitted_cses: vec!["/*".to_owned()],
        limits,
        audit: Audit::Strict,
        ..CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in")
    }
}

/// A CSE, what it has stored, and what happens to it.
struct World {
    cse: Cse,
    stored: BTreeMap<u64, Arc<str>>,
    next: u64,
    epoch: u64,
    now: Duration,
    how: u8,
    /// Requests that may have several answers, and those that have had theirs.
    observed: HashSet<u64>,
    answered: HashSet<u64>,
}

impl World {
    fn new() -> Self {
        let Ok((cse, _)) = Cse::open(config(), START, [], 1) else {
            unreachable!("a new store opens");
        };
        let mut world = Self {
            cse,
            stored: BTreeMap::new(),
            next: 1,
            epoch: 0,
            now: START,
            how: AWAY,
            observed: HashSet::new(),
            answered: HashSet::new(),
        };
        world.serve();
        world
    }

    fn step(&mut self, input: Input) {
        self.cse.handle(self.now, input);
        self.serve();
    }

    fn serve(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.cse.poll_output() {
            outputs += 1;
            assert!(outputs < OUTPUTS_MAX, "a CSE that does not come to rest");
            match output {
                Output::Store(batch) => self.store(batch),
                Output::Respond { token, response } => {
                    let is_first = self.answered.insert(token.0);
                    assert!(is_first || self.observed.contains(&token.0), "answered twice");
                    let text = response.to_json();
                    let again = Response::from_json(text.as_bytes());
                    assert!(again.is_ok(), "an answer that is none: {text}");
                    let octets = Serialisation::Cbor.write(&text);
                    let back = octets.and_then(|octets| Serialisation::Cbor.read(&octets));
                    assert!(back.is_ok(), "an answer that CBOR cannot say: {text}");
                }
                Output::Call(call) => {
                    let again = Request::from_json(call.request.to_json().as_bytes());
                    assert!(again.is_ok(), "a request that is none: {}", call.request.to_json());
                    let request = &call.request;
                    let response = Response::new(Status::Ok, request.id.as_str(), request.release);
                    let is_away = self.how & AWAY != 0;
                    let answer =
                        if is_away { Err(Unreachable(String::new())) } else { Ok(response) };
                    self.cse.handle(self.now, Input::Answer { call: call.id, answer });
                }
                _ => {}
            }
        }
    }

    fn store(&mut self, batch: Batch) {
        if batch.epoch < self.epoch {
            return;
        }
        if self.how & FULL != 0 {
            self.how &= !FULL;
            self.epoch += 1;
            self.cse.handle(self.now, Input::Failed(batch.number));
            return;
        }
        self.next = batch.next_seq;
        for record in batch.records {
            match record {
                RowChange::Put { seq, body } => drop(self.stored.insert(seq, body)),
                RowChange::Delete { seq } => drop(self.stored.remove(&seq)),
            }
        }
        self.cse.handle(self.now, Input::Committed(batch.number));
    }

    /// What was stored is what is there.
    fn reopen(&mut self) {
        let opened = Cse::open(config(), self.now, self.stored.clone(), self.next);
        let Ok((cse, unreadable)) = opened else { unreachable!("its CSEBase is there") };
        assert_eq!(unreadable, [], "rows that nobody can read");
        // Requests that were under way have failed by the start, and who is told of it has a letter.
        let now: BTreeMap<_, _> = cse.rows().collect();
        let is_ended = |seq: &u64, body: &str| {
            body.contains("\"rs\":3") && now.get(seq).is_some_and(|it| it.contains("\"rs\":2"))
        };
        let (ended, rows): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.cse.rows().partition(|(seq, body)| is_ended(seq, body));
        let is_as_before =
            |seq: &u64| !ended.contains_key(seq) && (ended.is_empty() || *seq < self.next);
        let kept: BTreeMap<_, _> = now.iter().filter(|(seq, _)| is_as_before(seq)).collect();
        assert_eq!(kept, rows.iter().collect::<BTreeMap<_, _>>());
    }
}

/// A block of records behind the version and a key; a CSE is opened with it.
pub fn record_block(octets: &[u8]) {
    let key = NameKey::new([1, 2]);
    let empty = RecordBlock::of_rows(0, key, []);
    let mut whole: Vec<u8> = empty.as_octets().iter().copied().take(BLOCK_HEADER).collect();
    whole.extend(octets);
    let mut present = PresentInstances::new();
    (0..RecordBlock::NUMBERS).for_each(|place| present.insert(place));
    let block = RecordBlock::from_octets(0, whole, present, key);
    assert!(block.is_some(), "the header is ours");
    let Some(block) = block else { return };
    let records = u64::try_from(block.summaries().count()).unwrap_or(u64::MAX);
    assert!(records <= RecordBlock::NUMBERS);
    let items = [StoredItem::Records(Box::new(block))];
    let _refused = Cse::open_stored(config(), Duration::ZERO, items, 1).is_err();
}

/// Octets of a block's version and key.
const BLOCK_HEADER: usize = 17;
