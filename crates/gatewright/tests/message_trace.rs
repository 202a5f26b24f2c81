//! `gatewright gw trace --at`: a message of a running gateway, traced over real sockets, and saved as
//! a test that repeats it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, Said, WITHIN, examples, folder, gatewright};
use gatewright_web::tokens::{AccessRole, TokenFile};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// A gateway with one program of the examples.
fn start(name: &str, text: &str, modules: &[&str], description: &str) -> Daemon {
    let folder = folder(&format!("message-trace-{name}"));
    for module in modules {
        fs::copy(examples().join(module), folder.join(module)).unwrap();
    }
    fs::write(folder.join("program.gate"), text).unwrap();
    Daemon::start(folder, description)
}

/// The port at which the first role listens.
fn port(daemon: &Daemon) -> u16 {
    let said = daemon.said();
    let port = |line: &str| line.trim().rsplit_once(':')?.1.parse().ok();
    said.lines().find_map(port).unwrap_or_else(|| panic!("{said}"))
}

/// Traces the next message at `at` and saves it; `ask` makes requests until then.
fn trace(daemon: &Daemon, at: &str, saved: &Path, mut ask: impl FnMut()) -> Said {
    let socket = daemon.folder.join("socket");
    let arguments = ["gw", "trace", "--at", at, "--seconds", "30", "--save"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
        .args(arguments)
        .args([saved, Path::new("--socket"), &socket])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whether it waits already cannot be seen: there are requests until it has one.
    while child.try_wait().unwrap().is_none() {
        ask();
    }
    let output = child.wait_with_output().unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// A mail server that takes everything.
fn mail_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut out = &stream;
                let mut is_content = false;
                let _gone = out.write_all(b"220 ready\r\n");
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    let answer: &[u8] = match (line.as_str(), is_content) {
                        ("DATA", false) => b"354 go\r\n",
                        (".", true) => b"250 queued\r\n",
                        (_, true) => continue,
                        _ => b"250 ok\r\n",
                    };
                    is_content = answer.starts_with(b"354");
                    if out.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// Posts a mail over a connection of its own; returns the answer's status line.
fn post(port: u16, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let head = "POST /mail HTTP/1.1\r\nHost: t\r\nX-Mail-From: <a@x>\r\nX-Rcpt-To: <b@y>\r\n";
    let length = body.len();
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n").as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_message_over_tcp_is_traced_and_its_test_repeats_it() {
    let text = fs::read_to_string(examples().join("http_to_smtp.gate")).unwrap();
    let at = format!("[\"web=127.0.0.1:0\", \"next=127.0.0.1:{}\"]", mail_server());
    let description = format!("[[program]]\nfile = \"program.gate\"\nat = {at}\n");
    let daemon = start("tcp", &text, &["http.gate", "smtp.gate"], &description);
    let web = port(&daemon);
    // The connection that is kept after this is not what the traced message opens.
    assert!(post(web, "before\r\n").contains("200"));
    let saved = daemon.folder.join("saved.gate");
    let said = trace(&daemon, "gateway:http_to_smtp/post", &saved, || {
        assert!(post(web, "Subject: hello\r\n\r\n{there}\r\n").contains("200"));
    });
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    for wanted in ["started   web.post", "sent      next \"HELO", "ended     web.post"] {
        assert!(said.out.contains(wanted), "{wanted}: {}", said.out);
    }
    let test = fs::read_to_string(&saved).unwrap();
    assert!(
        test.starts_with("use \"program.gate\"\n\ntest \"recorded at web.post\" {\n"),
        "{test}"
    );
    assert!(test.contains("next sees \"MAIL FROM:<a@x>\\r\\n\""), "{test}");
    let said = gatewright(&["gw", "test", "--every-split", saved.to_str().unwrap()]);
    assert!(said.code == 0 && said.out.contains("1 of 1 tests pass"), "{}{}", said.out, said.err);
    // Another answer of the mail server is another conversation: the saved test says so.
    let other = test.replace("250 queued", "452 full");
    fs::write(&saved, other).unwrap();
    let said = gatewright(&["gw", "test", saved.to_str().unwrap()]);
    assert!(said.code == 1 && said.err.contains("503 full"), "{}{}", said.out, said.err);
}

/// A Modbus device whose registers hold 258; the units that it is asked as.
fn device() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut query = [0; 12];
                while stream.read_exact(&mut query).is_ok() {
                    let [high, low, .., unit, _, _, _, _, _] = query;
                    let result = [high, low, 0, 0, 0, 5, unit, 3, 2, 1, 2];
                    if stream.write_all(&result).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn a_datagram_is_traced_with_its_fresh_numbers_and_parameters() {
    let text = fs::read_to_string(examples().join("coap_to_modbus.gate")).unwrap();
    let text = text.replace("    on get", "    parameter unit: 1..247 = 1\n\n    on get");
    let text = text.replace("unit: 1,", "unit: unit,");
    let at = format!("[\"things=127.0.0.1:0\", \"device=127.0.0.1:{}\"]", device());
    let description =
        format!("[[program]]\nfile = \"program.gate\"\nat = {at}\nset = [\"unit=9\"]\n");
    let daemon = start("udp", &text, &["coap.gate", "modbus.gate"], &description);
    let things = port(&daemon);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let mut id = 0_u16;
    // GET /registers/40 (RFC 7252 §3).
    let mut get = || {
        id += 1;
        let path = [b"\xb9registers".as_slice(), b"\x0240"].concat();
        let packet = [&[0x40, 1], &id.to_be_bytes()[..], &path].concat();
        socket.send_to(&packet, ("127.0.0.1", things)).unwrap();
        let mut answer = [0; 100];
        let length = socket.recv(&mut answer).unwrap();
        assert!(answer[..length].ends_with(b"258"), "{:?}", &answer[..length]);
    };
    get();
    let saved = daemon.folder.join("saved.gate");
    let said = trace(&daemon, "gateway:coap_to_modbus/things.get", &saved, get);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("read      modbus.result"), "{}", said.out);
    let test = fs::read_to_string(&saved).unwrap();
    assert!(test.contains("    parameter unit = 9\n    device fresh "), "{test}");
    let said = gatewright(&["gw", "test", "--every-split", saved.to_str().unwrap()]);
    assert!(said.code == 0 && said.out.contains("1 of 1 tests pass"), "{}{}", said.out, said.err);
}

/// A broker that accepts clients, and takes what they publish.
fn broker() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut octets = [0; 1024];
                // CONNACK (MQTT 3.1.1 §3.2).
                let _gone =
                    client.read(&mut octets).and_then(|_| client.write_all(b"\x20\x02\0\0"));
                while client.read(&mut octets).is_ok_and(|read| read > 0) {}
            });
        }
    });
    port
}

/// The connection that all sessions share was open before: the traced message opens another one, so
/// the test has what the broker said to it.
#[test]
fn a_message_over_a_shared_connection_is_traced_with_its_opening() {
    let text = fs::read_to_string(examples().join("coap_to_mqtt.gate")).unwrap();
    let broker = broker();
    let at = format!(
        "[\"apps=127.0.0.1:0\", \"feed=127.0.0.1:{broker}\", \"broker=127.0.0.1:{broker}\"]"
    );
    let description = format!("[[program]]\nfile = \"program.gate\"\nat = {at}\n");
    let daemon = start("shared", &text, &["coap.gate", "observe.gate", "mqtt.gate"], &description);
    let apps = port(&daemon);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let mut id = 0_u16;
    // PUT /a with `20` (RFC 7252 §3), which is published.
    let mut put = || {
        id += 1;
        let packet = [&[0x40, 3], &id.to_be_bytes()[..], b"\xb1a\xff20"].concat();
        socket.send_to(&packet, ("127.0.0.1", apps)).unwrap();
        let mut answer = [0; 100];
        let length = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[..length][1], 0x44, "2.04 Changed");
    };
    put();
    let saved = daemon.folder.join("saved.gate");
    let said = trace(&daemon, "gateway:coap_to_mqtt/put", &saved, put);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(!said.err.contains("may fail"), "{}", said.err);
    let test = fs::read_to_string(&saved).unwrap();
    assert!(test.contains("broker sends"), "{test}");
    let said = gatewright(&["gw", "test", "--every-split", saved.to_str().unwrap()]);
    assert!(said.code == 0 && said.out.contains("1 of 1 tests pass"), "{}{}", said.out, said.err);
}

#[test]
fn what_cannot_be_traced_is_told() {
    let text = fs::read_to_string(examples().join("coap_to_modbus.gate")).unwrap();
    let at = "[\"things=127.0.0.1:0\", \"device=127.0.0.1:9\"]";
    let description = format!("[[program]]\nfile = \"program.gate\"\nat = {at}\n");
    let daemon = start("refused", &text, &["coap.gate", "modbus.gate"], &description);
    let saved = daemon.folder.join("saved.gate").to_str().unwrap().to_owned();
    for (arguments, code, wanted) in [
        (
            &["--at", "gateway:coap_to_modbus/put"][..],
            1,
            "coap_to_modbus has no handler put: things.get",
        ),
        (&["--at", "gateway:other/get"], 1, "there is no program other: coap_to_modbus"),
        (&["--at", "udp:5683"], 1, "`udp:5683` is no position gateway:NAME/HANDLER"),
        (&["--at", "gateway:coap_to_modbus/*", "--seconds", "0.1"], 1, "no message has come"),
        (&["--save", &saved, "program.gate"], 2, "--save is for what --pcapng or --at records"),
    ] {
        let said = daemon.ask(&[&["gw", "trace"], arguments].concat());
        assert!(said.code == code && said.err.contains(wanted), "{} {}", said.code, said.err);
    }
    assert!(!Path::new(&saved).exists());
}

/// Asks the web interface at a Unix socket for a trace as an operator; returns the answer.
fn trace_by_web(socket: &Path, token: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /api/v1/trace HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The page shows octets, fields, statements and octets, and saves a test: without the program's text
/// and without values of parameters, which may be secret.
#[test]
fn a_message_is_traced_over_the_web_with_its_steps() {
    let text = fs::read_to_string(examples().join("http_to_smtp.gate")).unwrap();
    let at = format!("[\"web=127.0.0.1:0\", \"next=127.0.0.1:{}\"]", mail_server());
    let beside = folder("message-trace-web-beside");
    let token =
        TokenFile::new(beside.join("tokens")).add(AccessRole::Operator, "operator").unwrap();
    let (socket, beside) = (beside.join("web"), beside.display());
    let web = format!("[web]\nlisten = \"unix:{beside}/web\"\ntokens = \"{beside}/tokens\"\n");
    let description = format!("[[program]]\nfile = \"program.gate\"\nat = {at}\n{web}");
    let daemon = start("web", &text, &["http.gate", "smtp.gate"], &description);
    let port = port(&daemon);
    let body = "{\"position\":\"gateway:http_to_smtp/post\",\"seconds\":30}";
    let answer = thread::scope(|scope| {
        let asked = scope.spawn(|| trace_by_web(&socket, &token, body));
        while !asked.is_finished() {
            assert!(post(port, "Subject: hello\r\n\r\nthere\r\n").contains("200"));
        }
        asked.join().unwrap()
    });
    let data = answer.split("event: trace\ndata: ").nth(1).unwrap_or_else(|| panic!("{answer}"));
    let traced: Value = serde_json::from_str(data.lines().next().unwrap()).unwrap();
    assert_eq!((traced.get("texts"), traced.get("parameters")), (None, None));
    let test = &traced["test"];
    assert_eq!((&test["file"], &test["passed"]), (&"program.gate".into(), &true.into()), "{test}");
    let kinds: Vec<_> =
        test["steps"].as_array().unwrap().iter().map(|it| it["what"].as_str().unwrap()).collect();
    for wanted in ["arrived", "read", "started", "did", "sent", "ended"] {
        assert!(kinds.contains(&wanted), "{wanted}: {kinds:?}");
    }
    let saved = daemon.folder.join("saved.gate");
    fs::write(&saved, test["text"].as_str().unwrap()).unwrap();
    let said = gatewright(&["gw", "test", saved.to_str().unwrap()]);
    assert!(said.code == 0 && said.out.contains("1 of 1 tests pass"), "{}{}", said.out, said.err);
}
