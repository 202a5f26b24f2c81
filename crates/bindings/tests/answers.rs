//! Peers that ask for large answers and do not read them, beside one that reads small ones: what is
//! unread stays within its bounds, and nobody waits for it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use futures_util::{SinkExt, StreamExt};
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, RunningCse, start};
use gatewright_onem2m::{CseConfig, CseType, Operation, Request, ResourceType, Response, Status};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::tungstenite::Message;

/// How long anything may take to come about.
const DEADLINE: Duration = Duration::from_mins(2);
/// Linux has all of 127.0.0.0/8 on its loopback: hosts on one machine.
const GREEDY: [&str; 3] = ["127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"];
/// Octets of one large answer, at least: more than a connection's buffers take.
const LARGE: usize = 8 * 1024 * 1024;
/// Octets of one instance's content.
const CONTENT: usize = 512 * 1024;

/// A CSE with a container whose children are a large answer, and one with a small instance.
async fn cse(more: impl FnOnce(&mut CseConfig)) -> RunningCse {
    let mut machine = CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    machine.admin = Some("CAdmin".to_owned());
    machine.limits.unread_octets_per_peer = 5 * LARGE;
    machine.limits.unread_octets = 9 * LARGE;
    more(&mut machine);
    let mut config = CseServerConfig::new(machine);
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config.listen_ws = vec!["127.0.0.1:0".parse().unwrap()];
    let cse = start(config).await.unwrap();
    let admin = Client::new(format!("http://{}", cse.addresses()[0]), "CAdmin", "make");
    for (name, count, octets) in [("large", LARGE / CONTENT, CONTENT), ("small", 1, 100)] {
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
        let made = admin.create("cse-in", ResourceType::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let instance = format!(r#"{{"m2m:cin":{{"con":"{}"}}}}"#, "x".repeat(octets));
        for _ in 0..count {
            let to = format!("cse-in/{name}");
            let made = admin.create(&to, ResourceType::ContentInstance, &instance).await.unwrap();
            assert_eq!(made.status, Status::Created, "{made:?}");
        }
    }
    cse
}

fn counter(cse: &RunningCse, name: &str) -> u64 {
    cse.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Waits until `is_so`.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waits = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waits).await.expect(what);
}

/// A connection from `from` whose kernel takes few octets that nobody reads.
async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind(from.parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Asks for `target`, and reads as much of the answer as shows its status.
async fn ask(from: &str, to: SocketAddr, target: &str, more: &str) -> (TcpStream, String) {
    let mut stream = connect(from, to).await;
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: r\r\n\
         X-M2M-RVI: 4\r\n{more}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = vec![0; 400];
    let read = tokio::time::timeout(DEADLINE, stream.read(&mut head)).await.expect("answered");
    head.truncate(read.unwrap());
    (stream, String::from_utf8_lossy(&head).to_ascii_lowercase())
}

/// Large answers to many connections of several peers, in each spelling of the target, as JSON and
/// as CBOR, by a group's fan-out; a polite peer, even at the same address, is served at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greedy_peers_fill_their_bounds_and_a_polite_one_is_served() {
    let cse = cse(|_| {}).await;
    let to = cse.addresses()[0];
    let polite = Client::new(format!("http://{to}"), "CAdmin", "polite");
    let group = r#"{"m2m:grp":{"rn":"g","mnm":4,"mid":["cse-in/large","cse-in/small"]}}"#;
    polite.create("cse-in", ResourceType::Group, group).await.unwrap();
    // What was answered before is read.
    until("nothing is unread", || cse.engine().unread_octets().0 == 0).await;
    let targets = [
        "/cse-in/large?rcn=4",
        "/~/id-in/cse-in/large?rcn=4",
        "/_/gatewright.invalid/id-in/cse-in/large?rcn=4",
        "/cse-in/g/fopt?rcn=4",
    ];
    let mut connections = Vec::new();
    let (mut served, mut refused) = (0, 0);
    for number in 0..60 {
        // The first one alone comes to its own bound.
        let from = GREEDY[if number < 10 { 0 } else { number % GREEDY.len() }];
        let more = if number % 2 == 0 { "" } else { "Accept: application/cbor\r\n" };
        let (stream, head) = ask(from, to, targets[number % targets.len()], more).await;
        if head.starts_with("http/1.1 200 ") {
            served += 1;
        } else {
            assert!(head.starts_with("http/1.1 503 "), "{head}");
            assert!(head.contains("x-m2m-rsc: 5000\r\n"), "{head}");
            assert!(head.contains("retry-after: 1\r\n"), "{head}");
            refused += 1;
        }
        connections.push(stream);
        // Also at an address that has no room for another large one.
        let from = if number % 2 == 0 { "127.0.0.9:0" } else { from };
        let (_, head) = ask(from, to, "/cse-in/small/la", "").await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
    }
    let (unread, peak) = cse.engine().unread_octets();
    assert!(served >= 4 && refused >= 20, "{served} {refused}");
    assert!(unread >= 4 * LARGE && peak <= 9 * LARGE, "{unread} {peak}");
    let full = counter(&cse, "answers_full") + counter(&cse, "answers_of_one_full");
    assert!(full >= refused, "{full} {refused}");
    assert!(counter(&cse, "answers_of_one_full") > 0 && counter(&cse, "answers_full") > 0);
    // Who reads makes room again, and so does who goes.
    let mut first = connections.remove(0);
    tokio::spawn(async move { while first.read(&mut vec![0; 1 << 16]).await.unwrap() > 0 {} });
    until("read answers make room", || cse.engine().unread_octets().0 < unread).await;
    drop(connections);
    until("all are given back", || cse.engine().unread_octets().0 == 0).await;
    let whole = polite.get("cse-in/large").await.unwrap();
    assert_eq!(whole.status, Status::Ok);
    cse.stop().await;
}

/// The same over WebSocket: the refusal is a response like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_over_websocket_are_bounded() {
    let cse = cse(|_| {}).await;
    let to = cse.ws_addresses()[0];
    let mut sockets = Vec::new();
    for number in 0..6 {
        let stream = connect(GREEDY[0], to).await;
        let (mut socket, _) =
            tokio_tungstenite::client_async(format!("ws://{to}"), stream).await.unwrap();
        let id = number.to_string();
        let mut request = Request::new(Operation::Retrieve, "cse-in/large", "CAdmin", id);
        request.set("rcn", "4").unwrap();
        socket.send(Message::text(request.to_json())).await.unwrap();
        sockets.push(socket);
    }
    until("three are refused", || counter(&cse, "answers_of_one_full") == 3).await;
    let mut refused = 0;
    for socket in &mut sockets {
        let message = tokio::time::timeout(DEADLINE, socket.next()).await.expect("answered");
        let Some(Ok(Message::Text(text))) = message else { continue };
        let response = Response::from_json(text.as_bytes()).unwrap();
        refused += u32::from(response.status == Status::InternalServerError);
    }
    assert_eq!(refused, 3);
    drop(sockets);
    until("all are given back", || cse.engine().unread_octets().0 == 0).await;
    assert!(cse.engine().unread_octets().1 <= 5 * LARGE);
    cse.stop().await;
}

/// What is kept is no answer on its way: it is no larger than any other resource.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_kept_is_no_larger_than_a_resource() {
    let cse = cse(|_| {}).await;
    let client = Client::new(format!("http://{}", cse.addresses()[0]), "CAdmin", "kept");
    let mut request = client.request(Operation::Retrieve, "cse-in/large").unwrap();
    request.set("rcn", "4").unwrap();
    request.set("rt", "1").unwrap();
    let accepted = client.ask(&request).await.unwrap();
    assert_eq!(accepted.status, Status::AcceptedSynchronously, "{accepted:?}");
    let content = accepted.content.unwrap();
    let uri = content.split('"').nth(3).unwrap();
    let kept = client.get(uri).await.unwrap().content.unwrap();
    assert!(kept.contains("\"rsc\":5207") && kept.len() < 10_000, "{}", kept.len());
    cse.stop().await;
}
