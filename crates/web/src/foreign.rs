//! What requests carry, read as the server reads it, but without a gateway: for the fuzzer.

use crate::{
    access::{self, Arrival, ArrivalKind},
    answer::{matches, tag_of},
    counters::WebCounters,
    page,
    query::Query,
    session::cookie,
    stream, tokens,
};
use hyper::{
    Uri,
    header::{HeaderMap, HeaderName, HeaderValue},
};

pub use crate::stream::merge_patch;

/// Parameters of all queries.
const PARAMETERS: &[&str] = &["after", "level", "at", "depth", "latest", "number", "name"];

/// What is read of a request.
#[derive(Debug, Default)]
pub struct ForeignRequest {
    /// Whether it is served on loopback, in the clear.
    pub is_served: bool,
    /// The authority that it names.
    pub host: String,
    /// The path of its target.
    pub path: String,
    /// Whether a file of the page is at its path.
    pub has_file: bool,
    /// The identifier of its session.
    pub session: Option<String>,
    /// The frame of a stream that it had last.
    pub position: Option<u64>,
}

impl ForeignRequest {
    /// Reads a request: the target in the first line, then a field a line; `None` if the library
    /// that reads requests refuses it.
    pub fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let uri: Uri = lines.next()?.parse().ok()?;
        let mut headers = HeaderMap::new();
        for line in lines.take(FIELDS_MAX) {
            let (name, value) = line.split_once(": ")?;
            let name: HeaderName = name.parse().ok()?;
            headers.append(name, HeaderValue::from_str(value).ok()?);
        }
        let counters = WebCounters::default();
        let arrival = |kind| Arrival::new(kind, None);
        let has_file = page::answer(uri.path(), &headers).is_some();
        let fields = (&headers, has_file);
        for kind in [ArrivalKind::Unix, ArrivalKind::Network] {
            let _refused = access::check(&arrival(kind), &uri, fields, &counters);
        }
        let _known = matches(&headers, &tag_of(b""));
        let _refused = Query::parse(uri.query(), PARAMETERS);
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let loopback = arrival(ArrivalKind::Loopback);
        Some(Self {
            is_served: access::check(&loopback, &uri, fields, &counters).is_ok(),
            host: text("host").unwrap_or_default().to_owned(),
            path: uri.path().to_owned(),
            has_file,
            session: cookie(&headers, false).map(str::to_owned),
            position: text("last-event-id").and_then(stream::position),
        })
    }
}

/// A line of a file of tokens as it is written again; `None` if it is no token's.
pub fn token_line(line: &str) -> Option<String> {
    tokens::parse(line).map(|token| token.to_string())
}

/// Maximum fields of a request, as the server has it.
const FIELDS_MAX: usize = 64;
