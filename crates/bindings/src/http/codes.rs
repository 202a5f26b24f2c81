//! HTTP status codes of response status codes (TS-0009 §6.3.2).

use gatewright_onem2m::{Meaning, Status};
use hyper::StatusCode;

/// The HTTP status code of a response status code.
pub const fn http_status(status: Status) -> StatusCode {
    // Its own row in HTTP's table, another in CoAP's.
    if matches!(status, Status::AlreadyExists) {
        return StatusCode::CONFLICT;
    }
    match status.meaning() {
        Meaning::Done | Meaning::Deleted | Meaning::Changed => StatusCode::OK,
        Meaning::Created => StatusCode::CREATED,
        Meaning::Accepted | Meaning::AcceptedInto => StatusCode::ACCEPTED,
        Meaning::NotFound => StatusCode::NOT_FOUND,
        Meaning::NotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Meaning::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        Meaning::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Meaning::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Meaning::Conflict | Meaning::Doubled => StatusCode::CONFLICT,
        Meaning::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        Meaning::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        Meaning::Forbidden => StatusCode::FORBIDDEN,
        Meaning::Wrong => StatusCode::BAD_REQUEST,
    }
}
