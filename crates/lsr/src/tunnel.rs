//! Links between sites: a TAP interface whose frames travel as UDP datagrams to one peer.
//!
//! The interface is a link like any other: the label programs run there, and control messages are
//! authenticated as the mesh's trust says. A thread carries its frames, each whole in a datagram.

use crate::frames::{HEADER_LEN, MPLS, ether_type};
use gatewright_link::{FrameTap, disregard_path_mtu};
use gatewright_mesh::message::ETHER_TYPE;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest frame: an Ethernet header, two label stack entries, a control word, and a carried frame
/// of 1,500 octets with its header; with room to tell a longer one.
const FRAME_MAX: usize = 2_048;

/// Frames taken from one side before the other is looked at.
const FRAMES_AT_ONCE: usize = 64;

/// A tunnel of a node's description.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MeshTunnel {
    /// Name of its interface.
    pub interface: String,
    /// Own address and port.
    pub local: SocketAddr,
    /// Those of the node at the other end.
    pub remote: SocketAddr,
}

impl MeshTunnel {
    /// Checks what the start of the tunnel would refuse, as far as it is seen without a change; what
    /// `running` tunnels have will be free.
    pub(crate) fn check(&self, running: &[Self]) -> io::Result<()> {
        if running.iter().any(|other| other.local == self.local) {
            return self.check_families();
        }
        self.socket().map(drop)
    }

    /// Its socket, at its own address.
    fn socket(&self) -> io::Result<UdpSocket> {
        self.check_families()?;
        let socket = UdpSocket::bind(self.local)?;
        socket.set_nonblocking(true)?;
        disregard_path_mtu(&socket)?;
        Ok(socket)
    }

    fn check_families(&self) -> io::Result<()> {
        if self.local.is_ipv4() == self.remote.is_ipv4() {
            return Ok(());
        }
        let why = "local and remote are addresses of different families";
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

/// What a tunnel has dropped.
#[derive(Debug, Default)]
pub(crate) struct TunnelCounters {
    /// Datagrams of others than the peer.
    strangers: AtomicU64,
    /// Frames of the kernel, or datagrams of the peer, that are neither control messages nor labelled.
    malformed: AtomicU64,
    /// Frames and datagrams that the kernel did not take.
    refused: AtomicU64,
}

impl TunnelCounters {
    pub(crate) fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("tunnel_strangers", self.strangers.load(Ordering::Relaxed)),
            ("tunnel_malformed", self.malformed.load(Ordering::Relaxed)),
            ("tunnel_refused", self.refused.load(Ordering::Relaxed)),
        ]
    }
}

/// When the peer of a tunnel was heard: milliseconds since the tunnel began, and one; 0 for never.
#[derive(Debug, Default)]
struct HeardAt(AtomicU64);

impl HeardAt {
    fn set(&self, since_start: Duration) {
        let ms = u64::try_from(since_start.as_millis()).unwrap_or(u64::MAX);
        self.0.store(ms.saturating_add(1), Ordering::Relaxed);
    }

    /// How long ago that was; `None` if it was never heard.
    fn ago(&self, since_start: Duration) -> Option<Duration> {
        let at = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(since_start.saturating_sub(Duration::from_millis(at)))
    }
}

/// A tunnel that runs.
#[derive(Debug)]
pub(crate) struct RunningTunnel {
    pub(crate) tunnel: MeshTunnel,
    began: Instant,
    heard: Arc<HeardAt>,
}

impl RunningTunnel {
    /// How long ago its peer was heard; `None` if it was never heard.
    pub(crate) fn heard_ago(&self) -> Option<Duration> {
        self.heard.ago(self.began.elapsed())
    }
}

/// The running tunnels of a node; they end with this value.
#[derive(Debug)]
pub(crate) struct Tunnels {
    pub(crate) counters: Arc<TunnelCounters>,
    pub(crate) running: Vec<RunningTunnel>,
    stop: Arc<EventFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Tunnels {
    /// No tunnel yet.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        Ok(Self { counters: Arc::default(), running: Vec::new(), stop, threads: Vec::new() })
    }

    /// Makes the interface of a tunnel, and carries its frames.
    pub(crate) fn add(&mut self, tunnel: &MeshTunnel) -> io::Result<()> {
        let socket = tunnel.socket()?;
        let (began, heard) = (Instant::now(), Arc::<HeardAt>::default());
        let carrier = Carrier {
            began,
            heard: Arc::clone(&heard),
            tap: FrameTap::make(&tunnel.interface)?,
            socket,
            remote: tunnel.remote,
            stop: Arc::clone(&self.stop),
            counters: Arc::clone(&self.counters),
        };
        let thread = std::thread::Builder::new().name("mesh-tunnel".to_owned());
        self.threads.push(thread.spawn(move || carrier.run())?);
        self.running.push(RunningTunnel { tunnel: tunnel.clone(), began, heard });
        Ok(())
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        // The count of the eventfd is far from its end.
        let _told = self.stop.write(1);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// What a thread carries.
struct Carrier {
    began: Instant,
    heard: Arc<HeardAt>,
    tap: FrameTap,
    socket: UdpSocket,
    remote: SocketAddr,
    stop: Arc<EventFd>,
    counters: Arc<TunnelCounters>,
}

impl Carrier {
    /// Carries frames until it is told to stop, or the interface is gone.
    fn run(self) {
        let mut buffer = vec![0; FRAME_MAX];
        loop {
            let mut fds = [
                PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.tap.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
            let [stop, ..] = fds;
            if stop.any().unwrap_or(true) || self.outward(&mut buffer).is_err() {
                return;
            }
            self.inward(&mut buffer);
        }
    }

    /// Sends the kernel's frames; an error when there is no interface any more.
    fn outward(&self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..FRAMES_AT_ONCE {
            let Some(frame) = self.tap.receive(buffer)? else { break };
            if !is_carried(frame) {
                count(&self.counters.malformed);
            } else if self.socket.send_to(frame, self.remote).is_err() {
                count(&self.counters.refused);
            }
        }
        Ok(())
    }

    /// Gives the kernel what the peer has sent.
    fn inward(&self, buffer: &mut [u8]) {
        let mut is_heard = false;
        for _ in 0..FRAMES_AT_ONCE {
            let Ok((len, from)) = self.socket.recv_from(buffer) else { break };
            let frame = buffer.get(..len).unwrap_or_default();
            if (from.ip(), from.port()) != (self.remote.ip(), self.remote.port()) {
                count(&self.counters.strangers);
                continue;
            }
            is_heard = true;
            if !is_carried(frame) {
                count(&self.counters.malformed);
            } else if self.tap.send(frame).is_err() {
                count(&self.counters.refused);
            }
        }
        if is_heard {
            self.heard.set(self.began.elapsed());
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Whether a frame is a control message or a labelled packet, and not longer than frames are.
fn is_carried(frame: &[u8]) -> bool {
    let is_whole = frame.len() > HEADER_LEN && frame.len() < FRAME_MAX;
    is_whole && matches!(ether_type(frame), Some(ETHER_TYPE | MPLS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::header;

    #[test]
    fn a_peer_is_heard_some_time_ago_or_never() {
        let (heard, second) = (HeardAt::default(), Duration::from_secs(1));
        assert_eq!(heard.ago(second), None);
        heard.set(Duration::ZERO);
        assert_eq!(heard.ago(second), Some(second));
        heard.set(Duration::MAX);
        assert_eq!(heard.ago(second), Some(Duration::ZERO));
    }

    #[test]
    fn only_frames_of_the_mesh_are_carried() {
        let frame = |ether_type, len| {
            let mut frame = header([2; 6], [4; 6], ether_type);
            frame.resize(len, 0);
            frame
        };
        assert!(is_carried(&frame(MPLS, 1_518)) && is_carried(&frame(ETHER_TYPE, 60)));
        for (ether_type, len) in
            [(0x0800, 60), (0x86dd, 60), (MPLS, 14), (MPLS, 5), (MPLS, FRAME_MAX)]
        {
            assert!(!is_carried(&frame(ether_type, len)), "{ether_type:#x} of {len}");
        }
    }
}
