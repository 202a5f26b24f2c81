//! Paths that are kept without traffic: probes, and destinations with connections.
//!
//! A node at whose ingress connections are seen says in its probes that there are some, over all paths to
//! their destination. So the other end keeps what it knows of the path, too, and both keep it as long as one of
//! them knows of a connection.

use super::MeshNode;
use super::echo::CHANNEL_TTL;
use crate::edge::MeshOutput;
use crate::identity::{NodeId, PathId};
use core::time::Duration;
use gatewright_wire::mpls::Label;

/// Destinations with connections at the most.
const CONNECTED_MAX: usize = 1_024;

/// A probe of a destination with connections; its first octet says that it is one.
const HOLDING: [u8; 2] = [0, 1];

/// What holds the paths to a destination without traffic.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Connections {
    /// Whether there are connections at this end.
    pub(super) own: bool,
    /// Until when the other end's last probe that tells of some is believed.
    told_until: Option<Duration>,
}

impl Connections {
    pub(super) fn hold(self, now: Duration) -> bool {
        self.own || self.told_until.is_some_and(|until| now < until)
    }
}

impl MeshNode {
    /// There are connections with a destination, or none any more.
    pub(super) fn connections(&mut self, destination: NodeId, any: bool) {
        if !any {
            self.connected.remove(&destination);
        } else if destination == self.settings.id {
            return;
        } else if self.connected.len() >= CONNECTED_MAX && !self.connected.contains(&destination) {
            self.counters.table_full += 1;
            return;
        } else {
            self.connected.insert(destination);
        }
        if let Some(known) = self.destinations.get_mut(&destination) {
            known.connections.own = any;
        }
    }

    /// Sends probes over the paths to a destination that this end has searched; with connections over all.
    pub(super) fn probe(&mut self, now: Duration, destination: NodeId) {
        let own = self.settings.id;
        let Some(known) = self.destinations.get_mut(&destination) else { return };
        known.probed_at = now;
        let holds = known.connections.own;
        let paths = known.paths.iter().filter(|path| holds || path.origin == own);
        for path in paths.copied().collect::<Vec<PathId>>() {
            if let Some(hop) = self.first_hop(path) {
                let octets = if holds { HOLDING.to_vec() } else { Vec::new() };
                self.output(MeshOutput::Channel { hop, ttl: CHANNEL_TTL, octets });
            }
            if let Some(segment) = self.segments.get_mut(&path) {
                segment.used_at = now;
            }
        }
    }

    /// A probe has arrived at the end of a path, or at the relay where its TTL ends.
    pub(super) fn probed(&mut self, now: Duration, label: Label, octets: &[u8]) {
        if !octets.starts_with(&HOLDING) {
            return;
        }
        let path = self.labels.owner(label).map(|(path, _)| path);
        let segment = path.and_then(|path| Some((path, self.segments.get(&path)?)));
        let end = segment.and_then(|(path, known)| known.destination(path, self.settings.id));
        let known = end.and_then(|destination| self.destinations.get_mut(&destination));
        if let Some(known) = known {
            known.connections.told_until = Some(now + self.settings.path_idle);
        }
    }
}
