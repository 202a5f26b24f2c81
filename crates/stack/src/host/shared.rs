//! A host whose tables other processes read.

use super::{
    ADDRESSES_MAX, HOPS_MAX, Host, HostError, INTERFACES_MAX, NEIGHBOURS_MAX, View,
    sources::Sources,
};
use gatewright_tables::{Capacities, RegionError, Tables, TablesWriter};
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

    /// The descriptor of its tables, for other processes; none unless it is [`Self::shared`].
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tables.descriptor()
    }

    /// A host without interfaces over tables that are empty.
    pub(super) fn over(tables: TablesWriter) -> Self {
        let (interfaces, hops, hop_of) = (Vec::new(), Vec::new(), HashMap::new());
        Self { interfaces, tables, hops, hop_of, quiet: false }
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
    pub(super) fn of(tables: Tables) -> Self {
        let (interfaces, spare, hops) = (Vec::new(), Vec::new(), Vec::new());
        let sources = Sources::default();
        let mut view = Self { tables, seen: 0, generation: 0, interfaces, spare, hops, sources };
        view.refresh();
        view
    }
}
