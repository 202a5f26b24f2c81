//! `gatewright gw trace`: a test of a program, step by step.

use super::{compile, recorded};
use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use gatewright_diagnostic::{SourceRange, Sources, Span};
use gatewright_lang::ir;
use gatewright_translate::machine::MachineStep as Step;
use gatewright_translate::transcript::{self, octets_shown};
use serde::Serialize;
use std::{fs::File, io::Write, sync::Arc};

/// Shows a test of a program step by step: received octets, fields, statements with their values,
/// sent octets.
///
/// Without NAME it shows the first test. Ends with 1 if the test fails. `--pcapng` makes a test
/// from a capture of the program's ports, as `gatewright capture` or tcpdump write it. For a
/// server, only its first peer is used; for a client, all connections.
#[derive(Debug, clap::Args)]
pub(super) struct Trace {
    /// The program; `-` is standard input.
    file: String,
    /// The test's name, or a part of it.
    #[arg(long, value_name = "NAME")]
    test: Option<String>,
    /// Show a conversation from a capture file, as a test.
    #[arg(long, value_name = "CAPTURE", conflicts_with = "test")]
    pcapng: Option<String>,
    /// Write that test to NEW, which must not exist; it can be added to the program.
    #[arg(long, value_name = "NEW", requires = "pcapng")]
    save: Option<String>,
}

#[derive(Serialize)]
struct TraceReport {
    ok: bool,
    file: String,
    test: String,
    steps: Vec<TracedStep>,
}

#[derive(Serialize)]
struct TracedStep {
    what: &'static str,
    who: String,
    text: String,
    place: Option<SourceRange>,
}

impl Trace {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let (sources, compiled, recorded) = match &self.pcapng {
            Some(capture) => recorded::compile(&self.file, capture)?,
            None => compile(&self.file).map(|(sources, it)| (sources, it, String::new()))?,
        };
        face.findings(&compiled.diagnostics, &sources);
        let Some(program) = compiled.program.map(Arc::new) else {
            let message = format!("{}: has no gateway that can be run", self.file);
            return Err(Failure::new(Exit::Configuration, message).into());
        };
        if let Some(path) = &self.save {
            let written =
                File::create_new(path).and_then(|mut it| it.write_all(recorded.as_bytes()));
            written.map_err(|error| Failure::file(path, &error))?;
        }
        let wanted = self.test.as_deref().unwrap_or_default();
        let is_wanted = |test: &&ir::TestCase| test.name.contains(wanted);
        let found = match &self.pcapng {
            Some(_) => program.tests.last(),
            None => program.tests.iter().find(is_wanted),
        };
        let Some(test) = found else {
            let message = format!("{}: has no test `{wanted}`", self.file);
            return Err(Failure::new(Exit::Negative, message).into());
        };
        let (failed, steps) = transcript::trace(&program, test);
        let steps = steps.iter().map(|step| told(&program, &sources, step)).collect();
        let answer =
            TraceReport { ok: failed.is_none(), file: self.file, test: test.name.clone(), steps };
        face.answer(&answer, || text(&answer))?;
        let finding = failed.map(|failed| failed.diagnostic(&test.name));
        face.findings(finding.as_slice(), &sources);
        Ok(if answer.ok { Exit::Success } else { Exit::Negative })
    }
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

/// The text of a span, its first line.
fn source(sources: &Sources, span: Span) -> (String, Option<SourceRange>) {
    let text = sources.get(span.source).text();
    let text = text.get(span.start..span.end).unwrap_or_default();
    (text.lines().next().unwrap_or_default().trim().to_owned(), Some(sources.place(span)))
}

fn told(program: &ir::Program, sources: &Sources, step: &Step) -> TracedStep {
    let role = |id| program.role(id).map(|role| role.name.clone()).unwrap_or_default();
    let message = |id| program.message(id).map(|of| of.name.clone()).unwrap_or_default();
    let handler = |id| program.handler(id).map(|of| of.name.clone()).unwrap_or_default();
    let plain = |what, who, text| TracedStep { what, who, text, place: None };
    match step {
        Step::Arrived { role: of, octets } => plain("arrived", role(*of), octets_shown(octets)),
        Step::Sent { role: of, octets } => plain("sent", role(*of), octets_shown(octets)),
        Step::Read { message: of, fields } => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {value}"));
            plain("read", message(*of), fields.collect::<Vec<_>>().join(", "))
        }
        Step::Malformed { message: of, why, span } => {
            let (_, place) = source(sources, *span);
            TracedStep { what: "malformed", who: message(*of), text: why.clone(), place }
        }
        Step::Case { span } => {
            let (text, place) = source(sources, *span);
            TracedStep { what: "case", who: String::new(), text, place }
        }
        Step::Did { span, set } => {
            let (text, place) = source(sources, *span);
            let set = set.as_ref().map(|(name, value)| match name.as_str() {
                "" => format!("  [{value}]"),
                name => format!("  [{name} = {value}]"),
            });
            let text = text + &set.unwrap_or_default();
            TracedStep { what: "did", who: String::new(), text, place }
        }
        Step::Started { handler: of } => plain("started", handler(*of), String::new()),
        Step::Ended { handler: of, finished } => {
            let how = if *finished { "" } else { "without an end of its own" };
            plain("ended", handler(*of), how.to_owned())
        }
        _ => plain("other", String::new(), String::new()),
    }
}
