//! Start of the workers: each opens its links on its thread, as the frames live there.

use crate::{
    clock::Clock,
    closed::Closed,
    driver_buckets::DriverBuckets,
    error::DataError,
    events::{EventQueue, EventSender},
    front::Front,
    group::{FIRST, WorkerGroup, WorkerSlot},
    link_counts::LinkCounts,
    neighbours::Neighbourhood,
    reopen::Devices,
    setup::{DataSetup, DeviceSetup, WorkerLink},
    shares::{share_of, shares},
    virtual_link::WithoutDevice,
    waker::Waker,
    worker::{Command, Due, Pace, Worker},
    workers::{Hand, WorkerThread, Workers},
};
use gatewright_link::{
    Framing, KernelTables, Link, LinkConfig, LinkInfo, Opener, Preparer, Segments, Share, Shares,
    frame_len_max,
};
use gatewright_packet::{CHUNK_SIZE_DATAGRAM, LinkIndex, Pool};
use gatewright_stack::{
    Graph, Host, KeptNeighbours, LinkNeighbours, Plan, Sockets, Suite, UsedNeighbours, View,
    VirtualLink, VirtualLinkCounters, Wake, assemble_transit, assemble_within,
};
use gatewright_tables::{
    CounterSlots, CountersFull, DataTables, DownShares, Map, MapWriter, WakeFlags, Wakers,
    WorkerHistogram,
    records::{Neighbour, NeighbourKey},
};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    unistd::Pid,
};
use std::{
    rc::Rc,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    time::Duration,
};

/// Chunks for whole datagrams: reassembled ones, and copies for sockets.
const DATAGRAMS: usize = 64;

/// Running workers.
pub struct Started {
    /// The workers.
    pub workers: Workers,
    /// Their reports, in order.
    pub opened: Vec<Opened>,
    /// What layers and links tell.
    pub events: EventQueue,
}

/// A worker's report when its links are open.
pub struct Opened {
    /// The plan of its layers.
    pub plan: Plan,
    /// The sockets of its stack.
    pub sockets: Sockets,
    /// The links that it has.
    pub links: Vec<(LinkIndex, LinkInfo)>,
    /// Opens devices for it.
    preparer: Preparer,
}

/// The input of a starting worker.
pub(crate) struct Order {
    setup: DataSetup,
    slot: WorkerSlot,
    split: Split,
    counters: CounterSlots,
    /// The plan of the first worker, for the others.
    plan: Option<Plan>,
    view: View,
    learnt: Option<MapWriter<NeighbourKey, Neighbour>>,
    permanent: Map<NeighbourKey, Neighbour>,
    /// The first worker's table of neighbours.
    kept: Map<NeighbourKey, Neighbour>,
    kernel: KernelTables,
    commands: Receiver<Command>,
    events: EventSender,
    waker: Waker,
    sojourn: WorkerHistogram,
    downs: DownShares,
    clock: Clock,
}

/// The division of links among workers.
#[derive(Clone)]
struct Split {
    /// The number of receiving workers, by link.
    shares: Vec<usize>,
    /// State that the shares have in common.
    opened: Shares,
}

impl Split {
    fn new(setup: &DataSetup) -> Result<Self, DataError> {
        let of = |link: &WorkerLink| {
            let failed = |source| DataError::Link { name: link.name.clone(), source };
            shares(link, setup.workers).map_err(failed)
        };
        let shares = setup.links.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { shares, opened: Shares::default() })
    }
}

/// The inputs of all workers, the first before the others, which take its plan.
pub(crate) struct Orders<'a> {
    setup: DataSetup,
    split: Split,
    kernel: &'a KernelTables,
    tables: DataTables,
    /// Wakes whoever reads the workers' events.
    event_reader: Waker,
    clock: Clock,
    waiting: std::vec::IntoIter<(WorkerSlot, Waker)>,
}

impl<'a> Orders<'a> {
    pub(crate) fn new(
        setup: &DataSetup,
        tables: DataTables,
        (event_reader, wakers): (&Waker, Vec<Waker>),
        kernel: &'a KernelTables,
        clock: Clock,
    ) -> Result<Self, DataError> {
        let split = Split::new(setup)?;
        let setup = DataSetup { chunk_size: chunk_size(setup)?, ..setup.clone() };
        let waiting: Vec<_> =
            WorkerSlot::all(&wakers, &tables.counters)?.into_iter().zip(wakers).collect();
        let (event_reader, waiting) = (event_reader.clone(), waiting.into_iter());
        Ok(Self { setup, split, kernel, tables, event_reader, clock, waiting })
    }

    /// The input of the next worker, and what it takes to reach it; `first` is the report of the
    /// first worker, if there is one.
    pub(crate) fn next(&mut self, first: Option<&Opened>) -> Option<(Order, NewHand)> {
        let (slot, waker) = self.waiting.next()?;
        let is_first = slot.own == FIRST;
        let (commands, orders) = channel();
        let (tables, own) = (&mut self.tables, slot.own);
        let counters = tables.counters.clone();
        let hand = NewHand { commands, waker: waker.clone(), counters: counters.clone(), own };
        let order = Order {
            setup: self.setup.clone(),
            slot,
            split: self.split.clone(),
            counters,
            plan: first.map(|first| first.plan.clone()),
            view: View::of(tables.readers.clone()),
            learnt: if is_first { tables.neighbours.take() } else { None },
            permanent: tables.readers.permanent.clone(),
            kept: tables.readers.neighbours.clone(),
            kernel: self.kernel.clone(),
            commands: orders,
            events: EventSender::new(tables.events(own), self.event_reader.clone()),
            waker,
            sojourn: tables.sojourn(own),
            downs: tables.downs.clone(),
            clock: self.clock.clone(),
        };
        Some((order, hand))
    }
}

/// What it takes to reach a worker that has not opened its links yet.
pub(crate) struct NewHand {
    commands: Sender<Command>,
    waker: Waker,
    counters: CounterSlots,
    own: usize,
}

impl NewHand {
    pub(crate) fn with(self, preparer: Preparer) -> Hand {
        let Self { commands, waker, counters, own } = self;
        Hand { commands, waker, counters, own, preparer }
    }
}

impl Opened {
    pub(crate) fn preparer(&self) -> Preparer {
        self.preparer.clone()
    }
}

/// Starts the workers on threads; returns their reports in order. If one fails, none runs.
///
/// # Errors
///
/// [`DataError`] names the link or resource that failed.
pub fn start(
    setup: &DataSetup,
    host: &mut Host,
    kernel: &KernelTables,
    clock: Clock,
) -> Result<Started, DataError> {
    let events = event_queue(setup, host)?;
    let tables = host.tables_mut().data();
    let wakers = worker_wakers(setup, &tables.wakers)?;
    let (workers, opened) = start_on(setup, tables, (events.waker(), wakers), kernel, clock)?;
    Ok(Started { workers, opened, events })
}

/// The queue of the workers' events.
pub(crate) fn event_queue(setup: &DataSetup, host: &mut Host) -> Result<EventQueue, DataError> {
    let tables = host.tables_mut();
    let waker = waker(tables.event_reader())?;
    Ok(EventQueue::new(tables.events(setup.workers), waker))
}

/// A waker for these flags, with an eventfd of its own.
pub(crate) fn waker(flags: WakeFlags) -> Result<Waker, DataError> {
    // An earlier data plane of this region may have been told to stop.
    flags.reset();
    Waker::new(flags).map_err(|errno| system("make an eventfd")(errno.into()))
}

/// Wakers for all workers, each with an eventfd of its own.
pub(crate) fn worker_wakers(setup: &DataSetup, of: &Wakers) -> Result<Vec<Waker>, DataError> {
    // Without flags in the region there is no room for the worker's counters either.
    (0..setup.workers).map(|worker| waker(of.of(worker).unwrap_or_default())).collect()
}

/// Starts the workers on threads over `tables`. `wakers` are that of whoever reads their events, and
/// their own.
pub(crate) fn start_on(
    setup: &DataSetup,
    tables: DataTables,
    wakers: (&Waker, Vec<Waker>),
    kernel: &KernelTables,
    clock: Clock,
) -> Result<(Workers, Vec<Opened>), DataError> {
    let (counters, sojourns) = (tables.counters.clone(), tables.readers.sojourns.clone());
    let buckets = DriverBuckets::from(&kernel.forwarding);
    tables.downs.clear();
    let mut orders = Orders::new(setup, tables, wakers, kernel, clock)?;
    let devices = Devices::start().map_err(system("start a thread"))?;
    let (mut hands, mut threads, mut told): (_, _, Vec<Opened>) =
        (Vec::new(), Vec::new(), Vec::new());
    while let Some((order, hand)) = orders.next(told.first()) {
        let (opened, answer) = sync_channel(1);
        let number = told.len();
        let name = if number == FIRST { "worker".to_owned() } else { format!("worker-{number}") };
        let thread = std::thread::Builder::new().name(name).spawn(move || work(order, opened));
        let thread = Some(thread.map_err(system("start a thread"))?);
        threads.push(WorkerThread::new(hand.waker.clone(), thread));
        let opened = answer.recv().map_err(|_| DataError::Ended)??;
        hands.push(hand.with(opened.preparer()));
        told.push(opened);
    }
    let plans = told.iter().map(|opened| opened.plan.clone()).collect();
    let front = Front::new(hands, plans, counters, buckets);
    Ok((Workers::new(front, devices, threads, sojourns), told))
}

/// Octets of a chunk that holds the frames of every link.
fn chunk_size(setup: &DataSetup) -> Result<usize, DataError> {
    let needed = |link: &WorkerLink| {
        let len = match &link.device {
            DeviceSetup::Interface(device) => frame_len_max(&device.interface),
            DeviceSetup::Tap(device) => Ok(device.frame_len_max()),
            DeviceSetup::Capture(device) => Ok(device.mtu + device.framing.header_len_max()),
            DeviceSetup::Dpdk(device) => Ok(device.mtu + Framing::Ethernet.header_len_max()),
            DeviceSetup::Segment(device) => Ok(device.mtu + Framing::Ethernet.header_len_max()),
            DeviceSetup::Virtual(_) | DeviceSetup::Spare(_) => Ok(0),
        };
        let failed = |source| DataError::Link { name: link.name.clone(), source };
        len.map(Pool::chunk_size_for).map_err(failed)
    };
    let all = setup.links.iter().map(needed).collect::<Result<Vec<_>, _>>()?;
    Ok(all.into_iter().fold(setup.chunk_size, usize::max).min(CHUNK_SIZE_DATAGRAM))
}

fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> DataError {
    move |source| DataError::System { action, source }
}

/// A worker's thread: opens everything, reports it, and runs.
fn work(order: Order, opened: SyncSender<Result<Opened, DataError>>) {
    let bound = order.setup.cores.get(order.slot.own).map_or(Ok(()), |core| bind_to(*core));
    match bound.and_then(|()| build(order)) {
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

/// Binds the calling thread to a processor core.
fn bind_to(core: usize) -> Result<(), DataError> {
    let mut only = CpuSet::new();
    let bound = only.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only));
    bound.map_err(|errno| system("bind a worker to its core")(errno.into()))
}

/// Opens all devices of a worker's links, interfaces together: the kernel takes milliseconds for
/// each, and can open them at the same time.
fn open_all(
    opener: &Opener,
    segments: &Segments,
    setups: &[(&WorkerLink, Share)],
) -> Result<Vec<Box<dyn Link>>, DataError> {
    let interfaces: Vec<_> = (setups.iter())
        .filter_map(|(link, share)| match &link.device {
            DeviceSetup::Interface(config) => Some(LinkConfig { share: *share, ..config.clone() }),
            _ => None,
        })
        .collect();
    let failed = |index: LinkIndex, source| {
        let link = setups.iter().find(|(link, _)| link.device.index() == index);
        let name = link.map_or_else(String::new, |(link, _)| link.name.clone());
        DataError::Link { name, source }
    };
    let opened = opener.open_all(&interfaces).map_err(|(index, source)| failed(index, source))?;
    let mut opened = opened.into_iter();
    let links = setups.iter().filter_map(|(setup, _)| {
        let link: Result<Box<dyn Link>, _> = match &setup.device {
            DeviceSetup::Interface(_) => return opened.next().map(Ok),
            DeviceSetup::Virtual(_) => return None,
            DeviceSetup::Tap(device) => opener.open_tap(device),
            DeviceSetup::Capture(device) => opener.open_capture(device),
            DeviceSetup::Dpdk(device) => opener.open_dpdk(device),
            DeviceSetup::Segment(device) => {
                segments.open(device, opener.pool()).map(|link| Box::new(link) as Box<dyn Link>)
            }
            DeviceSetup::Spare(_) => Ok(Box::new(Closed::spare())),
        };
        Some(link.map_err(|source| failed(setup.device.index(), source)))
    });
    links.collect()
}

/// Opens a worker's links and prepares it to run.
pub(crate) fn build(order: Order) -> Result<(Worker, Opened), DataError> {
    let Order { setup, slot, split, view, .. } = order;
    let (own, several) = (slot.own, slot.workers() > 1);
    let of_link = |(link, &shares): (&WorkerLink, &usize)| {
        share_of(link.device.dealt_as(), own, slot.workers(), shares)
    };
    let all = || setup.links.iter().zip(&split.shares);
    let away: Vec<bool> =
        all().map(|link| link.0.device.is_device() && of_link(link).is_none()).collect();
    let mine: Vec<_> = (all().filter(|(link, _)| link.device.is_device()))
        .filter_map(|link| Some((link.0, of_link(link)?)))
        .collect();
    let parts: Vec<_> = mine.iter().map(|(link, share)| (link.device.index(), *share)).collect();
    let slab = order.kernel.devices.slab(&parts, (setup.frames, setup.chunk_size))?;
    let frames = Rc::new(Pool::over(slab));
    let datagrams = Rc::new(Pool::new(DATAGRAMS, CHUNK_SIZE_DATAGRAM)?);
    let opener = Opener::new(Rc::clone(&frames)).beside(split.opened).with_tables(order.kernel);
    let segments = Segments::default();
    let opened = open_all(&opener, &segments, &mine)?;
    let Suite { plan, layers, sockets, neighbours, virtual_links, .. } =
        suite(&setup, own, Arc::new(order.waker.clone()));
    let mut plan = order.plan.unwrap_or(plan);
    let worker = u16::try_from(own).unwrap_or(u16::MAX);
    // Before it is compiled, so that its wirings count in the table.
    plan.count_in(&order.counters, worker)?;
    let mut graph = Graph::new(layers, plan.wire(&[])?, view, frames, datagrams);
    graph.count_in(&order.counters, worker, &plan)?;
    let in_driver = setup.links.iter().any(|link| link.device.forwards_in_driver());
    let used = UsedNeighbours::default();
    if own != FIRST {
        follow_first(&neighbours, &order.kept, &used);
    }
    let mut group = several.then(|| slot.take(setup.links.len(), used, graph.drops()));
    for ((link, _), opened) in mine.iter().zip(&opened) {
        if let Some(group) = &mut group {
            group.set_receivers(link.device.index(), opened.info());
        }
    }
    let told =
        Opened { sockets, links: first_shares(&mine, &opened), preparer: opener.preparer(), plan };
    let links = all_links(opened, &setup, (&away, &split.shares), &virtual_links, group.as_ref());
    let mut neighbours = Neighbourhood::new(neighbours, order.learnt, order.permanent, in_driver);
    neighbours.remember(&with_own_neighbours(&setup), order.clock.now());
    let worker = Worker {
        counts: link_counts(&setup, &order.counters, own)?,
        drops: graph.drops(),
        remaining: Vec::new(),
        graph,
        segments,
        neighbours,
        clock: order.clock,
        due: Due::default(),
        waits: setup.waits,
        pace: Pace { spin: setup.spin },
        commands: order.commands,
        events: order.events,
        waker: order.waker,
        sojourn: order.sojourn,
        up: vec![true; links.len()],
        devices: links.iter().map(|link| (link.info().link_address, link.info().mtu)).collect(),
        downs: order.downs,
        own,
        tracing: None,
        closed: vec![false; links.len()],
        opening_until: vec![Duration::ZERO; links.len()],
        group,
        away: if several { away } else { Vec::new() },
        tells: several || in_driver,
        links,
    };
    Ok((worker, told))
}

/// The links whose neighbours are not the kernel's: those of exclusive links.
fn with_own_neighbours(setup: &DataSetup) -> Vec<LinkIndex> {
    let shared: Vec<_> = (setup.links.iter())
        .filter(|link| matches!(&link.device, DeviceSetup::Interface(device) if !device.exclusive))
        .map(|link| link.device.index())
        .collect();
    let is_shared = |link: &WorkerLink| match &link.device {
        DeviceSetup::Virtual(own) => shared.contains(&own.below),
        device => shared.contains(&device.index()),
    };
    let links = setup.links.iter().filter(|link| !is_shared(link));
    links.map(|link| link.device.index()).collect()
}

/// The links of which a worker has the first share, with their properties.
fn first_shares(
    mine: &[(&WorkerLink, Share)],
    opened: &[Box<dyn Link>],
) -> Vec<(LinkIndex, LinkInfo)> {
    (mine.iter().zip(opened))
        .filter(|((_, share), _)| share.number == 0)
        .map(|((link, _), opened)| (link.device.index(), opened.info().clone()))
        .collect()
}

/// The counters of a worker's shares of all links.
fn link_counts(
    setup: &DataSetup,
    counters: &CounterSlots,
    own: usize,
) -> Result<Vec<LinkCounts>, CountersFull> {
    let of = |link: &WorkerLink| LinkCounts::new(counters, own, (link.device.index(), &link.name));
    setup.links.iter().map(of).collect()
}

/// The plan of the first worker's layers, which run elsewhere.
pub(crate) fn first_plan(setup: &DataSetup) -> Plan {
    suite(setup, FIRST, Arc::new(Nobody)).plan
}

/// Nobody to be woken.
struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

/// The layers of a worker: the first has all of them.
fn suite(setup: &DataSetup, own: usize, wake: Arc<dyn Wake>) -> Suite {
    let links: Vec<_> = setup.links.iter().map(|link| link.device.in_suite()).collect();
    if own == FIRST {
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
/// and virtual links. Each worker counts its part of these.
fn all_links(
    opened: Vec<Box<dyn Link>>,
    setup: &DataSetup,
    (away, shares): (&[bool], &[usize]),
    virtual_links: &[(VirtualLink, VirtualLinkCounters)],
    group: Option<&WorkerGroup>,
) -> Vec<Box<dyn Link>> {
    let mut opened = opened.into_iter();
    let link = |(link, (away, shares)): (&WorkerLink, (&bool, &usize))| -> Option<Box<dyn Link>> {
        match (&link.device, group) {
            (DeviceSetup::Virtual(own), _) => {
                let (_, counters) = virtual_links.iter().find(|(known, _)| known == own)?;
                Some(Box::new(WithoutDevice::new(counters.clone())))
            }
            (_, Some(group)) if *away => {
                Some(Box::new(group.away(link.device.index(), link.device.dealt_as(), *shares)))
            }
            _ => opened.next(),
        }
    };
    setup.links.iter().zip(away.iter().zip(shares)).filter_map(link).collect()
}
