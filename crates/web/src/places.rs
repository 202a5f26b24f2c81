//! The places of connections, and whose is given to a new one when all are taken.
//!
//! Who may connect takes a place with a handshake of TCP and nothing more. So the oldest connection
//! that has not asked anything gives way, or else the oldest whose caller is not known. Callers that
//! have shown a token, a session or a certificate keep their places; each has a share of them, and
//! viewers together leave a reserve. If nobody else is left, the viewer with most connections gives way.

use crate::{answer::WebRefusal, tokens::AccessRole};
use hyper::header::RETRY_AFTER;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// Maximum connections at a time. Each takes a descriptor and some 20 KiB.
pub(crate) const CONNECTIONS_MAX: usize = 512;

/// Maximum connections of one caller.
const OF_CALLER_MAX: usize = CONNECTIONS_MAX / 4;

/// Maximum connections of all viewers: the rest is for higher roles and for who has yet to ask.
const OF_VIEWERS_MAX: usize = CONNECTIONS_MAX / 4 * 3;

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
    /// Those of known callers.
    known: BTreeMap<u64, KnownPlace>,
}

/// The place of a known caller.
#[derive(Debug)]
struct KnownPlace {
    caller: String,
    role: AccessRole,
    gives_way: Arc<Notify>,
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
        first.map(|(_, gives_way)| gives_way).or_else(|| open.first_viewer())
    }

    /// A poisoned lock is safe here: each change is one call of a map.
    fn lock(&self) -> MutexGuard<'_, OpenPlaces> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenPlaces {
    /// Takes a connection out of its list.
    fn take(&mut self, number: u64) -> Option<Arc<Notify>> {
        let stranger = self.silent.remove(&number).or_else(|| self.unknown.remove(&number));
        stranger.or_else(|| self.known.remove(&number).map(|place| place.gives_way))
    }

    /// Takes out the oldest connection of the viewer that has most.
    fn first_viewer(&mut self) -> Option<Arc<Notify>> {
        let is_viewer = |place: &KnownPlace| place.role == AccessRole::Viewer;
        let mut counts = BTreeMap::<&str, usize>::new();
        for place in self.known.values().filter(|place| is_viewer(place)) {
            *counts.entry(&place.caller).or_default() += 1;
        }
        let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let mut its = self.known.iter();
        let first = its.find(|(_, place)| is_viewer(place) && place.caller == most);
        let number = *first?.0;
        self.known.remove(&number).map(|place| place.gives_way)
    }

    /// Checks that a further connection of a caller leaves the others their share.
    fn check_share(&self, number: u64, caller: &str, role: AccessRole) -> Result<(), WebRefusal> {
        let others = || self.known.iter().filter(|(other, _)| **other != number);
        let refuse = |why: String| {
            let refusal = WebRefusal::unavailable(why);
            Err(refusal.with(RETRY_AFTER, "1"))
        };
        if others().filter(|(_, place)| place.caller == caller).count() >= OF_CALLER_MAX {
            return refuse(format!("{caller} has {OF_CALLER_MAX} connections: close some"));
        }
        let of_viewers = others().filter(|(_, place)| place.role == AccessRole::Viewer).count();
        if role == AccessRole::Viewer && of_viewers >= OF_VIEWERS_MAX {
            return refuse(format!("viewers have {OF_VIEWERS_MAX} connections: come again later"));
        }
        Ok(())
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

    /// Records who its caller is: as one of these it does not give way to connections of strangers.
    ///
    /// # Errors
    ///
    /// 503 if the caller, or all viewers together, have their share of connections. This one gives
    /// way as those of strangers do then.
    pub(crate) fn is_known(&self, caller: &str, role: AccessRole) -> Result<(), WebRefusal> {
        let mut open = self.places.lock();
        if open.known.get(&self.number).is_some_and(|place| place.role >= role) {
            return Ok(());
        }
        open.check_share(self.number, caller, role)?;
        // One that gives way already is in no list.
        if let Some(gives_way) = open.take(self.number) {
            let place = KnownPlace { caller: caller.to_owned(), role, gives_way };
            open.known.insert(self.number, place);
        }
        Ok(())
    }

    /// Ends when it has to give way.
    pub(crate) async fn given_up(&self) {
        self.gives_way.notified().await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let _gone = self.places.lock().take(self.number);
        self.places.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_bindings::tasks::spawn;
    use hyper::StatusCode;

    /// Has connections give way until none does; returns their numbers in this order.
    async fn order(places: &Arc<Places>, open: Vec<ConnectionPlace>) -> Vec<u64> {
        let given_up = Arc::<Mutex<Vec<u64>>>::default();
        for place in open {
            let given_up = Arc::clone(&given_up);
            spawn(async move {
                place.given_up().await;
                given_up.lock().unwrap().push(place.number);
            });
        }
        while places.make_room().await {}
        given_up.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn the_silent_give_way_first_then_strangers_then_the_greediest_viewer() {
        let places = Arc::<Places>::default();
        let open: Vec<ConnectionPlace> = (0..9).map(|_| places.open()).collect();
        open[0].asks();
        open[3].asks();
        open[1].is_known("ops", AccessRole::Operator).unwrap();
        open[4].asks();
        open[4].is_known("eve", AccessRole::Viewer).unwrap();
        open[6].is_known("ann", AccessRole::Viewer).unwrap();
        open[7].is_known("eve", AccessRole::Viewer).unwrap();
        open[8].is_known("eve", AccessRole::Viewer).unwrap();
        open[8].is_known("boss", AccessRole::Admin).unwrap();
        let given_up = order(&places, open).await;
        assert_eq!(given_up[..4], [3, 6, 1, 4], "the silent, then strangers");
        assert_eq!(given_up[4], 5, "the oldest of who has most");
        let mut rest = given_up[5..].to_vec();
        rest.sort_unstable();
        assert_eq!(rest, [7, 8], "the other viewers, and neither operator nor admin");
        let state = places.lock();
        assert!(state.silent.is_empty() && state.unknown.is_empty());
    }

    /// One caller has no more than its share, and all viewers leave a reserve.
    #[test]
    fn callers_and_viewers_have_a_share() {
        let places = Arc::<Places>::default();
        let mut open = Vec::new();
        for viewer in ["a", "b", "c"] {
            for _ in 0..OF_CALLER_MAX {
                let place = places.open();
                place.is_known(viewer, AccessRole::Viewer).unwrap();
                open.push(place);
            }
            let further = places.open();
            let refused = further.is_known(viewer, AccessRole::Viewer).unwrap_err();
            assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(refused.why.starts_with(viewer), "{}", refused.why);
            assert!(places.lock().silent.contains_key(&further.number), "it gives way");
        }
        let refused = places.open().is_known("d", AccessRole::Viewer).unwrap_err();
        assert!(refused.why.starts_with("viewers"), "{}", refused.why);
        let place = places.open();
        place.is_known("ops", AccessRole::Operator).unwrap();
        open[0].is_known("a", AccessRole::Viewer).unwrap();
        drop(open.pop());
        places.open().is_known("c", AccessRole::Viewer).unwrap();
    }
}
