//! What a machine has for gateways, and what one description needs of it: `gatewright doctor`.
//!
//! Nothing is opened that stays open, attached or changed. Needs are those that the start itself
//! compares: descriptors (`descriptor_need.rs`), locked memory and mappings (`planes`), the clock
//! (`descriptors`), Landlock (`data`).

mod kernel;
mod machine;
mod needs;
mod rights;
mod store;
mod vlans;

use gatewright_config::Config;
pub(crate) use needs::Needs;
use serde::Serialize;
use std::fmt;

/// The state of one thing that gateways use.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// It is as it should be.
    Good,
    /// It works less than it could, or some gateways need more.
    Limited,
    /// The description cannot run with it, or loses something.
    Missing,
}

impl fmt::Display for CheckState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Limited => "limited",
            Self::Missing => "MISSING",
        })
    }
}

/// What was found about one thing, and what to do about it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct SystemCheck {
    /// What it is about: rights, kernel, devices, clock, disk, limits, processors, web, mesh.
    pub subject: &'static str,
    /// The thing.
    pub name: String,
    /// Its state.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What to do, if anything is to be done.
    pub advice: Option<String>,
}

impl SystemCheck {
    fn good(subject: &'static str, name: impl Into<String>, found: impl Into<String>) -> Self {
        let (name, found) = (name.into(), found.into());
        Self { subject, name, state: CheckState::Good, found, advice: None }
    }

    /// Something that is less than it could be: missing if the description `needs` it.
    fn lacking(self, needs: bool, advice: impl Into<String>) -> Self {
        let state = if needs { CheckState::Missing } else { CheckState::Limited };
        Self { state, advice: Some(advice.into()), ..self }
    }
}

/// Checks this machine, and with a description also what that one needs.
pub fn checks(config: Option<&Config>) -> Vec<SystemCheck> {
    let needs = Needs::of(config);
    let mut checks = rights::checks(needs);
    checks.extend(kernel::checks(needs));
    checks.extend(machine::devices(config));
    checks.extend(config.map(vlans::checks).unwrap_or_default());
    checks.extend(machine::clocks(needs));
    checks.extend(store::checks(config));
    checks.extend(machine::limits(config));
    checks.extend(machine::processors(config));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_is_looked_at_and_says_what_to_do() {
        let found = checks(None);
        for subject in ["rights", "kernel", "devices", "clock", "disk", "limits", "processors"] {
            assert!(found.iter().any(|check| check.subject == subject), "{subject}");
        }
        for check in found {
            assert_eq!(check.state == CheckState::Good, check.advice.is_none(), "{check:?}");
            assert_ne!(check.state, CheckState::Missing, "nothing is needed: {check:?}");
        }
    }
}
