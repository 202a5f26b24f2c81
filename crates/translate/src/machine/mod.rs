//! A running gateway program, sans-IO: the caller reports events and carries out outputs.
//!
//! # Inputs and outputs
//!
//! The caller owns the sockets and the clock. It reports events ([`accepted`], [`connected`],
//! [`received`], [`sent`], [`ended`], [`broken`], [`datagram`], [`resolved`], [`handle_timeout`])
//! and carries out [`poll_output`] until that is empty. [`poll_timeout`] says when
//! [`handle_timeout`] is due. `now` is the time since any epoch, the same in all calls; it never
//! goes back. An id that is over is ignored in every call.
//!
//! # Octets that wait
//!
//! Neither side holds a buffer for a connection with nothing pending. Octets that the machine wants
//! to send stay in [`unsent`] until [`sent`] confirms them. [`room`] says how many octets the
//! machine takes. Where it is 0, the caller stops reading, and the kernel's window stops the peer;
//! an [`Output::Read`] says when to continue. So a stream between two connections runs at the pace
//! of the slower one, and takes at most two pages on each.
//!
//! # Limits
//!
//! All limits are the program's: connections, sessions, exchanges in flight, every wait. Requests
//! above them are answered as the protocol says (`full`) and counted ([`counters`]). Two more
//! limits are the machine's: [`BUFFER_OCTETS`] and [`PIPELINED_MAX`].
//!
//! # Turns
//!
//! A connection that has sent many messages at once begins [`TURN_MESSAGES`] of them in a turn.
//! Then it waits for the other connections and takes nothing in ([`room`] is 0). Meanwhile
//! [`poll_timeout`] is due at once, and each [`handle_timeout`] gives one connection its next turn.
//! A caller that polls its system between two turns serves a peer with one request before a peer
//! with a thousand.
//!
//! [`accepted`]: Machine::accepted
//! [`connected`]: Machine::connected
//! [`received`]: Machine::received
//! [`sent`]: Machine::sent
//! [`ended`]: Machine::ended
//! [`broken`]: Machine::broken
//! [`datagram`]: Machine::datagram
//! [`resolved`]: Machine::resolved
//! [`handle_timeout`]: Machine::handle_timeout
//! [`poll_output`]: Machine::poll_output
//! [`poll_timeout`]: Machine::poll_timeout
//! [`unsent`]: Machine::unsent
//! [`room`]: Machine::room
//! [`counters`]: Machine::counters

mod address;
mod answer;
mod attach;
mod buffers;
mod build;
mod close;
mod conn;
mod counters;
mod datagram;
mod evaluate;
mod exchange;
mod peers;
mod post;
mod pump;
mod reach;
mod read;
mod record;
mod request;
mod run;
mod send;
mod session;
mod slab;
mod state;
mod task;
mod timers;
mod trace;
mod wait;

pub use address::{AddressError, RoleTarget};
pub use counters::HandlerCounters;
pub use post::{Captured, Direction, Does, Matching, Post, PostCounters, PostError, RequestRate};
pub use reach::{PeerLoss, PeerReport, PeerSeen};
pub use record::{
    CONVERSATION_OCTETS_MAX, Conversation, ConversationGap, ConversationStep, PeerEvent,
};
pub use slab::{ConnId, QueryId};
pub use trace::MachineStep;
pub(crate) use trace::shown;

use crate::flat::Layouts;
use crate::view::View;
use attach::Posts;
use buffers::{Parsers, Pool};
use core::net::SocketAddr;
use core::time::Duration;
use counters::{Count, Counters, EndedHandlers};
use gatewright_lang::ir::{Case, Cast, HandlerKind, Program, Role, RoleId, Side, Transport};
use record::ConversationRecorder;
use request::Every;
use session::Session;
use slab::{ExchangeId, IncomingId, SessionId, Slab, TaskId};
use state::{Conn, Exchange, Incoming, PeerAddress, Repeat, Task};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use timers::{Timer, Timers};

/// Two pages: octets of one connection that may wait to be read, and to be sent, before the other
/// side of the gateway has to slow down (paper 001 §2.2). A longer message exceeds it.
pub const BUFFER_OCTETS: usize = 8_192;

/// Maximum number of requests of one connection handled at once where answers may come in any
/// order.
pub const PIPELINED_MAX: u32 = 16;

/// Maximum number of messages of one connection begun before others have their turn. A client that
/// sends without waiting for answers must not delay all others.
pub const TURN_MESSAGES: u32 = 8;

/// Maximum entries of ended handlers whose times wait for [`Machine::sent_until`]; further ones end
/// with the input.
const ENDED_MAX: usize = 256;

/// Maximum number of names being resolved at once.
pub const QUERIES_MAX: usize = 64;

/// Settings that the program leaves to its user.
#[derive(Clone, Debug, Default)]
pub struct MachineConfig {
    /// Addresses that replace the program's: the role's name, and `host:port`.
    pub addresses: Vec<(String, String)>,
    /// First value for `fresh` numbers; any number, better a different one at every start.
    pub seed: u64,
}

/// Why a machine cannot be made: a fault of the configuration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An address is given for a role that the program does not have.
    #[error("the program has no role `{0}`")]
    NoRole(String),
    /// An address is invalid.
    #[error("{role}: {error}")]
    Address {
        /// The role.
        role: String,
        /// The error.
        error: AddressError,
    },
}

/// A role, as the caller must serve it.
///
/// For a TCP server the caller listens. For a UDP server it binds a socket, and joins the address's
/// group if the role is multicast. For a UDP client it binds a socket to any port. A TCP client
/// needs nothing before [`Output::Connect`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// The role.
    pub role: RoleId,
    /// Its name.
    pub name: String,
    /// Server or client.
    pub side: Side,
    /// Transport protocol.
    pub transport: Transport,
    /// Unicast or multicast.
    pub cast: Cast,
    /// Address where the server listens, or which the client contacts.
    pub address: RoleTarget,
    /// Maximum number of its connections.
    pub connections_max: u32,
}

/// An action for the caller.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Connect over TCP; then call [`Machine::connected`] or [`Machine::connect_failed`].
    Connect {
        /// Id of the new connection.
        conn: ConnId,
        /// The role that connects.
        role: RoleId,
        /// The address.
        to: SocketAddr,
    },
    /// [`Machine::unsent`] was empty and no longer is. Write until it is empty, or until the system
    /// takes no more; then continue when it does. It is not repeated while octets are left.
    Write {
        /// The connection.
        conn: ConnId,
    },
    /// [`Machine::room`] was 0 and no longer is: continue reading.
    Read {
        /// The connection.
        conn: ConnId,
    },
    /// Everything is sent and nothing will follow: end the sending side, and continue reading.
    Shutdown {
        /// The connection.
        conn: ConnId,
    },
    /// The connection is over, and so is the id.
    Close {
        /// The connection.
        conn: ConnId,
        /// Whether to reset the connection, so that the peer does not accept a part as complete.
        reset: bool,
    },
    /// Send a datagram from the role's own socket.
    Datagram {
        /// The role.
        role: RoleId,
        /// The address.
        to: SocketAddr,
        /// The octets.
        octets: Vec<u8>,
    },
    /// Resolve a name; then call [`Machine::resolved`].
    Resolve {
        /// Id of the query.
        query: QueryId,
        /// The name.
        host: String,
        /// The port for the resulting address.
        port: u16,
    },
    /// A piece of a message passed a capture ([`Machine::attach`]).
    Captured(Box<Captured>),
    /// A conversation was recorded ([`Machine::record`]).
    Recorded(Box<Conversation>),
}

/// Internal work of the machine.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// A handler resumes.
    Run(TaskId),
    /// A connection's octets are examined again.
    Read(ConnId),
}

/// The user of a name resolution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueryOwner {
    Conn(ConnId),
    Task(TaskId),
}

/// State of a role.
#[derive(Debug)]
struct RoleState {
    address: RoleTarget,
    /// Number of open connections; of a UDP server, running handlers.
    connections: u32,
    /// Client connections without a session, the longest kept first.
    kept: Vec<ConnId>,
    /// Client connections shared by all sessions, one per server.
    shared: Vec<ConnId>,
    /// The last `fresh` number.
    fresh: u32,
    /// The next ones, where a test gives them.
    given: VecDeque<u32>,
    /// Datagram exchanges in flight, by flow.
    air: HashMap<Vec<u8>, ExchangeId>,
    /// States of requests that may be repeated, and when each is forgotten.
    repeats: HashMap<Vec<u8>, Repeat>,
    forget: VecDeque<(Duration, Vec<u8>)>,
}

/// A running gateway program.
#[derive(Debug)]
pub struct Machine {
    program: Arc<Program>,
    layouts: Arc<Layouts>,
    now: Duration,
    endpoints: Vec<Endpoint>,
    roles: Vec<RoleState>,
    conns: Slab<ConnId, Conn>,
    incomings: Slab<IncomingId, Incoming>,
    tasks: Slab<TaskId, Box<Task>>,
    sessions: Slab<SessionId, Session>,
    exchanges: Slab<ExchangeId, Exchange>,
    queries: Slab<QueryId, QueryOwner>,
    keyed: HashMap<Vec<u8>, SessionId>,
    /// The sessions that store a peer.
    stored: HashMap<PeerAddress, Vec<SessionId>>,
    every: Vec<Every>,
    timers: Timers,
    work: VecDeque<Work>,
    /// Connections that wait for their next turn, each once.
    turns: VecDeque<ConnId>,
    outputs: VecDeque<Output>,
    pool: Pool,
    parsers: Parsers,
    /// View of the message built last.
    holes: View,
    /// Maximum number of octets that wait to be read on one connection.
    window: usize,
    counters: Counters,
    handlers: Vec<HandlerCounters>,
    /// Handlers that have ended, at most [`ENDED_MAX`].
    ended: Vec<EndedHandlers>,
    /// Counts of how often each case of each role's dispatch was taken.
    cases: Vec<Vec<u64>>,
    draining: bool,
    /// Steps not taken yet, if tracing is on.
    traced: Option<Vec<MachineStep>>,
    /// Posts attached to handlers, if any.
    posts: Option<Box<Posts>>,
    /// Records the next conversation that reaches certain handlers, if requested.
    recorder: Option<Box<ConversationRecorder>>,
    /// Reports about servers that wait to be polled.
    peer_reports: VecDeque<PeerReport>,
    /// Whether connections and answers of servers are reported.
    reports_reached: bool,
}

impl Machine {
    /// A machine at the time `now`; the periods of its `every` handlers start now.
    ///
    /// # Errors
    ///
    /// The configuration names a role that does not exist, or an address is invalid.
    pub fn new(
        now: Duration,
        program: &Arc<Program>,
        config: &MachineConfig,
    ) -> Result<Self, ConfigError> {
        Self::laid_out(now, &Arc::new(Layouts::of(program)), config)
    }

    /// A machine of a program whose layouts are compiled already, at the time `now`: for callers
    /// that make many machines of one program.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn laid_out(
        now: Duration,
        layouts: &Arc<Layouts>,
        config: &MachineConfig,
    ) -> Result<Self, ConfigError> {
        let program = layouts.program();
        let endpoints = endpoints(program, config)?;
        // A seed of 0 makes the first number 1, as a person who writes a test expects.
        let fresh = u32::try_from((config.seed ^ (config.seed >> 32)) & 0xffff_ffff);
        let roles = endpoints.iter().map(|endpoint| RoleState {
            address: endpoint.address.clone(),
            connections: 0,
            kept: Vec::new(),
            shared: Vec::new(),
            fresh: fresh.unwrap_or_default(),
            given: VecDeque::new(),
            air: HashMap::new(),
            repeats: HashMap::new(),
            forget: VecDeque::new(),
        });
        let cases = program
            .roles
            .iter()
            .map(|role| vec![0; role.requests.iter().map(|kind| kind.cases.len()).sum()]);
        let mut machine = Self {
            program: Arc::clone(program),
            layouts: Arc::clone(layouts),
            now,
            roles: roles.collect(),
            endpoints,
            conns: Slab::default(),
            incomings: Slab::default(),
            tasks: Slab::default(),
            sessions: Slab::default(),
            exchanges: Slab::default(),
            queries: Slab::default(),
            keyed: HashMap::new(),
            stored: HashMap::new(),
            every: Vec::new(),
            timers: Timers::default(),
            work: VecDeque::new(),
            turns: VecDeque::new(),
            outputs: VecDeque::new(),
            pool: Pool::default(),
            parsers: Parsers::default(),
            holes: View::default(),
            window: window(program),
            counters: Counters::default(),
            handlers: vec![HandlerCounters::default(); program.handlers.len()],
            ended: Vec::new(),
            cases: cases.collect(),
            draining: false,
            traced: None,
            posts: None,
            recorder: None,
            peer_reports: VecDeque::new(),
            reports_reached: false,
        };
        machine.start_clocks();
        Ok(machine)
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The roles, in the order of their ids.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The next action for the caller; to be polled after each input until there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if let Some(Output::Datagram { role, octets, .. }) = &output
            && self.traced.is_some()
        {
            let (role, octets) = (*role, octets.clone());
            self.note(|| MachineStep::Sent { role, octets });
        }
        output
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, on the clock of `now`.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.turns.is_empty() { self.timers.next() } else { Some(self.now) }
    }

    /// Whether only listeners are left: no connection, no handler and no wait.
    pub fn is_idle(&self) -> bool {
        self.conns.is_empty() && self.tasks.is_empty() && self.exchanges.is_empty()
    }

    /// Counters, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters.iter()
    }

    /// Counters of each handler, by name.
    pub fn handlers(&self) -> impl Iterator<Item = (&str, &HandlerCounters)> {
        let names = self.program.handlers.iter().map(|handler| handler.name.as_str());
        names.zip(&self.handlers)
    }

    /// Number of times each case of a dispatch was taken, with its role, in the order of the text.
    pub fn cases(&self) -> impl Iterator<Item = (&Role, &Case, u64)> {
        self.program.roles.iter().zip(&self.cases).flat_map(|(role, counts)| {
            let cases = role.requests.iter().flat_map(|kind| &kind.cases);
            cases.zip(counts).map(move |(case, count)| (role, case, *count))
        })
    }

    /// Current numbers, by name: connections, running handlers, sessions, exchanges in flight,
    /// messages being read or used, and names being resolved.
    pub fn gauges(&self) -> [(&'static str, usize); 6] {
        [
            ("connections", self.conns.len()),
            ("handlers", self.tasks.len()),
            ("sessions", self.sessions.len()),
            ("exchanges", self.exchanges.len()),
            ("messages", self.incomings.len()),
            ("names", self.queries.len()),
        ]
    }

    /// Number of sessions that requests find by a key: they hold what earlier requests left.
    pub fn keyed_sessions(&self) -> usize {
        self.keyed.len()
    }

    /// Handles the passage of time; one of the connections that wait for their turn has it.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.now = now;
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Task(task) => self.wait_is_over(task),
                Timer::Conn(conn) => self.conn_is_silent(conn),
                Timer::Retransmit(exchange) => self.retransmit(exchange),
                Timer::Exchange(exchange) => self.exchange_is_late(exchange),
                Timer::Session(session) => self.session_is_unused(session),
                Timer::Every(clock) => self.clock_strikes(clock),
                Timer::Repeats(role) => self.forget_repeats(role),
            }
            self.settle();
        }
        if let Some(conn) = self.turns.pop_front() {
            self.take_turn(conn);
            self.settle();
        }
    }

    /// Prepares for replacement of the program. No periodic handler starts any more, kept
    /// connections are closed, and running handlers continue to their end. The caller stops
    /// listening.
    pub fn drain(&mut self, now: Duration) {
        self.now = now;
        self.draining = true;
        self.drain_roles();
        self.settle();
    }

    /// Does internal work until none is left.
    fn settle(&mut self) {
        while let Some(work) = self.work.pop_front() {
            match work {
                Work::Run(task) => self.run(task),
                Work::Read(conn) => self.read(conn),
            }
        }
        if self.draining {
            self.drop_resting();
        }
        self.finish_recording();
    }

    fn count(&mut self, what: Count) {
        self.counters.add(what, 1);
    }
}

fn endpoints(program: &Program, config: &MachineConfig) -> Result<Vec<Endpoint>, ConfigError> {
    for (name, _) in &config.addresses {
        if !program.roles.iter().any(|role| role.name == *name) {
            return Err(ConfigError::NoRole(name.clone()));
        }
    }
    let roles = program.roles.iter().enumerate();
    let endpoint = |(index, role): (usize, &Role)| {
        let other = config.addresses.iter().rev().find(|(name, _)| *name == role.name);
        let address = other.map_or(&role.address, |(_, address)| address);
        let wrong = |error| ConfigError::Address { role: role.name.clone(), error };
        Ok(Endpoint {
            role: RoleId::new(index),
            name: role.name.clone(),
            side: role.side,
            transport: role.transport,
            cast: role.cast,
            address: address.parse().map_err(wrong)?,
            connections_max: role.connections_max,
        })
    };
    roles.map(endpoint).collect()
}

/// The longest stretch that any parser must see at once, and at least two pages.
fn window(program: &Program) -> usize {
    let streams = program.messages.iter().filter(|message| !message.datagram);
    let longest = streams.map(gatewright_lang::ir::Message::window).max().unwrap_or_default();
    usize::try_from(longest).unwrap_or(usize::MAX).max(BUFFER_OCTETS)
}

/// The periodic handlers, with their periods.
fn clocks(program: &Program) -> impl Iterator<Item = (usize, Duration)> + '_ {
    program.handlers.iter().enumerate().filter_map(|(index, handler)| match handler.kind {
        HandlerKind::Every { period } => Some((index, period)),
        _ => None,
    })
}
