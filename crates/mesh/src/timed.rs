//! When a part of a node is due: computed anew only after a change.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

/// A part of a node with the time at which it is due, which is kept until the part is borrowed to be
/// changed. So a message to one part does not cost a look through all.
#[derive(Debug, Default)]
pub(crate) struct Timed<T> {
    part: T,
    kept: Cell<KeptTime>,
}

/// The time that was computed last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum KeptTime {
    /// The part may have changed since.
    #[default]
    Nothing,
    /// It is due then, or never.
    Due(Option<Duration>),
}

impl<T> Timed<T> {
    /// When the part is due, by `compute` if it may have changed; the same function each time.
    pub(crate) fn due_at(&self, compute: impl Fn(&T) -> Option<Duration>) -> Option<Duration> {
        let due = match self.kept.get() {
            KeptTime::Nothing => compute(&self.part),
            KeptTime::Due(due) => due,
        };
        // `postpone`'s callers uphold it.
        debug_assert_eq!(due, compute(&self.part), "a time is kept that has changed");
        self.kept.set(KeptTime::Due(due));
        due
    }

    /// Borrows the part for a change that makes nothing due earlier, and nothing later but what is due
    /// at `at`: an earlier time stays as it is.
    pub(crate) fn postpone(&mut self, at: Duration) -> &mut T {
        if !matches!(self.kept.get(), KeptTime::Due(Some(due)) if due < at) {
            self.kept.set(KeptTime::Nothing);
        }
        &mut self.part
    }
}

impl<T> Deref for Timed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.part
    }
}

impl<T> DerefMut for Timed<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.kept.set(KeptTime::Nothing);
        &mut self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(times: &Timed<Vec<Duration>>) -> Option<Duration> {
        times.due_at(|times| times.iter().min().copied())
    }

    #[test]
    fn a_kept_time_follows_each_change() {
        let [one, two, three] = [1, 2, 3].map(Duration::from_secs);
        let mut times: Timed<Vec<Duration>> = Timed::default();
        assert_eq!(least(&times), None);
        times.extend([one, three]);
        assert_eq!(least(&times), Some(one));
        assert_eq!(times.kept.get(), KeptTime::Due(Some(one)));
        // What was due later is due even later.
        times.postpone(three)[1] = Duration::from_secs(4);
        assert_eq!(times.kept.get(), KeptTime::Due(Some(one)));
        times.postpone(one)[0] = two;
        assert_eq!(least(&times), Some(two));
        times.clear();
        assert_eq!(least(&times), None);
    }
}
