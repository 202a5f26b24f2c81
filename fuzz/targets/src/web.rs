//! What reaches the web interface of a gateway.

use gatewright_web::foreign::{ForeignRequest, merge_patch, token_line};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// Maximum octets of a session's identifier that are looked at.
const SESSION_MAX: usize = 256;

/// A request's target with its fields, a line of a file of tokens, and two documents, with a NUL
/// between them, for a merge patch from one to the other.
pub fn web(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    if let Some(request) = ForeignRequest::read(&text) {
        // DNS rebinding: a request that is served on loopback names it.
        assert!(!request.is_served || names_loopback(&request.host), "{request:?}");
        assert!(!request.has_file || !request.path.contains(".."), "{request:?}");
        assert!(request.session.as_ref().is_none_or(|it| it.len() <= SESSION_MAX), "{request:?}");
    }
    if let Some(line) = text.lines().next().and_then(token_line) {
        assert_eq!(token_line(&line).as_deref(), Some(line.as_str()), "what is written is read");
    }
    let mut documents = text.split('\0').map_while(|text| serde_json::from_str(text).ok());
    if let (Some(old), Some(new)) = (documents.next(), documents.next()) {
        let (old, new): (Value, Value) = (old, new);
        let patched = apply(old.clone(), &merge_patch(&old, &new));
        assert_eq!(without_nulls(&patched), without_nulls(&new), "{old} {new}");
    }
}

/// Whether a field Host names loopback (RFC 6761 §6.3, RFC 3986 §3.2).
fn names_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|octet| octet.is_ascii_digit()) => name,
        _ => host,
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || inner.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// RFC 7396 §2, as it is written there.
fn apply(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = match target {
        Value::Object(target) => target,
        _ => Map::new(),
    };
    for (name, value) in patch {
        let below = target.remove(name).unwrap_or(Value::Null);
        if !value.is_null() {
            target.insert(name.clone(), apply(below, value));
        }
    }
    Value::Object(target)
}

/// A document without null members, which are absent in a merge patch.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            members.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
        }
        other => other.clone(),
    }
}
