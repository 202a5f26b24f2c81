//! What a result was measured on.

use std::fs::read_to_string;

/// The machine in one line: processors, kernel, and how loaded it is.
pub(crate) fn describe() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    format!("{cpus} x {model}, Linux {}, load average {load}", kernel.trim())
}
