//! Abstract names of Unix sockets, which anybody in a network namespace can take, and whose they are.

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, UnixAddr, UnixCredentials, connect,
    getsockopt, recv, send, socket, sockopt::PeerCredentials,
};
use nix::unistd::Uid;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::{fmt, fs, io};

/// Who listens at an abstract name of a socket, as the kernel says it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NameHolder {
    /// The name, without the zero before it.
    pub name: String,
    /// The user.
    pub user: u32,
    /// The process; `None` for one of another process namespace, and one that nobody can connect to.
    pub process: Option<u32>,
}

impl fmt::Display for NameHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, user, process } = self;
        write!(f, "user {user}")?;
        if let Some(process) = process {
            write!(f, " (process {process})")?;
        }
        write!(f, " has the socket name @{name}")
    }
}

/// Sockets whose owners are asked for at once, however many others make.
const HOLDERS_MAX: usize = 64;

/// Other users, except root, who listen at abstract names that `is_meant`, in the network namespace of
/// the calling thread; at most 64. Those are missing whose user the kernel does not say (before Linux
/// 5.3, if they cannot be connected to).
pub fn other_holders(is_meant: impl Fn(&[u8]) -> bool) -> Vec<NameHolder> {
    let listed = listed_sockets().unwrap_or_default();
    let holder = |(inode, name): (u32, &[u8])| {
        let user = owner(inode);
        if user.is_some_and(is_trusted) {
            return None;
        }
        let peer = peer(name);
        let user = user.or_else(|| Some(peer.as_ref()?.uid())).filter(|user| !is_trusted(*user))?;
        let process = peer.and_then(|peer| u32::try_from(peer.pid()).ok()).filter(|pid| *pid > 0);
        Some(NameHolder { name: String::from_utf8_lossy(name).into_owned(), user, process })
    };
    named(&listed, is_meant).into_iter().take(HOLDERS_MAX).filter_map(holder).collect()
}

/// Whether sockets of this user are as good as those of this process: its own, and root's.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == 0 || user == Uid::effective().as_raw()
}

/// The kernel's list of Unix sockets, in the network namespace of the calling thread.
pub(crate) fn listed_sockets() -> io::Result<Vec<u8>> {
    fs::read("/proc/thread-self/net/unix")
}

/// The inodes and abstract names of sockets in the kernel's list whose names are meant.
pub(crate) fn named(listed: &[u8], is_meant: impl Fn(&[u8]) -> bool) -> Vec<(u32, &[u8])> {
    let name = |line| -> Option<(u32, &[u8])> {
        let (inode, name) = inode_and_name(line)?;
        // Connections that wait at a name have no inode.
        (inode != 0 && is_meant(name)).then_some((inode, name))
    };
    listed.split(|octet| *octet == b'\n').filter_map(name).collect()
}

fn inode_and_name(line: &[u8]) -> Option<(u32, &[u8])> {
    // Num RefCount Protocol Flags Type St Inode Path
    let mut last = line.rsplit(|octet| *octet == b' ').filter(|field| !field.is_empty());
    let (path, inode) = (last.next()?, last.next()?);
    Some((str::from_utf8(inode).ok()?.parse().ok()?, path.strip_prefix(b"@")?))
}

pub(crate) fn stream() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

/// Who listens at a name, if it can be connected to.
pub(crate) fn peer(name: &[u8]) -> Option<UnixCredentials> {
    let (socket, address) = (stream().ok()?, UnixAddr::new_abstract(name).ok()?);
    connect(socket.as_raw_fd(), &address).ok()?;
    getsockopt(&socket, PeerCredentials).ok()
}

/// `linux/sock_diag.h`, `linux/unix_diag.h`: a request for one socket.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_UID: u32 = 0x40;
const UNIX_DIAG_UID: u16 = 7;

/// Octets of a request, of the fixed part of its answer, and of an attribute before its value.
const REQUEST_OCTETS: u32 = 40;
const ANSWER_OCTETS: usize = 32;
const ATTRIBUTE_OCTETS: usize = 4;

/// The user of a socket, as the kernel says it from Linux 5.3 on.
pub(crate) fn owner(inode: u32) -> Option<u32> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let diagnosis = SockProtocol::NetlinkSockDiag;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, diagnosis).ok()?;
    let mut request = Vec::new();
    // `struct nlmsghdr`: length, type, flags (NLM_F_REQUEST), number, port.
    request.extend(REQUEST_OCTETS.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(1_u16.to_ne_bytes());
    request.extend([0; 8]);
    // `struct unix_diag_req`: AF_UNIX, states, inode, what to show, no cookie.
    request.extend([1, 0, 0, 0]);
    for word in [u32::MAX, inode, UDIAG_SHOW_UID, u32::MAX, u32::MAX] {
        request.extend(word.to_ne_bytes());
    }
    send(socket.as_raw_fd(), &request, MsgFlags::empty()).ok()?;
    let mut answer = [0; 512];
    let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty()).ok()?;
    owner_in(answer.get(..len)?)
}

/// The user in an answer; `None` if it is an error, or has none.
fn owner_in(answer: &[u8]) -> Option<u32> {
    let half = |octets: &[u8]| Some(u16::from_ne_bytes(octets.get(..2)?.try_into().ok()?));
    if half(answer.get(4..)?)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut rest = answer.get(ANSWER_OCTETS..)?;
    loop {
        let (len, kind) = (usize::from(half(rest)?), half(rest.get(2..)?)?);
        if kind == UNIX_DIAG_UID {
            let value = rest.get(ATTRIBUTE_OCTETS..)?.first_chunk()?;
            return Some(u32::from_ne_bytes(*value));
        }
        rest = rest.get(len.max(ATTRIBUTE_OCTETS).next_multiple_of(ATTRIBUTE_OCTETS)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_named_by_the_list() {
        let listed = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff88810abc: 00000002 00000000 00010000 0001 01 12345 @gatewright/link/7\n\
            ffff88810abd: 00000002 00000000 00000000 0001 02     0 @gatewright/link/7\n\
            ffff88810abe: 00000002 00000000 00010000 0001 01 12346 /run/gatewright.sock\n\
            ffff88810abf: 00000003 00000000 00000000 0001 03 12347\n";
        assert_eq!(named(listed, |_| true), [(12345, &b"gatewright/link/7"[..])]);
        assert_eq!(named(listed, |name| name == b"other"), []);
    }

    #[test]
    fn an_answer_that_is_cut_off_has_no_owner() {
        for len in 0..40 {
            assert_eq!(owner_in(&vec![0xff; len]), None, "{len}");
        }
    }

    #[test]
    fn a_holder_is_told_with_what_the_kernel_says() {
        let mut holder =
            NameHolder { name: "gatewright/link/7".into(), user: 1000, process: Some(12) };
        let words = "user 1000 (process 12) has the socket name @gatewright/link/7";
        assert_eq!(holder.to_string(), words);
        holder.process = None;
        assert_eq!(holder.to_string(), "user 1000 has the socket name @gatewright/link/7");
    }
}
