//! Recognition of reports that a device without a clock repeats in another association.
//!
//! A report with the device's own time is identified by it. Any other report does not identify its
//! measurement: repeated, it has another invoke-id and another number, and equal measurements have
//! equal octets. So it counts as a repetition only if the device is known not to have its answer:
//!
//! | what happened to the first | it is the same again |
//! |---|---|
//! | it was refused | whenever it comes |
//! | its association ended before it was answered, or in time | first in a later association |
//! | the device said that no answer came (ABRT, *response timeout*) | first in a later association |
//! | it was answered, and bears the device's running counter | first in a later association, if less time has passed than the counter shows: the device was not switched off meanwhile |
//!
//! Everything else is a new measurement: storing one twice is better than losing one.

use crate::instance::ReportIdentity;
use core::time::Duration;
use gatewright_health::association::TO_REPORT;
use gatewright_health::code::SystemId;
use std::collections::HashMap;

/// Devices remembered; beyond, all are forgotten.
pub const DEVICES_MAX: usize = 100_000;
/// Reports remembered per device that it may repeat; beyond, the oldest is forgotten.
pub const REPORTS_MAX: usize = 4;

/// A confirmed report that only its number distinguishes from others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Numbered {
    /// Its association.
    pub epoch: u64,
    /// Its number there, that of [`Record`](gatewright_health::manager::Record).
    pub number: u64,
    /// Digest of the measurements.
    pub digest: u64,
    /// The device's relative clock at the measurement, if it reports one.
    pub running: Option<Duration>,
}

/// Outcome of the answer to a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// The device has no answer, or not in time.
    Open,
    /// It was sent in time.
    Answered,
    /// The report was rejected.
    Refused,
}

/// A report that may be repeated.
#[derive(Clone, Copy, Debug)]
struct Kept {
    report: Numbered,
    /// Identity of the first report.
    known: ReportIdentity,
    taken: Duration,
    fate: Fate,
}

/// The last reports of each device that only their numbers distinguish.
#[derive(Clone, Debug)]
pub struct Repeats {
    devices: HashMap<SystemId, Vec<Kept>>,
    devices_max: usize,
    forgotten: u64,
}

/// Limited to [`DEVICES_MAX`] devices.
impl Default for Repeats {
    fn default() -> Self {
        Self::with_devices_max(DEVICES_MAX)
    }
}

impl Repeats {
    /// Limits the number of devices; beyond, all are forgotten.
    pub fn with_devices_max(devices_max: usize) -> Self {
        Self { devices: HashMap::new(), devices_max, forgotten: 0 }
    }

    /// Registers a report of `device`; returns the identity of the first one if this is a
    /// repetition.
    pub fn meet(
        &mut self,
        now: Duration,
        device: SystemId,
        report: Numbered,
    ) -> Option<ReportIdentity> {
        if self.devices.len() >= self.devices_max && !self.devices.contains_key(&device) {
            self.forgotten += u64::try_from(self.devices.len()).unwrap_or(u64::MAX);
            self.devices.clear();
        }
        let kept = self.devices.entry(device).or_default();
        let place = kept.iter().position(|kept| kept.is_again(now, report));
        let found = place.map(|place| kept.remove(place).known);
        // What a device was not answered it sends before anything else, in order; whatever else it
        // begins with, it keeps nothing. Whoever goes on in one association has its answer.
        kept.retain(|kept| match kept.fate {
            Fate::Refused => true,
            Fate::Open => found.is_some() && kept.report.epoch != report.epoch,
            Fate::Answered => false,
        });
        if kept.len() >= REPORTS_MAX {
            kept.remove(0);
        }
        let own = ReportIdentity { epoch: report.epoch, report: report.number };
        let known = found.unwrap_or(own);
        kept.push(Kept { report, known, taken: now, fate: Fate::Open });
        found
    }

    /// Records that the answer to the last report of this association was sent.
    pub fn answered(&mut self, now: Duration, device: SystemId, epoch: u64) {
        let in_time = |kept: &&mut Kept| now.saturating_sub(kept.taken) < TO_REPORT;
        if let Some(kept) = self.last(device, epoch).filter(in_time) {
            kept.fate = Fate::Answered;
        }
    }

    /// Records that the last report of this association was rejected.
    pub fn refused(&mut self, device: SystemId, epoch: u64) {
        if let Some(kept) = self.last(device, epoch) {
            kept.fate = Fate::Refused;
        }
    }

    /// Records that the device got no answer in this association.
    pub fn unheard(&mut self, device: SystemId, epoch: u64) {
        let answered = |kept: &&mut Kept| kept.fate == Fate::Answered;
        if let Some(kept) = self.last(device, epoch).filter(answered) {
            kept.fate = Fate::Open;
        }
    }

    /// Devices forgotten because of [`DEVICES_MAX`].
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn last(&mut self, device: SystemId, epoch: u64) -> Option<&mut Kept> {
        let kept = self.devices.get_mut(&device)?;
        kept.iter_mut().rev().find(|kept| kept.report.epoch == epoch)
    }
}

impl Kept {
    fn is_again(&self, now: Duration, report: Numbered) -> bool {
        let is_later = report.epoch != self.report.epoch;
        let since = now.saturating_sub(self.taken);
        report.digest == self.report.digest
            && match self.fate {
                Fate::Refused => true,
                Fate::Open => is_later,
                Fate::Answered => is_later && report.running.is_some_and(|counter| since < counter),
            }
    }
}
