//! Processors: which threads are kept on which, and what else runs there.

use crate::clock;
use gatewright_testbed::{Namespace, Needs, Process};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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

/// Programs that compute on processors only while nobody else does (`SCHED_IDLE`), so that these never
/// sleep; they end when dropped.
#[derive(Debug)]
pub(crate) struct KeptAwake(Vec<Process>);

impl KeptAwake {
    /// Why processors cannot be kept awake; none if they can.
    pub(crate) fn unavailable(has_namespaces: bool) -> Option<String> {
        if !has_namespaces {
            // What keeps a processor busy must end with this process, as all does that is in one.
            return Some("it needs network namespaces (root)".to_owned());
        }
        let missing = Needs::new().program("chrt").program("taskset").missing();
        missing.map(|missing| format!("needs {missing}"))
    }

    /// Keeps these processors from sleeping; the programs are in `host`.
    pub(crate) fn start(host: &Namespace, processors: &[usize]) -> Result<Self, String> {
        let compute = |processor: &usize| {
            let number = processor.to_string();
            let command = host.command("chrt").args(["--idle", "0", "taskset", "-c", &number]);
            let command = command.args(["sh", "-c", "while :; do :; done"]);
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).spawn().map_err(|error| error.to_string())
        };
        let mut kept = Self(processors.iter().map(compute).collect::<Result<_, _>>()?);
        // One that is refused ends at once.
        std::thread::sleep(SETTLES);
        for process in &mut kept.0 {
            let ended = process.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Err(format!("processors are not kept awake: {status}"));
            }
        }
        Ok(kept)
    }
}

/// Time for a program to begin.
const SETTLES: Duration = Duration::from_millis(20);

/// The folder of the processors' frequencies.
const PROCESSORS: &str = "/sys/devices/system/cpu";
/// The bounds of a processor's frequency in kHz (Linux, admin-guide/pm/cpufreq).
const BOUNDS: [&str; 2] = ["scaling_min_freq", "scaling_max_freq"];

/// All processors at one frequency; what the bounds were before is set again when dropped.
#[derive(Debug)]
pub(crate) struct FrequencyBound(Vec<(PathBuf, String)>);

impl FrequencyBound {
    /// Why no frequency can be set; none if one can.
    pub(crate) fn unavailable() -> Option<String> {
        Self::unavailable_in(Path::new(PROCESSORS))
    }

    /// The same for a folder. A container may show bounds that it must not write, so each is written as
    /// it is.
    fn unavailable_in(folder: &Path) -> Option<String> {
        let policies = policies(folder);
        if policies.is_empty() {
            return Some("this machine offers no control of its processors' frequency".to_owned());
        }
        let paths = policies.iter().flat_map(|policy| BOUNDS.map(|name| policy.join(name)));
        paths.into_iter().find_map(|path| {
            let written = read_to_string(&path).and_then(|bound| std::fs::write(&path, bound));
            written.err().map(|error| at(&path, &error))
        })
    }

    /// Sets so many MHz; nothing for 0.
    pub(crate) fn set(mhz: u32) -> Result<Option<Self>, String> {
        (mhz > 0).then(|| Self::set_in(Path::new(PROCESSORS), mhz)).transpose()
    }

    fn set_in(folder: &Path, mhz: u32) -> Result<Self, String> {
        let wanted = (u64::from(mhz) * 1000).to_string();
        let mut bound = Self(Vec::new());
        for policy in policies(folder) {
            for name in BOUNDS {
                let path = policy.join(name);
                let before = read_to_string(&path).map_err(|error| at(&path, &error))?;
                bound.0.push((path, before.trim().to_owned()));
            }
            // A minimum above the maximum is refused, and the other way round: the second time both
            // have room.
            for (time, name) in BOUNDS.iter().chain(&BOUNDS).enumerate() {
                let path = policy.join(name);
                let set = std::fs::write(&path, &wanted);
                if time >= BOUNDS.len() {
                    set.map_err(|error| at(&path, &error))?;
                }
            }
            let [now, _] = BOUNDS.map(|name| read_to_string(policy.join(name)).unwrap_or_default());
            if now.trim() != wanted {
                return Err(format!("{} has no frequency of {mhz} MHz", policy.display()));
            }
        }
        Ok(bound)
    }
}

impl Drop for FrequencyBound {
    fn drop(&mut self) {
        // As when it was set: the second time both have room.
        for (path, before) in self.0.iter().chain(&self.0) {
            let _ = std::fs::write(path, before);
        }
    }
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The folders with the bounds of each processor.
fn policies(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let policies = entries.map(|entry| entry.path().join("cpufreq"));
    policies.filter(|policy| BOUNDS.iter().all(|name| policy.join(name).is_file())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Two processors as the kernel shows them, in an ordinary folder.
    #[test]
    fn frequencies_are_set_and_given_back() {
        let folder = std::env::temp_dir().join(format!("lab-frequency-{}", std::process::id()));
        for processor in ["cpu0", "cpu1"] {
            let policy = folder.join(processor).join("cpufreq");
            fs::create_dir_all(&policy).unwrap();
            fs::write(policy.join(BOUNDS[0]), "800000\n").unwrap();
            fs::write(policy.join(BOUNDS[1]), "3400000\n").unwrap();
        }
        fs::create_dir_all(folder.join("cpuidle")).unwrap();
        let read = |processor: &str, bound: usize| {
            let path = folder.join(processor).join("cpufreq").join(BOUNDS[bound]);
            read_to_string(path).unwrap().trim().to_owned()
        };
        assert_eq!(policies(&folder).len(), 2);
        let bound = FrequencyBound::set_in(&folder, 1200).unwrap();
        assert_eq!([read("cpu0", 0), read("cpu1", 1)], ["1200000", "1200000"]);
        drop(bound);
        assert_eq!([read("cpu0", 0), read("cpu0", 1)], ["800000", "3400000"]);
        assert_eq!(FrequencyBound::unavailable_in(&folder), None);
        assert_eq!([read("cpu0", 0), read("cpu0", 1)], ["800000", "3400000"]);
        fs::remove_dir_all(&folder).unwrap();
        assert!(policies(&folder).is_empty());
        assert!(FrequencyBound::set(0).unwrap().is_none());
    }

    /// A bound that is read and not written, for root too: a file of the kernel without a write call.
    #[test]
    fn a_bound_that_cannot_be_written_is_no_control() {
        let name = format!("lab-frequency-read-only-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let policy = folder.join("cpu0/cpufreq");
        fs::create_dir_all(&policy).unwrap();
        fs::write(policy.join(BOUNDS[0]), "800000\n").unwrap();
        std::os::unix::fs::symlink("/proc/version", policy.join(BOUNDS[1])).unwrap();
        let why = FrequencyBound::unavailable_in(&folder).unwrap();
        assert!(why.contains(BOUNDS[1]), "{why}");
        fs::remove_dir_all(&folder).unwrap();
        let why = FrequencyBound::unavailable_in(&folder).unwrap();
        assert!(why.contains("offers no control"), "{why}");
    }
}
