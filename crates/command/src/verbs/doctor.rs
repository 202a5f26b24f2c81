//! `gatewright doctor`: what this machine has for gateways, and what to do.

use super::status::{list, word};
use crate::{description::Description, exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_config::Config;
use gatewright_gateway::api::ControlRequest;
use gatewright_gateway::doctor::{CheckState, SystemCheck, checks};
use serde_json::{Value, json};
use std::fmt::Write;

/// The shape of its answer.
pub const JSON: &str = "{ok, file, checks: [{subject, name, state, found, advice}]}, state being good, limited or missing";

/// Looks at this machine: rights, kernel, devices, clocks, disks, limits; and says what to do.
///
/// With FILE, also what that description needs. Of a running gateway that has a mesh, also its tunnels:
/// whether their peers are heard. Nothing is opened or changed. It looks as the user
/// that it is run as: `sudo -u gatewright gatewright doctor` is the service's user, without the
/// capabilities that its unit gives.
///
/// Ends with 0, or with 1 if something is missing that the description needs.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Gateway description in TOML, or its folder.
    #[arg(value_name = "FILE")]
    file: Option<String>,
    #[command(flatten)]
    which: Which,
}

/// A node sends a message to its neighbours every 2 s at least; five of them are missing then.
const HEARD_WITHIN_S: u64 = 10;

impl Doctor {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let config = match &self.file {
            None => None,
            Some(file) => {
                let read = Description::load(face.program(), file)?;
                face.findings(&read.findings, &read.sources);
                let Some(config) = read.config else { return Ok(Exit::Configuration) };
                Some(config)
            }
        };
        let mesh = self.which.ask_if_there(&ControlRequest::Mesh)?.unwrap_or_default();
        let checks = all_checks(config.as_ref(), &mesh, face);
        let ok = checks.iter().all(|check| check.state != CheckState::Missing);
        face.answer(&json!({ "ok": ok, "file": self.file, "checks": checks }), || text(&checks))?;
        Ok(if ok { Exit::Success } else { Exit::Negative })
    }
}

/// What is found about this machine, about a description, and about the tunnels of a running gateway
/// whose mesh has this status.
pub(super) fn all_checks(config: Option<&Config>, mesh: &Value, face: Face) -> Vec<SystemCheck> {
    let mut all = checks(config);
    all.extend(config.map(face.program().checks).into_iter().flatten());
    all.extend(list(mesh, "tunnels").iter().map(tunnel));
    all
}

/// A tunnel of the running gateway's mesh, and whether its peer is heard.
fn tunnel(tunnel: &Value) -> SystemCheck {
    let [link, local, remote] = ["link", "local", "remote"].map(|name| word(tunnel, name));
    let (state, heard) = match tunnel.get("heard_s").and_then(Value::as_u64) {
        Some(ago) if ago <= HEARD_WITHIN_S => (CheckState::Good, format!("heard {ago} s ago")),
        Some(ago) => (CheckState::Limited, format!("silent for {ago} s")),
        None => (CheckState::Limited, "never heard".to_owned()),
    };
    let advice = (state != CheckState::Good).then(|| {
        format!(
            "see that the node at {remote} runs with {local} as its remote, and that firewalls and \
             NATs between pass UDP both ways; `tunnel_strangers` of `gatewright mesh status` counts \
             datagrams from other addresses"
        )
    });
    SystemCheck {
        subject: "mesh",
        name: format!("tunnel {link}"),
        state,
        found: format!("{local} to {remote}, {heard}"),
        advice,
    }
}

/// A line for each thing, and one for what to do about it.
pub(super) fn text(checks: &[SystemCheck]) -> String {
    let mut out = String::new();
    for SystemCheck { subject, name, state, found, advice } in checks {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{state:<8} {subject:<10} {name:<22} {found}");
        if let Some(advice) = advice {
            let _ = writeln!(out, "{:<8} {:<10} {:<22} do: {advice}", "", "", "");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_whose_peer_is_silent_is_limited() {
        let (good, limited) = (CheckState::Good, CheckState::Limited);
        for (heard, state, words) in [
            (json!(0), good, "heard 0 s ago"),
            (json!(HEARD_WITHIN_S), good, "heard 10 s ago"),
            (json!(HEARD_WITHIN_S + 1), limited, "silent for 11 s"),
            (json!(null), limited, "never heard"),
        ] {
            let (local, remote) = ("192.0.2.2:6087", "198.51.100.2:6087");
            let of = json!({ "link": "site2", "local": local, "remote": remote, "heard_s": heard });
            let check = tunnel(&of);
            assert_eq!((check.subject, check.name.as_str()), ("mesh", "tunnel site2"));
            assert_eq!(check.found, format!("{local} to {remote}, {words}"));
            assert_eq!((check.state, check.advice.is_none()), (state, state == good));
        }
    }
}
