//! How a worker sleeps and is woken from any process that maps the region for writing.
//!
//! ```text
//! a line for each worker:
//! word 0  asleep   1 while the worker sleeps, or is about to
//!      1  called   1 when there is work for it
//!      2  stop     1 when it is to end
//!      3..16       zero
//! ```
//!
//! Several write these words, each by one atomic store or exchange. The worker sleeps on a
//! descriptor that is passed beside the region; whoever finds it asleep makes that readable.

use crate::memory::Words;
use crate::routes::index;
use crate::sync::{AtomicU32, Ordering, fence};

/// Words of a worker: a cache line.
const LINE: usize = 16;

/// Words of the flags of a number of workers.
pub(crate) fn wake_words(workers: u32) -> Option<usize> {
    index(workers).checked_mul(LINE)
}

/// The sleep flags of all workers of a region, mapped for writing.
#[derive(Clone, Debug)]
pub struct Wakers(Words);

impl Wakers {
    pub(crate) fn new(words: Words) -> Self {
        Self(words)
    }

    /// The flags of a worker; `None` if the region has no such worker.
    pub fn of(&self, worker: usize) -> Option<WakeFlags> {
        self.0.part(worker.checked_mul(LINE)?, LINE).map(WakeFlags)
    }
}

/// The sleep flag of a worker, and what it is called for. Clones are the same flags.
///
/// No wake-up is lost. The worker sets its flag and then looks for work ([`Self::fall_asleep`]);
/// others leave their work and then look at the flag ([`Self::rouse`]). A fence stands between both
/// steps on both sides, so at least one of them sees what the other did.
#[derive(Clone, Debug)]
pub struct WakeFlags(Words);

impl Default for WakeFlags {
    /// Flags in this process's own memory.
    fn default() -> Self {
        Self(Words::zeroed(LINE))
    }
}

const ASLEEP: usize = 0;
const CALLED: usize = 1;
const STOP: usize = 2;

impl WakeFlags {
    /// Clears all flags: asleep, called and stop.
    pub fn reset(&self) {
        for word in [ASLEEP, CALLED, STOP] {
            self.take(word);
        }
    }

    fn word(&self, word: usize) -> Option<&AtomicU32> {
        self.0.all().get(word)
    }

    fn is(&self, word: usize) -> bool {
        self.word(word).is_some_and(|word| word.load(Ordering::Acquire) != 0)
    }

    fn set(&self, word: usize) {
        if let Some(word) = self.word(word) {
            word.store(1, Ordering::Release);
        }
    }

    /// Clears a word; returns whether it was set.
    fn take(&self, word: usize) -> bool {
        self.word(word).is_some_and(|word| word.swap(0, Ordering::AcqRel) != 0)
    }

    /// Signals work to the worker; returns whether the caller has to make its descriptor readable.
    #[must_use]
    pub fn call(&self) -> bool {
        self.set(CALLED);
        self.rouse()
    }

    /// Signals the worker to end; returns as [`Self::call`].
    #[must_use]
    pub fn stop(&self) -> bool {
        self.set(STOP);
        self.call()
    }

    /// Wakes the worker to process work that waits, such as a message in a ring; returns as
    /// [`Self::call`].
    #[must_use]
    pub fn rouse(&self) -> bool {
        fence(Ordering::SeqCst);
        // A look before the exchange: a worker that is awake keeps its cache line.
        self.is(ASLEEP) && self.take(ASLEEP)
    }

    /// Sets the flag before the worker looks for work a last time and sleeps.
    pub fn fall_asleep(&self) {
        if let Some(asleep) = self.word(ASLEEP) {
            asleep.store(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Clears the flag; returns whether the worker was not woken since it was set.
    pub fn wake_up(&self) -> bool {
        self.take(ASLEEP)
    }

    /// Whether there is work for the worker.
    pub fn is_called(&self) -> bool {
        self.is(CALLED)
    }

    /// Whether there is work for the worker, which takes it now.
    pub fn take_call(&self) -> bool {
        self.take(CALLED)
    }

    /// Whether the worker is to end.
    pub fn is_stopped(&self) -> bool {
        self.is(STOP)
    }
}
