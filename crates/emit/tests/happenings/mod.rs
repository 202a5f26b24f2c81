//! What may happen to a gateway, from a seed: peers that say what they say in tests, some of it
//! changed or cut, and that come, go, break off and keep silent.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may fail loudly")]

use crate::peers::native::Event;
use gatewright_lang::ir::{Program, Side, StepAction, Transport};

/// How a connection stands, as far as its peer knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Connecting,
    Open,
    Ended,
    Over,
}

pub struct Happenings<'h> {
    program: &'h Program,
    random: u64,
    now: u64,
    /// The role of each connection, and how it stands.
    conns: Vec<(usize, State)>,
    queries: Vec<usize>,
    names: usize,
    /// What peers of each role say.
    phrases: Vec<Vec<Vec<u8>>>,
}

impl<'h> Happenings<'h> {
    pub fn new(program: &'h Program, seed: u64) -> Self {
        let mut phrases = vec![Vec::new(); program.roles.len()];
        for step in program.tests.iter().flat_map(|test| &test.steps) {
            if let StepAction::Sends { role, octets } = &step.action {
                phrases.get_mut(role.index()).unwrap().push(octets.clone());
            }
        }
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        Self { program, random, now: 0, conns: Vec::new(), queries: Vec::new(), names: 0, phrases }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let bound = u64::try_from(bound.max(1)).unwrap();
        usize::try_from((self.random >> 33) % bound).unwrap()
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
            return Event::Resolved(query);
        }
        let connecting = self.conns.iter().position(|conn| conn.1 == State::Connecting);
        if let Some(conn) = connecting.filter(|_| self.random >> 40 & 3 > 0) {
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
            1..=2 => {
                self.now += u64::try_from(self.below(3_000)).unwrap() * 1_000;
                Event::Time(self.now)
            }
            3..=5 if about.side == Side::Server && about.transport == Transport::Tcp => {
                self.conns.push((role, State::Open));
                Event::Accept(role)
            }
            _ if about.transport == Transport::Udp => Event::Datagram(role, self.phrase(role)),
            _ => self.of_a_connection(what),
        }
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
            _ if state == State::Open => Event::Octets(conn, self.phrase(role)),
            _ => Event::Time(self.now),
        }
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
                ["close", conn] => {
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
