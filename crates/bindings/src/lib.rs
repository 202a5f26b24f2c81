//! Sockets for the CSE: the HTTP (TS-0009), CoAP (TS-0008), MQTT (TS-0010) and WebSocket (TS-0020)
//! bindings, each as server and client, and the engine that connects CSE, store and network.
//!
//! [`cse::start`] runs a CSE on the current tokio runtime. [`client::Client`] is a client for
//! command lines and tests, and [`listen::Notifications`] receives its notifications.
//! [`devices::start`] passes health devices' reports to the CSE, and [`agents::run`] is a simulated
//! device.
#![forbid(unsafe_code)]

pub mod accept;
pub mod agents;
mod alarms;
mod answers;
mod calls;
pub mod client;
mod coap;
pub mod cse;
mod datagram_socket;
mod device_now;
pub mod devices;
mod engine;
pub mod http;
mod keyring;
pub mod listen;
pub mod listeners;
mod local_route;
mod mqtt;
mod observing;
mod outgoing;
mod party;
mod points_of_access;
mod queue_set;
mod quota;
mod reach;
pub mod services;
pub mod tasks;
pub mod tls;
mod turns;
mod ws;

pub use device_now::DeviceNow;
pub use engine::Engine;
