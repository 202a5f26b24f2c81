//! Octets of answers that their peers have not read yet: bounded for each peer and for all.
//!
//! An answer reserves its octets before it is rendered and gives them back when its last copy is
//! gone: when it is written, or its connection has ended. Nothing waits for octets of others: what
//! does not fit is refused at once. Small answers have a quarter of each bound, which larger ones
//! cannot use up.

use crate::limits::Limits;
use crate::prefix::network;
use core::net::IpAddr;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets of the largest answer that counts as small.
pub const SMALL_OCTETS: usize = 64 * 1024;
/// The part of a bound that is kept for small answers: one of so many.
const SMALL_SHARE: usize = 4;

/// Octets of all reserved answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerOctets(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: Held,
    peers: HashMap<AnswerPeer, Held>,
    /// The most that all were at a time.
    peak: usize,
}

/// Octets by size of the answers.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    small: usize,
    large: usize,
}

impl Held {
    const fn sum(self) -> usize {
        self.small.saturating_add(self.large)
    }

    const fn of(&mut self, octets: usize) -> &mut usize {
        if octets <= SMALL_OCTETS { &mut self.small } else { &mut self.large }
    }

    /// Whether a number of further octets fits the answer's share of `bound`. One answer goes
    /// alone, however large: whoever bounds answers bounds it.
    const fn has_room(mut self, octets: usize, bound: usize) -> bool {
        let small = bound / SMALL_SHARE;
        let share = if octets <= SMALL_OCTETS { small } else { bound - small };
        let held = *self.of(octets);
        held == 0 || held.saturating_add(octets) <= share
    }

    fn add(&mut self, octets: usize) {
        let held = self.of(octets);
        *held = held.saturating_add(octets);
    }

    fn subtract(&mut self, octets: usize) {
        let held = self.of(octets);
        *held = held.saturating_sub(octets);
    }
}

/// The peer that an answer is for: its address, for IPv6 its /64 network, or else its originator.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum AnswerPeer {
    Address(IpAddr),
    Originator(Arc<str>),
}

impl AnswerPeer {
    pub(crate) fn new(source: Option<IpAddr>, originator: &Arc<str>) -> Self {
        match source {
            Some(address) => Self::Address(network(address)),
            None => Self::Originator(Arc::clone(originator)),
        }
    }
}

/// The bound that has no room for an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AnswersFull {
    /// The peer's own.
    OfPeer,
    /// The one of all peers.
    OfAll,
}

impl AnswerOctets {
    /// Octets that are reserved, and the most that ever were.
    pub(crate) fn held(&self) -> (usize, usize) {
        let state = self.lock();
        (state.all.sum(), state.peak)
    }

    /// A poisoned lock is safe here: the counts stay consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Changes an answer's octets from `before` to `after`, if `bounds` has room or is `None`.
    fn change(
        &mut self,
        peer: &AnswerPeer,
        (before, after): (usize, usize),
        limits: Option<&Limits>,
    ) -> Result<(), AnswersFull> {
        let mut of_peer = self.peers.get(peer).copied().unwrap_or_default();
        let mut all = self.all;
        of_peer.subtract(before);
        all.subtract(before);
        if let Some(limits) = limits {
            if !of_peer.has_room(after, limits.unread_octets_per_peer) {
                return Err(AnswersFull::OfPeer);
            }
            if !all.has_room(after, limits.unread_octets) {
                return Err(AnswersFull::OfAll);
            }
        }
        of_peer.add(after);
        all.add(after);
        self.all = all;
        self.peak = self.peak.max(all.sum());
        match self.peers.entry(peer.clone()) {
            Entry::Occupied(entry) if of_peer.sum() == 0 => drop(entry.remove()),
            Entry::Occupied(mut entry) => *entry.get_mut() = of_peer,
            Entry::Vacant(entry) => drop(entry.insert(of_peer)),
        }
        Ok(())
    }
}

/// Octets that are reserved for one answer until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedOctets {
    of: AnswerOctets,
    peer: AnswerPeer,
    octets: usize,
}

impl ReservedOctets {
    /// A reservation of no octets.
    pub(crate) const fn new(of: AnswerOctets, peer: AnswerPeer) -> Self {
        Self { of, peer, octets: 0 }
    }

    /// Reserves `octets` in place of those so far.
    ///
    /// # Errors
    ///
    /// Whose bound has no room; then those so far stay reserved.
    pub(crate) fn reserve(&mut self, octets: usize, limits: &Limits) -> Result<(), AnswersFull> {
        self.change(octets, Some(limits))
    }

    /// Counts `octets` in place of those so far: the answer is rendered.
    pub(crate) fn settle(&mut self, octets: usize) {
        // Without bounds nothing is refused.
        let _ = self.change(octets, None);
    }

    fn change(&mut self, octets: usize, limits: Option<&Limits>) -> Result<(), AnswersFull> {
        if octets != self.octets {
            self.of.lock().change(&self.peer, (self.octets, octets), limits)?;
            self.octets = octets;
        }
        Ok(())
    }
}

impl Drop for ReservedOctets {
    fn drop(&mut self) {
        self.settle(0);
    }
}

/// Reservation of an answer, shared by its copies: whoever copies its octets keeps this until they
/// are written.
///
/// It is not a part of what the answer says, so all are equal.
#[derive(Clone, Debug, Default)]
pub struct Reservation(Option<Arc<ReservedOctets>>);

impl Reservation {
    /// Whether octets are reserved.
    pub const fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

impl From<ReservedOctets> for Reservation {
    fn from(reserved: ReservedOctets) -> Self {
        Self(Some(Arc::new(reserved)))
    }
}

impl PartialEq for Reservation {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Reservation {}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = SMALL_OCTETS + 1;

    fn peer(name: &str) -> AnswerPeer {
        AnswerPeer::Originator(name.into())
    }

    /// Room for three large answers and some small ones of a peer, and for twice that of all.
    fn limits() -> Limits {
        let octets = 4 * LARGE;
        Limits { unread_octets_per_peer: octets, unread_octets: 2 * octets, ..Limits::default() }
    }

    fn reserve(
        of: &AnswerOctets,
        name: &str,
        octets: usize,
    ) -> Result<ReservedOctets, AnswersFull> {
        let mut reserved = ReservedOctets::new(of.clone(), peer(name));
        reserved.reserve(octets, &limits()).map(|()| reserved)
    }

    #[test]
    fn large_answers_of_a_peer_and_of_all_are_bounded_and_small_ones_have_their_share() {
        let of = AnswerOctets::default();
        let mut held = Vec::new();
        for name in ["a", "b"] {
            for _ in 0..3 {
                held.push(reserve(&of, name, LARGE).unwrap());
            }
            assert_eq!(reserve(&of, name, LARGE).unwrap_err(), AnswersFull::OfPeer);
        }
        assert_eq!(reserve(&of, "c", LARGE).unwrap_err(), AnswersFull::OfAll);
        // Neither who has too many large ones nor anybody else is refused a small one for them.
        for name in ["a", "c"] {
            held.push(reserve(&of, name, SMALL_OCTETS).unwrap());
            assert_eq!(reserve(&of, name, SMALL_OCTETS).unwrap_err(), AnswersFull::OfPeer);
            held.push(reserve(&of, name, 1).unwrap());
        }
        assert_eq!(reserve(&of, "d", 2).unwrap_err(), AnswersFull::OfAll);
        let sum = 6 * LARGE + 2 * (SMALL_OCTETS + 1);
        assert_eq!(of.held(), (sum, sum));
        assert!(sum <= limits().unread_octets);
        drop(held);
        assert_eq!(of.held(), (0, sum));
        assert!(of.lock().peers.is_empty(), "nothing is reserved: nothing is remembered");
        // One that is larger than all of it goes alone.
        let alone = reserve(&of, "a", 100 * LARGE).unwrap();
        assert_eq!(reserve(&of, "b", LARGE).unwrap_err(), AnswersFull::OfAll);
        drop(alone);
        assert_eq!(of.held().0, 0);
    }

    #[test]
    fn a_reservation_that_cannot_grow_keeps_what_it_has() {
        let of = AnswerOctets::default();
        let mut grows = reserve(&of, "a", 1).unwrap();
        let others = [reserve(&of, "a", LARGE).unwrap(), reserve(&of, "a", LARGE).unwrap()];
        grows.reserve(LARGE, &limits()).unwrap();
        assert_eq!(grows.reserve(LARGE + 1, &limits()), Err(AnswersFull::OfPeer));
        assert_eq!(of.held().0, 3 * LARGE);
        // What is rendered is counted as it is.
        grows.settle(2 * LARGE);
        assert_eq!(of.held().0, 4 * LARGE);
        let shared = Reservation::from(grows);
        let copy = shared.clone();
        drop((others, shared));
        assert_eq!(of.held().0, 2 * LARGE);
        drop(copy);
        assert_eq!(of.held().0, 0);
    }
}
