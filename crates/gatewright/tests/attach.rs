//! `attach` at messages of gateway programs: count, capture, drop and rate-limit at handlers of a
//! running gateway, from the command line and from its description; tshark judges what is captured.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, Said, WITHIN, examples, folder, gatewright};
use gatewright_testbed::{Needs, wait_until};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Takes mail over HTTP, and readings over CoAP.
const DESK: &str = "use \"http.gate\"\nuse \"coap.gate\"\n\ngateway desk {
    role web = http server at \"127.0.0.1:8080\"
    role things = coap server at \"127.0.0.1:5683\"

    on post(request) { return answer(200, \"OK\") }

    on get(request) { return piggybacked(CONTENT, \"17\") }
}
";

fn main() -> ExitCode {
    let tshark = Needs::new().program("tshark").missing().is_some();
    let trials = vec![
        Trial::test("what_stands_at_a_handler_counts_and_refuses", || {
            counts_and_refuses();
            Ok(())
        }),
        Trial::test("a_description_attaches_and_a_reload_changes_it", || {
            described();
            Ok(())
        }),
        Trial::test("unknown_names_are_told_with_those_that_there_are", || {
            unknown();
            Ok(())
        }),
        Trial::test("captured_messages_are_read_by_tshark", || {
            captured();
            Ok(())
        })
        .with_ignored_flag(tshark),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A gateway that runs the desk.
struct Desk {
    daemon: Daemon,
    web: u16,
    things: u16,
}

impl Desk {
    /// Starts it with more lines in its description.
    fn start(name: &str, more: &str) -> Self {
        let folder = folder(&format!("attach-{name}"));
        for module in ["http.gate", "coap.gate"] {
            fs::copy(examples().join(module), folder.join(module)).unwrap();
        }
        fs::write(folder.join("desk.gate"), DESK).unwrap();
        let daemon = Daemon::start(folder, &description(more));
        let said = daemon.said();
        let port = |line: &str| line.trim().rsplit_once(':')?.1.parse().ok();
        let ports: Vec<u16> = said.lines().filter_map(port).collect();
        let [web, things, ..] = ports[..] else { panic!("{said}") };
        Self { daemon, web, things }
    }

    fn ask(&self, arguments: &[&str]) -> Said {
        self.daemon.ask(arguments)
    }

    /// Attaches something; its id.
    fn attach(&self, arguments: &[&str]) -> String {
        let said = self.ask(&[&["attach"], arguments].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        said.out.trim().to_owned()
    }

    /// What is attached by this id, as `status` tells.
    fn attached(&self, id: &str) -> Value {
        let status = self.ask(&["status", "--json"]).json();
        let list = status["attached"].as_array().unwrap();
        let found = list.iter().find(|one| one["id"].as_u64() == id.parse().ok());
        found.cloned().unwrap_or(Value::Null)
    }

    /// Posts a body of so many octets over a connection of its own; the answer's status.
    fn post(&self, length: usize) -> u16 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.web)).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let head = format!("POST /x HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n");
        // The gateway may refuse before all of it is there.
        let _refused = stream.write_all(&[head.as_bytes(), &vec![b'm'; length]].concat());
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        line.split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("{line}"))
    }

    /// Asks for a resource over CoAP; the code of the answer.
    fn get(&self, id: u8) -> u8 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        socket.send_to(&[0x40, 1, 0, id, 0xb1, b'x'], ("127.0.0.1", self.things)).unwrap();
        let mut answer = [0; 100];
        let (length, _) = socket.recv_from(&mut answer).unwrap();
        assert!(length >= 4 && answer[2..4] == [0, id], "{answer:?}");
        answer[1]
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let child = &mut self.daemon.child;
        let kill = format!("kill -INT {}", child.id());
        let _sent = Command::new("sh").args(["-c", &kill]).status();
        let ended = wait_until(WITHIN, || child.try_wait().is_ok_and(|end| end.is_some()));
        assert!(ended || std::thread::panicking(), "it ends when it is interrupted");
    }
}

fn description(more: &str) -> String {
    let at = "[\"web=127.0.0.1:0\", \"things=127.0.0.1:0\"]";
    format!("[[program]]\nfile = \"desk.gate\"\nat = {at}\n{more}")
}

/// RFC 9110 §15.6.4: 503; RFC 7252 §5.9.3.3: 5.02.
const UNAVAILABLE: u16 = 503;
const CONTENT: u8 = 0x45;
const BAD_GATEWAY: u8 = 0xa2;

fn counts_and_refuses() {
    let desk = Desk::start("counts", "");
    let count = desk.attach(&["count", "--at", "gateway:desk/web.post"]);
    let answers = desk.attach(&["count", "--at", "gateway:desk/post", "--side", "transmit"]);
    let all = desk.attach(&["count", "--at", "gateway:desk/*"]);
    let length = 100_000;
    assert_eq!([desk.post(length), desk.post(0)], [200, 200]);
    assert_eq!(desk.get(1), CONTENT);
    let head = |length: usize| {
        format!("POST /x HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n").len()
    };
    let octets = length + head(length) + head(0);
    let numbers = |id: &str| {
        let one = desk.attached(id);
        (one["messages"].as_u64().unwrap(), one["octets"].as_u64().unwrap())
    };
    let octets = u64::try_from(octets).unwrap();
    assert_eq!(numbers(&count), (2, octets));
    assert_eq!(numbers(&all), (3, octets + 6));
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".len();
    assert_eq!(numbers(&answers), (2, 2 * u64::try_from(answer).unwrap()));
    // What is refused is not seen by what stands behind.
    let drop = desk.attach(&["drop", "--at", "gateway:desk/post", "--field", "length=5"]);
    let behind = desk.attach(&["count", "--at", "gateway:desk/post"]);
    assert_eq!([desk.post(5), desk.post(6), desk.post(5)], [UNAVAILABLE, 200, UNAVAILABLE]);
    assert_eq!(desk.attached(&drop)["refused"], 2);
    assert_eq!((numbers(&count).0, numbers(&behind).0), (5, 1));
    assert_eq!(desk.ask(&["detach", &drop]).code, 0);
    assert_eq!((desk.post(5), desk.attached(&drop)), (200, Value::Null));
    // By the sender's network, over UDP.
    let drop = desk.attach(&["drop", "--at", "gateway:desk/get", "--source", "127.0.0.0/8"]);
    assert_eq!(desk.get(2), BAD_GATEWAY);
    assert_eq!(desk.ask(&["detach", &drop]).code, 0);
    let limit =
        desk.attach(&["rate-limit", "--at", "gateway:desk/get", "--rate", "1", "--burst", "2"]);
    // However slow the machine is, one of these comes within a second of the one before.
    let mut codes = Vec::new();
    while codes.last() != Some(&BAD_GATEWAY) && codes.len() < 200 {
        codes.push(desk.get(u8::try_from(3 + codes.len()).unwrap()));
    }
    assert!(codes[..2] == [CONTENT; 2] && codes.last() == Some(&BAD_GATEWAY), "{codes:?}");
    let refused = desk.attached(&limit)["refused"].as_u64().unwrap();
    assert_eq!(refused, 1);
    let page = desk.ask(&["status", "--metrics"]).out;
    for sample in [
        format!(
            "gatewright_attached_refused_messages_total{{id=\"{limit}\",handler=\"rate-limit\""
        ),
        "gatewright_programs_attached_dropped_total 3".to_owned(),
        format!(
            "gatewright_attached_messages_total{{id=\"{count}\",handler=\"count\",at=\"gateway:desk/web.post receive\"}} 6"
        ),
    ] {
        assert!(page.contains(&sample), "{sample} is not in {page}");
    }
    let top = desk.ask(&["top", "--once", "--json", "--interval", "0.05"]).json();
    let of_top = top["handlers"].as_array().unwrap();
    assert!(of_top.iter().all(|one| one["messages"] == true) && of_top.len() == 5, "{top}");
    let text = desk.ask(&["status"]).out;
    assert!(
        text.contains(&format!("handler {limit}: rate-limit gateway:desk/get receive")),
        "{text}"
    );
}

const COUNT: &str = "[[attach]]\nhandler = \"count\"\nat = \"gateway:desk/post\"\n";
const DROP: &str = "[[attach]]\nhandler = \"drop\"\nat = \"gateway:desk/web.post\"\n\
                    match = { source = \"127.0.0.1/32\", fields = [\"target=/x\"] }\n";

fn described() {
    let desk = Desk::start("described", COUNT);
    let by_command = desk.attach(&["count", "--at", "gateway:desk/get"]);
    assert_eq!(desk.post(3), 200);
    let list = || desk.ask(&["status", "--json"]).json()["attached"].clone();
    assert_eq!((&list()[0]["messages"], &list()[0]["handler"]), (&1.into(), &"count".into()));
    let file = desk.daemon.folder.join("gateway.toml");
    fs::write(&file, description(DROP)).unwrap();
    let said = desk.ask(&["reload"]);
    assert_eq!(said.code, 0, "{}", said.err);
    for change in ["count at gateway:desk/post: removed", "drop at gateway:desk/web.post: added"] {
        assert!(said.out.contains(change), "{}", said.out);
    }
    assert_eq!(desk.post(3), UNAVAILABLE);
    let now = list();
    let ids: Vec<_> = now.as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
    assert!(ids.len() == 2 && ids.contains(&by_command), "{now}");
    // What cannot stand there changes nothing.
    fs::write(&file, description(&COUNT.replace("desk/post", "desk/put"))).unwrap();
    let said = desk.ask(&["reload"]);
    assert!(said.code != 0 && said.err.contains("no handler put"), "{}", said.err);
    assert_eq!(list(), now);
}

fn unknown() {
    let desk = Desk::start("unknown", "");
    for (arguments, said) in [
        (&["count", "--at", "gateway:office/post"][..], "there is no program office: desk"),
        (&["count", "--at", "gateway:desk/put"], "desk has no handler put: web.post, things.get"),
        (&["count", "--at", "gateway:desk"], "a position of messages is gateway:NAME/HANDLER"),
        (
            &["drop", "--at", "gateway:desk/post", "--field", "colour=red"],
            "the requests of web.post have no field colour: method, target, minor, host, length",
        ),
        (
            &["drop", "--at", "gateway:desk/post", "--field", "length=long"],
            "field length is a number, and long is none",
        ),
        (&["drop", "--at", "gateway:desk/post", "--side", "transmit"], "refuses requests, not"),
        (&["mirror", "--at", "gateway:desk/post", "--to", "lan"], "`capture` writes messages to a"),
        (
            &["count", "--at", "gateway:desk/post", "--link", "lan"],
            "`link` does nothing with a position of messages",
        ),
        (&["count", "--at", "frame", "--field", "method=GET"], "packets have no fields"),
    ] {
        let answer = desk.ask(&[&["attach"], arguments].concat());
        assert!(answer.code != 0 && answer.err.contains(said), "{said}: {}", answer.err);
    }
    // A capture that cannot be leaves the file alone that it would have made anew.
    let old = desk.daemon.folder.join("old.pcapng");
    fs::write(&old, "of last week").unwrap();
    let misspelt = ["attach", "capture", "--at", "gateway:desk/pots", "--file"];
    assert_ne!(desk.ask(&[&misspelt[..], &[old.to_str().unwrap()]].concat()).code, 0);
    assert_eq!(fs::read_to_string(&old).unwrap(), "of last week");
    // `check` says it at its place.
    let file = desk.daemon.folder.join("wrong.toml");
    fs::write(&file, description(&COUNT.replace("desk/post", "desk/put"))).unwrap();
    let said = gatewright(&["check", file.to_str().unwrap()]);
    assert_eq!(said.code, 78);
    for part in ["GW0144", "wrong.toml:6:6", "no handler put: web.post, things.get"] {
        assert!(said.err.contains(part), "{part}: {}", said.err);
    }
}

/// What tshark reads in a capture: one line a packet with these fields.
fn tshark(file: &Path, decode: &[&str], fields: &[&str]) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=,", "-o", "tcp.check_checksum:TRUE"]);
    tshark.args(["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-r"]).arg(file);
    for how in decode {
        tshark.args(["-d", how]);
    }
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn captured() {
    let desk = Desk::start("captured", "");
    let (web, things) =
        (desk.daemon.folder.join("web.pcapng"), desk.daemon.folder.join("things.pcapng"));
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let capture =
        |at: &str, file: &Path| desk.attach(&["capture", "--at", at, "--file", &name(file)]);
    let posts = capture("gateway:desk/post", &web);
    // One connection, three requests, the last with a body of many pieces.
    let mut stream = TcpStream::connect(("127.0.0.1", desk.web)).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let peer = stream.local_addr().unwrap().port();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for length in [1_usize, 20, 200_000] {
        let head =
            format!("POST /{length} HTTP/1.1\r\nHost: desk\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &vec![b'm'; length]].concat()).unwrap();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
    }
    assert_eq!(desk.attached(&posts)["messages"], 3);
    assert_eq!(desk.attached(&posts)["missed"], 0);
    assert_eq!(desk.ask(&["detach", &posts]).code, 0);
    let decode = format!("tcp.port=={},http", desk.web);
    let whole =
        tshark(&web, &[&decode], &["http.request.uri", "http.content_length", "http.file_data"]);
    let whole: Vec<_> = whole.iter().filter(|line| line.starts_with('/')).collect();
    let read: Vec<_> = whole.iter().map(|line| line.rsplit_once(',').unwrap().0).collect();
    assert_eq!(read, ["/1,1", "/20,20", "/200000,200000"]);
    // Older versions show the octets as text, newer ones in hex.
    let body = whole[2].rsplit(',').next().unwrap();
    assert!(body == "m".repeat(200_000) || body == "6d".repeat(200_000), "{}", body.len());
    let ends = tshark(
        &web,
        &[],
        &["tcp.srcport", "tcp.dstport", "tcp.checksum.status", "ip.checksum.status"],
    );
    assert!(ends.iter().all(|line| *line == format!("{peer},{},1,1", desk.web)), "{ends:?}");
    let (asked, answered) =
        (capture("gateway:desk/get", &things), desk.daemon.folder.join("answers.pcapng"));
    let answers = ["capture", "--at", "gateway:desk/things.get", "--side", "transmit", "--file"];
    let answers = desk.attach(&[&answers[..], &[name(&answered).as_str()]].concat());
    assert_eq!(desk.get(7), CONTENT);
    for id in [&asked, &answers] {
        assert_eq!(desk.ask(&["detach", id]).code, 0);
    }
    let decode = format!("udp.port=={},coap", desk.things);
    let fields = ["coap.code", "coap.mid", "coap.opt.uri_path", "udp.checksum.status"];
    assert_eq!(tshark(&things, &[&decode], &fields), ["1,7,x,1"]);
    let fields = ["coap.code", "coap.mid", "data.data", "frame.comment"];
    let answer = tshark(&answered, &[&decode], &fields);
    let answer = answer.first().map(String::as_str).unwrap_or_default();
    assert!(
        answer.starts_with("69,7,") && answer.ends_with(",gateway:desk/things.get"),
        "{answer}"
    );
    drop((stream, reader.bytes()));
}
