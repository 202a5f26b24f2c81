//! HTTP responses in a stream of octets (RFC 9112): where each ends, and whether another follows.

use super::message::is_field_value;
use core::mem::MaybeUninit;
use hyper::StatusCode;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use std::borrow::Cow;

/// Octets of a response at most.
const OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Header fields of a response at most.
const FIELDS_MAX: usize = 64;

/// A whole response, read in place.
#[derive(Debug)]
pub(super) struct Reply<'octets> {
    /// Its octets in the stream.
    pub(super) octets: usize,
    pub(super) status: StatusCode,
    pub(super) fields: ReplyFields<'octets>,
    pub(super) body: Cow<'octets, [u8]>,
    /// Whether the connection stays open behind it (RFC 9112 §9.3).
    pub(super) is_persistent: bool,
}

/// The header fields of a response: few, of which each is looked for in turn.
#[derive(Debug)]
pub(super) struct ReplyFields<'octets>(Vec<(&'octets str, &'octets [u8])>);

impl<'octets> ReplyFields<'octets> {
    /// The value of the first field of this name, if it is text.
    pub(super) fn text(&self, name: &HeaderName) -> Option<&'octets str> {
        self.values(name).next().and_then(text_of)
    }

    fn values(&self, name: &HeaderName) -> impl Iterator<Item = &'octets [u8]> {
        let is_it = move |field: &&(&str, _)| field.0.eq_ignore_ascii_case(name.as_str());
        self.0.iter().filter(is_it).map(|(_, value)| *value)
    }
}

/// A value as text, if it has nothing but visible ASCII, spaces and tabs.
fn text_of(value: &[u8]) -> Option<&str> {
    core::str::from_utf8(value).ok().filter(|text| is_field_value(text))
}

/// The kind of message at the front of the octets.
#[derive(Debug)]
pub(super) enum Taken<'octets> {
    /// Part of a response.
    More,
    /// An interim response (1xx) of so many octets, before the response proper.
    Interim(usize),
    /// A response.
    Whole(Reply<'octets>),
}

/// The framing of a body (RFC 9112 §6.3).
enum Framing {
    Length(usize),
    Chunked,
    /// With the connection.
    Close,
}

impl<'octets> Reply<'octets> {
    /// Takes a response off the front of `octets`; `is_end` means that none follow.
    ///
    /// # Errors
    ///
    /// If it is malformed, too long, or ends too early.
    pub(super) fn take(octets: &'octets [u8], is_end: bool) -> Result<Taken<'octets>, String> {
        let more = || {
            if is_end {
                return Err("the connection is closed".to_owned());
            }
            if octets.len() > OCTETS_MAX {
                return Err("the answer is too long".to_owned());
            }
            Ok(Taken::More)
        };
        let mut places = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let read = parser.parse_response_with_uninit_headers(&mut parsed, octets, &mut places);
        let length = match read {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return more(),
            Err(error) => return Err(format!("no HTTP response: {error}")),
        };
        let status = StatusCode::from_u16(parsed.code.unwrap_or_default());
        let status = status.map_err(|error| error.to_string())?;
        let is_current = parsed.version == Some(1);
        let fields = parsed.headers.iter().map(|field| (field.name, field.value)).collect();
        let fields = ReplyFields(fields);
        if status.is_informational() {
            return Ok(Taken::Interim(length));
        }
        let rest = octets.get(length..).unwrap_or_default();
        let framing = framing(status, &fields)?;
        let is_persistent = !matches!(framing, Framing::Close) && is_kept(is_current, &fields);
        let (body, taken) = match framing {
            Framing::Length(size) => match rest.get(..size) {
                Some(body) => (Cow::Borrowed(body), size),
                None => return more(),
            },
            Framing::Chunked => match chunks(rest)? {
                Some((body, taken)) => (Cow::Owned(body), taken),
                None => return more(),
            },
            Framing::Close if is_end => (Cow::Borrowed(rest), rest.len()),
            Framing::Close => return more(),
        };
        let octets = length.saturating_add(taken);
        Ok(Taken::Whole(Self { octets, status, fields, body, is_persistent }))
    }
}

fn framing(status: StatusCode, fields: &ReplyFields<'_>) -> Result<Framing, String> {
    if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(Framing::Length(0));
    }
    if let Some(coding) = fields.values(&TRANSFER_ENCODING).last() {
        // "If a Transfer-Encoding header field is present in a response and the chunked transfer
        // coding is not the final encoding, the message body length is determined by reading the
        // connection until it is closed by the server."
        let coding = text_of(coding).and_then(|text| text.rsplit(',').next()).unwrap_or_default();
        let is_chunked = coding.trim().eq_ignore_ascii_case("chunked");
        return Ok(if is_chunked { Framing::Chunked } else { Framing::Close });
    }
    let lengths = fields.values(&CONTENT_LENGTH);
    let mut lengths = lengths.map(|value| text_of(value).unwrap_or_default());
    let Some(first) = lengths.next() else { return Ok(Framing::Close) };
    let size = first.parse::<usize>().ok().filter(|size| *size <= OCTETS_MAX);
    match size {
        Some(size) if lengths.all(|other| other == first) => Ok(Framing::Length(size)),
        _ => Err("the answer's length is wrong or too long".to_owned()),
    }
}

/// Whether a connection persists (RFC 9112 §9.3); `is_current` if its version is HTTP/1.1.
fn is_kept(is_current: bool, fields: &ReplyFields<'_>) -> bool {
    let says = |wanted: &str| {
        let values = fields.values(&CONNECTION).filter_map(text_of);
        let mut options = values.flat_map(|value| value.split(','));
        options.any(|option| option.trim().eq_ignore_ascii_case(wanted))
    };
    !says("close") && (is_current || says("keep-alive"))
}

/// A chunked body (RFC 9112 §7.1) and its octets in the stream; `None` if it is not whole.
fn chunks(octets: &[u8]) -> Result<Option<(Vec<u8>, usize)>, String> {
    let (mut body, mut at) = (Vec::new(), 0_usize);
    loop {
        let rest = octets.get(at..).unwrap_or_default();
        let (begin, size) = match httparse::parse_chunk_size(rest) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk has no size".to_owned()),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if body.len().saturating_add(size) > OCTETS_MAX {
            return Err("the answer is too long".to_owned());
        }
        at = at.saturating_add(begin);
        if size == 0 {
            return Ok(trailer(octets.get(at..).unwrap_or_default()).map(|end| (body, at + end)));
        }
        let end = at.saturating_add(size);
        let Some(chunk) = octets.get(at..end) else { return Ok(None) };
        match octets.get(end..end.saturating_add(2)) {
            Some(b"\r\n") => {}
            Some(_) => return Err("a chunk does not end where it should".to_owned()),
            None => return Ok(None),
        }
        body.extend_from_slice(chunk);
        at = end + 2;
    }
}

/// Octets of the trailer section with its empty line, if that is there.
fn trailer(octets: &[u8]) -> Option<usize> {
    if octets.starts_with(b"\r\n") {
        return Some(2);
    }
    octets.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(octets: &[u8], is_end: bool) -> Reply<'_> {
        match Reply::take(octets, is_end).unwrap() {
            Taken::Whole(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// RFC 9112 §6.3 and §7.1: bodies by length, in chunks with extensions and trailers, none, and
    /// up to the end; cut anywhere before, each is incomplete.
    #[test]
    fn a_response_ends_where_its_head_says() {
        for (text, body, is_persistent) in [
            (
                "HTTP/1.1 201 Created\r\nContent-Length: 3\r\nX-M2M-RSC: 2001\r\n\r\nabc",
                "abc",
                true,
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nConnection: close\r\n\r\n", "", false),
            ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
            ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\nok",
                "ok",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
                 4;x=y\r\nWiki\r\n5\r\npedia\r\n0\r\nX: y\r\n\r\n",
                "Wikipedia",
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", true),
        ] {
            let reply = whole(text.as_bytes(), false);
            assert_eq!((&*reply.body, reply.is_persistent), (body.as_bytes(), is_persistent));
            assert_eq!(reply.octets, text.len(), "{text}");
            for cut in 0..text.len() {
                let part = &text.as_bytes()[..cut];
                assert!(matches!(Reply::take(part, false), Ok(Taken::More)), "{text} at {cut}");
                assert!(Reply::take(part, true).is_err(), "{text} at {cut}");
            }
            // What follows is the next response's.
            let two = [text.as_bytes(), b"HTTP/1.1 "].concat();
            assert_eq!(whole(&two, false).octets, text.len());
        }
        let open = b"HTTP/1.1 200 OK\r\n\r\nall of it";
        assert!(matches!(Reply::take(open, false), Ok(Taken::More)));
        let reply = whole(open, true);
        assert_eq!((&*reply.body, reply.is_persistent), (&b"all of it"[..], false));
    }

    #[test]
    fn interim_and_malformed_responses_are_told_apart() {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(matches!(Reply::take(interim, false), Ok(Taken::Interim(25))));
        for wrong in [
            "SMTP\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n",
        ] {
            assert!(Reply::take(wrong.as_bytes(), false).is_err(), "{wrong}");
        }
    }
}
