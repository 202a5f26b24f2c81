//! Which paths share the load of bulk traffic.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_mesh::simulate::{LinkCut, MeshWorld};
use gatewright_mesh::{MeshSettings, PathClass, Profile};
use gatewright_sim::Topology;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn same(_: &mut MeshSettings) {}

/// A world in which the first node has sent to `to` and found its paths.
fn used(topology: Topology, profile: Profile, to: usize) -> MeshWorld {
    let mut world = MeshWorld::new(topology, profile, 3, same);
    world.run_for(5 * SECOND);
    world.ping(0, to, PathClass::BULK);
    world.run_for(3 * SECOND);
    assert!(world.violations().is_empty(), "{:?}", world.violations());
    world
}

/// A square has two equal paths between opposite corners: both ends spread flows, and cease while one is
/// cut.
#[test]
fn flows_are_spread_over_two_equal_paths() {
    let mut world = used(Topology::ring(4), Profile::Default, 2);
    assert!(world.spreads(0, 2) && world.spreads(2, 0));
    let [primary, backup] = world.installed(0, 2);
    let mut relays = [primary.unwrap(), backup.unwrap()].concat();
    relays.sort_unstable();
    assert_eq!(relays, [1, 3]);
    let link = world.link(0, 1).unwrap();
    world.cut(link, LinkCut::Carrier);
    world.run_for(SECOND);
    assert!(!world.spreads(0, 2) && !world.spreads(2, 0));
    world.heal(link);
    for _ in 0..50 {
        world.ping(0, 2, PathClass::BULK);
        world.run_for(SECOND / 10);
    }
    assert!(world.spreads(0, 2) && world.spreads(2, 0));
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

/// The other classes keep to one path, and background traffic to another one than those of bulk.
#[test]
fn background_traffic_takes_none_of_the_paths_that_are_spread() {
    let pairs = [(0, 1), (1, 4), (0, 2), (2, 4), (0, 3), (3, 4)];
    let world = used(Topology::of(5, pairs), Profile::Default, 4);
    assert!(world.spreads(0, 4));
    let bulk = world.installed(0, 4).map(Option::unwrap);
    let [background, _] = world.installed_for(0, 4, PathClass::BACKGROUND);
    let background = background.unwrap();
    assert!(!bulk.contains(&background), "{bulk:?} {background:?}");
}

/// Paths of different cost are not spread over, nor is anything in `classic`.
#[test]
fn unequal_paths_are_not_spread_over() {
    let world = used(Topology::ring(5), Profile::Default, 2);
    assert!(world.installed(0, 2).iter().all(Option::is_some));
    assert!(!world.spreads(0, 2) && !world.spreads(2, 0));
    let world = used(Topology::ring(4), Profile::Classic, 2);
    assert!(world.installed(0, 2)[0].is_some());
    assert!(!world.spreads(0, 2));
}
