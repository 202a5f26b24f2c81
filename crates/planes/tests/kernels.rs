//! A gateway between two kernels that are not ours, in namespaces, for each kind of link.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

mod numbered;

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_planes::{
    DataError, Planes, PlanesError, Series, Setup, Status, UdpGateway, UdpGatewaySetup,
    WorkerStatus,
};
use gatewright_stack::{At, Attachment, Interface, Place, Route, builtin::Count, tap};
use gatewright_tables::Prefix;
use gatewright_testbed::{Namespace, Needs, Transport, Veth, wait_until};
use gatewright_wire::EtherType;
use libtest_mimic::{Arguments, Failed, Trial};
use numbered::{Flight, Passed, Progress};
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    process::Stdio,
    time::Duration,
};

/// How a gateway moves frames.
#[derive(Clone, Copy)]
struct Kind {
    backend: Backend,
    workers: usize,
    /// Queues of the gateway's ends of both cables.
    queues: usize,
}

/// Two hosts on two subnets with a gateway between them, MTU 1400 behind it.
struct World {
    north: Namespace,
    south: Namespace,
    gateway: Option<Planes>,
    _middle: Namespace,
    links: [Veth; 2],
}

/// How long anything may take to come about.
const WITHIN: Duration = Duration::from_secs(30);

const SOUTH: &str = "10.10.2.2";
const SOUTH6: &str = "fd00:2::2";

impl World {
    fn new(kind: Kind) -> Self {
        Self::with_mtus(kind, [1500, 1400])
    }

    fn with_mtus(kind: Kind, [lan_mtu, wan_mtu]: [u32; 2]) -> Self {
        let Kind { backend, workers, queues } = kind;
        let (north, middle, south) =
            (Namespace::new().unwrap(), Namespace::new().unwrap(), Namespace::new().unwrap());
        let lan = Veth::with_queues(&north, "n0", &middle, "g0", queues).unwrap();
        let wan = Veth::with_queues(&middle, "g1", &south, "s0", queues).unwrap();
        for (cable, mtu) in [(&lan, lan_mtu), (&wan, wan_mtu)] {
            for end in [&cable.a, &cable.b] {
                end.set_mtu(mtu).unwrap();
            }
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
            setup.workers = workers;
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
            for link in &mut setup.links {
                link.queues = Some(queues);
            }
            Planes::open(&setup).unwrap()
        });
        let world = Self {
            north,
            south,
            gateway: Some(gateway.unwrap()),
            _middle: middle,
            links: [lan, wan],
        };
        let there = || world.ping(&["-c1", "-W1", SOUTH]) && world.ping(&["-c1", "-W1", SOUTH6]);
        assert!(wait_until(WITHIN, there), "{}", world.said());
        world
    }

    fn ping(&self, arguments: &[&str]) -> bool {
        let pinged = self.north.command("ping").args(["-n", "-q"]).args(arguments).output();
        pinged.unwrap().status.success()
    }

    fn said(&self) -> String {
        format!("{:#?}", self.gateway.as_ref().map(Planes::status))
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

fn pings_of_every_size(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
    for target in [SOUTH, "10.10.1.1", SOUTH6, "fd00:1::1"] {
        // What is larger than the path takes is answered by its MTU first; the kernel knows it then.
        let learnt = || world.ping(&["-c1", "-W1", "-s1452", target]);
        if !wait_until(WITHIN, learnt) {
            return Err(format!("{target}: {}", world.said()).into());
        }
        for size in PING_SIZES {
            if !world.ping(&["-c2", "-i0.01", "-W10", "-s", size, target]) {
                return Err(format!("{size} octets to {target}: {}", world.said()).into());
            }
        }
    }
    Ok(())
}

fn traceroute_sees_the_gateway(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
    for (target, gateway) in [(SOUTH, "10.10.1.1"), (SOUTH6, "fd00:1::1")] {
        // One probe at a time: each is a flow of its own, and a kernel that is asked for several
        // answers at once gives only some.
        let probes = ["-n", "-q1", "-N1", "-w10", target];
        let trace = world.north.command("traceroute").args(probes).run()?;
        let hops: Vec<_> =
            trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        if hops != [gateway, target] {
            return Err(format!("hops {hops:?}\n{trace}\n{}", world.said()).into());
        }
    }
    Ok(())
}

fn tracepath_finds_the_path_and_its_mtu(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
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

fn path_mtu_is_told(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
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

fn tcp_and_udp_pass_with_right_checksums(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
    // A few flows more, so that each worker has some.
    let servers = ["-P", "8", "-n", "8M"];
    for target in [SOUTH, SOUTH6] {
        for transport in
            [&["-n", "8M"][..], &servers, &["-u", "-b", "20M", "-n", "2M", "-l", "1200"]]
        {
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
    let workers = world.status().workers;
    let is_idle = |worker: &WorkerStatus| {
        // With a queue for each, what is transit goes on where it was received.
        worker.received == 0 || kind.queues == 1 && worker.taken * worker.given == 0
    };
    if workers.iter().any(is_idle) {
        return Err(format!("a worker had nothing to do: {workers:?}").into());
    }
    Ok(())
}

/// One transfer to a server of its own, which ends with it: it must pass at once.
fn iperf(world: &World, target: &str, transport: &[&str]) -> Result<(), Failed> {
    const PORT: u16 = 5201;
    let port = PORT.to_string();
    let server = world.south.command("iperf3").args(["-s", "-1", "-p", &port]);
    let server = server.stdout(Stdio::null()).spawn()?;
    if !world.south.wait_listening(Transport::Tcp, PORT, WITHIN)? {
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

/// Swaps under traffic, and datagrams between each second of them at the least.
const SWAPS: u32 = 100;
const BETWEEN: u32 = 2000;

/// What is counted on the way of numbered datagrams.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// By the layers: what came, and what went.
    taken: u64,
    given: u64,
    /// Dropped in front of them, in them, and behind them.
    dropped: [u64; 3],
    /// Dropped between two workers, which is in front of the layers or behind them.
    ring_full: u64,
}

impl Counted {
    fn since(self, before: &Self) -> Self {
        let mut dropped = self.dropped;
        for (now, before) in dropped.iter_mut().zip(before.dropped) {
            *now -= before;
        }
        Self {
            taken: self.taken - before.taken,
            given: self.given - before.given,
            dropped,
            ring_full: self.ring_full - before.ring_full,
        }
    }

    /// Whether who says that he has dropped something accounts for all that is missing.
    fn accounts_for(&self, sent: u32, received: u32) -> bool {
        // What is on its way is in none of them yet.
        let (sent, received) = (u64::from(sent), u64::from(received));
        let lost = [(sent, self.taken), (self.taken, self.given), (self.given, received)];
        let lost = lost.map(|(before, behind)| before.saturating_sub(behind));
        // A frame that a kernel did not take at first is counted, and sent again: lost are fewer.
        let each = lost.iter().zip(self.dropped).all(|(lost, said)| *lost <= said + self.ring_full);
        each && lost.iter().sum::<u64>() <= self.dropped.iter().sum::<u64>() + self.ring_full
    }
}

impl World {
    /// What the gateway says of itself; on a busy machine a worker may answer late.
    fn status(&self) -> Status {
        let (gateway, mut status) = (self.gateway.as_ref().unwrap(), None);
        wait_until(WITHIN, || {
            status = gateway.status().ok();
            status.is_some()
        });
        status.unwrap()
    }

    fn counted(&self) -> Result<Counted, Failed> {
        let status = self.status();
        let link = |link: usize, names: &[&str]| -> u64 {
            let counters = status.links.get(link).into_iter().flat_map(|link| &link.counters);
            counters.filter(|(name, _)| names.contains(name)).map(|(_, count)| count).sum()
        };
        let way = |at: &str, side: &str| -> u64 {
            let ways = status.ways.iter().filter(|way| way.at == at && way.side == side);
            ways.map(|way| way.packets).sum()
        };
        // The others have to do with what hosts say by themselves now and then.
        let layers = status.layers.iter().filter(|layer| layer.layer == "ipv4");
        let layers = layers.flat_map(|layer| &layer.drops).map(|(_, count)| count);
        let (full, others): (Vec<_>, Vec<_>) =
            status.unclaimed.iter().partition(|(reason, _)| reason == "ring-full");
        let others = others.into_iter().map(|(_, count)| count);
        let [lan, wan] = &self.links;
        let received = ["receive_overrun", "receive_no_packet", "receive_malformed"];
        let sent = ["transmit_full", "transmit_length", "transmit_down", "kernel_refused"];
        let behind = wan.a.transmit_dropped()? + self.south.counter("UdpRcvbufErrors")?;
        Ok(Counted {
            taken: way("ether:ipv4", "receive"),
            given: way("ether:ipv4", "transmit"),
            dropped: [
                lan.a.transmit_dropped()? + link(0, &received),
                layers.chain(others).sum(),
                link(1, &sent) + behind,
            ],
            ring_full: full.iter().map(|(_, count)| count).sum(),
        })
    }
}

/// Handlers come and go a hundred times under more traffic than the queues hold. What the layers
/// took they have given, but for what they say they dropped; what is missing in front of them and
/// behind, kernels and rings have dropped and counted; and no number comes twice.
fn swaps_under_a_flood_lose_only_what_is_counted(kind: Kind) -> Result<(), Failed> {
    swaps(kind, Flight::Any, |now, sent, received| now.accounts_for(sent, received))
}

/// Datagrams on their way at once that each queue between the kernels holds: the device's backlog
/// (1000), the links' rings, the rings between workers.
const HELD: u32 = 200;

/// The same with as much traffic as the queues hold: none has a reason to drop a datagram, and none
/// is lost. A kernel may refuse a frame at first, which is counted, and the frame is sent again.
fn swaps_lose_nothing(kind: Kind) -> Result<(), Failed> {
    swaps(kind, Flight::AtMost(HELD), |_, sent, received| sent == received)
}

fn swaps(
    kind: Kind,
    flight: Flight,
    is_right: impl Fn(Counted, u32, u32) -> bool,
) -> Result<(), Failed> {
    let world = World::new(kind);
    let receiver = world.south.run(|| UdpSocket::bind(("10.10.2.2", 7000)))??;
    let sender = world.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    sender.connect((SOUTH, 7000))?;
    let gateway = world.gateway.as_ref().unwrap();
    let before = world.counted()?;
    let swap = |progress: &Progress| {
        let mut swaps = 0;
        while swaps < SWAPS {
            if !progress.wait_for_more(BETWEEN, WITHIN) {
                return Err("the sender does not get on".into());
            }
            let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
            // On a busy machine a worker may answer later than is waited for; it has swapped then.
            let Ok(id) = gateway.attach(at, Box::new(Count::default())) else { continue };
            let there = gateway.detach(id);
            swaps += 1 + u32::from(there.is_ok_and(|handler| handler.is_some()));
        }
        Ok(())
    };
    let is_all = |sent, received| {
        world.counted().is_ok_and(|now| is_right(now.since(&before), sent, received))
    };
    let limits = (flight, WITHIN);
    let Passed { sent, rate, numbers } = numbered::pass(&sender, &receiver, limits, swap, is_all)?;
    let now = world.counted()?.since(&before);
    let received = u32::try_from(numbers.len())?;
    eprintln!("{SWAPS} swaps, {received} of {sent} datagrams, {rate:.0} a second");
    // One flow: a number that comes twice, or late, is not above the one before.
    let is_once = numbers.is_sorted_by(|one, next| one < next);
    if received == 0 || !is_once || !is_right(now, sent, received) {
        let order = if is_once { "in order" } else { "not in order, or twice" };
        let said = format!("{received} of {sent} {order}, counted {now:?}");
        return Err(format!("{said}: {}", world.said()).into());
    }
    // One that cannot make another of itself stands where there is one worker, and is refused where
    // there are several.
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    match gateway.attach(at, tap(|_| {})) {
        Ok(_) if kind.workers == 1 => Ok(()),
        Err(PlanesError::Data(DataError::OneOnly(refused)))
            if kind.workers > 1 && refused == at =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}").into()),
    }
}

/// Cables with an MTU of 9000: the slab has chunks for their frames, and AF_XDP takes them in several
/// buffers.
fn frames_of_9000_octets_pass(kind: Kind) -> Result<(), Failed> {
    let world = World::with_mtus(kind, [9000, 9000]);
    for target in [SOUTH, "10.10.1.1", SOUTH6, "fd00:1::1"] {
        for size in ["3800", "8000", "8952", "20000"] {
            if !world.ping(&["-c2", "-i0.01", "-W10", "-s", size, target]) {
                return Err(format!("{size} octets to {target}: {}", world.said()).into());
            }
        }
    }
    for target in [SOUTH, SOUTH6] {
        iperf(&world, target, &["-n", "8M"])?;
    }
    for host in [&world.north, &world.south] {
        let errors = host.counter("TcpInCsumErrors")?;
        if errors != 0 {
            return Err(format!("TcpInCsumErrors is {errors}").into());
        }
    }
    // In one frame.
    let sent_whole = world.north.command("ping").args(["-n", "-c1", "-M", "do", "-s", "8972"]);
    sent_whole.arg(SOUTH).run()?;
    Ok(())
}

/// A cable that is pulled is told, and traffic goes on when it is plugged in again.
fn a_link_goes_and_comes_back(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
    let up = || world.status().links.iter().all(|link| link.up);
    world.south.ip(&["link", "set", "s0", "down"])?;
    if !wait_until(WITHIN, || !up()) {
        return Err("the link was not told to be down".into());
    }
    if world.ping(&["-c1", "-W1", SOUTH]) {
        return Err("a ping went over a pulled cable".into());
    }
    world.south.ip(&["link", "set", "s0", "up"])?;
    world.south.ip(&["route", "replace", "default", "via", "10.10.2.1"])?;
    let there = || world.ping(&["-c1", "-W1", SOUTH]);
    if !wait_until(WITHIN, || up() && there()) {
        return Err(world.said().into());
    }
    Ok(())
}

/// A name client and a name server that are not ours, with the UDP gateway between them.
fn dig_asks_dnsmasq_through_the_udp_gateway(kind: Kind) -> Result<(), Failed> {
    const PORT: u16 = 5353;
    let world = World::new(kind);
    let quiet = ["-k", "--no-resolv", "--no-hosts", "--bind-interfaces", "--interface=s0"];
    let files = ["--conf-file=/dev/null", "--pid-file=", "--user=root"];
    let names = ["--address=/gateway.example/192.0.2.77", "--txt-record=long.example,0123456789"];
    let server = world.south.command("dnsmasq").args(quiet).args(files).args(names);
    let _server = server.spawn()?;
    if !world.south.wait_listening(Transport::Udp, 53, WITHIN)? {
        return Err("dnsmasq does not listen".into());
    }
    for (any, server, own) in [("0.0.0.0", SOUTH, "10.10.1.1"), ("::", SOUTH6, "fd00:1::1")] {
        let listen = SocketAddr::new(any.parse()?, PORT);
        let server = SocketAddr::new(server.parse()?, 53);
        let (series, clients_max) = (Series::Plain, 256);
        let setup = UdpGatewaySetup { listen, target: server.into(), series, clients_max };
        let relay = UdpGateway::start(world.gateway.as_ref().unwrap().sockets(), setup)?;
        for (name, kind, answer) in [
            ("gateway.example", "A", "192.0.2.77"),
            ("long.example", "TXT", "\"0123456789\""),
            ("gateway.example", "A", "192.0.2.77"),
        ] {
            let (at, port) = (format!("@{own}"), PORT.to_string());
            let ask = world.north.command("dig").args([at.as_str(), "-p", &port]);
            let said = ask.args(["+short", "+notcp", "+timeout=30", name, kind]).run()?;
            if said.trim() != answer {
                return Err(format!("{own}: {name} is {said:?}: {}", world.said()).into());
            }
        }
        drop(relay);
    }
    Ok(())
}

/// A kernel that has nobody at a port says so to the socket of ours that has it for a peer.
fn a_refused_datagram_is_told_to_its_socket(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
    let gateway = world.gateway.as_ref().unwrap();
    for (any, peer) in [("0.0.0.0:0", SOUTH), ("[::]:0", SOUTH6)] {
        let peer = SocketAddr::new(peer.parse()?, 9);
        let (one, other) = (any.parse()?, any.parse()?);
        let (asked, apart) = (gateway.sockets().bind(one)?, gateway.sockets().bind(other)?);
        for socket in [&asked, &apart] {
            socket.set_read_timeout(Some(WITHIN));
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
fn a_better_first_hop_is_told(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind);
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
        if !wait_until(WITHIN, told) {
            let way = world.north.ip(&["route", "get", destination])?;
            return Err(format!("{way}: {}", world.said()).into());
        }
    }
    Ok(())
}

const JUMBO: &str = "frames_of_9000_octets_pass";

type Check = fn(Kind) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let tools = || {
        let tools = Needs::new().namespaces().program("ping").program("traceroute");
        tools.program("tracepath").program("iperf3").program("dnsmasq").program("dig")
    };
    // AF_XDP takes a frame in several buffers from this kernel on.
    let jumbo = |check: &str, backend| check == JUMBO && backend == Backend::Xdp;
    let missing = move |check: &str, backend| {
        let needs = if jumbo(check, backend) { tools().linux(6, 6) } else { tools() };
        needs.missing()
    };
    let checks: [(&str, Check); 12] = [
        ("pings_of_every_size", pings_of_every_size),
        ("traceroute_sees_the_gateway", traceroute_sees_the_gateway),
        ("tracepath_finds_the_path_and_its_mtu", tracepath_finds_the_path_and_its_mtu),
        ("path_mtu_is_told", path_mtu_is_told),
        ("tcp_and_udp_pass_with_right_checksums", tcp_and_udp_pass_with_right_checksums),
        ("dig_asks_dnsmasq_through_the_udp_gateway", dig_asks_dnsmasq_through_the_udp_gateway),
        ("a_refused_datagram_is_told_to_its_socket", a_refused_datagram_is_told_to_its_socket),
        ("a_better_first_hop_is_told", a_better_first_hop_is_told),
        (JUMBO, frames_of_9000_octets_pass),
        ("a_link_goes_and_comes_back", a_link_goes_and_comes_back),
        (
            "swaps_under_a_flood_lose_only_what_is_counted",
            swaps_under_a_flood_lose_only_what_is_counted,
        ),
        ("swaps_lose_nothing", swaps_lose_nothing),
    ];
    let trials = [
        ("packet_socket", Backend::PacketSocket, 1, 1),
        ("xdp", Backend::Xdp, 1, 1),
        ("packet_socket_two_workers", Backend::PacketSocket, 2, 1),
        ("xdp_two_workers", Backend::Xdp, 2, 1),
        ("packet_socket_two_queues", Backend::PacketSocket, 2, 2),
        ("xdp_two_queues", Backend::Xdp, 2, 2),
    ];
    let trials = trials.into_iter().flat_map(|(name, backend, workers, queues)| {
        let kind = Kind { backend, workers, queues };
        // What is said to the gateway itself goes the same way by either device.
        let apart = move |check: &str| {
            let words = ["traceroute", "tracepath", "dig", "refused", "first_hop"];
            let same = backend != Backend::Xdp || queues > 1;
            workers > 1 && same && words.iter().any(|word| check.contains(word))
        };
        checks.into_iter().filter(move |(check, _)| !apart(check)).map(move |(check, run)| {
            match missing(check, backend) {
                None => Trial::test(format!("{name}::{check}"), move || run(kind)),
                Some(missing) => {
                    let name = format!("{name}::{check} (needs {missing})");
                    Trial::test(name, || Ok(())).with_ignored_flag(true)
                }
            }
        })
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit();
}
