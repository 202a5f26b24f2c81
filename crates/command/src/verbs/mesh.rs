//! `gatewright mesh`: the mesh's node of a running gateway.

mod echo;
mod key;

use super::events;
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
use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The shape of its answer.
pub const JSON: &str = "{node, interface, taken_over, profile, routing, trust, uptime_s, liveness_interval_us, timer_lateness_us, links: [{link, state, mac, mtu, frames}], \
     tunnels: [{link, local, remote, heard_s}], ports: [{port, state, mac, stations, frames}], neighbours: [{node, link, up, since_s}], destinations: [{node, paths: [{classes, role, carries, path, link, next, label, \
     relays, behind, frame_limit, bypassed}]}], labels, bypasses, tcp_connections, counters}, frames and counters as pairs; nodes: {nodes: [{node, neighbour, hops, links}]}; \
     paths: {destinations}; path: {node, paths}; ping: {node, sent, answered, min_us, median_us, max_us, echoes: [{node, label, \
     hops, rtt_us} or {error}]}; trace: {node, reached, hops: [as an echo, and hop]}; cut: {link, cut}; events: what gatewright events tells; \
     key new and show: {file, key, node, certificate}; key admit: {member, certificate}";

/// Shows the mesh's node of a running gateway: links, neighbours, paths, events; cuts a link.
///
/// Without a subcommand it shows the node's status. Nodes are named by the link-layer addresses of
/// their mesh interfaces.
#[derive(Debug, clap::Args)]
pub struct Mesh {
    #[command(subcommand)]
    part: Option<MeshAction>,
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum MeshAction {
    /// Shows the node: its links, neighbours and counters.
    Status,
    /// Lists the nodes that it hears, and those to which it has paths.
    Nodes,
    /// Lists the paths of this node, hop by hop, with the one that carries the packets.
    Paths,
    /// Draws the paths to one node.
    Path {
        /// The link-layer address of its mesh interface, or its IPv4 address if this host has
        /// resolved it.
        target: String,
    },
    /// Measures the round trip to a node over the path of a class.
    Ping {
        /// The link-layer address of its mesh interface, or its IPv4 address if this host has
        /// resolved it.
        target: String,
        #[command(flatten)]
        options: echo::PingOptions,
    },
    /// Asks each node on the path to a node for its label and round trip.
    Trace {
        /// The link-layer address of its mesh interface, or its IPv4 address if this host has
        /// resolved it.
        target: String,
        #[command(flatten)]
        class: echo::ClassOption,
    },
    /// Cuts a link as if its cable were pulled at this end; --heal joins it again.
    Cut {
        /// Its interface.
        link: String,
        /// Join the link again.
        #[arg(long)]
        heal: bool,
    },
    /// Shows the events of the mesh with their causes.
    Events,
    /// Makes and shows keys of the members of a mesh with trust = "pki".
    #[command(subcommand)]
    Key(key::KeyAction),
}

impl Mesh {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let which = self.which;
        let state = || which.ask(&ControlRequest::Mesh);
        match self.part.unwrap_or(MeshAction::Status) {
            MeshAction::Status => {
                let state = state()?;
                face.answer(&state, || status(&state))?;
            }
            MeshAction::Nodes => {
                let nodes = json!({ "nodes": nodes(&state()?) });
                face.answer(&nodes, || list(&nodes, "nodes").iter().map(node_line).collect())?;
            }
            MeshAction::Paths => {
                let state = state()?;
                let own = word(&state, "node").to_owned();
                let paths = json!({ "destinations": state.get("destinations") });
                face.answer(&paths, || {
                    list(&paths, "destinations").iter().map(|to| drawn(&own, to)).collect()
                })?;
            }
            MeshAction::Path { target } => return path(&state()?, &target, face),
            MeshAction::Ping { target, options } => {
                return echo::ping(&which, &named(&state()?, &target)?, options, face);
            }
            MeshAction::Trace { target, class } => {
                return echo::trace(&which, &named(&state()?, &target)?, class, face);
            }
            MeshAction::Cut { link, heal } => {
                let request = ControlRequest::CutMeshLink { link: link.clone(), cut: !heal };
                let answer = which.ask(&request)?;
                let done = if heal { "joined again" } else { "cut" };
                face.answer(&answer, || format!("{link} is {done}"))?;
            }
            MeshAction::Key(action) => return action.run(face),
            MeshAction::Events => return events::of_part(&which, "mesh", face),
        }
        Ok(Exit::Success)
    }
}

/// The node in a few lines.
// Writing to a string cannot fail.
fn status(state: &Value) -> String {
    let [node, interface, profile, routing, trust] =
        ["node", "interface", "profile", "routing", "trust"].map(|name| word(state, name));
    let uptime = number(state, "uptime_s");
    let mut out = format!(
        "node {node} at {interface}: {profile}, routing {routing}, {trust}, up {uptime} s\n"
    );
    let [interval, late] =
        ["liveness_interval_us", "timer_lateness_us"].map(|name| echo::ms(number(state, name)));
    let _ = writeln!(
        out,
        "liveness: a message each {interval}; 99.9 % of its timers are at most {late} late"
    );
    for link in list(state, "links") {
        let (name, word) = (word(link, "link"), word(link, "state"));
        let _ = write!(out, "link {name}: {word}");
        if let Some(mac) = link.get("mac").and_then(Value::as_str) {
            let _ = write!(out, ", {mac}, MTU {}", number(link, "mtu"));
        }
        let _ = writeln!(out, "{}", separated(&counts(link, "frames")));
    }
    for tunnel in list(state, "tunnels") {
        let [link, local, remote] = ["link", "local", "remote"].map(|name| word(tunnel, name));
        let heard = tunnel.get("heard_s").and_then(Value::as_u64);
        let heard = heard.map_or("never heard".to_owned(), |ago| format!("heard {ago} s ago"));
        let _ = writeln!(out, "tunnel {link}: {local} to {remote}, {heard}");
    }
    for port in list(state, "ports") {
        let (name, word) = (word(port, "port"), word(port, "state"));
        let stations = list(port, "stations").len();
        let frames = separated(&counts(port, "frames"));
        let _ = writeln!(out, "port {name}: {word}, stations: {stations}{frames}");
    }
    let heard = list(state, "neighbours").iter().filter(|one| is(one, "up")).count();
    let (known, to) = (list(state, "neighbours").len(), list(state, "destinations").len());
    let [labels, bypasses, connections] =
        ["labels", "bypasses", "tcp_connections"].map(|name| number(state, name));
    let _ = writeln!(
        out,
        "neighbours: {heard} of {known} heard; paths to {to} nodes; {labels} labels installed; \
         bypasses around links of relayed paths: {bypasses}; TCP connections of servers here: {connections}"
    );
    let _ = writeln!(out, "counters: {}", counts(state, "counters").join(", "));
    out
}

/// Counts behind what they belong to.
fn separated(counts: &[String]) -> String {
    if counts.is_empty() { String::new() } else { format!("; {}", counts.join(", ")) }
}

fn is(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Every node that is heard or has a path.
fn nodes(state: &Value) -> Vec<Value> {
    let (near, far) = (list(state, "neighbours"), list(state, "destinations"));
    let mut names: Vec<&str> = near.iter().chain(far).map(|node| word(node, "node")).collect();
    names.sort_unstable();
    names.dedup();
    let links = |name: &str| -> Vec<&str> {
        let own = near.iter().filter(|one| is(one, "up") && word(one, "node") == name);
        own.map(|one| word(one, "link")).collect()
    };
    let hops = |name: &str| {
        let to = far.iter().find(|to| word(to, "node") == name)?;
        let carries = list(to, "paths").iter().find(|path| is(path, "carries"))?;
        Some(list(carries, "relays").len() + 1)
    };
    let node = |name: &str| {
        let links = links(name);
        json!({ "node": name, "neighbour": !links.is_empty(), "hops": hops(name), "links": links })
    };
    names.into_iter().map(node).collect()
}

fn node_line(node: &Value) -> String {
    let links: Vec<_> = list(node, "links").iter().filter_map(Value::as_str).collect();
    let heard = match links.as_slice() {
        [] => "not a neighbour".to_owned(),
        links => format!("neighbour on {}", links.join(", ")),
    };
    let path = node.get("hops").and_then(Value::as_u64);
    let path = path.map_or("no path".to_owned(), |hops| format!("path of {hops} links"));
    format!("{}  {heard}; {path}\n", word(node, "node"))
}

/// The paths to a destination, each in a line from this node to it.
fn drawn(own: &str, to: &Value) -> String {
    let target = word(to, "node");
    let mut out = format!("{target}\n");
    for path in list(to, "paths") {
        let relays: Vec<_> = list(path, "relays").iter().filter_map(Value::as_str).collect();
        let behind = path.get("behind").and_then(Value::as_str);
        let mut nodes = [&[own], relays.as_slice()].concat();
        nodes.extend(behind);
        let hops = [nodes.as_slice(), &[target]].concat().join(" ─▶ ");
        let classes: Vec<_> = list(path, "classes").iter().map(Value::to_string).collect();
        let (role, link, label) = (word(path, "role"), word(path, "link"), number(path, "label"));
        let mark = if is(path, "carries") { '*' } else { ' ' };
        let _ = writeln!(out, "  {mark} {role:<7} classes {}: {hops}", classes.join(" "));
        let around = if is(path, "bypassed") { ", around a lost link" } else { "" };
        let _ =
            writeln!(out, "      by {link}, label {label}, path {}{around}", word(path, "path"));
    }
    out
}

/// The node that TARGET names.
fn named(state: &Value, target: &str) -> Result<String, Failure> {
    let refused = |why: &str| Err(Failure::new(Exit::Negative, format!("{target} {why}")));
    let node = match target.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) if is_own(address) => {
            return refused("is an address of this host: paths lead to other nodes");
        }
        Ok(IpAddr::V4(address)) => resolved(&address.to_string(), word(state, "interface"))?,
        Ok(IpAddr::V6(_)) => {
            return refused(
                "is an IPv6 address: say the node's IPv4 address, or the link-layer address of its \
                 mesh interface",
            );
        }
        Err(_) if is_link_address(target) => target.to_lowercase(),
        Err(_) => {
            return refused(
                "is no node: say its IPv4 address, or the link-layer address of its mesh interface",
            );
        }
    };
    if node == word(state, "node") {
        return refused("is this node itself: paths lead to other nodes");
    }
    Ok(node)
}

/// Whether a text is a link-layer address of Ethernet, as nodes are named.
fn is_link_address(text: &str) -> bool {
    let is_octet = |word: &str| word.len() == 2 && word.bytes().all(|it| it.is_ascii_hexdigit());
    text.split(':').count() == 6 && text.split(':').all(is_octet)
}

/// Whether an address is one of this host: the system lets only these be bound.
fn is_own(address: Ipv4Addr) -> bool {
    !address.is_multicast() && !address.is_broadcast() && UdpSocket::bind((address, 0)).is_ok()
}

fn path(state: &Value, target: &str, face: Face) -> Result<Exit> {
    let target = named(state, target)?;
    let found = list(state, "destinations").iter().find(|to| word(to, "node") == target);
    let Some(found) = found else {
        let text = format!("there is no path to {target}: it is searched when packets are sent");
        return Err(Failure::new(Exit::Negative, text).into());
    };
    face.answer(found, || drawn(word(state, "node"), found))?;
    Ok(Exit::Success)
}

/// The link-layer address of an IPv4 address, from this host's neighbours.
fn resolved(address: &str, interface: &str) -> Result<String, Failure> {
    let known = fs::read_to_string("/proc/net/arp").unwrap_or_default();
    let mac = known.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (ip, mac) = (words.next()?, words.nth(2)?);
        (ip == address && words.nth(1)? == interface).then(|| mac.to_owned())
    });
    mac.ok_or_else(|| {
        let text = format!(
            "this host has not resolved {address} on {interface}: ping it first, or say the \
             link-layer address of its mesh interface"
        );
        Failure::new(Exit::Negative, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Value {
        json!({
            "node": "02:00:00:00:00:01",
            "neighbours": [
                { "node": "02:00:00:00:00:02", "link": "eth1", "up": true },
                { "node": "02:00:00:00:00:03", "link": "eth2", "up": false },
            ],
            "destinations": [{
                "node": "02:00:00:00:00:03",
                "paths": [
                    { "classes": [0, 1], "role": "primary", "carries": true, "path": "p",
                      "link": "eth1", "label": 100, "relays": ["02:00:00:00:00:02"] },
                ],
            }],
        })
    }

    #[test]
    fn a_target_that_names_no_other_node_is_refused_with_the_reason() {
        assert_eq!(named(&state(), "02:00:00:00:00:0A").unwrap(), "02:00:00:00:00:0a");
        for (target, reason) in [
            ("nosuch", "is no node"),
            ("02:00:00:00:00", "is no node"),
            ("02:00:00:00:00:0g", "is no node"),
            ("fd99::2", "is an IPv6 address"),
            ("127.0.0.1", "is an address of this host"),
            ("02:00:00:00:00:01", "is this node itself"),
        ] {
            let failure = named(&state(), target).unwrap_err();
            assert!(failure.message.starts_with(&format!("{target} {reason}")), "{target}");
        }
    }

    #[test]
    fn a_node_is_a_neighbour_or_has_a_path() {
        let lines: Vec<String> = nodes(&state()).iter().map(node_line).collect();
        assert_eq!(
            lines,
            [
                "02:00:00:00:00:02  neighbour on eth1; no path\n",
                "02:00:00:00:00:03  not a neighbour; path of 2 links\n",
            ]
        );
    }

    #[test]
    fn a_path_to_a_station_passes_the_node_before_it() {
        let to = json!({ "node": "02:00:00:00:00:09", "paths": [
            { "classes": [2], "role": "primary", "carries": true, "path": "p", "link": "eth1",
              "label": 100, "relays": [], "behind": "02:00:00:00:00:02" },
        ] });
        let text = drawn("02:00:00:00:00:01", &to);
        let line = "02:00:00:00:00:01 ─▶ 02:00:00:00:00:02 ─▶ 02:00:00:00:00:09";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_path_is_drawn_from_this_node_to_its_destination() {
        let text = drawn("02:00:00:00:00:01", &state()["destinations"][0]);
        let line =
            "  * primary classes 0 1: 02:00:00:00:00:01 ─▶ 02:00:00:00:00:02 ─▶ 02:00:00:00:00:03";
        assert!(text.contains(line), "{text}");
    }
}
