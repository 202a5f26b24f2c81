//! `gatewright detach`: a handler out of a running gateway, without losing a packet.

use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;

pub(super) const JSON: &str = "{id}";

/// Detaches a handler from a running gateway, without losing a packet.
#[derive(Debug, clap::Args)]
pub(crate) struct Detach {
    #[command(flatten)]
    which: Which,
    /// The handler's id, as printed by `attach` and listed by `status`.
    #[arg(value_name = "ID")]
    id: u32,
}

impl Detach {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let answer = self.which.ask(&ControlRequest::Detach { id: self.id })?;
        face.answer(&answer, || format!("handler {} is detached", self.id))?;
        Ok(Exit::Success)
    }
}
