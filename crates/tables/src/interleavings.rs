//! Every order in which a reader can see what the writer does, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gatewright-tables --release --lib`

use crate::memory::Words;
use crate::record::{self, ReadError};
use crate::routes::{HopIndex, Miss, Prefix, RoutesWriter, Shape, index};
use loom::model::Builder;
use loom::thread;
use std::net::Ipv4Addr;

/// Orders with more switches between threads than this are left out: nearly all bugs of this kind
/// show with two, and the number of orders grows with each by an order of magnitude.
const SWITCHES: usize = 3;

fn every_order(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(SWITCHES);
    builder.max_branches = 100_000;
    builder.check(test);
}

#[test]
fn a_record_is_read_whole_or_not_at_all() {
    every_order(|| {
        let words = Words::zeroed(4);
        let shared = words.clone();
        let reader = thread::spawn(move || {
            match record::read(shared.all(), |words| record::copy_words::<[u32; 3]>(words).0) {
                Ok(copy) => assert!(copy.iter().all(|&word| word == copy[0]), "{copy:?}"),
                Err(error) => assert_eq!(error, ReadError::Unsettled),
            }
        });
        for number in 1..=2 {
            record::write(words.all(), [number; 3].into_iter());
        }
        reader.join().unwrap();
        let copy = record::read(words.all(), |words| record::copy_words::<[u32; 3]>(words).0);
        assert_eq!(copy, Ok([2; 3]));
    });
}

/// A table so small that loom can go through it: four direct entries, cells for two routes.
fn few_routes() -> RoutesWriter<Ipv4Addr> {
    let shape = Shape { routes_max: 2, direct_bits: [2, 2], few: 2 };
    RoutesWriter::new(Words::zeroed(index(shape.words().unwrap())), shape)
}

fn network(len: u8) -> Prefix<Ipv4Addr> {
    Prefix::new(Ipv4Addr::new(10, 0, 0, 0), len).unwrap()
}

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// Looks [`HOST`] up while `change` happens. The linked routes lead to the first three hops, so any
/// other result comes from reused cells.
///
/// The writer is the thread that loom runs first. It loads words before it stores them, and loom
/// would take its own load for the latest access and leave the reader's before it out.
fn look_up_beside(change: impl Fn(&mut RoutesWriter<Ipv4Addr>) + Send + Sync + 'static) {
    every_order(move || {
        let mut writer = few_routes();
        writer.replace([(network(8), HopIndex(1))]).unwrap();
        let routes = writer.reader();
        let reader = thread::spawn(move || match routes.lookup(HOST) {
            Ok(HopIndex(hop)) => assert!((1..=3).contains(&hop), "{hop}"),
            Err(miss) => assert_eq!(miss, Miss::Unsettled),
        });
        change(&mut writer);
        reader.join().unwrap();
        assert_eq!(writer.reader().lookup(HOST), Ok(HopIndex(3)));
    });
}

/// Two replacements, of which the second builds where the reader may still be.
#[test]
fn a_lookup_beside_replacements_finds_a_set_that_was_linked() {
    look_up_beside(|writer| {
        writer.replace([(network(9), HopIndex(2))]).unwrap();
        writer.replace([(network(10), HopIndex(3))]).unwrap();
    });
}

/// Changes in place: the second, somewhere else, uses the cell that the first has freed.
#[test]
fn a_lookup_beside_changes_finds_a_route_that_was_linked() {
    look_up_beside(|writer| {
        let elsewhere = Prefix::new(Ipv4Addr::new(64, 0, 0, 0), 8).unwrap();
        writer.insert(network(8), HopIndex(2)).unwrap();
        writer.insert(elsewhere, HopIndex(9)).unwrap();
        writer.insert(network(8), HopIndex(3)).unwrap();
        assert!(writer.stats().reclaims > 0);
    });
}
