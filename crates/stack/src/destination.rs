//! The destination cache: recent destinations and their next hops (RFC 4861 §5.1).
//!
//! A router looks up the same route for each packet of a flow. The result is kept with the
//! destination, in sets of four chosen by a hash. Most packets of a few thousand flows then cost
//! one lookup instead of a walk through the trie and three tables. An entry holds until the routes
//! or interfaces change; then a number invalidates the whole cache at once. The cache never grows:
//! in a full set one entry gives way.

use crate::{Route, View};
use gatewright_packet::{LinkIndex, Packet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Entries of a set.
const WAYS: usize = 4;

/// Sets of a cache, a power of two: with four entries each enough for some ten thousand flows, and
/// 256 KiB (IPv4) or 640 KiB (IPv6) once all are used; pages never used cost nothing.
const SETS_BITS: u32 = 12;

/// The key of a lookup: an address of either family.
pub(crate) trait Key: Copy + Eq + Into<IpAddr> {
    /// An address that is never looked up.
    const NONE: Self;
    /// A hash that spreads neighbouring addresses over the upper bits.
    fn hash(self) -> u64;
    /// Whether it is the unicast address of a host that may be anywhere: not a group, not of one
    /// link or of the host itself, not reserved.
    fn is_routable(self) -> bool;
    /// A number that changes when the routes of this family do.
    fn changes(view: &View) -> u32;
    /// The link and next hop that the router chooses, if any.
    fn route(self, view: &View) -> Option<(LinkIndex, Self)>;
}

impl Key for Ipv4Addr {
    const NONE: Self = Self::UNSPECIFIED;

    #[inline]
    fn hash(self) -> u64 {
        u64::from(self.to_bits()).wrapping_mul(SPREAD)
    }

    #[inline]
    fn changes(view: &View) -> u32 {
        view.changes4()
    }

    #[inline]
    fn is_routable(self) -> bool {
        let bits = self.to_bits();
        let first = bits >> 24;
        first.wrapping_sub(1) < 223 && first != 127 && bits >> 16 != 0xa9fe
    }

    fn route(self, view: &View) -> Option<(LinkIndex, Self)> {
        match view.route4(self) {
            Route::Connected(link) => Some((link, self)),
            Route::Via { link, gateway: IpAddr::V4(gateway) } => Some((link, gateway)),
            _ => None,
        }
    }
}

impl Key for Ipv6Addr {
    const NONE: Self = Self::UNSPECIFIED;

    #[inline]
    fn hash(self) -> u64 {
        let octets = self.octets();
        let (halves, _) = octets.as_chunks();
        let fold = |hash: u64, half| (hash ^ u64::from_be_bytes(half)).wrapping_mul(SPREAD);
        halves.iter().copied().fold(0, fold)
    }

    #[inline]
    fn changes(view: &View) -> u32 {
        view.changes6()
    }

    #[inline]
    fn is_routable(self) -> bool {
        let bits = self.to_bits();
        bits >> 120 != 0xff && bits >> 118 != 0x3fa && bits > 1
    }

    fn route(self, view: &View) -> Option<(LinkIndex, Self)> {
        match view.route6(self) {
            Route::Connected(link) => Some((link, self)),
            Route::Via { link, gateway: IpAddr::V6(gateway) } => Some((link, gateway)),
            _ => None,
        }
    }
}

/// 2^64 divided by the golden ratio, odd (Knuth, The Art of Computer Programming 3, §6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The link and next hop for one destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Destination<A> {
    /// The destination.
    to: A,
    /// The next hop: the destination itself, or a gateway.
    pub(crate) next_hop: A,
    /// The age of the cache in which this was valid.
    age: u32,
    /// The outgoing link; it is up.
    pub(crate) link: LinkIndex,
    /// Octets of the largest packet that the link takes; 65,535 if it takes more.
    pub(crate) mtu: u16,
}

/// The destination cache of one layer of one worker.
#[derive(Debug)]
pub(crate) struct Destinations<A> {
    /// Allocated with the first entry: a host that forwards nothing has none.
    sets: Vec<[Destination<A>; WAYS]>,
    /// The generations of [`View`] and routes when `age` began.
    seen: (u64, u32),
    age: u32,
    /// The entry of a full set that gives way next.
    turn: usize,
}

impl<A: Key> Default for Destinations<A> {
    fn default() -> Self {
        Self { sets: Vec::new(), seen: (0, 0), age: 1, turn: 0 }
    }
}

impl<A: Key> Destinations<A> {
    /// Forgets everything if routes or interfaces have changed; call it before each batch.
    #[inline]
    pub(crate) fn refresh(&mut self, view: &View) {
        let now = (view.generation(), A::changes(view));
        if now != self.seen {
            self.seen = now;
            self.age = self.age.wrapping_add(1);
            if self.age == 0 {
                // Once in 2^32 changes an old answer could look new.
                self.sets.clear();
                self.age = 1;
            }
        }
    }

    /// A number, never 0, that changes when a result may.
    #[inline]
    pub(crate) fn age(&self) -> u32 {
        self.age
    }

    /// The link and next hop for `to`, if it leads to a neighbour over a link that is up.
    #[inline]
    pub(crate) fn find_or_ask(&mut self, to: A, view: &View) -> Option<Destination<A>> {
        self.find(to).copied().or_else(|| self.ask(to, view).copied())
    }

    /// Looks up the route, and keeps the result.
    #[inline(never)]
    pub(crate) fn ask(&mut self, to: A, view: &View) -> Option<&Destination<A>> {
        let (link, next_hop) = Some(to).filter(|to| to.is_routable())?.route(view)?;
        let egress = view.interface(link).filter(|egress| egress.up)?;
        self.keep(to, next_hop, link, egress.mtu);
        self.find(to)
    }

    /// The link and next hop for `to`, if they are cached.
    #[inline]
    pub(crate) fn find(&self, to: A) -> Option<&Destination<A>> {
        let set = self.sets.get(set_of(to))?;
        set.iter().find(|known| known.to == to && known.age == self.age)
    }

    /// Keeps the link and next hop for `to`.
    fn keep(&mut self, to: A, next_hop: A, link: LinkIndex, mtu: u32) {
        if self.sets.is_empty() {
            let none = Destination {
                to: A::NONE,
                next_hop: A::NONE,
                age: 0,
                link: LinkIndex::NONE,
                mtu: 0,
            };
            self.sets = vec![[none; WAYS]; 1 << SETS_BITS];
        }
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let (age, turn) = (self.age, self.turn);
        let Some(set) = self.sets.get_mut(set_of(to)) else { return };
        let way = set.iter().position(|known| known.age != age).unwrap_or(turn);
        self.turn = (turn + 1) % WAYS;
        if let Some(place) = set.get_mut(way) {
            *place = Destination { to, next_hop, age, link, mtu };
        }
    }
}

/// Whether the receiving link forwards; looked up once for each run of packets of one link.
#[derive(Debug)]
pub(crate) struct Ingress {
    link: LinkIndex,
    forwards: bool,
}

impl Default for Ingress {
    fn default() -> Self {
        Self { link: LinkIndex::NONE, forwards: false }
    }
}

impl Ingress {
    /// Whether the link that received `packet` forwards.
    #[inline]
    pub(crate) fn forwards(&mut self, packet: &Packet, view: &View) -> bool {
        let link = packet.meta().ingress;
        if link != self.link {
            self.link = link;
            self.forwards = view.interface(link).is_some_and(|interface| interface.forwarding);
        }
        self.forwards
    }
}

#[inline]
fn set_of<A: Key>(to: A) -> usize {
    usize::try_from(to.hash() >> (u64::BITS - SETS_BITS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Interface, Route};

    const LINK: LinkIndex = LinkIndex(0);

    fn gateway(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, last)
    }

    #[test]
    fn an_answer_holds_until_routes_or_interfaces_move() {
        let mut host = Host::new(16).unwrap();
        host.add_interface(Interface { link: LINK, ..Interface::default() }).unwrap();
        let mut view = host.view();
        let mut known = Destinations::<Ipv4Addr>::default();
        let to = Ipv4Addr::new(192, 0, 2, 1);
        known.refresh(&view);
        assert!(known.find(to).is_none());
        known.keep(to, gateway(1), LINK, 100_000);
        let found = *known.find(to).unwrap();
        assert_eq!((found.next_hop, found.link, found.mtu), (gateway(1), LINK, u16::MAX));
        known.refresh(&view);
        assert!(known.find(to).is_some(), "nothing has moved");

        let via = Route::Via { link: LINK, gateway: gateway(2).into() };
        host.add_route("192.0.2.0/24".parse().unwrap(), via).unwrap();
        known.refresh(&view);
        assert!(known.find(to).is_none(), "a route has moved");

        known.keep(to, gateway(2), LINK, 1500);
        host.change_interface(LINK, |interface| interface.up = false);
        view.refresh();
        known.refresh(&view);
        assert!(known.find(to).is_none(), "an interface has moved");
    }

    #[test]
    fn a_full_set_gives_one_answer_up_and_never_a_wrong_one() {
        let host = Host::new(16).unwrap();
        let mut known = Destinations::<Ipv6Addr>::default();
        known.refresh(&host.view());
        let address = |number: u32| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number));
        let numbers = 0..100_000;
        for number in numbers.clone() {
            known.keep(address(number), address(!number), LINK, 1500);
        }
        let found: Vec<_> =
            numbers.filter_map(|n| known.find(address(n)).map(|it| (n, it.next_hop))).collect();
        assert!(found.len() > (WAYS << SETS_BITS) / 2, "only {} are left", found.len());
        assert!(found.iter().all(|&(number, next_hop)| next_hop == address(!number)));
    }
}
