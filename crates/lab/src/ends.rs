//! Both ends of the path: the sender, by a schedule, and the receiver.

use crate::bed::{Bed, BedEnd};
use crate::clock;
use crate::probe::{Place, ProbeIdentity, ProbeRecords};
use crate::processor::pin;
use crate::relay::interwork;
use crate::relay::sockets::{LOOK, is_idle, receive_stamped};
use gatewright_config::{Arrivals, Centre, RelayKind};
use gatewright_health::agent::Agent;
use gatewright_sim::Random;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What probes are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ProbeForm {
    /// Datagrams that begin with their identity.
    Datagrams,
    /// The same in a stream.
    Stream,
    /// Reports of a device, which arrive as oneM2M requests; the device may have to associate first.
    Reports { is_associated: bool },
}

impl ProbeForm {
    /// What probes of a relay are.
    pub(crate) const fn of(kind: RelayKind) -> Self {
        match kind {
            RelayKind::TranslateTcp | RelayKind::SocatTcp => Self::Stream,
            RelayKind::InterworkXdp => Self::Reports { is_associated: false },
            RelayKind::InterworkDurable => Self::Reports { is_associated: true },
            _ => Self::Datagrams,
        }
    }

    /// Octets of a probe's payload before its identity.
    pub(crate) const fn identity_at(self) -> u32 {
        match self {
            Self::Datagrams | Self::Stream => 0,
            Self::Reports { .. } => interwork::IDENTITY_AT,
        }
    }
}

/// How probes travel.
#[derive(Debug)]
pub(crate) enum Carriage {
    Datagrams(UdpSocket),
    Stream(TcpStream),
    Reports(UdpSocket),
    /// Reports of an associated device, which releases its association at the end.
    Associated(UdpSocket, Box<Agent>),
}

impl Drop for Carriage {
    fn drop(&mut self) {
        if let Self::Associated(socket, agent) = self {
            interwork::release_oximeter(agent, socket);
        }
    }
}

impl Carriage {
    /// To `target`, from where the sender is, for probes of so many octets.
    pub(crate) fn connect(
        bed: &Bed,
        target: SocketAddrV4,
        (form, octets): (ProbeForm, u16),
    ) -> Result<Self, String> {
        let datagrams = |port| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
            socket.connect(target)?;
            Ok(socket)
        };
        let connect = || match form {
            ProbeForm::Stream => {
                let stream = TcpStream::connect(target)?;
                stream.set_nodelay(true)?;
                Ok(Self::Stream(stream))
            }
            ProbeForm::Datagrams => datagrams(0).map(Self::Datagrams),
            ProbeForm::Reports { is_associated: false } => {
                datagrams(interwork::device_port(octets)).map(Self::Reports)
            }
            ProbeForm::Reports { is_associated: true } => {
                let socket = datagrams(0)?;
                socket.set_read_timeout(Some(LOOK))?;
                let agent = interwork::associate_oximeter(&socket);
                let agent = agent.map_err(std::io::Error::other)?;
                Ok(Self::Associated(socket, Box::new(agent)))
            }
        };
        bed.at_end(BedEnd::Sender, connect)?.map_err(|error: std::io::Error| error.to_string())
    }

    fn send(&mut self, payload: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Datagrams(socket) | Self::Reports(socket) | Self::Associated(socket, _) => {
                socket.send(payload).map(drop)
            }
            Self::Stream(stream) => stream.write_all(payload),
        }
    }

    /// The payload of a probe.
    fn payload(&self, identity: ProbeIdentity, records: &ProbeRecords) -> Vec<u8> {
        match self {
            Self::Datagrams(_) | Self::Stream(_) => identity.payload(records.octets()),
            Self::Reports(_) | Self::Associated(..) => {
                let number = records.report_number(identity.sequence);
                interwork::report(identity, number, records.octets()).unwrap_or_default()
            }
        }
    }
}

/// Sends `count` probes of a condition by their schedule; a late one is sent at once, and none is
/// left out (no coordinated omission), until `stop` is set. Returns how many the system refused.
pub(crate) fn send(
    carriage: &mut Carriage,
    records: &ProbeRecords,
    (condition, arrivals, random): (Centre, Arrivals, &mut Random),
    (tag, count): ([u8; 8], u32),
    stop: &AtomicBool,
) -> u32 {
    const LEAD_NS: u64 = 2_000_000;
    let batch = u32::from(condition.batch.max(1));
    let gap = 1_000_000_000 * u64::from(batch) / u64::from(condition.rate.max(1));
    let mut due = clock::now() + LEAD_NS;
    let mut refused = 0;
    for sequence in 0..count {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let payload = carriage.payload(ProbeIdentity { sequence, tag }, records);
        clock::sleep_until(due);
        records.set(sequence, Place::Due, due);
        records.set(sequence, Place::Sent, clock::now());
        if carriage.send(&payload).is_err() {
            refused += 1;
        }
        // So many at once, and then a pause in which as many would have been sent.
        if (sequence + 1) % batch == 0 {
            due += match arrivals {
                Arrivals::Periodic => gap,
                Arrivals::Poisson => exponential(gap, random),
            };
        }
    }
    refused
}

/// An exponentially distributed time with this mean.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "gaps are below 2^53 nanoseconds and not negative"
)]
fn exponential(mean: u64, random: &mut Random) -> u64 {
    let uniform = (random.below(1 << 53) as f64 + 1.0) / (1_u64 << 53) as f64;
    (-uniform.ln() * mean as f64) as u64
}

/// The receiver's thread; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    stop: Arc<AtomicBool>,
    /// Probes that arrived since the start, of any repetition.
    arrived: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens at the bed's receiver; when this returns, it does.
    pub(crate) fn start(
        bed: &Bed,
        kind: RelayKind,
        records: &Arc<ProbeRecords>,
        processor: Option<usize>,
    ) -> Result<Self, String> {
        let (at, form) = (bed.receiver(kind), ProbeForm::of(kind));
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU64::new(0));
        let shared = (Arc::clone(records), Arc::clone(&stop), Arc::clone(&arrived));
        let text = |error: std::io::Error| error.to_string();
        let body: Box<dyn FnOnce() + Send> = if form == ProbeForm::Stream {
            let listen = bed.at_end(BedEnd::Receiver, || TcpListener::bind(at))?.map_err(text)?;
            Box::new(move || accept(&listen, &shared.0, &shared.1, &shared.2))
        } else {
            let socket = bed.at_end(BedEnd::Receiver, || UdpSocket::bind(at))?.map_err(text)?;
            socket.set_read_timeout(Some(LOOK)).map_err(text)?;
            setsockopt(&socket, ReceiveTimestampns, &true).map_err(|error| error.to_string())?;
            Box::new(move || receive(&socket, form, &shared.0, (&shared.1, &shared.2)))
        };
        let pinned = move || {
            if let Some(processor) = processor {
                pin(processor);
            }
            body();
        };
        let thread = std::thread::Builder::new().name("receiver".to_owned()).spawn(pinned);
        Ok(Self { stop, arrived, thread: Some(thread.map_err(text)?) })
    }

    /// Probes that have arrived since the start.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it did not receive shows as loss.
            let _ = thread.join();
        }
    }
}

fn receive(
    socket: &UdpSocket,
    form: ProbeForm,
    records: &ProbeRecords,
    (stop, arrived): (&AtomicBool, &AtomicU64),
) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let Ok(received) = receive_stamped(socket, &mut buffer) else { continue };
        let time = received.stamp.unwrap_or_else(clock::now);
        let octets = buffer.get(..received.len).unwrap_or(&[]);
        let has_arrived = match form {
            ProbeForm::Reports { is_associated } => {
                let answer = is_associated.then(|| interwork::answer(octets)).flatten();
                if let (Some(answer), Some(from)) = (answer, received.from) {
                    // A lost answer is asked for again (RFC 7252 §4.2).
                    let _sent = socket.send_to(&answer, from);
                }
                interwork::stamp_request(records, octets, time)
            }
            _ => records.stamp(octets, Place::Arrived, time),
        };
        if has_arrived {
            arrived.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn accept(listen: &TcpListener, records: &ProbeRecords, stop: &AtomicBool, arrived: &AtomicU64) {
    if listen.set_nonblocking(true).is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        match listen.accept() {
            Ok((stream, _)) => read(stream, records, stop, arrived),
            Err(_) => std::thread::sleep(LOOK / 10),
        }
    }
}

fn read(mut stream: TcpStream, records: &ProbeRecords, stop: &AtomicBool, arrived: &AtomicU64) {
    let octets = records.octets().max(1);
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(LOOK)));
    let (mut buffer, mut held) = (vec![0; 128 << 10], 0);
    while ready.is_ok() && !stop.load(Ordering::Relaxed) {
        let Some(room) = buffer.get_mut(held..) else { return };
        let len = match stream.read(room) {
            Ok(0) => return,
            Ok(len) => len,
            Err(error) if is_idle(&error) => continue,
            Err(_) => return,
        };
        let now = clock::now();
        let end = held + len;
        let whole = end - end % octets;
        for probe in buffer.get(..whole).unwrap_or(&[]).chunks_exact(octets) {
            if records.stamp(probe, Place::Arrived, now) {
                arrived.fetch_add(1, Ordering::Relaxed);
            }
        }
        buffer.copy_within(whole..end, 0);
        held = end - whole;
    }
}
