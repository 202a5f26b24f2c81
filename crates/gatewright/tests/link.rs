//! Gateways on TAP interfaces: `gatewright link` about one, and TCP of kernels through one.
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
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{fs, path::PathBuf, thread};

const DESCRIPTION: &str = "\
[link.lan]
mode = \"tap\"
device = \"gw-lan\"
mac = \"02:00:00:00:00:33\"
mtu = 1400
addresses = [\"192.0.2.1/24\"]

[link.wan]
mode = \"tap\"
device = \"gw-wan\"
addresses = [\"198.51.100.1/24\"]
";

/// How long a gateway has to answer.
const START_WITHIN: Duration = Duration::from_secs(30);

fn main() {
    let needs = Needs::new().namespaces().program("ping");
    let tests: [(&str, fn()); 2] = [
        ("link_tells_the_links_of_a_running_gateway", link_tells_the_links_of_a_running_gateway),
        ("tcp_between_tap_and_cable_goes_by_super_frames", tcp_goes_by_super_frames),
    ];
    trials::run(&needs, tests)
}

fn link_tells_the_links_of_a_running_gateway() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("link");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let (file, socket) = (folder.join("gateway.toml"), folder.join("s"));
    fs::write(&file, DESCRIPTION).unwrap();
    let gatewright = || Command::new(env!("CARGO_BIN_EXE_gatewright"));
    let link = |arguments: &[&str]| -> Output {
        gatewright().arg("link").args(arguments).arg("--socket").arg(&socket).output().unwrap()
    };
    assert_eq!(link(&[]).status.code(), Some(69), "no gateway runs yet");
    let namespace = Namespace::new().unwrap();
    let gateway = namespace
        .command(env!("CARGO_BIN_EXE_gatewright"))
        .args(["run".as_ref(), file.as_os_str(), "--socket".as_ref(), socket.as_os_str()])
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("said")).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(folder.join("said")).unwrap();
    assert!(wait_until(START_WITHIN, || link(&[]).status.success()), "{}", said());
    let (all, one, json, none) =
        (link(&[]), link(&["wan"]), link(&["lan", "--json"]), link(&["lann"]));
    drop(gateway);
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    let all = text(&all.stdout);
    assert!(all.contains("lan: ") && all.contains("192.0.2.1/24"), "{all}");
    assert!(all.contains("wan: ") && all.contains("198.51.100.1/24"), "{all}");
    let one = text(&one.stdout);
    assert!(one.starts_with("wan: ") && !one.contains("192.0.2.1"), "{one}");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let links = json["links"].as_array().unwrap();
    assert_eq!((links.len(), links[0]["name"].as_str()), (1, Some("lan")));
    // Those in force, not those of the device.
    let told = (links[0]["mac"].as_str(), links[0]["mtu"].as_u64());
    assert_eq!(told, (Some("02:00:00:00:00:33"), Some(1400)));
    assert_eq!(none.status.code(), Some(1));
    let told = text(&none.stderr);
    assert!(told.contains("there is no link lann: lan, wan"), "{told}");
}

const TAP_AND_CABLE: &str = "\
[link.tap]
mode = \"tap\"
device = \"tap0\"
addresses = [\"10.10.1.1/24\", \"fd00:1::1/64\"]

[link.cable]
device = \"g1\"
mode = \"packet\"
addresses = [\"10.10.2.1/24\", \"fd00:2::1/64\"]
";

/// Octets of a stream: some thousand segments.
const OCTETS: usize = 4 << 20;

/// The kernel at the TAP device and the one at the cable exchange streams through the gateway, which
/// routes segments: both sides are given super-frames, and each octet arrives as it was.
fn tcp_goes_by_super_frames() {
    let [middle, south] = [(); 2].map(|()| Namespace::new().unwrap());
    let cable = Veth::pair(&middle, "g1", &south, "s0").unwrap();
    cable.up().unwrap();
    for address in ["10.10.2.2/24", "fd00:2::2/64"] {
        cable.b.add_address(address).unwrap();
    }
    let gateway = Daemon::start("link-tcp", &middle, TAP_AND_CABLE);
    let tap = TestInterface::existing(&middle, "tap0");
    for (address, to, via) in [
        ("10.10.1.2/24", "10.10.2.0/24", "10.10.1.1"),
        ("fd00:1::2/64", "fd00:2::/64", "fd00:1::1"),
    ] {
        tap.add_address(address).unwrap();
        middle.add_route(to, via).unwrap();
    }
    south.add_route("default", "10.10.2.1").unwrap();
    south.add_route("default", "fd00:2::1").unwrap();
    for server in ["10.10.2.2", "fd00:2::2"] {
        let passes = || wait_until(WITHIN, || ping(&middle, &["-c1", "-W1", server]));
        assert!(passes(), "{}", gateway.said());
    }
    for server in ["10.10.2.2:4000", "[fd00:2::2]:4000"] {
        exchange(&middle, &south, server.parse().unwrap());
    }
    for host in [&middle, &south] {
        assert_eq!(host.counter("TcpInCsumErrors").unwrap(), 0);
    }
    let status = gateway.ask(&["status", "--json"]).json();
    for link in status["links"].as_array().unwrap() {
        let counters = link["counters"].as_array().unwrap();
        let count = |name: &str| {
            let found = counters.iter().find(|pair| pair[0] == name);
            found.and_then(|pair| pair[1].as_u64()).unwrap()
        };
        assert!(count("super_frames") > 0 && count("super_frames_sent") > 0, "{link}");
        assert_eq!(count("receive_malformed") + count("transmit_length"), 0, "{link}");
    }
}

/// Sends [`OCTETS`] from `client` to a server at `south`, which sends them back.
fn exchange(client: &Namespace, south: &Namespace, at: SocketAddr) {
    let listener = south.run(|| TcpListener::bind(at)).unwrap().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        let mut octets = vec![0; OCTETS];
        stream.read_exact(&mut octets).unwrap();
        stream.write_all(&octets).unwrap();
    });
    let mut stream = client.run(|| TcpStream::connect_timeout(&at, WITHIN)).unwrap().unwrap();
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let octets: Vec<u8> = (0..=250).cycle().take(OCTETS).collect();
    stream.write_all(&octets).unwrap();
    let mut back = vec![0; octets.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == octets, "what came back from {at} is not what went there");
    server.join().unwrap();
}
