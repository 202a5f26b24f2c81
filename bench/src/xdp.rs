//! `bench xdp`: packets forwarded in the driver, beside the kernel's own forwarding.
//!
//! Generator, gateway and receiver are on one processor, one after the other for each frame, so
//! nothing is lost and the rate is the time of all three. The floor is the generator and a receiver
//! alone; what a gateway costs is the difference.

use crate::gateway::world::pin;
use crate::route::{Measured, inside, random_prefix};
use bench::{Bench, Contestant, Numbers, Options, Relation};
use gatewright_tables::{HopIndex, Prefix, RoutesWriter};
use gatewright_testbed::{Namespace, Needs, TestbedError, Veth};
use gatewright_wire::{
    EtherType, IpProtocol, MacAddress, ethernet::EthernetFields, ipv4::Ipv4Fields,
    ipv6::Ipv6Fields, udp::UdpFields,
};
use gatewright_xdp::program::{AttachedProgram, BpfProgram, Hook, Instruction, ProgramType};
use gatewright_xdp::{
    Forwarding, ForwardingError, GROUPS_MAX, Generator, Hop, HopNeighbour, LinkPort, Receiver,
    TableSizes,
};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

/// Processor of generator, gateway and receiver.
const CPU: usize = 1;
/// Frames of a round: some tenths of a second, of which 20 ms are the call.
const FRAMES: u32 = 3_000_000;
/// Frames before, so that caches, pages and neighbours are as in the middle of a day.
const FRAMES_BEFORE: u32 = 200_000;
/// Windows of one measurement at most.
const WINDOWS_MAX: u32 = 4;
/// Destinations that take turns.
const DESTINATIONS: usize = 1 << 20;
const ROUTES: usize = 1_000_000;
const ROUTES_6: usize = 100_000;
const MTU: u32 = 1500;
const OWN_MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 1, 1]), MacAddress([2, 0, 0, 0, 2, 1])];
const FAR_MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 2, 2])];
const NEXT: Ipv4Addr = Ipv4Addr::new(10, 71, 2, 2);
const NEXT_6: &str = "fd71:2::2";
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 71, 1, 2);
const SENDER_6: Ipv6Addr = Ipv6Addr::new(0xfd71, 1, 0, 0, 0, 0, 0, 2);

/// Sender, gateway and receiver.
struct Hosts {
    sender: Namespace,
    gateway: Namespace,
    /// Sender to gateway, gateway to receiver.
    cables: [Veth; 2],
    receiver: Receiver,
    /// Windows in which frames were lost, and that were measured again.
    lossy_windows: Cell<u32>,
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn text(error: TestbedError) -> String {
    error.to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "stands where `map_err` wants it")]
fn refused(error: ForwardingError) -> String {
    error.to_string()
}

impl Hosts {
    fn new() -> Result<Self, String> {
        let hosts = [Namespace::new(), Namespace::new(), Namespace::new()];
        let [sender, gateway, far] = hosts.map(|host| host.map_err(text));
        let (sender, gateway, far) = (sender?, gateway?, far?);
        let lan = Veth::pair(&sender, "s0", &gateway, "g0").map_err(text)?;
        let wan = Veth::pair(&gateway, "g1", &far, "r0").map_err(text)?;
        let ends = [
            (&lan.a, FAR_MAC[0], ["10.71.1.2/24", "fd71:1::2/64"]),
            (&lan.b, OWN_MAC[0], ["10.71.1.1/24", "fd71:1::1/64"]),
            (&wan.a, OWN_MAC[1], ["10.71.2.1/24", "fd71:2::1/64"]),
            (&wan.b, FAR_MAC[1], ["10.71.2.2/24", "fd71:2::2/64"]),
        ];
        for (end, mac, addresses) in ends {
            end.set_mac(&mac.to_string()).map_err(text)?;
            for address in addresses {
                end.add_address(address).map_err(text)?;
            }
        }
        lan.up().map_err(text)?;
        wan.up().map_err(text)?;
        for (name, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.g0.rp_filter", "0"),
        ] {
            gateway.sysctl(name, value).map_err(text)?;
        }
        let mac = FAR_MAC[1].to_string();
        for next in [NEXT.to_string(), NEXT_6.to_owned()] {
            let add = ["neigh", "replace", &next, "lladdr", &mac, "dev", "g1", "nud", "permanent"];
            gateway.ip(&add).map_err(text)?;
        }
        let index = wan.b.index().map_err(text)?;
        let receiver = far.run(|| Receiver::attach(index)).map_err(text)?.map_err(refused)?;
        let lossy_windows = Cell::new(0);
        Ok(Self { sender, gateway, cables: [lan, wan], receiver, lossy_windows })
    }

    /// The gateway's ends of the two cables.
    fn own(&self) -> Result<[u32; 2], String> {
        let [lan, wan] = &self.cables;
        Ok([lan.b.index().map_err(text)?, wan.a.index().map_err(text)?])
    }

    /// Attaches a program to the sender's cable at the gateway.
    fn attach(&self, program: &BpfProgram) -> Result<AttachedProgram, String> {
        let [near, _] = self.own()?;
        let attached = self.gateway.run(|| program.attach(near, Hook::XdpNative)).map_err(text)?;
        attached.map_err(|error| format!("cannot attach to the gateway: {error}"))
    }

    /// Frames a second, in millions, that reach the receiver; asserts that all do. A window in which
    /// the machine loses frames is measured again, and counted.
    fn rate(&self, generator: &Generator, receiver: &Receiver, frames: u32) -> Result<f64, String> {
        let send = |frames| {
            let sent = self.sender.run(|| {
                pin(CPU)?;
                generator.send(frames).map_err(|error| format!("cannot send: {error}"))
            });
            sent.map_err(text)?
        };
        let mut arrived = 0;
        for _ in 0..WINDOWS_MAX {
            send(FRAMES_BEFORE)?;
            receiver.take();
            send(frames)?;
            let received = receiver.take();
            arrived = received.frames;
            if arrived >= u64::from(frames) * 99 / 100 {
                let count = u32::try_from(arrived).unwrap_or(u32::MAX);
                return Ok(f64::from(count) / received.time.as_secs_f64() / 1e6);
            }
            self.lossy_windows.set(self.lossy_windows.get() + 1);
        }
        Err(format!("{arrived} of {frames} frames arrived, in the last of {WINDOWS_MAX} windows"))
    }
}

/// A program that hands every frame to the kernel's stack: what makes a virtual cable take frames
/// from the generator at this end.
fn pass() -> Result<BpfProgram, String> {
    const PASS: [Instruction; 2] = [Instruction(0xb7, 0, 0, 2), Instruction(0x95, 0, 0, 0)];
    BpfProgram::load(ProgramType::Xdp, "pass", &PASS, 0).map_err(|error| error.to_string())
}

/// Routes, and destinations in them.
struct Load<A: Measured> {
    prefixes: Vec<Prefix<A>>,
    destinations: Vec<IpAddr>,
}

/// What each family does in its own way.
trait Forwarded: Measured + Into<IpAddr> {
    /// Where all destinations of one route lie.
    const ONE: &'static str;
    const NEXT: &'static str;
    /// Whether routers forward to it, and the test hosts have no use for it.
    fn is_forwarded(self) -> bool;
    /// A frame of 64 octets and its check sequence.
    fn frame() -> Vec<u8>;
}

impl Forwarded for Ipv4Addr {
    const ONE: &'static str = "198.18.0.0/15";
    const NEXT: &'static str = "10.71.2.2";

    fn is_forwarded(self) -> bool {
        let [first, second, ..] = self.octets();
        !matches!(first, 0 | 10 | 127 | 224..) && (first, second) != (169, 254)
    }

    fn frame() -> Vec<u8> {
        let udp = udp(8);
        let ip = Ipv4Fields::new(IpProtocol::UDP, SENDER, Self::UNSPECIFIED, 50);
        frame(EtherType::IPV4, &[&ip.emit_with_checksum()[..], &udp].concat())
    }
}

impl Forwarded for Ipv6Addr {
    const ONE: &'static str = "2001:db8::/32";
    const NEXT: &'static str = NEXT_6;

    fn is_forwarded(self) -> bool {
        true
    }

    fn frame() -> Vec<u8> {
        let udp = udp(8);
        let ip = Ipv6Fields::new(IpProtocol::UDP, SENDER_6, Self::UNSPECIFIED, 30);
        frame(EtherType::IPV6, &[&ip.emit()[..], &udp].concat())
    }
}

/// A UDP header, whose checksum says that there is none, and some payload.
fn udp(octets: u16) -> Vec<u8> {
    let head = UdpFields { source_port: 7, destination_port: 9, length: 8 + octets, checksum: 0 };
    let mut octets = head.emit().to_vec();
    octets.resize(30, 0);
    octets
}

fn frame(kind: EtherType, packet: &[u8]) -> Vec<u8> {
    let (destination, source) = (OWN_MAC[0], FAR_MAC[0]);
    let head = EthernetFields { destination, source, ether_type: kind }.emit();
    let mut frame = [&head[..], packet].concat();
    frame.resize(frame.len().max(64), 0);
    frame
}

impl<A: Forwarded> Load<A> {
    /// One route, or so many.
    fn new(count: usize) -> Result<Self, String> {
        let mut numbers = Numbers(7);
        let mut prefixes = BTreeSet::new();
        if count == 1 {
            prefixes.insert(A::ONE.parse().map_err(|_| "a prefix is wrong".to_owned())?);
        }
        while prefixes.len() < count {
            let new = random_prefix::<A>(&mut numbers);
            prefixes.extend(new.filter(|prefix| prefix.address().is_forwarded()));
        }
        let prefixes: Vec<_> = prefixes.into_iter().collect();
        let destination = |_| loop {
            let address = inside(&prefixes, &mut numbers);
            if address.is_forwarded() {
                break address.into();
            }
        };
        let destinations = (0..DESTINATIONS).map(destination).collect();
        Ok(Self { prefixes, destinations })
    }

    /// Gives the routes to the gateway's kernel; how long that took, in seconds.
    fn to_kernel(&self, hosts: &Hosts, verb: &str) -> Result<f64, String> {
        let mut batch = String::new();
        for prefix in &self.prefixes {
            let _ = writeln!(batch, "route {verb} {prefix} via {} dev g1", A::NEXT);
        }
        let mut file = tempfile().map_err(|error| format!("cannot keep a batch: {error}"))?;
        file.1.write_all(batch.as_bytes()).map_err(|error| error.to_string())?;
        let family = if A::NEXT.contains(':') { "-6" } else { "-4" };
        let started = Instant::now();
        let done = hosts.gateway.ip(&[family, "-batch", &file.0]).map_err(text);
        let _ = std::fs::remove_file(&file.0);
        done.map(|_| started.elapsed().as_secs_f64())
    }
}

/// A file of this process for a batch.
fn tempfile() -> std::io::Result<(String, std::fs::File)> {
    let path = std::env::temp_dir().join(format!("gatewright-bench-{}", std::process::id()));
    Ok((path.display().to_string(), std::fs::File::create(&path)?))
}

/// The driver's tables with a next hop behind the second cable.
fn forwarding(hosts: &Hosts, sizes: TableSizes) -> Result<Forwarding, String> {
    let mut forwarding = Forwarding::new(sizes).map_err(refused)?;
    let neighbour = HopNeighbour::Router(FAR_MAC[1].0);
    let hop = Hop { port: 1, mtu: MTU, source: OWN_MAC[1].0, neighbour };
    forwarding.set_hop(HopIndex(0), Some(&hop)).map_err(refused)?;
    let [_, far] = hosts.own()?;
    let port = hosts.gateway.run(|| forwarding.set_port(1, far)).map_err(text)?;
    port.map_err(refused)?;
    forwarding.set_own([IpAddr::V4(Ipv4Addr::new(10, 71, 1, 1))]);
    Ok(forwarding)
}

/// The names of a family's figures.
struct Keys {
    floor: &'static str,
    kernel: &'static str,
    ours: &'static str,
    vs: &'static str,
    fill: &'static str,
}

const V4_1: Keys = Keys {
    floor: "floor_mpps",
    kernel: "kernel_1_mpps",
    ours: "xdp_1_mpps",
    vs: "xdp_forward_vs_kernel_1",
    fill: "xdp_1_fill_s",
};
const V4_1M: Keys = Keys {
    floor: "floor_1m_mpps",
    kernel: "kernel_1m_mpps",
    ours: "xdp_1m_mpps",
    vs: "xdp_forward_vs_kernel_1m",
    fill: "xdp_1m_fill_s",
};
const V6_1: Keys = Keys {
    floor: "floor6_mpps",
    kernel: "kernel6_1_mpps",
    ours: "xdp6_1_mpps",
    vs: "xdp_forward_vs_kernel6_1",
    fill: "xdp6_1_fill_s",
};
const V6_100K: Keys = Keys {
    floor: "floor6_100k_mpps",
    kernel: "kernel6_100k_mpps",
    ours: "xdp6_100k_mpps",
    vs: "xdp_forward_vs_kernel6_100k",
    fill: "xdp6_100k_fill_s",
};

/// Measures floor, kernel and driver with the same routes and destinations.
fn measure<A: Forwarded>(
    bench: &mut Bench,
    hosts: &Hosts,
    load: &Load<A>,
    ours: &Forwarding,
    keys: &Keys,
) -> Result<(), String> {
    let [near, _] = hosts.own()?;
    let index = hosts.cables[0].a.index().map_err(text)?;
    let generator = Generator::new(index, &A::frame(), &load.destinations).map_err(refused)?;
    let program = ours.program(&LinkPort { index: 0, mac: OWN_MAC[0].0 }).map_err(refused)?;
    let pass = pass()?;
    let frames = bench.options().pick(FRAMES, FRAMES / 3);
    load.to_kernel(hosts, "add")?;
    let behind = |program: &BpfProgram| {
        let _attached = hosts.attach(program)?;
        hosts.rate(&generator, &hosts.receiver, frames)
    };
    let measured = bench.try_interleave(vec![
        Contestant::new(keys.floor, "Mpps", || {
            let attached = hosts.gateway.run(|| Receiver::attach(near)).map_err(text)?;
            hosts.rate(&generator, &attached.map_err(refused)?, frames)
        }),
        Contestant::new(keys.kernel, "Mpps", || behind(&pass)),
        Contestant::new(keys.ours, "Mpps", || behind(&program)),
    ]);
    load.to_kernel(hosts, "del")?;
    measured?;
    bench.ratio(keys.vs, keys.ours, keys.kernel);
    Ok(())
}

fn v4(bench: &mut Bench, hosts: &Hosts, count: usize, keys: &Keys) -> Result<(), String> {
    let sizes = TableSizes {
        hops: 16,
        hop_groups: 1,
        neighbours: 16,
        routes4: 0,
        groups: GROUPS_MAX,
        routes6: 16,
        devices: 0,
    };
    let load = Load::<Ipv4Addr>::new(count)?;
    let mut ours = forwarding(hosts, sizes)?;
    let room = u32::try_from(count + 16).unwrap_or(u32::MAX);
    let mut routes = RoutesWriter::in_memory(room).map_err(|full| full.to_string())?;
    let started = Instant::now();
    for &prefix in &load.prefixes {
        routes.insert(prefix, HopIndex(0)).map_err(|full| full.to_string())?;
        ours.insert4(prefix, HopIndex(0), &routes).map_err(refused)?;
    }
    bench.sample(keys.fill, "s", started.elapsed().as_secs_f64());
    measure(bench, hosts, &load, &ours, keys)
}

fn v6(bench: &mut Bench, hosts: &Hosts, count: usize, keys: &Keys) -> Result<(), String> {
    let room = u32::try_from(count + 16).unwrap_or(u32::MAX);
    let sizes = TableSizes {
        hops: 16,
        hop_groups: 1,
        neighbours: 16,
        routes4: 16,
        groups: 0,
        routes6: room,
        devices: 0,
    };
    let load = Load::<Ipv6Addr>::new(count)?;
    let mut ours = forwarding(hosts, sizes)?;
    let started = Instant::now();
    for &prefix in &load.prefixes {
        let inserted = ours.routes6().insert(prefix, HopIndex(0));
        inserted.map_err(|full| full.to_string())?;
    }
    bench.sample(keys.fill, "s", started.elapsed().as_secs_f64());
    measure(bench, hosts, &load, &ours, keys)
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("xdp", options);
    let promised = [(V4_1.vs, 3.5), (V4_1M.vs, 4.0), (V6_1.vs, 4.0), (V6_100K.vs, 5.0)];
    if let Some(missing) = Needs::new().namespaces().linux(5, 18).missing() {
        for (key, bound) in promised {
            bench.skip(key, Relation::AtLeast, bound, &missing.to_string());
        }
        return Ok(bench);
    }
    let hosts = Hosts::new()?;
    let measured = [
        v4(&mut bench, &hosts, 1, &V4_1),
        v4(&mut bench, &hosts, options.pick(ROUTES, ROUTES / 10), &V4_1M),
        v6(&mut bench, &hosts, 1, &V6_1),
        v6(&mut bench, &hosts, options.pick(ROUTES_6, ROUTES_6 / 10), &V6_100K),
    ];
    for ((key, bound), measured) in promised.into_iter().zip(measured) {
        let promised = (key, Relation::AtLeast, bound);
        if let Err(problem) = measured {
            bench.skip(key, Relation::AtLeast, bound, &problem);
        } else if key == V4_1M.vs {
            bench.promise_in_full(promised, ("1,000,000 routes", "100,000"));
        } else if key == V6_100K.vs {
            bench.promise_in_full(promised, ("100,000 routes", "10,000"));
        } else {
            bench.promise(key, Relation::AtLeast, bound);
        }
    }
    bench.note("generator, gateway and receiver share one processor: a rate is the time of all three, the floor that of generator and receiver");
    if hosts.lossy_windows.get() > 0 {
        let lost = hosts.lossy_windows.get();
        bench.note(format!("{lost} windows in which frames were lost were measured again"));
    }
    bench.note("64 octets, a million destinations by turns, each in one of the routes; a ratio is of rates");
    Ok(bench)
}
