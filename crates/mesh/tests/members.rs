//! What strangers and members can do in a mesh whose nodes have keys of their own: a stranger nothing,
//! a member nothing in another's name.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod segment;

use gatewright_mesh::message::{Message, RequestRelays, RouteReply, RouteRequest};
use gatewright_mesh::{
    MeshCounters, MeshEvent, MeshInput, MeshMembers, MeshNode, MeshNodeKey, MeshOutput, MeshTrust,
    NodeId, PathClass, PathId, Reason,
};
use gatewright_wire::mpls::Label;
use segment::{
    Frame, MS, STRANGER, Segment, address, alive, judge_receivers, node, own_address,
    replay_challenges, written,
};
use std::collections::BTreeSet;

/// Octets of a signature with its key and certificate (the protocol's page).
const SIGNATURE_LEN: usize = 4 + 32 + 64 + 64;
/// Octets of the trailer's fixed part.
const TRAILER_LEN: usize = 16;

fn key(octet: usize) -> MeshNodeKey {
    MeshNodeKey::of_seed([u8::try_from(octet).unwrap(); 32]).unwrap()
}

/// A mesh whose members an authority has admitted.
fn admitted(index: usize) -> MeshTrust {
    let authority = key(100);
    let own = key(index + 1);
    let certificate = authority.admit(&own.public()).unwrap();
    let members = MeshMembers { authorities: vec![authority.public()], ..MeshMembers::default() };
    MeshTrust::Pki(Box::new((own.with_certificate(certificate), members)))
}

/// A mesh whose first members are listed.
fn listed(index: usize, count: usize) -> MeshTrust {
    let listed: BTreeSet<_> = (0..count).map(|index| key(index + 1).public()).collect();
    let members = MeshMembers { listed, ..MeshMembers::default() };
    MeshTrust::Pki(Box::new((key(index + 1), members)))
}

fn member(index: usize, epoch: u32) -> MeshNode {
    node(index, epoch, &admitted(index))
}

fn members(count: usize) -> Segment {
    Segment::of((0..count).map(|index| member(index, 1)).collect())
}

fn ids(mesh: &Segment) -> Vec<NodeId> {
    mesh.nodes.iter().map(MeshNode::id).collect()
}

/// The identity follows from the key; members hear each other after a challenge for each neighbour,
/// whether an authority has admitted them or they are listed.
#[test]
fn members_hear_each_other() {
    let by_list = Segment::of((0..3).map(|index| node(index, 1, &listed(index, 3))).collect());
    for mesh in [members(3), by_list] {
        for index in 0..3 {
            let counters = mesh.counters(index);
            assert_eq!(mesh.nodes[index].id(), key(index + 1).public().node());
            assert_eq!(mesh.nodes[index].neighbours().len(), 2);
            assert_eq!((counters.forged, counters.replayed, counters.unsigned), (0, 0, 0));
            assert!(counters.challenges <= 4, "{counters:?}");
        }
    }
}

/// A stranger with a key that nobody has admitted, one that another authority has, one who is
/// revoked, one who has the mesh's former key, and one without any.
#[test]
fn who_is_not_admitted_is_not_heard() {
    let mut mesh = members(2);
    let other = key(101);
    let certificate = other.admit(&key(50).public()).unwrap();
    let of = |own: MeshNodeKey| {
        let authorities = vec![key(100).public()];
        let members = MeshMembers { authorities, ..MeshMembers::default() };
        MeshTrust::Pki(Box::new((own, members)))
    };
    mesh.nodes.push(node(2, 1, &of(key(50))));
    mesh.nodes.push(node(3, 1, &of(key(50).with_certificate(certificate))));
    mesh.nodes.push(node(4, 1, &MeshTrust::Open));
    mesh.run_for(5_000 * MS);
    assert!(mesh.counters(0).forged >= 6, "{:?}", mesh.counters(0));
    assert_eq!(mesh.nodes[0].neighbours(), [mesh.nodes[1].id()]);

    let mut mesh = members(3);
    let MeshTrust::Pki(own) = admitted(0) else { panic!() };
    let (own, mut members) = *own;
    members.revoked.insert(key(3).public());
    mesh.nodes[0] = node(0, 2, &MeshTrust::Pki(Box::new((own, members))));
    mesh.run_for(5_000 * MS);
    assert_eq!(mesh.nodes[0].neighbours(), [mesh.nodes[1].id()], "without the revoked one");
    assert_eq!(mesh.nodes[1].neighbours().len(), 2, "where it is not revoked");
}

/// Recorded challenges use up neither the answers that a neighbour which starts again needs, nor the checks of
/// signatures.
#[test]
fn recorded_challenges_keep_no_neighbour_out() {
    replay_challenges(members(2), member);
}

/// Messages for one neighbour have a MAC of the key that the two share; all others, and challenges
/// with their replies, a signature.
#[test]
fn the_two_kinds_of_proofs_are_where_the_page_has_them() {
    let mut mesh = members(2);
    mesh.send(0, 1);
    mesh.run_for(1_000 * MS);
    let mut seen = BTreeSet::new();
    for (_, to, octets) in &mesh.recorded {
        let kind = octets[1];
        let end = 20 + usize::from(u16::from_be_bytes([octets[2], octets[3]]));
        let is_said = matches!(kind, 2 | 3 | 4 | 6 | 7);
        let trailer = &octets[end + if is_said { SIGNATURE_LEN } else { 0 }..];
        let is_signed = to.is_none() || kind == 10 || kind == 11;
        let (algorithm, proof) = if is_signed { (3, SIGNATURE_LEN) } else { (2, 16) };
        assert_eq!((trailer[0], trailer.len()), (algorithm, TRAILER_LEN + proof), "type {kind}");
        seen.insert(kind);
    }
    assert!(seen.is_superset(&BTreeSet::from([1, 2, 3, 5, 9, 10, 11])), "{seen:?}");
}

/// No octet of any message can be changed, and none be left out.
#[test]
fn no_octet_can_be_changed() {
    let mut mesh = members(2);
    mesh.send(0, 1);
    mesh.run_for(200 * MS);
    let kinds: BTreeSet<u8> = mesh.recorded.iter().map(|frame| frame.2[1]).collect();
    for kind in kinds {
        let of_first = |frame: &&Frame| frame.0 == 0 && frame.2[1] == kind;
        let Some((.., octets)) = mesh.recorded.iter().find(of_first).cloned() else { continue };
        for at in 4..octets.len() {
            let mut changed = octets.clone();
            changed[at] ^= 1;
            let before = mesh.counters(1);
            mesh.inject(1, own_address(0), &changed);
            let after = mesh.counters(1);
            let dropped = |of: &MeshCounters| of.forged + of.malformed + of.unknown_index + of.own;
            assert_eq!(dropped(&after), dropped(&before) + 1, "type {kind}, octet {at}");
            // Signatures that are checked in a second are bounded.
            mesh.now += MS;
        }
        for len in (0..octets.len()).step_by(7) {
            let before = mesh.counters(1);
            mesh.inject(1, own_address(0), &octets[..len]);
            let after = mesh.counters(1);
            assert!(after.forged + after.malformed > before.forged + before.malformed, "{len}");
        }
    }
    assert_eq!(mesh.nodes[1].neighbours(), [mesh.nodes[0].id()]);
}

/// All that was sent is sent again: at once, and after the sender's restart.
#[test]
fn what_was_recorded_is_not_accepted_again() {
    let mut mesh = members(2);
    mesh.send(0, 1);
    mesh.run_for(1_000 * MS);
    let of_first: Vec<Vec<u8>> =
        mesh.recorded.iter().filter(|frame| frame.0 == 0).map(|frame| frame.2.clone()).collect();
    let received = mesh.counters(1);
    mesh.recorded.clear();
    for octets in &of_first {
        mesh.inject(1, own_address(0), octets);
    }
    let count = u64::try_from(of_first.len()).unwrap();
    assert_eq!(mesh.counters(1).replayed, received.replayed + count, "{:?}", mesh.counters(1));
    assert!(mesh.recorded.is_empty(), "{:?}", mesh.recorded);

    mesh.nodes[0] = member(0, 2);
    mesh.run_for(5_000 * MS);
    assert_eq!(mesh.nodes[1].neighbours(), [mesh.nodes[0].id()]);
    mesh.events.clear();
    for octets in &of_first {
        mesh.inject(1, own_address(0), octets);
    }
    let changed = mesh.events.iter().filter(|(_, event)| {
        matches!(event, MeshEvent::NeighbourDown(..) | MeshEvent::NeighbourUp(_))
    });
    assert_eq!(changed.count(), 0, "{:?}", mesh.events);
}

/// A message for one node is none for another, nor from another address.
#[test]
fn a_message_is_for_whom_it_was_sent() {
    judge_receivers(members(3));
}

/// Strangers: errors, an answer that would draw traffic (a blackhole), 2,000 requests, and 2,000
/// names with keys of their own.
#[test]
fn strangers_change_nothing() {
    let mut mesh = members(2);
    mesh.send(0, 1);
    let [first, second] = ids(&mesh)[..] else { panic!() };
    let path = mesh.paths.iter().find(|(node, _)| *node == 0).unwrap().1;
    let error = Message::PathEnd { path, reporter: second, reason: Reason::SILENT };
    mesh.inject(0, own_address(1), &written(&error, second, 1, 1_000_000));
    let blackhole = PathId { origin: first, target: NodeId(77), number: 1 };
    let reply = Message::Reply(RouteReply {
        path: blackhole,
        request: 1,
        label: Label(100),
        class: 2,
        frame_limit: 1_500,
        position: 0,
        cost: 1,
        delay_us: 1,
        station: None,
        record: Vec::new(),
    });
    mesh.inject(0, address(STRANGER), &written(&alive(), NodeId(77), 1, 1));
    mesh.inject(0, address(STRANGER), &written(&reply, NodeId(77), 1, 2));
    for number in 0..2_000 {
        let request = Message::Request(request(NodeId(78), number));
        mesh.inject(0, address(STRANGER), &written(&request, NodeId(77), 1, number + 3));
    }
    let counters = mesh.counters(0);
    assert_eq!((counters.forged, counters.requests_relayed), (2_003, 0), "{counters:?}");
    assert!(!mesh.paths.iter().any(|(_, known)| *known == blackhole));
    let lost = mesh.events.iter().filter(|(_, event)| matches!(event, MeshEvent::PathLost { .. }));
    assert_eq!(lost.count(), 0);

    for number in 0..2_000_u16 {
        let mut seed = [9; 32];
        seed[..2].copy_from_slice(&number.to_be_bytes());
        let own = MeshNodeKey::of_seed(seed).unwrap();
        let listed = BTreeSet::from([own.public()]);
        let members = MeshMembers { listed, ..MeshMembers::default() };
        let mut other = node(8, 1, &MeshTrust::Pki(Box::new((own, members))));
        other.handle(5_000 * MS, MeshInput::Tick);
        while let Some(output) = other.poll_output() {
            if let MeshOutput::Send { octets, .. } = output {
                mesh.inject(0, address(STRANGER), &octets);
            }
        }
    }
    assert_eq!(mesh.counters(0).forged, 4_003, "{:?}", mesh.counters(0));
    assert_eq!(mesh.nodes[0].neighbours(), [second]);
}

fn request(target: NodeId, number: u32) -> RouteRequest {
    RouteRequest {
        origin: NodeId(77),
        origin_epoch: 1,
        request: number,
        target,
        class: 2,
        background: false,
        routed: false,
        relays: RequestRelays::All,
        avoids: false,
        frame_limit: 0,
        paths: 3,
        hops_left: 8,
        listed: Vec::new(),
        record: Vec::new(),
    }
}

/// The mesh finds its way over members, and its broadcasts arrive.
#[test]
fn paths_are_found_and_broadcasts_arrive() {
    let mut mesh = members(3);
    mesh.send(0, 2);
    mesh.run_for(100 * MS);
    let third = mesh.nodes[2].id();
    let found = |(node, event): &(usize, MeshEvent)| {
        *node == 0
            && matches!(event, MeshEvent::PathFound { destination, .. } if *destination == third)
    };
    assert!(mesh.events.iter().any(found), "{:?}", mesh.events);
    let longest = mesh.nodes[0].broadcast_max();
    let packet = vec![7; longest];
    mesh.nodes[0].handle(mesh.now, MeshInput::Broadcast { from: None, packet: &packet });
    mesh.settle();
    assert_eq!([1, 2].map(|node| mesh.counters(node).broadcasts), [1, 1]);
    let frames = mesh.recorded.iter().filter(|frame| frame.2[1] == 4);
    assert_eq!(frames.map(|frame| frame.2.len()).max(), Some(1_500));
    mesh.run_for(10_000 * MS);
    let lost = mesh.events.iter().filter(|(_, event)| matches!(event, MeshEvent::PathLost { .. }));
    assert_eq!(lost.count(), 0);
    let class = PathClass::BULK;
    let input = MeshInput::Packet { destination: third, class, packet: b"again" };
    mesh.nodes[0].handle(mesh.now, input);
    mesh.settle();
    assert_eq!(mesh.counters(0).unsigned, 0);
}
