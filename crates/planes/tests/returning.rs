//! Transfers of kernels through a link that goes and comes back: they wait and go on.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_link::Backend;
use gatewright_planes::{Planes, Setup};
use gatewright_stack::Route;
use gatewright_testbed::{Namespace, Needs, TestbedError, Veth, wait_until};
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

/// How long anything may take: TCP waits longer after each loss.
const WITHIN: Duration = Duration::from_mins(1);

const SOUTH: Ipv4Addr = Ipv4Addr::new(10, 10, 2, 2);
const PORT: u16 = 7100;

/// How frames are exchanged, and by how many queues, each with a worker of its own.
#[derive(Clone, Copy)]
struct Kind {
    backend: Backend,
    queues: usize,
}

/// Two hosts with a gateway between them.
struct World {
    north: Namespace,
    south: Namespace,
    middle: Namespace,
    queues: usize,
    gateway: Planes,
}

impl World {
    fn new(Kind { backend, queues }: Kind) -> Result<Self, Failed> {
        let [north, middle, south] = [(); 3].map(|()| Namespace::new().unwrap());
        let lan = Veth::with_queues(&north, "n0", &middle, "g0", queues)?;
        lan.a.add_address("10.10.1.2/24")?;
        lan.up()?;
        north.add_route("default", "10.10.1.1")?;
        plug(&middle, &south, queues)?;
        let gateway = middle.run(|| {
            let mut setup = Setup::new(7);
            setup.workers = queues;
            setup.link("lan", "g0").backend(backend).address(Ipv4Addr::new(10, 10, 1, 1), 24);
            setup.link("wan", "g1").backend(backend).address(Ipv4Addr::new(10, 10, 2, 1), 24);
            for link in &mut setup.links {
                link.queues = Some(queues);
            }
            Planes::open(&setup).unwrap()
        })?;
        Ok(Self { north, south, middle, queues, gateway })
    }

    /// Whether the gateway says that `wan` is up by all its queues, and has its route; nothing if a
    /// worker of a busy machine does not get to answer.
    fn wan(&self) -> Option<(bool, bool)> {
        let status = self.gateway.status().ok()?;
        let of = |worker: usize| status.links[1].queues.iter().any(|one| one.worker == worker);
        let received = (0..self.queues).all(of);
        let routed = self.gateway.change_host(|host| {
            let is_wan = |route| matches!(route, Route::Connected(link) if link.index() == 1);
            host.routes().any(|(_, route)| is_wan(route))
        });
        Some((status.links[1].up && received, routed))
    }

    fn waits_for(&self, wan: (bool, bool)) -> Result<(), Failed> {
        if wait_until(WITHIN, || self.wan() == Some(wan)) {
            return Ok(());
        }
        Err(format!("not {wan:?}: {:#?}", self.gateway.status()).into())
    }
}

/// Lays the cable to `south`, which sends everything by it.
fn plug(middle: &Namespace, south: &Namespace, queues: usize) -> Result<(), TestbedError> {
    let wan = Veth::with_queues(middle, "g1", south, "s0", queues)?;
    wan.b.add_address("10.10.2.2/24")?;
    wan.up()?;
    south.add_route("default", "10.10.2.1")
}

/// What is on its way while the cable is pulled.
#[derive(Default)]
struct Transfer {
    /// Octets of the stream that came, all of them right.
    stream: AtomicU64,
    /// Datagrams that came.
    datagrams: AtomicU64,
    stop: AtomicBool,
}

/// The octet at a place of the stream.
fn octet(place: u64) -> u8 {
    // A prime: no block that is lost or repeated goes unnoticed.
    u8::try_from(place % 251).unwrap_or_default()
}

/// A process that was stopped and goes on finds its call broken off where that had a limit.
fn is_for_a_moment(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Transfer {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn reads_stream(&self, mut stream: &TcpStream) {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut octets = [0; 16 * 1024];
        while !self.is_over() {
            let read = match stream.read(&mut octets) {
                Ok(read) => read,
                Err(error) if is_for_a_moment(&error) => continue,
                Err(error) => panic!("the stream broke: {error}"),
            };
            let place = self.stream.load(Ordering::Relaxed);
            for (place, found) in (place..).zip(&octets[..read]) {
                assert_eq!(*found, octet(place), "octet {place} of the stream");
            }
            self.stream.fetch_add(read as u64, Ordering::Release);
        }
    }

    fn writes_stream(&self, mut stream: &TcpStream) {
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut place = 0;
        while !self.is_over() {
            let octets: Vec<u8> = (place..place + 4096).map(octet).collect();
            match stream.write(&octets) {
                Ok(written) => place += written as u64,
                Err(error) if is_for_a_moment(&error) => {}
                Err(error) => panic!("the stream broke: {error}"),
            }
            // A load that leaves the machine to others, too.
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn reads_datagrams(&self, socket: &UdpSocket) {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (mut last, mut octets) = (None, [0; 8]);
        while !self.is_over() {
            if socket.recv(&mut octets).is_ok() {
                let number = u64::from_be_bytes(octets);
                assert!(last < Some(number), "{number} came after {last:?}");
                last = Some(number);
                self.datagrams.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn writes_datagrams(&self, socket: &UdpSocket) {
        for number in 0_u64.. {
            if self.is_over() {
                return;
            }
            // Without a cable somebody on the way says that nobody is there; the next may arrive.
            let _lost = socket.send_to(&number.to_be_bytes(), (SOUTH, PORT));
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until more of both has come.
    fn goes_on(&self, readers: &[ScopedJoinHandle<'_, ()>]) -> Result<(), Failed> {
        let came = || (self.stream.load(Ordering::Acquire), self.datagrams.load(Ordering::Acquire));
        let before = came();
        let more = || {
            let now = came();
            let broken = readers.iter().any(ScopedJoinHandle::is_finished);
            broken || (now.0 > before.0 + 100_000 && now.1 > before.1 + 20)
        };
        if wait_until(WITHIN, more) && !readers.iter().any(ScopedJoinHandle::is_finished) {
            return Ok(());
        }
        Err(format!("from {before:?} to {:?}", came()).into())
    }
}

fn transfers_go_on(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind)?;
    let (listener, reader) = world.south.run(|| {
        let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
        (listener, UdpSocket::bind(("0.0.0.0", PORT)).unwrap())
    })?;
    let (stream, writer) = world.north.run(|| {
        let stream = TcpStream::connect_timeout(&(SOUTH, PORT).into(), WITHIN).unwrap();
        (stream, UdpSocket::bind(("0.0.0.0", 0)).unwrap())
    })?;
    // Both ends outlive the threads: an end that closed first would reset the other one's write.
    let (accepted, _) = listener.accept()?;
    let transfer = Transfer::default();
    thread::scope(|scope| {
        let threads = [
            scope.spawn(|| transfer.reads_stream(&accepted)),
            scope.spawn(|| transfer.writes_stream(&stream)),
            scope.spawn(|| transfer.reads_datagrams(&reader)),
            scope.spawn(|| transfer.writes_datagrams(&writer)),
        ];
        let done = pulls_and_plugs(&world, || transfer.goes_on(&threads));
        transfer.stop.store(true, Ordering::Release);
        done
    })
}

/// Takes the far end of a cable down and up, then takes the cable away and lays another.
fn pulls_and_plugs(world: &World, goes_on: impl Fn() -> Result<(), Failed>) -> Result<(), Failed> {
    goes_on()?;
    world.south.ip(&["link", "set", "s0", "down"])?;
    world.waits_for((false, false))?;
    world.south.ip(&["link", "set", "s0", "up"])?;
    world.south.ip(&["route", "replace", "default", "via", "10.10.2.1"])?;
    world.waits_for((true, true))?;
    goes_on()?;
    world.middle.ip(&["link", "delete", "g1"])?;
    world.waits_for((false, false))?;
    plug(&world.middle, &world.south, world.queues)?;
    world.waits_for((true, true))?;
    goes_on()
}

fn main() {
    let missing = Needs::new().namespaces().missing();
    let kinds = [
        ("packet_socket", Backend::PacketSocket, 1),
        ("xdp", Backend::Xdp, 1),
        ("packet_socket_two_queues", Backend::PacketSocket, 2),
        ("xdp_two_queues", Backend::Xdp, 2),
    ];
    let trials = kinds.map(|(name, backend, queues)| {
        let kind = Kind { backend, queues };
        let name = format!("{name}::transfers_go_on_when_a_link_is_back");
        match &missing {
            None => Trial::test(name, move || transfers_go_on(kind)),
            Some(missing) => {
                Trial::test(format!("{name} (needs {missing})"), || Ok(())).with_ignored_flag(true)
            }
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit();
}
