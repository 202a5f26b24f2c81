//! Tables and maps: kinds of record there and back, oracles, full tables, readers beside a writer.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_packet::LinkAddress;
use gatewright_tables::records::{
    Address, Attachment, HopKind, Interface, Name, Neighbour, NeighbourKey, NeighbourState, NextHop,
};
use gatewright_tables::{
    Capacities, HopIndex, Packer, Prefix, ReadError, Record, RecordWords, Region, RegionError,
    RegionLayout, RegionOwner, Tables, TablesWriter, Unpacker,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

const SEED: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// A record of which every word says the same, so that a torn one shows.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Same(u32);

impl Record for Same {
    const NAME: &'static str = "same/1";
    type Words = [u32; 12];

    fn to_words(&self) -> [u32; 12] {
        [self.0; 12]
    }

    fn from_words(words: [u32; 12]) -> Option<Self> {
        words.iter().all(|&word| word == words[0]).then_some(Self(words[0]))
    }
}

fn there_and_back<R: Record + Debug + PartialEq>(record: R) {
    let words = record.to_words();
    assert_eq!(R::from_words(words), Some(record));
    // A record in another's place, or in memory gone wrong, must not panic.
    for at in 0..R::Words::LEN {
        for value in [0, 1, 9, u32::MAX] {
            let mut wrong = words;
            wrong.as_mut()[at] = value;
            let _either = R::from_words(wrong);
        }
    }
}

#[test]
fn every_kind_of_record_comes_back() {
    use HopKind::{Blackhole, Connected, Kernel, Local, Prohibited};
    let v4: IpAddr = "192.0.2.1".parse().unwrap();
    let v6: IpAddr = "2001:db8::1:2:3".parse().unwrap();
    there_and_back(Interface {
        name: Name::new("thirty-five-octets-are-the-longest-").unwrap(),
        address: LinkAddress::ethernet([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        device: 7,
        flags: Interface::UP | Interface::EXCLUSIVE,
        advertise_every_ms: 600_000,
        advertise_lifetime_s: 1800,
        advertise_hop_limit: 64,
    });
    for address in [v4, v6] {
        there_and_back(Address { link: 3, address, prefix_len: 24, flags: Address::TENTATIVE });
        there_and_back(NextHop::via(u16::MAX, address));
        there_and_back(NeighbourKey { link: 1, address });
    }
    for kind in [Connected, Local, Blackhole, Kernel, Prohibited] {
        there_and_back(NextHop { kind, mtu: 1280, ..NextHop::default() });
    }
    for octets in [&[][..], &[1, 2], &[1, 2, 3, 4, 5, 6], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        let address = LinkAddress::new(octets).unwrap();
        assert_eq!(address.octets(), octets);
        there_and_back(Neighbour { address, state: NeighbourState::Probe, router: true });
    }
    let handler = Name::new("count").unwrap();
    for link in [None, Some(0), Some(u16::MAX)] {
        there_and_back(Attachment { handler, link, position: 0x0800, ..Attachment::default() });
    }
}

#[test]
fn names_are_refused_that_would_not_come_back() {
    assert_eq!(Name::new("thirty-six-octets-are-one-too-many--"), None);
    assert_eq!(Name::new("a\0b"), None);
    assert_eq!(Name::new("").unwrap().as_str(), "");
}

/// A width that no link has, and octets beyond the width, which would make equal addresses differ.
#[test]
fn neighbours_with_impossible_link_addresses_are_refused() {
    let address = LinkAddress::short([0xbe, 0xef]);
    let words = Neighbour { address, ..Neighbour::default() }.to_words();
    assert!(Neighbour::from_words(words).is_some());
    let [state, router, width, first, second] = words;
    for (width, first, second) in [
        (1, first, second),
        (3, first, second),
        (9, first, second),
        (u32::MAX, first, second),
        (width, first | 1, second),
        (width, first, 1),
        (0, first, second),
    ] {
        let found = Neighbour::from_words([state, router, width, first, second]);
        assert_eq!(found, None, "{width} octets of {first:08x} {second:08x}");
    }
}

#[test]
fn a_place_has_another_generation_for_each_record() {
    let mut layout = RegionLayout::new();
    let at = layout.table::<Same>("same", 3).unwrap();
    let mut writer = RegionOwner::in_memory(&layout, SEED).unwrap().table(&at).unwrap();
    let table = writer.reader();
    assert_eq!(table.get(0), Ok(None));
    let before = table.changes();
    for number in 0..3 {
        assert_eq!(writer.insert(&Same(number)), Ok(number));
    }
    assert_ne!(table.changes(), before);
    let first = table.entry(1).unwrap().unwrap();
    assert_eq!(writer.insert(&Same(9)).unwrap_err().capacity, 3);
    assert_eq!(writer.set(1, &Same(7)), Ok(true));
    assert_eq!(table.entry(1).unwrap().unwrap().generation, first.generation);
    assert!(writer.remove(1) && !writer.remove(1));
    assert_eq!(table.get(1), Ok(None));
    assert_eq!(writer.insert(&Same(8)), Ok(1));
    assert_ne!(table.entry(1).unwrap().unwrap().generation, first.generation);
    assert_eq!(table.get(99), Ok(None));
    assert!(writer.set(99, &Same(0)).is_err());
    assert_eq!(writer.refused(), 2);
    let all: Vec<_> = table.iter().map(|(place, record)| (place, record.unwrap().0)).collect();
    assert_eq!(all, [(0, 0), (1, 8), (2, 2)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// Few keys, so that slots are taken, freed and taken again; a small map, so that it is full.
    #[test]
    fn a_map_answers_as_the_standard_one(steps in prop::collection::vec((0_u32..24, any::<bool>()), 1..400)) {
        const CAPACITY: u32 = 12;
        let mut layout = RegionLayout::new();
        let at = layout.map::<Same, Same>("map", CAPACITY).unwrap();
        let mut writer = RegionOwner::in_memory(&layout, SEED).unwrap().map(&at).unwrap();
        let map = writer.reader();
        let mut oracle = HashMap::new();
        for (number, (key, set)) in (0..).zip(steps) {
            let key = Same(key);
            if !set {
                prop_assert_eq!(writer.remove(&key), oracle.remove(&key).is_some());
            } else if oracle.len() < 12 || oracle.contains_key(&key) {
                let known = oracle.insert(key, Same(number)).is_some();
                prop_assert_eq!(writer.set(&key, &Same(number)), Ok(known));
            } else {
                prop_assert_eq!(writer.set(&key, &Same(number)).unwrap_err().capacity, CAPACITY);
            }
            for key in (0..24).map(Same) {
                prop_assert_eq!(map.get(&key), Ok(oracle.get(&key).copied()));
            }
            prop_assert_eq!(map.len() as usize, oracle.len());
            prop_assert_eq!(map.iter().map(Result::unwrap).collect::<HashMap<_, _>>(), oracle.clone());
        }
    }

    #[test]
    fn words_pack_and_unpack(octets in any::<[u8; 7]>(), word: u32, address: Option<IpAddr>) {
        let words: [u32; 8] =
            Packer::default().octets(&octets).word(word).address(address).finish();
        let mut unpacker = Unpacker::new(words);
        prop_assert_eq!(unpacker.octets(), Some(octets));
        prop_assert_eq!(unpacker.word(), Some(word));
        prop_assert_eq!(unpacker.address(), Some(address));
        prop_assert_eq!(unpacker.word(), None);
    }
}

/// The number of AEs that the data plane must admit: each is found, none is refused.
#[test]
fn a_map_of_a_hundred_thousand_holds_as_many() {
    const COUNT: u32 = 100_000;
    let mut layout = RegionLayout::new();
    let at = layout.map::<NeighbourKey, Neighbour>("neighbours", COUNT).unwrap();
    let mut writer = RegionOwner::in_memory(&layout, SEED).unwrap().map(&at).unwrap();
    let key = |number: u32| NeighbourKey { link: 0, address: Ipv4Addr::from(number).into() };
    for number in 0..COUNT {
        assert_eq!(writer.set(&key(number), &Neighbour::default()), Ok(false), "{number}");
    }
    assert!(writer.set(&key(COUNT), &Neighbour::default()).is_err());
    let map = writer.reader();
    assert!((0..COUNT).all(|number| map.get(&key(number)).unwrap().is_some()));
    assert_eq!(map.get(&key(COUNT)), Ok(None));
}

/// Records of twelve equal words, written without a pause: a reader never sees two writes in one.
#[test]
fn a_reader_never_sees_half_a_record() {
    let mut layout = RegionLayout::new();
    let table_at = layout.table::<Same>("same", 4).unwrap();
    let map_at = layout.map::<Same, Same>("map", 8).unwrap();
    let mut owner = RegionOwner::in_memory(&layout, SEED).unwrap();
    let mut table = owner.table(&table_at).unwrap();
    let mut map = owner.map(&map_at).unwrap();
    let (done, started) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (tables, maps, done, started) = (table.reader(), map.reader(), &done, &started);
        scope.spawn(move || {
            let mut seen = 0_u64;
            while !done.load(Ordering::Relaxed) {
                for place in 0..4 {
                    match tables.get(place) {
                        Ok(record) => seen += u64::from(record.is_some()),
                        Err(error) => assert_eq!(error, ReadError::Unsettled),
                    }
                    match maps.get(&Same(place)) {
                        Ok(record) => assert!(record.is_none_or(|Same(at)| at % 4 == place)),
                        Err(error) => assert_eq!(error, ReadError::Unsettled),
                    }
                }
                started.store(true, Ordering::Relaxed);
            }
            assert!(seen > 0);
        });
        let mut number = 0_u32;
        while number < 200_000 || !started.load(Ordering::Relaxed) {
            number = number.wrapping_add(1);
            let place = number % 4;
            table.set(place, &Same(number)).unwrap();
            map.set(&Same(place), &Same(number)).unwrap();
            if number.is_multiple_of(7) {
                table.remove(place);
                map.remove(&Same(place));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_region_behind_a_descriptor_is_attached_and_has_one_writer() {
    let capacities = Capacities::default();
    let mut writer = TablesWriter::create(&capacities, SEED).unwrap();
    let readers = Tables::attach(writer.descriptor().unwrap(), &capacities).unwrap();
    let hop = NextHop::via(0, Ipv4Addr::LOCALHOST.into());
    let place = writer.hops.insert(&hop).unwrap();
    let prefix = "10.0.0.0/8".parse().unwrap();
    writer.routes4.insert(prefix, HopIndex(place)).unwrap();
    let found = readers.routes4.lookup(Ipv4Addr::new(10, 9, 8, 7)).unwrap();
    assert_eq!(readers.hops.get(found.0), Ok(Some(hop)));
    let key = NeighbourKey { link: 0, address: Ipv4Addr::LOCALHOST.into() };
    writer.neighbours.as_mut().unwrap().set(&key, &Neighbour::default()).unwrap();
    assert_eq!(readers.neighbours.get(&key), Ok(Some(Neighbour::default())));

    let second = TablesWriter::adopt(writer.descriptor().unwrap(), &capacities);
    assert!(matches!(second, Err(RegionError::HasWriter)), "{second:?}");
    let descriptor = writer.descriptor().unwrap().try_clone_to_owned().unwrap();
    // A copy of the descriptor, as the data plane holds one, does not hold the lock.
    drop(writer);
    let second = TablesWriter::adopt(&descriptor, &capacities).unwrap();
    assert_eq!(second.neighbours.as_ref().unwrap().get(&key), Some(Neighbour::default()));
    assert_eq!(second.hops.get(place), Some(hop));
    assert!(readers.routes4.lookup(Ipv4Addr::new(10, 9, 8, 7)).is_ok());
}

/// Both halves of a route area are used in turns, but only one holds memory.
#[test]
fn a_region_takes_memory_in_proportion_to_its_routes() {
    let mut writer = TablesWriter::create(&Capacities::default(), SEED).unwrap();
    let file = File::from(writer.descriptor().unwrap().try_clone_to_owned().unwrap());
    let octets = || file.metadata().unwrap().blocks() * 512;
    let empty = octets();
    assert!(empty < 1 << 20, "{empty} octets without a record");
    let mut fill = || {
        let prefix = |number: u32| Prefix::host(Ipv4Addr::from(number << 12));
        let routes = (0..20_000).map(|number| (prefix(number), HopIndex(number)));
        writer.routes4.replace(routes).unwrap();
        octets()
    };
    let once = fill();
    assert!(once > empty + 20_000 * 20, "{once}");
    assert!((0..4).all(|_| fill() < once + (256 << 10)), "the other half keeps its memory");
}

/// A page of shared memory is allocated when it is looked at first, by a reader, too.
#[test]
fn a_walk_over_a_map_touches_only_what_was_written() {
    let capacities = Capacities { neighbours: 1 << 18, ..Capacities::default() };
    let mut writer = TablesWriter::create(&capacities, SEED).unwrap();
    let file = File::from(writer.descriptor().unwrap().try_clone_to_owned().unwrap());
    let octets = || file.metadata().unwrap().blocks() * 512;
    let tables = Tables::attach(writer.descriptor().unwrap(), &capacities).unwrap();
    assert_eq!(tables.neighbours.iter().count(), 0);
    assert!(octets() < 1 << 20, "{} octets without a record", octets());

    let neighbours = writer.neighbours.as_mut().unwrap();
    let record =
        Neighbour { address: LinkAddress::NONE, state: NeighbourState::Incomplete, router: false };
    let key = |last: u32| NeighbourKey { link: 1, address: Ipv4Addr::from_bits(last).into() };
    for last in 0..100 {
        neighbours.set(&key(last), &record).unwrap();
    }
    let written = octets();
    assert_eq!(tables.neighbours.iter().flatten().count(), 100);
    // Two pages for a chunk, as it need not begin with one.
    assert!(octets() <= written + 100 * 4096, "{} octets more", octets() - written);

    // Who takes over looks for records, too, and finds all of them.
    let descriptor = writer.descriptor().unwrap().try_clone_to_owned().unwrap();
    drop((writer, file));
    let mut adopted = TablesWriter::adopt(&descriptor, &capacities).unwrap();
    assert_eq!(adopted.neighbours.as_mut().unwrap().take_found().len(), 100);
    let file = File::from(descriptor);
    let octets = file.metadata().unwrap().blocks() * 512;
    assert!(octets <= written + (1 << 20), "{octets} octets instead of {written}");
}

#[test]
fn what_is_no_region_of_this_layout_is_refused() {
    let capacities = Capacities::default();
    let writer = TablesWriter::create(&capacities, SEED).unwrap();
    let other = Capacities { routes4: 1000, ..capacities };
    let refused = Tables::attach(writer.descriptor().unwrap(), &other);
    assert!(matches!(refused, Err(RegionError::OtherLayout { found: 2 })), "{refused:?}");

    let mut layout = RegionLayout::new();
    layout.table::<Same>("same", 4).unwrap();
    let zero = File::open("/dev/zero").unwrap();
    assert!(matches!(Region::attach(zero, &layout), Err(RegionError::NotARegion { .. })));
    let mut huge = RegionLayout::new();
    let refused = huge.routes::<Ipv4Addr>("routes", u32::MAX);
    assert!(matches!(refused, Err(RegionError::TooLarge { .. })));

    let mut owner = RegionOwner::in_memory(&layout, SEED).unwrap();
    let mut again = RegionLayout::new();
    let at = again.table::<Same>("same", 4).unwrap();
    assert!(owner.table(&at).is_ok());
    assert!(matches!(owner.table(&at), Err(RegionError::Taken { table: "same" })));
}

/// Room for a million routes of each family and a quarter of a million neighbours costs address space,
/// and memory only for what is there.
#[test]
fn room_costs_no_memory() {
    let capacities = Capacities {
        neighbours: 1 << 18,
        routes4: 1 << 20,
        routes6: 1 << 20,
        ..Capacities::default()
    };
    let resident = || -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    let mut tables = TablesWriter::in_memory(&capacities, SEED).unwrap();
    for number in 0..1000 {
        let to = Prefix::host(Ipv4Addr::from_bits(number << 10));
        tables.routes4.insert(to, HopIndex(number)).unwrap();
    }
    assert_eq!(tables.readers().routes4.lookup(Ipv4Addr::from_bits(7 << 10)), Ok(HopIndex(7)));
    let taken = resident().saturating_sub(before);
    // Other tests of this process take memory meanwhile.
    assert!(taken < 32 << 20, "{taken} octets");
}
