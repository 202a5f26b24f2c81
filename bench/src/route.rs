//! `bench route`: longest-prefix match over a million routes, beside the `prefix-trie` crate.

use bench::{
    Bench, Chart, Contestant, Curve, Numbers, Options, Relation, Yardstick, nanoseconds_each,
};
use gatewright_tables::{Family, HopIndex, Miss, Prefix, PrefixKey, Routes, RoutesWriter};
use prefix_trie::PrefixMap;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Routes that the promise is about.
const ROUTES: usize = 1_000_000;
/// Lookups in a round, each of another address.
const LOOKUPS: usize = 1_000_000;
/// Addresses of a set that stays in the first two caches.
const WARM: usize = 1024;
/// Next hops that routes lead to.
const HOPS: u32 = 1000;

/// Share of each prefix length among IPv4 routes, in thousandths: roughly that of the global table,
/// where three in five routes are a /24.
const LENGTHS_V4: [(u8, usize); 12] = [
    (24, 600),
    (23, 100),
    (22, 120),
    (21, 50),
    (20, 50),
    (19, 25),
    (18, 15),
    (17, 10),
    (16, 15),
    (15, 5),
    (12, 5),
    (8, 5),
];

/// The same of IPv6, where nearly half are a /48.
const LENGTHS_V6: [(u8, usize); 8] =
    [(48, 460), (32, 130), (44, 120), (40, 110), (36, 60), (29, 50), (46, 40), (64, 30)];

/// A family as the peer takes it.
pub(crate) trait Measured: Family {
    /// Address and length, as the peer's prefix.
    type Peer: prefix_trie::Prefix + Clone;
    fn peer(address: Self, len: u8) -> Self::Peer;
    fn random(numbers: &mut Numbers) -> Self;
    const LENGTHS: &'static [(u8, usize)];
}

impl Measured for Ipv4Addr {
    type Peer = (u32, u8);
    const LENGTHS: &'static [(u8, usize)] = &LENGTHS_V4;

    fn peer(address: Self, len: u8) -> (u32, u8) {
        (address.to_bits(), len)
    }

    fn random(numbers: &mut Numbers) -> Self {
        Self::from_bits(numbers.word())
    }
}

impl Measured for Ipv6Addr {
    type Peer = (u128, u8);
    const LENGTHS: &'static [(u8, usize)] = &LENGTHS_V6;

    fn peer(address: Self, len: u8) -> (u128, u8) {
        (address.to_bits(), len)
    }

    /// An address of 2000::/3, which is all that is given out.
    fn random(numbers: &mut Numbers) -> Self {
        let bits = u128::from(numbers.bits()) << 64 | u128::from(numbers.bits());
        Self::from_bits(bits >> 3 | 1 << 125)
    }
}

/// A table, the same table in the peer, and addresses that it has routes for.
struct RouteTables<A: Measured> {
    writer: RoutesWriter<A>,
    routes: Routes<A>,
    peer: PrefixMap<A::Peer, u32>,
    addresses: Vec<A>,
    answers: Vec<Result<HopIndex, Miss>>,
    numbers: Numbers,
}

/// A random prefix, of a length as in the global table.
pub(crate) fn random_prefix<A: Measured>(numbers: &mut Numbers) -> Option<Prefix<A>> {
    let mut share = numbers.below(1000);
    let (len, _) = A::LENGTHS.iter().find(|&&(_, of)| {
        let here = share < of;
        share = share.saturating_sub(of);
        here
    })?;
    Prefix::new(A::random(numbers), *len).ok()
}

impl<A: Measured> RouteTables<A> {
    fn new(count: usize) -> Result<Self, String> {
        let mut numbers = Numbers(1);
        let mut prefixes = BTreeSet::new();
        while prefixes.len() < count {
            prefixes.extend(random_prefix::<A>(&mut numbers));
        }
        let prefixes: Vec<_> = prefixes.into_iter().collect();
        let room = u32::try_from(count + count / 8).map_err(|error| error.to_string())?;
        let mut writer = RoutesWriter::in_memory(room).map_err(|error| error.to_string())?;
        let route = |&prefix| (prefix, HopIndex(numbers.word() % HOPS));
        let routes: Vec<_> = prefixes.iter().map(route).collect();
        writer.replace(routes.iter().copied()).map_err(|error| error.to_string())?;
        let peer =
            routes.iter().map(|(prefix, hop)| (A::peer(prefix.address(), prefix.len()), hop.0));
        let peer = peer.collect();
        let addresses = (0..LOOKUPS).map(|_| inside(&prefixes, &mut numbers)).collect();
        let answers = vec![Err(Miss::NoRoute); LOOKUPS];
        Ok(Self { routes: writer.reader(), writer, peer, addresses, answers, numbers })
    }

    /// Both answer alike, or nothing that follows means anything.
    fn check(&self) -> Result<(), String> {
        for &address in self.addresses.iter().step_by(97) {
            let expected = self.peer_lookup(address);
            let found = self.routes.lookup(address).ok().map(|hop| hop.0);
            if expected != found {
                return Err(format!("{address}: found {found:?}, prefix-trie {expected:?}"));
            }
        }
        Ok(())
    }

    fn peer_lookup(&self, address: A) -> Option<u32> {
        let host = A::peer(address, A::Key::BITS);
        self.peer.get_lpm(&host).map(|(_, &hop)| hop)
    }

    fn warm(&self) -> impl Iterator<Item = &[A]> {
        let warm = self.addresses.get(..WARM).unwrap_or(&[]);
        std::iter::repeat_n(warm, LOOKUPS / WARM)
    }

    fn abreast(&mut self) -> f64 {
        nanoseconds_each(LOOKUPS, || {
            self.routes.lookup_batch(&self.addresses, &mut self.answers);
        })
    }

    fn abreast_warm(&mut self) -> f64 {
        let mut answers = std::mem::take(&mut self.answers);
        let each = nanoseconds_each(LOOKUPS, || {
            self.warm().for_each(|warm| self.routes.lookup_batch(warm, &mut answers));
        });
        self.answers = answers;
        each
    }

    fn alone(&self) -> f64 {
        let lookup = |&address| self.routes.lookup(address).map_or(0, |hop| u64::from(hop.0));
        nanoseconds_each(LOOKUPS, || self.addresses.iter().map(lookup).sum::<u64>())
    }

    fn alone_warm(&self) -> f64 {
        let lookup = |&address| self.routes.lookup(address).map_or(0, |hop| u64::from(hop.0));
        nanoseconds_each(LOOKUPS, || self.warm().flatten().map(lookup).sum::<u64>())
    }

    fn peer_alone(&self) -> f64 {
        let lookup = |&address| u64::from(self.peer_lookup(address).unwrap_or(0));
        nanoseconds_each(LOOKUPS, || self.addresses.iter().map(lookup).sum::<u64>())
    }

    fn peer_warm(&self) -> f64 {
        let lookup = |&address| u64::from(self.peer_lookup(address).unwrap_or(0));
        nanoseconds_each(LOOKUPS, || self.warm().flatten().map(lookup).sum::<u64>())
    }

    /// The loop around the lookups alone.
    fn floor(&self) -> f64 {
        let read = |address: &A| u64::from(address.to_key().bits(0, 31));
        nanoseconds_each(LOOKUPS, || self.addresses.iter().map(read).sum::<u64>())
    }

    /// Microseconds of an insertion, and of the removal that undoes it.
    fn changes(&mut self) -> (f64, f64) {
        const CHANGES: usize = 10_000;
        let numbers = &mut self.numbers;
        let new: BTreeSet<_> = (0..CHANGES).filter_map(|_| random_prefix(numbers)).collect();
        let new: Vec<Prefix<A>> =
            new.into_iter().filter(|&prefix| self.writer.get(prefix).is_none()).collect();
        let insert = nanoseconds_each(new.len(), || {
            new.iter().filter_map(|&prefix| self.writer.insert(prefix, HopIndex(0)).ok()).count()
        });
        let remove = nanoseconds_each(new.len(), || {
            new.iter().filter_map(|&prefix| self.writer.remove(prefix)).count()
        });
        (insert / 1e3, remove / 1e3)
    }

    /// Milliseconds of building everything anew.
    fn rebuild(&mut self) -> f64 {
        let all: Vec<_> = self.writer.iter().collect();
        nanoseconds_each(1, || self.writer.replace(all).is_ok()) / 1e6
    }
}

/// An address inside of one of the prefixes.
pub(crate) fn inside<A: Measured>(prefixes: &[Prefix<A>], numbers: &mut Numbers) -> A {
    let random = A::random(numbers);
    let Some(prefix) = prefixes.get(numbers.below(prefixes.len())) else { return random };
    let (mut key, noise) = (prefix.address().to_key(), random.to_key());
    for bit in prefix.len()..A::Key::BITS {
        key = key.with_bits(bit, 1, noise.bits(bit, 1));
    }
    A::from_key(key)
}

/// The names of one family's figures.
struct Keys {
    abreast: &'static str,
    abreast_warm: &'static str,
    alone: &'static str,
    alone_warm: &'static str,
    peer: &'static str,
    peer_warm: &'static str,
    floor: &'static str,
    octets: &'static str,
    insert: &'static str,
    remove: &'static str,
    rebuild: &'static str,
    vs_peer: &'static str,
    vs_peer_warm: &'static str,
}

const V4: Keys = Keys {
    abreast: "lookup_batch_ns",
    abreast_warm: "lookup_batch_warm_ns",
    alone: "lookup_ns",
    alone_warm: "lookup_warm_ns",
    peer: "prefix_trie_ns",
    peer_warm: "prefix_trie_warm_ns",
    floor: "floor_ns",
    octets: "route_octets",
    insert: "insert_us",
    remove: "remove_us",
    rebuild: "rebuild_ms",
    vs_peer: "lookup_vs_prefix_trie",
    vs_peer_warm: "lookup_warm_vs_prefix_trie",
};

const V6: Keys = Keys {
    abreast: "lookup6_batch_ns",
    abreast_warm: "lookup6_batch_warm_ns",
    alone: "lookup6_ns",
    alone_warm: "lookup6_warm_ns",
    peer: "prefix_trie6_ns",
    peer_warm: "prefix_trie6_warm_ns",
    floor: "floor6_ns",
    octets: "route6_octets",
    insert: "insert6_us",
    remove: "remove6_us",
    rebuild: "rebuild6_ms",
    vs_peer: "lookup6_vs_prefix_trie",
    vs_peer_warm: "lookup6_warm_vs_prefix_trie",
};

fn measure<A: Measured>(bench: &mut Bench, count: usize, keys: &Keys) -> Result<(), String> {
    let world = RouteTables::<A>::new(count)?;
    world.check()?;
    let world = std::cell::RefCell::new(world);
    bench.interleave(vec![
        Contestant::new(keys.floor, "ns", || world.borrow().floor()),
        Contestant::new(keys.abreast, "ns", || world.borrow_mut().abreast()),
        Contestant::new(keys.alone, "ns", || world.borrow().alone()),
        Contestant::new(keys.peer, "ns", || world.borrow().peer_alone()),
        Contestant::new(keys.abreast_warm, "ns", || world.borrow_mut().abreast_warm()),
        Contestant::new(keys.alone_warm, "ns", || world.borrow().alone_warm()),
        Contestant::new(keys.peer_warm, "ns", || world.borrow().peer_warm()),
    ]);
    let mut world = world.into_inner();
    for _round in 0..bench.options().rounds() {
        let used = world.writer.stats().used_octets;
        let used = f64::from(u32::try_from(used).unwrap_or(u32::MAX));
        let routes = f64::from(u32::try_from(world.writer.len()).unwrap_or(u32::MAX));
        bench.sample(keys.octets, "octets", used / routes);
        let (insert, remove) = world.changes();
        bench.sample(keys.insert, "us", insert);
        bench.sample(keys.remove, "us", remove);
        let rebuild = world.rebuild();
        bench.sample(keys.rebuild, "ms", rebuild);
    }
    bench.ratio(keys.vs_peer, keys.alone, keys.peer);
    bench.ratio(keys.vs_peer_warm, keys.alone_warm, keys.peer_warm);
    Ok(())
}

/// Nanoseconds over the number of routes.
fn curves(bench: &mut Bench) -> Result<(), String> {
    let names = ["abreast", "alone", "prefix-trie"];
    let mut curves = names.map(|name| Curve { name: name.to_owned(), points: Vec::new() });
    for count in bench
        .options()
        .pick(vec![100, 1000, 10_000, 30_000, 100_000, 300_000, ROUTES], vec![100, 10_000])
    {
        let mut world = RouteTables::<Ipv4Addr>::new(count)?;
        let at = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let values = [world.abreast(), world.alone(), world.peer_alone()];
        for (curve, value) in curves.iter_mut().zip(values) {
            curve.points.push((at, value));
        }
    }
    bench.chart(Chart {
        title: "lookup over routes".to_owned(),
        x: "IPv4 routes".to_owned(),
        y: "ns a lookup".to_owned(),
        curves: curves.into(),
    });
    Ok(())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("route", options);
    let count = options.pick(ROUTES, ROUTES / 10);
    measure::<Ipv4Addr>(&mut bench, count, &V4)?;
    measure::<Ipv6Addr>(&mut bench, count, &V6)?;
    curves(&mut bench)?;
    let sizes = ("1,000,000 routes", "100,000");
    bench.promise_in_full((V4.alone, Relation::AtMost, 50.0), sizes);
    bench.promise(V4.alone_warm, Relation::AtMost, 30.0);
    bench.promise(V6.alone_warm, Relation::AtMost, 30.0);
    bench.promise(V4.vs_peer, Relation::AtMost, 1.0);
    bench.promise(V6.vs_peer, Relation::AtMost, 1.0);
    bench.note(format!(
        "{count} routes of lengths as in the global tables; each address lies in a random route"
    ));
    for key in [V4.abreast, V4.alone, V4.peer, V6.abreast, V6.alone, V6.peer] {
        bench.normalise(key, Yardstick::Memory);
    }
    bench.note("lookup_ns is as the router asks for a new flow, one address at a time; batch is a batch at once, as it asks while most packets are of new flows");
    bench.note("warm is a set of 1024 addresses; the others are a million, in no order");
    Ok(bench)
}
