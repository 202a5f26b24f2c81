//! Over CoAP: our client at our CSE, two of our CSEs, and the message layer against libcoap
//! (Debian: libcoap3-bin) in both roles.
//!
//! Without libcoap's programs in the path their tests are skipped, and say so.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod shared;

use gatewright_bindings::client::Client;
use gatewright_onem2m::coap::primitive::option;
use gatewright_onem2m::coap::{CoapMessage, Endpoint, Input, Limits, Output, RequestId};
use gatewright_onem2m::{ResourceType, Serialisation, Status};
use gatewright_testbed::{free_port, python_program};
use gatewright_wire::coap::{Builder, Code, Message, MessageType, OptionNumber};
use libtest_mimic::{Arguments, Trial};
use shared::{Binding, block_on, chain, long};
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Libcoap's client and server, built without TLS.
const CLIENT: &str = "coap-client-notls";
const SERVER: &str = "coap-server-notls";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // Both print their usage and end, if they are there.
    let peer = |program: &str| {
        let mut command = Command::new(program);
        command.arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let trial = |name: &str, run: fn(), present: bool| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
        .with_ignored_flag(!present)
    };
    let peer_of_python = !arguments.list && aiocoap().is_some();
    let trials = vec![
        trial("our_client_at_our_cse", || block_on(ours_at_ours()), true),
        trial("libcoaps_client_at_our_endpoint", libcoap_client, peer(CLIENT)),
        trial("our_endpoint_at_libcoaps_server", libcoap_server, peer(SERVER)),
        trial("aiocoap_observes_the_latest_reading", aiocoap_observes, peer_of_python),
        trial("an_observer_that_acknowledges_nothing_is_told_once", silent_observer, true),
        trial("an_observer_whose_port_is_closed_is_removed_at_once", closed_observer, true),
        trial("requests_between_two_of_ours_go_both_ways", || block_on(chain(Binding::Coap)), true),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Its Python, with aiocoap (PyPI) beside it: libcoap's client takes no answer with options that it
/// does not know, and those of TS-0008 are critical.
fn aiocoap() -> Option<PathBuf> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("aiocoap-venv");
    let program = python_program(&place, AIOCOAP, "aiocoap-client")?;
    Some(program.with_file_name("python3"))
}

const AIOCOAP: &str = "aiocoap==0.4.17";

/// Observes what its argument names, and prints each answer in a line.
const OBSERVER: &str = r#"
import asyncio, sys, aiocoap
from aiocoap.numbers import OptionNumber
from aiocoap.optiontypes import OpaqueOption

async def main():
    context = await aiocoap.Context.create_client_context()
    message = aiocoap.Message(code=aiocoap.GET, uri=sys.argv[1], observe=0)
    for number, value in ((271, b"4"), (279, b"CAdmin"), (283, b"observer")):
        message.opt.add_option(OpaqueOption(OptionNumber(number), value))
    request = context.request(message)
    first = await request.response
    print(first.code, first.payload.decode(), flush=True)
    async for later in request.observation:
        print(later.code, later.payload.decode(), flush=True)

asyncio.run(main())
"#;

async fn create(client: &Client, kind: ResourceType, to: &str, content: &str) {
    let made = client.create(to, kind, content).await.unwrap();
    assert_eq!(made.status, Status::Created, "{made:?}");
}

/// It hears of each reading that is the latest when it listens, and of the container's end.
fn aiocoap_observes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(Binding::Coap.infrastructure());
    let client = Binding::Coap.admin_of(&running, "o");
    let create =
        |kind, to: &str, content: &str| runtime.block_on(create(&client, kind, to, content));
    create(ResourceType::Container, "cse-in", r#"{"m2m:cnt":{"rn":"c","mni":2}}"#);
    create(ResourceType::ContentInstance, "cse-in/c", r#"{"m2m:cin":{"con":"value 0"}}"#);
    let mut command = Command::new(aiocoap().unwrap());
    command.args(["-c", OBSERVER, &format!("{}/cse-in/c/la", Binding::Coap.url(&running))]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Peer(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut heard = |what: &str| {
        for line in lines.by_ref() {
            if line.unwrap().contains(what) {
                return;
            }
        }
        panic!("it has not heard of {what}");
    };
    heard("value 0");
    for number in 1..=3 {
        let content = format!(r#"{{"m2m:cin":{{"con":"value {number}"}}}}"#);
        create(ResourceType::ContentInstance, "cse-in/c", &content);
        heard(&format!("value {number}"));
    }
    let deleted = runtime.block_on(client.delete("cse-in/c")).unwrap();
    assert_eq!(deleted.status, Status::Deleted);
    heard("4.04");
    let counters = running.counters();
    let count = |name: &str| counters.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(count("coap_notifications") >= 4 && count("observed") >= 4);
    runtime.block_on(running.stop());
}

/// An observer that is only sockets: it acknowledges what it is told to.
struct BareObserver(UdpSocket);

impl BareObserver {
    /// Registers at `cse-in/c`, with its number as token.
    fn register(server: SocketAddr, number: u16) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
        let (mut octets, token) = ([0; 256], number.to_be_bytes());
        let mut builder =
            Builder::new(&mut octets, MessageType::CONFIRMABLE, Code::GET, number, &token).unwrap();
        let asked = format!("o{number}");
        let options: [(OptionNumber, &[u8]); 6] = [
            (OptionNumber::OBSERVE, b""),
            (OptionNumber::URI_PATH, b"cse-in"),
            (OptionNumber::URI_PATH, b"c"),
            (option::RVI, b"4"),
            (option::FR, b"CAdmin"),
            (option::RQI, asked.as_bytes()),
        ];
        for (number, value) in options {
            builder.option(number, value).unwrap();
        }
        socket.send(builder.payload(&[]).unwrap()).unwrap();
        let observer = Self(socket);
        let (_, answer, _) = observer.heard().expect("an answer");
        assert_eq!(answer, MessageType::ACKNOWLEDGEMENT);
        observer
    }

    /// The next message within 1.5 s, before anything is sent again: its number, type and content.
    fn heard(&self) -> Option<(u16, MessageType, String)> {
        let mut buffer = [0; 2_048];
        let length = self.0.recv(&mut buffer).ok()?;
        let message = Message::parse(&buffer[..length]).unwrap();
        assert!(message.uint(OptionNumber::OBSERVE).is_some(), "{message:?}");
        let text = String::from_utf8(message.payload().to_vec()).unwrap();
        Some((message.message_id(), message.message_type(), text))
    }

    fn acknowledge(&self, id: u16) {
        let [high, low] = id.to_be_bytes();
        self.0.send(&[0x60, 0, high, low]).unwrap();
    }
}

/// Whatever is written, it is looked up and sent once; when it has acknowledged that, it is told the
/// newest.
fn silent_observer() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(Binding::Coap.infrastructure());
    let client = Binding::Coap.admin_of(&running, "o");
    let create =
        |kind, to: &str, content: &str| runtime.block_on(create(&client, kind, to, content));
    create(ResourceType::Container, "cse-in", r#"{"m2m:cnt":{"rn":"c"}}"#);
    let url = Binding::Coap.url(&running);
    let observer = BareObserver::register(url.trim_start_matches("coap://").parse().unwrap(), 7);
    for _ in 0..5 {
        create(ResourceType::ContentInstance, "cse-in/c", r#"{"m2m:cin":{"con":"1"}}"#);
    }
    let (id, kind, first) = observer.heard().expect("a notification");
    assert_eq!(kind, MessageType::CONFIRMABLE);
    assert!(!first.contains(r#""cni":5"#), "{first}");
    assert_eq!(observer.heard(), None);
    let count = |name: &str| running.counters().iter().find(|(it, _)| *it == name).unwrap().1;
    // What was written before the first answer was sent may have been looked up for that.
    let observed = count("observed");
    assert!((1..=2).contains(&observed), "{observed}");
    assert_eq!(count("coap_notifications"), 1);
    observer.acknowledge(id);
    let (_, _, newest) = observer.heard().expect("another one");
    assert!(newest.contains(r#""cni":5"#), "{newest}");
    assert_eq!(count("observed"), observed + 1);
    runtime.block_on(running.stop());
}

/// An observer that is gone is removed at the first notification: its host says by ICMP that the port is
/// closed. Others hear on, and one comes back with the same port.
fn closed_observer() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(Binding::Coap.infrastructure());
    let client = Binding::Coap.admin_of(&running, "o");
    let create =
        |kind, to: &str, content: &str| runtime.block_on(create(&client, kind, to, content));
    create(ResourceType::Container, "cse-in", r#"{"m2m:cnt":{"rn":"c"}}"#);
    let server = Binding::Coap.url(&running).trim_start_matches("coap://").parse().unwrap();
    let count = |name: &str| running.counters().iter().find(|(it, _)| *it == name).unwrap().1;
    let (gone, there) = (BareObserver::register(server, 7), BareObserver::register(server, 8));
    drop(gone);
    let asked = Instant::now();
    create(ResourceType::ContentInstance, "cse-in/c", r#"{"m2m:cin":{"con":"1"}}"#);
    // Long before anything is sent again (2 s at the least).
    while count("coap_observers_unreachable") == 0 {
        assert!(asked.elapsed() < Duration::from_millis(1_900), "{:?}", running.counters());
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 1..4 {
        let (id, _, _) = there.heard().expect("a notification");
        there.acknowledge(id);
        assert_eq!(count("coap_notifications"), 1 + number);
        create(ResourceType::ContentInstance, "cse-in/c", r#"{"m2m:cin":{"con":"1"}}"#);
    }
    assert_eq!((count("coap_observers_unreachable"), count("coap_retransmitted")), (1, 0));
    runtime.block_on(running.stop());
}

/// Every operation, bodies of one datagram and of many, in both serialisations.
async fn ours_at_ours() {
    let running = Binding::Coap.infrastructure().await;
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let prefix = format!("{serialisation:?}");
        let client =
            Client::new(Binding::Coap.url(&running), "CAdmin", &*prefix).writing(serialisation);
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{prefix}"}}}}"#);
        let made = client.create("cse-in", ResourceType::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        for length in [1, 900, 1_024, 2_048, 50_000] {
            let value = long(length);
            let content = format!(r#"{{"m2m:cin":{{"rn":"i{length}","con":"{value}"}}}}"#);
            let to = format!("cse-in/{prefix}");
            let made = client.create(&to, ResourceType::ContentInstance, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{length}: {made:?}");
            let again = client.create(&to, ResourceType::ContentInstance, &content).await.unwrap();
            assert_eq!(again.status, Status::Conflict);
            let read = client.get(&format!("{to}/la")).await.unwrap();
            let read: serde_json::Value = serde_json::from_str(&read.content.unwrap()).unwrap();
            assert_eq!(read["m2m:cin"]["con"], value);
        }
        let found = client.get(&format!("cse-in/{prefix}?fu=1&ty=4")).await.unwrap();
        assert!(found.content.unwrap().contains("i50000"));
        let to = format!("cse-in/{prefix}");
        let updated = client.update(&to, r#"{"m2m:cnt":{"lbl":["x"]}}"#).await.unwrap();
        assert_eq!(updated.status, Status::Updated);
        let deleted = client.delete(&to).await.unwrap();
        assert_eq!(deleted.status, Status::Deleted);
        assert_eq!(client.get(&to).await.unwrap().status, Status::NotFound);
    }
    let nobody = Client::new(Binding::Coap.url(&running), "CNobody", "n");
    let refused = nobody.get("cse-in").await.unwrap();
    assert_eq!(refused.status, Status::OriginatorHasNoPrivilege);
    let counters: Vec<_> = running.counters();
    let count = |name: &str| counters.iter().find(|(known, _)| *known == name).unwrap().1;
    assert!(count("coap_asked") >= 30);
    assert_eq!(count("coap_malformed"), 0);
    running.stop().await;
}

/// An endpoint on a socket of the standard library, without oneM2M: libcoap turns away messages
/// with options that it does not know, and those of TS-0008 are critical.
struct Plain {
    udp: UdpSocket,
    endpoint: Endpoint,
    started: Instant,
}

impl Plain {
    fn new() -> Self {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let knows = |number| number == OptionNumber::CONTENT_FORMAT;
        let endpoint = Endpoint::new(Limits::default(), knows, [1, 2]);
        Self { udp, endpoint, started: Instant::now() }
    }

    /// Takes what there is, and gives what is not a datagram.
    fn turn(&mut self) -> Vec<Output> {
        let mut buffer = [0; 2_048];
        let received = self.udp.recv_from(&mut buffer);
        let input = match &received {
            Ok((length, from)) => Input::Datagram { from: *from, octets: &buffer[..*length] },
            Err(_) => Input::Tick,
        };
        self.endpoint.handle(self.started.elapsed(), input);
        let mut outputs = Vec::new();
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                Output::Send { to, octets } => drop(self.udp.send_to(&octets, to)),
                other => outputs.push(other),
            }
        }
        outputs
    }

    fn give(&mut self, input: Input<'_>) {
        self.endpoint.handle(self.started.elapsed(), input);
    }

    /// Asks and waits for the answer.
    fn ask(&mut self, to: SocketAddr, message: CoapMessage) -> CoapMessage {
        self.give(Input::Request { id: RequestId(1), to, message });
        loop {
            for output in self.turn() {
                if let Output::Answered { answer, .. } = output {
                    return answer.unwrap();
                }
            }
        }
    }
}

/// What a peer started here is ended with.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A resource at an endpoint of ours that keeps what is put: for libcoap's client, which puts and
/// gets it in blocks of different sizes and observes it.
fn libcoap_client() {
    let mut server = Plain::new();
    let url = format!("coap://{}/x", server.udp.local_addr().unwrap());
    let mut kept = b"empty".to_vec();
    let value = long(5_000);
    for (arguments, expected) in [
        (vec!["-m", "get"], "empty".to_owned()),
        (vec!["-m", "put", "-b", "256", "-e", &value], String::new()),
        (vec!["-m", "get"], value.clone()),
        (vec!["-m", "get", "-b", "64"], value.clone()),
        (vec!["-m", "put", "-e", "short"], String::new()),
        (vec!["-m", "get", "-N"], "short".to_owned()),
        (vec!["-m", "delete"], "4.05".to_owned()),
        // If-Match is critical and not known.
        (vec!["-m", "get", "-O", "1,x"], "4.02".to_owned()),
    ] {
        let mut command = Command::new(CLIENT);
        command.args(["-B", "120"]).args(&arguments).arg(&url).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut child = Peer(child);
        while child.0.try_wait().unwrap().is_none() {
            for output in server.turn() {
                serve(&mut server, output, &mut kept);
            }
        }
        let (mut printed, mut words) = (String::new(), String::new());
        child.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        child.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        let said = if expected.starts_with("4.") { words } else { printed };
        assert!(said.contains(&expected), "{arguments:?}: {said:?}");
    }
    observe(&mut server, &url);
}

fn serve(server: &mut Plain, output: Output, kept: &mut Vec<u8>) {
    let Output::Asked { id, message, .. } = output else {
        panic!("{output:?}");
    };
    let answer = match message.code {
        Code::GET => CoapMessage { payload: kept.clone(), ..CoapMessage::new(Code::CONTENT) },
        Code::PUT => {
            *kept = message.payload;
            CoapMessage::new(Code::CHANGED)
        }
        _ => CoapMessage::new(Code::METHOD_NOT_ALLOWED),
    };
    server.give(Input::Respond { id, message: answer });
}

/// It is told of each change, and goes away by asking for no more.
fn observe(server: &mut Plain, url: &str) {
    let mut command = Command::new(CLIENT);
    command.args(["-s", "8", "-B", "120", "-m", "get", url]).stdin(Stdio::null());
    let mut child = Peer(command.stdout(Stdio::piped()).spawn().unwrap());
    let (mut observer, mut told, mut gone) = (None, 0, false);
    let mut end = None;
    loop {
        // What it sent last may arrive after it has ended.
        if child.0.try_wait().unwrap().is_some() {
            let end = *end.get_or_insert_with(|| Instant::now() + Duration::from_secs(10));
            if gone || Instant::now() > end {
                break;
            }
        }
        for output in server.turn() {
            let state = |told: u32| {
                let mut message = CoapMessage::new(Code::CONTENT);
                message.payload = format!("state {told};").into();
                message.put(OptionNumber::OBSERVE, []);
                message
            };
            match output {
                Output::Asked { id, observes, .. } => {
                    if observes {
                        observer = Some(id);
                    }
                    server.give(Input::Respond { id, message: state(told) });
                }
                Output::Unobserved(_) => gone = true,
                Output::Acknowledged(_) => {}
                other => panic!("{other:?}"),
            }
        }
        if let (Some(id), true) = (observer, told < 5 && !gone) {
            told += 1;
            let mut message = CoapMessage::new(Code::CONTENT);
            message.payload = format!("state {told};").into();
            server.give(Input::Notify { id, message });
        }
    }
    let mut printed = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(gone, "libcoap deregisters at its end: {printed}");
    assert!(printed.contains("state 0;") && printed.contains("state 5;"), "{printed}");
}

/// Libcoap's example server: an answer in blocks, a body put in blocks, a separate response.
fn libcoap_server() {
    let port = free_port();
    let mut command = Command::new(SERVER);
    command.args(["-A", "127.0.0.1", "-p", &port.to_string(), "-d", "10"]);
    let _peer = Peer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let ask = |code: Code, path: &[&str], query: &str, payload: &[u8]| {
        let mut message = CoapMessage { payload: payload.to_vec(), ..CoapMessage::new(code) };
        for segment in path {
            message.put(OptionNumber::URI_PATH, *segment);
        }
        if !payload.is_empty() {
            message.put_uint(OptionNumber::CONTENT_FORMAT, 0);
        }
        if !query.is_empty() {
            message.put(OptionNumber::URI_QUERY, query);
        }
        Plain::new().ask(to, message)
    };
    // The first request may be sent again until the server is up.
    let time = ask(Code::GET, &["time"], "", b"");
    assert_eq!(time.code, Code::CONTENT);
    let value = long(3_000);
    let put = ask(Code::PUT, &["example_data"], "", value.as_bytes());
    assert!(put.code.class() == 2, "{put:?}");
    let got = ask(Code::GET, &["example_data"], "", b"");
    assert_eq!(got.payload, value.as_bytes());
    let later = ask(Code::GET, &["async"], "2", b"");
    assert_eq!((later.code, later.payload.as_slice()), (Code::CONTENT, b"done".as_slice()));
    assert_eq!(ask(Code::GET, &["nothing"], "", b"").code, Code::NOT_FOUND);
}
