//! The abstract names at which a later control plane finds a data plane.
//!
//! Such a name is in no file system, and ends with its process. Anybody in the network namespace can
//! read it, and can listen at names that begin like it. So the rest of the name is random, which
//! nobody can take beforehand; whoever listens at one is asked only if it runs as this user or as
//! root; and listeners that accept nothing cost one common time, however many they are.

use crate::error::{DataError, failed, refused};
use gatewright_link::{NameHolder, other_holders};
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket, sockopt::PeerCredentials,
    },
};
use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::{
        fd::AsRawFd as _,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    time::{Duration, Instant},
};

/// How the abstract names of a data plane begin.
fn prefix(name: &str) -> String {
    format!("gatewright-data/{name}/")
}

/// Hexadecimal digits with which they end.
const RANDOM_DIGITS: usize = 32;

/// Listens at a name that nobody could know before.
pub(super) fn bind(name: &str) -> io::Result<UnixListener> {
    let mut end = [0; RANDOM_DIGITS / 2];
    File::open("/dev/urandom")?.read_exact(&mut end)?;
    let end = u128::from_ne_bytes(end);
    let address = SocketAddr::from_abstract_name(format!("{}{end:032x}", prefix(name)))?;
    UnixListener::bind_addr(&address)
}

/// A data plane that is connected to.
pub(super) struct ConnectedPlane {
    pub(super) stream: UnixStream,
    /// Its process, as the kernel says it.
    pub(super) process: u32,
}

/// Connects to the data plane of this name, if one runs.
///
/// # Errors
///
/// [`DataError::System`] if the kernel does not list its sockets; [`DataError::Refused`] if the data
/// plane is a process of another process namespace.
pub(super) fn connect(name: &str) -> Result<Option<ConnectedPlane>, DataError> {
    let listed = fs::read("/proc/thread-self/net/unix").map_err(failed("list sockets"))?;
    let deadline = Instant::now() + FULL_FOR;
    let pause = || {
        std::thread::sleep(CONNECT_EVERY);
        Instant::now() < deadline
    };
    let Some(stream) = first_own(names(&listed, name), try_connect, pause) else { return Ok(None) };
    let process = process_of(&stream);
    if process == 0 {
        let text = format!("the data plane of {name} is a process of another container");
        return Err(refused(text));
    }
    Ok(Some(ConnectedPlane { stream, process }))
}

/// Processes of other users, except root, who listen at names that begin as those of a data plane called
/// `name`. They are not asked, and are in nobody's way.
pub fn name_holders(name: &str) -> Vec<NameHolder> {
    let start = format!("gatewright-data/{name}");
    other_holders(|name| name.starts_with(start.as_bytes()))
}

/// The names of data planes called `name` in the kernel's list of sockets.
fn names<'a>(listed: &'a [u8], name: &str) -> Vec<&'a [u8]> {
    let start = format!("@{}", prefix(name));
    let lines = listed.split(|octet| *octet == b'\n');
    // Num RefCount Protocol Flags Type St Inode Path
    let paths = lines.filter_map(|line| line.rsplit(|octet| *octet == b' ').next());
    let is_random =
        |end: &[u8]| end.len() == RANDOM_DIGITS && end.iter().all(u8::is_ascii_hexdigit);
    let is_name = |path: &&[u8]| path.strip_prefix(start.as_bytes()).is_some_and(is_random);
    paths.filter(is_name).filter_map(|path| path.get(1..)).collect()
}

/// Connects to the first that is this user's. Those whose queues are full are tried again after each
/// `pause`, all of them, until it says that the time is over.
fn first_own<T>(
    mut names: Vec<&[u8]>,
    connect: impl Fn(&[u8]) -> Result<T, Errno>,
    mut pause: impl FnMut() -> bool,
) -> Option<T> {
    loop {
        let mut full = Vec::new();
        for name in names {
            match connect(name) {
                Ok(own) => return Some(own),
                Err(Errno::EAGAIN) => full.push(name),
                Err(_) => {}
            }
        }
        names = full;
        if names.is_empty() || !pause() {
            return None;
        }
    }
}

/// Connects to an abstract name without waiting: a stranger that accepts nothing must not stop this
/// process. An error if it is another user's.
fn try_connect(name: &[u8]) -> Result<UnixStream, Errno> {
    let address = UnixAddr::new_abstract(name)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(socket.as_raw_fd(), &address)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(|_| Errno::EIO)?;
    if is_own(&stream) { Ok(stream) } else { Err(Errno::EPERM) }
}

/// How long listeners whose queues are full are tried, all of them together, and the time between two
/// attempts: a data plane takes who connects out of its queue at once.
const FULL_FOR: Duration = Duration::from_millis(100);
const CONNECT_EVERY: Duration = Duration::from_millis(5);

/// The process at the other end, as the kernel says it; 0 for one of another process namespace.
pub(super) fn process_of(stream: &UnixStream) -> u32 {
    let peer = getsockopt(stream, PeerCredentials);
    peer.map_or(0, |peer| u32::try_from(peer.pid()).unwrap_or(0))
}

/// Whether the other end runs as the same user, or as root.
pub(super) fn is_own(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Many listeners whose queues are full take no more time than one, and the true one is found
    /// behind them.
    #[test]
    fn full_listeners_have_one_time_together() {
        let (texts, asked) = ((0..500).map(|it| format!("{it:032x}")), Cell::new(0));
        let texts: Vec<_> = texts.collect();
        let fakes: Vec<_> = texts.iter().map(String::as_bytes).collect();
        let connect = |name: &[u8]| {
            asked.set(asked.get() + 1);
            if name == b"own" && asked.get() > 1000 { Ok(()) } else { Err(Errno::EAGAIN) }
        };
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            pauses < 20
        };
        assert_eq!(first_own(fakes.clone(), connect, &mut pause), None);
        assert_eq!((asked.get(), pauses), (20 * 500, 20));
        let all = fakes.into_iter().chain([&b"own"[..]]).collect();
        assert_eq!(first_own(all, connect, || false), Some(()));
        let others = |_: &[u8]| Err::<(), _>(Errno::EPERM);
        assert_eq!(first_own(vec![b"other"], others, || true), None, "it is not asked again");
    }

    #[test]
    fn only_names_that_a_data_plane_could_have_are_asked() {
        let line = |path: &str| format!("0000: 00000002 00000000 00010000 0001 01 123 {path}\n");
        let own = format!("@gatewright-data/gw/{}", "0f".repeat(16));
        let others = ["@gatewright-data/gw/", "@gatewright-data/gw/0f", "/run/gatewright.sock"];
        let listed: String = others.into_iter().chain([own.as_str()]).map(line).collect();
        assert_eq!(names(listed.as_bytes(), "gw"), [&own.as_bytes()[1..]]);
        assert!(names(listed.as_bytes(), "other").is_empty());
    }
}
