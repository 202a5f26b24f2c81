//! A gateway program that runs, sans-IO: what arrives goes in, what is to be done comes out.
//!
//! # Inputs and outputs
//!
//! The caller owns the sockets and the clock. It tells what happened ([`accepted`], [`connected`],
//! [`received`], [`sent`], [`ended`], [`broken`], [`datagram`], [`resolved`], [`handle_timeout`]) and
//! does what [`poll_output`] says, until that is empty. [`poll_timeout`] says when
//! [`handle_timeout`] is due. `now` is the time since any epoch, the same in all calls; it never
//! goes back. An id that is over is ignored wherever it is given.
//!
//! # Octets that wait
//!
//! Neither side holds a buffer for a connection that has nothing pending. What the machine wants to
//! send lies in [`unsent`] until [`sent`] says that it is gone. How much the machine takes is
//! [`room`]: where that is 0 the caller stops reading, and the kernel's window stops the peer; an
//! [`Output::Read`] says when to go on. A stream that passes from one connection to another so runs
//! at the pace of the slower one, and takes two pages on each of them at most.
//!
//! # Limits
//!
//! All limits are the program's: connections, sessions, exchanges in the air, every wait. What is
//! above them is answered as the protocol says (`full`) and counted ([`counters`]). Two more are
//! the machine's: [`BUFFER_OCTETS`] and [`PIPELINED_MAX`].
//!
//! # Turns
//!
//! A connection that has sent many messages at once gives [`TURN_MESSAGES`] of them in a turn. Then
//! it waits behind the others, takes nothing in ([`room`] is 0), and [`poll_timeout`] is at once:
//! each [`handle_timeout`] gives one connection its next turn. A caller that asks its system for
//! news between two of them so serves whoever has one request before whoever has a thousand.
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
mod read;
mod request;
mod run;
mod send;
mod session;
mod slab;
mod task;
mod timers;
mod trace;
mod wait;

pub use address::{AddressError, Target};
pub use counters::{HandlerCounters, LATENCY_STEPS};
pub use post::{Captured, Counted, Does, Matching, Pace, Post, PostError, Way};
pub use slab::{ConnId, QueryId};
pub use trace::Trace;
pub(crate) use trace::shown;

use crate::flat::Layouts;
use crate::view::View;
use attach::Posts;
use buffers::{Parsers, Pool};
use conn::Conn;
use core::net::SocketAddr;
use core::time::Duration;
use counters::{Count, Counters};
use exchange::{Exchange, Repeat};
use gatewright_lang::ir::{Case, Cast, HandlerKind, Program, Role, RoleId, Side, Transport};
use peers::Place;
use read::Incoming;
use request::Every;
use session::Session;
use slab::{ExchangeId, IncomingId, SessionId, Slab, TaskId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use task::Task;
use timers::{Timer, Timers};

/// Two pages: what waits to be read of one connection, and what waits to be sent, before the other
/// side of the gateway has to slow down (paper 001 §2.2). A message that is longer goes above it.
pub const BUFFER_OCTETS: usize = 8_192;

/// How many requests of one connection are handled at once where answers may come in any order.
pub const PIPELINED_MAX: u32 = 16;

/// How many messages of one connection are begun before the others have their turn: what a client
/// sends without waiting for answers must not make everybody else wait for all of it.
pub const TURN_MESSAGES: u32 = 8;

/// How many names may be asked for at once.
pub const QUERIES_MAX: usize = 64;

/// What the program leaves to its user.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Other addresses than the program's: the role's name, and `host:port`.
    pub addresses: Vec<(String, String)>,
    /// Where `fresh` numbers begin; any number, better not the same at every start.
    pub seed: u64,
}

/// Why a machine cannot be made: the fault of the configuration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An address is for a role that the program does not have.
    #[error("the program has no role `{0}`")]
    NoRole(String),
    /// An address is none.
    #[error("{role}: {error}")]
    Address {
        /// Whose.
        role: String,
        /// What is wrong.
        error: AddressError,
    },
}

/// A role as the caller serves it.
///
/// For a TCP server it listens; for a UDP server it binds a socket, and joins the address's group
/// if the role is multicast; for a UDP client it binds a socket to any port. A TCP client needs
/// nothing before [`Output::Connect`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// The role.
    pub role: RoleId,
    /// Its name.
    pub name: String,
    /// Server or client.
    pub side: Side,
    /// What carries it.
    pub transport: Transport,
    /// To one or to many.
    pub cast: Cast,
    /// Where the server listens, or whom the client asks.
    pub address: Target,
    /// How many connections it has at most.
    pub connections_max: u32,
}

/// What the caller is to do.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Connect over TCP; then comes [`Machine::connected`] or [`Machine::connect_failed`].
    Connect {
        /// The connection to be.
        conn: ConnId,
        /// For whom.
        role: RoleId,
        /// Where to.
        to: SocketAddr,
    },
    /// [`Machine::unsent`] was empty and is not any more: write until it is empty, or until the
    /// system takes no more; then go on when it does. It is not said again while octets are left.
    Write {
        /// Where.
        conn: ConnId,
    },
    /// [`Machine::room`] was 0 and is not any more: read on.
    Read {
        /// Where.
        conn: ConnId,
    },
    /// Everything is sent and nothing will follow: end the sending side, and read on.
    Shutdown {
        /// Where.
        conn: ConnId,
    },
    /// The connection is over, and so is the id.
    Close {
        /// Which.
        conn: ConnId,
        /// Whether the peer must not take what it got for the whole: reset the connection.
        reset: bool,
    },
    /// Send a datagram from the role's own socket.
    Datagram {
        /// Whose.
        role: RoleId,
        /// Where to.
        to: SocketAddr,
        /// What.
        octets: Vec<u8>,
    },
    /// Resolve a name; then comes [`Machine::resolved`].
    Resolve {
        /// Which question.
        query: QueryId,
        /// The name.
        host: String,
        /// The port that the address is to have.
        port: u16,
    },
    /// A piece of a message passed a capture ([`Machine::attach`]).
    Captured(Box<Captured>),
}

/// What is to be done inside.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// A handler goes on.
    Run(TaskId),
    /// A connection's octets are looked at again.
    Read(ConnId),
}

/// Who waits for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    Conn(ConnId),
    Task(TaskId),
}

/// How a role stands.
#[derive(Debug)]
struct RoleState {
    address: Target,
    /// Connections there are; of a UDP server, handlers that run.
    connections: u32,
    /// Client connections without a session, the longest kept first.
    kept: Vec<ConnId>,
    /// Client connections that carry the requests of all sessions, one to a server.
    shared: Vec<ConnId>,
    /// The last `fresh` number.
    fresh: u32,
    /// Datagram exchanges in the air, by flow.
    air: HashMap<Vec<u8>, ExchangeId>,
    /// What became of requests that may come again, and when each is forgotten.
    repeats: HashMap<Vec<u8>, Repeat>,
    forget: VecDeque<(Duration, Vec<u8>)>,
}

/// A gateway program that runs.
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
    queries: Slab<QueryId, Asker>,
    keyed: HashMap<Vec<u8>, SessionId>,
    /// The sessions that store a peer.
    stored: HashMap<Place, Vec<SessionId>>,
    every: Vec<Every>,
    timers: Timers,
    work: VecDeque<Work>,
    /// Connections that wait for their next turn, each once.
    turns: VecDeque<ConnId>,
    outputs: VecDeque<Output>,
    pool: Pool,
    parsers: Parsers,
    /// The last message that was built.
    holes: View,
    /// The most octets that wait to be read on one connection.
    window: usize,
    counters: Counters,
    handlers: Vec<HandlerCounters>,
    /// How often each case of each role's dispatch was taken.
    cases: Vec<Vec<u64>>,
    draining: bool,
    /// The steps that nobody took, if they are wanted.
    traced: Option<Vec<Trace>>,
    /// What is attached to handlers, if anything is.
    posts: Option<Box<Posts>>,
}

impl Machine {
    /// A machine at the time `now`; its `every` handlers count from here.
    ///
    /// # Errors
    ///
    /// The configuration names a role that is not there, or an address is none.
    pub fn new(
        now: Duration,
        program: &Arc<Program>,
        config: &Config,
    ) -> Result<Self, ConfigError> {
        Self::laid_out(now, &Arc::new(Layouts::of(program)), config)
    }

    /// A machine of a program whose messages are laid out already, at the time `now`: for callers
    /// that make many of one program.
    ///
    /// # Errors
    ///
    /// As those of [`new`](Self::new).
    pub fn laid_out(
        now: Duration,
        layouts: &Arc<Layouts>,
        config: &Config,
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
            cases: cases.collect(),
            draining: false,
            traced: None,
            posts: None,
        };
        machine.start_clocks();
        Ok(machine)
    }

    /// The roles, in the order of their ids.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What is to be done next; to be asked after each input until there is nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if let Some(Output::Datagram { role, octets, .. }) = &output
            && self.traced.is_some()
        {
            let (role, octets) = (*role, octets.clone());
            self.note(|| Trace::Sent { role, octets });
        }
        output
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, on the clock of `now`.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.turns.is_empty() { self.timers.next() } else { Some(self.now) }
    }

    /// Whether nothing but listeners is left: no connection, no handler, nobody who waits.
    pub fn is_idle(&self) -> bool {
        self.conns.is_empty() && self.tasks.is_empty() && self.exchanges.is_empty()
    }

    /// What was counted, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counters.iter()
    }

    /// What each handler did, by name.
    pub fn handlers(&self) -> impl Iterator<Item = (&str, &HandlerCounters)> {
        let names = self.program.handlers.iter().map(|handler| handler.name.as_str());
        names.zip(&self.handlers)
    }

    /// How often each case of a dispatch was taken, with its role; in the order of the text.
    pub fn cases(&self) -> impl Iterator<Item = (&Role, &Case, u64)> {
        self.program.roles.iter().zip(&self.cases).flat_map(|(role, counts)| {
            let cases = role.requests.iter().flat_map(|kind| &kind.cases);
            cases.zip(counts).map(move |(case, count)| (role, case, *count))
        })
    }

    /// How many things there are now, by name: connections, handlers that run, sessions, exchanges
    /// in the air, messages that are read or used, names that are asked for.
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

    /// Time has gone by; one of the connections that wait for their turn has it.
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

    /// The program is being replaced: no handler starts by the clock any more, kept connections
    /// are closed, and what runs goes on to its end. The caller stops listening.
    pub fn drain(&mut self, now: Duration) {
        self.now = now;
        self.draining = true;
        self.drain_roles();
        self.settle();
    }

    /// Does what is to be done inside, until nothing is.
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
    }

    fn count(&mut self, what: Count) {
        self.counters.add(what, 1);
    }
}

fn endpoints(program: &Program, config: &Config) -> Result<Vec<Endpoint>, ConfigError> {
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

/// The longest stretch that some parser must see at once, and no less than two pages.
fn window(program: &Program) -> usize {
    let streams = program.messages.iter().filter(|message| !message.datagram);
    let longest = streams.map(gatewright_lang::ir::Message::window).max().unwrap_or_default();
    usize::try_from(longest).unwrap_or(usize::MAX).max(BUFFER_OCTETS)
}

/// The handlers that run by the clock, with their period.
fn clocks(program: &Program) -> impl Iterator<Item = (usize, Duration)> + '_ {
    program.handlers.iter().enumerate().filter_map(|(index, handler)| match handler.kind {
        HandlerKind::Every { period } => Some((index, period)),
        _ => None,
    })
}
