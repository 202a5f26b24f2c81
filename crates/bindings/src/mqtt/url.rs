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
    /// User and password.
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
        let credentials = (!user.is_empty()).then(|| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (name.to_owned(), password.to_owned())
        });
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
        for text in ["", "http://x", "mqtt://", "mqtt://h:x", "mqtt://u:p@h:x", "mqtt://[::1"] {
            let error = Url::parse(text).unwrap_err();
            assert!(!error.to_string().contains("u:p"), "{error}");
        }
    }
}
