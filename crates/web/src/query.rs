//! The query of a request: `after=7&level=warning` (WHATWG URL §5.1, without forms' `+`).

use crate::answer::WebRefusal;

/// Maximum parameters of a query.
const PARAMETERS_MAX: usize = 16;

/// The parameters of a query.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query; only the parameters `known` may be in it, each once.
    ///
    /// # Errors
    ///
    /// 400, with the parameter.
    pub(crate) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, WebRefusal> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        for pair in pairs.take(PARAMETERS_MAX) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(name).zip(decode(value));
            let (name, value) = decoded.ok_or_else(|| {
                WebRefusal::bad_request("the query has a % without two digits".to_owned())
            })?;
            if !known.contains(&name.as_str()) {
                return Err(WebRefusal::bad_request(format!(
                    "there is no parameter of this name: {}",
                    list(known)
                )));
            }
            if parameters.iter().any(|(other, _)| *other == name) {
                return Err(WebRefusal::bad_request(format!("{name} is given twice")));
            }
            parameters.push((name, value));
        }
        Ok(Self(parameters))
    }

    /// The value of a parameter as it is.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter, if it is given.
    ///
    /// # Errors
    ///
    /// 400, with what it may be.
    pub(crate) fn value<T: std::str::FromStr>(
        &self,
        name: &str,
        form: &str,
    ) -> Result<Option<T>, WebRefusal> {
        let parsed = self.text(name).map(str::parse).transpose();
        parsed.map_err(|_| WebRefusal::bad_request(format!("{name} is {form}")))
    }
}

fn list(known: &[&str]) -> String {
    if known.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", known.join(", "))
    }
}

/// A text with its `%XX` as octets (RFC 3986 §2.1); `None` if it is not well-formed.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        if octet == b'%' {
            let digit = |octet: Option<u8>| char::from(octet?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            octets.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            octets.push(octet);
        }
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_unknown_or_repeated_ones_are_refused() {
        let query = Query::parse(Some("after=7&at=%2Fgw%2Fa%20b"), &["after", "at"]).unwrap();
        assert_eq!(query.value::<u64>("after", "a number").unwrap(), Some(7));
        assert_eq!(query.text("at"), Some("/gw/a b"));
        assert_eq!(query.value::<u64>("depth", "a number").unwrap(), None);
        assert!(query.value::<u64>("at", "a number").is_err());
        for bad in ["x=1", "after=1&after=2", "after=%", "after=%4", "after=%zz", "after=%ff", "="]
        {
            assert!(Query::parse(Some(bad), &["after"]).is_err(), "{bad}");
        }
        assert!(Query::parse(None, &[]).is_ok());
    }
}
