//! `gatewright gw graph` and `gatewright gw listing`: a compiled program as text.

use super::compile;
use anyhow::Result;
use gatewright_command::{
    exit::{Exit, Failure},
    face::Face,
};
use gatewright_diagnostic::{Finding, has_errors};
use gatewright_lang::ir::Program;
use serde::Serialize;

#[derive(Serialize)]
struct Drawing {
    file: String,
    text: Option<String>,
    findings: Vec<Finding>,
}

/// Compiles `file` and prints what `draw` makes of it.
pub(super) fn run(face: Face, file: String, draw: fn(&Program) -> String) -> Result<Exit> {
    let (sources, compiled) = compile(&file)?;
    let text = compiled.program.as_ref().map(draw);
    if text.is_none() && !has_errors(&compiled.diagnostics) {
        let message = format!("{file}: has no gateway of its own, it is only to be imported");
        return Err(Failure::new(Exit::Configuration, message).into());
    }
    face.findings(&compiled.diagnostics, &sources);
    let findings = Face::data(&compiled.diagnostics, &sources);
    let answer = Drawing { file, text, findings };
    face.answer(&answer, || answer.text.clone().unwrap_or_default())?;
    Ok(if answer.text.is_some() { Exit::Success } else { Exit::Configuration })
}
