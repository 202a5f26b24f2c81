//! The data plane's process: starts the workers, serves requests, and outlives its control plane.

use super::{
    adoption::{self, ServerShared, ServerState},
    captured::CaptureRelay,
    confine::{confine, outlive_starter},
    files::FileAccess,
    handshake::{
        self, OpenLinks, PeerMessage, Restored, Shared, Sleepers, StartOrder, StartReport,
        StartedPlane,
    },
    message::{Incoming, Outgoing},
    orders::TakenOrders,
    sockets::SocketRelay,
};
use crate::{
    clock::{Clock, VirtualClock},
    error::{DataError, failed, refused},
    plain::Plain,
    port::{HandlerOrder, Port, PortAnswer, PortRequest, RequestNumber},
    reopen::Reopen,
    setup::DataSetup,
    start::{Opened, start_on},
    workers::{ThreadPort, Workers},
};
use gatewright_link::{DriverMaps, ForwardingMaps, HeldDevice, KernelTables, OpenDevices};
use gatewright_stack::{Host, Sockets, Wake};
use gatewright_tables::{DataEntities, DataTables, MessageReceiver, MessageSender};
use std::{
    io,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::Arc,
    time::{Duration, Instant},
};

/// Runs the data plane in this process, whose standard input is the socket of its control plane.
/// Calls `ready` when it has started, and once more when it has run for `settled`; returns when it is
/// told to stop.
///
/// # Errors
///
/// [`DataError`] if it cannot start; the control plane has been told.
pub fn serve(settled: Duration, mut ready: impl FnMut()) -> Result<(), DataError> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed("take its socket"))?;
    let stream = UnixStream::from(input);
    let (order, shared) = handshake::hear_shared::<StartOrder>(&stream)
        .and_then(|(order, shared)| Ok((order, shared.ok_or(io::ErrorKind::InvalidData)?)))
        .map_err(failed("read its order"))?;
    let passed = hear_passed(&stream, &order).map_err(failed("read its order"))?;
    let started = Server::start(order, shared, passed, &stream).and_then(|server| {
        outlive_starter().map_err(failed("outlive its control plane"))?;
        Ok(server)
    });
    let report: StartReport = match &started {
        Ok(server) => Ok(StartedPlane {
            links: server.shared.lock().links.clone(),
            all_files: server.files.unlimited(),
        }),
        Err(error) => {
            let (reason, exit_code) = (error.to_string(), error.exit_code());
            Err(DataError::Refused { reason, exit_code })
        }
    };
    handshake::say(&stream, &report, None).map_err(failed("report to its control plane"))?;
    let server = started?;
    ready();
    server.run(stream, (settled, ready))
}

/// What an order passes beside the shared descriptors.
struct PassedOn {
    maps: Result<Arc<ForwardingMaps>, String>,
    held: Vec<HeldDevice>,
}

/// Receives the messages that follow an order.
fn hear_passed(stream: &UnixStream, order: &StartOrder) -> io::Result<PassedOn> {
    let mut passed = PassedOn { maps: Err(order.no_maps.clone()), held: Vec::new() };
    // Of another version: it is refused for that, and what follows is not read.
    if order.version != handshake::process_version() {
        return Ok(passed);
    }
    for _ in 0..order.passed {
        let (message, descriptors) = handshake::hear_peer(stream)?;
        match message {
            PeerMessage::Maps(shape) => {
                let maps = handshake::received_maps(&shape, descriptors);
                passed.maps = Ok(Arc::new(maps.ok_or(io::ErrorKind::InvalidData)?));
            }
            PeerMessage::Device(facts) => passed.held.push(HeldDevice { facts, descriptors }),
            PeerMessage::Stop | PeerMessage::MapsTaken(_) | PeerMessage::Memo(_) => {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
    Ok(passed)
}

/// The data plane's process.
struct Server {
    shared: Arc<ServerShared>,
    workers: Workers,
    /// The clock of workers in virtual time.
    clock: Option<VirtualClock>,
    requests: MessageReceiver,
    answers: MessageSender,
    listener: Option<UnixListener>,
    /// Requests whose answers the workers have not given yet.
    outstanding: Vec<Outstanding>,
    sockets: SocketRelay,
    orders: TakenOrders,
    captured: CaptureRelay,
    files: FileAccess,
    /// When it receives frames unless it is told to before: its control plane has died.
    receives_at: Option<Instant>,
}

/// A request that the workers are at.
struct Outstanding {
    /// The control plane's number.
    number: u64,
    inner: RequestNumber,
    /// The handlers that it stages.
    staged: Option<Vec<HandlerOrder>>,
    /// The device that it opens.
    reopened: Option<Box<Reopen>>,
}

/// How long a request is awaited before the next one is taken; most are answered at once.
const QUICKLY: Duration = Duration::from_millis(1);

/// Time between two looks at requests that take longer.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a process that was started again waits for its control plane to give it sockets.
const RECEIVES_WITHIN: Duration = Duration::from_secs(1);

/// Time between two looks without any. The waker ends it at once.
const PATIENCE: Duration = Duration::from_secs(1);

impl Server {
    fn start(
        order: StartOrder,
        descriptors: Shared,
        passed: PassedOn,
        stream: &UnixStream,
    ) -> Result<Self, DataError> {
        check_version(&order.version)?;
        let StartOrder { name, routes_max, fresh, clock, divided, setup, restored, .. } = order;
        // Devices that it has got would be in the way of the next one's.
        adoption::check_control(stream)?;
        adoption::hold_signals()?;
        let (tables, sleepers) = join(&descriptors, routes_max, fresh)?;
        let ends = RingEnds::of(&tables);
        let of_applications = (tables.counters.clone(), entities(&tables, &passed)?);
        let listener = (!name.is_empty()).then(|| adoption::listen(&name, stream)).transpose()?;
        // Before the first thread starts: threads have capabilities of their own.
        confine().map_err(failed("give up capabilities"))?;
        let files = FileAccess::limit(&setup).map_err(failed("give up files"))?;
        let virtual_clock = clock.map(VirtualClock::beginning);
        let clock = virtual_clock.clone().map_or(Clock::Real(Instant::now()), Clock::Virtual);
        let wakers = (&sleepers.event_reader, sleepers.workers.clone());
        let kernel = kernel_tables(&descriptors, divided.then_some(routes_max), passed)?;
        // One that is started again has handlers and sockets to get first.
        let waits = setup.waits || !fresh;
        let (workers, opened) =
            start_on(&DataSetup { waits, ..setup.clone() }, tables, wakers, &kernel, clock)?;
        kernel.devices.drop_held();
        let (links, sockets) = links_and_sockets(opened)?;
        let port = Arc::clone(workers.port());
        let mut captured = CaptureRelay::new(ends.captured, &port.capture_readers());
        let wake = Arc::new(sleepers.server.clone());
        let sockets = SocketRelay::new(sockets, of_applications, ends.datagrams, wake);
        restore(&port, &restored)?;
        let state = ServerState::new(setup, links, restored);
        captured.set_open(state.captures());
        let lasting = listener.is_some();
        let limits = (routes_max, divided, files.unlimited());
        let (descriptors, lasting) = ((descriptors, sleepers), (lasting, kernel));
        let shared = ServerShared::new(state, port, descriptors, limits, lasting);
        Ok(Self {
            shared: Arc::new(shared),
            workers,
            clock: virtual_clock,
            requests: ends.requests,
            answers: ends.answers,
            listener,
            outstanding: Vec::new(),
            sockets,
            orders: TakenOrders::default(),
            captured,
            files,
            receives_at: (!fresh).then(|| Instant::now() + RECEIVES_WITHIN),
        })
    }

    /// Serves until it is told to stop; calls `ready` when it has run for `settled`.
    fn run(
        mut self,
        stream: UnixStream,
        (settled, ready): (Duration, impl FnMut()),
    ) -> Result<(), DataError> {
        adoption::start(&self.shared, stream, self.listener.take())?;
        let (mut octets, began, mut ready) = (Vec::new(), Instant::now(), Some(ready));
        let waker = self.shared.server().clone();
        while !waker.flags().is_stopped() {
            let mut any = false;
            while self.requests.take(&mut octets) {
                any = true;
                self.take(&octets);
            }
            self.finish(Duration::ZERO);
            if self.receives_at.is_some_and(|at| at <= Instant::now()) {
                self.receives_at = None;
                // Workers that have ended receive nothing.
                let _ended = self.shared.port().submit(PortRequest::Receive);
            }
            // The next control plane is told which devices are open, once they are.
            if self.outstanding.iter().all(|one| one.reopened.is_none()) {
                self.shared.end_turn();
            }
            for Outgoing { number, answer } in self.orders.answers(&self.sockets, QUICKLY) {
                self.answer(number, answer);
            }
            if self.sockets.relay() | self.captured.relay() {
                self.shared.answer_reader().wake();
                any = true;
            }
            if !any {
                let waits = !self.outstanding.is_empty()
                    || self.orders.are_executing()
                    || self.sockets.is_held()
                    || self.captured.is_open();
                let patience = if waits { LOOK_EVERY } else { PATIENCE };
                waker.sleep(patience, || !self.requests.is_empty() || self.sockets.has_work());
            }
            if began.elapsed() > settled
                && let Some(mut ready) = ready.take()
            {
                ready();
            }
        }
        self.workers.stop();
        Ok(())
    }

    /// Takes a message of the control plane.
    fn take(&mut self, octets: &[u8]) {
        match Incoming::of(octets) {
            Some(Incoming::Request { number, request }) => self.submit(number, request),
            Some(Incoming::SetClock(now)) => {
                if let Some(clock) = &self.clock {
                    clock.set(now);
                }
            }
            Some(Incoming::Adopted) => {
                // Those of a control plane that is gone, whose trace keeps others out.
                let _ended = self.shared.port().submit(PortRequest::EndTrace(None));
                let _closed = self.shared.port().submit(PortRequest::DropPrepared);
                self.outstanding.clear();
                self.orders.clear();
                self.sockets.close_all();
            }
            Some(Incoming::Sockets { number, order }) => {
                let outcome = self.sockets.order(order);
                self.orders.note(number, outcome);
                self.shared.lock().applications = self.sockets.applications();
            }
            // The versions were compared: somebody else has written to this memory.
            None => {}
        }
    }

    fn submit(&mut self, number: u64, request: PortRequest) {
        if let PortRequest::Prepare(order) | PortRequest::Reopen(order) = &request
            && let Some(reason) = self.files.refuses(&order.device.device)
        {
            let name = order.device.name.clone();
            return self.answer(number, Err(DataError::Reopen { name, reason }));
        }
        let (mut staged, mut reopened) = (None, None);
        match &request {
            PortRequest::Stage(orders) => staged = Some(self.shared.lock().resolved(orders)),
            PortRequest::Reopen(order) => reopened = Some(order.clone()),
            PortRequest::Commit(stage) => {
                let mut state = self.shared.lock();
                state.commit(*stage);
                self.captured.set_open(state.captures());
            }
            PortRequest::Receive | PortRequest::Begin => self.receives_at = None,
            PortRequest::SetLink { link, up } => self.shared.lock().set_link(*link, *up),
            PortRequest::FlushCaptures => self.captured.flush(self.shared.answer_reader()),
            _ => {}
        }
        let is_silent = request.is_silent();
        match self.shared.port().submit(request) {
            _ if is_silent => {}
            Ok(inner) => {
                self.outstanding.push(Outstanding { number, inner, staged, reopened });
                self.finish(QUICKLY);
            }
            Err(error) => self.answer(number, Err(error)),
        }
    }

    /// Sends the answers that there are; awaits the last request's for `patience`.
    fn finish(&mut self, patience: Duration) {
        let waiting = std::mem::take(&mut self.outstanding);
        let last = waiting.len();
        for (number, one) in (1..).zip(waiting) {
            let patience = if number == last { patience } else { Duration::ZERO };
            match self.shared.port().answer(one.inner, patience) {
                Err(DataError::Late) => self.outstanding.push(one),
                answer => {
                    self.note(&one, &answer);
                    self.answer(one.number, answer);
                }
            }
        }
    }

    /// Keeps what a later control plane is told.
    fn note(&self, of: &Outstanding, answer: &Result<PortAnswer, DataError>) {
        let mut state = self.shared.lock();
        match (answer, &of.staged, &of.reopened) {
            (Ok(PortAnswer::Staged(stage)), Some(orders), _) => state.stage(*stage, orders.clone()),
            (Ok(PortAnswer::Reopened(info)), _, Some(order)) => state.reopened(order, info),
            _ => {}
        }
    }

    fn answer(&mut self, number: u64, answer: Result<PortAnswer, DataError>) {
        // Who does not read the answers does not miss one.
        let _full = self.answers.send(&Outgoing { number, answer }.octets());
        self.shared.answer_reader().wake();
    }
}

/// Refuses an order of another version, whose other parts may mean something else.
fn check_version(version: &str) -> Result<(), DataError> {
    let (own, pid) = (handshake::process_version(), std::process::id());
    if version == own {
        return Ok(());
    }
    Err(refused(format!("the process {pid} is {own}, its control plane {version}")))
}

/// Maps the region, and gets all who sleep, who are awake.
fn join(
    descriptors: &Shared,
    routes_max: u32,
    fresh: bool,
) -> Result<(DataTables, Sleepers), DataError> {
    let tables = DataTables::attach(&descriptors.region, &Host::capacities(routes_max), fresh)
        .map_err(|error| refused(error.to_string()))?;
    let sleepers = descriptors.sleepers_of_data(&tables).map_err(failed("copy a descriptor"))?;
    for waker in sleepers.workers.iter().chain([&sleepers.server]) {
        waker.flags().reset();
    }
    Ok((tables, sleepers))
}

/// The process's ends of the rings.
struct RingEnds {
    requests: MessageReceiver,
    answers: MessageSender,
    /// Those that have arrived for the control plane's sockets, and those that these send.
    datagrams: (MessageSender, MessageReceiver),
    captured: MessageSender,
}

impl RingEnds {
    fn of(tables: &DataTables) -> Self {
        Self {
            requests: tables.requests(),
            answers: tables.answers(),
            datagrams: (tables.arrivals(), tables.departures()),
            captured: tables.captured(),
        }
    }
}

/// The application entities, with the reports that drivers send on.
fn entities(tables: &DataTables, passed: &PassedOn) -> Result<DataEntities, DataError> {
    let of_drivers = passed.maps.as_ref().ok().map(|maps| maps.driver_reports());
    let mut entities = tables.entities();
    entities.drivers =
        of_drivers.transpose().map_err(|error| refused(error.to_string()))?.flatten();
    Ok(entities)
}

/// What links have in the kernel: the table that divides those with room for `divided` routes, the
/// maps by which drivers forward, and devices to go on with.
fn kernel_tables(
    descriptors: &Shared,
    divided: Option<u32>,
    passed: PassedOn,
) -> Result<KernelTables, DataError> {
    let division = descriptors.divided(divided.is_some(), divided.unwrap_or_default());
    Ok(KernelTables {
        division: division.map_err(failed("copy a descriptor"))?.map(Arc::new),
        forwarding: DriverMaps::from(passed.maps),
        devices: OpenDevices::going_on_with(passed.held),
    })
}

/// All links, and the sockets of the first worker.
fn links_and_sockets(opened: Vec<Opened>) -> Result<(OpenLinks, Sockets), DataError> {
    let mut opened = opened.into_iter();
    let Opened { mut links, sockets, .. } = opened.next().ok_or(DataError::Ended)?;
    links.extend(opened.flat_map(|other| other.links));
    Ok((links, sockets))
}

/// Gives new workers the state of those before.
fn restore(port: &Arc<ThreadPort>, restored: &Restored) -> Result<(), DataError> {
    for link in &restored.down {
        port.submit(PortRequest::SetLink { link: *link, up: false })?;
    }
    if !restored.standing.is_empty()
        && let PortAnswer::Staged(stage) =
            port.ask(PortRequest::Stage(restored.standing.clone()))?
    {
        port.ask(PortRequest::Commit(stage))?;
    }
    Ok(())
}
