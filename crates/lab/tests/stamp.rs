//! STAMP beside two other implementations, each as a sender in front of our reflector, and as a reflector
//! behind our sender: Scapy makes and reads the test packets of RFC 8762; stamp-suite is a whole sender and
//! reflector, with and without authentication, which `cargo xtask interop` builds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_lab::stamp::{
    StampKey, StampReflectorCounters, StampReflectorMode, StampSettings, measure, reflect,
};
use gatewright_testbed::{free_port, python_program, wait_until};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The peer as a sender: three packets, the last with padding and an unknown extension; it answers
/// with what came back, as it reads it.
const SENDER: &str = "\
import json, socket, sys, time
from scapy.contrib.stamp import *
NTP = 2208988800
to = ('127.0.0.1', int(sys.argv[1]))
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(20)
own.bind(('127.0.0.1', 0))
own.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
tlvs = [STAMPTestTLV(flags=0x80, type=1, len=8, value=b'12345678'),
        STAMPTestTLV(flags=0x80, type=9, len=2, value=b'ab')]
read = []
for seq in range(5, 8):
    more = tlvs if seq == 7 else []
    error = ErrorEstimate(S=1, Z=0, scale=10, multiplier=3)
    asked = bytes(STAMPSessionSenderTestUnauthenticated(
        seq=seq, ts=time.time() + NTP, err_estimate=error, ssid=77, tlv_objects=more))
    own.sendto(asked, to)
    octets = own.recv(9000)
    it = STAMPSessionReflectorTestUnauthenticated(octets)
    read.append({
        'seq': it.seq, 'ssid': it.ssid, 'seq_sender': it.seq_sender, 'ttl': it.ttl_sender,
        'error': [it.err_estimate_sender.scale, it.err_estimate_sender.multiplier],
        'same_time': octets[28:36] == asked[4:12], 'same_length': len(octets) == len(asked),
        'order': int.from_bytes(octets[16:24], 'big') <= int.from_bytes(octets[4:12], 'big'),
        'tlvs': [[int(tlv.flags), tlv.type, bytes(tlv.value).decode('latin-1')] for tlv in it.tlv_objects],
    })
print(json.dumps(read))
";

/// The peer as a reflector that counts: packet 3 gets lost there, the reflection of 5 on its way back.
const REFLECTOR: &str = "\
import json, socket, time
from scapy.contrib.stamp import *
NTP = 2208988800
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('127.0.0.1', 0))
print(own.getsockname()[1], flush=True)
count = 0
while True:
    octets, sender = own.recvfrom(9000)
    received = time.time() + NTP
    it = STAMPSessionSenderTestUnauthenticated(octets)
    if it.seq == 3:
        continue
    error = ErrorEstimate(S=1, Z=0, scale=10, multiplier=3)
    back = bytes(STAMPSessionReflectorTestUnauthenticated(
        seq=count, ts=time.time() + NTP, err_estimate=error, ssid=it.ssid, ts_rx=received,
        seq_sender=it.seq, err_estimate_sender=it.err_estimate, ttl_sender=99))
    count += 1
    # The sender's time as it was, to the last bit.
    back = back[:28] + octets[4:12] + back[36:]
    if it.seq != 5:
        own.sendto(back, sender)
";

/// A test, with the peer that it runs.
type Test = fn(&Path);

fn main() {
    let scapy: [(&str, Test); 2] = [
        ("scapy_reads_what_we_reflect", scapy_sends),
        ("we_read_what_scapy_reflects", scapy_reflects),
    ];
    let suite: [(&str, Test); 2] = [
        ("stamp_suite_measures_to_our_reflector", suite_sends),
        ("we_measure_to_stamp_suite", suite_reflects),
    ];
    let mut trials = Vec::new();
    for (tests, peer, needs) in [
        (scapy, python(), "Python with Scapy"),
        (suite, stamp_suite(), "the program stamp-suite, which `cargo xtask interop` builds"),
    ] {
        trials.extend(tests.map(|(name, test)| {
            let found = peer.clone();
            let name =
                if found.is_some() { name.to_owned() } else { format!("{name} (needs {needs})") };
            let run = move || {
                test(&found.unwrap());
                Ok(())
            };
            Trial::test(name, run).with_ignored_flag(peer.is_none())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The program stamp-suite, where `cargo xtask interop` installs it.
fn stamp_suite() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    Some(target.join("interop/stamp-suite/bin/stamp-suite")).filter(|program| program.exists())
}

/// A key of both, and its text.
const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const KEY_TEXT: &str = "3031323334353637383961626364656630313233343536373839616263646566";

/// Both modes of a session: our key, and what the peer is told.
fn modes() -> [(Option<StampKey>, &'static [&'static str]); 2] {
    [(None, &[]), (Some(StampKey::new(KEY)), &["--auth-mode", "A", "--hmac-key", KEY_TEXT])]
}

/// A process that ends with its test.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn suite_sends(program: &Path) {
    for (key, more) in modes() {
        let (counters, said) = reflecting(key, |port| {
            let mut command = Command::new(program);
            command.args(["--remote-addr", "127.0.0.1", "--remote-port", &port.to_string()]);
            command.args(["--count", "8", "--send-delay", "20", "--timeout", "3"]);
            command.args(["--output-format", "json"]).args(more).output().unwrap()
        });
        let error = String::from_utf8_lossy(&said.stderr).into_owned();
        let lines = String::from_utf8_lossy(&said.stdout).into_owned();
        let mut reports = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let summary = reports.rfind(|it| it["type"] == "summary");
        let summary = summary.unwrap_or_else(|| panic!("{more:?}: {lines}{error}"));
        let counts = ["packets_sent", "packets_received", "packets_lost"].map(|it| &summary[it]);
        assert_eq!(counts, [8, 8, 0].map(Value::from).each_ref(), "{more:?}: {summary} {error}");
        assert!(summary["median_rtt_ms"].as_f64().unwrap() > 0.0, "{summary}");
        let refused = (counters.malformed, counters.not_authentic, counters.reflections);
        assert_eq!((counters.reflected, refused), (8, (0, 0, 0)), "{more:?}");
    }
}

/// The time to live of what a lossy path passes on.
const LOSSY_TTL: u8 = 99;

/// A path to a reflector that loses the third packet there, and the reflection of the fifth on its way
/// back; where it begins. It ends when nothing has come for a while.
fn lossy(to: SocketAddr) -> SocketAddr {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    far.connect(to).unwrap();
    far.set_ttl(LOSSY_TTL.into()).unwrap();
    let at = near.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut octets = [0; 2048];
        for number in 1..=1000 {
            let Ok((len, from)) = near.recv_from(&mut octets) else { return };
            if number == 3 {
                continue;
            }
            far.send(&octets[..len]).unwrap();
            let Ok(len) = far.recv(&mut octets) else { return };
            if number != 5 {
                near.send_to(&octets[..len], from).unwrap();
            }
        }
    });
    at
}

fn suite_reflects(program: &Path) {
    for (key, more) in modes() {
        let port = free_port();
        let mut command = Command::new(program);
        command.args(["--is-reflector", "--stateful-reflector", "--local-addr", "127.0.0.1"]);
        command.args(["--local-port", &port.to_string()]).args(more);
        let _peer = Peer(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // It has the port as soon as nobody else can bind it.
        let is_there = || UdpSocket::bind(("127.0.0.1", port)).is_err();
        assert!(wait_until(Duration::from_secs(20), is_there), "{more:?}: it does not listen");
        let wait = Duration::from_secs(3);
        let settings = StampSettings { count: 8, rate: 50, octets: 60, wait, key };
        let between = lossy((Ipv4Addr::LOCALHOST, port).into());
        let report = measure(between, &settings, &mut |_| {}).unwrap();
        assert_eq!((report.sent, report.reflected, report.foreign), (8, 6, 0), "{report:?}");
        let lost = (report.lost_there, report.lost_back);
        assert_eq!((report.stateful, lost), (Some(true), (Some(1), Some(1))), "{report:?}");
        assert_eq!(report.ttl, Some(LOSSY_TTL), "as it arrived there: {report:?}");
        // One clock, and a program between its two stamps.
        let (offset, bound) = (report.offset_us.unwrap(), report.offset_error_us.unwrap());
        assert!(offset.abs() <= bound + 2.0, "{report:?}");
        assert!(report.inside.unwrap().p50 > 0.0, "{report:?}");
    }
}

/// Reflects while `work` measures to the port that it gets.
fn reflecting<T: Send>(
    key: Option<StampKey>,
    work: impl FnOnce(u16) -> T,
) -> (StampReflectorCounters, T) {
    let stop = AtomicBool::new(false);
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let reflecting = || {
            let mut ready = |at: SocketAddr| tell.send(at).unwrap();
            let mut is_stop_requested = || stop.load(Ordering::Relaxed);
            let mode = (StampReflectorMode::Stateful, key);
            reflect(([127, 0, 0, 1], 0).into(), mode, &mut ready, &mut is_stop_requested).unwrap()
        };
        let reflector = scope.spawn(reflecting);
        let done = work(told.recv().unwrap().port());
        stop.store(true, Ordering::Relaxed);
        (reflector.join().unwrap(), done)
    })
}

/// A Python that has Scapy.
fn python() -> Option<PathBuf> {
    let has = |python: &Path| {
        let mut command = Command::new(python);
        command.args(["-c", "import scapy.contrib.stamp"]).stderr(Stdio::null());
        command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let system = PathBuf::from("python3");
    if has(&system) {
        return Some(system);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scapy");
    python_program(&folder, "scapy==2.8.0", "scapy")?;
    Some(folder.join("bin/python3")).filter(|python| has(python))
}

fn scapy_sends(python: &Path) {
    let (counters, output) = reflecting(None, |port| {
        Command::new(python).args(["-c", SENDER, &port.to_string()]).output().unwrap()
    });
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (at, it) in read.as_array().unwrap().iter().enumerate() {
        assert_eq!((&it["seq"], &it["seq_sender"]), (&at.into(), &(at + 5).into()), "{it}");
        assert_eq!((&it["ssid"], &it["ttl"]), (&77.into(), &255.into()), "{it}");
        assert_eq!(it["error"], serde_json::json!([10, 3]));
        for same in ["same_time", "same_length", "order"] {
            assert_eq!(it[same], true, "{same}: {it}");
        }
    }
    // U is the first bit, 0x80 (Scapy names the bits from the other end): cleared on padding, set on what is not understood.
    let tlvs = serde_json::json!([[0, 1, "12345678"], [0x80, 9, "ab"]]);
    assert_eq!(read[2]["tlvs"], tlvs, "{read}");
    assert_eq!((counters.reflected, counters.malformed), (3, 0));
}

fn scapy_reflects(python: &Path) {
    let mut command = Command::new(python);
    let mut peer = command.args(["-c", REFLECTOR]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], line.trim().parse().unwrap()));
    let wait = Duration::from_secs(3);
    let settings = StampSettings { count: 8, rate: 50, octets: 60, wait, key: None };
    let report = measure(to, &settings, &mut |_| {});
    let _gone = peer.kill();
    let _gone = peer.wait();
    let report = report.unwrap();
    assert_eq!((report.sent, report.reflected, report.foreign), (8, 6, 0), "{report:?}");
    assert_eq!(
        (report.stateful, report.lost_there, report.lost_back),
        (Some(true), Some(1), Some(1))
    );
    assert_eq!(report.ttl, Some(99));
    // 3 · 2^(10 − 32) s.
    assert!((report.reflector_error_us.unwrap() - 0.715).abs() < 0.001, "{report:?}");
    // One clock: no offset beyond its bound and what Scapy's floating-point times round.
    let (offset, bound) = (report.offset_us.unwrap(), report.offset_error_us.unwrap());
    assert!(offset.abs() <= bound + 2.0, "{report:?}");
    assert!(report.inside.unwrap().p50 > 0.0);
}
