//! A ring from one worker to another.
//!
//! It has one sender, one receiver, a fixed number of places, and no lock. A side that finds it
//! full or empty does other work. Values arrive in the order in which they were sent.
#![expect(unsafe_code, reason = "a place of the ring belongs to one side or the other by turns")]

use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};
use std::{fmt, mem::MaybeUninit};

/// Keeps the words of two threads in separate cache lines; two lines each, as processors fetch them
/// in pairs.
#[repr(align(128))]
struct Apart<T>(T);

struct RingState<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Number of values ever sent; written by the sender.
    sent: Apart<AtomicUsize>,
    /// Number of values ever taken; written by the receiver.
    taken: Apart<AtomicUsize>,
}

// SAFETY: a place is touched by the sender alone while `sent - taken` does not cover it and by the
// receiver alone while it does; the stores that move it from one to the other are releases, and are
// read by acquires before the place is touched. Values of `T` only move from thread to thread.
unsafe impl<T: Send> Send for RingState<T> {}
// SAFETY: as above; the two ends share nothing else.
unsafe impl<T: Send> Sync for RingState<T> {}

impl<T> RingState<T> {
    /// The place of the `number`th value: their number is a power of two.
    fn place(&self, number: usize) -> Option<&UnsafeCell<MaybeUninit<T>>> {
        self.places.get(number & (self.places.len() - 1))
    }
}

impl<T> Drop for RingState<T> {
    fn drop(&mut self) {
        // Both ends are gone: what was sent last is to be seen here, by the `Arc`'s own ordering.
        let (mut number, end) =
            (self.taken.0.load(Ordering::Relaxed), self.sent.0.load(Ordering::Relaxed));
        while number != end {
            if let Some(place) = self.place(number) {
                // SAFETY: it was sent and never taken, so it is initialised and nobody's.
                place.with_mut(|value| unsafe { (*value).assume_init_drop() });
            }
            number = number.wrapping_add(1);
        }
    }
}

/// The sending end of a ring.
pub struct RingSender<T> {
    shared: Arc<RingState<T>>,
    sent: usize,
    /// The number taken, when last read.
    taken: usize,
}

/// The receiving end of a ring.
pub struct RingReceiver<T> {
    shared: Arc<RingState<T>>,
    taken: usize,
    /// The number sent, when last read.
    sent: usize,
}

/// A ring of at least `places` places, a power of two.
pub fn ring<T: Send>(places: usize) -> (RingSender<T>, RingReceiver<T>) {
    let places = places.next_power_of_two();
    let empty = |_| UnsafeCell::new(MaybeUninit::uninit());
    let [sent, taken] = [(); 2].map(|()| Apart(AtomicUsize::new(0)));
    let shared = Arc::new(RingState { places: (0..places).map(empty).collect(), sent, taken });
    let sender = RingSender { shared: Arc::clone(&shared), sent: 0, taken: 0 };
    (sender, RingReceiver { shared, taken: 0, sent: 0 })
}

impl<T: Send> RingSender<T> {
    /// Sends a value.
    ///
    /// # Errors
    ///
    /// Returns it if every place is taken.
    pub fn send(&mut self, value: T) -> Result<(), T> {
        let places = self.shared.places.len();
        if self.sent.wrapping_sub(self.taken) >= places {
            // Acquire: the receiver has read what was in the places that it says it has taken.
            self.taken = self.shared.taken.0.load(Ordering::Acquire);
            if self.sent.wrapping_sub(self.taken) >= places {
                return Err(value);
            }
        }
        let Some(place) = self.shared.place(self.sent) else { return Err(value) };
        // SAFETY: fewer than `places` values are on their way, so this place is the sender's.
        place.with_mut(|place| unsafe { (*place).write(value) });
        self.sent = self.sent.wrapping_add(1);
        // Release: the value is there before it is counted.
        self.shared.sent.0.store(self.sent, Ordering::Release);
        Ok(())
    }
}

impl<T: Send> RingReceiver<T> {
    /// Takes the oldest value in the ring.
    pub fn take(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let place = self.shared.place(self.taken)?;
        // SAFETY: the value was counted as sent and not yet taken, so it is initialised, and the
        // place is the receiver's until it is counted as taken below.
        let value = place.with(|place| unsafe { (*place).assume_init_read() });
        self.taken = self.taken.wrapping_add(1);
        // Release: the value is read before its place may be written again.
        self.shared.taken.0.store(self.taken, Ordering::Release);
        Some(value)
    }

    /// Whether the ring is empty.
    pub fn is_empty(&mut self) -> bool {
        if self.taken == self.sent {
            // Acquire: what was counted is to be seen.
            self.sent = self.shared.sent.0.load(Ordering::Acquire);
        }
        self.taken == self.sent
    }
}

impl<T> fmt::Debug for RingSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingSender({} places)", self.shared.places.len())
    }
}

impl<T> fmt::Debug for RingReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RingReceiver({} places)", self.shared.places.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_full_ring_gives_back_and_an_empty_one_gives_nothing() {
        let (mut sender, mut receiver) = ring(3);
        assert_eq!(receiver.take(), None);
        let refused: Vec<_> = (0..6).filter_map(|number| sender.send(number).err()).collect();
        assert_eq!(refused, [4, 5], "three places are four");
        assert_eq!(receiver.take(), Some(0));
        assert_eq!(sender.send(6), Ok(()));
        let rest: Vec<_> = std::iter::from_fn(|| receiver.take()).collect();
        assert_eq!(rest, [1, 2, 3, 6]);
        assert!(receiver.is_empty());
    }

    #[test]
    fn what_was_not_taken_is_freed_once() {
        let held = Arc::new(());
        let (mut sender, mut receiver) = ring(8);
        for _ in 0..6 {
            sender.send(Arc::clone(&held)).unwrap();
        }
        drop((receiver.take(), receiver.take()));
        assert_eq!(Arc::strong_count(&held), 5);
        drop(receiver);
        assert_eq!(Arc::strong_count(&held), 5, "the sender may send on");
        drop(sender);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    /// Numbers through rings of few places, so that both ends wait for one another all the time.
    #[test]
    fn under_stress_all_arrive_once_and_in_order() {
        // Each may cost both ends a turn of the processor: on a busy machine a millisecond.
        const NUMBERS: u64 = 10_000;
        for places in [1, 2, 64] {
            let (mut sender, mut receiver) = ring(places);
            let sending = thread::spawn(move || {
                for number in 0..NUMBERS {
                    let mut waiting = Box::new(number);
                    while let Err(back) = sender.send(waiting) {
                        waiting = back;
                        thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < NUMBERS {
                match receiver.take() {
                    Some(number) => {
                        assert_eq!(*number, next, "{places} places");
                        next += 1;
                    }
                    None => thread::yield_now(),
                }
            }
            sending.join().unwrap();
            assert_eq!(receiver.take(), None);
        }
    }
}

/// Every order in which the two ends can meet.
///
/// `RUSTFLAGS="--cfg loom" cargo test -p gatewright-packet --release --lib`
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;

    #[test]
    fn values_arrive_once_and_in_order_in_every_order_of_steps() {
        loom::model(|| {
            let (mut sender, mut receiver) = ring(2);
            let sending = loom::thread::spawn(move || {
                let mut refused = Vec::new();
                for number in 0..4 {
                    refused.extend(sender.send(Box::new(number)).err());
                }
                refused
            });
            let mut arrived: Vec<Box<i32>> = Vec::new();
            for _ in 0..3 {
                arrived.extend(receiver.take());
            }
            let refused = sending.join().unwrap();
            arrived.extend(std::iter::from_fn(|| receiver.take()));
            assert!(arrived.is_sorted(), "{arrived:?}");
            arrived.extend(refused);
            arrived.sort();
            assert_eq!(arrived, [0, 1, 2, 3].map(Box::new));
        });
    }

    /// As workers sleep: one sends and then looks whether the other sleeps, the other says that it
    /// sleeps and then looks whether anything was sent. One of them sees the other.
    #[test]
    fn nobody_sleeps_over_what_was_sent() {
        use loom::sync::atomic::{AtomicBool, fence};
        loom::model(|| {
            let (mut sender, mut receiver) = ring(2);
            let asleep = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&asleep);
            let sending = loom::thread::spawn(move || {
                sender.send(()).unwrap();
                fence(Ordering::SeqCst);
                seen.load(Ordering::Relaxed)
            });
            asleep.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let found = !receiver.is_empty();
            let woken = sending.join().unwrap();
            assert!(found || woken);
        });
    }
}
