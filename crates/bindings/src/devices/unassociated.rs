//! Connections over which no device is associated: bounded apart from those with one, so that silent
//! ones keep out nobody.

use core::sync::atomic::{AtomicU64, Ordering};
use gatewright_onem2m::network;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Connections without an association, by address. If there are too many, the oldest of the address
/// with the most gives way.
#[derive(Debug)]
pub(super) struct Unassociated {
    most: usize,
    evicted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entered: u64,
    count: usize,
    /// In the order in which they came; none is empty.
    addresses: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
}

/// Guard of a connection without an association: it counts until this is dropped.
#[derive(Debug)]
pub(super) struct UnassociatedGuard {
    of: Arc<Unassociated>,
    address: IpAddr,
    number: u64,
}

impl Unassociated {
    /// Admits `most` at a time.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, evicted: AtomicU64::new(0), state: Mutex::default() })
    }

    /// Connections that had to give way.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counts a connection of this address, which is told by `hang_up` that it has to give way.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        hang_up: &Arc<Notify>,
    ) -> UnassociatedGuard {
        let address = network(address);
        let mut state = self.lock();
        state.entered += 1;
        let number = state.entered;
        state.addresses.entry(address).or_default().insert(number, Arc::clone(hang_up));
        state.count += 1;
        let evicted = if state.count > self.most { state.evict() } else { None };
        drop(state);
        if let Some(evicted) = evicted {
            self.evicted.fetch_add(1, Ordering::Relaxed);
            evicted.notify_one();
        }
        UnassociatedGuard { of: Arc::clone(self), address, number }
    }

    /// A poisoned lock is safe here: the counts stay consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest connection of the address with the most; of several such, the oldest of all.
    fn evict(&mut self) -> Option<Arc<Notify>> {
        let first = |of: &BTreeMap<u64, _>| of.keys().next().copied().unwrap_or(u64::MAX);
        let order = |(_, of): &(&IpAddr, &BTreeMap<u64, _>)| (of.len(), u64::MAX - first(of));
        let (address, of) = self.addresses.iter().max_by_key(order)?;
        let (address, number) = (*address, first(of));
        self.remove(address, number)
    }

    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Arc<Notify>> {
        let of = self.addresses.get_mut(&address)?;
        let removed = of.remove(&number)?;
        self.count -= 1;
        if of.is_empty() {
            self.addresses.remove(&address);
        }
        Some(removed)
    }
}

impl Drop for UnassociatedGuard {
    fn drop(&mut self) {
        // One that gave way is not there any more.
        let _evicted = self.of.lock().remove(self.address, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_told(hang_up: &Notify) -> bool {
        use core::future::Future;
        let mut notified = Box::pin(hang_up.notified());
        let mut context = core::task::Context::from_waker(core::task::Waker::noop());
        notified.as_mut().poll(&mut context).is_ready()
    }

    /// The greedy address loses its own, the oldest first, and never one of another address that has
    /// fewer.
    #[test]
    fn the_oldest_of_the_address_with_the_most_gives_way() {
        let of = Unassociated::new(4);
        let [greedy, polite] = ["127.0.0.2", "127.0.0.1"].map(|it| it.parse().unwrap());
        let enter = |address| {
            let hang_up = Arc::new(Notify::new());
            (of.enter(address, &hang_up), hang_up)
        };
        let first = enter(polite);
        let mut all: Vec<_> = (0..7).map(|_| enter(greedy)).collect();
        let told: Vec<_> = all.iter().map(|(_, hang_up)| is_told(hang_up)).collect();
        assert_eq!(told, [true, true, true, true, false, false, false]);
        assert!(!is_told(&first.1));
        assert_eq!((of.evicted(), of.lock().count), (4, 4));
        // One that has associated makes room, and an evicted one was counted no more already.
        drop(all.pop());
        drop(all.remove(0));
        assert_eq!(of.lock().count, 3);
        drop((first, all));
        let state = of.lock();
        assert!(state.addresses.is_empty() && state.count == 0);
    }
}
