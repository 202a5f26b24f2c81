//! Datagram sockets: the kernel's, or those of the gateway's own stack.

use core::time::Duration;
use gatewright_edge::{ReadySet, Wake};
use gatewright_stack::Sockets;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// Pause before a datagram is given to a worker again that does not keep up.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// How often the error queue is looked at where nothing else happens.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// Octets of a quoted datagram that are read: an ICMP message of IPv6 has up to 1280 (RFC 4443 §2.4).
const QUOTED_OCTETS_MAX: usize = 1_280;
/// Octets of control messages: a `sock_extended_err` with the address of the host that reports it.
const CONTROL_OCTETS: usize = 128;
/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6` of Linux's `errqueue.h`.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;

/// A datagram socket.
#[derive(Debug)]
pub(crate) enum DatagramSocket {
    Kernel(UdpSocket),
    Stack(Box<StackSocket>),
}

impl DatagramSocket {
    /// Receives a datagram. Dropping the future loses nothing.
    pub(crate) async fn recv_from(&self, octets: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Kernel(socket) => socket.recv_from(octets).await,
            Self::Stack(socket) => socket.recv_from(octets).await,
        }
    }

    /// Sends a datagram.
    pub(crate) async fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => match socket.send_to(octets, to).await {
                // Perhaps the error of an earlier datagram, after which this one was not sent.
                Err(error) if is_delivery_error(&error) => {
                    socket.send_to(octets, to).await.map(drop)
                }
                sent => sent.map(drop),
            },
            Self::Stack(socket) => socket.send_to(octets, to).await,
        }
    }

    /// Has the kernel report ICMP errors, which [`Self::undelivered`] returns then. It reports those
    /// that quote a datagram from this socket's address and port.
    pub(crate) fn report_errors(&self) {
        let Self::Kernel(socket) = self else { return };
        // A socket of IPv6 that takes IPv4, too, needs both. Without them nothing is reported.
        let _ = setsockopt(socket, Ipv4RecvErr, &true);
        if socket.local_addr().is_ok_and(|address| address.is_ipv6()) {
            let _ = setsockopt(socket, Ipv6RecvErr, &true);
        }
    }

    /// Waits for an ICMP error about a datagram whose receiver is not reached. Dropping the future loses
    /// nothing.
    pub(crate) async fn undelivered(&self) -> UndeliveredDatagram {
        let Self::Kernel(socket) = self else { return core::future::pending().await };
        loop {
            let announced = socket.try_io(Interest::ERROR, || read_error(socket));
            // Not each error is announced: the queue is looked at without that, too.
            match announced.or_else(|_| read_error(socket)) {
                Ok(Some(undelivered)) => return undelivered,
                // It is about something else.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = tokio::time::timeout(LOOKED_AT, socket.ready(Interest::ERROR)).await;
                }
                Err(_) => tokio::time::sleep(TRY_AGAIN).await,
            }
        }
    }

    /// Whether it is one of the gateway's own stack.
    pub(crate) const fn is_of_own_stack(&self) -> bool {
        matches!(self, Self::Stack(_))
    }
}

/// A datagram that did not arrive, as an ICMP error quotes it.
#[derive(Debug)]
pub(crate) struct UndeliveredDatagram {
    /// Its receiver.
    pub(crate) to: SocketAddr,
    /// Its first octets.
    pub(crate) quoted: Vec<u8>,
}

/// Whether an error is one that an ICMP message may have caused.
pub(crate) fn is_delivery_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
    )
}

/// Reads the next error of a socket's error queue (ip(7), `IP_RECVERR`); `None` if it does not say by
/// ICMP that a receiver is not reached.
fn read_error(socket: &UdpSocket) -> io::Result<Option<UndeliveredDatagram>> {
    let mut quoted = vec![0; QUOTED_OCTETS_MAX];
    let mut control = nix::cmsg_space!([u8; CONTROL_OCTETS]);
    let (length, to, is_icmp) = {
        let mut parts = [IoSliceMut::new(&mut quoted)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let descriptor = socket.as_raw_fd();
        let read = recvmsg::<SockaddrStorage>(descriptor, &mut parts, Some(&mut control), flags)?;
        let is_icmp = read.cmsgs()?.any(|message| match message {
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                let errno = i32::try_from(error.ee_errno).map(io::Error::from_raw_os_error);
                matches!(error.ee_origin, ORIGIN_ICMP | ORIGIN_ICMP6)
                    && errno.is_ok_and(|errno| is_delivery_error(&errno))
            }
            _ => false,
        });
        (read.bytes, read.address.and_then(socket_address), is_icmp)
    };
    quoted.truncate(length);
    Ok(to.filter(|_| is_icmp).map(|to| UndeliveredDatagram { to, quoted }))
}

fn socket_address(address: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|it| SocketAddr::V4((*it).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|it| SocketAddr::V6((*it).into())))
}

/// Wakes the task that reads a socket of the stack.
#[derive(Debug, Default)]
struct ReaderTask(Notify);

impl Wake for ReaderTask {
    fn wake(&self) {
        self.0.notify_one();
    }
}

/// A socket of the gateway's own stack.
#[derive(Debug)]
pub(crate) struct StackSocket {
    socket: gatewright_stack::UdpSocket,
    ready: Arc<ReadySet>,
    waiting: Arc<ReaderTask>,
}

impl StackSocket {
    /// Opens a socket at an address of the stack.
    pub(crate) fn bind(sockets: &Sockets, at: SocketAddr) -> io::Result<Self> {
        let socket = sockets.bind(at)?;
        socket.set_nonblocking(true);
        let waiting = Arc::<ReaderTask>::default();
        let wake: Arc<dyn Wake> = Arc::<ReaderTask>::clone(&waiting);
        let ready = ReadySet::new(1, wake);
        let notifier = ready.notifier().ok_or(io::ErrorKind::OutOfMemory)?;
        socket.set_notifier(notifier).map_err(|_| io::ErrorKind::AlreadyExists)?;
        Ok(Self { socket, ready, waiting })
    }

    /// The address that it is bound to.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    async fn recv_from(&self, octets: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            match self.socket.recv_from(octets) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The stack has ended: nothing comes any more.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    core::future::pending::<()>().await;
                }
                received => return received,
            }
            self.waiting.0.notified().await;
            self.ready.take(|_| {});
        }
    }

    async fn send_to(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        loop {
            match self.socket.send_to(octets, to) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                sent => return sent.map(drop),
            }
        }
    }
}
