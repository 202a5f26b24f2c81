//! A CSE above that answers 2001 to everything and stores nothing: the least that a gateway can have
//! above it. Its processor time is told.

use crate::process::text;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks whether it is to end.
const LOOK_EVERY: u16 = 50;
/// Octets that one read takes at most.
const READ_OCTETS: usize = 64 << 10;
/// How each request is answered.
const ANSWER: &[u8] =
    b"HTTP/1.1 201 Created\r\nX-M2M-RSC: 2001\r\nX-M2M-RVI: 4\r\nContent-Length: 0\r\n\r\n";

/// What it has counted.
#[derive(Debug, Default)]
struct Counts {
    ends: AtomicBool,
    answered: AtomicU64,
    /// Microseconds of processor time.
    spent: AtomicU64,
    /// When the first and the last request came.
    span: Mutex<Option<(Instant, Instant)>>,
}

/// The running sink; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Starts it on the loopback.
    pub(crate) fn start() -> Result<Self, String> {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// Starts it at a port of an address of this host.
    pub(crate) fn start_at(ip: Ipv4Addr) -> Result<Self, String> {
        let listener = TcpListener::bind((ip, 0)).map_err(text)?;
        listener.set_nonblocking(true).map_err(text)?;
        let address = listener.local_addr().map_err(text)?;
        let counts = Arc::new(Counts::default());
        let theirs = Arc::clone(&counts);
        let thread = Some(std::thread::spawn(move || serve(&listener, &theirs)));
        Ok(Self { address, counts, thread })
    }

    /// Requests answered so far, and the processor time for them.
    pub(crate) fn answered(&self) -> (u64, Duration) {
        let spent = self.counts.spent.load(Ordering::Relaxed);
        (self.counts.answered.load(Ordering::Relaxed), Duration::from_micros(spent))
    }

    /// From the first request to the last one so far.
    pub(crate) fn span(&self) -> Option<Duration> {
        let span = *self.counts.span.lock().unwrap_or_else(PoisonError::into_inner);
        span.map(|(first, last)| last.saturating_duration_since(first))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.counts.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct SinkConnection {
    stream: TcpStream,
    input: Vec<u8>,
}

fn serve(listener: &TcpListener, counts: &Counts) {
    let mut peers: Vec<SinkConnection> = Vec::new();
    while !counts.ends.load(Ordering::Relaxed) {
        let ready = {
            let mut fds = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            fds.extend(
                peers.iter().map(|peer| PollFd::new(peer.stream.as_fd(), PollFlags::POLLIN)),
            );
            if poll(&mut fds, PollTimeout::from(LOOK_EVERY)).is_err() {
                return;
            }
            let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
            fds.iter().map(is_ready).collect::<Vec<_>>()
        };
        let mut answered = 0;
        let mut flags = ready.iter().copied();
        let accepts = flags.next().unwrap_or(false);
        peers.retain_mut(|peer| {
            if !flags.next().unwrap_or(false) {
                return true;
            }
            match peer.turn() {
                Ok(count) => {
                    answered += count;
                    true
                }
                Err(()) => false,
            }
        });
        if accepts && let Ok((stream, _)) = listener.accept() {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_nonblocking(true);
            peers.push(SinkConnection { stream, input: Vec::new() });
        }
        if answered > 0 {
            let now = Instant::now();
            let mut span = counts.span.lock().unwrap_or_else(PoisonError::into_inner);
            *span = Some(span.map_or((now, now), |(first, _)| (first, now)));
            drop(span);
            counts.answered.fetch_add(answered, Ordering::Relaxed);
        }
        if let Ok(spent) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
            let micros = Duration::from(spent).as_micros();
            counts.spent.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }
}

impl SinkConnection {
    /// Reads what is there and answers every whole request; how many.
    fn turn(&mut self) -> Result<u64, ()> {
        let have = self.input.len();
        self.input.resize(have + READ_OCTETS, 0);
        let read = match self.stream.read(self.input.get_mut(have..).unwrap_or_default()) {
            Ok(0) => return Err(()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Err(()),
        };
        self.input.truncate(have + read);
        let (mut taken, mut count) = (0, 0);
        while let Some(length) = whole_request(self.input.get(taken..).unwrap_or_default()) {
            taken += length;
            count += 1;
        }
        self.input.drain(..taken);
        let answers = ANSWER.repeat(usize::try_from(count).unwrap_or(0));
        // Some kilobytes, which the kernel takes at once.
        self.stream.write_all(&answers).map_err(|_| ())?;
        Ok(count)
    }
}

/// Octets of the request at the front, if it is whole.
fn whole_request(octets: &[u8]) -> Option<usize> {
    let head = octets.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut length = 0;
    for line in octets.get(..head)?.split(|&octet| octet == b'\n') {
        let Some(colon) = line.iter().position(|&octet| octet == b':') else { continue };
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?.trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = std::str::from_utf8(value).ok()?.parse().ok()?;
        }
    }
    (octets.len() >= head + length).then_some(head + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that come in one piece are answered each.
    #[test]
    fn pipelined_requests_are_all_answered() {
        let sink = Sink::start().unwrap();
        let mut stream = TcpStream::connect(sink.address).unwrap();
        let one = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(&one.repeat(3)).unwrap();
        let mut answers = vec![0; ANSWER.len() * 3];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(answers, ANSWER.repeat(3));
        assert_eq!(whole_request(&one[..one.len() - 1]), None);
    }
}
