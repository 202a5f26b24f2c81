//! Nodes with one interface each, by which they reach those in range, as on the air.
//!
//! The links of such a world are all pairs of nodes, and those out of range lose every frame. No node is told
//! when another one comes into range or leaves it: an interface keeps its carrier.

use super::world::{Event, MeshWorld, address, at};
use crate::edge::{Adjacency, MeshSettings};
use crate::message::Profile;
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_sim::Topology;

/// Nodes of a world on the air at the most: each pair of them is a link.
pub const AIR_NODES_MAX: usize = 256;

impl MeshWorld {
    /// A world on the air whose nodes start at time zero, with nobody in range; of at most
    /// [`AIR_NODES_MAX`] nodes.
    pub fn on_air(
        nodes: usize,
        profile: Profile,
        seed: u64,
        change: fn(&mut MeshSettings),
    ) -> Self {
        let nodes = nodes.min(AIR_NODES_MAX);
        let pairs = (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b)));
        let mut world = Self::with_links(Topology::of(nodes, pairs), profile, seed, change, true);
        world.reach(&[]);
        world
    }

    /// Sets which pairs of nodes are in range of each other; the smaller number first.
    pub fn reach(&mut self, pairs: &[[usize; 2]]) {
        let mut sorted = pairs.to_vec();
        sorted.sort_unstable();
        let ends: Vec<[usize; 2]> = self.topology().links.iter().map(|link| link.ends).collect();
        for (line, ends) in self.lines.iter_mut().zip(ends) {
            line.silent = [sorted.binary_search(&ends).is_err(); 2];
        }
    }

    /// The port by which a node reaches a neighbour.
    pub(super) fn port_to(&self, index: usize, adjacency: Adjacency) -> Option<usize> {
        if !self.on_air {
            return Some(adjacency.link.index());
        }
        let peer = self.indices.get(&adjacency.node)?;
        self.hosts.get(index)?.ports.iter().position(|port| port.peer == *peer)
    }

    /// The link index of a port.
    pub(super) fn link_at(&self, port: usize) -> LinkIndex {
        if self.on_air { at(0) } else { at(port) }
    }

    /// Sends a message to all nodes in range, or to one of them.
    pub(super) fn send_on_air(&mut self, index: usize, to: Option<LinkAddress>, octets: &[u8]) {
        let ports = self.hosts.get(index).map_or(&[][..], |host| &host.ports);
        let is_meant = |peer| to.is_none_or(|to| to == address(peer));
        let meant: Vec<usize> = (ports.iter().enumerate())
            .filter(|(_, port)| is_meant(port.peer) && self.works(port.link))
            .map(|(number, _)| number)
            .collect();
        for port in meant {
            let Some(crossing) = self.cross(index, port) else { continue };
            let (to, port) = crossing.to;
            for at in crossing.arrivals() {
                self.schedule(at, Event::Message { to, port, octets: octets.to_vec() });
            }
        }
    }
}
