//! A difference between two descriptions, and why a part cannot take one.

use gatewright_config::KeyDifference;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A difference between two descriptions.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Change {
    /// The item: `route 10.0.0.0/8`, `link lan`, `[link.lan] mtu`, `[cse] http`.
    pub what: String,
    /// The difference: `added`, `removed`, `1400, not 1500`.
    pub how: String,
    /// Whether it needs a restarted gateway.
    #[serde(skip)]
    pub restart: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.how)
    }
}

impl Change {
    /// A difference that a running gateway takes.
    pub fn new(what: impl Into<String>, how: impl Into<String>) -> Self {
        Self { what: what.into(), how: how.into(), restart: false }
    }

    /// A difference that needs a restarted gateway.
    pub fn restart(what: impl Into<String>, how: impl Into<String>) -> Self {
        Self { restart: true, ..Self::new(what, how) }
    }
}

impl From<KeyDifference> for Change {
    fn from(KeyDifference { key, how, restart, .. }: KeyDifference) -> Self {
        Self { what: key, how, restart }
    }
}

/// Why a part cannot take a description.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unable {
    /// The key with the impossible value, as `[cse] http`, if it is one.
    pub key: Option<String>,
    /// Why, in words for the operator.
    pub why: String,
}

impl From<String> for Unable {
    fn from(why: String) -> Self {
        Self { key: None, why }
    }
}

impl fmt::Display for Unable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl std::error::Error for Unable {}
