//! A data plane, wherever its workers run.

use crate::{
    attachments::HandlerNow,
    captures::CaptureReaders,
    error::DataError,
    open_capture::{CaptureCloser, OpenCapture},
    port::{HandlerValue, KeptHandler, Port, PortAnswer, PortRequest, RequestNumber},
    process::{DataProcess, Downtime, OpenLinks},
    setup::WorkerLink,
    workers::Workers,
};
use gatewright_histogram::Histogram;
use gatewright_link::ForwardingMaps;
use gatewright_stack::{Handler, Wake};
use std::{fmt, sync::Arc, time::Duration};

/// A data plane: on threads of this process, or in a process of its own. Dropping it stops it.
pub enum DataPlane {
    /// On threads.
    Threads(Workers),
    /// In a process.
    Process(DataProcess),
}

impl fmt::Debug for DataPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(workers) => write!(f, "Threads({} workers)", workers.len()),
            Self::Process(process) => process.fmt(f),
        }
    }
}

impl DataPlane {
    /// Its port. It outlives the data plane, and then says that it has ended.
    pub fn port(&self) -> PlanePort {
        match self {
            Self::Threads(workers) => {
                let port: &Arc<_> = workers.port();
                PlanePort(Arc::<crate::ThreadPort>::clone(port))
            }
            Self::Process(process) => {
                let port: &Arc<_> = process.port();
                PlanePort(Arc::<crate::ProcessPort>::clone(port))
            }
        }
    }

    /// The number of workers.
    pub fn len(&self) -> usize {
        match self {
            Self::Threads(workers) => workers.len(),
            Self::Process(process) => process.len(),
        }
    }

    /// Whether there are no workers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sojourn times of packets in all workers, in nanoseconds.
    pub fn sojourn(&self) -> Histogram {
        match self {
            Self::Threads(workers) => workers.sojourn(),
            Self::Process(process) => process.sojourn(),
        }
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        match self {
            Self::Threads(workers) => workers.are_running(),
            Self::Process(process) => process.is_running(),
        }
    }

    /// The id of its process, if it has one of its own.
    pub fn process(&self) -> Option<u32> {
        match self {
            Self::Threads(_) => None,
            Self::Process(process) => Some(process.id()),
        }
    }

    /// Exchanges its process for another with the same state; `None` if it has none of its own.
    pub fn exchange(&self) -> Option<Result<Downtime, DataError>> {
        match self {
            Self::Threads(_) => None,
            Self::Process(process) => Some(process.exchange()),
        }
    }

    /// Whether its process has died so often that no other is started until somebody asks.
    pub fn is_given_up(&self) -> bool {
        match self {
            Self::Threads(_) => false,
            Self::Process(process) => process.is_given_up(),
        }
    }

    /// Starts its process again after it was given up: as it was, or with `links` in their places if
    /// it does not start so. Returns its links; `None` if it was not given up.
    ///
    /// # Errors
    ///
    /// Why it does not start.
    pub fn start_again(&self, links: &[WorkerLink]) -> Option<Result<OpenLinks, DataError>> {
        match self {
            Self::Process(process) if process.is_given_up() => {
                Some(process.start_again(links).map(|()| process.open_links()))
            }
            Self::Threads(_) | Self::Process(_) => None,
        }
    }

    /// Has drivers forward by other maps, if it is in a process of its own.
    ///
    /// # Errors
    ///
    /// As [`DataProcess::exchange_maps`].
    pub fn exchange_maps(&self, maps: &Arc<ForwardingMaps>) -> Result<(), DataError> {
        match self {
            Self::Threads(_) => Ok(()),
            Self::Process(process) => process.exchange_maps(maps),
        }
    }

    /// Has its process give a later control plane a memo; nothing on threads, which end with this
    /// control plane.
    ///
    /// # Errors
    ///
    /// As [`DataProcess::keep_memo`].
    pub fn keep_memo(&self, memo: &str) -> Result<(), DataError> {
        match self {
            Self::Threads(_) => Ok(()),
            Self::Process(process) => process.keep_memo(memo),
        }
    }

    /// Whether a link of its process is open as `link` says; false on threads, which nobody has
    /// started again.
    pub fn has_link(&self, link: &WorkerLink) -> bool {
        match self {
            Self::Threads(_) => false,
            Self::Process(process) => process.port().has_link(link),
        }
    }

    /// Wakes all workers, from any thread.
    pub fn waker(&self) -> Arc<dyn Wake> {
        match self {
            Self::Threads(workers) => workers.waker(),
            Self::Process(process) => process.waker(),
        }
    }

    /// Stops it and waits until it has ended.
    pub fn stop(&mut self) {
        match self {
            Self::Threads(workers) => workers.stop(),
            Self::Process(process) => process.stop(),
        }
    }
}

impl Wake for DataPlane {
    fn wake(&self) {
        match self {
            Self::Threads(workers) => workers.wake(),
            Self::Process(process) => process.wake(),
        }
    }
}

/// The port of a [`DataPlane`]. Clones are the same port.
#[derive(Clone)]
pub struct PlanePort(Arc<dyn Port + Send + Sync>);

impl fmt::Debug for PlanePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PlanePort").finish_non_exhaustive()
    }
}

impl PlanePort {
    /// Opens a capture, whose packets handlers send.
    ///
    /// # Errors
    ///
    /// [`DataError::Busy`] if too many are open.
    pub fn capture(&self) -> Result<OpenCapture, DataError> {
        CaptureCloser::open(self.clone())
    }
}

impl Port for PlanePort {
    fn submit(&self, request: PortRequest) -> Result<RequestNumber, DataError> {
        self.0.submit(request)
    }

    fn answer(&self, number: RequestNumber, patience: Duration) -> Result<PortAnswer, DataError> {
        self.0.answer(number, patience)
    }

    fn handlers(&self) -> Vec<HandlerNow> {
        self.0.handlers()
    }

    fn keep(&self, handler: Box<dyn Handler>) -> Result<HandlerValue, DataError> {
        self.0.keep(handler)
    }

    fn take_kept(&self, number: KeptHandler) -> Option<Box<dyn Handler>> {
        self.0.take_kept(number)
    }

    fn capture_readers(&self) -> Arc<CaptureReaders> {
        self.0.capture_readers()
    }

    fn ask_within(
        &self,
        request: PortRequest,
        patience: Duration,
    ) -> Result<PortAnswer, DataError> {
        self.0.ask_within(request, patience)
    }
}
