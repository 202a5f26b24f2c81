//! `gatewright explain`: what a code means.

use crate::{
    exit::{Exit, Failure},
    face::Face,
};
use anyhow::Result;
use gatewright_diagnostic::Code;
use serde_json::{Value, json};

pub(super) const JSON: &str = "{code, title, explanation}; without CODE {codes: [the same]}";

/// Explains the code of a finding: its cause and, where it helps, how to write it.
///
/// Without CODE it lists all codes.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The code, such as GW0101, or only its number, 101.
    code: Option<String>,
}

/// All codes, in order.
fn codes() -> Vec<&'static Code> {
    let all = [
        gatewright_diagram::codes::ALL,
        gatewright_config::CODES,
        gatewright_lang::CODES,
        gatewright_translate::transcript::CODES,
        gatewright_translate::law::CODES,
    ];
    let mut codes = all.concat();
    codes.sort_by_key(|code| code.number);
    codes
}

impl Explain {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let Some(asked) = self.code else { return list(face) };
        let digits = asked.trim_start_matches(['G', 'g', 'W', 'w']);
        let number: Option<u16> = digits.parse().ok();
        let Some(code) = codes().into_iter().find(|code| Some(code.number) == number) else {
            let message = format!("there is no code {asked}; `gatewright explain` lists them");
            return Err(Failure::new(Exit::Negative, message).into());
        };
        face.answer(&data(code), || format!("{code}: {}\n\n{}", code.title, code.explanation))?;
        Ok(Exit::Success)
    }
}

fn list(face: Face) -> Result<Exit> {
    let codes = codes();
    let value = json!({ "codes": codes.iter().map(|code| data(code)).collect::<Vec<_>>() });
    let lines: Vec<String> = codes.iter().map(|code| format!("{code}  {}", code.title)).collect();
    face.answer(&value, || lines.join("\n"))?;
    Ok(Exit::Success)
}

fn data(code: &Code) -> Value {
    json!({ "code": code.to_string(), "title": code.title, "explanation": code.explanation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_is_given_twice() {
        let codes = codes();
        for pair in codes.windows(2) {
            assert!(pair[0].number < pair[1].number, "{} twice", pair[0]);
        }
        assert!(codes.len() > 100, "{} codes", codes.len());
    }
}
