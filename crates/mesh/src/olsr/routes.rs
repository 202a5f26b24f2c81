//! Calculation of the routing table (RFC 3626 §10; networks: §12.6).

use super::edge::OlsrRoute;
use super::message::OlsrNetwork;
use super::relays::WILL_NEVER;
use super::sets::OlsrSets;
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

type HostRoutes = BTreeMap<Ipv4Addr, OlsrRoute>;

/// Routes to all known hosts and networks but `own`, the addresses of this node, and `attached`,
/// the networks that it is itself a gateway to.
pub(super) fn calculate(
    sets: &OlsrSets,
    now: Duration,
    own: &[Ipv4Addr],
    attached: &[OlsrNetwork],
) -> BTreeMap<OlsrNetwork, OlsrRoute> {
    let mut hosts = hosts(sets, now, own);
    // "If there is no entry in the routing table for I_iface_addr": other interfaces of a node.
    for (address, (main, _)) in &sets.aliases {
        if !own.contains(address)
            && let Some(route) = hosts.get(main).copied()
        {
            hosts.entry(*address).or_insert(route);
        }
    }
    let host = |(address, route): (&Ipv4Addr, &OlsrRoute)| (OlsrNetwork::host(*address), *route);
    let mut routes: BTreeMap<OlsrNetwork, OlsrRoute> = hosts.iter().map(host).collect();
    for (gateway, network) in sets.networks.keys() {
        let Some(route) = hosts.get(gateway) else { continue };
        let closer = |known: &OlsrRoute| known.hops <= route.hops;
        if !attached.contains(network) && !routes.get(network).is_some_and(closer) {
            routes.insert(*network, *route);
        }
    }
    routes
}

/// Routes to all known hosts but `avoided`, and through none of these: the addresses of this node are
/// among them.
pub(super) fn hosts(sets: &OlsrSets, now: Duration, avoided: &[Ipv4Addr]) -> HostRoutes {
    let mut hosts = neighbours(sets, now);
    hosts.retain(|address, _| !avoided.contains(address));
    two_hops(sets, now, avoided, &mut hosts);
    further(sets, avoided, &mut hosts);
    hosts
}

/// Step 2: interfaces and main addresses of symmetric neighbours.
fn neighbours(sets: &OlsrSets, now: Duration) -> HostRoutes {
    let mut hosts = HostRoutes::new();
    let symmetric = || sets.links.iter().filter(|(_, link)| link.is_symmetric(now));
    for ((link, next_hop), _) in symmetric() {
        let route = OlsrRoute { link: *link, next_hop: *next_hop, hops: 1 };
        hosts.entry(*next_hop).or_insert(route);
    }
    for ((link, next_hop), tuple) in symmetric() {
        let route = OlsrRoute { link: *link, next_hop: *next_hop, hops: 1 };
        hosts.entry(tuple.main).or_insert(route);
    }
    hosts
}

/// Step 3: strict two-hop neighbours, by neighbours that forward for others.
fn two_hops(sets: &OlsrSets, now: Duration, avoided: &[Ipv4Addr], hosts: &mut HostRoutes) {
    let neighbours = sets.neighbours(now);
    for (via, far) in sets.two_hop.keys() {
        let forwards = neighbours.get(via).is_some_and(|willingness| *willingness != WILL_NEVER);
        if forwards
            && !avoided.contains(far)
            && let Some(route) = hosts.get(via).copied()
        {
            hosts.entry(*far).or_insert(OlsrRoute { hops: 2, ..route });
        }
    }
}

/// Step 4: "the new route entries for the destination nodes h+1 hops away".
fn further(sets: &OlsrSets, avoided: &[Ipv4Addr], hosts: &mut HostRoutes) {
    let mut edge: Vec<Ipv4Addr> =
        hosts.iter().filter(|(_, route)| route.hops == 2).map(|(at, _)| *at).collect();
    while !edge.is_empty() {
        let mut next = Vec::new();
        for last in edge {
            let Some(route) = hosts.get(&last).copied() else { continue };
            let from = (last, Ipv4Addr::UNSPECIFIED);
            let to = (last, Ipv4Addr::BROADCAST);
            for (_, destination) in sets.topology.range(from..=to).map(|(key, _)| *key) {
                if !avoided.contains(&destination) && !hosts.contains_key(&destination) {
                    hosts.insert(destination, OlsrRoute { hops: route.hops + 1, ..route });
                    next.push(destination);
                }
            }
        }
        edge = next;
    }
}
