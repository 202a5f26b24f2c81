//! Exclusive links: the kernel's stack is cut off from received frames.

use crate::Exclusive;
use crate::bpf::{self, DROP_ALL, Hook, ProgramType};
use crate::division::{Division, at_ingress};
use crate::nftables;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::{fs, io};

/// Cuts the kernel's stack off from an interface's received frames, while this value lives.
#[derive(Debug)]
pub(crate) struct KernelSilenced {
    /// Detaches the dropping program; `None` where the kernel is silent by itself.
    attached: Option<OwnedFd>,
    pub(crate) how: Exclusive,
}

/// Why the kernel's stack could not be cut off.
#[derive(Debug)]
pub(crate) struct NotSilenced {
    /// The kernel's error when its stack was to be cut off.
    pub(crate) source: io::Error,
    /// Why it is not silent by itself.
    pub(crate) reason: String,
}

impl KernelSilenced {
    /// The kernel keeps all frames except ours, as long as `attached` lives.
    pub(crate) const fn divided(attached: OwnedFd) -> Self {
        Self { attached: Some(attached), how: Exclusive::Divided }
    }

    /// What another process has cut it off by, and how.
    pub(crate) const fn of_held(attached: Option<OwnedFd>, how: Exclusive) -> Self {
        Self { attached, how }
    }

    /// What cuts it off; `None` where the kernel is silent by itself.
    pub(crate) const fn attached(&self) -> Option<&OwnedFd> {
        self.attached.as_ref()
    }

    /// Cuts the kernel's stack off, or makes sure that it is silent by itself.
    ///
    /// An nftables table at the interface's ingress drops everything. Packet sockets see frames
    /// before it, so they receive all; the kernel answers, forwards and learns nothing. Without
    /// nftables a program at the same place drops them, which needs Linux 6.6 (`tcx`) and
    /// `CAP_BPF`. Without either, a kernel without addresses and forwarding is sufficient.
    pub(crate) fn new(name: &str, interface_index: u32) -> Result<Self, NotSilenced> {
        match nftables::drop_all(name).or_else(|_| drop_all(interface_index)) {
            Ok(attached) => Ok(Self { attached: Some(attached), how: Exclusive::Dropped }),
            Err(source) => match reason_to_speak(name) {
                None => Ok(Self { attached: None, how: Exclusive::Unaddressed }),
                Some(reason) => Err(NotSilenced { source, reason }),
            },
        }
    }
}

/// Keeps only our frames of a shared link from the kernel; needs Linux 6.6.
pub(crate) fn drop_ours(
    interface_index: u32,
    (division, vlans): (&Division, &[u16]),
) -> io::Result<OwnedFd> {
    let code = at_ingress(division.fd(), vlans);
    let program = bpf::load(ProgramType::Ingress, "gw_divide", &code, 0)?;
    program.attach(interface_index, Hook::Ingress).map(OwnedFd::from)
}

fn drop_all(interface_index: u32) -> io::Result<OwnedFd> {
    let program = bpf::load(ProgramType::Ingress, "gw_drop", &DROP_ALL, 0)?;
    program.attach(interface_index, Hook::Ingress).map(OwnedFd::from)
}

/// Why the kernel may answer or forward frames that arrive on the interface `name`; `None` if it
/// cannot.
///
/// An address on any interface counts: Linux answers for it on all of them (the weak host model,
/// RFC 1122 §3.3.4.2).
fn reason_to_speak(name: &str) -> Option<String> {
    let addresses = match getifaddrs() {
        Ok(addresses) => addresses,
        Err(error) => return Some(format!("its addresses cannot be read: {error}")),
    };
    for interface in addresses {
        let Some(address) = &interface.address else { continue };
        let ipv4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let ipv6 = address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()));
        let Some(address) = ipv4.or(ipv6) else { continue };
        if !interface.flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            return Some(format!("it has the address {address} on {}", interface.interface_name));
        }
    }
    let forwards = |family: &str| {
        let path = format!("/proc/sys/net/{family}/conf/{name}/forwarding");
        // A family that the kernel does not have is not forwarded.
        fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
    };
    let family = ["ipv4", "ipv6"].into_iter().find(|family| forwards(family))?;
    Some(format!("it forwards {family} from {name}"))
}
