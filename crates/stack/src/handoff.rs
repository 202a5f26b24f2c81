//! Handoff of packets from other workers to the first.
//!
//! Each worker has a graph of the same plan. Every worker handles transit: the link layers and the
//! network layers' short way ([`crate::Ipv4Layer`], [`crate::Ipv6Layer`]). The first worker handles
//! all else: ARP, neighbour discovery, ICMP, groups, sockets, reassembly, options, fragments and
//! errors. So each of them has one state, one set of limits and one rate. On the other workers an
//! [`HandoffLayer`] stands in their place. A packet that comes there leaves the graph as
//! [`HandedOver`], with all its metadata, and resumes in the first worker's graph at the same
//! layer. Handlers on the way there have seen it already, and see it only once.

use crate::{At, Layer, NodeIndex, Out, Side};
use gatewright_packet::{Batch, LinkAddress, LinkIndex, Packet};
use gatewright_tables::{
    Map,
    records::{Neighbour, NeighbourKey, NeighbourState},
};
use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Duration};

/// A packet that resumes in another worker's graph.
#[derive(Debug)]
pub struct HandedOver {
    /// The layer at which it resumes.
    pub to: NodeIndex,
    /// The position by which it came to the layer.
    pub at: At,
    /// Whether it comes from below or from above.
    pub side: Side,
    /// The packet.
    pub packet: Packet,
}

/// The neighbours of a link, from the first worker's table.
///
/// A neighbour that is no longer fresh is used, and reported: the first worker has to verify it
/// (RFC 4861 §7.3.3). Packets for an unknown neighbour go to the first worker, where they wait.
#[derive(Clone, Debug)]
pub struct KeptNeighbours {
    table: Map<NeighbourKey, Neighbour>,
    link: LinkIndex,
    used: UsedNeighbours,
}

/// Neighbours that were used although they are not fresh.
#[derive(Clone, Debug, Default)]
pub struct UsedNeighbours(Rc<RefCell<Vec<(LinkIndex, IpAddr)>>>);

impl UsedNeighbours {
    /// Takes one neighbour.
    pub fn pop(&self) -> Option<(LinkIndex, IpAddr)> {
        self.0.borrow_mut().pop()
    }
}

/// Maximum used neighbours waiting to be reported; later ones are reported when they are used
/// again.
const USED_MAX: usize = 64;

/// Minimum time between two reports of the same neighbour.
const TOLD_EVERY: Duration = Duration::from_secs(1);

impl KeptNeighbours {
    /// The neighbours of `link` in `table`; those used while not fresh are added to `used`.
    pub fn new(table: Map<NeighbourKey, Neighbour>, link: LinkIndex, used: UsedNeighbours) -> Self {
        Self { table, link, used }
    }

    /// As [`crate::Neighbours::changes`].
    pub(crate) fn changes(&self) -> u32 {
        self.table.changes()
    }

    /// As [`crate::Neighbours::resolve_until`].
    pub(crate) fn resolve_until(
        &self,
        address: IpAddr,
        now: Duration,
    ) -> Option<(LinkAddress, Duration)> {
        // What is being written is not known yet.
        let known = self.table.get(&NeighbourKey { link: self.link.0, address }).ok()??;
        let link_address = known.address;
        match known.state {
            NeighbourState::Incomplete | NeighbourState::Failed => None,
            _ if link_address.is_none() => None,
            NeighbourState::Stale => {
                let mut used = self.used.0.borrow_mut();
                if used.len() < USED_MAX {
                    used.push((self.link, address));
                }
                Some((link_address, now + TOLD_EVERY))
            }
            _ => Some((link_address, Duration::MAX)),
        }
    }
}

/// Replaces the first worker's layer `name`, and passes all packets to it.
#[derive(Debug)]
pub(crate) struct HandoffLayer {
    pub(crate) name: &'static str,
}

impl Layer for HandoffLayer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn receive(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            out.hand_over(Side::Receive, packet);
        }
    }

    fn transmit(&mut self, batch: &mut Batch, out: &mut Out<'_>) {
        for packet in batch.drain() {
            out.hand_over(Side::Transmit, packet);
        }
    }
}
