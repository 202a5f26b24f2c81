//! Whether the wall clock is set.

use std::{
    fs,
    time::{Duration, SystemTime},
};

/// File that the system's time service touches when it has set the clock since boot.
const TIME_SYNCHRONISED: &str = "/run/systemd/timesync/synchronized";

/// The time service polls its server at least every 2048 s (timesyncd.conf(5)).
const SYNCHRONISED_WITHIN: Duration = Duration::from_secs(2 * 2_048);

/// Whether the system's time service has set the wall clock lately. It touches a file whenever it
/// has (systemd-timesyncd.service(8)); a clock set by hand since then differs from the file's time.
pub fn clock_is_set() -> bool {
    let touched = fs::metadata(TIME_SYNCHRONISED).and_then(|file| file.modified());
    touched.is_ok_and(|touched| {
        let now = SystemTime::now();
        let apart = now.duration_since(touched).unwrap_or_else(|error| error.duration());
        apart <= SYNCHRONISED_WITHIN
    })
}
