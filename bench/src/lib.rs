//! The harness of the benchmarks: rounds, ratios, promises, and where they are written.
//!
//! A benchmark runs its contestants one after the other, round after round, so that whatever else
//! the machine does falls on all of them alike. Ratios are taken inside of a round and only then
//! summed up. Each contestant asserts for itself that what it measures is really there; no
//! benchmark fails because of a time.

mod chart;
mod numbers;
mod report;
mod rounds;
mod yardstick;

pub use chart::{Chart, Curve, Scales};
pub use numbers::Numbers;
pub use report::Relation;
pub use rounds::{Bench, Contestant, Options};
pub use yardstick::Yardstick;

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of this thread's processor time that each of `count` operations takes, when `work`
/// does them all.
///
/// What the machine does in between for others is not counted, though it may have emptied caches.
pub fn nanoseconds_each<T>(count: usize, work: impl FnOnce() -> T) -> f64 {
    let start = processor_time();
    std::hint::black_box(work());
    let elapsed = processor_time().saturating_sub(start);
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    elapsed.as_secs_f64() * 1e9 / f64::from(count)
}

/// Processor time of this thread; every Linux has the clock.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
