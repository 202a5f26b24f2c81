//! Nodes that walk are reached, by interfaces that tell nothing of it.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_mesh::simulate::{MOBILITY_NODES, MeshWorld, Mobility};
use gatewright_mesh::{MeshSettings, PathClass, Profile};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn same(_: &mut MeshSettings) {}

/// The promise for 10 s and 30 m, with fewer walks; the whole run is `gatewright lab mesh --scenario mobility`.
#[test]
fn walking_nodes_are_reached() {
    let run = Mobility { rounds: 4, pings: 60, ..Mobility::of_source(10, 30) };
    for seed in 1..=2 {
        let mut world = MeshWorld::on_air(MOBILITY_NODES, Profile::Default, seed, same);
        world.without_checks();
        let outcome = run.run(&mut world, seed);
        assert!(world.violations().is_empty(), "seed {seed}: {:?}", world.violations());
        assert_eq!(outcome.sent, 240, "seed {seed}");
        // Nodes that stand still would be reached, too.
        assert!(outcome.links_lost >= 4 * 5, "seed {seed}: {outcome:?}");
        assert!(outcome.answered * 100 >= outcome.sent * 95, "seed {seed}: {outcome:?}");
    }
}

/// A node passes a request on by the interface that it came by, and the path through it ends when its
/// neighbour is out of range.
#[test]
fn a_relay_has_one_interface() {
    let mut world = MeshWorld::on_air(4, Profile::Default, 1, same);
    world.reach(&[[0, 1], [1, 2]]);
    world.run_for(5 * SECOND);
    let first = world.ping(0, 2, PathClass::BULK);
    world.run_for(SECOND);
    assert!(world.pings().get(first).unwrap().rtt.is_some());
    assert_eq!(world.installed(0, 2)[0], Some(vec![1]));
    world.reach(&[[0, 3], [2, 3]]);
    world.run_for(10 * SECOND);
    let second = world.ping(0, 2, PathClass::BULK);
    world.run_for(SECOND);
    assert!(world.pings().get(second).unwrap().rtt.is_some());
    assert_eq!(world.installed(0, 2)[0], Some(vec![3]));
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}
