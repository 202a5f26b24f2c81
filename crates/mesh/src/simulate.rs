//! Nodes of a mesh in virtual time, with links, a data path that follows labels, and cuts.
//!
//! The nodes are the very machines of [`MeshNode`](crate::MeshNode). After every event that changes a
//! label or a path, the invariants are checked: no packet runs in a circle, none is delivered to a
//! node that it is not for, and every label of the data path belongs to a path of its node.

mod air;
mod datapath;
mod invariants;
mod mobility;
mod queue;
mod record;
mod scenario;
mod segments;
mod world;

pub use air::AIR_NODES_MAX;
pub use mobility::{MOBILITY_LINKS, MOBILITY_NODES, Mobility, MobilityOutcome};
pub use record::SentMessage;
pub use scenario::{
    MeshExperiment, MeshFigure, MeshReport, MeshScenario, MeshShape, SCENARIO_NODES_MAX,
};
pub use segments::StationPing;
pub use world::{LinkCut, MeshWorld, Ping, WorldFigures};
