//! The report of a part.

use serde::Serialize;

/// The report of a part. Names are words of lower-case letters with `_` between them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PartStatus {
    /// Its state in words: where it listens, whether it is registered.
    pub words: Vec<(&'static str, String)>,
    /// Its current numbers: devices, resources.
    pub gauges: Vec<(&'static str, u64)>,
    /// Its counters.
    pub counters: Vec<(&'static str, u64)>,
    /// Distributions of durations and of batch sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<PartHistogram>,
    /// Results of requests by handler, if it runs gateway programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<HandledRequests>,
}

/// A distribution of durations or of batch sizes.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PartHistogram {
    /// Its name; it ends in `_us` where the values are microseconds.
    pub name: &'static str,
    /// The entry `n` counts the values below 2^n and not below 2^(n-1); the last one counts all
    /// larger values, too.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: u64,
    /// The largest value.
    pub largest: u64,
}

/// Results of the requests of one handler of a gateway program.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct HandledRequests {
    /// The program.
    pub program: String,
    /// The handler, with its role.
    pub handler: String,
    /// Requests started.
    pub started: u64,
    /// Requests that ended by themselves.
    pub finished: u64,
    /// Requests that were ended from outside.
    pub failed: u64,
    /// Durations in microseconds: the entry `n` counts those below 2^n and not below 2^(n-1); the
    /// last one counts all longer ones, too.
    pub latency_us: Vec<u64>,
}

/// A part at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct NamedStatus {
    /// Its name.
    pub name: &'static str,
    /// Its report.
    #[serde(flatten)]
    pub told: PartStatus,
}
