//! `gatewright lab stamp` from the command line, on loopback.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{WITHIN, gatewright};
use gatewright_testbed::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const GATEWRIGHT: &str = env!("CARGO_BIN_EXE_gatewright");

/// A stateful reflector; it ends with its test.
struct Reflector {
    process: Child,
    at: SocketAddr,
}

impl Reflector {
    fn start() -> Self {
        let mut command = Command::new(GATEWRIGHT);
        command.args([
            "lab",
            "stamp",
            "reflect",
            "--listen",
            "127.0.0.1:0",
            "--stateful",
            "--json",
        ]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let at = said["listens"].as_str().unwrap().parse().unwrap();
        Self { process, at }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A relay with one port towards the reflector, whoever sends to it. Of ten packets it loses the fourth
/// and fifth there, and the reflection of the eighth. It ends when nothing has come for a while.
fn relay(to: SocketAddr) -> (SocketAddr, Arc<AtomicU32>) {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(WITHIN)).unwrap();
    }
    far.connect(to).unwrap();
    let (at, passed) = (near.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&passed);
    std::thread::spawn(move || {
        let mut octets = [0; 2048];
        while let Ok((len, from)) = near.recv_from(&mut octets) {
            let number = count.fetch_add(1, Ordering::Relaxed) % 10;
            if matches!(number, 3 | 4) {
                continue;
            }
            far.send(&octets[..len]).unwrap();
            let Ok(len) = far.recv(&mut octets) else { return };
            if number != 7 {
                near.send_to(&octets[..len], from).unwrap();
            }
        }
    });
    (at, passed)
}

/// Of each further run, although the reflector takes all of them for one session.
#[test]
fn losses_are_those_of_this_run_behind_a_relay_with_one_port() {
    let reflector = Reflector::start();
    let (at, _) = relay(reflector.at);
    let at = at.to_string();
    let send = ["lab", "stamp", "send", &at, "--count", "20", "--rate", "500", "--wait-ms", "500"];
    for _run in 0..3 {
        let report = gatewright(&[&send[..], &["--json"]].concat()).json();
        assert_eq!((&report["sent"], &report["reflected"]), (&json!(20), &json!(14)), "{report}");
        let lost = ["lost_there", "lost_back", "lost_either"].map(|key| &report[key]);
        assert_eq!(lost, [&json!(4), &json!(2), &json!(0)], "{report}");
        assert_eq!((&report["stateful"], &report["lost_unknown"]), (&json!(true), &Value::Null));
    }
    let said = gatewright(&send);
    assert!(said.out.contains("14 reflected; lost there 4, on the way back 2\n"), "{}", said.out);
}

#[test]
fn where_nothing_is_lost_nothing_is_claimed() {
    let reflector = Reflector::start();
    let at = reflector.at.to_string();
    let report =
        gatewright(&["lab", "stamp", "send", &at, "--count", "20", "--rate", "500", "--json"]);
    let report = report.json();
    for (key, wanted) in [
        ("reflected", json!(20)),
        ("stateful", Value::Null),
        ("lost_there", json!(0)),
        ("lost_back", json!(0)),
        ("reflector_error_us", Value::Null),
    ] {
        assert_eq!(report[key], wanted, "{key}: {report}");
    }
}

#[test]
fn an_interrupted_sender_tells_what_it_has_measured() {
    let reflector = Reflector::start();
    let (at, passed) = relay(reflector.at);
    let mut send = Command::new(GATEWRIGHT);
    send.args(["lab", "stamp", "send", &at.to_string(), "--count", "100000", "--json"]);
    let send = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_begun = wait_until(WITHIN, || passed.load(Ordering::Relaxed) >= 3);
    kill(Pid::from_raw(send.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let output = send.wait_with_output().unwrap();
    assert!(is_begun, "nothing was sent");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!((3..1000).contains(&report["sent"].as_u64().unwrap()), "{report}");
    assert!(report["round_trip"]["p50"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn octets_that_no_packet_has_are_refused() {
    let folder = common::folder("lab-stamp-octets");
    let key = folder.join("lab.key");
    fs::write(&key, "a secret of the test\n").unwrap();
    let key = ["--key-file", key.to_str().unwrap()];
    for (octets, key, said) in [
        ("50", &key[..], "an authenticated packet has 112 octets, or with padding 116 or more"),
        ("44", &key[..], "an authenticated packet has 112 octets"),
        ("46", &[], "a packet has 44 octets, or with padding 48 or more"),
    ] {
        let send = ["lab", "stamp", "send", "127.0.0.1:9", "--octets", octets];
        let answer = gatewright(&[&send[..], key].concat());
        assert_eq!(answer.code, 2, "{octets}: {}", answer.err);
        assert!(answer.err.contains(said), "{octets}: {}", answer.err);
    }
}

/// A key that can be guessed authenticates nobody.
#[test]
fn a_short_key_is_refused() {
    let folder = common::folder("lab-stamp-key");
    let key = folder.join("lab.key");
    let file = key.to_str().unwrap();
    for text in ["", "k", "fifteen octets!\n"] {
        fs::write(&key, text).unwrap();
        for verb in [
            &["lab", "stamp", "send", "127.0.0.1:9", "--key-file", file][..],
            &["lab", "stamp", "reflect", "--stop-after", "0", "--key-file", file],
            &["lab", "agent", "--stop-after", "0", "--key-file", file],
        ] {
            let answer = gatewright(verb);
            assert_eq!(answer.code, 78, "{verb:?}: {}", answer.err);
            assert!(answer.err.contains("16 at the least"), "{}", answer.err);
        }
    }
}

/// Nothing came back of what was sent in one of two sessions.
#[test]
fn a_session_of_which_nothing_came_back_is_no_success() {
    let folder = common::folder("lab-stamp-agents");
    fs::write(folder.join("lab.key"), "a secret of the test\n").unwrap();
    let reflector = Reflector::start();
    // It has the port, and reflects nothing.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (good, silent) = (reflector.at.to_string(), silent.local_addr().unwrap().to_string());
    let mut agent = Command::new(GATEWRIGHT);
    agent.args(["lab", "agent", "--json", "--listen", "127.0.0.1:0", "--stop-after", "60"]);
    agent
        .args(["--send-to", &good, "--send-to", &silent, "--key-file"])
        .arg(folder.join("lab.key"));
    let mut agent = agent.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(agent.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let listens: Value = serde_json::from_str(&line).unwrap();
    let experiment = format!(
        "title = 't'\nkey_file = 'lab.key'\noctets = [112]\nrate = [100]\nseconds = 0.2\nrepeats = 2\n\
         steady_pct = 1000.0\n[[agent]]\nname = 'one'\naddress = {}\n\
         [[session]]\nfrom = 'one'\nreflector = '{good}'\n\
         [[session]]\nfrom = 'one'\nreflector = '{silent}'\n",
        listens["listens"]
    );
    let file = folder.join("two.toml");
    fs::write(&file, experiment).unwrap();
    let (file, output) = (file.to_str().unwrap(), folder.to_str().unwrap());
    let said = gatewright(&["lab", "run", "--agents", file, "--output", output]);
    let without = gatewright(&["lab", "run", file]);
    let _ = agent.kill();
    let _ = agent.wait();
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("40 of 40 back, median"), "{}", said.out);
    assert!(said.out.contains("0 of 40 back; nothing came back\n"), "{}", said.out);
    assert!(!said.out.contains("unsteady"), "{}", said.out);
    assert_eq!(without.code, 78, "{}", without.err);
    let hint = format!("`gatewright lab run --agents {file}`");
    assert!(without.err.contains(&hint), "{}", without.err);
}
