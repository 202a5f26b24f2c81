//! What may happen to a gateway, from a seed or as octets say: peers that say what they say in
//! tests, some of it changed or cut, and that come, go, break off and keep silent.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    dead_code,
    reason = "a test may fail loudly, and each test takes of this what it needs"
)]

use crate::peers::native::Event;
use gatewright_lang::ir::{Program, Role, Side, StepAction, Transport};
use std::collections::HashMap;

/// How a connection stands, as far as its peer knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Open,
    Ended,
    Over,
}

/// Where choices come from.
enum Choices<'h> {
    Seed(u64),
    Octets(&'h [u8]),
}

/// Connections of one run, when octets choose: what is learned of a further one is little.
const CONNS_MAX: usize = 40;

pub struct Happenings<'h> {
    program: &'h Program,
    choices: Choices<'h>,
    now: u64,
    /// The role of each connection, and how it stands.
    conns: Vec<(usize, State)>,
    queries: Vec<usize>,
    names: usize,
    /// What peers of each role say.
    phrases: Vec<Vec<Vec<u8>>>,
    /// What was cut off of a phrase is still to be said by its peer.
    cut_off: HashMap<usize, Vec<u8>>,
}

impl<'h> Happenings<'h> {
    pub fn new(program: &'h Program, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        Self::by(program, Choices::Seed(random))
    }

    /// As `octets` say, until there are no more of them.
    pub fn of(program: &'h Program, octets: &'h [u8]) -> Self {
        Self::by(program, Choices::Octets(octets))
    }

    fn by(program: &'h Program, choices: Choices<'h>) -> Self {
        let mut phrases = vec![Vec::new(); program.roles.len()];
        for step in program.tests.iter().flat_map(|test| &test.steps) {
            if let StepAction::Sends { role, octets } = &step.action {
                phrases.get_mut(role.index()).unwrap().push(octets.clone());
            }
        }
        let (conns, queries, cut_off) = (Vec::new(), Vec::new(), HashMap::new());
        Self { program, choices, now: 0, conns, queries, names: 0, phrases, cut_off }
    }

    fn below(&mut self, bound: usize) -> usize {
        match &mut self.choices {
            Choices::Seed(random) => {
                *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let bound = u64::try_from(bound.max(1)).unwrap();
                usize::try_from((*random >> 33) % bound).unwrap()
            }
            Choices::Octets(octets) => {
                let length = if bound > 256 { 2 } else { 1 };
                let (taken, rest) = octets.split_at_checked(length).unwrap_or((&[], &[]));
                *octets = rest;
                taken.iter().fold(0, |number, octet| number << 8 | usize::from(*octet))
                    % bound.max(1)
            }
        }
    }

    /// Whether octets choose, with none left: nothing more happens.
    pub fn is_over(&self) -> bool {
        matches!(self.choices, Choices::Octets([]))
    }

    /// Mostly true.
    fn mostly(&mut self) -> bool {
        match self.choices {
            Choices::Seed(random) => random >> 40 & 3 > 0,
            Choices::Octets(_) => self.below(4) > 0,
        }
    }

    /// What is said by a peer that octets make speak: what was cut off before, a phrase of a test
    /// with an octet changed or not, whole or cut, or octets that are no phrase.
    fn chosen(&mut self, conn: Option<usize>, role: usize) -> Vec<u8> {
        let rest = conn.and_then(|conn| self.cut_off.remove(&conn));
        let how = self.below(16);
        let mut octets = match rest {
            Some(rest) if how != 15 => rest,
            _ => self.spoken(how, role),
        };
        if how >= 8 && !octets.is_empty() {
            let length = octets.len();
            let cut_off = octets.split_off(self.below(length.min(65_535)).min(length));
            if let Some(conn) = conn {
                self.cut_off.insert(conn, cut_off);
            }
        }
        octets
    }

    fn spoken(&mut self, how: usize, role: usize) -> Vec<u8> {
        let phrases = self.phrases.get(role).unwrap().len();
        if how == 7 || phrases == 0 {
            let length = self.below(64);
            return (0..length).map(|_| u8::try_from(self.below(256)).unwrap()).collect();
        }
        let at = self.below(phrases);
        let mut octets = self.phrases.get(role).unwrap().get(at).cloned().unwrap_or_default();
        let length = octets.len();
        match how {
            5 if length > 0 => {
                let at = self.below(length.min(65_535));
                *octets.get_mut(at).unwrap() = u8::try_from(self.below(256)).unwrap();
            }
            6 => octets = octets.repeat(1 + self.below(256) * 64 / length.max(1)),
            _ => {}
        }
        octets
    }

    fn said(&mut self, conn: Option<usize>, role: usize) -> Vec<u8> {
        match self.choices {
            Choices::Seed(_) => self.phrase(role),
            Choices::Octets(_) => self.chosen(conn, role),
        }
    }

    fn phrase(&mut self, role: usize) -> Vec<u8> {
        let count = self.phrases.get(role).unwrap().len();
        let at = self.below(count);
        let mut octets = self.phrases.get(role).unwrap().get(at).cloned().unwrap_or_default();
        if self.below(8) == 0 && !octets.is_empty() {
            let at = self.below(octets.len());
            *octets.get_mut(at).unwrap() = u8::try_from(self.below(256)).unwrap();
        }
        if self.below(6) == 0 {
            octets.truncate(self.below(octets.len() + 1));
        }
        octets
    }

    /// What happens next.
    pub fn next(&mut self) -> Event {
        if let Some(query) = self.queries.pop() {
            let octets = matches!(self.choices, Choices::Octets(_));
            let unknown = octets && self.below(4) == 0;
            return if unknown { Event::Unknown(query) } else { Event::Resolved(query) };
        }
        let connecting = self.conns.iter().position(|conn| conn.1 == State::Connecting);
        if let Some(conn) = connecting
            && self.mostly()
        {
            let sound = self.below(6) > 0;
            let state = if sound { State::Open } else { State::Over };
            self.conns.get_mut(conn).unwrap().1 = state;
            return if sound { Event::Connected(conn) } else { Event::Failed(conn) };
        }
        let what = self.below(20);
        let role = self.below(self.program.roles.len());
        let about = self.program.roles.get(role).unwrap();
        match what {
            0 => {
                self.now += u64::try_from(self.below(400)).unwrap() * 1_000_000;
                Event::Time(self.now)
            }
            2 if matches!(self.choices, Choices::Octets(_)) && self.below(256) == 255 => {
                Event::Drain
            }
            1..=2 => {
                self.now += u64::try_from(self.below(3_000)).unwrap() * 1_000;
                Event::Time(self.now)
            }
            3..=5 if self.may_accept(about) => {
                self.conns.push((role, State::Open));
                Event::Accept(role)
            }
            _ if about.transport == Transport::Udp => Event::Datagram(role, self.said(None, role)),
            _ => self.of_a_connection(what),
        }
    }

    fn may_accept(&self, role: &Role) -> bool {
        let room = match self.choices {
            Choices::Seed(_) => true,
            Choices::Octets(_) => self.conns.len() < CONNS_MAX,
        };
        room && role.side == Side::Server && role.transport == Transport::Tcp
    }

    fn of_a_connection(&mut self, what: usize) -> Event {
        let open = |conn: &(usize, State)| matches!(conn.1, State::Open | State::Ended);
        let open: Vec<usize> =
            (0..self.conns.len()).filter(|at| self.conns.get(*at).is_some_and(open)).collect();
        let Some(conn) = open.get(self.below(open.len())).copied() else {
            return Event::Time(self.now);
        };
        let (role, state) = *self.conns.get(conn).unwrap();
        let set = |conns: &mut Vec<(usize, State)>, state| conns.get_mut(conn).unwrap().1 = state;
        match what {
            6 if state == State::Open => {
                set(&mut self.conns, State::Ended);
                Event::End(conn)
            }
            7 => {
                set(&mut self.conns, State::Over);
                Event::Break(conn)
            }
            _ if state == State::Open => Event::Octets(conn, self.said(Some(conn), role)),
            _ => Event::Time(self.now),
        }
    }

    /// A connection whose end was not told.
    pub fn one_left(&self) -> Option<usize> {
        self.conns.iter().position(|conn| conn.1 != State::Over)
    }

    /// Whether the end of a connection was told.
    pub fn is_gone(&self, conn: usize) -> bool {
        self.conns.get(conn).is_some_and(|conn| conn.1 == State::Over)
    }

    /// What the gateway did about it.
    pub fn learn(&mut self, told: &[String]) {
        for line in told {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["connect", conn, role] => {
                    let (conn, role): (usize, usize) =
                        (conn.parse().unwrap(), role.parse().unwrap());
                    if conn == self.conns.len() {
                        self.conns.push((role, State::Connecting));
                    }
                }
                ["close", conn, ..] => {
                    let conn: usize = conn.parse().unwrap();
                    self.conns.get_mut(conn).unwrap().1 = State::Over;
                }
                ["resolve", ..] => {
                    self.queries.push(self.names);
                    self.names += 1;
                }
                _ => {}
            }
        }
    }
}
