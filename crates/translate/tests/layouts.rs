//! Layouts run as they mean: octets from RFCs, cut anywhere, give the fields that the plainest
//! reading gives, and are written back as the same octets.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly, and the reference is that of `lang`"
)]

#[path = "../../lang/tests/reference/mod.rs"]
mod reference;

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{MessageId, Program, SlotId, SlotType};
use gatewright_translate::{
    Layouts, Malformed, MalformedReason, Parser, Unbuildable, Unreadable, Value, View, emit,
};
use proptest::prelude::*;
use reference::Slots;
use std::path::Path;
use std::sync::Arc;

/// Message, and octets of it: RFC 5321 appendix D.1, RFC 9112 §7.1, RFC 7252 appendix A, Modbus
/// Application Protocol 1.1b3 §6.3, MQTT 3.1.1 §3.2 and §3.3.
const CORPUS: [(&str, &[u8]); 17] = [
    ("smtp.command", b"MAIL FROM:<Smith@bar.com>\r\n"),
    ("smtp.command", b"DATA\r\n"),
    ("smtp.command", b"data\n"),
    ("smtp.reply", b"250-foo.com greets bar.com\r\n250-8BITMIME\r\n250-SIZE\r\n250 HELP\r\n"),
    ("smtp.reply", b"354 Start mail input; end with <CRLF>.<CRLF>\r\n"),
    ("smtp.mail", b"Blah blah blah...\r\n..foo\r\nb.ar\r\na\rb\nc\r\n\r\n.\r\n"),
    ("smtp.mail", b".\r\n"),
    (
        "http.request",
        b"POST /mail HTTP/1.1\r\nHost: tunnel\r\nTransfer-Encoding: chunked\r\n\
          X-Mail-From: <a@x>\r\nX-Rcpt-To: <b@y>\r\nX-Rcpt-To: <c@z>\r\n\r\n\
          5\r\nhello\r\nb\r\n, everybody\r\n0\r\n\r\n",
    ),
    ("http.request", b"GET / HTTP/1.1\r\nhOsT: \t example.com \t\r\nOther: x\r\n\r\n"),
    ("http.response", b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n"),
    ("http.response", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"),
    ("coap.packet", b"\x40\x01\x7d\x34\xbbtemperature"),
    ("coap.packet", b"\x61\x45\x7d\x35\x20\xff22.3 C"),
    ("modbus.query", b"\x15\x01\x00\x00\x00\x06\xff\x03\x00\x6b\x00\x03"),
    ("modbus.result", b"\x15\x01\x00\x00\x00\x09\xff\x03\x06\x02\x2b\x00\x00\x00\x64"),
    ("modbus.result", b"\x15\x01\x00\x00\x00\x03\xff\x83\x02"),
    ("mqtt.packet", b"\x30\x0c\x00\x03a/bpayload"),
];

/// Those of the corpus that are written back octet for octet.
fn canonical(wire: &[u8]) -> bool {
    let not = [&b"data\n"[..], b"250-", b"GET / ", b"POST "];
    !not.iter().any(|begin| wire.starts_with(begin))
}

fn program(text: &str) -> Arc<Program> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let mut sources = Sources::of("test.gate", text.to_owned());
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    Arc::new(compiled.program.unwrap())
}

/// The messages of all the examples.
fn examples() -> Arc<Program> {
    let uses = ["smtp", "http", "coap", "modbus", "mqtt"].map(|of| format!("use \"{of}.gate\"\n"));
    program(&(uses.concat() + "gateway least { }\n"))
}

fn id(program: &Program, name: &str) -> MessageId {
    MessageId::new(program.messages.iter().position(|message| message.name == name).unwrap())
}

/// Reads one message from pieces, and gives the view, its stream, and how much was used.
fn read(
    layouts: &Arc<Layouts>,
    name: &str,
    wire: &[u8],
    cuts: &[usize],
) -> Result<(View, Vec<u8>, usize), Malformed> {
    let program = layouts.program();
    let message = id(program, name);
    let layout = program.message(message).unwrap();
    // A chunk's size with the longest extension, and its line's end.
    let streams = layout.slots.iter().any(|slot| slot.ty == SlotType::Stream);
    let kept_max = if streams { 8_192 + 16 + 2 } else { layout.window_max as usize };
    let mut parser = Parser::new(Arc::clone(layouts), message).unwrap();
    let (mut used, mut stream) = (0, Vec::new());
    for end in cuts.iter().copied().chain([wire.len()]) {
        let progress = parser.read(&wire[used..end], end == wire.len(), &mut stream)?;
        used += progress.consumed;
        if progress.complete {
            assert_eq!(parser.read(b"more", false, &mut stream).unwrap().consumed, 0);
            return Ok((parser.into_view(), stream, used));
        }
        let kept = end - used;
        assert!(layout.datagram || kept <= kept_max, "{name} keeps {kept} octets");
    }
    panic!("{name} neither complete nor malformed at the end of its octets");
}

fn held(value: &Value) -> u64 {
    match value {
        Value::Int(_) => 8,
        Value::Octets(octets) => octets.len() as u64,
        Value::List(rows) => rows.iter().flatten().map(held).sum(),
        Value::Stream => 0,
    }
}

fn plain(value: &Value, stream: &[u8]) -> reference::Value {
    match value {
        Value::Int(value) => reference::Value::Int(*value),
        Value::Octets(octets) => reference::Value::Octets(octets.clone()),
        Value::Stream => reference::Value::Octets(stream.to_vec()),
        Value::List(rows) => reference::Value::List(
            rows.iter().map(|row| row.iter().map(|of| plain(of, stream)).collect()).collect(),
        ),
    }
}

/// The view as the reference has it.
fn slots(program: &Program, name: &str, view: &View, stream: &[u8]) -> Slots {
    let message = program.message(id(program, name)).unwrap();
    let fields = message.slots.iter().enumerate().filter(|(_, slot)| !slot.scratch);
    fields
        .filter_map(|(at, slot)| {
            let value = view.get(SlotId::new(at))?;
            assert!(view.is_settled(SlotId::new(at)), "{name} {}", slot.name);
            Some((slot.name.clone(), plain(&value, stream)))
        })
        .collect()
}

#[test]
fn the_corpus_is_read_as_the_reference_reads_it_and_written_back() {
    let program = examples();
    let layouts = Arc::new(Layouts::of(&program));
    for (name, wire) in CORPUS {
        let (mut view, stream, used) = read(&layouts, name, wire, &[]).unwrap();
        let message = program.message(id(&program, name)).unwrap();
        let wanted = reference::parse(&program, message, wire).unwrap();
        assert_eq!((slots(&program, name, &view, &stream), used), wanted, "{name}");
        for at in 0..message.slots.len() {
            if view.get(SlotId::new(at)) == Some(Value::Stream) {
                view.set(SlotId::new(at), Value::Octets(stream.clone()));
            }
        }
        let mut written = Vec::new();
        assert!(emit(&program, id(&program, name), &view, &mut written).unwrap().is_none());
        assert_eq!(reference::emit(&program, message, &wanted.0), Some(written.clone()), "{name}");
        if canonical(wire) {
            assert_eq!(written.escape_ascii().to_string(), wire.escape_ascii().to_string());
        }
        let (again, stream, _) = read(&layouts, name, &written, &[]).unwrap();
        assert_eq!(slots(&program, name, &again, &stream), wanted.0, "{name} read again");
    }
}

#[test]
fn any_one_cut_and_every_cut_give_the_same() {
    let program = examples();
    let layouts = Arc::new(Layouts::of(&program));
    for (name, wire) in CORPUS {
        let whole = read(&layouts, name, wire, &[]);
        for at in 0..wire.len() {
            assert_eq!(read(&layouts, name, wire, &[at]), whole, "{name} at {at}");
        }
        let every: Vec<usize> = (0..wire.len()).collect();
        assert_eq!(read(&layouts, name, wire, &every), whole, "{name} octet by octet");
    }
}

/// What a parser read before, and how far, is nothing to the next message.
#[test]
fn a_parser_begins_again() {
    let program = examples();
    let layouts = Arc::new(Layouts::of(&program));
    for (name, wire) in CORPUS {
        let mut parser = Parser::new(Arc::clone(&layouts), id(&program, name)).unwrap();
        for (other, before) in CORPUS.iter().filter(|(other, _)| *other == name) {
            for end in [before.len(), before.len() / 2] {
                let _ = parser.read(&before[..end], true, &mut Vec::new());
                parser.restart();
            }
            let mut stream = Vec::new();
            let progress = parser.read(wire, true, &mut stream).unwrap();
            let found = (parser.view().clone(), stream, progress.consumed);
            assert_eq!(Ok(found), read(&layouts, name, wire, &[]), "{name} after {other}");
            parser.restart();
        }
    }
}

/// A message that is cut is malformed for that reason, at every octet.
#[test]
fn what_is_cut_is_malformed() {
    let program = examples();
    let layouts = Arc::new(Layouts::of(&program));
    for (name, wire) in CORPUS {
        let until_close = wire.starts_with(b"HTTP/1.1 200");
        let last = if until_close { wire.len() - 13 } else { wire.len() };
        for at in (0..last).filter(|_| name != "coap.packet") {
            let found = read(&layouts, name, &wire[..at], &[]).map_err(|of| of.reason);
            assert_eq!(found, Err(MalformedReason::Cut), "{name} at {at}");
        }
    }
}

/// RFC 5321's command is dispatched by its verb as soon as the verb is there; of an HTTP request
/// the fields of the first line are there before the header.
#[test]
fn slots_are_settled_as_soon_as_they_exist() {
    let program = examples();
    let message = id(&program, "http.request");
    let slot = |name: &str| {
        let slots = &program.message(message).unwrap().slots;
        SlotId::new(slots.iter().position(|slot| slot.name == name).unwrap())
    };
    let mut parser = Parser::new(Arc::new(Layouts::of(&program)), message).unwrap();
    let mut stream = Vec::new();
    parser.read(b"POST /x HTTP/1.1\r\nHost: h\r\nX-", false, &mut stream).unwrap();
    assert_eq!(parser.view().octets(slot("method")), Some(&b"POST"[..]));
    assert!(parser.view().is_settled(slot("target")));
    assert!(!parser.view().is_settled(slot("host")), "a second one would be malformed");
    let rest = b"X-Other: 1\r\nContent-Length: 9\r\n\r\nabc";
    assert!(!parser.read(rest, false, &mut stream).unwrap().complete);
    assert_eq!(parser.view().octets(slot("host")), Some(&b"h"[..]));
    assert!(parser.view().is_settled(slot("sender")), "absent for good");
    assert_eq!(parser.view().get(slot("sender")), None);
    assert_eq!((parser.view().get(slot("body")), &stream[..]), (Some(Value::Stream), &b"abc"[..]));
    assert!(parser.read(b"defghiNEXT", false, &mut stream).unwrap().complete);
    assert_eq!(stream, b"abcdefghi");
}

/// RFC 9112 §6.3 and §7.1.1, RFC 7252 §3, RFC 5321 §4.5.3.1.
#[test]
fn what_is_malformed_is_refused_with_its_reason() {
    let program = examples();
    let layouts = Arc::new(Layouts::of(&program));
    let head = |fields: &str| format!("POST / HTTP/1.1\r\n{fields}\r\n").into_bytes();
    let chunked = |body: &str| [head("Transfer-Encoding: chunked\r\n"), body.into()].concat();
    let long = [b"NOOP ".to_vec(), vec![b'x'; 600]].concat();
    let hosts = format!("Host: {}\r\n", "h".repeat(256));
    for (name, wire, wanted) in [
        ("smtp.command", b"\r\n".to_vec(), "shorter than 1"),
        ("smtp.command", long, "longer than 512"),
        ("smtp.reply", b"25 short\r\n".to_vec(), "shorter than 3"),
        ("http.request", head("Content-Length: 3\r\nContent-Length: 3\r\n"), "given twice"),
        ("http.request", head("Content-Length: 3 4\r\n"), "not a number"),
        (
            "http.request",
            head("Content-Length: 99999999999999999999\r\n"),
            "a length above its bound",
        ),
        ("http.request", head("Transfer-Encoding: gzip\r\n"), "no case"),
        ("http.request", head("No colon\r\n"), "unexpected octets"),
        ("http.request", head("Host : a\r\n"), "unexpected octets"),
        ("http.request", head(" folded: a\r\n"), "shorter than 1"),
        ("http.request", head(&hosts), "longer than 255"),
        ("http.request", head(&"A: b\r\n".repeat(101)), "longer than 100"),
        ("http.request", chunked("+5\r\nhello\r\n0\r\n\r\n"), "hexadecimal"),
        ("http.request", chunked("5\r\nhello!\r\n0\r\n\r\n"), "does not end"),
        ("http.request", chunked("fffffffffffffffff\r\n"), "hexadecimal"),
        ("http.request", chunked(&format!("0;{}\r\n\r\n", "x".repeat(9_000))), "8192"),
        ("coap.packet", b"\x00\x01\x7d\x34".to_vec(), "unexpected octets"),
        ("coap.packet", b"\x49\x01\x7d\x34123456789".to_vec(), "longer than 8"),
        ("coap.packet", b"\x40\x01\x7d\x34\xf0".to_vec(), "out of bounds"),
        ("modbus.query", b"\x15\x01\0\0\0\x07\xff\x03\0\x6b\0\x03\0".to_vec(), "left over"),
        ("modbus.query", b"\x15\x01\0\x01\0\x06\xff\x03\0\x6b\0\x03".to_vec(), "unexpected"),
    ] {
        let every: Vec<usize> = (0..wire.len()).collect();
        for cuts in [&[][..], &every] {
            let found = read(&layouts, name, &wire, cuts).unwrap_err().to_string();
            assert!(found.contains(wanted), "{} {found}, not {wanted}", wire.escape_ascii());
        }
    }
    let extended = chunked("5;name=value\r\nhello\r\n0\r\nTrailer: x\r\n\r\n");
    let (_, stream, used) = read(&layouts, "http.request", &extended, &[]).unwrap();
    assert_eq!((&stream[..], used), (&b"hello"[..], extended.len()));
}

#[test]
fn what_could_not_be_read_back_is_not_built() {
    let program = examples();
    let message = id(&program, "smtp.command");
    let mut view = View::of(program.message(message).unwrap());
    view.set(SlotId::new(0), Value::Octets(b"MAIL".to_vec()));
    for text in ["a\r\nb", "a\nb", "\r"] {
        view.set(SlotId::new(1), Value::Octets(text.into()));
        let mut out = b"before".to_vec();
        let found = emit(&program, message, &view, &mut out).map(|_| ());
        assert_eq!((found, &out[..]), (Err(Unbuildable::Octets), &b"before"[..]));
    }
    view.set(SlotId::new(1), Value::Int(1));
    let found = emit(&program, message, &view, &mut Vec::new()).map(|_| ());
    assert_eq!(found, Err(Unbuildable::Slot { slot: 1 }));
}

/// `docs/language/views.md`, 4.2; the checks' values are those of the CRC catalogue.
#[test]
fn templates_and_checks() {
    let text = "message m {
        view reply = line, at most 512 octets { code: 3 digits; \" \"; text: rest }
        view crc16_modbus = datagram, at most 40 octets { checked by crc16_modbus { a: rest } }
        view crc16_ccitt = datagram, at most 40 octets { checked by crc16_ccitt { a: rest } }
        view crc32 = datagram, at most 40 octets { checked by crc32 { a: rest } }
        view lrc = datagram, at most 40 octets { checked by lrc { a: rest } }
        template welcome(host: fragment, at most 64 octets) as reply = \"220 {host} serves\\r\\n\"
    }
    gateway g { }";
    let program = program(text);
    let layouts = Arc::new(Layouts::of(&program));
    let welcome = id(&program, "m.welcome");
    let mut view = View::of(program.message(welcome).unwrap());
    view.set(SlotId::new(0), Value::Octets(b"here".to_vec()));
    let mut out = Vec::new();
    emit(&program, welcome, &view, &mut out).unwrap();
    assert_eq!(out, b"220 here serves\r\n");
    let unreadable = Parser::new(Arc::new(Layouts::of(&program)), welcome).map(|_| ());
    assert_eq!(unreadable, Err(Unreadable::NoParser));
    let (view, _, _) = read(&layouts, "m.reply", &out, &[]).unwrap();
    assert_eq!(view.int(SlotId::new(0)), Some(220));
    for (name, check) in [
        ("m.crc16_modbus", &b"\x37\x4b"[..]),
        ("m.crc16_ccitt", b"\x29\xb1"),
        ("m.crc32", b"\x26\x39\xf4\xcb"),
        ("m.lrc", b"\x23"),
    ] {
        let mut wire = [b"123456789", check].concat();
        let (view, _, _) = read(&layouts, name, &wire, &[]).unwrap();
        assert_eq!(view.octets(SlotId::new(0)), Some(&b"123456789"[..]), "{name}");
        let mut out = Vec::new();
        emit(&program, id(&program, name), &view, &mut out).unwrap();
        assert_eq!(out, wire, "{name}");
        wire[0] ^= 1;
        let found = read(&layouts, name, &wire, &[]).map_err(|of| of.reason);
        assert!(matches!(found, Err(MalformedReason::Check { .. })), "{name}: {found:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Octets that are nearly a message: the same outcome in any split, that of the reference, and
    /// never more held than the layout allows.
    #[test]
    fn nearly_a_message(
        which in 0..CORPUS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let program = examples();
        let layouts = Arc::new(Layouts::of(&program));
        let (name, wire) = CORPUS[which];
        let mut wire = wire.to_vec();
        for (at, octet) in changes {
            *at.get_mut(&mut wire) = octet;
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
        cuts.sort_unstable();
        let whole = read(&layouts, name, &wire, &[]);
        match (read(&layouts, name, &wire, &cuts), &whole) {
            (Ok(found), Ok(whole)) => prop_assert_eq!(&found, whole),
            (Err(found), Err(whole)) => prop_assert_eq!(found.reason, whole.reason),
            (found, whole) => prop_assert!(false, "{found:?} and {whole:?}"),
        }
        let message = program.message(id(&program, name)).unwrap();
        let wanted = reference::parse(&program, message, &wire);
        // The reference knows neither chunk extensions nor what else than blanks is no blank.
        let comparable = !wire.starts_with(b"POST") && !wire.contains(&0x0c);
        if let Ok((view, stream, used)) = whole {
            let held: u64 =
                (0..message.slots.len()).filter_map(|at| view.get(SlotId::new(at))).map(|of| held(&of)).sum();
            prop_assert!(held <= message.octets_max);
            prop_assert!(!comparable || wanted == Some((slots(&program, name, &view, &stream), used)));
        } else {
            prop_assert!(!comparable || wanted.is_none());
        }
    }

    /// Whatever arrives, no parser panics, and any split gives the same.
    #[test]
    fn anything(octets in prop::collection::vec(any::<u8>(), 0..300), cut in 0..300_usize) {
        let program = examples();
        let layouts = Arc::new(Layouts::of(&program));
        for message in program.messages.iter().filter(|message| !message.parser.is_empty()) {
            let reason = |of: Malformed| of.reason;
            let whole = read(&layouts, &message.name, &octets, &[]).map_err(reason);
            let cut = [cut.min(octets.len())];
            let found = read(&layouts, &message.name, &octets, &cut).map_err(reason);
            prop_assert_eq!(found, whole);
        }
    }

    /// A body in any pieces is read back, in any split, through each framing.
    #[test]
    fn streams_are_read_back(
        body in "[.a\r\n]{0,60}",
        pieces in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let program = examples();
        let layouts = Arc::new(Layouts::of(&program));
        let mut pieces: Vec<usize> = pieces.iter().map(|at| at.index(body.len() + 1)).collect();
        pieces.extend([0, body.len()]);
        pieces.sort_unstable();
        for (name, fill) in [
            ("smtp.mail", None),
            ("http.request", Some(("encoding", Value::Octets(b"chunked".to_vec())))),
            ("http.request", Some(("length", Value::Int(i64::try_from(body.len()).unwrap())))),
            ("http.response", None),
        ] {
            let message = id(&program, name);
            let layout = program.message(message).unwrap();
            let mut view = View::of(layout);
            let wanted = [
                Some(("method", Value::Octets(b"POST".to_vec()))),
                Some(("target", Value::Octets(b"/".to_vec()))),
                Some(("status", Value::Int(200))),
                Some(("reason", Value::Octets(b"OK".to_vec()))),
                Some(("content", Value::Stream)),
                Some(("body", Value::Stream)),
                fill,
            ];
            for (field, value) in wanted.into_iter().flatten() {
                if let Some(at) = layout.slots.iter().position(|slot| slot.name == field) {
                    view.set(SlotId::new(at), value);
                }
            }
            let mut wire = Vec::new();
            let mut writer = emit(&program, message, &view, &mut wire).unwrap().unwrap();
            for piece in pieces.windows(2) {
                writer.write(&body.as_bytes()[piece[0]..piece[1]], &mut wire).unwrap();
            }
            writer.finish(&mut wire).unwrap();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(wire.len())).collect();
            cuts.sort_unstable();
            let (_, stream, used) = read(&layouts, name, &wire, &cuts).unwrap();
            let whole_lines = name != "smtp.mail" || body.is_empty() || body.ends_with("\r\n");
            let end = if whole_lines { "" } else { "\r\n" };
            prop_assert_eq!(String::from_utf8(stream).unwrap(), format!("{body}{end}"));
            prop_assert_eq!(used, wire.len());
        }
    }
}

/// What begins like the last line, or hides one from some servers (RFC 5321 §4.1.1.4: "CRLF . CRLF"),
/// and what is read of it.
#[test]
fn only_a_dot_between_line_ends_ends_a_mail() {
    let program = examples();
    let layouts = Arc::new(Layouts::of(&program));
    let cases: [(&[u8], &[u8]); 6] = [
        (b"a\n.\nQUIT\r\n.\r\n", b"a\n\nQUIT\r\n"),
        (b"a\n.\r\nQUIT\r\n.\r\n", b"a\n\r\nQUIT\r\n"),
        (b"a\r\n.\nQUIT\r\n.\r\n", b"a\r\n\nQUIT\r\n"),
        (b"a\r.\r\nQUIT\r\n.\r\n", b"a\r.\r\nQUIT\r\n"),
        (b"\n\r\n.\r\n", b"\n\r\n"),
        (b".\r\n", b""),
    ];
    for (wire, content) in cases {
        for cut in 0..=wire.len() {
            let (_, stream, used) = read(&layouts, "smtp.mail", wire, &[cut]).unwrap();
            assert_eq!((stream.as_slice(), used), (content, wire.len()), "cut at {cut}");
        }
        // No server that gets it on takes a part of it for the end.
        let message = id(&program, "smtp.mail");
        let mut view = View::of(program.message(message).unwrap());
        view.set(SlotId::new(0), Value::Octets(content.to_vec()));
        let mut sent = Vec::new();
        emit(&program, message, &view, &mut sent).unwrap();
        let body = &sent[..sent.len() - 3];
        let ends: [&[u8]; 3] = [b"\n.\n", b"\n.\r\n", b"\r\n.\n"];
        for end in ends {
            assert!(!body.windows(end.len()).any(|of| of == end), "{}", body.escape_ascii());
        }
    }
}
