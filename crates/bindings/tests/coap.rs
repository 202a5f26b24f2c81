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

use gatewright_bindings::client::Client;
use gatewright_bindings::cse::{Config, Running, start};
use gatewright_onem2m::coap::{Endpoint, Input, Limits, Message, Output, RequestId};
use gatewright_onem2m::{CseType, Kind, Operation, Serialisation, Status};
use gatewright_wire::coap::{Code, OptionNumber};
use libtest_mimic::{Arguments, Trial};
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
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
    let trials = vec![
        trial("our_client_at_our_cse", || block_on(ours_at_ours()), true),
        trial("libcoaps_client_at_our_endpoint", libcoap_client, peer(CLIENT)),
        trial("our_endpoint_at_libcoaps_server", libcoap_server, peer(SERVER)),
        trial("requests_between_two_of_ours_go_both_ways", || block_on(chain()), true),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(future);
}

async fn cse(
    kind: CseType,
    id: &str,
    name: &str,
    more: impl FnOnce(&mut gatewright_onem2m::Config),
) -> Running {
    let mut cse = gatewright_onem2m::Config::new(kind, id, name);
    cse.admin = Some("CAdmin".to_owned());
    more(&mut cse);
    let mut config = Config::new(cse);
    config.listen_coap = vec!["127.0.0.1:0".parse().unwrap()];
    start(config).await.unwrap()
}

fn url(running: &Running) -> String {
    format!("coap://{}", running.coap_addresses().next().unwrap())
}

/// A value of so many characters.
fn long(length: usize) -> String {
    (0..length).map(|at| char::from(b'a' + u8::try_from(at % 26).unwrap())).collect()
}

/// Every operation, bodies of one datagram and of many, in both serialisations.
async fn ours_at_ours() {
    let running = cse(CseType::Infrastructure, "/id-in", "cse-in", |_| {}).await;
    for serialisation in [Serialisation::Json, Serialisation::Cbor] {
        let prefix = format!("{serialisation:?}");
        let client = Client::new(url(&running), "CAdmin", &*prefix).writing(serialisation);
        let container = format!(r#"{{"m2m:cnt":{{"rn":"{prefix}"}}}}"#);
        let made = client.create("cse-in", Kind::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        for length in [1, 900, 1_024, 2_048, 50_000] {
            let value = long(length);
            let content = format!(r#"{{"m2m:cin":{{"rn":"i{length}","con":"{value}"}}}}"#);
            let to = format!("cse-in/{prefix}");
            let made = client.create(&to, Kind::ContentInstance, &content).await.unwrap();
            assert_eq!(made.status, Status::Created, "{length}: {made:?}");
            let again = client.create(&to, Kind::ContentInstance, &content).await.unwrap();
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
    let nobody = Client::new(url(&running), "CNobody", "n");
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
    fn ask(&mut self, to: SocketAddr, message: Message) -> Message {
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
        command.args(["-B", "30"]).args(&arguments).arg(&url).stdin(Stdio::null());
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
        Code::GET => Message { payload: kept.clone(), ..Message::new(Code::CONTENT) },
        Code::PUT => {
            *kept = message.payload;
            Message::new(Code::CHANGED)
        }
        _ => Message::new(Code::METHOD_NOT_ALLOWED),
    };
    server.give(Input::Respond { id, message: answer });
}

/// It is told of each change, and goes away by asking for no more.
fn observe(server: &mut Plain, url: &str) {
    let mut command = Command::new(CLIENT);
    command.args(["-s", "3", "-B", "30", "-m", "get", url]).stdin(Stdio::null());
    let mut child = Peer(command.stdout(Stdio::piped()).spawn().unwrap());
    let (mut observer, mut told, mut gone) = (None, 0, false);
    while child.0.try_wait().unwrap().is_none() {
        for output in server.turn() {
            let state = |told: u32| {
                let mut message = Message::new(Code::CONTENT);
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
                other => panic!("{other:?}"),
            }
        }
        if let (Some(id), true) = (observer, told < 5 && !gone) {
            told += 1;
            let mut message = Message::new(Code::CONTENT);
            message.payload = format!("state {told};").into();
            server.give(Input::Notify { id, message });
        }
    }
    assert!(gone, "libcoap deregisters at its end");
    let mut printed = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.contains("state 0;") && printed.contains("state 5;"), "{printed}");
}

/// Libcoap's example server: an answer in blocks, a body put in blocks, a separate response.
fn libcoap_server() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(SERVER);
    command.args(["-A", "127.0.0.1", "-p", &port.to_string(), "-d", "10"]);
    let _peer = Peer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let ask = |code: Code, path: &[&str], query: &str, payload: &[u8]| {
        let mut message = Message { payload: payload.to_vec(), ..Message::new(code) };
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

/// An MN registers at an IN over CoAP; requests are sent on in both directions, large ones too.
async fn chain() {
    let upper = cse(CseType::Infrastructure, "/id-in", "cse-in", |cse| {
        cse.admitted_cses = vec!["/id-mn".to_owned()];
    })
    .await;
    let registrar = gatewright_onem2m::Registrar {
        cse_id: "/id-in".to_owned(),
        name: "cse-in".to_owned(),
        url: url(&upper),
    };
    let lower =
        cse(CseType::Middle, "/id-mn", "cse-mn", |cse| cse.registrar = Some(registrar)).await;
    let (above, below) =
        (Client::new(url(&upper), "CAdmin", "a"), Client::new(url(&lower), "CAdmin", "b"));
    for _ in 0..300 {
        if lower.engine().is_registered() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(lower.engine().is_registered());
    for (client, near) in [(&above, "cse-in"), (&below, "cse-mn")] {
        let policy = r#"{"m2m:acp":{"rn":"p","pv":{"acr":[{"acor":["all"],"acop":63}]},
            "pvs":{"acr":[{"acor":["CAdmin"],"acop":63}]}}}"#;
        let made = client.create(near, Kind::AccessControlPolicy, policy).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let container = format!(r#"{{"m2m:cnt":{{"rn":"c","acpi":["{near}/p"]}}}}"#);
        let made = client.create(near, Kind::Container, &container).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
    }
    for (client, far) in [(&above, "/id-mn/cse-mn/c"), (&below, "/id-in/cse-in/c")] {
        let value = long(3_000);
        let content = format!(r#"{{"m2m:cin":{{"rn":"i","con":"{value}"}}}}"#);
        let request = client.request(Operation::Create, far).unwrap();
        let made = client.ask(&request.creating(Kind::ContentInstance, content)).await.unwrap();
        assert_eq!(made.status, Status::Created, "{made:?}");
        let read = client.get(&format!("{far}/la")).await.unwrap();
        assert!(read.content.unwrap().contains(&value));
    }
    lower.stop().await;
    upper.stop().await;
}
