//! `gatewright version`.

use crate::{exit::Exit, face::Face};
use anyhow::Result;
use gatewright_planes::process_version;
use serde_json::json;

pub(super) const JSON: &str = "{name, version, target, planes}";

/// Prints name, version and target machine of the program.
#[derive(Debug, clap::Args)]
pub(crate) struct Version {}

impl Version {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let Self {} = self;
        let version = env!("CARGO_PKG_VERSION");
        let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        let value = json!({
            "name": "gatewright", "version": version, "target": target,
            "planes": process_version(),
        });
        face.answer(&value, || format!("gatewright {version} ({target})"))?;
        Ok(Exit::Success)
    }
}
