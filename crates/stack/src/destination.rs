//! The destination cache: recent destinations and their next hops (RFC 4861 §5.1).
//!
//! A router looks up the same route for each packet of a flow. The result is kept with the
//! destination, in sets of four chosen by a hash. Most packets of a few thousand flows then cost
//! one lookup instead of a walk through the trie and three tables. An entry holds until the routes
//! or interfaces change; then a number invalidates the whole cache at once. The cache never grows:
//! in a full set one entry gives way.
//!
//! Of a group of next hops the group is kept, and each packet's flow chooses among them.
//!
//! With more flows than entries most packets miss. Once a batch has missed often, the destinations
//! of the next one are looked up together, so that the walks wait for memory together.

use crate::{Route, View};
use gatewright_packet::{BATCH_MAX, Batch, LinkIndex, Packet};
use gatewright_tables::{HopGroupIndex, HopIndex, Miss};
use gatewright_wire::{ipv4::Ipv4, ipv6::Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Entries of a set.
const WAYS: usize = 4;

/// Sets of a cache, a power of two: with four entries each enough for some ten thousand flows, and
/// 256 KiB (IPv4) or 640 KiB (IPv6) once all are used; pages never used cost nothing.
const SETS_BITS: u32 = 12;

/// The key of a lookup: an address of either family.
pub(crate) trait DestinationKey: Copy + Eq + Into<IpAddr> {
    /// An address that is never looked up.
    const NONE: Self;
    /// A hash that spreads neighbouring addresses over the upper bits.
    fn hash(self) -> u64;
    /// Whether it is the unicast address of a host that may be anywhere: not a group, not of one
    /// link or of the host itself, not reserved.
    fn is_routable(self) -> bool;
    /// A number that changes when the routes of this family do.
    fn changes(view: &View) -> u32;
    /// The destination of the packet whose header is in front.
    fn destination(packet: &[u8]) -> Option<Self>;
    /// The route that the router chooses; it may be a group of next hops.
    fn route(self, view: &View) -> Route;
    /// Looks up the routes of many addresses together.
    fn look_up(view: &View, addresses: &[Self], hops: &mut [Found]);
    /// The link and next hop of a route to this address, if it leads to a neighbour.
    fn next_hop(self, route: Route) -> Option<(LinkIndex, Self)>;
    /// A number in an address's place: that of a group of next hops.
    fn of_number(number: u32) -> Self;
    /// The number that [`Self::of_number`] was given.
    fn number(self) -> u32;
}

/// The result of a lookup in the table of routes.
pub(crate) type Found = Result<HopIndex, Miss>;

impl DestinationKey for Ipv4Addr {
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

    #[inline]
    fn destination(packet: &[u8]) -> Option<Self> {
        packet.first_chunk().map(|header| Ipv4::of(header).destination_address())
    }

    fn route(self, view: &View) -> Route {
        view.way4(self)
    }

    fn look_up(view: &View, addresses: &[Self], hops: &mut [Found]) {
        view.routes4().lookup_batch(addresses, hops);
    }

    fn next_hop(self, route: Route) -> Option<(LinkIndex, Self)> {
        match route {
            Route::Connected(link) => Some((link, self)),
            Route::Via { link, gateway: IpAddr::V4(gateway) } => Some((link, gateway)),
            _ => None,
        }
    }

    fn of_number(number: u32) -> Self {
        Self::from_bits(number)
    }

    fn number(self) -> u32 {
        self.to_bits()
    }
}

impl DestinationKey for Ipv6Addr {
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
        // Of what begins with eighty zeroes, a layer knows more.
        bits >> 120 != 0xff && bits >> 118 != 0x3fa && bits >> 48 != 0
    }

    #[inline]
    fn destination(packet: &[u8]) -> Option<Self> {
        packet.first_chunk().map(|header| Ipv6::of(header).destination_address())
    }

    fn route(self, view: &View) -> Route {
        view.way6(self)
    }

    fn look_up(view: &View, addresses: &[Self], hops: &mut [Found]) {
        view.routes6().lookup_batch(addresses, hops);
    }

    fn next_hop(self, route: Route) -> Option<(LinkIndex, Self)> {
        match route {
            Route::Connected(link) => Some((link, self)),
            Route::Via { link, gateway: IpAddr::V6(gateway) } => Some((link, gateway)),
            _ => None,
        }
    }

    fn of_number(number: u32) -> Self {
        Self::from_bits(number.into())
    }

    fn number(self) -> u32 {
        u32::try_from(self.to_bits()).unwrap_or(u32::MAX)
    }
}

/// 2^64 divided by the golden ratio, odd (Knuth, The Art of Computer Programming 3, §6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The link and next hop for one destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Destination<A> {
    /// The destination.
    to: A,
    /// The next hop: the destination itself, or a gateway. Of a group its number.
    pub(crate) next_hop: A,
    /// The age of the cache in which this was valid.
    age: u32,
    /// The outgoing link; it is up. [`LinkIndex::NONE`] for a group of next hops, of which each flow
    /// has its own.
    pub(crate) link: LinkIndex,
    /// Octets of the largest packet that the link takes; 65,535 if it takes more.
    pub(crate) mtu: u16,
}

impl<A: DestinationKey> Destination<A> {
    /// Whether each flow has a next hop of its own.
    #[inline]
    pub(crate) fn is_group(&self) -> bool {
        self.link == LinkIndex::NONE
    }

    /// The way of a packet to this destination, and which next hop of a group that is; `None` if it
    /// leads to no neighbour over a link that is up.
    #[inline(never)]
    pub(crate) fn for_packet(&self, packet: &[u8], view: &View) -> Option<(Self, HopIndex)> {
        let group = Route::Group(HopGroupIndex(self.next_hop.number()));
        let (route, hop) = view.for_packet(group, packet);
        let (link, next_hop) = self.to.next_hop(route)?;
        let egress = view.interface(link).filter(|egress| egress.up)?;
        let mtu = u16::try_from(egress.mtu).unwrap_or(u16::MAX);
        Some((Self { next_hop, link, mtu, ..*self }, hop?))
    }
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
    /// Destinations kept since the last batch began.
    kept: usize,
}

/// Number of new destinations in one batch from which on those of the next batch are looked up
/// together.
const AHEAD_MIN: usize = 8;

impl<A: DestinationKey> Default for Destinations<A> {
    fn default() -> Self {
        Self { sets: Vec::new(), seen: (0, 0), age: 1, turn: 0, kept: 0 }
    }
}

impl<A: DestinationKey> Destinations<A> {
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

    /// The link and next hop for a packet to `to`, if it leads to a neighbour over a link that is up,
    /// and which next hop of a group that is.
    #[inline]
    pub(crate) fn find_or_ask(
        &mut self,
        to: A,
        packet: &[u8],
        view: &View,
    ) -> Option<(Destination<A>, Option<HopIndex>)> {
        let found = self.find(to).copied().or_else(|| self.ask(to, view).copied())?;
        if !found.is_group() {
            return Some((found, None));
        }
        found.for_packet(packet, view).map(|(way, hop)| (way, Some(hop)))
    }

    /// Looks up the route, and keeps the result.
    #[inline(never)]
    pub(crate) fn ask(&mut self, to: A, view: &View) -> Option<&Destination<A>> {
        if !to.is_routable() {
            return None;
        }
        self.keep_route(to, to.route(view), view)
    }

    /// Looks up together what a batch will ask for, if the batch before asked for much.
    #[inline]
    pub(crate) fn look_ahead(&mut self, batch: &Batch, view: &View) {
        if std::mem::take(&mut self.kept) >= AHEAD_MIN {
            self.look_up(batch, view);
        }
    }

    #[inline(never)]
    fn look_up(&mut self, batch: &Batch, view: &View) {
        let mut missing = [A::NONE; BATCH_MAX];
        let mut count = 0;
        for to in batch.iter().filter_map(|packet| A::destination(packet.octets())) {
            if to.is_routable()
                && self.find(to).is_none()
                && let Some(place) = missing.get_mut(count)
            {
                *place = to;
                count += 1;
            }
        }
        let missing = missing.get(..count).unwrap_or_default();
        let mut hops = [Err(Miss::NoRoute); BATCH_MAX];
        A::look_up(view, missing, &mut hops);
        for (&to, hop) in missing.iter().zip(hops) {
            // What has no route is asked for again by its packet, and answered.
            let _none = self.keep_route(to, view.hop(hop.ok()), view);
        }
    }

    /// Keeps a route that leads to a neighbour over a link that is up, or by a group.
    #[inline]
    fn keep_route(&mut self, to: A, route: Route, view: &View) -> Option<&Destination<A>> {
        if let Route::Group(HopGroupIndex(group)) = route {
            return self.keep(to, A::of_number(group), LinkIndex::NONE, u32::MAX);
        }
        let (link, next_hop) = to.next_hop(route)?;
        let egress = view.interface(link).filter(|egress| egress.up)?;
        self.keep(to, next_hop, link, egress.mtu)
    }

    /// The link and next hop for `to`, if they are cached.
    #[inline]
    pub(crate) fn find(&self, to: A) -> Option<&Destination<A>> {
        let set = self.sets.get(set_of(to))?;
        set.iter().find(|known| known.to == to && known.age == self.age)
    }

    /// Keeps the link and next hop for `to`.
    fn keep(&mut self, to: A, next_hop: A, link: LinkIndex, mtu: u32) -> Option<&Destination<A>> {
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
        let set = self.sets.get_mut(set_of(to))?;
        let way = set.iter().position(|known| known.age != age).unwrap_or(turn);
        self.turn = (turn + 1) % WAYS;
        self.kept += 1;
        let place = set.get_mut(way)?;
        *place = Destination { to, next_hop, age, link, mtu };
        Some(place)
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
fn set_of<A: DestinationKey>(to: A) -> usize {
    usize::try_from(to.hash() >> (u64::BITS - SETS_BITS)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Interface, Route};
    use gatewright_packet::Pool;
    use gatewright_wire::{IpProtocol, ipv4::Ipv4Fields};

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
        known.keep(to, gateway(1), LINK, 100_000).unwrap();
        let found = *known.find(to).unwrap();
        assert_eq!((found.next_hop, found.link, found.mtu), (gateway(1), LINK, u16::MAX));
        known.refresh(&view);
        assert!(known.find(to).is_some(), "nothing has moved");

        let via = Route::Via { link: LINK, gateway: gateway(2).into() };
        host.add_route("192.0.2.0/24".parse().unwrap(), via).unwrap();
        known.refresh(&view);
        assert!(known.find(to).is_none(), "a route has moved");

        known.keep(to, gateway(2), LINK, 1500).unwrap();
        host.change_interface(LINK, |interface| interface.up = false);
        view.refresh();
        known.refresh(&view);
        assert!(known.find(to).is_none(), "an interface has moved");
    }

    /// After a batch of new destinations the next one's are looked up together, each to the route
    /// that it has alone; those without a route are left out.
    #[test]
    fn destinations_are_looked_up_ahead_once_many_were_missing() {
        let mut host = Host::new(1000).unwrap();
        host.add_interface(Interface { link: LINK, mtu: 1500, up: true, ..Interface::default() })
            .unwrap();
        for number in 0..100 {
            let via = Route::Via { link: LINK, gateway: gateway(number).into() };
            let to = gatewright_tables::Prefix::new(Ipv4Addr::new(192, 0, number, 0), 24).unwrap();
            host.add_route(to, via).unwrap();
        }
        let view = host.view();
        let pool = Pool::new(64, gatewright_packet::CHUNK_SIZE).unwrap();
        let batch_of = |addresses: &[Ipv4Addr]| {
            let mut batch = Batch::default();
            for &to in addresses {
                let header = Ipv4Fields::new(IpProtocol::UDP, gateway(1), to, 20);
                batch.push(pool.packet_of(&header.emit_with_checksum()).unwrap()).unwrap();
            }
            batch
        };
        let first: Vec<_> = (0..32).map(|number| Ipv4Addr::new(192, 0, number, 1)).collect();
        let mut next: Vec<_> = (32..64).map(|number| Ipv4Addr::new(192, 0, number, 1)).collect();
        let (nowhere, group) = (Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(224, 0, 0, 9));
        let mut known = Destinations::default();
        known.refresh(&view);
        known.look_ahead(&batch_of(&first), &view);
        assert!(first.iter().all(|&to| known.find(to).is_none()), "nothing was missing before");
        assert!(first.iter().all(|&to| known.ask(to, &view).is_some()));
        next.extend([nowhere, group]);
        known.look_ahead(&batch_of(&next), &view);
        let mut alone = Destinations::default();
        alone.refresh(&view);
        for &to in &next {
            assert_eq!(known.find(to), alone.ask(to, &view), "{to}");
            assert_eq!(known.find(to).is_none(), [nowhere, group].contains(&to));
        }
        // It goes on as long as there are new ones, and no longer.
        known.look_ahead(&batch_of(&first), &view);
        known.look_ahead(&batch_of(&[Ipv4Addr::new(192, 0, 99, 1)]), &view);
        assert!(known.find(Ipv4Addr::new(192, 0, 99, 1)).is_none());
    }

    #[test]
    fn a_full_set_gives_one_answer_up_and_never_a_wrong_one() {
        let host = Host::new(16).unwrap();
        let mut known = Destinations::<Ipv6Addr>::default();
        known.refresh(&host.view());
        let address = |number: u32| Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number));
        let numbers = 0..100_000;
        for number in numbers.clone() {
            known.keep(address(number), address(!number), LINK, 1500).unwrap();
        }
        let found: Vec<_> =
            numbers.filter_map(|n| known.find(address(n)).map(|it| (n, it.next_hop))).collect();
        assert!(found.len() > (WAYS << SETS_BITS) / 2, "only {} are left", found.len());
        assert!(found.iter().all(|&(number, next_hop)| next_hop == address(!number)));
    }
}
