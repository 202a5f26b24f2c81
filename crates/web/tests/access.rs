//! Who may ask what: tokens, sessions, roles, certificates, and those who guess.
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

use common::{Served, StreamReader, config, serve, serve_as, split};
use gatewright_config::{Config, Listen, WebTls};
use gatewright_web::tokens::{AccessRole, TokenFile};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::{Duration, Instant},
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A folder that ends with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("gw-web-access-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A gateway with tokens: its file, and a token of each role.
fn with_tokens(folder: &Folder) -> (Served, TokenFile, [String; 3]) {
    let file = TokenFile::new(folder.path("tokens"));
    let tokens = AccessRole::ALL.map(|role| file.add(role, role.name()).unwrap());
    let mut config = config();
    config.web.as_mut().unwrap().tokens = Some(folder.path("tokens"));
    (serve_as(&config), file, tokens)
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// The answer to a request with a body of JSON.
fn send(served: &Served, line: &str, fields: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    split(&served.exchange(&format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\
         {fields}\r\n{body}"
    )))
}

const IN_JSON: &str = "Content-Type: application/json\r\n";

fn role(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["role"].clone()
}

#[test]
fn without_tokens_everybody_on_this_machine_looks_and_nobody_does_more() {
    let served = serve();
    assert_eq!(role(&served.get("/api/v1/session", "").2), "viewer");
    assert_eq!(served.get("/api/v1/status", "").0, 200);
    assert_eq!(served.get("/api/v1/status", &bearer("gwt_00")).0, 401, "a wrong token is wrong");
}

/// A connection that has asked something with a token, with the status of its answer.
fn asked(served: &Served, token: &str) -> (TcpStream, u16) {
    let mut stream = served.connect();
    let fields = bearer(token);
    let request = format!("GET /api/v1/session HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut octets = [0; 12];
    stream.read_exact(&mut octets).unwrap();
    let status = std::str::from_utf8(&octets[9..]).unwrap().parse().unwrap();
    (stream, status)
}

/// One viewer takes all streams and connections that it gets: it is told that these are enough, and
/// everybody else is served.
#[test]
fn one_viewer_takes_its_share_of_connections_and_streams_and_locks_nobody_out() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let fields = bearer(&tokens[0]);
    let streams: Vec<_> = (0..100).map(|_| StreamReader::begin(&served, &fields)).collect();
    assert_eq!(streams.iter().filter(|(status, _)| *status == 200).count(), 64);
    assert_eq!(served.counter("streams_refused"), 36);
    let (_, head, body) = served.get("/api/v1/stream", &fields);
    assert!(head.contains("retry-after") && body.contains("64 streams of this caller"), "{body}");
    let held: Vec<_> = (0..400).map(|_| asked(&served, &tokens[0])).collect();
    let refused = held.iter().filter(|(_, status)| *status == 503).count();
    assert!((272..400).contains(&refused), "{refused}");
    let (status, _, body) = served.get("/api/v1/status", &fields);
    assert!(status == 503 && body.contains("viewer has 128 connections"), "{body}");
    assert_eq!(served.get("/livez", "").0, 200);
    assert_eq!(served.get("/livez", &fields).0, 200, "whatever it shows");
    assert_eq!(served.get("/readyz", "").0, 200);
    let fields = bearer(&tokens[1]);
    assert_eq!(served.get("/api/v1/status", &fields).0, 200);
    assert_eq!(StreamReader::begin(&served, &fields).0, 200);
}

/// With all connections taken by known callers, viewers give way; `/livez` is answered in any case, and
/// anything else is refused in words.
#[test]
fn when_known_callers_have_all_places_livez_is_answered() {
    let folder = Folder::new();
    let (served, file, tokens) = with_tokens(&folder);
    let token = |name: &str| file.add(AccessRole::Operator, name).unwrap();
    let (viewer, operators) = (&tokens[0], ["a", "b", "c", "d"].map(token));
    // The file is read again within a second.
    std::thread::sleep(Duration::from_millis(1100));
    let mut held: Vec<TcpStream> = Vec::new();
    let mut hold = |token: &str, count: usize| {
        held.extend((0..count).map(|_| {
            let (stream, status) = asked(&served, token);
            assert_eq!(status, 200);
            stream
        }));
    };
    for (token, count) in operators.iter().zip([128, 128, 128, 127]) {
        hold(token, count);
    }
    hold(viewer, 1);
    hold(&operators[3], 1);
    assert_eq!(served.counter("connections_displaced"), 1, "the viewer");
    let mut closed = held.remove(511);
    let mut rest = Vec::new();
    let _reset = closed.read_to_end(&mut rest);
    for refused in 1..=2 {
        assert_eq!(served.get("/livez", "").0, 200);
        let (status, head, body) = served.get("/api/v1/status", &bearer(&tokens[2]));
        assert!(status == 503 && body.contains("known callers have all connections"), "{body}");
        assert!(head.contains("retry-after: 1"), "{head}");
        assert_eq!(served.counter("connections_refused"), refused);
    }
    assert_eq!(served.counter("connections_displaced"), 1);
    drop(held.pop());
    let began = Instant::now();
    while served.get("/readyz", "").0 != 200 {
        assert!(began.elapsed() < Duration::from_secs(30), "its place is not free");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Twenty connections of a viewer that ask for metrics without a pause: neither they nor an operator
/// are refused.
#[test]
fn requests_of_a_viewer_make_none_of_an_operator_fail() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = || {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(served.get("/metrics", &bearer(&tokens[0])).0, 200);
            }
        };
        let viewers: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
        let asked: Vec<u16> =
            (0..50).map(|_| served.get("/api/v1/status", &bearer(&tokens[1])).0).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(viewers.into_iter().all(|viewer| viewer.join().is_ok()));
        assert_eq!(asked, [200; 50]);
    });
    assert_eq!(served.counter("busy_refused"), 0);
}

/// Beyond the connections of one address nothing is said where TLS is spoken: the connection ends.
#[test]
fn a_connection_that_is_refused_before_tls_is_closed_without_a_word() {
    let folder = Folder::new();
    certificates(&folder, &[]);
    let mut config = of_tls(&folder, true);
    let everywhere = Listen::Tcp("0.0.0.0:0".parse().unwrap());
    config.web.as_mut().unwrap().listen = common::at(everywhere).listen;
    let served = serve_as(&config);
    let _held: Vec<_> = (0..128).map(|_| served.connect()).collect();
    let mut octets = Vec::new();
    let _reset = served.connect().read_to_end(&mut octets);
    assert_eq!(octets, b"");
    assert_eq!(served.counter("connections_refused"), 1);
}

#[test]
fn with_tokens_each_role_has_its_own() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    assert_eq!(served.get("/", "").0, 200, "the page itself has no secret");
    assert_eq!(served.get("/livez", "").0, 200);
    assert_eq!(served.get("/readyz", "").2, "{\"ready\":true}", "no names for strangers");
    assert_eq!(role(&served.get("/api/v1/session", "").2), Value::Null);
    for path in ["/api/v1/status", "/api/v1/stream", "/api/v1/events", "/metrics"] {
        let (status, head, body) = served.get(path, "");
        assert_eq!(status, 401, "{path}");
        assert!(head.contains("www-authenticate: bearer") && body.contains("token"), "{head}");
    }
    for (token, expected) in tokens.iter().zip(AccessRole::ALL) {
        assert_eq!(served.get("/api/v1/status", &bearer(token)).0, 200);
        assert_eq!(role(&served.get("/api/v1/session", &bearer(token)).2), expected.name());
    }
    for wrong in ["", "gwt_", "x", &tokens[0][1..], &tokens[0].to_uppercase()] {
        assert_eq!(served.get("/api/v1/status", &bearer(wrong)).0, 401, "{wrong}");
    }
    assert_eq!(served.counter("tokens_refused"), 5);
}

/// After ten wrong ones, further wrong ones wait. On loopback, whose address all share, right ones do
/// not, and neither does who has a session.
#[test]
fn tokens_are_not_guessed() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let cookie = session(&served, &tokens[0]);
    for guess in 0..10 {
        assert_eq!(served.get("/api/v1/status", &bearer(&format!("gwt_{guess}"))).0, 401);
    }
    let begin = |token: &str| {
        let body = format!("{{\"token\":\"{token}\"}}");
        send(&served, "POST /api/v1/session", IN_JSON, &body).0
    };
    let (status, head, _) = served.get("/api/v1/status", &bearer("gwt_x"));
    assert!(status == 429 && head.contains("retry-after: 60"), "{head}");
    assert_eq!(begin("gwt_x"), 429);
    assert_eq!(served.get("/api/v1/status", &bearer(&tokens[2])).0, 200, "nobody locks it out");
    assert_eq!((begin(&tokens[2]), begin("gwt_x")), (200, 429));
    assert_eq!(served.get("/api/v1/status", &cookie).0, 200);
    assert_eq!((served.counter("tokens_refused"), served.counter("tokens_limited")), (10, 3));
}

/// Begins a session; returns the field that shows it.
fn session(served: &Served, token: &str) -> String {
    let body = format!("{{\"token\":\"{token}\"}}");
    let (status, head, _) = send(served, "POST /api/v1/session", IN_JSON, &body);
    assert_eq!(status, 200, "{head}");
    let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for attribute in ["httponly", "samesite=strict", "path=/", "max-age=43200"] {
        assert!(set.contains(attribute), "{set}");
    }
    format!("Cookie: other=1; {}\r\n", set.split(';').next().unwrap())
}

#[test]
fn a_session_lasts_until_it_ends_or_its_token_is_removed() {
    let folder = Folder::new();
    let (served, file, tokens) = with_tokens(&folder);
    let [first, second] = [0, 1].map(|at: usize| session(&served, &tokens[at]));
    assert_eq!(role(&served.get("/api/v1/session", &first).2), "viewer");
    assert_eq!(role(&served.get("/api/v1/session", &second).2), "operator");
    let own = format!("{first}Origin: http://localhost\r\n");
    assert_eq!(send(&served, "DELETE /api/v1/session", &own, "").0, 200);
    assert_eq!(served.get("/api/v1/status", &first).0, 401);
    assert_eq!(served.get("/api/v1/status", &second).0, 200);
    let streams = [&second, &bearer(&tokens[1]), &bearer(&tokens[0])].map(|shown| {
        let (status, mut stream) = StreamReader::begin(&served, shown);
        assert!(status == 200 && stream.next().is_some());
        stream
    });
    assert!(file.remove("operator").unwrap());
    let began = Instant::now();
    while served.get("/api/v1/status", &second).0 != 401 {
        assert!(began.elapsed() < common::DEADLINE, "a removed token is still believed");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(served.get("/api/v1/status", &bearer(&tokens[1])).0, 401);
    assert_eq!(served.get("/api/v1/status", &bearer(&tokens[0])).0, 200);
    // Streams that began with it end, too; others go on.
    let [of_session, of_token, mut of_other] = streams;
    for mut stream in [of_session, of_token] {
        while stream.next().is_some() {
            assert!(began.elapsed() < common::DEADLINE, "a removed token still sees");
        }
    }
    assert!(of_other.next().is_some());
}

/// A page of another site has the browser's cookie sent along, and may not use it.
#[test]
fn a_change_is_asked_for_by_our_own_page_or_with_a_token() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let cookie = session(&served, &tokens[2]);
    for (fields, expected) in [
        (cookie.clone(), 403),
        (format!("{cookie}Origin: http://evil.example\r\n"), 403),
        (format!("{cookie}Origin: null\r\n"), 403),
        (format!("{cookie}Origin: http://localhost\r\nSec-Fetch-Site: cross-site\r\n"), 403),
        (format!("{}Origin: http://evil.example\r\n", bearer(&tokens[2])), 403),
        (bearer(&tokens[2]), 200),
        (format!("{cookie}Origin: http://localhost\r\n"), 200),
    ] {
        assert_eq!(send(&served, "DELETE /api/v1/session", &fields, "").0, expected, "{fields}");
    }
    let body = format!("{{\"token\":\"{}\"}}", tokens[0]);
    for (fields, body, expected) in [
        ("Content-Type: text/plain\r\n", body.as_str(), 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n", &body, 415),
        (IN_JSON, "{", 400),
        (IN_JSON, "{\"token\":1}", 400),
        (IN_JSON, "{\"token\":\"gwt_0\",\"more\":1}", 400),
        (IN_JSON, &format!("{{\"token\":\"{}\"}}", "x".repeat(20_000)), 413),
    ] {
        assert_eq!(send(&served, "POST /api/v1/session", fields, body).0, expected, "{fields}");
    }
}

#[test]
fn neither_token_nor_session_is_in_events_metrics_or_status() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let cookie = session(&served, &tokens[0]);
    let id = cookie.split("gatewright=").nth(1).unwrap().trim();
    let fields = bearer(&tokens[0]);
    for path in ["/api/v1/events", "/metrics", "/api/v1/status"] {
        let (status, _, body) = served.get(path, &fields);
        assert_eq!(status, 200);
        assert!(!body.contains(&tokens[0]) && !body.contains(id), "{path}");
    }
    let (_, _, events) = served.get("/api/v1/events", &fields);
    assert!(events.contains("viewer begins a session as viewer"), "{events}");
}

/// A file of tokens that is gone or is nonsense is not the callers' fault: they are told so, and the
/// operator is told why.
#[test]
fn an_unreadable_file_of_tokens_is_told_and_admits_nobody() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let cookie = session(&served, &tokens[1]);
    let (file, kept) = (folder.path("tokens"), folder.path("kept"));
    fs::rename(&file, &kept).unwrap();
    let until = |expected: u16| {
        let began = Instant::now();
        while served.get("/api/v1/status", &cookie).0 != expected {
            assert!(began.elapsed() < common::DEADLINE, "not {expected}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(503);
    let body = format!("{{\"token\":\"{}\"}}", tokens[0]);
    assert_eq!(send(&served, "POST /api/v1/session", IN_JSON, &body).0, 503);
    for token in [&tokens[2], "gwt_x"] {
        let (status, _, body) = served.get("/api/v1/status", &bearer(token));
        assert!(status == 503 && body.contains("tokens") && !body.contains(&file), "{body}");
    }
    assert_eq!(served.get("/api/v1/status", "").0, 401, "without a token");
    assert_eq!(served.get("/livez", &bearer(&tokens[0])).0, 200, "the process runs");
    let word = || {
        let status = serde_json::to_value(served.gateway.status().unwrap()).unwrap();
        status["parts"].to_string()
    };
    assert!(word().contains("tokens_unreadable") && word().contains(&file), "{}", word());
    assert_eq!(served.counter("tokens_refused"), 0, "none of them was wrong");
    fs::write(&file, "root:x:0:0").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    until(503);
    assert!(word().contains("line 1 is no token"), "{}", word());
    fs::rename(&kept, &file).unwrap();
    until(200);
    assert!(!word().contains("tokens_unreadable"), "{}", word());
}

#[test]
fn two_fields_authorization_are_refused() {
    let folder = Folder::new();
    let (served, _, tokens) = with_tokens(&folder);
    let fields = format!("{}{}", bearer(&tokens[0]), bearer(&tokens[2]));
    assert_eq!(served.get("/api/v1/status", &fields).0, 400);
}

/// Certificates for the test: an authority, the server's, and clients' with these names.
fn certificates(folder: &Folder, clients: &[(&str, Option<&str>)]) {
    let key = || KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = key();
    fs::write(folder.path("ca.pem"), params.self_signed(&own).unwrap().pem()).unwrap();
    let authority = Issuer::new(params, own);
    let one = |file: &str, name: SanType| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![name];
        let key = key();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(folder.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(folder.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    };
    one("server", SanType::IpAddress([127, 0, 0, 1].into()));
    for (file, uri) in clients {
        let uri = uri.unwrap_or("urn:example:nobody").try_into().unwrap();
        one(file, SanType::URI(uri));
    }
}

/// The answer to a GET over TLS, by a client with this certificate or none; `None` if the handshake
/// fails.
fn over_tls(served: &Served, folder: &Folder, client: Option<&str>, fields: &str) -> Option<u16> {
    let (status, _, body) = ask_over_tls(served, folder, client, ("GET /api/v1/session", fields))?;
    let code = match role(&body).as_str() {
        Some("viewer") => 1,
        Some("operator") => 2,
        Some("admin") => 3,
        _ => 0,
    };
    (status == 200).then_some(code)
}

/// The answer to a request over TLS; `None` if there is none.
fn ask_over_tls(
    served: &Served,
    folder: &Folder,
    client: Option<&str>,
    (what, fields): (&str, &str),
) -> Option<(u16, String, String)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.path("ca.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(
        tokio_rustls::rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let file = |end: &str| folder.path(&format!("{name}.{end}"));
            let certificate = CertificateDer::from_pem_file(file("pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let name = "127.0.0.1".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, served.connect());
    let request =
        format!("{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut octets = Vec::new();
    let _end = stream.read_to_end(&mut octets);
    let answer = String::from_utf8(octets).unwrap();
    if answer.is_empty() {
        return None;
    }
    Some(split(&answer))
}

fn of_tls(folder: &Folder, tokens: bool) -> Config {
    let mut config = config();
    let web = config.web.as_mut().unwrap();
    web.tls = Some(WebTls {
        certificate: folder.path("server.pem"),
        key: folder.path("server.key"),
        authorities: Some(folder.path("ca.pem")),
    });
    web.tokens = tokens.then(|| folder.path("tokens"));
    config
}

#[test]
fn a_certificate_gives_the_role_that_it_names() {
    let folder = Folder::new();
    certificates(
        &folder,
        &[
            ("operator", Some("urn:gatewright:role:operator")),
            ("nobody", None),
            ("strange", Some("urn:gatewright:role:root")),
        ],
    );
    let served = serve_as(&of_tls(&folder, true));
    let token = TokenFile::new(folder.path("tokens")).add(AccessRole::Admin, "boss").unwrap();
    for (client, fields, expected) in [
        (Some("operator"), String::new(), 2),
        (Some("nobody"), String::new(), 1),
        (None, String::new(), 0),
        (None, bearer(&token), 3),
        (Some("nobody"), bearer(&token), 3),
    ] {
        assert_eq!(over_tls(&served, &folder, client, &fields), Some(expected), "{client:?}");
    }
    // A role that there is not is refused, also with a token.
    for fields in [String::new(), bearer(&token)] {
        assert_eq!(over_tls(&served, &folder, Some("strange"), &fields), None);
    }
    // Another authority's certificate.
    let stranger = Folder::new();
    certificates(&stranger, &[("stranger", Some("urn:gatewright:role:admin"))]);
    for end in ["pem", "key"] {
        let name = format!("stranger.{end}");
        fs::copy(stranger.path(&name), folder.path(&name)).unwrap();
    }
    assert_eq!(over_tls(&served, &folder, Some("stranger"), ""), None);
    let plain = served.exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(!plain.contains("HTTP/1.1"), "nothing is said without TLS: {plain:?}");
    assert!(served.counter("handshakes_failed") >= 2);
}

/// Who has a certificate is told by `/readyz` why no token is admitted; a stranger is not.
#[test]
fn readiness_names_unreadable_tokens_to_holders_of_certificates() {
    let folder = Folder::new();
    certificates(&folder, &[("nobody", None)]);
    let file = folder.path("tokens");
    TokenFile::new(&file).add(AccessRole::Admin, "boss").unwrap();
    let served = serve_as(&of_tls(&folder, true));
    let ready = |client| {
        let (status, _, body) =
            ask_over_tls(&served, &folder, client, ("GET /readyz", "")).unwrap();
        assert_eq!(status, 200, "the gateway is ready: {body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    assert_eq!(ready(Some("nobody"))["causes"], serde_json::json!([]));
    fs::write(&file, "root:x:0:0").unwrap();
    let began = Instant::now();
    let causes = loop {
        let causes = ready(Some("nobody"))["causes"].take();
        if causes != serde_json::json!([]) {
            break causes;
        }
        assert!(began.elapsed() < common::DEADLINE, "the file is looked at again");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((&causes[0]["part"], &causes[0]["level"]), (&"web".into(), &"warning".into()));
    let text = causes[0]["text"].as_str().unwrap();
    assert!(text.contains("no token is admitted") && text.contains("line 1"), "{text}");
    assert_eq!(ready(None), serde_json::json!({ "ready": true }), "a stranger");
}

/// What the holder of a certificate does is logged under its fingerprint.
#[test]
fn the_audit_log_tells_certificates_apart() {
    let folder = Folder::new();
    certificates(&folder, &[("operator", Some("urn:gatewright:role:operator"))]);
    let mut config = of_tls(&folder, false);
    config.web.as_mut().unwrap().audit = Some(folder.path("audit.db"));
    let served = serve_as(&config);
    let fields = "Origin: https://127.0.0.1\r\nIf-Match: *\r\nContent-Length: 0\r\n";
    let asked = ("POST /api/v1/reload", fields);
    let (status, ..) = ask_over_tls(&served, &folder, Some("operator"), asked).unwrap();
    assert_eq!(status, 503, "there is no file");
    let entries = gatewright_store::last_entries(folder.path("audit.db").as_ref(), 9).unwrap();
    let certificate = CertificateDer::from_pem_file(folder.path("operator.pem")).unwrap();
    let hash = Sha256::digest(&certificate);
    let digits: Vec<String> = hash.iter().map(|octet| format!("{octet:02x}")).collect();
    let fingerprint = digits.concat();
    assert_eq!(entries.len(), 2);
    let of = |name| entries[0].text_of(name).unwrap_or_default();
    assert_eq!((of("op"), of("by"), of("as")), ("Reload", "certificate", "operator"));
    assert_eq!(of("fr"), format!("certificate {fingerprint}"));
}

/// A renewed certificate is used after a reload, and one that cannot be read changes nothing.
#[test]
fn a_reload_reads_the_certificate_again() {
    let folder = Folder::new();
    certificates(&folder, &[]);
    let config = of_tls(&folder, false);
    let served = serve_as(&config);
    assert_eq!(over_tls(&served, &folder, None, ""), Some(1), "loopback without tokens");
    fs::write(folder.path("server.pem"), "no certificate").unwrap();
    let refused = served.gateway.reload(&config).unwrap_err().to_string();
    assert!(refused.contains("[web] tls"), "{refused}");
    assert_eq!(over_tls(&served, &folder, None, ""), Some(1));
    // By another authority: only the new one is trusted from here on.
    certificates(&folder, &[]);
    assert_eq!(over_tls(&served, &folder, None, ""), None, "the old one");
    served.gateway.reload(&config).unwrap();
    assert_eq!(over_tls(&served, &folder, None, ""), Some(1));
}
