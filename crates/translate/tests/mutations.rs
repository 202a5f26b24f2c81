//! Mutation of messages, as its school tests parsers: each invalid message is refused with the
//! protocol's own error, but one that ends too early; none is forwarded whole, none stops the
//! gateway.
//!
//! The mutants follow the rules that they break (RFC 9112 and RFC 5321), so that what is invalid is
//! not for our own parser to say.
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

const NOW: Duration = Duration::from_secs(1);

fn program(name: &str) -> Arc<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let mut sources = Sources::of(name, std::fs::read_to_string(folder.join(name)).unwrap());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    Arc::new(compiled.program.unwrap())
}

/// What both sides got.
#[derive(Debug, Default)]
struct Seen {
    /// The requester.
    answered: Vec<u8>,
    closed: bool,
    /// The server behind the gateway.
    forwarded: Vec<u8>,
}

/// Sends octets to a gateway whose next server is an SMTP server that says yes to everything.
fn send(program: &Arc<Program>, octets: &[u8]) -> Seen {
    let mut machine = Machine::new(NOW, program, &MachineConfig::default()).unwrap();
    let peer = machine.accepted(NOW, RoleId::new(0), "192.0.2.1:1".parse().unwrap());
    let mut seen = Seen::default();
    let mut server = None;
    let mut said = 0;
    drive(&mut machine, peer, &mut server, &mut said, &mut seen);
    for piece in octets.chunks(4_000) {
        if machine.room(peer) > 0 {
            machine.received(NOW, peer, piece);
        }
        drive(&mut machine, peer, &mut server, &mut said, &mut seen);
    }
    machine.ended(NOW, peer);
    drive(&mut machine, peer, &mut server, &mut said, &mut seen);
    seen
}

fn drive(
    machine: &mut Machine,
    peer: ConnId,
    server: &mut Option<ConnId>,
    said: &mut usize,
    seen: &mut Seen,
) {
    loop {
        while let Some(output) = machine.poll_output() {
            match output {
                Output::Connect { conn, .. } => {
                    *server = Some(conn);
                    *said = seen.forwarded.len();
                    machine.connected(NOW, conn);
                    machine.received(NOW, conn, b"220 ready\r\n");
                }
                Output::Write { conn } => {
                    let octets = machine.unsent(conn).to_vec();
                    machine.sent(NOW, conn, octets.len());
                    let to = if conn == peer { &mut seen.answered } else { &mut seen.forwarded };
                    to.extend(octets);
                }
                Output::Shutdown { conn } | Output::Close { conn, .. } if conn == peer => {
                    seen.closed = true;
                }
                _ => {}
            }
        }
        let Some(conn) = *server else { return };
        // The server answers each line; a body's end is answered like one.
        let behind = &seen.forwarded[*said..];
        let Some(end) = behind.iter().position(|octet| *octet == b'\n') else { return };
        let line = &behind[..=end];
        *said += line.len();
        let answer: &[u8] = match line {
            [b'D', b'A', b'T', b'A', ..] => b"354 go\r\n",
            _ => b"250 ok\r\n",
        };
        let in_body = seen.forwarded[..*said].windows(6).any(|of| of == b"DATA\r\n");
        if line.starts_with(b"DATA") || !in_body || line == b".\r\n" {
            machine.received(NOW, conn, answer);
        }
    }
}

/// Whether a whole mail went on.
fn delivered(seen: &Seen) -> bool {
    seen.forwarded.ends_with(b"\r\n.\r\n")
}

const HEAD: [&str; 5] =
    ["POST /mail HTTP/1.1", "Host: t", "X-Mail-From: <a@x>", "X-Rcpt-To: <b@y>", "Accept: */*"];

/// What the name of a request says that ends too early.
const CUT: &str = "cut";

/// Requests that are invalid, each with the rule that it breaks.
#[derive(Default)]
struct Mutants(Vec<(String, Vec<u8>)>);

/// The lines of a head with some more.
fn head(with: &[&str]) -> Vec<String> {
    HEAD.iter().chain(with).map(|line| (*line).to_owned()).collect()
}

/// Requests that RFC 9112 calls invalid.
fn invalid_requests() -> Vec<(String, Vec<u8>)> {
    let mut all = Mutants::default();
    all.request_lines();
    all.fields();
    all.framings();
    all.chunks();
    all.cuts();
    all.too_long();
    all.0
}

impl Mutants {
    fn add(&mut self, why: String, head: &[String], body: &[u8]) {
        let head = head.join("\r\n") + "\r\n\r\n";
        self.0.push((why, [head.as_bytes(), body].concat()));
    }

    /// Broken request lines.
    fn request_lines(&mut self) {
        // §3: request-line = method SP request-target SP HTTP-version.
        for line in [
            "POST",
            "POST ",
            "POST /mail",
            "POST /mail ",
            "POST /mail HTTP",
            " POST /mail HTTP/1.1",
        ] {
            let mut lines = head(&["Content-Length: 2"]);
            line.clone_into(&mut lines[0]);
            self.add(format!("request line `{line}`"), &lines, b"hi");
        }
        for version in [
            "HTTP/2.0",
            "HTTP/0.9",
            "HTTP/1.",
            "HTTP/1.x",
            "http/1.1",
            "HTTP/11",
            "HTTP/1.1 x",
            "XTTP/1.1",
        ] {
            let mut lines = head(&["Content-Length: 2"]);
            lines[0] = format!("POST /mail {version}");
            self.add(format!("version `{version}`"), &lines, b"hi");
        }
        for octet in (0..0x20_u8).chain([0x7f]).filter(|octet| !matches!(octet, b'\r' | b'\n')) {
            let mut lines = head(&["Content-Length: 2"]);
            lines[0] = format!("PO{}ST /mail HTTP/1.1", char::from(octet));
            self.add(format!("octet {octet:#x} in the method"), &lines, b"hi");
            lines[0] = format!("POST /ma{}il HTTP/1.1", char::from(octet));
            self.add(format!("octet {octet:#x} in the target"), &lines, b"hi");
        }
    }

    /// Broken fields.
    fn fields(&mut self) {
        // §5: field-line = field-name ":" …; each line without a colon is none.
        for at in 1..=HEAD.len() {
            for line in ["no colon", "x", "-", "Host", "GET / HTTP/1.1", "\u{1}"] {
                let mut lines = head(&["Content-Length: 2"]);
                lines.insert(at, line.to_owned());
                self.add(format!("field line `{line}` at {at}"), &lines, b"hi");
            }
        }
        // §5.1: no whitespace between the name and the colon; §5.2: a folded line is refused; a name is a
        // token.
        for name in [
            "Host ",
            "Content-Length\t",
            " Host",
            "\tX",
            "Ho st",
            "Host\u{1}",
            "(x)",
            "a@b",
            "\"q\"",
            "",
            "a[1]",
            "ä",
        ] {
            for at in 1..=HEAD.len() {
                let mut lines = head(&["Content-Length: 2"]);
                lines.insert(at, format!("{name}: 2"));
                self.add(format!("field name `{name}` at {at}"), &lines, b"hi");
            }
        }
    }

    /// Broken lengths and codings.
    fn framings(&mut self) {
        // §6.2: Content-Length = 1*DIGIT, one of them; §6.3: not with Transfer-Encoding.
        let lengths = [
            "-1",
            "+2",
            "0x2",
            "2 2",
            "two",
            "2.0",
            "1e1",
            "99999999999999999999",
            "2,2",
            "٢",
            "2;",
            "",
        ];
        for length in lengths.iter().filter(|length| !length.is_empty()) {
            self.add(
                format!("length `{length}`"),
                &head(&[&format!("Content-Length: {length}")]),
                b"hi",
            );
        }
        for other in ["2", "3", "0", "02"] {
            let twice = head(&["Content-Length: 2", &format!("Content-Length: {other}")]);
            self.add(format!("lengths 2 and {other}"), &twice, b"hi");
        }
        for coding in [
            "gzip",
            "chunked, chunked",
            "gzip, chunked",
            "identity",
            "x",
            "chunked;q=1",
            "\"chunked\"",
        ] {
            self.add(
                format!("coding `{coding}`"),
                &head(&[&format!("Transfer-Encoding: {coding}")]),
                b"2\r\nhi\r\n0\r\n\r\n",
            );
        }
        for length in 0..40 {
            let both = head(&["Transfer-Encoding: chunked", &format!("Content-Length: {length}")]);
            self.add(format!("chunked, and the length {length}"), &both, b"2\r\nhi\r\n0\r\n\r\n");
        }
    }

    /// Broken chunks.
    fn chunks(&mut self) {
        // §7.1: chunk-size = 1*HEXDIG, chunk-data CRLF.
        let chunked = head(&["Transfer-Encoding: chunked"]);
        for size in
            ["", " 2", "g", "-2", "+2", "0x2", "2h", "2 2x", "ffffffffffffffffff", "2,", ".2"]
        {
            // What may stand behind a size is an extension, and `2 2x` is read as a sloppy one.
            if size != "2 2x" {
                self.add(
                    format!("chunk size `{size}`"),
                    &chunked,
                    format!("{size}\r\nhi\r\n0\r\n\r\n").as_bytes(),
                );
            }
        }
        for data in 0..64_usize {
            if data != 2 {
                let body = format!("2\r\n{}\r\n0\r\n\r\n", "h".repeat(data));
                // Fewer octets take the line's end for data; then the next size is none.
                self.add(format!("{data} octets in a chunk of 2"), &chunked, body.as_bytes());
            }
        }
        for octet in (0..=0xff_u8).filter(|octet| !octet.is_ascii_hexdigit()) {
            // What ends a size may follow it; a sign or a blank before it is none.
            let body = [&[octet][..], b"2\r\nhi\r\n0\r\n\r\n"].concat();
            self.add(format!("octet {octet:#x} before a chunk size"), &chunked, &body);
        }
    }

    /// Requests that end too early.
    fn cuts(&mut self) {
        // Cut anywhere, a message is not whole (§8).
        for (with, body) in [
            ("Transfer-Encoding: chunked", &b"5\r\nhello\r\n0\r\n\r\n"[..]),
            ("Content-Length: 5", b"hello"),
        ] {
            let whole = [(head(&[with]).join("\r\n") + "\r\n\r\n").as_bytes(), body].concat();
            for length in 5..whole.len() {
                self.0.push((format!("{with}, {CUT} at {length}"), whole[..length].to_vec()));
            }
        }
    }

    /// Requests that are too long for any bound.
    fn too_long(&mut self) {
        // Too long for any implementation that has a bound (§2.2, §3: 414, 431 or 400).
        for octets in [8_001, 9_000, 20_000, 70_000] {
            let mut lines: Vec<String> = HEAD.iter().map(|line| (*line).to_owned()).collect();
            lines[0] = format!("POST /{} HTTP/1.1", "a".repeat(octets));
            self.0.push((
                format!("a target of {octets}"),
                (lines.join("\r\n") + "\r\n\r\n").into_bytes(),
            ));
            lines = head(&[&format!("X: {}", "a".repeat(octets))]);
            self.0.push((
                format!("a field of {octets}"),
                (lines.join("\r\n") + "\r\n\r\n").into_bytes(),
            ));
        }
        for count in [101, 200, 1_000] {
            let mut lines: Vec<String> = HEAD.iter().map(|line| (*line).to_owned()).collect();
            lines.extend((0..count).map(|of| format!("X-{of}: y")));
            self.0.push((
                format!("{count} fields more"),
                (lines.join("\r\n") + "\r\n\r\n").into_bytes(),
            ));
        }
    }
}

/// The status that a mutant is answered with: RFC 9112 §3 for the target, RFC 6585 §5 for fields,
/// RFC 9110 §15.5.14 for a length that is well-formed (§8.6: any number of digits) and too large,
/// RFC 9112 §2.2 for everything else.
fn expected(why: &str) -> &'static str {
    if why.starts_with("a target of") {
        "414"
    } else if why.starts_with("a field of") || why.ends_with("fields more") {
        "431"
    } else if why == "length `99999999999999999999`" {
        "413"
    } else if why.ends_with("in the method") {
        // What stands before the octet is a method of its own, and no other octet is waited for.
        "405"
    } else {
        "400"
    }
}

/// The request that the mutants come from is good: it is delivered and answered with 200.
#[test]
fn what_the_mutants_come_from_is_delivered() {
    let program = program("http_to_smtp.gate");
    let head = HEAD.join("\r\n");
    for body in [
        "Content-Length: 4\r\n\r\nhi\r\n",
        "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        let seen = send(&program, format!("{head}\r\n{body}").as_bytes());
        assert!(seen.answered.starts_with(b"HTTP/1.1 200 "), "{seen:?}");
        assert!(delivered(&seen), "{seen:?}");
    }
}

#[test]
fn no_invalid_http_request_is_delivered() {
    let program = program("http_to_smtp.gate");
    let mutants = invalid_requests();
    let mut refused = 0;
    for (why, octets) in &mutants {
        let seen = send(&program, octets);
        assert!(!delivered(&seen), "{why}: delivered {}", seen.forwarded.escape_ascii());
        let status = format!("HTTP/1.1 {} ", expected(why));
        let error = seen.answered.starts_with(status.as_bytes());
        // Whoever ends in the middle of a request may be told, or not (RFC 9112 §8); everybody else is.
        let cut = why.contains(CUT) && seen.answered.is_empty();
        assert!(error || cut, "{why}: {}", seen.answered.escape_ascii());
        let answers = seen.answered.windows(9).filter(|of| *of == b"HTTP/1.1 ").count();
        assert_eq!(answers, usize::from(error), "{why}: {}", seen.answered.escape_ascii());
        assert!(seen.closed, "{why}: the connection goes on behind what nobody could read");
        refused += usize::from(error);
    }
    assert!(mutants.len() >= 500, "only {} mutants", mutants.len());
    let cut = mutants.iter().filter(|(why, _)| why.contains(CUT)).count();
    assert!(refused >= mutants.len() - cut, "{refused} of {} refused", mutants.len());
}

/// Lines that RFC 5321 calls invalid (§2.3.8, §4.1.1, §4.5.3.1.4) are answered with 500 or 502, and
/// the session goes on.
#[test]
fn no_invalid_smtp_command_is_forwarded() {
    let program = program("smtp_relay.gate");
    let mut lines: Vec<Vec<u8>> = Vec::new();
    for verb in ["MAIL", "RCPT", "DATA", "RSET", "HELO", "NOOP", "QUIT"] {
        for at in 0..=verb.len() {
            for octet in (0..=0x20_u8).chain(0x7f..=0xff).filter(|octet| *octet != b'\n') {
                // What cannot stand in a verb ends it, and is its argument's.
                if at < verb.len() || octet > 0x7f {
                    let (one, other) = verb.as_bytes().split_at(at);
                    lines.push([one, &[octet], other].concat());
                }
            }
        }
        for length in [509, 600, 5_000, 9_000] {
            lines.push(format!("{verb} {}", "x".repeat(length)).into_bytes());
        }
    }
    lines.push(Vec::new());
    for line in &lines {
        let seen = send(&program, &[line.as_slice(), b"\r\nNOOP\r\n"].concat());
        let shown = line[..line.len().min(40)].escape_ascii();
        assert!(seen.forwarded.is_empty(), "{shown}: {}", seen.forwarded.escape_ascii());
        let answers: Vec<_> = seen.answered.split(|octet| *octet == b'\n').collect();
        let refused =
            answers.get(1).is_some_and(|of| of.starts_with(b"500 ") || of.starts_with(b"502 "));
        assert!(refused, "{shown}: {}", seen.answered.escape_ascii());
        assert!(answers.get(2).is_some_and(|of| of.starts_with(b"250 ")), "{shown}: it goes on");
    }
    assert!(lines.len() >= 1_000, "only {} lines", lines.len());
}
