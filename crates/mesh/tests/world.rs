//! The machines in a simulated world.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

mod outage;

use gatewright_mesh::simulate::{LinkCut, MeshExperiment, MeshScenario, MeshShape, MeshWorld};
use gatewright_mesh::{
    EchoOutcome, EchoToken, MeshEvent, MeshKeys, MeshMembers, MeshNodeKey, MeshRouting,
    MeshSettings, MeshTrust, PathClass, Profile,
};
use gatewright_sim::{Topology, distances, is_reachable_without};
use outage::outage;
use std::collections::BTreeSet;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn same(_: &mut MeshSettings) {}

fn with_a_key(settings: &mut MeshSettings) {
    settings.trust = MeshTrust::Psk(MeshKeys::parse(&"5a".repeat(32)).unwrap());
}

/// A member that an authority has admitted, with a key that follows from its number in the world.
fn with_own_keys(settings: &mut MeshSettings) {
    let key = |octets: [u8; 8]| MeshNodeKey::of_seed(octets.repeat(4).try_into().unwrap()).unwrap();
    let (own, authority) = (key(settings.id.0.to_be_bytes()), key([0; 8]));
    let certificate = authority.admit(&own.public()).unwrap();
    let members = MeshMembers { authorities: vec![authority.public()], ..MeshMembers::default() };
    settings.trust = MeshTrust::Pki(Box::new((own.with_certificate(certificate), members)));
}

fn world(topology: Topology, profile: Profile, seed: u64) -> MeshWorld {
    MeshWorld::new(topology, profile, seed, same)
}

fn assert_sound(world: &MeshWorld, what: &str) {
    assert!(world.violations().is_empty(), "{what}: {:?}", world.violations());
}

/// The paper's Table 1 network: the first ping waits for one round trip of discovery.
#[test]
fn the_first_ping_over_four_nodes_takes_two_round_trips() {
    let mut world = world(Topology::line(4), Profile::Default, 1);
    world.run_for(SECOND);
    let first = world.ping(0, 3, PathClass::BULK);
    world.run_for(SECOND);
    let second = world.ping(0, 3, PathClass::BULK);
    world.run_for(SECOND);
    let rtt = |number: usize| world.pings()[number].rtt.unwrap();
    // Three links of 100 us and 20 us at each node, both ways.
    assert_eq!(rtt(second), 6 * Duration::from_micros(120));
    assert_eq!(rtt(first), 2 * rtt(second));
    assert_sound(&world, "line");
}

/// In `classic` each direction is searched by itself.
#[test]
fn classic_takes_a_round_trip_of_discovery_for_each_direction() {
    let mut world = world(Topology::line(4), Profile::Classic, 1);
    world.run_for(SECOND);
    let first = world.ping(0, 3, PathClass::BULK);
    world.run_for(SECOND);
    assert_eq!(world.pings()[first].rtt, Some(3 * 6 * Duration::from_micros(120)));
    assert_sound(&world, "line");
}

/// Each node of a path answers, in the time that a packet takes to it and back; a path is searched
/// for the first request.
#[test]
fn each_node_of_a_path_answers_an_echo_request() {
    let mut world = world(Topology::line(4), Profile::Default, 1);
    world.run_for(SECOND);
    for ttl in 1..=4 {
        world.echo(0, 3, ttl, EchoToken(ttl.into()));
        world.run_for(SECOND);
    }
    let answered: Vec<_> = world.echoes().to_vec();
    assert_eq!(answered.len(), 4, "{answered:?}");
    for (node, (token, outcome)) in (1_u8..).zip(answered) {
        let EchoOutcome::Answered { node: id, label, hops, rtt } = outcome else {
            panic!("{outcome:?}")
        };
        // A TTL beyond the end is one to the end.
        let node = node.min(3);
        assert_eq!((id, hops), (world.id(node.into()), node), "{token:?}");
        assert_eq!(rtt, 2 * u32::from(node) * Duration::from_micros(120));
        assert!(world.node(node.into()).unwrap().labels().any(|own| own == label));
    }
    assert_eq!(world.sum(|counters| counters.echoes), 4);
    assert_sound(&world, "line");
}

/// In `classic` the end answers by its own path, and relays have no way back.
#[test]
fn in_classic_only_the_end_answers_an_echo_request() {
    let mut world = world(Topology::line(4), Profile::Classic, 1);
    world.run_for(SECOND);
    world.ping(0, 3, PathClass::BULK);
    world.run_for(SECOND);
    for ttl in [1, 64] {
        world.echo(0, 3, ttl, EchoToken(ttl.into()));
        world.run_for(2 * SECOND);
    }
    let [(_, EchoOutcome::Silent), (_, EchoOutcome::Answered { hops: 3, .. })] = world.echoes()
    else {
        panic!("{:?}", world.echoes())
    };
    assert_eq!(world.sum(|counters| counters.echoes_unanswered), 1);
}

/// Nobody answers over a cut link, and nobody is there behind it.
#[test]
fn an_echo_request_without_an_answer_ends() {
    let mut world = world(Topology::line(3), Profile::Default, 1);
    world.run_for(SECOND);
    world.ping(0, 2, PathClass::BULK);
    world.run_for(SECOND);
    let link = world.link(1, 2).unwrap();
    world.cut(link, LinkCut::Silent);
    world.echo(0, 2, 64, EchoToken(1));
    world.run_for(2 * SECOND);
    assert_eq!(world.echoes(), [(EchoToken(1), EchoOutcome::Silent)]);
    world.echo(0, 2, 64, EchoToken(2));
    world.run_for(5 * SECOND);
    assert_eq!(world.echoes()[1..], [(EchoToken(2), EchoOutcome::Unreachable)]);
    // The table of requests is bounded.
    for token in 100..200 {
        world.echo(0, 2, 64, EchoToken(token));
    }
    let refused = |(_, outcome): &&(EchoToken, EchoOutcome)| *outcome == EchoOutcome::Refused;
    assert_eq!(world.echoes().iter().filter(refused).count(), 100 - 64);
}

/// Cold: the packet is there before any I'M ALIVE.
#[test]
fn a_ping_at_the_start_finds_its_way() {
    let mut world = world(Topology::three_paths(), Profile::Default, 3);
    let first = world.ping(0, 6, PathClass::BULK);
    world.run_for(SECOND);
    assert!(world.pings()[first].rtt.is_some());
    assert_eq!(world.installed(0, 6)[0], Some(vec![1]));
    assert!(world.installed(0, 6)[1].is_some());
    assert_sound(&world, "three paths");
}

/// Figure 6 and 7: path 1 is cut, then path 2; path 3 takes over until path 1 works again.
fn figure_7(profile: Profile, seed: u64) -> (MeshWorld, Vec<Option<Vec<usize>>>) {
    let mut world = world(Topology::three_paths(), profile, seed);
    let step = |world: &mut MeshWorld, seconds: u64| {
        for _ in 0..seconds * 10 {
            world.ping(0, 6, PathClass::BULK);
            world.run_for(100 * MS);
        }
        world.installed(0, 6)[0].clone()
    };
    world.run_for(5 * SECOND);
    let mut routes = vec![step(&mut world, 20)];
    let (one, two) = (world.link(1, 6).unwrap(), world.link(2, 3).unwrap());
    world.cut(one, LinkCut::Silent);
    routes.push(step(&mut world, 20));
    world.cut(two, LinkCut::Silent);
    routes.push(step(&mut world, 20));
    world.heal(one);
    routes.push(step(&mut world, 240));
    (world, routes)
}

#[test]
fn figure_7_of_the_paper() {
    for profile in [Profile::Classic, Profile::Default] {
        let (world, routes) = figure_7(profile, 11);
        assert_eq!(routes[0], Some(vec![1]), "{profile:?} {routes:?}");
        assert!(matches!(routes[1].as_deref(), Some([_, _])), "{profile:?} {routes:?}");
        assert!(matches!(routes[2].as_deref(), Some([4, 5])), "{profile:?} {routes:?}");
        assert_eq!(routes[3], Some(vec![1]), "{profile:?} {routes:?} {:#?}", world.log());
        assert_sound(&world, "figure 7");
    }
}

/// Outage in virtual time: near and far, with carrier and silent.
#[test]
fn failover_takes_no_longer_than_its_detection() {
    let cells = [
        (Profile::Default, (0, 1), LinkCut::Carrier, 3 * MS),
        (Profile::Default, (1, 6), LinkCut::Carrier, 3 * MS),
        (Profile::Default, (0, 1), LinkCut::Silent, 200 * MS),
        (Profile::Default, (1, 6), LinkCut::Silent, 200 * MS),
        (Profile::Default, (0, 1), LinkCut::OneEnd, 200 * MS),
        (Profile::Default, (1, 6), LinkCut::OneEnd, 200 * MS),
        (Profile::Classic, (0, 1), LinkCut::Carrier, 3 * MS),
        (Profile::Classic, (0, 1), LinkCut::Silent, 6_300 * MS),
        (Profile::Classic, (1, 6), LinkCut::Silent, 6_300 * MS),
    ];
    for (profile, (a, b), cut, bound) in cells {
        for seed in 0..5 {
            let mut world = world(Topology::three_paths(), profile, seed);
            world.run_for(5 * SECOND);
            world.ping(0, 6, PathClass::BULK);
            world.run_for(3 * SECOND);
            let link = world.link(a, b).unwrap();
            let warm = outage(&mut world, (0, 6), SECOND);
            assert!(warm <= 2 * MS, "{profile:?} before the cut: {warm:?}");
            world.cut(link, cut);
            let outage = outage(&mut world, (0, 6), 8 * SECOND);
            println!("{profile:?} {a}-{b} {cut:?} seed {seed}: {outage:?}");
            assert!(outage <= bound, "{profile:?} {a}-{b} {cut:?} seed {seed}: {outage:?}");
            assert_sound(&world, "failover");
        }
    }
}

/// Paths of node 0 to node 6 that lead over a link.
fn paths_over(world: &MeshWorld, (a, b): (usize, usize)) -> usize {
    let node = world.node(0).unwrap();
    let (own, target) = (world.id(0), world.id(6));
    let both = [world.id(a), world.id(b)];
    let paths = node.paths().filter(|path| path.origin == own && path.target == target);
    paths
        .filter(|&path| {
            let relays = node.relays(path).unwrap().iter().copied();
            let nodes: Vec<_> = [own].into_iter().chain(relays).chain([target]).collect();
            nodes.windows(2).any(|pair| pair == both)
        })
        .count()
}

/// Packets each 100 ms, so that the destination stays in use.
fn used_for(world: &mut MeshWorld, time: Duration) {
    let end = world.now() + time;
    while world.now() < end {
        world.ping(0, 6, PathClass::BULK);
        world.run_for(100 * MS);
    }
}

/// A healed link is in a path again within 2 s, near and far, in each trust model.
#[test]
fn a_link_that_comes_back_is_used_again_within_two_seconds() {
    let trusts: [fn(&mut MeshSettings); 3] = [same, with_a_key, with_own_keys];
    let links = [(0, 1), (1, 6)];
    let cuts = [LinkCut::Carrier, LinkCut::Silent];
    for (number, change) in trusts.into_iter().enumerate() {
        for (link, cut) in links.into_iter().flat_map(|link| cuts.map(|cut| (link, cut))) {
            let mut world = MeshWorld::new(Topology::three_paths(), Profile::Default, 3, change);
            world.run_for(5 * SECOND);
            used_for(&mut world, 3 * SECOND);
            let index = world.link(link.0, link.1).unwrap();
            assert!(paths_over(&world, link) > 0, "{link:?}");
            world.cut(index, cut);
            // The search that follows the loss does not find it, and the next one is 10 s later.
            used_for(&mut world, 2 * SECOND);
            assert_eq!(paths_over(&world, link), 0, "{link:?} {cut:?}");
            let healed_at = world.now();
            world.heal(index);
            while paths_over(&world, link) == 0 && world.now() < healed_at + 20 * SECOND {
                world.ping(0, 6, PathClass::BULK);
                world.run_for(10 * MS);
            }
            let took = world.now().saturating_sub(healed_at);
            println!("trust {number} {link:?} {cut:?}: {took:?}");
            assert!(took >= 500 * MS && took <= 2 * SECOND, "{number} {link:?} {cut:?}: {took:?}");
            assert_sound(&world, "a link that comes back");
        }
    }
}

/// A link of Figure 6 that goes and comes at an interval for two minutes: searches of the origin, LINK
/// BACKs, and those that the origin followed.
fn flapping(interval: Duration, flaps: u32) -> (u64, u64, u64) {
    let mut world = world(Topology::three_paths(), Profile::Default, 3);
    world.run_for(5 * SECOND);
    used_for(&mut world, 3 * SECOND);
    let link = world.link(1, 6).unwrap();
    let before = world.sum(|counters| counters.searches);
    for _ in 0..flaps {
        world.cut(link, LinkCut::Carrier);
        used_for(&mut world, interval);
        world.heal(link);
        used_for(&mut world, interval);
    }
    assert_sound(&world, "a link that flaps");
    let searches = world.sum(|counters| counters.searches) - before;
    let followed = world.node(0).unwrap().counters().links_back_followed;
    (searches, world.sum(|counters| counters.links_back), followed)
}

/// A link that flaps is reported less and less often, and causes no more floods than the losses
/// themselves and the searches in the background.
#[test]
fn a_link_that_flaps_causes_no_flood() {
    for (interval, flaps) in [(SECOND, 60), (3 * SECOND, 20), (7 * SECOND, 9)] {
        let (searches, links_back, followed) = flapping(interval, flaps);
        println!("{interval:?} x {flaps}: {searches} {links_back} {followed}");
        assert!(links_back >= 1 && followed >= 1, "{interval:?}: never reported");
        assert!(links_back <= 10, "{interval:?}: {links_back} reports of {flaps} losses");
        assert!(searches <= 30, "{interval:?}: {searches} searches in two minutes");
    }
}

/// `classic` has no LINK BACK.
#[test]
fn classic_reports_no_link() {
    let mut world = world(Topology::three_paths(), Profile::Classic, 3);
    world.run_for(5 * SECOND);
    used_for(&mut world, 3 * SECOND);
    let link = world.link(1, 6).unwrap();
    world.cut(link, LinkCut::Carrier);
    used_for(&mut world, 2 * SECOND);
    world.heal(link);
    used_for(&mut world, 5 * SECOND);
    let counted = world.sum(|counters| counters.links_back + counters.links_back_followed);
    assert_eq!((counted, world.sum(|counters| counters.malformed)), (0, 0));
}

/// A relay that restarts has no labels: its neighbours learn it from the first message or packet.
#[test]
fn a_restarted_relay_is_repaired() {
    let mut world = world(Topology::line(4), Profile::Default, 5);
    world.run_for(SECOND);
    world.ping(0, 3, PathClass::BULK);
    world.run_for(SECOND);
    world.reboot(1);
    let outage = outage(&mut world, (0, 3), 2 * SECOND);
    println!("outage of a restart: {outage:?}");
    assert!(outage <= 100 * MS, "{outage:?}");
    assert_sound(&world, "restart");
}

/// The same with authentication by a key of all and by own keys: its neighbours challenge it before
/// they believe that it is another start.
#[test]
fn a_restarted_relay_is_repaired_in_an_authenticated_mesh() {
    for trust in [with_a_key, with_own_keys] {
        restart_a_relay(trust);
    }
}

fn restart_a_relay(trust: fn(&mut MeshSettings)) {
    let mut world = MeshWorld::new(Topology::line(4), Profile::Default, 5, trust);
    world.run_for(SECOND);
    let first = world.ping(0, 3, PathClass::BULK);
    world.run_for(SECOND);
    assert!(world.pings()[first].rtt.is_some());
    world.reboot(1);
    let outage = outage(&mut world, (0, 3), 2 * SECOND);
    assert!(outage <= 300 * MS, "{outage:?}");
    assert_eq!(world.sum(|counters| counters.forged + counters.unsigned), 0);
    assert_sound(&world, "restart");
}

#[test]
fn tables_are_empty_after_silence() {
    for profile in [Profile::Classic, Profile::Default] {
        let mut world = world(Topology::grid(4, 4), profile, 9);
        world.run_for(SECOND);
        for (from, to) in [(0, 15), (3, 12), (5, 10)] {
            world.ping(from, to, PathClass::BULK);
        }
        world.run_for(60 * SECOND);
        assert!(!world.is_silent(), "{profile:?}");
        world.run_for(200 * SECOND);
        assert!(world.is_silent(), "{profile:?}");
        assert_sound(&world, "silence");
    }
}

/// Where two node-disjoint paths exist, primary and backup are disjoint.
#[test]
fn the_backup_is_disjoint_where_the_graph_allows() {
    let (mut possible, mut disjoint) = (0, 0);
    for seed in 0..40 {
        let mut world = world(Topology::random_geometric(30, 6, seed), Profile::Default, seed);
        world.run_for(5 * SECOND);
        let near = world.topology().neighbours(|_| true);
        let far = distances(&near, 0).iter().enumerate().max_by_key(|(_, d)| **d).unwrap().0;
        world.ping(0, far, PathClass::BULK);
        world.run_for(5 * SECOND);
        let [Some(primary), backup] = world.installed(0, far) else {
            panic!("seed {seed}: no path")
        };
        let passed: BTreeSet<usize> = primary.iter().copied().collect();
        if !is_reachable_without(&near, 0, far, &passed) {
            continue;
        }
        possible += 1;
        let apart = backup.is_some_and(|backup| backup.iter().all(|relay| !passed.contains(relay)));
        if apart {
            disjoint += 1;
        } else {
            println!("seed {seed}: not disjoint");
        }
        assert_sound(&world, "disjoint");
    }
    println!("disjoint {disjoint} of {possible}");
    assert_eq!(disjoint, possible);
}

/// No two classes are carried by the same relays where two disjoint paths exist.
#[test]
fn background_traffic_takes_another_path() {
    let mut world = world(Topology::three_paths(), Profile::Default, 2);
    world.run_for(SECOND);
    world.ping(0, 6, PathClass::BULK);
    world.run_for(SECOND);
    let bulk = world.ping(0, 6, PathClass::BULK);
    let background = world.ping(0, 6, PathClass::BACKGROUND);
    world.run_for(SECOND);
    let rtt = |number: usize| world.pings()[number].rtt.unwrap();
    // Answers are bulk in both cases; the request passes one relay more.
    assert!(rtt(background) > rtt(bulk));
}

#[test]
fn broadcasts_reach_all_below_the_cost_of_flooding() {
    for profile in [Profile::Classic, Profile::Default] {
        let nodes = 200;
        let mut world = world(Topology::random_geometric(nodes, 12, 4), profile, 4);
        world.run_for(10 * SECOND);
        for from in 0..10 {
            world.broadcast(from * 7);
            world.run_for(SECOND);
        }
        let delivered = world.figures().delivered;
        let relayed = world.sum(|counters| counters.broadcasts_relayed);
        println!("{profile:?}: delivered {delivered} of 1990, relayed {relayed} of 1990");
        assert_eq!(delivered, 1_990);
        match profile {
            Profile::Classic => assert_eq!(relayed, 1_990),
            Profile::Default => assert!(relayed * 10 <= 1_990 * 6, "{relayed}"),
        }
    }
}

/// A 7 x 7 grid from cold, where pairs also ping each other at the same time: all are answered.
#[test]
fn a_grid_is_reached_within_two_seconds_from_cold() {
    for seed in 0..3 {
        let experiment = MeshExperiment {
            scenario: MeshScenario::Cold,
            shape: MeshShape::Grid,
            nodes: 49,
            degree: 6,
            loss_percent: 0,
            profile: Profile::Default,
            routing: MeshRouting::OnDemand,
            seed,
        };
        let report = experiment.run();
        println!("{report:?}");
        assert!(report.violations.is_empty() && report.figures[0].value >= 99.0, "{report:?}");
    }
}

/// The event log names what happened and why.
#[test]
fn events_tell_the_cause() {
    let mut world = world(Topology::three_paths(), Profile::Default, 8);
    world.run_for(SECOND);
    world.ping(0, 6, PathClass::BULK);
    world.run_for(SECOND);
    let link = world.link(0, 1).unwrap();
    world.cut(link, LinkCut::Carrier);
    world.run_for(SECOND);
    let lost = world.log().iter().any(|&(_, node, event)| {
        node == 0 && matches!(event, MeshEvent::PathLost { reason, .. } if reason.to_string() == "link down")
    });
    let switched = world
        .log()
        .iter()
        .any(|(_, node, event)| *node == 0 && matches!(event, MeshEvent::Switched { .. }));
    assert!(lost && switched, "{:#?}", world.log());
}
