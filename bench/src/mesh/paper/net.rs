//! Networks of nodes on links of 100 Mbit/s, which forward by IP and by label over the same cables.

use gatewright_config::LinkShape;
use gatewright_lab::DelayLine;
use gatewright_lsr::{MeshRouter, MeshSetup};
use gatewright_mesh::{MeshRouting, MeshTrust, Profile};
use gatewright_part::EventSink;
use gatewright_testbed::{Namespace, TestInterface, Veth, wait_until};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long neighbours, paths and answers may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two round trips.
const PAUSE: Duration = Duration::from_millis(2);
/// The queue of a link: 5 ms of 100 Mbit/s.
const SHAPE: [&str; 7] = ["tbf", "rate", "100mbit", "burst", "16kb", "limit", "64kb"];
/// The slow link's latency each way, in microseconds.
const SLOW_US: u32 = 150;

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
pub(super) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// What cables are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Medium {
    /// 100 Mbit/s in each direction of each cable.
    Switch,
    /// 100 Mbit/s for all directions of all cables together.
    Hub,
    /// Unlimited; the second cable has a latency.
    Slow,
}

/// How packets are forwarded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// By the kernel, along the cables in their order.
    Ip,
    /// By labels.
    Label,
}

/// Nodes with their cables.
pub(super) struct PaperNet {
    nodes: Vec<Namespace>,
    pairs: Vec<(usize, usize)>,
    routers: Vec<Option<MeshRouter>>,
    starts: u64,
    _hub: Option<Namespace>,
    _slow: Vec<DelayLine>,
}

/// The interface of a node towards another one.
fn towards(other: usize) -> String {
    format!("to{other}")
}

fn node(nodes: &[Namespace], number: usize) -> Result<&Namespace, String> {
    nodes.get(number).ok_or_else(|| "no such node".to_owned())
}

impl PaperNet {
    /// Four nodes in a line (the paper's Figure 4).
    pub(super) fn line(medium: Medium) -> Result<Self, String> {
        let this = Self::new(vec![(0, 1), (1, 2), (2, 3)], medium)?;
        for (host, node) in this.nodes.iter().enumerate() {
            for net in 0..this.pairs.len() {
                let via = match net {
                    net if net > host => format!("10.97.{host}.2"),
                    net if net + 1 < host => format!("10.97.{}.1", host - 1),
                    _ => continue,
                };
                node.add_route(&format!("10.97.{net}.0/24"), &via).map_err(text)?;
            }
        }
        Ok(this)
    }

    /// A (0) and D (3) with two routes, by B (1) and by C (2) (the paper's Figure 5).
    pub(super) fn square(medium: Medium) -> Result<Self, String> {
        Self::new(vec![(0, 1), (1, 3), (0, 2), (2, 3)], medium)
    }

    fn new(pairs: Vec<(usize, usize)>, medium: Medium) -> Result<Self, String> {
        let nodes: Vec<_> =
            (0..4).map(|_| Namespace::new()).collect::<Result<_, _>>().map_err(text)?;
        for node in &nodes {
            node.ip(&["link", "set", "lo", "up"]).map_err(text)?;
            for (key, value) in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
            ] {
                node.sysctl(key, value).map_err(text)?;
            }
        }
        let hub = (medium == Medium::Hub).then(Hub::new).transpose()?;
        let mut slow = Vec::new();
        for (number, &(a, b)) in pairs.iter().enumerate() {
            let (left, right) = (node(&nodes, a)?, node(&nodes, b)?);
            let names = (towards(b), towards(a));
            let pair = if let Some(hub) = &hub {
                hub.cable((left, &names.0), (right, &names.1), number)?
            } else if medium == Medium::Slow && number == 1 {
                let shape = LinkShape {
                    capacity_mbps: 0.0,
                    latency_us: SLOW_US,
                    jitter_us: 0,
                    loss_pct: 0.0,
                };
                let (line, ends) = DelayLine::lay((left, &names.0), (right, &names.1), shape, 1)?;
                slow.push(line);
                ends
            } else {
                let cable = Veth::with_queues(left, &names.0, right, &names.1, 1).map_err(text)?;
                [cable.a, cable.b]
            };
            for (at, end) in (1..).zip(&pair) {
                prepare(end, &format!("10.97.{number}.{at}/24"))?;
                if medium == Medium::Switch {
                    let shape = ["qdisc", "add", "dev", end.name(), "root"];
                    let shape = end.namespace().command("tc").args(shape).args(SHAPE);
                    shape.run().map_err(text)?;
                }
            }
        }
        let routers = nodes.iter().map(|_| None).collect();
        let hub = hub.map(|hub| hub.namespace);
        let mut this = Self { nodes, pairs, routers, starts: 0, _hub: hub, _slow: slow };
        for number in 0..this.nodes.len() {
            this.start(number)?;
        }
        this.wait_for_neighbours()?;
        Ok(this)
    }

    fn start(&mut self, number: usize) -> Result<(), String> {
        let own = node(&self.nodes, number)?;
        let ends = self.pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let links = ends.filter(|(own, _)| *own == number).map(|(_, other)| towards(other));
        let setup = MeshSetup {
            interface: "mesh0".to_owned(),
            links: links.collect(),
            ports: Vec::new(),
            tunnels: Vec::new(),
            profile: Profile::Default,
            routing: MeshRouting::OnDemand,
            trust: MeshTrust::Open,
        };
        self.starts += 1;
        let seed = self.starts;
        let router = own.run(|| MeshRouter::start(&setup, seed, EventSink::default()));
        let router = router.map_err(text)?.map_err(text)?;
        let mesh = TestInterface::existing(own, "mesh0");
        mesh.add_address(&format!("10.99.0.{}/24", number + 1)).map_err(text)?;
        without_super_frames(&mesh)?;
        if let Some(place) = self.routers.get_mut(number) {
            *place = Some(router);
        }
        Ok(())
    }

    /// Starts a node anew: it and its neighbours know no path any more.
    pub(super) fn restart(&mut self, number: usize) -> Result<(), String> {
        drop(self.routers.get_mut(number).and_then(Option::take));
        self.start(number)?;
        self.wait_for_neighbours()
    }

    fn wait_for_neighbours(&self) -> Result<(), String> {
        let heard = |router: &MeshRouter| {
            let all = |state: gatewright_lsr::MeshState| {
                // The last of the links is the mesh interface's peer.
                state.neighbours.iter().filter(|near| near.up).count() + 1 == state.links.len()
            };
            router.state().is_ok_and(all)
        };
        let all = || self.routers.iter().flatten().all(heard);
        if wait_until(LIMIT, all) { Ok(()) } else { Err("neighbours are not heard".to_owned()) }
    }

    /// Empties the neighbour caches of all hosts.
    pub(super) fn forget_neighbours(&self) -> Result<(), String> {
        for node in &self.nodes {
            node.ip(&["neigh", "flush", "all"]).map_err(text)?;
        }
        Ok(())
    }

    /// Sends until each end has two paths to the other one, over which it spreads flows.
    pub(super) fn settle(&self, (from, to): (usize, usize)) -> Result<(), String> {
        let spreads = |number: usize| {
            let state = self.routers.get(number).and_then(Option::as_ref)?.state().ok()?;
            let paths = state.destinations.into_iter().flat_map(|to| to.paths);
            let bulk = paths.filter(|path| path.carries && path.classes.contains(&2));
            Some(bulk.count() >= 2)
        };
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            self.round_trip(Way::Label, (from, to), 0, 64)?;
            if [from, to].into_iter().all(|number| spreads(number).unwrap_or(false)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("flows are not spread over two paths".to_owned())
    }

    fn address(&self, way: Way, number: usize) -> String {
        match way {
            Way::Label => format!("10.99.0.{}", number + 1),
            // The last node of a line.
            Way::Ip => format!("10.97.{}.2", self.pairs.len() - 1),
        }
    }

    /// Microseconds of one round trip of a datagram.
    pub(super) fn round_trip(
        &self,
        way: Way,
        ends: (usize, usize),
        tos: i32,
        len: usize,
    ) -> Result<f64, String> {
        let samples = self.round_trips(way, ends, tos, (len, 1))?;
        samples.first().copied().ok_or_else(|| "no answer".to_owned())
    }

    /// Microseconds of round trips of datagrams of so many octets with their headers; those that are lost
    /// are left out, but all may not be.
    pub(super) fn round_trips(
        &self,
        way: Way,
        (from, to): (usize, usize),
        tos: i32,
        (len, count): (usize, u32),
    ) -> Result<Vec<f64>, String> {
        const HEADERS: usize = 20 + 8;
        let at = format!("{}:5202", self.address(way, to));
        let bind = |of: usize, at: String| -> Result<UdpSocket, String> {
            let socket = node(&self.nodes, of)?.run(|| UdpSocket::bind(at)).map_err(text)?;
            let socket = socket.map_err(text)?;
            setsockopt(&socket, sockopt::Ipv4Tos, &tos).map_err(text)?;
            socket.set_read_timeout(Some(Duration::from_secs(1))).map_err(text)?;
            Ok(socket)
        };
        let (far, near) = (bind(to, at.clone())?, bind(from, "0.0.0.0:0".to_owned())?);
        near.connect(&at).map_err(text)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let echo = std::thread::spawn(move || {
            let mut octets = [0; 2048];
            while !told.load(Ordering::Relaxed) {
                if let Ok((len, from)) = far.recv_from(&mut octets) {
                    let _lost = far.send_to(octets.get(..len).unwrap_or_default(), from);
                }
            }
        });
        let mut samples = Vec::new();
        let mut octets = vec![0; len - HEADERS];
        for number in 0..count {
            for (to, from) in octets.iter_mut().zip(number.to_be_bytes()) {
                *to = from;
            }
            let sent = Instant::now();
            near.send(&octets).map_err(text)?;
            let mut answer = [0; 2048];
            while near.recv(&mut answer).is_ok() {
                if answer.first_chunk() == Some(&number.to_be_bytes()) {
                    samples.push(sent.elapsed().as_secs_f64() * 1e6);
                    break;
                }
            }
            if count > 1 {
                std::thread::sleep(PAUSE);
            }
        }
        stop.store(true, Ordering::Relaxed);
        // It sees that within its socket's time.
        let _lost = near.send(&octets);
        echo.join().map_err(|_| "the echo panicked".to_owned())?;
        if samples.is_empty() { Err("no datagram was answered".to_owned()) } else { Ok(samples) }
    }

    /// Mbit/s of TCP streams together, once all have begun.
    pub(super) fn streams(
        &self,
        way: Way,
        ends: (usize, usize),
        tos: i32,
        (count, window): (usize, Duration),
    ) -> Result<f64, String> {
        let all: Vec<_> =
            (0..count).map(|_| self.stream(way, ends, tos)).collect::<Result<_, _>>()?;
        std::thread::sleep(window / 5);
        let octets = || all.iter().map(GreedyStream::octets).sum::<u64>();
        let (began, before) = (Instant::now(), octets());
        std::thread::sleep(window);
        let (time, more) = (began.elapsed(), octets() - before);
        all.into_iter().try_for_each(GreedyStream::end)?;
        let more = u32::try_from(more / 1_000).unwrap_or(u32::MAX);
        Ok(f64::from(more) * 8.0 / 1e3 / time.as_secs_f64())
    }

    /// A greedy stream by labels.
    pub(super) fn greedy(&self, ends: (usize, usize), tos: i32) -> Result<GreedyStream, String> {
        let stream = self.stream(Way::Label, ends, tos)?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(stream)
    }

    fn stream(
        &self,
        way: Way,
        (from, to): (usize, usize),
        tos: i32,
    ) -> Result<GreedyStream, String> {
        let at = format!("{}:0", self.address(way, to));
        let listener = node(&self.nodes, to)?.run(|| TcpListener::bind(at)).map_err(text)?;
        let listener = listener.map_err(text)?;
        setsockopt(&listener, sockopt::Ipv4Tos, &tos).map_err(text)?;
        let at: SocketAddr = listener.local_addr().map_err(text)?;
        let connect = || TcpStream::connect_timeout(&at, LIMIT);
        let stream = node(&self.nodes, from)?.run(connect).map_err(text)?.map_err(text)?;
        setsockopt(&stream.as_fd(), sockopt::Ipv4Tos, &tos).map_err(text)?;
        GreedyStream::start(stream, listener)
    }
}

/// A stream whose sender always has something to send.
pub(super) struct GreedyStream {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: [JoinHandle<Result<(), String>>; 2],
}

impl GreedyStream {
    fn start(mut stream: TcpStream, listener: TcpListener) -> Result<Self, String> {
        let (stop, received) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (told, count) = (Arc::clone(&stop), Arc::clone(&received));
        stream.set_write_timeout(Some(LIMIT)).map_err(text)?;
        let send = std::thread::spawn(move || {
            let data = vec![0x5a; 1 << 16];
            while !told.load(Ordering::Relaxed) {
                stream.write_all(&data).map_err(text)?;
            }
            Ok(())
        });
        let receive = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().map_err(text)?;
            stream.set_read_timeout(Some(LIMIT)).map_err(text)?;
            let mut buffer = vec![0; 1 << 16];
            loop {
                match stream.read(&mut buffer).map_err(text)? {
                    0 => return Ok(()),
                    more => count.fetch_add(u64::try_from(more).unwrap_or(0), Ordering::Relaxed),
                };
            }
        });
        Ok(Self { stop, received, threads: [send, receive] })
    }

    fn octets(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends it, and waits until all has arrived.
    pub(super) fn end(self) -> Result<(), String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| "a stream's thread panicked".to_owned())?
        })
    }
}

/// An end of a cable with its address, whose device cuts no super-frames.
fn prepare(end: &TestInterface, address: &str) -> Result<(), String> {
    end.disable_ipv6().map_err(text)?;
    end.add_address(address).map_err(text)?;
    without_super_frames(end)?;
    end.up().map_err(text)
}

fn without_super_frames(end: &TestInterface) -> Result<(), String> {
    let set = ["-K", end.name(), "tso", "off", "gso", "off"];
    end.namespace().command("ethtool").args(set).run().map_err(text).map(drop)
}

/// A medium that all cables share: each frame passes one interface of 100 Mbit/s, and leaves it by the
/// cable of its sender.
struct Hub {
    namespace: Namespace,
}

impl Hub {
    fn new() -> Result<Self, String> {
        let namespace = Namespace::new().map_err(text)?;
        let medium = Veth::pair(&namespace, "in", &namespace, "out").map_err(text)?;
        for end in [&medium.a, &medium.b] {
            end.disable_ipv6().map_err(text)?;
            without_super_frames(end)?;
        }
        medium.up().map_err(text)?;
        let this = Self { namespace };
        this.tc(&[&["qdisc", "add", "dev", "in", "root"][..], &SHAPE].concat())?;
        this.tc(&["qdisc", "add", "dev", "out", "ingress"])?;
        Ok(this)
    }

    fn tc(&self, arguments: &[&str]) -> Result<(), String> {
        self.namespace.command("tc").args(arguments).run().map_err(text).map(drop)
    }

    fn cable(
        &self,
        (left, left_name): (&Namespace, &str),
        (right, right_name): (&Namespace, &str),
        number: usize,
    ) -> Result<[TestInterface; 2], String> {
        let names = [format!("l{number}"), format!("r{number}")];
        let [near, far] = &names;
        let hub = &self.namespace;
        let a = Veth::pair(left, left_name, hub, near).map_err(text)?;
        let b = Veth::pair(right, right_name, hub, far).map_err(text)?;
        for (cable, own, other) in [(&a, near, far), (&b, far, near)] {
            cable.b.disable_ipv6().map_err(text)?;
            cable.up().map_err(text)?;
            self.tc(&["qdisc", "add", "dev", own, "ingress"])?;
            let filter =
                |dev: &str| ["filter", "add", "dev", dev, "parent", "ffff:"].map(str::to_owned);
            let all = ["protocol", "all", "u32", "match", "u32", "0", "0"];
            let to = |dev: &str| {
                ["action", "mirred", "egress", "redirect", "dev", dev].map(str::to_owned)
            };
            let filter_all = [&filter(own)[..], &all.map(str::to_owned), &to("in")].concat();
            self.tc(&filter_all.iter().map(String::as_str).collect::<Vec<_>>())?;
            let sender = cable.a.mac().map_err(text)?;
            let of = ["protocol", "all", "u32", "match", "ether", "src", &sender];
            let back = [&filter("out")[..], &of.map(str::to_owned), &to(other)].concat();
            self.tc(&back.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok([a.a, b.a])
    }
}
