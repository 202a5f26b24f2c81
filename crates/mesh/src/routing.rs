//! Route finding, apart from the establishment of paths: which way a ROUTE REQUEST goes.
//!
//! Whatever finds the way, the target answers along the record of the request: labels,
//! acknowledgements, liveness and failover are the same.

mod olsr;

use crate::edge::{Adjacency, MeshRouting};
use crate::identity::NodeId;
use crate::message::RouteRequest;
use crate::neighbour::Neighbourhood;
use core::fmt;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use olsr::OlsrRouting;
pub use olsr::olsr_address;

/// The way of a ROUTE REQUEST from a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestWay {
    /// To all neighbours, each of which passes it on to all.
    Flood,
    /// To one neighbour, which passes it on along its own route.
    Next(Adjacency),
    /// There is no route.
    Nowhere,
}

/// What route finding learns of links and neighbours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinkNews {
    /// A link is there.
    LinkUp(LinkIndex),
    /// A link is gone.
    LinkDown(LinkIndex),
    /// A neighbour is heard.
    NeighbourUp(Adjacency),
    /// A neighbour is lost.
    NeighbourDown(Adjacency),
}

/// Route finding of a node.
pub(crate) trait RouteFinding: fmt::Debug + Send {
    /// The way of a request that this node begins; `attempt` counts the requests of one search, from
    /// 0.
    fn begin(
        &mut self,
        now: Duration,
        near: &Neighbourhood,
        request: &RouteRequest,
        attempt: usize,
    ) -> RequestWay;

    /// The way of a request that has come along a route.
    fn follow(&mut self, now: Duration, near: &Neighbourhood, request: &RouteRequest)
    -> RequestWay;

    /// Learns of a link or a neighbour.
    fn learn(&mut self, now: Duration, news: LinkNews);

    /// Takes a packet of a neighbour's route finding; `false` if this one has no use for it.
    fn receive(&mut self, now: Duration, from: Adjacency, packet: &[u8]) -> bool;

    /// A packet to all neighbours of a link.
    fn poll_output(&mut self) -> Option<(LinkIndex, Vec<u8>)>;

    /// Latest time of the next [`RouteFinding::tick`].
    fn poll_timeout(&self) -> Option<Duration>;

    /// Takes the steps that are due.
    fn tick(&mut self, now: Duration);
}

impl MeshRouting {
    /// The route finding of a node; `seed` gives the seed of its randomness, if it needs any.
    pub(crate) fn start(self, own: NodeId, seed: impl FnOnce() -> u64) -> Box<dyn RouteFinding> {
        match self {
            Self::OnDemand => Box::new(OnDemand),
            Self::Olsr => Box::new(OlsrRouting::new(own, seed())),
        }
    }
}

/// Discovery on demand: nothing is known before somebody searches.
#[derive(Debug)]
struct OnDemand;

impl RouteFinding for OnDemand {
    fn begin(&mut self, _: Duration, _: &Neighbourhood, _: &RouteRequest, _: usize) -> RequestWay {
        RequestWay::Flood
    }

    fn follow(&mut self, _: Duration, _: &Neighbourhood, _: &RouteRequest) -> RequestWay {
        RequestWay::Nowhere
    }

    fn learn(&mut self, _: Duration, _: LinkNews) {}

    fn receive(&mut self, _: Duration, _: Adjacency, _: &[u8]) -> bool {
        false
    }

    fn poll_output(&mut self) -> Option<(LinkIndex, Vec<u8>)> {
        None
    }

    fn poll_timeout(&self) -> Option<Duration> {
        None
    }

    fn tick(&mut self, _: Duration) {}
}
