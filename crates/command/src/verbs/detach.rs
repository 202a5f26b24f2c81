//! `gatewright detach`: a handler out of a running gateway, without losing a packet.

use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;

/// The shape of its answer.
pub const JSON: &str = "{id}";

/// Detaches a handler from a running gateway, without losing a packet.
#[derive(Debug, clap::Args)]
pub struct Detach {
    #[command(flatten)]
    which: Which,
    /// The handler's id, as printed by `attach` and listed by `status`.
    #[arg(value_name = "ID")]
    id: u32,
}

impl Detach {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let answer = self.which.ask(&ControlRequest::Detach { id: self.id })?;
        face.answer(&answer, || format!("handler {} is detached", self.id))?;
        Ok(Exit::Success)
    }
}
