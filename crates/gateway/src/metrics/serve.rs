//! An HTTP/1.1 server of one page, for metrics collectors.
//!
//! The server knows one path, answers each client on a thread of its own and closes after each answer.
//! A client has [`CLIENT_WITHIN`] for all of it; of more than [`CLIENTS_MAX`] the oldest is closed.
//! At an address of loopback it answers requests for names of loopback only.

use crate::{
    Gateway,
    http_host::names_loopback,
    listener::ListenerThread,
    socket_path::{SocketPath, bind},
    status,
};
use gatewright_config::Listen;
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

/// The media type of OpenMetrics text.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of error answers.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The answer to a request for another host.
const MISDIRECTED: &str = "421 Misdirected Request";

/// Maximum octets of a request's head; a longer one is answered 431.
const REQUEST_MAX: usize = 8 * 1024;

/// Maximum octets of an unwanted body that are read so that the answer is not lost (RFC 9112 §9.6).
const DRAINED_MAX: usize = 64 * 1024;

/// Maximum time of one client for its request and our answer.
const CLIENT_WITHIN: Duration = Duration::from_secs(2);

/// Maximum clients that are served at the same time.
const CLIENTS_MAX: usize = 16;

/// Creates the page, or returns why there is none.
type Page = dyn Fn() -> Result<String, String> + Send + Sync;

/// Serves a gateway's metrics until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: Option<SocketAddr>,
    listener: Option<ListenerThread>,
    /// Removed last.
    _place: Option<SocketPath>,
}

impl MetricsServer {
    /// Serves the metrics of `gateway` where `listen` says: `GET /metrics`.
    ///
    /// Only the owner can use a Unix socket; a socket without a listener is replaced.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if another process listens there, `AlreadyExists` if the path of a Unix socket is
    /// that of another file; else the system's error.
    pub fn start(gateway: Arc<Gateway>, listen: &Listen) -> io::Result<Self> {
        let page = move || status::metrics(&gateway);
        Self::serving(Arc::new(page), listen)
    }

    /// The TCP address of the listener, if it is TCP.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn serving(page: Arc<Page>, listen: &Listen) -> io::Result<Self> {
        let (listener, address, place) = match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                (Listener::Tcp(listener), Some(address), None)
            }
            Listen::Unix(path) => {
                let (listener, place) = bind(Path::new(path))?;
                (Listener::Unix(listener), None, Some(place))
            }
        };
        let clients = Mutex::new(VecDeque::new());
        let listener = ListenerThread::start("metrics", listener, move |listener| {
            let client = listener.accept()?;
            let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.retain(Served::is_open);
            if clients.len() >= CLIENTS_MAX {
                drop(clients.pop_front());
            }
            clients.push_back(Served::start(client, Arc::clone(&page))?);
            Ok(())
        })?;
        Ok(Self { address, listener: Some(listener), _place: place })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        drop(self.listener.take());
    }
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Listener {
    fn accept(&self) -> io::Result<PageClient> {
        let (stream, hosts) = match self {
            Self::Tcp(listener) => {
                let is_loopback = listener.local_addr()?.ip().to_canonical().is_loopback();
                let hosts = if is_loopback { ServedHosts::Loopback } else { ServedHosts::Any };
                (ClientStream::Tcp(listener.accept()?.0), hosts)
            }
            Self::Unix(listener) => (ClientStream::Unix(listener.accept()?.0), ServedHosts::Any),
        };
        match &stream {
            ClientStream::Tcp(stream) => stream.set_nonblocking(false)?,
            ClientStream::Unix(stream) => stream.set_nonblocking(false)?,
        }
        let until = Instant::now() + CLIENT_WITHIN;
        Ok(PageClient { stream: Arc::new(stream), hosts, until })
    }
}

#[derive(Debug)]
enum ClientStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ClientStream {
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }
}

/// A client that a thread serves; it is closed and the thread has ended once this is dropped.
#[derive(Debug)]
struct Served {
    /// `None` once the thread has closed it.
    stream: Weak<ClientStream>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start(client: PageClient, page: Arc<Page>) -> io::Result<Self> {
        let stream = Arc::downgrade(&client.stream);
        let thread = Builder::new().name("metrics-client".to_owned()).spawn(move || {
            // A client that goes away in the middle has its own reasons.
            drop(client.serve(&*page));
        })?;
        Ok(Self { stream, thread: Some(thread) })
    }

    fn is_open(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.upgrade() {
            // It may be closed already.
            let _closed = stream.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// The hosts for which requests are answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ServedHosts {
    /// Names of loopback: a browser on this machine is led to others by DNS only.
    Loopback,
    /// All: the names of an address that other machines reach are not known, and no browser opens a
    /// Unix socket.
    Any,
}

impl ServedHosts {
    fn has(self, host: &str) -> bool {
        self == Self::Any || names_loopback(host)
    }
}

/// A client with its deadline.
#[derive(Debug)]
struct PageClient {
    stream: Arc<ClientStream>,
    hosts: ServedHosts,
    until: Instant,
}

impl PageClient {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    fn serve(mut self, page: &Page) -> io::Result<()> {
        let Some(head) = self.head()? else { return Ok(()) };
        let answer = answer(&head, self.hosts, page);
        self.write_all(&answer)?;
        self.stream.shutdown(Shutdown::Write)?;
        let mut rest = [0; 1024];
        let mut drained = 0;
        while drained < DRAINED_MAX {
            match self.read(&mut rest)? {
                0 => break,
                read => drained += read,
            }
        }
        Ok(())
    }

    /// Reads a request's head up to its limit; `None` if the client closes before its end.
    fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut head = Vec::new();
        let mut part = [0; 1024];
        while !ends(&head) && head.len() <= REQUEST_MAX {
            let read = self.read(&mut part)?;
            if read == 0 {
                return Ok(None);
            }
            head.extend_from_slice(part.get(..read).unwrap_or_default());
        }
        Ok(Some(head))
    }
}

impl Read for PageClient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        match &*self.stream {
            ClientStream::Tcp(from) => {
                from.set_read_timeout(left).and_then(|()| (&*from).read(into))
            }
            ClientStream::Unix(from) => {
                from.set_read_timeout(left).and_then(|()| (&*from).read(into))
            }
        }
    }
}

impl Write for PageClient {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        match &*self.stream {
            ClientStream::Tcp(out) => {
                out.set_write_timeout(left).and_then(|()| (&*out).write(from))
            }
            ClientStream::Unix(out) => {
                out.set_write_timeout(left).and_then(|()| (&*out).write(from))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether the octets contain the empty line that ends a head.
fn ends(head: &[u8]) -> bool {
    head.windows(4).any(|four| four == b"\r\n\r\n")
}

/// The result of parsing a request: an error, or whether it wants only the page's head.
enum PageRequest {
    Page { head_only: bool },
    Wrong(&'static str),
}

/// The whole answer to a request's head.
fn answer(head: &[u8], hosts: ServedHosts, page: &Page) -> Vec<u8> {
    let (status, kind, body, head_only) = match asked(head, hosts) {
        PageRequest::Wrong(status) => (status, PLAIN, format!("{status}\n"), false),
        PageRequest::Page { head_only } => match page() {
            Ok(text) => ("200 OK", OPEN_METRICS, text, head_only),
            Err(why) => ("503 Service Unavailable", PLAIN, format!("{why}\n"), head_only),
        },
    };
    // RFC 9110 §15.5.6: an answer 405 says what is allowed.
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\n\r\n"
    );
    let body = if head_only { String::new() } else { body };
    [head.into_bytes(), body.into_bytes()].concat()
}

/// Parses a request's head (RFC 9112 §3).
fn asked(head: &[u8], served: ServedHosts) -> PageRequest {
    const BAD: PageRequest = PageRequest::Wrong("400 Bad Request");
    let text = String::from_utf8_lossy(head);
    let Some((text, _body)) = text.split_once("\r\n\r\n") else {
        return PageRequest::Wrong("431 Request Header Fields Too Large");
    };
    if text.len() > REQUEST_MAX {
        return PageRequest::Wrong("431 Request Header Fields Too Large");
    }
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return BAD;
    };
    let mut hosts = Vec::new();
    for line in lines {
        match line.split_once(':') {
            Some((name, _)) if name.is_empty() || name.contains([' ', '\t']) => return BAD,
            Some((name, host)) if name.eq_ignore_ascii_case("host") => hosts.push(host.trim()),
            Some(_) => {}
            None => return BAD,
        }
    }
    let hosted = match version {
        // RFC 9112 §3.2: exactly one field Host.
        "HTTP/1.1" => hosts.len() == 1,
        "HTTP/1.0" => hosts.len() <= 1,
        _ => false,
    };
    if !hosted || method.is_empty() {
        return BAD;
    }
    let path = match target.strip_prefix("http://") {
        Some(rest) => {
            let (authority, path) =
                rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, "/"));
            hosts.push(authority);
            path
        }
        None => target,
    };
    if !hosts.into_iter().all(|host| served.has(host)) {
        // RFC 9110 §15.5.20.
        return PageRequest::Wrong(MISDIRECTED);
    }
    if path.split('?').next() != Some("/metrics") {
        return PageRequest::Wrong("404 Not Found");
    }
    match method {
        "GET" => PageRequest::Page { head_only: false },
        "HEAD" => PageRequest::Page { head_only: true },
        _ => PageRequest::Wrong("405 Method Not Allowed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# EOF\n";

    fn server(listen: &Listen) -> MetricsServer {
        MetricsServer::serving(Arc::new(|| Ok(TEXT.to_owned())), listen).unwrap()
    }

    fn local() -> Listen {
        Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Sends `request` and reads until the server closes.
    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_served_and_everything_else_is_answered_properly() {
        let server = server(&local());
        let address = server.address().unwrap();
        let long =
            format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(9000));
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
            ("GET /metrics?x=1 HTTP/1.1\r\nhost:127.0.0.1\r\nAccept: */*\r\n\r\n", "200 OK"),
            ("GET http://[::1]:1/metrics HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.0\r\n\r\n", "200 OK"),
            ("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
            ("GET /metricsx HTTP/1.1\r\nHost: localhost\r\n\r\n", "404 Not Found"),
            (
                "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab",
                "405 Method Not Allowed",
            ),
            ("GET /metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: y\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/1.1\r\nHost : localhost\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/2.0\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
            ("GET  /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
            (&long, "431 Request Header Fields Too Large"),
        ] {
            let answer = exchange(address, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(head.contains("\r\nAllow: GET, HEAD"), status.starts_with("405"), "{head}");
            assert_eq!(head.contains(OPEN_METRICS), status == "200 OK", "{head}");
            let shown = status == "200 OK" && !request.starts_with("HEAD");
            assert_eq!(body == TEXT, shown, "{request:?}: {body}");
            assert_eq!(body.is_empty(), request.starts_with("HEAD"));
        }
    }

    /// A browser's request for a name that a page of another site has led here (DNS rebinding).
    #[test]
    fn at_loopback_only_names_of_loopback_are_served() {
        let server = server(&local());
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: evil.example:9464\r\n\r\n", MISDIRECTED),
            ("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n", MISDIRECTED),
            ("GET /metrics HTTP/1.0\r\nHost: evil.example\r\n\r\n", MISDIRECTED),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", MISDIRECTED),
            ("GET /other HTTP/1.1\r\nHost: evil.example\r\n\r\n", MISDIRECTED),
            ("GET /metrics HTTP/1.1\r\nHost: LOCALHOST:9464\r\n\r\n", "200 OK"),
        ] {
            let answer = exchange(server.address().unwrap(), request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?}: {answer}");
            assert_eq!(answer.contains(TEXT), status == "200 OK", "{answer}");
        }
        let elsewhere = b"GET /metrics HTTP/1.1\r\nHost: gateway.example\r\n\r\n";
        let answer = answer(elsewhere, ServedHosts::Any, &|| Ok(TEXT.to_owned()));
        assert!(answer.ends_with(TEXT.as_bytes()));
    }

    #[test]
    fn a_request_in_pieces_is_read_and_a_silent_client_is_left() {
        let server = server(&local());
        let address = server.address().unwrap();
        let silent = TcpStream::connect(address).unwrap();
        let mut slow = TcpStream::connect(address).unwrap();
        for octet in b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" {
            slow.write_all(&[*octet]).unwrap();
        }
        let mut answer = String::new();
        slow.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(TEXT), "{answer}");
        drop((silent, slow));
    }

    /// Fewer stalled clients than the most, and more, of which the oldest are closed.
    #[test]
    fn stalled_clients_hold_up_nobody() {
        for count in [8, CLIENTS_MAX + 4] {
            let server = server(&local());
            let address = server.address().unwrap();
            let stall = |_| {
                let mut stalled = TcpStream::connect(address).unwrap();
                stalled.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
                stalled.set_nonblocking(true).unwrap();
                stalled
            };
            let stalled: Vec<_> = (0..count).map(stall).collect();
            let answer = exchange(address, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(answer.ends_with(TEXT), "{answer}");
            let is_open = |mut stream: &TcpStream| {
                let read = stream.read(&mut [0]);
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            };
            let open = stalled.iter().filter(|stream| is_open(stream)).count();
            assert_eq!(open, count.min(CLIENTS_MAX - 1));
            assert!(stalled.last().is_some_and(is_open));
        }
    }

    #[test]
    fn a_page_that_cannot_be_made_is_503() {
        let head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let said =
            String::from_utf8(answer(head, ServedHosts::Any, &|| Err("ended".to_owned()))).unwrap();
        assert!(said.starts_with("HTTP/1.1 503 ") && said.ends_with("\r\n\r\nended\n"), "{said}");
    }

    #[test]
    fn a_unix_socket_is_served_and_removed() {
        let name = format!("gatewright-metrics-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let server = server(&Listen::Unix(path.to_str().unwrap().to_owned()));
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: gateway.example\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(TEXT), "{answer}");
        drop((stream, server));
        assert!(!path.exists());
    }
}
