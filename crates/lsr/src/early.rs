//! Labelled frames that came before the entry of their label: a neighbour may use a path as soon as it
//! knows the label, and its frames overtake the message that completes the entry here.

use gatewright_packet::LinkIndex;
use gatewright_wire::mpls::Label;
use std::collections::VecDeque;
use std::time::Duration;

/// Frames that wait at the most: the first of a few paths that are made at the same time.
const FRAMES_MAX: usize = 64;
/// How long a frame waits for its entry: that needs one round trip.
const WAITS: Duration = Duration::from_secs(1);

/// A frame that waits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct EarlyFrame {
    /// The link by which it came.
    pub(crate) link: LinkIndex,
    label: Label,
    until: Duration,
    /// The frame from its Ethernet header on.
    pub(crate) octets: Vec<u8>,
}

/// The frames that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct EarlyFrames(VecDeque<EarlyFrame>);

impl EarlyFrames {
    /// Keeps a frame; returns how many were given up for it: too old ones, and the oldest if there
    /// are too many.
    pub(crate) fn keep(
        &mut self,
        now: Duration,
        (link, label): (LinkIndex, Label),
        octets: &[u8],
    ) -> u64 {
        let before = self.0.len();
        self.0.retain(|frame| frame.until > now);
        if self.0.len() >= FRAMES_MAX {
            self.0.pop_front();
        }
        let given_up = before.saturating_sub(self.0.len());
        self.0.push_back(EarlyFrame { link, label, until: now + WAITS, octets: octets.to_vec() });
        u64::try_from(given_up).unwrap_or(u64::MAX)
    }

    /// Gives up the frames of a label that is no more; returns how many there were.
    pub(crate) fn give_up(&mut self, label: Label) -> u64 {
        let before = self.0.len();
        self.0.retain(|frame| frame.label != label);
        u64::try_from(before.saturating_sub(self.0.len())).unwrap_or(u64::MAX)
    }

    /// Takes the frames of a label in the order in which they came, and returns how many of them had
    /// waited for too long.
    pub(crate) fn take(&mut self, now: Duration, label: Label) -> (Vec<EarlyFrame>, u64) {
        let all = core::mem::take(&mut self.0);
        let (mut taken, kept): (VecDeque<_>, _) =
            all.into_iter().partition(|frame| frame.label == label);
        self.0 = kept;
        let all = taken.len();
        taken.retain(|frame| frame.until > now);
        let given_up = u64::try_from(all.saturating_sub(taken.len())).unwrap_or(u64::MAX);
        (Vec::from(taken), given_up)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(early: &mut EarlyFrames, at_ms: u64, label: u32, octet: u8) -> u64 {
        early.keep(Duration::from_millis(at_ms), (LinkIndex(0), Label(label)), &[octet])
    }

    #[test]
    fn the_frames_of_a_label_come_out_once_and_in_order() {
        let mut early = EarlyFrames::default();
        for (label, octet) in [(16, 1), (17, 2), (16, 3)] {
            assert_eq!(keep(&mut early, 0, label, octet), 0);
        }
        let (taken, given_up) = early.take(Duration::ZERO, Label(16));
        assert_eq!(given_up, 0);
        assert_eq!(taken.iter().map(|frame| frame.octets[0]).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(early.take(Duration::ZERO, Label(16)), (vec![], 0));
        assert_eq!((keep(&mut early, 0, 18, 4), early.give_up(Label(18))), (0, 1));
        // Its entry came too late.
        assert_eq!(early.take(WAITS, Label(17)), (vec![], 1));
    }

    #[test]
    fn old_frames_and_the_oldest_of_too_many_are_given_up() {
        let mut early = EarlyFrames::default();
        keep(&mut early, 0, 16, 0);
        assert_eq!(keep(&mut early, 999, 16, 1), 0);
        assert_eq!(keep(&mut early, 1_000, 16, 2), 1);
        for _ in 2..FRAMES_MAX {
            assert_eq!(keep(&mut early, 1_000, 17, 3), 0);
        }
        assert_eq!(keep(&mut early, 1_000, 17, 4), 1);
        let (taken, _) = early.take(WAITS, Label(16));
        assert_eq!(taken.iter().map(|it| it.octets[0]).collect::<Vec<_>>(), [2]);
        assert_eq!(early.take(WAITS, Label(17)).0.len(), FRAMES_MAX - 1);
    }
}
