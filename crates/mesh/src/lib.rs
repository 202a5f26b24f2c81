//! Label-switched mesh: hosts on links of any kind form one network, in which packets follow label
//! switched paths (MPLS, RFC 3032) that are found on demand.
//!
//! - [`MeshNode`]: a node's protocol without I/O. [`MeshNode::handle`] takes an input,
//!   [`MeshNode::poll_output`] gives what is to be done, [`MeshNode::poll_timeout`] when to call again.
//! - [`message`]: the messages, octets to values and back. Their layouts are generated from
//!   `docs/mesh-protocol.md` ([`layout`]).
//! - [`MeshRouting`]: how routes are found, apart from the establishment of paths: on demand or by OLSR.
//! - [`olsr`]: OLSR (RFC 3626), which finds routes for the mesh, and for IP alone in a router of its own.
//! - [`simulate`]: any number of nodes in virtual time, with a data path that follows their labels.
//!
//! Nothing here reads a clock, opens a socket or draws randomness: they are arguments.
#![forbid(unsafe_code)]

mod bridge;
mod disjoint;
mod edge;
mod identity;
mod labels;
pub mod layout;
pub mod liveness;
pub mod message;
mod neighbour;
mod node;
pub mod olsr;
mod relay_delay;
mod routing;
mod segment;
pub mod simulate;
mod timed;
mod trust;

pub use bridge::{BRIDGE_PORTS_MAX, BridgeCounters, BridgePort, PortVerdict};
pub use edge::{
    Adjacency, CLASSES, EchoOutcome, EchoToken, LabelAction, LabelledHop, LinkProperties,
    MeshCounters, MeshEvent, MeshInput, MeshOutput, MeshRouting, MeshSettings, PathClass, PathRole,
};
pub use identity::{NodeId, PathId, Reason};
pub use message::Profile;
pub use node::{LINKS_MAX, MeshNode};
pub use relay_delay::RelayDelay;
pub use routing::olsr_address;
pub use trust::{
    AUTHENTICATION_LEN, MESH_AUTHORITIES_MAX, MESH_KEY_LEN, MESH_KEYS_MAX, MESH_MEMBERS_MAX,
    MeshCertificate, MeshKeyError, MeshKeys, MeshMembers, MeshNodeKey, MeshPublicKey, MeshTrust,
};
