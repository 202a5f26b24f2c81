//! Links between sites: a TAP interface whose frames travel as UDP datagrams to one peer.
//!
//! The interface is a link like any other: the label programs run there, and control messages are
//! authenticated as the mesh's trust says. A thread carries its frames, each whole in a datagram.

use crate::frames::{HEADER_LEN, MPLS, ether_type};
use gatewright_link::FrameTap;
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

/// The running tunnels of a node; they end with this value.
#[derive(Debug)]
pub(crate) struct Tunnels {
    pub(crate) counters: Arc<TunnelCounters>,
    stop: Arc<EventFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Tunnels {
    /// No tunnel yet.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        Ok(Self { counters: Arc::default(), stop, threads: Vec::new() })
    }

    /// Makes the interface of a tunnel, and carries its frames.
    pub(crate) fn add(&mut self, tunnel: &MeshTunnel) -> io::Result<()> {
        if tunnel.local.is_ipv4() != tunnel.remote.is_ipv4() {
            let why = "local and remote are addresses of different families";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = UdpSocket::bind(tunnel.local)?;
        socket.set_nonblocking(true)?;
        let carrier = Carrier {
            tap: FrameTap::make(&tunnel.interface)?,
            socket,
            remote: tunnel.remote,
            stop: Arc::clone(&self.stop),
            counters: Arc::clone(&self.counters),
        };
        let thread = std::thread::Builder::new().name("mesh-tunnel".to_owned());
        self.threads.push(thread.spawn(move || carrier.run())?);
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
        for _ in 0..FRAMES_AT_ONCE {
            let Ok((len, from)) = self.socket.recv_from(buffer) else { return };
            let frame = buffer.get(..len).unwrap_or_default();
            if (from.ip(), from.port()) != (self.remote.ip(), self.remote.port()) {
                count(&self.counters.strangers);
            } else if !is_carried(frame) {
                count(&self.counters.malformed);
            } else if self.tap.send(frame).is_err() {
                count(&self.counters.refused);
            }
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
