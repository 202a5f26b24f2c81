//! Whether a file of the store is synchronised before each answer: the CSE's system calls, traced.
//!
//! A process that is killed loses nothing that the kernel has, so that a CSE which never synchronises
//! holds everything after SIGKILL. What is shown here is the call (`fdatasync` or `fsync`) on a file of
//! the store, and that it had returned before the answer; what the disk makes of it is not.

use super::load::{self, LoadConnection, What};
use super::systems::System;
use crate::process::text;
use bench::Bench;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Creations, one after the other.
const CREATIONS: u32 = 200;
/// How often it is looked whether a thread of the CSE has stopped.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// The figure that is promised.
pub(super) const KEY: &str = "answered_unsynchronised";

/// What the tracer and whoever asks share.
#[derive(Debug, Default)]
struct Traced {
    /// The tracer is attached to all threads, or has failed.
    begun: AtomicBool,
    ends: AtomicBool,
    /// Synchronisations of the store's files that have returned.
    count: AtomicU64,
}

/// A process whose system calls are looked at by the thread that has attached.
struct Tracer<'run> {
    process: Pid,
    /// The files of the store begin with it.
    store: PathBuf,
    /// Threads within a system call.
    inside: HashSet<Pid>,
    traced: &'run Traced,
}

impl<'run> Tracer<'run> {
    /// Attaches to all threads, and stops them.
    fn attach(process: Pid, store: PathBuf, traced: &'run Traced) -> Result<Self, String> {
        let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE;
        let mut known = HashSet::new();
        // A thread that comes meanwhile is met in the next pass, or was attached with its parent.
        loop {
            let before = known.len();
            for thread in fs::read_dir(format!("/proc/{process}/task")).map_err(text)? {
                let name = thread.map_err(text)?.file_name();
                let thread = Pid::from_raw(name.to_string_lossy().parse().map_err(text)?);
                if !known.insert(thread) {
                    continue;
                }
                match ptrace::seize(thread, options) {
                    Ok(()) => ptrace::interrupt(thread).map_err(text)?,
                    Err(Errno::ESRCH | Errno::EPERM) if known.len() > 1 => {}
                    Err(why) => return Err(format!("it may not be traced: {why}")),
                }
            }
            if known.len() == before {
                return Ok(Self { process, store, inside: HashSet::new(), traced });
            }
        }
    }

    /// Lets the process go on from stop to stop, until it is enough. The kernel detaches the threads
    /// when this one ends.
    fn run(mut self) -> Result<(), String> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        while !self.traced.ends.load(Ordering::Relaxed) {
            let resumed = match waitpid(None, Some(flags)).map_err(text)? {
                WaitStatus::PtraceSyscall(thread) => {
                    self.call(thread);
                    ptrace::syscall(thread, None)
                }
                WaitStatus::PtraceEvent(thread, ..) => ptrace::syscall(thread, None),
                WaitStatus::Stopped(thread, signal) => ptrace::syscall(thread, signal),
                WaitStatus::StillAlive => {
                    self.traced.begun.store(true, Ordering::Relaxed);
                    thread::sleep(LOOK_EVERY);
                    Ok(())
                }
                _ => Ok(()),
            };
            match resumed {
                // It was killed meanwhile.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(why) => return Err(why.to_string()),
            }
        }
        Ok(())
    }

    /// A thread enters a call or returns from it.
    fn call(&mut self, thread: Pid) {
        if self.inside.insert(thread) {
            return;
        }
        self.inside.remove(&thread);
        let place = format!("/proc/{}/task/{thread}/syscall", self.process);
        let call = fs::read_to_string(place).unwrap_or_default();
        let file = synchronised(&call)
            .and_then(|file| fs::read_link(format!("/proc/{}/fd/{file}", self.process)).ok());
        let is_of_store = |file: PathBuf| {
            file.to_string_lossy().starts_with(self.store.to_string_lossy().as_ref())
        };
        if file.is_some_and(is_of_store) {
            self.traced.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The file that a call synchronises: the kernel writes number and arguments of a stopped thread's
/// call, the latter in hexadecimal.
fn synchronised(call: &str) -> Option<u64> {
    let mut words = call.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let file = words.next()?.strip_prefix("0x")?;
    let is_it = [libc::SYS_fdatasync, libc::SYS_fsync].contains(&number);
    is_it.then(|| u64::from_str_radix(file, 16).ok()).flatten()
}

/// Creations that were answered although nothing had been synchronised since they were asked for,
/// and all synchronisations.
fn compare(connection: &mut LoadConnection, traced: &Traced) -> Result<(u32, u64), String> {
    let count = || traced.count.load(Ordering::Relaxed);
    let (begin, mut without) = (count(), 0);
    for _creation in 0..CREATIONS {
        let before = count();
        connection.ask_and_wait()?;
        without += u32::from(count() == before);
    }
    Ok((without, count() - begin))
}

/// Traces the CSE while it creates one instance after the other. Why it cannot be traced, if so.
pub(super) fn run(
    bench: &mut Bench,
    binary: &Path,
    folder: &Path,
) -> Result<Option<String>, String> {
    if let Err(why) = fs::read_to_string("/proc/self/syscall") {
        return Ok(Some(format!("the kernel does not show system calls: {why}")));
    }
    let ours = System::fresh(binary, folder)?;
    load::container(ours.address)?;
    let process = Pid::from_raw(i32::try_from(ours.id()).map_err(text)?);
    let store = System::store(folder).canonicalize().map_err(text)?;
    let traced = Traced::default();
    let (found, tracer) = thread::scope(|scope| {
        let tracer = scope.spawn(|| {
            let tracer = Tracer::attach(process, store, &traced);
            let ran = tracer.map(Tracer::run);
            traced.begun.store(true, Ordering::Relaxed);
            ran
        });
        while !traced.begun.load(Ordering::Relaxed) {
            thread::sleep(LOOK_EVERY);
        }
        let found = LoadConnection::open(ours.address, What::Create)
            .and_then(|mut connection| compare(&mut connection, &traced));
        traced.ends.store(true, Ordering::Relaxed);
        (found, tracer.join())
    });
    match tracer.map_err(|_| "the tracer has panicked".to_owned())? {
        Err(why) => return Ok(Some(why)),
        Ok(ran) => ran?,
    }
    let (without, all) = found?;
    bench.sample(KEY, "creations", without.into());
    let all = f64::from(u32::try_from(all).map_err(text)?);
    bench.sample("synchronisations_a_creation", "", all / f64::from(CREATIONS));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_synchronising_calls_are_met() {
        let call = |number: i64| format!("{number} 0x1b 0x0 0x2 0x0 0x0 0x0 0x7ffe 0x7f4e\n");
        assert_eq!(synchronised(&call(libc::SYS_fdatasync)), Some(0x1b));
        assert_eq!(synchronised(&call(libc::SYS_fsync)), Some(0x1b));
        assert_eq!(synchronised(&call(libc::SYS_write)), None);
        assert_eq!(synchronised("running\n"), None);
        assert_eq!(synchronised("-1 0x7ffe 0x7f4e\n"), None);
        assert_eq!(synchronised(""), None);
    }
}
