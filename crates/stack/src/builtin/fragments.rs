//! The verdicts on first fragments of packets, for the later ones.

use super::{filter::By, headers::FragmentedPacket};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Maximum fragmented packets whose verdict is remembered.
pub(super) const FRAGMENTED_MAX: usize = 1024;

/// How long it is remembered: as long as receivers wait for fragments (RFC 8200 §4.5: 60 seconds).
const REMEMBERED_FOR: Duration = Duration::from_mins(1);

/// The rules that decided about the first fragments of packets.
///
/// The last first fragment of a packet counts: each was judged itself, and a taken one never
/// arrives.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    known: HashMap<FragmentedPacket, (By, Duration)>,
    /// In the order in which they came, with the time until which each is remembered.
    order: VecDeque<(FragmentedPacket, Duration)>,
}

impl Verdicts {
    /// The rule that decided about the first fragment of a packet.
    pub(super) fn of(&self, packet: FragmentedPacket, now: Duration) -> Option<By> {
        let &(by, until) = self.known.get(&packet)?;
        (until > now).then_some(by)
    }

    /// Remembers the deciding rule; returns whether an unexpired entry was forgotten for it.
    pub(super) fn remember(&mut self, packet: FragmentedPacket, by: By, now: Duration) -> bool {
        let until = now + REMEMBERED_FOR;
        if let Some(known) = self.known.get_mut(&packet).filter(|(_, until)| *until > now) {
            known.0 = by;
            return false;
        }
        let mut forgotten = false;
        while let Some(&(oldest, its)) = self.order.front()
            && (its <= now || self.order.len() >= FRAGMENTED_MAX)
        {
            forgotten |= its > now;
            self.order.pop_front();
            self.known.remove(&oldest);
        }
        self.known.insert(packet, (by, until));
        self.order.push_back((packet, until));
        forgotten
    }
}
