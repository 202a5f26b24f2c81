//! Response status codes as HTTP status codes (TS-0009 §6.3.2).

use gatewright_onem2m::Status;
use hyper::StatusCode;

/// The HTTP status code that goes with a response status code.
pub const fn http_status(status: Status) -> StatusCode {
    match status {
        Status::Ok | Status::Deleted | Status::Updated => StatusCode::OK,
        Status::Created => StatusCode::CREATED,
        Status::Accepted | Status::AcceptedSynchronously | Status::AcceptedAsynchronously => {
            StatusCode::ACCEPTED
        }
        Status::NotFound | Status::TargetNotReachable | Status::RemoteEntityNotReachable => {
            StatusCode::NOT_FOUND
        }
        Status::OperationNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Status::RequestTimeout => StatusCode::GATEWAY_TIMEOUT,
        Status::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Status::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Status::Conflict | Status::AlreadyExists => StatusCode::CONFLICT,
        Status::InternalServerError | Status::SubscriptionVerificationInitiationFailed => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        Status::ReleaseVersionNotSupported | Status::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        Status::SubscriptionCreatorHasNoPrivilege
        | Status::OriginatorHasNoPrivilege
        | Status::SecurityAssociationRequired
        | Status::InvalidChildResourceType
        | Status::OriginatorHasAlreadyRegistered
        | Status::AppRuleValidationFailed
        | Status::OperationDeniedByRemoteEntity
        | Status::ServiceSubscriptionNotEstablished
        | Status::ReceiverHasNoPrivilege
        | Status::TargetNotSubscribable
        | Status::SubscriptionHostHasNoPrivilege => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    }
}
