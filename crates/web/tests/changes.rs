//! Changes of a running gateway by the API: what a role may, what is logged, what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "tests share a file, and not all of it"
)]

mod common;
#[path = "common/started.rs"]
mod started;

use common::split;
use gatewright_gateway::api;
use gatewright_web::tokens::AccessRole;
use serde_json::{Value, json};
use started::Started;
use std::{collections::HashSet, fs, ops::Deref, path::Path};

/// A gateway of one link in memory, with a token of each role and a log of changes.
struct Changed(Started);

impl Deref for Changed {
    type Target = Started;

    fn deref(&self) -> &Started {
        &self.0
    }
}

impl Changed {
    fn new() -> Self {
        let link =
            "[link.lan]\nmode = \"segment\"\nsegment = \"one\"\naddresses = [\"192.0.2.1/24\"]\n";
        Self(Started::with(link, Path::to_owned))
    }

    fn get(&self, path: &str) -> Value {
        self.0.get(AccessRole::Operator, path).2
    }

    /// A change with these fields: status, document.
    fn send(&self, path: &str, fields: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        let (status, _, body) = split(&self.served.exchange(&format!(
            "POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {length}\r\nContent-Type: application/json\r\n{fields}\r\n{body}"
        )));
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{body}: {error}")))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(path, &self.bearer(AccessRole::Operator), &body.to_string())
    }

    /// What a change that has to be made answers.
    #[track_caller]
    fn made(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body);
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }
}

const MAC: &str = "02:00:00:00:00:09";

#[test]
fn an_operator_changes_what_the_control_socket_does() {
    let gateway = Changed::new();
    let attach = json!({ "handler": "rate-limit", "at": "ether:ipv4", "rate": 9, "link": "lan" });
    let id = gateway.made("handlers/attach", &attach)["id"].as_u64().unwrap();
    let attached = || gateway.get("/api/v1/graph")["attached"].clone();
    let at = "before ether:ipv4 receive on lan";
    assert_eq!(
        (&attached()[0]["handler"], &attached()[0]["at"]),
        (&json!("rate-limit"), &json!(at))
    );
    assert_eq!(gateway.made("handlers/detach", &json!({ "id": id })), json!({ "id": id }));
    assert_eq!(attached(), json!([]));

    let neighbour = json!({ "address": "192.0.2.9", "mac": MAC });
    gateway.made("neighbours/add", &neighbour);
    let known = gateway.get("/api/v1/neighbours");
    assert_eq!(known["neighbours"][0]["address"], "192.0.2.9", "{known}");
    let route = json!({ "to": "198.51.100.0/24", "via": "192.0.2.9" });
    gateway.made("routes/add", &route);
    let routes = || gateway.get("/api/v1/routes").to_string();
    assert!(routes().contains("198.51.100.0/24"), "{}", routes());
    gateway.made("routes/remove", &json!({ "to": "198.51.100.0/24" }));
    assert!(!routes().contains("198.51.100.0/24"), "{}", routes());
    gateway.made("neighbours/remove", &json!({ "address": "192.0.2.9" }));
    gateway.made("neighbours/flush", &json!({}));

    let is_up = || gateway.served.gateway.status().unwrap().gateway.links[0].up;
    gateway.made("link", &json!({ "name": "lan", "up": false }));
    assert!(!is_up());
    gateway.made("link", &json!({ "name": "lan", "up": true }));
    assert!(is_up());
}

/// Lists without a bound of their own are answered in pages.
#[test]
fn routes_and_neighbours_come_in_pages() {
    let gateway = Changed::new();
    let (before, added) = (gateway.get("/api/v1/routes")["total"].as_u64().unwrap(), 601);
    for number in 0..added {
        let to = format!("10.{}.{}.0/24", number / 256, number % 256);
        gateway.made("routes/add", &json!({ "to": to, "link": "lan" }));
    }
    let page = |of: &str, query: &str| {
        let found = gateway.get(&format!("/api/v1/{of}?{query}"));
        let rows = found[of].as_array().unwrap();
        (rows.iter().map(ToString::to_string).collect::<Vec<_>>(), found["total"].as_u64().unwrap())
    };
    let total = before + added;
    let (first, all) = page("routes", "");
    assert_eq!((first.len(), all), (500, total), "a page without being asked for");
    let (mut routes, _) = page("routes", "limit=500");
    routes.extend(page("routes", "offset=500").0);
    let different: HashSet<_> = routes.iter().collect();
    assert_eq!(different.len() as u64, total, "each once");
    assert_eq!(page("routes", "offset=7&limit=2").0, routes[7..9]);
    assert_eq!(page("routes", "offset=9999999").0.len(), 0);
    for number in 1..=3 {
        let neighbour = json!({ "address": format!("192.0.2.{}", number + 20), "mac": MAC });
        gateway.made("neighbours/add", &neighbour);
    }
    let (two, all) = page("neighbours", "offset=1&limit=2");
    assert_eq!((two.len(), all), (2, 3), "{two:?}");
    for bad in ["limit=0", "limit=501", "limit=x", "offset=-1", "page=2"] {
        for of in ["routes", "neighbours"] {
            let (status, _, answer) =
                gateway.0.get(AccessRole::Operator, &format!("/api/v1/{of}?{bad}"));
            assert_eq!(status, 400, "{of} {bad}: {answer}");
        }
    }
}

/// What is changed, and what is refused, is in the log of changes and in that of events, with who.
#[test]
fn changes_and_refusals_are_logged() {
    let gateway = Changed::new();
    gateway.made("link", &json!({ "name": "lan", "up": true }));
    assert_eq!(gateway.post("handlers/detach", &json!({ "id": 77 })).0, 400);
    let entries = gatewright_store::last_entries(&gateway.folder.join("audit.db"), 9).unwrap();
    let told: Vec<(String, String, Value)> = (entries.iter())
        .map(|entry| {
            let entry: Value = serde_json::from_str(&entry.text).unwrap();
            assert_eq!((&entry["fr"], &entry["as"]), (&json!("operator"), &json!("operator")));
            let text = |name: &str| entry[name].as_str().unwrap().to_owned();
            (text("op"), text("of"), entry["end"].clone())
        })
        .collect();
    let (link, detach) = (r#"{"name":"lan","up":true}"#, r#"{"id":77}"#);
    let row = |op: &str, of: &str, end: Value| (op.to_owned(), of.to_owned(), end);
    let expected = [
        row("SetLink", link, "waits".into()),
        row("SetLink", link, 200.into()),
        row("Detach", detach, "waits".into()),
        row("Detach", detach, 400.into()),
    ];
    assert_eq!(told, expected);
    let events = gateway.get("/api/v1/events")["events"].clone();
    let changes: Vec<_> =
        events.as_array().unwrap().iter().filter(|it| it["kind"] == "web-change").collect();
    assert_eq!(changes.len(), 2, "{events}");
    let text = changes[1]["text"].as_str().unwrap();
    assert!(text.contains("detach") && text.contains("there is no handler 77"), "{text}");
    // What cannot be logged is not done.
    fs::rename(gateway.folder.join("audit.db"), gateway.folder.join("moved.db")).unwrap();
    assert_eq!(gateway.post("link", &json!({ "name": "lan", "up": false })).0, 503);
    assert!(gateway.served.gateway.status().unwrap().gateway.links[0].up);
}

#[test]
fn bad_changes_are_refused_with_the_words_of_the_control_socket() {
    let gateway = Changed::new();
    for (path, request) in [
        ("handlers/attach", json!({ "do": "attach", "handler": "count", "at": "ether:nothing" })),
        ("handlers/attach", json!({ "do": "attach", "handler": "rate-limit", "at": "ether:ipv4" })),
        ("handlers/detach", json!({ "do": "detach", "id": 4_000_000 })),
        ("link", json!({ "do": "set-link", "name": "wan", "up": false })),
        ("routes/add", json!({ "do": "add-route", "to": "198.51.100.0/33" })),
        ("routes/add", json!({ "do": "add-route", "to": "198.51.100.0/24", "via": "203.0.113.1" })),
        ("routes/remove", json!({ "do": "remove-route", "to": "198.51.100.0/24" })),
        ("neighbours/add", json!({ "do": "add-neighbour", "address": "192.0.2.9", "mac": "x" })),
        ("neighbours/remove", json!({ "do": "remove-neighbour", "address": "192.0.2.99" })),
    ] {
        let mut body = request.clone();
        body.as_object_mut().unwrap().remove("do");
        let (status, answer) = gateway.post(path, &body);
        let parsed = api::ControlRequest::parse(&request.to_string()).unwrap();
        let refused = api::answer(parsed, &gateway.served.gateway).unwrap_err();
        assert_eq!((status, &answer["error"]), (400, &json!(refused.error)), "{path} {body}");
    }
    for (path, body) in [
        ("link", "{}"),
        ("link", "[]"),
        ("link", "no JSON"),
        ("link", r#"{"name":"lan","up":false,"force":true}"#),
        ("link", r#"{"name":"lan","up":"no"}"#),
        ("link", r#"{"do":"reload","text":"","name":"lan","up":false}"#),
        ("log/level", r#"{"level":"loud"}"#),
        ("neighbours/add", r#"{"address":"nowhere","mac":"02:00:00:00:00:09"}"#),
    ] {
        let (status, answer) = gateway.send(path, &gateway.bearer(AccessRole::Admin), body);
        assert_eq!(status, 400, "{path} {body}: {answer}");
        assert!(answer["error"].as_str().unwrap().starts_with("the body"), "{answer}");
    }
    let large = format!(r#"{{"name":"{}","up":false}}"#, "x".repeat(17 << 10));
    assert_eq!(gateway.send("link", &gateway.bearer(AccessRole::Admin), &large).0, 413);
    assert!(gateway.served.gateway.status().unwrap().gateway.links[0].up, "nothing was changed");
}

/// Every changing path refuses who may not, and what a page of another site sends.
#[test]
fn viewers_strangers_and_other_sites_change_nothing() {
    let gateway = Changed::new();
    let capture = json!({ "handler": "capture", "at": "frame", "file": "/etc/passwd" });
    let (status, _) =
        gateway.send("handlers/attach", &gateway.bearer(AccessRole::Admin), &capture.to_string());
    assert_eq!(status, 403, "no file is written by the web");
    let paths = gateway.get("/api/v1/openapi.json");
    let paths = paths["paths"].as_object().unwrap().clone();
    let of = ["handlers/", "link", "routes/", "neighbours/", "log/level"];
    let changes: Vec<_> = (paths.iter())
        .filter(|(_, methods)| methods.get("post").is_some())
        .filter_map(|(path, _)| path.strip_prefix("/api/v1/"))
        .filter(|path| of.iter().any(|it| path.starts_with(it)))
        .collect();
    assert_eq!(changes.len(), 9, "{changes:?}");
    let body = r#"{"name":"lan","up":false}"#;
    for path in changes {
        let operator = gateway.bearer(AccessRole::Operator);
        for (fields, expected) in [
            (String::new(), 401),
            ("Authorization: Bearer gwt_guessed\r\n".to_owned(), 401),
            (gateway.bearer(AccessRole::Viewer), 403),
            (format!("{operator}Origin: http://evil.example\r\n"), 403),
            (format!("{operator}Origin: null\r\n"), 403),
            (format!("{operator}Sec-Fetch-Site: cross-site\r\n"), 403),
        ] {
            assert_eq!(gateway.send(path, &fields, body).0, expected, "{path} {fields}");
        }
        let get = gateway.served.get(&format!("/api/v1/{path}"), &operator);
        assert_eq!(get.0, 405, "{path}");
    }
    // A session's cookie alone, as another site's form would send it, is no sign of this page.
    let (_, head, _) = split(&gateway.served.exchange(&format!(
        "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{{\"token\":\"{}\"}}",
        gateway.tokens[1].len() + 12,
        gateway.tokens[1]
    )));
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let status = gateway.send("link", &format!("Cookie: {cookie}\r\n"), body).0;
    assert!(status == 403 || status == 401, "{status}");
    assert!(gateway.served.gateway.status().unwrap().gateway.links[0].up);
}
