//! Buckets of tokens that handlers of the graph share with programs in drivers.

use crate::error::{DataError, refused};
use gatewright_link::DriverMaps;
use gatewright_stack::DriverBucket;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The buckets in the maps by which drivers forward.
pub(crate) struct DriverBuckets(DriverMaps);

impl From<&DriverMaps> for DriverBuckets {
    fn from(maps: &DriverMaps) -> Self {
        Self(maps.clone())
    }
}

impl DriverBuckets {
    /// The bucket with this number; `None` if drivers forward nothing.
    pub(crate) fn get(&self, number: u16) -> Result<Option<DriverBucket>, DataError> {
        let Ok(maps) = self.0.get() else { return Ok(None) };
        let (words, at) = maps.bucket(number).map_err(|error| refused(error.to_string()))?;
        Ok(Some(DriverBucket { words, at, now: monotonic }))
    }
}

/// The clock of programs in drivers (`bpf_ktime_get_ns`).
fn monotonic() -> Duration {
    // The kernel refuses to tell no process this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}
