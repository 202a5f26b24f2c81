//! Sockets for the CSE: the HTTP binding (TS-0009) as server and as client, and the engine that
//! ties the machine, the store and the network together.
//!
//! [`cse::start`] runs a CSE on the tokio runtime it is called on; [`client::Client`] is the
//! other side, for command lines and tests, and [`listen::Notifications`] is where its
//! notifications arrive.
#![forbid(unsafe_code)]

pub mod client;
pub mod cse;
mod engine;
pub mod http;
pub mod listen;
pub mod tls;

pub use engine::Engine;
