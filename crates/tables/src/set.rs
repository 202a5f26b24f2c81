//! The tables that every gateway has, in one region.

use crate::counters::{CounterSlots, CounterTable, CountersWriter};
use crate::down::DownShares;
use crate::driver_reports::DriverReports;
use crate::hop_groups::{HopGroups, HopGroupsWriter};
use crate::map::{Map, MapWriter};
use crate::memory::Words;
use crate::messages::{MessageReceiver, MessageSender};
use crate::records::{
    Address, Attachment, Entity, EntityPlan, EntityReports, Interface, Neighbour, NeighbourKey,
    NextHop, Published, Sender,
};
use crate::region::{
    CountersAt, DownSharesAt, HistogramsAt, HopGroupsAt, MapAt, Region, RegionError, RegionLayout,
    RegionOwner, RingsAt, RoutesAt, TableAt, WakersAt,
};
use crate::routes::{Routes, RoutesWriter};
use crate::sojourn::{WorkerHistogram, WorkerHistograms};
use crate::table::{Table, TableWriter};
use crate::wake::{WakeFlags, Wakers};
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
    /// Groups of next hops, 4 KiB each.
    pub hop_groups: u32,
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
    /// Devices that are associated over the gateway's own stack.
    pub entities: u32,
    /// Of these, devices whose reports the data plane converts.
    pub plans: u32,
}

impl Default for Capacities {
    /// A site's gateway: 64 links, 64 Ki routes of each family.
    fn default() -> Self {
        Self {
            interfaces: 64,
            addresses: 1024,
            hops: 4096,
            hop_groups: 256,
            neighbours: 8192,
            permanent: 1024,
            attachments: 256,
            routes4: 65_536,
            routes6: 65_536,
            workers: 16,
            counters: 32_768,
            entities: 4096,
            plans: 2048,
        }
    }
}

/// The positions of the tables.
struct Places {
    layout: RegionLayout,
    published: TableAt<Published>,
    interfaces: TableAt<Interface>,
    addresses: TableAt<Address>,
    hops: TableAt<NextHop>,
    hop_groups: HopGroupsAt,
    neighbours: MapAt<NeighbourKey, Neighbour>,
    permanent: MapAt<NeighbourKey, Neighbour>,
    attachments: TableAt<Attachment>,
    routes4: RoutesAt<Ipv4Addr>,
    routes6: RoutesAt<Ipv6Addr>,
    counters: CountersAt,
    wakers: WakersAt,
    control: WakersAt,
    sojourns: HistogramsAt,
    downs: DownSharesAt,
    events: RingsAt,
    requests: RingsAt,
    answers: RingsAt,
    captured: RingsAt,
    arrivals: RingsAt,
    departures: RingsAt,
    entities: MapAt<Sender, Entity>,
    plans: TableAt<EntityPlan>,
    reports: TableAt<EntityReports>,
}

/// Words of the ring of a worker's events: some thousand events.
const EVENT_WORDS: u32 = 16_384;

/// Words of the rings of requests and answers, which hold the largest of these several times.
const REQUEST_WORDS: u32 = 131_072;

/// Words of the ring of captured packets, and of each ring of datagrams: a mebibyte, some 700 packets
/// of full size.
const PACKET_WORDS: u32 = 262_144;

impl Places {
    fn new(capacities: &Capacities) -> Result<Self, RegionError> {
        let mut layout = RegionLayout::new();
        Ok(Self {
            published: layout.table("published", 1)?,
            interfaces: layout.table("interfaces", capacities.interfaces)?,
            addresses: layout.table("addresses", capacities.addresses)?,
            hops: layout.table("hops", capacities.hops)?,
            hop_groups: layout.hop_groups("hop-groups", capacities.hop_groups)?,
            neighbours: layout.map("neighbours", capacities.neighbours)?,
            permanent: layout.map("permanent", capacities.permanent)?,
            attachments: layout.table("attachments", capacities.attachments)?,
            routes4: layout.routes("routes4", capacities.routes4)?,
            routes6: layout.routes("routes6", capacities.routes6)?,
            counters: layout.counters("counters", capacities.workers, capacities.counters)?,
            wakers: layout.wakers("wakers", capacities.workers)?,
            control: layout.wakers("control", CONTROL_SLEEPERS)?,
            sojourns: layout.histograms("sojourns", capacities.workers)?,
            downs: layout.down_shares("downs", capacities.interfaces)?,
            events: layout.rings("events", capacities.workers, EVENT_WORDS)?,
            requests: layout.rings("requests", 1, REQUEST_WORDS)?,
            answers: layout.rings("answers", 1, REQUEST_WORDS)?,
            captured: layout.rings("captured", 1, PACKET_WORDS)?,
            arrivals: layout.rings("arrivals", 1, PACKET_WORDS)?,
            departures: layout.rings("departures", 1, PACKET_WORDS)?,
            entities: layout.map("entities", capacities.entities)?,
            plans: layout.table("plans", capacities.plans)?,
            reports: layout.table("reports", capacities.plans)?,
            layout,
        })
    }
}

impl Capacities {
    /// A number that tables of another kind, order or size most likely do not have: processes that
    /// have the same may share a region.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooLarge`] if there can be no such region.
    pub fn signature(&self) -> Result<u64, RegionError> {
        Ok(Places::new(self)?.layout.signature())
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
    /// The groups of next hops, by [`HopGroupIndex`](crate::HopGroupIndex).
    pub hop_groups: HopGroups,
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
    /// The workers' counters.
    pub counters: CounterTable,
    /// Sojourn times of packets, in nanoseconds, by worker.
    pub sojourns: WorkerHistograms,
    /// The associated devices.
    pub entities: EntityTables,
}

/// The AE table: the devices that are associated over the gateway's own stack, to read.
#[derive(Clone, Debug)]
pub struct EntityTables {
    /// The devices, by the address that they send from.
    pub entities: Map<Sender, Entity>,
    /// How their reports become requests.
    pub plans: Table<EntityPlan>,
    /// What the data plane has sent on; at the place of the plan.
    pub reports: Table<EntityReports>,
}

/// The AE table, to write: the control plane's.
#[derive(Debug)]
pub struct EntityWriters {
    /// The devices, by the address that they send from.
    pub entities: MapWriter<Sender, Entity>,
    /// How their reports become requests.
    pub plans: TableWriter<EntityPlan>,
    /// What the data plane has sent on, to read.
    pub reports: Table<EntityReports>,
    /// The devices whose reports drivers send on, if any may.
    pub drivers: Option<DriverReports>,
}

/// The data plane's side of the AE table.
#[derive(Clone, Debug)]
pub struct DataEntities {
    /// All of it, to read.
    pub readers: EntityTables,
    /// The devices whose reports drivers send on, if any may.
    pub drivers: Option<DriverReports>,
    reports: Words,
}

impl DataEntities {
    /// The writer of what the data plane has sent on for devices; there is one at a time.
    pub fn reports(&self) -> TableWriter<EntityReports> {
        TableWriter::new(self.reports.clone())
    }
}

impl EntityTables {
    fn new(region: &Region, places: &Places) -> Self {
        Self {
            entities: region.map(&places.entities),
            plans: region.table(&places.plans),
            reports: region.table(&places.reports),
        }
    }
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
            hop_groups: region.hop_groups(&places.hop_groups),
            neighbours: region.map(&places.neighbours),
            permanent: region.map(&places.permanent),
            attachments: region.table(&places.attachments),
            routes4: region.routes(&places.routes4),
            routes6: region.routes(&places.routes6),
            counters: region.counters(&places.counters),
            sojourns: region.histograms(&places.sojourns),
            entities: EntityTables::new(region, places),
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
    /// The groups of next hops, by [`HopGroupIndex`](crate::HopGroupIndex).
    pub hop_groups: HopGroupsWriter,
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
    /// The shares of links that workers have found down.
    pub downs: DownShares,
    /// The AE table; `None` once its writer has taken this.
    pub entities: Option<EntityWriters>,
    drivers: Option<DriverReports>,
    reports: Words,
    rings: Rings,
    sleepers: Wakers,
    readers: Tables,
    owner: RegionOwner,
}

/// The data plane's side of the tables: those that it writes, and its ends of the rings. There is
/// one such value at a time, in any process.
#[derive(Debug)]
pub struct DataTables {
    /// All tables, to read.
    pub readers: Tables,
    /// The neighbours on all links, which the first worker writes; `None` once it has taken this.
    pub neighbours: Option<MapWriter<NeighbourKey, Neighbour>>,
    /// Slots for what the workers count.
    pub counters: CounterSlots,
    /// The sleep flags of the workers.
    pub wakers: Wakers,
    /// The shares of links that workers have found down.
    pub downs: DownShares,
    reports: Words,
    rings: Rings,
    sleepers: Wakers,
}

impl DataTables {
    /// Attaches to the tables behind `descriptor` as their data plane, which no other may be at the
    /// same time. Counters begin anew; neighbours of an earlier data plane stay unless the tables
    /// are `fresh`, which spares looking through them.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if they are not such tables with these capacities.
    pub fn attach(
        descriptor: impl AsFd,
        capacities: &Capacities,
        fresh: bool,
    ) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        let region = Region::attach_writing(descriptor, &places.layout)?;
        let (words, capacity) = region.map_part(&places.neighbours);
        let writer = if fresh { MapWriter::new } else { MapWriter::adopt };
        Ok(Self {
            readers: Tables::new(&region, &places),
            neighbours: Some(writer(words, capacity)),
            counters: region.counters_writer(&places.counters).slots(),
            wakers: region.wakers(&places.wakers),
            downs: region.down_shares(&places.downs),
            reports: region.table_part(&places.reports),
            rings: Rings::new(&region, &places),
            sleepers: region.wakers(&places.control),
        })
    }

    /// The data plane's side of the AE table.
    pub fn entities(&self) -> DataEntities {
        DataEntities {
            readers: self.readers.entities.clone(),
            drivers: None,
            reports: self.reports.clone(),
        }
    }

    /// The histogram of a worker's packets.
    pub fn sojourn(&self, worker: usize) -> WorkerHistogram {
        // Without one in the region there is no room for the worker's counters either.
        self.readers.sojourns.of(worker).unwrap_or_default()
    }

    /// The sending end of a worker's events.
    pub fn events(&self, worker: usize) -> MessageSender {
        MessageSender::new(self.rings.events(worker))
    }

    /// The receiving end of the requests to the data plane.
    pub fn requests(&self) -> MessageReceiver {
        MessageReceiver::new(self.rings.requests.clone())
    }

    /// The sending end of the data plane's answers.
    pub fn answers(&self) -> MessageSender {
        MessageSender::new(self.rings.answers.clone())
    }

    /// The sending end of captured packets.
    pub fn captured(&self) -> MessageSender {
        MessageSender::new(self.rings.captured.clone())
    }

    /// The sending end of datagrams for sockets of the control plane.
    pub fn arrivals(&self) -> MessageSender {
        MessageSender::new(self.rings.arrivals.clone())
    }

    /// The receiving end of datagrams of sockets of the control plane.
    pub fn departures(&self) -> MessageReceiver {
        MessageReceiver::new(self.rings.departures.clone())
    }

    /// The sleep flags of the reader of the workers' events.
    pub fn event_reader(&self) -> WakeFlags {
        self.sleepers.of(EVENT_READER).unwrap_or_default()
    }

    /// The sleep flags of the thread that serves requests.
    pub fn server(&self) -> WakeFlags {
        self.sleepers.of(SERVER).unwrap_or_default()
    }

    /// The sleep flags of the reader of answers.
    pub fn answer_reader(&self) -> WakeFlags {
        self.sleepers.of(ANSWER_READER).unwrap_or_default()
    }
}

/// The rings of messages between the planes.
#[derive(Clone, Debug)]
struct Rings {
    events: Vec<Words>,
    requests: Words,
    answers: Words,
    captured: Words,
    arrivals: Words,
    departures: Words,
}

impl Rings {
    fn new(region: &Region, places: &Places) -> Self {
        let one = |at| region.rings(at).pop().unwrap_or_else(|| Words::zeroed(0));
        Self {
            events: region.rings(&places.events),
            requests: one(&places.requests),
            answers: one(&places.answers),
            captured: one(&places.captured),
            arrivals: one(&places.arrivals),
            departures: one(&places.departures),
        }
    }

    /// The ring of a worker; one without room if the region has no such worker.
    fn events(&self, worker: usize) -> Words {
        self.events.get(worker).cloned().unwrap_or_else(|| Words::zeroed(0))
    }
}

/// Sleeping threads other than the workers.
const CONTROL_SLEEPERS: u32 = 3;
const EVENT_READER: usize = 0;
const SERVER: usize = 1;
const ANSWER_READER: usize = 2;

impl TablesWriter {
    /// Empty tables in this process's own memory. `seed` is drawn at random: it keeps outsiders
    /// from choosing neighbours that collide.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if they are too large, or the system has no address space for them.
    pub fn in_memory(capacities: &Capacities, seed: [u64; 2]) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Self::new(RegionOwner::in_memory(&places.layout, seed)?, &places, true)
    }

    /// Empty tables behind a descriptor, for other processes to attach to.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the system refuses the memory.
    pub fn create(capacities: &Capacities, seed: [u64; 2]) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Self::new(RegionOwner::create(&places.layout, seed)?, &places, true)
    }

    /// Becomes the writer of the tables behind `descriptor`, whose writer has ended. Records stay;
    /// routes stay in force for readers until the first change, and begin empty here, so follow
    /// with [`RoutesWriter::replace`].
    ///
    /// # Errors
    ///
    /// [`RegionError`] if they are not such tables, or have a writer.
    pub fn adopt(descriptor: impl AsFd, capacities: &Capacities) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        Self::new(RegionOwner::adopt(descriptor, &places.layout)?, &places, true)
    }

    /// As [`Self::adopt`], beside a data plane that runs: its tables stay its own. Changes to
    /// routes are held back until [`Self::release_routes`].
    ///
    /// # Errors
    ///
    /// As [`Self::adopt`].
    pub fn adopt_beside(
        descriptor: impl AsFd,
        capacities: &Capacities,
    ) -> Result<Self, RegionError> {
        let places = Places::new(capacities)?;
        let mut writer =
            Self::new(RegionOwner::adopt(descriptor, &places.layout)?, &places, false)?;
        writer.routes4.hold();
        writer.routes6.hold();
        Ok(writer)
    }

    /// Shows readers the routes that were set since [`Self::adopt_beside`].
    pub fn release_routes(&mut self) {
        self.routes4.release();
        self.routes6.release();
    }

    fn new(
        mut owner: RegionOwner,
        places: &Places,
        with_neighbours: bool,
    ) -> Result<Self, RegionError> {
        let neighbours = with_neighbours.then(|| owner.map(&places.neighbours)).transpose()?;
        let entities = EntityWriters {
            entities: owner.map(&places.entities)?,
            plans: owner.table(&places.plans)?,
            reports: owner.region().table(&places.reports),
            drivers: None,
        };
        Ok(Self {
            entities: Some(entities),
            drivers: None,
            reports: owner.region().table_part(&places.reports),
            readers: Tables::new(&owner.region(), places),
            published: owner.table(&places.published)?,
            interfaces: owner.table(&places.interfaces)?,
            addresses: owner.table(&places.addresses)?,
            hops: owner.table(&places.hops)?,
            hop_groups: owner.hop_groups(&places.hop_groups)?,
            neighbours,
            permanent: owner.map(&places.permanent)?,
            attachments: owner.table(&places.attachments)?,
            routes4: owner.routes(&places.routes4)?,
            routes6: owner.routes(&places.routes6)?,
            counters: owner.counters(&places.counters)?,
            wakers: owner.wakers(&places.wakers),
            downs: owner.region().down_shares(&places.downs),
            rings: Rings::new(&owner.region(), places),
            sleepers: owner.wakers(&places.control),
            owner,
        })
    }

    /// The data plane's side, for a data plane in this process.
    pub fn data(&mut self) -> DataTables {
        DataTables {
            readers: self.readers.clone(),
            neighbours: self.neighbours.take(),
            counters: self.counters.slots(),
            wakers: self.wakers.clone(),
            downs: self.downs.clone(),
            reports: self.reports.clone(),
            rings: self.rings.clone(),
            sleepers: self.sleepers.clone(),
        }
    }

    /// Has drivers send on reports of devices in this memory.
    pub fn set_drivers(&mut self, drivers: &DriverReports) {
        if let Some(entities) = &mut self.entities {
            entities.drivers = Some(drivers.clone());
        }
        self.drivers = Some(drivers.clone());
    }

    /// The data plane's side of the AE table, for a data plane in this process.
    pub fn data_entities(&self) -> DataEntities {
        DataEntities {
            readers: self.readers.entities.clone(),
            drivers: self.drivers.clone(),
            reports: self.reports.clone(),
        }
    }

    /// The receiving ends of the events of the first `workers` workers.
    pub fn events(&self, workers: usize) -> Vec<MessageReceiver> {
        (0..workers).map(|worker| MessageReceiver::new(self.rings.events(worker))).collect()
    }

    /// The sending end of the requests to the data plane.
    pub fn requests(&self) -> MessageSender {
        MessageSender::new(self.rings.requests.clone())
    }

    /// The receiving end of the data plane's answers.
    pub fn answers(&self) -> MessageReceiver {
        MessageReceiver::new(self.rings.answers.clone())
    }

    /// The receiving end of captured packets.
    pub fn captured(&self) -> MessageReceiver {
        MessageReceiver::new(self.rings.captured.clone())
    }

    /// The receiving end of datagrams for sockets of the control plane.
    pub fn arrivals(&self) -> MessageReceiver {
        MessageReceiver::new(self.rings.arrivals.clone())
    }

    /// The sending end of datagrams of sockets of the control plane.
    pub fn departures(&self) -> MessageSender {
        MessageSender::new(self.rings.departures.clone())
    }

    /// The sleep flags of whoever reads the workers' events.
    pub fn event_reader(&self) -> WakeFlags {
        self.sleepers.of(EVENT_READER).unwrap_or_default()
    }

    /// The sleep flags of whoever serves requests.
    pub fn server(&self) -> WakeFlags {
        self.sleepers.of(SERVER).unwrap_or_default()
    }

    /// The sleep flags of whoever reads answers.
    pub fn answer_reader(&self) -> WakeFlags {
        self.sleepers.of(ANSWER_READER).unwrap_or_default()
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
