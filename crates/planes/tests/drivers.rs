//! Forwarding in the drivers of a gateway between two kernels: what it forwards, what comes up, and
//! that nothing is lost or doubled when somebody begins to look.
//!
//! This test is its own child: with [`SERVES`] in its environment it is the data plane.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

#[expect(dead_code, reason = "these flows are all bounded")]
mod numbered;

use gatewright_link::Backend;
use gatewright_packet::LinkIndex;
use gatewright_planes::{
    HandlerValue, LinkSetup, NextHopStatus, Placement, Planes, ProcessSetup, RouteOrder,
    RouteTarget, Setup,
};
use gatewright_stack::{
    At, Attachment, Place, Side, WeightedHop,
    builtin::{Count, HostPart, Match, Verdict},
};
use gatewright_testbed::{Missing, Needs, TwoSubnets, in_time_namespace, wait_until};
use gatewright_wire::{EtherType, IpProtocol};
use libtest_mimic::{Arguments, Failed, Trial};
use numbered::{Flight, Passed, Progress};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    process::ExitCode,
    time::{Duration, Instant},
};

const WITHIN: Duration = Duration::from_secs(30);
const LAN: LinkIndex = LinkIndex(0);
const WAN: LinkIndex = LinkIndex(1);
/// Datagrams on their way at once that each queue holds.
const HELD: u32 = 200;
const SERVES: &str = "GATEWRIGHT_DRIVERS_TEST_SERVES";

type Test = fn() -> Result<(), Failed>;

fn main() -> ExitCode {
    if std::env::var_os(SERVES).is_some() {
        gatewright_planes::serve_data_plane().unwrap();
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_args();
    // The kernel tells since 6.3 which interfaces take redirected frames, and since 6.8 which tag
    // a virtual cable has taken out of a frame.
    let needs = || Needs::new().namespaces().program("ethtool").program("ping");
    let missing = needs().linux(6, 8).missing();
    let of = |name: &str, test: Test, missing: Option<&Missing>| match missing {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
        }
    };
    let trial = |name: &str, test: Test| of(name, test, missing.as_ref());
    let trials = vec![
        of(
            "a_link_tells_whether_its_driver_forwards",
            a_link_tells_whether_its_driver_forwards,
            needs().missing().as_ref(),
        ),
        trial("transit_is_forwarded_in_drivers", transit_is_forwarded_in_drivers),
        trial("drivers_wait_for_the_beginning", || drivers_wait_for_the_beginning(0)),
        trial("drivers_wait_for_all_handlers", || drivers_wait_for_the_beginning(2)),
        trial("what_is_not_plain_comes_up", what_is_not_plain_comes_up),
        trial("a_handler_that_comes_and_goes_loses_nothing", swaps_lose_nothing),
        trial("a_handler_and_a_trace_see_what_they_look_at", lookers_see_packets),
        trial("drivers_count_and_drop_in_place_of_handlers", drivers_count_and_drop),
        trial("drivers_limit_together_with_the_graph", || drivers_limit(None)),
        trial("drivers_limit_together_with_the_graph_of_another_process", || {
            let own = std::env::current_exe()?.into_os_string();
            drivers_limit(Some(&ProcessSetup {
                program: "env".into(),
                arguments: vec![format!("{SERVES}=1").into(), own],
                name: String::new(),
            }))
        }),
        trial(REFILLED, refilled),
        of(
            "a_limit_of_drivers_and_the_graph_is_refilled_in_a_time_namespace",
            || Ok(in_time_namespace(REFILLED)?),
            needs().linux(6, 8).time_namespaces().missing().as_ref(),
        ),
        trial("each_packet_is_counted_once_while_handlers_change", each_is_counted_once),
        trial("routes_and_neighbours_are_followed", routes_and_neighbours_are_followed),
        trial("a_stale_neighbour_is_asked_while_drivers_forward_to_it", stale_neighbours_are_asked),
        trial("a_link_without_forwarding_forwards_nothing", links_decide),
        trial("flows_of_a_group_keep_their_next_hop", groups_share_flows),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Pings whether or not there is an answer.
fn ping_once(world: &World) {
    let _answered = world.ping("10.10.2.2", &[]);
}

struct World {
    hosts: TwoSubnets,
    gateway: Planes,
}

impl World {
    fn new() -> Result<Self, Failed> {
        Self::with(|_| ())
    }

    fn with(change: impl Fn(&mut LinkSetup) + Send + Sync) -> Result<Self, Failed> {
        Self::of(change, None)
    }

    /// The same with the data plane in such a process, or on threads.
    fn of(
        change: impl Fn(&mut LinkSetup) + Send + Sync,
        process: Option<&ProcessSetup>,
    ) -> Result<Self, Failed> {
        let world = Self::open(change, |setup| setup.process = process.cloned())?;
        if wait_until(WITHIN, || world.reaches_far()) {
            Ok(world)
        } else {
            Err(world.said().into())
        }
    }

    /// A gateway that was opened, whether it forwards or not.
    fn open(
        change: impl Fn(&mut LinkSetup) + Send + Sync,
        change_setup: impl Fn(&mut Setup) + Send + Sync,
    ) -> Result<Self, Failed> {
        let hosts = TwoSubnets::with_queues(1)?;
        let ends = [(&hosts.north, "n0", "1"), (&hosts.south, "s0", "2")];
        for (host, end, net) in ends {
            // Checksums are complete, as on a cable between machines.
            host.command("ethtool").args(["-K", end, "tx", "off"]).run()?;
            host.ip(&["address", "add", &format!("fd00:{net}::2/64"), "dev", end, "nodad"])?;
            host.ip(&["-6", "route", "add", "default", "via", &format!("fd00:{net}::1")])?;
        }
        let gateway = hosts.middle.run(|| {
            let mut setup = Setup::new(7);
            setup.routes_max = 1000;
            change_setup(&mut setup);
            for (name, device, net) in [("lan", "g0", 1), ("wan", "g1", 2)] {
                let link = setup.link(name, device);
                link.backend(Backend::Xdp)
                    .address(Ipv4Addr::new(10, 10, net, 1), 24)
                    .address(Ipv6Addr::new(0xfd00, net.into(), 0, 0, 0, 0, 0, 1), 64)
                    .forward_in_driver();
                change(link);
            }
            Planes::open(&setup)
        })??;
        Ok(Self { hosts, gateway })
    }

    fn reaches_far(&self) -> bool {
        self.ping("10.10.2.2", &[]) && self.ping("fd00:2::2", &[])
    }

    fn ping(&self, to: &str, more: &[&str]) -> bool {
        let ping = self.hosts.north.command("ping").args(["-n", "-q", "-c1", "-W1"]);
        ping.args(more).args([to]).output().is_ok_and(|out| out.status.success())
    }

    fn said(&self) -> String {
        format!("{:#?}", self.gateway.status().map(|status| (status.links, status.next_hops)))
    }

    /// Packets of a link in its driver with this outcome.
    fn count(&self, link: LinkIndex, outcome: &str) -> u64 {
        let status = self.gateway.status().unwrap();
        let counts = &status.links.iter().find(|known| known.link == link.0).unwrap().in_driver;
        counts.iter().find(|count| count.outcome == outcome).map_or(0, |count| count.packets)
    }

    /// What `action` adds to the count of an outcome.
    fn adds(&self, link: LinkIndex, outcome: &str, action: impl FnOnce()) -> u64 {
        let before = self.count(link, outcome);
        action();
        self.count(link, outcome) - before
    }

    fn pings(&self, to: &str, count: u64) {
        for number in 0..count {
            assert!(self.ping(to, &[]), "{to}, {number}: {}", self.said());
        }
    }
}

/// Where the kernel cannot, the graph forwards, and the link says why.
fn a_link_tells_whether_its_driver_forwards() -> Result<(), Failed> {
    let world = World::new()?;
    let is_new = Needs::new().linux(6, 8).missing().is_none();
    // A kernel on a machine without a processor of its own answers late.
    let mut status = world.gateway.status();
    wait_until(WITHIN, || {
        status = world.gateway.status();
        status.is_ok()
    });
    for link in status?.links {
        let expected = if is_new {
            "in the driver (XDP)"
        } else {
            "by the graph, not in the driver: cannot see the tags of VLANs, which its driver takes \
             out (Linux 6.8 tells them"
        };
        assert!(link.forwarding.starts_with(expected), "{}", link.forwarding);
        assert_eq!(link.forwards_in_driver, is_new);
    }
    Ok(())
}

fn transit_is_forwarded_in_drivers() -> Result<(), Failed> {
    let world = World::new()?;
    let status = world.gateway.status()?;
    for link in &status.links {
        assert!(link.forwards_in_driver, "{}", world.said());
        assert_eq!(link.forwarding, "in the driver (XDP)");
        assert_eq!(link.not_redirected, "");
    }
    for to in ["10.10.2.2", "fd00:2::2"] {
        // A reading of both directions: requests and answers.
        let answers = world.count(WAN, "forwarded");
        assert_eq!(world.adds(LAN, "forwarded", || world.pings(to, 20)), 20, "{}", world.said());
        assert!(world.count(WAN, "forwarded") >= answers + 20, "{}", world.said());
    }
    let hops = world.gateway.status()?.next_hops;
    let by =
        |name: &str| hops.iter().filter(|hop| hop.link == name).map(|hop| hop.packets).sum::<u64>();
    assert!(by("lan") >= 40 && by("wan") >= 40, "{hops:?}");
    Ok(())
}

/// Drivers forward nothing while handlers may still come, and do from the beginning on, whether any
/// has come or not.
fn drivers_wait_for_the_beginning(handlers: usize) -> Result<(), Failed> {
    let world = World::open(|_| (), |setup| setup.waits = true)?;
    for _ in 0..handlers {
        let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
        world.gateway.place(Placement::Described(at, HandlerValue::Count))?;
    }
    assert!(!world.ping("10.10.2.2", &[]), "{}", world.said());
    assert_eq!([LAN, WAN].map(|link| world.count(link, "forwarded")), [0, 0], "{}", world.said());
    world.gateway.begin()?;
    assert!(wait_until(WITHIN, || world.reaches_far()), "{}", world.said());
    for to in ["10.10.2.2", "fd00:2::2"] {
        assert_eq!(world.adds(LAN, "forwarded", || world.pings(to, 5)), 5, "{}", world.said());
    }
    Ok(())
}

fn what_is_not_plain_comes_up() -> Result<(), Failed> {
    let world = World::new()?;
    let cases: [(&str, &str, &[&str], bool); 5] = [
        ("expired", "10.10.2.2", &["-t1"], false),
        ("expired", "fd00:2::2", &["-t1"], false),
        ("options", "10.10.2.2", &["-R"], true),
        ("no-route", "10.10.9.9", &[], false),
        ("no-route", "10.10.1.1", &[], true),
    ];
    for (outcome, to, more, is_answered) in cases {
        let ping = || assert_eq!(world.ping(to, more), is_answered, "{outcome} {to}");
        assert_eq!(world.adds(LAN, outcome, ping), 1, "{outcome} {to}: {}", world.said());
    }
    // The last hop of a packet is spent here, not the one before.
    assert_eq!(world.adds(LAN, "forwarded", || assert!(world.ping("10.10.2.2", &["-t2"]))), 1);
    // A fragment is forwarded as any packet.
    let large = || assert!(world.ping("10.10.2.2", &["-s", "4000"]), "{}", world.said());
    assert_eq!(world.adds(LAN, "forwarded", large), 3);
    // A kernel that leaves checksums to its device: the graph completes them.
    let host = &world.hosts.north;
    host.command("ethtool").args(["-K", "n0", "tx", "on"]).run()?;
    let receiver = world.hosts.south.run(|| UdpSocket::bind(("10.10.2.2", 7001)))??;
    receiver.set_read_timeout(Some(WITHIN))?;
    let sender = world.hosts.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    let passes = || {
        sender.send_to(b"partial", ("10.10.2.2", 7001)).unwrap();
        let mut octets = [0; 16];
        assert_eq!(receiver.recv(&mut octets).unwrap(), 7);
    };
    assert_eq!(world.adds(LAN, "partial", passes), 1, "{}", world.said());
    Ok(())
}

/// Handlers come and go under numbered datagrams: each comes once, by the driver or by the graph.
fn swaps_lose_nothing() -> Result<(), Failed> {
    const SWAPS: u32 = 50;
    const BETWEEN: u32 = 400;
    let world = World::new()?;
    let receiver = world.hosts.south.run(|| UdpSocket::bind(("10.10.2.2", 7000)))??;
    let sender = world.hosts.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    sender.connect(("10.10.2.2", 7000))?;
    let forwarded = world.count(LAN, "forwarded");
    let seen = world.count(LAN, "looked-at");
    let swap = |progress: &Progress| {
        for number in 0..SWAPS {
            if !progress.wait_for_more(BETWEEN, WITHIN) {
                return Err("the sender does not get on".into());
            }
            // Where it comes in, and where it would leave.
            let (link, side) =
                if number % 2 == 0 { (LAN, Side::Receive) } else { (WAN, Side::Transmit) };
            let mut at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
            (at.link, at.side) = (Some(link), side);
            let id = world.gateway.attach(at, Box::new(Count::default()))?;
            if !progress.wait_for_more(BETWEEN, WITHIN) {
                return Err("the sender does not get on".into());
            }
            world.gateway.detach(id)?;
        }
        Ok(())
    };
    let limits = (Flight::AtMost(HELD), WITHIN);
    let is_all = |sent, received| sent == received;
    let Passed { sent, rate, numbers } = numbered::pass(&sender, &receiver, limits, swap, is_all)?;
    let forwarded = world.count(LAN, "forwarded") - forwarded;
    let seen = world.count(LAN, "looked-at") - seen;
    let mut once = numbers.clone();
    once.sort_unstable();
    once.dedup();
    eprintln!(
        "{SWAPS} swaps, {sent} sent, {rate:.0} a second; {forwarded} by the driver, {seen} seen"
    );
    if once.len() != numbers.len() || once.len() != usize::try_from(sent)? {
        let said = format!("{} of {sent}, {} once", numbers.len(), once.len());
        return Err(format!("{said}: {}", world.said()).into());
    }
    assert!(forwarded > 0 && seen > 0, "{forwarded} {seen}");
    Ok(())
}

fn lookers_see_packets() -> Result<(), Failed> {
    let world = World::new()?;
    let to = "10.10.2.2";
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    let id = world.gateway.attach(at, Box::new(Count::default()))?;
    assert_eq!(world.adds(LAN, "looked-at", || world.pings(to, 5)), 5, "{}", world.said());
    // The other family stays in the driver.
    assert_eq!(world.adds(LAN, "forwarded", || world.pings("fd00:2::2", 5)), 5);
    world.gateway.detach(id)?;
    assert_eq!(world.adds(LAN, "forwarded", || world.pings(to, 5)), 5);
    let tracing = world.gateway.trace(Some(LAN), Match::default(), None)?;
    assert!(world.ping(to, &[]));
    let steps = tracing.steps(WITHIN)?;
    assert!(!steps.is_empty(), "{}", world.said());
    drop(tracing);
    assert_eq!(world.adds(LAN, "forwarded", || world.pings(to, 5)), 5);
    // The kernel beside a link gets copies of what is for this host.
    let at = Attachment { link: Some(LAN), ..Attachment::new(At::Frame, Place::Tap) };
    let copies = HandlerValue::Host { part: HostPart::Copy, to: WAN };
    let id = world.gateway.place(Placement::Described(at, copies))?;
    assert_eq!(world.adds(LAN, "forwarded", || world.pings(to, 5)), 5);
    world.gateway.detach(id)?;
    // Where packets to this host alone pass, nobody looks at transit.
    let at = Attachment::new("ip:icmp".parse()?, Place::Tap);
    world.gateway.attach(at, Box::new(Count::default()))?;
    assert_eq!(world.adds(LAN, "forwarded", || world.pings(to, 5)), 5);
    Ok(())
}

/// `count` and `drop` run in the driver; what needs more than the driver reads goes to the graph.
fn drivers_count_and_drop() -> Result<(), Failed> {
    let world = World::new()?;
    let place = |at: At, value| {
        let at = Attachment { link: Some(LAN), ..Attachment::new(at, Place::Before) };
        world.gateway.place(Placement::Described(at, value))
    };
    let handled = |id| {
        let all = world.gateway.handlers();
        let own = all.iter().find(|handler| handler.id == id).unwrap();
        (own.counted, own.taken)
    };
    let ipv4 = At::EtherType(EtherType::IPV4);
    let count = place(ipv4, HandlerValue::Count)?;
    let which = Match { protocol: Some(IpProtocol::UDP), port: Some(7009), ..Match::default() };
    let drop = place(At::Frame, HandlerValue::Drop { which })?;
    let before = handled(count).0.unwrap();
    assert_eq!(world.adds(LAN, "forwarded", || world.pings("10.10.2.2", 5)), 5, "{}", world.said());
    // RFC 792: 56 octets of data behind headers of 8 and 20.
    assert_eq!(handled(count).0, Some((before.0 + 5, before.1 + 5 * 84)));
    let receivers = [7009, 7001].map(|port| {
        let socket = world.hosts.south.run(|| UdpSocket::bind(("10.10.2.2", port))).unwrap();
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        socket
    });
    let sender = world.hosts.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    let [dropped, passed] = &receivers;
    let send = |octets: &[u8]| {
        for port in [7009, 7001] {
            sender.send_to(octets, ("10.10.2.2", port)).unwrap();
        }
        // It comes behind the other one.
        assert_eq!(passed.recv(&mut [0; 4096]).unwrap(), octets.len());
    };
    assert_eq!(world.adds(LAN, "dropped", || send(b"one")), 1, "{}", world.said());
    assert_eq!(handled(drop), (None, 1));
    // The port is in the first fragment only: the graph drops both.
    assert_eq!(world.adds(LAN, "looked-at", || send(&[1; 2000])), 4, "{}", world.said());
    assert_eq!(handled(drop), (None, 3));
    dropped.set_nonblocking(true)?;
    assert!(dropped.recv(&mut [0; 4096]).is_err(), "none of them came");
    // A handler that sees packets takes them out of the driver, and these two with them.
    let tap = Attachment { link: Some(LAN), ..Attachment::new(ipv4, Place::Tap) };
    let tap = world.gateway.attach(tap, Box::new(Count::default()))?;
    assert_eq!(world.adds(LAN, "looked-at", || send(b"two")), 2, "{}", world.said());
    assert_eq!(handled(drop), (None, 4));
    world.gateway.detach(tap)?;
    world.gateway.detach(drop)?;
    assert_eq!(world.adds(LAN, "forwarded", || send(b"three")), 2, "{}", world.said());
    dropped.set_nonblocking(false)?;
    assert_eq!(dropped.recv(&mut [0; 4096])?, 5, "nobody drops it any more");
    Ok(())
}

/// A limit runs in the driver, and packets that go to the graph take tokens from the same bucket: of
/// those that come, both together let its burst pass.
fn drivers_limit(process: Option<&ProcessSetup>) -> Result<(), Failed> {
    const BURST: u64 = 60;
    const UP: u64 = 20;
    /// Packets of the kernel's own at the most.
    const OTHERS: u64 = 5;
    let world = World::of(|_| (), process)?;
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
    let at = Attachment { link: Some(LAN), ..at };
    // Without a rate no clock decides.
    let limit = HandlerValue::RateLimit { rate: 0, burst: u32::try_from(BURST)? };
    let limit = world.gateway.place(Placement::Described(at, limit))?;
    let taken = || {
        let all = world.gateway.handlers();
        all.iter().find(|handler| handler.id == limit).unwrap().taken
    };
    // To this host: the graph answers.
    world.pings("10.10.1.1", UP);
    let receiver = world.hosts.south.run(|| UdpSocket::bind(("10.10.2.2", 7001)))??;
    receiver.set_nonblocking(true)?;
    let sender = world.hosts.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    let before = ["forwarded", "dropped"].map(|outcome| world.count(LAN, outcome));
    for _ in 0..2 * BURST {
        sender.send_to(b"limited", ("10.10.2.2", 7001))?;
    }
    let here = || {
        let now = ["forwarded", "dropped"].map(|outcome| world.count(LAN, outcome));
        [now[0] - before[0], now[1] - before[1]]
    };
    assert!(wait_until(WITHIN, || here().iter().sum::<u64>() == 2 * BURST), "{}", world.said());
    let [forwarded, dropped] = here();
    assert!((BURST - UP - OTHERS..=BURST - UP).contains(&forwarded), "{}", world.said());
    let arrived = || std::iter::from_fn(|| receiver.recv(&mut [0; 16]).ok()).count();
    let mut received = 0;
    let all_arrive = || {
        received += u64::try_from(arrived()).unwrap();
        received == forwarded
    };
    assert!(wait_until(WITHIN, all_arrive), "{forwarded} were forwarded");
    assert!((dropped..=dropped + OTHERS).contains(&taken()), "{} {dropped}", taken());
    // Nor has the graph any left.
    let before = taken();
    assert!(!world.ping("10.10.1.1", &[]) && !world.ping("10.10.2.2", &[]), "{}", world.said());
    assert!((before + 2..=before + 2 + OTHERS).contains(&taken()), "{}", world.said());
    // The other family has no limit.
    world.pings("fd00:2::2", 3);
    world.gateway.detach(limit)?;
    assert_eq!(world.adds(LAN, "forwarded", || world.pings("10.10.2.2", 5)), 5);
    Ok(())
}

const REFILLED: &str = "a_limit_of_drivers_and_the_graph_is_refilled_by_one_clock";

/// The graph takes tokens by the clock by which drivers do: after it has taken some, drivers have theirs.
fn refilled() -> Result<(), Failed> {
    const BURST: u32 = 60;
    const SENT: u64 = 20;
    let world = World::new()?;
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
    let at = Attachment { link: Some(LAN), ..at };
    // A tenth of the burst each second: what is sent here passes by the burst.
    let limit = HandlerValue::RateLimit { rate: BURST / 10, burst: BURST };
    world.gateway.place(Placement::Described(at, limit))?;
    let sender = world.hosts.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    for _ in 0..2 {
        // To this host: the graph takes a token.
        world.pings("10.10.1.1", 1);
        let before = world.count(LAN, "forwarded");
        for _ in 0..SENT {
            sender.send_to(b"limited", ("10.10.2.2", 7001))?;
        }
        let all = || world.count(LAN, "forwarded") == before + SENT;
        assert!(wait_until(WITHIN, all), "{}", world.said());
    }
    assert_eq!(world.count(LAN, "dropped"), 0, "{}", world.said());
    Ok(())
}

/// Numbered datagrams are counted while another handler comes and goes: each once, in the driver or
/// in the graph.
fn each_is_counted_once() -> Result<(), Failed> {
    const SWAPS: u32 = 20;
    const BETWEEN: u32 = 400;
    let world = World::new()?;
    let receiver = world.hosts.south.run(|| UdpSocket::bind(("10.10.2.2", 7000)))??;
    let sender = world.hosts.north.run(|| UdpSocket::bind(("10.10.1.2", 0)))??;
    sender.connect(("10.10.2.2", 7000))?;
    let place = |value| {
        let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
        let at = Attachment { link: Some(LAN), ..at };
        world.gateway.place(Placement::Described(at, value))
    };
    let count = place(HandlerValue::Count)?;
    let counted = || {
        let all = world.gateway.handlers();
        all.iter().find(|handler| handler.id == count).and_then(|one| one.counted).unwrap().0
    };
    let before = counted();
    let swap = |progress: &Progress| {
        let more =
            || progress.wait_for_more(BETWEEN, WITHIN).then_some(()).ok_or("it stands still");
        for number in 0..SWAPS {
            more()?;
            // Two run in the driver, the third takes the packets out of it.
            let which = Match { port: Some(7009), ..Match::default() };
            let rules = [
                HandlerValue::Drop { which },
                HandlerValue::RateLimit { rate: 1_000_000, burst: 1_000_000 },
                HandlerValue::Filter { rules: Vec::new(), default: Verdict::Accept },
            ];
            let id = place(rules[usize::try_from(number % 3)?].clone())?;
            more()?;
            world.gateway.detach(id)?;
        }
        Ok(())
    };
    let limits = (Flight::AtMost(HELD), WITHIN);
    let forwarded = world.count(LAN, "forwarded");
    let is_all = |sent, received| sent == received;
    let Passed { sent, numbers, .. } = numbered::pass(&sender, &receiver, limits, swap, is_all)?;
    let forwarded = world.count(LAN, "forwarded") - forwarded;
    eprintln!("{SWAPS} handlers, {sent} sent, {forwarded} by the driver");
    assert_eq!(u32::try_from(numbers.len())?, sent, "{}", world.said());
    assert_eq!(counted() - before, u64::from(sent), "{}", world.said());
    assert!(forwarded > 0 && forwarded < u64::from(sent), "some by either: {forwarded} of {sent}");
    Ok(())
}

fn routes_and_neighbours_are_followed() -> Result<(), Failed> {
    let world = World::new()?;
    let far: IpAddr = "198.51.100.7".parse()?;
    world.hosts.south.ip(&["address", "add", "198.51.100.7/32", "dev", "lo"])?;
    let to = RouteTarget::parse("198.51.100.0/24")?;
    let order = RouteOrder { to, via: Some("10.10.2.2".parse()?), link: None };
    let before = world.count(LAN, "forwarded");
    let began = Instant::now();
    world.gateway.add_route(&order)?;
    let took = began.elapsed();
    assert_eq!(world.adds(LAN, "forwarded", || world.pings("198.51.100.7", 5)), 5);
    eprintln!("a route is in the driver {took:?} after its order");
    world.gateway.remove_route(to)?;
    assert!(!world.ping(&far.to_string(), &[]));
    assert!(world.count(LAN, "forwarded") >= before + 5);
    // A neighbour that is forgotten is gone from the driver, and comes back by the graph.
    world.gateway.flush_neighbours(None)?;
    let resolved = || world.adds(LAN, "forwarded", || ping_once(&world)) == 1;
    assert!(wait_until(WITHIN, resolved), "{}", world.said());
    assert!(world.count(LAN, "no-neighbour") > 0, "{}", world.said());
    Ok(())
}

/// South's kernel asks for the gateway, which learns it so and has not asked itself (stale). Drivers
/// forward to it, and the graph, which sees none of these packets, asks it.
fn stale_neighbours_are_asked() -> Result<(), Failed> {
    let world = World::new()?;
    let status = world.gateway.status()?;
    let wan = status.links.iter().find(|link| link.link == WAN.0).and_then(|link| link.mac.clone());
    let wan = wan.ok_or("no address")?;
    let state = || {
        let known = world.gateway.neighbours().unwrap();
        let own = known.iter().find(|known| known.address.to_string() == "10.10.2.2");
        own.map(|own| own.state)
    };
    let by_drivers_only = || {
        world.gateway.flush_neighbours(Some("wan")).unwrap();
        // A kernel's probe is a frame that nothing but the answer to it follows.
        let probe = ["neigh", "replace", "10.10.2.1", "dev", "s0", "nud", "probe", "lladdr", &wan];
        world.hosts.south.ip(&probe).unwrap();
        assert!(wait_until(WITHIN, || state() == Some("stale")), "{}", world.said());
        // Drivers may not know it yet: then the graph has the packet.
        world.adds(LAN, "forwarded", || ping_once(&world)) == 1
    };
    assert!(wait_until(WITHIN, by_drivers_only), "{}", world.said());
    let is_asked = || matches!(state(), Some("delay" | "probe" | "reachable"));
    assert!(wait_until(WITHIN, is_asked), "{:?}", state());
    Ok(())
}

/// Of two routers of one route each flow keeps one, in the driver and in the graph; one that does not
/// answer is left out until it does.
fn groups_share_flows() -> Result<(), Failed> {
    const FLOWS: u16 = 40;
    let world = World::new()?;
    let south = &world.hosts.south;
    south.ip(&["address", "add", "10.10.30.1/32", "dev", "s0"])?;
    let hops = [2, 3].map(|last| WeightedHop {
        link: WAN,
        gateway: Some(Ipv4Addr::new(10, 10, 2, last).into()),
        weight: 1,
    });
    world.gateway.change_host(|host| -> Result<(), Failed> {
        let route = host.route_by(&hops)?;
        Ok(host.add_route("10.10.30.0/24".parse()?, route)?)
    })?;
    let receiver = south.run(|| UdpSocket::bind(("10.10.30.1", 7002)))??;
    receiver.set_read_timeout(Some(Duration::from_millis(300)))?;
    let senders: Vec<UdpSocket> = world.hosts.north.run(|| {
        (0..FLOWS).map(|flow| UdpSocket::bind(("10.10.1.2", 9000 + flow)).unwrap()).collect()
    })?;
    let all_arrive = || {
        senders.iter().all(|sender| {
            sender.send_to(b"flow", ("10.10.30.1", 7002)).unwrap();
            receiver.recv(&mut [0; 16]).is_ok()
        })
    };
    // Packets by each router: in drivers, in the graph.
    let counted = || {
        let hops = world.gateway.status().unwrap().next_hops;
        [2, 3].map(|last| {
            let its = |hop: &&NextHopStatus| hop.via == Some(Ipv4Addr::new(10, 10, 2, last).into());
            hops.iter().find(its).map_or([0; 2], |hop| [hop.packets, hop.in_graph])
        })
    };
    let route = || {
        let routes = world.gateway.routes();
        routes.into_iter().find(|route| route.to == "10.10.30.0/24").unwrap()
    };
    // Nobody has 10.10.2.3 yet: it is left out, and the other has all flows.
    let left_out = || route().next_hops.iter().map(|hop| hop.left_out).collect::<Vec<_>>();
    assert!(wait_until(WITHIN, || left_out() == [false, true]), "{}", route());
    assert_eq!(route().next_hops.iter().map(|hop| hop.flows).collect::<Vec<_>>(), [1024, 0]);
    assert!(wait_until(WITHIN, all_arrive), "{} {}", route(), world.said());
    assert_eq!(counted()[1], [0, 0], "{}", world.said());
    south.ip(&["address", "add", "10.10.2.3/24", "dev", "s0"])?;
    assert!(wait_until(WITHIN, || left_out() == [false, false]), "{}", route());
    assert!(wait_until(WITHIN, all_arrive), "{} {}", route(), world.said());
    // The same flows again, and again in the graph: each by the router that it has.
    let drivers = |counted: [[u64; 2]; 2]| counted.map(|[packets, _]| packets);
    let before = counted();
    assert_eq!(world.adds(LAN, "forwarded", || assert!(all_arrive())), u64::from(FLOWS));
    let once = counted();
    let by_drivers = [0, 1].map(|hop| drivers(once)[hop] - drivers(before)[hop]);
    assert!(by_drivers.iter().all(|packets| *packets >= 8), "{by_drivers:?}");
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    let id = world.gateway.attach(at, Box::new(Count::default()))?;
    assert!(all_arrive(), "{}", world.said());
    world.gateway.detach(id)?;
    let again = counted();
    let by_graph = [0, 1].map(|hop| again[hop][1] - once[hop][1]);
    assert_eq!((drivers(again), by_graph), (drivers(once), by_drivers), "{}", world.said());
    Ok(())
}

fn links_decide() -> Result<(), Failed> {
    let world = World::new()?;
    world.gateway.set_link(WAN, false)?;
    assert_eq!(world.adds(LAN, "forwarded", || ping_once(&world)), 0);
    world.gateway.set_link(WAN, true)?;
    assert!(wait_until(WITHIN, || world.ping("10.10.2.2", &[])), "{}", world.said());
    // An end that takes no redirected frames: they go by the graph, and arrive.
    let gro = |value: &str| {
        let command = world.hosts.south.command("ethtool");
        command.args(["-K", "s0", "gro", value]).run()
    };
    gro("off")?;
    let elsewhere = || world.adds(LAN, "elsewhere", || ping_once(&world)) > 0;
    assert!(wait_until(WITHIN, elsewhere), "{}", world.said());
    world.pings("10.10.2.2", 3);
    gro("on")?;
    let back = || world.adds(LAN, "forwarded", || ping_once(&world)) > 0;
    assert!(wait_until(WITHIN, back), "{}", world.said());
    Ok(())
}
