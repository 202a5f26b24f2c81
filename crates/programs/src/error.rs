//! Why the programs of a description do not start.

use gatewright_gateway::{UNAVAILABLE, exit_code_of};
use gatewright_part::ComponentError;
use gatewright_runner::RunnerError;

/// Why the programs of a description do not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A program is refused, or its file cannot be read.
    #[error("{0}")]
    Refused(String),
    /// A program cannot be run.
    #[error("{file}: {source}")]
    Run {
        /// Its file.
        file: String,
        /// Why.
        source: RunnerError,
    },
}

impl ProgramError {
    /// The exit code of a program that ends for this (`sysexits.h`).
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_)
            | Self::Run {
                source: RunnerError::Config(_) | RunnerError::NoAddress { .. }, ..
            } => 78,
            Self::Run { source: RunnerError::Listen { source, .. }, .. } => exit_code_of(source),
            Self::Run { .. } => UNAVAILABLE,
        }
    }
}

impl From<ProgramError> for ComponentError {
    fn from(error: ProgramError) -> Self {
        Self { why: error.to_string(), exit_code: error.exit_code(), refused: None }
    }
}
