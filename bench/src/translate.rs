//! `bench translate`: the gateway language in memory. Messages read by the machines that programs
//! are compiled to, beside crates whose parsers are written by hand; checking and lowering of every
//! example; and the C compiler over what is emitted.

use crate::programs::{C_TOOLS, Text, compiled, gateways, made, message, written_in_c};
use bench::{Bench, Contestant, Options, Relation, nanoseconds_each};
use gatewright_lang::ir::{MessageId, Program};
use gatewright_testbed::Needs;
use gatewright_translate::{Layouts, Parser, View, emit};
use nix::sys::resource::{UsageWho, getrusage};
use std::fs;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages of a round.
const MESSAGES: usize = 100_000;
/// Messages that lie in a buffer at once, as a network brings them.
const ARRIVED: usize = 100;
/// Such buffers of a round.
const BUFFERS: u16 = 1_000;

/// A browser's request, 703 octets: the one that httparse is measured with by its own authors.
const REQUEST: &[u8] = b"\
GET /wp-content/uploads/2010/03/hello-kitty-darth-vader-pink.jpg HTTP/1.1\r\n\
Host: www.kittyhell.com\r\n\
User-Agent: Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; ja-JP-mac; rv:1.9.2.3) Gecko/20100401 Firefox/3.6.3 Pathtraq/0.9\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: ja,en-us;q=0.7,en;q=0.3\r\n\
Accept-Encoding: gzip,deflate\r\n\
Accept-Charset: Shift_JIS,utf-8;q=0.7,*;q=0.7\r\n\
Keep-Alive: 115\r\n\
Connection: keep-alive\r\n\
Cookie: wp_ozh_wsa_visits=2; wp_ozh_wsa_visit_lasttime=xxxxxxxxxx; __utma=xxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.x; __utmz=xxxxxxxxx.xxxxxxxxxx.x.x.utmccn=(referral)|utmcsr=reader.livedoor.com|utmcct=/reader/|utmcmd=referral\r\n\
\r\n";

/// A reading on its way to a server, 40 octets: a token, a path of two, a format, a payload.
const COAP: &[u8] =
    b"\x44\x02\x30\x39\x01\x02\x03\x04\xb9registers\x0240\x11\x32\xff{\"value\":   73.5}";

/// A message to subscribers, 200 octets.
fn publish() -> Vec<u8> {
    let topic = b"plant/hall-2/press-7/pressure";
    let mut octets = vec![0x30, 0xc5, 0x01, 0, 29];
    octets.extend_from_slice(topic);
    octets.resize(200, b'7');
    octets
}

/// One message of a program, and the octets of it that are read and written.
struct Ours {
    program: Arc<Program>,
    layouts: Arc<Layouts>,
    message: MessageId,
    octets: Vec<u8>,
    view: View,
}

impl Ours {
    fn new(program: &str, name: &str, octets: &[u8]) -> Result<Self, String> {
        let program = Arc::new(compiled(program)?);
        let message = message(&program, name)?;
        let octets = octets.to_vec();
        let layouts = Arc::new(Layouts::of(&program));
        let mut ours = Self { program, layouts, message, octets, view: View::default() };
        ours.view = ours.read().ok_or_else(|| format!("{name} is not read"))?;
        Ok(ours)
    }

    /// Whether its octets are written again as they were read.
    fn is_restored(&self) -> bool {
        let mut out = Vec::new();
        self.write(&mut out);
        out == self.octets
    }

    fn parser(&self) -> Option<Parser> {
        Parser::new(Arc::clone(&self.layouts), self.message).ok()
    }

    /// Whether the parser reads the message to its end.
    fn is_read(&self, parser: &mut Parser) -> bool {
        let datagram = self.program.message(self.message).is_some_and(|message| message.datagram);
        let progress = parser.read(black_box(&self.octets), datagram, &mut Vec::new());
        progress.is_ok_and(|progress| progress.complete && progress.consumed == self.octets.len())
    }

    fn read(&self) -> Option<View> {
        let mut parser = self.parser()?;
        self.is_read(&mut parser).then(|| parser.into_view())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        let _ = black_box(emit(&self.program, self.message, black_box(&self.view), out));
    }

    /// Nanoseconds of reading as gateways do: with the parser and the view of the last message.
    fn reading(&self) -> f64 {
        let Some(mut parser) = self.parser() else { return f64::NAN };
        repeated(|| {
            parser.restart();
            assert!(black_box(self.is_read(&mut parser)), "it was read before");
            black_box(parser.view());
        })
    }

    /// Nanoseconds of reading, each time into a view of its own.
    fn reading_anew(&self) -> f64 {
        repeated(|| {
            black_box(self.read());
        })
    }

    fn writing(&self) -> f64 {
        let mut out = Vec::with_capacity(self.octets.len());
        repeated(|| self.write(&mut out))
    }
}

/// Nanoseconds of this thread's processor time that a piece of work takes.
fn repeated(mut work: impl FnMut()) -> f64 {
    nanoseconds_each(MESSAGES, || (0..MESSAGES).for_each(|_| work()))
}

/// HTTP's head: httparse gives slices of it, we a view with the fields of the program.
fn http(bench: &mut Bench) -> Result<(), String> {
    let ours = Ours::new("http_to_smtp.gate", "http.request", REQUEST)?;
    let peer = || {
        // As its authors do: who initialises a hundred headers first measures that as well.
        let mut headers = [const { MaybeUninit::uninit() }; 100];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(black_box(REQUEST), &mut headers);
        (parsed, request.headers.len())
    };
    if peer() != (Ok(httparse::Status::Complete(REQUEST.len())), 9) {
        return Err("httparse does not read the request".to_owned());
    }
    bench.interleave(vec![
        Contestant::new("http_ns", "ns", || ours.reading()),
        Contestant::new("http_anew_ns", "ns", || ours.reading_anew()),
        Contestant::new("httparse_ns", "ns", || {
            repeated(|| {
                black_box(peer().1);
            })
        }),
    ]);
    bench.ratio("http_vs_httparse", "httparse_ns", "http_ns");
    bench.promise("http_vs_httparse", Relation::AtLeast, 0.5);
    Ok(())
}

fn coap(bench: &mut Bench) -> Result<(), String> {
    let ours = Ours::new("coap_to_modbus.gate", "coap.packet", COAP)?;
    let read = || coap_lite::Packet::from_bytes(black_box(COAP));
    let packet = read().map_err(|error| error.to_string())?;
    let written = packet.to_bytes().map_err(|error| error.to_string())?;
    if written != COAP || !ours.is_restored() {
        return Err("the CoAP message is not restored".to_owned());
    }
    bench.interleave(vec![
        Contestant::new("coap_ns", "ns", || ours.reading()),
        Contestant::new("coap_anew_ns", "ns", || ours.reading_anew()),
        Contestant::new("coap_lite_ns", "ns", || {
            repeated(|| {
                let _ = black_box(read());
            })
        }),
        Contestant::new("coap_write_ns", "ns", || ours.writing()),
        Contestant::new("coap_lite_write_ns", "ns", || {
            repeated(|| {
                let _ = black_box(black_box(&packet).to_bytes());
            })
        }),
    ]);
    bench.ratio("coap_vs_peer", "coap_lite_ns", "coap_ns");
    bench.ratio("coap_write_vs_peer", "coap_lite_write_ns", "coap_write_ns");
    bench.promise("coap_vs_peer", Relation::AtLeast, 1.0);
    Ok(())
}

fn mqtt(bench: &mut Bench) -> Result<(), String> {
    let octets = publish();
    let ours = Ours::new("modbus_to_mqtt.gate", "mqtt.packet", &octets)?;
    let most = octets.len();
    // Its buffer is what a network's octets are read into, by the kernel: filling it is not measured.
    let arrived = octets.repeat(ARRIVED);
    let reading = || {
        let all = (0..BUFFERS).map(|_| {
            let mut buffer = bytes::BytesMut::from(black_box(arrived.as_slice()));
            nanoseconds_each(ARRIVED, || {
                for _message in 0..ARRIVED {
                    let _ = black_box(mqttbytes::v4::read(&mut buffer, most));
                }
                assert!(buffer.is_empty(), "each was read");
            })
        });
        all.sum::<f64>() / f64::from(BUFFERS)
    };
    let read = mqttbytes::v4::read(&mut bytes::BytesMut::from(octets.as_slice()), most);
    let Ok(mqttbytes::v4::Packet::Publish(packet)) = read else {
        return Err("mqttbytes does not read the message".to_owned());
    };
    let write = |out: &mut bytes::BytesMut| {
        out.clear();
        black_box(&packet).write(out)
    };
    let mut out = bytes::BytesMut::with_capacity(most);
    if write(&mut out) != Ok(most) || out != octets || !ours.is_restored() {
        return Err("the MQTT message is not restored".to_owned());
    }
    bench.interleave(vec![
        Contestant::new("mqtt_ns", "ns", || ours.reading()),
        Contestant::new("mqtt_anew_ns", "ns", || ours.reading_anew()),
        Contestant::new("mqttbytes_ns", "ns", reading),
        Contestant::new("mqtt_write_ns", "ns", || ours.writing()),
        Contestant::new("mqttbytes_write_ns", "ns", || {
            repeated(|| {
                let _ = black_box(write(&mut out));
            })
        }),
    ]);
    bench.ratio("mqtt_vs_peer", "mqttbytes_ns", "mqtt_ns");
    bench.ratio("mqtt_write_vs_peer", "mqttbytes_write_ns", "mqtt_write_ns");
    bench.promise("mqtt_vs_peer", Relation::AtLeast, 1.0);
    Ok(())
}

/// Checking and lowering of each example, with all that it uses; the slowest counts.
fn check(bench: &mut Bench) -> Result<(), String> {
    let names = gateways()?;
    let texts: Result<Vec<Text>, String> = names.iter().map(|name| Text::read(name)).collect();
    let texts = texts?;
    for _round in 0..bench.options().rounds() {
        let mut slowest = 0.0_f64;
        for text in &texts {
            let took = nanoseconds_each(1, || black_box(text.compiled().is_ok()));
            slowest = slowest.max(took / 1e6);
        }
        bench.sample("check_ms_max", "ms", slowest);
    }
    bench.promise("check_ms_max", Relation::AtMost, 20.0);
    Ok(())
}

/// Seconds that the C compiler needs for each of the gateways, from nothing; the longest counts.
fn c_build(bench: &mut Bench) -> Result<(), String> {
    let needs = C_TOOLS.iter().fold(Needs::new(), |needs, name| needs.program(name));
    if let Some(missing) = needs.missing() {
        bench.skip("c_build_s", Relation::AtMost, 2.0, &format!("{missing} is missing"));
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("gatewright-c-{}", std::process::id()));
    let spent = || getrusage(UsageWho::RUSAGE_CHILDREN).map(|of| seconds(&of));
    let mut names = Vec::new();
    for name in gateways()? {
        // What can only be imported is no program.
        if compiled(&name).is_ok() {
            names.push(name);
        }
    }
    for _round in 0..bench.options().rounds() {
        for name in &names {
            written_in_c(name, &folder)?;
            let (start, before) = (Instant::now(), spent().map_err(|error| error.to_string())?);
            let built = made(&folder);
            let (took, after) = (start.elapsed(), spent().map_err(|error| error.to_string())?);
            fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
            built?;
            let name = name.trim_end_matches(".gate");
            bench.sample(&format!("c_build_s_{name}"), "s", took.as_secs_f64());
            let spent = after.saturating_sub(before).as_secs_f64();
            bench.sample(&format!("c_build_cpu_s_{name}"), "s", spent);
        }
    }
    let key = |kind: &str, name: &str| format!("{kind}_{}", name.trim_end_matches(".gate"));
    for kind in ["c_build_s", "c_build_cpu_s"] {
        let all: Vec<String> = names.iter().map(|name| key(kind, name)).collect();
        bench.best(kind, &all);
    }
    bench.promise("c_build_s", Relation::AtMost, 2.0);
    Ok(())
}

fn seconds(usage: &nix::sys::resource::Usage) -> Duration {
    let of = |time: nix::sys::time::TimeVal| {
        let micros = time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    of(usage.user_time()) + of(usage.system_time())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("translate", options);
    http(&mut bench)?;
    coap(&mut bench)?;
    mqtt(&mut bench)?;
    check(&mut bench)?;
    c_build(&mut bench)?;
    bench.note("a ratio above 1 means that we are faster; reading makes a view, writing a message");
    bench.note("we read into the view of the message before, as gateways do; anew: into a new one");
    bench.note("httparse gives slices of all headers; we read to their end and keep the program's");
    Ok(bench)
}
