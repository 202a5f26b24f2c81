//! Reports that a device without a clock sends once more, in another association.
//!
//! A report that bears the device's own time is known by it. Any other says nothing of which
//! measurement it is: sent again, it has another invoke-id and another number, and a device that
//! measures the same twice says the same octets twice. So it is taken for a repetition only where
//! the device is known not to have its answer:
//!
//! | what happened to the first | it is the same again |
//! |---|---|
//! | it was refused | whenever it comes |
//! | its association ended before it was answered, or in time | first in a later association |
//! | the device said that no answer came (ABRT, *response timeout*) | first in a later association |
//! | it was answered, and bears the device's running counter | first in a later association, if less time has passed than the counter shows: the device was not switched off meanwhile |
//!
//! Everything else is another measurement: to store one twice is better than to lose one.

use crate::instance::Known;
use core::time::Duration;
use gatewright_health::association::TO_REPORT;
use gatewright_health::code::SystemId;
use std::collections::HashMap;

/// Devices remembered; beyond, all are forgotten and begin anew.
pub const DEVICES_MAX: usize = 100_000;
/// Reports remembered of one device that it may send again; beyond, the oldest is forgotten.
pub const REPORTS_MAX: usize = 4;

/// A confirmed report that is told from others by nothing but its number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Numbered {
    /// Its association.
    pub epoch: u64,
    /// Its number there, that of [`Record`](gatewright_health::manager::Record).
    pub number: u64,
    /// Digest of what was measured.
    pub digest: u64,
    /// The device's running counter when it measured, if it says so.
    pub running: Option<Duration>,
}

/// What is known of the answer to a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// The device has none, or not in time.
    Open,
    /// It has left in time.
    Answered,
    /// The device was told to keep it.
    Refused,
}

/// A report that may come again.
#[derive(Clone, Copy, Debug)]
struct Kept {
    report: Numbered,
    /// Under which name it came first.
    known: Known,
    taken: Duration,
    fate: Fate,
}

/// The last reports of each device that nothing but their number tells apart.
#[derive(Clone, Debug)]
pub struct Repeats {
    devices: HashMap<SystemId, Vec<Kept>>,
    devices_max: usize,
    forgotten: u64,
}

/// Of [`DEVICES_MAX`] devices.
impl Default for Repeats {
    fn default() -> Self {
        Self::with_devices_max(DEVICES_MAX)
    }
}

impl Repeats {
    /// Of so many devices; beyond, all are forgotten and begin anew.
    pub fn with_devices_max(devices_max: usize) -> Self {
        Self { devices: HashMap::new(), devices_max, forgotten: 0 }
    }

    /// A report of `device` has come: by what the same report was known before, if it is one that
    /// was here.
    pub fn meet(&mut self, now: Duration, device: SystemId, report: Numbered) -> Option<Known> {
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
        let own = Known { epoch: report.epoch, report: report.number };
        let known = found.unwrap_or(own);
        kept.push(Kept { report, known, taken: now, fate: Fate::Open });
        found
    }

    /// The answer to the last report of this association has left.
    pub fn answered(&mut self, now: Duration, device: SystemId, epoch: u64) {
        let in_time = |kept: &&mut Kept| now.saturating_sub(kept.taken) < TO_REPORT;
        if let Some(kept) = self.last(device, epoch).filter(in_time) {
            kept.fate = Fate::Answered;
        }
    }

    /// The device was told to keep the last report of this association.
    pub fn refused(&mut self, device: SystemId, epoch: u64) {
        if let Some(kept) = self.last(device, epoch) {
            kept.fate = Fate::Refused;
        }
    }

    /// The device says that it got no answer in this association.
    pub fn unheard(&mut self, device: SystemId, epoch: u64) {
        let answered = |kept: &&mut Kept| kept.fate == Fate::Answered;
        if let Some(kept) = self.last(device, epoch).filter(answered) {
            kept.fate = Fate::Open;
        }
    }

    /// How many devices were forgotten because [`DEVICES_MAX`] were there.
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
