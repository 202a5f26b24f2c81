//! State that every report uses, divided into shards so that reports of different devices do not
//! wait for each other; and the configurations, which reports do not use.
//!
//! A report takes the lock of its device's shard twice: to count it with its result, and to record
//! that its answer has left. A confirmed report without a time stamp takes it once more, to be
//! recognised. Nothing is parsed or converted under a lock.

use super::silence::LastHeard;
use super::stages::Stages;
use super::{Counters, Shared};
use gatewright_health::code::{ConfigId, SystemId};
use gatewright_health::configuration::{Configuration, Configurations, Library, Remembered};
use gatewright_interwork::Repeats;
use gatewright_interwork::repeats::DEVICES_MAX;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards of one listener. Reports of two devices share one only if their system-ids are equal
/// modulo this; a few times the processors of a small machine are enough.
const SHARDS: usize = 16;

/// One shard of the reports' state.
#[derive(Debug)]
pub(super) struct Shard {
    /// Reports without a time stamp that may be repeated.
    pub(super) repeats: Repeats,
    pub(super) counters: Counters,
    /// Made for the first report: an idle listener needs none.
    pub(super) stages: Option<Box<Stages>>,
    /// When its devices were last heard, if silence is watched.
    pub(super) heard: LastHeard,
}

/// All shards.
#[derive(Debug)]
pub(super) struct Shards([Mutex<Shard>; SHARDS]);

impl Shards {
    /// Creates empty shards.
    pub(super) fn new() -> Self {
        let repeats = Repeats::with_devices_max(DEVICES_MAX / SHARDS);
        let shard = || Shard {
            repeats: repeats.clone(),
            counters: Counters::default(),
            stages: None,
            heard: LastHeard::default(),
        };
        Self(core::array::from_fn(|_| Mutex::new(shard())))
    }

    /// The shard of a device; events of no device have a fixed one.
    pub(super) fn of(&self, device: Option<SystemId>) -> MutexGuard<'_, Shard> {
        let SystemId(octets) = device.unwrap_or_default();
        let [first, ..] = &self.0;
        let place = usize::try_from(u64::from_be_bytes(octets) % SHARDS as u64).unwrap_or_default();
        locked(self.0.get(place).unwrap_or(first))
    }

    /// Calls `look` with each shard, one locked after the other.
    pub(super) fn each(&self, mut look: impl FnMut(&Shard)) {
        for shard in &self.0 {
            look(&locked(shard));
        }
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

    /// Durations of all shards' reports.
    pub(super) fn stages(&self) -> Stages {
        let mut sum = Stages::default();
        for shard in &self.0 {
            locked(shard).stages.iter().for_each(|stages| sum.merge(stages));
        }
        sum
    }
}

/// A poisoned lock is safe here: names and counts stay consistent.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Configurations shared by all managers of a listener; locked for a lookup or an insertion, when a
/// device associates or reports its configuration.
pub(super) struct SharedLibrary<'a> {
    pub(super) shared: &'a Shared,
    /// System-ids in the device's certificate; `None` if they are not compared.
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
        if let Some(named) = self.named.filter(|named| !named.contains(&system)) {
            self.shared.count(|counters| counters.system_ids_foreign += 1);
            self.shared.refusals.tell_foreign(system, named);
            return false;
        }
        self.library().admits(system)
    }

    fn find(&mut self, system: SystemId, id: ConfigId) -> Option<Arc<Configuration>> {
        self.library().find(system, id)
    }

    fn remember(&mut self, system: SystemId, configuration: Arc<Configuration>) -> Remembered {
        self.library().remember(system, configuration)
    }
}
