//! Captured packets to a pcapng file, on a thread of its own.

use gatewright_link::{
    Framing,
    pcapng::{InterfaceId, Record, Writer},
};
use gatewright_packet::LinkIndex;
use gatewright_stack::builtin::Captured;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime},
};

/// Writes what a capture handler gives it; ends when the handler is gone.
#[derive(Debug)]
pub(crate) struct Recorder {
    thread: Option<JoinHandle<io::Result<u64>>>,
}

/// How long written records wait in memory at the most, so that a reader of the file sees them.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

impl Recorder {
    /// Starts writing to `file`, with an interface of the file for each link.
    pub(crate) fn start(
        file: &str,
        framing: Framing,
        links: &[String],
        captured: Receiver<Captured>,
    ) -> io::Result<Self> {
        let out: Box<dyn Write + Send> = match file {
            "-" => Box::new(io::stdout()),
            _ => Box::new(create(file)?),
        };
        let mut writer = Writer::new(BufWriter::new(out))?;
        for link in links {
            writer.add_interface(link, framing)?;
        }
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || record(writer, &captured))?;
        Ok(Self { thread: Some(thread) })
    }
}

/// Creates a file. A file of that name is replaced, not emptied: another capture may be writing it
/// still, and ends it in peace.
fn create(file: &str) -> io::Result<File> {
    if fs::symlink_metadata(file).is_ok_and(|old| old.is_file()) {
        fs::remove_file(file)?;
    }
    File::create(file)
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let end = Instant::now() + crate::configured::RECORDER_ENDS_WITHIN;
            while !thread.is_finished() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn record<W: Write>(mut writer: Writer<W>, captured: &Receiver<Captured>) -> io::Result<u64> {
    // Stamps count from the worker's epoch, which was a moment ago on this machine's clock.
    let mut epoch = None;
    let mut records = 0;
    loop {
        match captured.recv_timeout(FLUSH_EVERY) {
            Ok(Captured { octets, at, link }) => {
                let epoch = *epoch.get_or_insert_with(|| since_1970().saturating_sub(at));
                let packet = octets.into_packet();
                let record = Record {
                    interface: interface(link),
                    at: epoch + at,
                    octets: packet.octets(),
                    len: packet.len(),
                    direction: None,
                    comment: "",
                };
                writer.write(&record)?;
                records += 1;
            }
            Err(RecvTimeoutError::Timeout) => writer.flush()?,
            Err(RecvTimeoutError::Disconnected) => {
                writer.flush()?;
                return Ok(records);
            }
        }
    }
}

fn interface(link: LinkIndex) -> InterfaceId {
    InterfaceId(if link == LinkIndex::NONE { 0 } else { link.0.into() })
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
