//! Start of a gateway from its setup: workers open their links, as the frames live there.

use crate::{
    control::{Control, Origin, Other},
    group::{FIRST, Slot, WorkerGroup},
    kernel::{self, News, follow},
    neighbours::Neighbourhood,
    planes::PlanesError,
    reopen::Closed,
    setup::{DeviceSetup, LinkSetup, Setup, WORKERS_MAX},
    shares::{Downs, share_of, shares},
    sojourn::Sojourn,
    tagged::{self, Tagged},
    worker::{Command, Pace, Waker, Worker},
    workers::{WorkerHandle, Workers},
};
use gatewright_link::{
    Division, Link, LinkConfig, LinkInfo, OpenError, Opener, Share, Shares, frame_len_max,
};
use gatewright_packet::{CHUNK_SIZE_DATAGRAM, LinkIndex, Pool};
use gatewright_stack::{
    Address, AddressState, Drops, Event, Graph, Host, Interface, KeptNeighbours, LinkNeighbours,
    Plan, Sockets, Suite, UsedNeighbours, View, VlanCounters, VlanLink, Wake, assemble_transit,
    assemble_within,
};
use gatewright_tables::{
    Map, MapWriter,
    records::{Neighbour, NeighbourKey},
};
use gatewright_wire::MacAddress;
use std::{
    net::{IpAddr, Ipv6Addr},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    time::Instant,
};

/// Chunks for whole datagrams: reassembled ones, and copies for sockets.
const DATAGRAMS: usize = 64;

/// Maximum events queued for the control side.
const EVENTS_MAX: usize = 1024;

/// A gateway with running workers.
pub(crate) struct Started {
    pub(crate) control: Control,
    pub(crate) workers: Workers,
    pub(crate) events: Receiver<Event>,
    pub(crate) sockets: Sockets,
    /// Receives the kernel's changes, where links are shared with it.
    pub(crate) news: Option<News>,
}

/// A worker's report when its links are open.
struct Opened {
    plan: Plan,
    sockets: Sockets,
    /// The links that it has.
    links: Vec<(LinkIndex, LinkInfo)>,
    drops: Vec<Drops>,
    graph_drops: Drops,
}

/// The input of a starting worker.
struct Order {
    setup: Setup,
    slot: Slot,
    split: Split,
    /// The plan of the first worker, for the others.
    plan: Option<Plan>,
    view: View,
    learnt: Option<MapWriter<NeighbourKey, Neighbour>>,
    permanent: Map<NeighbourKey, Neighbour>,
    /// The first worker's table of neighbours.
    kept: Map<NeighbourKey, Neighbour>,
    division: Option<Arc<Division>>,
    commands: Receiver<Command>,
    events: SyncSender<Event>,
    waker: Arc<Waker>,
    sojourn: Arc<Sojourn>,
    epoch: Instant,
    opened: SyncSender<Result<Opened, PlanesError>>,
}

/// The division of links among workers.
#[derive(Clone)]
struct Split {
    /// The number of receiving workers, by link.
    shares: Vec<usize>,
    /// State that the shares have in common.
    opened: Shares,
    downs: Downs,
}

impl Split {
    fn new(setup: &Setup) -> Result<Self, PlanesError> {
        let of = |link: &LinkSetup| {
            let failed = |source| PlanesError::Link { name: link.name.clone(), source };
            shares(link, setup.workers).map_err(failed)
        };
        let shares = setup.links.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let downs = Downs::new(setup.links.len());
        Ok(Self { shares, opened: Shares::default(), downs })
    }
}

/// Opens a gateway.
pub(crate) fn start(setup: &Setup) -> Result<Started, PlanesError> {
    refuse_mixed(setup)?;
    if !(1..=WORKERS_MAX).contains(&setup.workers) {
        return Err(PlanesError::Workers(setup.workers));
    }
    let mut host = Host::with_random(setup.routes_max, seeds(setup.seed))?;
    let division = kernel::division(setup)?;
    let (events, learnt) = sync_channel(EVENTS_MAX);
    let split = Split::new(setup)?;
    let (workers, opened) = start_workers(setup, &split, &mut host, division.as_ref(), &events)?;
    drop(events);
    let mut opened = opened.into_iter();
    let first = opened.next().ok_or(PlanesError::Ended)?;
    let mut links = first.links;
    let mut others = Vec::new();
    for Opened { plan, links: more, drops, graph_drops, .. } in opened {
        links.extend(more);
        others.push(Other { plan, drops, graph_drops });
    }
    let links = infos(setup, &links)?;
    furnish(&mut host, setup, &links)?;
    let commands = workers.commands_of_first()?;
    let followed = division.map(|division| follow(setup, division, &mut host, commands));
    let (kernel, news) = followed.transpose()?.unzip();
    workers.wake();
    let names = setup.links.iter().map(|link| link.name.clone());
    let links = names.zip(links).collect();
    let Opened { plan, sockets, drops, graph_drops, .. } = first;
    let mut control = Control::new(host, plan, links, drops, graph_drops, others);
    (control.kernel, control.downs) = (kernel, split.downs);
    for route in &setup.routes {
        control.add_static(*route, Origin::Configured)?;
    }
    Ok(Started { control, workers, events: learnt, sockets, news })
}

/// Starts the workers, the first before the others, which take its plan; returns their reports in
/// order. If one fails, none runs.
fn start_workers(
    setup: &Setup,
    split: &Split,
    host: &mut Host,
    division: Option<&Arc<Division>>,
    events: &SyncSender<Event>,
) -> Result<(Workers, Vec<Opened>), PlanesError> {
    let chunk_size = chunk_size(setup)?;
    let waker = |_| {
        let made = Waker::new().map(Arc::new);
        made.map_err(|errno| system("make an eventfd")(errno.into()))
    };
    let wakers: Vec<_> = (0..setup.workers).map(waker).collect::<Result<_, _>>()?;
    let sojourn = Arc::new(Sojourn::default());
    let mut workers = Workers::new(Arc::clone(&sojourn));
    let (epoch, mut told): (_, Vec<Opened>) = (Instant::now(), Vec::new());
    for (slot, waker) in Slot::all(&wakers).into_iter().zip(wakers) {
        let is_first = slot.own == FIRST;
        let (commands, orders) = channel();
        let (opened, answer) = sync_channel(1);
        let handled = slot.handled.clone();
        let order = Order {
            setup: Setup { chunk_size, ..setup.clone() },
            slot,
            split: split.clone(),
            plan: told.first().map(|first| first.plan.part()),
            view: host.view(),
            learnt: if is_first { host.take_neighbours() } else { None },
            permanent: host.tables().permanent,
            kept: host.tables().neighbours,
            division: division.map(Arc::clone),
            commands: orders,
            events: events.clone(),
            waker: Arc::clone(&waker),
            sojourn: if is_first { Arc::clone(&sojourn) } else { sojourn.part() },
            epoch,
            opened,
        };
        let name = if is_first { "worker".to_owned() } else { format!("worker-{}", told.len()) };
        let thread = std::thread::Builder::new().name(name).spawn(move || work(order));
        let thread = Some(thread.map_err(system("start a thread"))?);
        workers.add(WorkerHandle { commands, waker, handled, thread });
        told.push(answer.recv().map_err(|_| PlanesError::Ended)??);
    }
    Ok((workers, told))
}

/// Octets of a chunk that holds the frames of every link.
fn chunk_size(setup: &Setup) -> Result<usize, PlanesError> {
    let needed = |link: &LinkSetup| {
        let len = match &link.device {
            DeviceSetup::Interface(device) => frame_len_max(&device.interface),
            DeviceSetup::Tap(device) => Ok(device.frame_len_max()),
            DeviceSetup::Vlan(_) | DeviceSetup::Spare(_) => Ok(0),
        };
        let failed = |source| PlanesError::Link { name: link.name.clone(), source };
        len.map(Pool::chunk_size_for).map_err(failed)
    };
    let all = setup.links.iter().map(needed).collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().fold(setup.chunk_size, usize::max).min(CHUNK_SIZE_DATAGRAM))
}

fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> PlanesError {
    move |source| PlanesError::System { action, source }
}

/// Two seeds for the tables; neither reveals the layers' randomness, which begins with `seed`
/// itself.
const fn seeds(seed: u64) -> [u64; 2] {
    // Odd constants of SplitMix64 (Steele, Lea, Flood 2014): each number of 64 bits becomes another.
    [seed.wrapping_mul(0xbf58_476d_1ce4_e5b9), seed.wrapping_mul(0x94d0_49bb_1331_11eb)]
}

/// Refuses links that are shared with the kernel beside others.
fn refuse_mixed(setup: &Setup) -> Result<(), PlanesError> {
    let shared = setup.links.iter().find(|link| link.is_shared());
    let other = setup.links.iter().find(|link| !link.is_shared());
    if let (Some(shared), Some(other)) = (shared, other) {
        let (shared, other) = (shared.name.clone(), other.name.clone());
        return Err(PlanesError::Mixed { shared, other });
    }
    Ok(())
}

/// A worker's thread: opens everything, reports it, and runs.
fn work(order: Order) {
    let opened = order.opened.clone();
    match build(order) {
        Ok((worker, told)) => {
            if opened.send(Ok(told)).is_ok() {
                drop(opened);
                worker.run();
            }
        }
        Err(error) => {
            // The other side waits for just this.
            let _gone = opened.send(Err(error));
        }
    }
}

/// Opens a link.
pub(crate) fn open(
    opener: &Opener,
    device: &DeviceSetup,
    share: Share,
) -> Result<Box<dyn Link>, OpenError> {
    match device {
        DeviceSetup::Interface(device) => opener.open(&LinkConfig { share, ..device.clone() }),
        DeviceSetup::Tap(device) => opener.open_tap(device),
        DeviceSetup::Vlan(vlan) => {
            let (name, reason) = (format!("VLAN {}", vlan.id), "it has no device".to_owned());
            Err(OpenError::Unsupported { name, reason })
        }
        DeviceSetup::Spare(_) => Ok(Box::new(Closed::spare())),
    }
}

/// Opens all devices of a worker's links, interfaces together: the kernel takes milliseconds for
/// each, and can open them at the same time.
fn open_all(
    opener: &Opener,
    setups: &[(&LinkSetup, Share)],
) -> Result<Vec<Box<dyn Link>>, PlanesError> {
    let interfaces: Vec<_> = (setups.iter())
        .filter_map(|(link, share)| match &link.device {
            DeviceSetup::Interface(config) => Some(LinkConfig { share: *share, ..config.clone() }),
            DeviceSetup::Tap(_) | DeviceSetup::Vlan(_) | DeviceSetup::Spare(_) => None,
        })
        .collect();
    let failed = |index: LinkIndex, source| {
        let link = setups.iter().find(|(link, _)| link.device.index() == index);
        let name = link.map_or_else(String::new, |(link, _)| link.name.clone());
        PlanesError::Link { name, source }
    };
    let opened = opener.open_all(&interfaces).map_err(|(index, source)| failed(index, source))?;
    let mut opened = opened.into_iter();
    let links = setups.iter().filter_map(|(link, _)| match &link.device {
        DeviceSetup::Interface(_) => opened.next().map(Ok),
        DeviceSetup::Tap(device) => {
            Some(opener.open_tap(device).map_err(|source| failed(device.index, source)))
        }
        DeviceSetup::Spare(_) => Some(Ok(Box::new(Closed::spare()) as Box<dyn Link>)),
        DeviceSetup::Vlan(_) => None,
    });
    links.collect()
}

/// Opens a worker's links and prepares it to run.
fn build(order: Order) -> Result<(Worker, Opened), PlanesError> {
    let Order { setup, slot, split, view, .. } = order;
    let (own, several) = (slot.own, slot.workers() > 1);
    let frames = Rc::new(Pool::new(setup.frames, setup.chunk_size)?);
    let datagrams = Rc::new(Pool::new(DATAGRAMS, CHUNK_SIZE_DATAGRAM)?);
    let opener = Opener::new(Rc::clone(&frames)).beside(split.opened);
    let opener = match order.division {
        Some(division) => opener.divided(division),
        None => opener,
    };
    let of_link = |(link, &shares): (&LinkSetup, &usize)| {
        share_of(link.device.index(), own, slot.workers(), shares)
    };
    let all = || setup.links.iter().zip(&split.shares);
    let away: Vec<bool> =
        all().map(|link| link.0.device.is_device() && of_link(link).is_none()).collect();
    let mine: Vec<_> = (all().filter(|(link, _)| link.device.is_device()))
        .filter_map(|link| Some((link.0, of_link(link)?)))
        .collect();
    let opened = open_all(&opener, &mine)?;
    let Suite { plan, layers, sockets, neighbours, vlans, .. } = suite(&setup, own, &order.waker);
    let plan = order.plan.unwrap_or(plan);
    let graph = Graph::new(layers, plan.wire(&[])?, view, frames, datagrams);
    let used = UsedNeighbours::default();
    if own != FIRST {
        follow_first(&neighbours, &order.kept, &used);
    }
    let mut group = several.then(|| slot.take(setup.links.len(), used, graph.drops()));
    for ((link, _), opened) in mine.iter().zip(&opened) {
        if let Some(group) = &mut group {
            group.set_receivers(link.device.index(), opened.info().receivers);
        }
    }
    let told = Opened {
        sockets,
        links: (mine.iter().zip(&opened))
            .filter(|((_, share), _)| share.number == 0)
            .map(|((link, _), opened)| (link.device.index(), opened.info().clone()))
            .collect(),
        drops: plan.layers().filter_map(|(node, ..)| graph.drops_of(node)).collect(),
        graph_drops: graph.drops(),
        plan,
    };
    let links = all_links(opened, &setup, (&away, &split.shares), &vlans, group.as_ref());
    let worker = Worker {
        opener,
        drops: graph.drops(),
        graph,
        neighbours: Neighbourhood::new(neighbours, order.learnt, order.permanent),
        epoch: order.epoch,
        pace: Pace { spin: setup.spin },
        commands: order.commands,
        events: order.events,
        waker: order.waker,
        sojourn: order.sojourn,
        up: vec![true; links.len()],
        devices: links.iter().map(|link| (link.info().mac, link.info().mtu)).collect(),
        downs: split.downs,
        own,
        tracing: None,
        closed: vec![false; links.len()],
        group,
        away: if several { away } else { Vec::new() },
        links,
    };
    Ok((worker, told))
}

/// The layers of a worker: the first has all of them.
fn suite(setup: &Setup, own: usize, waker: &Arc<Waker>) -> Suite {
    let links: Vec<_> = setup.links.iter().map(|link| link.device.in_suite()).collect();
    if own == FIRST {
        let wake: Arc<dyn Wake> = Arc::<Waker>::clone(waker);
        assemble_within(&links, wake, setup.seed, setup.neighbours)
    } else {
        assemble_transit(&links, setup.seed.wrapping_add(own as u64))
    }
}

/// Makes the caches of a further worker look neighbours up in the first worker's table.
fn follow_first(
    caches: &[LinkNeighbours],
    kept: &Map<NeighbourKey, Neighbour>,
    used: &UsedNeighbours,
) {
    for of in caches {
        for cache in [&of.v4, &of.v6] {
            cache.borrow_mut().follow(KeptNeighbours::new(kept.clone(), of.link, used.clone()));
        }
    }
}

/// All links of a gateway in order: those opened here, the ends of those that other workers have,
/// and the VLANs. Each worker counts its part of a VLAN.
fn all_links(
    opened: Vec<Box<dyn Link>>,
    setup: &Setup,
    (away, shares): (&[bool], &[usize]),
    vlans: &[(VlanLink, VlanCounters)],
    group: Option<&WorkerGroup>,
) -> Vec<Box<dyn Link>> {
    let mut opened = opened.into_iter();
    let link = |(link, (away, shares)): (&LinkSetup, (&bool, &usize))| -> Option<Box<dyn Link>> {
        match (&link.device, group) {
            (DeviceSetup::Vlan(vlan), _) => {
                let (_, counters) = vlans.iter().find(|(known, _)| known == vlan)?;
                Some(Box::new(Tagged::new(counters.clone())))
            }
            (_, Some(group)) if *away => Some(Box::new(group.away(link.device.index(), *shares))),
            _ => opened.next(),
        }
    };
    setup.links.iter().zip(away.iter().zip(shares)).filter_map(link).collect()
}

/// The properties of all links in order: the opened devices, and the VLANs on them.
fn infos(setup: &Setup, opened: &[(LinkIndex, LinkInfo)]) -> Result<Vec<LinkInfo>, PlanesError> {
    let device = |link| opened.iter().find(|(known, _)| *known == link).map(|(_, info)| info);
    let info = |link: &LinkSetup| {
        let DeviceSetup::Vlan(vlan) = link.device else {
            return device(link.device.index()).cloned().ok_or(PlanesError::Ended);
        };
        let below = setup.links.iter().find(|below| below.device.index() == vlan.below);
        match below.zip(device(vlan.below)) {
            Some((below, device)) => Ok(tagged::info(vlan, below, device)),
            None => Err(PlanesError::NoTags { name: link.name.clone() }),
        }
    };
    setup.links.iter().map(info).collect()
}

/// Gives the host its interfaces and addresses.
fn furnish(host: &mut Host, setup: &Setup, infos: &[LinkInfo]) -> Result<(), PlanesError> {
    for (link, info) in setup.links.iter().zip(infos).filter(|(link, _)| !link.is_spare()) {
        host.add_interface(interface(link, info))?;
    }
    Ok(())
}

/// A link as the network layers see it.
pub(crate) fn interface(link: &LinkSetup, info: &LinkInfo) -> Interface {
    let mac = link.mac.or(info.mac).unwrap_or(MacAddress::ZERO);
    let device_mtu = u32::try_from(info.mtu).unwrap_or(u32::MAX);
    let configured = |&(ip, prefix_len): &(IpAddr, u8)| Address {
        ip,
        prefix_len,
        // Used at once, while neighbours are asked whether they have it too: transit does not wait
        // for address probing.
        state: AddressState::Preferred,
    };
    let mut addresses: Vec<Address> = link.addresses.iter().map(configured).collect();
    if !link.is_shared()
        && !addresses
            .iter()
            .any(|address| matches!(address.ip, IpAddr::V6(ip) if ip.is_unicast_link_local()))
    {
        let ip = link_local(mac).into();
        addresses.push(Address { ip, prefix_len: 64, state: AddressState::Preferred });
    }
    Interface {
        link: link.device.index(),
        name: link.name.clone(),
        mac,
        mtu: link.mtu.map_or(device_mtu, |mtu| mtu.min(device_mtu)),
        addresses,
        up: true,
        promiscuous: link.device.promiscuous(),
        forwarding: link.forwarding,
        advertise: link.advertise.clone(),
        autoconfigure: link.autoconfigure,
        dhcp: link.dhcp,
        shared: link.is_shared(),
    }
}

/// The link-local address formed from a hardware address (RFC 4291 appendix A, RFC 2464 §5).
fn link_local(mac: MacAddress) -> Ipv6Addr {
    let interface = u64::from_be_bytes(mac.interface_identifier());
    Ipv6Addr::from_bits(0xfe80_u128 << 112 | u128::from(interface))
}
