//! Mutants of SIP requests and of RTSP responses, between a telephone and a camera: what is invalid
//! is refused with SIP's own error, whichever side it came from; no camera is asked for an invalid
//! request, and no call stands on an invalid response.
//!
//! The mutants follow the rules that they break (RFC 3261, RFC 2326, RFC 4566), so that what is
//! invalid is not for our own parser to say.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Program, RoleId};
use gatewright_translate::machine::{ConnId, Machine, MachineConfig, Output};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const START: Duration = Duration::from_secs(1);
/// Longer than a camera may be silent.
const SILENCE: Duration = Duration::from_secs(6);

fn program() -> Arc<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let name = "sip_rtsp.gate";
    let mut sources = Sources::of(name, std::fs::read_to_string(folder.join(name)).unwrap());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    Arc::new(compiled.program.unwrap())
}

/// A gateway between a telephone and a camera.
struct World {
    machine: Machine,
    now: Duration,
    /// What the telephone got.
    said: Vec<Vec<u8>>,
    /// What the camera got, and over what.
    asked: Vec<u8>,
    camera: Option<ConnId>,
}

impl World {
    fn new(program: &Arc<Program>) -> Self {
        let machine = Machine::new(START, program, &MachineConfig::default()).unwrap();
        Self { machine, now: START, said: Vec::new(), asked: Vec::new(), camera: None }
    }

    fn telephone(&mut self, octets: &[u8]) {
        self.machine.datagram(self.now, RoleId::new(0), "192.0.2.1:5060".parse().unwrap(), octets);
        self.settle();
    }

    fn camera(&mut self, octets: &[u8]) {
        for piece in octets.chunks(4_000) {
            let conn = self.camera.filter(|conn| self.machine.room(*conn) >= piece.len());
            if let Some(conn) = conn {
                self.machine.received(self.now, conn, piece);
            }
            self.settle();
        }
    }

    /// Nobody says anything more.
    fn silence(&mut self) {
        self.now += SILENCE;
        self.machine.handle_timeout(self.now);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Connect { conn, .. } => {
                    self.camera = Some(conn);
                    self.machine.connected(self.now, conn);
                }
                Output::Write { conn } => {
                    let octets = self.machine.unsent(conn).to_vec();
                    self.machine.sent(self.now, conn, octets.len());
                    self.asked.extend(octets);
                }
                Output::Datagram { octets, .. } => self.said.push(octets),
                Output::Close { .. } => self.camera = None,
                _ => {}
            }
        }
    }

    /// The statuses that the telephone got.
    fn statuses(&self) -> Vec<u32> {
        let status = |said: &Vec<u8>| {
            let text = said.strip_prefix(b"SIP/2.0 ").unwrap_or_else(|| panic!("{}", shown(said)));
            std::str::from_utf8(&text[..3]).unwrap().parse().unwrap()
        };
        self.said.iter().map(status).collect()
    }
}

fn shown(octets: &[u8]) -> String {
    octets[..octets.len().min(300)].escape_ascii().to_string()
}

const OFFER: [&str; 7] = [
    "v=0",
    "o=me 1 1 IN IP4 192.0.2.1",
    "s=-",
    "c=IN IP4 192.0.2.1",
    "t=0 0",
    "m=audio 5000 RTP/AVP 0",
    "m=video 6000 RTP/AVP 26 96",
];

/// The lines of a request's head, without its length.
fn head(method: &str) -> Vec<String> {
    vec![
        format!("{method} sip:garden@192.0.2.9 SIP/2.0"),
        "Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK1".to_owned(),
        "From: <sip:me@192.0.2.1>;tag=a".to_owned(),
        "To: <sip:garden@192.0.2.9>".to_owned(),
        "Call-ID: a84b4c76e66710@192.0.2.1".to_owned(),
        format!("CSeq: 1 {method}"),
        "Max-Forwards: 70".to_owned(),
        "Content-Type: application/sdp".to_owned(),
    ]
}

/// A request with the offer as its body, and the length that goes with it.
fn whole(head: &[String]) -> Vec<u8> {
    let body = OFFER.join("\r\n") + "\r\n";
    let length = format!("Content-Length: {}", body.len());
    (head.join("\r\n") + "\r\n" + &length + "\r\n\r\n" + &body).into_bytes()
}

type Mutants = Vec<(String, Vec<u8>)>;

/// Octets that stand in no token (§25.1) and end no line.
fn no_token() -> impl Iterator<Item = u8> {
    (0..=0xff_u8).filter(|octet| {
        let token = octet.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(octet);
        !token && !matches!(octet, b'\r' | b'\n')
    })
}

/// §7.1: Method SP Request-URI SP SIP-Version CRLF.
fn request_lines(all: &mut Mutants) {
    for line in [
        "",
        "INVITE",
        "INVITE ",
        "INVITE sip:x@y",
        "INVITE sip:x@y ",
        "INVITE sip:x@y SIP",
        " INVITE sip:x@y SIP/2.0",
        "INVITE  sip:x@y SIP/2.0",
        "INVITE sip:x@y  SIP/2.0",
        "INVITE sip:x@y SIP/2.0 ",
        "INVITE sip:x y SIP/2.0",
        "INVITE sip:x@y SIP/1.0",
        "INVITE sip:x@y SIP/3.0",
        "INVITE sip:x@y SIP/2.",
        "INVITE sip:x@y SIP/2.00",
        "INVITE sip:x@y HTTP/1.1",
        "SIP/2.0 200 OK",
        "sip:x@y INVITE SIP/2.0",
    ] {
        let mut lines = head("INVITE");
        line.clone_into(&mut lines[0]);
        all.push((format!("request line `{line}`"), whole(&lines)));
    }
    for octet in no_token() {
        for at in 0..=6 {
            let mut line = head("INVITE")[0].clone().into_bytes();
            line.insert(at, octet);
            let rest = whole(&head("INVITE"));
            let end = rest.iter().position(|octet| *octet == b'\r').unwrap();
            let octets = [line.as_slice(), &rest[end..]].concat();
            all.push((format!("octet {octet:#x} at {at} of the method"), octets));
        }
    }
}

/// §7.3.1: field-name HCOLON field-value; §20: which must be there, and which once.
fn request_fields(all: &mut Mutants) {
    let count = head("INVITE").len();
    for at in 1..count {
        for line in ["no colon", "x", "-", "SIP/2.0 200 OK", "\u{1}"] {
            let mut lines = head("INVITE");
            lines.insert(at, line.to_owned());
            all.push((format!("field line `{line}` at {at}"), whole(&lines)));
        }
        for name in ["V ia", "Vi(a", "(x)", "a@b", "", "[1]", "ä", "a\u{1}", "a,b", "\"q\"", "a/b"]
        {
            let mut lines = head("INVITE");
            lines.insert(at, format!("{name}: x"));
            all.push((format!("field name `{name}` at {at}"), whole(&lines)));
        }
        for twice in [2, 3, 4, 5, 6] {
            let mut lines = head("INVITE");
            let again = lines[twice].clone();
            lines.insert(at, again.clone());
            all.push((format!("`{again}` twice"), whole(&lines)));
        }
    }
    for missing in 1_u32..32 {
        let lines = head("INVITE").into_iter().enumerate();
        let kept = lines.filter(|(at, _)| !(1..=5).contains(at) || missing & (1 << (at - 1)) == 0);
        let lines: Vec<String> = kept.map(|(_, line)| line).collect();
        all.push((format!("mandatory fields are missing: {missing:#07b}"), whole(&lines)));
    }
    for name in ["From", "To", "Call-ID", "CSeq"] {
        let lines = head("INVITE").into_iter();
        let empty = |line: String| if line.starts_with(name) { format!("{name}:") } else { line };
        all.push((format!("{name} is empty"), whole(&lines.map(empty).collect::<Vec<_>>())));
    }
}

/// §8.1.1.5: CSeq = 1*DIGIT LWS Method, below 2**31, and the request's own; §20.22, §20.14: numbers.
fn request_values(all: &mut Mutants) {
    for method in ["INVITE", "BYE", "CANCEL"] {
        for sequence in [
            "",
            "1",
            method,
            "x METHOD",
            "-1 METHOD",
            "+1 METHOD",
            "1.0 METHOD",
            "0x1 METHOD",
            "1METHOD",
            "1 METHODS",
            "1 OPTIONS",
            "1 METHOD x",
            "1, METHOD",
            "METHOD 1",
            "2147483648 METHOD",
            "99999999999999999999 METHOD",
        ] {
            let sequence = sequence.replace("METHOD", method);
            let mut lines = head(method);
            lines[5] = format!("CSeq: {sequence}");
            all.push((format!("{method} with CSeq `{sequence}`"), whole(&lines)));
        }
    }
    for number in ["-1", "+1", "x", "1.0", "0x1", "7 0", "70;x", "70,71", "٧"] {
        let mut lines = head("INVITE");
        lines[6] = format!("Max-Forwards: {number}");
        all.push((format!("Max-Forwards `{number}`"), whole(&lines)));
        let length = format!("Content-Length: {number}");
        let lines = head("INVITE").join("\r\n") + "\r\n" + &length + "\r\n\r\nv=0\r\n";
        all.push((format!("length `{number}`"), lines.into_bytes()));
    }
    // §18.3: a datagram that ends before its body does.
    for more in 1..=40 {
        let body = OFFER.join("\r\n");
        let length = format!("Content-Length: {}", body.len() + more);
        let lines = head("INVITE").join("\r\n") + "\r\n" + &length + "\r\n\r\n" + &body;
        all.push((format!("{more} octets of the body are missing"), lines.into_bytes()));
    }
}

/// A request that is cut anywhere; too much for any bound; no SIP at all.
fn request_shapes(all: &mut Mutants) {
    let good = whole(&head("INVITE"));
    for length in 1..good.len() {
        all.push((format!("cut at {length}"), good[..length].to_vec()));
    }
    for octets in [513, 1_000, 4_000, 60_000] {
        let mut lines = head("INVITE");
        lines[0] = format!("INVITE sip:{}@y SIP/2.0", "a".repeat(octets));
        all.push((format!("a URI of {octets}"), whole(&lines)));
        lines = head("INVITE");
        lines.push(format!("X: {}", "a".repeat(octets * 2)));
        all.push((format!("a field of {octets} twice"), whole(&lines)));
    }
    let mut lines = head("INVITE");
    lines.extend((0..65).map(|of| format!("X-{of}: y")));
    all.push(("65 fields more".to_owned(), whole(&lines)));
    for (at, first) in (0..=0xff_u8).enumerate() {
        let octets: Vec<u8> = (0..=at)
            .map(|of| first.wrapping_mul(31).wrapping_add(u8::try_from(of).unwrap()))
            .collect();
        all.push((format!("noise from {first:#x}"), octets));
    }
}

/// RFC 4566 §5: an offer of pictures that says neither where nor how (RFC 3264 §5).
fn offers(all: &mut Mutants) {
    for line in ["", "m=video", "m=video 6000", "m=video x RTP/AVP 96", "m=video -1 RTP/AVP 96"] {
        offer(all, 6, line);
    }
    for line in [
        "m=video 65536 RTP/AVP 96",
        "m=video 0 RTP/AVP 96",
        "m=video 6000 udp 96",
        "m=video6000 RTP/AVP 96",
        "m video 6000 RTP/AVP 96",
        "x=video 6000 RTP/AVP 96",
    ] {
        offer(all, 6, line);
    }
    for line in ["", "c=", "c=IN", "c=IN IP4", "c=IN IP4 ", "c=IN IP7 x"] {
        offer(all, 3, line);
    }
}

fn offer(all: &mut Mutants, at: usize, line: &str) {
    let mut lines = OFFER;
    lines[at] = line;
    let body = lines.join("\r\n") + "\r\n";
    let length = format!("Content-Length: {}", body.len());
    let octets = head("INVITE").join("\r\n") + "\r\n" + &length + "\r\n\r\n" + &body;
    all.push((format!("offer with `{line}` at {at}"), octets.into_bytes()));
}

const DESCRIPTION: &str = "v=0\r\no=- 7 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n\
    m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:stream=0\r\n";

/// The numbers of the requests that a new machine sends first.
fn described() -> Vec<String> {
    let length = format!("Content-Length: {}", DESCRIPTION.len());
    let lines =
        ["RTSP/1.0 200 OK", "CSeq: 1", "Content-Base: rtsp://127.0.0.1:8554/garden/", &length];
    lines.map(str::to_owned).to_vec()
}

fn ready() -> Vec<String> {
    let transport = "Transport: RTP/AVP;unicast;client_port=6000-6001;server_port=7000-7001";
    ["RTSP/1.0 200 OK", "CSeq: 2", "Session: 12345678", transport].map(str::to_owned).to_vec()
}

fn response(lines: &[String], body: &str) -> Vec<u8> {
    (lines.join("\r\n") + "\r\n\r\n" + body).into_bytes()
}

/// What is invalid in any response (RFC 2326 §7.1, §12.14, §12.17, §4.2 of RFC 822 for fields).
fn responses(good: &[String], body: &str) -> Mutants {
    let mut all = Mutants::new();
    for line in [
        "",
        "RTSP",
        "RTSP/1.0",
        "RTSP/1.0 ",
        "RTSP/1.0 20",
        "RTSP/1.0 2x0 OK",
        "RTSP/2.0 200 OK",
        "RTSP/1 200 OK",
        "HTTP/1.1 200 OK",
        "SIP/2.0 200 OK",
        " RTSP/1.0 200 OK",
        "200 OK",
        "RTSP/1.0  200 OK",
        "RTSP/1.0 -20 OK",
        "RTSP/1.0 200OK",
        "RTSP/1.0 2000 OK",
    ] {
        let mut lines = good.to_vec();
        line.clone_into(&mut lines[0]);
        all.push((format!("status line `{line}`"), response(&lines, body)));
    }
    for number in
        ["", "x", "-1", "+1", "1x", "0x1", "1 1", "1.0", "1,1", "99999999999999999999", "77"]
    {
        let mut lines = good.to_vec();
        lines[1] = format!("CSeq: {number}");
        all.push((format!("CSeq `{number}`"), response(&lines, body)));
        lines.remove(1);
        lines.push(format!("Content-Length: {number}1"));
        all.push((format!("length `{number}1`, and no CSeq"), response(&lines, body)));
    }
    for at in 1..=good.len() {
        for line in
            ["no colon", "x", "\u{1}", "a b: c", "(x): y", ": x", "a@b: c", "ä: x", "\"q\": x"]
        {
            let mut lines = good.to_vec();
            lines.insert(at, line.to_owned());
            all.push((format!("field line `{line}` at {at}"), response(&lines, body)));
        }
        for twice in 1..good.len() {
            let mut lines = good.to_vec();
            lines.insert(at, good[twice].clone());
            all.push((format!("`{}` twice", good[twice]), response(&lines, body)));
        }
    }
    let whole = response(good, body);
    for length in 0..whole.len() {
        all.push((format!("cut at {length}"), whole[..length].to_vec()));
    }
    for octets in [1_025, 4_000, 20_000] {
        let mut lines = good.to_vec();
        lines.push(format!("X: {}", "a".repeat(octets)));
        all.push((format!("a field of {octets}"), response(&lines, body)));
    }
    all
}

/// What the mutants come from is good: the call stands, and the camera plays.
#[test]
fn what_the_mutants_come_from_is_a_call() {
    let mut world = World::new(&program());
    world.telephone(&whole(&head("INVITE")));
    world.camera(&response(&described(), DESCRIPTION));
    world.camera(&response(&ready(), ""));
    assert_eq!(world.statuses(), [100, 180, 200], "{}", shown(&world.asked));
    let mut ack = head("ACK");
    ack[3] = "To: <sip:garden@192.0.2.9>;tag=12345678".to_owned();
    world.telephone(&whole(&ack));
    assert!(world.asked.windows(5).any(|of| of == b"PLAY "), "{}", shown(&world.asked));
}

#[test]
fn no_invalid_sip_request_reaches_a_camera() {
    let program = program();
    let mut mutants = Mutants::new();
    for add in [request_lines, request_fields, request_values, request_shapes, offers] {
        add(&mut mutants);
    }
    for (why, octets) in &mutants {
        let mut world = World::new(&program);
        world.telephone(octets);
        world.silence();
        assert!(world.asked.is_empty(), "{why}: the camera got {}", shown(&world.asked));
        assert!(world.camera.is_none(), "{why}: a camera was called");
        let statuses = world.statuses();
        // Nothing answers what is an answer by itself.
        let answer = octets.starts_with(b"SIP/2.0 200 OK\r\n");
        let refused =
            if answer { statuses.is_empty() } else { matches!(statuses[..], [400..=699]) };
        assert!(refused, "{why}: {statuses:?} to {}", shown(octets));
    }
    assert!(mutants.len() >= 1_000, "only {} mutants", mutants.len());
    println!("{} invalid requests, each refused", mutants.len());
}

/// §12.31 and §12.39 of RFC 2326: nothing plays without them.
fn unready() -> Mutants {
    let mut all = responses(&ready(), "");
    for session in ["", "X: y"] {
        let mut lines = ready();
        session.clone_into(&mut lines[2]);
        lines.retain(|line| !line.is_empty());
        all.push((format!("`{session}` instead of a session"), response(&lines, "")));
    }
    for transport in
        ["X: y", "Transport: RTP/AVP", "Transport: server_port=", "Transport: server_port=x"]
    {
        let mut lines = ready();
        transport.clone_into(&mut lines[3]);
        all.push((format!("`{transport}`"), response(&lines, "")));
    }
    all
}

#[test]
fn no_call_stands_on_an_invalid_rtsp_response() {
    let program = program();
    let first = responses(&described(), DESCRIPTION).into_iter().map(|of| (of, true));
    let second = unready().into_iter().map(|of| (of, false));
    let mutants: Vec<_> = first.chain(second).collect();
    for ((why, octets), at_once) in &mutants {
        let mut world = World::new(&program);
        world.telephone(&whole(&head("INVITE")));
        if !at_once {
            world.camera(&response(&described(), DESCRIPTION));
        }
        world.camera(octets);
        world.silence();
        world.silence();
        let statuses = world.statuses();
        let last = statuses.last().copied().unwrap_or_default();
        assert!(last >= 400, "{why}: {statuses:?} to {}", shown(octets));
        assert!(!statuses.contains(&200), "{why}: {statuses:?}");
        let plays = world.asked.windows(5).any(|of| of == b"PLAY ");
        assert!(!plays, "{why}: {}", shown(&world.asked));
    }
    assert!(mutants.len() >= 500, "only {} mutants", mutants.len());
    println!("{} invalid responses, each call refused", mutants.len());
}
