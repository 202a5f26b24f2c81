//! What is attached to handlers sees their messages whole, however the octets were cut, and refuses
//! them before the handler runs.
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
use gatewright_translate::machine::{
    ConnId, Direction, Does, Machine, MachineConfig, Matching, Output, Post, PostError,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1);

fn program(text: &str) -> Arc<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let mut sources = Sources::of("test.gate", text.to_owned());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    compiled.program.map_or_else(|| panic!("{:?}", compiled.diagnostics), Arc::new)
}

fn post(handler: &str, way: Direction, does: Does) -> Post {
    Post { id: 7, handler: handler.to_owned(), way, does, counted: Arc::default() }
}

/// One peer of a server.
struct Peer {
    machine: Machine,
    conn: ConnId,
    said: Vec<u8>,
    /// What captures gave away: requests and answers.
    captured: [Vec<u8>; 2],
    /// How many messages began in them.
    begun: usize,
    closed: bool,
}

impl Peer {
    fn new(program: &Arc<Program>, posts: &[&Post]) -> Self {
        let mut machine = Machine::new(NOW, program, &MachineConfig::default()).unwrap();
        for post in posts {
            machine.attach(post).unwrap();
        }
        let conn = machine.accepted(NOW, RoleId::new(0), "192.0.2.1:4000".parse().unwrap());
        let captured = Default::default();
        let mut peer = Self { machine, conn, said: Vec::new(), captured, begun: 0, closed: false };
        peer.settle();
        peer
    }

    fn say(&mut self, octets: &[u8]) {
        self.machine.received(NOW, self.conn, octets);
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Write { conn } => {
                    let octets = self.machine.unsent(conn).to_vec();
                    self.machine.sent(NOW, conn, octets.len());
                    self.said.extend(octets);
                }
                Output::Captured(piece) => {
                    assert_eq!((piece.peer.unwrap().port(), piece.missing), (4000, 0));
                    self.begun += usize::from(piece.first);
                    self.captured[usize::from(piece.way == Direction::Transmit)]
                        .extend(&piece.octets);
                }
                Output::Shutdown { .. } | Output::Close { .. } => self.closed = true,
                _ => {}
            }
        }
    }
}

const HTTP: &str = "use \"http.gate\"\ngateway desk {
    role web = http server at \"127.0.0.1:8080\"
    on post(request) { return answer(200, \"OK\") }
}";
const ASKED: &[u8] = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody\
POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn a_capture_is_what_was_said_at_every_cut() {
    let program = program(HTTP);
    for cut in 0..=ASKED.len() {
        let posts = [Direction::Receive, Direction::Transmit]
            .map(|way| post("web.post", way, Does::Capture));
        let count = post("*", Direction::Receive, Does::Count);
        let mut peer = Peer::new(&program, &[&posts[0], &posts[1], &count]);
        peer.say(&ASKED[..cut]);
        peer.say(&ASKED[cut..]);
        assert_eq!(peer.captured[0], ASKED, "cut at {cut}");
        assert_eq!((peer.captured[1].as_slice(), peer.begun), (&*[ANSWER, ANSWER].concat(), 4));
        assert_eq!(peer.said, [ANSWER, ANSWER].concat());
        let octets = u64::try_from(ASKED.len()).unwrap();
        for seen in [&count, &posts[0]] {
            assert_eq!(seen.counted.messages.load(Ordering::Relaxed), 2, "cut at {cut}");
            assert_eq!(seen.counted.octets.load(Ordering::Relaxed), octets, "cut at {cut}");
        }
    }
}

/// Whatever a handler receives behind its request is its message, too.
#[test]
fn what_a_handler_receives_is_captured_with_its_request() {
    let text = "use \"smtp.gate\"\ngateway sink {
    role inside = smtp server at \"127.0.0.1:2526\"
    on hello, mail, recipient, reset(command) { return reply(250, \"ok\") }
    on data(command) {
        provisional reply(354, \"go\")
        let message = receive mail within 10 minutes else close
        return reply(250, \"ok\")
    }
}";
    let program = program(text);
    let said = b"MAIL FROM:<a@x>\r\nDATA\r\nSubject: x\r\n\r\n..one\r\n.\r\nNOOP\r\n";
    let mail = b"DATA\r\nSubject: x\r\n\r\n..one\r\n.\r\n";
    for cut in 0..=said.len() {
        let capture = post("inside.data", Direction::Receive, Does::Capture);
        let answers = post("data", Direction::Transmit, Does::Capture);
        let mut peer = Peer::new(&program, &[&capture, &answers]);
        peer.say(&said[..cut]);
        peer.say(&said[cut..]);
        assert_eq!(peer.captured[0], mail, "cut at {cut}");
        assert_eq!(peer.captured[1], b"354 go\r\n250 ok\r\n", "cut at {cut}");
    }
}

#[test]
fn a_refused_request_gets_the_protocol_s_own_refusal() {
    let program = program(HTTP);
    for cut in 0..=ASKED.len() {
        let matching =
            Matching { source: None, fields: vec![("target".to_owned(), "/b".to_owned())] };
        let drop = post("post", Direction::Receive, Does::Drop(matching));
        let mut peer = Peer::new(&program, &[&drop]);
        peer.say(&ASKED[..cut]);
        peer.say(&ASKED[cut..]);
        let refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(peer.said, [ANSWER, refusal].concat(), "cut at {cut}");
        assert!(peer.closed && drop.counted.refused.load(Ordering::Relaxed) == 1, "cut at {cut}");
    }
}

#[test]
fn what_is_detached_sees_nothing_more() {
    let program = program(HTTP);
    let capture = post("post", Direction::Receive, Does::Capture);
    let mut peer = Peer::new(&program, &[&capture]);
    // In the middle of a body.
    peer.say(&ASKED[..ASKED.len() - 8]);
    peer.machine.detach(7);
    let before = peer.captured[0].len();
    peer.say(&ASKED[ASKED.len() - 8..]);
    peer.say(ASKED);
    assert_eq!((peer.captured[0].len(), peer.said.len()), (before, 4 * ANSWER.len()));
}

#[test]
fn names_that_mean_nobody_are_refused_with_those_that_there_are() {
    let program = program(HTTP);
    let mut machine = Machine::new(NOW, &program, &MachineConfig::default()).unwrap();
    let known = vec!["web.post".to_owned()];
    let (name, handler) = ("desk".to_owned(), "web.get".to_owned());
    assert_eq!(
        machine.attach(&post("web.get", Direction::Receive, Does::Count)),
        Err(PostError::NoHandler { program: name, handler, known })
    );
    let drop = Does::Drop(Matching::default());
    assert_eq!(machine.attach(&post("*", Direction::Transmit, drop)), Err(PostError::Answers));
}

/// Where the protocol folds letters, who refuses need not know how.
#[test]
fn a_field_without_case_is_compared_without_case() {
    let text = "
message m {
    part header = line, at most 40 octets { name: lower word; \":\"; value: rest }
    view v = {
        line, at most 40 octets { verb: upper token, at most 8 octets }
        table of header by name, until empty line, at most 4 entries {
            \"A\" -> a: optional lower, at most 8 octets
        }
    }
    view w = line, at most 40 octets { text: rest }
}
protocol p = tcp, sync unicast {
    message m
    idle 1 minute
    connections at most 4
    request v { otherwise -> ask }
    response w
    malformed -> w(\"bad\")
    failed    -> w(\"failed\")
    full      -> w(\"full\"), close
}
gateway g {
    role here = p server at \"127.0.0.1:1\"
    on ask(_v) { return w(\"ok\") }
}";
    let program = program(text);
    for (field, value) in [("verb", "qUit"), ("a", "YES")] {
        let fields = vec![(field.to_owned(), value.to_owned())];
        let drop = post("ask", Direction::Receive, Does::Drop(Matching { source: None, fields }));
        let mut peer = Peer::new(&program, &[&drop]);
        peer.say(b"noop\r\n\r\nQuit\r\na: Yes\r\n\r\n");
        assert_eq!(peer.said, b"ok\r\nfull\r\n", "{field}");
        assert!(peer.closed && drop.counted.refused.load(Ordering::Relaxed) == 1, "{field}");
    }
}
