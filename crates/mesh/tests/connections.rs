//! Paths of idle connections are kept, and those of nobody are not.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_mesh::simulate::{LinkCut, MeshWorld};
use gatewright_mesh::{MeshInput, MeshNode, MeshSettings, NodeId, PathClass, Profile};
use gatewright_sim::Topology;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// One hop of a simulated packet.
const HOP: Duration = Duration::from_micros(120);

fn same(_: &mut MeshSettings) {}

/// A world in which the first node has pinged `to`.
fn used(topology: Topology, profile: Profile, to: usize) -> MeshWorld {
    let mut world = MeshWorld::new(topology, profile, 1, same);
    world.run_for(5 * SECOND);
    world.ping(0, to, PathClass::BULK);
    world.run_for(3 * SECOND);
    world
}

/// The round trip of a ping from now.
fn rtt(world: &mut MeshWorld, to: usize) -> Duration {
    let number = world.ping(0, to, PathClass::BULK);
    world.run_for(SECOND);
    world.pings().get(number).unwrap().rtt.unwrap()
}

/// Whichever end knows of the connection: the one that has searched the path, or the other one.
#[test]
fn the_path_of_an_idle_connection_is_kept_until_it_ends() {
    for profile in [Profile::Default, Profile::Classic] {
        for end in [0, 3] {
            let mut world = used(Topology::line(4), profile, 3);
            world.connections(end, 3 - end, true);
            world.run_for(30 * MINUTE);
            let before = world.sum(|counters| counters.searches);
            assert_eq!(rtt(&mut world, 3), 6 * HOP, "{profile:?}, at {end}");
            assert_eq!(world.sum(|counters| counters.searches), before, "{profile:?}, at {end}");
            world.connections(end, 3 - end, false);
            world.run_for(4 * MINUTE);
            assert!(world.is_silent(), "{profile:?}, at {end}");
            assert!(world.violations().is_empty(), "{:?}", world.violations());
        }
    }
}

#[test]
fn without_a_connection_the_path_is_removed() {
    let mut world = used(Topology::line(4), Profile::Default, 3);
    world.run_for(3 * MINUTE);
    assert!(world.is_silent());
    assert_eq!(rtt(&mut world, 3), 12 * HOP);
}

/// While nothing is sent, a path is replaced that is lost, but no better one is searched for ever.
#[test]
fn an_idle_connection_gets_another_path_and_causes_no_floods() {
    let mut world = used(Topology::line(2), Profile::Default, 1);
    world.connections(0, 1, true);
    world.run_for(10 * MINUTE);
    let before = world.sum(|counters| counters.searches);
    world.run_for(60 * MINUTE);
    assert_eq!(world.sum(|counters| counters.searches), before);

    let mut world = used(Topology::ring(5), Profile::Default, 2);
    world.connections(0, 2, true);
    world.run_for(10 * MINUTE);
    assert_eq!(world.installed(0, 2)[0], Some(vec![1]));
    let link = world.link(0, 1).unwrap();
    world.cut(link, LinkCut::Silent);
    world.run_for(10 * SECOND);
    assert_eq!(world.installed(0, 2)[0], Some(vec![4, 3]));
    // Without a packet, too, when a link of the last one comes back.
    let other = world.link(0, 4).unwrap();
    world.cut(other, LinkCut::Silent);
    world.run_for(MINUTE);
    assert_eq!(world.installed(0, 2), [None, None]);
    world.heal(other);
    world.run_for(10 * SECOND);
    assert_eq!(rtt(&mut world, 2), 6 * HOP);
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

/// Stations can name connections with nobody: they take no room from destinations, and cause no search.
#[test]
fn destinations_with_connections_are_bounded() {
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, Profile::Default));
    let mut connect = |number, any| {
        let destination = NodeId(number);
        node.handle(Duration::ZERO, MeshInput::Connections { destination, any });
        (node.counters().table_full, node.poll_timeout())
    };
    for number in 2..=2_001 {
        connect(number, true);
    }
    assert_eq!(connect(2, true), (2_000 - 1_024, None));
    // One's own is none, and where one has ended there is room.
    assert_eq!(connect(1, true), (2_000 - 1_024, None));
    connect(2, false);
    assert_eq!(connect(3_000, true), (2_000 - 1_024, None));
    assert_eq!(connect(3_001, true), (2_000 - 1_023, None));
}

/// The end that has not searched the lost path forgets the other one, but not its connections.
#[test]
fn a_connection_outlives_what_is_known_of_its_destination() {
    let mut world = used(Topology::line(2), Profile::Default, 1);
    world.connections(1, 0, true);
    let link = world.link(0, 1).unwrap();
    world.cut(link, LinkCut::Silent);
    world.run_for(5 * MINUTE);
    assert!(world.is_silent());
    world.heal(link);
    world.run_for(5 * SECOND);
    world.ping(0, 1, PathClass::BULK);
    world.run_for(5 * MINUTE);
    assert_eq!(world.installed(0, 1)[0], Some(vec![]));
}
