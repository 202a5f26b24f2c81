//! Which reads of values were logged a short time ago: a page that reads again each second would
//! otherwise displace all other events.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long a further read of the same is not logged.
const LOGGED_FOR: Duration = Duration::from_mins(1);

/// Maximum reads that are known; the oldest gives way, and is logged again.
const LOGGED_MAX: usize = 128;

/// The caller's name, its address, and what it reads.
pub(crate) type ValueRead = (String, Option<IpAddr>, String);

/// Reads of values that were logged, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct LoggedReads(Mutex<Vec<(ValueRead, Instant)>>);

impl LoggedReads {
    /// Whether this read is to be logged.
    pub(crate) fn is_new(&self, read: &ValueRead) -> bool {
        self.is_new_at(read, Instant::now())
    }

    fn is_new_at(&self, read: &ValueRead, now: Instant) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, since)| now.duration_since(*since) < LOGGED_FOR);
        if known.iter().any(|(other, _)| other == read) {
            return false;
        }
        if known.len() >= LOGGED_MAX {
            known.remove(0);
        }
        known.push((read.clone(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_logged_once_a_minute_by_caller_and_resource() {
        let reads = LoggedReads::default();
        let read = |name: &str, at: &str| (name.to_owned(), None, at.to_owned());
        let now = Instant::now();
        for (name, at, seconds, expected) in [
            ("ops", "/gw/a", 0, true),
            ("ops", "/gw/a", 59, false),
            ("ops", "/gw/b", 59, true),
            ("boss", "/gw/a", 59, true),
            ("ops", "/gw/a", 60, true),
        ] {
            let when = now + Duration::from_secs(seconds);
            assert_eq!(reads.is_new_at(&read(name, at), when), expected, "{name} {at} {seconds}");
        }
        for number in 0..1000 {
            assert!(reads.is_new_at(&read("ops", &number.to_string()), now));
        }
        assert_eq!(reads.0.lock().unwrap().len(), LOGGED_MAX);
    }
}
