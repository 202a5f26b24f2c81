//! `gatewright gw trace`: a test of a program, step by step.

use super::{compile, live, recorded};
use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
    new_file::{FOR_ALL, write_new},
    socket,
};
use gatewright_diagnostic::Sources;
use gatewright_lang::{Compiled, ir};
use gatewright_programs::recorded_test::{RecordedTest, TracedStep, quoted, traced_steps};
use serde::Serialize;
use std::path::{Path, absolute};
use std::sync::Arc;

/// Shows a test of a program step by step: received octets, fields, statements with their values,
/// sent octets.
///
/// Without NAME it shows the first test. Ends with 1 if the test fails. `--pcapng` makes a test
/// from a capture of the program's ports, as `gatewright capture` or tcpdump write it. For a
/// server, only its first peer is used; for a client, all connections.
///
/// `--at` shows the next message that reaches a handler of a running gateway, with its conversation
/// from the peer's connection (UDP: its first datagram) to the end of the handler. Connections that
/// were open before are left out, and handlers of the conversation open their own connections to
/// servers. What is shown is the test that repeats the conversation. Ends with 1 if no message came.
#[derive(Debug, clap::Args)]
pub(super) struct Trace {
    /// The program; `-` is standard input.
    #[arg(required_unless_present = "at", conflicts_with = "at")]
    file: Option<String>,
    /// The test's name, or a part of it.
    #[arg(long, value_name = "NAME", conflicts_with = "at")]
    test: Option<String>,
    /// Show a conversation from a capture file, as a test.
    #[arg(long, value_name = "CAPTURE", conflicts_with_all = ["test", "at"])]
    pcapng: Option<String>,
    /// Show the next message at `gateway:NAME/HANDLER` of a running gateway, as a test; `*` means all
    /// handlers.
    #[arg(long, value_name = "POSITION")]
    at: Option<String>,
    /// How long to wait for the end of its conversation.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, requires = "at")]
    seconds: f64,
    #[command(flatten)]
    gateway: socket::Which,
    /// Write the test of `--pcapng` or `--at` to NEW, which must not exist; `gatewright gw test NEW`
    /// runs it.
    #[arg(long, value_name = "NEW")]
    save: Option<String>,
}

#[derive(Default, Serialize)]
struct TraceReport {
    ok: bool,
    file: String,
    test: String,
    steps: Vec<TracedStep>,
    /// Why a recorded test may not repeat what was recorded.
    gaps: Vec<String>,
}

/// The traced program and test.
struct Shown {
    sources: Sources,
    compiled: Compiled,
    file: String,
    /// The text of a recorded test, which is the program's last.
    recorded: Option<String>,
    /// Why that test may not repeat what was recorded.
    gaps: Vec<String>,
}

impl Trace {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        if self.save.is_some() && self.pcapng.is_none() && self.at.is_none() {
            let message = "--save is for what --pcapng or --at records".to_owned();
            return Err(Failure::new(Exit::Usage, message).into());
        }
        let Some(shown) = self.shown()? else {
            face.answer(&TraceReport::default(), String::new)?;
            face.note(&format!("no message has come to its end within {} s", self.seconds));
            return Ok(Exit::Negative);
        };
        let Shown { sources, compiled, file, recorded, gaps } = shown;
        for gap in &gaps {
            face.note(&format!("the test may fail: {gap}"));
        }
        face.findings(&compiled.diagnostics, &sources);
        let Some(program) = compiled.program.map(Arc::new) else {
            let message = format!("{file}: has no gateway that can be run");
            return Err(Failure::new(Exit::Configuration, message).into());
        };
        if let (Some(path), Some(recorded)) = (&self.save, &recorded) {
            save(path, &file, recorded)?;
        }
        let wanted = self.test.as_deref().unwrap_or_default();
        let is_wanted = |test: &&ir::TestCase| test.name.contains(wanted);
        let found = match recorded {
            Some(_) => program.tests.last(),
            None => program.tests.iter().find(is_wanted),
        };
        let Some(test) = found else {
            let message = format!("{file}: has no test `{wanted}`");
            return Err(Failure::new(Exit::Negative, message).into());
        };
        let (failed, steps) = traced_steps(&program, &sources, test);
        let (ok, test_name) = (failed.is_none(), test.name.clone());
        let answer = TraceReport { ok, file, test: test_name, steps, gaps };
        face.answer(&answer, || text(&answer))?;
        let finding = failed.map(|failed| failed.diagnostic(&test.name));
        face.findings(finding.as_slice(), &sources);
        Ok(if answer.ok { Exit::Success } else { Exit::Negative })
    }

    /// The program, with a recorded test if one is wanted; `None` if no message came in time.
    fn shown(&self) -> Result<Option<Shown>, Failure> {
        if let Some(at) = &self.at {
            let Some(live) = live::record(&self.gateway, at, self.seconds)? else {
                return Ok(None);
            };
            let RecordedTest { sources, compiled, program: file, text: test, gaps } = live;
            return Ok(Some(Shown { sources, compiled, file, recorded: Some(test), gaps }));
        }
        let (file, gaps) = (self.file.clone().unwrap_or_default(), Vec::new());
        Ok(Some(if let Some(capture) = &self.pcapng {
            let (sources, compiled, test) = recorded::compile(&file, capture)?;
            Shown { sources, compiled, file, recorded: Some(test), gaps }
        } else {
            let (sources, compiled) = compile(&file)?;
            Shown { sources, compiled, file, recorded: None, gaps }
        }))
    }
}

/// Writes a test to a new file that imports its program.
fn save(path: &str, program: &str, test: &str) -> Result<(), Failure> {
    let text = match import_of(path, program) {
        Some(import) => format!("use \"{import}\"\n\n{test}"),
        None => test.to_owned(),
    };
    write_new(Path::new(path), text.as_bytes(), FOR_ALL)
}

/// How the file `path` imports `program`: by its name from the same folder, else by its whole path;
/// `None` for standard input.
fn import_of(path: &str, program: &str) -> Option<String> {
    if program == "-" {
        return None;
    }
    let whole = absolute(program).ok()?;
    let folder = absolute(path).ok()?;
    let is_beside = whole.parent() == folder.parent();
    let import = if is_beside { Path::new(whole.file_name()?) } else { &whole };
    // As octets in quotes, whatever the name holds.
    let quoted = quoted(import.as_os_str().as_encoded_bytes());
    quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).map(str::to_owned)
}

fn text(answer: &TraceReport) -> String {
    let line = |step: &TracedStep| {
        let place = step.place.as_ref();
        let place = place.map(|place| format!("{}:{}", place.file, place.line)).unwrap_or_default();
        let indent = if matches!(step.what, "arrived" | "sent") { "" } else { "    " };
        let line = format!("{indent}{:<9} {} {}", step.what, step.who, step.text);
        if place.is_empty() { line } else { format!("{line}  ({place})") }
    };
    let steps = answer.steps.iter().map(line).collect::<Vec<_>>().join("\n");
    format!("{}\n{steps}", answer.test)
}
