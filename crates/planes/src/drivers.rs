//! Forwarding in drivers: the control side publishes routes, next hops, neighbours and interfaces to
//! the maps of `xdp`.
//!
//! Routes follow the host's at each change ([`RouteFollower`]). Interfaces, next hops and what goes
//! up are compared with what was published last. Neighbours are those of the worker's table. A stale
//! one stays; drivers note that they have used it, and the graph then asks the neighbour as ever. No
//! packet goes to the graph for that: it would be lost while no data plane is there.

mod handlers;
mod reports;
mod tables;

pub(crate) use handlers::{Attached, DriverPart, free_bucket};

use crate::setup::{ReportRoute, Setup};
use gatewright_link::{ForwardingMaps, KernelPort, LinkInfo, Mode, kernel_port};
use gatewright_packet::LinkIndex;
use gatewright_stack::{AttachmentId, Bucket, Host, Interface, RouteFollower};
use gatewright_tables::{
    DriverReports, HopIndex, Map,
    records::{Neighbour, NeighbourKey},
};
use gatewright_xdp::{Forwarding, LimitIndex, PacketCount, TableSizes};
use handlers::Handled;
use reports::DriverReporting;
use serde::Serialize;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tables::{DriverTables, Follower};

/// Next hops that the maps hold; packets by others go to the graph.
const HOPS_MAX: u32 = 8192;

/// Groups of next hops that the maps hold, 4 KiB each; packets by others go to the graph.
const HOP_GROUPS_MAX: u32 = 256;

/// Neighbours that the maps hold; packets for others go to the graph.
const NEIGHBOURS_MAX: u32 = 65_536;

/// Maximum routes of a gateway for which the maps hold a trie, of some 340 octets a route, not a
/// table of 32 MiB.
const TRIE_ROUTES_MAX: u32 = 16_384;

/// IPv4 networks of 24 bits with longer prefixes that the table holds, 512 octets each.
const GROUPS: u16 = 8192;

/// IPv6 routes that the maps hold, in 42 MiB; beyond that, IPv6 goes to the graph.
const ROUTES6_MAX: u32 = 131_072;

/// Interval at which interfaces are asked whether they take redirected frames, and at which it is
/// looked which stale neighbours drivers have used.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The families of packets, as bits are set for them.
const IPV4: usize = 0;
const IPV6: usize = 1;

/// A link as drivers have to know it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct DriverLink {
    mac: Option<[u8; 6]>,
    mtu: u32,
    up: bool,
    /// Whether redirected frames leave by it.
    is_port: bool,
    handled: Handled,
}

/// The state of a host that drivers follow.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct DriverState {
    links: Vec<DriverLink>,
    own: Vec<IpAddr>,
    /// The handlers that drivers may have a part in.
    handlers: Vec<AttachmentId>,
}

/// Forwarding in the drivers of a gateway's links.
#[derive(Debug)]
pub(crate) struct Drivers {
    tables: Arc<Mutex<DriverTables>>,
    published: DriverState,
    /// The kernel's interfaces, by link.
    ports: Vec<Option<KernelPort>>,
    /// The links whose packets are traced; `None` for all.
    traced: Vec<Option<LinkIndex>>,
    /// Reports of devices, if drivers send on any.
    reports: Option<DriverReporting>,
    look_due: Instant,
    use_due: Instant,
}

/// Packets and octets in a link's driver, by outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct DriverCount {
    /// What happened to them, in a word: `forwarded`, or why they went up.
    pub outcome: &'static str,
    /// Packets.
    pub packets: u64,
    /// Octets, from the IP header on.
    pub octets: u64,
}

impl DriverCount {
    const fn new(outcome: &'static str, count: PacketCount) -> Self {
        Self { outcome, packets: count.packets, octets: count.octets }
    }
}

/// A next hop by which drivers have forwarded packets, or one of a group by which the graph has.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct NextHopStatus {
    /// The outgoing link.
    pub link: String,
    /// The router; none if destinations are neighbours themselves.
    pub via: Option<IpAddr>,
    /// Packets forwarded in drivers.
    pub packets: u64,
    /// Their octets, from the IP header on.
    pub octets: u64,
    /// Packets that the graph sent by it for routes of several next hops.
    pub in_graph: u64,
}

/// The sizes of the maps for a gateway.
fn sizes(setup: &Setup, reports: Option<ReportRoute>) -> TableSizes {
    let is_small = setup.routes_max <= TRIE_ROUTES_MAX;
    TableSizes {
        hops: HOPS_MAX,
        hop_groups: HOP_GROUPS_MAX,
        neighbours: NEIGHBOURS_MAX,
        routes4: if is_small { setup.routes_max.max(1) } else { 0 },
        groups: if is_small { 0 } else { GROUPS },
        routes6: setup.routes_max.clamp(1, ROUTES6_MAX),
        devices: reports::devices(reports, is_small),
    }
}

impl Drivers {
    /// The maps for a gateway whose links ask for them; the reason if there can be none.
    pub(crate) fn of(setup: &Setup, reports: Option<ReportRoute>) -> Option<Result<Self, String>> {
        let asks = setup.links.iter().any(|link| link.device.forwards_in_driver());
        asks.then(|| {
            let forwarding =
                Forwarding::new(sizes(setup, reports)).map_err(|error| error.to_string())?;
            let now = Instant::now();
            let of_reports = forwarding.driver_reports();
            let reports = reports.map(|route| DriverReporting::new(of_reports, route));
            Ok(Self {
                tables: Arc::new(Mutex::new(DriverTables::new(forwarding, HOPS_MAX))),
                published: DriverState::default(),
                ports: Vec::new(),
                traced: Vec::new(),
                reports,
                look_due: now,
                use_due: now,
            })
        })
    }

    /// The maps for those who open links; otherwise why there are none.
    pub(crate) fn maps(
        drivers: Option<&Result<Self, String>>,
    ) -> Result<Arc<ForwardingMaps>, String> {
        match drivers {
            None => Err("no link asks for it".to_owned()),
            Some(Err(reason)) => Err(reason.clone()),
            Some(Ok(drivers)) => {
                let maps = drivers.tables().forwarding.maps();
                maps.map(Arc::new).map_err(|error| error.to_string())
            }
        }
    }

    fn tables(&self) -> MutexGuard<'_, DriverTables> {
        // A poisoned lock is safe here: each record in the maps is whole by itself.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the host's routes in the maps.
    pub(crate) fn follower(&self) -> Box<dyn RouteFollower> {
        Box::new(Follower(Arc::clone(&self.tables)))
    }

    /// The memory of reports that drivers send on, if they do.
    pub(crate) fn reports(&self) -> Option<&DriverReports> {
        self.reports.as_ref().map(|reporting| &reporting.reports)
    }

    /// Sends traced packets to the graph, or no longer.
    pub(crate) fn trace(&mut self, link: Option<LinkIndex>, is_traced: bool) {
        if is_traced {
            self.traced.push(link);
        } else if let Some(place) = self.traced.iter().position(|traced| *traced == link) {
            self.traced.swap_remove(place);
        }
    }

    /// Publishes interfaces, next hops and what goes up, if they have changed. Packets that handlers
    /// look at go up, those of now and those that are `coming`; `everything` does if it is left to
    /// the kernel.
    pub(crate) fn publish(
        &mut self,
        host: &Host,
        (attached, coming): (&[Attached], Option<&[Attached]>),
        everything: bool,
    ) {
        let full = self.tables().full;
        let count = host.interfaces().iter().map(|own| own.link.index() + 1).max().unwrap_or(0);
        let mut links = vec![DriverLink::default(); count];
        for own in host.interfaces() {
            let Some(link) = links.get_mut(own.link.index()) else { continue };
            *link = self.link(own, attached);
            if let Some(coming) = coming {
                link.handled.meet(&Handled::by(coming, own.link));
            }
            for (up, full) in link.handled.received.iter_mut().zip(full) {
                *up |= full || everything;
            }
        }
        let all = attached.iter().chain(coming.unwrap_or_default());
        let handlers = all.filter(|one| one.part.is_of_drivers()).map(|one| one.id).collect();
        let all = attached.iter().chain(coming.unwrap_or_default());
        self.reports.iter_mut().for_each(|reports| reports.publish(host, all.clone()));
        let state = DriverState { links, own: host.own_sources(), handlers };
        if state != self.published {
            self.tables().publish(&self.published.links, &state);
            self.published = state;
        }
    }

    /// An interface as drivers have to know it.
    fn link(&self, own: &Interface, attached: &[Attached]) -> DriverLink {
        let port = self.ports.get(own.link.index()).copied().flatten();
        let mut handled = Handled::by(attached, own.link);
        let is_traced = |traced: &Option<LinkIndex>| traced.is_none_or(|link| link == own.link);
        if !own.up || !own.forwarding || self.traced.iter().any(is_traced) {
            handled.received = [true; 2];
        }
        DriverLink {
            mac: own.ethernet_address().map(|mac| mac.0),
            mtu: own.mtu,
            up: own.up,
            is_port: port.is_some_and(|port| port.takes_redirected == Some(true)),
            handled,
        }
    }

    /// Asks the kernel for the interfaces of `links`, if that is due; returns whether any differs.
    pub(crate) fn look_at_ports(&mut self, links: &[(String, LinkInfo)], now: Instant) -> bool {
        if now < self.look_due {
            return false;
        }
        self.look_due = now + LOOK_EVERY;
        self.reports.iter().for_each(DriverReporting::set_clock);
        let port = |(name, info): &(String, LinkInfo)| {
            let of_kernel = matches!(
                info.mode,
                Mode::XdpZeroCopy | Mode::XdpCopy | Mode::XdpGeneric | Mode::PacketSocket
            );
            (of_kernel && !name.is_empty()).then(|| kernel_port(&info.name)).flatten()
        };
        let ports: Vec<_> = links.iter().map(port).collect();
        let differs = ports != self.ports;
        if differs {
            self.tables().set_ports(&self.ports, &ports);
            self.ports = ports;
        }
        self.tables().settle();
        differs
    }

    /// The stale neighbours to which drivers have forwarded packets, for the graph to ask them.
    pub(crate) fn take_used(&mut self, now: Instant) -> Vec<(LinkIndex, IpAddr)> {
        if now < self.use_due {
            return Vec::new();
        }
        self.use_due = now + LOOK_EVERY;
        self.tables().take_used()
    }

    /// Looks at the interfaces anew at the next occasion: links were opened.
    pub(crate) const fn look_soon(&mut self, now: Instant) {
        self.look_due = now;
    }

    /// Publishes a neighbour's record; none if it is gone.
    pub(crate) fn follow_neighbour(&self, key: NeighbourKey, record: Option<Neighbour>) {
        self.tables().follow_neighbour(key, record);
    }

    /// Publishes all of the worker's neighbours.
    pub(crate) fn follow_neighbours(&self, all: &Map<NeighbourKey, Neighbour>) {
        self.tables().follow_neighbours(all);
    }

    /// Why redirected frames do not leave by a link, in words for the operator; empty if they do.
    pub(crate) fn not_a_port(&self, link: u16) -> &'static str {
        match self.ports.get(usize::from(link)).copied().flatten() {
            Some(KernelPort { takes_redirected: Some(true), .. }) => "",
            Some(KernelPort { takes_redirected: Some(false), .. }) => {
                "its driver takes no redirected frames (veth does if the other end has GRO on or \
                 an XDP program)"
            }
            Some(KernelPort { takes_redirected: None, .. }) => {
                "the kernel does not tell whether its driver takes redirected frames (Linux 6.3 \
                 does)"
            }
            None => "it is no interface of the kernel",
        }
    }

    /// A link's packets in its driver by outcome, without outcomes that none has had.
    pub(crate) fn counts(&self, link: u16) -> Vec<DriverCount> {
        let forwarding = &self.tables().forwarding;
        let counts = forwarding.counts(link.into()).unwrap_or_default().into_iter();
        let counts = counts.map(|(reason, count)| DriverCount::new(reason.name(), count));
        let reports = forwarding.report_counts(link.into()).unwrap_or_default().into_iter();
        let reports = reports.map(|(reason, count)| DriverCount::new(reason.name(), count));
        counts.chain(reports).filter(|count| count.packets > 0).collect()
    }

    /// Fills a bucket of tokens that no handler has.
    pub(crate) fn fill(&self, bucket: LimitIndex, of: &Bucket) {
        // It is one of those that there are.
        let _fits = self.tables().forwarding.set_limit(bucket, of.times());
    }

    /// Packets and octets that drivers have counted or dropped in place of a handler.
    pub(crate) fn handled(&self, id: AttachmentId) -> PacketCount {
        self.tables().handled(id)
    }

    /// The packets that drivers have forwarded, by next hop.
    pub(crate) fn hop_counts(&self) -> HashMap<HopIndex, PacketCount> {
        self.tables().hop_counts()
    }
}
