//! A gateway that shares its links with the kernel: the kernel is the host, we forward.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod transfer;

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_part::{EventSink, LogEvent};
use gatewright_planes::{KernelStatus, Planes, Setup, Status};
use gatewright_stack::Route;
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    collections::BTreeSet,
    io::Write,
    net::{IpAddr, Ipv4Addr},
    os::fd::OwnedFd,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};
use transfer::transfer;

const SOUTH: &str = "10.10.2.2";
const SOUTH6: &str = "fd00:2::2";
const MIDDLE: &str = "10.10.1.1";
const MIDDLE6: &str = "fd00:1::1";

/// Longer than any change takes to be followed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a gateway moves frames.
#[derive(Clone, Copy)]
struct Kind {
    backend: Backend,
    workers: usize,
}

/// Two hosts, and between them a kernel with addresses and our gateway beside it: one cable to the
/// north, two to the south.
struct World {
    gateway: Option<Planes>,
    north: Namespace,
    middle: Namespace,
    south: Namespace,
    links: [Veth; 2],
    second: Veth,
    events: Arc<Mutex<Vec<LogEvent>>>,
}

impl World {
    fn new(
        Kind { backend, workers }: Kind,
        kernel_forwards: bool,
        news_octets: usize,
    ) -> Result<Self, Failed> {
        let (north, middle, south) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        for kernel in [&north, &middle, &south] {
            // Nobody else is there, and checking for duplicates takes seconds.
            kernel.sysctl("net.ipv6.conf.default.dad_transmits", "0")?;
        }
        let lan = Veth::pair(&north, "n0", &middle, "g0")?;
        let wan = Veth::pair(&middle, "g1", &south, "s0")?;
        let second = Veth::pair(&middle, "g2", &south, "s2")?;
        south.sysctl("net.ipv6.conf.all.keep_addr_on_down", "1")?;
        for (end, addresses) in [
            (&second.a, ["10.10.3.1/24", "fd00:3::1/64"]),
            (&second.b, ["10.10.3.2/24", "fd00:3::2/64"]),
            (&lan.a, ["10.10.1.2/24", "fd00:1::2/64"]),
            (&lan.b, ["10.10.1.1/24", "fd00:1::1/64"]),
            (&wan.a, ["10.10.2.1/24", "fd00:2::1/64"]),
            (&wan.b, ["10.10.2.2/24", "fd00:2::2/64"]),
        ] {
            for address in addresses {
                end.add_address(address)?;
            }
        }
        lan.up()?;
        wan.up()?;
        second.up()?;
        for (host, via4, via6) in [(&north, MIDDLE, MIDDLE6), (&south, "10.10.2.1", "fd00:2::1")] {
            host.add_route("default", via4)?;
            host.add_route("default", via6)?;
        }
        let forwards = if kernel_forwards { "1" } else { "0" };
        middle.sysctl("net.ipv4.ip_forward", forwards)?;
        middle.sysctl("net.ipv6.conf.all.forwarding", forwards)?;
        let events = Arc::<Mutex<Vec<LogEvent>>>::default();
        let log = Arc::clone(&events);
        let log = EventSink::new(move |event| log.lock().unwrap().push(event));
        let gateway = middle.run(|| {
            let mut setup = Setup::new(7);
            setup.kernel_news_octets = news_octets;
            setup.workers = workers;
            setup.link("lan", "g0").backend(backend).shared();
            setup.link("wan", "g1").backend(backend).shared();
            setup.link("second", "g2").backend(backend).shared();
            Planes::open_logging(&setup, log)
        })??;
        let (gateway, links) = (Some(gateway), [lan, wan]);
        let world = Self { gateway, north, middle, south, links, second, events };
        let there = || [SOUTH, SOUTH6].iter().all(|to| world.ping(&["-c1", "-W1", to]));
        if !wait_until(PATIENCE, there) {
            return Err(world.said().into());
        }
        Ok(world)
    }

    /// Waits for an event that the device of `lan` has changed, with these words.
    fn await_changed(&self, words: &[&str]) -> Result<(), Failed> {
        let is_it = |event: &LogEvent| {
            event.kind == "device-changed"
                && event.text.contains("link lan")
                && words.iter().all(|word| event.text.contains(word))
        };
        if wait_until(PATIENCE, || self.events.lock().unwrap().iter().any(is_it)) {
            return Ok(());
        }
        Err(format!("{words:?}: {:?}", self.events.lock().unwrap()).into())
    }

    fn usual(kind: Kind) -> Result<Self, Failed> {
        Self::new(kind, false, 1 << 20)
    }

    fn ping(&self, arguments: &[&str]) -> bool {
        let pinged = self.north.command("ping").args(["-n", "-q"]).args(arguments).output();
        pinged.is_ok_and(|pinged| pinged.status.success())
    }

    fn gateway(&self) -> &Planes {
        self.gateway.as_ref().unwrap()
    }

    fn kernel(&self) -> KernelStatus {
        self.status().kernel.unwrap()
    }

    /// What the gateway says of itself; on a busy machine a worker may answer late.
    fn status(&self) -> Status {
        let mut status = None;
        wait_until(PATIENCE, || {
            status = self.gateway().status().ok();
            status.is_some()
        });
        status.unwrap()
    }

    fn said(&self) -> String {
        format!("{:#?}", self.gateway.as_ref().map(Planes::status))
    }

    /// Frames that our links have sent.
    fn sent(&self) -> u64 {
        let status = self.status();
        let counters = status.links.into_iter().flat_map(|link| link.counters);
        counters.filter(|(name, _)| *name == "sent").map(|(_, count)| count).sum()
    }

    /// Packets that the kernel in the middle has forwarded.
    fn forwarded_by_kernel(&self) -> Result<u64, Failed> {
        Ok(self.middle.counter("IpForwDatagrams")? + self.middle.counter("Ip6OutForwDatagrams")?)
    }
}

/// The kernel in the middle does not forward, so that whatever passes was forwarded by us; and what
/// is for the kernel's own addresses, the kernel answers.
fn hosts_reach_each_other_and_the_kernel(kind: Kind) -> Result<(), Failed> {
    let world = World::usual(kind)?;
    for target in [SOUTH, SOUTH6, MIDDLE, MIDDLE6] {
        for size in ["0", "56", "1472", "8000"] {
            if !world.ping(&["-c2", "-i0.01", "-W2", "-s", size, target]) {
                return Err(format!("{size} octets to {target}: {}", world.said()).into());
            }
        }
    }
    for (target, hop) in [(SOUTH, MIDDLE), (SOUTH6, MIDDLE6)] {
        let trace =
            world.north.command("traceroute").args(["-n", "-q1", "-N1", "-w2", target]).run()?;
        let hops: Vec<_> =
            trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
        if hops != [hop, target] {
            return Err(format!("hops {hops:?}\n{trace}").into());
        }
    }
    for (host, target) in [
        (&world.south, SOUTH),
        (&world.south, SOUTH6),
        (&world.middle, MIDDLE),
        (&world.middle, MIDDLE6),
    ] {
        transfer(&world.north, (host, target), PATIENCE)
            .map_err(|error| format!("{error}\n{}", world.said()))?;
    }
    for host in [&world.north, &world.middle, &world.south] {
        let errors = host.counter("TcpInCsumErrors")?;
        if errors != 0 {
            return Err(format!("TcpInCsumErrors is {errors}").into());
        }
    }
    Ok(())
}

/// The kernel in the middle would forward, too: each packet comes once, and none by the kernel.
fn no_packet_is_forwarded_by_both(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind, true, 1 << 20)?;
    let (kernel, ours) = (world.forwarded_by_kernel()?, world.sent());
    let mut answered = 0;
    for target in [SOUTH, SOUTH6] {
        let arguments = ["-n", "-c", "100", "-i", "0.01", target];
        let text = world.north.command("ping").args(arguments).run()?;
        let number = |line: &str| {
            let (_, behind) = line.split_once("icmp_seq=")?;
            behind.split_whitespace().next()?.parse::<u64>().ok()
        };
        let numbers: Vec<u64> = text.lines().filter_map(number).collect();
        // For its last answers ping waits no longer than the others took: those may be missing, but
        // none before them, and none comes twice.
        let count = numbers.len() as u64;
        if text.contains("DUP!") || count < 50 || !numbers.into_iter().eq(1..=count) {
            return Err(format!("{text}\n{}", world.said()).into());
        }
        answered += count;
    }
    let (kernel, ours) = (world.forwarded_by_kernel()? - kernel, world.sent() - ours);
    if kernel != 0 || ours < 2 * answered {
        return Err(format!("the kernel forwarded {kernel}, we {ours}").into());
    }
    Ok(())
}

/// Routes, addresses and neighbours that come and go in the kernel come and go here.
fn changes_of_the_kernel_are_followed(kind: Kind) -> Result<(), Failed> {
    let world = World::usual(kind)?;
    let pings = |to: &str| world.ping(&["-c1", "-W0.3", to]);
    let until = |what: &str, condition: &dyn Fn() -> bool| {
        if wait_until(PATIENCE, condition) {
            Ok(())
        } else {
            Err(format!("{what}: {}", world.said()))
        }
    };
    let (middle, south) = (&world.middle, &world.south);
    south.ip(&["link", "set", "lo", "up"])?;
    south.ip(&["address", "add", "10.30.0.1/32", "dev", "lo"])?;
    south.ip(&["-6", "address", "add", "fd00:30::1/128", "dev", "lo", "nodad"])?;
    middle.add_route("10.30.0.0/16", SOUTH)?;
    middle.add_route("fd00:30::/32", SOUTH6)?;
    until("a new route", &|| pings("10.30.0.1") && pings("fd00:30::1"))?;
    middle.ip(&["route", "replace", "10.30.0.0/16", "via", "10.10.2.77"])?;
    until("a route to a dead gateway", &|| !pings("10.30.0.1"))?;
    middle.ip(&["route", "replace", "10.30.0.0/16", "via", SOUTH])?;
    until("a mended route", &|| pings("10.30.0.1"))?;
    // The kernel keeps what leads over links that are not ours.
    middle.ip(&["link", "add", "other", "type", "veth", "peer", "name", "end"])?;
    middle.ip(&["link", "set", "other", "up"])?;
    middle.ip(&["route", "add", "10.30.0.1/32", "dev", "other"])?;
    let forwarded = world.kernel().forwarded;
    until("a route over another link", &|| !pings("10.30.0.1"))?;
    middle.ip(&["link", "delete", "other"])?;
    until("the other link is gone", &|| {
        pings("10.30.0.1") && world.kernel().forwarded == forwarded
    })?;
    middle.ip(&["route", "del", "10.30.0.0/16"])?;
    until("a route that is gone", &|| !pings("10.30.0.1"))?;
    middle.ip(&["address", "add", "10.10.9.1/24", "dev", "g0"])?;
    until("an address of the kernel", &|| pings("10.10.9.1"))?;
    // It says so, or the kernel in the middle would take half a minute to find out.
    south.sysctl("net.ipv4.conf.s0.arp_notify", "1")?;
    south.sysctl("net.ipv6.conf.s0.ndisc_notify", "1")?;
    south.ip(&["link", "set", "s0", "address", "02:00:00:00:00:99"])?;
    until("a neighbour with another station", &|| pings(SOUTH) && pings(SOUTH6))?;
    let [_, wan] = &world.links;
    wan.a.down()?;
    until("a link that is down", &|| !pings(SOUTH))?;
    wan.a.up()?;
    until("a link that is up again", &|| pings(SOUTH))?;
    Ok(())
}

/// Of two next hops in a kernel's route each flow keeps one. While the first one's cable is cut at its
/// far end, all go by the second.
fn flows_are_shared_by_next_hops_with_a_carrier(kind: Kind) -> Result<(), Failed> {
    const FLOWS: u8 = 16;
    let world = World::usual(kind)?;
    let (middle, south) = (&world.middle, &world.south);
    south.ip(&["link", "set", "lo", "up"])?;
    south.ip(&["route", "add", "local", "10.30.0.0/16", "dev", "lo"])?;
    south.ip(&["-6", "route", "add", "local", "fd00:30::/32", "dev", "lo"])?;
    for (to, [first, second]) in
        [("10.30.0.0/16", ["10.10.3.2", SOUTH]), ("fd00:30::/32", ["fd00:3::2", SOUTH6])]
    {
        let hops = ["nexthop", "via", first, "nexthop", "via", second, "weight", "2"];
        middle.ip(&[&["route", "add", to][..], &hops].concat())?;
    }
    let sent = |link: usize| -> u64 {
        let counters = world.status().links.into_iter().nth(link).map(|link| link.counters);
        let sent = counters.into_iter().flatten().filter(|(name, _)| *name == "sent");
        sent.map(|(_, count)| count).sum()
    };
    let listed = world.gateway().routes();
    let listed = listed.iter().find(|route| route.to == "10.30.0.0/16").ok_or("no route")?;
    let weights: Vec<_> = listed.next_hops.iter().map(|hop| hop.weight).collect();
    assert_eq!((listed.kind, weights.iter().sum::<u16>()), ("several", 3), "{listed}");
    for (what, both, up) in
        [("both are there", true, true), ("the first is cut", false, false), ("back", true, true)]
    {
        if up {
            world.second.b.up()?;
        } else {
            world.second.b.down()?;
        }
        for family in ["10.30.0.", "fd00:30::"] {
            let are_shared = || {
                let before = [sent(1), sent(2)];
                let passes = |last| world.ping(&["-c1", "-W0.3", &format!("{family}{last}")]);
                let all_pass = (1..=FLOWS).all(passes);
                let now = [sent(1), sent(2)];
                all_pass && now[0] > before[0] && (now[1] > before[1]) == both
            };
            if !wait_until(PATIENCE, are_shared) {
                return Err(format!("{what}, {family}: {}", world.said()).into());
            }
        }
    }
    let packets: u64 = world.status().next_hops.iter().map(|hop| hop.in_graph).sum();
    assert!(packets >= 6 * u64::from(FLOWS), "{packets}");
    Ok(())
}

/// Devices whose MTU is raised, and whose address is changed, in the kernel: large packets and those
/// to the new address are forwarded, by us alone. Each change is an event.
fn changed_devices_are_followed(kind: Kind) -> Result<(), Failed> {
    let world = World::usual(kind)?;
    let until = |what: &str, arguments: &[&str]| {
        if wait_until(PATIENCE, || world.ping(arguments)) {
            Ok(())
        } else {
            Err(format!("{what}: {}", world.said()))
        }
    };
    let World { north, middle, south, .. } = &world;
    let devices = [("n0", north), ("g0", middle), ("g1", middle), ("g2", middle), ("s0", south)];
    for (device, host) in devices {
        host.ip(&["link", "set", device, "mtu", "1700"])?;
    }
    // Too early a packet would be answered by the old MTU, which its sender keeps for minutes.
    let follows = |gateway: &Planes| {
        gateway.change_host(|host| host.interfaces().iter().all(|own| own.mtu == 1700))
    };
    if !wait_until(PATIENCE, || follows(world.gateway())) {
        return Err(format!("the MTU is not followed: {}", world.said()).into());
    }
    world.await_changed(&["hardware address", "MTU 1700"])?;
    // Headers of IPv4 and ICMP have 28 octets.
    let large = ["-c1", "-W1", "-M", "do", "-s", "1672", SOUTH];
    until("larger packets", &large)?;
    // The kernel in the middle tells its neighbours, as any host is configured to that moves.
    middle.sysctl("net.ipv4.conf.g0.arp_notify", "1")?;
    middle.ip(&["link", "set", "g0", "address", "02:00:00:00:12:34"])?;
    until("another address of our link", &["-c1", "-W1", SOUTH])?;
    world.await_changed(&["hardware address 02:00:00:00:12:34", "MTU 1700"])?;
    middle.ip(&["link", "set", "g0", "mtu", "1400"])?;
    world.await_changed(&["hardware address 02:00:00:00:12:34", "MTU 1400"])?;
    middle.ip(&["link", "set", "g0", "mtu", "1700"])?;
    if !wait_until(PATIENCE, || follows(world.gateway())) {
        return Err(format!("the MTU is not followed back: {}", world.said()).into());
    }
    let sent = world.sent();
    if !world.ping(&["-c3", "-i0.1", "-W5", SOUTH]) || world.sent() < sent + 6 {
        return Err(format!("not forwarded here: {}", world.said()).into());
    }
    Ok(())
}

/// More news than the smallest socket has room for.
fn lost_news_is_made_good(kind: Kind) -> Result<(), Failed> {
    news_is_lost(kind, 1, 4000)
}

/// What is lost is noticed while the socket is full: it takes nothing more until it is empty, and
/// that is not told.
fn lost_news_behind_a_full_socket_is_made_good(kind: Kind) -> Result<(), Failed> {
    news_is_lost(kind, 1 << 19, 40_000)
}

/// More news than the socket has room for: it is told, everything is asked for, and in the end our
/// tables are the kernel's.
fn news_is_lost(kind: Kind, news_octets: usize, routes: u32) -> Result<(), Failed> {
    let world = World::new(kind, false, news_octets)?;
    let address = |number: u32| Ipv4Addr::from_bits(0x0a40_0000 | number << 4);
    let mut batch = Vec::new();
    for number in 0..routes / 2 {
        writeln!(batch, "route add {}/32 via {SOUTH}", address(number))?;
    }
    // Nobody reads meanwhile, however fast this machine is: it is more than the socket has room for.
    world.gateway().change_host(|_| run_batch(&world.middle, &batch))?;
    batch.clear();
    for number in routes / 2..routes {
        writeln!(batch, "route add {}/32 via {SOUTH}", address(number))?;
    }
    for number in (0..routes).step_by(3) {
        writeln!(batch, "route del {}/32", address(number))?;
    }
    for number in (1..routes).step_by(7) {
        writeln!(batch, "route replace {}/32 via 10.10.1.2", address(number))?;
    }
    run_batch(&world.middle, &batch)?;
    let listed = world.middle.ip(&["-4", "route", "show", "via", SOUTH])?;
    let to_south: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let listed = world.middle.ip(&["-4", "route", "show", "via", "10.10.1.2"])?;
    let to_north: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(to_south.len() > 1000 && to_north.len() > 500, "{} {}", to_south.len(), to_north.len());
    let via = |link, gateway: &str| Route::Via {
        link: LinkIndex(link),
        gateway: IpAddr::V4(gateway.parse().unwrap()),
    };
    let wrong = || {
        let view = world.gateway().change_host(|host| host.view());
        let wrong = (0..routes).filter(|&number| {
            let text = address(number).to_string();
            let expected = if to_south.contains(text.as_str()) {
                via(1, SOUTH)
            } else if to_north.contains(text.as_str()) {
                via(0, "10.10.1.2")
            } else {
                Route::None
            };
            view.route4(address(number)) != expected
        });
        wrong.count()
    };
    if !wait_until(PATIENCE, || wrong() == 0) {
        return Err(format!("{} of {routes} routes are wrong: {}", wrong(), world.said()).into());
    }
    let kernel = world.kernel();
    if kernel.overruns == 0 || kernel.renewed < 2 || kernel.withdrawn {
        return Err(format!("nothing was lost: {kernel:?}").into());
    }
    Ok(())
}

fn run_batch(namespace: &Namespace, batch: &[u8]) -> Result<(), Failed> {
    let (reader, mut writer) = std::io::pipe()?;
    let ip = namespace.command("ip").args(["-force", "-batch", "-"]);
    let ip = ip.stdin(Stdio::from(OwnedFd::from(reader))).stderr(Stdio::null()).spawn()?;
    writer.write_all(batch)?;
    drop(writer);
    ip.wait()?;
    Ok(())
}

/// A gateway that ends leaves the traffic to the kernel, which goes on with it.
fn the_kernel_goes_on_when_the_gateway_ends(kind: Kind) -> Result<(), Failed> {
    let mut world = World::new(kind, true, 1 << 20)?;
    drop(world.gateway.take());
    for target in [SOUTH, SOUTH6] {
        if !wait_until(PATIENCE, || world.ping(&["-c1", "-W1", target])) {
            return Err(format!("{target} is not reached").into());
        }
    }
    if world.forwarded_by_kernel()? == 0 {
        return Err("the kernel has forwarded nothing".into());
    }
    Ok(())
}

type Check = fn(Kind) -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let missing = |backend| {
        let needs = Needs::new().namespaces().program("ping").program("traceroute");
        let needs = needs.program("iperf3");
        // Beside a packet socket a program at the kernel's ingress drops what is ours (tcx).
        if backend == Backend::PacketSocket { needs.linux(6, 6) } else { needs }.missing()
    };
    let checks: [(&str, Check); 8] = [
        ("hosts_reach_each_other_and_the_kernel", hosts_reach_each_other_and_the_kernel),
        ("no_packet_is_forwarded_by_both", no_packet_is_forwarded_by_both),
        ("changes_of_the_kernel_are_followed", changes_of_the_kernel_are_followed),
        (
            "flows_are_shared_by_next_hops_with_a_carrier",
            flows_are_shared_by_next_hops_with_a_carrier,
        ),
        ("changed_devices_are_followed", changed_devices_are_followed),
        ("lost_news_is_made_good", lost_news_is_made_good),
        (
            "lost_news_behind_a_full_socket_is_made_good",
            lost_news_behind_a_full_socket_is_made_good,
        ),
        ("the_kernel_goes_on_when_the_gateway_ends", the_kernel_goes_on_when_the_gateway_ends),
    ];
    let all = checks.len();
    // With two workers those whose packets they divide.
    let kinds = [
        ("packet_socket", Backend::PacketSocket, 1, all),
        ("xdp", Backend::Xdp, 1, all),
        ("xdp_two_workers", Backend::Xdp, 2, 5),
    ];
    let trials = kinds.into_iter().flat_map(|(name, backend, workers, some)| {
        let kind = Kind { backend, workers };
        checks.into_iter().take(some).map(move |(check, run)| match missing(backend) {
            None => Trial::test(format!("{name}::{check}"), move || run(kind)),
            Some(missing) => {
                let name = format!("{name}::{check} (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        })
    });
    let trials = trials.collect();
    libtest_mimic::run(&arguments, trials).exit();
}
