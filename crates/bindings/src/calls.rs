//! Outgoing requests and the limits on those in progress.
//!
//! Requests for devices do not pass here. The CSE's own requests (its registration, its devices'
//! readings) have their own slots. All others share slots, of which one target has a few: a target
//! that never answers delays only the requests to it. A slot is held no longer than the CSE waits
//! for the answer. Requests whose originator is patient hold no slot and are limited per target.
//!
//! Outbox messages keep the order of their queue: over plain HTTP by [`Pipelines`], over other
//! bindings one after the other. The CSE limits how many are in progress.

use crate::engine::{Engine, now};
use crate::http::pipeline::{OutgoingRequest, Pipelines, authority_of};
use crate::outgoing::Sender;
use crate::reach::Reach;
use crate::tasks::spawn;
use core::time::Duration;
use gatewright_onem2m::{Call, Response, Unreachable};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

/// The CSE's own requests in progress at a time.
const OWN_AT_ONCE: usize = 64;
/// All other requests in progress at a time.
const OTHERS_AT_ONCE: usize = 64;
/// Of those, requests to one target.
const TO_ONE_AT_ONCE: usize = 16;
/// Response time from which a request counts as patient: the CSE's own limit and a margin.
const PATIENT_FROM: Duration = Duration::from_secs(11);
/// Patient requests that wait for one target.
const PATIENT_TO_ONE: usize = 256;
/// Requests that are taken from the CSE at a time.
const RECEIVED_AT_ONCE: usize = 64;
/// Time before its deadline at which a request that has no slot is given up. So the CSE hears that it
/// was not sent, before it takes the deadline for silence of the target.
const UNSENT_BEFORE: Duration = Duration::from_millis(200);
/// Requests in progress that hold a slot.
pub(crate) const SENT_AT_ONCE: usize = OWN_AT_ONCE + OTHERS_AT_ONCE;

/// Sends the CSE's outgoing requests until `stop` is set.
pub(crate) async fn send_calls(
    engine: Weak<Engine>,
    mut calls: mpsc::Receiver<Call>,
    reach: Arc<Reach>,
    mut stop: watch::Receiver<bool>,
) {
    let permits = Arc::new(SendPermits::new());
    let pipelines = Pipelines::new(engine.clone(), Arc::clone(&reach));
    let queues = Arc::new(Queues::default());
    let mut received = Vec::new();
    loop {
        let count = tokio::select! {
            count = calls.recv_many(&mut received, RECEIVED_AT_ONCE) => count,
            _ = stop.changed() => return,
        };
        if count == 0 {
            return;
        }
        let Some(strong) = engine.upgrade() else { return };
        let Some(sender) = strong.sender() else { return };
        drop(strong);
        let one = || One {
            engine: engine.clone(),
            permits: Arc::clone(&permits),
            reach: Arc::clone(&reach),
            sender: Arc::clone(&sender),
        };
        for call in received.drain(..) {
            if let Some(call) = pipeline(&pipelines, &engine, &sender, call) {
                one().begin(call, &queues);
            }
        }
    }
}

/// Sends an outbox message by a pipeline, if it goes over plain HTTP; returns any other request.
fn pipeline(
    pipelines: &Arc<Pipelines>,
    engine: &Weak<Engine>,
    sender: &Sender,
    call: Call,
) -> Option<Call> {
    let chosen = call.queue.as_ref().and_then(|_| sender.choose(&call.urls).ok());
    let Some(url) = chosen.map(str::to_owned) else { return Some(call) };
    // What is for an application goes to its own URL.
    let direct = call.request.to.contains("://").then_some(call.request.to.as_str());
    let Some(authority) = authority_of(direct.unwrap_or(&url)).map(str::to_owned) else {
        return Some(call);
    };
    let is_registrar = || engine.upgrade().is_some_and(|it| it.registrar_at(&url).is_some());
    let is_trusted = call.own || (direct.is_none() && is_registrar());
    let serialisation = sender.serialisation_for(call.serialisation);
    pipelines.send(&authority, OutgoingRequest { call, url, serialisation, is_trusted });
    None
}

/// Sends requests one at a time, each within its limits.
struct One {
    engine: Weak<Engine>,
    permits: Arc<SendPermits>,
    reach: Arc<Reach>,
    sender: Arc<Sender>,
}

impl One {
    /// Sends a request on a task of its own, behind the earlier ones of its queue.
    fn begin(self, call: Call, queues: &Arc<Queues>) {
        let Some(queue) = call.queue.clone() else {
            spawn(async move { self.send(call).await });
            return;
        };
        let Some(call) = queues.join(&queue, call) else { return };
        let queues = Arc::clone(queues);
        spawn(async move {
            let mut next = Some(call);
            while let Some(call) = next {
                self.send(call).await;
                next = queues.next(&queue);
            }
        });
    }

    /// Sends a request and hands its answer to the engine.
    async fn send(&self, call: Call) {
        let left = call.deadline.saturating_sub(now().elapsed);
        let sent = async {
            if !may_send(&self.reach, &self.engine, &call).await {
                return Err(Failure::Barred);
            }
            self.permits.send(&self.sender, &call).await
        };
        // The machine gives up by itself at that moment, and needs not be told.
        let Ok(answer) = tokio::time::timeout(left, sent).await else { return };
        if let Some(engine) = self.engine.upgrade() {
            match answer {
                Ok(answer) => engine.answer(call.id, Ok(answer)),
                Err(failure) => {
                    if matches!(failure, Failure::NoPermit) {
                        engine.count_call_full();
                    }
                    let was_sent = matches!(failure, Failure::Unreachable(_));
                    let unreachable = failure.told(call.own);
                    if was_sent {
                        engine.answer(call.id, Err(unreachable));
                    } else {
                        engine.unsent(call.id, unreachable.0);
                    }
                }
            }
        }
    }
}

/// Outbox messages that wait for an earlier one of their queue, as many as the CSE has in progress.
#[derive(Debug, Default)]
struct Queues(Mutex<HashMap<Arc<str>, VecDeque<Call>>>);

impl Queues {
    /// A poisoned lock is safe here: queues stay consistent between operations.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, VecDeque<Call>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a request to a queue in progress; returns it if there is none, which then begins.
    fn join(&self, queue: &Arc<str>, call: Call) -> Option<Call> {
        let mut queues = self.lock();
        if let Some(waiting) = queues.get_mut(queue) {
            waiting.push_back(call);
            return None;
        }
        queues.insert(Arc::clone(queue), VecDeque::new());
        Some(call)
    }

    /// The next request of a queue in progress, which ends without one.
    fn next(&self, queue: &Arc<str>) -> Option<Call> {
        let mut queues = self.lock();
        let next = queues.get_mut(queue)?.pop_front();
        if next.is_none() {
            queues.remove(queue);
        }
        next
    }
}

/// Why a request has no answer.
enum Failure {
    Unreachable(Unreachable),
    NoPermit,
    /// The target may not be asked on a peer's behalf.
    Barred,
}

impl Failure {
    /// The error reported to the CSE. For a peer's request it has no detail: the peer must not
    /// learn whether something listens there or where a name leads.
    fn told(self, own: bool) -> Unreachable {
        match self {
            Self::NoPermit => Unreachable("too many requests wait for it".to_owned()),
            Self::Unreachable(unreachable) if own => unreachable,
            Self::Unreachable(_) | Self::Barred => Unreachable("no answer".to_owned()),
        }
    }
}

/// Whether a request may be sent: a URL from a peer must not lead to this machine; the registrar's
/// URL is the operator's.
async fn may_send(reach: &Reach, engine: &Weak<Engine>, call: &Call) -> bool {
    if call.own {
        return true;
    }
    let is_registrar =
        |url: &String| engine.upgrade().is_some_and(|engine| engine.registrar_at(url).is_some());
    let direct = call.request.to.contains("://").then_some(&call.request.to);
    for url in call.urls.iter().chain(direct) {
        if !is_registrar(url) && !reach.allows(url).await {
            return false;
        }
    }
    true
}

/// Slots for requests in progress.
#[derive(Debug)]
struct SendPermits {
    own: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// Targets with requests in progress.
    targets: Mutex<HashMap<String, Arc<TargetPermits>>>,
}

#[derive(Debug)]
struct TargetPermits {
    brisk: Arc<Semaphore>,
    patient: Arc<Semaphore>,
}

/// The slot or slots that a request holds.
type Permits = (Option<OwnedSemaphorePermit>, Option<OwnedSemaphorePermit>);

impl SendPermits {
    fn new() -> Self {
        let own = Arc::new(Semaphore::new(OWN_AT_ONCE));
        let others = Arc::new(Semaphore::new(OTHERS_AT_ONCE));
        Self { own, others, targets: Mutex::default() }
    }

    async fn send(self: &Arc<Self>, sender: &Sender, call: &Call) -> Result<Response, Failure> {
        let left = call.deadline.saturating_sub(now().elapsed);
        let url = sender.choose(&call.urls).map_err(Failure::Unreachable)?;
        let interest = Interest::new(self, target_of(url, &call.request.to));
        let permits =
            self.acquire(&interest.target, call.own, left).await.ok_or(Failure::NoPermit)?;
        // What sends is large, and most of what waits for a permit is not sent yet.
        let answer = Box::pin(sender.send_as(url, &call.request, call.serialisation)).await;
        drop((permits, interest));
        answer.map_err(Failure::Unreachable)
    }

    /// Waits for a slot, until [`UNSENT_BEFORE`] the request's deadline; `None` if there is none by then,
    /// or for a patient request if too many wait for its target.
    async fn acquire(&self, target: &TargetPermits, own: bool, left: Duration) -> Option<Permits> {
        let permits = self.permits(target, own, left);
        tokio::time::timeout(left.saturating_sub(UNSENT_BEFORE), permits).await.ok().flatten()
    }

    async fn permits(&self, target: &TargetPermits, own: bool, left: Duration) -> Option<Permits> {
        if own {
            return Some((Some(acquire(&self.own).await?), None));
        }
        if left > PATIENT_FROM {
            return Some((Some(Arc::clone(&target.patient).try_acquire_owned().ok()?), None));
        }
        // First that of the target: who waits for a slow one takes nobody else's.
        let there = acquire(&target.brisk).await?;
        Some((Some(there), Some(acquire(&self.others).await?)))
    }
}

/// Acquires a permit; these semaphores are never closed.
async fn acquire(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(semaphore).acquire_owned().await.ok()
}

/// Keeps a target in the table while a request to it is in progress.
#[derive(Debug)]
struct Interest {
    permits: Arc<SendPermits>,
    name: String,
    target: Arc<TargetPermits>,
}

impl Interest {
    fn new(permits: &Arc<SendPermits>, name: String) -> Self {
        let mut targets = permits.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let target = targets.entry(name.clone()).or_insert_with(|| {
            let brisk = Arc::new(Semaphore::new(TO_ONE_AT_ONCE));
            Arc::new(TargetPermits { brisk, patient: Arc::new(Semaphore::new(PATIENT_TO_ONE)) })
        });
        let target = Arc::clone(target);
        drop(targets);
        Self { permits: Arc::clone(permits), name, target }
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut targets = self.permits.targets.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's and this one: clones are made under the lock only.
        if Arc::strong_count(&self.target) <= 2 {
            targets.remove(&self.name);
        }
    }
}

/// The target of a URL: its host and port, and at a broker also the receiver.
fn target_of(url: &str, to: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme.starts_with("mqtt") {
        let receiver = to.trim_start_matches('/').split('/').next().unwrap_or_default();
        return format!("{url} {receiver}");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    format!("{scheme}://{authority}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long nothing may come about that must not.
    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn who_never_answers_holds_up_nobody_else() {
        let permits = Arc::new(SendPermits::new());
        let tarpits: Vec<_> = (0..OTHERS_AT_ONCE / TO_ONE_AT_ONCE - 1)
            .map(|number| Interest::new(&permits, format!("http://tarpit-{number}")))
            .collect();
        let brisk = Duration::from_secs(10);
        let mut held = Vec::new();
        for tarpit in &tarpits {
            for _ in 0..TO_ONE_AT_ONCE {
                held.push(permits.acquire(&tarpit.target, false, brisk).await.unwrap());
            }
            let waits = permits.acquire(&tarpit.target, false, brisk);
            assert!(tokio::time::timeout(SHORT, waits).await.is_err(), "it waits for its own");
            // What is patient takes no other permit.
            held.push(permits.acquire(&tarpit.target, false, brisk * 10).await.unwrap());
        }
        let other = Interest::new(&permits, "http://other".to_owned());
        for _ in 0..TO_ONE_AT_ONCE {
            held.push(permits.acquire(&other.target, false, brisk).await.unwrap());
        }
        // All shared permits are taken; what is on our own account has others.
        let last = Interest::new(&permits, "http://last".to_owned());
        let waits = permits.acquire(&last.target, false, brisk);
        assert!(tokio::time::timeout(SHORT, waits).await.is_err());
        for _ in 0..OWN_AT_ONCE {
            held.push(permits.acquire(&tarpits[0].target, true, brisk).await.unwrap());
        }
        drop((held, tarpits, other, last));
        assert!(permits.targets.lock().unwrap().is_empty(), "nothing is remembered");
    }

    /// A request that has found no slot is reported as unsent before its deadline: it says nothing of
    /// its target.
    #[tokio::test]
    async fn a_request_without_a_slot_is_given_up_before_its_deadline() {
        let permits = Arc::new(SendPermits::new());
        let there = Interest::new(&permits, "http://there".to_owned());
        let brisk = Duration::from_secs(10);
        let mut held = Vec::new();
        for _ in 0..TO_ONE_AT_ONCE {
            held.push(permits.acquire(&there.target, false, brisk).await.unwrap());
        }
        for _ in 0..OWN_AT_ONCE {
            held.push(permits.acquire(&there.target, true, brisk).await.unwrap());
        }
        for own in [false, true] {
            let (began, left) = (std::time::Instant::now(), UNSENT_BEFORE * 3);
            assert!(permits.acquire(&there.target, own, left).await.is_none());
            assert!((UNSENT_BEFORE * 2..left).contains(&began.elapsed()), "{:?}", began.elapsed());
        }
        drop(held);
        // A slot that is free is taken also just before the deadline.
        let left = UNSENT_BEFORE / 2;
        assert!(permits.acquire(&there.target, false, left).await.is_some());
    }

    #[tokio::test]
    async fn patient_requests_to_one_target_are_bounded() {
        let permits = Arc::new(SendPermits::new());
        let there = Interest::new(&permits, "http://there".to_owned());
        let patient = Duration::from_hours(24);
        let mut held = Vec::new();
        for _ in 0..PATIENT_TO_ONE {
            held.push(permits.acquire(&there.target, false, patient).await.unwrap());
        }
        assert!(permits.acquire(&there.target, false, patient).await.is_none());
        let other = Interest::new(&permits, "http://other".to_owned());
        assert!(permits.acquire(&other.target, false, patient).await.is_some());
    }

    #[test]
    fn a_target_is_who_is_asked() {
        for (url, to, target) in [
            ("http://h:1/a/b", "/id/x", "http://h:1"),
            ("coap://[::1]?x", "/id/x", "coap://[::1]"),
            ("mqtt://b:1883", "/id-in/cse-in", "mqtt://b:1883 id-in"),
        ] {
            assert_eq!(target_of(url, to), target);
        }
    }
}
