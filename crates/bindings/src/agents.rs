//! Simulated devices on TCP or UDP: real agents that report to any manager and record its answers.

use crate::devices::transport::{Arrived, Transport};
use crate::tls::{Tls, TlsError};
use core::future::{pending, poll_fn};
use core::task::Poll;
use core::time::Duration;
use gatewright_health::frame::Framer;
use gatewright_health::simulate::{Counters, Input, Output, SimulatedDevice, SimulationPlan};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Pause before a device connects again.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// Time limit for a manager to accept what is sent to it.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Delays recorded per device.
pub const DELAYS_MAX: usize = 4_096;

/// The run of one device: its plan, its manager and its durations.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The device.
    pub plan: SimulationPlan,
    /// Its manager.
    pub to: SocketAddr,
    /// How long it measures, from its first association.
    pub measuring: Duration,
    /// Additional time for association and for outstanding answers.
    pub patience: Duration,
}

/// Result of a run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Counters of both sides of the comparison.
    pub counters: Counters,
    /// Connections made.
    pub connections: u64,
    /// Whether every report was answered and the association released in good order.
    pub is_finished: bool,
    /// Delays between reports and their answers, at most [`DELAYS_MAX`].
    pub delays: Vec<Delay>,
    /// Why the last attempt to connect failed, if no connection was made at all.
    pub refused: Option<String>,
}

/// Delay between one report and its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Delay {
    /// Time of the answer, after the device's start.
    pub at: Duration,
    /// Time from the report to its answer.
    pub took: Duration,
    /// How late this process made the report.
    pub late: Duration,
}

impl Outcome {
    /// Whether it measured at all and each report was answered.
    pub fn is_answered(&self) -> bool {
        self.is_finished
            && self.counters.measured > 0
            && self.counters.acknowledged == self.counters.measured
    }
}

/// A running device.
struct Agent {
    device: SimulatedDevice,
    started: Instant,
    run: Run,
    /// When it has measured for long enough; set once it measures.
    enough_at: Option<Duration>,
    is_told: bool,
    outcome: Outcome,
}

/// How a device reaches its manager.
#[derive(Clone, Copy, Debug)]
pub enum AgentTransport<'a> {
    /// Over TCP.
    Stream,
    /// Over TLS, as [`run_tls`].
    Tls(&'a Tls),
    /// Over UDP, as [`run_datagrams`].
    Datagrams,
}

/// Runs a device to its end, or until `stop` is ready: the outcome is that of all it has done by then.
///
/// # Errors
///
/// [`TlsError`] if the files cannot be used.
pub async fn run_until(
    run: Run,
    transport: AgentTransport<'_>,
    stop: impl Future<Output = ()>,
) -> Result<Outcome, TlsError> {
    let connector = match transport {
        AgentTransport::Tls(tls) => Some(TlsConnector::from(Arc::new(tls.client()?))),
        AgentTransport::Stream | AgentTransport::Datagrams => None,
    };
    let mut agent = Agent::new(run);
    let all = agent.all();
    let work = async {
        match transport {
            AgentTransport::Datagrams => agent.work_by_datagrams().await,
            AgentTransport::Stream | AgentTransport::Tls(_) => {
                agent.work(connector.as_ref()).await;
            }
        }
    };
    // Whatever is not finished by then is what the outcome tells.
    tokio::select! {
        _ = tokio::time::timeout(all, work) => {}
        () = stop => {}
    }
    Ok(agent.end())
}

/// Runs a device to its end. It reconnects after a broken connection and keeps unanswered reports.
pub async fn run(run: Run) -> Outcome {
    // Without TLS there is no error.
    run_until(run, AgentTransport::Stream, pending()).await.unwrap_or_default()
}

/// Runs a device over TLS: it shows the certificate of `tls`, and its manager must have one for
/// its IP address of the same authorities.
///
/// # Errors
///
/// [`TlsError`] if the files cannot be used.
pub async fn run_tls(run: Run, tls: &Tls) -> Result<Outcome, TlsError> {
    run_until(run, AgentTransport::Tls(tls), pending()).await
}

/// Checks that the files of `tls` can be used.
///
/// # Errors
///
/// [`TlsError`] with the cause.
pub fn check(tls: &Tls) -> Result<(), TlsError> {
    tls.client().map(drop)
}

/// Runs a device over UDP, one APDU per datagram. Lost reports are sent again in another
/// association.
pub async fn run_datagrams(run: Run) -> Outcome {
    run_until(run, AgentTransport::Datagrams, pending()).await.unwrap_or_default()
}

/// Octets of a datagram's payload at most (RFC 768).
const DATAGRAM_MAX: usize = 65_507;

impl Agent {
    fn new(run: Run) -> Self {
        let device = SimulatedDevice::new(run.plan);
        let (started, outcome) = (Instant::now(), Outcome::default());
        Self { device, started, run, enough_at: None, is_told: false, outcome }
    }

    /// Time limit of the whole run.
    const fn all(&self) -> Duration {
        self.run.measuring.saturating_add(self.run.patience)
    }

    fn end(mut self) -> Outcome {
        self.outcome.counters = self.device.counters();
        self.outcome
    }

    async fn work_by_datagrams(&mut self) {
        while !self.outcome.is_finished {
            self.outcome.connections += 1;
            // Nobody listens there, or the system has no socket: both may pass.
            let _ = self.send_datagrams().await;
            self.step(Input::Disconnected);
            while self.device.poll_output().is_some() {}
            if !self.outcome.is_finished {
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
        }
    }

    async fn send_datagrams(&mut self) -> io::Result<()> {
        let any: SocketAddr = if self.run.to.is_ipv4() {
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(self.run.to).await?;
        let mut octets = vec![0; DATAGRAM_MAX];
        self.step(Input::Connected);
        loop {
            while let Some(output) = self.device.poll_output() {
                match output {
                    Output::Send(octets) => drop(socket.send(&octets).await?),
                    Output::Operating => self.measures(),
                    Output::Finished => self.outcome.is_finished = true,
                }
            }
            if self.outcome.is_finished {
                return Ok(());
            }
            tokio::select! {
                received = socket.recv(&mut octets) => {
                    let length = received?;
                    self.step(Input::Apdu(octets.get(..length).unwrap_or_default()));
                }
                () = tokio::time::sleep(self.sleep()) => self.tick(),
            }
        }
    }

    async fn work(&mut self, tls: Option<&TlsConnector>) {
        while !self.outcome.is_finished {
            match self.connect(tls).await {
                Ok(transport) => {
                    self.outcome.connections += 1;
                    self.outcome.refused = None;
                    // A broken connection is one more that was made; the device goes on.
                    let _ = self.converse(transport).await;
                    self.step(Input::Disconnected);
                    while self.device.poll_output().is_some() {}
                }
                Err(error) if self.outcome.connections == 0 => {
                    self.outcome.refused = Some(error.to_string());
                }
                Err(_) => {}
            }
            if !self.outcome.is_finished {
                tokio::time::sleep(CONNECT_AGAIN).await;
            }
        }
    }

    async fn connect(&self, tls: Option<&TlsConnector>) -> io::Result<Transport> {
        let stream = TcpStream::connect(self.run.to).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else { return Ok(Transport::Stream(Box::new(stream))) };
        let name = ServerName::IpAddress(self.run.to.ip().into());
        Ok(Transport::Stream(Box::new(tls.connect(name, stream).await?)))
    }

    /// Runs one connection until it ends or every report is answered.
    async fn converse(&mut self, mut transport: Transport) -> io::Result<()> {
        let mut framer = Framer::default();
        self.step(Input::Connected);
        loop {
            self.perform(&mut transport).await?;
            if self.outcome.is_finished {
                return Ok(());
            }
            tokio::select! {
                arrived = transport.receive(&mut framer) => match arrived? {
                    Arrived::End => return Ok(()),
                    Arrived::Octets => self.read(&mut framer)?,
                    Arrived::Apdu(apdu) => self.step(Input::Apdu(&apdu)),
                },
                () = tokio::time::sleep(self.sleep()) => self.tick(),
            }
        }
    }

    /// Time until something is due.
    fn sleep(&self) -> Duration {
        let end = self.enough_at.filter(|_| !self.is_told);
        let due = self.device.poll_timeout().into_iter().chain(end).min();
        due.map_or(CONNECT_AGAIN, |due| due.saturating_sub(self.started.elapsed()))
    }

    /// Starts measuring after the first association.
    fn measures(&mut self) {
        let enough_at = self.started.elapsed().saturating_add(self.run.measuring);
        self.enough_at.get_or_insert(enough_at);
    }

    fn tick(&mut self) {
        // What it was to measure until now it measures, however late that is noticed.
        self.step(Input::Tick);
        if !self.is_told && self.enough_at.is_some_and(|at| self.started.elapsed() >= at) {
            self.is_told = true;
            self.step(Input::Finish);
        }
    }

    fn step(&mut self, input: Input<'_>) {
        let now = self.started.elapsed();
        self.device.handle(now, input);
        let room = DELAYS_MAX.saturating_sub(self.outcome.delays.len());
        let delays = self.device.take_delays().into_iter().take(room);
        let delays = delays.map(|one| Delay { at: now, took: one.took, late: one.late });
        self.outcome.delays.extend(delays);
    }

    /// Takes the complete APDUs that have arrived.
    fn read(&mut self, framer: &mut Framer) -> io::Result<()> {
        let unreadable = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        while let Some(apdu) = framer.next_apdu().map_err(unreadable)? {
            self.step(Input::Apdu(apdu));
        }
        Ok(())
    }

    async fn perform(&mut self, transport: &mut Transport) -> io::Result<()> {
        while let Some(output) = self.device.poll_output() {
            match output {
                Output::Send(octets) => {
                    let mut write = core::pin::pin!(transport.send(&octets));
                    // Most is taken at once.
                    let first = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
                    if let Poll::Ready(sent) = first {
                        sent?;
                        continue;
                    }
                    tokio::time::timeout(WRITE_WITHIN, write).await??;
                    self.device.held(self.started.elapsed());
                }
                Output::Operating => self.measures(),
                Output::Finished => self.outcome.is_finished = true,
            }
        }
        Ok(())
    }
}
