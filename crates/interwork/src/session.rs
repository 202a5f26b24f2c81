//! One association, as resources: its records become readings.
//!
//! Live reports are read by the configuration. Entries of a store are read by the map that the
//! store tells when it is asked to describe its segments; until then they cannot be read, and the
//! caller is told.

use crate::device::{Device, Place};
use crate::instance::{Arrival, Instance, Instances, Known, view};
use crate::mapping::Mapping;
use crate::repeats::Numbered;
use core::time::Duration;
use gatewright_health::code::{AttributeId, Handle, action};
use gatewright_health::configuration::Configuration;
use gatewright_health::convert::{MeasurementStatus, Observation, Tally, Timestamps, observe};
use gatewright_health::digest::digest;
use gatewright_health::manager::{Record, RecordId};
use gatewright_health::operation::Answer;
use gatewright_health::report::Report;
use gatewright_health::store::{SegmentMap, observe_segment, segments};
use gatewright_health::time::{AbsoluteTime, NO_RELATIVE_TIME, RELATIVE_TICKS_PER_SECOND};
use gatewright_onem2m::{Kind, Operation, Request, Timestamp};
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
    /// The last report that bore a time.
    last: Option<Last>,
    /// A report that was recognised as one of another association.
    again: Option<(RecordId, Known)>,
    /// Whether what it reports is test data.
    is_test: bool,
}

/// A report that bore a time, and by what it is known.
#[derive(Clone, Copy, Debug)]
struct Last {
    record: RecordId,
    time: u64,
    known: Option<Known>,
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

    /// The same as a test association: its readings bear the status *test-data*, whether the device
    /// says so or not.
    #[must_use]
    pub const fn test(mut self, is_test: bool) -> Self {
        self.is_test = is_test;
        self
    }

    /// Takes the kind of device from what it says of itself; see [`Device::hear`].
    pub fn hear(&mut self, attributes: &[(AttributeId, Vec<u8>)]) {
        self.device.hear(attributes);
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
    /// The same record gives the same names, whenever it is read; and so does another record of the
    /// same report, sent once more in another association, if the device says when it measured and
    /// its clock runs, or if it was [recognised](Self::recognise).
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
        let known = self.identify(record)?.0.or_else(|| {
            self.again.filter(|(again, _)| *again == record.id).map(|(_, known)| known)
        });
        let mut instances = core::mem::take(&mut self.instances);
        let arrival = Arrival { report: record.number, received };
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

    /// A confirmed report that nothing but its number tells from others: `None` if the device's own
    /// time tells it, or if nobody waits for its answer, or if it cannot be read.
    pub fn numbered(&mut self, record: &Record) -> Option<Numbered> {
        if !record.confirmed {
            return None;
        }
        let (None, running) = self.identify(record).ok()? else { return None };
        let digest = digest(record.measured()?);
        Some(Numbered { epoch: self.device.epoch(), number: record.number, digest, running })
    }

    /// From now on the report `record` is read under the name that it had when it came first.
    pub const fn recognise(&mut self, record: RecordId, known: Known) {
        self.again = Some((record, known));
    }

    /// The views of what a record's objects show now: for each the request that changes it, and
    /// the one that makes it if it is not there yet.
    pub fn views(&self, mapping: &Mapping, record: &Record) -> Vec<[Request; 2]> {
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
        place: &Place,
        record: &Record,
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
                .creating(Kind::FlexContainer, make),
        ])
    }

    /// Hands each observation of a record to `sink`.
    fn observe(
        &self,
        record: &Record,
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

    /// By what a report is known that bears a time, and the device's running counter, if it is told.
    fn identify(&mut self, record: &Record) -> Result<(Option<Known>, Option<Duration>), Unread> {
        let (mut time, mut running) = (None, None);
        self.observe(record, |observation| {
            time = time.or_else(|| clock(&observation.time));
            running = running.or_else(|| counter(&observation.time));
        })?;
        Ok((time.and_then(|time| self.known(record, time)), running))
    }

    /// By what a report is known whose first time is `time`. A device whose clock stands still says
    /// the same time of different reports: those after the first are known by their numbers.
    fn known(&mut self, record: &Record, time: u64) -> Option<Known> {
        if let Some(last) = self.last
            && last.record == record.id
        {
            return last.known;
        }
        let stands = self.last.is_some_and(|last| last.time == time);
        let known = record.measured().filter(|_| !stands);
        let known = known.map(|measured| Known::timed(time, measured));
        self.last = Some(Last { record: record.id, time, known });
        known
    }
}

/// The device's own time as a number, if it says one: hundredths of a second since 1970 by its
/// calendar, or 1/65536 s since 1900 by its base time.
fn clock(time: &Timestamps) -> Option<u64> {
    let calendar = time.absolute.and_then(AbsoluteTime::to_unix);
    let base = time.base_offset.filter(|base| base.seconds > 0);
    calendar.or_else(|| base.map(|it| u64::from(it.seconds) << 16 | u64::from(it.fraction)))
}

/// The device's running counter, which begins when it is switched on, if it tells one.
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
