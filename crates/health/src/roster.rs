//! Table of associated devices and their connections: one connection per device.
//!
//! Devices in use may share system-ids. The policy is *the last association wins*: the caller
//! learns the earlier connection and aborts it, and a counter moves, so that an operator sees two
//! devices competing.

use crate::code::SystemId;
use std::collections::HashMap;

/// Devices associated at once through one listener (the goal of the AE table).
pub const DEVICES_MAX: usize = 100_000;

/// The caller's number of a connection.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub u64);

/// Result of an association.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Joined {
    /// The device had no other one.
    Alone,
    /// The device had one over this other connection, which must be aborted.
    Displaced(SessionId),
    /// [`DEVICES_MAX`] devices are associated already: this association must be aborted.
    Full,
}

/// Table of associated devices and their connections.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    sessions: HashMap<SystemId, SessionId>,
    displaced: u64,
    refused: u64,
}

impl Roster {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The device `system` has associated through `session`.
    pub fn join(&mut self, system: SystemId, session: SessionId) -> Joined {
        if self.sessions.len() >= DEVICES_MAX && !self.sessions.contains_key(&system) {
            self.refused += 1;
            return Joined::Full;
        }
        match self.sessions.insert(system, session) {
            Some(before) if before != session => {
                self.displaced += 1;
                Joined::Displaced(before)
            }
            _ => Joined::Alone,
        }
    }

    /// The association through `session` has ended. Says whether the device is gone: not if
    /// another connection has displaced this one.
    pub fn leave(&mut self, system: SystemId, session: SessionId) -> bool {
        let is_current = self.sessions.get(&system) == Some(&session);
        if is_current {
            self.sessions.remove(&system);
        }
        is_current
    }

    /// Through which connection the device `system` is to be reached.
    pub fn session(&self, system: SystemId) -> Option<SessionId> {
        self.sessions.get(&system).copied()
    }

    /// Number of associated devices.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether no device is associated.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Number of devices displaced by another of the same system-id.
    pub const fn displaced(&self) -> u64 {
        self.displaced
    }

    /// Number of devices refused for lack of room.
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_association_wins() {
        let mut roster = Roster::new();
        let device = SystemId([1; 8]);
        let [first, second] = [SessionId(1), SessionId(2)];
        assert_eq!(roster.join(device, first), Joined::Alone);
        assert_eq!(roster.join(device, first), Joined::Alone, "again on the same connection");
        assert_eq!(roster.join(device, second), Joined::Displaced(first));
        assert!(!roster.leave(device, first), "the device is still there, elsewhere");
        assert_eq!(roster.session(device), Some(second));
        assert!(roster.leave(device, second));
        assert_eq!((roster.len(), roster.displaced()), (0, 1));
    }

    #[test]
    fn a_full_roster_refuses_strangers_only() {
        let mut roster = Roster::new();
        for number in 0..DEVICES_MAX as u64 {
            roster.join(SystemId(number.to_be_bytes()), SessionId(number));
        }
        assert_eq!(roster.join(SystemId([0xFF; 8]), SessionId(0)), Joined::Full);
        assert_eq!(roster.join(SystemId([0; 8]), SessionId(7)), Joined::Displaced(SessionId(0)));
        assert_eq!(roster.refused(), 1);
    }
}
