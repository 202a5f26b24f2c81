//! SIP to RTSP between peers that are not ours: SIPp (Debian) calls, gst-rtsp-server (Debian) is the
//! camera, and its pictures arrive where the telephone wanted them.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "a test may fail loudly, and uses its part of what the tests share"
)]

mod common;

use common::back_end::{BackEnd, Gateway, trial};
use common::{LIMIT, example, script};
use gatewright_runner::RunReport;
use gatewright_testbed::{Namespace, Needs, Process, wait_until};
use libtest_mimic::Arguments;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Debian's own Python: the bindings of its camera belong to that one.
const PYTHON: &str = "/usr/bin/python3";
const CAMERA: u16 = 8554;
/// Where the telephone wants its pictures.
const PICTURES: u16 = 6000;

fn main() {
    let needs = Needs::new().namespaces().program("sipp").program("python3");
    let missing = needs.clone().missing().is_some() || !has_camera();
    let mut trials = vec![
        trial("a_camera_that_is_not_there", missing, a_camera_that_is_not_there),
        trial("calls_over_a_bad_line", missing, calls_over_a_bad_line),
    ];
    let tests = [
        ("a_camera_is_called_and_seen", a_camera_is_called_and_seen as fn(_)),
        ("a_camera_that_dies_ends_the_call", a_camera_that_dies_ends_the_call),
    ];
    for (name, test) in tests {
        let tests = BackEnd::trials(name, &needs, test).into_iter();
        trials.extend(tests.map(|test| {
            let missing = missing || test.has_ignored_flag();
            test.with_ignored_flag(missing)
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn has_camera() -> bool {
    let import = "import gi; gi.require_version('GstRtspServer', '1.0')";
    let status = Command::new(PYTHON).args(["-c", import]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// What the camera says of itself: it may need a while until it can.
fn described() -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", CAMERA))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let url = format!("rtsp://127.0.0.1:{CAMERA}/garden");
    write!(stream, "DESCRIBE {url} RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n")?;
    let (mut said, mut octets) = (String::new(), [0; 4096]);
    while !said.contains("m=video") {
        match stream.read(&mut octets)? {
            0 => break,
            length => said.push_str(&String::from_utf8_lossy(&octets[..length])),
        }
    }
    Ok(said)
}

/// A camera called `garden`, and the gateway before it.
struct World {
    net: Namespace,
    gateway: Gateway,
    camera: Process,
}

impl World {
    fn new(back_end: BackEnd) -> Self {
        let net = Namespace::new().unwrap();
        let port = CAMERA.to_string();
        let camera = net.command(PYTHON).args([script("camera.py").as_str(), &port, "garden"]);
        let camera = camera.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut told = String::new();
        let describes = || {
            told = net.run(described).unwrap().unwrap_or_else(|error| error.to_string());
            told.contains("m=video")
        };
        assert!(wait_until(LIMIT, describes), "{told}");
        // A machine may be so busy that the camera takes longer than the example waits for it.
        let text = fs::read_to_string(example("sip_rtsp.gate")).unwrap();
        let patient = text.replace("within 5 seconds", "within 60 seconds");
        let gateway = back_end.run_text(&net, ("patient.gate", &patient), 1, &[]);
        Self { net, gateway, camera }
    }

    fn call(&self, scenario: &str, who: &str, more: &[&str]) {
        call(&self.net, scenario, who, more);
    }

    /// What was counted, which only the native loops are asked for.
    fn report(&self) -> Option<RunReport> {
        Some(self.gateway.runner()?.report())
    }
}

/// Calls so far: each has a file of its own for what went wrong.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Calls `who`, as the scenario says; every call must go as it says.
fn call(net: &Namespace, scenario: &str, who: &str, more: &[&str]) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let scenario = format!("{}/tests/sipp/{scenario}.xml", env!("CARGO_MANIFEST_DIR"));
    let pictures = PICTURES.to_string();
    let errors = format!("sipp-{who}-{}.log", CALLS.fetch_add(1, Ordering::Relaxed));
    let errors = folder.join(errors);
    let _ = fs::remove_file(&errors);
    let sipp = net.command("sipp").args(["-sf", &scenario, "-s", who, "127.0.0.1:5060"]);
    let sipp = sipp.args(["-i", "127.0.0.1", "-p", "5061", "-mp", "16000", "-nostdin"]);
    let sipp = sipp.args(["-key", "pictures", &pictures, "-timeout", "180s", "-timeout_error"]);
    let sipp = sipp.args(["-trace_err", "-error_file"]).arg(&errors).args(more);
    let sipp = sipp.stdout(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    let why = fs::read_to_string(&errors).unwrap_or_default();
    assert!(sipp.status.success(), "{}: {why}", sipp.status);
}

fn a_camera_is_called_and_seen(back_end: BackEnd) {
    let world = World::new(back_end);
    let pictures = world.net.run(|| UdpSocket::bind(("127.0.0.1", PICTURES))).unwrap().unwrap();
    pictures.set_read_timeout(Some(LIMIT)).unwrap();
    world.call("call", "garden", &["-m", "5", "-r", "5", "-d", "1000"]);
    // RFC 3550 §5.1: version 2, and the payload type that was agreed upon (JPEG, RFC 3551 §6).
    let mut packet = [0; 1_500];
    let length = pictures.recv(&mut packet).unwrap();
    assert!(length > 20 && packet[0] >> 6 == 2 && packet[1] & 0x7f == 26, "{:x?}", &packet[..12]);
    let Some(report) = world.report() else { return };
    for handler in ["phones.invite", "phones.ack", "phones.bye"] {
        let handled = &report.handlers[handler];
        // An answer that is confirmed late is sent again, and confirmed again (RFC 3261 §13.2.2.4).
        let is_once = handled.started == 5 || handler == "phones.ack" && handled.started > 5;
        assert!(is_once && handled.failed == 0, "{handler}: {handled:?}");
    }
}

fn a_camera_that_is_not_there() {
    let world = World::new(BackEnd::Native);
    world.call("missing", "kitchen", &["-m", "5", "-r", "10"]);
    assert_eq!(world.report().unwrap().handlers["phones.bye"].started, 0);
}

/// One message in seven is lost, on the way there and back: what is repeated makes up for it.
fn calls_over_a_bad_line() {
    let world = World::new(BackEnd::Native);
    world.call("call", "garden", &["-m", "10", "-r", "10", "-d", "800", "-lost", "14"]);
    // Whatever came twice was handled once.
    assert_eq!(world.report().unwrap().handlers["phones.invite"].started, 10);
}

/// The camera is asked within its session's time whether it is there; when it is not any more, the
/// telephone is told BYE, and its answer ends the call.
fn a_camera_that_dies_ends_the_call(back_end: BackEnd) {
    let mut world = World::new(back_end);
    let mut said = BufReader::new(world.camera.stdout().unwrap());
    let (net, camera) = (&world.net, &mut world.camera);
    let gateway = &world.gateway;
    std::thread::scope(|scope| {
        let telephone = scope.spawn(|| call(net, "hung_up", "garden", &["-m", "1"]));
        let mut line = String::new();
        while line != "OPTIONS\n" {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "the camera ended");
        }
        camera.interrupt().unwrap();
        telephone.join().unwrap();
    });
    let Some(gateway) = gateway.runner() else { return };
    assert!(wait_until(LIMIT, || gateway.report().handlers["phones.heard"].started == 1));
    assert_eq!(gateway.report().handlers["phones.bye"].started, 0);
}
