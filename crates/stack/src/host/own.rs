//! Routes that follow from a host's own addresses, and the addresses that its packets come from.

use super::{
    Address, AddressState, Host, Interface, Prefix, Route, View, broadcast, scope_is_link,
};
use gatewright_packet::LinkIndex;
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

impl Host {
    /// The route to exactly `to` that follows from an own address, whatever route the router has.
    /// Addresses of shared links are the kernel's.
    pub fn own_route(&self, to: Prefix<Ipv4Addr>) -> Option<Route> {
        self.own().find_map(|(link, own)| {
            let IpAddr::V4(ip) = own.ip else { return None };
            let subnet = Prefix::new(ip, own.prefix_len).ok();
            let last = subnet.and_then(broadcast).map(Prefix::host);
            match Some(to) {
                _ if to == Prefix::host(ip) => Some(Route::Local),
                asked if asked == subnet => Some(Route::Connected(link)),
                asked if asked == last => Some(Route::Broadcast(link)),
                _ => None,
            }
        })
    }

    /// As [`Self::own_route`], for IPv6.
    pub fn own_route6(&self, to: Prefix<Ipv6Addr>) -> Option<Route> {
        self.own().find_map(|(link, own)| {
            let IpAddr::V6(ip) = own.ip else { return None };
            let subnet = Prefix::new(ip, own.prefix_len).ok();
            match Some(to) {
                _ if to == Prefix::host(ip) => Some(Route::Local),
                asked if asked == subnet && !ip.is_unicast_link_local() => {
                    Some(Route::Connected(link))
                }
                _ => None,
            }
        })
    }

    /// The destinations to which [`Self::own_route`] has a route.
    pub fn own_destinations(&self) -> BTreeSet<Prefix<Ipv4Addr>> {
        let of = |(_, own): (LinkIndex, &Address)| {
            let IpAddr::V4(ip) = own.ip else { return [None; 3] };
            let subnet = Prefix::new(ip, own.prefix_len).ok();
            let last = subnet.and_then(broadcast).map(Prefix::host);
            [Some(Prefix::host(ip)), subnet, last]
        };
        self.own().flat_map(of).flatten().collect()
    }

    /// As [`Self::own_destinations`], for IPv6.
    pub fn own_destinations6(&self) -> BTreeSet<Prefix<Ipv6Addr>> {
        let of = |(_, own): (LinkIndex, &Address)| {
            let IpAddr::V6(ip) = own.ip else { return [None; 2] };
            let subnet = Prefix::new(ip, own.prefix_len).ok();
            [Some(Prefix::host(ip)), subnet.filter(|_| !ip.is_unicast_link_local())]
        };
        self.own().flat_map(of).flatten().collect()
    }

    /// The usable addresses with their links, without those of the kernel.
    fn own(&self) -> impl Iterator<Item = (LinkIndex, &Address)> {
        let interfaces = self.interfaces.iter().filter(|own| !own.shared);
        interfaces.flat_map(|own| own.usable().map(move |address| (own.link, address)))
    }
}

/// Who uses a source address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Purpose {
    /// The router: nobody answers its errors.
    Message,
    /// A socket, to which answers come: not to an address of the kernel if there is another.
    Socket,
}

impl View {
    /// The source address of a socket for `destination`: one of the outgoing link, with the longest
    /// common prefix, deprecated ones last. An address of a link that is not shared goes first, as
    /// the kernel has what comes for the others.
    pub fn source4(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        let link = match self.route4(destination) {
            Route::Local => return Some(destination),
            Route::Connected(link) | Route::Broadcast(link) | Route::Via { link, .. } => Some(link),
            _ => None,
        };
        self.best_source4(link, destination, Purpose::Socket)
    }

    /// The source address for a `destination` that is reached by `link`.
    pub fn source4_on(&self, link: Option<LinkIndex>, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        self.best_source4(link, destination, Purpose::Message)
    }

    fn best_source4(
        &self,
        link: Option<LinkIndex>,
        destination: Ipv4Addr,
        purpose: Purpose,
    ) -> Option<Ipv4Addr> {
        let rank = |ip: Ipv4Addr| (ip.to_bits() ^ destination.to_bits()).leading_zeros();
        let of = |ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None };
        self.best_source((link, purpose), of, rank)
    }

    /// The source address for `destination` by `link` (RFC 6724 §5, rules 1 to 3, 5 and 8); without a
    /// link that of a socket, by the link of the route, as [`Self::source4`].
    pub fn source6(&self, link: Option<LinkIndex>, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        let purpose = if link.is_some() { Purpose::Message } else { Purpose::Socket };
        let link = link.or_else(|| match self.route6(destination) {
            Route::Connected(link) | Route::Broadcast(link) | Route::Via { link, .. } => Some(link),
            _ => None,
        });
        let local = scope_is_link(destination);
        let of = |ip| match ip {
            IpAddr::V6(ip) if ip == destination || ip.is_unicast_link_local() == local => Some(ip),
            _ => None,
        };
        let rank = |ip: Ipv6Addr| (ip.to_bits() ^ destination.to_bits()).leading_zeros();
        // A link without a global address still has its link-local one.
        let any = |ip| if let IpAddr::V6(ip) = ip { Some(ip) } else { None };
        let by = (link, purpose);
        self.best_source(by, of, rank).or_else(|| self.best_source(by, any, rank))
    }

    fn best_source<A: Copy>(
        &self,
        (link, purpose): (Option<LinkIndex>, Purpose),
        of: impl Fn(IpAddr) -> Option<A>,
        rank: impl Fn(A) -> u32,
    ) -> Option<A> {
        let interfaces = self.interfaces().iter();
        let candidates = interfaces.flat_map(|interface: &Interface| {
            let is_answered = purpose == Purpose::Message || !interface.shared;
            let here = Some(interface.link) == link;
            interface.usable().map(move |address| (is_answered, here, address))
        });
        let ranked = candidates.filter_map(|(is_answered, here, address)| {
            let ip = of(address.ip)?;
            Some(((is_answered, here, address.state == AddressState::Preferred, rank(ip)), ip))
        });
        ranked.max_by_key(|&(rank, _)| rank).map(|(_, ip)| ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: LinkIndex = LinkIndex(0);
    const WAN: LinkIndex = LinkIndex(1);

    fn address(text: &str, prefix_len: u8) -> Address {
        Address { ip: text.parse().unwrap(), prefix_len, state: AddressState::Preferred }
    }

    /// A link of our own, and one whose host is the kernel, by which everything else is reached.
    fn host() -> Host {
        let mut host = Host::new(100).unwrap();
        let of = |link, shared, addresses: &[Address]| Interface {
            link,
            shared,
            up: true,
            addresses: if shared { Vec::new() } else { addresses.to_vec() },
            ..Interface::default()
        };
        let lan = [address("192.0.2.1", 24), address("2001:db8:1::1", 64), address("fe80::1", 64)];
        let wan = [address("198.51.100.1", 24), address("2001:db8:2::1", 64)];
        host.add_interface(of(LAN, false, &lan)).unwrap();
        host.add_interface(of(WAN, true, &[])).unwrap();
        host.set_addresses(WAN, wan.to_vec());
        let by = |gateway: &str| Route::Via { link: WAN, gateway: gateway.parse().unwrap() };
        host.add_route(Prefix::all(), by("198.51.100.9")).unwrap();
        host.add_route6(Prefix::all(), by("2001:db8:2::9")).unwrap();
        host
    }

    #[test]
    fn routes_follow_from_addresses_of_links_that_are_not_the_kernels() {
        let host = host();
        let all = |list: &[&str]| list.iter().map(|to| to.parse().unwrap()).collect();
        assert_eq!(
            host.own_destinations(),
            all(&["192.0.2.0/24", "192.0.2.1/32", "192.0.2.255/32"])
        );
        let own6: BTreeSet<Prefix<Ipv6Addr>> =
            ["2001:db8:1::/64", "2001:db8:1::1/128", "fe80::1/128"]
                .iter()
                .map(|to| to.parse().unwrap())
                .collect();
        assert_eq!(host.own_destinations6(), own6);
        assert!(host.own_destinations().iter().all(|to| host.own_route(*to).is_some()));
        assert!(host.own_destinations6().iter().all(|to| host.own_route6(*to).is_some()));
        for kernels in ["198.51.100.1/32", "198.51.100.0/24"] {
            assert_eq!(host.own_route(kernels.parse().unwrap()), None);
        }
    }

    /// What a socket sends over the kernel's link is answered to an address at which the socket is;
    /// an error comes from the router's address there, as traceroute shows it (RFC 1812 §4.3.2.4).
    #[test]
    fn sockets_send_from_addresses_at_which_answers_reach_them() {
        let (host, to, to6) = (host(), "203.0.113.7".parse().unwrap(), "2001:db8:9::7");
        let (view, to6) = (host.view(), to6.parse().unwrap());
        assert_eq!(view.source4(to), Some(Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(view.source4_on(Some(WAN), to), Some(Ipv4Addr::new(198, 51, 100, 1)));
        assert_eq!(view.source6(None, to6), Some("2001:db8:1::1".parse().unwrap()));
        assert_eq!(view.source6(Some(WAN), to6), Some("2001:db8:2::1".parse().unwrap()));
    }
}
