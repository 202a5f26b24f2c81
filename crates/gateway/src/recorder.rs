//! Captured packets as pcapng: to a file, on its own thread, or to a client.

use crate::capture_paths::FileIdentity;
use gatewright_link::{
    Framing,
    pcapng::{
        CapturedFrame, Direction, InterfaceId, PcapngWriter,
        file::{append, replace},
    },
};
use gatewright_packet::LinkIndex;
use gatewright_part::{EventSink, LogEvent, LogLevel};
use gatewright_planes::{CaptureCloser, OpenCapture};
use gatewright_stack::{
    At, Side,
    builtin::{Capture, CapturedPacket},
};
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

/// Writes the packets of a capture handler. It is dropped when the handler is detached, and then
/// writes what is on its way.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: Option<JoinHandle<()>>,
    closer: CaptureCloser,
    /// What it writes, if that is a regular file.
    file: Option<FileIdentity>,
    /// Packets that had no room while the file could not be written.
    unwritten: Arc<AtomicU64>,
}

/// What becomes of the capture that a file holds already.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum EarlierCapture {
    /// It stays, and what is captured is written behind it: the file is the description's, and the
    /// capture goes on over starts, adoptions and upgrades.
    Kept,
    /// Another takes its place: somebody asks for it now.
    Replaced,
}

impl EarlierCapture {
    /// Opens the capture file at `path`; returns it with the octets that it has.
    pub(crate) fn open(self, path: &str) -> io::Result<(File, u64)> {
        match self {
            Self::Kept => append(Path::new(path)),
            Self::Replaced => Ok((replace(Path::new(path))?, 0)),
        }
    }
}

/// How long a recorder may take to write its queue when its handler is gone.
pub(crate) const RECORDER_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Maximum time that written records stay in memory, so that a reader sees them.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// Octets of records at which they are written, and at which no more are kept while that fails.
const WRITE_OCTETS: usize = 64 * 1024;
const WAITING_OCTETS: usize = 1024 * 1024;

impl Recorder {
    /// Starts writing packets captured at `at` to `file`, with an interface of the file for each
    /// link. A file that cannot be written for a time is an event in `events`.
    pub(crate) fn start(
        (file, earlier): (&str, EarlierCapture),
        at: At,
        links: &[String],
        capture: OpenCapture,
        events: EventSink,
    ) -> io::Result<Self> {
        let OpenCapture { captured, closer, .. } = capture;
        let (opened, whole) = match file {
            "-" => (File::from(io::stdout().as_fd().try_clone_to_owned()?), 0),
            _ => earlier.open(file)?,
        };
        let mut pages = Pages::begin(CaptureFile::new(opened, whole)?, at, links)?;
        pages.flush()?;
        let unwritten = Arc::<AtomicU64>::default();
        let mut recording = Recording {
            pages,
            unwritten: Arc::clone(&unwritten),
            events,
            file: file.to_owned(),
            written_at: Instant::now(),
            is_failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || recording.run(&captured))?;
        Ok(Self { thread: Some(thread), closer, file: FileIdentity::of(file), unwritten })
    }

    /// Whether it writes the file at `path`, by whatever name.
    pub(crate) fn writes(&self, path: &str) -> bool {
        self.file.is_some() && self.file == FileIdentity::of(path)
    }

    /// Packets that the recorder did not take in time, or could not write.
    pub(crate) fn missed(&self) -> u64 {
        self.closer.missed() + self.unwritten.load(Ordering::Relaxed)
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

/// The recorder's thread: a file that cannot be written is tried again until it can.
#[derive(Debug)]
struct Recording {
    pages: Pages<CaptureFile>,
    unwritten: Arc<AtomicU64>,
    events: EventSink,
    file: String,
    /// The last attempt to write.
    written_at: Instant,
    is_failing: bool,
}

impl Recording {
    fn run(&mut self, captured: &Receiver<CapturedPacket>) {
        loop {
            let ended = match captured.recv_timeout(FLUSH_EVERY) {
                Ok(captured) => {
                    self.take(captured);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            let is_full = !self.is_failing && self.pages.out().waiting.len() >= WRITE_OCTETS;
            if ended || is_full || self.written_at.elapsed() >= FLUSH_EVERY {
                self.write();
            }
            if ended {
                return;
            }
        }
    }

    fn take(&mut self, captured: CapturedPacket) {
        let has_room = self.pages.out().waiting.len() < WAITING_OCTETS;
        if !has_room || self.pages.write(captured).is_err() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write(&mut self) {
        let outcome = self.pages.flush();
        self.written_at = Instant::now();
        let failed = outcome.is_err();
        if failed == std::mem::replace(&mut self.is_failing, failed) {
            return;
        }
        let file = &self.file;
        let (level, kind, text) = if let Err(error) = outcome {
            let text =
                format!("the capture {file} cannot be written: {error}; it goes on when it can");
            (LogLevel::Error, "capture-not-written", text)
        } else {
            let missed = self.unwritten.load(Ordering::Relaxed);
            let text = format!("the capture {file} is written again, without {missed} packets");
            (LogLevel::Info, "capture-written", text)
        };
        self.events.log(LogEvent::new(level, "handlers", kind, text));
    }
}

/// A capture file whose records wait in memory until they are written. What cannot be written stays;
/// a regular file ends with a whole record at all times but during a write.
#[derive(Debug)]
struct CaptureFile {
    file: File,
    /// The length of a regular file up to its last whole record.
    whole: Option<u64>,
    waiting: Vec<u8>,
    /// The lengths of the records in it.
    lengths: VecDeque<usize>,
}

impl CaptureFile {
    /// Goes on with a file that has `whole` octets.
    fn new(file: File, whole: u64) -> io::Result<Self> {
        let whole = file.metadata()?.is_file().then_some(whole);
        Ok(Self { file, whole, waiting: Vec::new(), lengths: VecDeque::new() })
    }

    /// Writes the first records of a regular file: many at once, and one where these have no room.
    fn write_records(&mut self, whole: u64) -> io::Result<()> {
        let (mut records, mut octets) = (0, 0);
        for length in &self.lengths {
            records += 1;
            octets += length;
            if octets >= WRITE_OCTETS {
                break;
            }
        }
        let first = self.lengths.front().copied().unwrap_or_default();
        for (records, octets) in [(records, octets), (1, first)] {
            let written = self.waiting.get(..octets).unwrap_or_default();
            match self.file.write_all_at(written, whole) {
                Ok(()) => {
                    self.whole = Some(whole + octets as u64);
                    self.lengths.drain(..records);
                    self.waiting.drain(..octets);
                    return Ok(());
                }
                Err(error) => {
                    self.file.set_len(whole)?;
                    if octets == first {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Write for CaptureFile {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(record);
        self.lengths.push_back(record.len());
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(whole) = self.whole.filter(|_| !self.waiting.is_empty()) {
            self.write_records(whole)?;
        }
        // A device or a pipe has no way back: what it took is gone.
        while !self.waiting.is_empty() {
            let taken = self.file.write(&self.waiting)?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.waiting.drain(..taken);
        }
        self.lengths.clear();
        Ok(())
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

    fn out(&self) -> &W {
        self.writer.out()
    }

    /// The underlying writer.
    pub(crate) fn into_inner(self) -> W {
        self.writer.into_inner()
    }
}

pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
