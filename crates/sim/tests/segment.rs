//! What a segment does to frames, and that a seed decides it.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use core::time::Duration;
use gatewright_packet::{Batch, CHUNK_SIZE, Pool};
use gatewright_sim::{Chance, Impairment, Medium, PortIndex, Segment, SegmentConfig, SegmentError};
use proptest::prelude::*;

const A: PortIndex = PortIndex(0);
const B: PortIndex = PortIndex(1);
const C: PortIndex = PortIndex(2);
const FOREVER: Duration = Duration::from_hours(1);

fn received(segment: &mut Segment, now: Duration, port: PortIndex) -> Vec<Vec<u8>> {
    let (pool, mut batch) = (Pool::new(64, CHUNK_SIZE).unwrap(), Batch::default());
    let mut frames = Vec::new();
    while segment.receive(now, port, &pool, &mut batch) > 0 {
        frames.extend(batch.drain().map(|packet| packet.octets().to_vec()));
    }
    frames
}

fn frame(to: u8, from: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x08, 0x00];
    frame.resize(60, 0);
    frame
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_hub_reaches_everyone_but_the_sender() {
    let mut hub = Segment::new(3, SegmentConfig::default()).unwrap();
    hub.send(Duration::ZERO, A, b"hello");
    assert_eq!(received(&mut hub, Duration::ZERO, A).len(), 0);
    assert_eq!(received(&mut hub, Duration::ZERO, B), [b"hello"]);
    assert_eq!(received(&mut hub, Duration::ZERO, C), [b"hello"]);
    assert_eq!((hub.counters().sent, hub.counters().delivered), (1, 2));
}

#[test]
fn a_switch_learns_where_an_address_is() {
    let config = SegmentConfig { medium: Medium::Switched, ..SegmentConfig::default() };
    let mut switch = Segment::new(3, config).unwrap();
    switch.send(Duration::ZERO, A, &frame(0xb, 0xa));
    assert_eq!(received(&mut switch, Duration::ZERO, C).len(), 1, "a stranger is flooded");
    switch.send(Duration::ZERO, B, &frame(0xa, 0xb));
    assert_eq!(received(&mut switch, Duration::ZERO, A).len(), 1);
    assert_eq!(received(&mut switch, Duration::ZERO, C).len(), 0, "a known one is not");
    let mut broadcast = frame(0, 0xb);
    broadcast[..6].fill(0xff);
    switch.send(Duration::ZERO, B, &broadcast);
    assert_eq!(received(&mut switch, Duration::ZERO, C).len(), 1, "a group always is");
    switch.send(Duration::ZERO, C, &frame(0xa, 0xa));
    switch.send(Duration::ZERO, B, &frame(0xa, 0xb));
    assert_eq!(received(&mut switch, Duration::ZERO, C).len(), 1, "an address moves");
}

#[test]
fn a_radio_reaches_only_those_that_hear_it() {
    let mut radio = Segment::new(3, SegmentConfig::default()).unwrap();
    radio.set_hears(A, C, false);
    radio.send(Duration::ZERO, A, b"near");
    radio.send(Duration::ZERO, C, b"far");
    assert_eq!(received(&mut radio, Duration::ZERO, C).len(), 0);
    assert_eq!(received(&mut radio, Duration::ZERO, A), [b"far"], "the way back is not deaf");
    assert_eq!(received(&mut radio, Duration::ZERO, B).len(), 2);
    radio.set_hears(A, C, true);
    radio.send(Duration::ZERO, A, b"now");
    assert_eq!(received(&mut radio, Duration::ZERO, C), [b"now"]);
}

#[test]
fn capacity_and_latency_say_when_a_frame_arrives() {
    // 1000 octets at 1 Mbit/s: 8 ms each, then 5 ms on the way.
    let config =
        SegmentConfig { capacity: Some(1_000_000), latency: millis(5), ..SegmentConfig::default() };
    let mut hub = Segment::new(3, config).unwrap();
    hub.send(millis(100), A, &[0; 1000]);
    hub.send(millis(100), B, &[0; 1000]);
    assert_eq!(hub.poll_timeout(), Some(millis(113)));
    assert_eq!(received(&mut hub, millis(112), C).len(), 0);
    assert_eq!(received(&mut hub, millis(113), C).len(), 1);
    assert_eq!(hub.port_timeout(C), Some(millis(121)), "the other waited for the medium");
    let switched = SegmentConfig { medium: Medium::Switched, ..config };
    let mut switch = Segment::new(3, switched).unwrap();
    for (port, source) in [(A, 0xa), (B, 0xb)] {
        let mut long = frame(0xc, source);
        long.resize(1000, 0);
        switch.send(millis(100), port, &long);
    }
    assert_eq!(received(&mut switch, millis(113), C).len(), 2, "each has its own line");
}

#[test]
fn what_waits_is_bounded_and_counted() {
    let config = SegmentConfig {
        capacity: Some(8_000),
        backlog_octets_max: 2_000,
        ..SegmentConfig::default()
    };
    let mut slow = Segment::new(2, config).unwrap();
    for _ in 0..10 {
        slow.send(Duration::ZERO, A, &[0; 1000]);
    }
    assert_eq!(slow.counters().backlog_full, 7, "2000 octets may wait before the next comes");
    assert_eq!(received(&mut slow, FOREVER, B).len(), 3);

    let config = SegmentConfig { queue_frames_max: 4, ..SegmentConfig::default() };
    let mut unread = Segment::new(2, config).unwrap();
    for _ in 0..10 {
        unread.send(Duration::ZERO, A, b"frame");
    }
    assert_eq!(unread.counters().queue_full, 6);
    assert_eq!(received(&mut unread, FOREVER, B).len(), 4);
}

#[test]
fn a_port_that_is_down_neither_sends_nor_receives() {
    let mut hub = Segment::new(2, SegmentConfig::default()).unwrap();
    hub.send(Duration::ZERO, A, b"lost on the way");
    hub.set_up(B, false);
    hub.send(Duration::ZERO, A, b"to nobody");
    hub.send(Duration::ZERO, B, b"from nobody");
    hub.send(Duration::ZERO, PortIndex(7), b"from nowhere");
    assert_eq!(hub.counters().down, 4);
    hub.set_up(B, true);
    assert_eq!(received(&mut hub, FOREVER, B).len(), 0);
    hub.send(Duration::ZERO, A, b"again");
    assert_eq!(received(&mut hub, FOREVER, B), [b"again"]);
}

#[test]
fn impairments_happen_as_often_as_asked() {
    const FRAMES: u64 = 20_000;
    let impairment = Impairment {
        loss: Chance::percent(10),
        duplicate: Chance::percent(5),
        corrupt: Chance::percent(2),
        reorder: Chance::percent(4),
        reorder_by: millis(3),
        ..Impairment::default()
    };
    let config = SegmentConfig { impairment, seed: 7, ..SegmentConfig::default() };
    let mut segment = Segment::new(2, config).unwrap();
    let mut arrived = Vec::new();
    for number in 0..FRAMES {
        let now = millis(number);
        segment.send(now, A, &number.to_be_bytes());
        arrived.extend(received(&mut segment, now, B));
    }
    arrived.extend(received(&mut segment, FOREVER, B));
    let counters = *segment.counters();
    let near = |count: u64, percent: u64| {
        let expected = FRAMES * percent / 100;
        assert!(count.abs_diff(expected) < expected / 4, "{count} instead of {expected}");
    };
    near(counters.lost, 10);
    near(counters.duplicated, 5);
    near(counters.corrupted, 2);
    near(counters.reordered, 4);
    let expected = FRAMES - counters.lost + counters.duplicated;
    assert_eq!(u64::try_from(arrived.len()).unwrap(), expected);
    assert_eq!(counters.delivered, expected);
    assert!(arrived.windows(2).any(|pair| pair[0] > pair[1]), "some are overtaken");
}

#[test]
fn the_impossible_is_refused_or_counted() {
    let nothing = SegmentConfig { capacity: Some(0), ..SegmentConfig::default() };
    assert_eq!(Segment::new(2, nothing).unwrap_err(), SegmentError::Capacity);
    assert_eq!(Segment::new(0, SegmentConfig::default()).unwrap_err(), SegmentError::Ports(0));
    let mut hub = Segment::new(2, SegmentConfig::default()).unwrap();
    hub.send(Duration::ZERO, A, &[]);
    hub.send(Duration::ZERO, A, &vec![0; 70_000]);
    assert_eq!(hub.counters().length, 2);
    hub.send(Duration::ZERO, A, &[0; 4000]);
    assert_eq!(received(&mut hub, FOREVER, B).len(), 0);
    assert_eq!(hub.counters().oversized, 1);
    let (pool, mut batch) = (Pool::new(1, CHUNK_SIZE).unwrap(), Batch::default());
    hub.send(Duration::ZERO, A, b"first");
    hub.send(Duration::ZERO, A, b"second");
    assert_eq!(hub.receive(FOREVER, B, &pool, &mut batch), 1);
    assert_eq!(hub.counters().no_packet, 1);
    batch.clear();
    assert_eq!(hub.receive(FOREVER, B, &pool, &mut batch), 1, "the other waits for its packet");
}

proptest! {
    #[test]
    fn the_same_seed_gives_the_same_world(
        seed: u64,
        sends in prop::collection::vec((0..4_u16, 0..50_u64, 1..200_usize), 1..100),
    ) {
        let impairment = Impairment {
            loss: Chance::percent(20),
            duplicate: Chance::percent(20),
            reorder: Chance::percent(20),
            reorder_by: millis(7),
            corrupt: Chance::percent(20),
            delay: Duration::ZERO,
            jitter: millis(3),
        };
        let capacity = Some(1_000_000);
        let config = SegmentConfig { impairment, seed, capacity, ..SegmentConfig::default() };
        let world = || {
            let mut segment = Segment::new(4, config).unwrap();
            for (number, &(port, at, len)) in sends.iter().enumerate() {
                segment.send(millis(at), PortIndex(port), &vec![u8::try_from(number).unwrap(); len]);
            }
            let frames: Vec<_> =
                segment.ports().map(|port| received(&mut segment, FOREVER, port)).collect();
            (frames, *segment.counters())
        };
        prop_assert_eq!(world(), world());
    }
}

/// The frames of one port that get through, out of a hundred.
fn got_through(hub: &mut Segment, from: PortIndex, to: PortIndex) -> Vec<Vec<u8>> {
    for number in 0..100 {
        hub.send(Duration::ZERO, from, &frame(number, 0xa));
    }
    received(hub, FOREVER, to)
}

#[test]
fn a_port_that_is_added_has_its_own_impairment_and_seed() {
    let lossy = Impairment { loss: Chance::percent(50), ..Impairment::default() };
    let slow = Impairment { delay: millis(7), ..Impairment::default() };
    let hub = || {
        let mut hub = Segment::without_ports(SegmentConfig::default()).unwrap();
        let ports = [hub.add_port(lossy, 1).unwrap(), hub.add_port(slow, 2).unwrap()];
        (hub, ports)
    };
    let (mut alone, [a, b]) = hub();
    let expected = got_through(&mut alone, a, b);
    assert!((20..80).contains(&expected.len()), "{}", expected.len());
    let (mut both, [a, b]) = hub();
    both.send(Duration::ZERO, b, &frame(0xa, 0xb));
    assert_eq!(both.port_timeout(a), Some(millis(7)));
    assert_eq!(got_through(&mut both, a, b), expected, "the other port's frames change nothing");
}

#[test]
fn a_removed_port_is_gone_and_its_number_is_used_again() {
    let none = Impairment::default();
    let mut hub = Segment::without_ports(SegmentConfig::default()).unwrap();
    let [a, b, c] = [0, 1, 2].map(|seed| hub.add_port(none, seed).unwrap());
    hub.remove_port(b);
    hub.send(Duration::ZERO, a, &frame(0xc, 0xa));
    assert_eq!(
        (received(&mut hub, FOREVER, c).len(), received(&mut hub, FOREVER, b).len()),
        (1, 0)
    );
    assert_eq!(hub.counters().down, 0, "nobody is there who could be down");
    assert_eq!(hub.add_port(none, 3), Ok(b));
    hub.send(Duration::ZERO, a, &frame(0xb, 0xa));
    assert_eq!(received(&mut hub, FOREVER, b).len(), 1);
    for _ in 3..gatewright_sim::PORTS_MAX {
        hub.add_port(none, 0).unwrap();
    }
    assert!(matches!(hub.add_port(none, 0), Err(SegmentError::Ports(_))));
}
