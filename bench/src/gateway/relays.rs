//! The peers: how one relays datagrams with the kernel's sockets, from the plainest way on.

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Datagrams that one call takes or gives at the most.
const AT_ONCE: usize = 64;
/// Octets of the largest datagram of an Ethernet frame.
const DATAGRAM_MAX: usize = 1472;
/// How long a blocked call waits before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// How the sockets are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Relay {
    /// `recvfrom` that blocks, `sendto`: what everybody writes first.
    Blocking,
    /// `recvmmsg` and `sendmmsg`, 64 datagrams each.
    Many,
    /// `recvfrom` that never blocks, without a pause.
    Spinning,
}

impl Relay {
    /// Sends every datagram for `local` on to `to` until `stop`; how many there were.
    pub(crate) fn run(
        self,
        local: SocketAddrV4,
        to: SocketAddrV4,
        stop: &AtomicBool,
    ) -> io::Result<u64> {
        let socket = UdpSocket::bind(local)?;
        match self {
            Self::Blocking => {
                socket.set_read_timeout(Some(LOOK))?;
                one_by_one(&socket, to, stop)
            }
            Self::Spinning => {
                socket.set_nonblocking(true)?;
                one_by_one(&socket, to, stop)
            }
            Self::Many => {
                socket.set_read_timeout(Some(LOOK))?;
                many(&socket, to, stop)
            }
        }
    }
}

/// How a relay that answers waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WaitMode {
    /// One thread each way, both blocked.
    Blocked,
    /// One thread that asks both sockets in turns.
    Spinning,
}

impl WaitMode {
    /// Relays requests from one client to `to` and the answers back, until `stop`.
    pub(crate) fn run(
        self,
        local: SocketAddrV4,
        to: SocketAddrV4,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let near = UdpSocket::bind(local)?;
        let far = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        far.connect(to)?;
        let client = Mutex::new(None);
        let (mut there, mut back) = ([0; DATAGRAM_MAX], [0; DATAGRAM_MAX]);
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(LOOK))?;
            socket.set_nonblocking(self == Self::Spinning)?;
        }
        if self == Self::Spinning {
            while !stop.load(Ordering::Relaxed) {
                request(&near, &far, &client, &mut there)?;
                answer(&near, &far, &client, &mut back)?;
            }
            return Ok(());
        }
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    answer(&near, &far, &client, &mut back)?;
                }
                Ok(())
            });
            while !stop.load(Ordering::Relaxed) {
                request(&near, &far, &client, &mut there)?;
            }
            answers.join().unwrap_or_else(|_| Err(io::Error::other("the way back panicked")))
        })
    }
}

/// Where the client is, once it has asked.
type Client = Mutex<Option<SocketAddr>>;

fn request(
    near: &UdpSocket,
    far: &UdpSocket,
    client: &Client,
    buffer: &mut [u8],
) -> io::Result<()> {
    match near.recv_from(buffer) {
        Ok((len, from)) => {
            *client.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
            match far.send(buffer.get(..len).unwrap_or(&[])) {
                Err(error) if !is_idle(&error) => Err(error),
                _ => Ok(()),
            }
        }
        Err(error) if is_idle(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn answer(near: &UdpSocket, far: &UdpSocket, client: &Client, buffer: &mut [u8]) -> io::Result<()> {
    match far.recv(buffer) {
        Ok(len) => {
            let client = *client.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(client) = client else { return Ok(()) };
            near.send_to(buffer.get(..len).unwrap_or(&[]), client).map(drop)
        }
        Err(error) if is_idle(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether a call only says that nothing is there, that there is no room now, or that the server
/// was not there before.
pub(crate) fn is_idle(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
        || error.kind() == ErrorKind::ConnectionRefused
        || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn one_by_one(socket: &UdpSocket, to: SocketAddrV4, stop: &AtomicBool) -> io::Result<u64> {
    let mut buffer = [0; DATAGRAM_MAX];
    let mut relayed = 0;
    while !stop.load(Ordering::Relaxed) {
        let len = match socket.recv_from(&mut buffer) {
            Ok((len, _)) => len,
            Err(error) if is_idle(&error) => continue,
            Err(error) => return Err(error),
        };
        match socket.send_to(buffer.get(..len).unwrap_or(&[]), to) {
            Ok(_) => relayed += 1,
            Err(error) if is_idle(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(relayed)
}

fn many(socket: &UdpSocket, to: SocketAddrV4, stop: &AtomicBool) -> io::Result<u64> {
    let mut buffers = vec![[0; DATAGRAM_MAX]; AT_ONCE];
    let mut received = MultiHeaders::<SockaddrIn>::preallocate(AT_ONCE, None);
    let mut sent = MultiHeaders::<SockaddrIn>::preallocate(AT_ONCE, None);
    let addresses = [Some(SockaddrIn::from(to)); AT_ONCE];
    let descriptor = socket.as_raw_fd();
    let mut relayed = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_WAITFORONE;
        let lengths: Vec<usize> =
            match recvmmsg(descriptor, &mut received, slices.iter_mut(), flags, None) {
                Ok(messages) => messages.map(|message| message.bytes).collect(),
                Err(error) if is_idle(&error.into()) => continue,
                Err(error) => return Err(error.into()),
            };
        let slices: Vec<[IoSlice<'_>; 1]> = buffers
            .iter()
            .zip(&lengths)
            .map(|(buffer, &len)| [IoSlice::new(buffer.get(..len).unwrap_or(&[]))])
            .collect();
        let addresses = addresses.get(..slices.len()).unwrap_or(&[]);
        match sendmmsg(descriptor, &mut sent, &slices, addresses, [], MsgFlags::empty()) {
            Ok(messages) => relayed += u64::try_from(messages.count()).unwrap_or(0),
            Err(error) if is_idle(&error.into()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(relayed)
}
