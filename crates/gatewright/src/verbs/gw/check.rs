//! `gatewright gw check`: all that is wrong with programs, and what a session costs at most.

use super::compile;
use anyhow::Result;
use gatewright_command::{exit::Exit, face::Face};
use gatewright_diagnostic::{Finding, has_errors};
use gatewright_lang::ir;
use serde::Serialize;
use std::fmt;

/// Checks programs, reports all errors, and shows the maximum memory of a session.
///
/// Imported files are checked, too. Every finding has file, line, column, an excerpt, a code for
/// `gatewright explain`, and help. Ends with 0 if every file compiles (warnings do not count), else
/// with 78.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// Programs; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
}

#[derive(Serialize)]
struct ProgramReport {
    ok: bool,
    files: Vec<ProgramJudgement>,
}

#[derive(Serialize)]
struct ProgramJudgement {
    file: String,
    ok: bool,
    program: Option<Program>,
    findings: Vec<Finding>,
}

/// The contents of a program in numbers, and its computed maximum memory.
#[derive(Serialize)]
struct Program {
    name: String,
    messages: usize,
    roles: usize,
    handlers: usize,
    tests: usize,
    session_octets: u64,
    sessions_max: u64,
    bounds: Vec<WorstCase>,
}

#[derive(Serialize)]
struct WorstCase {
    what: String,
    octets: u64,
}

impl Program {
    fn of(program: ir::Program) -> Self {
        let lines = program.bounds.lines.into_iter();
        Self {
            name: program.name,
            messages: program.messages.len(),
            roles: program.roles.len(),
            handlers: program.handlers.len(),
            tests: program.tests.len(),
            session_octets: program.bounds.session_octets,
            sessions_max: program.bounds.sessions_max,
            bounds: lines.map(|line| WorstCase { what: line.what, octets: line.octets }).collect(),
        }
    }
}

impl fmt::Display for ProgramJudgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ok: ", self.file)?;
        let Some(program) = &self.program else {
            return f.write_str("to be imported, no gateway of its own");
        };
        write!(f, "`{}`", program.name)?;
        let parts = [
            (program.messages, "message"),
            (program.roles, "role"),
            (program.handlers, "handler"),
            (program.tests, "test"),
        ];
        for (count, what) in parts.into_iter().filter(|&(count, _)| count > 0) {
            write!(f, ", {count} {what}{}", if count == 1 { "" } else { "s" })?;
        }
        let (octets, most) = (program.session_octets, program.sessions_max);
        write!(f, "; a session takes at most {octets} octets")?;
        // A gateway that only acts by its timers has no sessions to count.
        if most > 0 {
            write!(f, ", and there are at most {most}")?;
        }
        for WorstCase { what, octets } in &program.bounds {
            write!(f, "\n  {octets:>8}  {what}")?;
        }
        Ok(())
    }
}

impl Check {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let mut files = Vec::new();
        for file in self.files {
            let (sources, compiled) = compile(&file)?;
            face.findings(&compiled.diagnostics, &sources);
            files.push(ProgramJudgement {
                file,
                ok: !has_errors(&compiled.diagnostics),
                program: compiled.program.map(Program::of),
                findings: Face::data(&compiled.diagnostics, &sources),
            });
        }
        let answer = ProgramReport { ok: files.iter().all(|file| file.ok), files };
        face.answer(&answer, || {
            let good = answer.files.iter().filter(|file| file.ok);
            good.map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        Ok(if answer.ok { Exit::Success } else { Exit::Configuration })
    }
}
