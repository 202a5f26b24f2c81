//! How many requests of a queue, or for a target, may be in progress.
//!
//! A path of 20 ms carries 3,200 messages of a queue in a second if 64 are in progress, and a target
//! that executes ten in a second answers 64 within its time limit only if they are fewer. So a window
//! opens by one with each answer that comes soon, which doubles it in a round trip (as slow start
//! does, RFC 5681 §3.1), and halves when requests wait for each other at the target, which shows
//! by their delay (as in LEDBAT, RFC 6817 §2.4.2).

use crate::limits::Limits;
use core::time::Duration;

/// Delay of an answer, beyond that of the fastest one from the same target, from which it is late.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// The size of a window at first, and at most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct WindowRange {
    pub(super) first: usize,
    pub(super) most: usize,
}

impl WindowRange {
    /// Of a queue: one until its first answer.
    pub(super) const fn of_queue(limits: &Limits) -> Self {
        Self { first: 1, most: limits.queue_window }
    }

    /// Of a target that has answered: as many as one queue may have.
    pub(super) const fn of_target(limits: &Limits) -> Self {
        Self { first: limits.queue_window, most: limits.target_window }
    }
}

/// A window of requests in progress.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Window {
    /// Its size, once it has changed.
    size: Option<usize>,
    /// The last request that was sent before it was halved: an answer to an earlier one says nothing
    /// about the smaller window.
    halved_after: u64,
}

impl Window {
    /// Its size.
    pub(super) fn size(&self, range: WindowRange) -> usize {
        self.size.unwrap_or(range.first).clamp(1, range.most.max(1))
    }

    /// Notes that request `number` was answered; `sent` is the last one that was sent.
    pub(super) fn note(&mut self, is_late: bool, (number, sent): (u64, u64), range: WindowRange) {
        let size = self.size(range);
        if !is_late {
            self.size = Some(size.saturating_add(1).min(range.most));
        } else if number > self.halved_after {
            self.halve(sent, range);
        }
    }

    /// Halves it.
    pub(super) fn halve(&mut self, sent: u64, range: WindowRange) {
        self.size = Some((self.size(range) / 2).max(1));
        self.halved_after = sent;
    }

    /// Makes it one request.
    pub(super) const fn shut(&mut self) {
        self.size = Some(1);
    }
}

/// Tells late answers of one target from others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct AnswerTimes {
    fastest: Option<Duration>,
}

impl AnswerTimes {
    /// Notes how long an answer has taken; returns whether it is late.
    pub(super) fn note(&mut self, took: Duration) -> bool {
        let fastest = self.fastest.map_or(took, |fastest| fastest.min(took));
        self.fastest = Some(fastest);
        took > fastest.saturating_add(LATE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: WindowRange = WindowRange { first: 1, most: 128 };

    /// Sends as many requests as the window allows for `rounds` round trips to a target that answers
    /// one after the other, each `each` after the last, over a path of `path`; the size of the
    /// window and the longest delay of an answer in the last half of the rounds.
    fn settle(path: Duration, each: Duration, answers: u64) -> (usize, Duration) {
        let (mut window, mut times) = (Window::default(), AnswerTimes::default());
        let (mut now, mut free_at, mut sent) = (Duration::ZERO, Duration::ZERO, 0);
        let mut pending = std::collections::VecDeque::new();
        let mut longest = Duration::ZERO;
        for number in 1..=answers {
            while pending.len() < window.size(RANGE) {
                sent += 1;
                free_at = (now + path / 2).max(free_at) + each;
                pending.push_back((now, free_at + path / 2));
            }
            let (since, until) = pending.pop_front().unwrap();
            now = until;
            if number > answers / 2 {
                longest = longest.max(now.saturating_sub(since));
            }
            let is_late = times.note(now.saturating_sub(since));
            window.note(is_late, (number, sent), RANGE);
        }
        (window.size(RANGE), longest)
    }

    /// RFC 5681 §3.1: as many again in each round trip.
    #[test]
    fn a_path_with_a_round_trip_of_20_ms_gets_the_whole_window_in_eight_of_them() {
        let path = Duration::from_millis(20);
        assert_eq!(settle(path, Duration::ZERO, 127).0, 128);
        // A path by satellite, too: what is far away is not late.
        assert_eq!(settle(Duration::from_millis(2_500), Duration::ZERO, 1_000).0, 128);
    }

    /// What a slow target has not answered within the time limit (10 s) is sent again.
    #[test]
    fn a_slow_target_gets_no_more_than_it_answers_in_time() {
        for each in [20, 100, 250, 700, 2_000] {
            let each = Duration::from_millis(each);
            let (size, longest) = settle(Duration::from_millis(20), each, 2_000);
            assert!(longest < Duration::from_secs(7), "{each:?}: {longest:?} with {size}");
            // It always has one to do.
            assert!(size > 1 || each > LATE_AFTER / 2, "{each:?}: {size}");
        }
    }

    #[test]
    fn answers_to_what_was_sent_before_halve_it_once() {
        let range = WindowRange { first: 64, most: 100 };
        let mut window = Window::default();
        for number in 1..=64 {
            window.note(true, (number, 64), range);
        }
        assert_eq!(window.size(range), 32);
        window.note(true, (65, 96), range);
        assert_eq!(window.size(range), 16);
        window.shut();
        window.halve(96, range);
        assert_eq!(window.size(range), 1);
        for number in 97..=300 {
            window.note(false, (number, number), range);
        }
        assert_eq!(window.size(range), 100);
    }
}
