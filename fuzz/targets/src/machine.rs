//! Gateway programs under whatever peers and networks do.

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, RoleId, Side, StepAction, Transport};
use gatewright_translate::machine::{
    BUFFER_OCTETS, ConnId, Machine, MachineConfig, Output, QueryId,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

macro_rules! texts {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../", $folder, "/", $name)))),*]
    };
}

/// What is run, and what it imports.
const TEXTS: &[&[(&str, &str)]] = &[
    texts!("examples/gateways": "smtp_relay.gate" "smtp.gate"),
    texts!("examples/gateways": "smtp_to_http.gate" "smtp.gate" "http.gate"),
    texts!("examples/gateways": "http_to_smtp.gate" "smtp.gate" "http.gate"),
    texts!("examples/gateways": "coap_to_modbus.gate" "coap.gate" "modbus.gate"),
    texts!("examples/gateways": "modbus_to_mqtt.gate" "modbus.gate" "mqtt.gate"),
    texts!("crates/translate/tests/programs": "lines_gateway.gate" "lines.gate"),
    texts!("crates/translate/tests/programs": "finder.gate"),
    texts!("crates/translate/tests/programs": "pipes.gate"),
];

static PROGRAMS: OnceLock<Vec<Arc<Program>>> = OnceLock::new();

/// The most octets of one message that some program builds, far above what they are.
const MESSAGE_OCTETS_MAX: usize = 128 * 1024;

/// A program chosen by the first octet; the others are events, one after the other: peers connect,
/// send what the program's tests send or anything else, end, break; the system takes octets, or does
/// not; connections are made, or not; names are resolved, or not; time goes by. Every bound holds
/// all the time, and when everybody has gone, nothing is left.
pub fn machine(octets: &[u8]) {
    let programs = PROGRAMS.get_or_init(programs);
    let Some((first, events)) = octets.split_first() else { return };
    let Some(program) = programs.get(usize::from(*first) % programs.len().max(1)) else { return };
    let mut world = World::new(program);
    let mut events = Events(events);
    while let Some(event) = events.octet() {
        world.event(event, &mut events);
        world.drive();
    }
    world.end();
}

fn programs() -> Vec<Arc<Program>> {
    let programs = TEXTS.iter().filter_map(|texts| {
        let (name, text) = texts.first()?;
        let mut sources = Sources::of(*name, *text);
        let load = |_: &str, wanted: &str| {
            let found = texts.iter().find(|(name, _)| *name == wanted)?;
            Some((found.0.to_owned(), found.1.to_owned()))
        };
        compile(&mut sources, SourceId::default(), load).program.map(Arc::new)
    });
    let programs: Vec<_> = programs.collect();
    assert_eq!(programs.len(), TEXTS.len(), "every program compiles");
    programs
}

/// What is left of the input.
struct Events<'e>(&'e [u8]);

impl<'e> Events<'e> {
    fn octet(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> usize {
        self.octet().map_or(0, usize::from)
    }

    fn octets(&mut self) -> &'e [u8] {
        let length = self.number().min(self.0.len());
        let (one, rest) = self.0.split_at_checked(length).unwrap_or((self.0, &[]));
        self.0 = rest;
        one
    }
}

/// A connection as its caller knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Known {
    conn: ConnId,
    role: RoleId,
    connected: bool,
    ended: bool,
}

struct World<'p> {
    program: &'p Program,
    machine: Machine,
    now: Duration,
    conns: Vec<Known>,
    queries: Vec<QueryId>,
    roles: Vec<(RoleId, Side, Transport)>,
    /// What the peers of each role send in the program's tests.
    said: Vec<Vec<&'p [u8]>>,
    /// Where datagrams were sent to, last.
    asked: SocketAddr,
}

impl<'p> World<'p> {
    fn new(program: &'p Arc<Program>) -> Self {
        let now = Duration::from_secs(1_000);
        let config = MachineConfig { addresses: Vec::new(), seed: 7 };
        let made = Machine::new(now, program, &config);
        assert!(made.is_ok(), "the program's own addresses are good");
        let Ok(machine) = made else { unreachable!("it was made") };
        let said = (0..program.roles.len()).map(|wanted| {
            let steps = program.tests.iter().flat_map(|test| &test.steps);
            let sends = steps.filter_map(move |step| match &step.action {
                StepAction::Sends { role, octets } if role.index() == wanted => {
                    Some(octets.as_slice())
                }
                _ => None,
            });
            sends.collect()
        });
        let roles = machine.endpoints().iter().map(|of| (of.role, of.side, of.transport));
        let (roles, said) = (roles.collect(), said.collect());
        let asked = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let (conns, queries) = (Vec::new(), Vec::new());
        Self { program, machine, now, conns, queries, roles, said, asked }
    }

    fn event(&mut self, event: u8, events: &mut Events<'_>) {
        match event % 16 {
            0 => self.accept(events),
            1..=4 => self.speak(events),
            5 => self.send(events),
            6 => self.end_one(events),
            7 => self.break_one(events),
            8 | 9 => self.connect_one(events),
            10 => {
                let step = [1, 100, 2_000, 6_000, 31_000, 61_000, 301_000, 86_400_000];
                let millis = step.get(events.number() % step.len()).copied().unwrap_or(1);
                self.pass(Duration::from_millis(millis));
            }
            11 | 12 => self.datagram(events),
            13 => {
                if let Some(query) = self.queries.pop() {
                    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 80));
                    let address = (!events.number().is_multiple_of(3)).then_some(address);
                    self.machine.resolved(self.now, query, address);
                }
            }
            14 => {
                self.now += Duration::from_micros(1);
                self.machine.handle_timeout(self.now);
            }
            _ if events.number() == 255 => self.machine.drain(self.now),
            _ => {}
        }
    }

    fn accept(&mut self, events: &mut Events<'_>) {
        let servers: Vec<_> = (self.roles.iter())
            .filter(|of| of.1 == Side::Server && of.2 == Transport::Tcp)
            .map(|of| of.0)
            .collect();
        let Some(role) = servers.get(events.number() % servers.len().max(1)) else { return };
        if self.conns.len() < 40 {
            let conn = self.machine.accepted(self.now, *role, self.asked);
            self.conns.push(Known { conn, role: *role, connected: true, ended: false });
        }
    }

    fn chosen(&mut self, events: &mut Events<'_>) -> Option<&mut Known> {
        let index = events.number() % self.conns.len().max(1);
        self.conns.get_mut(index)
    }

    /// A peer sends, at most as much as there is room for.
    fn speak(&mut self, events: &mut Events<'_>) {
        let Some(Known { conn, role, connected: true, ended: false }) =
            self.chosen(events).copied()
        else {
            return;
        };
        let choice = events.number();
        let known = self.said.get(role.index()).map(Vec::as_slice).unwrap_or_default();
        let octets = match known.get(choice % (known.len() + 1)) {
            Some(octets) => octets,
            None => events.octets(),
        };
        let cut = events.number();
        let octets = if cut < 200 { octets.get(..cut).unwrap_or(octets) } else { octets };
        let repeated = octets.repeat(if cut == 255 { 300 } else { 1 });
        let room = self.machine.room(conn);
        assert!(room <= 2 * BUFFER_OCTETS, "room for {room}");
        let octets = repeated.get(..room).unwrap_or(&repeated);
        if !octets.is_empty() {
            self.machine.received(self.now, conn, octets);
        }
    }

    /// The system takes some of what is to be sent.
    fn send(&mut self, events: &mut Events<'_>) {
        let Some(conn) = self.chosen(events).map(|of| of.conn) else { return };
        let octets = self.machine.unsent(conn).len();
        let part = match events.number() {
            255 => octets,
            part => octets.min(part),
        };
        self.machine.sent(self.now, conn, part);
    }

    fn end_one(&mut self, events: &mut Events<'_>) {
        let Some(known) = self.chosen(events) else { return };
        if known.connected && !known.ended {
            known.ended = true;
            let conn = known.conn;
            self.machine.ended(self.now, conn);
        }
    }

    fn break_one(&mut self, events: &mut Events<'_>) {
        let Some(known) = self.chosen(events).copied() else { return };
        self.conns.retain(|of| *of != known);
        if known.connected {
            self.machine.broken(self.now, known.conn);
        } else {
            self.machine.connect_failed(self.now, known.conn);
        }
        assert_eq!(self.machine.room(known.conn), 0, "the id is over");
    }

    fn connect_one(&mut self, events: &mut Events<'_>) {
        let fails = events.number().is_multiple_of(5);
        let Some(at) = self.conns.iter().position(|of| !of.connected) else { return };
        let Some(known) = self.conns.get_mut(at) else { return };
        let conn = known.conn;
        if fails {
            self.conns.remove(at);
            self.machine.connect_failed(self.now, conn);
        } else {
            known.connected = true;
            self.machine.connected(self.now, conn);
        }
    }

    fn datagram(&mut self, events: &mut Events<'_>) {
        let udp: Vec<_> =
            self.roles.iter().filter(|of| of.2 == Transport::Udp).map(|of| of.0).collect();
        let Some(role) = udp.get(events.number() % udp.len().max(1)).copied() else { return };
        let known = self.said.get(role.index()).map(Vec::as_slice).unwrap_or_default();
        let octets = match known.get(events.number() % (known.len() + 1)) {
            Some(octets) => octets,
            None => events.octets(),
        };
        let from = match events.number() % 3 {
            0 => self.asked,
            port => SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap_or(1))),
        };
        self.machine.datagram(self.now, role, from, octets);
    }

    /// Does what the machine says, and looks whether it may say it.
    fn drive(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.machine.poll_output() {
            outputs += 1;
            assert!(outputs < 10_000, "it talks to itself");
            match output {
                Output::Connect { conn, role, .. } => {
                    self.conns.push(Known { conn, role, connected: false, ended: false });
                }
                Output::Close { conn, .. } => self.conns.retain(|of| of.conn != conn),
                Output::Shutdown { conn } => {
                    assert!(self.machine.unsent(conn).is_empty(), "the end is behind what is sent");
                }
                Output::Datagram { to, octets, .. } => {
                    assert!(!octets.is_empty() && octets.len() < 65_536);
                    self.asked = to;
                }
                Output::Resolve { query, .. } => self.queries.push(query),
                _ => {}
            }
        }
        for of in &self.conns {
            let unsent = self.machine.unsent(of.conn).len();
            assert!(unsent <= 3 * BUFFER_OCTETS + MESSAGE_OCTETS_MAX, "{unsent} unsent");
        }
        let most: u32 = self.program.roles.iter().map(|role| role.connections_max).sum();
        let gauges = self.machine.gauges();
        let tasks = gauges.iter().find(|(name, _)| *name == "handlers").map_or(0, |of| of.1);
        let most = usize::try_from(most).unwrap_or(usize::MAX).saturating_mul(17);
        assert!(tasks <= most.saturating_add(self.program.handlers.len()), "{tasks} handlers");
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        let mut turns = 0;
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            self.drive();
            turns += 1;
            if turns > 1_000 {
                break;
            }
        }
        self.now = until;
    }

    /// Everybody goes; nothing may be left.
    fn end(mut self) {
        self.machine.drain(self.now);
        self.drive();
        for _ in 0..8 {
            while let Some(known) = self.conns.pop() {
                if known.connected {
                    self.machine.broken(self.now, known.conn);
                } else {
                    self.machine.connect_failed(self.now, known.conn);
                }
                self.drive();
            }
            while let Some(query) = self.queries.pop() {
                self.machine.resolved(self.now, query, None);
                self.drive();
            }
            self.pass(Duration::from_hours(1));
        }
        let left: Vec<_> =
            self.machine.gauges().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(left, [], "something is left");
    }
}
