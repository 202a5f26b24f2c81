//! OLSR for IPv4 (RFC 3626): proactive routing by link state, flooded by multipoint relays.
//!
//! - [`OlsrNode`]: a router's protocol without I/O. [`OlsrNode::handle`] takes an input,
//!   [`OlsrNode::poll_output`] gives packets to send and changes of routes,
//!   [`OlsrNode::poll_timeout`] when to call again.
//! - [`message`]: packets and messages, octets to values and back.
//!
//! Routes are those of RFC 3626 §10: shortest in hops. Not here: IPv6, TC redundancy above 0, MPR
//! coverage above 1, and authentication, which the standard leaves to extensions: whoever can send on a
//! link can change routes. In a mesh the messages that carry packets are authenticated.

mod edge;
pub mod message;
mod node;
mod relays;
mod routes;
mod sets;

pub use edge::{OlsrCounters, OlsrInput, OlsrOutput, OlsrRoute, OlsrSettings};
pub use node::OlsrNode;
