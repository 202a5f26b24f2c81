//! `host` on an exclusive link: this machine's own programs are reached there while the gateway
//! forwards and answers for itself. Peers are kernels.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod echoes;
mod running;
mod trials;

use echoes::{asks, connect, echo};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use running::{Daemon, WITHIN, ping};
use std::{io::ErrorKind, net::UdpSocket, thread, time::Duration};

const DESCRIPTION: &str = "\
[link.lan]
device = \"g0\"
mode = \"packet\"
addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]
host = \"tap0\"

[link.wan]
device = \"g1\"
mode = \"packet\"
addresses = [\"10.10.2.1/24\"]

[udp_gateway.echo]
listen = { link = \"lan\", port = 5000 }
forward = { address = \"10.10.2.2\", port = 7 }
";

fn main() {
    let name = "programs_of_this_machine_are_reached_by_its_link";
    trials::run_in_both(
        &Needs::new().namespaces().program("ping"),
        running::set_process_mode,
        [(name, programs_of_this_machine_are_reached)],
    )
}

fn programs_of_this_machine_are_reached() {
    let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
    let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
    let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
    for address in ["10.10.1.2/24", "fd00:1::2/64"] {
        lan.a.add_address(address).unwrap();
    }
    wan.b.add_address("10.10.2.2/24").unwrap();
    lan.up().unwrap();
    wan.up().unwrap();
    north.add_route("default", "10.10.1.1").unwrap();
    south.add_route("default", "10.10.2.1").unwrap();
    let gateway = Daemon::start("host", &middle, DESCRIPTION);
    let passes = |to| wait_until(WITHIN, || ping(&north, &["-c1", "-W1", to]));
    assert!(passes("10.10.2.2"), "{}", gateway.said());

    // A server of this machine answers, over both families, and one that is not there refuses.
    let servers = [echo(&middle, "0.0.0.0:2222"), echo(&middle, "[::]:2223")];
    asks(&north, "10.10.1.1:2222");
    asks(&north, "[fd00:1::1]:2223");
    for server in servers {
        server.join().unwrap();
    }
    let refused = connect(&north, "10.10.1.1:2224").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    // A program of this machine reaches a server there.
    let server = echo(&north, "0.0.0.0:2225");
    asks(&middle, "10.10.1.2:2225");
    server.join().unwrap();

    datagrams_are_answered(&north, &middle, &south);

    // The gateway answers for itself, once: a second answer would be one of the kernel's.
    let pinged = north.command("ping").args(["-n", "-c5", "-i0.2", "-W30", "10.10.1.1"]).output();
    let pinged = String::from_utf8(pinged.unwrap().stdout).unwrap();
    assert!(pinged.contains(" 0% packet loss") && !pinged.contains("DUP"), "{pinged}");
    assert!(passes("10.10.2.2"));

    // Without the key the interface is gone, and so is the server.
    gateway.describe(&DESCRIPTION.replace("host = \"tap0\"\n", ""));
    gateway.ask(&["reload"]).text();
    let gone = || middle.ip(&["link", "show", "dev", "tap0"]).is_err();
    assert!(wait_until(Duration::from_secs(10), gone), "{}", gateway.said());
    assert!(passes("10.10.1.1") && passes("10.10.2.2"));
    gateway.describe(DESCRIPTION);
    gateway.ask(&["reload"]).text();
    let server = echo(&middle, "0.0.0.0:2228");
    asks(&north, "10.10.1.1:2228");
    server.join().unwrap();
}

/// Datagrams from `north`: to a program of `middle`, to the gateway's own socket, which relays them
/// to `south`, and to a port that nobody has.
fn datagrams_are_answered(north: &Namespace, middle: &Namespace, south: &Namespace) {
    let servers = [echo_datagram(middle, "0.0.0.0:2226"), echo_datagram(south, "0.0.0.0:7")];
    let client = bound(north, "0.0.0.0:0");
    for port in [2226, 5000] {
        client.connect(("10.10.1.1", port)).unwrap();
        client.send(b"here").unwrap();
        let mut octets = [0; 64];
        assert_eq!(client.recv(&mut octets).unwrap(), 4, "port {port}");
    }
    for server in servers {
        server.join().unwrap();
    }
    client.connect(("10.10.1.1", 2227)).unwrap();
    client.send(b"here").unwrap();
    let refused = client.recv(&mut [0; 64]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

/// A UDP socket in `place`, which waits no longer than [`WITHIN`].
fn bound(place: &Namespace, at: &str) -> UdpSocket {
    let socket = place.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    socket.set_read_timeout(Some(WITHIN)).unwrap();
    socket
}

/// Sends one datagram that arrives at `at` back to its sender.
fn echo_datagram(place: &Namespace, at: &str) -> thread::JoinHandle<()> {
    let server = bound(place, at);
    thread::spawn(move || {
        let mut octets = [0; 64];
        let (length, from) = server.recv_from(&mut octets).unwrap();
        server.send_to(&octets[..length], from).unwrap();
    })
}
