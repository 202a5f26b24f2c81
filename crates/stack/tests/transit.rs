//! A further worker's graph beside the first: what it passes on itself, and what it leaves.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]

mod common;

use common::{A, B, Frame, Gateway, LAN, LAN_IP, LAN_MAC, WAN, WAN_MAC, ether, from_a, ipv4};
use gatewright_packet::{Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkAddress, LinkIndex, Pool};
use gatewright_stack::{
    At, Attachment, AttachmentId, Counter, Graph, Handler, KeptNeighbours, Place, Plan, Side,
    Suite, SuiteLink, Swap, UsedNeighbours, assemble_transit, builtin::Count,
};
use gatewright_tables::records::{Neighbour, NeighbourKey, NeighbourState};
use gatewright_wire::{EtherType, IpProtocol, MacAddress, arp::ArpFields};
use std::{net::Ipv4Addr, rc::Rc, time::Duration};

/// The first worker, and one more of the same host.
struct Pair {
    first: Gateway,
    further: Graph,
    plan: Plan,
    used: UsedNeighbours,
}

impl Pair {
    fn new() -> Self {
        let links = [SuiteLink::Ethernet(LAN), SuiteLink::Ethernet(WAN)];
        let first = Gateway::cold();
        let Suite { layers, neighbours, .. } = assemble_transit(&links, 43);
        let used = UsedNeighbours::default();
        for of in neighbours {
            let kept = KeptNeighbours::new(first.host.tables().neighbours, of.link, used.clone());
            of.v4.borrow_mut().follow(kept.clone());
            of.v6.borrow_mut().follow(kept);
        }
        let plan = first.plan.part();
        let frames = Rc::new(Pool::new(256, CHUNK_SIZE).unwrap());
        let datagrams = Rc::new(Pool::new(1, CHUNK_SIZE_DATAGRAM).unwrap());
        let wiring = plan.wire(&[]).unwrap();
        let further = Graph::new(layers, wiring, first.host.view(), frames, datagrams);
        Self { first, further, plan, used }
    }

    /// What leaves the further worker itself when a frame comes there by `link`, and what leaves the
    /// first when it has gone on with the rest.
    fn receive(&mut self, link: LinkIndex, frame: &[u8]) -> [Vec<Frame>; 2] {
        let [mut own, mut others] = [Vec::new(), Vec::new()];
        let now = self.first.now;
        let mut batch = Batch::default();
        batch.push(self.further.frames().packet_of(frame).unwrap()).unwrap();
        let sent = |to: &mut Vec<Frame>, link, batch: &mut Batch| {
            to.extend(batch.drain().map(|packet| (link, packet.octets().to_vec())));
        };
        let mut exit = |link, batch: &mut Batch| sent(&mut own, link, batch);
        self.further.receive(link, &mut batch, now, &mut exit);
        let handed: Vec<_> = self.further.take_handed().collect();
        for handed in handed {
            let packet = handed.packet.into_parcel().into_packet();
            batch.push(packet).unwrap();
            let mut exit = |link, batch: &mut Batch| sent(&mut others, link, batch);
            let place = (handed.to, handed.at, handed.side);
            self.first.graph.resume(place, &mut batch, now, &mut exit);
        }
        [own, others]
    }

    /// Writes down that B is `state`, as the first worker does.
    fn know_b(&mut self, state: NeighbourState) {
        let mut table = self.first.host.take_neighbours().unwrap();
        let record = Neighbour { address: LinkAddress::ethernet(B.0.0), state, router: false };
        table.set(&NeighbourKey { link: WAN.0, address: B.1.into() }, &record).unwrap();
        self.first.host.tables_mut().neighbours = Some(table);
    }
}

fn to_b() -> Vec<u8> {
    from_a(&ipv4(A.1, B.1, IpProtocol::UDP, &[7; 20], |_| {}))
}

/// A frame to B as it is to leave.
fn at_b() -> Vec<u8> {
    let packet = ipv4(A.1, B.1, IpProtocol::UDP, &[7; 20], |fields| fields.time_to_live -= 1);
    ether(B.0, WAN_MAC, EtherType::IPV4, &packet)
}

#[test]
fn what_is_not_transit_goes_on_with_the_first_worker() {
    let mut pair = Pair::new();
    let request = ArpFields::request(A.0, A.1, LAN_IP);
    let asked = ether(MacAddress::BROADCAST, A.0, EtherType::ARP, &request.emit());
    let answer = ether(A.0, LAN_MAC, EtherType::ARP, &request.reply(LAN_MAC).emit());
    assert_eq!(pair.receive(LAN, &asked), [vec![], vec![(LAN, answer)]]);

    // An echo request to the host itself, and a packet whose hops are spent.
    let echo = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let ping = from_a(&ipv4(A.1, LAN_IP, IpProtocol::ICMPV4, &echo, |_| {}));
    let spent = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, &[7; 20], |ip| ip.time_to_live = 1));
    for (frame, kind) in [(ping, 0), (spent, 11)] {
        let [own, others] = pair.receive(LAN, &frame);
        assert_eq!((own.len(), others.len()), (0, 1));
        let (link, answer) = &others[0];
        assert_eq!((*link, answer[34]), (LAN, kind), "echo reply, time exceeded");
    }
}

#[test]
fn transit_waits_with_the_first_for_a_neighbour_and_then_does_without() {
    let mut pair = Pair::new();
    let [own, asked] = pair.receive(LAN, &to_b());
    assert_eq!((own.len(), asked.len(), asked[0].0), (0, 1, WAN), "the first asks for B");

    let said = ArpFields::request(WAN_MAC, Ipv4Addr::new(10, 0, 1, 1), B.1).reply(B.0);
    let said = ether(WAN_MAC, B.0, EtherType::ARP, &said.emit());
    // Whichever worker hears the answer: the first has what waited.
    assert_eq!(pair.receive(WAN, &said), [vec![], vec![(WAN, at_b())]]);

    pair.know_b(NeighbourState::Reachable);
    assert_eq!(pair.receive(LAN, &to_b()), [vec![(WAN, at_b())], vec![]]);
    assert_eq!(pair.used.pop(), None);
}

/// RFC 4861 §7.3.3: packets go to a stale neighbour, and whoever keeps it is told.
#[test]
fn a_stale_neighbour_is_used_and_told_once_a_second() {
    let mut pair = Pair::new();
    pair.know_b(NeighbourState::Stale);
    for _ in 0..3 {
        assert_eq!(pair.receive(LAN, &to_b()), [vec![(WAN, at_b())], vec![]]);
    }
    assert_eq!([pair.used.pop(), pair.used.pop()], [Some((WAN, B.1.into())), None]);
    pair.first.now += Duration::from_secs(1);
    pair.receive(LAN, &to_b());
    assert_eq!(pair.used.pop(), Some((WAN, B.1.into())));
}

#[test]
fn a_handler_of_both_workers_counts_each_packet_once() {
    let mut pair = Pair::new();
    pair.know_b(NeighbourState::Reachable);
    let at = Attachment::new(At::EtherType(EtherType::IPV4), Place::Tap);
    let (id, count) = (AttachmentId(1), Count::default());
    let another = Handler::another(&count).unwrap();
    let wiring = pair.first.plan.wire(&[(id, at)]).unwrap();
    let handlers = vec![(id, Box::new(count.clone()) as _, Counter::default())];
    pair.first.graph.swap(Swap { wiring, handlers });
    let wiring = pair.plan.wire(&[(id, at)]).unwrap();
    pair.further.swap(Swap { wiring, handlers: vec![(id, another, Counter::default())] });

    pair.receive(LAN, &to_b());
    let spent = from_a(&ipv4(A.1, B.1, IpProtocol::UDP, &[7; 20], |ip| ip.time_to_live = 1));
    pair.receive(LAN, &spent);
    assert_eq!(pair.first.receive(LAN, &[to_b()]).len(), 1, "it asks for B, and keeps the packet");
    assert_eq!(count.packets(), 3);
    let ways = pair.first.plan.ways();
    let counted: u64 = ways
        .filter(|(way, _)| way.at == at.at && way.side == Side::Receive)
        .map(|(_, packets)| packets)
        .sum();
    assert_eq!(counted, 3, "the ways of both");
}
