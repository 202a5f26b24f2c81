//! A conversation being recorded.

use gatewright_translate::machine::{Conversation, PostError};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time for the loops to give up what they have recorded so far.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);

/// How often it is asked whether a conversation is still wanted.
const WANTED_LOOK: Duration = Duration::from_millis(250);

/// Why a conversation cannot be recorded.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program has no such handler.
    #[error("{0}")]
    Handler(#[from] PostError),
    /// Another conversation is being recorded.
    #[error("another conversation of this program is being recorded")]
    Busy,
}

/// A recording that is under way; dropping it ends it.
pub struct Recording {
    pub(crate) received: Receiver<Conversation>,
    pub(crate) stop: Box<dyn Fn() + Send>,
    pub(crate) busy: Arc<AtomicBool>,
}

impl Recording {
    /// Waits for the conversation while `is_wanted`; `None` if there is none within `within`. One that
    /// has reached its handler, and not its end, is returned as it is.
    pub fn conversation(
        self,
        within: Duration,
        is_wanted: impl Fn() -> bool,
    ) -> Option<Conversation> {
        let begun = Instant::now();
        loop {
            let left = within.saturating_sub(begun.elapsed());
            match self.received.recv_timeout(left.min(WANTED_LOOK)) {
                Ok(conversation) => return Some(conversation),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if left > WANTED_LOOK && is_wanted() => {}
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        (self.stop)();
        self.received.recv_timeout(STOPPED_WITHIN).ok()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        (self.stop)();
        self.busy.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}
