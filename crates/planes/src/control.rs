//! The control side of a gateway: its host, plan, attachments and learnt state.

pub(crate) mod events;
mod forwarding;
mod groups;
mod learn;
mod learnt;
#[cfg(test)]
mod tests;

use crate::{
    drivers::{Attached, DriverPart, Drivers, free_bucket},
    error::PlanesError,
    kernel::{Kernel, News, OwnWay, WayRoute, follow},
    setup::{RouteTo, Setup, StaticRoute},
    status::{LayerStatus, WayStatus},
};
use gatewright_data::{
    DataError, HandlerOrder, HandlerValue, PlanePort, Port, PortAnswer, PortRequest, StageNumber,
    TraceNumber,
};
use gatewright_link::{Division, LinkInfo};
use gatewright_packet::LinkIndex;
use gatewright_part::EventSink;
use gatewright_stack::{
    Address, Attachment, AttachmentId, Binding, Bucket, EdgeTarget, Handler, Host, HostError,
    Interface, Plan, Route, WAY_PACKETS, WeightedHop,
};
use gatewright_tables::{
    CounterOwner, CounterSums, CounterTable,
    records::{self, Name},
};
use groups::GroupRouters;
use learnt::Learnt;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// State that the control plane keeps about a gateway.
pub(crate) struct Control {
    pub(crate) host: Host,
    pub(crate) plan: Plan,
    pub(crate) links: Vec<(String, LinkInfo)>,
    attached: Vec<Attached>,
    next_id: u32,
    next_trace: TraceNumber,
    /// State of the kernel, where links are shared with it.
    pub(crate) kernel: Option<Kernel>,
    learnt: Learnt,
    /// The event log.
    pub(crate) log: EventSink,
    /// MTUs of interfaces before a router advertised a smaller one (RFC 4861 §6.3.4).
    link_mtus: Vec<(LinkIndex, u32)>,
    /// MTU limits from the description.
    pub(crate) mtu_caps: Vec<(LinkIndex, u32)>,
    routes: BTreeMap<(RouteTo, Origin), Vec<WeightedHop>>,
    /// Routers of groups of next hops, and which of them have told their link-layer address.
    group_routers: GroupRouters,
    /// Links that a command has taken down.
    closed: Vec<LinkIndex>,
    /// Shared VLANs of which the log says that the kernel has no interface for them.
    without_interface: Vec<LinkIndex>,
    /// Destinations of own addresses that the kernel's follower knows, and the version of the
    /// interfaces that they follow from.
    own_destinations: (u32, BTreeSet<RouteTo>),
    /// Forwarding in the drivers of links.
    drivers: Option<Drivers>,
    /// Until when all packets go to the graph.
    in_graph: InGraph,
}

/// Until when all packets go to the graph, also where drivers may forward.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InGraph {
    /// Drivers forward what no handler looks at.
    No,
    /// Until a wiring is committed: handlers that are not known here stand in the graph.
    UntilWired,
    /// Until the gateway begins: not all of its handlers are attached yet.
    UntilBegun,
}

impl InGraph {
    /// At the start beside a data plane that was adopted or is new, of a gateway that waits or not.
    pub(crate) const fn at_start(is_adopted: bool, waits: bool) -> Self {
        match (is_adopted, waits) {
            (true, _) => Self::UntilWired,
            (false, true) => Self::UntilBegun,
            (false, false) => Self::No,
        }
    }
}

/// The source of a static route.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Origin {
    /// A command while the gateway runs; it takes precedence over the description.
    Command,
    /// The description.
    Configured,
}

/// A handler and its place in the order of a new wiring.
pub enum Placement {
    /// An attached handler.
    Kept(AttachmentId),
    /// A new handler, by its name and parameters.
    Described(Attachment, HandlerValue),
    /// A new handler of the embedder's own code.
    New(Attachment, Box<dyn Handler>),
}

/// A wiring that is ready to be exchanged, with the new handlers.
pub struct Prepared {
    attached: Vec<Attached>,
    next_id: u32,
    /// Its number at the workers.
    stage: StageNumber,
    port: PlanePort,
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(id) => f.debug_tuple("Kept").field(id).finish(),
            Self::Described(attachment, value) => {
                f.debug_tuple("Described").field(attachment).field(value).finish()
            }
            Self::New(attachment, _) => f.debug_tuple("New").field(attachment).finish(),
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("attached", &self.attached).finish_non_exhaustive()
    }
}

impl Prepared {
    /// The ids of the handlers, in the order of their placements.
    pub fn ids(&self) -> Vec<AttachmentId> {
        self.attached.iter().map(|one| one.id).collect()
    }

    pub(crate) const fn stage(&self) -> StageNumber {
        self.stage
    }
}

impl Drop for Prepared {
    /// The workers forget a wiring that nobody will commit.
    fn drop(&mut self) {
        // One that is in force is forgotten already, and workers that have ended forget everything.
        let _known = self.port.submit(PortRequest::Discard(self.stage));
    }
}

impl Control {
    pub(crate) fn new(host: Host, plan: Plan, links: Vec<(String, LinkInfo)>) -> Self {
        let (attached, routes) = (Vec::new(), BTreeMap::new());
        let (link_mtus, mtu_caps) = (Vec::new(), Vec::new());
        let (learnt, log) = (Learnt::default(), EventSink::default());
        let (closed, next_id, kernel, drivers) = (Vec::new(), 1, None, None);
        let group_routers = GroupRouters::default();
        Self {
            host,
            plan,
            links,
            attached,
            next_id,
            next_trace: TraceNumber(0),
            kernel,
            learnt,
            log,
            link_mtus,
            mtu_caps,
            routes,
            group_routers,
            closed,
            without_interface: Vec::new(),
            own_destinations: (0, BTreeSet::new()),
            drivers,
            in_graph: InGraph::No,
        }
    }

    /// Follows the kernel, which has shared links; its state is in the host when this returns.
    pub(crate) fn follow_kernel(
        &mut self,
        setup: &Setup,
        division: Arc<Division>,
        port: PlanePort,
    ) -> Result<News, PlanesError> {
        let own = self.own_ways();
        let (kernel, news) = follow(setup, (division, own), &mut self.host, port)?;
        self.kernel = Some(kernel);
        self.settle_own_destinations();
        Ok(news)
    }

    /// Begins with this id: those before belong to handlers of an earlier control plane.
    pub(crate) const fn begin_ids(&mut self, first: AttachmentId) {
        self.next_id = first.0;
    }

    /// Allocates an id for an attachment outside the wiring.
    pub(crate) const fn take_id(&mut self) -> AttachmentId {
        let id = AttachmentId(self.next_id);
        self.next_id += 1;
        id
    }

    /// A number that no other trace of this control plane has.
    pub(crate) const fn take_trace(&mut self) -> TraceNumber {
        let number = self.next_trace;
        self.next_trace = TraceNumber(number.0.wrapping_add(1));
        number
    }

    /// The wiring with one more handler, and its id.
    pub(crate) fn prepare_attached(
        &self,
        placement: Placement,
        port: &PlanePort,
    ) -> Result<(AttachmentId, Prepared), PlanesError> {
        let kept = self.attached.iter().map(|one| Placement::Kept(one.id));
        let all = kept.chain([placement]).collect();
        Ok((AttachmentId(self.next_id), self.prepare(all, port)?))
    }

    /// The wiring without a handler, if there is one of this id.
    pub(crate) fn prepare_detached(
        &self,
        id: AttachmentId,
        port: &PlanePort,
    ) -> Result<Option<Prepared>, PlanesError> {
        let others = self.attached.iter().filter(|other| other.id != id);
        let kept: Vec<_> = others.map(|one| Placement::Kept(one.id)).collect();
        if kept.len() == self.attached.len() {
            return Ok(None);
        }
        self.prepare(kept, port).map(Some)
    }

    /// Has the workers build the wiring in which just `placements` stand, in their order; nothing
    /// changes yet.
    pub(crate) fn prepare(
        &self,
        placements: Vec<Placement>,
        port: &PlanePort,
    ) -> Result<Prepared, PlanesError> {
        let (mut attached, mut next_id) = (Vec::new(), self.next_id);
        let mut orders = Vec::new();
        for placement in placements {
            let (attachment, value) = match placement {
                Placement::Kept(id) => {
                    orders.push(HandlerOrder::Kept(id));
                    attached.extend(self.attached.iter().find(|known| known.id == id).copied());
                    continue;
                }
                Placement::Described(attachment, value) => (attachment, value),
                Placement::New(attachment, handler) => (attachment, port.keep(handler)?),
            };
            let value = self.shared_with_drivers(&attachment, value, &attached);
            let id = AttachmentId(next_id);
            next_id += 1;
            attached.push(Attached { id, at: attachment, part: DriverPart::of(&value) });
            orders.push(HandlerOrder::New(id, attachment, value));
        }
        let PortAnswer::Staged(stage) = port.ask(PortRequest::Stage(orders))? else {
            return Err(DataError::Ended.into());
        };
        Ok(Prepared { attached, next_id, stage, port: port.clone() })
    }

    /// A new handler that limits packets, by a bucket of tokens that drivers have, too: else both would
    /// let pass as many. `coming` are the handlers that stand before it in the same wiring.
    fn shared_with_drivers(
        &self,
        at: &Attachment,
        value: HandlerValue,
        coming: &[Attached],
    ) -> HandlerValue {
        let (HandlerValue::RateLimit { rate, burst }, Some(drivers)) = (&value, &self.drivers)
        else {
            return value;
        };
        let Some(bucket) = free_bucket(at, self.attached.iter().chain(coming)) else {
            return value;
        };
        drivers.fill(bucket, &Bucket::new(*rate, *burst));
        HandlerValue::RateLimitWithDrivers { rate: *rate, burst: *burst, bucket: bucket.0 }
    }

    /// Records a prepared wiring as the current one.
    pub(crate) fn commit(&mut self, prepared: &Prepared) {
        (self.attached, self.next_id) = (prepared.attached.clone(), prepared.next_id);
        if self.in_graph == InGraph::UntilWired {
            self.in_graph = InGraph::No;
        }
        self.write_attachments();
    }

    /// Writes the positions of handlers into the table.
    fn write_attachments(&mut self) {
        let table = &mut self.host.tables_mut().attachments;
        let before: Vec<u32> = table.iter().map(|(place, _)| place).collect();
        let records = self.attached.iter().map(|one| attachment_record(one.id, &one.at));
        let mut used = 0;
        for (place, record) in (0..).zip(records) {
            used = place + 1;
            if table.get(place) != Some(record) {
                // What does not fit is counted there; it stands nevertheless.
                let _full = table.set(place, &record);
            }
        }
        for place in before.into_iter().filter(|place| *place >= used) {
            table.remove(place);
        }
    }

    /// Changes this state, and publishes to drivers what follows from that.
    pub(crate) fn changed<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let changed = change(self);
        self.settle_own_destinations();
        self.publish_to_drivers();
        changed
    }

    /// The counters of all workers at this moment.
    pub(crate) fn counted(&self) -> CounterTable {
        self.host.tables().counters
    }

    /// The layers with the drops of all workers.
    pub(crate) fn layers(&self, sums: &CounterSums) -> Vec<LayerStatus> {
        let layer = |(number, (_, name, link))| {
            LayerStatus::new(name, link, reasons(sums, CounterOwner::Layer(number)))
        };
        (0..).zip(self.plan.layers()).map(layer).collect()
    }

    /// The ways with their packet counts.
    pub(crate) fn ways(&self, sums: &CounterSums) -> Vec<WayStatus> {
        let layers: Vec<_> = self.plan.layers().collect();
        let place = |node| layers.iter().position(|(index, ..)| *index == node);
        let to = |way: &Binding| match way.to {
            EdgeTarget::Layer(node) => place(node),
            EdgeTarget::Device(_) | EdgeTarget::Nothing => None,
        };
        let way = |(number, (way, _)): (_, (&Binding, _))| {
            let packets = sums.get(CounterOwner::Edge(number), WAY_PACKETS).unwrap_or(0);
            let (from, to) = (way.from.and_then(place), to(way));
            let name = to.and_then(|to| layers.get(to)).map(|(_, name, _)| *name);
            WayStatus::new(way, (from, to), name, packets)
        };
        (0..).zip(self.plan.ways()).map(way).collect()
    }

    /// Records that a link was opened on another device.
    pub(crate) fn opened(&mut self, link: LinkIndex, info: &LinkInfo) {
        if let Some((_, known)) = self.links.get_mut(link.index()) {
            known.clone_from(info);
        }
        // Its virtual links take what it takes.
        for own in self.plan.virtual_on(link) {
            if let Some((_, known)) = self.links.get_mut(own.link.index()) {
                known.mtu = info.mtu;
            }
        }
    }

    /// Takes a link down by command, or up again.
    pub(crate) fn close(&mut self, link: LinkIndex, closed: bool) {
        self.closed.retain(|other| *other != link);
        if closed {
            self.closed.push(link);
        }
        // Up if its device is, too: what that says comes again only when it changes. A virtual
        // link is up if the link below is.
        let own = self.plan.virtual_links().iter().find(|own| own.link == link);
        let carried = own.is_none_or(|own| self.is_up(own.below));
        self.report_closed(link, closed);
        self.set_up_with_virtual(link, !closed && carried);
    }

    /// Goes on with links that are down since before an adoption: those that a command has taken
    /// down, and those whose device is gone. What devices say comes again only when it changes.
    pub(crate) fn go_on_down(&mut self, closed: &[LinkIndex]) {
        self.closed.extend_from_slice(closed);
        let links: Vec<_> = self.host.interfaces().iter().map(|own| own.link).collect();
        for link in links {
            let is_virtual = self.plan.virtual_links().iter().any(|own| own.link == link);
            let carries = is_virtual || self.host.tables_mut().downs.is_up(link.0);
            if self.is_closed(link) || !carries {
                self.set_up_with_virtual(link, false);
            }
        }
    }

    /// Links that the operator has set down.
    pub(crate) fn closed(&self) -> &[LinkIndex] {
        &self.closed
    }

    /// Whether the operator has set a link down.
    pub(crate) fn is_closed(&self, link: LinkIndex) -> bool {
        self.closed.contains(&link)
    }

    fn is_up(&self, link: LinkIndex) -> bool {
        self.host.interfaces().iter().any(|own| own.link == link && own.up)
    }

    /// As [`Self::set_up`], for the link and the virtual links on it.
    fn set_up_with_virtual(&mut self, link: LinkIndex, up: bool) {
        self.set_up(link, up);
        let carried: Vec<_> = self.plan.virtual_on(link).map(|own| own.link).collect();
        for own in carried {
            let up = up && !self.closed.contains(&own);
            self.set_up(own, up);
        }
    }

    /// Records whether a link carries frames; its routes are restored, or give way to others.
    fn set_up(&mut self, link: LinkIndex, up: bool) {
        self.host.change_interface(link, |interface| interface.up = up);
        let Some(own) = self.host.interfaces().iter().find(|own| own.link == link) else { return };
        // The kernel withdraws its routes itself.
        if own.shared {
            return;
        }
        let addresses = own.addresses.clone();
        if !up {
            // It may come up as another network.
            self.forget_link(link);
        }
        for address in addresses.into_iter().filter(|_| up) {
            // What was there a moment ago fits.
            let _fits = self.host.add_address(link, address);
        }
        let by = |route: &Route| match *route {
            Route::Connected(on) | Route::Broadcast(on) | Route::Via { link: on, .. } => on == link,
            _ => false,
        };
        let v4 = self.host.routes().filter(|(_, route)| by(route)).map(|(to, _)| RouteTo::V4(to));
        let v6 = self.host.routes6().filter(|(_, route)| by(route)).map(|(to, _)| RouteTo::V6(to));
        let wanted = self.routes.keys().map(|(to, _)| *to);
        let learnt = self.learnt.destinations();
        let all: Vec<RouteTo> = v4.chain(v6).chain(wanted).chain(learnt).collect();
        for to in all {
            // As above.
            let _fits = self.settle(to);
        }
    }

    /// Whether a route's link carries frames, or it has no link.
    fn leads(&self, route: Route) -> bool {
        match route {
            Route::Connected(link) | Route::Broadcast(link) | Route::Via { link, .. } => {
                self.is_up(link)
            }
            _ => true,
        }
    }

    /// Changes an interface from `before` to `after`. Learnt state stays while it is still to be
    /// learnt.
    pub(crate) fn refurnish(
        &mut self,
        before: &Interface,
        after: &Interface,
    ) -> Result<(), HostError> {
        let link = after.link;
        let addresses = |one: &Interface, other: &Interface| -> Vec<Address> {
            let only = one.addresses.iter().filter(|address| !other.addresses.contains(address));
            only.copied().collect()
        };
        let (gone, new) = (addresses(before, after), addresses(after, before));
        self.host.change(|host| {
            host.change_interface(link, |interface| {
                let addresses = std::mem::take(&mut interface.addresses);
                let (name, up) = (std::mem::take(&mut interface.name), interface.up);
                *interface = Interface { name, addresses, up, ..after.clone() };
            });
            for address in &new {
                host.add_address(link, *address)?;
            }
            for address in gone.iter().filter(|gone| new.iter().all(|new| new.ip != gone.ip)) {
                host.remove_address(link, address.ip);
            }
            Ok::<_, HostError>(())
        })?;
        // A lease that is no longer wanted ends when its client has released it, and says so.
        if before.autoconfigure && !after.autoconfigure {
            self.forget(|thing| thing.link() == link && thing.is_advertised());
        }
        // A subnet that went with an address may be wanted for another reason.
        let wanted: Vec<_> = self.routes.keys().map(|(to, _)| *to).collect();
        wanted.into_iter().try_for_each(|to| self.settle(to))?;
        Ok(())
    }

    /// Adds, removes or replaces a link at its place.
    pub(crate) fn exchange_link(
        &mut self,
        gone: Option<&Interface>,
        come: Option<&Interface>,
    ) -> Result<(), HostError> {
        if let Some(Interface { link, .. }) = gone {
            self.set_up(*link, false);
            self.closed.retain(|closed| closed != link);
            self.forget_link(*link);
            self.host.remove_interface(*link);
        }
        if let Some(come) = come {
            self.host.add_interface(come.clone())?;
        }
        if let Some((name, _)) = gone.or(come).and_then(|own| self.links.get_mut(own.link.index()))
        {
            *name = come.map_or_else(String::new, |come| come.name.clone());
        }
        // Routes that only this link, or only others, could lead.
        let wanted: Vec<_> = self.routes.keys().map(|(to, _)| *to).collect();
        wanted.into_iter().try_for_each(|to| self.settle(to))
    }

    /// The source of the route to `to`, as [`RouteStatus`](crate::RouteStatus) shows it.
    pub(crate) fn origin(&self, to: RouteTo) -> &'static str {
        if self.by_address(to).is_some() {
            return "address";
        }
        if self.kernel.as_ref().is_some_and(|kernel| kernel.leads_to(to)) {
            return "kernel";
        }
        match self.wishes(to).next().map(|(origin, _)| origin) {
            Some(Origin::Command) => "command",
            Some(Origin::Configured) => "description",
            None if self.learnt(to).is_some() => "network",
            None => "kernel",
        }
    }

    /// Routes packets for `route.to` by its next hops, in place of an earlier static route of `origin`.
    pub(crate) fn add_static(
        &mut self,
        route: StaticRoute,
        origin: Origin,
    ) -> Result<(), HostError> {
        self.routes.insert((route.to, origin), route.hops);
        self.settle(route.to)
    }

    /// The static routes of `origin`, also those whose link is down.
    pub(crate) fn static_routes(
        &self,
        origin: Origin,
    ) -> impl Iterator<Item = (RouteTo, &[WeightedHop])> {
        let own = self.routes.iter().filter(move |((_, of), _)| *of == origin);
        own.map(|((to, _), hops)| (*to, hops.as_slice()))
    }

    /// Removes the static route of `origin` for `to`; returns whether there was one.
    pub(crate) fn remove_static(&mut self, to: RouteTo, origin: Origin) -> bool {
        let was_there = self.routes.remove(&(to, origin)).is_some();
        // Fewer routes always fit.
        let _fits = self.settle(to);
        was_there
    }

    /// Installs the preferred route for `to` in the router. Where links are shared, the kernel's goes
    /// before those that were learnt.
    fn settle(&mut self, to: RouteTo) -> Result<(), HostError> {
        if self.kernel.is_some() {
            let way = self.own_way(to);
            let Self { kernel: Some(kernel), host, .. } = self else { return Ok(()) };
            return kernel.set_own(to, way, host);
        }
        let wanted = match (self.by_address(to), self.by_wish(to)) {
            (Some(route), _) => Some(route),
            (None, Some(hops)) => Some(self.host.route_by(&hops)?),
            (None, None) => self.learnt(to),
        };
        match (to, wanted) {
            (RouteTo::V4(to), Some(route)) => self.host.add_route(to, route),
            (RouteTo::V6(to), Some(route)) => self.host.add_route6(to, route),
            (RouteTo::V4(to), None) => {
                self.host.remove_route(to);
                Ok(())
            }
            (RouteTo::V6(to), None) => {
                self.host.remove_route6(to);
                Ok(())
            }
        }
    }

    /// The preferred way to `to` by an address of ours, by a static route or as it was learnt.
    fn own_way(&self, to: RouteTo) -> Option<OwnWay> {
        let firm = |route| Some(OwnWay { route, yields: false });
        match (self.by_address(to), self.by_wish(to)) {
            (Some(route), _) => firm(WayRoute::One(route)),
            (None, Some(hops)) => firm(WayRoute::by(&hops)),
            (None, None) => {
                self.learnt(to).map(|route| OwnWay { route: WayRoute::One(route), yields: true })
            }
        }
    }

    /// The ways that follow from own addresses.
    pub(crate) fn own_ways(&self) -> Vec<(RouteTo, OwnWay)> {
        let all = own_destinations(&self.host).into_iter();
        all.filter_map(|to| Some((to, self.own_way(to)?))).collect()
    }

    /// Where links are shared: has the kernel's follower know the ways that follow from own addresses,
    /// if these have changed.
    pub(crate) fn settle_own_destinations(&mut self) {
        let version = self.host.tables().published.changes();
        if self.kernel.is_none() || version == self.own_destinations.0 {
            return;
        }
        let now = own_destinations(&self.host);
        let before = std::mem::replace(&mut self.own_destinations, (version, now.clone())).1;
        for to in before.union(&now) {
            // Where the table that divides links is full, the kernel has such packets.
            let _full = self.settle(*to);
        }
    }

    /// The route that follows from an own address.
    fn by_address(&self, to: RouteTo) -> Option<Route> {
        match to {
            RouteTo::V4(to) => self.host.own_route(to),
            RouteTo::V6(to) => self.host.own_route6(to),
        }
        .filter(|route| self.leads(*route))
    }

    /// The next hops of the preferred static route of which a link carries frames. Those on other
    /// links have no flows then.
    fn by_wish(&self, to: RouteTo) -> Option<Vec<WeightedHop>> {
        let leads = |hops: &&[WeightedHop]| hops.iter().any(|hop| self.leads(hop.route()));
        self.wishes(to).map(|(_, hops)| hops).find(leads).map(<[_]>::to_vec)
    }

    /// The static routes for `to`, in the order of their precedence.
    fn wishes(&self, to: RouteTo) -> impl Iterator<Item = (Origin, &[WeightedHop])> {
        let all = (to, Origin::Command)..=(to, Origin::Configured);
        self.routes.range(all).map(|((_, origin), hops)| (*origin, &hops[..]))
    }

    fn learnt(&self, to: RouteTo) -> Option<Route> {
        self.learnt.route(to, |route| self.leads(route))
    }
}

/// The destinations to which own addresses lead.
fn own_destinations(host: &Host) -> BTreeSet<RouteTo> {
    let v4 = host.own_destinations().into_iter().map(RouteTo::V4);
    v4.chain(host.own_destinations6().into_iter().map(RouteTo::V6)).collect()
}

/// Drops of one owner by reason.
pub(crate) fn reasons(sums: &CounterSums, owner: CounterOwner) -> Vec<(String, u64)> {
    sums.of(owner).iter().map(|(reason, count)| (reason.to_string(), *count)).collect()
}

/// A handler's table record: its id, and its position in words.
fn attachment_record(id: AttachmentId, of: &Attachment) -> records::Attachment {
    records::Attachment {
        handler: Name::new(&id.0.to_string()).unwrap_or_default(),
        layer: Name::new(&of.at.to_string()).unwrap_or_default(),
        link: of.link.map(|link| link.0),
        position: id.0,
        side: of.side as u16,
        place: of.place as u16,
    }
}
