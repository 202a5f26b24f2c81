//! HTTP/1.1 requests that have arrived whole, and their responses as octets.
//!
//! Most requests to a CSE come in one segment. To read one takes no state, so that a connection with
//! such requests alone needs none of hyper's.

use super::message::{
    PARAMETERS, ParsedHeaders, accepted_by, each_answer_field, is_field_value, is_host, request_of,
    status_and_pause,
};
use gatewright_onem2m::primitive::cbor_from_json;
use gatewright_onem2m::{Refusal, Request, Response, Serialisation};
use hyper::Method;
use std::borrow::Cow;

/// Header fields of a request at most that is read at once.
const WHOLE_FIELDS_MAX: usize = 32;

/// A request that has arrived whole.
#[derive(Debug)]
pub(crate) struct WholeRequest<'octets> {
    /// The request, or why it is refused.
    pub(crate) request: Result<Request, Refusal>,
    /// Its identifier, also of one that is refused.
    pub(crate) id: &'octets str,
    /// The serialisation that the response is to have.
    pub(crate) serialisation: Serialisation,
}

/// Reads an HTTP/1.1 request that is all of `octets`: its head, and a body of a length that the head
/// gives and that is not above `body_octets_max`.
///
/// `None` for part of one, for several, and for everything that needs more than a look: another
/// version, method or coding, an expectation, an upgrade, a connection that is to be closed, a target
/// or a header with unusual octets or given twice. HTTP has a reader of its own for those.
pub(crate) fn read_whole(octets: &[u8], body_octets_max: usize) -> Option<WholeRequest<'_>> {
    let mut fields = [httparse::EMPTY_HEADER; WHOLE_FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(head)) = parsed.parse(octets) else { return None };
    let method = match (parsed.method?, parsed.version?) {
        ("GET", 1) => Method::GET,
        ("POST", 1) => Method::POST,
        ("PUT", 1) => Method::PUT,
        ("DELETE", 1) => Method::DELETE,
        _ => return None,
    };
    let target = parsed.path.filter(|target| is_plain_target(target))?;
    let fields = WholeFields::of(parsed.headers)?;
    let body = octets.get(head..)?;
    if body.len() != fields.length || body.len() > body_octets_max {
        return None;
    }
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    Some(WholeRequest {
        id: fields.said.id,
        serialisation: accepted_by(fields.accept),
        request: request_of(&method, (path, query), fields.said, body),
    })
}

/// Whether a target has only octets that no reader of URIs takes for another's (RFC 3986 §3.3, §3.4).
fn is_plain_target(target: &str) -> bool {
    let is_plain =
        |octet: u8| octet.is_ascii_alphanumeric() || b"-._~/%?&=+:@!$'()*,;".contains(&octet);
    target.starts_with('/') && target.bytes().all(is_plain)
}

/// Header fields of a request that is read at once.
#[derive(Default)]
struct WholeFields<'octets> {
    said: ParsedHeaders<'octets>,
    accept: &'octets str,
    /// Octets of the body.
    length: usize,
    /// Which of those that may be there once were there.
    seen: u16,
}

/// Header fields that may be there once.
const SINGLE: [&str; 7] =
    ["host", "x-m2m-origin", "x-m2m-ri", "x-m2m-rvi", "content-type", "content-length", "accept"];
/// Header fields by which HTTP does something else than to answer a request (RFC 9112 §6.1, §9.3,
/// RFC 9110 §7.8, §10.1.1).
const OTHERWISE: [&str; 9] = [
    // Refused there, as a web page's.
    "origin",
    "transfer-encoding",
    "connection",
    "expect",
    "upgrade",
    "te",
    "trailer",
    "content-encoding",
    "http2-settings",
];

impl<'octets> WholeFields<'octets> {
    fn of(fields: &[httparse::Header<'octets>]) -> Option<Self> {
        let mut whole = Self::default();
        for field in fields {
            let value = core::str::from_utf8(field.value).ok().filter(|it| is_field_value(it))?;
            whole.take(field.name, value)?;
        }
        // RFC 9112 §3.2.
        (whole.seen & 1 == 1).then_some(whole)
    }

    fn take(&mut self, name: &str, value: &'octets str) -> Option<()> {
        let is_it = |other: &str| name.eq_ignore_ascii_case(other);
        let Some(at) = SINGLE.iter().position(|other| is_it(other)) else {
            if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("keep-alive") {
                return Some(());
            }
            if OTHERWISE.iter().any(|other| is_it(other)) {
                return None;
            }
            let parameter = PARAMETERS.iter().find(|(header, _)| is_it(header));
            self.said.parameters.extend(parameter.map(|(_, short)| (*short, value)));
            return Some(());
        };
        let bit = 1 << at;
        if self.seen & bit != 0 {
            return None;
        }
        self.seen |= bit;
        match SINGLE.get(at).copied() {
            Some("host") => return is_host(value.as_bytes()).then_some(()),
            Some("accept") => self.accept = value,
            Some("content-length") => {
                let is_number = !value.is_empty() && value.bytes().all(|it| it.is_ascii_digit());
                self.length = value.parse().ok().filter(|_| is_number)?;
            }
            Some(name) => self.said.take(name, Some(value)),
            None => {}
        }
        Some(())
    }
}

/// Appends an HTTP/1.1 response as octets (RFC 9112 §4), as hyper would write it.
pub(crate) fn write_response_message(
    response: &Response,
    serialisation: Serialisation,
    (date, is_last): (&str, bool),
    output: &mut Vec<u8>,
) {
    let (status, pause) = status_and_pause(response);
    let body = match (&response.content, serialisation) {
        (None, _) => Cow::Borrowed(&[][..]),
        (Some(content), Serialisation::Json) => Cow::Borrowed(content.as_bytes()),
        // What this CSE wrote is JSON; CBOR can say all of it.
        (Some(content), Serialisation::Cbor) => {
            Cow::Owned(cbor_from_json(content).unwrap_or_default())
        }
    };
    let mut push = |parts: &[&str]| {
        for part in parts {
            output.extend_from_slice(part.as_bytes());
        }
    };
    push(&["HTTP/1.1 ", status.as_str(), " ", status.canonical_reason().unwrap_or(""), "\r\n"]);
    each_answer_field(response, serialisation, |name, value| {
        // What HTTP cannot say is left out.
        if is_field_value(value) {
            push(&[name.as_str(), ": ", value, "\r\n"]);
        }
    });
    if let Some(seconds) = pause {
        push(&["retry-after: ", &seconds.to_string(), "\r\n"]);
    }
    if is_last {
        push(&["connection: close\r\n"]);
    }
    push(&["content-length: ", &body.len().to_string(), "\r\ndate: ", date, "\r\n\r\n"]);
    output.extend_from_slice(&body);
}

#[cfg(test)]
mod tests {
    use super::super::message::{accepted, read_request, write_response};
    use super::*;
    use gatewright_onem2m::{Operation, PartialContent, ResourceType, Status};

    const OCTETS_MAX: usize = 4_096;

    fn message(first: &str, fields: &str, body: &str) -> Vec<u8> {
        let length = body.len();
        format!("{first}\r\nHost: x\r\nContent-Length: {length}\r\n{fields}\r\n{body}").into_bytes()
    }

    /// The same request as hyper's types give it; `None` if they do not take it.
    fn by_hyper(octets: &[u8]) -> Option<(Result<Request, Refusal>, Serialisation)> {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut parsed = httparse::Request::new(&mut fields);
        let Ok(httparse::Status::Complete(head)) = parsed.parse(octets) else { return None };
        let mut builder = hyper::Request::builder();
        builder = builder.method(parsed.method?).uri(parsed.path?);
        for field in parsed.headers {
            builder = builder.header(field.name, field.value);
        }
        let (parts, ()) = builder.body(()).ok()?.into_parts();
        Some((read_request(&parts, octets.get(head..)?), accepted(&parts.headers)))
    }

    const SAID: &str = "X-M2M-Origin: Ca\r\nx-m2m-RI: 7\r\nX-M2M-RVI: 4\r\n";

    #[test]
    fn a_whole_request_is_read_as_hyper_reads_it() {
        let create = format!("{SAID}Content-Type: application/json;ty=4\r\nAccept: */*\r\n");
        let cbor =
            format!("{SAID}Accept: application/cbor\r\nX-M2M-RET: 5000\r\nUser-Agent: q\r\n");
        let content = r#"{"m2m:cin":{"con":"7"}}"#;
        for octets in [
            message("POST /cse-in/c?rcn=0 HTTP/1.1", &create, content),
            message("GET /cse-in/c/la?lbl=a%2Bb&fu=1 HTTP/1.1", &cbor, ""),
            message("GET /~/id-mn/x%20y HTTP/1.1", SAID, ""),
            message("DELETE /cse-in/c HTTP/1.1", &format!("{SAID}Connection: Keep-Alive\r\n"), ""),
            message("PUT /cse-in/c HTTP/1.1", &create, content),
            // Refused by both, for the same reason.
            message("GET /cse-in HTTP/1.1", "X-M2M-RI: 9\r\n", ""),
            message("POST /cse-in?rcn=99 HTTP/1.1", &create, content),
            message("GET /% HTTP/1.1", SAID, ""),
            message("GET /cse-in HTTP/1.1", "X-M2M-RI: 9\r\nX-M2M-RVI: 1\r\n", ""),
        ] {
            let text = String::from_utf8_lossy(&octets).into_owned();
            let whole = read_whole(&octets, OCTETS_MAX).expect(&text);
            let (request, serialisation) = by_hyper(&octets).expect(&text);
            assert_eq!(whole.request, request, "{text}");
            assert_eq!(whole.serialisation, serialisation, "{text}");
            assert_eq!(whole.id, if text.contains("RI: 9") { "9" } else { "7" });
        }
        let made = message("POST /cse-in/c?rcn=0 HTTP/1.1", &create, content);
        let made = read_whole(&made, OCTETS_MAX).unwrap().request.unwrap();
        assert_eq!((made.operation, made.to.as_str()), (Operation::Create, "cse-in/c"));
        assert_eq!(made.resource_type, Some(ResourceType::ContentInstance));
        assert_eq!(made.content.as_deref(), Some(content));
    }

    /// Each octet of a request replaced by each other one: what is read is what hyper reads.
    #[test]
    fn a_changed_octet_is_read_as_hyper_reads_it() {
        let create = format!("{SAID}Content-Type: application/json;ty=4\r\nX-M2M-EC: 2\r\n");
        let octets = message("POST /c/%41?rcn=0&lbl=a HTTP/1.1", &create, r#"{"m2m:cin":{}}"#);
        let mut read = 0;
        for at in 0..octets.len() {
            for octet in 0..=u8::MAX {
                let mut changed = octets.clone();
                changed[at] = octet;
                let Some(whole) = read_whole(&changed, OCTETS_MAX) else { continue };
                let text = String::from_utf8_lossy(&changed).into_owned();
                let (request, serialisation) = by_hyper(&changed).expect(&text);
                assert_eq!(
                    (whole.request, whole.serialisation),
                    (request, serialisation),
                    "{text}"
                );
                read += 1;
            }
        }
        assert!(read > 1_000, "{read}");
    }

    #[test]
    fn what_needs_more_than_a_look_is_left_to_hyper() {
        let get = message("GET /cse-in HTTP/1.1", SAID, "");
        assert!(read_whole(&get, OCTETS_MAX).is_some());
        let with = |more: &str| message("GET /cse-in HTTP/1.1", &format!("{SAID}{more}\r\n"), "");
        let mut others = vec![
            get[..get.len() - 1].to_vec(),
            [get.as_slice(), b"G"].concat(),
            [get.as_slice(), &get].concat(),
            message("GET /cse-in HTTP/1.0", SAID, ""),
            message("PATCH /cse-in HTTP/1.1", SAID, ""),
            message("GET http://x/cse-in HTTP/1.1", SAID, ""),
            message("GET /cse-in#a HTTP/1.1", SAID, ""),
            message("POST /cse-in HTTP/1.1", SAID, &"x".repeat(OCTETS_MAX + 1)),
            b"GET /cse-in HTTP/1.1\r\nX-M2M-RI: 7\r\n\r\n".to_vec(),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            Vec::new(),
        ];
        others.extend(
            [
                "Transfer-Encoding: chunked",
                "Connection: close",
                "Connection: keep-alive, upgrade",
                "Expect: 100-continue",
                "Upgrade: h2c",
                "Content-Length: 0",
                "Host: y",
                "X-M2M-RI: 8",
                "X-M2M-Origin: Cb",
                "User-Agent: \u{e9}",
                "X-A: a\r\n folded",
            ]
            .map(with),
        );
        for length in ["-0", "+0", "", "0x0", "99999999999999999999999"] {
            let first = "GET /cse-in HTTP/1.1\r\nHost: x\r\n";
            others.push(format!("{first}Content-Length: {length}\r\n{SAID}\r\n").into_bytes());
        }
        for octets in others {
            let is_whole = read_whole(&octets, OCTETS_MAX).is_some();
            assert!(!is_whole, "{}", String::from_utf8_lossy(&octets));
        }
    }

    /// Field by field what hyper writes, its own framing aside.
    #[test]
    fn a_response_says_what_hypers_says() {
        let refusal = Refusal::new(Status::InternalServerError, "later");
        let mut busy = Response::refusing(&refusal, "r\n1", gatewright_onem2m::Release::default());
        busy.retry_after = Some(core::time::Duration::from_millis(1_500));
        let mut made = Response::new(Status::Created, "r1", gatewright_onem2m::Release::default());
        made.location = Some("cse-in/c/x".into());
        made.content = Some(r#"{"m2m:cin":{"con":1.50}}"#.into());
        made.partial = Some(PartialContent { offset: Some(7) });
        for response in [busy, made] {
            for serialisation in [Serialisation::Json, Serialisation::Cbor] {
                let mut octets = Vec::new();
                let date = "Fri, 31 Dec 1999 23:59:59 GMT";
                write_response_message(&response, serialisation, (date, true), &mut octets);
                let mut fields = [httparse::EMPTY_HEADER; 32];
                let mut parsed = httparse::Response::new(&mut fields);
                let Ok(httparse::Status::Complete(head)) = parsed.parse(&octets) else {
                    panic!("no head")
                };
                let message = write_response(response.clone(), serialisation);
                assert_eq!(parsed.code, Some(message.status().as_u16()));
                let expected = message.headers().iter();
                let expected: Vec<_> =
                    expected.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
                let length = message.body().len().to_string();
                let framing = [
                    ("connection", &b"close"[..]),
                    ("content-length", length.as_bytes()),
                    ("date", date.as_bytes()),
                ];
                let said: Vec<_> = parsed.headers.iter().map(|it| (it.name, it.value)).collect();
                assert_eq!(said, [expected.as_slice(), &framing].concat());
                assert_eq!(&octets[head..], &message.body()[..]);
            }
        }
    }
}
