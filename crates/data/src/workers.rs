//! The workers, seen from the control side.

use crate::{
    error::DataError,
    group::{FIRST, Handled},
    sojourn::Sojourn,
    worker::{Command, Waker},
};
use gatewright_link::{LinkCounters, LinkState};
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

/// One running worker.
pub(crate) struct WorkerHandle {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Waker>,
    pub(crate) handled: Handled,
    pub(crate) thread: Option<JoinHandle<()>>,
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
    handles: Vec<WorkerHandle>,
    sojourn: Arc<Sojourn>,
}

impl Workers {
    /// Creates an empty list; workers record sojourn times in `sojourn` and its parts.
    pub(crate) fn new(sojourn: Arc<Sojourn>) -> Self {
        Self { handles: Vec::new(), sojourn }
    }

    /// Adds a worker.
    pub(crate) fn add(&mut self, handle: WorkerHandle) {
        self.handles.push(handle);
    }

    /// The command channel of the first worker, for callers that do not wait for it to wake.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn commands_of_first(&self) -> Result<Sender<Command>, DataError> {
        let first = self.handles.get(FIRST).ok_or(DataError::Ended)?;
        Ok(first.commands.clone())
    }

    /// The number of workers.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Sojourn times of packets.
    pub fn sojourn(&self) -> &Sojourn {
        &self.sojourn
    }

    /// The counters of each worker.
    pub fn handled(&self) -> impl Iterator<Item = &Handled> {
        self.handles.iter().map(|handle| &handle.handled)
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
        let handle = self.handles.get(worker).ok_or(DataError::Ended)?;
        handle.commands.send(command).map_err(|_| DataError::Ended)?;
        Wake::wake(handle.waker.as_ref());
        Ok(())
    }

    /// Sends a command to each worker.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn each(&self, command: impl Fn() -> Command) -> Result<(), DataError> {
        (0..self.handles.len()).try_for_each(|worker| self.one(worker, command()))
    }

    /// Each link's counters over all workers, whether it is up, and the worker of each queue.
    ///
    /// # Errors
    ///
    /// [`DataError::Ended`] if a worker has ended.
    pub fn links(&self) -> Result<Vec<LinkNow>, DataError> {
        let mut all: Vec<LinkNow> = Vec::new();
        for worker in 0..self.handles.len() {
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
        let runs = |handle: &WorkerHandle| {
            handle.thread.as_ref().is_some_and(|thread| !thread.is_finished())
        };
        self.handles.iter().all(runs)
    }

    /// Wakes all of them, from any thread.
    pub fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(All(self.handles.iter().map(|handle| Arc::clone(&handle.waker)).collect()))
    }

    /// Stops them and waits until they have.
    pub fn stop(&mut self) {
        for handle in &self.handles {
            handle.waker.stop();
        }
        for thread in self.handles.iter_mut().filter_map(|handle| handle.thread.take()) {
            // A worker that panicked has said so on its own thread.
            let _panicked = thread.join();
        }
    }
}

impl Wake for Workers {
    fn wake(&self) {
        for handle in &self.handles {
            Wake::wake(handle.waker.as_ref());
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
