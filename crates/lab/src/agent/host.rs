//! The agent: serves one coordinator at a time, and does what it was configured to do, no more.

use super::channel::{AgentChannel, AgentChannelError};
use super::message::{
    AgentAnswer, AgentClock, AgentDescription, AgentRequest, AgentSamples, AgentSending,
    PACKETS_MAX, WAIT_MS_MAX,
};
use crate::covariates::CovariatesBefore;
use crate::processor::machine;
use crate::stamp::{
    StampKey, StampReflectorCounters, StampReflectorMode, StampSettings, exchanges, reflect,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The port of agents.
pub const AGENT_PORT: u16 = 8620;
/// How long a coordinator may be silent: longer than another agent's longest repetition.
const SILENT_MAX: Duration = Duration::from_mins(15);
/// Connections at most that have not yet shown that they have the key.
const HANDSHAKES_MAX: usize = 64;
/// How long an idle agent waits before it looks for a new connection.
const LOOK: Duration = Duration::from_millis(20);
/// How long a reflector may take to open its socket.
const READY_WITHIN: Duration = Duration::from_secs(5);

/// What an agent may do.
#[derive(Clone, Debug)]
pub struct AgentSetup {
    /// The key that coordinators have, too.
    pub key: StampKey,
    /// Where it reflects test packets when it is asked to; nowhere without it.
    pub reflect: Option<SocketAddr>,
    /// Reflectors to which it sends test packets.
    pub send_to: Vec<SocketAddr>,
    /// Nanoseconds of its wall clock since 1970.
    pub clock: fn() -> u64,
}

/// Counters of an agent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct AgentCounters {
    /// Coordinators that had the key.
    pub coordinators: u64,
    /// Connections without it.
    pub not_authentic: u64,
    /// Requests of coordinators.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
}

/// Serves coordinators until `is_stop_requested` says so.
///
/// # Errors
///
/// The listener cannot be used, or the system has no random numbers.
pub fn serve_agent(
    listener: &TcpListener,
    setup: &AgentSetup,
    is_stop_requested: &dyn Fn() -> bool,
) -> io::Result<AgentCounters> {
    listener.set_nonblocking(true)?;
    let mut counters = AgentCounters::default();
    let mut handshakes = Handshakes::new();
    while !is_stop_requested() {
        match listener.accept() {
            Ok((stream, _)) => handshakes.begin(stream, &setup.key)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => match handshakes.next() {
                Some(Ok(channel)) => {
                    counters.coordinators += 1;
                    let mut host = AgentHost { setup, channel, before: None, reflector: None };
                    // The coordinator's end, or the connection's, ends what it has asked for.
                    let _ended = host.serve(&mut counters, is_stop_requested);
                }
                Some(Err(_)) => counters.not_authentic += 1,
                None => {}
            },
            // A connection that was gone before it was taken.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(counters)
}

/// Connections that have not yet shown that they have the key: beside each other, so that one without
/// it keeps no other waiting.
struct Handshakes {
    /// Their numbers and streams, oldest first; a thread reads from each.
    pending: VecDeque<(u64, TcpStream)>,
    begun: u64,
    tell: Sender<(u64, Result<AgentChannel, AgentChannelError>)>,
    told: Receiver<(u64, Result<AgentChannel, AgentChannelError>)>,
}

impl Handshakes {
    fn new() -> Self {
        let (tell, told) = channel();
        Self { pending: VecDeque::new(), begun: 0, tell, told }
    }

    /// Begins with a new connection; where there are too many, the oldest one is closed.
    fn begin(&mut self, stream: TcpStream, key: &StampKey) -> io::Result<()> {
        if self.pending.len() >= HANDSHAKES_MAX
            && let Some((_, oldest)) = self.pending.pop_front()
        {
            // Its thread ends with it; one that is closed already needs nothing.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        self.begun += 1;
        let (number, own) = (self.begun, stream.try_clone()?);
        let (key, random, tell) = (key.clone(), random()?, self.tell.clone());
        let work = move || {
            // Nobody is told once the agent has ended.
            let _ = tell.send((number, AgentChannel::accept(stream, &key, random)));
        };
        std::thread::Builder::new().name("handshake".to_owned()).spawn(work)?;
        self.pending.push_back((number, own));
        Ok(())
    }

    /// The next connection that has shown the key or has not, if there is one soon.
    fn next(&mut self) -> Option<Result<AgentChannel, AgentChannelError>> {
        let (number, shown) = self.told.recv_timeout(LOOK).ok()?;
        // A connection ends for its peer only when none of its descriptors is open.
        self.pending.retain(|(it, _)| *it != number);
        Some(shown)
    }
}

/// Connects to the agent at `address` as its coordinator.
pub(super) fn connect(
    address: SocketAddr,
    key: &StampKey,
) -> Result<AgentChannel, AgentChannelError> {
    let stream = TcpStream::connect_timeout(&address, READY_WITHIN)?;
    AgentChannel::connect(stream, key, random()?)
}

/// The key of authenticated test packets between agents: not the one of their connections.
pub(super) fn stamp_key(key: &StampKey) -> StampKey {
    StampKey::new(&key.whole_hmac(&[b"test packets"]))
}

fn random() -> io::Result<[u8; 32]> {
    let mut octets = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(octets)
}

/// An agent with its coordinator.
struct AgentHost<'setup> {
    setup: &'setup AgentSetup,
    channel: AgentChannel,
    before: Option<CovariatesBefore>,
    reflector: Option<AgentReflector>,
}

impl AgentHost<'_> {
    fn serve(
        &mut self,
        counters: &mut AgentCounters,
        is_stop_requested: &dyn Fn() -> bool,
    ) -> Result<(), AgentChannelError> {
        loop {
            let octets = self.channel.receive(SILENT_MAX, is_stop_requested)?;
            let received = (self.setup.clock)();
            counters.requests += 1;
            let answer = match AgentRequest::parse(&octets) {
                Some(request) => self.answer(&request, received),
                None => Err("it is no request of this version".to_owned()),
            };
            let answer = answer.unwrap_or_else(|why| {
                counters.refused += 1;
                AgentAnswer::Refused(why)
            });
            self.channel.send(&answer.octets())?;
        }
    }

    fn answer(&mut self, request: &AgentRequest, received: u64) -> Result<AgentAnswer, String> {
        match request {
            AgentRequest::Describe => Ok(AgentAnswer::Description(AgentDescription {
                machine: machine(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                reflects: self.setup.reflect,
            })),
            AgentRequest::Clock => {
                Ok(AgentAnswer::Clock(AgentClock { received, sent: (self.setup.clock)() }))
            }
            AgentRequest::Begin => {
                self.before = Some(CovariatesBefore::read());
                Ok(AgentAnswer::Begun)
            }
            AgentRequest::Covariates => {
                let before = self.before.as_ref().ok_or("no run has begun")?;
                Ok(AgentAnswer::Covariates(before.end()))
            }
            AgentRequest::Reflect => {
                let at =
                    self.setup.reflect.ok_or("it was not started with an address to reflect at")?;
                // The one before first, as it has the address.
                self.reflector = None;
                let (reflector, at) = AgentReflector::start(at, &stamp_key(&self.setup.key))?;
                self.reflector = Some(reflector);
                Ok(AgentAnswer::Reflects(at))
            }
            AgentRequest::StopReflecting => {
                let reflector = self.reflector.take().ok_or("it does not reflect")?;
                reflector.stop().map(AgentAnswer::Reflected)
            }
            AgentRequest::Send(sending) => self.send(sending).map(AgentAnswer::Sent),
        }
    }

    fn send(&self, sending: &AgentSending) -> Result<AgentSamples, String> {
        let AgentSending { to, authenticated, count, rate, octets, wait_ms } = *sending;
        if !self.setup.send_to.contains(&to) {
            return Err(format!("it was not started with {to} among the reflectors to send to"));
        }
        if count > PACKETS_MAX || rate == 0 || wait_ms > WAIT_MS_MAX {
            return Err(format!(
                "more than {PACKETS_MAX} packets, or a wait above {WAIT_MS_MAX} ms"
            ));
        }
        let key = authenticated.then(|| stamp_key(&self.setup.key));
        let wait = Duration::from_millis(wait_ms.into());
        let settings = StampSettings { count, rate, octets, wait, key };
        let sent = exchanges(to, &settings, &mut |_| {}, &|| false);
        let (sent, exchanges, others) = sent.map_err(|error| error.to_string())?;
        Ok(AgentSamples::of(sent, &exchanges, others))
    }
}

/// A reflector on a thread of its own; it ends when dropped.
struct AgentReflector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<StampReflectorCounters>>>,
}

impl AgentReflector {
    fn start(at: SocketAddr, key: &StampKey) -> Result<(Self, SocketAddr), String> {
        let (stop, key) = (Arc::new(AtomicBool::new(false)), key.clone());
        let its = Arc::clone(&stop);
        let (tell, told) = channel();
        let work = move || {
            let mut ready = |at| {
                // Who waited may have given up.
                let _ = tell.send(at);
            };
            let mut is_stop_requested = || its.load(Ordering::Relaxed);
            let mode = StampReflectorMode::Stateful;
            reflect(at, (mode, Some(key)), &mut ready, &mut is_stop_requested)
        };
        let thread = std::thread::Builder::new().name("reflector".to_owned()).spawn(work);
        let thread = thread.map_err(|error| error.to_string())?;
        let reflector = Self { stop, thread: Some(thread) };
        match told.recv_timeout(READY_WITHIN) {
            Ok(at) => Ok((reflector, at)),
            Err(_) => Err(match reflector.stop() {
                Err(why) => format!("it cannot reflect at {at}: {why}"),
                Ok(_) => format!("the reflector at {at} was not ready in time"),
            }),
        }
    }

    fn stop(mut self) -> Result<StampReflectorCounters, String> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        let ended = ended.and_then(Result::ok).ok_or("the reflector panicked")?;
        ended.map_err(|error| error.to_string())
    }
}

impl Drop for AgentReflector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nobody asks for its counters.
            let _ = thread.join();
        }
    }
}
