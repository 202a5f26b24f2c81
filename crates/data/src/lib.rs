//! The data plane: workers move packets between links.
//!
//! A *worker* owns links, a slab and one graph, and moves batches between them without a lock.
//! Several workers form a group: they divide flows among them. The control plane reaches them by a
//! [`Port`]: requests and answers as plain values, which a worker takes between two batches. A
//! worker never waits for the control plane.
//!
//! | port | workers |
//! |---|---|
//! | [`Workers`] | on threads, in real time |
//! | [`DataProcess`] | on threads of a process of its own |
//! | [`Simulator`] | on the caller's thread, in virtual time |
mod attachments;
mod captures;
mod clock;
mod closed;
mod driver_buckets;
mod error;
mod events;
mod front;
mod group;
mod link_counts;
mod neighbours;
mod next_hops;
mod open_capture;
mod plain;
mod plane;
mod port;
mod process;
mod reopen;
mod report_forwarder;
mod setup;
mod shares;
mod simulator;
mod start;
mod udp_gateway;
mod virtual_link;
mod waker;
mod worker;
mod workers;

pub use attachments::{HANDLER_TAKEN, HandlerNow};
pub use captures::{CaptureNumber, CaptureReaders};
pub use clock::{Clock, VirtualClock};
pub use error::DataError;
pub use events::EventQueue;
pub use group::WORKER_ITEMS;
pub use neighbours::{Forget, NeighbourUpdate};
pub use open_capture::{CaptureCloser, OpenCapture};
pub use plane::{DataPlane, PlanePort};
pub use port::{
    ANSWER_WITHIN, HandlerOrder, HandlerValue, KeptHandler, Port, PortAnswer, PortRequest,
    RequestNumber, StageNumber, TraceNumber, TraceOrder,
};
pub use process::{
    DataProcess, Downtime, FoundPlane, OpenLinks, ProcessCommand, ProcessEvent, ProcessPort,
    ProcessStarted, landlock_version, name_holders, process_version, serve,
};
pub use reopen::Reopen;
pub use report_forwarder::{ReportForwarder, ReportForwarderCounts, ReportForwarderSetup};
pub use setup::{DataSetup, DeviceSetup, WORKERS_MAX, WorkerLink};
pub use simulator::Simulator;
pub use start::{Opened, Started, start};
pub use udp_gateway::{
    FlowBalance, FlowBalanceCounts, FlowRelay, FlowRelayCounts, MergeLimit, Series,
    UDP_CLIENTS_MAX, UdpGateway, UdpGatewayCounts, UdpGatewaySetup, UdpTarget,
};
pub use waker::Waker;
pub use worker::Pace;
pub use workers::{LinkNow, ThreadPort, Workers};
