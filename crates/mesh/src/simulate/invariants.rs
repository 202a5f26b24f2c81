//! What holds after every event.

use super::datapath::InstalledLabel;
use super::world::MeshWorld;
use crate::edge::{Adjacency, LabelAction, PathClass, PathRole};
use crate::identity::NodeId;
use gatewright_wire::mpls::Label;
use std::collections::BTreeSet;

/// Where a label leads.
#[derive(Clone, Copy)]
enum LabelEnd {
    /// To a node, which takes the packet.
    At(usize),
    /// To a station behind a node.
    AtStation(NodeId),
    /// Around.
    Loop,
}

/// Labels followed from one, over next hops and their backups.
#[derive(Default)]
struct Followed {
    /// Nodes and labels on the way, and those that were left.
    open: Vec<(usize, Label)>,
    done: Vec<(usize, Label)>,
    ends: Vec<LabelEnd>,
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
                if self.follow(index, label).iter().any(|end| matches!(end, LabelEnd::Loop)) {
                    found.push(format!("label {} of node {index} leads around", label.0));
                }
            }
            for (&(destination, class, role), hop) in &host.data.paths {
                let next = self.beyond(index, hop.adjacency);
                let ends = next.map_or(Vec::new(), |next| self.follow(next, hop.label));
                let misled = |end: &LabelEnd| match *end {
                    LabelEnd::At(end) => self.indices.get(&destination) != Some(&end),
                    LabelEnd::AtStation(station) => station != destination,
                    LabelEnd::Loop => false,
                };
                if ends.iter().any(misled) {
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

    /// Follows a label from a node, over next hops and their backups: where it may lead. A node without an
    /// entry drops the packet.
    fn follow(&self, index: usize, label: Label) -> Vec<LabelEnd> {
        let mut followed = Followed::default();
        self.follow_on((index, label), &mut followed);
        followed.ends
    }

    fn follow_on(&self, at: (usize, Label), followed: &mut Followed) {
        let entry = |(index, label): (usize, Label)| -> Option<&InstalledLabel> {
            self.hosts.get(index)?.data.labels.get(&label)
        };
        let Some(installed) = entry(at) else { return };
        if followed.open.contains(&at) {
            return followed.ends.push(LabelEnd::Loop);
        }
        if followed.done.contains(&at) {
            return;
        }
        followed.done.push(at);
        match installed.action {
            LabelAction::Pop => followed.ends.push(LabelEnd::At(at.0)),
            LabelAction::Station { station, .. } => {
                followed.ends.push(LabelEnd::AtStation(station));
            }
            LabelAction::Swap(_) => {}
        }
        followed.open.push(at);
        for hop in installed.hops() {
            if let Some(next) = self.beyond(at.0, hop.adjacency) {
                self.follow_on((next, hop.label), followed);
            }
        }
        followed.open.pop();
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
                let LabelAction::Swap(hop) = self.hosts.get(index)?.data.action(label)? else {
                    return (index == to).then_some(relays);
                };
                relays.push(index);
                (index, label) = (self.beyond(index, hop.adjacency)?, hop.label);
            }
            None
        })
    }
}
