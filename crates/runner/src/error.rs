//! Reasons why a program cannot be run.

use gatewright_translate::machine::ConfigError;
use std::io;

/// Why a program cannot be run. Nothing was started or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The options do not fit the program: the caller's fault.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// A server's address is invalid, or its name cannot be resolved here.
    #[error("role {role}: `{address}` is neither an address nor a name that can be resolved")]
    NoAddress {
        /// The role.
        role: String,
        /// Its address.
        address: String,
    },
    /// A server's address cannot be bound.
    #[error("role {role} cannot have {address}: {source}")]
    Listen {
        /// The role.
        role: String,
        /// Its address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no thread, timer or descriptor left.
    #[error("a loop cannot be started: {0}")]
    System(#[from] io::Error),
    /// A program that one loop must run cannot take over from one that several run.
    #[error("{program} needs a single loop, and {loops} are running: restart it")]
    OneLoop {
        /// The program that was to take over.
        program: String,
        /// Number of running loops.
        loops: usize,
    },
    /// A loop could not listen for the new program. The old program's sessions continue to their
    /// end, and no new connection is accepted.
    #[error(
        "a loop cannot listen for the new program, and accepts no connections: restart it: {0}"
    )]
    Deaf(io::Error),
    /// A loop has ended.
    #[error("a loop has ended by itself")]
    Ended,
}
