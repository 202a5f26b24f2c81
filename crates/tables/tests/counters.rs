//! Counters: named, full, reused, read beside their writers and by another mapping.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may fail loudly"
)]

use gatewright_tables::records::Name;
use gatewright_tables::{
    Capacities, Counted, CounterName, CounterOwner, CounterSlots, CounterTable, CountersFull,
    Record, Tables, TablesWriter,
};
use std::sync::atomic::{AtomicBool, Ordering};

const WORKERS: u32 = 3;

fn capacities(counters: u32) -> Capacities {
    Capacities { workers: WORKERS, counters, ..Capacities::default() }
}

fn slots(counters: u32) -> CounterSlots {
    let mut writer = TablesWriter::in_memory(&capacities(counters), [1, 2]).unwrap();
    writer.counters.slots()
}

fn name(worker: u16, owner: CounterOwner, item: &str) -> CounterName {
    let [of, item] = ["somewhere", item].map(|text| Name::new(text).unwrap());
    CounterName { worker, owner, of, link: None, item }
}

fn counted(table: &CounterTable) -> Vec<(u16, CounterOwner, String, u64)> {
    let plain =
        |Counted { name, value }: Counted| (name.worker, name.owner, name.item.to_string(), value);
    table.iter().map(plain).collect()
}

#[test]
fn names_come_back_from_their_words() {
    let owners = [
        CounterOwner::Worker,
        CounterOwner::Link(3),
        CounterOwner::Layer(u16::MAX),
        CounterOwner::Graph,
        CounterOwner::Edge(4095),
        CounterOwner::Handler(u32::MAX),
        CounterOwner::Icmp(6),
        CounterOwner::NextHop(65_535),
    ];
    for owner in owners {
        for link in [None, Some(0), Some(u16::MAX)] {
            let name = CounterName { link, ..name(7, owner, "resolution-limited") };
            assert_eq!(CounterName::from_words(name.to_words()), Some(name));
        }
    }
    for at in 0..22 {
        let mut words = name(7, CounterOwner::Graph, "left").to_words();
        if let Some(word) = words.get_mut(at) {
            *word = u32::MAX;
        }
        // Memory gone wrong is no name, or another one, and never a panic.
        let _either = CounterName::from_words(words);
    }
}

#[test]
fn counters_are_found_by_name_with_what_their_worker_counted() {
    let slots = slots(64);
    let table = slots.reader();
    let first = slots.named(&name(0, CounterOwner::Layer(2), "truncated")).unwrap();
    let other = slots.named(&name(2, CounterOwner::Layer(2), "truncated")).unwrap();
    let kept = slots.reserve(1).unwrap();
    kept.add(5);
    first.add(3);
    other.add(u64::from(u32::MAX));
    other.clone().add(2);
    let layer = CounterOwner::Layer(2);
    let all = [
        (0, layer, "truncated".to_owned(), 3),
        (2, layer, "truncated".to_owned(), u64::from(u32::MAX) + 2),
    ];
    assert_eq!(counted(&table), all, "one without a name is not shown");
    assert_eq!(table.sum(layer, "truncated"), Some(u64::from(u32::MAX) + 5));
    assert_eq!(table.sum(layer, "left"), None);
    kept.publish(&name(9, CounterOwner::Worker, "received"));
    kept.add(1);
    assert_eq!(table.sum(CounterOwner::Worker, "received"), Some(1), "it began with its name");
    assert_eq!(
        counted(&table).get(1).map(|counted| counted.0),
        Some(1),
        "in its own worker's part"
    );
}

/// Setup says that there is no room; a slot is free again, with zero, when its last handle is gone.
#[test]
fn a_full_table_is_an_error_with_its_size_until_a_counter_goes() {
    let slots = slots(16);
    let table = slots.reader();
    let mut held: Vec<_> = (0..16)
        .map(|id| slots.named(&name(1, CounterOwner::Handler(id), "taken")).unwrap())
        .collect();
    for slot in &held {
        slot.add(7);
    }
    let full = CountersFull { worker: 1, capacity: 16 };
    assert_eq!(slots.reserve(1).unwrap_err(), full);
    assert_eq!(full.to_string(), "worker 1 has no room for another counter: its table holds 16");
    assert!(slots.reserve(0).is_ok(), "another worker has its own");
    assert!(slots.reserve(3).is_err(), "there are three workers");
    let changes = table.changes();
    let gone = held.remove(5);
    let copy = gone.clone();
    drop(gone);
    assert_eq!(table.sum(CounterOwner::Handler(5), "taken"), Some(7), "a copy counts still");
    drop(copy);
    assert_ne!(table.changes(), changes);
    assert_eq!(table.sum(CounterOwner::Handler(5), "taken"), None);
    let new = slots.named(&name(1, CounterOwner::Handler(99), "packets")).unwrap();
    assert_eq!(table.sum(CounterOwner::Handler(99), "packets"), Some(0));
    assert_eq!((new.get(), table.iter().count()), (0, 16));
}

/// Names come and go while others read: a count is always one of the name beside it.
#[test]
fn a_reader_never_attributes_a_count_to_another_name() {
    const NAMES: u32 = 40_000;
    let slots = slots(16);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (table, done) = (slots.reader(), &done);
                scope.spawn(move || {
                    let mut seen = 0_u64;
                    while !done.load(Ordering::Acquire) {
                        for Counted { name, value } in table.iter() {
                            let CounterOwner::Handler(id) = name.owner else {
                                panic!("{name:?} was never written")
                            };
                            assert_eq!(name.item.as_str(), id.to_string());
                            let whose = value >> 32;
                            assert!(value == 0 || whose == id.into(), "{id} shows {value:#x}");
                            seen += u64::from(value != 0);
                        }
                    }
                    seen
                })
            })
            .collect();
        let writers: Vec<_> = (0..2_u16)
            .map(|worker| {
                let slots = slots.clone();
                scope.spawn(move || {
                    let mut held = std::collections::VecDeque::new();
                    for id in (1 + u32::from(worker)..NAMES).step_by(2) {
                        let own = name(worker, CounterOwner::Handler(id), &id.to_string());
                        let slot = slots.named(&own).unwrap();
                        slot.set(u64::from(id) << 32);
                        slot.add(id.into());
                        held.push_back(slot);
                        // Some go on another thread than the one that named them, as handlers do.
                        if held.len() > 12 {
                            drop(held.pop_front());
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        let seen: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        assert!(seen > 0, "the readers met counts");
    });
    assert_eq!(slots.reader().iter().count(), 0, "all are gone");
}

#[test]
fn another_mapping_reads_them_and_the_next_writer_withdraws_them() {
    let capacities = capacities(32);
    let mut writer = TablesWriter::create(&capacities, [1, 2]).unwrap();
    let other = Tables::attach(writer.descriptor().unwrap(), &capacities).unwrap().counters;
    let slots = writer.counters.slots();
    let kept = slots.named(&name(2, CounterOwner::Edge(1), "packets")).unwrap();
    kept.add(11);
    assert_eq!(other.sum(CounterOwner::Edge(1), "packets"), Some(11));
    let descriptor = writer.descriptor().unwrap().try_clone_to_owned().unwrap();
    // As if the process had ended: nothing is given back.
    std::mem::forget(kept);
    drop(writer);
    let mut next = TablesWriter::adopt(&descriptor, &capacities).unwrap();
    assert_eq!(other.sum(CounterOwner::Edge(1), "packets"), Some(11), "adopted as they are");
    let slots = next.counters.slots();
    assert_eq!(other.iter().count(), 0);
    let new = slots.named(&name(2, CounterOwner::Edge(2), "packets")).unwrap();
    new.add(1);
    assert_eq!(other.sum(CounterOwner::Edge(2), "packets"), Some(1));
}
