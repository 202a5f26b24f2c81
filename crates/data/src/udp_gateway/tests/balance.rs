//! Clients that relays share.

use super::*;
use gatewright_delay::{FlowKind, LinearFit, NodeModel, PathPolicy, QueueModel};

/// The ports of the relays, all on the server's host.
const RELAYS: [u16; 2] = [7000, 7001];

/// M/M/1 with 1,000 packets a second keeps 6 ms for 95 % of the packets up to a load of 0.52, by hand
/// in `gatewright-delay`'s admission: 52 flows of 10 packets a second.
const EACH: usize = 52;
const KIND: FlowKind = FlowKind { rate: 10.0, octets: 100.0, bound_us: 6000.0, quantile: 0.95 };

fn relays(policy: PathPolicy, relays: &[(u16, f64, u8)]) -> FlowBalance {
    let relay = |&(port, service_ms, hops): &(u16, f64, u8)| {
        let intercept = service_ms / 1e3;
        let service = LinearFit { intercept, slope: 0.0, r_squared: 1.0, count: 4 };
        let queue = QueueModel::FirstInFirstOut;
        FlowRelay {
            address: SocketAddr::from((SERVER.0, port)),
            model: NodeModel { queue, service, setup: None, variation: 1.0, spread: 1.0 },
            hops,
            is_live: false,
            path: None,
        }
    };
    let relays = relays.iter().map(relay).collect();
    FlowBalance { policy, kind: KIND, flows_max: 1000, flows_per_client: None, relays }
}

fn world(policy: PathPolicy, of: &[(u16, f64, u8)], clients_max: u16) -> World {
    World::towards(UdpTarget::Balance(relays(policy, of)), Series::Plain, clients_max)
}

fn equal() -> World {
    world(PathPolicy::LeastLoad, &RELAYS.map(|port| (port, 1.0, 1)), CLIENTS_MAX)
}

fn requests(ports: std::ops::RangeInclusive<u16>) -> Vec<(u16, Vec<u8>)> {
    ports.map(|port| (port, port.to_be_bytes().to_vec())).collect()
}

/// Datagrams that went to each relay.
fn shares(sent: &[Sent]) -> [usize; 2] {
    RELAYS.map(|port| sent.iter().filter(|(_, _, to, _)| *to == (SERVER.0, port)).count())
}

fn refused(world: &World) -> Vec<(&'static str, u64)> {
    let refused = world.gateway.balance_counts().unwrap().refused;
    refused.into_iter().filter(|(_, count)| *count > 0).collect()
}

fn of_relays<T>(world: &World, of: impl Fn(&FlowRelayCounts) -> T) -> Vec<T> {
    world.gateway.balance_counts().unwrap().relays.iter().map(of).collect()
}

/// Answers what went to the relay at `answering`; what goes to another one stays unanswered.
fn answer(world: &mut World, sent: &[Sent], answering: u16) {
    for (_, port, (_, own), _) in sent.iter().filter(|(_, _, to, _)| to.1 == answering) {
        world.receive(WAN, SERVER.0, *port, &[(*own, b"answer".to_vec())]);
    }
}

/// An ICMP error by which the relay's host refuses a datagram: nobody listens at its port.
fn refuse(world: &mut World, (_, port, (_, relay), _): &Sent) {
    let (_, mac, own) = OWN[WAN.index()];
    let refused = frame(PEER, (own, *port), (SERVER.0, *relay), b"refused");
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&refused[14..14 + 28]);
    let sum = gatewright_wire::checksum::of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = u16::try_from(20 + message.len()).unwrap();
    let ip = Ipv4Fields::new(IpProtocol::ICMPV4, SERVER.0, own, length).emit_with_checksum();
    let ether_type = EtherType::IPV4;
    let ethernet = EthernetFields { destination: mac, source: PEER, ether_type }.emit();
    let mut batch = Batch::default();
    let packet = [&ethernet[..], &ip, &message].concat();
    batch.push(world.graph.frames().packet_of(&packet).unwrap()).unwrap();
    world.graph.receive(WAN, &mut batch, world.now, &mut |_: LinkIndex, _: &mut Batch| {
        panic!("an error about an error")
    });
}

#[test]
fn clients_of_a_relay_that_refuses_go_to_another_one_until_it_answers() {
    let mut world = equal();
    let sent = world.clients_send(&requests(1..=20));
    assert_eq!(shares(&sent), [10, 10]);
    let to_second = sent.iter().find(|(_, _, to, _)| to.1 == RELAYS[1]).unwrap().clone();
    // About a datagram of nobody's, it is forged.
    refuse(&mut world, &(WAN, to_second.1, (SERVER.0, RELAYS[0]), Vec::new()));
    assert_eq!(shares(&world.clients_send(&requests(1..=20))), [10, 10]);
    refuse(&mut world, &to_second);
    assert_eq!(shares(&world.clients_send(&requests(1..=20))), [20, 0]);
    assert_eq!(of_relays(&world, FlowRelayCounts::is_left_out), [false, true]);
    // After a second one client tries it, and no other one until it answers.
    world.now += Duration::from_secs(1);
    let tries = world.clients_send(&requests(21..=25));
    assert_eq!(shares(&tries), [4, 1]);
    answer(&mut world, &tries, RELAYS[1]);
    assert_eq!(of_relays(&world, FlowRelayCounts::is_left_out), [false, false]);
    assert_eq!(shares(&world.clients_send(&requests(26..=30))), [0, 5]);
    let counts = of_relays(&world, |its| (its.ended, its.unreachable, its.left_out, its.back));
    assert_eq!(counts, [(0, 0, 0, 0), (10, 1, 1, 1)]);
}

/// All relays are left out: their clients stay, and go where one is back.
#[test]
fn clients_stay_while_no_relay_can_be_reached() {
    let mut world = equal();
    let sent = world.clients_send(&requests(1..=2));
    for one in &sent {
        refuse(&mut world, one);
    }
    assert_eq!(of_relays(&world, FlowRelayCounts::is_left_out), [true, true]);
    let again = world.clients_send(&requests(1..=2));
    assert_eq!(shares(&again), [1, 1]);
    answer(&mut world, &again, RELAYS[0]);
    assert_eq!(shares(&world.clients_send(&requests(1..=2))), [2, 0]);
}

/// A relay that answers each datagram is silent after nine without an answer, and five seconds; one
/// that has never answered is not.
#[test]
fn a_relay_that_ceases_to_answer_is_left_out_and_one_that_never_does_is_not() {
    for has_answered in [true, false] {
        let mut world = equal();
        for _ in 0..2 {
            let sent = world.clients_send(&requests(1..=2));
            assert_eq!(shares(&sent), [1, 1]);
            answer(&mut world, &sent, RELAYS[0]);
            if has_answered {
                answer(&mut world, &sent, RELAYS[1]);
            }
        }
        for count in 1..=12 {
            let sent = world.clients_send(&requests(1..=2));
            let is_left_out = has_answered && count > 10;
            assert_eq!(shares(&sent), if is_left_out { [2, 0] } else { [1, 1] }, "{count}");
            answer(&mut world, &sent, RELAYS[0]);
            world.now += Duration::from_millis(600);
        }
        // A trial without an answer has failed when its client has been silent for five seconds.
        if has_answered {
            assert_eq!(shares(&world.clients_send(&requests(3..=3))), [0, 1]);
            world.now += Duration::from_secs(5);
            world.clients_send(&requests(4..=4));
            let left_out = of_relays(&world, |its| (its.unreachable, its.left_out, its.back));
            assert_eq!(left_out[1], (2, 1, 0));
        }
    }
}

/// A relay whose host has gone: nobody tells its link-layer address.
#[test]
fn a_relay_whose_host_is_gone_is_left_out() {
    let mut relays = relays(PathPolicy::MinHop, &RELAYS.map(|port| (port, 1.0, 1)));
    relays.relays[0].address = SocketAddr::from((Ipv4Addr::new(10, 0, 1, 9), RELAYS[0]));
    relays.relays[1].hops = 2;
    let mut world = World::towards(UdpTarget::Balance(relays), Series::Plain, CLIENTS_MAX);
    let mut nothing = |_: LinkIndex, _: &mut Batch| {};
    let mut batch = Batch::default();
    let (_, mac, own) = OWN[LAN.index()];
    let request = frame(mac, (CLIENT, 1), (own, PORT), b"first");
    batch.push(world.graph.frames().packet_of(&request).unwrap()).unwrap();
    world.graph.receive(LAN, &mut batch, world.now, &mut nothing);
    for _ in 0..5 {
        world.now += Duration::from_secs(1);
        world.graph.handle_timeouts(world.now, &mut nothing);
    }
    let counts = of_relays(&world, |its| (its.unreachable, its.left_out));
    assert_eq!(counts[0], (1, 1));
}

#[test]
fn clients_go_where_their_bounds_are_kept_or_are_refused() {
    let mut world = equal();
    let sent = world.clients_send(&requests(1..=104));
    assert_eq!(shares(&sent), [EACH, EACH]);
    // Another one gets nothing, however often it asks; those that have a place keep it.
    for _ in 0..3 {
        assert_eq!(world.clients_send(&requests(105..=105)), []);
    }
    let again = world.clients_send(&requests(1..=104));
    let relay_of = |sent: &[Sent]| -> Vec<_> { sent.iter().map(|one| (one.1, one.2)).collect() };
    assert_eq!(relay_of(&again), relay_of(&sent));
    assert_eq!(refused(&world), [("late", 3)]);
    assert_eq!(of_relays(&world, |its| (its.admitted, its.ended)), [(52, 0), (52, 0)]);
    assert_eq!(world.gateway.counts().datagrams_refused, 0);
}

/// A client is answered by its own relay; another one of the balance is a stranger to it.
#[test]
fn only_the_client_s_own_relay_answers_it() {
    let mut world = equal();
    let sent = world.clients_send(&requests(1..=1));
    let [(WAN, port, (_, own), _)] = sent[..] else { panic!("{sent:?}") };
    let other = RELAYS.into_iter().find(|relay| *relay != own).unwrap();
    assert_eq!(world.receive(WAN, SERVER.0, port, &[(other, b"no".to_vec())]), []);
    let back = world.receive(WAN, SERVER.0, port, &[(own, b"yes".to_vec())]);
    assert_eq!(back, [(LAN, PORT, (CLIENT, 1), b"yes".to_vec())]);
    // No relay is a client: forged in its name, a datagram would go to and fro.
    for relay in RELAYS {
        assert_eq!(world.receive(LAN, SERVER.0, PORT, &[(relay, b"round".to_vec())]), []);
    }
    assert_eq!(world.gateway.counts().strangers, 3);
}

#[test]
fn a_flow_ends_with_its_client_s_silence_and_begins_with_its_next_datagram() {
    let mut world = equal();
    let sent = world.clients_send(&requests(1..=104));
    // The first two are answered and ask again: they stay for two minutes, the others for moments.
    for (_, port, (_, own), _) in &sent[..2] {
        world.receive(WAN, SERVER.0, *port, &[(*own, b"y".to_vec())]);
    }
    world.clients_send(&requests(1..=2));
    world.now += UNCONFIRMED_FOR;
    assert_eq!(world.clients_send(&requests(105..=105)).len(), 1);
    let open =
        |world: &World| -> u64 { of_relays(world, |its| its.admitted - its.ended).iter().sum() };
    assert_eq!(open(&world), 3);
    // One whose flow has ended asks for a new one, and fills up to the bound again.
    assert_eq!(world.clients_send(&requests(3..=104)).len(), 101);
    assert_eq!((open(&world), refused(&world)), (104, vec![("late", 1)]));
    // When two minutes have passed, nobody who was silent has a flow.
    world.now += CLIENT_FOR;
    assert_eq!(world.clients_send(&requests(200..=200)).len(), 1);
    assert_eq!(open(&world), 1);
}

#[test]
fn a_client_that_takes_another_s_entry_has_a_flow_of_its_own() {
    let mut world = world(PathPolicy::LeastLoad, &[(RELAYS[0], 1.0, 1)], 8);
    assert_eq!(world.clients_send(&requests(1..=8)).len(), 8);
    assert_eq!(world.clients_send(&requests(9..=9)), []);
    assert_eq!((world.gateway.counts().datagrams_refused, refused(&world)), (1, vec![]));
    world.now += UNCONFIRMED_FOR;
    assert_eq!(world.clients_send(&requests(9..=16)).len(), 8);
    assert_eq!(of_relays(&world, |its| (its.admitted, its.ended)), [(16, 8)]);
}

#[test]
fn speeds_hops_and_the_table_s_room_decide_where_they_are_asked_for() {
    // A slow relay next door, and a fast one further away.
    let of = [(RELAYS[0], 1.0, 1), (RELAYS[1], 0.25, 2)];
    let mut near = world(PathPolicy::MinHop, &of, CLIENTS_MAX);
    assert_eq!(shares(&near.clients_send(&requests(1..=60))), [EACH, 0]);
    let mut fast = world(PathPolicy::Weighted, &of, CLIENTS_MAX);
    let [slow, quick] = shares(&fast.clients_send(&requests(1..=50)));
    assert!((39..=41).contains(&quick) && slow + quick == 50, "four fifths of 50: {quick}");
    let narrow = FlowBalance { flows_max: 3, ..relays(PathPolicy::LeastLoad, &of) };
    let mut narrow = World::towards(UdpTarget::Balance(narrow), Series::Plain, CLIENTS_MAX);
    assert_eq!(narrow.clients_send(&requests(1..=5)).len(), 3);
    assert_eq!(refused(&narrow), [("full", 2)]);
}

/// Two relays with one model of 1 ms, the second of which takes 5 ms longer now and then longer still:
/// new clients go to the first. The quickest answer stands for the path.
#[test]
fn clients_go_to_the_relay_that_answers_as_described() {
    let mut both = relays(PathPolicy::LeastLoad, &RELAYS.map(|port| (port, 1.0, 1)));
    both.kind.bound_us = 30_000.0;
    for relay in &mut both.relays {
        relay.is_live = true;
    }
    let mut world = World::towards(UdpTarget::Balance(both), Series::Plain, CLIENTS_MAX);
    for round in 0..12 * 20 {
        let sent = world.clients_send(&requests(1..=4));
        assert_eq!(shares(&sent), [2, 2]);
        world.now += Duration::from_millis(1);
        answer(&mut world, &sent, RELAYS[0]);
        world.now += Duration::from_millis(if round == 0 { 0 } else { 5 });
        answer(&mut world, &sent, RELAYS[1]);
        world.now += Duration::from_millis(45);
    }
    let live = |world: &World| of_relays(world, |its| (its.answers, its.drifts()));
    assert_eq!(live(&world), [(480, false), (480, true)]);
    let factors = of_relays(&world, |its| its.factor_permille);
    assert!(factors[0] < 1100 && (3500..6000).contains(&factors[1]), "{factors:?}");
    assert_eq!(shares(&world.clients_send(&requests(5..=14))), [10, 0]);
    // What gives no answers is not called slow for ever.
    for client in 20..28 {
        world.now += Duration::from_secs(31);
        world.clients_send(&requests(client..=client));
    }
    assert_eq!(live(&world)[1], (480, false));
}

#[test]
fn one_client_address_has_no_more_flows_than_one_client_may() {
    let mut narrow = relays(PathPolicy::LeastLoad, &RELAYS.map(|port| (port, 1.0, 1)));
    narrow.flows_per_client = Some(3);
    let mut world = World::towards(UdpTarget::Balance(narrow), Series::Plain, CLIENTS_MAX);
    assert_eq!(world.clients_send(&requests(1..=5)).len(), 3);
    assert_eq!(refused(&world), [("client", 2)]);
    // When the first have been silent for long enough, their places are free.
    world.now += UNCONFIRMED_FOR;
    assert_eq!(world.clients_send(&requests(4..=5)).len(), 2);
}
