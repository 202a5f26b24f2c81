//! Effect of a response on its request: done, to be retried, or failed for good.
//!
//! All senders of messages that must not be lost use this one reading of responses: the outbox, and
//! the creation of devices' resources. A status can be final although its response is not:
//! *overloaded* has no status of its own in oneM2M, but one in the protocols below
//! ([`Response::retry_after`]), which is checked first.

use crate::primitive::Response;
use crate::status::Status;
use core::time::Duration;

/// Pause after the first failure, doubled with each further one.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest pause of the sender's own.
const AGAIN_AFTER_MAX: Duration = Duration::from_mins(1);
/// Longest pause at the receiver's request: no receiver may silence a sender for long.
const TOLD_AFTER_MAX: Duration = Duration::from_mins(10);

/// Effect of a response on its request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Done.
    Done,
    /// The resource exists already, which for a creation with a unique name counts as done.
    There,
    /// The receiver was away, busy, or failed: retry, not before this pause if one was requested.
    Again(Option<Duration>),
    /// The target does not exist: not yet, no longer, or never.
    Nowhere,
    /// The originator is not known or not allowed, until an authorised entity changes that.
    Barred,
    /// Refused for good: a retry would be refused too.
    Refused,
}

impl Fate {
    /// Whether a uniquely named creation is finished: its resource is stored, now or before.
    pub const fn is_stored(self) -> bool {
        matches!(self, Self::Done | Self::There)
    }
}

impl Status {
    /// Effect of this status code alone.
    pub const fn fate(self) -> Fate {
        match self {
            Self::Conflict | Self::AlreadyExists | Self::OriginatorHasAlreadyRegistered => {
                Fate::There
            }
            Self::TargetNotReachable
            | Self::RemoteEntityNotReachable
            | Self::RequestTimeout
            | Self::InternalServerError => Fate::Again(None),
            Self::NotFound => Fate::Nowhere,
            Self::OriginatorHasNoPrivilege
            | Self::OriginatorHasNotRegistered
            | Self::SecurityAssociationRequired
            | Self::AppRuleValidationFailed
            | Self::ServiceSubscriptionNotEstablished
            | Self::ReceiverHasNoPrivilege => Fate::Barred,
            status if status.is_success() => Fate::Done,
            _ => Fate::Refused,
        }
    }
}

impl Response {
    /// Effect of this response. A response with a time to retry has not judged the request,
    /// whatever its status.
    pub const fn fate(&self) -> Fate {
        match self.retry_after {
            Some(pause) if !self.status.is_success() => Fate::Again(Some(pause)),
            _ => self.status.fate(),
        }
    }
}

/// Pause after a number of earlier failures, or the one that the receiver `told`.
pub(crate) fn pause(failures: u32, told: Option<Duration>) -> Duration {
    let own = AGAIN_AFTER.saturating_mul(1 << failures.min(10)).min(AGAIN_AFTER_MAX);
    own.max(told.unwrap_or_default().min(TOLD_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::Release;

    /// Who is told to come again comes again, whatever else is said: of a receiver that is only
    /// busy no refusal may cost a reading.
    #[test]
    fn a_busy_receiver_refuses_nothing_for_good() {
        let pause = Duration::from_secs(3);
        for &status in Status::ALL {
            let mut response = Response::new(status, "1", Release::default());
            assert_eq!(response.fate(), status.fate());
            response.retry_after = Some(pause);
            let expected = if status.is_success() { Fate::Done } else { Fate::Again(Some(pause)) };
            assert_eq!(response.fate(), expected, "{status:?}");
        }
    }

    #[test]
    fn what_is_there_is_stored_and_nothing_else_but_a_success_is() {
        for &status in Status::ALL {
            let there = matches!(status.number(), 4105 | 4117 | 5106);
            assert_eq!(status.fate().is_stored(), status.is_success() || there, "{status:?}");
        }
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        let seconds =
            |failures, told: Option<u64>| pause(failures, told.map(Duration::from_secs)).as_secs();
        assert_eq!([0, 1, 2, 5, 6, 99].map(|it| seconds(it, None)), [1, 2, 4, 32, 60, 60]);
        // What is asked for is given, but not without end; and who asks for less is not asked more
        // often than anybody.
        assert_eq!(seconds(0, Some(17)), 17);
        assert_eq!(seconds(3, Some(0)), 8);
        assert_eq!(seconds(0, Some(u64::MAX)), 600);
    }
}
