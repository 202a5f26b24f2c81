//! The changes that the API takes: the control socket's requests, with what the description of the API
//! says of them.

use crate::{answer::WebRefusal, routes::Endpoint};
use gatewright_gateway::api::ControlRequest;
use hyper::StatusCode;
use serde_json::{Map, Value};

/// A change as the control socket and the description of the API know it.
pub(crate) struct ChangeRequest {
    pub(crate) endpoint: Endpoint,
    /// The member `do` of the control socket's request.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// Members of the body: name, type, whether it has to be there.
    pub(crate) members: &'static [(&'static str, &'static str, bool)],
    /// Members of the answer, with their types.
    pub(crate) answer: &'static [(&'static str, &'static str)],
}

/// All changes.
pub(crate) static CHANGES: &[ChangeRequest] = &[
    ChangeRequest {
        endpoint: Endpoint::Attach,
        name: "attach",
        summary: "Attaches a handler, with the keys of [[attach]]; `capture`, which writes a file of \
                  this machine, is refused.",
        members: &[
            ("handler", "string", true),
            ("at", "string", true),
            ("side", "string", false),
            ("place", "string", false),
            ("link", "string", false),
            ("rate", "integer", false),
            ("burst", "integer", false),
            ("to", "string", false),
            ("default", "string", false),
            ("match", "object", false),
            ("rules", "array", false),
        ],
        answer: &[("id", "integer"), ("warnings", "array")],
    },
    ChangeRequest {
        endpoint: Endpoint::Detach,
        name: "detach",
        summary: "Detaches a handler.",
        members: &[("id", "integer", true)],
        answer: &[("id", "integer")],
    },
    ChangeRequest {
        endpoint: Endpoint::SetLink,
        name: "set-link",
        summary: "Takes a link down, or up again.",
        members: &[("name", "string", true), ("up", "boolean", true)],
        answer: &[("name", "string"), ("up", "boolean")],
    },
    ChangeRequest {
        endpoint: Endpoint::AddRoute,
        name: "add-route",
        summary: "Adds a route to `default`, an address or a network, by a next hop, a link or both.",
        members: &[("to", "string", true), ("via", "string", false), ("link", "string", false)],
        answer: &[("routes", "array")],
    },
    ChangeRequest {
        endpoint: Endpoint::RemoveRoute,
        name: "remove-route",
        summary: "Removes the routes to a destination.",
        members: &[("to", "string", true)],
        answer: &[("routes", "array")],
    },
    ChangeRequest {
        endpoint: Endpoint::AddNeighbour,
        name: "add-neighbour",
        summary: "Sets the link-layer address of a neighbour.",
        members: &[("address", "string", true), ("mac", "string", true), ("link", "string", false)],
        answer: &[("neighbours", "array")],
    },
    ChangeRequest {
        endpoint: Endpoint::RemoveNeighbour,
        name: "remove-neighbour",
        summary: "Forgets a neighbour.",
        members: &[("address", "string", true), ("link", "string", false)],
        answer: &[("neighbours", "array")],
    },
    ChangeRequest {
        endpoint: Endpoint::FlushNeighbours,
        name: "flush-neighbours",
        summary: "Forgets all learnt neighbours, or those of one link.",
        members: &[("link", "string", false)],
        answer: &[("neighbours", "array")],
    },
    ChangeRequest {
        endpoint: Endpoint::SetLogLevel,
        name: "set-log-level",
        summary: "Writes events from another severity on, until the next reload.",
        members: &[("level", "string", true)],
        answer: &[("level", "string")],
    },
];

impl ChangeRequest {
    /// The change that an endpoint makes.
    pub(crate) fn of(endpoint: Endpoint) -> Option<&'static Self> {
        CHANGES.iter().find(|change| change.endpoint == endpoint)
    }

    /// The control socket's request with these members.
    pub(crate) fn read(
        &self,
        mut members: Map<String, Value>,
    ) -> Result<ControlRequest, WebRefusal> {
        if let Some(before) = members.insert("do".to_owned(), self.name.into()) {
            return Err(WebRefusal::bad_request(format!(
                "the body: do is given by the path, not as {before}"
            )));
        }
        let request = serde_json::from_value(Value::Object(members));
        let request =
            request.map_err(|error| WebRefusal::bad_request(format!("the body: {error}")))?;
        if let ControlRequest::Attach(spec) = &request
            && (spec.handler == "capture" || spec.file.is_some())
        {
            let why = "a handler that writes a file is attached on the gateway's machine only: \
                       `gatewright attach capture`; /api/v1/tap shows packets here";
            return Err(WebRefusal::new(StatusCode::FORBIDDEN, why));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A value of a described type that the member takes.
    fn example(name: &str, kind: &str) -> Value {
        match (name, kind) {
            ("address" | "via", _) => "192.0.2.9".into(),
            ("level", _) => "debug".into(),
            (_, "integer") => 1.into(),
            (_, "boolean") => true.into(),
            (_, "object") => json!({}),
            (_, "array") => json!([]),
            _ => "x".into(),
        }
    }

    /// What the description of the API says of a body is what the control socket's type reads.
    #[test]
    fn described_members_are_those_that_the_control_socket_reads() {
        for change in CHANGES {
            let all: Map<String, Value> = (change.members.iter())
                .map(|&(name, kind, _)| (name.to_owned(), example(name, kind)))
                .collect();
            let read = change.read(all.clone());
            let read = read.unwrap_or_else(|error| panic!("{}: {}", change.name, error.why));
            // Written again it has the same members: none was left out or has another name.
            let Value::Object(mut written) = serde_json::to_value(&read).unwrap() else {
                panic!("{read:?} is an object")
            };
            assert_eq!(written.remove("do"), Some(change.name.into()));
            for (name, _, needed) in change.members {
                let rules = *name == "rules";
                assert!(rules || written.contains_key(*name), "{} {name}", change.name);
                let mut without = all.clone();
                without.remove(*name);
                // The reader of descriptions finds what a handler lacks.
                let is_read = change.read(without).is_ok();
                assert_eq!(is_read, !needed || change.name == "attach", "{} {name}", change.name);
            }
            let mut more = all.clone();
            more.insert("other".to_owned(), 1.into());
            assert!(change.read(more).is_err(), "{}", change.name);
            let mut more = all;
            more.insert("do".to_owned(), "reload".into());
            assert!(change.read(more).is_err(), "{}: the path says what is done", change.name);
        }
    }

    #[test]
    fn no_handler_that_writes_a_file_comes_by_the_web() {
        let attach = ChangeRequest::of(Endpoint::Attach).unwrap();
        for body in [
            json!({ "handler": "capture", "at": "frame", "file": "/etc/passwd" }),
            json!({ "handler": "capture", "at": "frame" }),
            json!({ "handler": "count", "at": "frame", "file": "x" }),
        ] {
            let Value::Object(members) = body else { continue };
            assert_eq!(attach.read(members).unwrap_err().status, StatusCode::FORBIDDEN);
        }
    }
}
