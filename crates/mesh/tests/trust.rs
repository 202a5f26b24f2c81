//! What strangers can do in an authenticated mesh: nothing; each test shows that the same frames do
//! harm in an open one.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may fail loudly"
)]

mod segment;

use gatewright_mesh::message::{
    BypassRequest, LinkBack, Message, RequestRelays, RouteReply, RouteRequest,
};
use gatewright_mesh::{
    MeshCounters, MeshEvent, MeshInput, MeshKeys, MeshTrust, NodeId, PathClass, PathId, Profile,
    Reason,
};
use gatewright_wire::mpls::Label;
use segment::{
    MS, STRANGER, Segment, address, alive, id, judge_receivers, node, own_address,
    replay_challenges, written,
};

fn psk(octet: &str) -> MeshTrust {
    MeshTrust::Psk(MeshKeys::parse(&octet.repeat(32)).unwrap())
}

/// Neighbours of a mesh with one key know each other after the first challenge.
#[test]
fn nodes_with_a_key_hear_each_other() {
    let mesh = Segment::new(3, &psk("5a"));
    for node in 0..3 {
        let counters = mesh.counters(node);
        assert_eq!(mesh.nodes[node].neighbours().len(), 2);
        assert_eq!((counters.forged, counters.replayed), (0, 0), "{counters:?}");
        assert!(counters.challenges <= 2, "one for each neighbour: {counters:?}");
    }
}

/// A node without the key, with another one, and messages without any.
#[test]
fn nodes_without_the_key_are_not_heard() {
    let mut mesh = Segment::new(2, &psk("5a"));
    mesh.nodes.push(node(2, 1, &psk("5b")));
    mesh.nodes.push(node(3, 1, &MeshTrust::Open));
    mesh.run_for(5_000 * MS);
    assert!(mesh.counters(0).forged >= 4, "{:?}", mesh.counters(0));
    assert_eq!(mesh.nodes[0].neighbours(), [id(1)]);
    let forged = mesh.counters(0).forged;
    for number in 100..2_100 {
        let octets = written(&alive(), NodeId(number), 1, 1);
        mesh.inject(0, address(STRANGER), &octets);
    }
    assert_eq!(mesh.counters(0).forged, forged + 2_000);
    assert_eq!(mesh.counters(0).neighbours_evicted, 0);
    assert_eq!(mesh.nodes[0].neighbours(), [id(1)]);
}

/// All that was sent is sent again: at once, and after the sender's restart.
#[test]
fn what_was_recorded_is_not_accepted_again() {
    let mut mesh = Segment::new(2, &psk("5a"));
    mesh.send(0, 1);
    mesh.run_for(1_000 * MS);
    let of_first: Vec<Vec<u8>> =
        mesh.recorded.iter().filter(|frame| frame.0 == 0).map(|frame| frame.2.clone()).collect();
    assert!(of_first.len() > 10);
    let received = mesh.counters(1);
    mesh.recorded.clear();
    for octets in &of_first {
        mesh.inject(1, own_address(0), octets);
    }
    let counters = mesh.counters(1);
    let count = u64::try_from(of_first.len()).unwrap();
    assert_eq!(counters.replayed, received.replayed + count, "{counters:?}");
    assert!(mesh.recorded.is_empty(), "{:?}", mesh.recorded);

    mesh.nodes[0] = node(0, 2, &psk("5a"));
    mesh.run_for(5_000 * MS);
    assert_eq!(mesh.nodes[1].neighbours(), [id(0)]);
    mesh.events.clear();
    for octets in &of_first {
        mesh.inject(1, own_address(0), octets);
    }
    let restarts = mesh.events.iter().filter(|(_, event)| {
        matches!(event, MeshEvent::NeighbourDown(..) | MeshEvent::NeighbourUp(_))
    });
    assert_eq!(restarts.count(), 0, "{:?}", mesh.events);
    assert_eq!(mesh.counters(1).challenges, received.challenges + 2, "one each 300 ms");
    // All of them, and the first of the new start.
    let dropped = |counters: MeshCounters| counters.unknown_index + counters.replayed;
    assert_eq!(dropped(mesh.counters(1)), dropped(counters) + count + 1);
}

/// Recorded challenges do not use up the answers that a neighbour which starts again needs.
#[test]
fn recorded_challenges_keep_no_neighbour_out() {
    let trust = psk("5a");
    replay_challenges(Segment::new(2, &trust), |index, epoch| node(index, epoch, &trust));
}

/// The same in an open mesh: the old start's messages end what the new one has built.
#[test]
fn an_open_mesh_believes_what_was_recorded() {
    let mut mesh = Segment::new(2, &MeshTrust::Open);
    let old = mesh.recorded.iter().find(|frame| frame.0 == 0).unwrap().2.clone();
    mesh.nodes[0] = node(0, 2, &MeshTrust::Open);
    mesh.run_for(5_000 * MS);
    mesh.events.clear();
    mesh.inject(1, own_address(0), &old);
    let restarted = |(_, event): &(usize, MeshEvent)| matches!(event, MeshEvent::NeighbourDown(_, reason) if *reason == Reason::RESTARTED);
    assert!(mesh.events.iter().any(restarted));
}

/// A message for one node is none for another, nor from another address.
#[test]
fn a_message_is_for_whom_it_was_sent() {
    judge_receivers(Segment::new(3, &psk("5a")));
}

/// A PATH ERROR that no node has sent.
#[test]
fn a_forged_error_ends_no_path() {
    for (trust, survives) in [(psk("5a"), true), (MeshTrust::Open, false)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.send(0, 1);
        let path = mesh.paths.iter().find(|(node, _)| *node == 0).unwrap().1;
        let error = Message::PathEnd { path, reporter: id(1), reason: Reason::SILENT };
        mesh.inject(0, own_address(1), &written(&error, id(1), 1, 1_000_000));
        // In an open mesh it is found again, as the other end has not lost it.
        let lost = mesh.events.iter().any(|(node, event)| {
            *node == 0 && matches!(event, MeshEvent::PathLost { path: lost, .. } if *lost == path)
        });
        assert_eq!(!lost, survives, "{trust:?}");
        let unknown = Message::LabelUnknown(Label(100));
        mesh.inject(0, own_address(1), &written(&unknown, id(1), 1, 1_000_001));
        assert_eq!(mesh.counters(0).forged, if survives { 2 } else { 0 });
    }
}

/// A LINK BACK that no node has sent is dropped; in an open mesh it says nothing either, as long as no
/// path was lost at that link.
#[test]
fn a_forged_link_back_causes_no_search() {
    for (trust, forged, ignored) in [(psk("5a"), 100, 0), (MeshTrust::Open, 0, 100)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.send(0, 1);
        let path = mesh.paths.iter().find(|(node, _)| *node == 0).unwrap().1;
        let searches = mesh.counters(0).searches;
        let back =
            Message::LinkBack(LinkBack { path, reporter: id(1), position: 0, record: Vec::new() });
        for number in 0..100 {
            mesh.inject(0, own_address(1), &written(&back, id(1), 1, 1_000_000 + number));
        }
        let counters = mesh.counters(0);
        assert_eq!((counters.forged, counters.links_back_ignored), (forged, ignored), "{trust:?}");
        assert_eq!((counters.searches, counters.links_back_followed), (searches, 0), "{trust:?}");
    }
}

fn bypass_request(label: u32, frame_limit: u16) -> Message<'static> {
    let (neighbour, epoch) = (id(2), 1);
    Message::BypassRequest(BypassRequest { neighbour, epoch, label: Label(label), frame_limit })
}

/// A BYPASS REQUEST that no node has sent makes no entry; in an open mesh each is one of a bounded number,
/// which only their owner can tear.
#[test]
fn forged_bypass_requests_make_no_entries() {
    for (trust, forged, given) in [(psk("5a"), 301, 0), (MeshTrust::Open, 0, 256)] {
        let mut mesh = Segment::new(3, &trust);
        for number in 0..300 {
            let octets = written(&bypass_request(100 + number, 1_500), id(1), 1, 10_000 + number);
            mesh.inject(0, own_address(1), &octets);
        }
        assert_eq!(mesh.nodes[0].bypasses_given(), given, "{trust:?}");
        let counters = mesh.counters(0);
        let denied = if forged == 0 { 44 } else { 0 };
        assert_eq!(counters.bypasses_denied, denied, "{trust:?} {counters:?}");
        let label = mesh.nodes[0].labels().next().unwrap_or(Label(100));
        let tear = Message::BypassTear(label);
        mesh.inject(0, own_address(2), &written(&tear, id(2), 1, 20_000));
        assert_eq!(mesh.nodes[0].bypasses_given(), given, "of another neighbour");
        assert_eq!(mesh.counters(0).forged, forged, "{trust:?}");
        if given > 0 {
            mesh.inject(0, own_address(1), &written(&tear, id(1), 1, 20_001));
            assert_eq!(mesh.nodes[0].bypasses_given(), given - 1);
        }
    }
}

/// In an open mesh strangers with any number of names make so many entries and no more; those end when they
/// are not asked for again.
#[test]
fn entries_of_bypasses_are_bounded_and_end() {
    let mut mesh = Segment::new(3, &MeshTrust::Open);
    for number in 0..6_u8 {
        let (node, from) = (NodeId(100 + u64::from(number)), address(100 + number));
        mesh.inject(0, from, &written(&alive(), node, 1, 1));
        for label in 0..256_u32 {
            mesh.inject(0, from, &written(&bypass_request(100 + label, 0), node, 1, 2 + label));
        }
    }
    // No limit is asked for, and the link has one.
    assert_eq!(mesh.nodes[0].bypasses_given(), 0);
    for number in 0..6_u8 {
        let (node, from) = (NodeId(100 + u64::from(number)), address(100 + number));
        for label in 0..256_u32 {
            let request = bypass_request(100 + label, 1_500);
            mesh.inject(0, from, &written(&request, node, 1, 1_000 + label));
        }
    }
    assert_eq!(mesh.nodes[0].bypasses_given(), 1_024);
    assert_eq!(mesh.nodes[0].labels().count(), 1_024);
    mesh.run_for(40_000 * MS);
    assert_eq!((mesh.nodes[0].bypasses_given(), mesh.nodes[0].labels().count()), (0, 0));
}

/// What cannot be forwarded is refused: frames that do not fit, another start of the neighbour, a node that
/// is none, and the way back to who asks.
#[test]
fn a_bypass_that_leads_nowhere_is_refused() {
    let mut mesh = Segment::new(3, &MeshTrust::Open);
    let request = |neighbour, epoch, frame_limit| {
        let label = Label(100);
        Message::BypassRequest(BypassRequest { neighbour, epoch, label, frame_limit })
    };
    let refused = [
        request(id(2), 1, 1_501),
        request(id(2), 2, 1_500),
        request(NodeId(77), 1, 1_500),
        request(id(1), 1, 1_500),
        request(id(0), 1, 1_500),
    ];
    for (number, request) in (10_000..).zip(&refused) {
        mesh.inject(0, own_address(1), &written(request, id(1), 1, number));
    }
    assert_eq!((mesh.nodes[0].bypasses_given(), mesh.counters(0).bypasses_denied), (0, 5));
    let request = request(id(2), 1, 1_500);
    // Asked for again it is the same.
    for number in 20_000..20_003 {
        mesh.inject(0, own_address(1), &written(&request, id(1), 1, number));
    }
    assert_eq!(mesh.nodes[0].bypasses_given(), 1);
}

/// A stranger answers for a target that is not there: its traffic would go to the stranger.
#[test]
fn a_strangers_answer_draws_no_traffic() {
    let target = NodeId(77);
    for (trust, is_drawn) in [(psk("5a"), false), (MeshTrust::Open, true)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.inject(0, address(STRANGER), &written(&alive(), target, 1, 1));
        let packet: &[u8] = b"secret";
        let input = MeshInput::Packet { destination: target, class: PathClass::BULK, packet };
        mesh.nodes[0].handle(mesh.now, input);
        mesh.settle();
        let asked = mesh.recorded.iter().rev().find_map(|(_, _, octets)| {
            match Message::decode(octets, Profile::Default).unwrap().1 {
                Message::Request(request) => Some(request.request),
                _ => None,
            }
        });
        let path = PathId { origin: id(0), target, number: 1 };
        let reply = Message::Reply(RouteReply {
            path,
            request: asked.unwrap(),
            label: Label(100),
            class: 2,
            frame_limit: 1_500,
            position: 0,
            cost: 1,
            delay_us: 1,
            station: None,
            record: Vec::new(),
        });
        mesh.inject(0, address(STRANGER), &written(&reply, target, 1, 2));
        let drawn = mesh.paths.iter().any(|(node, known)| *node == 0 && *known == path);
        assert_eq!(drawn, is_drawn, "{trust:?}");
    }
}

/// 2,000 ROUTE REQUESTs of a stranger; in an open mesh each origin has an allowance, but the stranger
/// has any number of names.
#[test]
fn a_strangers_flood_is_not_relayed() {
    for (trust, relayed) in [(psk("5a"), 0), (MeshTrust::Open, 2_000)] {
        let mut mesh = Segment::new(2, &trust);
        mesh.inject(0, address(STRANGER), &written(&alive(), NodeId(77), 1, 1));
        for number in 0..2_000_u32 {
            let request = Message::Request(RouteRequest {
                origin: NodeId(77),
                // A stranger that is one origin is limited to 20 at once and 10 in a second.
                origin_epoch: 1,
                request: number,
                target: NodeId(78),
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
            });
            mesh.inject(0, address(STRANGER), &written(&request, NodeId(77), 1, number + 2));
        }
        let counters = mesh.counters(0);
        let limited = counters.requests_relayed + counters.requests_limited;
        assert_eq!(limited, relayed, "{trust:?} {counters:?}");
        assert!(counters.requests_relayed <= 20, "{counters:?}");
    }
}

/// The mesh finds its way over neighbours that were authenticated.
#[test]
fn paths_are_found_in_an_authenticated_mesh() {
    let mut mesh = Segment::new(3, &psk("5a"));
    mesh.send(0, 2);
    mesh.run_for(100 * MS);
    let found = |(node, event): &(usize, MeshEvent)| {
        *node == 0
            && matches!(event, MeshEvent::PathFound { destination, .. } if *destination == id(2))
    };
    assert!(mesh.events.iter().any(found), "{:?}", mesh.events);
    mesh.run_for(10_000 * MS);
    let lost = mesh.events.iter().filter(|(_, event)| matches!(event, MeshEvent::PathLost { .. }));
    assert_eq!(lost.count(), 0);
}
