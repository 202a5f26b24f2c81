//! A link that is opened on another device while the gateway runs.
//!
//! The kernel takes milliseconds to open or close a device. A thread of its own does it
//! ([`Devices`]); workers only let go of a closed device and take an open one, between two batches.
//! A device gives its queues to one link at a time, so the old one is closed for all workers before
//! the new one is opened.

use crate::{
    error::DataError,
    link_counts::LinkCounts,
    port::ANSWER_WITHIN,
    setup::{DeviceSetup, WorkerLink},
    shares::{share_of, shares},
    worker::{Command, NewDevice},
    workers::Hand,
};
use gatewright_link::{LinkConfig, LinkInfo, OpenError, Share, UnboundLink};
use gatewright_packet::LinkIndex;
use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
};

/// A device to be opened in place of another.
#[derive(Clone, Debug)]
pub struct Reopen {
    /// The new device.
    pub device: WorkerLink,
    /// The open device, which is restored if the new one cannot be opened.
    pub before: WorkerLink,
}

type Task = Box<dyn FnOnce() + Send>;

/// The thread on which devices are opened and closed. It is in the network namespace of the
/// workers, wherever the control plane is.
pub(crate) struct Devices {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl Devices {
    pub(crate) fn start() -> io::Result<Self> {
        let (tasks, waiting) = channel::<Task>();
        let run = move || waiting.into_iter().for_each(|task| task());
        let thread = std::thread::Builder::new().name("devices".to_owned()).spawn(run)?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread) })
    }

    /// Runs `task` on the thread; its result comes by the channel.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        task: impl FnOnce() -> R + Send + 'static,
    ) -> Result<Receiver<R>, DataError> {
        let (answer, done) = channel();
        let task = move || {
            // Whoever asked may wait no more.
            let _gone = answer.send(task());
        };
        let tasks = self.tasks.as_ref().ok_or(DataError::Ended)?;
        tasks.send(Box::new(task)).map_err(|_| DataError::Ended)?;
        Ok(done)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _panicked = thread.join();
        }
    }
}

/// Closes a link of `workers` and opens it as `order` says; returns its new properties.
pub(crate) fn reopen(workers: &[Hand], order: &Reopen) -> Result<LinkInfo, DataError> {
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

/// Makes all workers let go of their shares of a link, and closes these.
fn close(workers: &[Hand], order: &Reopen) -> Result<(), DataError> {
    let link = order.device.device.index();
    let let_go = |worker: &Hand| {
        let (answer, closing) = channel();
        worker.send(Command::CloseDevice(link, answer))?;
        closing.recv_timeout(ANSWER_WITHIN).map_err(|_| DataError::Ended)
    };
    let closing = workers.iter().map(let_go).collect::<Result<Vec<_>, _>>()?;
    drop(closing);
    Ok(())
}

/// Opens each worker's share of a link, one after the other; returns the properties of the first
/// share. The outer result is that of asking the workers.
fn open_all(workers: &[Hand], link: &WorkerLink) -> Result<Result<LinkInfo, OpenError>, DataError> {
    let shares = match shares(link, workers.len()) {
        Ok(shares) => shares,
        Err(error) => return Ok(Err(error)),
    };
    let (index, mut first) = (link.device.index(), None);
    for (number, worker) in workers.iter().enumerate() {
        let share = share_of(link.device.dealt_as(), number, workers.len(), shares);
        let device = match share.map(|share| prepare(worker, &link.device, share)).transpose() {
            Ok(device) => device.unwrap_or(NewDevice::Away(link.device.dealt_as(), shares)),
            Err(error) => return Ok(Err(error)),
        };
        let counts = LinkCounts::new(&worker.counters, worker.own, (index, &link.name))?;
        match take(worker, index, (device, counts))? {
            Ok(info) if share.is_some_and(|share| share.number == 0) => first = Some(info),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    // There is a first share wherever there are shares.
    first.map(Ok).ok_or(DataError::Ended)
}

/// Makes a worker take a device.
fn take(
    worker: &Hand,
    link: LinkIndex,
    device: (NewDevice, LinkCounts),
) -> Result<Result<LinkInfo, OpenError>, DataError> {
    let (answer, taken) = channel();
    worker.send(Command::TakeDevice(link, Box::new(device), answer))?;
    taken.recv_timeout(ANSWER_WITHIN).map_err(|_| DataError::Ended)
}

/// Opens a worker's share of a device.
fn prepare(worker: &Hand, device: &DeviceSetup, share: Share) -> Result<NewDevice, OpenError> {
    let opened: UnboundLink = match device {
        DeviceSetup::Interface(device) => {
            worker.preparer.prepare(&LinkConfig { share, ..device.clone() })?
        }
        DeviceSetup::Tap(device) => worker.preparer.prepare_tap(device)?,
        DeviceSetup::Capture(device) => worker.preparer.prepare_capture(device)?,
        DeviceSetup::Segment(device) => return Ok(NewDevice::Segment(Box::new(device.clone()))),
        DeviceSetup::Virtual(own) => {
            let (name, reason) = (own.tag.to_string(), "it has no device".to_owned());
            return Err(OpenError::Unsupported { name, reason });
        }
        DeviceSetup::Spare(_) => return Ok(NewDevice::None),
    };
    Ok(NewDevice::Open(Box::new(opened)))
}
