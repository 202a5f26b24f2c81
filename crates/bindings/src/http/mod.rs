//! The HTTP binding (TS-0009): how primitives are written as HTTP messages, both ways.

mod codes;
pub(crate) mod connection;
pub(crate) mod message;
pub(crate) mod send;
pub(crate) mod server;

pub use codes::http_status;
