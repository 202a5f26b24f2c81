//! A retrieval that is answered after each change.

use core::any::Any;
use gatewright_onem2m::Response;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The latest answer, until it is taken.
pub(crate) type Latest = Arc<Mutex<Option<Response>>>;

/// A retrieval that is answered after each change. Only the latest answer is kept; slow readers
/// miss intermediate ones.
#[derive(Debug)]
pub(crate) struct Observing {
    /// Ends the observation with this value.
    _guard: Box<dyn Any + Send + Sync>,
    answers: watch::Receiver<Latest>,
}

impl Observing {
    /// An observation with these answers, which dropping `guard` ends.
    pub(crate) fn new(answers: watch::Receiver<Latest>, guard: impl Any + Send + Sync) -> Self {
        Self { _guard: Box::new(guard), answers }
    }

    /// The next answer; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Response> {
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
