//! The web interface of a gateway, by a client that writes its requests by hand.
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

use common::{DEADLINE, at, config, serve, split};
use gatewright_config::Listen;
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::Duration,
};

#[test]
fn the_status_is_that_of_the_control_socket() {
    let served = serve();
    let (status, head, body) = served.get("/api/v1/status", "");
    assert_eq!(status, 200, "{body}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let told: Value = serde_json::from_str(&body).unwrap();
    let own = serde_json::to_value(served.gateway.status().unwrap()).unwrap();
    let names = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&told), names(&own));
    assert_eq!(told["planes"]["control"], std::process::id());
    assert_eq!(told["parts"][0]["name"], own["parts"][0]["name"]);
}

#[test]
fn probes_and_metrics_answer() {
    let served = serve();
    let (status, _, body) = served.get("/livez", "");
    assert_eq!((status, body.as_str()), (200, "{\"live\":true}"));
    let (status, _, body) = served.get("/readyz", "");
    assert_eq!((status, body.as_str()), (200, "{\"ready\":true,\"causes\":[]}"));
    let (status, head, body) = served.get("/metrics", "");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("\ngatewright_web_requests_total 3\n"), "{body}");
    assert!(body.ends_with("# EOF\n"));
}

/// Every answer, also an error, keeps other origins out.
#[test]
fn each_answer_has_the_fields_of_security() {
    let served = serve();
    for (path, expected) in [("/", 200), ("/api/v1/status", 200), ("/nothing", 404)] {
        let (status, head, _) = served.get(path, "");
        assert_eq!(status, expected, "{path}");
        for field in [
            "content-security-policy: default-src 'self';",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(field), "{path}: no {field}\n{head}");
        }
        assert!(!head.contains("access-control-allow"), "{head}");
    }
}

#[test]
fn hostile_requests_are_refused_each_by_its_cause() {
    let served = serve();
    let long = "x".repeat(20_000);
    let giant = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(100));
    let close = "Connection: close\r\n\r\n";
    let request = |line: &str, fields: &str| format!("{line} HTTP/1.1\r\n{fields}{close}");
    let host = "Host: localhost\r\n";
    let status = "GET /api/v1/status";
    for (text, expected) in [
        (giant, 431),
        (many, 431),
        (request(status, "Host: gateway.example\r\n"), 421),
        (request(status, "Host: 127.0.0.1.example:80\r\n"), 421),
        (request(status, ""), 400),
        (request(status, "Host: localhost\r\nHost: localhost\r\n"), 400),
        (request("GET http://evil.example/api/v1/status", host), 400),
        (request(status, &format!("{host}Origin: http://evil.example\r\n")), 403),
        (request(status, &format!("{host}Origin: null\r\n")), 403),
        (request(status, &format!("{host}Sec-Fetch-Site: cross-site\r\n")), 403),
        (request("GET /../../etc/passwd", host), 404),
        (request("GET /assets/%2e%2e/%2e%2e/etc/passwd", host), 404),
        (request("GET /assets/..%5c..%5cindex.html", host), 404),
        (request("GET //index.html", host), 404),
        (request("POST /api/v1/status", host), 405),
        (request("DELETE /", host), 405),
        (request("TRACE /", host), 405),
        ("GARBAGE\r\n\r\n".to_owned(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 0),
    ] {
        let answer = served.exchange(&text);
        let told = if expected == 0 && !answer.contains(" 200 ") { 0 } else { split(&answer).0 };
        let shown: String = text.chars().take(80).collect();
        assert_eq!(told, expected, "{shown}: {answer}");
        assert!(!answer.contains("root:"), "{answer}");
    }
    assert_eq!(served.counter("hosts_refused"), 5);
    assert_eq!(served.counter("origins_refused"), 3);
    assert_eq!(served.counter("paths_unknown"), 4);
    let (status, _, _) = served.get("/", "");
    assert_eq!(status, 200, "others are served as before");
}

/// A link in another site's page leads to the page, and to nothing else.
#[test]
fn a_link_of_another_site_leads_to_the_page() {
    let served = serve();
    let link =
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    let frame = link.replace("document", "iframe");
    for (path, fields, expected) in [
        ("/", link, 200),
        ("/", &frame, 403),
        ("/api/v1/status", link, 403),
        ("/metrics", link, 403),
        ("/nothing", link, 403),
    ] {
        assert_eq!(served.get(path, fields).0, expected, "{path} {fields}");
    }
}

#[test]
fn an_answer_405_says_what_is_allowed() {
    let served = serve();
    let answer =
        served.exchange("PUT /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let (status, head, body) = split(&answer);
    assert_eq!(status, 405);
    assert!(head.contains("allow: get, head"), "{head}");
    assert!(serde_json::from_str::<Value>(&body).unwrap()["error"].is_string());
}

/// More connections than are served: the oldest that has asked nothing gives way to the new one.
#[test]
fn who_asks_nothing_locks_nobody_out() {
    let served = serve();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answered = |stream: &mut TcpStream, path: &str| {
        stream.write_all(get(path).as_bytes()).unwrap();
        let mut octets = [0; 12];
        stream.read_exact(&mut octets).is_ok() && octets == *b"HTTP/1.1 200"
    };
    // Of those that are open, one has asked; the others have begun to.
    let mut asked = served.connect();
    assert!(answered(&mut asked, "/livez"));
    let mut held: Vec<TcpStream> = (0..511).map(|_| served.connect()).collect();
    for stream in &mut held {
        stream.write_all(b"GET / HT").unwrap();
    }
    for _ in 0..100 {
        assert!(answered(&mut served.connect(), "/livez"));
    }
    let count = |name| served.counter(name);
    assert_eq!(count("connections_refused"), 0);
    let displaced = count("connections_displaced");
    // Those that were answered and have closed made room themselves, sooner or later.
    assert!((1..=101).contains(&displaced), "{displaced}");
    // The oldest was closed, without a word; the one that had asked is still served.
    assert_eq!(held[0].read(&mut [0; 9]).unwrap_or(0), 0);
    let mut rest = [0; 4096];
    asked.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while asked.read(&mut rest).is_ok_and(|octets| octets > 0) {}
    asked.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(answered(&mut asked, "/livez"));
}

/// Answers of 30 MB that wait for a peer that takes none of them: it is closed after 20 s.
#[test]
fn a_peer_that_reads_nothing_is_closed_and_others_are_served() {
    let served = serve();
    let (_, _, page) = served.get("/", "");
    let script = page.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
    let request = format!("GET {script} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut stuck = served.connect();
    stuck.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    for _ in 0..250 {
        if stuck.write_all(request.as_bytes()).is_err() {
            break;
        }
    }
    let began = std::time::Instant::now();
    while served.counter("slow_readers_closed") == 0 {
        assert_eq!(served.get("/livez", "").0, 200);
        assert!(began.elapsed() < DEADLINE, "it is never closed");
        std::thread::sleep(Duration::from_millis(250));
    }
    assert!(began.elapsed() > Duration::from_secs(10), "it had no time to read");
}

#[test]
fn a_reload_moves_begins_and_ends_it() {
    let served = serve();
    let folder = std::env::temp_dir().join(format!("gw-web-{}", std::process::id()));
    let path = folder.join("web.sock");
    let mut other = config();
    other.web = Some(at(Listen::Unix(path.to_string_lossy().into_owned())));
    served.gateway.reload(&other).unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = "GET /livez HTTP/1.1\r\nHost: anything\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    other.web = None;
    served.gateway.reload(&other).unwrap();
    let began = std::time::Instant::now();
    while path.exists() && began.elapsed() < DEADLINE {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(UnixStream::connect(&path).is_err() && !path.exists());
    assert!(TcpStream::connect(served.address).is_err(), "the former one has ended");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_address_in_use_is_refused_by_name() {
    let served = serve();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut other = config();
    other.web = Some(at(Listen::Tcp(taken.local_addr().unwrap())));
    let refused = served.gateway.reload(&other).unwrap_err().to_string();
    assert!(refused.contains("[web] listen: cannot listen on 127.0.0.1:"), "{refused}");
    assert_eq!(served.get("/livez", "").0, 200, "it goes on as before");
}
