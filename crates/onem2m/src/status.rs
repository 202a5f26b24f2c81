//! Response status codes (TS-0004 §6.6) and refusals that carry one.

use core::time::Duration;
use std::borrow::Cow;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)+) => {
        /// Result of a request: the oneM2M response status code (TS-0004 §6.6.3).
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Status {
            $($(#[$doc])* $name,)+
        }

        impl Status {
            /// Every code that this CSE can send or understand, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The number in primitives.
            pub const fn number(self) -> u16 {
                match self {
                    $(Self::$name => $number,)+
                }
            }

            /// The code with this number, if it is one that is known here.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Accepted, without a result.
    Accepted = 1000,
    /// Accepted; the answer is found in a request resource.
    AcceptedSynchronously = 1001,
    /// Accepted; the answer will be notified.
    AcceptedAsynchronously = 1002,
    /// Done.
    Ok = 2000,
    /// A resource was made.
    Created = 2001,
    /// A resource was deleted.
    Deleted = 2002,
    /// A resource was changed.
    Updated = 2004,
    /// The request is malformed or breaks a rule of its resource type.
    BadRequest = 4000,
    /// The release version indicator is not supported here.
    ReleaseVersionNotSupported = 4001,
    /// No such resource.
    NotFound = 4004,
    /// The resource type does not take this operation.
    OperationNotAllowed = 4005,
    /// The request expired before it was answered.
    RequestTimeout = 4008,
    /// The serialisation is not supported here.
    UnsupportedMediaType = 4015,
    /// The subscriber may not retrieve the subscribed-to resource.
    SubscriptionCreatorHasNoPrivilege = 4101,
    /// The content is understood and refused.
    ContentsUnacceptable = 4102,
    /// Access control says no.
    OriginatorHasNoPrivilege = 4103,
    /// The name or identifier is taken.
    Conflict = 4105,
    /// The originator is not registered.
    OriginatorHasNotRegistered = 4106,
    /// The originator must be authenticated.
    SecurityAssociationRequired = 4107,
    /// The parent does not take children of this type.
    InvalidChildResourceType = 4108,
    /// A group member has another type than the group says.
    GroupMemberTypeInconsistent = 4110,
    /// The AE or CSE is registered already.
    OriginatorHasAlreadyRegistered = 4117,
    /// The resource already has a blocking subscription.
    BlockingSubscriptionAlreadyExists = 4124,
    /// The registration is not among those allowed.
    AppRuleValidationFailed = 4126,
    /// A remote entity refused.
    OperationDeniedByRemoteEntity = 4127,
    /// No service subscription.
    ServiceSubscriptionNotEstablished = 4128,
    /// Internal error.
    InternalServerError = 5000,
    /// Not implemented.
    NotImplemented = 5001,
    /// The next hop cannot be reached.
    TargetNotReachable = 5103,
    /// The receiver may not do this.
    ReceiverHasNoPrivilege = 5105,
    /// The resource exists already.
    AlreadyExists = 5106,
    /// A remote entity cannot be reached.
    RemoteEntityNotReachable = 5107,
    /// The resource type cannot be subscribed to.
    TargetNotSubscribable = 5203,
    /// A notification target did not confirm that it wants notifications.
    SubscriptionVerificationInitiationFailed = 5204,
    /// This CSE may not notify the target.
    SubscriptionHostHasNoPrivilege = 5205,
    /// The content is larger than its container.
    NotAcceptable = 5207,
    /// More members than the group takes.
    MaxNumberOfMemberExceeded = 6010,
    /// An argument of a management command is wrong.
    InvalidArguments = 6023,
    /// An argument of a management command is missing.
    InsufficientArguments = 6024,
}

impl Status {
    /// Whether the request was done or accepted (1xxx and 2xxx).
    pub const fn is_success(self) -> bool {
        self.number() < 3000
    }
}

/// Meaning of a status for protocols with fewer codes: the common rows of the tables of HTTP
/// (TS-0009 §6.3.2) and of CoAP (TS-0008 §6.3).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Meaning {
    /// It is done, and here is what was asked for, if anything.
    Done,
    /// It is done: something was made.
    Created,
    /// Success: a resource was deleted.
    Deleted,
    /// It is done: something was changed.
    Changed,
    /// It will be done.
    Accepted,
    /// It will be done; a resource was made that the answer will be found by.
    AcceptedInto,
    /// It is not there.
    NotFound,
    /// It does not take that.
    NotAllowed,
    /// It took too long.
    TimedOut,
    /// Its serialisation or release is not supported here.
    UnsupportedMediaType,
    /// It cannot be had, or taken, like that.
    NotAcceptable,
    /// It is there already.
    Conflict,
    /// There may be one of it, and is.
    Doubled,
    /// The fault is this side's.
    Failed,
    /// It is understood and not offered.
    NotImplemented,
    /// The originator is not authorised.
    Forbidden,
    /// The request is wrong.
    Wrong,
}

impl Status {
    /// Its meaning for a protocol with fewer codes.
    pub const fn meaning(self) -> Meaning {
        match self {
            Self::Ok => Meaning::Done,
            Self::Created => Meaning::Created,
            Self::Deleted => Meaning::Deleted,
            Self::Updated => Meaning::Changed,
            Self::Accepted => Meaning::Accepted,
            Self::AcceptedSynchronously | Self::AcceptedAsynchronously => Meaning::AcceptedInto,
            Self::NotFound | Self::TargetNotReachable | Self::RemoteEntityNotReachable => {
                Meaning::NotFound
            }
            Self::OperationNotAllowed => Meaning::NotAllowed,
            Self::RequestTimeout => Meaning::TimedOut,
            Self::UnsupportedMediaType => Meaning::UnsupportedMediaType,
            Self::NotAcceptable => Meaning::NotAcceptable,
            Self::Conflict => Meaning::Conflict,
            Self::BlockingSubscriptionAlreadyExists | Self::AlreadyExists => Meaning::Doubled,
            Self::InternalServerError | Self::SubscriptionVerificationInitiationFailed => {
                Meaning::Failed
            }
            Self::ReleaseVersionNotSupported | Self::NotImplemented => Meaning::NotImplemented,
            Self::SubscriptionCreatorHasNoPrivilege
            | Self::OriginatorHasNoPrivilege
            | Self::OriginatorHasNotRegistered
            | Self::SecurityAssociationRequired
            | Self::InvalidChildResourceType
            | Self::OriginatorHasAlreadyRegistered
            | Self::AppRuleValidationFailed
            | Self::OperationDeniedByRemoteEntity
            | Self::ServiceSubscriptionNotEstablished
            | Self::ReceiverHasNoPrivilege
            | Self::TargetNotSubscribable
            | Self::SubscriptionHostHasNoPrivilege => Meaning::Forbidden,
            _ => Meaning::Wrong,
        }
    }
}

/// Refusal of a request: the code, and a sentence for the response's m2m:dbg.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{} ({debug})", status.number())]
pub struct Refusal {
    /// The response status code.
    pub status: Status,
    /// The error in words, without values of resources.
    pub debug: Cow<'static, str>,
    /// Time to retry, if it is refused because there is no room for its answer now.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal with this code and these words.
    pub fn new(status: Status, debug: impl Into<Cow<'static, str>>) -> Self {
        Self { status, debug: debug.into(), retry_after: None }
    }

    /// A malformed request (4000).
    pub fn bad(debug: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Status::BadRequest, debug)
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn every_number_leads_back_to_its_status() {
        for &status in Status::ALL {
            assert_eq!(Status::from_number(status.number()), Some(status));
        }
        assert_eq!(Status::from_number(4104), None);
    }

    #[test]
    fn only_1xxx_and_2xxx_are_success() {
        assert!(Status::AcceptedSynchronously.is_success());
        assert!(Status::Updated.is_success());
        assert!(!Status::BadRequest.is_success());
        assert!(!Status::MaxNumberOfMemberExceeded.is_success());
    }
}
