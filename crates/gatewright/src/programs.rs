//! The programs of a description, as a part of its gateway.

use crate::description::NamedProgram;
use crate::exit::{Exit, Failure};
use gatewright_planes::Told;
use gatewright_runner::{Options, Report, Runner, RunnerError};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

/// How long requests may go on when the gateway ends.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Programs that run.
#[derive(Debug)]
pub(crate) struct Programs(Vec<(String, Runner)>);

impl Programs {
    /// Starts all of them, or none.
    ///
    /// # Errors
    ///
    /// A [`Failure`] that names the file.
    pub(crate) fn start(programs: &[NamedProgram], seed: u64) -> Result<Self, Failure> {
        let mut running = Vec::new();
        for NamedProgram { file, at, program } in programs {
            let options = Options { addresses: at.clone(), seed, ..Options::default() };
            let runner = Runner::start(program, options);
            let runner = runner.map_err(|error| failure(file, &error))?;
            running.push((program.name.clone(), runner));
        }
        Ok(Self(running))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where each role listens, and what the operator ought to know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let listening = self.0.iter().flat_map(|(name, runner)| {
            let at = runner.listening().into_iter();
            let at = at.map(move |it| format!("{name}: {} at {}", it.role, it.address));
            at.chain(runner.note().map(|note| format!("{name}: {note}")))
        });
        listening.collect()
    }

    /// What they do at this moment.
    pub(crate) fn told(&self) -> Told {
        let mut sum = Report::default();
        let mut words = Vec::new();
        for (name, runner) in &self.0 {
            let roles = runner.listening().into_iter();
            let roles = roles.map(|it| format!("{} at {}", it.role, it.address));
            let roles = roles.collect::<Vec<_>>().join(", ");
            words.push(("program", format!("{name} {roles}").trim_end().to_owned()));
            sum.add(runner.report());
        }
        let counters: BTreeMap<_, _> = sum.counters;
        Told {
            words,
            gauges: vec![("connections", sum.connections)],
            counters: counters.into_iter().collect(),
        }
    }

    /// Takes no more requests, and lets the running ones end.
    pub(crate) fn stop(self) {
        for (_, runner) in self.0 {
            runner.stop(END_WITHIN);
        }
    }
}

/// Why a program cannot be run, with its exit code.
pub(crate) fn failure(file: &str, error: &RunnerError) -> Failure {
    let exit = match error {
        RunnerError::Config(_) | RunnerError::NoAddress { .. } => Exit::Configuration,
        RunnerError::Listen { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Exit::Permission
        }
        _ => Exit::Unavailable,
    };
    Failure::new(exit, format!("{file}: {error}"))
}
