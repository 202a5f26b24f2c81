//! Work of known length, by steps in place of time: what it takes on a slower processor, done on this
//! one.

use crate::clock;
use std::hint::black_box;

/// How many steps of a computation this processor does in a time.
///
/// A thread that computes until a time has come takes no longer when others use its processor; one that
/// does steps does, as every relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Computation {
    steps_per_ms: u64,
}

/// Steps of a try, some tenths of a millisecond.
const TRY_STEPS: u64 = 200_000;
/// Tries, of which the fastest counts: others may have used the processor during the rest.
const TRIES: usize = 20;

impl Computation {
    /// Calibrates it on the calling thread's processor, in some milliseconds.
    pub(crate) fn calibrate() -> Self {
        let time = |_| {
            let start = clock::now();
            steps(TRY_STEPS);
            clock::now() - start
        };
        let fastest = (0..TRIES).map(time).min().unwrap_or(1).max(1);
        Self { steps_per_ms: (TRY_STEPS * 1_000_000 / fastest).max(1) }
    }

    /// Computes for as long as an idle processor takes so many nanoseconds.
    pub(crate) fn compute(self, nanoseconds: u64) {
        steps(self.steps(nanoseconds));
    }

    const fn steps(self, nanoseconds: u64) -> u64 {
        nanoseconds.saturating_mul(self.steps_per_ms) / 1_000_000
    }
}

/// Each step needs the result of the one before it, so that no two are done at the same time.
fn steps(count: u64) {
    // The multiplier of Knuth's generator MMIX.
    const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
    let mut state = black_box(1_u64);
    for _step in 0..count {
        state = state.wrapping_mul(MULTIPLIER) ^ (state >> 29);
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::time::{ClockId, clock_gettime};
    use std::time::Duration;

    #[test]
    fn so_many_times_the_work_are_so_many_times_the_steps() {
        let computation = Computation { steps_per_ms: 400_000 };
        assert_eq!(computation.steps(2_500), 1_000);
        assert_eq!(computation.steps(4 * 2_500), 4 * computation.steps(2_500));
        assert_eq!(computation.steps(0), 0);
    }

    #[test]
    fn the_time_is_spent_on_the_processor() {
        let used = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let computation = Computation::calibrate();
        let before = used();
        computation.compute(20_000_000);
        // Not less than half: the fastest try is what an idle processor takes. More is another's turn.
        let took = used().saturating_sub(before);
        assert!(took >= Duration::from_millis(10), "{computation:?}: {took:?}");
    }
}
