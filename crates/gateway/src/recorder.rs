//! Captured packets as pcapng: to a file, on its own thread, or to a client.

use gatewright_link::{
    Framing,
    pcapng::{CapturedFrame, Direction, InterfaceId, PcapngWriter, file::replace},
};
use gatewright_packet::LinkIndex;
use gatewright_planes::{CaptureCloser, OpenCapture};
use gatewright_stack::{
    At, Side,
    builtin::{Capture, CapturedPacket},
};
use std::{
    io::{self, BufWriter, Write},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

/// Writes the packets of a capture handler. It is dropped when the handler is detached, and then
/// writes what is on its way.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: Option<JoinHandle<io::Result<()>>>,
    closer: CaptureCloser,
}

/// How long a recorder may take to write its queue when its handler is gone.
pub(crate) const RECORDER_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Maximum time that written records stay in memory, so that a reader sees them.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_millis(200);

impl Recorder {
    /// Starts writing packets captured at `at` to `file`, with an interface of the file for each
    /// link.
    pub(crate) fn start(
        file: &str,
        at: At,
        links: &[String],
        capture: OpenCapture,
    ) -> io::Result<Self> {
        let OpenCapture { captured, closer, .. } = capture;
        let out: Box<dyn Write + Send> = match file {
            "-" => Box::new(io::stdout()),
            _ => Box::new(replace(Path::new(file))?),
        };
        let mut pages = Pages::begin(BufWriter::new(out), at, links)?;
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || record(&mut pages, &captured))?;
        Ok(Self { thread: Some(thread), closer })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Its handler is gone: what is on its way still comes.
        self.closer.close();
        if let Some(thread) = self.thread.take() {
            let end = Instant::now() + RECORDER_ENDS_WITHIN;
            while !thread.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn record<W: Write>(pages: &mut Pages<W>, captured: &Receiver<CapturedPacket>) -> io::Result<()> {
    loop {
        match captured.recv_timeout(FLUSH_EVERY) {
            Ok(captured) => pages.write(captured)?,
            Err(RecvTimeoutError::Timeout) => pages.flush()?,
            Err(RecvTimeoutError::Disconnected) => return pages.flush(),
        }
    }
}

/// Captured packets as blocks of a capture file.
#[derive(Debug)]
pub(crate) struct Pages<W> {
    writer: PcapngWriter<W>,
    /// The position of the capture, noted with each packet; empty for whole frames.
    comment: String,
    /// The worker's epoch since 1970. Stamps count from the worker's epoch, which was a moment ago
    /// on this machine's clock when the first packet came.
    epoch: Option<Duration>,
    /// The first header of the packets of the interfaces that were described at the beginning.
    framing: Framing,
    /// Their names.
    links: Vec<String>,
    /// Links with another first header, with their interfaces.
    others: Vec<(LinkIndex, InterfaceId)>,
}

impl<W: Write> Pages<W> {
    /// Begins a file of packets captured at `at`, with an interface for each link.
    pub(crate) fn begin(out: W, at: At, links: &[String]) -> io::Result<Self> {
        let framing = Capture::framing_at(at);
        let mut writer = PcapngWriter::new(out)?;
        // A link that comes while this is written is known by its number.
        let name = |(index, link): (usize, &String)| {
            if link.is_empty() { format!("link{index}") } else { link.clone() }
        };
        let links: Vec<_> = links.iter().enumerate().map(name).collect();
        for link in &links {
            writer.add_interface(link, framing)?;
        }
        let comment = if at == At::Frame { String::new() } else { at.to_string() };
        Ok(Self { writer, comment, epoch: None, framing, links, others: Vec::new() })
    }

    pub(crate) fn write(&mut self, captured: CapturedPacket) -> io::Result<()> {
        let CapturedPacket { octets, framing, at, side, link, .. } = captured;
        let interface = self.interface(link, framing)?;
        let epoch = *self.epoch.get_or_insert_with(|| since_1970().saturating_sub(at));
        self.writer.write(&CapturedFrame {
            interface,
            at: epoch + at,
            octets: octets.octets(),
            len: octets.octets().len(),
            direction: Some(match side {
                Side::Receive => Direction::Inbound,
                Side::Transmit => Direction::Outbound,
            }),
            comment: &self.comment,
        })
    }

    /// The interface of a link; described now if its packets have another first header.
    fn interface(&mut self, link: LinkIndex, framing: Framing) -> io::Result<InterfaceId> {
        if framing == self.framing {
            return Ok(InterfaceId(if link == LinkIndex::NONE { 0 } else { link.0.into() }));
        }
        if let Some((_, known)) = self.others.iter().find(|(of, _)| *of == link) {
            return Ok(*known);
        }
        let name = self.links.get(link.index()).map_or("", String::as_str);
        let interface = self.writer.add_interface(name, framing)?;
        self.others.push((link, interface));
        Ok(interface)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// The underlying writer.
    pub(crate) fn into_inner(self) -> W {
        self.writer.into_inner()
    }
}

pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
