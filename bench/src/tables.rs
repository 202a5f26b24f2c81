//! `bench tables`: records found by key, beside the standard hash table under a lock.

use bench::{Bench, Contestant, Numbers, Options, Relation, Yardstick, nanoseconds_each};
use gatewright_tables::records::{Entity, Sender};
use gatewright_tables::{Map, RegionLayout, RegionOwner};
use std::collections::HashMap;
use std::hint::black_box;
use std::net::Ipv6Addr;
use std::sync::RwLock;

/// Application entities that a data plane must admit.
const ENTITIES: u32 = 100_000;
const LOOKUPS: usize = 1_000_000;
/// Keys of a set that stays in the first two caches.
const WARM: usize = 1024;

/// Random keys, and what both tables hold for them.
struct Entities {
    map: Map<Sender, Entity>,
    standard: RwLock<HashMap<Sender, Entity>>,
    cold: Vec<Sender>,
    warm: Vec<Sender>,
}

/// A device that associated at this time.
fn entity(associated: u64) -> Entity {
    Entity { associated, objects: 2, ..Entity::default() }
}

impl Entities {
    fn new() -> Result<Self, String> {
        let mut numbers = Numbers(3);
        let mut layout = RegionLayout::new();
        let at = layout.map("entities", ENTITIES).map_err(|it| it.to_string())?;
        let seed = [numbers.bits(), numbers.bits()];
        let mut owner = RegionOwner::in_memory(&layout, seed).map_err(|it| it.to_string())?;
        let mut map = owner.map(&at).map_err(|it| it.to_string())?;
        let mut standard = HashMap::new();
        let mut senders = Vec::new();
        for number in 0..ENTITIES {
            let bits = 0x2001_0db8 << 96 | u128::from(numbers.bits());
            let sender = Sender { address: Ipv6Addr::from_bits(bits).into(), port: 5683 };
            let entity = entity(number.into());
            map.set(&sender, &entity).map_err(|it| it.to_string())?;
            standard.insert(sender, entity);
            senders.push(sender);
        }
        let mut pick = |count| -> Vec<Sender> {
            let random = |_| senders.get(numbers.below(senders.len())).copied();
            (0..count).filter_map(random).collect()
        };
        let (cold, warm) = (pick(LOOKUPS), pick(WARM));
        Ok(Self { map: map.reader(), standard: RwLock::new(standard), cold, warm })
    }

    fn found(&self, sender: &Sender) -> Option<u64> {
        self.map.get(sender).ok()?.map(|entity| entity.associated)
    }

    fn standard_found(&self, sender: &Sender) -> Option<u64> {
        let held = self.standard.read().ok()?;
        held.get(sender).map(|entity| entity.associated)
    }

    fn again(&self) -> impl Iterator<Item = &Sender> {
        std::iter::repeat_n(&self.warm, LOOKUPS / WARM).flatten()
    }
}

/// Nanoseconds of one `look` at each of a round's senders.
fn time<'key>(
    senders: impl Iterator<Item = &'key Sender>,
    look: impl Fn(&Sender) -> Option<u64>,
) -> f64 {
    nanoseconds_each(LOOKUPS, || senders.filter_map(look).sum::<u64>())
}

fn by_key(bench: &mut Bench) -> Result<(), String> {
    let world = Entities::new()?;
    if world.cold.iter().any(|sender| world.found(sender) != world.standard_found(sender)) {
        return Err("the map and the standard one disagree".to_owned());
    }
    let (ours, standard) = (|it: &_| world.found(it), |it: &_| world.standard_found(it));
    bench.interleave(vec![
        Contestant::new("entity_ns", "ns", || time(world.cold.iter(), ours)),
        Contestant::new("locked_map_ns", "ns", || time(world.cold.iter(), standard)),
        Contestant::new("entity_warm_ns", "ns", || time(world.again(), ours)),
        Contestant::new("locked_map_warm_ns", "ns", || time(world.again(), standard)),
    ]);
    Ok(())
}

fn by_place(bench: &mut Bench) -> Result<(), String> {
    let mut layout = RegionLayout::new();
    let at = layout.table("records", 64).map_err(|it| it.to_string())?;
    let mut owner = RegionOwner::in_memory(&layout, [1, 2]).map_err(|it| it.to_string())?;
    let mut table = owner.table(&at).map_err(|it| it.to_string())?;
    table.set(7, &entity(7)).map_err(|it| it.to_string())?;
    let (table, locked) = (table.reader(), RwLock::new(entity(7)));
    let ours = || table.get(black_box(7)).ok().flatten();
    let standard = || black_box(&locked).read().ok().map(|entity| *entity);
    bench.interleave(vec![
        Contestant::new("record_ns", "ns", || {
            nanoseconds_each(LOOKUPS, || (0..LOOKUPS).filter_map(|_| black_box(ours())).count())
        }),
        Contestant::new("locked_record_ns", "ns", || {
            nanoseconds_each(LOOKUPS, || (0..LOOKUPS).filter_map(|_| black_box(standard())).count())
        }),
    ]);
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("tables", options);
    by_key(&mut bench)?;
    by_place(&mut bench)?;
    bench.ratio("entity_vs_locked_map", "entity_ns", "locked_map_ns");
    bench.ratio("record_vs_locked_record", "record_ns", "locked_record_ns");
    for key in ["entity_ns", "locked_map_ns"] {
        bench.normalise(key, Yardstick::Memory);
    }
    bench.promise("entity_ns", Relation::AtMost, 100.0);
    bench.promise("entity_vs_locked_map", Relation::AtMost, 1.0);
    bench.note("100,000 entities of 72 octets, found by address and port in no order; warm: 1024");
    bench.note("the peer is the standard hash table under an uncontended RwLock");
    Ok(bench)
}
