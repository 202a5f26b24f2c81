//! `mqtt://` and `mqtts://` URLs.

/// Ports of MQTT and of MQTT over TLS.
const PORT: u16 = 1_883;
const PORT_TLS: u16 = 8_883;

/// Address of a broker and the receiver there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Url {
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// User and password, without percent-encoding.
    pub(crate) credentials: Option<(String, String)>,
    /// The receiver, as it stands after the authority; empty if absent.
    pub(crate) receiver: String,
}

/// Error for a URL that names no broker.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0} is no URL of a broker (mqtt://HOST:PORT)")]
pub struct UrlError(pub(crate) String);

impl Url {
    /// Parses a URL.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        // What was given is not repeated: it may hold a password.
        let shown = || UrlError(text.split('@').next_back().unwrap_or_default().to_owned());
        let (secure, rest) = match text.split_once("://") {
            Some(("mqtt", rest)) => (false, rest),
            Some(("mqtts", rest)) => (true, rest),
            _ => return Err(shown()),
        };
        let (authority, receiver) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let credentials = if user.is_empty() {
            None
        } else {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            Some((decoded(name).ok_or_else(shown)?, decoded(password).ok_or_else(shown)?))
        };
        let default = if secure { PORT_TLS } else { PORT };
        let bracketed = place.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, "")) => (host, default),
            Some((host, port)) => {
                (host, port.strip_prefix(':').and_then(|it| it.parse().ok()).ok_or_else(shown)?)
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, port.parse().map_err(|_| shown())?),
                None => (place, default),
            },
        };
        if host.is_empty() {
            return Err(shown());
        }
        let (host, receiver) = (host.to_owned(), receiver.trim_matches('/').to_owned());
        Ok(Self { secure, host, port, credentials, receiver })
    }

    /// Host and port, the key of a broker.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The URL for display, without credentials.
    pub(crate) fn shown(&self) -> String {
        let scheme = if self.secure { "mqtts" } else { "mqtt" };
        format!("{scheme}://{}", self.authority())
    }
}

/// A part of a URL without percent-encoding (RFC 3986 §2.1); a `%` without two hexadecimal digits is
/// itself. `None` if that is no text that MQTT can carry (§1.5.4 of its version 5).
fn decoded(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let digit =
        |octet: u8| char::from(octet).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    while let Some((&first, tail)) = rest.split_first() {
        let encoded = match tail {
            [high, low, tail @ ..] if first == b'%' => {
                digit(*high).zip(digit(*low)).map(|(high, low)| ((high << 4) | low, tail))
            }
            _ => None,
        };
        let (octet, tail) = encoded.unwrap_or((first, tail));
        octets.push(octet);
        rest = tail;
    }
    String::from_utf8(octets).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_come_apart() {
        let read = |text| Url::parse(text).map(|url| (url.shown(), url.receiver, url.credentials));
        let known = Some(("u".to_owned(), "p:w".to_owned()));
        let cases = [
            ("mqtt://host", "mqtt://host:1883", "", None),
            ("mqtts://host/", "mqtts://host:8883", "", None),
            ("mqtt://u:p:w@127.0.0.1:99/id-in", "mqtt://127.0.0.1:99", "id-in", known),
            ("mqtt://[::1]:5/", "mqtt://[::1]:5", "", None),
        ];
        for (text, shown, receiver, credentials) in cases {
            assert_eq!(read(text), Ok((shown.into(), receiver.into(), credentials)), "{text}");
        }
        for text in [
            "",
            "http://x",
            "mqtt://",
            "mqtt://h:x",
            "mqtt://u:p@h:x",
            "mqtt://[::1",
            "mqtt://u:p%00@h",
            "mqtt://u:p%ff@h",
        ] {
            let error = Url::parse(text).unwrap_err();
            assert!(!error.to_string().contains("u:p"), "{error}");
        }
    }

    /// RFC 3986 §3.2.1: what would end a user or password is percent-encoded.
    #[test]
    fn users_and_passwords_are_decoded() {
        for (user, name, password) in [
            ("nurse%40ward:p%40ss%3A%2f%C3%bc", "nurse@ward", "p@ss:/\u{fc}"),
            ("nurse:100%25", "nurse", "100%"),
            ("nurse:100%", "nurse", "100%"),
            ("nurse:%zz%4", "nurse", "%zz%4"),
            ("nurse:%+1", "nurse", "%+1"),
        ] {
            let url = Url::parse(&format!("mqtt://{user}@host")).unwrap();
            assert_eq!(url.credentials, Some((name.to_owned(), password.to_owned())), "{user}");
        }
    }
}
