//! The description of the API (OpenAPI 3.1), made of the table of routes.
//!
//! What is served and what is described cannot differ: both read the same table, and each endpoint has
//! its entry here.

mod schemas;

use crate::{
    change_requests::ChangeRequest,
    routes::{Endpoint, ROUTES, WebRoute},
};
use schemas::{object, with_items};
use serde_json::{Map, Value, json};

/// What an endpoint takes and answers.
struct Described {
    summary: &'static str,
    /// Parameters of the query: name, type, meaning.
    query: &'static [(&'static str, &'static str, &'static str)],
    /// Fields of the head: name, whether it is needed, meaning.
    fields: &'static [(&'static str, bool, &'static str)],
    /// The schema of the body.
    body: Option<Value>,
    media_type: &'static str,
    /// The schema of the answer.
    answer: Value,
    /// The schemas of answers of other statuses that say more than `Error`.
    others: Vec<(&'static str, Value)>,
}

impl Described {
    fn json(summary: &'static str, answer: Value) -> Self {
        let media_type = crate::answer::JSON;
        let others = Vec::new();
        Self { summary, query: &[], fields: &[], body: None, media_type, answer, others }
    }
}

/// The document.
pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.to_ascii_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Gatewright",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The web interface of a running gateway.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "session": { "type": "apiKey", "in": "cookie", "name": "gatewright" },
            },
            "schemas": { "Error": schemas::error() },
        },
    })
}

fn operation(route: &WebRoute) -> Value {
    let Described { summary, query, fields, body, media_type, answer, others } =
        described(route.endpoint);
    let of_query = query.iter().map(|(name, kind, meaning)| {
        let schema = json!({ "type": kind });
        json!({ "name": name, "in": "query", "schema": schema, "description": meaning })
    });
    let of_fields = fields.iter().map(|(name, needed, meaning)| {
        json!({
            "name": name, "in": "header", "required": needed, "schema": { "type": "string" },
            "description": meaning,
        })
    });
    let parameters: Vec<Value> = of_query.chain(of_fields).collect();
    let response = |why: &str, media_type: &str, schema: Value| json!({ "description": why, "content": { media_type: { "schema": schema } } });
    let refused = "Refused, or not possible now.";
    let error = json!({ "$ref": "#/components/schemas/Error" });
    let mut responses = Map::new();
    responses.insert("200".to_owned(), response("Done.", media_type, answer));
    responses.insert("default".to_owned(), response(refused, crate::answer::JSON, error));
    responses.extend(others.into_iter().map(|(status, schema)| {
        (status.to_owned(), response(refused, crate::answer::JSON, schema))
    }));
    let mut operation = json!({
        "summary": summary,
        "operationId": format!("{:?}", route.endpoint),
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(operation) = operation.as_object_mut() {
        if let Some(role) = route.role {
            operation.insert("security".to_owned(), json!([{ "token": [] }, { "session": [] }]));
            operation.insert("x-role".to_owned(), json!(role));
        }
        if let Some(schema) = body {
            let content = json!({ "application/json": { "schema": schema } });
            let body = json!({ "required": true, "content": content });
            operation.insert("requestBody".to_owned(), body);
        }
    }
    operation
}

fn role() -> Value {
    object(&[("role", "string?")])
}

fn described(endpoint: Endpoint) -> Described {
    match endpoint {
        Endpoint::Live => Described::json("The process runs.", object(&[("live", "boolean")])),
        Endpoint::Ready => Described {
            others: vec![("503", schemas::readiness())],
            ..Described::json(
                "Whether each link is up and the workers run; 503 if not. Callers without a role see \
                 `ready` alone.",
                schemas::readiness(),
            )
        },
        Endpoint::Metrics => Described {
            media_type: gatewright_gateway::metrics::OPEN_METRICS,
            ..Described::json("Metrics as OpenMetrics text.", json!({ "type": "string" }))
        },
        Endpoint::OpenApi => Described::json(
            "This description.",
            object(&[
                ("openapi", "string"),
                ("info", "object"),
                ("paths", "object"),
                ("components", "object"),
            ]),
        ),
        Endpoint::Session | Endpoint::BeginSession | Endpoint::EndSession => of_session(endpoint),
        Endpoint::Status => Described::json(
            "The document of `gatewright status --json`, at most 250 ms old.",
            schemas::status(),
        ),
        Endpoint::Stream => Described {
            fields: &[("Last-Event-ID", false, "The last event that the client has.")],
            media_type: "text/event-stream",
            ..Described::json(
                "Status and events as they change: snapshot, delta (RFC 7396), event, missed.",
                json!({ "type": "string" }),
            )
        },
        Endpoint::Events => Described {
            query: &[
                ("after", "integer", "Only events after this number, if this run has had it."),
                ("level", "string", "The least severe: error, warning, info, debug."),
            ],
            ..Described::json(
                "Kept events, at most 500, as `gatewright events --json` has them.",
                object(&[("events", "array"), ("missed", "integer"), ("run", "string")]),
            )
        },
        Endpoint::Graph
        | Endpoint::Mesh
        | Endpoint::Devices
        | Endpoint::Resources
        | Endpoint::Config
        | Endpoint::Reload => inside(endpoint),
        Endpoint::Tap | Endpoint::Trace => traced(endpoint),
        other => further(other),
    }
}

/// The endpoints about the caller's session.
fn of_session(endpoint: Endpoint) -> Described {
    match endpoint {
        Endpoint::Session => Described::json(
            "The caller's role, null if it needs a token.",
            object(&[("role", "string?"), ("tokens", "boolean")]),
        ),
        Endpoint::BeginSession => Described {
            body: Some(object(&[("token", "string")])),
            ..Described::json("Begins a session with a token, as a cookie.", role())
        },
        _ => Described::json("Ends the session.", role()),
    }
}

/// The part of a list that is asked for.
static ROWS: &[(&str, &str, &str)] = &[
    ("offset", "integer", "Rows that are left out before the first."),
    ("limit", "integer", "Rows at most, 1 to 500; 500 if not given."),
];

/// The endpoints about descriptions, reports, the network, and changes.
fn further(endpoint: Endpoint) -> Described {
    match endpoint {
        Endpoint::History | Endpoint::Differences | Endpoint::RollBack => kept(endpoint),
        Endpoint::LabReports | Endpoint::LabReport => of_lab(endpoint),
        Endpoint::MeshTrace => Described {
            body: Some(json!({
                "type": "object",
                "properties": {
                    "node": { "type": "string", "description": "link-layer address of a node" },
                    "class": { "type": "integer", "minimum": 0, "maximum": 3 },
                },
                "required": ["node"],
            })),
            ..Described::json(
                "Asks each node of a mesh path in turn for the label with which packets arrive there, \
                 and the time to its answer.",
                object(&[("node", "string"), ("reached", "boolean"), ("hops", "array")]),
            )
        },
        Endpoint::Routes => Described {
            query: ROWS,
            ..Described::json(
                "The routes in force, as `gatewright route --json` has them; `total` of them.",
                object(&[("routes", "array"), ("total", "integer")]),
            )
        },
        Endpoint::Neighbours => Described {
            query: ROWS,
            ..Described::json(
                "The known neighbours, as `gatewright neigh --json` has them; `total` of them.",
                object(&[("neighbours", "array"), ("total", "integer")]),
            )
        },
        other => changed(other),
    }
}

/// The endpoints that change a running gateway as the control socket does.
fn changed(endpoint: Endpoint) -> Described {
    let Some(change) = ChangeRequest::of(endpoint) else {
        return Described::json("", json!({}));
    };
    let keys = match endpoint {
        Endpoint::Attach => schemas::handler_keys(),
        _ => Map::new(),
    };
    let properties: Map<String, Value> = (change.members.iter())
        .map(|(name, kind, _)| {
            let schema = keys.get(*name).cloned().unwrap_or_else(|| json!({ "type": kind }));
            ((*name).to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> =
        change.members.iter().filter(|(.., needed)| *needed).map(|(name, ..)| *name).collect();
    Described {
        body: Some(json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })),
        ..Described::json(change.summary, object(change.answer))
    }
}

/// The endpoints about the delay lab's reports.
fn of_lab(endpoint: Endpoint) -> Described {
    match endpoint {
        Endpoint::LabReport => Described {
            query: &[("name", "string", "The report's name; the newest if not given.")],
            media_type: crate::answer::HTML,
            ..Described::json("A report as HTML, in a sandbox.", json!({ "type": "string" }))
        },
        _ => Described::json(
            "The delay lab's reports, the newest first: name, title, octets, written_ms. 404 without \
             `reports` in [web].",
            object(&[("reports", "array"), ("left_out", "integer"), ("problem", "string?")]),
        ),
    }
}

/// The endpoints about kept descriptions.
fn kept(endpoint: Endpoint) -> Described {
    let changes = object(&[("number", "integer"), ("changes", "array")]);
    let changes = with_items(changes, &[("changes", schemas::change())]);
    let refused = vec![("409", schemas::refused_description())];
    match endpoint {
        Endpoint::Differences => Described {
            query: &[(
                "number",
                "integer",
                "The number of the kept description; the newest if not given.",
            )],
            others: refused,
            ..Described::json("What a return to a kept description would change.", changes)
        },
        Endpoint::RollBack => Described {
            fields: &[(
                "If-Match",
                true,
                "The ETag of /api/v1/config/history that the caller has seen, several, or *.",
            )],
            body: Some(object(&[("number", "integer")])),
            others: refused,
            ..Described::json(
                "Has the gateway take a kept description again: all of it or nothing.",
                changes,
            )
        },
        _ => Described::json(
            "The descriptions that were taken, the oldest first: number, time, cause, octets, \
             whether it is in force.",
            object(&[("kept", "array"), ("etag", "string")]),
        ),
    }
}

/// The endpoints about the inside of the gateway.
fn inside(endpoint: Endpoint) -> Described {
    match endpoint {
        Endpoint::Graph => Described::json(
            "Layers, edges and handlers of the workers' graph with their counters, and `measured`: \
             packets, and ns for all of them, in batches that are measured until 3 s after the last \
             look, one in a millisecond at most.",
            schemas::graph(),
        ),
        Endpoint::Mesh => Described::json(
            "The document of `gatewright mesh status --json`, with all known nodes; 404 without a mesh.",
            schemas::mesh(),
        ),
        Endpoint::Devices => Described::json(
            "Devices by their AEs, with their containers, whether they are associated or silent, when they \
             were last heard, and the counters of their listener.",
            schemas::devices(),
        ),
        Endpoint::Resources => resources(),
        Endpoint::Config => Described::json(
            "The description's file: text, findings, and what a reload would change.",
            with_items(
                object(&[
                    ("file", "string"),
                    ("text", "string"),
                    ("etag", "string"),
                    ("findings", "array"),
                    ("differences", "array"),
                ]),
                &[("findings", schemas::finding()), ("differences", schemas::change())],
            ),
        ),
        _ => Described {
            fields: &[(
                "If-Match",
                true,
                "The ETag of /api/v1/config that the caller has seen, several, or *.",
            )],
            others: vec![
                ("409", schemas::refused_description()),
                ("422", schemas::wrong_description()),
            ],
            ..Described::json(
                "Has the gateway take the file: all of it or nothing.",
                with_items(
                    object(&[("changes", "array"), ("findings", "array")]),
                    &[("changes", schemas::change()), ("findings", schemas::finding())],
                ),
            )
        },
    }
}

/// The endpoint of resources.
fn resources() -> Described {
    Described {
        query: &[
            ("at", "string", "The resource's address; the CSEBase if not given."),
            ("depth", "integer", "Levels of children, 0 to 3; 1 if not given."),
            (
                "latest",
                "integer",
                "Operators: the last readings of a container, at most 500; 400 at other types.",
            ),
            (
                "since",
                "string",
                "Operators: readings created then or after, the oldest first, at most `latest`; `cut` \
                 says whether there are more.",
            ),
            ("until", "string", "Operators: readings created before."),
            (
                "as",
                "string",
                "Operators: an originator, of whom `granted` says why it may retrieve.",
            ),
        ],
        ..Described::json(
            "A resource with its children. Viewers see names, types and labels; operators all. \
             `granted` says what grants the look: by `role`, or to `as` by `policy` with rule, \
             originators and operations, by `owner`, `registered`, …; null if nothing does. With \
             `latest`, `since` or `until` it is a container's readings instead.",
            schemas::resource_or_readings(),
        )
    }
}

/// The endpoints that show packets and messages on their way.
fn traced(endpoint: Endpoint) -> Described {
    match endpoint {
        Endpoint::Tap => Described {
            body: Some(json!({
                "type": "object",
                "properties": {
                    "at": { "type": "string", "description": "frame, ether:ipv4, …" },
                    "side": { "type": "string", "description": "receive, transmit; both if not given" },
                    "which": schemas::which(),
                    "count": { "type": "integer", "minimum": 1, "maximum": 1000 },
                    "seconds": { "type": "number", "maximum": 60 },
                },
                "required": ["at"],
            })),
            media_type: "text/event-stream",
            ..Described::json(
                "Shows packets at a position while they pass: each is an event `packet`; `end` is the \
                 last, with how many were missed.",
                json!({ "type": "string" }),
            )
        },
        _ => Described {
            body: Some(json!({
                "type": "object",
                "properties": {
                    "position": { "type": "string", "description": "gateway:NAME/HANDLER; packets if not given" },
                    "which": schemas::which(),
                    "count": { "type": "integer", "minimum": 1, "maximum": 16 },
                    "seconds": { "type": "number", "maximum": 60 },
                },
            })),
            media_type: "text/event-stream",
            ..Described::json(
                "Traces packets or a message: each is an event `trace`; `end` is the last.",
                json!({ "type": "string" }),
            )
        },
    }
}
