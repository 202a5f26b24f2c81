//! Stations: the link-layer destinations of next hops on Ethernet.

use crate::{LinkNeighbours, destination::DestinationKey};
use gatewright_packet::{LinkAddress, NextHop};
use gatewright_wire::{EtherType, MacAddress};
use std::{net::IpAddr, time::Duration};

/// The station of a next hop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Station {
    At(MacAddress),
    /// Its neighbour has to be resolved, by the protocol of this family.
    Unknown(EtherType),
    /// The packet has no next hop, or one without an Ethernet address.
    Nowhere,
}

/// The stations of one Ethernet link.
///
/// The neighbour caches know them; recent results are kept here while neither cache has changed and
/// the neighbour counts as reachable. The cache has to see later packets (RFC 4861 §7.3.3).
#[derive(Debug)]
pub(crate) struct Stations {
    neighbours: LinkNeighbours,
    /// The change numbers of both caches when the first of `known` was kept.
    seen: (u32, u32),
    known: [CachedStation; PLACES],
}

/// A cached result for a neighbour.
#[derive(Clone, Copy, Debug)]
struct CachedStation {
    address: IpAddr,
    until: Duration,
    station: MacAddress,
}

/// Number of kept neighbours, a power of two; two with the same hash displace each other.
const PLACES: usize = 1 << PLACES_BITS;
const PLACES_BITS: u32 = 8;

impl CachedStation {
    const NOBODY: Self = Self {
        address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        until: Duration::ZERO,
        station: MacAddress::ZERO,
    };
}

impl Stations {
    pub(crate) fn new(neighbours: LinkNeighbours) -> Self {
        Self { neighbours, seen: (0, 0), known: [CachedStation::NOBODY; PLACES] }
    }

    /// Forgets kept results if a cache has changed; call it before each batch.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let now =
            (self.neighbours.v4.borrow_mut().changes(), self.neighbours.v6.borrow_mut().changes());
        if now != self.seen {
            self.seen = now;
            self.known.fill(CachedStation::NOBODY);
        }
    }

    /// The station of `next_hop` at `now`.
    #[inline]
    pub(crate) fn find(&mut self, next_hop: &NextHop, now: Duration) -> Station {
        if let NextHop::Neighbour(address) = next_hop
            && let Some(known) = self.known.get(place_of(address))
            && known.address == *address
            && now < known.until
        {
            return Station::At(known.station);
        }
        if let NextHop::Station(station) = next_hop {
            return ethernet_address(*station).map_or(Station::Nowhere, Station::At);
        }
        self.look_up(*next_hop, now)
    }

    #[inline(never)]
    fn look_up(&mut self, next_hop: NextHop, now: Duration) -> Station {
        match next_hop {
            // `find` has answered for a station.
            NextHop::Unknown | NextHop::Station(_) => Station::Nowhere,
            NextHop::Broadcast => Station::At(MacAddress::BROADCAST),
            NextHop::Neighbour(IpAddr::V4(ip)) if ip.is_multicast() => {
                Station::At(MacAddress::of_ipv4_multicast(ip))
            }
            NextHop::Neighbour(IpAddr::V6(ip)) if ip.is_multicast() => {
                Station::At(MacAddress::of_ipv6_multicast(ip))
            }
            NextHop::Neighbour(address) => self.resolve(address, now),
        }
    }

    fn resolve(&mut self, address: IpAddr, now: Duration) -> Station {
        let (cache, family) = match address {
            IpAddr::V4(_) => (&self.neighbours.v4, EtherType::IPV4),
            IpAddr::V6(_) => (&self.neighbours.v6, EtherType::IPV6),
        };
        let Some((known, until)) = cache.borrow_mut().resolve_until(address, now) else {
            return Station::Unknown(family);
        };
        let Some(station) = ethernet_address(known) else { return Station::Nowhere };
        if let Some(place) = self.known.get_mut(place_of(&address)) {
            *place = CachedStation { address, until, station };
        }
        Station::At(station)
    }
}

#[inline]
fn ethernet_address(address: LinkAddress) -> Option<MacAddress> {
    address.to_ethernet().map(MacAddress)
}

#[inline]
fn place_of(address: &IpAddr) -> usize {
    let hash = match address {
        IpAddr::V4(ip) => ip.hash(),
        IpAddr::V6(ip) => ip.hash(),
    };
    usize::try_from(hash >> (u64::BITS - PLACES_BITS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Advertised, NeighbourLimits, NeighbourState};
    use gatewright_packet::LinkIndex;
    use std::net::Ipv4Addr;

    const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    const OLD: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const NEW: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);

    fn said(mac: MacAddress) -> Advertised {
        Advertised {
            link_address: Some(LinkAddress::ethernet(mac.0)),
            solicited: true,
            overrides: true,
            router: false,
        }
    }

    #[test]
    fn what_is_kept_gives_way_to_what_the_neighbour_says() {
        let neighbours = LinkNeighbours::new(LinkIndex(0), 1, NeighbourLimits::default());
        let mut stations = Stations::new(neighbours.clone());
        let (next_hop, now) = (NextHop::Neighbour(NEIGHBOUR), Duration::from_secs(1));
        stations.refresh();
        assert_eq!(stations.find(&next_hop, now), Station::Unknown(EtherType::IPV4));

        neighbours.v4.borrow_mut().heard(NEIGHBOUR, LinkAddress::ethernet(OLD.0), true, now);
        neighbours.v4.borrow_mut().advertised(NEIGHBOUR, said(OLD), now);
        for (told, expected) in [(None, OLD), (Some(NEW), NEW)] {
            if let Some(mac) = told {
                neighbours.v4.borrow_mut().advertised(NEIGHBOUR, said(mac), now);
            }
            stations.refresh();
            assert_eq!(stations.find(&next_hop, now), Station::At(expected));
            assert_eq!(stations.find(&next_hop, now), Station::At(expected), "kept");
        }

        neighbours.v4.borrow_mut().remove(NEIGHBOUR);
        stations.refresh();
        assert_eq!(stations.find(&next_hop, now), Station::Unknown(EtherType::IPV4));
    }

    #[test]
    fn a_stale_neighbour_is_noticed_although_it_is_kept() {
        let neighbours = LinkNeighbours::new(LinkIndex(0), 1, NeighbourLimits::default());
        let mut stations = Stations::new(neighbours.clone());
        let (next_hop, now) = (NextHop::Neighbour(NEIGHBOUR), Duration::from_secs(1));
        neighbours.v4.borrow_mut().heard(NEIGHBOUR, LinkAddress::ethernet(OLD.0), true, now);
        neighbours.v4.borrow_mut().advertised(NEIGHBOUR, said(OLD), now);
        stations.refresh();
        assert_eq!(stations.find(&next_hop, now), Station::At(OLD));

        // ReachableTime is at most one and a half of 30 s.
        let later = now + Duration::from_secs(46);
        stations.refresh();
        assert_eq!(stations.find(&next_hop, later), Station::At(OLD));
        let states: Vec<_> =
            neighbours.v4.borrow_mut().iter(later).map(|(_, _, state)| state).collect();
        assert_eq!(states, [NeighbourState::Delay], "RFC 4861 §7.3.3: the packet starts the delay");
    }
}
