//! Datagram sockets: the kernel's, or those of the gateway's own stack.

use core::time::Duration;
use gatewright_edge::{ReadySet, Wake};
use gatewright_stack::Sockets;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// Pause before a datagram is given to a worker again that does not keep up.
const TRY_AGAIN: Duration = Duration::from_millis(1);

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
            Self::Kernel(socket) => socket.send_to(octets, to).await.map(drop),
            Self::Stack(socket) => socket.send_to(octets, to).await,
        }
    }

    /// Whether it is one of the gateway's own stack.
    pub(crate) const fn is_of_own_stack(&self) -> bool {
        matches!(self, Self::Stack(_))
    }
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
