//! Links of several queues, each with a worker that receives by it, between kernels that are not ours.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_link::Backend;
use gatewright_planes::{Planes, QueueStatus, Setup, Status};
use gatewright_stack::{At, Attachment, Place, builtin::Count};
use gatewright_tables::records::{NeighbourKey, NeighbourState};
use gatewright_testbed::{Namespace, Needs, TestInterface, TwoSubnets, Veth, wait_until};
use gatewright_wire::EtherType;
use libtest_mimic::{Arguments, Failed, Trial};
use std::{
    collections::HashMap,
    net::{Ipv4Addr, UdpSocket},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// How long anything may take.
const WITHIN: Duration = Duration::from_secs(30);

/// How often a receiver looks whether it may end.
const LOOK: Duration = Duration::from_millis(100);

/// Where datagrams go.
const SOUTH: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 10, 2, 2), 7000);

/// Flows, the first one's port, datagrams of each, and their octets: those of some are longer than a
/// frame.
const FLOWS: u16 = 24;
const SENDERS: u16 = 20_000;
const NUMBERS: u32 = 400;
const SENT: u64 = FLOWS as u64 * NUMBERS as u64;
const OCTETS: [usize; 3] = [8, 1000, 3000];

/// How the gateway receives.
#[derive(Clone, Copy)]
struct Kind {
    backend: Backend,
    /// Queues of its ends of both cables.
    queues: usize,
    workers: usize,
    /// The same key of both links.
    asked: Option<usize>,
}

/// Two hosts on two subnets with a gateway between them.
struct World {
    hosts: TwoSubnets,
    gateway: Planes,
}

/// What a gateway says of itself; on a busy machine a worker may answer late.
fn status_of(gateway: &Planes) -> Status {
    let mut status = None;
    wait_until(WITHIN, || {
        status = gateway.status().ok();
        status.is_some()
    });
    status.unwrap()
}

/// The workers that have the queues of a link.
fn queues_of(gateway: &Planes, link: usize) -> Vec<(u32, usize)> {
    let status = status_of(gateway);
    let pair = |queue: &QueueStatus| (queue.queue, queue.worker);
    status.links[link].queues.iter().map(pair).collect()
}

impl World {
    fn new(Kind { backend, queues, workers, asked }: Kind) -> Result<Self, Failed> {
        let hosts = TwoSubnets::with_queues(queues)?;
        let gateway = hosts.middle.run(|| {
            let mut setup = Setup::new(7);
            setup.workers = workers;
            setup.link("lan", "g0").backend(backend).address(Ipv4Addr::new(10, 10, 1, 1), 24);
            setup.link("wan", "g1").backend(backend).address(Ipv4Addr::new(10, 10, 2, 1), 24);
            for link in &mut setup.links {
                link.queues = asked;
            }
            Planes::open(&setup).unwrap()
        })?;
        let world = Self { hosts, gateway };
        let there = || world.hosts.are_connected().unwrap();
        // Until all workers know the neighbour, packets to it go by the first.
        let known = || world.knows_south();
        assert!(wait_until(WITHIN, there) && wait_until(WITHIN, known), "{:#?}", world.gateway);
        Ok(world)
    }

    /// Whether the first worker has told the others where the south is.
    fn knows_south(&self) -> bool {
        let key = NeighbourKey { link: 1, address: SOUTH.0.into() };
        let found = self.gateway.change_host(|host| host.tables().neighbours.get(&key));
        found.ok().flatten().is_some_and(|found| found.state == NeighbourState::Reachable)
    }

    fn queues(&self, link: usize) -> Vec<(u32, usize)> {
        queues_of(&self.gateway, link)
    }

    /// Sends flows of numbered datagrams to the south, while handlers come and go; what came, each
    /// flow by itself.
    fn send_flows(&self) -> Result<HashMap<u16, Vec<u32>>, Failed> {
        let receiver = self.hosts.south.run(|| UdpSocket::bind(SOUTH))??;
        receiver.set_read_timeout(Some(LOOK))?;
        let senders = self.hosts.north.run(|| {
            // Ports that are always the same: which worker has a flow is no chance.
            let bind = |flow| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, SENDERS + flow));
            (0..FLOWS).map(bind).collect::<std::io::Result<Vec<_>>>()
        })??;
        let (is_sent, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let came = AtomicU64::new(0);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut flows, mut octets) = (HashMap::<u16, Vec<u32>>::new(), [0; 4096]);
                loop {
                    let is_last = is_over.load(Ordering::Acquire);
                    let Ok((_, from)) = receiver.recv_from(&mut octets) else {
                        if is_last {
                            break flows;
                        }
                        // Silence is no end: a busy machine's sender may not get to run for long.
                        continue;
                    };
                    let number = u32::from_be_bytes(octets[..4].try_into().unwrap());
                    flows.entry(from.port()).or_default().push(number);
                    came.fetch_add(1, Ordering::Release);
                }
            });
            scope.spawn(|| {
                for number in 0..NUMBERS {
                    for (flow, sender) in senders.iter().enumerate() {
                        let mut octets = vec![0; OCTETS[flow % OCTETS.len()]];
                        octets[..4].copy_from_slice(&number.to_be_bytes());
                        sender.send_to(&octets, SOUTH).unwrap();
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                is_sent.store(true, Ordering::Release);
            });
            while !is_sent.load(Ordering::Acquire) {
                let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Before);
                // On a busy machine a worker may answer later than anybody waits; it still runs.
                if let Ok(id) = self.gateway.attach(at, Box::new(Count::default())) {
                    let _late = self.gateway.detach(id);
                }
                thread::sleep(Duration::from_millis(5));
            }
            // Nothing more is to come when what is missing is counted, or after long enough.
            wait_until(WITHIN, || {
                let lost = SENT.saturating_sub(came.load(Ordering::Acquire));
                self.dropped().is_ok_and(|dropped| lost <= dropped)
            });
            is_over.store(true, Ordering::Release);
            let flows = reader.join().map_err(|_| "the reader failed")?;
            assert!(self.gateway.is_running());
            Ok(flows)
        })
    }

    /// Datagrams that were dropped and counted: by a kernel or a cable that got no room, or on their
    /// way to a worker that did not get to run.
    fn dropped(&self) -> Result<u64, Failed> {
        let status = status_of(&self.gateway);
        let cables = [(&self.hosts.north, "n0"), (&self.hosts.middle, "g1")];
        let cables =
            cables.map(|(host, end)| TestInterface::existing(host, end).transmit_dropped());
        let cables = cables.into_iter().sum::<Result<u64, _>>()?;
        let overrun = |counters: &Vec<(&str, u64)>| count(counters, "receive_overrun");
        let before: u64 = status.links.iter().map(|link| overrun(&link.counters)).sum();
        let behind = ["UdpRcvbufErrors", "IpReasmFails"].map(|name| self.hosts.south.counter(name));
        let ring_full = status.unclaimed.iter().filter(|(reason, _)| reason == "ring-full");
        let between: u64 = ring_full.map(|(_, count)| count).sum();
        Ok(cables + before + between + behind.into_iter().sum::<Result<u64, _>>()?)
    }
}

fn count(counters: &[(&str, u64)], name: &str) -> u64 {
    counters.iter().filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
}

/// Each flow in its order, no datagram twice, none lost but those that are counted; the
/// counters of a link are those of its workers together.
fn flows_keep_their_order(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind)?;
    let flows = world.send_flows()?;
    let status = status_of(&world.gateway);
    assert_eq!(flows.len(), usize::from(FLOWS), "{status:#?}");
    for (flow, numbers) in &flows {
        let in_order = numbers.is_sorted_by(|one, next| one < next);
        assert!(in_order, "flow {flow} is out of its order: {numbers:?}; {status:#?}");
    }
    let came: usize = flows.values().map(Vec::len).sum();
    let lost = SENT.saturating_sub(came as u64);
    // A datagram in three frames may be lost three times.
    let dropped = world.dropped()?;
    assert!(lost <= dropped, "{lost} lost, {dropped} of them counted: {status:#?}");
    let summed = || {
        let status = status_of(&world.gateway);
        let links: u64 = status.links.iter().map(|link| count(&link.counters, "received")).sum();
        let workers: u64 = status.workers.iter().map(|worker| worker.received).sum();
        links == workers
    };
    assert!(wait_until(WITHIN, summed), "{:#?}", world.gateway.status());
    // With a queue for each, transit goes on where it was received: the first has what is not.
    let by_rings: u64 = status.workers.iter().map(|worker| worker.given).sum();
    let receivers = (0..kind.workers).filter(|own| world.queues(0).iter().any(|(_, w)| w == own));
    let divided = receivers.count() == kind.workers;
    assert_eq!(divided, by_rings < came as u64 / 10, "{:#?}", status.workers);
    for worker in &status.workers {
        assert!(worker.received + worker.taken > 100, "{:#?}", status.workers);
    }
    Ok(())
}

/// A link says how many queues it has, and which worker has which.
fn queues_are_told(kind: Kind) -> Result<(), Failed> {
    let world = World::new(kind)?;
    let sockets = kind.backend == Backend::PacketSocket && kind.asked.is_some();
    let asked = kind.asked.unwrap_or(kind.workers);
    let shares = if sockets { asked } else { asked.min(kind.queues) };
    // AF_XDP has a socket on each queue of the device, packet sockets are one a worker.
    let queues = if kind.backend == Backend::Xdp { kind.queues } else { shares };
    for link in 0..2 {
        let worker = |queue: usize| (link + queue % shares) % kind.workers;
        let expected: Vec<_> =
            (0..queues).map(|queue| (u32::try_from(queue).unwrap(), worker(queue))).collect();
        assert_eq!(world.queues(link), expected);
        let why = status_of(&world.gateway).links[link].why.clone();
        let said = format!("{} by worker {}", expected[0].0, expected[0].1);
        assert!(why.contains(&said), "{why}");
    }
    Ok(())
}

type Check = fn(Kind) -> Result<(), Failed>;

fn main() {
    let missing = Needs::new().namespaces().program("ping").program("ethtool").missing();
    let (packet, xdp) = (Backend::PacketSocket, Backend::Xdp);
    let kinds = [
        ("packet_sockets", packet, 1, 2, Some(2)),
        ("packet_sockets_fewer_than_workers", packet, 1, 3, Some(2)),
        ("packet_socket_of_one", packet, 1, 2, None),
        ("xdp", xdp, 2, 2, None),
        ("xdp_fewer_than_workers", xdp, 2, 3, None),
        ("xdp_more_than_workers", xdp, 4, 2, None),
        ("xdp_of_one", xdp, 2, 2, Some(1)),
    ];
    let checks: [(&str, Check); 2] =
        [("flows_keep_their_order", flows_keep_their_order), ("queues_are_told", queues_are_told)];
    let many = match &missing {
        None => Trial::test("xdp::many_links_have_frames", many_links_have_frames),
        Some(missing) => {
            let name = format!("xdp::many_links_have_frames (needs {missing})");
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
    };
    let trials = kinds.into_iter().flat_map(|(name, backend, queues, workers, asked)| {
        let kind = Kind { backend, queues, workers, asked };
        let missing = missing.clone();
        checks.into_iter().map(move |(check, run)| match &missing {
            None => Trial::test(format!("{name}::{check}"), move || run(kind)),
            Some(missing) => {
                let name = format!("{name}::{check} (needs {missing})");
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.chain([many]).collect()).exit();
}

/// More rings than the least slab has frames for: each link receives, and sends.
fn many_links_have_frames() -> Result<(), Failed> {
    const LINKS: u8 = 12;
    let (hosts, middle) = (Namespace::new()?, Namespace::new()?);
    let mut setup = Setup::new(7);
    let mut cables = Vec::new();
    for number in 0..LINKS {
        let (ours, theirs) = (format!("g{number}"), format!("h{number}"));
        let cable = Veth::pair(&middle, &ours, &hosts, &theirs)?;
        cable.b.add_address(&format!("10.50.{number}.2/24"))?;
        cable.up()?;
        let address = Ipv4Addr::new(10, 50, number, 1);
        setup.link(&ours, &ours).backend(Backend::Xdp).address(address, 24);
        cables.push(cable);
    }
    let _gateway = middle.run(|| Planes::open(&setup))??;
    for number in 0..LINKS {
        let address = format!("10.50.{number}.1");
        let ping = ["-c", "1", "-W", "1", "-n", &address];
        let answers =
            || hosts.command("ping").args(ping).output().is_ok_and(|it| it.status.success());
        assert!(wait_until(WITHIN, answers), "link {number} of {LINKS} does not answer");
    }
    Ok(())
}
