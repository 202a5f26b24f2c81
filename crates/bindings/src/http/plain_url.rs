//! URLs that need no parser.

/// Octets of a URL at most that is taken apart without a parser.
const OCTETS_MAX: usize = 4_096;

/// Whether a character stands for itself in a path and in a query (RFC 3986 §3.3 and §3.4).
pub(super) const fn is_plain(octet: u8) -> bool {
    octet.is_ascii_alphanumeric()
        || matches!(
            octet,
            b'-' | b'.'
                | b'_'
                | b'~'
                | b'/'
                | b':'
                | b'+'
                | b','
                | b'*'
                | b'@'
                | b'!'
                | b'$'
                | b'\''
                | b'('
                | b')'
        )
}

/// Host with port, and path with query, of an HTTP URL that has only characters of which no parser
/// makes anything else. Most are such, and a parser takes longer than all else of a message.
pub(super) fn plain_parts(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://").filter(|rest| rest.len() <= OCTETS_MAX)?;
    let (host, target) = rest.split_at(rest.find('/')?);
    let (name, port) = host.split_once(':').unwrap_or((host, "80"));
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'-');
    let is_port = port.bytes().all(|octet| octet.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_target = |octet: u8| is_plain(octet) || matches!(octet, b'%' | b'?' | b'=' | b'&');
    let is_whole = !name.is_empty() && name.bytes().all(is_name) && is_port;
    (is_whole && target.bytes().all(is_target)).then_some((host, target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Uri;

    fn parsed(url: &str) -> (Option<String>, Option<String>) {
        let uri: Uri = url.parse().expect(url);
        let host = uri.authority().map(|host| host.as_str().to_owned());
        (host, uri.path_and_query().map(|target| target.as_str().to_owned()))
    }

    /// What is taken apart without a parser the parser takes apart in the same way.
    #[test]
    fn plain_urls_are_taken_apart_as_by_the_parser() {
        for url in [
            "http://127.0.0.1:8080/~/id-in/cse-in/phd-1/spo2",
            "http://cse.example.com/?rcn=0&lbl=a%2Bb",
            "http://h:1/_/sp.example/x:y@z",
            "http://h:65535/'()*!$,+~",
        ] {
            let (host, target) = plain_parts(url).expect(url);
            assert_eq!(parsed(url), (Some(host.to_owned()), Some(target.to_owned())));
        }
        for octet in 0..=u8::MAX {
            let url = format!("http://h/x{}y", char::from(octet));
            if let Some((host, target)) = plain_parts(&url) {
                assert_eq!(parsed(&url), (Some(host.to_owned()), Some(target.to_owned())));
            }
        }
    }

    #[test]
    fn other_urls_are_left_to_the_parser() {
        for url in [
            "https://h/x",
            "http://h",
            "http://h:99999/x",
            "http://h:/x",
            "http://u@h/x",
            "http://[::1]:80/x",
            "http://h/x#y",
            "http://h/é",
            "http:///x",
            "http://h/a b",
            "http://h:+8/x",
            "http://h?x/y",
        ] {
            assert_eq!(plain_parts(url), None, "{url}");
        }
    }
}
