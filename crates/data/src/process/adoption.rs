//! The data plane's process beside its control planes: the one that is there, its end, and the next.

use super::{
    handshake::{
        self, AdoptOrder, AdoptReport, OpenLinks, PeerMessage, Restored, Shared, Sleepers,
    },
    names::{self, is_own},
};
use crate::{
    error::{DataError, failed, refused},
    port::{HandlerOrder, HandlerValue, StageNumber},
    reopen::Reopen,
    setup::DataSetup,
    waker::Waker,
    workers::ThreadPort,
};
use gatewright_link::{KernelTables, LinkInfo};
use gatewright_packet::LinkIndex;
use gatewright_stack::{FoundApplication, Wake};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{SigSet, Signal},
};
use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// State that the threads of the process share.
pub(super) struct ServerShared {
    state: Mutex<ServerState>,
    port: Arc<ThreadPort>,
    descriptors: Shared,
    sleepers: Sleepers,
    routes_max: u32,
    /// Whether links are shared with the kernel.
    divided: bool,
    /// Why all files of its user may be opened, if they may.
    all_files: Option<String>,
    /// Whether a control plane is connected.
    connected: AtomicBool,
    /// The process of the control plane that is connected, or was last; 0 if the kernel does not say it.
    control: AtomicU32,
    /// Whether the process goes on without a control plane.
    lasting: bool,
    /// Times that all requests had been taken.
    turns: AtomicU64,
    /// Maps by which drivers forward, and what links have open.
    kernel: KernelTables,
}

impl ServerShared {
    pub(super) fn new(
        state: ServerState,
        port: Arc<ThreadPort>,
        (descriptors, sleepers): (Shared, Sleepers),
        (routes_max, divided, all_files): (u32, bool, Option<String>),
        (lasting, kernel): (bool, KernelTables),
    ) -> Self {
        let (state, connected) = (Mutex::new(state), AtomicBool::new(true));
        Self {
            state,
            port,
            descriptors,
            sleepers,
            routes_max,
            divided,
            all_files,
            connected,
            control: AtomicU32::new(0),
            lasting,
            turns: AtomicU64::new(0),
            kernel,
        }
    }

    /// Has a control plane hold what links have open, from now on.
    fn hold_devices(&self, sender: &PeerSender) {
        let sender = sender.clone();
        self.kernel.devices.tell(move |device| {
            let descriptors: Vec<_> = device.descriptors.iter().map(AsFd::as_fd).collect();
            // One that is gone holds nothing; its end is noticed elsewhere.
            let _gone = sender.tell(&PeerMessage::Device(device.facts.clone()), &descriptors);
        });
    }

    /// Notes the control plane that is connected.
    fn connect(&self, stream: &UnixStream) {
        self.control.store(names::process_of(stream), Ordering::Release);
        self.connected.store(true, Ordering::Release);
    }

    /// Why no other control plane may take over.
    fn has_control(&self) -> String {
        let process = std::process::id();
        let advice = match self.control.load(Ordering::Acquire) {
            0 => ": end that one first".to_owned(),
            control => format!(" (process {control}): `kill {control}` ends both"),
        };
        format!("the data plane (process {process}) has a control plane already{advice}")
    }

    /// Notes that all requests that there were have been taken, and devices that they open are open.
    pub(super) fn end_turn(&self) {
        self.turns.fetch_add(1, Ordering::Release);
    }

    /// Waits until what a control plane that is gone has requested is taken, so that the next one
    /// is told of what came of it. Returns whether it is.
    fn await_requests(&self) -> bool {
        let begun = self.turns.load(Ordering::Acquire);
        let deadline = Instant::now() + TAKEN_WITHIN;
        // The turn that runs may have looked before; the one after it has not.
        while self.turns.load(Ordering::Acquire) < begun + 2 {
            if Instant::now() > deadline {
                return false;
            }
            self.sleepers.server.wake();
            std::thread::sleep(TURN_EVERY);
        }
        true
    }

    /// A poisoned lock is safe here: each change is whole before the next.
    pub(super) fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn port(&self) -> &Arc<ThreadPort> {
        &self.port
    }

    /// Wakes the thread that serves requests.
    pub(super) const fn server(&self) -> &Waker {
        &self.sleepers.server
    }

    /// Wakes the control plane's reader of answers.
    pub(super) const fn answer_reader(&self) -> &Waker {
        &self.sleepers.answer_reader
    }

    /// Ends the process's loop.
    fn stop(&self) {
        self.sleepers.server.stop();
    }
}

/// Sends messages of several threads to the control plane, one after the other.
#[derive(Clone)]
struct PeerSender(Arc<Mutex<UnixStream>>);

/// Maximum time for a control plane to read a message when its socket is full.
const READ_WITHIN: Duration = Duration::from_secs(1);

impl PeerSender {
    fn over(stream: &UnixStream) -> io::Result<Self> {
        let stream = stream.try_clone()?;
        stream.set_write_timeout(Some(READ_WITHIN))?;
        Ok(Self(Arc::new(Mutex::new(stream))))
    }

    fn tell(&self, message: &PeerMessage, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        // A poisoned lock is safe here: a torn message makes control start another data plane.
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handshake::tell(&stream, message, descriptors)
    }
}

/// What a later control plane is told.
pub(super) struct ServerState {
    setup: DataSetup,
    pub(super) links: OpenLinks,
    /// The handlers in order, all of them as they were new.
    standing: Vec<HandlerOrder>,
    staged: BTreeMap<StageNumber, Vec<HandlerOrder>>,
    /// Links that a command has taken down.
    down: Vec<LinkIndex>,
    pub(super) applications: Vec<FoundApplication>,
    /// What the next control plane is given of this one's.
    memo: String,
}

/// Staged wirings that are known: the workers know as many.
const STAGED_MAX: usize = 8;

impl ServerState {
    pub(super) fn new(setup: DataSetup, links: OpenLinks, restored: Restored) -> Self {
        let Restored { standing, down, .. } = restored;
        let staged = BTreeMap::new();
        let (applications, memo) = (Vec::new(), String::new());
        Self { setup, links, standing, staged, down, applications, memo }
    }

    /// A command takes a link down, or up again.
    pub(super) fn set_link(&mut self, link: LinkIndex, up: bool) {
        note_down(&mut self.down, link, up);
    }

    /// Whether a handler captures.
    pub(super) fn captures(&self) -> bool {
        let captures = |order: &HandlerOrder| {
            matches!(order, HandlerOrder::New(_, _, HandlerValue::Capture { .. }))
        };
        self.standing.iter().any(captures)
    }

    /// The orders with each kept handler as it was ordered when it was new.
    pub(super) fn resolved(&self, orders: &[HandlerOrder]) -> Vec<HandlerOrder> {
        resolved(orders, &self.standing)
    }

    /// Keeps the handlers of a staged wiring.
    pub(super) fn stage(&mut self, stage: StageNumber, orders: Vec<HandlerOrder>) {
        if self.staged.len() >= STAGED_MAX {
            self.staged.pop_first();
        }
        self.staged.insert(stage, orders);
    }

    /// The handlers of a staged wiring stand now.
    pub(super) fn commit(&mut self, stage: StageNumber) {
        if let Some(standing) = self.staged.remove(&stage) {
            self.standing = standing;
        }
    }

    /// A link was opened on another device.
    pub(super) fn reopened(&mut self, order: &Reopen, info: &LinkInfo) {
        let index = order.device.device.index();
        if let Some(link) = self.setup.links.get_mut(index.index()) {
            *link = order.device.clone();
        }
        self.links.retain(|(link, _)| *link != index);
        self.links.push((index, info.clone()));
    }
}

/// Takes a link out of those that a command has taken down, or adds it.
pub(super) fn note_down(down: &mut Vec<LinkIndex>, link: LinkIndex, up: bool) {
    down.retain(|other| *other != link);
    if !up {
        down.push(link);
    }
}

/// The orders with each kept handler as it was ordered in `standing`.
pub(super) fn resolved(orders: &[HandlerOrder], standing: &[HandlerOrder]) -> Vec<HandlerOrder> {
    let resolve = |order: &HandlerOrder| match order {
        HandlerOrder::Kept(id) => standing
            .iter()
            .find(|one| matches!(one, HandlerOrder::New(known, ..) if known == id))
            .cloned(),
        new @ HandlerOrder::New(..) => Some(new.clone()),
    };
    orders.iter().filter_map(resolve).collect()
}

/// Starts the threads beside that of the requests.
pub(super) fn start(
    shared: &Arc<ServerShared>,
    stream: UnixStream,
    listener: Option<UnixListener>,
) -> Result<(), DataError> {
    let sender = PeerSender::over(&stream).map_err(failed("copy a descriptor"))?;
    shared.connect(&stream);
    shared.hold_devices(&sender);
    start_thread("connection", shared, move |shared| watch(shared, &stream, &sender))?;
    start_thread("signals", shared, await_signal)?;
    if let Some(listener) = listener {
        start_thread("adoption", shared, move |shared| accept(shared, &listener))?;
    }
    Ok(())
}

fn start_thread(
    name: &str,
    shared: &Arc<ServerShared>,
    run: impl FnOnce(&Arc<ServerShared>) + Send + 'static,
) -> Result<(), DataError> {
    let shared = Arc::clone(shared);
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
    started.map(drop).map_err(failed("start a thread"))
}

/// Refuses to start for a control plane that has died since it gave the order.
pub(super) fn check_control(stream: &UnixStream) -> Result<(), DataError> {
    // The end is told without being asked for.
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(ready) if ready > 0 => Err(refused("its control plane has ended".to_owned())),
        _ => Ok(()),
    }
}

/// Listens for later control planes.
pub(super) fn listen(name: &str, control: &UnixStream) -> Result<UnixListener, DataError> {
    let deadline = Instant::now() + OTHER_GONE_WITHIN;
    while let Some(other) = names::connect(name)? {
        check_control(control)?;
        if Instant::now() > deadline {
            let process = other.process;
            return Err(refused(format!(
                "another data plane (process {process}) runs for {name} already"
            )));
        }
        drop(other);
        std::thread::sleep(LOOK_EVERY);
    }
    names::bind(name).map_err(failed("listen for a later control plane"))
}

/// How long another data plane of the same name may take to end: one whose control plane died while
/// it started ends when it cannot report.
const OTHER_GONE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Holds the signals that end the process back from all threads that start from here.
pub(super) fn hold_signals() -> Result<(), DataError> {
    let held = stop_signals().thread_block();
    held.map_err(|errno| failed("hold signals back")(errno.into()))
}

fn stop_signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals
}

/// Ends the process as a service manager asks.
fn await_signal(shared: &Arc<ServerShared>) {
    // It fails for a signal that does not exist.
    let _signal = stop_signals().wait();
    shared.stop();
}

/// Does what the control plane says, and waits for its end.
fn watch(shared: &Arc<ServerShared>, stream: &UnixStream, sender: &PeerSender) {
    loop {
        match handshake::hear_peer(stream) {
            Ok((PeerMessage::Stop, _)) => return shared.stop(),
            Ok((PeerMessage::Maps(shape), descriptors)) => {
                let maps = handshake::received_maps(&shape, descriptors);
                let maps = maps.ok_or_else(|| "they are not those of a program".to_owned());
                let exchanged = maps.and_then(|maps| shared.kernel.forwarding.exchange(maps));
                let taken = PeerMessage::MapsTaken(exchanged.err().unwrap_or_default());
                let _gone = sender.tell(&taken, &[]);
            }
            Ok((PeerMessage::Memo(text), _)) => shared.lock().memo = text,
            Ok((PeerMessage::MapsTaken(_) | PeerMessage::Device(_), _)) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    shared.kernel.devices.tell_nobody();
    shared.connected.store(false, Ordering::Release);
    if !shared.lasting {
        shared.stop();
    }
}

/// Lets a later control plane take over.
fn accept(shared: &Arc<ServerShared>, listener: &UnixListener) {
    for stream in listener.incoming().map_while(Result::ok) {
        // A stranger that connects and says nothing must not keep others out.
        let _set = stream.set_read_timeout(Some(HELLO_WITHIN));
        if !is_own(&stream) || !matches!(adopt(shared, &stream), Ok(true)) {
            continue;
        }
        let _set = stream.set_read_timeout(None);
        let Ok(sender) = PeerSender::over(&stream) else { continue };
        shared.connect(&stream);
        shared.hold_devices(&sender);
        let watched =
            start_thread("connection", shared, move |shared| watch(shared, &stream, &sender));
        if watched.is_err() {
            shared.kernel.devices.tell_nobody();
            shared.connected.store(false, Ordering::Release);
        }
    }
}

/// Maximum time for the first message of a control plane.
const HELLO_WITHIN: Duration = Duration::from_secs(2);

/// Maximum time in which the requests of a control plane that is gone are taken.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
const TURN_EVERY: Duration = Duration::from_micros(200);

/// Answers a control plane that wants to take over; returns whether it has.
fn adopt(shared: &Arc<ServerShared>, stream: &UnixStream) -> io::Result<bool> {
    let order: AdoptOrder = handshake::hear(stream)?;
    let process = std::process::id();
    let own = handshake::process_version();
    let refusal = if order.version != own {
        Some(format!("the data plane (process {process}) is {own}, this is {}", order.version))
    } else if shared.connected.load(Ordering::Acquire) {
        Some(shared.has_control())
    } else if !shared.await_requests() {
        Some(format!(
            "the data plane (process {process}) is busy with its last control plane's requests"
        ))
    } else {
        None
    };
    if let Some(reason) = refusal {
        let report: Result<AdoptReport, DataError> = Err(refused(reason));
        handshake::say(stream, &report, None)?;
        return Ok(false);
    }
    let state = shared.lock();
    let report: Result<AdoptReport, DataError> = Ok(AdoptReport {
        process,
        routes_max: shared.routes_max,
        setup: state.setup.clone(),
        links: state.links.clone(),
        standing: state.standing.clone(),
        down: state.down.clone(),
        applications: state.applications.clone(),
        divided: shared.divided,
        all_files: shared.all_files.clone(),
        memo: state.memo.clone(),
    });
    drop(state);
    handshake::say(stream, &report, Some(&shared.descriptors))?;
    Ok(true)
}
