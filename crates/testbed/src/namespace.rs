use crate::process::{Command, Job};
use crate::{TestbedError, wait_until};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

/// A network namespace of its own, with a loopback interface that is up.
///
/// A clone is the same namespace. It goes when the last clone, [`Process`](crate::Process) and
/// [`TestInterface`](crate::Interface) of it are dropped, after the processes inside have ended.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<HeldNamespace>);

/// A transport whose listening ports can be queried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Transport {
    /// TCP, in state LISTEN.
    Tcp,
    /// UDP, bound.
    Udp,
}

/// The resources that hold the namespace.
#[derive(Debug)]
struct HeldNamespace {
    /// The network namespace itself.
    network: File,
    /// The first process of the process namespace. It reads a pipe whose other end only this
    /// process has. However this process ends, that process reads the end of file and exits, and
    /// the kernel kills all processes inside with it.
    anchor: Mutex<Child>,
    /// The thread that starts programs: they are created inside.
    keeper: Mutex<Keeper>,
}

#[derive(Debug)]
struct Keeper {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes an empty namespace.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] without `CAP_SYS_ADMIN`; [`TestbedError::Start`] without `ip`.
    pub fn new() -> Result<Self, TestbedError> {
        let (jobs, inbox) = channel::<Job>();
        let (ready, made) = channel();
        let thread = thread::Builder::new()
            .name("namespace".to_owned())
            .spawn(move || {
                let parts = enter_new();
                let failed = parts.is_err();
                if ready.send(parts).is_err() || failed {
                    return;
                }
                for job in inbox {
                    job();
                }
            })
            .map_err(|source| TestbedError::System { action: "start a thread", source })?;
        let lost = || TestbedError::System {
            action: "make a namespace",
            source: io::Error::other("its thread ended"),
        };
        let (network, anchor) = made.recv().map_err(|_| lost())??;
        let keeper = Mutex::new(Keeper { jobs: Some(jobs), thread: Some(thread) });
        let namespace =
            Self(Arc::new(HeldNamespace { network, anchor: Mutex::new(anchor), keeper }));
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Runs `action` on a new thread inside the namespace and waits for it.
    ///
    /// Sockets opened and threads started by `action` stay inside. A panic of `action` continues in
    /// the caller.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if the thread cannot be started or may not enter.
    pub fn run<R: Send>(&self, action: impl FnOnce() -> R + Send) -> Result<R, TestbedError> {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("in-namespace".to_owned());
            let inside = thread
                .spawn_scoped(scope, || {
                    setns(&self.0.network, CloneFlags::CLONE_NEWNET)
                        .map_err(TestbedError::system("enter a namespace"))?;
                    Ok(action())
                })
                .map_err(|source| TestbedError::System { action: "start a thread", source })?;
            match inside.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// A program to be run inside, with everything it starts.
    pub fn command(&self, program: &str) -> Command {
        Command::new(self.clone(), program)
    }

    /// Runs `ip` inside with `arguments` and returns what it printed.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Failed`] with the error output of `ip`.
    pub fn ip(&self, arguments: &[&str]) -> Result<String, TestbedError> {
        self.command("ip").args(arguments).run()
    }

    /// Adds a route to `destination` (`default` or a prefix) by way of the neighbour `via`.
    ///
    /// # Errors
    ///
    /// [`TestbedError::Failed`] if the kernel refuses it.
    pub fn add_route(&self, destination: &str, via: &str) -> Result<(), TestbedError> {
        let family = if via.contains(':') { "-6" } else { "-4" };
        self.ip(&[family, "route", "add", destination, "via", via]).map(drop)
    }

    /// Sets a kernel parameter inside, named with dots (`net.ipv4.ip_forward`).
    ///
    /// # Errors
    ///
    /// [`TestbedError::File`] if it does not exist or refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), TestbedError> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.run(|| fs::write(&path, value))?.map_err(TestbedError::file(&path))
    }

    /// A protocol counter of the kernel inside, by the name that `nstat` gives it
    /// (`TcpInCsumErrors`, `Udp6InCsumErrors`).
    ///
    /// # Errors
    ///
    /// [`TestbedError::NoEntry`] if the kernel has no such counter.
    pub fn counter(&self, name: &str) -> Result<u64, TestbedError> {
        const TABLES: &str = "/proc/thread-self/net/{snmp,snmp6,netstat}";
        let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let tables = self.run(|| Ok([read("snmp")?, read("netstat")?, read("snmp6")?]))?;
        let [snmp, netstat, snmp6] = tables.map_err(TestbedError::file(TABLES))?;
        paired(&snmp, name)
            .or_else(|| paired(&netstat, name))
            .or_else(|| flat(&snmp6, name))
            .ok_or_else(|| TestbedError::NoEntry { path: TABLES, entry: name.to_owned() })
    }

    /// Waits, at most `limit`, until a program inside listens on `port`; returns whether one does.
    ///
    /// # Errors
    ///
    /// [`TestbedError::System`] if the namespace cannot be entered.
    pub fn wait_listening(
        &self,
        transport: Transport,
        port: u16,
        limit: Duration,
    ) -> Result<bool, TestbedError> {
        self.run(|| wait_until(limit, || listens(transport, port)))
    }

    /// A path by which other programs can open this namespace while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.network.as_raw_fd())
    }

    /// Hands `job` to the thread inside; returns whether that thread still exists.
    pub(crate) fn submit(&self, job: Job) -> bool {
        let keeper = self.0.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl Drop for HeldNamespace {
    fn drop(&mut self) {
        let anchor = self.anchor.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Its end is the end of every process inside. There is nothing to do about a failure.
        let _ = anchor.kill();
        let _ = anchor.wait();
        let keeper = self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner);
        keeper.jobs = None;
        if let Some(thread) = keeper.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into a new network namespace, and its children to come into a new
/// process namespace, anchored.
fn enter_new() -> Result<(File, Child), TestbedError> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID)
        .map_err(TestbedError::system("make a namespace (root is needed)"))?;
    let path = "/proc/thread-self/ns/net";
    let network = File::open(path).map_err(TestbedError::file(path))?;
    let anchor = std::process::Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| TestbedError::Start { program: "cat".to_owned(), source })?;
    Ok((network, anchor))
}

/// The value of `name` in a table of pairs of lines: a group's names, then its values.
fn paired(table: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (group, names) = names.split_once(':')?;
        let (_, values) = values.split_once(':')?;
        let Some(wanted) = name.strip_prefix(group) else { continue };
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        if let Some((_, value)) = pairs.find(|(name, _)| *name == wanted) {
            return value.parse().ok();
        }
    }
    None
}

/// The value of `name` in a table with one name and value a line.
fn flat(table: &str, name: &str) -> Option<u64> {
    let mut words = table.lines().map(str::split_whitespace);
    words.find_map(|mut line| (line.next()? == name).then(|| line.next()?.parse().ok())?)
}

/// Whether the calling thread's namespace has a listener on `port`.
fn listens(transport: Transport, port: u16) -> bool {
    // State codes of `/proc/net/tcp`: TCP_LISTEN is 10, an unconnected UDP socket is in
    // TCP_CLOSE, 7 (linux/include/net/tcp_states.h).
    let (files, state) = match transport {
        Transport::Tcp => (["tcp", "tcp6"], "0A"),
        Transport::Udp => (["udp", "udp6"], "07"),
    };
    let port = format!(":{port:04X}");
    files.iter().any(|file| {
        let table = fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        table.unwrap_or_default().lines().skip(1).any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let (local, _remote) = (columns.next(), columns.next());
            local.is_some_and(|local| local.ends_with(&port)) && columns.next() == Some(state)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_in_its_group_only() {
        let table = "Tcp: InErrs InCsumErrors\nTcp: 3 4\nUdp: InErrs InCsumErrors\nUdp: 5 6\n";
        assert_eq!(paired(table, "TcpInCsumErrors"), Some(4));
        assert_eq!(paired(table, "UdpInCsumErrors"), Some(6));
        assert_eq!(paired(table, "UdpNoPorts"), None);
        assert_eq!(flat("Udp6InErrors \t 7\nUdp6InCsumErrors\t8\n", "Udp6InCsumErrors"), Some(8));
    }
}
