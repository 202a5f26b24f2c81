//! `gatewright log`: which events a running gateway writes.

use super::status::word;
use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_config::LogLevel;
use gatewright_gateway::api::ControlRequest;

/// The shape of its answer.
pub const JSON: &str = "{level}";

/// Sets the lowest severity of events that a running gateway writes, until its next reload.
///
/// It changes where events are written (standard error or the journal), not what `gatewright
/// events` shows, which has all of them. `[log] level` in the description sets it for good.
#[derive(Debug, clap::Args)]
pub struct Log {
    #[command(flatten)]
    which: Which,
    /// The lowest severity: error, warning, info, debug.
    #[arg(value_name = "LEVEL")]
    level: LogLevel,
}

impl Log {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let answer = self.which.ask(&ControlRequest::SetLogLevel { level: self.level })?;
        face.answer(&answer, || format!("events are written from {} on", word(&answer, "level")))?;
        Ok(Exit::Success)
    }
}
