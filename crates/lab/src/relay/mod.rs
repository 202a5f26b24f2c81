//! Relays under test, each on a thread in its node's network namespace.

pub(crate) mod cipher;
mod durable;
mod graph;
pub(crate) mod interwork;
pub(crate) mod program;
pub(crate) mod sockets;

use crate::probe::ProbeRecords;
use crate::processor::pin;
use crate::quota::Quota;
use cipher::Cipher;
use gatewright_config::{Centre, Experiment, RelayKind};
use gatewright_testbed::{Namespace, Needs};
use nix::unistd::gettid;
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
    /// The group whose share of a processor the relay has.
    pub(crate) quota: Option<Arc<Quota>>,
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
    thread: Option<JoinHandle<Result<(), String>>>,
    /// Dropped when the thread has ended.
    quota: Option<Arc<Quota>>,
}

impl RunningRelay {
    /// How often its quota was used up before its work was done; none without a quota.
    pub(crate) fn throttled(&self) -> Option<u64> {
        self.quota.as_ref()?.throttled()
    }

    /// Ends it; what went wrong in it since it was ready, if anything did.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err("its thread panicked".to_owned()))
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        // Who wants to know how it went has called `end`.
        let _ = self.end();
    }
}

/// Whether the kernel is the relay.
pub(crate) const fn is_kernels(kind: RelayKind) -> bool {
    matches!(kind, RelayKind::Kernel | RelayKind::MeshLabel)
}

/// Whether a relay is one of our own over sockets, which can be anywhere and do its work several times.
const fn is_of_sockets(kind: RelayKind) -> bool {
    matches!(
        kind,
        RelayKind::TranslateUdp
            | RelayKind::TranslateTcp
            | RelayKind::EncryptPortable
            | RelayKind::EncryptHardware
            | RelayKind::Spin
    )
}

/// Why a relay cannot be measured here; none if it can.
pub(crate) fn unavailable(
    kind: RelayKind,
    experiment: &Experiment,
    has_namespaces: bool,
) -> Option<String> {
    let node = experiment.node;
    if !has_namespaces && let Some(why) = impossible_on_loopback(kind) {
        return Some(why.to_owned());
    }
    if node.slowdown > 1 && !is_of_sockets(kind) {
        return Some("this relay's work cannot be done several times (slowdown)".to_owned());
    }
    let in_line = is_of_sockets(kind) || is_kernels(kind) || program::is_program(kind);
    if node.relays > 1 && !in_line && kind != RelayKind::SocatTcp {
        return Some("relays in line are of the kernel or over sockets".to_owned());
    }
    if node.quota_pct < 100 {
        if is_kernels(kind) || kind == RelayKind::DriverXdp {
            return Some("a quota holds threads, and the kernel relays in none of its own".into());
        }
        if let Some(why) = Quota::unavailable() {
            return Some(format!("no quota: {why}"));
        }
    }
    missing(kind, experiment)
}

/// Why a relay cannot be measured on loopback; none if it can.
fn impossible_on_loopback(kind: RelayKind) -> Option<&'static str> {
    match kind {
        RelayKind::TranslateTcp => Some("on loopback nothing stamps a stream before it is read"),
        kind if is_of_sockets(kind) => None,
        kind if program::is_program(kind) => {
            Some("on loopback nothing stamps a datagram before the program reads it")
        }
        _ => Some("it needs network namespaces (root)"),
    }
}

/// What a relay needs and this machine has not, or the sizes of probes that it cannot carry.
fn missing(kind: RelayKind, experiment: &Experiment) -> Option<String> {
    let program = |name| {
        let missing = Needs::new().program(name).missing();
        missing.map(|missing| format!("needs {missing}"))
    };
    match kind {
        RelayKind::EncryptHardware if !cipher::has_instructions() => {
            Some("this processor has no AES instructions".to_owned())
        }
        RelayKind::InterworkXdp | RelayKind::InterworkDurable => {
            interwork::unavailable(&experiment.conditions())
        }
        RelayKind::MeshLabel => {
            let fits = experiment.conditions().iter().all(|it| it.octets <= LABELLED_MAX);
            let why =
                || format!("a labelled frame carries probes of at most {LABELLED_MAX} octets");
            (!fits).then(why)
        }
        RelayKind::DriverXdp => program("ethtool"),
        RelayKind::SocatTcp => program("socat"),
        kind => program::unavailable(kind),
    }
}

/// Octets of a datagram's payload in a frame of Ethernet behind a label (RFC 3032 §2.1).
const LABELLED_MAX: u16 = 1500 - 4 - 28;

/// Starts the relay and waits until it is ready; `None` if the kernel is the relay.
pub(crate) fn start(
    kind: RelayKind,
    experiment: &Experiment,
    seat: &Seat,
    records: &Arc<ProbeRecords>,
    built: &Arc<BuiltPrograms>,
) -> Result<Option<RunningRelay>, String> {
    if is_kernels(kind) {
        return Ok(None);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let percent = experiment.node.quota_pct;
    let quota = (percent < 100).then(|| Quota::of(percent).map(Arc::new)).transpose()?;
    let job = RelayJob {
        records: Arc::clone(records),
        stamps_ingress: seat.node.is_none(),
        onward_ip: if seat.node.is_none() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED },
        sizes: sizes(experiment),
        quota: quota.clone(),
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
            if let Some(quota) = &job.quota {
                quota.hold(gettid().as_raw())?;
            }
            serve(kind, slowdown, &seat, &built, &job, &tell)
        };
        let done = match &seat.node {
            Some(node) => node.run(inside).map_err(|error| error.to_string()).flatten(),
            None => inside(),
        };
        if let Err(problem) = &done {
            Ready(tell).tell(Err(problem.clone()));
        }
        done
    };
    let thread = std::thread::Builder::new().name("relay".to_owned()).spawn(body);
    let thread = Some(thread.map_err(|error| error.to_string())?);
    let running = RunningRelay { stop, thread, quota };
    let within = if program::is_program(kind) { BUILT_WITHIN } else { READY_WITHIN };
    match told.recv_timeout(within) {
        Ok(Ok(())) => Ok(Some(running)),
        Ok(Err(problem)) => Err(problem),
        Err(_) => Err("it was not ready in time".to_owned()),
    }
}

/// The condition under which a relay is warmed up.
pub(crate) const WARM: Centre = Centre::plain(200, 500);

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
        RelayKind::SocatTcp => program::serve_socat(seat, job, &ready),
        RelayKind::InterworkDurable => durable::serve(seat, job, &ready),
        kind if program::is_program(kind) => program::serve(kind, seat, built, job, &ready),
        _ => graph::serve(kind, seat, job, &ready),
    }
}
