//! Gateways over ports of DPDK, in a build with it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod running;
mod trials;

use gatewright_testbed::{Namespace, Needs, TestInterface, Veth, wait_until};
use running::{Daemon, WITHIN, ping};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let needs = Needs::new().namespaces().program("ping");
    let tests: [(&str, fn()); 6] = [
        ("kernels_ping_through_a_gateway_over_af_packet", || pings("net_af_packet")),
        ("kernels_ping_through_a_gateway_over_af_xdp", || pings("net_af_xdp")),
        ("a_reload_exchanges_ports", a_reload_exchanges_ports),
        ("the_kernel_pings_a_gateway_over_its_tap", the_kernel_pings_a_gateway_over_its_tap),
        ("the_kernel_beside_a_port_has_its_share", the_kernel_beside_a_port_has_its_share),
        ("an_absent_interface_is_told_by_name", an_absent_interface_is_told_by_name),
    ];
    trials::run(&needs, tests)
}

fn description(driver: &str, more: &str) -> String {
    format!(
        "[link.lan]\nmode = \"dpdk\"\nport = \"{driver}0,iface=g0\"\n\
         addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]\n{more}\n\
         [link.wan]\nmode = \"dpdk\"\nport = \"{driver}1,iface=g1\"\n\
         addresses = [\"10.10.2.1/24\", \"fd00:2::1/64\"]\n"
    )
}

/// `north` – g0 `middle` g1 – `south`, each host with the gateway as its router.
struct Hosts {
    north: Namespace,
    middle: Namespace,
    south: Namespace,
}

impl Hosts {
    fn new() -> Self {
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let cables = [
            (Veth::pair(&north, "n0", &middle, "g0").unwrap(), &north, 1),
            (Veth::pair(&south, "s0", &middle, "g1").unwrap(), &south, 2),
        ];
        for (cable, host, net) in cables {
            cable.b.disable_ipv6().unwrap();
            cable.a.add_address(&format!("10.10.{net}.2/24")).unwrap();
            cable.a.add_address(&format!("fd00:{net}::2/64")).unwrap();
            cable.up().unwrap();
            host.add_route("default", &format!("10.10.{net}.1")).unwrap();
            host.add_route("default", &format!("fd00:{net}::1")).unwrap();
        }
        Self { north, middle, south }
    }
}

fn pings(driver: &str) {
    let hosts = Hosts::new();
    let gateway = Daemon::start(&format!("dpdk-{driver}"), &hosts.middle, &description(driver, ""));
    for (host, far) in
        [(&hosts.north, ["10.10.2.2", "fd00:2::2"]), (&hosts.south, ["10.10.1.2", "fd00:1::2"])]
    {
        for address in far {
            let passes = || wait_until(WITHIN, || ping(host, &["-c1", "-W1", address]));
            assert!(passes(), "{address}: {}", gateway.said());
            assert!(ping(host, &["-c20", "-i0.01", "-W10", "-s1400", address]), "{address}");
        }
    }
    let status = gateway.ask(&["status"]).text();
    assert!(status.contains(" by DPDK"), "{status}");
    let json = gateway.ask(&["status", "--json"]).json();
    for link in json["links"].as_array().unwrap() {
        for pair in link["counters"].as_array().unwrap() {
            let (name, count) = (pair[0].as_str().unwrap(), pair[1].as_u64().unwrap());
            let is_lost = name.starts_with("transmit_") || name == "receive_malformed";
            assert!(!is_lost || count == 0, "{link}");
            assert!(!matches!(name, "received" | "sent") || count > 80, "{link}");
        }
    }
}

/// A port is closed before the next one of its interface or name is opened, and opened again if that
/// fails.
fn a_reload_exchanges_ports() {
    let hosts = Hosts::new();
    let first = description("net_af_packet", "");
    let gateway = Daemon::start("dpdk-reload", &hosts.middle, &first);
    let pings = |when: &str| {
        for address in ["10.10.2.2", "fd00:2::2"] {
            let passes = || wait_until(WITHIN, || ping(&hosts.north, &["-c1", "-W1", address]));
            assert!(passes(), "{when}: {address}: {}", gateway.said());
        }
    };
    let takes = |when: &str, text: &str| {
        gateway.describe(text);
        gateway.ask(&["reload"]).text();
        pings(when);
    };
    let refuses = |why: &str, text: &str| {
        gateway.describe(text);
        let refused = gateway.ask(&["reload"]);
        assert_ne!(refused.code, Some(0));
        assert!(refused.err.contains(why), "{}", refused.err);
        pings(why);
    };
    pings("at first");
    let more = "promiscuous = true\n";
    takes("promiscuous", &description("net_af_packet", more));
    takes("by AF_XDP", &description("net_af_xdp", ""));
    refuses("once for an interface", &description("net_af_xdp", more));
    takes("as before", &first);
    refuses("there is no interface g7", &first.replace("iface=g1", "iface=g7"));
}

/// DPDK makes the interface; the kernel is the host at its other end.
fn the_kernel_pings_a_gateway_over_its_tap() {
    let host = Namespace::new().unwrap();
    let description = "[link.lan]\nmode = \"dpdk\"\nport = \"net_tap0,iface=dt0\"\n\
                       addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]\n";
    let gateway = Daemon::start("dpdk-tap", &host, description);
    let tap = TestInterface::existing(&host, "dt0");
    tap.up().unwrap();
    tap.add_address("10.10.1.2/24").unwrap();
    tap.add_address("fd00:1::2/64").unwrap();
    for address in ["10.10.1.1", "fd00:1::1"] {
        let passes = || wait_until(WITHIN, || ping(&host, &["-c1", "-W1", address]));
        assert!(passes(), "{address}: {}", gateway.said());
        assert!(ping(&host, &["-c20", "-i0.01", "-W10", address]), "{address}");
    }
}

/// `host` makes a TAP interface, whatever the device of the link is.
fn the_kernel_beside_a_port_has_its_share() {
    let hosts = Hosts::new();
    let more = "host = \"h0\"\n";
    let gateway = Daemon::start("dpdk-host", &hosts.middle, &description("net_af_packet", more));
    let listener =
        hosts.middle.run(|| std::net::TcpListener::bind("0.0.0.0:4000")).unwrap().unwrap();
    let connects = || {
        let limit = std::time::Duration::from_secs(1);
        let address = "10.10.1.1:4000".parse().unwrap();
        let stream = hosts.north.run(|| std::net::TcpStream::connect_timeout(&address, limit));
        stream.unwrap().is_ok()
    };
    assert!(wait_until(WITHIN, connects), "{}", gateway.said());
    assert!(listener.accept().is_ok());
    assert!(TestInterface::existing(&hosts.middle, "h0").transmit_dropped().is_ok());
}

fn an_absent_interface_is_told_by_name() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("dpdk-absent");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("gateway.toml");
    let run = |port: &str| {
        fs::write(&file, format!("[link.lan]\nmode = \"dpdk\"\nport = \"{port}\"\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
        command.arg("run").arg(&file).args(["--stop-after", "5", "--socket"]);
        let output = command.arg(folder.join("s")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run("net_af_packet0,iface=gw-none");
    assert!(code == Some(69) && said.contains("there is no interface gw-none"), "{said}");
    let (code, said) = run("net_nothing0");
    assert!(code == Some(69) && said.contains("net_nothing0: DPDK does not open it"), "{said}");
}
