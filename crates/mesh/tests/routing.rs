//! Paths along the routes of OLSR, in virtual time, beside those that are discovered on demand.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod outage;

use gatewright_mesh::simulate::{LinkCut, MeshWorld};
use gatewright_mesh::{
    MeshKeys, MeshMembers, MeshNodeKey, MeshRouting, MeshSettings, MeshTrust, PathClass, Profile,
};
use gatewright_sim::{Chance, Random, Topology, distances};
use outage::outage;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// From the start until every node knows the topology: HELLOs of 2 s in both directions, then TCs
/// of 5 s, each with its jitter.
const CONVERGED: Duration = Duration::from_secs(30);

fn on_demand(_: &mut MeshSettings) {}

fn by_olsr(settings: &mut MeshSettings) {
    settings.routing = MeshRouting::Olsr;
}

fn by_olsr_with_a_key(settings: &mut MeshSettings) {
    by_olsr(settings);
    settings.trust = MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32)).unwrap());
}

fn by_olsr_with_own_keys(settings: &mut MeshSettings) {
    by_olsr(settings);
    let key = |octets: [u8; 8]| MeshNodeKey::of_seed(octets.repeat(4).try_into().unwrap()).unwrap();
    let (own, authority) = (key(settings.id.0.to_be_bytes()), key([0; 8]));
    let certificate = authority.admit(&own.public()).unwrap();
    let members = MeshMembers { authorities: vec![authority.public()], ..MeshMembers::default() };
    settings.trust = MeshTrust::Pki(Box::new((own.with_certificate(certificate), members)));
}

/// Half of the nodes have OLSR.
fn mixed(settings: &mut MeshSettings) {
    if settings.id.0.is_multiple_of(2) {
        by_olsr(settings);
    }
}

fn world(topology: Topology, change: fn(&mut MeshSettings)) -> MeshWorld {
    MeshWorld::new(topology, Profile::Default, 1, change)
}

fn assert_sound(world: &MeshWorld, what: &str) {
    assert!(world.violations().is_empty(), "{what}: {:?}", world.violations());
}

fn answered(world: &MeshWorld) -> usize {
    world.pings().iter().filter(|ping| ping.rtt.is_some()).count()
}

/// The topologies of the tests, by name.
fn topologies() -> Vec<(&'static str, Topology)> {
    vec![
        ("line", Topology::line(8)),
        ("grid", Topology::grid(5, 5)),
        ("Figure 6", Topology::three_paths()),
        ("random", Topology::random_geometric(40, 6, 3)),
    ]
}

/// When the topology is known, every ping is answered, by a shortest path, and nothing is flooded.
#[test]
fn requests_follow_the_shortest_routes() {
    for (name, topology) in topologies() {
        let mut world = world(topology, by_olsr);
        let nodes = world.nodes();
        let near = world.topology().neighbours(|_| true);
        world.run_for(CONVERGED);
        for from in 0..nodes {
            let to = (from + nodes / 2) % nodes;
            world.ping(from, to, PathClass::BULK);
            world.run_for(100 * MS);
            let hops = distances(&near, from)[to].unwrap();
            let [Some(primary), _] = world.installed(from, to) else {
                panic!("{name}: no path from {from} to {to}")
            };
            assert_eq!(primary.len() + 1, hops, "{name}: {from} to {to} by {primary:?}");
        }
        world.run_for(SECOND);
        assert_eq!(answered(&world), nodes, "{name}");
        let [relayed, repeated] = [
            world.sum(|counters| counters.requests_relayed),
            world.sum(|counters| counters.requests_repeated),
        ];
        let hops = u64::try_from(world.nodes()).unwrap();
        // At most three requests for each path, each sent once by each node of its route.
        assert!(relayed <= 3 * hops * hops, "{name}: {relayed}");
        assert_eq!(repeated, 0, "{name}");
        assert_sound(&world, name);
    }
}

/// From cold no route is known: the first packets are not lost.
#[test]
fn a_target_without_a_route_is_searched_by_a_flood() {
    for (name, topology) in topologies() {
        let mut world = world(topology, by_olsr);
        let nodes = world.nodes();
        world.run_for(200 * MS);
        for from in 0..nodes {
            world.ping(from, (from + nodes / 2) % nodes, PathClass::BULK);
        }
        world.run_for(2 * SECOND);
        assert_eq!(answered(&world), nodes, "{name}");
        assert_sound(&world, name);
    }
}

/// Each trust model, and `classic`, where each direction is searched by itself.
#[test]
fn routes_are_found_in_each_trust_model_and_profile() {
    for (trust, change) in
        [("psk", by_olsr_with_a_key as fn(&mut MeshSettings)), ("pki", by_olsr_with_own_keys)]
    {
        let mut world = world(Topology::grid(3, 3), change);
        world.run_for(CONVERGED);
        world.ping(0, 8, PathClass::BULK);
        world.run_for(SECOND);
        assert_eq!(answered(&world), 1, "{trust}");
        assert_eq!(world.sum(|it| it.forged + it.unsigned + it.requests_repeated), 0, "{trust}");
        assert_sound(&world, trust);
    }
    let mut world = MeshWorld::new(Topology::grid(3, 3), Profile::Classic, 1, by_olsr);
    world.run_for(CONVERGED);
    world.ping(0, 8, PathClass::BULK);
    world.run_for(SECOND);
    assert_eq!((answered(&world), world.sum(|it| it.requests_repeated)), (1, 0));
    assert_sound(&world, "classic");
}

/// Nodes of both kinds of routing find each other.
#[test]
fn nodes_without_olsr_are_found_too() {
    let mut world = world(Topology::grid(4, 4), mixed);
    world.run_for(CONVERGED);
    for from in 0..16 {
        world.ping(from, 15 - from, PathClass::BULK);
        world.run_for(2 * SECOND);
    }
    assert_eq!(answered(&world), 16);
    assert!(world.sum(|counters| counters.olsr_ignored) > 0);
    assert_sound(&world, "mixed");
}

/// The second path is disjoint, so a cut of the first one is an outage of milliseconds.
#[test]
fn a_backup_carries_on_when_a_link_is_lost() {
    for (cut, most) in [(LinkCut::Carrier, 20 * MS), (LinkCut::Silent, 250 * MS)] {
        for ends in [(0, 1), (1, 6)] {
            let mut world = world(Topology::three_paths(), by_olsr);
            world.run_for(CONVERGED);
            world.ping(0, 6, PathClass::BULK);
            world.run_for(2 * SECOND);
            let [Some(primary), Some(backup)] = world.installed(0, 6) else { panic!("no backup") };
            assert!(primary.iter().all(|relay| !backup.contains(relay)), "{primary:?} {backup:?}");
            let link = world.link(ends.0, ends.1).unwrap();
            world.cut(link, cut);
            let hole = outage(&mut world, (0, 6), 3 * SECOND);
            println!("{cut:?} {ends:?}: {hole:?}");
            assert!(hole <= most, "{cut:?} {ends:?}: {hole:?}");
            assert_sound(&world, "Figure 6");
        }
    }
}

/// Where no backup stands, the loss of a link is known along the route before the next search ends:
/// the neighbours of the link know it at once, the others by their TCs.
#[test]
fn a_lost_link_is_healed_without_a_backup() {
    for (kind, change) in [("on demand", on_demand as fn(&mut MeshSettings)), ("OLSR", by_olsr)] {
        let longest = longest_outage_of_rings(change);
        println!("{kind}: longest outage: {longest:?}");
        assert!(longest <= SECOND, "{kind}: {longest:?}");
    }
}

fn longest_outage_of_rings(change: fn(&mut MeshSettings)) -> Duration {
    let mut longest = Duration::ZERO;
    for seed in 0..10 {
        let mut world = MeshWorld::new(Topology::ring(12), Profile::Default, seed, change);
        world.run_for(CONVERGED);
        world.ping(0, 5, PathClass::BULK);
        // Before a backup is searched.
        world.run_for(100 * MS);
        let link = world.link(3, 4).unwrap();
        world.cut(link, LinkCut::Carrier);
        longest = longest.max(outage(&mut world, (0, 5), 6 * SECOND));
        assert_sound(&world, "ring");
    }
    longest
}

/// Links fail, lose and heal, and nodes restart: no label leads around, no request does, and all are
/// reached again.
#[test]
fn no_loops_while_topologies_differ() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let topology = Topology::random_geometric(16, 5, seed).with(seed, |direction, random| {
            direction.loss = Chance::per_million(u32::try_from(random.below(30_000)).unwrap());
        });
        let mut world = MeshWorld::new(topology, Profile::Default, seed, by_olsr);
        let links = world.topology().links.len();
        let mut below = |limit| usize::try_from(random.below(limit)).unwrap();
        let link_count = u64::try_from(links).unwrap();
        world.run_for(15 * SECOND);
        for _ in 0..40 {
            world.ping(below(16), below(16), PathClass::BULK);
            match below(5) {
                0 => world.cut(below(link_count), LinkCut::Carrier),
                1 => world.cut(below(link_count), LinkCut::Silent),
                2 | 3 => world.heal(below(link_count)),
                _ => world.reboot(below(16)),
            }
            world.run_for(MS * u32::try_from(below(2_000)).unwrap());
        }
        for link in 0..links {
            world.heal(link);
        }
        world.run_for(10 * SECOND);
        let before = answered(&world);
        for from in 0..16 {
            for _ in 0..3 {
                world.ping(from, (from + 7) % 16, PathClass::BULK);
                world.run_for(500 * MS);
            }
            world.run_for(SECOND);
        }
        // Links lose: one of three packets is enough.
        assert!(answered(&world) >= before + 16, "seed {seed}");
        assert_sound(&world, "random");
    }
}

/// A station has no main address: it is found by a flood, also when it moves.
#[test]
fn stations_behind_nodes_are_found() {
    let mut world = world(Topology::line(4), by_olsr);
    let segments = [0, 3, 1].map(|node| world.add_segment(&[node]));
    let (a, b) = (world.add_station(segments[0]), world.add_station(segments[1]));
    world.run_for(CONVERGED);
    for to in [1, 2] {
        world.move_station(b, segments[to]);
        for station in [a, b] {
            world.station_broadcast(station);
        }
        world.run_for(2 * SECOND);
        let number = world.station_ping(a, b);
        world.run_for(SECOND);
        assert!(world.station_pings()[number].rtt.is_some(), "on segment {to}");
    }
    assert_sound(&world, "stations");
}

/// ROUTE REQUESTs that relays pass on for 20 searches, and all messages of a minute without any.
fn messages(topology: &Topology, change: fn(&mut MeshSettings)) -> (u64, u64) {
    const SEARCHES: usize = 20;
    let mut world = world(topology.clone(), change);
    world.run_for(CONVERGED);
    let before = world.figures().messages;
    world.run_for(60 * SECOND);
    let idle = world.figures().messages - before;
    let nodes = world.nodes();
    let relayed = |world: &MeshWorld| world.sum(|counters| counters.requests_relayed);
    for number in 0..SEARCHES {
        world.ping(number % nodes, (number + nodes / 2) % nodes, PathClass::BULK);
        world.run_for(50 * MS);
    }
    world.run_for(SECOND);
    assert_eq!(answered(&world), SEARCHES);
    assert_sound(&world, "messages");
    (relayed(&world), idle)
}

/// Both kinds beside each other: a search costs a route instead of a flood, and the rest of the time
/// nodes talk of their links.
#[test]
fn a_search_costs_less_and_silence_more_than_on_demand() {
    for (name, topology) in [
        ("line of 8", Topology::line(8)),
        ("grid of 49", Topology::grid(7, 7)),
        ("Figure 6", Topology::three_paths()),
    ] {
        let (demand, demand_idle) = messages(&topology, on_demand);
        let (olsr, olsr_idle) = messages(&topology, by_olsr);
        println!(
            "{name}: relayed requests of 20 searches: {demand} on demand, {olsr} by OLSR; messages of \
             an idle minute: {demand_idle}, {olsr_idle}"
        );
        assert!(olsr <= demand, "{name}");
        assert!(olsr_idle > demand_idle, "{name}");
    }
}
