//! The claim to an exclusive link: only one process of a network namespace has it.
//!
//! A claim is a socket with an abstract name (`unix(7)`). Like an interface's index, it belongs to
//! one network namespace; it ends with its process. A process that finds it taken asks the kernel
//! for its owner.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen,
    socket, sockopt::PeerCredentials,
};
use nix::unistd::{Pid, Uid};
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The right of this process to be the host on an interface, while this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: OwnedFd,
}

impl Claim {
    /// Claims the interface with this index.
    ///
    /// Returns `None` if there is nothing to hold: this process has the claim already, the system
    /// has no such sockets, or a user without the right to open links took its name.
    ///
    /// # Errors
    ///
    /// The other process that has it, in words.
    pub(crate) fn take(interface_index: u32) -> Result<Option<Self>, String> {
        let Ok(address) = UnixAddr::new_abstract(&name(interface_index)) else { return Ok(None) };
        let Ok(socket) = stream() else { return Ok(None) };
        match bind(socket.as_raw_fd(), &address) {
            // Nobody is ever answered: to be connected to is enough to be known.
            Ok(()) => Ok(listen(&socket, Backlog::MAXCONN).ok().map(|()| Self { _socket: socket })),
            Err(Errno::EADDRINUSE) => owner(&address).map_or(Ok(None), Err),
            Err(_) => Ok(None),
        }
    }
}

fn name(interface_index: u32) -> Vec<u8> {
    format!("gatewright/link/{interface_index}").into_bytes()
}

fn stream() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

/// The other process that has the claim, in words. `None` if it is this process, or one whose user
/// could not open the link and only has the name.
fn owner(address: &UnixAddr) -> Option<String> {
    let socket = stream().ok()?;
    connect(socket.as_raw_fd(), address).ok()?;
    let peer = getsockopt(&socket, PeerCredentials).ok()?;
    let may_open_links = peer.uid() == 0 || peer.uid() == Uid::effective().as_raw();
    let (pid, is_own) = (peer.pid(), peer.pid() == Pid::this().as_raw());
    (may_open_links && !is_own).then(|| {
        // Empty for a process of another process namespace, whose number is 0 here.
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        match command.trim() {
            "" => "a process of another container".to_owned(),
            command => format!("{command} (process {pid})"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No interface has so high an index.
    const INDEX: u32 = u32::MAX - 7;

    #[test]
    fn a_claim_ends_with_its_holder_and_the_own_process_is_no_other() {
        let claim = Claim::take(INDEX).unwrap();
        assert!(claim.is_some());
        assert!(Claim::take(INDEX).unwrap().is_none(), "this process has it already");
        drop(claim);
        assert!(Claim::take(INDEX).unwrap().is_some());
    }
}
