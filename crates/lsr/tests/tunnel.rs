//! Two sites of a mesh whose middle is a router of the kernel: their border nodes have a link over UDP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod nodes;

use gatewright_link::{FrameSelection, FrameSocket};
use gatewright_lsr::{MeshRouter, MeshSetup, MeshTunnel};
use gatewright_mesh::{MeshKeys, MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed};
use nodes::{LIMIT, missing, stream, trial};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::ExitCode;

/// Site one has the nodes 0 and 1, site two the nodes 2 and 3; 1 and 2 are at the border.
const NODES: usize = 4;
const BORDER: [&str; 2] = ["192.0.2.2", "198.51.100.2"];
const ROUTER: [&str; 2] = ["192.0.2.1", "198.51.100.1"];
const BORDER6: [&str; 2] = ["2001:db8:1::2", "2001:db8:2::2"];
const ROUTER6: [&str; 2] = ["2001:db8:1::1", "2001:db8:2::1"];
const PORT: u16 = 6_087;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let needs = Needs::new();
    let missing = if std::path::Path::new("/dev/net/tun").exists() {
        missing(needs)
    } else {
        Some("/dev/net/tun".to_owned())
    };
    let trial = |name, test| trial(name, missing.as_deref(), test);
    let trials = vec![
        trial("a_tunnel_joins_two_sites", a_tunnel_joins_two_sites),
        trial("forged_errors_cut_no_tunnel_small", forged_errors),
        trial("a_tunnel_over_ipv6_carries_whole_packets", a_tunnel_over_ipv6),
        trial("what_is_no_tunnel_says_why", what_is_no_tunnel),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Both sites, the router between them, and the nodes, which have a key.
struct Sites {
    nodes: Vec<Namespace>,
    router: Namespace,
    uplinks: Vec<Veth>,
    borders: [&'static str; 2],
    _cables: Vec<Veth>,
    running: Vec<MeshRouter>,
}

impl Sites {
    fn new(borders: [&'static str; 2], routers: [&str; 2]) -> Result<Self, Failed> {
        let nodes = (0..NODES).map(|_| Namespace::new()).collect::<Result<Vec<_>, _>>()?;
        let router = Namespace::new()?;
        router.sysctl("net.ipv4.ip_forward", "1")?;
        router.sysctl("net.ipv6.conf.all.forwarding", "1")?;
        let mut cables = Vec::new();
        for (left, right) in [(0, 1), (2, 3)] {
            let cable = Veth::with_queues(&nodes[left], "lan", &nodes[right], "lan", 1)?;
            cable.up()?;
            cables.push(cable);
        }
        let mut uplinks = Vec::new();
        for (number, (border, own)) in [1, 2].into_iter().zip(borders).enumerate() {
            let cable = Veth::pair(&nodes[border], "wan", &router, &format!("site{number}"))?;
            let network = if own.contains(':') { 64 } else { 24 };
            cable.a.add_address(&format!("{own}/{network}"))?;
            cable.b.add_address(&format!("{}/{network}", routers[number]))?;
            cable.up()?;
            nodes[border].add_route("default", routers[number])?;
            uplinks.push(cable);
        }
        // Frames of 1,500 octets do not pass the middle whole.
        for end in [&uplinks[1].a, &uplinks[1].b] {
            end.set_mtu(1_400)?;
        }
        let running = Vec::new();
        let mut this = Self { nodes, router, uplinks, borders, _cables: cables, running };
        for number in 0..NODES {
            let own = number.checked_sub(1).filter(|own| *own < 2);
            let tunnel = own.map(|own| MeshTunnel {
                interface: "site".into(),
                local: SocketAddr::new(borders[own].parse().unwrap(), PORT),
                remote: SocketAddr::new(borders[1 - own].parse().unwrap(), PORT),
            });
            let setup = MeshSetup {
                interface: "mesh0".into(),
                links: vec!["lan".into()],
                ports: Vec::new(),
                tunnels: tunnel.into_iter().collect(),
                profile: Profile::Default,
                routing: MeshRouting::OnDemand,
                trust: MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32))?),
            };
            let seed = u64::try_from(number)? + 1;
            let start = || MeshRouter::start(&setup, seed, EventSink::default());
            let node = &this.nodes[number];
            this.running.push(node.run(start)??);
            let address = format!("10.99.0.{}/24", number + 1);
            node.ip(&["address", "add", &address, "dev", "mesh0"])?;
        }
        assert!(wait_until(LIMIT, || this.joined(true)), "{:?}", this.running[1].state());
        Ok(this)
    }

    /// Whether both border nodes hear each other, or neither hears the other.
    fn joined(&self, wanted: bool) -> bool {
        self.running[1..3].iter().all(|node| {
            let state = node.state().unwrap();
            let mut near = state.neighbours.iter().filter(|near| near.link == "site");
            near.any(|near| near.up) == wanted
        })
    }

    fn ping(&self, arguments: &[&str]) -> Result<bool, Failed> {
        let ping = self.nodes[0].command("ping").args(["-n", "-q", "-i0.05", "-W2"]);
        Ok(ping.args(arguments).arg("10.99.0.4").output()?.status.success())
    }

    /// Sends the first site's border node an error in the router's name: a datagram of its tunnel was too
    /// long, and 552 octets, or 1,280 over IPv6, would not be (RFC 1191, RFC 8201).
    fn claim_too_long(&self) -> Result<(), Failed> {
        let [to, beyond] = self.borders.map(|address| address.parse::<IpAddr>().unwrap());
        let udp = [&PORT.to_be_bytes()[..], &PORT.to_be_bytes(), &[0, 208, 0, 0]].concat();
        let end = &self.uplinks[0];
        let macs = [end.a.mac()?, end.b.mac()?].map(|mac| octets(&mac));
        let packet = match (to, beyond) {
            (IpAddr::V4(to), IpAddr::V4(beyond)) => {
                let header = |len: u16, protocol, from: Ipv4Addr, to: Ipv4Addr| {
                    let start =
                        [&[0x45, 0][..], &len.to_be_bytes(), &[0, 7, 0, 0, 64, protocol, 0, 0]];
                    summed([&start.concat()[..], &from.octets(), &to.octets()].concat(), 10)
                };
                let quoted = [header(228, 17, to, beyond), udp].concat();
                let error = [&[3, 4, 0, 0, 0, 0, 0x02, 0x28][..], &quoted].concat();
                let router = ROUTER[0].parse()?;
                [header(56, 1, router, to), summed(error, 2)].concat()
            }
            (IpAddr::V6(to), IpAddr::V6(beyond)) => {
                let header = |len: u16, next, from: Ipv6Addr, to: Ipv6Addr| {
                    let start = [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[next, 64]].concat();
                    [&start[..], &from.octets(), &to.octets()].concat()
                };
                let quoted = [header(208, 17, to, beyond), udp].concat();
                let error = [&[2, 0, 0, 0, 0, 0, 0x05, 0x00][..], &quoted].concat();
                let router: Ipv6Addr = ROUTER6[0].parse()?;
                let len = u16::try_from(error.len())?;
                // The pseudo-header (RFC 8200 §8.1), which is not sent.
                let pseudo = [&router.octets()[..], &to.octets(), &[0, 0], &len.to_be_bytes()];
                let pseudo = [&pseudo.concat()[..], &[0, 0, 0, 58]].concat();
                let all = summed([&pseudo[..], &error].concat(), pseudo.len() + 2);
                [header(len, 58, router, to), all[pseudo.len()..].to_vec()].concat()
            }
            _ => return Err("both ends are of one family".into()),
        };
        let ether_type: [u8; 2] = if to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
        let frame = [&macs[0][..], &macs[1], &ether_type, &packet].concat();
        let index = end.b.index()?;
        let open = || FrameSocket::open(index, FrameSelection::Nothing, false);
        Ok(self.router.run(open)??.send(&frame)?)
    }

    fn counter(&self, node: usize, name: &str) -> u64 {
        let counters = self.running[node].state().unwrap().counters;
        counters.into_iter().find(|(known, _)| *known == name).unwrap().1
    }
}

fn octets(mac: &str) -> Vec<u8> {
    mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect()
}

/// Octets with their checksum (RFC 1071) at `at`, where they have zeroes.
fn summed(mut octets: Vec<u8>, at: usize) -> Vec<u8> {
    let words = octets
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or_default()));
    let sum: u32 = words.sum();
    let folded = (sum >> 16) + (sum & 0xffff);
    let folded = u16::try_from((folded >> 16) + (folded & 0xffff)).unwrap();
    octets[at..at + 2].copy_from_slice(&(!folded).to_be_bytes());
    octets
}

/// Packets of 1,500 octets that must not be cut, and a stream, between the sites' inner nodes; a
/// stranger's datagrams; a middle that carries nothing for a while.
fn a_tunnel_joins_two_sites() -> Result<(), Failed> {
    let sites = Sites::new(BORDER, ROUTER)?;
    assert!(wait_until(LIMIT, || sites.ping(&["-c1"]).is_ok_and(|ok| ok)));
    assert!(wait_until(LIMIT, || sites.ping(&["-c3", "-Mdo", "-s1472"]).is_ok_and(|ok| ok)));
    stream(&sites.nodes[0], &sites.nodes[3], "10.99.0.4:5001")?;
    let path = sites.running[0].state()?.destinations[0].paths[0].clone();
    assert_eq!(path.relays.len(), 2, "{path:?}");

    // The router is not the peer, whatever it sends.
    let stranger = sites.router.run(|| UdpSocket::bind((ROUTER[0], PORT)))??;
    let at = (BORDER[0], PORT);
    sites.router.run(|| stranger.send_to(&[0; 100], at))??;
    assert!(wait_until(LIMIT, || sites.counter(1, "tunnel_strangers") == 1));

    sites.uplinks[0].b.down()?;
    assert!(wait_until(LIMIT, || sites.joined(false)), "a silent tunnel is not found");
    sites.uplinks[0].b.up()?;
    assert!(wait_until(LIMIT, || sites.joined(true)), "the tunnel does not heal");
    assert!(wait_until(LIMIT, || sites.ping(&["-c1"]).is_ok_and(|ok| ok)));
    Ok(())
}

/// Somebody on the way claims that datagrams of the tunnel are too long: none is cut smaller for that.
fn forged_errors() -> Result<(), Failed> {
    for (borders, routers) in [(BORDER, ROUTER), (BORDER6, ROUTER6)] {
        let sites = Sites::new(borders, routers)?;
        assert!(wait_until(LIMIT, || sites.ping(&["-c1"]).is_ok_and(|ok| ok)));
        let near = &sites.nodes[1];
        let is_ipv4 = !borders[0].contains(':');
        let (family, fragments) =
            if is_ipv4 { ("-4", "IpFragCreates") } else { ("-6", "Ip6FragCreates") };
        for _ in 0..3 {
            sites.claim_too_long()?;
        }
        // The last one has been taken when the next datagram has come back.
        assert!(sites.ping(&["-c3"])?);
        let route = near.ip(&[family, "route", "get", borders[1]])?;
        assert!(!route.contains("mtu"), "{route}");
        let before = near.counter(fragments)?;
        assert!(sites.ping(&["-c5", "-s1100"])?, "{borders:?}");
        assert_eq!(near.counter(fragments)?, before, "{borders:?}");
    }
    Ok(())
}

/// No IPv6 router cuts datagrams: packets of 1,500 octets arrive without asking any of them to.
fn a_tunnel_over_ipv6() -> Result<(), Failed> {
    let sites = Sites::new(BORDER6, ROUTER6)?;
    assert!(wait_until(LIMIT, || sites.ping(&["-c3", "-Mdo", "-s1472"]).is_ok_and(|ok| ok)));
    stream(&sites.nodes[0], &sites.nodes[3], "10.99.0.4:5001")?;
    assert_eq!(sites.router.counter("Ip6InTooBigErrors")?, 0);
    Ok(())
}

/// An address that is not this machine's, one of another family, and a name that is taken; then the node
/// leaves nothing behind.
fn what_is_no_tunnel() -> Result<(), Failed> {
    let (node, other) = (Namespace::new()?, Namespace::new()?);
    let cable = Veth::with_queues(&node, "lan", &other, "lan", 1)?;
    cable.up()?;
    let start = |interface: &str, local: &str, remote: &str| -> Result<String, Failed> {
        let (local, remote) = (local.parse()?, remote.parse()?);
        let setup = MeshSetup {
            interface: "mesh0".into(),
            links: vec!["lan".into()],
            ports: Vec::new(),
            tunnels: vec![MeshTunnel { interface: interface.into(), local, remote }],
            profile: Profile::Default,
            routing: MeshRouting::OnDemand,
            trust: MeshTrust::Open,
        };
        let started = node.run(|| MeshRouter::start(&setup, 1, EventSink::default()))?;
        Ok(started.err().map(|error| error.to_string()).unwrap_or_default())
    };
    let why = start("site", "192.0.2.9:6087", "192.0.2.8:6087")?;
    assert!(why.starts_with("[mesh.tunnel.site] Cannot assign"), "{why}");
    let why = start("site", "127.0.0.1:6087", "[::1]:6087")?;
    assert!(why.contains("different families"), "{why}");
    let why = start("lan", "127.0.0.1:6087", "127.0.0.1:6088")?;
    assert!(why.starts_with("[mesh.tunnel.lan] "), "{why}");
    node.ip(&["link", "set", "lo", "up"])?;
    assert_eq!(start("site", "127.0.0.1:6087", "127.0.0.1:6088")?, "");
    // A program that another test starts has the file of the interface until it executes.
    let mut left = String::new();
    let is_gone = wait_until(LIMIT, || {
        left = node.ip(&["-br", "link"]).unwrap();
        !left.contains("site") && !left.contains("mesh0")
    });
    assert!(is_gone, "{left}");
    Ok(())
}
