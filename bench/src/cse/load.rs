//! The load: requests over connections that are kept, from one thread, one outstanding on each.

use crate::process::text;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Octets of content in each instance.
const CONTENT_OCTETS: usize = 300;
/// An answer that has not come by then does not come.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Where a request's identifier stands: so many digits are written over it each time.
const ID: &str = "0000000000000000";
/// The originator that may do everything, at every CSE here.
const ORIGINATOR: &str = "CAdmin";
/// A container below the CSEBase in which the AE `Cbed` may create by a policy.
pub(super) const GUARDED: &str = "guarded";
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
    /// The latest is retrieved.
    Retrieve,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadResult {
    /// Good answers.
    pub(super) answered: f64,
    /// Answers that were none.
    pub(super) refused: f64,
    pub(super) elapsed: Duration,
    /// Processor time of this side.
    pub(super) spent: Duration,
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
    let open = |_| LoadConnection::open(address, what);
    let mut connections = (0..connections).map(open).collect::<Result<Vec<_>, String>>()?;
    let mut number = clock(ClockId::CLOCK_REALTIME)?.as_micros();
    let (start, spent) = (Instant::now(), clock(ClockId::CLOCK_THREAD_CPUTIME_ID)?);
    for connection in &mut connections {
        number += 1;
        connection.ask(number)?;
    }
    let (mut answered, mut refused) = (0_u32, 0_u32);
    while start.elapsed() < duration {
        for at in ready(&connections)? {
            let Some(connection) = connections.get_mut(at) else { continue };
            let Some(good) = connection.read()? else { continue };
            answered += u32::from(good);
            refused += u32::from(!good);
            number += 1;
            connection.ask(number)?;
        }
    }
    let elapsed = start.elapsed();
    let spent = clock(ClockId::CLOCK_THREAD_CPUTIME_ID)?.saturating_sub(spent);
    for mut connection in connections {
        while connection.read()?.is_none() {
            ready(std::slice::from_ref(&connection))?;
        }
    }
    Ok(LoadResult { answered: answered.into(), refused: refused.into(), elapsed, spent })
}

/// Makes the container that is used, if it is not there; how many instances it has had.
pub(super) fn container(address: SocketAddr) -> Result<u64, String> {
    let made = once(
        address,
        &head("POST", "/cse-in", "Content-Type: application/json;ty=3\r\n"),
        r#"{"m2m:cnt":{"rn":"load","mni":1000}}"#,
    )?;
    if !made.starts_with("HTTP/1.1 201") && !made.starts_with("HTTP/1.1 409") {
        return Err(format!("the container was refused: {made}"));
    }
    let read = once(address, &head("GET", "/cse-in/load", ""), "")?;
    let content = read.split_once("\r\n\r\n").map_or("", |(_, content)| content);
    let content: serde_json::Value = serde_json::from_str(content).map_err(text)?;
    // Each instance counts the state of its container up by one.
    let state = content.pointer("/m2m:cnt/st").and_then(serde_json::Value::as_u64);
    state.ok_or_else(|| format!("a container without stateTag: {content}"))
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

/// The content of a creation.
pub(super) fn instance() -> String {
    format!(r#"{{"m2m:cin":{{"con":"{}"}}}}"#, "x".repeat(CONTENT_OCTETS))
}

/// One request on a connection of its own; the whole answer.
fn once(address: SocketAddr, head: &str, content: &str) -> Result<String, String> {
    let mut connection = LoadConnection::of(address, whole(head, content))?;
    connection.ask(clock(ClockId::CLOCK_REALTIME)?.as_micros())?;
    let mut answer = String::new();
    while answer.is_empty() {
        ready(std::slice::from_ref(&connection))?;
        if let Some(length) = connection.take()? {
            let whole = connection.answer.get(..length).unwrap_or_default();
            answer = String::from_utf8_lossy(whole).into_owned();
        }
    }
    Ok(answer)
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
struct LoadConnection {
    address: SocketAddr,
    stream: TcpStream,
    request: Vec<u8>,
    id_at: usize,
    answer: Vec<u8>,
}

impl LoadConnection {
    fn open(address: SocketAddr, what: What) -> Result<Self, String> {
        let request = match what {
            What::Create => Self::creation(ORIGINATOR, "load"),
            What::CreateWatched => Self::creation(ORIGINATOR, "watched"),
            What::CreateGuarded => Self::creation("Cbed", GUARDED),
            What::Retrieve => whole(&head("GET", "/cse-in/load/la", ""), ""),
        };
        Self::of(address, request)
    }

    /// The creation of an instance in this container.
    fn creation(originator: &str, container: &str) -> String {
        let path = format!("/cse-in/{container}?rcn=0");
        whole(
            &head_from(originator, "POST", &path, "Content-Type: application/json;ty=4\r\n"),
            &instance(),
        )
    }

    fn of(address: SocketAddr, request: String) -> Result<Self, String> {
        let id_at = request.find(ID).ok_or("a request without identifier")?;
        let stream = connect(address)?;
        Ok(Self { address, stream, request: request.into_bytes(), id_at, answer: Vec::new() })
    }

    /// Sends the request under a new number. It fits the socket's buffer, so that it goes whole.
    fn ask(&mut self, number: u128) -> Result<(), String> {
        let id = format!("{number:0width$}", width = ID.len());
        let place = self.request.get_mut(self.id_at..self.id_at + ID.len());
        place.ok_or("a request without identifier")?.copy_from_slice(id.as_bytes());
        self.stream.write_all(&self.request).map_err(text)
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
