//! Whether the servers that a program's client roles call can be reached.
//!
//! A failure is reported each time. That a server answers is reported only while the caller asks
//! for it ([`Machine::report_reached`]), as it is the ordinary case of each message.

use super::slab::{ConnId, ExchangeId, TaskId};
use super::state::{ConnectionState, Wait};
use super::{Machine, RoleTarget};
use gatewright_lang::ir::{RoleId, Side};

/// Maximum number of reports that wait to be polled; of more, the oldest are dropped.
const REPORTS_MAX: usize = 64;

/// A report about the server of a client role.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerReport {
    /// The role that calls it.
    pub role: RoleId,
    /// Its address.
    pub target: RoleTarget,
    /// What has been seen of it.
    pub seen: PeerSeen,
}

/// What a client role has seen of its server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerSeen {
    /// A connection is ready for requests.
    Connected,
    /// It has begun to answer a request.
    Answered,
    /// A request or a connection failed.
    Lost(PeerLoss),
}

/// Why a server is regarded as lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerLoss {
    /// Its name could not be resolved.
    Unresolved,
    /// A connection could not be made.
    Unreachable,
    /// It ended a connection that was in use: one that all sessions share, one on which it sends
    /// requests of its own, or one on which a request waited.
    Closed,
    /// It did not answer in the time of the program.
    Silent,
    /// The role's `opening` failed: the server did not accept the client.
    Refused,
}

impl Machine {
    /// The next report about a server, the oldest first.
    pub fn poll_peer(&mut self) -> Option<PeerReport> {
        self.peer_reports.pop_front()
    }

    /// Sets whether connections and answers of servers are reported, too.
    pub const fn report_reached(&mut self, whether: bool) {
        self.reports_reached = whether;
    }

    fn report_peer(&mut self, role: RoleId, target: RoleTarget, seen: PeerSeen) {
        if self.peer_reports.len() >= REPORTS_MAX {
            self.peer_reports.pop_front();
        }
        self.peer_reports.push_back(PeerReport { role, target, seen });
    }

    /// Reports that the server of a connection is lost.
    pub(crate) fn peer_is_lost(&mut self, conn: ConnId, loss: PeerLoss) {
        let Some(of) = self.conns.get(conn).filter(|of| of.side == Side::Client) else { return };
        if let Some(target) = of.target.clone() {
            self.report_peer(of.role, target, PeerSeen::Lost(loss));
        }
    }

    /// Reports that the server to which a handler was to send a datagram is lost.
    pub(crate) fn asked_target_is_lost(&mut self, task: TaskId, loss: PeerLoss) {
        let Some(Wait::Connection(asked)) = self.tasks.get(task).map(|task| &task.wait) else {
            return;
        };
        let (role, target) = (asked.role, asked.target.clone());
        self.report_peer(role, target, PeerSeen::Lost(loss));
    }

    /// Reports that a server without a connection is lost.
    pub(crate) fn target_is_lost(&mut self, role: RoleId, target: RoleTarget, loss: PeerLoss) {
        self.report_peer(role, target, PeerSeen::Lost(loss));
    }

    /// Handles the end of a connection by its peer: a server is lost if the connection was shared
    /// by all sessions or carries requests of the server, was not ready yet, or if a request waited
    /// on it that is not sent again. A server may end another connection whenever it is unused.
    pub(crate) fn peer_ends(&mut self, conn: ConnId) {
        let Some(of) = self.conns.get(conn).filter(|of| of.side == Side::Client) else { return };
        if of.state != ConnectionState::Open {
            return;
        }
        let waits = |id: &ExchangeId| {
            self.exchanges.get(*id).is_some_and(|exchange| !exchange.begun && !exchange.gather)
        };
        let asked = !of.kept && of.exchanges.iter().any(waits);
        let hears = self.program.role(of.role).is_some_and(|role| !role.requests.is_empty());
        if of.opening.is_some() || asked || hears || self.is_shared(conn) {
            self.peer_is_lost(conn, PeerLoss::Closed);
        }
    }

    /// Handles a connection that is ready for requests.
    pub(crate) fn peer_is_connected(&mut self, conn: ConnId) {
        if !self.reports_reached {
            return;
        }
        let Some(of) = self.conns.get(conn) else { return };
        if let Some(target) = of.target.clone() {
            self.report_peer(of.role, target, PeerSeen::Connected);
        }
    }

    /// Handles the beginning of a response.
    pub(crate) fn peer_answers(&mut self, exchange: ExchangeId) {
        if !self.reports_reached {
            return;
        }
        let Some(of) = self.exchanges.get(exchange) else { return };
        let (role, target) = (of.role, of.target.clone());
        self.report_peer(role, target, PeerSeen::Answered);
    }
}
