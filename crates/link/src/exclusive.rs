//! Keeping the kernel's stack from what arrives on a link.

use crate::bpf::{self, DROP_ALL, Hook, Kind};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The kernel drops what arrives on an interface, behind packet sockets, while this lives.
///
/// Packet sockets see a frame before the ingress hook does, so that they receive everything and
/// the kernel answers, forwards and learns nothing.
#[derive(Debug)]
pub(crate) struct KernelSilenced {
    _attached: OwnedFd,
}

impl KernelSilenced {
    /// Needs Linux 6.6 (`tcx`) and `CAP_BPF` with `CAP_NET_ADMIN`.
    pub(crate) fn new(interface_index: u32) -> io::Result<Self> {
        let program = bpf::load(Kind::Ingress, "gw_drop", &DROP_ALL)?;
        let attached = bpf::attach(program.as_fd(), interface_index, Hook::Ingress)?;
        Ok(Self { _attached: attached })
    }
}
