//! A description that runs.
//!
//! [`Configured`] opens what a description says of the planes, attaches its handlers, starts its
//! proxies, and takes other descriptions while it runs. What runs beside the planes is a [`Part`] of
//! it: it tells what it does and takes its share of a reload. [`api`] is the control socket,
//! [`metrics`] the page that a collector reads.

#![forbid(unsafe_code)]

pub mod api;
mod capture;
mod configured;
mod control;
mod difference;
mod gateway;
mod handlers;
mod listener;
mod messages;
pub mod metrics;
mod not_yet;
mod part;
mod programs;
mod recorder;
mod reload;
mod services;
mod settings;
mod tcp_proxy;
mod trace;

pub use capture::{CaptureRequest, CaptureStream, Which};
pub use configured::{Attached, Configured, RunError, ServeControl};
pub use difference::Change;
pub use gateway::{Gateway, Say, StartError, StartOptions};
/// What embedders describe in code.
pub use gatewright_planes::{LinkSetup, Planes, PlanesError, Setup};
pub use messages::{
    AttachedMessages, Counting, MessageCounts, MessageRecord, MessageRecords, ProgramHandlers,
};
pub use not_yet::not_in_this_version;
pub use part::{HandledRequests, Part, PartAnswer, PartHistogram, Told, Unable, Undo};
pub use programs::{ProgramError, beside, import, post, strangers};
pub use reload::ReloadError;
pub use settings::Settings;
pub use tcp_proxy::{TcpProxy, TcpProxyCounters, TcpProxySetup};
pub use trace::{StepAnswer, TraceAnswer, TraceRequest};
