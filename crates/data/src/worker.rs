//! A data-plane worker: links, one graph, and the loop that joins them.
//!
//! The loop never blocks while frames come. After the last frame it continues to poll for
//! [`Pace::spin`], then sleeps until a link, a timer or a command wakes it.

use crate::{
    clock::Clock,
    closed::Closed,
    events::EventSender,
    group::{Course, Work, WorkerGroup},
    link_counts::LinkCounts,
    neighbours::{Forget, NeighbourUpdate, Neighbourhood},
    port::TraceNumber,
    waker::Waker,
    workers::ShareNow,
};
use gatewright_histogram::Sample;
use gatewright_link::{
    ClosingDevice, Link, LinkInfo, LinkState, MemoryConfig, Mode, OpenError, RemainingChunks,
    Segments, UnboundLink,
};
use gatewright_packet::{Batch, LinkAddress, LinkIndex};
use gatewright_stack::{
    Drops, Event, Exit, Graph, GraphTimes, MeasureClock, Reason, Swap, Trace, VirtualLink,
};
use gatewright_tables::{DownShares, WorkerHistogram};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};
use std::{
    mem,
    net::IpAddr,
    sync::mpsc::{Receiver, Sender, TryRecvError},
    time::Duration,
};

/// A worker's waiting for frames: by polling, then asleep.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pace {
    /// How long it polls after the last frame before it sleeps; zero sleeps at once.
    pub spin: Duration,
}

/// A request to a worker, taken between two batches.
pub(crate) enum Command {
    /// Exchange the wiring; the old one comes back by the channel.
    Swap(Swap, Sender<Swap>),
    /// Take the kernel's neighbour updates.
    Neighbours(Vec<NeighbourUpdate>),
    /// Ask neighbours to which drivers have forwarded packets.
    NeighboursUsed(Vec<(LinkIndex, IpAddr)>),
    /// Show the counters of links with those of the kernel, and report whether they are up.
    Links(Sender<Vec<ShareNow>>),
    /// Change how it waits.
    Pace(Pace),
    /// Receive frames, which have waited for handlers and sockets.
    Receive,
    /// Begin what waits for the whole gateway to be ready ([`Link::begin`]).
    Begin,
    /// Let go of the device of a link, before it is opened on another; the device is closed by who
    /// receives it. Until [`Self::Opened`] the link keeps its state.
    CloseDevice(LinkIndex, Sender<ClosingDevice>),
    /// Take a device in the place of a link, with the counters of the link.
    TakeDevice(LinkIndex, Box<(NewDevice, LinkCounts)>, Sender<Result<LinkInfo, OpenError>>),
    /// The exchange of a link's device is over: its state is that of the device that it has now.
    Opened(LinkIndex),
    /// Forget neighbours, take newly set ones, and write down the known ones.
    LookAtNeighbours(Option<Forget>, Sender<()>),
    /// Take a link down, or up again.
    Close(LinkIndex, bool),
    /// Trace one packet.
    Trace(Tracing),
    /// End the trace, if it is this one or all are meant.
    EndTrace(Option<TraceNumber>),
    /// Measure the times of layers for so long, by this clock if none is measured yet, and report
    /// those so far.
    Measure(Duration, MeasureClock, Sender<GraphTimes>),
}

/// A worker's replacement for a link.
#[derive(Debug)]
pub(crate) enum NewDevice {
    /// An open device.
    Open(Box<UnboundLink>),
    /// A port of a segment, which is memory of the worker.
    Segment(Box<MemoryConfig>),
    /// None: other workers have all shares, of which there are this many, dealt as those of this
    /// link.
    Away(LinkIndex, usize),
    /// None: no link is here any more.
    None,
}

/// A trace of one packet that begins.
pub(crate) struct Tracing {
    pub(crate) number: TraceNumber,
    pub(crate) trace: Trace,
    /// A frame for a link to receive now, instead of the next frame that arrives.
    pub(crate) frame: Option<(LinkIndex, Vec<u8>)>,
    /// The link, if it is virtual: the frame comes with its tag, by the link below.
    pub(crate) own: Option<VirtualLink>,
    /// Receives the finished trace; closed if another trace runs.
    pub(crate) back: Sender<Trace>,
}

/// One worker, to be run on its own thread.
pub(crate) struct Worker {
    pub(crate) links: Vec<Box<dyn Link>>,
    /// The counters of its share of each link, in the table.
    pub(crate) counts: Vec<LinkCounts>,
    pub(crate) graph: Graph,
    /// Whether frames wait in devices, and messages of other workers in their rings.
    pub(crate) waits: bool,
    /// The segments that its links belong to.
    pub(crate) segments: Segments,
    /// The neighbours that its layers share.
    pub(crate) neighbours: Neighbourhood,
    pub(crate) clock: Clock,
    pub(crate) due: Due,
    pub(crate) pace: Pace,
    pub(crate) commands: Receiver<Command>,
    pub(crate) events: EventSender,
    pub(crate) waker: Waker,
    pub(crate) sojourn: WorkerHistogram,
    /// The last reported state of each link.
    pub(crate) up: Vec<bool>,
    /// The last reported link-layer address and MTU of each link's device.
    pub(crate) devices: Vec<(LinkAddress, usize)>,
    /// The down shares of all workers.
    pub(crate) downs: DownShares,
    /// Its number.
    pub(crate) own: usize,
    /// The running trace, and who receives it when it ends.
    pub(crate) tracing: Option<(TraceNumber, Sender<Trace>)>,
    /// Links that a command has taken down: they receive and send nothing.
    pub(crate) closed: Vec<bool>,
    /// Until when each link's device counts as being exchanged; zero if it is not.
    pub(crate) opening_until: Vec<Duration>,
    /// Chunks of the slab that devices which are being closed may still write into.
    pub(crate) remaining: Vec<RemainingChunks>,
    /// The graph's drops that belong to no layer.
    pub(crate) drops: Drops,
    /// Its worker group, if there are other workers.
    pub(crate) group: Option<WorkerGroup>,
    /// The links that other workers have; empty if there are none.
    pub(crate) away: Vec<bool>,
    /// Whether others follow its neighbours: other workers, or programs in the kernel.
    pub(crate) tells: bool,
}

/// When a worker looks next at what it does not look at in each turn.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) timers: Duration,
    pub(crate) links: Duration,
    pub(crate) counts: Duration,
}

/// A frame arrived on, or was to leave by, a link that a command has taken down.
const LINK_DOWN: Reason = Reason("link-down");

/// Interval at which links are checked: whether they went or came back.
const LINKS_EVERY: Duration = Duration::from_millis(500);

/// How long a link whose device is being exchanged keeps its state. The kernel opens a device in
/// milliseconds, or after a second if another process closes it just then.
const OPENING_MAX: Duration = Duration::from_secs(5);

/// Interval at which the counters of links are shown while the worker does not sleep.
const COUNTS_EVERY: Duration = Duration::from_millis(1);

/// How often a worker that ends looks for answers of neighbours, and the time between. Its clock
/// may stand still.
const LAST_LOOKS: u32 = 100;
const LAST_LOOK_EVERY: Duration = Duration::from_millis(1);

/// Interval at which timers are checked while the worker does not sleep.
const TIMERS_EVERY: Duration = Duration::from_micros(200);

impl Worker {
    /// Moves frames until the waker says stop.
    pub(crate) fn run(mut self) {
        let mut batch = Batch::default();
        let mut busy_at = self.now();
        while !self.waker.flags().is_stopped() {
            let now = self.now();
            if self.turn(now, &mut batch) {
                busy_at = now;
            } else if now.saturating_sub(busy_at) < self.pace.spin {
                std::hint::spin_loop();
            } else {
                self.sleep(now);
                self.due.timers = Duration::ZERO;
            }
        }
        self.end(&mut batch);
    }

    /// Does what there is to do now, a batch of each; returns whether there was anything.
    pub(crate) fn turn(&mut self, now: Duration, batch: &mut Batch) -> bool {
        let mut busy = self.obey(now);
        if !self.waits {
            busy |= self.receive(now, batch);
            busy |= self.group.is_some() && self.work_for_others(now);
        }
        // What sockets on other threads send is due at once.
        if self.waker.flags().take_call() || now >= self.due.timers {
            busy |= self.timers(now);
            self.due.timers = now + TIMERS_EVERY;
        }
        if let Some(group) = &mut self.group {
            group.hand_over(self.graph.take_handed());
        }
        if self.tells {
            self.tell_neighbours(now);
        }
        if let Some(group) = &mut self.group {
            group.wake_others();
        }
        if self.tracing.is_some() {
            self.end_trace(now, false);
        }
        if now >= self.due.links {
            self.look_at_links(now);
            self.neighbours.look(now);
            self.due.links = now + LINKS_EVERY;
        }
        if now >= self.due.counts {
            self.show_counts();
            self.due.counts = now + COUNTS_EVERY;
        }
        busy
    }

    /// Writes down neighbours that have changed, and reports them to the control side if it follows
    /// them. Its ring counts what does not fit; the control side then looks at all.
    fn tell_neighbours(&mut self, now: Duration) {
        self.neighbours.tell(now);
        for event in self.neighbours.take_news() {
            self.events.send(&event);
        }
    }

    /// Shows the counters of all links to readers of the table; nobody is asked for them.
    fn show_counts(&mut self) {
        for (link, counts) in self.links.iter().zip(&mut self.counts) {
            counts.show(link.counted());
        }
    }

    /// When a layer or a link has something to do next, if known.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let link_timers = self.links.iter().filter_map(|link| link.poll_timeout());
        self.graph.poll_timeout().into_iter().chain(link_timers).min()
    }

    /// Lets layers send their last packets, and waits a moment for the neighbours that these need.
    fn end(&mut self, batch: &mut Batch) {
        let began = self.now();
        let (graph, mut exit) = self.graph_and_exit();
        graph.end(began, &mut exit);
        for _ in 0..LAST_LOOKS {
            if !self.neighbours.is_waiting() {
                return;
            }
            std::thread::sleep(LAST_LOOK_EVERY);
            let now = self.now();
            self.receive(now, batch);
            self.show_counts();
        }
    }

    fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Reports links that went or came back, and devices that changed. A link whose device is being
    /// exchanged is not down: its routes, neighbours and waiting packets stay.
    fn look_at_links(&mut self, now: Duration) {
        // Chunks that the kernel has released go home.
        self.remaining.retain(|chunks| !chunks.are_released());
        let told = self.up.iter_mut().zip(&mut self.devices);
        let links = self.links.iter_mut().zip(&self.opening_until).zip(told);
        for (index, ((link, opening_until), (told, device))) in (0..).map(LinkIndex).zip(links) {
            if now < *opening_until {
                continue;
            }
            let up = link.state() == LinkState::Up;
            let LinkInfo { mode, link_address, mtu, .. } = *link.info();
            let octets = u32::try_from(mtu).unwrap_or(u32::MAX);
            let changed = Event::Device { link: index, link_address, mtu: octets };
            // Of a link that another worker has now, that one tells. As below.
            let is_here = mode != Mode::NoDevice;
            if is_here && *device != (link_address, mtu) && self.events.send(&changed) {
                *device = (link_address, mtu);
            }
            if let Some(group) = &mut self.group {
                // A device that has come back may have other queues.
                group.set_receivers(index, link.info());
            }
            if up != *told {
                self.downs.set(index.0, self.own, up);
            }
            // Told again next time if the control side could not take it now.
            if up != *told && self.events.send(&Event::Link { link: index, up }) {
                *told = up;
            }
        }
    }

    /// Polls all links once; returns whether any frame came.
    fn receive(&mut self, now: Duration, batch: &mut Batch) -> bool {
        let mut busy = false;
        for index in 0..self.links.len() {
            let Some(link) = self.links.get_mut(index) else { break };
            if link.receive(now, batch) == 0 {
                continue;
            }
            busy = true;
            if self.closed.get(index) == Some(&true) {
                self.drops.add(LINK_DOWN, batch.len() as u64);
                batch.clear();
                continue;
            }
            let index = LinkIndex(u16::try_from(index).unwrap_or(u16::MAX));
            if let Some(group) = &mut self.group {
                group.keep_own(index, batch);
                if batch.is_empty() {
                    continue;
                }
            }
            let (graph, mut exit) = self.graph_and_exit();
            graph.receive(index, batch, now, &mut exit);
        }
        busy
    }

    /// Handles messages from other workers; returns whether there were any.
    fn work_for_others(&mut self, now: Duration) -> bool {
        let Some(mut group) = self.group.take() else { return false };
        let any = group.take_messages(|work| self.work(work, now));
        self.group = Some(group);
        any
    }

    fn work(&mut self, work: Work<'_>, now: Duration) {
        match work {
            Work::Packets(Course::Received(link), batch) => {
                if self.closed.get(link.index()) == Some(&true) {
                    self.drops.add(LINK_DOWN, batch.len() as u64);
                    return;
                }
                let (graph, mut exit) = self.graph_and_exit();
                graph.receive(link, batch, now, &mut exit);
            }
            Work::Packets(Course::Transmit(link), batch) => {
                self.graph_and_exit().1.send(link, batch);
            }
            Work::Packets(Course::Resume(node, at, side), batch) => {
                let (graph, mut exit) = self.graph_and_exit();
                graph.resume((node, at, side), batch, now, &mut exit);
            }
            Work::Used(link, address) => self.neighbours.used(link, address, now),
        }
    }

    fn graph_and_exit(&mut self) -> (&mut Graph, Egress<'_>) {
        let Self { graph, links, closed, away, drops, sojourn, clock, .. } = self;
        (graph, Egress { links, closed, away, drops, sojourn, clock })
    }

    /// Runs due timers of the layers, and reports what they learnt to the control side; returns
    /// whether any was due.
    fn timers(&mut self, now: Duration) -> bool {
        let due = self.graph.poll_timeout().is_some_and(|at| at <= now);
        if due {
            let (graph, mut exit) = self.graph_and_exit();
            graph.handle_timeouts(now, &mut exit);
        }
        for event in self.graph.take_events() {
            // The control side is slow or gone: what it misses, the network says again.
            let _missed = self.events.send(&event);
        }
        due
    }

    /// Executes commands of the control side; returns whether there were any. Objects that are no
    /// longer awaited are freed here.
    fn obey(&mut self, now: Duration) -> bool {
        match self.commands.try_recv() {
            Ok(Command::Swap(swap, back)) => {
                let old = self.graph.swap(swap);
                let _unwanted = back.send(old);
            }
            Ok(Command::Neighbours(updates)) => {
                for update in updates {
                    self.neighbours.learn(&update, now);
                }
            }
            Ok(Command::NeighboursUsed(used)) => {
                for (link, address) in used {
                    self.neighbours.used(link, address, now);
                }
            }
            Ok(Command::Links(back)) => {
                let _unwanted = back.send(self.shares_now(now));
            }
            Ok(Command::Pace(pace)) => self.pace = pace,
            Ok(Command::Receive) => {
                // Sockets that were opened before have what arrives.
                self.waker.flags().take_call();
                self.timers(now);
                self.waits = false;
            }
            Ok(Command::Begin) => self.links.iter_mut().for_each(|link| link.begin()),
            Ok(Command::CloseDevice(link, back)) => {
                // Without a link there is nothing to close, and the sender is told so.
                let _unwanted = self.let_go(link).map(|closing| back.send(closing));
                self.set_opening(link, now + OPENING_MAX);
            }
            Ok(Command::TakeDevice(link, device, back)) => {
                let (device, counts) = *device;
                let _unwanted = back.send(self.take_device(link, device, counts));
            }
            Ok(Command::Opened(link)) => {
                self.set_opening(link, Duration::ZERO);
                self.due.links = Duration::ZERO;
            }
            Ok(Command::LookAtNeighbours(forget, done)) => {
                if let Some(forget) = forget {
                    self.neighbours.forget(forget, now);
                }
                self.neighbours.look_at_all(now);
                let _unwanted = done.send(());
            }
            Ok(Command::Close(link, closed)) => {
                if let Some(place) = self.closed.get_mut(link.index()) {
                    *place = closed;
                }
            }
            Ok(Command::Trace(order)) => self.trace(order, now),
            Ok(Command::EndTrace(meant)) => {
                let running = self.tracing.as_ref().map(|(number, _)| *number);
                if meant.is_none() || meant == running {
                    self.end_trace(now, true);
                }
            }
            Ok(Command::Measure(time, clock, back)) => {
                let _unwanted = back.send(self.graph.measure(now + time, clock));
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => return false,
        }
        true
    }

    /// Shows the counters of all links with those of the kernel; returns the worker's shares of them.
    #[cold]
    fn shares_now(&mut self, now: Duration) -> Vec<ShareNow> {
        let links = self.links.iter_mut().zip(&mut self.counts);
        (links.zip(&self.opening_until).zip(&self.up))
            .map(|(((link, counts), opening_until), up)| {
                counts.show(link.counters());
                let keeps_state = now < *opening_until && *up;
                let state = if keeps_state { LinkState::Up } else { link.state() };
                ShareNow { state, queues: link.info().queues.clone() }
            })
            .collect()
    }

    fn set_opening(&mut self, link: LinkIndex, until: Duration) {
        if let Some(place) = self.opening_until.get_mut(link.index()) {
            *place = until;
        }
    }

    /// Lets go of a link's device, which is closed elsewhere.
    #[cold]
    fn let_go(&mut self, link: LinkIndex) -> Option<ClosingDevice> {
        let place = self.links.get_mut(link.index())?;
        let closed = Box::new(Closed::after(&**place));
        let (closing, remaining) = mem::replace(place, closed).close().into_parts();
        if !remaining.is_empty() {
            self.remaining.push(remaining);
        }
        Some(closing)
    }

    /// Takes this worker's share of a device, if it has one.
    #[cold]
    fn take_device(
        &mut self,
        index: LinkIndex,
        device: NewDevice,
        counts: LinkCounts,
    ) -> Result<LinkInfo, OpenError> {
        let is_away = matches!(device, NewDevice::Away(..));
        let link: Box<dyn Link> = match (device, &self.group) {
            (NewDevice::Open(device), _) => device.bind(self.graph.frames())?,
            (NewDevice::Segment(config), _) => {
                Box::new(self.segments.open(&config, self.graph.frames())?)
            }
            (NewDevice::Away(dealt_as, shares), Some(group)) => {
                Box::new(group.away(index, dealt_as, shares))
            }
            (NewDevice::Away(..) | NewDevice::None, _) => Box::new(Closed::spare()),
        };
        let info = link.info().clone();
        if let Some(place) = self.links.get_mut(index.index()) {
            *place = link;
        }
        if let Some(place) = self.counts.get_mut(index.index()) {
            *place = counts;
        }
        if let Some(place) = self.away.get_mut(index.index()) {
            *place = is_away;
        }
        if let Some(group) = &mut self.group {
            group.set_receivers(index, &info);
        }
        Ok(info)
    }

    /// Begins a trace, with its own frame if there is one.
    fn trace(&mut self, order: Tracing, now: Duration) {
        if !self.graph.trace(order.trace) {
            return;
        }
        self.tracing = Some((order.number, order.back));
        let Some((mut link, octets)) = order.frame else { return };
        let Some(mut packet) = self.graph.frames().packet_of(&octets) else { return };
        if let Some(own) = order.own {
            link = own.below;
            // A fresh chunk has headroom for it.
            let _room = own.insert(&mut packet);
        }
        packet.meta_mut().ingress = link;
        packet.set_received_ns(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        let mut batch = Batch::default();
        // An empty batch has room.
        let _fits = batch.push(packet);
        let (graph, mut exit) = self.graph_and_exit();
        graph.receive(link, &mut batch, now, &mut exit);
    }

    /// Sends back a trace that is over or has to end.
    #[cold]
    fn end_trace(&mut self, now: Duration, is_over: bool) {
        if let Some(trace) = self.graph.take_trace(now, is_over) {
            let _unwanted = self.tracing.take().map(|(_, back)| back.send(trace));
        }
    }

    /// Sleeps until a frame, a timer or a command.
    fn sleep(&mut self, now: Duration) {
        self.waker.fall_asleep();
        // A command sent before that woke nobody: look once more before sleeping.
        let handed = |group: &mut WorkerGroup| group.has_messages();
        let sent = self.obey(now) || !self.waits && self.group.as_mut().is_some_and(handed);
        let flags = self.waker.flags();
        if sent || flags.is_called() || flags.is_stopped() {
            self.waker.wake_up(false);
            return;
        }
        self.show_counts();
        // Changes of neighbours that came too soon behind others are not told yet.
        let told = if self.tells { self.neighbours.tells_at() } else { None };
        let timers = [self.next_timer(), told, Some(now + LINKS_EVERY)].into_iter().flatten().min();
        let patience = timers.map_or(LINKS_EVERY, |at| at.saturating_sub(now));
        let mut fds: Vec<PollFd<'_>> = (self.links.iter())
            .filter(|_| !self.waits)
            .filter_map(|link| link.poll_fd())
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        fds.push(PollFd::new(self.waker.descriptor(), PollFlags::POLLIN));
        // An error is a signal, and a signal is a reason to look again.
        let _interrupted = ppoll(&mut fds, Some(TimeSpec::from_duration(patience)), None);
        let woken = fds.last().and_then(PollFd::any).unwrap_or(false);
        self.waker.wake_up(woken);
    }
}

/// The exit for frames: the links, with the sojourn time of each packet.
struct Egress<'a> {
    links: &'a mut [Box<dyn Link>],
    closed: &'a [bool],
    away: &'a [bool],
    drops: &'a Drops,
    sojourn: &'a WorkerHistogram,
    clock: &'a Clock,
}

impl Exit for Egress<'_> {
    fn send(&mut self, link: LinkIndex, batch: &mut Batch) {
        if self.closed.get(link.index()) == Some(&true) {
            self.drops.add(LINK_DOWN, batch.len() as u64);
            batch.clear();
            return;
        }
        let now = self.clock.now();
        if self.away.get(link.index()) == Some(&true) {
            // Whoever has the link sees when they leave.
            if let Some(link) = self.links.get_mut(link.index()) {
                link.transmit(now, batch);
            }
            return;
        }
        let now_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        // Frames received together carry the same stamp: one record for each run of them.
        let mut run = Sample::new(0);
        for packet in batch.iter() {
            let received_ns = packet.received_ns();
            if received_ns != run.value {
                self.record(run, now_ns);
                run = Sample::new(received_ns);
            }
            run.push(packet.len() as u64);
        }
        self.record(run, now_ns);
        if let Some(link) = self.links.get_mut(link.index()) {
            link.transmit(now, batch);
        }
    }
}

impl Egress<'_> {
    /// Records the stay of packets that were received at the value of `run`. Packets made here
    /// carry no stamp and have no sojourn.
    fn record(&self, run: Sample, now_ns: u64) {
        if run.value > 0 && run.times > 0 {
            self.sojourn.add(Sample { value: now_ns.saturating_sub(run.value), ..run });
        }
    }
}
