//! The planes of a gateway: [`Planes`] opens its links and moves their packets.
//!
//! The *data plane* is a worker: a thread that owns the links, the slab and one graph, and moves
//! batches between them without a lock. It is in this process, or in one of its own
//! ([`ProcessSetup`]) that outlives this one. The *control plane* is every other thread. It owns the host
//! (addresses, routes), the plan and the attachments, acts upon what layers learn, and answers
//! questions. They meet only in tables with one writing side, and in commands that the worker takes
//! between two batches. The worker never waits for the control plane.
//!
//! ```no_run
//! use gatewright_planes::{Planes, Setup};
//! use std::net::Ipv4Addr;
//!
//! let mut setup = Setup::new(1);
//! setup.link("lan", "eth0").address(Ipv4Addr::new(192, 0, 2, 1), 24);
//! setup.link("wan", "eth1").address(Ipv4Addr::new(198, 51, 100, 1), 24);
//! let gateway = Planes::open(&setup)?;
//! std::thread::park();
//! # Ok::<(), gatewright_planes::PlanesError>(())
//! ```

mod control;
mod cores;
mod drivers;
mod error;
mod exchange;
mod inherited;
mod kernel;
mod limits;
mod neighbours;
mod planes;
mod process;
mod routes;
mod setup;
mod start;
mod start_pages;
mod status;

pub use control::{Placement, Prepared};
pub use drivers::{DriverCount, NextHopStatus};
pub use error::PlanesError;
pub use exchange::{Exchanged, ReopenedLink};
pub use gatewright_data::{
    CaptureCloser, CaptureNumber, DataError, DeviceSetup, Downtime, FlowBalance, FlowBalanceCounts,
    FlowRelay, FlowRelayCounts, FoundPlane, HandlerNow, HandlerValue, MergeLimit, OpenCapture,
    Pace, ReportForwarder, ReportForwarderCounts, ReportForwarderSetup, Series, UDP_CLIENTS_MAX,
    UdpGateway, UdpGatewayCounts, UdpGatewaySetup, UdpTarget, WORKERS_MAX, landlock_version,
    name_holders, process_version,
};
pub use inherited::{InheritedSocket, inherited_sockets, keep_inherited_sockets};
pub use kernel::{KernelStatus, kernel_vlans};
pub use limits::limit_shortages;
pub use neighbours::NeighbourStatus;
pub use planes::{Detached, Planes, Tracing};
pub use process::serve_data_plane;
pub use routes::{CommandRoute, RouteHop, RouteOrder, RouteStatus, RouteTarget, network};
pub use setup::{
    LinkSetup, ProcessSetup, ReportRoute, RouteTo, Setup, StaticNeighbour, StaticRoute,
};
pub use start_pages::{SETTLED_AFTER, release_start_pages};
pub use status::{
    IcmpStatus, LayerStatus, LinkStatus, MeasuredTime, PlanesStatus, QueueStatus, Status,
    WayStatus, WorkerStatus, named_counters,
};
