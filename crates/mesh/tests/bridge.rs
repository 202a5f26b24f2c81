//! Stations behind nodes, in virtual time: one port of a segment forwards, another one takes over, and a
//! station that moves is found again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_mesh::simulate::MeshWorld;
use gatewright_mesh::{MeshSettings, Profile};
use gatewright_sim::{Random, Topology};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// The promise of the protocol's page.
const TAKEOVER_MAX: Duration = SECOND;

fn same(_: &mut MeshSettings) {}

fn world(topology: Topology, seed: u64) -> MeshWorld {
    MeshWorld::new(topology, Profile::Default, seed, same)
}

fn assert_sound(world: &MeshWorld) {
    assert!(world.violations().is_empty(), "{:?}", world.violations());
}

/// Pings between two stations each 10 ms for a time; how many were answered, and the longest hole.
fn pings(world: &mut MeshWorld, (from, to): (usize, usize), time: Duration) -> (usize, Duration) {
    let first = world.station_pings().len();
    let (start, end) = (world.now(), world.now() + time);
    while world.now() < end {
        world.station_ping(from, to);
        world.run_for(10 * MS);
    }
    world.run_for(100 * MS);
    let answered = world.station_pings()[first..].iter().filter(|ping| ping.rtt.is_some());
    let mut times = vec![start];
    times.extend(answered.map(|ping| ping.sent_at));
    times.push(end);
    let hole = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
    (times.len() - 2, hole.unwrap())
}

/// Two stations behind the ends of a line of four nodes: the first packet waits for its path, in both
/// profiles; a frame for all reaches every station once.
#[test]
fn stations_behind_two_nodes_reach_each_other() {
    for profile in [Profile::Default, Profile::Classic] {
        let mut world = MeshWorld::new(Topology::line(4), profile, 1, same);
        let (near, far) = (world.add_segment(&[0]), world.add_segment(&[3]));
        let (a, b, c) = (world.add_station(near), world.add_station(far), world.add_station(near));
        world.run_for(3 * SECOND);
        // As by ARP: each is learnt when it speaks.
        let numbers = [a, b].map(|station| world.station_broadcast(station));
        world.run_for(SECOND);
        for (number, heard) in [(numbers[0], [0, 1, 1]), (numbers[1], [1, 0, 1])] {
            let counts = [a, b, c].map(|station| world.heard(station, number));
            assert_eq!(counts, heard, "{profile:?}: frame {number} for all");
        }
        let (answered, _) = pings(&mut world, (a, b), SECOND);
        assert_eq!(answered, 100, "{profile:?}");
        let ping = world.station_pings()[50];
        // Three links of 100 us and 20 us, and two segments of 10 us, both ways.
        assert_eq!((ping.rtt, ping.copies), (Some(Duration::from_micros(2 * (3 * 120 + 20))), 1));
        assert_sound(&world);
    }
}

/// Stations of one segment need no node: their frames do not cross the mesh.
#[test]
fn frames_between_stations_of_a_segment_stay_there() {
    let mut world = world(Topology::line(2), 1);
    let (near, far) = (world.add_segment(&[0]), world.add_segment(&[1]));
    let (a, b) = (world.add_station(near), world.add_station(near));
    world.run_for(2 * SECOND);
    for station in [a, b] {
        world.station_broadcast(station);
    }
    world.run_for(SECOND);
    let before = world.frames_on(far);
    let (answered, _) = pings(&mut world, (a, b), SECOND);
    assert_eq!(answered, 100);
    assert!(world.station_pings().iter().all(|ping| ping.copies == 1));
    assert_eq!(world.frames_on(far), before);
    assert_eq!(world.sum(|counters| counters.searches), 0);
    assert_sound(&world);
}

/// Nodes 0 and 1 are on one segment and linked; stations are there and behind node 2.
fn shared(seed: u64) -> (MeshWorld, [usize; 2], [usize; 2]) {
    let mut world = world(Topology::grid(3, 1), seed);
    let (shared, far) = (world.add_segment(&[0, 1]), world.add_segment(&[2]));
    let stations = [world.add_station(shared), world.add_station(far)];
    (world, [shared, far], stations)
}

/// From the very start no frame goes around, whatever stations send while nodes come up.
#[test]
fn two_nodes_on_one_segment_make_no_loop() {
    for seed in 0..50 {
        let (mut world, [shared, far], [a, b]) = shared(seed);
        let mut numbers = Vec::new();
        for _ in 0..400 {
            numbers.push(world.station_broadcast(a));
            numbers.push(world.station_broadcast(b));
            world.run_for(10 * MS);
            assert!(world.forwarders(shared).len() <= 1, "seed {seed} at {:?}", world.now());
        }
        world.run_for(SECOND);
        assert_eq!(world.forwarders(shared).len(), 1, "seed {seed}");
        for &number in &numbers {
            for station in [a, b] {
                assert!(world.heard(station, number) <= 1, "seed {seed}: {number} came twice");
            }
        }
        // The last ones arrived, and each was sent on each segment once.
        let last = numbers[numbers.len() - 2..].to_vec();
        assert_eq!((world.heard(b, last[0]), world.heard(a, last[1])), (1, 1), "seed {seed}");
        assert!(world.frames_on(shared) <= 800 && world.frames_on(far) <= 800, "seed {seed}");
        assert_sound(&world);
    }
}

/// A ring of four, which holds together without one node: a segment of two of them, and a station there
/// and one elsewhere that have said something for all.
fn ring_with_stations(seed: u64) -> (MeshWorld, usize, (usize, usize)) {
    let mut world = world(Topology::ring(4), seed);
    let (shared, far) = (world.add_segment(&[0, 1]), world.add_segment(&[2]));
    let (a, b) = (world.add_station(shared), world.add_station(far));
    world.run_for(3 * SECOND);
    for station in [a, b] {
        world.station_broadcast(station);
    }
    (world, shared, (a, b))
}

/// The node that forwards is killed: within a second another one forwards, and stations reach each other
/// again though none of them has said anything for all meanwhile.
#[test]
fn another_node_takes_over() {
    for seed in 0..20 {
        let (mut world, shared, (a, b)) = ring_with_stations(seed);
        let (answered, _) = pings(&mut world, (b, a), 5 * SECOND);
        assert_eq!(answered, 500, "seed {seed}");
        let [first] = world.forwarders(shared)[..] else { panic!("seed {seed}: one forwards") };
        world.kill(first);
        let (_, hole) = pings(&mut world, (b, a), 5 * SECOND);
        assert_eq!(world.forwarders(shared), [1 - first], "seed {seed}");
        // The search that found nobody is repeated in rings.
        assert!(hole <= TAKEOVER_MAX + 500 * MS, "seed {seed}: {hole:?}");
        // It comes back and interrupts nothing.
        world.reboot(first);
        let (_, hole) = pings(&mut world, (b, a), 5 * SECOND);
        assert!(hole <= 20 * MS, "seed {seed}: {hole:?}");
        assert_eq!(world.forwarders(shared), [1 - first], "seed {seed}");
        assert_sound(&world);
    }
}

/// Both nodes of a segment start again, one after the other: the one that takes over has heard nothing of the
/// stations elsewhere, and the switch has them at the port that stands by.
#[test]
fn a_node_that_has_started_lately_takes_over() {
    for seed in 0..5 {
        let (mut world, shared, (a, b)) = ring_with_stations(seed);
        pings(&mut world, (a, b), 2 * SECOND);
        for round in 0..4 {
            let what = format!("seed {seed}, round {round}");
            let [first] = world.forwarders(shared)[..] else { panic!("{what}: one forwards") };
            world.kill(1 - first);
            world.reboot(1 - first);
            pings(&mut world, (a, b), 6 * SECOND);
            world.kill(first);
            pings(&mut world, (a, b), 200 * MS);
            world.reboot(first);
            let (_, hole) = pings(&mut world, (a, b), 5 * SECOND);
            assert!(hole <= TAKEOVER_MAX + 500 * MS, "{what}: {hole:?}");
            assert_eq!(world.forwarders(shared), [1 - first], "{what}");
        }
        assert_sound(&world);
    }
}

/// A station that moves to another node is found again when it has said something there.
#[test]
fn a_station_that_moves_is_found_again() {
    let mut world = world(Topology::line(4), 1);
    let segments = [0, 1, 3].map(|node| world.add_segment(&[node]));
    let (a, b) = (world.add_station(segments[0]), world.add_station(segments[1]));
    world.run_for(2 * SECOND);
    world.station_broadcast(b);
    for to in [2, 1, 2] {
        let (answered, _) = pings(&mut world, (a, b), 2 * SECOND);
        assert_eq!(answered, 200, "before it moves to segment {to}");
        world.move_station(b, segments[to]);
        // Its first frame there is for one station, not for all.
        world.station_ping(b, a);
        let (_, hole) = pings(&mut world, (a, b), 2 * SECOND);
        assert!(hole <= 30 * MS, "{hole:?} after it moved to segment {to}");
    }
    assert_sound(&world);
}

/// Two segments become one while their nodes forward: frames do not go around, and one of them ceases.
#[test]
fn segments_that_become_one_make_no_storm() {
    for seed in 0..20 {
        let mut world = world(Topology::line(3), seed);
        let (left, right) = (world.add_segment(&[0]), world.add_segment(&[2]));
        let (a, b) = (world.add_station(left), world.add_station(right));
        world.run_for(3 * SECOND);
        let before = world.frames_on(left) + world.frames_on(right);
        world.join_segments(left, right);
        for _ in 0..100 {
            world.station_broadcast(a);
            world.station_broadcast(b);
            world.run_for(5 * MS);
        }
        world.run_for(SECOND);
        assert_eq!(world.forwarders(left).len(), 1, "seed {seed}");
        // 200 frames, each sent once more at the most by each node.
        let frames = world.frames_on(left) + world.frames_on(right) - before;
        assert!(frames <= 3 * 200, "seed {seed}: {frames}");
        let number = world.station_broadcast(a);
        world.run_for(SECOND);
        assert_eq!(world.heard(b, number), 1, "seed {seed}");
        assert_sound(&world);
    }
}

/// Octets that anybody on a segment can send as hellos.
#[test]
fn any_octets_are_a_hello_or_counted() {
    use gatewright_mesh::message::{Message, PortHello, Sender};
    use gatewright_mesh::{BridgePort, MeshInput, MeshNode, NodeId};
    let mut node = MeshNode::new(MeshSettings::new(NodeId(9), 1, Profile::Default));
    let (port, from) = (BridgePort(0), gatewright_packet::LinkAddress::NONE);
    node.handle(Duration::ZERO, MeshInput::PortUp { port, address: from });
    let stations: Vec<u8> = (1..=64_u64).flat_map(u64::to_be_bytes).collect();
    let hello = Message::PortHello(PortHello {
        port: 1,
        interval_ms: 300,
        forwards: true,
        ready: true,
        stations: &stations,
    });
    let mut random = Random::new(1);
    let mut now = Duration::ZERO;
    for number in 0..20_000_u64 {
        now += MS;
        let sender = Sender { node: NodeId(random.below(1 << 20)), epoch: 1, sequence: 1 };
        let mut octets = hello.encode(sender, Profile::Default);
        if number % 2 == 0 {
            let at = usize::try_from(random.below(octets.len().try_into().unwrap())).unwrap();
            octets[at] = u8::try_from(random.below(256)).unwrap();
            octets.truncate(usize::try_from(random.below(600)).unwrap());
        }
        node.handle(now, MeshInput::PortHello { port, from, octets: &octets });
        node.handle(now, MeshInput::Tick);
        while node.poll_output().is_some() {}
        // A port that always hears another one forward never does.
        assert!(!node.forwards(port));
    }
    assert!(node.counters().malformed > 1_000);
    assert!(node.stations().count() <= 512);
}

/// Whatever comes at a port, tables stay within their bounds.
#[test]
fn tables_of_stations_are_bounded() {
    use gatewright_mesh::{BridgePort, MeshInput, MeshNode, NodeId, PortVerdict};
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, Profile::Default));
    let mut random = Random::new(1);
    let ports = [BridgePort(0), BridgePort(1), BridgePort(2)];
    for port in ports {
        let address = gatewright_packet::LinkAddress::NONE;
        node.handle(Duration::ZERO, MeshInput::PortUp { port, address });
    }
    let mut now = Duration::ZERO;
    for _ in 0..5 {
        now += 300 * MS;
        node.handle(now, MeshInput::Tick);
    }
    assert!(ports.iter().all(|&port| node.forwards(port)));
    for _ in 0..5_000 {
        now += MS;
        let (source, to) = (NodeId(2 + random.below(1 << 40)), NodeId(random.below(1 << 40)));
        let port = ports[usize::try_from(random.below(3)).unwrap()];
        let verdict = node.port_frame(now, port, (source, Some(to)), &source.0.to_be_bytes());
        assert_eq!(verdict, PortVerdict::Mesh);
        node.handle(now, MeshInput::Tick);
        while node.poll_output().is_some() {}
    }
    assert_eq!(node.stations().count(), 1_024);
    assert!(node.bridge_counters().full > 3_000);
    // They are silent, and forgotten.
    node.handle(now + Duration::from_mins(6), MeshInput::Tick);
    assert_eq!(node.stations().count(), 0);
}

/// A node with one port, which forwards by the time that is given.
fn node_with_a_port() -> (gatewright_mesh::MeshNode, gatewright_mesh::BridgePort, Duration) {
    use gatewright_mesh::{BridgePort, MeshInput, MeshNode, NodeId};
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, Profile::Default));
    let (port, address) = (BridgePort(0), gatewright_packet::LinkAddress::NONE);
    let mut now = Duration::ZERO;
    node.handle(now, MeshInput::PortUp { port, address });
    for _ in 0..5 {
        now += 300 * MS;
        node.handle(now, MeshInput::Tick);
    }
    (node, port, now)
}

/// When its last port is gone, a node forgets what it has learnt there, and has nothing to do then.
#[test]
fn the_last_port_goes() {
    use gatewright_mesh::{MeshInput, NodeId};
    let (mut node, port, mut now) = node_with_a_port();
    node.port_frame(now, port, (NodeId(7), None), b"a frame for all");
    node.handle(now, MeshInput::PortDown { port });
    for _ in 0..1_000 {
        let Some(due) = node.poll_timeout() else { break };
        now = now.max(due);
        node.handle(now, MeshInput::Tick);
        assert!(node.poll_timeout().is_none_or(|next| next > now), "nothing changes at {now:?}");
    }
}

/// A packet that waits for a path to a station is counted when the station speaks at a port of this node.
#[test]
fn what_waits_for_a_station_that_is_here_is_counted() {
    use gatewright_mesh::{MeshInput, NodeId, PathClass};
    let (mut node, port, now) = node_with_a_port();
    let (station, class) = (NodeId(7), PathClass::default());
    node.handle(now, MeshInput::Packet { destination: station, class, packet: b"a packet" });
    assert_eq!(node.counters().waiting_dropped, 0);
    node.port_frame(now, port, (station, None), b"a frame for all");
    assert_eq!(node.counters().waiting_dropped, 1);
}

/// Who has said hello once is another port for as long as its hello holds, and then a station as any other;
/// what hellos list are addresses of stations.
#[test]
fn a_hello_binds_nobody_for_ever() {
    use gatewright_mesh::message::{Message, PortHello, Sender};
    use gatewright_mesh::{BridgePort, MeshInput, MeshNode, NodeId, PortVerdict};
    use gatewright_packet::LinkAddress;
    let mut node = MeshNode::new(MeshSettings::new(NodeId(9), 1, Profile::Default));
    let port = BridgePort(0);
    let mut now = Duration::ZERO;
    node.handle(now, MeshInput::PortUp { port, address: LinkAddress::NONE });
    let group = 0x0100_5e00_0001_u64;
    let listed: Vec<u8> = [20, 9, group, 1 << 48].into_iter().flat_map(u64::to_be_bytes).collect();
    let stations = &listed;
    let hello = PortHello { port: 1, interval_ms: 300, forwards: true, ready: true, stations };
    let sender = Sender { node: NodeId(8), epoch: 1, sequence: 1 };
    let octets = Message::PortHello(hello).encode(sender, Profile::Default);
    let victim = [2, 0, 0, 0, 0, 7];
    let from = LinkAddress::ethernet(victim);
    node.handle(now, MeshInput::PortHello { port, from, octets: &octets });
    assert_eq!(node.stations().map(|(station, _)| station).collect::<Vec<_>>(), [NodeId(20)]);
    while !node.forwards(port) {
        now += 300 * MS;
        node.handle(now, MeshInput::Tick);
        assert!(now < 10 * SECOND);
    }
    let source = NodeId::of_address(from).unwrap();
    let verdict = node.port_frame(now, port, (source, None), b"of an ordinary host");
    assert_eq!(verdict, PortVerdict::All);
}
