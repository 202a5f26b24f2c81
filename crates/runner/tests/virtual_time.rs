//! A shipped program in virtual time: its loop, unchanged, over a simulated network that loses,
//! repeats and reorders by a seed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    dead_code,
    unreachable_pub,
    reason = "a test may fail loudly, and uses its part of what the tests share"
)]

mod common;

use common::program;
use gatewright_edge::{Bind, Datagrams, Listener, Network, Sharing, Stream};
use gatewright_runner::{LocalLoop, RunReport, RunnerOptions, Stopper};
use gatewright_sim::{
    Chance, Impairment, SimDatagrams, SimListener, SimPeer, SimPoller, SimStream, World,
    WorldConfig, WorldCounters,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

/// Requests of one run, of a register each, from register 10 on.
const REQUESTS: u8 = 60;
/// RFC 7252 §4.8: ACK_TIMEOUT without its random factor, and MAX_RETRANSMIT.
const ACK_TIMEOUT: Duration = Duration::from_secs(2);
const RETRANSMIT_MAX: u32 = 4;

/// How a request ended, and when.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Outcome {
    request: u8,
    at: Duration,
    answer: Option<Vec<u8>>,
}

/// Asks for one register after the other, and repeats what is not answered (RFC 7252 §4.2).
struct CoapClient {
    socket: SimDatagrams,
    server: SocketAddr,
    request: u8,
    sent: u32,
    due: Duration,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    stopper: Stopper<SimPoller>,
}

impl CoapClient {
    fn send(&mut self, now: Duration) {
        let number = (10 + self.request).to_string();
        let ask = [&[0x40, 1, 0x12, self.request, 0xb9], &b"registers"[..], &[2]].concat();
        self.socket.send(&[&ask, number.as_bytes()].concat(), self.server).unwrap();
        self.due = now + ACK_TIMEOUT * 2_u32.pow(self.sent);
        self.sent += 1;
    }

    fn end(&mut self, at: Duration, answer: Option<Vec<u8>>) {
        self.outcomes.lock().unwrap().push(Outcome { request: self.request, at, answer });
        self.request += 1;
        (self.sent, self.due) = (0, at);
    }
}

impl SimPeer for CoapClient {
    fn run(&mut self, now: Duration) -> Option<Duration> {
        let mut octets = [0; 1_500];
        while let Ok((length, from)) = self.socket.receive(&mut octets) {
            assert_eq!(from, self.server);
            // An answer that was repeated on its way is of an earlier request.
            if octets[3] == self.request && self.request < REQUESTS {
                self.end(now, Some(octets[..length].to_vec()));
            }
        }
        if self.request < REQUESTS && now >= self.due {
            if self.sent <= RETRANSMIT_MAX {
                self.send(now);
            } else {
                self.end(now, None);
            }
        }
        if self.request == REQUESTS {
            self.stopper.stop(Duration::ZERO);
            return None;
        }
        Some(self.due)
    }
}

/// A Modbus device: each register holds its number and 218.
struct ModbusDevice {
    listener: SimListener,
    streams: Vec<(SimStream, Vec<u8>)>,
    asked: Arc<Mutex<Vec<u16>>>,
}

impl SimPeer for ModbusDevice {
    fn run(&mut self, _: Duration) -> Option<Duration> {
        while let Ok((stream, _)) = self.listener.accept() {
            self.streams.push((stream, Vec::new()));
        }
        for (stream, read) in &mut self.streams {
            let mut octets = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut octets) {
                read.extend_from_slice(&octets[..length]);
            }
            while read.len() >= 12 {
                let query: Vec<u8> = read.drain(..12).collect();
                let register = u16::from_be_bytes([query[8], query[9]]);
                self.asked.lock().unwrap().push(register);
                let value = (register + 218).to_be_bytes();
                let reply = [&query[..4], &[0, 5, 1, 3, 2], &value].concat();
                // Whoever asked may have gone.
                let _gone = stream.write(&reply, false);
            }
        }
        None
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Run {
    outcomes: Vec<Outcome>,
    asked: Vec<u16>,
    counters: WorldCounters,
    report: RunReport,
    ended: Duration,
}

/// Runs the gateway between the client and the device; `seed` decides everything.
fn run(seed: u64, impairment: Impairment) -> Run {
    let world = World::new(WorldConfig { seed, latency: Duration::from_millis(10), impairment });
    let network = world.network(GATEWAY);
    let addresses = vec![
        ("things".to_owned(), format!("{GATEWAY}:5683")),
        // A name that only this world knows.
        ("device".to_owned(), "device.example:502".to_owned()),
    ];
    world.add_name("device.example", DEVICE);
    let options = RunnerOptions { addresses, seed, ..RunnerOptions::default() };
    let gateway = LocalLoop::new(&network, &program("coap_to_modbus.gate"), &options).unwrap();
    let server = gateway.listening()[0].address;
    let (outcomes, asked) = (Arc::default(), Arc::default());
    let bind = Bind::Server(SocketAddr::new(CLIENT, 40_000));
    let client = CoapClient {
        socket: world.network(CLIENT).datagrams("client", bind, Sharing::First).unwrap(),
        server,
        request: 0,
        sent: 0,
        due: Duration::ZERO,
        outcomes: Arc::clone(&outcomes),
        stopper: gateway.stopper(),
    };
    let at = SocketAddr::new(DEVICE, 502);
    let listener = world.network(DEVICE).listen("device", at, Sharing::First).unwrap();
    let device = ModbusDevice { listener, streams: Vec::new(), asked: Arc::clone(&asked) };
    world.add_peer(CLIENT, Box::new(client));
    world.add_peer(DEVICE, Box::new(device));
    let report = gateway.run();
    let (counters, ended) = (world.counters(), world.now());
    let outcomes = outcomes.lock().unwrap().clone();
    let asked = asked.lock().unwrap().clone();
    Run { outcomes, asked, counters, report, ended }
}

/// Acknowledgement, 2.05, content format 0, and the register's value.
fn content(request: u8) -> Vec<u8> {
    let value = (u16::from(request) + 10 + 218).to_string();
    [&[0x60, 0x45, 0x12, request, 0xc0, 0xff], value.as_bytes()].concat()
}

#[test]
fn every_request_is_answered_on_a_good_line() {
    let Run { outcomes, asked, counters, report, ended } = run(1, Impairment::default());
    assert_eq!(outcomes.len(), usize::from(REQUESTS));
    for Outcome { request, answer, .. } in outcomes {
        assert_eq!(answer, Some(content(request)));
    }
    assert!(asked.into_iter().eq(10..10 + u16::from(REQUESTS)));
    assert_eq!((counters.lost, report.counters["datagrams_in"]), (0, 60));
    // Each request crosses to the gateway, to the device, and back, in 10 ms each; the first one's
    // connection takes 20 ms more.
    assert_eq!(ended, Duration::from_millis(40 * 60 + 20));
}

/// A bad line: what is repeated reaches the device once (RFC 7252 §4.5), every answer is right, and
/// nearly every request has one. A seed always gives the same.
#[test]
fn a_bad_line_loses_time_and_nothing_else() {
    let impairment = Impairment {
        loss: Chance::percent(15),
        duplicate: Chance::percent(10),
        jitter: Duration::from_millis(30),
        ..Impairment::default()
    };
    let (mut answered, mut repeated) = (0, 0);
    for seed in 0..20 {
        let one = run(seed, impairment);
        assert_eq!(one.outcomes.len(), usize::from(REQUESTS), "seed {seed}");
        for Outcome { request, answer, .. } in &one.outcomes {
            let Some(answer) = answer else { continue };
            // 5.04: the device's answer came later than the program waits.
            let late = vec![0x60, 0xa4, 0x12, *request];
            assert!(*answer == content(*request) || *answer == late, "seed {seed}: {answer:x?}");
            answered += usize::from(*answer != late);
        }
        let mut asked = one.asked.clone();
        asked.dedup();
        assert_eq!(asked, one.asked, "seed {seed}: a repetition reached the device");
        repeated += one.report.counters["datagrams_in"] - u64::from(REQUESTS);
        if seed < 4 {
            assert_eq!(run(seed, impairment), one, "seed {seed} is not the same again");
        }
    }
    assert!(answered > 20 * usize::from(REQUESTS) * 9 / 10, "{answered} answered");
    assert!(repeated > 300, "{repeated} repeated");
    assert_ne!(run(0, impairment).outcomes, run(1, impairment).outcomes);
}
