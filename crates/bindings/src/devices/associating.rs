//! Turns of association requests: so many are in work at a time, and the others wait.
//!
//! An association takes the processor time of many reports. If all devices associate at once, as
//! after a restart of the gateway, reports are late; a device whose report is late aborts and
//! associates again, and so adds to the load. A request that waits costs nothing: its device sends
//! no report yet. Addresses take turns, so that one with many connections keeps out no other.

use core::sync::atomic::{AtomicU64, Ordering};
use gatewright_health::apdu::{is_abort, is_association_request};
use gatewright_health::association::AssociationState;
use gatewright_onem2m::network;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Associations in work at a time. Each waits for several commits one after the other: fewer would
/// wait for the disk although the processor has time.
pub(super) const IN_WORK_MAX: usize = 64;

/// Association requests in work, and those that wait.
#[derive(Debug)]
pub(super) struct AssociationTurns {
    most: usize,
    waited: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entered: u64,
    in_work: usize,
    /// Addresses with requests that wait, each once: they take turns.
    addresses: VecDeque<IpAddr>,
    /// The requests of each, in the order in which they came; none is empty.
    lines: HashMap<IpAddr, BTreeMap<u64, oneshot::Sender<()>>>,
}

/// Guard of an association in work: another one begins when this is dropped.
#[derive(Debug)]
pub(super) struct AssociationTurn(Arc<AssociationTurns>);

/// A place among the requests that wait.
#[derive(Debug)]
pub(super) struct WaitingTurn {
    turns: Arc<AssociationTurns>,
    address: IpAddr,
    number: u64,
    comes: oneshot::Receiver<()>,
    /// Whether the turn has come and was taken.
    is_taken: bool,
}

/// The association request of one connection: in work, or waiting for its turn.
#[derive(Debug)]
pub(super) struct Associating {
    turns: Arc<AssociationTurns>,
    address: IpAddr,
    waiting: Option<(Box<[u8]>, WaitingTurn)>,
    turn: Option<AssociationTurn>,
}

impl AssociationTurns {
    /// Has `most` associations in work at a time.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, waited: AtomicU64::new(0), state: Mutex::default() })
    }

    /// Association requests that had to wait.
    pub(super) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// Takes a turn, or a place among those that wait.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Result<AssociationTurn, WaitingTurn> {
        let mut state = self.lock();
        if state.in_work < self.most {
            state.in_work += 1;
            return Ok(AssociationTurn(Arc::clone(self)));
        }
        state.entered += 1;
        let number = state.entered;
        let (sender, comes) = oneshot::channel();
        let line = state.lines.entry(address).or_default();
        line.insert(number, sender);
        if line.len() == 1 {
            state.addresses.push_back(address);
        }
        drop(state);
        self.waited.fetch_add(1, Ordering::Relaxed);
        let turns = Arc::clone(self);
        Err(WaitingTurn { turns, address, number, comes, is_taken: false })
    }

    /// Ends one in work, and has the next one begin.
    fn end_one(&self) {
        let mut state = self.lock();
        state.in_work = state.in_work.saturating_sub(1);
        while state.in_work < self.most
            && let Some(next) = state.next()
        {
            if next.send(()).is_ok() {
                state.in_work += 1;
            }
        }
    }

    /// A poisoned lock is safe here: the lines stay consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest request of the address whose turn it is.
    fn next(&mut self) -> Option<oneshot::Sender<()>> {
        let address = self.addresses.pop_front()?;
        let line = self.lines.get_mut(&address)?;
        let (_, next) = line.pop_first()?;
        if line.is_empty() {
            self.lines.remove(&address);
        } else {
            self.addresses.push_back(address);
        }
        Some(next)
    }

    /// Removes a request that waits no longer; returns whether it was there.
    fn leave(&mut self, address: IpAddr, number: u64) -> bool {
        let Some(line) = self.lines.get_mut(&address) else { return false };
        let was_there = line.remove(&number).is_some();
        if line.is_empty() {
            self.lines.remove(&address);
            self.addresses.retain(|other| *other != address);
        }
        was_there
    }
}

impl Drop for AssociationTurn {
    fn drop(&mut self) {
        self.0.end_one();
    }
}

impl Drop for WaitingTurn {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let was_there = self.turns.lock().leave(self.address, self.number);
        if !was_there {
            // Its turn has come, and nobody takes it.
            self.turns.end_one();
        }
    }
}

impl Associating {
    /// Nothing was requested yet over a connection from this address.
    pub(super) fn new(turns: &Arc<AssociationTurns>, address: IpAddr) -> Self {
        let (turns, address) = (Arc::clone(turns), network(address));
        Self { turns, address, waiting: None, turn: None }
    }

    /// Whether an APDU that has arrived waits, as it requests an association while enough are in
    /// work. A device that has no answer repeats its request, and at last aborts: only the last one
    /// counts, and none that was aborted.
    pub(super) fn holds(&mut self, state: AssociationState, apdu: &[u8]) -> bool {
        if state != AssociationState::Unassociated {
            return false;
        }
        if is_abort(apdu) {
            self.waiting = None;
        }
        if !is_association_request(apdu) {
            return false;
        }
        if let Some((waiting, _)) = &mut self.waiting {
            *waiting = apdu.into();
            return true;
        }
        match self.turns.take(self.address) {
            Ok(turn) => {
                self.turn = Some(turn);
                false
            }
            Err(waiting) => {
                self.waiting = Some((apdu.into(), waiting));
                true
            }
        }
    }

    /// Whether a request waits.
    pub(super) const fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Waits until the turn of the request comes; never ready without one. Dropping the future loses
    /// nothing.
    pub(super) async fn turn_comes(&mut self) -> Box<[u8]> {
        let Some((_, waiting)) = &mut self.waiting else { return core::future::pending().await };
        // The sender goes with the turns, which this holds.
        let _ = (&mut waiting.comes).await;
        let Some((apdu, mut waiting)) = self.waiting.take() else {
            return core::future::pending().await;
        };
        waiting.is_taken = true;
        self.turn = Some(AssociationTurn(Arc::clone(&self.turns)));
        apdu
    }

    /// Ends the work on an association, if there is any.
    pub(super) fn end_turn(&mut self) {
        self.turn = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An association request and an abort of ISO/IEEE 11073-20601, of which nothing but the choice
    /// is looked at.
    const AARQ: [u8; 4] = [0xE2, 0, 0, 0];
    const ABRT: [u8; 6] = [0xE6, 0, 0, 2, 0, 0];

    fn connection(turns: &Arc<AssociationTurns>, address: &str) -> Associating {
        Associating::new(turns, address.parse().unwrap())
    }

    fn request(connection: &mut Associating) -> bool {
        connection.holds(AssociationState::Unassociated, &AARQ)
    }

    /// Whether the turn has come; it is taken then.
    fn has_come(connection: &mut Associating) -> bool {
        let mut context = core::task::Context::from_waker(core::task::Waker::noop());
        core::pin::pin!(connection.turn_comes()).poll(&mut context).is_ready()
    }

    #[test]
    fn addresses_take_turns() {
        let turns = AssociationTurns::new(1);
        let mut first = connection(&turns, "127.0.0.1");
        assert!(!request(&mut first));
        let mut greedy: Vec<_> = (0..3).map(|_| connection(&turns, "127.0.0.2")).collect();
        assert!(greedy.iter_mut().all(request));
        let mut polite = connection(&turns, "127.0.0.3");
        assert!(request(&mut polite));
        first.end_turn();
        assert!(has_come(&mut greedy[0]) && !has_come(&mut polite));
        greedy[0].end_turn();
        assert!(has_come(&mut polite) && !has_come(&mut greedy[1]));
        polite.end_turn();
        assert!(has_come(&mut greedy[1]) && !has_come(&mut greedy[2]));
        assert_eq!(turns.waited(), 4);
    }

    /// Whoever goes away leaves no place behind, whether its turn had come or not.
    #[test]
    fn who_goes_away_keeps_out_nobody() {
        let turns = AssociationTurns::new(1);
        let [mut first, mut second, mut third, mut fourth] =
            [(); 4].map(|()| connection(&turns, "127.0.0.1"));
        assert!(!request(&mut first));
        assert!([&mut second, &mut third, &mut fourth].into_iter().all(request));
        drop(second);
        // It is the third one's turn, which it has not taken.
        drop(first);
        drop(third);
        assert!(has_come(&mut fourth));
        drop(fourth);
        let state = turns.lock();
        assert!(state.in_work == 0 && state.lines.is_empty() && state.addresses.is_empty());
    }

    /// The device has sent its request twice, as it had no answer, and another one aborts.
    #[test]
    fn a_repeated_request_is_one_and_an_aborted_one_is_none() {
        let turns = AssociationTurns::new(1);
        let mut first = connection(&turns, "127.0.0.1");
        assert!(!request(&mut first));
        let (mut patient, mut other) =
            (connection(&turns, "127.0.0.1"), connection(&turns, "127.0.0.1"));
        assert!(request(&mut other) && request(&mut patient) && request(&mut patient));
        assert!(!other.holds(AssociationState::Unassociated, &ABRT));
        assert!(patient.is_waiting() && !other.is_waiting());
        first.end_turn();
        assert!(has_come(&mut patient) && !patient.is_waiting());
        // What comes within an association is the manager's affair.
        assert!(!patient.holds(AssociationState::Operating, &AARQ));
        assert_eq!(turns.waited(), 2);
    }
}
