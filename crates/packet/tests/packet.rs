//! The laws of the slab, against a model that is a plain vector.

use gatewright_packet::{
    Batch, CHUNK_SIZE, CHUNK_SIZE_DATAGRAM, DATA_OFFSET, HEADROOM, Packet, Pool, PoolError,
    TAILROOM,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Strip(usize),
    StripTrailer(usize),
    Truncate(usize),
    Prepend(Vec<u8>),
    Append(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let octets = proptest::collection::vec(any::<u8>(), 0..300);
    prop_oneof![
        (0..400_usize).prop_map(Step::Strip),
        (0..400_usize).prop_map(Step::StripTrailer),
        (0..2000_usize).prop_map(Step::Truncate),
        octets.clone().prop_map(Step::Prepend),
        octets.prop_map(Step::Append),
    ]
}

fn apply(packet: &mut Packet, model: &mut Vec<u8>, step: Step) {
    match step {
        Step::Strip(octets) => {
            packet.strip(octets);
            model.drain(..octets.min(model.len()));
        }
        Step::StripTrailer(octets) => {
            packet.strip_trailer(octets);
            model.truncate(model.len().saturating_sub(octets));
        }
        Step::Truncate(len) => {
            packet.truncate(len);
            model.truncate(len);
        }
        Step::Prepend(header) => {
            if packet.prepend(&header).is_ok() {
                model.splice(0..0, header);
            }
        }
        Step::Append(trailer) => {
            if packet.append(&trailer).is_ok() {
                model.extend(trailer);
            }
        }
    }
}

proptest! {
    /// Whatever layers do to two neighbouring packets, each holds exactly what was put into it.
    #[test]
    fn a_packet_is_a_vector(steps in proptest::collection::vec((any::<bool>(), step()), 0..60)) {
        let pool = Pool::new(2, CHUNK_SIZE).unwrap();
        let mut packets = [pool.packet().unwrap(), pool.packet().unwrap()];
        let mut models = [Vec::new(), Vec::new()];
        for (second, step) in steps {
            let one = usize::from(second);
            apply(&mut packets[one], &mut models[one], step);
            prop_assert_eq!(packets[0].octets(), &models[0][..]);
            prop_assert_eq!(packets[1].octets(), &models[1][..]);
        }
    }
}

#[test]
fn a_received_frame_has_the_promised_room() {
    let pool = Pool::new(1, CHUNK_SIZE).unwrap();
    let mut packet = pool.packet_of(&vec![7; pool.packet_len_max()]).unwrap();
    assert!(pool.packet_len_max() >= 1518, "a tagged Ethernet frame fits");
    assert!(packet.headroom() >= HEADROOM && packet.tailroom() >= TAILROOM);
    assert!(packet.append(&[0; TAILROOM + 1]).is_err());
    assert_eq!(packet.len(), pool.packet_len_max(), "a refused append changes nothing");
}

#[test]
fn a_stripped_network_header_can_be_restored() {
    let pool = Pool::new(1, CHUNK_SIZE).unwrap();
    let mut packet = pool.packet_of(b"ethernet|network|payload").unwrap();
    packet.strip(9);
    packet.mark_network();
    packet.strip(8);
    assert_eq!(packet.octets(), b"payload");
    assert_eq!(packet.network_octets(), b"network|payload");
    packet.restore_network();
    assert_eq!(packet.octets(), b"network|payload");
    packet.prepend(b"new|").unwrap();
    packet.restore_network();
    assert_eq!(packet.octets(), b"new|network|payload", "never cuts what was put in front");
}

#[test]
fn chunks_come_home_and_an_empty_pool_is_counted() {
    let pool = Pool::new(3, CHUNK_SIZE).unwrap();
    let packets: Vec<Packet> = std::iter::from_fn(|| pool.packet()).collect();
    assert_eq!((packets.len(), pool.available(), pool.exhausted()), (3, 0, 1));
    drop(packets);
    assert_eq!(pool.available(), 3);
}

#[test]
fn a_parcel_may_die_on_another_worker() {
    let pool = Pool::new(8, CHUNK_SIZE).unwrap();
    for _ in 0..100 {
        let parcels: Vec<_> =
            std::iter::from_fn(|| pool.packet_of(b"abroad")).map(Packet::into_parcel).collect();
        assert_eq!(parcels.len(), 8);
        std::thread::scope(|scope| {
            for parcel in parcels {
                scope.spawn(move || assert_eq!(parcel.into_packet().octets(), b"abroad"));
            }
        });
    }
    assert_eq!(pool.available(), 8);
}

#[test]
fn a_packet_outlives_its_pool() {
    let pool = Pool::new(2, CHUNK_SIZE).unwrap();
    let packet = pool.packet_of(b"late").unwrap();
    drop(pool);
    assert_eq!(packet.octets(), b"late");
}

#[test]
fn a_full_batch_gives_the_packet_back() {
    let pool = Pool::new(65, CHUNK_SIZE).unwrap();
    let mut batch = Batch::default();
    while let Some(packet) = pool.packet() {
        if let Err(refused) = batch.push(packet) {
            assert_eq!((batch.len(), batch.room()), (64, 0));
            drop(refused);
            return;
        }
    }
    panic!("a batch took 65 packets");
}

#[test]
fn packets_go_from_batch_to_queue_and_back_in_order() {
    let pool = Pool::new(200, CHUNK_SIZE).unwrap();
    let octet = |packet: &Packet| packet.octets()[0];
    let (mut batch, mut queue) = (Batch::default(), Vec::new());
    for numbers in [0..64_u8, 64..65, 65..130] {
        for number in numbers.clone().take(64) {
            batch.push(pool.packet_of(&[number]).unwrap()).unwrap();
        }
        batch.append_to(&mut queue);
        assert!(batch.is_empty());
    }
    let queued: Vec<u8> = queue.iter().map(octet).collect();
    assert_eq!(queued, (0..129).collect::<Vec<u8>>());
    let mut taken = Vec::new();
    while !queue.is_empty() {
        batch.fill_from(&mut queue);
        assert!((1..=64).contains(&batch.len()));
        taken.extend(batch.iter().map(octet));
        batch.pop();
        batch.fill_from(&mut queue);
        taken.extend(batch.drain().skip(63).map(|packet| octet(&packet)));
    }
    assert_eq!(taken.len(), 129);
    assert!(taken.is_sorted());
}

#[test]
fn headers_go_in_front_as_long_as_there_is_room() {
    for chunk_size in [CHUNK_SIZE, 2 * CHUNK_SIZE, CHUNK_SIZE_DATAGRAM] {
        let pool = Pool::new(3, chunk_size).unwrap();
        let mut packets: Vec<Packet> = std::iter::from_fn(|| pool.packet()).collect();
        for packet in &mut packets {
            // Beyond the middle of a large chunk, too.
            packet.extend_back(chunk_size - DATA_OFFSET).unwrap();
            packet.strip(chunk_size - DATA_OFFSET);
            let room = packet.headroom();
            assert_eq!(room, chunk_size);
            assert!(packet.extend_front(room + 1).is_err());
            packet.extend_front(room - 10).unwrap();
            assert_eq!(packet.extend_front(11).unwrap_err().free, 10);
            packet.extend_front(10).unwrap();
            assert_eq!((packet.len(), packet.headroom()), (room, 0));
        }
    }
}

#[test]
fn shapes_that_make_no_slab_are_refused() {
    for (chunks, chunk_size) in [(0, 2048), (1, 0), (1, 2047), (1, 3000), (usize::MAX, 2048)] {
        let refused = Pool::new(chunks, chunk_size).unwrap_err();
        assert!(matches!(refused, PoolError::Shape { .. }), "{chunks} of {chunk_size}");
    }
    let pool = Pool::new(1, CHUNK_SIZE_DATAGRAM).unwrap();
    assert!(pool.packet_len_max() >= 65_535 + DATA_OFFSET, "the largest datagram and its headers");
}

#[test]
fn a_packet_knows_its_pool() {
    let [frames, datagrams] =
        [CHUNK_SIZE, CHUNK_SIZE_DATAGRAM].map(|size| Pool::new(1, size).unwrap());
    let packet = datagrams.packet().unwrap();
    assert!(packet.is_of(&datagrams) && !packet.is_of(&frames));
}

#[test]
fn chunks_are_as_large_as_their_packets_need() {
    for (len, expected) in [(0, 2048), (1760, 2048), (1761, 4096), (3808, 4096), (9022, 10_240)] {
        let chunk_size = Pool::chunk_size_for(len);
        assert_eq!(chunk_size, expected, "{len}");
        assert!(Pool::new(1, chunk_size).unwrap().packet_len_max() >= len);
    }
}
