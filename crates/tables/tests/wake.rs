//! The flags by which workers are woken: no order of stores and looks loses a wake-up.

use gatewright_tables::WakeFlags;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};

const ROUNDS: u32 = 60_000;

/// Waits until `word` is `round`; the other thread may have lost its core.
fn wait(word: &AtomicU32, round: u32) {
    for tries in 0_u32.. {
        if word.load(Ordering::Acquire) == round {
            return;
        }
        if tries % 200 == 199 {
            std::thread::yield_now();
        }
        spin_loop();
    }
}

/// A worker falls asleep at the moment that work is left for it: it sees the work, or the other side
/// sees that it sleeps. Without the fences both see nothing, sooner or later.
#[test]
fn one_of_both_sides_always_sees_the_other() {
    let flags = WakeFlags::default();
    let [begun, ended, work] = [(); 3].map(|()| AtomicU32::new(0));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut seen = Vec::new();
            for round in 1..=ROUNDS {
                wait(&begun, round);
                flags.fall_asleep();
                seen.push(work.load(Ordering::Relaxed) == round);
                ended.store(round, Ordering::Release);
            }
            seen
        });
        let mut signalled = Vec::new();
        for round in 1..=ROUNDS {
            begun.store(round, Ordering::Release);
            // The two meet at another distance in each round.
            (0..round % 128).for_each(|_| spin_loop());
            work.store(round, Ordering::Relaxed);
            signalled.push(flags.rouse());
            wait(&ended, round);
            let _was_asleep = flags.wake_up();
        }
        let seen = worker.join().unwrap_or_default();
        let lost = seen.iter().zip(&signalled).filter(|&(&seen, &signalled)| !seen && !signalled);
        assert_eq!((lost.count(), seen.len()), (0, signalled.len()));
    });
}
