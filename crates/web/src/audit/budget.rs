//! How many entries of the audit log each caller may cause.

use crate::routes::Endpoint;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How long a share lasts.
const HOUR: Duration = Duration::from_hours(1);

/// Entries of one caller in an hour, of each operation: the log has room for weeks of them.
const PER_HOUR: u32 = 60;

/// Reads of one caller that are logged in an hour.
const READS_PER_HOUR: u32 = 600;

/// Maximum shares that are known; further callers have one together.
const SHARES_MAX: usize = 1024;

/// How long entries are counted before the log says how many.
const LOGGED_EVERY: Duration = Duration::from_mins(5);

/// What a share is of: an operation, and a caller's name.
pub(super) type ShareKey = (Endpoint, String);

/// The shares of callers in the present hour.
#[derive(Debug, Default)]
pub(super) struct EntryBudgets(HashMap<ShareKey, SpentShare>);

/// What a caller has spent of its share.
#[derive(Debug)]
struct SpentShare {
    since: Instant,
    entries: u32,
    /// Those beyond that are in no `Counted` entry yet.
    unlogged: u64,
    /// Those beyond that are, and when the last such entry was stored.
    logged: u64,
    logged_at: Instant,
}

impl SpentShare {
    /// Whether the log has to say how many were counted: when that begins, when there are more than the
    /// last entry has announced, and after a while.
    fn is_due(&self, now: Instant) -> bool {
        self.unlogged > announced(self.logged)
            || self.unlogged > 0 && now.duration_since(self.logged_at) >= LOGGED_EVERY
    }

    fn has_counted(&self) -> bool {
        self.unlogged > 0 || self.logged > 0
    }

    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= HOUR
    }
}

/// How many may be counted behind an entry after which the log says `logged`. So it has all that was let
/// through whenever it fails or the process is killed, with few entries: the number doubles from each to
/// the next.
const fn announced(logged: u64) -> u64 {
    logged.saturating_sub(1)
}

/// How an entry is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// It is stored.
    Entry,
    /// It is counted.
    Counted,
    /// It is counted, and the log has to say how many are.
    CountedDue,
}

/// Entries that were only counted.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct CountedEntries {
    pub(super) key: ShareKey,
    /// Those that are in no `Counted` entry yet.
    pub(super) count: u64,
    /// How many may follow without another entry; `None` once their hour is over.
    pub(super) more: Option<u64>,
}

impl EntryBudgets {
    /// How an entry of this caller is to be kept; it is counted as kept so.
    pub(super) fn take(&mut self, key: &ShareKey, now: Instant) -> Taken {
        let most = if key.0 == Endpoint::Resources { READS_PER_HOUR } else { PER_HOUR };
        let new = SpentShare { since: now, entries: 0, unlogged: 0, logged: 0, logged_at: now };
        let share = self.0.entry(key.clone()).or_insert(new);
        if share.entries < most {
            share.entries += 1;
            return Taken::Entry;
        }
        share.unlogged += 1;
        if share.is_due(now) { Taken::CountedDue } else { Taken::Counted }
    }

    /// The share of a caller: its own, or that of all who came when there was no more room.
    pub(super) fn key(&self, (endpoint, caller): (Endpoint, &str)) -> ShareKey {
        let key = (endpoint, caller.to_owned());
        let has_room = self.0.len() < SHARES_MAX || self.0.contains_key(&key);
        if has_room { key } else { (endpoint, String::new()) }
    }

    /// An entry that was taken was neither stored nor counted.
    pub(super) fn give_back(&mut self, key: &ShareKey, taken: Taken) {
        let Some(share) = self.0.get_mut(key) else { return };
        match taken {
            Taken::Entry => share.entries = share.entries.saturating_sub(1),
            Taken::Counted | Taken::CountedDue => {
                share.unlogged = share.unlogged.saturating_sub(1);
            }
        }
    }

    /// What was counted of a share and is not logged.
    pub(super) fn unlogged(&self, key: &ShareKey) -> Option<CountedEntries> {
        let share = self.0.get(key)?;
        let count = share.unlogged;
        let more = Some(announced(share.logged.saturating_add(count)));
        Some(CountedEntries { key: key.clone(), count, more })
    }

    /// What was only counted in shares whose hour is over; others are forgotten.
    pub(super) fn ended(&mut self, now: Instant) -> Vec<CountedEntries> {
        self.0.retain(|_, share| !share.is_over(now) || share.has_counted());
        self.counted(|share| share.is_over(now))
    }

    /// What was only counted in all shares.
    pub(super) fn all(&self) -> Vec<CountedEntries> {
        self.counted(SpentShare::has_counted)
    }

    /// Notes that an entry about these is stored.
    pub(super) fn note_logged(&mut self, counted: &CountedEntries, now: Instant) {
        if counted.more.is_none() {
            self.0.remove(&counted.key);
        } else if let Some(share) = self.0.get_mut(&counted.key) {
            share.logged = share.logged.saturating_add(counted.count);
            share.unlogged = share.unlogged.saturating_sub(counted.count);
            share.logged_at = now;
        }
    }

    fn counted(&self, is_one: impl Fn(&SpentShare) -> bool) -> Vec<CountedEntries> {
        let counted = self.0.iter().filter(|(_, share)| is_one(share));
        let entries = |(key, share): (&ShareKey, &SpentShare)| CountedEntries {
            key: key.clone(),
            count: share.unlogged,
            more: None,
        };
        counted.map(entries).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eve() -> ShareKey {
        (Endpoint::EndSession, "eve".to_owned())
    }

    /// 219 entries a second, as somebody could cause: a share of them is stored, the rest counted, and
    /// the log says how many when that begins, when they have doubled, and each five minutes.
    #[test]
    fn a_flood_of_one_caller_is_stored_in_part_and_counted() {
        let (mut budgets, began) = (EntryBudgets::default(), Instant::now());
        let (mut stored, mut logged) = (0, 0);
        for number in 0..219 * 3000 {
            let now = began + Duration::from_secs(number / 219);
            match budgets.take(&eve(), now) {
                Taken::Entry => stored += 1,
                Taken::Counted => {}
                Taken::CountedDue => {
                    let counted = budgets.unlogged(&eve()).unwrap();
                    budgets.note_logged(&counted, now);
                    logged += 1;
                }
            }
        }
        assert_eq!(stored, 60);
        assert!((20..=32).contains(&logged), "{logged}");
        assert_eq!(budgets.take(&(Endpoint::EndSession, "ops".into()), began), Taken::Entry);
        assert_eq!(budgets.take(&(Endpoint::Trace, "eve".into()), began), Taken::Entry);
        assert_eq!(budgets.ended(began + HOUR / 2), []);
        let ended = budgets.ended(began + HOUR);
        let [last] = &ended[..] else { panic!("{ended:?}") };
        assert!(
            last.more.is_none() && last.key == eve() && last.count < 219 * 3000 / 2,
            "{last:?}"
        );
        assert_eq!(budgets.ended(began + HOUR), ended, "until the log has it");
        budgets.note_logged(last, began + HOUR);
        assert_eq!(budgets.take(&eve(), began + HOUR), Taken::Entry, "the next hour");
    }

    #[test]
    fn what_was_not_stored_is_given_back() {
        let (mut budgets, now) = (EntryBudgets::default(), Instant::now());
        for _ in 0..200 {
            assert_eq!(budgets.take(&eve(), now), Taken::Entry);
            budgets.give_back(&eve(), Taken::Entry);
        }
    }

    #[test]
    fn shares_are_bounded() {
        let (mut budgets, now) = (EntryBudgets::default(), Instant::now());
        for number in 0..5000 {
            let key = budgets.key((Endpoint::Trace, &number.to_string()));
            budgets.take(&key, now);
        }
        assert!(budgets.0.len() <= SHARES_MAX + 1);
        assert_eq!(budgets.all()[0].key.1, "", "further ones have one together");
    }
}
