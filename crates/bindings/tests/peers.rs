//! A hostile peer beside one that lives: the one is told when to come again, the other notices
//! nothing; and what the audit log says of both.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use futures_util::StreamExt;
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, Quota, RunningCse, start};
use gatewright_onem2m::{CseType, Operation, ResourceType, Status};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

/// Linux has all of 127.0.0.0/8 on its loopback: two hosts on one machine.
const HOSTILE: &str = "127.0.0.2:0";

fn store(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("peers-{name}.db"));
    for end in ["", "-wal", "-shm", ".lock", ".reserve"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
    path
}

async fn cse(name: &str, quota: Quota) -> (RunningCse, PathBuf) {
    let path = store(name);
    let mut machine =
        gatewright_onem2m::CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    machine.admin = Some("CAdmin".to_owned());
    let mut config = CseServerConfig::new(machine);
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config.listen_ws = vec!["127.0.0.1:0".parse().unwrap()];
    config.listen_coap = vec!["127.0.0.1:0".parse().unwrap()];
    config.store = Some(path.clone());
    config.cse.audit = gatewright_onem2m::audit::Audit::Strict;
    config.quota = quota;
    (start(config).await.unwrap(), path)
}

fn counter(cse: &RunningCse, name: &str) -> u64 {
    cse.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
}

/// Asks over one connection from another address until it is told to stop: status lines and heads
/// as they come.
fn flood(to: SocketAddr, stop: &AtomicBool, refused: &AtomicU64) -> (u64, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(HOSTILE.parse().unwrap()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    let (mut answered, mut head_of_refusal) = (0, String::new());
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while !stop.load(Ordering::Relaxed) {
        let request = format!(
            "GET /cse-in HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CHostile\r\nX-M2M-RI: h{answered}\r\n\
             X-M2M-RVI: 4\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            head.push_str(&lower);
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        answered += 1;
        if head.starts_with("http/1.1 429") {
            refused.fetch_add(1, Ordering::Relaxed);
            head_of_refusal = head;
        }
    }
    (answered, head_of_refusal)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_too_often_is_refused_and_nobody_else() {
    let (cse, path) = cse("rate", Quota { rate: Some(50), ..Quota::default() }).await;
    let to = cse.addresses()[0];
    let (stop, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (theirs, count) = (Arc::clone(&stop), Arc::clone(&refused));
    let hostile = std::thread::spawn(move || flood(to, &theirs, &count));
    let client = Client::new(format!("http://{to}"), "CAdmin", "a");
    let (began, mut asked) = (std::time::Instant::now(), 0_u64);
    while refused.load(Ordering::Relaxed) < 200 {
        let answer = client.get("cse-in").await.unwrap();
        assert_eq!(answer.status, Status::Ok, "the living peer is served");
        asked += 1;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let (answered, head) = hostile.join().unwrap();
    assert!(head.contains("retry-after: 1\r\n") && head.contains("x-m2m-rsc: 5000"), "{head}");
    assert_eq!(counter(&cse, "peer_requests_too_often"), refused.load(Ordering::Relaxed));
    // By CoAP it is the same peer, and still has nothing left.
    let coap = cse.coap_addresses().next().unwrap();
    let socket = UdpSocket::bind(HOSTILE).await.unwrap();
    // Many at once: however slow the machine is, they come sooner than leave for them does.
    for number in 0..200_u8 {
        // GET cse-in, confirmable, with release (271), originator (279) and identifier (283).
        let mut ask = vec![0x41, 0x01, 0x10, number, number];
        ask.extend([0xB6]);
        ask.extend(b"cse-in");
        ask.extend([0xD1, 247, b'4']);
        ask.extend([0x82, b'C', b'H']);
        ask.extend([0x42, b'r', b'a' + number % 26]);
        socket.send_to(&ask, coap).await.unwrap();
    }
    let too_many = async {
        loop {
            let mut answer = [0; 1_500];
            let (length, _) = socket.recv_from(&mut answer).await.unwrap();
            assert!(length > 4);
            // 4.29, Too Many Requests (RFC 8516).
            if answer[1] == 0x9D {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), too_many).await.expect("4.29");
    cse.stop().await;
    // The log has every request of the living one, and the first of the hostile one in a minute.
    let (mut denied, mut hostile, mut living) = (0, 0, 0);
    let verified = gatewright_store::verify_telling(&path, |told| match told.text_of("fr") {
        Some("CAdmin") => living += 1,
        Some("CHostile") => {
            hostile += 1;
            denied += u64::from(told.number_of("end") == Some(4103));
        }
        _ => {}
    });
    let verified = verified.unwrap();
    assert_eq!(verified.broken_at, None);
    assert_eq!((living, denied), (asked, hostile), "{verified:?}");
    let minutes = began.elapsed().as_secs() / 60 + 1;
    assert!(hostile > 0 && hostile <= 20 * minutes, "{hostile} of {answered} in {minutes}");
    assert_eq!(verified.outcomes.untold + verified.outcomes.waiting, 0, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_says_how_every_request_ended() {
    let (cse, path) = cse("outcomes", Quota::default()).await;
    let url = format!("http://{}", cse.addresses()[0]);
    let admin = Client::new(url.as_str(), "CAdmin", "a");
    let other = Client::new(url.as_str(), "COther", "o");
    let content = r#"{"m2m:cnt":{"rn":"c"}}"#;
    admin.create("cse-in", ResourceType::Container, content).await.unwrap();
    admin.create("cse-in", ResourceType::Container, content).await.unwrap();
    other.get("cse-in/c").await.unwrap();
    admin.get("cse-in/nothing").await.unwrap();
    admin.delete("cse-in/c").await.unwrap();
    // Somebody else has to be asked: it waits, and ends when that one has not answered.
    let entity = r#"{"m2m:ae":{"rn":"away","api":"Naway","rr":true,"srv":["4"],
        "poa":["http://127.0.0.1:9"]}}"#;
    let away = Client::new(url.as_str(), "Caway", "w");
    away.create("cse-in", ResourceType::ApplicationEntity, entity).await.unwrap();
    let notify = admin.request(Operation::Notify, "cse-in/away").unwrap();
    let answer = admin.ask(&notify.with_content(r#"{"m2m:sgn":{}}"#)).await.unwrap();
    assert!(!answer.status.is_success(), "{answer:?}");
    cse.stop().await;
    let mut told = Vec::new();
    let verified = gatewright_store::verify_telling(&path, |entry| {
        let end = entry.number_of("end").map(|end| end.to_string());
        let end = end.or_else(|| entry.text_of("end").map(str::to_owned)).unwrap();
        let word = |name| entry.text_of(name).unwrap();
        told.push(format!("{} {} by {}: {end}", word("op"), word("to"), word("fr")));
    });
    let status = answer.status.number();
    assert_eq!(
        told,
        [
            "Create cse-in by CAdmin: 2001".to_owned(),
            "Create cse-in by CAdmin: 4105".to_owned(),
            "Retrieve cse-in/c by COther: 4103".to_owned(),
            "Retrieve cse-in/nothing by CAdmin: 4004".to_owned(),
            "Delete cse-in/c by CAdmin: 2002".to_owned(),
            "Create cse-in by Caway: 2001".to_owned(),
            "Notify http://127.0.0.1:9 by CAdmin: waits".to_owned(),
            "Notify cse-in/away by CAdmin: waits".to_owned(),
            format!("Notify cse-in/away by CAdmin: {status}"),
        ]
    );
    let outcomes = verified.unwrap().outcomes;
    assert_eq!((outcomes.allowed, outcomes.denied), (3, 1));
    assert_eq!((outcomes.failed, outcomes.waiting, outcomes.untold), (3, 2, 0));
}

/// A connection from another address.
async fn connect(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(HOSTILE.parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Bodies that never come to their end are bounded in octets for one peer, and nobody else
/// notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_drip_are_bounded() {
    // One body goes alone, however large; beside it is room for nothing.
    let (cse, _) = cse("drip", Quota { octets: 1, ..Quota::default() }).await;
    let to = cse.addresses()[0];
    let head = "POST /cse-in HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CHostile\r\nX-M2M-RI: drip\r\n\
                X-M2M-RVI: 4\r\nContent-Type: application/json;ty=3\r\nContent-Length: 2\r\n\r\n";
    // The head alone counts, too: over HTTP/2 a connection has a hundred of them.
    for (turn, begun, rest) in [(1, "{", "}"), (2, "", "{}")] {
        let (say, mut said) = mpsc::unbounded_channel();
        let mut writers = Vec::new();
        for number in 0..6 {
            let (mut reader, mut writer) = connect(to).await.into_split();
            writer.write_all([head, begun].concat().as_bytes()).await.unwrap();
            writers.push(writer);
            let say = say.clone();
            tokio::spawn(async move {
                let mut octets = vec![0; 4_096];
                let length = reader.read(&mut octets).await.unwrap();
                let head = String::from_utf8_lossy(&octets[..length]).to_ascii_lowercase();
                say.send((number, head, reader)).unwrap();
            });
        }
        // All but one are told, and when to come again.
        let mut goes_on: BTreeSet<usize> = (0..6).collect();
        let mut readers = Vec::new();
        while goes_on.len() > 1 {
            let (number, head, reader) = said.recv().await.unwrap();
            assert!(head.starts_with("http/1.1 429 "), "{head}");
            assert!(head.contains("retry-after: 1\r\n"), "{head}");
            assert!(head.contains("x-m2m-rsc: 5000\r\n"), "{head}");
            goes_on.remove(&number);
            readers.push(reader);
        }
        let client = Client::new(format!("http://{to}"), "CAdmin", turn.to_string());
        let content = r#"{"m2m:cnt":{}}"#;
        let made = client.create("cse-in", ResourceType::Container, content).await.unwrap();
        assert_eq!(made.status, Status::Created, "the living peer is served");
        // The one goes on, and is told by the machine that it may not do that.
        let number = goes_on.pop_first().unwrap();
        writers[number].write_all(rest.as_bytes()).await.unwrap();
        let (told, head, _reader) = said.recv().await.unwrap();
        assert_eq!(told, number);
        assert!(head.starts_with("http/1.1 403 "), "{head}");
    }
    assert_eq!(counter(&cse, "peer_bodies_too_many"), 10);
    cse.stop().await;
}

/// The same of messages over WebSocket: whoever has too much on the way loses its connection, and
/// is told why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_drip_are_bounded() {
    let (cse, _) = cse("drip-ws", Quota { octets: 1, ..Quota::default() }).await;
    let to = cse.ws_addresses()[0];
    // The head of a masked text of 20,000 octets (RFC 6455 §5.2), and half of it.
    let mut half = vec![0x81, 0x80 | 0x7E];
    half.extend(20_000_u16.to_be_bytes());
    half.extend([0; 4]);
    half.resize(half.len() + 10_000, b'x');
    let mut sockets = Vec::new();
    for _connection in 0..2 {
        let stream = connect(to).await;
        let url = format!("ws://{to}");
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        socket.get_mut().write_all(&half).await.unwrap();
        sockets.push(socket);
    }
    while counter(&cse, "peer_bodies_too_many") < 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [first, second] = &mut sockets[..] else { panic!() };
    let refused = tokio::select! {
        refused = first.next() => refused,
        refused = second.next() => refused,
    };
    let Some(Ok(Message::Close(Some(close)))) = refused else { panic!("{refused:?}") };
    assert_eq!(u16::from(close.code), 1_013, "try again later");
    assert_eq!(counter(&cse, "peer_bodies_too_many"), 1);
    cse.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_413() {
    let (cse, _) = cse("large", Quota::default()).await;
    let mut stream = TcpStream::connect(cse.addresses()[0]).await.unwrap();
    let head = "POST /cse-in HTTP/1.1\r\nHost: x\r\nX-M2M-Origin: CAdmin\r\nX-M2M-RI: large\r\n\
                X-M2M-RVI: 4\r\nContent-Type: application/json;ty=3\r\n\
                Content-Length: 1000000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let length = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 413 "), "{answer}");
    assert!(answer.contains("x-m2m-rsc: 5207\r\n") && answer.contains("x-m2m-ri: large\r\n"));
    assert_eq!(counter(&cse, "http_bodies_refused"), 1);
    cse.stop().await;
}
