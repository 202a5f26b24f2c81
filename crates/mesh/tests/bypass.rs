//! Bypasses: a relay leads its paths around a lost link, over a neighbour of both its ends.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod outage;

use gatewright_mesh::simulate::{LinkCut, MeshWorld};
use gatewright_mesh::{MeshEvent, MeshKeys, MeshSettings, MeshTrust, PathClass, Profile};
use gatewright_sim::Topology;
use outage::outage;
use std::time::Duration;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn same(_: &mut MeshSettings) {}

fn with_a_key(settings: &mut MeshSettings) {
    settings.trust = MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32)).unwrap());
}

/// A line of nodes with one more beside the link between two of them.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// The last node; the first is 0.
    end: usize,
    /// The ends of the link, the nearer to the first node first.
    link: (usize, usize),
    beside: usize,
    /// Whether there is another way between the ends, of three relays.
    has_other: bool,
}

/// The ends have no backup: relays pass on no request that shares a relay with the one before.
const SHORT: Line = Line { end: 3, link: (1, 2), beside: 4, has_other: false };
/// The ends have a backup.
const DOUBLE: Line = Line { has_other: true, ..SHORT };
/// The first ring of a search does not reach the end.
const LONG: Line = Line { end: 7, link: (3, 4), beside: 8, has_other: false };

impl Line {
    fn topology(self) -> Topology {
        let ((near, far), beside) = (self.link, self.beside);
        let line = (0..self.end).map(|node| (node, node + 1));
        let line = line.chain([(near, beside), (beside, far)]);
        let [a, b, c] = [1, 2, 3].map(|more| beside + more);
        let other = [(0, a), (a, b), (b, c), (c, self.end)];
        if self.has_other {
            Topology::of(c + 1, line.chain(other))
        } else {
            Topology::of(beside + 1, line)
        }
    }

    /// A world in which the first node has sent to the last one for some seconds.
    fn used(self, change: fn(&mut MeshSettings)) -> MeshWorld {
        let mut world = MeshWorld::new(self.topology(), Profile::Default, 3, change);
        world.run_for(5 * SECOND);
        send(&mut world, self, 3 * SECOND, MS);
        assert_sound(&world);
        self.assert_protected(&world);
        world
    }

    /// Both ends of the link have a bypass around it, each for its own direction.
    fn assert_protected(self, world: &MeshWorld) {
        let node = |index: usize| world.node(index).unwrap();
        let (near, far) = self.link;
        assert_eq!((node(near).bypasses(), node(far).bypasses()), (1, 1), "{self:?}");
        assert_eq!(node(self.beside).bypasses_given(), 2, "{self:?}");
    }

    fn cut(self, world: &mut MeshWorld, cut: LinkCut) {
        let link = world.link(self.link.0, self.link.1).unwrap();
        world.cut(link, cut);
    }

    fn heal(self, world: &mut MeshWorld) {
        let link = world.link(self.link.0, self.link.1).unwrap();
        world.heal(link);
    }
}

/// Pings from the first node to the last one for a time; how many were not answered.
fn send(world: &mut MeshWorld, line: Line, time: Duration, interval: Duration) -> usize {
    let (first, end) = (world.pings().len(), world.now() + time);
    while world.now() < end {
        world.ping(0, line.end, PathClass::BULK);
        world.run_for(interval);
    }
    world.run_for(20 * MS);
    world.pings()[first..].iter().filter(|ping| ping.rtt.is_none()).count()
}

fn assert_sound(world: &MeshWorld) {
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

fn count(world: &MeshWorld, is: impl Fn(&MeshEvent) -> bool) -> usize {
    world.log().iter().filter(|(_, _, event)| is(event)).count()
}

/// With 20 packets in flight in each direction, none is lost when the link loses its carrier, nor later,
/// when the ends have found another path and this one has ended.
#[test]
fn no_packet_is_lost_with_the_carrier_of_a_far_link() {
    for (line, has_key) in [(SHORT, false), (DOUBLE, false), (LONG, false), (LONG, true)] {
        let change: fn(&mut MeshSettings) = if has_key { with_a_key } else { same };
        let mut world = line.used(change);
        assert_eq!(world.installed(0, line.end)[1].is_some(), line.has_other, "{line:?}");
        for _ in 0..100 {
            world.ping(0, line.end, PathClass::BULK);
            world.run_for(50 * US);
        }
        let first = world.pings().len() - 100;
        line.cut(&mut world, LinkCut::Carrier);
        assert_eq!(send(&mut world, line, 100 * MS, 50 * US), 0, "{line:?}");
        assert_eq!(send(&mut world, line, 6 * SECOND, MS), 0, "{line:?}");
        assert!(world.pings()[first..].iter().all(|ping| ping.rtt.is_some()), "{line:?}");
        assert_eq!(world.sum(|counters| counters.paths_bypassed), 2, "{line:?}");
        assert_eq!(count(&world, |event| matches!(event, MeshEvent::LinkBypassed { .. })), 2);
        assert_eq!(count(&world, |event| matches!(event, MeshEvent::PathBypassed { .. })), 2);
        // The new path leads over the node beside the link, or the other way.
        let primary = world.installed(0, line.end)[0].clone().unwrap();
        assert_eq!(primary.contains(&line.beside), !line.has_other, "{primary:?}");
        assert_sound(&world);
    }
}

/// Silence costs the time in which it is found, and nothing more, in both directions and in one; the search
/// of an end without a backup goes on beside.
#[test]
fn a_far_link_that_falls_silent_costs_its_detection() {
    for line in [SHORT, DOUBLE, LONG] {
        for cut in [LinkCut::Silent, LinkCut::OneWay, LinkCut::OneEnd] {
            for phase in 0..4 {
                let mut world = line.used(same);
                world.run_for(phase * 13 * MS);
                line.cut(&mut world, cut);
                let outage = outage(&mut world, (0, line.end), 6 * SECOND);
                println!("{line:?} {cut:?}: {outage:?}");
                assert!(outage <= 200 * MS, "{line:?} {cut:?}: {outage:?}");
                assert_sound(&world);
            }
        }
    }
}

/// The path that goes around ends after some seconds, also where the ends send nothing any more and the link
/// comes back at once.
#[test]
fn a_path_goes_around_for_a_few_seconds() {
    let mut world = LONG.used(same);
    LONG.cut(&mut world, LinkCut::Carrier);
    world.run_for(10 * MS);
    let around: Vec<_> = world.node(0).unwrap().paths().collect();
    let goes_around = |world: &MeshWorld| {
        around.iter().filter(|&&path| world.node(0).unwrap().goes_around_a_link(path)).count()
    };
    assert_eq!(goes_around(&world), 1);
    world.run_for(SECOND);
    LONG.heal(&mut world);
    world.run_for(SECOND);
    assert_eq!(goes_around(&world), 1);
    world.run_for(3 * SECOND);
    for index in 0..world.nodes() {
        let node = world.node(index).unwrap();
        assert!(!node.paths().any(|path| around.contains(&path)), "node {index}");
    }
    assert_sound(&world);
}

/// Nothing is left after silence, neither after a loss.
#[test]
fn tables_are_empty_after_silence() {
    for cut in [None, Some(LinkCut::Carrier), Some(LinkCut::OneWay)] {
        let mut world = LONG.used(same);
        if let Some(cut) = cut {
            LONG.cut(&mut world, cut);
            send(&mut world, LONG, SECOND, MS);
        }
        world.run_for(200 * SECOND);
        assert!(world.is_silent(), "{cut:?}");
        for index in 0..world.nodes() {
            let node = world.node(index).unwrap();
            assert_eq!((node.bypasses(), node.bypasses_given()), (0, 0), "{cut:?} node {index}");
            assert_eq!(node.labels().count(), 0, "{cut:?} node {index}");
        }
        assert_sound(&world);
    }
}

/// A path that carries nothing has no bypass, and asks for none.
#[test]
fn an_idle_path_has_no_bypass() {
    let mut world = SHORT.used(same);
    world.run_for(33 * SECOND);
    assert!(world.node(0).unwrap().paths().next().is_some());
    assert_eq!(world.node(SHORT.beside).unwrap().bypasses_given(), 0);
    assert_eq!(world.node(SHORT.link.0).unwrap().bypasses(), 0);
    let asked = |world: &MeshWorld| world.sum(|counters| counters.sent);
    world.run_for(SECOND);
    let before = asked(&world);
    world.run_for(SECOND);
    println!("messages of an idle mesh with a path: {}", asked(&world) - before);
    assert_eq!(world.sum(|counters| counters.bypasses_made), 2);
    assert_sound(&world);
}

/// The node beside the link restarts: the bypass is made anew, and holds.
#[test]
fn a_bypass_is_made_anew_when_its_node_restarts() {
    for change in [same as fn(&mut MeshSettings), with_a_key] {
        let mut world = LONG.used(change);
        world.reboot(LONG.beside);
        world.run_for(100 * MS);
        assert_eq!(send(&mut world, LONG, 5 * SECOND, MS), 0);
        LONG.assert_protected(&world);
        LONG.cut(&mut world, LinkCut::Carrier);
        assert_eq!(send(&mut world, LONG, SECOND, MS), 0);
        assert_sound(&world);
    }
}

/// The node behind the link restarts: it has other labels, and what led to the old ones is gone.
#[test]
fn a_bypass_follows_a_restart_of_the_node_behind_the_link() {
    let mut world = LONG.used(same);
    world.reboot(LONG.link.1);
    send(&mut world, LONG, 5 * SECOND, MS);
    LONG.assert_protected(&world);
    LONG.cut(&mut world, LinkCut::Carrier);
    assert_eq!(send(&mut world, LONG, SECOND, MS), 0);
    assert_sound(&world);
}

/// The bypass fails while it is in use: its path ends as without one.
#[test]
fn a_path_ends_with_the_bypass_that_carries_it() {
    let mut world = LONG.used(same);
    LONG.cut(&mut world, LinkCut::Carrier);
    world.run_for(MS);
    let second = world.link(LONG.link.0, LONG.beside).unwrap();
    world.cut(second, LinkCut::Carrier);
    world.run_for(10 * MS);
    assert_eq!(world.node(0).unwrap().paths().count(), 0, "{:?}", world.log());
    world.heal(second);
    send(&mut world, LONG, 3 * SECOND, MS);
    assert_eq!(send(&mut world, LONG, SECOND, MS), 0);
    assert_sound(&world);
}

/// The node behind the link is dead, and so is what leads around the link: the ends switch as without a
/// bypass.
#[test]
fn the_ends_switch_when_the_node_behind_the_link_is_dead() {
    for phase in 0..5 {
        let mut world = DOUBLE.used(same);
        world.run_for(phase * 13 * MS);
        world.kill(DOUBLE.link.1);
        let outage = outage(&mut world, (0, 3), 4 * SECOND);
        println!("outage of a dead node: {outage:?}");
        assert!(outage <= 200 * MS, "{outage:?}");
        assert_sound(&world);
    }
}

/// A link that flaps: each loss costs no packet as long as there is a bypass; searches and messages stay few.
#[test]
fn a_link_that_flaps_causes_no_flood() {
    let mut world = SHORT.used(same);
    let before = world.sum(|counters| counters.searches);
    for _ in 0..60 {
        SHORT.cut(&mut world, LinkCut::Carrier);
        assert_eq!(send(&mut world, SHORT, SECOND, 20 * MS), 0);
        SHORT.heal(&mut world);
        assert_eq!(send(&mut world, SHORT, SECOND, 20 * MS), 0);
    }
    let searches = world.sum(|counters| counters.searches) - before;
    let made = world.sum(|counters| counters.bypasses_made);
    println!("60 losses: {searches} searches, {made} bypasses");
    assert!(searches <= 60, "{searches} searches in two minutes, of both ends");
    assert!(made <= 10, "{made} bypasses");
    assert!(world.node(SHORT.beside).unwrap().bypasses_given() <= 8);
    assert_sound(&world);
}

/// The link comes back: the ends find a path over it again, as the path that goes around is none.
#[test]
fn a_link_that_comes_back_is_used_again() {
    for cut in [LinkCut::Carrier, LinkCut::Silent] {
        let mut world = SHORT.used(same);
        SHORT.cut(&mut world, cut);
        assert!(send(&mut world, SHORT, SECOND, 10 * MS) <= 20, "{cut:?}");
        SHORT.heal(&mut world);
        assert_eq!(send(&mut world, SHORT, 30 * SECOND, 10 * MS), 0, "{cut:?}");
        assert_eq!(world.installed(0, 3)[0], Some(vec![1, 2]), "{cut:?}");
        SHORT.assert_protected(&world);
        assert_sound(&world);
    }
}

/// `classic` has no bypasses.
#[test]
fn classic_has_no_bypasses() {
    let mut world = MeshWorld::new(SHORT.topology(), Profile::Classic, 3, same);
    world.run_for(5 * SECOND);
    send(&mut world, SHORT, 3 * SECOND, MS);
    SHORT.cut(&mut world, LinkCut::Carrier);
    send(&mut world, SHORT, 3 * SECOND, MS);
    let counted = world.sum(|counters| counters.bypasses_made + counters.bypasses_given);
    assert_eq!((counted, world.sum(|counters| counters.malformed)), (0, 0));
    assert_eq!(world.sum(|counters| counters.paths_bypassed), 0);
    assert_sound(&world);
}
