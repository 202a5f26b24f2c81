//! What the API answers about the inside of a gateway, and its description.
#![allow(
    clippy::expect_used,
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

use common::{DESCRIPTION, split};
use gatewright_gateway::{BalanceStatus, HopDelay, LogLevel};
use gatewright_onem2m::ResourceType;
use gatewright_store::{last_entries, verify};
use gatewright_web::tokens::AccessRole;
use serde_json::{Value, json};
use started::{REPORT, Started, audited};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// An AE called `<script>` in its label, with a container of three readings.
fn with_a_reading(started: &Started) {
    let entity = json!({ "m2m:ae": {
        "rn": "phd-1", "api": "N.phd", "rr": false, "srv": ["4"],
        "lbl": ["<script>alert(1)</script>"],
    }});
    started.create("gw", ResourceType::ApplicationEntity, "Cphd-1", &entity);
    let container = json!({ "m2m:cnt": { "rn": "pulse-rate" } });
    started.create("gw/phd-1", ResourceType::Container, "Cphd-1", &container);
    for (name, value) in [("r0", "seeded-95"), ("r1", "seeded-96"), ("r2", "seeded-97")] {
        let reading = json!({ "m2m:cin": { "rn": name, "con": value } });
        started.create("gw/phd-1/pulse-rate", ResourceType::ContentInstance, "Cphd-1", &reading);
    }
}

#[test]
fn a_viewer_sees_names_and_types_and_an_operator_values() {
    let started = Started::new();
    with_a_reading(&started);
    let (status, _, base) = started.get(AccessRole::Viewer, "/api/v1/resources");
    assert_eq!(status, 200, "{base}");
    assert_eq!((&base["name"], &base["type"]), (&"gw".into(), &"cb".into()));
    let children = base["children"].as_array().unwrap();
    let entity = children.iter().find(|child| child["name"] == "phd-1").unwrap();
    assert_eq!((&entity["type"], &entity["address"]), (&"ae".into(), &"gw/phd-1".into()));
    let below = "/api/v1/resources?at=%2Fgw%2Fphd-1&depth=2";
    let (_, _, found) = started.get(AccessRole::Viewer, below);
    assert_eq!(found["attributes"]["lbl"][0], "<script>alert(1)</script>");
    let children = found["children"].as_array().unwrap();
    assert_eq!((children.len(), &children[0]["name"]), (1, &"pulse-rate".into()), "no instances");
    let reading = "/api/v1/resources?at=/gw/phd-1/pulse-rate/r2&depth=0";
    let (status, _, found) = started.get(AccessRole::Viewer, reading);
    assert_eq!((status, &found["name"]), (200, &"r2".into()));
    assert!(!found.to_string().contains("seeded-"), "{found}");
    let (_, _, found) = started.get(AccessRole::Operator, reading);
    assert_eq!(found["attributes"]["con"], "seeded-97");
    let latest = "/api/v1/resources?at=/gw/phd-1/pulse-rate&latest=2";
    let (status, _, refused) = started.get(AccessRole::Viewer, latest);
    assert!(status == 403 && refused["error"].as_str().unwrap().contains("operator"), "{refused}");
    let (_, _, found) = started.get(AccessRole::Operator, latest);
    let instances = found["instances"].as_array().unwrap();
    let names: Vec<_> = instances.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["r1", "r2"], "the last two, the oldest first");
    assert_eq!(instances[1]["content"], "seeded-97");
    assert!(instances[0]["created"].as_str().unwrap().ends_with('Z'));
    readings_of_a_span(&started, &instances[0]["created"]);
    let entity = "/api/v1/resources?at=/gw/phd-1&latest=3";
    let (status, _, refused) = started.get(AccessRole::Operator, entity);
    let why = refused["error"].as_str().unwrap();
    assert!(status == 400 && why.contains("containers") && why.contains("type ae"), "{why}");
    for (query, expected) in [
        ("?at=/gw/phd-1&since=2026-01-31T08:00:00Z", 400),
        ("?at=/gw/nothing", 404),
        ("?at=/gw?rcn=8", 400),
        ("?depth=4", 400),
        ("?at=/gw/phd-1/pulse-rate&latest=0", 400),
        ("?at=/gw/phd-1/pulse-rate&latest=501", 400),
        ("?depth=-1", 400),
        ("?at=/gw/phd-1/pulse-rate&since=yesterday", 400),
        ("?at=/gw/phd-1/pulse-rate&until=2026-01-31", 400),
        (&format!("?at=/{}", "x".repeat(600)), 400),
    ] {
        let path = format!("/api/v1/resources{query}");
        assert_eq!(started.get(AccessRole::Operator, &path).0, expected, "{query}");
    }
}

/// Each depth is one level more, and nothing is listed twice.
#[test]
fn children_are_those_of_the_levels_that_are_asked_for_each_once() {
    let started = Started::new();
    with_a_reading(&started);
    for (to, name) in [("gw/phd-1", "commands"), ("gw/phd-1/commands", "gateway")] {
        let container = json!({ "m2m:cnt": { "rn": name } });
        started.create(to, ResourceType::Container, "Cphd-1", &container);
    }
    let below = |query: &str| {
        let path = format!("/api/v1/resources?{query}");
        let (_, _, found) = started.get(AccessRole::Viewer, &path);
        let children = found["children"].as_array().unwrap();
        let addresses = children.iter().map(|it| it["address"].as_str().unwrap().to_owned());
        let mut addresses: Vec<String> = addresses.filter(|it| it.contains("phd-1")).collect();
        addresses.sort();
        addresses
    };
    let all = ["", "/commands", "/commands/gateway", "/pulse-rate"];
    let all = all.map(|name| format!("gw/phd-1{name}"));
    assert_eq!(below("at=/gw&depth=0"), [""; 0]);
    assert_eq!(below("at=/gw"), all[..1]);
    assert_eq!(below("at=/gw&depth=2"), [&all[0], &all[1], &all[3]].map(String::as_str));
    assert_eq!(below("at=/gw&depth=3"), all);
    let (_, _, found) = started.get(AccessRole::Viewer, "/api/v1/devices");
    assert_eq!(found["devices"][0]["containers"], json!(["pulse-rate", "commands"]));
}

/// A history is read by time, in pieces; `second` is when the second of three readings was created.
fn readings_of_a_span(started: &Started, second: &Value) {
    let second = second.as_str().unwrap();
    let names = |query: &str| {
        let path = format!("/api/v1/resources?at=/gw/phd-1/pulse-rate&{query}");
        let (status, _, found) = started.get(AccessRole::Operator, &path);
        assert_eq!(status, 200, "{query}: {found}");
        let instances = found["instances"].as_array().unwrap();
        let names = instances.iter().map(|it| it["name"].as_str().unwrap());
        (names.collect::<Vec<_>>().join(" "), found["cut"].as_bool().unwrap())
    };
    assert_eq!(names(&format!("since={second}")), ("r1 r2".to_owned(), false));
    assert_eq!(names(&format!("until={second}")), ("r0".to_owned(), false));
    assert_eq!(names("since=1970-01-01T00:00:00Z&latest=2"), ("r0 r1".to_owned(), true));
    assert_eq!(names("since=2200-01-01T00:00:00Z"), (String::new(), false));
    let path = format!("/api/v1/resources?at=/gw/phd-1/pulse-rate&since={second}");
    assert_eq!(started.get(AccessRole::Viewer, &path).0, 403, "values are for operators");
}

/// Each look says what grants it; of others an operator sees the rule by which they may look.
#[test]
fn a_look_is_granted_by_the_role_and_one_of_others_by_a_rule_of_a_policy() {
    let started = Started::new();
    with_a_reading(&started);
    let policy = json!({ "m2m:acp": {
        "rn": "readers",
        "pv": { "acr": [{ "acor": ["Cphd-1"], "acop": 63 }, { "acor": ["Cdoc*"], "acop": 34 }] },
        "pvs": { "acr": [{ "acor": ["Cphd-1"], "acop": 63 }] },
    }});
    started.create("gw", ResourceType::AccessControlPolicy, "", &policy);
    let container = json!({ "m2m:cnt": { "rn": "shared", "acpi": ["gw/readers"] } });
    started.create("gw/phd-1", ResourceType::Container, "Cphd-1", &container);
    let look = |role, query: &str| {
        started.get(role, &format!("/api/v1/resources?depth=0&at=/gw/phd-1/{query}"))
    };
    let (_, _, own) = look(AccessRole::Viewer, "shared");
    assert_eq!(own["granted"], json!({ "by": "role", "role": "viewer", "as": "/gw" }));
    let (_, _, of_doctor) = look(AccessRole::Operator, "shared&as=Cdoctor");
    let expected = json!({
        "by": "policy", "as": "Cdoctor", "at": "gw/phd-1/shared", "policy": "gw/readers", "rule": 2,
        "originators": ["Cdoc*"], "operations": ["retrieve", "discover"],
    });
    assert_eq!(of_doctor["granted"], expected);
    let (status, _, of_stranger) = look(AccessRole::Operator, "shared&as=Cx");
    assert_eq!((status, &of_stranger["granted"]), (200, &Value::Null));
    let (_, _, of_owner) = look(AccessRole::Operator, "pulse-rate/r1&as=Cphd-1");
    let owner = json!({ "by": "owner", "as": "Cphd-1", "at": "gw/phd-1/pulse-rate" });
    assert_eq!(of_owner["granted"], owner);
    assert_eq!(look(AccessRole::Viewer, "shared&as=Cdoctor").0, 403);
    assert_eq!(look(AccessRole::Operator, "shared&as=").0, 400);
    assert_eq!(look(AccessRole::Operator, &format!("shared&as={}", "x".repeat(600))).0, 400);
}

/// Values of readings are in nothing that a viewer, a log or a collector gets.
#[test]
fn values_are_neither_in_devices_nor_in_status_events_and_metrics() {
    let started = Started::new();
    with_a_reading(&started);
    let (status, _, found) = started.get(AccessRole::Viewer, "/api/v1/devices");
    assert_eq!(status, 200);
    let device = &found["devices"][0];
    assert_eq!((&device["name"], &device["address"]), (&"phd-1".into(), &"gw/phd-1".into()));
    assert_eq!(device["containers"], json!(["pulse-rate"]));
    // Its AE is no device's name, so of a device there is nothing.
    let state = ["associated", "silent", "last_heard"].map(|name| device.get(name));
    assert_eq!(state, [Some(&Value::Null); 3], "{device}");
    for path in ["/api/v1/devices", "/api/v1/status", "/api/v1/events", "/metrics", "/api/v1/graph"]
    {
        let (status, _, body) = started.served.get(path, &started.bearer(AccessRole::Viewer));
        assert_eq!(status, 200, "{path}");
        assert!(!body.contains("seeded-"), "{path}");
    }
}

#[test]
fn the_mesh_is_404_with_a_reason_where_there_is_none() {
    let started = Started::new();
    let (status, _, body) = started.get(AccessRole::Viewer, "/api/v1/mesh");
    assert!(status == 404 && body["error"].as_str().unwrap().contains("mesh"), "{body}");
}

#[test]
fn the_description_is_shown_to_administrators_and_taken_in_the_version_that_was_seen() {
    let started = Started::new();
    for role in [AccessRole::Viewer, AccessRole::Operator] {
        assert_eq!(started.get(role, "/api/v1/config").0, 403);
    }
    let reload = |role, fields: &str| started.post(role, "/api/v1/reload", fields, "");
    assert_eq!(reload(AccessRole::Viewer, "If-Match: *\r\n").0, 403);
    assert_eq!(reload(AccessRole::Operator, "").0, 428);
    let config = || started.get(AccessRole::Admin, "/api/v1/config");
    let (_, head, seen) = config();
    assert!(head.contains(&format!("etag: {}", seen["etag"].as_str().unwrap())), "{head}");
    assert_eq!(seen["text"], fs::read_to_string(&started.file).unwrap());
    assert_eq!((&seen["differences"], &seen["findings"]), (&json!([]), &json!([])));
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let with_log = format!("{}[log]\nlevel = \"warning\"\n", seen["text"].as_str().unwrap());
    fs::write(&started.file, &with_log).unwrap();
    let (status, _, body) = reload(AccessRole::Operator, &format!("If-Match: {tag}\r\n"));
    assert_eq!(status, 412, "{body}");
    let unquoted = format!("If-Match: {}\r\n", tag.trim_matches('"'));
    let (status, _, body) = reload(AccessRole::Operator, &unquoted);
    assert!(status == 400 && body.contains("quotation marks"), "{body}");
    let (_, head, changed) = config();
    assert_eq!(changed["differences"][0]["what"], "[log] level");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let list = format!("If-Match: \"of another\", {tag}\r\n");
    let (status, _, body) = reload(AccessRole::Operator, &list);
    assert_eq!(status, 200, "{body}");
    let done: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(done["changes"][0]["what"], "[log] level");
    fs::write(&started.file, "[cse]\nbase = \"gw\"\nid = \"no\"\nhttp = \"127.0.0.1:1\"\n")
        .unwrap();
    let (status, _, body) = reload(AccessRole::Operator, "If-Match: *\r\n");
    let refused: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 422, "{body}");
    let finding = &refused["findings"][0];
    assert_eq!((&finding["code"], &finding["line"]), (&"GW0163".into(), &3.into()));
    fs::write(&started.file, "[cse]\nbase = \"other\"\nid = \"/gw\"\n").unwrap();
    let (status, _, body) = reload(AccessRole::Operator, "If-Match: *\r\n");
    let refused: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &refused["restart"]), (409, &true.into()), "{body}");
    let (_, _, events) = started.get(AccessRole::Viewer, "/api/v1/events");
    let events = events["events"].as_array().unwrap();
    let by = |event: &&Value| event["kind"] == "web-reload" && event["fields"]["by"] == "operator";
    assert_eq!(events.iter().filter(by).count(), 3, "each is in the log: {events:?}");
}

#[test]
fn operators_return_to_a_description_in_the_history_that_they_have_seen() {
    let started = Started::new();
    let path = "/api/v1/config/history";
    assert_eq!(started.get(AccessRole::Viewer, path).0, 403);
    let history = || started.get(AccessRole::Operator, path);
    let tag =
        |head: &str| head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let (_, before, kept) = history();
    let before = tag(&before);
    let kept = &kept["kept"][0];
    assert_eq!((&kept["number"], &kept["cause"]), (&1.into(), &"start".into()));
    assert_eq!(kept["in_force"], true);
    let text = fs::read_to_string(&started.file).unwrap();
    fs::write(&started.file, format!("{text}[log]\nlevel = \"warning\"\n")).unwrap();
    assert_eq!(started.post(AccessRole::Operator, "/api/v1/reload", "If-Match: *\r\n", "").0, 200);
    let (_, _, differences) =
        started.get(AccessRole::Operator, "/api/v1/config/differences?number=1");
    assert_eq!(differences["changes"][0]["what"], "[log] level");
    let post = |role, fields: &str, body: &str| {
        started.post(role, "/api/v1/config/rollback", fields, body)
    };
    let roll_back = |fields: &str, body| post(AccessRole::Operator, fields, body).0;
    assert_eq!(post(AccessRole::Viewer, "If-Match: *\r\n", "{\"number\":1}").0, 403);
    assert_eq!(roll_back("", "{\"number\":1}"), 428);
    assert_eq!(roll_back(&format!("If-Match: {before}\r\n"), "{\"number\":1}"), 412);
    assert_eq!(roll_back("If-Match: *\r\n", "{\"number\":7}"), 409);
    for bad in ["", "{}", "{\"number\":-1}", "{\"number\":\"1\"}", "{\"number\":1,\"text\":\"\"}"] {
        assert_eq!(roll_back("If-Match: *\r\n", bad), 400, "{bad}");
    }
    let now = tag(&history().1);
    assert_eq!(roll_back(&format!("If-Match: {now}\r\n"), "{\"number\":1}"), 200);
    let (_, _, kept) = history();
    let causes = kept["kept"].as_array().unwrap().iter().map(|it| it["cause"].as_str().unwrap());
    assert_eq!(causes.collect::<Vec<_>>(), ["start", "reload", "roll-back"]);
    let (_, _, config) = started.get(AccessRole::Admin, "/api/v1/config");
    assert_eq!(config["differences"][0]["what"], "[log] level", "the file is not changed");
    let (_, _, events) = started.get(AccessRole::Viewer, "/api/v1/events");
    let by =
        |event: &&Value| event["kind"] == "web-rollback" && event["fields"]["by"] == "operator";
    let events = events["events"].as_array().unwrap();
    assert_eq!(events.iter().filter(by).count(), 2, "each that was seen is in the log: {events:?}");
}

/// Values of a description are for administrators: also those of one that is refused.
#[test]
fn a_refused_description_is_not_quoted_to_operators() {
    let started = Started::new();
    let reload = |role| started.post(role, "/api/v1/reload", "If-Match: *\r\n", "");
    let wrong = "mqtt = \"mqtt:/userSECRET07:pwSECRET08@broker\"\n";
    fs::write(&started.file, format!("{DESCRIPTION}{wrong}")).unwrap();
    let (status, _, body) = reload(AccessRole::Operator);
    let refused: Value = serde_json::from_str(&body).unwrap();
    let finding = &refused["findings"][0];
    assert_eq!((status, &finding["line"], &finding["column"]), (422, &4.into(), &8.into()));
    assert!(
        finding["code"].as_str().unwrap().starts_with("GW") && !body.contains("SECRET"),
        "{body}"
    );
    // One that only a restart would take.
    let other = "mqtt = \"mqtt://userSECRET07:pwSECRET08@127.0.0.1\"\nadmin = \"CSECRET\"\n";
    fs::write(&started.file, format!("{DESCRIPTION}{other}[web]\n")).unwrap();
    let (status, _, body) = reload(AccessRole::Operator);
    assert!(status == 409 && !body.contains("SECRET"), "{body}");
    let (_, _, seen) = started.get(AccessRole::Viewer, "/api/v1/events");
    let seen = seen.to_string();
    assert!(seen.contains("reload-refused") && !seen.contains("SECRET"), "{seen}");
    fs::write(&started.file, format!("{DESCRIPTION}{wrong}")).unwrap();
    let (_, _, body) = reload(AccessRole::Admin);
    let is_told = body.contains("REMOVED@broker") && !body.contains("SECRET");
    assert!(is_told, "an administrator sees the words, without the password: {body}");
}

/// Who reads values is in the event log, and in the audit log in each entry of the gateway's own.
#[test]
fn each_read_of_values_names_its_reader() {
    let started = Started::with("store = \"cse.db\"\naudit = true\n", Path::to_owned);
    with_a_reading(&started);
    let latest = "/api/v1/resources?at=/gw/phd-1/pulse-rate&latest=2";
    for number in 0..60 {
        // What is not there is not read: it hides no reader.
        let bogus = format!("/api/v1/resources?at=/gw/bogus{number}&latest=1");
        assert_eq!(started.get(AccessRole::Operator, &bogus).0, 404);
    }
    for _ in 0..3 {
        assert_eq!(started.get(AccessRole::Operator, latest).0, 200);
    }
    let reading = "/api/v1/resources?at=/gw/phd-1/pulse-rate/r2&depth=0";
    assert_eq!(started.get(AccessRole::Admin, reading).0, 200);
    assert_eq!(started.get(AccessRole::Viewer, reading).0, 200, "names are no values");
    let (_, _, events) = started.get(AccessRole::Viewer, "/api/v1/events");
    let events = events["events"].as_array().unwrap();
    let read = |event: &&Value| event["kind"] == "web-read";
    let told: Vec<_> = (events.iter().filter(read))
        .map(|event| (&event["fields"]["by"], &event["fields"]["address"], &event["text"]))
        .collect();
    let local = json!("127.0.0.1");
    assert_eq!(told.len(), 2, "the same is told once a minute: {told:?}");
    assert_eq!((told[0].0, told[0].1), (&json!("operator"), &local));
    assert_eq!((told[1].0, told[1].1), (&json!("admin"), &local));
    assert!(told[0].2.as_str().unwrap().contains("/gw/phd-1/pulse-rate"), "{told:?}");
    let read = |who: &str, at: &str| ["Resources", who, who, "token", at, "200"].map(str::to_owned);
    let pulse = "/gw/phd-1/pulse-rate";
    let expected = [read("operator", pulse), read("admin", &format!("{pulse}/r2"))];
    assert_eq!(audited(&started), expected, "the log of the web has them, too");
    let entries = last_entries(&started.folder.join("cse.db"), 200).unwrap();
    let by = |who: &str| {
        let fields = entries.iter().filter_map(|entry| entry.fields.as_ref());
        let fields = fields.filter(|it| !it.to_string().contains("bogus"));
        fields.filter(|it| it["by"] == who && it["ip"] == "127.0.0.1").count()
    };
    // The container and its readings, three times; a reading.
    assert_eq!(
        [by("web operator operator"), by("web admin admin"), by("web viewer viewer")],
        [6, 1, 1]
    );
}

/// A description of several files is reloaded as `gatewright reload` does it.
#[test]
fn a_folder_is_reloaded_with_its_further_files() {
    let started = Started::with("", |file| file.parent().unwrap().to_owned());
    let reload = || started.post(AccessRole::Operator, "/api/v1/reload", "If-Match: *\r\n", "");
    let further = started.folder.join("conf.d");
    fs::create_dir(&further).unwrap();
    fs::write(further.join("10.toml"), "[log]\nlevel = \"warning\"\n").unwrap();
    let (_, _, seen) = started.get(AccessRole::Admin, "/api/v1/config");
    assert_eq!(seen["differences"][0]["what"], "[log] level");
    let (status, _, body) = reload();
    assert_eq!(status, 200, "{body}");
    for (text, line) in [("[log]\nlevel = 7\n", 2), ("# no table\ntokens = \"x\"\n", 2)] {
        fs::write(further.join("10.toml"), text).unwrap();
        let (status, _, body) = reload();
        let refused: Value = serde_json::from_str(&body).unwrap();
        let findings = refused["findings"].as_array().unwrap();
        let is_here = |it: &&Value| {
            it["file"].as_str().unwrap().ends_with("conf.d/10.toml") && it["line"] == line
        };
        assert!(status == 422 && findings.iter().any(|it| is_here(&it)), "{body}");
    }
}

/// The request for the reload comes by the listener that the reload ends.
#[test]
fn a_reload_may_end_the_listener_that_it_came_by() {
    let started = Started::new();
    fs::write(&started.file, DESCRIPTION).unwrap();
    let reload = started.post(AccessRole::Admin, "/api/v1/reload", "If-Match: *\r\n", "");
    assert_eq!(reload.0, 200, "{}", reload.2);
}

#[test]
fn every_change_is_in_the_audit_log_with_who_and_its_end() {
    let started = Started::new();
    let reload = |role, field: &str| started.post(role, "/api/v1/reload", field, "").0;
    assert_eq!(reload(AccessRole::Operator, "If-Match: *\r\n"), 200);
    assert_eq!(reload(AccessRole::Admin, "If-Match: \"of another\"\r\n"), 412);
    assert_eq!(reload(AccessRole::Viewer, "If-Match: *\r\n"), 403, "not its own: not logged");
    let body = "{\"number\":77}";
    let field = "If-Match: *\r\n";
    let back = started.post(AccessRole::Operator, "/api/v1/config/rollback", field, body);
    assert_eq!(back.0, 409, "there is no such description: {}", back.2);
    assert_eq!(started.get(AccessRole::Admin, "/api/v1/config").0, 200, "no change: not logged");
    let body = format!("{{\"token\":\"{}\"}}", started.tokens[0]);
    let (status, ..) = started.post(AccessRole::Viewer, "/api/v1/session", "", &body);
    assert_eq!(status, 200);
    let token = started.bearer(AccessRole::Viewer);
    for _ in 0..3 {
        let ended = started.served.exchange(&format!(
            "DELETE /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n"
        ));
        assert_eq!(split(&ended).0, 200, "no session ends: not logged");
    }
    let trace = started.post(AccessRole::Operator, "/api/v1/trace", "", "{\"seconds\":0}");
    assert_eq!(trace.0, 200, "{}", trace.2);
    let expected = [
        ["Reload", "operator", "operator", "token", "null", "waits"],
        ["Reload", "operator", "operator", "token", "null", "200"],
        ["Reload", "admin", "admin", "token", "null", "waits"],
        ["Reload", "admin", "admin", "token", "null", "412"],
        ["RollBack", "operator", "operator", "token", "description 77", "waits"],
        ["RollBack", "operator", "operator", "token", "description 77", "409"],
        ["BeginSession", "viewer", "viewer", "token", "null", "200"],
        ["Trace", "operator", "operator", "token", "packets", "200"],
    ];
    assert_eq!(audited(&started), expected);
    let log = started.folder.join("audit.db");
    let text = fs::read(&log).unwrap();
    let has = |octets: &[u8]| text.windows(octets.len()).any(|it| it == octets);
    assert!(started.tokens.iter().all(|token| !has(token.as_bytes())), "no token is in the log");
    let verified = verify(&log).unwrap();
    assert_eq!((verified.entries, verified.broken_at), (8, None));
    // What cannot be logged is not done.
    fs::rename(&log, started.folder.join("moved.db")).unwrap();
    assert_eq!(reload(AccessRole::Operator, "If-Match: *\r\n"), 503);
    assert!(started.served.counter("audit_lost") >= 1);
    let events = started.get(AccessRole::Viewer, "/api/v1/events?level=error").2;
    assert!(events.to_string().contains("web-audit-lost"), "{events}");
    // When it can be logged again, the log says that entries are missing.
    fs::rename(started.folder.join("moved.db"), &log).unwrap();
    assert_eq!(reload(AccessRole::Operator, "If-Match: *\r\n"), 200);
    let verified = verify(&log).unwrap();
    assert!(verified.broken_at.is_none() && verified.lost >= 1, "{verified:?}");
}

/// A file of tokens that is not understood is an event, and so is its repair.
#[test]
fn unreadable_tokens_are_an_event() {
    let started = Started::new();
    let (file, gateway) = (started.folder.join("tokens"), &started.served.gateway);
    let kept = fs::read(&file).unwrap();
    let mut reader = gateway.events().reader(Some(0), LogLevel::Info);
    let mut next = || {
        let began = Instant::now();
        loop {
            let read = reader.read(Duration::from_millis(200));
            let events = read.events.iter().map(|entry| serde_json::to_value(&**entry).unwrap());
            if let Some(event) = events.into_iter().find(|it| it["kind"] == "tokens-unreadable") {
                return (event["level"].clone(), event["text"].to_string());
            }
            assert!(began.elapsed() < common::DEADLINE, "no event");
        }
    };
    fs::write(&file, "root:x:0:0").unwrap();
    let (level, text) = next();
    assert!(level == "error" && text.contains("line 1 is no token"), "{level} {text}");
    fs::write(&file, kept).unwrap();
    let (level, text) = next();
    assert!(level == "info" && text.contains("no longer so"), "{level} {text}");
}

/// A report is a foreign page: it is shown in a sandbox without scripts, and leads to no other file.
#[test]
fn a_report_of_the_lab_is_listed_and_opened_in_a_sandbox() {
    let started = Started::new();
    fs::write(started.folder.join("secret.html"), "secret").unwrap();
    let (status, _, list) = started.get(AccessRole::Viewer, "/api/v1/lab/reports");
    assert_eq!(status, 200, "{list}");
    let report = &list["reports"][0];
    assert_eq!(
        (&report["name"], &report["title"]),
        (&json!("first.html"), &json!("A <first> run"))
    );
    let open = |query: &str| {
        let path = format!("/api/v1/lab/report{query}");
        started.served.get(&path, &started.bearer(AccessRole::Viewer))
    };
    for query in ["", "?name=first.html"] {
        let (status, head, body) = open(query);
        assert_eq!((status, body.as_str()), (200, REPORT), "{head}");
        let fields = |name: &str| -> Vec<String> {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(it, _)| *it == name).map(|(_, value)| value.to_owned()).collect()
        };
        assert_eq!(fields("content-security-policy").len(), 1, "one policy, not two: {head}");
        let policy = &fields("content-security-policy")[0];
        let of = |name: &str| policy.split("; ").find(|it| it.split(' ').next() == Some(name));
        assert_eq!(of("sandbox"), Some("sandbox allow-downloads"), "{policy}");
        assert_eq!(of("default-src"), Some("default-src 'none'"), "{policy}");
        assert!(!policy.contains("script") && !policy.contains("allow-same-origin"), "{policy}");
        // WHATWG HTML: with a sandbox, any other value is a network error.
        assert_eq!(fields("cross-origin-opener-policy"), ["unsafe-none"]);
        assert_eq!(fields("x-content-type-options"), ["nosniff"]);
    }
    for query in ["?name=gone.html", "?name=..%2Fsecret.html", "?name=%2Fetc%2Fpasswd", "?name="] {
        let (status, _, body) = open(query);
        assert!(status == 404 && !body.contains("secret"), "{query}: {status} {body}");
    }
    let (status, head, _) = started.served.get("/", "");
    assert!(status == 200 && head.contains("cross-origin-opener-policy: same-origin"), "{head}");
    fs::remove_dir_all(started.folder.join("reports")).unwrap();
    let (status, _, list) = started.get(AccessRole::Viewer, "/api/v1/lab/reports");
    assert!(status == 200 && list["problem"].is_string(), "{list}");
    let elsewhere = common::serve();
    assert_eq!(elsewhere.get("/api/v1/lab/reports", "").0, 404);
}

/// Each path that is served is described and the other way round, and no answer has a member that its
/// description does not name.
#[test]
fn the_description_of_the_api_is_true() {
    let started = Started::with(LINK, Path::to_owned);
    with_a_reading(&started);
    let (status, head, document) = started.get(AccessRole::Admin, "/api/v1/openapi.json");
    assert!(status == 200 && head.contains("etag: "), "{head}");
    assert_eq!(document["openapi"], "3.1.0");
    let described = ApiDescription(document);
    let paths = described.0["paths"].as_object().unwrap();
    assert!(paths.len() >= 14, "{} paths", paths.len());
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let content = &operation["responses"]["200"]["content"];
            let kind = content.as_object().unwrap().keys().next().unwrap();
            let may_stream = kind == "text/event-stream";
            if method != "get" || may_stream {
                continue;
            }
            let (status, head, body) = started.served.get(path, &started.bearer(AccessRole::Admin));
            let expected = if path == "/api/v1/mesh" { 404 } else { 200 };
            assert_eq!(status, expected, "{path}: {body}");
            assert!(
                status != 200 || head.contains(&format!("content-type: {kind}")),
                "{path}: {head}"
            );
            if status != 200 || kind == "application/json" {
                described.fits("get", path, status, &body);
            }
            let role = operation.get("x-role").and_then(Value::as_str);
            let (stranger, _, body) = started.served.get(path, "");
            assert_eq!(stranger == 401, role.is_some(), "{path} is described for {role:?}");
            if stranger == 401 || path == "/readyz" {
                described.fits("get", path, stranger, &body);
            }
        }
    }
    let container = "?at=/gw/phd-1/pulse-rate";
    for query in ["", "&latest=2", "&since=2026-01-31T08:00:00Z"] {
        let path = format!("/api/v1/resources{container}{query}");
        let (status, _, answer) = started.get(AccessRole::Operator, &path);
        assert_eq!(status, 200, "{path}: {answer}");
        described.fits("get", "/api/v1/resources", status, &answer.to_string());
    }
    changes_and_refusals_are_described(&started, &described);
    let page = fs::read_to_string(format!("{}/../../docs/web.md", env!("CARGO_MANIFEST_DIR")));
    let page = page.unwrap();
    for path in paths.keys() {
        assert!(page.contains(&format!("`{path}`")), "docs/web.md does not tell {path}");
    }
}

/// A link whose segment is in memory.
const LINK: &str =
    "[link.lan]\nmode = \"segment\"\nsegment = \"one\"\naddresses = [\"192.0.2.1/24\"]\n";

/// What changes answer, and what is answered where a change or the readiness is refused.
fn changes_and_refusals_are_described(started: &Started, described: &ApiDescription) {
    let post = |path: &str, expected: u16, body: &Value| {
        let path = format!("/api/v1/{path}");
        let fields = "If-Match: *\r\n";
        let text = body.to_string();
        let (status, _, body) = started.post(AccessRole::Operator, &path, fields, &text);
        assert_eq!(status, expected, "{path} {text}: {body}");
        described.fits("post", &path, status, &body);
    };
    let rule = json!({ "verdict": "drop", "not_source": ["192.0.2.0/24"] });
    let filter = json!({ "handler": "filter", "at": "ether:ipv4", "rules": [rule] });
    described.takes("/api/v1/handlers/attach", &filter);
    post("handlers/attach", 200, &filter);
    let drops = json!({ "handler": "drop", "at": "ether:ipv4", "match": { "protocol": "tcp", "port": 23 } });
    described.takes("/api/v1/handlers/attach", &drops);
    post("handlers/attach", 200, &drops);
    let graph = started.get(AccessRole::Viewer, "/api/v1/graph").2;
    described.fits("get", "/api/v1/graph", 200, &graph.to_string());
    post("handlers/detach", 200, &json!({ "id": graph["attached"][0]["id"] }));
    post("handlers/detach", 400, &json!({ "id": 77 }));
    let neighbour = json!({ "address": "192.0.2.9", "mac": "02:00:00:00:00:09" });
    post("neighbours/add", 200, &neighbour);
    post("routes/add", 200, &json!({ "to": "198.51.100.0/24", "via": "192.0.2.9" }));
    post("routes/remove", 200, &json!({ "to": "198.51.100.0/24" }));
    post("neighbours/remove", 200, &json!({ "address": "192.0.2.9" }));
    post("neighbours/flush", 200, &json!({}));
    post("link", 200, &json!({ "name": "lan", "up": false }));
    for fields in ["", &started.bearer(AccessRole::Viewer)] {
        let (status, _, body) = started.served.get("/readyz", fields);
        assert_eq!(status, 503, "{body}");
        described.fits("get", "/readyz", status, &body);
    }
    post("link", 200, &json!({ "name": "lan", "up": true }));
    post("config/rollback", 200, &json!({ "number": 1 }));
    post("config/rollback", 409, &json!({ "number": 77 }));
    let path = "/api/v1/config/differences";
    let (status, _, body) = started.get(AccessRole::Operator, &format!("{path}?number=77"));
    assert_eq!(status, 409, "{body}");
    described.fits("get", path, status, &body.to_string());
    for (text, expected) in [
        ("[cse]\nbase = \"gw\"\nid = \"no\"\n", 422),
        ("[cse]\nbase = \"other\"\nid = \"/gw\"\n", 409),
    ] {
        fs::write(&started.file, text).unwrap();
        post("reload", expected, &json!({}));
        let config = started.get(AccessRole::Admin, "/api/v1/config").2;
        described.fits("get", "/api/v1/config", 200, &config.to_string());
    }
    // What is in a status only now and then.
    let mut status = started.served.gateway.status().unwrap();
    status.fallback = Some("it is refused".to_owned());
    status.hops = vec![HopDelay { name: "mesh".to_owned(), median_ms: None, budget_ms: 1.0 }];
    status.gateway.measured_runs = Some(1);
    status.balances = vec![BalanceStatus {
        name: "all".to_owned(),
        policy: "delay",
        admitted: 0,
        refused: BTreeMap::new(),
        relays: Vec::new(),
    }];
    let text = serde_json::to_string(&status).unwrap();
    described.fits("get", "/api/v1/status", 200, &text);
}

/// The description of the API.
struct ApiDescription(Value);

impl ApiDescription {
    /// Checks an answer against the schema of its status.
    #[track_caller]
    fn fits(&self, method: &str, path: &str, status: u16, body: &str) {
        let responses = &self.0["paths"][path][method]["responses"];
        let response = responses.get(status.to_string()).unwrap_or(&responses["default"]);
        let schema = &response["content"]["application/json"]["schema"];
        let schema = match schema["$ref"].as_str() {
            Some(at) => self.0.pointer(at.trim_start_matches('#')).unwrap(),
            None => schema,
        };
        let answer = serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}"));
        fits(&format!("{method} {path} {status}"), &answer, schema);
    }

    /// Checks a body of a `POST`.
    #[track_caller]
    fn takes(&self, path: &str, body: &Value) {
        let content = &self.0["paths"][path]["post"]["requestBody"]["content"];
        fits(path, body, &content["application/json"]["schema"]);
    }
}

/// Checks a document against a schema (JSON Schema 2020-12), as if each schema that names members said
/// `additionalProperties: false`.
fn fits(path: &str, document: &Value, schema: &Value) {
    assert!(schema.is_object(), "{path}: not described: {document}");
    if let Some(schemas) = schema["oneOf"].as_array() {
        let required = |schema: &Value| schema["required"].as_array().unwrap().clone();
        let has_all = |schema: &&Value| {
            required(schema).iter().all(|name| document.get(name.as_str().unwrap()).is_some())
        };
        let fitting: Vec<&Value> = schemas.iter().filter(has_all).collect();
        let [schema] = fitting[..] else { panic!("{path}: fits {}: {document}", fitting.len()) };
        return fits(path, document, schema);
    }
    if let Some(told) = schema.get("type") {
        let kind = match document {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let fits = told == kind || told.as_array().is_some_and(|all| all.contains(&kind.into()));
        assert!(fits, "{path} is {kind}, described as {told}");
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(document.get(name.as_str().unwrap()).is_some(), "{path}: no {name}: {document}");
    }
    if let Some(properties) = schema["properties"].as_object() {
        for (name, member) in document.as_object().into_iter().flatten() {
            let place = format!("{path} {name}");
            fits(&place, member, properties.get(name).unwrap_or(&Value::Null));
        }
    }
    if let Some(items) = schema.get("items") {
        for item in document.as_array().into_iter().flatten() {
            fits(path, item, items);
        }
    }
}
