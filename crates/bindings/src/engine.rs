//! One machine, one store, and whoever waits for an answer.

use core::future::Future;
use core::time::Duration;
use gatewright_onem2m::{
    Call, CallId, Counters, Cse, Input, Letter, Output, Request, Response, Token, Unreachable,
};
use gatewright_store::{Entry, Report, Writer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{Notify, mpsc, oneshot};

/// A running CSE: requests go in by [`Engine::ask`], whoever asks.
#[derive(Debug)]
pub struct Engine {
    inner: Mutex<Inner>,
    /// Tells the timer that something is due earlier than it sleeps for.
    pub(crate) earlier: Notify,
    /// Where requests for devices go, if there is a listener for them.
    devices: Mutex<Option<mpsc::UnboundedSender<Call>>>,
}

#[derive(Debug)]
struct Inner {
    cse: Cse,
    writer: Option<Writer>,
    waiting: HashMap<Token, oneshot::Sender<Response>>,
    asked: u64,
    /// When the timer will wake by itself.
    wakes: Option<Duration>,
    outgoing: mpsc::UnboundedSender<Call>,
    audits: bool,
}

/// Something to be done with others at once.
#[derive(Debug)]
pub(crate) enum Task {
    Ask(Request),
    Post(Letter),
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

/// The time since 1970. A clock set before 1970 counts as 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Engine {
    pub(crate) fn new(cse: Cse, outgoing: mpsc::UnboundedSender<Call>, audits: bool) -> Arc<Self> {
        let inner = Inner {
            cse,
            writer: None,
            waiting: HashMap::new(),
            asked: 0,
            wakes: None,
            outgoing,
            audits,
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            earlier: Notify::new(),
            devices: Mutex::new(None),
        })
    }

    /// Has requests for devices (URLs that begin with `device:`) sent there from now on.
    pub(crate) fn send_device_calls(&self, to: mpsc::UnboundedSender<Call>) {
        *self.devices.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
    }

    /// Hands on a request for a device, if there is a listener for devices.
    pub(crate) fn device_call(&self, call: Call) {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let back = match devices {
            Some(devices) => devices.send(call).err().map(|back| back.0),
            None => Some(call),
        };
        if let Some(Call { id, .. }) = back {
            let nobody = Unreachable("nobody listens for devices here".to_owned());
            self.answer(id, Err(nobody));
        }
    }

    /// The CSE-ID.
    pub fn cse_id(&self) -> String {
        self.lock().cse.config().cse_id.clone()
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
    }

    /// Does what the request asks; the answer comes when it is stored.
    ///
    /// The request is taken when this is called, not when the future is first polled; dropping
    /// the future does not undo it.
    pub fn ask(&self, request: Request) -> impl Future<Output = Option<Response>> + Send + use<> {
        let asked = self.put(|inner, token| {
            inner.audit(&request);
            Input::Request { token, request }
        });
        asked.answer()
    }

    /// Has a request of our own delivered, however long it takes; accepted when it is stored.
    pub fn post(&self, letter: Letter) -> impl Future<Output = Option<Response>> + Send + use<> {
        self.put(|_, token| Input::Post { token, letter }).answer()
    }

    /// Does what the request asks and has the letter delivered; both are stored together or not
    /// at all. The answers to the request and to the letter.
    pub fn ask_and_post(
        &self,
        request: Request,
        letter: Letter,
    ) -> impl Future<Output = Option<(Response, Response)>> + Send + use<> {
        let (sender, accepted) = oneshot::channel();
        let asked = self.put(|inner, token| {
            inner.audit(&request);
            inner.asked += 1;
            let second = Token(inner.asked);
            inner.waiting.insert(second, sender);
            let post = Input::Post { token: second, letter };
            Input::Together(vec![Input::Request { token, request }, post])
        });
        async move { Some((asked.answer().await?, accepted.await.ok()?)) }
    }

    /// Does several things at once: what they have stored is stored together or not at all. The
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
                Task::Ask(request) => {
                    inner.audit(&request);
                    Input::Request { token, request }
                }
                Task::Post(letter) => Input::Post { token, letter },
            });
        }
        inner.cse.handle(now(), Input::Together(inputs));
        inner.drain(None);
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

    /// What the writer did so far; nothing once the engine has ended.
    pub fn store_counters(&self) -> Option<gatewright_store::Counters> {
        self.lock().writer.as_ref().map(Writer::counters)
    }

    /// Resources in the tree.
    pub fn resources(&self) -> usize {
        self.lock().cse.resources()
    }

    /// Letters that have not arrived yet.
    pub fn letters(&self) -> usize {
        self.lock().cse.letters()
    }

    /// Whether this CSE's own registration stands, as far as is known.
    pub fn is_registered(&self) -> bool {
        self.lock().cse.is_registered_at_registrar()
    }

    fn step(&self, input: Input) {
        let mut inner = self.lock();
        inner.cse.handle(now(), input);
        inner.drain(None);
        self.rearm(&mut inner);
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
        let mut answer = None;
        if self.writer.is_none() && mine.is_none() {
            return None;
        }
        while let Some(output) = self.cse.poll_output() {
            match output {
                Output::Store(batch) => {
                    let number = batch.number;
                    let stored = self.writer.as_ref().is_some_and(|it| it.push(batch).is_ok());
                    if !stored {
                        self.cse.handle(now(), Input::Failed(number));
                    }
                }
                Output::Respond { token, response } if Some(token) == mine => {
                    answer = Some(response);
                }
                Output::Respond { token, response } => {
                    if let Some(waiting) = self.waiting.remove(&token) {
                        // Whoever asked may have gone; what was asked is done all the same.
                        let _ = waiting.send(response);
                    }
                }
                Output::Call(call) => {
                    let id = call.id;
                    if self.outgoing.send(call).is_err() {
                        let answer = Err(Unreachable("this CSE is stopping".to_owned()));
                        self.cse.handle(now(), Input::Answer { call: id, answer });
                    }
                }
            }
        }
        answer
    }

    /// Notes who asks for what; never a value.
    fn audit(&self, request: &Request) {
        let (true, Some(writer)) = (self.audits, &self.writer) else {
            return;
        };
        let at_micros = u64::try_from(now().as_micros()).unwrap_or(u64::MAX);
        let text = format!("{:?} {} by {}", request.operation, request.to, request.from);
        writer.audit(Entry { at_micros, text });
    }
}
