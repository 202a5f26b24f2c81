//! The steps of a test of a program, in words.

use gatewright_diagnostic::{SourceRange, Sources, Span};
use gatewright_lang::ir::{Program, TestCase};
use gatewright_translate::machine::MachineStep as Step;
use gatewright_translate::transcript::{self, Failed, octets_shown};
use serde::Serialize;
use std::sync::Arc;

/// A step of a traced test.
#[derive(Clone, Debug, Serialize)]
pub struct TracedStep {
    /// Its kind: `arrived`, `read`, `malformed`, `started`, `case`, `did`, `sent`, `ended`.
    pub what: &'static str,
    /// The role, message or handler, if it has one.
    pub who: String,
    /// Octets, fields, or the statement with its value.
    pub text: String,
    /// The place in the program, if it has one.
    pub place: Option<SourceRange>,
}

/// Runs a test of `program`; returns why it failed, if it did, and its steps.
pub fn traced_steps(
    program: &Arc<Program>,
    sources: &Sources,
    test: &TestCase,
) -> (Option<Box<Failed>>, Vec<TracedStep>) {
    let (failed, steps) = transcript::trace(program, test);
    (failed, steps.iter().map(|step| told(program, sources, step)).collect())
}

/// The text of a span, its first line.
fn source(sources: &Sources, span: Span) -> (String, Option<SourceRange>) {
    let text = sources.get(span.source).text();
    let text = text.get(span.start..span.end).unwrap_or_default();
    (text.lines().next().unwrap_or_default().trim().to_owned(), Some(sources.place(span)))
}

fn told(program: &Program, sources: &Sources, step: &Step) -> TracedStep {
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
