//! The files of the page, which are part of the program.

use crate::answer::{HTML, PlainAnswer, WebAnswer};
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};

/// A file of the page.
struct PageFile {
    /// Its path below `page/`.
    name: &'static str,
    /// Tells its versions apart, in quotes (RFC 9110 §8.8.3).
    etag: &'static str,
    octets: &'static [u8],
    /// The same, compressed (RFC 1952).
    gzip: Option<&'static [u8]>,
}

static FILES: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The media type of a file, by its name.
fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => HTML,
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("webmanifest") => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

/// The file at `path`, or `None`; only the exact names of the files are known.
fn find(path: &str) -> Option<&'static PageFile> {
    let name = if path == "/" { "index.html" } else { path.strip_prefix('/')? };
    FILES.iter().find(|file| file.name == name)
}

/// Whether a file is at `path`.
pub(crate) fn is_file(path: &str) -> bool {
    find(path).is_some()
}

/// The answer with the file at `path`, or `None`.
pub(crate) fn answer(path: &str, headers: &HeaderMap) -> Option<WebAnswer> {
    let file = find(path)?;
    let name = file.name;
    let gzip = file.gzip.filter(|_| accepts_gzip(headers));
    let octets = Bytes::from_static(gzip.unwrap_or(file.octets));
    let plain = PlainAnswer::new(media_type(file.name), octets);
    // A name in `assets/` has a hash of its content. Whether the page has changed is asked each time:
    // that of an earlier program must not stay.
    let cache =
        if name.starts_with("assets/") { "max-age=31536000, immutable" } else { "no-cache" };
    let plain = plain.cache(cache).etag(HeaderValue::from_static(file.etag));
    let mut answer = plain.finish(headers);
    if gzip.is_some() {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    Some(answer)
}

/// Whether the client takes gzip (RFC 9110 §12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|it| it.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim();
        let is_refused = weight.strip_prefix("q=").is_some_and(|it| it.parse() == Ok(0_f32));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;
    use hyper::header::{ETAG, IF_NONE_MATCH};

    #[test]
    fn only_the_names_of_its_files_are_known() {
        let none = HeaderMap::new();
        assert!(answer("/", &none).is_some());
        for path in ["", "index.html", "/../Cargo.toml", "/assets/../index.html", "/assets", "//"] {
            assert!(answer(path, &none).is_none(), "{path}");
        }
    }

    #[test]
    fn a_version_that_the_client_has_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let first = answer("/", &headers).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        headers.insert(IF_NONE_MATCH, first.headers().get(ETAG).unwrap().clone());
        assert_eq!(answer("/", &headers).unwrap().status(), StatusCode::NOT_MODIFIED);
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(answer("/", &headers).unwrap().status(), StatusCode::OK);
    }

    /// RFC 9110 §12.5.3: `gzip;q=0` is "not acceptable".
    #[test]
    fn gzip_is_sent_to_those_that_take_it() {
        for (value, taken) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0.0", false),
            ("br", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepts_gzip(&headers), taken, "{value}");
        }
    }
}
