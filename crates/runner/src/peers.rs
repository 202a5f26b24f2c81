//! Servers that a program's client roles cannot reach, as seen by all of its loops.

use gatewright_translate::machine::{PeerLoss, PeerReport, PeerSeen};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of servers of a program that are known to be lost. A program may take addresses
/// from messages, so there may be more; they are counted.
const LOST_MAX: usize = 64;

/// A change of a server that a program calls.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerChange {
    /// The program.
    pub program: String,
    /// The role that calls the server.
    pub role: String,
    /// The server's address.
    pub address: String,
    /// What has changed.
    pub state: PeerState,
}

impl fmt::Display for PeerChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, role, address, state } = self;
        match state {
            PeerState::Lost(cause) => {
                write!(f, "{program} cannot reach its {role} at {address}: {cause}")
            }
            PeerState::Back(after) => {
                let seconds = after.as_secs();
                write!(f, "{program} reaches its {role} at {address} again, after {seconds} s")
            }
        }
    }
}

/// Whether a server can be reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PeerState {
    /// It is lost, for this cause.
    Lost(String),
    /// It is back, after this time.
    Back(Duration),
}

/// A server that is lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LostPeer {
    /// The role that calls it.
    pub role: String,
    /// Its address.
    pub address: String,
    /// The cause.
    pub cause: String,
}

/// Receives changes of servers on a loop's own thread; it must not block.
#[derive(Clone)]
pub struct PeerSink(Arc<dyn Fn(PeerChange) + Send + Sync>);

impl PeerSink {
    /// A sink that calls `take`.
    pub fn new(take: impl Fn(PeerChange) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }
}

impl fmt::Debug for PeerSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSink").finish_non_exhaustive()
    }
}

/// The lost servers of a program. A clone is the same list.
#[derive(Clone, Debug)]
pub(crate) struct LostPeers(Arc<PeerList>);

#[derive(Debug)]
struct PeerList {
    sink: Option<PeerSink>,
    /// Whether any is lost: only then do loops ask their machines for servers that answer.
    is_any_lost: AtomicBool,
    /// By role and address.
    lost: Mutex<BTreeMap<(String, String), LostSince>>,
}

#[derive(Debug)]
struct LostSince {
    cause: String,
    since: Duration,
    /// Whether a connection is no proof that it is back: it had accepted connections before.
    is_silent: bool,
}

impl LostPeers {
    /// An empty list whose changes go to `sink`.
    pub(crate) fn new(sink: Option<PeerSink>) -> Self {
        let (is_any_lost, lost) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(PeerList { sink, is_any_lost, lost }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), LostSince>> {
        self.0.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_any_lost(&self) -> bool {
        self.0.is_any_lost.load(Ordering::Relaxed)
    }

    /// Takes a report of a machine of the program at `now`, with the system's error if there is one;
    /// returns whether the server is in the list, or need not be.
    pub(crate) fn take(
        &self,
        (program, role): (&str, &str),
        report: &PeerReport,
        (now, error): (Duration, Option<&io::Error>),
    ) -> bool {
        let key = (role.to_owned(), report.target.to_string());
        let mut lost = self.lock();
        let state = match report.seen {
            PeerSeen::Lost(_) if lost.contains_key(&key) => return true,
            PeerSeen::Lost(_) if lost.len() >= LOST_MAX => return false,
            PeerSeen::Lost(loss) => {
                let cause = cause(loss, error);
                let is_silent = loss == PeerLoss::Silent;
                lost.insert(key.clone(), LostSince { cause: cause.clone(), since: now, is_silent });
                PeerState::Lost(cause)
            }
            PeerSeen::Connected if lost.get(&key).is_some_and(|loss| loss.is_silent) => {
                return true;
            }
            PeerSeen::Connected | PeerSeen::Answered => match lost.remove(&key) {
                Some(loss) => PeerState::Back(now.saturating_sub(loss.since)),
                None => return true,
            },
        };
        self.0.is_any_lost.store(!lost.is_empty(), Ordering::Relaxed);
        drop(lost);
        if let Some(PeerSink(take)) = &self.0.sink {
            let (role, address) = key;
            take(PeerChange { program: program.to_owned(), role, address, state });
        }
        true
    }

    /// The list at this moment.
    pub(crate) fn lost(&self) -> Vec<LostPeer> {
        let lost = self.lock();
        let of = |((role, address), loss): (&(String, String), &LostSince)| LostPeer {
            role: role.clone(),
            address: address.clone(),
            cause: loss.cause.clone(),
        };
        lost.iter().map(of).collect()
    }

    /// Empties the list: another program calls others.
    pub(crate) fn clear(&self) {
        self.lock().clear();
        self.0.is_any_lost.store(false, Ordering::Relaxed);
    }
}

/// The cause in words.
fn cause(loss: PeerLoss, error: Option<&io::Error>) -> String {
    match (loss, error) {
        (PeerLoss::Unresolved, _) => "its name cannot be resolved".to_owned(),
        (PeerLoss::Unreachable | PeerLoss::Closed, Some(error)) => error.kind().to_string(),
        (PeerLoss::Unreachable, None) => "no connection can be made".to_owned(),
        (PeerLoss::Closed, None) => "it closed the connection".to_owned(),
        (PeerLoss::Silent, _) => "it did not answer in time".to_owned(),
        (PeerLoss::Refused, _) => {
            "the opening of the connection failed: it did not answer as the program expects"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_lang::ir::RoleId;
    use gatewright_translate::machine::RoleTarget;

    /// What the sink receives of reports, one a second.
    fn changes(seen: &[PeerSeen]) -> Vec<PeerState> {
        let told: Arc<Mutex<Vec<PeerState>>> = Arc::default();
        let log = Arc::clone(&told);
        let sink = PeerSink::new(move |change| log.lock().unwrap().push(change.state));
        let peers = LostPeers::new(Some(sink));
        for (second, &seen) in (0..).zip(seen) {
            let target = RoleTarget::Name("broker".to_owned(), 1883);
            let report = PeerReport { role: RoleId::new(0), target, seen };
            let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
            let now = Duration::from_secs(second);
            assert!(peers.take(("relay", "broker"), &report, (now, Some(&refused))));
            assert_eq!(peers.is_any_lost(), !peers.lost().is_empty());
        }
        let told = told.lock().unwrap();
        told.clone()
    }

    #[test]
    fn a_lost_server_is_told_once_and_so_is_its_return() {
        use PeerSeen::{Answered, Connected, Lost};
        let unreachable = Lost(PeerLoss::Unreachable);
        let refused = PeerState::Lost("connection refused".to_owned());
        let back = PeerState::Back(Duration::from_secs(2));
        assert_eq!(
            changes(&[unreachable, unreachable, Connected, Answered, unreachable]),
            [refused.clone(), back, refused]
        );
        // A server that accepts connections and answers nothing is not back by another connection.
        let silent = PeerState::Lost("it did not answer in time".to_owned());
        let back = PeerState::Back(Duration::from_secs(3));
        let lost = Lost(PeerLoss::Silent);
        assert_eq!(changes(&[lost, Connected, lost, Answered]), [silent, back]);
    }

    #[test]
    fn more_lost_servers_than_fit_are_left_out() {
        let peers = LostPeers::new(None);
        let lost = |port| PeerReport {
            role: RoleId::new(0),
            target: RoleTarget::Name("station".to_owned(), port),
            seen: PeerSeen::Lost(PeerLoss::Silent),
        };
        let taken: Vec<_> = (1..=65)
            .map(|port| peers.take(("relay", "station"), &lost(port), (Duration::ZERO, None)))
            .collect();
        assert_eq!(taken.iter().filter(|taken| **taken).count(), LOST_MAX);
        assert_eq!(taken.last(), Some(&false));
        peers.clear();
        assert_eq!((peers.lost(), peers.is_any_lost()), (Vec::new(), false));
    }
}
