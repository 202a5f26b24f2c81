//! A message of a program, traced: the conversation in which it came, as a test with its steps.

use gatewright_gateway::ConversationAnswer;
use gatewright_programs::recorded_test::{RecordedTest, quoted, recorded_test, traced_steps};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

/// The conversation as JSON, with the test that repeats it.
///
/// The program's text and the values of its parameters are left out: some may be secret, and traces
/// are for operators.
///
/// # Errors
///
/// In words, if the conversation is no test.
pub(crate) fn document(mut conversation: ConversationAnswer) -> Result<Value, String> {
    if !conversation.parameters.is_empty() {
        conversation.parameters.clear();
        conversation.gaps.push(PARAMETERS_LEFT_OUT.to_owned());
    }
    let recorded = recorded_test(&conversation);
    let recorded = recorded.map_err(|what| format!("the conversation has wrong {what}"))?;
    conversation.texts.clear();
    let mut document = json!(conversation);
    if let Some(document) = document.as_object_mut() {
        document.remove("texts");
        document.remove("parameters");
        document.extend(recorded.and_then(test).map(|test| ("test".to_owned(), test)));
    }
    Ok(document)
}

/// Why a test from here may fail where the program has parameters.
const PARAMETERS_LEFT_OUT: &str =
    "values of the program's parameters are left out, as some may be secret";

/// The recorded test: its text as a file beside the program, and its steps.
fn test(recorded: RecordedTest) -> Option<Value> {
    let RecordedTest { sources, compiled, program: file, text, .. } = recorded;
    let program = Arc::new(compiled.program?);
    let case = program.tests.last()?;
    let (failed, steps) = traced_steps(&program, &sources, case);
    let file = Path::new(&file).file_name()?.to_string_lossy();
    Some(json!({
        "name": case.name, "file": file,
        "text": format!("use {}\n\n{text}", quoted(file.as_bytes())),
        "passed": failed.is_none(), "steps": steps,
    }))
}
