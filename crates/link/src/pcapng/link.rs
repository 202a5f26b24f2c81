use super::{CaptureReader, CapturedFrame, Direction, InterfaceId, PcapngWriter};
use crate::{Exclusive, Framing, Link, LinkCounters, LinkInfo, LinkState, Mode, complete, nanos};
use gatewright_packet::{Batch, LinkAddress, LinkIndex, Packet, Pool};
use gatewright_wire::MacAddress;
use std::fmt;
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// The replay speed of a capture file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Speed {
    /// As it was recorded.
    Captured,
    /// A percentage of the recorded speed: 100 is the original speed.
    Percent(NonZeroU32),
    /// A number of frames a second, at equal distances.
    FramesPerSecond(NonZeroU32),
    /// As fast as they are taken.
    Unlimited,
}

/// A link whose frames come from a capture file, and go into one.
///
/// It is up until the replayed file has ended, or for ever if it writes one. What it writes is flushed
/// at each request of its state.
pub struct CaptureLink {
    info: LinkInfo,
    index: LinkIndex,
    pool: Rc<Pool>,
    input: Option<CaptureReader<Box<dyn Read>>>,
    speed: Speed,
    /// Whether the replay waits for [`Link::begin`].
    is_held: bool,
    /// When the first frame was given, and its time in the file.
    start: Option<(Duration, Duration)>,
    given: u32,
    /// The state of the link while it neither replays nor records.
    silent: LinkState,
    /// The frame that is due next.
    next: Option<(Duration, Packet)>,
    output: Option<(PcapngWriter<Box<dyn Write>>, InterfaceId)>,
    /// Whether something was written since the file was last flushed.
    is_dirty: bool,
    /// The time since 1970 at the caller's epoch, once known.
    epoch: Option<Duration>,
    counters: LinkCounters,
}

impl fmt::Debug for CaptureLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureLink").field("info", &self.info).finish_non_exhaustive()
    }
}

impl CaptureLink {
    /// A link named `name`, with packets from `pool` and without files: it is silent.
    pub fn new(index: LinkIndex, name: &str, mac: MacAddress, mtu: usize, pool: Rc<Pool>) -> Self {
        let info = LinkInfo {
            name: name.to_owned(),
            mode: Mode::CaptureFile,
            why: "frames come from and go to capture files".to_owned(),
            framing: Framing::Ethernet,
            link_address: LinkAddress::ethernet(mac.0),
            mtu,
            partial_checksums: false,
            exclusive: Exclusive::Ours,
            driver: String::new(),
            kernel_index: 0,
            queues: Vec::new(),
            receivers: 1,
            driver_forwarding: crate::DriverForwarding::NotAsked,
        };
        Self::with_info(index, info, pool)
    }

    /// A link of these properties, without files.
    pub(crate) fn with_info(index: LinkIndex, info: LinkInfo, pool: Rc<Pool>) -> Self {
        Self {
            info,
            index,
            pool,
            input: None,
            speed: Speed::Unlimited,
            is_held: false,
            start: None,
            given: 0,
            silent: LinkState::Down,
            next: None,
            output: None,
            is_dirty: false,
            epoch: None,
            counters: LinkCounters::default(),
        }
    }

    /// Holds the replay until [`Link::begin`].
    #[must_use]
    pub(crate) const fn held(mut self) -> Self {
        self.is_held = true;
        self
    }

    /// Replays `file`; frames that begin with the link's header are received.
    #[must_use]
    pub fn replay(mut self, file: Box<dyn Read>, speed: Speed) -> Self {
        self.input = Some(CaptureReader::new(file));
        self.speed = speed;
        self
    }

    /// Records transmitted frames to `file`; `epoch` is the time since 1970 at the epoch of the
    /// link's times.
    ///
    /// # Errors
    ///
    /// The error of `file`.
    pub fn record(mut self, file: Box<dyn Write>, epoch: Duration) -> std::io::Result<Self> {
        self.begin_file(file)?;
        self.epoch = Some(epoch);
        Ok(self)
    }

    /// As [`Self::record`], with the system's time at the first frame. Without a file the frames are
    /// dropped and counted.
    pub(crate) fn record_from_now(&mut self, file: Box<dyn Write>) {
        if let Err(error) = self.begin_file(file) {
            self.info.why = format!("the capture file cannot be written: {error}");
        }
    }

    fn begin_file(&mut self, file: Box<dyn Write>) -> std::io::Result<()> {
        let mut writer = PcapngWriter::new(file)?;
        let interface = writer.add_interface(&self.info.name, self.info.framing)?;
        self.output = Some((writer, interface));
        self.is_dirty = true;
        Ok(())
    }

    /// Flushes what was written, so that a reader of the file sees it.
    fn flush(&mut self) {
        if let Some((writer, _)) = &mut self.output
            && std::mem::take(&mut self.is_dirty)
            && writer.flush().is_err()
        {
            self.counters.transmit_full += 1;
        }
    }

    fn end_replay(&mut self) {
        self.input = None;
        self.silent = LinkState::Ended;
    }

    /// Reads up to the next usable frame, and sets when it is due.
    fn load(&mut self, now: Duration) {
        while self.next.is_none() {
            let Some(input) = &mut self.input else { return };
            let record = match input.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    self.end_replay();
                    return;
                }
                Err(error) => {
                    self.counters.receive_malformed += 1;
                    self.info.why = format!("the capture file is not read on: {error}");
                    self.end_replay();
                    return;
                }
            };
            let (recorded_at, id) = (record.at, record.interface);
            let is_whole = record.octets.len() == record.len;
            let packet = self.pool.packet_of(record.octets);
            let is_ours = input
                .interface(id)
                .is_some_and(|interface| interface.framing == Some(self.info.framing));
            if !is_whole || !is_ours {
                self.counters.receive_malformed += 1;
                continue;
            }
            let Some(packet) = packet else {
                if self.pool.available() == 0 {
                    self.counters.receive_no_packet += 1;
                } else {
                    self.counters.receive_oversized += 1;
                }
                continue;
            };
            let (start, first) = *self.start.get_or_insert((now, recorded_at));
            let after = match self.speed {
                Speed::Captured => recorded_at.saturating_sub(first),
                Speed::Percent(percent) => {
                    recorded_at.saturating_sub(first).saturating_mul(100) / percent.get()
                }
                Speed::FramesPerSecond(rate) => {
                    Duration::from_secs(u64::from(self.given)) / rate.get()
                }
                Speed::Unlimited => Duration::ZERO,
            };
            self.given = self.given.saturating_add(1);
            self.next = Some((start.saturating_add(after), packet));
        }
    }
}

impl Link for CaptureLink {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn begin(&mut self) {
        self.is_held = false;
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        let before = batch.len();
        while batch.room() > 0 && !self.is_held {
            self.load(now);
            let Some((_, mut packet)) = self.next.take_if(|(due, _)| *due <= now) else { break };
            packet.set_received_ns(nanos(now));
            packet.meta_mut().ingress = self.index;
            self.counters.received += 1;
            self.counters.received_octets += packet.len() as u64;
            // The loop's condition left room for it.
            let _ = batch.push(packet);
        }
        batch.len() - before
    }

    fn transmit(&mut self, now: Duration, batch: &mut Batch) {
        let epoch = *self.epoch.get_or_insert_with(|| since_1970().saturating_sub(now));
        self.is_dirty = true;
        for mut packet in batch.drain() {
            complete(&mut packet, self.info.framing, &mut self.counters);
            let Some((writer, interface)) = &mut self.output else {
                self.counters.transmit_down += 1;
                continue;
            };
            let written = writer.write(&CapturedFrame {
                interface: *interface,
                at: epoch.saturating_add(now),
                octets: packet.octets(),
                len: packet.len(),
                direction: Some(Direction::Outbound),
                comment: "",
            });
            if written.is_ok() {
                self.counters.sent += 1;
                self.counters.sent_octets += packet.len() as u64;
            } else {
                self.counters.transmit_full += 1;
            }
        }
    }

    fn counted(&self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        self.flush();
        let is_replaying = self.input.is_some() || self.next.is_some();
        if is_replaying || self.output.is_some() { LinkState::Up } else { self.silent }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_timeout(&self) -> Option<Duration> {
        match &self.next {
            _ if self.is_held => None,
            Some((due, _)) => Some(*due),
            // The first frame is due when it is asked for.
            None => self.input.as_ref().map(|_| Duration::ZERO),
        }
    }
}

impl Drop for CaptureLink {
    fn drop(&mut self) {
        // There is nobody left to tell of a failure.
        self.flush();
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
