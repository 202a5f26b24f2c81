//! `gatewright link`: the links of a running gateway.

use super::status::{counts, list, number, word};
use crate::{
    exit::{Exit, Failure},
    face::Face,
    socket::Which,
};
use anyhow::Result;
use gatewright_planes::api::Request;
use serde_json::{Value, json};
use std::fmt::Write;

pub(super) const JSON: &str =
    "{links: [{name, device, mode, why, up, mtu, mac, addresses, counters}]}, counters as pairs";

/// Tells the links of a running gateway: device, mode and why, addresses, counters.
#[derive(Debug, clap::Args)]
pub(crate) struct Link {
    #[command(flatten)]
    which: Which,
    /// Only the link of this name.
    name: Option<String>,
}

impl Link {
    pub(super) fn run(self, face: Face) -> Result<Exit> {
        let status = self.which.ask(&Request::Status)?;
        let all = list(&status, "links");
        let asked =
            |link: &&Value| self.name.as_ref().is_none_or(|name| word(link, "name") == name);
        let links: Vec<&Value> = all.iter().filter(asked).collect();
        if let Some(name) = self.name.as_ref().filter(|_| links.is_empty()) {
            let names: Vec<_> = all.iter().map(|link| word(link, "name")).collect();
            let message = format!("there is no link {name}: {}", names.join(", "));
            return Err(Failure::new(Exit::Negative, message).into());
        }
        face.answer(&json!({ "links": links }), || links.iter().map(|link| text(link)).collect())?;
        Ok(Exit::Success)
    }
}

/// A link in a few lines.
// Writing to a string cannot fail.
fn text(link: &Value) -> String {
    let up = link.get("up").and_then(Value::as_bool) == Some(true);
    let mut out = format!("{}: {}", word(link, "name"), if up { "up" } else { "down" });
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
