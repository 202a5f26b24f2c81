//! `gatewright completion`: completion for shells.

use crate::{exit::Exit, face::Face};
use anyhow::Result;
use clap_complete::Shell;
use serde_json::json;

/// The shape of its answer.
pub const JSON: &str = "{shell, text}";

/// Prints the completion script of a shell.
///
/// For bash: `gatewright completion bash > /etc/bash_completion.d/gatewright`.
#[derive(Debug, clap::Args)]
pub struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let mut octets = Vec::new();
        clap_complete::generate(
            self.shell,
            &mut (face.program().command)(),
            face.program().name,
            &mut octets,
        );
        let text = String::from_utf8(octets)?;
        face.answer(&json!({ "shell": self.shell.to_string(), "text": text }), || text.clone())?;
        Ok(Exit::Success)
    }
}
