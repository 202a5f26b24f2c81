//! `gatewright completion`: completion for shells.

use crate::{exit::Exit, face::Face};
use anyhow::Result;
use clap_complete::Shell;
use serde_json::json;

pub(super) const JSON: &str = "{shell, text}";

/// Prints the completion script of a shell.
///
/// For bash: `gatewright completion bash > /etc/bash_completion.d/gatewright`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completion {
    /// The shell.
    shell: Shell,
}

impl Completion {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let mut octets = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "gatewright", &mut octets);
        let text = String::from_utf8(octets)?;
        face.answer(&json!({ "shell": self.shell.to_string(), "text": text }), || text.clone())?;
        Ok(Exit::Success)
    }
}
