//! What a component that a program adds to a gateway starts with, and why it does not start.

use crate::Part;
use std::{
    any::Any,
    fmt,
    sync::{Arc, Weak},
};

/// The running parts of devices and service entity.
#[derive(Clone, Default)]
pub struct ServiceParts {
    /// The parts, in the order in which they take a description.
    pub parts: Vec<Arc<dyn Part>>,
    /// The service entity, for requests of this process.
    pub entity: Option<Weak<dyn Any + Send + Sync>>,
}

impl fmt::Debug for ServiceParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.parts.iter().map(|part| part.name())).finish()
    }
}

/// Why a component of a gateway does not start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ComponentError {
    /// Why, in words for the operator.
    pub why: String,
    /// The exit code of a program that ends for this (`sysexits.h`).
    pub exit_code: u8,
    /// The key of the description that cannot be applied, and why, if it is one key.
    pub refused: Option<(&'static str, String)>,
}

impl fmt::Display for ComponentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ComponentError {}
