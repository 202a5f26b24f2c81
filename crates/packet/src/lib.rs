//! The frame slab: packets that are never copied on their way through a gateway.
//!
//! A [`Pool`] owns a page-aligned region cut into equal chunks. A [`Packet`] is the one handle of a
//! chunk, eight octets wide, and returns the chunk when it is dropped. Layers strip headers by
//! moving the front of the packet forwards and add them by moving it back into the headroom:
//!
//! ```text
//!  0                            256                                    chunk size
//!  +----------------------------+-------------------------+-----------+
//!  |          headroom          |  the packet's octets    | tailroom  |
//!  +----------------------------+-------------------------+-----------+
//! ```
//!
//! The metadata of packets ([`Meta`]) lies in lines of its own beside the slab, one after the
//! other. At the fronts of chunks, which are 2048 octets apart, the metadata of a batch would not
//! fit into a processor's first cache.
//!
//! The region can be registered as an AF_XDP UMEM as it is: the kernel leaves 256 octets in front
//! of each frame it receives (`XDP_PACKET_HEADROOM`), which is where [`DATA_OFFSET`] stands.
//!
//! A pool and its packets belong to one worker thread. A packet goes to another worker as a
//! [`Parcel`], by a [`ring()`]; its chunk returns by a lock-free list.

mod batch;
mod chunk;
mod link_address;
mod meta;
mod pool;
mod region;
mod ring;
mod sync;

pub use batch::{BATCH_MAX, Batch};
pub use chunk::{NoRoom, Packet, Parcel};
pub use link_address::{LinkAddress, NotALinkAddress};
pub use meta::{Arrival, Checksum, LinkIndex, Meta, NextHop};
pub use pool::{Pool, PoolError, Slab, SlabShape};
pub use ring::{RingReceiver, RingSender, ring};

/// Octets from the beginning of a chunk to where a received frame begins.
pub const DATA_OFFSET: usize = 256;

/// Minimum free octets before every received frame.
pub const HEADROOM: usize = 128;

/// Minimum free octets after every received frame.
pub const TAILROOM: usize = 32;

/// Octets of a chunk that holds one Ethernet frame of 1500 octets of payload.
pub const CHUNK_SIZE: usize = 2048;

/// Octets of a chunk that holds the largest IP datagram, as reassembly needs it.
pub const CHUNK_SIZE_DATAGRAM: usize = 69_632;
