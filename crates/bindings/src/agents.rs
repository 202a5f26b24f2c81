//! Simulated devices on TCP or UDP: real agents that report to any manager, and know what was answered.

use crate::devices::transport::{Arrived, Transport};
use crate::tls::{Tls, TlsError};
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

/// One device's run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The device.
    pub plan: Plan,
    /// Its manager.
    pub to: SocketAddr,
    /// How long it measures.
    pub measuring: Duration,
    /// How long, after that, it tries to have everything answered.
    pub patience: Duration,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Both sides of the proof.
    pub counters: Counters,
    /// Connections made.
    pub connections: u64,
    /// Whether everything was answered and the association released in good order.
    pub is_finished: bool,
}

impl Outcome {
    /// Whether it measured at all, and each of its reports was answered.
    pub const fn is_answered(&self) -> bool {
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
        Self { device, started, run, is_told: false, outcome }
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
                    Output::Operating => {}
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
        let end = (!self.is_told).then_some(self.run.measuring);
        let due = self.device.poll_timeout().into_iter().chain(end).min();
        due.map_or(CONNECT_AGAIN, |due| due.saturating_sub(self.started.elapsed()))
    }

    fn tick(&mut self) {
        if !self.is_told && self.started.elapsed() >= self.run.measuring {
            self.is_told = true;
            return self.step(Input::Finish);
        }
        self.step(Input::Tick);
    }

    fn step(&mut self, input: Input<'_>) {
        self.device.handle(self.started.elapsed(), input);
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
                    let write = transport.send(&octets);
                    tokio::time::timeout(WRITE_WITHIN, write).await??;
                }
                Output::Operating => {}
                Output::Finished => self.outcome.is_finished = true,
            }
        }
        Ok(())
    }
}
