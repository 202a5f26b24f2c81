//! The machine: what comes in, what goes out, and what waits for the store in between.

mod access;
mod announce;
mod auditing;
mod calls;
mod consent;
mod create;
mod deferred;
mod delete;
mod discover;
mod flex;
mod forward;
mod group;
mod instance;
mod later;
mod ledger;
mod monitor;
mod nonblocking;
mod notify;
mod observe;
mod outbox;
mod polling;
mod registrar;
mod repeats;
mod retrieve;
mod rows;
mod sponsor;
mod subscription;
mod target;
mod update;
mod watch;

use crate::address::Address;
use crate::audit::{Asked, Audit, Entry, Part};
use crate::kind::Kind;
use crate::limits::{Counters, Limits};
use crate::primitive::{Operation, Release, Request, Response, ResponseType};
use crate::resource::Resource;
use crate::status::{Refusal, Status};
use crate::time::Timestamp;
use crate::tree::{Record, Slot, Tree};
use access::source_of;
use auditing::Refusals;
use calls::Calls;
pub use calls::{Call, DeviceCall, Unreachable, device_address};
use consent::Consents;
use core::net::IpAddr;
use core::time::Duration;
use deferred::Deferred;
use group::Fans;
use later::Later;
use ledger::Ledger;
use notify::Verifications;
use observe::Observers;
use outbox::Outbox;
pub use outbox::{DEVICE_LANE, Gather, Letter, Verdict};
use polling::Channels;
pub use registrar::Registrar;
use registrar::Registration;
use repeats::Repeats;
use serde_json::{Map, json};
use std::borrow::Cow;
use std::sync::Arc;
use target::Target;
use watch::Watches;

/// Names a requester, chosen by the caller; an answer comes out with the token of its request.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Token(pub u64);

/// Names a request that the CSE sends; its answer goes in with the same id.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CallId(pub u64);

/// What kind of node the CSE serves (m2m:cseTypeID).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CseType {
    /// 1: the infrastructure node's, the root of a service provider's tree.
    Infrastructure,
    /// 2: a middle node's, such as a gateway.
    Middle,
    /// 3: an application service node's.
    Application,
}

impl CseType {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::Infrastructure => 1,
            Self::Middle => 2,
            Self::Application => 3,
        }
    }
}

/// Who a CSE is and whom it admits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// What kind of node it serves.
    pub cse_type: CseType,
    /// CSE-ID with its leading slash, `/id-in`.
    pub cse_id: String,
    /// Name of the CSEBase, `cse-in`.
    pub name: String,
    /// Identifier of the service provider with its two slashes, `//example.com`.
    pub provider: String,
    /// The originator that may do everything; none by default.
    pub admin: Option<String>,
    /// Where the CSE can be reached: URLs.
    pub points_of_access: Vec<String>,
    /// Patterns of AE-IDs that may register; `*` stands for any characters.
    pub admitted_entities: Vec<String>,
    /// Patterns of CSE-IDs that may register.
    pub admitted_cses: Vec<String>,
    /// Patterns of AE-IDs that such a CSE may register here by its own certificate, for others.
    pub sponsored_entities: Vec<String>,
    /// Whose AEs that came without a certificate such a CSE takes over, as `/id-mn/Cphd-*`: its
    /// CSE-ID, and a pattern of AE-IDs of this CSE.
    pub adopted_entities: Vec<String>,
    /// The CSEs that are beyond those registered here, as `/id-mn/id-leaf`: the one that is here and
    /// sends on what the other asks, and the other.
    pub cses_beyond: Vec<String>,
    /// The CSE that this one registers at.
    pub registrar: Option<Registrar>,
    /// Bounds.
    pub limits: Limits,
    /// Whether each request is noted, and what becomes of one that cannot be.
    pub audit: Audit,
}

impl Config {
    /// A CSE that admits any AE and no other CSE, without an administrator. From the CSEs that it
    /// may come to admit it takes devices.
    pub fn new(cse_type: CseType, cse_id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            cse_type,
            cse_id: cse_id.into(),
            name: name.into(),
            provider: "//gatewright.invalid".to_owned(),
            admin: None,
            points_of_access: Vec::new(),
            admitted_entities: vec!["C*".to_owned(), "S*".to_owned()],
            admitted_cses: Vec::new(),
            sponsored_entities: vec!["Cphd-*".to_owned()],
            adopted_entities: Vec::new(),
            cses_beyond: Vec::new(),
            registrar: None,
            limits: Limits::default(),
            audit: Audit::Off,
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A request came in from outside: over whatever binding, and whoever it says that it is, it
    /// is not this CSE.
    Request {
        /// Comes out with the answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// A request that the process around the machine makes itself, as an entity of its own or as
    /// this CSE, which may do everything. Nothing that was heard from anybody comes in so.
    Own {
        /// Comes out with the answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// A retrieval that is to be answered again whenever the answer is another, until
    /// [`Self::Unobserve`]; see [`Cse::is_observed`].
    Observe {
        /// Comes out with each answer.
        token: Token,
        /// The request.
        request: Request,
    },
    /// No more answers to this one.
    Unobserve(Token),
    /// A request of our own is to arrive, however long it takes; accepted (1000) once stored.
    Post {
        /// Comes out with the answer.
        token: Token,
        /// The request.
        letter: Letter,
    },
    /// A request, and a letter of our own that is to arrive if the request is done, or if what it
    /// makes is there already: one outcome, one answer. Refused before anything is done if the
    /// letter has no room.
    AskAndPost {
        /// Comes out with the answer to the request.
        token: Token,
        /// The request.
        request: Request,
        /// What is posted in the same batch.
        letter: Box<Letter>,
    },
    /// Several things at once: what they have stored is stored together or not at all.
    Together(Vec<Self>),
    /// A request that was sent has been answered, or will not be.
    Answer {
        /// Of the [`Output::Call`].
        call: CallId,
        /// The answer.
        answer: Result<Response, Unreachable>,
    },
    /// Every batch up to this number is stored.
    Committed(u64),
    /// The batch of this number, and every later one, could not be stored.
    Failed(u64),
    /// A request was refused before it came here: it is counted for the audit log.
    Refused {
        /// Who is said to have asked.
        from: String,
        /// From which address, if that is known.
        address: Option<IpAddr>,
    },
    /// Nobody waits for this answer that came out.
    Unheard(Token),
    /// Nothing but time passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Store this batch, then say [`Input::Committed`] or [`Input::Failed`].
    Store(Batch),
    /// Give this answer.
    Respond {
        /// Of the request.
        token: Token,
        /// The answer.
        response: Response,
    },
    /// Send this request, then say [`Input::Answer`].
    Call(Box<Call>),
    /// Ask this device, then say [`Input::Answer`].
    AskDevice(Box<DeviceCall>),
    /// The receiver of this lane does not know the place that its first letter is for, or who
    /// asks: it may have lost its memory. The letter is kept and tried again; whoever made the place
    /// may do so again.
    Lost {
        /// The lane.
        lane: Arc<str>,
    },
}

/// Records and what the audit log says of them, stored together or not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// Counts the batches of one run, from 1.
    pub number: u64,
    /// Counts the failures of one run: a batch made before the machine heard of a failure has
    /// an older epoch than those after, and is not to be stored.
    pub epoch: u64,
    /// The number that the next row will have.
    pub next_seq: u64,
    /// What to store, in this order.
    pub records: Vec<Record>,
    /// What the audit log is to say, in this order.
    pub entries: Vec<Entry>,
}

/// One CSE.
#[derive(Debug)]
pub struct Cse {
    config: Config,
    tree: Tree,
    ledger: Ledger,
    repeats: Repeats,
    calls: Calls,
    outbox: Outbox,
    verifications: Verifications,
    consents: Consents,
    deferred: Deferred,
    later: Later,
    fans: Fans,
    channels: Channels,
    observers: Observers,
    refusals: Refusals,
    watches: Watches,
    /// Groups within groups that the request under way has gone down.
    fan_depth: usize,
    /// Members that this step has asked.
    fanned: usize,
    /// Where the originator of the request under way is, if that is known.
    source: Option<IpAddr>,
    /// Whether the request under way is the process's own.
    is_own: bool,
    registration: Registration,
    counters: Counters,
    now: Timestamp,
    started: Timestamp,
    requests_made: u64,
}

/// To whom an answer goes, and what it must carry.
#[derive(Clone, Debug)]
struct Asker {
    whom: Whom,
    id: Arc<str>,
    release: Release,
    /// Whether the process itself asks, and nobody outside.
    is_own: bool,
    /// What the audit log is to say of the request, with how it ends.
    asked: Option<Arc<Asked>>,
    /// The batch that was being written when it came.
    since: u64,
}

impl Asker {
    /// Whoever sent `request` from outside.
    fn outside(token: Token, key: Option<repeats::Key>, request: &Request) -> Self {
        let whom = Whom::Outside(token, key);
        let id = request.id.as_str().into();
        Self { whom, id, release: request.release, is_own: false, asked: None, since: 0 }
    }

    /// The same, whose request is to be noted in the batch `since` or later.
    fn noted(self, asked: Option<Arc<Asked>>, since: u64) -> Self {
        Self { asked, since, ..self }
    }
}

/// To whom an answer goes.
#[derive(Clone, Debug)]
enum Whom {
    /// To the outside.
    Outside(Token, Option<repeats::Key>),
    /// To the fan-out of this number, of which it is a part.
    Member(u64, usize),
    /// Into the request resource of this number, and to these targets.
    Kept(u64, Arc<[String]>),
    /// To nobody.
    Nobody,
}

/// The good end of a request.
#[derive(Debug)]
struct Done {
    status: Status,
    content: Option<Arc<str>>,
    location: Option<Arc<str>>,
    cut_at: Option<usize>,
}

impl Done {
    const fn new(status: Status) -> Self {
        Self { status, content: None, location: None, cut_at: None }
    }

    fn with(status: Status, content: impl Into<Arc<str>>) -> Self {
        Self { content: Some(content.into()), ..Self::new(status) }
    }
}

impl Cse {
    /// A CSE whose tree is made from `rows` (number and body, in ascending order of number), as
    /// they were stored by batches of an earlier run; `next_seq` is the last batch's. Rows that
    /// are none are left out, and their count is returned.
    ///
    /// Its first output may be a batch that stores the CSEBase.
    pub fn open(
        config: Config,
        now: Duration,
        rows: impl IntoIterator<Item = (u64, Arc<str>)>,
        next_seq: u64,
    ) -> (Self, usize) {
        let now = Timestamp::new(now);
        let mut cse = Self {
            ledger: Ledger::new(next_seq.max(1)),
            repeats: Repeats::new(now.micros()),
            tree: Tree::default(),
            calls: Calls::default(),
            outbox: Outbox::default(),
            verifications: Verifications::new(),
            consents: Consents::default(),
            deferred: Deferred::default(),
            later: Later::default(),
            fans: Fans::new(),
            channels: Channels::default(),
            observers: Observers::default(),
            refusals: Refusals::default(),
            watches: Watches::default(),
            fan_depth: 0,
            fanned: 0,
            source: None,
            is_own: false,
            registration: Registration::new(now),
            counters: Counters::default(),
            config,
            now,
            started: now,
            requests_made: 0,
        };
        let mut unreadable = 0;
        for (seq, body) in rows {
            if !cse.restore(seq, &body) {
                unreadable += 1;
            }
            cse.ledger.keep_above(seq);
        }
        cse.found_base();
        cse.fail_abandoned();
        cse.watch_all();
        cse.pursue_registration();
        cse.run_outbox();
        cse.settle();
        (cse, unreadable)
    }

    /// Takes one step for what happened at `now`, counted from 1970.
    pub fn handle(&mut self, now: Duration, input: Input) {
        self.now = Timestamp::new(now).max(self.now);
        self.do_postponed();
        self.fanned = 0;
        self.take(input);
        self.expire();
        self.pursue_watches();
        self.give_up();
        self.release_pollers();
        self.tell_observers();
        self.note_refusals();
        self.pursue_registration();
        self.run_outbox();
        self.settle();
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Request { token, request } => self.take_foreign(token, &request),
            Input::Own { token, request } => self.take_request(token, &request, true),
            Input::Observe { token, request } => self.take_observation(token, request),
            Input::Unobserve(token) => self.observers.forget(token),
            Input::Post { token, letter } => self.take_letter(token, letter),
            Input::AskAndPost { token, request, letter } => {
                self.take_both(token, &request, *letter);
            }
            Input::Answer { call, answer } => self.take_answer(call, answer),
            Input::Committed(number) => self.ledger.committed(number),
            Input::Failed(number) => self.roll_back(number),
            Input::Together(inputs) => inputs.into_iter().for_each(|input| self.take(input)),
            Input::Refused { from, address } => self.take_refused(&from, address),
            Input::Unheard(token) => self.take_back(token),
            Input::Tick => {}
        }
    }

    /// The next thing to be done, if there is one.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.ledger.poll()
    }

    /// When [`Input::Tick`] is due at the latest, counted from 1970.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let expiry = self.tree.next_expiry().map(|(time, _)| time);
        let times = [
            expiry,
            self.calls.next_deadline(),
            self.registration_due(),
            self.outbox.next_due(),
            self.channels.next_deadline(),
            self.refusals.due(),
            self.watches.next_due(),
            self.later.next_due(),
        ];
        times.into_iter().flatten().min().map(Timestamp::since_epoch)
    }

    /// What was done and refused so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Resources in the tree.
    pub fn resources(&self) -> usize {
        self.tree.len()
    }

    /// Who this CSE is.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Every row as it would be restored, resources before letters, for comparison and export.
    pub fn rows(&self) -> impl Iterator<Item = (u64, Arc<str>)> {
        let resources = self.tree.iter().map(|(_, it)| (it.seq, it.to_record()));
        resources.chain(self.outbox.rows()).chain(self.later.rows())
    }

    /// Takes a request from outside.
    pub(super) fn take_foreign(&mut self, token: Token, request: &Request) {
        // Before it can be taken for another's request that came before.
        match self.check_identity(request) {
            Ok(()) => self.take_request(token, request, false),
            Err(refusal) => {
                self.counters.requests += 1;
                let asker = self.asker(token, request);
                self.answer(&asker, Err(refusal));
            }
        }
    }

    fn take_request(&mut self, token: Token, request: &Request, is_own: bool) {
        let asker = Asker { is_own, ..self.asker(token, request) };
        let asked = asker.asked.clone();
        self.recognise(token, request, asker);
        if !self.ledger.has_answered(token) {
            self.note_waiting(asked);
        }
    }

    /// Answers a repetition as before, and does what is new.
    fn recognise(&mut self, token: Token, request: &Request, whoever: Asker) {
        self.counters.requests += 1;
        let source = source_of(request, self.own_form(&request.from));
        let limits = &self.config.limits;
        let key = match self.repeats.recognise(request, source, token, self.now, limits) {
            repeats::Seen::New(key) => key,
            repeats::Seen::Answered(response) => {
                self.counters.repeated += 1;
                self.ledger.see_all();
                // The first one's letter was posted, or is not to be.
                self.outbox.take_beside(token);
                self.deliver(&whoever, response);
                return;
            }
            repeats::Seen::InProgress => {
                self.counters.repeated += 1;
                return;
            }
            repeats::Seen::TooOften => {
                self.counters.repeated_too_often += 1;
                let words = "the same request waits here already, as often as it may";
                let refusal = Refusal::new(Status::InternalServerError, words);
                let (id, release) = (Arc::clone(&whoever.id), whoever.release);
                self.deliver(&whoever, Response::refusing(&refusal, id, release));
                return;
            }
        };
        let asker = Asker { whom: Whom::Outside(token, key), ..whoever };
        let before = self.repeats.by_place.replace(false);
        match request.response_type {
            ResponseType::Blocking | ResponseType::Flexible => self.serve(&asker, request),
            _ => self.accept(&asker, request),
        }
        self.repeats.note_place(key, before);
    }

    fn take_letter(&mut self, token: Token, letter: Letter) {
        let asker = Asker::outside(token, None, &letter.request);
        let outcome = self.post(letter).map(|()| Done::new(Status::Accepted));
        self.answer(&asker, outcome);
    }

    /// Does what is asked; the answer is given now or, if others must be asked first, later.
    fn serve(&mut self, asker: &Asker, request: &Request) {
        match self.perform(asker, request) {
            Ok(Some(done)) => self.answer(asker, Ok(done)),
            Ok(None) => {}
            Err(refusal) => self.answer(asker, Err(refusal)),
        }
    }

    fn perform(&mut self, asker: &Asker, request: &Request) -> Result<Option<Done>, Refusal> {
        self.check(request)?;
        let from = self.own_form(&request.from);
        let before = core::mem::replace(&mut self.source, source_of(request, from));
        let was_own = core::mem::replace(&mut self.is_own, asker.is_own);
        let outcome = self.carry_out(asker, request, from);
        self.is_own = was_own;
        self.source = before;
        outcome
    }

    fn carry_out(
        &mut self,
        asker: &Asker,
        request: &Request,
        from: &str,
    ) -> Result<Option<Done>, Refusal> {
        let path = match Address::parse(&request.to, &self.config.cse_id, &self.config.provider) {
            Address::Here(path) => path,
            Address::There { cse, path } => {
                // It is sent on before any of its times (TS-0004 §7.3.2.6).
                if request.executes.is_some_and(|time| time.resolve(self.now) < self.now) {
                    let why = "the time is over at which it was to be done";
                    return Err(Refusal::new(Status::RequestTimeout, why));
                }
                self.forward(asker, request, from, (cse, path))?;
                return Ok(None);
            }
            Address::Elsewhere => return Err(not_found("no such service provider")),
        };
        let target = self.resolve(path).ok_or_else(|| not_found("no such resource"))?;
        if self.postpone(asker, request, from)? {
            return Ok(None);
        }
        if let Target::FanOut(group, rest) = target {
            return self.fan_out(asker, request, from, (group, rest));
        }
        if let (Target::Polling(slot), Operation::Retrieve) = (target, request.operation) {
            return self.poll(asker, request, from, slot);
        }
        if let Target::Resource(slot) = target {
            if self.wait_behind(asker, request, slot)? {
                return Ok(None);
            }
            self.tell_monitors(request, from, slot);
        }
        match request.operation {
            Operation::Create => self.create(asker, request, from, target),
            Operation::Retrieve => {
                if let Target::Resource(slot) = target
                    && self.retrieve_original(asker, request, from, slot)?
                {
                    return Ok(None);
                }
                self.retrieve(request, from, target).map(Some)
            }
            Operation::Update => self.update(asker, request, from, target),
            Operation::Delete => self.delete(request, from, target).map(Some),
            Operation::Notify => {
                if let Target::Polling(slot) = target {
                    return self.take_polled_answer(request, from, slot).map(Some);
                }
                let slot = self.settle_target(target)?;
                self.notify_entity(asker, request, from, slot)
            }
        }
    }

    /// What holds for every request, whatever its operation.
    fn check(&mut self, request: &Request) -> Result<(), Refusal> {
        if request.id.is_empty() {
            return Err(Refusal::bad("a request has an identifier"));
        }
        if request.to.is_empty() {
            return Err(Refusal::bad("a request has a target"));
        }
        let registers =
            request.operation == Operation::Create && request.kind == Some(Kind::ApplicationEntity);
        if request.from.is_empty() && !registers {
            return Err(Refusal::bad("a request has an originator"));
        }
        if request.kind.is_some() != (request.operation == Operation::Create) {
            return Err(Refusal::bad("the resource type goes with a creation, and only there"));
        }
        let expired = |time: Option<crate::primitive::Deadline>| {
            time.is_some_and(|time| time.resolve(self.now) <= self.now)
        };
        if expired(request.request_expires) || expired(request.result_expires) {
            return Err(Refusal::new(Status::RequestTimeout, "the request has expired"));
        }
        if let Some(filter) = &request.filter {
            filter.check()?;
        }
        Self::check_addresses(request.notify.iter().map(String::as_str))?;
        let octets = request.content.as_ref().map_or(0, |content| content.len());
        if octets > self.config.limits.content_octets {
            self.counters.content_too_large += 1;
            return Err(Refusal::new(
                Status::NotAcceptable,
                format!("{octets} octets of content are too many"),
            ));
        }
        Ok(())
    }

    fn answer(&mut self, asker: &Asker, outcome: Result<Done, Refusal>) {
        let response = self.response_of(asker, outcome);
        self.deliver(asker, response);
    }

    fn deliver(&mut self, asker: &Asker, response: Response) {
        let (token, key) = match &asker.whom {
            Whom::Outside(token, key) => (*token, *key),
            _ => return self.deliver_inside(asker, response),
        };
        let response = self.post_beside(token, response);
        self.note_answer(asker, &response);
        let limits = &self.config.limits;
        let also = key
            .map_or_else(Vec::new, |key| self.repeats.answered(key, &response, self.now, limits));
        for repeated in also {
            // The letter of a repetition: the first one's was posted, or is not to be.
            self.outbox.take_beside(repeated);
            self.ledger.respond(repeated, response.clone());
        }
        self.ledger.respond(token, response);
    }

    /// Gives the answer to a part of a request, or to one that had an answer before.
    fn deliver_inside(&mut self, asker: &Asker, response: Response) {
        self.note_answer(asker, &response);
        match &asker.whom {
            Whom::Member(fan, at) => self.member_answered(*fan, *at, response),
            Whom::Kept(seq, targets) => self.keep_answer(*seq, targets, &response),
            Whom::Outside(..) | Whom::Nobody => {}
        }
    }

    fn response_of(&mut self, asker: &Asker, outcome: Result<Done, Refusal>) -> Response {
        let (id, release) = (Arc::clone(&asker.id), asker.release);
        match outcome {
            Ok(done) => {
                self.counters.succeeded += 1;
                let mut response = Response::new(done.status, id, release);
                response.content = done.content;
                response.location = done.location;
                response.cut_at = done.cut_at;
                response
            }
            Err(refusal) => {
                self.counters.refused += 1;
                if refusal.status == Status::OriginatorHasNoPrivilege {
                    self.counters.denied += 1;
                }
                // What is refused may be refused because of what is not stored yet: a name that
                // is taken must be taken for good before anyone is told.
                self.ledger.see_all();
                Response::refusing(&refusal, id, release)
            }
        }
    }

    fn resource(&self, slot: Slot) -> Result<&Resource, Refusal> {
        self.tree.get(slot).ok_or_else(|| not_found("the resource is gone"))
    }

    /// Makes the CSEBase, or brings a restored one up to the configuration.
    fn found_base(&mut self) {
        let kinds: Vec<u16> = Kind::ALL.iter().map(|kind| kind.number()).collect();
        let mut attributes = Map::new();
        attributes.insert("csi".into(), json!(self.config.cse_id));
        attributes.insert("cst".into(), json!(self.config.cse_type.number()));
        attributes.insert("srt".into(), json!(kinds));
        attributes.insert("srv".into(), json!(Release::SUPPORTED));
        attributes.insert("csz".into(), json!(["application/json", "application/cbor"]));
        if !self.config.points_of_access.is_empty() {
            attributes.insert("poa".into(), json!(self.config.points_of_access));
        }
        if let Some(root) = self.tree.root() {
            if let Some(announced) = self.tree.get(root).and_then(|base| base.attribute("at")) {
                attributes.insert("at".into(), announced.clone());
            }
            let unchanged = self.tree.get(root).is_some_and(|base| base.attributes == attributes);
            if !unchanged {
                self.change(root, |base| base.attributes = attributes);
            }
            return;
        }
        let seq = self.ledger.next_seq();
        let id = self.config.cse_id.trim_start_matches('/');
        self.put_in(Resource {
            seq,
            kind: Kind::CseBase,
            tag: Cow::Borrowed(Kind::CseBase.tag()),
            id: id.into(),
            name: self.config.name.as_str().into(),
            parent: None,
            parent_id: "".into(),
            created: self.now,
            modified: self.now,
            expires: Timestamp::MAX,
            state: 0,
            owner: self.config.cse_id.as_str().into(),
            sponsor: None,
            attributes,
            representation: None,
            size: 0,
            family: None,
            stored_by: 0,
        });
    }

    /// Closes the step: what was written becomes a batch, what was said waits for it.
    fn settle(&mut self) {
        self.counters.batches += u64::from(self.ledger.settle());
    }
}

fn not_found(debug: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Status::NotFound, debug)
}

fn not_allowed(debug: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Status::OperationNotAllowed, debug)
}

fn denied() -> Refusal {
    Refusal::new(Status::OriginatorHasNoPrivilege, "access control does not allow this")
}
