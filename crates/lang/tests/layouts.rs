//! Layouts mean what they say: octets from RFCs are read into the right fields, written back as
//! the same octets, and what is malformed is refused.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    missing_docs,
    unreachable_pub,
    reason = "a test may fail loudly, and the reference is read beside `ir`"
)]

mod reference;

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{Message, Program};
use proptest::prelude::*;
use reference::{Slots, Value, emit, parse};
use std::path::Path;

/// The messages of one of the examples.
fn module(name: &str) -> Program {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let text = format!("use \"{name}.gate\"\ngateway least {{ }}\n");
    let mut sources = Sources::of("test.gate", text);
    compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    })
    .program
    .unwrap()
}

fn view<'p>(program: &'p Program, name: &str) -> &'p Message {
    program.messages.iter().find(|message| message.name == name).unwrap()
}

fn octets(text: &str) -> Value {
    Value::Octets(text.as_bytes().to_vec())
}

fn texts(values: &[&str]) -> Value {
    Value::List(values.iter().map(|text| vec![octets(text)]).collect())
}

fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Reads `wire`, compares, and writes it back.
fn both_ways(module_name: &str, name: &str, wire: &[u8], wanted: &[(&str, Value)]) {
    let program = module(module_name);
    let message = view(&program, name);
    let (slots, length) = parse(&program, message, wire).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(length, wire.len(), "{name}");
    let wanted: Slots =
        wanted.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    assert_eq!(slots, wanted, "{name}");
    let written = emit(&program, message, &slots).unwrap();
    assert_eq!(
        written.escape_ascii().to_string(),
        wire.escape_ascii().to_string(),
        "{name} written back"
    );
}

fn refused(module_name: &str, name: &str, wire: &[u8]) {
    let program = module(module_name);
    let found = parse(&program, view(&program, name), wire);
    assert_eq!(found, None, "{name} {}", wire.escape_ascii());
}

/// RFC 5321 appendix D.1.
#[test]
fn smtp_as_in_rfc_5321() {
    let path = "FROM:<Smith@bar.com>";
    both_ways(
        "smtp",
        "smtp.command",
        b"MAIL FROM:<Smith@bar.com>\r\n",
        &[("verb", octets("MAIL")), ("argument", octets(path))],
    );
    both_ways("smtp", "smtp.command", b"DATA\r\n", &[("verb", octets("DATA"))]);
    both_ways(
        "smtp",
        "smtp.reply",
        b"354 Start mail input; end with <CRLF>.<CRLF>\r\n",
        &[
            ("code", Value::Int(354)),
            ("mark", octets(" ")),
            ("text", octets("Start mail input; end with <CRLF>.<CRLF>")),
        ],
    );
    both_ways(
        "smtp",
        "smtp.mail",
        b"Blah blah blah...\r\n..foo\r\n.\r\n",
        &[("content", octets("Blah blah blah...\r\n.foo\r\n"))],
    );
    both_ways("smtp", "smtp.mail", b".\r\n", &[("content", octets(""))]);
}

/// RFC 5321 appendix D.1: the last of several lines counts.
#[test]
fn of_a_reply_of_several_lines_the_last_counts() {
    let program = module("smtp");
    let wire = b"250-foo.com greets bar.com\r\n250-8BITMIME\r\n250-SIZE\r\n250 HELP\r\n";
    let (slots, length) = parse(&program, view(&program, "smtp.reply"), wire).unwrap();
    assert_eq!(length, wire.len());
    assert_eq!(slots["text"], octets("HELP"));
    assert_eq!(slots["code"], Value::Int(250));
}

#[test]
fn smtp_that_is_malformed_is_refused() {
    for wire in [&b"\r\n"[..], b" MAIL\r\n", b"MAIL FROM", &[b'A'; 600]] {
        refused("smtp", "smtp.command", wire);
    }
    for wire in [&b"25 short\r\n"[..], b"2x0 letters\r\n", b"250-never ends\r\n"] {
        refused("smtp", "smtp.reply", wire);
    }
    refused("smtp", "smtp.mail", b"no end\r\n");
}

/// RFC 9112 §7.1's framing, with fields of RFC 9110.
#[test]
fn http_both_ways() {
    both_ways(
        "http",
        "http.request",
        b"POST /mail HTTP/1.1\r\nHost: tunnel\r\nTransfer-Encoding: chunked\r\n\
          X-Mail-From: <a@x>\r\nX-Rcpt-To: <b@y>\r\nX-Rcpt-To: <c@z>\r\n\r\n\
          5\r\nhello\r\n0\r\n\r\n",
        &[
            ("method", octets("POST")),
            ("target", octets("/mail")),
            ("minor", Value::Int(1)),
            ("host", octets("tunnel")),
            ("encoding", octets("chunked")),
            ("sender", octets("<a@x>")),
            ("recipients", texts(&["<b@y>", "<c@z>"])),
            ("body", octets("hello")),
        ],
    );
    both_ways(
        "http",
        "http.response",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n",
        &[
            ("minor", Value::Int(1)),
            ("status", Value::Int(404)),
            ("reason", octets("Not Found")),
            ("length", Value::Int(3)),
            ("body", octets("no\n")),
        ],
    );
}

/// RFC 9110 §5.1 and §5.5: names without case, blanks around values.
#[test]
fn http_header_names_have_no_case_and_values_no_blanks() {
    let program = module("http");
    let wire = b"GET / HTTP/1.1\r\nhOsT: \t example.com \t\r\nOther: x\r\n\r\n";
    let (slots, _) = parse(&program, view(&program, "http.request"), wire).unwrap();
    assert_eq!(slots["host"], octets("example.com"));
    assert_eq!(slots["body"], octets(""));
}

/// RFC 9112 §6.3: what would let two readers see two messages.
#[test]
fn http_that_smuggles_is_refused() {
    for fields in [
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Content-Length: 3 4\r\n",
        "Content-Length: -3\r\n",
        "No colon\r\n",
    ] {
        let wire = format!("POST / HTTP/1.1\r\n{fields}\r\nabc");
        refused("http", "http.request", wire.as_bytes());
    }
}

/// RFC 7252 appendix A, figures 16 and 17.
#[test]
fn coap_as_in_rfc_7252() {
    both_ways(
        "coap",
        "coap.packet",
        &hex("40 01 7d 34 bb 74 65 6d 70 65 72 61 74 75 72 65"),
        &[
            ("type", Value::Int(0)),
            ("code", Value::Int(1)),
            ("id", Value::Int(0x7d34)),
            ("token", octets("")),
            ("path", texts(&["temperature"])),
        ],
    );
    both_ways(
        "coap",
        "coap.packet",
        &hex("61 45 7d 35 20 ff 32 32 2e 33 20 43"),
        &[
            ("type", Value::Int(2)),
            ("code", Value::Int(0x45)),
            ("id", Value::Int(0x7d35)),
            ("token", octets(" ")),
            ("payload", octets("22.3 C")),
        ],
    );
}

/// RFC 7252 §3.1: escapes 13 and 14; the running sum over options of one number.
#[test]
fn coap_options_of_every_length() {
    for length in [0, 1, 12, 13, 14, 255] {
        let name = "n".repeat(length);
        let program = module("coap");
        let message = view(&program, "coap.packet");
        let mut slots: Slots = [
            ("type", Value::Int(0)),
            ("code", Value::Int(1)),
            ("id", Value::Int(7)),
            ("token", octets("")),
            ("path", texts(&[&name, "b"])),
            ("format", Value::Int(50)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let wire = emit(&program, message, &slots).unwrap();
        let header = match length {
            0..13 => vec![0xb0 | u8::try_from(length).unwrap()],
            _ => vec![0xbd, u8::try_from(length - 13).unwrap()],
        };
        assert!(wire[4..].starts_with(&header), "{wire:02x?}");
        assert!(wire.ends_with(&hex("01 62 11 32")), "{wire:02x?}");
        assert_eq!(parse(&program, message, &wire), Some((slots.clone(), wire.len())));
        slots.insert("path".to_owned(), texts(&[&"n".repeat(2_000)]));
        assert_eq!(emit(&program, message, &slots), None);
    }
}

#[test]
fn coap_that_is_malformed_is_refused() {
    for wire in [
        "00 01 7d 34",
        "40 01 7d",
        "49 01 7d 34 1 2 3 4 5 6 7 8 9",
        "40 01 7d 34 f0",
        "40 01 7d 34 0f",
    ] {
        refused("coap", "coap.packet", &hex(wire));
    }
}

/// Modbus Application Protocol 1.1b3 §6.3, behind the header of Modbus Messaging on TCP/IP §3.1.3.
#[test]
fn modbus_as_in_its_specification() {
    both_ways(
        "modbus",
        "modbus.query",
        &hex("15 01 00 00 00 06 ff 03 00 6b 00 03"),
        &[
            ("transaction", Value::Int(0x1501)),
            ("unit", Value::Int(0xff)),
            ("function", Value::Int(3)),
            ("address", Value::Int(0x6b)),
            ("quantity", Value::Int(3)),
        ],
    );
    let registers = [0x22b, 0, 0x64].map(|value| vec![Value::Int(value)]).to_vec();
    both_ways(
        "modbus",
        "modbus.result",
        &hex("15 01 00 00 00 09 ff 03 06 02 2b 00 00 00 64"),
        &[
            ("transaction", Value::Int(0x1501)),
            ("unit", Value::Int(0xff)),
            ("refused", Value::Int(0)),
            ("function", Value::Int(3)),
            ("registers", Value::List(registers)),
        ],
    );
    both_ways(
        "modbus",
        "modbus.result",
        &hex("15 01 00 00 00 03 ff 83 02"),
        &[
            ("transaction", Value::Int(0x1501)),
            ("unit", Value::Int(0xff)),
            ("refused", Value::Int(1)),
            ("function", Value::Int(3)),
            ("exception", Value::Int(2)),
        ],
    );
    refused("modbus", "modbus.query", &hex("15 01 00 00 00 07 ff 03 00 6b 00 03 00"));
    refused("modbus", "modbus.query", &hex("15 01 00 01 00 06 ff 03 00 6b 00 03"));
}

/// MQTT 3.1.1 §3.2 and §3.3; a length of two octets (§2.2.3).
#[test]
fn mqtt_as_in_its_specification() {
    both_ways(
        "mqtt",
        "mqtt.packet",
        &hex("20 02 00 00"),
        &[
            ("type", Value::Int(2)),
            ("flags", Value::Int(0)),
            ("session_present", Value::Int(0)),
            ("return_code", Value::Int(0)),
        ],
    );
    let payload = "p".repeat(200);
    let mut wire = hex("30 cd 01 00 03 61 2f 62");
    wire.extend(payload.as_bytes());
    both_ways(
        "mqtt",
        "mqtt.packet",
        &wire,
        &[
            ("type", Value::Int(3)),
            ("flags", Value::Int(0)),
            ("topic", octets("a/b")),
            ("payload", octets(&payload)),
        ],
    );
}

/// The check values of the CRC catalogue over "123456789", and the frame of Modbus over Serial
/// Line 1.02 whose check everybody knows: 01 03 00 00 00 0a -> c5 cd.
#[test]
fn checks_are_those_of_their_standards() {
    for (kind, check) in [
        ("crc16_modbus", "37 4b"),
        ("crc16_ccitt", "29 b1"),
        ("crc32", "26 39 f4 cb"),
        ("lrc", "23"),
    ] {
        let text = format!(
            "message m {{ view v = datagram, at most 40 octets {{ checked by {kind} {{ a: rest }} \
             }} }}\ngateway g {{ }}"
        );
        let mut sources = Sources::of("test.gate", text);
        let program = compile(&mut sources, SourceId::default(), |_, _| None).program.unwrap();
        let message = view(&program, "m.v");
        let mut wire = b"123456789".to_vec();
        wire.extend(hex(check));
        let slots: Slots = [("a".to_owned(), octets("123456789"))].into();
        assert_eq!(emit(&program, message, &slots), Some(wire.clone()), "{kind}");
        assert_eq!(parse(&program, message, &wire), Some((slots, wire.len())), "{kind}");
        wire[0] ^= 1;
        assert_eq!(parse(&program, message, &wire), None, "{kind}");
    }
}

/// Bulk strings of the Redis serialization protocol specification; PUB of the NATS client protocol.
#[test]
fn a_length_in_a_line_counts_what_stands_behind_the_line() {
    let text = include_str!("cases/accept/length_in_a_line.gate");
    let mut sources = Sources::of("test.gate", text);
    let program = compile(&mut sources, SourceId::default(), |_, _| None).program.unwrap();
    for (name, wire, wanted) in [
        ("resp.bulk", &b"$5\r\nhello\r\n"[..], vec![("value", "hello")]),
        ("resp.bulk", b"$0\r\n\r\n", vec![("value", "")]),
        ("resp.bulk", b"$4\r\n\r\n\r\n\r\n", vec![("value", "\r\n\r\n")]),
        (
            "nats.publication",
            b"PUB FOO 11\r\nHello NATS!\r\n",
            vec![("subject", "FOO"), ("payload", "Hello NATS!")],
        ),
    ] {
        let message = view(&program, name);
        let slots: Slots =
            (wanted.into_iter()).map(|(field, value)| (field.to_owned(), octets(value))).collect();
        assert_eq!(parse(&program, message, wire), Some((slots.clone(), wire.len())), "{name}");
        assert_eq!(emit(&program, message, &slots), Some(wire.to_vec()), "{name}");
    }
    for wire in [&b"$5\r\nhell\r\n"[..], b"$-1\r\n", b"$\r\n\r\n", b"$3\r\nhello\r\n"] {
        assert_eq!(parse(&program, view(&program, "resp.bulk"), wire), None);
    }
}

/// A header cannot be smuggled in through a value.
#[test]
fn a_line_end_in_a_value_cannot_be_built() {
    let program = module("smtp");
    for text in ["a\r\nb", "a\nb", "\r"] {
        let slots: Slots =
            [("verb".to_owned(), octets("MAIL")), ("argument".to_owned(), octets(text))].into();
        assert_eq!(emit(&program, view(&program, "smtp.command"), &slots), None, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What can be written is read back as it was.
    #[test]
    fn parse_of_emit_is_the_same(
        code in 0..1_000_i64,
        text in "[ -~]{0,500}",
        path in prop::collection::vec("[a-z]{0,255}", 0..4),
        payload in prop::collection::vec(any::<u8>(), 1..300),
        token in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let program = module("smtp");
        let message = view(&program, "smtp.reply");
        let slots: Slots = [
            ("code".to_owned(), Value::Int(code)),
            ("mark".to_owned(), octets(" ")),
            ("text".to_owned(), octets(&text)),
        ]
        .into();
        let wire = emit(&program, message, &slots).unwrap();
        prop_assert_eq!(parse(&program, message, &wire), Some((slots, wire.len())));

        let program = module("coap");
        let message = view(&program, "coap.packet");
        let mut slots: Slots = [
            ("type".to_owned(), Value::Int(code % 4)),
            // With the code 0 it is an empty message, and has nothing of the rest.
            ("code".to_owned(), Value::Int(1 + code % 255)),
            ("id".to_owned(), Value::Int(code * 60)),
            ("token".to_owned(), Value::Octets(token)),
            ("payload".to_owned(), Value::Octets(payload)),
        ]
        .into();
        if !path.is_empty() {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            slots.insert("path".to_owned(), texts(&path));
        }
        let wire = emit(&program, message, &slots).unwrap();
        prop_assert_eq!(parse(&program, message, &wire), Some((slots, wire.len())));
    }
}
