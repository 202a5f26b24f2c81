//! `/livez` and `/readyz`.

use crate::session::TOKENS_UNREADABLE;
use gatewright_gateway::{ENDED, LogLevel, api::StatusAnswer};
use gatewright_planes::LinkStatus;
use serde::Serialize;

/// The cause of a gateway whose own description is refused.
const OTHER_DESCRIPTION: &str =
    "the description is refused, and the last good one runs: `gatewright status` says why";

/// The cause of a gateway whose data plane is not started again.
const GIVEN_UP: &str = "the data plane was given up, as its process has died too often: the event \
                        data-plane-given-up says why, and `gatewright reload` starts it again";

/// Whether a gateway is ready, and why not.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Readiness {
    /// Whether its workers run, each of its links is up, and no part has ended.
    pub(crate) ready: bool,
    /// Why it is not, as errors; and as warnings, which do not change that, raised alarms
    /// and tokens that cannot be read.
    pub(crate) causes: Vec<ReadinessCause>,
}

/// Why a gateway is not ready, or may soon not be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct ReadinessCause {
    /// The part that it is about.
    pub(crate) part: String,
    pub(crate) level: LogLevel,
    /// What, and what to do.
    pub(crate) text: String,
}

impl Readiness {
    /// The readiness that a status shows.
    pub(crate) fn of(status: &Result<StatusAnswer, String>) -> Self {
        let cause = |part: &str, level, text| ReadinessCause { part: part.to_owned(), level, text };
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                let causes = vec![cause("gateway", LogLevel::Error, why.clone())];
                return Self { ready: false, causes };
            }
        };
        // A capture file that was replayed has ended, as it should.
        let down = status.gateway.links.iter().filter(|link| !link.up && link.state != "ended");
        let down = down.map(|link| cause("links", LogLevel::Error, why_down(link)));
        let other = status.fallback.iter();
        let other = other.map(|_| cause("gateway", LogLevel::Error, OTHER_DESCRIPTION.to_owned()));
        let given_up = status.gateway.planes.given_up;
        let given_up =
            given_up.then(|| cause("planes", LogLevel::Error, GIVEN_UP.to_owned())).into_iter();
        let ended = status.parts.iter().flat_map(|part| {
            let words = part.told.words.iter().filter(|(name, _)| *name == ENDED);
            words.map(|(_, what)| {
                let text = format!("{} has ended: {what}", part.name);
                cause(part.name, LogLevel::Error, text)
            })
        });
        let mut causes: Vec<_> = other.chain(given_up).chain(down).chain(ended).collect();
        let ready = causes.is_empty();
        for part in &status.parts {
            let raised = part.told.alarms.iter().filter(|alarm| alarm.raised > 0);
            causes.extend(raised.map(|alarm| {
                let text = format!("the alarm {} is raised: the log says why", alarm.name);
                cause(part.name, LogLevel::Warning, text)
            }));
            let unreadable = part.told.words.iter().filter(|(name, _)| *name == TOKENS_UNREADABLE);
            causes.extend(unreadable.map(|(_, why)| {
                let text = format!("no token is admitted, as their file cannot be read: {why}");
                cause(part.name, LogLevel::Warning, text)
            }));
        }
        Self { ready, causes }
    }
}

/// Why a link is not up, and what to do.
fn why_down(link: &LinkStatus) -> String {
    let LinkStatus { name, state, device, .. } = link;
    match link.mode.as_str() {
        _ if link.set_down => {
            format!("link {name} is set down by command: `gatewright link up {name}` sets it up")
        }
        "virtual link" => format!("link {name} is {state}: {}", link.why),
        _ => format!("link {name} is {state}: look at its device {device}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_a_command_has_set_down_is_not_said_to_lack_its_device() {
        let mut link = LinkStatus {
            link: 0,
            name: "wan".to_owned(),
            device: "eth1".to_owned(),
            mode: "packet".to_owned(),
            why: String::new(),
            kernel: String::new(),
            up: false,
            set_down: false,
            state: "down".to_owned(),
            mtu: 1500,
            mac: None,
            addresses: Vec::new(),
            queues: Vec::new(),
            counters: Vec::new(),
            forwarding: String::new(),
            forwards_in_driver: false,
            not_redirected: "",
            in_driver: Vec::new(),
        };
        assert_eq!(why_down(&link), "link wan is down: look at its device eth1");
        link.set_down = true;
        let expected = "link wan is set down by command: `gatewright link up wan` sets it up";
        assert_eq!(why_down(&link), expected);
    }
}
