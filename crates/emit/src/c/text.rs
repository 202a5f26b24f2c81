//! Constants in C syntax.

use crate::wrap;

/// A number as a constant, of 64 bits where 32 are too few.
pub(crate) fn number(value: i64) -> String {
    match value {
        i64::MIN => "INT64_MIN".to_owned(),
        i64::MAX => "INT64_MAX".to_owned(),
        _ if i32::try_from(value).is_ok() => value.to_string(),
        _ => format!("INT64_C({value})"),
    }
}

/// Octets between quotes; question marks are escaped, as they might begin a trigraph.
pub(crate) fn quoted(octets: &[u8]) -> String {
    wrap::quoted(octets, b"\"\\?")
}
