//! A host whose tables other processes read.

use super::{
    ADDRESSES_MAX, HOPS_MAX, Host, HostError, INTERFACES_MAX, NEIGHBOURS_MAX, View,
    hop_groups::{GROUPS_MAX, HopGroupSet},
    records,
    sources::Sources,
};
use gatewright_tables::{Capacities, HopIndex, RegionError, Tables, TablesWriter};
use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd},
};

impl Host {
    /// The capacities of a host's tables, with `routes_max` routes of each family; a process that
    /// attaches to them states the same.
    pub fn capacities(routes_max: u32) -> Capacities {
        Capacities {
            interfaces: INTERFACES_MAX,
            addresses: ADDRESSES_MAX,
            hops: HOPS_MAX,
            hop_groups: GROUPS_MAX,
            neighbours: NEIGHBOURS_MAX,
            routes4: routes_max,
            routes6: routes_max,
            ..Capacities::default()
        }
    }

    /// As [`Self::with_random`], with tables in memory that has a descriptor: another process attaches
    /// to them ([`View::attach`]), and reads them while they are changed here.
    ///
    /// # Errors
    ///
    /// [`HostError::Memory`] if the tables cannot be made.
    pub fn shared(routes_max: u32, random: [u64; 2]) -> Result<Self, HostError> {
        let tables = TablesWriter::create(&Self::capacities(routes_max), random);
        tables.map(Self::over).map_err(|_: RegionError| HostError::Memory(routes_max))
    }

    /// Takes over the host whose tables are behind `descriptor`: its control side has ended, and a
    /// data plane still reads them. It begins without interfaces and routes; workers keep those of
    /// before until [`Self::release`].
    ///
    /// # Errors
    ///
    /// [`RegionError`] if these are not the tables of such a host, or have a writer.
    pub fn adopt(descriptor: impl AsFd, routes_max: u32) -> Result<Self, RegionError> {
        let tables = TablesWriter::adopt_beside(descriptor, &Self::capacities(routes_max))?;
        let mut host = Self::over(tables);
        // The meaning of a next hop never changes while a route may name it.
        records::read_hops(&host.tables(), &mut host.hops);
        host.hop_of = (0..).map(HopIndex).zip(&host.hops).map(|(at, hop)| (*hop, at)).collect();
        host.groups = HopGroupSet::found(&host.hops);
        host.quiet = true;
        Ok(host)
    }

    /// Shows workers the interfaces and routes that were set since [`Self::adopt`], in place of those
    /// of before.
    pub fn release(&mut self) {
        self.tables.release_routes();
        self.groups.release_found();
        self.quiet = false;
        self.publish();
    }

    /// The descriptor of its tables, for other processes; none unless it is [`Self::shared`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tables.descriptor()
    }

    /// A host without interfaces over tables that are empty.
    pub(super) fn over(tables: TablesWriter) -> Self {
        let (interfaces, hops, hop_of) = (Vec::new(), Vec::new(), HashMap::new());
        let groups = HopGroupSet::default();
        Self { interfaces, tables, hops, hop_of, groups, quiet: false, follower: None }
    }
}

impl View {
    /// A reader of the host whose tables are behind `descriptor`, in any process; it has room for
    /// `routes_max` routes.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if these are not the tables of such a host.
    pub fn attach(descriptor: impl AsFd, routes_max: u32) -> Result<Self, RegionError> {
        Tables::attach(descriptor, &Host::capacities(routes_max)).map(Self::of)
    }

    /// A reader of `tables`.
    pub fn of(tables: Tables) -> Self {
        let (interfaces, spare, hops) = (Vec::new(), Vec::new(), Vec::new());
        let sources = Sources::default();
        let mut view = Self { tables, seen: 0, generation: 0, interfaces, spare, hops, sources };
        view.refresh();
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interface, Route};
    use gatewright_packet::LinkIndex;
    use gatewright_tables::Prefix;
    use std::net::Ipv4Addr;

    const ROUTES_MAX: u32 = 100;

    /// A worker keeps the routes and interfaces of a control side that is gone, until the next one
    /// shows all of its own at once.
    #[test]
    fn a_worker_keeps_what_it_has_until_the_next_control_side_is_ready() {
        let via = |link, last| {
            let gateway = Ipv4Addr::new(192, 0, 2, last).into();
            Route::Via { link: LinkIndex(link), gateway }
        };
        let to = |last| Prefix::new(Ipv4Addr::new(10, 0, last, 0), 24).unwrap();
        let own = |link, mtu| Interface { link: LinkIndex(link), mtu, ..Interface::default() };
        let mut first = Host::shared(ROUTES_MAX, [1, 2]).unwrap();
        first.add_interface(own(1, 1500)).unwrap();
        first.add_route(to(1), via(1, 1)).unwrap();
        first.add_route(to(2), via(1, 2)).unwrap();
        let descriptor = first.descriptor().unwrap().try_clone_to_owned().unwrap();
        let mut view = View::attach(&descriptor, ROUTES_MAX).unwrap();
        assert!(matches!(Host::adopt(&descriptor, ROUTES_MAX), Err(RegionError::HasWriter)));
        drop(first);
        let mut next = Host::adopt(&descriptor, ROUTES_MAX).unwrap();
        next.add_interface(own(2, 1400)).unwrap();
        // Another next hop first: indices that routes name keep their meaning.
        next.add_route(to(3), via(2, 9)).unwrap();
        next.add_route(to(2), via(1, 2)).unwrap();
        let routes = |view: &View| [1, 2, 3].map(|last| view.route4(Ipv4Addr::new(10, 0, last, 7)));
        view.refresh();
        assert_eq!(routes(&view), [via(1, 1), via(1, 2), Route::None]);
        assert_eq!(view.interfaces(), [own(1, 1500)]);
        next.release();
        assert!(view.refresh());
        assert_eq!(routes(&view), [Route::None, via(1, 2), via(2, 9)]);
        assert_eq!(view.interfaces(), [own(2, 1400)]);
        next.remove_route(to(2));
        assert_eq!(routes(&view), [Route::None, Route::None, via(2, 9)]);
    }
}
