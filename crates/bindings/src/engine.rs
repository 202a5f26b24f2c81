//! One machine, one store, and whoever waits for an answer.

use crate::lanes::Lanes;
use crate::outgoing::Sender;
use crate::quota::Quotas;
use core::future::Future;
use core::time::Duration;
use gatewright_onem2m::audit::Audit;
use gatewright_onem2m::{
    Batch, Call, CallId, Counters, Cse, DeviceCall, Input, Letter, Now, Output, Request, Response,
    Token, Unreachable, Verdict,
};
use gatewright_store::{Report, Writer};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// Requests that wait to be sent, or to be handed to devices: as many as the machine has open by
/// itself. It gives those up that are not answered in time, and they wait here all the same.
pub(crate) const CALLS_MAX: usize = 4_096;

/// A running CSE: requests of this process go in by [`Engine::ask`]; whatever comes by a binding goes
/// in apart from them, since nobody outside may ask as the CSE itself.
#[derive(Debug)]
pub struct Engine {
    inner: Mutex<Inner>,
    /// Tells the timer that something is due earlier than it sleeps for.
    pub(crate) earlier: Notify,
    /// Where it is told whose receiver does not know its places.
    lost: Mutex<Option<Arc<Lanes>>>,
    /// How it asks others, until it has ended.
    sender: Mutex<Option<Sender>>,
    /// What its peers may ask.
    quotas: Arc<Quotas>,
}

#[derive(Debug)]
struct Inner {
    cse: Cse,
    writer: Option<Writer>,
    waiting: BTreeMap<Token, oneshot::Sender<Response>>,
    /// Those who are answered again and again.
    observing: BTreeMap<Token, watch::Sender<Option<Response>>>,
    asked: u64,
    /// When the timer will wake by itself.
    wakes: Option<Duration>,
    outgoing: mpsc::Sender<Call>,
    /// Where requests for devices go, if there is a listener for them.
    devices: Option<mpsc::Sender<DeviceCall>>,
    /// Requests that were not sent because too many wait.
    calls_full: u64,
    /// Lanes whose receiver does not know their places, to be told.
    lost: Vec<Arc<str>>,
}

/// How a batch is handed to the writer.
type Push = fn(&Writer, Batch) -> Result<(), Batch>;

/// Something to be done with others at once.
#[derive(Debug)]
pub(crate) enum Task {
    Ask(Request),
    /// The letter is delivered if what is asked is done, or was done before: one answer.
    AskAndPost(Request, Box<Letter>),
}

/// A retrieval whose answers are told. Of several that come quickly only the last is.
#[derive(Debug)]
pub(crate) struct Observing {
    engine: Weak<Engine>,
    token: Token,
    answers: watch::Receiver<Option<Response>>,
}

impl Observing {
    /// The next answer; nothing behind the last one.
    pub(crate) async fn next(&mut self) -> Option<Response> {
        self.answers.changed().await.ok()?;
        self.answers.borrow_and_update().clone()
    }

    /// Whether there may be another answer behind the one that was taken last.
    pub(crate) fn goes_on(&self) -> bool {
        self.answers.has_changed().is_ok()
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.lock().observing.remove(&self.token);
            engine.step(Input::Unobserve(self.token));
        }
    }
}

/// A request that was taken.
enum Asked {
    Answered(Response),
    Waiting(oneshot::Receiver<Response>),
}

impl Asked {
    async fn answer(self) -> Option<Response> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Waiting(answer) => answer.await.ok(),
        }
    }
}

/// When this process first asked for the time.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// What both clocks say.
pub(crate) fn now() -> Now {
    Now { wall: wall(), elapsed: BEGAN.elapsed() }
}

/// The time since 1970. A clock set before 1970 counts as 1970.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Engine {
    pub(crate) fn new(cse: Cse, outgoing: mpsc::Sender<Call>, quotas: Arc<Quotas>) -> Arc<Self> {
        let inner = Inner {
            cse,
            writer: None,
            waiting: BTreeMap::new(),
            observing: BTreeMap::new(),
            asked: 0,
            wakes: None,
            outgoing,
            devices: None,
            calls_full: 0,
            lost: Vec::new(),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            earlier: Notify::new(),
            lost: Mutex::new(None),
            sender: Mutex::new(None),
            quotas,
        })
    }

    /// What its peers may ask.
    pub(crate) const fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    /// Other settings from now on.
    pub(crate) fn reconfigure(&self, config: gatewright_onem2m::Config) {
        let mut inner = self.lock();
        inner.cse.reconfigure(now(), config);
        inner.drain(None);
        self.rearm(&mut inner);
    }

    /// A request was refused before it came to the machine.
    pub(crate) fn refused(&self, request: &Request) {
        let audits = self.lock().cse.config().audit != Audit::Off;
        if audits {
            self.step(Input::Refused { from: request.from.clone(), address: request.source });
        }
    }

    /// Has others asked by this from now on.
    pub(crate) fn send_by(&self, sender: Sender) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    }

    /// Sends a request at once, as the machine's own are sent: by the same bindings, with the same
    /// certificate. It is stored nowhere and not tried again.
    pub(crate) async fn send(
        &self,
        urls: &[String],
        request: &Request,
    ) -> Result<Response, Unreachable> {
        let stopping = || Unreachable("this CSE is stopping".to_owned());
        self.sender().ok_or_else(stopping)?.send(urls, request).await
    }

    /// By what it asks others; nothing once it has ended.
    pub(crate) fn sender(&self) -> Option<Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has requests for devices sent there from now on.
    pub(crate) fn send_device_calls(&self, to: mpsc::Sender<DeviceCall>) {
        self.lock().devices = Some(to);
    }

    /// Has lanes told there whose receiver does not know the places of their letters.
    pub(crate) fn tell_lost(&self, to: Arc<Lanes>) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    fn lost(&self, lanes: Vec<Arc<str>>) {
        if lanes.is_empty() {
            return;
        }
        let to = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Without anybody who makes places the letter is only tried again.
        let Some(to) = to else { return };
        for lane in lanes {
            to.tell(lane);
        }
    }

    /// The CSE-ID.
    pub fn cse_id(&self) -> String {
        self.lock().cse.config().cse_id.clone()
    }

    /// The CSE-ID and the provider.
    pub(crate) fn own(&self) -> (String, String) {
        let inner = self.lock();
        let config = inner.cse.config();
        (config.cse_id.clone(), config.provider.clone())
    }

    /// The CSE-ID of the registrar, if it is the one at this URL.
    pub(crate) fn registrar_at(&self, url: &str) -> Option<String> {
        let inner = self.lock();
        let registrar = inner.cse.config().registrar.as_ref()?;
        (registrar.url == url).then(|| registrar.cse_id.clone())
    }

    /// Gives the engine its writer and hands over what already waits for it.
    pub(crate) fn begin(&self, writer: Writer) {
        let mut inner = self.lock();
        inner.writer = Some(writer);
        inner.drain(None);
        self.rearm(&mut inner);
    }

    /// Writes what is queued and stops writing; what is asked from then on is not stored.
    pub(crate) fn end(&self) {
        let writer = self.lock().writer.take();
        // Outside the lock: the writer reports its last commits while it is waited for.
        drop(writer);
        // Its connections end with it.
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Does what this process itself asks, as whom it says; the answer comes when it is stored.
    ///
    /// The request is taken when this is called, not when the future is first polled; dropping
    /// the future does not undo it.
    pub fn ask(&self, request: Request) -> impl Future<Output = Option<Response>> + Send + use<> {
        self.put(|_, token| Input::Own { token, request }).answer()
    }

    /// Does what a peer asks by a binding; as [`Self::ask`] otherwise.
    pub(crate) fn receive(
        &self,
        request: Request,
    ) -> impl Future<Output = Option<Response>> + Send + use<> {
        self.put(|_, token| Input::Request { token, request }).answer()
    }

    /// Does what the request asks, and tells each later answer too, as long as the result lives.
    pub(crate) fn observe(self: &Arc<Self>, request: Request) -> Observing {
        let (sender, answers) = watch::channel(None);
        let mut inner = self.lock();
        inner.asked += 1;
        let token = Token(inner.asked);
        inner.observing.insert(token, sender);
        inner.cse.handle(now(), Input::Observe { token, request });
        inner.drain(None);
        self.rearm(&mut inner);
        Observing { engine: Arc::downgrade(self), token, answers }
    }

    /// Has a request of our own delivered, however long it takes; accepted when it is stored.
    pub fn post(&self, letter: Letter) -> impl Future<Output = Option<Response>> + Send + use<> {
        self.put(|_, token| Input::Post { token, letter }).answer()
    }

    /// Does several things at once, for devices, which do not hurry: what they have stored is
    /// stored together or not at all. The
    /// answers come in the order of the tasks, when that is stored. `None` and nothing done, if
    /// the `letters` that go out on `lane` have no room there.
    pub(crate) fn together(
        &self,
        tasks: impl IntoIterator<Item = Task>,
        (lane, letters): (&str, usize),
    ) -> Option<Vec<oneshot::Receiver<Response>>> {
        let mut inner = self.lock();
        if letters > 0 && !inner.cse.has_room(lane, letters) {
            return None;
        }
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
                Task::AskAndPost(request, letter) => Input::AskAndPost { token, request, letter },
            });
        }
        inner.cse.handle(now(), Input::Together(inputs));
        inner.drain_for(None, Writer::push_patiently);
        self.rearm(&mut inner);
        Some(answers)
    }

    fn put(&self, input: impl FnOnce(&mut Inner, Token) -> Input) -> Asked {
        let mut inner = self.lock();
        inner.asked += 1;
        let token = Token(inner.asked);
        let input = input(&mut inner, token);
        inner.cse.handle(now(), input);
        let asked = if let Some(answer) = inner.drain(Some(token)) {
            Asked::Answered(answer)
        } else {
            let (sender, receiver) = oneshot::channel();
            inner.waiting.insert(token, sender);
            Asked::Waiting(receiver)
        };
        self.rearm(&mut inner);
        asked
    }

    /// Takes the answer to a request that was sent.
    pub(crate) fn answer(&self, call: CallId, answer: Result<Response, Unreachable>) {
        self.step(Input::Answer { call, answer });
    }

    /// Takes what the writer says.
    pub(crate) fn report(&self, report: &Report) {
        match report {
            Report::Committed(number) => self.step(Input::Committed(*number)),
            Report::Failed { number, .. } => self.step(Input::Failed(*number)),
        }
    }

    /// Lets time pass; when the next step is due.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.step(Input::Tick);
        let mut inner = self.lock();
        inner.wakes = inner.cse.poll_timeout();
        inner.wakes
    }

    /// What the machine did and refused so far.
    pub fn counters(&self) -> Counters {
        self.lock().cse.counters().clone()
    }

    /// Requests that were not sent because too many wait.
    pub(crate) fn calls_full(&self) -> u64 {
        self.lock().calls_full
    }

    /// A request was not sent because too many wait.
    pub(crate) fn count_call_full(&self) {
        self.lock().calls_full += 1;
    }

    /// What the writer did so far; nothing once the engine has ended.
    pub fn store_counters(&self) -> Option<gatewright_store::Counters> {
        self.lock().writer.as_ref().map(Writer::counters)
    }

    /// How long the writer took so far; nothing once the engine has ended.
    pub fn store_histograms(&self) -> Option<gatewright_store::Histograms> {
        self.lock().writer.as_ref().map(Writer::histograms)
    }

    /// Resources in the tree.
    pub fn resources(&self) -> usize {
        self.lock().cse.resources()
    }

    /// Letters that have not arrived yet.
    pub fn letters(&self) -> usize {
        self.lock().cse.letters()
    }

    /// How many lanes wait because of who asks there, and the first of them.
    pub fn held(&self) -> (usize, Option<Verdict>) {
        let inner = self.lock();
        let (lanes, first) = inner.cse.held();
        (lanes, first.cloned())
    }

    /// How many readings of devices were refused above for good, and how many letters grew too old;
    /// what was last said of one.
    pub fn lost_above(&self) -> (u64, u64, Option<Verdict>) {
        let inner = self.lock();
        let counters = inner.cse.counters();
        let last = inner.cse.refused().cloned();
        (counters.readings_refused_above, counters.letters_aged, last)
    }

    /// Whether the wall clock has leapt and is not believed yet: by how many seconds it is ahead.
    pub fn doubted_clock(&self) -> Option<i64> {
        self.lock().cse.doubted_clock()
    }

    /// Takes the wall clock for right from now on.
    pub fn confirm_clock(&self) {
        self.step(Input::ClockConfirmed);
    }

    /// Whether this CSE's own registration stands, as far as is known.
    pub fn is_registered(&self) -> bool {
        self.lock().cse.is_registered_at_registrar()
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

    /// A panic under the lock would be a bug of the machine; the others are still served.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Carries out what the machine wants done; the answer of `mine` is returned.
    fn drain(&mut self, mine: Option<Token>) -> Option<Response> {
        self.drain_for(mine, Writer::push)
    }

    /// The same; `push` says how much what is to be stored is hurried for.
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
                        observing.send_replace(Some(response));
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
                Output::Lost { lane } => self.lost.push(lane),
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

    /// Hands on a request for a device, if there is a listener for devices.
    fn ask_device(&mut self, call: DeviceCall) {
        let id = call.id;
        let words = ("requests for devices", "nobody listens for devices here");
        let sent = match &self.devices {
            Some(devices) => devices.try_send(call),
            None => Err(TrySendError::Closed(call)),
        };
        self.unless_sent(id, &sent, words);
    }

    /// Answers a request that nobody takes, or that finds too many before it.
    fn unless_sent<T>(
        &mut self,
        call: CallId,
        sent: &Result<(), TrySendError<T>>,
        (what, nobody): (&str, &str),
    ) {
        let why = match sent {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => {
                self.calls_full += 1;
                format!("too many {what} wait to be sent")
            }
            Err(TrySendError::Closed(_)) => nobody.to_owned(),
        };
        self.cse.handle(now(), Input::Answer { call, answer: Err(Unreachable(why)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Quota;
    use gatewright_onem2m::{Config, CseType, Kind, Operation, Release, Status};
    use gatewright_store::{Database, Options};

    /// How long anything may take to come about.
    const DEADLINE: Duration = Duration::from_mins(2);

    /// An engine of which nobody sends what it wants sent, and what waits for that.
    fn engine(calls_max: usize) -> (Arc<Engine>, mpsc::Receiver<Call>) {
        let mut config = Config::new(CseType::Infrastructure, "/id-in", "cse-in");
        config.admin = Some("CAdmin".to_owned());
        let (cse, _) = Cse::open(config, now(), Vec::new(), 1).unwrap();
        let (outgoing, calls) = mpsc::channel(calls_max);
        let engine = Engine::new(cse, outgoing, Quotas::new(Quota::default()));
        let (database, _) = Database::in_memory(&Options::default()).unwrap();
        let theirs = Arc::downgrade(&engine);
        let report = move |report: Report| {
            if let Some(engine) = theirs.upgrade() {
                engine.report(&report);
            }
        };
        engine.begin(database.start(report).unwrap());
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
            .creating(Kind::ApplicationEntity, entity);
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
