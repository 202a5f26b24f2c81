//! The stream of status and events, by viewers that read it octet by octet.
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

use common::{DEADLINE, StreamReader, serve};
use gatewright_gateway::{LogEvent, LogLevel};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};

/// RFC 7396 §2, as it is written there.
fn apply(target: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut target = match target {
        Value::Object(target) => target,
        _ => Map::new(),
    };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            let below = target.remove(name).unwrap_or(Value::Null);
            target.insert(name.clone(), apply(below, value));
        }
    }
    Value::Object(target)
}

fn event(kind: &'static str, text: &str) -> LogEvent {
    LogEvent::new(LogLevel::Info, "test", kind, text)
}

#[test]
fn a_viewer_has_the_status_from_snapshot_and_deltas_and_each_event_once() {
    let served = serve();
    served.gateway.events().log(event("before", "<script>alert(1)</script>"));
    let (status, mut viewer) = StreamReader::begin(&served, "");
    assert_eq!(status, 200);
    let (_, kind, snapshot) = viewer.next().unwrap();
    assert_eq!(kind, "snapshot");
    let last = snapshot["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["text"], "<script>alert(1)</script>", "text as it is, in JSON");
    assert!(snapshot["now_ms"].as_u64().unwrap() > 1_600_000_000_000);
    served.gateway.events().log(event("after", "it happened"));
    let (_, _, told) = viewer.next_of("event");
    assert_eq!((&told["kind"], &told["text"]), (&"after".into(), &"it happened".into()));
    assert_eq!(told["sequence"], last["sequence"].as_u64().unwrap() + 1);
    let mut document = snapshot["status"].clone();
    let own = serde_json::to_value(served.gateway.status().unwrap()).unwrap();
    let names = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&document), names(&own));
    for _ in 0..2 {
        let (_, _, patch) = viewer.next_of("delta");
        document = apply(document, &patch);
    }
    // The sampled document has an event of this kind, as the status of now.
    let counts = document["events"].as_array().unwrap();
    assert!(counts.iter().any(|count| count["kind"] == "after" && count["events"] == 1));
}

#[test]
fn viewers_share_one_sampler_which_ends_with_them() {
    let served = serve();
    assert_eq!(served.counter("samples"), 0, "nothing is sampled while nobody looks");
    let mut viewers: Vec<_> = (0..20).map(|_| StreamReader::begin(&served, "").1).collect();
    for viewer in &mut viewers {
        viewer.next_of("snapshot");
    }
    let began = Instant::now();
    for viewer in &mut viewers {
        viewer.next_of("delta");
        viewer.next_of("delta");
    }
    let samples = served.counter("samples");
    // One a second, however many look; at the most one more than the time tells.
    assert!(samples <= 4 + began.elapsed().as_secs(), "{samples} samples");
    drop(viewers);
    let began = Instant::now();
    loop {
        let before = served.counter("samples");
        std::thread::sleep(Duration::from_millis(2500));
        if served.counter("samples") == before {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "it goes on sampling for nobody");
    }
}

#[test]
fn a_viewer_that_comes_back_goes_on_where_it_was() {
    let served = serve();
    let (_, mut viewer) = StreamReader::begin(&served, "");
    viewer.next_of("snapshot");
    served.gateway.events().log(event("seen", "first"));
    let (id, _, _) = viewer.next_of("event");
    drop(viewer);
    served.gateway.events().log(event("unseen", "second"));
    let (_, mut again) = StreamReader::begin(&served, &format!("Last-Event-ID: {id}\r\n"));
    let (_, kind, told) = loop {
        let event = again.next().unwrap();
        if event.1 != "delta" {
            break event;
        }
    };
    assert_eq!((kind.as_str(), &told["text"]), ("event", &"second".into()));
    assert_eq!(served.counter("streams_resumed"), 1);
    for id in ["0-1", "x", "1234-99999999999999999999"] {
        let (_, mut other) = StreamReader::begin(&served, &format!("Last-Event-ID: {id}\r\n"));
        assert_eq!(other.next().unwrap().1, "snapshot", "{id}");
    }
}

#[test]
fn streams_beyond_the_limit_are_refused_and_the_others_go_on() {
    let served = serve();
    let mut viewers: Vec<_> = (0..256).map(|_| StreamReader::begin(&served, "")).collect();
    assert!(viewers.iter().all(|(status, _)| *status == 200));
    for _ in 0..10_000 {
        assert_eq!(StreamReader::begin(&served, "").0, 503);
    }
    assert_eq!(served.counter("streams_refused"), 10_000);
    served.gateway.events().log(event("happens", "to all"));
    for (_, viewer) in &mut viewers {
        assert_eq!(viewer.next_of("event").2["text"], "to all");
    }
    assert_eq!(served.get("/livez", "").0, 200);
}

#[test]
fn the_end_of_the_gateway_ends_the_stream() {
    let served = serve();
    let (_, mut viewer) = StreamReader::begin(&served, "");
    viewer.next_of("snapshot");
    drop(served);
    while viewer.next().is_some() {}
}

#[test]
fn kept_events_are_answered_by_number_and_level() {
    let served = serve();
    served.gateway.events().log(event("one", "1"));
    let warning = LogEvent::new(LogLevel::Warning, "test", "two", "2");
    served.gateway.events().log(warning);
    let events = |query: &str| -> Vec<Value> {
        let (status, _, body) = served.get(&format!("/api/v1/events{query}"), "");
        assert_eq!(status, 200, "{body}");
        let document: Value = serde_json::from_str(&body).unwrap();
        document["events"].as_array().unwrap().clone()
    };
    let all = events("");
    let last = all.last().unwrap();
    assert_eq!((&last["kind"], &last["level"]), (&"two".into(), &"warning".into()));
    let after = last["sequence"].as_u64().unwrap() - 1;
    assert_eq!(events(&format!("?after={after}")), all[all.len() - 1..]);
    assert_eq!(events("?after=5000"), all, "a number of another run");
    let run = || -> Value {
        let body = served.get("/api/v1/events", "").2;
        serde_json::from_str::<Value>(&body).unwrap()["run"].clone()
    };
    assert!(run().is_string() && run() == run(), "{}", run());
    assert!(events("?level=warning").iter().all(|event| event["level"] != "info"));
    assert_eq!(events("?level=warning").last().unwrap()["kind"], "two");
    for query in ["?after=x", "?level=loud", "?other=1", "?after=1&after=2", "?after=%zz"] {
        assert_eq!(served.get(&format!("/api/v1/events{query}"), "").0, 400, "{query}");
    }
}
