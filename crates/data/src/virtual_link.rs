//! A virtual link among a worker's links: it keeps counters and properties; its frames use the link
//! below.

use crate::group::nothing;
use gatewright_link::{Link, LinkCounters, LinkInfo, LinkState};
use gatewright_packet::Batch;
use gatewright_stack::VirtualLinkCounters;
use std::{os::fd::BorrowedFd, time::Duration};

/// A link without a device.
pub(crate) struct WithoutDevice {
    info: LinkInfo,
    counters: VirtualLinkCounters,
    /// Packets handed to it in spite of that.
    dropped: u64,
}

impl WithoutDevice {
    /// One whose frames are counted in `counters`; what it is, the control side knows.
    pub(crate) fn new(counters: VirtualLinkCounters) -> Self {
        Self { info: nothing(), counters, dropped: 0 }
    }
}

impl Link for WithoutDevice {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, _: Duration, _: &mut Batch) -> usize {
        0
    }

    fn transmit(&mut self, _: Duration, batch: &mut Batch) {
        self.dropped += batch.len() as u64;
        batch.clear();
    }

    fn counted(&self) -> LinkCounters {
        let VirtualLinkCounters { received, received_octets, sent, sent_octets } = &self.counters;
        LinkCounters {
            received: received.get(),
            received_octets: received_octets.get(),
            sent: sent.get(),
            sent_octets: sent_octets.get(),
            transmit_down: self.dropped,
            ..LinkCounters::default()
        }
    }

    /// It is up as far as it can tell: the control side takes it down with the link below.
    fn state(&mut self) -> LinkState {
        LinkState::Up
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
