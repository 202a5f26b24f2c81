//! Live captures: packets at one position of a running gateway, sent to a client of the control
//! socket.
//!
//! After the answer to `{"do":"capture",…}` the gateway sends chunks: four octets with the length,
//! most significant first, then that many octets of a pcapng file. A chunk of length 0 ends the
//! capture; one JSON object in a line follows: `{"packets":…,"missed":…}`. The client ends a
//! capture by closing its sending side. The gateway waits for no client: packets that it does not
//! take in time are missed, and counted.

mod tap;

pub use tap::{TapEnd, TappedPacket};

use crate::{
    Gateway,
    recorder::{FLUSH_EVERY, Pages},
    which::Which,
};
use gatewright_planes::{CaptureCloser, HandlerValue, OpenCapture, Placement};
use gatewright_stack::{At, Attachment, AttachmentId, Place, Side, builtin::CapturedPacket};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// A live capture, as given on the command line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureRequest {
    /// The position: `frame` if not given.
    pub at: Option<String>,
    /// `receive` or `transmit`; both if not given.
    pub side: Option<String>,
    /// The packets to capture.
    pub which: Which,
    /// The number of packets after which it ends.
    pub count: Option<u64>,
    /// The number of seconds after which it ends.
    pub seconds: Option<f64>,
}

/// A running capture.
pub(crate) struct Live {
    ids: Vec<AttachmentId>,
    captured: Receiver<CapturedPacket>,
    closer: CaptureCloser,
    at: At,
    links: Vec<String>,
    count: u64,
    end: Option<Instant>,
}

/// The longest time in a request, in seconds; longer times mean no end.
const SECONDS_MAX: f64 = 1e9;

impl Live {
    /// Attaches the capture handler, without losing a packet.
    pub(crate) fn start(gateway: &Gateway, request: &CaptureRequest) -> Result<Self, String> {
        let at = request.at.as_deref().unwrap_or("frame");
        let at: At = at.parse().map_err(|error| format!("{at}: {error}"))?;
        let sides: &[Side] = match request.side.as_deref() {
            None => &[Side::Receive, Side::Transmit],
            Some("receive") => &[Side::Receive],
            Some("transmit") => &[Side::Transmit],
            Some(other) => return Err(format!("{other} is neither receive nor transmit")),
        };
        let link =
            request.which.link.as_deref().map(|name| gateway.planes().link(name)).transpose()?;
        let which = request.which.matching()?;
        let OpenCapture { number, captured, closer } =
            gateway.planes().capture().map_err(|error| error.to_string())?;
        let (mut ids, mut refused) = (Vec::new(), None);
        let in_force = gateway.in_force();
        for &side in sides {
            let attachment = Attachment { at, side, place: Place::Tap, link };
            let value = HandlerValue::Capture { which, to: number };
            match gateway.planes().place(Placement::Described(attachment, value)) {
                Ok(id) => ids.push(id),
                Err(error) => refused = Some(error.to_string()),
            }
        }
        drop(in_force);
        // Some positions have packets on one side only.
        if let (true, Some(error)) = (ids.is_empty(), refused) {
            closer.close();
            return Err(error);
        }
        let seconds = request.seconds.filter(|seconds| *seconds < SECONDS_MAX);
        let seconds = seconds.map(Duration::try_from_secs_f64).transpose();
        let seconds = seconds.map_err(|_| "seconds are not negative".to_owned())?;
        Ok(Self {
            ids,
            captured,
            closer,
            at,
            links: gateway.links.names(),
            count: request.count.unwrap_or(u64::MAX),
            end: seconds.and_then(|seconds| Instant::now().checked_add(seconds)),
        })
    }

    /// Sends captured packets to `stream` until the capture ends.
    pub(crate) fn stream(self, stream: &UnixStream, gateway: &Gateway) -> io::Result<()> {
        stream.set_write_timeout(None)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(LOOK))?;
        let chunks = Chunks { out: stream, waiting: Vec::new() };
        let sent =
            Pages::begin(chunks, self.at, &self.links).and_then(|pages| self.pages(pages, stream));
        let missed = self.detach(gateway);
        let packets = sent?;
        let mut out = stream;
        out.write_all(&0_u32.to_be_bytes())?;
        writeln!(out, "{}", json!({ "packets": packets, "missed": missed }))
    }

    /// The time that is left to the capture.
    fn left(&self) -> Duration {
        let now = Instant::now();
        self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(now))
    }

    /// Detaches the capture handler; returns how many packets were not taken in time.
    fn detach(&self, gateway: &Gateway) -> u64 {
        let missed = self.missed(gateway);
        let in_force = gateway.in_force();
        for id in &self.ids {
            // A gateway that has ended has none.
            let _gone = gateway.planes().detach(*id);
        }
        drop(in_force);
        self.closer.close();
        missed
    }

    /// Packets that were not taken in time.
    fn missed(&self, gateway: &Gateway) -> u64 {
        let handlers = gateway.planes().handlers();
        let own = handlers.iter().filter(|handler| self.ids.contains(&handler.id));
        let missed: u64 = own.filter_map(|handler| handler.missed).sum();
        missed + self.closer.missed()
    }

    fn pages(&self, mut pages: Pages<Chunks<'_>>, stream: &UnixStream) -> io::Result<u64> {
        let mut packets = 0;
        let mut flushed = Instant::now();
        pages.flush()?;
        while packets < self.count {
            let left = self.left();
            if left.is_zero() {
                break;
            }
            match self.captured.recv_timeout(left.min(FLUSH_EVERY)) {
                Ok(captured) => {
                    pages.write(captured)?;
                    packets += 1;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH_EVERY {
                flushed = Instant::now();
                pages.flush()?;
                if has_closed(stream)? {
                    break;
                }
            }
        }
        pages.flush()?;
        pages.into_inner();
        Ok(packets)
    }
}

/// Maximum time of a look at the client.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// Whether the client has closed its sending side.
pub(crate) fn has_closed(mut stream: &UnixStream) -> io::Result<bool> {
    match stream.read(&mut [0; 64]) {
        Ok(0) => Ok(true),
        Ok(_) => Ok(false),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Buffers octets and sends them as a chunk, at a flush or when there are many.
struct Chunks<'a> {
    out: &'a UnixStream,
    waiting: Vec<u8>,
}

/// Octets of a chunk at which it is sent.
const CHUNK: usize = 64 * 1024;

impl Write for Chunks<'_> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(octets);
        if self.waiting.len() >= CHUNK {
            self.flush()?;
        }
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let len = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        self.out.write_all(&len.to_be_bytes())?;
        self.out.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }
}

/// The client's side of a live capture, over any transport.
#[derive(Debug)]
pub struct CaptureStream<R = UnixStream> {
    stream: BufReader<R>,
    told: Option<serde_json::Value>,
}

/// Maximum octets of a chunk: one packet of the largest size above the octets sent at once.
const CHUNK_MAX: u32 = 1 << 20;

impl CaptureStream {
    /// Begins a capture at the gateway behind the control socket `path`.
    ///
    /// # Errors
    ///
    /// As [`ask`](crate::api::ask).
    pub fn open(path: &Path, request: CaptureRequest) -> io::Result<Self> {
        let (stream, _) = crate::api::begin(path, &crate::api::ControlRequest::Capture(request))?;
        stream.get_ref().set_read_timeout(None)?;
        Ok(Self::over(stream))
    }

    /// Returns a function that ends the capture from another thread; packets captured before are
    /// still delivered.
    ///
    /// # Errors
    ///
    /// If the system gives no descriptor.
    pub fn stopper(&self) -> io::Result<impl Fn() + Send + use<>> {
        let stream = self.stream.get_ref().try_clone()?;
        // It can have ended by itself.
        Ok(move || drop(stream.shutdown(Shutdown::Write)))
    }
}

impl<R: Read> CaptureStream<R> {
    /// Reads the data after the gateway's answer from `stream`.
    pub const fn over(stream: BufReader<R>) -> Self {
        Self { stream, told: None }
    }

    /// The next octets of the capture file; `None` at its end.
    ///
    /// # Errors
    ///
    /// If the gateway ends in the middle.
    pub fn next_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len);
        if len == 0 {
            let mut line = String::new();
            self.stream.by_ref().take(CHUNK_MAX.into()).read_line(&mut line)?;
            self.told = Some(serde_json::from_str(&line)?);
            return Ok(None);
        }
        if len > CHUNK_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk above 1 MiB"));
        }
        let mut octets = vec![0; usize::try_from(len).unwrap_or_default()];
        self.stream.read_exact(&mut octets)?;
        Ok(Some(octets))
    }

    /// The gateway's final report: packets captured, and missed.
    pub fn told(&self) -> Option<&serde_json::Value> {
        self.told.as_ref()
    }
}
