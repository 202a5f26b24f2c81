//! Versioned plain records in one region: one writer, many lock-free readers.
//!
//! This is where the control plane and the data plane meet. Whatever one says to the other
//! (interfaces, neighbours, routes, attachments) is a record of 32-bit words at an offset, never a
//! pointer, so both may be threads or processes, of different word sizes.
//!
//! - [`RoutesWriter`] and [`Routes`]: longest-prefix match for both families.
mod memory;
mod routes;
mod sync;

pub use routes::{
    Family, HopIndex, Key, Miss, Prefix, PrefixError, Routes, RoutesFull, RoutesStats, RoutesWriter,
};
