//! The planes of a gateway, and [`Gateway`], the type that embedders use.
//!
//! The *data plane* is a worker: a thread that owns the links, the slab and one graph, and moves
//! batches between them without a lock. The *control plane* is every other thread: it owns the
//! host (addresses, routes), the plan and the attachments, acts upon what layers learn, and answers
//! questions. They meet only in tables that one side writes and the other reads, and in commands
//! that the worker takes between two batches. The worker never waits for the control plane.
//!
//! ```no_run
//! use gatewright_planes::{Gateway, Setup};
//! use std::net::Ipv4Addr;
//!
//! let mut setup = Setup::new(1);
//! setup.link("lan", "eth0").address(Ipv4Addr::new(192, 0, 2, 1), 24);
//! setup.link("wan", "eth1").address(Ipv4Addr::new(198, 51, 100, 1), 24);
//! let gateway = Gateway::open(&setup)?;
//! std::thread::park();
//! # Ok::<(), gatewright_planes::GatewayError>(())
//! ```

pub mod api;
mod capture;
mod configured;
mod control;
mod crew;
mod difference;
mod door;
mod exchange;
mod gateway;
mod given_back;
mod handlers;
mod kernel;
mod messages;
pub mod metrics;
mod neighbours;
mod not_yet;
mod part;
mod recorder;
mod reload;
mod reopen;
mod routes;
mod setup;
mod shares;
mod sojourn;
mod start;
mod status;
mod tagged;
mod tcp_proxy;
mod trace;
mod udp_gateway;
mod worker;
mod workers;

pub use capture::{CaptureRequest, CaptureStream, Which};
pub use configured::{Attached, Configured, RunError, ServeControl};
pub use control::{Placement, Prepared};
pub use difference::Change;
pub use exchange::{Exchanged, ReopenedLink};
pub use gateway::{Gateway, GatewayError};
pub use given_back::give_back_start;
pub use kernel::KernelStatus;
pub use messages::{
    AttachedMessages, Counting, MessageCounts, MessageRecord, MessageRecords, ProgramHandlers,
};
pub use neighbours::NeighbourStatus;
pub use not_yet::not_in_this_version;
pub use part::{HandledRequests, Part, PartAnswer, PartHistogram, Told, Unable, Undo};
pub use reload::ReloadError;
pub use routes::{RouteOrder, RouteStatus, RouteTarget, network};
pub use setup::{DeviceSetup, LinkSetup, RouteTo, Setup, StaticRoute, WORKERS_MAX};
pub use sojourn::Sojourn;
pub use status::{LayerStatus, LinkStatus, QueueStatus, Status, WayStatus, WorkerStatus};
pub use tcp_proxy::{TcpProxy, TcpProxyCounters, TcpProxySetup};
pub use trace::{StepAnswer, TraceAnswer, TraceRequest};
pub use udp_gateway::{MergeLimit, Series, UdpGateway, UdpGatewayCounters, UdpGatewaySetup};
pub use worker::Pace;
