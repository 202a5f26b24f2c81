//! CoAP binding (TS-0008) on UDP sockets: the endpoint of `onem2m::coap` behind one lock, its loop
//! and the sender.

mod send;

pub(crate) use send::CoapSender;

use crate::answers::{Answers, At, refuse};
use crate::datagram_socket::{DatagramSocket, UndeliveredDatagram, is_delivery_error};
use crate::tasks::spawn;
use core::hash::{BuildHasher, Hasher};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use gatewright_onem2m::Serialisation;
use gatewright_onem2m::coap::primitive::{option, read_request, request_id, write_response};
use gatewright_onem2m::coap::{
    AskId, CoapMessage, Counters, Endpoint, Failure, Input, Limits, Output, RequestId,
};
use gatewright_wire::coap::OptionNumber;
use std::collections::HashMap;
use std::hash::RandomState;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::AbortHandle;

/// Octets of the largest datagram.
const DATAGRAM_MAX: usize = 65_535;
/// Pause after a receive error, so that the loop does not spin.
const RECEIVE_PAUSE: Duration = Duration::from_millis(50);
/// Time limit for pending requests when the socket stops.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Sleep of the loop when nothing is due.
const NOTHING_DUE: Duration = Duration::from_hours(1);

/// A UDP socket that speaks CoAP as client and server.
#[derive(Debug)]
pub(crate) struct CoapSocket {
    udp: DatagramSocket,
    inner: Mutex<Inner>,
    started: Instant,
    /// Wakes the loop: there is something to send, or an earlier deadline.
    wake: Notify,
    /// Requests in progress, without observations.
    serving: AtomicUsize,
}

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    waiting: HashMap<RequestId, oneshot::Sender<Result<CoapMessage, Failure>>>,
    requested: u64,
    /// Tasks that notify observers.
    observers: HashMap<AskId, ObserverTask>,
}

/// A task that notifies an observer.
#[derive(Debug)]
struct ObserverTask {
    task: AbortHandle,
    /// The observer has acknowledged the last notification.
    acknowledged: Arc<Notify>,
}

/// Requests from one step of the endpoint.
struct ReceivedRequest {
    id: AskId,
    from: SocketAddr,
    message: CoapMessage,
    observes: bool,
}

impl CoapSocket {
    /// Binds a socket; `body_octets_max` limits its bodies.
    pub(crate) async fn bind(address: SocketAddr, body_octets_max: usize) -> io::Result<Self> {
        let socket = DatagramSocket::Kernel(UdpSocket::bind(address).await?);
        Ok(Self::new(socket, body_octets_max))
    }

    /// Wraps a bound socket; `body_octets_max` limits its bodies.
    pub(crate) fn new(udp: DatagramSocket, body_octets_max: usize) -> Self {
        let mut limits = Limits::default();
        limits.body_octets = body_octets_max;
        // The standard library seeds its maps from the system; nothing else is drawn here.
        let secret = [(); 2].map(|()| RandomState::new().build_hasher().finish());
        let endpoint = Endpoint::new(limits, option::is_known, secret);
        let (waiting, observers) = (HashMap::new(), HashMap::new());
        let inner = Inner { endpoint, waiting, requested: 0, observers };
        let (inner, started) = (Mutex::new(inner), Instant::now());
        let serving = AtomicUsize::new(0);
        udp.report_errors();
        Self { udp, inner, started, wake: Notify::new(), serving }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.lock().endpoint.counters().clone()
    }

    /// Serves until `stop` is set and pending requests are answered, or for ever if its sender is
    /// gone. Observers are not told of the end: they register again when they hear nothing (RFC
    /// 7641 §3.3.1).
    pub(crate) async fn run<A: Answers>(
        self: Arc<Self>,
        answers: Arc<A>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut buffer = vec![0; DATAGRAM_MAX];
        let mut leaves_at: Option<Instant> = None;
        loop {
            // Looked at before the last answers are sent.
            let is_over = leaves_at
                .is_some_and(|at| self.serving.load(Ordering::SeqCst) == 0 || Instant::now() > at);
            let asked = self.flush().await;
            if is_over {
                return;
            }
            for ReceivedRequest { id, from, message, observes } in asked {
                let socket = Arc::clone(&self);
                let answers = At { answers: Arc::clone(&answers), address: from.ip() };
                if observes {
                    socket.start_observer(answers, id, message);
                } else {
                    let serving = Serving::new(&socket);
                    spawn(socket.serve(answers, (id, message), serving));
                }
            }
            let sleep = if leaves_at.is_some() { self.due().min(LEAVE_WITHIN) } else { self.due() };
            tokio::select! {
                received = self.udp.recv_from(&mut buffer) => match received {
                    Ok((length, from)) => {
                        let octets = buffer.get(..length).unwrap_or_default();
                        self.handle(Input::Datagram { from, octets });
                    }
                    // The error queue says about which datagram.
                    Err(error) if is_delivery_error(&error) => {}
                    Err(_) => tokio::time::sleep(RECEIVE_PAUSE).await,
                },
                UndeliveredDatagram { to, quoted } = self.udp.undelivered() => {
                    self.handle(Input::Undelivered { to, quoted: &quoted });
                }
                () = tokio::time::sleep(sleep) => self.handle(Input::Tick),
                () = self.wake.notified() => {}
                _ = stop.changed(), if leaves_at.is_none() => {
                    self.lock().observers.drain().for_each(|(_, observer)| observer.task.abort());
                    leaves_at = Instant::now().checked_add(LEAVE_WITHIN);
                }
            }
        }
    }

    async fn serve<A: Answers>(
        self: Arc<Self>,
        answers: A,
        (id, message): (AskId, CoapMessage),
        serving: Serving,
    ) {
        let serialisation = Serialisation::accepted(&message);
        let response = match read_request(&message) {
            Ok(request) => answers.answer(request).await,
            Err(refusal) => refuse(&refusal, request_id(&message)),
        };
        self.handle(Input::Respond { id, message: write_response(&response, serialisation) });
        drop(serving);
    }

    /// Starts to notify an observer.
    fn start_observer<A: Answers>(
        self: Arc<Self>,
        answers: At<A>,
        id: AskId,
        message: CoapMessage,
    ) {
        let acknowledged = Arc::new(Notify::new());
        let notifying =
            Arc::clone(&self).notify_observer(answers, (id, message), Arc::clone(&acknowledged));
        // It removes itself at its end, which must not come before.
        let mut inner = self.lock();
        let task = spawn(notifying).abort_handle();
        inner.observers.insert(id, ObserverTask { task, acknowledged });
    }

    /// Notifies an observer now and after each change, until it is forgotten. Nothing is looked up for
    /// one that has not acknowledged the last notification: it may be gone, or never have been there.
    async fn notify_observer<A: Answers>(
        self: Arc<Self>,
        answers: At<A>,
        (id, message): (AskId, CoapMessage),
        acknowledged: Arc<Notify>,
    ) {
        let serialisation = Serialisation::accepted(&message);
        let request = read_request(&message).ok();
        let observing = request.and_then(|it| answers.answers.observe(&it, answers.address));
        let Some(mut observing) = observing else {
            self.lock().observers.remove(&id);
            let serving = Serving::new(&self);
            return self.serve(answers, (id, message), serving).await;
        };
        let mut is_first = true;
        while let Some(response) = observing.next().await {
            let mut message = write_response(&response, serialisation);
            let goes_on = observing.goes_on();
            if goes_on {
                // The endpoint grants it, and counts the notifications.
                message.put(OptionNumber::OBSERVE, []);
            }
            let is_first = core::mem::take(&mut is_first);
            self.handle(if is_first {
                Input::Respond { id, message }
            } else {
                Input::Notify { id, message }
            });
            drop(response);
            self.wake.notify_one();
            if !goes_on {
                break;
            }
            if !is_first {
                acknowledged.notified().await;
            }
        }
        self.lock().observers.remove(&id);
    }

    /// Sends a request to a peer. Dropping the future stops waiting for the answer.
    pub(crate) async fn ask(
        &self,
        to: SocketAddr,
        message: CoapMessage,
    ) -> Result<CoapMessage, Failure> {
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut inner = self.lock();
            inner.requested += 1;
            let id = RequestId(inner.requested);
            inner.waiting.insert(id, sender);
            inner.endpoint.handle(self.started.elapsed(), Input::Request { id, to, message });
            id
        };
        let _waiting = ResponseWaiter { socket: self, id };
        self.wake.notify_one();
        answer.await.unwrap_or(Err(Failure::Unanswered))
    }

    fn handle(&self, input: Input<'_>) {
        self.lock().endpoint.handle(self.started.elapsed(), input);
    }

    /// Sends pending datagrams, wakes waiting callers and returns the requests to serve.
    async fn flush(&self) -> Vec<ReceivedRequest> {
        let mut asked = Vec::new();
        loop {
            let output = self.lock().endpoint.poll_output();
            match output {
                None => return asked,
                // What the system does not take is lost like what the network loses.
                Some(Output::Send { to, octets }) => {
                    let _ = self.udp.send_to(&octets, to).await;
                }
                Some(Output::Asked { id, from, message, observes }) => {
                    asked.push(ReceivedRequest { id, from, message, observes });
                }
                Some(Output::Answered { id, answer }) => {
                    if let Some(waiting) = self.lock().waiting.remove(&id) {
                        let _ = waiting.send(answer);
                    }
                }
                Some(Output::Acknowledged(id)) => {
                    if let Some(observer) = self.lock().observers.get(&id) {
                        observer.acknowledged.notify_one();
                    }
                }
                Some(Output::Unobserved(id)) => {
                    if let Some(observer) = self.lock().observers.remove(&id) {
                        observer.task.abort();
                    }
                }
            }
        }
    }

    fn due(&self) -> Duration {
        let due = self.lock().endpoint.poll_timeout();
        due.map_or(NOTHING_DUE, |due| due.saturating_sub(self.started.elapsed()))
    }

    /// A panic under the lock would be a bug of the endpoint; other peers are still served.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that counts a request in progress until it is dropped.
struct Serving(Arc<CoapSocket>);

impl Serving {
    fn new(socket: &Arc<CoapSocket>) -> Self {
        socket.serving.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(socket))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Ordering::SeqCst);
        self.0.wake.notify_one();
    }
}

/// A caller that waits for an answer.
struct ResponseWaiter<'a> {
    socket: &'a CoapSocket,
    id: RequestId,
}

impl Drop for ResponseWaiter<'_> {
    fn drop(&mut self) {
        let mut inner = self.socket.lock();
        if inner.waiting.remove(&self.id).is_some() {
            let now = self.socket.started.elapsed();
            inner.endpoint.handle(now, Input::Cancel(self.id));
            self.socket.wake.notify_one();
        }
    }
}
