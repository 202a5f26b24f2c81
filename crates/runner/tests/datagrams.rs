//! Datagrams by the loops: a server's, a client's, and those of a group.
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

use common::back_end::BackEnd;
use common::{LIMIT, compiled, device, program};
use gatewright_runner::{Runner, RunnerOptions};
use gatewright_testbed::{Namespace, Needs};
use libtest_mimic::{Arguments, Trial};
use std::net::{SocketAddr, UdpSocket};

fn main() {
    let plain = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let missing = Needs::new().namespaces().missing().is_some();
    let trials = [
        plain("a_datagram_is_answered_over_tcp", a_datagram_is_answered_over_tcp),
        plain("a_session_is_in_one_loop_whoever_asks", a_session_is_in_one_loop_whoever_asks),
        plain("a_client_sends_datagrams", a_client_sends_datagrams),
        plain("a_group_is_heard_and_asked", a_group_is_heard_and_asked).with_ignored_flag(missing),
        plain("sessions_of_a_group_are_answered", sessions_of_a_group_are_answered)
            .with_ignored_flag(missing),
    ];
    let needs = Needs::new().namespaces();
    let name = "a_group_is_answered_once_by_two_loops";
    let once = BackEnd::trials(name, &needs, a_group_is_answered_once_by_two_loops);
    let trials = trials.into_iter().chain(once).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn at(role: &str, address: &dyn ToString) -> (String, String) {
    (role.to_owned(), address.to_string())
}

fn asker() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn answer(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut octets = [0; 1_500];
    let (length, from) = socket.recv_from(&mut octets).unwrap();
    (octets[..length].to_vec(), from)
}

/// CoAP over UDP to Modbus over TCP, from sixteen peers at once and by two loops.
fn a_datagram_is_answered_over_tcp() {
    let addresses = vec![at("things", &"127.0.0.1:0"), at("device", &device())];
    let options = RunnerOptions { loops: 2, addresses, ..RunnerOptions::default() };
    let runner = Runner::start(&program("coap_to_modbus.gate"), options).unwrap();
    let things = runner.listening()[0].address;
    let peers: Vec<UdpSocket> = (0..16).map(|_| asker()).collect();
    for (id, peer) in (0_u8..).zip(&peers) {
        // RFC 7252 §3: confirmable GET of "registers" and "40".
        let ask = [&[0x40, 1, 0x12, id, 0xb9], &b"registers"[..], &[2], b"40"].concat();
        peer.send_to(&ask, things).unwrap();
    }
    for (id, peer) in (0_u8..).zip(&peers) {
        let (octets, from) = answer(peer);
        // Acknowledgement, 2.05, content format 0, "258".
        let wanted = [&[0x60, 0x45, 0x12, id, 0xc0, 0xff], &b"258"[..]].concat();
        assert_eq!((octets, from), (wanted, things));
    }
    let report = runner.report();
    assert_eq!((report.counters["datagrams_in"], report.counters["datagrams_out"]), (16, 16));
}

const ECHO: &str = r#"
message echo {
    view question = datagram, at most 64 octets { id: private u16; text: rest }
    view answer = datagram, at most 64 octets { id: private u16; text: rest }
}

protocol echo = udp, async CAST {
    message echo
    connections at most 100
    request question { otherwise -> ask }
    response answer
    flow by id
    sending question { id = fresh }
    sending answer to question { id = request.id }
    malformed -> ignore
    failed -> ignore
    full -> ignore
    allow amplification
}

gateway passes {
    role here = echo server at "127.0.0.1:1"
    role there = echo client to "127.0.0.1:2"

    on ask(question) {
        let answer = send question(text: question.text) to there within 5 seconds else fail
        return answer(text: answer.text)
    }
}
"#;

/// Answers questions with their text twice, as it stands.
fn echo(socket: &UdpSocket) {
    let (octets, from) = answer(socket);
    let text = &octets[2..];
    socket.send_to(&[&octets[..2], text, text].concat(), from).unwrap();
}

fn a_client_sends_datagrams() {
    let program = compiled("echo.gate", &ECHO.replace("CAST", "unicast"));
    let far = asker();
    let addresses = vec![at("here", &"127.0.0.1:0"), at("there", &far.local_addr().unwrap())];
    let options = RunnerOptions { loops: 1, addresses, ..RunnerOptions::default() };
    let runner = Runner::start(&program, options).unwrap();
    let near = asker();
    near.send_to(b"\x01\x02ab", runner.listening()[0].address).unwrap();
    echo(&far);
    assert_eq!(answer(&near).0, b"\x01\x02abab");
}

/// The server is a member of one group, the client asks another; both on the loopback interface of
/// a namespace.
fn a_group_is_heard_and_asked() {
    const HERE: &str = "239.255.0.1:7001";
    const THERE: &str = "239.255.0.2:7002";
    let net = Namespace::new().unwrap();
    net.ip(&["link", "set", "lo", "multicast", "on"]).unwrap();
    net.ip(&["route", "add", "239.255.0.0/16", "dev", "lo"]).unwrap();
    let program = compiled("group.gate", &ECHO.replace("CAST", "multicast"));
    let addresses = vec![at("here", &HERE), at("there", &THERE)];
    let options = RunnerOptions { loops: 2, addresses, ..RunnerOptions::default() };
    let runner = net.run(|| Runner::start(&program, options)).unwrap().unwrap();
    net.run(|| {
        let far = UdpSocket::bind(THERE).unwrap();
        far.set_read_timeout(Some(LIMIT)).unwrap();
        far.join_multicast_v4(&[239, 255, 0, 2].into(), &[127, 0, 0, 1].into()).unwrap();
        let near = asker();
        near.send_to(b"\x01\x02ab", HERE).unwrap();
        echo(&far);
        let (octets, from) = answer(&near);
        assert_eq!(octets, b"\x01\x02abab");
        // Answers come from an address of the gateway's, not from the group.
        assert!(!from.ip().is_multicast() && from.port() == 7001, "{from}");
    })
    .unwrap();
    // Two loops, and yet it was heard once.
    let report = runner.report();
    assert_eq!((report.counters["datagrams_in"], report.counters["datagrams_out"]), (2, 2));
}

/// Every member of a group gets each datagram, and the loops are members at one address.
fn a_group_is_answered_once_by_two_loops(back_end: BackEnd) {
    const HERE: &str = "239.255.0.4:7004";
    const THERE: &str = "239.255.0.5:7005";
    let net = Namespace::new().unwrap();
    net.ip(&["link", "set", "lo", "multicast", "on"]).unwrap();
    net.ip(&["route", "add", "239.255.0.0/16", "dev", "lo"]).unwrap();
    let text = ECHO.replace("CAST", "multicast");
    let at = [("here", HERE), ("there", THERE)];
    let _gateway = match back_end {
        BackEnd::Native => back_end.run_text(&net, ("once.gate", &text), 2, &at),
        BackEnd::C | BackEnd::Java => back_end.run_built(&net, ("once.gate", &text), 2, &at),
    };
    net.run(|| {
        let far = UdpSocket::bind(THERE).unwrap();
        far.set_read_timeout(Some(LIMIT)).unwrap();
        far.join_multicast_v4(&[239, 255, 0, 5].into(), &[127, 0, 0, 1].into()).unwrap();
        let near = asker();
        // What a second loop asked or answered would be found in the place of the next round's.
        for round in 0..50_u8 {
            near.send_to(&[1, round, b'0' + round], HERE).unwrap();
            let (octets, from) = answer(&far);
            assert_eq!(octets[2..], [b'0' + round], "round {round}");
            far.send_to(&octets, from).unwrap();
            assert_eq!(answer(&near).0, [1, round, b'0' + round]);
        }
    })
    .unwrap();
}

const COUNTING: &str = r#"
message tally {
    view packet = datagram, at most 64 octets {
        id: private u16
        name: rest
    }
}

protocol tally = udp, async unicast {
    message tally
    flow by id
    connections at most 100
    allow amplification
    sending packet to packet { id = request.id }
    request packet { otherwise -> count }
    response packet
    malformed -> ignore
    failed    -> ignore
    full      -> ignore
}

gateway counting {
    role house = tally server at "127.0.0.1:7000"
    session by name of house, at most 100, idle 1 minute { seen: 0..1_000 }

    on count(packet) {
        start session else return packet(name: "full")
        let seen = (session.seen else 0) mod 1_000 + 1
        session.seen = seen
        return packet(name: "{seen}")
    }
}
"#;

/// Twelve sessions, each asked by twelve peers, by three loops: the kernel gives a peer's datagrams
/// to any of them, and each session is found by all of its peers.
fn a_session_is_in_one_loop_whoever_asks() {
    let options = RunnerOptions {
        loops: 3,
        addresses: vec![at("house", &"127.0.0.1:0")],
        ..RunnerOptions::default()
    };
    let runner = Runner::start(&compiled("counting.gate", COUNTING), options).unwrap();
    assert_eq!(runner.loops(), 3);
    let house = runner.listening()[0].address;
    let peers: Vec<UdpSocket> = (0..12).map(|_| asker()).collect();
    for (before, peer) in peers.iter().enumerate() {
        for name in 0..12_u8 {
            peer.send_to(&[0, name, b'a' + name], house).unwrap();
            let (octets, from) = answer(peer);
            assert_eq!(from, house);
            assert_eq!(octets[..2], [0, name]);
            assert_eq!(String::from_utf8_lossy(&octets[2..]), (before + 1).to_string());
        }
    }
    let counters = runner.report().counters;
    assert!(counters["handovers"] > 0, "{counters:?}");
    assert_eq!(counters["handovers_lost"], 0);
}

/// A group has one socket, whatever number of loops is wanted: every session has to be where it can
/// answer.
fn sessions_of_a_group_are_answered() {
    const GROUP: &str = "239.255.0.3:7003";
    let net = Namespace::new().unwrap();
    net.ip(&["link", "set", "lo", "multicast", "on"]).unwrap();
    net.ip(&["route", "add", "239.255.0.0/16", "dev", "lo"]).unwrap();
    let program = compiled("group.gate", &COUNTING.replace("unicast", "multicast"));
    let addresses = vec![at("house", &GROUP)];
    let options = RunnerOptions { loops: 3, addresses, ..RunnerOptions::default() };
    let runner = net.run(|| Runner::start(&program, options)).unwrap().unwrap();
    net.run(|| {
        let peers = [asker(), asker()];
        for (before, peer) in peers.iter().enumerate() {
            // Twelve keys are not all of one loop's.
            for name in 0..12_u8 {
                peer.send_to(&[0, name, b'a' + name], GROUP).unwrap();
                let octets = answer(peer).0;
                assert_eq!(octets[..2], [0, name]);
                assert_eq!(String::from_utf8_lossy(&octets[2..]), (before + 1).to_string());
            }
        }
    })
    .unwrap();
    let counters = runner.report().counters;
    assert_eq!((counters["datagrams_in"], counters["datagrams_out"]), (24, 24));
    assert_eq!((counters["datagrams_unsent"], counters["handovers_lost"]), (0, 0));
}
