//! The workers, seen from the control side.

use crate::{
    attachments::HandlerNow,
    captures::CaptureReaders,
    error::DataError,
    front::{Front, PendingAnswer},
    port::{HandlerValue, KeptHandler, Port, PortAnswer, PortRequest, RequestNumber},
    reopen::{Devices, PreparedDevices, reopen},
    waker::Waker,
    worker::Command,
};
use gatewright_histogram::Histogram;
use gatewright_link::{LinkState, Preparer};
use gatewright_stack::{Handler, Wake};
use gatewright_tables::{CounterSlots, WorkerHistograms};
use std::{
    fmt,
    sync::{Arc, mpsc::Sender},
    thread::JoinHandle,
    time::Duration,
};

/// What it takes to reach a worker.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Waker,
    pub(crate) counters: CounterSlots,
    /// Its number.
    pub(crate) own: usize,
    /// Opens devices for it.
    pub(crate) preparer: Preparer,
}

impl Hand {
    /// Sends a command.
    pub(crate) fn send(&self, command: Command) -> Result<(), DataError> {
        self.commands.send(command).map_err(|_| DataError::Ended)?;
        Wake::wake(&self.waker);
        Ok(())
    }
}

/// The thread of a worker. Dropping it stops the worker and waits until it has.
pub(crate) struct WorkerThread {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    pub(crate) const fn new(waker: Waker, thread: Option<JoinHandle<()>>) -> Self {
        Self { waker, thread }
    }

    fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn stop(&mut self) {
        self.waker.stop();
        if let Some(thread) = self.thread.take() {
            // A worker that panicked has said so on its own thread.
            let _panicked = thread.join();
        }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A worker's report on its share of a link.
pub(crate) struct ShareNow {
    pub(crate) state: LinkState,
    pub(crate) queues: Vec<u32>,
}

/// The combined report of all workers on a link. Its counters are in the table of counters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkNow {
    /// Whether it is up.
    pub state: LinkState,
    /// Its queues, each with its worker.
    pub queues: Vec<(u32, usize)>,
}

impl Default for LinkNow {
    fn default() -> Self {
        Self { state: LinkState::Up, queues: Vec::new() }
    }
}

/// All workers of a gateway, on threads. Dropping them stops them.
pub struct Workers {
    port: Arc<ThreadPort>,
    threads: Vec<WorkerThread>,
    sojourns: WorkerHistograms,
}

/// The port of workers on threads.
pub struct ThreadPort {
    front: Arc<Front>,
    devices: Devices,
    prepared: Arc<PreparedDevices>,
}

impl fmt::Debug for ThreadPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPort({} workers)", self.front.hands().len())
    }
}

impl Port for ThreadPort {
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        let (front, prepared) = (Arc::clone(&self.front), Arc::clone(&self.prepared));
        // The workers move the packets of the other links meanwhile.
        let waiting = match request {
            PortRequest::Prepare(order) => PendingAnswer::Prepared(
                self.devices.run(move || prepared.prepare(front.hands(), &order))?,
            ),
            PortRequest::DropPrepared => {
                self.devices.run(move || prepared.clear())?;
                PendingAnswer::Ready(PortAnswer::Done)
            }
            PortRequest::Reopen(order) => PendingAnswer::Reopened(
                self.devices.run(move || reopen(front.hands(), &order, &prepared))?,
            ),
            request => return self.front.submit(request),
        };
        Ok(self.front.wait(waiting))
    }

    fn answer(&self, number: RequestNumber, patience: Duration) -> Result<PortAnswer, DataError> {
        self.front.answer(number, patience)
    }

    fn handlers(&self) -> Vec<HandlerNow> {
        self.front.handlers()
    }

    fn keep(&self, handler: Box<dyn Handler>) -> Result<HandlerValue, DataError> {
        Ok(self.front.keep(handler))
    }

    fn take_kept(&self, number: KeptHandler) -> Option<Box<dyn Handler>> {
        self.front.take_kept(number)
    }

    fn capture_readers(&self) -> Arc<CaptureReaders> {
        self.front.capture_readers()
    }
}

impl Workers {
    pub(crate) fn new(
        front: Front,
        devices: Devices,
        threads: Vec<WorkerThread>,
        sojourns: WorkerHistograms,
    ) -> Self {
        Self {
            port: Arc::new(ThreadPort {
                front: Arc::new(front),
                devices,
                prepared: Arc::default(),
            }),
            threads,
            sojourns,
        }
    }

    /// Their port. It outlives them, and then says that they have ended.
    pub const fn port(&self) -> &Arc<ThreadPort> {
        &self.port
    }

    fn hands(&self) -> &[Hand] {
        self.port.front.hands()
    }

    /// The number of workers.
    pub fn len(&self) -> usize {
        self.hands().len()
    }

    /// Whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.hands().is_empty()
    }

    /// Sojourn times of packets in all workers, in nanoseconds.
    pub fn sojourn(&self) -> Histogram {
        self.sojourns.read(self.len())
    }

    /// Whether all run.
    pub fn are_running(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(WorkerThread::is_running)
    }

    /// The waker of each, by which another process wakes it, too.
    pub fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.hands().iter().map(|hand| &hand.waker)
    }

    /// Wakes all of them, from any thread.
    pub fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(AllWorkers(self.hands().iter().map(|hand| hand.waker.clone()).collect()))
    }

    /// Stops them and waits until they have.
    pub fn stop(&mut self) {
        // All are told before the first is awaited.
        self.hands().iter().for_each(|hand| hand.waker.stop());
        self.threads.clear();
    }
}

impl Wake for Workers {
    fn wake(&self) {
        for hand in self.hands() {
            Wake::wake(&hand.waker);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Wakes all workers.
pub(crate) struct AllWorkers(pub(crate) Vec<Waker>);

impl Wake for AllWorkers {
    fn wake(&self) {
        for waker in &self.0 {
            Wake::wake(waker);
        }
    }
}
