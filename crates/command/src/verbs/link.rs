//! `gatewright link`: the links of a running gateway.

use super::status::{counts, list, number, word};
use crate::{
    exit::{Exit, Failure},
    face::Face,
    socket::Which,
};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use serde_json::{Value, json};
use std::fmt::Write;

/// The shape of its answer.
pub const JSON: &str = "{links: [{name, device, mode, why, up, state, mtu, mac, addresses, queues: [{queue, worker}], counters}]}, counters as pairs; up and down: {name, up}";

/// Shows the links of a running gateway: device, mode and reason, addresses, counters; sets one
/// down or up.
#[derive(Debug, clap::Args)]
pub struct Link {
    #[command(subcommand)]
    part: Option<LinkAction>,
    #[command(flatten)]
    which: Which,
    /// Only the link of this name.
    name: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum LinkAction {
    /// Sets a link up again.
    Up {
        /// Its name.
        name: String,
    },
    /// Sets a link down: it receives and sends nothing, and its routes are not used, until it is
    /// set up again or the gateway ends. Its device stays open.
    Down {
        /// Its name.
        name: String,
    },
}

impl Link {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let (name, up) = match &self.part {
            Some(LinkAction::Up { name }) => (name, true),
            Some(LinkAction::Down { name }) => (name, false),
            None => return self.list(face),
        };
        if let Some(other) = &self.name {
            let message = format!("the name of the link goes behind up or down: {other}");
            return Err(Failure::new(Exit::Usage, message).into());
        }
        let answer = self.which.ask(&ControlRequest::SetLink { name: name.clone(), up })?;
        face.answer(&answer, || format!("{name} is {}", if up { "up" } else { "down" }))?;
        Ok(Exit::Success)
    }

    fn list(self, face: Face) -> Result<Exit> {
        let status = self.which.ask(&ControlRequest::Status)?;
        let all = list(&status, "links");
        let asked =
            |link: &&Value| self.name.as_ref().is_none_or(|name| word(link, "name") == name);
        let links: Vec<&Value> = all.iter().filter(asked).collect();
        if let Some(name) = self.name.as_ref().filter(|_| links.is_empty()) {
            let names: Vec<_> = all.iter().map(|link| word(link, "name")).collect();
            let known =
                if names.is_empty() { "the gateway has none".into() } else { names.join(", ") };
            let message = format!("there is no link {name}: {known}");
            return Err(Failure::new(Exit::Negative, message).into());
        }
        if all.is_empty() {
            face.note("no links");
        }
        face.answer(&json!({ "links": links }), || links.iter().map(|link| text(link)).collect())?;
        Ok(Exit::Success)
    }
}

/// A link in a few lines.
// Writing to a string cannot fail.
fn text(link: &Value) -> String {
    let mut out = format!("{}: {}", word(link, "name"), word(link, "state"));
    let _ = writeln!(out, ", MTU {}, {}", number(link, "mtu"), word(link, "mac"));
    let (device, mode, why) = (word(link, "device"), word(link, "mode"), word(link, "why"));
    let _ = writeln!(out, "  {device} by {mode}: {why}");
    for address in list(link, "addresses").iter().filter_map(Value::as_str) {
        let _ = writeln!(out, "  {address}");
    }
    let counted = counts(link, "counters");
    if !counted.is_empty() {
        let _ = writeln!(out, "  {}", counted.join(", "));
    }
    out
}
