//! HTTP connections for outbox messages: many requests to few targets, in order on each queue.
//!
//! A queue with requests in progress keeps its connection, so its requests arrive in order. Requests
//! are pipelined once a target has answered with a persistent connection: "a server MAY process a
//! sequence of pipelined requests in parallel if they all have safe methods, but it MUST send the
//! corresponding responses in the same order that it received the requests" (RFC 9112 §9.3.2).
//! Messages have names or identifiers that show a repetition, which is "a means to detect and
//! recover from partial failure conditions involving the pipelined sequence". A target that closes
//! its connections or falls silent gets one request at a time.

use super::message::{read_fields, write_message};
use super::reply::{Reply, Taken};
use crate::engine::{Engine, now};
use crate::reach::Reach;
use crate::tasks::spawn;
use core::time::Duration;
use gatewright_onem2m::{Call, Response, Serialisation, Unreachable};
use hyper::header::HeaderName;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Connections to one target.
const CONNECTIONS_MAX: usize = 64;
/// Unanswered requests on one connection: as many as the CSE has in progress of one queue.
const DEPTH_MAX: usize = 128;
/// Requests on one connection from which another one is opened.
const FILLED_TO: usize = 8;
/// Requests that wait for one connection: more than the CSE has in progress for one target.
const WAITING_MAX: usize = 4_096;
/// Time that an idle connection is kept.
const IDLE_KEPT: Duration = Duration::from_secs(30);
/// Time limit for connecting.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time during which a target that closed a pipelined connection gets one request at a time.
const UNPIPELINED_FOR: Duration = Duration::from_mins(1);
/// Octets that one read makes room for.
const READ_OCTETS: usize = 16 * 1024;

/// A request with the URL that it goes to.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    pub(crate) call: Call,
    pub(crate) url: String,
    pub(crate) serialisation: Serialisation,
    /// Whether the URL is the operator's, who may name any address.
    pub(crate) is_trusted: bool,
}

/// Connections to every target.
#[derive(Debug)]
pub(crate) struct Pipelines {
    engine: Weak<Engine>,
    reach: Arc<Reach>,
    targets: Mutex<HashMap<String, TargetConnections>>,
}

#[derive(Debug, Default)]
struct TargetConnections {
    connections: Vec<Connection>,
    opened: u64,
    /// Connection and requests in progress of each queue that has some.
    queues: HashMap<Arc<str>, (u64, usize)>,
    /// End of the time in which it gets one request at a time.
    unpipelined_until: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    id: u64,
    calls: mpsc::Sender<OutgoingRequest>,
    /// Requests that were handed to it and have no answer.
    waiting: usize,
}

/// `host:port` of a plain HTTP URL that this client takes.
pub(crate) fn authority_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("http://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    (!authority.is_empty() && !authority.contains('@')).then_some(authority)
}

impl TargetConnections {
    /// The connection of a queue: the one that it has, or the first that is not filled.
    fn choose(&mut self, queue: &Arc<str>) -> Option<usize> {
        if let Some((id, count)) = self.queues.get_mut(queue)
            && let Some(at) = self.connections.iter().position(|it| it.id == *id)
        {
            *count += 1;
            return Some(at);
        }
        let at = self.connections.iter().position(|it| it.waiting < FILLED_TO).or_else(|| {
            let is_full = self.connections.len() >= CONNECTIONS_MAX;
            let least = self.connections.iter().enumerate().min_by_key(|(_, it)| it.waiting);
            least.filter(|_| is_full).map(|(at, _)| at)
        })?;
        let id = self.connections.get(at)?.id;
        self.queues.insert(Arc::clone(queue), (id, 1));
        Some(at)
    }
}

impl Pipelines {
    pub(crate) fn new(engine: Weak<Engine>, reach: Arc<Reach>) -> Arc<Self> {
        Arc::new(Self { engine, reach, targets: Mutex::default() })
    }

    /// A poisoned lock is safe here: counts stay consistent between operations.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, TargetConnections>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request of a queue; its answer goes to the engine.
    pub(crate) fn send(self: &Arc<Self>, authority: &str, outgoing: OutgoingRequest) {
        let queue = outgoing.call.queue.clone().unwrap_or_default();
        let id = outgoing.call.id;
        let mut targets = self.lock();
        if !targets.contains_key(authority) {
            targets.insert(authority.to_owned(), TargetConnections::default());
        }
        let Some(target) = targets.get_mut(authority) else { return };
        let at = target.choose(&queue).or_else(|| {
            self.open(authority, target);
            target.choose(&queue)
        });
        let sent = at.and_then(|at| target.connections.get_mut(at)).is_some_and(|connection| {
            connection.waiting += 1;
            connection.calls.try_send(outgoing).is_ok()
        });
        drop(targets);
        if !sent && let Some(engine) = self.engine.upgrade() {
            engine.count_call_full();
            engine.unsent(id, "too many requests wait for it".to_owned());
        }
    }

    /// Starts a connection's task.
    fn open(self: &Arc<Self>, authority: &str, target: &mut TargetConnections) {
        target.opened += 1;
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let id = target.opened;
        target.connections.push(Connection { id, calls, waiting: 0 });
        let line = PipelinedConnection {
            // Weak: the senders to the task belong to this.
            owner: Arc::downgrade(self),
            engine: self.engine.clone(),
            reach: Arc::clone(&self.reach),
            authority: authority.to_owned(),
            id,
            waiting,
            again: VecDeque::new(),
            pending: VecDeque::new(),
            input: Vec::new(),
            output: Vec::new(),
            is_proven: false,
        };
        spawn(line.run());
    }

    /// Notes that requests of these queues have their answers.
    fn finished<'queue>(
        &self,
        authority: &str,
        id: u64,
        queues: impl Iterator<Item = Option<&'queue Arc<str>>>,
    ) {
        let mut targets = self.lock();
        let Some(target) = targets.get_mut(authority) else { return };
        let mut connection = target.connections.iter_mut().find(|it| it.id == id);
        for queue in queues {
            if let Some(connection) = &mut connection {
                connection.waiting = connection.waiting.saturating_sub(1);
            }
            let Some(queue) = queue else { continue };
            if let Some((_, count)) = target.queues.get_mut(queue) {
                *count -= 1;
                if *count == 0 {
                    target.queues.remove(queue);
                }
            }
        }
    }

    /// Removes an idle connection; `false` if it has been given a request meanwhile.
    fn retire(&self, authority: &str, id: u64) -> bool {
        let mut targets = self.lock();
        let Some(target) = targets.get_mut(authority) else { return true };
        if target.connections.iter().any(|it| it.id == id && it.waiting > 0) {
            return false;
        }
        target.connections.retain(|it| it.id != id);
        if target.connections.is_empty() && target.unpipelined_until.is_none() {
            targets.remove(authority);
        }
        true
    }

    /// Whether a target takes several requests on one connection.
    fn may_pipeline(&self, authority: &str) -> bool {
        let mut targets = self.lock();
        let Some(target) = targets.get_mut(authority) else { return false };
        let is_over = target.unpipelined_until.is_none_or(|until| until <= Instant::now());
        if is_over {
            target.unpipelined_until = None;
        }
        is_over
    }

    fn unpipeline(&self, authority: &str) {
        if let Some(target) = self.lock().get_mut(authority) {
            target.unpipelined_until = Some(Instant::now() + UNPIPELINED_FOR);
        }
    }
}

/// A request that was sent, or will be.
#[derive(Debug)]
struct PipelinedRequest {
    outgoing: OutgoingRequest,
    /// Whether it was on a connection that closed before its answer.
    was_sent: bool,
}

/// Why a connection has ended.
enum Ended {
    /// Nothing was to be sent for a while.
    Idle,
    /// No further request is sent.
    Stopped,
    /// The target closed it, or it failed.
    Closed(String),
    /// The first answer did not come in time.
    Silent,
}

/// One connection with its requests.
struct PipelinedConnection {
    owner: Weak<Pipelines>,
    engine: Weak<Engine>,
    reach: Arc<Reach>,
    authority: String,
    id: u64,
    waiting: mpsc::Receiver<OutgoingRequest>,
    /// Requests for the next connection, before those that wait.
    again: VecDeque<PipelinedRequest>,
    /// Requests without an answer, in the order in which they were sent.
    pending: VecDeque<PipelinedRequest>,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Whether the target has answered on this connection and kept it open.
    is_proven: bool,
}

impl PipelinedConnection {
    /// Opens a connection whenever there is something to send.
    async fn run(mut self) {
        loop {
            if self.again.is_empty() {
                match tokio::time::timeout(IDLE_KEPT, self.waiting.recv()).await {
                    Ok(Some(outgoing)) => {
                        self.again.push_back(PipelinedRequest { outgoing, was_sent: false });
                    }
                    Ok(None) => return,
                    Err(_) => match self.owner.upgrade() {
                        Some(owner) if !owner.retire(&self.authority, self.id) => continue,
                        _ => return,
                    },
                }
            }
            let is_trusted = self.again.front().is_some_and(|it| it.outgoing.is_trusted);
            let ended = match self.connect(is_trusted).await {
                Ok(stream) => self.serve(stream).await,
                Err(why) => {
                    self.fail(&why);
                    continue;
                }
            };
            match ended {
                Ended::Idle => {}
                Ended::Stopped => return,
                Ended::Closed(why) => self.resume(&why),
                Ended::Silent => {
                    self.give_up_pipelining();
                    self.fail("no answer in time");
                }
            }
            (self.is_proven, self.input, self.output) = (false, Vec::new(), Vec::new());
        }
    }

    /// Connects to an address of the target, none of this machine's own unless that is allowed.
    async fn connect(&self, is_trusted: bool) -> Result<TcpStream, String> {
        let has_port = self.authority.rsplit_once(':').is_some_and(|(_, port)| {
            !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit())
        });
        let place =
            if has_port { self.authority.clone() } else { format!("{}:80", self.authority) };
        let connecting = async {
            let mut last = io::Error::other("the name has no address");
            for address in tokio::net::lookup_host(&place).await? {
                if !is_trusted && !self.reach.allows_address(address.ip()) {
                    return Err(io::Error::other("no peer may have this address asked"));
                }
                match TcpStream::connect(address).await {
                    Ok(stream) => return stream.set_nodelay(true).map(|()| stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let connected = tokio::time::timeout(CONNECT_WITHIN, connecting).await;
        let connected = connected.map_err(|_| "no connection in time".to_owned())?;
        connected.map_err(|error| error.to_string())
    }

    /// Sends requests and takes answers until the connection ends.
    async fn serve(&mut self, mut stream: TcpStream) -> Ended {
        let mut is_stopped = false;
        loop {
            self.fill();
            if !self.output.is_empty() {
                let written = tokio::time::timeout(self.left(), stream.write_all(&self.output));
                match written.await {
                    Ok(Ok(())) => self.output.clear(),
                    Ok(Err(error)) => return Ended::Closed(error.to_string()),
                    Err(_) => return Ended::Silent,
                }
            }
            if is_stopped && self.pending.is_empty() {
                return Ended::Stopped;
            }
            let has_room = !is_stopped && self.pending.len() < self.depth();
            let left = self.left();
            self.input.reserve(READ_OCTETS);
            tokio::select! {
                outgoing = self.waiting.recv(), if has_room => match outgoing {
                    Some(outgoing) => self.write(PipelinedRequest { outgoing, was_sent: false }),
                    None => is_stopped = true,
                },
                read = stream.read_buf(&mut self.input) => match read {
                    Ok(0) => {
                        let why = self.take(true).err();
                        return Ended::Closed(why.unwrap_or_else(|| "the connection is closed".to_owned()));
                    }
                    Ok(_) => if let Err(why) = self.take(false) {
                        return Ended::Closed(why);
                    },
                    Err(error) => return Ended::Closed(error.to_string()),
                },
                () = tokio::time::sleep(left) => {
                    return if self.pending.is_empty() { Ended::Idle } else { Ended::Silent };
                }
            }
        }
    }

    /// Time until the first answer has to be there, or until the connection is idle too long.
    fn left(&self) -> Duration {
        let deadline = self.pending.front().map(|first| first.outgoing.call.deadline);
        deadline.map_or(IDLE_KEPT, |deadline| deadline.saturating_sub(now().elapsed))
    }

    /// Unanswered requests that this connection may have.
    fn depth(&self) -> usize {
        let may_pipeline = self.is_proven
            && self.owner.upgrade().is_some_and(|owner| owner.may_pipeline(&self.authority));
        if may_pipeline { DEPTH_MAX } else { 1 }
    }

    /// Writes the requests that wait, as far as there is room.
    fn fill(&mut self) {
        let depth = self.depth();
        while self.pending.len() < depth {
            let next = self.again.pop_front().or_else(|| {
                let outgoing = self.waiting.try_recv().ok()?;
                Some(PipelinedRequest { outgoing, was_sent: false })
            });
            let Some(next) = next else { return };
            self.write(next);
        }
    }

    /// Appends a request to the output.
    fn write(&mut self, next: PipelinedRequest) {
        let OutgoingRequest { call, url, serialisation, .. } = &next.outgoing;
        if call.deadline <= now().elapsed {
            // The CSE has given it up.
            self.finish(&next.outgoing, None);
            return;
        }
        match write_message(url, &call.request, *serialisation, &mut self.output) {
            Ok(()) => self.pending.push_back(next),
            Err(refusal) => {
                self.finish(&next.outgoing, Some(Err(Unreachable(refusal.to_string()))));
            }
        }
    }

    /// Takes the answers that have arrived.
    ///
    /// # Errors
    ///
    /// If the connection cannot be used any more.
    fn take(&mut self, is_end: bool) -> Result<(), String> {
        let mut taken = 0;
        let mut answered = Vec::new();
        let mut ended = Ok(());
        while !self.pending.is_empty() {
            let octets = self.input.get(taken..).unwrap_or_default();
            match Reply::take(octets, is_end) {
                Ok(Taken::More) => break,
                Ok(Taken::Interim(octets)) => taken += octets,
                Ok(Taken::Whole(reply)) => {
                    taken += reply.octets;
                    let Some(first) = self.pending.pop_front() else { break };
                    let text = |name: &HeaderName| reply.fields.text(name);
                    let answer = read_fields(reply.status, text, &reply.body);
                    let answer = answer.map_err(|refusal| Unreachable(refusal.debug.into_owned()));
                    answered.push((first.outgoing, answer));
                    self.is_proven = reply.is_persistent;
                    if !reply.is_persistent {
                        self.give_up_pipelining();
                        ended = Err("the connection is closed".to_owned());
                        break;
                    }
                }
                Err(why) => {
                    ended = Err(why);
                    break;
                }
            }
        }
        self.finish_all(answered);
        self.input.drain(..taken.min(self.input.len()));
        if ended.is_ok() && self.pending.is_empty() && !self.input.is_empty() {
            return Err("an answer to no request".to_owned());
        }
        ended
    }

    /// Sends what a closed connection has left unanswered once more, if the target had answered on
    /// it; otherwise it is unreachable.
    fn resume(&mut self, why: &str) {
        if self.pending.len() > 1 {
            self.give_up_pipelining();
        }
        let mut failed = Vec::new();
        for left in core::mem::take(&mut self.pending).into_iter().rev() {
            if self.is_proven && !left.was_sent {
                self.again.push_front(PipelinedRequest { was_sent: true, ..left });
            } else {
                failed.push(left);
            }
        }
        for left in failed.into_iter().rev() {
            self.refuse(&left.outgoing, why);
        }
    }

    /// Reports that the target is unreachable for all requests so far.
    fn fail(&mut self, why: &str) {
        let pending = core::mem::take(&mut self.pending);
        let again = core::mem::take(&mut self.again);
        for left in pending.into_iter().chain(again) {
            self.refuse(&left.outgoing, why);
        }
        while let Ok(outgoing) = self.waiting.try_recv() {
            self.refuse(&outgoing, why);
        }
    }

    fn refuse(&self, outgoing: &OutgoingRequest, why: &str) {
        // A peer must not learn what listens where.
        let why = if outgoing.call.own { why } else { "no answer" };
        self.finish(outgoing, Some(Err(Unreachable(why.to_owned()))));
    }

    fn finish(&self, outgoing: &OutgoingRequest, answer: Option<Result<Response, Unreachable>>) {
        if let Some(owner) = self.owner.upgrade() {
            let queues = core::iter::once(outgoing.call.queue.as_ref());
            owner.finished(&self.authority, self.id, queues);
        }
        if let (Some(answer), Some(engine)) = (answer, self.engine.upgrade()) {
            engine.answer(outgoing.call.id, answer);
        }
    }

    /// Ends the requests that one read has answered: in one step of the engine.
    fn finish_all(&self, answered: Vec<(OutgoingRequest, Result<Response, Unreachable>)>) {
        if answered.is_empty() {
            return;
        }
        if let Some(owner) = self.owner.upgrade() {
            let queues = answered.iter().map(|(outgoing, _)| outgoing.call.queue.as_ref());
            owner.finished(&self.authority, self.id, queues);
        }
        if let Some(engine) = self.engine.upgrade() {
            let answers = answered.into_iter().map(|(outgoing, answer)| (outgoing.call.id, answer));
            engine.answer_all(answers.collect());
        }
    }

    fn give_up_pipelining(&self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.unpipeline(&self.authority);
        }
    }
}
