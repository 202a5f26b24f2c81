//! `gatewright schema`: the JSON Schema of a description.

use crate::{exit::Exit, face::Face};
use anyhow::Result;

/// The shape of its answer.
pub const JSON: &str = "the schema itself, with or without";

/// Prints the JSON Schema of a description, for editors.
///
/// It contains every table and key with its meaning. Rules between values are checked only by
/// `gatewright check`.
#[derive(Debug, clap::Args)]
pub struct Schema {}

impl Schema {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let Self {} = self;
        let schema = gatewright_config::schema();
        face.answer(&schema, || format!("{schema:#}"))?;
        Ok(Exit::Success)
    }
}
