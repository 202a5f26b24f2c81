//! The UDP gateway over a graph with two links in memory.

use super::*;
use gatewright_packet::{
    BATCH_MAX, Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, LinkAddress, LinkIndex, Pool,
};
use gatewright_stack::{
    Address, AddressState, Graph, Host, Interface, Suite, SuiteLink, Wake, assemble,
};
use gatewright_wire::{EtherType, IpProtocol, MacAddress, ethernet::EthernetFields};
use gatewright_wire::{ipv4::Ipv4Fields, udp::UdpFields};
use std::{rc::Rc, sync::Arc};

const LAN: LinkIndex = LinkIndex(0);
const WAN: LinkIndex = LinkIndex(1);
const OWN: [(LinkIndex, MacAddress, Ipv4Addr); 2] = [
    (LAN, MacAddress([2, 0, 0, 0, 0, 0x10]), Ipv4Addr::new(10, 0, 0, 1)),
    (WAN, MacAddress([2, 0, 0, 0, 0, 0x20]), Ipv4Addr::new(10, 0, 1, 1)),
];
const PEER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const NEWCOMER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 4);
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 1, 2), 7000);
/// Clients unless a test says otherwise.
const CLIENTS_MAX: u16 = 256;
/// Where the gateway listens.
const PORT: u16 = 9000;

/// Nobody is woken: the test looks by itself.
struct Asleep;

impl Wake for Asleep {
    fn wake(&self) {}
}

struct World {
    host: Host,
    graph: Graph,
    sockets: Sockets,
    gateway: UdpGateway,
    now: Duration,
}

/// A datagram that left: link, source port, destination address and port, payload.
type Sent = (LinkIndex, u16, (Ipv4Addr, u16), Vec<u8>);

impl World {
    fn new(series: Series) -> Self {
        Self::with(series, CLIENTS_MAX)
    }

    fn with(series: Series, clients_max: u16) -> Self {
        Self::towards(SocketAddr::from(SERVER), series, clients_max)
    }

    fn towards(target: impl Into<UdpTarget>, series: Series, clients_max: u16) -> Self {
        let links = OWN.map(|(link, ..)| SuiteLink::Ethernet(link));
        let Suite { plan, layers, sockets, neighbours, .. } = assemble(&links, Arc::new(Asleep), 1);
        for (cache, ip) in neighbours.iter().zip([CLIENT, SERVER.0]) {
            for ip in [ip, OTHER, NEWCOMER] {
                cache.v4.borrow_mut().set_permanent(ip.into(), LinkAddress::ethernet(PEER.0));
            }
        }
        let mut host = Host::new(100).unwrap();
        for (link, mac, ip) in OWN {
            let state = AddressState::Preferred;
            let addresses = vec![Address { ip: ip.into(), prefix_len: 24, state }];
            let (mtu, up) = (1500, true);
            let link_address = LinkAddress::ethernet(mac.0);
            let interface =
                Interface { link, link_address, mtu, up, addresses, ..Interface::default() };
            host.add_interface(interface).unwrap();
        }
        let frames = Rc::new(Pool::new(2048, CHUNK_SIZE).unwrap());
        let datagrams = Rc::new(Pool::new(8, CHUNK_SIZE_DATAGRAM).unwrap());
        let mut graph = Graph::new(layers, plan.wire(&[]).unwrap(), host.view(), frames, datagrams);
        let listen = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
        let setup = UdpGatewaySetup { listen, target: target.into(), series, clients_max };
        let gateway = UdpGateway::start(&sockets, setup).unwrap();
        // Addresses are probed and announced, the application is started.
        let now = Duration::from_secs(20);
        graph.handle_timeouts(Duration::ZERO, &mut |_: LinkIndex, _: &mut Batch| {});
        graph.handle_timeouts(now, &mut |_: LinkIndex, _: &mut Batch| {});
        Self { host, graph, sockets, gateway, now }
    }

    /// What leaves when datagrams come by a link, each from a port with a payload.
    fn receive(
        &mut self,
        link: LinkIndex,
        from: Ipv4Addr,
        to_port: u16,
        datagrams: &[(u16, Vec<u8>)],
    ) -> Vec<Sent> {
        let (_, mac, own) = OWN[link.index()];
        let mut sent = Vec::new();
        for datagrams in datagrams.chunks(BATCH_MAX) {
            let mut batch = Batch::default();
            for (port, payload) in datagrams {
                let frame = frame(mac, (from, *port), (own, to_port), payload);
                batch.push(self.graph.frames().packet_of(&frame).unwrap()).unwrap();
            }
            let mut exit = |link: LinkIndex, batch: &mut Batch| {
                sent.extend(batch.drain().map(|packet| read(link, packet.octets())));
            };
            self.graph.receive(link, &mut batch, self.now, &mut exit);
        }
        assert_eq!(self.graph.frames().available(), self.graph.frames().capacity());
        sent
    }

    fn clients_send(&mut self, datagrams: &[(u16, Vec<u8>)]) -> Vec<Sent> {
        self.receive(LAN, CLIENT, PORT, datagrams)
    }
}

/// A frame with a UDP datagram that has no checksum, as RFC 768 allows.
fn frame(
    mac: MacAddress,
    (from, from_port): (Ipv4Addr, u16),
    (to, to_port): (Ipv4Addr, u16),
    payload: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let udp =
        UdpFields { source_port: from_port, destination_port: to_port, length, checksum: 0 }.emit();
    let ip = Ipv4Fields::new(IpProtocol::UDP, from, to, 20 + length).emit_with_checksum();
    let ether_type = EtherType::IPV4;
    let ethernet = EthernetFields { destination: mac, source: PEER, ether_type }.emit();
    [&ethernet[..], &ip, &udp, payload].concat()
}

fn read(link: LinkIndex, frame: &[u8]) -> Sent {
    let (_, _, own) = OWN[link.index()];
    assert_eq!((&frame[..6], &frame[26..30]), (&PEER.0[..], &own.octets()[..]));
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let to = Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
    (link, port(34), (to, port(36)), frame[42..].to_vec())
}

fn payloads(sent: &[Sent]) -> Vec<Vec<u8>> {
    sent.iter().map(|(.., payload)| payload.clone()).collect()
}

#[test]
fn requests_go_to_the_server_and_answers_to_who_asked() {
    let mut world = World::new(Series::Plain);
    let sent = world.clients_send(&[(1, b"one".to_vec()), (2, b"two".to_vec())]);
    let [(WAN, first, SERVER, one), (WAN, second, SERVER, two)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two"[..]));
    assert_ne!(first, second);
    for (port, client) in [(*second, 2), (*first, 1)] {
        let answer = (SERVER.1, b"answer".to_vec());
        let back = world.receive(WAN, SERVER.0, port, &[answer]);
        // From the address and port that the client asked.
        assert_eq!(back, [(LAN, PORT, (CLIENT, client), b"answer".to_vec())]);
    }
    // Nobody else speaks for the server.
    let forged = (SERVER.1 + 1, b"forged".to_vec());
    assert_eq!(world.receive(WAN, SERVER.0, *first, &[forged]), []);
    let counts = world.gateway.counts();
    let counted = [counts.received, counts.sent, counts.returned, counts.strangers];
    assert_eq!(counted, [2, 2, 2, 1]);
}

/// Forged in the server's name, a datagram would have the server answer itself by the gateway, and
/// again.
#[test]
fn the_server_is_no_client_of_its_own() {
    let mut world = World::new(Series::Plain);
    let forged = (SERVER.1, b"round".to_vec());
    assert_eq!(world.receive(LAN, SERVER.0, PORT, &[forged]), []);
    let counts = world.gateway.counts();
    assert_eq!([counts.received, counts.sent, counts.strangers], [0, 0, 1]);
    let other = (SERVER.1 + 1, b"asks".to_vec());
    assert_eq!(world.receive(WAN, SERVER.0, PORT, &[other]).len(), 1, "another port of its host");
}

/// RFC 8656 §15: a relay sets "the outgoing Time to Live/Hop Count to one less than the incoming
/// value". So a datagram between two gateways that each have the other for their server comes to an
/// end, however they treat it.
#[test]
fn two_gateways_that_are_each_others_servers_do_not_circle_for_ever() {
    let merge = Series::Merge(Form::Prefixed, MergeLimit::PathMtu);
    let (_, _, own) = OWN[0];
    let other = SocketAddr::new(own.into(), PORT + 1);
    for [one, two] in [[Series::Plain; 2], [merge, Series::Split], [merge, merge]] {
        let mut world = World::towards(other, one, CLIENTS_MAX);
        let setup = UdpGatewaySetup {
            listen: other,
            target: SocketAddr::new(own.into(), PORT).into(),
            series: two,
            clients_max: CLIENTS_MAX,
        };
        let second = UdpGateway::start(&world.sockets, setup).unwrap();
        world.now += Duration::from_secs(1);
        world.graph.handle_timeouts(world.now, &mut |_: LinkIndex, _: &mut Batch| {});
        // What is counted but not sent has spent its hops: the frame came with 64.
        assert_eq!(world.clients_send(&[(1, b"round".to_vec())]), []);
        let [first, second] = [world.gateway.counts(), second.counts()];
        let sum = |count: fn(UdpGatewayCounts) -> u64| count(first) + count(second);
        assert_eq!(sum(|of| of.received), 64, "{one:?} {two:?}");
        assert_eq!([sum(|of| of.sent), sum(|of| of.not_sent)], [63, 1], "{one:?} {two:?}");
    }
}

/// The paper's example: "the gateway merges 14 datagrams with 100 Bytes of user data from the
/// sender and forwards a datagram of 1400 Bytes. At 400 Bytes the gateway can merge up to 3".
#[test]
fn what_waits_is_merged_up_to_the_limit_and_no_further_datagram_is_waited_for() {
    let waiting = |count: usize, len: usize| vec![(1, vec![7; len]); count];
    let cases: [(MergeLimit, usize, usize, &[usize]); 5] = [
        (MergeLimit::PathMtu, 28, 100, &[1400, 1400]),
        (MergeLimit::PathMtu, 4, 400, &[1200, 400]),
        (MergeLimit::Octets(400), 5, 200, &[400, 400, 200]),
        (MergeLimit::Octets(400), 3, 500, &[500, 500, 500]),
        (MergeLimit::PathMtu, 1, 100, &[100]),
    ];
    for (limit, count, len, merged) in cases {
        let mut world = World::new(Series::Merge(Form::Plain, limit));
        let sent = world.clients_send(&waiting(count, len));
        assert_eq!(payloads(&sent).iter().map(Vec::len).collect::<Vec<_>>(), merged);
    }
}

#[test]
fn a_smaller_path_is_filled_and_not_overflowed() {
    let mut world = World::new(Series::Merge(Form::Plain, MergeLimit::PathMtu));
    world.clients_send(&[(1, vec![1; 100])]);
    world.host.change_interface(WAN, |interface| interface.mtu = 628);
    let lengths = |sent: Vec<Sent>| payloads(&sent).iter().map(Vec::len).collect::<Vec<_>>();
    // The batch that is being joined when the path changes still fits the old one.
    world.clients_send(&[(1, vec![1; 100])]);
    let sent = world.clients_send(&vec![(1, vec![1; 100]); 7]);
    assert_eq!(lengths(sent), [600, 100]);
}

#[test]
fn datagrams_of_different_clients_are_not_mixed() {
    let mut world = World::new(Series::Merge(Form::Plain, MergeLimit::Octets(400)));
    let datagrams: Vec<_> = (0..8_u16).map(|number| (1 + number % 2, vec![0; 50])).collect();
    let sent = world.clients_send(&datagrams);
    let lengths: Vec<_> = sent.iter().map(|(.., payload)| payload.len()).collect();
    assert_eq!(lengths, [200, 200]);
    assert_ne!(sent[0].1, sent[1].1);
}

#[test]
fn split_takes_apart_what_merge_joined() {
    let mut first = World::new(Series::Merge(Form::Prefixed, MergeLimit::PathMtu));
    let datagrams: Vec<_> = (0..60_u8).map(|number| (1, vec![number; number.into()])).collect();
    let merged = payloads(&first.clients_send(&datagrams));
    assert!(merged.len() < 4, "{} datagrams", merged.len());
    let mut second = World::new(Series::Split);
    let merged: Vec<_> = merged.into_iter().map(|payload| (1, payload)).collect();
    let parted = payloads(&second.clients_send(&merged));
    let expected: Vec<_> = datagrams.into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(parted, expected);
    second.clients_send(&[(1, vec![0, 9, b'x'])]);
    assert_eq!(second.gateway.counts().cut_short, 1);
}

/// One that was answered and has sent again keeps its place for two minutes.
#[test]
fn a_client_too_many_waits_for_a_silent_one() {
    let mut world = World::new(Series::Plain);
    let ports = |count: u16| -> Vec<_> { (1..=count).map(|port| (port, b"x".to_vec())).collect() };
    let (clients, others) = (ports(CLIENTS_MAX / 4 * 3), ports(CLIENTS_MAX / 4));
    let all_send = |world: &mut World, clients: &[(u16, Vec<u8>)]| {
        let mut sent = world.clients_send(clients);
        sent.extend(world.receive(LAN, OTHER, PORT, &others));
        sent
    };
    let sent = all_send(&mut world, &clients);
    assert_eq!(sent.len(), usize::from(CLIENTS_MAX));
    for (_, port, ..) in sent {
        world.receive(WAN, SERVER.0, port, &[(SERVER.1, b"y".to_vec())]);
    }
    all_send(&mut world, &clients);
    world.now += UNCONFIRMED_FOR;
    let newcomer = [(2000, b"new".to_vec())];
    assert_eq!(world.receive(LAN, NEWCOMER, PORT, &newcomer), []);
    assert_eq!(world.gateway.counts().datagrams_refused, 1);
    // All but one speak again; after two minutes that one's place is the newcomer's.
    world.now += CLIENT_FOR;
    let (silent, rest) = clients.split_last().unwrap();
    all_send(&mut world, rest);
    let sent = world.receive(LAN, NEWCOMER, PORT, &newcomer);
    let [(WAN, port, SERVER, _)] = sent[..] else { panic!("not sent") };
    let answer = (SERVER.1, b"y".to_vec());
    let back = world.receive(WAN, SERVER.0, port, &[answer]);
    assert_eq!(back, [(LAN, PORT, (NEWCOMER, 2000), b"y".to_vec())]);
    assert_eq!(world.clients_send(std::slice::from_ref(silent)), []);
}

/// One host with many ports has three quarters of the table at most, and what it has it keeps only by
/// speaking; the last quarter is for others.
#[test]
fn one_address_leaves_the_last_quarter_to_others() {
    let mut world = World::new(Series::Plain);
    let ports = |from: u16| -> Vec<_> { (from..from + 300).map(|port| (port, vec![1])).collect() };
    let confirm = |world: &mut World, ports: &[(u16, Vec<u8>)]| {
        for (_, port, ..) in world.clients_send(ports) {
            world.receive(WAN, SERVER.0, port, &[(SERVER.1, b"y".to_vec())]);
        }
        world.clients_send(ports).len()
    };
    assert_eq!(confirm(&mut world, &ports(1_000)), 192);
    assert_eq!(world.gateway.counts().datagrams_refused, 2 * (300 - 192));
    // Others get in, also while it asks for more.
    for port in 1..=64 {
        assert_eq!(world.receive(LAN, OTHER, PORT, &[(port, vec![2])]).len(), 1, "{port}");
        assert_eq!(world.clients_send(&[(5_000 + port, vec![1])]), []);
    }
    // The table is full. Those of the other are silent after a moment, and their places are a third's.
    world.now += UNCONFIRMED_FOR;
    assert_eq!(world.clients_send(&ports(1_000)).len(), 192);
    for port in 1..=64 {
        assert_eq!(world.receive(LAN, NEWCOMER, PORT, &[(port, vec![3])]).len(), 1, "{port}");
    }
    // When all are silent, the host has as many places as at first.
    world.now += CLIENT_FOR;
    assert_eq!(confirm(&mut world, &ports(2_000)), 192);
    assert_eq!(world.receive(LAN, OTHER, PORT, &[(1, vec![2])]).len(), 1);
}

/// Whoever forges addresses takes no place for longer than a moment, and none of those who hear
/// their answers.
#[test]
fn forged_addresses_lock_nobody_out() {
    // Too small a table to be divided.
    let mut world = World::with(Series::Plain, 7);
    let honest = [(1, b"x".to_vec())];
    let sent = world.clients_send(&honest);
    world.receive(WAN, SERVER.0, sent[0].1, &[(SERVER.1, b"y".to_vec())]);
    world.clients_send(&honest);
    for second in 0..60_u16 {
        world.now += Duration::from_secs(1);
        // The server answers them all, and nobody hears it.
        let forged: Vec<_> =
            (0..100).map(|number| (1000 + second * 100 + number, b"f".to_vec())).collect();
        for (_, port, ..) in world.clients_send(&forged) {
            world.receive(WAN, SERVER.0, port, &[(SERVER.1, b"y".to_vec())]);
        }
    }
    assert_eq!(world.clients_send(&honest).len(), 1, "its place was kept for a minute of silence");
    assert!(world.gateway.counts().clients_replaced > 0);
    // A newcomer waits for a moment of silence, and not for two minutes.
    let newcomer = [(2, b"new".to_vec())];
    assert_eq!(world.clients_send(&newcomer), []);
    world.now += UNCONFIRMED_FOR;
    assert_eq!(world.clients_send(&newcomer).len(), 1);
}

mod balance;
