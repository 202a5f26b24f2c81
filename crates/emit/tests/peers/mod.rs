//! Mocked peers: they play a `test` block against a gateway that runs as a process.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "a test may fail loudly, and each test takes of this what it needs"
)]

pub mod native;

use gatewright_lang::ir::{
    Expect, MessageId, Operand, Program, RoleId, Side, SlotId, StepAction, TestCase, Transport,
};
use gatewright_translate::{Layouts, Parser, Value};
use libtest_mimic::Failed;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

/// Octets that a pipe takes without a reader (pipe(7): 65,536), and some to spare.
const PIPE_OCTETS: usize = 60_000;

/// A gateway as a process that reads what happened and tells what is to be done.
pub struct Gateway {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Gateway {
    pub fn start(mut command: Command) -> Result<Self, Failed> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Ok(Self { child, input, output })
    }

    /// What it makes of a line.
    pub fn tell(&mut self, line: &str) -> Result<Vec<String>, Failed> {
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        self.told()
    }

    /// What it makes of each of many lines.
    pub fn tell_all(&mut self, lines: &[String]) -> Result<Vec<Vec<String>>, Failed> {
        let mut all = Vec::with_capacity(lines.len());
        let mut rest = lines;
        while !rest.is_empty() {
            // What a pipe takes at once, or one line, is written before anything is read, so that
            // nobody waits for the other.
            let mut text = String::new();
            let (mut count, mut lines) = (0, rest.iter());
            while let Some(line) =
                lines.next().filter(|line| count == 0 || text.len() + line.len() < PIPE_OCTETS)
            {
                text.push_str(line);
                text.push('\n');
                count += 1;
            }
            self.input.write_all(text.as_bytes())?;
            self.input.flush()?;
            for _ in 0..count {
                all.push(self.told()?);
            }
            rest = &rest[count..];
        }
        Ok(all)
    }

    /// What it says up to a line with a dot.
    fn told(&mut self) -> Result<Vec<String>, Failed> {
        let mut told = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("the gateway ended: {}", self.child.wait()?).into());
            }
            match line.trim_end() {
                "." => return Ok(told),
                line => told.push(line.to_owned()),
            }
        }
    }

    /// Ends the process; it fails if it did not give all its memory back.
    pub fn finish(self) -> Result<(), Failed> {
        let Self { mut child, input, output } = self;
        drop((input, output));
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the gateway ended: {status}").into()) }
    }
}

/// The peer of one role.
#[derive(Default)]
struct Peer {
    conn: Option<String>,
    got: Vec<u8>,
    datagrams: Vec<Vec<u8>>,
    closed: bool,
    waiting: Vec<Vec<u8>>,
}

struct Play<'p> {
    gateway: &'p mut Gateway,
    program: &'p Arc<Program>,
    peers: Vec<Peer>,
    roles: HashMap<String, usize>,
    /// The length of pieces, or where the first one ends; 0 for none.
    cut: (usize, usize),
    /// Whether somebody else says before each server what it says.
    strangers: bool,
    now: u128,
}

/// Plays one test, its octets cut into pieces.
pub fn play(
    gateway: &mut Gateway,
    program: &Arc<Program>,
    test: &TestCase,
    cut: (usize, usize),
) -> Result<(), Failed> {
    play_among(gateway, program, test, cut, false)
}

/// Plays one test, each datagram of a server said by somebody else first.
pub fn play_among_strangers(
    gateway: &mut Gateway,
    program: &Arc<Program>,
    test: &TestCase,
) -> Result<(), Failed> {
    play_among(gateway, program, test, (0, 0), true)
}

fn play_among(
    gateway: &mut Gateway,
    program: &Arc<Program>,
    test: &TestCase,
    cut: (usize, usize),
    strangers: bool,
) -> Result<(), Failed> {
    let peers = program.roles.iter().map(|_| Peer::default()).collect();
    let roles = HashMap::new();
    let mut play = Play { gateway, program, peers, roles, cut, strangers, now: 0 };
    play.tell("new")?;
    for (index, role) in program.roles.iter().enumerate() {
        if role.side == Side::Server && role.transport == Transport::Tcp {
            play.tell(&format!("accept {index}"))?;
        }
    }
    for step in &test.steps {
        play.step(&step.action)?;
    }
    for (peer, role) in play.peers.iter().zip(&program.roles) {
        if !peer.got.is_empty() || !peer.datagrams.is_empty() {
            let text = peer.got.escape_ascii();
            return Err(format!("{} got what nobody expected: {text}", role.name).into());
        }
    }
    Ok(())
}

impl Play<'_> {
    /// Tells the gateway what happened, and lets the peers see what it does.
    fn tell(&mut self, line: &str) -> Result<(), Failed> {
        let accepted = line.strip_prefix("accept ").map(|role| role.parse::<usize>().unwrap());
        for told in self.gateway.tell(line)? {
            let words: Vec<&str> = told.split(' ').collect();
            match words[..] {
                ["conn", id] => {
                    let role = accepted.unwrap();
                    self.roles.insert(id.to_owned(), role);
                    self.peers[role].conn = Some(id.to_owned());
                }
                ["connect", id, role] => self.connected(id, role.parse().unwrap())?,
                ["wrote", id, hex] => {
                    // A greeting is written before its connection is told.
                    let role = self.roles.get(id).copied().or(accepted).unwrap();
                    self.peers[role].got.extend(octets(hex));
                }
                ["datagram", role, hex] => {
                    self.peers[role.parse::<usize>().unwrap()].datagrams.push(octets(hex));
                }
                ["shutdown", id] => self.ended(id, false),
                ["close", id, ..] => self.ended(id, true),
                ["resolve", query, _] => self.tell(&format!("resolved {query}"))?,
                // What it sees of its servers is compared in random runs.
                ["server", ..] => {}
                _ => return Err(format!("the gateway said {told}").into()),
            }
        }
        Ok(())
    }

    fn connected(&mut self, id: &str, role: usize) -> Result<(), Failed> {
        self.roles.insert(id.to_owned(), role);
        self.peers[role].conn = Some(id.to_owned());
        self.peers[role].closed = false;
        self.tell(&format!("connected {id}"))?;
        for octets in std::mem::take(&mut self.peers[role].waiting) {
            self.send(role, &octets)?;
        }
        Ok(())
    }

    /// The gateway has ended its side of a connection, or all of it.
    fn ended(&mut self, id: &str, over: bool) {
        let Some(role) = self.roles.get(id) else { return };
        let peer = &mut self.peers[*role];
        if peer.conn.as_deref() == Some(id) {
            peer.closed = true;
            peer.conn = peer.conn.take().filter(|_| !over);
        }
    }

    fn send(&mut self, role: usize, octets: &[u8]) -> Result<(), Failed> {
        if self.program.roles[role].transport == Transport::Udp {
            if self.strangers && self.program.roles[role].side == Side::Client {
                self.tell(&format!("stranger {role} {}", hex(octets)))?;
            }
            return self.tell(&format!("datagram {role} {}", hex(octets)));
        }
        let server = self.program.roles[role].side == Side::Server;
        if server && self.peers[role].conn.is_none() {
            self.peers[role].closed = false;
            self.tell(&format!("accept {role}"))?;
        }
        let Some(conn) = self.peers[role].conn.clone() else {
            self.peers[role].waiting.push(octets.to_vec());
            return Ok(());
        };
        let (size, cut) = self.cut;
        let first = octets.len().min(cut);
        let (head, tail) = octets.split_at(first);
        let size = if size == 0 { octets.len() } else { size };
        for piece in [head, tail].into_iter().filter(|part| !part.is_empty()) {
            for piece in piece.chunks(size.max(1)) {
                if self.peers[role].conn.as_ref() != Some(&conn) {
                    return Ok(());
                }
                self.tell(&format!("octets {conn} {}", hex(piece)))?;
            }
        }
        Ok(())
    }

    fn step(&mut self, action: &StepAction) -> Result<(), Failed> {
        match action {
            StepAction::Sends { role, octets } => self.send(role.index(), octets),
            StepAction::Sees { role, expect } => self.sees(*role, expect),
            StepAction::Closes { role } => match self.peers[role.index()].conn.clone() {
                Some(conn) => self.tell(&format!("end {conn}")),
                None => Ok(()),
            },
            StepAction::Pass(time) => {
                self.now += time.as_micros();
                self.tell(&format!("time {}", self.now))
            }
        }
    }

    fn sees(&mut self, role: RoleId, expect: &Expect) -> Result<(), Failed> {
        let name = &self.program.roles[role.index()].name;
        let udp = self.program.roles[role.index()].transport == Transport::Udp;
        let peer = &mut self.peers[role.index()];
        if udp && peer.got.is_empty() && !peer.datagrams.is_empty() {
            peer.got = peer.datagrams.remove(0);
        }
        let used = match expect {
            Expect::Closed if peer.closed => 0,
            Expect::Closed => return Err(format!("{name} sees no end").into()),
            Expect::Octets(wanted) if peer.got.starts_with(wanted) => wanted.len(),
            Expect::Octets(wanted) => {
                let (wanted, got) = (wanted.escape_ascii(), peer.got.escape_ascii());
                return Err(format!("{name} sees {got}, not {wanted}").into());
            }
            Expect::Message { view, values } => {
                let (program, got) = (self.program, &peer.got);
                message(program, *view, values, got).map_err(|why| format!("{name} {why}"))?
            }
        };
        self.peers[role.index()].got.drain(..used);
        Ok(())
    }
}

/// How many octets a message has, if it is of the view and has the values.
fn message(
    program: &Arc<Program>,
    view: MessageId,
    values: &[(SlotId, Operand)],
    got: &[u8],
) -> Result<usize, String> {
    let text = got.escape_ascii();
    let mut parser = Parser::new(Arc::new(Layouts::of(program)), view).unwrap();
    let mut stream = Vec::new();
    let datagram = program.message(view).unwrap().datagram;
    let progress =
        parser.read(got, datagram, &mut stream).map_err(|wrong| format!("sees {text}: {wrong}"))?;
    for (slot, wanted) in values {
        let same = match (parser.view().get(*slot), wanted) {
            (Some(Value::Int(found)), Operand::Int(wanted)) => found == *wanted,
            (Some(Value::Octets(found)), Operand::Literal(wanted)) => {
                found == program.literal(*wanted)
            }
            _ => false,
        };
        if !same {
            return Err(format!("sees {text}, not {wanted:?}"));
        }
    }
    Ok(progress.consumed)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn octets(hex: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}
