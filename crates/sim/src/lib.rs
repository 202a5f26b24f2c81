//! A simulated world in virtual time: media lose, delay, repeat and reorder frames by a seed.
//!
//! A [`World`] has hosts with datagrams and streams behind the traits of `gatewright-edge`, so that
//! an event loop and its machines run in it unchanged.
//!
//! A [`Topology`] has nodes and the links between them: lines, grids, random places. [`WalkingNodes`] move, and
//! those that are nearest to each other have links.
//!
//! A [`Segment`] joins ports as a hub, a switch or a radio does. It reads no clock: every call is
//! given the time, and [`Segment::poll_timeout`] returns when the next frame arrives. The same seed
//! and the same calls give the same frames at the same times, so a failure is reproduced from its
//! seed.
//!
//! ```
//! use core::time::Duration;
//! use gatewright_packet::{Batch, CHUNK_SIZE, Pool};
//! use gatewright_sim::{PortIndex, Segment, SegmentConfig};
//!
//! let config = SegmentConfig { latency: Duration::from_millis(2), ..SegmentConfig::default() };
//! let mut hub = Segment::new(3, config)?;
//! hub.send(Duration::ZERO, PortIndex(0), b"to everyone else");
//! assert_eq!(hub.poll_timeout(), Some(Duration::from_millis(2)));
//!
//! let (pool, mut batch) = (Pool::new(8, CHUNK_SIZE)?, Batch::default());
//! hub.receive(Duration::from_millis(2), PortIndex(1), &pool, &mut batch);
//! assert_eq!(batch.pop().map(|packet| packet.len()), Some(16));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod mobility;
mod network;
mod random;
mod segment;
mod topology;
mod world;

pub use mobility::WalkingNodes;
pub use network::{SimDatagrams, SimListener, SimNetwork, SimPeer, SimPoller, SimStream, World};
pub use random::{Chance, Random};
pub use segment::{
    Impairment, Medium, PORTS_MAX, PortIndex, Segment, SegmentConfig, SegmentCounters, SegmentError,
};
pub use topology::{
    LinkDirection, NODES_MAX, Topology, TopologyLink, distances, is_reachable_without,
};
pub use world::{WorldConfig, WorldCounters};
