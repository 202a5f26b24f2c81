//! Checks an implementation against the contract of this crate.
//!
//! Each function runs one part of the contract over an implementation, and returns the first
//! violation. Tests of an implementation call them; nothing here panics or depends on timing.

use crate::{Bind, Datagrams, Listener, Network, Poller, Readiness, Sharing, Stream, Token};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::time::Duration;

/// How often a check waits for something that must come.
const ROUNDS: usize = 100;
/// How long each of these waits takes at most.
const PAUSE: Duration = Duration::from_millis(100);
/// The role of every socket of a check.
const ROLE: &str = "conformance";
/// Datagrams that a check sends at once.
const BURST: u8 = 8;
/// Octets of a datagram that a kernel's socket receives as a peer.
const PEER_DATAGRAM_MAX: usize = 2_048;
/// Octets written to a stream until it must be full.
const STREAM_OCTETS_MAX: usize = 64 << 20;

/// A violation of the contract by an implementation.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

impl From<io::Error> for Violation {
    fn from(error: io::Error) -> Self {
        Self(format!("an error that nothing explains: {error}"))
    }
}

/// The other end of the datagrams of a check, at another host or in another process.
pub trait Peer {
    /// Sends a datagram.
    ///
    /// # Errors
    ///
    /// Why it did not leave.
    fn send(&mut self, octets: &[u8], to: SocketAddr) -> io::Result<()>;

    /// Waits for a datagram, for seconds at most.
    ///
    /// # Errors
    ///
    /// Why none came.
    fn receive(&mut self) -> io::Result<(Vec<u8>, SocketAddr)>;

    /// Its own address.
    ///
    /// # Errors
    ///
    /// As the system.
    fn address(&self) -> io::Result<SocketAddr>;
}

/// A socket of the kernel whose read timeout the test has set.
impl Peer for UdpSocket {
    fn send(&mut self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        self.send_to(octets, to).map(drop)
    }

    fn receive(&mut self) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut octets = vec![0; PEER_DATAGRAM_MAX];
        let (length, from) = self.recv_from(&mut octets)?;
        octets.truncate(length);
        Ok((octets, from))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// One loop of a check.
struct Loop<P> {
    poller: P,
    ready: Vec<Readiness>,
}

impl<P: Poller> Loop<P> {
    fn of<N: Network<Poller = P>>(network: &N) -> Result<Self, Violation> {
        Ok(Self { poller: network.poller()?, ready: Vec::new() })
    }

    /// Waits until `token` is reported with `wanted`.
    fn wait_for(
        &mut self,
        token: Token,
        what: &str,
        wanted: impl Fn(&Readiness) -> bool,
    ) -> Result<(), Violation> {
        for _ in 0..ROUNDS {
            if let Err(error) = self.poller.wait(&mut self.ready, Some(PAUSE))
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(error.into());
            }
            if self.ready.iter().any(|it| it.token == token && wanted(it)) {
                return Ok(());
            }
        }
        Err(Violation(format!("{what} is not reported")))
    }

    /// Fails if `token` is reported within a short wait.
    fn expect_silence(&mut self, token: Token, what: &str) -> Result<(), Violation> {
        self.poller.wait(&mut self.ready, Some(PAUSE))?;
        let told = self.ready.iter().any(|it| it.token == token);
        check(!told, what)
    }
}

fn check(holds: bool, what: &str) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(what.to_owned())) }
}

fn would_block<T>(outcome: io::Result<T>, what: &str) -> Result<(), Violation> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(Violation(format!("{what}: {error} instead of WouldBlock"))),
        Ok(_) => Err(Violation(format!("{what}: something instead of WouldBlock"))),
    }
}

/// Checks time, waiting and waking.
///
/// # Errors
///
/// The first violation.
pub fn waiting<N: Network>(network: &N) -> Result<(), Violation> {
    let mut own = Loop::of(network)?;
    let before = own.poller.now();
    let woken = own.poller.wait(&mut own.ready, Some(Duration::ZERO))?;
    check(!woken && own.ready.is_empty(), "a loop without sockets that nobody woke reports")?;
    let waker = own.poller.waker();
    waker.wake();
    waker.wake();
    check(own.poller.wait(&mut own.ready, None)?, "a wake before a wait does not end it")?;
    let woken = own.poller.wait(&mut own.ready, Some(Duration::ZERO))?;
    check(!woken, "two wakes before a wait do not count as one")?;
    let due = own.poller.now() + PAUSE;
    let mut waits = 0;
    while own.poller.now() < due && waits < ROUNDS {
        let rest = due.saturating_sub(own.poller.now());
        own.poller.wait(&mut own.ready, Some(rest))?;
        waits += 1;
    }
    check(own.poller.now() >= due, "time does not pass while a loop waits")?;
    check(own.poller.now() >= before, "time goes back")
}

/// Checks a datagram socket at `address`, whose port may be 0, against `peer`.
///
/// # Errors
///
/// The first violation.
pub fn datagrams<N: Network>(
    network: &N,
    address: SocketAddr,
    peer: &mut dyn Peer,
) -> Result<(), Violation> {
    let (here, there) = (Token(5), Token(77));
    let mut own = Loop::of(network)?;
    let socket = network.datagrams(ROLE, Bind::Server(address), Sharing::First)?;
    let at = socket.local_address()?;
    check(at.port() != 0, "a bound socket has no port")?;
    own.poller.watch_datagrams(&socket, here)?;
    let mut buffer = [0; 64];
    would_block(socket.receive(&mut buffer), "a new socket")?;

    peer.send(b"one", at)?;
    own.wait_for(here, "a datagram", |it| it.readable)?;
    let (length, from) = socket.receive(&mut buffer)?;
    check(buffer.get(..length) == Some(b"one".as_slice()), "a datagram has other octets")?;
    check(from == peer.address()?, "a datagram has another sender")?;
    would_block(socket.receive(&mut buffer), "an emptied socket")?;

    for number in 0..BURST {
        peer.send(&[number; 9], at)?;
    }
    let mut count = 0;
    while count < BURST {
        own.wait_for(here, "a burst", |it| it.readable)?;
        // Truncated to the buffer, and the rest of that datagram is gone.
        let mut short = [0; 4];
        while let Ok((length, _)) = socket.receive(&mut short) {
            check(length == 4 && short == [count; 4], "a burst is reordered or not cut")?;
            count += 1;
        }
    }
    socket.send(b"answer", peer.address()?)?;
    check(peer.receive()? == (b"answer".to_vec(), at), "an answer is another or from elsewhere")?;

    own.poller.watch_datagrams(&socket, there)?;
    would_block(socket.receive(&mut buffer), "a socket under another token")?;
    peer.send(b"two", at)?;
    own.wait_for(there, "a datagram under the new token", |it| it.readable)?;
    socket.receive(&mut buffer)?;
    would_block(socket.receive(&mut buffer), "a socket read under another token")?;
    own.poller.forget_datagrams(&socket);
    peer.send(b"three", at)?;
    own.expect_silence(there, "a socket that is watched no more is reported")
}

/// Checks streams between a listener at `address`, whose port may be 0, and a connection to it in
/// the same loop.
///
/// # Errors
///
/// The first violation.
pub fn streams<N: Network>(network: &N, address: SocketAddr) -> Result<(), Violation> {
    let (listening, near, far) = (Token(1), Token(2), Token(3));
    let mut own = Loop::of(network)?;
    let mut listener = network.listen(ROLE, address, Sharing::First)?;
    own.poller.watch_listener(&mut listener, listening)?;
    would_block(listener.accept(), "a new listener")?;
    let at = listener.local_address()?;

    let mut client = own.poller.connect(at, near)?;
    own.wait_for(near, "an established connection", |it| it.writable)?;
    client.take_error()?;
    check(client.is_connected(), "an established connection is not connected")?;
    let mut server = match listener.accept() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            own.wait_for(listening, "a connection", |it| it.readable)?;
            listener.accept()?.0
        }
        other => other?.0,
    };
    would_block(listener.accept(), "an emptied listener")?;
    let mut buffer = [0; 64];
    would_block(server.read(&mut buffer), "a stream without octets")?;
    client.write(b"early", false)?;
    own.poller.wait(&mut own.ready, Some(PAUSE))?;
    // Octets that came before are reported, too.
    own.poller.watch_stream(&mut server, far)?;
    read_all(&mut own, (&mut server, far), b"early")?;
    client.write(b"begin ", true)?;
    client.write(b"end", false)?;
    read_all(&mut own, (&mut server, far), b"begin end")?;

    fill_and_empty(&mut own, (&mut client, near), &mut server)?;
    client.shutdown(Shutdown::Write)?;
    own.wait_for(far, "an end", |it| it.readable || it.ended)?;
    check(server.read(&mut buffer)? == 0, "an end is not read as one")?;
    server.abort();
    own.wait_for(near, "an abort", |it| it.readable || it.failed || it.ended)?;
    check(!matches!(client.read(&mut buffer), Ok(0)), "an abort is read as an end")
}

/// Waits for exactly these octets.
fn read_all<P: Poller>(
    own: &mut Loop<P>,
    (server, far): (&mut P::Stream, Token),
    expected: &[u8],
) -> Result<(), Violation> {
    let (mut octets, mut buffer) = (Vec::new(), [0; 64]);
    while octets.len() < expected.len() {
        own.wait_for(far, "octets", |it| it.readable)?;
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            octets.extend_from_slice(buffer.get(..length).unwrap_or_default());
        }
    }
    check(octets == expected, "octets change on their way")
}

/// Writes until the stream is full, then reads everything at the other end.
fn fill_and_empty<P: Poller>(
    own: &mut Loop<P>,
    (client, near): (&mut P::Stream, Token),
    server: &mut P::Stream,
) -> Result<(), Violation> {
    let (block, mut buffer) = (vec![7; 16 << 10], vec![0; 64 << 10]);
    let (mut sent, mut read) = (0, 0);
    while sent < STREAM_OCTETS_MAX {
        match client.write(&block, false) {
            Ok(length) => {
                sent += length;
                if length < block.len() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    check(sent < STREAM_OCTETS_MAX, "a stream takes octets without bound")?;
    let mut reported = false;
    for _ in 0..ROUNDS {
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            read += length;
        }
        if read >= sent && reported {
            return Ok(());
        }
        own.poller.wait(&mut own.ready, Some(PAUSE))?;
        reported |= own.ready.iter().any(|it| it.token == near && it.writable);
    }
    check(read == sent, "octets that a stream took do not arrive")?;
    check(reported, "room in a full stream is not reported")
}

/// Checks that a connection to `address`, which has no listener, fails.
///
/// # Errors
///
/// The first violation.
pub fn refusal<N: Network>(network: &N, address: SocketAddr) -> Result<(), Violation> {
    let token = Token(9);
    let mut own = Loop::of(network)?;
    let Ok(mut client) = own.poller.connect(address, token) else { return Ok(()) };
    own.wait_for(token, "a refused connection", |it| it.writable || it.failed)?;
    let refused = client.take_error().is_err();
    check(refused && !client.is_connected(), "a refused connection has no error")
}
