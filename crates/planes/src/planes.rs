//! The running planes of a gateway.

use crate::{
    control::{
        Control, Placement, Prepared,
        events::{events_lost, names_held},
        reasons,
    },
    error::PlanesError,
    kernel::{Follower, Kernel},
    setup::{LinkSetup, ProcessSetup, Setup},
    start::{self, Started},
    status::{
        IcmpStatus, LayerStatus, LinkStatus, MeasuredTime, PlanesStatus, Status, WayStatus,
        WorkerStatus, given_up_link, link_counters,
    },
};
use gatewright_data::{
    DataError, DataPlane, Downtime, EventQueue, FoundPlane, HandlerNow, LinkNow, OpenCapture, Pace,
    PlanePort, Port, PortAnswer, PortRequest, Reopen, RequestNumber, TraceNumber, TraceOrder,
    Waker, WorkerLink, name_holders,
};
use gatewright_histogram::Histogram;
use gatewright_link::LinkInfo;
use gatewright_packet::LinkIndex;
use gatewright_part::{EventSink, Sojourn};
use gatewright_stack::{
    Attachment, AttachmentId, GraphTimes, Handler, Sockets, TraceStep, VirtualLink, Wake,
    builtin::Match,
};
use gatewright_tables::CounterOwner;
use gatewright_wire::{Framing, MacAddress};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The result of opening a link on another device.
#[derive(Debug)]
pub(crate) struct Reopened {
    pub(crate) info: LinkInfo,
    /// Time during which no frame was received.
    pub(crate) pause: Duration,
}

/// Running planes: links, layers and handlers on workers of their own.
///
/// Dropping it stops the workers and closes the links.
pub struct Planes {
    control: Arc<Mutex<Control>>,
    plane: DataPlane,
    port: PlanePort,
    /// Whether the data plane ran before.
    adopted: bool,
    /// The process that was found, if the data plane ran before; a later one was started here.
    adopted_process: Option<u32>,
    sockets: Sockets,
    started: Instant,
    /// The thread that acts upon events, and what ends it.
    events: Option<(JoinHandle<()>, Waker)>,
    /// Follows the kernel, where links are shared with it.
    follower: Option<Follower>,
}

impl fmt::Debug for Planes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planes").field("host", &self.control().host).finish_non_exhaustive()
    }
}

impl Planes {
    /// Opens every link before the first packet is forwarded: a gateway runs whole or not at all.
    ///
    /// # Errors
    ///
    /// [`PlanesError`] names the link, table or resource that failed.
    pub fn open(setup: &Setup) -> Result<Self, PlanesError> {
        Self::open_logging(setup, EventSink::default())
    }

    /// As [`Self::open`]; what happens to links, addresses and routes is logged by `log`.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_logging(setup: &Setup, log: EventSink) -> Result<Self, PlanesError> {
        let found = setup.process.as_ref().map(Self::find).transpose()?.flatten();
        Self::open_found(setup, found, log)
    }

    /// Looks for a data plane that runs without a control plane, under the name in `process`.
    ///
    /// # Errors
    ///
    /// [`PlanesError::Data`] if it has a control plane, or is of another version.
    pub fn find(process: &ProcessSetup) -> Result<Option<FoundPlane>, PlanesError> {
        if process.name.is_empty() {
            return Ok(None);
        }
        Ok(FoundPlane::find(&process.name)?)
    }

    /// As [`Self::open_logging`], with the data plane that [`Self::find`] has found.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; [`PlanesError::OtherDataPlane`] if the found one does not fit.
    pub fn open_found(
        setup: &Setup,
        found: Option<FoundPlane>,
        log: EventSink,
    ) -> Result<Self, PlanesError> {
        if let Some(ProcessSetup { name, .. }) =
            setup.process.as_ref().filter(|it| !it.name.is_empty())
        {
            names_held("where the data plane is", &name_holders(name), &log);
        }
        let Started { mut control, plane, events, sockets, news, adopted } =
            start::start(setup, found, &log)?;
        control.log = log;
        for link in &setup.links {
            control.report_opened(&link.name, &link.device);
        }
        control.report_still_closed();
        control.report_without_interface();
        let control = Arc::new(Mutex::new(control));
        let (listening, listener_waker) = (Arc::clone(&control), events.waker().clone());
        let port = plane.port();
        let listener = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || listen(&listening, &port, events))
            .map_err(|source| DataError::System { action: "start a thread", source })?;
        let follow = |news| Follower::start(news, Arc::clone(&control), plane.waker());
        let follower = news.map(follow).transpose()?;
        Ok(Self {
            control,
            port: plane.port(),
            adopted_process: plane.process().filter(|_| adopted),
            plane,
            adopted,
            sockets,
            started: Instant::now(),
            events: Some((listener, listener_waker)),
            follower,
        })
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The workers' port.
    pub(crate) const fn port(&self) -> &PlanePort {
        &self.port
    }

    /// Whether the data plane ran before, under another control plane. It has that one's handlers
    /// until the first wiring is committed.
    pub const fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// The data plane's process, if it has one of its own.
    pub fn data_process(&self) -> Option<u32> {
        self.plane.process()
    }

    /// Has the data plane's process keep `memo` for a control plane that adopts it later
    /// ([`FoundPlane::memo`]); nothing if the data plane is in this process.
    ///
    /// # Errors
    ///
    /// [`PlanesError::Data`] if it is too long, or the process does not take it.
    pub fn keep_memo(&self, memo: &str) -> Result<(), PlanesError> {
        Ok(self.plane.keep_memo(memo)?)
    }

    /// Exchanges the data plane's process for another with the same state: handlers, links, sockets.
    ///
    /// # Errors
    ///
    /// [`PlanesError::Data`]: another exchange is under way, or the other process does not start;
    /// [`PlanesError::NoProcess`] if the data plane is in this process.
    pub fn exchange_data_plane(&self) -> Result<Downtime, PlanesError> {
        Ok(self.plane.exchange().ok_or(PlanesError::NoProcess)??)
    }

    /// Whether the data plane's process has died so often that no other is started until
    /// [`Self::start_again`] or [`Self::exchange_data_plane`].
    pub fn is_given_up(&self) -> bool {
        self.plane.is_given_up()
    }

    /// Starts the data plane's process again if it was given up: with the links that it had, or with
    /// those of `new` if it does not start so. [`Self::exchange`] finds these open then.
    ///
    /// # Errors
    ///
    /// Why it does not start.
    pub fn start_again(&self, new: &Setup) -> Result<(), PlanesError> {
        let links: Vec<_> = new.links.iter().map(LinkSetup::worker_link).collect();
        let Some(started) = self.plane.start_again(&links) else { return Ok(()) };
        let open = started?;
        self.change(|control| {
            for (link, info) in &open {
                control.opened(*link, info);
            }
            control.look_at_opened();
        });
        Ok(())
    }

    /// Whether a link is open already as `link` says, in a data plane that was started again.
    pub(crate) fn is_open_as(&self, link: &WorkerLink) -> bool {
        self.plane.has_link(link)
    }

    /// The sockets of this gateway's own stack.
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Attaches a handler without losing a packet; the returned id detaches it.
    ///
    /// # Errors
    ///
    /// [`DataError::Wiring`] if no packet passes that position. [`DataError::OneOnly`] if there
    /// are several workers and it cannot duplicate itself ([`Handler::another`]).
    pub fn attach(
        &self,
        attachment: Attachment,
        handler: Box<dyn Handler>,
    ) -> Result<AttachmentId, PlanesError> {
        self.place(Placement::New(attachment, handler))
    }

    /// Attaches one more handler, behind the others at its position.
    ///
    /// # Errors
    ///
    /// As [`Self::attach`].
    pub fn place(&self, placement: Placement) -> Result<AttachmentId, PlanesError> {
        let mut control = self.control();
        let (id, prepared) = control.prepare_attached(placement, self.port())?;
        self.put_in_force(&mut control, &prepared)?;
        Ok(id)
    }

    /// Detaches a handler without losing a packet, and returns it with its counts if it is of the
    /// embedder's own code; `None` if the id is unknown.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if the worker has ended.
    pub fn detach(&self, id: AttachmentId) -> Result<Option<Detached>, PlanesError> {
        let mut control = self.control();
        let Some(prepared) = control.prepare_detached(id, self.port())? else { return Ok(None) };
        let mut now = self.port().handlers().into_iter();
        let kept = now.find(|handler| handler.id == id).and_then(|handler| handler.kept);
        self.put_in_force(&mut control, &prepared)?;
        Ok(Some(Detached(kept.and_then(|kept| self.port().take_kept(kept)))))
    }

    /// Has the workers build the wiring in which just `placements` stand, in their order; nothing
    /// changes yet.
    ///
    /// # Errors
    ///
    /// As [`Self::attach`].
    pub fn prepare(&self, placements: Vec<Placement>) -> Result<Prepared, PlanesError> {
        self.control().prepare(placements, self.port())
    }

    /// Exchanges the wiring for a prepared one, without losing a packet.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if the worker has ended.
    pub fn commit(&self, prepared: Prepared) -> Result<(), PlanesError> {
        self.put_in_force(&mut self.control(), &prepared)?;
        drop(prepared);
        Ok(())
    }

    fn put_in_force(&self, control: &mut Control, prepared: &Prepared) -> Result<(), PlanesError> {
        // Drivers pass up what a handler is to see before it is there, and what one has seen until
        // it is gone.
        control.raise_for(prepared);
        let committed = self.port().ask(PortRequest::Commit(prepared.stage()));
        control.commit(prepared);
        control.publish_to_drivers();
        committed?;
        Ok(())
    }

    /// The attached handlers in order, with what they have counted.
    pub fn handlers(&self) -> Vec<HandlerNow> {
        let now = self.port().handlers();
        self.control().with_driver_counts(now)
    }

    /// Allocates an id for an attachment outside the planes, from the same sequence as the
    /// handlers' ids.
    pub fn take_id(&self) -> AttachmentId {
        self.control().take_id()
    }

    /// Opens a capture, whose packets handlers of
    /// [`HandlerValue::Capture`](gatewright_data::HandlerValue::Capture) send.
    ///
    /// # Errors
    ///
    /// [`DataError::Busy`] if too many are open.
    pub fn capture(&self) -> Result<OpenCapture, PlanesError> {
        Ok(self.port().capture()?)
    }

    /// The link of this name; an error in words for the operator if there is none.
    ///
    /// # Errors
    ///
    /// The error lists the existing names.
    pub fn link(&self, name: &str) -> Result<LinkIndex, String> {
        let control = self.control();
        let names = || control.links.iter().map(|(name, _)| name.as_str());
        let found = (0..).map(LinkIndex).zip(names()).find(|(_, known)| *known == name);
        let refusal = || {
            let known: Vec<_> = names().filter(|name| !name.is_empty()).collect();
            let known =
                if known.is_empty() { "the stack has none".into() } else { known.join(", ") };
            format!("there is no link {name}: {known}")
        };
        let found = found.filter(|_| !name.is_empty()).map(|(link, _)| link);
        found.ok_or_else(refusal)
    }

    /// The link-layer address of an Ethernet link.
    pub fn ethernet_address(&self, link: LinkIndex) -> Option<MacAddress> {
        let control = self.control();
        let found = control.host.interfaces().iter().find(|own| own.link == link);
        found.and_then(gatewright_stack::Interface::ethernet_address)
    }

    /// Sets a link down, or up again. A link that is down receives and sends nothing, and its
    /// routes give way to others. Its device stays open and unchanged.
    ///
    /// # Errors
    ///
    /// [`DataError::Late`] or [`DataError::Ended`] if the worker does not answer or has ended; then
    /// the order is withdrawn.
    pub fn set_link(&self, link: LinkIndex, up: bool) -> Result<(), PlanesError> {
        let before = !self.control().is_closed(link);
        if let Err(error) = self.port().ask(PortRequest::SetLink { link, up }) {
            // A worker that is late executes both, one after the other; a process that comes after
            // this one has the link as before.
            let _ended = self.port().submit(PortRequest::SetLink { link, up: before });
            return Err(error.into());
        }
        self.change(|control| control.close(link, !up));
        Ok(())
    }

    /// The number of workers.
    pub fn worker_count(&self) -> usize {
        self.plane.len()
    }

    /// Changes the control side's state, and wakes the worker to look at it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Control) -> R) -> R {
        let mut control = self.control();
        let changed = change(&mut control);
        control.settle_own_destinations();
        drop(control);
        self.plane.wake();
        changed
    }

    /// Begins what waits until the whole gateway is ready: links receive the packets that wait there
    /// ([`Setup::waits`]), drivers forward, and replays of capture files start. What has begun goes
    /// on.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if the workers have ended.
    pub fn begin(&self) -> Result<(), PlanesError> {
        // Applications of an earlier control plane that nobody has run again until now are over.
        self.sockets.end_found();
        self.port().ask(PortRequest::Begin)?;
        self.control().begin_in_drivers();
        Ok(())
    }

    /// Sets how the workers wait.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if the worker has ended.
    pub fn set_pace(&self, pace: Pace) -> Result<(), PlanesError> {
        self.port().ask(PortRequest::Pace(pace))?;
        Ok(())
    }

    /// Opens the device of an order, or checks it, before the link is closed.
    pub(crate) fn prepare_device(&self, order: &Reopen) -> Result<(), PlanesError> {
        let request = PortRequest::Prepare(Box::new(order.clone()));
        self.port().ask_within(request, REOPENED_WITHIN)?;
        Ok(())
    }

    /// Closes devices that were prepared and not used.
    pub(crate) fn drop_prepared(&self) {
        // A data plane that has ended has none.
        let _ended = self.port().submit(PortRequest::DropPrepared);
    }

    /// Closes a link and opens it on another device; returns how long no frames were received.
    pub(crate) fn reopen(&self, order: &Reopen) -> Result<Reopened, PlanesError> {
        let started = Instant::now();
        let request = PortRequest::Reopen(Box::new(order.clone()));
        let PortAnswer::Reopened(info) = self.port().ask_within(request, REOPENED_WITHIN)? else {
            return Err(DataError::Ended.into());
        };
        let info = *info;
        let mut control = self.control();
        control.opened(order.device.device.index(), &info);
        control.look_at_opened();
        control.report_opened(&order.device.name, &order.device.device);
        drop(control);
        Ok(Reopened { info, pause: started.elapsed() })
    }

    /// The first header of a link's frames.
    pub fn framing(&self, link: LinkIndex) -> Framing {
        self.control().plan.framing(link)
    }

    /// Traces one packet: the next that matches, or `frame`, as if the link received it now.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if the worker has ended.
    pub fn trace(
        &self,
        link: Option<LinkIndex>,
        which: Match,
        frame: Option<Vec<u8>>,
    ) -> Result<Tracing, PlanesError> {
        let is_meant = |own: &&VirtualLink| Some(own.link) == link;
        let (own, trace) = {
            let mut control = self.control();
            (control.plan.virtual_links().iter().find(is_meant).copied(), control.take_trace())
        };
        let in_graph = frame.is_none().then(|| InGraph::new(&self.control, link));
        let order = TraceOrder { number: trace, link, which, frame, own };
        let number = self.port().submit(PortRequest::Trace(order))?;
        Ok(Tracing { port: self.port().clone(), number, trace, _in_graph: in_graph })
    }

    /// The gateway's status and counters.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if the worker has ended.
    pub fn status(&self) -> Result<Status, PlanesError> {
        self.status_with(None)
    }

    /// As [`Self::status`], with the times of layers, ways and handlers, which are measured from the
    /// first call until `time` after the last one.
    ///
    /// # Errors
    ///
    /// As [`Self::status`].
    pub fn measured_status(&self, time: Duration) -> Result<Status, PlanesError> {
        let times = match self.port().ask(PortRequest::Measure(time)) {
            Ok(PortAnswer::Measured(times)) => times,
            // While its process is away nothing is measured.
            Err(DataError::Ended) if self.plane.process().is_some() => GraphTimes::default(),
            Ok(_) => return Err(DataError::Ended.into()),
            Err(error) => return Err(error.into()),
        };
        self.status_with(Some(&times))
    }

    fn status_with(&self, times: Option<&GraphTimes>) -> Result<Status, PlanesError> {
        // Asked before the counters are read: those of the kernel are then in the table, too.
        let now = self.links_now()?;
        let control = self.control();
        // While its process is away there are the counts of before, which are in the table.
        let away = control.links.len().saturating_sub(now.len());
        let given_up = self.is_given_up();
        let without = control.kernel.as_ref().map(Kernel::without_interface).unwrap_or_default();
        let now = now.into_iter().chain((0..away).map(|_| LinkNow::default()));
        let table = control.counted();
        let sums = table.sums();
        let links: Vec<_> = ((0..).zip(control.links.iter().zip(now)))
            .filter(|(_, ((name, _), _))| !name.is_empty())
            .map(|(link, ((name, info), now))| {
                let interface =
                    (control.host.interfaces().iter()).find(|found| found.name == *name);
                let now = if given_up { given_up_link(now, info) } else { now };
                let counters = link_counters(&sums, link);
                let counted = (now, counters, control.driver_counts(link));
                LinkStatus::new((link, name), info, counted, self.plane.len(), interface)
                    .or_set_down(control.is_closed(LinkIndex(link)))
                    .or_without_interface(&without)
            })
            .collect();
        // What stands at places without a link moves nothing.
        let is_there = |link: Option<u16>| {
            link.is_none_or(|link| links.iter().any(|known| known.link == link))
        };
        let several = (0..self.plane.len()).filter(|_| self.plane.len() > 1);
        let workers = several.map(|worker| WorkerStatus::new(worker, &table)).collect();
        let (mut layers, mut ways) = (control.layers(&sums), control.ways(&sums));
        let measured_runs = times.map(|times| times.runs);
        let handler_times = add_times(times, &mut layers, &mut ways);
        // Edges name their ends by the places of the layers that are left.
        let kept: Vec<bool> = layers.iter().map(|layer| is_there(layer.link)).collect();
        let left = |place: Option<usize>| {
            let place = place.filter(|&place| kept.get(place) == Some(&true))?;
            Some(kept.iter().take(place).filter(|kept| **kept).count())
        };
        for way in &mut ways {
            (way.from, way.to) = (left(way.from), left(way.to));
        }
        layers.retain(|layer| is_there(layer.link));
        ways.retain(|way| is_there(way.link));
        Ok(Status {
            planes: self.planes_status(),
            uptime: self.started.elapsed(),
            links,
            layers,
            ways,
            unclaimed: reasons(&sums, CounterOwner::Graph),
            icmp: IcmpStatus::all(&sums),
            handlers: control.with_driver_counts(self.port().handlers()),
            kernel: control.kernel.as_ref().map(Kernel::status),
            sojourn: vec![Sojourn { mode: "graph", times: self.sojourn(), ..Sojourn::default() }],
            workers,
            next_hops: control.next_hops(&sums),
            handler_times,
            measured_runs,
        })
    }

    /// The links as the workers see them; none while the data plane's process is started again.
    fn links_now(&self) -> Result<Vec<LinkNow>, PlanesError> {
        match self.port().ask(PortRequest::Links) {
            Ok(PortAnswer::Links(now)) => Ok(now),
            Err(DataError::Ended) if self.plane.process().is_some() => Ok(Vec::new()),
            Ok(_) => Err(DataError::Ended.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn planes_status(&self) -> PlanesStatus {
        let data = self.plane.process();
        PlanesStatus {
            mode: if data.is_some() { "process" } else { "threads" },
            control: std::process::id(),
            data,
            running: self.plane.is_running(),
            given_up: self.plane.is_given_up(),
            adopted: data.is_some() && data == self.adopted_process,
            version: gatewright_data::process_version(),
        }
    }

    /// Sojourn times of packets in this gateway, in nanoseconds.
    pub fn sojourn(&self) -> Histogram {
        self.plane.sojourn()
    }

    /// Changes the host: its addresses and routes.
    pub fn change_host<R>(&self, change: impl FnOnce(&mut gatewright_stack::Host) -> R) -> R {
        let changed = self.control().changed(|control| change(&mut control.host));
        self.plane.wake();
        changed
    }

    /// Whether the workers run.
    pub fn is_running(&self) -> bool {
        self.plane.is_running()
    }
}

impl Drop for Planes {
    fn drop(&mut self) {
        drop(self.follower.take());
        self.plane.stop();
        if let Some((thread, waker)) = self.events.take() {
            waker.stop();
            // It has said so on its own thread.
            let _panicked = thread.join();
        }
    }
}

/// Acts upon events from the network until it is stopped.
fn listen(control: &Mutex<Control>, port: &PlanePort, mut events: EventQueue) {
    let mut lost = events.lost();
    loop {
        let event = events.next(EXPIRY_EVERY);
        if event.is_none() && events.waker().flags().is_stopped() {
            return;
        }
        let mut control = control.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(event) = event {
            control.learn(event, now);
        }
        let more = events.lost().saturating_sub(lost);
        if more > 0 {
            lost += more;
            control.log.log(events_lost(more));
            control.follow_all_neighbours();
        }
        control.expire(now);
        control.settle_own_destinations();
        control.look_at_drivers(now);
        let mut used = control.take_used_neighbours(now);
        used.extend(control.look_at_groups(now));
        drop(control);
        if !used.is_empty() {
            // A data plane that is dead or busy is told again, as long as they are used.
            let _not_now = port.submit(PortRequest::NeighboursUsed(used));
        }
    }
}

/// Interval at which learnt state is checked for its end, while no event comes.
const EXPIRY_EVERY: Duration = Duration::from_millis(500);

/// Maximum time to open a link on another device, and on the old one if that fails. A busy queue is
/// requested again for a second, several times with different settings.
const REOPENED_WITHIN: Duration = Duration::from_mins(1);

/// A handler that was detached.
pub struct Detached(Option<Box<dyn Handler>>);

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Detached").field(&self.0.is_some()).finish()
    }
}

impl Detached {
    /// The handler, if it is of the embedder's own code.
    pub fn into_handler(self) -> Option<Box<dyn Handler>> {
        self.0
    }
}

/// A running trace of one packet. Dropping it leaves it running; packets that drivers forward are
/// not seen then.
pub struct Tracing {
    port: PlanePort,
    number: RequestNumber,
    trace: TraceNumber,
    _in_graph: Option<InGraph>,
}

/// Keeps the packets of a link, or of all, from being forwarded in drivers.
struct InGraph {
    control: Arc<Mutex<Control>>,
    link: Option<LinkIndex>,
}

impl InGraph {
    fn new(control: &Arc<Mutex<Control>>, link: Option<LinkIndex>) -> Self {
        let in_graph = Self { control: Arc::clone(control), link };
        in_graph.set(true);
        in_graph
    }

    fn set(&self, is_traced: bool) {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.trace_in_graph(self.link, is_traced);
    }
}

impl Drop for InGraph {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Adds the measured times to layers and ways, which are all of the plan; returns those of handlers.
fn add_times(
    times: Option<&GraphTimes>,
    layers: &mut [LayerStatus],
    ways: &mut [WayStatus],
) -> Vec<(AttachmentId, MeasuredTime)> {
    let Some(times) = times else { return Vec::new() };
    for (layer, time) in layers.iter_mut().zip(&times.layers) {
        layer.measured = Some((*time).into());
    }
    for (way, time) in ways.iter_mut().zip(&times.ways) {
        way.measured = Some((*time).into());
    }
    times.handlers.iter().map(|(id, time)| (*id, (*time).into())).collect()
}

/// Maximum time for the workers to return a trace that is ended.
const TRACED_WITHIN: Duration = Duration::from_secs(5);

/// How often a trace that waits for its packet is looked at for whether it is still wanted.
const WANTED_LOOK: Duration = Duration::from_millis(250);

impl Tracing {
    /// The steps of the packet, awaited for `patience` at the most; those so far if it takes longer.
    ///
    /// # Errors
    ///
    /// [`DataError::Busy`] if another packet is being traced, [`DataError::Ended`] if the
    /// workers have ended.
    pub fn steps(&self, patience: Duration) -> Result<Vec<TraceStep>, PlanesError> {
        self.steps_while(patience, || true)
    }

    /// As [`Self::steps`], while `is_wanted`.
    ///
    /// # Errors
    ///
    /// As [`Self::steps`].
    pub fn steps_while(
        &self,
        patience: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Vec<TraceStep>, PlanesError> {
        let begun = Instant::now();
        let answer = loop {
            let left = patience.saturating_sub(begun.elapsed());
            match self.port.answer(self.number, left.min(WANTED_LOOK)) {
                Err(DataError::Late) if left > WANTED_LOOK && is_wanted() => {}
                Err(DataError::Late) => {
                    self.port.submit(PortRequest::EndTrace(Some(self.trace)))?;
                    break self.port.answer(self.number, TRACED_WITHIN)?;
                }
                answer => break answer?,
            }
        };
        match answer {
            PortAnswer::Traced(steps) => Ok(steps),
            _ => Err(DataError::Ended.into()),
        }
    }
}
