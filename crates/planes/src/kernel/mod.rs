//! Links shared with the kernel: the gateway follows the kernel's addresses, routes and neighbours.
//!
//! A thread receives changes by rtnetlink and keeps a [`Mirror`] of them. It carries routes and
//! addresses to the host's tables, and neighbours to the worker. It tells the kernel's side of the
//! links ([`Division`]) which destinations are forwarded here. A destination enters our tables
//! before its packets come here, and leaves them after they have stopped. If messages were lost for
//! lack of room, a full dump replaces the state as soon as the socket is empty.

mod message;
mod mirror;
mod socket;

use crate::{
    control::{Control, events},
    error::PlanesError,
    setup::{LinkSetup, RouteTo, Setup},
};
use gatewright_data::{DataError, DeviceSetup, NeighbourUpdate, PlanePort, Port, PortRequest};
use gatewright_link::Division;
use gatewright_packet::LinkIndex;
use gatewright_part::EventSink;
use gatewright_stack::{Host, HostError, Interface, LinkTag, VirtualLink, Wake};
use gatewright_tables::Prefix;
use message::{Destination, KernelMessage, KernelReachability};
pub(crate) use mirror::WayRoute;
use mirror::{LinkUnder, Mirror, Moved, Way};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};
use serde::Serialize;
pub(crate) use socket::News;
use socket::{Heard, NeighbourResolver};
use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Minimum time between two full dumps, so that a kernel whose tables are rebuilt is not asked all
/// the time.
const RENEW_EVERY: Duration = Duration::from_millis(100);

/// Datagrams of changes taken before they are acted upon.
const NEWS_AT_ONCE: usize = 256;

/// The kernel's side of a gateway whose links are shared, at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KernelStatus {
    /// Routes of the kernel that are known.
    pub routes: usize,
    /// Destinations that are forwarded here; the kernel forwards all others.
    pub forwarded: usize,
    /// Neighbours of the kernel that are known.
    pub neighbours: usize,
    /// Number of full dumps requested from the kernel.
    pub renewed: u64,
    /// Number of times that changes were lost because more came than fitted.
    pub overruns: u64,
    /// Whether the kernel has more routes than there is room for here; then it forwards everything.
    pub withdrawn: bool,
}

/// A way over links that are not shared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OwnWay {
    /// Our router's route.
    pub(crate) route: WayRoute,
    /// Whether a route of the kernel to the same destinations goes before it.
    pub(crate) yields: bool,
}

/// A way in force.
#[derive(Clone, Debug)]
struct PublishedWay {
    way: Way,
    /// Whether it is the kernel's.
    is_kernels: bool,
}

impl PublishedWay {
    /// Whether the kernel has it and packets are forwarded here.
    const fn is_forwarded(&self) -> bool {
        self.is_kernels && self.way.ours
    }
}

/// The control side's state for the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    mirror: Mirror,
    division: Arc<Division>,
    asker: NeighbourResolver,
    port: PlanePort,
    /// The largest MTU that each link is known to carry, which it will not exceed.
    mtus_max: Vec<(LinkIndex, u32)>,
    /// The ways in force: the kernel's, and those of links that are not shared.
    published: HashMap<Destination, PublishedWay>,
    /// Ways of links that are not shared.
    own: HashMap<Destination, OwnWay>,
    status: KernelStatus,
}

fn failed(action: &'static str) -> impl FnOnce(io::Error) -> PlanesError {
    move |source| PlanesError::Kernel { action, source }
}

/// The VLANs for which the kernel has an interface: the device below, and the tag.
///
/// # Errors
///
/// If the kernel cannot be asked.
pub fn kernel_vlans() -> io::Result<Vec<(String, u16)>> {
    let links: Vec<_> = (socket::links()?.into_iter())
        .filter_map(|message| match message {
            KernelMessage::Link(link) => Some(link),
            _ => None,
        })
        .collect();
    let device = |index| links.iter().find(|link| link.index == index);
    let vlans = links.iter().filter_map(|link| link.vlan.as_ref());
    Ok(vlans.filter_map(|vlan| Some((device(vlan.below)?.name.clone(), vlan.id))).collect())
}

/// The division of shared links with the kernel, if there are any.
pub(crate) fn division(setup: &Setup) -> Result<Option<Arc<Division>>, PlanesError> {
    if !setup.links.iter().any(LinkSetup::is_shared) {
        return Ok(None);
    }
    let division = Division::new(Division::prefixes_max(setup.routes_max));
    let failed = failed("make the table that divides links with the kernel, which needs CAP_BPF");
    Ok(Some(Arc::new(division.map_err(failed)?)))
}

/// The kernel's link under a shared one.
fn under(setup: &Setup, link: &LinkSetup) -> Option<LinkUnder> {
    let DeviceSetup::Virtual(VirtualLink { below, tag: LinkTag::Vlan(tag), .. }) = link.device
    else {
        return link.device.interface().map(|name| LinkUnder::Device(name.to_owned()));
    };
    let below = setup.links.iter().find(|known| known.device.index() == below)?;
    let device = below.device.interface()?.to_owned();
    Some(LinkUnder::Vlan { device, id: tag.id })
}

/// Starts to follow the kernel; its state is in the host when this returns. `own` are the ways of
/// links that are not shared, as far as they are known.
pub(crate) fn follow(
    setup: &Setup,
    (division, own): (Arc<Division>, Vec<(RouteTo, OwnWay)>),
    host: &mut Host,
    port: PlanePort,
) -> Result<(Kernel, News), PlanesError> {
    let asked = || failed("ask the kernel for its addresses and routes");
    let shared = setup.links.iter().filter(|link| link.is_shared());
    let devices = shared.filter_map(|link| Some((link.device.index(), under(setup, link)?)));
    // Listening before asking: nothing that changes meanwhile is missed.
    let news = News::open(setup.kernel_news_octets).map_err(asked())?;
    let mut kernel = Kernel {
        mirror: Mirror::new(devices.collect(), setup.routes_max),
        division,
        asker: NeighbourResolver::open().map_err(asked())?,
        port,
        mtus_max: host.interfaces().iter().map(|known| (known.link, known.mtu)).collect(),
        published: HashMap::new(),
        own: own.into_iter().map(|(to, way)| (destination(to), way)).collect(),
        status: KernelStatus::default(),
    };
    kernel.renew(socket::everything().map_err(asked())?, host);
    Ok((kernel, news))
}

impl Kernel {
    /// Sets or removes the way over links that are not shared to exactly `to`.
    ///
    /// # Errors
    ///
    /// [`HostError`] if a table is full; then the way is not in force.
    pub(crate) fn set_own(
        &mut self,
        to: RouteTo,
        way: Option<OwnWay>,
        host: &mut Host,
    ) -> Result<(), HostError> {
        let to = destination(to);
        match way {
            Some(way) => self.own.insert(to, way),
            None => self.own.remove(&to),
        };
        let settled = self.settle(to, host);
        if settled.is_err() {
            self.own.remove(&to);
        }
        settled
    }

    /// Whether the kernel has the route to exactly `to`, and none over other links goes before it.
    pub(crate) fn leads_to(&self, to: RouteTo) -> bool {
        self.is_kernels(&destination(to))
    }

    fn is_kernels(&self, to: &Destination) -> bool {
        self.own.get(to).is_none_or(|own| own.yields) && self.mirror.has(to)
    }

    /// Leaves to the kernel what an earlier data plane had, and nobody has now.
    pub(crate) fn forget_others(&self) -> Result<(), PlanesError> {
        let published = &self.published;
        let is_known = |address, len| published.contains_key(&Destination { address, len });
        self.division.retain(is_known).map_err(failed("divide links with the kernel"))
    }

    /// Takes over the kernel's full state.
    fn renew(&mut self, everything: Vec<KernelMessage>, host: &mut Host) {
        self.status.renewed += 1;
        self.mirror.renew(everything);
        self.status.withdrawn = false;
        self.publish(host);
    }

    /// Logs whether everything was left to the kernel, or is no longer, if that was otherwise before.
    pub(crate) fn report_withdrawal(&self, before: bool, log: &EventSink) {
        if self.status.withdrawn != before {
            log.log(events::withdrawal(self.status.withdrawn));
        }
    }

    /// The status at this moment.
    pub(crate) fn status(&self) -> KernelStatus {
        KernelStatus {
            routes: self.mirror.routes(),
            neighbours: self.mirror.neighbours(),
            ..self.status
        }
    }

    /// The VLANs that are links of the gateway, and for which the kernel has no interface.
    pub(crate) fn without_interface(&self) -> Vec<LinkIndex> {
        self.mirror.without_interface().collect()
    }

    /// The tag of a VLAN that is a link of the gateway.
    pub(crate) fn tag_of(&self, link: LinkIndex) -> Option<u16> {
        self.mirror.tag_of(link)
    }

    /// Whether everything is left to the kernel.
    pub(crate) const fn is_withdrawn(&self) -> bool {
        self.status.withdrawn
    }

    /// Asks the kernel to resolve a neighbour that the worker wants, unless it is fresh; tells the
    /// worker the known address.
    pub(crate) fn want(&self, link: LinkIndex, address: IpAddr) {
        let known = self.mirror.neighbour_of(link, address);
        if !matches!(known, Some(KernelReachability::Fresh(_)))
            && let Some(index) = self.mirror.kernel_link(link)
        {
            self.asker.use_neighbour(index, address);
        }
        if let Some(knowledge @ (KernelReachability::Fresh(_) | KernelReachability::Stale(_))) =
            known
        {
            self.tell(vec![update(Moved { link, address, knowledge })]);
        }
    }

    /// Takes the MTU that the data plane has found for a link: its buffers hold as much, and those of
    /// its VLANs do.
    pub(crate) fn carries(&mut self, links: &[LinkIndex], mtu: u32, host: &mut Host) {
        for (_, most) in self.mtus_max.iter_mut().filter(|(known, _)| links.contains(known)) {
            *most = mtu.max(*most);
        }
        // What the kernel has told may have been more than they held before.
        self.mirror.tell_links();
        self.publish_links(host);
    }

    fn tell(&self, updates: Vec<NeighbourUpdate>) {
        if !updates.is_empty() {
            // The worker has ended: then nobody needs neighbours.
            let _ended = self.port.submit(PortRequest::Neighbours(updates));
        }
    }

    /// Publishes changes of links to the host.
    fn publish_links(&mut self, host: &mut Host) {
        for link in self.mirror.without_interface() {
            let has_addresses = |own: &Interface| own.link == link && !own.addresses.is_empty();
            if host.interfaces().iter().any(has_addresses) {
                host.set_addresses(link, Vec::new());
            }
        }
        for (link, face) in self.mirror.changed_links() {
            let most = self.mtus_max.iter().find(|(known, _)| *known == link);
            let mtu = most.map_or(face.mtu, |(_, most)| face.mtu.min(*most));
            let known = host.interfaces().iter().find(|known| known.link == link);
            let address = known.map(|known| known.link_address).unwrap_or_default();
            let address = face.link_address.or(address);
            if known.is_some_and(|known| (known.mtu, known.link_address) != (mtu, address)) {
                host.change_interface(link, |interface| {
                    (interface.mtu, interface.link_address) = (mtu, address);
                });
            }
            host.set_addresses(link, face.addresses);
            host.leave_out(link, None, !face.carries);
        }
    }

    /// Publishes changes to the host, the worker and the division.
    fn publish(&mut self, host: &mut Host) {
        self.publish_links(host);
        for to in self.mirror.changed() {
            if self.settle(to, host).is_err() {
                self.withdraw();
            }
        }
        if self.mirror.is_overfull() {
            self.withdraw();
        }
        let moved = self.mirror.changed_neighbours();
        self.tell(moved.into_iter().map(update).collect());
    }

    /// The way to exactly `to`: over links that are not shared, or the kernel's.
    fn way(&self, to: Destination) -> Option<Way> {
        let own = self.own.get(&to);
        let ours = |own: &OwnWay| Way { route: own.route.clone(), ours: true };
        if let Some(own) = own.filter(|own| !own.yields) {
            return Some(ours(own));
        }
        let kernels = self.mirror.way(to);
        kernels
            .map(|way| Way { ours: way.ours && !self.status.withdrawn, ..way })
            .or_else(|| own.map(ours))
    }

    /// Puts the way to a destination in force.
    fn settle(&mut self, to: Destination, host: &mut Host) -> Result<(), HostError> {
        let is_kernels = self.is_kernels(&to);
        let Some(way) = self.way(to) else {
            if self.published.contains_key(&to) {
                self.divide(to, None)?;
                self.note(to, None);
                remove_route(host, to);
            }
            return Ok(());
        };
        let published = self.published.get(&to);
        if published.is_some_and(|known| known.way == way && known.is_kernels == is_kernels) {
            return Ok(());
        }
        if !way.ours {
            self.divide(to, Some(false))?;
        }
        let without_us = Way { ours: false, ..way.clone() };
        self.note(to, Some(PublishedWay { way: without_us, is_kernels }));
        add_route(host, to, &way)?;
        if way.ours {
            self.divide(to, Some(true))?;
            self.note(to, Some(PublishedWay { way, is_kernels }));
        }
        Ok(())
    }

    /// Notes the way in force, and counts those of the kernel that are forwarded here: there may be a
    /// million, so nobody goes through them to count them.
    fn note(&mut self, to: Destination, published: Option<PublishedWay>) {
        let is_forwarded = published.as_ref().is_some_and(PublishedWay::is_forwarded);
        let before = match published {
            Some(published) => self.published.insert(to, published),
            None => self.published.remove(&to),
        };
        self.status.forwarded += usize::from(is_forwarded);
        self.status.forwarded -= usize::from(before.is_some_and(|it| it.is_forwarded()));
    }

    /// Sets whether packets of shared links to `to` are ours, or lets shorter prefixes decide. Those
    /// that no router forwards are never ours.
    fn divide(&self, to: Destination, ours: Option<bool>) -> Result<(), HostError> {
        let Destination { address, len } = to;
        let divided = match ours {
            _ if !Division::may_be_ours(address) => return Ok(()),
            Some(ours) => self.division.set(address, len, ours),
            None => self.division.remove(address, len),
        };
        divided.map_err(|_| HostError::Division)
    }

    /// Leaves the kernel's destinations to the kernel: a table that lacks a route would misroute
    /// packets. Those of links that are not shared stay, as the kernel does not reach them.
    fn withdraw(&mut self) {
        self.status.withdrawn = true;
        let Self { published, own, division, .. } = self;
        let is_own = |to: &Destination| own.get(to).is_some_and(|own| !own.yields);
        for (to, known) in published.iter_mut().filter(|(to, it)| it.way.ours && !is_own(to)) {
            known.way.ours = false;
            // It is there, so that there is room for it.
            let _known = division.set(to.address, to.len, false);
        }
        self.status.forwarded = published.values().filter(|it| it.is_forwarded()).count();
    }
}

/// The destinations of a route, as the kernel's routes have them.
fn destination(to: RouteTo) -> Destination {
    match to {
        RouteTo::V4(to) => Destination { address: to.address().into(), len: to.len() },
        RouteTo::V6(to) => Destination { address: to.address().into(), len: to.len() },
    }
}

/// Adds a route; drivers take only one whose packets are ours.
fn add_route(host: &mut Host, to: Destination, way: &Way) -> Result<(), HostError> {
    let add = if way.ours { Host::add_route } else { Host::add_route_unfollowed };
    let add6 = if way.ours { Host::add_route6 } else { Host::add_route6_unfollowed };
    let route = match &way.route {
        WayRoute::One(route) => *route,
        WayRoute::Several(hops) => host.route_by(hops)?,
    };
    match to.address {
        IpAddr::V4(ip) => Prefix::new(ip, to.len).map_or(Ok(()), |to| add(host, to, route)),
        IpAddr::V6(ip) => Prefix::new(ip, to.len).map_or(Ok(()), |to| add6(host, to, route)),
    }
}

fn remove_route(host: &mut Host, to: Destination) {
    match to.address {
        IpAddr::V4(ip) => Prefix::new(ip, to.len).into_iter().for_each(|to| host.remove_route(to)),
        IpAddr::V6(ip) => Prefix::new(ip, to.len).into_iter().for_each(|to| host.remove_route6(to)),
    }
}

fn update(Moved { link, address, knowledge }: Moved) -> NeighbourUpdate {
    let station = match knowledge {
        KernelReachability::Fresh(station) => Some((station, true)),
        KernelReachability::Stale(station) => Some((station, false)),
        KernelReachability::Asking | KernelReachability::Gone => None,
    };
    NeighbourUpdate { link, address, station }
}

/// Follows the kernel on a thread of its own until it is dropped.
#[derive(Debug)]
pub(crate) struct Follower {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(crate) fn start(
        news: News,
        control: Arc<Mutex<Control>>,
        wake: Arc<dyn Wake>,
    ) -> Result<Self, PlanesError> {
        let system = |action| move |source| DataError::System { action, source };
        let stop = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let stop = Arc::new(stop.map_err(|errno| system("make an eventfd")(errno.into()))?);
        let stopped = Arc::clone(&stop);
        let run = move || Following::new(news, control, wake).run(&stopped);
        let thread = std::thread::Builder::new().name("kernel".to_owned()).spawn(run);
        Ok(Self { stop, thread: Some(thread.map_err(system("start a thread"))?) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The counter is only full if it was told already.
        let _full = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// State of the thread.
struct Following {
    news: News,
    control: Arc<Mutex<Control>>,
    wake: Arc<dyn Wake>,
    renewed_at: Instant,
    /// Whether changes were lost and the socket has not been empty since. The kernel queues nothing
    /// more until it is, and does not say that it lost more: what a dump told meanwhile would stay
    /// without the changes behind it.
    lacks: bool,
}

impl Following {
    fn new(news: News, control: Arc<Mutex<Control>>, wake: Arc<dyn Wake>) -> Self {
        Self { news, control, wake, renewed_at: Instant::now(), lacks: false }
    }

    fn run(mut self, stop: &EventFd) {
        loop {
            let doubtful = self.take_news();
            let patience = doubtful.then(|| self.renew());
            let patience = patience.map_or(PollTimeout::NONE, |patience| {
                PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX)
            });
            let mut waiting = [
                PollFd::new(self.news.fd(), PollFlags::POLLIN),
                PollFd::new(stop.as_fd(), PollFlags::POLLIN),
            ];
            // A signal is a reason to look again.
            let _interrupted = poll(&mut waiting, patience);
            let [_, stop] = &waiting;
            if stop.any().unwrap_or(true) {
                return;
            }
        }
    }

    /// Takes pending changes; returns whether a full dump is needed now.
    fn take_news(&mut self) -> bool {
        let (mut messages, mut overruns) = (Vec::new(), 0);
        for _ in 0..NEWS_AT_ONCE {
            match self.news.hear() {
                // A dump will tell them.
                Ok(Heard::Messages(_)) if self.lacks => {}
                Ok(Heard::Messages(heard)) => messages.extend(heard),
                Ok(Heard::Overrun) => {
                    messages.clear();
                    (self.lacks, overruns) = (true, overruns + 1);
                }
                // A socket that fails tells nothing more: asking is as good.
                Ok(Heard::Nothing) | Err(_) => {
                    self.lacks = false;
                    break;
                }
            }
        }
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let Control { kernel: Some(kernel), host, log, .. } = &mut *control else { return false };
        kernel.status.overruns += overruns;
        if overruns > 0 {
            log.log(events::overrun(overruns));
            kernel.mirror.doubt();
        }
        if !messages.is_empty() {
            let withdrawn = kernel.status.withdrawn;
            kernel.mirror.hear(messages);
            kernel.publish(host);
            kernel.report_withdrawal(withdrawn, log);
            self.wake.wake();
        }
        let is_doubtful = kernel.mirror.is_doubtful();
        control.report_without_interface();
        control.publish_to_drivers();
        is_doubtful && !self.lacks
    }

    /// Requests a full dump, unless one was made just now; returns the longest time to wait.
    fn renew(&mut self) -> Duration {
        let rest = RENEW_EVERY.saturating_sub(self.renewed_at.elapsed());
        if !rest.is_zero() {
            return rest;
        }
        self.renewed_at = Instant::now();
        let Ok(everything) = socket::everything() else { return RENEW_EVERY };
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Control { kernel: Some(kernel), host, log, .. } = &mut *control {
            let withdrawn = kernel.status.withdrawn;
            kernel.renew(everything, host);
            kernel.report_withdrawal(withdrawn, log);
            self.wake.wake();
        }
        control.report_without_interface();
        control.publish_to_drivers();
        // There may be more news behind this.
        Duration::ZERO
    }
}
