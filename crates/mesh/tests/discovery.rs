//! Searches: which nodes pass a ROUTE REQUEST on, what that costs in a mesh of which most nodes are far from
//! the path, and what it finds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_mesh::message::{Alive, Message, RecordedHop, RequestRelays, RouteRequest, Sender};
use gatewright_mesh::simulate::{LinkCut, MeshWorld};
use gatewright_mesh::{
    LinkProperties, MeshInput, MeshNode, MeshOutput, MeshSettings, NodeId, PathClass, Profile,
    RelayDelay,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use gatewright_sim::{Topology, distances, is_reachable_without};
use std::collections::BTreeSet;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn same(_: &mut MeshSettings) {}

fn world(topology: Topology, profile: Profile, seed: u64) -> MeshWorld {
    MeshWorld::new(topology, profile, seed, same)
}

/// The node that is farthest from node 0.
fn farthest(world: &MeshWorld) -> usize {
    let near = world.topology().neighbours(|_| true);
    distances(&near, 0).iter().enumerate().max_by_key(|(_, distance)| **distance).unwrap().0
}

/// A node whose neighbours are 11, 12, 13 and 14, each at a link of its own, with what each of them hears.
fn relay(profile: Profile, lists: [&[u64]; 4]) -> MeshNode {
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, profile));
    for (link, list) in (0_u16..).zip(lists) {
        let properties = LinkProperties::default();
        node.handle(Duration::ZERO, MeshInput::LinkUp { link: LinkIndex(link), properties });
        let list: Vec<u8> = list.iter().flat_map(|node| node.to_be_bytes()).collect();
        let alive = Message::Alive(Alive {
            interval_ms: 2_000,
            more: false,
            part: 0,
            wants_list: false,
            delay: RelayDelay::default(),
            neighbours: Some(&list),
            labels: &[],
        });
        receive(&mut node, profile, link, &alive);
    }
    while node.poll_output().is_some() {}
    node
}

fn receive(node: &mut MeshNode, profile: Profile, link: u16, message: &Message<'_>) {
    let neighbour = u64::from(link) + 11;
    let sender = Sender { node: NodeId(neighbour), epoch: 1, sequence: 1 };
    let octets = message.encode(sender, profile);
    let from = LinkAddress::ethernet([2, 0, 0, 0, 0, u8::try_from(neighbour).unwrap()]);
    let link = LinkIndex(link);
    node.handle(Duration::ZERO, MeshInput::Received { link, from, octets: &octets });
}

/// A request of node 100 for node 200.
fn request(paths: u8, relays: RequestRelays, listed: &[u64]) -> RouteRequest {
    RouteRequest {
        origin: NodeId(100),
        origin_epoch: 1,
        request: 7,
        target: NodeId(200),
        class: 2,
        background: false,
        routed: false,
        relays,
        avoids: false,
        frame_limit: 0,
        paths,
        hops_left: 8,
        listed: listed.iter().copied().map(NodeId).collect(),
        record: Vec::new(),
    }
}

/// Copies that a node passes on of one that comes from each of its neighbours, over relays that no two of
/// them share.
fn passed_on(node: &mut MeshNode, profile: Profile, request: &RouteRequest) -> usize {
    let mut copies = 0;
    for link in 0..4 {
        let hop = |node| RecordedHop { node: NodeId(node), cost: 10, delay_us: 100 };
        let record = vec![hop(20 + u64::from(link)), hop(11 + u64::from(link))];
        let copy = Message::Request(RouteRequest { record, ..request.clone() });
        receive(node, profile, link, &copy);
        let mut is_sent = false;
        while let Some(output) = node.poll_output() {
            is_sent |= matches!(output, MeshOutput::Send { octets, .. } if octets[1] == 2);
        }
        copies += usize::from(is_sent);
    }
    copies
}

/// Nobody near the node knows the listed ones, nor does an election leave it out.
const LISTS: [&[u64]; 4] = [&[1, 31], &[1, 32], &[1, 33], &[1, 34]];

#[test]
fn a_relay_passes_on_as_many_copies_as_paths_are_asked_for() {
    for (profile, paths, copies) in [
        (Profile::Default, 0, 1),
        (Profile::Default, 1, 1),
        (Profile::Default, 2, 2),
        (Profile::Default, 3, 3),
        (Profile::Default, 200, 3),
        (Profile::Classic, 3, 1),
    ] {
        let mut node = relay(profile, LISTS);
        let request = request(paths, RequestRelays::All, &[]);
        assert_eq!(passed_on(&mut node, profile, &request), copies, "{profile:?} {paths}");
    }
}

/// A node stays silent beyond the neighbours of the neighbours of listed nodes, the origin and the target.
#[test]
fn a_request_is_passed_on_near_the_listed_nodes() {
    for (listed, is_near) in [(50, false), (1, true), (13, true), (34, true)] {
        let request = request(1, RequestRelays::Near, &[49, listed]);
        let copies = passed_on(&mut relay(Profile::Default, LISTS), Profile::Default, &request);
        assert_eq!(copies, usize::from(is_near), "{listed}");
    }
    let beside: [[&[u64]; 4]; 2] = [[&[1, 100], &[1], &[1], &[1]], [&[1], &[1], &[1, 200], &[1]]];
    for ends in beside {
        let request = request(1, RequestRelays::Near, &[]);
        let copies = passed_on(&mut relay(Profile::Default, ends), Profile::Default, &request);
        assert_eq!(copies, 1, "{ends:?}");
    }
}

/// A node between neighbours that all hear each other relays no broadcast, and no such request either.
#[test]
fn a_request_is_passed_on_by_the_relays_of_broadcasts() {
    let joined: [&[u64]; 4] =
        [&[1, 12, 13, 14], &[1, 11, 13, 14], &[1, 11, 12, 14], &[1, 11, 12, 13]];
    for (lists, relays, copies) in [
        (joined, RequestRelays::Elected, 0),
        (joined, RequestRelays::All, 1),
        (LISTS, RequestRelays::Elected, 1),
    ] {
        let request = request(1, relays, &[]);
        let passed = passed_on(&mut relay(Profile::Default, lists), Profile::Default, &request);
        assert_eq!(passed, copies, "{relays:?} {lists:?}");
    }
}

/// The relays of the primary and of the backup between node 0 and the farthest one some seconds after the
/// first packet, and how often a request was passed on until then.
fn found(world: &mut MeshWorld, to: usize) -> ([Option<Vec<usize>>; 2], u64) {
    world.run_for(5 * SECOND);
    let relayed = |world: &MeshWorld| world.sum(|counters| counters.requests_relayed);
    let before = relayed(world);
    world.ping(0, to, PathClass::BULK);
    world.run_for(5 * SECOND);
    (world.installed(0, to), relayed(world) - before)
}

/// A far target costs less than three requests of each node, with its backup, which shares no relay
/// with the primary where the graph allows it.
#[test]
fn a_far_target_is_found_with_a_backup_by_few_requests() {
    let (mut possible, mut all) = (0, 0);
    for seed in 0..10 {
        let nodes = 400;
        let mut world = world(Topology::random_geometric(nodes, 8, seed), Profile::Default, seed);
        let far = farthest(&world);
        let ([primary, backup], relayed) = found(&mut world, far);
        let primary: BTreeSet<usize> = primary.unwrap().into_iter().collect();
        println!("seed {seed}: {} relays, {relayed} requests", primary.len());
        all += relayed;
        let near = world.topology().neighbours(|_| true);
        if is_reachable_without(&near, 0, far, &primary) {
            possible += 1;
            assert!(backup.unwrap().iter().all(|relay| !primary.contains(relay)), "seed {seed}");
        }
        assert!(world.violations().is_empty(), "{:?}", world.violations());
    }
    assert!(possible > 0);
    assert!(all <= 10 * 400 * 3, "{all}");
}

/// On a ring no node near one path is on the other: the backup is searched in the whole mesh.
#[test]
fn a_backup_far_from_the_primary_is_found() {
    let mut world = world(Topology::ring(40), Profile::Default, 1);
    let (installed, _) = found(&mut world, 15);
    let relays = |from: usize, to: usize| Some((from..to).collect::<Vec<_>>());
    let back = relays(16, 40).map(|relays| relays.into_iter().rev().collect());
    assert_eq!(installed, [relays(1, 15), back]);
}

/// So is a path over a link that comes back, within the time that any link takes.
#[test]
fn a_link_far_from_the_present_path_is_used_again() {
    let mut world = world(Topology::ring(40), Profile::Default, 1);
    found(&mut world, 15);
    let link = world.link(7, 8).unwrap();
    let used = |world: &mut MeshWorld, time| {
        let end = world.now() + time;
        while world.now() < end {
            world.ping(0, 15, PathClass::BULK);
            world.run_for(50 * MS);
        }
    };
    let over = |world: &MeshWorld| {
        world.installed(0, 15).map(|relays| relays.is_some_and(|it| it.contains(&7)))
    };
    world.cut(link, LinkCut::Carrier);
    used(&mut world, 3 * SECOND);
    assert_eq!(over(&world), [false, false]);
    world.heal(link);
    used(&mut world, 2 * SECOND);
    assert!(over(&world).contains(&true));
}

/// The long way around is faster than the direct link, and so is found first: both ends take the shorter path
/// when they know it, not only the one that has searched.
#[test]
fn both_ends_of_a_search_take_the_shorter_path() {
    let slow = Duration::from_millis(5);
    let mut topology = Topology::ring(6);
    for link in topology.links.iter_mut().filter(|link| link.ends.iter().sum::<usize>() == 1) {
        for direction in &mut link.directions {
            direction.delay = slow;
        }
    }
    let mut world = MeshWorld::new(topology, Profile::Default, 1, |_| {});
    world.run_for(Duration::from_secs(1));
    world.ping(0, 1, PathClass::BULK);
    world.run_for(Duration::from_secs(1));
    for (from, to) in [(0, 1), (1, 0)] {
        let number = world.ping(from, to, PathClass::BULK);
        world.run_for(Duration::from_secs(1));
        let rtt = 2 * (slow + Duration::from_micros(20));
        assert_eq!(world.pings()[number].rtt, Some(rtt), "{from} to {to}");
    }
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}
