//! Bounds of a node's neighbours: forged ones do not keep others out.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_mesh::message::{Alive, Message, Sender};
use gatewright_mesh::{
    LinkProperties, MeshInput, MeshNode, MeshOutput, MeshSettings, NodeId, Profile, RelayDelay,
};
use gatewright_packet::{LinkAddress, LinkIndex};
use std::time::Duration;

const OWN: NodeId = NodeId(1);
const MS: Duration = Duration::from_millis(1);

/// A node with two links.
fn node() -> MeshNode {
    let mut node = MeshNode::new(MeshSettings::new(OWN, 1, Profile::Default));
    for link in 0..2 {
        let properties = LinkProperties::default();
        let input = MeshInput::LinkUp { link: LinkIndex(link), properties };
        node.handle(Duration::ZERO, input);
    }
    node
}

fn address(number: u64) -> LinkAddress {
    let [.., a, b, c, d] = number.to_be_bytes();
    LinkAddress::ethernet([2, 0, a, b, c, d])
}

/// An I'M ALIVE of `sender` that lists `heard` arrives.
fn alive(
    node: &mut MeshNode,
    now: Duration,
    (link, from): (u16, LinkAddress),
    sender: u64,
    heard: &[NodeId],
) {
    let list: Vec<u8> = heard.iter().flat_map(|node| node.0.to_be_bytes()).collect();
    let message = Message::Alive(Alive {
        interval_ms: 2_000,
        more: false,
        part: 0,
        wants_list: false,
        delay: RelayDelay::unmeasured(50),
        neighbours: Some(&list),
        labels: &[],
    });
    let sender = Sender { node: NodeId(sender), epoch: 1, sequence: 1 };
    let octets = message.encode(sender, Profile::Default);
    node.handle(now, MeshInput::Received { link: LinkIndex(link), from, octets: &octets });
    while node.poll_output().is_some() {}
}

/// Nodes that the next I'M ALIVE on a link lists.
fn listed(node: &mut MeshNode, now: Duration, on: u16) -> Vec<NodeId> {
    node.handle(now, MeshInput::Tick);
    let mut listed = Vec::new();
    while let Some(output) = node.poll_output() {
        let MeshOutput::Send { link, octets, .. } = output else { continue };
        let (_, message) = Message::decode(&octets, Profile::Default).unwrap();
        if let Message::Alive(alive) = message
            && link == LinkIndex(on)
        {
            listed.extend(alive.neighbours());
        }
    }
    listed
}

/// 2,000 I'M ALIVE of one station for as many nodes: four stay, and everybody else gets in.
#[test]
fn one_station_is_few_neighbours() {
    let mut node = node();
    alive(&mut node, MS, (0, address(7)), 7, &[OWN]);
    for forged in 0..2_000 {
        alive(&mut node, 2 * MS, (0, address(9)), 10_000 + forged, &[]);
    }
    assert_eq!(node.counters().neighbours_evicted, 1_996);
    assert_eq!(node.counters().neighbours_refused, 0);
    for (link, honest) in [(0, 8), (1, 6)] {
        alive(&mut node, 3 * MS, (link, address(honest)), honest, &[OWN]);
    }
    let near = node.neighbours();
    assert_eq!(near.len(), 3 + 4);
    assert!([6, 7, 8].iter().all(|&honest| near.contains(&NodeId(honest))), "{near:?}");
}

/// Forged nodes with as many addresses fill half of the table; the confirmed neighbour stays and is
/// listed first, and those of another link get in.
#[test]
fn one_link_is_not_all_neighbours() {
    let mut node = node();
    alive(&mut node, MS, (0, address(0xffff_fff7)), u64::MAX, &[OWN]);
    for forged in 100..2_100 {
        alive(&mut node, 2 * MS, (0, address(forged)), forged, &[]);
    }
    assert_eq!(node.counters().neighbours_evicted, 2_000 - 255);
    alive(&mut node, 3 * MS, (1, address(6)), 6, &[]);
    assert_eq!(node.neighbours().len(), 256 + 1);
    let listed = listed(&mut node, Duration::from_secs(1), 0);
    assert_eq!(listed.first(), Some(&NodeId(u64::MAX)));
    assert!(!listed.contains(&NodeId(6)), "behind those of the link: {listed:?}");
}

/// Neighbours that have shown that they hear the node do not give way to another one.
#[test]
fn confirmed_neighbours_stay() {
    let mut node = node();
    for confirmed in 100..356 {
        alive(&mut node, MS, (0, address(confirmed)), confirmed, &[OWN]);
    }
    alive(&mut node, 2 * MS, (0, address(99)), 99, &[OWN]);
    let (counters, near) = (node.counters(), node.neighbours());
    assert_eq!((counters.neighbours_evicted, counters.neighbours_refused), (0, 1));
    assert!(near.len() == 256 && !near.contains(&NodeId(99)));
}

/// A link whose lists were lost is not taken for a one-way link until the tenth message: a node that
/// a list lacks asks for the next one, and a node that is asked sends it.
#[test]
fn a_list_that_was_lost_is_asked_for() {
    let message = |wants_list, list: &[u8]| {
        let message = Message::Alive(Alive {
            interval_ms: 2_000,
            more: false,
            part: 0,
            wants_list,
            delay: RelayDelay::unmeasured(50),
            neighbours: (!list.is_empty()).then_some(list),
            labels: &[],
        });
        let sender = Sender { node: NodeId(7), epoch: 1, sequence: 1 };
        message.encode(sender, Profile::Default)
    };
    let mut node = node();
    let mut at = Duration::ZERO;
    // The messages of the next four intervals on link 0: whether each asks, and whether it lists.
    let mut said = |node: &mut MeshNode, octets: &[u8]| {
        let (link, from) = (LinkIndex(0), address(7));
        node.handle(at, MeshInput::Received { link, from, octets });
        let mut said = Vec::new();
        for _ in 0..80 {
            at += 100 * MS;
            node.handle(at, MeshInput::Received { link, from, octets: &message(false, &[]) });
            node.handle(at, MeshInput::Tick);
            while let Some(output) = node.poll_output() {
                let MeshOutput::Send { link: LinkIndex(0), octets, .. } = output else { continue };
                let (_, message) = Message::decode(&octets, Profile::Default).unwrap();
                let Message::Alive(alive) = message else { continue };
                said.push((alive.wants_list, alive.neighbours.is_some()));
            }
        }
        said
    };
    let first = said(&mut node, &message(false, &OWN.0.to_be_bytes()));
    assert!(first.iter().all(|(asks, _)| !asks) && !first.last().unwrap().1, "{first:?}");
    let asked = said(&mut node, &message(true, &[]));
    assert_eq!(asked.iter().filter(|(_, lists)| *lists).count(), 1, "{asked:?}");
    let lacking = said(&mut node, &message(false, &9_u64.to_be_bytes()));
    assert!(lacking.iter().all(|(asks, _)| *asks), "{lacking:?}");
    let again = said(&mut node, &message(false, &OWN.0.to_be_bytes()));
    assert!(again.iter().all(|(asks, _)| !asks), "{again:?}");
}
