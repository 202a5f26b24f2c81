//! What is touched by every report, divided so that reports of different devices do not wait for
//! each other; and the configurations, which a report does not touch at all.
//!
//! A report takes the lock of its device's shard twice: to count it with what became of it, and to
//! note that its answer has left. A confirmed report without a time takes it once more, to be
//! recognised. Nothing is parsed or converted under a lock.

use super::stages::Stages;
use super::{Counters, Shared};
use gatewright_health::code::{ConfigId, SystemId};
use gatewright_health::configuration::{Configuration, Configurations, Library, Remembered};
use gatewright_interwork::Repeats;
use gatewright_interwork::repeats::DEVICES_MAX;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards of one listener. Reports of two devices meet in one only where their system-ids are alike
/// modulo this, so that a few times the processors of a small machine are enough.
const SHARDS: usize = 16;

/// A part of what reports touch.
#[derive(Debug)]
pub(super) struct Shard {
    /// Reports without a time that may come again.
    pub(super) repeats: Repeats,
    pub(super) counters: Counters,
    pub(super) stages: Stages,
}

/// What reports of all devices touch.
#[derive(Debug)]
pub(super) struct Shards([Mutex<Shard>; SHARDS]);

impl Shards {
    /// Shards without a report.
    pub(super) fn new() -> Self {
        let repeats = Repeats::with_devices_max(DEVICES_MAX / SHARDS);
        let shard = || Shard {
            repeats: repeats.clone(),
            counters: Counters::default(),
            stages: Stages::default(),
        };
        Self(core::array::from_fn(|_| Mutex::new(shard())))
    }

    /// The shard of a device; what is no device's is in that of nobody.
    pub(super) fn of(&self, device: Option<SystemId>) -> MutexGuard<'_, Shard> {
        let SystemId(octets) = device.unwrap_or_default();
        let [first, ..] = &self.0;
        let place = usize::try_from(u64::from_be_bytes(octets) % SHARDS as u64).unwrap_or_default();
        locked(self.0.get(place).unwrap_or(first))
    }

    /// The counts of all shards.
    pub(super) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in &self.0 {
            let shard = locked(shard);
            sum.add(&shard.counters);
            sum.repeats_forgotten += shard.repeats.forgotten();
        }
        sum
    }

    /// How long reports of all shards took.
    pub(super) fn stages(&self) -> Stages {
        let mut sum = Stages::default();
        self.0.iter().for_each(|shard| sum.merge(&locked(shard).stages));
        sum
    }
}

/// A poisoned lock is safe here: names and counts stay consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The configurations that all managers of a listener share, locked while one is looked up or
/// remembered: when a device associates or reports its configuration.
pub(super) struct SharedLibrary<'a> {
    pub(super) shared: &'a Shared,
    /// The system-ids that the device's certificate says; any, if they are not compared.
    pub(super) named: Option<&'a [SystemId]>,
}

impl SharedLibrary<'_> {
    fn library(&self) -> MutexGuard<'_, Library> {
        self.shared.note_lock();
        locked(&self.shared.library)
    }
}

impl Configurations for SharedLibrary<'_> {
    fn admits(&self, system: SystemId) -> bool {
        let is_own = self.named.is_none_or(|named| named.contains(&system));
        if !is_own {
            self.shared.count(|counters| counters.system_ids_foreign += 1);
        }
        is_own && self.library().admits(system)
    }

    fn find(&mut self, system: SystemId, id: ConfigId) -> Option<Arc<Configuration>> {
        self.library().find(system, id)
    }

    fn remember(&mut self, system: SystemId, configuration: Arc<Configuration>) -> Remembered {
        self.library().remember(system, configuration)
    }
}
