//! State of the device listeners that associations and requests for devices use.

use super::ask::PendingCommands;
use super::entities::Entities;
use super::{ConnectionChannels, Counters};
use crate::engine::wall;
use core::sync::atomic::Ordering;
use gatewright_health::code::{ConfigId, SystemId};
use gatewright_health::roster::{Joined, Roster, SessionId};
use gatewright_interwork::Device;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug)]
pub(super) struct State {
    /// Address of the policy that authorises operators.
    pub(super) policy: Option<String>,
    pub(super) roster: Roster,
    pub(super) entities: Entities,
    /// Channels to each connection.
    pub(super) lines: HashMap<SessionId, ConnectionChannels>,
    pub(super) desk: PendingCommands,
    pub(super) sessions: u64,
    pub(super) epoch: u64,
    /// Devices whose resources at the CSE above were requested in this run, with a hash of the
    /// requests.
    pub(super) announced: HashMap<SystemId, u64>,
    /// Kinds of devices that have reported one, with their configuration at that time.
    pub(super) kinds: HashMap<SystemId, (ConfigId, &'static str)>,
    /// Devices that did not answer a request for their MDS attributes.
    pub(super) silent: BTreeSet<SystemId>,
    pub(super) counters: Counters,
}

impl State {
    /// Nobody is associated, beside those in the data plane's table.
    pub(super) fn new(policy: Option<String>, entities: Entities) -> Self {
        Self {
            policy,
            roster: Roster::new(),
            entities,
            lines: HashMap::new(),
            desk: PendingCommands::default(),
            sessions: 0,
            epoch: 0,
            announced: HashMap::new(),
            kinds: HashMap::new(),
            silent: BTreeSet::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn open(&mut self, line: ConnectionChannels) -> SessionId {
        self.sessions += 1;
        let id = SessionId(self.sessions);
        self.lines.insert(id, line);
        self.counters.connections += 1;
        id
    }

    pub(super) fn close(&mut self, id: SessionId, device: Option<SystemId>) {
        self.lines.remove(&id);
        if let Some(device) = device {
            self.roster.leave(device, id);
        }
    }

    /// Registers an association of `system`; `false` if it has to end.
    pub(super) fn join(&mut self, system: SystemId, id: SessionId) -> bool {
        self.counters.associations += 1;
        match self.roster.join(system, id) {
            Joined::Alone => true,
            Joined::Displaced(other) => {
                self.counters.displaced += 1;
                if let Some(other) = self.lines.get(&other) {
                    other.is_displaced.store(true, Ordering::Release);
                    other.hang_up.notify_one();
                }
                true
            }
            Joined::Full => false,
        }
    }

    /// Sets a device's kind recorded with this configuration. A device that does not answer a
    /// request for its attributes will never have one.
    pub(super) fn recall_kind(&self, device: &mut Device, configuration: ConfigId) {
        let system_id = device.system_id();
        match self.kinds.get(&system_id) {
            Some((known, kind)) if *known == configuration => device.set_kind(kind),
            _ if self.silent.contains(&system_id) => device.hear(&[]),
            _ => {}
        }
    }

    /// A unique number for an association: microseconds since 1970, so that it grows over restarts,
    /// or the next number if two associate at once.
    pub(super) fn next_epoch(&mut self) -> u64 {
        let micros = u64::try_from(wall().as_micros()).unwrap_or(u64::MAX);
        self.epoch = micros.max(self.epoch.saturating_add(1));
        self.epoch
    }
}
