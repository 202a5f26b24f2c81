//! Label-switched mesh: hosts on links of any kind form one network, in which packets follow label
//! switched paths (MPLS, RFC 3032) that are found on demand.
//!
//! - [`message`]: the messages of the protocol, octets to values and back. Their layouts are generated
//!   from `docs/mesh-protocol.md` ([`layout`]).
//!
//! Nothing here reads a clock, opens a socket or draws randomness.
#![forbid(unsafe_code)]

mod identity;
pub mod layout;
pub mod message;

pub use identity::{NodeId, PathId, Reason};
