//! A link that is opened on another device while the gateway runs.
//!
//! The kernel takes milliseconds to open or close a device. A thread of its own does it
//! ([`Devices`]); workers only let go of a closed device and take an open one, between two batches.
//! Another device is open before the old one is closed: if it cannot be opened, the link has lost
//! nothing. A device gives its queues to one link at a time, so the same device with other settings
//! is first closed for all workers.

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
    collections::BTreeMap,
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
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

impl Reopen {
    /// Whether the device that `other` opens is the one that this closes, so that it can only be
    /// opened afterwards.
    pub fn makes_way_for(&self, other: &Self) -> bool {
        let (closed, opened) = (interface(&self.before.device), interface(&other.device.device));
        closed.is_some() && closed == opened
    }
}

/// Devices that are open already and wait for their links, at most one a link.
#[derive(Default)]
pub(crate) struct PreparedDevices(Mutex<BTreeMap<LinkIndex, Vec<Prepared>>>);

impl PreparedDevices {
    /// A poisoned lock is safe here: each change is whole before the next.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LinkIndex, Vec<Prepared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the new device of an order while the last one is open, and keeps it; or checks it, if
    /// it can only be opened afterwards.
    pub(crate) fn prepare(&self, workers: &[Hand], order: &Reopen) -> Result<(), DataError> {
        if let Some(prepared) = prepare_beside(workers, order)? {
            self.lock().insert(order.device.device.index(), prepared);
        }
        Ok(())
    }

    /// Closes the devices.
    pub(crate) fn clear(&self) {
        let closed = std::mem::take(&mut *self.lock());
        drop(closed);
    }

    fn take(&self, link: LinkIndex) -> Option<Vec<Prepared>> {
        self.lock().remove(&link)
    }
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

/// Opens the new device of an order while the last one is open. `None` if it can only be opened
/// afterwards; then it is checked.
fn prepare_beside(workers: &[Hand], order: &Reopen) -> Result<Option<Vec<Prepared>>, DataError> {
    let as_it_was = |new: OpenError| {
        let reason = format!("{new}; it runs on as it was");
        DataError::Reopen { name: order.device.name.clone(), reason }
    };
    if is_another(&order.before.device, &order.device.device) {
        return prepare_all(workers, &order.device).map(Some).map_err(as_it_was);
    }
    check(workers, order).map_err(as_it_was)?;
    Ok(None)
}

/// Opens a link of `workers` as `order` says and closes it as it was; returns its new properties. A
/// device that was prepared for the link is taken.
pub(crate) fn reopen(
    workers: &[Hand],
    order: &Reopen,
    prepared: &PreparedDevices,
) -> Result<LinkInfo, DataError> {
    let prepared = match prepared.take(order.device.device.index()) {
        Some(prepared) => Some(prepared),
        None => prepare_beside(workers, order)?,
    };
    close(workers, order)?;
    let opened = open_closed(workers, order, prepared);
    // Whether it was opened, or is closed now: from here on its state is that of what it has.
    for worker in workers {
        worker.send(Command::Opened(order.device.device.index()))?;
    }
    opened
}

/// Opens a link that is closed as `order` says, or as it was.
fn open_closed(
    workers: &[Hand],
    order: &Reopen,
    prepared: Option<Vec<Prepared>>,
) -> Result<LinkInfo, DataError> {
    let opened = match prepared {
        Some(prepared) => take_all(workers, &order.device, prepared)?,
        None => open_all(workers, &order.device)?,
    };
    let new = match opened {
        Ok(info) => return Ok(info),
        Err(new) => new,
    };
    // Some may have their share of it.
    close(workers, order)?;
    let reason = match open_all(workers, &order.before)? {
        Ok(_) => format!("{new}; it was closed for that, and is open again as it was"),
        Err(old) => {
            close(workers, order)?;
            format!("{new}; and it could not be opened again as it was: {old}: it is closed")
        }
    };
    Err(DataError::Reopen { name: order.device.name.clone(), reason })
}

/// Whether `new` can be opened while `old` is open: they are not the same interface or file.
fn is_another(old: &DeviceSetup, new: &DeviceSetup) -> bool {
    match (old, new) {
        // A port may be over the interface, and one of the same name can be open once.
        (DeviceSetup::Capture(_), DeviceSetup::Capture(_))
        | (DeviceSetup::Dpdk(_), _)
        | (_, DeviceSetup::Dpdk(_)) => false,
        _ => match (interface(old), interface(new)) {
            // The kernel replaces `%d` by a number that is not known here.
            (Some(old), Some(new)) => old != new && !old.contains('%') && !new.contains('%'),
            _ => true,
        },
    }
}

/// The name of a device that is an interface of the kernel.
fn interface(device: &DeviceSetup) -> Option<&str> {
    match device {
        DeviceSetup::Interface(device) => Some(&device.interface),
        DeviceSetup::Tap(device) => Some(&device.interface),
        DeviceSetup::Capture(_)
        | DeviceSetup::Dpdk(_)
        | DeviceSetup::Segment(_)
        | DeviceSetup::Virtual(_)
        | DeviceSetup::Spare(_) => None,
    }
}

/// Finds out, as far as is known before opening it, whether a device can be opened.
fn check(workers: &[Hand], order: &Reopen) -> Result<(), OpenError> {
    let link = &order.device;
    let shares = shares(link, workers.len())?;
    if let (DeviceSetup::Dpdk(before), DeviceSetup::Dpdk(port)) =
        (&order.before.device, &link.device)
        && let Some(reason) = port.excluded_by(before)
    {
        let (name, reason) = (port.port.clone(), reason.to_owned());
        return Err(OpenError::Unsupported { name, reason });
    }
    let DeviceSetup::Interface(device) = &link.device else { return Ok(()) };
    for (number, worker) in workers.iter().enumerate() {
        if let Some(share) = share_of(link.device.dealt_as(), number, workers.len(), shares) {
            worker.preparer.check(&LinkConfig { share, ..device.clone() })?;
        }
    }
    Ok(())
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

/// Opens each worker's share of a link, and makes the workers take them. The outer result is that
/// of asking the workers.
fn open_all(workers: &[Hand], link: &WorkerLink) -> Result<Result<LinkInfo, OpenError>, DataError> {
    match prepare_all(workers, link) {
        Ok(prepared) => take_all(workers, link, prepared),
        Err(error) => Ok(Err(error)),
    }
}

/// A worker's share of a link, if it has one, and its device.
type Prepared = (Option<Share>, NewDevice);

/// Opens each worker's share of a link, one after the other; no worker has it yet.
fn prepare_all(workers: &[Hand], link: &WorkerLink) -> Result<Vec<Prepared>, OpenError> {
    let (of, shares) = (workers.len(), shares(link, workers.len())?);
    let dealt_as = link.device.dealt_as();
    let one = |(number, worker): (usize, &Hand)| {
        let share = share_of(dealt_as, number, of, shares);
        let device = share.map(|share| prepare(worker, &link.device, share)).transpose()?;
        Ok((share, device.unwrap_or(NewDevice::Away(dealt_as, shares))))
    };
    workers.iter().enumerate().map(one).collect()
}

/// Makes each worker take its share of a link; returns the properties of the first share. The outer
/// result is that of asking the workers.
fn take_all(
    workers: &[Hand],
    link: &WorkerLink,
    prepared: Vec<Prepared>,
) -> Result<Result<LinkInfo, OpenError>, DataError> {
    let (index, mut first) = (link.device.index(), None);
    for (worker, (share, device)) in workers.iter().zip(prepared) {
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
        DeviceSetup::Dpdk(device) => worker.preparer.prepare_dpdk(device)?,
        DeviceSetup::Segment(device) => return Ok(NewDevice::Segment(Box::new(device.clone()))),
        DeviceSetup::Virtual(own) => {
            let (name, reason) = (own.tag.to_string(), "it has no device".to_owned());
            return Err(OpenError::Unsupported { name, reason });
        }
        DeviceSetup::Spare(_) => return Ok(NewDevice::None),
    };
    Ok(NewDevice::Open(Box::new(opened)))
}
