//! Bounds of what a neighbour's challenges can cause.

use core::time::Duration;

/// Indices of one neighbour whose challenges are remembered: it draws one at each start, and no recording
/// has others.
const FOREIGN_MAX: usize = 32;

/// An index may be forgotten this long after its newest challenge, when there is no room for another one.
const FOREIGN_LIFE: Duration = Duration::from_mins(1);

/// A number of times in each second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    second: Duration,
    taken: u32,
}

impl Allowance {
    /// Takes one of `most` in this second; `false` if there is none left.
    pub(super) fn take(&mut self, now: Duration, most: u32) -> bool {
        if now.saturating_sub(self.second) >= Duration::from_secs(1) {
            (self.second, self.taken) = (now, 0);
        }
        self.taken = self.taken.saturating_add(1);
        self.taken <= most
    }
}

/// An index that is not known to be the neighbour's present one.
#[derive(Clone, Copy, Debug)]
struct ForeignIndex {
    index: u64,
    /// Counter of its newest challenge, and when that arrived.
    newest: u32,
    at: Duration,
}

/// The indices, not known, with which a neighbour has challenged. A new challenge of any of its starts has a
/// higher counter than all earlier ones of this start, so that nothing recorded is answered twice.
#[derive(Clone, Debug, Default)]
pub(super) struct ForeignIndices(Vec<ForeignIndex>);

impl ForeignIndices {
    /// Whether a challenge is newer than all of its index that are remembered.
    pub(super) fn is_new(&self, index: u64, counter: u32) -> bool {
        self.0.iter().all(|known| known.index != index || known.newest < counter)
    }

    /// Remembers a challenge; `false` if it is not new. Without room it is new each time: then recorded ones
    /// compete for the answers.
    pub(super) fn take(&mut self, now: Duration, index: u64, counter: u32) -> bool {
        if !self.is_new(index, counter) {
            return false;
        }
        let challenge = ForeignIndex { index, newest: counter, at: now };
        if let Some(known) = self.0.iter_mut().find(|known| known.index == index) {
            *known = challenge;
            return true;
        }
        if self.0.len() >= FOREIGN_MAX {
            self.0.retain(|known| now.saturating_sub(known.at) < FOREIGN_LIFE);
        }
        if self.0.len() < FOREIGN_MAX {
            self.0.push(challenge);
        }
        true
    }
}
