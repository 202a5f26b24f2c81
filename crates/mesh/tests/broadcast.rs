//! Packets for all nodes: those that are too long for one message, and those sent again over links that lose
//! frames.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

use gatewright_mesh::message::{Alive, Broadcast, Message, Sender};
use gatewright_mesh::{
    AUTHENTICATION_LEN, LinkProperties, MeshInput, MeshKeys, MeshNode, MeshOutput, MeshSettings,
    MeshTrust, NodeId, Profile, RelayDelay,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use std::time::Duration;

const LINK: LinkIndex = LinkIndex(0);

fn node(id: u64, trust: MeshTrust) -> MeshNode {
    let mut settings = MeshSettings::new(NodeId(id), 1, Profile::Default);
    settings.trust = trust;
    let mut node = MeshNode::new(settings);
    let properties = LinkProperties::default();
    node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
    node
}

/// The messages in which a node sends a packet to all.
fn messages(node: &mut MeshNode, packet: &[u8]) -> Vec<Vec<u8>> {
    node.handle(Duration::ZERO, MeshInput::Broadcast { from: None, packet });
    let outputs = std::iter::from_fn(|| node.poll_output());
    let sent = outputs.filter_map(|output| match output {
        MeshOutput::Send { octets, .. } => Some(octets),
        _ => None,
    });
    sent.collect()
}

/// What a node delivers when a message arrives, and how many messages it relays.
fn receive(node: &mut MeshNode, octets: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let from = LinkAddress::ethernet([2, 0, 0, 0, 0, 1]);
    node.handle(Duration::ZERO, MeshInput::Received { link: LINK, from, octets });
    let (mut packets, mut relayed) = (Vec::new(), 0);
    while let Some(output) = node.poll_output() {
        match output {
            MeshOutput::Deliver { packet, .. } => packets.push(packet),
            MeshOutput::Send { .. } => relayed += 1,
            _ => {}
        }
    }
    (packets, relayed)
}

fn packet(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Each message fits into Ethernet's payload, with a MAC or without.
#[test]
fn a_long_packet_goes_in_parts() {
    let keys = MeshKeys::parse(&"5a".repeat(32)).unwrap();
    for (trust, trailer) in [(MeshTrust::Open, 0), (MeshTrust::Psk(keys), AUTHENTICATION_LEN)] {
        let mut sender = node(1, trust);
        let whole = 1_460 - trailer;
        for (len, parts) in [(0, 1), (60, 1), (whole, 1), (whole + 1, 2), (1_514, 2), (9_014, 7)] {
            let sent = messages(&mut sender, &packet(len));
            assert_eq!(sent.len(), parts, "{len}");
            assert!(sent.iter().all(|octets| octets.len() <= 1_500));
        }
        assert_eq!(messages(&mut sender, &packet(15 * whole)).len(), 15);
        assert_eq!(sender.broadcast_max(), 15 * whole);
        assert!(messages(&mut sender, &packet(15 * whole + 1)).is_empty());
        assert_eq!(sender.counters().broadcasts_too_long, 1);
    }
}

/// In any order, with repetitions; each part is relayed as it comes.
#[test]
fn parts_are_put_together() {
    let (mut sender, mut receiver) = (node(1, MeshTrust::Open), node(2, MeshTrust::Open));
    let long = packet(4_000);
    let sent = messages(&mut sender, &long);
    assert_eq!(sent.len(), 3);
    for (at, whole) in [(2, false), (0, false), (0, false), (1, true), (1, false), (2, false)] {
        let (packets, _) = receive(&mut receiver, &sent[at]);
        let expected: &[Vec<u8>] = if whole { std::slice::from_ref(&long) } else { &[] };
        assert_eq!(packets, expected);
    }
    let counters = receiver.counters();
    assert_eq!((counters.broadcasts, counters.broadcasts_repeated), (1, 3));
    assert_eq!(counters.broadcasts_relayed, 3);
}

/// A packet whose part is lost is dropped when there are too many, of its origin first.
#[test]
fn incomplete_packets_have_a_bound() {
    let mut receiver = node(2, MeshTrust::Open);
    let mut first = node(1, MeshTrust::Open);
    let early = messages(&mut first, &packet(2_000));
    receive(&mut receiver, &early[0]);
    let mut other = node(3, MeshTrust::Open);
    for _ in 0..10 {
        let sent = messages(&mut other, &packet(2_000));
        receive(&mut receiver, &sent[0]);
    }
    assert_eq!(receiver.counters().broadcasts_incomplete, 10 - 4);
    assert_eq!(receive(&mut receiver, &early[1]).0, [packet(2_000)]);
    for origin in 100..140 {
        let sent = messages(&mut node(origin, MeshTrust::Open), &packet(2_000));
        receive(&mut receiver, &sent[0]);
    }
    assert_eq!(receiver.counters().broadcasts_incomplete, 6 + 4 + 40 - 32);
}

/// Parts that contradict each other.
#[test]
fn impossible_parts_are_malformed() {
    let sender = Sender { node: NodeId(1), epoch: 1, sequence: 1 };
    for (parts, part, right) in
        [(0, 0, true), (0, 1, false), (1, 0, false), (2, 1, true), (2, 2, false), (15, 14, true)]
    {
        let message = Message::Broadcast(Broadcast {
            origin: NodeId(1),
            origin_epoch: 1,
            number: 7,
            hops_left: 1,
            parts,
            part,
            stations: false,
            payload: b"part",
        });
        let octets = message.encode(sender, Profile::Default);
        assert_eq!(Message::decode(&octets, Profile::Default).is_ok(), right, "{part} of {parts}");
    }
}

/// A node that has heard I'M ALIVE each 2 s of node 2 for a minute but for those that `is_lost` names, and the
/// time.
fn beyond_a_link(profile: Profile, is_lost: fn(u32) -> bool) -> (MeshNode, Duration) {
    let mut node = MeshNode::new(MeshSettings::new(NodeId(1), 1, profile));
    let properties = LinkProperties::default();
    node.handle(Duration::ZERO, MeshInput::LinkUp { link: LINK, properties });
    let alive = Message::Alive(Alive {
        interval_ms: 2_000,
        more: false,
        part: 0,
        wants_list: false,
        delay: RelayDelay::default(),
        neighbours: None,
        labels: &[],
    });
    let mut now = Duration::ZERO;
    for number in (0..31).filter(|&number| !is_lost(number)) {
        now = Duration::from_secs(2) * number;
        let octets = alive.encode(Sender { node: NodeId(2), epoch: 1, sequence: number }, profile);
        from_node_2(&mut node, now, &octets);
    }
    while node.poll_output().is_some() {}
    (node, now)
}

fn from_node_2(node: &mut MeshNode, now: Duration, octets: &[u8]) {
    let from = LinkAddress::ethernet([2, 0, 0, 0, 0, 2]);
    node.handle(now, MeshInput::Received { link: LINK, from, octets });
}

/// The BROADCASTs that a node sends now.
fn sent_now(node: &mut MeshNode) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    while let Some(output) = node.poll_output() {
        match output {
            MeshOutput::Send { octets, .. } if octets[1] == 4 => sent.push(octets),
            _ => {}
        }
    }
    sent
}

/// When a node sends BROADCASTs in a second after one was given to it, in milliseconds.
fn sendings(node: &mut MeshNode, start: Duration, packets: usize) -> Vec<u128> {
    for _ in 0..packets {
        node.handle(start, MeshInput::Broadcast { from: None, packet: b"to all" });
    }
    let mut times = vec![0; sent_now(node).len()];
    while let Some(at) = node.poll_timeout().filter(|&at| at < start + Duration::from_secs(1)) {
        let now = at.max(start);
        node.handle(now, MeshInput::Tick);
        let sent = sent_now(node).len();
        times.extend(std::iter::repeat_n(now.checked_sub(start).unwrap().as_millis(), sent));
    }
    times
}

/// A quarter of the frames is lost: of three sendings, all are lost of one packet in 64.
#[test]
fn a_broadcast_is_sent_again_where_frames_are_lost() {
    let every_fourth = |number| number % 4 == 3;
    let (mut node, now) = beyond_a_link(Profile::Default, every_fourth);
    assert_eq!(sendings(&mut node, now, 1), [0, 20, 60]);
    assert_eq!(node.counters().broadcasts_resent, 2);
    // As the paper's, and where nothing is lost.
    let (mut node, now) = beyond_a_link(Profile::Classic, every_fourth);
    assert_eq!(sendings(&mut node, now, 1), [0]);
    let (mut node, now) = beyond_a_link(Profile::Default, |_| false);
    assert_eq!(sendings(&mut node, now, 1), [0]);
}

/// What a neighbour passes on has reached it, and is not sent to it again.
#[test]
fn a_broadcast_that_a_neighbour_passes_on_is_not_sent_again() {
    let (mut node, now) = beyond_a_link(Profile::Default, |number| number % 4 == 3);
    node.handle(now, MeshInput::Broadcast { from: None, packet: b"to all" });
    let sent = sent_now(&mut node);
    let (_, Message::Broadcast(broadcast)) = Message::decode(&sent[0], Profile::Default).unwrap()
    else {
        unreachable!("only BROADCASTs are listed")
    };
    let passed = Message::Broadcast(Broadcast { hops_left: 63, ..broadcast });
    let sender = Sender { node: NodeId(2), epoch: 1, sequence: 100 };
    from_node_2(&mut node, now, &passed.encode(sender, Profile::Default));
    let later = now + Duration::from_secs(1);
    node.handle(later, MeshInput::Tick);
    assert!(sent_now(&mut node).is_empty());
    assert_eq!(node.counters().broadcasts_resent, 0);
}

/// Of a hundred at the same time, 64 are sent again.
#[test]
fn broadcasts_to_be_sent_again_have_a_bound() {
    let (mut node, now) = beyond_a_link(Profile::Default, |number| number % 4 == 3);
    assert_eq!(sendings(&mut node, now, 100).len(), 100 + 2 * 64);
    let counters = node.counters();
    assert_eq!((counters.broadcasts_resent, counters.broadcasts_not_resent), (2 * 64, 36));
}
