//! Captured packets on their way from handlers to their readers.
//!
//! A capture has a number, by which handlers name it ([`HandlerValue::Capture`]). Handlers on
//! threads send their copies by the reader's channel; those of another process by one channel to a
//! ring of the region, behind which the numbers decide.
//!
//! [`HandlerValue::Capture`]: crate::HandlerValue::Capture

use gatewright_stack::builtin::{CAPTURED_MAX, CapturedPacket};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
};

/// The number of a capture.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CaptureNumber(pub u64);

/// Captures that may be open at once.
const CAPTURES_MAX: usize = 256;

/// The readers of captured packets.
#[derive(Debug, Default)]
pub struct CaptureReaders {
    open: Mutex<OpenCaptures>,
    /// Takes the packets of all captures, if their readers are in another process.
    away: OnceLock<SyncSender<CapturedPacket>>,
}

#[derive(Debug, Default)]
struct OpenCaptures {
    next: u64,
    readers: BTreeMap<CaptureNumber, CaptureReader>,
}

#[derive(Debug)]
struct CaptureReader {
    out: SyncSender<CapturedPacket>,
    /// Packets from another process that it did not take in time.
    missed: u64,
}

impl CaptureReaders {
    /// No readers yet; the numbers of captures begin with `first`.
    pub(crate) fn beginning_with(first: u64) -> Self {
        let open = OpenCaptures { next: first, readers: BTreeMap::new() };
        Self { open: Mutex::new(open), away: OnceLock::new() }
    }

    /// A poisoned lock is safe here: each change is whole before the next.
    fn lock(&self) -> MutexGuard<'_, OpenCaptures> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the packets of all captures by one channel from now on.
    pub(crate) fn send_away(&self, out: SyncSender<CapturedPacket>) {
        // It is set once, before the first handler is built.
        let _set = self.away.set(out);
    }

    /// The channel of a capture; `None` if nobody reads it.
    pub(crate) fn channel(&self, number: CaptureNumber) -> Option<SyncSender<CapturedPacket>> {
        let own = || self.lock().readers.get(&number).map(|reader| reader.out.clone());
        self.away.get().cloned().or_else(own)
    }

    /// Gives a packet from another process to its reader.
    pub(crate) fn deliver(&self, packet: CapturedPacket) {
        let mut open = self.lock();
        let reader = open.readers.get_mut(&CaptureNumber(packet.capture));
        // One that nobody reads any more was captured before the handler went.
        let Some(reader) = reader else { return };
        if reader.out.try_send(packet).is_err() {
            reader.missed += 1;
        }
    }

    /// Packets from another process that the reader of a capture did not take in time.
    pub(crate) fn missed(&self, number: CaptureNumber) -> u64 {
        self.lock().readers.get(&number).map_or(0, |reader| reader.missed)
    }

    /// Forgets the reader of a capture.
    pub(crate) fn close(&self, number: CaptureNumber) {
        self.lock().readers.remove(&number);
    }

    /// A new capture with its packets; `None` if there are too many.
    pub(crate) fn open(&self) -> Option<(CaptureNumber, Receiver<CapturedPacket>)> {
        let mut open = self.lock();
        if open.readers.len() >= CAPTURES_MAX {
            return None;
        }
        let number = CaptureNumber(open.next);
        open.next += 1;
        let (out, captured) = sync_channel(CAPTURED_MAX);
        open.readers.insert(number, CaptureReader { out, missed: 0 });
        Some((number, captured))
    }
}
