//! Serialisation of content: JSON with short names, and the same values in CBOR (TS-0004 §8).

use crate::status::{Refusal, Status};
use crate::unique::check_keys;
use serde_json::Value;

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
    let no_cbor = |error| Refusal::bad(format!("no CBOR: {error}"));
    check_keys(&ciborium::from_reader(octets).map_err(no_cbor)?)?;
    ciborium::from_reader(octets).map_err(no_cbor)
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
