//! A gateway with a link of its own beside a link that the kernel keeps: our stack is the host on one,
//! the kernel on the other, and packets are forwarded between both by the routes of both.
//!
//! This test is its own child: with [`SERVES`] in its environment it is the data plane.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_planes::{Planes, ProcessSetup, RouteOrder, RouteTarget, RouteTo, Setup};
use gatewright_stack::{Address, AddressState, WeightedHop};
use gatewright_tables::Prefix;
use gatewright_testbed::{Namespace, Needs, Transport, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    process::{ExitCode, Stdio},
    time::Duration,
};

/// In the network of our own link.
const NORTH: &str = "10.10.1.2";
const NORTH6: &str = "fd00:1::2";
/// Our addresses there.
const OURS: &str = "10.10.1.1";
const OURS6: &str = "fd00:1::1";
/// The kernel's addresses on the link that it keeps.
const KERNELS: &str = "10.10.2.1";
const KERNELS6: &str = "fd00:2::1";
/// In the network of that link.
const SOUTH: &str = "10.10.2.2";
const SOUTH6: &str = "fd00:2::2";
/// In a network that the kernel alone has.
const FAR: &str = "10.10.4.2";

const LAN: LinkIndex = LinkIndex(0);

/// Longer than any change takes to be followed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const SERVES: &str = "GATEWRIGHT_BESIDE_TEST_SERVES";

/// How a gateway moves frames.
#[derive(Clone, Copy)]
struct Kind {
    backend: Backend,
    workers: usize,
    in_driver: bool,
    process: bool,
}

/// Three hosts, and between them a kernel and our gateway: the link to the north is ours alone, the one
/// to the south is shared, and the one to the far host is the kernel's alone.
struct World {
    gateway: Planes,
    north: Namespace,
    middle: Namespace,
    south: Namespace,
    _far: Namespace,
    _links: [Veth; 3],
}

impl World {
    fn new(kind: Kind, kernel_forwards: bool) -> Result<Self, Failed> {
        let [north, middle, south, far] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for kernel in [&north, &middle, &south, &far] {
            // Nobody else is there, and checking for duplicates takes seconds.
            kernel.sysctl("net.ipv6.conf.default.dad_transmits", "0")?;
            kernel.ip(&["link", "set", "lo", "up"])?;
        }
        let lan = Veth::pair(&north, "n0", &middle, "g0")?;
        let wan = Veth::pair(&middle, "g1", &south, "s0")?;
        let side = Veth::pair(&middle, "k0", &far, "f0")?;
        for (end, addresses) in [
            (&lan.a, &["10.10.1.2/24", "fd00:1::2/64"][..]),
            (&wan.a, &["10.10.2.1/24", "fd00:2::1/64"]),
            (&wan.b, &["10.10.2.2/24", "fd00:2::2/64"]),
            (&side.a, &["10.10.4.1/24"]),
            (&side.b, &["10.10.4.2/24"]),
        ] {
            for address in addresses {
                end.add_address(address)?;
            }
        }
        for link in [&lan, &wan, &side] {
            link.up()?;
        }
        for (host, via4, via6) in [(&north, OURS, OURS6), (&south, KERNELS, KERNELS6)] {
            host.add_route("default", via4)?;
            host.add_route("default", via6)?;
        }
        far.add_route("default", "10.10.4.1")?;
        for (host, end) in [(&north, "n0"), (&south, "s0")].into_iter().filter(|_| kind.in_driver) {
            // Checksums are complete, as on a cable between machines, and redirected frames are taken.
            host.command("ethtool").args(["-K", end, "tx", "off", "gro", "on"]).run()?;
        }
        let forwards = if kernel_forwards { "1" } else { "0" };
        middle.sysctl("net.ipv4.ip_forward", forwards)?;
        middle.sysctl("net.ipv6.conf.all.forwarding", forwards)?;
        let gateway = middle.run(|| Planes::open(&setup(kind)))??;
        let links = [lan, wan, side];
        let world = Self { gateway, north, middle, south, _far: far, _links: links };
        let there = || {
            [SOUTH, SOUTH6].iter().all(|to| ping(&world.north, &["-c1", "-W1", to]))
                && [NORTH, NORTH6].iter().all(|to| ping(&world.south, &["-c1", "-W1", to]))
        };
        if wait_until(PATIENCE, there) { Ok(world) } else { Err(world.said().into()) }
    }

    fn until(&self, what: &str, condition: impl Fn() -> bool) -> Result<(), Failed> {
        if wait_until(PATIENCE, condition) {
            return Ok(());
        }
        Err(format!("{what}: {}", self.said()).into())
    }

    fn said(&self) -> String {
        format!("{:#?}\n{:#?}", self.gateway.routes(), self.gateway.status())
    }

    /// Packets that the kernel in the middle has forwarded.
    fn forwarded_by_kernel(&self) -> Result<u64, Failed> {
        Ok(self.middle.counter("IpForwDatagrams")? + self.middle.counter("Ip6OutForwDatagrams")?)
    }
}

fn ping(from: &Namespace, arguments: &[&str]) -> bool {
    let pinged = from.command("ping").args(["-n", "-q"]).args(arguments).output();
    pinged.is_ok_and(|pinged| pinged.status.success())
}

fn pings(from: &Namespace, to: &str) -> bool {
    ping(from, &["-c1", "-W0.3", to])
}

fn setup(kind: Kind) -> Setup {
    let mut setup = Setup::new(7);
    setup.routes_max = 1000;
    setup.workers = kind.workers;
    setup.process = kind.process.then(|| ProcessSetup {
        program: "env".into(),
        arguments: vec![
            format!("{SERVES}=1").into(),
            std::env::current_exe().unwrap().into_os_string(),
        ],
        name: String::new(),
    });
    let lan = setup.link("lan", "g0").backend(kind.backend);
    lan.address(Ipv4Addr::new(10, 10, 1, 1), 24)
        .address(Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 1), 64);
    if kind.in_driver {
        lan.forward_in_driver();
    }
    let wan = setup.link("wan", "g1").backend(kind.backend).shared();
    if kind.in_driver {
        wan.forward_in_driver();
    }
    setup
}

/// Neither kernel nor gateway alone has all routes; the kernel forwards nothing, though it would.
fn hosts_of_both_links_reach_each_other(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind, true)?;
    let before = world.forwarded_by_kernel()?;
    for (from, target) in [
        (&world.north, SOUTH),
        (&world.north, SOUTH6),
        (&world.south, NORTH),
        (&world.south, NORTH6),
    ] {
        for size in ["0", "56", "1472", "8000"] {
            if !ping(from, &["-c2", "-i0.01", "-W2", "-s", size, target]) {
                return Err(format!("{size} octets to {target}: {}", world.said()).into());
            }
        }
    }
    assert_eq!(world.forwarded_by_kernel()?, before, "{}", world.said());
    if kind.in_driver {
        for link in world.gateway.status()?.links {
            let count = link.in_driver.iter().find(|count| count.outcome == "forwarded");
            assert!(
                count.is_some_and(|count| count.packets > 0),
                "{}: {}",
                link.name,
                world.said()
            );
        }
    }
    let out = world.north.command("ping").args(["-n", "-c20", "-i0.01", "-W5", SOUTH]).output()?;
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(!out.contains("DUP!"), "{out}");
    for (host, from, target) in
        [(&world.south, &world.north, SOUTH), (&world.north, &world.south, NORTH6)]
    {
        iperf(&world, (from, host), target)?;
    }
    for host in [&world.north, &world.south] {
        assert_eq!(host.counter("TcpInCsumErrors")?, 0);
    }
    Ok(())
}

/// A transfer by TCP from one host to a server on another.
fn iperf(world: &World, (from, to): (&Namespace, &Namespace), target: &str) -> Result<(), Failed> {
    const PORT: u16 = 5201;
    let server = to.command("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
    if !to.wait_listening(Transport::Tcp, PORT, PATIENCE)? {
        return Err("iperf3 does not listen".into());
    }
    let out = from.command("iperf3").args(["-c", target, "-n", "8M"]).output()?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        return Err(format!("{target}: {said}\n{}", world.said()).into());
    }
    server.wait()?;
    Ok(())
}

/// On each link its own host answers; errors come from the address of the link towards their reader.
fn each_link_has_its_own_host(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind, false)?;
    let World { north, middle, south, .. } = &world;
    let echoes = || -> Result<u64, Failed> {
        Ok(middle.counter("IcmpInEchos")? + middle.counter("Icmp6InEchos")?)
    };
    // The kernel answers at its addresses on its link alone.
    for (from, target, by_kernel) in [
        (north, OURS, 0),
        (north, OURS6, 0),
        (north, KERNELS, 0),
        (north, KERNELS6, 0),
        (south, OURS, 0),
        (south, OURS6, 0),
        (south, KERNELS, 1),
        (south, KERNELS6, 1),
    ] {
        let before = echoes()?;
        assert!(ping(from, &["-c1", "-W5", target]), "{target}: {}", world.said());
        assert_eq!(echoes()? - before, by_kernel, "{target}");
    }
    for (from, target, hop) in [
        (north, SOUTH, OURS),
        (north, SOUTH6, OURS6),
        (south, NORTH, KERNELS),
        (south, NORTH6, KERNELS6),
    ] {
        let trace = from.command("traceroute").args(["-n", "-q1", "-N1", "-w2", target]).run()?;
        let hops: Vec<_> =
            trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        assert_eq!(hops, [hop, target], "{trace}\n{}", world.said());
    }
    Ok(())
}

/// The kernel's routes over the shared link and ours over the other one are all in force; of those to
/// the same destinations ours are.
fn routes_of_both_are_in_force(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind, false)?;
    let World { north, middle, south, gateway, .. } = &world;
    south.ip(&["address", "add", "10.30.0.1/32", "dev", "lo"])?;
    south.ip(&["-6", "address", "add", "fd00:30::1/128", "dev", "lo", "nodad"])?;
    assert!(!pings(north, "10.30.0.1"), "no route leads there");
    middle.add_route("10.30.0.0/16", SOUTH)?;
    middle.add_route("fd00:30::/32", SOUTH6)?;
    world.until("routes of the kernel", || {
        pings(north, "10.30.0.1") && pings(north, "fd00:30::1")
    })?;
    let origin = |to: &str| {
        let found = gateway.routes().into_iter().find(|route| route.to == to);
        found.map(|route| (route.kind, route.origin))
    };
    assert_eq!(origin("10.30.0.0/16"), Some(("via", "kernel")));
    assert_eq!(origin("10.10.1.0/24"), Some(("connected", "address")));
    assert_eq!(origin("10.10.4.0/24"), Some(("kernel", "kernel")));

    // The same destinations behind the north: a route of ours goes before the kernel's.
    north.ip(&["address", "add", "10.30.0.2/32", "dev", "lo"])?;
    let to = RouteTarget::parse("10.30.0.0/16")?;
    let by_north = RouteOrder { to, via: Some(NORTH.parse()?), link: None };
    let added = gateway.add_route(&by_north)?;
    assert_eq!((added.link.as_deref(), added.origin), (Some("lan"), "command"));
    world.until("a route of ours", || pings(south, "10.30.0.2"))?;
    assert!(!pings(north, "10.30.0.1"));
    gateway.remove_route(to)?;
    world.until("the kernel's route again", || pings(north, "10.30.0.1"))?;
    middle.ip(&["route", "del", "10.30.0.0/16"])?;
    world.until("no route", || !pings(north, "10.30.0.1"))?;
    assert_eq!(origin("10.30.0.0/16"), None);

    // Over the shared link the kernel's routes are the ones.
    let refused = RouteOrder { to, via: Some(SOUTH.parse()?), link: Some("wan".to_owned()) };
    let refused = gateway.add_route(&refused).unwrap_err();
    assert!(refused.contains("wan is shared with the kernel"), "{refused}");
    // What the kernel alone has, a host behind our link is told that it cannot reach.
    let out = north.command("ping").args(["-n", "-c1", "-W5", FAR]).output()?;
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.contains("From 10.10.1.1 icmp_seq=1 Destination Net Unreachable"), "{out}");
    Ok(())
}

/// Addresses of our link come and go while the shared link's traffic is divided accordingly.
fn own_addresses_come_and_go(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind, false)?;
    let World { north, south, gateway, .. } = &world;
    north.ip(&["address", "add", "10.10.7.2/24", "dev", "n0"])?;
    assert!(!pings(south, "10.10.7.2"));
    let own: IpAddr = "10.10.7.1".parse()?;
    let address = Address { ip: own, prefix_len: 24, state: AddressState::Preferred };
    gateway.change_host(|host| host.add_address(LAN, address))?;
    world.until("a new address", || pings(south, "10.10.7.2") && pings(south, "10.10.7.1"))?;
    gateway.change_host(|host| host.remove_address(LAN, own));
    world.until("an address that is gone", || {
        !pings(south, "10.10.7.2") && !pings(south, "10.10.7.1")
    })?;
    // A link that is down leads nowhere: its network is the kernel's to answer for.
    gateway.set_link(LAN, false)?;
    world.until("a link that is down", || !pings(south, NORTH))?;
    let network = |gateway: &Planes| gateway.routes().iter().any(|to| to.to == "10.10.1.0/24");
    assert!(!network(gateway));
    gateway.set_link(LAN, true)?;
    world.until("a link that is up again", || pings(south, NORTH))?;
    assert!(network(gateway));
    Ok(())
}

/// A socket of ours exchanges datagrams over the kernel's link, from an address at which answers come
/// to it, and with the kernel's address as with any of this host over our own link.
fn sockets_of_ours_reach_hosts_of_both_links(kind: Kind) -> Result<(), Failed> {
    const PORT: u16 = 7000;
    let world = World::new(kind, false)?;
    let World { north, south, gateway, .. } = &world;
    let socket = gateway.sockets().bind("0.0.0.0:6000".parse()?)?;
    for (host, at, seen) in [(south, SOUTH, OURS), (north, NORTH, OURS)] {
        let peer = host.run(|| UdpSocket::bind((at, PORT)))??;
        peer.set_read_timeout(Some(PATIENCE))?;
        let to = (at.parse::<IpAddr>()?, PORT).into();
        assert!(wait_until(PATIENCE, || socket.send_to(b"ask", to).is_ok()));
        let mut octets = [0; 16];
        let (_, from) = peer.recv_from(&mut octets)?;
        assert_eq!(from.to_string(), format!("{seen}:6000"));
        peer.send_to(b"answer", from)?;
        socket.set_read_timeout(Some(PATIENCE));
        let answered = socket.recv_from(&mut octets);
        assert_eq!(answered.map_err(|error| format!("{at}: {error}: {}", world.said()))?, (6, to));
    }
    Ok(())
}

/// Static routes of the setup lead over our link, beside the kernel's.
fn static_routes_lead_over_our_link(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind, false)?;
    let World { north, south, gateway, middle, .. } = &world;
    north.ip(&["address", "add", "10.40.0.1/32", "dev", "lo"])?;
    let (old, mut new) = (setup(kind), setup(kind));
    let to = RouteTo::V4(Prefix::new(Ipv4Addr::new(10, 40, 0, 0), 16)?);
    let hop = WeightedHop { link: LAN, gateway: Some(NORTH.parse()?), weight: 1 };
    new = new.route(to, vec![hop]);
    middle.add_route("10.40.0.0/16", SOUTH)?;
    let exchanged = gateway.exchange(&old, &new)?;
    world.until("a static route", || pings(south, "10.40.0.1"))?;
    gateway.undo(exchanged);
    world.until("without it", || !pings(south, "10.40.0.1"))?;
    Ok(())
}

type Check = fn(Kind) -> Result<(), Failed>;

fn main() -> ExitCode {
    if std::env::var_os(SERVES).is_some() {
        gatewright_planes::serve_data_plane().unwrap();
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    let missing = |kind: Kind| {
        let needs = Needs::new().namespaces().program("ping").program("traceroute");
        let needs = needs.program("iperf3");
        match kind {
            // Redirected frames need to know which interfaces take them, and tags.
            Kind { in_driver: true, .. } => needs.program("ethtool").linux(6, 8),
            // Beside a packet socket a program at the kernel's ingress drops what is ours (tcx).
            Kind { backend: Backend::PacketSocket, .. } => needs.linux(6, 6),
            _ => needs,
        }
        .missing()
    };
    let checks: [(&str, Check); 6] = [
        ("hosts_of_both_links_reach_each_other", hosts_of_both_links_reach_each_other),
        ("each_link_has_its_own_host", each_link_has_its_own_host),
        ("routes_of_both_are_in_force", routes_of_both_are_in_force),
        ("own_addresses_come_and_go", own_addresses_come_and_go),
        ("sockets_of_ours_reach_hosts_of_both_links", sockets_of_ours_reach_hosts_of_both_links),
        ("static_routes_lead_over_our_link", static_routes_lead_over_our_link),
    ];
    let threads =
        |backend, workers, in_driver| Kind { backend, workers, in_driver, process: false };
    let kinds = [
        ("packet_socket", threads(Backend::PacketSocket, 1, false), checks.len()),
        ("xdp", threads(Backend::Xdp, 1, false), checks.len()),
        ("xdp_in_driver", threads(Backend::Xdp, 1, true), checks.len()),
        ("xdp_two_workers", threads(Backend::Xdp, 2, false), 3),
        ("process", Kind { process: true, ..threads(Backend::PacketSocket, 1, false) }, 5),
    ];
    let trials = kinds.into_iter().flat_map(|(name, kind, some)| {
        checks.into_iter().take(some).map(move |(check, run)| match missing(kind) {
            None => Trial::test(format!("{name}::{check}"), move || run(kind)),
            Some(missing) => {
                let name = format!("{name}::{check} (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        })
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
