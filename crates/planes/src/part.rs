//! Parts of a gateway that the planes do not run: they only ask them what they are doing.

use serde::Serialize;
use std::fmt;

/// A part of the gateway beside its planes: a listener for devices, a service entity.
pub struct Part {
    name: &'static str,
    tell: Box<dyn Fn() -> Told + Send>,
}

impl Part {
    /// A part of this name, a word of lower-case letters; `tell` is asked whenever somebody wants
    /// to know, and is not to wait for anything.
    pub fn new(name: &'static str, tell: impl Fn() -> Told + Send + 'static) -> Self {
        Self { name, tell: Box::new(tell) }
    }

    pub(crate) fn answer(&self) -> PartAnswer {
        PartAnswer { name: self.name, told: (self.tell)() }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a part tells of itself. Names are words of lower-case letters with `_` between them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Told {
    /// What it is, in words: where it listens, whether it is registered.
    pub words: Vec<(&'static str, String)>,
    /// What it has now: devices, resources.
    pub gauges: Vec<(&'static str, u64)>,
    /// What it has counted.
    pub counters: Vec<(&'static str, u64)>,
}

/// A part at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct PartAnswer {
    /// Its name.
    pub name: &'static str,
    /// What it tells.
    #[serde(flatten)]
    pub told: Told,
}
