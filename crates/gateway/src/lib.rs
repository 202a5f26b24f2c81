//! A running gateway from a description.
//!
//! [`Gateway`] runs a description: links, handlers, proxies, mesh, control socket and metrics page,
//! and the components of its [`Assembly`], as gateway programs, devices and service entity; each is a
//! [`Part`](gatewright_part::Part). It takes new descriptions while it runs, each as a whole or not at
//! all. [`api`] is the control socket,
//! [`metrics`] the page that a collector reads.

#![forbid(unsafe_code)]

pub mod api;
mod assembly;
mod balance;
mod by_command;
mod capture;
mod capture_paths;
mod clients;
mod control;
mod delay_models;
mod description_files;
mod descriptor_need;
mod difference;
pub mod doctor;
mod error;
pub mod events;
mod gateway;
mod handlers;
mod hops;
mod host_interface;
mod http_host;
mod last_good;
mod links;
mod listener;
mod messages;
pub mod metrics;
mod named_files;
mod recorder;
mod reload;
mod replaced_file;
mod report_forwarder;
pub mod socket_path;
mod status;
mod tcp_proxy;
mod texts;
mod trace;
mod udp_gateways;
mod which;

pub use assembly::{Assembly, GatewayPrograms, ServedPart, StartPrograms, StartServices};
pub use balance::{BalanceStatus, BalancedRelayStatus, Balancer, LiveService, RelayReachability};
pub use capture::{CaptureRequest, CaptureStream, TapEnd, TappedPacket};
pub use delay_models::RelayDelay;
pub use description_files::{DescriptionFileError, description_files, further_files, with_strays};
pub use error::{NOT_IN_THIS_PROGRAM, RunError, UNAVAILABLE, exit_code_of};
pub use events::{EventLog, LogOptions};
pub use gateway::{
    DataPlaneProgram, Gateway, ProgramExec, Say, StartError, StartOptions, credentials_folder,
};
pub use gatewright_part::{Change, ENDED, LogEvent, LogLevel, Part, open_file};
/// The setup that embedders write in code.
pub use gatewright_planes::{LinkSetup, Planes, PlanesError, Setup};
pub use hops::HopDelay;
pub use http_host::names_loopback;
pub use last_good::DescriptionCause;
pub use links::{Links, unfit_devices};
pub use messages::{
    ConversationAnswer, ConversationStepAnswer, MessageCounting, MessageCounts, MessageRecord,
    MessageRecords, MessageTraceRequest, PeerAction,
};
pub use named_files::{unusable_file, unusable_file_at, unusable_mesh_files};
pub use reload::ReloadError;
pub use replaced_file::ReplacedFile;
pub use tcp_proxy::{ConnectionTarget, TcpProxy, TcpProxyCounters, TcpProxySetup};
pub use texts::{beside, read_file, read_text};
pub use trace::{StepAnswer, TraceAnswer, TraceRequest, hexadecimal, patience};
pub use which::Which;
