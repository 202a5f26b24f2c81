//! What the server counts, each refusal by its cause.

use gatewright_bindings::http::Endings;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The counters of all listeners since the start.
#[derive(Debug, Default)]
pub(crate) struct WebCounters {
    /// Answered requests.
    pub(crate) requests: AtomicU64,
    /// Connections beyond the limit.
    pub(crate) connections_refused: AtomicU64,
    /// Connections that gave their place to new ones: of callers that were not known, or of viewers.
    pub(crate) connections_displaced: AtomicU64,
    /// Requests whose field Host is missing, repeated or not a name of this listener.
    pub(crate) hosts_refused: AtomicU64,
    /// Requests of pages of another origin.
    pub(crate) origins_refused: AtomicU64,
    /// Requests for paths that do not exist.
    pub(crate) paths_unknown: AtomicU64,
    /// TLS handshakes that failed.
    pub(crate) handshakes_failed: AtomicU64,
    /// Requests refused as too many wait for the gateway.
    pub(crate) busy_refused: AtomicU64,
    /// Requests refused as the process has few descriptors left.
    pub(crate) descriptors_refused: AtomicU64,
    /// Entries of the audit log that could not be stored.
    pub(crate) audit_lost: AtomicU64,
    /// Connections that the server ended, by cause.
    pub(crate) endings: Arc<Endings>,
}

impl WebCounters {
    /// Each counter with its name in status and metrics.
    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        [
            ("requests", &self.requests),
            ("connections_refused", &self.connections_refused),
            ("connections_displaced", &self.connections_displaced),
            ("hosts_refused", &self.hosts_refused),
            ("origins_refused", &self.origins_refused),
            ("paths_unknown", &self.paths_unknown),
            ("handshakes_failed", &self.handshakes_failed),
            ("busy_refused", &self.busy_refused),
            ("descriptors_refused", &self.descriptors_refused),
            ("audit_lost", &self.audit_lost),
            ("silent_peers_closed", &self.endings.silent),
            ("slow_readers_closed", &self.endings.stuck),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
        .into()
    }
}

/// Counts one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
