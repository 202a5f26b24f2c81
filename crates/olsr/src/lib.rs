//! A router of OLSR (RFC 3626) on this machine.
//!
//! [`OlsrRouter`] opens a socket at UDP port 698 on each interface, runs the machine of
//! `gatewright-mesh` over them, and writes its routes into the kernel's main table. They carry a
//! protocol number of their own ([`ROUTE_PROTOCOL`]): what a router that was killed has left is
//! removed at the next start, and nobody else's routes are touched.
//!
//! It forwards nothing itself: `net.ipv4.ip_forward` is the host's to set.
#![forbid(unsafe_code)]

mod interface;
mod kernel;
mod router;

pub use gatewright_mesh::olsr::message::OlsrNetwork;
pub use gatewright_mesh::olsr::{OlsrCounters, OlsrRoute};
pub use kernel::ROUTE_PROTOCOL;
pub use router::{OlsrRouter, OlsrRouterError, OlsrSetup};
