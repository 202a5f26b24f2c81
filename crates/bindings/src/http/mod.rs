//! HTTP binding (TS-0009): primitives as HTTP messages, server and client.

mod codes;
pub(crate) mod connection;
mod direct;
pub(crate) mod message;
pub(crate) mod pipeline;
mod plain_url;
mod reply;
pub(crate) mod send;
pub(crate) mod server;
mod whole;

pub use codes::http_status;
pub use connection::{Endings, Patience, serve_http1};
