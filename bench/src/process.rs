//! What a process takes: processor time and memory.

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs;
use std::time::Duration;

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Processor time that a process has had so far, with that of threads that have ended.
pub(crate) fn processor(id: u32) -> Result<Duration, String> {
    let id = Pid::from_raw(i32::try_from(id).map_err(text)?);
    let clock = clock_getcpuclockid(id).map_err(text)?;
    clock_gettime(clock).map(Duration::from).map_err(text)
}

/// Resident memory of a process's own, in KiB; what the kernel holds for it is not in it.
pub(crate) fn resident_kib(id: u32) -> Result<f64, String> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).map_err(text)?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u32>().ok());
    kib.map(f64::from).ok_or_else(|| "no resident memory".to_owned())
}
