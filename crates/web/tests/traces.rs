//! Traces and taps by the API: who may, what they show, when they end.
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

use gatewright_web::tokens::{AccessRole, TokenFile};
use serde_json::json;
use started::{Started, audited};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

#[test]
fn a_trace_is_for_operators_and_ends() {
    let started = Started::new();
    let trace = |role, body: &str| started.post(role, "/api/v1/trace", "", body);
    assert_eq!(trace(AccessRole::Viewer, "{}").0, 403);
    for bad in [
        "",
        "{\"count\":0}",
        "{\"count\":17}",
        "{\"which\":{\"source\":\"x\"}}",
        "{\"seconds\":61}",
        "{\"frame\":\"00\"}",
    ] {
        assert_eq!(trace(AccessRole::Operator, bad).0, 400, "{bad}");
    }
    let missing = trace(AccessRole::Operator, "{\"which\":{\"link\":\"none\"}}");
    assert!(missing.0 == 404 && missing.2.contains("none"), "{}", missing.2);
    for (position, why) in [("gateway:none/handler", "no program"), ("nowhere", "no position")] {
        let body = json!({ "position": position, "seconds": 0.1 }).to_string();
        let (status, _, body) = trace(AccessRole::Operator, &body);
        assert!(status == 400 && body.contains(why), "{status} {body}");
    }
    assert!(audited(&started).is_empty(), "nothing was begun: {:?}", audited(&started));
    let (_, _, events) = started.get(AccessRole::Viewer, "/api/v1/events");
    assert!(!events.to_string().contains("web-trace"), "{events}");
    let (status, head, body) = trace(AccessRole::Operator, "{\"seconds\":0.1}");
    assert!(status == 200 && head.contains("content-type: text/event-stream"), "{head}");
    assert!(body.contains("event: trace\n") && body.contains("event: end\n"), "{body}");
    assert_eq!(audited(&started).len(), 1);
}

/// Traces until nothing else is being traced; a trace that is no longer wanted would last 60 s.
fn until_traced(started: &Started, role: AccessRole) {
    let began = Instant::now();
    loop {
        let (_, _, body) = started.post(role, "/api/v1/trace", "", "{\"seconds\":1}");
        if body.contains("event: trace\n") {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What an operator has begun ends with its token.
#[test]
fn a_removed_token_ends_its_traces_and_taps() {
    let started = with_packets("removed");
    let begin = |path: &str, body: &str| {
        let (length, token) = (body.len(), started.bearer(AccessRole::Operator));
        let mut stream = started.served.connect();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {length}\r\n{token}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head, *b"HTTP/1.1 200");
        stream
    };
    // No packet passes there, so both wait.
    let none = "\"seconds\":60,\"which\":{\"source\":\"203.0.113.9/32\"}";
    let tap = begin("/api/v1/tap", &format!("{{\"at\":\"frame\",{none}}}"));
    let trace = begin("/api/v1/trace", &format!("{{{none}}}"));
    assert!(TokenFile::new(started.folder.join("tokens")).remove("operator").unwrap());
    let began = Instant::now();
    for mut stream in [tap, trace] {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(30), "they end by themselves after 60 s");
    until_traced(&started, AccessRole::Admin);
    let attached = || started.get(AccessRole::Viewer, "/api/v1/graph").2["attached"].clone();
    while attached().as_array().is_some_and(|all| !all.is_empty()) {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", attached());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A capture of Ethernet frames from `port` 1 on, each a datagram to 192.0.2.1 (draft-ietf-opsawg-pcap).
fn capture_of(frames: u16) -> Vec<u8> {
    let mut octets = [0xa1b2_c3d4_u32.to_be_bytes(), [0, 2, 0, 4]].concat();
    octets.extend([0; 8]);
    octets.extend([0, 0, 0xff, 0xff, 0, 0, 0, 1]);
    for number in 1..=frames {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
        frame.extend([0x45, 0, 0, 200, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1]);
        frame.extend(number.to_be_bytes());
        frame.resize(214, 0);
        octets.extend([0; 8]);
        octets.extend([[0, 0, 0, 214], [0, 0, 0, 214]].concat());
        octets.extend(frame);
    }
    octets
}

/// A gateway at which a capture is replayed, a hundred packets a second, for 20 s.
fn with_packets(name: &str) -> Started {
    let file = std::env::temp_dir().join(format!("gw-web-{name}-{}.pcap", std::process::id()));
    fs::write(&file, capture_of(2_000)).unwrap();
    let link = format!("[link.in]\nmode = \"pcapng\"\nread = \"{}\"\npace = 100\n", file.display());
    let started = Started::with(&link, Path::to_owned);
    fs::remove_file(file).unwrap();
    started
}

#[test]
fn a_tap_shows_packets_while_they_pass() {
    let started = with_packets("tap");
    let tap = |role, body: &str| started.post(role, "/api/v1/tap", "", body);
    assert_eq!(tap(AccessRole::Viewer, "{\"at\":\"frame\"}").0, 403);
    for bad in ["{}", "{\"at\":\"frame\",\"count\":0}", "{\"at\":\"frame\",\"seconds\":61}"] {
        assert_eq!(tap(AccessRole::Operator, bad).0, 400, "{bad}");
    }
    let (status, _, body) = tap(AccessRole::Operator, "{\"at\":\"ether:nowhere\"}");
    assert!(status == 400 && body.contains("nowhere"), "{status} {body}");
    let three = "{\"at\":\"frame\",\"side\":\"receive\",\"which\":{\"link\":\"in\"},\"count\":3}";
    let (status, head, body) = tap(AccessRole::Operator, three);
    assert!(status == 200 && head.contains("content-type: text/event-stream"), "{head}");
    let packets = body.lines().filter_map(|line| line.strip_prefix("data: {\"at_us\":"));
    assert_eq!(packets.count(), 3, "{body}");
    // Its first 128 octets, of 214.
    let octets = body.split("\"octets\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(octets.len() == 256 && octets.starts_with("ffffffffffff020000000001"), "{octets}");
    assert!(body.contains("\"link\":\"in\"") && body.contains("\"len\":214"), "{body}");
    assert!(body.contains("event: end\ndata: {\"missed\":0,\"packets\":3}\n"), "{body}");
}

/// Otherwise the two that there may be at a time would be used up.
#[test]
fn a_client_that_goes_away_ends_its_tap_and_its_trace() {
    let started = with_packets("gone");
    let asked = |stream: &mut TcpStream, path: &str, body: &str| {
        let (length, token) = (body.len(), started.bearer(AccessRole::Operator));
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n{token}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    };
    let none = "{\"seconds\":60,\"which\":{\"source\":\"203.0.113.9/32\"}}";
    assert!(asked(&mut started.served.connect(), "/api/v1/trace", none));
    until_traced(&started, AccessRole::Operator);
    for _ in 0..5 {
        let began = Instant::now();
        while !asked(&mut started.served.connect(), "/api/v1/tap", "{\"at\":\"frame\"}") {
            assert!(began.elapsed() < common::DEADLINE, "the taps of those who are gone go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let attached = || started.get(AccessRole::Viewer, "/api/v1/graph").2["attached"].clone();
    let began = Instant::now();
    while attached().as_array().is_some_and(|all| !all.is_empty()) {
        assert!(began.elapsed() < common::DEADLINE, "{}", attached());
        std::thread::sleep(Duration::from_millis(20));
    }
}
