//! Gateway programs in a running gateway: servers that they call are lost and come back, and sessions
//! over a reload.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, WITHIN, examples, folder};
use gatewright_testbed::{free_port, wait_until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// Between CoAP and a broker at `broker`, which is pinged each second.
fn start(name: &str, broker: u16) -> Daemon {
    let folder = folder(&format!("programs-{name}"));
    for module in ["mqtt.gate", "observe.gate", "coap.gate"] {
        fs::copy(examples().join(module), folder.join(module)).unwrap();
    }
    let text = fs::read_to_string(examples().join("coap_to_mqtt.gate")).unwrap();
    let text = text.replace("every 5 seconds", "every 1 second");
    fs::write(folder.join("program.gate"), text).unwrap();
    let broker = format!("127.0.0.1:{broker}");
    let at = format!("[\"apps=127.0.0.1:0\", \"feed={broker}\", \"broker={broker}\"]");
    Daemon::start(folder, &format!("[[program]]\nfile = \"program.gate\"\nat = {at}\n"))
}

/// A broker that accepts clients and hears what they say, until it ends.
struct Broker {
    clients: Arc<Mutex<Vec<TcpStream>>>,
    port: u16,
}

impl Broker {
    /// CONNACK, accepted (MQTT 3.1.1 §3.2).
    const ACCEPTED: [u8; 4] = [0x20, 2, 0, 0];

    fn start(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let clients: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let its = Arc::clone(&clients);
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                // A connection without a word ends the broker.
                let mut octets = [0; 1024];
                if client.read(&mut octets).unwrap_or(0) == 0 {
                    return;
                }
                client.write_all(&Self::ACCEPTED).unwrap();
                its.lock().unwrap().push(client.try_clone().unwrap());
                thread::spawn(move || while client.read(&mut octets).is_ok_and(|read| read > 0) {});
            }
        });
        Self { clients, port }
    }

    /// Closes the listener and all connections.
    fn stop(self) {
        drop(TcpStream::connect(("127.0.0.1", self.port)).unwrap());
        assert!(wait_until(WITHIN, || TcpStream::connect(("127.0.0.1", self.port)).is_err()));
        for client in self.clients.lock().unwrap().drain(..) {
            let _gone = client.shutdown(Shutdown::Both);
        }
    }
}

/// The last event of a kind, once there are so many.
#[track_caller]
fn awaited(daemon: &Daemon, kind: &str, count: usize) -> Value {
    let mut found = Vec::new();
    let came = wait_until(WITHIN, || {
        let all = daemon.ask(&["events", "--json"]).json();
        let all = all["events"].as_array().unwrap();
        found = all.iter().filter(|event| event["kind"] == kind).cloned().collect();
        found.len() >= count
    });
    assert!(came, "{}", daemon.ask(&["events"]).out);
    found.pop().unwrap()
}

/// The report of the programs.
fn told(daemon: &Daemon) -> Value {
    let status = daemon.ask(&["status", "--json"]).json();
    let parts = status["parts"].as_array().unwrap();
    parts.iter().find(|part| part["name"] == "programs").unwrap().clone()
}

#[test]
fn a_broker_that_is_down_and_back_is_an_event() {
    let port = free_port();
    let daemon = start("broker", port);
    let lost = awaited(&daemon, "peer-lost", 1);
    assert_eq!(lost["level"], "warning");
    let fields = &lost["fields"];
    assert_eq!(fields["program"], "coap_to_mqtt");
    assert_eq!(fields["role"], "feed");
    assert_eq!(fields["address"], format!("127.0.0.1:{port}"));
    assert_eq!(fields["cause"], "connection refused");
    let said = daemon.ask(&["status"]).out;
    let wanted = format!("coap_to_mqtt: feed at 127.0.0.1:{port}: connection refused");
    assert!(said.contains(&wanted), "{said}");
    assert_eq!(told(&daemon)["alarms"][0]["raised"], 1);
    let metrics = daemon.ask(&["status", "--metrics"]).out;
    assert!(metrics.contains("peer-unreachable\"} 1"), "{metrics}");
    let broker = Broker::start(port);
    assert_eq!(awaited(&daemon, "peer-back", 1)["fields"]["role"], "feed");
    assert_eq!(told(&daemon)["alarms"][0]["raised"], 0);
    // The broker ends while nobody asks anything of it.
    broker.stop();
    let lost = awaited(&daemon, "peer-lost", 2);
    assert_eq!(lost["fields"]["cause"], "it closed the connection");
    let _again = Broker::start(port);
    awaited(&daemon, "peer-back", 2);
    // Nothing else is said, however often it was tried.
    let all = daemon.ask(&["events", "--json"]).json();
    let said = all["events"].as_array().unwrap().iter();
    let kinds: Vec<_> = said.filter(|event| event["part"] == "programs").collect();
    assert_eq!(kinds.len(), 4, "{kinds:#?}");
}

/// The answer of a CoAP request for `/a`: observed with this number, or not.
fn get(apps: u16, number: u8, is_observed: bool) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    let options: &[u8] = if is_observed { b"\x60\x51a" } else { b"\xb1a" };
    let packet = [&[0x41, 1, 0x12, number, 0xaa], options].concat();
    socket.send_to(&packet, ("127.0.0.1", apps)).unwrap();
    let mut answer = [0; 100];
    let length = socket.recv(&mut answer).unwrap();
    answer[..length].to_vec()
}

#[test]
fn sessions_stay_over_a_reload_of_the_same_program_and_their_end_is_told() {
    let port = free_port();
    let broker = Broker::start(port);
    let daemon = start("sessions", port);
    let said = daemon.said();
    let apps = said.lines().find_map(|line| line.trim().rsplit_once(':')?.1.parse().ok()).unwrap();
    // A session begins with the first observer; 4.04 is a session without a value.
    assert_eq!(get(apps, 1, true)[1], 0x45);
    let sees = || wait_until(WITHIN, || !broker.clients.lock().unwrap().is_empty());
    assert!(sees());
    // PUBLISH of `20` to the topic `a`.
    let publish = [0x30, 5, 0, 1, b'a', b'2', b'0'];
    broker.clients.lock().unwrap()[0].write_all(&publish).unwrap();
    assert!(wait_until(WITHIN, || get(apps, 2, false).ends_with(b"20")));
    let said = daemon.ask(&["top", "--once", "--interval", "0.05"]).out;
    assert!(said.contains("coap_to_mqtt apps.get"), "{said}");
    // The description changes, and the program does not.
    let description = daemon.folder.join("gateway.toml");
    let text = fs::read_to_string(&description).unwrap();
    fs::write(&description, format!("{text}\n[log]\nlevel = \"debug\"\n")).unwrap();
    let said = daemon.ask(&["reload"]);
    assert!(said.code == 0 && !said.out.contains("sessions"), "{}{}", said.out, said.err);
    assert!(get(apps, 3, false).ends_with(b"20"));
    // The program changes.
    let file = daemon.folder.join("program.gate");
    let program = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("// Changed.\n{program}")).unwrap();
    let said = daemon.ask(&["reload"]);
    assert!(said.code == 0 && said.out.contains("1 sessions are not taken over"), "{}", said.out);
    assert_eq!(get(apps, 4, false)[1], 0x84);
    assert_eq!(awaited(&daemon, "changed", 1)["level"], "info");
}
