//! A message of a running gateway, as a test of its program.

use super::test_block::{PeerEvent, RecordedStep, quoted, test_block};
use crate::{
    exit::{Exit, Failure},
    socket,
};
use gatewright_diagnostic::{SourceId, Sources};
use gatewright_gateway::{
    ConversationAnswer, ConversationStepAnswer, MessageTraceRequest, PeerAction,
    api::ControlRequest, beside,
};
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
pub(super) struct LiveTest {
    pub(super) sources: Sources,
    pub(super) compiled: Compiled,
    /// The file of the program.
    pub(super) program: String,
    /// The text of the test.
    pub(super) test: String,
    /// Why it may not repeat what was recorded.
    pub(super) gaps: Vec<String>,
}

/// Waits for the next conversation at `at` of a running gateway, and compiles that gateway's program
/// with one more test, its last; `None` if no message came in time.
///
/// # Errors
///
/// No gateway answers, or it refuses.
pub(super) fn record(
    gateway: &socket::Which,
    at: &str,
    seconds: f64,
) -> Result<Option<LiveTest>, Failure> {
    let request = MessageTraceRequest { at: at.to_owned(), seconds: Some(seconds) };
    let answer = gateway.ask(&ControlRequest::TraceMessage(request))?;
    let garbled = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::Unavailable, format!("the gateway answers something else: {why}"))
    };
    let answer: ConversationAnswer =
        serde_json::from_value(answer).map_err(|error| garbled(&error))?;
    if answer.steps.is_empty() {
        return Ok(None);
    }
    let Some((file, text)) = answer.texts.first().cloned() else {
        return Err(garbled(&"no program"));
    };
    let (sources, first) = compile(&answer.texts, &file, text.clone());
    let Some(program) = &first.program else {
        // Only another version of this command has another language.
        let test = String::new();
        let gaps = answer.gaps;
        return Ok(Some(LiveTest { sources, compiled: first, program: file, test, gaps }));
    };
    let test = block(program, &answer).ok_or_else(|| garbled(&"octets"))?;
    let (sources, compiled) =
        compile(&answer.texts, &file, format!("{}\n\n{test}", text.trim_end()));
    Ok(Some(LiveTest { sources, compiled, program: file, test, gaps: answer.gaps }))
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
