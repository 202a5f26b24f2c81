//! Parts of a gateway that the planes do not run: they only ask them what they are doing.

use crate::difference::Change;
use gatewright_config::Config;
use serde::Serialize;
use std::fmt;

/// A part of the gateway beside its planes: a listener for devices, a service entity.
pub struct Part {
    name: &'static str,
    tell: Box<dyn Fn() -> Told + Send>,
    reload: Option<Reload>,
}

/// What of a part's table is another.
type Differences = dyn Fn(&Config, &Config) -> Vec<Change> + Send;

/// Makes a part what it was before it took another description. Dropped, it lets go of what was.
pub type Undo = Box<dyn FnOnce() + Send>;

/// How a part takes another description.
struct Reload {
    differences: Box<Differences>,
    take: Take,
}

type Perhaps = dyn Fn(&Config) -> Result<Undo, Unable> + Send;

/// Why a part does not take a description.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unable {
    /// The key that says what it cannot have, as `[cse] http`, if it is one.
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

enum Take {
    /// What cannot fail, when everything else is done.
    Surely(Box<dyn Fn(&Config) + Send>),
    /// What can, and is undone if something later does.
    Perhaps(Box<Perhaps>),
}

impl Part {
    /// A part of this name, a word of lower-case letters; `tell` is asked whenever somebody wants
    /// to know, and is not to wait for anything.
    pub fn new(name: &'static str, tell: impl Fn() -> Told + Send + 'static) -> Self {
        Self { name, tell: Box::new(tell), reload: None }
    }

    /// This part, which takes other descriptions while it runs. `differences` says what of its
    /// table, `[NAME]`, has changed, and what of that it cannot take; `take` takes the rest.
    #[must_use]
    pub fn reloading(
        self,
        differences: impl Fn(&Config, &Config) -> Vec<Change> + Send + 'static,
        take: impl Fn(&Config) + Send + 'static,
    ) -> Self {
        let (differences, take) = (Box::new(differences), Take::Surely(Box::new(take)));
        Self { reload: Some(Reload { differences, take }), ..self }
    }

    /// As [`Self::reloading`], for a part that may be unable to: `take` says why, in words for the
    /// operator, or how it is undone. `differences` is asked at each reload, as a part may stand on
    /// more than the description's own text.
    #[must_use]
    pub fn exchanging(
        self,
        differences: impl Fn(&Config, &Config) -> Vec<Change> + Send + 'static,
        take: impl Fn(&Config) -> Result<Undo, Unable> + Send + 'static,
    ) -> Self {
        let (differences, take) = (Box::new(differences), Take::Perhaps(Box::new(take)));
        Self { reload: Some(Reload { differences, take }), ..self }
    }

    /// Puts its own differences in the place of the one that its table is another.
    pub(crate) fn tell_differences(&self, old: &Config, new: &Config, changes: &mut Vec<Change>) {
        let Some(reload) = &self.reload else { return };
        let whole = format!("[{}]", self.name);
        let at = changes.iter().position(|change| change.what == whole);
        match (at, &reload.take) {
            (Some(at), _) => drop(changes.splice(at..=at, (reload.differences)(old, new))),
            (None, Take::Perhaps(_)) => changes.extend((reload.differences)(old, new)),
            (None, Take::Surely(_)) => {}
        }
    }

    /// Takes what can fail; nothing if the part takes nothing of the kind.
    pub(crate) fn exchange(&self, config: &Config) -> Option<Result<Undo, Unable>> {
        match &self.reload.as_ref()?.take {
            Take::Perhaps(take) => Some(take(config)),
            Take::Surely(_) => None,
        }
    }

    pub(crate) fn take(&self, config: &Config) {
        if let Some(Reload { take: Take::Surely(take), .. }) = &self.reload {
            take(config);
        }
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
    /// How long things took and how many came together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<PartHistogram>,
    /// What became of requests, by handler, if it runs gateway programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<HandledRequests>,
}

/// How long something took, or how many came together.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PartHistogram {
    /// Its name; it ends in `_us` where the values are microseconds.
    pub name: &'static str,
    /// The entry `n` counts the values below 2^n and not below 2^(n-1); the last one counts all
    /// that are larger, too.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
    /// The largest of them.
    pub largest: u64,
}

/// What became of the requests of one handler of a gateway program.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct HandledRequests {
    /// Whose.
    pub program: String,
    /// The handler, with its role.
    pub handler: String,
    /// How often it began.
    pub started: u64,
    /// How often it came to an end of its own.
    pub finished: u64,
    /// How often it was ended.
    pub failed: u64,
    /// From beginning to end, in microseconds: the entry `n` counts those below 2^n and not below
    /// 2^(n-1); the last one counts all that are longer, too.
    pub latency_us: Vec<u64>,
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
