//! What holds after every event.

use super::world::MeshWorld;
use crate::edge::{Adjacency, LabelAction, PathClass, PathRole};
use crate::identity::NodeId;
use gatewright_wire::mpls::Label;
use std::collections::BTreeSet;

/// Where a label leads.
enum LabelEnd {
    /// To a node, which takes the packet.
    At(usize),
    /// To a station behind a node.
    AtStation(NodeId),
    /// To a node without an entry, which drops it.
    Nowhere,
    /// Around.
    Loop,
}

impl MeshWorld {
    /// Checks all nodes, also in a world whose events are not checked.
    pub(super) fn check_all(&mut self) {
        self.changed = (0..self.hosts.len()).collect();
        self.check_invariants();
        self.changed.clear();
    }

    /// Checks the nodes that have changed, and every path that leads over labels.
    pub(super) fn check_invariants(&mut self) {
        let mut found = Vec::new();
        for &index in &self.changed {
            let Some(host) = self.hosts.get(index) else { continue };
            let owned: BTreeSet<Label> = host.node.labels().collect();
            for label in host.data.labels.keys().filter(|label| !owned.contains(label)) {
                found.push(format!(
                    "node {index} forwards by label {}, which no path owns",
                    label.0
                ));
            }
        }
        for (index, host) in self.hosts.iter().enumerate() {
            for &label in host.data.labels.keys() {
                if matches!(self.follow(index, label), LabelEnd::Loop) {
                    found.push(format!("label {} of node {index} leads around", label.0));
                }
            }
            for (&(destination, class, role), hop) in &host.data.paths {
                let next = self.beyond(index, hop.adjacency);
                let end = next.map_or(LabelEnd::Nowhere, |next| self.follow(next, hop.label));
                let misled = match end {
                    LabelEnd::At(end) => self.indices.get(&destination) != Some(&end),
                    LabelEnd::AtStation(station) => station != destination,
                    LabelEnd::Nowhere | LabelEnd::Loop => false,
                };
                if misled {
                    let class = class.number();
                    let role = if role == PathRole::Primary { "primary" } else { "backup" };
                    found.push(format!(
                        "the {role} of node {index} to {destination} in class {class} ends elsewhere"
                    ));
                }
            }
        }
        for what in found {
            self.violate(&what);
        }
    }

    /// Follows a label from a node.
    fn follow(&self, mut index: usize, mut label: Label) -> LabelEnd {
        // A path has no node twice, so it has at most as many hops as there are nodes.
        for _ in 0..=self.hosts.len() {
            let Some(host) = self.hosts.get(index) else { return LabelEnd::Nowhere };
            match host.data.labels.get(&label) {
                None => return LabelEnd::Nowhere,
                Some(LabelAction::Pop) => return LabelEnd::At(index),
                Some(LabelAction::Station { station, .. }) => {
                    return LabelEnd::AtStation(*station);
                }
                Some(LabelAction::Swap(hop)) => {
                    let Some(next) = self.beyond(index, hop.adjacency) else {
                        return LabelEnd::Nowhere;
                    };
                    (index, label) = (next, hop.label);
                }
            }
        }
        LabelEnd::Loop
    }

    /// The node at the other end of an adjacency.
    fn beyond(&self, index: usize, adjacency: Adjacency) -> Option<usize> {
        let port = self.port_to(index, adjacency)?;
        Some(self.hosts.get(index)?.ports.get(port)?.peer)
    }

    /// The relays of the primary and of the backup that a node has installed to another one.
    pub fn installed(&self, from: usize, to: usize) -> [Option<Vec<usize>>; 2] {
        self.installed_for(from, to, PathClass::BULK)
    }

    /// Whether a node spreads flows of bulk traffic to another one over both paths.
    pub fn spreads(&self, from: usize, to: usize) -> bool {
        let of = (self.id(to), PathClass::BULK);
        self.hosts.get(from).is_some_and(|host| host.data.spread.contains(&of))
    }

    /// The relays of both paths that carry traffic of a class.
    pub fn installed_for(
        &self,
        from: usize,
        to: usize,
        class: PathClass,
    ) -> [Option<Vec<usize>>; 2] {
        let destination: NodeId = self.id(to);
        [PathRole::Primary, PathRole::Backup].map(|role| {
            let host = self.hosts.get(from)?;
            let hop = host.data.paths.get(&(destination, class, role))?;
            let (mut index, mut label) = (self.beyond(from, hop.adjacency)?, hop.label);
            let mut relays = Vec::new();
            while relays.len() <= self.hosts.len() {
                let LabelAction::Swap(hop) = self.hosts.get(index)?.data.labels.get(&label)? else {
                    return (index == to).then_some(relays);
                };
                relays.push(index);
                (index, label) = (self.beyond(index, hop.adjacency)?, hop.label);
            }
            None
        })
    }
}
