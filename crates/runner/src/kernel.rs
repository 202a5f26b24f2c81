//! The kernel's network: its sockets, watched by `mio`.
//!
//! The kernel bounds what waits: connections by the listener's backlog, octets and datagrams by
//! `net.core.rmem_default` and `net.ipv4.tcp_rmem`.

use crate::socket;
use gatewright_descriptors::is_among_last;
use gatewright_edge::{
    Bind, Datagrams, Listener, Network, Poller, READY_MAX, Readiness, Sharing, Stream, Token, Wake,
};
use mio::event::Source;
use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry};
use nix::errno::Errno;
use nix::libc::{MSG_MORE, MSG_NOSIGNAL};
use socket2::{SockRef, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// The token of the waker, which no socket has.
const WAKER: mio::Token = mio::Token(usize::MAX);

/// The kernel's network.
#[derive(Clone, Copy, Debug)]
pub struct KernelNetwork {
    epoch: Instant,
}

impl KernelNetwork {
    /// The kernel's network; its time begins now.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it reads the clock: each is another")]
    pub fn new() -> Self {
        Self { epoch: Instant::now() }
    }
}

impl Network for KernelNetwork {
    type Poller = KernelPoller;

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn poller(&self) -> io::Result<KernelPoller> {
        let poll = Poll::new()?;
        let waker = Arc::new(KernelWaker(mio::Waker::new(poll.registry(), WAKER)?));
        let events = Events::with_capacity(READY_MAX);
        Ok(KernelPoller { epoch: self.epoch, poll, waker, events })
    }

    fn listen(&self, _: &str, address: SocketAddr, sharing: Sharing) -> io::Result<KernelListener> {
        if sharing == Sharing::First {
            socket::alone(address, Type::STREAM)?;
        }
        Ok(KernelListener(TcpListener::from_std(socket::listener(address)?)))
    }

    fn datagrams(&self, _: &str, bind: Bind, sharing: Sharing) -> io::Result<KernelDatagrams> {
        let socket = match bind {
            Bind::Server(address) => {
                if sharing == Sharing::First {
                    socket::alone(address, Type::DGRAM)?;
                }
                socket::server(address)
            }
            Bind::Group(group) => socket::member(group),
            Bind::Client(peer) => socket::client(peer),
        };
        socket.map(KernelDatagrams)
    }

    /// The first address that the system gives for a name, which is the one it prefers (RFC 6724).
    fn resolve(&self, host: &str, port: u16) -> Option<SocketAddr> {
        (host, port).to_socket_addrs().ok().and_then(|mut all| all.next())
    }
}

/// Waits for the kernel's sockets, with `epoll`.
#[derive(Debug)]
pub struct KernelPoller {
    epoch: Instant,
    poll: Poll,
    waker: Arc<KernelWaker>,
    events: Events,
}

/// Wakes a loop by an event of its own.
#[derive(Debug)]
struct KernelWaker(mio::Waker);

impl Wake for KernelWaker {
    fn wake(&self) {
        // It fails only without its descriptor, which lives as long as it.
        let _woken = self.0.wake();
    }
}

/// Registers a source, or gives one that is registered its new token.
fn watch(
    registry: &Registry,
    source: &mut impl Source,
    token: Token,
    interest: Interest,
) -> io::Result<()> {
    match registry.register(source, mio::Token(token.0), interest) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            registry.reregister(source, mio::Token(token.0), interest)
        }
        done => done,
    }
}

impl Poller for KernelPoller {
    type Stream = KernelStream;
    type Listener = KernelListener;
    type Datagrams = KernelDatagrams;

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.waker.clone()
    }

    fn watch_listener(&mut self, listener: &mut KernelListener, token: Token) -> io::Result<()> {
        watch(self.poll.registry(), &mut listener.0, token, Interest::READABLE)
    }

    fn watch_datagrams(&mut self, socket: &KernelDatagrams, token: Token) -> io::Result<()> {
        let descriptor = socket.0.as_raw_fd();
        watch(self.poll.registry(), &mut SourceFd(&descriptor), token, Interest::READABLE)
    }

    fn watch_stream(&mut self, stream: &mut KernelStream, token: Token) -> io::Result<()> {
        watch(self.poll.registry(), &mut stream.0, token, BOTH)
    }

    fn forget_datagrams(&mut self, socket: &KernelDatagrams) {
        let descriptor = socket.0.as_raw_fd();
        // One that is not watched stays so.
        let _gone = self.poll.registry().deregister(&mut SourceFd(&descriptor));
    }

    fn connect(&mut self, to: SocketAddr, token: Token) -> io::Result<KernelStream> {
        let mut stream = KernelStream(TcpStream::connect(to)?);
        stream.0.set_nodelay(true)?;
        self.watch_stream(&mut stream, token)?;
        Ok(stream)
    }

    fn wait(&mut self, ready: &mut Vec<Readiness>, pause: Option<Duration>) -> io::Result<bool> {
        ready.clear();
        self.poll.poll(&mut self.events, pause)?;
        let mut woken = false;
        for event in &self.events {
            if event.token() == WAKER {
                woken = true;
                continue;
            }
            ready.push(Readiness {
                token: Token(event.token().0),
                readable: event.is_readable(),
                writable: event.is_writable(),
                ended: event.is_read_closed(),
                failed: event.is_error(),
            });
        }
        Ok(woken)
    }
}

/// A listener of the kernel.
#[derive(Debug)]
pub struct KernelListener(TcpListener);

impl Listener for KernelListener {
    type Stream = KernelStream;

    fn accept(&mut self) -> io::Result<(KernelStream, SocketAddr)> {
        let (stream, peer) = self.0.accept()?;
        if is_among_last(&stream) {
            // As if there were none left: what serves no peer has the last ones.
            return Err(Errno::EMFILE.into());
        }
        Ok((KernelStream(stream), peer))
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A TCP connection of the kernel. It never waits for Nagle (`TCP_NODELAY`).
#[derive(Debug)]
pub struct KernelStream(TcpStream);

impl Stream for KernelStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }

    fn write(&mut self, octets: &[u8], more: bool) -> io::Result<usize> {
        if more {
            return SockRef::from(&self.0).send_with_flags(octets, MSG_MORE | MSG_NOSIGNAL);
        }
        self.0.write(octets)
    }

    fn flush(&mut self) {
        // It is set already; setting it lets out what is kept back (tcp(7)). A connection that is
        // broken is told of by an event.
        let _out = self.0.set_nodelay(true);
    }

    fn shutdown(&mut self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    fn abort(self) {
        let _set = SockRef::from(&self.0).set_linger(Some(Duration::ZERO));
    }

    fn is_connected(&self) -> bool {
        self.0.peer_addr().is_ok()
    }

    fn take_error(&mut self) -> io::Result<()> {
        self.0.take_error()?.map_or(Ok(()), Err)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A datagram socket of the kernel.
#[derive(Debug)]
pub struct KernelDatagrams(UdpSocket);

impl Datagrams for KernelDatagrams {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.recv_from(buffer)
    }

    fn send(&self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(octets, to).map(drop)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
