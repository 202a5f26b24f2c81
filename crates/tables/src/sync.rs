//! The atomics used here, or loom's when `RUSTFLAGS="--cfg loom"` is set.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering, fence};
