//! The labels of a mesh path, node by node: each is asked for an echo in turn.

use crate::{
    answer::{WebAnswer, WebRefusal, json},
    site::{Asked, Site, read_json},
};
use gatewright_gateway::{
    Gateway,
    api::{self, ControlRequest},
};
use hyper::{StatusCode, body::Incoming};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Relays of a path at the most, and its end.
const HOPS_MAX: u8 = 33;
/// Nodes in a row without an answer, a second each, after which it ends.
const SILENT_MAX: usize = 4;
/// Classes of traffic.
const CLASSES: u8 = 4;

/// The body of a request.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewMeshTrace {
    /// The node, by the link-layer address of its mesh interface.
    node: String,
    /// The class of traffic whose path is taken.
    #[serde(default = "bulk")]
    class: u8,
}

const fn bulk() -> u8 {
    2
}

impl Site {
    /// Asks each node of the path that carries a class to a node for the label with which a packet
    /// arrives there, and the time to its answer.
    pub(crate) async fn mesh_trace(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        body: Incoming,
    ) -> Result<WebAnswer, WebRefusal> {
        let trace: NewMeshTrace = read_json(&asked.head.headers, body).await?;
        if !is_node(&trace.node) || trace.class >= CLASSES {
            let why = "node is the link-layer address of a mesh interface, class is 0 to 3";
            return Err(WebRefusal::bad_request(why));
        }
        self.mesh_state().await?;
        let permit = self.trace_place()?;
        let what = format!("the path to {}", trace.node);
        self.log_change(asked, "web-trace", format!("{} traces {what}", asked.caller.name));
        asked.concerns(&what);
        // It goes on when the client is gone.
        let traced = self.ask(move |gateway| {
            let traced = trace.run(gateway);
            drop(permit);
            Ok(traced)
        });
        Ok(json(StatusCode::OK, &traced.await?))
    }
}

impl NewMeshTrace {
    fn run(&self, gateway: &Gateway) -> Value {
        trace(&self.node, |ttl| {
            let (node, class) = (self.node.clone(), self.class);
            let answer = api::answer(ControlRequest::EchoMesh { node, class, ttl }, gateway);
            answer.map_err(|refused| refused.error)
        })
    }
}

/// Asks node by node until the last one answers, or several are silent.
fn trace(node: &str, echo: impl Fn(u8) -> Result<Value, String>) -> Value {
    let (mut hops, mut silent, mut reached) = (Vec::new(), 0, false);
    for hop in 1..=HOPS_MAX {
        let answer = echo(hop);
        silent = if answer.is_ok() { 0 } else { silent + 1 };
        let mut answer = answer.unwrap_or_else(|error| json!({ "error": error }));
        if let Some(answer) = answer.as_object_mut() {
            answer.insert("hop".to_owned(), hop.into());
        }
        reached = answer.get("node").and_then(Value::as_str) == Some(node);
        hops.push(answer);
        if reached || silent >= SILENT_MAX {
            break;
        }
    }
    json!({ "node": node, "reached": reached, "hops": hops })
}

/// Whether a text is a link-layer address of six octets, in lower case as status has it.
fn is_node(text: &str) -> bool {
    let is_digit = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
    text.split(':').count() == 6
        && text.split(':').all(|octet| octet.len() == 2 && octet.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str = "02:00:00:00:00:03";

    #[test]
    fn a_path_is_traced_node_by_node_to_its_end() {
        let answer = |ttl: u8| match ttl {
            2 => Err("no answer".to_owned()),
            _ => Ok(json!({ "node": format!("02:00:00:00:00:0{ttl}"), "label": 16 + ttl })),
        };
        let traced = trace(END, answer);
        assert_eq!(traced["reached"], true);
        let labels: Vec<_> = (0..3).map(|hop| traced["hops"][hop]["label"].clone()).collect();
        assert_eq!(labels, [json!(17), Value::Null, json!(19)]);
        assert_eq!(traced["hops"][1], json!({ "hop": 2, "error": "no answer" }));
        assert_eq!(traced["hops"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn a_trace_ends_after_silence_and_at_its_bound() {
        let silent = trace(END, |_| Err("no answer".to_owned()));
        assert_eq!(
            (silent["hops"].as_array().unwrap().len(), &silent["reached"]),
            (4, &json!(false))
        );
        let endless = trace(END, |_| Ok(json!({ "node": "02:00:00:00:00:09" })));
        assert_eq!(endless["hops"].as_array().unwrap().len(), 33);
    }

    #[test]
    fn nodes_are_named_by_six_octets() {
        assert!(is_node("4e:00:1c:ad:cf:c6"));
        for wrong in
            ["", "10.99.0.3", "4e:00:1c:ad:cf", "4E:00:1c:ad:cf:c6", "4e:00:1c:ad:cf:c6:00"]
        {
            assert!(!is_node(wrong), "{wrong}");
        }
    }
}
