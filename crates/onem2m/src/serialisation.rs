//! Serialisation of content: JSON with short names, and the same values in CBOR (TS-0004 §8).

use crate::status::{Refusal, Status};
use crate::unique::check_keys;
use ciborium::de::Error as CborError;
use serde_json::Value;
use std::io;

/// Serialisation of content.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Serialisation {
    /// JSON with short names.
    #[default]
    Json,
    /// The same values in CBOR.
    Cbor,
}

impl Serialisation {
    /// The media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Cbor => "application/cbor",
        }
    }

    /// Whether contentSerialization (m2m:serializations) calls it so: by its media type, or by that
    /// of resources (TS-0004 §6.7).
    pub(crate) fn is_called(self, name: &str) -> bool {
        match self {
            Self::Json => matches!(name, "application/json" | "application/vnd.onem2m-res+json"),
            Self::Cbor => matches!(name, "application/cbor" | "application/vnd.onem2m-res+cbor"),
        }
    }

    /// JSON text from the octets of a message.
    ///
    /// # Errors
    ///
    /// 4000 if they are none of this serialisation.
    pub fn read(self, octets: &[u8]) -> Result<String, Refusal> {
        match self {
            Self::Json => core::str::from_utf8(octets)
                .map(str::to_owned)
                .map_err(|_| Refusal::bad("the content is not UTF-8")),
            Self::Cbor => json_from_cbor(octets),
        }
    }

    /// The octets of a message from JSON text.
    ///
    /// # Errors
    ///
    /// 5000 if `text` is no JSON.
    pub fn write(self, text: &str) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Json => Ok(text.as_bytes().to_vec()),
            Self::Cbor => cbor_from_json(text),
        }
    }
}

/// JSON text from CBOR octets: how a binding takes content in CBOR.
///
/// # Errors
///
/// 4000 if the octets are no CBOR, or CBOR that JSON cannot say, or a map has a key twice.
pub fn json_from_cbor(octets: &[u8]) -> Result<String, Refusal> {
    Ok(value_of_cbor(octets)?.to_string())
}

/// The value that CBOR octets stand for.
///
/// # Errors
///
/// 4000 if the octets are no CBOR, or CBOR that JSON cannot say, or a map has a key twice.
pub(crate) fn value_of_cbor(octets: &[u8]) -> Result<Value, Refusal> {
    check_keys(&ciborium::from_reader(octets).map_err(no_cbor)?)?;
    ciborium::from_reader(octets).map_err(no_cbor)
}

/// Why octets are no CBOR that is taken, in words: the library writes the names of its own types.
fn no_cbor(error: CborError<io::Error>) -> Refusal {
    let at = |offset: Option<usize>| offset.map_or(String::new(), |it| format!(" at octet {it}"));
    Refusal::bad(match error {
        CborError::Io(_) => "no CBOR: it ends before its last item does".to_owned(),
        CborError::Syntax(offset) => format!("no CBOR: no item begins{}", at(Some(offset))),
        CborError::Semantic(offset, why) => format!("CBOR with a wrong item{}: {why}", at(offset)),
        CborError::RecursionLimitExceeded => "CBOR that is nested too deeply".to_owned(),
    })
}

/// CBOR octets from JSON text: how a binding sends content in CBOR.
///
/// # Errors
///
/// 5000 if `text` is no JSON.
pub fn cbor_from_json(text: &str) -> Result<Vec<u8>, Refusal> {
    let fault = |words: String| Refusal::new(Status::InternalServerError, words);
    let value: Value = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    let mut octets = Vec::new();
    ciborium::into_writer(&value, &mut octets).map_err(|error| fault(error.to_string()))?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with CBOR is said in words, without names of types.
    #[test]
    fn errors_of_cbor_are_words() {
        let deep = [&[0x81; 300][..], &[0]].concat();
        for (octets, why) in [
            (&b""[..], "ends before"),
            (b"\xa1\x61", "ends before"),
            (b"\x61\xff", "no item begins at octet"),
            (b"\xff", "wrong item"),
            (b"\xa1\x40\x01", "wrong item"),
            (&deep, "nested too deeply"),
        ] {
            let refusal = value_of_cbor(octets).unwrap_err();
            let words = refusal.debug.to_string();
            assert!(words.contains(why), "{octets:x?}: {words}");
            let is_plain = !words.contains(['{', '(', '"']) && !words.contains("Error");
            assert!(is_plain, "{words}");
        }
    }
}
