//! The control plane's end of the rings to a data plane in its own process.

use super::{
    adoption::note_down,
    handshake::Restored,
    held::{HeldDevices, PassedDown},
    known::{Known, NotedCommit},
    message::{Incoming, Outgoing},
};
use crate::{
    attachments::HandlerNow,
    captures::CaptureReaders,
    error::{DataError, refused},
    neighbours::NeighbourUpdate,
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

/// Maximum time until another process runs in place of one that has ended, or it is known that none
/// will.
const NEXT_WITHIN: Duration = Duration::from_secs(10);

/// Requests and their answers.
struct Pending {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// Whether the process runs.
    running: bool,
    /// Which process it is, of those that this control plane has had.
    process: ProcessNumber,
    /// Whether no other process comes after the one that has ended.
    is_last: bool,
}

/// The number of a process, in the order in which they have run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ProcessNumber(u64);

/// A request without an answer, or with one that nobody has fetched.
struct Waiting {
    answer: Option<Result<PortAnswer, DataError>>,
    staged: Option<Vec<HandlerOrder>>,
    reopened: Option<Box<Reopen>>,
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
        let pending = Pending {
            next: first,
            waiting: BTreeMap::new(),
            running: true,
            process: ProcessNumber(0),
            is_last: false,
        };
        Self {
            requests: Mutex::new(requests),
            server,
            pending: Mutex::new(pending),
            arrived: Condvar::new(),
            known: Mutex::new(Known::new(setup)),
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

    /// The links and workers of the process that runs, or of the one that comes after it.
    pub(super) fn setup(&self) -> DataSetup {
        self.known().setup.clone()
    }

    /// What the next process is ordered to begin with.
    pub(super) fn order_next(&self) -> (DataSetup, Restored) {
        self.known().order_next()
    }

    /// Goes on with what an earlier control plane has left: its handlers until the first commit, the
    /// links that it has taken down, and what it wanted a later one to have.
    pub(super) fn inherit(&self, standing: Vec<HandlerOrder>, down: Vec<LinkIndex>, memo: String) {
        self.known().inherit(standing, down, memo);
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
        self.known().end();
        self.arrived.notify_all();
    }

    /// Another process runs in its place.
    pub(super) fn begin(&self) {
        self.given_up.store(false, Ordering::Release);
        self.known().begin();
        let mut pending = lock(&self.pending);
        pending.process.0 += 1;
        (pending.running, pending.is_last) = (true, false);
        drop(pending);
        self.has_restarted.store(true, Ordering::Release);
        self.arrived.notify_all();
    }

    /// No other process comes after the one that runs, or has ended: nobody waits for it.
    pub(super) fn be_last(&self) {
        lock(&self.pending).is_last = true;
        self.arrived.notify_all();
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
        self.be_last();
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
        let answer = self.note(number, answer);
        if let Some(waiting) = lock(&self.pending).waiting.get_mut(&number) {
            waiting.answer = Some(answer);
        }
        self.arrived.notify_all();
    }

    /// Keeps what a later process is to have; returns the answer with the number of a staged wiring here.
    fn note(
        &self,
        number: u64,
        answer: Result<PortAnswer, DataError>,
    ) -> Result<PortAnswer, DataError> {
        let mut pending = lock(&self.pending);
        let Some(waiting) = pending.waiting.get_mut(&number) else { return answer };
        let (staged, reopened) = (waiting.staged.take(), waiting.reopened.take());
        drop(pending);
        let mut known = self.known();
        match (answer, staged, reopened) {
            (Ok(PortAnswer::Staged(at)), Some(orders), _) => {
                Ok(PortAnswer::Staged(known.stage(at, orders)))
            }
            (Ok(PortAnswer::Reopened(info)), _, Some(order)) => {
                self.held.keep_open(order.device.device.index(), &info);
                if let Some(link) = known.setup.links.get_mut(order.device.device.index().index()) {
                    *link = order.device;
                }
                Ok(PortAnswer::Reopened(info))
            }
            (answer, ..) => answer,
        }
    }

    /// Keeps what a later process is to have, of a request that is sent; returns what its answer
    /// decides.
    fn expect(&self, request: &PortRequest) -> Waiting {
        let (mut staged, mut reopened) = (None, None);
        let mut known = self.known();
        match request {
            PortRequest::Stage(orders) => staged = Some(known.resolved(orders)),
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

    /// Sends neighbour updates, in several messages if they are many.
    fn send_neighbours(&self, updates: &[NeighbourUpdate]) -> Result<RequestNumber, DataError> {
        let mut last = None;
        for some in updates.chunks(UPDATES_AT_ONCE) {
            last = Some(self.send_request(PortRequest::Neighbours(some.to_vec()))?);
        }
        last.map_or_else(|| self.send_request(PortRequest::Neighbours(Vec::new())), Ok)
    }

    /// The process that runs, or has ended last.
    pub(super) fn process(&self) -> ProcessNumber {
        lock(&self.pending).process
    }

    /// Waits while `waits`, until it is known that nothing more comes; returns what it is then.
    fn await_process(&self, waits: impl Fn(&Pending) -> bool) -> MutexGuard<'_, Pending> {
        let deadline = Instant::now() + NEXT_WITHIN;
        let mut pending = lock(&self.pending);
        while waits(&pending) && !pending.is_last {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.arrived.wait_timeout(pending, left);
            (pending, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        pending
    }

    /// Waits until a process runs; returns whether another one than `ended` does, of which it was answered
    /// that it has ended.
    fn await_next(&self, ended: Option<ProcessNumber>) -> bool {
        let pending = self.await_process(|pending| !pending.running);
        // One that runs has said so itself: a worker there has ended.
        pending.running && ended != Some(pending.process)
    }

    /// Waits until a process runs that comes after `ended`, whose end may not have been noticed here yet;
    /// returns whether it does.
    pub(super) fn await_after(&self, ended: ProcessNumber) -> bool {
        let pending = self.await_process(|pending| pending.process == ended || !pending.running);
        pending.running && pending.process != ended
    }

    /// Puts a staged wiring in force: at the process that has staged it, or at the next one.
    fn commit(&self, stage: StageNumber, patience: Duration) -> Result<PortAnswer, DataError> {
        let noted = self.known().commit(stage).ok_or(DataError::Unknown)?;
        let NotedCommit { mut at, orders, number } = noted;
        loop {
            let process = self.process();
            if let Some(stage) = at {
                let sent = self.send_request(PortRequest::Commit(stage));
                match sent.and_then(|sent| self.answer(sent, patience)) {
                    Err(DataError::Ended) if self.await_next(Some(process)) => {}
                    told => return told,
                }
            } else if !self.await_next(None) {
                return Err(DataError::Ended);
            }
            if self.known().has_begun_with(number) {
                return Ok(PortAnswer::Done);
            }
            // It was ordered before the commit was noted.
            let staged = self.ask_within(PortRequest::Stage(orders.clone()), patience)?;
            let PortAnswer::Staged(stage) = staged else { return Err(DataError::Ended) };
            at = self.known().discard(stage);
        }
    }
}

/// Whether a request that a process has not answered at its end is for the next one, too. The others
/// ask what that one does not know, or end with the process.
const fn is_for_the_next(request: &PortRequest) -> bool {
    matches!(
        request,
        PortRequest::Stage(_)
            | PortRequest::LookAtNeighbours(_)
            | PortRequest::Pace(_)
            | PortRequest::Prepare(_)
            | PortRequest::Reopen(_)
            | PortRequest::SetLink { .. }
            | PortRequest::Receive
            | PortRequest::Begin
    )
}

impl Port for ProcessPort {
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        match request {
            PortRequest::Neighbours(updates) => self.send_neighbours(&updates),
            PortRequest::Commit(stage) => {
                let noted = self.known().commit(stage).ok_or(DataError::Unknown)?;
                self.send_request(PortRequest::Commit(noted.at.ok_or(DataError::Ended)?))
            }
            PortRequest::Discard(stage) => {
                let at = self.known().discard(stage).ok_or(DataError::Unknown)?;
                self.send_request(PortRequest::Discard(at))
            }
            request => self.send_request(request),
        }
    }

    /// A request to a process that has ended, or ends before it has answered, is given to the next one,
    /// if it is an order; unless there will be none.
    fn ask_within(
        &self,
        request: PortRequest,
        patience: Duration,
    ) -> Result<PortAnswer, DataError> {
        if let PortRequest::Commit(stage) = request {
            return self.commit(stage, patience);
        }
        if !is_for_the_next(&request) {
            return self.answer(self.submit(request)?, patience);
        }
        loop {
            let process = self.process();
            let sent = self.submit(request.clone());
            match sent.and_then(|sent| self.answer(sent, patience)) {
                Err(DataError::Ended) if self.await_next(Some(process)) => {}
                told => return told,
            }
        }
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
