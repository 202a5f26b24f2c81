//! A link that is opened anew while others carry packets: these are neither delayed nor lost.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test may fail loudly"
)]

use gatewright_link::{Backend, LinkConfig, Opener, UnboundLink};
use gatewright_packet::{CHUNK_SIZE, LinkIndex, Pool};
use gatewright_planes::{DeviceSetup, Planes, PlanesError, Setup};
use gatewright_testbed::{Namespace, Needs, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    net::{Ipv4Addr, UdpSocket},
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(30);

/// Datagrams and reports of status that have to pass while a device is being opened. One second is
/// spent there; where the worker or the status waits for the device, one passes at the most.
const PASSES: usize = 4;

/// Devices that are opened at the most until that many pass: on a busy machine one pass may take
/// longer than the device. Where it waits for the device, no further one changes that.
const ATTEMPTS: usize = 5;

/// How often queues are dealt anew.
const DEALS: usize = 24;

/// Datagrams that pass before and after.
const DATAGRAMS: usize = 20;

const SOUTH: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 10, 2, 2), 7000);

/// Two hosts with a gateway between them, and two more interfaces of the gateway.
struct World {
    north: Namespace,
    south: Namespace,
    middle: Namespace,
    setup: Setup,
    gateway: Planes,
    /// Cables to nobody.
    _others: [Veth; 2],
}

impl World {
    fn new(backend: Backend) -> Result<Self, Failed> {
        Self::with_workers(backend, 1)
    }

    fn with_workers(backend: Backend, workers: usize) -> Result<Self, Failed> {
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let lan = Veth::pair(&north, "n0", &middle, "g0")?;
        let wan = Veth::pair(&middle, "g1", &south, "s0")?;
        let others =
            [Veth::pair(&middle, "g2", &south, "s2")?, Veth::pair(&middle, "g3", &south, "s3")?];
        lan.a.add_address("10.10.1.2/24")?;
        wan.b.add_address("10.10.2.2/24")?;
        for cable in [&lan, &wan].into_iter().chain(&others) {
            cable.up()?;
        }
        north.add_route("default", "10.10.1.1")?;
        south.add_route("default", "10.10.2.1")?;
        let mut setup = Setup::new(7);
        setup.workers = workers;
        setup.link("lan", "g0").backend(backend).address(Ipv4Addr::new(10, 10, 1, 1), 24);
        setup.link("wan", "g1").backend(backend).address(Ipv4Addr::new(10, 10, 2, 1), 24);
        setup.link("third", "g2").backend(backend).address(Ipv4Addr::new(10, 10, 3, 1), 24);
        let gateway = middle.run(|| Planes::open(&setup).unwrap())?;
        Ok(Self { north, south, middle, setup, gateway, _others: others })
    }

    /// The setup with the third link on another interface.
    fn moved(&self, interface: &str, backend: Backend) -> Setup {
        self.with(2, interface, backend)
    }

    /// The setup with a link on another interface.
    fn with(&self, link: u16, interface: &str, backend: Backend) -> Setup {
        let (mut setup, index) = (self.setup.clone(), LinkIndex(link));
        let link = &mut setup.links[index.index()];
        link.device = DeviceSetup::Interface(LinkConfig::new(index, interface));
        link.backend(backend);
        setup
    }

    /// Frames that a link has received.
    fn received(&self, link: usize) -> Result<u64, Failed> {
        let status = self.gateway.status()?;
        let mut counters = status.links[link].counters.iter();
        Ok(counters.find(|(name, _)| *name == "received").map(|(_, value)| *value).unwrap())
    }

    /// Sockets of the north and of the south, between which the first datagrams have passed.
    fn sockets(&self) -> Result<Stream, Failed> {
        let sender = self.north.run(|| UdpSocket::bind(("0.0.0.0", 0)).unwrap())?;
        let receiver = self.south.run(|| UdpSocket::bind(SOUTH).unwrap())?;
        receiver.set_read_timeout(Some(WITHIN))?;
        let mut stream = Stream { sender, receiver, next: 0, longest: Duration::ZERO };
        // Neighbours are resolved with the first.
        for _ in 0..DATAGRAMS {
            stream.pass()?;
        }
        stream.longest = Duration::ZERO;
        Ok(stream)
    }
}

/// Numbered datagrams, one after the other.
struct Stream {
    sender: UdpSocket,
    receiver: UdpSocket,
    next: u64,
    longest: Duration,
}

impl Stream {
    /// Sends one and awaits it: it is the next, so none was lost.
    fn pass(&mut self) -> Result<(), Failed> {
        let (began, mut octets) = (Instant::now(), [0; 8]);
        self.sender.send_to(&self.next.to_be_bytes(), SOUTH)?;
        self.receiver.recv(&mut octets)?;
        assert_eq!(u64::from_be_bytes(octets), self.next, "in order, and none missing");
        self.next += 1;
        self.longest = self.longest.max(began.elapsed());
        Ok(())
    }
}

/// Holds the driver of an interface, so that whoever opens it waits in the kernel for a second.
fn hold(interface: &str) -> Result<UnboundLink, String> {
    let pool = Rc::new(Pool::new(2048, CHUNK_SIZE).map_err(|error| error.to_string())?);
    let mut config = LinkConfig::new(LinkIndex(0), interface);
    config.backend = Backend::Xdp;
    Opener::new(pool).preparer().prepare(&config).map_err(|error| error.to_string())
}

/// How many datagrams and reports passed while the third link was being exchanged.
fn exchange(
    world: &World,
    stream: &mut Stream,
    new: &Setup,
) -> Result<(usize, Result<(), PlanesError>), Failed> {
    thread::scope(|scope| {
        let exchanging = scope.spawn(|| world.gateway.exchange(&world.setup, new).map(drop));
        let mut passed = 0;
        while !exchanging.is_finished() {
            stream.pass()?;
            world.gateway.status()?;
            passed += 1;
            // The kernel needs the processors, too.
            thread::sleep(Duration::from_millis(1));
        }
        Ok((passed, exchanging.join().expect("it ends")))
    })
}

fn a_slow_device_delays_nobody(backend: Backend) -> Result<(), Failed> {
    let world = World::new(backend)?;
    let mut stream = world.sockets()?;
    let held = world.middle.run(|| hold("g3"))??;
    let mut passed = 0;
    for _ in 0..ATTEMPTS {
        let moved = world.moved("g3", Backend::Xdp);
        let (now, exchanged) = exchange(&world, &mut stream, &moved)?;
        let told = exchanged.expect_err("the interface is held").to_string();
        assert!(told.contains("third") && told.contains("it runs on as it was"), "{told}");
        passed = passed.max(now);
        if passed >= PASSES {
            break;
        }
    }
    assert!(passed >= PASSES, "only {passed} passed, the slowest in {:?}", stream.longest);
    eprintln!("{passed} passed while a device was awaited, the slowest in {:?}", stream.longest);
    drop(held);
    // Now it opens, in the namespace of the workers, and the others lose nothing meanwhile.
    let new = world.moved("g3", backend);
    stream.longest = Duration::ZERO;
    let (passed, exchanged) = exchange(&world, &mut stream, &new)?;
    exchanged?;
    eprintln!("{passed} passed while a device was opened, the slowest in {:?}", stream.longest);
    assert_eq!(world.gateway.status()?.links[2].device, "g3");
    let is_up = || world.gateway.status().is_ok_and(|status| status.links[2].up);
    assert!(wait_until(WITHIN, is_up));
    Ok(())
}

/// The link that carries the flow is to move to an interface that is missing, that another process
/// holds, or to a mode that it does not have: it is refused before anything is closed.
fn a_refused_device_loses_nothing(backend: Backend, workers: usize) -> Result<(), Failed> {
    let mut world = World::with_workers(backend, workers)?;
    if backend == Backend::PacketSocket && workers > 1 {
        // Several sockets of one interface, whatever its queues.
        let mut setup = world.setup.clone();
        setup.links[1].queues = Some(workers);
        world.gateway.exchange(&world.setup, &setup)?;
        world.setup = setup;
    }
    let mut stream = world.sockets()?;
    let held = world.middle.run(|| hold("g3"))??;
    let refused = [
        (world.with(1, "gX", backend), "gX"),
        (world.with(1, "g3", Backend::Xdp), "g3"),
        // On veth the generic mode loses the peer's super-frames.
        (world.with(1, "g1", Backend::XdpGeneric), "g1"),
    ];
    for (new, interface) in refused {
        let before = [world.received(0)?, world.received(1)?];
        assert!(before[0] >= DATAGRAMS as u64, "{before:?}");
        let (_, exchanged) = exchange(&world, &mut stream, &new)?;
        let told = exchanged.expect_err("it is refused").to_string();
        assert!(told.contains(interface) && told.contains("it runs on as it was"), "{told}");
        for _ in 0..DATAGRAMS {
            stream.pass()?;
        }
        let after = [world.received(0)?, world.received(1)?];
        assert!(after[0] >= before[0] + DATAGRAMS as u64, "{before:?} {after:?}");
        assert!(after[1] >= before[1] && after[1] > 0, "{before:?} {after:?}");
        assert_eq!(world.gateway.status()?.links[1].device, "g1");
    }
    drop(held);
    // Of two links the first could move: it does not, as the second is refused.
    let mut new = world.with(1, "g3", backend);
    new.links[2].device = world.with(2, "gX", backend).links[2].device.clone();
    let received = world.received(1)?;
    let (_, exchanged) = exchange(&world, &mut stream, &new)?;
    let told = exchanged.expect_err("the second is refused").to_string();
    assert!(told.contains("gX") && told.contains("it runs on as it was"), "{told}");
    for _ in 0..DATAGRAMS {
        stream.pass()?;
    }
    // A device that is opened anew counts from zero.
    assert!(world.received(1)? >= received, "link 1 was not opened anew");
    assert_eq!(world.gateway.status()?.links[1].device, "g1");
    Ok(())
}

/// Queues are dealt anew to two workers and to one by turns, with no datagram on its way. Workers
/// look at their links meanwhile, and find some of them without a device: routes and neighbours
/// stay.
fn queues_dealt_anew_lose_nothing(backend: Backend) -> Result<(), Failed> {
    let mut world = World::with_workers(backend, 2)?;
    let mut stream = world.sockets()?;
    for deal in 0..DEALS {
        let mut setup = world.setup.clone();
        setup.links[1].queues = Some(1 + (deal + 1) % 2);
        world.gateway.exchange(&world.setup, &setup)?;
        world.setup = setup;
        for _ in 0..DATAGRAMS {
            stream.pass()?;
        }
        assert!(world.gateway.status()?.links[1].up, "deal {deal}");
    }
    Ok(())
}

fn main() {
    let missing = Needs::new().namespaces().missing();
    let kinds = [("packet_socket", Backend::PacketSocket), ("xdp", Backend::Xdp)];
    let trial = |name: String, test: Box<dyn FnOnce() -> Result<(), Failed> + Send>| match &missing
    {
        None => Trial::test(name, test),
        Some(missing) => {
            Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = kinds.into_iter().flat_map(|(name, backend)| {
        let refused = |workers| move || a_refused_device_loses_nothing(backend, workers);
        [
            trial(
                format!("{name}::a_slow_device_delays_nobody"),
                Box::new(move || a_slow_device_delays_nobody(backend)),
            ),
            trial(format!("{name}::a_refused_device_loses_nothing"), Box::new(refused(1))),
            trial(format!("{name}::a_refused_device_of_two_workers"), Box::new(refused(2))),
            trial(
                format!("{name}::queues_dealt_anew_lose_nothing"),
                Box::new(move || queues_dealt_anew_lose_nothing(backend)),
            ),
        ]
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
