//! Counters of a machine.

use core::time::Duration;
use gatewright_histogram::Histogram;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// The counted events.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub(crate) enum Count {
            $($(#[doc = $doc])* $variant,)*
        }

        /// The names, in the order of [`Count`].
        pub(crate) const NAMES: &[&str] = &[$($name,)*];
    };
}

counters! {
    /// Connections accepted.
    Accepted = "accepted",
    /// Connections and requests above a role's limit, which got its `full` answer.
    Full = "full",
    /// Messages that could not be read.
    Malformed = "malformed",
    /// Messages that could not be built.
    Unbuildable = "unbuildable",
    /// Connections that were silent for too long.
    Idle = "idle_closed",
    /// Connections that broke, or ended in the middle of a message.
    Broken = "broken",
    /// Connections made to servers.
    Connected = "connected",
    /// Connections that could not be made.
    ConnectFailed = "connect_failed",
    /// Sends that found a connection kept from an earlier session.
    Reused = "reused",
    /// Kept connections that were closed and had to be replaced.
    Replaced = "replaced",
    /// Sends refused because the role had all its connections or exchanges in use.
    NoRoom = "no_room",
    /// Exchanges that took too long.
    Late = "late",
    /// Requests that were repeated.
    Retransmitted = "retransmitted",
    /// Repeated requests that were not handled again.
    Duplicates = "duplicates",
    /// Messages that answer no exchange in flight and that no handler takes.
    Unsolicited = "unsolicited",
    /// Sessions refused above the limit.
    SessionsFull = "sessions_full",
    /// Names that could not be resolved, or could not be queued.
    Unresolved = "unresolved",
    /// Octets discarded from unused streams.
    Discarded = "discarded_octets",
    /// Periods of an `every` that were skipped because the last run was not over.
    Skipped = "every_skipped",
    /// Datagrams from an address or family that the role does not take.
    Strangers = "strangers",
    /// Messages to stored peers that had no room for them.
    Untold = "untold",
    /// Requests that an attached `drop` refused.
    Dropped = "attached_dropped",
    /// Requests that an attached `rate-limit` refused.
    RateLimited = "attached_rate_limited",
    /// Octets received beyond the room: the caller's fault.
    Overrun = "overrun",
}

#[derive(Debug)]
pub(crate) struct Counters([u64; NAMES.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl Counters {
    pub(crate) fn add(&mut self, what: Count, many: u64) {
        let index = what as usize;
        self.0.get_mut(index).into_iter().for_each(|count| *count = count.saturating_add(many));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().copied().zip(self.0.iter().copied())
    }
}

/// Counters of one handler.
#[derive(Clone, Debug, Default)]
pub struct HandlerCounters {
    /// How often it was started.
    pub started: u64,
    /// How often it ended by itself: an answer, a close, the end of its text.
    pub finished: u64,
    /// How often it was ended: its sender broke off or was malformed, a wait ran out without an
    /// edge, a message could not be built, or it executed `fail`.
    pub failed: u64,
    /// From the input that started it until what ended it was sent
    /// ([`Machine::sent_until`](super::Machine::sent_until)), in nanoseconds.
    pub times: Histogram,
}

/// Handlers of one kind that were started at once, have ended, and whose times are not counted yet.
#[derive(Debug)]
pub(crate) struct EndedHandlers {
    /// Index of the handler.
    pub(crate) handler: usize,
    /// When they were started.
    pub(crate) started: Duration,
    /// How many there are.
    pub(crate) many: u64,
}
