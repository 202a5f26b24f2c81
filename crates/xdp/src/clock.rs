//! The clock of programs, as user space reads it.
//!
//! A program reads the kernel's monotonic clock (`bpf_ktime_get_ns`). A process in a time namespace
//! reads it with an offset (`time_namespaces(7)`), which is the same as long as the process lives.

use nix::time::{ClockId, clock_gettime};
use std::fs;
use std::sync::OnceLock;
use std::time::Duration;

/// The clock of programs in drivers. The first call reads a file of `/proc`.
pub fn program_clock() -> Duration {
    // The kernel refuses to tell no process this clock.
    let own = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    let own = u64::try_from(own.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(own.saturating_add_signed(offset().saturating_neg()))
}

/// A time of programs by the monotonic clock of this process; both in nanoseconds.
pub(crate) fn by_own_clock(time: u64) -> u64 {
    time.saturating_add_signed(offset())
}

/// Nanoseconds by which the clock of this process is ahead of the programs'.
fn offset() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        // Without time namespaces (before Linux 5.6) there is no such file.
        let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        monotonic_offset(&offsets).unwrap_or(0)
    })
}

/// The offset of the monotonic clock among those of a time namespace, in nanoseconds. Each line names a
/// clock, and has seconds, which may be negative, and nanoseconds.
fn monotonic_offset(offsets: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_ascii_whitespace);
    let mut fields = lines.find_map(|mut line| (line.next()? == "monotonic").then_some(line))?;
    let [seconds, nanoseconds] = [fields.next()?, fields.next()?].map(str::parse::<i64>);
    seconds.ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let cases = [
            ("monotonic           0         0\nboottime            0         0\n", Some(0)),
            (
                "monotonic      100000       250\nboottime            7         0\n",
                Some(100_000_000_000_250),
            ),
            (
                "boottime            7         0\nmonotonic          -2  500000000\n",
                Some(-1_500_000_000),
            ),
            ("boottime            7         0\n", None),
            ("monotonic           1\n", None),
            ("monotonic 9999999999999999999 0\n", None),
            ("monotonic 9223372037 0\n", None),
            ("", None),
        ];
        for (text, offset) in cases {
            assert_eq!(monotonic_offset(text), offset, "{text}");
        }
    }

    #[test]
    fn both_clocks_go_alike() {
        let own = || Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
        let (before, of_programs, after) = (own(), program_clock(), own());
        let of_programs = u64::try_from(of_programs.as_nanos()).unwrap();
        let of_programs = Duration::from_nanos(by_own_clock(of_programs));
        assert!((before..=after).contains(&of_programs), "{before:?} {of_programs:?} {after:?}");
    }
}
