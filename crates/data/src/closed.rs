//! A link without a device.

use crate::group::nothing;
use gatewright_link::{Link, LinkCounters, LinkInfo, LinkState};
use gatewright_packet::Batch;
use std::{os::fd::BorrowedFd, time::Duration};

/// A link without a device: it receives nothing, and drops packets sent by it.
pub(crate) struct Closed {
    info: LinkInfo,
    counters: LinkCounters,
}

impl Closed {
    /// The replacement of a closed link; a worker without a share of it sends nothing.
    pub(crate) fn after(link: &dyn Link) -> Self {
        let info = LinkInfo { queues: Vec::new(), ..link.info().clone() };
        Self { info, counters: LinkCounters::default() }
    }

    /// The placeholder where no link has come yet.
    pub(crate) fn spare() -> Self {
        let info = LinkInfo { why: "no link has come here yet".to_owned(), ..nothing() };
        Self { info, counters: LinkCounters::default() }
    }
}

impl Link for Closed {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, _: Duration, _: &mut Batch) -> usize {
        0
    }

    fn transmit(&mut self, _: Duration, batch: &mut Batch) {
        self.counters.transmit_down += batch.len() as u64;
        batch.clear();
    }

    fn counted(&self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        LinkState::Gone
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
