//! Records one conversation: what a peer and the gateway exchange for one message, and what the
//! gateway exchanges with its servers for it.
//!
//! While a recording is wanted, each new connection and each new peer of a datagram server is a
//! candidate, with the connections that its handlers open. The first candidate that reaches one of
//! the wanted handlers is the recorded one; it is complete when that handler has ended and every
//! octet is sent. A connection that was open before is no candidate, because a conversation is only
//! of use from its beginning. For the same reason, a candidate's handlers do not take over kept
//! connections to servers.
//!
//! The machine decides everything by what its peers send and when, by its parameters and by its
//! fresh numbers, so a test repeats a recorded conversation.

use super::post::{Direction, Does, Post, PostCounters, PostError};
use super::slab::{ConnId, ExchangeId, SessionId, TaskId};
use super::state::{ConnectionState, Origin, PeerAddress, Requester, Task};
use super::{Machine, Output};
use core::net::SocketAddr;
use core::time::Duration;
use gatewright_lang::ir::{HandlerId, RoleId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum octets of a recorded conversation.
pub const CONVERSATION_OCTETS_MAX: usize = 1 << 20;

/// Maximum number of candidates at once.
const CANDIDATES_MAX: usize = 16;

/// Maximum number of steps of a recorded conversation.
const STEPS_MAX: usize = 10_000;

/// A recorded conversation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Conversation {
    /// The wanted handler that ran.
    pub handler: Option<HandlerId>,
    /// Its steps, in order.
    pub steps: Vec<ConversationStep>,
    /// The fresh numbers of each role, in order.
    pub fresh: Vec<(RoleId, u32)>,
    /// Why a test may not repeat it, each once.
    pub gaps: Vec<ConversationGap>,
}

/// A step of a conversation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConversationStep {
    /// When, on the clock of the machine's caller.
    pub at: Duration,
    /// The role whose peer it concerns.
    pub role: RoleId,
    /// The event.
    pub event: PeerEvent,
}

/// An event at a role's peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PeerEvent {
    /// It sends octets (UDP: one datagram).
    Sends(Vec<u8>),
    /// It receives octets (UDP: one datagram).
    Sees(Vec<u8>),
    /// It ends its connection.
    Closes,
    /// Its connection is ended by the gateway.
    SeesClose,
}

/// Why a test may not repeat a conversation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ConversationGap {
    /// A role's connection to its server was open before, so its opening is not recorded.
    OpenBefore(RoleId),
    /// A role's server could not be reached.
    Unreached(RoleId),
    /// A session that had begun before was resumed.
    SessionBefore,
    /// Other peers were told, which a session had stored.
    Told,
    /// It has more octets or steps than are recorded.
    TooLong,
    /// Its handler had not ended when the time was over.
    Unfinished,
}

/// A conversation that may be the wanted one.
#[derive(Debug, Default)]
struct Candidate {
    conversation: Conversation,
    octets: usize,
    /// The wanted handler, while it runs.
    task: Option<TaskId>,
    /// Sessions that began in it.
    sessions: HashSet<SessionId>,
}

/// State of a recording.
#[derive(Debug)]
pub(crate) struct ConversationRecorder {
    /// The handlers that are wanted.
    handlers: Vec<HandlerId>,
    candidates: Vec<Option<Candidate>>,
    /// The candidate of each recorded connection.
    conns: HashMap<ConnId, usize>,
    /// The candidate of each recorded peer of a datagram server.
    peers: HashMap<(RoleId, SocketAddr), usize>,
    /// The candidate of each running handler.
    tasks: HashMap<TaskId, usize>,
}

impl Candidate {
    fn add(&mut self, step: ConversationStep) {
        let octets = match &step.event {
            PeerEvent::Sends(octets) | PeerEvent::Sees(octets) => octets.len(),
            PeerEvent::Closes | PeerEvent::SeesClose => 0,
        };
        let fits = self.octets.saturating_add(octets) <= CONVERSATION_OCTETS_MAX
            && self.conversation.steps.len() < STEPS_MAX;
        if !fits || self.conversation.gaps.contains(&ConversationGap::TooLong) {
            return self.lacks(ConversationGap::TooLong);
        }
        self.octets += octets;
        self.conversation.steps.push(step);
    }

    fn lacks(&mut self, gap: ConversationGap) {
        if !self.conversation.gaps.contains(&gap) {
            self.conversation.gaps.push(gap);
        }
    }
}

impl ConversationRecorder {
    /// Begins a candidate; beyond the bound, in place of the one that has been silent longest.
    fn begin(&mut self) -> Option<usize> {
        let free = self.candidates.iter().position(Option::is_none);
        let at = free.or_else(|| {
            let is_full = self.candidates.len() >= CANDIDATES_MAX;
            if is_full { self.longest_silent() } else { Some(self.candidates.len()) }
        })?;
        self.conns.retain(|_, of| *of != at);
        self.peers.retain(|_, of| *of != at);
        self.tasks.retain(|_, of| *of != at);
        match self.candidates.get_mut(at) {
            Some(place) => *place = Some(Candidate::default()),
            None => self.candidates.push(Some(Candidate::default())),
        }
        Some(at)
    }

    /// The candidate that has been silent longest, of those that have not reached a wanted handler.
    fn longest_silent(&self) -> Option<usize> {
        let waiting = self.candidates.iter().enumerate().filter_map(|(at, of)| {
            let of = of.as_ref().filter(|of| of.conversation.handler.is_none())?;
            Some((of.conversation.steps.last().map(|step| step.at), at))
        });
        waiting.min().map(|(_, at)| at)
    }

    fn candidate(&mut self, at: usize) -> Option<&mut Candidate> {
        self.candidates.get_mut(at)?.as_mut()
    }

    /// Forgets a candidate of which nothing is left, and which has not reached a wanted handler.
    fn forget_if_over(&mut self, at: usize) {
        let lives = self.conns.values().chain(self.peers.values()).any(|of| *of == at)
            || self.candidate(at).is_some_and(|of| of.conversation.handler.is_some());
        if !lives && let Some(place) = self.candidates.get_mut(at) {
            *place = None;
            self.tasks.retain(|_, of| *of != at);
        }
    }

    /// The candidate of a handler's requester.
    fn of(&self, origin: Origin, requester: Option<Requester>) -> Option<usize> {
        match (origin, requester) {
            (Origin::Request { .. }, Some(Requester::Conn(conn)))
            | (Origin::Opening { conn, .. }, _) => self.conns.get(&conn).copied(),
            (Origin::Request { .. }, Some(Requester::Peer(role, peer))) => {
                self.peers.get(&(role, peer)).copied()
            }
            (Origin::Request { .. }, None) | (Origin::Every { .. }, _) => None,
        }
    }
}

impl Machine {
    /// Records the next conversation that reaches a handler of this name (as in [`Post::handler`])
    /// from its beginning, and returns it as [`Output::Recorded`]. It replaces a recording that is
    /// under way.
    ///
    /// # Errors
    ///
    /// [`PostError`] if there is no such handler.
    pub fn record(&mut self, handler: &str) -> Result<(), PostError> {
        let places = Post::capturing(handler).places(&self.program)?;
        self.recorder = Some(Box::new(ConversationRecorder {
            handlers: places.into_iter().map(|(handler, _)| handler).collect(),
            candidates: Vec::new(),
            conns: HashMap::new(),
            peers: HashMap::new(),
            tasks: HashMap::new(),
        }));
        Ok(())
    }

    /// Ends a recording; returns a conversation that has reached its handler, and not its end.
    pub fn stop_recording(&mut self) -> Option<Conversation> {
        let recorder = self.recorder.take()?;
        let mut reached = recorder.candidates.into_iter().flatten();
        let mut of = reached.find(|of| of.conversation.handler.is_some())?;
        of.lacks(ConversationGap::Unfinished);
        Some(of.conversation)
    }

    /// The candidate of a connection.
    fn recorded_conn(&self, conn: ConnId) -> Option<(usize, RoleId)> {
        let at = *self.recorder.as_ref()?.conns.get(&conn)?;
        Some((at, self.conns.get(conn)?.role))
    }

    fn record_step(&mut self, at: usize, role: RoleId, event: PeerEvent) {
        let step = ConversationStep { at: self.now, role, event };
        if let Some(of) = self.recorder.as_mut().and_then(|recorder| recorder.candidate(at)) {
            of.add(step);
        }
    }

    fn record_gap(&mut self, at: usize, gap: ConversationGap) {
        if let Some(of) = self.recorder.as_mut().and_then(|recorder| recorder.candidate(at)) {
            of.lacks(gap);
        }
    }

    pub(crate) fn record_accepted(&mut self, conn: ConnId) {
        if let Some(recorder) = &mut self.recorder
            && let Some(at) = recorder.begin()
        {
            recorder.conns.insert(conn, at);
        }
    }

    /// Records octets that just arrived at the end of a connection's unread ones.
    pub(crate) fn record_arrived(&mut self, conn: ConnId, octets: usize) {
        let Some((at, role)) = self.recorded_conn(conn) else { return };
        let Some(of) = self.conns.get(conn) else { return };
        if octets > 0 && of.state == ConnectionState::Open {
            let all = of.unread.octets();
            let octets = all.get(all.len().saturating_sub(octets)..).unwrap_or_default().to_vec();
            self.record_step(at, role, PeerEvent::Sends(octets));
        }
    }

    /// Records that the system has taken the first of a connection's unsent octets.
    pub(crate) fn record_sent(&mut self, conn: ConnId, octets: usize) {
        let Some((at, role)) = self.recorded_conn(conn) else { return };
        let unsent = self.unsent(conn);
        let octets = unsent.get(..octets).unwrap_or(unsent).to_vec();
        if !octets.is_empty() {
            self.record_step(at, role, PeerEvent::Sees(octets));
        }
    }

    /// Records the end of a connection by one side. After an end by the gateway nothing follows.
    pub(crate) fn record_end(&mut self, conn: ConnId, event: PeerEvent) {
        let Some((at, role)) = self.recorded_conn(conn) else { return };
        let is_over = event == PeerEvent::SeesClose;
        self.record_step(at, role, event);
        if is_over && let Some(recorder) = &mut self.recorder {
            recorder.conns.remove(&conn);
            recorder.forget_if_over(at);
        }
    }

    /// Records that a connection to a server failed.
    pub(crate) fn record_unreached(&mut self, conn: ConnId) {
        if let Some((at, role)) = self.recorded_conn(conn) {
            self.record_gap(at, ConversationGap::Unreached(role));
        }
    }

    /// Records a datagram of a server's peer.
    pub(crate) fn record_request(&mut self, role: RoleId, from: SocketAddr, octets: &[u8]) {
        let Some(recorder) = &mut self.recorder else { return };
        let known = recorder.peers.get(&(role, from)).copied();
        let Some(at) = known.or_else(|| recorder.begin()) else { return };
        recorder.peers.insert((role, from), at);
        self.record_step(at, role, PeerEvent::Sends(octets.to_vec()));
    }

    /// Records a datagram to a server's peer.
    pub(crate) fn record_answer(&mut self, role: RoleId, to: SocketAddr, octets: &[u8]) {
        let at = self.recorder.as_ref().and_then(|of| of.peers.get(&(role, to)).copied());
        if let Some(at) = at {
            self.record_step(at, role, PeerEvent::Sees(octets.to_vec()));
        }
    }

    /// Records a datagram that a handler sends to its server.
    pub(crate) fn record_asked(&mut self, task: TaskId, role: RoleId, octets: &[u8]) {
        if let Some(at) = self.recorded_task(task) {
            self.record_step(at, role, PeerEvent::Sees(octets.to_vec()));
        }
    }

    /// Records a server's answer in a datagram.
    pub(crate) fn record_response(&mut self, exchange: ExchangeId, octets: &[u8]) {
        if self.recorder.is_none() {
            return;
        }
        let Some(of) = self.exchanges.get(exchange) else { return };
        let (task, role) = (of.task, of.role);
        if let Some(at) = self.recorded_task(task) {
            self.record_step(at, role, PeerEvent::Sends(octets.to_vec()));
        }
    }

    fn recorded_task(&self, task: TaskId) -> Option<usize> {
        self.recorder.as_ref()?.tasks.get(&task).copied()
    }

    /// Whether a handler belongs to a conversation that is recorded.
    pub(crate) fn is_recorded(&self, task: TaskId) -> bool {
        self.recorded_task(task).is_some()
    }

    /// Whether a connection is recorded with the conversation of a handler.
    pub(crate) fn is_recorded_with(&self, task: TaskId, conn: ConnId) -> bool {
        let conversation = self.recorded_task(task);
        conversation.is_some() && conversation == self.recorded_conn(conn).map(|(at, _)| at)
    }

    /// Records what a handler's new connection carries.
    pub(crate) fn record_opened(&mut self, task: TaskId, conn: ConnId) {
        if let Some(at) = self.recorded_task(task)
            && let Some(recorder) = &mut self.recorder
        {
            recorder.conns.insert(conn, at);
        }
    }

    /// Notes that a handler sends over a connection that is open already.
    pub(crate) fn record_used(&mut self, task: TaskId, role: RoleId, conn: ConnId) {
        if let Some(at) = self.recorded_task(task)
            && self.recorded_conn(conn).is_none_or(|(of, _)| of != at)
        {
            self.record_gap(at, ConversationGap::OpenBefore(role));
        }
    }

    pub(crate) fn record_fresh(&mut self, task: Option<&Task>, role: RoleId, number: u32) {
        let at = task.and_then(|task| self.recorded_by(task));
        if let Some(at) = at
            && let Some(of) = self.recorder.as_mut().and_then(|recorder| recorder.candidate(at))
        {
            of.conversation.fresh.push((role, number));
        }
    }

    /// The candidate of a handler that is being run.
    fn recorded_by(&self, task: &Task) -> Option<usize> {
        let requester = self.requester_of(task).or(task.conn.map(Requester::Conn));
        self.recorder.as_ref()?.of(task.origin, requester)
    }

    /// Notes a session that a handler enters.
    pub(crate) fn record_session(&mut self, task: &Task, session: SessionId, is_new: bool) {
        let Some(at) = self.recorded_by(task) else { return };
        let Some(of) = self.recorder.as_mut().and_then(|of| of.candidate(at)) else { return };
        if is_new {
            of.sessions.insert(session);
        } else if !of.sessions.contains(&session) {
            of.lacks(ConversationGap::SessionBefore);
        }
    }

    /// Notes that a handler tells a stored peer.
    pub(crate) fn record_told(&mut self, task: &Task, peer: PeerAddress) {
        let Some(at) = self.recorded_by(task) else { return };
        let Some(recorder) = &self.recorder else { return };
        let of = match peer {
            PeerAddress::Conn(conn) => recorder.conns.get(&conn),
            PeerAddress::At(role, to) => recorder.peers.get(&(role, to)),
        };
        if of != Some(&at) {
            self.record_gap(at, ConversationGap::Told);
        }
    }

    pub(crate) fn record_started(&mut self, task: TaskId, handler: HandlerId, origin: Origin) {
        if self.recorder.is_none() {
            return;
        }
        let requester = origin.request().and_then(|id| self.incomings.get(id)?.requester);
        let Some(recorder) = &mut self.recorder else { return };
        let Some(at) = recorder.of(origin, requester) else { return };
        recorder.tasks.insert(task, at);
        let is_wanted = recorder.handlers.contains(&handler);
        if let Some(of) = recorder.candidate(at).filter(|of| is_wanted && of.task.is_none())
            && of.conversation.handler.is_none()
        {
            of.task = Some(task);
            of.conversation.handler = Some(handler);
        }
    }

    pub(crate) fn record_ended(&mut self, task: TaskId) {
        let Some(recorder) = &mut self.recorder else { return };
        let Some(at) = recorder.tasks.remove(&task) else { return };
        if let Some(of) = recorder.candidate(at).filter(|of| of.task == Some(task)) {
            of.task = None;
        }
    }

    /// Returns a conversation that is complete, and ends the recording.
    pub(crate) fn finish_recording(&mut self) {
        let Some(recorder) = &self.recorder else { return };
        let reached = recorder.candidates.iter().enumerate().find_map(|(at, of)| {
            let of = of.as_ref()?;
            (of.conversation.handler.is_some() && of.task.is_none()).then_some(at)
        });
        let Some(at) = reached.filter(|at| self.is_quiet(recorder, *at)) else { return };
        let complete = self
            .recorder
            .take()
            .and_then(|mut recorder| recorder.candidates.get_mut(at).and_then(Option::take));
        if let Some(of) = complete {
            self.outputs.push_back(Output::Recorded(Box::new(of.conversation)));
        }
    }

    /// Whether no handler of a candidate runs, no request of it is unfinished and no octet unsent.
    fn is_quiet(&self, recorder: &ConversationRecorder, at: usize) -> bool {
        let quiet = |conn: &ConnId| {
            self.conns.get(*conn).is_none_or(|of| {
                of.requests == 0
                    && of.unsent.is_empty()
                    && of.streaming.is_none()
                    && of.behind.is_empty()
            })
        };
        let mut conns = recorder.conns.iter().filter(|(_, of)| **of == at);
        !recorder.tasks.values().any(|of| *of == at) && conns.all(|(conn, _)| quiet(conn))
    }
}

impl Post {
    /// A post at handlers of this name that captures requests.
    fn capturing(handler: &str) -> Self {
        Self {
            id: 0,
            handler: handler.to_owned(),
            way: Direction::Receive,
            does: Does::Capture,
            counted: Arc::new(PostCounters::default()),
        }
    }
}
