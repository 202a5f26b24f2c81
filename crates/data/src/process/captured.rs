//! Captured packets on their way from the handlers of all workers to the control plane's process.

use crate::{captures::CaptureReaders, plain::Plain, waker::Waker};
use gatewright_stack::{
    Wake,
    builtin::{CAPTURED_MAX, CapturedPacket},
};
use gatewright_tables::MessageSender;
use std::{
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

/// Passes captured packets from one channel to the ring.
pub(super) struct CaptureRelay {
    captured: Receiver<CapturedPacket>,
    ring: MessageSender,
    /// Whether a handler captures.
    open: bool,
    octets: Vec<u8>,
    /// Whether `octets` are a packet for which the ring had no room yet.
    holds: bool,
}

/// How often the ring is looked at, and for how long, when packets are flushed to a slow reader.
const FLUSH_TRIES: u32 = 200;
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

impl CaptureRelay {
    /// Passes on what handlers send to `readers`.
    pub(super) fn new(ring: MessageSender, readers: &CaptureReaders) -> Self {
        let (out, captured) = sync_channel(CAPTURED_MAX);
        readers.send_away(out);
        Self { captured, ring, open: false, octets: Vec::new(), holds: false }
    }

    /// Whether a handler captures. Nobody is woken for a packet, so the relay looks for them.
    pub(super) const fn is_open(&self) -> bool {
        self.open || self.holds
    }

    /// Sets whether a handler captures.
    pub(super) const fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    /// Passes on the packets that wait, as far as there is room; returns whether there were any.
    /// Those that do not fit wait in the channel, and handlers count what that has no room for.
    pub(super) fn relay(&mut self) -> bool {
        let mut any = false;
        loop {
            if !self.holds {
                let Ok(packet) = self.captured.try_recv() else { return any };
                self.octets.clear();
                packet.put(&mut self.octets);
            }
            self.holds = !self.ring.has_room(self.octets.len());
            if self.holds {
                return any;
            }
            // There is room for it.
            let _fits = self.ring.send(&self.octets);
            any = true;
        }
    }

    /// Passes all on, unless the reader leaves no room for long.
    pub(super) fn flush(&mut self, reader: &Waker) {
        for _ in 0..FLUSH_TRIES {
            if self.relay() {
                reader.wake();
            }
            if !self.holds {
                return;
            }
            std::thread::sleep(FLUSH_PAUSE);
        }
    }
}
