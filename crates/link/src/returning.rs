//! A link whose device may go and come back.

use crate::share::Common;
use crate::{Link, LinkConfig, LinkCounters, LinkInfo, LinkState, Opener};
use gatewright_packet::Batch;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A link that is opened again when its device returns.
pub(crate) struct Returning {
    opener: Opener,
    config: LinkConfig,
    /// State in common with other shares of the link. It is dropped before the link: no frame may
    /// be on its way into a socket that is being closed.
    common: Option<Arc<Common>>,
    /// The link, while its device exists.
    link: Option<Box<dyn Link>>,
    /// The link's properties, or those before its device went.
    info: LinkInfo,
    /// The MTU for which it was opened: larger packets do not fit into its buffers.
    mtu_max: usize,
    /// Counters from before the device went the last time, and of later drops.
    before: LinkCounters,
}

/// A link, and its state in common with other shares.
pub(crate) struct Opened {
    pub(crate) link: Box<dyn Link>,
    pub(crate) common: Arc<Common>,
}

impl Returning {
    pub(crate) fn new(opener: Opener, config: LinkConfig, opened: Opened) -> Self {
        let Opened { link, common } = opened;
        let (info, before) = (link.info().clone(), LinkCounters::default());
        let mtu_max = info.mtu;
        Self { opener, config, common: Some(common), link: Some(link), info, mtu_max, before }
    }

    /// Takes over changes made to the device from outside.
    fn follow_device(&mut self) {
        if let Some(now) = self.link.as_ref().and_then(|link| link.device_now()) {
            self.info.mac = now.mac.or(self.info.mac);
            self.info.mtu = now.mtu.min(self.mtu_max);
        }
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
            let is_there = |common: &Arc<Common>| !common.has_gone();
            if state != LinkState::Gone && self.common.as_ref().is_some_and(is_there) {
                self.follow_device();
                return state;
            }
            // Everything of the old device goes before anything of the new one comes.
            self.before = self.counters();
            if let Some(common) = self.common.take() {
                common.goes();
            }
            self.link = None;
            return LinkState::Gone;
        }
        // Whatever stands in the way now may be gone the next time: the device, most of all.
        let Ok(opened) = self.opener.reopen(&self.config) else { return LinkState::Gone };
        let Opened { mut link, common } = opened;
        self.info = link.info().clone();
        self.mtu_max = self.info.mtu;
        let state = link.state();
        (self.link, self.common) = (Some(link), Some(common));
        state
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref()?.poll_fd()
    }
}
