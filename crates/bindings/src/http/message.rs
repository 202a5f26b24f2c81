//! HTTP messages of requests and responses: methods, targets, headers, bodies.

use super::codes::http_status;
use core::fmt::Write;
use core::time::Duration;
use gatewright_onem2m::primitive::cbor_from_json;
use gatewright_onem2m::{
    Operation, Refusal, Release, Request, Reservation, Response, Serialisation, Status,
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
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let cbor = accept.contains("cbor") && !accept.contains("json");
    if cbor { Serialisation::Cbor } else { Serialisation::Json }
}

/// Headers of a request, parsed in one pass.
#[derive(Default)]
struct ParsedHeaders<'head> {
    media: Option<&'head HeaderValue>,
    from: &'head str,
    id: &'head str,
    release: Option<&'head str>,
    /// Parameters by their short names.
    parameters: Vec<(&'static str, &'head str)>,
}

impl<'head> ParsedHeaders<'head> {
    fn of(headers: &'head HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            // A value that is no text says nothing.
            let text = value.to_str().ok();
            match (name.as_str(), text) {
                ("content-type", _) => said.media = Some(value),
                ("x-m2m-origin", Some(text)) => said.from = text,
                ("x-m2m-ri", Some(text)) => said.id = text,
                ("x-m2m-rvi", text) => said.release = text,
                (name, Some(text)) => {
                    let parameter = PARAMETERS.iter().find(|(header, _)| *header == name);
                    said.parameters.extend(parameter.map(|(_, short)| (*short, text)));
                }
                (_, None) => {}
            }
        }
        said
    }
}

/// Headers that carry a parameter (TS-0009 §6.4), and its short name.
const PARAMETERS: [(&str, &str); 7] = [
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
    let media = said.media.map(HeaderValue::to_str).transpose();
    let media = media.map_err(|_| Refusal::bad("content type is no text"))?.unwrap_or_default();
    let (serialisation, kind) = read_content_type(media, !body.is_empty())?;
    let operation = match head.method {
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
    let to = read_target(head.uri.path())?;
    let mut request = Request::new(operation, to, said.from, said.id);
    let release = said.release.ok_or_else(|| Refusal::bad("X-M2M-RVI is missing"))?;
    request.release = Release::parse(release)?;
    if let Some(kind) = kind {
        request.set_resource_type(kind)?;
    }
    for (name, value) in said.parameters {
        request.set(name, value)?;
    }
    for pair in head.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
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
    let host = host.as_bytes();
    // It is empty where the target has no authority.
    if host.is_empty() || (!host.contains(&b'@') && Authority::try_from(host).is_ok()) {
        return Ok(());
    }
    Err(Refusal::bad("Host is no host"))
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
    for octet in text.bytes() {
        let plain = octet.is_ascii_alphanumeric() || b"-._~/:+,*@!$'()".contains(&octet);
        if plain {
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
    let (head, body) = build_request(url, request, serialisation)?.into_parts();
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let host = head.uri.authority().map_or("", |host| host.as_str());
    output.extend_from_slice(head.method.as_str().as_bytes());
    for part in [" ", target, " HTTP/1.1\r\nhost: ", host, "\r\n"] {
        output.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            output.extend_from_slice(part);
        }
    }
    if !body.is_empty() || head.method == Method::POST || head.method == Method::PUT {
        output.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    output.extend_from_slice(b"\r\n");
    output.extend_from_slice(&body);
    Ok(())
}

fn build_request(
    url: &str,
    request: &Request,
    serialisation: Serialisation,
) -> Result<hyper::Request<Bytes>, Refusal> {
    let bad = |what: &str| Refusal::bad(format!("{what} cannot be written in HTTP"));
    let method = match request.operation {
        Operation::Create | Operation::Notify => Method::POST,
        Operation::Retrieve => Method::GET,
        Operation::Update => Method::PUT,
        Operation::Delete => Method::DELETE,
    };
    let uri: Uri = write_url(url, request).parse().map_err(|_| bad("the target"))?;
    let body = match (&request.content, serialisation) {
        (None, _) => Bytes::new(),
        (Some(content), Serialisation::Json) => Bytes::copy_from_slice(content.as_bytes()),
        (Some(content), Serialisation::Cbor) => cbor_from_json(content)?.into(),
    };
    let media = serialisation.media_type();
    let mut builder = hyper::Request::builder()
        .method(method)
        .uri(uri)
        .header(ORIGIN, &request.from)
        .header(REQUEST_ID, &request.id)
        .header(RELEASE, request.release.text())
        .header(ACCEPT, media);
    if let Some(resource_type) = request.resource_type {
        builder = builder.header(CONTENT_TYPE, format!("{media};ty={}", resource_type.number()));
    } else if request.content.is_some() {
        builder = builder.header(CONTENT_TYPE, media);
    }
    let deadlines = [
        (REQUEST_EXPIRES, request.request_expires),
        (RESULT_EXPIRES, request.result_expires),
        (EXECUTES, request.executes),
    ];
    for (name, deadline) in deadlines {
        if let Some(deadline) = deadline {
            builder = builder.header(name, deadline.text());
        }
    }
    if let Some(vendor) = &request.vendor {
        builder = builder.header(VENDOR, &**vendor);
    }
    if let Some(category) = request.event_category {
        builder = builder.header(EVENT_CATEGORY, category);
    }
    if let Some(group) = &request.group_request {
        builder = builder.header(GROUP_REQUEST, &**group);
    }
    if !request.notify.is_empty() {
        builder = builder.header(NOTIFIED, request.notify.join("&"));
    }
    builder.body(body).map_err(|_| bad("a header"))
}

/// The URL of a request; for a notification, the target itself.
fn write_url(url: &str, request: &Request) -> String {
    if request.to.contains("://") {
        return request.to.clone();
    }
    let mut text = url.trim_end_matches('/').to_owned();
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

/// A response status code as header value; common codes need no allocation.
fn status_value(status: Status) -> HeaderValue {
    match status {
        Status::Ok => HeaderValue::from_static("2000"),
        Status::Created => HeaderValue::from_static("2001"),
        status => HeaderValue::from(status.number()),
    }
}

/// Builds an HTTP response.
pub(crate) fn write_response(
    response: Response,
    serialisation: Serialisation,
) -> hyper::Response<Bytes> {
    let mut message = hyper::Response::new(Bytes::new());
    *message.status_mut() = http_status(response.status);
    let headers = message.headers_mut();
    headers.insert(STATUS, status_value(response.status));
    headers.insert(RELEASE, HeaderValue::from_static(response.release.text()));
    if let Ok(id) = HeaderValue::from_str(&response.id) {
        headers.insert(REQUEST_ID, id);
    }
    if let Some(Ok(location)) = response.location.as_deref().map(HeaderValue::from_str) {
        headers.insert(CONTENT_LOCATION, location);
    }
    if let Some(cut_at) = response.cut_at {
        // 1: partial content (m2m:contentStatus).
        headers.insert(CONTENT_STATUS, HeaderValue::from_static("1"));
        headers.insert(CONTENT_OFFSET, HeaderValue::from(cut_at));
    }
    let Some(content) = response.content else {
        return message;
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(serialisation.media_type()));
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

/// Parses an HTTP response.
pub(crate) fn read_response(head: &response::Parts, body: &[u8]) -> Result<Response, Refusal> {
    let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok());
    let number = text(&STATUS).and_then(|number| number.parse().ok());
    // Notification targets are often plain web servers: 2xx from them is good.
    let is_busy =
        matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let status = match number.and_then(Status::from_number) {
        Some(status) => status,
        None if head.status.is_success() => Status::Ok,
        None if is_busy => Status::InternalServerError,
        None => {
            return Err(Refusal::bad(format!("HTTP status {} without X-M2M-RSC", head.status)));
        }
    };
    let release = text(&RELEASE).and_then(|text| Release::parse(text).ok()).unwrap_or_default();
    let mut response = Response::new(status, text(&REQUEST_ID).unwrap_or_default(), release);
    response.location = text(&CONTENT_LOCATION).map(Arc::from);
    response.retry_after =
        is_busy.then(|| text(&RETRY_AFTER).and_then(pause).unwrap_or(AGAIN_AFTER));
    response.is_unavailable = head.status == StatusCode::SERVICE_UNAVAILABLE;
    response.cut_at = text(&CONTENT_OFFSET).and_then(|offset| offset.parse().ok());
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
