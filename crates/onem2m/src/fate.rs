//! What an answer means for whoever wants its request done: is it done, is it to be sent again, or
//! will it never be?
//!
//! There is one reading of answers, and everybody who sends what must not be lost goes by it: the
//! outbox, and whoever makes places for devices. A status can be final while the answer that
//! carries it is not: *overloaded* has no status of its own in oneM2M, but words in the protocols
//! below ([`Response::retry_after`]), and these are looked at first.

use crate::primitive::Response;
use crate::status::Status;
use core::time::Duration;

/// After the first failure, doubled with each further one.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At most, by ourselves.
const AGAIN_AFTER_MAX: Duration = Duration::from_mins(1);
/// At most, if whoever answers asks for more: nobody is to silence a sender for long.
const TOLD_AFTER_MAX: Duration = Duration::from_mins(10);

/// What becomes of a request, after its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It is done.
    Done,
    /// What it was to make is there. To a creation whose name is unique that is as good as done.
    There,
    /// Nothing is wrong with it: whoever was asked was not there, was busy, or failed. Again, not
    /// before this pause, if one was asked for.
    Again(Option<Duration>),
    /// The place that it is for is not there: not yet, not any more, or it never will be.
    Nowhere,
    /// Whoever sent it is not known or not allowed to, until somebody with the right to says
    /// otherwise.
    Barred,
    /// Never: sent again, it would only be refused again.
    Refused,
}

impl Fate {
    /// Whether a creation whose name is unique has reached its end: it is stored, now or before.
    pub const fn is_stored(self) -> bool {
        matches!(self, Self::Done | Self::There)
    }
}

impl Status {
    /// What becomes of a request that was answered so, by the code alone.
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
    /// What becomes of the request that this answers. Who says when to come again has not judged
    /// it, whatever its status.
    pub const fn fate(&self) -> Fate {
        match self.retry_after {
            Some(pause) if !self.status.is_success() => Fate::Again(Some(pause)),
            _ => self.status.fate(),
        }
    }
}

/// How long to wait after so many failures before this one, and after what was `told` with it.
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
