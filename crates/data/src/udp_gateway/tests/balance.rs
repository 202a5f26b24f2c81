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
        }
    };
    FlowBalance { policy, kind: KIND, flows_max: 1000, relays: relays.iter().map(relay).collect() }
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
    let counts = world.gateway.balance_counts().unwrap();
    assert_eq!((counts.admitted, counts.ended), (vec![52, 52], vec![0, 0]));
    assert_eq!(world.gateway.counts().too_many_clients, 0);
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
    let open = |world: &World| -> u64 {
        let counts = world.gateway.balance_counts().unwrap();
        counts.admitted.iter().sum::<u64>() - counts.ended.iter().sum::<u64>()
    };
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
    assert_eq!((world.gateway.counts().too_many_clients, refused(&world)), (1, vec![]));
    world.now += UNCONFIRMED_FOR;
    assert_eq!(world.clients_send(&requests(9..=16)).len(), 8);
    let counts = world.gateway.balance_counts().unwrap();
    assert_eq!((counts.admitted, counts.ended), (vec![16], vec![8]));
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
