//! The load: requests over connections that are kept, from one thread, one outstanding on each.

use crate::process::text;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Octets of content in each instance.
const CONTENT_OCTETS: usize = 300;
/// An answer that has not come by then does not come.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Stands for the request's number, in its identifier, its content and its path: so many digits are
/// written over it each time.
const ID: &str = "0000000000000000";
/// The originator that may do everything, at every CSE here.
const ORIGINATOR: &str = "CAdmin";
/// A container below the CSEBase in which the AE `Cbed` may create by a policy.
pub(super) const GUARDED: &str = "guarded";
/// An originator that no policy names.
const FOREIGN: &str = "Cforeign";
/// A container below the CSEBase without a bound that is met, for instances with names.
pub(super) const NAMED: &str = "named";
/// Instances that a container keeps: its `mni`.
pub(super) const KEPT: usize = 1000;
/// Octets that one read takes at most.
const READ_OCTETS: usize = 16 << 10;

/// What is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// A contentInstance is created, and not given back.
    Create,
    /// The same in the container that is subscribed to.
    CreateWatched,
    /// The same in [`GUARDED`], as an AE.
    CreateGuarded,
    /// The same in [`NAMED`], each under a name of its own.
    CreateNamed,
    /// The latest is retrieved.
    Retrieve,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct LoadResult {
    /// Good answers.
    pub(super) answered: f64,
    /// Answers that were none.
    pub(super) refused: f64,
    pub(super) elapsed: Duration,
    /// Processor time of this side.
    pub(super) spent: Duration,
    /// Numbers of the requests with a good answer, also of those that were answered when the time
    /// was over.
    pub(super) numbers: Vec<u64>,
}

impl LoadResult {
    pub(super) fn per_second(&self) -> f64 {
        self.answered / self.elapsed.as_secs_f64()
    }
}

/// Asks over so many connections for so long.
///
/// Fails unless every request is answered.
pub(super) fn run(
    address: SocketAddr,
    what: What,
    connections: usize,
    duration: Duration,
) -> Result<LoadResult, String> {
    let mut load = Load::begin(address, what, connections)?;
    let spent = clock(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    let start = Instant::now();
    load.ask_all()?;
    while start.elapsed() < duration {
        load.turn()?;
    }
    let elapsed = start.elapsed();
    let spent = clock(ClockId::CLOCK_THREAD_CPUTIME_ID)?.saturating_sub(spent);
    let answered = load.numbers.len();
    load.settle()?;
    let count = |count| u32::try_from(count).map(f64::from).map_err(text);
    let Load { numbers, refused, .. } = load;
    Ok(LoadResult { answered: count(answered)?, refused: count(refused)?, elapsed, spent, numbers })
}

/// Asks until the CSE is gone; numbers of the requests that it answered well until then.
pub(super) fn until_gone(
    address: SocketAddr,
    what: What,
    connections: usize,
) -> Result<Vec<u64>, String> {
    let mut load = Load::begin(address, what, connections)?;
    // A connection that breaks is its end.
    let mut turned = load.ask_all();
    while turned.is_ok() {
        turned = load.turn();
    }
    if load.refused > 0 {
        return Err(format!("{} requests refused", load.refused));
    }
    Ok(load.numbers)
}

/// Connections with a request under way on each.
struct Load {
    connections: Vec<LoadConnection>,
    numbers: Vec<u64>,
    refused: usize,
}

impl Load {
    fn begin(address: SocketAddr, what: What, connections: usize) -> Result<Self, String> {
        let open = |_| LoadConnection::open(address, what);
        let connections = (0..connections).map(open).collect::<Result<_, String>>()?;
        Ok(Self { connections, numbers: Vec::new(), refused: 0 })
    }

    fn ask_all(&mut self) -> Result<(), String> {
        self.connections.iter_mut().try_for_each(LoadConnection::ask)
    }

    /// Takes what has come, and asks again where something was answered.
    fn turn(&mut self) -> Result<(), String> {
        for at in ready(&self.connections)? {
            let Some(connection) = self.connections.get_mut(at) else { continue };
            let Some(good) = connection.read()? else { continue };
            if good {
                self.numbers.push(connection.number);
            } else {
                self.refused += 1;
            }
            connection.ask()?;
        }
        Ok(())
    }

    /// Waits for what is under way.
    fn settle(&mut self) -> Result<(), String> {
        for connection in &mut self.connections {
            let good = loop {
                if let Some(good) = connection.read()? {
                    break good;
                }
                ready(std::slice::from_ref(connection))?;
            };
            if good {
                self.numbers.push(connection.number);
            } else {
                self.refused += 1;
            }
        }
        Ok(())
    }
}

/// A number that no request of this process has had: a repeated identifier would be answered from
/// memory, and nothing created.
fn next_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        AtomicU64::new(u64::try_from(now.as_micros()).unwrap_or(0))
    });
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Makes the container that is used, if it is not there; how many instances it has had.
pub(super) fn container(address: SocketAddr) -> Result<u64, String> {
    let made = once(
        address,
        &head("POST", "/cse-in", "Content-Type: application/json;ty=3\r\n"),
        &format!(r#"{{"m2m:cnt":{{"rn":"load","mni":{KEPT}}}}}"#),
    )?;
    if !made.starts_with("HTTP/1.1 201") && !made.starts_with("HTTP/1.1 409") {
        return Err(format!("the container was refused: {made}"));
    }
    state(address, "load")
}

/// How many instances a container below the CSEBase has had.
pub(super) fn state(address: SocketAddr, container: &str) -> Result<u64, String> {
    // Each instance counts the state of its container up by one.
    let content = retrieve(address, &format!("/cse-in/{container}"))?;
    let state = content.pointer("/m2m:cnt/st").and_then(Value::as_u64);
    state.ok_or_else(|| format!("a container without stateTag: {content}"))
}

/// The content of a good answer to a retrieval.
pub(super) fn retrieve(address: SocketAddr, path: &str) -> Result<Value, String> {
    let read = once(address, &head("GET", path, ""), "")?;
    let Some((head, content)) = read.split_once("\r\n\r\n") else { return Err(read) };
    if !head.starts_with("HTTP/1.1 200") {
        return Err(format!("{path} was refused: {read}"));
    }
    serde_json::from_str(content).map_err(|error| format!("{path}: {error}"))
}

/// Asks as somebody whom no policy names to create in [`GUARDED`].
///
/// Fails unless that is refused for want of rights: 4103, ORIGINATOR_HAS_NO_PRIVILEGE (TS-0004,
/// 6.6.3.5).
pub(super) fn foreign_is_refused(address: SocketAddr) -> Result<(), String> {
    let path = format!("/cse-in/{GUARDED}?rcn=0");
    let head = head_from(FOREIGN, "POST", &path, "Content-Type: application/json;ty=4\r\n");
    let answer = once(address, &head, &instance(""))?;
    let is_code = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or_default();
        name.eq_ignore_ascii_case("x-m2m-rsc") && value.trim() == "4103"
    };
    if answer.starts_with("HTTP/1.1 403") && answer.lines().any(is_code) {
        return Ok(());
    }
    Err(format!("{FOREIGN}, whom no policy names, is not refused with 4103: {answer}"))
}

/// Retrieves one after the other the instances of [`NAMED`] with these numbers.
///
/// Fails unless each is there with its content.
pub(super) fn all_are_named(address: SocketAddr, numbers: &[u64]) -> Result<(), String> {
    // With an identifier of its own, as it is no repetition of the creation.
    let head = head("GET", &format!("/cse-in/{NAMED}/n{ID}"), "").replace("RI: ", "RI: r");
    let mut connection = LoadConnection::of(address, whole(&head, ""))?;
    for number in numbers {
        let answer = connection.exchange(*number)?;
        let content = answer.split_once("\r\n\r\n").map_or("", |(_, content)| content);
        let content: Value = serde_json::from_str(content).unwrap_or_default();
        let found = content.pointer("/m2m:cin/con").and_then(Value::as_str);
        if found != Some(&text_of(*number)) {
            return Err(format!("instance n{number:0width$}: {answer}", width = ID.len()));
        }
    }
    Ok(())
}

/// Makes a resource of this type.
pub(super) fn make(
    address: SocketAddr,
    path: &str,
    kind: u16,
    content: &str,
) -> Result<(), String> {
    let more = format!("Content-Type: application/json;ty={kind}\r\n");
    let made = once(address, &head("POST", path, &more), content)?;
    if made.starts_with("HTTP/1.1 201") { Ok(()) } else { Err(format!("refused: {made}")) }
}

/// The content of a creation, with `more` attributes; its text begins with the request's number.
pub(super) fn instance(more: &str) -> String {
    format!(r#"{{"m2m:cin":{{{more}"con":"{}"}}}}"#, text_of(0))
}

/// What the instance of this request contains: its number, filled up.
pub(super) fn text_of(number: u64) -> String {
    format!("{number:0width$}{}", "x".repeat(CONTENT_OCTETS - ID.len()), width = ID.len())
}

/// One request on a connection of its own; the whole answer.
fn once(address: SocketAddr, head: &str, content: &str) -> Result<String, String> {
    LoadConnection::of(address, whole(head, content))?.exchange(next_number())
}

fn head(method: &str, path: &str, more: &str) -> String {
    head_from(ORIGINATOR, method, path, more)
}

fn head_from(originator: &str, method: &str, path: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-M2M-Origin: {originator}\r\n\
         X-M2M-RVI: 4\r\nX-M2M-RI: {ID}\r\n{more}"
    )
}

fn whole(head: &str, content: &str) -> String {
    if content.is_empty() {
        return format!("{head}\r\n");
    }
    format!("{head}Content-Length: {}\r\n\r\n{content}", content.len())
}

fn clock(clock: ClockId) -> Result<Duration, String> {
    clock_gettime(clock).map(Duration::from).map_err(text)
}

/// The connections on which something has come.
fn ready(connections: &[LoadConnection]) -> Result<Vec<usize>, String> {
    let mut polled: Vec<_> = connections
        .iter()
        .map(|connection| PollFd::new(connection.stream.as_fd(), PollFlags::POLLIN))
        .collect();
    let within = PollTimeout::try_from(ANSWER_WITHIN).map_err(text)?;
    if poll(&mut polled, within).map_err(text)? == 0 {
        return Err("no answer".to_owned());
    }
    let some = |(at, polled): (usize, &PollFd<'_>)| polled.any()?.then_some(at);
    Ok(polled.iter().enumerate().filter_map(some).collect())
}

/// One connection, and the request that is sent over it again and again.
pub(super) struct LoadConnection {
    address: SocketAddr,
    stream: TcpStream,
    request: Vec<u8>,
    /// Where the number of the request stands in it.
    numbers_at: Vec<usize>,
    number: u64,
    answer: Vec<u8>,
}

impl LoadConnection {
    pub(super) fn open(address: SocketAddr, what: What) -> Result<Self, String> {
        let request = match what {
            What::Create => Self::creation(ORIGINATOR, "load", ""),
            What::CreateWatched => Self::creation(ORIGINATOR, "watched", ""),
            What::CreateGuarded => Self::creation("Cbed", GUARDED, ""),
            What::CreateNamed => Self::creation(ORIGINATOR, NAMED, &format!(r#""rn":"n{ID}","#)),
            What::Retrieve => whole(&head("GET", "/cse-in/load/la", ""), ""),
        };
        Self::of(address, request)
    }

    /// The creation of an instance in this container, with `more` attributes.
    fn creation(originator: &str, container: &str, more: &str) -> String {
        let path = format!("/cse-in/{container}?rcn=0");
        whole(
            &head_from(originator, "POST", &path, "Content-Type: application/json;ty=4\r\n"),
            &instance(more),
        )
    }

    fn of(address: SocketAddr, request: String) -> Result<Self, String> {
        let numbers_at: Vec<_> = request.match_indices(ID).map(|(at, _)| at).collect();
        let request = request.into_bytes();
        let stream = connect(address)?;
        Ok(Self { address, stream, request, numbers_at, number: 0, answer: Vec::new() })
    }

    /// Sends the request under a new number.
    fn ask(&mut self) -> Result<(), String> {
        self.ask_as(next_number())
    }

    /// Sends the request under this number. It fits the socket's buffer, so that it goes whole.
    fn ask_as(&mut self, number: u64) -> Result<(), String> {
        self.number = number;
        let id = format!("{number:0width$}", width = ID.len());
        for at in &self.numbers_at {
            let place = self.request.get_mut(*at..at + ID.len()).filter(|it| it.len() == id.len());
            place.ok_or("a number does not fit its request")?.copy_from_slice(id.as_bytes());
        }
        self.stream.write_all(&self.request).map_err(text)
    }

    /// Asks once and waits; fails unless the answer is good.
    pub(super) fn ask_and_wait(&mut self) -> Result<(), String> {
        let answer = self.exchange(next_number())?;
        if answer.starts_with("HTTP/1.1 20") { Ok(()) } else { Err(format!("refused: {answer}")) }
    }

    /// Sends the request under this number and waits; the whole answer.
    fn exchange(&mut self, number: u64) -> Result<String, String> {
        self.ask_as(number)?;
        loop {
            ready(std::slice::from_ref(self))?;
            if let Some(length) = self.take()? {
                let whole = self.answer.get(..length).unwrap_or_default();
                return Ok(String::from_utf8_lossy(whole).into_owned());
            }
        }
    }

    /// Takes what has come; whether the answer is good, if it is there.
    fn read(&mut self) -> Result<Option<bool>, String> {
        let whole = self.take()?;
        Ok(whole.map(|_| self.answer.starts_with(b"HTTP/1.1 20")))
    }

    /// Takes what has come; octets of the answer, if it is whole. A connection that its peer ends
    /// with the answer is made anew.
    fn take(&mut self) -> Result<Option<usize>, String> {
        if whole_answer(&self.answer).is_some() {
            self.answer.clear();
        }
        let have = self.answer.len();
        self.answer.resize(have + READ_OCTETS, 0);
        let read = match self.stream.read(self.answer.get_mut(have..).unwrap_or_default()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Ok(0) => return Err("the connection was closed without an answer".to_owned()),
            other => other.map_err(text)?,
        };
        self.answer.truncate(have + read);
        let Some((length, closes)) = whole_answer(&self.answer) else { return Ok(None) };
        if closes {
            self.stream = connect(self.address)?;
        }
        Ok(Some(length))
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    stream.set_nonblocking(true).map_err(text)?;
    Ok(stream)
}

/// Octets of the answer at the front, if it is whole, and whether its connection ends with it.
fn whole_answer(octets: &[u8]) -> Option<(usize, bool)> {
    let head = octets.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut length = 0;
    let mut closes = false;
    for line in octets.get(..head)?.split(|&octet| octet == b'\n') {
        let Some(colon) = line.iter().position(|&octet| octet == b':') else { continue };
        let (name, value) = (line.get(..colon)?, line.get(colon + 1..)?.trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            length = std::str::from_utf8(value).ok()?.parse().ok()?;
        } else if name.eq_ignore_ascii_case(b"connection") {
            closes = value.eq_ignore_ascii_case(b"close");
        }
    }
    (octets.len() >= head + length).then_some((head + length, closes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_content() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\nConnection: close\r\n\r\n{}";
        assert_eq!(whole_answer(answer), Some((answer.len(), true)));
        assert_eq!(whole_answer(&answer[..answer.len() - 1]), None);
        let bare = b"HTTP/1.1 201 Created\r\nx: y\r\n\r\n";
        assert_eq!(whole_answer(bare), Some((bare.len(), false)));
        assert_eq!(whole_answer(b""), None);
    }
}
