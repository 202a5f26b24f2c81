//! The claim to an exclusive link: only one process of a network namespace has it.
//!
//! A claim is a socket with an abstract name (`unix(7)`). Like an interface's index, it belongs to
//! one network namespace; it ends with its process. A process that finds it taken asks the kernel
//! for its owner.
//!
//! Anybody can take such a name. Where a user without the right to open links has it, a claim is a
//! name that goes on with random digits, and whoever claims looks at all names that begin so. Their
//! owners are the kernel's word (`sock_diag(7)`), which a full queue of connections does not hide.

use crate::socket_name::{
    NameHolder, is_trusted, listed_sockets, named, other_holders, owner, peer, stream,
};
use nix::errno::Errno;
use nix::sys::socket::{Backlog, UnixAddr, bind, listen};
use nix::unistd::Pid;
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

/// Hexadecimal digits with which a name ends that nobody can take beforehand.
const RANDOM_DIGITS: usize = 32;

/// A name that nobody can take beforehand.
fn random_name(first: &[u8]) -> Option<Vec<u8>> {
    let mut octets = [0; 16];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut octets)).ok()?;
    let digits = format!("/{:032x}", u128::from_ne_bytes(octets));
    Some([first, digits.as_bytes()].concat())
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
    let listed = listed_sockets().unwrap_or_default();
    let mut names = named(&listed, |name| is_claim(first, name));
    if !names.iter().any(|(_, name)| *name == first) {
        names.push((0, first));
    }
    let mut is_taken = false;
    for (inode, name) in names.into_iter().filter(|(_, name)| own != Some(name)) {
        let peer = peer(name);
        let uid = owner(inode).or_else(|| Some(peer.as_ref()?.uid()));
        // One whose user could not open the link only has the name.
        if !uid.is_some_and(is_trusted) {
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

/// Whether a name may be a claim to the interface whose claims have this first name.
fn is_claim(first: &[u8], name: &[u8]) -> bool {
    name.strip_prefix(first).is_some_and(|end| {
        end.is_empty() || end.strip_prefix(b"/").is_some_and(|end| end.len() == RANDOM_DIGITS)
    })
}

/// Processes of users without the right to open links who hold names of claims to the interface with
/// this index, as far as the kernel tells whose they are. They have no claim.
pub fn claim_name_holders(interface_index: u32) -> Vec<NameHolder> {
    let first = name(interface_index);
    other_holders(|name| is_claim(&first, name))
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

    /// Names of this user are no other's, and a longer number is another interface.
    #[test]
    fn holders_of_names_are_other_users() {
        let claim = Claim::take(INDEX - 3).unwrap();
        assert!(claim.is_some());
        assert_eq!(claim_name_holders(INDEX - 3), []);
        let first = name(7);
        let random = [&first[..], b"/", &[b'0'; RANDOM_DIGITS]].concat();
        assert!(is_claim(&first, &first) && is_claim(&first, &random));
        for other in [&random[..random.len() - 1], b"gatewright/link/70", b"gatewright/link/7/"] {
            assert!(!is_claim(&first, other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn the_owner_of_a_claim_is_the_kernels_word() {
        let name = name(INDEX - 2);
        let _socket = bound(&name).unwrap();
        let listed = listed_sockets().unwrap();
        let [(inode, _)] = named(&listed, |other| other == name)[..] else {
            panic!("it is listed")
        };
        assert!(is_open_here(inode));
        // Linux before 5.3 does not say it.
        assert!(owner(inode).is_none_or(is_trusted));
        assert_eq!(owner(u32::MAX), None);
    }
}
