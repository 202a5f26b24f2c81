//! The time of workers, since their epoch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The clock of workers.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's, since this instant.
    Real(Instant),
    /// A virtual one, which its owner sets.
    Virtual(VirtualClock),
}

/// A clock that stands still until it is set. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// A clock that stands at `now`.
    pub(crate) fn beginning(now: Duration) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Sets the time since the epoch.
    pub fn set(&self, now: Duration) {
        self.0.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// The time since the epoch.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }
}

impl Clock {
    /// The time since the epoch.
    pub fn now(&self) -> Duration {
        match self {
            Self::Real(epoch) => epoch.elapsed(),
            Self::Virtual(clock) => clock.now(),
        }
    }
}
