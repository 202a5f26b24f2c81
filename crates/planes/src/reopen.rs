//! A link that becomes another device while the gateway runs.
//!
//! The worker that owns the links does it, between two batches: a device gives its queues to one
//! link at a time, so the old link is closed first. Frames of the other links wait in their rings
//! for as long as that takes.

use crate::{setup::DeviceSetup, start::open};
use gatewright_link::{Link, LinkCounters, LinkInfo, LinkState, OpenError, Opener};
use gatewright_packet::Batch;
use std::{os::fd::BorrowedFd, time::Duration};

/// What is to be opened in place of what.
#[derive(Clone, Debug)]
pub(crate) struct Reopen {
    /// The new device.
    pub(crate) device: DeviceSetup,
    /// The one that is open, which comes back if the new one cannot be opened.
    pub(crate) before: DeviceSetup,
}

/// Why a link has not become another device.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReopened {
    /// It is what it was.
    #[error("{0}; it runs on as it was")]
    AsBefore(OpenError),
    /// It is closed now.
    #[error("{new}; and it could not be opened again as it was: {old}: it is closed")]
    Closed {
        /// Why the new device was not opened.
        new: OpenError,
        /// Why the old one was not.
        old: OpenError,
    },
}

/// Closes the link in `place` and opens it as `order` says.
pub(crate) fn reopen(
    opener: &Opener,
    place: &mut Box<dyn Link>,
    order: &Reopen,
) -> Result<LinkInfo, Box<NotReopened>> {
    let info = place.info().clone();
    *place = Box::new(Closed { info, counters: LinkCounters::default() });
    let new = match open(opener, &order.device) {
        Ok(link) => {
            *place = link;
            return Ok(place.info().clone());
        }
        Err(new) => new,
    };
    match open(opener, &order.before) {
        Ok(link) => {
            *place = link;
            Err(Box::new(NotReopened::AsBefore(new)))
        }
        Err(old) => Err(Box::new(NotReopened::Closed { new, old })),
    }
}

/// A link without a device: it gives nothing, and drops what it is given.
struct Closed {
    info: LinkInfo,
    counters: LinkCounters,
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

    fn counters(&mut self) -> LinkCounters {
        self.counters
    }

    fn state(&mut self) -> LinkState {
        LinkState::Gone
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
