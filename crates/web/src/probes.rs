//! `/livez` and `/readyz`.

use gatewright_gateway::api::StatusAnswer;
use serde::Serialize;

/// The cause of a gateway whose own description is refused.
const OTHER_DESCRIPTION: &str =
    "the description is refused, and the last good one runs: `gatewright status` says why";

/// Whether a gateway is ready, and why not.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Readiness {
    /// Whether its workers run and each of its links is up.
    pub(crate) ready: bool,
    /// Why it is not ready.
    pub(crate) causes: Vec<String>,
    /// Alarms that are raised; they do not change whether it is ready.
    pub(crate) alarms: Vec<String>,
}

impl Readiness {
    /// The readiness that a status shows.
    pub(crate) fn of(status: &Result<StatusAnswer, String>) -> Self {
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                return Self { ready: false, causes: vec![why.clone()], alarms: Vec::new() };
            }
        };
        // A capture file that was replayed has ended, as it should.
        let down = status.gateway.links.iter().filter(|link| !link.up && link.state != "ended");
        let down = down.map(|link| format!("link {} is {}", link.name, link.state));
        let other = status.fallback.iter().map(|_| OTHER_DESCRIPTION.to_owned());
        let causes: Vec<String> = other.chain(down).collect();
        let raised = status.parts.iter().flat_map(|part| {
            let raised = part.told.alarms.iter().filter(|alarm| alarm.raised > 0);
            raised.map(|alarm| format!("{}: {}", part.name, alarm.name))
        });
        Self { ready: causes.is_empty(), causes, alarms: raised.collect() }
    }
}
