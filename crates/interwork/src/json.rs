//! JSON writer into a reused text buffer.
//!
//! A decimal keeps its digits: a JSON library's number would turn 96.50 into 96.5.

use core::fmt::{Display, Write};
use gatewright_health::time::AbsoluteTime;

/// Writes JSON to a text.
#[derive(Debug)]
pub(crate) struct Json<'text> {
    text: &'text mut String,
    /// Whether the next member or element needs a comma before it.
    comma: bool,
}

impl<'text> Json<'text> {
    pub(crate) const fn new(text: &'text mut String) -> Self {
        Self { text, comma: false }
    }

    fn separate(&mut self) {
        if core::mem::replace(&mut self.comma, true) {
            self.text.push(',');
        }
    }

    /// Writes an object or array with the output of `body`.
    fn nested(&mut self, open: char, close: char, body: impl FnOnce(&mut Self)) {
        self.separate();
        self.text.push(open);
        self.comma = false;
        body(self);
        self.text.push(close);
        self.comma = true;
    }

    pub(crate) fn object(&mut self, body: impl FnOnce(&mut Self)) {
        self.nested('{', '}', body);
    }

    pub(crate) fn array(&mut self, body: impl FnOnce(&mut Self)) {
        self.nested('[', ']', body);
    }

    /// Writes a member's name; its value must follow.
    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        self.string(name);
        self.text.push(':');
        self.comma = false;
        self
    }

    pub(crate) fn string(&mut self, value: &str) {
        self.separate();
        self.text.push('"');
        escape(self.text, value);
        self.text.push('"');
    }

    /// Writes a string whose display form needs no escapes: numbers, times, identifiers.
    pub(crate) fn shown(&mut self, value: impl Display) {
        self.separate();
        // Writing into a `String` cannot fail.
        let _ = write!(self.text, "\"{value}\"");
    }

    /// Writes a display form as it is: a number with all its digits, or JSON.
    pub(crate) fn raw(&mut self, value: impl Display) {
        self.separate();
        let _ = write!(self.text, "{value}");
    }

    /// A member whose value is a string.
    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.key(name).string(value);
    }
}

/// Appends `value` with the escapes that JSON strings need (RFC 8259 §7).
fn escape(text: &mut String, value: &str) {
    if value.bytes().all(|octet| octet >= 0x20 && octet != b'"' && octet != b'\\') {
        text.push_str(value);
        return;
    }
    for letter in value.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{0}'..='\u{1F}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            letter => text.push(letter),
        }
    }
}

/// Reads `2009-06-12T12:10:00.00`; the hundredths may be missing.
pub(crate) fn iso(text: &str) -> Option<AbsoluteTime> {
    let octets = text.as_bytes();
    let signs = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.')];
    let wrong = |(at, sign): (usize, u8)| octets.get(at).is_some_and(|found| *found != sign);
    if !matches!(octets.len(), 19 | 22) || signs.into_iter().any(wrong) {
        return None;
    }
    let part = |from: usize| text.get(from..from + 2).and_then(|digits| digits.parse::<u8>().ok());
    let hundredth = if octets.len() == 22 { part(20)? } else { 0 };
    let year = text.get(..4)?.parse().ok()?;
    AbsoluteTime::new(year, [part(5)?, part(8)?, part(11)?, part(14)?, part(17)?, hundredth])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commas_stand_between() {
        let mut text = String::new();
        Json::new(&mut text).object(|json| {
            json.text("a", "b");
            json.key("c").array(|json| {
                json.raw(1);
                json.object(|_| {});
                json.raw("96.50");
            });
            json.key("d").object(|json| json.text("e", "f"));
        });
        assert_eq!(text, r#"{"a":"b","c":[1,{},96.50],"d":{"e":"f"}}"#);
    }

    proptest! {
        #[test]
        fn any_string_comes_back(value: String) {
            let mut text = String::new();
            Json::new(&mut text).string(&value);
            prop_assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
        }
    }
}
