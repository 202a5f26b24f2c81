//! A link whose device may go and come back.

use crate::{Link, LinkConfig, LinkCounters, LinkInfo, LinkState, Opener};
use gatewright_packet::Batch;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A link that is opened again when its device, after having gone, is back.
pub(crate) struct Returning {
    opener: Opener,
    config: LinkConfig,
    /// The link, while its device is there.
    link: Option<Box<dyn Link>>,
    /// What the link is, or was before its device went.
    info: LinkInfo,
    /// What passed before the device went the last time, and what was dropped since.
    before: LinkCounters,
}

impl Returning {
    pub(crate) fn new(opener: Opener, config: LinkConfig, link: Box<dyn Link>) -> Self {
        let info = link.info().clone();
        Self { opener, config, link: Some(link), info, before: LinkCounters::default() }
    }
}

impl Link for Returning {
    fn info(&self) -> &LinkInfo {
        &self.info
    }

    fn receive(&mut self, now: Duration, batch: &mut Batch) -> usize {
        self.link.as_mut().map_or(0, |link| link.receive(now, batch))
    }

    fn transmit(&mut self, now: Duration, batch: &mut Batch) {
        if let Some(link) = &mut self.link {
            link.transmit(now, batch);
        } else {
            self.before.transmit_down += batch.len() as u64;
            batch.clear();
        }
    }

    fn counters(&mut self) -> LinkCounters {
        let now = self.link.as_mut().map(|link| link.counters()).unwrap_or_default();
        self.before.plus(now)
    }

    fn state(&mut self) -> LinkState {
        if let Some(link) = &mut self.link {
            let state = link.state();
            if state != LinkState::Gone {
                return state;
            }
            // Everything of the old device goes before anything of the new one comes.
            self.before = self.counters();
            self.link = None;
            return LinkState::Gone;
        }
        // Whatever stands in the way now may be gone the next time: the device, most of all.
        let Ok(mut link) = self.opener.reopen(&self.config) else { return LinkState::Gone };
        self.info = link.info().clone();
        let state = link.state();
        self.link = Some(link);
        state
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref()?.poll_fd()
    }
}
