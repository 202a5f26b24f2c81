//! Routes of several next hops: groups, of which each flow keeps one.
//!
//! Equal groups share a place in the table. A place whose routes have all gone is taken again when no
//! other is left, the one that was left first before others. A next hop that cannot carry packets is
//! left out: its link is down or without a carrier, or nobody tells its link-layer address. Its flows
//! go by the others, and come back with it. If none can, all stay: packets are dropped for the reason
//! that their own next hop has.

use super::{Host, HostError, Route};
use gatewright_packet::LinkIndex;
use gatewright_tables::{BUCKETS, GROUP_MEMBERS_MAX, GroupMember, HopGroupIndex, HopIndex};
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
};

/// Maximum groups of a host.
pub(super) const GROUPS_MAX: u32 = 1024;

/// Maximum next hops of a route.
pub const ROUTE_HOPS_MAX: usize = GROUP_MEMBERS_MAX;

/// A next hop of several, by its weight: a network on a link, or a router there.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WeightedHop {
    /// The link.
    pub link: LinkIndex,
    /// The router; none if destinations are neighbours themselves.
    pub gateway: Option<IpAddr>,
    /// Its share of the flows is this, divided by the weights of all.
    pub weight: u16,
}

impl WeightedHop {
    /// Its route, if it is the only one.
    pub fn route(self) -> Route {
        let link = self.link;
        self.gateway.map_or(Route::Connected(link), |gateway| Route::Via { link, gateway })
    }

    /// What other next hops differ in, in any group.
    fn identity(self) -> u64 {
        let (high, low) = match self.gateway {
            None => (0, 0),
            Some(IpAddr::V4(ip)) => (4, u64::from(ip.to_bits())),
            Some(IpAddr::V6(ip)) => {
                let [high, low] = halves(ip);
                (high, low)
            }
        };
        // Multiplied by an odd number (2^64 by the golden ratio), so that neither half hides the
        // other; the table mixes it further.
        let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        spread(spread(high).rotate_left(32) ^ low) ^ u64::from(self.link.0)
    }
}

fn halves(ip: Ipv6Addr) -> [u64; 2] {
    let octets = ip.octets();
    let (halves, _) = octets.as_chunks();
    let half = |at: usize| halves.get(at).copied().map_or(0, u64::from_be_bytes);
    [half(0), half(1)]
}

/// A next hop of a group as it is now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HopShare {
    /// The next hop.
    pub hop: WeightedHop,
    /// Its place in the table of next hops.
    pub index: HopIndex,
    /// Buckets that it has, of [`BUCKETS`].
    pub buckets: u32,
    /// Whether it is left out.
    pub is_left_out: bool,
}

/// A group's next hops and the state of its place.
#[derive(Debug, Default)]
struct HopGroup {
    hops: Vec<(WeightedHop, HopIndex)>,
    /// Which of them had flows when the table was last written.
    usable: Vec<bool>,
    /// Routes by it.
    routes: u32,
    /// Whether its place stands in [`HopGroupSet::idle`].
    is_queued: bool,
}

/// The groups of a host.
#[derive(Debug, Default)]
pub(super) struct HopGroupSet {
    groups: Vec<HopGroup>,
    of: HashMap<Vec<WeightedHop>, HopGroupIndex>,
    /// Places that had no route when they came here, the first one first.
    idle: VecDeque<HopGroupIndex>,
    left_out: BTreeSet<(LinkIndex, Option<IpAddr>)>,
}

impl HopGroupSet {
    /// Groups of a control side that is gone: their places are taken again only when
    /// [`Self::release_found`] says that no route names them.
    pub(super) fn found(hops: &[Route]) -> Self {
        let group = |route: &Route| match route {
            Route::Group(HopGroupIndex(group)) if *group < GROUPS_MAX => Some(group + 1),
            _ => None,
        };
        let count = hops.iter().filter_map(group).max().unwrap_or(0);
        let groups =
            (0..count).map(|_| HopGroup { is_queued: true, ..HopGroup::default() }).collect();
        Self { groups, ..Self::default() }
    }

    /// Frees the places of groups that were found and that no route has taken over.
    pub(super) fn release_found(&mut self) {
        for (index, group) in (0..).map(HopGroupIndex).zip(&mut self.groups) {
            if group.hops.is_empty() && group.is_queued && !self.idle.contains(&index) {
                self.idle.push_back(index);
            }
        }
    }

    fn group(&mut self, HopGroupIndex(index): HopGroupIndex) -> Option<&mut HopGroup> {
        self.groups.get_mut(usize::try_from(index).ok()?)
    }

    /// A place for a new group.
    fn place(&mut self, capacity: u32) -> Option<HopGroupIndex> {
        let count = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        if count < capacity {
            self.groups.push(HopGroup::default());
            return Some(HopGroupIndex(count));
        }
        while let Some(index) = self.idle.pop_front() {
            let Some(group) = self.group(index) else { continue };
            group.is_queued = false;
            if group.routes == 0 {
                let hops: Vec<_> = group.hops.drain(..).map(|(hop, _)| hop).collect();
                self.of.remove(&hops);
                return Some(index);
            }
        }
        None
    }

    /// Records that one more route leads by a next hop that is a group, or one less.
    fn count(&mut self, route: Route, more: bool) {
        let Route::Group(index) = route else { return };
        let Some(group) = self.group(index) else { return };
        group.routes =
            if more { group.routes.saturating_add(1) } else { group.routes.saturating_sub(1) };
        if group.routes == 0 && !std::mem::replace(&mut group.is_queued, true) {
            self.idle.push_back(index);
        }
    }
}

impl Host {
    /// The route by all of `hops`, of which each flow keeps one; by the only one if it is alone.
    /// Equal next hops count as one, with the weights of all.
    ///
    /// The route is to be added at once ([`Self::add_route`]): a group without a route may give way
    /// to another.
    ///
    /// # Errors
    ///
    /// [`HostError`] if there are too many next hops or groups.
    pub fn route_by(&mut self, hops: &[WeightedHop]) -> Result<Route, HostError> {
        let mut all: Vec<WeightedHop> = Vec::new();
        for hop in hops {
            let hop = WeightedHop { weight: hop.weight.max(1), ..*hop };
            match all.iter_mut().find(|known| known.route() == hop.route()) {
                Some(known) => known.weight = known.weight.saturating_add(hop.weight),
                None => all.push(hop),
            }
        }
        all.sort_unstable();
        match all[..] {
            [] => return Ok(Route::None),
            [only] => return Ok(only.route()),
            _ if all.len() > GROUP_MEMBERS_MAX => return Err(HostError::GroupHops),
            _ => {}
        }
        if let Some(group) = self.groups.of.get(&all) {
            return Ok(Route::Group(*group));
        }
        let hops = all.iter().map(|hop| Ok((*hop, self.hop(hop.route())?)));
        let hops = hops.collect::<Result<Vec<_>, HostError>>()?;
        let capacity = self.tables.hop_groups.capacity();
        let index = self.groups.place(capacity).ok_or(HostError::Groups)?;
        if let Some(group) = self.groups.group(index) {
            *group = HopGroup { hops, usable: Vec::new(), routes: 0, is_queued: true };
        }
        self.groups.of.insert(all, index);
        // One that never gets a route gives way, too.
        self.groups.idle.push_back(index);
        self.settle_group(index);
        Ok(Route::Group(index))
    }

    /// The next hops of a group, as they are now.
    pub fn group_of(&self, HopGroupIndex(index): HopGroupIndex) -> Vec<HopShare> {
        let group = usize::try_from(index).ok().and_then(|index| self.groups.groups.get(index));
        let Some(group) = group else { return Vec::new() };
        let reader = self.tables.hop_groups.reader();
        let found: Vec<_> =
            (0..BUCKETS).filter_map(|bucket| reader.member(HopGroupIndex(index), bucket)).collect();
        let share = |(hop, place): &(WeightedHop, HopIndex)| {
            let buckets = found.iter().filter(|its| *its == place).count();
            HopShare {
                hop: *hop,
                index: *place,
                buckets: u32::try_from(buckets).unwrap_or(BUCKETS),
                is_left_out: !self.is_usable(*hop),
            }
        };
        group.hops.iter().map(share).collect()
    }

    /// All next hops that there have been, by their places in the table.
    pub fn hops(&self) -> impl Iterator<Item = (HopIndex, Route)> + '_ {
        (0..).map(HopIndex).zip(self.hops.iter().copied())
    }

    /// The next hops of all groups that routes lead by, each once.
    pub fn group_hops(&self) -> BTreeSet<(LinkIndex, Option<IpAddr>)> {
        let used = self.groups.groups.iter().filter(|group| group.routes > 0);
        used.flat_map(|group| &group.hops).map(|(hop, _)| (hop.link, hop.gateway)).collect()
    }

    /// Leaves a router out of all groups, or a link with all of its routers; or no longer. Its flows
    /// go by the others.
    pub fn leave_out(&mut self, link: LinkIndex, gateway: Option<IpAddr>, is_left_out: bool) {
        let key = (link, gateway);
        let differs = if is_left_out {
            self.groups.left_out.insert(key)
        } else {
            self.groups.left_out.remove(&key)
        };
        if differs {
            self.settle_groups();
        }
    }

    /// Whether a router, or a link, is left out of groups.
    pub fn is_left_out(&self, link: LinkIndex, gateway: Option<IpAddr>) -> bool {
        self.groups.left_out.contains(&(link, gateway))
    }

    fn is_usable(&self, hop: WeightedHop) -> bool {
        self.interfaces.iter().any(|own| own.link == hop.link && own.up)
            && !self.is_left_out(hop.link, None)
            && !self.is_left_out(hop.link, hop.gateway)
    }

    /// Writes the groups whose usable next hops have changed.
    pub(super) fn settle_groups(&mut self) {
        for index in (0..self.groups.groups.len()).filter_map(|index| u32::try_from(index).ok()) {
            self.settle_group(HopGroupIndex(index));
        }
    }

    fn settle_group(&mut self, index: HopGroupIndex) {
        let hops = self.groups.group(index).map(|group| group.hops.clone()).unwrap_or_default();
        let usable: Vec<bool> = hops.iter().map(|(hop, _)| self.is_usable(*hop)).collect();
        let Some(group) = self.groups.group(index).filter(|group| group.usable != usable) else {
            return;
        };
        group.usable.clone_from(&usable);
        let none = !usable.contains(&true);
        let members = hops.iter().zip(&usable).filter(|(_, usable)| **usable || none);
        let member = |((hop, place), _): (&(WeightedHop, HopIndex), _)| GroupMember {
            hop: *place,
            identity: hop.identity(),
            weight: hop.weight,
        };
        let members: Vec<_> = members.map(member).collect();
        // A place beyond the table was never given.
        let _there = self.tables.hop_groups.set(index, &members);
        if let Some(follower) = &mut self.follower {
            follower.set_group(index, &members);
        }
    }

    /// Has the follower take all groups.
    pub(super) fn follow_groups(&mut self) {
        for group in &mut self.groups.groups {
            group.usable.clear();
        }
        self.settle_groups();
    }

    /// Records that a route leads by a next hop in place of another.
    pub(super) fn count_routes(&mut self, before: Option<HopIndex>, now: Option<HopIndex>) {
        for (hop, more) in [(now, true), (before, false)] {
            if let Some(hop) = hop {
                self.groups.count(self.route_of(hop), more);
            }
        }
    }

    /// The next hops of a route; none if it does not lead to neighbours.
    pub fn hops_of(&self, route: Route) -> Vec<WeightedHop> {
        match route {
            Route::Connected(link) => vec![WeightedHop { link, gateway: None, weight: 1 }],
            Route::Via { link, gateway } => {
                vec![WeightedHop { link, gateway: Some(gateway), weight: 1 }]
            }
            Route::Group(group) => self.group_of(group).iter().map(|share| share.hop).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interface, View};
    use gatewright_tables::{Flow, Prefix};
    use std::collections::BTreeMap;

    const LAN: LinkIndex = LinkIndex(0);
    const WAN: LinkIndex = LinkIndex(1);

    fn hop(link: LinkIndex, last: u8, weight: u16) -> WeightedHop {
        let gateway = Some([192, 0, 2, last].into());
        WeightedHop { link, gateway, weight }
    }

    fn host() -> Host {
        let mut host = Host::new(10_000).unwrap();
        for link in [LAN, WAN] {
            host.add_interface(Interface { link, up: true, ..Interface::default() }).unwrap();
        }
        host
    }

    fn to(number: u32) -> Prefix<std::net::Ipv4Addr> {
        Prefix::host(std::net::Ipv4Addr::from_bits(0x0a00_0000 | number))
    }

    /// The flows of a route by next hop, each a bucket of its own.
    fn flows(view: &View, route: Route) -> BTreeMap<u32, Route> {
        let Route::Group(group) = route else { panic!("{route:?} is no group") };
        (0..BUCKETS).map(|bucket| (bucket, view.member(group, bucket).0)).collect()
    }

    #[test]
    fn a_next_hop_that_is_left_out_moves_its_own_flows_and_takes_them_back() {
        let mut host = host();
        let view = host.view();
        let route = host.route_by(&[hop(LAN, 1, 1), hop(LAN, 2, 1), hop(WAN, 3, 2)]).unwrap();
        host.add_route(to(1), route).unwrap();
        let all = flows(&view, route);
        let moves = |host: &mut Host, gone: Route, what: &dyn Fn(&mut Host, bool)| {
            what(host, true);
            for (bucket, now) in flows(&view, route) {
                assert!(now != gone && (all[&bucket] == gone || all[&bucket] == now), "{gone:?}");
            }
            what(host, false);
            assert_eq!(flows(&view, route), all);
        };
        let router = |last: u8| IpAddr::from([192, 0, 2, last]);
        let gone = hop(LAN, 2, 1).route();
        moves(&mut host, gone, &|host, out| host.leave_out(LAN, Some(router(2)), out));
        let gone = hop(WAN, 3, 2).route();
        moves(&mut host, gone, &|host, out| host.leave_out(WAN, None, out));
        moves(&mut host, gone, &|host, out| host.change_interface(WAN, |own| own.up = !out));
        // Without any that can carry packets, all stay.
        host.leave_out(LAN, None, true);
        host.leave_out(WAN, None, true);
        assert_eq!(flows(&view, route), all);
        let shares = host.group_of(HopGroupIndex(0));
        assert!(shares.iter().all(|share| share.is_left_out && share.buckets > 100));
    }

    #[test]
    fn next_hops_are_counted_once_and_one_is_no_group() {
        let mut host = host();
        let one = host.route_by(&[hop(LAN, 1, 1), hop(LAN, 1, 4)]).unwrap();
        assert_eq!(one, hop(LAN, 1, 1).route());
        assert_eq!(host.route_by(&[]).unwrap(), Route::None);
        let both = host.route_by(&[hop(LAN, 1, 1), hop(WAN, 2, 0)]).unwrap();
        assert_eq!(host.route_by(&[hop(WAN, 2, 1), hop(LAN, 1, 1)]).unwrap(), both, "any order");
        assert_ne!(host.route_by(&[hop(LAN, 1, 2), hop(WAN, 2, 1)]).unwrap(), both, "weights");
        let many: Vec<_> = (0..17).map(|last| hop(LAN, last, 1)).collect();
        assert_eq!(host.route_by(&many), Err(HostError::GroupHops));
        assert!(host.route_by(&many[1..]).is_ok());
    }

    #[test]
    fn groups_without_routes_give_way_and_those_with_routes_never_do() {
        let mut host = host();
        let view = host.view();
        let group = |host: &mut Host, weight: u32| {
            let weight = u16::try_from(weight).unwrap();
            host.route_by(&[hop(LAN, 1, 1), hop(WAN, 2, weight)])
        };
        for number in 1..=GROUPS_MAX {
            let route = group(&mut host, number).unwrap();
            host.add_route(to(number), route).unwrap();
        }
        assert_eq!(group(&mut host, GROUPS_MAX + 1), Err(HostError::Groups));
        assert!(group(&mut host, 7).is_ok(), "one that is there");
        let kept = flows(&view, view.way4(to(9).address()));
        let old = view.way4(to(7).address());
        host.remove_route(to(7));
        host.add_route(to(8), hop(LAN, 1, 1).route()).unwrap();
        assert_eq!(group(&mut host, 5000).unwrap(), old, "the place that was left first");
        host.add_route(to(7), old).unwrap();
        assert!(group(&mut host, 6000).is_ok());
        assert_eq!(group(&mut host, 6001).map(|_| ()), Ok(()), "no route leads by the last one");
        assert_eq!(flows(&view, view.way4(to(9).address())), kept);
        let by: Vec<_> =
            flows(&view, old).into_values().filter(|by| *by == hop(LAN, 1, 1).route()).collect();
        assert!(by.len() < 10, "it has the weights of the new one");
    }

    #[test]
    fn flows_keep_their_next_hops_under_the_next_control_side() {
        let hops = [hop(LAN, 1, 1), hop(WAN, 2, 1)];
        let furnished = |host: &mut Host| {
            for link in [LAN, WAN] {
                host.add_interface(Interface { link, up: true, ..Interface::default() }).unwrap();
            }
            let route = host.route_by(&hops).unwrap();
            host.add_route(to(1), route).unwrap();
        };
        let mut first = Host::shared(10_000, [1, 2]).unwrap();
        furnished(&mut first);
        let descriptor = first.descriptor().unwrap().try_clone_to_owned().unwrap();
        let view = View::attach(&descriptor, 10_000).unwrap();
        let before = flows(&view, view.way4(to(1).address()));
        drop(first);
        let mut next = Host::adopt(&descriptor, 10_000).unwrap();
        // Another group first, so that the place is another.
        let other = next.route_by(&[hop(LAN, 8, 1), hop(WAN, 9, 1)]).unwrap();
        furnished(&mut next);
        next.add_route(to(2), other).unwrap();
        assert_eq!(flows(&view, view.way4(to(1).address())), before, "not released yet");
        next.release();
        assert_eq!(flows(&view, view.way4(to(1).address())), before);
        assert_ne!(flows(&view, view.way4(to(2).address())), before);
        // The place of the group of before is free: no route leads by it.
        let places = |next: &mut Host| {
            let groups = (1..=GROUPS_MAX).map(|weight| {
                let weight = u16::try_from(weight).unwrap();
                let route = next.route_by(&[hop(LAN, 1, weight), hop(WAN, 3, 1)])?;
                next.add_route(to(100 + u32::from(weight)), route)
            });
            groups.flatten().count()
        };
        assert_eq!(places(&mut next), 1022);
    }

    #[test]
    fn a_destination_alone_has_one_next_hop() {
        let mut host = host();
        let view = host.view();
        let route = host.route_by(&[hop(LAN, 1, 1), hop(WAN, 2, 1)]).unwrap();
        host.add_route("10.0.0.0/8".parse().unwrap(), route).unwrap();
        let by = |number: u32| view.route4(to(number).address());
        assert!((1..100).all(|number| by(number) == by(number)));
        let lan = (1..100).filter(|number| by(*number) == hop(LAN, 1, 1).route()).count();
        assert!((20..80).contains(&lan), "{lan}");
        let flow = Flow { rest: 5, ..Flow::default() };
        assert!(flow.bucket() < BUCKETS);
    }
}
