//! The control plane's side of the data plane's process: starts it, finds one that runs, and starts
//! it again when it dies.

use super::{
    arrived::arrived,
    connection::{
        Asked, Connection, MEMO_OCTETS_MAX, Now, STOPPED_WITHIN, await_end, has_ended, launch,
    },
    handshake::{
        self, AdoptOrder, AdoptReport, OpenLinks, PeerMessage, Restored, Shared, Sleepers,
        StartOrder, StartedPlane,
    },
    held::PassedDown,
    message::Incoming,
    names::{self, ConnectedPlane},
    port::ProcessPort,
    uplink::Uplink,
};
use crate::{
    error::{DataError, failed, refused},
    events::EventQueue,
    port::{HandlerOrder, Port},
    setup::{DataSetup, WorkerLink},
    start::{first_plan, waker, worker_wakers},
    waker::Waker,
    workers::AllWorkers,
};
use gatewright_histogram::Histogram;
use gatewright_link::{Division, ForwardingMaps};
use gatewright_packet::LinkIndex;
use gatewright_stack::{AttachmentId, FoundApplication, Host, Plan, Sockets, Wake};
use gatewright_tables::WorkerHistograms;
use std::{
    collections::VecDeque,
    ffi::OsString,
    fmt, io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::PathBuf,
    sync::{Arc, PoisonError, atomic::Ordering, mpsc::sync_channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How the data plane's process is started: a program that calls [`serve`](super::serve).
#[derive(Clone, Debug)]
pub struct ProcessCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The name by which a later control plane finds the process; without one the process ends with
    /// its control plane.
    pub name: String,
    /// Maximum routes of each family in the host's tables.
    pub routes_max: u32,
    /// A virtual time to begin with; real time if there is none.
    pub clock: Option<Duration>,
    /// Whether links are shared with the kernel; [`DataProcess::start`] sets it.
    pub divided: bool,
    /// The maps by which drivers forward; otherwise why there are none.
    pub maps: Result<Arc<ForwardingMaps>, String>,
}

/// What happened to the process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ProcessEvent {
    /// It has died, and is started again.
    Died,
    /// It runs again.
    Restarted(Downtime),
    /// It was ended by an order, and another runs in its place.
    Exchanged(Downtime),
    /// It is not started again, for this reason.
    GivenUp(String),
}

/// The time without a data plane's process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Downtime {
    /// From its end until the next one has its links open.
    pub time: Duration,
    /// Frames that the links' interfaces received meanwhile.
    pub frames: u64,
}

/// Who is told of [`ProcessEvent`]s.
type Watch = Box<dyn Fn(ProcessEvent) + Send>;

/// A data plane that runs in a process of its own, as its control plane has it.
pub struct DataProcess {
    port: Arc<ProcessPort>,
    wakers: Vec<Waker>,
    sojourns: WorkerHistograms,
    answer_reader: Waker,
    connection: Arc<Connection>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for DataProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataProcess({})", self.id())
    }
}

/// A data plane that has begun, or was found.
pub struct ProcessStarted {
    /// The process.
    pub process: DataProcess,
    /// The plan of its layers.
    pub plan: Plan,
    /// Sockets of its stack.
    pub sockets: Sockets,
    /// The links that it has open.
    pub links: OpenLinks,
    /// What layers and links tell.
    pub events: EventQueue,
    /// Why the process may open all files of its user, if it may.
    pub all_files: Option<String>,
}

/// A data plane that runs without a control plane.
pub struct FoundPlane {
    stream: UnixStream,
    shared: Shared,
    report: AdoptReport,
}

impl fmt::Debug for FoundPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FoundPlane({})", self.report.process)
    }
}

/// Deaths within [`DEATHS_WITHIN`] after which the process is not started again.
const DEATHS_MAX: usize = 5;
const DEATHS_WITHIN: Duration = Duration::from_mins(1);

/// Maximum time in which a process that died is started again: the kernel frees the queues of its
/// sockets within a second.
const RESTARTED_WITHIN: Duration = Duration::from_secs(5);
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// Attempts to go on with devices of the last process; then its links are opened anew.
const HELD_ATTEMPTS: u32 = 2;

/// The same for a process that was given up and is started by an order: nothing of the last one is
/// left.
const ORDERED_WITHIN: Duration = Duration::from_secs(1);

/// Maximum time for a data plane that was found to answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Maximum time for a data plane to find that its control plane has gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

impl FoundPlane {
    /// Looks for the data plane of this name.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] if it runs and has a control plane, does not answer, or is of another
    /// version.
    pub fn find(name: &str) -> Result<Option<Self>, DataError> {
        let deadline = Instant::now() + GONE_WITHIN;
        loop {
            let Some(ConnectedPlane { stream, process }) = names::connect(name)? else {
                return Ok(None);
            };
            match ask(&stream) {
                Ok((Ok(report), Some(shared))) => {
                    // Not what it says of itself: this number is killed if it does not answer.
                    let report = AdoptReport { process, ..report };
                    return Ok(Some(Self { stream, shared, report }));
                }
                // It may have found out in a moment that its control plane is gone.
                Ok((Err(_), _)) if Instant::now() < deadline => std::thread::sleep(RETRY_EVERY),
                Ok((Err(error), _)) => return Err(error),
                Err(error) if is_late(&error) => return Err(standing_still(name, process)),
                // It has ended between two words.
                Err(error) if has_ended(&error) && Instant::now() < deadline => {
                    std::thread::sleep(RETRY_EVERY);
                }
                Ok((Ok(_), None)) | Err(_) => {
                    return Err(refused(format!(
                        "the data plane of {name} is of another version: end it first"
                    )));
                }
            }
        }
    }

    /// Its process.
    pub const fn process(&self) -> u32 {
        self.report.process
    }

    /// Its links and workers.
    pub const fn setup(&self) -> &DataSetup {
        &self.report.setup
    }

    /// The names of its links by their places; places without a link have no name.
    pub fn link_names(&self) -> Vec<String> {
        self.setup().links.iter().map(|link| link.name.clone()).collect()
    }

    /// Its links that a command has taken down.
    pub fn down(&self) -> &[LinkIndex] {
        &self.report.down
    }

    /// What the control plane before has kept there ([`DataProcess::keep_memo`]); empty if nothing.
    pub fn memo(&self) -> &str {
        &self.report.memo
    }

    /// Maximum routes of each family in its tables.
    pub const fn routes_max(&self) -> u32 {
        self.report.routes_max
    }

    /// The table that divides links shared with the kernel, if there are any.
    ///
    /// # Errors
    ///
    /// [`DataError::System`] if no descriptor is left.
    pub fn division(&self) -> Result<Option<Division>, DataError> {
        let division = self.shared.divided(self.report.divided, self.report.routes_max);
        division.map_err(failed("copy a descriptor"))
    }

    /// The descriptor of its tables.
    pub fn tables(&self) -> impl AsFd {
        &self.shared.region
    }

    /// The first id that no handler there has.
    pub fn next_id(&self) -> AttachmentId {
        let id = |order: &HandlerOrder| match order {
            HandlerOrder::New(id, ..) | HandlerOrder::Kept(id) => id.0,
        };
        let ids = self.report.standing.iter().map(id);
        AttachmentId(ids.max().map_or(1, |last| last.saturating_add(1)))
    }

    /// Tells it to end, and waits until it has.
    pub fn stop(self) {
        let _gone = handshake::tell(&self.stream, &PeerMessage::Stop, &[]);
        await_end(&self.stream);
    }
}

/// Asks a data plane to be adopted.
fn ask(stream: &UnixStream) -> io::Result<(Result<AdoptReport, DataError>, Option<Shared>)> {
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    stream.set_write_timeout(Some(ANSWERED_WITHIN))?;
    let order = AdoptOrder { version: handshake::process_version() };
    let asked = handshake::say(stream, &order, None)
        .and_then(|()| handshake::hear_shared::<Result<AdoptReport, DataError>>(stream))?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    Ok(asked)
}

/// Whether nothing has come, or gone, in time.
fn is_late(error: &io::Error) -> bool {
    use io::ErrorKind::{TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock)
}

fn standing_still(name: &str, process: u32) -> DataError {
    refused(format!(
        "the data plane of {name} (process {process}) has not answered within {} s: if it is \
         stopped, `kill -CONT {process}` lets it go on, and else `kill -KILL {process}` ends it; \
         then start again",
        ANSWERED_WITHIN.as_secs()
    ))
}

impl DataProcess {
    /// Starts the process over the tables of `host`, which are shared; `watch` is told what happens
    /// to it.
    ///
    /// # Errors
    ///
    /// [`DataError`] names the link or resource that failed.
    pub fn start(
        command: ProcessCommand,
        setup: &DataSetup,
        (host, division): (&mut Host, Option<&Division>),
        watch: impl Fn(ProcessEvent) + Send + 'static,
    ) -> Result<ProcessStarted, DataError> {
        let region = host.descriptor().ok_or_else(|| refused(NOT_SHARED.to_owned()))?;
        let region = region.try_clone_to_owned().map_err(failed("copy a descriptor"))?;
        let tables = host.tables_mut();
        let sleepers = Sleepers {
            event_reader: waker(tables.event_reader())?,
            server: waker(tables.server())?,
            answer_reader: waker(tables.answer_reader())?,
            workers: worker_wakers(setup, &tables.wakers)?,
        };
        let shared =
            Shared::of(region.as_fd(), division, &sleepers).map_err(failed("copy a descriptor"))?;
        let command = ProcessCommand { divided: division.is_some(), ..command };
        let passed = PassedDown { maps: command.maps.clone(), held: Vec::new() };
        let order = command.order((setup.clone(), Restored::default()), true, &passed);
        let (now, started) = launch(&command, &order, (&shared, &passed))?;
        let state = (now, started, Vec::new());
        let first = |_: &ProcessPort| Ok(());
        Self::over(host, setup, (sleepers, shared), (state, first), (command, Box::new(watch)))
    }

    /// Takes over a data plane that was found, whose tables `host` has adopted. One that has died since is
    /// started again, as any other.
    ///
    /// # Errors
    ///
    /// [`DataError`] if a descriptor or thread is missing.
    pub fn adopt(
        found: FoundPlane,
        command: ProcessCommand,
        host: &mut Host,
        watch: impl Fn(ProcessEvent) + Send + 'static,
    ) -> Result<ProcessStarted, DataError> {
        let FoundPlane { stream, shared, report } = found;
        let command = ProcessCommand { divided: report.divided, ..command };
        let tables = host.tables_mut();
        let sleepers = shared.sleepers_of_control(tables).map_err(failed("copy a descriptor"))?;
        for waker in [&sleepers.event_reader, &sleepers.answer_reader] {
            waker.flags().reset();
        }
        for mut ring in [tables.answers(), tables.captured(), tables.arrivals()] {
            ring.clear();
        }
        let AdoptReport { process, setup, links, standing, down, applications, .. } = report;
        let AdoptReport { all_files, memo, .. } = report;
        let now = Now { stream, process, child: None, links: links.clone() };
        let state = (now, StartedPlane { links, all_files }, applications);
        // Before its end is noticed: the next one is ordered by it, and reads this message first.
        let first = |port: &ProcessPort| {
            port.inherit(standing, down, memo);
            port.send(&Incoming::Adopted)
        };
        Self::over(host, &setup, (sleepers, shared), (state, first), (command, Box::new(watch)))
    }

    fn over(
        host: &mut Host,
        setup: &DataSetup,
        (sleepers, shared): (Sleepers, Shared),
        ((now, began, applications), first): (
            (Now, StartedPlane, Vec<FoundApplication>),
            impl FnOnce(&ProcessPort) -> Result<(), DataError>,
        ),
        (command, watch): (ProcessCommand, Watch),
    ) -> Result<ProcessStarted, DataError> {
        let readers = host.tables();
        let tables = host.tables_mut();
        let Sleepers { event_reader, server, answer_reader, workers: wakers } = sleepers;
        let events = EventQueue::new(tables.events(setup.workers), event_reader);
        // Answers to an earlier control plane bear the numbers of its process.
        let numbers = u64::from(std::process::id()) << u32::BITS;
        let requests = (tables.requests(), server);
        let known = (setup.clone(), command.maps.clone());
        let port = ProcessPort::new(requests, known, readers.counters.clone(), numbers);
        first(&port)?;
        let port = Arc::new(port);
        let captures = port.capture_readers();
        let (sockets, uplink) =
            Uplink::new(Arc::clone(&port), tables, captures, &answer_reader, applications);
        let connection = Arc::new(Connection::new(now));
        let reader = answer_reader.clone();
        let reading = start_thread("answers", move || uplink.run(&reader))?;
        let supervisor = Supervisor {
            port: Arc::clone(&port),
            connection: Arc::clone(&connection),
            shared,
            answer_reader: answer_reader.clone(),
            command,
            watch,
            deaths: VecDeque::new(),
        };
        let supervising = start_thread("supervisor", move || supervisor.run())?;
        let plan = first_plan(setup);
        let sojourns = readers.sojourns;
        let threads = vec![reading, supervising];
        let process = Self { port, wakers, sojourns, answer_reader, connection, threads };
        let StartedPlane { links, all_files } = began;
        Ok(ProcessStarted { process, plan, sockets, links, events, all_files })
    }

    /// Its port.
    pub const fn port(&self) -> &Arc<ProcessPort> {
        &self.port
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.connection.now().process
    }

    /// The number of workers.
    pub fn len(&self) -> usize {
        self.wakers.len()
    }

    /// Whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.port.is_running()
    }

    /// Whether it has died so often that no other is started until somebody asks.
    pub fn is_given_up(&self) -> bool {
        self.port.is_given_up()
    }

    /// Starts a process in place of the one that was given up, with the links that it had; with
    /// `links` in their places if it does not start so.
    ///
    /// # Errors
    ///
    /// Why it does not start with either.
    pub fn start_again(&self, links: &[WorkerLink]) -> Result<(), DataError> {
        if self.exchange().is_ok() {
            return Ok(());
        }
        let before = self.port.replace_links(links.to_vec());
        let started = self.exchange();
        if started.is_err() {
            self.port.replace_links(before);
        }
        started.map(drop)
    }

    /// Has drivers forward by other maps, and waits until they do; a later process has these, too.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] names the drivers that forward nothing more; [`DataError::Late`] if
    /// the process has not answered, [`DataError::Ended`] if it has ended instead and no other comes.
    pub fn exchange_maps(&self, maps: &Arc<ForwardingMaps>) -> Result<(), DataError> {
        self.port.set_maps(Ok(Arc::clone(maps)));
        loop {
            let process = self.port.process();
            match self.connection.exchange_maps(maps) {
                // The next one may have been ordered with those of before.
                Err(DataError::Ended) if self.port.await_after(process) => {}
                exchanged => return exchanged,
            }
        }
    }

    /// Has the process, and each that comes after it, give a later control plane that adopts it this
    /// memo ([`FoundPlane::memo`]), in place of what was there.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] above 64 KiB: then there is none, as the one before is outdated;
    /// [`DataError::Late`] or [`DataError::System`] if the process that runs does not take it now: it is
    /// passed as soon as it does.
    pub fn keep_memo(&self, memo: &str) -> Result<(), DataError> {
        let octets = memo.len();
        let fits = octets <= MEMO_OCTETS_MAX;
        self.port.set_memo(if fits { memo.to_owned() } else { String::new() });
        // One that is started in place of one that is gone gets it then.
        if self.is_running() {
            self.connection.tell_memo(|| self.port.memo())?;
        }
        if !fits {
            return Err(refused(format!("it has {octets} octets, at most {MEMO_OCTETS_MAX}")));
        }
        Ok(())
    }

    /// The links that the running process has open.
    pub fn open_links(&self) -> OpenLinks {
        self.connection.now().links.clone()
    }

    /// Sojourn times of packets in all workers, in nanoseconds.
    pub fn sojourn(&self) -> Histogram {
        self.sojourns.read(self.len())
    }

    /// The waker of each worker.
    pub fn wakers(&self) -> &[Waker] {
        &self.wakers
    }

    /// Wakes all workers, from any thread.
    pub fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(AllWorkers(self.wakers.clone()))
    }

    /// Sets the clock of workers in virtual time.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] if the data plane takes no requests.
    pub fn set_clock(&self, now: Duration) -> Result<(), DataError> {
        self.port.send(&Incoming::SetClock(now))
    }

    /// Ends the process at once, and starts another in its place, with all that it had; or starts one
    /// in place of the one that was given up.
    ///
    /// # Errors
    ///
    /// [`DataError::Busy`] while another exchange is under way; [`DataError::Ended`] if the process
    /// has died and is just started again; else why the other one does not start.
    pub fn exchange(&self) -> Result<Downtime, DataError> {
        if !self.is_running() && !self.is_given_up() {
            return Err(DataError::Ended);
        }
        let (tell, told) = sync_channel(1);
        {
            let mut exchange = self.connection.exchange();
            if exchange.is_some() {
                return Err(DataError::Busy);
            }
            *exchange = Some(tell);
        }
        if self.is_running() {
            self.connection.kill();
        }
        self.connection.asked.notify_all();
        let within = RESTARTED_WITHIN + STOPPED_WITHIN;
        told.recv_timeout(within).map_err(|_| DataError::Ended)?
    }

    /// Stops the process and waits until it has ended; one that does not end is killed.
    pub fn stop(&mut self) {
        if self.connection.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        self.port.be_last();
        self.connection.tell_stop();
        self.answer_reader.stop();
        // The supervisor may wait for an order; it looks at the flag with the lock held.
        drop(self.connection.exchange());
        self.connection.asked.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _panicked = thread.join();
        }
        self.port.end();
        self.port.held().clear();
    }
}

impl Wake for DataProcess {
    fn wake(&self) {
        self.wakers.iter().for_each(Wake::wake);
    }
}

impl Drop for DataProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

const NOT_SHARED: &str = "the tables are in memory that no other process can have";

impl ProcessCommand {
    fn order(
        &self,
        (setup, restored): (DataSetup, Restored),
        fresh: bool,
        passed: &PassedDown,
    ) -> StartOrder {
        StartOrder {
            version: handshake::process_version(),
            name: self.name.clone(),
            routes_max: self.routes_max,
            fresh,
            clock: self.clock,
            divided: self.divided,
            setup,
            restored,
            no_maps: passed.no_maps(),
            passed: passed.len(),
        }
    }
}

fn start_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, DataError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map_err(failed("start a thread"))
}

/// Waits for the end of the process, and starts it again.
struct Supervisor {
    port: Arc<ProcessPort>,
    connection: Arc<Connection>,
    shared: Shared,
    answer_reader: Waker,
    command: ProcessCommand,
    watch: Watch,
    /// When it died, within the last minute.
    deaths: VecDeque<Instant>,
}

impl Supervisor {
    fn run(mut self) {
        loop {
            self.connection.await_end(|device| self.port.held().hold(device), || self.port.memo());
            if self.is_stopping() {
                return;
            }
            self.port.end();
            let died = Instant::now();
            let before = arrived(&self.port.setup());
            let exchange = self.connection.exchange().take();
            let reason = match exchange {
                Some(asked) => self.exchange(&asked, (died, before), RESTARTED_WITHIN).err(),
                None => self.revive(died, before),
            };
            if let Some(reason) = reason {
                self.give_up(reason);
                if !self.await_order(died, before) {
                    return;
                }
            }
            if self.is_stopping() && !self.port.is_running() {
                return;
            }
        }
    }

    /// Starts another process in place of the one that has died; returns why not, if none runs.
    fn revive(&mut self, died: Instant, before: u64) -> Option<String> {
        self.deaths.retain(|before| died.duration_since(*before) < DEATHS_WITHIN);
        self.deaths.push_back(died);
        (self.watch)(ProcessEvent::Died);
        if self.deaths.len() >= DEATHS_MAX {
            return Some(format!("it has died {DEATHS_MAX} times in a minute"));
        }
        match self.restart(RESTARTED_WITHIN) {
            Ok(()) => (self.watch)(ProcessEvent::Restarted(self.downtime(died, before))),
            Err(_) if self.is_stopping() => {}
            Err(error) => return Some(error.to_string()),
        }
        None
    }

    /// Starts another process as `asked`, in place of one that has ended at `died`; else says why
    /// not.
    fn exchange(
        &self,
        asked: &Asked,
        (died, before): (Instant, u64),
        within: Duration,
    ) -> Result<(), String> {
        let outcome = self.restart(within).map(|()| self.downtime(died, before));
        let said = match &outcome {
            Ok(downtime) => {
                (self.watch)(ProcessEvent::Exchanged(*downtime));
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        // Who has waited for too long does not wait any more.
        let _unwanted = asked.try_send(outcome);
        said
    }

    /// Waits until somebody asks for another process in place of the one that was given up, and it
    /// runs; returns whether it does, and not the end has come.
    fn await_order(&mut self, died: Instant, before: u64) -> bool {
        loop {
            let mut exchange = self.connection.exchange();
            while exchange.is_none() && !self.is_stopping() {
                let woken = self.connection.asked.wait(exchange);
                exchange = woken.unwrap_or_else(PoisonError::into_inner);
            }
            let asked = exchange.take();
            drop(exchange);
            let Some(asked) = asked.filter(|_| !self.is_stopping()) else { return false };
            // What the operator has changed may have been the cause.
            self.deaths.clear();
            match self.exchange(&asked, (died, before), ORDERED_WITHIN) {
                Ok(()) => return true,
                Err(reason) => (self.watch)(ProcessEvent::GivenUp(reason)),
            }
        }
    }

    /// The time since it died at `died`, when its interfaces had received `before` frames.
    fn downtime(&self, died: Instant, before: u64) -> Downtime {
        let frames = arrived(&self.port.setup()).saturating_sub(before);
        Downtime { time: died.elapsed(), frames }
    }

    fn give_up(&self, reason: String) {
        self.port.give_up();
        self.port.held().keep_forwarding();
        // Who waits for it waits no longer.
        self.answer_reader.wake();
        (self.watch)(ProcessEvent::GivenUp(reason));
    }

    fn is_stopping(&self) -> bool {
        self.connection.is_stopping()
    }

    /// Starts the process again with what the last one had.
    fn restart(&self, within: Duration) -> Result<(), DataError> {
        let began = Instant::now();
        for attempt in 1_u32.. {
            let passed = self.port.to_pass();
            let order = self.command.order(self.port.order_next(), false, &passed);
            match launch(&self.command, &order, (&self.shared, &passed)) {
                Ok((now, _)) => {
                    *self.connection.now() = now;
                    // It tells of those that it has gone on with.
                    self.port.held().clear();
                    self.port.begin();
                    // One that does not take it has ended, or takes it later.
                    let _untold = self.connection.tell_memo(|| self.port.memo());
                    // Who has sockets there opens them anew.
                    self.answer_reader.wake();
                    if self.is_stopping() {
                        // It was told to the one before.
                        self.connection.tell_stop();
                    }
                    return Ok(());
                }
                // The kernel may not have freed the queues of the last one's sockets yet.
                Err(_) if began.elapsed() < within && !self.is_stopping() => {
                    if attempt >= HELD_ATTEMPTS {
                        self.port.held().clear();
                    }
                    std::thread::sleep(RETRY_EVERY);
                }
                Err(error) => return Err(error),
            }
        }
        Err(DataError::Ended)
    }
}
