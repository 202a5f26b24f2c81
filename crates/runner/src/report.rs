//! Reports of a runner.

use gatewright_histogram::Histogram;
use gatewright_translate::machine::HandlerCounters;
use std::collections::BTreeMap;

/// The sums over all loops.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RunReport {
    /// Loops that answered.
    pub loops: u64,
    /// Connections open now, of both sides.
    pub connections: u64,
    /// Those of them that belong to replaced programs.
    pub draining: u64,
    /// Sessions of the program that requests find by a key.
    pub keyed_sessions: u64,
    /// Events since the start, by name: of the loops (`reads`, `octets_in` …) and of the machines
    /// (limits reached, malformed messages …).
    pub counters: BTreeMap<&'static str, u64>,
    /// Results of requests since the program was started, by handler.
    pub handlers: BTreeMap<String, Handled>,
}

/// Results of the requests of one handler.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Handled {
    /// How often it was started.
    pub started: u64,
    /// How often it ended by itself.
    pub finished: u64,
    /// How often it was ended: its sender broke off, a wait ran out, a message could not be built.
    pub failed: u64,
    /// From start to end, in nanoseconds.
    pub times: Histogram,
}

impl RunReport {
    pub(crate) fn count(&mut self, name: &'static str, number: u64) {
        *self.counters.entry(name).or_default() += number;
    }

    /// Adds another report.
    pub fn add(&mut self, other: Self) {
        self.loops += other.loops;
        self.connections += other.connections;
        self.draining += other.draining;
        self.keyed_sessions += other.keyed_sessions;
        for (name, number) in other.counters {
            self.count(name, number);
        }
        for (name, handled) in other.handlers {
            self.handlers.entry(name).or_default().add(&handled);
        }
    }
}

impl Handled {
    pub(crate) fn of(counters: &HandlerCounters) -> Self {
        let HandlerCounters { started, finished, failed, times } = counters;
        Self { started: *started, finished: *finished, failed: *failed, times: times.clone() }
    }

    /// Adds another handler's results.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.finished += other.finished;
        self.failed += other.failed;
        self.times.merge(&other.times);
    }
}

/// Counters of a loop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) wakeups: u64,
    pub(crate) accepts_refused: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) octets_in: u64,
    pub(crate) octets_out: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) datagrams_unsent: u64,
    pub(crate) handovers: u64,
    pub(crate) handovers_lost: u64,
    pub(crate) names_asked: u64,
    pub(crate) names_refused: u64,
    pub(crate) programs_replaced: u64,
    pub(crate) drains_cut: u64,
    pub(crate) peers_unlisted: u64,
}

impl Tally {
    pub(crate) fn tell(&self, report: &mut RunReport) {
        for (name, number) in [
            ("wakeups", self.wakeups),
            ("accepts_refused", self.accepts_refused),
            ("reads", self.reads),
            ("writes", self.writes),
            ("octets_in", self.octets_in),
            ("octets_out", self.octets_out),
            ("datagrams_in", self.datagrams_in),
            ("datagrams_out", self.datagrams_out),
            ("datagrams_unsent", self.datagrams_unsent),
            ("handovers", self.handovers),
            ("handovers_lost", self.handovers_lost),
            ("names_asked", self.names_asked),
            ("names_refused", self.names_refused),
            ("programs_replaced", self.programs_replaced),
            ("drains_cut", self.drains_cut),
            ("peers_unlisted", self.peers_unlisted),
        ] {
            report.count(name, number);
        }
    }
}
