//! `gatewright gw test`: the `test` blocks of programs, against mocked peers in virtual time.

use super::{compile, recorded};
use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_diagnostic::{Diagnostic, Finding, SourceRange, Sources, has_errors};
use gatewright_lang::ir::{self, HandlerKind, Program, StepAction};
use gatewright_translate::law::laws;
use gatewright_translate::transcript::{self, Cut, TestResult};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Runs the `test` blocks of programs, against mocked peers in virtual time.
///
/// Also checks every view: generated messages, the same ones each time, are written and read back,
/// and each field must be unchanged.
///
/// A failed step is shown with the expected and the actual value. Handlers and cases of dispatches
/// that no test covers are listed. Ends with 0 if every test passes, with 1 if one fails, with 78
/// if a file does not compile.
#[derive(Debug, clap::Args)]
pub(super) struct Test {
    /// Programs; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,
    /// Repeat each test with its peers' messages split at every octet.
    #[arg(long)]
    every_split: bool,
    /// Also run a conversation from a capture file as a test of the one program FILE.
    #[arg(long, value_name = "CAPTURE")]
    pcapng: Option<String>,
}

#[derive(Serialize)]
struct TestReport {
    ok: bool,
    files: Vec<Judgement>,
}

#[derive(Serialize)]
struct Judgement {
    file: String,
    ok: bool,
    tests: Vec<TestOutcome>,
    /// How many runs with other cuts there were.
    splits: usize,
    views: Vec<Tried>,
    handlers_untried: Vec<String>,
    cases_untried: Vec<SourceRange>,
    findings: Vec<Finding>,
    #[serde(skip)]
    refused: bool,
}

#[derive(Serialize)]
struct TestOutcome {
    name: String,
    ok: bool,
    virtual_ms: u128,
}

/// The result of writing and reading back messages of a view.
#[derive(Serialize)]
struct Tried {
    view: String,
    ok: bool,
    messages: u32,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refused {
            return write!(f, "{}: does not compile; no test was run", self.file);
        }
        let passed = self.tests.iter().filter(|test| test.ok).count();
        write!(f, "{}: {passed} of {} tests pass", self.file, self.tests.len())?;
        if self.splits > 0 {
            write!(f, ", at {} splits", self.splits)?;
        }
        for test in &self.tests {
            let said = if test.ok { "ok" } else { "FAILS" };
            write!(f, "\n  {said:<5}  {} ({} ms of virtual time)", test.name, test.virtual_ms)?;
        }
        let read_back: Vec<&Tried> =
            self.views.iter().filter(|of| of.ok && of.messages > 0).collect();
        if !read_back.is_empty() {
            let messages: u32 = read_back.iter().map(|of| of.messages).sum();
            let count = read_back.len();
            let views = if count == 1 { "view reads" } else { "views read" };
            write!(f, "\n  {:<5}  {count} {views} back {messages} messages", "ok")?;
        }
        for view in self.views.iter().filter(|of| !of.ok) {
            write!(f, "\n  FAILS  {} does not read back what it writes", view.view)?;
        }
        for view in self.views.iter().filter(|of| of.ok && of.messages == 0) {
            write!(f, "\n  no message of {} could be made up", view.view)?;
        }
        for handler in &self.handlers_untried {
            write!(f, "\n  no test runs handler `{handler}`")?;
        }
        for place in &self.cases_untried {
            let line = place.line;
            write!(f, "\n  no test takes the case at {}:{line}", place.file)?;
        }
        Ok(())
    }
}

impl Test {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let mut files = Vec::new();
        let mut refused = false;
        if self.pcapng.is_some() && self.files.len() > 1 {
            let message = "--pcapng takes one program";
            return Err(Failure::new(Exit::Usage, message.to_owned()).into());
        }
        for file in self.files {
            let (sources, compiled) = match &self.pcapng {
                Some(capture) => {
                    recorded::compile(&file, capture).map(|(sources, it, _)| (sources, it))?
                }
                None => compile(&file)?,
            };
            let mut findings = compiled.diagnostics;
            let ok = !has_errors(&findings);
            refused |= !ok;
            let mut judgement = Judgement {
                file,
                ok,
                tests: Vec::new(),
                splits: 0,
                views: Vec::new(),
                handlers_untried: Vec::new(),
                cases_untried: Vec::new(),
                findings: Vec::new(),
                refused: !ok,
            };
            if let Some(program) = compiled.program {
                let program = Arc::new(program);
                findings.extend(judgement.try_all(&program, &sources, self.every_split));
            }
            face.findings(&findings, &sources);
            judgement.findings = Face::data(&findings, &sources);
            files.push(judgement);
        }
        let answer = TestReport { ok: files.iter().all(|file| file.ok), files };
        face.answer(&answer, || {
            answer.files.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })?;
        Ok(match (answer.ok, refused) {
            (true, _) => Exit::Success,
            (false, true) => Exit::Configuration,
            (false, false) => Exit::Negative,
        })
    }
}

impl Judgement {
    /// Writes and reads back messages of every view; the findings are what came back otherwise.
    fn try_views(&mut self, program: &Arc<Program>) -> Vec<Diagnostic> {
        let mut findings = Vec::new();
        for law in laws(program) {
            let ok = law.broken.is_none();
            self.ok &= ok;
            self.views.push(Tried { view: law.view, ok, messages: law.messages });
            findings.extend(law.broken.map(|broken| *broken));
        }
        findings
    }

    /// Runs every test; the findings are the failures.
    fn try_all(
        &mut self,
        program: &Arc<Program>,
        sources: &Sources,
        splits: bool,
    ) -> Vec<Diagnostic> {
        let mut findings = self.try_views(program);
        let mut handlers = vec![false; program.handlers.len()];
        let cases: Vec<&ir::Case> = (program.roles.iter())
            .flat_map(|role| role.requests.iter().flat_map(|kind| &kind.cases))
            .collect();
        let mut taken = vec![false; cases.len()];
        for test in &program.tests {
            let whole = transcript::run(program, test, Cut::Whole);
            either(&mut handlers, &whole.handlers);
            either(&mut taken, &whole.cases);
            let virtual_ms = whole.time.as_millis();
            let mut failed = whole.failed.map(|failed| failed.diagnostic(&test.name));
            if splits && failed.is_none() {
                for cut in cuts(program, test) {
                    self.splits += 1;
                    let TestResult { failed: of, .. } = transcript::run(program, test, cut);
                    failed = of.map(|of| of.diagnostic(&test.name).note(cut_shown(cut)));
                    if failed.is_some() {
                        break;
                    }
                }
            }
            self.ok &= failed.is_none();
            self.tests.push(TestOutcome {
                name: test.name.clone(),
                ok: failed.is_none(),
                virtual_ms,
            });
            findings.extend(failed);
        }
        let tried = program.handlers.iter().zip(handlers);
        self.handlers_untried = tried
            .filter(|(of, tried)| !tried && !matches!(of.kind, HandlerKind::Opening { .. }))
            .map(|(handler, _)| handler.name.clone())
            .collect();
        self.cases_untried = (cases.iter().zip(taken).filter(|(_, taken)| !taken))
            .map(|(case, _)| sources.place(case.span))
            .collect();
        findings
    }
}

/// Every place where what peers send in a test can be cut; a datagram is not.
fn cuts<'t>(program: &'t Program, test: &'t ir::TestCase) -> impl Iterator<Item = Cut> + 't {
    let whole = |role: ir::RoleId| {
        program.role(role).is_some_and(|role| role.transport == ir::Transport::Udp)
    };
    let sends = test.steps.iter().enumerate().filter_map(move |(step, of)| match &of.action {
        StepAction::Sends { role, octets } if !whole(*role) => Some((step, octets.len())),
        _ => None,
    });
    let each =
        sends.flat_map(|(step, length)| (1..length).map(move |octets| Cut::At { step, octets }));
    std::iter::once(Cut::Octets).chain(each)
}

fn cut_shown(cut: Cut) -> String {
    match cut {
        Cut::At { step, octets } => {
            format!("only if the octets of step {} arrive cut behind octet {octets}", step + 1)
        }
        _ => "only if every octet arrives alone".to_owned(),
    }
}

fn either(all: &mut [bool], one: &[bool]) {
    for (all, one) in all.iter_mut().zip(one) {
        *all |= one;
    }
}
