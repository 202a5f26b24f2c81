//! The HTTP binding on a socket, byte for byte.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, RunningCse, start};
use gatewright_bindings::listen::Notifications;
use gatewright_onem2m::{CseType, ResourceType, Status, Timestamp};
use std::time::{Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn config() -> CseServerConfig {
    let mut cse = gatewright_onem2m::CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    cse.admin = Some("CAdmin".to_owned());
    cse.limits.content_octets = 10_000;
    let mut config = CseServerConfig::new(cse);
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config
}

async fn running() -> RunningCse {
    start(config()).await.unwrap()
}

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what comes about.
async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How many whole answers `read` has, one after the other.
fn answers(read: &[u8]) -> usize {
    let (mut rest, mut count) = (read, 0);
    while let Some(head) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
        let text = String::from_utf8_lossy(&rest[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map_or(0, |length| length.trim().parse().unwrap());
        let Some(behind) = rest.get(head + 4 + length..) else { break };
        (rest, count) = (behind, count + 1);
    }
    count
}

/// Sends octets as they are and reads so many answers, or fewer if the connection ends before.
async fn exchange(running: &RunningCse, octets: &str, wanted: usize) -> String {
    let mut stream = TcpStream::connect(running.addresses()[0]).await.unwrap();
    // Where the connection is closed at once, not all of it may be taken.
    let _ = stream.write_all(octets.as_bytes()).await;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    while answers(&read) < wanted {
        let more = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await;
        match more.unwrap_or_else(|_| panic!("{octets}\n{}", String::from_utf8_lossy(&read))) {
            Ok(length @ 1..) => read.extend_from_slice(&buffer[..length]),
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// Silence after which a receiver expects no further request.
const QUIET: Duration = Duration::from_millis(500);
/// The answer to a notification.
const TAKEN: &[u8] =
    b"HTTP/1.1 200 OK\r\nX-M2M-RSC: 2000\r\nX-M2M-RVI: 4\r\nContent-Length: 0\r\n\r\n";

const HEAD: &str = "Host: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: 7\r\nX-M2M-RVI: 4\r\n";

#[tokio::test]
async fn creation_and_retrieval_over_one_connection() {
    let running = running().await;
    let body = r#"{"m2m:cnt":{"rn":"c"}}"#;
    let create = format!(
        "POST /cse-in HTTP/1.1\r\n{HEAD}Content-Type: application/json;ty=3\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let get = format!("GET /~/id-in/cse-in/c HTTP/1.1\r\n{HEAD}\r\n");
    let answer = exchange(&running, &format!("{create}{get}{get}"), 3).await;
    assert_eq!(answer.matches("HTTP/1.1 201 Created\r\n").count(), 1, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{answer}");
    assert!(answer.contains("x-m2m-rsc: 2001\r\n"), "{answer}");
    assert!(answer.contains("x-m2m-ri: 7\r\n"));
    assert!(answer.contains("content-location: cse-in/c\r\n"));
    assert!(answer.contains("content-type: application/json\r\n"));
    running.stop().await;
}

/// Its time comes while its connection waits, and the resource says when it was made.
#[tokio::test]
async fn a_request_waits_for_its_time() {
    let running = running().await;
    let body = r#"{"m2m:cnt":{"rn":"c"}}"#;
    let create = format!(
        "POST /cse-in HTTP/1.1\r\n{HEAD}X-M2M-OET: 300\r\n\
         Content-Type: application/json;ty=3\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let answer = exchange(&running, &create, 1).await;
    let made = answer.split_once("\"ct\":\"").map(|(_, rest)| rest.split('"').next().unwrap());
    let made = made.and_then(Timestamp::parse).unwrap_or_else(|| panic!("{answer}"));
    assert!(made >= Timestamp::new(asked + Duration::from_millis(300)), "{answer}");
    running.stop().await;
}

/// HTTP has no request without a response: it says that the request was accepted, and nothing of
/// what became of it.
#[tokio::test]
async fn a_request_that_wants_no_response_is_accepted_without_content() {
    let running = running().await;
    for (to, wanted) in [("cse-in", "one"), ("cse-in/none", "two")] {
        let body = format!(r#"{{"m2m:cnt":{{"rn":"{wanted}"}}}}"#);
        let request = format!(
            "POST /{to}?rt=5 HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: {wanted}\r\n\
             X-M2M-RVI: 3\r\nContent-Type: application/json;ty=3\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(&running, &request, 1).await.to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 202"), "{answer}");
        assert!(answer.contains("x-m2m-rsc: 1000"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn refusals_have_both_codes_and_a_reason() {
    let running = running().await;
    let cases = [
        (format!("GET /cse-in/x HTTP/1.1\r\n{HEAD}\r\n"), "404 Not Found", "4004"),
        (format!("PATCH /cse-in HTTP/1.1\r\n{HEAD}\r\n"), "405 Method", "4005"),
        (format!("DELETE /cse-in HTTP/1.1\r\n{HEAD}\r\n"), "405 Method", "4005"),
        (format!("GET /%zz HTTP/1.1\r\n{HEAD}\r\n"), "400 Bad", "4000"),
        ("GET /cse-in HTTP/1.1\r\nHost: x\r\nX-M2M-RI: 7\r\n\r\n".to_owned(), "400 Bad", "4000"),
        // A browser says where its page is from.
        (format!("GET /cse-in HTTP/1.1\r\n{HEAD}Origin: http://x\r\n\r\n"), "403 For", "4103"),
        (
            format!(
                "POST /cse-in HTTP/1.1\r\n{HEAD}Content-Type: text/plain;ty=3\r\n\
                 Content-Length: 1\r\n\r\nx"
            ),
            "415 Unsupported",
            "4015",
        ),
        (
            format!(
                "POST /cse-in HTTP/1.1\r\n{HEAD}Content-Type: application/json;ty=3\r\n\
                 Content-Length: 20000\r\n\r\n{}",
                "x".repeat(20_000)
            ),
            "413 Payload Too Large",
            "5207",
        ),
    ];
    for (request, line, code) in cases {
        let answer = exchange(&running, &request, 1).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {line}")), "{request}\n{answer}");
        assert!(answer.contains(&format!("x-m2m-rsc: {code}\r\n")), "{answer}");
        assert!(answer.contains("m2m:dbg"), "{answer}");
    }
    // What is no HTTP at all disturbs nobody.
    exchange(&running, "\u{1}\u{2}\u{3} nothing\r\n\r\n", 1).await;
    let still = exchange(&running, &format!("GET /cse-in HTTP/1.1\r\n{HEAD}\r\n"), 1).await;
    assert!(still.starts_with("HTTP/1.1 200 OK"));
    running.stop().await;
}

/// Who asks, for what release and by what identifier is said once.
#[tokio::test]
async fn a_header_of_one_value_is_refused_with_two() {
    let running = running().await;
    let base = "GET /cse-in HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: 1\r\n\
                X-M2M-RVI: 4\r\n";
    for (second, status, code) in [
        ("", "200", "2000"),
        ("X-M2M-Origin: CNobody\r\n", "400", "4000"),
        ("X-M2M-RI: 2\r\n", "400", "4000"),
        ("X-M2M-RVI: 3\r\n", "400", "4000"),
    ] {
        let answer = exchange(&running, &format!("{base}{second}\r\n"), 1).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{second}: {answer}");
        let answer = answer.to_ascii_lowercase();
        assert!(answer.contains(&format!("x-m2m-rsc: {code}\r\n")), "{second}: {answer}");
    }
}

#[tokio::test]
async fn content_in_cbor() {
    let running = running().await;
    // {"m2m:cnt": {"rn": "k"}}
    let cbor: &[u8] = b"\xa1\x67m2m:cnt\xa1\x62rn\x61k";
    let mut stream = TcpStream::connect(running.addresses()[0]).await.unwrap();
    let head = format!(
        "POST /cse-in HTTP/1.1\r\n{HEAD}Content-Type: application/cbor;ty=3\r\n\
         Accept: application/cbor\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        cbor.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(cbor).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("201 Created") && text.contains("content-type: application/cbor"));
    let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(&answer[at..at + 9], b"\xa1\x67m2m:cnt");
    running.stop().await;
}

#[tokio::test]
async fn what_is_acknowledged_survives_a_restart() {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("http-restart.db");
    for end in ["", "-wal", "-shm", ".lock", ".reserve"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    let mut config = config();
    config.store = Some(path.clone());
    config.cse.audit = gatewright_onem2m::audit::Audit::Strict;
    let first = start(config.clone()).await.unwrap();
    let url = format!("http://{}", first.addresses()[0]);
    let client = Client::new(url, "CAdmin", "a");
    let container =
        client.create("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#).await;
    assert_eq!(container.unwrap().status, Status::Created);
    for number in 0..20 {
        let content = format!(r#"{{"m2m:cin":{{"rn":"i{number}","con":"{number}"}}}}"#);
        let made =
            client.create("cse-in/c", ResourceType::ContentInstance, &content).await.unwrap();
        assert_eq!(made.status, Status::Created);
    }
    let tree = client.tree("cse-in/c").await.unwrap().content;
    first.stop().await;
    let verified = gatewright_store::verify(&path).unwrap();
    assert_eq!((verified.entries, verified.broken_at), (22, None));
    let second = start(config).await.unwrap();
    let url = format!("http://{}", second.addresses()[0]);
    let client = Client::new(url, "CAdmin", "b");
    assert_eq!(client.tree("cse-in/c").await.unwrap().content, tree);
    let again =
        client.create("cse-in/c", ResourceType::ContentInstance, r#"{"m2m:cin":{"rn":"i7"}}"#);
    assert_eq!(again.await.unwrap().status, Status::Conflict);
    assert_eq!(client.get("cse-in/c?fu=1&ty=4&lim=5").await.unwrap().cut_at(), Some(5));
    assert_eq!(client.delete("cse-in/c").await.unwrap().status, Status::Deleted);
    second.stop().await;
}

/// Two of our own: an MN registers at an IN; requests go up, down, and to strangers nowhere.
#[tokio::test]
async fn a_middle_node_registers_and_requests_are_sent_on() {
    let mut upper = config();
    upper.cse.admitted_cses = vec!["/id-mn".to_owned()];
    let upper = start(upper).await.unwrap();
    let upper_url = format!("http://{}", upper.addresses()[0]);
    let mut cse = gatewright_onem2m::CseConfig::new(CseType::Middle, "/id-mn", "cse-mn");
    cse.registrar = Some(gatewright_onem2m::Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: upper_url.clone(),
    });
    let mut lower = CseServerConfig::new(cse);
    lower.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let lower = start(lower).await.unwrap();
    wait_until("it registers", async || lower.engine().is_registered()).await;
    let lower_url = format!("http://{}", lower.addresses()[0]);
    let ae = r#"{"m2m:ae":{"rn":"a","api":"Nx","rr":false,"srv":["4"]}}"#;
    let down = Client::new(lower_url.as_str(), "Cdown", "d");
    let made = down.create("cse-mn", ResourceType::ApplicationEntity, ae).await.unwrap();
    assert_eq!(made.status, Status::Created);
    let up = Client::new(upper_url.as_str(), "Cup", "u");
    let made = up.create("cse-in", ResourceType::ApplicationEntity, ae).await.unwrap();
    assert_eq!(made.status, Status::Created);
    // Up: the IN knows the AE by its CSE, and its access control decides.
    let refused = down.get("/id-in/cse-in/a").await.unwrap();
    assert_eq!(refused.status, Status::OriginatorHasNoPrivilege);
    // The MN's base is seen by the IN's administrator and by nobody else up there.
    let admin = Client::new(upper_url.as_str(), "CAdmin", "x");
    let base = admin.get("/id-mn/cse-mn").await.unwrap();
    assert_eq!(base.status, Status::Ok);
    assert!(base.content.unwrap().contains("\"csi\":\"/id-mn\""));
    let stranger = admin.get("/id-other/x").await.unwrap();
    assert_eq!(stranger.status, Status::NotFound);
    // Gone without a word: not reachable.
    lower.stop().await;
    let away = admin.get("/id-mn/cse-mn").await.unwrap();
    assert_eq!(away.status, Status::TargetNotReachable);
    assert_eq!(upper.engine().counters().forwarded, 2);
    upper.stop().await;
}

/// Nobody connects before the tree is there: where neither database nor address can be had, it is the
/// database that is told.
#[tokio::test]
async fn the_tree_is_read_before_a_port_is_open() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("order");
    std::fs::create_dir_all(&place).unwrap();
    let [damaged, fresh] = ["damaged.db", "fresh.db"].map(|name| place.join(name));
    std::fs::write(&damaged, "no database".repeat(1000)).unwrap();
    for (store, is_told) in [(damaged, "damaged.db: error of the database"), (fresh, "in use")] {
        let mut config = config();
        config.listen = vec![taken.local_addr().unwrap()];
        config.store = Some(store);
        let error = start(config).await.err().unwrap().to_string();
        assert!(error.contains(is_told), "{error}");
        // What to do is told, too.
        assert_eq!(error.contains("gatewright store verify"), is_told != "in use", "{error}");
    }
}

/// A peer cannot have the CSE ask what listens on this machine only, nor learn whether anything does;
/// an operator may allow it.
#[tokio::test]
async fn peers_do_not_reach_this_machine_by_the_cse() {
    let heard = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = heard.local_addr().unwrap().port();
    for allowed in [false, true] {
        let mut config = config();
        config.listen = vec!["0.0.0.0:0".parse().unwrap()];
        config.reach_own = allowed;
        let running = start(config).await.unwrap();
        let url = format!("http://127.0.0.1:{}", running.addresses()[0].port());
        let plain = Client::new(url.as_str(), "Cplain", "p");
        let ae = r#"{"m2m:ae":{"rn":"a","api":"Nx","rr":false,"srv":["4"]}}"#;
        let made = plain.create("cse-in", ResourceType::ApplicationEntity, ae).await.unwrap();
        assert_eq!(made.status, Status::Created);
        let subscribe = async |target: &str| {
            let sub = format!(r#"{{"m2m:sub":{{"nu":["{target}"]}}}}"#);
            let answer = plain.create("cse-in/a", ResourceType::Subscription, &sub).await.unwrap();
            (answer.status, answer.content)
        };
        let (open, closed) = (format!("http://127.0.0.1:{open}/"), "http://127.0.0.1:1/");
        if allowed {
            let told = async { heard.accept().await.unwrap() };
            let asked = tokio::time::timeout(PATIENCE, async {
                tokio::select! { told = told => drop(told), _ = subscribe(&open) => {} }
            });
            asked.await.unwrap();
        } else {
            let told = subscribe(&open).await;
            assert!(!told.0.is_success(), "{told:?}");
            assert_eq!(told, subscribe(closed).await, "nothing is learnt");
            let nobody = tokio::time::timeout(Duration::from_millis(100), heard.accept()).await;
            assert!(nobody.is_err(), "it was asked");
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn one_peer_cannot_take_every_connection() {
    let mut config = config();
    config.connections_per_peer_max = 2;
    let running = start(config).await.unwrap();
    let get = format!("GET /cse-in HTTP/1.1\r\n{HEAD}\r\n");
    let first = TcpStream::connect(running.addresses()[0]).await.unwrap();
    let second = TcpStream::connect(running.addresses()[0]).await.unwrap();
    // Reset, if its request comes after the refusal has left.
    let told = exchange(&running, &get, 1).await;
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 503 "), "{told}");
    drop((first, second));
    let served = async || exchange(&running, &get, 1).await.starts_with("HTTP/1.1 200 OK");
    wait_until("the next one is served", served).await;
    let refused =
        running.counters().into_iter().find(|(name, _)| *name == "http_connections_refused");
    assert!(refused.is_some_and(|(_, count)| count >= 1));
    running.stop().await;
}

#[tokio::test]
async fn a_subscriber_hears_of_each_reading_in_order() {
    let running = running().await;
    let client = Client::new(format!("http://{}", running.addresses()[0]), "CAdmin", "s");
    client.create("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#).await.unwrap();
    let mut heard = Notifications::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let made = client.subscribe("cse-in/c", "s", &heard.url(), &[3]).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    for number in 0..20 {
        let content = format!(r#"{{"m2m:cin":{{"con":"{number}"}}}}"#);
        client.create("cse-in/c", ResourceType::ContentInstance, &content).await.unwrap();
    }
    for number in 0..20 {
        let next = tokio::time::timeout(PATIENCE, heard.next()).await;
        let notification = next.unwrap().unwrap();
        let content = &notification["nev"]["rep"]["m2m:cin"]["con"];
        assert_eq!(*content, number.to_string());
    }
    let is_empty = async || running.engine().messages_waiting() == 0;
    wait_until("the last answer comes back", is_empty).await;
    running.stop().await;
}

/// What a receiver has read of a connection.
#[derive(Default)]
struct ReceivedRequests {
    /// The bodies of whole requests.
    bodies: Vec<String>,
    /// What has come of the next one.
    rest: Vec<u8>,
}

impl ReceivedRequests {
    /// Reads until so many requests have come, or none comes for a while.
    async fn read(&mut self, stream: &mut TcpStream, wanted: usize) {
        while self.bodies.len() < wanted {
            // Requests end as answers do.
            while answers(&self.rest) > 0 {
                let text = String::from_utf8_lossy(&self.rest);
                let (head, _) = text.split_once("\r\n\r\n").unwrap();
                let begin = head.len() + 4;
                let lines = head.to_ascii_lowercase();
                let length = lines.lines().find_map(|line| line.strip_prefix("content-length:"));
                let end = begin + length.map_or(0, |it| it.trim().parse::<usize>().unwrap());
                self.bodies.push(text[begin..end].to_owned());
                self.rest.drain(..end);
            }
            let more = tokio::time::timeout(QUIET, stream.read_buf(&mut self.rest));
            if self.bodies.len() < wanted && !matches!(more.await, Ok(Ok(1..))) {
                return;
            }
        }
    }
}

/// A receiver that answers one request when it has all that may be in progress: one more with each
/// answer, so that a path with a long round trip is filled. They come in order, and each once.
#[tokio::test]
async fn many_requests_of_a_queue_are_in_progress_and_in_order() {
    const ALL: usize = 400;
    let running = running().await;
    let client = Client::new(format!("http://{}", running.addresses()[0]), "CAdmin", "s");
    client.create("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/n", listener.local_addr().unwrap());
    let verified = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        ReceivedRequests::default().read(&mut stream, 1).await;
        stream.write_all(TAKEN).await.unwrap();
        stream
    };
    let subscribed = client.subscribe("cse-in/c", "s", &url, &[3]);
    let (made, _verifying) = tokio::join!(subscribed, verified);
    assert_eq!(made.unwrap().status, Status::Created);
    for number in 0..ALL {
        let content = format!(r#"{{"m2m:cin":{{"con":"<{number}>"}}}}"#);
        client.create("cse-in/c", ResourceType::ContentInstance, &content).await.unwrap();
    }
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut received, mut longest) = (ReceivedRequests::default(), 0);
    for answered in 0..ALL {
        let wanted = (answered + 1 + answered.min(127)).min(ALL);
        received.read(&mut stream, wanted).await;
        longest = longest.max(received.bodies.len() - answered);
        stream.write_all(TAKEN).await.unwrap();
    }
    // Where the machine stops for a second, its answers are late.
    assert!((64..=128).contains(&longest), "{longest} in progress");
    for (number, body) in received.bodies.iter().enumerate() {
        assert!(body.contains(&format!("<{number}>")), "{body} is number {number}");
    }
    let is_empty = async || running.engine().messages_waiting() == 0;
    wait_until("the last answer comes back", is_empty).await;
    running.stop().await;
}

/// Who listens for notifications has room for so many, and tells the others; when one goes there is room
/// again.
#[tokio::test]
async fn notifications_come_over_a_bounded_number_of_connections() {
    let heard = Notifications::listen_for("127.0.0.1:0".parse().unwrap(), 8).await.unwrap();
    let url = heard.url();
    let at = url.strip_prefix("http://").unwrap();
    // Two of one address: a quarter of all. They are taken in the order in which they come.
    let first = TcpStream::connect(at).await.unwrap();
    let _second = TcpStream::connect(at).await.unwrap();
    let ask = || async {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let mut told = String::new();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        let _ = stream.read_to_string(&mut told).await;
        told
    };
    // One that is reset before it has read why has been turned away, too.
    let mut told = ask().await;
    while !told.starts_with("HTTP/1.1 503 ") {
        assert!(told.is_empty(), "{told}");
        told = ask().await;
    }
    assert!(told.contains("Retry-After: 1") && heard.refused() > 0, "{told}");
    drop(first);
    while told.is_empty() || told.starts_with("HTTP/1.1 503 ") {
        told = ask().await;
    }
    assert!(told.starts_with("HTTP/1.1 "), "{told}");
}
