//! The places of connections, and whose is given to a new one when all are taken.
//!
//! Who may connect takes a place with a handshake of TCP and nothing more. So the oldest connection
//! that has not asked anything gives way, or else the oldest whose caller is not known; those of
//! callers that have shown a token, a session or a certificate stay.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// How long the connection that gives way may take to end.
const END_WITHIN: Duration = Duration::from_millis(200);

/// The open connections of a listener.
#[derive(Debug, Default)]
pub(crate) struct Places {
    open: Mutex<OpenPlaces>,
    /// One has ended.
    ended: Notify,
}

/// Connections by their number, the oldest first.
#[derive(Debug, Default)]
struct OpenPlaces {
    opened: u64,
    /// Those without a complete request.
    silent: BTreeMap<u64, Arc<Notify>>,
    /// Those that have asked, by callers that are not known.
    unknown: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    places: Arc<Places>,
    number: u64,
    gives_way: Arc<Notify>,
}

impl Places {
    /// The place of a new connection.
    pub(crate) fn open(self: &Arc<Self>) -> ConnectionPlace {
        let gives_way = Arc::<Notify>::default();
        let mut open = self.lock();
        open.opened += 1;
        let number = open.opened;
        open.silent.insert(number, Arc::clone(&gives_way));
        drop(open);
        ConnectionPlace { places: Arc::clone(self), number, gives_way }
    }

    /// Has a connection give way, and waits until it has ended; false if there is none that does.
    pub(crate) async fn make_room(&self) -> bool {
        let Some(gives_way) = self.first_to_go() else { return false };
        let ended = self.ended.notified();
        gives_way.notify_one();
        // It ends when it is next polled, unless its processor has something else to do.
        tokio::time::timeout(END_WITHIN, ended).await.is_ok()
    }

    /// Takes the connection that gives way next out of the list.
    fn first_to_go(&self) -> Option<Arc<Notify>> {
        let mut open = self.lock();
        let first = open.silent.pop_first().or_else(|| open.unknown.pop_first());
        first.map(|(_, gives_way)| gives_way)
    }

    /// A poisoned lock is safe here: each change is one call of a map.
    fn lock(&self) -> MutexGuard<'_, OpenPlaces> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    /// Records that a complete request has come.
    pub(crate) fn asks(&self) {
        let mut open = self.places.lock();
        if let Some(gives_way) = open.silent.remove(&self.number) {
            open.unknown.insert(self.number, gives_way);
        }
    }

    /// Records that its caller is known: it does not give way any more.
    pub(crate) fn is_known(&self) {
        let mut open = self.places.lock();
        open.silent.remove(&self.number);
        open.unknown.remove(&self.number);
    }

    /// Ends when it has to give way.
    pub(crate) async fn given_up(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.is_known();
        self.places.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_bindings::tasks::spawn;

    #[tokio::test]
    async fn the_silent_give_way_first_and_the_known_never() {
        let places = Arc::<Places>::default();
        let open: Vec<ConnectionPlace> = (0..6).map(|_| places.open()).collect();
        open[0].asks();
        open[3].asks();
        open[1].is_known();
        open[4].asks();
        open[4].is_known();
        let given_up = Arc::<Mutex<Vec<u64>>>::default();
        for place in open {
            let given_up = Arc::clone(&given_up);
            spawn(async move {
                place.given_up().await;
                given_up.lock().unwrap().push(place.number);
            });
        }
        while places.make_room().await {}
        assert_eq!(*given_up.lock().unwrap(), [3, 6, 1, 4]);
        let state = places.lock();
        assert!(state.silent.is_empty() && state.unknown.is_empty());
    }
}
