//! `gatewright explain`: what a code means.

use crate::{
    exit::{Exit, Failure},
    face::Face,
    program::CommandLine,
};
use anyhow::Result;
use gatewright_diagnostic::Code;
use serde_json::{Value, json};

/// The shape of its answer.
pub const JSON: &str = "{code, title, explanation}; without CODE {codes: [the same]}";

/// Explains the code of a finding: its cause and, where it helps, how to write it.
///
/// Without CODE it lists all codes.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// The code, such as GW0101, or only its number, 101.
    code: Option<String>,
}

/// All codes of a program, in order.
fn codes(program: &CommandLine) -> Vec<&'static Code> {
    let mut codes = [&[gatewright_config::CODES][..], program.codes].concat().concat();
    codes.sort_by_key(|code| code.number);
    codes
}

impl Explain {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let Some(asked) = self.code else { return list(face) };
        let digits = asked.trim_start_matches(['G', 'g', 'W', 'w']);
        let number: Option<u16> = digits.parse().ok();
        let Some(code) = codes(face.program()).into_iter().find(|code| Some(code.number) == number)
        else {
            let message = format!("there is no code {asked}; `gatewright explain` lists them");
            return Err(Failure::new(Exit::Negative, message).into());
        };
        face.answer(&data(code), || format!("{code}: {}\n\n{}", code.title, code.explanation))?;
        Ok(Exit::Success)
    }
}

fn list(face: Face) -> Result<Exit> {
    let codes = codes(face.program());
    let value = json!({ "codes": codes.iter().map(|code| data(code)).collect::<Vec<_>>() });
    let lines: Vec<String> = codes.iter().map(|code| format!("{code}  {}", code.title)).collect();
    face.answer(&value, || lines.join("\n"))?;
    Ok(Exit::Success)
}

fn data(code: &Code) -> Value {
    json!({ "code": code.to_string(), "title": code.title, "explanation": code.explanation })
}
