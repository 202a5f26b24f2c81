//! Buckets of tokens that handlers of the graph share with programs in drivers.

use crate::error::{DataError, refused};
use gatewright_link::{DriverMaps, program_clock};
use gatewright_stack::DriverBucket;

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
        // Here it reads its file, and not when the first packet comes.
        let _now = program_clock();
        Ok(Some(DriverBucket { words, at, now: program_clock }))
    }
}
