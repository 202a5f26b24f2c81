//! TAP and TUN links between two kernels: a forwarder that hands each frame on untouched.
//!
//! A test that lacks its rights or programs is shown as ignored, with what is missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

use gatewright_link::{
    Backend, Framing, Link, LinkConfig, LinkCounters, LinkState, Mode, OpenError, Opener, TapConfig,
};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkAddress, LinkIndex, Pool};
use gatewright_testbed::{Namespace, Needs, TestInterface, Transport, Veth};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{ExitCode, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trials = vec![
        trial("kernels_talk_over_tap", || talk(Framing::Ethernet)),
        trial("kernels_talk_over_tun", || talk(Framing::Ip)),
        trial("streams_between_tap_and_cable_are_super_frames", || streams(true)),
        trial("a_cable_without_segmentation_gets_segments", || streams(false)),
        trial("the_interface_goes_with_the_link", goes),
        trial("a_changed_interface_is_followed", changed),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    match Needs::new().namespaces().program("ping").program("iperf3").program("ethtool").missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), test).with_ignored_flag(true)
        }
    }
}

fn config(number: u16, framing: Framing) -> TapConfig {
    let interface = format!("t{number}");
    TapConfig { index: LinkIndex(number), interface, framing, mtu: 1500, up: true }
}

fn talk(framing: Framing) -> Result<(), Failed> {
    let [left, right] = [Namespace::new()?, Namespace::new()?];
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, opened) = channel();
    let stopped = Arc::clone(&stop);
    let thread =
        left.run(move || std::thread::spawn(move || forward(framing, &stopped, &ready)))?;
    opened.recv()??;
    left.ip(&["link", "set", "t1", "netns", &right.path()])?;
    let hosts = [(&left, "t0", 1), (&right, "t1", 2)];
    for (host, name, number) in hosts {
        let interface = TestInterface::existing(host, name);
        interface.up()?;
        interface.add_address(&format!("192.0.2.{number}/24"))?;
        interface.add_address(&format!("2001:db8::{number}/64"))?;
    }
    for (address, datagrams) in
        [("192.0.2.2", "UdpInDatagrams"), ("2001:db8::2", "Udp6InDatagrams")]
    {
        left.command("ping")
            .args(["-c", "2", "-i", "0.01", "-W", "10", "-s", "4000", address])
            .run()?;
        let before = right.counter(datagrams)?;
        for kind in
            [&["-n", "4M"][..], &["-n", "4M", "-R"], &["-u", "-b", "50M", "-l", "1200", "-n", "2M"]]
        {
            let server =
                right.command("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
            assert!(right.wait_listening(Transport::Tcp, 5201, LIMIT)?);
            let arguments = [&["-c", address, "-f", "m"], kind].concat();
            let said = left.command("iperf3").args(arguments).run()?;
            let summary = said.lines().rfind(|line| line.contains("receiver")).unwrap_or_default();
            eprintln!("{framing:?} {address} {kind:?}: {summary}");
            server.wait()?;
        }
        assert!(right.counter(datagrams)? > before, "no datagram arrived");
    }
    for (host, ..) in hosts {
        for name in ["TcpInCsumErrors", "UdpInCsumErrors", "Udp6InCsumErrors"] {
            assert_eq!(host.counter(name)?, 0, "{name}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    let counters = thread.join().map_err(|_| "the forwarder failed")?;
    assert!(counters.iter().all(|link| link.partial > 0 && link.received > 100), "{counters:?}");
    let are_super = |link: &LinkCounters| link.super_frames > 0 && link.super_frames_sent > 0;
    assert!(counters.iter().all(are_super), "{counters:?}");
    assert!(counters.iter().all(|link| link.transmit_length + link.receive_malformed == 0));
    Ok(())
}

/// `left` l0 – m0 forwarder t1 `right` r0 – f0 `far`: a cable on one side of the forwarder, a TAP
/// device on the other. The kernel of `right` forwards to a cable that neither segments nor
/// completes checksums. So what arrives at `far` was segmented as our virtio header says, with our
/// partial checksum completed, and `far` checks it.
///
/// Where m0 takes no super-frames, it gets their segments, with complete checksums.
fn streams(takes_super_frames: bool) -> Result<(), Failed> {
    let [left, middle, right, far] = [(); 4].map(|()| Namespace::new());
    let [left, middle, right, far] = [left?, middle?, right?, far?];
    let near = Veth::pair(&left, "l0", &middle, "m0")?;
    let behind = Veth::pair(&right, "r0", &far, "f0")?;
    let off = ["tso", "off", "gso", "off", "tx-checksum-ip-generic", "off"];
    right.command("ethtool").args(["-K", "r0"]).args(off).run()?;
    if !takes_super_frames {
        let off = ["tso", "off", "tx-checksum-ip-generic", "off"];
        middle.command("ethtool").args(["-K", "m0"]).args(off).run()?;
    }
    near.b.disable_ipv6()?;
    for cable in [&near, &behind] {
        cable.up()?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (ready, opened) = channel();
    let stopped = Arc::clone(&stop);
    let open = |opener: &Opener| {
        let tap = opener.open_tap(&config(1, Framing::Ethernet))?;
        let cable = LinkConfig {
            backend: Backend::PacketSocket,
            promiscuous: true,
            ..LinkConfig::new(LinkIndex(0), "m0")
        };
        Ok([opener.open(&cable)?, tap])
    };
    let thread = middle.run(move || std::thread::spawn(move || pass_on(open, &stopped, &ready)))?;
    opened.recv()??;
    middle.ip(&["link", "set", "t1", "netns", &right.path()])?;
    right.sysctl("net.ipv4.ip_forward", "1")?;
    right.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    let tap = TestInterface::existing(&right, "t1");
    tap.up()?;
    for (interface, address) in [
        (&near.a, "192.0.2.1/24"),
        (&near.a, "2001:db8:1::1/64"),
        (&tap, "192.0.2.2/24"),
        (&tap, "2001:db8:1::2/64"),
        (&behind.a, "198.51.100.1/24"),
        (&behind.a, "2001:db8:2::1/64"),
        (&behind.b, "198.51.100.2/24"),
        (&behind.b, "2001:db8:2::2/64"),
    ] {
        interface.add_address(address)?;
    }
    left.add_route("198.51.100.0/24", "192.0.2.2")?;
    left.add_route("2001:db8:2::/64", "2001:db8:1::2")?;
    far.add_route("192.0.2.0/24", "198.51.100.1")?;
    far.add_route("2001:db8:1::/64", "2001:db8:2::1")?;
    for address in ["198.51.100.2", "2001:db8:2::2"] {
        for direction in [&[][..], &["-R"]] {
            let server = far.command("iperf3").args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
            assert!(far.wait_listening(Transport::Tcp, 5201, LIMIT)?);
            left.command("iperf3").args(["-c", address, "-n", "8M"]).args(direction).run()?;
            server.wait()?;
        }
    }
    for host in [&left, &right, &far] {
        assert_eq!(host.counter("TcpInCsumErrors")?, 0);
    }
    stop.store(true, Ordering::Relaxed);
    let [cable, tap] = thread.join().map_err(|_| "the forwarder failed")?;
    let told = format!("{cable:?} {tap:?}");
    assert!(cable.super_frames > 0 && tap.super_frames > 0, "{told}");
    assert!(tap.super_frames_sent > 0, "{told}");
    assert_eq!(cable.super_frames_sent > 0, takes_super_frames, "{told}");
    for link in [cable, tap] {
        assert_eq!((link.transmit_length, link.receive_malformed), (0, 0), "{told}");
    }
    Ok(())
}

fn forward(
    framing: Framing,
    stop: &AtomicBool,
    ready: &Sender<Result<(), OpenError>>,
) -> [LinkCounters; 2] {
    let open = |opener: &Opener| {
        let open = |number| opener.open_tap(&config(number, framing));
        Ok([open(0)?, open(1)?])
    };
    pass_on(open, stop, ready)
}

/// Hands each frame of two links on to the other one.
fn pass_on(
    open: impl FnOnce(&Opener) -> Result<[Box<dyn Link>; 2], OpenError>,
    stop: &AtomicBool,
    ready: &Sender<Result<(), OpenError>>,
) -> [LinkCounters; 2] {
    let opener = Opener::new(Rc::new(Pool::new(1024, CHUNK_SIZE).unwrap()));
    let [mut left, mut right] = match open(&opener) {
        Ok(links) => links,
        Err(error) => {
            ready.send(Err(error)).unwrap();
            return [LinkCounters::default(); 2];
        }
    };
    ready.send(Ok(())).unwrap();
    let (start, mut batch) = (Instant::now(), Batch::default());
    while !stop.load(Ordering::Relaxed) {
        let mut pass = |from: &mut dyn Link, to: &mut dyn Link| {
            let received = from.receive(start.elapsed(), &mut batch);
            to.transmit(start.elapsed(), &mut batch);
            received
        };
        if pass(&mut *left, &mut *right) + pass(&mut *right, &mut *left) == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
    [left.counters(), right.counters()]
}

/// The kernel's end gets another MTU and address: larger frames leave, our address stays the one
/// beside the kernel's, and the MTU ends where a packet of the slab does.
fn changed() -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    namespace.run(|| -> Result<(), Failed> {
        let pool = Rc::new(Pool::new(64, CHUNK_SIZE)?);
        let opener = Opener::new(Rc::clone(&pool));
        let mut link = opener.open_tap(&config(0, Framing::Ethernet))?;
        let send = |link: &mut dyn Link, len: usize| {
            let mut batch = Batch::default();
            batch.push(pool.packet_of(&vec![0; len]).unwrap()).unwrap();
            link.transmit(Duration::ZERO, &mut batch);
            (link.counters().sent, link.counters().transmit_length)
        };
        // 14 octets of header, and room for two tags.
        assert_eq!(send(&mut *link, 1523), (0, 1));
        namespace.ip(&["link", "set", "t0", "mtu", "1600", "address", "02:00:00:00:00:10"])?;
        assert_eq!(link.state(), LinkState::Up);
        let address = LinkAddress::ethernet([2, 0, 0, 0, 0, 0x11]);
        assert_eq!((link.info().mtu, link.info().link_address), (1600, address));
        assert_eq!(send(&mut *link, 1614), (1, 1));
        namespace.ip(&["link", "set", "t0", "mtu", "1400"])?;
        link.state();
        assert_eq!((link.info().mtu, send(&mut *link, 1423)), (1400, (1, 2)));
        namespace.ip(&["link", "set", "t0", "mtu", "9000"])?;
        link.state();
        assert_eq!(link.info().mtu, pool.packet_len_max() - 22);
        assert_eq!(link.info().link_address, address);
        Ok(())
    })?
}

fn goes() -> Result<(), Failed> {
    let namespace = Namespace::new()?;
    namespace.run(|| -> Result<(), Failed> {
        let opener = Opener::new(Rc::new(Pool::new(64, CHUNK_SIZE)?));
        let there = |name: &str| namespace.ip(&["link", "show", "dev", name]).is_ok();
        let any = TapConfig { interface: "gw%d".to_owned(), ..config(0, Framing::Ethernet) };
        let mut link = opener.open_tap(&any)?;
        assert_eq!((link.info().name.as_str(), link.info().mode), ("gw0", Mode::Tap));
        assert_eq!(link.state(), LinkState::Up);
        let kernel = TestInterface::existing(&namespace, "gw0").mac()?;
        assert_ne!(link.info().link_address.to_string(), kernel);
        assert!(there("gw0"));
        let twice = TapConfig { interface: "gw0".to_owned(), ..any.clone() };
        assert!(opener.open_tap(&twice).is_err(), "one link an interface");
        namespace.ip(&["link", "delete", "gw0"])?;
        assert_eq!(link.state(), LinkState::Gone);
        assert_eq!(link.receive(Duration::ZERO, &mut Batch::default()), 0);
        assert!(link.poll_fd().is_none(), "nothing to be woken by");
        drop(link);
        drop(opener.open_tap(&twice)?);
        assert!(!there("gw0"));
        let large = TapConfig { mtu: 9000, ..any };
        let error = opener.open_tap(&large).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Chunk { needed: 9022, .. }), "{error}");
        Ok(())
    })?
}
