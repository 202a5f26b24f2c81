//! A gateway between two kernels that are not ours, in namespaces, for each kind of link.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_planes::{Gateway, LinkStatus, Series, Setup, UdpGateway, UdpGatewaySetup};
use gatewright_stack::{At, Attachment, Interface, Place, Route, builtin::Count};
use gatewright_tables::Prefix;
use gatewright_testbed::{Namespace, Needs, Transport, Veth, wait_until};
use gatewright_wire::EtherType;
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Two hosts on two subnets with a gateway between them, MTU 1400 behind it.
struct World {
    north: Namespace,
    south: Namespace,
    gateway: Option<Gateway>,
    _middle: Namespace,
    _links: [Veth; 2],
}

const SOUTH: &str = "10.10.2.2";
const SOUTH6: &str = "fd00:2::2";

impl World {
    fn new(backend: Backend) -> Self {
        let (north, middle, south) =
            (Namespace::new().unwrap(), Namespace::new().unwrap(), Namespace::new().unwrap());
        let lan = Veth::pair(&north, "n0", &middle, "g0").unwrap();
        let wan = Veth::pair(&middle, "g1", &south, "s0").unwrap();
        for end in [&wan.a, &wan.b] {
            end.set_mtu(1400).unwrap();
        }
        lan.a.add_address("10.10.1.2/24").unwrap();
        lan.a.add_address("fd00:1::2/64").unwrap();
        wan.b.add_address("10.10.2.2/24").unwrap();
        wan.b.add_address("fd00:2::2/64").unwrap();
        lan.up().unwrap();
        wan.up().unwrap();
        for (host, via4, via6) in
            [(&north, "10.10.1.1", "fd00:1::1"), (&south, "10.10.2.1", "fd00:2::1")]
        {
            host.add_route("default", via4).unwrap();
            host.ip(&["-6", "route", "add", "default", "via", via6]).unwrap();
        }
        let gateway = middle.run(|| {
            let mut setup = Setup::new(7);
            setup
                .link("lan", "g0")
                .backend(backend)
                .address(Ipv4Addr::new(10, 10, 1, 1), 24)
                .address("fd00:1::1".parse::<Ipv6Addr>().unwrap(), 64);
            setup
                .link("wan", "g1")
                .backend(backend)
                .address(Ipv4Addr::new(10, 10, 2, 1), 24)
                .address("fd00:2::1".parse::<Ipv6Addr>().unwrap(), 64);
            Gateway::open(&setup).unwrap()
        });
        let world = Self {
            north,
            south,
            gateway: Some(gateway.unwrap()),
            _middle: middle,
            _links: [lan, wan],
        };
        let there = || world.ping(&["-c1", "-W1", SOUTH]) && world.ping(&["-c1", "-W1", SOUTH6]);
        assert!(wait_until(Duration::from_secs(10), there), "{}", world.said());
        world
    }

    fn ping(&self, arguments: &[&str]) -> bool {
        let pinged = self.north.command("ping").args(["-n", "-q"]).args(arguments).output();
        pinged.unwrap().status.success()
    }

    fn said(&self) -> String {
        format!("{:#?}", self.gateway.as_ref().map(Gateway::status))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.gateway.take());
    }
}

/// Payloads from nothing to the most that `ping` sends, around what fits each of the links, and what
/// fits one fragment or another.
const PING_SIZES: [&str; 14] = [
    "0", "1", "56", "1352", "1353", "1372", "1373", "1472", "1473", "2749", "4000", "20000",
    "65499", "65507",
];

fn pings_of_every_size(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    for target in [SOUTH, "10.10.1.1", SOUTH6, "fd00:1::1"] {
        for size in PING_SIZES {
            if !world.ping(&["-c2", "-i0.01", "-W2", "-s", size, target]) {
                return Err(format!("{size} octets to {target}: {}", world.said()).into());
            }
        }
    }
    Ok(())
}

fn traceroute_sees_the_gateway(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    for (target, gateway) in [(SOUTH, "10.10.1.1"), (SOUTH6, "fd00:1::1")] {
        let trace = world.north.command("traceroute").args(["-n", "-q1", "-w2", target]).run()?;
        let hops: Vec<_> =
            trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        if hops != [gateway, target] {
            return Err(format!("hops {hops:?}\n{trace}\n{}", world.said()).into());
        }
    }
    Ok(())
}

fn tracepath_finds_the_path_and_its_mtu(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    for (target, gateway) in [(SOUTH, "10.10.1.1"), (SOUTH6, "fd00:1::1")] {
        let trace = world.north.command("tracepath").args(["-n", target]).run()?;
        let seen = |hop: &str| trace.lines().any(|line| line.contains(hop));
        let whole = trace.contains("pmtu 1400") && trace.contains("reached");
        if !(whole && seen(gateway) && seen(target)) {
            return Err(format!("{trace}\n{}", world.said()).into());
        }
    }
    Ok(())
}

fn path_mtu_is_told(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    for (target, size) in [(SOUTH, "1472"), (SOUTH6, "1452")] {
        let out = world
            .north
            .command("ping")
            .args(["-n", "-c1", "-W2", "-M", "do", "-s", size, target])
            .output()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned()
            + &String::from_utf8_lossy(&out.stderr);
        if !text.contains("mtu = 1400") && !text.contains("mtu=1400") {
            return Err(format!("{target}: {text}\n{}", world.said()).into());
        }
    }
    Ok(())
}

fn tcp_and_udp_pass_with_right_checksums(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    for target in [SOUTH, SOUTH6] {
        for transport in [&["-n", "8M"][..], &["-u", "-b", "20M", "-n", "2M", "-l", "1200"]] {
            iperf(&world, target, transport)?;
        }
    }
    for host in [&world.north, &world.south] {
        for counter in ["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors"] {
            let errors = host.counter(counter)?;
            if errors != 0 {
                return Err(format!("{counter} is {errors}").into());
            }
        }
    }
    Ok(())
}

/// One transfer to a server of its own, which ends with it: it must pass at once.
fn iperf(world: &World, target: &str, transport: &[&str]) -> Result<(), Failed> {
    const PORT: u16 = 5201;
    let port = PORT.to_string();
    let server = world.south.command("iperf3").args(["-s", "-1", "-p", &port]).spawn()?;
    if !world.south.wait_listening(Transport::Tcp, PORT, Duration::from_secs(5))? {
        return Err("iperf3 does not listen".into());
    }
    let out =
        world.north.command("iperf3").args(["-c", target, "-p", &port]).args(transport).output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        return Err(format!("{target} {transport:?}: {said}\n{}", world.said()).into());
    }
    server.wait()?;
    Ok(())
}

/// Numbered datagrams of the swap test, and how many are sent at a time.
const NUMBERED: u32 = 20_000;
const BURST: u32 = 20;

/// Handlers come and go a hundred times under traffic: what is missing the kernels have dropped and
/// counted, and no number comes twice.
fn swaps_lose_and_repeat_nothing(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    let receiver = world.south.run(|| UdpSocket::bind(("10.10.2.2", 7000)))??;
    receiver.set_read_timeout(Some(Duration::from_secs(1)))?;
    let sender = world.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    let gateway = world.gateway.as_ref().unwrap();
    let done = AtomicBool::new(false);
    let (numbers, swaps) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut numbers = Vec::new();
            let mut octets = [0; 4];
            while receiver.recv(&mut octets).is_ok() {
                numbers.push(u32::from_be_bytes(octets));
            }
            numbers
        });
        scope.spawn(|| {
            for number in 0..NUMBERED {
                sender.send_to(&number.to_be_bytes(), (SOUTH, 7000)).unwrap();
                if number % BURST == BURST - 1 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            done.store(true, Ordering::Release);
        });
        let mut swaps = 0;
        while !done.load(Ordering::Acquire) || swaps < 100 {
            let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
            let id = gateway.attach(at, Box::new(Count::default())).unwrap();
            assert!(gateway.detach(id).unwrap().is_some());
            swaps += 2;
            // Some frames between two swaps, so that each meets traffic.
            std::thread::sleep(Duration::from_millis(5));
        }
        (reader.join().unwrap(), swaps)
    });
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let lost = NUMBERED as usize - sorted.len();
    let twice = numbers.len() - sorted.len();
    // On a busy machine the kernels drop before the gateway and behind it, and count it.
    let status = gateway.status()?;
    let overrun = |link: &LinkStatus| {
        let counters = link.counters.iter().filter(|(name, _)| *name == "receive_overrun");
        counters.map(|(_, count)| count).sum::<u64>()
    };
    let counted =
        world.south.counter("UdpRcvbufErrors")? + status.links.iter().map(overrun).sum::<u64>();
    if swaps < 100 || twice != 0 || lost as u64 != counted {
        let said = format!("{swaps} swaps: {lost} lost, {counted} of them counted, {twice} twice");
        return Err(format!("{said}: {}", world.said()).into());
    }
    Ok(())
}

/// A cable that is pulled is told, and traffic goes on when it is plugged in again.
fn a_link_goes_and_comes_back(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    let gateway = world.gateway.as_ref().unwrap();
    let up = || gateway.status().unwrap().links.iter().all(|link| link.up);
    world.south.ip(&["link", "set", "s0", "down"])?;
    if !wait_until(Duration::from_secs(5), || !up()) {
        return Err("the link was not told to be down".into());
    }
    if world.ping(&["-c1", "-W1", SOUTH]) {
        return Err("a ping went over a pulled cable".into());
    }
    world.south.ip(&["link", "set", "s0", "up"])?;
    world.south.ip(&["route", "replace", "default", "via", "10.10.2.1"])?;
    let there = || world.ping(&["-c1", "-W1", SOUTH]);
    if !wait_until(Duration::from_secs(10), || up() && there()) {
        return Err(world.said().into());
    }
    Ok(())
}

/// A name client and a name server that are not ours, with the UDP gateway between them.
fn dig_asks_dnsmasq_through_the_udp_gateway(backend: Backend) -> Result<(), Failed> {
    const PORT: u16 = 5353;
    let world = World::new(backend);
    let quiet = ["-k", "--no-resolv", "--no-hosts", "--bind-interfaces", "--interface=s0"];
    let files = ["--conf-file=/dev/null", "--pid-file=", "--user=root"];
    let names = ["--address=/gateway.example/192.0.2.77", "--txt-record=long.example,0123456789"];
    let server = world.south.command("dnsmasq").args(quiet).args(files).args(names);
    let _server = server.spawn()?;
    if !world.south.wait_listening(Transport::Udp, 53, Duration::from_secs(10))? {
        return Err("dnsmasq does not listen".into());
    }
    for (any, server, own) in [("0.0.0.0", SOUTH, "10.10.1.1"), ("::", SOUTH6, "fd00:1::1")] {
        let listen = SocketAddr::new(any.parse()?, PORT);
        let server = SocketAddr::new(server.parse()?, 53);
        let setup = UdpGatewaySetup { listen, server, series: Series::Plain };
        let relay = UdpGateway::start(world.gateway.as_ref().unwrap().sockets(), setup)?;
        for (name, kind, answer) in [
            ("gateway.example", "A", "192.0.2.77"),
            ("long.example", "TXT", "\"0123456789\""),
            ("gateway.example", "A", "192.0.2.77"),
        ] {
            let (at, port) = (format!("@{own}"), PORT.to_string());
            let ask = world.north.command("dig").args([at.as_str(), "-p", &port]);
            let said = ask.args(["+short", "+notcp", "+timeout=5", name, kind]).run()?;
            if said.trim() != answer {
                return Err(format!("{own}: {name} is {said:?}: {}", world.said()).into());
            }
        }
        drop(relay);
    }
    Ok(())
}

/// A kernel that has nobody at a port says so to the socket of ours that has it for a peer.
fn a_refused_datagram_is_told_to_its_socket(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    let gateway = world.gateway.as_ref().unwrap();
    for (any, peer) in [("0.0.0.0:0", SOUTH), ("[::]:0", SOUTH6)] {
        let peer = SocketAddr::new(peer.parse()?, 9);
        let (one, other) = (any.parse()?, any.parse()?);
        let (asked, apart) = (gateway.sockets().bind(one)?, gateway.sockets().bind(other)?);
        for socket in [&asked, &apart] {
            socket.set_read_timeout(Some(Duration::from_secs(10)));
        }
        asked.connect(peer);
        asked.send(b"anybody?")?;
        let refused = asked.recv(&mut [0; 16]).map_err(|error| error.kind());
        if refused != Err(ErrorKind::ConnectionRefused) {
            return Err(format!("{peer}: {refused:?}: {}", world.said()).into());
        }
        // One without a peer is not told, and reads on.
        apart.set_read_timeout(Some(Duration::from_millis(300)));
        apart.send_to(b"anybody?", peer)?;
        let nothing = apart.recv(&mut [0; 16]).map_err(|error| error.kind());
        if nothing != Err(ErrorKind::WouldBlock) {
            return Err(format!("{peer}: {nothing:?}").into());
        }
    }
    Ok(())
}

/// A kernel that sends by us what it could send by another router on its own link believes what we
/// tell it of that router.
fn a_better_first_hop_is_told(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend);
    let gateway = world.gateway.as_ref().unwrap();
    let link = LinkIndex(0);
    let own = gateway.change_host(|host| -> Result<_, Failed> {
        let via = |router: &str| Ok::<_, Failed>(Route::Via { link, gateway: router.parse()? });
        host.add_route(Prefix::new("10.10.3.0".parse()?, 24)?, via("10.10.1.3")?)?;
        host.add_route6(Prefix::new("fd00:3::".parse()?, 64)?, via("fe80::3")?)?;
        Ok(host.interfaces().first().and_then(Interface::link_local))
    })?;
    let own = own.ok_or("the link has no link-local address")?.to_string();
    let route = ["-6", "route", "add", "fd00:3::/64", "via", &own, "dev", "n0"];
    world.north.ip(&route)?;
    // Linux takes a router's word for one that it knows already.
    let station = ["lladdr", "02:00:00:00:00:03", "dev", "n0"];
    world.north.ip(&[&["neigh", "add", "10.10.1.3"][..], &station].concat())?;
    for (destination, router) in [("10.10.3.5", "via 10.10.1.3"), ("fd00:3::5", "via fe80::3")] {
        let told = || {
            world.ping(&["-c1", "-W0.2", destination]);
            world.north.ip(&["route", "get", destination]).is_ok_and(|way| way.contains(router))
        };
        if !wait_until(Duration::from_secs(20), told) {
            let way = world.north.ip(&["route", "get", destination])?;
            return Err(format!("{way}: {}", world.said()).into());
        }
    }
    Ok(())
}

type Check = fn(Backend) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let tools = Needs::new().namespaces().program("ping").program("traceroute");
    let tools = tools.program("tracepath").program("iperf3").program("dnsmasq").program("dig");
    let missing = tools.missing();
    let checks: [(&str, Check); 10] = [
        ("pings_of_every_size", pings_of_every_size),
        ("traceroute_sees_the_gateway", traceroute_sees_the_gateway),
        ("tracepath_finds_the_path_and_its_mtu", tracepath_finds_the_path_and_its_mtu),
        ("path_mtu_is_told", path_mtu_is_told),
        ("tcp_and_udp_pass_with_right_checksums", tcp_and_udp_pass_with_right_checksums),
        ("dig_asks_dnsmasq_through_the_udp_gateway", dig_asks_dnsmasq_through_the_udp_gateway),
        ("a_refused_datagram_is_told_to_its_socket", a_refused_datagram_is_told_to_its_socket),
        ("a_better_first_hop_is_told", a_better_first_hop_is_told),
        ("a_link_goes_and_comes_back", a_link_goes_and_comes_back),
        ("swaps_lose_and_repeat_nothing", swaps_lose_and_repeat_nothing),
    ];
    let trials = [("packet_socket", Backend::PacketSocket), ("xdp", Backend::Xdp)]
        .into_iter()
        .flat_map(|(name, backend)| {
            checks.map(|(check, run)| {
                Trial::test(format!("{name}::{check}"), move || run(backend))
                    .with_ignored_flag(missing.is_some())
            })
        })
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}
