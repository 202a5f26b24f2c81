//! A recorded conversation as a test of its program.

mod steps;
mod test_block;

pub use gatewright_runner::PeerEvent;
pub use steps::{TracedStep, traced_steps};
pub use test_block::{RecordedStep, quoted, test_block};

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_gateway::{ConversationAnswer, ConversationStepAnswer, PeerAction, beside};
use gatewright_lang::{
    Compiled, Import,
    ir::{ParameterBounds, ParameterValue, Program},
};
use std::collections::BTreeMap;
use std::path::{Path, absolute};
use std::time::Duration;

/// The shortest pause that a test repeats: timers of programs are longer.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// A recorded conversation, as a test.
#[derive(Debug)]
pub struct RecordedTest {
    /// The texts of the program; the test is one of its own, which imports the program.
    pub sources: Sources,
    /// The program with the test, its last.
    pub compiled: Compiled,
    /// The file of the program.
    pub program: String,
    /// The text of the test; empty if the program does not compile.
    pub text: String,
    /// Why it may not repeat what was recorded.
    pub gaps: Vec<String>,
}

/// A recorded conversation as one more test of its program; `None` if no message came in time.
///
/// # Errors
///
/// In words, if it has no program, or octets that are no hexadecimal digits.
pub fn recorded_test(answer: &ConversationAnswer) -> Result<Option<RecordedTest>, &'static str> {
    if answer.steps.is_empty() {
        return Ok(None);
    }
    let (file, text) = answer.texts.first().cloned().ok_or("no program")?;
    let gaps = answer.gaps.clone();
    let (sources, first) = compile(&answer.texts, &file, text);
    let Some(program) = &first.program else {
        // Only another version has another language.
        let text = String::new();
        return Ok(Some(RecordedTest { sources, compiled: first, program: file, text, gaps }));
    };
    let test = block(program, answer).ok_or("octets")?;
    // What is found in the test must not be said of the program's file.
    let (sources, compiled) = compile(&answer.texts, RECORDED, importing(&file, &test));
    Ok(Some(RecordedTest { sources, compiled, program: file, text: test, gaps }))
}

/// The name of the text of a recorded test.
pub const RECORDED: &str = "recorded test";

/// The text of a test that imports its program from `path`.
pub fn importing(path: &str, test: &str) -> String {
    let quoted = quoted(path.as_bytes());
    format!("use {quoted}\n\n{test}")
}

/// Compiles a program as the gateway read it, whatever its files hold now.
fn compile(texts: &[(String, String)], file: &str, text: String) -> (Sources, Compiled) {
    let mut sources = Sources::of(file, text);
    let imported = |from: &str, path: &str| {
        let wanted = absolute(beside(from, path)).ok();
        let is_it = |name: &str| wanted.as_deref() == Some(Path::new(name));
        match texts.iter().find(|(name, _)| is_it(name)) {
            Some((name, text)) => Import::Found(name.clone(), text.clone()),
            None => Import::Missing { why: String::new(), others: Vec::new() },
        }
    };
    let compiled = gatewright_lang::compile_importing(&mut sources, SourceId::default(), imported);
    (sources, compiled)
}

/// The test block of a conversation; `None` if its octets are no digits.
fn block(program: &Program, answer: &ConversationAnswer) -> Option<String> {
    let roles: Vec<&str> = program.roles.iter().map(|role| role.name.as_str()).collect();
    let steps: Option<Vec<_>> = answer.steps.iter().map(|of| step(&roles, of)).collect();
    let mut before = parameters(program, answer)?;
    before.extend(fresh(&answer.fresh));
    Some(test_block(
        &format!("recorded at {}", answer.handler),
        &before,
        &steps?,
        &roles,
        PAUSE_MIN,
    ))
}

fn step(roles: &[&str], of: &ConversationStepAnswer) -> Option<RecordedStep> {
    let octets = octets(&of.octets)?;
    let event = match of.does {
        PeerAction::Sends => PeerEvent::Sends(octets),
        PeerAction::Sees => PeerEvent::Sees(octets),
        PeerAction::Closes => PeerEvent::Closes,
        PeerAction::SeesClose => PeerEvent::SeesClose,
    };
    let role = roles.iter().position(|role| *role == of.role)?;
    Some(RecordedStep { at: Duration::from_micros(of.at_us), role, event })
}

/// Lines for the fresh numbers of roles, up to the last one that does not count on.
fn fresh(numbers: &[(String, u32)]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last: BTreeMap<&str, u32> = BTreeMap::new();
    let mut needed = 0;
    for (role, number) in numbers {
        lines.push(format!("{role} fresh {number}"));
        let before = last.insert(role, *number);
        let counts_on = before.is_some_and(|before| before.wrapping_add(1) == *number);
        if !counts_on {
            needed = lines.len();
        }
    }
    lines.truncate(needed);
    lines
}

/// Lines for parameters with other values than in tests.
fn parameters(program: &Program, answer: &ConversationAnswer) -> Option<Vec<String>> {
    let defaults = program.with_parameters_for_tests();
    let mut lines = Vec::new();
    for parameter in &defaults.parameters {
        let set = answer.parameters.iter().find(|(name, _)| *name == parameter.name);
        let Some(set) = set else { continue };
        let set = octets(&set.1)?;
        let (value, text) = match parameter.bounds {
            ParameterBounds::Int { .. } => {
                let text = String::from_utf8(set).ok()?;
                (ParameterValue::Int(text.parse().ok()?), text)
            }
            ParameterBounds::Octets { .. } => {
                let text = quoted(&set);
                (ParameterValue::Octets(set), text)
            }
        };
        if parameter.value.as_ref() != Some(&value) {
            lines.push(format!("parameter {} = {text}", parameter.name));
        }
    }
    Some(lines)
}

/// Octets in hexadecimal digits.
fn octets(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let octet = |pair: &[u8; 2]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    if rest.is_empty() { pairs.iter().map(octet).collect() } else { None }
}
