//! HTTP messages of requests and responses: methods, targets, headers, bodies.

use super::codes::http_status;
use super::plain_url::{is_plain, plain_parts};
use core::fmt::Write;
use core::time::Duration;
use gatewright_onem2m::primitive::cbor_from_json;
use gatewright_onem2m::{
    Operation, PartialContent, Refusal, Release, Request, Reservation, Response, Serialisation,
    Status,
};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Authority;
use hyper::http::{request, response};
use hyper::{Method, StatusCode, Uri, Version};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

const ORIGIN: HeaderName = HeaderName::from_static("x-m2m-origin");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-m2m-ri");
const RELEASE: HeaderName = HeaderName::from_static("x-m2m-rvi");
const STATUS: HeaderName = HeaderName::from_static("x-m2m-rsc");
const REQUEST_EXPIRES: HeaderName = HeaderName::from_static("x-m2m-ret");
const RESULT_EXPIRES: HeaderName = HeaderName::from_static("x-m2m-rst");
const EXECUTES: HeaderName = HeaderName::from_static("x-m2m-oet");
const VENDOR: HeaderName = HeaderName::from_static("x-m2m-vsi");
const EVENT_CATEGORY: HeaderName = HeaderName::from_static("x-m2m-ec");
const NOTIFIED: HeaderName = HeaderName::from_static("x-m2m-rtu");
const GROUP_REQUEST: HeaderName = HeaderName::from_static("x-m2m-gid");
const CONTENT_STATUS: HeaderName = HeaderName::from_static("x-m2m-cts");
const CONTENT_OFFSET: HeaderName = HeaderName::from_static("x-m2m-cto");
const CONTENT_LOCATION: HeaderName = HeaderName::from_static("content-location");

/// Retry-After of a busy receiver that sends none.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Serialisation that an Accept header prefers; JSON if it leaves the choice.
pub(crate) fn accepted(headers: &HeaderMap) -> Serialisation {
    accepted_by(headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default())
}

/// Serialisation that the value of an Accept header prefers.
pub(super) fn accepted_by(accept: &str) -> Serialisation {
    let cbor = accept.contains("cbor") && !accept.contains("json");
    if cbor { Serialisation::Cbor } else { Serialisation::Json }
}

/// Headers of a request, parsed in one pass.
#[derive(Default)]
pub(super) struct ParsedHeaders<'head> {
    /// The content type, and whether it is no text.
    media: (&'head str, bool),
    from: &'head str,
    pub(super) id: &'head str,
    release: Option<&'head str>,
    /// Parameters by their short names.
    pub(super) parameters: Vec<(&'static str, &'head str)>,
}

impl<'head> ParsedHeaders<'head> {
    fn of(headers: &'head HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            // A value that is no text says nothing.
            said.take(name.as_str(), value.to_str().ok());
        }
        said
    }

    /// Takes a header by its name in lower case, and its value if that is text.
    pub(super) fn take(&mut self, name: &str, text: Option<&'head str>) {
        match (name, text) {
            ("content-type", _) => self.media = (text.unwrap_or_default(), text.is_none()),
            ("x-m2m-origin", Some(text)) => self.from = text,
            ("x-m2m-ri", Some(text)) => self.id = text,
            ("x-m2m-rvi", text) => self.release = text,
            (name, Some(text)) => {
                let parameter = PARAMETERS.iter().find(|(header, _)| *header == name);
                self.parameters.extend(parameter.map(|(_, short)| (*short, text)));
            }
            (_, None) => {}
        }
    }
}

/// Headers that carry a parameter (TS-0009 §6.4), and its short name.
pub(super) const PARAMETERS: [(&str, &str); 7] = [
    ("x-m2m-ret", "rqet"),
    ("x-m2m-rst", "rset"),
    ("x-m2m-oet", "oet"),
    ("x-m2m-rtu", "rtu"),
    ("x-m2m-ec", "ec"),
    ("x-m2m-gid", "gid"),
    ("x-m2m-vsi", "vsi"),
];

/// Parses a request. A refusal carries the request identifier, if there is one.
pub(crate) fn read_request(head: &request::Parts, body: &[u8]) -> Result<Request, Refusal> {
    check_host(head)?;
    refuse_repeated(&head.headers)?;
    let said = ParsedHeaders::of(&head.headers);
    request_of(&head.method, (head.uri.path(), head.uri.query()), said, body)
}

/// The request of a method, a target and headers.
pub(super) fn request_of(
    method: &Method,
    (path, query): (&str, Option<&str>),
    said: ParsedHeaders<'_>,
    body: &[u8],
) -> Result<Request, Refusal> {
    let (media, is_no_text) = said.media;
    if is_no_text {
        return Err(Refusal::bad("content type is no text"));
    }
    let (serialisation, kind) = read_content_type(media, !body.is_empty())?;
    let operation = match *method {
        Method::GET => Operation::Retrieve,
        Method::PUT => Operation::Update,
        Method::DELETE => Operation::Delete,
        Method::POST if kind.is_some() => Operation::Create,
        Method::POST => Operation::Notify,
        _ => {
            return Err(Refusal::new(
                Status::OperationNotAllowed,
                "methods are GET, POST, PUT and DELETE",
            ));
        }
    };
    let to = read_target(path)?;
    let mut request = Request::new(operation, to, said.from, said.id);
    let release = said.release.ok_or_else(|| Refusal::bad("X-M2M-RVI is missing"))?;
    request.release = Release::parse(release)?;
    if let Some(kind) = kind {
        request.set_resource_type(kind)?;
    }
    for (name, value) in said.parameters {
        request.set(name, value)?;
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        request.set(&decode(name)?, &decode(value)?)?;
    }
    if !body.is_empty() {
        request.content = Some(serialisation.read(body)?.into());
    }
    Ok(request)
}

/// "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that
/// lacks a Host header field and to any request message that contains more than one Host header field
/// line or a Host header field with an invalid field value" (RFC 9112 §3.2).
fn check_host(head: &request::Parts) -> Result<(), Refusal> {
    let mut hosts = head.headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else {
        let is_needed = head.version == Version::HTTP_11;
        return if is_needed { Err(Refusal::bad("Host is missing")) } else { Ok(()) };
    };
    if hosts.next().is_some() {
        return Err(Refusal::bad("Host is there more than once"));
    }
    if is_host(host.as_bytes()) { Ok(()) } else { Err(Refusal::bad("Host is no host")) }
}

/// Whether this is the value of a Host header; it is empty where the target has no authority.
pub(super) fn is_host(host: &[u8]) -> bool {
    host.is_empty() || (!host.contains(&b'@') && Authority::try_from(host).is_ok())
}

/// Refuses several values of a header that has one: another reader may take another of them.
fn refuse_repeated(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    for (name, text) in [(ORIGIN, "X-M2M-Origin"), (REQUEST_ID, "X-M2M-RI"), (RELEASE, "X-M2M-RVI")]
    {
        if headers.get_all(name).iter().nth(1).is_some() {
            return Err(Refusal::bad(format!("{text} is there more than once")));
        }
    }
    Ok(())
}

/// The identifier of a request that may otherwise be malformed.
pub(crate) fn request_id(headers: &HeaderMap) -> &str {
    headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Media type and `ty` of a content type (TS-0009 §6.4.3).
fn read_content_type(
    media: &str,
    has_body: bool,
) -> Result<(Serialisation, Option<&str>), Refusal> {
    let mut parts = media.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let kind = parts.find_map(|part| part.strip_prefix("ty="));
    let serialisation = match name {
        "application/json" | "application/vnd.onem2m-res+json" => Serialisation::Json,
        "application/cbor" | "application/vnd.onem2m-res+cbor" => Serialisation::Cbor,
        _ if !has_body => Serialisation::Json,
        _ => {
            return Err(Refusal::new(
                Status::UnsupportedMediaType,
                "content is application/json or application/cbor",
            ));
        }
    };
    Ok((serialisation, kind))
}

/// The oneM2M address of a path: `/~/` begins an SP-relative one, `/_/` an absolute one
/// (TS-0009 §6.2.2.1).
fn read_target(path: &str) -> Result<String, Refusal> {
    let path = decode(path)?;
    if let Some(rest) = path.strip_prefix("/~/") {
        return Ok(format!("/{rest}"));
    }
    if let Some(rest) = path.strip_prefix("/_/") {
        return Ok(format!("//{rest}"));
    }
    Ok(path.strip_prefix('/').unwrap_or(&*path).to_owned())
}

/// Decodes percent-encoding in a path or a query.
pub(crate) fn decode(text: &str) -> Result<Cow<'_, str>, Refusal> {
    if !text.contains('%') {
        return Ok(Cow::Borrowed(text));
    }
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            octets.push(first);
            continue;
        }
        let digits = tail.split_first_chunk::<2>().and_then(|(digits, tail)| {
            let digits = core::str::from_utf8(digits).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, tail))
        });
        let (octet, tail) = digits.ok_or_else(|| {
            Refusal::bad("a percent sign without two hexadecimal digits; the sign itself is %25")
        })?;
        octets.push(octet);
        rest = tail;
    }
    let text = String::from_utf8(octets).map_err(|_| Refusal::bad("the target is not UTF-8"))?;
    Ok(Cow::Owned(text))
}

/// Percent-encodes characters that may not stand in a path or a query (RFC 3986 §3.3 and §3.4).
fn encode(text: &str, into: &mut String) {
    if text.bytes().all(is_plain) {
        into.push_str(text);
        return;
    }
    for octet in text.bytes() {
        if is_plain(octet) {
            into.push(char::from(octet));
        } else {
            // A String takes whatever is written to it.
            let _ = write!(into, "%{octet:02X}");
        }
    }
}

/// Builds an HTTP request for the entity at `url`.
pub(crate) fn write_request(
    url: &str,
    request: &Request,
    serialisation: Serialisation,
) -> Result<hyper::Request<Full<Bytes>>, Refusal> {
    Ok(build_request(url, request, serialisation)?.map(Full::new))
}

/// Appends an HTTP request for the entity at `url` to `output`, as octets (RFC 9112 §3).
pub(crate) fn write_message(
    url: &str,
    request: &Request,
    serialisation: Serialisation,
    output: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let body = body_of(request, serialisation)?;
    let method = method_of(request);
    let before = output.len();
    let target = write_url(url, request);
    if let Some((host, target)) = plain_parts(&target) {
        write_first_lines((&method, target, host), output);
    } else {
        let uri: Uri = target.parse().map_err(|_| unwritable("the target"))?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let host = uri.authority().map_or("", |host| host.as_str());
        write_first_lines((&method, target, host), output);
    }
    let mut is_writable = true;
    each_field(request, serialisation, |name, value| {
        is_writable &= is_field_value(value);
        for part in [name.as_str(), ": ", value, "\r\n"] {
            output.extend_from_slice(part.as_bytes());
        }
    });
    if !is_writable {
        output.truncate(before);
        return Err(unwritable("a header"));
    }
    if !body.is_empty() || method == Method::POST || method == Method::PUT {
        output.extend_from_slice(b"content-length: ");
        output.extend_from_slice(body.len().to_string().as_bytes());
        output.extend_from_slice(b"\r\n");
    }
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(&body);
    Ok(())
}

/// Appends the request line and the field that must stand first (RFC 9112 §3).
fn write_first_lines((method, target, host): (&Method, &str, &str), output: &mut Vec<u8>) {
    for part in [method.as_str(), " ", target, " HTTP/1.1\r\nhost: ", host, "\r\n"] {
        output.extend_from_slice(part.as_bytes());
    }
}

fn unwritable(what: &str) -> Refusal {
    Refusal::bad(format!("{what} cannot be written in HTTP"))
}

const fn method_of(request: &Request) -> Method {
    match request.operation {
        Operation::Create | Operation::Notify => Method::POST,
        Operation::Retrieve => Method::GET,
        Operation::Update => Method::PUT,
        Operation::Delete => Method::DELETE,
    }
}

fn body_of(request: &Request, serialisation: Serialisation) -> Result<Cow<'_, [u8]>, Refusal> {
    match (&request.content, serialisation) {
        (None, _) => Ok(Cow::Borrowed(&[])),
        (Some(content), Serialisation::Json) => Ok(Cow::Borrowed(content.as_bytes())),
        (Some(content), Serialisation::Cbor) => cbor_from_json(content).map(Cow::Owned),
    }
}

/// Passes each header field of a request with its value to `push`.
fn each_field(
    request: &Request,
    serialisation: Serialisation,
    mut push: impl FnMut(HeaderName, &str),
) {
    let media = serialisation.media_type();
    push(ORIGIN, &request.from);
    push(REQUEST_ID, &request.id);
    push(RELEASE, request.release.text());
    push(ACCEPT, media);
    if let Some(resource_type) = request.resource_type {
        push(CONTENT_TYPE, &format!("{media};ty={}", resource_type.number()));
    } else if request.content.is_some() {
        push(CONTENT_TYPE, media);
    }
    let deadlines = [
        (REQUEST_EXPIRES, request.request_expires),
        (RESULT_EXPIRES, request.result_expires),
        (EXECUTES, request.executes),
    ];
    for (name, deadline) in deadlines {
        if let Some(deadline) = deadline {
            push(name, &deadline.text());
        }
    }
    if let Some(vendor) = &request.vendor {
        push(VENDOR, vendor);
    }
    if let Some(category) = request.event_category {
        push(EVENT_CATEGORY, &category.to_string());
    }
    if let Some(group) = &request.group_request {
        push(GROUP_REQUEST, group);
    }
    if !request.notify.is_empty() {
        push(NOTIFIED, &request.notify.join("&"));
    }
}

fn build_request(
    url: &str,
    request: &Request,
    serialisation: Serialisation,
) -> Result<hyper::Request<Bytes>, Refusal> {
    let uri: Uri = write_url(url, request).parse().map_err(|_| unwritable("the target"))?;
    let mut builder = hyper::Request::builder().method(method_of(request)).uri(uri);
    each_field(request, serialisation, |name, value| {
        builder = core::mem::take(&mut builder).header(name, value);
    });
    let body = Bytes::copy_from_slice(&body_of(request, serialisation)?);
    builder.body(body).map_err(|_| unwritable("a header"))
}

/// Octets of most URLs beside those of receiver and target: an allocation that need not grow.
const URL_OCTETS: usize = 16;

/// The URL of a request; for a notification, the target itself.
fn write_url(url: &str, request: &Request) -> String {
    if request.to.contains("://") {
        return request.to.clone();
    }
    let mut text = String::with_capacity(url.len() + request.to.len() + URL_OCTETS);
    text.push_str(url.trim_end_matches('/'));
    if let Some(absolute) = request.to.strip_prefix("//") {
        text.push_str("/_/");
        encode(absolute, &mut text);
    } else if let Some(relative) = request.to.strip_prefix('/') {
        text.push_str("/~/");
        encode(relative, &mut text);
    } else {
        text.push('/');
        encode(&request.to, &mut text);
    }
    for (at, (name, value)) in request.query().iter().enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        encode(value, &mut text);
    }
    text
}

/// The body of one message, whose octets are reserved until it is written.
struct ReservedBody<T> {
    octets: T,
    _reservation: Reservation,
}

impl<T> ReservedBody<T> {
    const fn new(octets: T, reservation: Reservation) -> Self {
        Self { octets, _reservation: reservation }
    }
}

impl AsRef<[u8]> for ReservedBody<Arc<str>> {
    fn as_ref(&self) -> &[u8] {
        self.octets.as_bytes()
    }
}

impl AsRef<[u8]> for ReservedBody<Vec<u8>> {
    fn as_ref(&self) -> &[u8] {
        &self.octets
    }
}

/// Passes each header field of a response with its value to `push`, but for those of framing.
pub(super) fn each_answer_field(
    response: &Response,
    serialisation: Serialisation,
    mut push: impl FnMut(HeaderName, &str),
) {
    match response.status {
        Status::Ok => push(STATUS, "2000"),
        Status::Created => push(STATUS, "2001"),
        status => push(STATUS, &status.number().to_string()),
    }
    push(RELEASE, response.release.text());
    push(REQUEST_ID, &response.id);
    if let Some(location) = &response.location {
        push(CONTENT_LOCATION, location);
    }
    if let Some(partial) = response.partial {
        push(CONTENT_STATUS, &PartialContent::STATUS.to_string());
        if let Some(offset) = partial.offset {
            push(CONTENT_OFFSET, &offset.to_string());
        }
    }
    if response.content.is_some() {
        push(CONTENT_TYPE, serialisation.media_type());
    }
}

/// The HTTP status of a response, and the value of its Retry-After header.
pub(crate) fn status_and_pause(response: &Response) -> (StatusCode, Option<u64>) {
    let Some(after) = response.retry_after else { return (http_status(response.status), None) };
    // RFC 6585 §4 and RFC 9110 §15.6.4, and when to come again in whole seconds.
    let status = if response.is_unavailable {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::TOO_MANY_REQUESTS
    };
    (status, Some(after.as_secs() + u64::from(after.subsec_nanos() > 0)))
}

/// Builds an HTTP response.
pub(crate) fn write_response(
    response: Response,
    serialisation: Serialisation,
) -> hyper::Response<Bytes> {
    let mut message = hyper::Response::new(Bytes::new());
    let (status, pause) = status_and_pause(&response);
    *message.status_mut() = status;
    let headers = message.headers_mut();
    each_answer_field(&response, serialisation, |name, value| {
        // What HTTP cannot say is left out.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    });
    if let Some(seconds) = pause {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    let Some(content) = response.content else {
        return message;
    };
    let reservation = response.reservation;
    let body = match serialisation {
        Serialisation::Json => Bytes::from_owner(ReservedBody::new(content, reservation)),
        // What this CSE wrote is JSON; CBOR can say all of it.
        Serialisation::Cbor => {
            let octets = cbor_from_json(&content).unwrap_or_default();
            Bytes::from_owner(ReservedBody::new(octets, reservation))
        }
    };
    *message.body_mut() = body;
    message
}

/// Whether a text can be the value of a header field, as [`HeaderValue::from_str`] has it.
pub(super) fn is_field_value(value: &str) -> bool {
    value.bytes().all(|octet| matches!(octet, b'\t' | b' '..=b'~'))
}

/// Parses an HTTP response.
pub(crate) fn read_response(head: &response::Parts, body: &[u8]) -> Result<Response, Refusal> {
    let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    read_fields(head.status, text, body)
}

/// Parses a response whose header fields `text` finds.
pub(super) fn read_fields<'head>(
    http_status: StatusCode,
    text: impl Fn(&HeaderName) -> Option<&'head str>,
    body: &[u8],
) -> Result<Response, Refusal> {
    let number = text(&STATUS).and_then(|number| number.parse().ok());
    // Notification targets are often plain web servers: 2xx from them is good.
    let is_busy =
        matches!(http_status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let status = match number.and_then(Status::from_number) {
        Some(status) => status,
        None if http_status.is_success() => Status::Ok,
        None if is_busy => Status::InternalServerError,
        None => {
            return Err(Refusal::bad(format!("HTTP status {http_status} without X-M2M-RSC")));
        }
    };
    let release = text(&RELEASE).and_then(|text| Release::parse(text).ok()).unwrap_or_default();
    let id = text(&REQUEST_ID).map(Arc::from).unwrap_or_default();
    let mut response = Response::new(status, id, release);
    response.location = text(&CONTENT_LOCATION).map(Arc::from);
    response.retry_after =
        is_busy.then(|| text(&RETRY_AFTER).and_then(pause).unwrap_or(AGAIN_AFTER));
    response.is_unavailable = http_status == StatusCode::SERVICE_UNAVAILABLE;
    let number = |name: &HeaderName| text(name).and_then(|number| number.parse().ok());
    response.partial = PartialContent::read(number(&CONTENT_STATUS), number(&CONTENT_OFFSET));
    if !body.is_empty() {
        let media = text(&CONTENT_TYPE).unwrap_or("application/json");
        // A notification target's page is no content of ours.
        if let Ok((serialisation, _)) = read_content_type(media, true) {
            response.content = Some(serialisation.read(body)?.into());
        }
    }
    Ok(response)
}

/// Parses a Retry-After value: seconds, or a date (RFC 9110 §10.2.3).
fn pause(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let end = httpdate::parse_http_date(text).ok()?;
    Some(end.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatewright_onem2m::{Fate, ResourceType};

    fn read(
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Request, u16> {
        let mut builder = hyper::Request::builder().method(method).uri(uri).header(HOST, "x");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        let (head, ()) = builder.body(()).unwrap().into_parts();
        read_request(&head, body).map_err(|refusal| refusal.status.number())
    }

    /// RFC 9110 §10.2.3 and §15.6.4, RFC 6585 §4: who has too much to do has judged nothing, with
    /// or without a status of oneM2M; as a proxy says it, too.
    #[test]
    fn who_has_too_much_to_do_says_when_to_come_again() {
        let fate = |status: u16, headers: &[(&str, &str)]| {
            let mut builder = hyper::Response::builder().status(status);
            for (name, value) in headers {
                builder = builder.header(*name, *value);
            }
            let (head, ()) = builder.body(()).unwrap().into_parts();
            read_response(&head, b"").map(|response| response.fate())
        };
        let again = |seconds| Ok(Fate::Again(Some(Duration::from_secs(seconds))));
        for status in [429, 503] {
            let said = [("x-m2m-rsc", "5207"), ("retry-after", "7")];
            assert_eq!(fate(status, &said), again(7));
            assert_eq!(fate(status, &[]), again(1));
            let past = [("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")];
            assert_eq!(fate(status, &past), again(0));
            assert_eq!(fate(status, &[("retry-after", "soon")]), again(1));
            let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_hours(1));
            let Ok(Fate::Again(Some(pause))) = fate(status, &[("retry-after", &date)]) else {
                panic!("{date}");
            };
            assert!(pause > Duration::from_mins(50) && pause <= Duration::from_hours(1));
        }
        assert_eq!(fate(406, &[("x-m2m-rsc", "5207")]), Ok(Fate::Refused));
        assert!(fate(500, &[]).is_err());
    }

    /// RFC 9112 §3.2.
    #[test]
    fn a_request_has_one_host() {
        let read = |version: Version, hosts: &[&str]| {
            let mut builder = hyper::Request::builder().version(version).uri("/cse-in");
            let said = [("x-m2m-ri", "1"), ("x-m2m-rvi", "4"), ("x-m2m-origin", "Ca")];
            for (name, value) in said.into_iter().chain(hosts.iter().map(|host| ("host", *host))) {
                builder = builder.header(name, value);
            }
            let (head, ()) = builder.body(()).unwrap().into_parts();
            read_request(&head, b"").map(|_| ()).map_err(|refusal| refusal.status.number())
        };
        for host in ["x", "x:80", "192.0.2.1", "[2001:db8::1]:8080", ""] {
            assert_eq!(read(Version::HTTP_11, &[host]), Ok(()), "{host}");
        }
        for host in ["a b", "a/b", "u@x", "[::1"] {
            assert_eq!(read(Version::HTTP_11, &[host]), Err(4000), "{host}");
        }
        assert_eq!(read(Version::HTTP_11, &[]), Err(4000));
        for version in [Version::HTTP_10, Version::HTTP_2] {
            assert_eq!(read(version, &[]), Ok(()));
            assert_eq!(read(version, &["x", "x"]), Err(4000));
        }
        assert_eq!(read(Version::HTTP_11, &["x", "x"]), Err(4000));
    }

    /// TS-0009 §6.2.2.1: the three forms of an address.
    #[test]
    fn targets() {
        for (path, to) in [
            ("/cse-in/ae", "cse-in/ae"),
            ("/~/id-mn/cse-mn", "/id-mn/cse-mn"),
            ("/_/sp.example/id-mn/x", "//sp.example/id-mn/x"),
            ("/a%20b", "a b"),
            ("/", ""),
        ] {
            assert_eq!(read_target(path).unwrap(), to);
        }
        for bad in ["/%", "/%4", "/%zz", "/%ff"] {
            assert!(read_target(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn methods_and_types() {
        let base = [("x-m2m-ri", "1"), ("x-m2m-rvi", "4"), ("x-m2m-origin", "Ca")];
        let get = read("GET", "/cse-in?fu=1&ty=4&lbl=a%2Bb", &base, b"").unwrap();
        assert_eq!(get.operation, Operation::Retrieve);
        assert_eq!(get.filter.unwrap().resource_types, [4]);
        let mut create = base.to_vec();
        create.push(("content-type", "application/json; ty=4"));
        let made = read("POST", "/cse-in", &create, b"{}").unwrap();
        assert_eq!(
            (made.operation, made.resource_type),
            (Operation::Create, Some(ResourceType::ContentInstance))
        );
        let mut notify = base.to_vec();
        notify.push(("content-type", "application/json"));
        let told = read("POST", "/cse-in", &notify, b"{}").unwrap();
        assert_eq!(told.operation, Operation::Notify);
        let mut xml = base.to_vec();
        xml.push(("content-type", "application/xml;ty=4"));
        assert_eq!(read("POST", "/cse-in", &xml, b"<x/>"), Err(4015));
        assert_eq!(read("PATCH", "/cse-in", &base, b""), Err(4005));
        assert_eq!(read("GET", "/cse-in", &base[..1], b""), Err(4000));
        let old = [("x-m2m-ri", "1"), ("x-m2m-rvi", "1"), ("x-m2m-origin", "Ca")];
        assert_eq!(read("GET", "/cse-in", &old, b""), Err(4001));
        let mut unknown = base.to_vec();
        unknown.push(("content-type", "application/json;ty=999"));
        assert_eq!(read("POST", "/cse-in", &unknown, b"{}"), Err(5001));
        assert_eq!(read("PUT", "/cse-in", &notify, &[0xff]), Err(4000));
    }

    /// What the client writes the server reads as the same.
    #[test]
    fn a_request_survives_the_wire() {
        let mut request = Request::new(Operation::Create, "/id-in/cse-in/a b", "/id-mn/Ca", "r1")
            .creating(ResourceType::Container, "{}");
        for (name, value) in [
            ("rcn", "2"),
            ("rqet", "20991231T235959,000000"),
            ("oet", "20991231T235958,000000"),
            ("rset", "60000"),
            ("vsi", "v"),
            ("ec", "4"),
            ("gid", "g"),
            ("rtu", "http://a:1/n&coap://b"),
            ("lbl", "x+y"),
            ("atr", "con,a&b=c"),
            ("lbq", "color IN (red, green)+NT size"),
            ("cfs", "1"),
            ("cfq", "$[?@.a == 'x+%20' && @['b']]"),
            ("gmty", "1"),
            ("geom", "[1.5, -2]"),
            ("gsf", "3"),
        ] {
            request.set(name, value).unwrap();
        }
        for serialisation in [Serialisation::Json, Serialisation::Cbor] {
            let message = write_request("http://host:80/", &request, serialisation).unwrap();
            let (mut head, _) = message.into_parts();
            // Whoever sends it adds that.
            head.headers.insert(HOST, HeaderValue::from_static("host:80"));
            let body = match serialisation {
                Serialisation::Json => b"{}".to_vec(),
                Serialisation::Cbor => vec![0xa0],
            };
            assert_eq!(read_request(&head, &body).unwrap(), request);
        }
    }
}
