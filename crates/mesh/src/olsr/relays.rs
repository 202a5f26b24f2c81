//! Selection of multipoint relays by the standard's heuristic (RFC 3626 §8.3.1).

use super::sets::OlsrSets;
use core::cmp::Reverse;
use core::time::Duration;
use gatewright_packet::LinkIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// A node that never forwards for others.
pub(super) const WILL_NEVER: u8 = 0;
/// A node that all its neighbours choose.
const WILL_ALWAYS: u8 = 7;

/// The relays that reach all strict two-hop neighbours: the union of those of each interface.
pub(super) fn select(sets: &OlsrSets, now: Duration, own: Ipv4Addr) -> BTreeSet<Ipv4Addr> {
    let all = sets.neighbours(now);
    let interfaces: BTreeSet<LinkIndex> = sets.links.keys().map(|(link, _)| *link).collect();
    let mut relays = BTreeSet::new();
    for interface in interfaces {
        let here = sets.links.iter().filter(|((link, _), its)| {
            *link == interface && its.is_symmetric(now) && its.willingness != WILL_NEVER
        });
        let near: BTreeMap<Ipv4Addr, u8> =
            here.map(|(_, link)| (link.main, link.willingness)).collect();
        let mut reaches: BTreeMap<Ipv4Addr, BTreeSet<Ipv4Addr>> = BTreeMap::new();
        for (via, far) in sets.two_hop.keys() {
            if near.contains_key(via) && !all.contains_key(far) && *far != own {
                reaches.entry(*via).or_default().insert(*far);
            }
        }
        relays.extend(of_interface(&near, &reaches));
    }
    relays
}

/// Steps 1 to 5 of RFC 3626 §8.3.1 for one interface.
fn of_interface(
    near: &BTreeMap<Ipv4Addr, u8>,
    reaches: &BTreeMap<Ipv4Addr, BTreeSet<Ipv4Addr>>,
) -> BTreeSet<Ipv4Addr> {
    let willing = |node: &Ipv4Addr| near.get(node).copied().unwrap_or(WILL_NEVER);
    let always = near.iter().filter(|(_, willingness)| **willingness >= WILL_ALWAYS);
    let mut relays: BTreeSet<Ipv4Addr> = always.map(|(node, _)| *node).collect();
    let mut providers: BTreeMap<Ipv4Addr, Vec<Ipv4Addr>> = BTreeMap::new();
    for (via, far) in reaches {
        for node in far {
            providers.entry(*node).or_default().push(*via);
        }
    }
    // "the nodes in N which are the *only* nodes to provide reachability to a node in N2"
    relays.extend(providers.values().filter_map(|via| match via.as_slice() {
        [only] => Some(*only),
        _ => None,
    }));
    let mut uncovered: BTreeSet<Ipv4Addr> = providers.keys().copied().collect();
    for relay in &relays {
        uncovered.retain(|node| !reaches.get(relay).is_some_and(|far| far.contains(node)));
    }
    while !uncovered.is_empty() {
        let best =
            reaches.iter().filter(|(via, _)| !relays.contains(via)).max_by_key(|(via, far)| {
                let reachability = far.intersection(&uncovered).count();
                (reachability > 0, willing(via), reachability, far.len(), Reverse(**via))
            });
        let Some((via, far)) = best else { break };
        uncovered.retain(|node| !far.contains(node));
        relays.insert(*via);
    }
    drop_needless(&relays, reaches, willing)
}

/// "As an optimization, process each node, y, in the MPR set in increasing order of N_willingness."
fn drop_needless(
    relays: &BTreeSet<Ipv4Addr>,
    reaches: &BTreeMap<Ipv4Addr, BTreeSet<Ipv4Addr>>,
    willing: impl Fn(&Ipv4Addr) -> u8,
) -> BTreeSet<Ipv4Addr> {
    let mut kept = relays.clone();
    let mut order: Vec<Ipv4Addr> =
        relays.iter().copied().filter(|relay| willing(relay) < WILL_ALWAYS).collect();
    order.sort_by_key(&willing);
    for relay in order {
        let others = || kept.iter().filter(|other| **other != relay);
        let covers = |node: &Ipv4Addr| {
            others().any(|other| reaches.get(other).is_some_and(|far| far.contains(node)))
        };
        if reaches.get(&relay).is_none_or(|far| far.iter().all(covers)) {
            kept.remove(&relay);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(last: u8) -> Ipv4Addr {
        [10, 0, 0, last].into()
    }

    fn selected(near: &[(u8, u8)], reaches: &[(u8, &[u8])]) -> Vec<u8> {
        let near = near.iter().map(|&(at, willingness)| (node(at), willingness)).collect();
        let reaches = reaches
            .iter()
            .map(|(via, far)| (node(*via), far.iter().map(|at| node(*at)).collect()))
            .collect();
        of_interface(&near, &reaches).into_iter().map(|at| at.octets()[3]).collect()
    }

    #[test]
    fn the_only_way_to_a_node_is_chosen_and_others_are_not() {
        // 1 reaches 10 and 11, 2 reaches 11 only, 3 alone reaches 12.
        let found = selected(&[(1, 3), (2, 3), (3, 3)], &[(1, &[10, 11]), (2, &[11]), (3, &[12])]);
        assert_eq!(found, [1, 3]);
    }

    #[test]
    fn willingness_comes_before_reachability() {
        // Both 1 and 2 reach 10 and 11; 2 is more willing though 1 reaches more.
        let reaches: [(u8, &[u8]); 3] = [(1, &[10, 11, 12]), (2, &[10, 11]), (3, &[12])];
        assert_eq!(selected(&[(1, 3), (2, 6), (3, 6)], &reaches), [2, 3]);
        assert_eq!(selected(&[(1, 3), (2, 3), (3, 3)], &reaches), [1]);
    }

    #[test]
    fn a_node_that_is_always_willing_is_always_chosen() {
        assert_eq!(selected(&[(1, 7), (2, 3)], &[(2, &[10])]), [1, 2]);
    }
}
