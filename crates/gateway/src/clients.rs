//! Clients of the control socket: which of them are served, and which wait.
//!
//! A thread serves each of at most [`SERVED_MAX`] clients; [`WAITING_MAX`] more wait. While some
//! wait, a client is served one request at a time, and one that asks nothing for [`GRACE`] is
//! closed. The next to be served is of the process that is served least, so one process cannot keep
//! out the others. Of a full queue, a client of the process with the most is refused, a silent one
//! first: it is told that the gateway is busy. Streams (followed events, captures, traces) last; they are
//! counted apart, at most [`STREAMS_MAX`].

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
    sys::socket::{getsockopt, sockopt::PeerCredentials},
};
use serde_json::json;
use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::Builder,
    time::{Duration, Instant},
};

/// Maximum clients whose requests are served at once.
pub(crate) const SERVED_MAX: usize = 16;

/// Maximum clients that wait until they are served.
pub(crate) const WAITING_MAX: usize = 64;

/// Maximum clients with a stream.
pub(crate) const STREAMS_MAX: usize = 16;

/// Maximum silence of a client in the middle of a request or an answer.
const CLIENT_WITHIN: Duration = Duration::from_secs(5);

/// The same while other clients wait.
const GRACE: Duration = Duration::from_secs(1);

/// Maximum octets of a request: a description with thousands of routes.
const REQUEST_MAX: usize = 1024 * 1024;

/// Octets that are read at once.
const PIECE: usize = 4096;

/// The requests of a client, cut out of the octets that it sends: one a line.
#[derive(Debug, Default)]
pub struct RequestLines {
    octets: Vec<u8>,
    /// Octets in which there is no end of a line.
    searched: usize,
}

impl RequestLines {
    /// Adds octets that have come.
    pub fn push(&mut self, octets: &[u8]) {
        self.octets.extend_from_slice(octets);
    }

    /// The next whole line, without its end.
    pub fn next_line(&mut self) -> Option<String> {
        let new = self.octets.get(self.searched..).unwrap_or_default();
        let Some(at) = new.iter().position(|octet| *octet == b'\n') else {
            self.searched = self.octets.len();
            return None;
        };
        let rest = self.octets.split_off(self.searched + at + 1);
        let mut line = std::mem::replace(&mut self.octets, rest);
        self.searched = 0;
        line.pop();
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// The octets after the last line, as a line, at the end of the connection.
    pub fn last_line(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.octets);
        self.searched = 0;
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }

    /// Whether a request has begun.
    pub const fn has_begun(&self) -> bool {
        !self.octets.is_empty()
    }

    /// Whether the line that has begun is longer than a request may be.
    pub const fn is_too_long(&self) -> bool {
        self.searched > REQUEST_MAX
    }
}

/// A process that has clients here; 0 is one that this process cannot see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProcessId(pub(crate) i32);

impl ProcessId {
    /// The process at the other end of a stream, as it was when it connected.
    pub(crate) fn of(stream: &UnixStream) -> Self {
        Self(getsockopt(stream, PeerCredentials).map_or(0, |peer| peer.pid()))
    }
}

/// Reads one request of a client and answers it; returns whether the client may ask more.
type Serve = dyn Fn(&mut Client) -> io::Result<bool> + Send + Sync;

/// The clients of one control socket.
#[derive(Clone)]
pub(crate) struct Clients(Arc<Shared>);

struct Shared {
    serve: Box<Serve>,
    state: Mutex<State>,
    /// Readable while a client waits, and after the end of the service.
    wanted: EventFd,
}

#[derive(Default)]
struct State {
    served: Vec<ProcessId>,
    waiting: VecDeque<Client>,
    streams: usize,
    has_ended: bool,
}

/// Numbers of clients.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClientCounts {
    /// Clients that are served.
    pub(crate) served: usize,
    /// Clients that wait.
    pub(crate) waiting: usize,
    /// Clients with a stream.
    pub(crate) streams: usize,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clients").field(&self.counts()).finish()
    }
}

impl Clients {
    /// No clients yet; `serve` reads a request of one and answers it.
    ///
    /// # Errors
    ///
    /// If the system gives no descriptor.
    pub(crate) fn new(
        serve: impl Fn(&mut Client) -> io::Result<bool> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let wanted = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let state = Mutex::default();
        Ok(Self(Arc::new(Shared { serve: Box::new(serve), state, wanted })))
    }

    /// Serves a new client, now or when others have been. Returns the process of which a client is
    /// refused, if too many wait.
    ///
    /// # Errors
    ///
    /// If the system gives no thread; then the client is closed.
    pub(crate) fn admit(
        &self,
        stream: UnixStream,
        process: ProcessId,
    ) -> io::Result<Option<ProcessId>> {
        stream.set_nonblocking(true)?;
        let (clients, lines) = (self.clone(), RequestLines::default());
        self.enqueue(Client { clients, stream, process, lines, phase: Phase::Waiting })
    }

    /// Ends the service: waiting clients are closed, and each client being served gets its answer.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        self.tell_wanted(true);
        drop(state);
        drop(waiting);
    }

    /// How many there are.
    pub(crate) fn counts(&self) -> ClientCounts {
        let state = self.lock();
        let (served, waiting) = (state.served.len(), state.waiting.len());
        ClientCounts { served, waiting, streams: state.streams }
    }

    fn enqueue(&self, client: Client) -> io::Result<Option<ProcessId>> {
        let mut state = self.lock();
        if state.has_ended {
            drop(state);
            return Ok(None);
        }
        state.waiting.push_back(client);
        if state.served.len() < SERVED_MAX {
            let next = state.next();
            drop(state);
            return next.map_or(Ok(()), |next| self.spawn(next)).map(|()| None);
        }
        self.tell_wanted(true);
        let refused = state.give_way();
        drop(state);
        Ok(refused.map(|client| {
            client.refuse("too many clients wait");
            client.process
        }))
    }

    /// Serves a client, and the clients that wait after it, on a new thread.
    fn spawn(&self, client: Client) -> io::Result<()> {
        let clients = self.clone();
        let thread = Builder::new().name("client".to_owned());
        thread.spawn(move || clients.run(client)).map(drop)
    }

    fn run(&self, mut client: Client) {
        loop {
            // A client that goes away in the middle has its own reasons.
            let may_ask_more = (self.0.serve)(&mut client).unwrap_or(false);
            let next = match (may_ask_more, client.phase) {
                (true, Phase::Served) => Some(self.rotate(client)),
                // Its place among the served is another's by now, who has a thread.
                (true, _) => {
                    client.leave();
                    let _no_thread = self.enqueue(client);
                    None
                }
                (false, _) => {
                    drop(client);
                    self.take_next()
                }
            };
            let Some(next) = next else { return };
            client = next;
        }
    }

    /// The client that waits next, in the place of one that is served; the same if none waits.
    fn rotate(&self, mut client: Client) -> Client {
        let mut state = self.lock();
        state.leave(client.process);
        let Some(next) = state.next() else {
            state.served.push(client.process);
            return client;
        };
        client.phase = Phase::Waiting;
        state.waiting.push_back(client);
        next
    }

    /// The client that waits next, if there is a place for it.
    fn take_next(&self) -> Option<Client> {
        let mut state = self.lock();
        if state.served.len() >= SERVED_MAX {
            return None;
        }
        let next = state.next();
        self.tell_wanted(state.has_ended || !state.waiting.is_empty());
        next
    }

    /// Time limit for a request or the rest of an answer, and whether other clients wait.
    fn patience(&self, flags: PollFlags) -> (Duration, bool) {
        let state = self.lock();
        let others = !state.waiting.is_empty();
        let patience = match (state.has_ended, others) {
            (true, _) if flags == PollFlags::POLLIN => Duration::ZERO,
            (true, _) | (_, true) => GRACE,
            (false, false) => CLIENT_WITHIN,
        };
        (patience, others || state.has_ended)
    }

    fn tell_wanted(&self, is_wanted: bool) {
        // Neither fails but by being so already.
        let wanted = &self.0.wanted;
        let _told = if is_wanted { wanted.write(1).map(drop) } else { wanted.read().map(drop) };
    }

    /// A poisoned lock is safe here: the state stays consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the client that waits next: of the process that is served least, the first that has
    /// asked something, or else the first.
    fn next(&mut self) -> Option<Client> {
        let served = |client: &Client| {
            self.served.iter().filter(|process| **process == client.process).count()
        };
        let order = self.waiting.iter().zip(self.silent()).enumerate();
        let (at, _) = order.min_by_key(|(at, (client, silent))| (served(client), *silent, *at))?;
        let mut client = self.waiting.remove(at)?;
        client.phase = Phase::Served;
        self.served.push(client.process);
        Some(client)
    }

    /// Removes a client if too many wait: of the process with the most, the oldest without a
    /// request, or else the newest. (A process in another container is no other one here, and a
    /// client that has just connected has not asked yet.)
    fn give_way(&mut self) -> Option<Client> {
        if self.waiting.len() <= WAITING_MAX {
            return None;
        }
        let of = |process| self.waiting.iter().filter(|client| client.process == process).count();
        let order = self.waiting.iter().zip(self.silent()).enumerate();
        let (at, _) = order.max_by_key(|(at, (client, silent))| {
            let age = if *silent { usize::MAX - at } else { *at };
            (of(client.process), *silent, age)
        })?;
        self.waiting.remove(at)
    }

    /// Waiting clients without a request so far, in order.
    fn silent(&self) -> Vec<bool> {
        let mut fds: Vec<_> = (self.waiting.iter())
            .map(|client| PollFd::new(client.stream.as_fd(), PollFlags::POLLIN))
            .collect();
        // Without an answer all are as silent as each other.
        let _interrupted = poll(&mut fds, PollTimeout::ZERO);
        let asks = fds.iter().map(|fd| fd.any().unwrap_or(false));
        let asks = asks.zip(&self.waiting).map(|(asks, client)| asks || client.lines.has_begun());
        asks.map(|asks| !asks).collect()
    }

    /// Removes a served client of this process from the counts.
    fn leave(&mut self, process: ProcessId) {
        if let Some(at) = self.served.iter().position(|served| *served == process) {
            self.served.swap_remove(at);
        }
    }
}

/// The count that a client belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Waiting,
    Served,
    Stream,
}

/// A client; its connection is closed when this is dropped.
pub(crate) struct Client {
    clients: Clients,
    stream: UnixStream,
    process: ProcessId,
    lines: RequestLines,
    phase: Phase,
}

impl Client {
    /// Reads the next request. None is left if the client closes, is silent for too long, or gives
    /// way to others.
    ///
    /// # Errors
    ///
    /// The system's, if the connection breaks.
    pub(crate) fn request(&mut self) -> io::Result<Option<String>> {
        let began = Instant::now();
        let mut piece = [0; PIECE];
        loop {
            if let Some(line) = self.lines.next_line() {
                return Ok(Some(line));
            }
            if self.lines.is_too_long() {
                self.refuse("a request is longer than 1 MiB");
                return Ok(None);
            }
            match (&self.stream).read(&mut piece) {
                Ok(0) => return Ok(self.lines.last_line()),
                Ok(read) => self.lines.push(piece.get(..read).unwrap_or_default()),
                Err(error) if is_passing(&error) => {
                    if !self.is_ready(PollFlags::POLLIN, began) {
                        self.refuse_for_others();
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a line.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the client does not read it; else the system's, if the connection breaks.
    pub(crate) fn answer(&self, line: &serde_json::Value) -> io::Result<()> {
        let text = format!("{line}\n");
        let mut rest = text.as_bytes();
        let mut began = Instant::now();
        while !rest.is_empty() {
            match (&self.stream).write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    began = Instant::now();
                }
                Err(error) if is_passing(&error) => {
                    if !self.is_ready(PollFlags::POLLOUT, began) {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts this client among those with a stream, and serves another in its place.
    ///
    /// # Errors
    ///
    /// In words, if too many have streams.
    pub(crate) fn begin_stream(&mut self) -> Result<(), String> {
        let mut state = self.clients.lock();
        if state.streams >= STREAMS_MAX {
            let text = "clients follow events, capture or trace already; end one of them";
            return Err(format!("{STREAMS_MAX} {text}"));
        }
        state.streams += 1;
        state.leave(self.process);
        self.phase = Phase::Stream;
        let next = state.next();
        self.clients.tell_wanted(state.has_ended || !state.waiting.is_empty());
        drop(state);
        if let Some(next) = next {
            let _no_thread = self.clients.spawn(next);
        }
        Ok(())
    }

    /// Its connection for a stream, which blocks; a write takes a limited time.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn stream(&self) -> io::Result<&UnixStream> {
        self.stream.set_nonblocking(false)?;
        self.stream.set_write_timeout(Some(CLIENT_WITHIN))?;
        Ok(&self.stream)
    }

    /// Whether the client has closed the connection. One that only sends nothing more still awaits its
    /// answer.
    pub(crate) fn is_gone(&self) -> bool {
        // Errors and the end of both directions are told unasked.
        let mut fds = [PollFd::new(self.stream.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Answers the client with the reason for the refusal. One that has no room for that is closed
    /// all the same.
    fn refuse(&self, why: &str) {
        let line = json!({ "error": format!("the gateway is busy: {why}"), "busy": true });
        let _full = (&self.stream).write(format!("{line}\n").as_bytes());
    }

    /// The same if it is closed only because others wait.
    fn refuse_for_others(&self) {
        if self.clients.counts().waiting > 0 {
            self.refuse("other clients wait, and this one asked nothing");
        }
    }

    /// Whether the connection is ready within the time that a client has from `began` on.
    fn is_ready(&self, flags: PollFlags, began: Instant) -> bool {
        loop {
            let (patience, is_wanted) = self.clients.patience(flags);
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return false;
            }
            // Once others are known to wait, only the connection is of interest.
            let news = if is_wanted { PollFlags::empty() } else { PollFlags::POLLIN };
            let mut fds = [
                PollFd::new(self.stream.as_fd(), flags),
                PollFd::new(self.clients.0.wanted.as_fd(), news),
            ];
            let left = PollTimeout::try_from(left + POLL_UNIT).unwrap_or(PollTimeout::MAX);
            // An error is a signal, and a signal is a reason to look again.
            let _interrupted = poll(&mut fds, left);
            let [connection, _] = fds;
            if connection.any().unwrap_or(false) {
                return true;
            }
        }
    }

    /// Removes it from its count.
    fn leave(&mut self) {
        let mut state = self.clients.lock();
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Waiting => {}
            Phase::Served => state.leave(self.process),
            Phase::Stream => state.streams = state.streams.saturating_sub(1),
        }
    }
}

/// A poll's time is in whole milliseconds, and the rest of one is not to be lost.
const POLL_UNIT: Duration = Duration::from_millis(1);

impl Drop for Client {
    fn drop(&mut self) {
        if self.phase != Phase::Waiting {
            self.leave();
        }
    }
}

/// Whether another attempt may succeed.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader},
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
        thread,
    };

    const GREEDY: ProcessId = ProcessId(1);
    const POLITE: ProcessId = ProcessId(2);

    /// Answers each request with itself; `stream` becomes one.
    fn echo() -> Clients {
        Clients::new(|client| {
            let Some(line) = client.request()? else { return Ok(false) };
            if line == "stream" {
                let begun = client.begin_stream();
                client.answer(&json!(begun))?;
                let mut stream = client.stream()?;
                return stream.read(&mut [0]).map(|_| false);
            }
            client.answer(&json!(line))?;
            Ok(true)
        })
        .unwrap()
    }

    fn connect(clients: &Clients, process: ProcessId) -> (UnixStream, Option<ProcessId>) {
        let (near, far) = UnixStream::pair().unwrap();
        let refused = clients.admit(far, process).unwrap();
        near.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        (near, refused)
    }

    /// The answer to a request; what a client that is closed is told, which may be nothing.
    fn ask(mut stream: &UnixStream, text: &str) -> String {
        let _closed = writeln!(stream, "{text}");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    /// As many idle clients as are served, and more than may wait: a polite client beside them is
    /// answered, and each idle one is closed, or knows that the gateway is busy.
    #[test]
    fn idle_clients_give_way() {
        for count in [SERVED_MAX, 200] {
            let clients = echo();
            let idle: Vec<_> = (0..count).map(|_| connect(&clients, GREEDY)).collect();
            let (polite, refused) = connect(&clients, POLITE);
            assert_ne!(refused, Some(POLITE));
            assert_eq!(ask(&polite, "here"), "\"here\"\n");
            clients.end();
            let mut busy = 0;
            for (mut stream, _) in idle {
                let mut told = String::new();
                stream.read_to_string(&mut told).unwrap();
                busy += usize::from(told.contains("\"busy\":true"));
            }
            // The polite one waited for one of them at least.
            assert!((1..=count).contains(&busy), "{busy}");
        }
    }

    /// Clients of one process that ask all the time are served in turn with that of another.
    #[test]
    fn a_greedy_process_and_a_polite_one_are_served_in_turn() {
        let clients = echo();
        let (over, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut greedy = Vec::new();
        for _ in 0..SERVED_MAX + WAITING_MAX {
            let (stream, refused) = connect(&clients, GREEDY);
            assert_eq!(refused, None);
            let (over, served) = (Arc::clone(&over), Arc::clone(&served));
            greedy.push(thread::spawn(move || {
                let mut is_first = true;
                // One of them gives way to each polite one that comes.
                while !over.load(Ordering::Relaxed) && ask(&stream, "more") == "\"more\"\n" {
                    served.fetch_add(usize::from(is_first), Ordering::Relaxed);
                    is_first = false;
                }
            }));
        }
        for _ in 0..20 {
            let (polite, refused) = connect(&clients, POLITE);
            assert_ne!(refused, Some(POLITE));
            assert_eq!(ask(&polite, "once"), "\"once\"\n");
        }
        // More of the greedy ones have their turn than can be served at once.
        while served.load(Ordering::Relaxed) <= SERVED_MAX {
            thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        for one in greedy {
            one.join().unwrap();
        }
    }

    #[test]
    fn streams_are_counted_apart() {
        let clients = echo();
        let mut streams: Vec<_> = (0..STREAMS_MAX).map(|_| connect(&clients, GREEDY).0).collect();
        for stream in &streams {
            assert_eq!(ask(stream, "stream"), "{\"Ok\":null}\n");
        }
        let (more, _) = connect(&clients, POLITE);
        assert!(ask(&more, "stream").contains("16 clients follow"), "one too many");
        let (polite, _) = connect(&clients, POLITE);
        assert_eq!(ask(&polite, "here"), "\"here\"\n");
        drop(streams.pop());
        while !ask(&connect(&clients, POLITE).0, "stream").contains("Ok") {}
    }

    #[test]
    fn a_client_without_end_and_one_after_the_end_are_closed() {
        let clients = echo();
        let (mut long, _) = connect(&clients, GREEDY);
        let octets = vec![b'x'; REQUEST_MAX + 2 * PIECE];
        let _closed = long.write_all(&octets);
        let mut told = String::new();
        BufReader::new(&long).read_line(&mut told).unwrap();
        assert!(told.contains("longer than 1 MiB"), "{told}");
        let (idle, _) = connect(&clients, GREEDY);
        clients.end();
        assert_eq!((&idle).read(&mut [0]).unwrap(), 0);
        let (mut late, _) = connect(&clients, GREEDY);
        assert_eq!(late.read(&mut [0]).unwrap(), 0);
    }

    /// Whatever the cuts between octets, the requests are the same.
    #[test]
    fn requests_are_lines_however_they_are_cut() {
        let octets = b"{\"do\":\"status\"}\n\n{\"do\"\n\xff\nlast";
        let lines = |pieces: usize| {
            let (mut lines, mut found) = (RequestLines::default(), Vec::new());
            for piece in octets.chunks(pieces) {
                lines.push(piece);
                found.extend(std::iter::from_fn(|| lines.next_line()));
            }
            found.extend(lines.last_line());
            found
        };
        assert_eq!(lines(99), ["{\"do\":\"status\"}", "", "{\"do\"", "\u{fffd}", "last"]);
        for pieces in 1..octets.len() {
            assert_eq!(lines(pieces), lines(99), "{pieces}");
        }
    }
}
