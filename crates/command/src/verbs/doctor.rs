//! `gatewright doctor`: what this machine has for gateways, and what to do.

use crate::{description::Description, exit::Exit, face::Face};
use anyhow::Result;
use gatewright_gateway::doctor::{CheckState, SystemCheck, checks};
use serde_json::json;
use std::fmt::Write;

/// The shape of its answer.
pub const JSON: &str = "{ok, file, checks: [{subject, name, state, found, advice}]}, state being good, limited or missing";

/// Looks at this machine: rights, kernel, devices, clocks, disks, limits; and says what to do.
///
/// With FILE, also what that description needs. Nothing is opened or changed. It looks as the user
/// that it is run as: `sudo -u gatewright gatewright doctor` is the service's user, without the
/// capabilities that its unit gives.
///
/// Ends with 0, or with 1 if something is missing that the description needs.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Gateway description in TOML, or its folder.
    #[arg(value_name = "FILE")]
    file: Option<String>,
}

impl Doctor {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let config = match &self.file {
            None => None,
            Some(file) => {
                let read = Description::load(face.program(), file)?;
                face.findings(&read.findings, &read.sources);
                let Some(config) = read.config else { return Ok(Exit::Configuration) };
                Some(config)
            }
        };
        let mut checks = checks(config.as_ref());
        checks.extend(config.as_ref().map(face.program().checks).into_iter().flatten());
        let ok = checks.iter().all(|check| check.state != CheckState::Missing);
        face.answer(&json!({ "ok": ok, "file": self.file, "checks": checks }), || text(&checks))?;
        Ok(if ok { Exit::Success } else { Exit::Negative })
    }
}

/// A line for each thing, and one for what to do about it.
pub(super) fn text(checks: &[SystemCheck]) -> String {
    let mut out = String::new();
    for SystemCheck { subject, name, state, found, advice } in checks {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{state:<8} {subject:<10} {name:<22} {found}");
        if let Some(advice) = advice {
            let _ = writeln!(out, "{:<8} {:<10} {:<22} do: {advice}", "", "", "");
        }
    }
    out
}
