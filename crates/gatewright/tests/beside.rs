//! A link of the gateway's own, with the kernel beside it (`host`), and a link that the kernel keeps: programs
//! of this machine, the gateway's own sockets, and hosts of all networks reach each other. Peers are kernels.
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

use echoes::{asks, echo};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use running::{Daemon, WITHIN, ping};
use std::{net::UdpSocket, process::Command, time::Duration};

const DESCRIPTION: &str = "\
[link.lan]
device = \"g0\"
mode = \"packet\"
addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]
host = \"tap0\"

[link.wan]
device = \"g1\"
mode = \"packet\"
exclusive = false

[udp_gateway.echo]
listen = { link = \"lan\", port = 5000 }
forward = { address = \"10.10.2.2\", port = 7 }
";

fn main() {
    let name = "programs_sockets_and_hosts_reach_each_other";
    trials::run_in_both(
        &Needs::new().namespaces().program("ping").linux(6, 6),
        running::set_process_mode,
        [(name, programs_sockets_and_hosts_reach_each_other)],
    )
}

/// The gateway and its kernel, a host on each of its links, and one on a link of the kernel alone.
struct World {
    north: Namespace,
    middle: Namespace,
    south: Namespace,
    far: Namespace,
    _links: [Veth; 3],
}

impl World {
    fn new() -> Self {
        let [north, middle, south, far] = [(); 4].map(|()| Namespace::new().unwrap());
        for kernel in [&north, &middle, &south, &far] {
            kernel.sysctl("net.ipv6.conf.default.dad_transmits", "0").unwrap();
        }
        let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
        let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
        let side = Veth::pair(&middle, "k0", &far, "f0").unwrap();
        for (end, address) in [
            (&lan.a, "10.10.1.2/24"),
            (&lan.a, "fd00:1::2/64"),
            (&wan.a, "10.10.2.1/24"),
            (&wan.a, "fd00:2::1/64"),
            (&wan.b, "10.10.2.2/24"),
            (&wan.b, "fd00:2::2/64"),
            (&side.a, "10.10.4.1/24"),
            (&side.a, "fd00:4::1/64"),
            (&side.b, "10.10.4.2/24"),
            (&side.b, "fd00:4::2/64"),
        ] {
            end.add_address(address).unwrap();
        }
        for link in [&lan, &wan, &side] {
            link.up().unwrap();
        }
        for (host, net) in [(&north, "1"), (&south, "2"), (&far, "4")] {
            host.add_route("default", &format!("10.10.{net}.1")).unwrap();
            host.add_route("default", &format!("fd00:{net}::1")).unwrap();
        }
        middle.sysctl("net.ipv4.ip_forward", "1").unwrap();
        middle.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
        Self { north, middle, south, far, _links: [lan, wan, side] }
    }
}

fn programs_sockets_and_hosts_reach_each_other() {
    let world = World::new();
    let World { north, middle, south, far, .. } = &world;
    let gateway = Daemon::start("beside", middle, DESCRIPTION);
    let passes =
        |from: &Namespace, to: &str| wait_until(WITHIN, || ping(from, &["-c1", "-W1", to]));
    for (from, to) in [
        (north, "10.10.2.2"),
        (north, "fd00:2::2"),
        (south, "10.10.1.2"),
        (south, "fd00:1::2"),
        // By the kernel, which has the networks behind its own interfaces, and ours beside it.
        (north, "10.10.4.2"),
        (north, "fd00:4::2"),
        (far, "10.10.1.2"),
        (far, "fd00:1::2"),
        (middle, "10.10.1.2"),
    ] {
        assert!(passes(from, to), "{to}: {}", gateway.said());
    }

    // Programs of this machine, by each link, at the addresses of both.
    for (port, from, to) in [
        (2222, north, "10.10.1.1"),
        (2223, north, "10.10.2.1"),
        (2224, south, "10.10.2.1"),
        (2225, south, "10.10.1.1"),
        (2226, south, "[fd00:1::1]"),
    ] {
        let any = if to.starts_with('[') { "[::]" } else { "0.0.0.0" };
        let server = echo(middle, &format!("{any}:{port}"));
        asks(from, &format!("{to}:{port}"));
        server.join().unwrap();
    }

    // The gateway's own socket relays over the link that the kernel keeps, and has the answers.
    let server = world.south.run(|| UdpSocket::bind("0.0.0.0:7")).unwrap().unwrap();
    server.set_read_timeout(Some(WITHIN)).unwrap();
    let client = north.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    client.set_read_timeout(Some(WITHIN)).unwrap();
    client.send_to(b"here", "10.10.1.1:5000").unwrap();
    let mut octets = [0; 64];
    let (length, from) = server.recv_from(&mut octets).unwrap();
    assert_eq!(
        from.ip().to_string(),
        "10.10.1.1",
        "not the kernel's address, which has the answers"
    );
    server.send_to(&octets[..length], from).unwrap();
    assert_eq!(client.recv(&mut octets).unwrap(), 4);

    // Nothing comes twice: neither what is forwarded nor what a host answers.
    for (from, to) in [
        (north, "10.10.2.2"),
        (south, "10.10.1.2"),
        (north, "10.10.1.1"),
        (south, "10.10.1.1"),
        (south, "10.10.2.1"),
        (north, "10.10.4.2"),
    ] {
        let out = from.command("ping").args(["-n", "-c5", "-i0.1", "-W30", to]).output().unwrap();
        let out = String::from_utf8(out.stdout).unwrap();
        assert!(out.contains(" 0% packet loss") && !out.contains("DUP"), "{out}");
    }
    reloads(&world, &gateway);
    if gateway.ask(&["status", "--json"]).json()["planes"]["mode"] == "process" {
        goes_on(&world, gateway);
    }
}

/// Links, routes and `host` of our own links change while the shared link stays.
fn reloads(world: &World, gateway: &Daemon) {
    let World { north, middle, south, far, .. } = world;
    let passes =
        |from: &Namespace, to: &str| wait_until(WITHIN, || ping(from, &["-c1", "-W1", to]));
    north.ip(&["link", "set", "lo", "up"]).unwrap();
    north.ip(&["address", "add", "10.40.0.1/32", "dev", "lo"]).unwrap();
    let route = "[[route]]\nto = \"10.40.0.0/16\"\nvia = \"10.10.1.2\"\n";
    // The kernel's interface to the far host becomes a link of ours: without the kernel's addresses.
    middle.ip(&["address", "flush", "dev", "k0"]).unwrap();
    let more = "[link.side]\ndevice = \"k0\"\nmode = \"packet\"\naddresses = [\"10.10.4.1/24\"]\n";
    gateway.describe(&format!("{DESCRIPTION}{more}{route}"));
    gateway.ask(&["reload"]).text();
    for (from, to) in
        [(south, "10.40.0.1"), (north, "10.10.4.2"), (south, "10.10.4.2"), (far, "10.10.1.2")]
    {
        assert!(passes(from, to), "{to}: {}", gateway.said());
    }
    // Without `host` our stack is the only host at its address, and has no TCP.
    let without = DESCRIPTION.replace("host = \"tap0\"\n", "");
    gateway.describe(&without);
    gateway.ask(&["reload"]).text();
    let gone = || middle.ip(&["link", "show", "dev", "tap0"]).is_err();
    assert!(wait_until(Duration::from_secs(10), gone), "{}", gateway.said());
    assert!(passes(south, "10.10.1.1") && passes(south, "10.10.1.2") && passes(north, "10.10.2.2"));
    assert!(!ping(south, &["-c1", "-W1", "10.40.0.1"]));
    // What the description cannot set, it says; nothing is changed by that.
    gateway.describe(&format!(
        "{without}[[route]]\nto = \"10.41.0.0/16\"\nvia = \"10.10.2.2\"\nlink = \"wan\"\n"
    ));
    let refused = gateway.ask(&["reload"]);
    assert!(refused.code != Some(0) && refused.err.contains("GW0128"), "{}", refused.err);
    assert!(passes(north, "10.10.2.2"));
}

/// Either plane dies: the other goes on, and what the kernel has learnt meanwhile is followed.
fn goes_on(world: &World, gateway: Daemon) {
    let World { north, middle, south, .. } = world;
    let passes =
        |from: &Namespace, to: &str| wait_until(WITHIN, || ping(from, &["-c1", "-W1", to]));
    gateway.describe(DESCRIPTION);
    gateway.ask(&["reload"]).text();
    let both = |when: &str| {
        assert!(passes(north, "10.10.2.2") && passes(south, "10.10.1.2"), "{when}");
        assert!(passes(south, "10.10.1.1"), "{when}");
    };
    both("before");
    gateway.process.kill();
    both("without control");
    south.ip(&["link", "set", "lo", "up"]).unwrap();
    south.ip(&["address", "add", "10.30.0.1/32", "dev", "lo"]).unwrap();
    middle.add_route("10.30.0.0/16", "10.10.2.2").unwrap();
    let second = Daemon::start("beside", middle, DESCRIPTION);
    let planes = || second.ask(&["status", "--json"]).json()["planes"].clone();
    assert_eq!(planes()["adopted"], true, "{}", second.said());
    both("under the next one");
    assert!(passes(north, "10.30.0.1"), "{}", second.said());
    let data = planes()["data"].to_string();
    assert!(Command::new("kill").args(["-9", &data]).status().unwrap().success());
    both("after the data plane");
    assert!(passes(north, "10.30.0.1"), "{}", second.said());
}
