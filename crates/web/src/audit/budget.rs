//! How many entries of the audit log each caller may cause.

use crate::routes::Endpoint;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How long a share lasts.
const HOUR: Duration = Duration::from_hours(1);

/// Entries of one caller in an hour, of each operation: the log has room for a month of them.
const PER_HOUR: u32 = 60;

/// Reads of one caller that are logged in an hour.
const READS_PER_HOUR: u32 = 600;

/// Maximum shares that are known; further callers have one together.
const SHARES_MAX: usize = 1024;

/// The shares of callers in the present hour.
#[derive(Debug, Default)]
pub(super) struct EntryBudgets(HashMap<(Endpoint, String), SpentShare>);

/// What a caller has spent of its share.
#[derive(Debug)]
struct SpentShare {
    since: Instant,
    entries: u32,
    /// Those beyond.
    counted: u64,
}

/// Entries that were only counted.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct CountedEntries {
    pub(super) endpoint: Endpoint,
    pub(super) caller: String,
    pub(super) count: u64,
}

impl EntryBudgets {
    /// Whether an entry of this caller is to be stored; otherwise it is counted.
    pub(super) fn take(&mut self, (endpoint, caller): (Endpoint, &str), now: Instant) -> bool {
        let mut key = (endpoint, caller.to_owned());
        if self.0.len() >= SHARES_MAX && !self.0.contains_key(&key) {
            key.1.clear();
        }
        let new = SpentShare { since: now, entries: 0, counted: 0 };
        let share = self.0.entry(key).or_insert(new);
        let most = if endpoint == Endpoint::Resources { READS_PER_HOUR } else { PER_HOUR };
        let has_room = share.entries < most;
        if has_room {
            share.entries += 1;
        } else {
            share.counted += 1;
        }
        has_room
    }

    /// Forgets shares whose hour is over; returns what was only counted of them.
    pub(super) fn ended(&mut self, now: Instant) -> Vec<CountedEntries> {
        let ended = self.0.extract_if(|_, share| now.duration_since(share.since) >= HOUR);
        counted(ended)
    }

    /// Forgets all; returns what was only counted.
    pub(super) fn end(&mut self) -> Vec<CountedEntries> {
        counted(self.0.drain())
    }
}

fn counted(shares: impl Iterator<Item = ((Endpoint, String), SpentShare)>) -> Vec<CountedEntries> {
    let counted = shares.filter(|(_, share)| share.counted > 0);
    counted
        .map(|((endpoint, caller), share)| CountedEntries {
            endpoint,
            caller,
            count: share.counted,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 219 entries a second, as somebody could cause: a share of them is stored, the rest counted.
    #[test]
    fn a_flood_of_one_caller_is_stored_in_part_and_counted() {
        let (mut budgets, began) = (EntryBudgets::default(), Instant::now());
        let eve = (Endpoint::EndSession, "eve");
        let stored = (0..219 * 60)
            .filter(|second| budgets.take(eve, began + Duration::from_secs(second / 219)));
        assert_eq!(stored.count(), 60);
        assert!(budgets.take((Endpoint::EndSession, "ops"), began), "another caller's share");
        assert!(budgets.take((Endpoint::Trace, "eve"), began), "another operation's");
        assert_eq!(budgets.ended(began + HOUR / 2), []);
        let counted = budgets.ended(began + HOUR);
        let count = 219 * 60 - 60;
        let expected = CountedEntries { endpoint: eve.0, caller: "eve".to_owned(), count };
        assert_eq!(counted, [expected]);
        assert!(budgets.take(eve, began + HOUR), "the next hour");
    }

    #[test]
    fn shares_are_bounded() {
        let (mut budgets, now) = (EntryBudgets::default(), Instant::now());
        for number in 0..5000 {
            budgets.take((Endpoint::Trace, &number.to_string()), now);
        }
        assert!(budgets.0.len() <= SHARES_MAX + 1);
        assert_eq!(budgets.end()[0].caller, "", "further ones have one together");
    }
}
