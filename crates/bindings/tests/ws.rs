//! Over WebSocket: our client at our CSE, and two of our CSEs.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod shared;

use futures_util::{SinkExt, StreamExt};
use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{CseServerConfig, start};
use gatewright_onem2m::{CseType, ResourceType, Serialisation, Status};
use shared::{Binding, PATIENCE, chain, wait_for};
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Every operation, small and large, in both serialisations; a decimal stays what it is.
#[tokio::test]
async fn our_client_at_our_cse() {
    let running = Binding::Ws.infrastructure().await;
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let prefix = format!("{serialisation:?}");
        let client =
            Client::new(Binding::Ws.url(&running), "CAdmin", &*prefix).writing(serialisation);
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{prefix}"}}}}"#);
        let made = client.create("cse-in", ResourceType::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let to = format!("cse-in/{prefix}");
        let large = "x".repeat(200_000);
        for value in ["1", &large, "96.50"] {
            let content = format!(r#"{{"m2m:cin":{{"con":"{value}"}}}}"#);
            let made = client.create(&to, ResourceType::ContentInstance, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{made:?}");
            let read = client.get(&format!("{to}/la")).await.unwrap();
            assert!(read.content.unwrap().contains(&format!("\"{value}\"")));
        }
        let found = client.get(&format!("{to}?fu=1&ty=4&lim=1")).await.unwrap();
        assert!(found.cut_at().is_some());
        assert_eq!(client.delete(&to).await.unwrap().status, Status::Deleted);
        assert_eq!(client.get(&to).await.unwrap().status, Status::NotFound);
    }
    let there = Binding::Ws.url(&running);
    running.stop().await;
    let away = Client::new(there, "CAdmin", "a").get("cse-in").await;
    assert!(away.is_err(), "{away:?}");
}

/// A browser says where its page is from; no page acts as a peer on the machine that shows it.
#[tokio::test]
async fn a_web_page_is_refused() {
    let running = Binding::Ws.infrastructure().await;
    let url = Binding::Ws.url(&running);
    let mut ask = url.into_client_request().unwrap();
    ask.headers_mut().insert("Origin", "http://x.example".parse().unwrap());
    let stream = TcpStream::connect(running.ws_addresses()[0]).await.unwrap();
    let refused = tokio_tungstenite::client_async(ask, stream).await.unwrap_err();
    let Error::Http(answer) = refused else { panic!("{refused}") };
    assert_eq!(answer.status(), 403);
    running.stop().await;
}

/// An answer that names no request is not answered, or two would refuse each other's refusals for
/// ever.
#[tokio::test]
async fn an_answer_to_nothing_is_not_answered() {
    let running = Binding::Ws.infrastructure().await;
    let url = Binding::Ws.url(&running);
    let stream = TcpStream::connect(running.ws_addresses()[0]).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    for text in [r#"{"rsc":4000,"fr":"/id-x","pc":{"m2m:dbg":"no rqi"}}"#, r#"{"rqi":"then"}"#] {
        socket.send(Message::text(text)).await.unwrap();
    }
    let answer = socket.next().await.unwrap().unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!(answer["rqi"], "then", "{answer}");
    running.stop().await;
}

/// Who wants no response (rt 5, noResponse) gets none, whether it was done or refused.
#[tokio::test]
async fn a_request_that_wants_no_response_gets_none() {
    let running = Binding::Ws.infrastructure().await;
    let url = Binding::Ws.url(&running);
    let stream = TcpStream::connect(running.ws_addresses()[0]).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    for (number, to) in ["cse-in", "cse-in/none"].into_iter().enumerate() {
        let text = format!(
            r#"{{"op":1,"to":"{to}","fr":"CAdmin","rqi":"{number}","ty":3,"rvi":"3",
                "rt":{{"rtv":5}},"pc":{{"m2m:cnt":{{"rn":"silent"}}}}}}"#
        );
        socket.send(Message::text(text)).await.unwrap();
    }
    let read = r#"{"op":2,"to":"cse-in/silent","fr":"CAdmin","rqi":"then","rvi":"3"}"#;
    socket.send(Message::text(read)).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    let answer: serde_json::Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!((&answer["rqi"], &answer["rsc"]), (&"then".into(), &2000.into()), "{answer}");
    running.stop().await;
}

/// Scripts go on with the address of what they have created, over any binding.
#[tokio::test]
async fn what_is_created_has_an_address_over_every_binding() {
    for binding in [Binding::Http, Binding::Coap, Binding::Ws] {
        let running = binding.infrastructure().await;
        let admin = binding.admin_of(&running, "a");
        for (to, name) in [("cse-in", "c"), ("cse-in/c", "d"), ("-", "e")] {
            let content = format!(r#"{{"m2m:cnt":{{"rn":"{name}"}}}}"#);
            let made = admin.create(to, ResourceType::Container, &content).await.unwrap();
            let at = made.location.unwrap_or_else(|| panic!("{binding:?} {to} has no address"));
            assert!(to == "-" || *at == format!("{to}/{name}"), "{binding:?}: {at}");
            let found = admin.get(&at).await.unwrap().content.unwrap();
            assert!(found.contains(&format!("\"rn\":\"{name}\"")), "{binding:?} {at}: {found}");
        }
        running.stop().await;
    }
}

/// More than are answered at once: none is lost, and the connection goes on.
#[tokio::test]
async fn a_peer_may_ask_without_waiting() {
    const REQUESTS: usize = 5_000;
    let running = Binding::Ws.infrastructure().await;
    let made = Binding::Ws.admin_of(&running, "a");
    let made =
        made.create("cse-in", ResourceType::Container, r#"{"m2m:cnt":{"rn":"c"}}"#).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
    let url = Binding::Ws.url(&running);
    let stream = TcpStream::connect(running.ws_addresses()[0]).await.unwrap();
    let (socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
    let (mut asks, mut answers) = socket.split();
    // Written by a task of its own: what waits in a system's buffers is not to decide.
    let asking = tokio::spawn(async move {
        for number in 0..REQUESTS {
            let text = format!(
                r#"{{"op":1,"to":"cse-in/c","fr":"CAdmin","rqi":"{number}","ty":4,"rvi":"3",
                    "pc":{{"m2m:cin":{{"con":"1"}}}}}}"#
            );
            asks.feed(Message::text(text)).await.unwrap();
        }
        asks.flush().await.unwrap();
        asks
    });
    let mut answered = BTreeSet::new();
    while answered.len() < REQUESTS {
        let answer = tokio::time::timeout(PATIENCE, answers.next()).await;
        let answer = answer.expect("an answer in time").unwrap().unwrap();
        let answer: serde_json::Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
        assert_eq!(answer["rsc"], 2001, "{answer}");
        assert!(answered.insert(answer["rqi"].to_string()), "{answer} twice");
    }
    drop(asking.await.unwrap());
    running.stop().await;
}

/// RFC 6455 §5.4 sets no bound to the frames of a message, and they may be empty. A peer that goes
/// on with them, or sends more octets than a message may have, is told so (§7.4.1) and is counted.
#[tokio::test]
async fn a_message_without_end_is_refused() {
    let running = Binding::Ws.infrastructure().await;
    let url = Binding::Ws.url(&running);
    // Frames without FIN (§5.2): the first of a text, and continuations.
    let begin = masked(0x01, 0);
    let cases: [(Vec<u8>, u16); 3] =
        [(masked(0x00, 0), 1008), (masked(0x00, 1), 1008), (masked(0x00, u16::MAX), 1009)];
    for (refused, (frame, expected)) in (0_u64..).zip(cases) {
        let stream = TcpStream::connect(running.ws_addresses()[0]).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
        let (mut reads, mut writes) = socket.into_inner().into_split();
        let begin = begin.clone();
        let flood = tokio::spawn(async move {
            writes.write_all(&begin).await?;
            // Beyond any bound, and an end for this test.
            for _ in 0..1_000_000 {
                writes.write_all(&frame).await?;
            }
            Ok::<_, std::io::Error>(())
        });
        let mut close = [0; 4];
        let told = tokio::time::timeout(PATIENCE, reads.read_exact(&mut close)).await;
        told.expect("told in time").unwrap();
        assert_eq!((close[0], u16::from_be_bytes([close[2], close[3]])), (0x88, expected));
        drop(reads);
        flood.abort();
        let count = || running.counters().into_iter().find(|it| it.0 == "ws_messages_refused");
        let counted = async {
            while count().map(|it| it.1) != Some(refused + 1) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, counted).await.expect("counted");
    }
    running.stop().await;
}

/// A masked frame (RFC 6455 §5.2) of so many octets.
fn masked(flags: u8, length: u16) -> Vec<u8> {
    let mut frame = vec![flags];
    if let Ok(short @ 0..126) = u8::try_from(length) {
        frame.push(0x80 | short);
    } else {
        frame.push(0x80 | 0x7e);
        frame.extend(length.to_be_bytes());
    }
    frame.extend([0; 4]);
    frame.resize(frame.len() + usize::from(length), b' ');
    frame
}

/// What one address may have open counts for HTTP and WebSocket together.
#[tokio::test]
async fn one_address_has_its_connections_over_both() {
    let mut cse = gatewright_onem2m::CseConfig::new(CseType::Infrastructure, "/id-in", "cse-in");
    cse.admin = Some("CAdmin".to_owned());
    let mut config = CseServerConfig::new(cse);
    config.listen = vec!["127.0.0.1:0".parse().unwrap()];
    config.listen_ws = config.listen.clone();
    config.connections_per_peer_max = 2;
    let running = start(config).await.unwrap();
    let (http, ws) = (running.addresses()[0], running.ws_addresses()[0]);
    // One of each, let in: each has said something.
    let first = TcpStream::connect(ws).await.unwrap();
    let url = Binding::Ws.url(&running);
    let (first, _) = tokio_tungstenite::client_async(&url, first).await.unwrap();
    let mut second = TcpStream::connect(http).await.unwrap();
    second.write_all(b"GET /cse-in HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert_eq!(second.read(&mut [0; 1]).await.unwrap(), 1);
    for address in [ws, http] {
        let mut third = TcpStream::connect(address).await.unwrap();
        let mut told = String::new();
        let read = tokio::time::timeout(PATIENCE, third.read_to_string(&mut told)).await;
        assert!(read.unwrap().is_ok() && told.starts_with("HTTP/1.1 503 "), "{told}");
    }
    let counters = running.counters();
    for name in ["ws_connections_refused", "http_connections_refused"] {
        assert!(counters.contains(&(name, 1)), "{counters:?}");
    }
    drop((first, second));
    wait_for(&Binding::Ws.admin_of(&running, "a"), "cse-in").await;
    running.stop().await;
}

#[tokio::test]
async fn requests_between_two_of_ours_go_both_ways() {
    chain(Binding::Ws).await;
}
