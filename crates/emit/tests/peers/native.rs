//! The native machine, told and telling the same as a generated gateway's process.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use super::hex;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use gatewright_lang::ir::{Program, RoleId, Side};
use gatewright_translate::machine::{
    ConnId, Machine, MachineConfig, Output, PeerLoss, PeerSeen, QueryId,
};
use std::sync::Arc;

/// What happens. Connections and names are counted in the order in which they were told.
#[derive(Clone, Debug)]
pub enum Event {
    Accept(usize),
    Connected(usize),
    Failed(usize),
    Octets(usize, Vec<u8>),
    End(usize),
    Break(usize),
    Datagram(usize, Vec<u8>),
    Resolved(usize),
    Unknown(usize),
    Time(u64),
    Drain,
}

/// The line by which a generated gateway's process is told of it.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(role) => write!(f, "accept {role}"),
            Self::Connected(conn) => write!(f, "connected {conn}"),
            Self::Failed(conn) => write!(f, "failed {conn}"),
            Self::Octets(conn, octets) => write!(f, "octets {conn} {}", hex(octets)),
            Self::End(conn) => write!(f, "end {conn}"),
            Self::Break(conn) => write!(f, "break {conn}"),
            Self::Datagram(role, octets) => write!(f, "datagram {role} {}", hex(octets)),
            Self::Resolved(query) => write!(f, "resolved {query}"),
            Self::Unknown(query) => write!(f, "unknown {query}"),
            Self::Time(to) => write!(f, "time {to}"),
            Self::Drain => f.write_str("drain"),
        }
    }
}

/// A machine, and the connections and names that it told.
pub struct Native {
    machine: Machine,
    program: Arc<Program>,
    now: Duration,
    conns: Vec<ConnId>,
    queries: Vec<QueryId>,
    told: Vec<String>,
}

impl Native {
    pub fn new(program: &Arc<Program>) -> Self {
        let mut machine = Machine::new(Duration::ZERO, program, &MachineConfig::default()).unwrap();
        machine.report_reached(true);
        Self {
            machine,
            program: Arc::clone(program),
            now: Duration::ZERO,
            conns: Vec::new(),
            queries: Vec::new(),
            told: Vec::new(),
        }
    }

    /// What the machine makes of an event, a line each.
    pub fn tell(&mut self, event: &Event) -> Vec<String> {
        let now = self.now;
        match event {
            Event::Accept(role) => {
                let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000));
                let conn = self.machine.accepted(now, RoleId::new(*role), peer);
                self.told.push(format!("conn {}", self.conns.len()));
                self.conns.push(conn);
            }
            Event::Connected(conn) => self.machine.connected(now, self.conns[*conn]),
            Event::Failed(conn) => self.machine.connect_failed(now, self.conns[*conn]),
            Event::Octets(conn, octets) => self.receive(self.conns[*conn], octets),
            Event::End(conn) => self.machine.ended(now, self.conns[*conn]),
            Event::Break(conn) => self.machine.broken(now, self.conns[*conn]),
            Event::Datagram(role, octets) => {
                let about = &self.program.roles[*role];
                let own = (Ipv4Addr::LOCALHOST, 4_000).into();
                let server = about.address.parse().unwrap_or(own);
                let from = if about.side == Side::Client { server } else { own };
                self.machine.datagram(now, RoleId::new(*role), from, octets);
            }
            Event::Resolved(query) => {
                let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 53), 25));
                self.machine.resolved(now, self.queries[*query], Some(address));
            }
            Event::Unknown(query) => self.machine.resolved(now, self.queries[*query], None),
            Event::Time(to) => self.pass(Duration::from_micros(*to)),
            Event::Drain => self.machine.drain(now),
        }
        self.settle();
        std::mem::take(&mut self.told)
    }

    fn receive(&mut self, conn: ConnId, octets: &[u8]) {
        let mut rest = octets;
        while !rest.is_empty() {
            let room = self.machine.room(conn).min(rest.len());
            if room == 0 {
                return;
            }
            self.machine.received(self.now, conn, &rest[..room]);
            self.settle();
            rest = &rest[room..];
        }
    }

    fn pass(&mut self, to: Duration) {
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= to) {
            self.now = at.max(self.now);
            self.machine.handle_timeout(self.now);
            self.settle();
        }
        self.now = to;
    }

    fn place(&self, conn: ConnId) -> usize {
        self.conns.iter().position(|other| *other == conn).unwrap()
    }

    fn settle(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            let line = match output {
                Output::Connect { conn, role, .. } => {
                    if !self.conns.contains(&conn) {
                        self.conns.push(conn);
                    }
                    format!("connect {} {}", self.place(conn), role.index())
                }
                Output::Write { conn } => {
                    let octets = self.machine.unsent(conn).to_vec();
                    if octets.is_empty() {
                        continue;
                    }
                    self.machine.sent(self.now, conn, octets.len());
                    format!("wrote {} {}", self.place(conn), hex(&octets))
                }
                Output::Shutdown { conn } => format!("shutdown {}", self.place(conn)),
                // A connection that ended before anybody heard of it is nobody's.
                Output::Close { conn, .. } if !self.conns.contains(&conn) => continue,
                Output::Close { conn, reset } => {
                    let how = if reset { " reset" } else { "" };
                    format!("close {}{how}", self.place(conn))
                }
                Output::Datagram { role, octets, .. } => {
                    format!("datagram {} {}", role.index(), hex(&octets))
                }
                Output::Resolve { query, host, .. } => {
                    self.queries.push(query);
                    format!("resolve {} {host}", self.queries.len() - 1)
                }
                _ => continue,
            };
            self.told.push(line);
        }
        while let Some(report) = self.machine.poll_peer() {
            let seen = match report.seen {
                PeerSeen::Connected => "connected",
                PeerSeen::Answered => "answered",
                PeerSeen::Lost(PeerLoss::Unresolved) => "unresolved",
                PeerSeen::Lost(PeerLoss::Unreachable) => "unreachable",
                PeerSeen::Lost(PeerLoss::Closed) => "closed",
                PeerSeen::Lost(PeerLoss::Silent) => "silent",
                PeerSeen::Lost(PeerLoss::Refused) => "refused",
            };
            self.told.push(format!("server r{} {seen} {}", report.role.index(), report.target));
        }
    }
}
