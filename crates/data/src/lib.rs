//! The data plane: workers move packets between links.
//!
//! A *worker* is a thread that owns links, a slab and one graph, and moves batches between them
//! without a lock. Several workers form a group: they divide flows among them. The control plane
//! ([`Workers`]) starts and stops them and sends them [`Command`]s, which a worker takes between
//! two batches. A worker never waits for the control plane.
#![forbid(unsafe_code)]

mod closed;
mod error;
mod group;
mod neighbours;
mod reopen;
mod setup;
mod shares;
mod sojourn;
mod start;
mod virtual_link;
mod worker;
mod workers;

pub use error::DataError;
pub use group::Handled;
pub use neighbours::{Forget, NeighbourUpdate};
pub use reopen::Reopen;
pub use setup::{DataSetup, DeviceSetup, WORKERS_MAX, WorkerLink};
pub use shares::Downs;
pub use sojourn::Sojourn;
pub use start::{Opened, Started, start};
pub use worker::{Command, NewDevice, Pace, TraceOrder, Waker};
pub use workers::{ANSWER_WITHIN, LinkNow, ShareNow, Workers};
