//! The schemas of answers (JSON Schema 2020-12).

use serde_json::{Map, Value, json};

/// An object with these members. `array`, `object` and the like are types; a type that ends in `?` may
/// be null, and a name that ends in `?` may be absent.
pub(super) fn object(members: &[(&str, &str)]) -> Value {
    let name_of = |name: &str| name.strip_suffix('?').unwrap_or(name).to_owned();
    let properties: Map<String, Value> = (members.iter())
        .map(|(name, kind)| {
            let schema = match kind.strip_suffix('?') {
                Some(kind) => json!({ "type": [kind, "null"] }),
                None => json!({ "type": kind }),
            };
            (name_of(name), schema)
        })
        .collect();
    let names = members.iter().map(|(name, _)| *name);
    let required: Vec<&str> = names.filter(|name| !name.ends_with('?')).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The object with what the elements of some of its arrays are.
pub(super) fn with_items(mut object: Value, items: &[(&str, Value)]) -> Value {
    for (name, schema) in items {
        let member = object.pointer_mut(&format!("/properties/{name}"));
        if let Some(member) = member.and_then(Value::as_object_mut) {
            member.insert("items".to_owned(), schema.clone());
        }
    }
    object
}

/// Why a request is refused.
pub(super) fn error() -> Value {
    object(&[("error", "string")])
}

/// The readiness; without its causes for callers without a role.
pub(super) fn readiness() -> Value {
    let cause = object(&[("part", "string"), ("level", "string"), ("text", "string")]);
    with_items(object(&[("ready", "boolean"), ("causes?", "array")]), &[("causes", cause)])
}

/// A difference between two descriptions ([`Change`](gatewright_part::Change)).
pub(super) fn change() -> Value {
    object(&[("what", "string"), ("how", "string")])
}

/// A finding about a description.
pub(super) fn finding() -> Value {
    object(&[
        ("severity", "string"),
        ("code", "string"),
        ("message", "string"),
        ("file", "string"),
        ("line", "integer"),
        ("column", "integer"),
        ("text", "string"),
        ("help", "string?"),
    ])
}

/// A description that the gateway refuses, by its changes.
pub(super) fn refused_description() -> Value {
    let refused = [("error", "string"), ("refused", "array"), ("restart", "boolean")];
    with_items(object(&refused), &[("refused", change())])
}

/// A description that has errors, so that nothing is changed.
pub(super) fn wrong_description() -> Value {
    with_items(object(&[("error", "string"), ("findings", "array")]), &[("findings", finding())])
}

/// The status ([`StatusAnswer`](gatewright_gateway::api::StatusAnswer)).
pub(super) fn status() -> Value {
    object(&[
        ("planes", "object"),
        ("uptime", "object"),
        ("links", "array"),
        ("layers", "array"),
        ("ways", "array"),
        ("unclaimed", "array"),
        ("icmp", "array"),
        ("handlers", "array"),
        ("kernel", "object?"),
        ("sojourn", "array"),
        ("workers", "array"),
        ("next_hops", "array"),
        ("measured_runs?", "integer"),
        ("not_forwarding", "array"),
        ("attached", "array"),
        ("udp_gateways", "array"),
        ("parts", "array"),
        ("delays", "array"),
        ("delays_left_out", "integer"),
        ("balances?", "array"),
        ("events", "array"),
        ("fallback?", "string"),
        ("hops?", "array"),
    ])
}

/// The layer graph.
pub(super) fn graph() -> Value {
    object(&[
        ("layers", "array"),
        ("edges", "array"),
        ("unclaimed", "array"),
        ("workers", "array"),
        ("attached", "array"),
        ("sojourn", "array"),
        ("measured_runs", "integer?"),
    ])
}

/// The state of the mesh's node (`gatewright_lsr::MeshState`) with all known nodes.
pub(super) fn mesh() -> Value {
    let node = object(&[("node", "string"), ("hops", "integer?")]);
    let state = object(&[
        ("node", "string"),
        ("nodes", "array"),
        ("interface", "string"),
        ("taken_over", "boolean"),
        ("profile", "string"),
        ("routing", "string"),
        ("trust", "string"),
        ("uptime_s", "integer"),
        ("liveness_interval_us", "integer"),
        ("timer_lateness_us", "integer"),
        ("links", "array"),
        ("tunnels", "array"),
        ("ports", "array"),
        ("neighbours", "array"),
        ("destinations", "array"),
        ("labels", "integer"),
        ("bypasses", "integer"),
        ("tcp_connections", "integer"),
        ("counters", "array"),
    ]);
    with_items(state, &[("nodes", node)])
}

/// The devices.
pub(super) fn devices() -> Value {
    let device = object(&[
        ("name", "string"),
        ("address", "string"),
        ("kind", "string?"),
        ("labels", "array"),
        ("changed", "string?"),
        ("containers", "array"),
        ("associated", "boolean?"),
        ("silent", "boolean?"),
        ("last_heard", "string?"),
    ]);
    let all = object(&[
        ("devices", "array"),
        ("cut", "boolean"),
        ("outbox", "object?"),
        ("counters", "array"),
    ]);
    with_items(all, &[("devices", device)])
}

/// A resource with its children, or a container's readings.
pub(super) fn resource_or_readings() -> Value {
    let child = object(&[("name", "string"), ("address", "string"), ("type", "string")]);
    let resource = object(&[
        ("at", "string"),
        ("name", "string"),
        ("type", "string"),
        ("attributes", "object"),
        ("children", "array"),
        ("cut", "boolean"),
        ("granted", "object?"),
    ]);
    json!({ "oneOf": [with_items(resource, &[("children", child)]), readings()] })
}

/// A container's readings: `cut` is there with `since` or `until`.
fn readings() -> Value {
    let mut instance = object(&[("name", "string"), ("created", "string?"), ("content", "string")]);
    // A reading's content is any JSON.
    if let Some(content) = instance.pointer_mut("/properties/content") {
        *content = json!({});
    }
    with_items(object(&[("instances", "array"), ("cut?", "boolean")]), &[("instances", instance)])
}

/// The packets that a trace or a tap shows ([`Which`](gatewright_gateway::Which)).
pub(super) fn which() -> Value {
    let mut which = object(&[
        ("link?", "string?"),
        ("source?", "string?"),
        ("destination?", "string?"),
        ("protocol?", "string?"),
        ("port?", "integer?"),
    ]);
    if let Some(which) = which.as_object_mut() {
        which.insert("additionalProperties".to_owned(), false.into());
    }
    which
}

/// The keys of a handler that is attached, as those of `[[attach]]` in a description are.
pub(super) fn handler_keys() -> Map<String, Value> {
    let schema = gatewright_config::schema();
    let keys = schema.pointer("/properties/attach/items/properties");
    keys.and_then(Value::as_object).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_config::{HandlerSpec, MatchSpec};
    use gatewright_gateway::Which;
    use std::collections::BTreeSet;

    fn names(members: &Value) -> BTreeSet<&str> {
        members.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn packets_are_selected_by_the_members_of_the_type_that_reads_them() {
        let (schema, read) = (which(), serde_json::to_value(Which::default()).unwrap());
        assert_eq!(names(&schema["properties"]), names(&read));
    }

    /// `rules` and `match` have the keys of a description, and the control socket's type reads each.
    #[test]
    fn the_keys_of_a_handler_are_described_to_their_values() {
        let keys = Value::Object(handler_keys());
        let rule = &keys["rules"]["items"];
        assert_eq!(rule["required"], json!(["verdict"]));
        assert_eq!(keys["match"]["additionalProperties"], false);
        let matching = MatchSpec {
            source: Some(String::new()),
            destination: Some(String::new()),
            protocol: Some(String::new()),
            port: Some(1),
            fields: vec![String::new()],
        };
        let written = serde_json::to_value(&matching).unwrap();
        assert_eq!(names(&keys["match"]["properties"]), names(&written));
        for name in names(&rule["properties"]).into_iter().filter(|name| *name != "verdict") {
            let rule = json!({ "verdict": "drop", name: ["x"] });
            let spec = json!({ "handler": "filter", "at": "frame", "rules": [rule] });
            let spec: HandlerSpec = serde_json::from_value(spec).unwrap();
            assert!(spec.rules[0].conditions.contains_key(name), "{name}");
        }
    }
}
