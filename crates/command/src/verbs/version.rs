//! `gatewright version`.

use crate::{exit::Exit, face::Face};
use anyhow::Result;
use gatewright_planes::process_version;
use serde_json::json;

/// The shape of its answer.
pub const JSON: &str = "{name, version, target, planes}";

/// Prints name, version and target machine of the program.
#[derive(Debug, clap::Args)]
pub struct Version {}

impl Version {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let Self {} = self;
        let name = face.program().name;
        let version = env!("CARGO_PKG_VERSION");
        let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        let value = json!({
            "name": name, "version": version, "target": target,
            "planes": process_version(),
        });
        face.answer(&value, || format!("{name} {version} ({target})"))?;
        Ok(Exit::Success)
    }
}
