//! The neighbour cache alone: the state table of RFC 4861, appendix C, and its bounds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use gatewright_packet::{CHUNK_SIZE, LinkAddress, Packet, Pool};
use gatewright_stack::{
    Advertised, NEIGHBOUR_EVICTED, NeighbourLimits, NeighbourOutput, NeighbourState, Neighbours,
    WAITING_FULL, WAITING_MAX, WAITING_PER_NEIGHBOUR_MAX,
};
use proptest::prelude::*;
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

/// Links with addresses of different widths share the machine.
const OURS: LinkAddress = LinkAddress::ethernet([2, 0, 0, 0, 0, 1]);
const OTHER: LinkAddress = LinkAddress::extended([2, 0, 0, 0, 0, 0, 0, 2]);
const PEER: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7));

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn said(link_address: Option<LinkAddress>, solicited: bool, overrides: bool) -> Advertised {
    Advertised { link_address, solicited, overrides, router: false }
}

fn state(cache: &Neighbours, now: Duration) -> Option<(NeighbourState, LinkAddress)> {
    cache.iter(now).find(|&(ip, ..)| ip == PEER).map(|(_, station, state)| (state, station))
}

fn outputs(cache: &mut Neighbours) -> Vec<String> {
    std::iter::from_fn(|| cache.poll_output())
        .map(|output| match output {
            NeighbourOutput::Solicit { to: None, .. } => "ask all".to_owned(),
            NeighbourOutput::Solicit { to: Some(to), .. } => format!("ask {to}"),
            NeighbourOutput::Send(packet) => format!("send {}", packet.len()),
            NeighbourOutput::Unreachable(packet) => format!("unreachable {}", packet.len()),
            NeighbourOutput::Drop(reason, _) | NeighbourOutput::Count(reason) => {
                reason.0.to_owned()
            }
            NeighbourOutput::RouterGone(_) => "router gone".to_owned(),
        })
        .collect()
}

fn pool() -> Pool {
    Pool::new(2048, CHUNK_SIZE).unwrap()
}

fn packet(pool: &Pool, len: usize) -> Packet {
    pool.packet_of(&vec![0; len]).unwrap()
}

/// A cache whose one neighbour is in `state` at 100 s, with its outputs taken.
fn in_state(pool: &Pool, state: NeighbourState) -> Neighbours {
    let mut cache = Neighbours::new(7);
    match state {
        NeighbourState::Incomplete => cache.wait(PEER, packet(pool, 9), s(100)),
        NeighbourState::Permanent => assert!(cache.set_permanent(PEER, OURS)),
        NeighbourState::Stale => cache.heard(PEER, OURS, true, s(100)),
        NeighbourState::Reachable => {
            cache.heard(PEER, OURS, true, s(99));
            cache.advertised(PEER, said(Some(OURS), true, true), s(100));
        }
        NeighbourState::Delay => {
            cache.heard(PEER, OURS, true, s(100));
            assert_eq!(cache.resolve(PEER, s(100)), Some(OURS));
        }
        NeighbourState::Probe => {
            cache.heard(PEER, OURS, true, s(94));
            assert_eq!(cache.resolve(PEER, s(95)), Some(OURS));
            cache.handle_timeout(s(100));
        }
    }
    outputs(&mut cache);
    assert_eq!(self::state(&cache, s(100)).map(|(state, _)| state), Some(state));
    cache
}

/// RFC 4861, appendix C; where it and the text of §7.2.5 differ (an advertisement without
/// link-layer address, an unsolicited one without override that differs), the text holds.
#[test]
fn rfc4861_appendix_c_advertisements() {
    use NeighbourState::{Delay, Incomplete, Probe, Reachable, Stale};
    let known = [Reachable, Stale, Delay, Probe];
    let pool = pool();
    let mut cases = vec![
        (Incomplete, said(Some(OURS), false, false), Stale, OURS),
        (Incomplete, said(Some(OURS), false, true), Stale, OURS),
        (Incomplete, said(Some(OURS), true, false), Reachable, OURS),
        (Incomplete, said(Some(OURS), true, true), Reachable, OURS),
        (Incomplete, said(None, true, true), Incomplete, LinkAddress::NONE),
        (Reachable, said(Some(OTHER), true, false), Stale, OURS),
    ];
    for from in known {
        cases.push((from, said(Some(OURS), true, false), Reachable, OURS));
        cases.push((from, said(Some(OTHER), true, true), Reachable, OTHER));
        cases.push((from, said(Some(OURS), false, false), from, OURS));
        cases.push((from, said(Some(OURS), false, true), from, OURS));
        cases.push((from, said(Some(OTHER), false, true), Stale, OTHER));
        cases.push((from, said(None, false, true), from, OURS));
    }
    for from in [Stale, Delay, Probe] {
        cases.push((from, said(Some(OTHER), true, false), from, OURS));
    }
    for (from, what, to, station) in cases {
        let mut cache = in_state(&pool, from);
        cache.advertised(PEER, what, s(100));
        assert_eq!(state(&cache, s(100)), Some((to, station)), "{from:?} {what:?}");
        let sent = outputs(&mut cache) == ["send 9"];
        assert_eq!(sent, from == Incomplete && to != Incomplete, "{from:?} {what:?}");
    }
}

/// RFC 4861, appendix C: what is heard in other messages than advertisements.
#[test]
fn rfc4861_appendix_c_other_messages() {
    use NeighbourState::{Delay, Incomplete, Probe, Reachable, Stale};
    let pool = pool();
    for (from, station, to) in [
        (Incomplete, OURS, Stale),
        (Reachable, OTHER, Stale),
        (Delay, OTHER, Stale),
        (Probe, OTHER, Stale),
        (Reachable, OURS, Reachable),
        (Stale, OURS, Stale),
        (Delay, OURS, Delay),
        (Probe, OURS, Probe),
    ] {
        let mut cache = in_state(&pool, from);
        cache.heard(PEER, station, false, s(100));
        assert_eq!(state(&cache, s(100)), Some((to, station)), "{from:?} {station}");
    }
    let mut cache = Neighbours::new(7);
    cache.heard(PEER, OURS, false, s(1));
    assert_eq!(state(&cache, s(1)), None, "not ours to remember");
    for from in [Stale, Delay, Probe] {
        let mut cache = in_state(&pool, from);
        cache.confirm(PEER, s(100));
        assert_eq!(state(&cache, s(100)), Some((Reachable, OURS)), "{from:?}");
    }
}

/// RFC 4861, appendix C: the timers, and the packets that wait meanwhile.
#[test]
fn rfc4861_appendix_c_timeouts() {
    let pool = pool();
    let mut cache = Neighbours::new(7);
    cache.wait(PEER, packet(&pool, 1), s(0));
    cache.wait(PEER, packet(&pool, 2), s(0));
    assert_eq!(outputs(&mut cache), ["ask all"], "once for all that wait");
    for (at, expected) in [
        (0, &[][..]),
        (1, &["ask all"]),
        (2, &["ask all"]),
        (3, &["unreachable 1", "unreachable 2"]),
        (4, &[]),
    ] {
        cache.handle_timeout(s(at));
        assert_eq!(outputs(&mut cache), expected, "at {at} s");
    }
    assert_eq!((state(&cache, s(4)), cache.poll_timeout()), (None, None));

    cache.heard(PEER, OURS, true, s(10));
    assert_eq!(cache.poll_timeout(), None, "a stale neighbour is let be");
    assert_eq!(cache.resolve(PEER, s(20)), Some(OURS), "sent at once");
    for (at, state_then, expected) in [
        (24, Some(NeighbourState::Delay), None),
        (25, Some(NeighbourState::Probe), Some("ask 02:00:00:00:00:01")),
        (26, Some(NeighbourState::Probe), Some("ask 02:00:00:00:00:01")),
        (27, Some(NeighbourState::Probe), Some("ask 02:00:00:00:00:01")),
        (28, None, None),
    ] {
        cache.handle_timeout(s(at));
        assert_eq!(state(&cache, s(at)).map(|(state, _)| state), state_then, "at {at} s");
        assert_eq!(outputs(&mut cache), expected.as_slice(), "at {at} s");
        if state_then.is_some() {
            assert_eq!(cache.resolve(PEER, s(at)), Some(OURS), "traffic does not wait for probes");
        }
    }
    let mut cache = in_state(&pool, NeighbourState::Reachable);
    assert_eq!(state(&cache, s(114)).unwrap().0, NeighbourState::Reachable, "half of 30 s");
    assert_eq!(state(&cache, s(146)).unwrap().0, NeighbourState::Stale, "one and a half of 30 s");
    assert_eq!(cache.resolve(PEER, s(146)), Some(OURS));
    assert_eq!(state(&cache, s(146)).unwrap().0, NeighbourState::Delay);
}

#[test]
fn the_oldest_waiting_packet_gives_way() {
    let pool = pool();
    let mut cache = Neighbours::new(7);
    for len in 1..=usize::from(WAITING_PER_NEIGHBOUR_MAX) + 1 {
        cache.wait(PEER, packet(&pool, len), s(0));
    }
    assert_eq!(outputs(&mut cache), ["ask all", WAITING_FULL.0]);
    cache.advertised(PEER, said(Some(OURS), true, true), s(0));
    let sent: Vec<_> = (2..=9).map(|len| format!("send {len}")).collect();
    assert_eq!(outputs(&mut cache), sent);
}

#[test]
fn a_router_that_stops_being_one_is_told() {
    let mut cache = in_state(&pool(), NeighbourState::Stale);
    cache.set_router(PEER, true);
    cache.advertised(PEER, said(Some(OURS), true, true), s(100));
    assert_eq!(outputs(&mut cache), ["router gone"]);
}

/// Bounds that are soon met.
const SMALL: NeighbourLimits =
    NeighbourLimits { neighbours: 1024, pending: 4096, resolutions_per_second: 1_000_000_000 };

#[test]
fn a_flood_stays_inside_its_bounds_and_spares_the_living() {
    let pool = pool();
    let mut cache = Neighbours::with_limits(7, SMALL);
    cache.heard(PEER, OURS, true, s(99));
    cache.advertised(PEER, said(Some(OURS), true, true), s(100));
    let fixed = IpAddr::from([192, 0, 2, 99]);
    assert!(cache.set_permanent(fixed, OTHER));
    let mut evicted = 0;
    for host in 0..20_000_u32 {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + host));
        // A scan through us, and a station that claims every address in turn.
        if host % 2 == 0 {
            cache.wait(address, packet(&pool, 1), s(101));
        } else {
            cache.heard(address, OTHER, true, s(101));
        }
        evicted += outputs(&mut cache).iter().filter(|what| *what == NEIGHBOUR_EVICTED.0).count();
    }
    assert_eq!(cache.len(), 1024);
    assert!(evicted > 9000, "{evicted}");
    assert!(pool.capacity() - pool.available() <= WAITING_MAX);
    assert_eq!(state(&cache, s(101)), Some((NeighbourState::Reachable, OURS)));
    assert_eq!(cache.resolve(fixed, s(101)), Some(OTHER));
    cache.clear();
    drop(cache);
    assert_eq!(pool.available(), pool.capacity(), "every chunk is home");
}

/// A cache full of neighbours in use, whether they are reachable, just used or being probed, refuses
/// new ones; one that is idle for longest gives way first.
#[test]
fn a_neighbour_in_use_never_gives_way() {
    let mut cache = Neighbours::with_limits(7, NeighbourLimits { neighbours: 8, ..SMALL });
    let ip = |host: u8| IpAddr::from([10, 0, 0, host]);
    for host in 0..8 {
        cache.heard(ip(host), OURS, true, s(u64::from(host)));
        cache.advertised(ip(host), said(Some(OURS), true, true), s(u64::from(host)));
    }
    cache.heard(ip(99), OTHER, true, s(10));
    assert_eq!(cache.get(ip(99), s(10)), None, "all are reachable");
    // All are stale, and all but two are used.
    for host in (0..8).filter(|host| ![3, 5].contains(host)) {
        assert_eq!(cache.resolve(ip(host), s(100)), Some(OURS));
    }
    cache.heard(ip(99), OTHER, true, s(101));
    assert_eq!((cache.get(ip(3), s(101)), cache.get(ip(5), s(101)).is_some()), (None, true));
    cache.handle_timeout(s(105));
    cache.heard(ip(98), OTHER, true, s(105));
    cache.heard(ip(97), OTHER, true, s(105));
    let known =
        |cache: &Neighbours| (0..8).filter(|&host| cache.get(ip(host), s(105)).is_some()).count();
    assert_eq!(known(&cache), 7, "those that were never confirmed gave way to each other");
}

/// RFC 6583 §7: what is asked for in vain is rationed, by where its packets come from; a neighbour
/// that answers gives back what it took.
#[test]
fn a_scan_is_rationed_and_does_not_ration_others() {
    let pool = pool();
    let mut cache = Neighbours::with_limits(7, NeighbourLimits::default());
    let from = |source: [u8; 4]| {
        let mut header = [0; 20];
        header[12..16].copy_from_slice(&source);
        pool.packet_of(&header).unwrap()
    };
    let target = |host: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + host));
    let asked =
        |cache: &mut Neighbours| outputs(cache).iter().filter(|what| *what == "ask all").count();
    // Four seconds of a million packets a second, of which the cache needs to see the first only.
    let mut count = 0;
    for (second, host) in (0..4).flat_map(|second| (0..5000).map(move |host| (second, host))) {
        cache.wait(target(second * 10_000 + host), from([192, 0, 2, 1]), s(u64::from(second)));
        cache.handle_timeout(s(u64::from(second)));
        count += asked(&mut cache);
    }
    assert!((1024..8000).contains(&count), "{count} solicitations");
    cache.wait(target(1_000_000), from([198, 51, 100, 1]), s(4));
    assert_eq!(asked(&mut cache), 1, "another origin has its own share");
    // 20,000 hosts that live are all found, in no time at all.
    let mut living = Neighbours::with_limits(7, NeighbourLimits::default());
    for host in 0..20_000 {
        living.wait(target(host), from([192, 0, 2, 1]), s(0));
        assert_eq!(outputs(&mut living), ["ask all"]);
        living.advertised(target(host), said(Some(OURS), true, true), s(0));
        assert_eq!(outputs(&mut living), ["send 20"]);
    }
    assert_eq!(living.len(), 20_000);
}

/// Packets for a few silent neighbours do not drive out those for others.
#[test]
fn a_silent_neighbour_does_not_take_all_the_room_for_waiting() {
    let pool = pool();
    let mut cache = Neighbours::new(7);
    let silent = |host: u8| IpAddr::from([10, 0, 1, host]);
    for round in 0..100_u8 {
        for host in 0..100 {
            cache.wait(silent(host), packet(&pool, 1), s(0));
            outputs(&mut cache);
        }
        if round == 0 {
            cache.wait(PEER, packet(&pool, 9), s(0));
        }
    }
    outputs(&mut cache);
    cache.advertised(PEER, said(Some(OURS), true, true), s(0));
    assert_eq!(outputs(&mut cache), ["send 9"]);
}

/// More neighbours than any link's table had room for are known, used, probed and forgotten.
#[test]
fn a_hundred_thousand_neighbours_are_kept() {
    let mut cache = Neighbours::new(7);
    let ip = |host: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + host));
    for host in 0..100_000 {
        cache.heard(ip(host), OURS, true, s(0));
        cache.advertised(ip(host), said(Some(OURS), true, true), s(0));
    }
    assert_eq!(cache.len(), 100_000);
    for host in 0..100_000 {
        assert_eq!(cache.resolve(ip(host), s(100)), Some(OURS));
    }
    cache.handle_timeout(s(105));
    assert_eq!(std::iter::from_fn(|| cache.poll_output()).count(), 100_000, "each is probed");
    for host in (0..100_000).rev() {
        cache.remove(ip(host));
    }
    assert!(cache.is_empty());
}

/// What has changed is told once, in pieces or as a journal.
#[test]
fn changes_are_told_once() {
    let mut cache = Neighbours::new(7);
    cache.heard(PEER, OURS, true, s(0));
    assert_eq!(cache.take_changed(), None, "no journal is kept");
    cache.keep_journal();
    cache.advertised(PEER, said(Some(OURS), true, true), s(0));
    cache.heard(PEER, OTHER, true, s(0));
    assert_eq!(cache.take_changed(), Some(vec![PEER]));
    assert_eq!(cache.take_changed(), Some(Vec::new()));
    cache.remove(PEER);
    assert_eq!(cache.take_changed(), Some(vec![PEER]));
    for host in 0..10 {
        cache.heard(IpAddr::from([10, 0, 0, host]), OURS, true, s(0));
    }
    let (first, next) = cache.part(0, 6, s(0));
    let (second, end) = cache.part(next.unwrap(), 6, s(0));
    assert_eq!((first.len() + second.len(), end), (10, None));
}

/// RFC 4861 §6.3.4: a router sets the times; one that would silence us for an hour is not believed.
#[test]
fn a_router_cannot_stop_resolution() {
    let mut cache = Neighbours::new(7);
    cache.set_times(None, Some(Duration::from_hours(1)));
    assert_eq!(cache.retransmit(), s(10));
    cache.set_times(None, None);
    assert_eq!(cache.retransmit(), s(10));
    cache.set_times(None, Some(Duration::ZERO));
    assert_eq!(cache.retransmit(), Duration::from_millis(100));
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u8),
    Resolve(u8),
    Advertised(u8, bool, bool, bool),
    Heard(u8, u8, bool),
    Remove(u8),
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u8>().prop_map(Step::Wait),
        any::<u8>().prop_map(Step::Resolve),
        any::<(u8, bool, bool, bool)>().prop_map(|(a, b, c, d)| Step::Advertised(a, b, c, d)),
        any::<(u8, u8, bool)>().prop_map(|(a, b, c)| Step::Heard(a, b, c)),
        any::<u8>().prop_map(Step::Remove),
        any::<u16>().prop_map(Step::Pass),
    ]
}

proptest! {
    /// Whatever happens: every packet comes out or waits, and a neighbour is in the table once.
    #[test]
    fn no_packet_is_lost_and_no_neighbour_is_twice(steps in prop::collection::vec(step(), 0..200)) {
        let pool = Pool::new(512, CHUNK_SIZE).unwrap();
        let mut cache = Neighbours::new(1);
        let (mut now, mut given, mut came) = (Duration::ZERO, 0, 0);
        let ip = |host: u8| IpAddr::from([10, 0, 0, host % 16]);
        for step in steps {
            match step {
                Step::Wait(host) => {
                    given += 1;
                    cache.wait(ip(host), packet(&pool, 1), now);
                }
                Step::Resolve(host) => drop(cache.resolve(ip(host), now)),
                Step::Advertised(host, with, solicited, overrides) => {
                    cache.advertised(ip(host), said(with.then_some(OURS), solicited, overrides), now);
                }
                Step::Heard(host, station, add) => {
                    let station = LinkAddress::ethernet([2, 0, 0, 0, 0, station % 3]);
                    cache.heard(ip(host), station, add, now);
                }
                Step::Remove(host) => cache.remove(ip(host)),
                Step::Pass(millis) => {
                    now += Duration::from_millis(millis.into());
                    cache.handle_timeout(now);
                    prop_assert!(cache.poll_timeout().is_none_or(|at| at > now));
                }
            }
            came += std::iter::from_fn(|| cache.poll_output())
                .filter(|output| !matches!(output,
                    NeighbourOutput::Solicit { .. } | NeighbourOutput::Count(_) | NeighbourOutput::RouterGone(_)))
                .count();
            let mut known: Vec<_> = cache.iter(now).map(|(ip, ..)| ip).collect();
            let count = known.len();
            known.sort();
            known.dedup();
            prop_assert_eq!(known.len(), count);
            prop_assert_eq!(pool.capacity() - pool.available(), given - came);
        }
    }
}
