//! The control plane's end of the rings to a data plane in its own process.

use super::{
    adoption::{note_down, resolved},
    handshake::Restored,
    held::{HeldDevices, PassedDown},
    message::{Incoming, Outgoing},
};
use crate::{
    attachments::HandlerNow,
    captures::CaptureReaders,
    error::{DataError, refused},
    plain::Plain,
    port::{HandlerOrder, Port, PortAnswer, PortRequest, RequestNumber, StageNumber},
    reopen::Reopen,
    setup::{DataSetup, WorkerLink},
    waker::Waker,
};
use gatewright_link::ForwardingMaps;
use gatewright_packet::LinkIndex;
use gatewright_stack::Wake;
use gatewright_tables::{CounterTable, MessageSender};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The port of a data plane in a process of its own.
pub struct ProcessPort {
    requests: Mutex<MessageSender>,
    server: Waker,
    pending: Mutex<Pending>,
    arrived: Condvar,
    known: Mutex<Known>,
    counters: CounterTable,
    readers: Arc<CaptureReaders>,
    /// What its links have open.
    held: HeldDevices,
    /// The maps by which drivers forward; otherwise why there are none.
    maps: Mutex<Result<Arc<ForwardingMaps>, String>>,
    /// Set when another process runs, which has no sockets yet.
    pub(super) has_restarted: AtomicBool,
    /// Set when no other process is started until somebody asks.
    given_up: AtomicBool,
}

impl fmt::Debug for ProcessPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessPort({} workers)", self.known().setup.workers)
    }
}

/// Requests whose answers nobody has fetched: with more, the oldest is forgotten.
const PENDING_MAX: usize = 256;

/// Neighbour updates in one message: more are sent in several.
const UPDATES_AT_ONCE: usize = 1024;

/// Staged wirings that are known: the workers know as many.
const STAGED_MAX: usize = 8;

/// Requests and their answers.
struct Pending {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Whether the process runs.
    running: bool,
}

/// A request without an answer, or with one that nobody has fetched.
struct Waiting {
    answer: Option<Result<PortAnswer, DataError>>,
    staged: Option<Vec<HandlerOrder>>,
    reopened: Option<Box<Reopen>>,
}

/// What a process that comes after this one is to have.
struct Known {
    setup: DataSetup,
    restored: Restored,
    staged: BTreeMap<StageNumber, Vec<HandlerOrder>>,
    /// What it gives a later control plane.
    memo: String,
}

/// A poisoned lock is safe here: each change is whole before the next.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessPort {
    /// The port to a process that runs `setup`. Numbers of requests begin with `first`: no answer
    /// to an earlier control plane bears one of them.
    pub(super) fn new(
        (requests, server): (MessageSender, Waker),
        (setup, maps): (DataSetup, Result<Arc<ForwardingMaps>, String>),
        counters: CounterTable,
        first: u64,
    ) -> Self {
        let restored = Restored::default();
        let pending = Pending { next: first, waiting: BTreeMap::new(), running: true };
        Self {
            requests: Mutex::new(requests),
            server,
            pending: Mutex::new(pending),
            arrived: Condvar::new(),
            known: Mutex::new(Known {
                setup,
                restored,
                staged: BTreeMap::new(),
                memo: String::new(),
            }),
            counters,
            // As those of requests: handlers of an earlier control plane name others.
            readers: Arc::new(CaptureReaders::beginning_with(first)),
            held: HeldDevices::default(),
            maps: Mutex::new(maps),
            has_restarted: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        }
    }

    /// Wakes the process.
    pub(super) fn wake_server(&self) {
        self.server.wake();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// What a process that comes after this one is to have.
    pub(super) fn to_restore(&self) -> (DataSetup, Restored) {
        let known = self.known();
        (known.setup.clone(), known.restored.clone())
    }

    /// Sets the links that a command has taken down, in the process that runs.
    pub(super) fn set_down(&self, down: Vec<LinkIndex>) {
        self.known().restored.down = down;
    }

    /// Sets what a process, also one that comes after this one, gives a later control plane.
    pub(super) fn set_memo(&self, memo: String) {
        self.known().memo = memo;
    }

    /// What it gives a later control plane.
    pub(super) fn memo(&self) -> String {
        self.known().memo.clone()
    }

    /// What control holds of its links.
    pub(super) const fn held(&self) -> &HeldDevices {
        &self.held
    }

    /// Sets the maps of a process that comes after this one.
    pub(super) fn set_maps(&self, maps: Result<Arc<ForwardingMaps>, String>) {
        *lock(&self.maps) = maps;
    }

    /// What a process that comes after this one goes on with.
    pub(super) fn to_pass(&self) -> PassedDown {
        PassedDown { maps: lock(&self.maps).clone(), held: self.held.copies() }
    }

    /// Sets the links that a process that comes after this one is to have; returns those before.
    pub(super) fn replace_links(&self, links: Vec<WorkerLink>) -> Vec<WorkerLink> {
        std::mem::replace(&mut self.known().setup.links, links)
    }

    /// Whether a link is as `link` says.
    pub(crate) fn has_link(&self, link: &WorkerLink) -> bool {
        self.known().setup.links.contains(link)
    }

    /// The process has ended: nobody waits for its answers any more.
    pub(super) fn end(&self) {
        let mut pending = lock(&self.pending);
        pending.running = false;
        for waiting in pending.waiting.values_mut() {
            waiting.answer.get_or_insert(Err(DataError::Ended));
        }
        drop(pending);
        self.known().staged.clear();
        self.arrived.notify_all();
    }

    /// Another process runs in its place.
    pub(super) fn begin(&self) {
        self.given_up.store(false, Ordering::Release);
        lock(&self.pending).running = true;
        self.has_restarted.store(true, Ordering::Release);
    }

    /// Has a process that was started again receive frames, once it has its sockets.
    pub(super) fn receive_again(&self) {
        let request = {
            let known = self.known();
            match (known.restored.begun, known.setup.waits) {
                (true, _) => PortRequest::Begin,
                (false, false) => PortRequest::Receive,
                (false, true) => return,
            }
        };
        // One that has ended meanwhile is started again.
        let _ended = self.submit(request);
    }

    /// No other process will run in its place until somebody asks.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether no other process will run in its place.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// A number that no request has.
    pub(super) fn next_number(&self) -> u64 {
        let mut pending = lock(&self.pending);
        let number = pending.next;
        pending.next += 1;
        number
    }

    /// Whether the process runs.
    pub(super) fn is_running(&self) -> bool {
        lock(&self.pending).running
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &Incoming) -> Result<(), DataError> {
        let sent = lock(&self.requests).send(&message.octets());
        sent.map_err(|error| refused(format!("the data plane takes no more requests: {error}")))?;
        self.server.wake();
        Ok(())
    }

    /// Takes an answer if there is one.
    pub(super) fn take_answer(&self, answer: Outgoing) {
        let Outgoing { number, answer } = answer;
        self.note(number, &answer);
        if let Some(waiting) = lock(&self.pending).waiting.get_mut(&number) {
            waiting.answer = Some(answer);
        }
        self.arrived.notify_all();
    }

    /// Keeps what a later process is to have.
    fn note(&self, number: u64, answer: &Result<PortAnswer, DataError>) {
        let mut pending = lock(&self.pending);
        let Some(waiting) = pending.waiting.get_mut(&number) else { return };
        let (staged, reopened) = (waiting.staged.take(), waiting.reopened.take());
        drop(pending);
        let mut known = self.known();
        match (answer, staged, reopened) {
            (Ok(PortAnswer::Staged(stage)), Some(orders), _) => {
                if known.staged.len() >= STAGED_MAX {
                    known.staged.pop_first();
                }
                known.staged.insert(*stage, orders);
            }
            (Ok(PortAnswer::Reopened(info)), _, Some(order)) => {
                self.held.keep_open(order.device.device.index(), info);
                if let Some(link) = known.setup.links.get_mut(order.device.device.index().index()) {
                    *link = order.device;
                }
            }
            _ => {}
        }
    }

    /// Keeps what a later process is to have, of a request that is sent; returns what its answer
    /// decides.
    fn expect(&self, request: &PortRequest) -> Waiting {
        let (mut staged, mut reopened) = (None, None);
        let mut known = self.known();
        match request {
            PortRequest::Stage(orders) => {
                staged = Some(resolved(orders, &known.restored.standing));
            }
            PortRequest::Commit(stage) => {
                if let Some(standing) = known.staged.remove(stage) {
                    known.restored.standing = standing;
                }
            }
            PortRequest::Pace(pace) => known.setup.spin = pace.spin,
            PortRequest::Reopen(order) => {
                // Closed there, it is to be closed.
                self.held.release(&order.before.device);
                reopened = Some(order.clone());
            }
            PortRequest::DropPrepared => self.held.keep_those_of(&known.setup.links),
            PortRequest::SetLink { link, up } => note_down(&mut known.restored.down, *link, *up),
            PortRequest::Receive => known.setup.waits = false,
            PortRequest::Begin => known.restored.begun = true,
            _ => {}
        }
        Waiting { answer: None, staged, reopened }
    }

    /// Sends a request under a number of its own.
    fn send_request(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        let is_silent = request.is_silent();
        let waiting = self.expect(&request);
        let number = {
            let mut pending = lock(&self.pending);
            if !pending.running {
                return Err(DataError::Ended);
            }
            let number = pending.next;
            pending.next += 1;
            if !is_silent {
                if pending.waiting.len() >= PENDING_MAX {
                    pending.waiting.pop_first();
                }
                pending.waiting.insert(number, waiting);
            }
            number
        };
        self.send(&Incoming::Request { number, request })?;
        Ok(RequestNumber(number))
    }
}

impl Port for ProcessPort {
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        let PortRequest::Neighbours(updates) = request else { return self.send_request(request) };
        let mut last = None;
        for some in updates.chunks(UPDATES_AT_ONCE) {
            last = Some(self.send_request(PortRequest::Neighbours(some.to_vec()))?);
        }
        last.map_or_else(|| self.send_request(PortRequest::Neighbours(Vec::new())), Ok)
    }

    fn answer(&self, number: RequestNumber, patience: Duration) -> Result<PortAnswer, DataError> {
        let deadline = Instant::now() + patience;
        let mut pending = lock(&self.pending);
        loop {
            let Some(waiting) = pending.waiting.get_mut(&number.0) else {
                // An answer that says nothing is not sent.
                let is_known = number.0 < pending.next;
                return if is_known { Ok(PortAnswer::Done) } else { Err(DataError::Unknown) };
            };
            if let Some(answer) = waiting.answer.take() {
                pending.waiting.remove(&number.0);
                return answer;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DataError::Late);
            }
            let woken = self.arrived.wait_timeout(pending, left);
            (pending, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn handlers(&self) -> Vec<HandlerNow> {
        let sums = self.counters.sums();
        let now = |order: &HandlerOrder| match order {
            HandlerOrder::New(id, attachment, _) => {
                Some(HandlerNow::of(*id, *attachment, None, &sums))
            }
            HandlerOrder::Kept(_) => None,
        };
        self.known().restored.standing.iter().filter_map(now).collect()
    }

    fn capture_readers(&self) -> Arc<CaptureReaders> {
        Arc::clone(&self.readers)
    }
}
