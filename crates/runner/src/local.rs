//! A program with one loop that runs on the calling thread.

use crate::error::RunnerError;
use crate::mailbox::{LoopMessage, Mailbox};
use crate::peers::LostPeers;
use crate::resolver::Resolver;
use crate::runner::{Listening, LoopPlan, RunnerOptions, listening, plan};
use crate::worker::Worker;
use crate::{RunReport, plan::RoleSite};
use gatewright_edge::{Network, Poller};
use gatewright_lang::ir::Program;
use std::sync::Arc;
use std::time::Duration;

/// A program with one loop that runs on the thread that calls [`Self::run`].
///
/// Names are resolved on that thread, too. Over a simulated network everything that happens is thus
/// decided by the seeds.
#[derive(Debug)]
pub struct LocalLoop<N: Network> {
    worker: Worker<N::Poller>,
    sites: Vec<RoleSite>,
}

impl<N: Network> LocalLoop<N> {
    /// Binds the sockets of a program; [`RunnerOptions::loops`] is one.
    ///
    /// # Errors
    ///
    /// [`RunnerError`]; then nothing is bound.
    pub fn new(
        network: &N,
        program: &Arc<Program>,
        options: &RunnerOptions,
    ) -> Result<Self, RunnerError> {
        let LoopPlan { planned, sites } = plan(network, program, options, 1, &[])?;
        let mut worker =
            Worker::new(Resolver::here(network), network, LostPeers::new(options.peers.clone()))?;
        for planned in planned {
            worker.replace(planned, options.drain_within)?;
        }
        worker.meet(vec![worker.mailbox()], 0);
        Ok(Self { worker, sites })
    }

    /// Addresses of its servers.
    pub fn listening(&self) -> Vec<Listening> {
        listening(&self.sites)
    }

    /// Returns a handle that stops the loop from another thread.
    pub fn stopper(&self) -> Stopper<N::Poller> {
        Stopper(self.worker.mailbox())
    }

    /// Runs until it is stopped and nothing is left; returns its last report.
    pub fn run(self) -> RunReport {
        self.worker.run()
    }
}

/// Stops a [`LocalLoop`].
#[derive(Debug)]
pub struct Stopper<P: Poller>(Mailbox<P>);

impl<P: Poller> Stopper<P> {
    /// The loop takes no more requests, and ends when the running ones have, `within` at most.
    /// Returns whether it was told: it may have ended already.
    pub fn stop(&self, within: Duration) -> bool {
        self.0.try_send(LoopMessage::Stop { within })
    }
}
