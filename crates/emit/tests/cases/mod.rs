//! Cases for every back end: octets of messages in pieces and views to be written, with what the
//! native reader and writer make of them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_diagnostic::{SourceId, Sources};
use gatewright_lang::compile;
use gatewright_lang::ir::{ColumnType, Message, MessageId, Program, SlotId, SlotType};
use gatewright_translate::{
    Layouts, Malformed, MalformedReason, Parser, StreamError, StreamLengthError, Unbuildable,
    Value, View, emit,
};
use libtest_mimic::Failed;
use std::fmt::Write;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A question to a driver, and the answer of the native back end.
pub struct Case {
    pub input: String,
    pub expected: String,
}

/// Message, and octets of it: RFC 5321 appendix D.1, RFC 9112 §7.1, RFC 7252 appendix A, Modbus
/// Application Protocol 1.1b3 §6.3, MQTT 3.1.1 §3.2 to §3.10, RFC 2608 §8, UPnP 1.0 §1.2, RFC 3261
/// §4 and §7.3.3, RFC 2326 §10; then what
/// the examples lack, with bulk strings of RESP (Redis serialization protocol specification) and
/// PUB of the NATS client protocol.
const CORPUS: [(&str, &[u8]); 54] = [
    ("smtp.command", b"MAIL FROM:<Smith@bar.com>\r\n"),
    ("smtp.command", b"DATA\r\n"),
    ("smtp.command", b"data\n"),
    ("smtp.reply", b"250-foo.com greets bar.com\r\n250-8BITMIME\r\n250-SIZE\r\n250 HELP\r\n"),
    ("smtp.reply", b"354 Start mail input; end with <CRLF>.<CRLF>\r\n"),
    ("smtp.mail", b"Blah blah blah...\r\n..foo\r\nb.ar\r\na\rb\nc\r\n\r\n.\r\n"),
    ("smtp.mail", b".\r\n"),
    ("smtp.mail", b"a\n.\r\nb\n..c\r\n.\n\r\r\n\n.\r\n\r\n.\r\n"),
    (
        "http.request",
        b"POST /mail HTTP/1.1\r\nHost: tunnel\r\nTransfer-Encoding: Chunked\r\n\
          X-Mail-From: <a@x>\r\nX-Rcpt-To: <b@y>\r\nX-Rcpt-To: <c@z>\r\n\r\n\
          5\r\nhello\r\nb;name=value\r\n, everybody\r\n0\r\nTrailer: x\r\n\r\n",
    ),
    ("http.request", b"GET / HTTP/1.1\r\nhOsT: \t example.com \t\r\nOther: x\r\n\r\n"),
    ("http.response", b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n"),
    ("http.response", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end"),
    ("coap.packet", b"\x40\x01\x7d\x34\xbbtemperature"),
    ("coap.packet", b"\x61\x45\x7d\x35\x20\xff22.3 C"),
    ("coap.packet", b"\x40\x01\x7d\x34\xd1\x05a\x0d\x00registers/40ab"),
    ("coap.packet", b"\x40\x01\x7d\x34\xe1\x05\x01a"),
    ("modbus.query", b"\x15\x01\x00\x00\x00\x06\xff\x03\x00\x6b\x00\x03"),
    ("modbus.result", b"\x15\x01\x00\x00\x00\x09\xff\x03\x06\x02\x2b\x00\x00\x00\x64"),
    ("modbus.result", b"\x15\x01\x00\x00\x00\x03\xff\x83\x02"),
    ("mqtt.packet", b"\x30\x0c\x00\x03a/bpayload"),
    ("mqtt.packet", b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02"),
    ("mqtt.packet", b"\x90\x05\x00\x0a\x00\x02\x80"),
    ("mqtt.packet", b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d"),
    (
        "mqtt.packet",
        b"\x10\x16\x00\x04\x4d\x51\x54\x54\x04\x02\x00\x3c\x00\x0a\x67\x61\x74\x65\x77\x72\x69\
          \x67\x68\x74",
    ),
    (
        "slp.request",
        b"\x02\x01\x00\x00\x36\x20\x00\x00\x00\x00\x12\x34\x00\x02en\x00\x00\x00\x13\
          service:MediaServer\x00\x07DEFAULT\x00\x00\x00\x00",
    ),
    (
        "slp.reply",
        b"\x02\x02\x00\x00\x2a\x00\x00\x00\x00\x00\x12\x34\x00\x02en\x00\x00\x00\x01\
          \x00\x01\x2c\x00\x10service:a:http:/\x00",
    ),
    ("slp.reply", b"\x02\x02\x00\x00\x14\x00\x00\x00\x00\x00\x12\x34\x00\x02en\x00\x04\x00\x00"),
    (
        "ssdp.found",
        b"HTTP/1.1 200 OK\r\nEXT:\r\nLOCATION: http://192.0.2.9/a\r\nST: upnp:rootdevice\r\n\r\n",
    ),
    ("description.document", b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n\r\n<root/>"),
    (
        "sip.request",
        b"INVITE sip:bob@biloxi.com SIP/2.0\r\nVia: SIP/2.0/UDP pc33.atlanta.com;branch=z9hG4bK7\r\n\
          v: SIP/2.0/UDP p;branch=1\r\nMax-Forwards: 70\r\nt: Bob <sip:bob@biloxi.com>\r\n\
          From: Alice <sip:alice@atlanta.com>;tag=1928301774\r\ni: a84b4c76e66710\r\n\
          CSeq: 314159 INVITE\r\nl: 5\r\n\r\nv=0\r\nbehind",
    ),
    (
        "sip.response",
        b"SIP/2.0 180 Ringing\r\nVia: SIP/2.0/UDP server10.biloxi.com;branch=z9hG4bK4b43c2ff8.1\r\n\
          To: Bob <sip:bob@biloxi.com>;tag=a6c85cf\r\nCSeq: 314159 INVITE\r\nContent-Length: 0\r\n\r\n",
    ),
    ("rtsp.request", b"PLAY rtsp://audio.example.com/audio RTSP/1.0\r\nCSeq: 835\r\nSession: 1$2\r\n\r\n"),
    (
        "rtsp.response",
        b"RTSP/1.0 200 OK\r\nCSeq: 312\r\nContent-Type: application/sdp\r\nContent-Length: 5\r\n\r\nv=0\r\n",
    ),
    ("more.frame", b"\x05one\x37\x4b"),
    ("more.frame", b"\x0b123456789\x37\x4b"),
    ("more.sums", b"123456789\x29\xb1"),
    ("more.long_sum", b"123456789\x26\x39\xf4\xcb"),
    ("more.parity", b"123456789\x23"),
    ("more.bulk", b"$5\r\nhello\r\n"),
    ("more.bulk", b"$0\r\n\r\n"),
    ("more.publication", b"PUB FOO 11\r\nHello NATS!\r\n"),
    ("more.publication", b"PUB NOTIFY   0\r\n\r\n"),
    ("more.folds", b"a: x\r\n\ty\r\nB : 1\r\n\r\n"),
    ("more.folds", b"A:\r\n x \t\r\n \r\n  y\n z \r\nc\t:\n\tq\nb:\r\n\r\n"),
    ("more.folds", b"a: 0123456789\r\n 0123456789\r\n 01234567\r\n\r\n"),
    ("more.folds", b"a: 0123456789\r\n         \r\n         z\r\n\r\n"),
    ("more.words", b"a b\r\n c\r\nd\r\ne  f\r\n"),
    ("more.words", b"a\r\n b\r\n \r\n"),
    (
        "sip.request",
        b"INVITE sip:v@example.com SIP/2.0\r\nTO :\r\n sip:v@example.com ;   tag    = 19n\r\n\
          from   : \"J Rosenberg \\\\\\\"\"       <sip:j@example.com>\r\n  ;\r\n  tag = 98asj\r\n\
          Call-ID: 9\r\nCseq: 0009\r\n  INVITE\r\nVia  : SIP  /   2.0\r\n /UDP\r\n\
          \x20   192.0.2.2;branch=390skdjuw\r\nl: 0\r\n\r\n",
    ),
    ("more.signs", b"\x80\xff\xfe\xfe\xff\x7a\x9c\x80\0\0\0\0\0\0\0\x00\x07\xff\xff\x80\x00"),
    ("more.signs", b"\x7f\x00\x02\x01\x00\x85\x9c\x7f\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("more.signs", b"\xff\xff\xff\xff\xff\xff\x9c\xff\xff\xff\xff\xff\xff\xff\xff\xf9"),
    ("more.cold", b"\xff\x38\xfb\x2e\xd4"),
    ("more.odd", b"\x12\x34\x56\x7f\xff\xff\xff\xff\xff\xff\xffdead a:1\r\nb:2\r\n\r\n1 2\r\n"),
];

/// Items that no example has: checks, little-endian words, hexadecimal digits, lists of parts.
const MORE: &str = "
message more {
    view frame = { counted by u8, at most 40 octets { checked by crc16_modbus { a: rest } } }
    view bulk = {
        line, at most 32 octets { \"$\"; size: 1..6 digits }
        value: size octets, at most 1_000 octets
        \"\\r\\n\"
    }
    view publication = {
        line, at most 100 octets { \"PUB \"; subject: token; skip spaces; size: 1..7 digits }
        payload: size octets, at most 1_000 octets
        \"\\r\\n\"
    }
    view sums = datagram, at most 40 octets { checked by crc16_ccitt { a: rest } }
    view long_sum = datagram, at most 40 octets { checked by crc32 { a: rest } }
    view parity = datagram, at most 40 octets { checked by lrc { a: rest } }

    part header = line, at most 40 octets, folded {
        name: lower word
        skip stray blanks
        \":\"
        skip blanks
        value: lower rest
    }
    view folds = {
        table of header by name, until empty line, at most 4 entries {
            \"A\" -> a: mandatory, at most 20 octets
            \"B\" -> b: list, at most 2, each at most 20 octets
        }
    }
    part word = line, at most 20 octets, folded { name: token; skip spaces; text: optional rest }
    view words = datagram, at most 100 octets { all: list of word, at most 4 }

    part pair = line, at most 20 octets { name: until \":\"; value: 1..3 digits }
    view odd = {
        short: little u16
        flag: u1
        rest_of_it: u7
        wide: u63
        last: u1
        mark: hex
        \" \"
        line, at most 100 octets { name: lower until \":\"; value: optional decimal }
        line, at most 20 octets { other: until \":\"; count: 1 digit }
        line, at most 20 octets { nothing: optional rest }
        line, at most 20 octets { one: upper token; skip blanks; two: optional lower token }
    }
    constant COLDEST = -5
    view signs = datagram, at most 40 octets {
        small: i8
        short: i16
        backwards: little i16
        five: i5
        three: i3
        never: i8 = -100
        wide: i64
        when small is -128..-2 or 127 { way: i8, default -7 }
        rest_of_them: list of i16, at most 3
    }
    view cold = {
        celsius: i16
        below: i8 = COLDEST
        when celsius < -100 { deep: i16 }
    }
    template welcome(host: fragment, at most 64 octets, number: 1..9) as sums
        = \"220 {host} serves {number}\\r\\n\"
}
";

/// The messages of all the examples, and more.
pub fn program() -> (Arc<Program>, Sources) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateways");
    let uses = ["smtp", "http", "coap", "modbus", "mqtt", "slp", "upnp", "sip", "rtsp"]
        .map(|of| format!("use \"{of}.gate\"\n"));
    let mut sources = Sources::of("test.gate", uses.concat() + MORE + "gateway least { }\n");
    let compiled = compile(&mut sources, SourceId::default(), |_, import| {
        Some((import.to_owned(), std::fs::read_to_string(folder.join(import)).ok()?))
    });
    let found: String =
        compiled.diagnostics.iter().map(|found| found.render(&sources, false)).collect();
    (Arc::new(compiled.program.unwrap_or_else(|| panic!("{found}"))), sources)
}

/// A generator of Lehmer's kind: the same cases on every run.
pub struct Random(u64);

impl Random {
    pub const fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let bound = u64::try_from(bound.max(1)).unwrap();
        usize::try_from((self.0 >> 33) % bound).unwrap()
    }

    fn octet(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

/// All cases: the corpus at every split point and octet by octet; the same octets with some of
/// them changed, in random pieces; random views to be written.
pub fn cases(program: &Arc<Program>) -> Vec<Case> {
    let layouts = Arc::new(Layouts::of(program));
    let mut cases = Vec::new();
    for (name, wire) in CORPUS {
        cases.push(reading(&layouts, name, wire, &[]));
        for at in 0..=wire.len() {
            cases.push(reading(&layouts, name, wire, &[at]));
        }
        let every: Vec<usize> = (0..wire.len()).collect();
        cases.push(reading(&layouts, name, wire, &every));
    }
    let mut random = Random::new();
    for _ in 0..2_000 {
        let (name, wire) = CORPUS[random.below(CORPUS.len())];
        let mut wire = wire.to_vec();
        for _ in 0..random.below(4) {
            let at = random.below(wire.len());
            wire[at] = random.octet();
        }
        wire.truncate(wire.len() - random.below(3) * random.below(wire.len()) / 2);
        let mut cuts: Vec<usize> =
            (0..random.below(5)).map(|_| random.below(wire.len() + 1)).collect();
        cuts.sort_unstable();
        cases.push(reading(&layouts, name, &wire, &cuts));
    }
    for _ in 0..40 {
        for at in 0..program.messages.len() {
            cases.push(writing(program, MessageId::new(at), &mut random));
        }
    }
    cases
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn id(program: &Program, name: &str) -> MessageId {
    MessageId::new(program.messages.iter().position(|message| message.name == name).expect(name))
}

fn reading(layouts: &Arc<Layouts>, name: &str, wire: &[u8], cuts: &[usize]) -> Case {
    let texts: Vec<String> = cuts.iter().map(ToString::to_string).collect();
    let input = format!("read {name} {} {}", hex(wire), texts.join(","));
    let program = layouts.program();
    let message = id(program, name);
    let mut parser = Parser::new(Arc::clone(layouts), message).unwrap();
    let (mut at, mut stream, mut told) = (0, Vec::new(), String::new());
    let mut outcome = Ok(false);
    let ends = cuts.iter().map(|cut| (*cut, false)).chain([(wire.len(), true)]);
    for (end, last) in ends {
        let progress = match parser.read(&wire[at..end], last, &mut stream) {
            Ok(progress) => progress,
            Err(malformed) => {
                outcome = Err(malformed);
                break;
            }
        };
        at += progress.consumed;
        let slots = program.message(message).unwrap().slots.iter().enumerate();
        let settled = slots.map(|(at, slot)| match parser.view().is_settled(SlotId::new(at)) {
            _ if slot.scratch => '-',
            true => '1',
            false => '0',
        });
        let settled: String = settled.collect();
        let _ = write!(told, " {}:{settled}", progress.consumed);
        if progress.complete {
            outcome = Ok(true);
            break;
        }
    }
    if let Err(Malformed { reason, at, .. }) = outcome {
        let _ = write!(told, " !{} {at}", reason_name(reason));
    }
    let mut view = parser.into_view();
    told.push_str(&slots(program.message(message).unwrap(), &view));
    let _ = write!(told, " stream={}", hex(&stream));
    if outcome == Ok(true) {
        for slot in (0..program.message(message).unwrap().slots.len()).map(SlotId::new) {
            if view.get(slot) == Some(Value::Stream) {
                view.set(slot, Value::Octets(stream.clone()));
            }
        }
        let _ = write!(told, " -> {}", written(program, message, &view, &[]));
    }
    Case { input, expected: told }
}

fn slots(message: &Message, view: &View) -> String {
    // What only a reader uses is its own affair.
    let slots = message.slots.iter().enumerate().filter(|(_, slot)| !slot.scratch);
    let shown = |(at, _)| Some(format!(" {at}={}", text(&view.get(SlotId::new(at))?)));
    slots.filter_map(shown).collect()
}

fn text(value: &Value) -> String {
    match value {
        Value::Int(value) => format!("i{value}"),
        Value::Octets(octets) => format!("x{}", hex(octets)),
        Value::Stream => "s".to_owned(),
        Value::List(rows) => {
            let row = |row: &Vec<Value>| row.iter().map(text).collect::<Vec<_>>().join(",");
            format!("l{}", rows.iter().map(row).collect::<Vec<_>>().join(";"))
        }
    }
}

fn written(program: &Program, message: MessageId, view: &View, pieces: &[Vec<u8>]) -> String {
    let mut out = Vec::new();
    let writer = match emit(program, message, view, &mut out) {
        Ok(writer) => writer,
        Err(wrong) => return format!("!{}", wrong_name(wrong)),
    };
    let Some(mut writer) = writer else { return hex(&out) };
    for piece in pieces {
        if let Err(wrong) = writer.write(piece, &mut out) {
            return format!("!{}", length_name(wrong));
        }
    }
    match writer.finish(&mut out) {
        Ok(()) => hex(&out),
        Err(wrong) => format!("!{}", length_name(wrong)),
    }
}

/// A view that is mostly one that can be written.
fn writing(program: &Arc<Program>, id: MessageId, random: &mut Random) -> Case {
    let message = program.message(id).unwrap();
    let mut view = View::of(message);
    let mut input = format!("write {}", message.name);
    for (at, slot) in message.slots.iter().enumerate() {
        if slot.scratch || (slot.optional && random.below(2) == 0) || random.below(20) == 0 {
            continue;
        }
        let value = value(&slot.ty, random);
        let _ = write!(input, " {at}={}", text(&value));
        view.set(SlotId::new(at), value);
    }
    let pieces: Vec<Vec<u8>> = (0..random.below(5)).map(|_| body(random)).collect();
    let pieces: Vec<Vec<u8>> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
    input.push_str(" /");
    for piece in &pieces {
        let _ = write!(input, " {}", hex(piece));
    }
    Case { input, expected: format!(" {}", written(program, id, &view, &pieces)) }
}

fn value(ty: &SlotType, random: &mut Random) -> Value {
    match ty {
        SlotType::Int { low, high } => Value::Int(int(*low, *high, random)),
        SlotType::Octets { max } => Value::Octets(octets(*max, random)),
        SlotType::Stream if random.below(2) == 0 => Value::Octets(body(random)),
        SlotType::Stream => Value::Stream,
        SlotType::List { columns, max } => {
            let rows = random.below(usize::try_from(*max).unwrap().min(5) + 1);
            let mut cell = |(_, ty): &(String, ColumnType)| match ty {
                ColumnType::Int { low, high } => Value::Int(int(*low, *high, random)),
                ColumnType::Octets { max } => Value::Octets(octets(*max, random)),
            };
            Value::List((0..rows).map(|_| columns.iter().map(&mut cell).collect()).collect())
        }
    }
}

fn int(low: i64, high: i64, random: &mut Random) -> i64 {
    match random.below(8) {
        0 => low,
        1 => high,
        2 => high.saturating_add(1),
        3 => low.saturating_sub(1),
        4 => i64::try_from(random.below(70_000)).unwrap(),
        _ => i64::try_from(random.below(20)).unwrap().clamp(low, high),
    }
}

fn octets(max: u32, random: &mut Random) -> Vec<u8> {
    const WORDS: [&[u8]; 12] = [
        b"",
        b"MAIL",
        b"chunked",
        b"a b",
        b" x",
        b"a\r\nb",
        b"x:y",
        b"POST",
        b"-",
        b" ",
        b"1",
        b"\xff\x00",
    ];
    let max = usize::try_from(max).unwrap();
    match random.below(12) {
        0 => vec![b'z'; max.min(2_000)],
        1 if max < 2_000 => vec![b'z'; max + 1],
        _ => {
            let word = WORDS[random.below(WORDS.len())];
            word.get(..max).unwrap_or(word).to_vec()
        }
    }
}

fn body(random: &mut Random) -> Vec<u8> {
    (0..random.below(12)).map(|_| b".a\r\n.\n\n"[random.below(7)]).collect()
}

fn reason_name(reason: MalformedReason) -> &'static str {
    match reason {
        MalformedReason::Cut => "cut",
        MalformedReason::Beyond => "beyond",
        MalformedReason::Unexpected => "unexpected",
        MalformedReason::TooLong { .. } => "too-long",
        MalformedReason::TooShort { .. } => "too-short",
        MalformedReason::TooLarge => "too-large",
        MalformedReason::Bounds => "bounds",
        MalformedReason::Missing => "missing",
        MalformedReason::Twice => "twice",
        MalformedReason::NoNumber => "no-number",
        MalformedReason::Check { .. } => "check",
        MalformedReason::LeftOver => "left-over",
        MalformedReason::NoCase => "no-case",
        MalformedReason::Stream(wrong) => stream_name(wrong),
        _ => "unknown",
    }
}

fn length_name(wrong: StreamLengthError) -> &'static str {
    match wrong {
        StreamLengthError::Length { .. } => "stream-length",
        StreamLengthError::NoLength => "no-length",
        _ => "unknown",
    }
}

fn stream_name(wrong: StreamError) -> &'static str {
    match wrong {
        StreamError::ChunkSize => "chunk-size",
        StreamError::ChunkEnd => "chunk-end",
        StreamError::ChunkExtra => "chunk-extra",
        _ => "unknown",
    }
}

fn wrong_name(wrong: Unbuildable) -> &'static str {
    match wrong {
        Unbuildable::Slot { .. } => "slot",
        Unbuildable::Length { .. } => "length",
        Unbuildable::Octets => "octets",
        Unbuildable::Number { .. } => "number",
        Unbuildable::NoFraming => "no-framing",
        Unbuildable::Stream(wrong) => length_name(wrong),
        _ => "unknown",
    }
}

/// Runs a driver on all cases and compares line by line.
pub fn compare(driver: &mut Command, cases: &[Case]) -> Result<(), Failed> {
    let input: String = cases.iter().map(|case| case.input.clone() + "\n").collect();
    let mut child = driver.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    let _ = writer.join().unwrap();
    let told = String::from_utf8(output.stdout)?;
    let told: Vec<&str> = told.lines().collect();
    for (case, told) in cases.iter().zip(&told) {
        if case.expected != *told {
            let Case { input, expected } = case;
            return Err(format!("{input}\nwanted {expected}\nfound  {told}").into());
        }
    }
    if told.len() != cases.len() || !output.status.success() {
        let next = cases.get(told.len()).map_or("", |case| case.input.as_str());
        let (told, all, status) = (told.len(), cases.len(), output.status);
        return Err(format!("{told} answers to {all} cases, {status}\n{next}").into());
    }
    Ok(())
}
