//! A gateway with one cable, on which three networks are: two VLANs and what carries no tag. Their
//! hosts are kernels that tag by themselves; tshark judges what is on the cable.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod running;

use gatewright_testbed::{Namespace, Needs, TestInterface, Transport, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use running::{Daemon, WITHIN, ping, ping_times};
use std::process::Stdio;

/// One cable, a switch that floods, and a host on each of its networks.
struct Trunk {
    red: Namespace,
    blue: Namespace,
    plain: Namespace,
    switch: Namespace,
    daemon: Daemon,
    _middle: Namespace,
}

const RED: &str = "10.10.1.2";
const BLUE: &str = "10.10.2.2";
const BLUE6: &str = "fd00:2::2";

fn description(mode: &str) -> String {
    format!(
        "[link.blue]\non = \"trunk\"\nvlan = 20\naddresses = [\"10.10.2.1/24\", \"fd00:2::1/64\"]\n\
         [link.trunk]\ndevice = \"g0\"\nmode = \"{mode}\"\naddresses = [\"10.10.0.1/24\"]\n\
         [link.red]\non = \"trunk\"\nvlan = 10\npriority = 5\n\
         addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]\n"
    )
}

impl Trunk {
    fn new(name: &str, mode: &str) -> Result<Self, Failed> {
        let [red, blue, plain, switch, middle] = [(); 5].map(|()| Namespace::new().unwrap());
        switch.ip(&["link", "add", "s0", "type", "bridge", "mcast_snooping", "0"])?;
        let bridge = TestInterface::existing(&switch, "s0");
        bridge.disable_ipv6()?;
        bridge.up()?;
        let plug = |cable: Veth| -> Result<TestInterface, Failed> {
            cable.b.disable_ipv6()?;
            switch.ip(&["link", "set", cable.b.name(), "master", "s0"])?;
            cable.up()?;
            Ok(cable.a)
        };
        // A kernel without an address is silent, also one before Linux 6.6 behind a packet socket.
        plug(Veth::pair(&middle, "g0", &switch, "p0")?)?.disable_ipv6()?;
        let red_end = plug(Veth::pair(&red, "h0", &switch, "p1")?)?.vlan(10)?;
        let blue_end = plug(Veth::pair(&blue, "h0", &switch, "p2")?)?.vlan(20)?;
        let plain_end = plug(Veth::pair(&plain, "h0", &switch, "p3")?)?;
        for (end, net) in [(plain_end, 0), (red_end, 1), (blue_end, 2)] {
            let host = end.namespace();
            end.add_address(&format!("10.10.{net}.2/24"))?;
            host.add_route("default", &format!("10.10.{net}.1"))?;
            if net > 0 {
                end.add_address(&format!("fd00:{net}::2/64"))?;
                host.add_route("default", &format!("fd00:{net}::1"))?;
            }
        }
        let daemon = Daemon::start(name, &middle, &description(mode));
        let trunk = Self { red, blue, plain, switch, daemon, _middle: middle };
        let all = [BLUE, BLUE6, "10.10.0.2"];
        let reached = |to: &&str| ping(&trunk.red, &["-c1", "-W1", to]);
        assert!(wait_until(WITHIN, || all.iter().all(reached)), "{}", trunk.said());
        Ok(trunk)
    }

    fn said(&self) -> String {
        self.daemon.said() + &self.daemon.ask(&["status"]).out
    }

    /// What a link of the gateway has counted.
    fn counted(&self, link: &str, name: &str) -> u64 {
        let status = self.daemon.ask(&["status", "--json"]).json();
        let links = status["links"].as_array().unwrap();
        let link = links.iter().find(|found| found["name"] == link).unwrap();
        let counters = link["counters"].as_array().unwrap();
        counters.iter().find(|pair| pair[0] == name).unwrap()[1].as_u64().unwrap()
    }
}

/// Payloads up to the most of a frame, and in fragments.
const SIZES: [&str; 6] = ["0", "56", "1472", "1473", "4000", "20000"];

fn hosts_on_vlans_reach_each_other(mode: &str) -> Result<(), Failed> {
    let trunk = Trunk::new(&format!("vlan-{mode}"), mode)?;
    for to in [BLUE, BLUE6, "10.10.0.2", "10.10.1.1", "fd00:1::1"] {
        for size in SIZES {
            // A kernel that has no time for its queues loses what is in them.
            let sized = || ping(&trunk.red, &["-c2", "-l2", "-i10", "-s", size, to]);
            assert!(wait_until(WITHIN, sized), "{size} octets to {to}: {}", trunk.said());
        }
    }
    assert!(ping(&trunk.plain, &["-c1", "-W30", RED]), "{}", trunk.said());
    for to in [BLUE, BLUE6] {
        for transport in [&["-n", "4M"][..], &["-u", "-b", "10M", "-n", "1M", "-l", "1200"]] {
            iperf(&trunk, to, transport)?;
        }
    }
    for host in [&trunk.red, &trunk.blue, &trunk.plain] {
        for counter in ["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors"] {
            assert_eq!(host.counter(counter)?, 0, "{counter}");
        }
    }
    // What a VLAN counts is a part of what its cable does.
    let [red, blue] = ["red", "blue"].map(|link| trunk.counted(link, "received"));
    assert!(red > 1000 && blue > 100, "{red} {blue}");
    assert!(trunk.counted("trunk", "received") >= red + blue);
    Ok(())
}

/// One transfer from the red host to a server on the blue one.
fn iperf(trunk: &Trunk, to: &str, transport: &[&str]) -> Result<(), Failed> {
    let server = trunk.blue.command("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
    assert!(trunk.blue.wait_listening(Transport::Tcp, 5201, WITHIN)?);
    let client = trunk.red.command("iperf3").args(["-c", to]).args(transport).output()?;
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(client.status.success(), "{to} {transport:?}: {said}{}", trunk.said());
    server.wait()?;
    Ok(())
}

/// What tshark reads in a capture: one line a packet with these fields.
fn read(trunk: &Trunk, octets: &[u8], fields: &[&str]) -> Vec<String> {
    let file = trunk.daemon.folder.join("capture.pcapng");
    std::fs::write(&file, octets).unwrap();
    let fields = fields.iter().flat_map(|field| ["-e", field]);
    let mut tshark = std::process::Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "separator=,", "-r"]).arg(&file);
    let read = tshark.args(fields).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    String::from_utf8_lossy(&read.stdout).lines().map(str::to_owned).collect()
}

/// A capture with `arguments` while all hosts have something to say.
fn captured(trunk: &Trunk, arguments: &[&str]) -> Result<Vec<u8>, Failed> {
    let mut capture = trunk.daemon.command(&["capture"]);
    let capture = capture.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| capture.wait_with_output());
        while !reader.is_finished() {
            for host in [&trunk.red, &trunk.plain] {
                // Nothing is on its way any more when this returns.
                ping_times(host, 2, BLUE);
            }
        }
        Ok(reader.join().unwrap()?.stdout)
    })
}

fn verbs_know_vlans() -> Result<(), Failed> {
    let trunk = Trunk::new("vlan-verbs", "packet")?;
    let ask = |arguments: &[&str]| trunk.daemon.ask(arguments);
    let told = ask(&["link"]).text();
    assert!(told.contains("VLAN") && told.contains("tag 10 on trunk"), "{told}");

    // A capture of a VLAN has its frames, with their tags, and no other's.
    let captured = captured(&trunk, &["--link", "red", "--count", "40"])?;
    let fields = ["vlan.id", "vlan.priority", "ip.src", "_ws.malformed", "ip.checksum.status"];
    let lines = read(&trunk, &captured, &fields);
    assert!(lines.len() >= 4, "{lines:?}");
    for line in &lines {
        assert!(line.starts_with("10,") && line.contains(",,"), "{line}");
        // What we send has our priority, what the host sends has its own.
        let ours = line.split(',').nth(2) == Some(BLUE);
        assert!(!ours || line.starts_with("10,5,"), "{line}");
    }

    // A handler on a VLAN counts its packets only.
    ask(&["attach", "count", "--at", "ether:ipv4", "--link", "blue"]).text();
    assert!(ping_times(&trunk.plain, 3, RED));
    assert_eq!(ask(&["status", "--json"]).json()["attached"][0]["packets"], 0);
    assert!(ping_times(&trunk.plain, 3, BLUE));
    assert_eq!(ask(&["status", "--json"]).json()["attached"][0]["packets"], 3);

    // A packet of a VLAN is traced through it, whether it has its tag already or not.
    // The host asks for its neighbour's address now and then: that is no packet of IPv4.
    let one = ["--link", "red", "--side", "receive", "--count", "1"];
    let mut received = Vec::new();
    let is_ipv4 = wait_until(WITHIN, || {
        received = self::captured(&trunk, &one).unwrap();
        read(&trunk, &received, &["ip.src"]).iter().any(|source| !source.is_empty())
    });
    assert!(is_ipv4, "{}", trunk.said());
    let file = trunk.daemon.folder.join("one.pcapng");
    std::fs::write(&file, received)?;
    let trace = ask(&["trace", "--link", "red", "--from", file.to_str().unwrap()]).text();
    assert!(trace.contains("vlan") && trace.contains("ipv4"), "{trace}");

    // A VLAN is taken down and up; the others stay.
    ask(&["link", "down", "red"]).text();
    assert!(!ask(&["route"]).text().contains("10.10.1.0/24"));
    assert!(
        !ping(&trunk.blue, &["-c1", "-W1", RED])
            && ping(&trunk.blue, &["-c1", "-W30", "10.10.0.2"])
    );
    ask(&["link", "up", "red"]).text();
    assert!(wait_until(WITHIN, || ping(&trunk.blue, &["-c1", "-W1", RED])), "{}", trunk.said());

    // The cable goes, and its VLANs go with it.
    trunk.switch.ip(&["link", "set", "p0", "down"])?;
    let ups =
        || ask(&["status", "--json"]).json()["links"].to_string().matches("\"up\":true").count();
    assert!(wait_until(WITHIN, || ups() == 0), "{}", trunk.said());
    trunk.switch.ip(&["link", "set", "p0", "up"])?;
    assert!(wait_until(WITHIN, || ping(&trunk.blue, &["-c1", "-W1", RED])), "{}", trunk.said());
    Ok(())
}

fn main() {
    let needs = || {
        let needs = Needs::new().namespaces().vlans().program("ping").program("iperf3");
        needs.program("tshark")
    };
    let trial = |name: &str, needs: Needs, run: fn() -> Result<(), Failed>| match needs.missing() {
        None => Trial::test(name, run),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), run).with_ignored_flag(true)
        }
    };
    let trials = vec![
        trial("packet_socket::hosts_on_vlans_reach_each_other", needs(), || {
            hosts_on_vlans_reach_each_other("packet")
        }),
        // Before, veth takes tags out of frames and tells them to nobody behind AF_XDP.
        trial("xdp::hosts_on_vlans_reach_each_other", needs().linux(6, 8), || {
            hosts_on_vlans_reach_each_other("xdp")
        }),
        trial("verbs_know_vlans", needs(), verbs_know_vlans),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
