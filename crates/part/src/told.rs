//! What a part tells of itself.

use serde::Serialize;

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
