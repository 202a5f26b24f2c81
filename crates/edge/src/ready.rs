//! The set of ready sockets of one loop, which other threads add to without a lock.

use crate::Wake;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Places in one word of the set.
const WORD: usize = 64;

/// Sockets of one loop that have become ready, each once.
///
/// A thread that delivers to a socket notifies the set ([`Notifier::notify`]): it sets a bit, and
/// wakes the loop only if nobody has since the loop last looked. It takes no lock and allocates
/// nothing, so a data-plane worker may do it. A set has a fixed number of places.
pub struct ReadySet {
    /// A bit for each ready place.
    ready: Box<[AtomicU64]>,
    /// A bit for each place that a notifier has.
    taken: Box<[AtomicU64]>,
    /// Whether the loop was woken and has not looked since.
    pending: AtomicBool,
    wake: Arc<dyn Wake>,
}

impl fmt::Debug for ReadySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadySet({} places)", self.taken.len() * WORD)
    }
}

impl ReadySet {
    /// A set of at least `places` places, a multiple of 64. `wake` wakes the loop that waits.
    pub fn new(places: usize, wake: Arc<dyn Wake>) -> Arc<Self> {
        let words = || (0..places.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { ready: words(), taken: words(), pending: AtomicBool::new(false), wake })
    }

    /// Creates a notifier, which occupies a place until it is dropped; `None` if no place is free.
    pub fn notifier(self: &Arc<Self>) -> Option<Notifier> {
        for (index, word) in self.taken.iter().enumerate() {
            let free = |bits: u64| (bits != u64::MAX).then(|| bits | (bits + 1));
            if let Ok(before) = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, free) {
                let bit = usize::try_from(before.trailing_ones()).unwrap_or_default();
                return Some(Notifier { set: Arc::clone(self), place: index * WORD + bit });
            }
        }
        None
    }

    /// Removes all ready places from the set, and calls `each` with them.
    pub fn take(&self, mut each: impl FnMut(usize)) {
        // Cleared before looking: whoever notifies after this wakes the loop again.
        if !self.pending.swap(false, Ordering::AcqRel) {
            return;
        }
        for (index, word) in self.ready.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                let bit = usize::try_from(bits.trailing_zeros()).unwrap_or_default();
                bits &= bits - 1;
                each(index * WORD + bit);
            }
        }
    }
}

/// The place of one socket in a [`ReadySet`].
#[derive(Debug)]
pub struct Notifier {
    set: Arc<ReadySet>,
    place: usize,
}

impl Notifier {
    /// The number of its place.
    pub const fn place(&self) -> usize {
        self.place
    }

    /// Adds its place to the set, and wakes the loop unless that was done since it last looked.
    pub fn notify(&self) {
        if let Some(word) = self.set.ready.get(self.place / WORD) {
            word.fetch_or(1 << (self.place % WORD), Ordering::AcqRel);
            if !self.set.pending.swap(true, Ordering::AcqRel) {
                self.set.wake.wake();
            }
        }
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        let bit = !(1 << (self.place % WORD));
        for words in [&self.set.ready, &self.set.taken] {
            if let Some(word) = words.get(self.place / WORD) {
                word.fetch_and(bit, Ordering::AcqRel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn taken(set: &ReadySet) -> Vec<usize> {
        let mut places = Vec::new();
        set.take(|place| places.push(place));
        places
    }

    #[test]
    fn a_place_is_told_once_and_the_loop_woken_once() {
        let woken = Arc::new(Woken::default());
        let set = ReadySet::new(100, woken.clone());
        let all: Vec<_> = std::iter::from_fn(|| set.notifier()).collect();
        assert_eq!(all.len(), 128);
        for index in [3, 127, 3, 64, 127] {
            all[index].notify();
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(taken(&set), [3, 64, 127]);
        assert_eq!(taken(&set), []);
        all[3].notify();
        assert_eq!((woken.0.load(Ordering::SeqCst), taken(&set)), (2, vec![3]));
    }

    #[test]
    fn a_place_given_up_is_not_told_and_is_taken_again() {
        let set = ReadySet::new(1, Arc::new(Woken::default()));
        let (first, second) = (set.notifier().unwrap(), set.notifier().unwrap());
        first.notify();
        second.notify();
        drop(first);
        assert_eq!(taken(&set), [1]);
        assert_eq!(set.notifier().unwrap().place(), 0);
        drop(second);
    }

    /// Whoever notifies after the loop has looked wakes it: no notification is lost, whatever the
    /// interleaving.
    #[test]
    fn nothing_is_lost_between_threads() {
        const TIMES: usize = 20_000;
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(&self) {
                self.0.unpark();
            }
        }
        let set = ReadySet::new(64, Arc::new(Unpark(thread::current())));
        let counts: [AtomicUsize; 2] = Default::default();
        thread::scope(|scope| {
            let notifiers = [set.notifier().unwrap(), set.notifier().unwrap()];
            for (notifier, count) in notifiers.into_iter().zip(&counts) {
                scope.spawn(move || {
                    for _ in 0..TIMES {
                        count.fetch_add(1, Ordering::SeqCst);
                        notifier.notify();
                    }
                    // Its last notification is read before its place is given up.
                    while count.load(Ordering::SeqCst) != 0 {
                        thread::yield_now();
                    }
                });
            }
            let mut seen = 0;
            while seen < 2 * TIMES {
                set.take(|place| seen += counts[place].swap(0, Ordering::SeqCst));
                if seen < 2 * TIMES {
                    thread::park();
                }
            }
        });
    }
}
