//! `gatewright route`: the routes of a running gateway.

use super::status::{list, number, word};
use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_gateway::api::ControlRequest;
use serde_json::Value;
use std::net::IpAddr;

/// The shape of its answer.
pub const JSON: &str = "{routes: [{to, kind, via, link, next_hops: [{via, link, weight, flows, left_out}], \
     origin}]}: those listed, added or removed; kind is connected, via, several, local, broadcast, blackhole, prohibited or kernel, origin address, \
     command, description, network or kernel";

/// Lists, adds and removes routes of a running gateway.
///
/// Without a subcommand it lists. A route that is added here takes precedence over the
/// description's for the same destinations, also after a reload, and ends with the gateway.
#[derive(Debug, clap::Args)]
pub struct Route {
    #[command(subcommand)]
    part: Option<RouteAction>,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum RouteAction {
    /// Lists the active routes with their origins.
    List,
    /// Adds a route; it replaces one that was added before.
    Add {
        /// The destinations: a network, an address, or default.
        #[arg(value_name = "NETWORK")]
        to: String,
        /// The next hop.
        #[arg(long, value_name = "ADDRESS")]
        via: Option<IpAddr>,
        /// The link; found by --via if not given.
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
    },
    /// Removes a route that was added here, or one of the description until the next reload.
    #[command(alias = "remove")]
    Del {
        /// The destinations, as listed.
        #[arg(value_name = "NETWORK")]
        to: String,
    },
}

impl Route {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let request = match self.part {
            None | Some(RouteAction::List) => ControlRequest::Routes,
            Some(RouteAction::Add { to, via, link }) => ControlRequest::AddRoute { to, via, link },
            Some(RouteAction::Del { to }) => ControlRequest::RemoveRoute { to },
        };
        self.which.tell_list(face, &request, "routes", line)
    }
}

/// One of several next hops: `via 192.0.2.9 on wan (weight 2)`.
fn next_hop(hop: &Value) -> String {
    let via = hop.get("via").and_then(Value::as_str);
    let via = via.map_or_else(|| "connected".to_owned(), |via| format!("via {via}"));
    let is_left_out = hop.get("left_out").and_then(Value::as_bool) == Some(true);
    let left_out = if is_left_out { ", left out" } else { "" };
    format!("{via} on {} (weight {}{left_out})", word(hop, "link"), number(hop, "weight"))
}

/// A route in one line: `10.0.0.0/8 via 192.0.2.9 on wan, by description`.
fn line(route: &Value) -> String {
    let hops: Vec<_> = list(route, "next_hops").iter().map(next_hop).collect();
    let way = match route.get("via").and_then(Value::as_str) {
        Some(via) => format!("via {via}"),
        None if !hops.is_empty() => hops.join(", "),
        None => word(route, "kind").to_owned(),
    };
    let on = route.get("link").and_then(Value::as_str);
    let on = on.map_or_else(String::new, |link| format!(" on {link}"));
    format!("{:<24} {way}{on}, by {}\n", word(route, "to"), word(route, "origin"))
}
