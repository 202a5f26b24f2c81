//! One association as resources: its records become readings.
//!
//! Live reports are decoded by the configuration. Entries of a store are decoded by the map in the
//! store's description of its segments; without it they cannot be decoded, and the caller gets an
//! error.

use crate::device::{Device, ObjectContainer};
use crate::instance::{Instance, Instances, ReportArrival, ReportIdentity, view};
use crate::mapping::Mapping;
use crate::repeats::Numbered;
use core::time::Duration;
use gatewright_health::code::{AttributeId, Handle, action};
use gatewright_health::configuration::Configuration;
use gatewright_health::convert::{MeasurementStatus, Observation, Tally, Timestamps, observe};
use gatewright_health::digest::digest;
use gatewright_health::manager::{RecordId, ReportRecord};
use gatewright_health::operation::OperationResult;
use gatewright_health::report::Report;
use gatewright_health::store::{SegmentMap, observe_segment, segments};
use gatewright_health::time::{AbsoluteTime, NO_RELATIVE_TIME, RELATIVE_TICKS_PER_SECOND};
use gatewright_onem2m::{Operation, Request, ResourceType, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Segment maps that one session keeps; further ones are ignored.
pub const SEGMENTS_MAX: usize = 256;

/// One association of a device.
#[derive(Debug)]
pub struct DeviceAssociation {
    device: Device,
    configuration: Arc<Configuration>,
    /// Layout of a segment's entries, by store and segment.
    maps: BTreeMap<(Handle, u16), SegmentMap>,
    instances: Instances,
    /// The last report with a time stamp.
    last: Option<Last>,
    /// A report recognised as a repetition from another association.
    again: Option<(RecordId, ReportIdentity)>,
    /// Whether its reports are test data.
    is_test: bool,
}

/// A report with a time stamp, and its identity.
#[derive(Clone, Copy, Debug)]
struct Last {
    record: RecordId,
    time: u64,
    known: Option<ReportIdentity>,
}

/// Why a record yields no readings.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The record carries neither measurements nor entries of a store.
    #[error("the record carries no measurements")]
    NoMeasurements,
    /// The store `store` has not described the entries of `segment`: request the description of its
    /// segments.
    #[error("segment {segment} of store {store} is not described yet")]
    NotDescribed {
        /// The store.
        store: Handle,
        /// The segment.
        segment: u16,
    },
}

impl DeviceAssociation {
    /// Creates a session of a device with known configuration; see [`Device::new`].
    pub const fn new(device: Device, configuration: Arc<Configuration>) -> Self {
        let instances = Instances::new();
        Self {
            device,
            configuration,
            maps: BTreeMap::new(),
            instances,
            last: None,
            again: None,
            is_test: false,
        }
    }

    /// Marks a test association: its readings bear the status *test-data*, whether the device sets
    /// it or not.
    #[must_use]
    pub const fn test(mut self, is_test: bool) -> Self {
        self.is_test = is_test;
        self
    }

    /// Sets the kind of device from its attributes; see [`Device::hear`].
    pub fn hear(&mut self, attributes: &[(AttributeId, Vec<u8>)]) {
        self.device.hear(attributes);
    }

    /// The device as resources.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// The configuration that decodes its reports.
    pub const fn configuration(&self) -> &Arc<Configuration> {
        &self.configuration
    }

    /// Stores the segment maps in `answer`, if it has any; returns the number of new ones.
    pub fn learn(&mut self, answer: &OperationResult) -> usize {
        let OperationResult::Action { handle, action: action::SEGMENT_INFO, info } = answer else {
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

    /// Builds an instance of each observation of a record and passes it to `sink`.
    ///
    /// The same record always gives the same names. So does another record of the same report,
    /// repeated in another association, if the device reports its own time and its clock runs, or
    /// if the repetition was [recognised](Self::recognise).
    ///
    /// # Errors
    ///
    /// [`Unread`] with what is missing; the record may be read again once that is known.
    pub fn read(
        &mut self,
        mapping: &Mapping,
        record: &ReportRecord,
        received: Timestamp,
        mut sink: impl FnMut(Instance<'_>),
    ) -> Result<Tally, Unread> {
        let known = self.identify(record)?.0.or_else(|| {
            self.again.filter(|(again, _)| *again == record.id).map(|(_, known)| known)
        });
        let mut instances = core::mem::take(&mut self.instances);
        let arrival = ReportArrival { report: record.number, received };
        match known {
            Some(known) => instances.start_known(arrival, known),
            None => instances.start(arrival),
        }
        let tally = self.observe(record, |observation| {
            instances.make(mapping, &self.device, observation).map(&mut sink);
        });
        self.instances = instances;
        tally
    }

    /// Identity of a confirmed report that only its number distinguishes: `None` if it has the
    /// device's own time, needs no answer, or is malformed.
    pub fn numbered(&mut self, record: &ReportRecord) -> Option<Numbered> {
        if !record.confirmed {
            return None;
        }
        let (None, running) = self.identify(record).ok()? else { return None };
        let digest = digest(record.measured()?);
        Some(Numbered { epoch: self.device.epoch(), number: record.number, digest, running })
    }

    /// Gives the report `record` the identity of its first occurrence.
    pub const fn recognise(&mut self, record: RecordId, known: ReportIdentity) {
        self.again = Some((record, known));
    }

    /// Requests that update the views of a record's objects: for each an update, and a creation in
    /// case the view does not exist yet.
    pub fn views(&self, mapping: &Mapping, record: &ReportRecord) -> Vec<[Request; 2]> {
        let mut latest: BTreeMap<Handle, [Request; 2]> = BTreeMap::new();
        let read = self.observe(record, |observation| {
            if let Some(place) = self.device.place(observation.handle)
                && let Some(requests) = self.view(mapping, place, record, observation)
            {
                latest.insert(observation.handle, requests);
            }
        });
        // What cannot be read has no readings either.
        if read.is_ok() { latest.into_values().collect() } else { Vec::new() }
    }

    fn view(
        &self,
        mapping: &Mapping,
        place: &ObjectContainer,
        record: &ReportRecord,
        observation: &Observation<'_>,
    ) -> Option<[Request; 2]> {
        let content = |created| view(mapping, place, observation, created);
        let (change, make) = (content(false)?, content(true)?);
        let (device, originator) = (self.device.address(), self.device.originator());
        let (system, epoch) = (self.device.system_id(), self.device.epoch());
        let id = format!("{system}-{epoch}-{}-{}-view", record.number, observation.handle);
        let to = format!("{device}/{}-view", place.name);
        Some([
            Request::new(Operation::Update, to, originator, id.as_str()).with_content(change),
            Request::new(Operation::Create, device, originator, format!("{id}-new"))
                .creating(ResourceType::FlexContainer, make),
        ])
    }

    /// Passes each observation of a record to `sink`.
    fn observe(
        &self,
        record: &ReportRecord,
        mut sink: impl FnMut(&Observation<'_>),
    ) -> Result<Tally, Unread> {
        let (handle, _, report) = record.report().ok_or(Unread::NoMeasurements)?;
        let is_test = self.is_test;
        let mut sink = |observation: &Observation<'_>| {
            if !is_test {
                return sink(observation);
            }
            let status = MeasurementStatus(observation.status.0 | MeasurementStatus::TEST_DATA);
            sink(&Observation { status, ..*observation });
        };
        match report {
            Report::Scan(scan) => Ok(observe(&self.configuration, handle, &scan, sink)),
            Report::Segment(data) => {
                let segment = data.instance;
                let missing = Unread::NotDescribed { store: handle, segment };
                let map = self.maps.get(&(handle, segment)).ok_or(missing)?;
                let tally = observe_segment(&self.configuration, map, &data, |_, observation| {
                    sink(observation);
                });
                Ok(tally)
            }
            _ => Err(Unread::NoMeasurements),
        }
    }

    /// Identity of a report with a time stamp, and the device's relative clock, if reported.
    fn identify(
        &mut self,
        record: &ReportRecord,
    ) -> Result<(Option<ReportIdentity>, Option<Duration>), Unread> {
        let (mut time, mut running) = (None, None);
        self.observe(record, |observation| {
            time = time.or_else(|| clock(&observation.time));
            running = running.or_else(|| counter(&observation.time));
        })?;
        Ok((time.and_then(|time| self.known(record, time)), running))
    }

    /// Identity of a report whose first time is `time`. A device whose clock stands still gives
    /// different reports the same time: those after the first are identified by their numbers.
    fn known(&mut self, record: &ReportRecord, time: u64) -> Option<ReportIdentity> {
        if let Some(last) = self.last
            && last.record == record.id
        {
            return last.known;
        }
        let stands = self.last.is_some_and(|last| last.time == time);
        let known = record.measured().filter(|_| !stands);
        let known = known.map(|measured| ReportIdentity::timed(time, measured));
        self.last = Some(Last { record: record.id, time, known });
        known
    }
}

/// The device's time as a number, if reported: hundredths of a second since 1970 by its calendar
/// clock, or 1/65536 s since 1900 by its base time.
fn clock(time: &Timestamps) -> Option<u64> {
    let calendar = time.absolute.and_then(AbsoluteTime::to_unix);
    let base = time.base_offset.filter(|base| base.seconds > 0);
    calendar.or_else(|| base.map(|it| u64::from(it.seconds) << 16 | u64::from(it.fraction)))
}

/// The device's relative clock, which starts at power-on, if reported.
fn counter(time: &Timestamps) -> Option<Duration> {
    let ticks = |ticks| {
        let micros = u64::from(ticks) * MICROS_PER_SECOND / u64::from(RELATIVE_TICKS_PER_SECOND);
        Duration::from_micros(micros)
    };
    let relative = time.relative.filter(|ticks| *ticks != NO_RELATIVE_TIME);
    time.high_resolution.map(Duration::from_micros).or_else(|| relative.map(ticks))
}

/// Microseconds in a second, in which a counter of high resolution counts.
const MICROS_PER_SECOND: u64 = 1_000_000;
