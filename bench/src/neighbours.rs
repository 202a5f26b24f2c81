//! `bench neighbours`: a link's neighbours, found, learnt and driven out, beside the standard hash
//! table, which knows neither ages nor who is in use.

use bench::{Bench, Contestant, Numbers, Options, Yardstick, nanoseconds_each};
use gatewright_packet::LinkAddress;
use gatewright_stack::{Advertised, NeighbourLimits, Neighbours};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Neighbours of a large link, and of a small one.
const MANY: u32 = 100_000;
const FEW: u32 = 1000;
const LOOKUPS: usize = 1_000_000;

/// The station that all of them have: which it is changes nothing.
const STATION: LinkAddress = LinkAddress::ethernet([2, 0, 0, 0, 0, 7]);

/// A host of a /64, by number.
fn host(number: u32) -> IpAddr {
    Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number)).into()
}

/// A cache with room for [`MANY`] in which so many have just answered.
fn known(count: u32) -> Neighbours {
    let limits = NeighbourLimits { neighbours: MANY, ..NeighbourLimits::default() };
    let mut cache = Neighbours::with_limits(1, limits);
    for number in 0..count {
        learn(&mut cache, number);
    }
    cache
}

/// A host asks for us, and answers when it is asked.
fn learn(cache: &mut Neighbours, number: u32) {
    let said =
        Advertised { link_address: Some(STATION), solicited: true, overrides: true, router: false };
    cache.heard(host(number), STATION, true, Duration::ZERO);
    cache.advertised(host(number), said, Duration::ZERO);
}

/// Nanoseconds of one look at each of these hosts.
fn time(order: &[u32], look: impl Fn(IpAddr) -> bool) -> f64 {
    nanoseconds_each(order.len(), || order.iter().filter(|number| look(host(**number))).count())
}

pub(crate) fn run(options: Options) -> Result<Bench, String> {
    let mut bench = Bench::new("neighbours", options);
    let mut numbers = Numbers(5);
    let mut pick = |among: u32| -> Vec<u32> {
        let among = usize::try_from(among).unwrap_or(usize::MAX);
        let number = |_| u32::try_from(numbers.below(among)).unwrap_or_default();
        (0..LOOKUPS).map(number).collect()
    };
    let (of_many, of_few) = (pick(MANY), pick(FEW));
    let (many, few) = (RefCell::new(known(MANY)), RefCell::new(known(FEW)));
    if many.borrow().len() != usize::try_from(MANY).unwrap_or(0) {
        return Err("not all neighbours are kept".to_owned());
    }
    let standard: HashMap<IpAddr, LinkAddress> =
        (0..MANY).map(|number| (host(number), STATION)).collect();
    let ours =
        |cache: &RefCell<Neighbours>, ip| cache.borrow_mut().resolve(ip, Duration::ZERO).is_some();
    bench.interleave(vec![
        Contestant::new("resolve_ns", "ns", || time(&of_many, |ip| ours(&many, ip))),
        Contestant::new("resolve_few_ns", "ns", || time(&of_few, |ip| ours(&few, ip))),
        Contestant::new("map_ns", "ns", || time(&of_many, |ip| standard.contains_key(&ip))),
    ]);
    bench.interleave(vec![
        Contestant::new("learn_ns", "ns", || nanoseconds_each(LOOKUPS / 10, || known(MANY).len())),
        Contestant::new("map_learn_ns", "ns", || {
            let learnt =
                || (0..MANY).map(|number| (host(number), STATION)).collect::<HashMap<_, _>>();
            nanoseconds_each(LOOKUPS / 10, || learnt().len())
        }),
        Contestant::new("evict_ns", "ns", || {
            let mut cache = known(0);
            let strangers = MANY..3 * MANY;
            for number in 0..MANY {
                cache.heard(host(number), STATION, true, Duration::ZERO);
            }
            nanoseconds_each(strangers.len(), || {
                for number in strangers {
                    cache.heard(host(number), STATION, true, Duration::ZERO);
                    while cache.poll_output().is_some() {}
                }
                cache.len()
            })
        }),
    ]);
    bench.ratio("resolve_vs_map", "resolve_ns", "map_ns");
    bench.ratio("learn_vs_map", "learn_ns", "map_learn_ns");
    for key in ["resolve_ns", "map_ns"] {
        bench.normalise(key, Yardstick::Memory);
    }
    bench.note("100,000 neighbours of a link, found in no order; few: 1000");
    bench.note("evict: a full cache in which each stranger takes the place of the oldest one");
    Ok(bench)
}
