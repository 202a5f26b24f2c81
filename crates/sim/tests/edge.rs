//! The simulated network keeps the contract of `gatewright-edge`, and a seed decides everything.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_edge::conformance::{self, Peer};
use gatewright_edge::{Bind, Datagrams, Network, Sharing};
use gatewright_sim::{Chance, Impairment, SimDatagrams, World, WorldConfig};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn world(impairment: Impairment, seed: u64) -> World {
    World::new(WorldConfig { seed, latency: Duration::from_millis(3), impairment })
}

fn bound(world: &World, host: IpAddr, port: u16) -> SimDatagrams {
    let bind = Bind::Server(SocketAddr::new(host, port));
    world.network(host).datagrams("peer", bind, Sharing::First).unwrap()
}

struct OtherHost(World, SimDatagrams);

impl Peer for OtherHost {
    fn send(&mut self, octets: &[u8], to: SocketAddr) -> io::Result<()> {
        self.1.send(octets, to)
    }

    fn receive(&mut self) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut octets = [0; 2_048];
        let end = self.0.now() + Duration::from_secs(10);
        while self.0.now() < end {
            match self.1.receive(&mut octets) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.0.step(end),
                other => return other.map(|(length, from)| (octets[..length].to_vec(), from)),
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.1.local_address()
    }
}

#[test]
fn a_world_conforms() {
    let world = world(Impairment::default(), 1);
    let network = world.network(HERE);
    conformance::waiting(&network).unwrap();
    let mut peer = OtherHost(world.clone(), bound(&world, THERE, 7_000));
    conformance::datagrams(&network, SocketAddr::new(HERE, 0), &mut peer).unwrap();
    conformance::streams(&network, SocketAddr::new(HERE, 0)).unwrap();
    conformance::refusal(&network, SocketAddr::new(THERE, 9)).unwrap();
}

/// Streams lose nothing and change nothing, whatever the medium does.
#[test]
fn streams_conform_over_a_bad_line() {
    for seed in 0..50 {
        let loss = Chance::percent(20);
        let jitter = Duration::from_millis(50);
        let world = world(Impairment { loss, jitter, ..Impairment::default() }, seed);
        conformance::streams(&world.network(HERE), SocketAddr::new(HERE, 0))
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert!(world.counters().retransmitted > 0, "seed {seed}");
    }
}

/// A datagram is lost, repeated and overtaken as often as the impairment says, the same way each
/// time for one seed.
#[test]
fn a_seed_decides_what_arrives() {
    let impairment = Impairment {
        loss: Chance::percent(30),
        duplicate: Chance::percent(10),
        jitter: Duration::from_millis(20),
        ..Impairment::default()
    };
    let arrivals = |seed| {
        let world = world(impairment, seed);
        let (near, far) = (bound(&world, HERE, 1), bound(&world, THERE, 2));
        (0..200_u8).for_each(|n| near.send(&[n], far.local_address().unwrap()).unwrap());
        (0..1_000).for_each(|_| world.step(Duration::from_secs(1)));
        let mut octet = [0];
        let arrived: Vec<u8> =
            std::iter::from_fn(|| far.receive(&mut octet).ok().map(|_| octet[0])).collect();
        (arrived, world.counters())
    };
    let (arrived, counters) = arrivals(7);
    assert_eq!(arrivals(7), (arrived.clone(), counters));
    assert_ne!(arrivals(8).0, arrived);
    assert!((30..90).contains(&counters.lost), "{counters:?}");
    assert_eq!(arrived.len() as u64, 200 - counters.lost + counters.duplicated);
    assert!(!arrived.is_sorted());
}
