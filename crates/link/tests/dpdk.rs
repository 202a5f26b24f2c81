//! Ports of DPDK: between two kernels a forwarder that hands each frame on untouched.
//!
//! A test that lacks its rights or programs is shown as ignored, with what is missing.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

use gatewright_link::{
    Backend, DpdkConfig, Exclusive, Link, LinkConfig, LinkCounters, LinkState, Mode, OpenError,
    Opener,
};
use gatewright_packet::{Batch, CHUNK_SIZE, LinkIndex, Pool};
use gatewright_testbed::{Namespace, Needs, TestInterface, TestbedError, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trials = vec![
        trial("kernels_talk_over_af_packet", || talk("net_af_packet", Exclusive::Dropped)),
        trial("kernels_talk_over_af_xdp", || talk("net_af_xdp", Exclusive::Redirected)),
        trial("an_absent_device_is_refused_by_name", absent),
        trial("a_port_closes_with_its_link", closes),
        trial("a_ring_gives_back_what_it_got", ring),
        trial("tags_that_the_kernel_takes_out_are_put_back", tags),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: &str, test: fn() -> Result<(), Failed>) -> Trial {
    match Needs::new().namespaces().program("ping").program("ip").missing() {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), test).with_ignored_flag(true)
        }
    }
}

fn config(number: u16, port: &str) -> DpdkConfig {
    DpdkConfig { index: LinkIndex(number), port: port.to_owned(), mtu: 1500, promiscuous: true }
}

fn opener() -> Opener {
    Opener::new(Rc::new(Pool::new(4096, CHUNK_SIZE).unwrap()))
}

/// `left` l0 – m0 `middle` m1 – r0 `right`, one subnet; the middle's interfaces have no address.
struct Hosts {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Hosts {
    fn new() -> Result<Self, TestbedError> {
        let [left, middle, right] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let cables =
            [Veth::pair(&left, "l0", &middle, "m0")?, Veth::pair(&right, "r0", &middle, "m1")?];
        for (cable, host) in cables.iter().zip(1..) {
            cable.b.disable_ipv6()?;
            cable.a.add_address(&format!("192.0.2.{host}/24"))?;
            cable.a.add_address(&format!("2001:db8::{host}/64"))?;
            cable.up()?;
        }
        Ok(Self { left, middle, right })
    }

    /// Runs `work` in a thread of the middle.
    fn in_middle<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        self.middle.run(|| {
            // A thread started inside a namespace stays there.
            thread::scope(|scope| scope.spawn(work).join().unwrap())
        })
    }
}

/// A forwarder between two ports, in the middle.
struct Bridge {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<[LinkCounters; 2]>,
}

impl Bridge {
    fn start(hosts: &Hosts, ports: [String; 2], exclusive: Exclusive) -> Result<Self, Failed> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, opened) = channel();
        let stopped = Arc::clone(&stop);
        let thread = hosts
            .middle
            .run(move || thread::spawn(move || forward(&ports, exclusive, &stopped, &ready)))?;
        opened.recv()??;
        Ok(Self { stop, thread })
    }

    fn stop(self) -> [LinkCounters; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn forward(
    ports: &[String; 2],
    exclusive: Exclusive,
    stop: &AtomicBool,
    ready: &Sender<Result<(), OpenError>>,
) -> [LinkCounters; 2] {
    let opener = opener();
    let before = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let open = |number: u16| opener.open_dpdk(&config(number, &ports[usize::from(number)]));
    let (mut left, mut right) = match open(0).and_then(|left| Ok((left, open(1)?))) {
        Ok(links) => links,
        Err(error) => {
            ready.send(Err(error)).unwrap();
            return [LinkCounters::default(); 2];
        }
    };
    let after = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    assert_eq!(before, after, "DPDK moved the thread");
    for link in [&left, &right] {
        assert_eq!((link.info().mode, link.info().exclusive), (Mode::Dpdk, exclusive));
    }
    ready.send(Ok(())).unwrap();
    let start = Instant::now();
    let mut batch = Batch::default();
    while !stop.load(Ordering::Relaxed) {
        let moved = pass(&mut *left, &mut *right, start.elapsed(), &mut batch)
            + pass(&mut *right, &mut *left, start.elapsed(), &mut batch);
        if moved == 0 {
            let at = left.poll_timeout().expect("a port is polled");
            thread::sleep(at.saturating_sub(start.elapsed()));
        }
    }
    assert_eq!((left.state(), right.state()), (LinkState::Up, LinkState::Up));
    [left.counters(), right.counters()]
}

fn pass(from: &mut dyn Link, to: &mut dyn Link, now: Duration, batch: &mut Batch) -> usize {
    let received = from.receive(now, batch);
    if received > 0 {
        to.transmit(now, batch);
    }
    received
}

fn talk(driver: &str, exclusive: Exclusive) -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    let ports = [0, 1].map(|number| format!("{driver}{number},iface=m{number}"));
    let bridge = Bridge::start(&hosts, ports, exclusive)?;
    let mut pinged = Vec::new();
    for address in ["192.0.2.2", "2001:db8::2"] {
        let ping = |more: &[&str]| {
            let arguments = [&["-c", "20", "-i", "0.01", "-W", "10", address], more].concat();
            hosts.left.command("ping").args(arguments).run()
        };
        pinged.push(ping(&[]));
        // Frames of the largest size. DPDK's packet socket reassembles fragments of IPv4, so that they
        // come as one packet that is too large.
        let is_whole = driver == "net_af_packet" && !address.contains(':');
        pinged.push(ping(&["-s", if is_whole { "1472" } else { "2800" }]));
    }
    let carried = datagrams(&hosts);
    let counters = bridge.stop();
    eprintln!("{driver}: {counters:?}");
    for said in pinged {
        said?;
    }
    carried?;
    for link in counters {
        assert!(link.received > 80 && link.sent > 80, "{counters:?}");
        assert!(link.partial > 0 && link.completed > 0, "{counters:?}");
        assert_eq!(link.transmit_full + link.transmit_length + link.receive_no_packet, 0);
    }
    Ok(())
}

/// Datagrams each way in both families. The hosts leave their checksums to the device.
fn datagrams(hosts: &Hosts) -> Result<(), Failed> {
    for [server, client] in
        [["192.0.2.2:4000", "192.0.2.1:0"], ["[2001:db8::2]:4000", "[2001:db8::1]:0"]]
    {
        let bind = |address: &str| -> Result<UdpSocket, Failed> {
            let socket = UdpSocket::bind(address)?;
            socket.set_read_timeout(Some(LIMIT))?;
            Ok(socket)
        };
        let (right, left) = (hosts.right.run(|| bind(server))??, hosts.left.run(|| bind(client))??);
        let mut octets = [0; 64];
        left.send_to(b"there", server)?;
        let (len, from) = right.recv_from(&mut octets)?;
        assert_eq!(&octets[..len], b"there");
        right.send_to(b"back", from)?;
        let len = left.recv(&mut octets)?;
        assert_eq!(&octets[..len], b"back");
    }
    Ok(())
}

/// What is not there is told by its name, and the next port opens all the same.
fn absent() -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    hosts.in_middle(|| {
        let opener = opener();
        let refused = |port: &str| match opener.open_dpdk(&config(0, port)) {
            Ok(link) => panic!("{port} opened: {}", link.info()),
            Err(error) => error.to_string(),
        };
        let said = refused("net_af_packet0,iface=m7");
        assert!(said.contains("there is no interface m7") && said.contains("m0"), "{said}");
        for port in ["net_nothing0", "net_af_packet0", "net_ring0,nodeaction=x", "0000:ff:1f.7"] {
            let said = refused(port);
            assert!(said.starts_with(&format!("{port}: DPDK does not open it: ")), "{said}");
        }
        let link = opener.open_dpdk(&config(0, "net_af_packet0,iface=m0")).unwrap();
        let said = refused("net_af_packet0,iface=m1");
        assert!(said.contains("File exists"), "{said}");
        let large = DpdkConfig { mtu: 9000, ..config(0, "net_ring0") };
        let said = opener.open_dpdk(&large).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains("MTU 9000"), "{said}");
        drop(link);
    })?;
    Ok(())
}

/// A port that is closed can be opened again, and leaves the interface to the kernel.
fn closes() -> Result<(), Failed> {
    let hosts = Hosts::new()?;
    let m0 = TestInterface::existing(&hosts.middle, "m0");
    m0.add_address("192.0.2.3/24")?;
    let reaches =
        || hosts.left.command("ping").args(["-c", "1", "-W", "1", "192.0.2.3"]).run().is_ok();
    assert!(reaches(), "the kernel answers");
    hosts.in_middle(|| {
        for _ in 0..3 {
            let link = opener().open_dpdk(&config(0, "net_af_packet0,iface=m0")).unwrap();
            assert!(!reaches(), "the link is exclusive");
            let (device, _chunks) = link.close().into_parts();
            drop(device);
            assert!(wait_until(LIMIT, reaches), "the kernel answers again");
        }
    })?;
    Ok(())
}

/// A ring is its own other end.
fn ring() -> Result<(), Failed> {
    const FRAMES: usize = 40;
    let opener = opener();
    let mut link = opener.open_dpdk(&config(3, "net_ring0"))?;
    assert_eq!((link.state(), link.info().exclusive), (LinkState::Up, Exclusive::Ours));
    let mut batch = Batch::default();
    for number in 0..FRAMES {
        let mut frame = vec![0x5a; 60 + number];
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        batch.push(opener.pool().packet_of(&frame).ok_or("no packet")?).map_err(|_| "full")?;
    }
    let too_long = opener.pool().packet_of(&[0; 1515]).ok_or("no packet")?;
    batch.push(too_long).map_err(|_| "full")?;
    link.transmit(Duration::ZERO, &mut batch);
    assert!(batch.is_empty());
    let now = Duration::from_secs(1);
    assert_eq!(link.receive(now, &mut batch), FRAMES);
    assert_eq!(link.poll_timeout(), Some(now), "there may be more");
    for (number, packet) in batch.iter().enumerate() {
        assert_eq!((packet.len(), packet.meta().ingress), (60 + number, LinkIndex(3)));
    }
    batch.clear();
    assert_eq!(link.receive(now, &mut batch), 0);
    assert!(link.poll_timeout() > Some(now));
    let counters = link.counters();
    assert_eq!((counters.sent, counters.received), (FRAMES as u64, FRAMES as u64));
    assert_eq!((counters.transmit_length, counters.transmit_full), (1, 0));
    Ok(())
}

/// The kernel takes the tag out of a frame before a packet socket sees it.
fn tags() -> Result<(), Failed> {
    const FRAME_LEN: usize = 100;
    let hosts = Hosts::new()?;
    let mut frame = vec![2, 0, 0, 0, 0, 0x22, 2, 0, 0, 0, 0, 0x11, 0x81, 0, 0xa0, 7, 0x88, 0xb5];
    frame.resize(FRAME_LEN, 0x5a);
    let ports = [0, 1].map(|number| format!("net_af_packet{number},iface=m{number}"));
    let bridge = Bridge::start(&hosts, ports, Exclusive::Dropped)?;
    let socket = |name: &str| -> Result<_, Failed> {
        let mut config = LinkConfig::new(LinkIndex(0), name);
        (config.backend, config.exclusive, config.promiscuous) =
            (Backend::PacketSocket, false, true);
        let opener = opener();
        Ok((opener.open(&config)?, opener))
    };
    hosts.right.run(|| -> Result<(), Failed> {
        let (mut right, _pool) = socket("r0")?;
        hosts.left.run(|| -> Result<(), Failed> {
            let (mut left, opener) = socket("l0")?;
            let mut batch = Batch::default();
            batch.push(opener.pool().packet_of(&frame).ok_or("no packet")?).map_err(|_| "full")?;
            left.transmit(Duration::ZERO, &mut batch);
            Ok(())
        })??;
        let mut batch = Batch::default();
        let came = wait_until(LIMIT, || {
            batch.clear();
            right.receive(Duration::ZERO, &mut batch);
            batch.iter().any(|packet| packet.octets() == frame)
        });
        assert!(came, "the tagged frame did not come");
        Ok(())
    })??;
    bridge.stop();
    Ok(())
}
