//! `gatewright gw run`: programs run over this machine's sockets.

use super::compile;
use anyhow::Result;
use gatewright_command::exit::{Exit, Failure};
use gatewright_command::face::Face;
use gatewright_command::verbs::run::{seed, stopped};
use gatewright_diagnostic::Sources;
use gatewright_lang::ir::Program;
use gatewright_programs::{ProgramError, ProgramSettings};
use gatewright_runner::{PeerChange, PeerSink, Runner, RunnerError, RunnerOptions};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How often changed files are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Runs programs on this machine's sockets, until interrupted.
///
/// Prints the addresses of their listeners. When interrupted, it accepts no more requests and
/// completes the running ones.
#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// Programs; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Address of a role, instead of the program's own.
    #[arg(long, value_name = "ROLE=HOST:PORT", value_parser = address)]
    at: Vec<(String, String)>,
    /// Set a parameter of the programs that have it; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Set a parameter from an environment variable.
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = pair)]
    set_env: Vec<(String, String)>,
    /// Set a parameter from a file; a final line break is removed.
    #[arg(long, value_name = "NAME=FILE", value_parser = pair)]
    set_file: Vec<(String, String)>,
    /// Event loops for each program, each with the program's limits; 0 is one for each core.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    loops: usize,
    /// Replace a program when its file changes; running sessions end in the old one.
    #[arg(long)]
    watch: bool,
    /// Stop after this time.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
    /// Time for sessions to complete when the program ends or is replaced.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
}

fn address(text: &str) -> Result<(String, String), String> {
    let (role, address) = text.split_once('=').ok_or("wanted is ROLE=HOST:PORT")?;
    Ok((role.to_owned(), address.to_owned()))
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("wanted is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Results of a program's requests, at its end.
#[derive(Serialize)]
struct Ran {
    file: String,
    program: String,
    loops: u64,
    /// Connections that were cut off.
    connections: u64,
    counters: BTreeMap<&'static str, u64>,
    handlers: BTreeMap<String, Handled>,
}

#[derive(Serialize)]
struct Handled {
    started: u64,
    finished: u64,
    failed: u64,
    /// Median and 99th percentile, in microseconds.
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}` has ended", self.file, self.program)?;
        for (name, handled) in &self.handlers {
            write!(f, "\n  {:>10}  {name} begun, {} failed", handled.started, handled.failed)?;
            if let (Some(half), Some(most)) = (handled.p50_us, handled.p99_us) {
                write!(f, ", half within {half} us, 99 % within {most} us")?;
            }
        }
        for (name, number) in self.counters.iter().filter(|(_, number)| **number > 0) {
            write!(f, "\n  {number:>10}  {}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

impl Run {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let mut compiled = Vec::new();
        for file in &self.files {
            let (sources, read) = compile(file)?;
            face.findings(&read.diagnostics, &sources);
            let Some(program) = read.program else { return Ok(Exit::Configuration) };
            compiled.push((program, sources));
        }
        let programs: Vec<&Program> = compiled.iter().map(|(program, _)| program).collect();
        if let Some(name) = self.unknown_parameter(&programs) {
            let why = format!("none of the programs has a parameter `{name}`");
            return Err(Failure::new(Exit::Configuration, why).into());
        }
        for (file, (program, _)) in self.files.iter().zip(&mut compiled) {
            self.settings(program)
                .apply(program)
                .map_err(|why| Failure::new(Exit::Configuration, format!("{file}: {why}")))?;
        }
        // Threads from here on leave interrupts to this one.
        let stopped = stopped()?;
        let options = RunnerOptions {
            loops: self.loops,
            addresses: self.at.clone(),
            seed: seed()?,
            drain_within: Duration::from_secs(self.drain),
            peers: Some(peer_notes(face)?),
        };
        let mut running = Vec::new();
        for (file, (program, sources)) in self.files.iter().zip(compiled) {
            let program = Arc::new(program);
            let runner = Runner::start(&program, options.clone());
            let runner = runner.map_err(|source| failure(file, source))?;
            let (file, name) = (file.clone(), program.name.clone());
            running.push(LoadedProgram { file, name, stamps: stamps(&sources), runner });
        }
        for it in &running {
            it.tell(face);
        }
        self.wait(face, &stopped, &mut running);
        let within = Duration::from_secs(self.drain);
        let ran: Vec<Ran> = running.into_iter().map(|it| it.end(within)).collect();
        face.answer(&ran, || ran.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
        Ok(Exit::Success)
    }

    /// The settings of a program: of several programs, each gets the parameters that it declares.
    fn settings(&self, program: &Program) -> ProgramSettings {
        let is_for = |name: &str| self.files.len() == 1 || has_parameter(program, name);
        let of = |pairs: &[(String, String)]| {
            pairs.iter().filter(|(name, _)| is_for(name)).cloned().collect()
        };
        ProgramSettings {
            values: of(&self.set),
            variables: of(&self.set_env),
            files: of(&self.set_file),
        }
    }

    /// The first parameter that is set and that none of several programs has.
    fn unknown_parameter(&self, programs: &[&Program]) -> Option<&str> {
        let mut names = [&self.set, &self.set_env, &self.set_file].into_iter().flatten();
        let is_unknown = |name: &str| !programs.iter().any(|program| has_parameter(program, name));
        // Of a single program the refusal tells its parameters.
        let (name, _) = names.find(|(name, _)| programs.len() > 1 && is_unknown(name))?;
        Some(name)
    }

    /// Waits for an interrupt or for the time to pass, and looks after changed files.
    fn wait(&self, face: Face, stopped: &Receiver<()>, running: &mut [LoadedProgram]) {
        let until = self.stop_after.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let pause = if self.watch { Some(LOOK_EVERY) } else { None };
            let pause = left.into_iter().chain(pause).min();
            let over = match pause {
                None => stopped.recv().is_ok(),
                Some(pause) => stopped.recv_timeout(pause).is_ok(),
            };
            if over || left.is_some_and(|left| left.is_zero()) {
                return;
            }
            if self.watch {
                for it in running.iter_mut() {
                    it.look(face, |program| self.settings(program));
                }
            }
        }
    }
}

fn has_parameter(program: &Program, name: &str) -> bool {
    program.parameters.iter().any(|of| of.name == name)
}

/// A program that runs, and the files that it was made of.
struct LoadedProgram {
    file: String,
    name: String,
    stamps: Vec<Stamp>,
    runner: Runner,
}

impl LoadedProgram {
    fn tell(&self, face: Face) {
        for listening in self.runner.listening() {
            face.note(&format!("{}: {} at {}", self.name, listening.role, listening.address));
        }
        if let Some(note) = self.runner.note() {
            face.note(&format!("{}: {note}", self.name));
        }
    }

    /// Lets the program take over that its files now hold, if they have changed.
    fn look(&mut self, face: Face, settings: impl Fn(&Program) -> ProgramSettings) {
        if self.stamps.iter().all(|stamp| *stamp == Stamp::of(&stamp.file)) {
            return;
        }
        // A file that is being replaced is not there for a moment; the next look finds it.
        let Ok((sources, compiled)) = compile(&self.file) else { return };
        self.stamps = stamps(&sources);
        face.findings(&compiled.diagnostics, &sources);
        let Some(mut program) = compiled.program else {
            face.note(&format!("{}: the program before runs on", self.file));
            return;
        };
        if let Err(why) = settings(&program).apply(&mut program) {
            face.note(&format!("{}: {why}; the program before runs on", self.file));
            return;
        }
        match self.runner.replace(&Arc::new(program)) {
            Ok(()) => {
                face.note(&format!("{}: replaced", self.file));
                self.tell(face);
            }
            Err(error) => {
                face.note(&format!("{}: {error}; the program before runs on", self.file));
            }
        }
    }

    fn end(self, within: Duration) -> Ran {
        let report = self.runner.stop(within);
        let handled = |(name, of): (String, gatewright_runner::Handled)| {
            let within = |percent| Some(of.times.quantile(percent, 100)?.div_ceil(1000));
            let (p50_us, p99_us) = (within(50), within(99));
            let gatewright_runner::Handled { started, finished, failed, .. } = of;
            (name, Handled { started, finished, failed, p50_us, p99_us })
        };
        Ran {
            file: self.file,
            program: self.name,
            loops: report.loops,
            connections: report.connections,
            counters: report.counters,
            handlers: report.handlers.into_iter().map(handled).collect(),
        }
    }
}

/// A sink that notes changes of servers on a thread of its own: a reader of standard error that stops
/// reading stops no loop.
fn peer_notes(face: Face) -> Result<PeerSink> {
    let (to, changes) = sync_channel::<PeerChange>(NOTES_MAX);
    let note = move || changes.iter().for_each(|change| face.note(&change.to_string()));
    thread::Builder::new().name("peer-notes".to_owned()).spawn(note)?;
    Ok(PeerSink::new(move |change| {
        // The reader is that slow: what is lost now is in the counters.
        let _lost = to.try_send(change);
    }))
}

/// Maximum number of notes about servers that wait to be written.
const NOTES_MAX: usize = 64;

/// Why a program cannot be run, with its exit code.
fn failure(file: &str, source: RunnerError) -> Failure {
    let error = ProgramError::Run { file: file.to_owned(), source };
    Failure::new(Exit::of(error.exit_code()), error.to_string())
}

/// The state of a file when it was read.
#[derive(Eq, PartialEq)]
struct Stamp {
    file: PathBuf,
    changed: Option<SystemTime>,
}

impl Stamp {
    fn of(file: &Path) -> Self {
        let changed = file.metadata().and_then(|about| about.modified()).ok();
        Self { file: file.to_owned(), changed }
    }
}

fn stamps(sources: &Sources) -> Vec<Stamp> {
    sources.iter().map(|(_, source)| Stamp::of(Path::new(source.name()))).collect()
}
