//! Versioned plain records in one region: one writer, many lock-free readers.
//!
//! Here the control plane and the data plane meet. Shared state (interfaces, neighbours, routes,
//! attachments) consists of records of 32-bit words at an offset, never a pointer. So both sides
//! may be threads or processes, of different word sizes.
//!
//! - [`RegionLayout`] says which tables a region has; [`RegionOwner`] makes one and hands each table to
//!   its one writer; [`Region`] attaches to one, read-only.
//! - [`Table`]: an array of records, found by place. [`Map`]: records found by a key.
//! - [`RoutesWriter`] and [`Routes`]: longest-prefix match for both families.
//! - [`HopGroups`]: next hops of which each flow keeps one.
//! - [`LabelTable`] and [`LabelTableWriter`]: labels and paths with their next hops, which programs
//!   in the kernel read, too.
//! - [`DriverReports`]: devices whose reports drivers send on, with their plans.
//! - [`CounterSlots`] and [`CounterTable`]: counters of workers, by name; each is a number that its
//!   one writer increments without a lock.
//! - [`Wakers`]: the flags by which sleeping workers are woken.
//! - [`MessageSender`] and [`MessageReceiver`]: a bounded ring of plain messages.
//! - [`WorkerHistogram`]: a histogram of each worker. [`DownShares`]: the shares of links that are
//!   down.
//! - [`Tables`], [`TablesWriter`] and [`DataTables`]: the tables that every gateway has, with the
//!   kinds of their [records], to read, and as the control plane and the data plane write them.
//!
//! # What a reader can rely on
//!
//! A record is read whole, from one write, or not at all: [`ReadError::Unsettled`] after a bounded
//! number of tries. A writer that dies at any instant leaves every other record readable and the
//! last linked routes in force; the next writer repairs the rest ([`RegionOwner::adopt`]). Whatever
//! the words contain, a reader neither panics nor reads outside of the region.
//!
//! # Tests with every interleaving
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gatewright-tables --release --lib` checks with loom all
//! orders in which a reader can see the writer's stores.
#![cfg_attr(loom, allow(dead_code, reason = "loom goes through the parts that wait for nobody"))]

#[cfg(not(loom))]
mod counters;
mod down;
#[cfg(not(loom))]
mod driver_plan;
#[cfg(not(loom))]
mod driver_reports;
mod hop_groups;
#[cfg(all(test, loom))]
mod interleavings;
#[cfg(not(loom))]
mod labels;
mod map;
#[cfg(not(loom))]
mod mapping;
mod memory;
mod messages;
mod pack;
mod record;
pub mod records;
#[cfg(not(loom))]
mod region;
mod routes;
#[cfg(not(loom))]
mod set;
#[cfg(not(loom))]
mod sojourn;
mod sync;
mod table;
mod wake;

#[cfg(not(loom))]
pub use counters::{
    Counted, CounterName, CounterOwner, CounterSlot, CounterSlots, CounterSums, CounterTable,
    CountersFull, CountersWriter,
};
pub use down::DownShares;
#[cfg(not(loom))]
pub use driver_plan::{
    DRIVER_COMPARED_MAX, DRIVER_EXPONENT_MAX, DRIVER_PIECE_OCTETS_MAX, DRIVER_PIECES_MAX,
    DRIVER_REPORT_MAX, DRIVER_TEXT_MAX, DriverPiece, DriverPieceKind, DriverPlan,
};
#[cfg(not(loom))]
pub use driver_reports::{DRIVER_PORTS, DriverDevice, DriverReports, DriverRoute, HeldDevice};
pub use hop_groups::{
    BUCKETS, Flow, GROUP_MEMBERS_MAX, GroupMember, HopGroupIndex, HopGroups, HopGroupsWriter,
    spread,
};
#[cfg(not(loom))]
pub use labels::{
    LABEL_CLASSES, LABEL_LINKS_MAX, LABEL_PATHS_MAX, LABEL_TTL, LABELS_MAX, LabelAreas, LabelHop,
    LabelHops, LabelLink, LabelTable, LabelTableError, LabelTableWriter, NoLabelHop, PathKey,
    label_class,
};
pub use map::{Map, MapFull, MapWriter};
#[cfg(not(loom))]
pub use memory::SharedWords;
pub use messages::{MessageReceiver, MessageSender, RingFull};
pub use pack::{Packer, Unpacker};
pub use record::{ReadError, Record, RecordWords};
#[cfg(not(loom))]
pub use region::{
    CountersAt, DownSharesAt, HistogramsAt, HopGroupsAt, MapAt, Region, RegionError, RegionLayout,
    RegionOwner, RingsAt, RoutesAt, TableAt, WakersAt,
};
pub use routes::{
    Family, HopIndex, Miss, Prefix, PrefixError, PrefixKey, Routes, RoutesFull, RoutesStats,
    RoutesWriter,
};
#[cfg(not(loom))]
pub use set::{
    Capacities, DataEntities, DataTables, EntityTables, EntityWriters, Tables, TablesWriter,
};
#[cfg(not(loom))]
pub use sojourn::{WorkerHistogram, WorkerHistograms};
pub use table::{Entry, Table, TableFull, TableWriter};
pub use wake::{WakeFlags, Wakers};
