//! A link that is opened on another device while the gateway runs.
//!
//! The workers that have the link do it between two batches. A device gives its queues to one link
//! at a time, so all of them close the old link first. Frames of the other links wait in their
//! rings meanwhile.

use crate::{
    error::DataError,
    group::nothing,
    setup::{DeviceSetup, WorkerLink},
    shares::{share_of, shares},
    worker::Command,
    workers::{ANSWER_WITHIN, Workers},
};
use gatewright_link::{Link, LinkCounters, LinkInfo, LinkState, OpenError, Share};
use gatewright_packet::Batch;
use std::{os::fd::BorrowedFd, sync::mpsc::channel, time::Duration};

/// A device to be opened in place of another.
#[derive(Clone, Debug)]
pub struct Reopen {
    /// The new device.
    pub device: WorkerLink,
    /// The open device, which is restored if the new one cannot be opened.
    pub before: WorkerLink,
}

/// A worker's replacement for a link.
#[derive(Debug)]
pub struct OpenDevice {
    /// The device.
    pub device: DeviceSetup,
    /// Its share; `None` if other workers have all `shares`.
    pub share: Option<Share>,
    /// The number of workers that have a share.
    pub shares: usize,
}

/// Maximum time to open a link: a busy queue is requested again for a second.
const OPENED_WITHIN: Duration = Duration::from_secs(10);

/// Makes the workers close a link and open it as `order` says; returns its new properties.
///
/// # Errors
///
/// [`DataError::Reopen`] with the resulting state of the link.
pub fn reopen(workers: &Workers, order: &Reopen) -> Result<LinkInfo, DataError> {
    close(workers, order)?;
    let new = match open_all(workers, &order.device)? {
        Ok(info) => return Ok(info),
        Err(new) => new,
    };
    // Some may have their share of it.
    close(workers, order)?;
    let reason = match open_all(workers, &order.before)? {
        Ok(_) => format!("{new}; it runs on as it was"),
        Err(old) => {
            close(workers, order)?;
            format!("{new}; and it could not be opened again as it was: {old}: it is closed")
        }
    };
    Err(DataError::Reopen { name: order.device.name.clone(), reason })
}

/// Makes all workers close their shares of a link.
fn close(workers: &Workers, order: &Reopen) -> Result<(), DataError> {
    for worker in 0..workers.len() {
        let (answer, closed) = channel();
        let link = order.device.device.index();
        workers.one(worker, Command::CloseDevice(link, answer))?;
        closed.recv_timeout(ANSWER_WITHIN).map_err(|_| DataError::Ended)?;
    }
    Ok(())
}

/// Makes each worker open its share of a link, one after the other; returns the properties of the
/// first share. The outer result is that of asking the workers.
fn open_all(
    workers: &Workers,
    link: &WorkerLink,
) -> Result<Result<LinkInfo, OpenError>, DataError> {
    let shares = match shares(link, workers.len()) {
        Ok(shares) => shares,
        Err(error) => return Ok(Err(error)),
    };
    let mut first = None;
    for worker in 0..workers.len() {
        let share = share_of(link.device.index(), worker, workers.len(), shares);
        let order = OpenDevice { device: link.device.clone(), share, shares };
        let (answer, opened) = channel();
        workers.one(worker, Command::OpenDevice(Box::new(order), answer))?;
        match opened.recv_timeout(OPENED_WITHIN).map_err(|_| DataError::Ended)? {
            Ok(info) if share.is_some_and(|share| share.number == 0) => first = Some(info),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    // There is a first share wherever there are shares.
    first.map(Ok).ok_or(DataError::Ended)
}

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
