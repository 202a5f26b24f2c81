//! The claim to an exclusive link: only one process of a network namespace has it.
//!
//! A claim is a socket with an abstract name (`unix(7)`). Like an interface's index, it belongs to
//! one network namespace; it ends with its process. A process that finds it taken asks the kernel
//! for its owner.
//!
//! Anybody can take such a name. Where a user without the right to open links has it, a claim is a
//! name that goes on with random digits, and whoever claims looks at all names that begin so. Their
//! owners are the kernel's word (`sock_diag(7)`), which a full queue of connections does not hide.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockProtocol, SockType, UnixAddr, bind, connect,
    getsockopt, listen, recv, send, socket, sockopt::PeerCredentials,
};
use nix::unistd::{Pid, Uid};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The right of this process to be the host on an interface, while this value lives.
#[derive(Debug)]
pub(crate) struct Claim {
    _socket: OwnedFd,
}

impl Claim {
    /// Claims the interface with this index.
    ///
    /// Returns `None` if there is nothing to hold: this process has the claim already, or the system
    /// has no such sockets.
    ///
    /// # Errors
    ///
    /// The other process that has it, in words.
    pub(crate) fn take(interface_index: u32) -> Result<Option<Self>, String> {
        let first = name(interface_index);
        let (socket, own) = match bound(&first) {
            Ok(socket) => (socket, first.clone()),
            Err(Errno::EADDRINUSE) => {
                // Before it has another name, which a holder that begins would take for a claim.
                if is_taken(&first, None)? {
                    return Ok(None);
                }
                let Some(other) = random_name(&first) else { return Ok(None) };
                let Ok(socket) = bound(&other) else { return Ok(None) };
                (socket, other)
            }
            Err(_) => return Ok(None),
        };
        let is_own = is_taken(&first, Some(&own))?;
        Ok((!is_own).then_some(Self { _socket: socket }))
    }
}

fn name(interface_index: u32) -> Vec<u8> {
    format!("gatewright/link/{interface_index}").into_bytes()
}

/// A name that nobody can take beforehand.
fn random_name(first: &[u8]) -> Option<Vec<u8>> {
    let mut octets = [0; 16];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut octets)).ok()?;
    let digits = format!("/{:032x}", u128::from_ne_bytes(octets));
    Some([first, digits.as_bytes()].concat())
}

fn stream() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Unix, SockType::Stream, flags, None)
}

/// A socket that has this name.
fn bound(name: &[u8]) -> nix::Result<OwnedFd> {
    let (socket, address) = (stream()?, UnixAddr::new_abstract(name)?);
    bind(socket.as_raw_fd(), &address)?;
    // Nobody is ever answered: to be connected to is enough to be known.
    listen(&socket, Backlog::MAXCONN)?;
    Ok(socket)
}

/// Whether this process has the claim by another name than `own`.
///
/// # Errors
///
/// The other process that has it, in words.
fn is_taken(first: &[u8], own: Option<&[u8]>) -> Result<bool, String> {
    // Without the list the first name is asked alone.
    let listed = fs::read("/proc/thread-self/net/unix").unwrap_or_default();
    let mut names = names(&listed, first);
    if !names.iter().any(|(_, name)| *name == first) {
        names.push((0, first));
    }
    let mut is_taken = false;
    for (inode, name) in names.into_iter().filter(|(_, name)| own != Some(name)) {
        let peer = peer(name);
        let uid = owner(inode).or_else(|| Some(peer.as_ref()?.uid()));
        // One whose user could not open the link only has the name.
        if !uid.is_some_and(|uid| uid == 0 || uid == Uid::effective().as_raw()) {
            continue;
        }
        let pid = peer.map_or(0, |peer| peer.pid());
        if is_open_here(inode) || pid == Pid::this().as_raw() {
            is_taken = true;
            continue;
        }
        return Err(in_words(pid));
    }
    Ok(is_taken)
}

/// The inodes and names of sockets in the kernel's list that may be claims to this interface.
fn names<'a>(listed: &'a [u8], first: &[u8]) -> Vec<(u32, &'a [u8])> {
    let name = |line: &'a [u8]| {
        // Num RefCount Protocol Flags Type St Inode Path
        let mut last = line.rsplit(|octet| *octet == b' ').filter(|field| !field.is_empty());
        let (path, inode) = (last.next()?, last.next()?);
        let name = path.strip_prefix(b"@")?;
        let is_claim = name.strip_prefix(first).is_some_and(|end| {
            end.is_empty() || end.strip_prefix(b"/").is_some_and(|end| end.len() == 32)
        });
        let inode: u32 = str::from_utf8(inode).ok()?.parse().ok()?;
        // Connections that wait at a name have no inode.
        (is_claim && inode != 0).then_some((inode, name))
    };
    listed.split(|octet| *octet == b'\n').filter_map(name).collect()
}

/// Who listens at a name, if it can be connected to.
fn peer(name: &[u8]) -> Option<nix::sys::socket::UnixCredentials> {
    let (socket, address) = (stream().ok()?, UnixAddr::new_abstract(name).ok()?);
    connect(socket.as_raw_fd(), &address).ok()?;
    getsockopt(&socket, PeerCredentials).ok()
}

/// Whether this process has a socket open.
fn is_open_here(inode: u32) -> bool {
    let shown = format!("socket:[{inode}]");
    let files = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).any(|it| it.as_os_str() == &*shown)
}

fn in_words(pid: i32) -> String {
    // Empty for a process of another process namespace, whose number is 0 here.
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match command.trim() {
        "" => "a process of another container, or one whose number is hidden".to_owned(),
        command => format!("{command} (process {pid})"),
    }
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
fn owner(inode: u32) -> Option<u32> {
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

    #[test]
    fn the_owner_of_a_socket_is_the_kernels_word() {
        let name = name(INDEX - 2);
        let _socket = bound(&name).unwrap();
        let listed = fs::read("/proc/thread-self/net/unix").unwrap();
        let [(inode, _)] = names(&listed, &name)[..] else { panic!("it is listed") };
        assert!(is_open_here(inode));
        // Linux before 5.3 does not say it.
        assert!(owner(inode).is_none_or(|uid| uid == Uid::effective().as_raw()));
        assert_eq!(owner(u32::MAX), None);
        for len in 0..40 {
            assert_eq!(owner_in(&vec![0xff; len]), None, "{len}");
        }
    }
}
