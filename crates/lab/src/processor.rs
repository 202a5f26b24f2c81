//! Processors: which threads are kept on which, and what else runs there.

use crate::clock;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::read_to_string;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Keeps the calling thread on a processor, if the system allows it.
pub(crate) fn pin(processor: usize) {
    keep(Pid::from_raw(0), processor);
}

/// Keeps a process of one thread on a processor, and what it starts.
pub(crate) fn pin_process(id: u32, processor: usize) {
    if let Ok(id) = i32::try_from(id) {
        keep(Pid::from_raw(id), processor);
    }
}

fn keep(thread: Pid, processor: usize) {
    let mut set = CpuSet::new();
    if set.set(processor).is_ok() {
        // Without it, the thread runs where the system puts it.
        let _ = sched_setaffinity(thread, &set);
    }
}

/// The processors of sender and receiver, and of the relay; the same one if there is only one.
pub(crate) fn seats() -> (usize, usize) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    (0, count - 1)
}

/// A thread that takes a share of a processor, in slices of a tenth of a second as cpulimit does.
#[derive(Debug)]
pub(crate) struct OtherLoad {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Time of a slice.
const SLICE_NS: u64 = 100_000_000;

impl OtherLoad {
    /// Takes `percent` of `processor` until it is dropped; nothing for 0.
    pub(crate) fn start(percent: u8, processor: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let body = move || {
            pin(processor);
            while !told.load(Ordering::Relaxed) {
                let start = clock::now();
                clock::spin(SLICE_NS * u64::from(percent.min(100)) / 100);
                clock::sleep_until(start + SLICE_NS);
            }
        };
        let spawn = || std::thread::Builder::new().name("load".to_owned()).spawn(body).ok();
        let thread = (percent > 0).then(spawn).flatten();
        Self { stop, thread }
    }
}

impl Drop for OtherLoad {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

/// Time of all processors by use, in ticks (`proc(5)`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessorTime {
    all: u64,
    steal: u64,
    busy: u64,
}

impl ProcessorTime {
    /// Since the system's start.
    pub(crate) fn read() -> Self {
        let stat = read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest times are in user and nice.
        let all: u64 = ticks.iter().take(8).sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { all, steal: ticks.get(7).copied().unwrap_or(0), busy: all - idle.min(all) }
    }

    /// Shares stolen by the host, and busy, since `earlier`, in percent.
    pub(crate) fn since(self, earlier: Self) -> (f64, f64) {
        let whole = self.all.saturating_sub(earlier.all).max(1);
        let share = |now: u64, was: u64| percent(now.saturating_sub(was), whole);
        (share(self.steal, earlier.steal), share(self.busy, earlier.busy))
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    let real = |value: u64| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    100.0 * real(part) / real(whole)
}

/// The machine in one line: processors, kernel, and how loaded it is.
pub fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    format!("{cpus} x {model}, Linux {}, load average {load}", kernel.trim())
}
