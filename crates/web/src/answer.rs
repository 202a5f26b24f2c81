//! Answers with their header fields.

use futures_util::Stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Frame},
    header::{
        self, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
        HeaderValue, IF_NONE_MATCH,
    },
};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::{
    convert::Infallible,
    fmt::Write,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The body of an answer: whole, or a stream without an end.
pub(crate) type WebBody = UnsyncBoxBody<Bytes, Infallible>;

/// An answer of the server.
pub(crate) type WebAnswer = Response<WebBody>;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// The media type of HTML.
pub(crate) const HTML: &str = "text/html; charset=utf-8";

/// The end of the year 9999, since 1970: dates of later ones have no form (RFC 9110 §5.6.7).
const DATES_END: Duration = Duration::from_hours(70_389_528);

/// Octets of a hash that are in an entity tag.
const TAG_OCTETS: usize = 12;

/// Fields of every answer: nothing of other origins is loaded, framed or told
/// (W3C Content Security Policy 3, Fetch).
const SECURITY: [(HeaderName, &str); 6] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'; object-src 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// A whole answer that is being made.
pub(crate) struct PlainAnswer {
    media_type: &'static str,
    octets: Bytes,
    cache: &'static str,
    etag: Option<HeaderValue>,
}

impl PlainAnswer {
    /// An answer that no cache keeps.
    pub(crate) fn new(media_type: &'static str, octets: impl Into<Bytes>) -> Self {
        Self { media_type, octets: octets.into(), cache: "no-store", etag: None }
    }

    /// How long caches keep it.
    pub(crate) fn cache(self, cache: &'static str) -> Self {
        Self { cache, ..self }
    }

    /// Its entity tag; a client that has it already gets 304 (RFC 9110 §15.4.5).
    pub(crate) fn etag(self, etag: HeaderValue) -> Self {
        Self { etag: Some(etag), ..self }
    }

    /// The answer to a request with these header fields.
    pub(crate) fn finish(self, asked: &HeaderMap) -> WebAnswer {
        let Self { media_type, octets, cache, etag } = self;
        let is_known = etag.as_ref().is_some_and(|etag| matches(asked, etag));
        let mut answer = if is_known {
            with_body(StatusCode::NOT_MODIFIED, Bytes::new())
        } else {
            let mut answer = with_body(StatusCode::OK, octets);
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            answer
        };
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        if let Some(etag) = etag {
            answer.headers_mut().insert(ETAG, etag);
        }
        answer
    }
}

/// Whether the client has the version `etag` (RFC 9110 §13.1.2).
pub(crate) fn matches(asked: &HeaderMap, etag: &HeaderValue) -> bool {
    let etag = etag.to_str().unwrap_or_default();
    let values = asked.get_all(IF_NONE_MATCH).into_iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag
    })
}

/// The entity tag of a document.
pub(crate) fn tag_of(octets: &[u8]) -> HeaderValue {
    let hash = Sha256::digest(octets);
    let tag = format!("\"{}\"", hexadecimal(hash.get(..TAG_OCTETS).unwrap_or_default()));
    HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Octets as hexadecimal digits.
pub(crate) fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

/// An answer with this document.
pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> WebAnswer {
    let (status, octets) = match serde_json::to_vec(document) {
        Ok(octets) => (status, octets),
        // Our own types have names as keys, so it does not come to this.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    };
    let mut answer = with_body(status, octets.into());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An answer whose body is what `stream` yields, until it ends.
pub(crate) fn streamed(
    media_type: &'static str,
    stream: impl Stream<Item = Bytes> + Send + 'static,
) -> WebAnswer {
    use futures_util::StreamExt;
    let body = StreamBody::new(stream.map(|octets| Ok::<_, Infallible>(Frame::data(octets))));
    let mut answer = Response::new(body.boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An answer with this body and no field.
fn with_body(status: StatusCode, octets: Bytes) -> WebAnswer {
    let mut answer = Response::new(Full::new(octets).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

/// Adds the fields of every answer. One that has a policy of its own keeps it. Its date is that of
/// `now` (RFC 9110 §6.6.1): the HTTP library keeps the latest one when the clock is set back.
pub(crate) fn secured(mut answer: WebAnswer, now: SystemTime) -> WebAnswer {
    // It has years of four digits; without a date the library adds its own.
    if now >= UNIX_EPOCH
        && now < UNIX_EPOCH + DATES_END
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(now))
    {
        answer.headers_mut().insert(header::DATE, date);
    }
    for (name, value) in SECURITY {
        let field = answer.headers_mut().entry(name);
        field.or_insert(HeaderValue::from_static(value));
    }
    answer
}

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct WebRefusal {
    /// The HTTP status.
    pub(crate) status: StatusCode,
    /// What, where, and what to do.
    pub(crate) why: String,
    /// A field that belongs to the status.
    pub(crate) field: Option<(HeaderName, HeaderValue)>,
}

impl WebRefusal {
    /// A refusal in words.
    pub(crate) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), field: None }
    }

    /// Of a request that is wrong as it is (RFC 9110 §15.5.1).
    pub(crate) fn bad_request(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Of a request for what this gateway does not have (RFC 9110 §15.5.5).
    pub(crate) fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    /// Of a request that cannot be answered now (RFC 9110 §15.6.4).
    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, why)
    }

    /// The refusal with a field.
    pub(crate) fn with(self, name: HeaderName, value: &str) -> Self {
        Self { field: HeaderValue::from_str(value).ok().map(|value| (name, value)), ..self }
    }
}

impl From<WebRefusal> for WebAnswer {
    fn from(WebRefusal { status, why, field }: WebRefusal) -> Self {
        let mut answer = json(status, &serde_json::json!({ "error": why }));
        if let Some((name, value)) = field {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock is set back from 2040 to the time of RFC 9110's example.
    #[test]
    fn the_date_of_an_answer_follows_the_clock() {
        let date = |seconds| {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            let answer = secured(json(StatusCode::OK, &()), now);
            answer.headers().get(header::DATE).map(|date| date.to_str().unwrap().to_owned())
        };
        assert_eq!(date(2_209_032_000).unwrap(), "Sun, 01 Jan 2040 12:00:00 GMT");
        assert_eq!(date(784_111_777).unwrap(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(u64::MAX / 4), None);
    }
}
