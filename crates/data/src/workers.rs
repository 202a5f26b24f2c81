//! The workers, seen from the control side.

use crate::{
    error::DataError,
    group::{FIRST, Handled},
    reopen::{Devices, Reopen, reopen},
    sojourn::Sojourn,
    worker::{Command, Waker},
};
use gatewright_link::{LinkCounters, LinkInfo, LinkState, Preparer};
use gatewright_stack::Wake;
use std::{
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Maximum time for a worker's answer. It answers between two batches, so a worker that takes
/// longer has ended or hangs in a handler.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// What it takes to reach a worker.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Waker>,
    /// Opens devices for it.
    pub(crate) preparer: Preparer,
}

impl Hand {
    /// Sends a command.
    pub(crate) fn send(&self, command: Command) -> Result<(), DataError> {
        self.commands.send(command).map_err(|_| DataError::Ended)?;
        Wake::wake(self.waker.as_ref());
        Ok(())
    }
}

/// The thread of a worker. Dropping it stops the worker and waits until it has.
pub(crate) struct Running {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) const fn new(waker: Arc<Waker>, thread: Option<JoinHandle<()>>) -> Self {
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

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A worker's report on its share of a link.
pub struct ShareNow {
    /// Its counters.
    pub counters: LinkCounters,
    /// Whether it is up.
    pub state: LinkState,
    /// Its queues.
    pub queues: Vec<u32>,
}

/// The combined report of all workers on a link.
pub struct LinkNow {
    /// The sums of the counters of its shares.
    pub counters: LinkCounters,
    /// Whether it is up.
    pub state: LinkState,
    /// Its queues, each with its worker.
    pub queues: Vec<(u32, usize)>,
}

impl Default for LinkNow {
    fn default() -> Self {
        Self { counters: LinkCounters::default(), state: LinkState::Up, queues: Vec::new() }
    }
}

/// All workers of a gateway. Dropping them stops them.
pub struct Workers {
    hands: Arc<Vec<Hand>>,
    handled: Vec<Handled>,
    threads: Vec<Running>,
    sojourn: Arc<Sojourn>,
    devices: Devices,
}

impl Workers {
    /// Creates an empty list; workers record sojourn times in `sojourn` and its parts.
    pub(crate) fn new(sojourn: Arc<Sojourn>, devices: Devices) -> Self {
        let (hands, handled, threads) = (Arc::default(), Vec::new(), Vec::new());
        Self { hands, handled, threads, sojourn, devices }
    }

    /// Adds a worker.
    pub(crate) fn add(&mut self, hand: Hand, running: Running, handled: Handled) {
        Arc::make_mut(&mut self.hands).push(hand);
        self.handled.push(handled);
        self.threads.push(running);
    }

    /// The command channel of the first worker, for callers that do not wait for it to wake.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn commands_of_first(&self) -> Result<Sender<Command>, DataError> {
        let first = self.hands.get(FIRST).ok_or(DataError::Ended)?;
        Ok(first.commands.clone())
    }

    /// The number of workers.
    pub fn len(&self) -> usize {
        self.hands.len()
    }

    /// Whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.hands.is_empty()
    }

    /// Sojourn times of packets.
    pub fn sojourn(&self) -> &Sojourn {
        &self.sojourn
    }

    /// The counters of each worker.
    pub fn handled(&self) -> impl Iterator<Item = &Handled> {
        self.handled.iter()
    }

    /// Sends a command to the first worker, which handles all packets that are not transit.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn first(&self, command: Command) -> Result<(), DataError> {
        self.one(FIRST, command)
    }

    /// Sends a command to a worker.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if it has ended.
    pub fn one(&self, worker: usize, command: Command) -> Result<(), DataError> {
        self.hands.get(worker).ok_or(DataError::Ended)?.send(command)
    }

    /// Sends a command to each worker.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn each(&self, command: impl Fn() -> Command) -> Result<(), DataError> {
        self.hands.iter().try_for_each(|hand| hand.send(command()))
    }

    /// Closes a link and opens it as `order` says, while the workers move the packets of the other
    /// links; returns its new properties.
    ///
    /// # Errors
    ///
    /// [`DataError::Reopen`] with the resulting state of the link.
    pub fn reopen(&self, order: &Reopen) -> Result<LinkInfo, DataError> {
        let (hands, order) = (Arc::clone(&self.hands), order.clone());
        self.devices.run(move || reopen(&hands, &order))?
    }

    /// Each link's counters over all workers, whether it is up, and the worker of each queue.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn links(&self) -> Result<Vec<LinkNow>, DataError> {
        let mut all: Vec<LinkNow> = Vec::new();
        for worker in 0..self.hands.len() {
            let (answer, links) = channel();
            self.one(worker, Command::Links(answer))?;
            let links = links.recv_timeout(ANSWER_WITHIN).map_err(|_| DataError::Ended)?;
            all.resize_with(links.len(), LinkNow::default);
            for (now, ShareNow { counters, state, queues }) in all.iter_mut().zip(links) {
                now.counters = now.counters.plus(counters);
                // Who does not have a link says that it is up.
                now.state = if now.state == LinkState::Up { state } else { now.state };
                now.queues.extend(queues.into_iter().map(|queue| (queue, worker)));
            }
        }
        for now in &mut all {
            now.queues.sort_unstable();
        }
        Ok(all)
    }

    /// Whether all run.
    pub fn are_running(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(Running::is_running)
    }

    /// Wakes all of them, from any thread.
    pub fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(All(self.hands.iter().map(|hand| Arc::clone(&hand.waker)).collect()))
    }

    /// Stops them and waits until they have.
    pub fn stop(&mut self) {
        // All are told before the first is awaited.
        self.hands.iter().for_each(|hand| hand.waker.stop());
        self.threads.clear();
    }
}

impl Wake for Workers {
    fn wake(&self) {
        for hand in self.hands.iter() {
            Wake::wake(hand.waker.as_ref());
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

struct All(Vec<Arc<Waker>>);

impl Wake for All {
    fn wake(&self) {
        for waker in &self.0 {
            Wake::wake(waker.as_ref());
        }
    }
}
