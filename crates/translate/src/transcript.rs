//! Runs the `test` blocks of a program, with a machine and mocked peers, in virtual time.
//!
//! Every role has one peer. A server's peer connects before the first step, and again if it sends
//! after its connection has ended. A client's peer accepts when the gateway connects, and then
//! sends what it was told to send before. Each name resolves to its own address.

use crate::flat::Layouts;
use crate::machine::{ConnId, Machine, MachineConfig, MachineStep, Output};
use crate::parser::Parser;
use crate::view::Value;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use gatewright_diagnostic::{Code, Diagnostic, Span};
use gatewright_lang::ir::{
    Expect, MessageId, Operand, Program, RoleId, Side, SlotId, Step, StepAction, TestCase,
    Transport,
};
use std::collections::VecDeque;
use std::sync::Arc;

/// Division of the peers' octets into pieces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cut {
    /// Each step's octets arrive at once.
    Whole,
    /// Every octet arrives separately.
    Octets,
    /// The octets of one step arrive in two pieces.
    At {
        /// The step, counted from 0.
        step: usize,
        /// Octets of the first piece.
        octets: usize,
    },
}

/// Why a test fails.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failed {
    /// Source position: the step, or the whole test.
    pub span: Span,
    /// The role of the peer.
    pub role: String,
    /// The expected result.
    pub expected: String,
    /// The actual result.
    pub found: String,
    /// The expected octets, if octets were expected.
    pub wanted: Vec<u8>,
    /// The octets that the peer received and no step has checked.
    pub got: Vec<u8>,
    /// The last messages that could not be read before: which, why, and the item of the layout.
    pub unreadable: Vec<UnreadMessage>,
}

/// A message of a test that could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnreadMessage {
    /// The view.
    pub view: String,
    /// The reason.
    pub why: String,
    /// Source position: the item of the layout.
    pub span: Span,
}

/// All diagnostic codes of tests.
pub const CODES: &[&Code] = &[&TEST_FAILED];

/// A step of a test failed.
const TEST_FAILED: Code = Code {
    number: 295,
    title: "a test fails",
    explanation: "A step of a `test` block was not fulfilled when nothing moved any more, or a \
                  peer got octets that no step expects. The notes show what was expected and what \
                  was there, and the first octet in which they differ.",
};

impl Failed {
    /// The diagnostic, with the expected and the actual result.
    pub fn diagnostic(&self, test: &str) -> Diagnostic {
        let Self { span, role, expected, found, wanted, got, unreadable } = self;
        let message = format!("`{test}`: `{role}` should see {expected}, but sees {found}");
        let mut diagnostic = Diagnostic::error(&TEST_FAILED, *span, message);
        if !wanted.is_empty() {
            diagnostic = diagnostic.note(format!("expected {}", octets_shown(wanted)));
        }
        if !got.is_empty() {
            diagnostic = diagnostic.note(format!("got      {}", octets_shown(got)));
        }
        let same = wanted.iter().zip(got).take_while(|(one, other)| one == other).count();
        if same > 0 && !wanted.is_empty() {
            diagnostic = diagnostic.note(format!("they differ from octet {same} on"));
        }
        for UnreadMessage { view, why, span } in unreadable {
            diagnostic = diagnostic.also(*span, format!("a `{view}` could not be read: {why}"));
        }
        diagnostic
    }
}

/// Maximum number of octets that a finding shows: as many as fit a few lines.
const SHOWN_MAX: usize = 300;

/// Octets as a program writes them: as text, or otherwise in hexadecimal.
pub fn octets_shown(octets: &[u8]) -> String {
    let text = |octet: &u8| matches!(octet, b'\t' | b'\r' | b'\n' | 0x20..=0x7e);
    let near = octets.get(..SHOWN_MAX).unwrap_or(octets);
    let shown = if near.iter().all(text) {
        format!("\"{}\"", near.escape_ascii())
    } else {
        let hex: Vec<String> = near.iter().map(|octet| format!("{octet:02x}")).collect();
        format!("x\"{}\"", hex.join(" "))
    };
    let more = octets.len() - near.len();
    if more == 0 { shown } else { format!("{shown} and {more} octets more") }
}

/// Result of a test.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TestResult {
    /// Why it fails, if it does.
    pub failed: Option<Box<Failed>>,
    /// Whether each handler was started, in the order of the program's handlers.
    pub handlers: Vec<bool>,
    /// Whether each case of a dispatch was taken, in the order of roles and cases.
    pub cases: Vec<bool>,
    /// Virtual time that passed.
    pub time: Duration,
}

/// Runs one test.
pub fn run(program: &Arc<Program>, test: &TestCase, cut: Cut) -> TestResult {
    let mut stage = match Stage::new(program, test, cut) {
        Ok(stage) => stage,
        Err(reason) => {
            let failed = Box::new(Failed {
                span: test.span,
                role: String::new(),
                expected: "a program that can be run".to_owned(),
                found: reason,
                wanted: Vec::new(),
                got: Vec::new(),
                unreadable: Vec::new(),
            });
            return TestResult {
                failed: Some(failed),
                handlers: Vec::new(),
                cases: Vec::new(),
                time: Duration::ZERO,
            };
        }
    };
    let mut failed = stage.play(test).err();
    if let Some(failed) = &mut failed {
        failed.unreadable.extend(unreadable(program, test, cut));
    }
    let handlers = stage.machine.handlers().map(|(_, counters)| counters.started > 0).collect();
    let cases = stage.machine.cases().map(|(_, _, count)| count > 0).collect();
    TestResult { failed, handlers, cases, time: stage.now }
}

/// The last messages that the machine could not read in a test: they may be why it fails.
fn unreadable(program: &Arc<Program>, test: &TestCase, cut: Cut) -> Vec<UnreadMessage> {
    let Ok(mut stage) = Stage::new(program, test, cut) else { return Vec::new() };
    stage.machine.trace();
    let _same = stage.play(test);
    let mut found = Vec::new();
    for step in stage.machine.take_trace() {
        let MachineStep::Malformed { message, why, span } = step else { continue };
        let view = program.message(message).map(|of| of.name.clone()).unwrap_or_default();
        found.push(UnreadMessage { view, why, span });
    }
    found.split_off(found.len().saturating_sub(UNREADABLE_MAX))
}

/// Maximum number of unreadable messages that a finding shows.
const UNREADABLE_MAX: usize = 3;

/// Runs the first `steps` of a test, resets the connection of a role's peer, then those of all
/// others, and lets time pass. Returns what is left then: nothing, unless the machine forgot
/// something.
pub fn reset(
    program: &Arc<Program>,
    test: &TestCase,
    steps: usize,
    role: RoleId,
) -> Vec<(&'static str, usize)> {
    let Ok(mut stage) = Stage::new(program, test, Cut::Whole) else { return Vec::new() };
    for role in 0..stage.peers.len() {
        stage.connect(RoleId::new(role));
    }
    stage.settle();
    for (index, step) in test.steps.iter().enumerate().take(steps) {
        // Whether the step is fulfilled is not the question here.
        let _ = stage.step(index, step);
        stage.settle();
    }
    stage.breaks(role);
    for role in 0..stage.peers.len() {
        stage.breaks(RoleId::new(role));
    }
    stage.machine.drain(stage.now);
    stage.settle();
    for _ in 0..LAST_CONNECTIONS_MAX {
        let pass = StepAction::Pass(LONG);
        let _ = stage.step(usize::MAX, &Step { action: pass, span: test.span });
        for role in 0..stage.peers.len() {
            stage.breaks(RoleId::new(role));
        }
    }
    stage.machine.gauges().into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Longer than any wait of a program tested this way.
const LONG: Duration = Duration::from_hours(48);

/// How often running handlers may connect again before they give up.
const LAST_CONNECTIONS_MAX: usize = 4;

/// Runs one test and returns every step.
pub fn trace(program: &Arc<Program>, test: &TestCase) -> (Option<Box<Failed>>, Vec<MachineStep>) {
    let Ok(mut stage) = Stage::new(program, test, Cut::Whole) else { return (None, Vec::new()) };
    stage.machine.trace();
    let mut failed = stage.play(test).err();
    if let Some(failed) = &mut failed {
        failed.unreadable.extend(unreadable(program, test, Cut::Whole));
    }
    (failed, stage.machine.take_trace())
}

/// The mocked peer of a role.
#[derive(Debug)]
struct MockedPeer {
    transport: Transport,
    side: Side,
    address: SocketAddr,
    conn: Option<ConnId>,
    /// Whether the gateway has ended the connection.
    closed: bool,
    /// Pieces that it will send.
    outbox: VecDeque<Vec<u8>>,
    /// Whether it ends its side after them.
    ends: bool,
    /// Octets received over its connections.
    inbox: Vec<u8>,
    /// Datagrams received.
    datagrams: VecDeque<Vec<u8>>,
}

/// Maximum number of outputs in one step: a gateway with more is talking to itself.
const OUTPUTS_MAX: usize = 1_000_000;

struct Stage {
    program: Arc<Program>,
    layouts: Arc<Layouts>,
    machine: Machine,
    peers: Vec<MockedPeer>,
    now: Duration,
    cut: Cut,
}

impl Stage {
    fn new(program: &Arc<Program>, test: &TestCase, cut: Cut) -> Result<Self, String> {
        let now = Duration::ZERO;
        let program = &with_parameters(program, test);
        let layouts = Arc::new(Layouts::of(program));
        let machine = Machine::laid_out(now, &layouts, &MachineConfig::default())
            .map_err(|error| error.to_string())?;
        let peer = |(index, role): (usize, &gatewright_lang::ir::Role)| MockedPeer {
            transport: role.transport,
            side: role.side,
            address: documentation_address(index),
            conn: None,
            closed: false,
            outbox: VecDeque::new(),
            ends: false,
            inbox: Vec::new(),
            datagrams: VecDeque::new(),
        };
        let peers = program.roles.iter().enumerate().map(peer).collect();
        Ok(Self { program: Arc::clone(program), layouts, machine, peers, now, cut })
    }

    fn play(&mut self, test: &TestCase) -> Result<(), Box<Failed>> {
        for (role, number) in &test.fresh {
            self.machine.give_fresh(*role, *number);
        }
        for role in 0..self.peers.len() {
            self.connect(RoleId::new(role));
        }
        self.settle();
        for (index, step) in test.steps.iter().enumerate() {
            self.step(index, step)?;
            self.settle();
        }
        for index in 0..self.peers.len() {
            let role = RoleId::new(index);
            let Some(peer) = self.peers.get(index) else { continue };
            let first = peer.datagrams.front().filter(|_| peer.inbox.is_empty());
            let got = first.unwrap_or(&peer.inbox).clone();
            if !got.is_empty() {
                return Err(self.failed(test.span, role, "nothing more", Vec::new(), got));
            }
        }
        Ok(())
    }

    /// Connects a server's peer, unless it is connected.
    fn connect(&mut self, role: RoleId) {
        let Some(peer) = self.peers.get_mut(role.index()) else { return };
        if peer.side == Side::Server && peer.transport == Transport::Tcp && peer.conn.is_none() {
            peer.closed = false;
            peer.ends = false;
            peer.conn = Some(self.machine.accepted(self.now, role, peer.address));
        }
    }

    fn step(&mut self, index: usize, step: &Step) -> Result<(), Box<Failed>> {
        match &step.action {
            StepAction::Sends { role, octets } => {
                self.connect(*role);
                let pieces = self.pieces(index, *role, octets);
                if let Some(peer) = self.peers.get_mut(role.index()) {
                    peer.outbox.extend(pieces);
                }
                Ok(())
            }
            StepAction::Closes { role } => {
                if let Some(peer) = self.peers.get_mut(role.index()) {
                    peer.ends = true;
                }
                Ok(())
            }
            StepAction::Pass(time) => {
                let until = self.now.saturating_add(*time);
                while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= until) {
                    self.now = at.max(self.now);
                    self.machine.handle_timeout(self.now);
                    self.settle();
                }
                self.now = until;
                Ok(())
            }
            StepAction::Sees { role, expect } => self.sees(step.span, *role, expect),
        }
    }

    /// Resets a peer's connection.
    fn breaks(&mut self, role: RoleId) {
        let Some(peer) = self.peers.get_mut(role.index()) else { return };
        peer.outbox.clear();
        if let Some(conn) = peer.conn.take() {
            peer.closed = true;
            self.machine.broken(self.now, conn);
        }
        self.settle();
    }

    fn pieces(&self, step: usize, role: RoleId, octets: &[u8]) -> Vec<Vec<u8>> {
        let udp = self.peers.get(role.index()).is_some_and(|of| of.transport == Transport::Udp);
        match self.cut {
            Cut::Octets if !udp => octets.iter().map(|octet| vec![*octet]).collect(),
            Cut::At { step: at, octets: first } if at == step && !udp => {
                let (one, other) = octets.split_at_checked(first).unwrap_or((octets, &[]));
                [one, other].into_iter().filter(|of| !of.is_empty()).map(<[u8]>::to_vec).collect()
            }
            _ => vec![octets.to_vec()],
        }
    }

    fn sees(&mut self, span: Span, role: RoleId, expect: &Expect) -> Result<(), Box<Failed>> {
        let Some(peer) = self.peers.get_mut(role.index()) else { return Ok(()) };
        match expect {
            Expect::Octets(wanted) if peer.transport == Transport::Udp => {
                if peer.datagrams.front() == Some(wanted) {
                    peer.datagrams.pop_front();
                    return Ok(());
                }
                let got = peer.datagrams.front().cloned().unwrap_or_default();
                Err(self.failed(span, role, "these octets", wanted.clone(), got))
            }
            Expect::Octets(wanted) => {
                if peer.inbox.starts_with(wanted) {
                    peer.inbox.drain(..wanted.len());
                    return Ok(());
                }
                let got = peer.inbox.clone();
                Err(self.failed(span, role, "these octets", wanted.clone(), got))
            }
            Expect::Message { view, values } => self.sees_message(span, role, *view, values),
            Expect::Closed => {
                if peer.closed && peer.inbox.is_empty() {
                    return Ok(());
                }
                let got = peer.inbox.clone();
                Err(self.failed(span, role, "the end of the connection", Vec::new(), got))
            }
        }
    }

    fn sees_message(
        &mut self,
        span: Span,
        role: RoleId,
        view: MessageId,
        values: &[(SlotId, Operand)],
    ) -> Result<(), Box<Failed>> {
        let name = self.program.message(view).map(|of| of.name.clone()).unwrap_or_default();
        let Some(peer) = self.peers.get_mut(role.index()) else { return Ok(()) };
        let udp = peer.transport == Transport::Udp;
        let got =
            if udp { peer.datagrams.pop_front().unwrap_or_default() } else { peer.inbox.clone() };
        let expected = format!("one `{name}`");
        let Ok(mut parser) = Parser::new(Arc::clone(&self.layouts), view) else { return Ok(()) };
        let last = udp || peer.closed;
        let read = parser.read(&got, last, &mut Vec::new());
        match read {
            Ok(progress) if progress.complete => {
                if !udp {
                    peer.inbox.drain(..progress.consumed.min(peer.inbox.len()));
                }
            }
            Ok(_) => return Err(self.failed(span, role, &expected, Vec::new(), got)),
            Err(malformed) => {
                let mut failed = self.failed(span, role, &expected, Vec::new(), got);
                if !failed.got.is_empty() {
                    let (view, why, span) = (name, malformed.to_string(), malformed.span);
                    failed.unreadable.push(UnreadMessage { view, why, span });
                }
                return Err(failed);
            }
        }
        for (slot, operand) in values {
            let wanted = match operand {
                Operand::Int(value) => Value::Int(*value),
                Operand::Literal(literal) => Value::Octets(self.program.literal(*literal).to_vec()),
                _ => continue,
            };
            let found = parser.view().get(*slot);
            if found.as_ref() != Some(&wanted) {
                let message = self.program.message(view);
                let field = message.and_then(|of| of.slot(*slot)).map_or("", |slot| &slot.name);
                let expected = format!("`{name}` with {field}: {}", shown(Some(&wanted)));
                let instead = format!("{field}: {}", shown(found.as_ref()));
                let mut failed = self.failed(span, role, &expected, Vec::new(), got);
                failed.found = instead;
                return Err(failed);
            }
        }
        Ok(())
    }

    fn failed(
        &self,
        span: Span,
        role: RoleId,
        expected: &str,
        wanted: Vec<u8>,
        got: Vec<u8>,
    ) -> Box<Failed> {
        let peer = self.peers.get(role.index());
        let state = match peer {
            Some(MockedPeer { transport: Transport::Udp, .. }) => "",
            Some(MockedPeer { conn: None, closed: false, .. }) => ", and there is no connection",
            Some(MockedPeer { closed: true, .. }) => ", and the connection has ended",
            _ => "",
        };
        let found = if got.is_empty() { "nothing" } else { "other octets" };
        Box::new(Failed {
            span,
            role: self.program.role(role).map(|role| role.name.clone()).unwrap_or_default(),
            expected: expected.to_owned(),
            found: format!("{found}{state}"),
            wanted,
            got,
            unreadable: Vec::new(),
        })
    }

    /// Passes octets between the machine and the peers until nothing moves.
    fn settle(&mut self) {
        let mut outputs = 0_usize;
        loop {
            while let Some(output) = self.machine.poll_output() {
                self.output(output);
                outputs += 1;
                if outputs > OUTPUTS_MAX {
                    return;
                }
            }
            if self.machine.poll_timeout().is_some_and(|at| at <= self.now) {
                self.machine.handle_timeout(self.now);
                outputs += 1;
            } else if !self.feed() {
                return;
            }
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Connect { conn, role, to } => {
                let now = self.now;
                let Some(peer) = self.peers.get_mut(role.index()) else { return };
                peer.conn = Some(conn);
                peer.closed = false;
                peer.ends = false;
                peer.address = to;
                self.machine.connected(now, conn);
            }
            Output::Write { conn } => {
                let octets = self.machine.unsent(conn).to_vec();
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.conn == Some(conn)) {
                    peer.inbox.extend_from_slice(&octets);
                }
                self.machine.sent(self.now, conn, octets.len());
            }
            Output::Shutdown { conn } => {
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.conn == Some(conn)) {
                    peer.closed = true;
                }
            }
            Output::Close { conn, .. } => {
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.conn == Some(conn)) {
                    peer.closed = true;
                    peer.conn = None;
                    peer.ends = false;
                }
            }
            Output::Datagram { role, to, octets } => {
                if let Some(peer) = self.peers.get_mut(role.index()) {
                    if peer.side == Side::Client {
                        peer.address = to;
                    }
                    peer.datagrams.push_back(octets);
                }
            }
            Output::Resolve { query, port, .. } => {
                let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)), port);
                self.machine.resolved(self.now, query, Some(address));
            }
            Output::Read { .. } | Output::Captured(_) | Output::Recorded(_) => {}
        }
    }

    /// Gives the machine the next piece from a peer; returns whether there was one.
    fn feed(&mut self) -> bool {
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(index) else { continue };
            if peer.transport == Transport::Udp {
                if let Some(octets) = peer.outbox.pop_front() {
                    let from = peer.address;
                    self.machine.datagram(self.now, RoleId::new(index), from, &octets);
                    return true;
                }
                continue;
            }
            let Some(conn) = peer.conn else { continue };
            let Some(mut piece) = peer.outbox.pop_front() else {
                if core::mem::take(&mut peer.ends) {
                    self.machine.ended(self.now, conn);
                    return true;
                }
                continue;
            };
            let room = self.machine.room(conn);
            if room < piece.len() {
                let rest = piece.split_off(room);
                peer.outbox.push_front(rest);
            }
            if !piece.is_empty() {
                self.machine.received(self.now, conn, &piece);
                return true;
            }
        }
        false
    }
}

/// The address of a role's peer (RFC 5737).
fn documentation_address(role: usize) -> SocketAddr {
    let last = u8::try_from(role % 200).unwrap_or_default().saturating_add(1);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)), 50_000)
}

/// A value in readable form.
fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), crate::machine::shown)
}

/// The program with a value for every parameter: the test's, or else its own.
fn with_parameters(program: &Arc<Program>, test: &TestCase) -> Arc<Program> {
    if program.parameters_are_set().is_ok() && test.parameters.is_empty() {
        return Arc::clone(program);
    }
    let mut program = program.with_parameters_for_tests();
    for (id, value) in &test.parameters {
        if let Some(parameter) = program.parameters.get_mut(id.index()) {
            parameter.value = Some(value.clone());
        }
    }
    Arc::new(program)
}
