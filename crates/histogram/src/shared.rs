//! The record with one writer and any number of readers.

use crate::{Histogram, Sample, WORDS, changed};
use std::{
    array, fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// A histogram that one thread writes while others read it, without a lock.
///
/// Two threads that write lose values of each other; nothing worse happens.
#[repr(transparent)]
pub struct SharedHistogram([AtomicU64; WORDS]);

// The record is the same in both types.
const _: () = assert!(size_of::<SharedHistogram>() == size_of::<Histogram>());

impl Default for SharedHistogram {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl fmt::Debug for SharedHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl SharedHistogram {
    /// Adds values; only the one writer calls it.
    #[inline]
    pub fn add(&self, sample: impl Into<Sample>) {
        let word = |at: usize| self.0.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        for (at, new) in changed(word, &sample.into()) {
            if let Some(word) = self.0.get(at) {
                // A reader that sees a value in its bucket, which is stored last, sees it in the
                // sums.
                word.store(new, Ordering::Release);
            }
        }
    }

    /// The values so far. Values that are added meanwhile may already be in the sums.
    pub fn read(&self) -> Histogram {
        let mut read = [0; WORDS];
        for (to, word) in read.iter_mut().zip(&self.0).rev() {
            *to = word.load(Ordering::Acquire);
        }
        Histogram(read)
    }
}
