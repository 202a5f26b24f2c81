//! Simulated devices on TCP or UDP: real agents that report to any manager, and know what was answered.

use crate::devices::transport::{Arrived, Transport};
use crate::tls::{Tls, TlsError};
use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use gatewright_health::frame::Framer;
use gatewright_health::simulate::{Counters, Device, Input, Output, Plan};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// How long a device waits before it connects again.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// How long a manager may take to accept what is sent to it.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Delays noted of one device.
pub const DELAYS_MAX: usize = 4_096;

/// One device's run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The device.
    pub plan: Plan,
    /// Its manager.
    pub to: SocketAddr,
    /// How long it measures, from its first association on.
    pub measuring: Duration,
    /// How long, beside that, it tries to be associated and to have everything answered.
    pub patience: Duration,
}

/// What a run came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Both sides of the proof.
    pub counters: Counters,
    /// Connections made.
    pub connections: u64,
    /// Whether everything was answered and the association released in good order.
    pub is_finished: bool,
    /// How long reports waited for their answers: [`DELAYS_MAX`] of them at the most.
    pub delays: Vec<Delay>,
}

/// How long one report waited for its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Delay {
    /// When it was answered, after the device's start.
    pub at: Duration,
    /// How long it took since the report was made.
    pub took: Duration,
    /// How much later than it was due the report was made, this process being why.
    pub late: Duration,
}

impl Outcome {
    /// Whether it measured at all, and each of its reports was answered.
    pub fn is_answered(&self) -> bool {
        self.is_finished
            && self.counters.measured > 0
            && self.counters.acknowledged == self.counters.measured
    }
}

/// A device at work.
struct Agent {
    device: Device,
    started: Instant,
    run: Run,
    /// When it has measured for long enough, once it measures.
    enough_at: Option<Duration>,
    is_told: bool,
    outcome: Outcome,
}

/// Runs a device to its end. A connection that breaks is made again: the device keeps what was
/// not answered.
pub async fn run(run: Run) -> Outcome {
    Agent::new(run).run(None).await
}

/// The same over TLS: the device shows the certificate of `tls`, and its manager must have one for
/// its IP address of the same authorities.
///
/// # Errors
///
/// [`TlsError`] if the files cannot be used.
pub async fn run_tls(run: Run, tls: &Tls) -> Result<Outcome, TlsError> {
    let connector = TlsConnector::from(Arc::new(tls.client()?));
    Ok(Agent::new(run).run(Some(&connector)).await)
}

/// Whether the files of `tls` can be used.
///
/// # Errors
///
/// [`TlsError`] says what is wrong with them.
pub fn check(tls: &Tls) -> Result<(), TlsError> {
    tls.client().map(drop)
}

/// Runs a device to its end that sends datagrams, each one APDU. What is lost on the way is sent
/// again in another association.
pub async fn run_datagrams(run: Run) -> Outcome {
    let mut agent = Agent::new(run);
    // Whatever is not finished by then is what the outcome tells.
    let _ = tokio::time::timeout(agent.all(), agent.work_by_datagrams()).await;
    agent.end()
}

/// Octets of a datagram's payload at the most (RFC 768).
const DATAGRAM_MAX: usize = 65_507;

impl Agent {
    fn new(run: Run) -> Self {
        let device = Device::new(run.plan);
        let (started, outcome) = (Instant::now(), Outcome::default());
        Self { device, started, run, enough_at: None, is_told: false, outcome }
    }

    /// How long all of it may take.
    const fn all(&self) -> Duration {
        self.run.measuring.saturating_add(self.run.patience)
    }

    async fn run(mut self, tls: Option<&TlsConnector>) -> Outcome {
        // Whatever is not finished by then is what the outcome tells.
        let _ = tokio::time::timeout(self.all(), self.work(tls)).await;
        self.end()
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
            if let Ok(transport) = self.connect(tls).await {
                self.outcome.connections += 1;
                // A broken connection is one more that was made; the device goes on.
                let _ = self.converse(transport).await;
                self.step(Input::Disconnected);
                while self.device.poll_output().is_some() {}
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

    /// Talks over one connection until it ends or everything is answered.
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

    /// How long nothing is due.
    fn sleep(&self) -> Duration {
        let end = self.enough_at.filter(|_| !self.is_told);
        let due = self.device.poll_timeout().into_iter().chain(end).min();
        due.map_or(CONNECT_AGAIN, |due| due.saturating_sub(self.started.elapsed()))
    }

    /// It is associated, and measures from now on if it did not before.
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

    /// Takes what has arrived whole.
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
