//! The tables that every gateway has, in one region.

use crate::counters::{CounterTable, CountersWriter};
use crate::map::{Map, MapWriter};
use crate::records::{Address, Attachment, Interface, Neighbour, NeighbourKey, NextHop, Published};
use crate::region::{
    CountersAt, Layout, MapAt, Region, RegionError, RegionOwner, RoutesAt, TableAt, WakersAt,
};
use crate::routes::{Routes, RoutesWriter};
use crate::table::{Table, TableWriter};
use crate::wake::Wakers;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

/// The capacities of the tables in records. They cost address space, not memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capacities {
    /// Links.
    pub interfaces: u32,
    /// Own addresses, over all links.
    pub addresses: u32,
    /// Next hops.
    pub hops: u32,
    /// Neighbours, over all links; must outlast a scan of a network.
    pub neighbours: u32,
    /// Neighbours that are set, not learnt.
    pub permanent: u32,
    /// Handlers attached.
    pub attachments: u32,
    /// IPv4 routes.
    pub routes4: u32,
    /// IPv6 routes.
    pub routes6: u32,
    /// Workers that count.
    pub workers: u32,
    /// Counters of each worker.
    pub counters: u32,
}

impl Default for Capacities {
    /// A site's gateway: 64 links, 64 Ki routes of each family.
    fn default() -> Self {
        Self {
            interfaces: 64,
            addresses: 1024,
            hops: 4096,
            neighbours: 8192,
            permanent: 1024,
            attachments: 256,
            routes4: 65_536,
            routes6: 65_536,
            workers: 16,
            counters: 32_768,
        }
    }
}

/// The positions of the tables.
struct Places {
    layout: Layout,
    published: TableAt<Published>,
    interfaces: TableAt<Interface>,
    addresses: TableAt<Address>,
    hops: TableAt<NextHop>,
    neighbours: MapAt<NeighbourKey, Neighbour>,
    permanent: MapAt<NeighbourKey, Neighbour>,
    attachments: TableAt<Attachment>,
    routes4: RoutesAt<Ipv4Addr>,
    routes6: RoutesAt<Ipv6Addr>,
    counters: CountersAt,
    wakers: WakersAt,
}

impl Places {
    fn new(capacities: &Capacities) -> Result<Self, RegionError> {
        let mut layout = Layout::new();
        Ok(Self {
            published: layout.table("published", 1)?,
            interfaces: layout.table("interfaces", capacities.interfaces)?,
            addresses: layout.table("addresses", capacities.addresses)?,
            hops: layout.table("hops", capacities.hops)?,
            neighbours: layout.map("neighbours", capacities.neighbours)?,
            permanent: layout.map("permanent", capacities.permanent)?,
            attachments: layout.table("attachments", capacities.attachments)?,
            routes4: layout.routes("routes4", capacities.routes4)?,
            routes6: layout.routes("routes6", capacities.routes6)?,
            counters: layout.counters("counters", capacities.workers, capacities.counters)?,
            wakers: layout.wakers("wakers", capacities.workers)?,
            layout,
        })
    }
}

/// The gateway's tables, to read, from any thread or process.
#[derive(Clone, Debug)]
pub struct Tables {
    /// At place 0 whether interfaces and addresses are being written.
    pub published: Table<Published>,
    /// The links, by index.
    pub interfaces: Table<Interface>,
    /// Our own addresses.
    pub addresses: Table<Address>,
    /// The next hops, by [`HopIndex`](crate::HopIndex).
    pub hops: Table<NextHop>,
    /// The neighbours on all links, as the data plane knows them.
    pub neighbours: Map<NeighbourKey, Neighbour>,
    /// The neighbours that were set, which the data plane neither solicits nor forgets.
    pub permanent: Map<NeighbourKey, Neighbour>,
    /// The handlers to be attached.
    pub attachments: Table<Attachment>,
    /// The IPv4 routes.
    pub routes4: Routes<Ipv4Addr>,
    /// The IPv6 routes.
    pub routes6: Routes<Ipv6Addr>,
    /// What the workers count.
    pub counters: CounterTable,
}

impl Tables {
    /// Attaches to the tables behind `descriptor`, read-only.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if they are not such tables with these capacities.
    pub fn attach(descriptor: impl AsFd, capacities: &Capacities) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Ok(Self::new(&Region::attach(descriptor, &places.layout)?, &places))
    }

    /// The sleep flags of the workers, of the tables behind `descriptor`, to be changed.
    ///
    /// # Errors
    ///
    /// As [`Self::attach`].
    pub fn attach_wakers(
        descriptor: impl AsFd,
        capacities: &Capacities,
    ) -> Result<Wakers, RegionError> {
        let places = Places::new(capacities)?;
        Region::attach_wakers(descriptor, &places.layout, &places.wakers)
    }

    fn new(region: &Region, places: &Places) -> Self {
        Self {
            published: region.table(&places.published),
            interfaces: region.table(&places.interfaces),
            addresses: region.table(&places.addresses),
            hops: region.table(&places.hops),
            neighbours: region.map(&places.neighbours),
            permanent: region.map(&places.permanent),
            attachments: region.table(&places.attachments),
            routes4: region.routes(&places.routes4),
            routes6: region.routes(&places.routes6),
            counters: region.counters(&places.counters),
        }
    }
}

/// The gateway's tables, to write: there is only one such value. The control plane has it, except
/// the neighbours and the counters, whose writer is the data plane.
#[derive(Debug)]
pub struct TablesWriter {
    /// At place 0 whether interfaces and addresses are being written.
    pub published: TableWriter<Published>,
    /// The links, by index.
    pub interfaces: TableWriter<Interface>,
    /// Our own addresses.
    pub addresses: TableWriter<Address>,
    /// The next hops, by [`HopIndex`](crate::HopIndex).
    pub hops: TableWriter<NextHop>,
    /// The neighbours on all links, as the data plane knows them; `None` once it has taken this.
    pub neighbours: Option<MapWriter<NeighbourKey, Neighbour>>,
    /// The neighbours that were set, which the data plane neither solicits nor forgets.
    pub permanent: MapWriter<NeighbourKey, Neighbour>,
    /// The handlers to be attached.
    pub attachments: TableWriter<Attachment>,
    /// The IPv4 routes.
    pub routes4: RoutesWriter<Ipv4Addr>,
    /// The IPv6 routes.
    pub routes6: RoutesWriter<Ipv6Addr>,
    /// What the workers count.
    pub counters: CountersWriter,
    /// The sleep flags of the workers.
    pub wakers: Wakers,
    readers: Tables,
    owner: RegionOwner,
}

impl TablesWriter {
    /// Empty tables in this process's own memory. `seed` is drawn at random: it keeps outsiders
    /// from choosing neighbours that collide.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if they are too large, or the system has no address space for them.
    pub fn in_memory(capacities: &Capacities, seed: [u64; 2]) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Self::new(RegionOwner::in_memory(&places.layout, seed)?, &places)
    }

    /// Empty tables behind a descriptor, for other processes to attach to.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the system refuses the memory.
    pub fn create(capacities: &Capacities, seed: [u64; 2]) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Self::new(RegionOwner::create(&places.layout, seed)?, &places)
    }

    /// Takes over the tables behind `descriptor`, whose writer is gone. Records stay; routes stay
    /// in force for readers until the first change, and begin empty here, so follow with
    /// [`RoutesWriter::replace`].
    ///
    /// # Errors
    ///
    /// [`RegionError`] if they are not such tables, or have a writer.
    pub fn adopt(descriptor: impl AsFd, capacities: &Capacities) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Self::new(RegionOwner::adopt(descriptor, &places.layout)?, &places)
    }

    fn new(mut owner: RegionOwner, places: &Places) -> Result<Self, RegionError> {
        Ok(Self {
            readers: Tables::new(&owner.region(), places),
            published: owner.table(&places.published)?,
            interfaces: owner.table(&places.interfaces)?,
            addresses: owner.table(&places.addresses)?,
            hops: owner.table(&places.hops)?,
            neighbours: Some(owner.map(&places.neighbours)?),
            permanent: owner.map(&places.permanent)?,
            attachments: owner.table(&places.attachments)?,
            routes4: owner.routes(&places.routes4)?,
            routes6: owner.routes(&places.routes6)?,
            counters: owner.counters(&places.counters)?,
            wakers: owner.wakers(&places.wakers),
            owner,
        })
    }

    /// The same tables, to read, for any thread.
    pub fn readers(&self) -> Tables {
        self.readers.clone()
    }

    /// The descriptor to give to other processes; none for tables in this process's memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.owner.descriptor()
    }
}
