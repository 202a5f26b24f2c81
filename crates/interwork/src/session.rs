//! One association, as resources: its records become readings.
//!
//! Live reports are read by the configuration. Entries of a store are read by the map that the
//! store tells when it is asked to describe its segments; until then they cannot be read, and the
//! caller is told.

use crate::device::Device;
use crate::instance::{Arrival, Instance, Instances};
use crate::mapping::Mapping;
use gatewright_health::code::{Handle, action};
use gatewright_health::configuration::Configuration;
use gatewright_health::convert::{Tally, observe};
use gatewright_health::manager::Record;
use gatewright_health::operation::Answer;
use gatewright_health::report::Report;
use gatewright_health::store::{SegmentMap, observe_segment, segments};
use gatewright_onem2m::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maps of segments that one session keeps; more are not learned.
pub const SEGMENTS_MAX: usize = 256;

/// One association of a device.
#[derive(Debug)]
pub struct Session {
    device: Device,
    configuration: Arc<Configuration>,
    /// What the entries of a segment consist of, by store and segment.
    maps: BTreeMap<(Handle, u16), SegmentMap>,
    instances: Instances,
}

/// Why a record gives no readings.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The record carries neither measurements nor entries of a store.
    #[error("the record carries no measurements")]
    NoMeasurements,
    /// The store `store` has not told what the entries of `segment` consist of: ask it to describe
    /// its segments.
    #[error("segment {segment} of store {store} is not described yet")]
    NotDescribed {
        /// The store.
        store: Handle,
        /// The segment.
        segment: u16,
    },
}

impl Session {
    /// A device whose configuration has become known; see [`Device::new`].
    pub const fn new(device: Device, configuration: Arc<Configuration>) -> Self {
        let instances = Instances::new();
        Self { device, configuration, maps: BTreeMap::new(), instances }
    }

    /// The device as resources.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// The configuration by which its reports are read.
    pub const fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// Learns what segments consist of, if `answer` describes some. Says how many were new.
    pub fn learn(&mut self, answer: &Answer) -> usize {
        let Answer::Action { handle, action: action::SEGMENT_INFO, info } = answer else {
            return 0;
        };
        let Ok(list) = segments(info) else { return 0 };
        let before = self.maps.len();
        for segment in list {
            if self.maps.len() < SEGMENTS_MAX
                && let Ok(map) = segment.map()
            {
                self.maps.insert((*handle, segment.instance), map);
            }
        }
        self.maps.len() - before
    }

    /// Makes an instance of each observation of a record and hands it to `sink`.
    ///
    /// The same record gives the same names, whenever it is read.
    ///
    /// # Errors
    ///
    /// [`Unread`] says what is missing; the record may be read again when it is there.
    pub fn read(
        &mut self,
        mapping: &Mapping,
        record: &Record,
        received: Timestamp,
        mut sink: impl FnMut(Instance<'_>),
    ) -> Result<Tally, Unread> {
        let Self { device, configuration, maps, instances } = self;
        let (handle, _, report) = record.report().ok_or(Unread::NoMeasurements)?;
        instances.start(Arrival { report: record.number, received });
        match report {
            Report::Scan(scan) => Ok(observe(configuration, handle, &scan, |observation| {
                instances.make(mapping, device, observation).map(&mut sink);
            })),
            Report::Segment(data) => {
                let segment = data.instance;
                let missing = Unread::NotDescribed { store: handle, segment };
                let map = maps.get(&(handle, segment)).ok_or(missing)?;
                Ok(observe_segment(configuration, map, &data, |_, observation| {
                    instances.make(mapping, device, observation).map(&mut sink);
                }))
            }
            _ => Err(Unread::NoMeasurements),
        }
    }
}
