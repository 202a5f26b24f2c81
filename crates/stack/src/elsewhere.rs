//! Several workers, one host: what a worker leaves to the first.
//!
//! Each worker has a graph of the same plan. Transit is every worker's: the link layers and the
//! network layers' short way ([`crate::Ipv4Layer`], [`crate::Ipv6Layer`]). All else is the first
//! worker's: ARP, neighbour discovery, ICMP, groups, sockets, reassembly, options, fragments and
//! errors, so that each of them has one state, one set of bounds and one rate. On the other workers
//! an [`ElsewhereLayer`] stands in their place. A packet that comes there leaves the graph as
//! [`HandedOver`] and goes on in the first worker's graph at the same layer, with everything it
//! carries: the handlers of the way that led there have seen it already, and see it once.

use crate::{At, Layer, NodeIndex, Out, Side};
use gatewright_packet::{Batch, LinkIndex, Packet};
use gatewright_tables::{
    Map,
    records::{Neighbour, NeighbourKey, NeighbourState},
};
use gatewright_wire::MacAddress;
use std::{cell::RefCell, net::IpAddr, rc::Rc, time::Duration};

/// A packet that goes on in another worker's graph.
#[derive(Debug)]
pub struct HandedOver {
    /// The layer that it comes to.
    pub to: NodeIndex,
    /// The position by which it came there.
    pub at: At,
    /// Whether it comes from below or from above.
    pub side: Side,
    /// The packet.
    pub packet: Packet,
}

/// The neighbours of a link as the first worker has written them down.
///
/// One that is no longer fresh is used as it is, and told: who keeps it has to ask whether it is
/// still there (RFC 4861 §7.3.3). One that is not known has packets go to the first worker, where
/// they wait.
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
    /// Takes one of them.
    pub fn pop(&self) -> Option<(LinkIndex, IpAddr)> {
        self.0.borrow_mut().pop()
    }
}

/// Used neighbours that wait to be told at the most; later ones are told when they are used again.
const USED_MAX: usize = 64;

/// How long a neighbour that is not fresh is used before that is told again.
const TOLD_EVERY: Duration = Duration::from_secs(1);

impl KeptNeighbours {
    /// The neighbours of `link` in `table`; those that are used while not fresh come to `used`.
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
    ) -> Option<(MacAddress, Duration)> {
        // What is being written is not known yet.
        let known = self.table.get(&NeighbourKey { link: self.link.0, address }).ok()??;
        let station = MacAddress(known.address.to_ethernet()?);
        match known.state {
            NeighbourState::Incomplete | NeighbourState::Failed => None,
            NeighbourState::Stale => {
                let mut used = self.used.0.borrow_mut();
                if used.len() < USED_MAX {
                    used.push((self.link, address));
                }
                Some((station, now + TOLD_EVERY))
            }
            _ => Some((station, Duration::MAX)),
        }
    }
}

/// Stands where the first worker has the layer `name`, and leaves all packets to that.
#[derive(Debug)]
pub(crate) struct ElsewhereLayer {
    pub(crate) name: &'static str,
}

impl Layer for ElsewhereLayer {
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
