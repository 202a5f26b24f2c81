//! Gateway programs of a description, as a component of its gateway.
//!
//! [`component`] starts them over the gateway's links. [`recorded_test`] makes a test of a recorded
//! conversation.

#![forbid(unsafe_code)]

mod conversation;
mod error;
mod findings;
mod programs;
pub mod recorded_test;
mod settings;
mod stack_network;

pub use error::ProgramError;
pub use findings::{findings, unusable_files};
pub use programs::{component, import, post, strangers};
pub use settings::ProgramSettings;
pub use stack_network::{StackDatagrams, StackNetwork, StackPoller, stack_findings};
