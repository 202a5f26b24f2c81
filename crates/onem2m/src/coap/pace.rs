//! Pace of messages to one peer: "the same Message ID MUST NOT be reused (in communicating with the
//! same endpoint) within the EXCHANGE_LIFETIME" (RFC 7252 §4.4). A peer would take the later
//! message for a duplicate of the earlier one.

use super::EXCHANGE_LIFETIME;
use core::time::Duration;

/// Number of message identifiers (RFC 7252 §3).
const IDENTIFIERS: u32 = 1 << 16;
/// Requests that may be sent at once after a pause.
const AT_ONCE: u32 = 16_384;
/// Identifiers for messages without delay: further blocks, separate responses and notifications.
const SPARE: u32 = 8_192;
/// From one identifier to the next when they are used as fast as may be for long: in any
/// EXCHANGE_LIFETIME no more are used than there are, the spare ones left out.
const GAP: Duration = Duration::from_nanos(
    EXCHANGE_LIFETIME.as_secs() * 1_000_000_000 / (IDENTIFIERS - AT_ONCE - SPARE) as u64,
);

/// The pace of the messages to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Time at which the identifiers used so far would have been used at an even pace.
    even: Duration,
}

impl Pace {
    /// Counts a used identifier.
    pub(super) fn spend(&mut self, now: Duration) {
        self.even = self.even.max(now).saturating_add(GAP);
    }

    /// Time until which the next request has to wait, if it has to.
    pub(super) fn wait(self, now: Duration) -> Option<Duration> {
        let due = self.even.saturating_sub(GAP * AT_ONCE);
        (due > now).then_some(due)
    }
}
