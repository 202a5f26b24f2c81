//! Engine: one CSE state machine, its store, and the callers that wait for answers.

use crate::device_now::DevicesNow;
use crate::observing::{Latest, ObservationSource, Observing};
use crate::outgoing::Sender;
use crate::queue_set::QueueSet;
use crate::quota::Quotas;
use crate::turns::Turns;
use core::{future::Future, time::Duration};
use gatewright_onem2m::{
    AccessGrant, Batch, Call, CallId, ClockDoubt, Counters, Cse, DeviceCall, Input, Now, Operation,
    OutboxMessage, Output, ReadError, ReadId, RefusedMessage, RefusedRegistration, Request,
    Response, Status, Token, Unreachable, Unreadable, audit::Audit,
};
use gatewright_store::{BatchWriter, ReadReport, RowReader, WriteReport};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Requests that wait to be sent, or to be handed to devices: as many as the CSE has open itself.
/// The CSE gives up requests that are not answered in time, but they still wait here.
pub(crate) const CALLS_MAX: usize = 4_096;

/// Rows found unreadable that are listed one by one.
const UNREADABLE_MAX: usize = 1_024;

/// A running CSE. This process sends requests by [`Engine::ask`]; requests from a binding take
/// another path, since no peer may act as the CSE itself.
#[derive(Debug)]
pub struct Engine {
    inner: Mutex<Inner>,
    /// Wakes the timer for an earlier deadline.
    pub(crate) earlier: Notify,
    /// Receives queues whose receiver lacks the parent resources.
    lost: Mutex<Option<Arc<QueueSet>>>,
    /// Sender of outgoing requests, until the engine has ended.
    sender: Mutex<Option<Arc<Sender>>>,
    /// Request limits of its peers.
    quotas: Arc<Quotas>,
    /// Turns of its peers.
    turns: Arc<Turns>,
    /// Readings that were sent on and are not stored here.
    unstored: Mutex<Option<Arc<dyn UnstoredReadings>>>,
    /// Knows the state of devices.
    pub(crate) devices_now: Mutex<Option<Weak<dyn DevicesNow>>>,
}

/// Readings that were sent on to the CSE above without being stored here.
pub(crate) trait UnstoredReadings: core::fmt::Debug + Send + Sync {
    /// The creation of the latest one in the container at this address, if it was not given before.
    ///
    /// The engine is locked meanwhile.
    fn take_latest(&self, container: &str) -> Option<Request>;
}

#[derive(Debug)]
struct Inner {
    cse: Cse,
    writer: Option<BatchWriter>,
    /// Reads instances that are not in memory; none of a store in memory.
    reader: Option<RowReader>,
    /// Rows found unreadable since the start.
    unreadable: Vec<Unreadable>,
    waiting: BTreeMap<Token, oneshot::Sender<Response>>,
    /// Requests that are answered again after each change.
    observing: BTreeMap<Token, watch::Sender<Latest>>,
    asked: u64,
    /// Time at which the timer wakes.
    wakes: Option<Duration>,
    outgoing: mpsc::Sender<Call>,
    /// Channel for requests to devices, if there is a device listener.
    devices: Option<mpsc::Sender<DeviceCall>>,
    /// Requests that were not sent because the queue was full.
    calls_full: u64,
    /// The database's error in the last transaction that failed.
    store_failure: Option<String>,
    /// Queues whose receiver lacks the parent resources, to be reported.
    lost: Vec<Arc<str>>,
}

/// Hands a batch to the writer.
type Push = fn(&BatchWriter, Batch) -> Result<(), Batch>;

/// One step of a transaction with several requests.
#[derive(Debug)]
pub(crate) enum Task {
    Ask(Arc<Request>),
    /// A request with an outbox message that is queued if the request succeeds now or did before;
    /// one answer.
    AskAndPost(Arc<Request>, Box<OutboxMessage>),
}

/// Ends an observation when it is dropped.
#[derive(Debug)]
struct ObservationGuard {
    engine: Weak<Engine>,
    token: Token,
}

impl ObservationSource for ObservationGuard {
    fn request_next(&self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.step(Input::ObserveNext(self.token));
        }
    }
}

impl Drop for ObservationGuard {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.lock().observing.remove(&self.token);
            engine.step(Input::Unobserve(self.token));
        }
    }
}

/// An accepted request.
enum AcceptedRequest {
    Answered(Response),
    Waiting(oneshot::Receiver<Response>),
}

impl AcceptedRequest {
    async fn answer(self) -> Option<Response> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Waiting(answer) => answer.await.ok(),
        }
    }
}

/// Time of this process's first clock reading.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Both clocks.
pub(crate) fn now() -> Now {
    Now { wall: wall(), elapsed: BEGAN.elapsed() }
}

/// The time since 1970. A clock before 1970 counts as 1970.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Engine {
    pub(crate) fn new(cse: Cse, outgoing: mpsc::Sender<Call>, quotas: Arc<Quotas>) -> Arc<Self> {
        let inner = Inner {
            cse,
            writer: None,
            reader: None,
            unreadable: Vec::new(),
            waiting: BTreeMap::new(),
            observing: BTreeMap::new(),
            asked: 0,
            wakes: None,
            outgoing,
            devices: None,
            calls_full: 0,
            store_failure: None,
            lost: Vec::new(),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            earlier: Notify::new(),
            lost: Mutex::new(None),
            sender: Mutex::new(None),
            quotas,
            turns: Arc::default(),
            unstored: Mutex::new(None),
            devices_now: Mutex::new(None),
        })
    }

    /// Request limits of its peers.
    pub(crate) const fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// Turns of its peers.
    pub(crate) const fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Applies other settings.
    pub(crate) fn reconfigure(&self, config: gatewright_onem2m::CseConfig) {
        let mut inner = self.lock();
        inner.cse.reconfigure(now(), config);
        inner.drain(None);
        self.rearm(&mut inner);
    }

    /// Reports a request that was refused before it reached the CSE.
    pub(crate) fn refused(&self, request: &Request) {
        let audits = self.lock().cse.config().audit != Audit::Off;
        if audits {
            self.step(Input::Refused { from: request.from.clone(), address: request.source });
        }
    }

    /// Sets the sender of outgoing requests.
    pub(crate) fn send_by(&self, sender: Sender) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sender));
    }

    /// Sends a request at once by the CSE's bindings and certificate. It is neither stored nor
    /// retried.
    pub(crate) async fn send(
        &self,
        urls: &[String],
        request: &Request,
    ) -> Result<Response, Unreachable> {
        let stopping = || Unreachable("this CSE is stopping".to_owned());
        self.sender().ok_or_else(stopping)?.send(urls, request).await
    }

    /// The sender of outgoing requests; `None` once the engine has ended.
    pub(crate) fn sender(&self) -> Option<Arc<Sender>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets where readings are that are not stored here: who retrieves a container's latest instance
    /// has such a reading stored before.
    pub(crate) fn set_unstored(&self, readings: Arc<dyn UnstoredReadings>) {
        *self.unstored.lock().unwrap_or_else(PoisonError::into_inner) = Some(readings);
    }

    /// Sets the channel for requests to devices.
    pub(crate) fn send_device_calls(&self, to: mpsc::Sender<DeviceCall>) {
        self.lock().devices = Some(to);
    }

    /// Sets the receiver of queues whose receiver lacks the parent resources.
    pub(crate) fn tell_lost(&self, to: Arc<QueueSet>) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    fn lost(&self, queues: Vec<Arc<str>>) {
        if queues.is_empty() {
            return;
        }
        let to = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Without anybody who makes places the message is only tried again.
        let Some(to) = to else { return };
        for queue in queues {
            to.tell(queue);
        }
    }

    /// The CSE-ID.
    pub fn cse_id(&self) -> String {
        self.lock().cse.config().cse_id.clone()
    }

    /// The CSE-ID and the service provider.
    pub(crate) fn own(&self) -> (String, String) {
        let inner = self.lock();
        let config = inner.cse.config();
        (config.cse_id.clone(), config.provider.clone())
    }

    /// The registrar's CSE-ID, if it is at this URL.
    pub(crate) fn registrar_at(&self, url: &str) -> Option<String> {
        let inner = self.lock();
        let registrar = inner.cse.config().registrar.as_ref()?;
        (registrar.url == url).then(|| registrar.cse_id.clone())
    }

    /// Starts the writer and hands over pending batches and reads.
    pub(crate) fn begin(&self, writer: BatchWriter, reader: Option<RowReader>) {
        let mut inner = self.lock();
        inner.writer = Some(writer);
        inner.reader = reader;
        inner.drain(None);
        self.rearm(&mut inner);
    }

    /// Writes what is queued and stops writing; later requests are not stored.
    pub(crate) fn end(&self) {
        let mut inner = self.lock();
        if inner.writer.is_some() {
            inner.cse.end(now());
            inner.drain(None);
        }
        let writer = inner.writer.take();
        let reader = inner.reader.take();
        drop(inner);
        drop(reader);
        // Outside the lock: the writer reports its last commits while it is waited for.
        drop(writer);
        // Its connections end with it.
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Sends a request of this process with its originator; the answer comes when it is stored.
    ///
    /// The request is taken when this is called, not when the future is first polled; dropping
    /// the future does not undo it.
    pub fn ask(&self, request: Request) -> impl Future<Output = Option<Response>> + Send + use<> {
        self.put(|_, token| Input::Own { token, request: request.into() }).answer()
    }

    /// Sends a request from a binding; otherwise as [`Self::ask`].
    pub(crate) fn receive(
        &self,
        request: Request,
    ) -> impl Future<Output = Option<Response>> + Send + use<> {
        let unstored = Some(&self.unstored).filter(|_| is_for_latest(&request));
        let unstored = unstored.and_then(|it| it.lock().ok()?.clone());
        self.put(|inner, token| {
            if let Some(readings) = unstored {
                inner.store_latest(&request, &*readings);
            }
            Input::Request { token, request }
        })
        .answer()
    }

    /// Sends a request and each later answer too, as long as the result lives.
    pub(crate) fn observe(self: &Arc<Self>, request: Request) -> Observing {
        let (sender, answers) = watch::channel(Latest::default());
        let mut inner = self.lock();
        inner.asked += 1;
        let token = Token(inner.asked);
        inner.observing.insert(token, sender);
        inner.cse.handle(now(), Input::Observe { token, request });
        inner.drain(None);
        self.rearm(&mut inner);
        Observing::new(answers, ObservationGuard { engine: Arc::downgrade(self), token })
    }

    /// Queues an outbox message of this CSE for delivery, however long it takes; accepted when
    /// stored.
    pub fn post(
        &self,
        message: OutboxMessage,
    ) -> impl Future<Output = Option<Response>> + Send + use<> {
        self.put(|_, token| Input::Post { token, message }).answer()
    }

    /// Runs several tasks of a device, which are not urgent, as one transaction: all are stored or
    /// none. The answers come in the order of the tasks, once stored.
    pub(crate) fn together(
        &self,
        tasks: impl IntoIterator<Item = Task>,
    ) -> Vec<oneshot::Receiver<Response>> {
        self.carry_out(&mut self.lock(), tasks)
    }

    /// Runs several creations of instances by a device as [`Self::together`] does, if the CSE
    /// refuses none of them; else none, and returns the status of each that it refuses.
    pub(crate) fn together_or_none(
        &self,
        tasks: Vec<Task>,
    ) -> Result<Vec<oneshot::Receiver<Response>>, Vec<Option<Status>>> {
        let mut inner = self.lock();
        let refusals = tasks.iter().map(|task| match task {
            Task::Ask(request) | Task::AskAndPost(request, _) => {
                inner.cse.refusal_of_instance(request)
            }
        });
        let refusals: Vec<_> = refusals.collect();
        if refusals.iter().any(Option::is_some) {
            return Err(refusals);
        }
        Ok(self.carry_out(&mut inner, tasks))
    }

    fn carry_out(
        &self,
        inner: &mut Inner,
        tasks: impl IntoIterator<Item = Task>,
    ) -> Vec<oneshot::Receiver<Response>> {
        let mut answers = Vec::new();
        let mut inputs = Vec::new();
        for task in tasks {
            inner.asked += 1;
            let token = Token(inner.asked);
            let (sender, receiver) = oneshot::channel();
            inner.waiting.insert(token, sender);
            answers.push(receiver);
            inputs.push(match task {
                Task::Ask(request) => Input::Own { token, request },
                Task::AskAndPost(request, message) => Input::AskAndPost { token, request, message },
            });
        }
        inner.cse.handle(now(), Input::Together(inputs));
        inner.drain_for(None, BatchWriter::push_patiently);
        self.rearm(inner);
        answers
    }

    fn put(&self, input: impl FnOnce(&mut Inner, Token) -> Input) -> AcceptedRequest {
        let mut inner = self.lock();
        inner.asked += 1;
        let token = Token(inner.asked);
        let input = input(&mut inner, token);
        inner.cse.handle(now(), input);
        let asked = if let Some(answer) = inner.drain(Some(token)) {
            AcceptedRequest::Answered(answer)
        } else {
            let (sender, receiver) = oneshot::channel();
            inner.waiting.insert(token, sender);
            AcceptedRequest::Waiting(receiver)
        };
        self.rearm(&mut inner);
        asked
    }

    /// Takes the response to an outgoing request.
    pub(crate) fn answer(&self, call: CallId, answer: Result<Response, Unreachable>) {
        self.step(Input::Answer { call, answer });
    }

    /// Ends an outgoing request that was not sent, as something here refuses it.
    pub(crate) fn unsent(&self, call: CallId, why: String) {
        self.step(Input::Unsent { call, why });
    }

    /// Takes the responses to several outgoing requests in one step.
    pub(crate) fn answer_all(&self, answers: Vec<(CallId, Result<Response, Unreachable>)>) {
        let answer = |(call, answer)| Input::Answer { call, answer };
        self.step(Input::Together(answers.into_iter().map(answer).collect()));
    }

    /// Takes a report of the writer, and whether it comes late.
    pub(crate) fn report(&self, report: &WriteReport, is_late: bool) {
        match report {
            WriteReport::Committed(number) if is_late => {
                self.step(Input::Together(vec![Input::Overloaded, Input::Committed(*number)]));
            }
            WriteReport::Committed(number) => self.step(Input::Committed(*number)),
            WriteReport::Failed { number, cause } => {
                self.lock().store_failure = Some(cause.clone());
                self.step(Input::Failed(*number));
            }
            WriteReport::Short(is_short) => self.step(Input::Short(*is_short)),
        }
    }

    /// Takes a report of the reader.
    pub(crate) fn report_read(&self, (read, rows): ReadReport) {
        self.step(Input::Rows { read, rows });
    }

    /// Rows found unreadable since the start.
    pub(crate) fn unreadable(&self) -> Vec<Unreadable> {
        self.lock().unreadable.clone()
    }

    /// Advances time; returns the next deadline.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.step(Input::Tick);
        let mut inner = self.lock();
        inner.wakes = inner.cse.poll_timeout();
        inner.wakes
    }

    /// Counters of the CSE so far.
    pub fn counters(&self) -> Counters {
        self.lock().cse.counters().clone()
    }

    /// Requests that were not sent because the queue was full.
    pub(crate) fn calls_full(&self) -> u64 {
        self.lock().calls_full
    }

    /// Counts a request that was not sent because the queue was full.
    pub(crate) fn count_call_full(&self) {
        self.lock().calls_full += 1;
    }

    /// Counters of the writer; `None` once the engine has ended.
    pub fn store_counters(&self) -> Option<gatewright_store::Counters> {
        self.lock().writer.as_ref().map(BatchWriter::counters)
    }

    /// The database's error in the last transaction that failed.
    pub(crate) fn store_failure(&self) -> Option<String> {
        self.lock().store_failure.clone()
    }

    /// The disk's free space and the reserve; `None` once the engine has ended.
    pub fn disk_space(&self) -> Option<gatewright_store::DiskSpace> {
        let inner = self.lock();
        let mut space = inner.writer.as_ref().map(BatchWriter::disk_space)?;
        let left = inner.cse.stored_octets_left();
        let left = left.map(|left| u64::try_from(left).unwrap_or(u64::MAX));
        space.rows_free = space.rows_free.map(|free| free.min(left.unwrap_or(free)));
        Some(space)
    }

    /// Which of the database's files was removed, moved or replaced while it is open: nothing is
    /// stored then.
    pub fn database_missing(&self) -> Option<String> {
        self.lock().writer.as_ref().and_then(BatchWriter::missing)
    }

    /// The time that commits take, if the disk is slow.
    pub fn slow_commit(&self) -> Option<Duration> {
        self.lock().writer.as_ref().and_then(BatchWriter::slow_commit)
    }

    /// Durations of the writer; `None` once the engine has ended.
    pub fn store_histograms(&self) -> Option<gatewright_store::Histograms> {
        self.lock().writer.as_ref().map(BatchWriter::histograms)
    }

    /// Instances whose text is in the store only.
    pub fn instances_paged_out(&self) -> usize {
        self.lock().cse.instances_paged_out()
    }

    /// Octets of the answers that are not read yet, and the most that ever were.
    pub fn unread_octets(&self) -> (usize, usize) {
        self.lock().cse.unread_octets()
    }

    /// Resources in the tree.
    pub fn resources(&self) -> usize {
        self.lock().cse.resources()
    }

    /// Outbox messages that have not arrived yet.
    pub fn messages_waiting(&self) -> usize {
        self.lock().cse.messages_waiting()
    }

    /// Readings of devices that wait for the CSE above, and how many may.
    pub(crate) fn readings_waiting(&self) -> (usize, usize) {
        self.lock().cse.readings_waiting()
    }

    /// Whether a resource of this address is in the tree.
    pub(crate) fn has_resource(&self, address: &str) -> bool {
        self.lock().cse.has_resource(address)
    }

    /// Addresses of the access control policies that a resource names.
    pub(crate) fn policies_of(&self, address: &str) -> Vec<String> {
        self.lock().cse.policies_of(address)
    }

    /// Why `from`, at no known address, may retrieve a resource here; none if it may not.
    pub fn retrieval_granted(&self, address: &str, from: &str) -> Option<AccessGrant> {
        self.lock().cse.retrieval_granted(address, from, None)
    }

    /// Containers with readings whose outbox messages are made later, as the outbox was full.
    pub fn backlogs(&self) -> usize {
        self.lock().cse.backlogs()
    }

    /// Number of outbox queues held because of their originator, and the first one's verdict.
    pub fn held(&self) -> (usize, Option<RefusedMessage>) {
        let inner = self.lock();
        let (queues, first) = inner.cse.held();
        (queues, first.cloned())
    }

    /// Devices' readings refused for good by the CSE above, expired outbox messages, and the last
    /// verdict.
    pub fn lost_above(&self) -> (u64, u64, Option<RefusedMessage>) {
        let inner = self.lock();
        let counters = inner.cse.counters();
        let last = inner.cse.refused().cloned();
        (counters.readings_refused_above, counters.messages_aged, last)
    }

    /// Refused registrations of CSEs since the last call.
    pub(crate) fn take_refused_registrations(&self) -> Vec<RefusedRegistration> {
        self.lock().cse.take_refused_registrations()
    }

    /// The registrar's refusal of this CSE, as long as it is not registered.
    pub fn refused_by_registrar(&self) -> Option<RefusedRegistration> {
        self.lock().cse.refused_by_registrar().cloned()
    }

    /// Why the wall clock is in doubt, if it is.
    pub fn doubted_clock(&self) -> Option<ClockDoubt> {
        self.lock().cse.doubted_clock()
    }

    /// Accepts the wall clock as right.
    pub fn confirm_clock(&self) {
        self.step(Input::ClockConfirmed);
    }

    /// Whether this CSE is registered at its registrar, as far as is known.
    pub fn is_registered(&self) -> bool {
        self.lock().cse.is_registered_at_registrar()
    }

    /// Whether the last request to its registrar had no answer.
    pub fn is_registrar_silent(&self) -> bool {
        self.lock().cse.is_registrar_silent()
    }

    fn step(&self, input: Input) {
        let mut inner = self.lock();
        inner.cse.handle(now(), input);
        inner.drain(None);
        let lost = core::mem::take(&mut inner.lost);
        self.rearm(&mut inner);
        drop(inner);
        self.lost(lost);
    }

    fn rearm(&self, inner: &mut Inner) {
        let due = inner.cse.poll_timeout();
        let earlier = match (due, inner.wakes) {
            (Some(due), Some(wakes)) => due < wakes,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier {
            inner.wakes = due;
            self.earlier.notify_one();
        }
    }

    /// A panic under the lock would be a bug of the CSE; other callers are still served.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request may be for the latest instance of a container.
fn is_for_latest(request: &Request) -> bool {
    request.operation == Operation::Retrieve && request.to.ends_with("/la")
}

impl Inner {
    /// Stores the latest reading of the container that `request` is about, if it is not here yet. The
    /// answer to `request` waits for the commit.
    fn store_latest(&mut self, request: &Request, readings: &dyn UnstoredReadings) {
        let container = self.cse.container_of_latest(request);
        let Some(creation) = container.and_then(|it| readings.take_latest(&it)) else { return };
        self.asked += 1;
        // Nobody waits for the answer.
        let token = Token(self.asked);
        self.cse.handle(now(), Input::Own { token, request: creation.into() });
    }

    /// Carries out the CSE's outputs; returns the answer of `mine`.
    fn drain(&mut self, mine: Option<Token>) -> Option<Response> {
        self.drain_for(mine, BatchWriter::push)
    }

    /// Carries out the CSE's outputs; `push` sets the urgency of the store.
    fn drain_for(&mut self, mine: Option<Token>, push: Push) -> Option<Response> {
        let mut answer = None;
        if self.writer.is_none() && mine.is_none() {
            return None;
        }
        while let Some(output) = self.cse.poll_output() {
            match output {
                Output::Store(batch) => {
                    let number = batch.number;
                    let stored = self.writer.as_ref().is_some_and(|it| push(it, batch).is_ok());
                    if !stored {
                        self.cse.handle(now(), Input::Failed(number));
                    }
                }
                Output::Respond { token, response } if Some(token) == mine => {
                    answer = Some(response);
                }
                Output::Respond { token, response } if self.observing.contains_key(&token) => {
                    if let Some(observing) = self.observing.get(&token) {
                        observing.send_replace(Arc::new(Mutex::new(Some(response))));
                    }
                    if !self.cse.is_observed(token) {
                        self.observing.remove(&token);
                    }
                }
                Output::Respond { token, response } => {
                    // Whoever asked may have gone; what was asked is done all the same, but what
                    // was fetched is for somebody else to fetch.
                    if let Some(waiting) = self.waiting.remove(&token)
                        && waiting.send(response).is_err()
                    {
                        self.cse.handle(now(), Input::Unheard(token));
                    }
                }
                Output::Read { read, rows } => self.read(read, rows),
                Output::Unreadable(row) => {
                    if self.unreadable.len() < UNREADABLE_MAX {
                        self.unreadable.push(row);
                    }
                }
                Output::Lost { queue } => self.lost.push(queue),
                Output::Call(call) => {
                    let id = call.id;
                    let sent = self.outgoing.try_send(*call);
                    self.unless_sent(id, &sent, ("requests", "this CSE is stopping"));
                }
                Output::AskDevice(call) => self.ask_device(*call),
            }
        }
        answer
    }

    /// Has rows read.
    fn read(&mut self, read: ReadId, rows: Vec<u64>) {
        let is_read = self.reader.as_ref().is_some_and(|reader| reader.read(read, rows));
        if !is_read {
            let rows = Err(ReadError("nothing reads it".to_owned()));
            self.cse.handle(now(), Input::Rows { read, rows });
        }
    }

    /// Forwards a request to a device, if there is a device listener.
    fn ask_device(&mut self, call: DeviceCall) {
        let id = call.id;
        let words = ("requests for devices", "there is no listener for devices here");
        let sent = match &self.devices {
            Some(devices) => devices.try_send(call),
            None => Err(mpsc::error::TrySendError::Closed(call)),
        };
        self.unless_sent(id, &sent, words);
    }

    /// Answers a request that has no receiver or finds the queue full.
    fn unless_sent<T>(
        &mut self,
        call: CallId,
        sent: &Result<(), mpsc::error::TrySendError<T>>,
        (what, nobody): (&str, &str),
    ) {
        let why = match sent {
            Ok(()) => return,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.calls_full += 1;
                format!("too many {what} wait to be sent")
            }
            Err(mpsc::error::TrySendError::Closed(_)) => nobody.to_owned(),
        };
        self.cse.handle(now(), Input::Unsent { call, why });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;
    use gatewright_onem2m::{CseConfig, CseType, Operation, Release, ResourceType};
    use gatewright_store::{Database, DatabaseOptions};

    /// How long anything may take to come about.
    const DEADLINE: Duration = Duration::from_mins(2);

    /// An engine of which nobody sends what it wants sent, and what waits for that.
    fn engine(calls_max: usize) -> (Arc<Engine>, mpsc::Receiver<Call>) {
        let mut config = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
        config.admin = Some("CAdmin".to_owned());
        let (cse, _) = Cse::open(config, now(), Vec::new(), 1).unwrap();
        let (outgoing, calls) = mpsc::channel(calls_max);
        let engine = Engine::new(cse, outgoing, Quotas::new(Quota::default()));
        let (database, _) = Database::in_memory(&DatabaseOptions::default()).unwrap();
        let theirs = Arc::downgrade(&engine);
        let report = move |report: WriteReport| {
            if let Some(engine) = theirs.upgrade() {
                engine.report(&report, false);
            }
        };
        engine.begin(database.start(report).unwrap(), None);
        (engine, calls)
    }

    async fn answer(asked: impl Future<Output = Option<Response>>) -> Response {
        tokio::time::timeout(DEADLINE, asked).await.expect("answered in time").unwrap()
    }

    #[tokio::test]
    async fn requests_that_wait_to_be_sent_are_bounded() {
        let (engine, mut calls) = engine(1);
        let entity = r#"{"m2m:ae":{"rn":"ae","api":"Nx","rr":true,"srv":["3"],
            "poa":["http://127.0.0.1:1"]}}"#;
        let made = Request::new(Operation::Create, "cse-in", "Cx", "make")
            .creating(ResourceType::ApplicationEntity, entity);
        assert_eq!(answer(engine.ask(made)).await.status, Status::Created);
        let notify = |id: &str| {
            let request = Request::new(Operation::Notify, "cse-in/ae", "CAdmin", id);
            engine.ask(request.with_content(r#"{"m2m:sgn":{"nev":{"rep":{}},"sur":"x"}}"#))
        };
        let (first, second) = (notify("1"), notify("2"));
        let refused = answer(second).await;
        assert!(!refused.status.is_success(), "{refused:?}");
        assert_eq!(engine.calls_full(), 1);
        // The first one waits still, and when it is taken there is room again.
        let Call { id, .. } = calls.try_recv().unwrap();
        let _third = notify("3");
        assert_eq!((calls.try_recv().is_ok(), engine.calls_full()), (true, 1));
        engine.answer(id, Ok(Response::new(Status::Ok, "1", Release::default())));
        assert_eq!(answer(first).await.status, Status::Ok);
        engine.end();
    }
}
