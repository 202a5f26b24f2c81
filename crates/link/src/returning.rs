//! A link whose device may disappear and return.

use crate::interface::Interface;
use crate::open::HEADER_LEN_MAX;
use crate::share::Common;
use crate::unbound::{Opened, UnboundLink};
use crate::{Closing, ClosingDevice, Link, LinkConfig, LinkCounters, LinkInfo, LinkState, Mode};
use crate::{OpenError, Preparer, RemainingChunks};
use gatewright_packet::{Batch, Pool};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A link that is opened again when its device returns.
///
/// Closing and opening a device take the kernel milliseconds, during which the worker's other links
/// would wait. So a thread does it, one at a time for each link.
pub(crate) struct Returning {
    preparer: Preparer,
    pool: Rc<Pool>,
    config: LinkConfig,
    /// State in common with other shares of the link.
    common: Option<Arc<Common>>,
    /// The link, while its device exists.
    link: Option<Box<dyn Link>>,
    /// The thread that closes the device that has gone and opens the one that has returned.
    opening: Option<Opening>,
    /// Chunks lent to the device that has gone.
    remaining: RemainingChunks,
    /// The link's properties, or those before its device disappeared.
    info: LinkInfo,
    /// Octets of the largest packet that the slab's chunks hold.
    mtu_max: usize,
    /// Counters from before the device's last disappearance, and of later drops.
    before: LinkCounters,
}

/// A thread that opens a device. Dropping it waits for the thread: a device that nobody awaits is
/// not open for long.
struct Opening(Option<JoinHandle<Result<UnboundLink, OpenError>>>);

impl Opening {
    fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn finish(mut self) -> Option<UnboundLink> {
        // Whatever stands in the way now may be gone the next time.
        self.0.take()?.join().ok()?.ok()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // A thread that panicked has said so.
        let _opened = self.0.take().map(JoinHandle::join);
    }
}

impl Returning {
    pub(crate) fn new(
        preparer: Preparer,
        pool: Rc<Pool>,
        config: LinkConfig,
        opened: Opened,
    ) -> Self {
        let Opened { device, common } = opened;
        let link = device.bind(&pool);
        let (info, before) = (link.info().clone(), LinkCounters::default());
        let mtu_max = preparer.slab().packet_len_max().saturating_sub(HEADER_LEN_MAX);
        Self {
            preparer,
            pool,
            config,
            common: Some(common),
            link: Some(link),
            opening: None,
            remaining: RemainingChunks::default(),
            info,
            mtu_max,
            before,
        }
    }

    /// Takes over changes made to the device from outside.
    fn follow_device(&mut self) {
        if let Some(link) = &mut self.link {
            link.follow_device(self.mtu_max);
            (self.info.link_address, self.info.mtu) = (link.info().link_address, link.info().mtu);
        }
    }

    /// Whether a program in the driver leaves frames for other stations than the link's to the kernel:
    /// it holds the link's address, and another one has to be loaded for another address.
    fn is_divided_by_address(&self) -> bool {
        let in_driver =
            matches!(self.info.mode, Mode::XdpZeroCopy | Mode::XdpCopy | Mode::XdpGeneric);
        in_driver && !self.config.exclusive
    }

    /// The halves of the link and of its common state, if it is open.
    fn take_apart(&mut self) -> Closing {
        let common = self.common.take();
        self.link.take().map_or_else(Closing::default, Link::close).with_common(common)
    }

    /// Closes the device that has gone. Everything of it goes before anything of the new one comes.
    fn goes(&mut self) {
        self.before = self.counters();
        if let Some(common) = &self.common {
            common.goes();
        }
        let (device, remaining) = self.take_apart().into_parts();
        self.remaining = remaining;
        self.open_aside(Some(device));
    }

    /// Opens the device on a thread, once `gone` is closed.
    fn open_aside(&mut self, gone: Option<ClosingDevice>) {
        let (preparer, config) = (self.preparer.clone(), self.config.clone());
        let open = move || {
            drop(gone);
            preparer.prepare(&config)
        };
        // Without a thread the next look tries again.
        let thread = thread::Builder::new().name("device".to_owned()).spawn(open);
        self.opening = thread.ok().map(|thread| Opening(Some(thread)));
    }

    /// The device that has returned, if it is open now; begins to open it otherwise.
    fn returned(&mut self) -> Option<LinkState> {
        match self.opening.take_if(|opening| opening.is_finished()) {
            None if self.opening.is_some() => None,
            // A thread only for a device that is there.
            None => {
                if Interface::find(&self.config.interface).is_ok() {
                    self.open_aside(None);
                }
                None
            }
            Some(opening) => {
                let opened = opening.finish()?;
                let (mut link, common) = opened.bind_returned(&self.pool)?;
                self.info = link.info().clone();
                let state = link.state();
                (self.link, self.common) = (Some(link), Some(common));
                // It may have changed since it was opened.
                self.follow_device();
                Some(state)
            }
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

    fn counted(&self) -> LinkCounters {
        self.before.plus(self.link.as_ref().map(|link| link.counted()).unwrap_or_default())
    }

    fn state(&mut self) -> LinkState {
        if let Some(link) = &mut self.link {
            let state = link.state();
            let is_there = |common: &Arc<Common>| !common.has_gone();
            if state != LinkState::Gone && self.common.as_ref().is_some_and(is_there) {
                let before = self.info.link_address;
                self.follow_device();
                if before == self.info.link_address || !self.is_divided_by_address() {
                    return state;
                }
            }
            self.goes();
            return LinkState::Gone;
        }
        if self.remaining.are_released() {
            self.remaining = RemainingChunks::default();
        }
        self.returned().unwrap_or(LinkState::Gone)
    }

    fn close(mut self: Box<Self>) -> Closing {
        let (opening, remaining) = (self.opening.take(), std::mem::take(&mut self.remaining));
        let closing = self.take_apart().with_remaining(remaining);
        match opening {
            Some(opening) => closing.with_opening(opening),
            None => closing,
        }
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref()?.poll_fd()
    }
}
