//! The web interface of a running gateway.
//!
//! [`WebPart`] is a part of a gateway (`[web]` in a description): an HTTP/1.1 server with an API, one
//! stream of status and events, probes, metrics, and the page that is built into the program. The
//! answers are those of the control socket. It listens on loopback, at a Unix socket, or with TLS at any
//! address; nothing is sampled while nobody looks.

#![forbid(unsafe_code)]

mod access;
mod admission;
mod answer;
mod audit;
mod change_requests;
mod changes;
mod counters;
mod description;
#[doc(hidden)]
pub mod foreign;
mod history;
mod inspection;
mod mesh_trace;
mod openapi;
mod page;
mod part;
mod places;
mod precondition;
mod probes;
mod query;
mod reads;
mod reports;
mod resources;
mod routes;
mod server;
mod session;
mod site;
mod stream;
mod tap;
pub mod tokens;
mod trace;
mod translation;
mod turns;

pub use part::{WebError, WebPart, unusable_files};
