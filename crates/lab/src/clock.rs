//! Clocks in nanoseconds.

use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use std::time::Duration;

/// Nanoseconds of the monotonic clock; every Linux has it.
pub(crate) fn now() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds of the wall clock since 1970.
pub fn wall() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// A reading of the wall clock, such as the kernel stamps on a packet, by the monotonic one.
pub(crate) fn monotonic_of(stamp: u64) -> u64 {
    let (monotonic, wall) = (now(), wall());
    monotonic.saturating_sub(wall.saturating_sub(stamp))
}

/// Sleeps until the monotonic clock shows `time`.
pub(crate) fn sleep_until(time: u64) {
    let until = Duration::from_nanos(time).into();
    // Interrupted by a signal: whoever waits looks at the clock again.
    while now() < time
        && clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until)
            .is_err()
    {}
}

/// Computes for so many nanoseconds.
pub(crate) fn spin(nanoseconds: u64) {
    let end = now() + nanoseconds;
    while now() < end {
        std::hint::spin_loop();
    }
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
