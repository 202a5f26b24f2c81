//! What the control side publishes to drivers that forward, and when.

use super::{Control, InGraph, Prepared};
use crate::drivers::{DriverCount, Drivers, NextHopStatus};
use crate::kernel::Kernel;
use gatewright_data::HandlerNow;
use gatewright_packet::LinkIndex;
use gatewright_stack::{HOP_PACKETS, Route};
use gatewright_tables::{CounterOwner, CounterSums, HopIndex, records::NeighbourKey};
use gatewright_xdp::PacketCount;
use std::{net::IpAddr, time::Instant};

impl Control {
    /// Publishes everything to `drivers`, and what changes from now on. Where handlers stand
    /// that are not known here, or are about to be attached, all goes to the graph until then.
    pub(crate) fn forward_in_drivers(&mut self, drivers: Drivers, in_graph: InGraph) {
        self.in_graph = in_graph;
        self.host.follow_routes(drivers.follower());
        self.drivers = Some(drivers);
        self.follow_all_neighbours();
        self.look_at_drivers(Instant::now());
    }

    /// Lets drivers forward from now on: all handlers are attached.
    pub(crate) fn begin_in_drivers(&mut self) {
        self.in_graph = InGraph::No;
        self.publish_to_drivers();
    }

    /// Publishes changes of interfaces, next hops and handlers.
    pub(crate) fn publish_to_drivers(&mut self) {
        self.publish_beside(None);
    }

    /// Sends what the handlers of a wiring look at to the graph, before these stand there.
    pub(crate) fn raise_for(&mut self, prepared: &Prepared) {
        self.publish_beside(Some(prepared));
    }

    fn publish_beside(&mut self, coming: Option<&Prepared>) {
        let Self { drivers: Some(drivers), host, attached, kernel, .. } = self else { return };
        let unknown = self.in_graph != InGraph::No;
        let coming = coming.map(|prepared| &prepared.attached[..]);
        let is_withdrawn = kernel.as_ref().is_some_and(Kernel::is_withdrawn);
        drivers.publish(host, (attached, coming), is_withdrawn || unknown);
    }

    /// Handlers with what drivers have counted and dropped in their place.
    pub(crate) fn with_driver_counts(&self, mut handlers: Vec<HandlerNow>) -> Vec<HandlerNow> {
        let Some(drivers) = &self.drivers else { return handlers };
        for handler in &mut handlers {
            let here = drivers.handled(handler.id);
            match &mut handler.counted {
                Some((packets, octets)) => {
                    *packets += here.packets;
                    *octets += here.octets;
                }
                None => handler.taken += here.packets,
            }
        }
        handlers
    }

    /// Publishes what changes without an event: interfaces that take redirected frames or no longer.
    pub(crate) fn look_at_drivers(&mut self, now: Instant) {
        let Some(drivers) = &mut self.drivers else { return };
        drivers.look_at_ports(&self.links, now);
        self.publish_to_drivers();
    }

    /// The stale neighbours to which drivers have forwarded packets since the last look.
    pub(crate) fn take_used_neighbours(&mut self, now: Instant) -> Vec<(LinkIndex, IpAddr)> {
        self.drivers.as_mut().map(|drivers| drivers.take_used(now)).unwrap_or_default()
    }

    /// Publishes a neighbour whose record has changed.
    pub(crate) fn follow_neighbour(&mut self, link: LinkIndex, address: IpAddr) {
        let Some(drivers) = &self.drivers else { return };
        let key = NeighbourKey { link: link.0, address };
        // A record that is being written changes once more, and is reported again.
        if let Ok(record) = self.host.tables().neighbours.get(&key) {
            drivers.follow_neighbour(key, record);
        }
    }

    /// Publishes all neighbours.
    pub(crate) fn follow_all_neighbours(&mut self) {
        if let Some(drivers) = &self.drivers {
            drivers.follow_neighbours(&self.host.tables().neighbours);
        }
    }

    /// As [`Self::look_at_drivers`], with all interfaces asked: links were opened.
    pub(crate) fn look_at_opened(&mut self) {
        let now = Instant::now();
        if let Some(drivers) = &mut self.drivers {
            drivers.look_soon(now);
        }
        self.look_at_drivers(now);
    }

    /// Sends packets of a link to the graph while one is traced, or no longer.
    pub(crate) fn trace_in_graph(&mut self, link: Option<LinkIndex>, is_traced: bool) {
        if let Some(drivers) = &mut self.drivers {
            drivers.trace(link, is_traced);
        }
        self.publish_to_drivers();
    }

    /// A link's packets in its driver, and why redirected frames do not leave by it.
    pub(crate) fn driver_counts(&self, link: u16) -> (Vec<DriverCount>, &'static str) {
        let drivers = self.drivers.as_ref();
        drivers.map(|drivers| (drivers.counts(link), drivers.not_a_port(link))).unwrap_or_default()
    }

    /// The next hops by which drivers have forwarded packets, and those of groups by which the graph
    /// has sent some.
    pub(crate) fn next_hops(&self, sums: &CounterSums) -> Vec<NextHopStatus> {
        let in_drivers = self.drivers.as_ref().map(Drivers::hop_counts).unwrap_or_default();
        let status = |(index, route): (HopIndex, Route)| {
            let (link, via) = match route {
                Route::Connected(link) => (link, None),
                Route::Via { link, gateway } => (link, Some(gateway)),
                _ => return None,
            };
            let PacketCount { packets, octets } =
                in_drivers.get(&index).copied().unwrap_or_default();
            let in_graph = sums.get(CounterOwner::NextHop(index.0), HOP_PACKETS).unwrap_or(0);
            let name = self.links.get(link.index()).map(|(name, _)| name.clone());
            (packets > 0 || in_graph > 0).then(|| NextHopStatus {
                link: name.unwrap_or_default(),
                via,
                packets,
                octets,
                in_graph,
            })
        };
        self.host.hops().filter_map(status).collect()
    }
}
