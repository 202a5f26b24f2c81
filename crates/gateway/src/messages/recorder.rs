//! Captured messages to a pcapng file, on a thread of its own.

use super::frame::Framer;
use crate::recorder::{EarlierCapture, FLUSH_EVERY, RECORDER_ENDS_WITHIN, since_1970};
use gatewright_link::{
    Framing,
    pcapng::{CapturedFrame, Direction, PcapngWriter},
};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A piece of a message on its way to a capture file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MessageRecord {
    /// The peer's end.
    pub peer: SocketAddr,
    /// The gateway's end.
    pub local: SocketAddr,
    /// Whether it went over TCP; else as one datagram.
    pub tcp: bool,
    /// Whether it came from the peer.
    pub inbound: bool,
    /// The octets.
    pub octets: Vec<u8>,
    /// Number of octets after these that were not kept.
    pub missing: u64,
}

/// Maximum queued pieces; one is two pages, as a rule.
const RECORDS_MAX: usize = 1024;

/// The sending end for captured messages.
#[derive(Clone, Debug)]
pub struct MessageRecords(SyncSender<(Duration, MessageRecord)>);

impl MessageRecords {
    /// Queues a piece with the current time, without waiting; returns whether there was room.
    pub fn give(&self, record: MessageRecord) -> bool {
        self.0.try_send((since_1970(), record)).is_ok()
    }
}

/// Writes captured messages; ends when no sender is left.
#[derive(Debug)]
pub(super) struct MessageRecorder {
    thread: JoinHandle<io::Result<()>>,
}

impl MessageRecorder {
    /// Starts writing messages captured at `at` to `file`.
    pub(super) fn start(
        (file, earlier): (&str, EarlierCapture),
        at: &str,
    ) -> io::Result<(MessageRecords, Self)> {
        let (file, _) = earlier.open(file)?;
        let mut writer = PcapngWriter::new(BufWriter::new(file))?;
        let interface = writer.add_interface(at, Framing::Ip)?;
        writer.flush()?;
        let (sender, records) = sync_channel(RECORDS_MAX);
        let at = at.to_owned();
        let thread = std::thread::Builder::new().name("messages".to_owned()).spawn(move || {
            let mut framer = Framer::default();
            write(&records, &mut writer, |writer, (time, record)| {
                let direction =
                    if record.inbound { Direction::Inbound } else { Direction::Outbound };
                for packet in framer.packets(&record) {
                    writer.write(&CapturedFrame {
                        interface,
                        at: time,
                        octets: &packet,
                        len: packet.len(),
                        direction: Some(direction),
                        comment: &at,
                    })?;
                }
                Ok(())
            })
        })?;
        Ok((MessageRecords(sender), Self { thread }))
    }
}

fn write<W: Write>(
    records: &Receiver<(Duration, MessageRecord)>,
    writer: &mut PcapngWriter<W>,
    mut one: impl FnMut(&mut PcapngWriter<W>, (Duration, MessageRecord)) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        match records.recv_timeout(FLUSH_EVERY) {
            Ok(record) => one(writer, record)?,
            Err(RecvTimeoutError::Timeout) => writer.flush()?,
            Err(RecvTimeoutError::Disconnected) => return writer.flush(),
        }
    }
}

impl Drop for MessageRecorder {
    fn drop(&mut self) {
        let end = Instant::now() + RECORDER_ENDS_WITHIN;
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
