//! Routes beside an oracle: every lookup must answer as the `prefix-trie` crate does.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may fail loudly"
)]

use gatewright_tables::{Family, HopIndex, Miss, Prefix, PrefixKey, RoutesWriter};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr};

/// What a table is asked to do.
#[derive(Clone, Debug)]
enum Step<A> {
    Insert(Prefix<A>, u32),
    Remove(Prefix<A>),
    Replace,
}

/// The longest match by looking at every route.
fn scan<A: Family>(routes: &BTreeMap<Prefix<A>, HopIndex>, address: A) -> Result<HopIndex, Miss> {
    let longest = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    longest.max_by_key(|(prefix, _)| prefix.len()).map(|(_, &hop)| hop).ok_or(Miss::NoRoute)
}

/// Addresses at which a wrong trie would show: the edges of every prefix and beside them.
fn probes<A: Family>(prefixes: impl Iterator<Item = Prefix<A>>) -> Vec<A> {
    let ends = prefixes.flat_map(|prefix| {
        let first = prefix.address();
        let bits = A::Key::BITS;
        let len = prefix.len();
        let flip = |at: u8| {
            let bit = A::Key::default().with_bits(at, 1, 1);
            let key = first.to_key();
            A::from_key(if key.bits(at, 1) == 0 {
                key.with_bits(at, 1, 1)
            } else {
                without(key, bit)
            })
        };
        let inside = (len < bits).then(|| flip(len));
        let last_inside = (len < bits).then(|| flip(bits - 1));
        let outside = (len > 0).then(|| flip(len - 1));
        let far_outside = (len > 0).then(|| flip(0));
        [Some(first), inside, last_inside, outside, far_outside]
    });
    ends.flatten().collect()
}

/// `key` without the one bit of `bit`, which is set in it.
fn without<K: PrefixKey>(key: K, bit: K) -> K {
    let at = K::default().common(bit);
    let mut words = key.to_words();
    words[usize::from(at / 32)] &= !(0x8000_0000 >> (at % 32));
    K::from_words(words)
}

/// Runs the steps in the table and in the oracle and compares both after each.
fn agree<A: Family + Debug>(steps: &[Step<A>], extra: &[A]) {
    let mut writer = RoutesWriter::<A>::in_memory(4096).unwrap();
    let routes = writer.reader();
    let mut oracle = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Insert(prefix, hop) => {
                let old = writer.insert(prefix, HopIndex(hop)).unwrap();
                assert_eq!(old, oracle.insert(prefix, HopIndex(hop)));
            }
            Step::Remove(prefix) => assert_eq!(writer.remove(prefix), oracle.remove(&prefix)),
            Step::Replace => {
                writer.replace(oracle.iter().map(|(&prefix, &hop)| (prefix, hop))).unwrap();
            }
        }
        assert_eq!(writer.len(), oracle.len());
        let touched = steps[..=number].iter().filter_map(|step| match step {
            Step::Insert(prefix, _) | Step::Remove(prefix) => Some(*prefix),
            Step::Replace => None,
        });
        for address in probes(touched).into_iter().chain(extra.iter().copied()) {
            let expected = scan(&oracle, address);
            assert_eq!(routes.lookup(address), expected, "{address} after step {number}");
        }
        let mut hops = vec![Err(Miss::Unsettled); extra.len()];
        routes.lookup_batch(extra, &mut hops);
        assert!(hops.iter().zip(extra).all(|(&hop, &address)| hop == routes.lookup(address)));
    }
    assert!(writer.iter().eq(oracle.iter().map(|(&prefix, &hop)| (prefix, hop))));
}

/// Prefixes that nest, collide and part near each other, as the low entropy makes likely.
fn prefix<A: Family>(from: impl Strategy<Value = A>) -> impl Strategy<Value = Prefix<A>> {
    (from, 0..=A::Key::BITS).prop_map(|(address, len)| Prefix::new(address, len).unwrap())
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    let near = (0_u32..4, 0_u32..4, 0_u32..8)
        .prop_map(|(a, b, c)| Ipv4Addr::from(0x0a00_0000 | a << 19 | b << 7 | c));
    prop_oneof![3 => near, 1 => any::<u32>().prop_map(Ipv4Addr::from)]
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    let near = (0_u128..4, 0_u128..4, 0_u128..4, 0_u128..4).prop_map(|(a, b, c, d)| {
        Ipv6Addr::from(0x2001_0db8 << 96 | a << 107 | b << 70 | c << 33 | d)
    });
    prop_oneof![3 => near, 1 => any::<u128>().prop_map(Ipv6Addr::from)]
}

fn steps<A: Family + 'static>(
    address: impl Strategy<Value = A> + Clone + 'static,
) -> impl Strategy<Value = Vec<Step<A>>> {
    let pool = prop::collection::vec(prefix(address), 1..24);
    pool.prop_flat_map(|pool| {
        let one = prop::sample::select(pool);
        let step = prop_oneof![
            5 => (one.clone(), 0_u32..1000).prop_map(|(prefix, hop)| Step::Insert(prefix, hop)),
            3 => one.prop_map(Step::Remove),
            1 => Just(Step::Replace),
        ];
        prop::collection::vec(step, 1..48)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn ipv4_answers_as_a_scan_of_every_route(
        steps in steps(v4().boxed()), extra in prop::collection::vec(v4(), 1..70)
    ) {
        agree(&steps, &extra);
    }

    #[test]
    fn ipv6_answers_as_a_scan_of_every_route(
        steps in steps(v6().boxed()), extra in prop::collection::vec(v6(), 1..70)
    ) {
        agree(&steps, &extra);
    }
}

/// A generator of numbers for large sets: SplitMix64, so that a failure repeats.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn word(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).unwrap()
    }
}

/// Enough routes for the larger direct table and for several reclaims, beside `prefix-trie`.
#[test]
fn sixty_thousand_routes_that_come_and_go_agree_with_prefix_trie() {
    let mut numbers = Numbers(7);
    let mut writer = RoutesWriter::<Ipv4Addr>::in_memory(100_000).unwrap();
    let mut oracle = prefix_trie::PrefixMap::<(u32, u8), u32>::new();
    let routes = writer.reader();
    let mut known = Vec::new();
    for step in 0..110_000_u32 {
        let remove = step > 50_000 && !known.is_empty() && numbers.below(3) == 0;
        if remove {
            let at = usize::try_from(numbers.below(known.len().try_into().unwrap())).unwrap();
            let prefix: Prefix<Ipv4Addr> = known.swap_remove(at);
            let old = oracle.remove(&(prefix.address().to_bits(), prefix.len()));
            assert_eq!(writer.remove(prefix), old.map(HopIndex));
        } else {
            let len =
                u8::try_from(numbers.below(33)).unwrap().max(u8::try_from(step % 25).unwrap());
            let prefix = Prefix::new(Ipv4Addr::from(numbers.word()), len).unwrap();
            let hop = step;
            let old = oracle.insert((prefix.address().to_bits(), len), hop);
            assert_eq!(writer.insert(prefix, HopIndex(hop)).unwrap(), old.map(HopIndex));
            if old.is_none() {
                known.push(prefix);
            }
        }
        if step % 4 == 0 {
            let address = numbers.word();
            let expected = oracle.get_lpm(&(address, 32)).map(|(_, &hop)| HopIndex(hop));
            assert_eq!(routes.lookup(address.into()).ok(), expected, "step {step}");
        }
    }
    assert!(writer.len() > 40_000, "{}", writer.len());
    let stats = writer.stats();
    assert!(stats.reclaims > 10 && stats.rebuilds >= 2, "{stats:?}");
    for prefix in known {
        let host = prefix.address();
        let expected = oracle.get_lpm(&(host.to_bits(), 32)).map(|(_, &hop)| HopIndex(hop));
        assert_eq!(routes.lookup(host).ok(), expected);
    }
}

/// The worst sets for the trie's size still fit when as many were asked for: the bound of
/// `WORDS_A_ROUTE` is an argument, and this is its check.
#[test]
fn as_many_routes_as_were_asked_for_fit_however_they_lie() {
    const MAX: u32 = 6000;
    let spread = |number: u32| Ipv6Addr::from(u128::from(number.reverse_bits()) << 96 | 1);
    let forks = |number: u32| {
        // Two hosts of each pair part at their last bit, pairs far apart: a skip and a branch each.
        Ipv6Addr::from(u128::from((number / 2).reverse_bits()) << 96 | u128::from(number % 2))
    };
    let deep = |number: u32| Ipv6Addr::from(u128::from(number) << 64);
    let sets: [(&str, &dyn Fn(u32) -> Ipv6Addr); 3] =
        [("spread", &spread), ("forks", &forks), ("deep", &deep)];
    for (name, address) in sets {
        let mut writer = RoutesWriter::<Ipv6Addr>::in_memory(MAX).unwrap();
        for number in 0..MAX {
            writer.insert(Prefix::host(address(number)), HopIndex(number)).unwrap();
        }
        let refused = writer.insert(Prefix::all(), HopIndex(0));
        assert_eq!(refused.unwrap_err().routes_max, MAX, "{name}");
        assert_eq!(writer.stats().refused, 1);
        for number in 0..MAX {
            assert_eq!(writer.reader().lookup(address(number)), Ok(HopIndex(number)), "{name}");
        }
    }
}

#[test]
fn default_route_host_route_and_their_removal() {
    let mut writer = RoutesWriter::<Ipv4Addr>::in_memory(8).unwrap();
    let routes = writer.reader();
    let host = Ipv4Addr::new(192, 0, 2, 1);
    assert_eq!(routes.lookup(host), Err(Miss::NoRoute));
    writer.insert(Prefix::all(), HopIndex(0)).unwrap();
    writer.insert(Prefix::host(host), HopIndex(1)).unwrap();
    assert_eq!(routes.lookup(host), Ok(HopIndex(1)));
    assert_eq!(routes.lookup(Ipv4Addr::new(192, 0, 2, 2)), Ok(HopIndex(0)));
    assert_eq!(routes.lookup(Ipv4Addr::BROADCAST), Ok(HopIndex(0)));
    assert_eq!(writer.remove(Prefix::host(host)), Some(HopIndex(1)));
    assert_eq!(routes.lookup(host), Ok(HopIndex(0)));
    assert_eq!(writer.remove(Prefix::all()), Some(HopIndex(0)));
    assert_eq!(writer.remove(Prefix::all()), None);
    assert_eq!(routes.lookup(host), Err(Miss::NoRoute));
}

/// Readers that never stop while the writer goes through two route sets again and again: an answer
/// is always one of the two that were ever right, and never a mixture after a replacement.
#[test]
fn readers_see_only_what_was_once_true() {
    let mut writer = RoutesWriter::<Ipv4Addr>::in_memory(2048).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let address = |number: u32| Ipv4Addr::from(0x0a00_0000 | number << 8 | 1);
    let net = |number: u32| Prefix::new(address(number), 24).unwrap();
    writer.insert(Prefix::all(), HopIndex(9999)).unwrap();
    for number in 0..512 {
        writer.insert(net(number), HopIndex(number)).unwrap();
    }
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (routes, done) = (writer.reader(), &done);
            scope.spawn(move || {
                let mut numbers = Numbers(seed);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let number = numbers.word() % 512;
                    let hop = routes.lookup(address(number)).unwrap().0;
                    assert!(
                        hop == number || hop == number + 1000 || hop == 9999,
                        "{number}: {hop}"
                    );
                }
            });
        }
        let mut numbers = Numbers(99);
        for round in 0..20_000_u32 {
            let number = numbers.word() % 512;
            match round % 4 {
                0 => drop(writer.remove(net(number))),
                1 => drop(writer.insert(net(number), HopIndex(number)).unwrap()),
                _ => drop(writer.insert(net(number), HopIndex(number + 1000)).unwrap()),
            }
            if round % 2000 == 0 {
                let all: Vec<_> = writer.iter().collect();
                writer.replace(all).unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(writer.stats().reclaims > 10, "{:?}", writer.stats());
}

#[test]
fn who_remembers_an_answer_learns_of_every_change() {
    let mut writer = RoutesWriter::<Ipv4Addr>::in_memory(8).unwrap();
    let routes = writer.reader();
    let prefix: Prefix<Ipv4Addr> = "192.0.2.0/24".parse().unwrap();
    let mut seen = vec![routes.changes()];
    writer.insert(prefix, HopIndex(1)).unwrap();
    seen.push(routes.changes());
    writer.insert(prefix, HopIndex(2)).unwrap();
    seen.push(routes.changes());
    writer.replace([(prefix, HopIndex(3))]).unwrap();
    seen.push(routes.changes());
    writer.remove(prefix);
    seen.push(routes.changes());
    assert!(seen.is_sorted_by(|earlier, later| earlier < later), "{seen:?}");
    assert_eq!(writer.remove(prefix), None);
    assert_eq!(routes.changes(), seen[4], "nothing was there to be removed");
}
