//! The report of a part.

use gatewright_histogram::Histogram;
use serde::Serialize;

/// The word of a part that should run and has ended: the gateway is not ready.
pub const ENDED: &str = "ended";

/// The report of a part. Names are words of lower-case letters with `_` between them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PartStatus {
    /// Its state in words: where it listens, whether it is registered.
    pub words: Vec<(&'static str, String)>,
    /// Its current numbers: devices, resources.
    pub gauges: Vec<(&'static str, u64)>,
    /// Its counters.
    pub counters: Vec<(&'static str, u64)>,
    /// Its alarms, raised or not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmStatus>,
    /// Distributions of times and of batch sizes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histograms: Vec<PartHistogram>,
    /// Results of requests by handler, if it runs gateway programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<HandledRequests>,
    /// Sojourn times in its relays and programs; the gateway's answer has them beside the parts,
    /// with those of packets.
    #[serde(skip)]
    pub sojourns: Vec<Sojourn>,
}

/// An alarm for operators.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct AlarmStatus {
    /// Its name: words of lower-case letters with `-` between them, as `disk-short`.
    pub name: &'static str,
    /// Subjects (devices, files) for which it is raised; 0 if it is not raised.
    pub raised: u64,
    /// What it is raised for, where its part says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<AlarmSubject>,
}

/// What an alarm is raised for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct AlarmSubject {
    /// The device's system-id, or the file; empty where there is one only.
    pub subject: String,
    /// Since when, in UTC.
    pub since: String,
    /// What happened, as the event says it; empty of one from before a restart.
    pub detail: String,
}

/// A distribution of times or of batch sizes.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PartHistogram {
    /// Its name; it ends in `_ns` where the values are nanoseconds.
    pub name: &'static str,
    /// Its values.
    #[serde(flatten)]
    pub values: Histogram,
}

/// Sojourn times of what passed a relay, a program or a service: from received to sent.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Sojourn {
    /// How it passed: `graph`, `tcp_proxy`, `program`.
    pub mode: &'static str,
    /// The relay's or program's name, if there can be several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// The handler of a program, with its role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The times, in nanoseconds.
    #[serde(flatten)]
    pub times: Histogram,
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
