//! The atomics of the house, or loom's when `RUSTFLAGS="--cfg loom"` asks for its scheduler.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
