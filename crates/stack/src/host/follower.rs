//! Copies of a host's routes elsewhere, which follow each change.

use super::{Host, HostError, Route};
use gatewright_tables::{GroupMember, HopGroupIndex, HopIndex, Prefix, RoutesWriter};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A copy of a host's routes that follows each change, at once and in order.
///
/// A next hop comes before the first route by it, and never changes.
pub trait RouteFollower: fmt::Debug + Send {
    /// Takes a next hop.
    fn add_hop(&mut self, hop: HopIndex, route: Route);

    /// Takes the next hops of a group, or others than before. Its
    /// next hops come before it, and it comes before the first route by it.
    fn set_group(&mut self, group: HopGroupIndex, members: &[GroupMember]);

    /// Takes an IPv4 route, which `routes` has already.
    fn insert4(&mut self, to: Prefix<Ipv4Addr>, hop: HopIndex, routes: &RoutesWriter<Ipv4Addr>);

    /// Gives up an IPv4 route, which `routes` no longer has.
    fn remove4(&mut self, to: Prefix<Ipv4Addr>, routes: &RoutesWriter<Ipv4Addr>);

    /// Takes an IPv6 route.
    fn insert6(&mut self, to: Prefix<Ipv6Addr>, hop: HopIndex);

    /// Gives up an IPv6 route.
    fn remove6(&mut self, to: Prefix<Ipv6Addr>);
}

impl Host {
    /// Has `follower` follow the routes from now on, in place of an earlier one. It is given all
    /// routes first.
    pub fn follow_routes(&mut self, mut follower: Box<dyn RouteFollower>) {
        for (hop, route) in (0..).map(HopIndex).zip(&self.hops) {
            follower.add_hop(hop, *route);
        }
        self.follower = Some(follower);
        self.follow_groups();
        let Some(follower) = &mut self.follower else { return };
        for (to, hop) in self.tables.routes4.iter() {
            follower.insert4(to, hop, &self.tables.routes4);
        }
        for (to, hop) in self.tables.routes6.iter() {
            follower.insert6(to, hop);
        }
    }

    /// As [`Self::add_route`]; a follower takes the route as one that leads nowhere. It is for
    /// routes of packets that somebody else forwards.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add_route_unfollowed(
        &mut self,
        to: Prefix<Ipv4Addr>,
        route: Route,
    ) -> Result<(), HostError> {
        let (hop, nowhere) = (self.hop(route)?, self.hop(Route::None)?);
        let before = self.tables.routes4.insert(to, hop)?;
        self.count_routes(before, Some(hop));
        if let Some(follower) = &mut self.follower {
            follower.insert4(to, nowhere, &self.tables.routes4);
        }
        Ok(())
    }

    /// As [`Self::add_route_unfollowed`], for IPv6.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add_route6_unfollowed(
        &mut self,
        to: Prefix<Ipv6Addr>,
        route: Route,
    ) -> Result<(), HostError> {
        let (hop, nowhere) = (self.hop(route)?, self.hop(Route::None)?);
        let before = self.tables.routes6.insert(to, hop)?;
        self.count_routes(before, Some(hop));
        if let Some(follower) = &mut self.follower {
            follower.insert6(to, nowhere);
        }
        Ok(())
    }

    /// The addresses that no forwarded packet has as its source: those of this host and its
    /// subnets' broadcast addresses.
    pub fn own_sources(&self) -> Vec<IpAddr> {
        super::sources::all(&self.interfaces)
    }
}
