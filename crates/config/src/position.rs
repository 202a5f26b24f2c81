//! A position at a handler of a gateway program.

use std::fmt;

/// A position at a handler of a gateway program: `gateway:NAME/HANDLER`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MessagePosition {
    /// The program's name, as `gateway NAME` in its text says.
    pub program: String,
    /// One of its handlers, or `*` for all.
    pub handler: String,
}

/// Prefix of a message position.
const KIND: &str = "gateway:";

impl MessagePosition {
    /// Whether a text is meant as a message position, valid or not.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(KIND)
    }

    /// Parses `gateway:NAME/HANDLER`.
    pub fn parse(text: &str) -> Option<Self> {
        let (program, handler) = text.strip_prefix(KIND)?.split_once('/')?;
        let is_name = |name: &str| {
            let word = |octet: u8| octet.is_ascii_alphanumeric() || b"_.+".contains(&octet);
            !name.is_empty() && name.bytes().all(word)
        };
        let right = is_name(program) && (handler == "*" || is_name(handler));
        right.then(|| Self { program: program.to_owned(), handler: handler.to_owned() })
    }
}

impl fmt::Display for MessagePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KIND}{}/{}", self.program, self.handler)
    }
}
