//! A gateway program as relay: run by our loops, or built as C or as Java and run as a process. And
//! socat, a relay that is not ours.

use super::sockets::LOOK;
use super::{Ready, RelayJob, Seat};
use crate::clock;
use crate::processor::pin_process;
use gatewright_config::RelayKind;
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_emit::{C_IO, C_RUNTIME, JAVA_RUNTIME, SourceFile, c, java};
use gatewright_lang::ir::Program;
use gatewright_runner::{Runner, RunnerOptions};
use gatewright_testbed::Needs;
use std::fmt::Display;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The program: each datagram passes as it is.
const TEXT: &str = include_str!("../../../../examples/lab/relay.gate");
/// How long a built program may take until it says that it is ready.
const START_WITHIN: Duration = Duration::from_secs(20);

/// Whether the relay is a gateway program.
pub(crate) const fn is_program(kind: RelayKind) -> bool {
    matches!(kind, RelayKind::ProgramNative | RelayKind::ProgramC | RelayKind::ProgramJava)
}

/// Why the program cannot be built here; none if it can.
pub(super) fn unavailable(kind: RelayKind) -> Option<String> {
    let needs = match kind {
        RelayKind::ProgramC => Needs::new().program("make").program("gcc"),
        RelayKind::ProgramJava => Needs::new().program("make").program("javac").program("java"),
        _ => return None,
    };
    needs.missing().map(|missing| format!("needs {missing}"))
}

/// Programs that this run has built; the folder goes with it.
#[derive(Debug, Default)]
pub(crate) struct BuiltPrograms(Mutex<Vec<(RelayKind, PathBuf)>>);

impl BuiltPrograms {
    /// The folder of the program as C or as Java; it is built the first time.
    fn folder(&self, kind: RelayKind) -> Result<PathBuf, String> {
        let mut built = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, folder)) = built.iter().find(|(it, _)| *it == kind) {
            return Ok(folder.clone());
        }
        let name = format!("gatewright-lab-{}-{:x}", kind.name(), clock::now());
        let folder = std::env::temp_dir().join(name);
        // It must not exist yet: what another user put there would be built and run.
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| format!("{}: {error}", folder.display()))?;
        built.push((kind, folder.clone()));
        build(kind, &folder)?;
        Ok(folder)
    }
}

impl Drop for BuiltPrograms {
    fn drop(&mut self) {
        let built = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, folder) in built.drain(..) {
            // Temporary files that stay harm nobody.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// The command that runs the program of a folder.
fn command(kind: RelayKind, folder: &Path) -> Command {
    if kind == RelayKind::ProgramC {
        return Command::new(folder.join("relay"));
    }
    let mut java = Command::new("java");
    // One processor: the collector that needs no thread of its own.
    java.args(["-XX:+UseSerialGC", "-jar"]).arg(folder.join("relay.jar"));
    java
}

/// Works as the program until the relay is stopped.
pub(super) fn serve(
    kind: RelayKind,
    seat: &Seat,
    built: &BuiltPrograms,
    job: &RelayJob,
    ready: &Ready,
) -> Result<(), String> {
    let addresses = vec![
        ("here".to_owned(), seat.local.to_string()),
        ("there".to_owned(), seat.to.to_string()),
    ];
    if kind == RelayKind::ProgramNative {
        let options = RunnerOptions { loops: 1, addresses, ..RunnerOptions::default() };
        let runner = Runner::start(&compiled()?, options).map_err(|error| error.to_string())?;
        ready.tell(Ok(()));
        while !job.is_stopped() {
            std::thread::sleep(LOOK);
        }
        runner.stop(Duration::ZERO);
        return Ok(());
    }
    let folder = built.folder(kind)?;
    let (log, mut command) = (folder.join("log"), command(kind, &folder));
    let told = fs::File::create(&log).map_err(|error| error.to_string())?;
    command.args(["-n", "1"]).args(addresses.iter().map(|(role, at)| format!("{role}={at}")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(told);
    let child = command.spawn().map_err(|error| error.to_string())?;
    let mut process = KilledProcess(child);
    process.await_ready(&log)?;
    ready.tell(Ok(()));
    wait_for_stop(job, || process.0.try_wait())
}

/// Works as socat, which relays each connection by a process of its own, until the relay is stopped.
pub(super) fn serve_socat(seat: &Seat, job: &RelayJob, ready: &Ready) -> Result<(), String> {
    let (local, to) = (seat.local, seat.to);
    let node = seat.node.as_ref().ok_or("it needs a namespace")?;
    let listen = format!("TCP4-LISTEN:{},bind={},reuseaddr,fork,nodelay", local.port(), local.ip());
    let connect = format!("TCP4:{}:{},nodelay", to.ip(), to.port());
    let command = node.command("socat").args([listen, connect]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut socat = command.spawn().map_err(|error| error.to_string())?;
    if let (Some(id), Some(processor)) = (socat.id(), seat.processor) {
        // It waits for its first connection, whose process inherits this.
        pin_process(id, processor);
    }
    if let (Some(id), Some(quota)) = (socat.id().and_then(|id| i32::try_from(id).ok()), &job.quota)
    {
        quota.hold(id)?;
    }
    let start = Instant::now();
    while TcpStream::connect(local).is_err() {
        still_runs(socat.try_wait())?;
        if start.elapsed() > START_WITHIN {
            return Err("it does not listen".to_owned());
        }
        std::thread::sleep(LOOK);
    }
    ready.tell(Ok(()));
    wait_for_stop(job, || socat.try_wait())
}

/// Waits until the relay is stopped; a process that ends before, as `try_wait` says, is a failure.
fn wait_for_stop<E: Display>(
    job: &RelayJob,
    mut try_wait: impl FnMut() -> Result<Option<ExitStatus>, E>,
) -> Result<(), String> {
    while !job.is_stopped() {
        still_runs(try_wait())?;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// An error if a process has ended by itself.
fn still_runs<E: Display>(state: Result<Option<ExitStatus>, E>) -> Result<(), String> {
    let ended = state.map_err(|error| error.to_string())?;
    ended.map_or(Ok(()), |status| Err(format!("the program ended by itself: {status}")))
}

/// A process that is killed when dropped.
#[derive(Debug)]
struct KilledProcess(Child);

impl KilledProcess {
    /// Waits until the program has said on its log that it is ready.
    fn await_ready(&mut self, log: &Path) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let said = fs::read_to_string(log).unwrap_or_default();
            if said.lines().any(|line| line.ends_with("ready")) {
                return Ok(());
            }
            let ended = self.0.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = ended {
                return Err(format!("the program ended with {status}: {}", said.trim()));
            }
            if start.elapsed() > START_WITHIN {
                return Err(format!("the program was not ready in time: {}", said.trim()));
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for KilledProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compiled() -> Result<Arc<Program>, String> {
    let mut sources = Sources::of("relay.gate", TEXT);
    let compiled = gatewright_lang::compile(&mut sources, SourceId::default(), |_, _| None);
    let first = compiled.diagnostics.first().map(|it| it.message.clone());
    let program = compiled.program.map(Arc::new);
    program.ok_or_else(|| format!("relay.gate: {}", first.unwrap_or_default()))
}

/// Writes the program's sources into a folder and makes them.
fn build(kind: RelayKind, folder: &Path) -> Result<(), String> {
    let program = compiled()?;
    let (files, runtime): (Vec<SourceFile>, Vec<(&str, &str)>) = if kind == RelayKind::ProgramC {
        let files = c(&program, &|_| None).map_err(|error| error.to_string())?;
        (files, C_RUNTIME.into_iter().chain(C_IO).collect())
    } else {
        let files = java(&program, &|_| None).map_err(|error| error.to_string())?;
        (files, JAVA_RUNTIME.into_iter().collect())
    };
    let written = files.iter().map(|file| (file.name.as_str(), file.text.as_str()));
    for (name, text) in runtime.into_iter().chain(written) {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        let done = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        done.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let made = Command::new("make").args(["-s", "-C"]).arg(folder).output();
    let made = made.map_err(|error| format!("make: {error}"))?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    Err(format!("the program was not built: {}", said.lines().next_back().unwrap_or_default()))
}
