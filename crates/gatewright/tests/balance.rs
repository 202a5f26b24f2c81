//! A TCP proxy over relays that share flows: a connection goes where its flow and those before it
//! keep their bounds, or is refused. And the delay model that a running gateway fits to the proxy.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod common;

use common::{Daemon, WITHIN, folder};
use gatewright_testbed::{free_port, wait_until};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A server that echoes; it counts the connections that it has accepted.
struct Echo {
    port: u16,
    accepted: Arc<AtomicUsize>,
    is_killed: Arc<AtomicBool>,
}

impl Echo {
    fn start() -> Self {
        Self::start_at(0)
    }

    /// One that takes 100 ms for each answer.
    fn start_slow() -> Self {
        Self::start_with(0, Duration::from_millis(100))
    }

    fn start_at(port: u16) -> Self {
        Self::start_with(port, Duration::ZERO)
    }

    fn start_with(port: u16, takes: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let is_killed = Arc::new(AtomicBool::new(false));
        let (count, ends) = (Arc::clone(&accepted), Arc::clone(&is_killed));
        std::thread::spawn(move || {
            let mut streams = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if ends.load(Ordering::Acquire) {
                    break;
                }
                streams.push(stream.try_clone().unwrap());
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(len @ 1..) = stream.read(&mut buffer) {
                        std::thread::sleep(takes);
                        if stream.write_all(&buffer[..len]).is_err() {
                            break;
                        }
                    }
                    // The clone would keep it open.
                    let _ended = stream.shutdown(Shutdown::Both);
                });
            }
            drop(listener);
            for stream in streams {
                let _ended = stream.shutdown(Shutdown::Both);
            }
        });
        Self { port, accepted, is_killed }
    }

    /// Ends the listener and all connections, as the death of the process does.
    fn kill(&self) {
        self.is_killed.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let here = (Ipv4Addr::LOCALHOST, self.port);
        let is_gone = || TcpStream::connect(here).is_err();
        assert!(wait_until(WITHIN, is_gone), "port {} still accepts", self.port);
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

/// A client whose connection is served: it has an answer.
fn served(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    exchange(&mut stream, 1).unwrap();
    stream
}

fn exchange(stream: &mut TcpStream, len: usize) -> std::io::Result<()> {
    let mut answer = vec![0; len];
    stream.write_all(&vec![7; len])?;
    stream.read_exact(&mut answer)
}

fn description(port: u16, policy: &str, relays: &[(u16, u32)]) -> String {
    let relay = |(port, fixed_us): &(u16, u32)| {
        format!(
            "[[balance.servers.relay]]\naddress = \"127.0.0.1\"\nport = {port}\n\
             fixed_ns = {}\n",
            fixed_us * 1000
        )
    };
    let relays: String = relays.iter().map(relay).collect();
    format!(
        "[tcp_proxy.front]\nlisten = \"127.0.0.1:{port}\"\nbalance = \"servers\"\n\
         flow = {{ rate = 100, octets = 100, within_us = 6000 }}\n\
         [balance.servers]\npolicy = \"{policy}\"\n{relays}"
    )
}

fn status(gateway: &Daemon) -> Value {
    gateway.ask(&["status", "--json"]).json()
}

/// M/M/1 with 1,000 packets a second keeps 6 ms for 95 % of the packets up to ρ = 0.52, and with
/// 4,000 a second up to 0.875, as in the tests of `gatewright-delay`: 5 and 35 flows of 100 packets a
/// second.
#[test]
fn connections_go_where_their_bounds_are_kept_or_are_refused() {
    let (slow, fast, port) = (Echo::start(), Echo::start(), free_port());
    let text = description(port, "least-load", &[(slow.port, 1000), (fast.port, 250)]);
    let gateway = Daemon::start(folder("balance-flows"), &text);
    let mut clients: Vec<TcpStream> = (0..40).map(|_| served(port)).collect();
    assert_eq!((slow.accepted(), fast.accepted()), (5, 35));

    let mut refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    refused.set_read_timeout(Some(WITHIN)).unwrap();
    let end = exchange(&mut refused, 1).unwrap_err().kind();
    let is_end = matches!(
        end,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof
    );
    assert!(is_end, "{end}");
    let balance = status(&gateway)["balances"][0].clone();
    assert_eq!((&balance["name"], &balance["admitted"]), (&"servers".into(), &40.into()));
    assert_eq!(balance["refused"]["late"], 1, "{balance}");
    assert_eq!(
        (&balance["relays"][0]["flows"], &balance["relays"][1]["flows"]),
        (&5.into(), &35.into())
    );
    let events = gateway.ask(&["events", "--json"]).json();
    let event = events["events"].as_array().unwrap().iter().find(|it| it["kind"] == "flow-refused");
    assert!(event.unwrap()["text"].as_str().unwrap().contains("its bound is 6000"), "{events}");
    let told = gateway.ask(&["status"]).out;
    assert!(
        told.contains("balance servers: least-load, 40 flows admitted, refused 1 late"),
        "{told}"
    );
    let metrics = gateway.ask(&["status", "--metrics"]).out;
    let sample = "gatewright_balance_refused_flows_total{balance=\"servers\",reason=\"late\"} 1";
    assert!(metrics.contains(sample), "{metrics}");

    // A place is free when a connection has ended, and no sooner.
    clients.pop();
    let is_free = || {
        let relays = status(&gateway)["balances"][0]["relays"].clone();
        let flows = |at: usize| relays[at]["flows"].as_u64().unwrap();
        flows(0) + flows(1) == 39
    };
    assert!(wait_until(WITHIN, is_free), "{}", status(&gateway)["balances"]);
    clients.push(served(port));
}

#[test]
fn a_changed_balance_is_taken_by_reload() {
    let (one, other, port) = (Echo::start(), Echo::start(), free_port());
    let gateway =
        Daemon::start(folder("balance-reload"), &description(port, "min-hop", &[(one.port, 250)]));
    drop(served(port));
    let text = description(port, "weighted", &[(other.port, 250)]);
    std::fs::write(gateway.folder.join("gateway.toml"), text).unwrap();
    let reload = gateway.ask(&["reload", "--json"]);
    assert_eq!(reload.code, 0, "{}", reload.err);
    assert!(reload.out.contains("balance servers"), "{}", reload.out);
    let _served = served(port);
    assert_eq!((one.accepted(), other.accepted()), (1, 1));
    let balances = status(&gateway)["balances"].clone();
    assert_eq!(
        (balances.as_array().unwrap().len(), &balances[0]["policy"]),
        (1, &"weighted".into())
    );
}

#[test]
fn the_proxy_s_delay_model_is_in_status_and_metrics() {
    let (server, port) = (Echo::start(), free_port());
    let forward = format!(
        "[tcp_proxy.front]\nlisten = \"127.0.0.1:{port}\"\n\
         forward = {{ address = \"127.0.0.1\", port = {} }}\n",
        server.port
    );
    let gateway = Daemon::start(folder("balance-model"), &forward);
    let mut client = served(port);
    // Exchanges of several sizes, until the second reading, which has a prediction.
    let mut count = 0_usize;
    let mut reading = Value::Null;
    let has_reading = wait_until(WITHIN * 2, || {
        for size in (0..600).map(|it| 100 + it % 7 * 500) {
            exchange(&mut client, size).unwrap();
            count += 1;
        }
        let delays = status(&gateway)["delays"].clone();
        reading = delays
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["relay"] == "front")
            .cloned()
            .unwrap_or_default();
        reading["predicted_p99_us"].is_number()
    });
    assert!(has_reading, "after {count} exchanges: {reading}");
    assert_eq!(reading["mode"], "tcp_proxy");
    assert!(reading["samples"].as_u64().unwrap() >= 1000, "{reading}");
    assert!(reading["a_us"].is_number() && reading["c_ns"].is_number(), "{reading}");
    let load = reading["load"].as_f64().unwrap();
    assert!(load > 0.0 && load < 1.0, "{reading}");
    let told = gateway.ask(&["status"]).out;
    assert!(told.contains("     model: "), "{told}");
    let metrics = gateway.ask(&["status", "--metrics"]).out;
    let sample = "gatewright_delay_measured_p99_seconds{mode=\"tcp_proxy\",relay=\"front\"}";
    assert!(metrics.contains(sample), "{metrics}");
}

/// A relay without a listener always looks idle to its delay model, and is the quicker one here. It
/// is left out: no client notices. When it listens again, it has connections again.
#[test]
fn a_relay_that_is_killed_is_left_out_until_it_accepts_again() {
    let (slow, fast, port) = (Echo::start(), Echo::start(), free_port());
    let text = description(port, "least-load", &[(slow.port, 250), (fast.port, 30)]);
    let gateway = Daemon::start(folder("balance-killed"), &text);
    for _ in 0..5 {
        drop(served(port));
    }
    assert!(fast.accepted() > 0);
    fast.kill();

    let (before, mut clients) = (slow.accepted(), Vec::new());
    for _ in 0..20 {
        clients.push(served(port));
    }
    assert_eq!(slow.accepted() - before, 20);
    let balance = status(&gateway)["balances"][0].clone();
    let killed = balance["relays"][1]["reachability"].clone();
    assert_eq!(killed["left_out"], true, "{balance}");
    assert!(killed["unreachable"].as_u64().unwrap() >= 1, "{balance}");
    assert_eq!(balance["relays"][0]["reachability"]["unreachable"], 0, "{balance}");
    assert_eq!((&balance["admitted"], &balance["refused"]), (&25.into(), &json!({})), "{balance}");
    let told = gateway.ask(&["status"]).out;
    assert!(told.contains(", left out, "), "{told}");
    let metrics = gateway.ask(&["status", "--metrics"]).out;
    let address = format!("127.0.0.1:{}", fast.port);
    let sample =
        format!("gatewright_balance_left_out{{balance=\"servers\",relay=\"{address}\"}} 1");
    assert!(metrics.contains(&sample), "{metrics}");

    let back = Echo::start_at(fast.port);
    let is_back = || {
        drop(served(port));
        back.accepted() > 0
    };
    assert!(wait_until(WITHIN, is_back), "{}", status(&gateway)["balances"]);
    let accepted = back.accepted();
    clients.push(served(port));
    assert_eq!(back.accepted(), accepted + 1);
    let events = || {
        let events = gateway.ask(&["events", "--json"]).json();
        let events = events["events"].as_array().unwrap().clone();
        events.into_iter().filter(|it| it["part"] == "balance").collect::<Vec<_>>()
    };
    let are_told = || events().len() == 2;
    assert!(wait_until(WITHIN, are_told), "{:?}", events());
    for (event, kind) in events().iter().zip(["relay-left-out", "relay-back"]) {
        let relay = &event["fields"]["relay"];
        assert_eq!((&event["kind"], relay), (&kind.into(), &address.as_str().into()));
    }
}

/// A relay that dies while connections go over it: their clients see the end at once, a new client
/// notices nothing, and the relay has connections again when it is back.
#[test]
fn a_relay_that_dies_ends_its_connections_and_new_ones_go_elsewhere_until_it_is_back() {
    let (slow, fast, port) = (Echo::start(), Echo::start(), free_port());
    let text = description(port, "least-load", &[(slow.port, 250), (fast.port, 30)]);
    let gateway = Daemon::start(folder("balance-dies"), &text);
    let mut dying: Vec<TcpStream> = (0..5).map(|_| served(port)).collect();
    assert_eq!((slow.accepted(), fast.accepted()), (0, 5));
    let relay = |at: usize| status(&gateway)["balances"][0]["relays"][at].clone();
    assert_eq!(relay(1)["flows"], 5);

    fast.kill();
    for client in &mut dying {
        // Before any time of the description has passed: `idle_s` is far longer than this waits.
        let end = client.read(&mut [0]);
        let is_end = match &end {
            Ok(len) => *len == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        assert!(is_end, "{end:?}");
    }
    drop(dying);
    assert!(wait_until(WITHIN, || relay(1)["flows"] == 0), "{}", relay(1));
    let mut others: Vec<TcpStream> = (0..5).map(|_| served(port)).collect();
    assert_eq!((slow.accepted(), relay(0)["flows"].clone()), (5, 5.into()));
    assert_eq!(relay(1)["reachability"]["left_out"], true, "{}", relay(1));

    let back = Echo::start_at(fast.port);
    let is_back = || {
        drop(served(port));
        back.accepted() > 0
    };
    assert!(wait_until(WITHIN, is_back), "{}", status(&gateway)["balances"]);
    assert_eq!(relay(1)["reachability"]["left_out"], false, "{}", relay(1));
    // Connections of before stay where they are.
    for client in &mut others {
        exchange(client, 1).unwrap();
    }
}

/// Two relays with one model of 5 ms, the second of which takes 100 ms: with `model = "live"` its
/// service time is longer than described, which is an event and shown.
#[test]
fn a_live_relay_that_is_slower_than_described_is_measured_and_told() {
    let (quick, slow, port) = (Echo::start(), Echo::start_slow(), free_port());
    let text = description(port, "weighted", &[(quick.port, 5000), (slow.port, 5000)]);
    let text = text
        .replace("within_us = 6000", "within_us = 900000")
        .replace("rate = 100", "rate = 5")
        .replace("fixed_ns", "model = \"live\"\nfixed_ns");
    let gateway = Daemon::start(folder("balance-live"), &text);
    let mut clients: Vec<TcpStream> = (0..8).map(|_| served(port)).collect();
    assert!(slow.accepted() >= 3, "{}", slow.accepted());
    let is_asking = Arc::new(AtomicBool::new(true));
    let ask = |mut client: TcpStream| {
        let is_asking = Arc::clone(&is_asking);
        std::thread::spawn(move || {
            while is_asking.load(Ordering::Relaxed) {
                exchange(&mut client, 100).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        })
    };
    let asking: Vec<_> = clients.drain(1..).map(ask).collect();
    let live = |at: usize| status(&gateway)["balances"][0]["relays"][at]["live"].clone();
    let drifts = wait_until(WITHIN, || live(1)["drifts"] == true);
    is_asking.store(false, Ordering::Relaxed);
    assert!(drifts, "{}", live(1));
    for thread in asking {
        thread.join().unwrap();
    }
    assert!(live(0)["answers"].as_u64().unwrap() >= 32, "{}", live(0));
    let told = gateway.ask(&["status"]).out;
    assert!(told.contains(" times the described by "), "{told}");
    let metrics = gateway.ask(&["status", "--metrics"]).out;
    let sample = format!(
        "gatewright_balance_drifts{{balance=\"servers\",relay=\"127.0.0.1:{}\"}} 1",
        slow.port
    );
    assert!(metrics.contains(&sample), "{metrics}");
    let events = gateway.ask(&["events", "--json"]).json();
    let relay = format!("127.0.0.1:{}", slow.port);
    // The quick one, which takes less than described, may drift, too.
    let is_drift =
        |it: &&Value| it["kind"] == "relay-drifts" && it["fields"]["relay"] == relay.as_str();
    let event = events["events"].as_array().unwrap().iter().find(is_drift).cloned();
    let text = event.unwrap_or_else(|| panic!("{events}"))["text"].to_string();
    let (_, times) = text.split_once(" takes ").unwrap();
    let factor: f64 = times.split(' ').next().unwrap().parse().unwrap();
    assert!(factor > 1.0, "{text}");
}

#[test]
fn one_client_has_no_more_connections_than_one_client_may() {
    let (server, port) = (Echo::start(), free_port());
    let text = description(port, "least-load", &[(server.port, 30)]);
    let text =
        text.replace("127.0.0.1:", "[::]:").replace("policy", "flows_per_client = 3\npolicy");
    let gateway = Daemon::start(folder("balance-client"), &text);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| served(port)).collect();
    let mut refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    refused.set_read_timeout(Some(WITHIN)).unwrap();
    exchange(&mut refused, 1).unwrap_err();
    assert_eq!(status(&gateway)["balances"][0]["refused"], json!({ "client": 1 }));
    let events = gateway.ask(&["events", "--json"]).out;
    assert!(events.contains("127.0.0.1: its client has 3 flows"), "{events}");
    // Another address has its own share, and a place is free when a connection has ended.
    let mut other = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
    exchange(&mut other, 1).unwrap();
    clients.pop();
    let is_free = || status(&gateway)["balances"][0]["relays"][0]["flows"] == 3;
    assert!(wait_until(WITHIN, is_free), "{}", status(&gateway)["balances"]);
    clients.push(served(port));
}
