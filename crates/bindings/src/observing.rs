//! A retrieval that is answered after each change.

use core::fmt;
use gatewright_onem2m::Response;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The latest answer, until it is taken.
pub(crate) type Latest = Arc<Mutex<Option<Response>>>;

/// Produces the answers of an observation; dropping it ends the observation.
pub(crate) trait ObservationSource: fmt::Debug + Send + Sync {
    /// Asks for the next answer: the last one has reached its reader.
    fn request_next(&self);
}

/// A retrieval that is answered after each change. The next answer is looked up when the reader asks
/// for it, so a slow one costs nothing and misses intermediate answers.
#[derive(Debug)]
pub(crate) struct Observing {
    source: Box<dyn ObservationSource>,
    answers: watch::Receiver<Latest>,
    /// Whether an answer was taken.
    is_begun: bool,
}

impl Observing {
    /// An observation with these answers.
    pub(crate) fn new(
        answers: watch::Receiver<Latest>,
        source: impl ObservationSource + 'static,
    ) -> Self {
        Self { source: Box::new(source), answers, is_begun: false }
    }

    /// The next answer; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Response> {
        if core::mem::replace(&mut self.is_begun, true) {
            self.source.request_next();
        }
        self.answers.changed().await.ok()?;
        let latest = Arc::clone(&self.answers.borrow_and_update());
        // A poisoned lock is safe here: there is an answer or none.
        latest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether another answer may follow the last one taken.
    pub(crate) fn goes_on(&self) -> bool {
        self.answers.has_changed().is_ok()
    }
}
