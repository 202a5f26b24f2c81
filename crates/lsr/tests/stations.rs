//! Stations behind nodes of the mesh, in network namespaces: kernels that know nothing of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod nodes;

use gatewright_link::{FrameSelection, FrameSocket, InterfaceProperties};
use gatewright_lsr::{MeshPortState, MeshRouter, MeshSetup, MeshState};
use gatewright_mesh::{MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed};
use nodes::{LIMIT, missing, stream, towards, trial};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let none = missing(Needs::new());
    let dhcp = missing(Needs::new().program("dnsmasq").program("udhcpc"));
    let trials = vec![
        trial("stations_behind_two_nodes_reach_each_other", none.as_deref(), two_stations),
        trial("a_station_gets_its_address_across_the_mesh", dhcp.as_deref(), dhcp_across),
        trial("of_two_nodes_on_a_segment_one_forwards", none.as_deref(), shared_segment),
        trial("a_station_that_moves_is_found_again", none.as_deref(), moved_station),
        trial("nodes_that_do_not_hear_each_other_share_a_link", none.as_deref(), hidden_nodes),
        trial("frames_of_vlans_do_not_leave_them", none.as_deref(), vlans_stay),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The interface of a node towards stations, and that of a station.
const PORT: &str = "lan0";
const STATION: &str = "eth0";

/// Nodes with their cables, and what else is on them.
#[derive(Default)]
struct Site {
    routers: Vec<Option<MeshRouter>>,
    nodes: Vec<Namespace>,
    others: Vec<Namespace>,
    cables: Vec<Veth>,
}

impl Site {
    /// Nodes with these cables, not running yet. Node `i` will have the address 10.99.0.I with
    /// I = `i + 1` at its mesh interface.
    fn new(count: usize, cables: &[(usize, usize)]) -> Result<Self, Failed> {
        let mut this = Self::default();
        for _ in 0..count {
            this.nodes.push(Namespace::new()?);
            this.routers.push(None);
        }
        for &(a, b) in cables {
            let (left, right) = (this.nodes[a].clone(), this.nodes[b].clone());
            this.cable((&left, &towards(b)), (&right, &towards(a)), true)?;
        }
        Ok(this)
    }

    fn cable(
        &mut self,
        (left, left_name): (&Namespace, &str),
        (right, right_name): (&Namespace, &str),
        is_plain: bool,
    ) -> Result<(), Failed> {
        let cable = Veth::with_queues(left, left_name, right, right_name, 1)?;
        cable.a.disable_ipv6()?;
        if is_plain {
            cable.b.disable_ipv6()?;
        }
        cable.up()?;
        self.cables.push(cable);
        Ok(())
    }

    /// A station at a cable to `to`, with the addresses 10.99.0.HOST and fd99::HOST.
    fn station(&mut self, to: (&Namespace, &str), host: u8) -> Result<Namespace, Failed> {
        let station = Namespace::new()?;
        self.cable(to, (&station, STATION), false)?;
        if host != 0 {
            station.ip(&["address", "add", &format!("10.99.0.{host}/24"), "dev", STATION])?;
            let address = format!("fd99::{host}/64");
            station.ip(&["address", "add", &address, "dev", STATION, "nodad"])?;
        }
        self.others.push(station.clone());
        Ok(station)
    }

    /// A switch of the kernel.
    fn switch(&mut self) -> Result<Namespace, Failed> {
        let switch = Namespace::new()?;
        switch.ip(&["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"])?;
        switch.ip(&["link", "set", "br0", "up"])?;
        self.others.push(switch.clone());
        Ok(switch)
    }

    /// Starts a node with its port.
    fn start(&mut self, node: usize, links: &[usize], ports: &[&str]) -> Result<(), Failed> {
        let setup = MeshSetup {
            interface: "mesh0".into(),
            links: links.iter().map(|&other| towards(other)).collect(),
            ports: ports.iter().map(|&port| port.to_owned()).collect(),
            tunnels: Vec::new(),
            profile: Profile::Default,
            routing: MeshRouting::OnDemand,
            trust: MeshTrust::Open,
        };
        let seed = 1 + u64::try_from(node)?;
        let start = || MeshRouter::start(&setup, seed, EventSink::default());
        self.routers[node] = Some(self.nodes[node].run(start)??);
        let address = format!("10.99.0.{}/24", node + 1);
        self.nodes[node].ip(&["address", "replace", &address, "dev", "mesh0"])?;
        Ok(())
    }

    fn state(&self, node: usize) -> MeshState {
        self.routers[node].as_ref().unwrap().state().unwrap()
    }

    fn port(&self, node: usize) -> MeshPortState {
        self.state(node).ports[0].clone()
    }

    fn count(&self, node: usize, name: &str) -> u64 {
        let counters = self.state(node).counters;
        counters.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Until these nodes' ports have this state.
    fn wait_for(&self, nodes: &[usize], state: &str) {
        let all = || nodes.iter().all(|&node| self.port(node).state == state);
        assert!(wait_until(LIMIT, all), "the ports of {nodes:?} do not reach `{state}`");
    }
}

fn pings(from: &Namespace, arguments: &[&str], to: &str) -> Result<bool, Failed> {
    let ping = from.command("ping").args(["-n", "-q", "-i0.01", "-W2"]);
    Ok(ping.args(arguments).arg(to).output()?.status.success())
}

/// A line of three nodes with a station behind each end: ARP, ND, packets of the full MTU, streams; the
/// hosts of nodes, too, whether the station is theirs or another's.
fn two_stations() -> Result<(), Failed> {
    let mut site = Site::new(3, &[(0, 1), (1, 2)])?;
    let (first, last) = (site.nodes[0].clone(), site.nodes[2].clone());
    let near = site.station((&first, PORT), 101)?;
    let far = site.station((&last, PORT), 102)?;
    site.start(0, &[1], &[PORT])?;
    site.start(1, &[0, 2], &[])?;
    site.start(2, &[1], &[PORT])?;
    site.wait_for(&[0, 2], "forwards");
    for to in ["10.99.0.102", "fd99::102"] {
        assert!(wait_until(LIMIT, || pings(&near, &["-c1"], to).is_ok_and(|ok| ok)), "{to}");
        // None of these is lost.
        assert!(pings(&near, &["-c50"], to)?, "{to}");
        let full = if to.contains(':') { "1452" } else { "1472" };
        assert!(pings(&near, &["-c5", "-Mdo", "-s", full], to)?, "{to}: a packet of 1500 octets");
    }
    let popped = |site: &Site| {
        let frames = site.state(2).links[0].frames.clone();
        frames.into_iter().find(|(name, _)| *name == "popped").map_or(0, |(_, count)| count)
    };
    assert!(popped(&site) >= 100, "the program pops: {:?}", site.state(2).links[0].frames);
    stream(&near, &far, "10.99.0.102:5001")?;
    stream(&near, &far, "[fd99::102]:5001")?;
    stream(&far, &near, "10.99.0.101:5001")?;
    // A connection is seen where its server's segments enter the mesh.
    let connections = |site: &Site| [0, 2].map(|node| site.state(node).tcp_connections);
    assert!(wait_until(LIMIT, || connections(&site) == [0, 0]), "{:?}", connections(&site));
    let listener = far.run(|| TcpListener::bind("10.99.0.102:5003"))??;
    let client = near.run(|| TcpStream::connect("10.99.0.102:5003"))??;
    let server = listener.accept()?.0;
    assert!(wait_until(LIMIT, || connections(&site) == [0, 1]), "{:?}", connections(&site));
    drop((client, server));
    assert!(wait_until(LIMIT, || connections(&site) == [0, 0]), "{:?}", connections(&site));
    // The host of a node is a station like others: its own ones, and one far away.
    for (from, to) in
        [(&first, "101"), (&first, "102"), (&near, "1"), (&near, "3"), (&site.nodes[1], "101")]
    {
        let to = format!("10.99.0.{to}");
        assert!(wait_until(LIMIT, || pings(from, &["-c3"], &to).is_ok_and(|ok| ok)), "{to}");
    }
    stream(&near, &first, "10.99.0.1:5001")?;
    stream(&first, &near, "10.99.0.101:5002")?;
    // Its mesh interface answers ARP, and nobody else.
    let known = near.ip(&["neighbour", "show", "10.99.0.1"])?;
    assert!(known.contains(&site.state(0).node), "{known}");
    let port = site.port(0);
    assert_eq!(port.stations.len(), 1, "{port:?}");
    let behind = site
        .state(0)
        .destinations
        .iter()
        .any(|to| site.port(2).stations.contains(&to.node) && to.paths[0].behind.is_some());
    assert!(behind, "{:?}", site.state(0).destinations);
    Ok(())
}

/// Three nodes with one interface each, as on the air: the first and the last hear only the one between.
fn hidden_nodes() -> Result<(), Failed> {
    const AIR: usize = 9;
    let mut site = Site::new(3, &[])?;
    let air = site.switch()?;
    for node in 0..3 {
        let (at, name) = (site.nodes[node].clone(), format!("air{node}"));
        site.cable((&at, &towards(AIR)), (&air, &name), true)?;
        air.ip(&["link", "set", &name, "master", "br0"])?;
        // Isolated ports reach only ports that are not.
        let isolated = if node == 1 { "off" } else { "on" };
        air.ip(&["link", "set", &name, "type", "bridge_slave", "isolated", isolated])?;
    }
    for node in 0..3 {
        site.start(node, &[AIR], &[])?;
    }
    let first = site.nodes[0].clone();
    assert!(wait_until(LIMIT, || pings(&first, &["-c1"], "10.99.0.3").is_ok_and(|ok| ok)));
    assert!(pings(&first, &["-c20"], "10.99.0.3")?);
    stream(&first, &site.nodes[2], "10.99.0.3:5001")?;
    let middle = &site.state(1).node;
    let paths: Vec<_> = site.state(0).destinations.into_iter().flat_map(|to| to.paths).collect();
    assert!(paths.iter().any(|path| path.relays == [middle.clone()]), "{paths:?}");
    Ok(())
}

/// A server behind one node gives a station behind another one its address.
fn dhcp_across() -> Result<(), Failed> {
    let mut site = Site::new(2, &[(0, 1)])?;
    let (first, last) = (site.nodes[0].clone(), site.nodes[1].clone());
    let server = site.station((&first, PORT), 100)?;
    let client = site.station((&last, PORT), 0)?;
    site.start(0, &[1], &[PORT])?;
    site.start(1, &[0], &[PORT])?;
    site.wait_for(&[0, 1], "forwards");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ports-dhcp");
    let _absent = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let file = |name: &str, key: &str| format!("--{key}={}", folder.join(name).display());
    let dnsmasq = server.command("dnsmasq").args([
        "--no-daemon",
        "--port=0",
        "--conf-file=/dev/null",
        "--interface=eth0",
        "--dhcp-range=10.99.0.50,10.99.0.50,255.255.255.0,120",
    ]);
    let dnsmasq = dnsmasq.arg(file("pid", "pid-file")).arg(file("leases", "dhcp-leasefile"));
    let _server =
        dnsmasq.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let script = folder.join("script");
    fs::write(
        &script,
        "#!/bin/sh\n[ \"$1\" = bound ] && ip address add $ip/24 dev $interface\nexit 0\n",
    )?;
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let asks = || {
        let udhcpc = client.command("udhcpc").args(["-i", STATION, "-n", "-q", "-f", "-t5", "-T1"]);
        let udhcpc = udhcpc.arg("-s").arg(&script).stdout(Stdio::null()).stderr(Stdio::null());
        udhcpc.output().is_ok_and(|output| output.status.success())
    };
    assert!(wait_until(LIMIT, asks), "no answer to DHCP");
    assert!(client.ip(&["address", "show", "dev", STATION])?.contains("10.99.0.50/24"));
    assert!(wait_until(LIMIT, || pings(&client, &["-c5"], "10.99.0.100").is_ok_and(|ok| ok)));
    Ok(())
}

/// Two nodes at one switch, which are linked, too: one forwards, so that a broadcast arrives once and the
/// segment is silent afterwards; when it goes, the other one takes over within the bound.
fn shared_segment() -> Result<(), Failed> {
    let mut site = Site::new(3, &[(0, 1), (1, 2), (0, 2)])?;
    let switch = site.switch()?;
    for node in [0, 1] {
        let node_name = format!("sw{node}");
        let at = site.nodes[node].clone();
        site.cable((&at, PORT), (&switch, &node_name), true)?;
    }
    let near = site.station((&switch, "sw9"), 101)?;
    for name in ["sw0", "sw1", "sw9"] {
        switch.ip(&["link", "set", name, "master", "br0"])?;
    }
    let last = site.nodes[2].clone();
    let far = site.station((&last, PORT), 102)?;
    site.start(0, &[1, 2], &[PORT])?;
    site.start(1, &[0, 2], &[PORT])?;
    site.start(2, &[1, 0], &[PORT])?;
    site.wait_for(&[2], "forwards");
    let forwards = |site: &Site, node: usize| site.port(node).state == "forwards";
    let one = || forwards(&site, 0) != forwards(&site, 1);
    assert!(wait_until(LIMIT, one), "one of both forwards");
    assert!(wait_until(LIMIT, || pings(&far, &["-c1"], "10.99.0.101").is_ok_and(|ok| ok)));
    assert!(pings(&far, &["-c50"], "10.99.0.101")?);
    assert!(pings(&near, &["-c50"], "fd99::102")?);
    // What is sent to all is seen by all once: no storm.
    let broadcasts = || near.ip(&["-s", "link", "show", STATION]).unwrap_or_default();
    let received = |text: String| -> u64 {
        let line = text.lines().skip_while(|line| !line.contains("RX:")).nth(1).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = received(broadcasts());
    far.command("ping")
        .args(["-n", "-q", "-b", "-c20", "-i0.02", "-W1", "10.99.0.255"])
        .output()?;
    std::thread::sleep(Duration::from_secs(1));
    let arrived = received(broadcasts()) - before;
    // 20 of them, hellos each 300 ms, and what kernels say of themselves.
    assert!((20..60).contains(&arrived), "{arrived} frames");
    assert_eq!(site.count(0, "port_looped") + site.count(1, "port_looped"), 0);
    // Until the switch knows where the far station is, it sends to all; so the first ones are known.
    let first = usize::from(forwards(&site, 1));
    let began = Instant::now();
    drop(site.routers[first].take());
    site.wait_for(&[1 - first], "forwards");
    let took_over = began.elapsed();
    assert!(wait_until(LIMIT, || pings(&far, &["-c1", "-W1"], "10.99.0.101").is_ok_and(|ok| ok)));
    let reached = began.elapsed();
    // A second, and what a busy machine adds; the bound itself is proved in virtual time.
    assert!(took_over < Duration::from_secs(5), "{took_over:?}");
    assert!(reached < took_over + Duration::from_secs(2), "{reached:?}");
    // It comes back, and interrupts nothing.
    let links = if first == 0 { [1, 2] } else { [0, 2] };
    site.start(first, &links, &[PORT])?;
    site.wait_for(&[first], "stands by");
    assert!(pings(&far, &["-c100"], "10.99.0.101")?);
    site.wait_for(&[1 - first], "forwards");
    Ok(())
}

/// A station unplugs its cable and plugs in at another node.
fn moved_station() -> Result<(), Failed> {
    let mut site = Site::new(3, &[(0, 1), (1, 2)])?;
    let (first, middle, last) =
        (site.nodes[0].clone(), site.nodes[1].clone(), site.nodes[2].clone());
    let near = site.station((&first, PORT), 101)?;
    let moving = site.station((&middle, PORT), 102)?;
    // The second cable has a name of its own, and takes the station's address when it is plugged in.
    site.cable((&last, PORT), (&moving, "eth1"), false)?;
    site.start(0, &[1], &[PORT])?;
    site.start(1, &[0, 2], &[PORT])?;
    site.start(2, &[1], &[PORT])?;
    site.wait_for(&[0, 1, 2], "forwards");
    assert!(wait_until(LIMIT, || pings(&near, &["-c1"], "10.99.0.102").is_ok_and(|ok| ok)));
    let text = moving.ip(&["-br", "link", "show", STATION])?;
    let mac = text.split_whitespace().nth(2).unwrap().to_owned();
    moving.ip(&["address", "flush", "dev", STATION])?;
    moving.ip(&["link", "set", STATION, "down"])?;
    moving.ip(&["link", "set", "eth1", "address", &mac])?;
    moving.ip(&["address", "add", "10.99.0.102/24", "dev", "eth1"])?;
    // It says something, as a kernel does not by itself.
    assert!(wait_until(LIMIT, || pings(&moving, &["-c1"], "10.99.0.101").is_ok_and(|ok| ok)));
    assert!(pings(&near, &["-c20"], "10.99.0.102")?);
    assert!(site.port(2).stations.contains(&mac), "{:?}", site.port(2));
    assert!(!site.port(1).stations.contains(&mac), "{:?}", site.port(1));
    Ok(())
}

/// What a station sends in a VLAN is dropped, not delivered without its tag; one of VLAN 0 has a priority
/// and no VLAN. ARP requests show it: who is asked remembers who has asked.
fn vlans_stay() -> Result<(), Failed> {
    let mut site = Site::new(2, &[(0, 1)])?;
    let (first, last) = (site.nodes[0].clone(), site.nodes[1].clone());
    let near = site.station((&first, PORT), 101)?;
    let far = site.station((&last, PORT), 102)?;
    site.start(0, &[1], &[PORT])?;
    site.start(1, &[0], &[PORT])?;
    site.wait_for(&[0, 1], "forwards");
    assert!(wait_until(LIMIT, || pings(&near, &["-c1"], "10.99.0.102").is_ok_and(|ok| ok)));
    let index = near.run(|| InterfaceProperties::of(STATION))??.index;
    let socket = near.run(|| FrameSocket::open(index, FrameSelection::Nothing, false))??;
    let ask = |tag: Option<u16>, host: u8| -> Result<(), Failed> {
        let from = [2, 0, 0, 0, 9, host];
        let tag = tag.map(|vlan| [[0x81, 0], vlan.to_be_bytes()].concat()).unwrap_or_default();
        let arp =
            [&[0, 1, 8, 0, 6, 4, 0, 1][..], &from, &[10, 99, 0, host], &[0; 6], &[10, 99, 0, 102]];
        let frame = [&[0xff; 6][..], &from, &tag, &[8, 6], &arp.concat(), &[0; 18]].concat();
        Ok(socket.send(&frame)?)
    };
    ask(Some(10), 77)?;
    ask(Some(0), 78)?;
    ask(None, 79)?;
    let knows = |host: u8| {
        let known = far.ip(&["neighbour", "show", &format!("10.99.0.{host}")]).unwrap();
        known.contains("lladdr")
    };
    assert!(wait_until(LIMIT, || knows(78) && knows(79)), "untagged requests do not arrive");
    assert!(!knows(77), "a request came out of its VLAN");
    Ok(())
}
