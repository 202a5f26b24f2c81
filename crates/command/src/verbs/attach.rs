//! `gatewright attach`: a handler into a running gateway, without losing a packet.

use crate::{exit::Exit, face::Face, socket::Which};
use anyhow::Result;
use gatewright_config::{HandlerSpec, MatchSpec, RuleSpec};
use gatewright_gateway::api::ControlRequest;
use std::net::IpAddr;

/// The shape of its answer.
pub const JSON: &str = "{id, warnings}";

/// Attaches a handler to a running gateway, without losing a packet.
///
/// `count` counts packets, `capture` writes them to a pcapng file, `drop` drops those that match,
/// `filter` decides by rules in order, `mirror` copies them to another link, `rate-limit` limits
/// the packets per second. At gateway:NAME/HANDLER handlers see the messages of a program's
/// handler: `drop` and `rate-limit` refuse requests with the protocol's own answer. Prints the id
/// for `gatewright detach`.
#[derive(Debug, clap::Args)]
pub struct Attach {
    #[command(flatten)]
    which: Which,
    /// The handler: count, capture, drop, filter, mirror or rate-limit.
    #[arg(value_name = "HANDLER")]
    handler: String,
    /// The position: frame, ether:ipv4, ip:udp, udp:5683, gateway:NAME/HANDLER, ...
    #[arg(long, value_name = "POSITION")]
    at: String,
    /// Only packets of this link.
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Direction: receive or transmit; at messages, requests or answers.
    #[arg(long, value_name = "SIDE")]
    side: Option<String>,
    /// Relative to the layer: before, instead, after or tap.
    #[arg(long, value_name = "PLACE")]
    place: Option<String>,
    /// drop: source network, ADDRESS/LENGTH.
    #[arg(long, value_name = "NETWORK")]
    source: Option<String>,
    /// drop: destination network, or a single address.
    #[arg(long, value_name = "NETWORK")]
    destination: Option<String>,
    /// drop: IP protocol: icmp, udp, tcp, ..., or a number.
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,
    /// drop: destination port of TCP or UDP.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// drop: a field of the message and its value; may be repeated.
    #[arg(long = "field", value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// filter: a rule, such as 'drop protocol=tcp destination_port=23,2323'; the first that matches
    /// decides. May be repeated. Keys are those of `rules` in a description.
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<RuleSpec>,
    /// filter: accept or drop, for packets that no rule matches.
    #[arg(long, value_name = "VERDICT")]
    default: Option<String>,
    /// rate-limit: packets per second.
    #[arg(long, value_name = "NUMBER")]
    rate: Option<u32>,
    /// rate-limit: packets that may arrive at once.
    #[arg(long, value_name = "NUMBER")]
    burst: Option<u32>,
    /// mirror: the link that sends the copies.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// capture: the pcapng file, written by the gateway.
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
}

impl Attach {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// As [`Verbs::run`](crate::Verbs::run).
    pub fn run(self, face: Face) -> Result<Exit> {
        let Self { which, handler, at, link, side, place, source, destination, .. } = self;
        let Self { protocol, port, fields, rules, default, rate, burst, to, file, .. } = self;
        let [source, destination] = [source, destination].map(|text| text.map(host_or_network));
        let matching = MatchSpec { source, destination, protocol, port, fields };
        let matching = (matching != MatchSpec::default()).then_some(matching);
        let spec = HandlerSpec {
            handler,
            at,
            side,
            place,
            link,
            rate,
            burst,
            to,
            file,
            default,
            matching,
            rules,
        };
        let answer = which.ask(&ControlRequest::Attach(Box::new(spec)))?;
        let warnings = answer.get("warnings").and_then(serde_json::Value::as_array);
        for warning in warnings.into_iter().flatten().filter_map(serde_json::Value::as_str) {
            face.note(&format!("warning: {warning}"));
        }
        face.answer(&answer, || answer.get("id").map_or_else(String::new, ToString::to_string))?;
        Ok(Exit::Success)
    }
}

/// The network of one host where `text` is its address alone, as for `capture` and `trace`.
fn host_or_network(text: String) -> String {
    match text.parse::<IpAddr>() {
        Ok(ip) => format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }),
        Err(_) => text,
    }
}
