//! oneM2M requests and responses as CoAP messages (TS-0008 §6).

use super::{CoapMessage, OPTION_OCTETS_MAX};
use crate::primitive::{Operation, PartialContent, Release, Request, Response, Serialisation};
use crate::status::{Meaning, Refusal, Status};
use core::time::Duration;
use gatewright_wire::coap::{Code, ContentFormat, OptionNumber};
use std::sync::Arc;

/// Default Max-Age of a response in seconds (RFC 7252 §5.10.5).
const MAX_AGE: u64 = 60;

/// Options defined by TS-0008 (table 6.2.2.4-1).
pub mod option {
    use gatewright_wire::coap::OptionNumber;

    /// Result notification targets (`rtu`), joined by `&`.
    pub const RTURI: OptionNumber = OptionNumber(263);
    /// Resource type of a creation (`ty`), a number.
    pub const TY: OptionNumber = OptionNumber(267);
    /// Release version indicator (`rvi`).
    pub const RVI: OptionNumber = OptionNumber(271);
    /// Originator (`fr`).
    pub const FR: OptionNumber = OptionNumber(279);
    /// Request identifier (`rqi`).
    pub const RQI: OptionNumber = OptionNumber(283);
    /// Request expiration timestamp (`rqet`).
    pub const RQET: OptionNumber = OptionNumber(291);
    /// Result expiration timestamp (`rset`).
    pub const RSET: OptionNumber = OptionNumber(295);
    /// Operation execution time (`oet`).
    pub const OET: OptionNumber = OptionNumber(299);
    /// Event category (`ec`), a number.
    pub const EC: OptionNumber = OptionNumber(303);
    /// Response status code (`rsc`), a number.
    pub const RSC: OptionNumber = OptionNumber(307);
    /// Group request identifier (`gid`).
    pub const GID: OptionNumber = OptionNumber(311);
    /// Content offset (`cnot`), a number.
    pub const CTO: OptionNumber = OptionNumber(319);
    /// Content status (`cnst`), a number.
    pub const CTS: OptionNumber = OptionNumber(323);
    /// Vendor information (`vsi`).
    pub const VSI: OptionNumber = OptionNumber(331);

    /// The first and the last number that TS-0008 uses.
    const RANGE: core::ops::RangeInclusive<u16> = 259..=351;

    /// Whether an option is oneM2M's: those without effect here are carried for other entities.
    pub fn is_known(number: OptionNumber) -> bool {
        number == OptionNumber::CONTENT_FORMAT || RANGE.contains(&number.0)
    }
}

/// Parses a request.
///
/// # Errors
///
/// [`Refusal`] with the cause.
pub fn read_request(message: &CoapMessage) -> Result<Request, Refusal> {
    let operation = match message.code {
        Code::GET => Operation::Retrieve,
        Code::PUT => Operation::Update,
        Code::DELETE => Operation::Delete,
        Code::POST if message.value(option::TY).is_some() => Operation::Create,
        Code::POST => Operation::Notify,
        _ => {
            return Err(Refusal::new(
                Status::OperationNotAllowed,
                "methods are GET, POST, PUT and DELETE",
            ));
        }
    };
    let text = |number| text_of(message, number);
    let to = read_target(message)?;
    let from = text(option::FR)?.unwrap_or_default();
    let mut request = Request::new(operation, to, from, request_id(message));
    let release = text(option::RVI)?.ok_or_else(|| Refusal::bad("oneM2M-RVI is missing"))?;
    request.release = Release::parse(release)?;
    if let Some(resource_type) = message.value(option::TY) {
        let resource_type = message.uint(option::TY).filter(|_| resource_type.len() <= 2);
        let resource_type =
            resource_type.ok_or_else(|| Refusal::bad("oneM2M-TY is no resource type"))?;
        request.set_resource_type(&resource_type.to_string())?;
    }
    if let Some(category) = message.uint(option::EC) {
        request.set("ec", &category.to_string())?;
    }
    for (number, name) in [
        (option::RQET, "rqet"),
        (option::RSET, "rset"),
        (option::OET, "oet"),
        (option::RTURI, "rtu"),
        (option::GID, "gid"),
        (option::VSI, "vsi"),
    ] {
        if let Some(value) = text(number)? {
            request.set(name, value)?;
        }
    }
    // RFC 7252 §5.10.1: an argument has 0 to 255 octets; an empty one says nothing.
    for query in message.values(OptionNumber::URI_QUERY).filter(|query| !query.is_empty()) {
        let query =
            core::str::from_utf8(query).map_err(|_| Refusal::bad("Uri-Query is not UTF-8"))?;
        let (name, value) = query.split_once('=').unwrap_or((query, ""));
        request.set(name, value)?;
    }
    if !message.payload.is_empty() {
        let serialisation = Serialisation::of_format(message)?;
        request.content = Some(serialisation.read(&message.payload)?.into());
    }
    Ok(request)
}

/// The identifier of a request that may otherwise be malformed.
pub fn request_id(message: &CoapMessage) -> &str {
    message.text(option::RQI).unwrap_or_default()
}

fn text_of(message: &CoapMessage, number: OptionNumber) -> Result<Option<&str>, Refusal> {
    let text = message.value(number).map(core::str::from_utf8).transpose();
    text.map_err(|_| Refusal::bad(format!("option {} is not UTF-8", number.0)))
}

/// The address in the path: a first segment `~` makes it SP-relative, `_` absolute
/// (TS-0008 §6.2.2.3).
fn read_target(message: &CoapMessage) -> Result<String, Refusal> {
    let mut to = String::new();
    for (at, segment) in message.values(OptionNumber::URI_PATH).enumerate() {
        let segment =
            core::str::from_utf8(segment).map_err(|_| Refusal::bad("Uri-Path is not UTF-8"))?;
        match (at, segment) {
            (0, "~") => {}
            (0, "_") => to.push('/'),
            (0, segment) => to.push_str(segment),
            (_, segment) => {
                to.push('/');
                to.push_str(segment);
            }
        }
    }
    Ok(to)
}

fn write_target(message: &mut CoapMessage, address: &str) {
    let rest = if let Some(absolute) = address.strip_prefix("//") {
        message.put(OptionNumber::URI_PATH, "_");
        absolute
    } else if let Some(relative) = address.strip_prefix('/') {
        message.put(OptionNumber::URI_PATH, "~");
        relative
    } else {
        address
    };
    for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
        message.put(OptionNumber::URI_PATH, segment);
    }
}

impl Serialisation {
    /// Serialisation of a message's body; JSON by default.
    fn of_format(message: &CoapMessage) -> Result<Self, Refusal> {
        let Some(format) = message.value(OptionNumber::CONTENT_FORMAT) else {
            return Ok(Self::Json);
        };
        let number = message.uint(OptionNumber::CONTENT_FORMAT).filter(|_| format.len() <= 2);
        number.and_then(Self::from_format).ok_or_else(|| {
            Refusal::new(
                Status::UnsupportedMediaType,
                "content is application/json or application/cbor",
            )
        })
    }

    /// Serialisation of a request's response: the accepted one, else the request's own.
    pub fn accepted(message: &CoapMessage) -> Self {
        let wanted = message.uint(OptionNumber::ACCEPT).and_then(Self::from_format);
        wanted.or_else(|| Self::of_format(message).ok()).unwrap_or_default()
    }

    fn from_format(number: u64) -> Option<Self> {
        match ContentFormat(u16::try_from(number).ok()?) {
            ContentFormat::JSON => Some(Self::Json),
            ContentFormat::CBOR => Some(Self::Cbor),
            _ => None,
        }
    }

    const fn format(self) -> u64 {
        match self {
            Self::Json => ContentFormat::JSON.0 as u64,
            Self::Cbor => ContentFormat::CBOR.0 as u64,
        }
    }
}

/// Builds a request for the entity at `url` (`coap://host:port/path`); for a notification to a URL
/// the target is the URL.
///
/// # Errors
///
/// 5000 if the content is no JSON; 4000 if a parameter, or a piece of an address, is longer than the
/// 255 octets that an option holds: TS-0008 §6.2.2.3 does not say how to divide one.
pub fn write_request(
    url: &str,
    request: &Request,
    serialisation: Serialisation,
) -> Result<CoapMessage, Refusal> {
    let mut message = CoapMessage::new(match request.operation {
        Operation::Create | Operation::Notify => Code::POST,
        Operation::Retrieve => Code::GET,
        Operation::Update => Code::PUT,
        Operation::Delete => Code::DELETE,
    });
    let direct = request.to.contains("://");
    let (host, path, query) = split_url(if direct { &request.to } else { url });
    if host.parse::<core::net::IpAddr>().is_err() {
        message.put(OptionNumber::URI_HOST, host);
    }
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        message.put(OptionNumber::URI_PATH, segment);
    }
    if !direct {
        write_target(&mut message, &request.to);
    }
    if let Some(content) = &request.content {
        message.put_uint(OptionNumber::CONTENT_FORMAT, serialisation.format());
        message.payload = serialisation.write(content)?;
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        message.put(OptionNumber::URI_QUERY, pair);
    }
    for (name, value) in request.query() {
        message.put(OptionNumber::URI_QUERY, format!("{name}={value}"));
    }
    message.put_uint(OptionNumber::ACCEPT, serialisation.format());
    write_parameters(&mut message, request);
    match message.options.iter().find(|(_, value)| value.len() > OPTION_OCTETS_MAX) {
        None => Ok(message),
        Some((number, value)) => {
            let name = number.name().map_or_else(|| number.0.to_string(), str::to_owned);
            let octets = value.len();
            Err(Refusal::bad(format!(
                "{octets} octets do not fit into CoAP option {name}, which holds {OPTION_OCTETS_MAX}"
            )))
        }
    }
}

fn write_parameters(message: &mut CoapMessage, request: &Request) {
    if !request.notify.is_empty() {
        message.put(option::RTURI, request.notify.join("&"));
    }
    if let Some(resource_type) = request.resource_type {
        message.put_uint(option::TY, resource_type.number().into());
    }
    message.put(option::RVI, request.release.text());
    if !request.from.is_empty() {
        message.put(option::FR, request.from.as_str());
    }
    message.put(option::RQI, request.id.as_str());
    if let Some(expires) = request.request_expires {
        message.put(option::RQET, expires.text());
    }
    if let Some(expires) = request.result_expires {
        message.put(option::RSET, expires.text());
    }
    if let Some(executes) = request.executes {
        message.put(option::OET, executes.text());
    }
    if let Some(category) = request.event_category {
        message.put_uint(option::EC, category.into());
    }
    if let Some(group) = &request.group_request {
        message.put(option::GID, &**group);
    }
    if let Some(vendor) = &request.vendor {
        message.put(option::VSI, &**vendor);
    }
}

/// Host, path and query of a URL, each as it stands there.
fn split_url(url: &str) -> (&str, &str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let host = match bracketed {
        Some((host, _)) => host,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    (host, path, query)
}

/// The CoAP response code of a response status code (TS-0008 §6.3).
pub const fn code_of(status: Status) -> Code {
    // Its own row in CoAP's table, another in HTTP's.
    if matches!(status, Status::ContentsUnacceptable) {
        return Code::NOT_ACCEPTABLE;
    }
    match status.meaning() {
        Meaning::Done => Code::CONTENT,
        Meaning::Created | Meaning::AcceptedInto => Code::CREATED,
        Meaning::Deleted => Code::DELETED,
        Meaning::Changed => Code::CHANGED,
        Meaning::Accepted => Code::VALID,
        Meaning::NotFound => Code::NOT_FOUND,
        Meaning::NotAllowed => Code::METHOD_NOT_ALLOWED,
        Meaning::TimedOut => Code::GATEWAY_TIMEOUT,
        Meaning::UnsupportedMediaType => Code::UNSUPPORTED_CONTENT_FORMAT,
        Meaning::NotAcceptable => Code::NOT_ACCEPTABLE,
        Meaning::Failed => Code::INTERNAL_SERVER_ERROR,
        Meaning::NotImplemented => Code::NOT_IMPLEMENTED,
        Meaning::Conflict | Meaning::Forbidden => Code::FORBIDDEN,
        Meaning::Doubled | Meaning::Wrong => Code::BAD_REQUEST,
    }
}

/// Builds a response.
pub fn write_response(response: &Response, serialisation: Serialisation) -> CoapMessage {
    let mut message = CoapMessage::new(code_of(response.status));
    let location = response.location.as_deref().unwrap_or_default();
    for segment in location.split('/').filter(|segment| !segment.is_empty()) {
        message.put(OptionNumber::LOCATION_PATH, segment);
    }
    if let Some(content) = &response.content {
        message.put_uint(OptionNumber::CONTENT_FORMAT, serialisation.format());
        // What this CSE wrote is JSON; CBOR can say all of it.
        message.payload = serialisation.write(content).unwrap_or_default();
    }
    message.put(option::RVI, response.release.text());
    message.put(option::RQI, response.id.as_bytes());
    message.put_uint(option::RSC, response.status.number().into());
    if let Some(partial) = response.partial {
        if let Some(offset) = partial.offset {
            message.put_uint(option::CTO, u64::try_from(offset).unwrap_or(u64::MAX));
        }
        message.put_uint(option::CTS, PartialContent::STATUS.into());
    }
    if let Some(after) = response.retry_after {
        // 4.29 or 5.03 with Max-Age: when the request may be sent again (RFC 8516 §3, RFC 7252
        // §5.9.3.4).
        let is_unavailable = response.is_unavailable;
        message.code =
            if is_unavailable { Code::SERVICE_UNAVAILABLE } else { Code::TOO_MANY_REQUESTS };
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        message.put_uint(OptionNumber::MAX_AGE, seconds);
    }
    message
}

/// Parses a response.
///
/// # Errors
///
/// If it is neither a oneM2M response nor a plain success.
pub fn read_response(message: &CoapMessage) -> Result<Response, Refusal> {
    let number = message.uint(option::RSC).and_then(|number| u16::try_from(number).ok());
    let is_busy = matches!(message.code, Code::TOO_MANY_REQUESTS | Code::SERVICE_UNAVAILABLE);
    let status = match number.and_then(Status::from_number) {
        Some(status) => status,
        None if message.code.class() == 2 => Status::Ok,
        None if is_busy => Status::InternalServerError,
        None => {
            let words = format!("CoAP response {} without oneM2M-RSC", message.code);
            return Err(Refusal::bad(words));
        }
    };
    let release =
        message.text(option::RVI).and_then(|text| Release::parse(text).ok()).unwrap_or_default();
    let mut response = Response::new(status, request_id(message), release);
    let location: Vec<&str> = message
        .values(OptionNumber::LOCATION_PATH)
        .filter_map(|segment| core::str::from_utf8(segment).ok())
        .collect();
    if !location.is_empty() {
        response.location = Some(Arc::from(location.join("/")));
    }
    // RFC 7252 §5.9.3.4, RFC 8516 §3: Max-Age says when to come again.
    let again = || Duration::from_secs(message.uint(OptionNumber::MAX_AGE).unwrap_or(MAX_AGE));
    response.retry_after = is_busy.then(again);
    response.is_unavailable = message.code == Code::SERVICE_UNAVAILABLE;
    response.partial = PartialContent::read(message.uint(option::CTS), message.uint(option::CTO));
    if !message.payload.is_empty()
        && let Ok(serialisation) = Serialisation::of_format(message)
    {
        response.content = Some(serialisation.read(&message.payload)?.into());
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fate::Fate;
    use crate::resource_type::ResourceType;

    /// What the client writes the server reads as the same, in each form of address and content.
    #[test]
    fn a_request_survives_the_wire() {
        for to in ["cse-in/a b", "/id-in/cse-in/é", "//example.com/id-in/cse-in", "id4711"] {
            let mut request = Request::new(Operation::Create, to, "/id-mn/Ca", "r1")
                .creating(ResourceType::Container, r#"{"m2m:cnt":{"lbl":["x"]}}"#);
            for (name, value) in [
                ("rcn", "2"),
                ("rqet", "20991231T235959,000000"),
                ("oet", "20991231T235958,000000"),
                ("rset", "60000"),
                ("vsi", "v"),
                ("lbl", "x+y"),
                ("atr", "con,a&b=c%20"),
                ("lbq", "color IN (red, green)+NT size"),
                ("cfs", "1"),
                ("cfq", "$[?@.a == 'x+%20' && @['b']]"),
                ("gmty", "1"),
                ("geom", "[1.5, -2]"),
                ("gsf", "3"),
                ("ec", "3"),
                ("gid", "g"),
                ("rtu", "coap://a&mqtt://b"),
            ] {
                request.set(name, value).unwrap();
            }
            for serialisation in [Serialisation::Json, Serialisation::Cbor] {
                let message = write_request("coap://host:80/", &request, serialisation).unwrap();
                assert_eq!(read_request(&message).unwrap(), request);
                assert_eq!(Serialisation::accepted(&message), serialisation);
                assert_eq!(message.text(OptionNumber::URI_HOST), Some("host"));
            }
        }
    }

    /// RFC 7252 table 4, TS-0008 table 6.2.2.4.0-1: an option of text has 255 octets at most.
    #[test]
    fn what_fits_no_option_is_not_sent() {
        let words = |octets: usize| "w".repeat(octets);
        let sent = |url: &str, to: &str, from: &str, label: &str| {
            let mut request = Request::new(Operation::Retrieve, to, from, "1");
            request.set("lbl", label).unwrap();
            let message = write_request(url, &request, Serialisation::Json);
            message.map(|_| ()).map_err(|refusal| refusal.status)
        };
        let (url, too_long) = ("coap://a", Err(Status::BadRequest));
        assert_eq!(sent(url, &words(255), &words(255), &words(251)), Ok(()));
        assert_eq!(sent(url, "x", "Ca", &words(252)), too_long);
        assert_eq!(sent(url, &words(256), "Ca", "x"), too_long);
        assert_eq!(sent(url, "x", &words(256), "x"), too_long);
        assert_eq!(sent(&format!("coap://a/?{}", words(256)), "x", "Ca", "x"), too_long);
    }

    #[test]
    fn each_wrong_option_has_its_code() {
        let mut good = CoapMessage::new(Code::POST);
        good.put(OptionNumber::URI_PATH, "cse-in");
        good.put(option::FR, "Ca");
        good.put(option::RQI, "1");
        let with = |number, value: &[u8]| {
            let mut message = good.clone();
            message.put(option::RVI, "4");
            message.put(number, value);
            message.payload = b"{}".to_vec();
            message
        };
        let told = read_request(&with(option::VSI, b"v")).unwrap();
        assert_eq!(told.operation, Operation::Notify);
        let empty = read_request(&with(OptionNumber::URI_QUERY, b"")).unwrap();
        assert_eq!(empty.filter, None, "RFC 7252 §5.10.1: 0 to 255 octets");
        let cases = [
            (good.clone(), Status::BadRequest),
            (with(option::TY, &[0xff, 0xff]), Status::NotImplemented),
            (with(option::TY, &[0, 0, 4]), Status::BadRequest),
            (with(option::RQET, b"soon"), Status::BadRequest),
            (with(option::GID, &[0xff]), Status::BadRequest),
            (with(OptionNumber::CONTENT_FORMAT, &[41]), Status::UnsupportedMediaType),
            (with(OptionNumber::URI_QUERY, b"rcn=99"), Status::BadRequest),
            (CoapMessage { code: Code(5), ..good.clone() }, Status::OperationNotAllowed),
        ];
        for (message, status) in cases {
            assert_eq!(read_request(&message).unwrap_err().status, status, "{message:?}");
        }
    }

    #[test]
    fn a_response_survives_the_wire() {
        let mut response = Response::new(Status::Created, "r1", Release::R3);
        response.content = Some(r#"{"m2m:cin":{"con":"96.50"}}"#.into());
        response.location = Some("cse-in/c/i1".into());
        for (offset, serialisation) in [
            (Some(17), Serialisation::Json),
            (None, Serialisation::Json),
            (Some(17), Serialisation::Cbor),
        ] {
            response.partial = Some(PartialContent { offset });
            let message = write_response(&response, serialisation);
            assert_eq!(message.code, Code::CREATED);
            assert_eq!(read_response(&message).unwrap(), response);
        }
        response.retry_after = Some(Duration::from_secs(7));
        let message = write_response(&response, Serialisation::Json);
        assert_eq!(read_response(&message).unwrap(), response);
        for &status in Status::ALL {
            let class = code_of(status).class();
            assert_eq!(class == 2, status.is_success(), "{status:?}");
        }
    }

    /// RFC 7252 §5.10.5: without the option it is 60 s; §5.9.3.4 and RFC 8516 §3: what it means.
    #[test]
    fn who_has_too_much_to_do_says_when_to_come_again() {
        for code in [Code::TOO_MANY_REQUESTS, Code::SERVICE_UNAVAILABLE] {
            let mut message = CoapMessage::new(code);
            let fate = |message: &CoapMessage| read_response(message).unwrap().fate();
            assert_eq!(fate(&message), Fate::Again(Some(Duration::from_mins(1))));
            message.put_uint(OptionNumber::MAX_AGE, 5);
            // Whatever else is said: it has not judged the request.
            message.put_uint(option::RSC, Status::NotAcceptable.number().into());
            assert_eq!(fate(&message), Fate::Again(Some(Duration::from_secs(5))));
        }
    }

    #[test]
    fn urls_come_apart() {
        let cases = [
            ("coap://host:5683/a/b?x=1&y", ("host", "a/b", "x=1&y")),
            ("coap://[2001:db8::1]:5683", ("2001:db8::1", "", "")),
            ("coap://192.0.2.1", ("192.0.2.1", "", "")),
        ];
        for (url, parts) in cases {
            assert_eq!(split_url(url), parts);
        }
    }
}
