//! Constants and names in Java syntax.

use crate::wrap;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a constant's name, in characters, before the suffix that makes it unique.
const NAME_MAX: usize = 32;

/// A number as a constant, a `long` where 32 bits are too few.
pub(crate) fn number(value: i64) -> String {
    match value {
        i64::MIN => "Long.MIN_VALUE".to_owned(),
        i64::MAX => "Long.MAX_VALUE".to_owned(),
        _ if i32::try_from(value).is_ok() => value.to_string(),
        _ => format!("{value}L"),
    }
}

/// Octets between quotes, each a character of ISO 8859-1.
pub(crate) fn quoted(octets: &[u8]) -> String {
    wrap::quoted(octets, b"\"\\")
}

/// The camel-case name of a method or variable, from a name in lower case with `_`. Different names
/// stay different: a capital replaces `_` before a letter, and nothing else changes.
pub(crate) fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut before = '_';
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(next) if c == '_' && before != '_' && next.is_ascii_lowercase() => {
                camel.push(next.to_ascii_uppercase());
                before = *next;
                rest.next();
            }
            _ => {
                camel.push(c);
                before = c;
            }
        }
    }
    camel
}

/// The name of a class; it hides no class that the generated text uses.
pub(crate) fn class(name: &str) -> String {
    const TAKEN: [&str; 7] = [
        "OctetClass",
        "RequestKind",
        "SessionKind",
        "SessionVariables",
        "TooLong",
        "Override",
        "String",
    ];
    let camel = camel(name);
    let mut rest = camel.chars();
    let first = rest.next().map(|c| c.to_ascii_uppercase());
    let mut class: String = first.into_iter().chain(rest).collect();
    if TAKEN.contains(&class.as_str()) {
        class.push('_');
    }
    class
}

/// The name of a constant.
pub(crate) fn constant(name: &str) -> String {
    name.to_ascii_uppercase()
}

/// Text that is safe in a comment: Java could read a backslash there as an escape.
pub(crate) fn comment(text: &str) -> String {
    text.chars().map(|c| if c == '\\' || c.is_control() { '/' } else { c }).collect()
}

/// Constant octets under descriptive names.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    named: BTreeMap<Vec<u8>, String>,
    given: BTreeSet<String>,
}

impl Texts {
    /// The name of some octets.
    pub(crate) fn name(&mut self, octets: &[u8]) -> String {
        if let Some(name) = self.named.get(octets) {
            return name.clone();
        }
        let wanted = readable(octets);
        let mut name = wanted.clone();
        let mut number = 1;
        while !self.given.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        self.named.insert(octets.to_vec(), name.clone());
        name
    }

    /// All named octets, by name.
    pub(crate) fn all(&self) -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<_> =
            self.named.iter().map(|(octets, name)| (name.clone(), octets.clone())).collect();
        all.sort();
        all
    }
}

/// A name that octets can be recognised by.
fn readable(octets: &[u8]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut in_word = false;
    let is_word = |at: Option<&u8>| at.is_some_and(u8::is_ascii_alphanumeric);
    for (at, octet) in octets.iter().enumerate() {
        let next = octets.get(at + 1);
        if in_word && matches!(octet, b' ' | b'.' | b'-') && is_word(next) {
            in_word = false;
            continue;
        }
        if octet.is_ascii_alphanumeric() {
            let c = char::from(octet.to_ascii_uppercase());
            match words.last_mut() {
                Some(word) if in_word => word.push(c),
                _ => words.push(c.to_string()),
            }
            in_word = true;
            continue;
        }
        in_word = false;
        words.push(sign(*octet));
    }
    let mut name = String::new();
    for word in words {
        if name.len() + word.len() > NAME_MAX {
            break;
        }
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(&word);
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "T_");
    }
    name
}

fn sign(octet: u8) -> String {
    let word = match octet {
        b'\r' => "CR",
        b'\n' => "LF",
        b'\t' => "TAB",
        b' ' => "BLANK",
        b'-' => "DASH",
        b'.' => "DOT",
        b',' => "COMMA",
        b':' => "COLON",
        b';' => "SEMICOLON",
        b'=' => "EQUALS",
        b'/' => "SLASH",
        b'<' => "LESS",
        b'>' => "GREATER",
        b'"' => "QUOTE",
        b'(' => "OPEN",
        b')' => "CLOSE",
        b'{' => "BRACE",
        b'}' => "UNBRACE",
        b'+' => "PLUS",
        b'?' => "ASK",
        b'@' => "AT",
        b'_' => "LINE",
        _ => return format!("X{octet:02X}"),
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_differ_as_java() {
        let cases = [
            ("a_b", "aB"),
            ("a__b", "a__b"),
            ("double_", "double_"),
            ("x_1", "x_1"),
            ("_a", "_a"),
            ("ab", "ab"),
        ];
        for (name, wanted) in cases {
            assert_eq!(camel(name), wanted);
        }
    }

    #[test]
    fn constants_tell_what_they_are() {
        let mut texts = Texts::default();
        assert_eq!(texts.name(b"MAIL FROM:"), "MAIL_FROM_COLON");
        assert_eq!(texts.name(b"\r\n"), "CR_LF");
        assert_eq!(texts.name(b"250"), "T_250");
        assert_eq!(texts.name(b"4.3.0 try again"), "T_4_3_0_TRY_AGAIN");
        assert_eq!(texts.name(b""), "T_");
        assert_eq!(texts.name(b"mail from:"), "MAIL_FROM_COLON_2");
        assert_eq!(texts.name(b"MAIL FROM:"), "MAIL_FROM_COLON");
    }
}
