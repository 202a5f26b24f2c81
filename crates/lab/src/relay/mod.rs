//! Relays under test, each on a thread in its node's network namespace.

pub(crate) mod cipher;
mod graph;
pub(crate) mod interwork;
pub(crate) mod program;
pub(crate) mod sockets;

use crate::probe::ProbeRecords;
use crate::processor::pin;
use cipher::Cipher;
use gatewright_config::{Centre, Experiment, RelayKind};
use gatewright_testbed::Namespace;
use program::BuiltPrograms;
use sockets::Work;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// What the relay `spin` computes for.
pub(crate) const SPIN_NS: u64 = 100_000;
/// The key of relays that encrypt; it protects nothing.
const KEY: [u8; 16] = *b"delay laboratory";
/// How long a relay may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// The same, where a program may have to be built first.
const BUILT_WITHIN: Duration = Duration::from_mins(2);

/// The place of a relay.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// The node; this machine itself without one.
    pub(crate) node: Option<Namespace>,
    /// Interfaces towards sender and receiver.
    pub(crate) interfaces: [String; 2],
    /// Addresses there.
    pub(crate) addresses: [Ipv4Addr; 2],
    /// Who sends to it.
    pub(crate) from: Ipv4Addr,
    /// Where a relay over sockets receives.
    pub(crate) local: SocketAddrV4,
    /// Where it sends to.
    pub(crate) to: SocketAddrV4,
    /// The processor that it is kept on.
    pub(crate) processor: Option<usize>,
}

/// What a relay's thread works with.
#[derive(Debug)]
pub(crate) struct RelayJob {
    pub(crate) records: Arc<ProbeRecords>,
    /// Whether the relay has the kernel's stamps of received packets written down.
    pub(crate) stamps_ingress: bool,
    pub(crate) onward_ip: Ipv4Addr,
    /// Octets that probes of this run have.
    pub(crate) sizes: Vec<u16>,
    stop: Arc<AtomicBool>,
}

impl RelayJob {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Tells, once, that a relay is ready or cannot be.
#[derive(Debug)]
pub(crate) struct Ready(Sender<Result<(), String>>);

impl Ready {
    pub(crate) fn tell(&self, state: Result<(), String>) {
        // Who waited may have given up.
        let _ = self.0.send(state);
    }
}

/// A running relay; it ends when dropped.
#[derive(Debug)]
pub(crate) struct RunningRelay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its failure was told by `Ready`, or shows as loss.
            let _ = thread.join();
        }
    }
}

/// Why a relay cannot be measured here; none if it can.
pub(crate) fn unavailable(
    kind: RelayKind,
    experiment: &Experiment,
    has_namespaces: bool,
) -> Option<String> {
    let node = experiment.node;
    let needs_namespaces = matches!(
        kind,
        RelayKind::Kernel
            | RelayKind::GraphPacketSocket
            | RelayKind::GraphXdp
            | RelayKind::GraphXdpHandler
            | RelayKind::GatewayXdp
            | RelayKind::InterworkXdp
    );
    if needs_namespaces && !has_namespaces {
        return Some("it needs network namespaces (root)".to_owned());
    }
    if kind == RelayKind::TranslateTcp && !has_namespaces {
        return Some("on loopback nothing stamps a stream before the relay reads it".to_owned());
    }
    if program::is_program(kind) {
        if !has_namespaces {
            return Some(
                "on loopback nothing stamps a datagram before the program reads it".into(),
            );
        }
        if node.slowdown > 1 {
            return Some("a program cannot do its work several times".to_owned());
        }
        if let Some(why) = program::unavailable(kind) {
            return Some(why);
        }
    }
    if kind == RelayKind::InterworkXdp
        && let Some(why) = interwork::unavailable(&experiment.conditions())
    {
        return Some(why);
    }
    if kind == RelayKind::EncryptHardware && !cipher::has_instructions() {
        return Some("this processor has no AES instructions".to_owned());
    }
    let is_ours = needs_namespaces && kind != RelayKind::Kernel;
    if is_ours && node.relays > 1 {
        return Some("relays in line are of the kernel or over sockets".to_owned());
    }
    if needs_namespaces && node.slowdown > 1 {
        return Some("only relays over sockets can do their work several times".to_owned());
    }
    None
}

/// Starts the relay and waits until it is ready; `None` if the kernel is the relay.
pub(crate) fn start(
    kind: RelayKind,
    experiment: &Experiment,
    seat: &Seat,
    records: &Arc<ProbeRecords>,
    built: &Arc<BuiltPrograms>,
) -> Result<Option<RunningRelay>, String> {
    if kind == RelayKind::Kernel {
        return Ok(None);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let job = RelayJob {
        records: Arc::clone(records),
        stamps_ingress: seat.node.is_none(),
        onward_ip: if seat.node.is_none() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED },
        sizes: sizes(experiment),
        stop: Arc::clone(&stop),
    };
    let (tell, told) = channel();
    let slowdown = experiment.node.slowdown;
    let (seat, built) = (seat.clone(), Arc::clone(built));
    let body = move || {
        let inside = || {
            if let Some(processor) = seat.processor {
                pin(processor);
            }
            serve(kind, slowdown, &seat, &built, &job, &tell)
        };
        let done = match &seat.node {
            Some(node) => node.run(inside).map_err(|error| error.to_string()).flatten(),
            None => inside(),
        };
        if let Err(problem) = done {
            Ready(tell).tell(Err(problem));
        }
    };
    let thread = std::thread::Builder::new().name("relay".to_owned()).spawn(body);
    let thread = Some(thread.map_err(|error| error.to_string())?);
    let running = RunningRelay { stop, thread };
    let within = if program::is_program(kind) { BUILT_WITHIN } else { READY_WITHIN };
    match told.recv_timeout(within) {
        Ok(Ok(())) => Ok(Some(running)),
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err("it was not ready in time".to_owned()),
    }
}

/// The condition under which a relay is warmed up.
pub(crate) const WARM: Centre = Centre { octets: 200, rate: 500, load_pct: 0 };

/// Octets that probes of an experiment have, each once.
fn sizes(experiment: &Experiment) -> Vec<u16> {
    let mut sizes: Vec<u16> =
        experiment.conditions().iter().chain([&WARM]).map(|it| it.octets).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn serve(
    kind: RelayKind,
    slowdown: u32,
    seat: &Seat,
    built: &BuiltPrograms,
    job: &RelayJob,
    tell: &Sender<Result<(), String>>,
) -> Result<(), String> {
    let ready = Ready(tell.clone());
    let ends = (seat.local, seat.to);
    let work = |cipher, spin_ns| Work { cipher, spin_ns, times: slowdown };
    let datagrams = |work: &Work| sockets::relay_datagrams(job, ends, work, &ready);
    let text = |done: io::Result<()>| done.map_err(|error| error.to_string());
    match kind {
        RelayKind::TranslateUdp => text(datagrams(&work(None, 0))),
        RelayKind::Spin => text(datagrams(&work(None, SPIN_NS))),
        RelayKind::EncryptPortable => text(datagrams(&work(Some(Cipher::portable(KEY)), 0))),
        RelayKind::EncryptHardware => match Cipher::hardware(KEY) {
            Some(cipher) => text(datagrams(&work(Some(cipher), 0))),
            None => Err("this processor has no AES instructions".to_owned()),
        },
        RelayKind::TranslateTcp => text(sockets::relay_stream(job, ends, &work(None, 0), &ready)),
        kind if program::is_program(kind) => program::serve(kind, seat, built, job, &ready),
        _ => graph::serve(kind, seat, job, &ready),
    }
}
