//! The project's automation, behind the `Makefile`: `cargo xtask VERB`.
//!
//! [`tidy`] is what `cargo test` asks about the repository itself; the other modules are the verbs.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal: its progress is its output"
)]

mod build;
pub mod checks;
pub mod dashboard;
pub mod deb;
pub mod interop;
pub mod manual;
pub mod oci;
pub mod packages;
pub mod programs;
pub mod reproduce;
pub mod router;
pub mod sbom;
pub mod setup;
pub mod step;
pub mod summary;
pub mod tidy;
mod watched;

use std::path::{Path, PathBuf};

/// The repository's root: the folder above this package.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}
