//! Turns of peers: who sends much waits behind who sends little.
//!
//! All connections share the CSE. Without turns, requests are executed as their connections become
//! ready, so that a peer with a thousand of them has a thousand before the next one of another peer.
//! Here a peer takes a burst of requests in a round; further ones wait for the next round, which
//! begins when every connection that was ready has been looked at. A peer that stays within its burst
//! never waits.

use crate::quota::QuotaPeer;
use crate::tasks::spawn;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Charges of a peer's requests in a round.
const BURST: u64 = 16;
/// Octets of content for which a request is charged once more.
const CHARGE_OCTETS: u64 = 16 * 1024;
/// Peers of a round at most; the next one begins a new round.
const PEERS_MAX: usize = 1_024;

/// The turns of all peers.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Round>);

#[derive(Debug, Default)]
struct Round {
    peers: HashMap<QuotaPeer, Turn>,
    /// Whether a task is about to begin the next one.
    is_awaited: bool,
}

/// What a peer has taken in this round, and its requests that wait for the next.
#[derive(Debug, Default)]
struct Turn {
    taken: u64,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Turn {
    /// Whether a request with this charge has room in the round; any one does that comes first.
    const fn has_room(&self, charge: u64) -> bool {
        self.taken == 0 || self.taken.saturating_add(charge) <= BURST
    }
}

impl Round {
    /// Takes a turn, or a place in the peer's line.
    fn take(&mut self, who: &QuotaPeer, charge: u64) -> Option<oneshot::Receiver<()>> {
        if !self.peers.contains_key(who) {
            self.peers.insert(who.clone(), Turn::default());
        }
        let turn = self.peers.get_mut(who)?;
        if turn.waiting.is_empty() && turn.has_room(charge) {
            turn.taken += charge;
            return None;
        }
        let (go, turn_comes) = oneshot::channel();
        turn.waiting.push_back((charge, go));
        Some(turn_comes)
    }

    /// Begins the next round: each peer's first waiting requests go on. Returns whether others wait.
    fn begin(&mut self) -> bool {
        self.peers.retain(|_, turn| {
            turn.taken = 0;
            while let Some((charge, _)) = turn.waiting.front()
                && turn.has_room(*charge)
                && let Some((charge, go)) = turn.waiting.pop_front()
            {
                // One whose connection has ended takes nothing.
                if go.send(()).is_ok() {
                    turn.taken += charge;
                }
            }
            turn.taken > 0
        });
        self.peers.values().any(|turn| !turn.waiting.is_empty())
    }
}

impl Turns {
    /// Waits for the turn of a peer's request with so many octets of content.
    pub(crate) async fn take(self: &Arc<Self>, who: &QuotaPeer, octets: u64) {
        let turn_comes = {
            let mut round = self.lock();
            let turn_comes = round.take(who, 1 + octets / CHARGE_OCTETS);
            let is_full = turn_comes.is_some() || round.peers.len() > PEERS_MAX;
            if is_full && !core::mem::replace(&mut round.is_awaited, true) {
                spawn(Arc::clone(self).begin_rounds());
            }
            turn_comes
        };
        if let Some(turn_comes) = turn_comes {
            // At the end of the process nobody gives turns, and nobody needs one.
            let _ = turn_comes.await;
        }
    }

    /// Begins rounds until no request waits.
    async fn begin_rounds(self: Arc<Self>) {
        loop {
            // All that are ready now take part in the present round.
            tokio::task::yield_now().await;
            let mut round = self.lock();
            if !round.begin() {
                round.is_awaited = false;
                return;
            }
        }
    }

    /// A poisoned lock is safe here: each line stays whole.
    fn lock(&self) -> MutexGuard<'_, Round> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering};

    fn peer(name: &str) -> QuotaPeer {
        QuotaPeer::Originator(name.into())
    }

    /// Of a thousand requests of one peer, at most those of a round or two go before the one of another
    /// that came last; and all go.
    #[tokio::test]
    async fn one_request_does_not_wait_for_a_thousand_of_another_peer() {
        let (turns, taken) = (Arc::<Turns>::default(), Arc::<AtomicUsize>::default());
        let begin = |who: &'static str| {
            let (turns, taken) = (Arc::clone(&turns), Arc::clone(&taken));
            spawn(async move {
                turns.take(&peer(who), 0).await;
                taken.fetch_add(1, Ordering::Relaxed)
            })
        };
        let greedy: Vec<_> = (0..1_000).map(|_| begin("greedy")).collect();
        let before = begin("polite").await.unwrap();
        let burst = usize::try_from(BURST).unwrap();
        assert!((burst..=2 * burst).contains(&before), "{before} went before it");
        for one in greedy {
            one.await.unwrap();
        }
        assert_eq!(taken.load(Ordering::Relaxed), 1_001);
        assert!(turns.lock().peers.values().all(|turn| turn.waiting.is_empty()));
    }

    /// Large contents count more, and one that is larger than a burst goes alone.
    #[tokio::test]
    async fn large_contents_are_charged_more() {
        let mut round = Round::default();
        assert!(round.take(&peer("a"), 10).is_none());
        let second = round.take(&peer("a"), 10).expect("20 are more than a burst");
        let third = round.take(&peer("a"), 1).expect("it stands behind the one before");
        assert!(round.take(&peer("b"), 100).is_none());
        assert!(!round.begin(), "both fit the next round");
        assert_eq!(round.peers.len(), 1, "b has nothing more");
        second.await.unwrap();
        third.await.unwrap();
    }

    /// Requests whose connections have ended take no turn, and peers without any are forgotten.
    #[tokio::test]
    async fn who_has_gone_takes_no_turn() {
        let mut round = Round::default();
        assert!(round.take(&peer("a"), BURST).is_none());
        for _ in 0..100 {
            drop(round.take(&peer("a"), 1));
        }
        let stays = round.take(&peer("a"), 1).unwrap();
        assert!(!round.begin());
        stays.await.unwrap();
        assert!(!round.begin());
        assert!(round.peers.is_empty());
    }
}
