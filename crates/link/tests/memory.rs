//! Links over a segment in memory.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use gatewright_link::{Link, LinkState, MemoryLink};
use gatewright_packet::{Batch, CHUNK_SIZE, Checksum, LinkIndex, Pool};
use gatewright_sim::{PortIndex, Segment, SegmentConfig};
use gatewright_wire::MacAddress;
use std::{cell::RefCell, rc::Rc, time::Duration};

fn two_links(config: SegmentConfig) -> (Rc<Pool>, [MemoryLink; 2]) {
    let pool = Rc::new(Pool::new(64, CHUNK_SIZE).unwrap());
    let segment = Rc::new(RefCell::new(Segment::new(2, config).unwrap()));
    let links = [0, 1].map(|number: u8| {
        let port = (Rc::clone(&segment), PortIndex(number.into()));
        let (index, mac) = (LinkIndex(7 + u16::from(number)), MacAddress([2, 0, 0, 0, 0, number]));
        MemoryLink::new(index, &format!("p{number}"), mac, 100, port, Rc::clone(&pool))
    });
    (pool, links)
}

#[test]
fn a_frame_is_stamped_and_its_packet_goes_home() {
    let latency = Duration::from_millis(3);
    let (pool, [mut from, mut to]) =
        two_links(SegmentConfig { latency, ..SegmentConfig::default() });
    let mut batch = Batch::default();
    batch.push(pool.packet_of(&[1; 60]).unwrap()).unwrap();
    from.transmit(Duration::ZERO, &mut batch);
    assert!(batch.is_empty());
    assert_eq!((pool.available(), to.poll_timeout()), (64, Some(latency)));
    assert_eq!(to.receive(Duration::from_millis(2), &mut batch), 0);
    assert_eq!(to.receive(Duration::from_millis(4), &mut batch), 1);
    let packet = batch.pop().unwrap();
    assert_eq!(packet.received_ns(), 4_000_000);
    assert_eq!(packet.meta().ingress, LinkIndex(8));
    assert_eq!(packet.octets(), [1; 60]);
    assert_eq!((from.counters().sent, to.counters().received_octets), (1, 60));
}

#[test]
fn what_the_link_cannot_carry_is_counted() {
    let (pool, [mut from, mut to]) = two_links(SegmentConfig::default());
    let mut batch = Batch::default();
    for len in [0, 100 + 18, 100 + 19] {
        batch.push(pool.packet_of(&vec![0; len]).unwrap()).unwrap();
    }
    from.transmit(Duration::ZERO, &mut batch);
    assert_eq!((from.counters().sent, from.counters().transmit_length), (1, 2));
    to.set_up(false);
    assert_eq!(to.state(), LinkState::Down);
    assert_eq!(to.receive(Duration::ZERO, &mut batch), 0, "what was on its way is lost");
}

#[test]
fn a_partial_checksum_is_completed_when_it_leaves() {
    let (pool, [mut from, mut to]) = two_links(SegmentConfig::default());
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2, 0, 8, 0, 0]);
    let mut packet = pool.packet_of(&frame).unwrap();
    packet.meta_mut().checksum = Checksum::Partial;
    let mut batch = Batch::default();
    batch.push(packet).unwrap();
    from.transmit(Duration::ZERO, &mut batch);
    to.receive(Duration::ZERO, &mut batch);
    // c000 + 0201 + c000 + 0202 + 0011 + 0008 (pseudo-header) + 0001 + 0002 + 0008 = 1_8427.
    let checksum = !0x8428_u16;
    assert_eq!(batch.pop().unwrap().octets().get(40..42), Some(&checksum.to_be_bytes()[..]));
    assert_eq!(from.counters().completed, 1);
}
